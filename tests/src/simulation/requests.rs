//! Carries what a generator asks for to a store, and the answer back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;
use unalike_core::{
    GrantId, GrantOrder, Layout, Lease, LeaseRelease, Leases, Segment, Segments, StoreFailure, TailRelease,
};
use unalike_storage::{LeaseAcquire, LeaseExtend, LeaseStore, SegmentStore, StoreError};

use super::processes::{NAMESPACE, Process};
use super::stores::Client;

/// After this time a process gives a request up.
const REQUEST_MAX: Duration = Duration::from_secs(10);

type Answers<T> = Arc<Mutex<HashMap<u64, Result<T, StoreFailure>>>>;

/// The requests of one generator for segments, and of those that take its place.
#[derive(Clone)]
pub(crate) struct SegmentRequests {
    process: Weak<Process>,
    store: Arc<dyn SegmentStore>,
    last_ticket: Arc<AtomicU64>,
    answers: Answers<Segment>,
    pub(crate) heard: Arc<Notify>,
    /// What they were granted.
    order: Arc<Mutex<GrantOrder>>,
}

impl SegmentRequests {
    pub(crate) fn new(process: &Arc<Process>, store: Arc<dyn SegmentStore>) -> Self {
        Self {
            process: Arc::downgrade(process),
            store,
            last_ticket: Arc::default(),
            answers: Answers::default(),
            heard: Arc::default(),
            order: Arc::new(Mutex::new(GrantOrder::new(0))),
        }
    }
}

impl SegmentRequests {
    /// Where a generator goes on that takes the place of another one.
    pub(crate) fn floor(&self) -> u64 {
        self.order.lock().unwrap().successor_floor()
    }
}

impl Segments for SegmentRequests {
    fn allocate(&mut self, tag: &str, count: u64, at_least: u64) -> u64 {
        let ticket = self.last_ticket.fetch_add(1, Ordering::Relaxed) + 1;
        let Some(process) = self.process.upgrade() else { return ticket };
        let (store, answers, heard) = (Arc::clone(&self.store), Arc::clone(&self.answers), Arc::clone(&self.heard));
        let (order, tag, caller) = (Arc::clone(&self.order), tag.to_owned(), Arc::clone(&process));
        process.spawn(async move {
            let answer = timeout(REQUEST_MAX, store.allocate(&tag, count, at_least)).await;
            caller.machine.go().await;
            let answer = answer.map_or(Err(StoreFailure::OutcomeUnknown), |answer| answer.map_err(|e| e.failure()));
            if let Ok(segment) = answer {
                caller.world.ledger.lock().unwrap().granted(&tag, caller.number, segment);
                // The generator refuses it too.
                let _ = order.lock().unwrap().admit(&segment);
            }
            answers.lock().unwrap().insert(ticket, answer);
            heard.notify_waiters();
        });
        ticket
    }

    fn poll(&mut self, ticket: u64) -> Option<Result<Segment, StoreFailure>> {
        self.answers.lock().unwrap().remove(&ticket)
    }

    fn release(&mut self, tag: &str, tail: TailRelease) {
        let (store, tag) = (Arc::clone(&self.store), tag.to_owned());
        drop(tokio::spawn(async move { store.release(&tag, tail).await }));
    }
}

/// The requests of one generator for leases, and of those that take its place.
#[derive(Clone)]
pub(crate) struct LeaseRequests {
    process: Weak<Process>,
    store: Arc<Client>,
    last_ticket: Arc<AtomicU64>,
    answers: Answers<Lease>,
    pub(crate) heard: Arc<Notify>,
}

impl LeaseRequests {
    pub(crate) fn new(process: &Arc<Process>, store: Arc<Client>) -> Self {
        Self {
            process: Arc::downgrade(process),
            store,
            last_ticket: Arc::default(),
            answers: Answers::default(),
            heard: Arc::default(),
        }
    }

    fn start<F>(&mut self, request: impl FnOnce(Arc<Client>) -> F) -> u64
    where
        F: Future<Output = Result<Lease, StoreError>> + Send + 'static,
    {
        let ticket = self.last_ticket.fetch_add(1, Ordering::Relaxed) + 1;
        let Some(process) = self.process.upgrade() else { return ticket };
        let request = request(Arc::clone(&self.store));
        let (answers, heard, caller) = (Arc::clone(&self.answers), Arc::clone(&self.heard), Arc::clone(&process));
        process.spawn(async move {
            let answer = timeout(REQUEST_MAX, request).await;
            caller.machine.go().await;
            let answer = answer.map_or(Err(StoreFailure::OutcomeUnknown), |answer| answer.map_err(|e| e.failure()));
            if let Ok(lease) = answer {
                caller.world.ledger.lock().unwrap().leased(NAMESPACE, caller.number, lease);
            }
            answers.lock().unwrap().insert(ticket, answer);
            heard.notify_waiters();
        });
        ticket
    }
}

impl Leases for LeaseRequests {
    fn acquire(&mut self, namespace: &str, layout: &Layout, now_ms: u64, horizon_ms: u64) -> u64 {
        let holder = self.process.upgrade().map(|process| format!("machine-{:?}", process.machine.host()));
        let acquire = LeaseAcquire {
            namespace: namespace.to_owned(),
            layout: *layout,
            holder: holder.unwrap_or_default(),
            preferred_worker: None,
            now_ms,
            horizon_ms,
        };
        self.start(|store| async move { store.acquire(&acquire).await })
    }

    fn extend(&mut self, namespace: &str, layout: &Layout, held: (u32, GrantId), now_ms: u64, horizon_ms: u64) -> u64 {
        let (worker, grant_id) = held;
        let extend =
            LeaseExtend { namespace: namespace.to_owned(), layout: *layout, worker, grant_id, now_ms, horizon_ms };
        self.start(|store| async move { store.extend(&extend).await })
    }

    fn poll(&mut self, ticket: u64) -> Option<Result<Lease, StoreFailure>> {
        self.answers.lock().unwrap().remove(&ticket)
    }

    fn release(&mut self, namespace: &str, release: LeaseRelease) {
        let (store, namespace) = (Arc::clone(&self.store), namespace.to_owned());
        let LeaseRelease { worker, grant_id, end_ms } = release;
        drop(tokio::spawn(async move { LeaseStore::release(&*store, &namespace, worker, grant_id, end_ms).await }));
    }
}
