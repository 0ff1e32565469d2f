//! The lease port: worker ids, each over an interval of timestamps.

use async_trait::async_trait;
use unalike_core::{GrantId, Layout, Lease};

use crate::{StoreError, StoreIdentity};

/// Grants worker ids over intervals of timestamps that never overlap for one worker of one namespace.
///
/// - *Bounds.* A lease never starts before the greatest end ever recorded for its worker, whatever any clock says;
///   expiry only chooses which worker is offered. Within that it starts at the present (the earlier of the holder's
///   and the store's clock), so that it can be used at once. `valid_until_ms` is never further ahead of the store's own
///   clock than the namespace's `max_horizon_ms`, a constant that the store keeps from the namespace's first use; a
///   longer horizon is cut to it. Both bounds lie on the layout's tick grid, and no tick belongs to two leases.
/// - *Names.* Each successful acquire has a `grant_id` of its own, and extend and release match (worker, grant id).
///   Acquire is never idempotent: a lost answer is an abandoned interval.
/// - *Layout.* A namespace is bound to the first layout that it is used with; another is refused.
/// - *End.* Only a release lowers a recorded end, by (worker, grant id), once, and never below the lease's own start:
///   what lies before belongs to predecessors. It fixes the end: the lease is not extended afterwards.
/// - *Doubt.* A store that may have forgotten leases grants none before the end of its quarantine
///   ([`NamespaceBinding::floor_ms`]).
/// - *Steps.* No lease ends by a step of the store's clock: one that was running is offered to nobody for as long as it
///   would have run without it ([`ClockSteps`](crate::ClockSteps)).
/// - *Clock.* A holder whose clock is further than the store's limit from the store's own is refused.
///
/// [`NamespaceBinding`], [`Candidates`] and [`LeaseLimits`] hold these rules as pure functions for every store.
///
/// [`NamespaceBinding`]: crate::NamespaceBinding
/// [`NamespaceBinding::floor_ms`]: crate::NamespaceBinding::floor_ms
/// [`Candidates`]: crate::Candidates
/// [`LeaseLimits`]: crate::LeaseLimits
///
/// ```
/// use unalike_storage::{Layout, Lease, LeaseAcquire, LeaseStore, StoreError};
///
/// async fn a_worker_for_a_minute(store: &dyn LeaseStore, now_ms: u64) -> Result<Lease, StoreError> {
///     let acquire = LeaseAcquire {
///         namespace: "default".to_owned(),
///         layout: Layout::TWITTER,
///         holder: "host-a:8080".to_owned(),
///         preferred_worker: None,
///         now_ms,
///         horizon_ms: 60_000,
///     };
///     store.acquire(&acquire).await
/// }
/// ```
#[async_trait]
pub trait LeaseStore: Send + Sync + 'static {
    /// Grants a worker: the preferred one when it is free, else the holder's previous one when its interval has ended,
    /// else one that was never used, at random, else the one that ended longest ago.
    ///
    /// # Errors
    /// [`StoreError::WorkersExhausted`], [`StoreError::LayoutMismatch`], [`StoreError::ClockSkew`],
    /// [`StoreError::Quarantined`], [`StoreError::Refused`] for a request that [`LeaseAcquire::validate`] refuses, and
    /// any error of the connection.
    async fn acquire(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError>;

    /// Moves the end of a running lease to `horizon_ms` beyond the store's present, never back.
    ///
    /// # Errors
    /// [`StoreError::LeaseLost`] when (worker, grant id) is not the worker's newest lease, its end was fixed by a
    /// release, or its end has passed and the store has no time that joins it; otherwise as [`LeaseStore::acquire`]. It
    /// is not an error by itself that the end has passed while nobody else was granted the worker: its interval goes on
    /// without a gap.
    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError>;

    /// Ends a lease at `end_ms`, the end of the last tick that its holder used, if (worker, grant id) is the worker's
    /// newest lease, was not released before, and `end_ms` is not past the recorded end. Answers whether it did. An end
    /// within a tick counts as the end of that tick, one before the lease's start as its start.
    ///
    /// # Errors
    /// Any error of the connection; the lease then runs out by itself.
    async fn release(&self, namespace: &str, worker: u32, grant_id: GrantId, end_ms: u64) -> Result<bool, StoreError>;

    /// Forbids that a worker's newest lease is extended, for an operator who wants it to end: `valid_until_ms` stays,
    /// since its holder may use it up to there. Answers the lease; none if the worker was never granted. Harmless when
    /// its end is fixed already.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn forbid_extension(&self, namespace: &str, worker: u32) -> Result<Option<LeaseRecord>, StoreError>;

    /// The newest lease of every worker that was ever granted in the namespace, by worker.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn leases(&self, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError>;

    /// The namespaces that were ever used, in the order of their bytes.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn namespaces(&self) -> Result<Vec<String>, StoreError>;

    /// Whether workers of this namespace can be granted for this layout, as far as can be told without a grant: nothing
    /// is bound, and nobody gets anything. `Ok` from a store that does not know.
    ///
    /// # Errors
    /// [`StoreError::LayoutMismatch`] and [`StoreError::Refused`] as an acquire would bring them, and whatever the
    /// connection brings.
    async fn check_namespace(&self, _namespace: &str, _layout: Layout) -> Result<(), StoreError> {
        Ok(())
    }

    /// The random name of the store's data, as [`SegmentStore::identity`](crate::SegmentStore::identity): another one
    /// in each store whose leases know nothing of those of the others. `None` in a store that has no name that lasts.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        Ok(None)
    }

    /// The store's own clock, in Unix milliseconds, by which it leases workers. For observation only. `None` where the
    /// clock is that of this machine, or cannot be read.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn clock_ms(&self) -> Result<Option<u64>, StoreError> {
        Ok(None)
    }

    /// The time until which the underlying store has granted a running lease, in Unix milliseconds, where this one
    /// hands it out in shorter pieces. The figure is for observation only: none where the lease's own end says it.
    fn reach_ms(&self, namespace: &str, worker: u32) -> Option<u64> {
        let _ = (namespace, worker);
        None
    }

    /// Closes the connections. Not needed for safety.
    async fn close(&self) {}
}

/// A request for a worker id.
///
/// ```
/// use unalike_storage::{Layout, LeaseAcquire};
/// let acquire = LeaseAcquire {
///     namespace: "default".to_owned(),
///     layout: Layout::TWITTER,
///     holder: String::new(),
///     preferred_worker: Some(1_024),
///     now_ms: 1_700_000_000_000,
///     horizon_ms: 60_000,
/// };
/// assert!(acquire.validate().is_err(), "Twitter's layout has workers 0 to 1023");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseAcquire {
    /// Which set of worker ids: ids are unique within it.
    pub namespace: String,
    /// The layout of the ids; binds the namespace at first use.
    pub layout: Layout,
    /// A stable name of the holder, for preference and display only; it proves nothing. Empty: no preference.
    pub holder: String,
    /// A worker of the layout that the holder would like to have, when it is free.
    pub preferred_worker: Option<u32>,
    /// The holder's clock, in Unix milliseconds.
    pub now_ms: u64,
    /// How far ahead the lease shall reach, in milliseconds: a tick of the layout at least.
    pub horizon_ms: u64,
}

/// A request to prolong a lease.
///
/// ```
/// use unalike_storage::{GrantId, Layout, LeaseExtend};
/// let extend = LeaseExtend {
///     namespace: "default".to_owned(),
///     layout: Layout::TWITTER,
///     worker: 7,
///     grant_id: GrantId(1),
///     now_ms: 1_700_000_000_000,
///     horizon_ms: 60_000,
/// };
/// assert!(extend.validate().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseExtend {
    /// The lease's namespace.
    pub namespace: String,
    /// The namespace's layout.
    pub layout: Layout,
    /// The lease's worker.
    pub worker: u32,
    /// The lease's name.
    pub grant_id: GrantId,
    /// The holder's clock, in Unix milliseconds.
    pub now_ms: u64,
    /// How far ahead the lease shall reach, in milliseconds: a tick of the layout at least.
    pub horizon_ms: u64,
}

/// A worker's newest lease as its store keeps it.
///
/// ```
/// use unalike_storage::{LeaseStore, StoreError};
///
/// async fn running(store: &dyn LeaseStore, now_ms: u64) -> Result<usize, StoreError> {
///     let records = store.leases("default").await?;
///     Ok(records.iter().filter(|record| record.lease.valid_until_ms > now_ms).count())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The lease.
    pub lease: Lease,
    /// Who holds it, by its own account.
    pub holder: String,
    /// When it was acquired, by the store's clock, in Unix milliseconds.
    pub acquired_ms: u64,
    /// Whether its end is fixed, by its holder's release or by an operator's, so that it is never extended.
    pub is_final: bool,
}
