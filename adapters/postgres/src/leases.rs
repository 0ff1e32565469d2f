//! The lease port: one row per worker of a namespace, in tables of their own.
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
use sqlx::postgres::PgRow;
use unalike_storage::{
    ClockSteps, GrantId, Layout, Lease, LeaseAcquire, LeaseExtend, LeaseLimits, LeaseLook, LeaseRecord, LeaseRows,
    LeaseStore, LeasesKept, NamespaceBinding, StoreError, StoreIdentity, UsedWorker, is_kept_time, split_tag,
};

use crate::database::{Database, Turn, number, signed};
use crate::error::{damaged, read_error};
use crate::schema::{self, LEASE, NAMESPACE, STORE, Shape};
use crate::{PostgresOptions, warn_of_assumptions};

/// In place of a dialect: what concerns the leases of all namespaces.
pub(crate) const LEASES: &str = "leases";

/// The tables of leases.
pub(crate) const TABLES: [Shape; 3] = [STORE, NAMESPACE, LEASE];

/// The clock, and with it a namespace and a worker's newest lease, if they are there.
const LOOK: &str = include_str!("sql/look_at_lease.sql");

/// Binds a namespace, unless it is bound.
const BIND: &str = include_str!("sql/bind_namespace.sql");

/// Has acquires in one namespace wait for each other.
const LOCK: &str = "SELECT version FROM unalike_lease_namespace WHERE namespace = $1 FOR UPDATE";

/// The lease of this holder that ended last.
const PREVIOUS: &str = include_str!("sql/previous.sql");

const OLDEST: &str =
    "SELECT worker, valid_until_ms FROM unalike_lease WHERE namespace = $1 ORDER BY valid_until_ms LIMIT 1";

/// The condition has the rule of all leases too: no interval begins before the recorded end.
const GRANT: &str = include_str!("sql/grant.sql");

/// Moves the end of a running lease up.
const EXTEND: &str = include_str!("sql/extend.sql");

const END: &str = include_str!("sql/end.sql");

const FORBID: &str = include_str!("sql/forbid.sql");

const COUNT: &str = "SELECT count(*) AS used FROM unalike_lease WHERE namespace = $1";

const WORKERS: &str = "SELECT worker FROM unalike_lease WHERE namespace = $1 ORDER BY worker";

const LIST: &str = "SELECT * FROM unalike_lease WHERE namespace = $1 ORDER BY worker";

/// Leases in one database; clones share its connections.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use unalike_postgres::{PostgresLeases, PostgresOptions};
/// use unalike_storage::LeaseStore;
///
/// # async fn open() -> Result<(), unalike_storage::StoreError> {
/// let mut options = PostgresOptions::from_url("postgres://ids@db.example/ids")?;
/// options.limits.max_horizon_ms = 60 * 60 * 1_000;
/// let leases: Arc<dyn LeaseStore> = Arc::new(PostgresLeases::connect(options).await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PostgresLeases {
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

impl PostgresLeases {
    /// Connects, checks the server, and creates the tables of leases that are missing if that is allowed. No tags are
    /// looked at.
    ///
    /// # Errors
    /// As [`PostgresStore::connect`](crate::PostgresStore::connect); [`StoreError::Refused`] also for
    /// [limits](PostgresOptions::limits) out of range.
    pub async fn connect(options: PostgresOptions) -> Result<Self, StoreError> {
        options.limits.validate()?;
        let (database, facts) = Database::connect(&options, options.dialect.name()).await?;
        warn_of_assumptions(&options, &facts);
        schema::open(&database, &options).await?;
        Self::open(&database, &options).await
    }

    /// On a server that was looked at.
    pub(crate) async fn open(database: &Database, options: &PostgresOptions) -> Result<Self, StoreError> {
        options.limits.validate()?;
        schema::open_tables(database, options, &TABLES).await?;
        open_row(database, options.limits).await?;
        let tables = LeaseTables { database: database.clone(), limits: options.limits, steps: Arc::default() };
        Ok(Self { tables })
    }

    /// Writes the mark that Redis has the leases of a namespace, unless somebody has bound it here.
    async fn mark_namespace(&self, namespace: &str) -> Result<(), StoreError> {
        const KEPT: &str = "SELECT version FROM unalike_lease_namespace WHERE namespace = $1";
        let database = &self.tables.database;
        let mut turn = database.turn("noting that Redis keeps leases").await?;
        let mut mark = sqlx::query(BIND).bind(namespace.to_owned());
        for (_, figure) in NamespaceBinding::figures_in_redis() {
            mark = mark.bind(signed(figure));
        }
        turn.execute(mark).await?;
        let rows = turn.rows(sqlx::query(KEPT).bind(namespace.to_owned())).await?;
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
    /// use unalike_postgres::PostgresLeases;
    /// let ddl = PostgresLeases::ddl();
    /// assert!(ddl.iter().any(|statement| statement.contains("TABLE IF NOT EXISTS unalike_lease (")));
    /// ```
    #[must_use]
    pub fn ddl() -> Vec<String> {
        schema::ddl(&TABLES)
    }

    /// Tables, and the least privileges on each, once the tables exist.
    ///
    /// ```
    /// use unalike_postgres::PostgresLeases;
    /// assert_eq!(PostgresLeases::privileges()[0], ("unalike_store".to_owned(), "SELECT, INSERT, UPDATE"));
    /// ```
    #[must_use]
    pub fn privileges() -> Vec<(String, &'static str)> {
        schema::privileges(&TABLES)
    }
}

impl LeaseTables {
    fn number(&self, row: &PgRow, column: &str) -> Result<u64, StoreError> {
        number(&self.database, row, column)
    }

    fn unreadable(&self, error: sqlx::Error) -> StoreError {
        read_error(self.database.at(), "reading a row of leases", error)
    }

    fn binding(&self, row: &PgRow, namespace: &str) -> Result<NamespaceBinding, StoreError> {
        if self.number(row, "version")? == NamespaceBinding::IN_REDIS {
            return Err(StoreError::leases_elsewhere(namespace, LeasesKept::InRedis));
        }
        let read = NamespaceBinding::read(|figure| self.number(row, figure))?;
        read.map_err(|why| {
            damaged(self.database.at(), &format!("a row of unalike_lease_namespace is not a binding: {why}"))
        })
    }

    fn worker(&self, row: &PgRow) -> Result<u32, StoreError> {
        let worker = self.number(row, "worker")?;
        u32::try_from(worker).map_err(|_| damaged(self.database.at(), &format!("there is no worker {worker}")))
    }

    fn used_worker(&self, row: &PgRow) -> Result<UsedWorker, StoreError> {
        Ok(UsedWorker { worker: self.worker(row)?, end_ms: self.number(row, "valid_until_ms")? })
    }

    fn record(&self, row: &PgRow) -> Result<LeaseRecord, StoreError> {
        let grant_id: Vec<u8> = row.try_get("grant_id").map_err(|error| self.unreadable(error))?;
        let grant_id =
            grant_id.try_into().map_err(|_| damaged(self.database.at(), "a lease's grant id has not 16 bytes"))?;
        let lease = Lease {
            worker: self.worker(row)?,
            grant_id: GrantId(u128::from_be_bytes(grant_id)),
            not_before_ms: self.number(row, "not_before_ms")?,
            valid_until_ms: self.number(row, "valid_until_ms")?,
        };
        if lease.not_before_ms > lease.valid_until_ms {
            return Err(damaged(self.database.at(), &format!("a lease ends before it begins: {lease:?}")));
        }
        Ok(LeaseRecord {
            lease,
            holder: row.try_get("holder").map_err(|error| self.unreadable(error))?,
            acquired_ms: self.number(row, "acquired_ms")?,
            is_final: row.try_get("is_final").map_err(|error| self.unreadable(error))?,
        })
    }

    /// The record that a grant states, as the store has it.
    async fn recorded(&self) -> Result<String, StoreError> {
        let record = self.database.record()?;
        if record.server.is_some() {
            return Ok(record.to_string());
        }
        schema::read(&self.database).await?.map(|(_, text)| text).ok_or_else(|| schema::no_row(&self.database))
    }
}

/// A connection in use, with the record that a grant states.
struct LeaseTurn {
    turn: Turn,
    recorded: String,
}

#[async_trait]
impl LeaseRows for LeaseTables {
    type Turn = LeaseTurn;

    const UNBOUND: &'static str = "unalike_store has no row of leases";

    fn at(&self) -> &str {
        self.database.at()
    }

    fn limits(&self) -> LeaseLimits {
        self.limits
    }

    fn steps(&self) -> &ClockSteps {
        &self.steps
    }

    async fn turn(&self, doing: &'static str) -> Result<LeaseTurn, StoreError> {
        let recorded = self.recorded().await?;
        Ok(LeaseTurn { turn: self.database.turn(doing).await?, recorded })
    }

    fn give_back(&self, turn: LeaseTurn) {
        turn.turn.give_back();
    }

    async fn check_server(&self, turn: LeaseTurn) -> Result<(), StoreError> {
        self.database.check_fence(turn.turn).await
    }

    async fn look_at_rows(&self, turn: &mut LeaseTurn, namespace: &str, worker: u32) -> Result<LeaseLook, StoreError> {
        let look = sqlx::query(LOOK).bind(namespace.to_owned()).bind(i64::from(worker));
        let rows = turn.turn.rows(look).await?;
        let row = rows.first().ok_or_else(|| damaged(self.database.at(), "the server's clock gives no row"))?;
        let is_there = |column| {
            let value = row.try_get::<Option<i64>, _>(column);
            value.map(|value| value.is_some()).map_err(|error| self.unreadable(error))
        };
        Ok(LeaseLook {
            store_ms: self.number(row, "store_ms")?,
            binding: if is_there("version")? { Some(self.binding(row, namespace)?) } else { None },
            lease: if is_there("worker")? { Some(self.record(row)?) } else { None },
        })
    }

    async fn has_granted_time(&self, LeaseTurn { turn, .. }: &mut LeaseTurn, tag: &str) -> Result<bool, StoreError> {
        const GRANTED_TIME: &str = "SELECT 1 FROM unalike_tag WHERE tag = $1";
        let has_tags = !turn.rows(sqlx::query(schema::HAS_TAGS)).await?.is_empty();
        Ok(has_tags && !turn.rows(sqlx::query(GRANTED_TIME).bind(tag.to_owned())).await?.is_empty())
    }

    async fn lock_namespace(
        &self,
        turn: &mut LeaseTurn,
        namespace: &str,
        new: Option<NamespaceBinding>,
    ) -> Result<(), StoreError> {
        // A crash empties a table that somebody has made unlogged meanwhile, and then all workers look unused.
        schema::check_again(&mut turn.turn, &self.database, &[NAMESPACE, LEASE]).await?;
        turn.turn.begin().await?;
        if let Some(binding) = new {
            let mut bind = sqlx::query(BIND).bind(namespace.to_owned());
            for (_, figure) in binding.figures() {
                bind = bind.bind(signed(figure));
            }
            turn.turn.execute(bind).await?;
        }
        turn.turn.rows(sqlx::query(LOCK).bind(namespace.to_owned())).await.map(drop)
    }

    async fn previous_row(
        &self,
        turn: &mut LeaseTurn,
        namespace: &str,
        holder: &str,
        ended_ms: u64,
    ) -> Result<Option<UsedWorker>, StoreError> {
        let previous = sqlx::query(PREVIOUS).bind(namespace.to_owned()).bind(holder.to_owned()).bind(signed(ended_ms));
        let rows = turn.turn.rows(previous).await?;
        rows.first().map(|row| self.used_worker(row)).transpose()
    }

    async fn oldest_row(&self, turn: &mut LeaseTurn, namespace: &str) -> Result<(Option<UsedWorker>, u64), StoreError> {
        let rows = turn.turn.rows(sqlx::query(OLDEST).bind(namespace.to_owned())).await?;
        let oldest = rows.first().map(|row| self.used_worker(row)).transpose()?;
        let rows = turn.turn.rows(sqlx::query(COUNT).bind(namespace.to_owned())).await?;
        Ok((oldest, rows.first().map_or(Ok(0), |row| self.number(row, "used"))?))
    }

    async fn worker_rows(&self, turn: &mut LeaseTurn, namespace: &str) -> Result<Vec<u32>, StoreError> {
        let rows = turn.turn.rows(sqlx::query(WORKERS).bind(namespace.to_owned())).await?;
        rows.iter().map(|row| self.worker(row)).collect()
    }

    async fn lease_rows(&self, turn: &mut LeaseTurn, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        let rows = turn.turn.rows(sqlx::query(LIST).bind(namespace.to_owned())).await?;
        rows.iter().map(|row| self.record(row)).collect()
    }

    async fn write_lease(
        &self,
        LeaseTurn { mut turn, recorded }: LeaseTurn,
        acquire: &LeaseAcquire,
        lease: &Lease,
        store_ms: u64,
        _is_first: bool,
    ) -> Result<bool, StoreError> {
        let grant = turn
            .fenced(GRANT)
            .bind(acquire.namespace.clone())
            .bind(i64::from(lease.worker))
            .bind(grant_id_bytes(lease.grant_id))
            .bind(acquire.holder.clone())
            .bind(signed(lease.not_before_ms))
            .bind(signed(lease.valid_until_ms))
            .bind(signed(store_ms))
            .bind(self.database.part())
            .bind(recorded);
        if let Some(granted) = turn.write(grant).await?.first() {
            turn.commit().await?;
            self.database.note_position(granted)?;
            return Ok(true);
        }
        let turn = turn.end().await?;
        self.database.check_fence(turn).await?;
        Ok(false)
    }

    async fn roll_back(&self, turn: LeaseTurn) -> Result<(), StoreError> {
        turn.turn.roll_back().await
    }

    async fn write_extension(
        &self,
        LeaseTurn { mut turn, recorded }: LeaseTurn,
        extend: &LeaseExtend,
        end_ms: u64,
    ) -> Result<Option<u64>, StoreError> {
        let update = turn
            .fenced(EXTEND)
            .bind(extend.namespace.clone())
            .bind(i64::from(extend.worker))
            .bind(grant_id_bytes(extend.grant_id))
            .bind(signed(end_ms))
            .bind(self.database.part())
            .bind(recorded);
        let updated = turn.write(update).await?;
        let Some(row) = updated.first() else {
            self.database.check_fence(turn).await?;
            return Ok(None);
        };
        turn.give_back();
        self.database.note_position(row)?;
        self.number(row, "valid_until_ms").map(Some)
    }

    async fn write_end(
        &self,
        LeaseTurn { mut turn, .. }: LeaseTurn,
        namespace: &str,
        worker: u32,
        grant_id: GrantId,
        end_ms: u64,
    ) -> Result<bool, StoreError> {
        let update = turn
            .fenced(END)
            .bind(namespace.to_owned())
            .bind(i64::from(worker))
            .bind(grant_id_bytes(grant_id))
            .bind(signed(end_ms));
        let updated = turn.write(update).await?;
        turn.give_back();
        Ok(!updated.is_empty())
    }
}

#[async_trait]
impl LeaseStore for PostgresLeases {
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
        let mut turn = self.tables.database.turn("forbidding a lease's extension").await?;
        let forbid = turn.fenced(FORBID).bind(namespace.to_owned()).bind(i64::from(worker));
        let rows = turn.write(forbid).await?;
        let Some(row) = rows.first() else {
            self.tables.database.check_fence(turn).await?;
            return Ok(None);
        };
        turn.give_back();
        self.tables.record(row).map(Some)
    }

    async fn leases(&self, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        let rows = self.tables.database.rows("listing leases", sqlx::query(LIST).bind(namespace.to_owned())).await?;
        rows.iter().map(|row| self.tables.record(row)).collect()
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        let list = sqlx::query("SELECT namespace FROM unalike_lease_namespace WHERE version <> 2 ORDER BY namespace");
        let rows = self.tables.database.rows("listing lease namespaces", list).await?;
        rows.iter().map(|row| row.try_get("namespace").map_err(|error| self.tables.unreadable(error))).collect()
    }

    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        schema::identity(&self.tables.database, LEASES).await.map(Some)
    }

    async fn clock_ms(&self) -> Result<Option<u64>, StoreError> {
        const NOW: &str = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms";
        let rows = self.tables.database.rows("reading the clock", sqlx::query(NOW)).await?;
        rows.first().map(|row| self.tables.number(row, "now_ms")).transpose()
    }

    /// Closes the connections, also for the store that these leases [share](crate::PostgresStore::leases) them with.
    async fn close(&self) {
        self.tables.database.close().await;
    }
}

/// Reads the row of all leases, or writes it into new tables, and records a longer horizon than any before: whoever
/// takes the server's place must know how far ahead a lease may reach.
async fn open_row(database: &Database, limits: LeaseLimits) -> Result<(), StoreError> {
    const DOING: &str = "reading unalike_store";
    const INSERT: &str = "INSERT INTO unalike_store (part, version, server, identity, max_horizon_ms) \
        VALUES ($1, $2, '', $3, $4) ON CONFLICT (part) DO NOTHING";
    const RAISE: &str =
        "UPDATE unalike_store SET max_horizon_ms = GREATEST(max_horizon_ms, $3) WHERE part = $2 AND {fence}";
    let read = || sqlx::query("SELECT version, max_horizon_ms FROM unalike_store WHERE part = $1").bind(LEASES);
    let mut rows = database.rows(DOING, read()).await?;
    if rows.is_empty() {
        let mut turn = database.turn(DOING).await?;
        let insert = sqlx::query(INSERT).bind(LEASES).bind(schema::VERSION).bind(StoreIdentity::random()?.to_string());
        turn.execute(insert.bind(signed(limits.max_horizon_ms))).await?;
        turn.give_back();
        // As somebody else may have written it, a moment before.
        rows = database.rows(DOING, read()).await?;
    }
    let row = rows.first().ok_or_else(|| damaged(database.at(), "unalike_store has no row of leases"))?;
    let version = number(database, row, "version")?;
    if version != schema::VERSION.cast_unsigned() {
        return Err(StoreError::refused(format!(
            "{}: its tables of leases have the version {version}, and this program serves {} alone: upgrade the program",
            database.at(),
            schema::VERSION
        )));
    }
    if number(database, row, "max_horizon_ms")? < limits.max_horizon_ms {
        let mut turn = database.turn(DOING).await?;
        let raise = turn.fenced(RAISE).bind(LEASES).bind(signed(limits.max_horizon_ms));
        if turn.execute(raise).await? == 0 {
            return Err(database.held_back(turn).await);
        }
        turn.give_back();
    }
    Ok(())
}

/// Has a server that took over grant nothing before all that the one before may have granted has ended, by this one's
/// clock, and with so much between the two clocks as a holder's may be off. Answers from when on each namespace grants
/// something, in Unix milliseconds.
///
/// A namespace may have been lost altogether: what is used for the first time here waits for the longest horizon that
/// any program came with.
pub(crate) async fn quarantine(turn: &mut Turn, database: &Database, limits: LeaseLimits) -> Result<u64, StoreError> {
    const NEW: &str = "UPDATE unalike_store SET max_horizon_ms = GREATEST(max_horizon_ms, $3), floor_ms = GREATEST(floor_ms, \
        floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + GREATEST(max_horizon_ms, $3) + $2) WHERE part = $1";
    const NAMESPACES: &str = "UPDATE unalike_lease_namespace SET floor_ms = GREATEST(floor_ms, \
        floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + max_horizon_ms + $1)";
    const END: &str = "SELECT GREATEST((SELECT floor_ms FROM unalike_store WHERE part = $1), \
        COALESCE((SELECT MAX(floor_ms) FROM unalike_lease_namespace), 0)) AS floor_ms";
    let (skew_ms, horizon_ms) = (signed(limits.max_skew_ms), signed(limits.max_horizon_ms));
    turn.execute(sqlx::query(NEW).bind(LEASES).bind(skew_ms).bind(horizon_ms)).await?;
    turn.execute(sqlx::query(NAMESPACES).bind(skew_ms)).await?;
    let rows = turn.rows(sqlx::query(END).bind(LEASES)).await?;
    let row = rows.first().ok_or_else(|| schema::no_row(database))?;
    number(database, row, "floor_ms")
}

/// The longest horizon that any program ever came with. The tables of leases are open.
pub(crate) async fn longest_horizon_ms(database: &Database) -> Result<u64, StoreError> {
    let read = sqlx::query("SELECT max_horizon_ms FROM unalike_store WHERE part = $1").bind(LEASES);
    let rows = database.rows("reading unalike_store", read).await?;
    number(database, rows.first().ok_or_else(|| schema::no_row(database))?, "max_horizon_ms")
}

/// [`SegmentStore::leave_leases`](unalike_storage::SegmentStore::leave_leases). Where nobody made the tables of leases,
/// and this user may not, nothing is leased in them, and the time that Redis is granted says where the leases are.
pub(crate) async fn leave(database: &Database, options: &PostgresOptions, namespace: &str) -> Result<(), StoreError> {
    const HAS_TABLE: &str = "SELECT 1 WHERE to_regclass('unalike_lease_namespace') IS NOT NULL \
        OR EXISTS (SELECT FROM unalike_store WHERE part = 'leases')";
    match PostgresLeases::open(database, options).await {
        Ok(leases) => leases.mark_namespace(namespace).await,
        Err(error @ StoreError::Refused { .. }) => {
            let has_table = !database.rows("looking for leases", sqlx::query(HAS_TABLE)).await?.is_empty();
            if has_table { Err(error) } else { Ok(()) }
        }
        Err(error) => Err(error),
    }
}

/// Refuses, in the transaction that is about to create it, a row of [time](is_kept_time) that is granted to leases or
/// clocks in Redis, for as long as [`quarantine`] lasts.
///
/// A server that took over may have lost such a row. What was granted under it cannot be known here, and none of it
/// ends later than the leases that are waited for. A database that was never adopted waits for nothing.
pub(crate) async fn check_new_time(turn: &mut Turn, database: &Database, name: &str) -> Result<(), StoreError> {
    const FLOOR: &str = "SELECT floor_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms \
        FROM unalike_store WHERE part = $1";
    if !is_kept_time(name) {
        return Ok(());
    }
    let rows = turn.rows(sqlx::query(FLOOR).bind(LEASES)).await?;
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
