//! Runs that one thread or one handle has to itself, and how large the next run is.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use unalike_core::Run;

/// The largest run. At this size a crossing costs less than a tenth of a nanosecond per id; runs grow to it only while
/// they are used up within a millisecond each, so what a crash loses is what a millisecond or two use.
pub(crate) const RUN_MAX: u32 = 8_192;
/// A run that lasted longer than this halves the next one; one that was used up within a millisecond doubles it.
const RUN_SLOW_MS: u64 = 100;

/// The size of the next run, by how long the last one lasted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunSize {
    next: u32,
    last_ms: u64,
}

impl RunSize {
    const FIRST: Self = Self { next: 1, last_ms: 0 };

    /// A run was used up: fits the next one to demand.
    pub(crate) fn adapt(&mut self, now_ms: u64) -> u32 {
        let lasted_ms = now_ms.saturating_sub(self.last_ms);
        if lasted_ms <= 1 {
            self.next = self.next.saturating_mul(2).min(RUN_MAX);
        } else if lasted_ms > RUN_SLOW_MS {
            self.next = (self.next / 2).max(1);
        }
        self.last_ms = now_ms;
        self.next
    }
}

impl Default for RunSize {
    fn default() -> Self {
        Self::FIRST
    }
}

/// What a run holds beyond the first `used` of its ids.
pub(crate) fn rest_of(run: Run, used: u32) -> Option<Run> {
    let count = run.count.checked_sub(used).filter(|&count| count > 0)?;
    Some(Run { first: run.first + u64::from(used) * run.stride, count, ..run })
}

/// What is left of a run that nobody else takes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldRun {
    next: u64,
    stride: u64,
    left: u32,
    pub(crate) size: RunSize,
}

impl HeldRun {
    pub(crate) const EMPTY: Self = Self { next: 0, stride: 1, left: 0, size: RunSize::FIRST };

    /// The next id.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        let id = self.next;
        // Only past the last id of a run may this leave the range of ids, and then it is not used.
        self.next = id.wrapping_add(self.stride);
        Some(id)
    }

    /// Up to `max` of the ids that are left.
    pub(crate) fn take_run(&mut self, max: u32) -> Option<Run> {
        let count = self.left.min(max);
        let run = (count > 0).then_some(Run { first: self.next, stride: self.stride, count })?;
        self.left -= count;
        self.next = self.next.wrapping_add(u64::from(count).wrapping_mul(self.stride));
        Some(run)
    }

    /// Takes what a run holds beyond the first `used` of its ids in place of the run that is used up.
    pub(crate) fn hold_rest(&mut self, run: Run, used: u32) {
        assert!(self.left == 0, "the ids of a run are handed out before the next one comes");
        if let Some(rest) = rest_of(run, used) {
            (self.next, self.stride, self.left) = (rest.first, rest.stride, rest.count);
        }
    }
}

thread_local! {
    /// This thread's runs, by the place of their sequence.
    static HELD: RefCell<Vec<HeldRun>> = const { RefCell::new(Vec::new()) };
}

/// Places are never used again, so no sequence finds a run of another.
static NEXT_PLACE: AtomicUsize = AtomicUsize::new(0);

/// Where each thread keeps its run of one sequence.
#[derive(Debug)]
pub(crate) struct ThreadRuns {
    place: usize,
}

impl ThreadRuns {
    pub(crate) fn new() -> Self {
        Self { place: NEXT_PLACE.fetch_add(1, Ordering::Relaxed) }
    }

    /// The next id of this thread's run.
    #[inline]
    pub(crate) fn take(&self) -> Option<u64> {
        HELD.try_with(|held| held.borrow_mut().get_mut(self.place)?.take()).ok().flatten()
    }

    /// Works on this thread's run, which is away meanwhile: the work may call whatever it likes.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut HeldRun) -> T) -> T {
        let mut held = HELD.try_with(|held| self.slot(&mut held.borrow_mut()).map(std::mem::take)).ok().flatten();
        let result = work(held.get_or_insert_default());
        // A thread that is ending keeps no runs: what is left is a gap.
        let _ = HELD.try_with(|runs| {
            if let (Some(slot), Some(held)) = (self.slot(&mut runs.borrow_mut()), held) {
                *slot = held;
            }
        });
        result
    }

    fn slot<'a>(&self, held: &'a mut Vec<HeldRun>) -> Option<&'a mut HeldRun> {
        if held.len() <= self.place {
            held.resize(self.place + 1, HeldRun::EMPTY);
        }
        held.get_mut(self.place)
    }
}

impl Default for HeldRun {
    fn default() -> Self {
        Self::EMPTY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_runs_follows_demand() {
        let mut runs = RunSize::default();
        assert_eq!(runs.adapt(1_000), 1, "now and then: one at a time");
        assert_eq!((0..15).map(|_| runs.adapt(1_000)).last(), Some(RUN_MAX));
        assert_eq!(runs.adapt(1_050), RUN_MAX);
        assert_eq!(runs.adapt(1_200), RUN_MAX / 2);
        assert_eq!((1..20).map(|second| runs.adapt(second * 10_000)).last(), Some(1));
    }

    #[test]
    fn the_rest_of_a_run_begins_after_what_was_used() {
        let run = Run { first: 10, stride: 5, count: 3 };
        assert_eq!(rest_of(run, 0), Some(run));
        assert_eq!(rest_of(run, 1), Some(Run { first: 15, stride: 5, count: 2 }));
        assert_eq!((rest_of(run, 3), rest_of(run, 4)), (None, None));
    }

    #[test]
    fn a_held_run_ends_with_its_last_id() {
        let mut held = HeldRun::EMPTY;
        assert_eq!(held.take(), None);
        held.hold_rest(Run { first: unalike_core::ID_MAX - 4, stride: 2, count: 3 }, 0);
        assert_eq!(held.take(), Some(unalike_core::ID_MAX - 4));
        assert_eq!(held.take_run(9), Some(Run { first: unalike_core::ID_MAX - 2, stride: 2, count: 2 }));
        assert_eq!((held.take_run(9), held.take()), (None, None));
    }

    #[test]
    fn each_thread_has_a_run_of_its_own() {
        let (one, other) = (ThreadRuns::new(), ThreadRuns::new());
        one.with(|held| held.hold_rest(Run { first: 1, stride: 1, count: 2 }, 0));
        assert_eq!(other.take(), None);
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(one.take(), None));
        });
        assert_eq!([one.take(), one.take(), one.take()], [Some(1), Some(2), None]);
    }
}
