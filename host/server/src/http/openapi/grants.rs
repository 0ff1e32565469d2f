//! Grants for hosts.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{ANY, BODY, LEASES, POSITIVE, Paths, QUERY, STORE, WHOLE, answer, name, query, reference, sub_key};
use crate::config::Config;
use crate::service::problem::Kind;

/// What any grant may meet.
const GRANTS: &[Kind] = &[Kind::OutcomeUnknown, Kind::TagInvalid];
/// What a tag may meet besides.
const TAGS: &[Kind] = &[
    Kind::TagUnknown,
    Kind::TagLimit,
    Kind::SubKeyLimit,
    Kind::FormatInvalid,
    Kind::FormatBound,
    Kind::CountInvalid,
    Kind::Exhausted,
    Kind::CeilingReached,
    Kind::QuotaReached,
];
/// What a lease may meet besides.
const WORKERS: &[Kind] = &[Kind::SnowflakeUnknown, Kind::LayoutUnknown, Kind::LayoutRefused, Kind::LeaseLost];

/// What is said of each of them.
const SAID: &str = "An answer belongs to the request whose X-Request-Id it has: send a random one, and use no answer with \
    another. A request that is sent again is granted something else.";

fn required(mut parameter: Value) -> Value {
    parameter["required"] = true.into();
    parameter
}

fn whole(name: &str, description: &str, example: &str) -> Value {
    let mut parameter = query(name, description, json!({ "type": "string", "pattern": WHOLE, "maxLength": 20 }));
    parameter["example"] = example.into();
    parameter
}

fn positive(name: &str, description: &str, example: &str) -> Value {
    let mut parameter = whole(name, description, example);
    parameter["schema"]["pattern"] = POSITIVE.into();
    parameter
}

pub(super) fn grants(paths: &mut Paths, config: &Config) {
    // It was checked when it was read.
    let layouts: BTreeSet<String> =
        config.snowflakes().into_iter().flatten().map(|(_, options)| options.layout.to_string()).collect();
    let worker_max = config.snowflakes().into_iter().flatten().map(|(_, options)| options.layout.worker_max()).max();
    let layout_texts: Vec<_> = layouts.iter().map(|layout| layout.replace('+', "\\+")).collect();
    let layout_pattern = format!("^({})$", layout_texts.join("|"));
    let tag = || name("tag", "The tag that is counted under", "order");
    let snowflake = || name("name", "The name of a snowflake in the configuration", "default");
    let store = "5f1e2d3c4b5a69788796a5b4c3d2e1f0";
    let add = |paths: &mut Paths, method: &str, path: &str, mut said: Value, kinds: &[Kind]| {
        said["tags"] = json!(["grants"]);
        let description = said["description"].as_str().unwrap_or_default();
        said["description"] = format!("{description} {SAID}").trim().into();
        paths.add(method, path, said, &[QUERY, BODY, GRANTS, kinds, STORE, ANY]);
    };
    add(
        paths,
        "get",
        "/v1/store",
        json!({
            "operationId": "showStores",
            "summary": "Which stores the server has",
            "description": "Servers with the same store share their ids; those of different stores repeat them. null where \
                there is no store, or it has no name.",
            "responses": { "200": answer(
                "The names of the stores", "application/json", reference("Stores"), json!({ "store": store, "leases": store }),
            ) },
        }),
        &[],
    );
    let kept = |name: &str, description: &str| positive(name, description, "8372328055664279552");
    let shape = || {
        kept(
            "shape",
            "What a store keeps of the format that the host shows the ids in, as it was bound; without it the host shows them \
             as they are",
        )
    };
    let format = |owner: Value| {
        let width = |name: &str, description: &str, least: u8, most: u8| {
            query(name, description, json!({ "type": "integer", "format": "int32", "minimum": least, "maximum": most }))
        };
        json!([
            owner,
            required(query("part", "Which part of the format", json!({ "type": "string", "enum": ["shape", "key"] }))),
            width("key_id", "The number of the key; only for the part key, and required there", 0, u8::MAX),
            width("key_bits", "How many bits the key permutes; only for the part key, and required there", 2, 63),
            kept("first", "What to bind where nothing is bound: 1 to 2^63 - 1"),
        ])
    };
    let bound = || {
        answer(
            "What is bound; null where nothing is, or where the store keeps no formats",
            "application/json",
            reference("BoundFormat"),
            json!({ "bound": "8372328055664279552", "store": store }),
        )
    };
    add(
        paths,
        "post",
        "/v1/sequences/{tag}/format",
        json!({
            "operationId": "bindTagFormat",
            "summary": "Compare the format of a tag with the one that is bound",
            "description": "A host that shows ids in a format binds its shape and the check of each key before it shows one. \
                Without first nothing is bound. What is bound once stays.",
            "parameters": format(tag()),
            "responses": { "200": bound() },
        }),
        &[Kind::TagUnknown, Kind::TagLimit],
    );
    add(
        paths,
        "post",
        "/v1/snowflakes/{name}/format",
        json!({
            "operationId": "bindSnowflakeFormat",
            "summary": "Compare the format of a snowflake with the one that is bound",
            "description": "As for a tag. It is bound in the store of the sequences.",
            "parameters": format(snowflake()),
            "responses": { "200": bound() },
        }),
        &[Kind::SnowflakeUnknown],
    );
    add(
        paths,
        "post",
        "/v1/sequences/{tag}/open",
        json!({
            "operationId": "openTag",
            "summary": "Look at a tag before numbers of it are granted",
            "description": "The tag is created on first use, unless the server is told otherwise.",
            "parameters": [tag(), sub_key(), shape()],
            "responses": { "200": answer(
                "The tag as the store keeps it",
                "application/json",
                reference("OpenedTag"),
                json!({
                    "tag": {
                        "tag": "order", "mode": "buffered", "start": "1", "step": { "policy": "fixed", "step": "1000" },
                        "refill": { "policy": "share-consumed", "percent": 10 }, "watermark": "1000", "version": "1",
                    },
                    "store": store,
                }),
            ) },
        }),
        TAGS,
    );
    add(
        paths,
        "post",
        "/v1/sequences/{tag}/segments",
        json!({
            "operationId": "grantSegment",
            "summary": "Grant numbers to a host",
            "description": "They are the host's for ever: start, start + stride, .. below end. Perhaps fewer than count, never \
                none; at most as many as the server's segment_count_max.",
            "parameters": [
                tag(),
                required(positive("count", "How many numbers, 1 or more", "1000")),
                whole("at_least", "No number is less than this one; 0 if it is not given", "1"),
                sub_key(),
                shape(),
            ],
            "responses": { "200": answer(
                "The numbers",
                "application/json",
                reference("GrantedSegment"),
                json!({
                    "tag": "order",
                    "segment": { "start": "1001", "end": "2001", "stride": "1", "generation": "0", "version": "2" },
                    "store": store,
                }),
            ) },
        }),
        TAGS,
    );
    let released = |description: &str| {
        let example = json!({ "released": true, "store": store });
        answer(description, "application/json", reference("Released"), example)
    };
    add(
        paths,
        "post",
        "/v1/sequences/{tag}/segments/release",
        json!({
            "operationId": "releaseSegment",
            "summary": "Give the end of a segment back",
            "description": "Only its holder may, for numbers that nobody has used and nobody will. It is taken back if nothing \
                was granted, released or raised since.",
            "parameters": [
                tag(),
                required(whole("start", "The first number that is given back", "1501")),
                required(whole("version", "The version that the segment was granted with", "2")),
                sub_key(),
                shape(),
            ],
            "responses": { "200": released("Whether the numbers were taken back; if not, they are a gap") },
        }),
        TAGS,
    );
    let worker = || {
        json!({
            "name": "worker", "in": "path", "required": true, "description": "The worker that was leased",
            "schema": { "type": "string", "pattern": WHOLE, "maxLength": 10 }, "example": "7",
        })
    };
    let layout = || {
        let mut layout = required(query(
            "layout",
            "The layout of the ids, written out: the one that the server has for the snowflake",
            json!({ "type": "string", "pattern": layout_pattern }),
        ));
        layout["example"] = layouts.first().cloned().into();
        layout
    };
    let grant_id = || {
        let mut grant_id = required(query("grant_id", "The lease's own name, as it was granted", reference("Digits")));
        grant_id["example"] = "58f02ff3dabed220c0ec9e47bb897d08".into();
        grant_id
    };
    let now_ms = || required(whole("now_ms", "The host's clock, in Unix milliseconds", "1795392000000"));
    let horizon_ms =
        || required(positive("horizon_ms", "How far ahead the lease shall reach, in milliseconds", "60000"));
    let lease = |description: &str| {
        answer(
            description,
            "application/json",
            reference("GrantedLease"),
            json!({
                "snowflake": "default",
                "lease": {
                    "worker": 7, "grant_id": "58f02ff3dabed220c0ec9e47bb897d08", "not_before_ms": "1795392000000",
                    "valid_until_ms": "1795392060000",
                },
                "store": store,
            }),
        )
    };
    let kinds = [LEASES, WORKERS].concat();
    add(
        paths,
        "post",
        "/v1/snowflakes/{name}/leases",
        json!({
            "operationId": "acquireLease",
            "summary": "Lease a worker to a host",
            "description": "The host makes ids with this worker, of ticks from not_before_ms on that end by valid_until_ms.",
            "parameters": [
                snowflake(),
                layout(),
                now_ms(),
                horizon_ms(),
                query("holder", "A stable name of the host, for preference and display only", reference("Name")),
                query(
                    "preferred_worker",
                    "A worker that the host would like to have, when it is free",
                    json!({ "type": "integer", "format": "int64", "minimum": 0, "maximum": worker_max.unwrap_or(0) }),
                ),
            ],
            "responses": { "200": lease("The worker and its time") },
        }),
        &kinds,
    );
    add(
        paths,
        "post",
        "/v1/snowflakes/{name}/leases/{worker}/extend",
        json!({
            "operationId": "extendLease",
            "summary": "Prolong a lease",
            "parameters": [snowflake(), worker(), grant_id(), layout(), now_ms(), horizon_ms()],
            "responses": { "200": lease("The worker and its time, which never ends earlier than before") },
        }),
        &kinds,
    );
    add(
        paths,
        "post",
        "/v1/snowflakes/{name}/leases/{worker}/release",
        json!({
            "operationId": "releaseLease",
            "summary": "End a lease early",
            "parameters": [
                snowflake(),
                worker(),
                grant_id(),
                required(whole("end_ms", "The end of the last tick that was used, in Unix milliseconds", "1795392030000")),
            ],
            "responses": { "200": released("Whether it was ended; if not, it runs out by itself") },
        }),
        &kinds,
    );
}

/// The schemas of these.
pub(super) fn schemas(record: impl Fn(Value) -> Value, also: impl Fn(Value, &str, Value) -> Value) -> Value {
    let name = || {
        json!({
            "type": ["string", "null"], "pattern": "^[0-9a-f]{32}$",
            "description": "The random name of a store; null where it has none",
        })
    };
    let id = || json!({ "type": "string", "pattern": POSITIVE, "maxLength": 20 });
    json!({
        "Digits": { "type": "string", "pattern": "^[0-9a-f]{32}$", "description": "32 hexadecimal digits" },
        "Stores": record(json!({ "store": name(), "leases": name() })),
        "BoundFormat": record(json!({
            "bound": {
                "type": ["string", "null"], "pattern": POSITIVE, "maxLength": 20,
                "description": "A number of the bound format; null where none is bound",
            },
            "store": name(),
        })),
        "OpenedTag": record(json!({ "tag": reference("Tag"), "store": name() })),
        "GrantedSegment": also(
            record(json!({ "tag": reference("Name"), "segment": reference("Segment"), "store": name() })),
            "sub",
            reference("SubKey"),
        ),
        "Segment": record(json!({
            "start": id(), "end": id(), "stride": id(), "generation": reference("Figure"), "version": reference("Figure"),
        })),
        "Released": record(json!({ "released": { "type": "boolean" }, "store": name() })),
        "GrantedLease": record(json!({
            "snowflake": reference("Name"), "lease": reference("Lease"), "store": name(),
        })),
        "Lease": record(json!({
            "worker": { "type": "integer", "format": "int64", "minimum": 0, "maximum": u32::MAX },
            "grant_id": reference("Digits"), "not_before_ms": reference("Figure"), "valid_until_ms": reference("Figure"),
        })),
    })
}
