//! The dispenser under every interleaving of a few threads.
//!
//! The same source, over loom's atomics, which try the orders in which threads may run and the stale values that they
//! may see (<https://docs.rs/loom>, after CDSChecker, OOPSLA 2013).

use loom::sync::{Arc, Mutex};
use loom::thread;
use unalike_core::Run;

use self::dispenser::Dispenser;

mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
}
#[allow(dead_code, clippy::duplicate_mod, reason = "the model compiles a part of it anew, over other atomics")]
#[path = "dispenser.rs"]
mod dispenser;

/// A dispenser whose refill lock guards the runs that are still to come.
struct Shared {
    dispenser: Dispenser,
    to_come: Mutex<Vec<Run>>,
}

impl Shared {
    fn new(mut runs: Vec<Run>) -> Arc<Self> {
        runs.reverse();
        Arc::new(Self { dispenser: Dispenser::new(), to_come: Mutex::new(runs) })
    }

    /// An id, as `Sequence` takes it; none when no run is to come.
    fn next(&self) -> Option<u64> {
        let position = match self.dispenser.take() {
            Ok(id) => return Some(id),
            Err(position) => position,
        };
        let mut to_come = self.to_come.lock().unwrap();
        if let Some(id) = self.dispenser.redeem(position) {
            return Some(id);
        }
        if let Ok(id) = self.dispenser.take() {
            return Some(id);
        }
        let run = to_come.pop()?;
        if run.count > 1 {
            self.dispenser.install(Run { first: run.first + run.stride, count: run.count - 1, ..run });
        }
        Some(run.first)
    }

    /// What a clock tick does to a snowflake's run: another one takes its place, used up or not.
    fn replace(&self) {
        let mut to_come = self.to_come.lock().unwrap();
        if let Some(run) = to_come.pop() {
            self.dispenser.install(run);
        }
    }
}

fn runs(of: &[(u64, u64, u32)]) -> Vec<Run> {
    of.iter().map(|&(first, stride, count)| Run { first, stride, count }).collect()
}

/// Every id once, each of a run, and each thread's ids ascend.
#[track_caller]
fn check(taken: &[Vec<u64>], runs: &[Run]) {
    let mut all: Vec<u64> = taken.concat();
    assert!(taken.iter().all(|ids| ids.is_sorted_by(|a, b| a < b)), "{taken:?}");
    all.sort_unstable();
    assert!(all.is_sorted_by(|a, b| a < b), "an id twice: {taken:?}");
    assert!(all.iter().all(|id| runs.iter().any(|run| run.ids().any(|known| known == *id))), "{taken:?}");
}

/// All schedules in which threads are interrupted three times at most (twice, if they are three): more find nothing new
/// and take hours.
fn explore(runs: &'static [(u64, u64, u32)], threads: &'static [fn(&Shared) -> Vec<u64>]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(if threads.len() > 2 { 2 } else { 3 });
    model.check(move || {
        let known = self::runs(runs);
        let shared = Shared::new(known.clone());
        shared.replace();
        let (here, elsewhere) = threads.split_first().unwrap();
        let elsewhere: Vec<_> = elsewhere
            .iter()
            .map(|work| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || work(&shared))
            })
            .collect();
        let mut taken = vec![here(&shared)];
        taken.extend(elsewhere.into_iter().map(|thread| thread.join().unwrap()));
        check(&taken, &known);
    });
}

fn take_three(shared: &Shared) -> Vec<u64> {
    (0..3).filter_map(|_| shared.next()).collect()
}

fn take_two(shared: &Shared) -> Vec<u64> {
    (0..2).filter_map(|_| shared.next()).collect()
}

fn take_a_run(shared: &Shared) -> Vec<u64> {
    let run = shared.dispenser.take_run(2);
    run.into_iter().flat_map(|run| run.ids().collect::<Vec<_>>()).chain(shared.next()).collect()
}

fn take_two_at_once(shared: &Shared) -> Vec<u64> {
    let run = shared.dispenser.take_exactly(2);
    run.into_iter().flat_map(|run| run.ids().collect::<Vec<_>>()).chain(shared.next()).collect()
}

fn replace_and_take(shared: &Shared) -> Vec<u64> {
    shared.replace();
    take_two(shared)
}

#[test]
fn two_threads_over_refills() {
    explore(&[(10, 1, 1), (20, 1, 2), (30, 1, 2), (40, 1, 2)], &[take_three, take_three]);
}

#[test]
fn three_threads_over_a_refill() {
    explore(&[(10, 1, 1), (20, 1, 2), (30, 1, 3)], &[take_two, take_two, take_two]);
}

#[test]
fn strides_change_between_runs() {
    explore(&[(10, 3, 2), (20, 1, 2), (31, 2, 3)], &[take_three, take_two]);
}

#[test]
fn runs_are_replaced_before_they_are_used_up() {
    explore(&[(10, 1, 3), (20, 2, 3), (30, 1, 3)], &[replace_and_take, take_three]);
    explore(&[(10, 1, 5), (20, 2, 1), (30, 1, 3)], &[replace_and_take, replace_and_take]);
}

#[test]
fn runs_are_taken_whole_beside_single_ids() {
    explore(&[(10, 1, 3), (20, 1, 3), (30, 1, 3)], &[take_a_run, take_two, take_two]);
}

#[test]
fn a_run_is_taken_whole_or_not_at_all() {
    explore(&[(10, 1, 3), (20, 3, 3), (30, 1, 3)], &[take_two_at_once, take_two, take_two]);
    explore(&[(10, 1, 2), (20, 1, 4), (30, 1, 3)], &[take_two_at_once, replace_and_take]);
}

/// A thread takes a position at the end of a run and sleeps until there is another: it must not see the new end beside
/// the old start.
#[test]
fn a_position_before_a_run_is_not_taken_for_one_of_it() {
    explore(&[(10, 1, 1), (20, 1, 3)], &[take_a_run, take_two]);
}
