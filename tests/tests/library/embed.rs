//! The library as an application uses it: many tasks and threads, stores that are slow, down or lying, clocks that
//! jump, forks. Every test that hands out ids checks that none comes twice.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot do its work fails the test")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use unalike::storage::{LeaseStore, SegmentStore, StoreError, TagOptions};
use unalike::{
    Clock, ClockPolicy, Error, ErrorKind, ID_MAX, Ids, Layout, Mode, OptionsError, Order, RefillPolicy, Sequence,
    SequenceOptions, Snowflake, SnowflakeOptions, StepPolicy,
};
use unalike_memory::{MemoryOptions, MemoryStore};
use unalike_tests::PATIENCE;
use unalike_tests::faulty::FaultyStore;
use unalike_tests::sqlite::open as open_file;

fn kind<T>(answer: &Result<T, Error>) -> Option<&ErrorKind> {
    answer.as_ref().err().map(Error::kind)
}

fn is_closed(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Closed { .. })
}

async fn open(store: &Arc<impl SegmentStore + LeaseStore>) -> Ids {
    Ids::builder().segments(store.clone()).leases(store.clone()).build().await.unwrap()
}

fn fixed(step: u64) -> SequenceOptions {
    SequenceOptions { step: Some(StepPolicy::Fixed { step }), ..SequenceOptions::default() }
}

fn assert_unique(mut ids: Vec<u64>) -> Vec<u64> {
    let total = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), total, "an id was handed out twice");
    assert!(ids.first().is_none_or(|&first| first >= 1));
    ids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_tasks_of_two_processes_worth_of_generators_share_a_tag() {
    let store = Arc::new(MemoryStore::default());
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let ids = open(&store).await;
        for task in 0..8_u32 {
            let orders = ids.sequence("order", fixed(500)).await.unwrap();
            tasks.push(tokio::spawn(async move {
                let mut taken = Vec::new();
                for round in 0..2_000_u32 {
                    if (round + task) % 10 == 0 {
                        taken.extend(orders.take(round % 700 + 1).await.unwrap().iter());
                    } else {
                        taken.push(orders.next().await.unwrap());
                    }
                }
                assert!(taken.is_sorted_by(|a, b| a < b), "one task saw ids go down");
                taken
            }));
        }
    }
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    assert_unique(all);
}

#[test]
fn threads_without_a_runtime_use_the_blocking_calls() {
    let store = Arc::new(MemoryStore::default());
    let ids = Ids::builder().segments(store.clone()).leases(store).build_blocking().unwrap();
    let orders = ids.sequence_blocking("order", fixed(1_000)).unwrap();
    let flakes = ids.snowflake_blocking("default", SnowflakeOptions::new(Layout::TWITTER)).unwrap();
    let (numbers, stamped): (Vec<_>, Vec<_>) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let numbers: Vec<u64> = (0..20_000).map(|_| orders.next_blocking().unwrap()).collect();
                    let mut stamped: Vec<u64> = (0..20_000).map(|_| flakes.next_blocking().unwrap()).collect();
                    stamped.extend(flakes.take_blocking(10_000).unwrap().iter());
                    assert!(numbers.is_sorted_by(|a, b| a < b) && stamped.is_sorted_by(|a, b| a < b));
                    (numbers, stamped)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).unzip()
    });
    let numbers = assert_unique(numbers.concat());
    // A thread that sleeps at the wrong moment may leave a gap of one.
    assert!(numbers.last().is_some_and(|&last| last <= 80_100), "{:?}", numbers.last());
    assert_eq!(assert_unique(stamped.concat()).len(), 120_000);
    ids.close_blocking();
    assert!(matches!(kind(&ids.sequence_blocking("order", fixed(1_000))), Some(ErrorKind::Closed { .. })));
}

fn per_thread() -> SequenceOptions {
    SequenceOptions { order: Some(Order::Thread), ..fixed(1_000) }
}

#[test]
fn threads_and_local_handles_with_runs_of_their_own_share_no_id() {
    let store = Arc::new(MemoryStore::default());
    let ids = Ids::builder().segments(store).build_blocking().unwrap();
    let orders = ids.sequence_blocking("order", per_thread()).unwrap();
    let taken: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut local = orders.local().unwrap();
                    let (mut own, mut held) = (Vec::new(), Vec::new());
                    for round in 0..2_000 {
                        own.extend((0..10).map(|_| orders.next_blocking().unwrap()));
                        held.extend((0..10).map(|_| local.next_blocking().unwrap()));
                        own.extend(orders.take_blocking(1 + round % 7).unwrap().iter());
                        held.extend(local.take_blocking(1 + round % 5).unwrap().iter());
                    }
                    assert!(own.is_sorted_by(|a, b| a < b), "one thread saw ids go down");
                    assert!(held.is_sorted_by(|a, b| a < b), "one handle saw ids go down");
                    [own, held].concat()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let count: usize = taken.iter().map(Vec::len).sum();
    assert!(orders.status().unwrap().issued >= count as u64);
    assert_eq!(assert_unique(taken.concat()).len(), count);
    ids.close_blocking();
}

#[tokio::test]
async fn an_ordered_tag_has_no_runs_per_thread_or_handle() {
    let store = Arc::new(MemoryStore::default());
    let options = TagOptions { mode: Mode::Ordered, ..TagOptions::default() };
    store.create_tag("ticket", &options).await.unwrap();
    let ids = Ids::builder().segments(store).build().await.unwrap();
    let asked = SequenceOptions { order: Some(Order::Thread), ..SequenceOptions::default() };
    assert!(matches!(kind(&ids.sequence("ticket", asked).await), Some(ErrorKind::OrderedPerThread { .. })));
    let tickets = ids.sequence("ticket", SequenceOptions::default()).await.unwrap();
    assert!(matches!(kind(&tickets.local()), Some(ErrorKind::OrderedPerThread { .. })));
    for number in 1..=1_000 {
        assert_eq!(tickets.next().await.unwrap(), number);
        assert_eq!(tickets.status().unwrap().issued, number, "whoever has an id finds it counted");
    }
}

/// What other threads hold while everything is given back stays theirs alone: a successor on the same store gets none
/// of it.
#[test]
fn giving_back_while_runs_are_out_hands_none_of_them_to_a_successor() {
    let store = Arc::new(MemoryStore::default());
    let mut all = Vec::new();
    for _ in 0..20 {
        let ids = Ids::builder().segments(store.clone()).leases(store.clone()).build_blocking().unwrap();
        let orders = ids.sequence_blocking("order", fixed(1_000)).unwrap();
        let flakes = ids.snowflake_blocking("default", SnowflakeOptions::new(Layout::TWITTER)).unwrap();
        let threaded = ids.sequence_blocking("order", SequenceOptions::default()).unwrap();
        let go_on = std::sync::atomic::AtomicBool::new(true);
        let taken: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        let mut local = orders.local().unwrap();
                        let mut taken = Vec::new();
                        // Until both refuse: after the end a handle still gives what it holds.
                        loop {
                            let answers = [local.next_blocking(), threaded.next_blocking(), flakes.next_blocking()];
                            let before = taken.len();
                            for answer in answers {
                                match answer {
                                    Ok(id) => taken.push(id),
                                    Err(error) => assert!(is_closed(&error), "{error:?}"),
                                }
                            }
                            if taken.len() == before {
                                assert!(!go_on.load(Ordering::SeqCst), "refused before the end");
                                return taken;
                            }
                        }
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_millis(5));
            go_on.store(false, Ordering::SeqCst);
            ids.close_blocking();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        all.extend(taken.concat());
    }
    assert_unique(all);
}

#[test]
fn a_handle_outlives_what_it_was_opened_from() {
    let store = Arc::new(MemoryStore::default());
    let ids = Ids::builder().segments(store).build_blocking().unwrap();
    let orders = ids.sequence_blocking("order", fixed(10)).unwrap();
    drop(ids);
    // More than one segment, so that requests are still carried to the store.
    for expected in 1..=100 {
        assert_eq!(orders.next_blocking().unwrap(), expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_wait_for_one_request_and_a_slow_store_is_hidden_by_prefetch() {
    let store = Arc::new(FaultyStore::default());
    let ids = open(&store).await;
    let orders = ids.sequence("order", fixed(10_000)).await.unwrap();
    store.hold(true);
    let waiting: Vec<_> = (0..50)
        .map(|_| {
            let orders = orders.clone();
            tokio::spawn(async move { orders.next().await.unwrap() })
        })
        .collect();
    tokio::task::yield_now().await;
    assert_eq!(orders.try_next().unwrap(), None);
    store.hold(false);
    let mut all = Vec::new();
    for task in waiting {
        all.push(task.await.unwrap());
    }
    assert_unique(all);
    // The first segment was asked for once, whoever waited; perhaps the second was prefetched.
    assert!(store.allocations() <= 2, "{} requests", store.allocations());
    // The store stops answering: what was fetched ahead lasts.
    let ahead = loop {
        let status = orders.status().unwrap();
        if !status.in_flight {
            break status.remaining;
        }
        tokio::task::yield_now().await;
    };
    store.hold(true);
    let ahead = u32::try_from(ahead).unwrap();
    assert_eq!(orders.take(ahead).await.unwrap().len(), u64::from(ahead), "whoever waits for the store has nothing");
}

#[tokio::test]
async fn lost_answers_and_outages_cost_gaps_and_never_an_id_twice() {
    let store = Arc::new(FaultyStore::default());
    let ids = open(&store).await;
    let orders = ids.sequence("order", fixed(10)).await.unwrap();
    let mut all = Vec::new();
    for round in 0..200_u32 {
        store.set_answers_lost(round % 5 == 1);
        store.set_down(round % 7 == 2);
        let orders = orders.clone();
        let taking = tokio::spawn(async move { orders.take(7).await });
        tokio::time::sleep(Duration::from_millis(u64::from(round % 3))).await;
        store.set_answers_lost(false);
        store.set_down(false);
        all.extend(taking.await.unwrap().unwrap().iter());
    }
    assert!(all.is_sorted_by(|a, b| a < b));
    assert_eq!(assert_unique(all).len(), 1_400);
}

#[tokio::test]
async fn a_store_that_stays_down_is_told_with_its_reason_and_ids_go_on_when_it_is_back() {
    let store = Arc::new(FaultyStore::default());
    let ids = Ids::builder().segments(store.clone()).wait_max(Duration::from_millis(100)).build().await.unwrap();
    let orders = ids.sequence("order", fixed(10)).await.unwrap();
    store.set_down(true);
    let error = orders.next().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Timeout { source: Some(_), .. }), "{error:?}");
    assert!(error.is_retryable() && error.retry_after_ms().is_some());
    assert!(error.to_string().contains("connection refused"), "{error}");
    store.set_down(false);
    let started = Instant::now();
    loop {
        match orders.next().await {
            Ok(id) => break assert_eq!(id, 1),
            Err(error) => assert!(error.is_retryable() && started.elapsed() < PATIENCE, "{error}"),
        }
    }
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_given_up_and_its_late_grant_burnt() {
    let store = Arc::new(FaultyStore::default());
    let ids = Ids::builder()
        .segments(store.clone())
        .wait_max(PATIENCE)
        .request_timeout(Duration::from_millis(50))
        .build()
        .await
        .unwrap();
    let orders = ids.sequence("order", fixed(10)).await.unwrap();
    let first = orders.take(10).await.unwrap();
    store.hold(true);
    let arrivals = store.arrivals();
    let waiting = tokio::spawn({
        let orders = orders.clone();
        async move { orders.take(30).await }
    });
    // One request is out at a time: with the third the first two were given up.
    while store.arrivals() < arrivals + 3 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    store.hold(false);
    let later = waiting.await.unwrap().unwrap();
    assert_unique(first.iter().chain(later.iter()).collect());
}

/// Tries until the store is asked again: it is left alone for a while after failures.
async fn in_the_end<T>(mut attempt: impl AsyncFnMut() -> Result<T, Error>) -> T {
    let started = Instant::now();
    loop {
        match attempt().await {
            Ok(value) => return value,
            Err(error) => assert!(error.is_retryable() && started.elapsed() < PATIENCE, "{error}"),
        }
    }
}

/// Takes in vain until so many numbers were granted.
async fn all_have_come(orders: &Sequence, count: u64, mut take: impl AsyncFnMut() -> Result<unalike::Batch, Error>) {
    let started = Instant::now();
    loop {
        let error = take().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Timeout { .. }), "{error:?}");
        let supply = orders.supply();
        if supply.issued + supply.left == count {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{count} numbers are to be granted: {supply:?}");
    }
}

/// A store that carries out so many requests, and ids of it that are waited for 100 ms. What one sequence asks for
/// beforehand would be another's that had the same store.
async fn rationed() -> (Ids, Arc<AtomicU64>) {
    let (store, grants) = (Arc::new(FaultyStore::default()), Arc::new(AtomicU64::new(u64::MAX)));
    store.set_budget(&grants);
    let ids = Ids::builder().segments(store).wait_max(Duration::from_millis(100)).build().await.unwrap();
    (ids, grants)
}

#[tokio::test]
async fn a_call_that_gives_up_leaves_what_had_come_for_it_to_the_next() {
    for options in [fixed(1), SequenceOptions { order: Some(Order::Thread), ..fixed(1) }] {
        let (ids, grants) = rationed().await;
        let orders = in_the_end(async || ids.sequence("order", options).await).await;
        grants.store(60, Ordering::SeqCst);
        all_have_come(&orders, 60, async || orders.take(100).await).await;
        assert_eq!((orders.next().await.unwrap(), orders.try_next().unwrap()), (1, Some(2)));
        assert!(orders.take(3).await.unwrap().iter().eq(3..=5), "who wants less than there is waits for nobody");
        grants.store(u64::MAX, Ordering::SeqCst);
        let batch = in_the_end(async || orders.take(100).await).await;
        assert!(batch.iter().eq(6..=105), "{batch:?}");
        // Nor is anything lost when a caller goes away.
        grants.store(20, Ordering::SeqCst);
        drop(tokio::time::timeout(Duration::from_millis(50), orders.take(100)).await);
        grants.store(u64::MAX, Ordering::SeqCst);
        assert_eq!(in_the_end(async || orders.next().await).await, 106);
    }
    let (ids, grants) = rationed().await;
    let orders = in_the_end(async || ids.sequence("order", fixed(1)).await).await;
    let mut local = tokio::sync::Mutex::new(orders.local().unwrap());
    grants.store(60, Ordering::SeqCst);
    all_have_come(&orders, 60, async || local.lock().await.take(100).await).await;
    assert_eq!(local.get_mut().next().await.unwrap(), 1);
    assert!(local.get_mut().take(50).await.unwrap().iter().eq(2..=51));
    grants.store(u64::MAX, Ordering::SeqCst);
    let batch = in_the_end(async || local.lock().await.take(100).await).await;
    assert!(batch.iter().eq(52..=151), "{batch:?}");
    assert_eq!(local.get_mut().next().await.unwrap(), 152);
}

/// Ids that wait for a large call go to those who ask for few, in ascending order for all.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_that_give_up_beside_others_lose_nothing_and_ids_ascend() {
    let store = Arc::new(FaultyStore::default());
    let ids = Ids::builder().segments(store.clone()).wait_max(Duration::from_millis(5)).build().await.unwrap();
    // Looking the tag up may take longer on a busy machine.
    let orders = in_the_end(async || ids.sequence("order", fixed(3)).await).await;
    let newest = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..6_u32)
        .map(|task| {
            let (orders, newest) = (orders.clone(), Arc::clone(&newest));
            tokio::spawn(async move {
                let mut all = Vec::new();
                for _ in 0..300 {
                    let before = newest.load(Ordering::SeqCst);
                    let taken = if task < 3 { orders.take(400).await } else { orders.take(task).await };
                    if let Ok(batch) = taken {
                        assert!(batch.iter().next() > Some(before), "a call that began later gets a greater id");
                        newest.fetch_max(batch.iter().last().unwrap(), Ordering::SeqCst);
                        all.extend(batch.iter());
                    }
                }
                all
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    let all = assert_unique(all);
    let supply = orders.supply();
    assert_eq!(supply.issued, all.len() as u64, "what was not handed out is still there: {supply:?}");
    assert_eq!(all.last().copied(), Some(supply.issued), "and there is no gap");
}

#[tokio::test]
async fn what_is_idle_and_has_no_handle_is_closed_and_its_tail_given_back() {
    let store = Arc::new(MemoryStore::default());
    let ids = open(&store).await;
    let held = ids.sequence("held", fixed(100)).await.unwrap();
    let watched: Vec<_> = {
        let (buffered, threads) = (fixed(100), SequenceOptions { order: Some(Order::Thread), ..fixed(100) });
        let mode = Mode::Ordered;
        store.create_tag("ordered", &TagOptions { mode, ..TagOptions::default() }).await.unwrap();
        let mut watched = Vec::new();
        for (tag, options) in [("shared", buffered), ("threads", threads), ("ordered", SequenceOptions::default())] {
            let sequence = ids.sequence(tag, options).await.unwrap();
            assert!(sequence.take(10).await.unwrap().iter().eq(1..=10));
            watched.push(sequence.downgrade());
        }
        ids.sequence("untouched", fixed(100)).await.unwrap();
        watched
    };
    held.take(10).await.unwrap();
    assert_eq!(ids.close_idle(Duration::from_secs(3_600)), 0, "none was idle for so long");
    assert_eq!(ids.sequences().iter().map(Sequence::opened_as).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    // The task of the ordered ones may still be about to end.
    let mut closed = 0;
    while closed < 4 {
        closed += ids.close_idle(Duration::ZERO);
        tokio::task::yield_now().await;
    }
    assert!(watched.iter().all(|sequence| sequence.upgrade().is_none()));
    assert_eq!(ids.sequences().iter().map(Sequence::tag).collect::<Vec<_>>(), ["held"]);
    assert!(ids.sequence_if_open("shared").is_none() && ids.close_idle(Duration::ZERO) == 0);
    assert_eq!(held.next().await.unwrap(), 11, "whoever holds a handle notices nothing");
    // Opened again, with other options too: above all that was handed out.
    let again = ids.sequence("shared", fixed(7)).await.unwrap();
    assert!(again.next().await.unwrap() >= 11);
    assert_eq!(ids.sequences_from(5).iter().map(Sequence::tag).collect::<Vec<_>>(), ["shared"]);
    assert_eq!(again.opened_as(), 5, "numbers are not used again");
    ids.close().await;
    assert_eq!(ids.close_idle(Duration::ZERO), 0);
    let later = open(&store).await;
    assert_eq!(later.sequence("threads", SequenceOptions::default()).await.unwrap().next().await.unwrap(), 11);
    assert_eq!(later.sequence("untouched", SequenceOptions::default()).await.unwrap().next().await.unwrap(), 1);
}

#[tokio::test]
async fn a_sequence_that_waits_for_the_store_is_not_closed() {
    let store = Arc::new(FaultyStore::default());
    let ids = open(&store).await;
    {
        let orders = ids.sequence("order", fixed(10)).await.unwrap();
        store.hold(true);
        assert_eq!(orders.try_next().unwrap(), None, "the store was asked");
    }
    assert_eq!(ids.close_idle(Duration::ZERO), 0);
    store.hold(false);
    while ids.close_idle(Duration::ZERO) == 0 {
        tokio::task::yield_now().await;
    }
    ids.close().await;
    assert_eq!(store.inner().allocate("order", 1, 0).await.unwrap().start, 1, "what was granted went back");
}

/// Rounds whose callers went away have a task, which must not call another generator that got the place of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rounds_that_nobody_waits_for_disturb_no_other_sequence() {
    let store = Arc::new(MemoryStore::default());
    for number in 0..4 {
        let ordered = TagOptions { mode: Mode::Ordered, ..TagOptions::default() };
        store.create_tag(&format!("ticket-{number}"), &ordered).await.unwrap();
    }
    let ids = Ids::builder().segments(store).lanes(1).build().await.unwrap();
    let running = Arc::new(AtomicU64::new(3));
    let mut tasks = Vec::new();
    for task in 0..3_usize {
        let (ids, running) = (ids.clone(), Arc::clone(&running));
        tasks.push(tokio::spawn(async move {
            for round in 0..2_000_usize {
                let name = if task == 0 { format!("order-{}", round % 4) } else { format!("ticket-{}", round % 4) };
                let sequence = ids.sequence(&name, SequenceOptions::default()).await.unwrap();
                if task == 0 {
                    sequence.next().await.unwrap();
                } else {
                    // Asked for, and given up at once.
                    let asked = tokio::time::timeout(Duration::ZERO, sequence.next()).await;
                    assert!(asked.is_err() || asked.unwrap().is_ok());
                }
            }
            running.fetch_sub(1, Ordering::SeqCst);
        }));
    }
    let mut closed = 0;
    while running.load(Ordering::SeqCst) > 0 {
        closed += ids.close_idle(Duration::ZERO);
        tokio::task::yield_now().await;
        if tasks.iter().all(tokio::task::JoinHandle::is_finished) {
            break;
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert!(closed > 0);
    ids.close().await;
}

/// Sequences that are opened, used and closed by many at once, through a store that is slow with what is given back.
#[test]
fn sequences_that_come_and_go_give_no_id_twice_and_ids_ascend() {
    let store = Arc::new(FaultyStore::default());
    let ids = Ids::builder().segments(store.clone()).build_blocking().unwrap();
    store.set_delay(Duration::from_millis(1));
    let newest: Vec<_> = (0..4).map(|_| AtomicU64::new(0)).collect();
    // On a busy machine the threads go on until some were closed between their calls.
    let (running, closed) = (AtomicU64::new(4), AtomicU64::new(0));
    let taken: Vec<(usize, Vec<u64>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread: usize| {
                let (ids, newest, running, closed) = (&ids, &newest, &running, &closed);
                scope.spawn(move || {
                    let mut taken = Vec::new();
                    for round in (0..).take_while(|round| *round < 150 || closed.load(Ordering::SeqCst) <= 10) {
                        let tag = (thread + round) % newest.len();
                        let before = newest[tag].load(Ordering::SeqCst);
                        let sequence = ids.sequence_blocking(&format!("tag-{tag}"), fixed(20)).unwrap();
                        let count = u32::try_from(round % 30 + 1).unwrap();
                        let batch: Vec<u64> = sequence.take_blocking(count).unwrap().iter().collect();
                        assert!(batch[0] > before, "an id of {tag} below one that was handed out before");
                        newest[tag].fetch_max(*batch.last().unwrap(), Ordering::SeqCst);
                        taken.push((tag, batch));
                    }
                    running.fetch_sub(1, Ordering::SeqCst);
                    taken
                })
            })
            .collect();
        while running.load(Ordering::SeqCst) > 0 {
            closed.fetch_add(ids.close_idle(Duration::ZERO) as u64, Ordering::SeqCst);
            std::thread::yield_now();
        }
        assert!(closed.load(Ordering::SeqCst) > 10, "{closed:?}");
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    for tag in 0..newest.len() {
        assert_unique(taken.iter().filter(|(of, _)| *of == tag).flat_map(|(_, ids)| ids.clone()).collect());
    }
    ids.close_blocking();
}

#[tokio::test]
async fn a_store_that_grants_again_what_it_granted_is_found_out() {
    let store = Arc::new(FaultyStore::default());
    let ids = open(&store).await;
    let orders = ids.sequence("order", fixed(10)).await.unwrap();
    // Two segments of ten are in hand, so that the next request is answered with the second once more.
    let mut all: Vec<u64> = orders.take(5).await.unwrap().iter().collect();
    let wait_for = async |allocations| {
        while store.allocations() < allocations || orders.status().unwrap().in_flight {
            tokio::task::yield_now().await;
        }
    };
    wait_for(2).await;
    store.rewind_once();
    all.extend(orders.take(10).await.unwrap().iter());
    wait_for(3).await;
    let mut refused = 0;
    for _ in 0..40 {
        match orders.take(1).await {
            Ok(batch) => all.extend(batch.iter()),
            Err(error) if matches!(error.kind(), ErrorKind::GrantRefused { .. }) => {
                refused += 1;
                assert!(error.to_string().contains("overlaps"), "{error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused >= 1, "nobody heard of it");
    assert!(all.len() > 30, "and ids go on");
    assert_unique(all);
}

#[tokio::test]
async fn closing_gives_the_tail_back_and_a_restart_wastes_nothing() {
    let store = Arc::new(MemoryStore::default());
    let mut expected = 1;
    for _ in 0..5 {
        let ids = open(&store).await;
        let orders = ids.sequence("order", SequenceOptions::default()).await.unwrap();
        let batch = orders.take(137).await.unwrap();
        assert!(batch.iter().eq(expected..expected + 137), "the numbers go on without a gap");
        expected += 137;
        ids.close().await;
        assert!(matches!(kind(&orders.take(1).await), Some(ErrorKind::Closed { .. })));
        ids.close().await;
    }
    // What somebody else was granted in between is not given back.
    let (first, second) = (open(&store).await, open(&store).await);
    let mine = first.sequence("order", fixed(100)).await.unwrap();
    let theirs = second.sequence("order", fixed(100)).await.unwrap();
    let mut all: Vec<u64> = mine.take(10).await.unwrap().iter().collect();
    all.extend(theirs.take(10).await.unwrap().iter());
    first.close().await;
    second.close().await;
    all.extend(open(&store).await.sequence("order", fixed(100)).await.unwrap().take(300).await.unwrap().iter());
    assert_unique(all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn closing_while_others_still_call_is_safe() {
    let store = Arc::new(MemoryStore::default());
    let mut all = Vec::new();
    for _ in 0..20 {
        let ids = open(&store).await;
        let orders = ids.sequence("order", fixed(200)).await.unwrap();
        let flakes = ids.snowflake("default", SnowflakeOptions::new(Layout::TWITTER)).await.unwrap();
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let (orders, flakes) = (orders.clone(), flakes.clone());
                tokio::spawn(async move {
                    let mut taken = (Vec::new(), Vec::new());
                    loop {
                        match (orders.next().await, flakes.next().await) {
                            (Ok(id), Ok(flake)) => {
                                taken.0.push(id);
                                taken.1.push(flake);
                            }
                            (Ok(id), Err(_)) => taken.0.push(id),
                            (Err(_), Ok(flake)) => taken.1.push(flake),
                            (Err(number), Err(flake)) if is_closed(&number) && is_closed(&flake) => return taken,
                            (number, flake) => panic!("{number:?} {flake:?}"),
                        }
                    }
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(3)).await;
        ids.close().await;
        for task in tasks {
            all.push(task.await.unwrap());
        }
    }
    let (numbers, flakes): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    assert_unique(numbers.concat());
    assert_unique(flakes.concat());
}

/// Ids of an ordered tag ascend across nodes in real time: an id is above every id whose call ended before its call
/// began.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ordered_ids_ascend_across_nodes_in_real_time() {
    let store = Arc::new(FaultyStore::default());
    store.set_delay(Duration::from_millis(1));
    let options = TagOptions { mode: Mode::Ordered, ..TagOptions::default() };
    store.create_tag("chat", &options).await.unwrap();
    let latest = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for node in 0..3_u32 {
        let ids = open(&store).await;
        for _ in 0..8 {
            let chat = ids.sequence("chat", SequenceOptions::default()).await.unwrap();
            let latest = Arc::clone(&latest);
            tasks.push(tokio::spawn(async move {
                let mut taken = Vec::new();
                for round in 0..50 {
                    let before = latest.load(Ordering::SeqCst);
                    let batch = chat.take((node + round) % 3 + 1).await.unwrap();
                    assert!(
                        batch.iter().all(|id| id > before),
                        "an id below one that was known before it was asked for"
                    );
                    latest.fetch_max(batch.iter().max().unwrap(), Ordering::SeqCst);
                    taken.extend(batch.iter());
                }
                taken
            }));
        }
    }
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    let ids = assert_unique(all);
    assert!(store.allocations() < ids.len() as u64 / 2, "waiting callers are served together");
}

#[tokio::test]
async fn a_tags_mode_is_bound_in_its_store() {
    let store = Arc::new(MemoryStore::default());
    let options = TagOptions { mode: Mode::Ordered, ..TagOptions::default() };
    store.create_tag("chat", &options).await.unwrap();
    let ids = open(&store).await;
    let buffered = SequenceOptions { mode: Some(Mode::Buffered), ..SequenceOptions::default() };
    let error = ids.sequence("chat", buffered).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ModeBound { .. }), "{error:?}");
    assert_eq!(ids.sequence("chat", SequenceOptions::default()).await.unwrap().mode(), Mode::Ordered);
    assert_eq!(ids.sequence("order", SequenceOptions::default()).await.unwrap().mode(), Mode::Buffered);
}

fn up_to(id_max: u64) -> SequenceOptions {
    SequenceOptions { id_max: Some(id_max), ..fixed(1_000) }
}

/// The bound that ended a sequence, as its error says it.
fn ended_by(error: &Error) -> Option<u64> {
    match error.kind() {
        ErrorKind::Exhausted { id_max, .. } if !error.is_retryable() => *id_max,
        _ => None,
    }
}

/// Two programs take ids one by one, in each way that there is, until they hear that there are no more: between them
/// they had all up to the bound.
async fn assert_all_up_to_the_bound(store: Arc<dyn SegmentStore>) {
    const BOUND: u64 = 2_345;
    let ordered = TagOptions { mode: Mode::Ordered, ..TagOptions::default() };
    for (tag, order, options) in [
        ("process", None, TagOptions::default()),
        ("thread", Some(Order::Thread), TagOptions::default()),
        ("local", None, TagOptions::default()),
        ("ordered", None, ordered),
    ] {
        store.create_tag(tag, &options).await.unwrap();
        let mut taken = Vec::new();
        let (one, other) = (Ids::builder().segments(store.clone()), Ids::builder().segments(store.clone()));
        let programs = [one.build().await.unwrap(), other.build().await.unwrap()];
        let mut open = Vec::new();
        for ids in &programs {
            let sequence = ids.sequence(tag, SequenceOptions { order, ..up_to(BOUND) }).await.unwrap();
            assert_eq!(sequence.id_max(), BOUND);
            taken.push(sequence.next().await.unwrap());
            open.push(sequence);
        }
        for sequence in &open {
            let mut local = (tag == "local").then(|| sequence.local().unwrap());
            let error = loop {
                let answer = match &mut local {
                    Some(local) => local.next().await,
                    None => sequence.next().await,
                };
                match answer {
                    Ok(id) => taken.push(id),
                    Err(error) => break error,
                }
            };
            // What the other handle of the sequence had in its run.
            while let Ok(Some(id)) = sequence.try_next() {
                taken.push(id);
            }
            assert_eq!(ended_by(&error), Some(BOUND), "{error:?}");
            assert!(error.to_string().contains("up to 2345, the greatest that is allowed"), "{error}");
            assert_eq!(sequence.supply().left, 0);
            assert_eq!(ended_by(&sequence.take(1).await.unwrap_err()), Some(BOUND));
        }
        let watermark = store.tag(tag).await.unwrap().watermark;
        for (ids, sequence) in programs.iter().zip(&open) {
            sequence.next().await.unwrap_err();
            ids.close().await;
        }
        assert_eq!(store.tag(tag).await.unwrap().watermark, watermark, "nothing more is asked for");
        assert!(assert_unique(taken).into_iter().eq(1..=BOUND), "{tag}: each id up to the bound, and none above");
    }
}

#[tokio::test]
async fn all_ids_up_to_the_bound_are_handed_out_and_none_above() {
    assert_all_up_to_the_bound(Arc::new(MemoryStore::default())).await;
    let directory = tempfile::TempDir::new().unwrap();
    let file = Arc::new(open_file(&directory.path().join("ids.sqlite")).await.unwrap());
    assert_all_up_to_the_bound(file.clone()).await;
    file.close().await;
}

#[tokio::test]
async fn the_supply_of_a_bounded_sequence_ends_at_its_bound() {
    let store = Arc::new(MemoryStore::default());
    let ids = open(&store).await;
    let orders = ids.sequence("order", up_to(600)).await.unwrap();
    orders.take(100).await.unwrap();
    assert_eq!(orders.supply().left, 500, "and not what was granted above");
    assert_eq!(orders.status().unwrap().remaining, orders.supply().left);
    // What was not handed out goes back, with what lies above.
    ids.close().await;
    assert_eq!(store.tag("order").await.unwrap().watermark, 100);
    let again = open(&store).await.sequence("order", up_to(600)).await.unwrap();
    assert!(again.take(500).await.unwrap().iter().eq(101..=600));
    assert_eq!(ended_by(&again.next().await.unwrap_err()), Some(600));
}

#[tokio::test]
async fn a_bound_that_the_tag_has_passed_is_refused_when_the_sequence_is_opened() {
    let directory = tempfile::TempDir::new().unwrap();
    let file = Arc::new(open_file(&directory.path().join("ids.sqlite")).await.unwrap());
    let stores: [Arc<dyn SegmentStore>; 2] = [Arc::new(MemoryStore::default()), file.clone()];
    for store in stores {
        for mode in [Mode::Buffered, Mode::Ordered] {
            let tag = mode.name();
            store.create_tag(tag, &TagOptions { mode, start: 1_000, ..TagOptions::default() }).await.unwrap();
            let ids = Ids::builder().segments(store.clone()).build().await.unwrap();
            let error = ids.sequence(tag, up_to(999)).await.unwrap_err();
            let ErrorKind::IdMaxReached { name, id_max: 999, start: 1_000, watermark: 999 } = error.kind() else {
                panic!("{error:?}");
            };
            assert!(name == tag && !error.is_retryable());
            let words = error.to_string();
            assert!(
                words.starts_with(&format!("\"{tag}\" has no numbers: it starts at 1000, and 999 is the greatest")),
                "{words}"
            );
            assert!(ids.sequence_if_open(tag).is_none(), "nothing was opened");
            // There is one left.
            let least = ids.sequence(tag, up_to(1_000)).await.unwrap();
            assert_eq!(least.next().await.unwrap(), 1_000);
            assert_eq!(ended_by(&least.next().await.unwrap_err()), Some(1_000));
            ids.close().await;
            // What was granted, or raised, counts like what was given at the beginning.
            store.raise_tag(tag, 5_001).await.unwrap();
            let ids = Ids::builder().segments(store.clone()).build().await.unwrap();
            let refused = ids.sequence(tag, up_to(5_000)).await;
            let said = ErrorKind::IdMaxReached { name: tag.to_owned(), id_max: 5_000, start: 1_000, watermark: 5_000 };
            assert_eq!(format!("{:?}", kind(&refused).unwrap()), format!("{said:?}"));
            let words = said.to_string();
            assert!(words.starts_with(&format!("the numbers of \"{tag}\" are used up: those up to 5000 ")), "{words}");
            assert!(
                words.contains("5000 is the greatest that is allowed (the digits of its template, bits or id_max"),
                "{words}"
            );
            ids.sequence(tag, up_to(5_001)).await.unwrap();
            ids.close().await;
            // No bound helps where a tag has ended.
            store.retire_tag(tag).await.unwrap();
            let ids = Ids::builder().segments(store.clone()).build().await.unwrap();
            let error = ids.sequence(tag, up_to(5_001)).await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Exhausted { id_max: None, .. }), "{error:?}");
            assert!(error.to_string().contains("moved or ended"), "{error}");
            ids.close().await;
        }
    }
    file.close().await;
}

#[tokio::test]
async fn a_bound_is_an_id_and_all_handles_of_a_sequence_have_the_same() {
    let store = Arc::new(MemoryStore::default());
    store.create_tag("chat", &TagOptions { mode: Mode::Ordered, ..TagOptions::default() }).await.unwrap();
    let ids = open(&store).await;
    for tag in ["order", "chat"] {
        for id_max in [0, ID_MAX + 1, u64::MAX] {
            let refused = ids.sequence(tag, up_to(id_max)).await;
            assert!(
                matches!(kind(&refused), Some(ErrorKind::Options { source: OptionsError::IdMax, .. })),
                "{refused:?}"
            );
        }
        let orders = ids.sequence(tag, up_to(100)).await.unwrap();
        let refused = ids.sequence(tag, up_to(101)).await;
        assert!(matches!(kind(&refused), Some(ErrorKind::OpenOtherwise { .. })), "{refused:?}");
        assert!(matches!(kind(&ids.sequence(tag, fixed(1_000)).await), Some(ErrorKind::OpenOtherwise { .. })));
        assert_eq!(ids.sequence(tag, SequenceOptions::default()).await.unwrap().id_max(), 100);
        assert_eq!(orders.take(100).await.unwrap().len(), 100);
        assert_eq!(ended_by(&orders.next().await.unwrap_err()), Some(100));
    }
    let unbounded = ids.sequence("invoice", SequenceOptions::default()).await.unwrap();
    assert_eq!(unbounded.id_max(), ID_MAX);
    // What ends at 2^63 - 1 ends for its store.
    store.raise_tag("invoice", ID_MAX).await.unwrap();
    assert_eq!(unbounded.next().await.unwrap(), ID_MAX);
    let error = unbounded.next().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Exhausted { id_max: None, .. }), "{error:?}");
    // So does a bounded sequence whose tag was ended.
    let bounded = ids.sequence("ended", up_to(100)).await.unwrap();
    store.retire_tag("ended").await.unwrap();
    let error = bounded.next().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Exhausted { id_max: None, .. }), "{error:?}");
}

struct ManualClock(AtomicU64);

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn snowflakes_stay_unique_whatever_the_clock_does() {
    let clock = Arc::new(ManualClock(AtomicU64::new(1_700_000_000_000)));
    let store = {
        let clock = Arc::clone(&clock);
        // The store's clock is true: it goes on by itself.
        let ticks = AtomicU64::new(0);
        let start_ms = clock.now_ms();
        let options = MemoryOptions {
            clock: Arc::new(move || start_ms + ticks.fetch_add(1, Ordering::SeqCst)),
            ..MemoryOptions::default()
        };
        Arc::new(MemoryStore::new(options))
    };
    let layout = Layout::LEAF;
    let mut generators: Vec<Snowflake> = Vec::new();
    for policy in [ClockPolicy::Reject, ClockPolicy::Wait { max_ms: 5 }, ClockPolicy::Keep { max_ms: 2_000 }] {
        let ids = Ids::builder()
            .leases(store.clone())
            .clock(Arc::clone(&clock) as Arc<dyn Clock>)
            .wait_max(Duration::from_millis(20))
            .build()
            .await
            .unwrap();
        let options = SnowflakeOptions { clock: policy, ..SnowflakeOptions::new(layout) };
        generators.push(ids.snowflake("default", options).await.unwrap());
    }
    let (mut all, mut errors) = (Vec::new(), BTreeSet::new());
    for jump in [0_i64, 3, -1, 2, -3, 700, -1_000, 1_000, 3_600_000, -3_600_000, 5, 1, -4_000, 4_000] {
        let now_ms = clock.now_ms().checked_add_signed(jump).unwrap();
        clock.0.store(now_ms, Ordering::SeqCst);
        for flakes in &generators {
            for _ in 0..20 {
                match flakes.next().await {
                    Ok(id) => all.push(id),
                    Err(error) => {
                        assert!(error.is_retryable(), "{error}");
                        errors.insert(format!("{error:?}").split(' ').next().unwrap().to_owned());
                        break;
                    }
                }
            }
        }
    }
    assert!(errors.contains("ClockMovedBack"), "{errors:?}");
    assert!(errors.contains("LeaseEnded"), "an hour ahead is beyond every lease: {errors:?}");
    assert!(all.len() > 300);
    let workers: BTreeSet<_> = all.iter().map(|&id| layout.unpack(id).unwrap().worker).collect();
    assert_eq!(workers.len(), 3, "each generator has a worker of its own");
    assert_unique(all);
}

/// A store with one writer would keep the last of them waiting for longer than it may.
#[tokio::test(flavor = "multi_thread")]
async fn what_many_open_tags_have_left_goes_back_together() {
    const TAGS: u64 = 3_000;
    let store = Arc::new(FaultyStore::default());
    let ids = Ids::builder().segments(store.clone()).build().await.unwrap();
    for tag in 0..TAGS {
        let sequence = ids.sequence(&format!("tag {tag}"), fixed(100)).await.unwrap();
        assert_eq!(sequence.next().await.unwrap(), 1);
    }
    let watermarks = async || -> Vec<u64> {
        let records = store.tags(None, 10_000).await.unwrap();
        records.into_iter().map(|record| record.watermark).collect()
    };
    assert!(watermarks().await.into_iter().all(|watermark| watermark >= 100));
    // As long as a store takes at least.
    store.set_delay(Duration::from_millis(1));
    ids.close().await;
    assert_eq!(watermarks().await, vec![1; TAGS.try_into().unwrap()]);
    assert_eq!(store.releases_at_once(), 1, "one request at a time");
}

#[tokio::test]
async fn bad_names_counts_and_options_are_told() {
    let store = Arc::new(MemoryStore::default());
    let ids = open(&store).await;
    for name in ["", "a\0b", &"x".repeat(129)] {
        let error = ids.sequence(name, SequenceOptions::default()).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NameInvalid { .. }), "{error:?}");
        let error = ids.snowflake(name, SnowflakeOptions::new(Layout::LEAF)).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NameInvalid { .. }), "{error:?}");
    }
    let orders = ids.sequence("order", SequenceOptions::default()).await.unwrap();
    assert!(matches!(kind(&orders.take(0).await), Some(ErrorKind::CountZero)));
    assert!(matches!(kind(&ids.sequence("order", fixed(5)).await), Some(ErrorKind::OpenOtherwise { .. })));
    assert!(matches!(kind(&ids.sequence("other", fixed(0)).await), Some(ErrorKind::Options { .. })));
    let refill = Some(RefillPolicy::ShareConsumed { percent: 101 });
    let options = SequenceOptions { refill, ..SequenceOptions::default() };
    assert!(matches!(kind(&ids.sequence("other", options).await), Some(ErrorKind::Options { .. })));
    let options = SnowflakeOptions { horizon_ms: 0, ..SnowflakeOptions::new(Layout::LEAF) };
    assert!(matches!(kind(&ids.snowflake("default", options).await), Some(ErrorKind::Options { .. })));
    ids.snowflake("default", SnowflakeOptions::new(Layout::LEAF)).await.unwrap().next().await.unwrap();
    let other = SnowflakeOptions::new(Layout::TWITTER);
    assert!(matches!(kind(&ids.snowflake("default", other).await), Some(ErrorKind::OpenOtherwise { .. })));
    // Another process with another layout on the same namespace is refused by the store.
    let second = open(&store).await;
    let error = second.snowflake("default", SnowflakeOptions::new(Layout::COSID)).await.unwrap().next().await;
    assert!(matches!(error.as_ref().unwrap_err().store_error(), Some(StoreError::LayoutMismatch { .. })), "{error:?}");
    let without = Ids::builder().build().await.unwrap();
    assert!(matches!(
        kind(&without.sequence("order", SequenceOptions::default()).await),
        Some(ErrorKind::Store { .. })
    ));
}

#[cfg(unix)]
#[test]
#[expect(unsafe_code, reason = "fork is what is tested")]
fn a_forked_child_abandons_everything_that_it_inherited() {
    let store = Arc::new(MemoryStore::default());
    let ids = Ids::builder().segments(store.clone()).leases(store).build_blocking().unwrap();
    let orders: Sequence = ids.sequence_blocking("order", fixed(1_000)).unwrap();
    let flakes = ids.snowflake_blocking("default", SnowflakeOptions::new(Layout::TWITTER)).unwrap();
    let per_thread = ids.sequence_blocking("per thread", per_thread()).unwrap();
    let mut local = orders.local().unwrap();
    for _ in 0..100 {
        orders.next_blocking().unwrap();
        flakes.next_blocking().unwrap();
        per_thread.next_blocking().unwrap();
        local.next_blocking().unwrap();
    }
    // SAFETY: the child makes no call that needs another thread, and leaves by _exit.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let abandoned = matches!(kind(&orders.try_next()), Some(ErrorKind::Forked { .. }))
            && matches!(kind(&flakes.try_next()), Some(ErrorKind::Forked { .. }))
            && matches!(kind(&per_thread.try_next()), Some(ErrorKind::Forked { .. }))
            && matches!(kind(&local.try_next()), Some(ErrorKind::Forked { .. }));
        // SAFETY: as above.
        unsafe { libc::_exit(if abandoned { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the child exists and `status` is a place for its status.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the child handed out inherited ids");
    orders.next_blocking().unwrap();
    flakes.next_blocking().unwrap();
}
