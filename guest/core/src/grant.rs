//! Grants and what is made of them: the intervals that a store gave to one holder, and the runs that leave the core.

use crate::{GrantFault, ID_MAX, Layout};

/// Numbers `start`, `start + stride`, .. below `end` under one tag, granted to one holder for ever.
///
/// Invariant, checked by [`Segment::validate`] on both sides of every store: `1 <= start < end`, `stride >= 1`,
/// `end - start` is a multiple of `stride`, and the last number, `end - stride`, is at most [`ID_MAX`].
///
/// ```
/// use unalike_core::Segment;
/// let segment = Segment { start: 1, end: 1_001, stride: 1, generation: 0, version: 1 };
/// assert!(segment.validate().is_ok());
/// assert_eq!(segment.count(), 1_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// The first number.
    pub start: u64,
    /// The first number of the same remainder that is not granted.
    pub end: u64,
    /// The distance between numbers: 1, or the number of stripes.
    pub stride: u64,
    /// Counts deliberate restarts of the tag's numbering; uniqueness holds within one generation.
    pub generation: u64,
    /// The version of the tag's row after this grant; giving a tail back must name it.
    pub version: u64,
}

impl Segment {
    /// Checks the invariant.
    ///
    /// # Errors
    /// [`GrantFault::Malformed`] when the bounds make no interval of ids.
    pub const fn validate(&self) -> Result<(), GrantFault> {
        let well_formed = self.start >= 1
            && self.stride >= 1
            && self.start < self.end
            && (self.end - self.start).is_multiple_of(self.stride)
            && self.end - self.stride <= ID_MAX;
        if well_formed { Ok(()) } else { Err(GrantFault::Malformed) }
    }

    /// How many numbers it holds, if it is valid.
    ///
    /// ```
    /// # use unalike_core::Segment;
    /// assert_eq!(Segment { start: 3, end: 13, stride: 5, generation: 0, version: 1 }.count(), 2); // 3 and 8
    /// ```
    #[must_use]
    pub const fn count(&self) -> u64 {
        (self.end - self.start) / self.stride
    }

    /// Takes away what lies above `id_max`. Answers whether anything is left; if not, it stays as it is.
    ///
    /// ```
    /// # use unalike_core::Segment;
    /// let mut segment = Segment { start: 3, end: 18, stride: 5, generation: 0, version: 1 }; // 3, 8 and 13
    /// assert!(segment.cut(12));
    /// assert_eq!((segment.end, segment.count()), (13, 2)); // 3 and 8
    /// assert!(!segment.cut(2));
    /// ```
    #[must_use]
    pub const fn cut(&mut self, id_max: u64) -> bool {
        if self.start > id_max {
            return false;
        }
        if self.end - self.stride > id_max {
            self.end = id_max - (id_max - self.start) % self.stride + self.stride;
        }
        true
    }
}

/// The 128-bit name of one successful acquire, minted by the lease store and never used again.
///
/// ```
/// use unalike_core::GrantId;
/// assert_ne!(GrantId(1), GrantId(2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GrantId(pub u128);

/// A worker id with the half-open interval of timestamps in which its holder may use it.
///
/// ```
/// use unalike_core::{GrantId, Layout, Lease};
/// let start_ms = Layout::TWITTER.epoch_ms();
/// let lease = Lease { worker: 3, grant_id: GrantId(1), not_before_ms: start_ms + 10, valid_until_ms: start_ms + 15 };
/// assert_eq!(lease.ticks(&Layout::TWITTER), (10, 15));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Datacenter and worker as one number.
    pub worker: u32,
    /// Which acquire made it.
    pub grant_id: GrantId,
    /// The first timestamp that may be used, in Unix milliseconds; it may lie in the future.
    pub not_before_ms: u64,
    /// The first timestamp that may not be used, in Unix milliseconds.
    pub valid_until_ms: u64,
}

impl Lease {
    /// The ticks that lie wholly inside the lease, as `first..end` (empty when none does).
    ///
    /// Bounds need not lie on the grid: the first is rounded up, the last down, so a tick that two leases could
    /// share belongs to neither.
    #[must_use]
    pub const fn ticks(&self, layout: &Layout) -> (u64, u64) {
        let first = layout.first_tick_from(self.not_before_ms);
        let end = self.valid_until_ms.saturating_sub(layout.epoch_ms()) / layout.tick_ms() as u64;
        (first, if end < first { first } else { end })
    }
}

/// Ids handed out together: `first`, `first + stride`, .., `count` of them.
///
/// ```
/// use unalike_core::Run;
/// let run = Run { first: 10, stride: 5, count: 3 };
/// assert_eq!(run.last(), 20);
/// assert!(run.ids().eq([10, 15, 20]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// The first id, at least 1.
    pub first: u64,
    /// The distance between ids, at least 1.
    pub stride: u64,
    /// How many ids, at least 1.
    pub count: u32,
}

impl Run {
    /// The last id.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.first + (self.count as u64 - 1) * self.stride
    }

    /// The ids in ascending order.
    ///
    /// ```
    /// # use unalike_core::Run;
    /// assert!(Run { first: 5, stride: 2, count: 3 }.ids().eq([5, 7, 9]));
    /// ```
    pub fn ids(self) -> impl ExactSizeIterator<Item = u64> + Clone {
        (0..self.count).map(move |offset| self.first + u64::from(offset) * self.stride)
    }
}

/// The unused end of what a closed sequence was granted, to be given back.
///
/// A store takes it only while the tag's row still has this version: then nothing was granted since.
///
/// ```
/// use unalike_core::{Segment, SegmentBuffer, SequenceOptions, TailRelease};
/// let mut buffer = SegmentBuffer::new(SequenceOptions::default(), 0)?;
/// buffer.request(0);
/// buffer.granted(0, Segment { start: 1, end: 1_001, stride: 1, generation: 0, version: 9 })?;
/// buffer.reserve(0, 10).unwrap();
/// assert_eq!(buffer.close(), Some(TailRelease { start: 11, version: 9 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TailRelease {
    /// The first number that never crossed into a run.
    pub start: u64,
    /// The version of the newest segment.
    pub version: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_is_exactly_what_lies_above() {
        for (start, stride, count, id_max) in (1..9).flat_map(|start| {
            (1..5).flat_map(move |stride| {
                (1..5).flat_map(move |count| (1..40).map(move |id_max| (start, stride, count, id_max)))
            })
        }) {
            let whole = Segment { start, end: start + count * stride, stride, generation: 1, version: 2 };
            let left = (0..count).filter(|offset| start + offset * stride <= id_max).count() as u64;
            let mut cut = whole;
            assert_eq!(cut.cut(id_max), left > 0, "{whole:?} up to {id_max}");
            let kept = if left > 0 { left } else { count };
            assert_eq!(cut, Segment { end: start + kept * stride, ..whole }, "{whole:?} up to {id_max}");
        }
        let mut single = Segment { start: 5, end: u64::MAX, stride: u64::MAX - 5, generation: 0, version: 0 };
        single.validate().unwrap();
        assert!(single.cut(5) && single.end == u64::MAX && !single.cut(4));
    }
}
