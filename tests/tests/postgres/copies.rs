//! Copies of a store within one server, and copies of a server: what both have in common, and what tells one of them
//! from the other.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use unalike::{Clock as _, SystemClock};
use unalike_postgres::{PostgresLeases, PostgresOptions, PostgresStore};
use unalike_storage::{KEPT_LEASES, LeaseStore as _, SegmentStore as _, StoreError, sub_tag};
use unalike_tests::postgres::Postgres;
use unalike_tests::refusals::{at_last, refused, stays_refused};

fn options(url: &str) -> PostgresOptions {
    PostgresOptions::from_url(url).unwrap()
}

async fn try_open(url: &str) -> Result<PostgresStore, StoreError> {
    PostgresStore::connect(options(url)).await
}

async fn open(url: &str) -> PostgresStore {
    try_open(url).await.unwrap()
}

fn name(url: &str) -> &str {
    url.rsplit_once('/').unwrap().1
}

const COPIED: &[&str] = &["another one than before", "database", "store restored --lift COUNT"];

#[tokio::test]
async fn a_database_that_was_copied_within_its_server_is_another_store() {
    let server = Postgres::shared().unwrap();
    let url = server.database().unwrap();
    for dialect in ["", "?dialect=sequence"] {
        let store = open(&format!("{url}{dialect}")).await;
        let _ = store.allocate("order", 10, 0).await;
        store.close().await;
    }
    PostgresLeases::connect(options(&url)).await.unwrap().close().await;
    let copy = format!("{}_copy", name(&url));
    server.sql("postgres", &format!("CREATE DATABASE {copy} TEMPLATE {}", name(&url))).unwrap();
    for dialect in ["", "?dialect=sequence"] {
        stays_refused(async || try_open(&format!("{}{dialect}", server.url(&copy))).await, COPIED).await;
    }
    stays_refused(async || PostgresLeases::connect(options(&server.url(&copy))).await, COPIED).await;

    // Renamed, it is what it was; and the copy in its place is not.
    let store = open(&url).await;
    let granted = store.allocate("order", 10, 0).await.unwrap();
    let renamed = format!("{}_renamed", name(&url));
    let swap = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{0}';
         ALTER DATABASE {0} RENAME TO {renamed};
         ALTER DATABASE {copy} RENAME TO {0};",
        name(&url)
    );
    server.sql("postgres", &swap).unwrap();
    stays_refused(async || store.allocate("order", 10, 0).await, COPIED).await;
    assert_eq!(open(&server.url(&renamed)).await.allocate("order", 10, 0).await.unwrap().start, granted.end);
    PostgresStore::adopt_server(options(&url), 1_000).await.unwrap();
    assert!(open(&url).await.allocate("order", 10, 0).await.unwrap().start > 1_000);
}

#[tokio::test]
async fn data_that_were_restored_unnoticed_go_on_above_what_an_operator_says() {
    let url = Postgres::shared().unwrap().database().unwrap();
    let store = open(&url).await;
    store.allocate("order", 10, 0).await.unwrap();
    let leases = PostgresLeases::connect(options(&url)).await.unwrap();
    refused(
        PostgresStore::adopt_server(options(&url), 1_000).await,
        &["the recorded one already", "unalike store restored --lift COUNT"],
    );
    // Twice, as if the first time had been interrupted.
    for _ in 0..2 {
        let restored = PostgresStore::restored(options(&url), 1_000).await.unwrap();
        assert_eq!(restored.tags, 1);
    }
    refused(store.allocate("order", 10, 0).await, &["restart this program"]);
    let store = open(&url).await;
    assert!(store.allocate("order", 10, 0).await.unwrap().start > 2_010);
    assert!(store.allocate("late", 10, 0).await.unwrap().start > 2_000);
    leases.close().await;
}

#[tokio::test]
async fn a_dump_that_is_loaded_into_the_same_server_is_another_store() {
    let server = Postgres::shared().unwrap();
    let url = server.database().unwrap();
    let store = open(&url).await;
    store.allocate("order", 10, 0).await.unwrap();
    let dump = server.dump(name(&url)).unwrap();
    store.allocate("order", 1_000, 0).await.unwrap();
    // The whole database, in its place.
    let again = format!("DROP DATABASE {0} WITH (FORCE)", name(&url));
    server.sql("postgres", &again).unwrap();
    server.sql("postgres", &format!("CREATE DATABASE {}", name(&url))).unwrap();
    server.load(name(&url), &dump).unwrap();
    stays_refused(async || try_open(&url).await, COPIED).await;
    stays_refused(async || store.allocate("order", 10, 0).await, COPIED).await;
    PostgresStore::adopt_server(options(&url), 2_000).await.unwrap();
    let store = open(&url).await;
    assert!(store.allocate("order", 10, 0).await.unwrap().start > 2_000);

    // Its tables, while a program runs; and another schema of the same database.
    let dump = server.dump(name(&url)).unwrap();
    store.allocate("order", 1_000, 0).await.unwrap();
    server.sql(name(&url), "DROP TABLE unalike_store, unalike_tag").ok();
    server.sql(name(&url), "DROP SCHEMA public CASCADE; CREATE SCHEMA public").unwrap();
    server.load(name(&url), &dump).unwrap();
    stays_refused(async || store.allocate("order", 10, 0).await, &["restart"]).await;
    stays_refused(async || try_open(&url).await, COPIED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_copy_of_the_data_is_refused_by_programs_that_were_granted_more() {
    let mut server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    let store = open(&url).await;
    store.allocate("order", 10, 0).await.unwrap();
    server.kill9().unwrap();
    // A restored data directory, or a standby that is started as a primary: the same timeline goes on.
    let mut copy = server.start_copy().unwrap();
    copy.kill9().unwrap();
    for _ in 0..3 {
        server.restart().unwrap();
        at_last(async || store.allocate("order", 10, 0).await).await.unwrap();
    }
    // What a crash takes of the log was in no grant.
    let other = open(&url).await;
    for _ in 0..20 {
        server
            .sql(name(&url), "SET synchronous_commit = off; CREATE TEMP TABLE noise AS SELECT generate_series(1, 999)")
            .unwrap();
        at_last(async || store.allocate("order", 10, 0).await).await.unwrap();
        at_last(async || other.allocate("order", 10, 0).await).await.unwrap();
        server.restart().unwrap();
    }
    let end = server.sql(name(&url), "SELECT pg_current_wal_lsn()").unwrap();
    server.kill9().unwrap();
    copy.take_place_of(&server);
    copy.restart().unwrap();
    let forgotten = &["has forgotten grants of this program", "unalike store restored --lift COUNT"];
    for store in [&store, &other] {
        stays_refused(async || store.allocate("order", 10, 0).await, forgotten).await;
    }
    // Also once other programs have written as much as was lost.
    let is_past = format!("SELECT pg_current_wal_lsn() > '{}'", end.trim());
    while copy.sql(name(&url), &is_past).unwrap().trim() != "t" {
        copy.sql(name(&url), "SELECT pg_logical_emit_message(true, 'noise', repeat('x', 1000000))").unwrap();
    }
    for store in [&store, &other] {
        stays_refused(async || store.allocate("order", 10, 0).await, forgotten).await;
    }
}

#[tokio::test]
async fn what_another_dialect_granted_since_a_backup_waits_until_it_is_adopted() {
    let server = Postgres::shared().unwrap();
    let url = server.database().unwrap();
    server.sql(name(&url), "CREATE SEQUENCE invoice").unwrap();
    let of_sequences = format!("{url}?dialect=sequence");
    let (store, sequences) = (open(&url).await, open(&of_sequences).await);
    store.allocate("order", 10, 0).await.unwrap();
    let before = sequences.allocate("invoice", 10, 0).await.unwrap();
    sequences.close().await;
    let day_ms = 86_400_000;
    let mut long = options(&url);
    long.limits.max_horizon_ms = day_ms;
    PostgresLeases::connect(long).await.unwrap().close().await;
    let time = sub_tag(KEPT_LEASES, "default").unwrap();
    let now_ms = SystemClock.now_ms();
    store.allocate(&time, 1, now_ms).await.unwrap();
    PostgresStore::restored(options(&url), 1_000).await.unwrap();
    // As far ahead as any program's leases may have reached, and not this command's alone.
    assert!(open(&url).await.tag(&time).await.unwrap().watermark >= now_ms + day_ms);
    stays_refused(async || try_open(&of_sequences).await, &["another one than before", "store adopt --lift"]).await;
    PostgresStore::adopt_server(options(&of_sequences), 500).await.unwrap();
    assert!(open(&of_sequences).await.allocate("invoice", 10, 0).await.unwrap().start >= before.end + 500);
    // The first one is not asked again.
    assert!(open(&url).await.allocate("order", 10, 0).await.unwrap().start > 1_000);
}
