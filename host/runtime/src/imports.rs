//! What the component imports: requests that start here and run on the host's executor, named by tickets.
//!
//! No function waits. A ticket's answer goes to the slot that the ticket's own instance holds, so an answer that comes
//! after the instance is gone, or after its request was given up, lands nowhere: the grant is burnt.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::{Handle, Runtime};
use tokio::sync::{Notify, watch};
use unalike_core::{FieldOrder, GrantId, Layout, LayoutFields, Lease, Segment, TailRelease};
use unalike_storage::{LeaseAcquire, LeaseExtend, LeaseStore, SegmentStore, StoreError};
use wasmtime::{StoreLimits, StoreLimitsBuilder};

use crate::engine::bindings::unalike::ids::{leases, segments, types};

/// An instance with 100,000 open tags needs well under this many bytes of memory.
const MEMORY_MAX: usize = 1 << 30;

/// Tickets are unique in the process, whichever instance they belong to.
static NEXT_TICKET: AtomicU64 = AtomicU64::new(1);

/// The stores and the executor: what all instances of one `Ids` share.
pub(crate) struct Storage {
    pub(crate) segments: Option<Arc<dyn SegmentStore>>,
    pub(crate) leases: Option<Arc<dyn LeaseStore>>,
    pub(crate) holder: String,
    pub(crate) preferred_worker: Option<u32>,
    pub(crate) executor: Handle,
    /// No request takes longer; one that does is given up, and its grant burnt.
    pub(crate) request_timeout: Duration,
    /// How many requests and releases are on their way.
    pub(crate) under_way: watch::Sender<usize>,
    /// The library's own executor, if it had to start one: it lives as long as anybody may send a request.
    pub(crate) _own_executor: Option<OwnExecutor>,
}

/// An executor of the library's own, for programs without one.
pub(crate) struct OwnExecutor(pub(crate) Option<Runtime>);

impl Drop for OwnExecutor {
    fn drop(&mut self) {
        // Dropping a runtime waits for its blocking tasks, which asynchronous code must not do.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Storage {
    /// Waits until nothing is on its way, at most as long as a request may take.
    pub(crate) async fn settle(&self, what: &str) {
        let mut under_way = self.under_way.subscribe();
        if tokio::time::timeout(self.request_timeout, under_way.wait_for(|count| *count == 0)).await.is_err() {
            tracing::warn!("gave up waiting for {what}: what they carry is a gap");
        }
    }
}

/// How a generator hears that one of its requests was answered, and what the store said in full.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    pub(crate) answered: Notify,
    last_error: Mutex<Option<Arc<StoreError>>>,
}

impl Signal {
    /// The store's own words for the newest failure, cleared by a success.
    pub(crate) fn last_error(&self) -> Option<Arc<StoreError>> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn record<T>(&self, answer: Result<T, StoreError>) -> Result<T, types::StoreError> {
        let mut last_error = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        match answer {
            Ok(value) => {
                *last_error = None;
                Ok(value)
            }
            Err(error) => {
                let told = tell(&error);
                *last_error = Some(Arc::new(error));
                Err(told)
            }
        }
    }
}

/// Where the answer of a request arrives.
type Slot<T> = Arc<Mutex<Option<Result<T, StoreError>>>>;

/// The requests of one kind that an instance has out: who hears of the answer, and where it arrives.
type Tickets<T> = HashMap<u64, (Arc<Signal>, Slot<T>)>;

/// The imports of one instance.
pub(crate) struct Imports {
    storage: Arc<Storage>,
    /// The generator whose call is running.
    caller: Arc<Signal>,
    /// A segment travels with its tag, so that the floor is recorded under the right name.
    segments: Tickets<(String, Segment)>,
    leases: Tickets<Lease>,
    /// The end of the greatest segment that this instance was given, by tag: a successor's floor.
    pub(crate) floors: HashMap<String, u64>,
    limits: StoreLimits,
}

impl Imports {
    pub(crate) fn new(storage: Arc<Storage>, floors: HashMap<String, u64>) -> Self {
        let limits = StoreLimitsBuilder::new().memory_size(MEMORY_MAX).build();
        let caller = Arc::default();
        Self { storage, caller, segments: HashMap::new(), leases: HashMap::new(), floors, limits }
    }

    pub(crate) fn limits(&mut self) -> &mut StoreLimits {
        &mut self.limits
    }

    /// Says which generator the next call is for: it hears of the requests that the call starts.
    pub(crate) fn set_caller(&mut self, caller: &Arc<Signal>) {
        if !Arc::ptr_eq(&self.caller, caller) {
            self.caller = Arc::clone(caller);
        }
    }

    /// Runs a request on the executor and puts its answer, or that it took too long, into the slot.
    fn start<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> (Arc<Signal>, Slot<T>) {
        let slot = Slot::default();
        let storage = Arc::clone(&self.storage);
        storage.under_way.send_modify(|count| *count += 1);
        let (caller, answer, timeout) = (Arc::clone(&self.caller), Arc::clone(&slot), self.storage.request_timeout);
        // A request that panics, or that an executor at its end never begins, must be answered too: by this guard.
        let guard = Answer { slot: answer, caller, storage, result: None };
        let executor = self.storage.executor.clone();
        executor.spawn(async move {
            // The whole guard moves in: an assignment alone would capture the field and leave the guard behind.
            let mut guard = guard;
            guard.result = Some(tokio::time::timeout(timeout, request).await.unwrap_or_else(|_| {
                let what = format!("no answer within {} ms", timeout.as_millis());
                Err(StoreError::OutcomeUnknown { what, source: None })
            }));
        });
        (Arc::clone(&self.caller), slot)
    }

    /// Runs a release on the executor; nobody waits for it but a graceful shutdown.
    fn start_release(&self, release: impl Future<Output = Result<bool, StoreError>> + Send + 'static) {
        let storage = Arc::clone(&self.storage);
        storage.under_way.send_modify(|count| *count += 1);
        self.storage.executor.spawn(async move {
            let outcome = tokio::time::timeout(storage.request_timeout, release).await;
            storage.under_way.send_modify(|count| *count -= 1);
            match outcome {
                Ok(Ok(taken_back)) => tracing::debug!(taken_back, "gave back what was not used"),
                Ok(Err(error)) => tracing::warn!(error = %error, "could not give back what was not used: it is a gap"),
                Err(_) => tracing::warn!("giving back took too long: what was not used is a gap"),
            }
        });
    }
}

/// Fills a slot when it goes, whatever happened.
struct Answer<T> {
    slot: Slot<T>,
    caller: Arc<Signal>,
    storage: Arc<Storage>,
    result: Option<Result<T, StoreError>>,
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        let result = self.result.take().unwrap_or_else(|| {
            Err(StoreError::OutcomeUnknown { what: "the request did not end".to_owned(), source: None })
        });
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        self.caller.answered.notify_waiters();
        self.storage.under_way.send_modify(|count| *count -= 1);
    }
}

/// The answer of a ticket, once.
fn collect<T>(tickets: &mut Tickets<T>, ticket: u64) -> Option<Result<T, types::StoreError>> {
    let Some((caller, slot)) = tickets.get(&ticket) else { return Some(Err(types::StoreError::OutcomeUnknown)) };
    let answer = slot.lock().unwrap_or_else(PoisonError::into_inner).take()?;
    let told = caller.record(answer);
    tickets.remove(&ticket);
    Some(told)
}

fn new_ticket() -> u64 {
    NEXT_TICKET.fetch_add(1, Ordering::Relaxed)
}

impl types::Host for Imports {}

impl segments::Host for Imports {
    fn allocate(&mut self, tag: String, count: u64, at_least: u64) -> u64 {
        let ticket = new_ticket();
        let store = self.storage.segments.clone();
        let started = self.start(async move {
            let store = store.ok_or_else(|| missing("segment"))?;
            store.allocate(&tag, count, at_least).await.map(|segment| (tag, segment))
        });
        self.segments.insert(ticket, started);
        ticket
    }

    fn poll(&mut self, ticket: u64) -> Option<Result<segments::Segment, types::StoreError>> {
        let answer = collect(&mut self.segments, ticket)?;
        Some(answer.map(|(tag, segment)| {
            let floor = self.floors.entry(tag).or_insert(0);
            *floor = (*floor).max(segment.end);
            segments::Segment {
                start: segment.start,
                end: segment.end,
                stride: segment.stride,
                generation: segment.generation,
                version: segment.version,
            }
        }))
    }

    fn release(&mut self, tag: String, start: u64, version: u64) {
        if let Some(store) = self.storage.segments.clone() {
            self.start_release(async move { store.release(&tag, TailRelease { start, version }).await });
        }
    }
}

impl leases::Host for Imports {
    fn acquire(&mut self, namespace: String, layout: types::Layout, now: u64, horizon_ms: u64) -> u64 {
        let ticket = new_ticket();
        let storage = Arc::clone(&self.storage);
        let started = self.start(async move {
            let store = storage.leases.as_ref().ok_or_else(|| missing("lease"))?;
            let acquire = LeaseAcquire {
                namespace,
                layout: core_layout(&layout)?,
                holder: storage.holder.clone(),
                preferred_worker: storage.preferred_worker,
                now_ms: now,
                horizon_ms,
            };
            store.acquire(&acquire).await
        });
        self.leases.insert(ticket, started);
        ticket
    }

    fn extend(
        &mut self,
        namespace: String,
        layout: types::Layout,
        worker: u32,
        grant_id: leases::GrantId,
        now: u64,
        horizon_ms: u64,
    ) -> u64 {
        let ticket = new_ticket();
        let storage = Arc::clone(&self.storage);
        let started = self.start(async move {
            let store = storage.leases.as_ref().ok_or_else(|| missing("lease"))?;
            let extend = LeaseExtend {
                namespace,
                layout: core_layout(&layout)?,
                worker,
                grant_id: joined(grant_id),
                now_ms: now,
                horizon_ms,
            };
            store.extend(&extend).await
        });
        self.leases.insert(ticket, started);
        ticket
    }

    fn poll(&mut self, ticket: u64) -> Option<Result<leases::Lease, types::StoreError>> {
        let answer = collect(&mut self.leases, ticket)?;
        Some(answer.map(|lease| leases::Lease {
            worker: lease.worker,
            grant_id: halves(lease.grant_id),
            not_before: lease.not_before_ms,
            valid_until: lease.valid_until_ms,
        }))
    }

    fn release(&mut self, namespace: String, worker: u32, grant_id: leases::GrantId, end: u64) {
        if let Some(store) = self.storage.leases.clone() {
            self.start_release(async move { store.release(&namespace, worker, joined(grant_id), end).await });
        }
    }
}

pub(crate) fn missing(kind: &str) -> StoreError {
    StoreError::Refused { what: format!("no {kind} store was given to the builder"), source: None }
}

fn tell(error: &StoreError) -> types::StoreError {
    use unalike_core::StoreFailure as F;
    match error.failure() {
        F::Unavailable => types::StoreError::Unavailable,
        F::OutcomeUnknown => types::StoreError::OutcomeUnknown,
        F::TagUnknown => types::StoreError::TagUnknown,
        F::Exhausted => types::StoreError::Exhausted,
        F::WorkersExhausted => types::StoreError::WorkersExhausted,
        F::LeaseLost => types::StoreError::LeaseLost,
        F::ClockSkew => types::StoreError::ClockSkew,
        F::Refused => types::StoreError::Refused,
    }
}

fn core_layout(layout: &types::Layout) -> Result<Layout, StoreError> {
    Layout::new(LayoutFields {
        timestamp_bits: layout.timestamp_bits,
        datacenter_bits: layout.datacenter_bits,
        worker_bits: layout.worker_bits,
        sequence_bits: layout.sequence_bits,
        order: match layout.order {
            types::FieldOrder::WorkerFirst => FieldOrder::WorkerFirst,
            types::FieldOrder::SequenceFirst => FieldOrder::SequenceFirst,
        },
        epoch_ms: layout.epoch_ms,
        tick_ms: layout.tick_ms,
    })
    .map_err(|error| StoreError::Refused { what: format!("the layout is not valid: {error}"), source: None })
}

fn joined(grant_id: leases::GrantId) -> GrantId {
    GrantId((u128::from(grant_id.high) << 64) | u128::from(grant_id.low))
}

#[expect(clippy::cast_possible_truncation, reason = "the two halves of 128 bits")]
fn halves(grant_id: GrantId) -> leases::GrantId {
    leases::GrantId { high: (grant_id.0 >> 64) as u64, low: grant_id.0 as u64 }
}
