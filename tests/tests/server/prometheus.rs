//! The alerts and the dashboard in `packaging`, with Prometheus itself.

#![expect(clippy::unwrap_used, clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;
use unalike_tests::clock::FakeClock;
use unalike_tests::hosts::repository;
use unalike_tests::mariadb::MariaDb;
use unalike_tests::prometheus::{Prometheus, promtool};
use unalike_tests::server::Server;

const ADMIN: &str = "admin-0123456789abcdef";
const ORDER: &str = "/v1/sequences/order/ids?count=100";
const SNOWFLAKE: &str = "/v1/snowflakes/default/ids";

fn packaging() -> PathBuf {
    repository().join("host/server/packaging")
}

fn alerts() -> String {
    std::fs::read_to_string(packaging().join("alerts.yml")).unwrap()
}

/// The same alerts, which fire at once and clear after some seconds.
fn quick_alerts() -> String {
    let lines = alerts();
    let lines = lines.lines().filter(|line| !line.trim_start().starts_with("for: "));
    lines.collect::<Vec<_>>().join("\n").replace("[1m]", "[3s]").replace("[5m]", "[3s]").replace("[10m]", "[3s]")
}

/// A server with these flags and tokens, and a Prometheus that watches it.
fn watched(flags: &[&str], tokens: &str, clock: Option<Arc<FakeClock>>) -> anyhow::Result<(Server, Prometheus)> {
    let directory = Arc::new(TempDir::new()?);
    let admin = format!("[[tokens]]\nname = \"admin\"\ntoken = \"{ADMIN}\"\nscope = \"admin\"\n");
    std::fs::write(directory.path().join("tokens.toml"), admin + tokens)?;
    let flags = [&["--tokens", "tokens.toml"], flags].concat().into_iter().map(str::to_owned).collect();
    let server = match clock {
        Some(clock) => Server::start_with_clock(directory, flags, clock)?,
        None => Server::start_in(directory, flags)?,
    };
    let target = server.url().strip_prefix("http://").unwrap();
    let prometheus = Prometheus::start(&quick_alerts(), &[target], ADMIN)?;
    Ok((server, prometheus))
}

/// The names of figures in a query.
fn figures(query: &str) -> impl Iterator<Item = &str> {
    let words = query.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("unalike_") || word.starts_with("process_"))
}

#[test]
fn each_alert_is_sound_and_speaks_of_figures_that_exist() -> anyhow::Result<()> {
    promtool(&packaging(), &["check", "rules", "alerts.yml"])?;
    promtool(&packaging(), &["test", "rules", "alerts_test.yml"])?;
    let tried = std::fs::read_to_string(packaging().join("alerts_test.yml"))?;
    let known = std::fs::read_to_string(repository().join("host/server/metrics.md"))?;
    let alerts = alerts();
    for line in alerts.lines().map(str::trim) {
        if let Some(alert) = line.strip_prefix("- alert: ") {
            assert!(tried.contains(&format!("alertname=\"{alert}\"")), "{alert} is not tried in alerts_test.yml");
        }
        for figure in line.strip_prefix("expr: ").into_iter().flat_map(figures) {
            assert!(known.contains(&format!("| `{figure}` |")), "metrics.md has no {figure}: {line}");
        }
    }
    Ok(())
}

#[test]
fn a_store_that_is_gone_is_told_and_that_it_is_back() -> anyhow::Result<()> {
    let (server, prometheus) = watched(&["--wait-max-ms", "100"], "", None)?;
    let client = server.client().with_token(ADMIN);
    let ask = || {
        client.get(ORDER)?;
        client.get(SNOWFLAKE).map(drop)
    };
    ask()?;
    prometheus.until_quiet(ask)?;
    let locked = server.lock_store()?;
    // Some come once, and for a moment: they are looked for together.
    let short = ["UnalikeStoreDown", "UnalikeCoverShort", "UnalikeErrors", "UnalikeLeaseEnding"];
    let stopped = ["UnalikeSnowflakeStopped", "UnalikeSnowflakeRefused", "UnalikeLeaseTrouble"];
    prometheus.until_firing(&[&short[..], &stopped].concat(), ask)?;
    drop(locked);
    prometheus.until_quiet(ask)?;
    // Some thousand requests failed, for more than a minute. The log has a line for each begin and end, and some for
    // new reasons.
    server.wait_for_log("no request fails so any more", 2)?;
    let log = server.log()?;
    for (once, count) in [
        ("the store is down", 1),
        ("the store answers again", 1),
        ("the snowflake gives no ids", 1),
        ("the snowflake gives ids again", 1),
        ("a lease was not extended", 1),
        ("the lease has ended", 1),
    ] {
        assert_eq!(log.matches(once).count(), count, "{once}: {log}");
    }
    assert!((1..=4).contains(&log.matches("requests fail").count()), "a line for each kind: {log}");
    assert!(log.matches("requests still fail").count() < 8 && log.lines().count() < 28, "{log}");
    assert!(!log.contains("sqlx"), "what the driver says is in our words: {log}");
    assert!(!log.contains("the store is unavailable: the store is unavailable"), "twice: {log}");
    Ok(())
}

#[test]
fn who_asks_for_what_he_may_not_have_is_told_and_so_is_a_server_that_is_gone() -> anyhow::Result<()> {
    let team = "[[tokens]]\nname = \"team\"\ntoken = \"team-0123456789abcdef\"\nscope = \"read\"\nids_per_s = 1\n";
    let (mut server, prometheus) = watched(&["--connections-max", "20"], team, None)?;
    prometheus.until_quiet(|| Ok(()))?;
    let [stranger, team] = ["stranger-0123456789abcdef", "team-0123456789abcdef"];
    let [stranger, team] = [stranger, team].map(|token| server.client().with_token(token));
    let mut open = Vec::new();
    prometheus.until_firing(&["UnalikeTokensRefused", "UnalikeQuotaReached"], || {
        stranger.get(ORDER)?;
        team.get("/v1/sequences/order/ids").map(drop)
    })?;
    prometheus.until_firing(&["UnalikeConnectionsRefused"], || {
        open.truncate(10);
        while open.len() < 25 {
            open.push(server.connect()?);
        }
        open.truncate(10);
        Ok(())
    })?;
    drop(open);
    prometheus.until_quiet(|| Ok(()))?;
    server.kill9()?;
    prometheus.until_firing(&["UnalikeDown"], || Ok(()))
}

#[test]
fn a_clock_that_goes_back_or_differs_is_told() -> anyhow::Result<()> {
    let clock = Arc::new(FakeClock::start()?);
    let leases = MariaDb::shared()?.database()?;
    let (server, prometheus) = watched(&["--leases", &leases], "", Some(Arc::clone(&clock)))?;
    let client = server.client().with_token(ADMIN);
    let ask = || client.get(SNOWFLAKE).map(drop);
    ask()?;
    prometheus.until_quiet(ask)?;
    // Within the policy, so that ids go on; again and again, as the clock is soon where it was.
    let mut asked = 0;
    prometheus.until_firing(&["UnalikeClockBackward", "UnalikeClockAhead"], || {
        match asked % 50 {
            0 => clock.set(0)?,
            25 => clock.set(-1_900)?,
            _ => {}
        }
        asked += 1;
        ask()
    })?;
    clock.set(0)?;
    prometheus.until_quiet(ask)?;
    // Far from the store's.
    clock.set(40_000)?;
    prometheus.until_firing(&["UnalikeClockSkew"], ask)?;
    clock.set(0)?;
    prometheus.until_quiet(ask)
}

#[test]
fn each_query_of_the_dashboard_has_an_answer() -> anyhow::Result<()> {
    let (server, prometheus) = watched(&[], "", None)?;
    let client = server.client().with_token(ADMIN);
    let dashboard: Value = serde_json::from_slice(&std::fs::read(packaging().join("dashboard.json"))?)?;
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let queries: BTreeSet<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(queries.len() > 15, "{queries:?}");
    for query in queries {
        let query = query.replace("$__rate_interval", "3s").replace("$job", "unalike").replace("$instance", ".*");
        let mut answer = Vec::new();
        let began = std::time::Instant::now();
        while answer.is_empty() {
            client.get(ORDER)?;
            client.get(SNOWFLAKE)?;
            answer = prometheus.query(&query)?;
            anyhow::ensure!(began.elapsed() < unalike_tests::PATIENCE, "{query} has no answer");
        }
    }
    Ok(())
}
