//! The server and the command line over etcd: where its stores, passwords and rights come from, and what it does
//! without them.

#![expect(clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use anyhow::ensure;
use tempfile::TempDir;
use unalike_tests::PATIENCE;
use unalike_tests::etcd::Etcd;
use unalike_tests::redis::{Persistence, Redis};
use unalike_tests::server::{Server, ok_over, run_over};

#[test]
fn ids_come_from_etcd() -> anyhow::Result<()> {
    let url = Etcd::shared()?.url();
    let server = Server::start_with(["--store", url.as_str()])?;
    let client = server.client();
    assert_eq!(client.ids("/v1/sequences/order/ids?count=3")?, [1, 2, 3]);
    assert_eq!(client.ids("/v1/sequences/order/ids?sub=a&count=2")?, [1, 2]);
    assert_eq!(client.ids("/v1/snowflakes/default/ids?count=2")?.len(), 2);
    assert_eq!(client.get("/health/ready")?.status, 200);
    let directory = TempDir::new()?;
    assert!(ok_over(&directory, &url, &["tags", "create", "chat", "--ordered"])?.contains("chat"));
    assert_eq!(client.ids("/v1/sequences/chat/ids?count=3")?, [1, 2, 3]);
    assert!(ok_over(&directory, &url, &["tags", "list"])?.contains("chat"));
    assert!(ok_over(&directory, &url, &["leases", "list", "default"])?.lines().count() > 1);
    let mistyped = format!("{url}-2");
    let ran = run_over(&directory, &mistyped, &["tags", "list"])?;
    assert!(ran.code == Some(1) && ran.stderr.contains("nothing was ever handed out here"), "{ran:?}");
    Ok(())
}

#[test]
fn a_user_with_the_rights_that_schema_prints_and_a_password_file_is_enough() -> anyhow::Result<()> {
    let etcd = Etcd::start()?;
    let url = etcd.url();
    let directory = TempDir::new()?;
    let printed = ok_over(&directory, &url, &["schema", "--user", "shop ids"])?;
    assert_eq!(printed.lines().count(), 5, "{printed}");
    etcd.ctl(&["user", "add", "root:root secret"])?;
    etcd.ctl(&["user", "grant-role", "root", "root"])?;
    // As printed, but for the password, which it would ask for.
    let commands = printed.replace("user add '", "user add --interactive=false '");
    etcd.shell(&commands, "a-long-secret\n")?;
    etcd.ctl(&["auth", "enable"])?;
    std::fs::write(directory.path().join("password"), "a-long-secret\n")?;
    let store = format!("{}?password-file=password", url.replace("etcd://", "etcd://shop%20ids@"));
    assert_eq!(ok_over(&directory, &store, &["next", "order", "-n", "2"])?, "1\n2\n");
    std::fs::write(directory.path().join("password"), "another-secret\n")?;
    let ran = run_over(&directory, &store, &["next", "order"])?;
    assert!(ran.code == Some(1) && ran.stderr.contains("denied"), "{ran:?}");
    assert!(!ran.stderr.contains("secret"), "{ran:?}");
    let ran = run_over(&directory, &url, &["next", "order"])?;
    assert!(ran.code == Some(1) && ran.stderr.contains("asks for a user"), "{ran:?}");
    Ok(())
}

#[test]
fn a_server_goes_on_without_etcd_and_by_itself_when_it_is_back() -> anyhow::Result<()> {
    let mut etcd = Etcd::start()?;
    let url = etcd.url();
    let store = format!("{url}?connect-timeout-ms=500&request-timeout-ms=1000");
    let server = Server::start_with(["--store", store.as_str()])?;
    let client = server.client();
    assert_eq!(client.ids("/v1/sequences/order/ids")?, [1]);
    etcd.kill9(0)?;
    assert_eq!(client.ids("/v1/sequences/order/ids")?, [2], "of what is buffered");
    let answer = client.get("/v1/sequences/new/ids")?;
    assert!(answer.status == 503, "{answer:?}");
    etcd.start_again()?;
    let deadline = std::time::Instant::now() + PATIENCE;
    while client.get("/v1/sequences/new/ids")?.status != 200 {
        ensure!(std::time::Instant::now() < deadline, "it does not come back");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Ok(())
}

#[test]
fn a_cluster_that_was_restored_is_adopted_by_command() -> anyhow::Result<()> {
    let mut etcd = Etcd::start()?;
    let url = etcd.url();
    let directory = TempDir::new()?;
    assert_eq!(ok_over(&directory, &url, &["next", "order"])?, "1\n");
    etcd.snapshot("before")?;
    ok_over(&directory, &url, &["next", "order"])?;
    etcd.restore("before", "etcd-cluster")?;
    let ran = run_over(&directory, &url, &["next", "order"])?;
    assert!(ran.code == Some(1) && ran.stderr.contains("restored from a backup"), "{ran:?}");
    let adopted = ok_over(&directory, &url, &["store", "adopt", "--lift", "1000"])?;
    assert!(adopted.contains("tags: 1, each lifted by 1000"), "{adopted}");
    let next: u64 = ok_over(&directory, &url, &["next", "order"])?.trim().parse()?;
    assert!(next > 1_000);
    Ok(())
}

#[test]
fn redis_stands_above_etcd() -> anyhow::Result<()> {
    let url = Etcd::shared()?.url();
    let redis = Redis::start(Persistence::Nothing)?;
    let store = format!("redis://127.0.0.1:{}/0", redis.port());
    let server = Server::start_with(["--store", store.as_str(), "--backing", url.as_str()])?;
    let client = server.client();
    assert_eq!(client.ids("/v1/sequences/order/ids?count=3")?, [1, 2, 3]);
    assert_eq!(client.ids("/v1/snowflakes/default/ids?count=2")?.len(), 2);
    Ok(())
}
