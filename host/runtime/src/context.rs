//! What one instance of the core needs of its host: the stores, and the requests that it has out. It is the same
//! whether the core runs as the component or natively.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use unalike_core as core;
use unalike_storage::{LeaseAcquire, LeaseExtend, LeaseStore, Process, PublicTags, SegmentStore};

use crate::Error;
use crate::executor::Executor;
use crate::lease_watch::LeaseQuestion;
use crate::metrics::Operation;
use crate::requests::{Collected, Signal, Storage, Tickets, missing};

/// Makes an [`IdsCtx`].
///
/// ```
/// # use std::sync::Arc;
/// # use std::time::Duration;
/// use unalike::component::IdsCtxBuilder;
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # let store = Arc::new(unalike_memory::MemoryStore::default());
/// let ctx = IdsCtxBuilder::new()
///     .segments(store.clone())
///     .leases(store)
///     .request_timeout(Duration::from_secs(3))
///     .executor(runtime.handle().clone())
///     .build()?;
/// assert_eq!(ctx.floor("order"), 0);
/// # Ok::<(), unalike::Error>(())
/// ```
pub struct IdsCtxBuilder {
    pub(crate) segments: Option<Arc<dyn SegmentStore>>,
    pub(crate) leases: Option<Arc<dyn LeaseStore>>,
    pub(crate) holder: Option<String>,
    pub(crate) preferred_worker: Option<u32>,
    pub(crate) request_timeout: Duration,
    pub(crate) executor: Option<Handle>,
}

impl Default for IdsCtxBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl IdsCtxBuilder {
    /// A builder with the defaults and without stores.
    #[must_use]
    pub fn new() -> Self {
        Self {
            segments: None,
            leases: None,
            holder: None,
            preferred_worker: None,
            request_timeout: Duration::from_secs(10),
            executor: None,
        }
    }

    /// Where sequences get their segments. Without it every allocation is refused. Names that the product keeps for
    /// itself are refused ([`PublicTags`]).
    #[must_use]
    pub fn segments(mut self, store: Arc<dyn SegmentStore>) -> Self {
        self.segments = Some(Arc::new(PublicTags::new(store)));
        self
    }

    /// Where snowflakes get their leases. Without it every lease is refused.
    #[must_use]
    pub fn leases(mut self, store: Arc<dyn LeaseStore>) -> Self {
        self.leases = Some(store);
        self
    }

    /// A stable name of this process (a host name and port, say), by which the lease store prefers the worker that it
    /// had before. It proves nothing, and two processes with one name stay unique. A random name by default.
    #[must_use]
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = Some(holder.into());
        self
    }

    /// A worker id that this process would like to have, if it is free.
    #[must_use]
    pub fn preferred_worker(mut self, worker: u32) -> Self {
        self.preferred_worker = Some(worker);
        self
    }

    /// The time after which a request to a store is given up, and what it may have been granted is burnt: 10 seconds by
    /// default.
    #[must_use]
    pub fn request_timeout(mut self, request_timeout: Duration) -> Self {
        self.request_timeout = request_timeout;
        self
    }

    /// The tokio runtime on which requests run, with whatever its stores need enabled. By default that is the
    /// multi-threaded one in which [`IdsCtxBuilder::build`] is called, and elsewhere the library's own. One that has
    /// ended is replaced by the library's own; one that nobody drives answers nothing, and only a multi-threaded one
    /// drives itself.
    #[must_use]
    pub fn executor(mut self, executor: Handle) -> Self {
        self.executor = Some(executor);
        self
    }

    /// The context. No request is made yet.
    ///
    /// # Errors
    /// [`ErrorKind::Executor`](crate::ErrorKind::Executor) when the library's own executor cannot be started.
    pub fn build(mut self) -> Result<IdsCtx, Error> {
        let executor = match self.executor.take() {
            Some(handle) => Executor::given(handle)?,
            None => Executor::here()?,
        };
        Ok(self.on(executor))
    }

    pub(crate) fn on(self, executor: Executor) -> IdsCtx {
        let storage = Storage {
            segments: self.segments,
            leases: self.leases,
            holder: self.holder.unwrap_or_else(random_name),
            preferred_worker: self.preferred_worker,
            executor,
            request_timeout: self.request_timeout,
            under_way: Arc::default(),
            tails: Mutex::default(),
            process: Process::current(),
        };
        IdsCtx::new(Arc::new(storage), Arc::default())
    }
}

impl std::fmt::Debug for IdsCtxBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdsCtxBuilder").field("holder", &self.holder).finish_non_exhaustive()
    }
}

/// Names a holder that has no name of its own. Without randomness the name is empty, which costs the preference only.
fn random_name() -> String {
    getrandom::u64().map_or_else(|_| String::new(), |random| format!("unnamed-{random:016x}"))
}

/// The segments that were given out, by tag.
type Floors = Arc<Mutex<HashMap<String, core::GrantOrder>>>;

/// What one instance of the component needs of its host: the stores, and the requests that it has out.
///
/// It belongs in the data of the instance's `Store`; see the [module's documentation](crate::component) for an example.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), unalike::Error> {
/// use unalike::component::IdsCtx;
/// let ctx = IdsCtx::builder().holder("host-a").build()?;
/// let next = ctx.successor(); // for the instance that replaces one that trapped
/// assert!(next.settle().await && !next.is_inherited());
/// # Ok(())
/// # }
/// ```
pub struct IdsCtx {
    storage: Arc<Storage>,
    /// Hears of the requests that are started from now on.
    signal: Signal,
    /// By the tag under which the floor is recorded.
    segments: Tickets<String, core::Segment>,
    leases: Tickets<LeaseQuestion, core::Lease>,
    floors: Floors,
}

impl IdsCtx {
    fn new(storage: Arc<Storage>, floors: Floors) -> Self {
        Self { storage, signal: Signal::default(), segments: Tickets::default(), leases: Tickets::default(), floors }
    }

    /// The same as [`IdsCtxBuilder::new`].
    #[must_use]
    pub fn builder() -> IdsCtxBuilder {
        IdsCtxBuilder::new()
    }

    /// What is told of the answers to the requests that are started now. It can be kept and awaited while the store is
    /// busy with other calls.
    #[must_use]
    pub fn signal(&self) -> Signal {
        self.signal.clone()
    }

    /// Sets the signal that is told of the requests that are started from now on: for hosts that keep several
    /// generators in one instance, before each call.
    pub fn set_signal(&mut self, signal: &Signal) {
        if !self.signal.is_same(signal) {
            self.signal = signal.clone();
        }
    }

    /// Forgets the requests of a generator that is gone.
    pub(crate) fn forget(&mut self, gone: &Signal) {
        self.segments.forget(gone);
        self.leases.forget(gone);
    }

    /// Where a sequence of this tag begins when it is opened again in another instance: above all that its predecessors
    /// were granted, or, where several stores number together, above what each of them granted. 0 for a tag that was
    /// granted nothing, and in a forked child. It belongs in `sequence-options.floor` or the `floor` of an ordered
    /// sequence.
    ///
    /// The store never grants a number twice anyway; with a floor the component also notices one that does. Snowflakes
    /// need none to be unique, since a new lease never overlaps an old one; `snowflake-status.used-until` of the
    /// predecessor as their floor keeps them ascending.
    #[must_use]
    pub fn floor(&self, tag: &str) -> u64 {
        if self.is_inherited() {
            return 0;
        }
        let floors = self.floors.lock().unwrap_or_else(PoisonError::into_inner);
        floors.get(tag).map_or(0, core::GrantOrder::successor_floor)
    }

    /// A context for the instance that takes this one's place, above all after a trap: the same stores and floors, and
    /// none of the requests that are under way. Their answers reach nobody, and what they were granted is a gap.
    #[must_use]
    pub fn successor(&self) -> Self {
        Self::new(Arc::clone(&self.storage), Arc::clone(&self.floors))
    }

    /// Waits until no request and no release of this context, its predecessors and its successors is under way, at most
    /// as long as one may take. Answers whether that was so; if not, what they carry is a gap.
    ///
    /// For a graceful end: close the generators, then wait here before the stores go.
    pub fn settle(&self) -> impl Future<Output = bool> + Send + use<> {
        let storage = Arc::clone(&self.storage);
        // Nothing of it is under way in a child.
        async move { !storage.process.is_current() || storage.settle().await }
    }

    /// Whether this process was forked from the one that made the context, or its first predecessor. Its instance then
    /// holds grants that belong to the parent: stop using it, and make another context instead of a successor.
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        !self.storage.process.is_current()
    }

    /// A request for a lease that no store is asked for: the ticket of the refusal.
    #[cfg(feature = "wasm")]
    pub(crate) fn refuse_lease(
        &mut self,
        namespace: &str,
        worker: Option<u32>,
        refused: unalike_storage::StoreError,
    ) -> u64 {
        let Self { storage, signal, leases, .. } = self;
        let operation = if worker.is_some() { Operation::Extend } else { Operation::Acquire };
        let asked = LeaseQuestion { namespace: namespace.to_owned(), worker };
        leases.start(storage, signal, operation, namespace, asked, async move { Err(refused) })
    }

    pub(crate) fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }
}

impl std::fmt::Debug for IdsCtx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdsCtx").field("holder", &self.storage.holder).finish_non_exhaustive()
    }
}

impl core::Segments for IdsCtx {
    fn allocate(&mut self, tag: &str, count: u64, at_least: u64) -> u64 {
        let Self { storage, signal, segments, .. } = self;
        let (store, asked) = (storage.segments.clone(), tag.to_owned());
        let carried = asked.clone();
        segments.start(storage, signal, Operation::Allocate, tag, asked, async move {
            let store = store.ok_or_else(|| missing("segment"))?;
            store.allocate(&carried, count, at_least).await
        })
    }

    fn poll(&mut self, ticket: u64) -> Option<Result<core::Segment, core::StoreFailure>> {
        let Collected { asked: tag, answer, .. } = match self.segments.collect(ticket)? {
            Ok(collected) => collected,
            Err(error) => return Some(Err(error.failure())),
        };
        Some(answer.map_err(|error| error.failure()).and_then(|segment| {
            let Self { signal, floors, .. } = &*self;
            // A generator's own signal keeps it, so that nothing stays of a generator that is gone.
            let admitted = signal.admit(&segment).unwrap_or_else(|| {
                let mut floors = floors.lock().unwrap_or_else(PoisonError::into_inner);
                floors.entry(tag.clone()).or_insert(core::GrantOrder::new(0)).admit(&segment)
            });
            // The core refuses by itself what it can know of. What one of several stores granted to its predecessor is
            // known here alone.
            if admitted == Err(core::GrantFault::Overlap) && segment.stride > 1 {
                tracing::error!(tag, ?segment, "one of the stripes granted again what it had granted: it lost data");
                return Err(core::StoreFailure::Refused);
            }
            let mut usable = segment;
            if segment.validate().is_ok() && usable.cut(signal.id_max()) {
                signal.add_buffered(usable.count());
            }
            Ok(segment)
        }))
    }

    fn release(&mut self, tag: &str, tail: core::TailRelease) {
        self.storage.release_tail(tag.to_owned(), tail);
    }
}

impl core::Leases for IdsCtx {
    fn acquire(&mut self, namespace: &str, layout: &core::Layout, now_ms: u64, horizon_ms: u64) -> u64 {
        let Self { storage, signal, leases, .. } = self;
        let carried = Arc::clone(storage);
        let acquire = LeaseAcquire {
            namespace: namespace.to_owned(),
            layout: *layout,
            holder: carried.holder.clone(),
            preferred_worker: carried.preferred_worker,
            now_ms,
            horizon_ms,
        };
        let asked = LeaseQuestion { namespace: namespace.to_owned(), worker: None };
        leases.start(storage, signal, Operation::Acquire, namespace, asked, async move {
            let store = carried.leases.as_ref().ok_or_else(|| missing("lease"))?;
            store.acquire(&acquire).await
        })
    }

    fn extend(
        &mut self,
        namespace: &str,
        layout: &core::Layout,
        (worker, grant_id): (u32, core::GrantId),
        now_ms: u64,
        horizon_ms: u64,
    ) -> u64 {
        let Self { storage, signal, leases, .. } = self;
        let carried = Arc::clone(storage);
        let extend =
            LeaseExtend { namespace: namespace.to_owned(), layout: *layout, worker, grant_id, now_ms, horizon_ms };
        let asked = LeaseQuestion { namespace: namespace.to_owned(), worker: Some(worker) };
        leases.start(storage, signal, Operation::Extend, namespace, asked, async move {
            let store = carried.leases.as_ref().ok_or_else(|| missing("lease"))?;
            store.extend(&extend).await
        })
    }

    fn poll(&mut self, ticket: u64) -> Option<Result<core::Lease, core::StoreFailure>> {
        let Collected { asked, answer, before } = match self.leases.collect(ticket)? {
            Ok(collected) => collected,
            Err(error) => return Some(Err(error.failure())),
        };
        asked.answered(&answer, before.as_deref());
        Some(answer.map_err(|error| error.failure()))
    }

    fn release(&mut self, namespace: &str, release: core::LeaseRelease) {
        let storage = &self.storage;
        if let Some(store) = storage.leases.clone() {
            let carried = namespace.to_owned();
            let core::LeaseRelease { worker, grant_id, end_ms } = release;
            storage.start_release(Operation::ReleaseLease, namespace, async move {
                store.release(&carried, worker, grant_id, end_ms).await
            });
        }
    }
}
