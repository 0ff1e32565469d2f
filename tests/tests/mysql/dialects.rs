//! The tables of Leaf, tinyid, CosId and others, used in place on a real MariaDB: the ranges that each counts by, its
//! own statements beside ours, tables and rows that cannot be used, the end of a tag, and the format of its ids.

#![expect(clippy::expect_used, reason = "a fixture that cannot do its work fails its test")]

use std::collections::BTreeSet;
use std::ops::Range;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::{Connection as _, Executor as _, MySqlConnection, Row as _};
use unalike_core::{Format, FormatKey, FormatOptions};
use unalike_memory::MemoryStore;
use unalike_mysql::{Dialect, MysqlOptions, MysqlStore};
use unalike_storage::contract::{Fixture, SegmentFixture, segment_checks as check};
use unalike_storage::{
    AdaptiveStep, FormatBinding, FormatOwner, FormatPart, ID_MAX, Mode, RefillPolicy, Segment, SegmentStore,
    StepPolicy, StoreError, Stripe, StripeNumbers, TagCreation, TagOptions, TagRecord, check_carried_format,
    check_format, sub_tag,
};
use unalike_tests::mariadb::MariaDb;
use unalike_tests::outages::Database as _;
use unalike_tests::until;

/// A table, with one row for the tag `order` as somebody would have typed it.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// The parameters of the store's URL.
    parameters: &'static str,
    table: &'static str,
    /// The column that counts.
    column: &'static str,
    row: &'static str,
}

const LEAF: Case = Case {
    parameters: "dialect=leaf",
    table: "leaf_alloc",
    column: "max_id",
    row: "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 1, 2000)",
};

const TINYID: Case = Case {
    parameters: "dialect=tinyid",
    table: "tiny_id_info",
    column: "max_id",
    row: "INSERT INTO tiny_id_info (biz_type, begin_id, max_id, step) VALUES ('order', 0, 0, 2000)",
};

/// Odd numbers only.
const TINYID_ODD: Case = Case {
    row: "INSERT INTO tiny_id_info (biz_type, begin_id, max_id, step, delta, remainder) VALUES ('order', 0, 0, 2000, 2, 1)",
    ..TINYID
};

const COSID: Case = Case {
    parameters: "dialect=cosid",
    table: "cosid",
    column: "last_max_id",
    row: "INSERT INTO cosid (name, last_max_id, last_fetch_time) VALUES ('order', 0, 0)",
};

const SEQUENCE: Case = Case {
    parameters: "dialect=sequence-table",
    table: "t_sequence",
    column: "current_val",
    row: "INSERT INTO t_sequence (pk_seq_name, current_val, increment_val) VALUES ('order', 0, 1000)",
};

const ID_GENERATOR: Case = Case {
    parameters: "dialect=id-generator&source-stopped=true&keys=order:7,other:8,contract.first:10,contract.first.started:11,\
        contract.ascend:12,contract.crowd:13,contract.floor:14,contract.floor.new:15,contract.top:16,contract.top.greedy:17,\
        contract.top.last:18,contract.tail:19,contract.raise:20,contract.foreign:21",
    table: "id_generator",
    column: "current_max_id",
    row: "INSERT INTO id_generator (id, current_max_id, increment_step) VALUES (7, 0, 1000)",
};

/// Of these no row is typed here.
const BATCH: Case =
    Case { parameters: "dialect=batch", table: "ng_business_mysql_autoincrement", column: "version", row: "" };

const SLOW_ORDERED: Case =
    Case { parameters: "dialect=slow-ordered", table: "ng_business_slowordered0", column: "num", row: "" };

const TICKET: Case = Case { parameters: "dialect=ticket", table: "Tickets64", column: "id", row: "" };

const CASES: [Case; 6] = [LEAF, TINYID, TINYID_ODD, COSID, SEQUENCE, ID_GENERATOR];

/// A case in a database of its own.
struct Place {
    case: Case,
    /// With the user root, and without parameters.
    server_url: String,
}

impl Place {
    /// An empty database.
    fn new(case: Case) -> Self {
        Self { case, server_url: MariaDb::shared().expect("MariaDB starts").database().expect("a database") }
    }

    /// With the table, and its row.
    async fn with_row(case: Case) -> Self {
        let place = Self::new(case);
        place.store().await.close().await;
        place.sql(case.row);
        place
    }

    /// Told to begin what is missing.
    fn url(&self) -> String {
        format!("{}&create=true", self.untold_url())
    }

    /// As somebody writes it who goes on with the old system's tables.
    fn untold_url(&self) -> String {
        format!("{}?{}", self.server_url, self.case.parameters)
    }

    async fn try_store(&self) -> Result<MysqlStore, StoreError> {
        MysqlStore::connect(MysqlOptions::from_url(&self.url())?).await
    }

    async fn store(&self) -> MysqlStore {
        self.try_store().await.expect("the store opens")
    }

    /// Why the store does not open.
    async fn refusal(&self) -> String {
        let error = self.try_store().await.expect_err("the store is refused");
        assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
        error.to_string()
    }

    fn name(&self) -> &str {
        self.server_url.rsplit('/').next().expect("the URL ends with the database")
    }

    fn sql(&self, statements: &str) -> String {
        MariaDb::shared().expect("MariaDB runs").sql(self.name(), statements).expect("the statements run")
    }

    /// The figure that counts.
    fn figure(&self) -> String {
        self.sql(&format!("SELECT {} FROM {}", self.case.column, self.case.table)).trim().to_owned()
    }

    /// Sets the figure that counts.
    fn set_figure(&self, figure: &str) {
        self.sql(&format!("UPDATE {} SET {} = {figure}", self.case.table, self.case.column));
    }

    /// A client of the old system.
    async fn old(&self) -> Old {
        let connection = MySqlConnection::connect(&self.server_url).await.expect("the server takes a connection");
        Old { connection, case: self.case }
    }
}

fn range(segment: Segment) -> Range<u64> {
    assert_eq!(segment.validate(), Ok(()), "{segment:?}");
    assert_eq!((segment.stride, segment.generation), (1, 0), "{segment:?}");
    segment.start..segment.end
}

fn what(error: &StoreError) -> String {
    format!("{error} ({error:?})")
}

/// A client of the old system, with the statements that systems of that kind send.
struct Old {
    connection: MySqlConnection,
    case: Case,
}

impl Old {
    /// The numbers that it goes on to hand out: first one, end, stride; none when it finds no row.
    async fn take(&mut self) -> Result<Option<(u64, u64, u64)>, sqlx::Error> {
        match self.case.table {
            "leaf_alloc" => self.leaf().await,
            "tiny_id_info" => self.tinyid().await,
            "cosid" => self.cosid(100).await,
            _ => self.sequence().await,
        }
    }

    async fn leaf(&mut self) -> Result<Option<(u64, u64, u64)>, sqlx::Error> {
        let mut transaction = self.connection.begin().await?;
        let update = sqlx::query("UPDATE leaf_alloc SET max_id = max_id + step WHERE biz_tag = ?");
        update.bind("order").execute(&mut *transaction).await?;
        let select = sqlx::query("SELECT biz_tag, max_id, step FROM leaf_alloc WHERE biz_tag = ?");
        let row = select.bind("order").fetch_optional(&mut *transaction).await?;
        transaction.commit().await?;
        let Some(row) = row else { return Ok(None) };
        let (max, step): (i64, i32) = (row.try_get("max_id")?, row.try_get("step")?);
        Ok(Some((number(max - i64::from(step)), number(max), 1)))
    }

    async fn tinyid(&mut self) -> Result<Option<(u64, u64, u64)>, sqlx::Error> {
        self.connection.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await?;
        // It gives up after three tries; then it is asked again.
        loop {
            let mut transaction = self.connection.begin().await?;
            let select = sqlx::query(
                "select id, biz_type, begin_id, max_id, step, delta, remainder, create_time, update_time, version \
                 from tiny_id_info where biz_type = ?",
            );
            let Some(row) = select.bind("order").fetch_optional(&mut *transaction).await? else {
                transaction.rollback().await?;
                return Ok(None);
            };
            let (id, max, version): (u64, i64, i64) =
                (row.try_get("id")?, row.try_get("max_id")?, row.try_get("version")?);
            let (step, delta, remainder): (i32, i32, i32) =
                (row.try_get("step")?, row.try_get("delta")?, row.try_get("remainder")?);
            let new_max = max + i64::from(step);
            let update = sqlx::query(
                "update tiny_id_info set max_id=?, update_time=now(), version=version+1 where id=? and max_id=? and version=? \
                 and biz_type=?",
            );
            let update = update.bind(new_max).bind(id).bind(max).bind(version).bind("order");
            let updated = update.execute(&mut *transaction).await?.rows_affected();
            transaction.commit().await?;
            if updated == 1 {
                // (currentId, maxId], those with the remainder.
                let (delta, remainder) = (number(delta), number(remainder));
                let numbers = number(max) + 1..number(new_max) + 1;
                let first =
                    numbers.clone().find(|number| number % delta == remainder).expect("the step is long enough");
                let last = numbers.rev().find(|number| number % delta == remainder).expect("the step is long enough");
                return Ok(Some((first, last + delta, delta)));
            }
        }
    }

    async fn cosid(&mut self, step: i64) -> Result<Option<(u64, u64, u64)>, sqlx::Error> {
        let mut transaction = self.connection.begin().await?;
        let update = "update cosid set last_max_id=(last_max_id + ?),last_fetch_time=unix_timestamp() where name = ?";
        sqlx::query(update).bind(step).bind("order").execute(&mut *transaction).await?;
        let select = sqlx::query("select last_max_id from cosid where name = ?");
        let row = select.bind("order").fetch_optional(&mut *transaction).await?;
        transaction.commit().await?;
        let Some(row) = row else { return Ok(None) };
        let max: u64 = row.try_get("last_max_id")?;
        Ok(Some((max - number(step) + 1, max + 1, 1)))
    }

    async fn sequence(&mut self) -> Result<Option<(u64, u64, u64)>, sqlx::Error> {
        let mut transaction = self.connection.begin().await?;
        let lock = sqlx::query("SELECT current_val FROM t_sequence WHERE pk_seq_name = ? FOR UPDATE");
        if lock.bind("order").fetch_optional(&mut *transaction).await?.is_none() {
            transaction.rollback().await?;
            return Ok(None);
        }
        let update =
            sqlx::query("UPDATE t_sequence SET current_val = current_val + increment_val WHERE pk_seq_name = ?");
        update.bind("order").execute(&mut *transaction).await?;
        let select = sqlx::query("SELECT current_val FROM t_sequence WHERE pk_seq_name = ?");
        let new: i64 = select.bind("order").fetch_one(&mut *transaction).await?.try_get("current_val")?;
        transaction.commit().await?;
        Ok(Some((number(new), number(new) + 1_000, 1)))
    }
}

fn number(value: impl TryInto<u64>) -> u64 {
    value.try_into().ok().expect("old programs of these tests count no negative numbers")
}

/// All numbers that were granted, each once.
#[derive(Default)]
struct Numbers(BTreeSet<u64>);

impl Numbers {
    #[track_caller]
    fn add(&mut self, (start, end, stride): (u64, u64, u64)) {
        assert!(start >= 1 && start < end, "{start} {end}");
        for number in (start..end).step_by(usize::try_from(stride).expect("a small stride")) {
            assert!(self.0.insert(number), "{number} was granted twice");
        }
    }
}

/// Starts a process with so many clients that take so many grants each.
fn child(place: &Place, clients: u32, grants: u32) -> std::process::Child {
    Command::new(env!("CARGO_BIN_EXE_store-child"))
        .args([place.url(), "order".to_owned(), clients.to_string(), grants.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the child starts")
}

/// Waits for the process, and adds what it was granted; the grants of each client ascend. Gives the number of grants.
fn collect(child: std::process::Child, numbers: &mut Numbers) -> usize {
    let output = child.wait_with_output().expect("the child ends");
    let printed = String::from_utf8(output.stdout).expect("the child prints text");
    assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    let mut ends = std::collections::BTreeMap::new();
    for line in printed.lines() {
        let fields: Vec<u64> = line.split(' ').map(|field| field.parse().expect("a number")).collect();
        let &[client, start, end, stride] = fields.as_slice() else { panic!("{line}") };
        let before = ends.insert(client, end).unwrap_or_default();
        assert!(start >= before, "the grants of a client ascend: {line} after {before}");
        numbers.add((start, end, stride));
    }
    printed.lines().count()
}

#[tokio::test]
async fn leaf_counts_up_to_the_number_before_max_id() {
    let place = Place::with_row(LEAF).await;
    let store = place.store().await;
    let record = store.tag("order").await.unwrap();
    assert_eq!(record.watermark, 0, "nothing was granted of a new row");
    let adaptive = AdaptiveStep {
        initial: 2_000,
        min: 2_000,
        max: 1_000_000,
        grow_below_ms: 15 * 60 * 1_000,
        shrink_above_ms: 30 * 60 * 1_000,
    };
    assert_eq!(record.options, TagOptions { step: StepPolicy::Adaptive(adaptive), ..TagOptions::default() });

    assert_eq!(range(store.allocate("order", 2_000, 0).await.unwrap()), 1..2_001);
    assert_eq!(place.figure(), "2001");
    assert_eq!(place.old().await.take().await.unwrap(), Some((2_001, 4_001, 1)), "[max_id - step, max_id)");
    assert_eq!(range(store.allocate("order", 10, 0).await.unwrap()), 4_001..4_011);
    assert_eq!(range(store.allocate("order", 10, 5_000).await.unwrap()), 5_000..5_010);
    assert_eq!(range(store.allocate("order", 1, 4_000).await.unwrap()), 5_010..5_011);
    assert_eq!(store.raise_tag("order", 9_000).await.unwrap().watermark, 8_999);
    assert_eq!(store.raise_tag("order", 7_000).await.unwrap().watermark, 8_999);
    assert_eq!(place.old().await.take().await.unwrap(), Some((9_000, 11_000, 1)));

    let smaller = StepPolicy::Adaptive(AdaptiveStep { initial: 500, min: 500, ..adaptive });
    let record = store.change_tag("order", smaller, RefillPolicy::default()).await.unwrap();
    assert_eq!((record.options.step, record.watermark), (smaller, 10_999));
    assert_eq!(place.old().await.take().await.unwrap(), Some((11_000, 11_500, 1)), "Leaf uses the new step");
    for (step, refill) in [
        (StepPolicy::Fixed { step: 500 }, RefillPolicy::default()),
        (StepPolicy::Adaptive(AdaptiveStep { max: 2_000_000, ..adaptive }), RefillPolicy::default()),
        (smaller, RefillPolicy::Remaining { count: 5 }),
    ] {
        let error = store.change_tag("order", step, refill).await.unwrap_err();
        assert!(matches!(&error, StoreError::Refused { what, .. } if what.contains("adaptive")), "{}", what(&error));
    }
    assert_eq!(place.sql("SELECT step FROM leaf_alloc").trim(), "500", "what was refused changed nothing");
}

#[tokio::test]
async fn tinyid_counts_up_to_max_id_by_delta_and_remainder() {
    let place = Place::with_row(TINYID).await;
    let store = place.store().await;
    let record = store.tag("order").await.unwrap();
    let options = TagOptions {
        step: StepPolicy::Fixed { step: 2_000 },
        refill: RefillPolicy::ShareConsumed { percent: 20 },
        ..TagOptions::default()
    };
    assert_eq!((record.watermark, record.options, record.version), (0, options, 0));
    assert_eq!(range(store.allocate("order", 2_000, 0).await.unwrap()), 1..2_001);
    assert_eq!(place.sql("SELECT max_id, version FROM tiny_id_info"), "2000\t1\n");
    assert_eq!(place.old().await.take().await.unwrap(), Some((2_001, 4_001, 1)), "(max_id - step, max_id]");
    assert_eq!(range(store.allocate("order", 5, 0).await.unwrap()), 4_001..4_006);
    assert_eq!(range(store.allocate("order", 5, 5_000).await.unwrap()), 5_000..5_005);
    assert_eq!(store.raise_tag("order", 9_000).await.unwrap().watermark, 8_999);

    // The example of tinyid's documentation: begin_id and max_id 1, so the first id is 2.
    place.sql("UPDATE tiny_id_info SET begin_id = 1, max_id = 1, step = 100000");
    assert_eq!(store.tag("order").await.unwrap().options.start, 2);
    assert_eq!(range(store.allocate("order", 1, 0).await.unwrap()), 2..3);

    let place = Place::with_row(TINYID_ODD).await;
    let store = place.store().await;
    let grant = async |count, at_least| {
        let Segment { start, end, stride, .. } = store.allocate("order", count, at_least).await.unwrap();
        (start, end, stride)
    };
    assert_eq!(
        store.tag("order").await.unwrap().options.step,
        StepPolicy::Fixed { step: 1_000 },
        "half of all numbers"
    );
    assert_eq!(grant(3, 0).await, (1, 7, 2), "1, 3, 5");
    assert_eq!(place.figure(), "5");
    assert_eq!(grant(1, 0).await, (7, 9, 2), "the numbers 6 to 6 would hold none");
    assert_eq!(place.old().await.take().await.unwrap(), Some((9, 2_009, 2)), "of 8 to 2007, the odd ones");
    assert_eq!(grant(2, 3_000).await, (3_001, 3_005, 2));
    place.sql("UPDATE tiny_id_info SET max_id = 0, delta = 3, remainder = 0");
    assert_eq!(grant(2, 0).await, (3, 9, 3), "3, 6: never 0");
    let step = StepPolicy::Fixed { step: 500 };
    let record = store.change_tag("order", step, RefillPolicy::ShareConsumed { percent: 20 }).await.unwrap();
    assert_eq!(record.options.step, step);
    assert_eq!(place.sql("SELECT step FROM tiny_id_info"), "1500\n", "500 ids of 1500 numbers");

    for (delta, remainder, why) in [(2, 2, "must be below the delta"), (0, 0, "must be 1 or more"), (2, -1, "negative")]
    {
        place.sql(&format!("UPDATE tiny_id_info SET delta = {delta}, remainder = {remainder}"));
        let error = store.allocate("order", 1, 0).await.unwrap_err();
        assert!(error.to_string().contains(why) && !error.is_retryable(), "{}", what(&error));
    }
}

/// Somebody changes which numbers are this database's, and leaves `version` alone, while a grant is under way.
#[tokio::test(flavor = "multi_thread")]
async fn tinyid_grants_nothing_by_a_delta_that_is_another_one_by_now() {
    // Of its own: whoever waits for a lock there is the grant.
    let server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    let name = url.rsplit('/').next().unwrap();
    let options = MysqlOptions::from_url(&format!("{url}?{}&create=true", TINYID.parameters)).unwrap();
    let store = Arc::new(MysqlStore::connect(options).await.unwrap());
    server.sql(name, TINYID.row).unwrap();
    let changing = server.begin(name, "UPDATE tiny_id_info SET delta = 2, remainder = 1").unwrap();
    // It reads the row as it was before the change.
    let granting = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.allocate("order", 10, 0).await }
    });
    until("the grant waits for the row", async || server.waiting().len() == 1).await;
    changing.commit().unwrap();
    let Segment { start, end, stride, .. } = granting.await.unwrap().unwrap();
    assert_eq!((start, end, stride), (1, 21, 2), "the odd ones");
    assert_eq!(server.sql(name, "SELECT max_id, version FROM tiny_id_info").unwrap(), "19\t1\n");
}

#[tokio::test]
async fn cosid_counts_up_to_last_max_id() {
    let place = Place::with_row(COSID).await;
    let store = place.store().await;
    let record = store.tag("order").await.unwrap();
    assert_eq!((record.watermark, record.options), (0, TagOptions::default()));
    assert_eq!(range(store.allocate("order", 100, 0).await.unwrap()), 1..101);
    assert_eq!(place.figure(), "100");
    let fetched: u64 = place.sql("SELECT last_fetch_time FROM cosid").trim().parse().unwrap();
    let now: u64 = place.sql("SELECT UNIX_TIMESTAMP()").trim().parse().unwrap();
    assert!((now - 600..=now).contains(&fetched), "{fetched} is seconds, as CosId writes them, and just before {now}");
    assert_eq!(place.old().await.take().await.unwrap(), Some((101, 201, 1)), "(last_max_id - step, last_max_id]");
    assert_eq!(range(store.allocate("order", 10, 1_000).await.unwrap()), 1_000..1_010);
    assert_eq!(store.raise_tag("order", 9_000).await.unwrap().watermark, 8_999);
    assert_eq!(place.old().await.take().await.unwrap(), Some((9_000, 9_100, 1)));
    let error = store.change_tag("order", StepPolicy::Fixed { step: 5 }, RefillPolicy::default()).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{}", what(&error));
}

#[tokio::test]
async fn a_sequence_table_counts_up_from_current_val() {
    let place = Place::with_row(SEQUENCE).await;
    let store = place.store().await;
    let record = store.tag("order").await.unwrap();
    let options = TagOptions { step: StepPolicy::Fixed { step: 1_000 }, ..TagOptions::default() };
    assert_eq!((record.watermark, record.options), (999, options), "the first block of such a row begins at 1000");
    assert_eq!(range(store.allocate("order", 1_000, 0).await.unwrap()), 1_000..2_000);
    assert_eq!(place.figure(), "1000", "the block is [current_val, current_val + increment_val)");
    assert_eq!(place.old().await.take().await.unwrap(), Some((2_000, 3_000, 1)));
    assert_eq!(range(store.allocate("order", 10, 0).await.unwrap()), 3_000..3_010);
    assert_eq!(place.old().await.take().await.unwrap(), Some((3_010, 4_010, 1)));
    assert_eq!(range(store.allocate("order", 5_000, 0).await.unwrap()), 4_010..9_010);
    assert_eq!(range(store.allocate("order", 10, 20_000).await.unwrap()), 20_000..20_010);
    assert_eq!(place.old().await.take().await.unwrap(), Some((20_010, 21_010, 1)));
    assert_eq!(store.raise_tag("order", 30_000).await.unwrap().watermark, 29_999);
    assert_eq!(store.raise_tag("order", 1).await.unwrap().watermark, 29_999);

    // A longer step, and a shorter one again: nothing is granted twice.
    let mut numbers = Numbers::default();
    for step in [1_000, 5_000, 1_000, 2_000] {
        let record = store.change_tag("order", StepPolicy::Fixed { step }, RefillPolicy::default()).await.unwrap();
        assert_eq!(record.options.step, StepPolicy::Fixed { step });
        for _ in 0..2 {
            let segment = store.allocate("order", step, 0).await.unwrap();
            numbers.add((segment.start, segment.end, 1));
            numbers.add(place.old().await.take().await.unwrap().unwrap());
        }
    }
    let error = store.change_tag("order", StepPolicy::Fixed { step: 999 }, RefillPolicy::default()).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{}", what(&error));

    // With what the article has by default, its programs' blocks overlap.
    place.sql("UPDATE t_sequence SET current_val = 50, increment_val = 1");
    let error = store.allocate("order", 1, 0).await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused { what, .. } if what.contains("1000 or more")), "{}", what(&error));
    assert_eq!(place.figure(), "50", "what was refused changed nothing");
    let fixed = store.change_tag("order", StepPolicy::Fixed { step: 1_000 }, RefillPolicy::default()).await.unwrap();
    assert_eq!(fixed.watermark, 1_049, "behind all that was counted up from 50");

    // A tag that is made here begins with its start.
    assert_eq!(range(store.allocate("other", 10, 0).await.unwrap()), 1..11);
    place.sql(
        "DROP TABLE t_sequence; CREATE TABLE t_sequence (pk_seq_name VARCHAR(64) PRIMARY KEY, \
        current_val BIGINT UNSIGNED NOT NULL, increment_val INT NOT NULL)",
    );
    let store = place.store().await;
    assert_eq!(range(store.allocate("other", 10, 0).await.unwrap()), 1_000..1_010, "where nothing is below 0");
    store.raise_tag("other", 5).await.unwrap();
    assert_eq!(range(store.allocate("other", 10, 0).await.unwrap()), 1_010..1_020);
}

#[tokio::test]
async fn a_sequence_table_begins_again_only_where_that_is_asked_for() {
    let place = Place::with_row(SEQUENCE).await;
    place.set_figure(&(ID_MAX - 1_004).to_string());
    let plain = place.store().await;
    let cycling = Place { case: Case { parameters: "dialect=sequence-table&cycle=true", ..SEQUENCE }, ..place };
    let (store, other) = (cycling.store().await, cycling.store().await);
    let last = store.allocate("order", 100, 0).await.unwrap();
    assert_eq!((range(last), last.end), (ID_MAX - 4..ID_MAX + 1, 1 << 63), "what is left");
    for at_least in [0, ID_MAX, ID_MAX + 1] {
        let error = plain.allocate("order", 100, at_least).await.unwrap_err();
        assert!(matches!(error, StoreError::Exhausted { .. }), "{}", what(&error));
    }
    // Its holder asks for nothing below its end; so does another one, who comes later.
    let first = store.allocate("order", 100, last.end).await.unwrap();
    assert_eq!((first.start, first.end, first.generation), (1_000, 1_100, 1));
    let second = other.allocate("order", 100, last.end).await.unwrap();
    assert_eq!((second.start, second.end, second.generation), (1_100, 1_200, 1), "it does not begin again once more");
    let third = store.allocate("order", 100, first.end).await.unwrap();
    assert_eq!((third.start, third.end, third.generation), (1_200, 1_300, 1));
    assert_eq!(cycling.sql("SELECT pk_seq_name, generation FROM unalike_sequence_generation"), "order\t1\n");

    cycling.set_figure(&(ID_MAX - 500).to_string());
    let again = store.allocate("order", 100, third.end).await.unwrap();
    assert_eq!((again.start, again.end, again.generation), (1_000, 1_100, 2));
    let error = store.allocate("order", 0, 0).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{}", what(&error));
}

#[tokio::test]
async fn an_id_generator_counts_up_to_its_ceiling_once_its_system_is_stopped() {
    let place = Place::with_row(ID_GENERATOR).await;
    let store = place.store().await;
    let record = store.tag("order").await.unwrap();
    let options = TagOptions { step: StepPolicy::Fixed { step: 1_000 }, ..TagOptions::default() };
    assert_eq!((record.watermark, record.options), (0, options));
    assert_eq!(range(store.allocate("order", 1_000, 0).await.unwrap()), 1..1_001);
    assert_eq!(place.figure(), "1000");
    assert_eq!(range(store.allocate("order", 10, 5_000).await.unwrap()), 5_000..5_010);
    assert_eq!(range(store.allocate("other", 10, 0).await.unwrap()), 1..11, "made on first use");
    let step = StepPolicy::Fixed { step: 50 };
    assert_eq!(store.change_tag("order", step, RefillPolicy::default()).await.unwrap().options.step, step);
    let tags: Vec<String> = store.tags(None, 10).await.unwrap().into_iter().map(|record| record.tag).collect();
    assert_eq!(tags, ["order", "other"]);
    assert_eq!(store.tags(Some("order"), 10).await.unwrap().len(), 1);
    assert_eq!(store.tags(None, 1).await.unwrap().len(), 1);
    for answer in [store.open_tag("unmapped").await, store.create_tag("unmapped", &TagOptions::default()).await] {
        assert!(matches!(answer, Err(StoreError::TagUnknown { .. })), "{answer:?}");
    }
    assert_eq!(place.sql("SELECT GROUP_CONCAT(id ORDER BY id) FROM id_generator"), "7,8\n");

    for (parameters, why) in [
        ("dialect=id-generator&keys=order:7", "source-stopped=true"),
        ("dialect=id-generator&source-stopped=true", "keys=order:1"),
        ("dialect=id-generator&source-stopped=true&keys=a:7,b:7", "same key"),
    ] {
        let place = Place { case: Case { parameters, ..ID_GENERATOR }, server_url: place.server_url.clone() };
        let refusal = place.refusal().await;
        assert!(refusal.contains(why), "{refusal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_two_of_eight_clients_in_four_processes_are_granted_a_number() {
    for case in CASES {
        let place = Place::with_row(case).await;
        let children: Vec<_> = (0..4).map(|_| child(&place, 2, 20)).collect();
        let mut numbers = Numbers::default();
        let grants: usize = children.into_iter().map(|child| collect(child, &mut numbers)).sum();
        assert_eq!(grants, 4 * 2 * 20, "{case:?}");
        let last = place.store().await.allocate("order", 1, 0).await.unwrap();
        numbers.add((last.start, last.end, last.stride));
        assert_eq!(numbers.0.last(), Some(&last.start), "{case:?}: the table knows of all that was granted");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_programs_and_this_one_share_a_row_without_an_overlap() {
    for case in [LEAF, TINYID, TINYID_ODD, COSID, SEQUENCE] {
        let place = Place::with_row(case).await;
        let children: Vec<_> = (0..4).map(|_| child(&place, 1, 25)).collect();
        let mut olds = Vec::new();
        for _ in 0..4 {
            let mut old = place.old().await;
            olds.push(tokio::spawn(async move {
                let mut taken = Vec::new();
                while taken.len() < 25 {
                    match old.take().await {
                        Ok(grant) => taken.push(grant.expect("the row is there")),
                        // A deadlock, which the old programs see among themselves.
                        Err(error) => assert!(error.to_string().contains("1213"), "{error}"),
                    }
                }
                taken
            }));
        }
        let mut numbers = Numbers::default();
        for old in olds {
            for grant in old.await.unwrap() {
                numbers.add(grant);
            }
        }
        for child in children {
            assert_eq!(collect(child, &mut numbers), 25, "{case:?}");
        }
    }
}

#[tokio::test]
async fn near_the_top_what_is_left_is_granted_and_then_nothing() {
    let unsigned = |case: Case, kind| format!("ALTER TABLE {} MODIFY {} {kind} NOT NULL", case.table, case.column);
    for (case, change, before, last) in [
        // What comes next must fit Leaf's column.
        (LEAF, String::new(), ID_MAX - 10, ID_MAX - 1),
        (LEAF, unsigned(LEAF, "BIGINT UNSIGNED"), ID_MAX - 10, ID_MAX - 1),
        (TINYID, String::new(), ID_MAX - 10, ID_MAX),
        (TINYID_ODD, unsigned(TINYID, "BIGINT UNSIGNED"), ID_MAX - 10, ID_MAX),
        (COSID, String::new(), ID_MAX - 10, ID_MAX),
        (COSID, unsigned(COSID, "BIGINT"), ID_MAX - 10, ID_MAX),
        (SEQUENCE, String::new(), ID_MAX - 1_009, ID_MAX),
        (SEQUENCE, unsigned(SEQUENCE, "BIGINT UNSIGNED"), ID_MAX - 1_009, ID_MAX),
        (ID_GENERATOR, String::new(), ID_MAX - 10, ID_MAX),
        (LEAF, unsigned(LEAF, "INT"), 0x7fff_ffff - 10, 0x7fff_fffe),
        (TINYID, unsigned(TINYID, "INT"), 0x7fff_ffff - 10, 0x7fff_ffff),
        (COSID, unsigned(COSID, "INT UNSIGNED"), 0xffff_ffff - 10, 0xffff_ffff),
        (ID_GENERATOR, unsigned(ID_GENERATOR, "INT"), 0x7fff_ffff - 10, 0x7fff_ffff),
    ] {
        let place = Place::with_row(case).await;
        if !change.is_empty() {
            place.sql(&change);
        }
        place.set_figure(&before.to_string());
        let store = place.store().await;
        let mut numbers = Numbers::default();
        let error = loop {
            match store.allocate("order", 4, 0).await {
                Ok(Segment { start, end, stride, .. }) => numbers.add((start, end, stride)),
                Err(error) => break error,
            }
        };
        assert_eq!(numbers.0.last(), Some(&last), "{case:?} {change}");
        let expected = if case.row == TINYID_ODD.row { 5 } else { 10 };
        assert!((expected - 1..=expected).contains(&numbers.0.len()), "{case:?} {change}: {:?}", numbers.0);
        let figure = place.figure();
        for (count, at_least) in [(1, 0), (4, 0), (u64::MAX, 0), (1, last), (u64::MAX, ID_MAX)] {
            let again = store.allocate("order", count, at_least).await.unwrap_err();
            assert_eq!(
                std::mem::discriminant(&again),
                std::mem::discriminant(&error),
                "{case:?} {change}: {}",
                what(&again)
            );
        }
        assert_eq!(place.figure(), figure, "what was refused changed nothing");
        if last >= ID_MAX - 1 {
            assert!(matches!(error, StoreError::Exhausted { .. }), "{case:?} {change}: {}", what(&error));
        } else {
            assert!(error.to_string().contains("make it BIGINT"), "{case:?} {change}: {}", what(&error));
        }
    }
}

#[tokio::test]
async fn a_number_that_does_not_fit_its_column_is_an_error() {
    for (case, raise) in [(LEAF, "INT"), (TINYID, "INT"), (COSID, "INT"), (SEQUENCE, "INT"), (ID_GENERATOR, "INT")] {
        let place = Place::with_row(case).await;
        place.sql(&format!("ALTER TABLE {} MODIFY {} {raise} NOT NULL", case.table, case.column));
        let store = place.store().await;
        let figure = place.figure();
        for error in [
            store.raise_tag("order", 1 << 40).await.unwrap_err(),
            store.allocate("order", 1, 1 << 40).await.unwrap_err(),
            store.create_tag("other", &TagOptions { start: 1 << 40, ..TagOptions::default() }).await.unwrap_err(),
        ] {
            assert!(matches!(error, StoreError::Refused { .. }), "{case:?}: {}", what(&error));
        }
        assert_eq!(place.figure(), figure, "{case:?}");
        store.allocate("order", 10, 0).await.unwrap();
    }
}

#[tokio::test]
async fn a_bad_row_is_named_and_left_alone() {
    for case in CASES {
        let place = Place::with_row(case).await;
        place.sql(&format!("ALTER TABLE {} MODIFY {} BIGINT NOT NULL", case.table, case.column));
        place.set_figure("-5000");
        let store = place.store().await;
        for error in [
            store.allocate("order", 1, 0).await.unwrap_err(),
            store.tag("order").await.unwrap_err(),
            store.tags(None, 10).await.unwrap_err(),
            store.retire_tag("order").await.unwrap_err(),
        ] {
            let message = error.to_string();
            assert!(matches!(error, StoreError::Corrupt { .. }), "{case:?}: {}", what(&error));
            assert!(message.contains(case.table) && message.contains("is -5000"), "{case:?}: {message}");
        }
        assert_eq!(place.figure(), "-5000", "{case:?}");
        // Lifting it is how it is repaired.
        store.raise_tag("order", 5_000).await.unwrap();
        assert!(store.allocate("order", 1, 0).await.unwrap().start >= 5_000, "{case:?}");
    }
    for (case, column) in
        [(LEAF, "step"), (TINYID, "step"), (SEQUENCE, "increment_val"), (ID_GENERATOR, "increment_step")]
    {
        let place = Place::with_row(case).await;
        for figure in ["0", "-1"] {
            place.sql(&format!("UPDATE {} SET {column} = {figure}", case.table));
            let error = place.store().await.open_tag("order").await.unwrap_err();
            assert!(error.to_string().contains(&format!("{column} is {figure}")), "{case:?}: {}", what(&error));
        }
    }
    let place = Place::with_row(TINYID).await;
    place.sql("UPDATE tiny_id_info SET step = NULL");
    let error = place.store().await.open_tag("order").await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{}", what(&error));
}

/// A table that is missing has another name, or this is another database; the old systems answer an error to a key that
/// has no row.
#[tokio::test]
async fn tables_and_rows_of_other_systems_are_made_only_when_that_is_said() {
    for case in [LEAF, TINYID, COSID, SEQUENCE, ID_GENERATOR, BATCH, SLOW_ORDERED] {
        let place = Place::new(case);
        let options = || MysqlOptions::from_url(&place.untold_url()).unwrap();
        let error = MysqlStore::connect(options()).await.unwrap_err().to_string();
        let words = [case.table, "is missing", "create=true", "unalike schema", "only looks"];
        assert!(words.iter().all(|word| error.contains(word)), "{case:?}: {error}");
        assert_eq!(place.sql("SHOW TABLES"), "", "{case:?}: nothing was made");

        // The table is there.
        place.store().await.close().await;
        let store = MysqlStore::connect(options()).await.unwrap();
        for error in [store.allocate("order", 10, 0).await.unwrap_err(), store.open_tag("order").await.unwrap_err()] {
            assert!(matches!(error, StoreError::TagUnknown { .. }), "{case:?}: {}", what(&error));
        }
        assert_eq!(place.sql(&format!("SELECT COUNT(*) FROM {}", case.table)), "0\n", "{case:?}: no row was made");
        if case.table != "ng_business_slowordered0" {
            store.create_tag("order", &TagOptions::default()).await.unwrap();
            store.allocate("order", 10, 0).await.unwrap();
        }

        // Unalike's own tables are made beside.
        place.sql("DROP TABLE unalike_store");
        MysqlStore::connect(options()).await.unwrap();
    }
    let place = Place::new(TICKET);
    let store = MysqlStore::connect(MysqlOptions::from_url(&place.untold_url()).unwrap()).await.unwrap();
    let error = store.allocate("Tickets64", 1, 0).await.unwrap_err();
    assert!(matches!(error, StoreError::TagUnknown { .. }), "{}", what(&error));
    assert!(!place.sql("SHOW TABLES").contains("Tickets64"));
    place.store().await.allocate("Tickets64", 1, 0).await.unwrap();
}

#[tokio::test]
async fn a_table_that_cannot_be_used_is_refused() {
    for case in [LEAF, TINYID, COSID, SEQUENCE, ID_GENERATOR] {
        let place = Place::new(case);
        let forbidden = format!("{}&create=false", place.url());
        // Its own table first, then theirs.
        let error = MysqlStore::connect(MysqlOptions::from_url(&forbidden).unwrap()).await.unwrap_err();
        assert!(error.to_string().contains("unalike schema"), "{}", what(&error));
        place.store().await.close().await;
        place.sql(&format!("DROP TABLE {}", case.table));
        let error = MysqlStore::connect(MysqlOptions::from_url(&forbidden).unwrap()).await.unwrap_err();
        assert!(error.to_string().contains(&format!("{} is missing", case.table)), "{}", what(&error));

        let place = Place::with_row(case).await;
        place.sql(&format!("ALTER TABLE {} ENGINE = MyISAM", case.table));
        let refusal = place.refusal().await;
        assert!(refusal.contains("MyISAM") && refusal.contains("ENGINE = InnoDB"), "{refusal}");

        let place = Place::with_row(case).await;
        place.sql(&format!("ALTER TABLE {} DROP COLUMN {}", case.table, case.column));
        let refusal = place.refusal().await;
        assert!(refusal.contains(&format!("no column {}", case.column)), "{refusal}");

        let place = Place::with_row(case).await;
        place.sql(&format!("ALTER TABLE {} MODIFY {} DOUBLE", case.table, case.column));
        let refusal = place.refusal().await;
        assert!(refusal.contains("whole number"), "{refusal}");

        let place = Place::with_row(case).await;
        place.sql(&format!("RENAME TABLE {0} TO old; CREATE VIEW {0} AS SELECT * FROM old", case.table));
        let refusal = place.refusal().await;
        assert!(refusal.contains("a view"), "{refusal}");
    }
}

/// A table that grants come from.
struct Keyed {
    parameters: &'static str,
    table: &'static str,
    /// Takes its key away.
    drop: &'static str,
    key: &'static str,
    /// A column of it with numbers.
    number: &'static str,
    /// Another column.
    other: &'static str,
}

const KEYED: [Keyed; 13] = [
    keyed("dialect=leaf", "leaf_alloc", "biz_tag", "max_id", "step"),
    Keyed { drop: "DROP KEY uniq_biz_type", ..keyed("dialect=tinyid", "tiny_id_info", "biz_type", "max_id", "delta") },
    keyed("dialect=tinyid", "unalike_tinyid_stripe", "id", "stripe_index", "stripe_count"),
    keyed("dialect=cosid", "cosid", "name", "last_max_id", "last_fetch_time"),
    keyed("dialect=sequence-table&cycle=true", "t_sequence", "pk_seq_name", "current_val", "increment_val"),
    keyed(
        "dialect=sequence-table&cycle=true",
        "unalike_sequence_generation",
        "pk_seq_name",
        "generation",
        "generation",
    ),
    keyed(ID_GENERATOR.parameters, "id_generator", "id", "current_max_id", "increment_step"),
    keyed("dialect=batch", "ng_business_mysql_autoincrement", "business, version", "version", "create_time"),
    keyed("dialect=batch", "unalike_batch_tag", "tag", "buff_size", "prefix"),
    keyed("dialect=slow-ordered", "ng_business_slowordered63", "business, subBusiness", "num", "num"),
    keyed("dialect=ticket", "unalike_ticket", "id", "stripe_index", "stripe_count"),
    keyed("dialect=unalike", "unalike_tag", "tag", "watermark", "start"),
    keyed("dialect=unalike", "unalike_store", "id", "tags", "schema_version"),
];

const fn keyed(
    parameters: &'static str,
    table: &'static str,
    key: &'static str,
    number: &'static str,
    other: &'static str,
) -> Keyed {
    Keyed { parameters, table, drop: "DROP PRIMARY KEY", key, number, other }
}

#[tokio::test]
async fn a_table_that_grants_cannot_rest_on_is_refused() {
    for Keyed { parameters, table, drop, key, number, other } in KEYED {
        let place = Place::new(Case { parameters, ..LEAF });
        place.store().await.close().await;
        place.sql(&format!("CREATE TABLE kept LIKE {table}; INSERT INTO kept SELECT * FROM {table}"));
        let no_key = format!("{table} has no unique key over exactly {key} (");
        let mut bad = vec![
            (format!("ALTER TABLE {table} {drop}, ADD KEY plain ({key})"), no_key.clone()),
            (format!("ALTER TABLE {table} {drop}, ADD UNIQUE wider ({key}, {other})"), no_key.clone()),
            (format!("ALTER TABLE {table} {drop}, ADD UNIQUE hashed ({key}) USING HASH"), no_key.clone()),
            (
                format!("ALTER TABLE {table} MODIFY {number} DOUBLE NOT NULL"),
                "double, which must be a whole".to_owned(),
            ),
            (format!("ALTER TABLE {table} ENGINE = MyISAM"), "kept in MyISAM".to_owned()),
            (format!("RENAME TABLE {table} TO old; CREATE VIEW {table} AS SELECT * FROM old"), "a view".to_owned()),
            (
                format!("CREATE TRIGGER sly BEFORE INSERT ON {table} FOR EACH ROW SET NEW.{number} = 1"),
                format!("trigger sly, which runs before a row is written and names {number}"),
            ),
            (
                format!("CREATE TRIGGER sly BEFORE UPDATE ON {table} FOR EACH ROW SET NEW.{number} = OLD.{number}"),
                "trigger sly".to_owned(),
            ),
        ];
        if !["id"].contains(&key) {
            let beginning = key.split_once(", ").map_or(format!("{key}(4)"), |(one, more)| format!("{one}(4), {more}"));
            bad.push((format!("ALTER TABLE {table} {drop}, ADD UNIQUE prefix ({beginning})"), no_key));
        }
        for (change, named) in bad {
            if change.contains("wider") && (key.contains(other) || number == other) {
                continue;
            }
            // MySQL makes an ordinary key of it.
            if change.contains("USING HASH") && MariaDb::is_mysql() {
                continue;
            }
            place.sql(&change);
            let refusal = place.refusal().await;
            assert!(refusal.contains(&named), "{change}: {refusal}");
            place.sql(&format!(
                "DROP VIEW IF EXISTS {table}; DROP TABLE IF EXISTS old, {table}; CREATE TABLE {table} LIKE kept; \
                 INSERT INTO {table} SELECT * FROM kept"
            ));
        }
        // What comes after a row is written cannot change it, nor can what names nothing of it.
        place.sql(&format!(
            "CREATE TABLE log (what INT); CREATE TRIGGER later AFTER UPDATE ON {table} FOR EACH ROW \
             INSERT INTO log VALUES (NEW.{number}); \
             CREATE TRIGGER count BEFORE UPDATE ON {table} FOR EACH ROW SET @writes = @writes + 1"
        ));
        place.store().await.close().await;
    }
    if !MariaDb::is_mysql() {
        let place = Place::with_row(LEAF).await;
        place.sql("ALTER TABLE leaf_alloc ADD SYSTEM VERSIONING");
        let refusal = place.refusal().await;
        assert!(refusal.contains("SYSTEM VERSIONED"), "{refusal}");
    }
    let place = Place::with_row(COSID).await;
    place.sql("ALTER TABLE cosid DROP COLUMN last_max_id, ADD COLUMN last_max_id BIGINT AS (5) VIRTUAL");
    let refusal = place.refusal().await;
    assert!(refusal.contains("computes its column last_max_id"), "{refusal}");
    let place = Place::with_row(COSID).await;
    place.sql("DELETE FROM cosid; ALTER TABLE cosid MODIFY name BIGINT NOT NULL");
    let refusal = place.refusal().await;
    assert!(refusal.contains("name bigint") && refusal.contains("VARCHAR"), "{refusal}");
}

#[tokio::test]
async fn a_trigger_that_may_not_be_read_is_refused_too() {
    let place = Place::with_row(LEAF).await;
    let name = place.name().to_owned();
    place.sql(&format!(
        "CREATE TRIGGER sly BEFORE UPDATE ON leaf_alloc FOR EACH ROW SET @writes = 1; CREATE USER {name}@'127.0.0.1'; \
         GRANT SELECT, INSERT, UPDATE ON {name}.* TO {name}@'127.0.0.1'"
    ));
    place.store().await.close().await;
    let url = format!("{}&create=false", place.url().replace("root@", &format!("{name}@")));
    let error = MysqlStore::connect(MysqlOptions::from_url(&url).unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("may not read"), "{}", what(&error));
}

/// Nobody is to do so; what is granted from then on is still looked at.
#[tokio::test]
async fn two_rows_of_one_key_are_an_error_where_the_key_was_dropped_in_use() {
    for case in [LEAF, TINYID, COSID, SEQUENCE, ID_GENERATOR] {
        let place = Place::with_row(case).await;
        let store = place.store().await;
        store.allocate("order", 10, 0).await.unwrap();
        let drop = if case.table == "tiny_id_info" { "DROP KEY uniq_biz_type" } else { "DROP PRIMARY KEY" };
        place.sql(&format!("ALTER TABLE {} {drop}", case.table));
        store.allocate("order", 10, 0).await.unwrap();
        place.sql(case.row);
        for error in [store.allocate("order", 10, 0).await.unwrap_err(), store.tag("order").await.unwrap_err()] {
            assert!(matches!(error, StoreError::Corrupt { .. }), "{case:?}: {}", what(&error));
        }
    }
}

/// With `utf8mb4_unicode_ci`, as servers often give to tables that say nothing.
fn fold(place: &Place) {
    let table = place.case.table;
    place.sql(&format!("ALTER TABLE {table} CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci"));
}

#[tokio::test]
async fn the_row_of_an_ended_tag_is_told_by_its_bytes() {
    for case in [LEAF, TINYID, SEQUENCE] {
        let place = Place::with_row(case).await;
        fold(&place);
        let (store, other) = (place.store().await, place.store().await);
        store.allocate("order", 10, 0).await.unwrap();
        let ended = store.retire_tag("ORDER").await.unwrap();
        let figure = place.figure();
        // To the server each of these is `retired:order`.
        for tag in ["rétired:order", "RETIRED:order", "retired:ORDER", "Ｒetired:order", "r\u{200b}etired:order"] {
            for error in [
                store.allocate(tag, 10, 0).await.unwrap_err(),
                other.allocate(tag, 10, ended.watermark + 1).await.unwrap_err(),
                other.allocate(tag, u64::MAX, 0).await.unwrap_err(),
                store.open_tag(tag).await.unwrap_err(),
                store.tag(tag).await.unwrap_err(),
                store.raise_tag(tag, 900_000).await.unwrap_err(),
                store.retire_tag(tag).await.unwrap_err(),
            ] {
                assert!(matches!(error, StoreError::TagInvalid { .. }), "{case:?} {tag}: {}", what(&error));
            }
            store.create_tag(tag, &TagOptions::default()).await.unwrap_err();
            assert_eq!(place.figure(), figure, "{case:?} {tag}");
        }
        for tag in ["order", "ORDER", "ordér"] {
            let error = store.allocate(tag, 10, 0).await.unwrap_err();
            assert!(matches!(error, StoreError::Exhausted { .. }), "{case:?} {tag}: {}", what(&error));
        }
        // One that only looks like it is a tag as any other.
        assert_eq!(store.allocate("rétired:own", 10, 0).await.unwrap().start, 1, "{case:?}");
        let names: Vec<String> = store.tags(None, 9).await.unwrap().into_iter().map(|record| record.tag).collect();
        assert_eq!(names, ["order", "rétired:own"], "{case:?}");
    }
}

#[tokio::test]
async fn names_that_are_one_to_the_server_draw_from_one_row() {
    for case in [LEAF, TINYID, COSID, SEQUENCE] {
        let place = Place::with_row(case).await;
        let bytes = place.store().await;
        assert_eq!(bytes.folds_names().await.unwrap(), None, "{case:?}");
        fold(&place);
        let (store, other) = (place.store().await, place.store().await);
        let folds = store.folds_names().await.unwrap();
        assert!(folds.is_some_and(|what| what.contains("utf8mb4_unicode_ci")), "{case:?}");
        let mut numbers = Numbers::default();
        for _ in 0..20 {
            let asked = ["order", "ORDER", "ordér", "order "].map(|tag| async {
                let [one, two] = [store.allocate(tag, 7, 0), other.allocate(tag, 7, 0)];
                [one.await.unwrap(), two.await.unwrap()]
            });
            let [one, two, three, four] = asked;
            let (one, two, three, four) = tokio::join!(one, two, three, four);
            for segment in [one, two, three, four].concat() {
                numbers.add((segment.start, segment.end, segment.stride));
            }
        }
        assert_eq!(other.tag("ORDER").await.unwrap().tag, "order", "{case:?}: its name as it stands");
    }
}

#[tokio::test]
async fn a_user_with_the_least_privileges_does_everything() {
    let server = MariaDb::shared().unwrap();
    for case in CASES {
        let place = Place::new(case);
        let dialect = MysqlOptions::from_url(&place.url()).unwrap().dialect;
        for statement in dialect.ddl() {
            place.sql(&statement);
        }
        place.sql(case.row);
        let user = place.name().to_owned();
        let grants: Vec<String> = dialect
            .privileges()
            .into_iter()
            .map(|(table, privileges)| format!("GRANT {privileges} ON {user}.{table} TO {user}@'127.0.0.1'"))
            .collect();
        server
            .sql("", &format!("CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'secret'; {}", grants.join("; ")))
            .unwrap();
        let url = place.url().replace("root@", &format!("{user}@"));
        let mut options = MysqlOptions::from_url(&format!("{url}&create=false")).unwrap().password("secret");
        options.creation = TagCreation::default();
        let store = MysqlStore::connect(options).await.unwrap();
        store.check().await.unwrap();
        store.allocate("order", 10, 0).await.unwrap();
        store.allocate("other", 10, 0).await.unwrap();
        store.raise_tag("other", 500).await.unwrap();
        let record = store.tag("other").await.unwrap();
        let TagOptions { step, refill, .. } = record.options;
        assert_eq!(store.change_tag("other", step, refill).await.unwrap(), record);
        assert_eq!(store.tags(None, 10).await.unwrap().len(), 2);
        let first = FormatBinding::First(7);
        let bound = store.bind_format(FormatOwner::Tag("order"), FormatPart::Shape, first).await.unwrap();
        assert_eq!(bound, Some(7), "{case:?}");
        store.allocate("order", u64::MAX, 0).await.unwrap();
        store.retire_tag("other").await.unwrap();
        if case.table == "tiny_id_info" {
            assert_eq!(store.stripe().await.unwrap(), None);
        }
    }
}

/// The tag of these tests in a template, under a key with this secret.
fn format_with(secret: u128) -> Format {
    let keys = [FormatKey { id: 1, secret }];
    let options = FormatOptions {
        template: "ORD-{id}",
        bits: 24,
        key_id_bits: 1,
        keys: &keys,
        context: "order",
        ..FormatOptions::default()
    };
    Format::new(&options).expect("the format can be shown")
}

/// Another secret is refused, and the same goes on.
async fn shows_order_as_before(store: &MysqlStore, case: Case) {
    let owner = FormatOwner::Tag("order");
    let refused = check_format(store, owner, &format_with(8)).await;
    assert!(matches!(refused, Err(StoreError::FormatBound { .. })), "{case:?}: {refused:?}");
    let unbound = check_format(store, owner, &format_with(7)).await.expect("it is the format that is bound");
    assert!(unbound.is_empty(), "{case:?}: all of it is bound");
}

/// No such table has a place for what ids look like. Unalike's own beside it has.
#[tokio::test]
async fn a_tag_of_any_table_is_shown_in_one_format() {
    let owner = FormatOwner::Tag("order");
    for case in CASES.into_iter().chain([BATCH, SLOW_ORDERED, TICKET]) {
        let place = Place::new(case);
        let (first, second) = (place.store().await, place.store().await);
        if !case.row.is_empty() {
            place.sql(case.row);
        }
        let before = first.allocate("order", 10, 0).await.unwrap();
        let look = second.bind_format(owner, FormatPart::Shape, FormatBinding::Look).await.unwrap();
        assert_eq!((look, place.sql("SHOW TABLES LIKE 'unalike_tag'").as_str()), (None, ""), "{case:?}: bare numbers");

        check_format(&first, owner, &format_with(7)).await.unwrap().bind(&first, owner).await.unwrap();
        for client in [&first, &second, &place.store().await] {
            shows_order_as_before(client, case).await;
        }
        let names: Vec<String> = second.tags(None, 100).await.unwrap().into_iter().map(|record| record.tag).collect();
        assert_eq!(names, ["order"], "{case:?}: what is kept is nobody's tag");
        // The old system counts on, and so does this one.
        if matches!(case.table, "leaf_alloc" | "tiny_id_info" | "cosid" | "t_sequence") {
            let (start, ..) = place.old().await.take().await.unwrap().unwrap();
            assert!(start >= before.end, "{case:?}");
        }
        assert!(second.allocate("order", 10, 0).await.unwrap().start >= before.end, "{case:?}");
    }
}

/// Where a table takes two names for one row, both show the same numbers.
#[tokio::test]
async fn names_of_one_row_have_one_format() {
    for case in [LEAF, TINYID, COSID, SEQUENCE] {
        let place = Place::with_row(case).await;
        fold(&place);
        let (store, owner) = (place.store().await, FormatOwner::Tag("order"));
        check_format(&store, owner, &format_with(7)).await.unwrap().bind(&store, owner).await.unwrap();
        for name in ["ORDER", "ordér", "order "] {
            for format in [Format::default(), format_with(8)] {
                let refused = check_format(&store, FormatOwner::Tag(name), &format).await;
                assert!(matches!(refused, Err(StoreError::FormatBound { .. })), "{case:?} {name:?}: {refused:?}");
            }
        }
        shows_order_as_before(&store, case).await;
    }
    // A row that has a key and no name has several in the URLs of several programs.
    let place = Place::with_row(ID_GENERATOR).await;
    let (store, owner) = (place.store().await, FormatOwner::Tag("order"));
    check_format(&store, owner, &format_with(7)).await.unwrap().bind(&store, owner).await.unwrap();
    let options = MysqlOptions::from_url(&place.url().replace("order:", "bill:")).unwrap();
    let other = MysqlStore::connect(options).await.unwrap();
    let refused = check_format(&other, FormatOwner::Tag("bill"), &format_with(8)).await;
    assert!(matches!(refused, Err(StoreError::FormatBound { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_format_beside_a_table_stays_where_its_tags_are_lifted() {
    let place = Place::with_row(LEAF).await;
    let (store, owner) = (place.store().await, FormatOwner::Tag("order"));
    let before = store.allocate("order", 10, 0).await.unwrap();
    check_format(&store, owner, &format_with(7)).await.unwrap().bind(&store, owner).await.unwrap();
    store.close().await;
    let options = MysqlOptions::from_url(&place.url()).unwrap();
    assert_eq!(MysqlStore::restored(options, 100).await.unwrap().tags, 1);
    let store = place.store().await;
    shows_order_as_before(&store, LEAF).await;
    assert!(store.allocate("order", 10, 0).await.unwrap().start >= before.end + 100);
    // Others are bound as before, too.
    let other = FormatOwner::Tag("other");
    let bound = store.bind_format(other, FormatPart::Shape, FormatBinding::First(9)).await.unwrap();
    assert_eq!(bound, Some(9));
}

/// The privileges are those that such a dialect needed before it kept formats.
#[tokio::test]
async fn who_has_no_place_for_formats_is_refused_formats_alone() {
    let server = MariaDb::shared().unwrap();
    let place = Place::with_row(LEAF).await;
    let user = place.name().to_owned();
    let grants: Vec<String> = Dialect::Leaf
        .privileges()
        .into_iter()
        .filter(|(table, _)| table != "unalike_tag")
        .map(|(table, privileges)| format!("GRANT {privileges} ON {user}.{table} TO {user}@'127.0.0.1'"))
        .collect();
    server.sql("", &format!("CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'secret'; {}", grants.join("; "))).unwrap();
    let (owner, shape) = (FormatOwner::Tag("order"), FormatPart::Shape);
    let cases = [("&create=false", "tables are not to be created"), ("", "lacks a privilege")];
    let open = async |create: &str| {
        let url = format!("{}{create}", place.url().replace("root@", &format!("{user}@")));
        MysqlStore::connect(MysqlOptions::from_url(&url).unwrap().password("secret")).await.unwrap()
    };
    // Where the table is missing, and where somebody else has it.
    for _ in 0..2 {
        for (create, said) in cases {
            let store = open(create).await;
            for _ in 0..2 {
                assert_eq!(store.bind_format(owner, shape, FormatBinding::Look).await.unwrap(), None, "{said}");
                let error = store.bind_format(owner, shape, FormatBinding::First(8)).await.unwrap_err();
                let words = ["unalike_tag", "unalike schema", said];
                assert!(words.iter().all(|word| error.to_string().contains(word)), "{}", what(&error));
                assert!(matches!(error, StoreError::Refused { .. }) && !error.is_not_begun(), "{}", what(&error));
            }
            store.allocate("order", 10, 0).await.unwrap();
            // Nor does such a user carry the tag to another store, where it would have lost its format.
            let carried = check_carried_format(&store, &MemoryStore::default(), owner).await.unwrap_err();
            let words = ["unalike_tag", "may not look into", "unalike schema"];
            assert!(words.iter().all(|word| carried.to_string().contains(word)), "{}", what(&carried));
        }
        assert!(place.store().await.hides_formats().await.unwrap().is_none());
        let bound = place.store().await.bind_format(owner, shape, FormatBinding::First(7)).await.unwrap();
        assert_eq!(bound, Some(7));
    }
    let grant = format!("GRANT SELECT, INSERT, UPDATE ON {user}.unalike_tag TO {user}@'127.0.0.1'");
    server.sql("", &grant).unwrap();
    let store = open("&create=false").await;
    assert_eq!(store.bind_format(owner, shape, FormatBinding::First(8)).await.unwrap(), Some(7));
}

#[tokio::test]
async fn a_check_fails_where_nothing_can_be_written() {
    let mut server = MariaDb::start().unwrap();
    for case in [LEAF, TINYID, COSID, SEQUENCE, ID_GENERATOR] {
        let place = Place { case, server_url: server.database().unwrap() };
        let name = place.name();
        let store = place.store().await;
        store.check().await.unwrap();
        let grant =
            format!("CREATE USER {name}@'127.0.0.1'; GRANT SELECT, INSERT, UPDATE ON {name}.* TO {name}@'127.0.0.1'");
        server.sql("", &grant).unwrap();
        let url = format!("{}&create=false", place.url().replace("root@", &format!("{name}@")));
        let reader = MysqlStore::connect(MysqlOptions::from_url(&url).unwrap()).await.unwrap();
        reader.check().await.unwrap();
        server.sql("", "SET GLOBAL read_only = 1").unwrap();
        let error = reader.check().await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{case:?}: {}", what(&error));
        server.sql("", "SET GLOBAL read_only = 0").unwrap();
        reader.check().await.unwrap();
    }
    server.kill9().unwrap();
}

#[tokio::test]
async fn an_ended_tag_is_granted_to_nobody() {
    for case in [LEAF, TINYID, SEQUENCE] {
        let place = Place::with_row(case).await;
        let (store, other) = (place.store().await, place.store().await);
        store.allocate("order", 10, 5_000).await.unwrap();
        let before = other.tag("order").await.unwrap();
        let mut old = place.old().await;
        assert_eq!(store.retire_tag("order").await.unwrap(), before, "{case:?}: the record as it was");

        assert_eq!(old.take().await.unwrap(), None, "{case:?}: the old program finds nothing");
        for client in [&store, &other, &place.store().await] {
            for at_least in [0, before.watermark + 1, ID_MAX] {
                let error = client.allocate("order", 10, at_least).await.unwrap_err();
                assert!(matches!(error, StoreError::Exhausted { .. }), "{case:?}: {}", what(&error));
            }
            for record in [
                client.tag("order").await.unwrap(),
                client.open_tag("order").await.unwrap(),
                client.raise_tag("order", 9_000).await.unwrap(),
                client.retire_tag("order").await.unwrap(),
            ] {
                assert_eq!((record.watermark, record.options), (ID_MAX, before.options), "{case:?}");
            }
            let error = client.create_tag("order", &TagOptions::default()).await.unwrap_err();
            assert!(matches!(error, StoreError::TagExists { .. }), "{case:?}: {}", what(&error));
        }
        let error = store.allocate("retired:order", 10, 0).await.unwrap_err();
        assert!(matches!(error, StoreError::TagInvalid { .. }), "{case:?}: {}", what(&error));
        let ended = TagRecord { watermark: ID_MAX, ..before.clone() };
        let listed = other.tags(None, 10).await.unwrap();
        assert!(
            matches!(&listed[..], [listed] if TagRecord { version: ended.version, ..listed.clone() } == ended),
            "{listed:?}"
        );
        assert_eq!(other.tags(Some("order"), 10).await.unwrap(), [], "{case:?}");

        // It can be undone, and then nothing but the numbers' end is as it was.
        let key = place.sql(&format!("SHOW KEYS FROM {} WHERE Column_name <> 'id'", case.table));
        let key = key.split('\t').nth(4).unwrap();
        place.sql(&format!("UPDATE {} SET {key} = 'order' WHERE {key} = 'retired:order'", case.table));
        assert_eq!(other.tag("order").await.unwrap().watermark, before.watermark, "{case:?}");
        assert!(store.allocate("order", 10, 0).await.unwrap().start > before.watermark, "{case:?}");

        // A second row of that name stands in the way of ending it again.
        place.sql(&case.row.replace("order", "retired:order"));
        let error = store.retire_tag("order").await.unwrap_err();
        assert!(matches!(&error, StoreError::Refused { what, .. } if what.contains("already")), "{}", what(&error));
        store.allocate("order", 10, 0).await.unwrap();
    }
    for case in [COSID, ID_GENERATOR] {
        let place = Place::with_row(case).await;
        let (store, other) = (place.store().await, place.store().await);
        store.allocate("order", 10, 5_000).await.unwrap();
        let before = other.tag("order").await.unwrap();
        assert_eq!(store.retire_tag("order").await.unwrap(), before, "{case:?}: the record as it was");
        for error in [
            store.allocate("order", 10, 0).await.unwrap_err(),
            other.allocate("order", 1, 0).await.unwrap_err(),
            other.allocate("order", 1, ID_MAX).await.unwrap_err(),
        ] {
            assert!(matches!(error, StoreError::Exhausted { .. }), "{case:?}: {}", what(&error));
        }
        assert_eq!(other.raise_tag("order", 9_000).await.unwrap().watermark, ID_MAX, "{case:?}");
        assert_eq!(other.retire_tag("order").await.unwrap().watermark, ID_MAX, "{case:?}: ending it again");
        assert_eq!(other.tags(None, 10).await.unwrap().len(), 1, "{case:?}");
        if case.table == "cosid" {
            // CosId's clients make a row that they miss; they find one, and cannot add to it, in any mode.
            let mut old = place.old().await;
            for mode in ["STRICT_ALL_TABLES", ""] {
                let lax = sqlx::query("SET SESSION sql_mode = ?").bind(mode);
                lax.execute(&mut old.connection).await.unwrap();
                let error = old.take().await.unwrap_err();
                assert!(error.to_string().contains("1690"), "{error}");
            }
        }
    }
    let place = Place::with_row(COSID).await;
    place.sql("ALTER TABLE cosid MODIFY last_max_id INT NOT NULL");
    let error = place.store().await.retire_tag("order").await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused { what, .. } if what.contains("BIGINT")), "{}", what(&error));
}

#[tokio::test]
async fn names_that_the_table_cannot_hold_are_refused() {
    for (case, width) in [(LEAF, 128), (TINYID, 63), (COSID, 100), (SEQUENCE, 128)] {
        let place = Place::with_row(case).await;
        let store = place.store().await;
        let sub = sub_tag("order", "user_1").unwrap();
        for error in [
            store.allocate(&sub, 10, 0).await.unwrap_err(),
            store.open_tag(&sub).await.unwrap_err(),
            store.create_tag(&sub, &TagOptions::default()).await.unwrap_err(),
        ] {
            let refused = matches!(&error, StoreError::TagInvalid { reason, .. } if reason.contains("user_1"));
            assert!(refused && !error.to_string().contains('\u{1f}'), "{case:?}: {}", what(&error));
        }
        let longest = "x".repeat(width);
        assert_eq!(store.allocate(&longest, 10, 0).await.unwrap().start, 1, "{case:?}");
        assert_eq!(store.tag(&longest).await.unwrap().tag, longest);
        if width < 128 {
            let error = store.allocate(&"x".repeat(width + 1), 10, 0).await.unwrap_err();
            assert!(matches!(error, StoreError::TagInvalid { .. }), "{case:?}: {}", what(&error));
        }
        if case.table != "cosid" {
            let error = store.retire_tag(&longest).await.unwrap_err();
            assert!(
                matches!(&error, StoreError::Refused { what, .. } if what.contains("widen it")),
                "{}",
                what(&error)
            );
        }
        // Byte order, each page by page; a case that differs is another tag in tables that are made here.
        for tag in ["b", "é", "B", "a", "\u{fffd}", "😀"] {
            assert_eq!(store.allocate(tag, 10, 0).await.unwrap().start, 1, "{case:?} {tag}");
        }
        let mut listed: Vec<String> = Vec::new();
        loop {
            let page = store.tags(listed.last().map(String::as_str), 2).await.unwrap();
            if page.is_empty() {
                break;
            }
            listed.extend(page.into_iter().map(|record| record.tag));
        }
        assert_eq!(listed, ["B", "a", "b", "order", &longest, "é", "\u{fffd}", "😀"], "{case:?}");
        let ordered = TagOptions { mode: Mode::Ordered, ..TagOptions::default() };
        let error = store.create_tag("ordered", &ordered).await.unwrap_err();
        assert!(matches!(error, StoreError::Refused { .. }), "{case:?}: {}", what(&error));
    }
}

#[tokio::test]
async fn in_a_table_that_tells_no_cases_apart_two_tags_share_a_row() {
    let place = Place::new(LEAF);
    place.sql(
        "CREATE TABLE leaf_alloc (biz_tag VARCHAR(128) NOT NULL DEFAULT '', max_id BIGINT NOT NULL DEFAULT 1, step INT NOT NULL, \
         description VARCHAR(256), update_time TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, \
         PRIMARY KEY (biz_tag)) ENGINE = InnoDB DEFAULT CHARSET = utf8mb3 COLLATE = utf8mb3_general_ci",
    );
    place.sql(LEAF.row);
    let store = place.store().await;
    assert!(store.folds_names().await.unwrap().is_some_and(|what| what.contains("utf8mb3_general_ci")));
    assert_eq!(range(store.allocate("order", 10, 0).await.unwrap()), 1..11);
    assert_eq!(range(store.allocate("ORDER", 10, 0).await.unwrap()), 11..21, "no number is granted twice");
    let error = store.create_tag("Order", &TagOptions::default()).await.unwrap_err();
    assert!(matches!(error, StoreError::TagExists { .. }), "{}", what(&error));
    let error = store.allocate("😀", 10, 0).await.unwrap_err();
    assert!(matches!(error, StoreError::TagInvalid { .. }), "{}", what(&error));
    assert_eq!(store.allocate("日本", 10, 0).await.unwrap().start, 1);
    store.retire_tag("ORDER").await.unwrap();
    assert_eq!(place.sql("SELECT biz_tag FROM leaf_alloc WHERE max_id = 21"), "retired:order\n");
    let error = store.allocate("order", 10, 0).await.unwrap_err();
    assert!(matches!(error, StoreError::Exhausted { .. }), "{}", what(&error));
}

#[tokio::test]
async fn databases_of_tinyid_with_a_remainder_each_are_stripes() {
    let places: Vec<Place> = (0..3).map(|_| Place::new(TINYID)).collect();
    let stripe = |index| Stripe { set: 0x5eed, index, count: 3 };
    for (index, place) in (0..).zip(&places) {
        let store = place.store().await;
        assert_eq!(store.stripe().await.unwrap(), None);
        place.sql(&format!(
            "INSERT INTO tiny_id_info (biz_type, step, delta, remainder) VALUES ('order', 3000, 3, {})",
            (index + 1) % 3
        ));
        let joined = store.join_stripe(&stripe(index)).await.unwrap();
        assert_eq!(joined.numbers, StripeNumbers::Strided);
        assert_eq!(joined.store.join_stripe(&stripe(index)).await.unwrap().numbers, StripeNumbers::Strided, "again");
        let store = joined.store;
        assert_eq!(store.stripe().await.unwrap(), Some(stripe(index)));
        let first = FormatBinding::First(7);
        let bound = store.bind_format(FormatOwner::Tag("order"), FormatPart::Shape, first).await.unwrap();
        assert_eq!(bound, Some(7), "each store of the set keeps it");
        for tag in ["order", "made on first use"] {
            let segment = store.allocate(tag, 10, 0).await.unwrap();
            let first = u64::from(index) + 1;
            assert_eq!((segment.start, segment.end, segment.stride), (first, first + 30, 3), "{tag}");
        }
        let error = store.join_stripe(&Stripe { set: 0xbad, ..stripe(index) }).await.unwrap_err();
        assert!(matches!(error, StoreError::Refused { .. }), "{}", what(&error));
    }
    // Nobody is granted anything who takes it for another store, or for one that stands alone.
    let place = &places[0];
    let other = place.store().await;
    let error = other.allocate("order", 10, 0).await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused { what, .. } if what.contains("stripe 0 of 3")), "{}", what(&error));
    let error = other.join_stripe(&stripe(1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{}", what(&error));
    let other = other.join_stripe(&stripe(0)).await.unwrap().store;
    assert_eq!(other.allocate("order", 1, 0).await.unwrap().start, 31);
    // Each grant looks at the row.
    place.sql("UPDATE tiny_id_info SET remainder = 2 WHERE biz_type = 'order'");
    let error = other.allocate("order", 1, 0).await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused { what, .. } if what.contains("remainder 1")), "{}", what(&error));
    let error = place.store().await.join_stripe(&stripe(0)).await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused { what, .. } if what.contains("\"order\"")), "{}", what(&error));
    // No other dialect can be one.
    let place = Place::with_row(LEAF).await;
    let error = place.store().await.join_stripe(&stripe(0)).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{}", what(&error));
}

#[async_trait]
impl Fixture for Place {
    async fn restart(&self) {}
}

#[async_trait]
impl SegmentFixture for Place {
    async fn segment_client(&self, creation: TagCreation) -> Arc<dyn SegmentStore> {
        let mut options = MysqlOptions::from_url(&self.url()).expect("the URL is right");
        options.creation = creation;
        options.connect_timeout = Duration::from_secs(60);
        options.request_timeout = Duration::from_secs(60);
        Arc::new(MysqlStore::connect(options).await.expect("the store opens"))
    }

    fn takes_tails_back(&self) -> bool {
        false
    }
}

/// What every table can promise. Of the rest, tables without a place for options cannot keep them, and most equate
/// names that differ in a space at the end.
async fn keeps_the_contract(case: Case) {
    let place = Place::new(case);
    check::the_first_number_is_the_start(&place).await;
    check::grants_are_well_formed_and_ascend(&place).await;
    check::concurrent_clients_never_share_a_number(&place).await;
    check::at_least_skips_up_and_never_back(&place).await;
    check::a_tail_is_taken_back_once(&place).await;
    check::a_tail_that_was_not_granted_is_not_taken_back(&place).await;
    check::a_raise_lifts_and_never_lowers(&place).await;
    check::what_is_bound_of_a_format_stays(&place).await;
    if case.table != "leaf_alloc" {
        check::numbers_end_at_the_top(&place).await;
    }
    if matches!(case.table, "leaf_alloc" | "t_sequence") {
        check::odd_names_are_kept_as_they_are(&place).await;
        check::no_name_with_a_space_at_an_end_is_created(&place).await;
    }
    if case.table == "cosid" {
        check::unknown_tags_are_created_only_when_allowed(&place).await;
        check::bad_requests_are_refused(&place).await;
    }
    if case.table != "id_generator" {
        check::an_ended_tag_grants_nothing(&place).await;
        check::an_abandoned_request_costs_only_numbers(&place).await;
        check::the_tag_limit_holds(&place).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leaf_keeps_the_contract_as_far_as_its_table_can() {
    keeps_the_contract(LEAF).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tinyid_keeps_the_contract_as_far_as_its_table_can() {
    keeps_the_contract(TINYID).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cosid_keeps_the_contract_as_far_as_its_table_can() {
    keeps_the_contract(COSID).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sequence_table_keeps_the_contract_as_far_as_it_can() {
    keeps_the_contract(SEQUENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_generator_keeps_the_contract_as_far_as_it_can() {
    keeps_the_contract(ID_GENERATOR).await;
}

#[test]
fn every_dialect_of_this_file_has_its_ddl_and_privileges() {
    for case in CASES {
        let options = MysqlOptions::from_url(&format!("mysql://root@localhost/test?{}", case.parameters)).unwrap();
        let dialect: Dialect = options.dialect;
        assert!(dialect.ddl().iter().any(|statement| statement.contains(case.table)), "{case:?}");
        assert!(dialect.privileges().iter().any(|(table, _)| table == case.table), "{case:?}");
    }
}
