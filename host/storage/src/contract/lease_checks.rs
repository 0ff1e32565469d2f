//! The promises of a [`LeaseStore`], one by one.
//!
//! The store's clock is read from the store itself: a request whose holder claims to live in 1970 is refused with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use tokio::time::sleep;

use super::{LeaseFixture, abandoned_after, expected, refused};
use crate::{
    FieldOrder, GrantId, Layout, LayoutFields, Lease, LeaseAcquire, LeaseExtend, LeaseLimits, LeaseRecord, LeaseStore,
    StoreError,
};

/// Not a multiple of any tick in these checks, so that a store that rounds to its own clock's grid is found out.
const EPOCH_MS: u64 = 1_577_836_800_337;

/// What most checks allow: more than any of them asks for.
const LIMITS: LeaseLimits = LeaseLimits { max_horizon_ms: 3_600_000, max_skew_ms: 60_000 };

/// A client, and one namespace that it leases workers of.
#[derive(Clone)]
struct Scene {
    client: Arc<dyn LeaseStore>,
    namespace: &'static str,
    layout: Layout,
    /// How far the holders' clocks are behind the store's, in milliseconds.
    behind_ms: u64,
}

impl Scene {
    /// `worker_bits` wide, in ticks of `tick_ms`.
    async fn new(fixture: &dyn LeaseFixture, namespace: &'static str, worker_bits: u8, tick_ms: u32) -> Self {
        let client = fixture.lease_client(LIMITS).await;
        Self { client, namespace, layout: layout(worker_bits, tick_ms), behind_ms: 0 }
    }

    /// The store's clock, in Unix milliseconds.
    async fn store_ms(&self) -> u64 {
        let request = LeaseAcquire { now_ms: 0, ..self.request("reads the clock", 1_000, 0) };
        let error = refused(self.client.acquire(&request).await, "an acquire by a holder whose clock shows 0");
        match error {
            StoreError::ClockSkew { holder_ms: 0, store_ms, .. } => store_ms,
            other => panic!("a clock that is off is refused with both clocks, not with {other:?}"),
        }
    }

    fn request(&self, holder: &str, horizon_ms: u64, now_ms: u64) -> LeaseAcquire {
        LeaseAcquire {
            namespace: self.namespace.to_owned(),
            layout: self.layout,
            holder: holder.to_owned(),
            preferred_worker: None,
            now_ms,
            horizon_ms,
        }
    }

    async fn try_acquire(&self, holder: &str, horizon_ms: u64) -> Result<Lease, StoreError> {
        let now_ms = self.store_ms().await - self.behind_ms;
        let lease = self.client.acquire(&self.request(holder, horizon_ms, now_ms)).await;
        lease.inspect(|lease| self.assert_well_formed(lease))
    }

    async fn acquire(&self, holder: &str, horizon_ms: u64) -> Lease {
        expected(self.try_acquire(holder, horizon_ms).await, "acquiring a worker")
    }

    /// Acquires a worker for a minute while others do, which may be a reason to ask again.
    async fn acquire_at_once(&self, holder: &str) -> Lease {
        for _ in 0..100 {
            match self.try_acquire(holder, 60_000).await {
                Err(error) if error.is_retryable() => sleep(Duration::from_millis(1)).await,
                answer => return expected(answer, "acquiring a worker"),
            }
        }
        panic!("two holders at once are not a reason to fail for good");
    }

    /// Acquires this worker, which no other holder's wish or history is in the way of.
    async fn acquire_worker(&self, worker: u32, holder: &str, horizon_ms: u64) -> Lease {
        let now_ms = self.store_ms().await - self.behind_ms;
        let request = LeaseAcquire { preferred_worker: Some(worker), ..self.request(holder, horizon_ms, now_ms) };
        let lease = expected(self.client.acquire(&request).await, "acquiring a preferred worker");
        assert_eq!(lease.worker, worker, "a free worker that is preferred is given");
        self.assert_well_formed(&lease);
        lease
    }

    async fn try_extend(&self, worker: u32, grant_id: GrantId, horizon_ms: u64) -> Result<Lease, StoreError> {
        let extend = LeaseExtend {
            namespace: self.namespace.to_owned(),
            layout: self.layout,
            worker,
            grant_id,
            now_ms: self.store_ms().await,
            horizon_ms,
        };
        self.client.extend(&extend).await
    }

    async fn extend(&self, lease: &Lease, horizon_ms: u64) -> Lease {
        let extended = expected(self.try_extend(lease.worker, lease.grant_id, horizon_ms).await, "extending a lease");
        self.assert_well_formed(&extended);
        let same = (extended.worker, extended.grant_id, extended.not_before_ms);
        assert_eq!(same, (lease.worker, lease.grant_id, lease.not_before_ms), "an extension is of the same lease");
        extended
    }

    async fn release(&self, lease: &Lease, end_ms: u64) -> bool {
        let released = self.client.release(self.namespace, lease.worker, lease.grant_id, end_ms).await;
        expected(released, "releasing a lease")
    }

    async fn leases(&self) -> Vec<LeaseRecord> {
        expected(self.client.leases(self.namespace).await, "listing leases")
    }

    async fn record_of(&self, worker: u32) -> LeaseRecord {
        let found = self.leases().await.into_iter().find(|record| record.lease.worker == worker);
        found.unwrap_or_else(|| panic!("worker {worker} is listed"))
    }

    async fn end_of(&self, worker: u32) -> u64 {
        let records = self.leases().await;
        let record = records.into_iter().find(|record| record.lease.worker == worker);
        record.map_or(0, |record| record.lease.valid_until_ms)
    }

    /// Waits until the store's clock has come there.
    async fn wait_until(&self, at_ms: u64) {
        loop {
            let left_ms = at_ms.saturating_sub(self.store_ms().await);
            if left_ms == 0 {
                return;
            }
            assert!(left_ms < 10_000, "a check never waits that long: {left_ms} ms");
            sleep(Duration::from_millis(left_ms)).await;
        }
    }

    #[track_caller]
    fn assert_well_formed(&self, lease: &Lease) {
        let tick_ms = u64::from(self.layout.tick_ms());
        for bound_ms in [lease.not_before_ms, lease.valid_until_ms] {
            let since_ms = bound_ms.checked_sub(EPOCH_MS);
            let on_grid = since_ms.is_some_and(|since_ms| since_ms.is_multiple_of(tick_ms));
            assert!(on_grid, "bounds lie on the grid of {tick_ms} ms: {lease:?}");
        }
        assert!(lease.not_before_ms < lease.valid_until_ms, "a lease holds a tick: {lease:?}");
        assert!(lease.worker <= self.layout.worker_max(), "the worker fits the layout: {lease:?}");
    }
}

fn layout(worker_bits: u8, tick_ms: u32) -> Layout {
    let fields = LayoutFields {
        timestamp_bits: 39,
        datacenter_bits: 0,
        worker_bits,
        sequence_bits: 8,
        order: FieldOrder::WorkerFirst,
        epoch_ms: EPOCH_MS,
        tick_ms,
    };
    match Layout::new(fields) {
        Ok(layout) => layout,
        Err(error) => panic!("the layouts of these checks are valid: {error}"),
    }
}

/// The ticks of one grant, as far as its holder could use them.
#[derive(Clone, Copy, Debug)]
struct Used {
    worker: u32,
    grant_id: GrantId,
    first_tick: u64,
    end_tick: u64,
}

impl Used {
    fn of(layout: &Layout, lease: &Lease) -> Self {
        let (first_tick, end_tick) = lease.ticks(layout);
        Self { worker: lease.worker, grant_id: lease.grant_id, first_tick, end_tick }
    }
}

/// Panics if two grants of one worker have a tick in common, or two grants have one name.
fn assert_disjoint(used: &[Used]) {
    let names: BTreeSet<_> = used.iter().map(|used| used.grant_id).collect();
    assert_eq!(names.len(), used.len(), "each grant has a name of its own");
    let mut workers: BTreeMap<u32, Vec<Used>> = BTreeMap::new();
    for used in used {
        workers.entry(used.worker).or_default().push(*used);
    }
    for grants in workers.values_mut() {
        grants.sort_by_key(|used| (used.first_tick, used.end_tick));
        let mut end_tick = 0;
        for used in grants {
            assert!(used.first_tick >= end_tick, "two holders had tick {} of a worker: {used:?}", used.first_tick);
            end_tick = used.end_tick;
        }
    }
}

/// Bounds lie on the layout's grid at any tick, also when a lease was given back in the middle of one.
pub async fn bounds_lie_on_the_tick_grid(fixture: &dyn LeaseFixture) {
    for (namespace, tick_ms) in [("contract.grid.1", 1), ("contract.grid.10", 10), ("contract.grid.1000", 1_000)] {
        let scene = Scene::new(fixture, namespace, 2, tick_ms).await;
        let tick_ms = u64::from(tick_ms);
        let mut used = Vec::new();
        for horizon_ms in [tick_ms, tick_ms + tick_ms / 2, 3 * tick_ms + 7] {
            // Checks the grid itself, as does every acquire and extend below.
            let lease = scene.acquire("grid", horizon_ms).await;
            let store_ms = scene.store_ms().await;
            assert!(lease.valid_until_ms <= store_ms + horizon_ms, "the end is rounded down: {lease:?}, {store_ms}");
            used.push(Used::of(&scene.layout, &lease));
        }
        let lease = scene.acquire("grid", 5 * tick_ms).await;
        let extended = scene.extend(&lease, 7 * tick_ms + tick_ms / 3).await;
        assert!(extended.valid_until_ms >= lease.valid_until_ms, "an extension never lowers: {extended:?}");

        // In the middle of its first tick: all of that tick is used up.
        let mid_tick_ms = lease.not_before_ms + tick_ms / 2;
        assert!(scene.release(&lease, mid_tick_ms).await, "a release within the lease ends it");
        let end_ms = scene.end_of(lease.worker).await;
        assert!(end_ms >= mid_tick_ms, "a release ends nothing before its end: {end_ms}, {mid_tick_ms}");
        assert!((end_ms - EPOCH_MS).is_multiple_of(tick_ms), "the recorded end lies on the grid too: {end_ms}");
        used.push(Used::of(&scene.layout, &Lease { valid_until_ms: end_ms, ..lease }));
        scene.wait_until(end_ms).await;
        let next = scene.acquire_worker(lease.worker, "successor", 2 * tick_ms).await;
        used.push(Used::of(&scene.layout, &next));
        assert_disjoint(&used);
    }
}

/// However many holders come, prolong, go and vanish at once, no tick of a worker belongs to two of them.
pub async fn concurrent_holders_never_share_a_tick(fixture: &dyn LeaseFixture) {
    // Long ticks have workers enough that nobody waits for one, and those who used no tick hand theirs over at once.
    for (namespace, worker_bits, tick_ms) in
        [("contract.crowd.1", 2, 1), ("contract.crowd.10", 2, 10), ("contract.crowd.1000", 7, 1_000)]
    {
        let mut tasks = Vec::new();
        for client in 0..4_u64 {
            let scene = Scene::new(fixture, namespace, worker_bits, tick_ms).await;
            for task in 0..3_u64 {
                tasks.push(tokio::spawn(crowd_member(scene.clone(), 100 * client + task)));
            }
        }
        let mut used = Vec::new();
        for task in tasks {
            used.extend(task.await.unwrap_or_else(|error| panic!("a holder failed: {error}")));
        }
        assert!(used.len() >= 36, "most of a crowd is served in the end: {} grants", used.len());
        assert_disjoint(&used);
    }
}

/// One holder of a crowd: what it could use of each of its grants.
async fn crowd_member(mut scene: Scene, seed: u64) -> Vec<Used> {
    let tick_ms = u64::from(scene.layout.tick_ms());
    let mut used = Vec::new();
    let mut number = seed;
    let mut draw = |below: u64| {
        // Knuth's linear congruential generator; its high bits are random enough for a mix of cases.
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (number >> 33) % below
    };
    for _ in 0..1_000 {
        if used.len() == 6 {
            break;
        }
        scene.behind_ms = draw(3) * 20;
        // Some holders share a name, as restarts of one host do.
        let holder = format!("holder {}", draw(5));
        let mut lease = match scene.try_acquire(&holder, tick_ms * (1 + draw(6))).await {
            Ok(lease) => lease,
            Err(StoreError::WorkersExhausted { .. }) => {
                sleep(Duration::from_millis(1)).await;
                continue;
            }
            Err(error) if error.is_retryable() => continue,
            Err(error) => panic!("a crowd is no reason to fail for good: {error}"),
        };
        for _ in 0..draw(3) {
            match scene.try_extend(lease.worker, lease.grant_id, tick_ms * (1 + draw(10))).await {
                Ok(extended) => {
                    assert!(extended.valid_until_ms >= lease.valid_until_ms, "an extension never lowers");
                    lease = extended;
                }
                Err(error) if error.is_retryable() => {}
                Err(error) => panic!("a crowd is no reason to fail for good: {error}"),
            }
        }
        if draw(2) == 0 {
            // The holder used part of its ticks, perhaps none.
            let ticks = (lease.valid_until_ms - lease.not_before_ms) / tick_ms;
            lease.valid_until_ms = lease.not_before_ms + draw(ticks + 1) * tick_ms;
            // Whatever the answer is, the holder uses no more.
            let _ = scene.client.release(scene.namespace, lease.worker, lease.grant_id, lease.valid_until_ms).await;
        }
        used.push(Used::of(&scene.layout, &lease));
    }
    used
}

/// Acquire is not idempotent: the same holder is granted another interval, under another name.
pub async fn each_acquire_is_a_new_grant(fixture: &dyn LeaseFixture) {
    let scene = Scene::new(fixture, "contract.names", 4, 1).await;
    let mut used = Vec::new();
    for _ in 0..10 {
        let lease = scene.acquire("one and the same", 60_000).await;
        used.push(Used::of(&scene.layout, &lease));
    }
    assert_disjoint(&used);
    let workers: BTreeSet<_> = used.iter().map(|used| used.worker).collect();
    assert_eq!(workers.len(), 10, "a worker whose lease runs is given to nobody else, not even to its holder");
}

/// Holders of one name at the same time, as two starts of one host, have a worker each, and none of them ends or
/// prolongs what another has.
pub async fn two_holders_of_one_name_have_a_worker_each(fixture: &dyn LeaseFixture) {
    for (namespace, tick_ms) in [("contract.twins.1", 1), ("contract.twins.1000", 1_000)] {
        let (one, other) =
            (Scene::new(fixture, namespace, 4, tick_ms).await, Scene::new(fixture, namespace, 4, tick_ms).await);
        let mut used = Vec::new();
        for _ in 0..4 {
            let (mut first, mut second) = join(one.acquire_at_once("twin"), other.acquire_at_once("twin")).await;
            assert_ne!(first.worker, second.worker, "a worker whose lease runs is given to nobody else");
            first = one.extend(&first, 120_000).await;
            second = other.extend(&second, 90_000).await;
            // It used none of its ticks, so both have the same worker in mind next time.
            assert!(other.release(&second, second.not_before_ms).await, "a release by the holder ends its lease");
            assert_eq!(one.end_of(first.worker).await, first.valid_until_ms, "and no other of the same name");
            second.valid_until_ms = second.not_before_ms;
            used.extend([first, second].map(|lease| Used::of(&one.layout, &lease)));
            assert_disjoint(&used);
        }
    }
}

/// While nobody else was granted the worker, a lease whose end has passed goes on without a gap, at any tick.
pub async fn a_lease_that_nobody_followed_goes_on(fixture: &dyn LeaseFixture) {
    for (namespace, tick_ms) in [("contract.late.1", 1), ("contract.late.10", 10), ("contract.late.1000", 1_000)] {
        let scene = Scene::new(fixture, namespace, 0, tick_ms).await;
        let lease = scene.acquire("late", u64::from(tick_ms).max(5)).await;
        scene.wait_until(lease.valid_until_ms).await;
        let extended = scene.extend(&lease, 60_000).await;
        assert!(extended.valid_until_ms > lease.valid_until_ms, "its end is after the old one: {extended:?}");
        let answer = scene.try_acquire("next", 60_000).await;
        let free_at_ms = match &answer {
            Err(StoreError::WorkersExhausted { free_at_ms, .. }) => Some(*free_at_ms),
            _ => None,
        };
        assert_eq!(free_at_ms, Some(extended.valid_until_ms), "its worker is under a lease again: {answer:?}");
    }
}

/// No lease ends further ahead of the store's clock than the namespace's horizon, which its first use fixed.
pub async fn no_lease_reaches_beyond_the_horizon_of_its_namespace(fixture: &dyn LeaseFixture) {
    let short = LeaseLimits { max_horizon_ms: 2_000, ..LIMITS };
    let mut scene = Scene::new(fixture, "contract.horizon", 3, 1).await;
    let long_client = Arc::clone(&scene.client);
    scene.client = fixture.lease_client(short).await;
    for client in [Arc::clone(&scene.client), long_client] {
        scene.client = client;
        for horizon_ms in [2_001, 3_600_000, u64::MAX] {
            let lease = scene.acquire("far-sighted", horizon_ms).await;
            let store_ms = scene.store_ms().await;
            assert!(lease.valid_until_ms <= store_ms + 2_000, "2 s ahead at most: {lease:?} at {store_ms}");
            let extended = scene.extend(&lease, horizon_ms).await;
            let store_ms = scene.store_ms().await;
            assert!(extended.valid_until_ms <= store_ms + 2_000, "2 s ahead at most: {extended:?} at {store_ms}");
        }
    }
}

/// Extending takes the worker and the grant id of the worker's newest lease.
pub async fn a_stranger_extends_nothing(fixture: &dyn LeaseFixture) {
    let scene = Scene::new(fixture, "contract.stranger", 3, 1).await;
    let unknown = scene.try_extend(0, GrantId(1), 1_000).await;
    assert!(matches!(unknown, Err(StoreError::LeaseLost { .. })), "no lease in an unknown namespace: {unknown:?}");
    let lease = scene.acquire("holder", 60_000).await;
    let before = scene.leases().await;
    let other_worker = (lease.worker + 1) % 8;
    for (worker, grant_id) in [
        (lease.worker, GrantId(lease.grant_id.0 ^ 1)),
        (lease.worker, GrantId(lease.grant_id.0 ^ (1 << 127))),
        (lease.worker, GrantId(0)),
        (other_worker, lease.grant_id),
        (u32::MAX, lease.grant_id),
    ] {
        let answer = scene.try_extend(worker, grant_id, 600_000).await;
        let lost = matches!(&answer, Err(StoreError::LeaseLost { worker: lost, .. }) if *lost == worker);
        assert!(lost, "worker {worker} is not leased under {grant_id:?}: {answer:?}");
    }
    assert_eq!(scene.leases().await, before, "a refused extension changes nothing");

    // A predecessor is a stranger from the successor's grant on, and only then.
    let old = scene.acquire_worker(other_worker, "old", 5).await;
    scene.wait_until(old.valid_until_ms).await;
    let late = scene.extend(&old, 5).await;
    assert!(late.valid_until_ms >= old.valid_until_ms, "a lease that nobody followed goes on");
    scene.wait_until(late.valid_until_ms).await;
    let new = scene.acquire_worker(other_worker, "new", 60_000).await;
    assert!(new.not_before_ms >= late.valid_until_ms, "the successor starts at or after the end: {new:?}, {late:?}");
    let answer = scene.try_extend(old.worker, old.grant_id, 600_000).await;
    assert!(matches!(answer, Err(StoreError::LeaseLost { .. })), "the predecessor's lease is over: {answer:?}");
    assert!(!scene.release(&old, old.not_before_ms).await, "the predecessor can end nothing");
    assert_eq!(scene.end_of(other_worker).await, new.valid_until_ms, "the successor's lease stands");
}

/// An extension by less than there is changes nothing.
pub async fn an_extension_never_lowers_the_end(fixture: &dyn LeaseFixture) {
    for (namespace, tick_ms) in [("contract.extend.1", 1), ("contract.extend.1000", 1_000)] {
        let scene = Scene::new(fixture, namespace, 2, tick_ms).await;
        let lease = scene.acquire("holder", 60_000).await;
        let same = scene.extend(&lease, 1_000).await;
        assert_eq!(same, lease, "a shorter horizon lowers nothing");
        let longer = scene.extend(&lease, 120_000).await;
        assert!(longer.valid_until_ms >= lease.valid_until_ms + 59_000, "a longer horizon reaches further: {longer:?}");
        assert_eq!(scene.extend(&lease, 1_000).await, longer, "a shorter horizon lowers nothing");
        assert_eq!(scene.end_of(lease.worker).await, longer.valid_until_ms, "the end is recorded");
    }
}

/// A holder whose clock is behind may be granted timestamps from its own present on, but none that a predecessor had.
pub async fn a_clock_that_is_behind_reaches_no_predecessor(fixture: &dyn LeaseFixture) {
    for (namespace, tick_ms, horizon_ms, behinds_ms) in [
        ("contract.behind.1", 1, 20, [0, 5_000, 59_000].as_slice()),
        ("contract.behind.10", 10, 27, &[0, 5_003, 59_008]),
        ("contract.behind.1000", 1_000, 1_300, &[0, 58_600]),
    ] {
        let mut scene = Scene::new(fixture, namespace, 0, tick_ms).await;
        let (mut used, mut end_ms) = (Vec::new(), 0);
        for &behind_ms in behinds_ms {
            scene.behind_ms = 0;
            scene.wait_until(end_ms).await;
            scene.behind_ms = behind_ms;
            let lease = scene.acquire(&format!("{behind_ms} ms behind"), horizon_ms).await;
            used.push(Used::of(&scene.layout, &lease));
            assert_disjoint(&used);
            end_ms = lease.valid_until_ms;
        }
    }
}

/// A release frees the worker at its end; the lease is over for good, and a resent release changes nothing.
pub async fn a_release_hands_the_worker_over(fixture: &dyn LeaseFixture) {
    let scene = Scene::new(fixture, "contract.release", 1, 1).await;
    let lease = scene.acquire_worker(0, "first", 600_000).await;
    let end_ms = lease.not_before_ms + 3;
    assert!(scene.release(&lease, end_ms).await, "a release by the holder ends the lease");
    assert_eq!(scene.end_of(0).await, end_ms, "the end is recorded");
    let answer = scene.try_extend(0, lease.grant_id, 600_000).await;
    assert!(matches!(answer, Err(StoreError::LeaseLost { .. })), "an ended lease is not extended: {answer:?}");
    for resent_ms in [end_ms, end_ms - 2, lease.valid_until_ms] {
        scene.release(&lease, resent_ms).await;
        assert_eq!(scene.end_of(0).await, end_ms, "a second release changes nothing");
    }
    scene.wait_until(end_ms).await;
    let next = scene.acquire_worker(0, "second", 600_000).await;
    assert!(next.not_before_ms >= end_ms, "the successor starts at or after the end: {next:?}");
    scene.release(&lease, end_ms).await;
    assert_eq!(scene.end_of(0).await, next.valid_until_ms, "a late release leaves the successor alone");
}

/// What lies before a lease belongs to predecessors, so no release gives it away.
pub async fn a_release_never_ends_a_lease_before_its_start(fixture: &dyn LeaseFixture) {
    let scene = Scene::new(fixture, "contract.release.start", 0, 1).await;
    let first = scene.acquire("first", 30).await;
    scene.wait_until(first.valid_until_ms).await;
    let second = scene.acquire("second", 600_000).await;
    let mut used = vec![Used::of(&scene.layout, &first)];
    scene.release(&second, first.not_before_ms).await;
    if scene.end_of(0).await == second.valid_until_ms {
        scene.release(&second, second.not_before_ms).await;
    }
    let end_ms = scene.end_of(0).await;
    assert!(end_ms >= second.not_before_ms, "an end never lies before its start: {end_ms}, {second:?}");
    let third = scene.acquire("third", 600_000).await;
    assert!(third.not_before_ms >= first.valid_until_ms, "the first holder's ticks are not given away: {third:?}");
    used.push(Used::of(&scene.layout, &third));
    assert_disjoint(&used);
}

/// A release by another grant id, or past the recorded end, changes nothing.
pub async fn a_release_by_a_stranger_changes_nothing(fixture: &dyn LeaseFixture) {
    let scene = Scene::new(fixture, "contract.release.stranger", 2, 1).await;
    let unknown = scene.client.release("contract.release.unknown", 0, GrantId(1), 1).await;
    assert!(!expected(unknown, "a release in an unknown namespace"), "nothing is to be released there");
    let lease = scene.acquire("holder", 60_000).await;
    let before = scene.leases().await;
    let other_worker = Lease { worker: lease.worker ^ 1, ..lease };
    let other_grant = Lease { grant_id: GrantId(lease.grant_id.0 ^ 1), ..lease };
    for stranger in [other_worker, other_grant, Lease { worker: u32::MAX, ..lease }] {
        assert!(!scene.release(&stranger, lease.not_before_ms).await, "{stranger:?} is nobody's lease");
    }
    for end_ms in [lease.valid_until_ms + 1, u64::MAX] {
        assert!(!scene.release(&lease, end_ms).await, "a release prolongs nothing");
    }
    assert_eq!(scene.leases().await, before, "nothing changed");
    scene.extend(&lease, 120_000).await;
}

/// When all workers are under a lease, the error says when the first is free, and then it is.
pub async fn exhaustion_says_when_a_worker_is_free(fixture: &dyn LeaseFixture) {
    let scene = Scene::new(fixture, "contract.exhausted", 1, 1).await;
    let long = scene.acquire("long", 600_000).await;
    let short = scene.acquire("short", 600_000).await;
    assert_ne!(long.worker, short.worker, "a leased worker is not given again");
    // Minutes ahead, so that it is not free while this is asked, however busy the machine is.
    let end_ms = short.valid_until_ms - 60_000;
    assert!(scene.release(&short, end_ms).await, "a release by the holder ends the lease");
    let now_ms = scene.store_ms().await;
    let wish = LeaseAcquire { preferred_worker: Some(long.worker), ..scene.request("third", 1_000, now_ms) };
    match refused(scene.client.acquire(&wish).await, "an acquire while all workers are leased") {
        StoreError::WorkersExhausted { workers, free_at_ms, namespace } => {
            assert_eq!((workers, namespace.as_str()), (2, scene.namespace), "the error says what is exhausted");
            assert_eq!(free_at_ms, end_ms, "the error says when the first is free");
        }
        other => panic!("all workers are under a lease, and the error says so, not {other:?}"),
    }
    let end_ms = long.not_before_ms + 40;
    assert!(scene.release(&long, end_ms).await, "a release by the holder ends the lease");
    scene.wait_until(end_ms).await;
    let third = scene.acquire("third", 1_000).await;
    assert_eq!(third.worker, long.worker, "the worker whose lease ended is given");
    assert!(third.not_before_ms >= end_ms, "from that end on: {third:?}");
}

/// Workers that were never used come first, at random; then the one that ended longest ago.
pub async fn never_used_workers_come_first_and_at_random(fixture: &dyn LeaseFixture) {
    let scene = Scene::new(fixture, "contract.spread", 3, 1).await;
    let mut order = Vec::new();
    for number in 0..8 {
        let lease = scene.acquire(&format!("holder {number}"), 60_000).await;
        assert!(!order.contains(&lease.worker), "a worker that was never used comes first: {lease:?}");
        order.push(lease.worker);
        // It is free at once, and still the others come first.
        assert!(scene.release(&lease, lease.not_before_ms).await, "a release by the holder ends the lease");
        scene.wait_until(lease.not_before_ms + 1).await;
    }
    let next = scene.acquire("late", 60_000).await;
    assert_eq!(Some(&next.worker), order.first(), "then the one that ended longest ago");

    let mut draws = BTreeSet::new();
    for namespace in ["contract.random.1", "contract.random.2", "contract.random.3"] {
        let scene = Scene::new(fixture, namespace, 16, 1).await;
        let mut drawn = Vec::new();
        for _ in 0..4 {
            drawn.push(scene.acquire("", 1_000).await.worker);
        }
        assert!(draws.insert(drawn), "two namespaces drew the same four of 65,536 workers: that is no chance");
    }
}

/// A holder that comes back gets its worker again when its interval has ended, and a preferred worker when it is free.
pub async fn a_holder_gets_its_worker_back(fixture: &dyn LeaseFixture) {
    let scene = Scene::new(fixture, "contract.again", 4, 1).await;
    let lease = scene.acquire("stable", 60_000).await;
    let meanwhile = scene.acquire("stable", 60_000).await;
    assert_ne!(meanwhile.worker, lease.worker, "while its interval runs, it gets another");
    assert!(scene.release(&lease, lease.not_before_ms).await, "a release by the holder ends the lease");
    let again = scene.acquire("stable", 60_000).await;
    assert_eq!(again.worker, lease.worker, "its previous worker is given back");
    assert!(again.not_before_ms >= lease.not_before_ms, "its interval is a new one: {again:?}");

    let other = scene.acquire("other", 60_000).await;
    let now_ms = scene.store_ms().await;
    let wish = LeaseAcquire { preferred_worker: Some(again.worker), ..scene.request("other", 1_000, now_ms) };
    let before = scene.record_of(again.worker).await;
    let instead = expected(scene.client.acquire(&wish).await, "acquiring while the preferred worker is taken");
    assert_eq!(scene.record_of(again.worker).await, before, "a wish changes nothing for whoever has the worker");
    scene.extend(&again, 90_000).await;
    assert!(instead.worker != again.worker && instead.worker != other.worker, "a taken worker is not given");
    let unused = (0..16).find(|&worker| ![&lease, &meanwhile, &other, &instead].iter().any(|l| l.worker == worker));
    scene.acquire_worker(unused.unwrap_or_default(), "stable", 1_000).await;
}

/// A namespace is bound to its first layout.
pub async fn another_layout_is_refused(fixture: &dyn LeaseFixture) {
    let mut scene = Scene::new(fixture, "contract.layout", 4, 10).await;
    let first = scene.layout;
    let lease = scene.acquire("holder", 60_000).await;
    let before = scene.leases().await;
    let fields = first.fields();
    for other in [
        LayoutFields { epoch_ms: fields.epoch_ms + 1, ..fields },
        LayoutFields { tick_ms: 1, ..fields },
        LayoutFields { timestamp_bits: fields.timestamp_bits + 1, ..fields },
        LayoutFields { worker_bits: 5, ..fields },
        LayoutFields { worker_bits: 3, datacenter_bits: 1, ..fields },
        LayoutFields { sequence_bits: 9, ..fields },
        LayoutFields { order: FieldOrder::SequenceFirst, ..fields },
    ] {
        scene.layout = Layout::new(other).unwrap_or(first);
        let now_ms = scene.store_ms().await;
        for answer in [
            scene.client.acquire(&scene.request("stranger", 1_000, now_ms)).await,
            scene.try_extend(lease.worker, lease.grant_id, 120_000).await,
        ] {
            let named = matches!(&answer, Err(StoreError::LayoutMismatch { bound, offered, .. })
                if *bound == first.to_string() && *offered == scene.layout.to_string());
            assert!(named, "the layout {} is refused, and both are named: {answer:?}", scene.layout);
        }
    }
    scene.layout = first;
    assert_eq!(scene.leases().await, before, "a refused layout changes nothing");
    scene.acquire("second", 60_000).await;
}

/// A holder whose clock is too far off, either way, is refused with both clocks; nothing is granted or bound.
pub async fn a_clock_that_is_off_is_refused(fixture: &dyn LeaseFixture) {
    let mut scene = Scene::new(fixture, "contract.skew", 4, 1).await;
    scene.client = fixture.lease_client(LeaseLimits { max_skew_ms: 5_000, ..LIMITS }).await;
    let bound = scene.layout;
    scene.layout = layout(5, 1);
    scene.store_ms().await;
    scene.layout = bound;
    let lease = scene.acquire("holder", 60_000).await;
    let before = scene.leases().await;
    let store_ms = scene.store_ms().await;
    for holder_ms in [0, store_ms - 6_000, store_ms + 60_000, u64::MAX] {
        let extend = LeaseExtend {
            namespace: scene.namespace.to_owned(),
            layout: scene.layout,
            worker: lease.worker,
            grant_id: lease.grant_id,
            now_ms: holder_ms,
            horizon_ms: 120_000,
        };
        for answer in
            [scene.client.acquire(&scene.request("off", 1_000, holder_ms)).await, scene.client.extend(&extend).await]
        {
            let Err(StoreError::ClockSkew { holder_ms: told, store_ms: now_ms, max_skew_ms }) = answer else {
                panic!("a clock at {holder_ms} is refused when the store's is {store_ms}: {answer:?}");
            };
            assert_eq!((told, max_skew_ms), (holder_ms, 5_000), "the error names the holder's clock and the limit");
            assert!((store_ms..store_ms + 30_000).contains(&now_ms), "the error names the store's clock: {now_ms}");
        }
    }
    assert_eq!(scene.leases().await, before, "a refused request changes nothing");
    // Within the limit the holder's clock may be off, and the lease still keeps to the store's.
    for holder_ms in [scene.store_ms().await - 2_000, scene.store_ms().await + 3_000] {
        let lease = expected(
            scene.client.acquire(&scene.request("near", 1_000, holder_ms)).await,
            "acquiring with a clock within the limit",
        );
        let now_ms = scene.store_ms().await;
        assert!(lease.valid_until_ms <= now_ms + 1_000, "the horizon counts from the store's clock: {lease:?}");
    }
}

/// Bad names, a worker outside the layout and a horizon without a tick are refused for good.
pub async fn bad_requests_are_refused(fixture: &dyn LeaseFixture) {
    let scene = Scene::new(fixture, "contract.bad", 4, 10).await;
    let now_ms = scene.store_ms().await;
    let good = scene.request("holder", 1_000, now_ms);
    let too_long = "x".repeat(129);
    for bad in [
        LeaseAcquire { namespace: String::new(), ..good.clone() },
        LeaseAcquire { namespace: too_long.clone(), ..good.clone() },
        LeaseAcquire { namespace: "a\nb".to_owned(), ..good.clone() },
        LeaseAcquire { holder: too_long, ..good.clone() },
        LeaseAcquire { holder: "a\0b".to_owned(), ..good.clone() },
        LeaseAcquire { preferred_worker: Some(16), ..good.clone() },
        LeaseAcquire { horizon_ms: 0, ..good.clone() },
        LeaseAcquire { horizon_ms: 9, ..good.clone() },
    ] {
        let error = refused(scene.client.acquire(&bad).await, "a bad request");
        assert!(matches!(error, StoreError::Refused { .. }), "{bad:?} is refused for good: {error:?}");
    }
    let lease = scene.acquire("holder", 1_000).await;
    let error = refused(scene.try_extend(lease.worker, lease.grant_id, 9).await, "a horizon without a tick");
    assert!(matches!(error, StoreError::Refused { .. }), "a horizon without a tick is refused: {error:?}");

    let namespace = "😀".repeat(32);
    let odd = LeaseAcquire { namespace: namespace.clone(), holder: "' OR 1=1; --".to_owned(), ..good };
    let lease = expected(scene.client.acquire(&odd).await, "acquiring under odd names");
    let records = expected(scene.client.leases(&namespace).await, "listing leases");
    let kept = records.first().map(|record| (record.lease, record.holder.as_str()));
    assert_eq!(kept, Some((lease, "' OR 1=1; --")), "odd names are kept as they are");
}

/// The newest lease of each worker is listed, by worker, with its holder and the time of its acquire.
pub async fn leases_are_listed_by_worker(fixture: &dyn LeaseFixture) {
    let scene = Scene::new(fixture, "contract.list", 8, 1).await;
    assert_eq!(scene.leases().await, [], "a namespace that was never used has no leases");
    let mut leases = Vec::new();
    for worker in [9, 200, 10, 0] {
        let before_ms = scene.store_ms().await;
        let lease = scene.acquire_worker(worker, &format!("holder {worker}"), 60_000).await;
        leases.push((lease, before_ms..=scene.store_ms().await));
    }
    let (released, acquired) = leases.remove(0);
    assert!(scene.release(&released, released.not_before_ms).await, "a release by the holder ends the lease");
    leases.push((Lease { valid_until_ms: released.not_before_ms, ..released }, acquired));
    leases.sort_by_key(|(lease, _)| lease.worker);
    let listed = scene.leases().await;
    assert_eq!(listed.len(), leases.len(), "each worker is listed once: {listed:?}");
    for (record, (lease, acquired)) in listed.iter().zip(&leases) {
        assert_eq!(record.lease, *lease, "leases are listed as they are");
        assert_eq!(record.holder, format!("holder {}", lease.worker), "with their holder");
        assert!(acquired.contains(&record.acquired_ms), "and when they were acquired: {record:?}, {acquired:?}");
    }
}

/// An operator's release leaves a lease its end, and keeps it from being extended; the worker goes on after that end.
pub async fn an_operator_ends_a_lease_where_it_ends(fixture: &dyn LeaseFixture) {
    let scene = Scene::new(fixture, "contract.forbid", 1, 1).await;
    let forbid = async |worker| expected(scene.client.forbid_extension(scene.namespace, worker).await, "an order");
    assert_eq!(forbid(0).await, None, "a worker that was never granted has no lease");
    let lease = scene.acquire_worker(0, "holder", 300).await;
    let extended = scene.extend(&lease, 600).await;
    assert!(!scene.record_of(0).await.is_final, "a lease that runs may be extended");
    let record = forbid(0).await.unwrap_or_else(|| panic!("the lease is there"));
    assert_eq!((record.lease, record.is_final), (extended, true), "only the extension is forbidden");
    assert_eq!(forbid(0).await.as_ref(), Some(&record), "to say it twice changes nothing");
    assert_eq!(scene.record_of(0).await, record, "and it is listed so");
    let error = refused(scene.try_extend(0, lease.grant_id, 60_000).await, "an extension that was forbidden");
    assert!(matches!(error, StoreError::LeaseLost { worker: 0, .. }), "it is lost to its holder: {error:?}");
    assert_eq!(scene.end_of(0).await, extended.valid_until_ms, "what its holder may have used stays its own");
    assert_eq!(forbid(1).await, None, "of each worker only");
    scene.wait_until(extended.valid_until_ms).await;
    let next = scene.acquire_worker(0, "successor", 60_000).await;
    assert_disjoint(&[Used::of(&scene.layout, &extended), Used::of(&scene.layout, &next)]);
    assert!(!scene.record_of(0).await.is_final, "the order was for that lease only");
    scene.extend(&next, 90_000).await;
}

/// All namespaces that were used are listed, in the order of their bytes.
pub async fn namespaces_are_listed(fixture: &dyn LeaseFixture) {
    let names = ["contract.names.B", "contract.names.a", "contract.names.é", "contract.names.a/b c%2F"];
    for namespace in names {
        Scene::new(fixture, namespace, 2, 1).await.acquire("holder", 1_000).await;
    }
    let client = fixture.lease_client(LIMITS).await;
    let listed = expected(client.namespaces().await, "listing namespaces");
    let ours: Vec<_> = listed.iter().filter(|name| name.starts_with("contract.names.")).collect();
    let mut sorted = names;
    sorted.sort_unstable();
    assert_eq!(ours, sorted.iter().collect::<Vec<_>>(), "each is listed once, in the order of bytes");
    assert!(listed.is_sorted(), "among all others: {listed:?}");
}

/// A request that its caller drops anywhere in the middle costs an interval at most, and the store goes on.
pub async fn an_abandoned_request_costs_only_an_interval(fixture: &dyn LeaseFixture) {
    let scene = Scene::new(fixture, "contract.abandon", 8, 1).await;
    let mut used = Vec::new();
    for polls in 1..=25 {
        let now_ms = scene.store_ms().await;
        let request = scene.request("fickle", 5, now_ms);
        if let Some(Ok(lease)) = abandoned_after(polls, scene.client.acquire(&request)).await {
            used.push(Used::of(&scene.layout, &lease));
        }
        let mut lease = scene.acquire("steady", 60_000).await;
        let _ = abandoned_after(polls, scene.try_extend(lease.worker, lease.grant_id, 90_000)).await;
        lease = scene.extend(&lease, 60_000).await;
        // The holder used its first tick only, and says so; the release may arrive, also after it was dropped, or not.
        lease.valid_until_ms = lease.not_before_ms + 1;
        let _ = abandoned_after(polls, scene.release(&lease, lease.valid_until_ms)).await;
        assert!(scene.end_of(lease.worker).await >= lease.valid_until_ms, "no end lies before that of a release");
        used.push(Used::of(&scene.layout, &lease));
        assert_disjoint(&used);
    }
}

/// After a restart a store that forgets is in doubt of all that it granted: nothing is extended, and nothing is granted
/// before every interval that it may have granted has ended.
pub async fn a_restart_puts_everything_in_doubt(fixture: &dyn LeaseFixture) {
    let mut scene = Scene::new(fixture, "contract.restart", 1, 1).await;
    let running = [scene.acquire("a", 60_000).await, scene.acquire("b", 300).await];
    let (namespace, layout) = (scene.namespace, scene.layout);
    drop(scene);
    fixture.restart().await;
    scene = Scene { client: fixture.lease_client(LIMITS).await, namespace, layout, behind_ms: 0 };
    let ends_ms = running.iter().map(|lease| lease.valid_until_ms).max().unwrap_or(0);
    for lease in &running {
        let error = refused(scene.try_extend(lease.worker, lease.grant_id, 90_000).await, "a lease in doubt");
        assert!(
            matches!(error, StoreError::LeaseLost { .. } | StoreError::Quarantined { .. }),
            "a lease in doubt is not extended: {error:?}"
        );
    }
    match scene.try_acquire("a", 60_000).await {
        Ok(lease) => assert!(lease.not_before_ms >= ends_ms, "{lease:?} begins before {ends_ms}"),
        Err(StoreError::Quarantined { until_ms, .. }) => {
            assert!(until_ms >= ends_ms, "the quarantine ends at {until_ms}, before {ends_ms}");
        }
        Err(error) => panic!("a store in doubt says until when: {error:?}"),
    }
}

/// After a restart running leases go on and nothing is granted again.
pub async fn a_restart_forgets_nothing(fixture: &dyn LeaseFixture) {
    let mut scene = Scene::new(fixture, "contract.restart", 1, 1).await;
    let running = scene.acquire("running", 60_000).await;
    let ended = scene.acquire("ended", 30).await;
    let before = scene.leases().await;
    // A client holds connections, and a store with connections does not stop.
    let (namespace, layout) = (scene.namespace, scene.layout);
    drop(scene);
    fixture.restart().await;
    scene = Scene { client: fixture.lease_client(LIMITS).await, namespace, layout, behind_ms: 0 };
    assert_eq!(scene.leases().await, before, "a restart changes nothing");
    scene.wait_until(ended.valid_until_ms).await;
    let extended = scene.extend(&running, 60_000).await;
    let next = scene.acquire("next", 60_000).await;
    assert_eq!(next.worker, ended.worker, "the worker whose lease ended is given");
    let grants = [extended, ended, next].map(|lease| Used::of(&scene.layout, &lease));
    assert_disjoint(&grants);
    scene.layout = self::layout(2, 1);
    let answer = scene.try_acquire("other layout", 1_000).await;
    assert!(matches!(answer, Err(StoreError::LayoutMismatch { .. })), "the layout stays bound: {answer:?}");
}
