//! Stores without generators, for languages that have their own.

use anyhow::{Context, Result};
use tempfile::TempDir;
use unalike::{Clock as _, SystemClock};
use unalike_bindings::{HostOptions, Stores};
use unalike_storage::{Layout, LeaseAcquire, LeaseExtend, TailRelease};

fn open(directory: &TempDir, more: &str) -> Result<Stores> {
    let json = format!(r#"{{"store": "sqlite://{}/ids.sqlite"{more}}}"#, directory.path().display());
    Ok(Stores::open(&HostOptions::read(&json)?)?)
}

#[test]
fn numbers_and_workers_are_granted_until_the_stores_are_closed() -> Result<()> {
    let directory = TempDir::new()?;
    let stores = open(&directory, "")?;
    let first = stores.ask(|store| async move { store.allocate("order", 10, 0).await })?;
    let tail = TailRelease { start: 6, version: first.version };
    assert!(stores.ask(|store| async move { store.release("order", tail).await })?);
    let now_ms = SystemClock.now_ms();
    let acquire = LeaseAcquire {
        namespace: "default".to_owned(),
        layout: Layout::TWITTER,
        holder: String::new(),
        preferred_worker: Some(7),
        now_ms,
        horizon_ms: 60_000,
    };
    let lease = stores.ask_leases(|leases| async move { leases.acquire(&acquire).await })?;
    assert_eq!(lease.worker, 7);
    let extend = LeaseExtend {
        namespace: "default".to_owned(),
        layout: Layout::TWITTER,
        worker: 8,
        grant_id: lease.grant_id,
        now_ms,
        horizon_ms: 60_000,
    };
    let lost =
        stores.ask_leases(|leases| async move { leases.extend(&extend).await }).err().context("another worker")?;
    assert_eq!((lost.kind, lost.store_kind, lost.is_retryable), ("store", Some("lease-lost"), true));
    assert!(stores.address().is_none_or(|address| address.ends_with("ids.sqlite")));
    stores.close()?;
    stores.close()?;
    let closed =
        stores.ask(|store| async move { store.allocate("order", 1, 0).await }).err().context("it is closed")?;
    assert_eq!(closed.kind, "store", "{closed}");
    drop(stores);
    let again = open(&directory, r#", "leases": "none""#)?;
    assert_eq!(again.ask(|store| async move { store.allocate("order", 1, 0).await })?.start, 6);
    let none = again.ask_leases(|leases| async move { leases.namespaces().await }).err().context("there are none")?;
    assert_eq!((none.kind, none.store_kind), ("options", None));
    assert!(none.message.contains("nothing leases workers here"), "{none}");
    Ok(())
}

#[test]
fn a_panic_is_an_error_and_the_stores_go_on() -> Result<()> {
    let directory = TempDir::new()?;
    let stores = open(&directory, "")?;
    let failed = stores.ask::<u64, _>(|_| async { panic!("said the test") }).err().context("it panicked")?;
    assert_eq!((failed.kind, failed.may_have_granted), ("panic", true));
    let failed = stores.ask(|store| {
        assert!(store.address().is_some_and(|_| false), "said the test");
        async move { store.allocate("order", 1, 0).await }
    });
    assert_eq!(failed.err().context("it panicked")?.kind, "panic");
    assert_eq!(stores.ask(|store| async move { store.allocate("order", 1, 0).await })?.start, 1);
    Ok(())
}
