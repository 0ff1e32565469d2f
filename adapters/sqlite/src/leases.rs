//! The lease port on SQLite: one row per worker of a namespace, each change of which is one statement.
//!
//! What decides a grant is read before, in one snapshot, and without the right to write. What makes it safe is part of
//! the statement that grants: the recorded end of the worker is not after the beginning of the interval. Whoever was
//! slower than another reads again.

use std::time::Instant;

use async_trait::async_trait;
use sqlx::sqlite::SqliteRow;
use sqlx::{Sqlite, SqliteConnection, Transaction};
use unalike_storage::{
    Candidates, Choice, Clocks, Expiry, FieldOrder, GrantId, Layout, LayoutFields, Lease, LeaseAcquire, LeaseExtend,
    LeaseRecord, LeaseStore, LeasesKept, NamespaceBinding, StoreError, StoreIdentity, UsedWorker, choose_worker,
    nth_never_used, random_64, random_128, time_of_leases,
};

use crate::error::{damaged, read_error};
use crate::{SqliteStore, segments};

/// The store's clock, in Unix milliseconds, without a floating point number on the way. SQLite's clock counts whole
/// milliseconds, so `%f`, which prints three decimals, rounds nothing, and 'now' is one instant within a statement.
const CLOCK: &str = include_str!("sql/clock.sql");

const BIND_NAMESPACE: &str = include_str!("sql/bind_namespace.sql");

/// The lease of this holder that ended last.
const PREVIOUS: &str = include_str!("sql/previous.sql");

const OLDEST: &str = include_str!("sql/oldest.sql");

/// The condition has the rule of all leases too: no interval begins before the recorded end.
const GRANT: &str = include_str!("sql/grant.sql");

/// Moves the end of a running lease up.
const EXTEND: &str = include_str!("sql/extend.sql");

/// Ends a running lease whose end is this one.
const END: &str = include_str!("sql/end.sql");

const FORBID: &str = include_str!("sql/forbid.sql");

/// With the floor of leases, below which the grant is refused.
const NAMESPACE: &str = include_str!("sql/namespace.sql");

const LEASE: &str = "SELECT namespace, worker, grant_id, holder, not_before_ms, valid_until_ms, acquired_ms, released FROM lease \
    WHERE namespace = ?1 AND worker = ?2";

const LEASES: &str = "SELECT namespace, worker, grant_id, holder, not_before_ms, valid_until_ms, acquired_ms, released FROM lease \
    WHERE namespace = ?1 ORDER BY worker";

/// How often a request is tried that others were quicker than. Of those that try at once one gets on each time.
const RACES_MAX: u32 = 256;

impl SqliteStore {
    /// The store's clock, unless the holder's is too far off.
    async fn check_clock(&self, holder_ms: u64) -> Result<u64, StoreError> {
        let store_ms = self.read_clock().await?;
        self.limits.check_clocks(Clocks { holder_ms, store_ms })?;
        Ok(store_ms)
    }

    /// The store's clock.
    pub(crate) async fn read_clock(&self) -> Result<u64, StoreError> {
        let asked = Instant::now();
        let now = sqlx::query_scalar(CLOCK).fetch_one(self.readers()?).await;
        let store_ms = self.clock_ms(now)?;
        self.steps.read(asked, store_ms);
        Ok(store_ms)
    }

    /// A transaction that only reads, all of it at one instant. It keeps nobody from writing.
    async fn snapshot(&self) -> Result<Transaction<'static, Sqlite>, StoreError> {
        let began = self.readers()?.begin().await;
        began.map_err(|error| read_error(&self.path, "beginning to read", error))
    }

    async fn end_snapshot(&self, snapshot: Transaction<'_, Sqlite>) -> Result<(), StoreError> {
        snapshot.rollback().await.map_err(|error| read_error(&self.path, "reading", error))
    }

    fn clock_ms(&self, now: Result<i64, sqlx::Error>) -> Result<u64, StoreError> {
        let now_ms = now.map_err(|error| read_error(&self.path, "reading the clock", error))?;
        u64::try_from(now_ms)
            .map_err(|_| StoreError::unavailable(format!("the store's clock is before 1970 ({now_ms} ms): set it")))
    }

    async fn find_namespace(
        &self,
        transaction: &mut SqliteConnection,
        namespace: &str,
    ) -> Result<Option<NamespaceBinding>, StoreError> {
        let select = sqlx::query(NAMESPACE).bind(namespace);
        let row = select.fetch_optional(transaction).await;
        let row = row.map_err(|error| read_error(&self.path, "reading a namespace", error))?;
        let Some(row) = row else { return Ok(None) };
        if self.number(&row, "timestamp_bits")? == 0 {
            return Err(StoreError::leases_elsewhere(namespace, LeasesKept::InRedis));
        }
        self.binding(&row).map(Some)
    }

    /// Writes the mark that Redis has the leases of a namespace, unless somebody has bound it here.
    pub(crate) async fn mark_namespace(&self, namespace: &str) -> Result<(), StoreError> {
        let mut mark = sqlx::query(BIND_NAMESPACE).bind(namespace);
        for (name, figure) in NamespaceBinding::figures_in_redis() {
            mark = match name {
                "sequence_first" => mark.bind("worker-first"),
                "floor_ms" | "version" => continue,
                _ => mark.bind(signed_ms(figure)?),
            };
        }
        self.write("noting that Redis keeps leases", mark).await?;
        let connection = self.readers()?.acquire().await;
        let mut connection = connection.map_err(|error| read_error(&self.path, "reading a namespace", error))?;
        match self.find_namespace(&mut connection, namespace).await {
            Err(StoreError::LeasesElsewhere { .. }) => Ok(()),
            Ok(_) => Err(StoreError::leases_elsewhere(namespace, LeasesKept::InStore)),
            Err(error) => Err(error),
        }
    }

    /// Whether time was granted to leases in Redis under this tag.
    async fn has_granted_time(&self, transaction: &mut SqliteConnection, tag: &str) -> Result<bool, StoreError> {
        let found = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM tag WHERE tag = ?1)").bind(tag);
        let found = found.fetch_one(transaction).await;
        found.map_err(|error| read_error(&self.path, "looking for time that was granted to Redis", error))
    }

    fn binding(&self, row: &SqliteRow) -> Result<NamespaceBinding, StoreError> {
        let bits = |column| -> Result<u8, StoreError> {
            u8::try_from(self.number(row, column)?).map_err(|_| damaged(&self.path, "a layout has too many bits"))
        };
        let fields = LayoutFields {
            timestamp_bits: bits("timestamp_bits")?,
            datacenter_bits: bits("datacenter_bits")?,
            worker_bits: bits("worker_bits")?,
            sequence_bits: bits("sequence_bits")?,
            order: match self.column(row, "field_order")? {
                "sequence-first" => FieldOrder::SequenceFirst,
                _ => FieldOrder::WorkerFirst,
            },
            epoch_ms: self.number(row, "epoch_ms")?,
            tick_ms: u32::try_from(self.number(row, "tick_ms")?)
                .map_err(|_| damaged(&self.path, "a layout has too long a tick"))?,
        };
        let layout = Layout::new(fields).map_err(|error| damaged(&self.path, &error.to_string()))?;
        let (max_horizon_ms, floor_ms) = (self.number(row, "max_horizon_ms")?, self.number(row, "floor_ms")?);
        Ok(NamespaceBinding { layout, max_horizon_ms, floor_ms })
    }

    /// Binds a namespace at its first use, unless somebody else does.
    async fn bind_namespace(&self, namespace: &str, binding: &NamespaceBinding) -> Result<(), StoreError> {
        let fields = binding.layout.fields();
        let bind = sqlx::query(BIND_NAMESPACE)
            .bind(namespace)
            .bind(fields.timestamp_bits)
            .bind(fields.datacenter_bits)
            .bind(fields.worker_bits)
            .bind(fields.sequence_bits)
            .bind(match fields.order {
                FieldOrder::WorkerFirst => "worker-first",
                FieldOrder::SequenceFirst => "sequence-first",
            })
            .bind(signed_ms(fields.epoch_ms)?)
            .bind(fields.tick_ms)
            .bind(signed_ms(binding.max_horizon_ms)?);
        self.write("binding a namespace", bind).await.map(drop)
    }

    async fn candidates(
        &self,
        transaction: &mut SqliteConnection,
        acquire: &LeaseAcquire,
        store_ms: u64,
    ) -> Result<Candidates, StoreError> {
        let failed = |error| read_error(&self.path, "looking for a worker", error);
        let namespace = acquire.namespace.as_str();
        let mut candidates = Candidates { workers: acquire.layout.workers(), ..Candidates::default() };
        if let Some(worker) = acquire.preferred_worker {
            let row = self.find_lease(&mut *transaction, namespace, worker).await?;
            let end_ms = row.map_or(0, |row| row.lease.valid_until_ms);
            candidates.preferred = Some(UsedWorker { worker, end_ms });
        }
        if !acquire.holder.is_empty() {
            let select = sqlx::query(PREVIOUS).bind(namespace).bind(&acquire.holder).bind(signed_ms(store_ms)?);
            let row = select.fetch_optional(&mut *transaction).await.map_err(failed)?;
            candidates.previous = row.map(|row| self.used_worker(&row)).transpose()?;
        }
        let select = sqlx::query(OLDEST).bind(namespace);
        let row = select.fetch_optional(&mut *transaction).await.map_err(failed)?;
        candidates.oldest = row.map(|row| self.used_worker(&row)).transpose()?;

        let count = sqlx::query_scalar("SELECT count(*) FROM lease WHERE namespace = ?1").bind(namespace);
        let used: i64 = count.fetch_one(transaction).await.map_err(failed)?;
        candidates.used = used.cast_unsigned();
        Ok(candidates)
    }

    fn used_worker(&self, row: &SqliteRow) -> Result<UsedWorker, StoreError> {
        Ok(UsedWorker { worker: self.worker(row)?, end_ms: self.number(row, "valid_until_ms")? })
    }

    fn worker(&self, row: &SqliteRow) -> Result<u32, StoreError> {
        u32::try_from(self.number(row, "worker")?).map_err(|_| damaged(&self.path, "a worker id is too great"))
    }

    /// The worker that the rule chooses, with the greatest end recorded for it.
    async fn choose(
        &self,
        transaction: &mut SqliteConnection,
        acquire: &LeaseAcquire,
        expiry: Expiry,
    ) -> Result<UsedWorker, StoreError> {
        let namespace = acquire.namespace.as_str();
        if !expiry.is_plain() {
            let select = sqlx::query(LEASES).bind(namespace);
            let rows = select.fetch_all(transaction).await;
            let rows = rows.map_err(|error| read_error(&self.path, "looking for a worker", error))?;
            let used: Vec<_> = rows.iter().map(|row| self.record(row)).collect::<Result<_, _>>()?;
            let used = used.iter().map(|LeaseRecord { lease, holder, .. }| {
                (UsedWorker { worker: lease.worker, end_ms: lease.valid_until_ms }, holder.as_str())
            });
            return choose_worker(acquire, expiry, random_64()?, used);
        }
        let store_ms = expiry.clock_ms();
        let exhausted = |free_at_ms| StoreError::WorkersExhausted {
            namespace: namespace.to_owned(),
            workers: acquire.layout.workers(),
            free_at_ms,
        };
        let candidates = self.candidates(&mut *transaction, acquire, store_ms).await?;
        let random = random_64()?;
        match candidates.choose(expiry, random) {
            Choice::Worker(used) => Ok(used),
            Choice::Exhausted { free_at_ms } => Err(exhausted(free_at_ms)),
            Choice::NeverUsed { nth } => {
                let select = sqlx::query_scalar("SELECT worker FROM lease WHERE namespace = ?1 ORDER BY worker");
                let used: Result<Vec<u32>, _> = select.bind(namespace).fetch_all(transaction).await;
                let used = used.map_err(|error| read_error(&self.path, "looking for a worker", error))?;
                let worker = nth_never_used(nth, used).ok_or_else(|| exhausted(store_ms))?;
                Ok(UsedWorker { worker, end_ms: 0 })
            }
        }
    }

    async fn find_lease(
        &self,
        transaction: &mut SqliteConnection,
        namespace: &str,
        worker: u32,
    ) -> Result<Option<LeaseRecord>, StoreError> {
        let select = sqlx::query(LEASE);
        let row = select.bind(namespace).bind(worker).fetch_optional(transaction).await;
        let row = row.map_err(|error| read_error(&self.path, "reading a lease", error))?;
        row.map(|row| self.record(&row)).transpose()
    }

    fn record(&self, row: &SqliteRow) -> Result<LeaseRecord, StoreError> {
        let grant_id: &[u8] = self.column(row, "grant_id")?;
        let grant_id = grant_id.try_into().map_err(|_| damaged(&self.path, "a grant id has not 16 bytes"))?;
        let lease = Lease {
            worker: self.worker(row)?,
            grant_id: GrantId(u128::from_be_bytes(grant_id)),
            not_before_ms: self.number(row, "not_before_ms")?,
            valid_until_ms: self.number(row, "valid_until_ms")?,
        };
        Ok(LeaseRecord {
            lease,
            holder: self.column(row, "holder")?,
            acquired_ms: self.number(row, "acquired_ms")?,
            is_final: self.column(row, "released")?,
        })
    }

    /// Grants a lease, if nobody else was quicker.
    async fn try_acquire(&self, acquire: &LeaseAcquire, store_ms: u64) -> Result<Option<Lease>, StoreError> {
        let namespace = acquire.namespace.as_str();
        let mut snapshot = self.snapshot().await?;
        let bound = self.find_namespace(&mut snapshot, namespace).await?;
        if self.has_granted_time(&mut snapshot, &time_of_leases(namespace)?).await? {
            return Err(StoreError::leases_in_redis(namespace, bound.is_some()));
        }
        let binding = match &bound {
            Some(binding) => {
                binding.check_layout(namespace, acquire.layout)?;
                binding.check_quarantine(namespace, store_ms)?;
                *binding
            }
            None => NamespaceBinding::new(acquire.layout, self.limits)?,
        };
        let expiry = self.steps.expiry(store_ms, binding.max_horizon_ms);
        let chosen = self.choose(&mut snapshot, acquire, expiry).await?;
        self.end_snapshot(snapshot).await?;

        let clocks = Clocks { holder_ms: acquire.now_ms, store_ms };
        let interval = binding.grant(chosen.end_ms, clocks, acquire.horizon_ms)?;
        let lease = Lease {
            worker: chosen.worker,
            grant_id: GrantId(random_128()?),
            not_before_ms: interval.start,
            valid_until_ms: interval.end,
        };
        if bound.is_none() {
            self.bind_namespace(namespace, &binding).await?;
            // What it is bound to now is what somebody else said, perhaps.
            return Ok(None);
        }
        let grant = sqlx::query(GRANT)
            .bind(namespace)
            .bind(lease.worker)
            .bind(grant_id_bytes(lease.grant_id))
            .bind(&acquire.holder)
            .bind(signed_ms(lease.not_before_ms)?)
            .bind(signed_ms(lease.valid_until_ms)?)
            .bind(signed_ms(store_ms)?);
        let granted = self.write("granting a lease", grant).await?;
        if granted.is_empty() {
            self.check_tables().await?;
        }
        Ok((!granted.is_empty()).then_some(lease))
    }

    /// Somebody else was quicker each time.
    fn raced(&self, doing: &str) -> StoreError {
        let what =
            format!("{doing}, in {}: other programs were quicker {RACES_MAX} times: try again", self.path.display());
        StoreError::unavailable(what)
    }
}

/// The lease, if it runs under this grant id and may be extended and released.
fn running(record: LeaseRecord, grant_id: GrantId) -> Option<Lease> {
    (record.lease.grant_id == grant_id && !record.is_final).then_some(record.lease)
}

#[async_trait]
impl LeaseStore for SqliteStore {
    async fn check_namespace(&self, namespace: &str, layout: Layout) -> Result<(), StoreError> {
        let connection = self.readers()?.acquire().await;
        let mut connection = connection.map_err(|error| read_error(&self.path, "reading a namespace", error))?;
        let bound = self.find_namespace(&mut connection, namespace).await?;
        bound.map_or(Ok(()), |binding| binding.check_layout(namespace, layout))
    }

    async fn acquire(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError> {
        acquire.validate()?;
        let store_ms = self.check_clock(acquire.now_ms).await?;
        for _ in 0..RACES_MAX {
            if let Some(lease) = self.try_acquire(acquire, store_ms).await? {
                return Ok(lease);
            }
        }
        Err(self.raced("granting a lease"))
    }

    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        extend.validate()?;
        let store_ms = self.check_clock(extend.now_ms).await?;
        let namespace = extend.namespace.as_str();
        let lost = || StoreError::LeaseLost { namespace: namespace.to_owned(), worker: extend.worker };
        let mut snapshot = self.snapshot().await?;
        let binding = self.find_namespace(&mut snapshot, namespace).await?.ok_or_else(lost)?;
        self.end_snapshot(snapshot).await?;
        binding.check_layout(namespace, extend.layout)?;
        let end_ms = binding.extended_end_ms(0, store_ms, extend.horizon_ms);
        let update = sqlx::query(EXTEND)
            .bind(namespace)
            .bind(extend.worker)
            .bind(grant_id_bytes(extend.grant_id))
            .bind(signed_ms(end_ms)?);
        let Some(extended) = self.write("extending a lease", update).await?.pop() else {
            self.check_tables().await?;
            return Err(lost());
        };
        Ok(self.record(&extended)?.lease)
    }

    async fn release(&self, namespace: &str, worker: u32, grant_id: GrantId, end_ms: u64) -> Result<bool, StoreError> {
        for _ in 0..RACES_MAX {
            let mut snapshot = self.snapshot().await?;
            let binding = self.find_namespace(&mut snapshot, namespace).await?;
            let record = self.find_lease(&mut snapshot, namespace, worker).await?;
            self.end_snapshot(snapshot).await?;
            let Some(lease) = record.and_then(|record| running(record, grant_id)) else { return Ok(false) };
            let Some(end_ms) = binding.and_then(|binding| binding.released_end_ms(&lease, end_ms)) else {
                return Ok(false);
            };
            let end = sqlx::query(END)
                .bind(namespace)
                .bind(worker)
                .bind(grant_id_bytes(grant_id))
                .bind(signed_ms(end_ms)?)
                .bind(signed_ms(lease.valid_until_ms)?);
            if !self.write("releasing a lease", end).await?.is_empty() {
                return Ok(true);
            }
        }
        Err(self.raced("releasing a lease"))
    }

    async fn leases(&self, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        let select = sqlx::query(LEASES).bind(namespace);
        let rows = select.fetch_all(self.readers()?).await;
        let rows = rows.map_err(|error| read_error(&self.path, "listing leases", error))?;
        rows.iter().map(|row| self.record(row)).collect()
    }

    async fn forbid_extension(&self, namespace: &str, worker: u32) -> Result<Option<LeaseRecord>, StoreError> {
        let forbid = sqlx::query(FORBID).bind(namespace).bind(worker);
        let row = self.write("forbidding a lease's extension", forbid).await?.pop();
        row.map(|row| self.record(&row)).transpose()
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        let select = sqlx::query_scalar("SELECT namespace FROM namespace WHERE timestamp_bits > 0 ORDER BY namespace");
        let names = select.fetch_all(self.readers()?).await;
        names.map_err(|error| read_error(&self.path, "listing lease namespaces", error))
    }

    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        segments::identity(self).await.map(Some)
    }

    async fn close(&self) {
        Self::close(self).await;
    }
}

fn grant_id_bytes(grant_id: GrantId) -> Vec<u8> {
    grant_id.0.to_be_bytes().to_vec()
}

/// An instant or a duration as a column holds it; those beyond are 292 million years away.
fn signed_ms(ms: u64) -> Result<i64, StoreError> {
    i64::try_from(ms).map_err(|_| StoreError::refused(format!("{ms} ms is too great a time")))
}
