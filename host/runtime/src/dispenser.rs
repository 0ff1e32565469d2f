//! Hands the ids of runs out to many threads, without a lock and without a crossing.
//!
//! The classic race: one atomic counter for the ids and another variable for the end of the run. A thread that overran
//! the old run and then reads the *new* end believes that its number is inside, and an id goes out twice. Here taking
//! and testing concern one and the same run by construction:
//!
//! - Threads take *positions* from a counter that only ever grows; no position is taken twice in the life of the
//!   process (at 10^9 a second, 64 bits last 584 years).
//! - A run is installed as a map from an interval of positions to its ids. Before that, the counter is lifted to the
//!   end of the last run's interval, so intervals never overlap, and each position has at most one id for ever.
//! - The map is three words (`start`, `shift`, `end`) that are written in this order and read in the opposite one. So
//!   what a reader sees of `end` is never newer than `shift`, and `shift` never newer than `start`. If all three are of
//!   one run, a position inside is that run's. If `start` is newer than `end`, no position passes both tests, since the
//!   newer interval begins at or above the older one's end. There is nothing to be retried, and no mixture that passes.
//! - Whether a thread reads the map before it takes its position or after does not matter: what a position stands for
//!   never changes.
//! - A thread that finds its position outside brings it to the refill lock, under which the map stands still: a run
//!   that was installed meanwhile may cover it. If not, the position is abandoned, and no later run covers it. (So a
//!   thread that slept between taking a position and reading the map, until the run was used up and replaced, leaves a
//!   gap of one.)

use unalike_core::{ID_MAX, Run};

use super::atomic::{AtomicU64, Ordering};

/// What is between the map and the counter of a dispenser whose owner has nothing to put there.
pub(crate) type Gap = [u64; 7];

/// See the module's documentation.
///
/// The counter is written by every call and the map is only read, so they are never in one cache line: `between` keeps
/// them apart, wherever the allocation begins. Alignment would do the same and waste two lines of each open tag, of
/// which there may be a hundred thousand. The owner keeps what is behind the counter apart from it as well.
#[repr(C)]
pub(crate) struct Dispenser<B = Gap> {
    map: Map,
    /// What is seldom used.
    pub(crate) between: B,
    position: AtomicU64,
}

/// Positions from `start` to below `end` stand for the ids `position * stride + shift`, modulo 2^64.
struct Map {
    start: AtomicU64,
    shift: AtomicU64,
    /// 1 for nearly everybody: stripes alone stride.
    stride: AtomicU64,
    end: AtomicU64,
}

impl Dispenser {
    pub(crate) fn new() -> Self {
        Self::around(Gap::default())
    }
}

impl<B> Dispenser<B> {
    /// With so much between its map and its counter.
    pub(crate) fn around(between: B) -> Self {
        const { assert!(size_of::<B>() + size_of::<u64>() >= 64, "the map and the counter share a cache line") };
        Self {
            map: Map {
                start: AtomicU64::new(0),
                shift: AtomicU64::new(0),
                stride: AtomicU64::new(1),
                end: AtomicU64::new(0),
            },
            between,
            position: AtomicU64::new(0),
        }
    }

    /// The next id; or, if the run has none left, the position that was taken, for [`Dispenser::redeem`].
    #[inline]
    pub(crate) fn take(&self) -> Result<u64, u64> {
        self.take_of(self.mapping())
    }

    /// The newest run's mapping, for [`Dispenser::take_of`].
    #[inline]
    pub(crate) fn mapping(&self) -> Mapping {
        self.map.read()
    }

    /// [`Dispenser::take`] by a mapping that was read before: a position has the same id whenever its run is looked at,
    /// so an old mapping refuses at worst. Reading it before the addition leaves no load to wait for after it.
    #[inline]
    pub(crate) fn take_of(&self, mapping: Mapping) -> Result<u64, u64> {
        let position = self.position.fetch_add(1, Ordering::Relaxed);
        mapping.id(position).ok_or(position)
    }

    /// The id of a position that this caller took and got no id for, if the map covers it by now.
    #[inline]
    pub(crate) fn redeem(&self, position: u64) -> Option<u64> {
        self.mapping().id(position)
    }

    /// So many of the ids that are left, as a run, or none of them.
    #[inline]
    pub(crate) fn take_exactly(&self, count: u32) -> Option<Run> {
        let mapping = self.mapping();
        let whole = |position: u64| {
            let first = mapping.id(position)?;
            (u64::from(count) <= mapping.end - position).then_some(Run { first, stride: mapping.stride, count })
        };
        let taken = |position: u64| whole(position).map(|_| position + u64::from(count));
        whole(self.position.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).ok()?)
    }

    /// Up to `max` of the ids that are left, as a run. If it has fewer than that, none are left.
    #[inline]
    pub(crate) fn take_run(&self, max: u32) -> Option<Run> {
        // No more positions than there may be ids for: callers that try again and again use none up.
        let max = u32::try_from(self.left()).unwrap_or(u32::MAX).min(max);
        if max == 0 {
            return None;
        }
        let position = self.position.fetch_add(u64::from(max), Ordering::Relaxed);
        let mapping = self.mapping();
        let first = mapping.id(position)?;
        let count = u32::try_from(mapping.end - position).unwrap_or(u32::MAX).min(max);
        Some(Run { first, stride: mapping.stride, count })
    }

    /// How many ids the run has left.
    pub(crate) fn left(&self) -> u64 {
        let position = self.position.load(Ordering::Relaxed);
        self.map.end.load(Ordering::Relaxed).saturating_sub(position)
    }

    /// Puts a run in place of what is left of the last one, which is dropped. Answers how many ids that were.
    ///
    /// Only one thread may do this at a time: the caller holds the generator's refill lock.
    pub(crate) fn install(&self, run: Run) -> u64 {
        assert!(run.count >= 1 && run.first >= 1 && run.last() <= ID_MAX, "a run holds ids: {run:?}");
        let (begin, dropped) = self.end_run();
        let Map { start, shift, stride, end } = &self.map;
        start.store(begin, Ordering::Release);
        stride.store(run.stride, Ordering::Release);
        shift.store(run.first.wrapping_sub(begin.wrapping_mul(run.stride)), Ordering::Release);
        end.store(begin + u64::from(run.count), Ordering::Release);
        dropped
    }

    /// Drops what is left of the run, and answers how many ids that were. The caller holds the refill lock.
    pub(crate) fn drop_run(&self) -> u64 {
        self.end_run().1
    }

    /// From here on nobody gets an id of the run in hand: every position that is still to be taken lies beyond its end.
    /// Answers the first of those, and how many ids were left.
    fn end_run(&self) -> (u64, u64) {
        let end = self.map.end.load(Ordering::Relaxed);
        let position = self.position.fetch_max(end, Ordering::Relaxed);
        (position.max(end), end.saturating_sub(position))
    }
}

/// How a run's positions stand for its ids, as one reader saw it.
#[derive(Clone, Copy)]
pub(crate) struct Mapping {
    start: u64,
    shift: u64,
    stride: u64,
    end: u64,
}

impl Mapping {
    /// The id of a position, if it lies in the run. `install` made sure that not even the last id overflows.
    #[inline]
    fn id(self, position: u64) -> Option<u64> {
        let Self { start, shift, stride, end } = self;
        // A multiplication takes longer than everything else here.
        (start <= position && position < end).then(|| match stride {
            1 => position.wrapping_add(shift),
            _ => position.wrapping_mul(stride).wrapping_add(shift),
        })
    }
}

impl Map {
    #[inline]
    fn read(&self) -> Mapping {
        let end = self.end.load(Ordering::Acquire);
        let shift = self.shift.load(Ordering::Acquire);
        let stride = self.stride.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Acquire);
        Mapping { start, shift, stride, end }
    }
}
