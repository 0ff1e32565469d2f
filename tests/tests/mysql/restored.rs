//! Dumps that are loaded again: into the server that they came from, into another one, over a store in use. A copy is
//! not the store, until an operator says that it is.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::time::Duration;

use unalike_mysql::{MysqlLeases, MysqlOptions, MysqlStore};
use unalike_storage::{FormatBinding, FormatOwner, FormatPart, SegmentStore as _, StoreError};
use unalike_tests::mariadb::MariaDb;
use unalike_tests::mysql_leases::Holder;
use unalike_tests::refusals::{refused, stays_refused};

fn options(url: &str) -> MysqlOptions {
    MysqlOptions::from_url(url).unwrap()
}

async fn try_open(url: &str) -> Result<MysqlStore, StoreError> {
    MysqlStore::connect(options(url)).await
}

fn database(url: &str) -> &str {
    url.rsplit_once('/').unwrap().1
}

const COPY: &[&str] = &["not those that were used before", "unalike store restored --lift COUNT"];

/// Waits until a table that is created now is told from those of before: MySQL notes whole seconds.
async fn until_another_second() {
    if MariaDb::is_mysql() {
        tokio::time::sleep(Duration::from_millis(1_100)).await;
    }
}

/// All numbers that were granted under a name: none twice.
#[derive(Debug, Default)]
struct Granted(BTreeSet<u64>);

impl Granted {
    async fn take(&mut self, store: &MysqlStore, tag: &str, count: u64) {
        let segment = store.allocate(tag, count, 0).await.unwrap();
        for number in segment.start..segment.end {
            assert!(self.0.insert(number), "{number} was granted twice under {tag}");
        }
    }
}

/// A store with a tag and a lease, its dump, and what was granted after the dump, under a name that it lacks too.
struct Restored {
    url: String,
    dump: Vec<u8>,
    order: Granted,
    late: Granted,
    lease_until_ms: u64,
}

impl Restored {
    async fn new(server: &MariaDb) -> Self {
        let url = server.database().unwrap();
        let (mut order, mut late) = (Granted::default(), Granted::default());
        let store = try_open(&url).await.unwrap();
        let leases = store.leases().await.unwrap();
        order.take(&store, "order", 10).await;
        let dump = server.dump(database(&url)).unwrap();
        order.take(&store, "order", 10).await;
        late.take(&store, "late", 10).await;
        let lease_until_ms = Holder::new(&leases, "default", "a").acquire(60_000).await.unwrap().valid_until_ms;
        store.close().await;
        Self { url, dump, order, late, lease_until_ms }
    }

    /// Nothing is granted, however often it is tried.
    async fn is_refused(&self, url: &str, words: &[&str]) {
        stays_refused(async || try_open(url).await, words).await;
        stays_refused(async || MysqlLeases::connect(options(url)).await, words).await;
    }

    /// The operator speaks, twice as if the first time had been interrupted, and nothing comes again.
    async fn goes_on(mut self, url: &str) {
        MysqlStore::restored(options(url), 100).await.unwrap();
        let done = MysqlStore::restored(options(url), 100).await.unwrap();
        assert_eq!(done.tags, 1);
        assert!(done.leases_from_ms > self.lease_until_ms, "{done:?}: no lease overlaps one of before");
        for _ in 0..2 {
            let store = try_open(url).await.unwrap();
            self.order.take(&store, "order", 10).await;
            self.late.take(&store, "late", 10).await;
            store.close().await;
        }
    }
}

#[tokio::test]
async fn a_dump_that_is_loaded_into_its_own_server_is_refused_until_an_operator_speaks() {
    let server = MariaDb::shared().unwrap();
    let restored = Restored::new(server).await;
    let url = restored.url.clone();
    until_another_second().await;
    server.load(database(&url), &restored.dump).unwrap();
    restored.is_refused(&url, COPY).await;
    restored.goes_on(&url).await;
}

/// What is bound of a format is a row with a very great number, which is none of a tag's.
#[tokio::test]
async fn a_row_that_was_written_over_is_lifted_from_what_tags_had_and_from_no_format() {
    const LIFT: u64 = 100;
    let server = MariaDb::shared().unwrap();
    let url = server.database().unwrap();
    let mut order = Granted::default();
    let store = try_open(&url).await.unwrap();
    order.take(&store, "order", 10).await;
    let owner = FormatOwner::Tag("order");
    store.bind_format(owner, FormatPart::Shape, FormatBinding::First(1 << 62)).await.unwrap();
    store.close().await;
    assert_eq!(MysqlStore::restored(options(&url), LIFT).await.unwrap().tags, 1);
    let another_era = "UPDATE unalike_tag SET stripe_set = REPEAT('x', 16) WHERE tag = 'order'";
    server.sql(database(&url), another_era).unwrap();
    assert_eq!(MysqlStore::restored(options(&url), LIFT).await.unwrap().tags, 1);
    let store = try_open(&url).await.unwrap();
    order.take(&store, "order", 10).await;
    assert!(order.0.last().is_some_and(|last| *last < 10 * LIFT), "{order:?}");
    assert_eq!(store.bind_format(owner, FormatPart::Shape, FormatBinding::Look).await.unwrap(), Some(1 << 62));
    store.close().await;
}

#[tokio::test]
async fn a_dump_that_is_loaded_into_a_second_server_is_refused_until_an_operator_speaks() {
    // Both on defaults: the same `server_id`, and no replication.
    let mut second = MariaDb::start().unwrap();
    let restored = Restored::new(MariaDb::shared().unwrap()).await;
    let there = second.database().unwrap();
    second.load(database(&there), &restored.dump).unwrap();
    // MySQL's servers have names, too.
    let words = if MariaDb::is_mysql() { &["another one than before"][..] } else { COPY };
    restored.is_refused(&there, words).await;
    second.restart().unwrap();
    restored.is_refused(&there, words).await;
    // The store itself is as it was.
    drop(try_open(&restored.url).await.unwrap());
    restored.goes_on(&there).await;
    second.restart().unwrap();
    drop(try_open(&there).await.unwrap());
}

#[tokio::test]
async fn a_program_that_runs_notices_a_dump_that_is_loaded_under_it() {
    let server = MariaDb::shared().unwrap();
    let url = server.database().unwrap();
    let store = try_open(&url).await.unwrap();
    store.allocate("order", 10, 0).await.unwrap();
    until_another_second().await;
    server.load(database(&url), &server.dump(database(&url)).unwrap()).unwrap();
    // It looks once a second.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    stays_refused(async || store.allocate("order", 10, 0).await, COPY).await;
    stays_refused(async || store.check().await, COPY).await;
    MysqlStore::restored(options(&url), 100).await.unwrap();
    stays_refused(async || store.allocate("order", 10, 0).await, &["restart"]).await;
}

#[tokio::test]
async fn a_store_of_an_earlier_version_gets_its_place_when_it_is_opened() {
    let server = MariaDb::shared().unwrap();
    let url = server.database().unwrap();
    let store = try_open(&url).await.unwrap();
    store.allocate("order", 10, 0).await.unwrap();
    let before = "SET STATEMENT system_versioning_alter_history = KEEP FOR ALTER TABLE unalike_identity DROP SYSTEM VERSIONING; \
        DELETE FROM unalike_identity; INSERT INTO unalike_identity VALUES ('unalike', REPEAT('a', 32))";
    server.sql(database(&url), before).unwrap();
    let dump = server.dump(database(&url)).unwrap();
    let store = try_open(&url).await.unwrap();
    assert_eq!(store.identity().await.unwrap().unwrap().to_string(), "a".repeat(32), "its name stays");
    let marked = server.dump(database(&url)).unwrap();
    drop(try_open(&url).await.unwrap());
    server.load(database(&url), &marked).unwrap();
    refused(try_open(&url).await, COPY);
    // One of before tells nothing: what it is loaded into passes for the store, as it did then.
    server.load(database(&url), &dump).unwrap();
    drop(try_open(&url).await.unwrap());
    // One that lacks the table itself has no place, and one that a program made there is another.
    server.load(database(&url), &marked).unwrap();
    let strip =
        "SET STATEMENT system_versioning_alter_history = KEEP FOR ALTER TABLE unalike_identity DROP SYSTEM VERSIONING";
    server.sql(database(&url), strip).unwrap();
    refused(try_open(&url).await, COPY);
    MysqlStore::restored(options(&url), 100).await.unwrap();
    assert!(try_open(&url).await.unwrap().allocate("order", 1, 0).await.unwrap().start > 100);
}

#[tokio::test]
async fn a_user_who_may_not_make_a_place_goes_on_without() {
    let server = MariaDb::shared().unwrap();
    let url = server.database().unwrap();
    try_open(&url).await.unwrap().allocate("order", 10, 0).await.unwrap();
    let name = database(&url);
    let user = format!("{name}_user");
    let grant = format!(
        "DROP TABLE unalike_identity; CREATE USER {user}@'%'; \
         GRANT SELECT, INSERT, UPDATE ON {name}.unalike_store TO {user}@'%'; \
         GRANT SELECT, INSERT, UPDATE ON {name}.unalike_tag TO {user}@'%'; \
         GRANT SELECT, INSERT ON {name}.unalike_identity TO {user}@'%'"
    );
    let create = "CREATE TABLE unalike_identity (dialect VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY, \
        mark CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL)";
    server
        .sql(name, &grant.replacen("DROP TABLE unalike_identity", &format!("DROP TABLE unalike_identity; {create}"), 1))
        .unwrap();
    let theirs = url.replace("root@", &format!("{user}@"));
    let store = try_open(&theirs).await.unwrap();
    assert_eq!(store.allocate("order", 10, 0).await.unwrap().start, 11);
    // A place that is known is no matter of who looks.
    drop(try_open(&url).await.unwrap());
    drop(try_open(&theirs).await.unwrap());
    until_another_second().await;
    server.load(name, &server.dump(name).unwrap()).unwrap();
    stays_refused(async || try_open(&theirs).await, COPY).await;
}

#[tokio::test]
async fn data_that_were_restored_unnoticed_are_lifted_for_each_dialect() {
    let server = MariaDb::shared().unwrap();
    let url = server.database().unwrap();
    let leaf = format!("{url}?dialect=leaf&create=true");
    for url in [&url, &leaf] {
        try_open(url).await.unwrap().allocate("order", 10, 0).await.unwrap();
    }
    MysqlStore::restored(options(&url), 1_000).await.unwrap();
    refused(try_open(&leaf).await, &["dialect leaf", "unalike store adopt --lift COUNT"]);
    assert!(try_open(&url).await.unwrap().allocate("order", 10, 0).await.unwrap().start > 1_000);
    MysqlStore::adopt_server(options(&leaf), 5_000).await.unwrap();
    assert!(try_open(&leaf).await.unwrap().allocate("order", 10, 0).await.unwrap().start > 5_000);
    assert!(try_open(&url).await.unwrap().allocate("order", 10, 0).await.unwrap().start > 1_000);
    // Of a later dump both are older.
    server.load(database(&url), &server.dump(database(&url)).unwrap()).unwrap();
    for url in [&url, &leaf] {
        refused(try_open(url).await, COPY);
    }
    MysqlStore::adopt_server(options(&leaf), 7_000).await.unwrap();
    refused(try_open(&url).await, &["dialect unalike", "unalike store adopt --lift COUNT"]);
    MysqlStore::adopt_server(options(&url), 1_000).await.unwrap();
    assert!(try_open(&leaf).await.unwrap().allocate("order", 10, 0).await.unwrap().start > 12_000);
    assert!(try_open(&url).await.unwrap().allocate("order", 10, 0).await.unwrap().start > 2_000);
}
