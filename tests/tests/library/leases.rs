//! The library's snowflakes when the clock, the lease store or the process itself does what it should not: what is
//! handed out, what is refused, with which words, and what the log says. Time is the test's own.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot do its work fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use unalike::storage::{GrantId, Lease, LeaseAcquire, LeaseExtend, LeaseLimits, LeaseRecord, LeaseStore, StoreError};
use unalike::{
    Clock, ClockPolicy, Error, ErrorKind, Ids, Layout, LayoutFields, OptionsError, Snowflake, SnowflakeOptions, Spread,
};
use unalike_memory::{MemoryOptions, MemoryStore};
use unalike_tests::PATIENCE;
use unalike_tests::faulty::FaultyStore;
use unalike_tests::log::Log;

const NOW_MS: u64 = 1_700_000_000_000;
const HOUR_MS: u64 = 60 * 60 * 1_000;
/// Shorter than what the store waits between two requests after a failure, so that a test is over soon.
const WAIT_MAX: Duration = Duration::from_millis(150);

/// A clock that goes when the test says so.
#[derive(Debug)]
struct ManualClock(AtomicU64);

impl ManualClock {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(NOW_MS)))
    }

    fn set(&self, now_ms: u64) {
        self.0.store(now_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A store that goes by this clock, whatever its holders' say.
fn store(clock: &Arc<ManualClock>) -> Arc<FaultyStore> {
    let clock = Arc::clone(clock);
    let limits = LeaseLimits { max_skew_ms: 10 * HOUR_MS, ..LeaseLimits::default() };
    let options = MemoryOptions { clock: Arc::new(move || clock.now_ms()), limits, ..MemoryOptions::default() };
    Arc::new(FaultyStore::before(MemoryStore::new(options)))
}

async fn open(store: Arc<dyn LeaseStore>, clock: &Arc<ManualClock>) -> Ids {
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    Ids::builder().leases(store).clock(clock).wait_max(WAIT_MAX).build().await.unwrap()
}

/// One worker alone, so that whoever comes next must take over.
fn one_worker() -> Layout {
    let fields = LayoutFields { datacenter_bits: 0, worker_bits: 0, ..Layout::TWITTER.fields() };
    Layout::new(fields).unwrap()
}

fn stamp_ms(flakes: &Snowflake, id: u64) -> u64 {
    flakes.layout().tick_start_ms(flakes.layout().unpack(id).unwrap().ticks)
}

fn kind<T: std::fmt::Debug>(answer: Result<T, Error>) -> ErrorKind {
    answer.unwrap_err().kind().clone()
}

#[tokio::test]
async fn keep_goes_on_with_the_last_tick_and_no_further_than_what_may_be_borrowed() {
    let clock = ManualClock::new();
    let ids = open(store(&clock), &clock).await;
    let flakes = ids.snowflake("default", SnowflakeOptions::new(Layout::TWITTER)).await.unwrap();
    let mut last = flakes.next().await.unwrap();
    for (behind_ms, calls) in [(1, 100), (2_000, 100), (700, 3_895)] {
        clock.set(NOW_MS - behind_ms);
        for _ in 0..calls {
            let id = flakes.next().await.unwrap();
            assert!(id == last + 1 && stamp_ms(&flakes, id) == NOW_MS, "{behind_ms} ms behind");
            last = id;
        }
    }
    assert!(matches!(kind(flakes.next().await), ErrorKind::NotYet { wait_ms: 691, .. }), "the tick is used up");
    clock.set(NOW_MS - 2_001);
    let error = flakes.next().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ClockMovedBack { behind_ms: 2_001, .. }), "{error:?}");
    assert_eq!((error.is_retryable(), error.retry_after_ms()), (true, Some(2_001)));
    // 10 ms beyond the clock as it stands, and no more, however much is asked for.
    clock.set(NOW_MS - 5);
    assert_eq!(flakes.take(5 * 4_096).await.unwrap().iter().last().map(|id| stamp_ms(&flakes, id)), Some(NOW_MS + 5));
    assert!(matches!(kind(flakes.next().await), ErrorKind::NotYet { .. } | ErrorKind::Timeout { .. }));
    assert_eq!(flakes.status().unwrap().ahead_ms, 10);
    ids.close().await;
}

#[tokio::test]
async fn reject_and_wait_refuse_the_run_in_hand_too() {
    for (policy, behind_ms) in [(ClockPolicy::Reject, 1), (ClockPolicy::Wait { max_ms: 5 }, 6)] {
        let clock = ManualClock::new();
        let ids = open(store(&clock), &clock).await;
        let options = SnowflakeOptions { clock: policy, ..SnowflakeOptions::new(Layout::TWITTER) };
        let flakes = ids.snowflake("default", options).await.unwrap();
        let first = flakes.next().await.unwrap();
        clock.set(NOW_MS - behind_ms);
        assert!(
            matches!(kind(flakes.next().await), ErrorKind::ClockMovedBack { behind_ms: by, .. } if by == behind_ms)
        );
        assert!(matches!(kind(flakes.check()), ErrorKind::ClockMovedBack { .. }));
        clock.set(NOW_MS);
        flakes.check().unwrap();
        assert_eq!(flakes.next().await.unwrap(), first + 1, "no tick was lost by the refusal");
    }
}

#[tokio::test]
async fn wait_waits_for_twice_the_difference() {
    let clock = ManualClock::new();
    let ids = open(store(&clock), &clock).await;
    let policy = ClockPolicy::Wait { max_ms: 40 };
    let options = SnowflakeOptions { clock: policy, ..SnowflakeOptions::new(Layout::TWITTER) };
    let flakes = ids.snowflake("default", options).await.unwrap();
    flakes.next().await.unwrap();
    clock.set(NOW_MS - 40);
    let (started, late) = (Instant::now(), flakes.clone());
    let caller = tokio::spawn(async move { late.next().await });
    // Leaf's own wait: after twice the difference the clock is looked at again, and not before.
    tokio::task::yield_now().await;
    clock.set(NOW_MS + 1);
    let id = caller.await.unwrap().unwrap();
    assert!(started.elapsed() >= Duration::from_millis(80), "{:?}", started.elapsed());
    assert_eq!(stamp_ms(&flakes, id), NOW_MS + 1);
}

#[tokio::test]
async fn ids_flow_to_the_end_of_the_lease_and_then_the_error_says_why_not() {
    let log = Log::default();
    let _listening = log.listen();
    let clock = ManualClock::new();
    let store = store(&clock);
    let ids = open(store.clone(), &clock).await;
    let flakes = ids.snowflake("default", SnowflakeOptions::new(Layout::TWITTER)).await.unwrap();
    assert!(matches!(kind(flakes.check()), ErrorKind::Timeout { waited_ms: 0, .. }), "no lease yet");
    flakes.next().await.unwrap();
    flakes.check().unwrap();
    let status = flakes.status().unwrap();
    let (worker, end_ms) = (status.worker.unwrap(), NOW_MS + 60_000);
    assert_eq!((status.valid_until_ms, status.reach_ms, status.refused), (end_ms, end_ms, 0));
    store.set_down(true);
    for at_ms in (NOW_MS + 20_000..end_ms).step_by(999).chain([end_ms - 1]) {
        clock.set(at_ms);
        assert_eq!(stamp_ms(&flakes, flakes.next().await.unwrap()), at_ms);
        tokio::task::yield_now().await;
    }
    for after_ms in [0, 1, 5_000] {
        clock.set(end_ms + after_ms);
        let error = tokio::time::timeout(PATIENCE, flakes.next()).await.expect("the wait ends").unwrap_err();
        let ErrorKind::LeaseEnded { name, worker: of, ended_ms, source: Some(source) } = error.kind() else {
            panic!("{error:?}")
        };
        assert_eq!((name.as_str(), *of, *ended_ms), ("default", worker, end_ms));
        assert!(matches!(**source, StoreError::Unavailable { .. }), "{source:?}");
        assert!(error.is_retryable() && error.retry_after_ms().is_some() && error.store_error().is_some());
        assert!(error.to_string().contains("connection refused"), "{error}");
        let checked = flakes.check().unwrap_err();
        assert!(matches!(checked.kind(), ErrorKind::LeaseEnded { source: Some(_), .. }), "{checked:?}");
    }
    let refused = flakes.status().unwrap().refused;
    assert_eq!(refused, 3, "calls, not looks");
    let text = log.text();
    assert_eq!(text.matches("a lease was not extended").count(), 1, "{text}");
    assert_eq!(text.matches("the lease has ended").count(), 1, "{text}");
    assert!(text.contains(&format!("worker={worker}")) && text.contains("namespace=\"default\""), "{text}");
    store.set_down(false);
    let back_ms = end_ms + 10_000;
    clock.set(back_ms);
    assert_eq!(stamp_ms(&flakes, flakes.next().await.unwrap()), back_ms);
    flakes.check().unwrap();
    let text = log.text();
    assert_eq!(text.matches("the lease store grants again").count(), 1, "{text}");
    assert_eq!(text.matches("after the lease that ended there is one again").count(), 1, "{text}");
    ids.close().await;
}

#[tokio::test]
async fn a_store_that_does_not_answer_at_all_ends_the_call_in_time_too() {
    let clock = ManualClock::new();
    let store = store(&clock);
    let ids = open(store.clone(), &clock).await;
    let flakes = ids.snowflake("default", SnowflakeOptions::new(Layout::TWITTER)).await.unwrap();
    flakes.next().await.unwrap();
    store.hold(true);
    clock.set(NOW_MS + 60_000);
    let error = flakes.next().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::LeaseEnded { source: None, .. }), "{error:?}");
    store.hold(false);
    flakes.next().await.unwrap();
}

#[tokio::test]
async fn a_clock_that_went_back_is_told_to_the_log_once() {
    let log = Log::default();
    let _listening = log.listen();
    let clock = ManualClock::new();
    let ids = open(store(&clock), &clock).await;
    let flakes = ids.snowflake("default", SnowflakeOptions::new(Layout::TWITTER)).await.unwrap();
    for jump in 1..=2 {
        clock.set(NOW_MS + jump * 10_000);
        flakes.next().await.unwrap();
        clock.set(NOW_MS);
        for _ in 0..20 {
            flakes.next().await.unwrap_err();
        }
        clock.set(NOW_MS + jump * 10_000 + 1);
        flakes.next().await.unwrap();
        let text = log.text();
        let lines = ["the clock went back", "the clock has caught up"].map(|line| text.matches(line).count() as u64);
        assert_eq!(lines, [jump, jump], "{text}");
    }
}

/// Answers as it is told to.
struct Says(AtomicBool, fn() -> StoreError);

impl Says {
    fn say<T>(&self) -> Result<T, StoreError> {
        self.0.store(true, Ordering::SeqCst);
        Err((self.1)())
    }
}

#[async_trait]
impl LeaseStore for Says {
    async fn acquire(&self, _: &LeaseAcquire) -> Result<Lease, StoreError> {
        self.say()
    }

    async fn extend(&self, _: &LeaseExtend) -> Result<Lease, StoreError> {
        self.say()
    }

    async fn release(&self, _: &str, _: u32, _: GrantId, _: u64) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn forbid_extension(&self, _: &str, _: u32) -> Result<Option<LeaseRecord>, StoreError> {
        Ok(None)
    }

    async fn leases(&self, _: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        Ok(Vec::new())
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn what_lasts_is_told_at_once_and_with_its_time() {
    fn in_an_hour_ms() -> u64 {
        unalike::SystemClock.now_ms() + HOUR_MS
    }
    let answers: [fn() -> StoreError; 2] = [
        || StoreError::Quarantined { namespace: "default".to_owned(), until_ms: in_an_hour_ms() },
        || StoreError::WorkersExhausted {
            namespace: "default".to_owned(),
            workers: 1_024,
            free_at_ms: in_an_hour_ms(),
        },
    ];
    for answer in answers {
        let clock = ManualClock::new();
        let clock = Arc::clone(&clock) as Arc<dyn Clock>;
        let says = Arc::new(Says(AtomicBool::new(false), answer));
        // Whoever waits does so for longer than a test goes on.
        let wait_max = Duration::from_millis(HOUR_MS);
        let ids = Ids::builder().leases(says.clone()).clock(clock).wait_max(wait_max).build().await.unwrap();
        let flakes = ids.snowflake("default", SnowflakeOptions::new(Layout::TWITTER)).await.unwrap();
        let error = tokio::time::timeout(PATIENCE, flakes.next()).await.expect("it is told at once").unwrap_err();
        assert!(says.0.load(Ordering::SeqCst));
        assert!(matches!(error.kind(), ErrorKind::Store { .. }), "{error:?}");
        let retry_after_ms = error.retry_after_ms().unwrap();
        assert!(error.is_retryable() && retry_after_ms.abs_diff(HOUR_MS) < 60_000, "{retry_after_ms}");
        assert!(matches!(kind(flakes.check()), ErrorKind::Store { .. }));
    }
}

#[tokio::test]
async fn an_hour_forward_and_back_repeats_nothing_and_stops_nothing() {
    for policy in [ClockPolicy::Reject, ClockPolicy::Wait { max_ms: 5 }, ClockPolicy::Keep { max_ms: 2_000 }] {
        let clock = ManualClock::new();
        let store = store(&clock);
        let ids = open(store.clone(), &clock).await;
        let options = SnowflakeOptions { clock: policy, ..SnowflakeOptions::new(Layout::TWITTER) };
        let flakes = ids.snowflake("default", options).await.unwrap();
        let before = flakes.next().await.unwrap();
        // Forward: the lease has ended, and is extended or followed by another.
        clock.set(NOW_MS + HOUR_MS);
        let far = flakes.next().await.unwrap();
        assert!(far > before && stamp_ms(&flakes, far) == NOW_MS + HOUR_MS);
        let valid_until_ms = flakes.status().unwrap().valid_until_ms;
        assert!(valid_until_ms > NOW_MS + HOUR_MS);
        // Back by as much as a lease reaches: it is refused until the clock has caught up.
        clock.set(NOW_MS + HOUR_MS - 60_000);
        let error = flakes.next().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::ClockMovedBack { behind_ms: 60_000, .. }), "{error:?}");
        // Back by more: another worker goes on at the clock.
        clock.set(NOW_MS);
        let worker = |id| flakes.layout().unpack(id).unwrap().worker;
        let mut ids_of: BTreeMap<u32, Vec<u64>> = BTreeMap::from([(worker(before), vec![before, far])]);
        assert_eq!(worker(before), worker(far));
        for jump_ms in [0, 1, HOUR_MS, 0, 2 * HOUR_MS, 1] {
            clock.set(NOW_MS + jump_ms);
            for _ in 0..3 {
                let id = flakes.next().await.unwrap();
                assert_eq!(stamp_ms(&flakes, id), NOW_MS + jump_ms, "{policy:?}");
                ids_of.entry(worker(id)).or_default().push(id);
            }
            assert_eq!(flakes.status().unwrap().used_until_ms, NOW_MS + jump_ms + 1);
        }
        assert!(ids_of.len() >= 4, "each time back with another worker: {ids_of:?}");
        for (worker, ids) in &ids_of {
            assert!(ids.is_sorted_by(|a, b| a < b), "the ids of worker {worker} ascend: {ids:?}");
        }
        ids.close().await;
    }
}

/// Where no other worker is free, or the store knows better than the clock, it is said and not asked for in a loop.
#[tokio::test]
async fn an_hour_back_without_another_worker_is_an_error_of_the_store() {
    let clock = ManualClock::new();
    let store = store(&clock);
    let ids = open(store.clone(), &clock).await;
    let flakes = ids.snowflake("default", SnowflakeOptions::new(one_worker())).await.unwrap();
    clock.set(NOW_MS + HOUR_MS);
    let far = flakes.next().await.unwrap();
    clock.set(NOW_MS);
    let error = flakes.next().await.unwrap_err();
    assert!(matches!(error.store_error(), Some(StoreError::WorkersExhausted { .. })), "{error:?}");
    clock.set(NOW_MS + HOUR_MS);
    assert!(flakes.next().await.unwrap() > far, "the lease in hand was kept");
    ids.close().await;
}

#[tokio::test]
async fn who_sleeps_past_the_lease_wakes_without_it() {
    let layout = one_worker();
    for closes in [false, true] {
        let clock = ManualClock::new();
        let store = store(&clock);
        let (sleeper, heir) = (open(store.clone(), &clock).await, open(store.clone(), &clock).await);
        let options = SnowflakeOptions { ahead_max_ms: 0, ..SnowflakeOptions::new(layout) };
        let flakes = sleeper.snowflake("default", options).await.unwrap();
        // A run of the tick is in hand, and the lease ends within the pause.
        let mut ids = Vec::from([flakes.next().await.unwrap()]);
        let end_ms = flakes.status().unwrap().valid_until_ms;
        assert!(matches!(
            kind(heir.snowflake("default", options).await.unwrap().next().await),
            ErrorKind::Store { source, .. } if matches!(*source, StoreError::WorkersExhausted { free_at_ms, .. } if free_at_ms == end_ms)
        ));
        clock.set(end_ms + 10_000);
        let successor = heir.snowflake("default", options).await.unwrap();
        ids.push(successor.next().await.unwrap());
        if closes {
            // The lease ends with the tick of its last id.
            heir.close().await;
            clock.set(end_ms + 10_001);
        }
        let woken = flakes.next().await;
        match woken {
            Ok(id) if closes => {
                // A lease of its own, from where the successor ended.
                assert!(stamp_ms(&flakes, id) > stamp_ms(&flakes, ids[1]));
                ids.push(id);
            }
            Err(error) if !closes => {
                let ErrorKind::LeaseEnded { ended_ms, source: Some(source), .. } = error.kind() else {
                    panic!("{error:?}")
                };
                assert_eq!(*ended_ms, end_ms);
                assert!(matches!(**source, StoreError::WorkersExhausted { .. }), "{source:?}");
            }
            other => panic!("{other:?}"),
        }
        for _ in 0..10 {
            ids.extend(flakes.try_next().ok().flatten());
            ids.extend(successor.try_next().ok().flatten());
        }
        let total = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), total, "an id was handed out twice");
    }
}

#[tokio::test]
async fn ids_are_spread_over_shards() {
    let clock = ManualClock::new();
    let ids = open(store(&clock), &clock).await;
    let shares = |spread| {
        let (ids, clock) = (&ids, Arc::clone(&clock));
        async move {
            clock.set(NOW_MS);
            let options = SnowflakeOptions { spread, ..SnowflakeOptions::new(Layout::TWITTER) };
            let flakes = ids.snowflake(&format!("{spread:?}"), options).await.unwrap();
            let (mut shares, mut last) = (BTreeMap::<u64, u64>::new(), 0);
            for tick in 0..4_000 {
                clock.set(NOW_MS + tick);
                let id = flakes.next().await.unwrap();
                assert!(id > last);
                last = id;
                *shares.entry(id % 8).or_default() += 1;
            }
            // A burst has what is left of its tick.
            clock.set(NOW_MS + 5_000);
            let burst: Vec<_> = flakes.take(4_000).await.unwrap().iter().collect();
            assert!(burst.is_sorted() && burst.iter().all(|&id| stamp_ms(&flakes, id) == NOW_MS + 5_000));
            shares.into_values().collect::<Vec<_>>()
        }
    };
    assert_eq!(shares(Spread::Rotating { bits: 3 }).await, [500; 8]);
    assert_eq!(shares(Spread::None).await, [4_000]);
    let random = shares(Spread::Random { bits: 3 }).await;
    assert!(random.len() == 8 && random.iter().all(|share| share.abs_diff(500) < 125), "{random:?}");
    // Processes that hand out one id and end begin at different places.
    let mut starts = BTreeSet::new();
    for process in 0..8 {
        let spread = if process % 2 == 0 { Spread::Random { bits: 12 } } else { Spread::Rotating { bits: 12 } };
        let options = SnowflakeOptions { spread, ..SnowflakeOptions::new(Layout::TWITTER) };
        let flakes = ids.snowflake(&format!("process {process}"), options).await.unwrap();
        starts.insert(flakes.next().await.unwrap() % 4_096);
    }
    assert!(starts.len() > 4, "{starts:?}");
    for (layout, bits) in [(Layout::TWITTER, 0), (Layout::TWITTER, 13), (Layout::SONYFLAKE, 3)] {
        let spread = Spread::Random { bits };
        let options = SnowflakeOptions { spread, ..SnowflakeOptions::new(layout) };
        let refused = kind(ids.snowflake("refused", options).await);
        assert!(matches!(refused, ErrorKind::Options { source: OptionsError::Spread, .. }), "{refused:?}");
    }
}

/// Each reading is later than the one before, and takes its time.
struct Counting(AtomicU64);

impl Clock for Counting {
    fn now_ms(&self) -> u64 {
        let now_ms = self.0.fetch_add(1, Ordering::SeqCst);
        // Whoever reads outside the lock is overtaken here, sooner or later.
        std::thread::sleep(Duration::from_micros(50));
        now_ms
    }
}

#[test]
fn the_time_is_read_inside_the_lock() {
    let limits = LeaseLimits { max_skew_ms: u64::MAX, ..LeaseLimits::default() };
    let store = MemoryStore::new(MemoryOptions { limits, clock: Arc::new(|| NOW_MS), ..MemoryOptions::default() });
    let clock = Arc::new(Counting(AtomicU64::new(NOW_MS)));
    let ids = Ids::builder().leases(Arc::new(store)).clock(clock).lanes(1).build_blocking().unwrap();
    let options = SnowflakeOptions {
        clock: ClockPolicy::Reject,
        horizon_ms: HOUR_MS,
        ahead_max_ms: 0,
        ..SnowflakeOptions::new(Layout::TWITTER)
    };
    let flakes = ids.snowflake_blocking("default", options).unwrap();
    flakes.next_blocking().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    flakes.next_blocking().unwrap();
                }
            });
        }
    });
}
