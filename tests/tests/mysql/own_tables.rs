//! unalike's own tables in a real MariaDB: the contract, stripes, versions of the tables, and what is checked of a
//! server.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a fixture that cannot start fails the test")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use sqlx::mysql::{MySqlConnection, MySqlQueryResult};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use unalike_mysql::{Dialect, MysqlOptions, MysqlStore};
use unalike_storage::contract::{self, Fixture, SegmentFixture, segment_checks};
use unalike_storage::{
    AdaptiveStep, ID_MAX, KEPT_LEASES, Mode, RefillPolicy, Segment, SegmentStore, StepPolicy, StoreError, Stripe,
    StripeNumbers, StripedStore, TagCreation, TagOptions, TailRelease, resize_stripes, sub_tag,
};
use unalike_tests::authority::Authority;
use unalike_tests::log::Log;
use unalike_tests::mariadb::MariaDb;
use unalike_tests::proxy::Proxy;
use unalike_tests::refusals::refused;
use unalike_tests::sub_keys::{SubKeyTables, assert_none_after_the_end};

/// A server of the test's own, with one database.
struct Server {
    mariadb: Mutex<MariaDb>,
    url: String,
}

impl Server {
    fn start(settings: &[&str]) -> Self {
        let mariadb = MariaDb::start_with(settings).expect("MariaDB starts");
        let url = mariadb.database().expect("a database");
        Self { mariadb: Mutex::new(mariadb), url }
    }
}

#[async_trait]
impl Fixture for Server {
    async fn restart(&self) {
        self.mariadb.lock().unwrap_or_else(PoisonError::into_inner).restart().expect("MariaDB starts again");
    }
}

#[async_trait]
impl SegmentFixture for Server {
    async fn segment_client(&self, creation: TagCreation) -> Arc<dyn SegmentStore> {
        let mut options = options(&self.url);
        options.creation = creation;
        Arc::new(MysqlStore::connect(options).await.expect("the store opens"))
    }
}

/// A new database on the server that the tests share.
fn database() -> String {
    MariaDb::shared().and_then(MariaDb::database).expect("a database")
}

fn options(url: &str) -> MysqlOptions {
    MysqlOptions::from_url(url).expect("a URL")
}

async fn open(url: &str) -> MysqlStore {
    MysqlStore::connect(options(url)).await.expect("the store opens")
}

async fn connection(url: &str) -> MySqlConnection {
    MySqlConnection::connect(url).await.expect("a connection")
}

/// All numbers of these segments, each once.
fn numbers<'s>(segments: impl IntoIterator<Item = &'s Segment>) -> BTreeSet<u64> {
    let mut numbers = BTreeSet::new();
    for segment in segments {
        for number in segment.start..segment.end {
            assert!(numbers.insert(number), "{number} was granted twice");
        }
    }
    numbers
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_keeps_the_contract_of_segments_through_kill_9() {
    contract::segments(&Server::start(&[])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_contract_holds_with_a_binary_log() {
    let settings = ["--log-bin=binlog", "--server-id=1", "--binlog-format=ROW", "--sync-binlog=1"];
    contract::segments(&Server::start(&settings)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_isolation_level_serves() {
    for level in ["READ-UNCOMMITTED", "READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"] {
        let server = Server::start(&[&format!("--transaction-isolation={level}")]);
        segment_checks::concurrent_clients_never_share_a_number(&server).await;
        segment_checks::a_tail_is_taken_back_once(&server).await;
        segment_checks::tags_keep_their_options(&server).await;
        segment_checks::a_raise_lifts_and_never_lowers(&server).await;
        // Many clients create the same tags at once; each tag comes into being once.
        let store = open(&server.url).await;
        let mut tasks = Vec::new();
        for client in 0..8 {
            let store = store.clone();
            tasks.push(tokio::spawn(async move {
                let mut granted = Vec::new();
                for tag in 0..10 {
                    granted.push(store.allocate(&format!("{level}.{}", (tag + client) % 10), 1, 0).await.expect(level));
                }
                granted
            }));
        }
        for task in tasks {
            task.await.expect("a client");
        }
        let listed = store.tags(Some(level), 100).await.expect("a list");
        let created: Vec<u64> = listed.iter().filter(|it| it.tag.starts_with(level)).map(|it| it.watermark).collect();
        assert_eq!(created, [8; 10], "at {level} each tag was created once and granted 8 numbers");
        let granted = store.allocate("restriped", 5, 0).await.expect("a grant");
        let stripe = Stripe { set: 7, index: 0, count: 2 };
        store.restripe(None, Some(&stripe)).await.expect("a new set");
        refused(store.allocate("restriped", 5, 0).await, &["stripe 0 of 2", "together with all stores"]);
        let joined = store.join_stripe(&stripe).await.expect("joined");
        assert_eq!(joined.numbers, StripeNumbers::Counted);
        refused(store.allocate("restriped", 5, 0).await, &["stripe 0 of 2", "together with all stores"]);
        assert_eq!(joined.store.allocate("restriped", 5, 0).await.expect("a grant").start, granted.end);
    }
}

#[tokio::test]
async fn a_row_that_is_ahead_of_the_clock_costs_a_gap_and_no_duplicate() {
    let url = database();
    let store = open(&url).await;
    let first = store.allocate("order", 10, 0).await.expect("a grant");
    connection(&url)
        .await
        .execute("UPDATE unalike_tag SET stripe_version = 9000000000000000000, version = stripe_version")
        .await
        .expect("changed");
    // The grant's version is the client's proposal, and the row has a greater one.
    let second = store.allocate("order", 10, 0).await.expect("a grant");
    for version in [first.version, second.version] {
        let tail = TailRelease { start: second.start + 3, version };
        assert!(!store.release("order", tail).await.expect("an answer"), "in doubt nothing is taken back");
    }
    let third = store.allocate("order", 10, 0).await.expect("a grant");
    assert_eq!(third.start, 21);
    numbers([&first, &second, &third]);
}

#[tokio::test]
async fn a_version_that_would_overflow_is_refused_and_changes_nothing() {
    let url = database();
    let store = open(&url).await;
    store.allocate("order", 10, 0).await.expect("a grant");
    let mut raw = connection(&url).await;
    raw.execute("UPDATE unalike_tag SET stripe_version = 18446744073709551615, version = stripe_version")
        .await
        .expect("changed");
    refused(store.allocate("order", 10, 0).await, &["beyond what the column can hold"]);
    raw.execute("UPDATE unalike_tag SET stripe_version = 1, version = stripe_version").await.expect("changed");
    assert_eq!(store.allocate("order", 10, 0).await.expect("a grant").start, 11, "nothing was granted in between");
}

#[tokio::test]
async fn a_sub_key_takes_the_options_of_its_tag() {
    let url = database();
    let open = open(&url).await;
    let mut closed = options(&url);
    closed.creation.on_first_use = false;
    let closed = MysqlStore::connect(closed).await.expect("the store opens");
    let adaptive = AdaptiveStep { initial: 5, min: 2, max: 50, grow_below_ms: 7, shrink_above_ms: u64::MAX };
    let made = TagOptions {
        start: 1_000,
        step: StepPolicy::Adaptive(adaptive),
        refill: RefillPolicy::Remaining { count: 3 },
        mode: Mode::Ordered,
    };
    closed.create_tag("chat", &made).await.expect("created");
    let user = sub_tag("chat", "user_1").expect("a name");
    assert_eq!(closed.allocate(&user, 10, 0).await.expect("made on first use").start, 1_000);
    assert_eq!(closed.tag(&user).await.expect("it is there").options, made);
    let other = sub_tag("chat", "user_2").expect("a name");
    assert_eq!(closed.open_tag(&other).await.expect("made on first use").options, made);
    assert_eq!(closed.allocate("chat", 1, 0).await.expect("the tag itself").start, 1_000, "numbers of its own");

    // Without its tag it is none, and creates that where it may.
    let stray = sub_tag("mail", "user_1").expect("a name");
    let unknown = closed.allocate(&stray, 1, 0).await.expect_err("there is no such tag");
    assert!(matches!(unknown, StoreError::TagUnknown { .. }), "{unknown:?}");
    assert_eq!(open.open_tag(&stray).await.expect("made on first use").options, TagOptions::default());
    assert_eq!(closed.tag("mail").await.expect("it is there").options, TagOptions::default());
}

#[tokio::test]
async fn a_tag_that_ended_grants_nothing_more() {
    let url = database();
    let (store, other) = (open(&url).await, open(&url).await);
    let granted = other.allocate("order", 10, 0).await.expect("a grant");
    let ended = store.retire_tag("order").await.expect("ended");
    assert_eq!((ended.watermark, ended.options), (10, TagOptions::default()), "the record as it was");
    for store in [&store, &other] {
        let error = store.allocate("order", 1, 0).await.expect_err("nothing is granted");
        assert!(matches!(error, StoreError::Exhausted { .. }), "{error:?}");
    }
    let now = store.tag("order").await.expect("a record").version;
    for version in [granted.version, ended.version, now] {
        let tail = TailRelease { start: granted.start + 1, version };
        assert!(!other.release("order", tail).await.expect("an answer"), "no release brings it back");
    }
    let unknown = store.retire_tag("never").await.expect_err("there is no such tag");
    assert!(matches!(unknown, StoreError::TagUnknown { .. }), "{unknown:?}");
}

// ---- versions of the tables ----

/// The tables of version 1, as its programs made them.
const TABLES_OF_VERSION_1: [&str; 3] = [
    "CREATE TABLE unalike_store (
        id TINYINT UNSIGNED NOT NULL PRIMARY KEY CHECK (id = 1),
        schema_version INT UNSIGNED NOT NULL,
        server VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
        tags BIGINT UNSIGNED NOT NULL DEFAULT 0
    ) ENGINE = InnoDB",
    "CREATE TABLE unalike_tag (
        tag VARBINARY(128) NOT NULL PRIMARY KEY,
        start BIGINT UNSIGNED NOT NULL,
        mode VARCHAR(16) CHARACTER SET ascii NOT NULL,
        step_policy VARCHAR(16) CHARACTER SET ascii NOT NULL,
        step BIGINT UNSIGNED NOT NULL,
        step_min BIGINT UNSIGNED,
        step_max BIGINT UNSIGNED,
        grow_below_ms BIGINT UNSIGNED,
        shrink_above_ms BIGINT UNSIGNED,
        refill_policy VARCHAR(16) CHARACTER SET ascii NOT NULL,
        refill BIGINT UNSIGNED NOT NULL,
        settled BIGINT UNSIGNED NOT NULL,
        watermark BIGINT UNSIGNED NOT NULL,
        version BIGINT UNSIGNED NOT NULL DEFAULT 0,
        CONSTRAINT unalike_tag_start CHECK (start >= 1 AND start <= 9223372036854775807),
        CONSTRAINT unalike_tag_mode CHECK (mode IN ('buffered', 'ordered')),
        CONSTRAINT unalike_tag_step CHECK (step_policy IN ('fixed', 'adaptive')),
        CONSTRAINT unalike_tag_refill CHECK (refill_policy IN ('share-consumed', 'remaining')),
        CONSTRAINT unalike_tag_settled CHECK (settled <= watermark),
        CONSTRAINT unalike_tag_watermark CHECK (watermark <= 9223372036854775807)
    ) ENGINE = InnoDB",
    "INSERT INTO unalike_store (id, schema_version, server) SELECT 1, 1, CONCAT('server_uid ', @@server_uid)",
];

/// A program of version 1.
struct ProgramOfVersion1 {
    connection: MySqlConnection,
    version: u64,
}

impl ProgramOfVersion1 {
    async fn start(url: &str) -> Self {
        Self { connection: connection(url).await, version: 1 << 56 }
    }

    async fn create(&mut self, tag: &str) -> Result<(), sqlx::Error> {
        let mut transaction = self.connection.begin().await?;
        let count = "UPDATE unalike_store SET tags = tags + 1 WHERE id = 1 AND tags < 1000000";
        if let Err(error) = transaction.execute(count).await {
            transaction.rollback().await?;
            return Err(error);
        }
        let insert = "INSERT INTO unalike_tag (tag, start, mode, step_policy, step, refill_policy, refill, settled, \
            watermark) VALUES (?, 1, 'buffered', 'fixed', 10, 'share-consumed', 10, 0, 0)";
        sqlx::query(insert).bind(tag.as_bytes()).execute(&mut *transaction).await?;
        transaction.commit().await
    }

    async fn allocate(&mut self, tag: &str, count: u64) -> Result<Segment, sqlx::Error> {
        self.version += 1;
        let allocate = "UPDATE unalike_tag SET \
            settled = IF(? = watermark + 1, settled, GREATEST(watermark + 1, ?) - 1), \
            watermark = LAST_INSERT_ID(GREATEST(watermark + 1, ?)) \
                + LEAST(?, 9223372036854775807 - GREATEST(watermark + 1, ?)), \
            version = GREATEST(version + 1, ?) WHERE tag = ? AND watermark < 9223372036854775807";
        let done: MySqlQueryResult = sqlx::query(allocate)
            .bind(0_u64)
            .bind(0_u64)
            .bind(0_u64)
            .bind(count - 1)
            .bind(0_u64)
            .bind(self.version)
            .bind(tag.as_bytes())
            .execute(&mut self.connection)
            .await?;
        assert_eq!(done.rows_affected(), 1, "the tag is there");
        let start = done.last_insert_id();
        Ok(Segment { start, end: start + count, stride: 1, generation: 0, version: self.version })
    }

    async fn release(&mut self, tag: &str, tail: TailRelease) -> bool {
        self.version += 1;
        let release = "UPDATE unalike_tag SET settled = ?, watermark = ?, version = GREATEST(version + 1, ?) \
            WHERE tag = ? AND version = ? AND settled < ? AND watermark >= ?";
        let done = sqlx::query(release)
            .bind(tail.start - 1)
            .bind(tail.start - 1)
            .bind(self.version)
            .bind(tag.as_bytes())
            .bind(tail.version)
            .bind(tail.start)
            .bind(tail.start)
            .execute(&mut self.connection)
            .await;
        done.expect("a release").rows_affected() == 1
    }
}

async fn database_of_version_1() -> String {
    let url = database();
    let mut raw = connection(&url).await;
    for statement in TABLES_OF_VERSION_1 {
        // What MySQL calls a server by.
        let statement =
            if MariaDb::is_mysql() { statement.replace("server_uid", "server_uuid") } else { statement.to_owned() };
        raw.execute(AssertSqlSafe(statement)).await.expect("the statements of version 1");
    }
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_of_both_versions_share_the_tables_before_during_and_after_the_upgrade() {
    const ROUNDS: usize = 60;
    let url = database_of_version_1().await;
    ProgramOfVersion1::start(&url).await.create("order").await.expect("created");
    let upgrade_at = Arc::new(tokio::sync::Barrier::new(5));
    let mut tasks = Vec::new();
    for program in 0..4_usize {
        let (url, upgrade_at) = (url.clone(), Arc::clone(&upgrade_at));
        tasks.push(tokio::spawn(async move {
            let mut old = ProgramOfVersion1::start(&url).await;
            let new = open(&url).await;
            let mut kept = Vec::new();
            for round in 0..ROUNDS {
                if round == ROUNDS / 3 {
                    upgrade_at.wait().await;
                }
                let count = 2 + (round % 7) as u64;
                let is_old = program % 2 == 0;
                let mut segment = if is_old {
                    old.allocate("order", count).await.expect("version 1 goes on")
                } else {
                    new.allocate("order", count, 0).await.expect("version 2 goes on")
                };
                // Some give the half of it back.
                if round % 3 == 0 {
                    let tail = TailRelease { start: segment.start + count / 2, version: segment.version };
                    let taken = if is_old {
                        old.release("order", tail).await
                    } else {
                        new.release("order", tail).await.expect("an answer")
                    };
                    if taken {
                        segment.end = tail.start;
                    }
                }
                kept.push(segment);
                if is_old {
                    old.create(&format!("old.{program}.{round}")).await.expect("version 1 creates tags");
                } else {
                    new.open_tag(&format!("new.{program}.{round}")).await.expect("version 2 creates tags");
                }
            }
            kept
        }));
    }
    upgrade_at.wait().await;
    MysqlStore::upgrade(options(&url)).await.expect("the upgrade");
    let mut kept = Vec::new();
    for task in tasks {
        kept.extend(task.await.expect("a program"));
    }
    // Programs that start after the upgrade, of both versions.
    let upgraded = open(&url).await;
    kept.push(upgraded.allocate("order", 5, 0).await.expect("a grant"));
    kept.push(ProgramOfVersion1::start(&url).await.allocate("order", 5).await.expect("a grant"));
    kept.push(upgraded.allocate("order", 5, 0).await.expect("a grant"));
    numbers(&kept);
    let mut raw = connection(&url).await;
    let counted: (u64, u64, i64) =
        sqlx::query_as("SELECT schema_version, tags, (SELECT COUNT(*) FROM unalike_tag) FROM unalike_store")
            .fetch_one(&mut raw)
            .await
            .expect("the row");
    assert_eq!(counted, (2, 241, 241), "version, tags counted, tags there");
}

#[tokio::test]
async fn an_upgrade_may_be_repeated_and_goes_on_where_it_broke_off() {
    let url = database_of_version_1().await;
    let stripe = Stripe { set: 9, index: 1, count: 3 };
    let store = open(&url).await;
    assert_eq!(store.stripe().await.expect("an answer"), None);
    refused(store.join_stripe(&stripe).await, &["unalike schema upgrade"]);
    refused(store.restripe(None, Some(&stripe)).await, &["unalike schema upgrade"]);
    store.allocate("order", 10, 0).await.expect("version 1 is served");
    store.raise_tag("order", 50).await.expect("raised");

    // As if the first statement alone had run.
    let mut raw = connection(&url).await;
    let first = "ALTER TABLE unalike_store
        ADD COLUMN stripe_set BINARY(16) NOT NULL DEFAULT X'00000000000000000000000000000000',
        ADD COLUMN stripe_index INT UNSIGNED NOT NULL DEFAULT 0,
        ADD COLUMN stripe_count INT UNSIGNED NOT NULL DEFAULT 0,
        ADD COLUMN stripe_tags BIGINT UNSIGNED NOT NULL DEFAULT 0,
        ADD CONSTRAINT unalike_store_stripe
            CHECK (stripe_set = X'00000000000000000000000000000000' OR stripe_tags = tags)";
    raw.execute(first).await.expect("the first statement");
    for _ in 0..2 {
        MysqlStore::upgrade(options(&url)).await.expect("the upgrade");
    }
    let fresh = database();
    open(&fresh).await;
    let columns = "SELECT table_name, column_name, column_type, is_nullable FROM information_schema.columns \
        WHERE table_schema = DATABASE() ORDER BY 1, 2";
    let mut of = Vec::new();
    for url in [&url, &fresh] {
        let mut raw = connection(url).await;
        let rows: Vec<(String, String, String, String)> =
            sqlx::query_as(columns).fetch_all(&mut raw).await.expect("the columns");
        of.push(rows);
    }
    assert_eq!(of[0], of[1], "an upgraded database is like a new one");
    // A store that was opened before sees it.
    store.restripe(None, Some(&stripe)).await.expect("a stripe");
    assert_eq!(store.stripe().await.expect("an answer"), Some(stripe));
}

#[tokio::test]
async fn a_newer_version_is_refused() {
    let url = database();
    open(&url).await;
    connection(&url).await.execute("UPDATE unalike_store SET schema_version = 3").await.expect("changed");
    refused(MysqlStore::connect(options(&url)).await, &["version 3", "upgrade this program"]);
    refused(MysqlStore::upgrade(options(&url)).await, &["version 3", "upgrade this program"]);
}

// ---- stripes ----

#[tokio::test]
async fn a_stripe_is_recorded_and_others_are_granted_nothing() {
    let url = database();
    let [first, second, alone] = [open(&url).await, open(&url).await, open(&url).await];
    first.create_tag("made", &TagOptions::default()).await.expect("a tag without a grant is no use of the store");
    let stripe = Stripe { set: u128::MAX - 5, index: 1, count: 3 };
    let client = first.join_stripe(&stripe).await.expect("joined");
    assert_eq!(client.numbers, StripeNumbers::Counted);
    assert_eq!(client.store.join_stripe(&stripe).await.expect("again").numbers, StripeNumbers::Counted);
    assert_eq!(second.stripe().await.expect("an answer"), Some(stripe));
    for other in [Stripe { set: 5, ..stripe }, Stripe { index: 2, ..stripe }, Stripe { count: 4, ..stripe }] {
        refused(second.join_stripe(&other).await, &["stripe 1 of 3"]);
    }
    for alone in [&alone, &first] {
        refused(alone.allocate("made", 1, 0).await, &["stripe 1 of 3"]);
    }
    refused(alone.allocate("new", 1, 0).await, &["stripe 1 of 3"]);
    refused(alone.create_tag("new", &TagOptions::default()).await, &["stripe 1 of 3"]);
    let second = second.join_stripe(&stripe).await.expect("joined").store;
    let mut kept = Vec::new();
    for store in [&client.store, &second, &client.store] {
        for tag in ["made", "new"] {
            let granted = store.allocate(tag, 5, 0).await.expect("a grant");
            let tail = TailRelease { start: granted.start + 3, version: granted.version };
            assert!(store.release(tag, tail).await.expect("an answer"), "a stripe takes tails back");
            if tag == "new" {
                kept.push(Segment { end: tail.start, ..granted });
            }
        }
    }
    assert_eq!(numbers(&kept).len(), 9);
    // A store that was used alone is no stripe.
    let used = database();
    let store = open(&used).await;
    store.allocate("order", 1, 0).await.expect("a grant");
    refused(store.join_stripe(&stripe).await, &["used alone", "unalike stripes resize"]);
    store.allocate("order", 1, 0).await.expect("a refused join changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_resize_every_client_of_the_old_set_is_fenced_at_once() {
    let url = database();
    let old = Stripe { set: 1, index: 0, count: 2 };
    let new = Stripe { set: 2, index: 0, count: 3 };
    let [client, operator] = [open(&url).await, open(&url).await];
    let client = client.join_stripe(&old).await.expect("joined").store;
    let operator = operator.join_stripe(&old).await.expect("joined").store;
    let granted = client.allocate("order", 10, 0).await.expect("a grant");
    let busy = {
        let client = client.clone();
        tokio::spawn(async move {
            let mut granted = Vec::new();
            loop {
                match client.allocate("busy", 3, 0).await {
                    Ok(segment) => granted.push(segment),
                    Err(error) => return (granted, error),
                }
            }
        })
    };
    while operator.tag("busy").await.map_or(0, |record| record.watermark) < 30 {}
    operator.restripe(Some(&old), Some(&new)).await.expect("resized");
    let fence = operator.tag("busy").await.expect("a record").watermark;
    let (busy, error) = busy.await.expect("the client");
    assert_eq!(busy.last().map(|last| last.end), Some(fence + 1), "nothing was granted behind the fence");
    refused(Err::<(), _>(error), &["resized", "restart"]);
    // Nothing of the old set changes a row: no grant, no creation, and no tail comes back.
    for store in [&client, &operator] {
        refused(store.allocate("order", 1, 0).await, &["resized", "restart"]);
        refused(store.allocate("new", 1, 0).await, &["resized", "restart"]);
        let tail = TailRelease { start: granted.start + 5, version: granted.version };
        assert!(!store.release("order", tail).await.expect("an answer"));
    }
    assert_eq!(operator.tag("order").await.expect("a record").watermark, 10);
    refused(operator.raise_tag("order", 101).await, &["stripe"]);
    let operator = operator.join_stripe(&new).await.expect("joined").store;
    operator.raise_tag("order", 101).await.expect("a raise");
    assert_eq!(operator.allocate("order", 5, 0).await.expect("a grant").start, 101);
    // And back to a store that stands alone.
    operator.restripe(Some(&new), None).await.expect("alone");
    refused(operator.allocate("order", 1, 0).await, &["used alone"]);
    assert_eq!(open(&url).await.allocate("order", 5, 0).await.expect("a grant").start, 106);
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_number_together_and_a_resize_repeats_nothing() {
    let urls = [database(), database(), database()];
    let stores = async |urls: &[String]| {
        let mut stores: Vec<Arc<dyn SegmentStore>> = Vec::new();
        for url in urls {
            stores.push(Arc::new(open(url).await));
        }
        stores
    };
    let granted = async |store: &StripedStore| {
        let mut numbers = Vec::new();
        for _ in 0..6 {
            let segment = store.allocate("order", 10, 0).await.expect("a grant");
            numbers.extend((0..segment.count()).map(|nth| segment.start + nth * segment.stride));
        }
        numbers
    };
    let two = StripedStore::open(stores(&urls[..2]).await).await.expect("two stripes");
    let beside = StripedStore::open(stores(&urls[..2]).await).await.expect("another program");
    let mut all = granted(&two).await;
    all.extend(granted(&beside).await);
    let (from, to) = (stores(&urls[..2]).await, stores(&urls).await);
    resize_stripes(&from, &to, 0).await.expect("resized");
    for store in [&two, &beside] {
        refused(store.allocate("order", 10, 0).await, &["resized", "restart"]);
    }
    let three = StripedStore::open(stores(&urls).await).await.expect("three stripes");
    let greatest = all.iter().copied().max().unwrap();
    let after = granted(&three).await;
    assert!(after.iter().all(|&number| number > greatest), "all of it lies above {greatest}: {after:?}");
    all.extend(after);
    let distinct: BTreeSet<u64> = all.iter().copied().collect();
    assert_eq!(distinct.len(), all.len(), "no number was granted twice");
}

#[tokio::test]
async fn programs_that_know_no_stripes_get_nothing_from_one() {
    let url = database_of_version_1().await;
    let mut old = ProgramOfVersion1::start(&url).await;
    old.create("order").await.expect("created");
    old.allocate("order", 10).await.expect("a grant");
    // Of this program, and opened while the tables were of version 1.
    let early = open(&url).await;
    early.allocate("order", 10, 0).await.expect("a grant");
    MysqlStore::upgrade(options(&url)).await.expect("the upgrade");
    let operator = open(&url).await;
    let stripe = Stripe { set: 3, index: 0, count: 2 };
    operator.restripe(None, Some(&stripe)).await.expect("resized");
    for _ in 0..2 {
        let error = old.allocate("order", 1).await.expect_err("version 1 is granted nothing");
        assert!(error.to_string().contains("unalike_tag_stripe"), "{error}");
        let error = old.create("new").await.expect_err("version 1 creates nothing");
        assert!(error.to_string().contains("unalike_store_stripe"), "{error}");
        refused(early.allocate("order", 1, 0).await, &["stripe", "all stores of its set"]);
        refused(early.allocate("new", 1, 0).await, &["stripe", "all stores of its set"]);
    }
    assert_eq!(operator.tag("order").await.expect("a record").watermark, 20);
    assert_eq!(operator.tags(None, 10).await.expect("a list").len(), 1);
    operator.restripe(Some(&stripe), None).await.expect("alone again");
    let now = [old.allocate("order", 5).await.expect("a grant"), early.allocate("order", 5, 0).await.expect("a grant")];
    assert_eq!(numbers(&now), (21..=30).collect());
}

// ---- the server behind ----

/// The same database on another server.
fn moved(url: &str, server: &MariaDb) -> String {
    let name = url.rsplit_once('/').expect("a database").1;
    format!("mysql://root@127.0.0.1:{}/{name}", server.port())
}

#[tokio::test]
async fn another_server_is_refused_until_it_is_adopted_with_a_lift() {
    let mut first = MariaDb::start().expect("MariaDB starts");
    let url = first.database().expect("a database");
    let store = open(&url).await;
    store.allocate("order", 10, 0).await.expect("a grant");
    let late = TagOptions { start: ID_MAX - 50, ..TagOptions::default() };
    store.create_tag("late", &late).await.expect("created");
    let near = store.allocate("late", 10, 0).await.expect("a grant");
    refused(MysqlStore::adopt_server(options(&url), 5).await, &["recorded one already"]);
    drop(store);
    first.kill9().expect("killed");
    let mut second = first.start_copy().expect("a copy starts");
    let copy = moved(&url, &second);
    refused(MysqlStore::connect(options(&copy)).await, &["another one", "unalike store adopt --lift"]);
    for lift in [0, ID_MAX + 1, u64::MAX] {
        refused(MysqlStore::adopt_server(options(&copy), lift).await, &["1 to 2^63 - 1"]);
    }
    refused(MysqlStore::connect(options(&copy)).await, &["another one"]);
    assert_eq!(MysqlStore::adopt_server(options(&copy), 1_000).await.expect("adopted").tags, 2);
    let store = open(&copy).await;
    assert_eq!(store.allocate("order", 10, 0).await.expect("a grant").start, 1_011);
    let error = store.allocate("late", 1, 0).await.expect_err("fewer numbers were left than the lift");
    assert!(matches!(error, StoreError::Exhausted { .. }), "{error:?}");
    let tail = TailRelease { start: near.start + 1, version: near.version };
    assert!(!store.release("late", tail).await.expect("an answer"), "a lift is not given back");
    drop(store);
    second.kill9().expect("killed");
    let third = second.start_copy().expect("a copy starts");
    refused(MysqlStore::connect(options(&moved(&url, &third))).await, &["another one", "unalike store adopt --lift"]);
}

#[tokio::test]
async fn a_server_that_takes_an_address_over_is_refused_by_those_who_knew_the_one_before() {
    let mut first = MariaDb::start().expect("MariaDB starts");
    let url = first.database().expect("a database");
    let proxy = Proxy::start(first.port()).expect("a proxy");
    let through = proxy.url(&url);
    let store = open(&through).await;
    store.allocate("order", 10, 0).await.expect("a grant");
    first.kill9().expect("killed");
    let second = first.start_copy().expect("a copy starts");
    proxy.lead_to(second.port());
    // The first request may find its connection cut, and cannot know more.
    let error = store.allocate("order", 10, 0).await.expect_err("the connection was cut");
    assert!(error.is_retryable() || error.to_string().contains("another one"), "{error:?}");
    for _ in 0..3 {
        refused(store.allocate("order", 10, 0).await, &["another one", "unalike store adopt --lift"]);
    }
    refused(MysqlStore::connect(options(&through)).await, &["another one", "unalike store adopt --lift"]);
    MysqlStore::adopt_server(options(&through), 100).await.expect("adopted");
    refused(store.allocate("order", 10, 0).await, &["another one", "restart"]);
    assert_eq!(open(&through).await.allocate("order", 10, 0).await.expect("a grant").start, 111);
}

/// What was granted to leases and clocks in Redis under a name that the new server has lost is not known to it.
#[tokio::test]
async fn time_under_names_that_were_lost_is_not_granted_while_leases_of_it_may_run() {
    let mut first = MariaDb::start().expect("MariaDB starts");
    let url = first.database().expect("a database");
    open(&url).await.allocate("order", 10, 0).await.expect("a grant");
    first.kill9().expect("killed");
    let second = first.start_copy().expect("a copy starts");
    let copy = moved(&url, &second);
    let adopted = MysqlStore::adopt_server(options(&copy), 1_000).await.expect("adopted");
    let times =
        [(KEPT_LEASES, "default"), ("order", "redis-clock:7")].map(|(tag, sub)| sub_tag(tag, sub).expect("a name"));
    let store = open(&copy).await;
    for time in &times {
        let error = store.allocate(time, 1_000, 1).await.expect_err("others may have been granted it");
        let is_told = matches!(error, StoreError::Quarantined { until_ms, .. } if until_ms == adopted.leases_from_ms);
        assert!(is_told && error.is_retryable(), "{error:?}");
    }
    store.allocate(&sub_tag("order", "shop").expect("a name"), 10, 0).await.expect("numbers are lifted");
    let database = copy.rsplit_once('/').expect("a database").1;
    second.sql(database, "UPDATE unalike_lease_store SET floor_ms = 1").expect("the time has come");
    for time in &times {
        store.allocate(time, 1_000, 1).await.expect("all that was granted has ended");
    }
}

#[tokio::test]
async fn the_tables_of_other_systems_are_lifted_too() {
    let mut first = MariaDb::start().expect("MariaDB starts");
    let url = format!("{}?dialect=leaf&create=true", first.database().expect("a database"));
    let store = open(&url).await;
    store.create_tag("order", &TagOptions::default()).await.expect("created");
    let granted = store.allocate("order", 10, 0).await.expect("a grant");
    let empty = TagOptions { start: 500, ..TagOptions::default() };
    store.create_tag("invoice", &empty).await.expect("created");
    drop(store);
    first.kill9().expect("killed");
    let second = first.start_copy().expect("a copy starts");
    let copy = moved(&url, &second);
    refused(MysqlStore::connect(options(&copy)).await, &["another one", "unalike store adopt --lift"]);
    assert_eq!(MysqlStore::adopt_server(options(&copy), 10_000).await.expect("adopted").tags, 2);
    let store = open(&copy).await;
    assert!(store.allocate("order", 10, 0).await.expect("a grant").start >= granted.end + 10_000);
    assert!(store.allocate("invoice", 10, 0).await.expect("a grant").start >= 10_500);
}

#[tokio::test]
async fn an_assumed_server_is_taken() {
    let mut first = MariaDb::start().expect("MariaDB starts");
    let url = first.database().expect("a database");
    open(&url).await.allocate("order", 10, 0).await.expect("a grant");
    first.kill9().expect("killed");
    let second = first.start_copy().expect("a copy starts");
    let store = open(&format!("{}?identity=assumed", moved(&url, &second))).await;
    assert_eq!(store.allocate("order", 10, 0).await.expect("a grant").start, 11);
    refused(MysqlStore::connect(options(&moved(&url, &second))).await, &["another one"]);
}

#[tokio::test]
async fn a_server_that_may_lose_commits_is_refused_unless_somebody_vouches_for_it() {
    for (settings, why) in [
        (&["--innodb-flush-log-at-trx-commit=2"][..], "innodb_flush_log_at_trx_commit is 2"),
        (&["--log-bin=binlog", "--server-id=1", "--sync-binlog=0"][..], "sync_binlog is 0"),
    ] {
        let server = Server::start(settings);
        refused(MysqlStore::connect(options(&server.url)).await, &[why, "set it to 1", "durability=assumed"]);
        let log = Log::default();
        let _guard = log.listen();
        let store = open(&format!("{}?durability=assumed", server.url)).await;
        assert_eq!(store.allocate("order", 10, 0).await.expect("a grant").start, 1);
        let text = log.text();
        assert!(text.contains("WARN") && text.contains(why), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_sub_key_is_made_after_its_tag_has_ended() {
    let server = MariaDb::start().expect("MariaDB starts");
    let tables = SubKeyTables {
        dialect: "unalike",
        lock: "SELECT * FROM unalike_tag WHERE tag = 'order' FOR UPDATE",
        end: "UPDATE unalike_tag SET settled = 9223372036854775807, watermark = 9223372036854775807, \
            stripe_version = version + 1, version = version + 1 WHERE tag = 'order'",
        pause: "SELECT * FROM unalike_store WHERE id = 1 FOR UPDATE",
    };
    assert_none_after_the_end(&server, &tables).await;
}

// ---- users and TLS ----

/// A server whose database was made by somebody else, and a user who may do what is needed and no more.
fn server_with_user(settings: &[&str], password: &str) -> (Server, String) {
    let server = Server::start(settings);
    let name = server.url.rsplit_once('/').unwrap().1.to_owned();
    let mut statements = Dialect::Unalike.ddl();
    statements.push(format!("CREATE USER ids@'127.0.0.1' IDENTIFIED BY '{password}'"));
    for (table, privileges) in Dialect::Unalike.privileges() {
        statements.push(format!("GRANT {privileges} ON {table} TO ids@'127.0.0.1'"));
    }
    let mariadb = server.mariadb.lock().unwrap();
    mariadb.sql(&name, &statements.join(";\n")).expect("tables and user");
    let url = format!("mysql://ids:{password}@127.0.0.1:{}/{name}?create=false", mariadb.port());
    drop(mariadb);
    (server, url)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_least_privileges_are_enough_for_all_that_the_contract_asks() {
    let (mut server, url) = server_with_user(&[], "secret-word");
    let root = std::mem::replace(&mut server.url, url);
    contract::segments(&server).await;
    let store = open(&server.url).await;
    store.retire_tag("contract.first").await.expect("ended");
    let stripe = Stripe { set: 4, index: 0, count: 2 };
    store.restripe(None, Some(&stripe)).await.expect("resized");
    let store = store.join_stripe(&stripe).await.expect("joined").store;
    store.check().await.expect("ready");
    // And no more than these.
    let denied = connection(&server.url.replace("?create=false", "")).await.execute("DELETE FROM unalike_tag").await;
    assert!(denied.expect_err("denied").to_string().contains("DELETE command denied"));
    // A user who may not write is not ready.
    let revoke = "REVOKE UPDATE ON unalike_store FROM ids@'127.0.0.1'; FLUSH PRIVILEGES";
    let name = root.rsplit_once('/').unwrap().1;
    server.mariadb.lock().unwrap().sql(name, revoke).expect("revoked");
    refused(store.check().await, &["lacks a privilege", "unalike schema"]);
}

#[tokio::test]
async fn a_table_of_tags_that_was_lost_is_not_made_again() {
    const LOST: &[&str] =
        &["unalike_tag is missing", "has begun", "restore it from a backup", "unalike store restored --lift COUNT"];
    let url = database();
    // A first start that was interrupted goes on.
    open(&url).await.close().await;
    let mut raw = connection(&url).await;
    raw.execute("DROP TABLE unalike_tag").await.expect("dropped");
    let store = open(&url).await;
    assert_eq!(store.allocate("order", 3, 0).await.expect("a grant").end, 4);
    store.close().await;
    raw.execute("RENAME TABLE unalike_tag TO kept").await.expect("renamed");
    for lost in [url.clone(), format!("{url}?create=false"), url.clone()] {
        let error = MysqlStore::connect(options(&lost)).await.expect_err("lost");
        assert!(!error.is_not_begun(), "{error:?}");
        refused::<()>(Err(error), LOST);
    }
    refused(MysqlStore::restored(options(&url), 1_000).await, LOST);
    raw.execute("RENAME TABLE kept TO unalike_tag").await.expect("renamed");
    assert_eq!(open(&url).await.allocate("order", 1, 0).await.expect("a grant").start, 4);
    MysqlStore::restored(options(&url), 1_000).await.expect("restored");
    assert!(open(&url).await.allocate("order", 1, 0).await.expect("a grant").start > 1_004);
}

#[tokio::test]
async fn without_leave_to_create_tables_it_is_said_what_to_run_and_no_password_is_shown() {
    let (server, url) = server_with_user(&[], "secret-word");
    let empty = server.mariadb.lock().unwrap().database().expect("a database");
    let error = MysqlStore::connect(options(&format!("{empty}?create=false"))).await;
    refused(error, &["unalike_store is missing", "`unalike schema`"]);
    // The table for the server alone: another dialect made it.
    let store_table = Dialect::Unalike.ddl().swap_remove(0);
    connection(&empty).await.execute(AssertSqlSafe(store_table)).await.expect("made");
    refused(MysqlStore::connect(options(&format!("{empty}?create=false"))).await, &["unalike_tag is missing"]);

    let wrong = options(&url.replace("secret-word", "wrong-word"));
    assert!(!format!("{wrong:?}").contains("wrong-word"));
    let error = MysqlStore::connect(wrong).await.expect_err("a wrong password");
    let mut text = format!("{error} {error:?}");
    let mut source = std::error::Error::source(&error);
    while let Some(error) = source {
        text.push_str(&error.to_string());
        source = error.source();
    }
    assert!(text.contains("denied access") && !text.contains("wrong-word"), "{text}");
}

#[tokio::test]
async fn tls_is_used_as_the_url_says() {
    let authority = Authority::new("localhost");
    let server = Server::start(&[
        "--require-secure-transport=ON",
        &format!("--ssl-cert={}", authority.file("server.pem")),
        &format!("--ssl-key={}", authority.file("key.pem")),
    ]);
    let with = |mode: &str, authority: &Authority| {
        options(&format!("{}?ssl-mode={mode}&ssl-ca={}", server.url, authority.file("ca.pem")))
    };
    let store = MysqlStore::connect(with("verify_ca", &authority)).await.expect("its own authority vouches for it");
    assert_eq!(store.allocate("order", 10, 0).await.expect("a grant").start, 1);
    MysqlStore::connect(options(&server.url)).await.expect("preferred: encrypted, and not verified");

    let stranger = Authority::new("localhost");
    refused(MysqlStore::connect(with("verify_ca", &stranger)).await, &["ssl-ca", "certificate"]);
    // The certificate is for localhost.
    refused(MysqlStore::connect(with("verify_identity", &authority)).await, &["ssl-mode", "certificate"]);
    let url = server.url.replace("127.0.0.1", "localhost");
    let identity = format!("{url}?ssl-mode=verify_identity&ssl-ca={}", authority.file("ca.pem"));
    MysqlStore::connect(options(&identity)).await.expect("the name is the certificate's");
    refused(MysqlStore::connect(options(&format!("{}?ssl-mode=disabled", server.url))).await, &["demands TLS"]);
    let unchecked = MysqlOptions::from_url(&format!("{}?ssl-mode=required&ssl-ca=ca.pem", server.url));
    assert!(unchecked.is_err_and(|error| error.to_string().contains("ssl-ca needs ssl-mode=verify_identity")));
    let nowhere = format!("{}?ssl-mode=verify_ca&ssl-ca=/nowhere/ca.pem", server.url);
    refused(MysqlStore::connect(options(&nowhere)).await, &["ssl-ca"]);
}
