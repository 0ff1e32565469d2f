//! Quotas of tokens, tags and snowflakes. What is owed here lasts longer than a test takes, so that no clock decides.

#![expect(clippy::unwrap_used, clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use unalike::{Ids, SequenceOptions};
use unalike_remote::{RemoteOptions, RemoteStore};
use unalike_tests::server::{Answer, Client, Server};

const GREEDY: &str = "greedy-0123456789abcdef";
const MODEST: &str = "modest-0123456789abcdef";

/// Below the minute that may be owed.
const DEBT_MAX: Duration = Duration::from_secs(30);

/// Every way to ids and numbers of this server, but those of the drop-ins.
const PATHS: [&str; 6] = [
    "/v1/sequences/order/ids",
    "/v1/sequences/order/ids?count=2",
    "/v1/sequences/order/ids?sub=a",
    "/v1/snowflakes/default/ids",
    "/v1/uuids",
    "/v1/ulids",
];

fn token(token: &str, scope: &str, more: &str) -> String {
    let (name, _) = token.split_once('-').unwrap();
    format!("[[tokens]]\nname = \"{name}\"\ntoken = \"{token}\"\nscope = \"{scope}\"\n{more}\n")
}

fn start(tokens: &[String], config: &str, flags: &[&str]) -> anyhow::Result<Server> {
    let directory = Arc::new(TempDir::new()?);
    std::fs::write(directory.path().join("unalike.toml"), config)?;
    let mut arguments = vec!["--config", "unalike.toml"];
    if !tokens.is_empty() {
        std::fs::write(directory.path().join("tokens.toml"), tokens.concat())?;
        arguments.extend(["--tokens", "tokens.toml"]);
    }
    arguments.extend(flags);
    Server::start_in(directory, arguments.into_iter().map(str::to_owned).collect())
}

/// The wait that a refusal names, in seconds.
#[track_caller]
fn refused(answer: &Answer, of: &str, name: &str) -> u64 {
    let problem = answer.json().unwrap();
    assert_eq!((answer.status, answer.problem().unwrap().as_str()), (429, "quota-reached"), "{answer:?}");
    assert_eq!(problem.get(of), Some(&json!(name)), "{answer:?}");
    let wait_ms: u64 = problem.get("retry_after_ms").and_then(Value::as_str).unwrap().parse().unwrap();
    let wait_s: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert_eq!(wait_s, wait_ms.div_ceil(1_000), "{answer:?}");
    wait_s
}

fn metric(client: &Client, line: &str) -> f64 {
    let text = client.get("/metrics").unwrap().body;
    let value = text.lines().find_map(|known| known.strip_prefix(line)).unwrap_or_else(|| panic!("{line}: {text}"));
    value.trim().parse().unwrap()
}

#[test]
fn one_team_s_loop_takes_nothing_from_another() -> anyhow::Result<()> {
    let tokens = [token(GREEDY, "read", "ids_per_s = 100"), token(MODEST, "read", "")];
    let server = start(&tokens, "", &[])?;
    let [greedy, modest] = [GREEDY, MODEST].map(|token| server.client().with_token(token));
    assert_eq!(greedy.ids("/v1/sequences/order/ids?count=6000")?.len(), 6_000);
    for path in PATHS {
        let answer = greedy.get(path)?;
        let wait_s = refused(&answer, "token", "greedy");
        assert!((20..=59).contains(&wait_s), "{answer:?}");
        let detail = "the token \"greedy\" has a quota of 100 ids per second of each server: ask again in ";
        assert!(answer.json()?["detail"].as_str().unwrap().starts_with(detail), "{answer:?}");
        refused(&greedy.send("POST", path, "", "")?, "token", "greedy");
        assert_eq!(modest.get(path)?.status, 200, "{path}");
    }
    // What is no id is not counted.
    for path in ["/v1/tags", "/v1/tags/order", "/v1/decode/5", "/v1/layouts"] {
        assert_eq!(greedy.get(path)?.status, 200, "{path}");
    }
    let refusals = f64::from(u32::try_from(2 * PATHS.len())?);
    assert_eq!(
        metric(&modest, "unalike_quotas_refused_total{of=\"token\"}").total_cmp(&refusals),
        std::cmp::Ordering::Equal
    );
    // A file that is read again begins anew.
    server.signal(libc::SIGHUP)?;
    server.wait_for_log("was read again", 1)?;
    assert_eq!(greedy.get(PATHS[0])?.status, 200);
    Ok(())
}

#[test]
fn tags_and_snowflakes_have_quotas_that_are_kept_apart() -> anyhow::Result<()> {
    let config = "[tags.order]\nids_per_s = 100\n[tags.fast]\nchannel = \"quick\"\n\
                  [snowflakes.fast]\nlayout = \"twitter\"\nids_per_s = 100\n[snowflakes.order]\nlayout = \"twitter\"\n";
    let tokens = [token(GREEDY, "read", "ids_per_s = 20000")];
    let server = start(&tokens, config, &[])?;
    let client = server.client().with_token(GREEDY);
    assert_eq!(client.ids("/v1/sequences/order/ids?count=6000")?.len(), 6_000);
    // What the tag refuses, the token has not taken: five times as much as it may.
    for _ in 0..20 {
        refused(&client.get("/v1/sequences/order/ids?count=5000")?, "tag", "order");
    }
    let answer = client.get("/v1/sequences/order/ids?count=6001")?;
    assert_eq!((answer.status, answer.problem()?.as_str()), (400, "count-invalid"), "{answer:?}");
    assert_eq!((&answer.json()?["tag"], &answer.json()?["count_max"]), (&json!("order"), &json!(6_000)), "{answer:?}");
    refused(&client.get("/v1/sequences/order/ids?sub=a")?, "tag", "order");
    // A snowflake of the same name is another matter, and so is a tag of another name.
    for path in ["/v1/snowflakes/order/ids", "/v1/sequences/orders/ids", "/v1/uuids"] {
        assert_eq!(client.get(path)?.status, 200, "{path}");
    }
    // Ids of a quick tag are those of its snowflake.
    assert_eq!(client.get("/v1/sequences/fast/ids?count=6000")?.status, 200);
    refused(&client.get("/v1/snowflakes/fast/ids")?, "snowflake", "fast");
    refused(&client.get("/v1/sequences/fast/ids")?, "snowflake", "fast");
    Ok(())
}

#[test]
fn what_was_not_given_does_not_count() -> anyhow::Result<()> {
    let tokens = [token(GREEDY, "read", "ids_per_s = 200")];
    let server = start(&tokens, "[tags.order]\nids_per_s = 200\n", &["--wait-max-ms", "200"])?;
    let client = server.client().with_token(GREEDY);
    let locked = server.lock_store()?;
    for _ in 0..5 {
        let answer = client.get("/v1/sequences/order/ids?count=10000")?;
        assert_eq!((answer.status, answer.problem()?.as_str()), (503, "store-unavailable"), "{answer:?}");
    }
    // Neither does what is refused for itself.
    for path in ["/v1/sequences/order/ids?count=0", "/v1/sequences/order/ids?format=base99", "/v1/snowflakes/none/ids"]
    {
        assert!([400, 404].contains(&client.get(path)?.status), "{path}");
    }
    drop(locked);
    let began = Instant::now();
    loop {
        let answer = client.get("/v1/sequences/order/ids?count=10000")?;
        if answer.status == 200 {
            break;
        }
        assert_eq!((answer.status, answer.problem()?.as_str()), (503, "store-unavailable"), "{answer:?}");
        assert!(began.elapsed() < DEBT_MAX, "{answer:?}");
    }
    refused(&client.get("/v1/sequences/order/ids")?, "token", "greedy");
    Ok(())
}

#[test]
fn a_request_that_is_given_up_owes_no_more_than_a_second() -> anyhow::Result<()> {
    let flags = ["--wait-max-ms", "5000", "--request-timeout-ms", "300"];
    let server = start(&[], "[tags.order]\nids_per_s = 200\n", &flags)?;
    let client = server.client();
    let locked = server.lock_store()?;
    for _ in 0..3 {
        let answer = client.get("/v1/sequences/order/ids?count=10000")?;
        // Who comes right after it hears of the quota, and waits for a second at most.
        match answer.status {
            429 => assert!(refused(&answer, "tag", "order") <= 2, "{answer:?}"),
            status => assert_eq!(status, 503, "{answer:?}"),
        }
    }
    drop(locked);
    let began = Instant::now();
    while client.get("/v1/sequences/order/ids?count=300")?.status != 200 {
        assert!(began.elapsed() < DEBT_MAX, "it owes for longer");
    }
    Ok(())
}

#[tokio::test]
async fn hosts_get_segments_of_a_second_and_go_on() -> anyhow::Result<()> {
    let tokens = [token(GREEDY, "lease", "ids_per_s = 40"), token(MODEST, "lease", "")];
    let server = start(&tokens, "[tags.slow]\nids_per_s = 1\n", &[])?;
    let [greedy, modest] = [GREEDY, MODEST].map(|token| server.client().with_token(token));
    let segment = |client: &Client, tag: &str| {
        client.send("POST", &format!("/v1/sequences/{tag}/segments?count=100000"), "", "").unwrap()
    };
    // A second's numbers at a time, and none ahead of more than that.
    let until_refused = |client: &Client, tag: &str, of: &str, name: &str| {
        let mut last = 0;
        loop {
            let answer = segment(client, tag);
            if answer.status != 200 {
                assert_eq!(refused(&answer, of, name), 1, "{answer:?}");
                return last;
            }
            let end = answer.json().unwrap()["segment"]["end"].as_str().unwrap().parse::<u64>().unwrap() - 1;
            assert_eq!(end - last, if tag == "slow" { 1 } else { 40 }, "{answer:?}");
            last = end;
        }
    };
    let granted = until_refused(&greedy, "order", "token", "greedy");
    let all = segment(&modest, "order").json()?["segment"]["end"].as_str().unwrap().parse::<u64>()?;
    assert_eq!(all, granted + 100_001);
    until_refused(&modest, "slow", "tag", "slow");
    // A program waits for what it is not granted yet: 120 ids are more than a segment.
    let store = RemoteStore::connect(RemoteOptions::from_url(server.url())?.token(GREEDY)).await?;
    let ids = Ids::builder().segments(Arc::new(store)).build().await?;
    let sequence = ids.sequence("order", SequenceOptions::default()).await?;
    let mut seen = HashSet::new();
    for _ in 0..120 {
        assert!(seen.insert(sequence.next().await?));
    }
    ids.close().await;
    Ok(())
}

#[test]
fn clients_of_other_services_hear_of_it_in_their_own_way() -> anyhow::Result<()> {
    let tokens = [token(GREEDY, "lease", "ids_per_s = 1000")];
    let config = "[tags.order]\nids_per_s = 5\n";
    let server = start(&tokens, config, &["--drop-in", "leaf,tinyid,cosid"])?;
    let client = server.client().with_token(GREEDY);
    // As many as the tag gives in a second, though its step is larger.
    let segment = client.get("/tinyid/id/nextSegmentIdSimple?bizType=order")?;
    assert_eq!((segment.status, segment.body.as_str()), (200, "0,1,5,1,0"));
    let batch = client.get(&format!("/tinyid/id/nextId?bizType=invoice&batchSize=50000&token={GREEDY}"))?;
    assert_eq!(batch.json()?["data"].as_array().unwrap().len(), 50_000);
    for path in ["/api/segment/get/invoice", "/api/snowflake/get/x"] {
        let answer = client.get(path)?;
        let code = if path.contains("segment") { -3 } else { -2 };
        let message = format!("Result{{id={code}, status=EXCEPTION}}");
        assert_eq!((answer.status, &answer.json()?["message"]), (500, &json!(message)), "{answer:?}");
    }
    for path in ["/tinyid/id/nextId?bizType=invoice", "/tinyid/id/nextSegmentId?bizType=invoice"] {
        let answer = client.get(path)?;
        assert_eq!((answer.status, &answer.json()?["code"]), (200, &json!(6)), "{answer:?}");
        assert!(answer.json()?["message"].as_str().unwrap().contains("1000 ids per second"), "{answer:?}");
    }
    let answer = client.send("PATCH", "/segments/shop/order?step=100000", "", "")?;
    assert_eq!((answer.status, &answer.json()?["code"]), (400, &json!("500")), "{answer:?}");
    for (method, path) in [("GET", "/ids"), ("GET", "/ids/invoice"), ("PATCH", "/segments/shop/order?step=5")] {
        let answer = client.send(method, path, "", "")?;
        assert_eq!((answer.status, &answer.json()?["code"]), (500, &json!("500")), "{answer:?}");
    }
    Ok(())
}

#[test]
fn a_token_is_made_with_a_quota() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    let at = directory.path();
    let entry = unalike_tests::server::ok(at, &["tokens", "new", "greedy", "--scope", "read", "--ids-per-s", "2"]);
    assert!(entry.contains("ids_per_s = 2\n"), "{entry}");
    let refuse = |value| ["tokens", "new", "greedy", "--scope", "read", "--ids-per-s", value];
    for value in ["0", "many", "4294967296"] {
        unalike_tests::server::fails(at, &refuse(value), 2, &["--ids-per-s", "1 to 4294967295"]);
    }
    Ok(())
}
