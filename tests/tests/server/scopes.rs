//! What a token's scope promises holds on every path, those of other services included.

#![expect(clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use tempfile::TempDir;
use unalike::Layout;
use unalike_tests::leases::now_ms;
use unalike_tests::server::{Answer, Client, Server};

const FORM: &str = "application/x-www-form-urlencoded";

/// From the least to the greatest.
const SCOPES: [&str; 3] = ["read", "lease", "admin"];

fn secret(scope: &str) -> String {
    format!("a-token-of-the-scope-{scope}")
}

/// A server with every drop-in, and a token of each scope.
fn start() -> anyhow::Result<Server> {
    let directory = Arc::new(TempDir::new()?);
    write_tokens(directory.path())?;
    let arguments = ["--drop-in", "leaf,tinyid,cosid", "--tokens", "tokens.toml"];
    Server::start_in(directory, arguments.map(str::to_owned).to_vec())
}

fn write_tokens(directory: &Path) -> anyhow::Result<()> {
    let entry = |scope| {
        let token = secret(scope);
        format!("[[tokens]]\nname = \"{scope}\"\ntoken = \"{token}\"\nscope = \"{scope}\"\n")
    };
    Ok(std::fs::write(directory.join("tokens.toml"), SCOPES.map(entry).concat())?)
}

/// What is asked, and how a refusal is told there.
struct Asked {
    method: &'static str,
    /// As the OpenAPI document writes it.
    template: &'static str,
    url: String,
    /// None: no token is needed.
    scope: Option<&'static str>,
    told: Told,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Status,
    /// tinyid's status is always 200.
    Code,
    /// Nor has this form of it room for a code.
    Nothing,
}

impl Told {
    /// The status of what this answer means: 200 stands for whatever was let in.
    fn status(self, answer: &Answer) -> u16 {
        match self {
            Self::Status if matches!(answer.status, 401 | 403) => answer.status,
            Self::Code if answer.body.contains(r#""code":5,"message":"token is error: this needs the scope"#) => 403,
            Self::Code if answer.body.contains(r#""code":5,"#) => 401,
            Self::Nothing if answer.body.is_empty() => 403,
            _ => 200,
        }
    }
}

const ANY_METHOD: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Every operation of a server, with what it needs. Whoever adds a route says here, too, what it needs.
fn asked() -> Vec<Asked> {
    let lease = format!(
        "layout={}&now_ms={}&horizon_ms=1000",
        Layout::TWITTER.to_string().replace('+', "%2B").replace(' ', "%20"),
        now_ms()
    );
    let grant = "grant_id=58f02ff3dabed220c0ec9e47bb897d08";
    let machine = "machineBit=10&instanceId=a&safeGuardDuration=PT5M";
    let (any, read, grants, admin) = (None, Some("read"), Some("lease"), Some("admin"));
    let own = [
        ("GET", "/v1/sequences/{tag}/ids", "/v1/sequences/order/ids?count=2".to_owned(), read),
        ("POST", "/v1/sequences/{tag}/ids", "/v1/sequences/order/ids".to_owned(), read),
        ("GET", "/v1/snowflakes/{name}/ids", "/v1/snowflakes/default/ids?count=2".to_owned(), read),
        ("POST", "/v1/snowflakes/{name}/ids", "/v1/snowflakes/default/ids".to_owned(), read),
        ("GET", "/v1/store", "/v1/store".to_owned(), grants),
        ("POST", "/v1/sequences/{tag}/format", "/v1/sequences/order/format?part=shape".to_owned(), grants),
        ("POST", "/v1/snowflakes/{name}/format", "/v1/snowflakes/default/format?part=shape".to_owned(), grants),
        ("POST", "/v1/sequences/{tag}/open", "/v1/sequences/order/open".to_owned(), grants),
        ("POST", "/v1/sequences/{tag}/segments", "/v1/sequences/order/segments?count=5".to_owned(), grants),
        (
            "POST",
            "/v1/sequences/{tag}/segments/release",
            "/v1/sequences/order/segments/release?start=5&version=9".to_owned(),
            grants,
        ),
        ("POST", "/v1/snowflakes/{name}/leases", format!("/v1/snowflakes/default/leases?{lease}"), grants),
        (
            "POST",
            "/v1/snowflakes/{name}/leases/{worker}/extend",
            format!("/v1/snowflakes/default/leases/7/extend?{grant}&{lease}"),
            grants,
        ),
        (
            "POST",
            "/v1/snowflakes/{name}/leases/{worker}/release",
            format!("/v1/snowflakes/default/leases/7/release?{grant}&end_ms=0"),
            grants,
        ),
        ("GET", "/v1/uuids", "/v1/uuids".to_owned(), read),
        ("POST", "/v1/uuids", "/v1/uuids".to_owned(), read),
        ("GET", "/v1/ulids", "/v1/ulids".to_owned(), read),
        ("POST", "/v1/ulids", "/v1/ulids".to_owned(), read),
        ("GET", "/v1/tags", "/v1/tags".to_owned(), read),
        ("POST", "/v1/tags", "/v1/tags".to_owned(), admin),
        ("GET", "/v1/tags/{tag}", "/v1/tags/order".to_owned(), read),
        ("PATCH", "/v1/tags/{tag}", "/v1/tags/order".to_owned(), admin),
        ("GET", "/v1/decode/{id}", "/v1/decode/1169786042799259000".to_owned(), read),
        ("GET", "/v1/layouts", "/v1/layouts".to_owned(), read),
        ("GET", "/v1/range", "/v1/range?from=2026-01-01&to=2026-02-01".to_owned(), read),
        ("GET", "/v1/console", "/v1/console".to_owned(), read),
        ("GET", "/console", "/console".to_owned(), any),
        ("GET", "/console/style.css", "/console/style.css".to_owned(), any),
        ("GET", "/console/script.js", "/console/script.js".to_owned(), any),
        ("GET", "/metrics", "/metrics".to_owned(), read),
        ("GET", "/health/live", "/health/live".to_owned(), any),
        ("GET", "/health/ready", "/health/ready".to_owned(), any),
        ("OPTIONS", "/health/live", "/health/live".to_owned(), any),
        ("OPTIONS", "/health/ready", "/health/ready".to_owned(), any),
        ("GET", "/openapi.json", "/openapi.json".to_owned(), any),
        ("GET", "/ids", "/ids".to_owned(), read),
        ("GET", "/ids/{name}", "/ids/order".to_owned(), read),
        ("GET", "/ids/as-string", "/ids/as-string".to_owned(), read),
        ("GET", "/ids/as-string/{name}", "/ids/as-string/order".to_owned(), read),
        (
            "POST",
            "/segments/distributor/{namespace}/{name}",
            "/segments/distributor/shop/order?offset=10&step=5".to_owned(),
            grants,
        ),
        ("PATCH", "/segments/{namespace}/{name}", "/segments/shop/order?step=5".to_owned(), grants),
        ("POST", "/machines/{namespace}", format!("/machines/shop?{machine}"), grants),
        ("PATCH", "/machines/{namespace}", format!("/machines/shop?{machine}"), grants),
        ("DELETE", "/machines/{namespace}", format!("/machines/shop?{machine}"), grants),
    ];
    let by_status = |(method, template, url, scope)| Asked { method, template, url, scope, told: Told::Status };
    let any_method = [
        ("/api/segment/get/{key}", "/api/segment/get/order", read, Told::Status),
        ("/api/snowflake/get/{key}", "/api/snowflake/get/order", read, Told::Status),
        ("/decodeSnowflakeId", "/decodeSnowflakeId?snowflakeId=1169786042799259000", read, Told::Status),
        ("/tinyid/id/nextId", "/tinyid/id/nextId?bizType=order", read, Told::Code),
        ("/tinyid/id/nextIdSimple", "/tinyid/id/nextIdSimple?bizType=order", read, Told::Nothing),
        ("/tinyid/id/nextSegmentId", "/tinyid/id/nextSegmentId?bizType=order", grants, Told::Code),
        ("/tinyid/id/nextSegmentIdSimple", "/tinyid/id/nextSegmentIdSimple?bizType=order", grants, Told::Nothing),
    ];
    let any_method = any_method.into_iter().flat_map(|(template, url, scope, told)| {
        ANY_METHOD.map(|method| Asked { method, template, url: url.to_owned(), scope, told })
    });
    own.into_iter().map(by_status).chain(any_method).collect()
}

#[test]
fn a_token_is_good_for_its_scope_on_every_path_and_for_no_more() -> anyhow::Result<()> {
    let server = start()?;
    let admin = server.client().with_token(&secret("admin"));
    // Whatever else would need the scope `admin` once.
    for url in [
        "/segments/distributor/shop/order?offset=1&step=5",
        "/machines/shop?machineBit=10&instanceId=b&safeGuardDuration=PT5M",
    ] {
        assert_eq!(admin.send("POST", url, FORM, "")?.status, 200, "{url}");
    }
    let asked = asked();
    for Asked { method, template, url, scope, told } in &asked {
        let status = |client: &Client| anyhow::Ok(told.status(&client.send(method, url, FORM, "")?));
        let needed = scope.map(|scope| SCOPES.iter().position(|known| *known == scope));
        let denied = |status: u16| match (told, needed) {
            (_, None) => 200,
            (Told::Nothing, _) => 403,
            _ => status,
        };
        assert_eq!(status(&server.client())?, denied(401), "{method} {template} without a token");
        assert_eq!(status(&server.client().with_token("nobody's"))?, denied(401), "{method} {template}");
        for (place, scope) in SCOPES.iter().enumerate() {
            let is_enough = needed.is_none_or(|needed| Some(place) >= needed);
            let client = server.client().with_token(&secret(scope));
            let expected = if is_enough { 200 } else { denied(403) };
            assert_eq!(status(&client)?, expected, "{method} {template} by a token of the scope {scope}");
        }
    }
    // Nothing was left out, and the document says the same.
    let document = server.get("/openapi.json")?.json()?;
    let paths = document["paths"].as_object().context("no paths")?;
    let described = paths.iter().flat_map(|(path, item)| {
        let operations = item.as_object().into_iter().flatten();
        operations.map(|(method, said)| (method.to_uppercase(), path.as_str(), said["x-token-scope"].as_str()))
    });
    let described: BTreeSet<_> = described.collect();
    let walked = asked.iter().map(|asked| (asked.method.to_owned(), asked.template, asked.scope));
    assert_eq!(described, walked.collect::<BTreeSet<_>>());
    Ok(())
}

#[test]
fn paths_without_a_name_need_a_token_too() -> anyhow::Result<()> {
    let server = start()?;
    for (method, path, let_in) in [
        ("GET", "/v1/sequences//ids", 400),
        ("POST", "/v1/sequences//ids", 400),
        ("GET", "/v1/tags/", 400),
        ("GET", "/api/segment/get/", 500),
        ("PUT", "/api/snowflake/get/", 500),
    ] {
        assert_eq!(server.client().send(method, path, FORM, "")?.status, 401, "{method} {path}");
        let reader = server.client().with_token(&secret("read"));
        assert_eq!(reader.send(method, path, FORM, "")?.status, let_in, "{method} {path}");
    }
    let reader = server.client().with_token(&secret("read"));
    assert_eq!(reader.send("PATCH", "/v1/tags/", "application/json", "{}")?.status, 403);
    Ok(())
}

#[test]
fn who_may_only_read_takes_no_machine_id_from_its_holder_and_no_segment() -> anyhow::Result<()> {
    let server = start()?;
    let [reader, holder, admin] = SCOPES.map(|scope| server.client().with_token(&secret(scope)));
    let machines = |more: &str| format!("/machines/shop?machineBit=1&safeGuardDuration=PT5M&{more}");
    let state = |answer: &Answer| anyhow::Ok(answer.json()?["machineId"].as_u64());
    let first = admin.send("POST", &machines("instanceId=holder"), FORM, "")?;
    assert_eq!(first.status, 200, "{first:?}");
    for (method, more) in
        [("DELETE", "instanceId=holder"), ("PATCH", "instanceId=holder"), ("POST", "instanceId=holder&stable=true")]
    {
        let refused = reader.send(method, &machines(more), FORM, "")?;
        let says = r#""msg":"this needs the scope lease, and the token has the scope read""#;
        assert!(refused.status == 403 && refused.body.contains(says), "{method}: {refused:?}");
    }
    assert_eq!(holder.send("PATCH", &machines("instanceId=holder"), FORM, "")?.status, 200, "it is still the holder's");
    let other = holder.send("POST", &machines("instanceId=other"), FORM, "")?;
    assert_ne!(state(&other)?, state(&first)?);

    let before = admin.get("/v1/sequences/order/ids")?.json()?["ids"][0].clone();
    assert_eq!(before, "1");
    assert_eq!(reader.send("PATCH", "/segments/shop/order?step=1000000", FORM, "")?.status, 403);
    assert_eq!(admin.get("/v1/tags/shop.order")?.status, 404, "the tag was not even made");
    let wrong = r#"{"data":null,"code":5,"message":"token is error: this needs the scope lease, and the token has the scope read"}"#;
    assert_eq!(reader.get("/tinyid/id/nextSegmentId?bizType=order")?.body, wrong);
    let by_parameter = format!("bizType=order&token={}", secret("read"));
    assert_eq!(server.client().send("POST", "/tinyid/id/nextSegmentId", FORM, &by_parameter)?.body, wrong);
    assert_eq!(server.client().get(&format!("/tinyid/id/nextSegmentIdSimple?{by_parameter}"))?.body, "");
    let log = server.log()?;
    assert!(log.contains("a segment of tinyid's: this needs the scope lease"), "{log}");
    assert!(server.client().get(&format!("/tinyid/id/nextIdSimple?{by_parameter}"))?.body.parse::<u64>().is_ok());
    Ok(())
}
