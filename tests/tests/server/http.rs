//! The HTTP interface, over real servers on SQLite files.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic_in_result_fn,
    reason = "a test that cannot go on fails"
)]

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use sqlx::{Connection as _, SqliteConnection};
use tempfile::TempDir;
use unalike_tests::PATIENCE;
use unalike_tests::server::{Answer, Client, Server};

const ORDER: &str = "/v1/sequences/order/ids";

/// Every byte percent-encoded, so that nothing on the way reads it as something else.
fn encoded(name: &str) -> String {
    name.bytes().fold(String::new(), |mut text, byte| {
        write!(text, "%{byte:02X}").expect("a string takes everything");
        text
    })
}

#[track_caller]
fn assert_distinct(mut ids: Vec<u64>) {
    ids.sort_unstable();
    if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        panic!("{} was handed out twice", twice[0]);
    }
    assert!(ids.first().is_some_and(|&id| id >= 1) && ids.last().is_some_and(|&id| id <= i64::MAX.unsigned_abs()));
}

#[track_caller]
fn assert_problem(answer: &Answer, status: u16, name: &str, member: &str, value: &Value) {
    assert_eq!((answer.status, answer.problem().unwrap().as_str()), (status, name), "{answer:?}");
    assert_eq!(answer.json().unwrap().get(member), Some(value), "{answer:?}");
}

#[test]
fn ids_of_a_new_tag_begin_at_one() -> anyhow::Result<()> {
    let server = Server::start()?;
    let client = server.client();
    let answer = client.get(ORDER)?;
    assert_eq!((answer.status, answer.body.as_str()), (200, r#"{"tag":"order","ids":["1"]}"#));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let answer = client.send("POST", &format!("{ORDER}?count=2"), "text/plain", "")?;
    assert_eq!(answer.body, r#"{"tag":"order","ids":["2","3"]}"#);
    let answer = client.get(&format!("{ORDER}?count=3&as=string"))?;
    assert_eq!(answer.body, r#"{"tag":"order","ids":["4","5","6"]}"#);
    let answer = client.get(&format!("{ORDER}?as=string"))?;
    assert_eq!(answer.body, r#"{"tag":"order","ids":["7"]}"#);
    let answer = client.get_as(&format!("{ORDER}?count=2"), "text/plain")?;
    assert_eq!((answer.status, answer.body.as_str()), (200, "8\n9\n"));
    assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    Ok(())
}

#[test]
fn the_largest_batch_is_whole_and_ascends() -> anyhow::Result<()> {
    let server = Server::start()?;
    for _ in 0..3 {
        let ids = server.get(&format!("{ORDER}?count=10000"))?.ids()?;
        assert_eq!(ids.len(), 10_000);
        assert!(ids.is_sorted());
    }
    let ids = server.get("/v1/snowflakes/default/ids?count=10000")?.ids()?;
    assert_eq!(ids.len(), 10_000);
    assert!(ids.is_sorted());
    Ok(())
}

#[test]
fn the_default_snowflake_needs_no_configuration() -> anyhow::Result<()> {
    let server = Server::start()?;
    let client = server.client();
    let answer = client.get("/v1/snowflakes/default/ids?count=2")?;
    let ids = answer.ids()?;
    assert_eq!(answer.body, format!(r#"{{"snowflake":"default","ids":["{}","{}"]}}"#, ids[0], ids[1]));
    assert!(ids[0] < ids[1]);
    let before = client.get(&format!("/v1/decode/{}?layout=twitter", ids[0]))?.json()?;
    let after = client.get(&format!("/v1/decode/{}?layout=twitter", ids[1]))?.json()?;
    assert_eq!(before["fields"]["worker"], after["fields"]["worker"]);
    assert!(before["unix_ms"].as_u64() <= after["unix_ms"].as_u64());
    let number = client.send("POST", "/v1/snowflakes/default/ids?as=number", "text/plain", "")?;
    assert_problem(&number, 400, "number-unsafe", "name", &json!("default"));
    let lines = client.ids("/v1/snowflakes/default/ids?count=5")?;
    assert_eq!(lines.len(), 5);
    Ok(())
}

#[test]
fn configured_snowflakes_have_their_own_layout() -> anyhow::Result<()> {
    let (directory, arguments) = configured("[snowflakes.web]\nlayout = \"cosid-53\"\n")?;
    let mut server = Server::start_in(Arc::clone(&directory), arguments.clone())?;
    let web = server.get("/v1/snowflakes/web/ids?as=number")?.ids()?;
    assert!(web[0] < 1 << 53);
    let decoded = server.get(&format!("/v1/decode/{}?layout=cosid-53", web[0]))?.json()?;
    assert!(decoded["time"].as_str().is_some_and(|time| time.starts_with("20")), "{decoded}");
    assert!(server.get("/v1/snowflakes/default/ids")?.ids()?[0] > 1 << 53);

    // The name is bound to its layout: with another one a server does not start.
    server.sigterm()?;
    std::fs::write(directory.path().join("unalike.toml"), "[snowflakes.web]\nlayout = \"leaf\"\n")?;
    let refused = Server::start_in(Arc::clone(&directory), arguments.clone()).unwrap_err().to_string();
    assert!(refused.contains("the snowflake \"web\" gets no workers") && refused.contains("layout"), "{refused}");
    // The one that is there unasked keeps nobody from numbers: it is refused by request, and nothing about the file is
    // said.
    let (directory, arguments) = configured("[snowflakes.default]\nlayout = \"leaf\"\n")?;
    let mut server = Server::start_in(Arc::clone(&directory), arguments.clone())?;
    assert_eq!(server.get("/v1/snowflakes/default/ids")?.status, 200);
    server.sigterm()?;
    std::fs::write(directory.path().join("unalike.toml"), "")?;
    let server = Server::start_in(directory, arguments)?;
    let answer = server.get("/v1/snowflakes/default/ids")?;
    assert_problem(&answer, 500, "layout-mismatch", "snowflake", &json!("default"));
    Ok(())
}

#[test]
fn tags_are_created_listed_changed_and_raised() -> anyhow::Result<()> {
    let server = Server::start()?;
    let client = server.client();
    let body = json!({
        "tag": "invoice", "start": "5000000000000000000", "mode": "buffered",
        "step": { "policy": "fixed", "step": 10 }, "refill": { "policy": "remaining", "count": "3" },
    });
    let created = client.send_json("POST", "/v1/tags", &body)?;
    assert_eq!(created.status, 201, "{created:?}");
    let expected = json!({
        "tag": "invoice", "mode": "buffered", "start": "5000000000000000000",
        "step": { "policy": "fixed", "step": "10" }, "refill": { "policy": "remaining", "count": "3" },
        "watermark": "4999999999999999999", "version": "0",
    });
    assert_eq!(created.json()?, expected);
    assert_eq!(client.get("/v1/tags/invoice")?.json()?, expected);
    assert_problem(&client.send_json("POST", "/v1/tags", &body)?, 409, "tag-exists", "tag", &json!("invoice"));

    let mut change =
        json!({ "step": { "policy": "adaptive", "max": "5000" }, "raise_to": 6_000_000_000_000_000_000_u64 });
    // So many numbers are not thrown away by a slip.
    for confirm in [Value::Null, json!(false)] {
        change["confirm"] = confirm;
        let asked = client.send_json("PATCH", "/v1/tags/invoice", &change)?;
        assert_problem(&asked, 409, "raise-unconfirmed", "skipped", &json!("1000000000000000000"));
        assert!(
            asked.json()?["detail"].as_str().is_some_and(|detail| detail.contains("\"confirm\": true")),
            "{asked:?}"
        );
        assert_eq!(client.get("/v1/tags/invoice")?.json()?, expected, "nothing was changed");
    }
    change["confirm"] = json!(true);
    let changed = client.send_json("PATCH", "/v1/tags/invoice", &change)?.json()?;
    assert_eq!(changed["step"]["policy"], "adaptive");
    assert_eq!(changed["step"]["max"], "5000");
    assert_eq!(changed["refill"], expected["refill"], "what is not given stays");
    assert_eq!(changed["watermark"], "5999999999999999999");
    let lower = client.send_json("PATCH", "/v1/tags/invoice", &json!({ "raise_to": "7" }))?.json()?;
    assert_eq!(lower["watermark"], "5999999999999999999", "never lowered");
    let first = client.get("/v1/sequences/invoice/ids?as=string")?;
    assert_eq!(first.ids()?, [6_000_000_000_000_000_000]);

    for tag in ["a", "b", "c"] {
        assert_eq!(client.send_json("POST", "/v1/tags", &json!({ "tag": tag }))?.status, 201);
    }
    let names = |path: &str| -> anyhow::Result<Vec<String>> {
        let page = client.get(path)?.json()?;
        let tags = page["tags"].as_array().context("no list")?;
        Ok(tags.iter().filter_map(|tag| tag["tag"].as_str().map(str::to_owned)).collect())
    };
    assert_eq!(names("/v1/tags")?, ["a", "b", "c", "invoice"]);
    assert_eq!(names("/v1/tags?limit=2")?, ["a", "b"]);
    assert_eq!(names("/v1/tags?limit=2&after=b")?, ["c", "invoice"]);
    assert_eq!(names("/v1/tags?after=invoice")?, [""; 0]);

    let ordered = json!({ "tag": "strict", "mode": "ordered" });
    assert_eq!(client.send_json("POST", "/v1/tags", &ordered)?.json()?["mode"], "ordered");
    assert_eq!(client.ids("/v1/sequences/strict/ids?count=3")?, [1, 2, 3]);

    // Looking at a tag, or changing it, never creates it.
    assert_problem(&client.get("/v1/tags/nobody")?, 404, "tag-unknown", "tag", &json!("nobody"));
    for change in [json!({}), json!({ "raise_to": 5 }), json!({ "step": { "policy": "fixed", "step": 1 } })] {
        let answer = client.send_json("PATCH", "/v1/tags/nobody", &change)?;
        assert_problem(&answer, 404, "tag-unknown", "tag", &json!("nobody"));
        // After a loss, an id would begin the tag at its first number.
        let begins = answer.body.contains("unalike tags create --start 5 -- 'nobody'");
        assert_eq!(begins, change["raise_to"] == 5, "{answer:?}");
    }
    assert_problem(&client.get("/v1/tags/nobody")?, 404, "tag-unknown", "tag", &json!("nobody"));
    Ok(())
}

#[test]
fn ids_are_taken_apart() -> anyhow::Result<()> {
    let server = Server::start()?;
    let client = server.client();
    let decoded = client.get("/v1/decode/1169786042799259000?layout=leaf")?.json()?;
    let expected = json!({
        "id": "1169786042799259000", "layout": "leaf", "time": "2019-09-06T01:35:00.834Z",
        "unix_ms": 1_567_733_700_834_u64, "fields": { "worker": 39, "sequence": 3448 },
        "source_names": { "worker": "workerId", "sequence": "sequenceId" },
    });
    assert_eq!(decoded, expected);
    let twitter = client.get("/v1/decode/1169786042799259000?layout=twitter")?.json()?;
    assert_eq!(twitter["fields"], json!({ "datacenter": 1, "worker": 7, "sequence": 3448 }));
    for id in ["0", "-1", "+5", "x", "1e3", "9223372036854775808", "99999999999999999999"] {
        assert_problem(&client.get(&format!("/v1/decode/{id}"))?, 400, "id-invalid", "id", &json!(id));
    }
    let beyond = client.get("/v1/decode/9223372036854775807?layout=cosid-53")?;
    assert_problem(&beyond, 400, "id-invalid", "id", &json!("9223372036854775807"));
    for layout in ["", "Twitter", "nobody's"] {
        let answer = client.get(&format!("/v1/decode/1?layout={layout}"))?;
        assert_problem(&answer, 400, "layout-unknown", "layout", &json!(layout));
    }
    let layouts = client.get("/v1/layouts")?.json()?;
    let baidu = layouts["layouts"].as_array().context("no list")?.iter().find(|layout| layout["name"] == "baidu");
    assert_eq!(baidu.context("no baidu")?["ended"], true);
    Ok(())
}

#[test]
fn health_is_told() -> anyhow::Result<()> {
    let server = Server::start()?;
    assert_eq!(server.get("/health/live")?.body, r#"{"status":"live"}"#);
    assert_eq!(server.get("/health/ready")?.body, r#"{"status":"ready"}"#);
    Ok(())
}

#[test]
fn strange_tags_are_tags() -> anyhow::Result<()> {
    let server = Server::start()?;
    let client = server.client();
    let longest = "é".repeat(64);
    for tag in
        ["órdenes/2026", "заказ", "注文", "🦀", "a b", "%41", "?&=#", "..", ".", "'; DROP TABLE tag; --", &longest]
    {
        let answer = client.get(&format!("/v1/sequences/{}/ids", encoded(tag)))?;
        assert_eq!(answer.status, 200, "{tag}: {answer:?}");
        assert_eq!(answer.json()?, json!({ "tag": tag, "ids": ["1"] }));
        assert_eq!(client.get(&format!("/v1/tags/{}", encoded(tag)))?.json()?["tag"], tag);
    }
    // The same tag, encoded or not.
    assert_eq!(client.get("/v1/sequences/a%20b/ids")?.ids()?, [2]);
    Ok(())
}

#[test]
fn bad_names_are_refused() -> anyhow::Result<()> {
    let server = Server::start()?;
    let client = server.client();
    assert_problem(&client.get("/v1/sequences//ids")?, 400, "tag-invalid", "tag", &json!(""));
    assert_problem(&client.get("/v1/tags/")?, 400, "tag-invalid", "tag", &json!(""));
    for bad in ["a\nb", "\0", "\u{7f}", "\u{85}"] {
        let answer = client.get(&format!("/v1/sequences/{}/ids", encoded(bad)))?;
        assert_problem(&answer, 400, "tag-invalid", "tag", &json!(bad));
    }
    let long = "x".repeat(129);
    for path in [format!("/v1/sequences/{long}/ids"), format!("/v1/tags/{long}")] {
        assert_problem(&client.get(&path)?, 400, "tag-invalid", "tag", &json!("x".repeat(32)));
    }
    let huge = client.get(&format!("/v1/sequences/{}/ids", "x".repeat(8_000)))?;
    assert_problem(&huge, 400, "tag-invalid", "tag", &json!("x".repeat(32)));
    assert_problem(&client.get("/v1/sequences/%FF/ids")?, 400, "tag-invalid", "path", &json!("/v1/sequences/%FF/ids"));
    let created = client.send_json("POST", "/v1/tags", &json!({ "tag": "" }))?;
    assert_problem(&created, 400, "tag-invalid", "tag", &json!(""));
    let unknown = client.get("/v1/snowflakes/nobody/ids")?;
    assert_problem(&unknown, 404, "snowflake-unknown", "snowflake", &json!("nobody"));
    assert_eq!(client.get("/v1/tags")?.json()?, json!({ "tags": [] }), "none of them was created");
    Ok(())
}

#[test]
fn bad_counts_and_queries_are_refused_and_cost_no_id() -> anyhow::Result<()> {
    let server = Server::start()?;
    let client = server.client();
    assert_eq!(client.get(ORDER)?.ids()?, [1]);
    for path in [ORDER, "/v1/snowflakes/default/ids"] {
        for count in ["0", "10001", "4294967297", "99999999999999999999", "-1", "1.5", "ten", ""] {
            let answer = client.get(&format!("{path}?count={count}"))?;
            assert_problem(&answer, 400, "count-invalid", "count", &json!(count));
            assert_eq!(answer.json()?["count_max"], 10_000);
        }
        let form = client.get(&format!("{path}?as=hex"))?;
        assert_problem(&form, 400, "query-invalid", "parameter", &json!("as"));
        assert_problem(&form, 400, "query-invalid", "value", &json!("hex"));
        let unknown = client.get(&format!("{path}?cuont=5"))?;
        assert_problem(&unknown, 400, "query-invalid", "parameter", &json!("cuont"));
        let twice = client.get(&format!("{path}?count=5&count=6"))?;
        assert_problem(&twice, 400, "query-invalid", "parameter", &json!("count"));
    }
    for limit in ["0", "1001", "x"] {
        let answer = client.get(&format!("/v1/tags?limit={limit}"))?;
        assert_problem(&answer, 400, "query-invalid", "value", &json!(limit));
    }
    assert_eq!(client.get(ORDER)?.ids()?, [2]);
    Ok(())
}

#[test]
fn bad_requests_of_any_kind_get_a_problem() -> anyhow::Result<()> {
    let server = Server::start_with(["--body-max-bytes", "1000"])?;
    let client = server.client();
    for path in ["/", "/v1", "/v1/sequences", "/v1/sequences/order", "/v2/sequences/order/ids"] {
        assert_problem(&client.get(path)?, 404, "route-unknown", "path", &json!(path));
    }
    for (method, path) in
        [("DELETE", ORDER), ("PUT", "/v1/tags"), ("POST", "/v1/tags/order"), ("POST", "/health/live"), ("BREW", ORDER)]
    {
        let answer = client.send(method, path, "application/json", "")?;
        assert_problem(&answer, 405, "method-not-allowed", "method", &json!(method));
        assert!(answer.header("allow").is_some(), "{answer:?}");
    }
    let post = |content_type: &str, body: &str| client.send("POST", "/v1/tags", content_type, body);
    let problem = |answer: Answer| -> anyhow::Result<(u16, String)> { Ok((answer.status, answer.problem()?)) };
    for body in [
        "",
        "{",
        "[]",
        "null",
        r#"{"name":"x"}"#,
        r#"{"tag":5}"#,
        r#"{"tag":"x","stepp":1}"#,
        r#"{"tag":"x","start":-1}"#,
        r#"{"tag":"x","start":"1.5"}"#,
        r#"{"tag":"x","mode":"fast"}"#,
        r#"{"tag":"x","step":{"policy":"leaf"}}"#,
        "\u{fffd}",
    ] {
        assert_eq!(problem(post("application/json", body)?)?, (400, "body-invalid".to_owned()), "{body}");
    }
    for body in [
        r#"{"tag":"x","start":0}"#,
        r#"{"tag":"x","start":"9223372036854775808"}"#,
        r#"{"tag":"x","step":{"policy":"fixed","step":0}}"#,
        r#"{"tag":"x","step":{"policy":"adaptive","min":"9","max":"5"}}"#,
        r#"{"tag":"x","refill":{"policy":"share-consumed","percent":101}}"#,
    ] {
        assert_problem(&post("application/json", body)?, 400, "tag-invalid", "tag", &json!("x"));
    }
    let large = json!({ "tag": "x".repeat(1_000) }).to_string();
    assert_eq!(problem(post("application/json", &large)?)?, (413, "body-too-large".to_owned()));
    assert_eq!(problem(post("text/plain", "{}")?)?, (415, "media-type-unsupported".to_owned()));
    assert_eq!(client.get("/v1/tags")?.json()?, json!({ "tags": [] }));
    let raise = client.send_json("PATCH", "/v1/tags/x", &json!({ "raise_to": 0 }))?;
    assert_problem(&raise, 400, "tag-invalid", "tag", &json!("x"));
    Ok(())
}

#[test]
fn tags_need_not_be_created_on_first_use() -> anyhow::Result<()> {
    let server = Server::start_with(["--create-tags", "false"])?;
    let client = server.client();
    assert_problem(&client.get(ORDER)?, 404, "tag-unknown", "tag", &json!("order"));
    assert_eq!(client.send_json("POST", "/v1/tags", &json!({ "tag": "order" }))?.status, 201);
    assert_eq!(client.get(ORDER)?.ids()?, [1], "it is known from now on");
    Ok(())
}

#[test]
fn the_number_of_tags_is_limited() -> anyhow::Result<()> {
    let server = Server::start_with(["--tags-max", "2"])?;
    let client = server.client();
    for tag in ["a", "b"] {
        assert_eq!(client.get(&format!("/v1/sequences/{tag}/ids"))?.ids()?, [1]);
    }
    assert_problem(&client.get("/v1/sequences/c/ids")?, 403, "tag-limit", "tags_max", &json!(2));
    let created = client.send_json("POST", "/v1/tags", &json!({ "tag": "c" }))?;
    assert_problem(&created, 403, "tag-limit", "tag", &json!("c"));
    assert_eq!(client.get("/v1/sequences/a/ids")?.ids()?, [2], "the others go on");
    Ok(())
}

#[test]
fn the_last_number_is_handed_out_and_then_no_more() -> anyhow::Result<()> {
    let server = Server::start()?;
    let client = server.client();
    let last = i64::MAX.unsigned_abs();
    let body = json!({ "tag": "end", "start": (last - 2).to_string() });
    assert_eq!(client.send_json("POST", "/v1/tags", &body)?.status, 201);
    for id in last - 2..=last {
        assert_eq!(client.get("/v1/sequences/end/ids")?.ids()?, [id]);
    }
    for _ in 0..2 {
        assert_problem(&client.get("/v1/sequences/end/ids")?, 410, "exhausted", "name", &json!("end"));
    }
    Ok(())
}

#[test]
fn the_largest_count_is_configured() -> anyhow::Result<()> {
    let server = Server::start_with(["--count-max", "5"])?;
    assert_eq!(server.get(&format!("{ORDER}?count=5"))?.ids()?, [1, 2, 3, 4, 5]);
    assert_problem(&server.get(&format!("{ORDER}?count=6"))?, 400, "count-invalid", "count_max", &json!(5));
    Ok(())
}

/// A client's share of a million: half of the clients take batches of many sizes, half take ids singly.
fn take(client: &Client, number: u64) -> anyhow::Result<Vec<u64>> {
    let mut ids = Vec::new();
    if number.is_multiple_of(2) {
        let mut count = 1;
        while ids.len() < 240_000 {
            // 1 to 10,000 in an order that no two clients share.
            count = (count * 7_919 + number) % 10_000;
            let left = 240_000 - u64::try_from(ids.len())?;
            ids.extend(client.ids(&format!("{ORDER}?count={}", (count + 1).min(left)))?);
        }
    } else {
        for _ in 0..10_000 {
            ids.extend(client.get(ORDER)?.ids()?);
        }
    }
    ensure!(ids.is_sorted(), "a client's ids went down");
    Ok(ids)
}

/// A million ids by 8 concurrent clients of these servers.
fn take_a_million(servers: &[&Server]) -> anyhow::Result<Vec<u64>> {
    let taken: anyhow::Result<Vec<Vec<u64>>> = thread::scope(|scope| {
        // Two neighbours share a server, so that each server has both kinds of clients.
        let servers = servers.iter().flat_map(|server| [server, server]).cycle();
        let clients: Vec<_> =
            servers.zip(0..8).map(|(server, number)| scope.spawn(move || take(&server.client(), number))).collect();
        clients.into_iter().map(|client| client.join().expect("a client does not panic")).collect()
    });
    Ok(taken?.concat())
}

#[test]
fn eight_clients_take_a_million_ids_without_a_duplicate() -> anyhow::Result<()> {
    let server = Server::start()?;
    let ids = take_a_million(&[&server])?;
    assert_eq!(ids.len(), 1_000_000);
    // One process uses its segments up, but for an id here and there that two threads raced for.
    assert!(ids.iter().all(|&id| id <= 1_010_000), "too many ids were lost: the last is {:?}", ids.iter().max());
    assert_distinct(ids);
    Ok(())
}

#[test]
fn two_servers_on_one_file_hand_out_a_million_ids_without_a_duplicate() -> anyhow::Result<()> {
    let one = Server::start()?;
    let two = one.start_beside()?;
    let ids = take_a_million(&[&one, &two])?;
    assert_eq!(ids.len(), 1_000_000);
    assert_distinct(ids);
    Ok(())
}

#[test]
fn snowflakes_of_two_servers_on_one_file_differ() -> anyhow::Result<()> {
    let one = Server::start()?;
    let two = one.start_beside()?;
    let taken: anyhow::Result<Vec<Vec<u64>>> = thread::scope(|scope| {
        let clients: Vec<_> = (0..4_u32)
            .map(|number| {
                let client = if number % 2 == 0 { one.client() } else { two.client() };
                scope.spawn(move || {
                    let mut ids = Vec::new();
                    for round in 0..200 {
                        let count = if round % 2 == 0 { 1 } else { 1_000 };
                        ids.extend(client.ids(&format!("/v1/snowflakes/default/ids?count={count}"))?);
                    }
                    ensure!(ids.is_sorted(), "a client's ids went down");
                    Ok(ids)
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("a client does not panic")).collect()
    });
    assert_distinct(taken?.concat());
    Ok(())
}

#[test]
fn sigterm_ends_it_cleanly_and_gives_the_tail_back() -> anyhow::Result<()> {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut server = Server::start()?;
        let client = server.client();
        for id in 1..=5 {
            assert_eq!(client.get(ORDER)?.ids()?, [id]);
        }
        let flake = client.ids("/v1/snowflakes/default/ids")?;
        server.signal(signal)?;
        assert_eq!(server.wait()?.code(), Some(0));
        server.restart()?;
        let client = server.client();
        let next = client.get(ORDER)?.ids()?[0];
        // A run that was under way is lost, the rest of the segment of 1,000 is not.
        assert!((6..=32).contains(&next), "{next} after 5");
        assert!(client.ids("/v1/snowflakes/default/ids")? > flake);
        assert_eq!(server.troubles()?, [""; 0]);
    }
    Ok(())
}

#[test]
fn ids_go_on_after_kill_9() -> anyhow::Result<()> {
    let mut server = Server::start()?;
    assert_eq!(server.get(&format!("{ORDER}?count=10"))?.ids()?.last(), Some(&10));
    server.restart()?;
    assert_eq!(server.get(ORDER)?.ids()?, [1_001], "the segment of the dead process is abandoned");
    Ok(())
}

#[test]
fn requests_under_way_are_answered_when_it_ends() -> anyhow::Result<()> {
    let mut server = Server::start()?;
    let url = server.url().to_owned();
    let answers = thread::spawn(move || {
        let client = Client::new(&url);
        let mut ids = Vec::new();
        loop {
            match client.get(&format!("{ORDER}?count=100")) {
                // A server that ends may also say so.
                Ok(answer) if answer.status == 503 => assert_eq!(answer.problem().unwrap(), "closing"),
                Ok(answer) => ids.extend(answer.ids().unwrap()),
                Err(_) => return ids,
            }
        }
    });
    while server.get(ORDER)?.ids()?[0] < 1_000 {}
    assert_eq!(server.sigterm()?.code(), Some(0));
    let seen = answers.join().expect("the client does not panic");
    server.restart()?;
    let next = server.get(ORDER)?.ids()?[0];
    assert!(seen.iter().all(|&id| id < next), "{next} was handed out before");
    Ok(())
}

#[test]
fn a_store_that_hangs_is_told_without_its_details() -> anyhow::Result<()> {
    let server = Server::start()?;
    let client = server.client();
    assert_eq!(client.get(ORDER)?.ids()?, [1]);
    let lock = server.lock_store()?;
    assert_eq!(client.get(ORDER)?.ids()?, [2], "what was granted before is handed out");
    assert_eq!(client.get("/health/live")?.status, 200);
    let answer = client.get("/v1/sequences/new/ids")?;
    assert_eq!((answer.status, answer.problem()?.as_str()), (503, "store-unavailable"), "{answer:?}");
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert!(!answer.body.contains("sqlite") && !answer.body.contains("BEGIN"), "{answer:?}");
    drop(lock);
    // The requests that were broken off may still have to end.
    let answer = client.get("/health/ready")?;
    assert!(matches!(answer.status, 200 | 503), "{answer:?}");
    while client.get("/v1/sequences/new/ids")?.status != 200 {}
    Ok(())
}

#[test]
fn a_damaged_store_is_told_without_its_details() -> anyhow::Result<()> {
    let mut server = Server::start()?;
    server.sigterm()?;
    // The tags, and no more: what is read at the start is whole.
    let path = server.directory().join("unalike.sqlite");
    let page: i64 = tokio::runtime::Runtime::new()?.block_on(async {
        let mut file = SqliteConnection::connect(path.to_str().context("a path of UTF-8")?).await?;
        let page =
            sqlx::query_scalar("SELECT rootpage FROM sqlite_schema WHERE name = 'tag'").fetch_one(&mut file).await?;
        file.close().await?;
        anyhow::Ok(page)
    })?;
    let mut file = std::fs::read(&path)?;
    let page = usize::try_from(page)?;
    file[(page - 1) * 4096..page * 4096].fill(0xa5);
    std::fs::write(&path, file)?;
    server.restart()?;
    for path in [ORDER, "/v1/tags", "/v1/tags/order"] {
        let answer = server.get(path)?;
        assert_eq!((answer.status, answer.problem()?.as_str()), (500, "store-corrupt"), "{answer:?}");
        assert!(!answer.body.contains("sqlite") && !answer.body.contains("SELECT"), "{answer:?}");
        assert!(!answer.body.contains(server.directory().to_str().context("a path of UTF-8")?), "{answer:?}");
    }
    assert!(server.log()?.contains("unalike.sqlite"), "the operator is told");
    Ok(())
}

#[test]
fn a_server_is_ready_while_what_it_was_granted_lasts() -> anyhow::Result<()> {
    let server = Server::start_with(["--request-timeout-ms", "2000"])?;
    let client = server.client();
    let ready = || client.get("/health/ready");
    assert_eq!((ready()?.status, ready()?.body.as_str()), (200, r#"{"status":"ready"}"#));

    // Nothing is open yet: there is nothing to hand out.
    // What the store said is kept for a second.
    let changed = || loop {
        let answer = ready()?;
        if answer.body != r#"{"status":"ready"}"# {
            break Ok::<_, anyhow::Error>(answer);
        }
    };
    let lock = server.lock_store()?;
    let answer = changed()?;
    assert_problem(&answer, 503, "store-unavailable", "tag", &Value::Null);
    assert!(answer.json()?["store_down_since"].as_str().is_some_and(|since| since.starts_with("20")), "{answer:?}");
    assert!(!answer.body.contains("sqlite"), "{answer:?}");
    drop(lock);
    while ready()?.status != 200 {}

    let created = client.send_json(
        "POST",
        "/v1/tags",
        &json!({
            "tag": "few", "step": { "policy": "fixed", "step": "20" }, "refill": { "policy": "remaining", "count": 0 },
        }),
    )?;
    ensure!(created.status == 201, "{created:?}");
    client.ids("/v1/sequences/few/ids?count=5")?;
    client.ids("/v1/sequences/order/ids?count=5")?;
    let lock = server.lock_store()?;
    let answer = changed()?;
    let body = answer.json()?;
    assert_eq!((answer.status, &body["status"], &body["tag"]), (200, &json!("covered"), &json!("few")), "{body}");
    assert!(body["cover_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{body}");
    let down = body["store_down_since"].clone();
    assert_eq!(ready()?.json()?["store_down_since"], down, "since the same moment");
    let metrics = client.get("/metrics")?.body;
    let figure = |name: &str| -> f64 {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name}"));
        line.trim().parse().unwrap()
    };
    assert!(figure("unalike_store_down_seconds ") > 0.0);
    assert_eq!(figure("unalike_least_cover_seconds "), figure("unalike_cover_seconds{tag=\"few\"}"));
    assert!(figure("unalike_use_rate{tag=\"few\"}") > 0.0);

    // The last number of a tag that is used, and no request for ids ever asked the store.
    assert_eq!(client.ids("/v1/sequences/few/ids?count=15")?.len(), 15);
    let unready = loop {
        let answer = ready()?;
        if answer.status != 200 {
            break answer;
        }
    };
    assert_problem(&unready, 503, "store-unavailable", "tag", &json!("few"));
    assert_eq!(unready.json()?["cover_seconds"], json!(0.0));
    assert_eq!(client.get("/v1/sequences/few/ids")?.status, 503);
    assert_eq!(client.get("/v1/sequences/order/ids")?.status, 200, "other tags go on");
    // Of one tag or snowflake alone.
    for (query, status, says) in [
        ("tag=few", 503, "tag"),
        ("tag=order", 200, "covered"),
        ("tag=not+open", 503, "tag"),
        ("snowflake=default", 200, "ready"),
        ("snowflake=default&tag=order", 200, "covered"),
        ("snowflake=default&tag=few", 503, "tag"),
    ] {
        let answer = client.get(&format!("/health/ready?{query}"))?;
        assert_eq!(answer.status, status, "{query}: {answer:?}");
        assert!(answer.body.contains(says) && !answer.body.contains("sqlite"), "{query}: {answer:?}");
        let is_covered = says == "covered";
        assert_eq!(answer.json()?.get("cover_seconds").is_some(), is_covered, "{query}: {answer:?}");
    }

    drop(lock);
    while ready()?.body != r#"{"status":"ready"}"# {}
    for query in ["tag=few", "tag=not+open", "snowflake=default"] {
        assert_eq!(client.get(&format!("/health/ready?{query}"))?.body, r#"{"status":"ready"}"#, "{query}");
    }
    for (query, status, kind) in [
        ("tag=", 400, "tag-invalid"),
        ("tga=few", 400, "query-invalid"),
        ("tag=few&tag=order", 400, "query-invalid"),
        ("tag=few&snowflake=none", 404, "snowflake-unknown"),
        ("snowflake=none", 404, "snowflake-unknown"),
    ] {
        let answer = client.get(&format!("/health/ready?{query}"))?;
        assert_eq!((answer.status, answer.problem()?.as_str()), (status, kind), "{query}: {answer:?}");
    }
    while client.get("/v1/sequences/few/ids")?.status != 200 {}
    let log = server.log()?;
    assert_eq!(log.matches("the store is down").count(), 2, "each outage is told once: {log}");
    server.wait_for_log("the store answers again", 2)?;
    Ok(())
}

#[test]
fn an_ordered_tag_in_use_has_no_cover() -> anyhow::Result<()> {
    let server = Server::start_with(["--request-timeout-ms", "2000"])?;
    let client = server.client();
    client.send_json("POST", "/v1/tags", &json!({ "tag": "strict", "mode": "ordered" }))?;
    client.ids("/v1/sequences/order/ids?count=5")?;
    client.ids("/v1/sequences/strict/ids?count=5")?;
    let _lock = server.lock_store()?;
    let unready = loop {
        let answer = client.get("/health/ready")?;
        if answer.status != 200 {
            break answer;
        }
    };
    assert_problem(&unready, 503, "store-unavailable", "tag", &json!("strict"));
    assert_problem(&client.get("/health/ready?tag=strict")?, 503, "store-unavailable", "tag", &json!("strict"));
    assert_eq!(client.get("/health/ready?tag=order")?.json()?["status"], json!("covered"));
    assert_eq!(client.get("/v1/sequences/order/ids")?.status, 200);
    assert!(!client.get("/metrics")?.body.contains("unalike_cover_seconds{tag=\"strict\"}"));
    Ok(())
}

#[test]
fn a_sub_key_has_numbers_of_its_own() -> anyhow::Result<()> {
    let server = Server::start()?;
    let client = server.client();
    let chat = "/v1/sequences/chat/ids";
    client.send_json("POST", "/v1/tags", &json!({ "tag": "chat", "mode": "ordered" }))?;
    let answer = client.get(&format!("{chat}?sub=user_1&count=2"))?;
    assert_eq!((answer.status, answer.body.as_str()), (200, r#"{"tag":"chat","sub":"user_1","ids":["1","2"]}"#));
    let answer = client.get(&format!("{chat}?sub={}", encoded("会话")))?;
    assert_eq!(answer.body, r#"{"tag":"chat","sub":"会话","ids":["1"]}"#);
    assert_eq!(client.ids(&format!("{chat}?sub=user_1"))?, [3]);
    assert_eq!(client.ids(chat)?, [1], "and so does the tag itself");

    let shown = client.get("/v1/tags/chat?sub=user_1")?.json()?;
    assert_eq!((&shown["tag"], &shown["sub"], &shown["mode"]), (&json!("chat"), &json!("user_1"), &json!("ordered")));
    assert_eq!(shown["watermark"], json!("3"));
    assert_eq!(client.get("/v1/tags/chat")?.json()?.get("sub"), None);
    let raised = client.send_json("PATCH", "/v1/tags/chat?sub=user_1", &json!({ "raise_to": 50 }))?.json()?;
    assert_eq!((&raised["sub"], &raised["watermark"]), (&json!("user_1"), &json!("49")));
    assert_eq!(client.ids(&format!("{chat}?sub=user_1"))?, [50]);
    let subs = |path: &str| -> anyhow::Result<Vec<Value>> {
        let page = client.get(path)?.json()?;
        Ok(page["tags"].as_array().context("no page")?.iter().map(|tag| tag["sub"].clone()).collect())
    };
    assert_eq!(subs("/v1/tags")?, [Value::Null, json!("user_1"), json!("会话")]);
    assert_eq!(subs("/v1/tags?after=chat&after_sub=user_1")?, [json!("会话")]);
    let metrics = client.get("/metrics")?.body;
    assert!(metrics.contains("unalike_ids_total{tag=\"chat\"} 6\n"), "sub-keys count under their tag: {metrics}");

    let long = "x".repeat(127);
    for (path, name) in [
        (format!("{chat}?sub="), "tag-invalid"),
        (format!("{chat}?sub=a%0Ab"), "tag-invalid"),
        (format!("{chat}?sub=a%1Fb"), "tag-invalid"),
        (format!("{chat}?sub={long}"), "tag-invalid"),
        (format!("{chat}?sub=a&sub=b"), "query-invalid"),
        ("/v1/sequences/chat%1Fuser_1/ids".to_owned(), "tag-invalid"),
        ("/v1/tags/chat%1Fuser_1".to_owned(), "tag-invalid"),
        ("/v1/tags?after_sub=a".to_owned(), "query-invalid"),
        ("/v1/snowflakes/default/ids?sub=a".to_owned(), "query-invalid"),
        ("/v1/tags/chat?colour=red".to_owned(), "query-invalid"),
    ] {
        let answer = client.get(&path)?;
        assert_eq!((answer.status, answer.problem()?.as_str()), (400, name), "{path}: {answer:?}");
    }
    let created = client.send_json("POST", "/v1/tags", &json!({ "tag": "chat\u{1f}user_9" }))?;
    assert_eq!((created.status, created.problem()?.as_str()), (400, "tag-invalid"));
    Ok(())
}

#[test]
fn sub_keys_have_a_limit_of_their_own_and_take_no_tag_s_place() -> anyhow::Result<()> {
    let mut server = Server::start_with(["--tags-max", "2", "--sub-keys-max", "3"])?;
    let chat = "/v1/sequences/chat/ids";
    let full = |answer: &Answer| assert_problem(answer, 403, "sub-key-limit", "sub_keys_max", &json!(3));
    for sub in ["a", "b", "c"] {
        assert_eq!(server.get(&format!("{chat}?sub={sub}"))?.ids()?, [1], "{sub}");
    }
    full(&server.get(&format!("{chat}?sub=d"))?);
    assert_eq!(server.get("/v1/tags/chat?sub=d")?.status, 404, "it was not made");
    assert_eq!(server.client().send_json("POST", "/v1/tags", &json!({ "tag": "order" }))?.status, 201);
    // The sub-key of a tag that is not there would make that one.
    let stray = server.get("/v1/sequences/mail/ids?sub=a")?;
    assert_problem(&stray, 403, "tag-limit", "tags_max", &json!(2));
    let created = server.client().send_json("POST", "/v1/tags", &json!({ "tag": "mail" }))?;
    assert_problem(&created, 403, "tag-limit", "tag", &json!("mail"));
    assert_eq!(server.get("/v1/sequences/order/ids?sub=a")?.ids()?, [1], "each tag has a limit of its own");
    // What counts is what the store has, and not what a process has open.
    server.sigterm()?;
    server.restart()?;
    full(&server.get(&format!("{chat}?sub=d"))?);
    assert_eq!(server.get(&format!("{chat}?sub=a"))?.status, 200, "those that there are go on");
    Ok(())
}

#[test]
fn requests_create_sub_keys_only_of_tags_that_are_configured_so_where_they_create_no_tags() -> anyhow::Result<()> {
    let (directory, arguments) = configured(
        "create_tags = false\ntags_max = 3\n[tags.chat]\nsub_keys_max = 2\n[tags.none]\nsub_keys_max = 0\n",
    )?;
    let server = Server::start_in(directory, arguments)?;
    let client = server.client();
    let ids = |tag: &str, sub: &str| client.get(&format!("/v1/sequences/{tag}/ids?sub={sub}"));
    assert_problem(&ids("chat", "a")?, 404, "tag-unknown", "tag", &json!("chat"));
    for tag in ["chat", "order"] {
        assert_eq!(client.send_json("POST", "/v1/tags", &json!({ "tag": tag }))?.status, 201);
    }
    assert_problem(&ids("order", "a")?, 404, "tag-unknown", "sub", &json!("a"));
    for sub in ["a", "b"] {
        assert_eq!(ids("chat", sub)?.ids()?, [1]);
    }
    assert_problem(&ids("chat", "c")?, 403, "sub-key-limit", "sub_keys_max", &json!(2));
    assert_eq!(client.send_json("POST", "/v1/tags", &json!({ "tag": "none" }))?.status, 201, "a third tag of three");
    assert_problem(&ids("none", "a")?, 403, "sub-key-limit", "tag", &json!("none"));
    let tags = client.get("/v1/tags")?.json()?;
    assert_eq!(tags["tags"].as_array().map(Vec::len), Some(5), "three tags and two sub-keys: {tags}");
    Ok(())
}

#[test]
fn many_who_ask_for_new_sub_keys_at_once_get_no_more_than_there_may_be() -> anyhow::Result<()> {
    let server = Server::start_with(["--sub-keys-max", "40"])?;
    let made: usize = thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|client| {
                let server = &server;
                scope.spawn(move || {
                    let asked = (0..20).map(|sub| server.get(&format!("/v1/sequences/chat/ids?sub={client}.{sub}")));
                    asked.filter(|answer| answer.as_ref().is_ok_and(|answer| answer.status == 200)).count()
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    assert_eq!(made, 40);
    Ok(())
}

#[test]
fn idle_sequences_and_sub_keys_are_closed_and_lose_no_number() -> anyhow::Result<()> {
    let server = Server::start_with(["--sequence-idle-ms", "1000"])?;
    let client = server.client();
    let step = json!({ "policy": "fixed", "step": 100 });
    assert_eq!(client.send_json("POST", "/v1/tags", &json!({ "tag": "chat", "step": step }))?.status, 201);
    for sub in ["", "?sub=a"] {
        let (ids, tag) = (format!("/v1/sequences/chat/ids{sub}"), format!("/v1/tags/chat{sub}"));
        for round in 1..=3 {
            assert_eq!(client.ids(&ids)?, [round], "{sub}");
            // Given back while the server goes on.
            let deadline = Instant::now() + PATIENCE;
            while client.get(&tag)?.json()?["watermark"] != json!(round.to_string()) {
                assert!(Instant::now() < deadline, "the tail of {tag} comes back");
            }
        }
    }
    Ok(())
}

#[test]
fn a_token_for_a_tag_is_good_for_its_sub_keys() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    let tokens = "[[tokens]]\nname = \"chat\"\ntoken = \"0123456789abcdef\"\nscope = \"read\"\ntags = [\"chat\"]\n";
    std::fs::write(directory.path().join("tokens.toml"), tokens)?;
    let server = Server::start_in(directory, ["--tokens", "tokens.toml"].map(str::to_owned).to_vec())?;
    let client = server.client().with_token("0123456789abcdef");
    assert_eq!(client.ids("/v1/sequences/chat/ids?sub=user_1")?, [1]);
    assert_eq!(client.get("/v1/sequences/order/ids?sub=chat")?.status, 403);
    assert_eq!(client.get("/v1/tags/chat?sub=user_1")?.status, 200);
    Ok(())
}

#[test]
fn a_tag_can_be_one_of_an_issuer_s_channels() -> anyhow::Result<()> {
    let (directory, arguments) =
        configured("[tags.flake]\nchannel = \"quick\"\n[tags.order]\nchannel = \"unordered\"\nprefix = 9\n")?;
    let arguments = [arguments, ["--drop-in", "leaf,tinyid,cosid"].map(str::to_owned).to_vec()].concat();
    let server = Server::start_in(directory, arguments)?;
    let client = server.client();
    assert_eq!(client.get(ORDER)?.ids()?, [900_000_000_000_000_000]);
    let record = client.get("/v1/tags/order")?.json()?;
    assert_eq!(record["step"], json!({ "policy": "fixed", "step": "5000" }));
    assert_eq!(record["refill"], json!({ "policy": "remaining", "count": "500" }));

    let mut flakes = Vec::new();
    for path in [
        "/v1/sequences/flake/ids",
        "/v1/sequences/flake/ids?count=3",
        "/v1/snowflakes/flake/ids",
        "/v1/sequences/flake/ids",
    ] {
        flakes.extend(client.get(path)?.ids()?);
    }
    flakes.push(client.get("/api/segment/get/flake")?.body.parse()?);
    flakes.push(client.get("/tinyid/id/nextIdSimple?bizType=flake")?.body.parse()?);
    flakes.push(client.get("/ids/flake")?.body.parse()?);
    assert!(flakes.is_sorted() && flakes[0] > 1 << 53, "{flakes:?}");
    assert_distinct(flakes);
    let answer = client.get("/v1/sequences/flake/ids")?.json()?;
    assert_eq!(answer["tag"], json!("flake"));
    assert_eq!(client.get("/v1/sequences/flake/ids?sub=a")?.problem()?, "query-invalid");
    assert_eq!(client.get("/tinyid/id/nextSegmentId?bizType=flake")?.json()?["code"], json!(6));
    assert_eq!(client.get("/v1/tags/flake")?.problem()?, "tag-unknown");

    let post = |body: Value| client.send_json("POST", "/v1/tags", &body);
    let created = post(
        json!({ "tag": "invoice", "channel": "unordered", "buff_size": "70", "lowest_critical_value": 7, "prefix": "42" }),
    )?;
    let record = created.json()?;
    assert_eq!((created.status, &record["start"]), (201, &json!("420000000000000000")), "{record}");
    assert_eq!(record["refill"]["count"], json!("7"));
    assert_eq!(post(json!({ "tag": "strict", "channel": "slow-ordered" }))?.json()?["mode"], json!("ordered"));
    for body in [
        json!({ "tag": "x", "channel": "quick" }),
        json!({ "tag": "x", "channel": "ordered" }),
        json!({ "tag": "x", "channel": "slow-ordered", "prefix": 1 }),
        json!({ "tag": "x", "channel": "unordered", "start": 1 }),
        json!({ "tag": "x", "buff_size": 1 }),
        json!({ "tag": "x", "channel": "unordered", "buff_size": 0 }),
    ] {
        let answer = post(body)?;
        assert_eq!((answer.status, answer.problem()?.as_str()), (400, "tag-invalid"), "{answer:?}");
    }
    assert_eq!(post(json!({ "tag": "x", "channel": "fast" }))?.problem()?, "body-invalid");
    Ok(())
}

/// A directory whose configuration file has this text, and the flags that name the file.
fn configured(text: &str) -> anyhow::Result<(Arc<TempDir>, Vec<String>)> {
    let directory = Arc::new(TempDir::new()?);
    std::fs::write(directory.path().join("unalike.toml"), text)?;
    Ok((directory, ["--config", "unalike.toml"].map(str::to_owned).to_vec()))
}

#[test]
fn a_snowflake_without_a_free_worker_says_when_to_come_back() -> anyhow::Result<()> {
    // A layout with one worker.
    let (directory, arguments) = configured("[snowflakes.toot]\nlayout = \"mastodon\"\n")?;
    let mut one = Server::start_in(directory, arguments)?;
    let path = "/v1/snowflakes/toot/ids";
    let first = one.client().ids(path)?;
    let two = one.start_beside()?;
    let answer = two.get(path)?;
    assert_problem(&answer, 503, "workers-exhausted", "snowflake", &json!("toot"));
    let wait_s: u64 = answer.header("retry-after").context("no retry-after")?.parse()?;
    assert!((1..=60).contains(&wait_s), "{answer:?}");
    // The lease goes back with the process that held it.
    one.sigterm()?;
    let later = loop {
        let answer = two.get(path)?;
        if answer.status == 200 {
            break answer.ids()?;
        }
        thread::sleep(Duration::from_millis(50));
    };
    assert!(later > first);
    Ok(())
}

#[test]
fn a_layout_that_has_ended_gives_no_more_ids() -> anyhow::Result<()> {
    let (directory, arguments) = configured("[snowflakes.old]\nlayout = \"baidu\"\n")?;
    let server = Server::start_in(directory, arguments)?;
    assert_problem(&server.get("/v1/snowflakes/old/ids")?, 410, "exhausted", "name", &json!("old"));
    assert_eq!(server.get("/v1/snowflakes/default/ids")?.status, 200, "the others go on");
    Ok(())
}

#[test]
fn a_second_signal_ends_it_at_once() -> anyhow::Result<()> {
    let mut server = Server::start()?;
    assert_eq!(server.get(ORDER)?.ids()?, [1]);
    // It cannot give its segment back, which it waits for.
    let _lock = server.lock_store()?;
    server.signal(libc::SIGTERM)?;
    server.wait_for_log("ending", 1)?;
    server.signal(libc::SIGINT)?;
    assert_eq!(server.wait()?.code(), Some(1));
    Ok(())
}

#[test]
fn an_unfinished_request_does_not_hold_up_the_end() -> anyhow::Result<()> {
    let mut server = Server::start_with(["--shutdown-timeout-ms", "200"])?;
    let mut connection = server.connect()?;
    connection.write_all(b"GET /v1/sequences/order/ids HTTP/1.1\r\nhost: ")?;
    assert_eq!(server.get(ORDER)?.ids()?, [1], "the server has accepted the connection before this one");
    assert_eq!(server.sigterm()?.code(), Some(0));
    Ok(())
}
