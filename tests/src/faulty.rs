//! A store that is slow, fails, or loses its answers when a test says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use unalike_memory::MemoryStore;
use unalike_storage::{
    GrantId, JoinedStripe, Lease, LeaseAcquire, LeaseExtend, LeaseRecord, LeaseStore, RefillPolicy, Segment,
    SegmentStore, StepPolicy, StoreError, StoreIdentity, Stripe, StripeNumbers, TagOptions, TagRecord, TailRelease,
    TailsReleased,
};

/// A [`MemoryStore`] behind a bad network.
#[derive(Debug, Default)]
pub struct FaultyStore {
    inner: MemoryStore,
    /// Shared with the clients that joined a stripe through this one.
    network: Arc<Network>,
}

#[derive(Debug, Default)]
struct Network {
    delay_ms: AtomicU64,
    /// Requests are not carried out.
    down: AtomicBool,
    /// Requests are carried out and their answers lost.
    answers_lost: AtomicBool,
    /// The next allocation answers again what the last one granted, as a store restored from a backup would.
    rewinds: AtomicBool,
    last: std::sync::Mutex<Option<Segment>>,
    /// The next allocation answers what is no interval.
    malforms: AtomicBool,
    /// While set, requests wait at the gate.
    held: AtomicBool,
    gate: Notify,
    arrivals: AtomicU64,
    allocations: AtomicU64,
    /// Requests to give tails back that are under way, and the most that were.
    releases: AtomicU64,
    releases_max: AtomicU64,
    /// How many more requests are carried out, by all stores that share it.
    budget: std::sync::Mutex<Option<Arc<AtomicU64>>>,
}

impl FaultyStore {
    /// In front of this store.
    pub fn before(inner: MemoryStore) -> Self {
        Self { inner, ..Self::default() }
    }

    /// From now on this many requests are carried out, by all stores with this budget, and then none.
    pub fn set_budget(&self, requests: &Arc<AtomicU64>) {
        *self.network.budget.lock().unwrap() = Some(Arc::clone(requests));
    }

    /// The store behind.
    pub fn inner(&self) -> &MemoryStore {
        &self.inner
    }

    /// Every request takes this long from now on.
    pub fn set_delay(&self, delay: Duration) {
        self.network.delay_ms.store(u64::try_from(delay.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// Refuses connections, or takes them again.
    pub fn set_down(&self, down: bool) {
        self.network.down.store(down, Ordering::SeqCst);
    }

    /// Loses answers, or delivers them again.
    pub fn set_answers_lost(&self, lost: bool) {
        self.network.answers_lost.store(lost, Ordering::SeqCst);
    }

    /// Grants the last segment once more.
    pub fn rewind_once(&self) {
        self.network.rewinds.store(true, Ordering::SeqCst);
    }

    /// Answers once what is no interval, with the greatest end there is.
    pub fn malform_once(&self) {
        self.network.malforms.store(true, Ordering::SeqCst);
    }

    /// Holds all requests back, or lets them through.
    pub fn hold(&self, held: bool) {
        self.network.held.store(held, Ordering::SeqCst);
        self.network.gate.notify_waiters();
    }

    /// How many requests came, held back or not.
    pub fn arrivals(&self) -> u64 {
        self.network.arrivals.load(Ordering::SeqCst)
    }

    /// How many allocations reached the store.
    pub fn allocations(&self) -> u64 {
        self.network.allocations.load(Ordering::SeqCst)
    }

    /// The most requests to give tails back that were under way at a time.
    pub fn releases_at_once(&self) -> u64 {
        self.network.releases_max.load(Ordering::SeqCst)
    }

    async fn count_release<T>(&self, release: impl Future<Output = T>) -> T {
        let under_way = self.network.releases.fetch_add(1, Ordering::SeqCst) + 1;
        self.network.releases_max.fetch_max(under_way, Ordering::SeqCst);
        let answer = release.await;
        self.network.releases.fetch_sub(1, Ordering::SeqCst);
        answer
    }

    async fn arrive(&self) -> Result<(), StoreError> {
        self.network.arrivals.fetch_add(1, Ordering::SeqCst);
        loop {
            let passed = self.network.gate.notified();
            if !self.network.held.load(Ordering::SeqCst) {
                break;
            }
            passed.await;
        }
        let delay_ms = self.network.delay_ms.load(Ordering::SeqCst);
        if delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        }
        let budget = self.network.budget.lock().unwrap().clone();
        let is_spent = budget.is_some_and(|budget| {
            budget.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err()
        });
        if is_spent || self.network.down.load(Ordering::SeqCst) {
            return Err(StoreError::unavailable("connection refused".to_owned()));
        }
        Ok(())
    }

    fn leave<T>(&self, answer: T) -> Result<T, StoreError> {
        if self.network.answers_lost.load(Ordering::SeqCst) {
            return Err(StoreError::outcome_unknown("connection reset".to_owned()));
        }
        Ok(answer)
    }
}

#[async_trait]
impl SegmentStore for FaultyStore {
    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        self.arrive().await?;
        self.network.allocations.fetch_add(1, Ordering::SeqCst);
        if self.network.rewinds.swap(false, Ordering::SeqCst)
            && let Some(last) = *self.network.last.lock().unwrap()
        {
            return Ok(last);
        }
        let segment = self.inner.allocate(tag, count, at_least).await?;
        if self.network.malforms.swap(false, Ordering::SeqCst) {
            return Ok(Segment { start: 0, end: u64::MAX, ..segment });
        }
        *self.network.last.lock().unwrap() = Some(segment);
        self.leave(segment)
    }

    async fn release(&self, tag: &str, tail: TailRelease) -> Result<bool, StoreError> {
        self.count_release(async {
            self.arrive().await?;
            let released = SegmentStore::release(&self.inner, tag, tail).await?;
            self.leave(released)
        })
        .await
    }

    async fn release_many(&self, tails: Vec<(String, TailRelease)>) -> TailsReleased {
        let count = tails.len();
        let released = self.count_release(async {
            self.arrive().await?;
            self.leave(self.inner.release_many(tails).await)
        });
        released.await.unwrap_or_else(|error| {
            let mut released = TailsReleased::default();
            released.failed(count, error);
            released
        })
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.arrive().await?;
        let answer = self.inner.open_tag(tag).await?;
        self.leave(answer)
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.arrive().await?;
        let answer = self.inner.tag(tag).await?;
        self.leave(answer)
    }

    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        self.arrive().await?;
        let answer = SegmentStore::identity(&self.inner).await?;
        self.leave(answer)
    }

    async fn create_tag(&self, tag: &str, options: &TagOptions) -> Result<TagRecord, StoreError> {
        self.arrive().await?;
        let answer = self.inner.create_tag(tag, options).await?;
        self.leave(answer)
    }

    async fn change_tag(&self, tag: &str, step: StepPolicy, refill: RefillPolicy) -> Result<TagRecord, StoreError> {
        self.arrive().await?;
        let answer = self.inner.change_tag(tag, step, refill).await?;
        self.leave(answer)
    }

    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        self.arrive().await?;
        let answer = self.inner.raise_tag(tag, next).await?;
        self.leave(answer)
    }

    async fn retire_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.arrive().await?;
        let answer = self.inner.retire_tag(tag).await?;
        self.leave(answer)
    }

    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        self.arrive().await?;
        let answer = self.inner.tags(after, limit).await?;
        self.leave(answer)
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.arrive().await
    }

    async fn leave_leases(&self, namespace: &str) -> Result<(), StoreError> {
        self.arrive().await?;
        self.inner.leave_leases(namespace).await?;
        self.leave(())
    }

    fn keeps_formats(&self) -> bool {
        true
    }

    async fn stripe(&self) -> Result<Option<Stripe>, StoreError> {
        self.arrive().await?;
        self.inner.stripe().await
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        self.arrive().await?;
        let joined = Self { inner: self.inner.join(stripe)?, network: Arc::clone(&self.network) };
        self.leave(JoinedStripe { store: Arc::new(joined), numbers: StripeNumbers::Counted })
    }

    async fn restripe(&self, expected: Option<&Stripe>, stripe: Option<&Stripe>) -> Result<(), StoreError> {
        self.arrive().await?;
        self.inner.restripe(expected, stripe).await?;
        self.leave(())
    }
}

#[async_trait]
impl LeaseStore for FaultyStore {
    async fn acquire(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError> {
        self.arrive().await?;
        let lease = self.inner.acquire(acquire).await?;
        self.leave(lease)
    }

    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        self.arrive().await?;
        let lease = self.inner.extend(extend).await?;
        self.leave(lease)
    }

    async fn release(&self, namespace: &str, worker: u32, grant_id: GrantId, end_ms: u64) -> Result<bool, StoreError> {
        self.arrive().await?;
        let released = LeaseStore::release(&self.inner, namespace, worker, grant_id, end_ms).await?;
        self.leave(released)
    }

    async fn forbid_extension(&self, namespace: &str, worker: u32) -> Result<Option<LeaseRecord>, StoreError> {
        self.inner.forbid_extension(namespace, worker).await
    }

    async fn leases(&self, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        self.inner.leases(namespace).await
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        self.inner.namespaces().await
    }
}
