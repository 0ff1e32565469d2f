//! The console: its page, and the figures that it shows.

use serde_json::{Value, json};

use super::{ANY, Paths, WHOLE, answer, reference};
use crate::http::console::{FIGURES, PAGE, SCRIPT, STYLE};

/// What is said of each number over time.
const SERIES: &str = "A number for each sample, the newest last, 120 at most; -1 where there is none";

pub(super) fn console(paths: &mut Paths) {
    for (path, operation, media, summary) in [
        (PAGE, "consolePage", "text/html", "A page that shows this server to people"),
        (STYLE, "consoleStyle", "text/css", "What the page looks like"),
        (SCRIPT, "consoleScript", "text/javascript", "What the page does"),
    ] {
        paths.add(
            "get",
            path,
            json!({
                "operationId": operation,
                "tags": ["operation"],
                "summary": summary,
                "description": "It holds no data, and needs no token for itself.",
                "responses": { "200": {
                    "description": "Text", "content": { media: { "schema": { "type": "string", "minLength": 1 } } },
                } },
            }),
            &[ANY],
        );
    }
    paths.add(
        "get",
        FIGURES,
        json!({
            "operationId": "consoleFigures",
            "tags": ["operation"],
            "summary": "What the console shows: this server, its store, its tags and its snowflakes, now and over ten minutes",
            "description": "It is made for the page of this server, and grows with it: programs that watch a server read \
                /metrics. The answer is at most a second old, what it says of leases some seconds. The 200 tags that are used \
                most are in it, sub-keys added up. A token that is bound to tags is refused.",
            "responses": { "200": answer("Figures", "application/json", reference("Console"), example()) },
        }),
        &[ANY],
    );
}

fn example() -> Value {
    let series = || json!([0, 12.4, 12.6]);
    json!({
        "now": "2026-11-27T10:00:00.000Z", "now_ms": 1_795_773_600_000_u64,
        "server": {
            "version": "0.1.0", "uptime_seconds": 15, "ending": false, "tokens_required": false, "connections_open": 1,
            "connections_refused": "0",
        },
        "ready": { "status": "ready" },
        "store": {
            "address": "sqlite://unalike.sqlite", "backing": null, "leases": "sqlite://unalike.sqlite",
            "identity": "5f1e2d3c4b5a69788796a5b4c3d2e1f0",
        },
        "series": {
            "every_ms": 5_000, "newest": "2026-11-27T09:59:58.000Z", "ids_per_second": series(),
            "requests_per_second": series(), "refused_per_second": series(), "failed_per_second": series(),
            "grants_per_second": series(), "grant_failures_per_second": series(), "grant_median_ms": series(),
            "grant_longest_ms": series(), "probe_ms": series(),
        },
        "tags_open": 1, "least_cover_seconds": 79.1,
        "tags": [{
            "tag": "order", "mode": "buffered", "open": 1, "rate": 12.6, "cover_seconds": 79.1, "left": "997",
            "issued": "3", "waits": "1", "rates": series(), "covers": series(),
        }],
        "snowflakes": [],
    })
}

pub(super) fn schemas(record: impl Fn(Value) -> Value) -> Value {
    let integer = || json!({ "type": "integer", "format": "int64", "minimum": 0 });
    let figure = |description: &str| json!({ "type": "number", "minimum": 0, "description": description });
    let maybe = |description: &str| json!({ "type": ["number", "null"], "minimum": 0, "description": description });
    let text = |description: &str| json!({ "type": ["string", "null"], "description": description });
    let time = |description: &str| json!({ "type": "string", "format": "date-time", "description": description });
    let whole = |description: &str| json!({ "type": "string", "pattern": WHOLE, "maxLength": 20, "description": format!("{description}; below 2^64") });
    let series = || reference("ConsoleSeries");
    let list = |schema: &str, most: u32| json!({ "type": "array", "maxItems": most, "items": reference(schema) });
    json!({
        "Console": record(json!({
            "now": time("When this was made, by the server's clock"),
            "now_ms": integer(),
            "server": reference("ConsoleServer"),
            "ready": reference("ConsoleReady"),
            "store": reference("ConsoleStore"),
            "series": reference("ConsoleAllSeries"),
            "tags_open": integer(),
            "least_cover_seconds": maybe("The least cover of all tags that are in use; null while none is"),
            "tags": list("ConsoleTag", 200),
            "snowflakes": list("ConsoleSnowflake", 50),
        })),
        "ConsoleSeries": {
            "type": "array", "maxItems": 120, "items": { "type": "number", "minimum": -1 }, "description": SERIES,
        },
        "ConsoleServer": record(json!({
            "version": { "type": "string" },
            "uptime_seconds": integer(),
            "ending": { "type": "boolean", "description": "Whether it is about to end" },
            "tokens_required": { "type": "boolean" },
            "connections_open": integer(),
            "connections_refused": whole("Those beyond connections_max"),
        })),
        "ConsoleReady": {
            "type": "object", "required": ["status"], "additionalProperties": false,
            "description": "As /health/ready says it, with the problem where it is not ready",
            "properties": {
                "status": { "type": "string", "enum": ["ready", "covered", "not-ready"] },
                "store_down_since": time("Where it is covered, as what follows"),
                "cover_seconds": maybe("How long what was granted lasts; null while no tag is used"),
                "tag": text("The tag that is used up first"),
                "problem": reference("Problem"),
            },
        },
        "ConsoleStore": record(json!({
            "address": { "type": "string", "description": "Its URL without what is secret in it" },
            "backing": text("The durable store behind Redis"),
            "leases": text("Where workers are leased from; null where they are not"),
            "identity": text("Its name; null where it has none, or has not said it yet"),
        })),
        "ConsoleAllSeries": record(json!({
            "every_ms": integer(),
            "newest": text("When the newest sample was taken; null before the first"),
            "ids_per_second": series(), "requests_per_second": series(), "refused_per_second": series(),
            "failed_per_second": series(), "grants_per_second": series(), "grant_failures_per_second": series(),
            "grant_median_ms": series(), "grant_longest_ms": series(), "probe_ms": series(),
        })),
        "ConsoleTag": record(json!({
            "tag": { "type": "string" },
            "mode": { "type": "string", "enum": ["buffered", "ordered"] },
            "open": integer(),
            "rate": figure("Ids per second, in the last 5 to 10 seconds"),
            "cover_seconds": maybe("How long what is left lasts at this rate; null without use, and for an ordered tag"),
            "left": whole("Numbers that this server was granted and has not handed out"),
            "issued": whole("Ids that this server handed out"),
            "waits": whole("Calls that had to wait"),
            "rates": series(), "covers": series(),
        })),
        "ConsoleSnowflake": record(json!({
            "snowflake": { "type": "string" },
            "layout": { "type": "string" },
            "workers": integer(),
            "ready": { "type": "boolean" },
            "why": text("Why it gives no ids, where it is asked and gives none"),
            "stopped_since": text("Since when"),
            "worker": { "type": ["integer", "null"], "format": "int64", "minimum": 0 },
            "reach": text("Until when the worker is leased"),
            "left_seconds": figure("How long that is from now"),
            "ahead_ms": integer(),
            "rate": figure("Ids per second"),
            "issued": whole("Ids that this server handed out"),
            "refused": whole("Calls that got an error"),
            "waits": whole("Calls that had to wait"),
            "rates": series(),
            "missing": text("Why there are no leases at all, where that is so"),
            "leased": reference("ConsoleLeases"),
        })),
        "ConsoleLeases": record(json!({
            "asked": text("When the lease store answered last; null before it did"),
            "error": text("Why it did not answer since"),
            "held": integer(),
            "free": integer(),
            "leases": list("ConsoleLease", 200),
        })),
        "ConsoleLease": record(json!({
            "worker": integer(),
            "holder": { "type": "string" },
            "from": text("When it begins; null for a worker that was assigned"),
            "from_ms": integer(),
            "until": { "type": "string" },
            "until_ms": integer(),
            "state": { "type": "string", "enum": ["running", "extension forbidden", "ended"] },
        })),
    })
}
