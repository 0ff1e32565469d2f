//! The dialects of the four-channel issuer and of Flickr's ticket servers on a real MariaDB: `batch`, `slow-ordered`,
//! `ticket`.

#![expect(clippy::panic_in_result_fn, clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, ensure};
use async_trait::async_trait;
use sqlx::mysql::{MySqlConnection, MySqlDatabaseError};
use sqlx::{AssertSqlSafe, Connection as _, Row as _};
use unalike_mysql::{BatchTag, Dialect, MysqlOptions, MysqlStore};
use unalike_storage::contract::{Fixture, SegmentFixture, segment_checks as check};
use unalike_storage::{
    ID_MAX, Mode, RefillPolicy, Segment, SegmentStore, StepPolicy, StoreError, Stripe, StripeNumbers, TagCreation,
    TagOptions, TailRelease, sub_tag,
};
use unalike_tests::clients::{
    Clients, Grant, assert_ascends_in_real_time, assert_disjoint, assert_each_ascends, monotonic_ns,
};
use unalike_tests::mariadb::MariaDb;
use unalike_tests::sub_keys::{SubKeyTables, assert_none_after_the_end};

const CHILD: &str = env!("CARGO_BIN_EXE_mysql-issuer-child");

const CLIENTS: usize = 8;

async fn open(url: &str, dialect: &str) -> Result<MysqlStore, StoreError> {
    open_with(url, dialect, TagCreation::default()).await
}

async fn open_with(url: &str, dialect: &str, creation: TagCreation) -> Result<MysqlStore, StoreError> {
    let mut options = MysqlOptions::from_url(&format!("{url}?dialect={dialect}&create=true"))?;
    options.creation = creation;
    MysqlStore::connect(options).await
}

fn ordered() -> TagOptions {
    TagOptions { mode: Mode::Ordered, ..TagOptions::default() }
}

fn bounds(segment: &Segment) -> (u64, u64) {
    (segment.start, segment.end)
}

/// The text of an error that must not be worth a retry.
fn refused<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Ok(value) => panic!("it must be refused, but gave {value:?}"),
        Err(error) => {
            assert!(!error.is_retryable() && !error.may_have_granted(), "{error:?}");
            error.to_string()
        }
    }
}

/// What an old client does in its own way, until it is told to stop: `draw` gives the numbers of one request.
fn beside(
    url: &str,
    stopped: &Arc<AtomicBool>,
    draw: Draw,
    client: usize,
) -> thread::JoinHandle<anyhow::Result<Vec<Grant>>> {
    let (url, stopped) = (url.to_owned(), Arc::clone(stopped));
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut connection = MySqlConnection::connect(&url).await?;
            let mut granted = Vec::new();
            while !stopped.load(Ordering::SeqCst) {
                let asked_ns = monotonic_ns();
                let drawn = match draw {
                    Draw::Swap { size } => swap(&mut connection, size).await?,
                    Draw::Batch(batch_tag) => take_batch(&mut connection, batch_tag).await?,
                    Draw::Ticket => Some(draw_ticket(&mut connection).await?),
                };
                let Some((start, end)) = drawn else { continue };
                granted.push(Grant { client, asked_ns, heard_ns: monotonic_ns(), start, end, stride: 1 });
            }
            Ok(granted)
        })
    })
}

#[derive(Clone, Copy)]
enum Draw {
    Swap { size: u64 },
    Batch(BatchTag),
    Ticket,
}

/// The issuer's channel 3, once: read, and swap if nobody was quicker. Its numbers are `(old, old + size]`.
async fn swap(connection: &mut MySqlConnection, size: u64) -> anyhow::Result<Option<(u64, u64)>> {
    let select = "SELECT num FROM ng_business_slowordered0 WHERE business = 'order' AND subBusiness = ''";
    let Some(row) = sqlx::query(select).fetch_optional(&mut *connection).await? else { return Ok(None) };
    let old: i64 = row.try_get(0)?;
    // As Java adds.
    let new = old.wrapping_add(i64::try_from(size)?);
    let update =
        "UPDATE ng_business_slowordered0 SET num = ? WHERE business = 'order' AND subBusiness = '' AND num = ?";
    if sqlx::query(update).bind(new).bind(old).execute(&mut *connection).await?.rows_affected() == 0 {
        return Ok(None);
    }
    Ok(Some((u64::try_from(old)? + 1, u64::try_from(new)? + 1)))
}

/// The issuer's channel 0, once: read the greatest batch number, insert the next one.
async fn take_batch(connection: &mut MySqlConnection, tag: BatchTag) -> anyhow::Result<Option<(u64, u64)>> {
    let select =
        "SELECT version FROM ng_business_mysql_autoincrement WHERE business = 'order' ORDER BY version DESC LIMIT 1";
    let row = sqlx::query(select).fetch_optional(&mut *connection).await?;
    let version = row.map(|row| row.try_get::<u64, _>(0)).transpose()?.unwrap_or(0) + 1;
    let insert = "INSERT INTO ng_business_mysql_autoincrement (business, version) VALUES ('order', ?)";
    match sqlx::query(insert).bind(version).execute(&mut *connection).await {
        Ok(_) => {
            let base: u64 = format!("{}{version}{}", tag.prefix, "0".repeat(tag.width.try_into()?)).parse()?;
            Ok(Some((base + 1, base + tag.buff_size + 1)))
        }
        Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Flickr's two statements.
async fn draw_ticket(connection: &mut MySqlConnection) -> anyhow::Result<(u64, u64)> {
    let mut tries = 0;
    while let Err(error) = sqlx::query("REPLACE INTO Tickets64 (stub) VALUES ('a')").execute(&mut *connection).await {
        let number = error.as_database_error().and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>());
        // A deadlock, over the row or over the counter.
        let has_lost = matches!(number.map(MySqlDatabaseError::number), Some(1213 | 1467));
        tries += 1;
        ensure!(has_lost && tries < 1_000, "{error}");
    }
    let id: u64 = sqlx::query("SELECT LAST_INSERT_ID()").fetch_one(connection).await?.try_get(0)?;
    Ok((id, id + 1))
}

/// Eight clients in as many processes, and old ones beside; then the server is killed and restarted in the middle. What
/// all of them were granted; those beside before the first kill only.
fn crowd(
    server: &mut MariaDb,
    url: &str,
    dialect: &str,
    tag: &str,
    count: u64,
    draw: Draw,
) -> anyhow::Result<Vec<Grant>> {
    let store = format!("{url}?dialect={dialect}&create=true");
    tokio::runtime::Runtime::new()?.block_on(async { open(url, dialect).await?.open_tag(tag).await })?;
    let mut clients = Clients::start(CHILD, &[&store, tag, &count.to_string()], CLIENTS)?;
    let stopped = Arc::new(AtomicBool::new(false));
    let old = [CLIENTS, CLIENTS + 1].map(|client| beside(url, &stopped, draw, client));
    clients.wait_for(20)?;
    stopped.store(true, Ordering::SeqCst);
    let mut granted = Vec::new();
    for old in old {
        let ended = old.join().map_err(|_| anyhow::anyhow!("an old client panicked"))?;
        let old = ended.context("an old client")?;
        assert!(!old.is_empty(), "the old clients are served too");
        granted.extend(old);
    }
    for _ in 0..3 {
        server.restart()?;
        clients.wait_for(10)?;
    }
    granted.extend(clients.stop()?);
    Ok(granted)
}

/// A database whose tables were created by root, for a user who may do no more than the dialect needs: the user's URL.
fn least_privileged(server: &MariaDb, dialect: &Dialect) -> anyhow::Result<(String, String)> {
    let url = server.database()?;
    let database = url.rsplit_once('/').context("a database")?.1.to_owned();
    for statement in dialect.ddl() {
        server.sql(&database, &statement)?;
    }
    server.sql("", &format!("CREATE USER {database}@'127.0.0.1'"))?;
    for (table, privileges) in dialect.privileges() {
        server.sql("", &format!("GRANT {privileges} ON {database}.{table} TO {database}@'127.0.0.1'"))?;
    }
    Ok((url.replace("//root@", &format!("//{database}@")), database))
}

/// A server and one database of it, for the contract.
struct Issuer {
    server: Mutex<MariaDb>,
    url: String,
    dialect: &'static str,
}

impl Issuer {
    fn start(dialect: &'static str) -> anyhow::Result<Self> {
        let server = MariaDb::start()?;
        let url = server.database()?;
        Ok(Self { server: Mutex::new(server), url, dialect })
    }
}

#[async_trait]
impl Fixture for Issuer {
    async fn restart(&self) {
        let restarted = self.server.lock().unwrap_or_else(PoisonError::into_inner).restart();
        assert!(restarted.is_ok(), "{restarted:?}");
    }
}

#[async_trait]
impl SegmentFixture for Issuer {
    async fn segment_client(&self, creation: TagCreation) -> Arc<dyn SegmentStore> {
        Arc::new(open_with(&self.url, self.dialect, creation).await.unwrap())
    }

    fn takes_tails_back(&self) -> bool {
        false
    }
}

// Channel 3.

#[tokio::test(flavor = "multi_thread")]
async fn slow_ordered_keeps_the_contract_but_for_options_of_tags() -> anyhow::Result<()> {
    let fixture = Issuer::start("slow-ordered")?;
    check::grants_are_well_formed_and_ascend(&fixture).await;
    check::concurrent_clients_never_share_a_number(&fixture).await;
    check::at_least_skips_up_and_never_back(&fixture).await;
    check::tags_are_independent(&fixture).await;
    check::odd_names_are_kept_as_they_are(&fixture).await;
    check::no_name_with_a_space_at_an_end_is_created(&fixture).await;
    check::numbers_end_at_the_top(&fixture).await;
    check::a_tail_is_taken_back_once(&fixture).await;
    check::a_tail_that_was_not_granted_is_not_taken_back(&fixture).await;
    check::a_raise_stands_against_a_late_release(&fixture).await;
    check::a_raise_lifts_and_never_lowers(&fixture).await;
    check::no_sub_key_is_made_after_the_end_of_its_tag(&fixture).await;
    check::an_abandoned_request_costs_only_numbers(&fixture).await;
    check::a_restart_repeats_nothing(&fixture).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_ordered_reads_and_writes_the_issuers_rows() -> anyhow::Result<()> {
    let server = MariaDb::start()?;
    let url = server.database()?;
    let database = url.rsplit_once('/').context("a database")?.1;
    let store = open(&url, "slow-ordered").await?;
    server.sql(
        database,
        "INSERT INTO ng_business_slowordered0 VALUES ('chat', '', 1000000000000000206);
         INSERT INTO ng_business_slowordered3 VALUES ('chat', 'user_1', 41)",
    )?;
    let segment = store.allocate("chat", 10, 0).await?;
    assert_eq!(bounds(&segment), (1_000_000_000_000_000_207, 1_000_000_000_000_000_217), "(old, old + size]");
    assert_eq!(bounds(&store.allocate(&sub_tag("chat", "user_1")?, 3, 0).await?), (42, 45));
    // The tables that Java's hash code leads to.
    for (sub, table) in
        [("im", 36), ("order", 14), ("polygenelubricants", 0), ("\u{4f1a}\u{8bdd}", 3), ("\u{1f600}", 35)]
    {
        let tag = sub_tag("chat", sub)?;
        assert_eq!(bounds(&store.allocate(&tag, 5, 0).await?), (1, 6));
        let select =
            format!("SELECT num FROM ng_business_slowordered{table} WHERE business = 'chat' AND subBusiness = '{sub}'");
        assert_eq!(server.sql(database, &format!("SET NAMES utf8mb4; {select}"))?.trim(), "5", "{sub}");
    }
    // Listed in the order of their names, from 64 tables, page by page.
    let mut listed: Vec<String> = Vec::new();
    loop {
        let page = store.tags(listed.last().map(String::as_str), 3).await?;
        if page.is_empty() {
            break;
        }
        assert!(page.len() <= 3 && page.iter().all(|record| record.options == ordered()));
        listed.extend(page.into_iter().map(|record| record.tag));
    }
    let mut names = vec!["chat".to_owned()];
    for sub in ["im", "order", "polygenelubricants", "user_1", "\u{4f1a}\u{8bdd}", "\u{1f600}"] {
        names.push(sub_tag("chat", sub)?);
    }
    assert_eq!(listed, names);
    // Rows that cannot be.
    if MariaDb::is_mysql() {
        server.sql(database, "ALTER TABLE ng_business_slowordered1 DROP CHECK ng_business_slowordered1_chk_1")?;
    }
    server.sql(
        database,
        "ALTER TABLE ng_business_slowordered1 MODIFY num BIGINT NOT NULL;
        INSERT INTO ng_business_slowordered1 VALUES ('bad', '23', -5)",
    )?;
    let error = store.allocate(&sub_tag("bad", "23")?, 1, 0).await;
    assert!(matches!(error, Err(StoreError::Corrupt { .. })), "{error:?}");
    server.sql(database, "ALTER TABLE ng_business_slowordered36 MODIFY num INT NOT NULL")?;
    let text = refused(store.allocate(&sub_tag("chat", "im")?, 1 << 40, 0).await);
    assert!(text.contains("beyond what the column can hold"), "{text}");
    assert_eq!(store.tag(&sub_tag("chat", "im")?).await?.watermark, 5, "nothing was cut off");
    store.check().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_ordered_tags_are_ordered_and_made_on_first_use_where_that_is_allowed() -> anyhow::Result<()> {
    let server = MariaDb::start()?;
    let url = server.database()?;
    let open = open(&url, "slow-ordered").await?;
    assert!(refused(open.create_tag("buffered", &TagOptions::default()).await).contains("every tag is ordered"));
    let stepped = TagOptions { step: StepPolicy::Fixed { step: 7 }, ..ordered() };
    assert!(refused(open.create_tag("stepped", &stepped).await).contains("no step"));
    assert!(
        matches!(open.tag("stepped").await, Err(StoreError::TagUnknown { .. })),
        "a refused creation leaves nothing"
    );
    let record = open.create_tag("order", &TagOptions { start: 500, ..ordered() }).await?;
    assert_eq!((record.watermark, record.options), (499, ordered()));
    assert!(matches!(open.create_tag("order", &ordered()).await, Err(StoreError::TagExists { .. })));
    assert!(
        refused(open.change_tag("order", StepPolicy::default(), RefillPolicy::default()).await).contains("ordered")
    );

    let closed = open_with(&url, "slow-ordered", TagCreation { on_first_use: false, tags_max: 1 }).await?;
    assert_eq!(closed.allocate("order", 1, 0).await?.start, 500);
    for tag in ["new".to_owned(), sub_tag("new", "a")?] {
        assert!(matches!(closed.allocate(&tag, 1, 0).await, Err(StoreError::TagUnknown { .. })));
        assert!(matches!(closed.open_tag(&tag).await, Err(StoreError::TagUnknown { .. })));
    }
    // A sub-key of a tag that exists is made, and takes no tag's place.
    assert_eq!(closed.allocate(&sub_tag("order", "a")?, 1, 0).await?.start, 1);
    assert_eq!(closed.open_tag(&sub_tag("order", "b")?).await?.options, ordered());
    let error = closed.create_tag("other", &ordered()).await;
    assert!(matches!(error, Err(StoreError::TagLimit { tags_max: 1, .. })), "{error:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_tag_of_slow_ordered_stops_the_issuer_too() -> anyhow::Result<()> {
    let server = MariaDb::start()?;
    let url = server.database()?;
    let store = open(&url, "slow-ordered").await?;
    store.allocate("order", 100, 0).await?;
    let ended = store.retire_tag("order").await?;
    assert_eq!(ended.watermark, 100);
    assert_eq!(store.retire_tag("order").await?, ended, "whoever lost the answer asks again");
    assert!(matches!(store.allocate("order", 1, 0).await, Err(StoreError::Exhausted { .. })));
    assert!(matches!(store.retire_tag("other").await, Err(StoreError::TagUnknown { .. })));
    assert_eq!(store.tags(None, 10).await?.len(), 1, "what marks the end is no tag");
    let mut connection = MySqlConnection::connect(&url).await?;
    let error = swap(&mut connection, 1).await;
    assert!(error.is_err(), "no number fits: {error:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_ordered_makes_no_sub_key_after_its_tag_has_ended() -> anyhow::Result<()> {
    let server = MariaDb::start()?;
    // The sub-key shop is kept in the table that Java's hash of it says.
    let tables = SubKeyTables {
        dialect: "slow-ordered",
        lock: "SELECT * FROM ng_business_slowordered0 WHERE business = 'order' FOR UPDATE",
        end: "UPDATE ng_business_slowordered0 SET num = 9223372036854775807 WHERE business = 'order'",
        pause: "INSERT INTO ng_business_slowordered54 VALUES ('order', 'shop', 0)",
    };
    assert_none_after_the_end(&server, &tables).await;
    Ok(())
}

#[test]
fn slow_ordered_ascends_in_real_time_over_processes_beside_the_issuer_and_through_kills() -> anyhow::Result<()> {
    let mut server = MariaDb::start()?;
    let url = server.database()?;
    let granted = crowd(&mut server, &url, "slow-ordered", "order", 3, Draw::Swap { size: 5 })?;
    assert_disjoint(&granted);
    assert_ascends_in_real_time(&granted);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_ordered_needs_no_more_than_the_privileges_it_names() -> anyhow::Result<()> {
    let server = MariaDb::start()?;
    let (url, database) = least_privileged(&server, &Dialect::SlowOrdered)?;
    let mut options = MysqlOptions::from_url(&format!("{url}?dialect=slow-ordered&create=false"))?;
    options.creation = TagCreation::default();
    let store = MysqlStore::connect(options).await?;
    assert_eq!(store.allocate(&sub_tag("chat", "user_1")?, 5, 0).await?.start, 1);
    store.raise_tag(&sub_tag("chat", "user_1")?, 50).await?;
    assert_eq!(store.retire_tag(&sub_tag("chat", "user_1")?).await?.watermark, 49);
    store.check().await?;
    server.sql(&database, "DROP TABLE ng_business_slowordered63")?;
    let text = refused(
        MysqlStore::connect(MysqlOptions::from_url(&format!("{url}?dialect=slow-ordered&create=false"))?).await,
    );
    assert!(text.contains("ng_business_slowordered63 is missing"), "{text}");
    server.sql(&database, "CREATE TABLE ng_business_slowordered63 (business INT) ENGINE = MyISAM")?;
    let text = refused(MysqlStore::connect(MysqlOptions::from_url(&format!("{url}?dialect=slow-ordered"))?).await);
    assert!(text.contains("kept in MyISAM"), "{text}");
    Ok(())
}

/// By one row that holds all that was granted; a second row begins at 1 again.
#[tokio::test(flavor = "multi_thread")]
async fn slow_ordered_takes_no_second_row_for_the_first() -> anyhow::Result<()> {
    let server = MariaDb::start()?;
    let url = server.database()?;
    let database = url.rsplit_once('/').context("a database")?.1;
    let store = open(&url, "slow-ordered").await?;
    assert_eq!(bounds(&store.allocate("order", 10, 0).await?), (1, 11));
    server.sql(database, "ALTER TABLE ng_business_slowordered0 DROP PRIMARY KEY, ADD KEY (business, subBusiness)")?;
    let text = refused(open(&url, "slow-ordered").await);
    assert!(text.contains("ng_business_slowordered0 has no unique key over exactly business, subBusiness"), "{text}");
    // Whoever drops it in use takes away what programs rest on; still no row is taken for the other.
    server.sql(database, "INSERT INTO ng_business_slowordered0 (business, subBusiness) VALUES ('order', '')")?;
    for error in [store.allocate("order", 10, 0).await.map(drop), store.retire_tag("order").await.map(drop)] {
        assert!(matches!(error, Err(StoreError::Corrupt { .. })), "{error:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_one_to_the_server_are_one_to_the_issuer_s_channels() -> anyhow::Result<()> {
    let server = MariaDb::start()?;
    let url = server.database()?;
    let database = url.rsplit_once('/').context("a database")?.1;
    let folding = "CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci NOT NULL";
    let (batch, slow) = (open(&url, "batch").await?, open(&url, "slow-ordered").await?);
    assert_eq!((batch.folds_names().await?, slow.folds_names().await?), (None, None));
    for tag in ["order", "ORDER"] {
        batch.open_tag(tag).await?;
    }
    server.sql(
        database,
        &format!(
            "ALTER TABLE ng_business_mysql_autoincrement MODIFY business VARCHAR(128) {folding};
             ALTER TABLE ng_business_slowordered0 MODIFY business VARCHAR(129) {folding}"
        ),
    )?;
    for dialect in ["batch", "slow-ordered"] {
        let (one, two) = (open(&url, dialect).await?, open(&url, dialect).await?);
        assert!(one.folds_names().await?.is_some_and(|what| what.contains("utf8mb4_unicode_ci")));
        let mut starts = Vec::new();
        for _ in 0..10 {
            for (client, tag) in [(&one, "order"), (&two, "ORDER")] {
                starts.push(client.allocate(tag, 5, 0).await?.start);
            }
        }
        assert!(starts.is_sorted_by(|one, next| one < next), "{starts:?}");
        // What is lifted by its list is lifted above all.
        for record in one.tags(None, 9).await? {
            assert_eq!(record.watermark, one.tag(&record.tag).await?.watermark, "{record:?}");
        }
    }
    assert_eq!(slow.tag("ORDER").await?.tag, "order", "its name as it stands");
    Ok(())
}

// Channel 0.

#[tokio::test(flavor = "multi_thread")]
async fn batch_keeps_what_batches_can_keep_of_the_contract() -> anyhow::Result<()> {
    let fixture = Issuer::start("batch")?;
    check::grants_are_well_formed_and_ascend(&fixture).await;
    check::concurrent_clients_never_share_a_number(&fixture).await;
    check::no_name_with_a_space_at_an_end_is_created(&fixture).await;
    check::a_tail_is_taken_back_once(&fixture).await;
    check::a_tail_that_was_not_granted_is_not_taken_back(&fixture).await;
    check::a_raise_stands_against_a_late_release(&fixture).await;
    check::an_abandoned_request_costs_only_numbers(&fixture).await;
    check::the_tag_limit_holds(&fixture).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_of_batches_are_prefix_batch_and_offset() -> anyhow::Result<()> {
    let server = MariaDb::start()?;
    let url = server.database()?;
    let database = url.rsplit_once('/').context("a database")?.1;
    let store = open(&url, "batch").await?;
    let record = store.open_tag("order").await?;
    let options = TagOptions {
        start: 11_000_000_001,
        step: StepPolicy::Fixed { step: 5_000 },
        refill: RefillPolicy::Remaining { count: 500 },
        mode: Mode::Buffered,
    };
    assert_eq!((record.options, record.watermark), (options, 11_000_000_000));
    assert_eq!(bounds(&store.allocate("order", 5_000, 0).await?), (11_000_000_001, 11_000_005_001));
    assert_eq!(bounds(&store.allocate("order", 1_000_000, 0).await?), (12_000_000_001, 12_000_005_001), "one batch");
    assert_eq!(bounds(&store.allocate("order", 10, 0).await?), (13_000_000_001, 13_000_000_011), "the rest is a gap");
    assert_eq!(store.tag("order").await?.watermark, 13_000_005_000);
    // A floor skips batches, or a part of one.
    let segment = store.allocate("order", 5_000, 15_000_004_991).await?;
    assert_eq!((bounds(&segment), segment.version), ((15_000_004_991, 15_000_005_001), 5));
    assert_eq!(bounds(&store.allocate("order", 1, 19_000_005_001).await?), (110_000_000_001, 110_000_000_002));
    assert_eq!(store.raise_tag("order", 120_000_000_007).await?.watermark, 120_000_005_000);
    assert_eq!(store.raise_tag("order", 1).await?.watermark, 120_000_005_000, "a raise never lowers");
    assert_eq!(bounds(&store.allocate("order", 1, 0).await?), (121_000_000_001, 121_000_000_002));
    // The chain: every jump holds the next number too.
    let versions =
        "SELECT GROUP_CONCAT(version ORDER BY version) FROM ng_business_mysql_autoincrement WHERE business = 'order'";
    assert_eq!(server.sql(database, versions)?.trim(), "1,2,3,4,5,6,10,11,20,21");

    let own = BatchTag { prefix: 7, buff_size: 300, width: 3, lowest_critical_value: 30 };
    store.declare_batch_tag("own", &own).await?;
    store.declare_batch_tag("own", &own).await?;
    assert_eq!(bounds(&store.allocate("own", 300, 0).await?), (71_001, 71_301));
    for other in [BatchTag { prefix: 8, ..own }, BatchTag { width: 4, ..own }, BatchTag { buff_size: 301, ..own }] {
        assert!(refused(store.declare_batch_tag("own", &other).await).contains("use another tag"));
    }
    let text = refused(store.declare_batch_tag("bad", &BatchTag { buff_size: 1_000, ..own }).await);
    assert!(text.contains("1 to 999"), "{text}");
    assert!(
        refused(store.change_tag("own", StepPolicy::Fixed { step: 5 }, RefillPolicy::default()).await)
            .contains("never change")
    );
    assert!(matches!(store.create_tag("own", &TagOptions::default()).await, Err(StoreError::TagExists { .. })));
    let made = TagOptions { start: 13_000_000_001, step: StepPolicy::Fixed { step: 9 }, ..TagOptions::default() };
    assert_eq!(store.create_tag("made", &made).await?.watermark, 12_000_000_009);
    assert_eq!(bounds(&store.allocate("made", 100, 0).await?), (13_000_000_001, 13_000_000_010));
    assert!(refused(store.create_tag("o", &ordered()).await).contains("buffered"));
    assert!(matches!(store.allocate(&sub_tag("own", "a")?, 1, 0).await, Err(StoreError::TagInvalid { .. })));
    let names: Vec<String> = store.tags(None, 2).await?.into_iter().map(|record| record.tag).collect();
    assert_eq!(names, ["made", "order"]);
    assert_eq!(store.tags(Some("order"), 5).await?.len(), 1);
    assert!(
        refused(open(&url, "slow-ordered").await?.declare_batch_tag("x", &own).await).contains("use the dialect batch")
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_end_at_63_bits_and_where_a_tag_ends() -> anyhow::Result<()> {
    let server = MariaDb::start()?;
    let url = server.database()?;
    let database = url.rsplit_once('/').context("a database")?.1;
    let store = open(&url, "batch").await?;
    // 92 leads 17 digits more; 2 ^ 63 - 1 is 92 23372036854775807.
    let narrow = BatchTag { prefix: 92_233_720_368_547, buff_size: 5, width: 4, lowest_critical_value: 0 };
    store.declare_batch_tag("narrow", &narrow).await?;
    store.raise_tag("narrow", 9_223_372_036_854_760_001).await?;
    assert_eq!(bounds(&store.allocate("narrow", 9, 0).await?), (9_223_372_036_854_760_001, 9_223_372_036_854_760_006));
    assert_eq!(bounds(&store.allocate("narrow", 9, 0).await?), (9_223_372_036_854_770_001, 9_223_372_036_854_770_006));
    for (count, at_least) in [(1, 0), (1, ID_MAX), (9, u64::MAX)] {
        let error = store.allocate("narrow", count, at_least).await;
        assert!(matches!(error, Err(StoreError::Exhausted { .. })), "{error:?}");
    }

    store.allocate("order", 5_000, 0).await?;
    let ended = store.retire_tag("order").await?;
    assert_eq!(ended.watermark, 11_000_005_000);
    assert_eq!(store.retire_tag("order").await?, ended, "whoever lost the answer asks again");
    assert!(matches!(store.allocate("order", 1, 0).await, Err(StoreError::Exhausted { .. })));
    // One that read the greatest number before the end inserts the next one: it was taken by the end.
    let late =
        server.sql(database, "INSERT INTO ng_business_mysql_autoincrement (business, version) VALUES ('order', 2)");
    assert!(late.is_err(), "a late insert must not find room");
    assert_eq!(store.retire_tag("narrow").await?.watermark, 9_223_372_036_854_770_005);
    assert!(matches!(store.retire_tag("none").await, Err(StoreError::TagUnknown { .. })));
    // Batches that the issuer took are not guessed at.
    server.sql(database, "INSERT INTO ng_business_mysql_autoincrement (business, version) VALUES ('old', 41)")?;
    assert!(refused(store.allocate("old", 1, 0).await).contains("declare the tag"));
    store.declare_batch_tag("old", &BatchTag { width: 5, ..BatchTag::default() }).await?;
    assert_eq!(bounds(&store.allocate("old", 5_000, 0).await?), (14_200_001, 14_205_001));
    Ok(())
}

#[test]
fn batches_are_taken_once_over_processes_beside_the_issuer_and_through_kills() -> anyhow::Result<()> {
    let mut server = MariaDb::start()?;
    let url = server.database()?;
    let tag = BatchTag { prefix: 4, buff_size: 700, width: 4, lowest_critical_value: 100 };
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async { open(&url, "batch").await?.declare_batch_tag("order", &tag).await })?;
    let granted = crowd(&mut server, &url, "batch", "order", 700, Draw::Batch(tag))?;
    assert!(granted.iter().all(|grant| grant.end - grant.start == 700));
    assert_disjoint(&granted);
    assert_each_ascends(&granted);
    assert_ascends_in_real_time(&granted);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_needs_no_more_than_the_privileges_it_names() -> anyhow::Result<()> {
    let server = MariaDb::start()?;
    let (url, _) = least_privileged(&server, &Dialect::Batch)?;
    let mut options = MysqlOptions::from_url(&format!("{url}?dialect=batch&create=false"))?;
    options.creation = TagCreation::default();
    let store = MysqlStore::connect(options).await?;
    store.declare_batch_tag("own", &BatchTag { prefix: 3, ..BatchTag::default() }).await?;
    assert_eq!(store.allocate("own", 5_000, 0).await?.start, 31_000_000_001);
    store.raise_tag("own", 35_000_000_001).await?;
    assert_eq!(store.retire_tag("own").await?.version, 4);
    store.check().await?;
    Ok(())
}

// Tickets.

#[tokio::test(flavor = "multi_thread")]
async fn tickets_are_drawn_one_by_one_from_a_table_per_tag() -> anyhow::Result<()> {
    let server = MariaDb::start()?;
    let url = server.database()?;
    let database = url.rsplit_once('/').context("a database")?.1;
    let store = open(&url, "ticket").await?;
    // Flickr's table, as it stood.
    server.sql(
        database,
        "CREATE TABLE `Tickets64` (`id` bigint(20) unsigned NOT NULL auto_increment, `stub` char(1) NOT NULL default '',
         PRIMARY KEY (`id`), UNIQUE KEY `stub` (`stub`)) ENGINE = InnoDB AUTO_INCREMENT = 72157623227190423;
         CREATE TABLE users (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, name TEXT);
         CREATE TABLE small (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, stub CHAR(1) UNIQUE);
         CREATE TABLE lossy (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, stub CHAR(1) UNIQUE) ENGINE = MyISAM",
    )?;
    let segment = store.allocate("Tickets64", 1_000, 0).await?;
    assert_eq!(bounds(&segment), (72_157_623_227_190_423, 72_157_623_227_190_424));
    assert_eq!(store.tag("Tickets64").await?.watermark, 72_157_623_227_190_423);
    assert_eq!(server.sql(database, "SELECT * FROM Tickets64")?.trim(), "72157623227190423\ta", "one row, as Flickr's");
    for (tag, why) in
        [("users", "not one to draw tickets from"), ("small", "bigint unsigned"), ("lossy", "kept in MyISAM")]
    {
        let text = refused(store.allocate(tag, 1, 0).await);
        assert!(text.contains(why), "{text}");
        refused(store.raise_tag(tag, 100).await);
    }
    assert_eq!(server.sql(database, "SELECT COUNT(*) FROM users")?.trim(), "0");
    for tag in ["a`b", "a b", "order.x", "é", "unalike_store", "unalike_ticket"] {
        for error in
            [store.allocate(tag, 1, 0).await.err(), store.retire_tag(tag).await.err(), store.tag(tag).await.err()]
        {
            assert!(matches!(error, Some(StoreError::TagInvalid { .. })), "{tag}: {error:?}");
        }
    }
    assert!(matches!(store.allocate(&sub_tag("order", "a")?, 1, 0).await, Err(StoreError::TagInvalid { .. })));

    for number in 1..=20 {
        assert_eq!(bounds(&store.allocate("order", 5, 0).await?), (number, number + 1));
    }
    assert!(!store.release("order", TailRelease { start: 20, version: 20 }).await?);
    assert_eq!(store.allocate("order", 1, 1_000).await?.start, 1_000);
    assert_eq!(store.allocate("order", 1, 500).await?.start, 1_001);
    assert_eq!(store.raise_tag("order", 2_000).await?.watermark, 1_999);
    assert_eq!(store.raise_tag("order", 7).await?.watermark, 1_999, "a raise never lowers");
    assert_eq!(store.raise_tag("order", 1).await?.watermark, 1_999);
    assert_eq!(store.allocate("order", 1, 0).await?.start, 2_000);
    let made = store.create_tag("made", &TagOptions { start: 70, ..TagOptions::default() }).await?;
    assert_eq!((made.watermark, store.allocate("made", 1, 0).await?.start), (69, 70));
    assert!(matches!(store.create_tag("made", &TagOptions::default()).await, Err(StoreError::TagExists { .. })));
    assert!(refused(store.create_tag("o", &ordered()).await).contains("one by one"));
    let names: Vec<String> = store.tags(None, 10).await?.into_iter().map(|record| record.tag).collect();
    assert_eq!(names, ["Tickets64", "lossy", "made", "order", "small"]);
    assert_eq!(store.tags(Some("made"), 1).await?.first().map(|record| record.watermark), Some(2_000));
    // A full counter: what it gives beyond 63 bits is nobody's.
    store.raise_tag("made", ID_MAX).await?;
    assert_eq!(store.allocate("made", 1, 0).await?.start, ID_MAX);
    for _ in 0..2 {
        assert!(matches!(store.allocate("made", 1, 0).await, Err(StoreError::Exhausted { .. })));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_of_tickets_are_created_and_ended_with_their_tables() -> anyhow::Result<()> {
    let server = MariaDb::start()?;
    let url = server.database()?;
    let store = open(&url, "ticket").await?;
    let closed = open_with(&url, "ticket", TagCreation { on_first_use: false, tags_max: 1 }).await?;
    assert!(matches!(closed.allocate("Tickets64", 1, 0).await, Err(StoreError::TagUnknown { .. })));
    assert!(matches!(store.raise_tag("Tickets64", 5).await, Err(StoreError::TagUnknown { .. })));
    store.allocate("Tickets64", 1, 0).await?;
    closed.allocate("Tickets64", 1, 0).await?;
    let error = closed.create_tag("second", &TagOptions::default()).await;
    assert!(matches!(error, Err(StoreError::TagLimit { tags_max: 1, .. })), "{error:?}");

    let ended = store.retire_tag("Tickets64").await?;
    assert_eq!((ended.tag.as_str(), ended.watermark), ("Tickets64", 2));
    assert_eq!(store.retire_tag("Tickets64").await?, ended, "whoever lost the answer asks again");
    for store in [&store, &closed] {
        let error = store.allocate("Tickets64", 1, 0).await.err().context("it has ended")?;
        assert!(!error.is_retryable(), "{error:?}");
    }
    assert!(refused(store.create_tag("Tickets64", &TagOptions::default()).await).contains("was ended"));
    // It is told as ended, in its place among the others, page by page.
    for tag in ["Tickets6", "Tickets640", "other"] {
        store.create_tag(tag, &TagOptions::default()).await?;
    }
    let mut listed = Vec::new();
    while let Some(record) = store.tags(listed.last().map(|(tag, _): &(String, _)| tag.as_str()), 1).await?.pop() {
        listed.push((record.tag, record.watermark == ID_MAX));
    }
    let named = listed.iter().map(|(tag, is_ended)| (tag.as_str(), *is_ended)).collect::<Vec<_>>();
    assert_eq!(named, [("Tickets6", false), ("Tickets64", true), ("Tickets640", false), ("other", false)]);
    assert_eq!(store.tag("Tickets64").await?.watermark, ID_MAX, "as it is listed");
    assert_eq!(store.raise_tag("Tickets64", 5).await?.watermark, ID_MAX, "as high as it can be");
    let mut connection = MySqlConnection::connect(&url).await?;
    assert!(draw_ticket(&mut connection).await.is_err(), "Flickr's statement finds no table");
    assert!(matches!(store.retire_tag("none").await, Err(StoreError::TagUnknown { .. })));
    Ok(())
}

#[test]
fn tickets_are_drawn_once_over_processes_beside_flickrs_statements_and_through_kills() -> anyhow::Result<()> {
    let mut server = MariaDb::start()?;
    let (url, _) = least_privileged(&server, &Dialect::Ticket)?;
    let granted = crowd(&mut server, &url, "ticket", "Tickets64", 1, Draw::Ticket)?;
    assert_disjoint(&granted);
    assert_each_ascends(&granted);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_is_never_lowered_by_a_raise_or_a_crash() -> anyhow::Result<()> {
    let mut server = MariaDb::start()?;
    let url = server.database()?;
    let database = url.rsplit_once('/').context("a database")?.1;
    let store = open(&url, "ticket").await?;
    store.create_tag("started", &TagOptions { start: 5_000, ..TagOptions::default() }).await?;
    for _ in 0..5 {
        store.allocate("order", 1, 0).await?;
    }
    store.raise_tag("raised", 1).await.err().context("an unknown tag")?;
    store.allocate("raised", 1, 0).await?;
    store.raise_tag("raised", 900).await?;
    // As after two tickets that were drawn in one order and committed in the other: the row is not the greatest.
    server.sql(database, "DELETE FROM `order`; INSERT INTO `order` VALUES (3, 'a')")?;
    assert_eq!(store.raise_tag("order", 4).await?.watermark, 5);
    server.restart()?;
    let store = open(&url, "ticket").await?;
    // A crash may cost some numbers.
    for (tag, next) in [("order", 6), ("raised", 900), ("started", 5_000)] {
        let start = store.allocate(tag, 1, 0).await?.start;
        assert!((next..next + 10).contains(&start), "{tag} goes on at {start}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_number_together_in_steps_as_their_configuration_says() -> anyhow::Result<()> {
    let count = 3;
    let (mut stores, mut servers) = (Vec::new(), Vec::new());
    let stripe = |index| Stripe { set: 0x5eed, index, count };
    for index in 0..count {
        let steps = [format!("--auto-increment-increment={count}"), format!("--auto-increment-offset={}", index + 1)];
        let server = MariaDb::start_with(&steps.each_ref().map(String::as_str))?;
        let url = server.database()?;
        let store = open(&url, "ticket").await?;
        let text = refused(store.allocate("Tickets64", 1, 0).await);
        assert!(text.contains("auto_increment_increment = 1 and auto_increment_offset = 1"), "{text}");
        let text = refused(store.join_stripe(&stripe((index + 1) % count)).await);
        assert!(text.contains("it needs auto_increment_increment = 3"), "{text}");
        assert_eq!(store.stripe().await?, None);
        let joined = store.join_stripe(&stripe(index)).await?;
        assert_eq!(joined.numbers, StripeNumbers::Counted);
        assert_eq!(store.stripe().await?, Some(stripe(index)));
        refused(store.allocate("Tickets64", 1, 0).await);
        stores.push((joined.store, url));
        servers.push(server);
    }
    let mut ids = Vec::new();
    for (index, (store, url)) in stores.iter().enumerate() {
        let index = u64::try_from(index)?;
        for number in 1..=4 {
            let segment = store.allocate("Tickets64", 1, 0).await?;
            assert_eq!(bounds(&segment), (number, number + 1), "counted as if it stood alone");
            ids.push((segment.start - 1) * u64::from(count) + index + 1);
        }
        // The very tickets of the server.
        let mut connection = MySqlConnection::connect(url).await?;
        let ticket = draw_ticket(&mut connection).await?.0;
        assert_eq!(ticket, 4 * u64::from(count) + index + 1);
        assert_eq!(store.allocate("Tickets64", 1, 0).await?.start, 6);
        assert_eq!(store.raise_tag("Tickets64", 100).await?.watermark, 99);
        assert_eq!(store.allocate("Tickets64", 1, 200).await?.start, 200);
        assert_eq!(store.tag("Tickets64").await?.watermark, 200);
        // Who has not joined, or joined otherwise, is given nothing.
        let stranger = open(url, "ticket").await?;
        refused(stranger.allocate("Tickets64", 1, 0).await);
        let other = Stripe { set: 0xbad, ..stripe(u32::try_from(index)?) };
        assert!(refused(stranger.join_stripe(&other).await).contains("is recorded as stripe"));
        refused(stranger.allocate("Tickets64", 1, 0).await);
    }
    ids.sort_unstable();
    assert!(ids.iter().copied().eq(1..=12), "{ids:?}");

    // Resizing: whoever joined before is given nothing more, and each tag goes on behind as many numbers.
    let (store, url) = stores.first().context("the first store")?;
    let larger = Stripe { set: 0xfeed, index: 0, count: 5 };
    store.restripe(Some(&stripe(0)), Some(&larger)).await?;
    refused(store.allocate("Tickets64", 1, 0).await);
    let watermark = store.tag("Tickets64").await?.watermark;
    assert!((200..=201).contains(&watermark), "counted as before: {watermark}");
    let mut connection = MySqlConnection::connect(url).await?;
    assert!(draw_ticket(&mut connection).await?.0 > 200 * 5 - 5, "the counter went along");
    let second = stores.get(1).context("the second store")?;
    second.0.restripe(Some(&stripe(1)), None).await?;
    assert_eq!(second.0.stripe().await?, None);
    assert!(second.0.tag("Tickets64").await?.watermark >= 200);
    drop(servers);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_connection_is_looked_at_for_its_steps() -> anyhow::Result<()> {
    let server = MariaDb::start()?;
    let url = server.database()?;
    let store = open(&url, "ticket").await?;
    assert_eq!(store.allocate("order", 1, 0).await?.start, 1);
    let error = store.join_stripe(&Stripe { set: 1, index: 0, count: 2 }).await;
    assert!(refused(error).contains("it needs auto_increment_increment = 2"));
    server.sql("", "SET GLOBAL auto_increment_increment = 2")?;
    // The open connection steps as before; it is cut, and the next one would step otherwise.
    let ids = server.sql("", "SELECT id FROM information_schema.PROCESSLIST WHERE db LIKE 'test\\_%'")?;
    for id in ids.lines() {
        server.sql("", &format!("KILL {id}"))?;
    }
    let mut errors = Vec::new();
    for _ in 0..3 {
        errors.push(store.allocate("order", 1, 0).await.err().context("it must not step otherwise")?.to_string());
    }
    assert!(errors.iter().any(|error| error.contains("auto_increment_increment = 2")), "{errors:?}");
    // A server that stands alone and was used is no stripe.
    let store = open(&url, "ticket").await?;
    let error = store.join_stripe(&Stripe { set: 1, index: 0, count: 2 }).await;
    assert!(refused(error).contains("was used alone"));
    server.sql("", "SET GLOBAL auto_increment_increment = 1")?;
    assert_eq!(open(&url, "ticket").await?.allocate("order", 1, 0).await?.start, 2);
    Ok(())
}

/// Keeps the compiler's eye on what a statement is made of.
#[tokio::test(flavor = "multi_thread")]
async fn the_statements_that_create_tables_can_be_repeated() -> anyhow::Result<()> {
    let server = MariaDb::start()?;
    for dialect in [Dialect::Batch, Dialect::SlowOrdered, Dialect::Ticket] {
        let url = server.database()?;
        let mut connection = MySqlConnection::connect(&url).await?;
        for statement in dialect.ddl().into_iter().chain(dialect.ddl()) {
            sqlx::query(AssertSqlSafe(statement)).execute(&mut connection).await?;
        }
    }
    Ok(())
}
