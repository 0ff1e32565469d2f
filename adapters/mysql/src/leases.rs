//! The lease port: one row per worker of a namespace, in tables of their own beside whatever keeps tags.
//!
//! Invariant: an interval begins at or after the greatest end that was ever recorded for its worker. The statement that
//! grants states it as its condition, and a worker has one row, so it holds whatever was read before and however many
//! ask at once. The lock on the namespace's row only has acquires wait for each other, so that they do not choose the
//! same worker; extending and releasing concern one row and do without it.
//!
//! A server that took over from another one may lack the last commits of that one. [`quarantine`] has it grant nothing
//! before all that the other could have granted has ended, and extend nothing that began before.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::Row as _;
use sqlx::mysql::MySqlRow;
use unalike_storage::{
    ClockSteps, GrantId, Layout, Lease, LeaseAcquire, LeaseExtend, LeaseLimits, LeaseLook, LeaseRecord, LeaseRows,
    LeaseStore, LeasesKept, NamespaceBinding, StoreError, StoreIdentity, UsedWorker, is_kept_time, split_tag,
};

use crate::database::{Database, Turn, number};
use crate::dialects::tables::{self, Holds, Shape, has_table};
use crate::error::{DUPLICATE_ENTRY, damaged, read_error};
use crate::identity;
use crate::replication;
use crate::schema::{self, MAINTENANCE};
use crate::{MysqlOptions, warn_of_assumptions};

/// The version of the tables that this program creates, and the only one that it serves.
pub(crate) const VERSION: u64 = 1;

/// What concerns the leases of all namespaces: one row.
///
/// `floor_ms` is for namespaces that are used for the first time: a server that took over may have lost one altogether,
/// with the leases of it that still run.
const STORE_TABLE: &str = include_str!("sql/unalike_lease_store.sql");

/// What each namespace was bound to when it was first used. A name is kept as bytes: it is compared exactly.
const NAMESPACE_TABLE: &str = include_str!("sql/unalike_lease_namespace.sql");

/// The newest lease of each worker that was ever granted; `valid_until_ms` is the greatest end that is recorded for the
/// worker.
const LEASE_TABLE: &str = include_str!("sql/unalike_lease.sql");

/// Two leases of one worker at once must be impossible, whoever made the tables.
pub(crate) const TABLES: [Shape<'static>; 3] = [
    Shape {
        name: "unalike_lease_store",
        ddl: STORE_TABLE,
        key: &["id"],
        columns: &[("id", Holds::Whole), ("max_horizon_ms", Holds::Id), ("floor_ms", Holds::Id)],
    },
    Shape {
        name: "unalike_lease_namespace",
        ddl: NAMESPACE_TABLE,
        key: &["namespace"],
        columns: &[("namespace", Holds::Bytes), ("max_horizon_ms", Holds::Id), ("floor_ms", Holds::Id)],
    },
    Shape {
        name: "unalike_lease",
        ddl: LEASE_TABLE,
        key: &["namespace", "worker"],
        columns: &[
            ("namespace", Holds::Bytes),
            ("worker", Holds::Whole),
            ("grant_id", Holds::Bytes),
            ("not_before_ms", Holds::Id),
            ("valid_until_ms", Holds::Id),
            ("is_final", Holds::Whole),
        ],
    },
];

/// The server's clock, in Unix milliseconds: a whole number, whatever time zone the session has. Within a statement it
/// is one instant, that of its beginning.
macro_rules! clock {
    () => {
        "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 1000"
    };
}

macro_rules! lease_columns {
    () => {
        "l.worker, l.grant_id, l.holder, l.not_before_ms, l.valid_until_ms, l.acquired_ms, l.is_final"
    };
}

/// The clock, and with it a namespace and a worker's newest lease, if they are there.
pub(crate) const LOOK: &str = concat!(
    "SELECT c.store_ms, n.timestamp_bits, n.datacenter_bits, n.worker_bits, n.sequence_bits, n.sequence_first, \
     n.epoch_ms, n.tick_ms, n.max_horizon_ms, n.floor_ms, n.version, ",
    lease_columns!(),
    " FROM (SELECT ",
    clock!(),
    " AS store_ms) AS c LEFT JOIN unalike_lease_namespace AS n ON n.namespace = ? \
     LEFT JOIN unalike_lease AS l ON l.namespace = n.namespace AND l.worker = ?"
);

/// Has acquires in one namespace wait for each other.
pub(crate) const LOCK: &str = "SELECT version FROM unalike_lease_namespace WHERE namespace = ? FOR UPDATE";

/// The same where the namespace was not there a moment before: binds it, unless somebody else was quicker. The row is
/// locked either way, and by one statement: two that only read first would lock each other out.
pub(crate) const BIND: &str = "INSERT INTO unalike_lease_namespace (namespace, timestamp_bits, datacenter_bits, worker_bits, \
    sequence_bits, sequence_first, epoch_ms, tick_ms, max_horizon_ms, floor_ms, version) \
    SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, GREATEST(?, s.floor_ms), ? FROM unalike_lease_store AS s WHERE s.id = 1 LOCK IN SHARE MODE \
    ON DUPLICATE KEY UPDATE namespace = unalike_lease_namespace.namespace";

/// The lease of this holder that ended last.
pub(crate) const PREVIOUS: &str = "SELECT worker, valid_until_ms FROM unalike_lease \
    WHERE namespace = ? AND holder = ? AND valid_until_ms <= ? ORDER BY valid_until_ms DESC LIMIT 1";

pub(crate) const OLDEST: &str =
    "SELECT worker, valid_until_ms FROM unalike_lease WHERE namespace = ? ORDER BY valid_until_ms LIMIT 1";

pub(crate) const COUNT: &str = "SELECT COUNT(*) AS used FROM unalike_lease WHERE namespace = ?";

pub(crate) const WORKERS: &str = "SELECT worker FROM unalike_lease WHERE namespace = ? ORDER BY worker";

/// A worker that was never granted. A row that is there already fails it.
pub(crate) const GRANT_FIRST: &str = "INSERT INTO unalike_lease \
    (grant_id, holder, not_before_ms, valid_until_ms, acquired_ms, is_final, namespace, worker) \
    SELECT ?, ?, ?, ?, ?, 0, ?, ? FROM DUAL WHERE {fence}";

/// A worker that was granted before: the rule of all leases is the condition.
pub(crate) const GRANT_AGAIN: &str = "UPDATE unalike_lease \
    SET grant_id = ?, holder = ?, not_before_ms = ?, valid_until_ms = ?, acquired_ms = ?, is_final = 0 \
    WHERE namespace = ? AND worker = ? AND valid_until_ms <= ? AND {fence}";

/// The reply alone says where the lease ends now: that one row was matched, and its `LAST_INSERT_ID`.
pub(crate) const EXTEND: &str = "UPDATE unalike_lease SET valid_until_ms = LAST_INSERT_ID(GREATEST(valid_until_ms, ?)) \
    WHERE namespace = ? AND worker = ? AND grant_id = ? AND is_final = 0 AND {fence alone}";

pub(crate) const RELEASE: &str = "UPDATE unalike_lease SET valid_until_ms = ?, is_final = 1 \
    WHERE namespace = ? AND worker = ? AND grant_id = ? AND is_final = 0 AND valid_until_ms >= ? \
    AND {fence alone}";

const FORBID: &str = "UPDATE unalike_lease SET is_final = 1 WHERE namespace = ? AND worker = ?";

const FIND: &str =
    concat!("SELECT ", lease_columns!(), " FROM unalike_lease AS l WHERE l.namespace = ? AND l.worker = ?");

pub(crate) const LIST: &str =
    concat!("SELECT ", lease_columns!(), " FROM unalike_lease AS l WHERE l.namespace = ? ORDER BY l.worker");

const QUARANTINE_NAMESPACES: &str =
    concat!("UPDATE unalike_lease_namespace SET floor_ms = GREATEST(floor_ms, ", clock!(), " + max_horizon_ms + ?)");

const QUARANTINE_NEW: &str = concat!(
    "UPDATE unalike_lease_store SET floor_ms = GREATEST(floor_ms, ",
    clock!(),
    " + max_horizon_ms + ?) WHERE id = 1"
);

/// The row of all namespaces, which is written once all tables of leases are there.
pub(crate) const READ_STORE: &str = "SELECT version, max_horizon_ms FROM unalike_lease_store WHERE id = 1";

/// Whether there is a table for it.
pub(crate) const HAS_STORE: &str = has_table!("unalike_lease_store");

/// Whether there is a table of tags of unalike's own that this user may look into.
pub(crate) const HAS_TAGS: &str = has_table!("unalike_tag");

/// Whether time was granted to leases in Redis under a tag.
pub(crate) const GRANTED_TIME: &str = "SELECT 1 FROM unalike_tag WHERE tag = ?";

/// Whether a namespace is bound, or Redis has its leases.
pub(crate) const KEPT: &str = "SELECT version FROM unalike_lease_namespace WHERE namespace = ?";

/// When time may be granted under new names, and the server's clock.
pub(crate) const TIME_FLOOR: &str = concat!(
    "SELECT CAST(floor_ms AS UNSIGNED) AS floor_ms, CAST(",
    clock!(),
    " AS UNSIGNED) AS now_ms FROM unalike_lease_store WHERE id = 1"
);

/// The row of all namespaces, unless it is there.
pub(crate) const INSERT_STORE: &str =
    "INSERT IGNORE INTO unalike_lease_store (id, version, max_horizon_ms) VALUES (1, ?, ?)";

/// A longer horizon than any program came with before.
pub(crate) const RAISE_HORIZON: &str =
    "UPDATE unalike_lease_store SET max_horizon_ms = GREATEST(max_horizon_ms, ?) WHERE id = 1 AND {fence alone}";

/// Leases in one database; clones share its connections.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use unalike_mysql::{MysqlLeases, MysqlOptions};
/// use unalike_storage::LeaseStore;
///
/// # async fn open() -> Result<(), unalike_storage::StoreError> {
/// let mut options = MysqlOptions::from_url("mysql://ids@db.example/ids")?;
/// options.limits.max_horizon_ms = 60 * 60 * 1_000;
/// let leases: Arc<dyn LeaseStore> = Arc::new(MysqlLeases::connect(options).await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MysqlLeases {
    options: MysqlOptions,
    tables: LeaseTables,
}

/// The tables of leases.
#[derive(Clone, Debug)]
struct LeaseTables {
    database: Database,
    limits: LeaseLimits,
    /// Where the server's clock was set, as far as this process has seen.
    steps: Arc<ClockSteps>,
}

impl MysqlLeases {
    /// Connects, checks the server, and creates the tables of leases that are missing if that is allowed. Whatever the
    /// dialect of the options is, no tags are looked at.
    ///
    /// # Errors
    /// As [`MysqlStore::connect`](crate::MysqlStore::connect); [`StoreError::Refused`] also for
    /// [limits](MysqlOptions::limits) out of range.
    pub async fn connect(options: MysqlOptions) -> Result<Self, StoreError> {
        options.limits.validate()?;
        let (database, facts) = Database::connect(&options).await?;
        warn_of_assumptions(&options, &facts);
        schema::open(&database, &facts, &options).await?;
        replication::refuse_unnoticed(&database, &facts).await?;
        Self::open(&database, &options).await
    }

    /// On a server that was looked at.
    pub(crate) async fn open(database: &Database, options: &MysqlOptions) -> Result<Self, StoreError> {
        options.limits.validate()?;
        tables::open_begun(database, options, &TABLES, Some(READ_STORE)).await?;
        open_store(database, options.limits).await?;
        let tables = LeaseTables { database: database.clone(), limits: options.limits, steps: Arc::default() };
        // The other tables: what is missing in them is known from the beginning.
        let mut turn = database.turn("looking at the tables of leases").await?;
        tables.look_at_rows(&mut turn, "", 0).await?;
        turn.give_back();
        Ok(Self { options: options.clone(), tables })
    }

    /// Writes the mark that Redis has the leases of a namespace, unless somebody has bound it here.
    async fn mark_namespace(&self, namespace: &str) -> Result<(), StoreError> {
        let database = &self.tables.database;
        let mut turn = database.turn("noting that Redis keeps leases").await?;
        let mut mark = sqlx::query(BIND).bind(namespace.as_bytes());
        for (_, figure) in NamespaceBinding::figures_in_redis() {
            mark = mark.bind(figure);
        }
        turn.execute(mark).await?;
        let rows = turn.rows(sqlx::query(KEPT).bind(namespace.as_bytes())).await?;
        turn.give_back();
        let row = rows.first().ok_or_else(|| damaged(database.at(), LeaseTables::UNBOUND))?;
        if number(database, row, "version")? == NamespaceBinding::IN_REDIS {
            return Ok(());
        }
        Err(StoreError::leases_elsewhere(namespace, LeasesKept::InStore))
    }

    /// The statements that create the tables of leases, `unalike_store` among them, for those who do not let programs
    /// do it.
    ///
    /// ```
    /// use unalike_mysql::MysqlLeases;
    /// assert!(MysqlLeases::ddl().iter().any(|statement| statement.contains("TABLE IF NOT EXISTS unalike_lease (")));
    /// ```
    #[must_use]
    pub fn ddl() -> Vec<String> {
        let mut statements = [schema::STORE_TABLE, identity::DDL].map(|statement| statement.trim().to_owned()).to_vec();
        statements.extend(TABLES.map(|shape| shape.ddl.trim().to_owned()));
        statements
    }

    /// Tables, and the least privileges on each, once the tables exist.
    ///
    /// ```
    /// use unalike_mysql::MysqlLeases;
    /// assert_eq!(MysqlLeases::privileges()[0], ("unalike_store".to_owned(), "SELECT, INSERT"));
    /// ```
    #[must_use]
    pub fn privileges() -> Vec<(String, &'static str)> {
        let mut tables =
            vec![("unalike_store".to_owned(), "SELECT, INSERT"), (identity::NAME.to_owned(), "SELECT, INSERT")];
        tables.extend(TABLES.map(|shape| (shape.name.to_owned(), "SELECT, INSERT, UPDATE")));
        tables
    }
}

impl LeaseTables {
    fn number(&self, row: &MySqlRow, column: &str) -> Result<u64, StoreError> {
        number(&self.database, row, column)
    }

    fn bytes(&self, row: &MySqlRow, column: &str) -> Result<Vec<u8>, StoreError> {
        row.try_get(column).map_err(|error| read_error(self.database.at(), "reading a row of leases", error))
    }

    fn text(&self, row: &MySqlRow, column: &str) -> Result<String, StoreError> {
        let text = String::from_utf8(self.bytes(row, column)?);
        text.map_err(|_| damaged(self.database.at(), &format!("{column} is not text in a table of leases")))
    }

    fn is_null(&self, row: &MySqlRow, column: &str) -> Result<bool, StoreError> {
        use sqlx::ValueRef as _;
        let value = row.try_get_raw(column);
        let value = value.map_err(|error| read_error(self.database.at(), "reading a row of leases", error))?;
        Ok(value.is_null())
    }

    fn binding(&self, row: &MySqlRow, namespace: &str) -> Result<NamespaceBinding, StoreError> {
        if self.number(row, "version")? == NamespaceBinding::IN_REDIS {
            return Err(StoreError::leases_elsewhere(namespace, LeasesKept::InRedis));
        }
        let read = NamespaceBinding::read(|figure| self.number(row, figure))?;
        read.map_err(|why| {
            damaged(self.database.at(), &format!("a row of unalike_lease_namespace is not a binding: {why}"))
        })
    }

    fn worker(&self, row: &MySqlRow) -> Result<u32, StoreError> {
        let worker = self.number(row, "worker")?;
        u32::try_from(worker).map_err(|_| damaged(self.database.at(), &format!("there is no worker {worker}")))
    }

    fn used_worker(&self, row: &MySqlRow) -> Result<UsedWorker, StoreError> {
        Ok(UsedWorker { worker: self.worker(row)?, end_ms: self.number(row, "valid_until_ms")? })
    }

    fn record(&self, row: &MySqlRow) -> Result<LeaseRecord, StoreError> {
        let grant_id = self.bytes(row, "grant_id")?;
        let grant_id =
            grant_id.try_into().map_err(|_| damaged(self.database.at(), "a lease's grant id has not 16 bytes"))?;
        let lease = Lease {
            worker: self.worker(row)?,
            grant_id: GrantId(u128::from_be_bytes(grant_id)),
            not_before_ms: self.number(row, "not_before_ms")?,
            valid_until_ms: self.number(row, "valid_until_ms")?,
        };
        let is_final = self.number(row, "is_final")? != 0;
        if lease.not_before_ms > lease.valid_until_ms {
            return Err(damaged(self.database.at(), &format!("a lease ends before it begins: {lease:?}")));
        }
        Ok(LeaseRecord {
            lease,
            holder: self.text(row, "holder")?,
            acquired_ms: self.number(row, "acquired_ms")?,
            is_final,
        })
    }
}

#[async_trait]
impl LeaseRows for LeaseTables {
    type Turn = Turn;

    const UNBOUND: &'static str = "unalike_lease_store has no row";

    fn at(&self) -> &str {
        self.database.at()
    }

    fn limits(&self) -> LeaseLimits {
        self.limits
    }

    fn steps(&self) -> &ClockSteps {
        &self.steps
    }

    async fn turn(&self, doing: &'static str) -> Result<Turn, StoreError> {
        self.database.turn(doing).await
    }

    fn give_back(&self, turn: Turn) {
        turn.give_back();
    }

    async fn check_server(&self, turn: Turn) -> Result<(), StoreError> {
        turn.give_back();
        self.database.check_fence().await
    }

    async fn look_at_rows(&self, turn: &mut Turn, namespace: &str, worker: u32) -> Result<LeaseLook, StoreError> {
        let rows = turn.rows(sqlx::query(LOOK).bind(namespace.as_bytes().to_vec()).bind(worker)).await?;
        let row = rows.first().ok_or_else(|| damaged(self.database.at(), "the server's clock gives no row"))?;
        Ok(LeaseLook {
            store_ms: self.number(row, "store_ms")?,
            binding: if self.is_null(row, "version")? { None } else { Some(self.binding(row, namespace)?) },
            lease: if self.is_null(row, "worker")? { None } else { Some(self.record(row)?) },
        })
    }

    async fn has_granted_time(&self, turn: &mut Turn, tag: &str) -> Result<bool, StoreError> {
        // The tags of other dialects are not looked at: a Redis above them has its mark written at its next start.
        let has_tags = !turn.rows(sqlx::query(HAS_TAGS)).await?.is_empty();
        Ok(has_tags && !turn.rows(sqlx::query(GRANTED_TIME).bind(tag.as_bytes())).await?.is_empty())
    }

    async fn lock_namespace(
        &self,
        turn: &mut Turn,
        namespace: &str,
        new: Option<NamespaceBinding>,
    ) -> Result<(), StoreError> {
        turn.begin().await?;
        let Some(binding) = new else {
            return turn.rows(sqlx::query(LOCK).bind(namespace.as_bytes())).await.map(drop);
        };
        let mut bind = sqlx::query(BIND).bind(namespace.as_bytes());
        for (_, figure) in binding.figures() {
            bind = bind.bind(figure);
        }
        turn.execute(bind).await.map(drop)
    }

    async fn previous_row(
        &self,
        turn: &mut Turn,
        namespace: &str,
        holder: &str,
        ended_ms: u64,
    ) -> Result<Option<UsedWorker>, StoreError> {
        let previous = sqlx::query(PREVIOUS).bind(namespace.as_bytes()).bind(holder.as_bytes()).bind(ended_ms);
        let rows = turn.rows(previous).await?;
        rows.first().map(|row| self.used_worker(row)).transpose()
    }

    async fn oldest_row(&self, turn: &mut Turn, namespace: &str) -> Result<(Option<UsedWorker>, u64), StoreError> {
        let rows = turn.rows(sqlx::query(OLDEST).bind(namespace.as_bytes())).await?;
        let oldest = rows.first().map(|row| self.used_worker(row)).transpose()?;
        let rows = turn.rows(sqlx::query(COUNT).bind(namespace.as_bytes())).await?;
        Ok((oldest, rows.first().map_or(Ok(0), |row| self.number(row, "used"))?))
    }

    async fn worker_rows(&self, turn: &mut Turn, namespace: &str) -> Result<Vec<u32>, StoreError> {
        let rows = turn.rows(sqlx::query(WORKERS).bind(namespace.as_bytes())).await?;
        rows.iter().map(|row| self.worker(row)).collect()
    }

    async fn lease_rows(&self, turn: &mut Turn, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        let rows = turn.rows(sqlx::query(LIST).bind(namespace.as_bytes())).await?;
        rows.iter().map(|row| self.record(row)).collect()
    }

    async fn write_lease(
        &self,
        mut turn: Turn,
        acquire: &LeaseAcquire,
        lease: &Lease,
        store_ms: u64,
        is_first: bool,
    ) -> Result<bool, StoreError> {
        let mut write = sqlx::query(self.database.fenced(if is_first { GRANT_FIRST } else { GRANT_AGAIN }))
            .bind(grant_id_bytes(lease.grant_id))
            .bind(acquire.holder.as_bytes())
            .bind(lease.not_before_ms)
            .bind(lease.valid_until_ms)
            .bind(store_ms)
            .bind(acquire.namespace.as_bytes())
            .bind(lease.worker);
        if !is_first {
            write = write.bind(lease.not_before_ms);
        }
        let written = turn.try_execute(write, &[DUPLICATE_ENTRY]).await?;
        if written.is_ok_and(|done| done.rows_affected() == 1) {
            turn.commit().await?;
            return Ok(true);
        }
        turn.roll_back().await?;
        self.database.check_fence().await?;
        Ok(false)
    }

    async fn roll_back(&self, turn: Turn) -> Result<(), StoreError> {
        turn.roll_back().await
    }

    async fn write_extension(
        &self,
        mut turn: Turn,
        extend: &LeaseExtend,
        end_ms: u64,
    ) -> Result<Option<u64>, StoreError> {
        let update = sqlx::query(self.database.fenced(EXTEND))
            .bind(end_ms)
            .bind(extend.namespace.as_bytes())
            .bind(extend.worker)
            .bind(grant_id_bytes(extend.grant_id));
        let updated = turn.execute(update).await?;
        turn.give_back();
        if updated.rows_affected() == 1 {
            return Ok(Some(updated.last_insert_id()));
        }
        self.database.check_fence().await?;
        Ok(None)
    }

    async fn write_end(
        &self,
        mut turn: Turn,
        namespace: &str,
        worker: u32,
        grant_id: GrantId,
        end_ms: u64,
    ) -> Result<bool, StoreError> {
        let update = sqlx::query(self.database.fenced(RELEASE))
            .bind(end_ms)
            .bind(namespace.as_bytes())
            .bind(worker)
            .bind(grant_id_bytes(grant_id))
            .bind(end_ms);
        let updated = turn.execute(update).await?;
        turn.give_back();
        Ok(updated.rows_affected() == 1)
    }
}

#[async_trait]
impl LeaseStore for MysqlLeases {
    async fn check_namespace(&self, namespace: &str, layout: Layout) -> Result<(), StoreError> {
        self.tables.check_binding(namespace, layout).await
    }

    async fn acquire(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError> {
        self.tables.acquire_row(acquire).await
    }

    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        self.tables.extend_row(extend).await
    }

    async fn release(&self, namespace: &str, worker: u32, grant_id: GrantId, end_ms: u64) -> Result<bool, StoreError> {
        self.tables.release_row(namespace, worker, grant_id, end_ms).await
    }

    async fn forbid_extension(&self, namespace: &str, worker: u32) -> Result<Option<LeaseRecord>, StoreError> {
        let mut turn = self.tables.database.begin("forbidding a lease's extension").await?;
        turn.execute(sqlx::query(FORBID).bind(namespace.as_bytes()).bind(worker)).await?;
        let rows = turn.rows(sqlx::query(FIND).bind(namespace.as_bytes()).bind(worker)).await?;
        let record = rows.first().map(|row| self.tables.record(row)).transpose()?;
        turn.commit().await?;
        Ok(record)
    }

    async fn leases(&self, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        let rows = self.tables.database.rows("listing leases", sqlx::query(LIST).bind(namespace.as_bytes())).await?;
        rows.iter().map(|row| self.tables.record(row)).collect()
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        let list = sqlx::query("SELECT namespace FROM unalike_lease_namespace WHERE version <> 2 ORDER BY namespace");
        let rows = self.tables.database.rows("listing lease namespaces", list).await?;
        rows.iter().map(|row| self.tables.text(row, "namespace")).collect()
    }

    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        identity::of(&self.tables.database, &self.options, identity::LEASES).await.map(Some)
    }

    async fn clock_ms(&self) -> Result<Option<u64>, StoreError> {
        const DOING: &str = "reading the clock";
        let database = &self.tables.database;
        let rows =
            database.rows(DOING, sqlx::query(concat!("SELECT CAST(", clock!(), " AS UNSIGNED) AS now_ms"))).await?;
        rows.first().map(|row| self.tables.number(row, "now_ms")).transpose()
    }

    /// Closes the connections, also for the store that these leases [share](crate::MysqlStore::leases) them with.
    async fn close(&self) {
        self.tables.database.close().await;
    }
}

/// Reads the row, or writes it into new tables, and records a longer horizon than any before: whoever takes the
/// server's place must know how far ahead a lease may reach.
async fn open_store(database: &Database, limits: LeaseLimits) -> Result<(), StoreError> {
    const DOING: &str = "reading unalike_lease_store";
    let mut rows = database.rows(DOING, sqlx::query(READ_STORE)).await?;
    if rows.is_empty() {
        database.execute(DOING, sqlx::query(INSERT_STORE).bind(VERSION).bind(limits.max_horizon_ms)).await?;
        // As somebody else may have written it, a moment before.
        rows = database.rows(DOING, sqlx::query(READ_STORE)).await?;
    }
    let row = rows.first().ok_or_else(|| damaged(database.at(), "unalike_lease_store has no row"))?;
    let version = number(database, row, "version")?;
    if version != VERSION {
        return Err(StoreError::refused(format!(
            "{}: its tables of leases have the version {version}, and this program serves {VERSION} alone: upgrade the \
             program",
            database.at()
        )));
    }
    if number(database, row, "max_horizon_ms")? < limits.max_horizon_ms {
        let raise = sqlx::query(database.fenced(RAISE_HORIZON)).bind(limits.max_horizon_ms);
        if database.execute(DOING, raise).await?.rows_affected() == 0 {
            return Err(database.held_back(DOING).await);
        }
    }
    Ok(())
}

/// Has a server that took over grant nothing before all that the one before may have granted has ended, by this one's
/// clock, and with so much between the two clocks as a holder's may be off; unless that was done before. Answers from
/// when on each namespace grants something, in Unix milliseconds.
///
/// A namespace may have been lost altogether, and the tables with it: what is used for the first time here waits for
/// the longest horizon that any program came with.
pub(crate) async fn quarantine(database: &Database, options: &MysqlOptions, was_done: bool) -> Result<u64, StoreError> {
    const END: &str = "SELECT CAST(GREATEST((SELECT MAX(floor_ms) FROM unalike_lease_store), \
        COALESCE((SELECT MAX(floor_ms) FROM unalike_lease_namespace), 0)) AS UNSIGNED) AS floor_ms";
    MysqlLeases::open(database, options).await.map_err(|error| match error {
        StoreError::Refused { what, source } => StoreError::Refused {
            what: format!("leases that the server before may have granted cannot be waited for: {what}"),
            source,
        },
        other => other,
    })?;
    let mut turn = database.begin("quarantining leases").await?.within(MAINTENANCE);
    if !was_done {
        turn.execute(sqlx::query(QUARANTINE_NEW).bind(options.limits.max_skew_ms)).await?;
        turn.execute(sqlx::query(QUARANTINE_NAMESPACES).bind(options.limits.max_skew_ms)).await?;
    }
    let rows = turn.rows(sqlx::query(END)).await?;
    let row = rows.first().ok_or_else(|| damaged(database.at(), "the table unalike_lease_store has no row"))?;
    let end_ms = number(database, row, "floor_ms")?;
    turn.commit().await?;
    Ok(end_ms)
}

/// The longest horizon that any program ever came with. The tables of leases are open.
pub(crate) async fn longest_horizon_ms(database: &Database) -> Result<u64, StoreError> {
    let rows = database.rows("reading unalike_lease_store", sqlx::query(READ_STORE)).await?;
    let row = rows.first().ok_or_else(|| damaged(database.at(), "the table unalike_lease_store has no row"))?;
    number(database, row, "max_horizon_ms")
}

/// [`SegmentStore::leave_leases`](unalike_storage::SegmentStore::leave_leases). Where nobody made the tables of leases,
/// and this user may not, nothing is leased in them, and the time that Redis is granted says where the leases are.
pub(crate) async fn leave(database: &Database, options: &MysqlOptions, namespace: &str) -> Result<(), StoreError> {
    match MysqlLeases::open(database, options).await {
        Ok(leases) => leases.mark_namespace(namespace).await,
        Err(error @ StoreError::Refused { .. }) => {
            let has_tables = !database.rows("looking for leases", sqlx::query(HAS_STORE)).await?.is_empty();
            if has_tables { Err(error) } else { Ok(()) }
        }
        Err(error) => Err(error),
    }
}

/// Refuses, in the transaction that is about to create it, a row of [time](unalike_storage::is_kept_time) that is
/// granted to leases or clocks in Redis, for as long as [`quarantine`] lasts.
///
/// A server that took over may have lost such a row. What was granted under it cannot be known here, and none of it
/// ends later than the leases that are waited for. A database that was never adopted waits for nothing.
pub(crate) async fn check_new_time(turn: &mut Turn, database: &Database, name: &str) -> Result<(), StoreError> {
    if !is_kept_time(name) || turn.rows(sqlx::query(HAS_STORE)).await?.is_empty() {
        return Ok(());
    }
    let rows = turn.rows(sqlx::query(TIME_FLOOR)).await?;
    let Some(row) = rows.first() else { return Ok(()) };
    let (until_ms, now_ms) = (number(database, row, "floor_ms")?, number(database, row, "now_ms")?);
    if until_ms <= now_ms {
        return Ok(());
    }
    let (tag, sub) = split_tag(name);
    Err(StoreError::Quarantined { namespace: sub.unwrap_or(tag).to_owned(), until_ms })
}

fn grant_id_bytes(grant_id: GrantId) -> Vec<u8> {
    grant_id.0.to_be_bytes().to_vec()
}
