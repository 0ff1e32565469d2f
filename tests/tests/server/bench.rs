//! `unalike bench` against real servers, and against servers that do what ours never does.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use serde_json::Value;
use tempfile::TempDir;
use unalike_tests::process;
use unalike_tests::server::{Ran, Server, binary, run, run_with};

fn bench(url: &str, arguments: &[&str]) -> Ran {
    let directory = TempDir::new().unwrap();
    let ran = run(directory.path(), [&["bench", url], arguments].concat()).unwrap();
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0, "it leaves nothing behind");
    ran
}

/// The report of a run that went well.
#[track_caller]
fn report(url: &str, arguments: &[&str]) -> Value {
    let ran = bench(url, &[arguments, &["--json"]].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{arguments:?}: {ran:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

/// A run that fails and says these words.
#[track_caller]
fn fails(url: &str, arguments: &[&str], code: i32, named: &[&str]) -> Ran {
    let ran = bench(url, arguments);
    assert_eq!(ran.code, Some(code), "{arguments:?}: {ran:?}");
    for word in named {
        assert!(ran.stderr.contains(word), "{url} {arguments:?} does not say {word:?}: {}", ran.stderr);
    }
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    ran
}

fn number(report: &Value, pointer: &str) -> u64 {
    report.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {pointer}: {report}"))
}

/// A server that answers each request with what `answer` makes of its head; none closes the connection.
fn imitation(answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let answer = Arc::clone(&answer);
            thread::spawn(move || serve(&stream.unwrap(), &*answer));
        }
    });
    url
}

fn serve(mut stream: &TcpStream, answer: &dyn Fn(&str) -> Option<String>) {
    let mut lines = BufReader::new(stream).lines();
    loop {
        let head: Vec<_> = lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        if head.is_empty() {
            return;
        }
        let Some(answer) = answer(&head.join("\n")) else { return };
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn ids(ids: &str, headers: &str) -> String {
    let body = format!("{{\"tag\":\"bench\",\"ids\":[{ids}]}}");
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}

#[test]
fn every_request_and_every_id_is_counted() {
    let server = Server::start().unwrap();
    let report = report(server.url(), &["--requests", "1000", "--connections", "7", "--count", "3"]);
    for (pointer, expected) in [
        ("/requests", 1_000),
        ("/ids", 3_000),
        ("/count", 3),
        ("/connections", 7),
        ("/errors/unanswered", 0),
        ("/errors/connections_broken", 0),
        ("/uniqueness/checked", 3_000),
        ("/uniqueness/unchecked", 0),
        ("/uniqueness/twice", 0),
    ] {
        assert_eq!(number(&report, pointer), expected, "{pointer}: {report}");
    }
    let bars = report["histogram"].as_array().unwrap();
    assert_eq!(bars.iter().map(|bar| number(bar, "/requests")).sum::<u64>(), 1_000);
    let latency =
        ["p50", "p90", "p99", "p99.9", "p99.99", "max"].map(|name| report["latency_us"][name].as_f64().unwrap());
    assert!(latency[0] > 0.0 && latency.is_sorted(), "{report}");
    let seconds = report["seconds"].as_f64().unwrap();
    let per_second = report["requests_per_second"].as_f64().unwrap();
    assert!((seconds * per_second - 1_000.0).abs() < 0.01, "{report}");
    let next = server.get("/v1/sequences/bench/ids").unwrap().ids().unwrap();
    assert!(next[0] > 3_000, "the ids came from the tag \"bench\": {next:?}");
}

#[test]
fn it_runs_for_a_time_and_shows_figures_to_people() {
    let server = Server::start().unwrap();
    let arguments =
        ["--duration", "200ms", "--pipeline", "5", "--threads", "2", "--connections", "4", "--tag", "ö/ä b"];
    let ran = bench(server.url(), &arguments);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    for word in ["/v1/sequences/%C3%B6%2F%C3%A4%20b/ids", "4 connections, 5 requests", "all different", "p99.99", "█"]
    {
        assert!(ran.stdout.contains(word), "no {word:?} in {}", ran.stdout);
    }
    let next = server.get("/v1/sequences/%C3%B6%2F%C3%A4%20b/ids").unwrap().ids().unwrap();
    assert!(next[0] > 5);
}

#[test]
fn snowflakes_are_measured_alike_and_memory_is_bounded() {
    let server = Server::start().unwrap();
    let report = report(server.url(), &["--requests", "200", "--snowflake", "default", "--check-memory-mib", "0"]);
    assert_eq!((number(&report, "/ids"), number(&report, "/uniqueness/unchecked")), (200, 200));
    assert_eq!(number(&report, "/uniqueness/checked"), 0);
    let ran = bench(server.url(), &["--requests", "200", "--snowflake", "default"]);
    assert!(ran.code == Some(0) && ran.stdout.contains("all different"), "{ran:?}");
}

#[test]
fn answers_without_ids_are_counted_by_status() {
    let server = Server::start_with(["--create-tags", "false"]).unwrap();
    let ran =
        fails(server.url(), &["--requests", "20", "--json"], 1, &["every request failed", "404", "create it first"]);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((number(&report, "/requests"), number(&report, "/errors/by_status/404/requests")), (0, 20));

    let calls = AtomicU64::new(0);
    let url = imitation(move |_| {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        let refused = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nwait";
        Some(if call.is_multiple_of(2) { ids(&call.to_string(), "") } else { refused.to_owned() })
    });
    let ran = bench(&url, &["--requests", "20"]);
    assert_eq!(ran.code, Some(0), "some had ids: {ran:?}");
    assert!(ran.stdout.contains("10   with status 503: wait"), "{ran:?}");
}

#[test]
fn an_id_that_comes_twice_fails_the_run() {
    for threads in ["1", "2"] {
        let calls = AtomicU64::new(0);
        let url = imitation(move |_| Some(ids(&(7 + calls.fetch_add(1, Ordering::Relaxed) % 99).to_string(), "")));
        let arguments = ["--requests", "100", "--connections", "2", "--threads", threads];
        let ran = fails(&url, &arguments, 1, &["1 ids came twice: 7 for one"]);
        assert!(ran.stdout.contains("1 CAME TWICE"), "{ran:?}");
    }
}

#[test]
fn connections_that_the_server_closes_are_opened_again() {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let url = imitation(move |_| {
        let id = counted.fetch_add(1, Ordering::Relaxed);
        Some(ids(&format!("\"{id}\""), "connection: close\r\n"))
    });
    let polite = report(&url, &["--requests", "50", "--connections", "3"]);
    assert_eq!((number(&polite, "/requests"), number(&polite, "/errors/connections_broken")), (50, 0));

    let counted = Arc::new(AtomicU64::new(1));
    let url = imitation(move |_| {
        let id = counted.fetch_add(1, Ordering::Relaxed);
        (!id.is_multiple_of(10)).then(|| ids(&id.to_string(), ""))
    });
    let rude = report(&url, &["--requests", "50", "--connections", "1"]);
    assert_eq!((number(&rude, "/requests"), number(&rude, "/errors/unanswered")), (45, 5));
    assert_eq!((number(&rude, "/errors/connections_broken"), number(&rude, "/errors/connections_lost")), (5, 0));
}

#[test]
fn a_server_that_dies_ends_the_run() {
    let mut server = Server::start().unwrap();
    let process = Command::new(binary().unwrap())
        .args(["bench", server.url(), "--requests", "1000000000", "--connections", "3", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Once its ids have been asked for it is in the middle of it.
    while server.get("/v1/tags/bench").unwrap().status != 200 {
        thread::yield_now();
    }
    let first = server.get("/v1/sequences/bench/ids").unwrap().ids().unwrap()[0];
    while server.get("/v1/sequences/bench/ids").unwrap().ids().unwrap()[0] < first + 100 {
        thread::yield_now();
    }
    server.kill9().unwrap();
    let output = process.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("3 of 3 connections broke and could not be opened again"), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(number(&report, "/requests") > 0 && number(&report, "/uniqueness/twice") == 0, "{report}");
    // One that was opened again while the server died broke twice.
    assert_eq!(number(&report, "/errors/connections_lost"), 3);
    assert!(number(&report, "/errors/connections_broken") >= 3, "{report}");
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let url = format!("http://127.0.0.1:{}", process::free_port().unwrap());
    let ran = fails(&url, &["--requests", "1"], 1, &[&url, "refused", "`unalike` starts a server"]);
    assert_eq!(ran.stdout, "");
    fails("http://nobody.invalid", &["--requests", "1"], 1, &["nobody.invalid"]);
}

#[test]
fn what_is_no_such_server_is_said() {
    for (answer, named) in [
        ("SSH-2.0-OpenSSH_9.2\r\n", "SSH-2.0"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", "hello"),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "Content-Length"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{\"ids\":[1]}", "2 ids were asked for, 1 came"),
    ] {
        let url = imitation(|_| Some(answer.to_owned()));
        let ran = fails(&url, &["--requests", "10", "--count", "2", "--connections", "2"], 1, &[named]);
        assert_eq!(ran.stdout, "");
    }
}

#[test]
fn tokens_are_sent_and_never_shown() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    std::fs::write(at.join("token"), "s3cret-token\n").unwrap();
    let calls = AtomicU64::new(1);
    let url = imitation(move |head| {
        let is_known = head.contains("\nAuthorization: Bearer s3cret-token");
        let id = calls.fetch_add(1, Ordering::Relaxed);
        Some(if is_known { ids(&id.to_string(), "") } else { "HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n".into() })
    });
    let environment = [("IDS_TOKEN", "s3cret-token"), ("IDS_EMPTY", " "), ("IDS_BAD", "s3cret\ntoken")];
    let run = |arguments: &[&str]| {
        let arguments = [&["bench", &url, "--requests", "5"], arguments].concat();
        let ran = run_with(at, arguments, &environment).unwrap();
        assert!(!ran.stdout.contains("s3cret") && !ran.stderr.contains("s3cret"), "{ran:?}");
        ran
    };
    assert_eq!(run(&["--token-file", "token"]).code, Some(0));
    assert_eq!(run(&["--token-env", "IDS_TOKEN"]).code, Some(0));
    assert!(run(&[]).stderr.contains("401"));
    for (arguments, named) in [
        (["--token-file", "missing"], "missing"),
        (["--token-env", "IDS_NOBODY"], "IDS_NOBODY"),
        (["--token-env", "IDS_EMPTY"], "IDS_EMPTY"),
        (["--token-env", "IDS_BAD"], "IDS_BAD"),
    ] {
        let ran = run(&arguments);
        assert!(ran.code == Some(1) && ran.stderr.contains(named), "{ran:?}");
    }
}

#[test]
fn bad_input_is_refused() {
    for (url, named) in [
        ("ftp://localhost", "https://HOST:PORT"),
        ("localhost:8080", "http://HOST:PORT"),
        ("http://localhost/ids", "without a path"),
        ("http://user:word@localhost", "--token-file"),
        ("ht tp", "cannot be read"),
    ] {
        let ran = fails(url, &[], 1, &[named]);
        assert!(!ran.stderr.contains("word@"), "{ran:?}");
    }
    let url = "http://127.0.0.1:9";
    for (arguments, named) in [
        (&["--connections", "0"][..], "--connections"),
        (&["--duration", "0s"], "more than nothing"),
        (&["--duration", "soon"], "--duration"),
        (&["--duration", "2s", "--requests", "5"], "--requests"),
        (&["--tag", "x", "--snowflake", "y"], "--snowflake"),
        (&["--pipeline", "1001"], "--pipeline"),
        (&["--count", "0"], "--count"),
    ] {
        fails(url, arguments, 2, &[named]);
    }
}
