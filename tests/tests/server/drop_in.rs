//! The paths of Leaf, tinyid and CosId, byte for byte, over real servers on SQLite files.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic_in_result_fn,
    reason = "a test that cannot go on fails"
)]

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use unalike_tests::server::{Answer, Client, Server, run};

const ALL: [&str; 2] = ["--drop-in", "leaf,tinyid,cosid"];
const TEXT: &str = "text/plain;charset=UTF-8";
const JSON: &str = "application/json;charset=UTF-8";
const FORM: &str = "application/x-www-form-urlencoded";
const LAST: u64 = i64::MAX.unsigned_abs();

fn start<'a>(more: impl IntoIterator<Item = &'a str>) -> anyhow::Result<Server> {
    Server::start_with(ALL.into_iter().chain(more))
}

/// A server with this configuration file besides.
fn start_configured(text: &str) -> anyhow::Result<Server> {
    let directory = Arc::new(TempDir::new()?);
    let path = directory.path().join("unalike.toml");
    std::fs::write(&path, text)?;
    let arguments = ["--config", path.to_str().context("a path of UTF-8")?].map(str::to_owned).to_vec();
    Server::start_in(directory, arguments)
}

/// Status, content type and body, whole.
#[track_caller]
fn assert_answer(answer: &Answer, status: u16, content_type: &str, body: &str) {
    let got = (answer.status, answer.header("content-type"), answer.body.as_str());
    assert_eq!(got, (status, Some(content_type), body), "{answer:?}");
    assert_eq!(answer.header("cache-control"), Some("no-store"), "{answer:?}");
}

/// An error as Spring Boot 1.x tells it, byte for byte but for its time.
#[track_caller]
fn assert_leaf_error(answer: &Answer, status: u16, error: &str, exception: Option<&str>, message: &str, path: &str) {
    let timestamp = answer.json().unwrap()["timestamp"].as_u64().expect("a timestamp");
    assert!(timestamp > 1_700_000_000_000, "{answer:?}");
    let exception = exception.map_or_else(String::new, |exception| format!(r#""exception":"{exception}","#));
    let body = format!(
        r#"{{"timestamp":{timestamp},"status":{status},"error":"{error}",{exception}"message":"{message}","path":"{path}"}}"#
    );
    assert_answer(answer, status, JSON, &body);
}

#[track_caller]
fn assert_leaf_code(answer: &Answer, code: i8, path: &str) {
    let exception = Some("com.sankuai.inf.leaf.server.exception.LeafServerException");
    let message = format!("Result{{id={code}, status=EXCEPTION}}");
    assert_leaf_error(answer, 500, "Internal Server Error", exception, &message, path);
}

#[test]
fn the_paths_are_there_only_if_they_are_switched_on_by_name() -> anyhow::Result<()> {
    let paths = ["/api/segment/get/order", "/tinyid/id/nextId?bizType=order", "/ids/order"];
    let off = Server::start()?;
    for path in paths {
        assert_eq!((off.get(path)?.status, off.get(path)?.problem()?.as_str()), (404, "route-unknown"), "{path}");
    }
    let leaf = Server::start_with(["--drop-in", "leaf"])?;
    assert_eq!(leaf.get(paths[0])?.status, 200);
    assert_eq!(leaf.get(paths[1])?.status, 404);
    let two = start_configured("drop_in = [\"tinyid\", \"cosid\"]\n")?;
    assert_eq!(two.get(paths[0])?.status, 404);
    assert_eq!(two.get(paths[1])?.body, r#"{"data":[1],"code":200,"message":""}"#);
    assert_eq!(two.get(paths[2])?.body, "2");
    Ok(())
}

#[test]
fn an_unknown_service_is_refused_with_those_there_are() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    let flag = run(directory.path(), ["serve", "--drop-in", "leaf,loof"])?;
    assert_eq!(flag.code, Some(2));
    let path = directory.path().join("unalike.toml");
    std::fs::write(&path, "drop_in = [\"loof\"]\n")?;
    let file = run(directory.path(), ["serve", "--config", "unalike.toml"])?;
    assert_eq!(file.code, Some(1));
    for said in [flag.stderr, file.stderr] {
        for name in ["loof", "leaf", "tinyid", "cosid"] {
            assert!(said.contains(name), "{said}");
        }
    }
    Ok(())
}

#[test]
fn leaf_gives_the_id_and_nothing_else_by_any_method() -> anyhow::Result<()> {
    let server = start([])?;
    let client = server.client();
    for (id, method) in (1..).zip(["GET", "POST", "PUT", "PATCH", "DELETE", "BREW"]) {
        let answer = client.send(method, "/api/segment/get/order", "text/plain", "")?;
        assert_answer(&answer, 200, TEXT, &format!("{id}"));
    }
    let chinese = "/api/segment/get/%E8%AE%A2%E5%8D%95%2F2026";
    assert_answer(&client.get(chinese)?, 200, TEXT, "1");
    assert_eq!(client.get("/v1/tags/%E8%AE%A2%E5%8D%95%2F2026")?.json()?["tag"], "订单/2026");
    // The tag is the same by every path.
    assert_eq!(client.get("/v1/sequences/order/ids?as=string")?.ids()?, [7]);
    let large = json!({ "tag": "large", "start": (LAST - 1).to_string() });
    assert_eq!(client.send_json("POST", "/v1/tags", &large)?.status, 201);
    assert_answer(&client.get("/api/segment/get/large")?, 200, TEXT, "9223372036854775806");
    assert_answer(&client.get("/api/segment/get/large")?, 200, TEXT, "9223372036854775807");
    // Never 0, and never 200, when there is none.
    assert_leaf_code(&client.get("/api/segment/get/large")?, -3, "/api/segment/get/large");
    Ok(())
}

#[test]
fn leaf_errors_have_its_codes_and_its_form() -> anyhow::Result<()> {
    let server = start(["--create-tags", "false"])?;
    let client = server.client();
    let long = format!("/api/segment/get/{}", "x".repeat(129));
    for path in
        ["/api/segment/get/x", "/api/segment/get/%E8%AE%A2", "/api/segment/get/%00", "/api/segment/get/%FF", &long]
    {
        assert_leaf_code(&client.get(path)?, -2, path);
        assert_leaf_code(&client.get_as(path, "application/json")?, -2, path);
    }
    for path in ["/api/segment/get/", "/api/snowflake/get/"] {
        let exception = Some("com.sankuai.inf.leaf.server.exception.NoKeyException");
        assert_leaf_error(&client.get(path)?, 500, "Internal Server Error", exception, "Key is none", path);
    }
    let page =
        client.get_as("/api/segment/get/x", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")?;
    let body = "<html><body><h1>Internal Server Error</h1><div>There was an unexpected error (type=Internal Server \
                Error, status=500).</div><div>Result{id=-2, status=EXCEPTION}</div></body></html>";
    assert_answer(&page, 500, "text/html;charset=UTF-8", body);
    let markup = client.get_as("/api/segment/get/%3Cscript%3E", "text/html")?;
    assert_answer(&markup, 500, "text/html;charset=UTF-8", body);
    assert_eq!(client.get("/v1/tags")?.json()?, json!({ "tags": [] }), "no tag was created");
    Ok(())
}

#[test]
fn leaf_snowflakes_come_from_the_one_called_so_whatever_the_key() -> anyhow::Result<()> {
    let server = start([])?;
    let client = server.client();
    let mut before = 0;
    for key in ["order", "%E8%AE%A2%E5%8D%95", "%FF"] {
        let answer = client.get(&format!("/api/snowflake/get/{key}"))?;
        let id: u64 = answer.body.parse()?;
        assert_answer(&answer, 200, TEXT, &id.to_string());
        assert!(id > before);
        before = id;
    }
    // Without one called leaf they are those of default.
    let default = client.get("/v1/snowflakes/default/ids")?.ids()?[0];
    let worker = |id: u64| {
        client.get(&format!("/v1/decode/{id}?layout=leaf")).unwrap().json().unwrap()["fields"]["worker"].clone()
    };
    assert_eq!(worker(default), worker(before));

    // mastodon has one worker: whoever comes second finds none, and that is Leaf's -2.
    let one_worker = start_configured("drop_in = [\"leaf\"]\n[snowflakes.leaf]\nlayout = \"mastodon\"\n")?;
    let id: u64 = one_worker.get("/api/snowflake/get/x")?.body.parse()?;
    let decoded = one_worker.get(&format!("/v1/decode/{id}?layout=mastodon"))?.json()?;
    assert!(decoded["time"].as_str().is_some_and(|time| time.starts_with("20")), "{decoded}");
    let second = one_worker.start_beside()?;
    assert_leaf_code(&second.get("/api/snowflake/get/x")?, -2, "/api/snowflake/get/x");
    Ok(())
}

#[test]
fn leaf_takes_ids_apart_in_utc() -> anyhow::Result<()> {
    let server = start([])?;
    let client = server.client();
    let body = r#"{"timestamp":"1567733700834(2019-09-06 01:35:00.834)","sequenceId":"3448","workerId":"39"}"#;
    let path = "/decodeSnowflakeId?snowflakeId=1169786042799259000";
    for method in ["GET", "POST", "BREW"] {
        assert_answer(&client.send(method, path, "text/plain", "")?, 200, JSON, body);
    }
    let form = client.send("POST", "/decodeSnowflakeId", FORM, "snowflakeId=1169786042799259000")?;
    assert_answer(&form, 200, JSON, body);
    for text in ["x", "1.5", "9223372036854775808", "-1", "%FF"] {
        let answer = client.get(&format!("/decodeSnowflakeId?snowflakeId={text}"))?;
        assert_answer(&answer, 200, JSON, "{\"errorMsg\":\"snowflake Id反解析发生异常!\"}");
    }
    let exception = Some("org.springframework.web.bind.MissingServletRequestParameterException");
    let message = "Required String parameter 'snowflakeId' is not present";
    let missing = client.get("/decodeSnowflakeId")?;
    assert_leaf_error(&missing, 400, "Bad Request", exception, message, "/decodeSnowflakeId");
    Ok(())
}

#[test]
fn tinyid_gives_ids_by_query_and_form_and_any_method() -> anyhow::Result<()> {
    let server = start([])?;
    let client = server.client();
    let next = "/tinyid/id/nextId";
    let one = client.get(&format!("{next}?bizType=order&token=anything"))?;
    assert_answer(&one, 200, JSON, r#"{"data":[1],"code":200,"message":""}"#);
    let form = client.send("POST", next, FORM, "bizType=order&batchSize=2&token=")?;
    assert_answer(&form, 200, JSON, r#"{"data":[2,3],"code":200,"message":""}"#);
    let both = client.send(
        "PUT",
        &format!("{next}?batchSize=3"),
        &format!("{FORM};charset=UTF-8"),
        "bizType=order&batchSize=9",
    )?;
    assert_answer(&both, 200, JSON, r#"{"data":[4,5,6],"code":200,"message":""}"#);
    let simple = "/tinyid/id/nextIdSimple";
    assert_answer(&client.send("BREW", &format!("{simple}?bizType=order"), FORM, "")?, 200, TEXT, "7");
    assert_answer(&client.get(&format!("{simple}?bizType=order&batchSize=&x=y"))?, 200, TEXT, "8");
    assert_answer(&client.get(&format!("{simple}?bizType=order&batchSize=3"))?, 200, TEXT, "9,10,11");
    let chinese = client.send("POST", simple, FORM, "bizType=%E8%AE%A2%E5%8D%95+1")?;
    assert_answer(&chinese, 200, TEXT, "1");
    assert_eq!(client.get("/v1/tags/%E8%AE%A2%E5%8D%95%201")?.json()?["tag"], "订单 1");
    let large = json!({ "tag": "large", "start": "9007199254740993" });
    assert_eq!(client.send_json("POST", "/v1/tags", &large)?.status, 201);
    let exact = client.get(&format!("{next}?bizType=large&batchSize=2"))?;
    assert_answer(&exact, 200, JSON, r#"{"data":[9007199254740993,9007199254740994],"code":200,"message":""}"#);
    Ok(())
}

#[test]
fn tinyid_batches_are_as_large_as_asked_for_or_refused() -> anyhow::Result<()> {
    // Whatever other paths give at once.
    let server = start(["--count-max", "10"])?;
    let client = server.client();
    let simple = |size: &str| client.get(&format!("/tinyid/id/nextIdSimple?bizType=order&batchSize={size}"));
    for size in ["100000", "100001", "2147483648"] {
        assert_eq!(simple(size)?.body.split(',').count(), 100_000, "{size}");
    }
    for size in ["0", "-1", "1.5", "ten", "99999999999999999999"] {
        assert_answer(&simple(size)?, 200, TEXT, "");
        let answer = client.get(&format!("/tinyid/id/nextId?bizType=order&batchSize={size}"))?;
        let message = format!(r#"batchSize is \"{size}\", it must be a whole number of 1 or more"#);
        assert_answer(&answer, 200, JSON, &format!(r#"{{"data":null,"code":6,"message":"{message}"}}"#));
    }
    let first = client.get("/tinyid/id/nextIdSimple?bizType=other")?;
    assert_answer(&first, 200, TEXT, "1");
    assert_eq!(client.get("/v1/sequences/other/ids?count=11")?.status, 400);
    Ok(())
}

#[test]
fn tinyid_batches_are_whole_however_short_the_step_is() -> anyhow::Result<()> {
    let server = start([])?;
    let client = server.client();
    let short = json!({ "tag": "order", "step": { "policy": "fixed", "step": "10" } });
    assert_eq!(client.send_json("POST", "/v1/tags", &short)?.status, 201);
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        let batch = client.get("/tinyid/id/nextIdSimple?bizType=order&batchSize=100000")?;
        let one: u64 = client.get("/tinyid/id/nextIdSimple?bizType=order")?.body.parse()?;
        assert!(seen.insert(one), "{one} came twice");
        let ids = batch.body.split(',').map(str::parse).collect::<Result<Vec<u64>, _>>()?;
        assert_eq!(ids.len(), 100_000);
        assert!(ids.is_sorted() && ids.into_iter().all(|id| seen.insert(id)), "no id comes twice");
    }
    assert_eq!(client.get("/v1/tags/order")?.json()?["step"]["step"], "10", "it stays as it is");
    Ok(())
}

#[test]
fn tinyid_errors_have_its_codes_and_status_200() -> anyhow::Result<()> {
    let server = start(["--create-tags", "false", "--body-max-bytes", "100"])?;
    let client = server.client();
    for (query, message) in [
        ("?bizType=%E8%AE%A2%E5%8D%95", "can not find biztype:订单"),
        ("", r#"the tag \"\" is not valid: it is empty, and a name has 1 to 128 bytes"#),
        ("?bizType=%0A", r#"the tag \"\\n\" is not valid: it holds a control character"#),
    ] {
        for path in ["nextId", "nextSegmentId"] {
            let answer = client.get(&format!("/tinyid/id/{path}{query}"))?;
            assert_answer(&answer, 200, JSON, &format!(r#"{{"data":null,"code":6,"message":"{message}"}}"#));
            assert_answer(&client.get(&format!("/tinyid/id/{path}Simple{query}"))?, 200, TEXT, "");
        }
    }
    // Before anybody looks where it goes.
    let large = format!("bizType={}", "x".repeat(100));
    for path in ["/tinyid/id/nextId", "/tinyid/id/nextIdSimple"] {
        let answer = client.send("POST", path, FORM, &large)?;
        assert_eq!((answer.status, answer.problem()?.as_str()), (413, "body-too-large"), "{answer:?}");
    }
    Ok(())
}

#[test]
fn tinyid_segments_are_the_clients_for_ever() -> anyhow::Result<()> {
    let server = start([])?;
    let client = server.client();
    let step = json!({ "tag": "order", "start": 11, "step": { "policy": "fixed", "step": 99 } });
    assert_eq!(client.send_json("POST", "/v1/tags", &step)?.status, 201);
    let path = "/tinyid/id/nextSegmentIdSimple?token=t&bizType=order";
    assert_answer(&client.send("POST", path, FORM, "")?, 200, TEXT, "10,29,109,1,0");
    let body =
        r#"{"data":{"maxId":208,"loadingId":128,"currentId":109,"delta":1,"remainder":0},"code":200,"message":""}"#;
    assert_answer(&client.get("/tinyid/id/nextSegmentId?bizType=order")?, 200, JSON, body);
    assert_eq!(client.get("/v1/sequences/order/ids")?.ids()?, [209], "behind both");
    // Unless it is told otherwise a tag's step adapts; a client gets the first.
    assert_answer(&client.get("/tinyid/id/nextSegmentIdSimple?bizType=new")?, 200, TEXT, "0,200,1000,1,0");
    // What the process had buffered before stays its own.
    assert_eq!(client.get("/v1/sequences/order/ids")?.ids()?, [210]);
    assert_answer(&client.send("POST", path, FORM, "")?, 200, TEXT, "307,326,406,1,0");
    Ok(())
}

#[test]
fn no_client_holds_numbers_of_an_ordered_tag_or_up_to_the_last() -> anyhow::Result<()> {
    let server = start([])?;
    let client = server.client();
    let ordered = json!({ "tag": "shop.strict", "mode": "ordered" });
    let end =
        json!({ "tag": "shop.end", "start": (LAST - 5_000).to_string(), "step": { "policy": "fixed", "step": 10 } });
    for tag in [ordered, end] {
        assert_eq!(client.send_json("POST", "/v1/tags", &tag)?.status, 201);
    }
    for (tag, said) in [("strict", "is ordered"), ("end", "too near 2^63")] {
        let tinyid = client.get(&format!("/tinyid/id/nextSegmentId?bizType=shop.{tag}"))?.json()?;
        assert_eq!((&tinyid["data"], &tinyid["code"]), (&Value::Null, &json!(6)), "{tinyid}");
        assert!(tinyid["message"].as_str().is_some_and(|message| message.contains(said)), "{tinyid}");
        assert_answer(&client.get(&format!("/tinyid/id/nextSegmentIdSimple?bizType=shop.{tag}"))?, 200, TEXT, "");
        let cosid = client.send("PATCH", &format!("/segments/shop/{tag}?step=10"), "application/json", "")?;
        assert!(cosid.status >= 400, "{cosid:?}");
        assert!(cosid.json()?["msg"].as_str().is_some_and(|message| message.contains(said)), "{cosid:?}");
        // Single ids there are.
        let single = client.get(&format!("/tinyid/id/nextId?bizType=shop.{tag}"))?.json()?;
        assert_eq!(single["code"], 200, "{single}");
    }
    Ok(())
}

#[test]
fn cosid_gives_ids_as_numbers_and_as_text() -> anyhow::Result<()> {
    let server = start([])?;
    let client = server.client();
    let share = client.get("/ids")?;
    let id: u64 = share.body.parse()?;
    assert_answer(&share, 200, "application/json", &id.to_string());
    let text = client.get("/ids/as-string")?;
    assert_answer(&text, 200, TEXT, &text.body);
    assert_eq!(text.body.len(), 11);
    let later = unalike_core::decode(&text.body, unalike_core::Text::Base62)?;
    assert!(later > id && later < id + (60_000 << 22), "{id} {later}");
    let named: u64 = client.get("/ids/default")?.body.parse()?;
    assert!(named > later);
    assert_answer(&client.get("/ids/%E8%AE%A2%E5%8D%95")?, 200, "application/json", "1");
    assert_answer(&client.get("/ids/as-string/%E8%AE%A2%E5%8D%95")?, 200, TEXT, "00000000002");
    let large = json!({ "tag": "large", "start": "9007199254740993" });
    assert_eq!(client.send_json("POST", "/v1/tags", &large)?.status, 201);
    assert_answer(&client.get("/ids/large")?, 200, "application/json", "9007199254740993");
    for method in ["HEAD", "POST", "DELETE"] {
        assert_eq!(client.send(method, "/ids/large", "text/plain", "")?.status, 405, "{method}");
    }

    let configured = start_configured("drop_in = [\"cosid\"]\n[snowflakes.cosid]\nlayout = \"cosid\"\n")?;
    let id = configured.get("/ids")?.body;
    let decoded = configured.get(&format!("/v1/decode/{id}?layout=cosid"))?.json()?;
    assert!(decoded["time"].as_str().is_some_and(|time| time.starts_with("20")), "{decoded}");
    Ok(())
}

#[test]
fn cosid_segments_are_exactly_as_long_as_asked_for() -> anyhow::Result<()> {
    let server = start(["--segment-count-max", "1000000000"])?;
    let client = server.client();
    let post = |path: &str| client.send("POST", path, "application/json; charset=utf-8", "");
    let patch = |path: &str| client.send("PATCH", path, "application/json; charset=utf-8", "");
    let created = post("/segments/distributor/shop/order?offset=1000&step=100")?;
    assert_eq!((created.status, created.body.as_str()), (200, ""));
    assert_eq!(created.header("content-length"), Some("0"));
    let tag = client.get("/v1/tags/shop.order")?.json()?;
    assert_eq!((&tag["start"], &tag["step"]), (&json!("1001"), &json!({ "policy": "fixed", "step": "100" })));
    assert_answer(&patch("/segments/shop/order?step=100")?, 200, "application/json", "1100");
    assert_answer(&patch("/segments/shop/order?step=1")?, 200, "application/json", "1101");
    // Whoever comes later changes nothing.
    assert_eq!(post("/segments/distributor/shop/order?offset=0&step=7")?.status, 200);
    assert_answer(&patch("/segments/shop/order?step=1000000000")?, 200, "application/json", "1000001101");
    // A client goes on after this server was started anew, and so without POST.
    let chinese = "/segments/%E5%BA%97/%E8%AE%A2%E5%8D%95?step=50";
    assert_answer(&patch(chinese)?, 200, "application/json", "50");
    assert_eq!(client.get("/v1/tags/%E5%BA%97.%E8%AE%A2%E5%8D%95")?.json()?["watermark"], "50");
    assert_answer(&client.get("/ids/%E5%BA%97.%E8%AE%A2%E5%8D%95")?, 200, "application/json", "51");
    Ok(())
}

#[test]
fn numbers_that_a_tag_has_not_left_are_refused_before_any_are_granted() -> anyhow::Result<()> {
    let server = start_configured(
        "drop_in = [\"tinyid\", \"cosid\"]\n[tags.\"shop.order\"]\nbits = 16\n[tags.\"shop.near\"]\nbits = 16\n",
    )?;
    let client = server.client();
    let patch = |path: &str| client.send("PATCH", path, "application/json", "");
    let watermark =
        |tag: &str| Ok::<_, anyhow::Error>(client.get(&format!("/v1/tags/{tag}"))?.json()?["watermark"].clone());
    assert_answer(&patch("/segments/shop/order?step=60000")?, 200, "application/json", "60000");
    for step in ["5536", "60000", "1000000"] {
        let refused = patch(&format!("/segments/shop/order?step={step}"))?;
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(refused.json()?["msg"].as_str().is_some_and(|said| said.contains("pass 65535")), "{refused:?}");
        assert_eq!(watermark("shop.order")?, "60000", "a step of {step} took numbers");
    }
    assert_answer(&patch("/segments/shop/order?step=5535")?, 200, "application/json", "65535");
    assert_eq!(patch("/segments/shop/order?step=1")?.status, 400);
    assert_eq!(watermark("shop.order")?, "65535");

    // A client of tinyid is content with fewer.
    let near = json!({ "tag": "shop.near", "step": { "policy": "fixed", "step": 40_000 } });
    assert_eq!(client.send_json("POST", "/v1/tags", &near)?.status, 201);
    for (first, last) in [(0, 40_000), (40_000, 65_535)] {
        let segment = client.get("/tinyid/id/nextSegmentId?bizType=shop.near")?.json()?;
        assert_eq!((&segment["data"]["currentId"], &segment["data"]["maxId"]), (&json!(first), &json!(last)));
    }
    assert_eq!(client.get("/tinyid/id/nextSegmentId?bizType=shop.near")?.json()?["code"], 6);
    assert_eq!(watermark("shop.near")?, "65535");
    Ok(())
}

#[test]
fn a_segment_has_no_more_numbers_than_is_configured() -> anyhow::Result<()> {
    let server = start_with_tokens()?;
    let reader = server.client().with_token(READER);
    let refused = reader.send("PATCH", "/segments/shop/order?step=1000000000", "application/json", "")?;
    assert_eq!(refused.status, 400, "{refused:?}");
    assert_eq!(reader.get("/v1/tags/shop.order")?.status, 404, "nothing was created or taken");
    let large = json!({ "tag": "shop.large", "step": { "policy": "fixed", "step": 5_000_000_000_u64 } });
    assert_eq!(server.client().with_token(ADMIN).send_json("POST", "/v1/tags", &large)?.status, 201);
    let segment = reader.get(&format!("/tinyid/id/nextSegmentId?bizType=shop.large&token={READER}"))?.json()?;
    assert_eq!(segment["data"]["maxId"], 1_000_000, "{segment}");
    Ok(())
}

#[test]
fn stripes_give_no_segment_to_those_who_count_by_one_and_lose_none() -> anyhow::Result<()> {
    let server = start(["--store", "sqlite://a.sqlite", "--store", "sqlite://b.sqlite", "--leases", "none"])?;
    let client = server.client();
    assert_eq!(client.send_json("POST", "/v1/tags", &json!({ "tag": "shop.order" }))?.status, 201);
    let refused = client.send("PATCH", "/segments/shop/order?step=100", "application/json", "")?;
    assert!(refused.json()?["msg"].as_str().is_some_and(|said| said.contains("lie 2 apart")), "{refused:?}");
    assert_eq!(client.get("/v1/tags/shop.order")?.json()?["watermark"], "0");
    Ok(())
}

#[test]
fn cosid_errors_have_its_form() -> anyhow::Result<()> {
    let server = start(["--create-tags", "false"])?;
    let client = server.client();
    let end = json!({ "tag": "shop.end", "start": LAST.to_string() });
    assert_eq!(client.send_json("POST", "/v1/tags", &end)?.status, 201);
    assert_answer(&client.get("/ids/shop.end")?, 200, "application/json", "9223372036854775807");
    let unknown = r#"the tag \"shop.order\" is unknown: create it first, with `unalike tags create` or, where that is allowed, by taking an id of it"#;
    let step = |text: &str| format!(r#"step is \"{text}\", it must be a whole number from 1 to 1000000"#);
    let offset =
        |text: &str| format!(r#"offset is \"{text}\", it must be a whole number from 0 to 9223372036854775806"#);
    let used_up = r#"the tag \"shop.end\" is exhausted: it was moved or ended, as an import does, and its numbers continue elsewhere, or every number up to 9223372036854775807 has been granted"#;
    let utf8 = "a name in the path is not UTF-8 once percent-decoded";
    for (method, path, status, code, message) in [
        ("PATCH", "/segments/shop/order?step=100", 400, "500", unknown),
        ("GET", "/ids/shop.order", 400, "500", unknown),
        ("GET", "/ids/as-string/shop.order", 400, "500", unknown),
        ("PATCH", "/segments/shop/order", 400, "400", &step("")),
        ("PATCH", "/segments/shop/order?step=0", 400, "400", &step("0")),
        ("PATCH", "/segments/shop/order?step=-1", 400, "400", &step("-1")),
        ("PATCH", "/segments/shop/order?step=1000001", 400, "400", &step("1000001")),
        ("PATCH", "/segments/shop/order?step=x", 400, "400", &step("x")),
        ("POST", "/segments/distributor/shop/order?offset=-1&step=1", 400, "400", &offset("-1")),
        (
            "POST",
            "/segments/distributor/shop/order?offset=9223372036854775807&step=1",
            400,
            "400",
            &offset("9223372036854775807"),
        ),
        ("POST", "/segments/distributor/shop/order?offset=0", 400, "400", &step("")),
        ("PATCH", "/segments/%FF/order?step=1", 400, "500", utf8),
        ("PATCH", "/segments/shop/end?step=1", 400, "500", used_up),
        ("GET", "/ids/shop.end", 400, "500", ""),
    ] {
        let answer = client.send(method, path, "application/json", "")?;
        let message = if message.is_empty() {
            let text = answer.json()?["msg"].to_string();
            assert!(text.contains("exhausted"), "{text}");
            text.trim_matches('"').to_owned()
        } else {
            message.to_owned()
        };
        let body = format!(r#"{{"code":"{code}","msg":"{message}","errors":[]}}"#);
        assert_answer(&answer, status, "application/json", &body);
    }
    assert_eq!(client.get("/v1/tags/shop.order")?.status, 404, "none of them created it");
    Ok(())
}

const ADMIN: &str = "a-token-that-may-do-everything";
const READER: &str = "a-token-that-is-for-orders-only";

/// A server that wants tokens: one for everything, and one for ids and segments of `order` and `shop.*`.
fn start_with_tokens() -> anyhow::Result<Server> {
    let directory = Arc::new(TempDir::new()?);
    let path = directory.path().join("tokens.toml");
    let tokens = format!(
        "[[tokens]]\nname = \"admin\"\ntoken = \"{ADMIN}\"\nscope = \"admin\"\n\
         [[tokens]]\nname = \"reader\"\ntoken = \"{READER}\"\nscope = \"lease\"\ntags = [\"order\", \"shop.*\"]\n"
    );
    std::fs::write(&path, tokens)?;
    let path = path.to_str().context("a path of UTF-8")?;
    let arguments = [&ALL[..], &["--tokens", path, "--log", "debug"]].concat();
    Server::start_in(directory, arguments.into_iter().map(str::to_owned).collect())
}

#[test]
fn leaf_needs_a_token_in_the_header_where_tokens_are_wanted() -> anyhow::Result<()> {
    let server = start_with_tokens()?;
    let [nobody, reader, admin] =
        [server.client(), server.client().with_token(READER), server.client().with_token(ADMIN)];
    let wants = "this needs a token with the scope read: send the header Authorization: Bearer TOKEN";
    for path in ["/api/segment/get/order", "/api/snowflake/get/order", "/decodeSnowflakeId"] {
        let missing = nobody.get(path)?;
        assert_leaf_error(&missing, 401, "Unauthorized", None, wants, path);
        assert_eq!(missing.header("www-authenticate"), Some("Bearer"));
        let unknown = server.client().with_token("nobody's").get(path)?;
        assert_leaf_error(&unknown, 401, "Unauthorized", None, "the token is not known to this server", path);
    }
    assert_answer(&reader.get("/api/segment/get/order")?, 200, TEXT, "1");
    assert_answer(&admin.get("/api/segment/get/order")?, 200, TEXT, "2");
    for (path, name) in [("/api/segment/get/invoice", "invoice"), ("/api/snowflake/get/order", "default")] {
        let message = format!(r#"the token is not valid for \"{name}\": it has other tags and snowflakes"#);
        assert_leaf_error(&reader.get(path)?, 403, "Forbidden", None, &message, path);
        assert_eq!(admin.get(path)?.status, 200, "{path}");
    }
    let page = nobody.get_as("/api/segment/get/order", "text/html")?;
    assert_eq!((page.status, page.header("content-type")), (401, Some("text/html;charset=UTF-8")));
    assert!(page.body.contains(wants), "{page:?}");
    let decode = reader.get("/decodeSnowflakeId?snowflakeId=1169786042799259000")?;
    assert_eq!(decode.json()?["workerId"], "39");
    Ok(())
}

#[test]
fn tinyid_takes_its_own_token_where_tokens_are_wanted() -> anyhow::Result<()> {
    let server = start_with_tokens()?;
    let client = server.client();
    let wrong = r#"{"data":null,"code":5,"message":"token is error"}"#;
    for path in ["/tinyid/id/nextId", "/tinyid/id/nextSegmentId"] {
        for query in [
            "bizType=order",
            "bizType=order&token=",
            "bizType=order&token=nobody",
            &format!("bizType=invoice&token={READER}"),
            &format!("token={READER}"),
        ] {
            assert_answer(&client.get(&format!("{path}?{query}"))?, 200, JSON, wrong);
            assert_answer(&client.send("POST", path, FORM, query)?, 200, JSON, wrong);
            assert_answer(&client.get(&format!("{path}Simple?{query}"))?, 200, TEXT, "");
        }
    }
    let query = format!("bizType=order&token={READER}");
    assert_answer(&client.get(&format!("/tinyid/id/nextIdSimple?{query}"))?, 200, TEXT, "1");
    assert_answer(&client.send("POST", "/tinyid/id/nextIdSimple", FORM, &query)?, 200, TEXT, "2");
    let segment = "/tinyid/id/nextSegmentIdSimple";
    assert_answer(&client.send("POST", &format!("{segment}?{query}"), FORM, "")?, 200, TEXT, "1000,1200,2000,1,0");
    let header = server.client().with_token(ADMIN).get(&format!("{segment}?bizType=invoice"))?;
    assert_answer(&header, 200, TEXT, "0,200,1000,1,0");
    // It stands in the URL there, and in no line of the log, although that has every request.
    let log = server.log()?;
    assert!(log.contains("/tinyid/id/nextSegmentIdSimple"), "{log}");
    assert!(!log.contains(READER) && !log.contains(ADMIN), "{log}");
    Ok(())
}

#[test]
fn cosid_needs_a_token_in_the_header_where_tokens_are_wanted() -> anyhow::Result<()> {
    let server = start_with_tokens()?;
    let [nobody, reader, admin] =
        [server.client(), server.client().with_token(READER), server.client().with_token(ADMIN)];
    let create = "/segments/distributor/shop/order?offset=10&step=5";
    let wants =
        |scope: &str| format!("this needs a token with the scope {scope}: send the header Authorization: Bearer TOKEN");
    let failure = |code: u16, message: &str| format!(r#"{{"code":"{code}","msg":"{message}","errors":[]}}"#);
    for (method, path, scope) in [
        ("GET", "/ids", "read"),
        ("GET", "/ids/order", "read"),
        ("GET", "/ids/as-string", "read"),
        ("GET", "/ids/as-string/order", "read"),
        ("POST", create, "lease"),
        ("PATCH", "/segments/shop/order?step=5", "lease"),
    ] {
        let missing = nobody.send(method, path, "application/json", "")?;
        assert_answer(&missing, 401, "application/json", &failure(401, &wants(scope)));
        assert_eq!(missing.header("www-authenticate"), Some("Bearer"));
    }
    let scope = "this needs the scope admin, and the token has the scope lease";
    let other = |name: &str| {
        failure(403, &format!(r#"the token is not valid for \"{name}\": it has other tags and snowflakes"#))
    };
    let post = |client: &Client, path: &str| client.send("POST", path, "application/json", "");
    let patch = |client: &Client, path: &str| client.send("PATCH", path, "application/json", "");
    assert_answer(&post(&reader, create)?, 403, "application/json", &failure(403, scope));
    assert_eq!(admin.get("/v1/tags/shop.order")?.status, 404, "it was not created");
    assert_eq!(post(&admin, create)?.status, 200);
    let log = server.log()?;
    assert!(log.contains("a tag was created tag=\"shop.order\" by=\"admin\""), "{log}");
    assert_eq!(post(&reader, create)?.status, 200, "it is there, which is all that was asked for");
    assert_answer(&patch(&reader, "/segments/shop/order?step=5")?, 200, "application/json", "15");
    assert_answer(&patch(&reader, "/segments/store/order?step=5")?, 403, "application/json", &other("store.order"));
    assert_answer(&reader.get("/ids")?, 403, "application/json", &other("default"));
    assert_answer(&reader.get("/ids/shop.order")?, 200, "application/json", "16");
    assert_answer(&reader.get("/ids/invoice")?, 403, "application/json", &other("invoice"));
    assert_eq!(admin.get("/ids/as-string")?.status, 200);
    Ok(())
}

/// tinyid's client: one segment that is used, and the next one, asked for once the first is used by a fifth.
struct TinyidClient {
    client: Client,
    current: TinyidSegment,
    next: Option<TinyidSegment>,
}

struct TinyidSegment {
    current_id: u64,
    loading_id: u64,
    max_id: u64,
    delta: u64,
    remainder: u64,
}

impl TinyidSegment {
    fn take(client: &Client) -> anyhow::Result<Self> {
        let answer = client.send("POST", "/tinyid/id/nextSegmentIdSimple?token=0f673adf&bizType=order", FORM, "")?;
        let figures: Vec<u64> = answer.body.split(',').map(str::parse).collect::<Result<_, _>>()?;
        let [current_id, loading_id, max_id, delta, remainder] = figures[..] else {
            anyhow::bail!("no segment: {answer:?}")
        };
        Ok(Self { current_id, loading_id, max_id, delta, remainder })
    }
}

impl TinyidClient {
    fn new(client: Client) -> anyhow::Result<Self> {
        Ok(Self { current: TinyidSegment::take(&client)?, next: None, client })
    }

    fn next_id(&mut self) -> anyhow::Result<u64> {
        loop {
            let segment = &mut self.current;
            let mut id = segment.current_id + 1;
            while id % segment.delta != segment.remainder {
                id += 1;
            }
            if id <= segment.max_id {
                segment.current_id = id;
                if id >= segment.loading_id && self.next.is_none() {
                    self.next = Some(TinyidSegment::take(&self.client)?);
                }
                return Ok(id);
            }
            self.current = match self.next.take() {
                Some(next) => next,
                None => TinyidSegment::take(&self.client)?,
            };
        }
    }
}

/// Runs clients at once, each with a part of the ids.
fn concurrently(clients: usize, take: impl Fn(usize) -> anyhow::Result<Vec<u64>> + Sync) -> anyhow::Result<Vec<u64>> {
    let taken: anyhow::Result<Vec<Vec<u64>>> = thread::scope(|scope| {
        let clients: Vec<_> = (0..clients)
            .map(|number| {
                scope.spawn({
                    let take = &take;
                    move || take(number)
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("a client does not panic")).collect()
    });
    let ids = taken?.concat();
    let distinct: HashSet<u64> = ids.iter().copied().collect();
    ensure!(distinct.len() == ids.len(), "an id was handed out twice");
    Ok(ids)
}

#[test]
fn clients_of_tinyid_share_a_tag_without_a_duplicate_or_a_gap() -> anyhow::Result<()> {
    let servers = [start([])?];
    let beside = servers[0].start_beside()?;
    let ids = concurrently(4, |number| {
        let server = if number % 2 == 0 { &servers[0] } else { &beside };
        let mut client = TinyidClient::new(server.client())?;
        // To the end of the segments that it holds, so that there is no gap.
        let mut ids = Vec::new();
        while ids.len() < 5_000 || client.current.current_id < client.current.max_id || client.next.is_some() {
            if ids.len() >= 5_000 {
                client.current.loading_id = u64::MAX;
                if let Some(next) = &mut client.next {
                    next.loading_id = u64::MAX;
                }
            }
            ids.push(client.next_id()?);
        }
        ensure!(ids.is_sorted(), "a client's ids went down");
        Ok(ids)
    })?;
    let count = u64::try_from(ids.len())?;
    assert!(count >= 20_000);
    assert_eq!(ids.into_iter().collect::<HashSet<_>>(), (1..=count).collect(), "a number is missing");
    Ok(())
}

#[test]
fn clients_of_cosid_share_a_tag_without_a_duplicate_or_a_gap() -> anyhow::Result<()> {
    let first = start([])?;
    let second = first.start_beside()?;
    let ids = concurrently(4, |number| {
        let client = if number % 2 == 0 { first.client() } else { second.client() };
        let step = 10 + 7 * u64::try_from(number)?;
        client.send(
            "POST",
            &format!("/segments/distributor/shop/order?offset=0&step={step}"),
            "application/json",
            "",
        )?;
        let mut ids = Vec::new();
        for _ in 0..100 {
            let path = format!("/segments/shop/order?step={step}");
            let max: u64 = client.send("PATCH", &path, "application/json", "")?.body.parse()?;
            ids.extend(max - step + 1..=max);
        }
        ensure!(ids.is_sorted(), "a client's ids went down");
        Ok(ids)
    })?;
    let count = u64::try_from(ids.len())?;
    assert_eq!(count, 100 * (10 + 17 + 24 + 31));
    assert_eq!(ids.into_iter().collect::<HashSet<_>>(), (1..=count).collect(), "a number is missing");
    Ok(())
}

#[test]
fn all_ways_to_one_tag_at_once_give_no_id_twice() -> anyhow::Result<()> {
    let server = start([])?;
    let ids = concurrently(6, |number| {
        let client = server.client();
        let mut ids = Vec::new();
        for _ in 0..50 {
            match number {
                0 => ids.push(client.get("/api/segment/get/shop.order")?.body.parse()?),
                1 => {
                    let text = client.get("/tinyid/id/nextIdSimple?bizType=shop.order&batchSize=30")?.body;
                    for id in text.split(',') {
                        ids.push(id.parse()?);
                    }
                }
                2 => {
                    let text = client.get("/tinyid/id/nextSegmentIdSimple?bizType=shop.order")?.body;
                    let figures: Vec<u64> = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
                    ids.extend(figures[0] + 1..=figures[2]);
                }
                3 => ids.push(client.get("/ids/shop.order")?.body.parse()?),
                4 => {
                    let path = "/segments/shop/order?step=40";
                    let max: u64 = client.send("PATCH", path, "application/json", "")?.body.parse()?;
                    ids.extend(max - 39..=max);
                }
                _ => ids.extend(client.ids("/v1/sequences/shop.order/ids?count=100")?),
            }
        }
        Ok(ids)
    })?;
    assert!(ids.len() > 50_000);
    Ok(())
}

/// A server over three stores that number together.
fn start_striped() -> anyhow::Result<Server> {
    let stores = ["a", "b", "c"].map(|name| format!("sqlite://{name}.sqlite"));
    let stores = stores.iter().flat_map(|store| ["--store", store.as_str()]);
    start(stores.chain(["--leases", "sqlite://leases.sqlite"]))
}

#[test]
fn clients_of_all_three_go_on_over_stripes() -> anyhow::Result<()> {
    let server = start_striped()?;
    let client = server.client();
    let mut ids: Vec<u64> = Vec::new();
    let mut remainders = HashSet::new();
    for _ in 0..6 {
        ids.push(client.get("/api/segment/get/order")?.body.parse()?);
        let text = client.get("/tinyid/id/nextIdSimple?bizType=order&batchSize=30")?.body;
        ids.extend(text.split(',').map(str::parse).collect::<Result<Vec<u64>, _>>()?);
        // What tinyid's client counts through: the numbers of the stripe that granted them.
        let text = client.get("/tinyid/id/nextSegmentIdSimple?bizType=order")?.body;
        let figures: Vec<u64> = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
        let [current, loading, max, delta, remainder] = figures[..] else { anyhow::bail!("{text}") };
        assert_eq!(delta, 3, "{text}");
        assert!(current < loading && loading < max && remainder < delta, "{text}");
        remainders.insert(remainder);
        let segment: Vec<u64> = (current + 1..=max).filter(|id| id % delta == remainder).collect();
        assert_eq!(segment.len(), 1_000, "{text}");
        ids.extend(segment);
        let json = client.get("/tinyid/id/nextSegmentId?bizType=order")?.json()?;
        assert_eq!(json["data"]["delta"], json!(3), "{json}");
        ids.push(client.get("/ids/order")?.body.parse()?);
    }
    assert_eq!(remainders.len(), 3, "each store is used");
    let count = ids.len();
    assert_eq!(ids.into_iter().collect::<HashSet<_>>().len(), count, "an id came twice");

    // CosId's clients count by one, and would take the numbers of the other stores.
    let answer = client.send("PATCH", "/segments/shop/order?step=100", "application/json", "")?;
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(answer.json()?["msg"].as_str().is_some_and(|message| message.contains("3 apart")), "{answer:?}");
    Ok(())
}
