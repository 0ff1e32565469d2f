//! What comes in over the wire: names and pages that are not meant, methods and bodies that would cost an id for
//! nothing, and what cannot be read as a request.

#![expect(clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use std::io::{Read, Write};
use std::sync::Arc;

use anyhow::Context;
use serde_json::{Value, json};
use tempfile::TempDir;
use unalike_tests::server::{Client, Server};

const ORDER: &str = "/v1/sequences/order/ids";

/// What is refused to a page of another origin, by GET.
const KNOWN_TO_USE_UP: &[&str] = &[
    "/api/segment/get/{key}",
    "/api/snowflake/get/{key}",
    "/ids",
    "/ids/as-string",
    "/ids/as-string/{name}",
    "/ids/{name}",
    "/tinyid/id/nextId",
    "/tinyid/id/nextIdSimple",
    "/tinyid/id/nextSegmentId",
    "/tinyid/id/nextSegmentIdSimple",
    // What it says of leases the store is asked for.
    "/v1/console",
    "/v1/sequences/{tag}/ids",
    "/v1/snowflakes/{name}/ids",
    "/v1/store",
    "/v1/ulids",
    "/v1/uuids",
];

/// The status and the body of the answer to these bytes, and whether the connection was closed after it.
fn raw(server: &Server, request: &[u8]) -> anyhow::Result<(u16, String)> {
    let mut connection = server.connect()?;
    connection.write_all(request)?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").with_context(|| format!("no answer: {answer:?}"))?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    assert!(head.to_ascii_lowercase().contains("content-type: application/problem+json") || status == 200, "{answer}");
    Ok((status, body.to_owned()))
}

/// The name of the problem that this is.
fn problem(body: &str) -> anyhow::Result<String> {
    let body: Value = serde_json::from_str(body).with_context(|| format!("no problem: {body:?}"))?;
    let name = body.get("type").and_then(Value::as_str);
    Ok(name.and_then(|name| name.strip_prefix("urn:unalike:problem:")).context("no type")?.to_owned())
}

#[test]
fn a_page_of_another_name_or_origin_takes_no_id_and_ends_no_tag() -> anyhow::Result<()> {
    let server = Server::start_with(["--allowed-origins", "https://app.example"])?;
    let client = server.client();
    assert_eq!(client.get(ORDER)?.ids()?, [1]);
    let raise = json!({ "raise_to": "9223372036854775806", "confirm": true });
    let (renamed, foreign) =
        (client.clone().with("host", "evil.example"), client.clone().with("origin", "http://evil"));
    let hidden = client.clone().with("sec-fetch-site", "cross-site");
    for (client, status, name) in
        [(&renamed, 421, "host-unknown"), (&foreign, 403, "origin-refused"), (&hidden, 403, "origin-refused")]
    {
        for answer in [
            client.get(ORDER)?,
            client.get("/v1/snowflakes/default/ids")?,
            client.send("POST", ORDER, "application/json", "{}")?,
            client.send_json("PATCH", "/v1/tags/order", &raise)?,
            client.send_json("POST", "/v1/tags", &json!({ "tag": "x" }))?,
        ] {
            assert_eq!((answer.status, answer.problem()?.as_str()), (status, name), "{answer:?}");
            assert_eq!(answer.header("access-control-allow-origin"), None);
        }
    }
    assert_eq!(renamed.get("/v1/tags")?.status, 421, "nor does it see anything");
    for client in [&renamed, &foreign] {
        assert_eq!(client.get("/health/ready")?.status, 200);
    }
    // A page that is allowed asks first, and may read.
    let page = client.clone().with("origin", "https://app.example");
    let asked = page.clone().with("access-control-request-method", "POST");
    let asked = asked.send("OPTIONS", ORDER, "text/plain", "")?;
    assert_eq!((asked.status, asked.header("access-control-allow-origin")), (204, Some("https://app.example")));
    assert!(asked.header("access-control-allow-headers").is_some_and(|headers| headers.contains("Authorization")));
    let taken = page.get(ORDER)?;
    assert_eq!((taken.ids()?, taken.header("access-control-allow-origin")), (vec![2], Some("https://app.example")));
    assert_eq!(client.get(ORDER)?.ids()?, [3], "no number was lost");
    Ok(())
}

/// What a browser sends for `<img src=..>` and the like to an address that is no secure one: no origin.
#[test]
fn a_page_that_shows_what_it_asks_for_takes_no_id() -> anyhow::Result<()> {
    let server = Server::start_with(["--allowed-origins", "https://app.example", "--drop-in", "leaf,tinyid,cosid"])?;
    let client = server.client();
    for (name, value) in [
        ("referer", "http://10.0.0.9/page?x=1"),
        ("referer", "http://app.example/"),
        ("accept", "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8"),
        ("accept", "image/png,image/svg+xml,image/*;q=0.8,video/*;q=0.8,*/*;q=0.5"),
        ("accept", "text/css,*/*;q=0.1"),
        ("origin", "http://app.example"),
        ("origin", &server.url().replacen("http", "https", 1)),
    ] {
        let page = client.clone().with(name, value);
        for path in [ORDER, "/api/segment/get/order", "/tinyid/id/nextId?bizType=order", "/ids/order"] {
            let answer = page.get(path)?;
            assert_eq!((answer.status, answer.problem()?.as_str()), (403, "origin-refused"), "{name} {value} {path}");
        }
        assert_eq!(page.get("/health/ready")?.status, 200, "{name} {value}");
    }
    let own = format!("{}/v1/layouts", server.url());
    for (at, (name, value)) in [
        ("referer", own.as_str()),
        ("referer", "https://app.example/page"),
        ("accept", "*/*"),
        ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"),
        ("origin", "https://app.example"),
        ("origin", server.url()),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(client.clone().with(name, value).get(ORDER)?.ids()?, [u64::try_from(at)? + 1], "{name} {value}");
    }
    Ok(())
}

#[test]
fn other_names_are_allowed_by_configuration_and_any_where_tokens_are_wanted() -> anyhow::Result<()> {
    let server = Server::start_with(["--allowed-hosts", "ids.example,*.ids.test"])?;
    let named = |name: &str| server.client().with("host", name);
    for name in ["ids.example:8080", "a.ids.test", "localhost", "127.0.0.1:1"] {
        assert_eq!(named(name).get(ORDER)?.status, 200, "{name}");
    }
    assert_eq!(named("other.example").get(ORDER)?.status, 421);
    let directory = Arc::new(TempDir::new()?);
    let token = "a-token-that-may-do-everything";
    let file = format!("[[tokens]]\nname = \"all\"\ntoken = \"{token}\"\nscope = \"admin\"\n");
    std::fs::write(directory.path().join("tokens.toml"), file)?;
    let server = Server::start_in(directory, ["--tokens", "tokens.toml"].map(str::to_owned).to_vec())?;
    let client = server.client().with("host", "ids.example");
    assert_eq!(client.get(ORDER)?.status, 401);
    assert_eq!(client.with_token(token).get(ORDER)?.status, 200);
    Ok(())
}

#[test]
fn what_is_no_request_is_told_so() -> anyhow::Result<()> {
    let server = Server::start()?;
    let long = "x".repeat(1_000_000);
    for (request, status, name) in [
        (format!("GET {ORDER} HTTP/1.1\r\n\r\n"), 400, "host-invalid"),
        (format!("GET {ORDER} HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n\r\n"), 400, "host-invalid"),
        (format!("GET {ORDER} HTTP/1.1\r\nhost: a b\r\n\r\n"), 400, "host-invalid"),
        (format!("GET http://evil.example{ORDER} HTTP/1.1\r\nhost: localhost\r\n\r\n"), 421, "host-unknown"),
        ("GARBAGE\r\n\r\n".to_owned(), 400, "request-invalid"),
        (format!("GET {ORDER} HTTP/1.1\r\nhost localhost\r\n\r\n"), 400, "request-invalid"),
        (format!("GET {ORDER} HTTP/7\r\n\r\n"), 400, "request-invalid"),
        (format!("GET /{long} HTTP/1.1\r\nhost: localhost\r\n\r\n"), 414, "url-too-long"),
        (format!("GET {ORDER} HTTP/1.1\r\nhost: localhost\r\nx: {long}\r\n\r\n"), 431, "head-too-large"),
    ] {
        let shown = request.get(..60).unwrap_or(&request).to_owned();
        let request = request.replacen("\r\n", "\r\nconnection: close\r\n", usize::from(request.contains("HTTP/1.1")));
        let (answered, body) = raw(&server, request.as_bytes()).with_context(|| shown.clone())?;
        assert_eq!((answered, problem(&body)?.as_str()), (status, name), "{shown}: {body}");
    }
    // HTTP/1.0 has no Host: what load balancers look at needs none.
    for path in ["/health/live", "/health/ready"] {
        assert_eq!(raw(&server, format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?.0, 200, "{path}");
    }
    for path in [ORDER, "/v1/tags", "/metrics"] {
        let (status, body) = raw(&server, format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
        assert_eq!((status, problem(&body)?.as_str()), (400, "host-invalid"), "{path}");
    }
    let (status, body) = raw(&server, format!("GET {ORDER} HTTP/1.0\r\nhost: localhost\r\n\r\n").as_bytes())?;
    assert_eq!((status, body.as_str()), (200, r#"{"tag":"order","ids":["1"]}"#), "nothing was lost");
    let open = Server::start_with(["--allowed-hosts", "*"])?;
    assert_eq!(raw(&open, format!("GET {ORDER} HTTP/1.0\r\n\r\n").as_bytes())?.0, 200);
    Ok(())
}

#[test]
fn a_load_balancer_s_plainest_check_is_answered() -> anyhow::Result<()> {
    // HAProxy's `option httpchk`, with an address and without; its older manuals have the asterisk.
    const PLAIN: [&str; 4] = ["/health/live", "/health/ready", "/", "*"];
    let check = |server: &Server, path: &str, host: &str| {
        raw(server, format!("OPTIONS {path} HTTP/1.0\r\n{host}\r\n").as_bytes())
    };
    let server = Server::start_with(["--drain-ms", "60000"])?;
    for path in PLAIN {
        for host in ["", "host: nobody.example\r\n"] {
            let (status, body) = check(&server, path, host)?;
            let what = if path == "/health/live" { r#"{"status":"live"}"# } else { r#"{"status":"ready"}"# };
            assert_eq!((status, body.as_str()), (200, what), "{path} {host}");
        }
    }
    for (method, path) in [("GET", "/"), ("HEAD", "/"), ("POST", "*"), ("OPTIONS", ORDER), ("OPTIONS", "/nothing")] {
        let (status, _) = raw(&server, format!("{method} {path} HTTP/1.0\r\n\r\n").as_bytes())?;
        assert_eq!(status, 400, "{method} {path}: no check, and there is no Host");
    }
    let answer = server.client().send("OPTIONS", ORDER, "text/plain", "")?;
    assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, POST")));
    assert_eq!(server.get("/")?.status, 404);
    // It is about to end: all are to look elsewhere, although it still serves.
    server.signal(libc::SIGTERM)?;
    server.wait_for_log("ending; another signal", 1)?;
    for path in PLAIN {
        let (status, body) = check(&server, path, "")?;
        if path == "/health/live" {
            assert_eq!(status, 200);
        } else {
            assert_eq!((status, problem(&body)?.as_str()), (503, "closing"), "{path}");
        }
    }
    // A check needs no token, either.
    let directory = Arc::new(TempDir::new()?);
    let tokens = "[[tokens]]\nname = \"a\"\ntoken = \"0123456789abcdef\"\nscope = \"read\"\n";
    std::fs::write(directory.path().join("tokens.toml"), tokens)?;
    let server = Server::start_in(directory, ["--tokens", "tokens.toml"].map(str::to_owned).to_vec())?;
    for path in PLAIN {
        assert_eq!(check(&server, path, "")?.0, 200, "{path}");
    }
    Ok(())
}

#[test]
fn garbage_behind_a_request_is_told_after_its_answer() -> anyhow::Result<()> {
    let server = Server::start()?;
    let mut connection = server.connect()?;
    connection.write_all(format!("GET {ORDER} HTTP/1.1\r\nhost: localhost\r\n\r\nGARBAGE\r\n\r\n").as_bytes())?;
    let mut answers = String::new();
    connection.read_to_string(&mut answers)?;
    assert!(answers.starts_with("HTTP/1.1 200") && answers.contains("\"ids\":[\"1\"]"), "{answers}");
    assert!(answers.contains("HTTP/1.1 400") && answers.contains("request-invalid"), "{answers}");
    Ok(())
}

#[test]
fn head_and_trace_cost_no_id_and_say_what_there_is_instead() -> anyhow::Result<()> {
    let server = Server::start_with(["--drop-in", "leaf,tinyid,cosid"])?;
    let client = server.client();
    for path in [ORDER, "/v1/snowflakes/default/ids", "/v1/uuids", "/v1/ulids", "/ids", "/ids/order"] {
        let answer = client.send("HEAD", path, "text/plain", "")?;
        assert_eq!(answer.status, 405, "{path}: {answer:?}");
        let allow = answer.header("allow").with_context(|| format!("{path}: {answer:?}"))?;
        assert!(allow.contains("GET") && !allow.contains("HEAD"), "{path}: {allow}");
        let answer = client.send("TRACE", path, "text/plain", "")?;
        assert_eq!((answer.status, answer.problem()?.as_str()), (405, "method-not-allowed"), "{path}");
    }
    for path in [
        "/api/segment/get/order",
        "/api/snowflake/get/order",
        "/tinyid/id/nextId?bizType=order",
        "/tinyid/id/nextIdSimple?bizType=order",
        "/tinyid/id/nextSegmentId?bizType=order",
        "/tinyid/id/nextSegmentIdSimple?bizType=order",
    ] {
        for method in ["HEAD", "TRACE"] {
            let answer = client.send(method, path, "text/plain", "")?;
            assert_eq!(answer.status, 405, "{method} {path}: {answer:?}");
            let allow = answer.header("allow").with_context(|| format!("{path}: {answer:?}"))?;
            assert!(allow.contains("GET") && !allow.contains(method), "{path}: {allow}");
        }
    }
    assert_eq!(client.get(ORDER)?.ids()?, [1]);
    Ok(())
}

#[test]
fn a_body_says_what_a_query_says() -> anyhow::Result<()> {
    let server = Server::start()?;
    let client = server.client();
    let post = |path: &str, body: &str| client.send("POST", path, "application/json", body);
    assert_eq!(post(ORDER, r#"{"count":5}"#)?.ids()?, [1, 2, 3, 4, 5]);
    assert_eq!(post(ORDER, r#"{"count":"2","as":"string"}"#)?.ids()?, [6, 7]);
    assert_eq!(post(&format!("{ORDER}?as=string"), r#"{"sub":"a","count":1}"#)?.json()?["sub"], "a");
    assert_eq!(post(ORDER, "{}")?.ids()?, [8]);
    assert_eq!(post("/v1/snowflakes/default/ids", r#"{"count":3}"#)?.ids()?.len(), 3);
    let uuids = post("/v1/uuids", r#"{"count":2,"version":4}"#)?.json()?;
    assert_eq!((uuids["uuids"].as_array().map(Vec::len), &uuids["version"]), (Some(2), &json!(4)));
    let refused = |client: &Client, method: &str, media: &str, path: &str, body: &str| {
        let answer = client.send(method, path, media, body)?;
        Ok::<_, anyhow::Error>((answer.status, answer.problem()?))
    };
    for (path, body, expected) in [
        (ORDER, r#"{"count":0}"#, (400, "count-invalid")),
        (ORDER, r#"{"count":5.0}"#, (400, "count-invalid")),
        (ORDER, r#"{"count":99999999999999999999}"#, (400, "count-invalid")),
        (ORDER, r#"{"count":true}"#, (400, "body-invalid")),
        (ORDER, r#"{"count":5"#, (400, "body-invalid")),
        (ORDER, "[5]", (400, "body-invalid")),
        (ORDER, r#"{"cuont":5}"#, (400, "query-invalid")),
        (ORDER, r#"{"count":5,"count":6}"#, (400, "query-invalid")),
        ("/v1/sequences/order/ids?count=5", r#"{"count":6}"#, (400, "query-invalid")),
        ("/v1/snowflakes/default/ids", r#"{"sub":"a"}"#, (400, "query-invalid")),
    ] {
        let (status, name) = refused(&client, "POST", "application/json", path, body)?;
        assert_eq!((status, name.as_str()), expected, "{path} {body}");
    }
    let form = client.send("POST", ORDER, "application/x-www-form-urlencoded", r#"{"count":5}"#)?;
    assert_eq!((form.status, form.problem()?.as_str()), (415, "media-type-unsupported"));
    assert!(form.body.contains("Content-Type: application/json"), "{form:?}");
    assert_eq!(refused(&client, "GET", "application/json", ORDER, r#"{"count":5}"#)?, (400, "body-invalid".to_owned()));
    assert_eq!(client.get(ORDER)?.ids()?, [9], "what was refused cost no id");
    Ok(())
}

#[test]
fn a_body_of_a_gigabyte_is_refused_before_it_comes() -> anyhow::Result<()> {
    let server = Server::start_with(["--drop-in", "leaf"])?;
    for path in [ORDER, "/v1/tags", "/v1/layouts", "/api/segment/get/order"] {
        let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000000\r\n\r\n");
        let (status, body) = raw(&server, head.as_bytes())?;
        assert_eq!((status, problem(&body)?.as_str()), (413, "body-too-large"), "{path}");
    }
    assert_eq!(server.get(ORDER)?.ids()?, [1], "none of them cost an id");
    Ok(())
}

/// Each route by GET uses numbers up, or grants them, or is for pages of any origin: a new one is looked at here.
#[test]
fn each_route_by_get_is_harmless_or_known_to_use_numbers_up() -> anyhow::Result<()> {
    let server = Server::start_with(["--drop-in", "leaf,tinyid,cosid"])?;
    let client = server.client();
    let document = client.get("/openapi.json")?.json()?;
    let page = client.with("origin", "http://evil");
    let mut refused = Vec::new();
    for (template, methods) in document["paths"].as_object().context("no paths")? {
        if methods.get("get").is_some() && page.get(&template.replace(['{', '}'], ""))?.status == 403 {
            refused.push(template.as_str());
        }
    }
    refused.sort_unstable();
    assert_eq!(refused, KNOWN_TO_USE_UP);
    Ok(())
}
