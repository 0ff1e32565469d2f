//! Servers with the reference store in them, and clients that reach them over the network.

use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;
use tokio::time::timeout;
use unalike_memory::{MemoryOptions, MemoryStore};
use unalike_storage::{
    GrantId, JoinedStripe, Lease, LeaseAcquire, LeaseExtend, LeaseLimits, LeaseRecord, LeaseStore, RefillPolicy,
    Segment, SegmentStore, StepPolicy, StoreError, StoreIdentity, Stripe, StripeNumbers, TagOptions, TagRecord,
    TailRelease,
};

use super::processes::Machine;
use super::world::{BEGINNING_MS, World, chance};
use super::{Defect, Plan};

/// The namespace's longest horizon, in milliseconds: for so long no lease starts after a loss.
pub(crate) const MAX_HORIZON_MS: u64 = 6_000;

/// How far the clock of a store of leases is off at most, in milliseconds.
const CLOCK_MAX_MS: i64 = 1_000;

/// After this time a client no longer waits for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// What an address leads to.
pub(crate) struct Service {
    world: Weak<World>,
    pub(crate) number: u8,
    /// How far its server's clock is off, in milliseconds.
    clock: Arc<AtomicI64>,
    random: Arc<Mutex<fastrand::Rng>>,
    server: Mutex<Server>,
}

struct Server {
    store: MemoryStore,
    /// What the server itself says of its data's history: another one after a promotion.
    history: u64,
    /// What is recorded in the data.
    recorded: u64,
    /// It is not there until then.
    down_until_ms: u64,
    /// It does not answer until then.
    paused_until_ms: u64,
    /// What is on its disk, where it answers before that.
    flushed: Option<(u64, MemoryStore)>,
}

/// The data of a server as they were.
pub(crate) struct Snapshot {
    store: MemoryStore,
    recorded: u64,
}

impl Service {
    pub(super) fn new(world: Weak<World>, plan: &Plan, number: u8) -> Self {
        let random = chance(plan.seed(), ("store", number));
        let (clock, random) = (Arc::new(AtomicI64::new(0)), Arc::new(Mutex::new(random)));
        let store = MemoryStore::new(options(&world, &clock, &random));
        let server = Server { store, history: 1, recorded: 1, down_until_ms: 0, paused_until_ms: 0, flushed: None };
        Self { world, number, clock, random, server: Mutex::new(server) }
    }

    fn world(&self) -> Arc<World> {
        self.world.upgrade().unwrap()
    }

    fn options(&self) -> MemoryOptions {
        options(&self.world, &self.clock, &self.random)
    }

    /// Its data as they are.
    pub(crate) fn copy(&self) -> Snapshot {
        let server = self.server.lock().unwrap();
        Snapshot { store: server.store.copy(self.options()).unwrap(), recorded: server.recorded }
    }

    /// Another server takes over, with data of before.
    pub(crate) fn fail_over(&self, copy: Snapshot) {
        let mut server = self.server.lock().unwrap();
        server.store = copy.store;
        server.recorded = copy.recorded;
        server.history += 1;
        server.flushed = None;
        (server.down_until_ms, server.paused_until_ms) = (0, 0);
    }

    /// Nobody is there until then; what was committed stays.
    pub(crate) fn kill(&self, until_ms: u64) {
        let mut server = self.server.lock().unwrap();
        server.down_until_ms = until_ms;
        if let Some((_, flushed)) = server.flushed.take() {
            server.store = flushed;
        }
    }

    pub(crate) fn pause(&self, until_ms: u64) {
        self.server.lock().unwrap().paused_until_ms = until_ms;
    }

    /// Steps the server's clock. That of a store of leases stays within what its operator allows for.
    pub(crate) fn step_clock(&self, by_ms: i64) {
        let stepped_ms = self.clock.load(Ordering::Relaxed) + by_ms;
        let is_of_leases = self.number == self.world().plan.scene().lease_store();
        self.clock.store(
            if is_of_leases { stepped_ms.clamp(-CLOCK_MAX_MS, CLOCK_MAX_MS) } else { stepped_ms },
            Ordering::Relaxed,
        );
    }

    /// The server's clock, in Unix milliseconds.
    pub(crate) fn clock_ms(&self) -> u64 {
        (BEGINNING_MS + self.world().now_ms()).saturating_add_signed(self.clock.load(Ordering::Relaxed))
    }

    /// Everything works again.
    pub(crate) fn mend(&self) {
        let mut server = self.server.lock().unwrap();
        (server.down_until_ms, server.paused_until_ms) = (0, 0);
        self.clock.store(0, Ordering::Relaxed);
    }

    /// Whether it is another server than the recorded one, and the store in it, for its operator.
    pub(crate) fn is_another(&self) -> bool {
        let server = self.server.lock().unwrap();
        server.history != server.recorded
    }

    /// Its operator says that everything was lifted, and that it is the one to use.
    pub(crate) fn adopt(&self) {
        let mut server = self.server.lock().unwrap();
        server.recorded = server.history;
    }

    /// The store itself, for its operator.
    pub(crate) fn store(&self) -> MemoryStore {
        self.server.lock().unwrap().store.clone()
    }

    /// Whom a program that begins now would know.
    fn look(&self, now_ms: u64) -> Result<u64, StoreError> {
        let server = self.server.lock().unwrap();
        if now_ms < server.down_until_ms {
            return Err(refused_connection());
        }
        if server.history != server.recorded && !self.world().has(Defect::AddressIsIdentity) {
            return Err(another());
        }
        Ok(server.history)
    }

    /// The store, if it is the one that is expected: what stands in each statement that grants.
    fn fenced(&self, expected: u64, now_ms: u64) -> Result<MemoryStore, StoreError> {
        let world = self.world();
        let mut server = self.server.lock().unwrap();
        if now_ms < server.down_until_ms {
            return Err(refused_connection());
        }
        let is_looked_at = !world.has(Defect::AddressIsIdentity) && !world.has(Defect::LookedAtOnce);
        if is_looked_at && (server.history != expected || server.recorded != expected) {
            return Err(another());
        }
        if world.has(Defect::AnswersBeforeCommit) {
            let is_due = server.flushed.as_ref().is_none_or(|(at_ms, _)| at_ms + 1_000 <= now_ms);
            if is_due {
                let flushed = server.store.copy(self.options()).unwrap();
                server.flushed = Some((now_ms, flushed));
            }
        }
        Ok(server.store.clone())
    }

    async fn wait_while_paused(&self) {
        loop {
            let paused_until_ms = self.server.lock().unwrap().paused_until_ms;
            let world = self.world();
            if paused_until_ms <= world.now_ms() {
                return;
            }
            world.until(paused_until_ms).await;
        }
    }
}

fn refused_connection() -> StoreError {
    StoreError::unavailable("connection refused".to_owned())
}

fn another() -> StoreError {
    StoreError::refused("it is another server than before".to_owned())
}

/// A store whose clock and chance are the world's.
fn options(world: &Weak<World>, clock: &Arc<AtomicI64>, random: &Arc<Mutex<fastrand::Rng>>) -> MemoryOptions {
    let (world, clock, random) = (world.clone(), Arc::clone(clock), Arc::clone(random));
    MemoryOptions {
        limits: LeaseLimits { max_horizon_ms: MAX_HORIZON_MS, ..LeaseLimits::default() },
        clock: Arc::new(move || {
            let true_ms = BEGINNING_MS + world.upgrade().map_or(0, |world| world.now_ms());
            true_ms.saturating_add_signed(clock.load(Ordering::Relaxed))
        }),
        random: Arc::new(move || random.lock().unwrap().u64(..)),
        ..MemoryOptions::default()
    }
}

type Answer<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// A client of one program.
#[derive(Clone)]
pub(crate) struct Client {
    world: Arc<World>,
    service: Arc<Service>,
    machine: Arc<Machine>,
    chance: Arc<Mutex<fastrand::Rng>>,
    /// Whom it knows, since it was first used.
    known: Arc<Mutex<Option<u64>>>,
    joined: Option<Stripe>,
}

impl Client {
    /// A client of a store, by number.
    pub(crate) fn new(world: &Arc<World>, store: u8, machine: &Arc<Machine>, process: u64) -> Self {
        Self {
            world: Arc::clone(world),
            service: Arc::clone(world.services.get(usize::from(store)).unwrap()),
            machine: Arc::clone(machine),
            chance: Arc::new(Mutex::new(world.chance(("client", store, process)))),
            known: Arc::default(),
            joined: None,
        }
    }

    /// Carries a request over the network and its answer back.
    async fn ask<T: Send + 'static>(
        &self,
        request: impl Fn(MemoryStore) -> Answer<T> + Send + Sync + 'static,
    ) -> Result<T, StoreError> {
        self.machine.go().await;
        let mut chance = self.chance.lock().unwrap().fork();
        let journey = self.world.journey(self.machine.host(), self.service.number, &mut chance);
        let (answer, answered) = oneshot::channel();
        let client = self.clone();
        // What is on its way arrives whether its sender lives or not.
        drop(tokio::spawn(async move {
            let Some(there_ms) = journey.there_ms else {
                client.world.sleep(60_000).await;
                return drop(answer);
            };
            client.world.sleep(there_ms).await;
            let done = client.carry_out(&request).await;
            if let Some(again_ms) = journey.again_ms {
                client.world.sleep(again_ms).await;
                // Its answer reaches nobody.
                drop(client.carry_out(&request).await);
            }
            let Some(back_ms) = journey.back_ms else {
                client.world.sleep(60_000).await;
                return drop(answer);
            };
            client.world.sleep(back_ms).await;
            let _ = answer.send(done);
        }));
        match timeout(ANSWER_MAX, answered).await {
            Ok(Ok(answer)) => answer,
            _ => Err(StoreError::outcome_unknown("no answer in time".to_owned())),
        }
    }

    async fn carry_out<T>(&self, request: &(impl Fn(MemoryStore) -> Answer<T> + Sync)) -> Result<T, StoreError> {
        self.service.wait_while_paused().await;
        let now_ms = self.world.now_ms();
        let known = *self.known.lock().unwrap();
        let known = match known {
            Some(known) => known,
            None => *self.known.lock().unwrap().insert(self.service.look(now_ms)?),
        };
        let store = self.service.fenced(known, now_ms)?;
        request(match &self.joined {
            Some(stripe) => store.joined_as(stripe),
            None => store,
        })
        .await
    }
}

#[async_trait]
impl SegmentStore for Client {
    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        let tag = tag.to_owned();
        self.ask(move |store| {
            let tag = tag.clone();
            Box::pin(async move { store.allocate(&tag, count, at_least).await })
        })
        .await
    }

    async fn release(&self, tag: &str, mut tail: TailRelease) -> Result<bool, StoreError> {
        let tag = tag.to_owned();
        let world = Arc::clone(&self.world);
        let again_ms = self.chance.lock().unwrap().u64(1..300);
        self.ask(move |store| {
            let (tag, world) = (tag.clone(), Arc::clone(&world));
            Box::pin(async move {
                if !world.has(Defect::TailByNumber) {
                    return SegmentStore::release(&store, &tag, tail).await;
                }
                // By a driver that sends it again.
                for after_ms in [0, again_ms] {
                    world.sleep(after_ms).await;
                    tail.version = store.tag(&tag).await?.version;
                    SegmentStore::release(&store, &tag, tail).await?;
                }
                Ok(true)
            })
        })
        .await
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        let tag = tag.to_owned();
        self.ask(move |store| {
            let tag = tag.clone();
            Box::pin(async move { store.open_tag(&tag).await })
        })
        .await
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        let tag = tag.to_owned();
        self.ask(move |store| {
            let tag = tag.clone();
            Box::pin(async move { store.tag(&tag).await })
        })
        .await
    }

    async fn create_tag(&self, tag: &str, options: &TagOptions) -> Result<TagRecord, StoreError> {
        let (tag, options) = (tag.to_owned(), *options);
        self.ask(move |store| {
            let tag = tag.clone();
            Box::pin(async move { store.create_tag(&tag, &options).await })
        })
        .await
    }

    async fn change_tag(&self, tag: &str, step: StepPolicy, refill: RefillPolicy) -> Result<TagRecord, StoreError> {
        let tag = tag.to_owned();
        self.ask(move |store| {
            let tag = tag.clone();
            Box::pin(async move { store.change_tag(&tag, step, refill).await })
        })
        .await
    }

    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        let tag = tag.to_owned();
        self.ask(move |store| {
            let tag = tag.clone();
            Box::pin(async move { store.raise_tag(&tag, next).await })
        })
        .await
    }

    async fn retire_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        let tag = tag.to_owned();
        self.ask(move |store| {
            let tag = tag.clone();
            Box::pin(async move { store.retire_tag(&tag).await })
        })
        .await
    }

    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        let after = after.map(ToOwned::to_owned);
        self.ask(move |store| {
            let after = after.clone();
            Box::pin(async move { store.tags(after.as_deref(), limit).await })
        })
        .await
    }

    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        self.ask(|store| Box::pin(async move { SegmentStore::identity(&store).await })).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.ask(|store| Box::pin(async move { store.check().await })).await
    }

    async fn stripe(&self) -> Result<Option<Stripe>, StoreError> {
        self.ask(|store| Box::pin(async move { store.stripe().await })).await
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        let place = *stripe;
        self.ask(move |store| Box::pin(async move { store.join(&place).map(drop) })).await?;
        let joined = Self { joined: Some(place), ..self.clone() };
        Ok(JoinedStripe { store: Arc::new(joined), numbers: StripeNumbers::Counted })
    }

    async fn restripe(&self, expected: Option<&Stripe>, stripe: Option<&Stripe>) -> Result<(), StoreError> {
        let (expected, stripe) = (expected.copied(), stripe.copied());
        // The last record of a resize is a place, or none.
        let is_last = stripe.as_ref().is_none_or(|stripe| !stripe.is_mark());
        let is_compared = !(is_last && self.world.has(Defect::MarksNotCompared));
        self.ask(move |store| {
            Box::pin(async move {
                let expected = if is_compared { expected } else { store.stripe().await? };
                store.restripe(expected.as_ref(), stripe.as_ref()).await
            })
        })
        .await
    }
}

#[async_trait]
impl LeaseStore for Client {
    async fn acquire(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError> {
        let acquire = acquire.clone();
        self.ask(move |store| {
            let acquire = acquire.clone();
            Box::pin(async move { store.acquire(&acquire).await })
        })
        .await
    }

    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        let extend = extend.clone();
        self.ask(move |store| {
            let extend = extend.clone();
            Box::pin(async move { store.extend(&extend).await })
        })
        .await
    }

    async fn release(&self, namespace: &str, worker: u32, grant_id: GrantId, end_ms: u64) -> Result<bool, StoreError> {
        let namespace = namespace.to_owned();
        self.ask(move |store| {
            let namespace = namespace.clone();
            Box::pin(async move { LeaseStore::release(&store, &namespace, worker, grant_id, end_ms).await })
        })
        .await
    }

    async fn forbid_extension(&self, namespace: &str, worker: u32) -> Result<Option<LeaseRecord>, StoreError> {
        let namespace = namespace.to_owned();
        self.ask(move |store| {
            let namespace = namespace.clone();
            Box::pin(async move { store.forbid_extension(&namespace, worker).await })
        })
        .await
    }

    async fn leases(&self, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        let namespace = namespace.to_owned();
        self.ask(move |store| {
            let namespace = namespace.clone();
            Box::pin(async move { store.leases(&namespace).await })
        })
        .await
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        self.ask(|store| Box::pin(async move { store.namespaces().await })).await
    }
}
