//! The requests that the component starts: each runs on the host's executor, named by a ticket.
//!
//! Nobody waits here. A ticket's answer goes to the slot that the ticket's own context holds, so an answer that comes
//! after the context is gone, or after its request was given up, lands nowhere: the grant is burnt.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tracing::Instrument;
use unalike_core::{GrantFault, GrantOrder, ID_MAX, Segment, TailRelease};
use unalike_storage::{LeaseStore, Process, SegmentStore, StoreError, TailsReleased};

use crate::executor::Executor;
use crate::metrics::{self, Operation};
use crate::sync::lock;

/// Tickets are unique in the process, whichever instance they belong to.
static NEXT_TICKET: AtomicU64 = AtomicU64::new(1);

/// The stores and the executor: what all contexts of one origin share.
pub(crate) struct Storage {
    pub(crate) segments: Option<Arc<dyn SegmentStore>>,
    pub(crate) leases: Option<Arc<dyn LeaseStore>>,
    pub(crate) holder: String,
    pub(crate) preferred_worker: Option<u32>,
    pub(crate) executor: Executor,
    /// No request takes longer; one that does is given up, and its grant burnt.
    pub(crate) request_timeout: Duration,
    /// How many requests and releases are on their way.
    pub(crate) under_way: Arc<watch::Sender<usize>>,
    /// The tails that are to be given back.
    pub(crate) tails: Mutex<Tails>,
    /// Whose grants these are.
    pub(crate) process: Process,
}

/// Tails on their way back. Those that come while others are given back wait, and are then given back together: a
/// program with many tags that ends asks its store a few times, not once for each.
#[derive(Debug, Default)]
pub(crate) struct Tails {
    waiting: Vec<(String, TailRelease)>,
    /// Whether a task gives them back.
    has_task: bool,
}

/// So many tails are given back by one request.
const TAILS_AT_ONCE: usize = 1_000;

/// More than these are worth a line in the log when they are back.
const TAILS_SAID: u64 = 100;

impl Drop for Storage {
    /// A child leaves the stores of its parent alone. Closing its copy of a connection would take the connection out of
    /// the epoll instance that both share, and the parent would wait for answers for ever.
    fn drop(&mut self) {
        if !self.process.is_current() {
            std::mem::forget((self.segments.take(), self.leases.take()));
        }
    }
}

impl Storage {
    /// Waits until nothing is on its way, at most as long as a request may take; answers whether that was so.
    pub(crate) async fn settle(&self) -> bool {
        let mut under_way = self.under_way.subscribe();
        self.executor.timeout(self.request_timeout, under_way.wait_for(|count| *count == 0)).await.is_ok()
    }

    /// How many tails wait to be given back.
    pub(crate) fn tails_waiting(&self) -> usize {
        lock(&self.tails).waiting.len()
    }

    /// Gives a tail back on the executor; nobody waits for it but a graceful shutdown. A child has nothing to give
    /// back.
    pub(crate) fn release_tail(self: &Arc<Self>, tag: String, tail: TailRelease) {
        let Some(store) = self.segments.clone().filter(|_| self.process.is_current()) else { return };
        {
            let mut tails = lock(&self.tails);
            tails.waiting.push((tag, tail));
            if tails.has_task {
                return;
            }
            tails.has_task = true;
        }
        self.give_back(store);
    }

    /// Has the tails that come from here on wait for each other, while many generators are closed: they are given back
    /// by what this answers, if nobody gives others back just now.
    pub(crate) fn hold_tails(self: &Arc<Self>) -> Option<impl FnOnce() + use<>> {
        let store = self.segments.clone().filter(|_| self.process.is_current())?;
        if std::mem::replace(&mut lock(&self.tails).has_task, true) {
            return None;
        }
        let storage = Arc::clone(self);
        Some(move || storage.give_back(store))
    }

    /// Starts the task that gives tails back, of which there is none.
    fn give_back(self: &Arc<Self>, store: Arc<dyn SegmentStore>) {
        let giving = GivingBack {
            storage: Arc::clone(self),
            released: TailsReleased::default(),
            is_done: false,
            _under_way: UnderWay::begin(self),
        };
        self.executor.spawn(giving.run(store));
    }

    /// Runs a release on the executor; nobody waits for it but a graceful shutdown. A child has nothing to give back.
    pub(crate) fn start_release(
        self: &Arc<Self>,
        operation: Operation,
        name: &str,
        release: impl Future<Output = Result<bool, StoreError>> + Send + 'static,
    ) {
        if !self.process.is_current() {
            return;
        }
        let under_way = UnderWay::begin(self);
        metrics::store_request_started(operation);
        let span = operation.span(name);
        let release = self.within_timeout(release);
        let work = async move {
            let started = Instant::now();
            let outcome = release.await;
            metrics::store_request(operation, outcome.as_ref().err(), started.elapsed());
            match outcome {
                Ok(taken_back) => tracing::debug!(taken_back, "gave back what was not used"),
                Err(error) => tracing::warn!(%error, "could not give back what was not used: it is a gap"),
            }
            // Held to the end, also if the executor drops the task before it began.
            drop(under_way);
        };
        self.executor.spawn(work.instrument(span));
    }

    /// A request that is given up in time.
    pub(crate) fn within_timeout<T, F>(&self, request: F) -> impl Future<Output = Result<T, StoreError>> + use<T, F>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let limit = self.request_timeout;
        let answer = self.executor.timeout(limit, request);
        async move {
            answer.await.unwrap_or_else(|_| {
                let what = format!("no answer within {} ms", limit.as_millis());
                Err(StoreError::outcome_unknown(what))
            })
        }
    }
}

/// The task that gives tails back until none waits.
struct GivingBack {
    storage: Arc<Storage>,
    released: TailsReleased,
    /// None waited any more.
    is_done: bool,
    /// Dropped last.
    _under_way: UnderWay,
}

impl GivingBack {
    async fn run(mut self, store: Arc<dyn SegmentStore>) {
        while let Some(tails) = self.next() {
            let operation = Operation::ReleaseTail;
            let count = tails.len();
            let name = if let [(tag, _)] = tails.as_slice() { tag.clone() } else { format!("{count} tags") };
            metrics::store_request_started(operation);
            let started = Instant::now();
            let store = &store;
            let request = self.storage.within_timeout(async move { Ok(store.release_many(tails).await) });
            let span = operation.span(&name);
            let released = request.instrument(span.clone()).await.unwrap_or_else(|error| {
                let mut released = TailsReleased::default();
                released.failed(count, error);
                released
            });
            span.in_scope(|| metrics::store_request(operation, released.error.as_ref(), started.elapsed()));
            self.released.add(released);
        }
        let TailsReleased { taken_back, failures, error } = &self.released;
        match error {
            Some(error) => tracing::warn!(
                tags = failures,
                taken_back,
                %error,
                "could not give back what was not used: it is a gap"
            ),
            None if *taken_back > TAILS_SAID => tracing::info!(taken_back, "gave back what was not used of many tags"),
            None => tracing::debug!(taken_back, "gave back what was not used"),
        }
    }

    /// The next ones; none at the end, and then the next tail that comes has a task of its own.
    fn next(&mut self) -> Option<Vec<(String, TailRelease)>> {
        let mut tails = lock(&self.storage.tails);
        if tails.waiting.is_empty() {
            tails.has_task = false;
            self.is_done = true;
            return None;
        }
        let rest = tails.waiting.len().saturating_sub(TAILS_AT_ONCE);
        Some(tails.waiting.split_off(rest))
    }
}

impl Drop for GivingBack {
    /// Also when the executor ends before the task does: what waits is a gap, and what comes later has another task.
    fn drop(&mut self) {
        let mut tails = lock(&self.storage.tails);
        if !self.is_done {
            tails.waiting.clear();
            tails.has_task = false;
        }
    }
}

/// Counts as one on its way while it lives.
struct UnderWay {
    count: Arc<watch::Sender<usize>>,
    /// There until it is dropped.
    storage: Option<Arc<Storage>>,
}

impl UnderWay {
    fn begin(storage: &Arc<Storage>) -> Self {
        storage.under_way.send_modify(|count| *count += 1);
        Self { count: Arc::clone(&storage.under_way), storage: Some(Arc::clone(storage)) }
    }
}

impl Drop for UnderWay {
    /// The stores are let go of first: when nothing is on its way, nothing has them in hand.
    fn drop(&mut self) {
        drop(self.storage.take());
        self.count.send_modify(|count| *count -= 1);
    }
}

/// How a host hears that a request was answered, and what the store said in full.
///
/// A context has one (see [`IdsCtx::signal`](crate::component::IdsCtx::signal)). A host that keeps several generators
/// in one instance may give each its own ([`IdsCtx::set_signal`](crate::component::IdsCtx::set_signal)), so that an
/// answer wakes only those who wait for it. Clones are the same signal.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let signal = unalike::component::Signal::default();
/// let answered = signal.answered(); // listens from here on
/// signal.wake(); // what an answer does
/// answered.await;
/// assert!(signal.last_error().is_none());
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Signal(Arc<Heard>);

impl Default for Signal {
    fn default() -> Self {
        Self::new(ID_MAX, false)
    }
}

#[derive(Debug)]
struct Heard {
    answered: Notify,
    last_error: Mutex<Option<Arc<StoreError>>>,
    /// Numbers that the component was granted and has not put into runs, counted here so that looking costs no call
    /// into it. Written within such calls alone, one at a time.
    buffered: AtomicU64,
    /// How many requests are out.
    out: AtomicU64,
    /// The greatest number that is put into runs.
    id_max: u64,
    /// What was granted, if this is the signal of one generator for its life.
    granted: Option<Mutex<GrantOrder>>,
}

impl Signal {
    /// That of a generator whose ids are at most this great.
    pub(crate) fn up_to(id_max: u64) -> Self {
        Self::new(id_max, true)
    }

    fn new(id_max: u64, is_own: bool) -> Self {
        let (answered, last_error) = (Notify::new(), Mutex::default());
        Self(Arc::new(Heard {
            answered,
            last_error,
            buffered: AtomicU64::new(0),
            out: AtomicU64::new(0),
            id_max,
            granted: is_own.then(|| Mutex::new(GrantOrder::new(0))),
        }))
    }

    /// Ends with the next answer. Listening begins with this call, not with the first poll: call it, then call the
    /// component, then wait if it was `pending`; an answer in between is not missed.
    pub fn answered(&self) -> impl Future<Output = ()> + Send + '_ {
        self.0.answered.notified()
    }

    /// The store's own words for the newest failure that the component was told of; none after a success.
    #[must_use]
    pub fn last_error(&self) -> Option<Arc<StoreError>> {
        self.0.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Wakes whoever waits, as an answer does: for a host that ends a generator while others wait for it.
    pub fn wake(&self) {
        self.0.answered.notify_waiters();
    }

    pub(crate) fn id_max(&self) -> u64 {
        self.0.id_max
    }

    pub(crate) fn buffered(&self) -> u64 {
        self.0.buffered.load(Ordering::Relaxed)
    }

    /// The component was granted so many more numbers.
    pub(crate) fn add_buffered(&self, count: u64) {
        self.set_buffered(self.buffered().saturating_add(count));
    }

    /// So many crossed into a run.
    pub(crate) fn take_buffered(&self, count: u64) {
        self.set_buffered(self.buffered().saturating_sub(count));
    }

    /// So many they are.
    pub(crate) fn set_buffered(&self, count: u64) {
        self.0.buffered.store(count, Ordering::Relaxed);
    }

    /// Where its generator begins again: above all that it was granted, by each store if several number together.
    pub(crate) fn floor(&self) -> u64 {
        self.0.granted.as_ref().map_or(0, |granted| lock(granted).successor_floor())
    }

    /// Takes a grant in, if this is a generator's own signal.
    pub(crate) fn admit(&self, segment: &Segment) -> Option<Result<(), GrantFault>> {
        self.0.granted.as_ref().map(|granted| lock(granted).admit(segment))
    }

    /// Whether a request is out that was not answered.
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.out.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn record<T>(&self, answer: Result<T, StoreError>) -> Result<T, Arc<StoreError>> {
        let answer = answer.map_err(Arc::new);
        *self.0.last_error.lock().unwrap_or_else(PoisonError::into_inner) = answer.as_ref().err().map(Arc::clone);
        answer
    }
}

/// Where the answer of a request arrives.
type Slot<T> = Arc<Mutex<Option<Result<T, StoreError>>>>;

/// The requests of one kind that a context has out: what was asked, who hears of the answer, and where it arrives.
pub(crate) struct Tickets<A, T>(HashMap<u64, (A, Signal, Slot<T>)>);

impl<A, T> Default for Tickets<A, T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

/// The end of a request.
pub(crate) struct Collected<A, T> {
    pub(crate) asked: A,
    pub(crate) answer: Result<T, Arc<StoreError>>,
    /// What the one before had failed with.
    pub(crate) before: Option<Arc<StoreError>>,
}

impl<A, T: Send + 'static> Tickets<A, T> {
    /// Runs a request on the executor, which puts its answer, or that it took too long, into the slot.
    pub(crate) fn start(
        &mut self,
        storage: &Arc<Storage>,
        signal: &Signal,
        operation: Operation,
        name: &str,
        asked: A,
        request: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> u64 {
        let ticket = NEXT_TICKET.fetch_add(1, Ordering::Relaxed);
        if !storage.process.is_current() {
            // Nor has a child an executor that it could ask on. The ticket is held by nobody.
            return ticket;
        }
        let slot = Slot::default();
        signal.0.out.fetch_add(1, Ordering::Relaxed);
        // A request that panics, or that an executor at its end never begins, must be answered too: by this guard.
        let guard = AnswerOnDrop {
            slot: Arc::clone(&slot),
            signal: signal.clone(),
            operation,
            started: Instant::now(),
            result: None,
            _under_way: UnderWay::begin(storage),
        };
        metrics::store_request_started(operation);
        let request = storage.within_timeout(request);
        let work = async move {
            // The whole guard moves in: an assignment alone would capture the field and leave the guard behind.
            let mut guard = guard;
            guard.result = Some(request.await);
        };
        storage.executor.spawn(work.instrument(operation.span(name)));
        self.0.insert(ticket, (asked, signal.clone(), slot));
        ticket
    }

    /// Forgets what a generator that is gone never asked about: an answer that comes is burnt.
    pub(crate) fn forget(&mut self, gone: &Signal) {
        self.0.retain(|_, (_, signal, _)| !signal.is_same(gone));
    }

    /// The answer of a ticket, once. A ticket that is not held here is an error: nobody knows.
    pub(crate) fn collect(&mut self, ticket: u64) -> Option<Result<Collected<A, T>, StoreError>> {
        let Some((_, _, slot)) = self.0.get(&ticket) else {
            let what = format!("the ticket {ticket} is not held by this instance");
            return Some(Err(StoreError::outcome_unknown(what)));
        };
        let answer = slot.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let (asked, signal, _) = self.0.remove(&ticket)?;
        let before = signal.last_error();
        Some(Ok(Collected { asked, answer: signal.record(answer), before }))
    }
}

/// Fills a slot when it goes, whatever happened.
struct AnswerOnDrop<T> {
    slot: Slot<T>,
    signal: Signal,
    operation: Operation,
    started: Instant,
    result: Option<Result<T, StoreError>>,
    /// Dropped last: when nothing is on its way, every answer is in its slot.
    _under_way: UnderWay,
}

impl<T> Drop for AnswerOnDrop<T> {
    fn drop(&mut self) {
        let result = self.result.take().unwrap_or_else(|| Err(did_not_end()));
        metrics::store_request(self.operation, result.as_ref().err(), self.started.elapsed());
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        self.signal.0.out.fetch_sub(1, Ordering::Relaxed);
        self.signal.wake();
    }
}

/// Its task panicked, or its runtime ended.
pub(crate) fn did_not_end() -> StoreError {
    StoreError::outcome_unknown("the request did not end".to_owned())
}

pub(crate) fn missing(kind: &str) -> StoreError {
    StoreError::refused(format!("no {kind} store was given to the builder"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage() -> Arc<Storage> {
        Arc::new(Storage {
            segments: None,
            leases: None,
            holder: "test".to_owned(),
            preferred_worker: None,
            executor: Executor::own().unwrap(),
            request_timeout: Duration::from_secs(60),
            under_way: Arc::default(),
            tails: Mutex::default(),
            process: Process::current(),
        })
    }

    /// Whoever closes and drops everything may open the same directory or file again at once.
    #[tokio::test]
    async fn when_nothing_is_on_its_way_nothing_has_the_stores_in_hand() {
        let (storage, signal) = (storage(), Signal::default());
        let mut tickets = Tickets::<(), u64>::default();
        for round in 0..5_000 {
            tickets.start(&storage, &signal, Operation::Allocate, "order", (), async move { Ok(round) });
            assert!(storage.settle().await);
            assert_eq!(Arc::strong_count(&storage), 1, "in round {round}");
        }
    }

    #[tokio::test]
    async fn an_answer_reaches_only_the_instance_that_asked() {
        let (storage, signal) = (storage(), Signal::default());
        let start = |tickets: &mut Tickets<(), u64>, answer: u64| {
            tickets.start(&storage, &signal, Operation::Allocate, "order", (), async move { Ok(answer) })
        };
        let (mut before, mut after) = (Tickets::default(), Tickets::default());
        let old = start(&mut before, 1);
        // The instance that replaces another asks as well: neither ticket stands for the other's answer.
        let new = start(&mut after, 2);
        assert_ne!(old, new, "tickets are unique in the process");
        assert!(storage.settle().await);
        for (tickets, foreign) in [(&mut before, new), (&mut after, old)] {
            let refused = tickets.collect(foreign).unwrap().err().unwrap();
            assert!(matches!(refused, StoreError::OutcomeUnknown { .. }), "{refused:?}");
        }
        assert_eq!(after.collect(new).unwrap().ok().unwrap().answer.unwrap(), 2);
        assert!(matches!(after.collect(new), Some(Err(_))), "an answer is collected once");
        assert_eq!(before.collect(old).unwrap().ok().unwrap().answer.unwrap(), 1);
    }
}
