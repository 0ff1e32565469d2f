//! What a thread counts and checks while it works.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use unalike_core::Run;

/// A thread's count of what it did in one window, and the fold of the ids that it got.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub(crate) ids: u64,
    pub(crate) calls: u64,
    /// Time in [`Tally::time`]; zero when the whole window counts.
    pub(crate) timed: Duration,
    /// All ids since the thread started, its warm-up included.
    pub(crate) checked: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) xor: u64,
    descended: bool,
}

impl Tally {
    /// Takes `count` ids, each by one call. Fails on one that does not ascend.
    #[inline(always)]
    pub fn ids(&mut self, count: u32, mut next: impl FnMut() -> Result<u64>) -> Result<()> {
        // In registers, and as little as possible: a store to memory in front of an atomic operation would be measured.
        let (mut xor, mut last, mut descended) = (self.xor, self.last, false);
        let first = next()?;
        let mut id = first;
        for _ in 1..count {
            xor ^= id;
            descended |= id <= last;
            last = id;
            id = next()?;
        }
        xor ^= id;
        descended |= id <= last;
        last = id;
        self.first = if self.first == 0 { first } else { self.first };
        (self.xor, self.last) = (xor, last);
        self.count(u64::from(count), u64::from(count));
        ensure!(!descended, "ids did not ascend (the last was {last})");
        Ok(())
    }

    /// Takes the ids of one call that answered several, each of them looked at, in a plain `for` loop. They are checked
    /// by the bounds of their runs and by what the exclusive-or of all of them must be, since a check of each would
    /// cost as much as the id.
    #[inline(always)]
    pub fn batch(&mut self, runs: &[Run], ids: impl IntoIterator<Item = u64>) -> Result<()> {
        let mut xor = 0;
        for id in ids {
            xor ^= id;
        }
        for run in runs {
            self.run(run)?;
            xor ^= xor_of(run);
        }
        ensure!(xor == 0, "the ids are not those of {runs:?}");
        self.calls -= runs.len() as u64 - 1;
        Ok(())
    }

    /// Takes the ids of one call as a run, without looking at each.
    #[inline(always)]
    pub fn run(&mut self, run: &Run) -> Result<()> {
        let (first, last) = (run.first, run.last());
        ensure!(first > self.last && first <= last, "a run did not ascend: {run:?} after {}", self.last);
        if self.first == 0 {
            self.first = first;
        }
        self.xor ^= first ^ last;
        self.last = last;
        self.count(u64::from(run.count), 1);
        Ok(())
    }

    /// Takes one id, for loops that cannot be a closure; [`Tally::check`] says whether all ascended.
    #[inline(always)]
    pub fn id(&mut self, id: u64) {
        self.xor ^= id;
        self.descended |= id <= self.last;
        self.first = if self.first == 0 { id } else { self.first };
        self.last = id;
        self.count(1, 1);
    }

    /// Fails if an id that [`Tally::id`] took did not ascend.
    pub fn check(&self) -> Result<()> {
        ensure!(!self.descended, "ids did not ascend (the last was {})", self.last);
        Ok(())
    }

    /// Makes `count` calls whose answers are no ids: a clock, a text. Nothing is checked.
    #[inline(always)]
    pub fn values(&mut self, count: u32, mut next: impl FnMut() -> Result<u64>) -> Result<()> {
        let mut xor = self.xor;
        for _ in 0..count {
            xor ^= next()?;
        }
        self.xor = xor;
        self.ids += u64::from(count);
        self.calls += u64::from(count);
        Ok(())
    }

    /// Only the time inside `work` counts: for what happens in bursts, with pauses between them.
    #[inline(always)]
    pub fn time(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let started = Instant::now();
        work(self)?;
        self.timed += started.elapsed();
        Ok(())
    }

    #[inline(always)]
    fn count(&mut self, ids: u64, calls: u64) {
        self.ids += ids;
        self.calls += calls;
        self.checked += ids;
    }

    /// The warm-up is over.
    pub(crate) fn begin(&mut self) {
        self.ids = 0;
        self.calls = 0;
        self.timed = Duration::ZERO;
    }
}

/// The exclusive-or of a run's ids.
fn xor_of(run: &Run) -> u64 {
    // That of 0 to n repeats its shape every four numbers.
    let up_to = |n: u64| match n % 4 {
        0 => n,
        1 => 1,
        2 => n + 1,
        _ => 0,
    };
    if run.stride == 1 { up_to(run.first - 1) ^ up_to(run.last()) } else { run.ids().fold(0, |xor, id| xor ^ id) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closed_form_is_the_fold() {
        for (first, count) in (1..9).flat_map(|first| (1..9).map(move |count| (first, count))) {
            let run = Run { first, stride: 1, count };
            assert_eq!(xor_of(&run), run.ids().fold(0, |xor, id| xor ^ id), "{run:?}");
        }
        let run = Run { first: 10, stride: 3, count: 4 };
        assert_eq!(xor_of(&run), 10 ^ 13 ^ 16 ^ 19);
    }

    #[test]
    fn a_batch_that_is_not_its_runs_is_found() {
        let runs = [Run { first: 5, stride: 1, count: 3 }, Run { first: 20, stride: 1, count: 2 }];
        let mut tally = Tally::default();
        tally.batch(&runs, [5, 6, 7, 20, 21]).unwrap();
        assert_eq!((tally.ids, tally.calls, tally.first, tally.last), (5, 1, 5, 21));
        assert!(tally.batch(&runs, [5, 6, 7, 20, 21]).is_err(), "they came before");
        assert!(Tally::default().batch(&runs, [5, 6, 6, 20, 21]).is_err());
    }
}
