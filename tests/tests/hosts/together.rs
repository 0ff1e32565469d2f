//! All hosts at once, on one MariaDB and one Redis: a Rust program, a Node process, a Python process, two servers, and
//! a page in Chromium, which is granted its numbers by the servers. They share the tags `order` (buffered, in MariaDB)
//! and `chat` (ordered, in Redis above MariaDB), and the namespace `default` of leases in MariaDB.
//!
//! Each gets a task as JSON: `mysql` and `redis` (URLs), `plain` and `strict` (those of the servers, without and with
//! Redis), `out` (a folder), and how many `orders`, `flakes` and `chats` it takes. It writes `NAME.order` and
//! `NAME.flake`, each id as 8 bytes, and `NAME.chat`: for each id when its call began and when it ended, in nanoseconds
//! of the machine's monotonic clock, and the id; 8 bytes each, the lowest first.
//!
//! `UNALIKE_TOGETHER=150 tests/run --test hosts -- together` takes ten million ids.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use unalike_tests::hosts::{node, python, repository};
use unalike_tests::mariadb::MariaDb;
use unalike_tests::redis::{Persistence, Redis};
use unalike_tests::server::{self, Server};

/// How many ids each host takes, where nothing else is asked for.
const ORDERS: u64 = 20_000;
const FLAKES: u64 = 3_000;
const CHATS: u64 = 300;

/// An id of an ordered tag, and when the call for it was made.
#[derive(Clone, Copy)]
struct Call {
    began_ns: u64,
    ended_ns: u64,
    id: u64,
}

#[test]
fn hosts_in_all_languages_share_tags_and_workers_and_no_id_comes_twice() -> Result<()> {
    let times: u64 = std::env::var("UNALIKE_TOGETHER").map_or(Ok(1), |times| times.parse())?;
    let (package, python) = (node()?, python()?);
    let (database, redis) = (MariaDb::shared()?.database()?, Redis::start(Persistence::AofEverySecond)?);
    let folder = TempDir::new()?;
    let redis_url = redis.url(0, "");
    server::ok(folder.path(), &["tags", "create", "chat", "--ordered", "--store", &redis_url, "--backing", &database]);
    // The page's site gets it: the servers must know the origin before there is a page.
    let site = TcpListener::bind("127.0.0.1:0")?;
    let origin = format!("http://{}", site.local_addr()?);
    let plain = Server::start_with(["--store", &database, "--allowed-origins", &origin])?;
    let strict = Server::start_with(["--store", &redis_url, "--backing", &database, "--allowed-origins", &origin])?;
    let task = json!({
        "mysql": database, "redis": redis_url, "plain": plain.url(), "strict": strict.url(), "out": folder.path(),
        "orders": ORDERS * times, "flakes": FLAKES * times, "chats": CHATS * times.min(10),
    });
    let hosts = repository().join("tests/tests/hosts");
    let child = |program: &str, script: Option<&Path>, stdin: Stdio| {
        let mut child = Command::new(program);
        if let Some(script) = script {
            child.arg(script);
        }
        child.arg(task.to_string()).env("UNALIKE_NODE_PACKAGE", package);
        child.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().with_context(|| program.to_owned())
    };
    let children = [
        ("rust", child(env!("CARGO_BIN_EXE_host-child"), None, Stdio::null())?),
        ("node", child("node", Some(&hosts.join("node_host.mjs")), Stdio::null())?),
        ("python", child(&python.display().to_string(), Some(&hosts.join("python_host.py")), Stdio::null())?),
        ("browser", child("node", Some(&hosts.join("browser_host.mjs")), Stdio::from(OwnedFd::from(site)))?),
    ];
    let is_over = Arc::new(AtomicBool::new(false));
    // The servers hand out ids of the same tags meanwhile.
    let http = std::thread::spawn({
        let (is_over, plain, strict) = (Arc::clone(&is_over), plain.client(), strict.client());
        move || -> Result<[Vec<u64>; 3]> {
            let [mut orders, mut flakes, mut chats] = [const { Vec::new() }; 3];
            while !is_over.load(Ordering::Relaxed) {
                orders.extend(plain.ids("/v1/sequences/order/ids?count=100")?);
                flakes.extend(plain.ids("/v1/snowflakes/default/ids?count=20")?);
                chats.extend(strict.ids("/v1/sequences/chat/ids")?);
            }
            Ok([orders, flakes, chats])
        }
    });
    let mut failures = String::new();
    for (name, child) in children {
        let output = child.wait_with_output()?;
        if !output.status.success() {
            failures += &format!("{name}: {}\n{}\n", output.status, String::from_utf8_lossy(&output.stderr));
        }
    }
    is_over.store(true, Ordering::Relaxed);
    let [orders, flakes, chats] = http.join().map_err(|_| anyhow::anyhow!("the calls over HTTP panicked"))??;
    ensure!(failures.is_empty(), "{failures}");

    let names = ["rust", "node", "python", "browser"];
    let read = |name: &str, of: &str| words(&folder.path().join(format!("{name}.{of}")));
    for (of, mut all) in [("order", orders), ("flake", flakes)] {
        for name in names {
            let ids = read(name, of)?;
            ensure!(ids.len() as u64 >= count(&task, of), "{name} took {} ids of {of}", ids.len());
            ensure!(ids.is_sorted_by(|one, next| one < next), "{name}: the ids of {of} do not ascend");
            all.extend(ids);
        }
        check_each_once(of, all)?;
    }
    let mut calls = Vec::new();
    for name in names {
        let words = read(name, "chat")?;
        ensure!(words.len() as u64 >= 3 * count(&task, "chat"), "{name} took {} ids of chat", words.len() / 3);
        let (triples, _) = words.as_chunks::<3>();
        calls.extend(triples.iter().map(|&[began_ns, ended_ns, id]| Call { began_ns, ended_ns, id }));
    }
    check_each_once("chat", calls.iter().map(|call| call.id).chain(chats).collect())?;
    check_real_time(calls)
}

fn check_each_once(of: &str, mut ids: Vec<u64>) -> Result<()> {
    let taken = ids.len();
    ids.sort_unstable();
    ids.dedup();
    println!("{of}: {taken} ids, {} twice", taken - ids.len());
    ensure!(ids.len() == taken, "{} ids of {of} came twice", taken - ids.len());
    Ok(())
}

fn count(task: &Value, of: &str) -> u64 {
    task.get(format!("{of}s")).and_then(Value::as_u64).unwrap_or(u64::MAX)
}

/// The words of a file, the lowest byte first.
fn words(file: &Path) -> Result<Vec<u64>> {
    let bytes = std::fs::read(file).with_context(|| file.display().to_string())?;
    let (words, rest) = bytes.as_chunks::<8>();
    ensure!(rest.is_empty(), "{} does not hold whole ids", file.display());
    Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

/// A call that began after another one had ended got a greater id, in whichever processes they were.
fn check_real_time(mut calls: Vec<Call>) -> Result<()> {
    let mut ended = calls.clone();
    calls.sort_unstable_by_key(|call| call.began_ns);
    ended.sort_unstable_by_key(|call| call.ended_ns);
    let mut ended = ended.iter().peekable();
    let mut greatest = 0;
    for call in &calls {
        while let Some(before) = ended.next_if(|before| before.ended_ns < call.began_ns) {
            greatest = greatest.max(before.id);
        }
        ensure!(call.id > greatest, "{} was handed out after {greatest}", call.id);
    }
    Ok(())
}

#[test]
fn ids_against_the_order_of_real_time_are_noticed() {
    let call = |began_ns, ended_ns, id| Call { began_ns, ended_ns, id };
    assert!(check_real_time(vec![call(1, 4, 2), call(2, 3, 1), call(5, 6, 3)]).is_ok());
    assert!(check_real_time(vec![call(1, 2, 2), call(3, 4, 1)]).is_err());
    assert!(check_real_time(vec![call(1, 2, 2), call(3, 4, 2)]).is_err(), "one id twice");
    assert!(check_each_once("chat", vec![1, 3, 2]).is_ok() && check_each_once("chat", vec![1, 3, 1]).is_err());
}
