//! The service before an open network: tokens, limits, logs, and its end, over real processes.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic_in_result_fn,
    reason = "a test that cannot go on fails"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use unalike_tests::PATIENCE;
use unalike_tests::redis::{Persistence, Redis};
use unalike_tests::server::{Answer, Client, Server, binary, fails, run, run_with};

const ORDER: &str = "/v1/sequences/order/ids";

const ADMIN: &str = "the-token-that-may-do-everything";
const READER: &str = "the-token-that-may-take-ids";
const BOUND: &str = "the-token-for-some-tags-only";
const BOUND_ADMIN: &str = "the-token-that-rules-some-tags";

/// SHA-256 of [`READER`], as `printf %s .. | sha256sum` prints it.
const READER_SHA256: &str = "4ef056d5cafafe9dec55e34e86b7c7d958e49e97888e3e0e94f3877326d65afa";

fn token_file() -> String {
    format!(
        r#"
        [[tokens]]
        name = "root"
        token = "{ADMIN}"
        scope = "admin"

        [[tokens]]
        name = "reader"
        sha256 = "{READER_SHA256}"
        scope = "read"

        [[tokens]]
        name = "bound"
        token = "{BOUND}"
        scope = "read"
        tags = ["order", "invoice*", "default"]

        [[tokens]]
        name = "bound-admin"
        token = "{BOUND_ADMIN}"
        scope = "admin"
        tags = ["invoice*"]
        "#
    )
}

/// A server whose requests need the tokens above.
fn guarded(arguments: &[&str]) -> anyhow::Result<Server> {
    let directory = Arc::new(TempDir::new()?);
    std::fs::write(directory.path().join("tokens.toml"), token_file())?;
    let arguments = [&["--tokens", "tokens.toml"], arguments].concat();
    Server::start_in(directory, arguments.into_iter().map(str::to_owned).collect())
}

/// Every route, with a body where one is needed.
const ROUTES: [(&str, &str, &str); 14] = [
    ("GET", ORDER, ""),
    ("POST", ORDER, ""),
    ("GET", "/v1/sequences//ids", ""),
    ("GET", "/v1/snowflakes/default/ids", ""),
    ("POST", "/v1/snowflakes/default/ids", ""),
    ("GET", "/v1/tags/order", ""),
    ("GET", "/v1/tags/", ""),
    ("GET", "/v1/decode/1169786042799259000?layout=leaf", ""),
    ("GET", "/v1/layouts", ""),
    ("GET", "/v1/tags", ""),
    ("GET", "/metrics", ""),
    ("POST", "/v1/tags", r#"{"tag":"invoice/1"}"#),
    ("PATCH", "/v1/tags/order", r#"{"raise_to":"5"}"#),
    ("PATCH", "/v1/tags/invoice", r#"{"raise_to":"5"}"#),
];

fn call(client: &Client, (method, path, body): (&str, &str, &str)) -> anyhow::Result<Answer> {
    if body.is_empty() && method == "GET" {
        return client.get(path);
    }
    client.send(method, path, "application/json", body)
}

#[test]
fn every_route_but_health_wants_a_token() -> anyhow::Result<()> {
    let server = guarded(&[])?;
    for client in [
        server.client(),
        server.client().with_token("a-token-that-nobody-has"),
        server.client().with_token(&ADMIN[1..]),
        server.client().with_token(""),
        server.client().with("authorization", ADMIN),
        server.client().with("authorization", &format!("Basic {ADMIN}")),
        server.client().with("x-token", ADMIN),
    ] {
        for route in ROUTES {
            let answer = call(&client, route)?;
            assert_eq!((answer.status, answer.problem()?.as_str()), (401, "unauthorized"), "{route:?}: {answer:?}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
        let answer = client.get(&format!("{ORDER}?token={ADMIN}"))?;
        assert_eq!(answer.status, 401, "the query is no place for a token here");
        for path in ["/health/live", "/health/ready"] {
            assert_eq!(client.get(path)?.status, 200);
        }
    }
    let tags = server.client().with_token(ADMIN).get("/v1/tags")?.json()?;
    assert_eq!(tags, json!({ "tags": [] }), "nothing was created by the way");
    Ok(())
}

#[test]
fn a_refused_body_does_not_cost_the_connection() -> anyhow::Result<()> {
    let server = guarded(&["--body-max-bytes", "1000"])?;
    let mut connection = BufReader::new(server.connect()?);
    let head = |length: usize, more: &str| {
        format!("POST /v1/tags HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n{more}\r\n")
    };
    // The body comes when the request was refused already.
    for _ in 0..20 {
        connection.get_mut().write_all(head(14, "").as_bytes())?;
        thread::sleep(Duration::from_millis(5));
        connection.get_mut().write_all(br#"{"tag":"order"}"#.get(..14).unwrap())?;
        let (head, _) = read_answer(&mut connection)?;
        assert!(head.starts_with("HTTP/1.1 401") && !head.contains("connection: close"), "{head}");
    }
    // One that is too large, or that waits to be asked for, is not read: the answer says that it is the last.
    for (length, more, status) in
        [(100_000, "", 413), (1_000_000_000, "expect: 100-continue\r\n", 413), (14, "expect: 100-continue\r\n", 401)]
    {
        let mut connection = BufReader::new(server.connect()?);
        connection.get_mut().write_all(head(length, more).as_bytes())?;
        if more.is_empty() {
            connection.get_mut().write_all(&[b' '; 2_000])?;
        }
        let (head, _) = read_answer(&mut connection)?;
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")) && head.contains("connection: close"), "{head}");
    }
    Ok(())
}

#[test]
fn a_token_is_good_for_its_scope() -> anyhow::Result<()> {
    let server = guarded(&[])?;
    let (admin, reader) = (server.client().with_token(ADMIN), server.client().with_token(READER));
    assert_eq!(admin.send_json("POST", "/v1/tags", &json!({ "tag": "invoice" }))?.status, 201);
    for route in ROUTES {
        let answer = call(&reader, route)?;
        let expected = match route {
            ("PATCH", ..) | ("POST", "/v1/tags", _) => 403,
            (_, "/v1/sequences//ids" | "/v1/tags/", _) => 400,
            _ => 200,
        };
        assert_eq!(answer.status, expected, "{route:?}: {answer:?}");
        if expected == 403 {
            assert_eq!(answer.problem()?, "forbidden");
            assert!(answer.body.contains("admin"), "{answer:?}");
        }
        let answer = call(&admin, route)?;
        assert!(matches!(answer.status, 200 | 201) || expected == 400, "{route:?}: {answer:?}");
    }
    Ok(())
}

#[test]
fn a_token_may_be_bound_to_tags() -> anyhow::Result<()> {
    let server = guarded(&[])?;
    let (bound, ruler) = (server.client().with_token(BOUND), server.client().with_token(BOUND_ADMIN));
    let status = |client: &Client, path: &str| -> anyhow::Result<u16> { Ok(client.get(path)?.status) };
    for tag in ["order", "invoice", "invoices", "invoice%2F2026"] {
        assert_eq!(status(&bound, &format!("/v1/sequences/{tag}/ids"))?, 200, "{tag}");
        assert_eq!(status(&bound, &format!("/v1/tags/{tag}"))?, 200, "{tag}");
    }
    for tag in ["orders", "Order", "invoic", "%6Frders", "order%20"] {
        let answer = bound.get(&format!("/v1/sequences/{tag}/ids"))?;
        assert_eq!((answer.status, answer.problem()?.as_str()), (403, "forbidden"), "{tag}: {answer:?}");
        assert_eq!(status(&bound, &format!("/v1/tags/{tag}"))?, 403, "{tag}");
    }
    assert_eq!(status(&bound, "/v1/sequences/%6Frder/ids")?, 200, "the name counts, not how it is written");
    // Snowflakes by their names.
    assert_eq!(status(&bound, "/v1/snowflakes/default/ids")?, 200);
    assert_eq!(status(&ruler, "/v1/snowflakes/default/ids")?, 403);
    // What tells of all tags is not for it; what belongs to none is.
    for client in [&bound, &ruler] {
        assert_eq!(status(client, "/v1/tags")?, 403);
        assert_eq!(status(client, "/metrics")?, 403);
        assert_eq!(status(client, "/v1/layouts")?, 200);
    }
    let create =
        |tag: &str| -> anyhow::Result<u16> { Ok(ruler.send_json("POST", "/v1/tags", &json!({ "tag": tag }))?.status) };
    assert_eq!((create("invoice/new")?, create("receipt")?), (201, 403));
    let raise = |tag: &str| -> anyhow::Result<u16> {
        Ok(ruler.send_json("PATCH", &format!("/v1/tags/{tag}"), &json!({ "raise_to": 100_000 }))?.status)
    };
    assert_eq!((raise("invoice")?, raise("order")?), (200, 403));
    let log = server.log()?;
    for line in ["a tag was created tag=\"invoice/new\" by=\"bound-admin\"", "a tag was changed tag=\"invoice\""] {
        assert!(log.contains(line), "no {line:?} in {log}");
    }
    let all = server.client().with_token(ADMIN).get("/v1/tags")?.json()?;
    let all: Vec<_> = all["tags"].as_array().context("no list")?.iter().map(|tag| tag["tag"].clone()).collect();
    assert_eq!(all, ["invoice", "invoice/2026", "invoice/new", "invoices", "order"]);
    Ok(())
}

#[test]
fn tokens_are_read_again_on_sighup_and_a_bad_file_changes_nothing() -> anyhow::Result<()> {
    let server = guarded(&[])?;
    let file = server.directory().join("tokens.toml");
    let status = |token: &str| -> anyhow::Result<u16> { Ok(server.client().with_token(token).get(ORDER)?.status) };
    assert_eq!((status(READER)?, status("another-token-of-the-operator")?), (200, 401));
    std::fs::write(&file, token_file().replace(ADMIN, "another-token-of-the-operator"))?;
    server.signal(libc::SIGHUP)?;
    server.wait_for_log("was read again", 1)?;
    assert_eq!((status("another-token-of-the-operator")?, status(ADMIN)?, status(READER)?), (200, 401, 200));
    for bad in ["[[tokens]]\nname = \"x\"\ntoken = \"swordfish-swordfish", ""] {
        std::fs::write(&file, bad)?;
        server.signal(libc::SIGHUP)?;
        server.wait_for_log("the tokens stay as they were", 1 + usize::from(bad.is_empty()))?;
        assert_eq!((status("another-token-of-the-operator")?, status(ADMIN)?), (200, 401));
    }
    std::fs::remove_file(&file)?;
    server.signal(libc::SIGHUP)?;
    server.wait_for_log("the tokens stay as they were", 3)?;
    assert_eq!(status("another-token-of-the-operator")?, 200);
    let log = server.log()?;
    assert!(!log.contains("swordfish"), "{log}");
    assert!(log.contains("ERROR") && log.contains("tokens.toml"), "{log}");
    Ok(())
}

#[test]
fn a_probe_ends_as_the_server_is() -> anyhow::Result<()> {
    let server = guarded(&[])?;
    let address = server.url().trim_start_matches("http://").to_owned();
    let (_, port) = address.rsplit_once(':').context("no port")?;
    let directory = server.directory();
    let health = |arguments: &[&str], environment: &[(&str, &str)]| {
        let ran = run_with(directory, [&["health"], arguments].concat(), environment)?;
        anyhow::Ok((ran.code, format!("{}{}", ran.stdout, ran.stderr)))
    };
    let ready = (Some(0), "ready\n".to_owned());
    assert_eq!(health(&[&address], &[])?, ready);
    let everywhere = format!("0.0.0.0:{port}");
    assert_eq!(health(&[], &[("UNALIKE_LISTEN", &everywhere)])?, ready, "without a token, by the configuration");
    assert_eq!(health(&[&address, "--live"], &[])?, (Some(0), "live\n".to_owned()));
    assert_eq!(health(&[&address, "--tag", "订单"], &[])?, ready);
    assert_eq!(health(&[&address, "--snowflake", "default"], &[])?, ready);
    fails(
        directory,
        &["health", &address, "--snowflake", "none"],
        1,
        &["answers 404 to /health/ready?snowflake=none: "],
    );
    let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
    let silent_address = silent.local_addr()?.to_string();
    for place in [silent_address.as_str(), "nowhere.invalid:80"] {
        fails(directory, &["health", place], 1, &[&format!("no server answers at {place}: ")]);
    }
    fails(directory, &["health", "nowhere"], 1, &["\"nowhere\", it must be HOST:PORT"]);
    let _locked = server.lock_store()?;
    let began = Instant::now();
    loop {
        let (code, said) = health(&[&address], &[])?;
        if code == Some(1) {
            assert!(said.contains("answers 503 to /health/ready: "), "{said}");
            break;
        }
        ensure!(began.elapsed() < PATIENCE, "the server stays ready: {said}");
    }
    assert_eq!(health(&[&address, "--live"], &[])?.0, Some(0));
    assert_eq!(health(&[&address, "--snowflake", "default"], &[])?, ready);
    fails(directory, &["health", &address, "--tag", "order"], 1, &["answers 503 to /health/ready?tag=order: "]);
    Ok(())
}

#[test]
fn a_token_is_made_by_a_command_and_refused_once_it_has_expired() -> anyhow::Result<()> {
    let server = guarded(&[])?;
    let directory = server.directory();
    let made = run(directory, ["tokens", "new", "shop", "--scope", "read", "--tags", "order,invoice*", "--days", "7"])?;
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let token = made.stderr.trim_end().lines().next_back().context("no token")?;
    assert!(token.starts_with("unalike_") && !made.stdout.contains(token), "{}{}", made.stdout, made.stderr);
    let file = directory.join("tokens.toml");
    let expired = "\n[[tokens]]\nname = \"old\"\ntoken = \"the-token-of-another-year\"\nscope = \"read\"\n\
                   expires = 2026-01-01T01:00:00+01:00\n";
    std::fs::write(&file, format!("{}{expired}{}", token_file(), made.stdout))?;
    server.signal(libc::SIGHUP)?;
    server.wait_for_log("was read again", 1)?;
    let answer = |token: &str, path: &str| server.client().with_token(token).get(path);
    assert_eq!(answer(token, ORDER)?.status, 200);
    assert_eq!(answer(token, "/v1/sequences/receipt/ids")?.status, 403);
    let refused = answer("the-token-of-another-year", ORDER)?;
    assert_eq!(refused.status, 401);
    let detail = refused.json()?["detail"].to_string();
    assert!(detail.contains("expired at 2026-01-01T00:00:00"), "{detail}");
    let log = server.log()?;
    for line in ["the token \"old\" expired at 2026-01-01T00:00:00", "the token \"shop\" expires at "] {
        assert!(log.contains(line), "no {line:?} in {log}");
    }
    assert!(!log.contains(token) && !log.contains("another-year"), "{log}");
    let metrics = server.client().with_token(ADMIN).get("/metrics")?.body;
    assert!(metrics.contains("unalike_tokens_refused_total{reason=\"expired\"} 1"), "{metrics}");
    fails(directory, &["tokens", "new", "shop"], 2, &["--scope"]);
    fails(directory, &["tokens", "new", "shop", "--scope", "all"], 2, &["[possible values: read, lease, admin]"]);
    fails(directory, &["tokens", "new", "shop", "--scope", "read", "--days", "0"], 2, &["from 1 to 36500"]);
    fails(directory, &["tokens", "new", "shop", "--scope", "read", "--tags", "*"], 1, &["leave tags out"]);
    fails(directory, &["tokens", "new", "", "--scope", "read"], 1, &["1 to 64 bytes"]);
    Ok(())
}

/// Nobody ever writes to the pipe that takes the place of the file.
#[test]
fn a_token_file_that_says_nothing_holds_up_neither_requests_nor_the_end() -> anyhow::Result<()> {
    let mut server = guarded(&[])?;
    let file = server.directory().join("tokens.toml");
    let status = |server: &Server, token: &str| -> anyhow::Result<u16> {
        Ok(server.client().with_token(token).get(ORDER)?.status)
    };
    for round in 1..=2 {
        std::fs::remove_file(&file)?;
        let made = Command::new("mkfifo").arg(&file).status()?;
        ensure!(made.success(), "mkfifo: {made}");
        server.signal(libc::SIGHUP)?;
        server.wait_for_log("no regular file", round)?;
        for _ in 0..20 {
            assert_eq!(status(&server, READER)?, 200);
        }
        if round == 1 {
            std::fs::remove_file(&file)?;
            std::fs::write(&file, token_file().replace(ADMIN, "another-token-of-the-operator"))?;
            server.signal(libc::SIGHUP)?;
            server.wait_for_log("was read again", 1)?;
            assert_eq!((status(&server, "another-token-of-the-operator")?, status(&server, ADMIN)?), (200, 401));
        }
    }
    assert_eq!(server.sigterm()?.code(), Some(0), "{}", server.log()?);
    Ok(())
}

/// What a shell makes of `--tokens <(..)`: it is read once.
#[test]
fn a_pipe_is_a_token_file_too_and_is_read_at_the_start_only() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    let file = directory.path().join("tokens.toml");
    let made = Command::new("mkfifo").arg(&file).status()?;
    ensure!(made.success(), "mkfifo: {made}");
    let writing = thread::spawn({
        let file = file.clone();
        move || std::fs::write(file, token_file())
    });
    let server = Server::start_in(directory, ["--tokens", "tokens.toml"].map(str::to_owned).to_vec())?;
    writing.join().expect("it writes")?;
    server.signal(libc::SIGHUP)?;
    server.wait_for_log("the tokens stay as they were", 1)?;
    assert_eq!(server.client().with_token(READER).get(ORDER)?.status, 200);
    Ok(())
}

#[test]
fn a_bad_token_file_is_named_and_its_secret_is_not() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    let at = directory.path();
    for (text, named) in [
        ("[[tokens]]\nname = \"a\"\ntoken = \"swordfish-swordfish\nscope = \"read\"", "line 3"),
        ("[[tokens]]\nname = \"a\"\ntoken = \"swordfish\"\nscope = \"read\"", "16"),
        ("[[tokens]]\nname = \"a\"\ntoken = \"swordfish-swordfish\"\nscope = \"swordfish\"", "scope"),
        ("[[tokens]]\nname = \"a\"\ntoken = \"swordfish-swordfish\"\nscope = \"read\"\ntag = \"a\"", "\"tag\""),
        ("", "no token"),
    ] {
        std::fs::write(at.join("tokens.toml"), text)?;
        for command in [&["serve", "--tokens", "tokens.toml"][..], &["config", "check"]] {
            let ran = run_with(at, command.iter().copied(), &[("UNALIKE_TOKENS", "tokens.toml")])?;
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
            assert!(ran.stderr.contains("tokens.toml") && ran.stderr.contains(named), "{named}: {ran:?}");
            assert!(!ran.stderr.contains("swordfish"), "{ran:?}");
        }
    }
    let ran = run(at, ["serve", "--tokens", "missing.toml"])?;
    assert!(ran.code == Some(1) && ran.stderr.contains("missing.toml"), "{ran:?}");
    assert!(!at.join("unalike.sqlite").exists());
    Ok(())
}

#[test]
fn a_token_file_that_everyone_can_read_is_warned_of() -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    for (mode, warned) in [(0o644, true), (0o640, false), (0o600, false)] {
        let directory = Arc::new(TempDir::new()?);
        let file = directory.path().join("tokens.toml");
        std::fs::write(&file, token_file())?;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode))?;
        let server = Server::start_in(directory, ["--tokens", "tokens.toml"].map(str::to_owned).to_vec())?;
        assert_eq!(server.log()?.contains("can be read by every user"), warned, "{mode:o}: {}", server.log()?);
    }
    Ok(())
}

#[test]
fn an_open_address_needs_tokens_or_the_word_that_it_is_meant() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    let at = directory.path();
    for listen in ["0.0.0.0:0", "[::]:0", "[::ffff:0.0.0.0]:0"] {
        let ran = run(at, ["serve", "--listen", listen])?;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
        for way in ["--tokens FILE", "--insecure-no-auth"] {
            assert!(ran.stderr.contains(way), "{ran:?}");
        }
    }
    assert!(!at.join("unalike.sqlite").exists());
    std::fs::write(at.join("tokens.toml"), token_file())?;
    for arguments in [&["--insecure-no-auth"][..], &["--insecure-no-auth=true"], &["--tokens", "tokens.toml"]] {
        let mut process = Command::new(binary()?)
            .current_dir(at)
            .args(["serve", "--listen", "0.0.0.0:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut line = String::new();
        let ready = BufReader::new(process.stdout.take().context("no output")?).read_line(&mut line);
        process.kill()?;
        process.wait()?;
        assert!(ready.is_ok() && line.starts_with("listening on http://0.0.0.0:"), "{arguments:?}: {line}");
    }
    for loopback in ["127.0.0.2:0", "[::ffff:127.0.0.1]:0"] {
        let ran = run_with(at, ["config", "check"], &[("UNALIKE_LISTEN", loopback)])?;
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    Ok(())
}

#[test]
fn no_secret_reaches_the_log() -> anyhow::Result<()> {
    for format in ["text", "json"] {
        let mut server = guarded(&["--log", "trace", "--log-format", format])?;
        for token in [ADMIN, READER, BOUND, BOUND_ADMIN, "a-wrong-token-swordfish"] {
            for client in [
                server.client().with_token(token),
                server.client().with("authorization", token),
                server.client().with("authorization", &format!("Basic {token}")),
                server.client().with("cookie", &format!("token={token}")),
                server.client().with("x-api-key", token),
                server.client().with("referer", &format!("http://x/?token={token}")),
            ] {
                for route in ROUTES {
                    call(&client, route)?;
                }
                for path in [
                    format!("{ORDER}?token={token}"),
                    format!("{ORDER}?count={token}"),
                    format!("/v1/tags?after={token}"),
                    format!("/tinyid/id/nextIdSimple?bizType=order&token={token}"),
                    format!("/{token}"),
                ] {
                    client.get(&path)?;
                }
                if token != "a-wrong-token-swordfish" {
                    let answer = client.clone().with("x-request-id", token).get(ORDER)?;
                    assert_ne!(answer.header("x-request-id"), Some(token));
                }
                client.send(
                    "POST",
                    "/v1/tags",
                    "application/json",
                    &format!("{{\"tag\":\"x\",\"token\":\"{token}\"}}"),
                )?;
            }
        }
        let mut raw = server.connect()?;
        raw.write_all(format!("GET /?token={ADMIN} HTTP/1.1\r\nauthorization {ADMIN}\r\n\r\n").as_bytes())?;
        let _ = raw.read_to_end(&mut Vec::new());
        server.sigterm()?;
        let log = server.log()?;
        for secret in [ADMIN, READER, BOUND, BOUND_ADMIN, "swordfish"] {
            let line = log.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "in the {format} log");
        }
        assert!(log.contains("/v1/sequences/{tag}/ids"), "the requests were logged: {log}");
    }
    Ok(())
}

#[test]
fn a_request_has_an_id_in_its_answer_its_problem_and_its_log_lines() -> anyhow::Result<()> {
    let mut server = Server::start_with(["--log", "unalike=debug", "--log-format", "json"])?;
    let given = "req-7.a:b=c";
    let answer = server.client().with("x-request-id", given).get(ORDER)?;
    assert_eq!((answer.status, answer.header("x-request-id")), (200, Some(given)));
    let answer = server.client().with("x-request-id", given).get("/v1/tags/nobody")?;
    assert_eq!((answer.header("x-request-id"), &answer.json()?["request_id"]), (Some(given), &json!(given)));
    let long = "x".repeat(129);
    let mut made = Vec::new();
    for bad in ["", "a b", "a\tb", "\"", long.as_str()] {
        let answer = server.client().with("x-request-id", bad).get("/v1/tags/nobody")?;
        let id = answer.header("x-request-id").context("no id")?.to_owned();
        assert!(id.len() == 16 && id != bad, "{id}");
        assert_eq!(answer.json()?["request_id"], json!(id));
        made.push(id);
    }
    made.sort();
    made.dedup();
    assert_eq!(made.len(), 5);
    server.sigterm()?;
    let log = server.log()?;
    let lines: Vec<Value> = log.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let of_given: Vec<_> = lines
        .iter()
        .filter(|line| line["request_id"] == given)
        .filter(|line| line["message"] == "answered")
        .map(|line| (&line["fields"]["route"], &line["fields"]["status"], &line["fields"]["method"], &line["level"]))
        .collect();
    let (get, debug) = (json!("GET"), json!("DEBUG"));
    assert_eq!(
        of_given,
        [
            (&json!("/v1/sequences/{tag}/ids"), &json!(200), &get, &debug),
            (&json!("/v1/tags/{tag}"), &json!(404), &get, &debug)
        ],
        "{log}"
    );
    assert!(lines.iter().all(|line| line["timestamp"].is_string() && line["target"].is_string()));
    assert!(lines.iter().any(|line| line["message"] == "ready" && line.get("request_id").is_none()));
    Ok(())
}

#[test]
fn a_failure_is_told_when_it_begins_and_when_it_is_over_and_not_with_each_request() -> anyhow::Result<()> {
    let server = Server::start()?;
    assert_eq!(server.get(ORDER)?.ids()?, [1]);
    let lock = server.lock_store()?;
    let client = server.client();
    let mut failed = 0;
    while failed < 2_000 {
        assert_eq!(client.get("/v1/sequences/new/ids")?.status, 503);
        failed += 1;
    }
    let log = server.log()?;
    let lines: Vec<_> = log.lines().filter(|line| line.contains("store-unavailable")).collect();
    assert!((1..=5).contains(&lines.len()), "{} lines: {log}", lines.len());
    let error = lines[0].split_once("error=").context("no error")?.1;
    for words in error.split(": ").filter(|words| words.len() > 20) {
        assert_eq!(lines[0].matches(words).count(), 1, "twice: {}", lines[0]);
    }
    drop(lock);
    while client.get("/v1/sequences/new/ids")?.status != 200 {
        failed += 1;
    }
    server.wait_for_log("no request fails so any more", 1)?;
    assert!(server.log()?.contains(&format!("failed={failed} ")), "{}", server.log()?);
    assert!(server.log()?.lines().count() < 30, "{}", server.log()?);
    assert!(!server.log()?.contains("sqlx::query"), "{}", server.log()?);
    Ok(())
}

#[test]
fn what_the_store_refused_is_found_in_the_log_by_the_id_of_the_answer() -> anyhow::Result<()> {
    for format in ["text", "json"] {
        let server = Server::start_with(["--log-format", format])?;
        assert_eq!(server.get(ORDER)?.ids()?, [1]);
        let _lock = server.lock_store()?;
        let answer = server.get("/v1/sequences/new/ids")?;
        assert_eq!(answer.status, 503);
        let id = answer.header("x-request-id").context("no id")?.to_owned();
        let log = server.log()?;
        assert!(log.lines().any(|line| line.contains("WARN") && line.contains(&id)), "{id}: {log}");
    }
    Ok(())
}

/// Reads until the server closes the connection.
fn read_to_end(mut connection: &TcpStream) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    connection.read_to_end(&mut bytes)?;
    Ok(String::from_utf8(bytes)?)
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")
}

/// Reads one answer with its body of JSON.
fn read_answer(connection: &mut BufReader<TcpStream>) -> anyhow::Result<(String, Value)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        ensure!(connection.read_line(&mut head)? > 0, "the connection was closed after {head:?}");
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).context("no length")?;
    let mut body = vec![0; length.parse()?];
    connection.read_exact(&mut body)?;
    Ok((head, serde_json::from_slice(&body)?))
}

#[test]
fn pipelined_requests_are_answered_in_order() -> anyhow::Result<()> {
    let server = Server::start()?;
    let mut connection = BufReader::new(server.connect()?);
    connection.get_mut().write_all(get(ORDER).repeat(500).as_bytes())?;
    for id in 1..=500 {
        let (head, body) = read_answer(&mut connection)?;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert_eq!(body["ids"], json!([id.to_string()]));
    }
    Ok(())
}

#[test]
fn a_long_url_is_refused() -> anyhow::Result<()> {
    let server = Server::start_with(["--url-max-bytes", "300"])?;
    let fits = format!("/v1/tags/{}", "x".repeat(291));
    assert_eq!(server.get(&fits)?.problem()?, "tag-invalid");
    for long in [format!("{fits}x"), format!("{ORDER}?{}", "count=1&".repeat(50))] {
        let answer = server.get(&long)?;
        assert_eq!((answer.status, answer.problem()?.as_str()), (414, "url-too-long"), "{answer:?}");
        assert_eq!(answer.json()?["url_max_bytes"], 300);
    }
    Ok(())
}

#[test]
fn a_large_head_is_refused() -> anyhow::Result<()> {
    let server = Server::start_with(["--head-max-bytes", "2000", "--headers-max", "10"])?;
    let with = |headers: &str| format!("GET {ORDER} HTTP/1.1\r\nhost: localhost\r\n{headers}connection: close\r\n\r\n");
    for (headers, status) in [
        ("a: b\r\n".repeat(8), "HTTP/1.1 200"),
        ("a: b\r\n".repeat(9), "HTTP/1.1 431"),
        (format!("a: {}\r\n", "b".repeat(1_900)), "HTTP/1.1 200"),
        (format!("a: {}\r\n", "b".repeat(2_000)), "HTTP/1.1 431"),
        (format!("a: {}\r\n", "b".repeat(7_000)), "HTTP/1.1 431"),
    ] {
        let mut connection = server.connect()?;
        connection.write_all(with(&headers).as_bytes())?;
        let answer = read_to_end(&connection)?;
        assert!(answer.starts_with(status), "{status}: {answer}");
        let says_why = answer.contains("\"type\":\"urn:unalike:problem:head-too-large\"");
        assert_eq!(says_why, status.ends_with("431"), "{answer}");
    }
    assert_eq!(server.get(ORDER)?.ids()?, [3], "those that were refused cost no id");
    Ok(())
}

#[test]
fn a_head_that_comes_too_slowly_is_answered_and_closed() -> anyhow::Result<()> {
    let server = Server::start_with(["--head-timeout-ms", "300"])?;
    // Nothing at all: closed without a word. A byte now and then does not help.
    let silent = server.connect()?;
    let mut slow = server.connect()?;
    for byte in format!("GET {ORDER} HTTP/1.1\r\nx: {}", "y".repeat(1_000_000)).bytes() {
        if slow.write_all(&[byte]).is_err() {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(read_to_end(&silent)?, "");
    // The first head after another request has its own time.
    let mut second = BufReader::new(server.connect()?);
    second.get_mut().write_all(get(ORDER).as_bytes())?;
    read_answer(&mut second)?;
    second.get_mut().write_all(b"GET /v1/")?;
    let (head, body) = read_answer(&mut second)?;
    assert!(head.starts_with("HTTP/1.1 408") && head.contains("connection: close"), "{head}");
    assert_eq!(body["type"], "urn:unalike:problem:head-timeout");
    assert_eq!(second.read(&mut [0])?, 0);
    assert_eq!(server.get(ORDER)?.status, 200);
    Ok(())
}

#[test]
fn idle_connections_are_closed_and_busy_ones_are_not() -> anyhow::Result<()> {
    const IDLE: Duration = Duration::from_millis(300);
    let server = Server::start_with(["--idle-timeout-ms", "300", "--head-timeout-ms", "60000"])?;
    let mut idle = BufReader::new(server.connect()?);
    let mut busy = BufReader::new(server.connect()?);
    idle.get_mut().write_all(get(ORDER).as_bytes())?;
    read_answer(&mut idle)?;
    // A request now and then keeps a connection open, for longer than the limit.
    let (begun, mut opened, mut asked, mut longest) = (Instant::now(), Instant::now(), Instant::now(), Duration::ZERO);
    while longest < 3 * IDLE {
        ensure!(begun.elapsed() < PATIENCE, "no connection is open for {:?}, and {longest:?} is the longest", 3 * IDLE);
        let last_asked = std::mem::replace(&mut asked, Instant::now());
        let sent = busy.get_mut().write_all(get(ORDER).as_bytes()).map_err(anyhow::Error::from);
        if let Err(error) = sent.and_then(|()| read_answer(&mut busy)) {
            // On a busy machine this thread may itself have been idle for so long.
            ensure!(last_asked.elapsed() >= IDLE, "it is closed before its time: {error:#}");
            busy = BufReader::new(server.connect()?);
            (opened, asked) = (Instant::now(), Instant::now());
        }
        longest = longest.max(opened.elapsed());
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(idle.read(&mut [0])?, 0, "closed without a word");
    Ok(())
}

#[test]
fn a_connection_that_gave_its_buffers_back_is_closed_in_time() -> anyhow::Result<()> {
    let server = Server::start_with([
        "--idle-timeout-ms",
        "2000",
        "--head-timeout-ms",
        "5000",
        "--log",
        "unalike::http::connections=trace",
    ])?;
    let mut idle = BufReader::new(server.connect()?);
    for times in 1..=2 {
        idle.get_mut().write_all(get(ORDER).as_bytes())?;
        read_answer(&mut idle)?;
        server.wait_for_log("is parked", times)?;
    }
    // Half a request now has the time of a head, which is longer.
    let neighbour = &mut BufReader::new(server.connect()?);
    neighbour.get_mut().write_all(get(ORDER).as_bytes())?;
    idle.get_mut().write_all(&get(ORDER).as_bytes()[..9])?;
    read_answer(neighbour)?;
    assert_eq!(neighbour.read(&mut [0])?, 0, "an idle one is closed meanwhile");
    idle.get_mut().write_all(&get(ORDER).as_bytes()[9..])?;
    read_answer(&mut idle)?;
    assert_eq!(idle.read(&mut [0])?, 0);
    Ok(())
}

#[test]
fn a_client_that_does_not_read_is_let_go() -> anyhow::Result<()> {
    let server = Server::start_with(["--idle-timeout-ms", "300", "--log", "unalike=debug"])?;
    let mut connection = server.connect()?;
    // More than the buffers between the two hold.
    connection.write_all(get(&format!("{ORDER}?count=10000")).repeat(200).as_bytes())?;
    server.wait_for_log("phase=Stalled", 1)?;
    assert_eq!(server.get(ORDER)?.status, 200);
    Ok(())
}

#[test]
fn a_connection_too_many_is_told_to_come_back() -> anyhow::Result<()> {
    let server = Server::start_with(["--connections-max", "3"])?;
    let mut taken = Vec::new();
    for _ in 0..3 {
        let mut connection = BufReader::new(server.connect()?);
        connection.get_mut().write_all(get(ORDER).as_bytes())?;
        read_answer(&mut connection)?;
        taken.push(connection);
    }
    for _ in 0..100 {
        let mut refused = BufReader::new(server.connect()?);
        refused.get_mut().write_all(get(ORDER).as_bytes())?;
        let (head, body) = read_answer(&mut refused)?;
        assert!(head.starts_with("HTTP/1.1 503"), "{head}");
        assert!(head.contains("retry-after: 1\r\n") && head.contains("connection: close\r\n"), "{head}");
        assert_eq!(body["type"], "urn:unalike:problem:connections-max");
        assert_eq!(refused.read(&mut [0])?, 0);
    }
    // The others go on, and a place that gets free is taken.
    for connection in &mut taken {
        connection.get_mut().write_all(get(ORDER).as_bytes())?;
        assert!(read_answer(connection)?.0.starts_with("HTTP/1.1 200"));
    }
    taken.pop();
    while server.get("/health/live")?.status != 200 {}
    assert_eq!(server.log()?.matches("connections_max (3) was reached").count(), 1, "said once: {}", server.log()?);
    Ok(())
}

/// The processor time that a process has used, in hundredths of a second.
fn processor_ticks(process: u32) -> anyhow::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields: Vec<_> = stat.rsplit_once(')').context("no name")?.1.split_whitespace().collect();
    Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
}

/// How many files a process may open; gives what it was.
fn limit_files(process: u32, limit: Option<u64>) -> anyhow::Result<libc::rlimit> {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let process = libc::pid_t::try_from(process)?;
    #[expect(unsafe_code, reason = "both limits outlive the call")]
    let done = unsafe { libc::prlimit(process, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut before) };
    ensure!(done == 0, "no limit: {}", std::io::Error::last_os_error());
    let new = libc::rlimit { rlim_cur: limit.unwrap_or(before.rlim_max), rlim_max: before.rlim_max };
    #[expect(unsafe_code, reason = "both limits outlive the call")]
    let done = unsafe { libc::prlimit(process, libc::RLIMIT_NOFILE, &raw const new, std::ptr::null_mut()) };
    ensure!(done == 0, "the limit stays: {}", std::io::Error::last_os_error());
    Ok(before)
}

#[test]
fn a_lack_of_files_neither_ends_the_server_nor_keeps_it_busy() -> anyhow::Result<()> {
    let server = Server::start()?;
    let mut kept = BufReader::new(server.connect()?);
    kept.get_mut().write_all(get(ORDER).as_bytes())?;
    read_answer(&mut kept)?;
    let files = std::fs::read_dir(format!("/proc/{}/fd", server.process_id()))?.count();
    limit_files(server.process_id(), Some(files as u64 + 4))?;
    let waiting: Vec<_> = (0..50).map(|_| server.connect()).collect::<Result<_, _>>()?;
    server.wait_for_log("no connection could be accepted", 1)?;
    let (begun, before) = (Instant::now(), processor_ticks(server.process_id())?);
    while begun.elapsed() < Duration::from_secs(1) {
        // Who is there already is served.
        kept.get_mut().write_all(get(ORDER).as_bytes())?;
        assert!(read_answer(&mut kept)?.0.starts_with("HTTP/1.1 200"));
        thread::sleep(Duration::from_millis(50));
    }
    let used = processor_ticks(server.process_id())? - before;
    assert!(used < 30, "it used {used} hundredths of a second while it could do nothing");
    drop(waiting);
    assert_eq!(server.get(ORDER)?.status, 200);
    assert_eq!(server.log()?.matches("no connection could be accepted").count(), 1, "{}", server.log()?);
    Ok(())
}

#[test]
fn the_limit_of_files_is_raised_and_bounds_the_connections() -> anyhow::Result<()> {
    let hard = limit_files(std::process::id(), None)?.rlim_max;
    let server = Server::start_with(["--connections-max", "10"])?;
    assert_eq!(limit_files(server.process_id(), None)?.rlim_cur, hard);
    assert!(!server.log()?.contains("LimitNOFILE"), "{}", server.log()?);
    // What nobody asked for is no news.
    let server = Server::start()?;
    assert_eq!(server.log()?.contains("LimitNOFILE"), hard < 1_000, "{}", server.log()?);
    let all = (hard - 1).min(1_000_000).to_string();
    let server = Server::start_with(["--connections-max", &all])?;
    let told = format!("connections are possible instead of {all}");
    let log = server.log()?;
    assert_eq!(log.lines().any(|line| line.contains("WARN") && line.contains(&told)), hard <= 1_000_000, "{log}");
    Ok(())
}

/// Resident memory of a process, in KiB.
fn memory_kib(process: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no memory")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

#[test]
fn ten_thousand_idle_connections_fit() -> anyhow::Result<()> {
    const BATCHES: usize = 10;
    const BATCH: usize = 1_000;
    limit_files(std::process::id(), None)?;
    let mut server = Server::start_with(["--log", "warn,unalike::http::connections=trace"])?;
    assert_eq!(server.get(ORDER)?.status, 200);
    let before = memory_kib(server.process_id())?;
    let mut idle = Vec::with_capacity(BATCHES * BATCH);
    for batch in 1..=BATCHES {
        for _ in 0..BATCH {
            let mut connection = server.connect().context("raise the limit of open files: ulimit -n 12000")?;
            connection.write_all(get(ORDER).as_bytes())?;
            ensure!(connection.read(&mut [0; 512])? > 0, "no answer");
            idle.push(connection);
        }
        // Those that are idle for a while give their buffers back, for others to use.
        server.wait_for_log("is parked", batch * BATCH)?;
    }
    let each = (memory_kib(server.process_id())? - before) / (BATCHES * BATCH) as u64;
    assert!(each <= 10, "{each} KiB for each idle connection");
    // They are as good as before.
    for connection in idle.iter_mut().step_by(100) {
        connection.write_all(get(ORDER).as_bytes())?;
        ensure!(connection.read(&mut [0; 512])? > 0, "no answer");
    }
    assert_eq!(server.get(ORDER)?.ids()?, [(BATCHES * BATCH) as u64 + 102]);
    assert_eq!(server.sigterm()?.code(), Some(0), "they do not hold up the end");
    Ok(())
}

#[test]
fn a_thousand_who_ask_whether_it_is_ready_have_the_store_asked_once_a_second() -> anyhow::Result<()> {
    const CONNECTIONS: usize = 1_000;
    limit_files(std::process::id(), None)?;
    let redis = Redis::start(Persistence::Nothing)?;
    // Each time it is asked, it is written to.
    let writes = || {
        let stats = redis.cli(&["INFO", "commandstats"])?;
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_set:calls=")?.split(',').next());
        Ok::<u64, anyhow::Error>(calls.map_or(Ok(0), str::parse)?)
    };
    let store = redis.url(0, "");
    let server = Server::start_with(["--store", store.as_str(), "--backing", "sqlite://ids.sqlite"])?;
    let (begun, before) = (Instant::now(), writes()?);
    let mut asking = Vec::with_capacity(CONNECTIONS);
    for at in 0..CONNECTIONS {
        let mut connection = server.connect()?;
        connection.write_all(get("/health/ready").as_bytes())?;
        // Some do not wait for the answer.
        if at % 4 != 0 {
            asking.push(BufReader::new(connection));
        }
    }
    for connection in &mut asking {
        let (head, body) = read_answer(connection)?;
        assert!(head.starts_with("HTTP/1.1 200") && body == json!({ "status": "ready" }), "{head}{body}");
    }
    let (seconds, written) = (begun.elapsed().as_secs(), writes()? - before);
    assert!(written <= seconds + 2, "{written} writes in {seconds} s");
    // And it is asked anew.
    let written = writes()?;
    while writes()? == written {
        assert_eq!(server.get("/health/ready")?.status, 200);
    }
    Ok(())
}

#[test]
fn sigterm_drains_first() -> anyhow::Result<()> {
    let mut server = Server::start_with(["--drain-ms", "600000"])?;
    let client = server.client();
    let mut kept = BufReader::new(server.connect()?);
    kept.get_mut().write_all(get(ORDER).as_bytes())?;
    assert!(!read_answer(&mut kept)?.0.contains("connection: close"));
    assert_eq!(client.get("/health/ready")?.status, 200);
    server.signal(libc::SIGTERM)?;
    server.wait_for_log("ending", 1)?;
    for _ in 0..3 {
        let ready = client.get("/health/ready")?;
        assert_eq!((ready.status, ready.problem()?.as_str()), (503, "closing"), "{ready:?}");
        assert_eq!(client.get("/health/live")?.status, 200);
        // Old connections and new ones, each of them for the last time.
        assert_eq!(client.get(ORDER)?.status, 200);
        assert_eq!(server.client().get("/v1/snowflakes/default/ids")?.status, 200);
        kept.get_mut().write_all(get(ORDER).as_bytes())?;
        let (head, _) = read_answer(&mut kept)?;
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("connection: close"), "{head}");
        assert_eq!(kept.read(&mut [0])?, 0, "and it is closed");
        kept = BufReader::new(server.connect()?);
    }
    // A second signal ends it at once.
    server.signal(libc::SIGTERM)?;
    assert_eq!(server.wait()?.code(), Some(1));
    Ok(())
}

/// Asks on one connection until an answer says that it is the last; gives how many there were.
fn ask_until_the_last(mut connection: BufReader<TcpStream>, asked: &AtomicU64) -> anyhow::Result<u64> {
    for answers in 1.. {
        connection.get_mut().write_all(get(ORDER).as_bytes())?;
        asked.fetch_add(1, Ordering::Relaxed);
        let (head, _) = read_answer(&mut connection)?;
        ensure!(head.starts_with("HTTP/1.1 200"), "{head}");
        if head.contains("connection: close") {
            return Ok(answers);
        }
    }
    Ok(0)
}

#[test]
fn busy_clients_that_keep_their_connections_lose_no_request_when_it_ends() -> anyhow::Result<()> {
    const CLIENTS: u64 = 20;
    let mut server = Server::start_with(["--drain-ms", "1000"])?;
    let asked = AtomicU64::new(0);
    let answered = thread::scope(|scope| -> anyhow::Result<u64> {
        let clients = (0..CLIENTS).map(|_| {
            let connection = BufReader::new(server.connect()?);
            Ok(scope.spawn(|| ask_until_the_last(connection, &asked)))
        });
        let clients: Vec<_> = clients.collect::<anyhow::Result<_>>()?;
        while asked.load(Ordering::Relaxed) < 50 * CLIENTS {
            ensure!(!clients.iter().any(thread::ScopedJoinHandle::is_finished), "a client gave up");
            thread::sleep(Duration::from_micros(200));
        }
        server.signal(libc::SIGTERM)?;
        clients.into_iter().map(|client| client.join().expect("a client does not panic")).sum()
    })?;
    assert_eq!(answered, asked.load(Ordering::Relaxed));
    assert_eq!(server.wait()?.code(), Some(0));
    Ok(())
}

#[test]
fn who_has_just_come_when_it_ends_is_answered() -> anyhow::Result<()> {
    let mut server = Server::start_with(["--drain-ms", "300"])?;
    assert_eq!(server.get(ORDER)?.status, 200);
    server.signal(libc::SIGTERM)?;
    server.wait_for_log("ending", 1)?;
    // A connection after the other, up to the last that is accepted: each is served.
    let mut answered = 0;
    while let Ok(connection) = server.connect() {
        let mut connection = BufReader::new(connection);
        let served = connection
            .get_mut()
            .write_all(get(ORDER).as_bytes())
            .map_err(anyhow::Error::from)
            .and_then(|()| read_answer(&mut connection));
        let Ok((head, _)) = served else { break };
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("connection: close"), "{head}");
        answered += 1;
    }
    assert!(answered > 10, "{answered}");
    assert_eq!(server.wait()?.code(), Some(0));
    Ok(())
}

#[test]
fn a_server_whose_file_is_deleted_grants_nothing_and_is_not_ready() -> anyhow::Result<()> {
    let server = Server::start_with(["--store", "sqlite://ids.sqlite"])?;
    let client = server.client();
    assert_eq!(client.ids(ORDER)?, [1]);
    assert_eq!(client.get("/health/ready")?.status, 200);
    for file in ["ids.sqlite", "ids.sqlite-wal", "ids.sqlite-shm"] {
        std::fs::remove_file(server.directory().join(file))?;
    }
    let new = client.get("/v1/sequences/new/ids")?;
    assert!(new.status >= 500, "{new:?}");
    let started = Instant::now();
    while client.get("/health/ready")?.status < 500 {
        ensure!(started.elapsed() < PATIENCE, "it stays ready");
        thread::sleep(Duration::from_millis(10));
    }
    // Another program begins a new one beside it; this one still grants nothing.
    let ran = run(server.directory(), ["--store", "sqlite://ids.sqlite", "next", "order"])?;
    assert!(ran.stdout == "1\n" && ran.stderr.contains("made a new store"), "{ran:?}");
    let new = client.get("/v1/sequences/new/ids")?;
    assert!(new.status >= 500, "{new:?}");
    Ok(())
}

/// SQLite has one writer; what the tags have left is given back together, and one line says so.
#[test]
fn an_end_with_many_open_tags_is_one_line_and_loses_nothing() -> anyhow::Result<()> {
    const TAGS: usize = 300;
    let store = "sqlite://ids.sqlite";
    let mut server = Server::start_with(["--store", store, "--drain-ms", "0"])?;
    let client = server.client();
    for tag in 0..TAGS {
        assert_eq!(client.ids(&format!("/v1/sequences/tag{tag}/ids"))?, [1]);
    }
    server.sigterm()?;
    let log = server.log()?;
    let said: Vec<_> = log.lines().filter(|line| line.contains("gave back") || line.contains("give back")).collect();
    assert!(said.len() == 1 && said[0].contains(&format!("taken_back={TAGS}")), "{said:#?}");
    for tag in [0, TAGS - 1] {
        let next = run(server.directory(), ["--store", store, "next", &format!("tag{tag}")])?;
        assert_eq!(next.stdout, "2\n", "{next:?}");
    }
    Ok(())
}

#[test]
fn ctrl_c_does_not_drain() -> anyhow::Result<()> {
    let mut server = Server::start_with(["--drain-ms", "600000"])?;
    let _idle = server.connect()?;
    assert_eq!(server.get(ORDER)?.ids()?, [1]);
    server.signal(libc::SIGINT)?;
    assert_eq!(server.wait()?.code(), Some(0));
    Ok(())
}

#[test]
fn the_last_answer_of_a_connection_says_so() -> anyhow::Result<()> {
    let mut server =
        Server::start_with(["--drain-ms", "1", "--wait-max-ms", "60000", "--request-timeout-ms", "60000"])?;
    assert_eq!(server.get(ORDER)?.ids()?, [1]);
    let mut running = BufReader::new(server.connect()?);
    let mut idle = server.connect()?;
    let lock = server.lock_store()?;
    running.get_mut().write_all(get("/v1/sequences/new/ids").as_bytes())?;
    idle.write_all(get(ORDER).as_bytes())?;
    ensure!(idle.read(&mut [0; 512])? > 0, "no answer");
    server.signal(libc::SIGTERM)?;
    assert_eq!(read_to_end(&idle)?, "", "an idle connection is closed");
    // Nobody is accepted any more, and the request that runs gets its answer.
    while server.connect().is_ok() {}
    drop(lock);
    let (head, body) = read_answer(&mut running)?;
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("connection: close"), "{head}");
    assert_eq!(body["ids"], json!(["1"]));
    assert_eq!(running.read(&mut [0])?, 0);
    assert_eq!(server.wait()?.code(), Some(0));
    Ok(())
}

/// Asks until the server is gone; gives the ids that arrived.
fn ask(client: &Client, path: &str, answers: &AtomicU64, ending: &AtomicBool) -> anyhow::Result<Vec<u64>> {
    let mut ids = Vec::new();
    loop {
        match client.get_as(path, "text/plain") {
            Ok(answer) if answer.status == 200 => {
                for line in answer.body.lines() {
                    ids.push(line.parse()?);
                }
                answers.fetch_add(1, Ordering::Relaxed);
            }
            Ok(answer) if ending.load(Ordering::SeqCst) => ensure!(answer.status == 503, "{path}: {answer:?}"),
            Ok(answer) => anyhow::bail!("{path}: {answer:?}"),
            // An answer that was cut off counts for nothing: its ids may be a gap.
            Err(_) if ending.load(Ordering::SeqCst) => return Ok(ids),
            Err(error) => return Err(error),
        }
    }
}

/// Lives of a server under load that end with SIGTERM, and with SIGKILL once it has logged this. No id comes twice.
fn killed_after(logged: &str, arguments: &[&str], rounds: u32) -> anyhow::Result<()> {
    const PATHS: [&str; 3] =
        ["/v1/sequences/order/ids?count=700", "/v1/sequences/order/ids", "/v1/snowflakes/default/ids?count=70"];
    let mut server = Server::start_with(arguments.iter().copied())?;
    let (mut numbers, mut flakes) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        let ending = AtomicBool::new(false);
        let answers = PATHS.map(|_| AtomicU64::new(0));
        thread::scope(|scope| -> anyhow::Result<()> {
            let clients: Vec<_> = PATHS
                .iter()
                .zip(&answers)
                .map(|(path, answers)| {
                    let (client, ending) = (server.client(), &ending);
                    scope.spawn(move || ask(&client, path, answers, ending))
                })
                .collect();
            while answers.iter().any(|answers| answers.load(Ordering::Relaxed) < 20) {
                ensure!(!clients.iter().any(thread::ScopedJoinHandle::is_finished), "a client gave up");
                thread::sleep(Duration::from_micros(200));
            }
            ending.store(true, Ordering::SeqCst);
            server.signal(libc::SIGTERM)?;
            server.wait_for_log(logged, usize::try_from(round)?)?;
            // At another point of what follows in each round.
            thread::sleep(Duration::from_micros(u64::from(round - 1) * 300));
            server.kill9()?;
            for (client, path) in clients.into_iter().zip(PATHS) {
                let ids = client.join().expect("a client does not panic")?;
                if path.contains("sequences") { numbers.extend(ids) } else { flakes.extend(ids) }
            }
            Ok(())
        })?;
        server.restart()?;
    }
    numbers.extend(server.client().ids(&format!("{ORDER}?count=5000"))?);
    flakes.extend(server.client().ids("/v1/snowflakes/default/ids?count=5000")?);
    for mut ids in [numbers, flakes] {
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count, "an id was handed out twice");
    }
    Ok(())
}

#[test]
fn no_id_comes_twice_when_it_is_killed_while_it_drains() -> anyhow::Result<()> {
    killed_after("ending; another signal", &["--drain-ms", "600000"], 10)
}

#[test]
fn no_id_comes_twice_when_it_is_killed_while_it_gives_back() -> anyhow::Result<()> {
    killed_after("giving back", &["--drain-ms", "1"], 16)
}

#[test]
fn no_id_comes_twice_when_it_ends_in_its_own_time() -> anyhow::Result<()> {
    killed_after("ended", &["--drain-ms", "20"], 4)
}
