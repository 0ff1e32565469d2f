//! Nodes on each store under faults, for some seconds: `cargo run --bin soak` runs it longer. And the node by itself.

#![expect(clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use unalike_tests::faults::{Report, Soak, StoreKind};
use unalike_tests::server::binary;

fn soak(store: StoreKind, control: bool) -> anyhow::Result<Report> {
    Soak { store, seed: 20_101_104, nodes: 4, duration: Duration::from_secs(8), control }.run()
}

fn stands(store: StoreKind) -> anyhow::Result<()> {
    let report = soak(store, false)?;
    assert!(report.is_valid(), "{report}");
    assert!(report.sequence.acknowledged > 1_000 && report.snowflake.acknowledged > 1_000, "{report}");
    assert!(report.faults.len() > 3, "{report}");
    Ok(())
}

#[test]
fn no_id_comes_twice_on_sqlite() -> anyhow::Result<()> {
    stands(StoreKind::Sqlite)
}

#[test]
fn no_id_comes_twice_on_mariadb() -> anyhow::Result<()> {
    stands(StoreKind::MariaDb)
}

#[test]
fn no_id_comes_twice_on_postgres() -> anyhow::Result<()> {
    stands(StoreKind::Postgres)
}

#[test]
fn no_id_comes_twice_on_redis() -> anyhow::Result<()> {
    stands(StoreKind::Redis)
}

#[test]
fn no_id_comes_twice_on_etcd() -> anyhow::Result<()> {
    stands(StoreKind::Etcd)
}

#[test]
fn a_node_with_another_store_is_found_out() -> anyhow::Result<()> {
    let report = soak(StoreKind::Sqlite, true)?;
    assert!(!report.is_valid() && report.sequence.duplicated_count > 0, "{report}");
    assert!(report.to_string().contains(":valid? false"), "{report}");
    Ok(())
}

/// What a node answers to these lines, and says on its standard error.
fn node(lines: &[&str]) -> anyhow::Result<(Vec<Value>, String)> {
    let directory = TempDir::new()?;
    let mut node = Command::new(binary()?)
        .current_dir(&directory)
        .arg("maelstrom")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    // One that has ended takes no more.
    let _ = node.stdin.take().context("its input")?.write_all(lines.join("\n").as_bytes());
    let output = node.wait_with_output()?;
    let answers = String::from_utf8(output.stdout)?;
    let answers = answers.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    Ok((answers, String::from_utf8(output.stderr)?))
}

#[test]
fn a_node_speaks_as_maelstrom_does() -> anyhow::Result<()> {
    let (answers, _) = node(&[
        r#"{"src":"c0","dest":"n7","body":{"type":"init","msg_id":1,"node_id":"n7","node_ids":["n7","n8"]}}"#,
        r#"{"id":5,"src":"c4","dest":"n7","body":{"type":"generate","msg_id":2}}"#,
        r#"{"src":"c4","dest":"n7","body":{"type":"generate","msg_id":3}}"#,
        r#"{"src":"c4","dest":"n7","body":{"type":"broadcast","msg_id":4,"message":9}}"#,
    ])?;
    assert_eq!(answers.len(), 4, "{answers:?}");
    let of = |id: u64| answers.iter().find(|answer| answer["body"]["in_reply_to"] == json!(id)).unwrap_or(&Value::Null);
    assert_eq!(*of(1), json!({"src": "n7", "dest": "c0", "body": {"type": "init_ok", "in_reply_to": 1}}));
    // Both are answered at once.
    let ids = [2, 3].map(|call| of(call)["body"]["id"].as_u64().unwrap_or_default());
    assert!(ids == [1, 2] || ids == [2, 1], "{ids:?}");
    let answer = json!({"type": "generate_ok", "in_reply_to": 2, "id": ids[0]});
    assert_eq!(*of(2), json!({"src": "n7", "dest": "c4", "body": answer}));
    assert_eq!((&of(4)["body"]["type"], &of(4)["body"]["code"]), (&json!("error"), &json!(10)));
    Ok(())
}

#[test]
fn a_node_tells_a_line_that_is_no_message() -> anyhow::Result<()> {
    let (answers, said) = node(&["hello"])?;
    assert_eq!(answers, [Value::Null; 0]);
    assert!(said.contains("\"hello\"") && said.contains("generate"), "{said}");
    let long = "x".repeat(70_000);
    let (_, said) = node(&[&long])?;
    assert!(said.contains("65536 bytes"), "{said}");
    Ok(())
}
