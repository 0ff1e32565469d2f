//! Leases under real processes: more of them than there are workers, killed, stopped, forked, with stores that are down
//! and answers that are lost. In every test all ids that any process printed, over all its lives, are compared.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a test that cannot go on fails")]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use unalike::{Clock, SystemClock};
use unalike_storage::{Layout, Lease, LeaseAcquire, LeaseStore, StoreError};
use unalike_tests::PATIENCE;
use unalike_tests::clock::HandClock;
use unalike_tests::holders::{self, Holder, Holders, Operation, Place, Refusal, Settings, What, failure, id};
use unalike_tests::mariadb::MariaDb;
use unalike_tests::proxy::Proxy;
use unalike_tests::redis::{Persistence, Redis};
use unalike_tests::sqlite::lock_writes;
use unalike_tests::zookeeper::Zookeeper;

const CHILD: &str = env!("CARGO_BIN_EXE_lease-child");

fn holders(settings: &Settings) -> Holders {
    Holders::new(CHILD, settings).unwrap()
}

fn sqlite(directory: &TempDir) -> String {
    format!("sqlite:{}", file(directory).display())
}

fn file(directory: &TempDir) -> PathBuf {
    directory.path().join("leases.sqlite")
}

/// Waits until this machine's clock has passed an instant.
fn sleep_until_ms(at_ms: u64) {
    while SystemClock.now_ms() <= at_ms {
        std::thread::sleep(Duration::from_millis(at_ms.saturating_sub(SystemClock.now_ms()).clamp(1, 100)));
    }
}

/// How many workers there are and when the next one is free, if it is said that none is.
fn exhausted(what: &What) -> Option<(u64, u64)> {
    match failure(what)?.store {
        Refusal::WorkersExhausted { workers, free_at_ms } => Some((workers, free_at_ms)),
        _ => None,
    }
}

/// The end of a lease, if it lies behind this one.
fn ends_after(what: &What, end_ms: u64) -> Option<u64> {
    match what {
        What::Lease(lease) => Some(lease.valid_until_ms).filter(|&until_ms| until_ms > end_ms),
        _ => None,
    }
}

fn is_worker(holders: &Holders, worker: u32) -> impl Fn(&What) -> Option<u64> {
    let layout = holders.layout();
    move |what| id(what).filter(|&id| layout.unpack(id).unwrap().worker == worker)
}

/// The worker that it was granted last.
fn worker(holder: &Holder) -> u32 {
    holder.leases().last().unwrap().worker
}

/// How processes end.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Killed,
    Graceful,
    Mixed,
}

impl Ending {
    fn is_graceful(self) -> bool {
        match self {
            Self::Killed => false,
            Self::Graceful => true,
            Self::Mixed => fastrand::bool(),
        }
    }
}

/// 40 processes on 32 workers, which end and start again for some seconds.
fn forty_processes_on_thirty_two_workers(store: &str, ending: Ending) {
    let settings = Settings { pause_us: 20_000, ..Settings::new(store) };
    let named = |slot| settings.named(&format!("host-{slot}"));
    let mut holders = holders(&settings);
    let layout = holders.layout();
    let mut slots: Vec<_> = (0..40).map(|slot| holders.start(&named(slot)).unwrap()).collect();
    let used = |slots: &[Holder]| {
        let ids = slots.iter().flat_map(Holder::ids);
        ids.map(|(_, id)| layout.unpack(id).unwrap().worker).collect::<BTreeSet<_>>().len()
    };
    let deadline = Instant::now() + PATIENCE;
    while used(&slots) < 32 {
        assert!(Instant::now() < deadline, "all workers are used");
        std::thread::sleep(Duration::from_millis(5));
    }
    for without in slots.iter().filter(|holder| holder.leases().is_empty()) {
        // A machine that stood still for a horizon may have made room for it meanwhile.
        let answer = |what: &What| matches!(what, What::Lease(_)).then_some(None).or_else(|| exhausted(what).map(Some));
        let Some((workers, free_at_ms)) = without.wait_for("that all are taken", 0, answer).unwrap() else { continue };
        assert_eq!(workers, 32);
        let ahead_ms = i128::from(free_at_ms) - i128::from(SystemClock.now_ms());
        assert!(ahead_ms <= i128::from(settings.horizon_ms), "a worker is free in {ahead_ms} ms");
    }

    // For some seconds, and until some of those that started again had a worker.
    let (mut started_again, mut succeeded) = (BTreeSet::new(), 0);
    let (until, deadline) = (Instant::now() + Duration::from_secs(4), Instant::now() + PATIENCE);
    while Instant::now() < until || succeeded < 8 {
        assert!(Instant::now() < deadline, "{succeeded} had a worker after another");
        let slot = fastrand::usize(..slots.len());
        let last = slots.swap_remove(slot);
        succeeded += usize::from(started_again.remove(&last.process_id()) && !last.ids().is_empty());
        if ending.is_graceful() { last.end() } else { last.kill9() }.unwrap();
        let next = holders.start(&named(slot)).unwrap();
        started_again.insert(next.process_id());
        slots.push(next);
        std::thread::sleep(Duration::from_millis(fastrand::u64(..60)));
    }
    // Everybody who is left dies at once: then the time of the next free worker does not change any more.
    slots.into_iter().for_each(|holder| holder.kill9().unwrap());
    let checked = holders.check();
    let used: Vec<_> = checked.holders_by_worker().into_values().collect();
    assert_eq!(used.len(), 32, "all workers were used");
    assert!(used.iter().sum::<usize>() >= 40, "and went from one to another: {used:?}");
    a_worker_is_to_be_had_when_it_was_said(&settings);
}

/// The store is asked as nobody else does any more.
#[tokio::main(flavor = "current_thread")]
async fn a_worker_is_to_be_had_when_it_was_said(settings: &Settings) {
    let store = settings.open_store().await.unwrap();
    let acquire = || LeaseAcquire {
        namespace: settings.namespace.clone(),
        layout: settings.layout().unwrap(),
        holder: "another".to_owned(),
        preferred_worker: None,
        now_ms: SystemClock.now_ms(),
        horizon_ms: settings.horizon_ms,
    };
    // Takes those that were given back.
    let free_at_ms = loop {
        match store.acquire(&acquire()).await {
            Ok(_) => {}
            Err(StoreError::WorkersExhausted { workers: 32, free_at_ms, .. }) => break free_at_ms,
            Err(error) => panic!("{error:?}"),
        }
    };
    let leases = store.leases(&settings.namespace).await.unwrap();
    let next = leases.iter().map(|record| record.lease).min_by_key(|lease| lease.valid_until_ms).unwrap();
    assert_eq!(next.valid_until_ms, free_at_ms, "the next free one is the one that ends first");
    sleep_until_ms(free_at_ms);
    let lease = store.acquire(&acquire()).await.unwrap();
    assert!(lease.not_before_ms >= free_at_ms, "{lease:?} begins before {free_at_ms}");
    store.close().await;
}

#[test]
fn forty_processes_that_are_killed_share_thirty_two_workers() {
    let directory = TempDir::new().unwrap();
    forty_processes_on_thirty_two_workers(&sqlite(&directory), Ending::Killed);
}

#[test]
fn forty_processes_that_are_killed_share_thirty_two_workers_of_mariadb() {
    forty_processes_on_thirty_two_workers(&MariaDb::shared().unwrap().database().unwrap(), Ending::Killed);
}

#[test]
fn forty_processes_that_end_either_way_share_thirty_two_workers_of_mariadb() {
    forty_processes_on_thirty_two_workers(&MariaDb::shared().unwrap().database().unwrap(), Ending::Mixed);
}

#[test]
fn forty_processes_that_end_gracefully_share_thirty_two_workers() {
    let directory = TempDir::new().unwrap();
    forty_processes_on_thirty_two_workers(&sqlite(&directory), Ending::Graceful);
}

#[test]
fn forty_processes_that_end_either_way_share_thirty_two_workers() {
    let directory = TempDir::new().unwrap();
    forty_processes_on_thirty_two_workers(&sqlite(&directory), Ending::Mixed);
}

/// A process is stopped in a burst, for longer than its lease lasts; its successor has its worker when it wakes.
fn a_process_wakes_after_its_successor_began(store: &str) {
    for round in 0..3 {
        let settings = Settings {
            namespace: format!("round-{round}"),
            worker_bits: 1,
            horizon_ms: 1_000,
            pause_us: 200,
            ..Settings::new(store)
        };
        let mut holders = holders(&settings);
        // The other worker is taken for as long as the test wants it to be.
        let other = Taken::acquire(&settings);
        let first = holders.start(&settings.named("first")).unwrap();
        first.wait_for_id().unwrap();
        std::thread::sleep(Duration::from_millis(fastrand::u64(..30)));
        first.pause().unwrap();

        let successor = holders.start(&settings.named("successor")).unwrap();
        successor.wait_for("an id of the first one's worker", 0, is_worker(&holders, worker(&first))).unwrap();
        let held = first.leases().last().unwrap().grant_id;
        let lines = first.lines();
        first.resume().unwrap();
        // The namespace is full, so there is nothing for it, unless its successor stood still for as long.
        let without = |what: &What| match what {
            What::Lease(lease) => (lease.grant_id != held).then_some(()),
            _ => exhausted(what).map(drop),
        };
        first.wait_for("that its lease is over", lines, without).unwrap();
        other.release();
        for holder in [&first, &successor] {
            holder.wait_for("an id", holder.lines(), id).unwrap();
        }
        first.end().unwrap();
        successor.end().unwrap();
        holders.check();
    }
}

/// A worker that the test itself has, for longer than it goes on.
struct Taken {
    runtime: tokio::runtime::Runtime,
    store: Arc<dyn LeaseStore>,
    namespace: String,
    lease: Lease,
}

impl Taken {
    fn acquire(settings: &Settings) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let acquire = LeaseAcquire {
            namespace: settings.namespace.clone(),
            layout: settings.layout().unwrap(),
            holder: "the test".to_owned(),
            preferred_worker: None,
            now_ms: SystemClock.now_ms(),
            horizon_ms: 10 * 60 * 1_000,
        };
        let (store, lease) = runtime.block_on(async {
            let store = settings.open_store().await.unwrap();
            let lease = store.acquire(&acquire).await.unwrap();
            (store, lease)
        });
        Self { runtime, store, namespace: acquire.namespace, lease }
    }

    fn release(self) {
        let Lease { worker, grant_id, not_before_ms, .. } = self.lease;
        self.runtime.block_on(async {
            assert!(self.store.release(&self.namespace, worker, grant_id, not_before_ms).await.unwrap());
            self.store.close().await;
        });
    }
}

#[test]
fn a_process_that_was_stopped_past_its_lease_does_not_repeat_its_successors_ids() {
    let directory = TempDir::new().unwrap();
    a_process_wakes_after_its_successor_began(&sqlite(&directory));
}

#[test]
fn a_process_that_was_stopped_past_its_lease_in_mariadb_does_not_repeat_its_successors_ids() {
    a_process_wakes_after_its_successor_began(&MariaDb::shared().unwrap().database().unwrap());
}

#[test]
fn a_process_that_was_stopped_past_its_lease_in_redis_does_not_repeat_its_successors_ids() {
    let directory = TempDir::new().unwrap();
    let redis = Redis::start(Persistence::Nothing).unwrap();
    a_process_wakes_after_its_successor_began(&redis_under_sqlite(&redis, &directory));
}

#[test]
fn a_process_that_was_stopped_past_its_lease_in_zookeeper_does_not_repeat_its_successors_ids() {
    let zookeeper = Zookeeper::start().unwrap();
    let store = format!("zookeeper://127.0.0.1:{}{}", zookeeper.port(), zookeeper.path());
    a_process_wakes_after_its_successor_began(&store);
}

fn redis_under_sqlite(redis: &Redis, directory: &TempDir) -> String {
    format!("redis:{} {}", redis.url(0, ""), file(directory).display())
}

/// Several holders go on through an outage that is shorter than their leases, stop at their ends in a longer one,
/// and go on when it is over. Their clock stands where the test sets it, so that an outage is as long as it is meant to
/// be.
fn outages(settings: &Settings, mut down: impl FnMut(), mut up: impl FnMut()) {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("clock");
    let clock = HandClock::open(&file).unwrap();
    clock.set(SystemClock.now_ms());
    let settings = Settings { clock: Some(file), max_skew_ms: u64::MAX, ..settings.clone() };
    let mut holders = holders(&settings);
    let running: Vec<_> =
        (0..3).map(|number| holders.start(&settings.named(&format!("host-{number}"))).unwrap()).collect();
    running.iter().for_each(|holder| holder.wait_for("an id", 0, id).map(|_| ()).unwrap());
    let layout = holders.layout();
    let tick_ms = u64::from(settings.tick_ms);
    let all_have_ids_at = |at_ms: u64| {
        for holder in &running {
            let later = |what: &What| id(what).filter(|&id| stamp_ms(layout, id) + tick_ms > at_ms);
            holder.wait_for("an id of that time", 0, later).unwrap();
        }
    };
    let ends_ms = || running.iter().map(|holder| holder.leases().last().unwrap().valid_until_ms);

    down();
    let at_ms = clock.now_ms().midpoint(ends_ms().min().unwrap());
    clock.set(at_ms);
    all_have_ids_at(at_ms);
    for holder in &running {
        let ended = holder.errors().into_iter().find(|(_, failure)| failure.kind == "lease_ended");
        assert_eq!(ended, None, "the lease lasts longer than the outage");
    }
    up();
    for (holder, end_ms) in running.iter().zip(ends_ms().collect::<Vec<_>>()) {
        as_time_passes(&clock, holder, 0, "more time", |what| ends_after(what, end_ms));
    }

    down();
    let at_ms = ends_ms().min().unwrap() - tick_ms;
    clock.set(clock.now_ms().max(at_ms));
    all_have_ids_at(at_ms);
    let lines: Vec<_> = running.iter().map(Holder::lines).collect();
    clock.set(clock.now_ms().max(ends_ms().max().unwrap()));
    let is_told = |what: &What| {
        let failure = failure(what).filter(|failure| failure.kind == "lease_ended")?;
        matches!(failure.store, Refusal::Unavailable | Refusal::OutcomeUnknown).then_some(())
    };
    for (holder, lines) in running.iter().zip(lines) {
        as_time_passes(&clock, holder, lines, "that the lease has ended, and why", is_told);
    }
    let lines: Vec<_> = running.iter().map(Holder::lines).collect();
    up();
    for (holder, lines) in running.iter().zip(lines) {
        as_time_passes(&clock, holder, lines, "an id", id);
    }
    running.into_iter().for_each(|holder| holder.end().unwrap());
    holders.check();
}

fn stamp_ms(layout: Layout, id: u64) -> u64 {
    layout.tick_start_ms(layout.unpack(id).unwrap().ticks)
}

/// Waits for what a holder says behind so many lines, while its clock goes on.
fn as_time_passes<T>(clock: &HandClock, holder: &Holder, after: usize, what: &str, find: impl Fn(&What) -> Option<T>) {
    let deadline = Instant::now() + PATIENCE;
    while !holder.said().iter().skip(after).any(|said| find(&said.what).is_some()) {
        assert!(Instant::now() < deadline, "{what}: {:?}", holder.said().last());
        clock.catch_up();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Leases long enough for an outage to fall into one, and requests that are given up while it lasts.
fn in_outages(store: &str) -> Settings {
    Settings { horizon_ms: 3_000, wait_max_ms: 500, request_timeout_ms: 600, ..Settings::new(store) }
}

#[test]
fn a_locked_file_is_ridden_out_until_the_lease_ends() {
    let directory = TempDir::new().unwrap();
    let settings = in_outages(&sqlite(&directory));
    let lock = RefCell::new(None);
    outages(
        &settings,
        || *lock.borrow_mut() = Some(lock_writes(&file(&directory)).unwrap()),
        || drop(lock.borrow_mut().take()),
    );
}

#[test]
fn a_mariadb_that_is_killed_is_ridden_out_until_the_lease_ends() {
    let server = RefCell::new(MariaDb::start().unwrap());
    let settings = in_outages(&server.borrow().database().unwrap());
    outages(&settings, || server.borrow_mut().kill9().unwrap(), || server.borrow_mut().restart().unwrap());
}

#[test]
fn a_mariadb_that_is_paused_is_ridden_out_until_the_lease_ends() {
    let server = MariaDb::start().unwrap();
    let settings = in_outages(&server.database().unwrap());
    outages(&settings, || server.pause().unwrap(), || server.resume().unwrap());
}

/// Processes of one name, one address and one process number.
fn of_one_name(store: &str) {
    let settings = Settings { worker_bits: 2, ..Settings::new(store) }.named("host-a/10.0.0.1/{pid}");
    let mut holders = holders(&settings);
    // Where the system does not allow process namespaces, the name is given as it would be in one.
    let in_namespaces = holders::may_start_as_first();
    let mut start = || {
        let settings = settings.named(if in_namespaces { "host-a/10.0.0.1/{pid}" } else { "host-a/10.0.0.1/1" });
        let started = if in_namespaces { holders.start_as_first(&settings) } else { holders.start(&settings) };
        let started = started.unwrap();
        started.wait_for("an id", 0, id).unwrap();
        started
    };
    let mut running: Vec<_> = (0..3).map(|_| start()).collect();
    assert_eq!(names(&settings), vec!["host-a/10.0.0.1/1"; 3]);
    // That one of the name has ended is no reason to have the worker of one that runs.
    running.remove(0).kill9().unwrap();
    running.push(start());
    let workers: BTreeSet<_> = running.iter().map(worker).collect();
    assert_eq!(workers.len(), 3);
    running.iter().for_each(|holder| holder.wait_for_id().map(|_| ()).unwrap());
    running.into_iter().for_each(|holder| holder.end().unwrap());
    holders.check();
}

/// The holders of the newest leases, as the store has them.
#[tokio::main(flavor = "current_thread")]
async fn names(settings: &Settings) -> Vec<String> {
    let store = settings.open_store().await.unwrap();
    let leases = store.leases(&settings.namespace).await.unwrap();
    store.close().await;
    leases.into_iter().map(|record| record.holder).collect()
}

#[test]
fn processes_of_one_name_and_one_number_have_workers_of_their_own() {
    let directory = TempDir::new().unwrap();
    of_one_name(&sqlite(&directory));
}

/// The first of every two answers of the operation is lost, in process after process.
fn lost_answers(store: &str, operation: Operation) {
    let settings = Settings {
        namespace: operation.to_string(),
        worker_bits: 3,
        horizon_ms: 1_000,
        loses: Some(operation),
        loses_every: 2,
        ..Settings::new(store)
    };
    let mut holders = holders(&settings);
    for _ in 0..4 {
        let running: Vec<_> =
            (0..3).map(|number| holders.start(&settings.named(&format!("host-{number}"))).unwrap()).collect();
        for holder in &running {
            holder.wait_for("an id", 0, id).unwrap();
            if operation == Operation::Extend {
                let lost = |what: &What| (*what == What::Lost(operation)).then_some(());
                holder.wait_for("that the answer is lost", 0, lost).unwrap();
                let lease = holder.leases()[0];
                let later = |what: &What| id(what).filter(|&id| holders.stamp_ms(id) >= lease.valid_until_ms);
                holder.wait_for("an id behind the first end", 0, later).unwrap();
            }
        }
        let records: Vec<_> = running.into_iter().map(|holder| holder.end_and_say().unwrap()).collect();
        for said in records {
            let lost = said.iter().filter(|said| said.what == What::Lost(operation)).count();
            assert!(lost >= 1, "an answer to {operation} was lost: {said:?}");
        }
    }
    holders.check();
}

/// Answers of MariaDB's, to any of its requests, do not arrive, and their connections break.
#[test]
fn answers_of_mariadb_that_are_lost_cost_no_id_twice() {
    let server = MariaDb::shared().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let store = proxy.url(&server.database().unwrap());
    // A request about the lease every 100 ms or so.
    let settings = Settings { worker_bits: 4, horizon_ms: 300, ..Settings::new(&store) };
    let mut holders = holders(&settings);
    let mut lost = 0;
    for round in 0..6 {
        let running: Vec<_> =
            (0..3).map(|number| holders.start(&settings.named(&format!("host-{number}"))).unwrap()).collect();
        for _ in 0..8 {
            proxy.lose_answer_after(fastrand::u32(..6));
            let deadline = Instant::now() + PATIENCE;
            while !proxy.has_lost() {
                assert!(Instant::now() < deadline, "there are answers to lose");
                std::thread::sleep(Duration::from_millis(2));
            }
            lost += 1;
        }
        running.iter().for_each(|holder| holder.wait_for("an id", holder.lines(), id).map(|_| ()).unwrap());
        // Those to the releases of every other round, too.
        if round % 2 == 0 {
            proxy.lose_answer_after(fastrand::u32(..6));
        }
        running.into_iter().for_each(|holder| holder.end().unwrap());
        // None of them may have come.
        lost += u32::from(!proxy.lost_none());
    }
    assert!(lost >= 48, "{lost}");
    holders.check();
}

#[test]
fn lost_answers_cost_no_id_twice() {
    let directory = TempDir::new().unwrap();
    for operation in Operation::ALL {
        lost_answers(&sqlite(&directory), operation);
    }
}

/// A holder is killed while it gives its lease back, and another of its name takes its place: there is one worker.
fn death_in_a_release(store: &str) {
    for place in Place::ALL {
        let settings = Settings {
            namespace: place.to_string(),
            worker_bits: 0,
            horizon_ms: 1_000,
            stands_still: Some(place),
            ..Settings::new(store).named("host-a")
        };
        let mut holders = holders(&settings);
        let mut first = holders.start(&settings).unwrap();
        first.wait_for("an id", 0, id).unwrap();
        first.tell_to_end();
        first.wait_for("that it releases", 0, |what| (*what == What::StandsStill(place)).then_some(())).unwrap();
        let lease = *first.leases().last().unwrap();
        let last_ms = holders.stamp_ms(first.ids().last().unwrap().1);
        first.kill9().unwrap();
        let second = holders.start(&settings).unwrap();
        second.wait_for("an id", 0, id).unwrap();
        let next = second.leases()[0];
        match place {
            // It was never told, so the worker is busy until the lease has ended.
            Place::BeforeRelease => {
                assert_eq!(second.wait_for("that it is busy", 0, exhausted).unwrap(), (1, lease.valid_until_ms));
                assert!(next.not_before_ms >= lease.valid_until_ms, "{next:?} after {lease:?}");
            }
            // The worker is free from the last tick on.
            Place::AfterRelease => {
                assert!(next.not_before_ms > last_ms, "{next:?} after an id of {last_ms}");
                assert_eq!(second.errors(), [], "it need not wait");
            }
        }
        second.kill9().unwrap();
        holders.check();
    }
}

#[test]
fn a_process_that_dies_while_it_gives_its_lease_back_is_succeeded() {
    let directory = TempDir::new().unwrap();
    death_in_a_release(&sqlite(&directory));
}

/// The same at any moment of the end.
#[test]
fn processes_that_die_at_any_moment_of_their_end_are_succeeded() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { worker_bits: 2, horizon_ms: 1_000, pause_us: 100, ..Settings::new(&sqlite(&directory)) };
    let mut holders = holders(&settings);
    for _ in 0..25 {
        let mut holder = holders.start(&settings.named("host-a")).unwrap();
        holder.wait_for("an id", 0, id).unwrap();
        holder.tell_to_end();
        std::thread::sleep(Duration::from_micros(fastrand::u64(..4_000)));
        holder.kill9().unwrap();
    }
    holders.check();
}

#[test]
fn a_forked_child_abandons_the_lease_whatever_its_threads_were_at() {
    let directory = TempDir::new().unwrap();
    let settings = Settings { forks: 200, ..Settings::new(&sqlite(&directory)) };
    let mut holders = holders(&settings);
    let said = holders.start(&settings).unwrap().end_and_say().unwrap();
    let statuses: Vec<_> = said
        .iter()
        .filter_map(|said| match said.what {
            What::Forked(status) => Some(status),
            _ => None,
        })
        .collect();
    assert_eq!(statuses, [0; 200], "a child got an inherited id, or waited for ever");
    assert!(holders.check().ids() > 1_000, "while its threads took ids");
}
