//! Leases in the server and on the command line: where they are kept, who holds them, what is said when one ends, and
//! what a server does without its lease store.

#![expect(clippy::unwrap_used, clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::json;
use tempfile::TempDir;
use unalike_tests::PATIENCE;
use unalike_tests::clock::FakeClock;
use unalike_tests::mariadb::MariaDb;
use unalike_tests::redis::{Persistence, Redis};
use unalike_tests::server::{Answer, Client, Server, name_of, ok, refuses, run};
use unalike_tests::zookeeper::Zookeeper;

const FLAKES: &str = "/v1/snowflakes/default/ids";

/// A server with these flags in this directory.
fn serve(directory: &Arc<TempDir>, flags: &[&str]) -> anyhow::Result<Server> {
    Server::start_in(Arc::clone(directory), flags.iter().map(|&flag| flag.to_owned()).collect())
}

/// A lease as `unalike leases list` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed {
    namespace: String,
    worker: u32,
    holder: String,
    from: String,
    until: String,
    state: String,
    grant: String,
}

/// What the listing with these settings shows.
fn listed(directory: &TempDir, settings: &[&str]) -> anyhow::Result<Vec<Listed>> {
    let text = ok(directory.path(), &[settings, &["leases", "list"]].concat());
    let mut lines = text.lines();
    let titles: Vec<_> = lines.next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(titles, ["NAMESPACE", "WORKER", "HOLDER", "FROM", "UNTIL", "STATE", "GRANT"]);
    lines
        .map(|line| {
            let cells: Vec<_> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
            let [namespace, worker, holder, from, until, state, grant] = cells[..] else {
                anyhow::bail!("{line:?} has other cells")
            };
            let [namespace, holder, from, until, state, grant] =
                [namespace, holder, from, until, state, grant].map(str::to_owned);
            Ok(Listed { namespace, worker: worker.parse()?, holder, from, until, state, grant })
        })
        .collect()
}

/// The worker of an id of the layout `twitter`.
fn worker_of(id: u64) -> u32 {
    u32::try_from(id >> 12 & 1_023).unwrap()
}

/// The machine's name, as the server knows it.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Snowflakes whose leases are short.
const SHORT: &str = "[snowflakes.default]\nlayout = \"twitter\"\nhorizon_ms = 2000\n";

/// Asks until the answer is as wanted.
#[track_caller]
fn until(client: &Client, path: &str, is_wanted: impl Fn(&Answer) -> bool) -> Answer {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = client.get(path).unwrap();
        if is_wanted(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "{answer:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Takes ids, which ascend, until there are none; then what the answer says.
fn take_to_the_end(client: &Client, ids: &mut Vec<u64>) -> anyhow::Result<Answer> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = client.get(FLAKES)?;
        if answer.status != 200 {
            assert!(ids.is_sorted_by(|one, other| one < other), "{ids:?}");
            return Ok(answer);
        }
        ids.extend(answer.ids()?);
        ensure!(Instant::now() < deadline, "ids do not end: {:?}", ids.last());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A figure of the snowflake `default`.
fn figure(client: &Client, name: &str) -> anyhow::Result<f64> {
    let text = client.get("/metrics")?.body;
    let start = format!("{name}{{snowflake=\"default\"}} ");
    let figure = text.lines().find_map(|line| line.strip_prefix(&start));
    Ok(figure.ok_or_else(|| anyhow::anyhow!("no {name} in {text}"))?.parse()?)
}

#[test]
fn leases_are_listed_with_who_holds_them_and_until_when() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    std::fs::write(directory.path().join("unalike.toml"), "[snowflakes.web]\nlayout = \"cosid-53\"\n")?;
    let leases = ["--leases", "sqlite://leases.sqlite"];
    let none = run(directory.path(), [&leases[..], &["leases", "list"]].concat())?;
    assert!(
        none.code == Some(1) && none.stderr.contains("leases.sqlite does not exist"),
        "nothing was used yet: {none:?}"
    );
    let mut server = serve(&directory, &[&leases[..], &["--config", "unalike.toml"]].concat())?;
    let client = server.client();
    let id = client.ids(FLAKES)?[0];
    client.ids("/v1/snowflakes/web/ids")?;
    let running = listed(&directory, &leases)?;
    assert_eq!(running.iter().map(|lease| lease.namespace.as_str()).collect::<Vec<_>>(), ["default", "web"]);
    let [lease, _] = &running[..] else { anyhow::bail!("{running:?}") };
    assert_eq!((lease.worker, lease.state.as_str()), (worker_of(id), "running"));
    // By default a server is known by where it is.
    let address = server.url().strip_prefix("http://").unwrap();
    assert_eq!(lease.holder, format!("{}/{address}", host_name()));
    assert!(lease.from < lease.until && lease.until.ends_with('Z') && lease.until.len() == 24, "{lease:?}");
    assert!(lease.grant.len() == 32 && lease.grant.bytes().all(|byte| byte.is_ascii_hexdigit()), "{lease:?}");
    assert_eq!(ok(directory.path(), &[&leases[..], &["leases", "list", "web"]].concat()).lines().count(), 2);
    assert_eq!(ok(directory.path(), &[&leases[..], &["leases", "list", "nobody"]].concat()).lines().count(), 1);
    // The store of the sequences has none of them.
    assert_eq!(listed(&directory, &[])?, []);

    // A process that ends gives its lease back.
    ensure!(server.sigterm()?.success(), "it ends as it should");
    assert!(listed(&directory, &leases)?.iter().all(|lease| lease.state == "ended"));
    // A command is known by its process, and a lease that was given back is no one's.
    ok(directory.path(), &[&leases[..], &["next", "default", "--snowflake"]].concat());
    let ended = listed(&directory, &leases)?;
    let commands: Vec<_> = ended.iter().filter(|lease| lease.holder != running[0].holder).collect();
    let [command] = &commands[..] else { anyhow::bail!("{ended:?}") };
    let process = command.holder.strip_prefix(&format!("{}/", host_name())).unwrap();
    assert!(process.parse::<u32>().is_ok() && command.state == "ended", "{command:?}");
    Ok(())
}

#[test]
fn a_server_has_the_worker_that_it_had_before_by_its_name() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    let mut server = serve(&directory, &["--holder", "the one"])?;
    let worker = worker_of(server.client().ids(FLAKES)?[0]);
    server.sigterm()?;
    for _ in 0..3 {
        server.restart()?;
        assert_eq!(worker_of(server.client().ids(FLAKES)?[0]), worker);
        server.sigterm()?;
    }
    assert_eq!(
        listed(&directory, &[])?.len(),
        1,
        "a random choice among 1,024 workers would hardly repeat three times"
    );
    Ok(())
}

#[test]
fn a_worker_is_preferred_when_it_is_free() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    let first = serve(&directory, &["--worker", "77"])?;
    assert_eq!(worker_of(first.client().ids(FLAKES)?[0]), 77);
    let second = first.start_beside()?;
    assert_ne!(worker_of(second.client().ids(FLAKES)?[0]), 77, "it is in use");
    // Whatever this machine is called, it is either its number or an error that says its name.
    let host = host_name();
    let ordinal =
        run(directory.path(), ["--worker", "ordinal", "--store", "sqlite://other", "next", "default", "--snowflake"])?;
    let is_numbered = host.split('.').next().unwrap().ends_with(|last: char| last.is_ascii_digit());
    assert!(is_numbered || ordinal.stderr.contains(&host) && ordinal.stderr.contains("--worker 3"), "{ordinal:?}");
    Ok(())
}

#[test]
fn a_lease_that_the_operator_releases_runs_out_and_ids_go_on() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    std::fs::write(
        directory.path().join("unalike.toml"),
        "[snowflakes.default]\nlayout = \"twitter\"\nhorizon_ms = 3000\n",
    )?;
    let server = serve(&directory, &["--config", "unalike.toml"])?;
    let client = server.client();
    let worker = worker_of(client.ids(FLAKES)?[0]);
    refuses(&directory, &["leases", "release", "default", "1023"], &["1023", "never leased", "unalike leases list"]);
    refuses(&directory, &["leases", "release", "nobody", "1"], &["\"nobody\"", "never leased"]);
    let said = ok(directory.path(), &["leases", "release", "default", &worker.to_string()]);
    // Its holder may have another beside it by now.
    let lease = listed(&directory, &[])?.into_iter().find(|listed| listed.worker == worker).context("it is listed")?;
    assert_eq!(lease.state, "extension forbidden");
    for word in [&format!("worker {worker}"), &lease.until, &lease.holder] {
        assert!(said.contains(word.as_str()), "{said}");
    }
    // Its holder goes on with it until it has another, which it may have by now, or it ends.
    let mut ids = Vec::new();
    while ids.last().is_none_or(|&id| worker_of(id) == worker) {
        ids.push(client.ids(FLAKES)?[0]);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(ids.is_sorted(), "{ids:?}");
    loop {
        let leases = listed(&directory, &[])?;
        let old = leases.iter().find(|listed| listed.grant == lease.grant).unwrap();
        assert_eq!(old.until, lease.until, "{leases:?}");
        assert!(leases.iter().any(|listed| listed.worker != worker && listed.state == "running"), "{leases:?}");
        match old.state.as_str() {
            "ended" => break,
            state => assert_eq!(state, "extension forbidden"),
        }
    }
    assert!(has_trouble(&client, "lost")?);
    let said = ok(directory.path(), &["leases", "release", "default", &worker.to_string()]);
    assert!(said.contains("ended at"), "{said}");
    Ok(())
}

#[test]
fn without_leases_there_are_sequences_alone() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    let server = serve(&directory, &["--leases", "none"])?;
    let client = server.client();
    assert_eq!(client.ids("/v1/sequences/order/ids?count=3")?, [1, 2, 3]);
    let answer = client.get(FLAKES)?;
    assert_eq!((answer.status, answer.problem()?.as_str()), (500, "leases-missing"));
    assert!(answer.body.contains("--leases sqlite://PATH"), "{answer:?}");
    assert_eq!(client.get("/health/ready")?.status, 200, "it was not in use");
    refuses(&directory, &["--leases", "none", "leases", "list"], &["--leases URL"]);
    refuses(&directory, &["--leases", "none", "next", "default", "--snowflake"], &["--leases sqlite://PATH"]);
    Ok(())
}

#[test]
fn what_makes_no_sense_is_refused_with_what_to_write() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    let next = ["next", "default", "--snowflake"];
    for (flags, named) in [
        (&["--leases", "redis://ids:secret@h/0"][..], &["redis://ids@h/0", "--backing none"][..]),
        (&["--leases", "ids.sqlite"], &["--leases", "not a URL", "sqlite://PATH"]),
        (&["--leases", "kafka://h"], &["--leases", "kafka"]),
        (&["--leases", "none", "--worker", "5"], &["--worker", "--leases URL", "--unsafe-static-worker"]),
        (&["--leases", "none", "--local-leases", "d"], &["--local-leases", "--unsafe-static-worker"]),
        (&["--unsafe-static-worker", "--worker", "5", "--local-leases", "d"], &["--leases none", "preferred"]),
        (&["--unsafe-static-worker", "--leases", "none", "--local-leases", "d"], &["--worker 3"]),
        (&["--unsafe-static-worker", "--leases", "none", "--worker", "5"], &["--local-leases DIR"]),
        (&["--worker", "1024"], &["worker is 1024", "0 to 1023"]),
        (&["--lease-horizon-max-ms", "1000"], &["horizon_ms of 60000", "lease_horizon_max_ms, 1000"]),
        (&["--lease-skew-max-ms", "3600001"], &["lease_skew_max_ms is 3600001"]),
    ] {
        refuses(&directory, &[flags, &next].concat(), named);
    }
    for flags in [["--worker", "first"], ["--worker", "-1"], ["--unsafe-static-worker=perhaps", "next"]] {
        let ran = run(directory.path(), flags.into_iter().chain(next))?;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    }
    for (namespace, more, named) in [
        ("default", &[][..], &["first use", "--backing none", "--unsafe-static-worker"][..]),
        ("default", &["--layout", "leaf"], &["another layout"]),
        ("default", &["--layout", "loof"], &["loof", "leaf"]),
        ("nobody", &[], &["nobody", "--layout"]),
    ] {
        refuses(&directory, &[&["leases", "init", namespace], more].concat(), named);
    }
    assert!(!directory.path().join("unalike.sqlite").exists(), "a mistake creates no file");
    let missing = [&["--leases", "sqlite://missing/leases.sqlite"], &next[..]].concat();
    refuses(&directory, &missing, &["missing/leases.sqlite", "does not exist", "--leases"]);
    Ok(())
}

/// Whether a trouble with a lease was counted.
fn has_trouble(client: &Client, trouble: &str) -> anyhow::Result<bool> {
    let line = format!("unalike_lease_troubles_total{{trouble=\"{trouble}\"}} ");
    let text = client.get("/metrics")?.body;
    let count = text.lines().find_map(|known| known.strip_prefix(&line));
    Ok(count.is_some_and(|count| count != "0"))
}

/// Waits until something has changed so often, while nobody asks for ids.
fn changes(count: usize, mut look: impl FnMut() -> anyhow::Result<String>) -> anyhow::Result<()> {
    let began = Instant::now();
    let (mut seen, mut changes) = (look()?, 0);
    while changes < count {
        ensure!(began.elapsed() < PATIENCE, "{changes} changes, the last to {seen}");
        std::thread::sleep(Duration::from_millis(20));
        let now = look()?;
        changes += usize::from(now != seen);
        seen = now;
    }
    Ok(())
}

#[test]
fn an_idle_server_renews_short_leases_in_time() -> anyhow::Result<()> {
    for horizon_ms in [300, 1_500] {
        let directory = Arc::new(TempDir::new()?);
        let layout = format!("[snowflakes.default]\nlayout = \"twitter\"\nhorizon_ms = {horizon_ms}\n");
        std::fs::write(directory.path().join("unalike.toml"), layout)?;
        let server = serve(&directory, &["--config", "unalike.toml"])?;
        let first = server.client().ids(FLAKES)?;
        changes(6, || Ok(format!("{:?}", listed(&directory, &[])?)))?;
        assert_eq!(server.troubles()?, [""; 0], "{horizon_ms}");
        assert_eq!(worker_of(server.client().ids(FLAKES)?[0]), worker_of(first[0]), "{horizon_ms}");
    }
    Ok(())
}

#[test]
fn an_idle_server_has_the_next_piece_of_a_local_lease_in_time() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    let server = serve(&directory, &["--local-leases", "leases"])?;
    server.client().ids(FLAKES)?;
    let pieces = || {
        let files = std::fs::read_dir(directory.path().join("leases"))?;
        let mut kept = files
            .map(|file| Ok(std::fs::read(file?.path())?))
            .collect::<anyhow::Result<Vec<_>>>()
            // One was being replaced.
            .unwrap_or_default();
        kept.sort();
        Ok(format!("{kept:?}"))
    };
    changes(10, pieces)?;
    assert_eq!(server.troubles()?, [""; 0]);
    Ok(())
}

#[test]
fn a_snowflake_that_stops_makes_the_server_unready_until_it_goes_on() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    std::fs::write(directory.path().join("unalike.toml"), SHORT)?;
    let flags = ["--config", "unalike.toml", "--leases", "sqlite://leases.sqlite", "--wait-max-ms", "300"];
    let server = serve(&directory, &flags)?;
    let client = server.client();
    client.ids("/v1/sequences/order/ids")?;
    let mut ids = client.ids(FLAKES)?;
    for (name, expected) in [
        ("unalike_snowflake_ready", 1.0),
        ("unalike_snowflake_refused_total", 0.0),
        ("unalike_snowflake_ahead_seconds", 0.0),
    ] {
        assert_eq!(figure(&client, name)?, expected, "{name}");
    }
    assert!(figure(&client, "unalike_lease_left_seconds")? <= 2.0);

    let locked = server.lock_file("leases.sqlite")?;
    let refused = take_to_the_end(&client, &mut ids)?;
    assert!(ids.len() > 10, "ids flow to the end of the lease: {ids:?}");
    assert_eq!((refused.status, refused.problem()?.as_str()), (503, "lease-ended"), "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert_eq!(client.ids("/v1/sequences/order/ids")?.len(), 1, "sequences are not affected");
    let unready = until(&client, "/health/ready", |answer| answer.status != 200);
    assert_eq!((unready.status, unready.problem()?.as_str()), (503, "lease-ended"), "{unready:?}");
    let alone = client.get("/health/ready?snowflake=default")?;
    assert_eq!((alone.status, alone.problem()?.as_str()), (503, "lease-ended"), "{alone:?}");
    assert_eq!(client.get("/health/ready?tag=order")?.body, r#"{"status":"ready"}"#);
    let said = unready.json()?;
    assert!(said["snowflake"] == "default" && said["stopped_since"].is_string(), "{said}");
    assert!(
        said["detail"].as_str().is_some_and(|detail| detail.contains(&format!("worker {}", worker_of(ids[0])))),
        "{said}"
    );
    assert_eq!(figure(&client, "unalike_snowflake_ready")?, 0.0);
    assert_eq!(figure(&client, "unalike_lease_left_seconds")?, 0.0);
    assert!(has_trouble(&client, "ended")?);
    assert!(figure(&client, "unalike_snowflake_refused_total")? >= 1.0);
    assert_eq!(server.log()?.matches("the snowflake gives no ids").count(), 1, "{}", server.log()?);

    // By itself: nobody asks for ids.
    drop(locked);
    until(&client, "/health/ready", |answer| answer.body == r#"{"status":"ready"}"#);
    server.wait_for_log("the snowflake gives ids again", 1)?;
    assert_eq!(figure(&client, "unalike_snowflake_ready")?, 1.0);
    assert!(client.ids(FLAKES)?[0] > *ids.last().unwrap());
    assert_eq!(server.log()?.matches("the snowflake gives").count(), 2, "once each: {}", server.log()?);
    Ok(())
}

#[test]
fn a_snowflake_whose_store_is_known_to_be_down_has_nobody_wait() -> anyhow::Result<()> {
    // The default of wait_max_ms.
    const WAIT_MAX: Duration = Duration::from_secs(5);
    let directory = Arc::new(TempDir::new()?);
    std::fs::write(directory.path().join("unalike.toml"), SHORT)?;
    let leases = "sqlite://leases.sqlite?busy-timeout-ms=100";
    let server = serve(&directory, &["--config", "unalike.toml", "--leases", leases])?;
    let client = server.client();
    let before = client.ids(FLAKES)?;
    let locked = server.lock_file("leases.sqlite")?;
    until(&client, "/health/ready", |answer| answer.status != 200);
    let asked = Instant::now();
    for path in [FLAKES, "/v1/snowflakes/default/ids?count=1000"].repeat(5) {
        let refused = client.get(path)?;
        assert_eq!((refused.status, refused.problem()?.as_str()), (503, "lease-ended"), "{refused:?}");
        assert!(refused.header("retry-after").is_some(), "{refused:?}");
    }
    // Each would wait for so long.
    assert!(asked.elapsed() < WAIT_MAX, "10 calls took {:?}", asked.elapsed());
    drop(locked);
    let after = until(&client, FLAKES, |answer| answer.status == 200).ids()?;
    assert!(before < after, "{before:?} {after:?}");
    Ok(())
}

#[test]
fn the_first_call_that_fails_by_a_clock_that_went_back_makes_the_server_unready() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    let text = "[snowflakes.default]\nlayout = \"twitter\"\nclock = \"reject\"\n";
    std::fs::write(directory.path().join("unalike.toml"), text)?;
    let clock = Arc::new(FakeClock::start()?);
    let flags = ["--config", "unalike.toml", "--drop-in", "leaf,tinyid,cosid"].map(str::to_owned).to_vec();
    let server = Server::start_with_clock(directory, flags, Arc::clone(&clock))?;
    let client = server.client();
    for path in [FLAKES, "/v1/snowflakes/default/ids?count=2", "/api/snowflake/get/any", "/ids"] {
        assert_eq!(client.get(path)?.status, 200, "{path}");
        assert_eq!(client.get("/health/ready")?.status, 200, "{path}");
        // By less than a lease reaches, so that nothing but time helps.
        clock.set(-30_000)?;
        let refused = client.get(path)?;
        let unready = client.get("/health/ready")?;
        let shown = figure(&client, "unalike_snowflake_ready")?;
        clock.set(0)?;
        assert_ne!(refused.status, 200, "{path}: {refused:?}");
        assert_eq!((unready.status, unready.problem()?.as_str()), (503, "clock-wrong"), "{path}: {unready:?}");
        assert_eq!(unready.json()?["snowflake"], "default");
        assert_eq!(shown, 0.0, "{path}");
        until(&client, "/health/ready", |answer| answer.status == 200);
        until(&client, FLAKES, |answer| answer.status == 200);
    }
    Ok(())
}

/// Two servers on one file, that call themselves alike.
#[test]
fn a_clock_that_jumps_ahead_for_an_instant_gives_no_worker_away() -> anyhow::Result<()> {
    let clock = Arc::new(FakeClock::start()?);
    let flags = ["--holder", "host-a"].map(str::to_owned).to_vec();
    let server = Server::start_with_clock(Arc::new(TempDir::new()?), flags, Arc::clone(&clock))?;
    let beside = server.start_beside()?;
    let mine = worker_of(server.client().ids(FLAKES)?[0]);
    clock.set(86_400_000)?;
    let other = beside.client().ids(FLAKES);
    clock.set(0)?;
    assert_ne!(mine, worker_of(other?[0]), "the lease that runs");
    Ok(())
}

#[test]
fn a_snowflake_that_nobody_asks_for_does_not_count() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    std::fs::write(directory.path().join("unalike.toml"), SHORT)?;
    // Nothing listens on the first port.
    let server = serve(&directory, &["--config", "unalike.toml", "--leases", "mysql://h:secret@127.0.0.1:1/ids"])?;
    let client = server.client();
    assert_eq!(client.ids("/v1/sequences/order/ids")?, [1]);
    std::thread::sleep(Duration::from_millis(2_500));
    assert_eq!(client.get("/health/ready")?.body, r#"{"status":"ready"}"#);
    assert!(
        server.log()?.contains("the store of leases mysql://h@127.0.0.1:1/ids cannot be used now"),
        "{}",
        server.log()?
    );
    assert!(!server.log()?.contains("secret"), "{}", server.log()?);
    let answer = client.get(FLAKES)?;
    assert_eq!((answer.status, answer.problem()?.as_str()), (503, "store-unavailable"), "{answer:?}");
    let unready = until(&client, "/health/ready", |answer| answer.status != 200);
    assert_eq!((unready.status, &unready.json()?["snowflake"]), (503, &json!("default")), "{unready:?}");
    Ok(())
}

#[test]
fn snowflakes_alone_keep_a_server_ready_while_their_leases_last() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    std::fs::write(directory.path().join("unalike.toml"), SHORT)?;
    let server = serve(&directory, &["--config", "unalike.toml"])?;
    let client = server.client();
    client.ids(FLAKES)?;
    let locked = server.lock_store()?;
    let covered = until(&client, "/health/ready", |answer| answer.body != r#"{"status":"ready"}"#);
    assert_eq!((covered.status, &covered.json()?["status"]), (200, &json!("covered")), "{covered:?}");
    assert_eq!(client.get(FLAKES)?.status, 200);
    let unready = until(&client, "/health/ready", |answer| answer.status != 200);
    assert_eq!((unready.status, unready.problem()?.as_str()), (503, "lease-ended"), "{unready:?}");
    drop(locked);
    until(&client, "/health/ready", |answer| answer.status == 200);
    Ok(())
}

#[test]
fn mysql_alone_gives_sequences_and_snowflakes() -> anyhow::Result<()> {
    let url = MariaDb::shared()?.database()?;
    let directory = Arc::new(TempDir::new()?);
    let server = serve(&directory, &["--store", &url])?;
    let client = server.client();
    assert_eq!(client.ids("/v1/sequences/order/ids?count=3")?, [1, 2, 3]);
    let id = client.ids(FLAKES)?[0];
    let settings = ["--store", url.as_str()];
    let leases = listed(&directory, &settings)?;
    assert_eq!(leases.iter().map(|lease| lease.worker).collect::<Vec<_>>(), [worker_of(id)]);
    assert_eq!(ok(directory.path(), &[&settings[..], &["next", "default", "--snowflake"]].concat()).lines().count(), 1);
    let said = ok(
        directory.path(),
        &[&settings[..], &["leases", "release", "default", &leases[0].worker.to_string()]].concat(),
    );
    assert!(said.contains(&leases[0].holder), "{said}");

    // Leases of sequences in a file.
    let settings = ["--leases", url.as_str()];
    let other = ok(directory.path(), &[&settings[..], &["next", "default", "--snowflake"]].concat());
    assert_eq!(other.lines().count(), 1);
    assert!(listed(&directory, &settings)?.len() >= 2);
    assert_eq!(listed(&directory, &[])?, [], "none in the file");
    Ok(())
}

#[test]
fn a_command_for_sequences_makes_no_tables_of_leases() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    let url = mariadb.database()?;
    let directory = TempDir::new()?;
    ok(directory.path(), &["--store", &url, "next", "order"]);
    let tables = mariadb.sql(name_of(&url), "SHOW TABLES LIKE '%lease%'")?;
    assert_eq!(tables, "");
    Ok(())
}

#[test]
fn a_database_without_tables_of_leases_serves_sequences_until_they_are_made() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    let url = mariadb.database()?;
    let database = name_of(&url);
    let directory = Arc::new(TempDir::new()?);
    let schema = ok(directory.path(), &["--store", &url, "schema", "--user", "ids"]);
    let statements = |is_wanted: fn(&str) -> bool| -> String {
        schema
            .split(";\n")
            .filter(|statement| is_wanted(statement))
            .map(|statement| format!("{statement};\n"))
            .collect()
    };
    let user = format!("u_{database}");
    let (of_leases, others) = (
        statements(|statement| statement.contains("unalike_lease")).replace("'ids'", &format!("'{user}'")),
        statements(|statement| !statement.contains("unalike_lease")).replace("'ids'", &format!("'{user}'")),
    );
    assert!(of_leases.contains("CREATE TABLE") && of_leases.contains("GRANT"), "{schema}");
    assert_eq!(schema.matches("GRANT ").count(), schema.matches("CREATE TABLE").count(), "each table once: {schema}");
    mariadb.sql(database, &format!("CREATE USER {user}; {others}"))?;

    let store = url.replace("root@", &format!("{user}@")) + "?create=false";
    let server = serve(&directory, &["--store", &store])?;
    let client = server.client();
    assert_eq!(client.ids("/v1/sequences/order/ids?count=3")?, [1, 2, 3]);
    let answer = client.get(FLAKES)?;
    assert_eq!((answer.status, answer.problem()?.as_str()), (500, "leases-missing"), "{answer:?}");
    assert!(answer.body.contains("`unalike schema`") && answer.body.contains("--leases"), "{answer:?}");
    assert!(server.log()?.contains("unalike_lease"), "the log says what is missing: {}", server.log()?);
    assert_eq!(client.get("/health/ready")?.body, r#"{"status":"ready"}"#);
    mariadb.sql(database, &of_leases)?;
    until(&client, FLAKES, |answer| answer.status == 200);
    server.wait_for_log("can be used now", 1)?;
    Ok(())
}

#[test]
fn a_lease_store_that_is_down_at_the_start_keeps_only_snowflakes_waiting() -> anyhow::Result<()> {
    let mut mariadb = MariaDb::start()?;
    let url = mariadb.database()?;
    mariadb.kill9()?;
    let directory = Arc::new(TempDir::new()?);
    let server = serve(&directory, &["--leases", &url, "--wait-max-ms", "300"])?;
    let client = server.client();
    assert_eq!(client.ids("/v1/sequences/order/ids?count=3")?, [1, 2, 3]);
    let answer = client.get(FLAKES)?;
    assert_eq!((answer.status, answer.problem()?.as_str()), (503, "store-unavailable"), "{answer:?}");
    mariadb.restart()?;
    until(&client, FLAKES, |answer| answer.status == 200);
    until(&client, "/health/ready", |answer| answer.status == 200);
    Ok(())
}

#[test]
fn leases_in_redis_need_a_backing_store_and_use_it() -> anyhow::Result<()> {
    let mut redis = Redis::start(Persistence::Nothing)?;
    let (url, directory) = (redis.url(0, ""), Arc::new(TempDir::new()?));
    std::fs::write(directory.path().join("unalike.toml"), SHORT)?;
    let settings = ["--leases", &url, "--backing", "sqlite://backing.sqlite"];
    let flags = [&settings[..], &["--config", "unalike.toml", "--wait-max-ms", "300"]].concat();
    let mut server = serve(&directory, &flags)?;
    let client = server.client();
    assert_eq!(client.ids("/v1/sequences/order/ids")?, [1]);
    let mut ids = client.ids(FLAKES)?;
    assert_eq!(
        listed(&directory, &settings)?.iter().map(|lease| lease.worker).collect::<Vec<_>>(),
        [worker_of(ids[0])]
    );
    // The sequences are not the watermark's, and the leases not the sequences'.
    assert!(directory.path().join("unalike.sqlite").exists() && directory.path().join("backing.sqlite").exists());
    assert!(ok(directory.path(), &["--store", "sqlite://backing.sqlite", "next", "order"]).starts_with("1\n"));

    // A Redis that lost all costs a wait and repeats nothing.
    redis.kill9()?;
    let refused = take_to_the_end(&client, &mut ids)?;
    assert_eq!((refused.status, refused.problem()?.as_str()), (503, "lease-ended"), "{refused:?}");
    redis.restart()?;
    let after = until(&client, FLAKES, |answer| answer.status == 200).ids()?;
    assert!(after[0] > *ids.last().unwrap(), "{after:?}");
    server.sigterm()?;

    // Nor does it keep sequences from being served.
    redis.kill9()?;
    server.restart()?;
    assert_eq!(server.client().get("/v1/sequences/order/ids")?.status, 200);
    assert_eq!(server.client().get(FLAKES)?.status, 503);
    refuses(&directory, &[&settings[..], &["leases", "init", "default"]].concat(), &["first use", "--backing none"]);
    Ok(())
}

/// Two servers over one Redis and one durable store, one of which leases workers in Redis and the other one does not:
/// snowflakes, and machine ids of CosId's, come from the place where they were asked for first.
#[test]
fn all_servers_lease_a_namespace_in_one_place() -> anyhow::Result<()> {
    const MACHINE: &str = "/machines/shop?machineBit=4&instanceId=a&stable=false&safeGuardDuration=PT30S";
    let redis = Redis::start(Persistence::Nothing)?;
    for is_redis_first in [false, true] {
        let (url, directory) = (redis.url(is_redis_first.into(), ""), Arc::new(TempDir::new()?));
        let by_default = ["--store", &url, "--backing", "sqlite://backing.sqlite", "--drop-in", "cosid"];
        let in_redis = [&by_default[..], &["--leases", &url]].concat();
        let (first, second) =
            if is_redis_first { (&in_redis[..], &by_default[..]) } else { (&by_default[..], &in_redis[..]) };
        let (first, mut second) = (serve(&directory, first)?, serve(&directory, second)?);
        let ask = |server: &Server| -> anyhow::Result<[u16; 2]> {
            let machine = server.client().send("POST", MACHINE, "application/json", "")?;
            Ok([server.get(FLAKES)?.status, machine.status])
        };
        assert_eq!(ask(&first)?, [200, 200]);
        // Nor are machine ids of another width leased there, whose lease namespace nobody has used.
        let wider = MACHINE.replace("machineBit=4", "machineBit=5");
        assert_eq!(second.client().send("POST", &wider, "application/json", "")?.status, 500);
        assert_eq!(
            first.client().send("POST", &wider, "application/json", "")?.status,
            400,
            "a namespace has one width"
        );
        assert_eq!(second.get(FLAKES)?.problem()?, "store-refused");
        assert_eq!(ask(&second)?, [500, 500]);
        let place = if is_redis_first { "are kept in a Redis" } else { "are kept in the durable store itself" };
        assert!(second.log()?.contains(place), "{}", second.log()?);
        second.restart()?;
        assert_eq!(ask(&second)?, [500, 500]);
        assert_eq!(ask(&first)?, [200, 200]);
    }
    Ok(())
}

#[test]
fn leases_in_redis_alone_are_begun_by_command_or_after_a_quarantine() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::AofAlways)?;
    let (url, directory) = (redis.url(0, ""), Arc::new(TempDir::new()?));
    let settings = ["--leases", &url, "--backing", "none", "--lease-horizon-max-ms", "60000"];
    let said = ok(directory.path(), &[&settings[..], &["leases", "init", "default"]].concat());
    assert!(said.contains("\"default\""), "{said}");
    let again = ok(directory.path(), &[&settings[..], &["leases", "init", "default"]].concat());
    assert!(again.contains("nothing was changed"), "{again}");
    let server = serve(&directory, &settings)?;
    let client = server.client();
    assert_eq!(client.ids(FLAKES)?.len(), 1);
    assert!(server.log()?.contains("no durable store backs"), "{}", server.log()?);
    drop(server);

    // Without the command the server waits until all that it may have forgotten has ended.
    redis.cli(&["FLUSHALL"])?;
    let server = serve(&directory, &settings)?;
    let answer = server.client().get(FLAKES)?;
    assert_eq!((answer.status, answer.problem()?.as_str()), (503, "quarantined"), "{answer:?}");
    assert_eq!(answer.json()?["snowflake"], "default");
    let wait_s: u64 = answer.header("retry-after").unwrap().parse()?;
    assert!((30..=700).contains(&wait_s), "{answer:?}");
    Ok(())
}

#[test]
fn leases_in_zookeeper() -> anyhow::Result<()> {
    let mut zookeeper = Zookeeper::start()?;
    let url = format!("zookeeper://127.0.0.1:{}/ids", zookeeper.port());
    let directory = Arc::new(TempDir::new()?);
    std::fs::write(directory.path().join("unalike.toml"), SHORT)?;
    let settings = ["--leases", url.as_str()];
    let server = serve(&directory, &[&settings[..], &["--config", "unalike.toml", "--wait-max-ms", "300"]].concat())?;
    let client = server.client();
    let mut ids = client.ids(FLAKES)?;
    assert_eq!(
        listed(&directory, &settings)?.iter().map(|lease| lease.worker).collect::<Vec<_>>(),
        [worker_of(ids[0])]
    );
    zookeeper.kill9()?;
    let refused = take_to_the_end(&client, &mut ids)?;
    assert_eq!((refused.status, refused.problem()?.as_str()), (503, "lease-ended"), "{refused:?}");
    let beside = server.start_beside()?;
    assert_eq!(beside.client().ids("/v1/sequences/order/ids")?, [1], "it starts without ZooKeeper");
    zookeeper.restart()?;
    let after = until(&client, FLAKES, |answer| answer.status == 200).ids()?;
    assert!(after[0] > *ids.last().unwrap(), "{after:?}");
    refuses(&directory, &["--store", url.as_str(), "next", "order"], &["ZooKeeper keeps leases", "--leases"]);
    Ok(())
}

#[test]
fn a_server_is_started_again_without_its_lease_store_by_its_local_copy() -> anyhow::Result<()> {
    let mut mariadb = MariaDb::start()?;
    let url = mariadb.database()?;
    let directory = Arc::new(TempDir::new()?);
    let flags = ["--leases", url.as_str(), "--local-leases", "leases", "--wait-max-ms", "3000"];
    let mut server = serve(&directory, &flags)?;
    let mut ids = server.client().ids(FLAKES)?;
    let worker = worker_of(ids[0]);
    let left = figure(&server.client(), "unalike_lease_left_seconds")?;
    assert!(left > 30.0 && left <= 60.0, "what the store granted, and not the pieces: {left}");
    mariadb.kill9()?;
    for is_killed in [true, false, true] {
        if !is_killed {
            ensure!(server.sigterm()?.success(), "it ends as it should");
        }
        server.restart()?;
        ids.extend(server.client().ids(&format!("{FLAKES}?count=100"))?);
    }
    assert!(ids.iter().all(|&id| worker_of(id) == worker), "{ids:?}");
    assert!(ids.is_sorted_by(|one, other| one < other), "{ids:?}");
    // One process at a time.
    let other = run(directory.path(), flags.into_iter().chain(["serve", "--listen", "127.0.0.1:0"]))?;
    assert!(other.code == Some(1) && other.stderr.contains("leases"), "{other:?}");
    // A command takes a lease of its own, and does without the directory.
    mariadb.restart()?;
    let printed: u64 =
        ok(directory.path(), &[&flags[..], &["next", "default", "--snowflake"]].concat()).trim().parse()?;
    assert_ne!(worker_of(printed), worker);
    assert_eq!(listed(&directory, &flags)?.len(), 2, "the same worker through three restarts");
    Ok(())
}

#[test]
fn a_static_worker_begins_by_command_and_goes_on_from_its_file() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    let settings = ["--leases", "none", "--unsafe-static-worker", "--worker", "7", "--local-leases", "worker"];
    let with = |more: &[&'static str]| [&settings[..], more].concat();
    refuses(&directory, &with(&["next", "default", "--snowflake"]), &["unalike leases init", "default"]);
    let said = ok(directory.path(), &with(&["leases", "init", "default"]));
    assert!(said.contains("worker 7"), "{said}");
    refuses(&directory, &with(&["leases", "init", "default"]), &["default"]);
    let mut ids: Vec<u64> = Vec::new();
    for _ in 0..3 {
        let printed = ok(directory.path(), &with(&["next", "default", "--snowflake", "-n", "10"]));
        ids.extend(printed.lines().map(|id| id.parse::<u64>().unwrap()));
    }
    let mut server = serve(&directory, &settings)?;
    for _ in 0..3 {
        ids.extend(server.client().ids(&format!("{FLAKES}?count=10"))?);
        server.restart()?;
    }
    ids.extend(server.client().ids(FLAKES)?);
    let left = figure(&server.client(), "unalike_lease_left_seconds")?;
    assert!(left > 1e9, "to the end of the layout, and not of the piece in hand: {left}");
    assert!(ids.is_sorted_by(|one, other| one < other) && ids.iter().all(|&id| worker_of(id) == 7), "{ids:?}");
    // Another process, another number, another layout.
    refuses(&directory, &with(&["next", "default", "--snowflake"]), &["worker"]);
    server.kill9()?;
    // One that was not begun says how it is.
    std::fs::write(directory.path().join("unalike.toml"), "[snowflakes.web]\nlayout = \"twitter\"\n")?;
    let web = with(&["--config", "unalike.toml", "next", "web", "--snowflake"]);
    refuses(&directory, &web, &["unalike leases init NAMESPACE", "\"web\""]);
    let other = ["--leases", "none", "--unsafe-static-worker", "--worker", "8", "--local-leases", "worker"];
    refuses(&directory, &[&other[..], &["next", "default", "--snowflake"]].concat(), &["7", "8"]);
    std::fs::write(directory.path().join("unalike.toml"), "[snowflakes.default]\nlayout = \"leaf\"\n")?;
    refuses(&directory, &with(&["--config", "unalike.toml", "next", "default", "--snowflake"]), &["layout"]);
    let listed = listed(&directory, &settings)?;
    let [lease] = &listed[..] else { anyhow::bail!("{listed:?}") };
    assert_eq!(
        (lease.worker, lease.holder.as_str(), &lease.until[..4], lease.state.as_str()),
        (7, "-", "2080", "running")
    );
    refuses(&directory, &with(&["leases", "release", "default", "7"]), &["7", "stop its process"]);
    Ok(())
}
