//! What an operator is told while something is wrong: readiness, the figures that alerts are made of, and that it is
//! over. Those of leases and clocks are in `leases`.

#![expect(clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use std::io::{BufRead, BufReader, Write};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::json;
use tempfile::TempDir;
use unalike_tests::PATIENCE;
use unalike_tests::clock::FakeClock;
use unalike_tests::mariadb::MariaDb;
use unalike_tests::server::{Answer, Client, Server};

const READY: &str = r#"{"status":"ready"}"#;

/// Changes a file of SQLite's beside the server that has it open.
fn sqlite(server: &Server, statement: &str) -> anyhow::Result<()> {
    let program =
        "import sqlite3, sys; file = sqlite3.connect(sys.argv[1], 30); file.execute(sys.argv[2]); file.commit()";
    let path = server.directory().join("unalike.sqlite");
    let ran = Command::new("python3").args(["-c", program]).arg(path).arg(statement).output()?;
    ensure!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    Ok(())
}

/// Waits until it is ready, or until it is not.
fn until_ready(client: &Client, is_so: impl Fn(&Answer) -> bool) -> anyhow::Result<Answer> {
    let began = Instant::now();
    loop {
        let answer = client.get("/health/ready")?;
        if is_so(&answer) {
            return Ok(answer);
        }
        ensure!(began.elapsed() < PATIENCE, "{answer:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The sum of the figures whose line begins so.
fn figure(client: &Client, beginning: &str) -> anyhow::Result<f64> {
    let text = client.get("/metrics")?.body;
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with(beginning)).collect();
    ensure!(!lines.is_empty(), "there is no {beginning}:\n{text}");
    lines.iter().map(|line| Ok(line.rsplit(' ').next().context("no figure")?.parse::<f64>()?)).sum()
}

/// A tag whose segments have ten numbers, none of them fetched ahead.
fn create_few(client: &Client, tag: &str) -> anyhow::Result<()> {
    let options = json!({
        "tag": tag, "step": { "policy": "fixed", "step": 10 }, "refill": { "policy": "remaining", "count": 0 },
    });
    let created = client.send_json("POST", "/v1/tags", &options)?;
    ensure!(created.status == 201, "{created:?}");
    Ok(())
}

/// Asks very often for ids of a tag that gets none: were each of these to wait, it would take the day.
fn all_refused_at_once(client: &Client, tag: &str, status: u16) -> anyhow::Result<()> {
    for _ in 0..200 {
        let answer = client.get(&format!("/v1/sequences/{tag}/ids"))?;
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!(answer.header("retry-after"), (status == 503).then_some("1"), "{answer:?}");
    }
    Ok(())
}

/// None of these requests could be answered within a test if it waited.
const WAITING: [&str; 4] = ["--wait-max-ms", "30000", "--request-timeout-ms", "30000"];

#[test]
fn a_store_that_grants_nothing_is_not_ready_although_it_answers() -> anyhow::Result<()> {
    let server = Server::start_with(WAITING)?;
    let client = server.client();
    create_few(&client, "few")?;
    assert_eq!(client.ids("/v1/sequences/few/ids?count=5")?.len(), 5);
    assert_eq!(client.ids("/v1/sequences/order/ids")?, [1]);
    assert_eq!(until_ready(&client, |answer| answer.status == 200)?.body, READY);
    assert_eq!(figure(&client, "unalike_store_down_seconds ")?, 0.0);

    // Transactions can begin, and no grant can be written.
    sqlite(&server, "CREATE TRIGGER broken BEFORE UPDATE ON tag BEGIN SELECT RAISE(ABORT, 'broken'); END")?;
    assert_eq!(client.ids("/v1/sequences/few/ids?count=5")?.len(), 5, "what was granted before lasts");
    let answer = client.get("/v1/sequences/few/ids")?;
    assert_eq!((answer.status, answer.problem()?.as_str()), (500, "store-refused"), "{answer:?}");
    let unready = until_ready(&client, |answer| answer.status != 200)?;
    assert_eq!(unready.json()?["tag"], "few", "{unready:?}");
    assert!(figure(&client, "unalike_store_down_seconds ")? > 0.0);
    assert_eq!(client.ids("/v1/sequences/order/ids")?, [2], "others go on with what they have");
    all_refused_at_once(&client, "few", 500)?;

    // It goes on by itself: nobody asks for ids.
    sqlite(&server, "DROP TRIGGER broken")?;
    assert_eq!(until_ready(&client, |answer| answer.status == 200)?.body, READY);
    assert_eq!(figure(&client, "unalike_store_down_seconds ")?, 0.0);
    assert_eq!(client.ids("/v1/sequences/few/ids")?, [11], "and nothing was lost by the tries");
    let log = server.log()?;
    assert_eq!(
        (log.matches("the store is down").count(), log.matches("the store answers again").count()),
        (1, 1),
        "{log}"
    );
    Ok(())
}

#[test]
fn a_row_that_is_locked_counts_as_soon_as_its_callers_wait() -> anyhow::Result<()> {
    let mariadb = MariaDb::start()?;
    let url = mariadb.database()?;
    let database = url.rsplit('/').next().unwrap();
    let store = format!("{url}?request-timeout-ms=20000");
    let server = Server::start_with([&["--store", store.as_str()], &WAITING[..]].concat())?;
    let client = server.client();
    create_few(&client, "few")?;
    assert_eq!(client.ids("/v1/sequences/few/ids?count=5")?.len(), 5);
    assert_eq!(client.ids("/v1/sequences/order/ids")?, [1]);
    assert_eq!(until_ready(&client, |answer| answer.status == 200)?.body, READY);

    let held = mariadb.begin(database, "UPDATE unalike_tag SET tag = tag WHERE tag = 'few'")?;
    std::thread::scope(|scope| -> anyhow::Result<()> {
        // The second one waits.
        let waiting = {
            let client = server.client();
            scope.spawn(move || {
                client.get("/v1/sequences/few/ids?count=5").and_then(|_| client.get("/v1/sequences/few/ids"))
            })
        };
        let unready = until_ready(&client, |answer| answer.status != 200)?;
        assert_eq!((unready.status, &unready.json()?["tag"]), (503, &json!("few")), "{unready:?}");
        assert!(figure(&client, "unalike_store_down_seconds ")? > 0.0);
        all_refused_at_once(&client, "few", 503)?;
        assert_eq!(client.ids("/v1/sequences/order/ids")?, [2], "others go on");
        held.roll_back()?;
        // It waited for the row, or was told to come back.
        assert!(matches!(waiting.join().unwrap()?.status, 200 | 503));
        Ok(())
    })?;
    assert_eq!(until_ready(&client, |answer| answer.status == 200)?.body, READY);
    assert_eq!(client.get("/v1/sequences/few/ids")?.status, 200);
    Ok(())
}

#[test]
fn a_table_that_is_gone_is_noticed() -> anyhow::Result<()> {
    let mariadb = MariaDb::start()?;
    let url = mariadb.database()?;
    let database = url.rsplit('/').next().unwrap();
    let server = Server::start_with([&["--store", url.as_str()], &WAITING[..]].concat())?;
    let client = server.client();
    assert_eq!(client.get("/v1/sequences/order/ids")?.status, 200);
    mariadb.sql(database, "RENAME TABLE unalike_tag TO gone")?;
    // Only tags that were never asked for: what the server has of the other lasts.
    until_ready(&client, |answer| {
        assert_ne!(client.get("/v1/sequences/new/ids").unwrap().status, 200);
        answer.status != 200
    })?;
    assert!(figure(&client, "unalike_store_down_seconds ")? > 0.0);
    assert!(figure(&client, "unalike_http_requests_total{route=\"/v1/sequences/:tag/ids\",status=\"5")? >= 1.0);
    mariadb.sql(database, "RENAME TABLE gone TO unalike_tag")?;
    assert_eq!(until_ready(&client, |answer| answer.status == 200)?.body, READY);
    assert_eq!(client.get("/v1/sequences/new/ids")?.status, 200);
    Ok(())
}

#[test]
fn one_tag_that_is_refused_makes_no_server_unready() -> anyhow::Result<()> {
    let server = Server::start()?;
    let client = server.client();
    assert_eq!(client.ids("/v1/sequences/order/ids")?, [1]);
    for tag in ["a%0Ab", "%00"] {
        assert_eq!(client.get(&format!("/v1/sequences/{tag}/ids"))?.status, 400);
    }
    sqlite(
        &server,
        "INSERT INTO tag (tag, start, mode, step_policy, step, refill_policy, refill, grant_start, settled, watermark) VALUES ('odd', 1, 'buffered', 'fixed', -5, 'remaining', 0, 1, 0, 0)",
    )?;
    let odd = client.get("/v1/sequences/odd/ids")?;
    assert!(odd.status >= 400, "{odd:?}");
    // Longer than an answer is kept.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        assert_eq!(client.get("/health/ready")?.body, READY);
        client.get("/v1/sequences/odd/ids")?;
    }
    Ok(())
}

#[test]
fn a_clock_that_goes_back_is_told() -> anyhow::Result<()> {
    let clock = Arc::new(FakeClock::start()?);
    let server = Server::start_with_clock(Arc::new(TempDir::new()?), Vec::new(), Arc::clone(&clock))?;
    let client = server.client();
    client.ids("/v1/snowflakes/default/ids")?;
    assert_eq!(figure(&client, "unalike_clock_backward_total ")?, 0.0);
    // Within what the policy keeps, and beyond it.
    clock.set(-1_500)?;
    client.ids("/v1/snowflakes/default/ids")?;
    // The scrape may be who notices. What it counts stays.
    assert!(figure(&client, "unalike_clock_backward_total ")? >= 1.0);
    assert!(figure(&client, "unalike_clock_backward_total ")? >= 1.0);
    let text = client.get("/metrics")?.body;
    let mut names: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "a figure stands there twice: {text}");
    assert!(figure(&client, "unalike_snowflake_ahead_seconds{")? > 0.1);
    // By less than a horizon, beyond which another worker is taken.
    clock.set(-30_000)?;
    assert_eq!(client.get("/v1/snowflakes/default/ids")?.problem()?, "clock-wrong");
    assert!(figure(&client, "unalike_lease_troubles_total{trouble=\"clock_moved_back\"}")? >= 1.0);
    assert!(figure(&client, "unalike_snowflake_refused_total{")? >= 1.0);
    Ok(())
}

#[test]
fn requests_connections_tokens_and_the_process_are_counted() -> anyhow::Result<()> {
    const TOKEN: &str = "a-token-that-may-do-everything";
    let directory = Arc::new(TempDir::new()?);
    let file = format!("[[tokens]]\nname = \"all\"\ntoken = \"{TOKEN}\"\nscope = \"admin\"\n");
    std::fs::write(directory.path().join("tokens.toml"), file)?;
    let flags = ["--tokens", "tokens.toml", "--connections-max", "3"];
    let server = Server::start_in(directory, flags.map(str::to_owned).to_vec())?;
    let client = server.client().with_token(TOKEN);
    for tag in ["a", "b", "c"] {
        assert_eq!(client.get(&format!("/v1/sequences/{tag}/ids"))?.status, 200);
        assert_eq!(client.get(&format!("/v1/sequences/{tag}/ids"))?.status, 200);
    }
    assert_eq!(client.get("/v1/sequences/a/ids?count=0")?.status, 400);
    assert_eq!(client.get("/nobody/knows/this")?.status, 404);
    assert_eq!(client.get("/v1/tags/a")?.status, 200);
    let ids = "unalike_http_requests_total{route=\"/v1/sequences/:tag/ids\"";
    for (beginning, expected) in [
        (format!("{ids},status=\"200\"}}"), 6.0),
        (format!("{ids},status=\"400\"}}"), 1.0),
        ("unalike_http_requests_total{route=\"none\",status=\"404\"}".to_owned(), 1.0),
        ("unalike_http_requests_total{route=\"/v1/tags/:tag\",status=\"200\"}".to_owned(), 1.0),
        ("unalike_http_request_seconds_count{route=\"/v1/sequences/:tag/ids\"}".to_owned(), 7.0),
        ("unalike_http_request_seconds_bucket{route=\"/v1/sequences/:tag/ids\",le=\"+Inf\"}".to_owned(), 7.0),
        ("unalike_connections_open ".to_owned(), 1.0),
        ("unalike_connections_refused_total ".to_owned(), 0.0),
        ("unalike_tokens_refused_total{".to_owned(), 0.0),
        ("unalike_grants_abandoned_total{".to_owned(), 0.0),
        ("unalike_lanes_rebuilt_total ".to_owned(), 0.0),
    ] {
        assert_eq!(figure(&client, &beginning)?, expected, "{beginning}");
    }
    let stranger = server.client();
    assert_eq!(stranger.get("/v1/sequences/a/ids")?.status, 401);
    assert_eq!(stranger.with_token("another-token-of-nobody").get("/v1/sequences/a/ids")?.status, 401);
    assert_eq!(figure(&client, "unalike_tokens_refused_total{reason=\"missing\"}")?, 1.0);
    assert_eq!(figure(&client, "unalike_tokens_refused_total{reason=\"unknown\"}")?, 1.0);
    assert!(figure(&client, "unalike_connections_accepted_total ")? >= 2.0);
    // All places but that of the client are taken, and one more comes.
    let mut taken = Vec::new();
    loop {
        let mut connection = server.connect()?;
        connection.write_all(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
        let mut connection = BufReader::new(connection);
        let mut line = String::new();
        connection.read_line(&mut line)?;
        taken.push(connection);
        if line.starts_with("HTTP/1.1 503") {
            break;
        }
    }
    assert!(figure(&client, "unalike_connections_refused_total ")? >= 1.0);
    let files = figure(&client, "process_open_fds ")?;
    assert!(files >= 3.0 && files < figure(&client, "process_max_fds ")?, "{files}");
    let resident = figure(&client, "process_resident_memory_bytes ")?;
    assert!(resident > 1e6 && resident < figure(&client, "process_virtual_memory_bytes ")?, "{resident}");
    assert!(figure(&client, "process_threads ")? >= 2.0);
    let started = figure(&client, "process_start_time_seconds ")?;
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed()?.as_secs_f64();
    assert!((now - 600.0..now + 2.0).contains(&started), "{started} at {now}");
    Ok(())
}
