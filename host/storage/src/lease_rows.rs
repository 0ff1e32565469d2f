//! Leases in a store of one row for each worker.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use unalike_core::{GrantId, Layout, Lease, Rfc3339};

use crate::{
    Candidates, Choice, ClockSteps, Clocks, LeaseAcquire, LeaseExtend, LeaseLimits, LeaseRecord, NamespaceBinding,
    StoreError, UsedWorker, choose_worker, nth_never_used, random_64, random_128, time_of_leases,
};

/// What a store says of a namespace and of one worker of it, at one instant.
#[derive(Clone, Debug)]
pub struct LeaseLook {
    /// The store's clock, in Unix milliseconds.
    pub store_ms: u64,
    /// What the namespace was bound to; none before its first use.
    pub binding: Option<NamespaceBinding>,
    /// The newest lease of the worker; none before its first one.
    pub lease: Option<LeaseRecord>,
}

impl LeaseLook {
    /// Checks that the namespace is bound to this layout, or to none yet.
    ///
    /// # Errors
    /// [`StoreError::LayoutMismatch`].
    pub fn check_layout(&self, namespace: &str, layout: Layout) -> Result<(), StoreError> {
        self.binding.map_or(Ok(()), |binding| binding.check_layout(namespace, layout))
    }

    /// Namespace and lease, if the lease runs under this grant id and may be extended and released. One that began
    /// before the end of a quarantine may be another's by now.
    fn running(&self, grant_id: GrantId) -> Option<(NamespaceBinding, Lease)> {
        let (binding, record) = (self.binding?, self.lease.as_ref()?);
        let is_running =
            record.lease.grant_id == grant_id && !record.is_final && record.lease.not_before_ms >= binding.floor_ms;
        is_running.then_some((binding, record.lease))
    }

    /// The lease of the chosen worker; or why it cannot be granted.
    fn grant<R>(&self, rows: &R, acquire: &LeaseAcquire, chosen: UsedWorker) -> Result<Lease, StoreError>
    where
        R: LeaseRows + ?Sized,
    {
        let namespace = acquire.namespace.as_str();
        let damaged = |what: &str| StoreError::corrupt(format!("{}: {what}; find out who changed it", rows.at()));
        let binding = self
            .binding
            .ok_or_else(|| damaged(&format!("the lease namespace {namespace:?} was not bound: {}", R::UNBOUND)))?;
        binding.check_layout(namespace, acquire.layout)?;
        binding.check_quarantine(namespace, self.store_ms)?;
        if chosen.worker > binding.layout.worker_max() {
            let what = format!("{namespace:?} has leased the worker {}, which its layout has not", chosen.worker);
            return Err(damaged(&what));
        }
        let clocks = Clocks { holder_ms: acquire.now_ms, store_ms: self.store_ms };
        let interval = binding.grant(chosen.end_ms, clocks, acquire.horizon_ms)?;
        Ok(Lease {
            worker: chosen.worker,
            grant_id: GrantId(random_128()?),
            not_before_ms: interval.start,
            valid_until_ms: interval.end,
        })
    }
}

/// How a database with a row for each worker reads and changes its rows.
///
/// The order of the steps is the same in every such store, and is said here once: a holder's clock is looked at before
/// the request waits for locks; a worker is chosen under the lock of its namespace; a request that is refused binds
/// nothing; and the statement that writes states the rule again, so that it holds whatever was read before.
/// [`LeaseStore`](crate::LeaseStore) calls the methods that are given.
#[async_trait]
pub trait LeaseRows: Send + Sync {
    /// A connection in use. One that is dropped is closed, and what it began is rolled back.
    type Turn: Send;

    /// Why a new namespace may have stayed unbound, for messages: the one row is missing that all are bound from.
    const UNBOUND: &'static str;

    /// The place of the store, for messages.
    fn at(&self) -> &str;

    /// How far clocks and leases may reach.
    fn limits(&self) -> LeaseLimits;

    /// Where the store's clock was set, as far as this process has seen.
    fn steps(&self) -> &ClockSteps;

    /// A connection for some statements.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`], and what is wrong with the server.
    async fn turn(&self, doing: &'static str) -> Result<Self::Turn, StoreError>;

    /// Takes back a connection on which nothing is under way.
    fn give_back(&self, turn: Self::Turn);

    /// Takes back a connection after a write that changed nothing; says why, where the server is to blame.
    ///
    /// # Errors
    /// [`StoreError::Refused`] on another server than the one that is recorded, and any error of the connection.
    async fn check_server(&self, turn: Self::Turn) -> Result<(), StoreError>;

    /// Reads the server's clock, the namespace and the worker, in one statement.
    ///
    /// # Errors
    /// [`StoreError::LeasesElsewhere`] where the namespace's row is the mark of a Redis, and any error of the
    /// connection.
    async fn look_at_rows(&self, turn: &mut Self::Turn, namespace: &str, worker: u32) -> Result<LeaseLook, StoreError>;

    /// Whether time was granted under this tag of [Redis' leases](crate::time_of_leases), as far as the tables of
    /// unalike's own say so.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn has_granted_time(&self, turn: &mut Self::Turn, tag: &str) -> Result<bool, StoreError>;

    /// Begins a transaction in which acquires in this namespace wait for each other. A `new` namespace is bound, unless
    /// somebody else was quicker.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn lock_namespace(
        &self,
        turn: &mut Self::Turn,
        namespace: &str,
        new: Option<NamespaceBinding>,
    ) -> Result<(), StoreError>;

    /// Of the leases of this holder that ended by `ended_ms`, the one that ended last.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn previous_row(
        &self,
        turn: &mut Self::Turn,
        namespace: &str,
        holder: &str,
        ended_ms: u64,
    ) -> Result<Option<UsedWorker>, StoreError>;

    /// Of all workers, the one whose newest lease ends first, and how many workers there are.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn oldest_row(&self, turn: &mut Self::Turn, namespace: &str)
    -> Result<(Option<UsedWorker>, u64), StoreError>;

    /// All workers, ascending.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn worker_rows(&self, turn: &mut Self::Turn, namespace: &str) -> Result<Vec<u32>, StoreError>;

    /// All newest leases.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn lease_rows(&self, turn: &mut Self::Turn, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError>;

    /// Writes a lease that begins at the recorded end of its worker or later, and commits; false if somebody changed
    /// the worker's row since it was read. `is_first` if it had none.
    ///
    /// # Errors
    /// As [`LeaseRows::check_server`], and any error of the connection.
    async fn write_lease(
        &self,
        turn: Self::Turn,
        acquire: &LeaseAcquire,
        lease: &Lease,
        store_ms: u64,
        is_first: bool,
    ) -> Result<bool, StoreError>;

    /// Rolls back.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn roll_back(&self, turn: Self::Turn) -> Result<(), StoreError>;

    /// Moves the end of a running lease up, and answers the end; none if the lease does not run any more.
    ///
    /// # Errors
    /// As [`LeaseRows::check_server`], and any error of the connection.
    async fn write_extension(
        &self,
        turn: Self::Turn,
        extend: &LeaseExtend,
        end_ms: u64,
    ) -> Result<Option<u64>, StoreError>;

    /// Fixes the end of a running lease; false if it does not run any more.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn write_end(
        &self,
        turn: Self::Turn,
        namespace: &str,
        worker: u32,
        grant_id: GrantId,
        end_ms: u64,
    ) -> Result<bool, StoreError>;

    /// [`LeaseStore::check_namespace`](crate::LeaseStore::check_namespace).
    ///
    /// # Errors
    /// As [`LeaseStore::check_namespace`](crate::LeaseStore::check_namespace).
    async fn check_binding(&self, namespace: &str, layout: Layout) -> Result<(), StoreError> {
        let mut turn = self.turn("looking at a namespace of leases").await?;
        let seen = look(self, &mut turn, namespace, 0).await?;
        self.give_back(turn);
        seen.check_layout(namespace, layout)
    }

    /// [`LeaseStore::acquire`](crate::LeaseStore::acquire).
    ///
    /// # Errors
    /// As [`LeaseStore::acquire`](crate::LeaseStore::acquire).
    async fn acquire_row(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError> {
        acquire.validate()?;
        let (namespace, asked) = (acquire.namespace.as_str(), Instant::now());
        let preferred = acquire.preferred_worker.unwrap_or_default();
        let mut turn = self.turn("acquiring a worker").await?;
        let before = look(self, &mut turn, namespace, preferred).await?;
        let checked = check_clock(self.limits(), acquire.now_ms, before.store_ms, asked.elapsed());
        let checked = checked.and_then(|()| before.check_layout(namespace, acquire.layout));
        let new = checked.and_then(|()| match before.binding {
            Some(_) => Ok(None),
            None => NamespaceBinding::new(acquire.layout, self.limits()).map(Some),
        });
        let new = match new {
            Ok(new) => new,
            Err(refused) => {
                self.give_back(turn);
                return Err(refused);
            }
        };
        self.lock_namespace(&mut turn, namespace, new).await?;
        let seen = look(self, &mut turn, namespace, preferred).await?;
        if self.has_granted_time(&mut turn, &time_of_leases(namespace)?).await? {
            self.roll_back(turn).await?;
            return Err(StoreError::leases_in_redis(namespace, before.binding.is_some()));
        }
        let chosen = choose(self, &mut turn, acquire, &seen).await?;
        let granted = chosen.and_then(|chosen| Ok((chosen.end_ms == 0, seen.grant(self, acquire, chosen)?)));
        let (is_first, lease) = match granted {
            Ok(granted) => granted,
            Err(refused) => {
                // A request that is refused binds nothing.
                self.roll_back(turn).await?;
                return Err(refused);
            }
        };
        if self.write_lease(turn, acquire, &lease, seen.store_ms, is_first).await? {
            return Ok(lease);
        }
        // Its holder extended it since it was looked at.
        let what = format!("worker {} of {namespace:?} was prolonged a moment ago: try again", lease.worker);
        Err(StoreError::unavailable(what))
    }

    /// [`LeaseStore::extend`](crate::LeaseStore::extend).
    ///
    /// # Errors
    /// As [`LeaseStore::extend`](crate::LeaseStore::extend).
    async fn extend_row(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        extend.validate()?;
        let (namespace, asked) = (extend.namespace.as_str(), Instant::now());
        let lost = || StoreError::LeaseLost { namespace: namespace.to_owned(), worker: extend.worker };
        let mut turn = self.turn("extending a lease").await?;
        let seen = look(self, &mut turn, namespace, extend.worker).await?;
        let checked = check_clock(self.limits(), extend.now_ms, seen.store_ms, asked.elapsed());
        let checked = checked.and_then(|()| seen.check_layout(namespace, extend.layout));
        let (binding, lease) = match checked.and_then(|()| seen.running(extend.grant_id).ok_or_else(lost)) {
            Ok(running) => running,
            Err(refused) => {
                // Another server may know nothing of the lease.
                self.check_server(turn).await?;
                return Err(refused);
            }
        };
        let end_ms = binding.extended_end_ms(lease.valid_until_ms, seen.store_ms, extend.horizon_ms);
        // Released, or granted to another since it was looked at.
        let valid_until_ms = self.write_extension(turn, extend, end_ms).await?.ok_or_else(lost)?;
        if valid_until_ms < end_ms {
            let what = format!("an extension to {} gave {}", Rfc3339(end_ms), Rfc3339(valid_until_ms));
            return Err(StoreError::corrupt(format!("{}: {what}; find out who changed it", self.at())));
        }
        Ok(Lease { valid_until_ms, ..lease })
    }

    /// [`LeaseStore::release`](crate::LeaseStore::release).
    ///
    /// # Errors
    /// As [`LeaseStore::release`](crate::LeaseStore::release).
    async fn release_row(
        &self,
        namespace: &str,
        worker: u32,
        grant_id: GrantId,
        end_ms: u64,
    ) -> Result<bool, StoreError> {
        let mut turn = self.turn("releasing a lease").await?;
        let seen = look(self, &mut turn, namespace, worker).await?;
        let end_ms = seen.running(grant_id).and_then(|(binding, lease)| binding.released_end_ms(&lease, end_ms));
        let Some(end_ms) = end_ms else {
            self.give_back(turn);
            return Ok(false);
        };
        // An extension that came in between only moved the end further away.
        self.write_end(turn, namespace, worker, grant_id, end_ms).await
    }
}

/// [`LeaseRows::look_at_rows`], by which the process learns of steps of the store's clock.
async fn look<R>(rows: &R, turn: &mut R::Turn, namespace: &str, worker: u32) -> Result<LeaseLook, StoreError>
where
    R: LeaseRows + ?Sized,
{
    let asked = Instant::now();
    let seen = rows.look_at_rows(turn, namespace, worker).await?;
    rows.steps().read(asked, seen.store_ms);
    Ok(seen)
}

/// Refuses a holder's clock that is off. It is looked at before the request waits for locks: afterwards every holder's
/// clock would look slow.
fn check_clock(limits: LeaseLimits, holder_ms: u64, store_ms: u64, waited: Duration) -> Result<(), StoreError> {
    // While the request waited for a connection and for this answer, the holder's clock went on.
    let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
    let nearest_ms = store_ms.clamp(holder_ms, holder_ms.saturating_add(waited_ms));
    limits.check_clocks(Clocks { holder_ms: nearest_ms, store_ms }).or_else(|_| {
        // As the holder sent it.
        limits.check_clocks(Clocks { holder_ms, store_ms })
    })
}

/// What there is to choose from, under the lock of the namespace.
async fn candidates<R>(
    rows: &R,
    turn: &mut R::Turn,
    acquire: &LeaseAcquire,
    seen: &LeaseLook,
) -> Result<Candidates, StoreError>
where
    R: LeaseRows + ?Sized,
{
    let preferred = acquire.preferred_worker.map(|worker| {
        let end_ms = seen.lease.as_ref().map_or(0, |record| record.lease.valid_until_ms);
        UsedWorker { worker, end_ms }
    });
    let previous = match acquire.holder.as_str() {
        "" => None,
        holder => rows.previous_row(turn, &acquire.namespace, holder, seen.store_ms).await?,
    };
    let (oldest, used) = rows.oldest_row(turn, &acquire.namespace).await?;
    Ok(Candidates { workers: acquire.layout.workers(), used, preferred, previous, oldest })
}

/// The worker that the rule chooses, with the greatest end recorded for it; or why there is none.
async fn choose<R>(
    rows: &R,
    turn: &mut R::Turn,
    acquire: &LeaseAcquire,
    seen: &LeaseLook,
) -> Result<Result<UsedWorker, StoreError>, StoreError>
where
    R: LeaseRows + ?Sized,
{
    let namespace = acquire.namespace.as_str();
    let exhausted = |free_at_ms| StoreError::WorkersExhausted {
        namespace: namespace.to_owned(),
        workers: acquire.layout.workers(),
        free_at_ms,
    };
    let max_horizon_ms = seen.binding.map_or(rows.limits().max_horizon_ms, |binding| binding.max_horizon_ms);
    let expiry = rows.steps().expiry(seen.store_ms, max_horizon_ms);
    if !expiry.is_plain() {
        let used = rows.lease_rows(turn, namespace).await?;
        let used = used.iter().map(|LeaseRecord { lease, holder, .. }| {
            (UsedWorker { worker: lease.worker, end_ms: lease.valid_until_ms }, holder.as_str())
        });
        return Ok(choose_worker(acquire, expiry, random_64()?, used));
    }
    let candidates = candidates(rows, turn, acquire, seen).await?;
    Ok(match candidates.choose(expiry, random_64()?) {
        Choice::Worker(used) => Ok(used),
        Choice::Exhausted { free_at_ms } => Err(exhausted(free_at_ms)),
        Choice::NeverUsed { nth } => {
            let worker = nth_never_used(nth, rows.worker_rows(turn, namespace).await?);
            worker.map(|worker| UsedWorker { worker, end_ms: 0 }).ok_or_else(|| exhausted(seen.store_ms))
        }
    })
}
