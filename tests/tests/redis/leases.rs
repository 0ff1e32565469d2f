//! Worker leases in a real Redis, by itself and with a durable store behind it: the contract, and that no two intervals
//! of one worker overlap whatever Redis loses.

#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tempfile::TempDir;
use unalike::{Ids, SnowflakeOptions};
use unalike_memory::{MemoryOptions, MemoryStore};
use unalike_redis::{Backing, RedisLeases, RedisOptions, RedisStore};
use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_storage::contract::{self, Fixture, LeaseFixture};
use unalike_storage::{
    FieldOrder, GrantId, Layout, LayoutFields, Lease, LeaseAcquire, LeaseExtend, LeaseLimits, LeaseRecord, LeaseStore,
    SegmentStore, StoreError, TagCreation, lock,
};
use unalike_tests::PATIENCE;
use unalike_tests::faulty::FaultyStore;
use unalike_tests::leases::{assert_disjoint, now_ms};
use unalike_tests::proxy::Proxy;
use unalike_tests::redis::{Persistence, Program, Redis};

/// Longer than this machine is ever busy with something else.
const PATIENT: &str = "connect-timeout-ms=20000&request-timeout-ms=20000&raise-timeout-ms=20000";

fn options(url: &str, limits: LeaseLimits) -> RedisOptions {
    let mut options = RedisOptions::from_url(&format!("{url}&{PATIENT}")).unwrap();
    options.limits = limits;
    options
}

// The contract.

/// A server, and a file that keeps its bounds.
struct UnderSqlite {
    redis: Mutex<Redis>,
    directory: TempDir,
}

impl UnderSqlite {
    fn start(persistence: Persistence) -> Self {
        Self::start_program(Program::Redis, persistence)
    }

    fn start_program(program: Program, persistence: Persistence) -> Self {
        let redis = Redis::start_program(program, persistence, &[]).unwrap();
        Self { redis: Mutex::new(redis), directory: TempDir::new().unwrap() }
    }
}

#[async_trait]
impl Fixture for UnderSqlite {
    async fn restart(&self) {
        lock(&self.redis).restart().unwrap();
    }
}

#[async_trait]
impl LeaseFixture for UnderSqlite {
    async fn lease_client(&self, limits: LeaseLimits) -> Arc<dyn LeaseStore> {
        let durable = SqliteStore::connect(SqliteOptions::new(self.directory.path().join("ids.sqlite"))).await.unwrap();
        let options = options(&lock(&self.redis).url(0, ""), limits);
        Arc::new(RedisLeases::connect(options, Backing::Durable(Arc::new(durable))).await.unwrap())
    }

    fn forgets_in_a_restart(&self) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_under_a_durable_store_keeps_the_contract_though_it_keeps_nothing() {
    contract::leases(&UnderSqlite::start(Persistence::Nothing)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_under_a_durable_store_keeps_the_contract_and_what_it_persists() {
    contract::leases(&UnderSqlite::start(Persistence::AofAlways)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn valkey_under_a_durable_store_keeps_the_contract() {
    contract::leases(&UnderSqlite::start_program(Program::Valkey, Persistence::Nothing)).await;
}

/// A server alone, whose namespaces are initialised before they are used first.
struct Alone {
    redis: Mutex<Redis>,
    initialised: Arc<Mutex<HashSet<String>>>,
}

impl Alone {
    fn start(persistence: Persistence) -> Self {
        Self { redis: Mutex::new(Redis::start(persistence).unwrap()), initialised: Arc::default() }
    }
}

#[async_trait]
impl Fixture for Alone {
    async fn restart(&self) {
        lock(&self.redis).restart().unwrap();
    }
}

#[async_trait]
impl LeaseFixture for Alone {
    async fn lease_client(&self, limits: LeaseLimits) -> Arc<dyn LeaseStore> {
        let options = options(&lock(&self.redis).url(0, ""), limits);
        let leases = RedisLeases::connect(options.clone(), Backing::RedisAlone).await.unwrap();
        Arc::new(Initialised { leases, options, initialised: Arc::clone(&self.initialised) })
    }

    fn forgets_in_a_restart(&self) -> bool {
        true
    }
}

/// Leases of namespaces that are initialised, once, when a request finds that they are not.
struct Initialised {
    leases: RedisLeases,
    options: RedisOptions,
    initialised: Arc<Mutex<HashSet<String>>>,
}

#[async_trait]
impl LeaseStore for Initialised {
    async fn acquire(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError> {
        let answer = self.leases.acquire(acquire).await;
        if !matches!(answer, Err(StoreError::Quarantined { .. })) {
            return answer;
        }
        let namespace = acquire.namespace.as_str();
        if lock(&self.initialised).insert(namespace.to_owned()) {
            assert!(RedisLeases::initialise(&self.options, namespace, acquire.layout).await?, "it is new");
        }
        self.leases.acquire(acquire).await
    }

    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        self.leases.extend(extend).await
    }

    async fn release(&self, namespace: &str, worker: u32, grant_id: GrantId, end_ms: u64) -> Result<bool, StoreError> {
        self.leases.release(namespace, worker, grant_id, end_ms).await
    }

    async fn forbid_extension(&self, namespace: &str, worker: u32) -> Result<Option<LeaseRecord>, StoreError> {
        self.leases.forbid_extension(namespace, worker).await
    }

    async fn leases(&self, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        self.leases.leases(namespace).await
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        self.leases.namespaces().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_alone_keeps_the_contract_though_it_keeps_nothing() {
    contract::leases(&Alone::start(Persistence::Nothing)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_alone_keeps_the_contract_and_what_it_persists() {
    contract::leases(&Alone::start(Persistence::AofAlways)).await;
}

// What all other tests begin with.

/// The only namespace, its hash, and under which tag a durable store grants its time.
/// What most clients allow: more than any of them asks for.
const LIMITS: LeaseLimits = LeaseLimits { max_horizon_ms: 86_400_000, max_skew_ms: 10_000 };

const NAMESPACE: &str = "ns";
const KEY: &str = "unalike:leases:{ns}";
const TIME: &str = "redis-leases\u{1f}ns";

/// Two workers, in ticks of 1 ms.
const LAYOUT: Layout = two_workers(1);

const fn two_workers(tick_ms: u32) -> Layout {
    let fields = LayoutFields {
        timestamp_bits: 41,
        datacenter_bits: 0,
        worker_bits: 1,
        sequence_bits: 12,
        order: FieldOrder::WorkerFirst,
        epoch_ms: 1_577_836_800_000,
        tick_ms,
    };
    match Layout::new(fields) {
        Ok(layout) => layout,
        Err(_) => panic!("a layout"),
    }
}

/// What stands behind Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    Nothing,
    Durable,
}

const BOTH: [Behind; 2] = [Behind::Nothing, Behind::Durable];

/// A server, what stands behind it, and the clock that it and all holders have.
struct World {
    redis: Redis,
    durable: Arc<FaultyStore>,
    behind: Behind,
    ahead_ms: AtomicI64,
}

impl World {
    fn of(redis: Redis, behind: Behind) -> Self {
        Self { redis, durable: Arc::default(), behind, ahead_ms: AtomicI64::new(0) }
    }

    fn start(behind: Behind) -> Self {
        Self::of(Redis::start(Persistence::AofAlways).unwrap(), behind)
    }

    fn start_with_a_clock(behind: Behind, persistence: Persistence) -> Self {
        Self::of(Redis::start_with_a_clock(persistence).unwrap(), behind)
    }

    /// Sets the clock to this time.
    fn set_clock(&self, at_ms: u64) {
        let ahead_ms = at_ms.cast_signed() - now_ms().cast_signed();
        self.redis.set_clock(ahead_ms).unwrap();
        self.ahead_ms.store(ahead_ms, Ordering::SeqCst);
    }

    fn now_ms(&self) -> u64 {
        now_ms().checked_add_signed(self.ahead_ms.load(Ordering::SeqCst)).unwrap()
    }

    fn watermark(&self) -> Backing {
        match self.behind {
            Behind::Nothing => Backing::RedisAlone,
            Behind::Durable => Backing::Durable(Arc::clone(&self.durable) as Arc<dyn SegmentStore>),
        }
    }

    async fn client_at(&self, url: &str, limits: LeaseLimits) -> RedisLeases {
        RedisLeases::connect(options(url, limits), self.watermark()).await.unwrap()
    }

    async fn client(&self) -> RedisLeases {
        self.client_at(&self.redis.url(0, ""), LIMITS).await
    }

    /// A client of a namespace that needs no quarantine.
    async fn ready_client(&self) -> RedisLeases {
        if self.behind == Behind::Nothing {
            assert!(self.initialise().await.unwrap());
        }
        self.client().await
    }

    async fn initialise(&self) -> Result<bool, StoreError> {
        RedisLeases::initialise(&options(&self.redis.url(0, ""), LIMITS), NAMESPACE, LAYOUT).await
    }

    fn request(&self, holder: &str, horizon_ms: u64) -> LeaseAcquire {
        LeaseAcquire {
            namespace: NAMESPACE.to_owned(),
            layout: LAYOUT,
            holder: holder.to_owned(),
            preferred_worker: None,
            now_ms: self.now_ms(),
            horizon_ms,
        }
    }

    async fn acquire(&self, client: &RedisLeases, holder: &str, horizon_ms: u64) -> Result<Lease, StoreError> {
        client.acquire(&self.request(holder, horizon_ms)).await
    }

    async fn extend(&self, client: &RedisLeases, lease: &Lease, horizon_ms: u64) -> Result<Lease, StoreError> {
        let extend = LeaseExtend {
            namespace: NAMESPACE.to_owned(),
            layout: LAYOUT,
            worker: lease.worker,
            grant_id: lease.grant_id,
            now_ms: self.now_ms(),
            horizon_ms,
        };
        client.extend(&extend).await
    }

    /// All fields, in one order.
    fn hash(&self) -> String {
        let script = "local all = redis.call('HGETALL', KEYS[1]) local texts = {} \
            for i = 1, #all, 2 do texts[#texts + 1] = all[i] .. '=' .. all[i + 1] end \
            table.sort(texts) return table.concat(texts, '\\n')";
        self.redis.cli(&["EVAL", script, "1", KEY]).unwrap()
    }

    fn bound_ms(&self) -> u64 {
        self.redis.cli(&["HGET", KEY, "bound_ms"]).unwrap().parse().unwrap()
    }

    /// Up to where the durable store granted time.
    async fn granted_until_ms(&self) -> u64 {
        self.durable.inner().tag(TIME).await.unwrap().watermark + 1
    }
}

async fn release(client: &RedisLeases, lease: &Lease, end_ms: u64) -> Result<bool, StoreError> {
    client.release(NAMESPACE, lease.worker, lease.grant_id, end_ms).await
}

/// Asks until the connection is there.
async fn answer<T>(mut ask: impl AsyncFnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Err(StoreError::Unavailable { .. }) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            answer => return answer,
        }
    }
}

/// Acquires when the quarantine has ended.
async fn acquired(world: &World, client: &RedisLeases, holder: &str, horizon_ms: u64) -> Lease {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match world.acquire(client, holder, horizon_ms).await {
            Ok(lease) => return lease,
            Err(error) if error.is_retryable() => {}
            Err(StoreError::WorkersExhausted { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
        assert!(Instant::now() < deadline, "no lease is granted");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn quarantined_until<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> u64 {
    match answer {
        Err(error @ StoreError::Quarantined { until_ms, .. }) => {
            assert!(error.is_retryable() && !error.may_have_granted(), "{error:?}");
            until_ms
        }
        other => panic!("it must be in quarantine, but: {other:?}"),
    }
}

fn is_lost<T: std::fmt::Debug>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::LeaseLost { .. }))
}

/// Makes it another incarnation, with all its data and in the same process.
fn become_another(redis: &Redis) {
    redis.cli(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
    redis.cli(&["REPLICAOF", "NO", "ONE"]).unwrap();
}

// Quarantine.

/// How long leases of Redis alone may run, and how far clocks may be apart.
const QUARANTINE_MS: u64 = RedisLeases::ALONE_HORIZON_MAX_MS + 10_000;

#[tokio::test(flavor = "multi_thread")]
async fn the_first_use_of_redis_alone_waits_unless_a_command_says_that_it_is_new() {
    let world = World::start(Behind::Nothing);
    let client = world.client().await;
    let before_ms = now_ms();
    let until_ms = quarantined_until(world.acquire(&client, "a", 1_000).await);
    assert!((before_ms + QUARANTINE_MS..=now_ms() + QUARANTINE_MS).contains(&until_ms), "{until_ms} {before_ms}");
    let hash = world.hash();
    for client in [client.clone(), world.client().await] {
        assert_eq!(quarantined_until(world.acquire(&client, "b", 60_000).await), until_ms, "it is not prolonged");
    }
    assert_eq!(world.hash(), hash, "it is recorded once");
    assert_eq!(client.leases(NAMESPACE).await.unwrap(), []);

    assert!(world.initialise().await.unwrap(), "nothing was granted yet");
    let lease = world.acquire(&client, "a", 1_000).await.unwrap();
    assert!(lease.valid_until_ms <= now_ms() + 1_000, "{lease:?}");
    let hash = world.hash();
    assert!(!world.initialise().await.unwrap(), "now something was");
    assert_eq!(world.hash(), hash);

    let at = options(&world.redis.url(0, ""), LIMITS);
    let other = RedisLeases::initialise(&at, NAMESPACE, two_workers(10)).await;
    assert!(matches!(other, Err(StoreError::LayoutMismatch { .. })), "{other:?}");
    world.redis.cli(&["DEL", KEY]).unwrap();
    assert!(world.initialise().await.unwrap());
    assert!(!world.initialise().await.unwrap(), "once");
    world.acquire(&client, "a", 1_000).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_ends_no_quarantine_after_a_loss() {
    let mut world = World::start(Behind::Nothing);
    let client = world.ready_client().await;
    world.acquire(&client, "a", 60_000).await.unwrap();
    world.redis.restart().unwrap();
    assert!(!world.initialise().await.unwrap(), "its leases are there to be seen");
    let client = world.client().await;
    let until_ms = quarantined_until(world.acquire(&client, "a", 60_000).await);
    assert!(!world.initialise().await.unwrap(), "it is known that they were there");
    assert_eq!(quarantined_until(world.acquire(&client, "a", 60_000).await), until_ms);
}

/// Loses the leases in this way: nobody is granted anything before all of them have ended, and from then on everything.
async fn nothing_overlaps_after(behind: Behind, persistence: Persistence, lose: impl FnOnce(&mut Redis)) {
    let mut world = World::start_with_a_clock(behind, persistence);
    let client = world.ready_client().await;
    let mut leases = vec![world.acquire(&client, "a", 60_000).await.unwrap()];
    leases.push(world.acquire(&client, "b", 5_000).await.unwrap());
    if persistence == Persistence::Rdb {
        world.redis.cli(&["SAVE"]).unwrap();
    }
    // What an old file does not know.
    leases[1] = world.extend(&client, &leases[1], 90_000).await.unwrap();
    let ends_ms = leases.iter().map(|lease| lease.valid_until_ms).max().unwrap();
    let bound_ms = if behind == Behind::Durable { world.bound_ms() } else { 0 };
    lose(&mut world.redis);

    for lease in &leases {
        let extended = answer(async || world.extend(&client, lease, 90_000).await).await;
        assert!(is_lost(&extended), "a lease in doubt is not extended: {extended:?}");
        assert!(!release(&client, lease, lease.not_before_ms).await.unwrap(), "and ends nothing");
    }
    assert!(client.leases(NAMESPACE).await.unwrap().iter().all(|record| record.is_final), "what is listed is final");
    let before_ms = world.now_ms();
    let until_ms = quarantined_until(world.acquire(&client, "a", 60_000).await);
    assert!(until_ms >= ends_ms, "{until_ms} {leases:?}");
    match behind {
        Behind::Nothing => {
            let promised = before_ms + QUARANTINE_MS..=world.now_ms() + QUARANTINE_MS;
            assert!(promised.contains(&until_ms), "{until_ms} {promised:?}");
        }
        Behind::Durable => {
            assert_eq!(until_ms, bound_ms);
            assert!(until_ms <= world.now_ms() + 90_000 + 45_000, "a horizon and half of it");
        }
    }
    // Again, by another client, and just before its end.
    assert_eq!(quarantined_until(world.acquire(&world.client().await, "b", 1_000).await), until_ms);
    world.set_clock(until_ms - 500);
    match world.acquire(&client, "b", 1_000).await {
        // On a machine that stood still for so long it has ended.
        Ok(lease) => {
            assert!(lease.not_before_ms >= until_ms);
            leases.push(lease);
        }
        quarantined => assert_eq!(quarantined_until(quarantined), until_ms),
    }
    world.set_clock(until_ms + 1_000);
    while leases.len() < 4 {
        leases.push(world.acquire(&client, "c", 60_000).await.unwrap());
    }
    assert_disjoint(&leases);
    let newest = leases[3];
    for lease in &leases[..2] {
        assert!(is_lost(&world.extend(&client, lease, 90_000).await), "and never again");
        assert!(!release(&client, lease, lease.valid_until_ms).await.unwrap());
    }
    world.extend(&client, &newest, 90_000).await.unwrap();
    assert!(release(&client, &newest, newest.not_before_ms).await.unwrap());
}

/// A Redis that shows tomorrow makes nobody's lease look ended to those who saw it step; who comes later knows of no
/// step.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_of_its_clock_ends_nobodys_lease() {
    for behind in BOTH {
        let world = World::start_with_a_clock(behind, Persistence::AofAlways);
        let client = world.ready_client().await;
        let mut leases = Vec::new();
        for holder in ["a", "b"] {
            leases.push(world.acquire(&client, holder, 60_000).await.unwrap());
        }
        let right_ms = now_ms();
        world.set_clock(right_ms + 86_400_000);
        for holder in ["a", "c"] {
            let refused = world.acquire(&client, holder, 60_000).await;
            assert!(matches!(refused, Err(StoreError::WorkersExhausted { .. })), "{refused:?}");
        }
        let later = world.client().await;
        let taken = world.acquire(&later, "d", 60_000).await.unwrap();
        assert!(taken.not_before_ms >= right_ms + 86_400_000, "{taken:?}");
        assert_disjoint([&leases[..], &[taken]].concat());
        // Set right again, the holders go on.
        world.set_clock(now_ms());
        let kept = leases.iter().find(|lease| lease.worker != taken.worker).unwrap();
        world.extend(&client, kept, 60_000).await.unwrap();
    }
}

/// In both ways.
async fn nothing_overlaps_in_both_after(persistence: Persistence, lose: impl Fn(&mut Redis)) {
    for behind in BOTH {
        nothing_overlaps_after(behind, persistence, &lose).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_that_loses_everything() {
    nothing_overlaps_in_both_after(Persistence::Nothing, |redis| redis.restart().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_that_loses_nothing() {
    nothing_overlaps_in_both_after(Persistence::AofAlways, |redis| redis.restart().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_on_an_old_file() {
    nothing_overlaps_in_both_after(Persistence::Rdb, |redis| redis.restart().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_flushed() {
    nothing_overlaps_in_both_after(Persistence::Nothing, |redis| drop(redis.cli(&["FLUSHALL"]).unwrap())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hash_that_is_gone() {
    nothing_overlaps_in_both_after(Persistence::Nothing, |redis| drop(redis.cli(&["DEL", KEY]).unwrap())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_was_a_replica_for_a_while() {
    nothing_overlaps_in_both_after(Persistence::Nothing, |redis| become_another(redis)).await;
}

/// Without a loss: when the first replica comes, and when the last one has been gone for long enough.
#[tokio::test(flavor = "multi_thread")]
async fn leases_of_redis_alone_stand_when_the_first_replica_comes_and_when_the_last_one_is_forgotten() {
    let world = World::start(Behind::Nothing);
    let client = world.ready_client().await;
    let mut lease = world.acquire(&client, "a", 60_000).await.unwrap();
    let incarnation = || world.redis.cli(&["HGET", KEY, "incarnation"]).unwrap();
    let mut known = vec![incarnation()];
    let replica = world.redis.start_replica(Persistence::Nothing).unwrap();
    lease = world.extend(&client, &lease, 70_000).await.unwrap();
    known.push(incarnation());
    // In a process that knows nothing of it.
    world.redis.cli(&["CONFIG", "SET", "repl-backlog-ttl", "1"]).unwrap();
    drop(replica);
    world.redis.wait_until(|info| info.contains("repl_backlog_active:0")).unwrap();
    let client = world.client().await;
    let again = world.acquire(&client, "b", 60_000).await.unwrap();
    known.push(incarnation());
    world.extend(&client, &lease, 80_000).await.unwrap();
    assert_ne!(again.worker, lease.worker);
    known.dedup();
    assert_eq!(known.len(), 3, "its replication id changed twice: {known:?}");
}

/// The traces of having been a replica are gone from `master_replid2`, and not from what it received.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_was_a_replica_some_time_ago_is_told_from_one_that_never_was() {
    let world = World::start(Behind::Nothing);
    let client = world.ready_client().await;
    let lease = world.acquire(&client, "a", 60_000).await.unwrap();
    let other = world.redis.start_replica(Persistence::Nothing).unwrap();
    world.extend(&client, &lease, 70_000).await.unwrap();
    other.cut_off().unwrap();
    // It goes on, and comes back to what the other one had.
    world.extend(&client, &lease, 80_000).await.unwrap();
    other.promote().unwrap();
    world.redis.follow(&other).unwrap();
    world.redis.cli(&["CONFIG", "SET", "repl-backlog-ttl", "1"]).unwrap();
    world.redis.promote().unwrap();
    drop(other);
    world.redis.wait_until(|info| info.contains("repl_backlog_active:0")).unwrap();
    assert_eq!(world.redis.info("master_replid2").unwrap(), "0".repeat(40));
    let until_ms = quarantined_until(answer(async || world.acquire(&client, "b", 1_000).await).await);
    assert!(until_ms >= world.now_ms() + QUARANTINE_MS - 5_000);
    assert!(is_lost(&world.extend(&client, &lease, 90_000).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_horizon_in_an_old_hash_is_not_believed() {
    let mut world = World::of(Redis::start(Persistence::Rdb).unwrap(), Behind::Nothing);
    let (url, namespace) = (world.redis.url(0, ""), NAMESPACE);
    let short = LeaseLimits { max_horizon_ms: 1_000, ..LIMITS };
    assert!(RedisLeases::initialise(&options(&url, short), namespace, LAYOUT).await.unwrap());
    world.redis.cli(&["SAVE"]).unwrap();
    // Bound anew, to a longer one; and then the old file comes back.
    world.redis.cli(&["DEL", KEY]).unwrap();
    let client = world.ready_client().await;
    let lease = world.acquire(&client, "a", u64::MAX).await.unwrap();
    assert!(lease.valid_until_ms > now_ms() + 500_000, "{lease:?}");
    world.redis.restart().unwrap();
    assert!(world.hash().contains("max_horizon_ms=1000"), "{}", world.hash());
    let until_ms = quarantined_until(world.acquire(&world.client().await, "b", 1_000).await);
    assert!(until_ms >= lease.valid_until_ms, "{until_ms} {lease:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_alone_has_horizons_of_10_min_at_most() {
    let world = World::start(Behind::Nothing);
    let client = world.ready_client().await;
    let lease = world.acquire(&client, "a", 86_400_000).await.unwrap();
    let extended = world.extend(&client, &lease, 86_400_000).await.unwrap();
    for lease in [lease, extended] {
        assert!(lease.valid_until_ms <= now_ms() + RedisLeases::ALONE_HORIZON_MAX_MS, "{lease:?}");
    }
    let binding = world.redis.cli(&["HGET", KEY, "binding"]).unwrap();
    let longer = binding.replace("max_horizon_ms=600000", "max_horizon_ms=600001");
    assert_ne!(binding, longer);
    world.redis.cli(&["HSET", KEY, "binding", &longer]).unwrap();
    let error = world.acquire(&client, "b", 1_000).await.unwrap_err();
    assert!(matches!(&error, StoreError::Corrupt { what, .. } if what.contains("600001")), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_promoted_while_it_is_behind() {
    for behind in BOTH {
        let mut world = World::start(behind);
        // The first replica makes its master another incarnation.
        let replica = world.redis.start_replica(Persistence::Nothing).unwrap();
        let client = world.ready_client().await;
        let mut leases = vec![world.acquire(&client, "a", 300).await.unwrap()];
        let deadline = Instant::now() + PATIENCE;
        while replica.cli(&["HEXISTS", KEY, &format!("worker:{}", leases[0].worker)]).unwrap() != "1" {
            assert!(Instant::now() < deadline, "the lease is not replicated");
        }
        replica.cut_off().unwrap();
        leases.push(world.acquire(&client, "b", 400).await.unwrap());
        leases[0] = world.extend(&client, &leases[0], 600).await.unwrap();
        world.redis.kill9().unwrap();
        replica.promote().unwrap();
        let promoted = World { redis: replica, ..world };
        let client = promoted.client().await;
        for lease in &leases {
            assert!(is_lost(&promoted.extend(&client, lease, 60_000).await));
            assert!(!release(&client, lease, lease.not_before_ms).await.unwrap());
        }
        let until_ms = quarantined_until(promoted.acquire(&client, "c", 300).await);
        assert!(leases.iter().all(|lease| lease.valid_until_ms <= until_ms), "{until_ms} {leases:?}");
        if behind == Behind::Durable {
            for holder in ["c", "d"] {
                let lease = acquired(&promoted, &client, holder, 60_000).await;
                assert!(lease.not_before_ms >= until_ms, "{lease:?} {until_ms}");
                leases.push(lease);
            }
            assert_disjoint(&leases);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_masters_under_one_durable_store_never_share_a_ms() {
    let world = World::start(Behind::Durable);
    let replica = world.redis.start_replica(Persistence::Nothing).unwrap();
    let client = world.client().await;
    let mut leases = vec![world.acquire(&client, "a", 300).await.unwrap()];
    replica.promote().unwrap();
    let other = World { durable: Arc::clone(&world.durable), ..World::of(replica, Behind::Durable) };
    let other_client = other.client().await;
    let served = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let mut tasks = Vec::new();
    for (at, (world, client)) in [(world, client), (other, other_client)].into_iter().enumerate() {
        let served = Arc::clone(&served);
        tasks.push(tokio::spawn(async move {
            let (mut leases, deadline) = (Vec::new(), Instant::now() + PATIENCE);
            while served.iter().any(|served| served.load(Ordering::SeqCst) < 3) {
                assert!(Instant::now() < deadline, "both are served: {served:?}");
                if let Ok(lease) = world.acquire(&client, "x", 20).await {
                    served[at].fetch_add(1, Ordering::SeqCst);
                    leases.push(lease);
                }
                tokio::time::sleep(Duration::from_millis(fastrand::u64(1..10))).await;
            }
            leases
        }));
    }
    for task in tasks {
        leases.extend(task.await.unwrap());
    }
    assert_disjoint(&leases);
}

// Time that a durable store grants.

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_reaches_no_further_than_the_time_that_was_granted() {
    let world = World::start(Behind::Durable);
    let client = world.client().await;
    for horizon_ms in [5_000, 3_600_000, 86_400_000] {
        let lease = world.acquire(&client, "a", horizon_ms).await.unwrap();
        let (bound_ms, now_ms) = (world.bound_ms(), now_ms());
        assert!(lease.valid_until_ms > now_ms + horizon_ms - 5_000, "it has all that was asked for: {lease:?}");
        assert!(lease.valid_until_ms <= bound_ms && bound_ms <= world.granted_until_ms().await, "{bound_ms}");
        let most_ms = horizon_ms + (horizon_ms / 2).min(60_000);
        assert!(bound_ms <= now_ms + most_ms, "a lost Redis costs no more than that: {bound_ms} {now_ms}");
        assert!(release(&client, &lease, lease.not_before_ms).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn time_is_granted_before_it_is_short() {
    let world = World::start(Behind::Durable);
    let client = world.client().await;
    let mut lease = world.acquire(&client, "a", 1_000).await.unwrap();
    let allocations = world.durable.allocations();
    // Slower than any request may wait.
    let mut impatient = options(&world.redis.url(0, ""), LIMITS);
    impatient.raise_timeout = Duration::from_millis(1);
    let client = RedisLeases::connect(impatient, world.watermark()).await.unwrap();
    let deadline = now_ms() + 3_000;
    while now_ms() < deadline {
        let asked_ms = now_ms();
        lease = world.extend(&client, &lease, 1_000).await.unwrap();
        assert!(
            lease.valid_until_ms >= asked_ms + 1_000,
            "it is never shorter than was asked for: {lease:?} {asked_ms}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let asked = world.durable.allocations() - allocations;
    assert!((2..=20).contains(&asked), "now and then, and not for each extension: {asked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_durable_store_leases_go_on_to_the_bound() {
    let world = World::start(Behind::Durable);
    let client = world.client().await;
    let first = world.acquire(&client, "a", 800).await.unwrap();
    world.durable.set_down(true);
    let bound_ms = world.bound_ms();
    let (mut lease, mut extensions) = (first, 0);
    let error = loop {
        match world.extend(&client, &lease, 800).await {
            Ok(extended) => lease = extended,
            Err(error) => break error,
        }
        extensions += 1;
        assert!(lease.valid_until_ms <= bound_ms, "not beyond it: {lease:?} {bound_ms}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(lease.valid_until_ms, bound_ms, "and not less");
    assert!(extensions > 10, "{extensions}");
    assert!(error.is_retryable() && !error.may_have_granted(), "{error:?}");
    assert!(error.to_string().contains("the durable store has not granted"), "{error}");
    let short = world.acquire(&client, "b", 800).await.unwrap();
    assert!(short.valid_until_ms <= bound_ms, "{short:?}");
    while now_ms() <= bound_ms {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let none = world.acquire(&client, "c", 800).await.unwrap_err();
    assert!(matches!(none, StoreError::Unavailable { .. }), "{none:?}");

    world.durable.set_down(false);
    let next = answer(async || world.extend(&client, &lease, 800).await).await.unwrap();
    assert_eq!((next.grant_id, next.not_before_ms), (first.grant_id, first.not_before_ms), "the same lease goes on");
    assert!(next.valid_until_ms > bound_ms);
    assert_disjoint([next, short, acquired(&world, &client, "d", 800).await]);
}

#[tokio::test(flavor = "multi_thread")]
async fn time_that_was_granted_and_got_lost_is_nobodys() {
    let world = World::start(Behind::Durable);
    let client = world.client().await;
    let first = world.acquire(&client, "a", 500).await.unwrap();
    let bound_ms = world.bound_ms();
    let mut lease = first;
    // As if an answer had been lost, or as another Redis does.
    world.durable.inner().allocate(TIME, 700, 0).await.unwrap();
    let (lost_until_ms, allocations) = (world.granted_until_ms().await, world.durable.allocations());
    assert_eq!(lost_until_ms, bound_ms + 700);
    // What is left is used first.
    let error = loop {
        match world.extend(&client, &lease, 2_000).await {
            Ok(extended) => lease = extended,
            Err(error) if lease.valid_until_ms == bound_ms => break error,
            Err(_) => {}
        }
        assert!(lease.valid_until_ms <= bound_ms, "nothing is stamped of what was lost: {lease:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert!(error.is_retryable(), "{error:?}");
    assert_eq!(world.durable.allocations(), allocations, "and no more is lost");
    while now_ms() < bound_ms {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let next = acquired(&world, &client, "b", 500).await;
    assert!(next.not_before_ms >= lost_until_ms, "{next:?} {lost_until_ms}");
    assert!(is_lost(&world.extend(&client, &lease, 500).await), "no lease reaches across it");
    assert_disjoint([lease, next]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_whose_time_is_over_is_told_so_and_gets_a_lease_anew() {
    let world = World::start(Behind::Durable);
    let client = world.client().await;
    let lease = world.acquire(&client, "a", 500).await.unwrap();
    let bound_ms = world.bound_ms();
    world.durable.inner().allocate(TIME, 700, 0).await.unwrap();
    let lost_until_ms = world.granted_until_ms().await;
    while now_ms() <= bound_ms {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Neither waits for what will never come.
    let began = Instant::now();
    let extended = world.extend(&client, &lease, 500).await;
    assert!(is_lost(&extended), "{extended:?}");
    // With a clock that is behind, the time that is over is no place for a lease either.
    let mut request = world.request("a", 500);
    request.now_ms = bound_ms - 200;
    let until_ms = match client.acquire(&request).await {
        Ok(lease) => lease.not_before_ms,
        error => quarantined_until(error),
    };
    assert!(until_ms >= lost_until_ms, "{until_ms} {lost_until_ms}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let next = acquired(&world, &client, "a", 500).await;
    assert!(next.not_before_ms >= lost_until_ms, "{next:?} {lost_until_ms}");
    assert_disjoint([lease, next]);
}

/// Whoever starts a server with these leases and gives Redis the numbers of all tags beforehand.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_that_are_got_beforehand_are_no_time_of_leases() {
    let world = World::start(Behind::Durable);
    let client = world.client().await;
    let lease = world.acquire(&client, "a", 60_000).await.unwrap();
    world.durable.inner().allocate("zebra", 1, 0).await.unwrap();
    world.durable.inner().allocate("order\u{1f}redis-clock:7", 1, 0).await.unwrap();
    let (granted_until_ms, bound_ms) = (world.granted_until_ms().await, world.bound_ms());
    for _ in 0..3 {
        let segments = RedisStore::connect(options(&world.redis.url(0, ""), LIMITS), world.watermark()).await.unwrap();
        let began = Instant::now();
        // The last of all names.
        while world.redis.cli(&["EXISTS", "unalike:{zebra}"]).unwrap().trim() != "1" {
            assert!(began.elapsed() < PATIENCE, "the tag gets no numbers");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        segments.close().await;
        world.redis.cli(&["DEL", "unalike:{zebra}"]).unwrap();
    }
    assert_eq!(world.granted_until_ms().await, granted_until_ms, "not beyond {bound_ms}");
    let clock = world.durable.inner().tag("order\u{1f}redis-clock:7").await.unwrap();
    assert_eq!(clock.watermark, 1);
    assert!(world.redis.cli(&["KEYS", "unalike:{redis-leases*"]).unwrap().trim().is_empty());
    let extended = world.extend(&client, &lease, 3_600_000).await.unwrap();
    assert!(extended.valid_until_ms > bound_ms, "{extended:?} {bound_ms}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_lost_in_quarantine_costs_nothing_more() {
    let mut world = World::start(Behind::Durable);
    let client = world.client().await;
    world.acquire(&client, "a", 60_000).await.unwrap();
    let bound_ms = world.bound_ms();
    for losses in 0..3 {
        world.redis.restart().unwrap();
        let quarantined = answer(async || world.acquire(&client, "a", 60_000).await).await;
        assert_eq!(quarantined_until(quarantined), bound_ms + 2 * losses, "a ms each time");
        world.redis.cli(&["FLUSHALL"]).unwrap();
        assert_eq!(quarantined_until(world.acquire(&client, "a", 60_000).await), bound_ms + 2 * losses + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clocks_decide_nothing_under_a_durable_store() {
    let mut world = World::start_with_a_clock(Behind::Durable, Persistence::Nothing);
    let client = world.client().await;
    let mut leases = Vec::new();
    let begun_ms = world.now_ms();
    for step in 0..6_u64 {
        // Back and forth by less and more than any bound.
        world.set_clock(begun_ms + [0, 30_000, 5_000, 700_000, 650_000, 10_000][usize::try_from(step).unwrap()]);
        for holder in ["a", "b", "c"] {
            if let Ok(lease) = answer(async || world.acquire(&client, holder, 10_000).await).await {
                leases.push(world.extend(&client, &lease, 20_000).await.unwrap());
            }
        }
        match step % 3 {
            0 => world.redis.restart().unwrap(),
            1 => drop(world.redis.cli(&["FLUSHALL"]).unwrap()),
            _ => {}
        }
    }
    assert!(leases.len() >= 4, "{leases:?}");
    assert_disjoint(&leases);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_store_that_went_back_is_refused() {
    let world = World::start(Behind::Durable);
    let client = world.client().await;
    world.acquire(&client, "a", 60_000).await.unwrap();
    world.durable.inner().lose_all().unwrap();
    let client = world.client().await;
    become_another(&world.redis);
    // However often it is tried, by whomever.
    for client in [client, world.client().await] {
        for _ in 0..4 {
            let error = answer(async || world.acquire(&client, "b", 60_000).await).await.unwrap_err();
            assert!(matches!(&error, StoreError::Corrupt { what, .. } if what.contains("lost data")), "{error:?}");
        }
    }
}

/// Programs with the durable store before still have their leases.
#[tokio::test(flavor = "multi_thread")]
async fn time_is_kept_when_another_durable_store_takes_over() {
    let world = World::start(Behind::Durable);
    let client = world.client().await;
    let leases =
        [world.acquire(&client, "a", 60_000).await.unwrap(), world.acquire(&client, "b", 60_000).await.unwrap()];
    let bound_ms = world.bound_ms();
    let before: Arc<dyn SegmentStore> = Arc::clone(&world.durable) as _;
    let now: Arc<dyn SegmentStore> = Arc::<MemoryStore>::default();
    let options = options(&world.redis.url(0, ""), LIMITS);
    RedisStore::rebind(&options, &before, &now).await.unwrap();

    let next = RedisLeases::connect(options.clone(), Backing::Durable(Arc::clone(&now))).await.unwrap();
    let extended = world.extend(&next, &leases[0], 3_600_000).await.unwrap();
    assert!(extended.valid_until_ms > bound_ms, "it goes on beyond what was granted before: {extended:?} {bound_ms}");
    let bound_ms = world.bound_ms();
    world.redis.cli(&["FLUSHALL"]).unwrap();
    for refused in [
        world.acquire(&client, "c", 60_000).await.map(drop),
        RedisLeases::connect(options, Backing::Durable(before)).await.map(drop),
    ] {
        let is_said = matches!(&refused, Err(StoreError::Refused { what, .. }) if what.contains("were moved to other"));
        assert!(is_said, "{refused:?}");
    }
    assert_eq!(quarantined_until(world.acquire(&next, "c", 60_000).await), bound_ms);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_store_that_creates_no_tags_grants_time_all_the_same() {
    let world = World::start(Behind::Durable);
    let creation = TagCreation { on_first_use: false, tags_max: 0 };
    let memory = MemoryStore::default().client(MemoryOptions { creation, ..MemoryOptions::default() });
    let durable: Arc<dyn SegmentStore> = Arc::new(memory);
    let options = options(&world.redis.url(0, ""), LIMITS);
    let client = RedisLeases::connect(options, Backing::Durable(Arc::clone(&durable))).await.unwrap();
    world.acquire(&client, "a", 1_000).await.unwrap();
    assert!(durable.tag(TIME).await.unwrap().version > 0, "time is no tag of a user");
}

/// A holder that comes, extends, goes and comes again until it is told to stop: what it could use of each lease.
async fn holder(
    world: Arc<World>,
    client: RedisLeases,
    number: usize,
    stop: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
) -> Vec<Lease> {
    let mut used = Vec::new();
    let mut round = 0;
    while !stop.load(Ordering::SeqCst) {
        // Two of them have one name.
        let name = format!("holder {}", number / 2);
        let mut lease = match world.acquire(&client, &name, 200).await {
            Ok(lease) => lease,
            Err(error) => {
                let is_usual = error.is_retryable() || matches!(error, StoreError::WorkersExhausted { .. });
                assert!(is_usual, "{error:?}");
                tokio::time::sleep(Duration::from_millis(3)).await;
                continue;
            }
        };
        served.fetch_add(1, Ordering::SeqCst);
        round += 1;
        for _ in 0..(number + round) % 3 {
            match world.extend(&client, &lease, 200).await {
                Ok(extended) => lease = extended,
                Err(error) => assert!(error.is_retryable() || is_lost(&Err::<(), _>(error))),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if round % 2 == 0 {
            let end_ms = lease.valid_until_ms.min(now_ms()).max(lease.not_before_ms);
            // Whatever comes of it, it uses no more.
            let _ = release(&client, &lease, end_ms).await;
            lease.valid_until_ms = end_ms;
        }
        used.push(lease);
    }
    used
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_goes_on_though_redis_is_lost_again_and_again() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("ids.sqlite");
    let redis = Mutex::new(Redis::start(Persistence::AofEverySecond).unwrap());
    let url = lock(&redis).url(0, "");
    let world = Arc::new(World::start(Behind::Durable));
    let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = Vec::new();
    for number in 0..6 {
        let durable = Arc::new(SqliteStore::connect(SqliteOptions::new(&file)).await.unwrap());
        let options = options(&url, LIMITS);
        let client = RedisLeases::connect(options, Backing::Durable(durable)).await.unwrap();
        tasks.push(tokio::spawn(holder(Arc::clone(&world), client, number, Arc::clone(&stop), Arc::clone(&served))));
    }
    let some_more = async || {
        let before = served.load(Ordering::SeqCst);
        let deadline = Instant::now() + PATIENCE;
        while served.load(Ordering::SeqCst) < before + 10 {
            assert!(Instant::now() < deadline, "nobody is served any more");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    some_more().await;
    for loss in 0..4 {
        {
            let mut redis = lock(&redis);
            match loss {
                0 => redis.restart().unwrap(),
                1 => drop(redis.cli(&["FLUSHALL"]).unwrap()),
                2 => become_another(&redis),
                _ => drop(redis.cli(&["DEL", KEY]).unwrap()),
            }
        }
        some_more().await;
    }
    stop.store(true, Ordering::SeqCst);
    let mut used = Vec::new();
    for task in tasks {
        used.extend(task.await.unwrap());
    }
    assert_disjoint(&used);
    let ids: HashSet<_> = used.iter().map(|lease| lease.grant_id).collect();
    assert_eq!(ids.len(), used.len(), "each grant has a name of its own");
    let durable = SqliteStore::connect(SqliteOptions::new(&file)).await.unwrap();
    let granted_until_ms = durable.tag(TIME).await.unwrap().watermark;
    assert!(used.iter().all(|lease| lease.valid_until_ms <= granted_until_ms + 1), "all of it was granted");
    assert!(granted_until_ms <= now_ms() + 1_200, "and no more than is needed: {granted_until_ms}");
}

// Answers that do not come.

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_is_burnt() {
    for behind in BOTH {
        let world = World::start(behind);
        drop(world.ready_client().await);
        let proxy = Proxy::start(world.redis.port()).unwrap();
        let client = world.client_at(&proxy.url(&world.redis.url(0, "")), LIMITS).await;
        proxy.lose_answer_with("written");
        let error = world.acquire(&client, "a", 60_000).await.unwrap_err();
        assert!(error.may_have_granted() && !proxy.lost_none(), "{error:?}");
        let burnt = client.leases(NAMESPACE).await.unwrap()[0].lease;
        let lease = world.acquire(&client, "a", 10_000).await.unwrap();
        assert_ne!(lease.worker, burnt.worker, "it is nobody's until it ends");

        proxy.lose_answer_with("written");
        let error = world.extend(&client, &lease, 20_000).await.unwrap_err();
        assert!(error.may_have_granted() && !proxy.lost_none(), "{error:?}");
        let again = world.extend(&client, &lease, 15_000).await.unwrap();
        assert!(again.valid_until_ms > now_ms() + 15_000, "what was done stays done: {again:?}");

        proxy.lose_answer_with("written");
        let error = release(&client, &lease, lease.not_before_ms + 1).await.unwrap_err();
        assert!(error.may_have_granted() && !proxy.lost_none(), "{error:?}");
        assert!(!release(&client, &lease, lease.not_before_ms).await.unwrap(), "it was released already");
        let records = client.leases(NAMESPACE).await.unwrap();
        let released = records.iter().find(|record| record.lease.worker == lease.worker).unwrap();
        assert_eq!(released.lease.valid_until_ms, lease.not_before_ms + 1);
        let next = acquired(&world, &client, "b", 10_000).await;
        assert_disjoint([burnt, Lease { valid_until_ms: lease.not_before_ms + 1, ..lease }, next]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn time_whose_installation_is_not_heard_of_is_not_asked_for_again() {
    let world = World::start(Behind::Durable);
    let proxy = Proxy::start(world.redis.port()).unwrap();
    let client = world.client_at(&proxy.url(&world.redis.url(0, "")), LIMITS).await;
    proxy.lose_answer_with("installed");
    let lease = world.acquire(&client, "a", 60_000).await.unwrap();
    assert!(!proxy.lost_none(), "it was lost");
    assert_eq!(world.durable.allocations(), 1);
    assert!(lease.valid_until_ms > now_ms() + 50_000, "{lease:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stands_still_costs_no_lease() {
    for behind in BOTH {
        let world = World::start(behind);
        drop(world.ready_client().await);
        let mut options = options(&world.redis.url(0, ""), LIMITS);
        options.request_timeout = Duration::from_millis(300);
        let client = RedisLeases::connect(options, world.watermark()).await.unwrap();
        let lease = answer(async || world.acquire(&client, "a", 60_000).await).await.unwrap();
        world.redis.pause().unwrap();
        let error = world.extend(&client, &lease, 60_000).await.unwrap_err();
        assert!(error.is_retryable() && !error.may_have_granted(), "nothing was written: {error:?}");
        let error = world.acquire(&client, "b", 60_000).await.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
        world.redis.resume().unwrap();
        let extended = answer(async || world.extend(&client, &lease, 60_000).await).await.unwrap();
        let other = answer(async || world.acquire(&client, "b", 60_000).await).await.unwrap();
        assert_eq!(extended.grant_id, lease.grant_id);
        assert_disjoint([extended, other]);
    }
}

// What is refused.

/// A script as this crate sends it.
fn eval(world: &World, script: &str, arguments: &[&str]) -> String {
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../adapters/redis/src/scripts");
    let read = |name: &str| std::fs::read_to_string(format!("{scripts}/{name}.lua")).unwrap();
    let text = ["server", "leases", "durable", script].map(read).join("\n");
    let identity = world.redis.cli(&["HGET", "unalike:durable", "leases"]).unwrap();
    let durable: &[&str] = if script == "leases_install" { &["leases", &identity] } else { &[] };
    let call = [&["EVAL", &text, "2", KEY, "unalike:durable"], arguments, durable].concat();
    world.redis.cli(&call).unwrap_or_else(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_written_only_where_all_is_as_it_was_seen() {
    for behind in BOTH {
        let world = World::start(behind);
        let client = world.ready_client().await;
        let lease = world.acquire(&client, "a", 1_000).await.unwrap();
        let field = format!("worker:{}", lease.worker);
        let get = |name: &str| world.redis.cli(&["HGET", KEY, name]).unwrap();
        let (generation, incarnation, seen) = (get("generation"), get("incarnation"), get(&field));
        let until = (now_ms() + 500).to_string();
        let beyond = (now_ms() + 3_600_000).to_string();
        let right = [&generation, &incarnation, &field, &seen, "new", &until, "1000"];
        let before = world.hash();
        for (at, wrong, what) in [
            (0, "another", "the namespace began anew"),
            (1, "another", "the server is another one"),
            (3, "another", "the worker was written"),
            (3, "", "the worker was granted for the first time"),
            (5, beyond.as_str(), "the clock went back"),
            (5, "9007199254740992", "too great"),
            (5, "-1", "no time"),
            (5, "1e3", "no time"),
            (6, "0x10", "no time"),
            (6, "", "no time"),
        ] {
            let mut arguments = right.map(|argument: &str| argument);
            arguments[at] = wrong;
            let answer = eval(&world, "leases_write", &arguments);
            let refused = if what.starts_with("no ") || what.starts_with("too") { "DAMAGED" } else { "changed" };
            assert!(answer.contains(refused), "{what}: {answer}");
            assert_eq!(world.hash(), before, "{what}");
        }
        if behind == Behind::Durable {
            let arguments = [&generation, &incarnation, &field, &seen, "new", &beyond, "86400000"];
            assert_eq!(eval(&world, "leases_write", &arguments.map(|argument: &str| argument)), "changed", "the bound");
        }
        let right_now = right.map(|argument: &str| argument);
        world.redis.cli(&["HSET", KEY, "incarnation", "another"]).unwrap();
        assert_eq!(eval(&world, "leases_write", &right_now), "changed", "the leases are another server's");
        world.redis.cli(&["HDEL", KEY, "incarnation"]).unwrap();
        assert_eq!(eval(&world, "leases_write", &right_now), "changed", "the leases are nobody's");
        world.redis.cli(&["HSET", KEY, "incarnation", &incarnation]).unwrap();
        become_another(&world.redis);
        assert_eq!(
            eval(&world, "leases_write", &right.map(|argument: &str| argument)),
            "changed",
            "another incarnation"
        );
        assert_eq!(world.hash(), before);
        assert_eq!(lease, client.leases(NAMESPACE).await.unwrap()[0].lease);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_arrives_twice_or_late_changes_nothing() {
    let world = World::start(Behind::Nothing);
    let client = world.ready_client().await;
    let lease = world.acquire(&client, "a", 1_000).await.unwrap();
    let field = format!("worker:{}", lease.worker);
    let get = |world: &World, name: &str| world.redis.cli(&["HGET", KEY, name]).unwrap();
    let (generation, incarnation, seen) = (get(&world, "generation"), get(&world, "incarnation"), get(&world, &field));
    let arguments = [&generation, &incarnation, &field, &seen, "new", "0", "0"].map(|argument: &str| argument);
    assert_eq!(eval(&world, "leases_write", &arguments), "written");
    assert_eq!(eval(&world, "leases_write", &arguments), "changed", "twice");
    let binding = get(&world, "binding");
    let begin = [&generation, &incarnation, "next", &binding, "command"].map(|argument: &str| argument);
    assert_eq!(eval(&world, "leases_begin", &begin), "begun");
    assert_eq!(get(&world, &field), "", "what was granted before is void");
    let before = world.hash();
    assert_eq!(eval(&world, "leases_begin", &begin), "changed", "twice");
    for generation in ["", "another"] {
        let late = [generation, &incarnation, "next", &binding, "command"];
        assert_eq!(eval(&world, "leases_begin", &late), "changed", "{generation:?}");
    }
    assert_eq!(eval(&world, "leases_begin", &["next", "another", "x", &binding, "command"]), "changed");
    assert_eq!(world.hash(), before);
    world.redis.cli(&["DEL", KEY]).unwrap();
    assert_eq!(eval(&world, "leases_write", &arguments), "changed", "nothing is written where there is nothing");
    assert_eq!(world.hash(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn time_is_installed_once_and_without_gaps() {
    let world = World::start(Behind::Durable);
    let client = world.client().await;
    world.acquire(&client, "a", 1_000).await.unwrap();
    let get = |name: &str| world.redis.cli(&["HGET", KEY, name]).unwrap();
    let (generation, incarnation, binding) = (get("generation"), get("incarnation"), get("binding"));
    let bound_ms = world.bound_ms();
    let [before, start, late, end] = [bound_ms - 1, bound_ms, bound_ms + 1, bound_ms + 100].map(|ms| ms.to_string());
    let hash = world.hash();
    for (arguments, why) in [
        (["another", &incarnation, "next", &start, &end, ""], "somebody changed the namespace"),
        ([&generation, "another", "next", &start, &end, ""], "another incarnation"),
        ([&generation, &incarnation, "next", &late, &end, ""], "in between"),
        ([&generation, &incarnation, "next", &before, &end, ""], "begins before"),
        ([&generation, &incarnation, "next", &before, &end, &binding], "begins before"),
        ([&generation, &incarnation, "next", &start, "9007199254740992", ""], "DAMAGED"),
        ([&generation, &incarnation, "next", "x", &end, ""], "DAMAGED"),
    ] {
        let answer = eval(&world, "leases_install", &arguments);
        assert!(answer.contains(why), "{answer} {why}");
        assert_eq!(world.hash(), hash, "{why}");
    }
    let right = [generation.as_str(), &incarnation, "next", &start, &end, ""];
    assert_eq!(eval(&world, "leases_install", &right), "installed");
    assert_eq!((world.bound_ms(), get("generation")), (bound_ms + 100, "next".to_owned()));
    let hash = world.hash();
    assert!(hash.contains("worker:"), "its leases go on");
    assert!(eval(&world, "leases_install", &right).contains("somebody changed"), "twice");
    assert_eq!(world.hash(), hash);
    let anew = [(bound_ms + 200).to_string(), (bound_ms + 300).to_string()];
    let anew = ["next", &incarnation, "last", &anew[0], &anew[1], &binding];
    assert_eq!(eval(&world, "leases_install", &anew), "installed");
    assert!(!world.hash().contains("worker:"), "behind a gap they are void");
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_fields_are_named_and_left_alone() {
    for behind in BOTH {
        let world = World::start(behind);
        let client = world.ready_client().await;
        let lease = world.acquire(&client, "a", 1_000).await.unwrap();
        let field = format!("worker:{}", lease.worker);
        let other = format!("worker:{}", lease.worker ^ 1);
        let right = world.redis.cli(&["HGET", KEY, &field]).unwrap();
        let kept = if behind == Behind::Durable { "bound_ms" } else { "begun_by" };
        for (name, text) in [
            (field.as_str(), right.replacen(' ', "  ", 1)),
            (field.as_str(), right.replace(&lease.valid_until_ms.to_string(), "99999999999999999999")),
            (field.as_str(), String::new()),
            (other.as_str(), "x".to_owned()),
            ("worker:2", right.clone()),
            ("worker:x", right.clone()),
            ("binding", "version=1".to_owned()),
            (kept, "x".to_owned()),
        ] {
            let before = world.redis.cli(&["HGET", KEY, name]).unwrap();
            world.redis.cli(&["HSET", KEY, name, &text]).unwrap();
            let hash = world.hash();
            let acquired = world.acquire(&client, "b", 1_000).await.unwrap_err();
            let Err(listed) = client.leases(NAMESPACE).await else { panic!("{name} {text:?} is listed") };
            let mut errors = vec![acquired, listed];
            if name == field || !name.starts_with("worker") {
                errors.push(world.extend(&client, &lease, 60_000).await.unwrap_err());
                errors.push(release(&client, &lease, lease.not_before_ms).await.unwrap_err());
                errors.push(client.forbid_extension(NAMESPACE, lease.worker).await.unwrap_err());
            }
            for error in errors {
                let names_it = matches!(&error, StoreError::Corrupt { what, .. } if what.contains(name));
                assert!(names_it && !error.is_retryable(), "{name} {text:?}: {error:?}");
            }
            assert_eq!(world.hash(), hash, "{name}: nothing is written");
            let put_back: &[&str] =
                if before.is_empty() { &["HDEL", KEY, name] } else { &["HSET", KEY, name, &before] };
            world.redis.cli(put_back).unwrap();
        }
        for name in ["generation", "incarnation", "binding", kept] {
            let before = world.redis.cli(&["HGET", KEY, name]).unwrap();
            world.redis.cli(&["HDEL", KEY, name]).unwrap();
            let error = world.acquire(&client, "b", 1_000).await.unwrap_err();
            assert!(matches!(error, StoreError::Corrupt { .. }), "{name}: {error:?}");
            world.redis.cli(&["HSET", KEY, name, &before]).unwrap();
        }
        world.extend(&client, &lease, 2_000).await.unwrap();
        world.redis.cli(&["DEL", KEY]).unwrap();
        world.redis.cli(&["SET", KEY, "x"]).unwrap();
        let error = world.acquire(&client, "b", 1_000).await.unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_layout_is_refused_after_a_restart_too() {
    for behind in BOTH {
        let mut world = World::start(behind);
        let client = world.ready_client().await;
        world.acquire(&client, "a", 1_000).await.unwrap();
        world.redis.restart().unwrap();
        let client = world.client().await;
        let hash = world.hash();
        let other = LeaseAcquire { layout: two_workers(10), ..world.request("b", 1_000) };
        let error = client.acquire(&other).await.unwrap_err();
        assert!(matches!(error, StoreError::LayoutMismatch { .. }), "{error:?}");
        assert_eq!(world.hash(), hash, "it binds nothing");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_grants_nothing_though_it_takes_writes() {
    for behind in BOTH {
        let world = World::start(behind);
        let replica = world.redis.start_replica(Persistence::Nothing).unwrap();
        replica.cli(&["CONFIG", "SET", "replica-read-only", "no"]).unwrap();
        let client = world.ready_client().await;
        let lease = world.acquire(&client, "a", 60_000).await.unwrap();
        replica.wait_until(|info| info.contains("master_link_status:up")).unwrap();
        let replica = World { durable: Arc::clone(&world.durable), ..World::of(replica, behind) };
        let client = replica.client().await;
        let errors = [
            replica.acquire(&client, "b", 60_000).await.unwrap_err(),
            replica.extend(&client, &lease, 60_000).await.unwrap_err(),
            release(&client, &lease, lease.not_before_ms).await.unwrap_err(),
            client.leases(NAMESPACE).await.unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(&error, StoreError::Unavailable { .. }), "{error:?}");
            assert!(error.to_string().contains("is it a replica"), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_is_kept_in_one_way() {
    for behind in BOTH {
        let mut world = World::start(behind);
        let client = world.ready_client().await;
        let lease = world.acquire(&client, "a", 60_000).await.unwrap();
        world.behind = if behind == Behind::Nothing { Behind::Durable } else { Behind::Nothing };
        let client = world.client().await;
        let hash = world.hash();
        for error in [
            world.acquire(&client, "b", 60_000).await.unwrap_err(),
            world.extend(&client, &lease, 60_000).await.unwrap_err(),
            release(&client, &lease, lease.not_before_ms).await.unwrap_err(),
            client.leases(NAMESPACE).await.unwrap_err(),
        ] {
            let says_so = matches!(&error, StoreError::Refused { what, .. } if what.contains("are kept the other way"));
            assert!(says_so, "{error:?}");
        }
        if behind == Behind::Durable {
            assert!(matches!(world.initialise().await, Err(StoreError::Refused { .. })));
        }
        assert_eq!(world.hash(), hash);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_of_one_name_never_have_one_lease() {
    for behind in BOTH {
        let world = Arc::new(World::start(behind));
        drop(world.ready_client().await);
        let mut tasks = Vec::new();
        for _ in 0..4 {
            let (world, client) = (Arc::clone(&world), world.client().await);
            tasks.push(tokio::spawn(async move {
                let mut leases = Vec::new();
                while leases.len() < 10 {
                    leases.push(acquired(&world, &client, "one and the same", 5).await);
                }
                leases
            }));
        }
        let mut leases = Vec::new();
        for task in tasks {
            leases.extend(task.await.unwrap());
        }
        assert_disjoint(&leases);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_least_rights_are_enough_and_none_is_too_many() {
    const LEAST: [&str; 11] =
        ["evalsha", "script|load", "info", "time", "hget", "hmget", "hset", "hgetall", "hkeys", "hdel", "scan"];
    let docs = include_str!("../../../adapters/redis/src/lib.rs");
    let line = LEAST.map(|command| format!(" +{command}")).concat();
    assert!(docs.contains(&format!("ACL SETUSER ids on >PASSWORD ~unalike:*{line}\n")), "the line to paste is another");
    for behind in BOTH {
        let world = World::start(behind);
        let client = world.ready_client().await;
        world.acquire(&client, "a", 1_000).await.unwrap();
        world.redis.cli(&["ACL", "SETUSER", "ids", "on", ">s3cret", "~unalike:*"]).unwrap();
        let url = world.redis.url(0, "").replace("redis://", "redis://ids:s3cret@");
        for missing in LEAST.map(Some).into_iter().chain([None]) {
            let rights = LEAST.iter().filter(|right| Some(**right) != missing).map(|right| format!("+{right}"));
            let rights: Vec<String> =
                ["ACL", "SETUSER", "ids", "nocommands"].map(str::to_owned).into_iter().chain(rights).collect();
            world.redis.cli(&rights.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
            world.redis.cli(&["SCRIPT", "FLUSH"]).unwrap();
            // Another incarnation, and time for it at once.
            become_another(&world.redis);
            if behind == Behind::Durable {
                world.durable.inner().lose_all().unwrap();
                world.redis.cli(&["HSET", KEY, "bound_ms", "0"]).unwrap();
            } else {
                world.redis.cli(&["DEL", KEY]).unwrap();
                assert!(world.initialise().await.unwrap());
            }
            let attempt = async {
                let client = RedisLeases::connect(options(&url, LIMITS), world.watermark()).await?;
                let lease = world.acquire(&client, "a", 1_000).await?;
                world.extend(&client, &lease, 2_000).await?;
                release(&client, &lease, lease.not_before_ms).await?;
                client.namespaces().await?;
                if behind == Behind::Nothing {
                    become_another(&world.redis);
                    quarantined_until(match answer(async || world.acquire(&client, "a", 1_000).await).await {
                        Err(error @ StoreError::Refused { .. }) => return Err(error),
                        answer => answer,
                    });
                }
                Ok(())
            };
            match (attempt.await, missing) {
                (Ok(()), None) => {}
                (Err(StoreError::Refused { what, .. }), Some(missing)) => {
                    assert!(what.contains(&format!("+{missing}")), "{missing}: {what}");
                }
                (other, missing) => panic!("{behind:?} without {missing:?}: {other:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_off_is_told_both() {
    let world = World::start_with_a_clock(Behind::Durable, Persistence::Nothing);
    let client = world.client().await;
    world.redis.set_clock(11_000).unwrap();
    let error = world.acquire(&client, "a", 1_000).await.unwrap_err();
    let StoreError::ClockSkew { holder_ms, store_ms, max_skew_ms: 10_000 } = error else { panic!("{error:?}") };
    assert!(store_ms >= holder_ms + 10_000, "{error:?}");
    assert_eq!(world.hash(), "", "it binds nothing");
    world.redis.set_clock(9_000).unwrap();
    let lease = world.acquire(&client, "a", 1_000).await.unwrap();
    assert!(lease.not_before_ms <= now_ms(), "it can be used at once: {lease:?}");
    assert!(lease.valid_until_ms > now_ms() + 8_000, "and its horizon is by Redis' clock: {lease:?}");
}

// All of it.

#[tokio::test(flavor = "multi_thread")]
async fn ids_go_on_over_a_loss_and_none_is_made_twice() {
    let world = World::start(Behind::Durable);
    let mut programs = Vec::new();
    for _ in 0..2 {
        let leases = Arc::new(world.client().await);
        let ids = Ids::builder().leases(leases).build().await.unwrap();
        let options = SnowflakeOptions { horizon_ms: 300, ..SnowflakeOptions::new(LAYOUT) };
        let flakes = ids.snowflake(NAMESPACE, options).await.unwrap();
        programs.push((ids, flakes));
    }
    let mut made = HashSet::new();
    for loss in 0..3 {
        for (_, flakes) in &programs {
            let (deadline, mut some) = (Instant::now() + PATIENCE, 0);
            while some < 500 {
                match flakes.next().await {
                    Ok(id) => {
                        some += 1;
                        assert!(made.insert(id), "{id} was made twice");
                    }
                    Err(error) => {
                        assert!(Instant::now() < deadline, "no ids are made any more: {error}");
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                }
            }
        }
        match loss {
            0 => drop(world.redis.cli(&["FLUSHALL"]).unwrap()),
            _ => become_another(&world.redis),
        }
    }
    for (ids, _) in programs {
        ids.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_begun_again_grants_no_time_of_before() {
    let world = World::start(Behind::Nothing);
    let client = world.ready_client().await;
    let before = world.acquire(&client, "a", 2_000).await.unwrap();
    tokio::time::sleep(Duration::from_millis(before.valid_until_ms.saturating_sub(now_ms()) + 1)).await;
    world.redis.cli(&["FLUSHALL"]).unwrap();
    assert!(world.initialise().await.unwrap());
    let client = world.client().await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        // Whose clock is behind.
        let mut request = world.request("b", 20_000);
        request.now_ms -= LIMITS.max_skew_ms / 2;
        request.preferred_worker = Some(before.worker);
        match client.acquire(&request).await {
            Ok(lease) => {
                assert_eq!(lease.worker, before.worker);
                assert!(lease.not_before_ms >= before.valid_until_ms, "{lease:?} after {before:?}");
                break;
            }
            Err(error) => assert!(error.is_retryable() && Instant::now() < deadline, "{error:?}"),
        }
    }
}
