//! Which server it is: standbys that take over, asynchronous and synchronous ones, copies, and other data under the
//! same address.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a fixture that cannot start fails the test")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use unalike_postgres::{PostgresLeases, PostgresOptions, PostgresStore};
use unalike_storage::{
    Layout, LeaseAcquire, LeaseExtend, LeaseStore as _, Segment, SegmentStore as _, StoreError, sub_tag,
};
use unalike_tests::PATIENCE;
use unalike_tests::leases::now_ms;
use unalike_tests::outages::allocate_at_last;
use unalike_tests::postgres::Postgres;
use unalike_tests::refusals::{at_last, refused};

async fn try_open(url: &str) -> Result<PostgresStore, StoreError> {
    PostgresStore::connect(PostgresOptions::from_url(url)?).await
}

async fn open(url: &str) -> PostgresStore {
    try_open(url).await.expect("the store opens")
}

fn options(url: &str) -> PostgresOptions {
    PostgresOptions::from_url(url).unwrap()
}

fn take(seen: &mut BTreeSet<u64>, segment: &Segment) {
    for number in segment.start..segment.end {
        assert!(seen.insert(number), "{number} was granted twice");
    }
}

/// Waits until a standby has all that its primary has written.
fn caught_up(primary: &Postgres, standby: &Postgres) {
    let at = primary.sql("postgres", "SELECT pg_current_wal_lsn()").unwrap();
    let has = format!("SELECT pg_last_wal_replay_lsn() >= '{}'", at.trim());
    let deadline = Instant::now() + PATIENCE;
    while standby.sql("postgres", &has).unwrap().trim() != "t" {
        assert!(Instant::now() < deadline, "the standby lags");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_lacks_a_thousand_commits_is_refused_until_it_is_adopted_with_a_lift() {
    let mut primary = Postgres::start().unwrap();
    let url = primary.database().unwrap();
    let store = open(&url).await;
    let mut seen = BTreeSet::new();
    take(&mut seen, &store.allocate("order", 10, 0).await.unwrap());
    let mut standby = primary.start_standby("standby").unwrap();
    caught_up(&primary, &standby);
    // In recovery it only reads.
    let at_standby = url.replace(&format!(":{}/", primary.port()), &format!(":{}/", standby.port()));
    let error = try_open(&at_standby).await.expect_err("it is a standby");
    assert!(error.is_retryable() && error.to_string().contains("in recovery"), "{error:?}");
    // From here on it receives nothing.
    standby.sql("postgres", "ALTER SYSTEM SET primary_conninfo = ''").unwrap();
    standby.restart().unwrap();
    for nth in 0..1_000 {
        take(&mut seen, &store.allocate("order", 10, 0).await.unwrap());
        if nth == 500 {
            store.allocate("lost", 7, 0).await.unwrap();
        }
    }
    let lost = store.allocate(&sub_tag("order", "user").unwrap(), 9, 0).await.unwrap();
    primary.kill9().unwrap();
    standby.promote().unwrap();
    standby.take_place_of(&primary);
    standby.restart().unwrap();

    // Running and new programs are refused, and the adoption needs a lift.
    let words = ["another one than before", "timeline 2", "timeline 1", "unalike store adopt --lift"];
    refused(at_last(async || store.allocate("order", 10, 0).await).await, &words);
    refused(try_open(&url).await, &words);
    refused(PostgresLeases::connect(options(&url)).await, &words);
    refused(PostgresStore::adopt_server(options(&url), 0).await, &["1 to 2^63 - 1"]);
    let adopted = PostgresStore::adopt_server(options(&url), 20_000).await.unwrap();
    assert_eq!(adopted.tags, 1, "the others are lost");
    refused(PostgresStore::adopt_server(options(&url), 20_000).await, &["the recorded one already"]);

    refused(store.allocate("order", 10, 0).await, &["restart this program"]);
    let store = open(&url).await;
    for _ in 0..100 {
        take(&mut seen, &store.allocate("order", 10, 0).await.unwrap());
    }
    assert!(store.allocate("lost", 7, 0).await.unwrap().start > 20_000, "as it may have been known");
    let again = store.allocate(&sub_tag("order", "user").unwrap(), 9, 0).await.unwrap();
    assert!(again.start >= lost.end, "{again:?} after {lost:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_who_adopt_a_server_at_once_one_does() {
    let mut primary = Postgres::start().unwrap();
    let url = primary.database().unwrap();
    let granted = open(&url).await.allocate("order", 10, 0).await.unwrap();
    let mut standby = primary.start_standby("standby").unwrap();
    primary.kill9().unwrap();
    standby.promote().unwrap();
    standby.take_place_of(&primary);
    standby.restart().unwrap();
    let adoptions: Vec<_> = (0..4)
        .map(|_| {
            let options = options(&url);
            tokio::spawn(async move { PostgresStore::adopt_server(options, 1_000).await })
        })
        .collect();
    let mut done = 0;
    for adoption in adoptions {
        done += u32::from(adoption.await.unwrap().is_ok());
    }
    assert_eq!(done, 1);
    let next = open(&url).await.allocate("order", 10, 0).await.unwrap();
    assert_eq!(next.start, granted.end + 1_000, "it was lifted once");
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_wait_for_all_that_a_lost_server_may_have_granted() {
    let mut primary = Postgres::start().unwrap();
    let url = primary.database().unwrap();
    let leases = PostgresLeases::connect(options(&url)).await.unwrap();
    let acquire = |namespace: &str| LeaseAcquire {
        namespace: namespace.to_owned(),
        holder: "holder".to_owned(),
        layout: Layout::TWITTER,
        preferred_worker: None,
        horizon_ms: 60_000,
        now_ms: now_ms(),
    };
    let before = leases.acquire(&acquire("default")).await.unwrap();
    let standby = primary.start_standby("standby").unwrap();
    caught_up(&primary, &standby);
    primary.kill9().unwrap();
    standby.promote().unwrap();
    let mut standby = standby;
    standby.take_place_of(&primary);
    standby.restart().unwrap();
    let adopted = PostgresStore::adopt_server(options(&url), 1).await.unwrap();
    let leases = PostgresLeases::connect(options(&url)).await.unwrap();
    for namespace in ["default", "new"] {
        let error = leases.acquire(&acquire(namespace)).await.expect_err("it is waited for");
        assert!(
            matches!(error, StoreError::Quarantined { until_ms, .. } if until_ms <= adopted.leases_from_ms),
            "{error:?}"
        );
    }
    let extend = LeaseExtend {
        namespace: "default".to_owned(),
        worker: before.worker,
        grant_id: before.grant_id,
        layout: Layout::TWITTER,
        horizon_ms: 60_000,
        now_ms: now_ms(),
    };
    let error = leases.extend(&extend).await.expect_err("it is from before");
    assert!(matches!(error, StoreError::LeaseLost { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_synchronous_standby_that_is_promoted_goes_on_without_a_lift() {
    let mut primary = Postgres::start().unwrap();
    let url = primary.database().unwrap();
    let at = format!("{url}?failover=synchronous&request-timeout-ms=2000");
    refused(try_open(&at).await, &["synchronous_standby_names is empty"]);
    let mut standby = primary.start_standby("standby").unwrap();
    primary.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = 'standby'").unwrap();
    primary.sql("postgres", "SELECT pg_reload_conf()").unwrap();
    let deadline = Instant::now() + PATIENCE;
    while primary.sql("postgres", "SELECT sync_state FROM pg_stat_replication").unwrap().trim() != "sync" {
        assert!(Instant::now() < deadline, "no standby is synchronous");
        std::thread::sleep(Duration::from_millis(10));
    }
    // A program that does not know of it, and one that has the store wait from now on.
    let ignorant = open(&url).await;
    let mut seen = BTreeSet::new();
    take(&mut seen, &ignorant.allocate("order", 10, 0).await.unwrap());
    let store = open(&at).await;
    refused(ignorant.allocate("order", 10, 0).await, &["restart this program"]);
    let other = open(&format!("{url}?request-timeout-ms=2000")).await;
    for _ in 0..100 {
        take(&mut seen, &store.allocate("order", 10, 0).await.unwrap());
        take(&mut seen, &other.allocate("order", 10, 0).await.unwrap());
    }
    let leases = store.leases().await.unwrap();
    let mut acquire = LeaseAcquire {
        namespace: "default".to_owned(),
        holder: "holder".to_owned(),
        layout: Layout::TWITTER,
        preferred_worker: None,
        horizon_ms: 60_000,
        now_ms: now_ms(),
    };
    let lease = leases.acquire(&acquire).await.unwrap();
    primary.kill9().unwrap();
    standby.promote().unwrap();
    // It waits for a standby of its own now, or grants nothing: a program that has no standby says so.
    standby.take_place_of(&primary);
    standby.restart().unwrap();
    let answer = at_last(async || store.allocate("order", 10, 0).await).await;
    refused(answer, &["synchronous_standby_names is empty", "failover=refused"]);
    refused(try_open(&url).await, &["it took over", "store adopt --lift COUNT", "failover=refused"]);
    let second = standby.start_standby("second").unwrap();
    standby.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = 'second'").unwrap();
    standby.sql("postgres", "SELECT pg_reload_conf()").unwrap();
    let before = seen.len();
    let deadline = Instant::now() + PATIENCE;
    let first = loop {
        match store.allocate("order", 10, 0).await {
            Ok(segment) => break segment,
            Err(error) => assert!(Instant::now() < deadline, "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    take(&mut seen, &first);
    take(&mut seen, &allocate_at_last(&other, "order").await);
    take(&mut seen, &open(&url).await.allocate("order", 10, 0).await.unwrap());
    assert_eq!(seen.len(), before + 30);
    // Leases go on as well.
    acquire.now_ms = now_ms();
    let next = leases.acquire(&acquire).await.unwrap();
    assert!(next.worker != lease.worker || next.not_before_ms >= lease.valid_until_ms);
    let extend = LeaseExtend {
        namespace: "default".to_owned(),
        worker: lease.worker,
        grant_id: lease.grant_id,
        layout: Layout::TWITTER,
        horizon_ms: 60_000,
        now_ms: now_ms(),
    };
    leases.extend(&extend).await.expect("it runs on");

    // Without its standby nothing is granted: the answer does not come.
    drop(second);
    let error = store.allocate("order", 10, 0).await.expect_err("nobody has it");
    assert!(error.may_have_granted(), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_was_not_waited_for_takes_over_with_a_lift_alone() {
    let mut primary = Postgres::start().unwrap();
    let url = primary.database().unwrap();
    let standby = primary.start_standby("standby").unwrap();
    primary.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = 'standby'").unwrap();
    primary.sql("postgres", "SELECT pg_reload_conf()").unwrap();
    let waits = open(&format!("{url}?failover=synchronous")).await;
    waits.allocate("order", 10, 0).await.unwrap();
    // Somebody ends it, for all programs: who knows it otherwise is granted nothing.
    let store = open(&format!("{url}?failover=refused")).await;
    refused(waits.allocate("order", 10, 0).await, &["restart this program"]);
    store.allocate("order", 10, 0).await.unwrap();
    caught_up(&primary, &standby);
    primary.kill9().unwrap();
    standby.promote().unwrap();
    let mut standby = standby;
    standby.take_place_of(&primary);
    standby.restart().unwrap();
    refused(try_open(&url).await, &["unalike store adopt --lift"]);
    refused(try_open(&format!("{url}?failover=synchronous")).await, &["unalike store adopt --lift"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn how_sequences_are_kept_is_nothing_to_tags_in_the_same_database() {
    let primary = Postgres::start().unwrap();
    let url = primary.database().unwrap();
    let standby = primary.start_standby("standby").unwrap();
    primary.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = 'standby'").unwrap();
    primary.sql("postgres", "SELECT pg_reload_conf()").unwrap();
    let store = open(&url).await;
    let granted = store.allocate("order", 10, 0).await.unwrap();
    for failover in ["synchronous", "refused"] {
        drop(open(&format!("{url}?dialect=sequence&failover={failover}")).await);
    }
    assert_eq!(store.allocate("order", 10, 0).await.unwrap().start, granted.end);
    drop(standby);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_data_under_the_same_address_grant_nothing_and_the_same_data_elsewhere_do() {
    let mut first = Postgres::start().unwrap();
    let url = first.database().unwrap();
    let store = open(&url).await;
    let granted = store.allocate("order", 10, 0).await.unwrap();
    // A dump brings the record along, and not the identity.
    let mut other = Postgres::start_other().unwrap();
    let name = url.rsplit_once('/').unwrap().1;
    let dump = first.dump(name).unwrap();
    other.sql("postgres", &format!("CREATE DATABASE {name}")).unwrap();
    other.load(name, &dump).unwrap();
    refused(try_open(&other.url(name)).await, &["another one than before", "system_identifier"]);
    first.kill9().unwrap();
    other.take_place_of(&first);
    other.restart().unwrap();
    let answer = at_last(async || store.allocate("order", 10, 0).await).await;
    refused(answer, &["another one than before"]);
    other.kill9().unwrap();

    // The same data on another port, and back again.
    let moved = first.start_copy().unwrap();
    let at_moved = moved.url(name);
    assert_eq!(open(&at_moved).await.allocate("order", 10, 0).await.unwrap().start, granted.end);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_was_begun_with_an_assumed_identity_is_adopted_before_it_is_checked() {
    let server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    let assumed = format!("{url}?identity=assumed");
    let granted = open(&assumed).await.allocate("order", 10, 0).await.unwrap();
    assert!(open(&assumed).await.create_tag("made", &unalike_storage::TagOptions::default()).await.is_ok());
    refused(try_open(&url).await, &["begun with identity=assumed", "store adopt"]);
    PostgresStore::adopt_server(options(&url), 100).await.unwrap();
    assert_eq!(open(&url).await.allocate("order", 10, 0).await.unwrap().start, granted.end + 100);
}
