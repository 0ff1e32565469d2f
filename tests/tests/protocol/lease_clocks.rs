//! Snowflakes on clocks that are stepped, in real processes: back and forth, while they run and between their lives. In
//! every test all ids that any process printed are compared, and each is looked for in the leases of its process.
//!
//! SQLite reads the clock of the process that it works in: a store in a file jumps with its holder, as on one machine
//! whose clock is set. A server that other machines ask keeps its own time.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use unalike::{Clock, ClockPolicy, Layout, SystemClock};
use unalike_tests::PATIENCE;
use unalike_tests::clients::monotonic_ns;
use unalike_tests::clock::FakeClock;
use unalike_tests::holders::{Failure, Holder, Holders, Refusal, Settings, What, failure, id};
use unalike_tests::mariadb::MariaDb;
use unalike_tests::server::{Answer, Server};

const CHILD: &str = env!("CARGO_BIN_EXE_lease-child");

const HOUR_MS: i64 = 3_600_000;

/// More than any step here that a policy is to bridge, and than the time between two instants that should be the same.
const NEAR_MS: i64 = 30_000;

const MS: u64 = 1_000_000;

/// Holders of one machine, which have one clock; that of a store in a file is the same.
struct Machine {
    clock: FakeClock,
    settings: Settings,
    holders: Holders,
    /// Where the store is, if it is in a file.
    #[expect(dead_code, reason = "it is there as long as this value")]
    directory: Option<TempDir>,
}

impl Machine {
    fn new(policy: ClockPolicy) -> Self {
        Self::with(|settings| settings.policy = policy)
    }

    fn with(set: impl FnOnce(&mut Settings)) -> Self {
        let directory = TempDir::new().unwrap();
        let store = format!("sqlite:{}", directory.path().join("leases.sqlite").display());
        Self { directory: Some(directory), ..Self::over(&store, set) }
    }

    fn over(store: &str, set: impl FnOnce(&mut Settings)) -> Self {
        // Whoever has to wait for a clock that is a second behind waits for it.
        let mut settings = Settings { wait_max_ms: 10_000, ..Settings::new(store) };
        set(&mut settings);
        let holders = Holders::new(CHILD, &settings).unwrap();
        Self { clock: FakeClock::start().unwrap(), settings, holders, directory: None }
    }

    /// A holder that has ids.
    fn start(&mut self) -> Holder {
        let holder = self.holders.start_with_clock(&self.settings.named("host-a"), &self.clock).unwrap();
        holder.wait_for("an id", 0, id).unwrap();
        holder
    }

    /// Waits for an id of about now, as a clock shows it that is so far ahead.
    fn wait_for_id_of(&self, holder: &Holder, ahead_ms: i64) {
        let near = |what: &What| id(what).filter(|&id| self.is_near(id, ahead_ms));
        holder.wait_for("an id of about now", holder.lines(), near).unwrap();
    }

    fn is_near(&self, id: u64, ahead_ms: i64) -> bool {
        let shown_ms = SystemClock.now_ms().checked_add_signed(ahead_ms).unwrap();
        self.holders.stamp_ms(id).abs_diff(shown_ms) < NEAR_MS.unsigned_abs()
    }

    fn wait_for_newer_id(&self, holder: &Holder) {
        let last = holder.ids().last().unwrap().1;
        let newer = |what: &What| id(what).filter(|&id| self.holders.stamp_ms(id) > self.holders.stamp_ms(last));
        holder.wait_for("an id of a later tick", holder.lines(), newer).unwrap();
    }
}

/// By how much the clock went back, if that is what is said.
fn moved_back_ms(what: &What) -> Option<i64> {
    let Failure { kind, retry_after_ms, .. } = failure(what)?;
    (kind == "clock_moved_back").then(|| i64::try_from(retry_after_ms.unwrap()).unwrap())
}

/// Whether two figures differ by less than a test may take.
fn is_about(ms: i64, expected_ms: i64) -> bool {
    (ms - expected_ms).abs() < NEAR_MS
}

/// The ids that it asked for after this instant, and when it had them. Those that it had first after it may have been
/// on their way by then, several in one answer.
fn ids_asked_since(holder: &Holder, since_ns: u64) -> Vec<(u64, u64)> {
    let ids: Vec<_> = holder.ids().into_iter().filter(|&(at_ns, _)| at_ns > since_ns).collect();
    let Some(&(first_ns, _)) = ids.first() else { return ids };
    ids.into_iter().filter(|&(at_ns, _)| at_ns > first_ns).collect()
}

#[test]
fn steps_back_of_a_millisecond_cost_nothing_but_moments() {
    for policy in [ClockPolicy::Reject, ClockPolicy::Wait { max_ms: 5 }, ClockPolicy::Keep { max_ms: 2_000 }] {
        let mut machine = Machine::new(policy);
        let holder = machine.start();
        for step in 1..=20 {
            machine.clock.set(-step).unwrap();
            machine.wait_for_newer_id(&holder);
        }
        for (_, failure) in holder.errors() {
            assert_eq!((failure.kind.as_str(), policy), ("clock_moved_back", ClockPolicy::Reject), "{failure:?}");
        }
        holder.end().unwrap();
        machine.holders.check();
    }
}

#[test]
fn a_step_back_is_bridged_by_keeping_the_timestamp() {
    const BACK_MS: i64 = 60_000;
    let mut machine = Machine::new(ClockPolicy::Keep { max_ms: 2 * BACK_MS.unsigned_abs() });
    let holder = machine.start();
    machine.clock.set(-BACK_MS).unwrap();
    let stepped_ns = monotonic_ns();
    // Long before the clock has caught up.
    let deadline = Instant::now() + PATIENCE;
    while ids_asked_since(&holder, stepped_ns).len() < 2 {
        assert!(Instant::now() < deadline, "ids go on at once");
        std::thread::sleep(Duration::from_millis(1));
    }
    machine.clock.set(0).unwrap();
    machine.wait_for_newer_id(&holder);
    assert_eq!(holder.errors(), []);
    holder.end().unwrap();
    machine.holders.check();
}

#[test]
fn a_step_back_of_a_second_is_waited_for() {
    let mut machine = Machine::new(ClockPolicy::Wait { max_ms: 2_000 });
    let holder = machine.start();
    // In this order: what the clock shows later is not underestimated.
    let (read_ns, read_ms) = (monotonic_ns(), SystemClock.now_ms());
    machine.clock.set(-1_000).unwrap();
    let stepped_ns = monotonic_ns();
    let deadline = Instant::now() + PATIENCE;
    let ids = loop {
        let ids = ids_asked_since(&holder, stepped_ns);
        if ids.len() > 1 {
            break ids;
        }
        assert!(Instant::now() < deadline, "ids go on when the clock has caught up");
        std::thread::sleep(Duration::from_millis(1));
    };
    for (at_ns, id) in ids {
        let shown_ms = read_ms + (at_ns - read_ns).div_ceil(MS) - 1_000;
        assert!(machine.holders.stamp_ms(id) <= shown_ms, "nobody gets an id before the clock has caught up");
    }
    assert_eq!(holder.errors(), []);
    holder.end().unwrap();
    machine.holders.check();
}

#[test]
fn a_step_back_of_a_second_beyond_the_policy_is_refused_until_the_clock_has_caught_up() {
    for policy in [ClockPolicy::Reject, ClockPolicy::Wait { max_ms: 5 }, ClockPolicy::Keep { max_ms: 5 }] {
        let mut machine = Machine::new(policy);
        let holder = machine.start();
        let lines = holder.lines();
        machine.clock.set(-1_000).unwrap();
        let behind_ms = holder.wait_for("that it went back", lines, moved_back_ms).unwrap();
        assert!((1..=1_000).contains(&behind_ms), "{behind_ms}");
        machine.wait_for_newer_id(&holder);
        holder.end().unwrap();
        machine.holders.check();
    }
}

#[test]
fn a_step_back_of_an_hour_is_followed_under_another_lease_by_all_processes() {
    for policy in [ClockPolicy::Reject, ClockPolicy::Wait { max_ms: 5 }, ClockPolicy::Keep { max_ms: 2_000 }] {
        let mut machine = Machine::new(policy);
        let first = machine.start();
        machine.wait_for_id_of(&first, 0);
        machine.clock.set(-HOUR_MS).unwrap();
        machine.wait_for_id_of(&first, -HOUR_MS);
        // One beside it, and one after it was killed.
        let second = machine.start();
        machine.wait_for_id_of(&second, -HOUR_MS);
        first.kill9().unwrap();
        let third = machine.start();
        machine.wait_for_id_of(&third, -HOUR_MS);
        // The right time comes back.
        machine.clock.set(0).unwrap();
        machine.wait_for_id_of(&second, 0);
        machine.wait_for_id_of(&third, 0);
        second.end().unwrap();
        third.end().unwrap();
        machine.holders.check();
    }
}

#[test]
fn a_step_forward_of_an_hour_is_followed_and_so_is_a_step_back_from_it() {
    let mut machine = Machine::new(ClockPolicy::default());
    let holder = machine.start();
    machine.clock.set(HOUR_MS).unwrap();
    machine.wait_for_id_of(&holder, HOUR_MS);
    machine.clock.set(0).unwrap();
    machine.wait_for_id_of(&holder, 0);
    holder.kill9().unwrap();
    let again = machine.start();
    machine.wait_for_id_of(&again, 0);
    again.end().unwrap();
    machine.holders.check();
}

/// Where the only worker was leased in a time that is still to come, that time is waited for.
#[test]
fn a_worker_that_was_used_in_the_future_is_busy_until_then() {
    let mut machine = Machine::with(|settings| settings.worker_bits = 0);
    machine.clock.set(HOUR_MS).unwrap();
    let holder = machine.start();
    machine.wait_for_id_of(&holder, HOUR_MS);
    let end_ms = holder.leases().last().unwrap().valid_until_ms;
    holder.kill9().unwrap();
    machine.clock.set(0).unwrap();
    let again = machine.holders.start_with_clock(&machine.settings, &machine.clock).unwrap();
    let refusal = again.wait_for("an error", 0, failure).unwrap().store;
    let Refusal::WorkersExhausted { workers: 1, free_at_ms } = refusal else { panic!("{refusal:?}") };
    // What it was granted last may not have been said any more.
    assert!((end_ms..end_ms + machine.settings.horizon_ms * 2).contains(&free_at_ms), "{free_at_ms} after {end_ms}");
    machine.clock.set(HOUR_MS + 10_000).unwrap();
    machine.wait_for_id_of(&again, HOUR_MS);
    again.end().unwrap();
    machine.holders.check();
}

#[test]
fn lives_at_all_times_repeat_no_id() {
    let mut machine = Machine::new(ClockPolicy::default());
    for ahead_ms in [0, -1, 0, -1_000, -HOUR_MS, 1, HOUR_MS, -HOUR_MS, HOUR_MS - 1_000, 0, -1_000, HOUR_MS] {
        machine.clock.set(ahead_ms).unwrap();
        let holder = machine.start();
        machine.wait_for_id_of(&holder, ahead_ms);
        if fastrand::bool() { holder.end() } else { holder.kill9() }.unwrap();
    }
    machine.holders.check();
}

/// A store that keeps its own time; the clock is its holders'.
fn with_mariadb(set: impl FnOnce(&mut Settings)) -> Machine {
    Machine::over(&MariaDb::shared().unwrap().database().unwrap(), set)
}

/// Both clocks, if it is refused since they are too far apart.
fn skew_ms(what: &What) -> Option<(u64, u64, String)> {
    match failure(what)? {
        Failure { store: Refusal::ClockSkew { holder_ms, store_ms }, message, .. } => {
            Some((holder_ms, store_ms, message))
        }
        _ => None,
    }
}

/// Checks an error about clocks that are so far apart: it says both.
fn assert_apart((holder_ms, store_ms, message): (u64, u64, String), ahead_ms: i64) {
    let apart_ms = i64::try_from(holder_ms).unwrap() - i64::try_from(store_ms).unwrap();
    assert!(is_about(apart_ms, ahead_ms), "{apart_ms} ms apart");
    assert!(SystemClock.now_ms().abs_diff(store_ms) < NEAR_MS.unsigned_abs(), "the store's clock stays");
    for clock_ms in [holder_ms, store_ms] {
        assert!(message.contains(&unalike_storage::Rfc3339(clock_ms).to_string()), "{message}");
    }
}

#[test]
fn a_holder_that_starts_an_hour_off_is_refused_by_a_store_that_keeps_its_own_time() {
    let mut machine = with_mariadb(|_| ());
    for ahead_ms in [-HOUR_MS, HOUR_MS] {
        machine.clock.set(ahead_ms).unwrap();
        let holder = machine.holders.start_with_clock(&machine.settings, &machine.clock).unwrap();
        assert_apart(holder.wait_for("that the clocks are apart", 0, skew_ms).unwrap(), ahead_ms);
        assert_eq!(holder.ids(), []);
        machine.clock.set(0).unwrap();
        machine.wait_for_id_of(&holder, 0);
        holder.end().unwrap();
    }
    machine.holders.check();
}

#[test]
fn a_holder_whose_clock_goes_an_hour_ahead_of_its_store_gets_no_id_of_that_time_and_goes_on_when_it_is_set_right() {
    let mut machine = with_mariadb(|_| ());
    let holder = machine.start();
    for _ in 0..2 {
        machine.wait_for_id_of(&holder, 0);
        let lines = holder.lines();
        machine.clock.set(HOUR_MS).unwrap();
        assert_apart(holder.wait_for("that the clocks are apart", lines, skew_ms).unwrap(), HOUR_MS);
        machine.clock.set(0).unwrap();
        machine.wait_for_id_of(&holder, 0);
    }
    assert!(!holder.ids().iter().any(|&(_, id)| machine.is_near(id, HOUR_MS)), "an id of another time");
    holder.end().unwrap();
    machine.holders.check();
}

#[test]
fn a_holder_whose_clock_goes_back_by_an_hour_behind_its_store_goes_on_when_it_is_set_right() {
    let mut machine = with_mariadb(|_| ());
    let holder = machine.start();
    machine.wait_for_id_of(&holder, 0);
    let lines = holder.lines();
    machine.clock.set(-HOUR_MS).unwrap();
    // The store knows better, and gives no other lease for that time.
    assert_apart(holder.wait_for("that the clocks are apart", lines, skew_ms).unwrap(), -HOUR_MS);
    machine.clock.set(0).unwrap();
    machine.wait_for_id_of(&holder, 0);
    assert!(!holder.ids().iter().any(|&(_, id)| machine.is_near(id, -HOUR_MS)), "an id of another time");
    holder.end().unwrap();
    machine.holders.check();
}

fn is_busy(failure: &Failure) -> bool {
    matches!(failure.store, Refusal::WorkersExhausted { .. })
}

/// One worker goes from holder to holder, whose clocks are a second apart; its store's stays.
#[test]
fn a_successor_whose_clock_is_behind_begins_after_its_predecessor() {
    let mut machine = with_mariadb(|settings| settings.worker_bits = 0);
    for ahead_ms in [0, -1_000, 1_000, -1, 0, 1_000, -1_000, 0] {
        machine.clock.set(ahead_ms).unwrap();
        let holder = machine.start();
        // One whose clock is ahead gives its worker back from a time on that is still to come for the store.
        let others = holder.errors().into_iter().find(|(_, failure)| !is_busy(failure));
        assert_eq!(others, None);
        holder.end().unwrap();
    }
    let checked = machine.holders.check();
    assert_eq!(checked.holders_by_worker().into_iter().collect::<Vec<_>>(), [(0, 8)]);
}

/// `unalike serve` with a snowflake under leases of 2 s, and what it handed out.
struct Service {
    server: Server,
    clock: Arc<FakeClock>,
    /// Each with the (worker, tick, sequence) that it decodes to.
    ids: BTreeMap<u64, (u32, u64, u32)>,
    /// The last one of this life, and of each of its workers.
    last: u64,
    last_of: BTreeMap<u32, u64>,
}

const LAYOUT: Layout = Layout::LEAF;

impl Service {
    fn start(arguments: &[&str]) -> Self {
        let directory = Arc::new(TempDir::new().unwrap());
        let file = directory.path().join("unalike.toml");
        std::fs::write(&file, "wait_max_ms = 2000\n[snowflakes.web]\nlayout = \"leaf\"\nhorizon_ms = 2000\n").unwrap();
        let mut all = vec!["--config".to_owned(), file.display().to_string(), "--holder=host-a".to_owned()];
        all.extend(arguments.iter().map(|&argument| argument.to_owned()));
        let clock = Arc::new(FakeClock::start().unwrap());
        let server = Server::start_with_clock(directory, all, Arc::clone(&clock)).unwrap();
        Self { server, clock, ids: BTreeMap::new(), last: 0, last_of: BTreeMap::new() }
    }

    fn set(&self, ahead_ms: i64) {
        self.clock.set(ahead_ms).unwrap();
    }

    /// Asks for 100 ids; notes and checks them. The problem, if there are none.
    fn ask(&mut self) -> Result<(), Answer> {
        let answer = self.server.client().get_as("/v1/snowflakes/web/ids?count=100", "text/plain").unwrap();
        if answer.status != 200 {
            return Err(answer);
        }
        for id in answer.body.lines().map(|line| line.parse().unwrap()) {
            self.last = id;
            let parts = LAYOUT.unpack(id).unwrap();
            let last = self.last_of.insert(parts.worker, id);
            assert!(last.is_none_or(|last| last < id), "{id} after {last:?}");
            let before = self.ids.insert(id, (parts.worker, parts.ticks, parts.sequence));
            assert_eq!(before, None, "{id} was handed out before");
        }
        Ok(())
    }

    /// Asks until there are ids of about now, as a clock shows it that is so far ahead.
    fn ask_until_ids_of(&mut self, ahead_ms: i64) {
        let shown_ms = || SystemClock.now_ms().checked_add_signed(ahead_ms).unwrap();
        let stamp_ms = |id| LAYOUT.tick_start_ms(LAYOUT.unpack(id).unwrap().ticks);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let asked = self.ask();
            if asked.is_ok() && stamp_ms(self.last).abs_diff(shown_ms()) < NEAR_MS.unsigned_abs() {
                return;
            }
            assert!(Instant::now() < deadline, "no ids of about now: {asked:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn restart(&mut self, gracefully: bool) {
        if gracefully {
            self.server.sigterm().unwrap();
        }
        self.server.restart().unwrap();
        self.last = 0;
        self.last_of.clear();
    }

    fn check(&self) {
        let places: BTreeSet<_> = self.ids.values().collect();
        assert_eq!(places.len(), self.ids.len(), "a worker, tick and sequence came twice");
    }
}

#[test]
fn a_server_goes_on_when_its_machines_clock_is_stepped() {
    let mut service = Service::start(&[]);
    service.ask_until_ids_of(0);
    for small_ms in [-1, -2, -1_000] {
        service.set(small_ms);
        service.ask().unwrap();
    }
    // By more than a lease reaches: another worker.
    service.set(-HOUR_MS);
    service.ask_until_ids_of(-HOUR_MS);
    for gracefully in [false, true] {
        service.set(-HOUR_MS);
        service.restart(gracefully);
        service.ask_until_ids_of(-HOUR_MS);
        service.set(0);
        service.ask_until_ids_of(0);
        service.set(HOUR_MS);
        service.ask_until_ids_of(HOUR_MS);
        service.set(0);
        service.ask_until_ids_of(0);
        service.restart(gracefully);
        service.ask_until_ids_of(0);
    }
    service.check();
}
