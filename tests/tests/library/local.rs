//! Local leases and static workers: restarts, kills, full disks, wrong clocks and wrong files, in real processes where
//! that makes a difference.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::future::{Future, poll_fn};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tempfile::TempDir;
use unalike::{Clock as _, SystemClock};
use unalike_local::{LocalLeases, LocalOptions, StaticAssignment, StaticWorker};
use unalike_memory::{MemoryOptions, MemoryStore};
use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_storage::contract::{Fixture, LeaseFixture, lease_checks as check};
use unalike_storage::{Lease, LeaseAcquire, LeaseLimits, LeaseRecord, LeaseStore, StoreError};
use unalike_tests::PATIENCE;
use unalike_tests::clock::HandClock;
use unalike_tests::faulty::FaultyStore;
use unalike_tests::local::{Run, acquire, extend, layout};
use unalike_tests::log::Log;
use unalike_tests::process;

const NOW_MS: u64 = 1_700_000_000_000;

// Processes.

/// A SQLite store and directories beside it.
struct Scene {
    directory: TempDir,
}

impl Scene {
    fn new() -> Self {
        let scene = Self { directory: TempDir::new().unwrap() };
        let created = async { SqliteStore::connect(SqliteOptions::new(scene.store())).await.unwrap().close().await };
        block_on(created);
        scene
    }

    fn store(&self) -> PathBuf {
        self.directory.path().join("ids.sqlite")
    }

    fn run(&self, name: &str, tick_ms: u32) -> Run {
        Run {
            directory: self.directory.path().join(name),
            store: self.store(),
            worker: None,
            tick_ms,
            lead_ms: 100,
            horizon_ms: 60_000,
            offset_ms: 0,
            clock: None,
            give_back: true,
        }
    }

    /// A clock that stands at the present, and a run that goes by it: what must come to pass within a lease does so
    /// however long the machine takes for it.
    fn run_by_hand(&self, name: &str) -> (HandClock, Run) {
        let file = self.directory.path().join("clock");
        let clock = HandClock::open(&file).unwrap();
        clock.set(SystemClock.now_ms());
        (clock, Run { clock: Some(file), ..self.run(name, 1) })
    }

    fn leases(&self) -> Vec<LeaseRecord> {
        block_on(async {
            let store = SqliteStore::connect(SqliteOptions::new(self.store())).await.unwrap();
            let leases = store.leases("default").await.unwrap();
            store.close().await;
            leases
        })
    }

    fn other_child(&self, role: &str, arguments: &[&str]) -> String {
        let directory = self.directory.path().join("a");
        let child = Command::new(env!("CARGO_BIN_EXE_local-child")).arg(role).arg(directory).args(arguments).output();
        let output = child.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// A process that hands out ids until it is stopped, one way or another.
struct Issuer {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Issuer {
    fn start(run: &Run) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_local-child"));
        command.arg("run").args(run.arguments()).stdin(Stdio::piped()).stdout(Stdio::piped());
        process::end_with_thread(&mut command);
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            // What a killed process leaves of its last line says nothing.
            while output.read_line(&mut line).is_ok_and(|read| read > 0) && line.ends_with('\n') {
                let _ = sender.send(std::mem::take(&mut line));
            }
        });
        Self { child, lines, seen: Vec::new() }
    }

    /// Waits for a line of this kind, and answers it.
    fn wait_for(&mut self, kind: &str) -> String {
        self.wait_for_line(kind, |line| line.starts_with(kind))
    }

    /// Waits for ids while a clock goes on from where it stands.
    fn wait_for_ids_as_time_passes(&mut self, clock: &HandClock) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            clock.catch_up();
            let Ok(line) = self.lines.recv_timeout(Duration::from_millis(1)) else { continue };
            self.seen.push(line);
            if self.seen.last().is_some_and(|line| line.starts_with("ids")) {
                return;
            }
        }
        panic!("no ids, after {:?}", self.seen.last());
    }

    /// Waits for an error that says all of this.
    fn wait_for_error(&mut self, words: &[&str]) {
        let what = format!("error of {words:?}");
        self.wait_for_line(&what, |line| line.starts_with("error") && words.iter().all(|word| line.contains(word)));
    }

    /// Waits for an id with this stamp.
    fn wait_for_stamp(&mut self, at_ms: u64) {
        let is_stamped = |line: &str| parts(&ids_of(line), 1).any(|(_, stamp_ms)| stamp_ms == at_ms);
        self.wait_for_line(&format!("id stamped {at_ms}"), is_stamped);
    }

    fn wait_for_line(&mut self, what: &str, is_it: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("no {what}, after {:?}", self.seen.last());
            };
            self.seen.push(line.clone());
            if is_it(&line) {
                return line;
            }
        }
    }

    /// `kill -9`; all that it had said.
    fn kill(mut self) -> Vec<u64> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.ids()
    }

    /// Has it close in good order; all that it had said.
    fn close(mut self) -> Vec<u64> {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
        self.ids()
    }

    fn ids(mut self) -> Vec<u64> {
        self.seen.extend(self.lines.iter());
        self.seen.iter().flat_map(|line| ids_of(line)).collect()
    }
}

/// The ids of a line; none of an error.
fn ids_of(line: &str) -> Vec<u64> {
    let ids = line.strip_prefix("ids ").into_iter().flat_map(str::split_whitespace);
    ids.map(|id| id.parse().unwrap()).collect()
}

fn assert_unique(ids: &[u64]) {
    let unique: BTreeSet<_> = ids.iter().collect();
    assert_eq!(unique.len(), ids.len(), "an id was handed out twice");
}

fn assert_ascending(ids: &[u64]) {
    assert!(ids.is_sorted_by(|a, b| a < b), "ids of one worker ascend, across restarts too");
}

/// The worker and the beginning of the tick of each.
fn parts(ids: &[u64], tick_ms: u32) -> impl Iterator<Item = (u32, u64)> {
    let layout = layout(tick_ms);
    ids.iter().map(move |id| layout.unpack(*id).unwrap()).map(move |it| (it.worker, layout.tick_start_ms(it.ticks)))
}

fn workers(ids: &[u64], tick_ms: u32) -> BTreeSet<u32> {
    parts(ids, tick_ms).map(|(worker, _)| worker).collect()
}

#[test]
fn a_killed_process_goes_on_while_its_store_is_gone_up_to_the_end_of_its_lease() {
    let scene = Scene::new();
    let (clock, run) = scene.run_by_hand("a");
    let run = Run { horizon_ms: 6_000, ..run };
    let mut issuer = Issuer::start(&run);
    issuer.wait_for("ids");
    let mut ids = issuer.kill();
    let granted = scene.leases().remove(0).lease;
    let gone = scene.directory.path().join("gone.sqlite");
    fs::rename(scene.store(), &gone).unwrap();
    for _ in 0..3 {
        // Where the one before may have been, and no earlier.
        clock.set(kept(&run)["local_bound_ms"].as_u64().unwrap());
        let mut issuer = Issuer::start(&run);
        issuer.wait_for("ids");
        ids.extend(issuer.kill());
    }
    // The next one is let be until its lease ends. Before the time that the last one may have used it would ask the
    // store, and while the clock stands it would not try again.
    clock.set(kept(&run)["local_bound_ms"].as_u64().unwrap());
    let mut issuer = Issuer::start(&run);
    issuer.wait_for("ids");
    clock.set(granted.valid_until_ms - 1);
    issuer.wait_for_stamp(granted.valid_until_ms - 1);
    clock.set(granted.valid_until_ms);
    // The store's own words.
    issuer.wait_for_error(&["ids.sqlite", "does not exist"]);
    ids.extend(issuer.kill());
    assert_ascending(&ids);
    assert_eq!(workers(&ids, 1), BTreeSet::from([granted.worker]));
    let last_ms = parts(&ids, 1).map(|(_, at_ms)| at_ms).max().unwrap();
    assert_eq!(last_ms, granted.valid_until_ms - 1, "no stamp lies behind its end");
    let kept = kept(&run);
    assert_eq!(kept["local_bound_ms"], kept["valid_until_ms"], "all of it was handed out: {kept}");
    assert_eq!(kept["valid_until_ms"], granted.valid_until_ms);

    // The store is back: the next lease is another.
    fs::rename(&gone, scene.store()).unwrap();
    clock.set(SystemClock.now_ms().max(granted.valid_until_ms));
    let mut issuer = Issuer::start(&run);
    issuer.wait_for("ids");
    ids.extend(issuer.close());
    assert_unique(&ids);
}

/// What the file of this run says.
fn kept(run: &Run) -> serde_json::Value {
    let file = fs::read_to_string(run.directory.join("default.lease.json")).unwrap();
    serde_json::from_str(file.lines().next().unwrap()).unwrap()
}

#[test]
fn a_process_goes_on_while_its_store_is_locked_and_catches_up_with_it() {
    let scene = Scene::new();
    let (clock, run) = scene.run_by_hand("a");
    let mut issuer = Issuer::start(&Run { horizon_ms: 3_000, ..run });
    issuer.wait_for("ids");
    let granted = scene.leases().remove(0).lease;
    let end_ms = granted.valid_until_ms;
    block_on(async {
        let store = format!("sqlite://{}", scene.store().display());
        let mut connection = <sqlx::SqliteConnection as sqlx::Connection>::connect(&store).await.unwrap();
        sqlx::query("BEGIN EXCLUSIVE").execute(&mut connection).await.unwrap();
        // Long after it should have been extended, and to its very end.
        for at_ms in [clock.now_ms().midpoint(end_ms), end_ms - 1] {
            clock.set(at_ms);
            issuer.wait_for_stamp(at_ms);
        }
        clock.set(end_ms);
        issuer.wait_for_error(&["lock"]);
        sqlx::query("ROLLBACK").execute(&mut connection).await.unwrap();
    });
    issuer.wait_for_ids_as_time_passes(&clock);
    let ids = issuer.close();
    assert_unique(&ids);
    assert_eq!(workers(&ids, 1), BTreeSet::from([granted.worker]));
    let records = scene.leases();
    let [record] = records.as_slice() else { panic!("no second worker: {records:?}") };
    assert_eq!(record.lease.grant_id, granted.grant_id, "its lease went on without a gap in its interval");
    assert!(record.is_final, "and was given back");
}

/// Kills each of two processes again and again, as soon as it hands out ids.
fn kill_again_and_again(run: &dyn Fn(&str) -> Run, kills: u32) {
    let all: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = ["a", "b"]
            .map(|name| {
                let run = run(name);
                scope.spawn(move || {
                    let mut ids = Vec::new();
                    for _ in 0..kills {
                        let mut issuer = Issuer::start(&run);
                        issuer.wait_for("ids");
                        // In the middle of whatever it does by then.
                        std::thread::sleep(Duration::from_micros(fastrand::u64(0..150_000)));
                        ids.extend(issuer.kill());
                    }
                    assert_ascending(&ids);
                    assert_eq!(workers(&ids, run.tick_ms).len(), 1, "it keeps its worker through all kills");
                    ids
                })
            })
            .into();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_unique(&all.concat());
}

#[test]
fn kills_repeat_no_id_and_keep_no_second_worker_busy() {
    for (tick_ms, lead_ms, kills) in [(1, 100, 15), (1, 1_000, 3), (10, 100, 8), (1_000, 1_000, 3)] {
        let scene = Scene::new();
        kill_again_and_again(&|name| Run { lead_ms, ..scene.run(name, tick_ms) }, kills);
        assert_eq!(scene.leases().len(), 2, "each process has one worker");
    }
}

#[test]
fn kills_of_a_static_worker_repeat_no_id() {
    for (tick_ms, lead_ms, kills) in [(1, 100, 10), (10, 100, 5), (1_000, 1_000, 3)] {
        let scene = Scene::new();
        let run = |name: &str| {
            let worker = if name == "a" { 1 } else { 2 };
            Run { lead_ms, worker: Some(worker), ..scene.run(name, tick_ms) }
        };
        for name in ["a", "b"] {
            let run = run(name);
            block_on(StaticWorker::initialise(run.directory, &assignment(run.worker.unwrap(), tick_ms))).unwrap();
        }
        kill_again_and_again(&run, kills);
    }
}

#[test]
fn a_restart_in_good_order_keeps_the_lease_if_it_is_told_to() {
    let scene = Scene::new();
    let (clock, run) = scene.run_by_hand("a");
    let run = Run { give_back: false, lead_ms: 60_000, ..run };
    let mut ids = Vec::new();
    for restart in 0..4 {
        clock.set(clock.now_ms() + 1_000);
        let mut issuer = Issuer::start(&run);
        // The bound is a minute ahead, and a restart waits for none of it: it was lowered in the end.
        issuer.wait_for("ids");
        ids.extend(issuer.close());
        if restart == 0 {
            fs::rename(scene.store(), scene.directory.path().join("gone.sqlite")).unwrap();
        }
    }
    assert_ascending(&ids);
    assert_eq!(workers(&ids, 1).len(), 1);
}

#[test]
fn a_death_within_a_release_gives_away_nothing_that_was_used() {
    for moment in ["unwritten", "unsent", "sent"] {
        let scene = Scene::new();
        let printed = scene.other_child("release", &[scene.store().to_str().unwrap(), moment]);
        let figures: Vec<u64> = printed.split_whitespace().map(|figure| figure.parse().unwrap()).collect();
        let &[worker, not_before_ms, bound_ms] = figures.as_slice() else { panic!("three figures: {printed}") };
        let record = scene.leases().remove(0);
        assert_eq!(u64::from(record.lease.worker), worker);
        assert_eq!(record.is_final, moment == "sent", "the store hears of it last: {record:?}");
        // With the lead of the process before.
        let mut issuer = Issuer::start(&Run { lead_ms: 2_000, ..scene.run("a", 1) });
        issuer.wait_for("ids");
        let ids = issuer.close();
        let first_ms = parts(&ids, 1).map(|(_, at_ms)| at_ms).min().unwrap();
        let is_same_worker = u64::from(*workers(&ids, 1).first().unwrap()) == worker;
        match moment {
            "unwritten" => assert!(is_same_worker && first_ms >= bound_ms, "{first_ms}, {printed}"),
            "unsent" => assert!(!is_same_worker, "the copy is void, and the store does not know"),
            _ => assert!(!is_same_worker || first_ms > not_before_ms, "{first_ms}, {printed}"),
        }
    }
}

#[test]
fn a_disk_that_fails_costs_no_more_than_time() {
    Scene::new().other_child("failing-writes", &[]);
}

#[test]
fn a_forked_child_is_refused() {
    Scene::new().other_child("fork", &[]);
}

#[test]
fn clocks_that_step_across_restarts_repeat_no_id() {
    let scene = Scene::new();
    let mut ids = Vec::new();
    for offset_ms in [0, -2_000, 0, 2_000, -3_000, 3_000, 0] {
        let run = Run { horizon_ms: 4_000, offset_ms, ..scene.run("a", 1) };
        let mut issuer = Issuer::start(&run);
        issuer.wait_for("ids");
        ids.extend(issuer.kill());
    }
    assert_unique(&ids);
}

#[test]
fn a_static_worker_whose_clock_steps_back_waits_and_says_so() {
    let scene = Scene::new();
    let (clock, run) = scene.run_by_hand("a");
    let run = Run { worker: Some(3), ..run };
    block_on(StaticWorker::initialise(&run.directory, &assignment(3, 1))).unwrap();
    let (start_ms, mut ids) = (clock.now_ms(), Vec::new());
    for ahead_ms in [0, 2_000] {
        clock.set(start_ms + ahead_ms);
        let mut issuer = Issuer::start(&run);
        issuer.wait_for("ids");
        ids.extend(issuer.kill());
    }
    clock.set(start_ms);
    let mut issuer = Issuer::start(&run);
    issuer.wait_for_error(&["used up to", "default.lease.json"]);
    clock.set(kept(&run)["local_bound_ms"].as_u64().unwrap());
    issuer.wait_for("ids");
    ids.extend(issuer.kill());
    assert_ascending(&ids);
}

#[test]
fn a_directory_has_one_process() {
    let scene = Scene::new();
    let run = scene.run("a", 1);
    let mut first = Issuer::start(&run);
    first.wait_for("ids");
    // Also while it stands still.
    process::pause(&first.child).unwrap();
    let mut second = Issuer::start(&run);
    let refused = second.wait_for("refused");
    assert!(refused.contains("in use") && refused.contains(run.directory.to_str().unwrap()), "{refused}");
    assert!(second.close().is_empty());
    process::signal(&first.child, libc::SIGCONT).unwrap();
    first.wait_for("ids");
    let mut ids = first.kill();
    let mut third = Issuer::start(&run);
    third.wait_for("ids");
    ids.extend(third.close());
    assert_ascending(&ids);
}

// Within one process, by a clock of the test's own.

/// Stores of one memory, and the clock of all.
#[derive(Clone)]
struct World {
    clock_ms: Arc<AtomicU64>,
    memory: MemoryStore,
}

impl World {
    fn new() -> Self {
        let clock_ms = Arc::new(AtomicU64::new(NOW_MS));
        let told = Arc::clone(&clock_ms);
        let limits = LeaseLimits { max_skew_ms: 5_000, ..LeaseLimits::default() };
        let options =
            MemoryOptions { clock: Arc::new(move || told.load(Ordering::SeqCst)), limits, ..MemoryOptions::default() };
        Self { clock_ms, memory: MemoryStore::new(options) }
    }

    fn now_ms(&self) -> u64 {
        self.clock_ms.load(Ordering::SeqCst)
    }

    fn pass(&self, ms: u64) -> u64 {
        self.clock_ms.fetch_add(ms, Ordering::SeqCst) + ms
    }

    fn faulty(&self) -> Arc<FaultyStore> {
        Arc::new(FaultyStore::before(self.memory.clone()))
    }

    async fn end_ms(&self, worker: u32) -> u64 {
        let records = self.memory.leases("default").await.unwrap();
        records.iter().find(|record| record.lease.worker == worker).unwrap().lease.valid_until_ms
    }
}

/// Opens the directory as soon as it is free: work for somebody who has gone may still be at its end.
async fn open(inner: Arc<dyn LeaseStore>, directory: &Path, lead_ms: u64) -> LocalLeases {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let options = LocalOptions { lead_ms, ..LocalOptions::new(directory) };
        match LocalLeases::open(Arc::clone(&inner), options).await {
            Ok(store) => return store,
            Err(error) => assert!(Instant::now() < deadline && error.to_string().contains("in use"), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn assignment(worker: u32, tick_ms: u32) -> StaticAssignment {
    StaticAssignment { namespace: "default".to_owned(), worker, layout: layout(tick_ms), not_before_ms: 0 }
}

#[tokio::test]
async fn a_silent_store_is_not_waited_for_before_the_lease_ends() {
    let (world, directory) = (World::new(), TempDir::new().unwrap());
    let inner = world.faulty();
    let store = open(Arc::clone(&inner) as _, directory.path(), 1_000).await;
    let first = store.acquire(&acquire(NOW_MS, 1, 10_000)).await.unwrap();
    assert_eq!((first.not_before_ms, first.valid_until_ms), (NOW_MS, NOW_MS + 1_000));
    assert_eq!(store.reach_ms("default", first.worker), Some(NOW_MS + 10_000), "what the store granted");
    assert_eq!(store.reach_ms("default", first.worker + 1), None);
    inner.hold(true);
    let mut bound_ms = first.valid_until_ms;
    for _ in 0..30 {
        let now_ms = world.pass(330);
        let extension = extend(&first, now_ms, 1, 10_000);
        let lease = tokio::time::timeout(PATIENCE, store.extend(&extension)).await.unwrap().unwrap();
        assert_eq!(lease.valid_until_ms, (now_ms + 1_000).min(NOW_MS + 10_000));
        assert!(lease.valid_until_ms >= bound_ms);
        bound_ms = lease.valid_until_ms;
        if bound_ms == NOW_MS + 10_000 {
            break;
        }
    }
    let at_end = extend(&first, world.now_ms(), 1, 10_000);
    let waits = tokio::time::timeout(Duration::from_millis(50), store.extend(&at_end)).await;
    assert!(waits.is_err(), "at the end only the store can help: {waits:?}");
    inner.set_down(true);
    inner.hold(false);
    let error = store.extend(&at_end).await.unwrap_err();
    assert!(error.to_string().contains("connection refused"), "the store's own words: {error}");
    inner.set_down(false);
    let lease = store.extend(&at_end).await.unwrap();
    assert_eq!((lease.grant_id, lease.valid_until_ms), (first.grant_id, world.now_ms() + 1_000));
}

#[tokio::test]
async fn a_store_that_is_down_is_told_once() {
    let (world, directory, log) = (World::new(), TempDir::new().unwrap(), Log::default());
    let _listening = log.listen();
    let (inner, budget) = (world.faulty(), Arc::new(AtomicU64::new(1_000)));
    inner.set_budget(&budget);
    let asked = || 1_000 - budget.load(Ordering::SeqCst);
    let store = open(Arc::clone(&inner) as _, directory.path(), 1_000).await;
    let first = store.acquire(&acquire(NOW_MS, 1, 60_000)).await.unwrap();
    let told = |what: &str| log.text().matches(what).count();
    world.pass(25_000);
    inner.set_down(true);
    store.extend(&extend(&first, world.now_ms(), 1, 60_000)).await.unwrap();
    until(async || told("the lease was not extended at its store") == 1).await;
    // Each of these pieces asks again.
    for _ in 0..5 {
        world.pass(1_000);
        let before = asked();
        until(async || {
            store.extend(&extend(&first, world.now_ms(), 1, 60_000)).await.unwrap();
            asked() > before
        })
        .await;
    }
    assert_eq!(told("the lease was not extended at its store"), 1, "{}", log.text());
    inner.set_down(false);
    until(async || {
        store.extend(&extend(&first, world.pass(1), 1, 60_000)).await.unwrap();
        store.reach_ms("default", first.worker) > Some(NOW_MS + 60_000)
    })
    .await;
    until(async || told("the lease is extended at its store again") == 1).await;
}

#[tokio::test]
async fn the_lease_is_renewed_at_its_store_when_a_third_has_passed_and_after_a_restart() {
    let (world, directory) = (World::new(), TempDir::new().unwrap());
    let inner = world.faulty();
    let store = open(Arc::clone(&inner) as _, directory.path(), 1_000).await;
    let first = store.acquire(&acquire(NOW_MS, 1, 9_000)).await.unwrap();
    world.pass(2_900);
    store.extend(&extend(&first, world.now_ms(), 1, 9_000)).await.unwrap();
    // An answer that is lost moves the end at the store alone.
    inner.set_answers_lost(true);
    world.pass(200);
    store.extend(&extend(&first, world.now_ms(), 1, 9_000)).await.unwrap();
    until(async || world.end_ms(first.worker).await == NOW_MS + 3_100 + 9_000).await;
    assert_eq!(store.reach_ms("default", first.worker), Some(NOW_MS + 9_000), "the old bound stays");
    inner.set_answers_lost(false);
    until(async || {
        store.extend(&extend(&first, world.now_ms(), 1, 9_000)).await.unwrap();
        store.reach_ms("default", first.worker) == Some(NOW_MS + 3_100 + 9_000)
    })
    .await;

    drop(store);
    world.pass(100);
    let store = open(Arc::clone(&inner) as _, directory.path(), 1_000).await;
    let second = store.acquire(&acquire(world.now_ms(), 1, 9_000)).await.unwrap();
    assert_eq!((second.worker, second.not_before_ms), (first.worker, NOW_MS + 3_100 + 1_000));
    assert_ne!(second.grant_id, first.grant_id, "what the last process holds is not extended by this one");
    let stranger = store.extend(&extend(&first, world.now_ms(), 1, 9_000)).await;
    assert!(matches!(stranger, Err(StoreError::LeaseLost { .. })), "{stranger:?}");
    until(async || world.end_ms(first.worker).await == world.now_ms() + 9_000).await;
    until(async || store.reach_ms("default", first.worker) == Some(world.now_ms() + 9_000)).await;
    // Given back under the name that the store gave the lease, not under the piece's.
    assert!(store.release("default", second.worker, second.grant_id, second.not_before_ms + 1).await.unwrap());
    let records = world.memory.leases("default").await.unwrap();
    let [record] = records.as_slice() else { panic!("no second worker: {records:?}") };
    assert_eq!((record.lease.valid_until_ms, record.is_final), (second.not_before_ms + 1, true));
}

async fn until(mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < deadline, "it never came to that");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_lease_that_is_lost_is_used_to_its_end_and_another_follows() {
    let (world, directory) = (World::new(), TempDir::new().unwrap());
    let store = open(world.faulty(), directory.path(), 1_000).await;
    let first = store.acquire(&acquire(NOW_MS, 1, 9_000)).await.unwrap();
    let record = store.forbid_extension("default", first.worker).await.unwrap().unwrap();
    assert_eq!((record.lease.grant_id, record.lease.valid_until_ms), (first.grant_id, NOW_MS + 9_000));
    let mut bound_ms = 0;
    while bound_ms < NOW_MS + 9_000 {
        let now_ms = world.pass(500);
        bound_ms = store.extend(&extend(&first, now_ms, 1, 9_000)).await.unwrap().valid_until_ms;
    }
    let lost = store.extend(&extend(&first, world.now_ms(), 1, 9_000)).await;
    assert!(matches!(lost, Err(StoreError::LeaseLost { worker, .. }) if worker == first.worker), "{lost:?}");
    let second = store.acquire(&acquire(world.now_ms(), 1, 9_000)).await.unwrap();
    assert_ne!(second.worker, first.worker, "the first one still runs");
    assert_eq!(world.end_ms(first.worker).await, NOW_MS + 9_000, "and ends where it ended");
}

#[tokio::test]
async fn a_lease_is_prolonged_in_its_own_layout_only() {
    let (world, directory) = (World::new(), TempDir::new().unwrap());
    let store = open(world.faulty(), directory.path(), 1_000).await;
    let lease = store.acquire(&acquire(NOW_MS, 1, 9_000)).await.unwrap();
    let now_ms = world.pass(500);
    let refused = store.extend(&extend(&lease, now_ms, 10, 9_000)).await;
    assert!(matches!(refused, Err(StoreError::LayoutMismatch { .. })), "{refused:?}");
    let prolonged = store.extend(&extend(&lease, now_ms, 1, 9_000)).await.unwrap();
    assert_eq!(prolonged.valid_until_ms, now_ms + 1_000, "the other layout moved nothing");
}

#[tokio::test]
async fn a_release_hands_the_worker_over_from_its_last_tick_on() {
    let (world, directory) = (World::new(), TempDir::new().unwrap());
    let inner = world.faulty();
    let store = open(Arc::clone(&inner) as _, directory.path(), 1_000).await;
    let lease = store.acquire(&acquire(NOW_MS, 10, 60_000)).await.unwrap();
    // In its second tick, of which nothing is left then.
    let end_ms = lease.not_before_ms + 13;
    for (worker, grant_id, end_ms) in [
        (lease.worker + 1, lease.grant_id, end_ms),
        (lease.worker, unalike_storage::GrantId(lease.grant_id.0 ^ 1), end_ms),
        (lease.worker, lease.grant_id, lease.valid_until_ms + 1),
    ] {
        assert!(!store.release("default", worker, grant_id, end_ms).await.unwrap(), "that is nobody's");
    }
    assert!(!store.release("other", lease.worker, lease.grant_id, end_ms).await.unwrap());
    assert!(store.release("default", lease.worker, lease.grant_id, end_ms).await.unwrap());
    assert_eq!(world.end_ms(lease.worker).await, lease.not_before_ms + 20);
    assert!(!store.release("default", lease.worker, lease.grant_id, end_ms).await.unwrap(), "once");
    let late = store.extend(&extend(&lease, NOW_MS, 10, 60_000)).await;
    assert!(matches!(late, Err(StoreError::LeaseLost { .. })), "{late:?}");
    world.pass(20);
    let wish = LeaseAcquire { preferred_worker: Some(lease.worker), ..acquire(world.now_ms(), 10, 60_000) };
    let next = store.acquire(&wish).await.unwrap();
    assert_eq!(next.worker, lease.worker);
    assert!(next.not_before_ms >= lease.not_before_ms + 20);
    // While the store is down, the copy is void all the same, and no restart opens it again.
    inner.set_down(true);
    let failed = store.release("default", next.worker, next.grant_id, next.not_before_ms).await.unwrap_err();
    assert!(failed.to_string().contains("connection refused"), "{failed}");
    drop(store);
    let store = open(Arc::clone(&inner) as _, directory.path(), 1_000).await;
    store.acquire(&acquire(world.now_ms(), 10, 60_000)).await.unwrap_err();
    inner.set_down(false);
    assert_ne!(store.acquire(&acquire(world.now_ms(), 10, 60_000)).await.unwrap().worker, next.worker);
}

#[tokio::test]
async fn files_that_cannot_be_used_are_refused_by_name_and_the_store_is_not_asked() {
    let (world, directory) = (World::new(), TempDir::new().unwrap());
    let path = directory.path();
    let file = path.join("default.lease.json");
    let other = LeaseAcquire { namespace: "other".to_owned(), ..acquire(NOW_MS, 1, 60_000) };
    let store = open(world.faulty(), path, 1_000).await;
    let lease = store.acquire(&acquire(NOW_MS, 1, 60_000)).await.unwrap();
    store.acquire(&other).await.unwrap();
    drop(store);
    let good = fs::read(&file).unwrap();
    let swapped = fs::read(path.join("other.lease.json")).unwrap();
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    let static_directory = TempDir::new().unwrap();
    StaticWorker::initialise(static_directory.path(), &assignment(1, 1)).await.unwrap();
    let of_another_kind = fs::read(static_directory.path().join("default.lease.json")).unwrap();
    for bad in [&[][..], &good[..good.len() - 1], &good[..good.len() / 2], &flipped, &swapped, &of_another_kind] {
        fs::write(&file, bad).unwrap();
        let before = world.memory.leases("default").await.unwrap();
        let store = open(world.faulty(), path, 1_000).await;
        for _ in 0..2 {
            let error = store.acquire(&acquire(NOW_MS, 1, 60_000)).await.unwrap_err();
            let says = error.to_string();
            let named = says.contains(file.to_str().unwrap()) && says.contains("remove the file");
            assert!(matches!(error, StoreError::Corrupt { .. }) && named, "{error:?}");
        }
        assert_eq!(world.memory.leases("default").await.unwrap(), before, "nothing was granted");
        assert_eq!(fs::read(&file).unwrap(), bad, "and nothing was written");
    }
    fs::write(&file, &good).unwrap();
    let store = open(world.faulty(), path, 1_000).await;
    let layout = store.acquire(&acquire(NOW_MS, 10, 60_000)).await.unwrap_err();
    assert!(matches!(layout, StoreError::LayoutMismatch { .. }), "{layout:?}");
    let next = store.acquire(&acquire(NOW_MS + 10, 1, 60_000)).await.unwrap();
    assert_eq!((next.worker, next.not_before_ms), (lease.worker, lease.valid_until_ms), "the right one is good");
    drop(store);
    // A missing one is no lease: what the store grants then is new.
    fs::remove_file(&file).unwrap();
    let store = open(world.faulty(), path, 1_000).await;
    let new = store.acquire(&acquire(NOW_MS + 20, 1, 60_000)).await.unwrap();
    assert_ne!(new.worker, lease.worker);
}

#[tokio::test]
async fn a_static_worker_starts_from_its_own_file_alone() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("worker");
    let file = path.join("default.lease.json");
    let open = |worker| StaticWorker::open_unguarded(worker, LocalOptions::new(&path));
    let refused = |error: &StoreError, why: &str| {
        let says = error.to_string();
        assert!(matches!(error, StoreError::Refused { .. }) && says.contains(why), "{why}: {error:?}");
    };
    let request = acquire(NOW_MS, 1, 60_000);

    refused(&open(3).await.err().unwrap(), "does not exist");
    assert!(!path.exists(), "nothing is made by the way");
    fs::create_dir(&path).unwrap();
    let store = open(3).await.unwrap();
    refused(&store.acquire(&request).await.unwrap_err(), "StaticWorker::initialise");
    assert!(!file.exists() && store.namespaces().await.unwrap().is_empty());
    drop(store);

    refused(&StaticWorker::initialise(&path, &assignment(256, 1)).await.unwrap_err(), "256");
    let too_late = StaticAssignment { not_before_ms: layout(1).ends_ms(), ..assignment(3, 1) };
    refused(&StaticWorker::initialise(&path, &too_late).await.unwrap_err(), "no ticks");
    StaticWorker::initialise(&path, &StaticAssignment { not_before_ms: NOW_MS + 5, ..assignment(3, 1) }).await.unwrap();
    refused(&StaticWorker::initialise(&path, &assignment(3, 1)).await.unwrap_err(), "already");

    let store = open(3).await.unwrap();
    let in_use = StaticWorker::initialise(&path, &assignment(3, 1)).await.unwrap_err();
    assert!(in_use.to_string().contains("in use"), "{in_use}");
    let lease = store.acquire(&request).await.unwrap();
    assert_eq!((lease.worker, lease.not_before_ms, lease.valid_until_ms), (3, NOW_MS + 5, NOW_MS + 2_001));
    assert_eq!(store.namespaces().await.unwrap(), ["default"]);
    assert_eq!(store.leases("default").await.unwrap()[0].lease.valid_until_ms, layout(1).ends_ms());
    let wish = LeaseAcquire { preferred_worker: Some(4), ..request.clone() };
    refused(&store.acquire(&wish).await.unwrap_err(), "worker 4 is preferred");
    let layout = store.acquire(&acquire(NOW_MS, 10, 60_000)).await.unwrap_err();
    assert!(matches!(layout, StoreError::LayoutMismatch { .. }), "{layout:?}");
    // Closed in good order it goes on behind its last tick.
    assert!(!store.release("default", 3, lease.grant_id, lease.valid_until_ms + 1).await.unwrap());
    assert!(store.release("default", 3, lease.grant_id, NOW_MS + 7).await.unwrap());
    assert!(!store.release("default", 3, lease.grant_id, NOW_MS + 6).await.unwrap(), "once");
    drop(store);
    let store = open(3).await.unwrap();
    assert_eq!(store.acquire(&acquire(NOW_MS + 1, 1, 1_000)).await.unwrap().not_before_ms, NOW_MS + 7);
    drop(store);

    refused(&open(4).await.unwrap().acquire(&request).await.unwrap_err(), "belongs to worker 3");
    let good = fs::read(&file).unwrap();
    for bad in [&[][..], &good[..good.len() / 2]] {
        fs::write(&file, bad).unwrap();
        let error = open(3).await.unwrap().acquire(&request).await.unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }) && error.to_string().contains("initialise"), "{error:?}");
        let error = StaticWorker::initialise(&path, &assignment(3, 1)).await.unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "what is damaged is not initialised either: {error:?}");
    }
}

/// What a holder had in its hands.
#[derive(Clone, Copy, Debug)]
struct Held {
    lease: Lease,
    /// It may use all of it.
    is_open: bool,
}

/// One process after another in one directory.
struct Node {
    directory: TempDir,
    inner: Arc<FaultyStore>,
    store: Option<LocalLeases>,
    held: Vec<Held>,
    skew_ms: i64,
}

impl Node {
    async fn store(&mut self, lead_ms: u64) -> &LocalLeases {
        if self.store.is_none() {
            self.store = Some(open(Arc::clone(&self.inner) as _, self.directory.path(), lead_ms).await);
        }
        self.store.as_ref().unwrap()
    }

    async fn act(&mut self, world: &World, tick_ms: u32, lead_ms: u64, horizon_ms: u64) {
        let now_ms = world.now_ms().checked_add_signed(self.skew_ms).unwrap();
        let newest = self.held.last().copied().filter(|held| held.is_open);
        let request = acquire(now_ms, tick_ms, horizon_ms);
        let store = self.store(lead_ms).await;
        match (fastrand::u32(0..12), newest) {
            (0, _) => {
                self.store = None;
                if let Some(held) = self.held.last_mut() {
                    held.is_open = false;
                }
            }
            (1, _) => {
                // Somebody who asks and goes away.
                let mut abandoned = pin!(store.acquire(&request));
                let polls = fastrand::u32(1..4);
                let mut polled = 0;
                poll_fn(|context| {
                    polled += 1;
                    let is_ready = abandoned.as_mut().poll(context).is_ready();
                    if is_ready || polled == polls { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
            }
            (2, Some(held)) => {
                let Lease { worker, grant_id, not_before_ms, valid_until_ms } = held.lease;
                let end_ms = not_before_ms + fastrand::u64(0..=valid_until_ms - not_before_ms);
                let _ = LeaseStore::release(store, "default", worker, grant_id, end_ms).await;
                // Of the tick in which it ends all is used.
                let tick_ms = u64::from(tick_ms);
                let used_ms = (end_ms - not_before_ms).div_ceil(tick_ms) * tick_ms;
                let last = self.held.last_mut().unwrap();
                last.lease.valid_until_ms = not_before_ms + used_ms;
                last.is_open = false;
            }
            (3..9, Some(held)) => {
                if let Ok(lease) = store.extend(&extend(&held.lease, now_ms, tick_ms, horizon_ms)).await {
                    let same = (lease.worker, lease.grant_id, lease.not_before_ms);
                    assert_eq!(same, (held.lease.worker, held.lease.grant_id, held.lease.not_before_ms));
                    assert!(lease.valid_until_ms >= held.lease.valid_until_ms, "an extension never lowers");
                    self.held.last_mut().unwrap().lease = lease;
                }
            }
            _ => {
                if let Ok(lease) = store.acquire(&request).await {
                    self.held.push(Held { lease, is_open: true });
                }
            }
        }
    }
}

/// Three processes share two workers of one store, with outages, lost answers, deaths at any time, releases, requests
/// that nobody waits for, and clocks that go where they like: no two pieces have a tick in common.
#[tokio::test]
async fn whatever_happens_no_two_pieces_share_a_tick() {
    for (number, tick_ms) in [(1, 1), (2, 10), (3, 1_000), (4, 1), (5, 10), (6, 1)] {
        let seed = number * 7_919;
        fastrand::seed(seed);
        let world = World::new();
        let (lead_ms, horizon_ms) = (u64::from(tick_ms) * fastrand::u64(1..20), u64::from(tick_ms) * 50);
        let mut nodes = Vec::new();
        for _ in 0..3 {
            let (directory, inner) = (TempDir::new().unwrap(), world.faulty());
            nodes.push(Node { directory, inner, store: None, held: Vec::new(), skew_ms: 0 });
        }
        for _ in 0..1_500 {
            let node = &mut nodes[fastrand::usize(0..3)];
            match fastrand::u32(0..10) {
                0 => node.inner.set_down(fastrand::bool()),
                1 => node.inner.set_answers_lost(fastrand::bool()),
                2 => node.skew_ms = fastrand::i64(-6_000..6_000) * i64::from(fastrand::bool()),
                3 | 4 => drop(world.pass(fastrand::u64(0..u64::from(tick_ms) * 15))),
                _ => node.act(&world, tick_ms, lead_ms, horizon_ms).await,
            }
        }
        let mut pieces: BTreeMap<u32, Vec<Lease>> = BTreeMap::new();
        let mut names = BTreeSet::new();
        for held in nodes.iter().flat_map(|node| &node.held) {
            assert!(names.insert(held.lease.grant_id), "seed {seed}: two pieces have one name");
            let at_ms = [held.lease.not_before_ms, held.lease.valid_until_ms];
            let tick_ms = u64::from(tick_ms);
            assert!(at_ms.iter().all(|at_ms| (at_ms - layout(1).epoch_ms()).is_multiple_of(tick_ms)), "on the grid");
            pieces.entry(held.lease.worker).or_default().push(held.lease);
        }
        let count = pieces.values().map(Vec::len).sum::<usize>();
        assert!(count > 50, "seed {seed}: there were some pieces: {count}");
        for pieces in pieces.values_mut() {
            pieces.sort_by_key(|lease| (lease.not_before_ms, lease.valid_until_ms));
            let disjoint = pieces.is_sorted_by(|a, b| a.valid_until_ms <= b.not_before_ms);
            assert!(disjoint, "seed {seed}: two pieces share a tick: {pieces:#?}");
        }
    }
}

// The contract of every store.

/// Clients of one store in memory, each with a directory of its own as each process has.
struct Locals {
    memory: MemoryStore,
    lead_ms: u64,
    directories: Mutex<Vec<TempDir>>,
}

#[async_trait]
impl Fixture for Locals {
    async fn restart(&self) {}
}

#[async_trait]
impl LeaseFixture for Locals {
    async fn lease_client(&self, limits: LeaseLimits) -> Arc<dyn LeaseStore> {
        let inner = Arc::new(self.memory.client(MemoryOptions { limits, ..MemoryOptions::default() }));
        let directory = TempDir::new().unwrap();
        let client = open(inner, directory.path(), self.lead_ms).await;
        self.directories.lock().unwrap().push(directory);
        Arc::new(client)
    }
}

fn locals(lead_ms: u64) -> Locals {
    Locals { memory: MemoryStore::default(), lead_ms, directories: Mutex::default() }
}

/// A local client goes on with its lease where a store would grant another, and shows a piece of it: what a check says
/// of two leases that one client holds at once, or of a lease's whole length, cannot hold.
#[tokio::test(flavor = "multi_thread")]
async fn pieces_keep_what_they_can_of_the_contract() {
    let fixture = locals(5);
    check::bounds_lie_on_the_tick_grid(&fixture).await;
    check::concurrent_holders_never_share_a_tick(&fixture).await;
    check::no_lease_reaches_beyond_the_horizon_of_its_namespace(&fixture).await;
    check::a_release_never_ends_a_lease_before_its_start(&fixture).await;
    check::a_release_by_a_stranger_changes_nothing(&fixture).await;
    check::never_used_workers_come_first_and_at_random(&fixture).await;
    check::namespaces_are_listed(&fixture).await;
    check::an_abandoned_request_costs_only_an_interval(&fixture).await;
}

/// A lease that is shorter than a lead is one piece, so more of the contract can be held to.
///
/// Left out are releases of one lease by a client that holds two (`a_holder_gets_its_worker_back`,
/// `leases_are_listed_by_worker`, `a_restart_forgets_nothing`), what is said of leases of a minute or more, as long as
/// the longest lead (`each_acquire_is_a_new_grant`, `a_stranger_extends_nothing`, `a_release_hands_the_worker_over`,
/// `an_extension_never_lowers_the_end`, `exhaustion_says_when_a_worker_is_free`, `a_clock_that_is_off_is_refused`), and
/// the one that reads the store's clock by a request under another layout, which is refused here already
/// (`another_layout_is_refused`). Tests of this file say of pieces what matters in them.
#[tokio::test(flavor = "multi_thread")]
async fn leases_of_one_piece_keep_the_contract() {
    let fixture = locals(LocalOptions::LEAD_MAX_MS);
    check::bounds_lie_on_the_tick_grid(&fixture).await;
    check::concurrent_holders_never_share_a_tick(&fixture).await;
    check::no_lease_reaches_beyond_the_horizon_of_its_namespace(&fixture).await;
    check::a_clock_that_is_behind_reaches_no_predecessor(&fixture).await;
    check::a_release_never_ends_a_lease_before_its_start(&fixture).await;
    check::a_release_by_a_stranger_changes_nothing(&fixture).await;
    check::never_used_workers_come_first_and_at_random(&fixture).await;
    check::bad_requests_are_refused(&fixture).await;
    check::an_operator_ends_a_lease_where_it_ends(&fixture).await;
    check::namespaces_are_listed(&fixture).await;
    check::an_abandoned_request_costs_only_an_interval(&fixture).await;
}

/// Two stores lease the same workers, each to a process of its own: a directory that moves from one to the other takes
/// no lease along.
#[test]
fn a_lease_of_another_store_is_not_continued() {
    let directory = TempDir::new().unwrap();
    let options = |store: &str| LocalOptions {
        give_back: false,
        store: Some(store.to_owned()),
        ..LocalOptions::new(directory.path().join("leases"))
    };
    let began_ms = SystemClock.now_ms();
    // Each a while later than the one before, so that there is time for another piece.
    let wish = |after_ms| LeaseAcquire { preferred_worker: Some(5), ..acquire(began_ms + after_ms, 1, 60_000) };
    let down = Arc::new(FaultyStore::before(MemoryStore::default()));
    down.set_down(true);
    block_on(async {
        let open = async |name: &str| {
            Arc::new(SqliteStore::connect(SqliteOptions::new(directory.path().join(name))).await.unwrap())
        };
        let (a, b) = (open("a.sqlite").await, open("b.sqlite").await);
        let local = async |store: Arc<dyn LeaseStore>, name: &str, after_ms: u64| {
            LocalLeases::open(store, options(name)).await.unwrap().acquire(&wish(after_ms)).await
        };
        let of_a = local(a.clone(), "a", 0).await.unwrap();
        let renamed = local(a.clone(), "the same under another address", 100).await.unwrap();
        assert_eq!((of_a.worker, renamed.worker), (5, 5));
        assert_eq!(renamed.not_before_ms, of_a.valid_until_ms, "the store is known by its identity");
        assert_eq!(local(down.clone(), "a", 200).await.unwrap().worker, 5, "a store that is down is known by its name");
        let refused = local(down, "b", 300).await.unwrap_err();
        assert!(matches!(refused, StoreError::Unavailable { .. }), "{refused:?}");
        let of_b = local(b.clone(), "a", 400).await.unwrap();
        let records = b.leases("default").await.unwrap();
        assert_eq!(records.len(), 1, "the other store granted it: {of_b:?}");
    });
}
