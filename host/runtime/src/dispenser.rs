//! Hands the ids of runs out to many threads, without a lock and without a crossing.
//!
//! The classic race: one atomic counter for the ids and another variable for the end of the run. A thread that overran
//! the old run and then reads the *new* end believes that its number is inside, and an id goes out twice. Here taking
//! and testing concern one and the same run by construction:
//!
//! - Threads take *positions* from a counter that only ever grows; no position is taken twice in the life of the process
//!   (at 10^9 a second, 64 bits last 584 years).
//! - A run is installed as a map from an interval of positions to its ids. The next run's interval starts at or above
//!   the counter, so intervals never overlap, and each position has at most one id for ever.
//! - A reader gets the map through a sequence lock, so it sees one run's figures, never a mixture. A thread that finds its
//!   position outside the map brings it to the refill lock, under which the map stands still: a run that was installed
//!   meanwhile may cover it. If not, the position is abandoned, and no later run covers it. (So a thread that slept
//!   between taking a position and reading the map, until the run was used up and replaced, leaves a gap of one.)

use std::sync::atomic::{AtomicU64, Ordering, fence};

use unalike_core::{ID_MAX, Run};

/// A cache line of its own (two, for the adjacent-line prefetcher): the counter is written by every call, the map is
/// only read.
#[repr(align(128))]
struct Line<T>(T);

/// See the module's documentation.
pub(crate) struct Dispenser {
    position: Line<AtomicU64>,
    map: Line<Map>,
}

/// Positions `base .. base + count` stand for `first + stride * offset`.
struct Map {
    /// Even while the figures stand still, odd while they change.
    version: AtomicU64,
    base: AtomicU64,
    count: AtomicU64,
    first: AtomicU64,
    stride: AtomicU64,
}

impl Dispenser {
    pub(crate) const fn new() -> Self {
        Self {
            position: Line(AtomicU64::new(0)),
            map: Line(Map {
                version: AtomicU64::new(0),
                base: AtomicU64::new(0),
                count: AtomicU64::new(0),
                first: AtomicU64::new(0),
                stride: AtomicU64::new(0),
            }),
        }
    }

    /// The next id; or, if the run has none left, the position that was taken, for [`Dispenser::redeem`].
    #[inline]
    pub(crate) fn take(&self) -> Result<u64, u64> {
        let position = self.position.0.fetch_add(1, Ordering::Relaxed);
        self.redeem(position).ok_or(position)
    }

    /// The id of a position that this caller took and got no id for, if the map covers it by now.
    #[inline]
    pub(crate) fn redeem(&self, position: u64) -> Option<u64> {
        let (base, (count, first, stride)) = self.map.0.read()?;
        let offset = position.wrapping_sub(base);
        // `install` made sure that not even the last id overflows.
        (offset < count).then(|| first.wrapping_add(offset.wrapping_mul(stride)))
    }

    /// Up to `max` of the ids that are left, as a run.
    pub(crate) fn take_run(&self, max: u32) -> Option<Run> {
        let position = self.position.0.fetch_add(u64::from(max), Ordering::Relaxed);
        let (base, (count, first, stride)) = self.map.0.read()?;
        let offset = position.wrapping_sub(base);
        let left = count.checked_sub(offset).filter(|&left| left > 0)?;
        let count = u32::try_from(left).unwrap_or(u32::MAX).min(max);
        Some(Run { first: first + offset * stride, stride, count })
    }

    /// Puts a run in place of what is left of the last one, which is dropped.
    ///
    /// Only one thread may do this at a time: the caller holds the generator's refill lock.
    pub(crate) fn install(&self, run: Run) {
        // A thread that takes a position from here on and finds the new map gets an id of it; one that finds the old
        // map is beyond its end.
        assert!(run.count >= 1 && run.first >= 1 && run.last() <= ID_MAX, "a run holds ids: {run:?}");
        let base = self.position.0.load(Ordering::Relaxed);
        self.map.0.write(base, u64::from(run.count), run.first, run.stride);
    }
}

impl Map {
    /// (base, (count, first, stride)) of one run, or none while it changes.
    #[inline]
    fn read(&self) -> Option<(u64, (u64, u64, u64))> {
        let before = self.version.load(Ordering::Acquire);
        let figures = (
            self.base.load(Ordering::Relaxed),
            (
                self.count.load(Ordering::Relaxed),
                self.first.load(Ordering::Relaxed),
                self.stride.load(Ordering::Relaxed),
            ),
        );
        fence(Ordering::Acquire);
        let after = self.version.load(Ordering::Relaxed);
        (before == after && before.is_multiple_of(2)).then_some(figures)
    }

    fn write(&self, base: u64, count: u64, first: u64, stride: u64) {
        let version = self.version.load(Ordering::Relaxed);
        assert!(version.is_multiple_of(2), "one writer at a time");
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.base.store(base, Ordering::Relaxed);
        self.count.store(count, Ordering::Relaxed);
        self.first.store(first, Ordering::Relaxed);
        self.stride.store(stride, Ordering::Relaxed);
        self.version.store(version + 2, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn ids_come_in_order_and_end_with_the_run() {
        let dispenser = Dispenser::new();
        assert_eq!(dispenser.take(), Err(0));
        dispenser.install(Run { first: 10, stride: 5, count: 3 });
        assert_eq!([dispenser.take(), dispenser.take(), dispenser.take()], [Ok(10), Ok(15), Ok(20)]);
        assert!(dispenser.take().is_err());
        assert_eq!(dispenser.take_run(5), None);
        dispenser.install(Run { first: 100, stride: 1, count: 10 });
        assert_eq!(dispenser.take_run(4), Some(Run { first: 100, stride: 1, count: 4 }));
        assert_eq!(dispenser.take(), Ok(104));
        assert_eq!(dispenser.take_run(40), Some(Run { first: 105, stride: 1, count: 5 }));
        assert_eq!(dispenser.take_run(40), None);
    }

    #[test]
    fn a_run_that_is_replaced_is_dropped() {
        let dispenser = Dispenser::new();
        dispenser.install(Run { first: 1, stride: 1, count: 100 });
        assert_eq!(dispenser.take(), Ok(1));
        dispenser.install(Run { first: 1_000, stride: 1, count: 2 });
        assert_eq!([dispenser.take(), dispenser.take()], [Ok(1_000), Ok(1_001)]);
        let beyond = dispenser.take().unwrap_err();
        dispenser.install(Run { first: 2_000, stride: 1, count: 2 });
        assert_eq!(dispenser.redeem(beyond), None, "a position from before a run is not covered by it");
    }

    #[test]
    fn many_threads_never_take_the_same_id_and_each_sees_them_ascend() {
        const RUNS: u64 = 20_000;
        let (dispenser, refill) = (Dispenser::new(), Mutex::new(0_u64));
        let taken: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let work = || {
                let mut ids = Vec::new();
                loop {
                    match dispenser.take() {
                        Ok(id) => ids.push(id),
                        Err(position) => {
                            let mut runs = refill.lock().unwrap();
                            if let Some(id) = dispenser.redeem(position) {
                                ids.push(id);
                                continue;
                            }
                            if let Some(run) = dispenser.take_run(3) {
                                ids.extend(run.ids());
                                continue;
                            }
                            if *runs == RUNS {
                                return ids;
                            }
                            *runs += 1;
                            // runs of 1 to 7 ids, far enough apart
                            let count = u32::try_from(*runs % 7 + 1).unwrap();
                            dispenser.install(Run { first: *runs * 100, stride: 3, count });
                        }
                    }
                }
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        // Each run was used up before the next came, so only a thread that slept at the wrong moment loses an id.
        let expected: u64 = (1..=RUNS).map(|run| run % 7 + 1).sum();
        let mut all = Vec::new();
        for ids in taken {
            assert!(ids.is_sorted_by(|a, b| a < b), "a thread saw ids go down");
            all.extend(ids);
        }
        let total = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), total, "an id was taken twice");
        assert!(total as u64 > expected * 99 / 100, "{total} of {expected} ids: too many are lost");
        assert!(all.iter().all(|id| {
            let (run, offset) = (id / 100, id % 100);
            (1..=RUNS).contains(&run) && offset % 3 == 0 && offset / 3 <= run % 7
        }));
    }
}
