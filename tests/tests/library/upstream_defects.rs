//! Defects of other generators, each played against this one through the whole stack: the component inside `Ids`, a
//! lease store, and clocks of the test's own.
//!
//! Every test is named after the generator and what happens there, and says where it was seen. None of them may ever
//! see an id twice.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot do its work fails the test")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use unalike::storage::{LeaseLimits, LeaseStore, StoreError};
use unalike::{
    Clock, ClockPolicy, Error, ErrorKind, FieldOrder, Ids, Layout, LayoutFields, Snowflake, SnowflakeOptions,
};
use unalike_local::{LocalLeases, LocalOptions};
use unalike_memory::{MemoryOptions, MemoryStore};
use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_tests::PATIENCE;

/// 2026-03-01T00:00:00Z.
const NOW_MS: u64 = 1_772_323_200_000;

/// A clock that stands until it is moved.
struct Hand(AtomicU64);

impl Hand {
    fn at(now_ms: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(now_ms)))
    }

    fn set(&self, now_ms: u64) {
        self.0.store(now_ms, Ordering::SeqCst);
    }
}

impl Clock for Hand {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A lease store with this clock.
fn store(clock: &Arc<Hand>) -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(memory_options(clock, LeaseLimits::default())))
}

fn memory_options(clock: &Arc<Hand>, limits: LeaseLimits) -> MemoryOptions {
    let clock = Arc::clone(clock);
    MemoryOptions { limits, clock: Arc::new(move || clock.now_ms()), ..MemoryOptions::default() }
}

/// A process of its own: it dies when it is dropped, and gives its lease back when it is closed.
async fn process(leases: Arc<dyn LeaseStore>, clock: &Arc<Hand>, worker: Option<u32>) -> Ids {
    let builder = Ids::builder().leases(leases).clock(Arc::clone(clock) as Arc<dyn Clock>).holder("host-a:8080");
    let builder = builder.lanes(1).wait_max(Duration::from_millis(200));
    let builder = worker.into_iter().fold(builder, |builder, worker| builder.preferred_worker(worker));
    builder.build().await.unwrap()
}

/// No clock policy and no bound is in the way of a duplicate.
fn lenient(layout: Layout) -> SnowflakeOptions {
    SnowflakeOptions {
        clock: ClockPolicy::Keep { max_ms: 600_000 },
        ahead_max_ms: 600_000,
        ..SnowflakeOptions::new(layout)
    }
}

fn layout(worker_bits: u8, sequence_bits: u8) -> Layout {
    let fields = LayoutFields {
        timestamp_bits: 41,
        datacenter_bits: 0,
        worker_bits,
        sequence_bits,
        order: FieldOrder::WorkerFirst,
        epoch_ms: 1_582_136_402_000,
        tick_ms: 1,
    };
    Layout::new(fields).unwrap()
}

/// All ids of a test.
#[derive(Default)]
struct Seen(BTreeSet<u64>);

impl Seen {
    #[track_caller]
    fn add(&mut self, ids: impl IntoIterator<Item = u64>) {
        for id in ids {
            assert!(self.0.insert(id), "{id} was handed out twice");
        }
    }
}

async fn worker_of(flakes: &Snowflake) -> u32 {
    flakes.layout().unpack(flakes.next().await.unwrap()).unwrap().worker
}

/// What the store answered, where it refused a worker.
fn exhausted(error: &Error) -> Option<(u64, u64)> {
    match error.store_error() {
        Some(StoreError::WorkersExhausted { workers, free_at_ms, .. }) => Some((*workers, *free_at_ms)),
        _ => None,
    }
}

/// hutool's published listing sets its sequence to 0 before it refuses a clock that is behind, so calls within the 2 s
/// that it tolerates repeat (last timestamp, 1), (last timestamp, 2), ..: 15,910 duplicates in these 20,010 calls.
#[tokio::test]
async fn hutool_repeats_ids_within_its_tolerance_of_2_s() {
    for policy in [ClockPolicy::Keep { max_ms: 2_000 }, ClockPolicy::Wait { max_ms: 2_000 }, ClockPolicy::Reject] {
        let clock = Hand::at(NOW_MS);
        let ids = process(store(&clock), &clock, None).await;
        let options = SnowflakeOptions { clock: policy, ..SnowflakeOptions::new(Layout::HUTOOL) };
        let flakes = ids.snowflake("default", options).await.unwrap();
        let mut seen = Seen::default();
        seen.add([flakes.next().await.unwrap()]);
        for call in 1..20_010 {
            clock.set(if call < 10 { NOW_MS } else { NOW_MS - 1_000 + call / 10 });
            match flakes.try_next() {
                Ok(id) => seen.add(id),
                Err(error) => assert!(matches!(error.kind(), ErrorKind::ClockMovedBack { .. }), "{error:?}"),
            }
        }
        assert!(seen.0.len() > 10_000, "{policy:?}: ids go on when the clock has caught up: {}", seen.0.len());
    }
}

/// The generator that leases workers from a table or a Redis counter takes the number of its start modulo 32, so the
/// 33rd start has the worker of the first, which may still run.
#[tokio::test]
async fn the_33rd_start_modulo_32_has_the_worker_of_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let options = SqliteOptions::new(directory.path().join("ids.sqlite"));
    let leases: Arc<dyn LeaseStore> = Arc::new(SqliteStore::connect(options).await.unwrap());
    let start = async || {
        let ids = Ids::builder().leases(Arc::clone(&leases)).lanes(1).build().await.unwrap();
        let flakes = ids.snowflake("default", SnowflakeOptions::new(Layout::WORKER5)).await.unwrap();
        (ids, flakes)
    };
    let (mut seen, mut workers, mut running) = (Seen::default(), BTreeSet::new(), Vec::new());
    for _ in 0..32 {
        let (ids, flakes) = start().await;
        assert!(workers.insert(worker_of(&flakes).await), "two run with one worker");
        running.push((ids, flakes));
    }
    let (_ids, late) = start().await;
    let error = late.next().await.unwrap_err();
    let (count, free_at_ms) = exhausted(&error).unwrap_or_else(|| panic!("{error:?}"));
    assert_eq!(count, 32, "the error says how many there are");
    assert!(free_at_ms > NOW_MS && error.is_retryable(), "and when one is free: {error}");
    for (_, flakes) in &running {
        seen.add(flakes.take(1_000).await.unwrap().iter());
    }
    let (first, _) = running.swap_remove(7);
    first.close().await;
    let started = Instant::now();
    let id = loop {
        match late.next().await {
            Ok(id) => break id,
            Err(error) => assert!(exhausted(&error).is_some() && started.elapsed() < PATIENCE, "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    seen.add([id]);
    for (_, flakes) in &running {
        seen.add(flakes.take(1_000).await.unwrap().iter());
    }
}

/// Vesta's `BasePopulator` moves on to the next millisecond when its sequence overflows and does not remember it:
/// (t + 1, 0) comes twice. 4 duplicates in these 5,000 calls, with 10 bits of sequence.
#[tokio::test]
async fn vesta_repeats_an_id_at_each_overflow() {
    let clock = Hand::at(NOW_MS);
    let ids = process(store(&clock), &clock, None).await;
    let flakes = ids.snowflake("default", SnowflakeOptions::new(layout(10, 10))).await.unwrap();
    let mut seen = Seen::default();
    seen.add([flakes.next().await.unwrap()]);
    for call in 1..5_000 {
        // Somewhat fewer milliseconds than the ids need.
        clock.set(NOW_MS + call / 1_100);
        seen.add([flakes.try_next().unwrap().unwrap()]);
    }
    let last = seen.0.last().and_then(|&id| flakes.layout().unpack(id).ok()).unwrap();
    assert_eq!((last.ticks, last.sequence), (NOW_MS + 4 - 1_582_136_402_000, 4_999 - 4 * 1_024));
}

/// Yitter's generator runs ahead of the clock when ids are asked for faster than it goes, and remembers that in memory
/// alone: 110,000 ids are 1.7 s ahead, and a new instance with the same worker repeats 79,084 of them.
#[tokio::test]
async fn yitter_repeats_after_a_restart_what_it_had_borrowed() {
    let mut seen = Seen::default();
    let clock = Hand::at(NOW_MS);
    let leases = store(&clock);
    let many = lenient(Layout::YITTER_53);
    let before = process(leases.clone(), &clock, Some(7)).await;
    seen.add(before.snowflake("many", many).await.unwrap().take(110_000).await.unwrap().iter());
    before.close().await;
    let again = process(leases.clone(), &clock, Some(7)).await;
    seen.add(again.snowflake("many", many).await.unwrap().take(110_000).await.unwrap().iter());

    // With one worker alone the new instance must have it, and cannot before its time has come.
    for is_killed in [false, true] {
        let mut seen = Seen::default();
        clock.set(NOW_MS);
        let (namespace, one) = (if is_killed { "killed" } else { "closed" }, lenient(layout(0, 6)));
        let before = process(leases.clone(), &clock, None).await;
        let flakes = before.snowflake(namespace, one).await.unwrap();
        seen.add(flakes.take(110_000).await.unwrap().iter());
        let used_until_ms = flakes.status().unwrap().used_until_ms;
        assert!(used_until_ms > NOW_MS + 1_700, "that far ahead of the clock");
        if !is_killed {
            before.close().await;
        }
        drop((before, flakes));
        let again = process(leases.clone(), &clock, None).await;
        let flakes = again.snowflake(namespace, one).await.unwrap();
        let error = flakes.next().await.unwrap_err();
        let (_, free_at_ms) = exhausted(&error).unwrap_or_else(|| panic!("{error:?}"));
        assert!(free_at_ms >= used_until_ms, "the worker is free when its last id's time has passed: {error}");
        assert!(is_killed || free_at_ms == used_until_ms, "and no later if it was given back: {error}");
        clock.set(free_at_ms);
        seen.add(flakes.take(110_000).await.unwrap().iter());
    }
}

/// Yitter's Go package shifts the worker as a number of 16 bits: with 12 bits of sequence and 10 of worker, workers 0
/// and 16, 1 and 17, 5, 21 and 37 make the same ids. Its Rust crate takes a greatest sequence of 0 for 63 instead of
/// all that the field holds, and ids run into the next worker's: 145,756 duplicates with 4 bits.
#[tokio::test]
async fn yitter_cuts_worker_bits_off_and_runs_over_its_sequence() {
    for (layout, workers) in [
        (layout(10, 12), [0, 16, 1, 17, 5, 21, 37, 1_023].as_slice()),
        (layout(6, 4), &[0, 1, 2, 3, 62, 63]),
        (layout(6, 10), &[0, 63]),
    ] {
        let clock = Hand::at(NOW_MS);
        let leases = store(&clock);
        let mut seen = Seen::default();
        for &worker in workers {
            let ids = process(leases.clone(), &clock, Some(worker)).await;
            let flakes = ids.snowflake("default", lenient(layout)).await.unwrap();
            let taken: Vec<u64> = flakes.take(10_000).await.unwrap().iter().collect();
            let parts: Vec<_> = taken.iter().map(|&id| layout.unpack(id).unwrap()).collect();
            assert!(parts.iter().all(|parts| parts.worker == worker), "worker {worker} is in each of its ids");
            let sequences: BTreeSet<_> = parts.iter().map(|parts| parts.sequence).collect();
            assert_eq!(sequences.len() as u64, layout.ids_per_tick().min(10_000), "all of the sequence is used");
            seen.add(taken);
        }
    }
    // The last id that a layout has: every field is full.
    let layout = layout(10, 12);
    let clock = Hand::at(layout.ends_ms() - 1);
    let ids = process(store(&clock), &clock, Some(1_023)).await;
    let flakes = ids.snowflake("default", lenient(layout)).await.unwrap();
    assert_eq!(flakes.take(4_096).await.unwrap().iter().last(), Some(layout.id_max()));
}

/// `CosId` notes that it lost its machine id, and goes on with it: a process that was paused for longer than its lease
/// makes ids beside the one that has the machine id now.
#[tokio::test]
async fn cosid_goes_on_with_a_machine_id_that_it_lost() {
    let clock = Hand::at(NOW_MS);
    let leases = store(&clock);
    let options = SnowflakeOptions { horizon_ms: 1_000, ..lenient(layout(0, 12)) };
    let mut seen = Seen::default();
    let paused_clock = Hand::at(NOW_MS);
    let paused = process(leases.clone(), &paused_clock, None).await;
    let paused = paused.snowflake("default", options).await.unwrap();
    seen.add(paused.take(10_000).await.unwrap().iter());

    clock.set(NOW_MS + 2_000);
    let next = process(leases.clone(), &clock, None).await;
    let next = next.snowflake("default", options).await.unwrap();
    seen.add(next.take(10_000).await.unwrap().iter());
    assert_eq!(next.status().unwrap().worker, paused.status().unwrap().worker, "it has the worker now");

    // It wakes up: its clock is where it stopped, inside its lease; then where it is.
    let lease_end = options.layout.pack(unalike::Parts {
        ticks: options.layout.tick_at(NOW_MS + 1_000).unwrap(),
        worker: 0,
        sequence: 0,
    });
    for paused_ms in [NOW_MS + 500, NOW_MS + 2_000] {
        paused_clock.set(paused_ms);
        for _ in 0..100 {
            match paused.next().await {
                Ok(id) => {
                    assert!(id < lease_end.unwrap(), "a stamp past the end of its lease");
                    seen.add([id]);
                }
                Err(error) => {
                    assert!(exhausted(&error).is_some(), "{error:?}");
                    break;
                }
            }
        }
        seen.add(next.take(1_000).await.unwrap().iter());
    }
    let error = paused.next().await.unwrap_err();
    assert!(exhausted(&error).is_some(), "it hears that it has no worker: {error:?}");
}

/// `CosId` lets the caller's clock decide that a machine id is free: a host that is five minutes fast takes those of
/// the living.
#[tokio::test]
async fn cosid_lets_a_fast_host_take_what_lives() {
    let clock = Hand::at(NOW_MS);
    let leases = store(&clock);
    let options = lenient(layout(0, 12));
    let mut seen = Seen::default();
    let living = process(leases.clone(), &clock, None).await;
    let living = living.snowflake("default", options).await.unwrap();
    seen.add(living.take(1_000).await.unwrap().iter());
    let before = leases.leases("default").await.unwrap();

    let fast_clock = Hand::at(NOW_MS + 300_000);
    let fast = process(leases.clone(), &fast_clock, None).await;
    let fast = fast.snowflake("default", options).await.unwrap();
    let error = fast.next().await.unwrap_err();
    let skew = matches!(error.store_error(), Some(StoreError::ClockSkew { holder_ms, store_ms, .. })
        if (*holder_ms, *store_ms) == (NOW_MS + 300_000, NOW_MS));
    assert!(skew, "it hears of its clock: {error:?}");

    // Also where the store allows clocks so far off: its own decides.
    let limits = LeaseLimits { max_skew_ms: 600_000, ..LeaseLimits::default() };
    let tolerant = leases.client(memory_options(&clock, limits));
    let fast = process(Arc::new(tolerant), &fast_clock, None).await;
    let error = fast.snowflake("default", options).await.unwrap().next().await.unwrap_err();
    assert!(exhausted(&error).is_some(), "{error:?}");
    assert_eq!(leases.leases("default").await.unwrap(), before, "nothing was taken");
    seen.add(living.take(1_000).await.unwrap().iter());
}

/// `CosId` returns the machine id in its local file without asking the store, although the store may have given it to
/// another since.
#[tokio::test]
async fn cosid_trusts_its_local_file_when_others_have_the_machine_id() {
    let clock = Hand::at(NOW_MS);
    let leases = store(&clock);
    let directory = tempfile::tempdir().unwrap();
    let options = SnowflakeOptions { horizon_ms: 3_000, ..lenient(layout(0, 6)) };
    let mut seen = Seen::default();
    let own_clock = Hand::at(NOW_MS);
    // A process that was just killed may hold its lock for a moment longer.
    let start = async || {
        let started = Instant::now();
        let local = loop {
            let local_options = LocalOptions { lead_ms: 1_000, ..LocalOptions::new(directory.path()) };
            match LocalLeases::open(leases.clone(), local_options).await {
                Ok(local) => break Arc::new(local),
                Err(error) => assert!(started.elapsed() < PATIENCE, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        let ids = process(local, &own_clock, None).await;
        ids.snowflake("default", options).await.unwrap()
    };
    let first = start().await;
    seen.add(first.take(5_000).await.unwrap().iter());
    drop(first);

    clock.set(NOW_MS + 10_000);
    let other = process(leases.clone(), &clock, None).await;
    let other = other.snowflake("default", options).await.unwrap();
    seen.add(other.take(5_000).await.unwrap().iter());

    let again = start().await;
    // At a time of its own lease, and then at the true one.
    for own_ms in [NOW_MS + 1_500, NOW_MS + 10_000] {
        own_clock.set(own_ms);
        for _ in 0..300 {
            match again.next().await {
                Ok(id) => seen.add([id]),
                Err(error) => {
                    assert!(error.is_retryable(), "{error:?}");
                    break;
                }
            }
        }
        seen.add(other.take(1_000).await.unwrap().iter());
    }
    let error = again.next().await.unwrap_err();
    assert!(exhausted(&error).is_some(), "the store says that another has the worker: {error:?}");
}

/// Leaf checks the clock against the time that it recorded, throws, catches that itself, and starts with the worker of
/// its local file.
#[tokio::test]
async fn leafs_check_of_the_clock_never_stops_a_start() {
    let clock = Hand::at(NOW_MS);
    let leases = store(&clock);
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let behind = Hand::at(NOW_MS - 3_600_000);
        let local = LocalLeases::open(leases.clone(), LocalOptions::new(directory.path())).await.unwrap();
        let ids = process(Arc::new(local), &behind, None).await;
        let flakes = ids.snowflake("default", lenient(Layout::LEAF)).await.unwrap();
        for _ in 0..3 {
            let error = flakes.next().await.unwrap_err();
            assert!(matches!(error.store_error(), Some(StoreError::ClockSkew { .. })), "{error:?}");
        }
        ids.close().await;
        drop((ids, flakes));
    }
    assert_eq!(leases.leases("default").await.unwrap(), [], "nothing was granted");
}

/// Leaf writes the time down every 3 s: what it handed out since the last writing is covered by nothing after a restart
/// with a clock that went back.
#[tokio::test]
async fn leaf_repeats_up_to_3_s_after_a_restart_with_an_earlier_clock() {
    let mut seen = Seen::default();
    let clock = Hand::at(NOW_MS);
    let leases = store(&clock);
    let options = SnowflakeOptions { horizon_ms: 4_000, ..lenient(layout(0, 4)) };
    let own_clock = Hand::at(NOW_MS);
    let before = process(leases.clone(), &own_clock, None).await;
    let flakes = before.snowflake("default", options).await.unwrap();
    for passed_ms in 0..2_900 {
        own_clock.set(NOW_MS + passed_ms);
        clock.set(NOW_MS + passed_ms);
        seen.add([flakes.next().await.unwrap()]);
    }
    // Killed; the clock is back where it began.
    drop((before, flakes));
    own_clock.set(NOW_MS);
    let again = process(leases.clone(), &own_clock, None).await;
    let flakes = again.snowflake("default", options).await.unwrap();
    let error = flakes.next().await.unwrap_err();
    let (_, free_at_ms) = exhausted(&error).unwrap_or_else(|| panic!("{error:?}"));
    assert!(free_at_ms > NOW_MS + 2_900, "{error}");
    let highest = seen.0.last().copied();
    for passed_ms in (0..3_000).step_by(100) {
        // The store's clock is right; its own goes through the times that it was killed after.
        clock.set(free_at_ms + passed_ms);
        own_clock.set(NOW_MS + passed_ms);
        if let Ok(batch) = flakes.take(20).await {
            assert!(batch.iter().all(|id| Some(id) > highest), "below what was handed out before");
            seen.add(batch.iter());
        }
    }
    own_clock.set(clock.now_ms());
    seen.add([flakes.next().await.unwrap()]);
}

/// Sonyflake and ferroid take a clock that goes back in without a word: the one sleeps for all of the time with its
/// lock held, the other is pending for ever, and neither knows of it after a restart.
#[tokio::test]
async fn sonyflake_and_ferroid_swallow_a_clock_that_goes_back() {
    let mut seen = Seen::default();
    for policy in [ClockPolicy::Reject, ClockPolicy::Wait { max_ms: 2_000 }, ClockPolicy::Keep { max_ms: 2_000 }] {
        let clock = Hand::at(NOW_MS);
        let true_clock = Hand::at(NOW_MS);
        let leases = store(&true_clock);
        let options = SnowflakeOptions { clock: policy, ..SnowflakeOptions::new(Layout::SONYFLAKE) };
        let mut before = BTreeSet::new();
        let ids = process(leases.clone(), &clock, None).await;
        let flakes = ids.snowflake("default", options).await.unwrap();
        before.insert(flakes.next().await.unwrap());
        let started = Instant::now();
        clock.set(NOW_MS - 5_000);
        let error = flakes.next().await.unwrap_err();
        let told = matches!(error.kind(), ErrorKind::ClockMovedBack { behind_ms: 5_000, .. });
        assert!(told && error.is_retryable(), "it is told, with its figure: {error:?}");
        assert_eq!(error.retry_after_ms(), Some(5_000));
        clock.set(NOW_MS - 1_000);
        match flakes.next().await {
            Ok(id) => assert!(before.insert(id), "{id} was handed out twice"),
            Err(error) => assert!(error.is_retryable() && error.retry_after_ms().is_some(), "{error:?}"),
        }
        assert!(started.elapsed() < Duration::from_secs(4), "nobody waits for a clock: {:?}", started.elapsed());
        // A restart with the clock still back.
        ids.close().await;
        let again = process(leases.clone(), &clock, None).await;
        let again = again.snowflake("default", options).await.unwrap();
        if let Ok(id) = again.next().await {
            assert!(before.insert(id), "{id} was handed out twice");
        }
        clock.set(NOW_MS + 1_000);
        true_clock.set(NOW_MS + 1_000);
        assert!(before.insert(again.next().await.unwrap()), "and ids go on when the clock is right");
        // Each round has a store of its own, so its ids are its own.
        seen.0.extend(before);
    }
    assert!(seen.0.len() >= 2);
}

/// uid-generator's default bits ended on 2024-11-20: its cached variant does not look, and its ids are negative.
#[tokio::test]
async fn uid_generator_goes_on_past_the_end_of_its_bits() {
    let layout = Layout::BAIDU;
    let last_ms = layout.ends_ms() - 1_000;
    let clock = Hand::at(last_ms);
    let ids = process(store(&clock), &clock, Some(1)).await;
    let flakes = ids.snowflake("default", lenient(layout)).await.unwrap();
    let last = flakes.take(8_192).await.unwrap();
    assert!(last.iter().all(|id| id <= layout.id_max()), "the last second's ids are ids like any other");
    let error = flakes.next().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Exhausted { .. }), "no time is borrowed beyond the end: {error:?}");
    for later_ms in [layout.ends_ms(), NOW_MS] {
        clock.set(later_ms);
        let error = flakes.next().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Exhausted { .. }) && !error.is_retryable(), "{error:?}");
        let ids = process(store(&clock), &clock, Some(1)).await;
        let error = ids.snowflake("default", lenient(layout)).await.unwrap().next().await.unwrap_err();
        assert!(!error.is_retryable(), "a start after the end is refused for good: {error:?}");
    }
}

/// In `ShardingSphere` (apache/shardingsphere#17055), and in most libraries, a second generator object has the first
/// one's worker and a sequence of its own.
#[tokio::test]
async fn shardingsphere_repeats_ids_in_a_second_generator_object() {
    let clock = Hand::at(NOW_MS);
    let leases = store(&clock);
    let mut seen = Seen::default();
    let ids = process(leases.clone(), &clock, Some(5)).await;
    let options = lenient(Layout::LEAF);
    let first = ids.snowflake("default", options).await.unwrap();
    for _ in 0..100 {
        // One per call, as an application may do without thinking.
        let again = ids.snowflake("default", options).await.unwrap();
        seen.add([again.next().await.unwrap(), first.next().await.unwrap()]);
        assert_eq!(again.status().unwrap().worker, Some(5), "they share one worker");
    }
    let error = ids.snowflake("default", SnowflakeOptions::new(Layout::LEAF)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::OpenOtherwise { .. }), "{error:?}");
    // What cannot be shared, a second `Ids`, has a worker of its own.
    let beside = process(leases, &clock, Some(5)).await.snowflake("default", options).await.unwrap();
    assert_ne!(worker_of(&beside).await, 5);
    seen.add(beside.take(1_000).await.unwrap().iter());
    seen.add(first.take(1_000).await.unwrap().iter());
}
