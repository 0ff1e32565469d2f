//! `unalike doctor`, over stores that are well and stores that are not.

#![expect(clippy::unwrap_used, clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;
use unalike_tests::etcd::Etcd;
use unalike_tests::mariadb::MariaDb;
use unalike_tests::postgres::Postgres;
use unalike_tests::redis::{Persistence, Redis};
use unalike_tests::server::{Server, ok, run};

/// What is found, by subject and verdict: `clock wrong`.
fn findings(at: &Path, arguments: &[&str], code: i32) -> Vec<(String, String)> {
    let ran = run(at, [&["doctor", "--json"], arguments].concat()).unwrap();
    assert_eq!(ran.code, Some(code), "{ran:?}");
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    let findings = report.get("findings").and_then(Value::as_array).unwrap();
    let text = |finding: &Value, member: &str| finding[member].as_str().unwrap().to_owned();
    let count = |verdict: &str| findings.iter().filter(|finding| finding["verdict"] == json!(verdict)).count();
    let counted = [report.get("wrong"), report.get("risks")];
    assert_eq!(counted, [Some(&json!(count("wrong"))), Some(&json!(count("risk")))], "{report}");
    assert_eq!(code, i32::from(count("wrong") > 0), "{report}");
    findings
        .iter()
        .map(|finding| {
            let subject = format!("{} {}", text(finding, "subject"), text(finding, "verdict"));
            (subject, text(finding, "finding"))
        })
        .collect()
}

#[track_caller]
fn assert_found(findings: &[(String, String)], subject: &str, part: &str) {
    let is_it = |(known, finding): &(String, String)| known == subject && finding.contains(part);
    assert!(findings.iter().any(is_it), "{subject}: {part}: {findings:#?}");
}

#[test]
fn a_server_that_is_well_is_told_so() -> anyhow::Result<()> {
    let server = Server::start()?;
    assert_eq!(server.client().get("/v1/sequences/order/ids")?.ids()?, [1]);
    server.client().get("/v1/snowflakes/default/ids")?;
    let found = findings(server.directory(), &[], 0);
    assert_found(&found, "configuration ok", "there is no file");
    assert_found(&found, "port ok", "127.0.0.1:8080 is reached from this machine only");
    assert_found(&found, "store ok", "answers within");
    assert_found(&found, "store ok", "its identity is ");
    assert_found(&found, "tags ok", "1 of 1000000");
    server.client().get("/v1/sequences/order/ids?sub=one")?;
    assert_found(&findings(server.directory(), &[], 0), "tags ok", "1 of 1000000");
    assert_found(&found, "snowflakes ok", "lasts until 2080-07-10");
    assert_found(&found, "leases ok", "1 of 1024 workers of \"default\" are leased");
    // Nothing was granted.
    assert_eq!(server.client().get("/v1/sequences/order/ids")?.ids()?, [2]);
    let table = ok(server.directory(), &["doctor"]);
    assert!(table.starts_with("VERDICT  SUBJECT") && !table.contains("WRONG"), "{table}");
    Ok(())
}

#[test]
fn what_a_server_would_not_start_with_is_wrong() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    let at = directory.path();
    std::fs::write(
        at.join("tokens.toml"),
        "[[tokens]]\nname = \"a\"\ntoken = \"0123456789abcdef\"\nscope = \"read\"\n",
    )?;
    for (text, subject, part) in [
        ("count_max = 0", "configuration wrong", "count_max"),
        ("listen = \"0.0.0.0:8080\"", "configuration wrong", "--tokens"),
        ("store = \"mysql://ids@127.0.0.1:1/ids\"", "store wrong", "127.0.0.1:1"),
        ("[snowflakes.old]\nlayout = \"baidu\"", "snowflakes wrong", "ended at "),
        ("store = \"sqlite:///proc/no/ids.sqlite\"", "configuration wrong", "/proc/no"),
    ] {
        std::fs::write(at.join("unalike.toml"), text)?;
        assert_found(&findings(at, &["--config", "unalike.toml"], 1), subject, part);
    }
    let ran = run(at, ["doctor", "--config", "unalike.toml"])?;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), "unalike: one thing is wrong\n"), "{ran:?}");
    assert!(ran.stdout.contains("WRONG    configuration  the store sqlite:///proc/no/ids.sqlite"), "{ran:?}");
    Ok(())
}

#[test]
fn a_store_that_has_not_begun_waits_for_its_first_start() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    let [maria, postgres, etcd] =
        [MariaDb::shared()?.database()?, Postgres::shared()?.database()?, Etcd::shared()?.url()];
    for store in ["sqlite://ids.sqlite", &maria, &postgres, &etcd] {
        let found = findings(directory.path(), &["--store", store], 0);
        assert_found(&found, "store risk", "nothing was stored yet");
    }
    assert_eq!(std::fs::read_dir(directory.path())?.count(), 0);
    Ok(())
}

#[test]
fn a_store_that_lost_its_table_of_tags_is_wrong() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    let (maria, postgres) = (MariaDb::shared()?, Postgres::shared()?);
    for is_postgres in [false, true] {
        let url = if is_postgres { postgres.database()? } else { maria.database()? };
        ok(directory.path(), &["--store", &url, "next", "order"]);
        let database = url.rsplit_once('/').unwrap().1;
        let drop = "DROP TABLE unalike_tag";
        let _dropped = if is_postgres { postgres.sql(database, drop)? } else { maria.sql(database, drop)? };
        let found = findings(directory.path(), &["--store", &url], 1);
        assert_found(&found, "store wrong", "has begun: restore it from a backup");
    }
    Ok(())
}

#[test]
fn no_table_is_made_beside_those_of_another_system() -> anyhow::Result<()> {
    let server = MariaDb::shared()?;
    let url = server.database()?;
    let database = url.rsplit_once('/').unwrap().1;
    server.sql(
        database,
        "CREATE TABLE leaf_alloc (biz_tag VARCHAR(128) PRIMARY KEY, max_id BIGINT NOT NULL, step INT NOT NULL, \
         description VARCHAR(256), update_time TIMESTAMP)",
    )?;
    let directory = TempDir::new()?;
    findings(directory.path(), &["--store", &format!("{url}?dialect=leaf")], 0);
    assert_eq!(server.sql(database, "SHOW TABLES")?.trim(), "leaf_alloc");
    Ok(())
}

#[test]
fn what_may_go_wrong_is_a_risk() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    let at = directory.path();
    ok(at, &["next", "nearly"]);
    ok(at, &["tags", "raise", "nearly", "9000000000000000000", "--yes"]);
    let token = "[[tokens]]\nname = \"a\"\ntoken = \"0123456789abcdef\"\nscope = \"read\"\nexpires = 2020-01-01\n";
    std::fs::write(at.join("tokens.toml"), token)?;
    let config = "listen = \"0.0.0.0:8080\"\ntokens = \"tokens.toml\"\ntags_max = 1\n[tags.invoce]\nids_per_s = 5\n";
    std::fs::write(at.join("unalike.toml"), config)?;
    let found = findings(at, &["--config", "unalike.toml"], 0);
    assert_found(&findings(at, &["--listen", "0.0.0.0:1", "--insecure-no-auth"], 0), "port risk", "--insecure-no-auth");
    assert_found(&found, "port risk", "without encryption");
    assert_found(&found, "tokens risk", "the token \"a\" expired at 2020-01-01");
    assert_found(&found, "tokens risk", "chmod 600");
    assert_found(&found, "tags risk", "\"nearly\" was granted up to ");
    assert_found(&found, "tags risk", "tags_max");
    assert_found(&found, "tags risk", "\"invoce\", and there is no such tag yet");
    Ok(())
}

#[test]
fn clocks_that_differ_are_told() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    let at = directory.path();
    let (maria, postgres) = (MariaDb::shared()?, Postgres::shared()?);
    for store in [maria.database()?, postgres.database()?] {
        ok(at, &["--store", &store, "next", "default", "--snowflake"]);
        assert_found(&findings(at, &["--store", &store], 0), "clock ok", "this clock is ");
    }
    let redis = Redis::start_with_a_clock(Persistence::AofAlways)?;
    let leases = redis.url(0, "");
    ok(at, &["next", "order"]);
    for (ahead_ms, code, subject, part) in [
        (0, 0, "clock ok", "this clock is "),
        (-8_000, 0, "clock risk", "ahead of that of the lease store"),
        (60_000, 1, "clock wrong", "behind that of the lease store"),
    ] {
        redis.set_clock(ahead_ms)?;
        let arguments = ["--leases", &leases, "--backing", "none"];
        assert_found(&findings(at, &arguments, code), subject, part);
    }
    Ok(())
}
