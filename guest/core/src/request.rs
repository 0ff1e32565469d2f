//! What the generators share about requests to a store: the pause after a failure, and the check that grants ascend.

use alloc::vec::Vec;

use crate::{GrantFault, ReserveError, Segment, StoreFailure};

/// The pause after the first failure in a row; it doubles with each further one.
const PAUSE_FIRST_MS: u64 = 10;
/// The longest pause between two requests: a store that comes back is noticed within a second.
pub(crate) const PAUSE_MAX_MS: u64 = 1_000;

/// How the last request ended badly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Store(StoreFailure),
    Grant(GrantFault),
    /// The whole grant lay above the greatest id, and a later one may not.
    Above,
}

/// The failures in a row of one generator's requests.
///
/// A failure pauses requests for a while. During the pause callers with nothing to hand out hear why; after it they
/// wait for the next request's answer.
#[derive(Debug)]
pub(crate) struct Failures {
    last: Option<(Cause, u64)>,
    in_a_row: u32,
}

impl Failures {
    pub(crate) const fn new() -> Self {
        Self { last: None, in_a_row: 0 }
    }

    pub(crate) fn store(&mut self, now_ms: u64, failure: StoreFailure) {
        self.record(now_ms, Cause::Store(failure));
    }

    pub(crate) fn grant(&mut self, now_ms: u64, fault: GrantFault) {
        self.record(now_ms, Cause::Grant(fault));
    }

    /// A grant that lay wholly above the greatest id; `turns` is [`GrantOrder::turns`].
    pub(crate) fn above(&mut self, now_ms: u64, turns: u64) {
        let is_last = u64::from(self.in_a_row) + 1 >= turns;
        self.record(now_ms, if is_last { Cause::Store(StoreFailure::Exhausted) } else { Cause::Above });
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }

    // Once in the component, not once for each kind of failure of each kind of generator.
    #[inline(never)]
    fn record(&mut self, now_ms: u64, cause: Cause) {
        self.last = Some((cause, now_ms));
        self.in_a_row = self.in_a_row.saturating_add(1);
    }

    fn pause_ms(&self, cause: Cause) -> u64 {
        match cause {
            // What cannot succeed by waiting is asked again rarely: an operator may have changed it.
            Cause::Store(failure) if !failure.is_retryable() => PAUSE_MAX_MS,
            _ => (PAUSE_FIRST_MS << self.in_a_row.saturating_sub(1).min(10)).min(PAUSE_MAX_MS),
        }
    }

    /// Milliseconds until the next request, while the pause lasts. A clock that went back ends it.
    pub(crate) fn pause_left_ms(&self, now_ms: u64) -> Option<u64> {
        let (cause, failed_ms) = self.last?;
        let until_ms = failed_ms.saturating_add(self.pause_ms(cause));
        (failed_ms <= now_ms && now_ms < until_ms).then(|| until_ms - now_ms)
    }

    /// What a caller hears that finds nothing to hand out.
    pub(crate) fn error(&self, now_ms: u64) -> ReserveError {
        match (self.pause_left_ms(now_ms), self.last) {
            (Some(left_ms), Some((cause, _))) => match cause {
                Cause::Store(StoreFailure::Exhausted) => ReserveError::Exhausted,
                Cause::Store(cause) => {
                    ReserveError::Store { cause, retry_after_ms: if cause.is_retryable() { left_ms } else { 0 } }
                }
                Cause::Grant(fault) => ReserveError::GrantRefused(fault),
                Cause::Above => ReserveError::Wait { wait_ms: left_ms },
            },
            _ => ReserveError::Pending,
        }
    }
}

/// How many (stride, remainder) classes of one tag are told apart. More stripes than this are checked together.
const CLASSES_MAX: usize = 1_024;

/// Checks that the grants of one tag ascend, per generation, stride and remainder, and never fall below the floor.
///
/// A store keeps that promise by itself; this is the second pair of eyes (a store that was restored from an old
/// backup, or that forgot its counter, shows here).
/// ```
/// use unalike_core::{GrantOrder, Segment};
/// let mut order = GrantOrder::new(0);
/// let odd = Segment { start: 1, end: 201, stride: 2, generation: 0, version: 1 };
/// let even = Segment { start: 2, end: 12, ..odd };
/// assert!(order.admit(&odd).is_ok() && order.admit(&even).is_ok());
/// assert!(order.admit(&odd).is_err(), "nothing comes twice");
/// assert_eq!(order.successor_floor(), 12, "and who goes on may have what is left of the even ones");
/// ```
#[derive(Debug)]
pub struct GrantOrder {
    /// No grant starts below.
    floor: u64,
    generation: u64,
    /// Of the newest grant; 1 before the first.
    stride: u64,
    classes: Classes,
}

/// (remainder, end of the newest grant), of each class. Nearly every tag has one, which takes no allocation.
#[derive(Debug)]
enum Classes {
    One([(u64, u64); 1]),
    /// None, or several.
    Many(Vec<(u64, u64)>),
}

impl Classes {
    const NONE: Self = Self::Many(Vec::new());

    fn as_slice(&self) -> &[(u64, u64)] {
        match self {
            Self::One(class) => class,
            Self::Many(classes) => classes,
        }
    }

    /// Remembers the end of the newest grant of a class.
    fn record(&mut self, remainder: u64, end: u64) {
        let known = match self {
            Self::One(class) => class.as_mut_slice(),
            Self::Many(classes) => classes,
        };
        if let Some((_, newest)) = known.iter_mut().find(|(class, _)| *class == remainder) {
            *newest = end;
            return;
        }
        match self {
            Self::Many(classes) if classes.is_empty() => *self = Self::One([(remainder, end)]),
            Self::Many(classes) => classes.push((remainder, end)),
            Self::One([first]) => *self = Self::Many(alloc::vec![*first, (remainder, end)]),
        }
    }
}

impl GrantOrder {
    /// Nothing is below `floor`.
    #[must_use]
    pub const fn new(floor: u64) -> Self {
        Self { floor, generation: 0, stride: 1, classes: Classes::NONE }
    }

    /// What the store is asked to start at. With several stripes it is not known which one will answer, and lifting
    /// each above all others would waste most numbers, so they are held to the common floor only.
    pub(crate) fn at_least(&self) -> u64 {
        if self.stride == 1 { self.ceiling() } else { self.floor }
    }

    /// The floor of whoever goes on with this tag and knows nothing else: above all that was granted; with several
    /// stripes above what each of them granted, since one that is behind still has lower numbers.
    #[must_use]
    pub fn successor_floor(&self) -> u64 {
        if self.stride == 1 {
            return self.ceiling();
        }
        let all_known = self.classes.as_slice().len() as u64 == self.stride;
        let lowest = self.classes.as_slice().iter().map(|&(_, end)| end).min().filter(|_| all_known);
        lowest.map_or(self.floor, |end| end.max(self.floor))
    }

    /// The greatest bound known.
    fn ceiling(&self) -> u64 {
        self.classes.as_slice().iter().map(|&(_, end)| end).fold(self.floor, u64::max)
    }

    /// How many grants in a row may lie above `id_max` before nothing at or below it is expected any more: 0 when
    /// nothing can come, in this generation.
    ///
    /// Stripes take turns, each with its own remainder. One that is known to be behind is waited for. Of one that has
    /// granted nothing yet it is not known whether it exists: a store that strides may be alone.
    pub(crate) fn turns(&self, id_max: u64) -> u64 {
        let ended = self.classes.as_slice().iter().filter(|&&(_, end)| end > id_max).count();
        if self.floor > id_max || ended as u64 == self.stride {
            0
        } else if ended < self.classes.as_slice().len() {
            u64::MAX
        } else {
            self.stride
        }
    }

    /// Takes a grant in if it may be used. Changes nothing on an error.
    ///
    /// # Errors
    /// [`GrantFault::Malformed`], [`GrantFault::Overlap`].
    pub fn admit(&mut self, segment: &Segment) -> Result<(), GrantFault> {
        segment.validate()?;
        if segment.generation < self.generation {
            return Err(GrantFault::Overlap);
        }
        let new_generation = segment.generation > self.generation && !self.classes.as_slice().is_empty();
        let remainder = segment.start % segment.stride;
        let known = self.classes.as_slice().iter().position(|&(class, _)| class == remainder);
        // Classes of different strides cut across each other: after a change of stride only the common ceiling counts.
        let restart =
            segment.stride != self.stride || (known.is_none() && self.classes.as_slice().len() >= CLASSES_MAX);
        let floor = match known.and_then(|at| self.classes.as_slice().get(at)) {
            _ if new_generation => 0,
            _ if restart => self.ceiling(),
            Some(&(_, end)) => end.max(self.floor),
            None => self.floor,
        };
        if segment.start < floor {
            return Err(GrantFault::Overlap);
        }
        if new_generation || restart {
            self.classes = Classes::NONE;
            self.floor = floor;
        }
        self.generation = segment.generation;
        self.stride = segment.stride;
        self.classes.record(remainder, segment.end);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(start: u64, end: u64, stride: u64, generation: u64) -> Segment {
        Segment { start, end, stride, generation, version: 0 }
    }

    #[test]
    fn a_grant_below_an_earlier_end_is_refused_and_changes_nothing() {
        let mut order = GrantOrder::new(0);
        order.admit(&segment(1, 11, 1, 0)).unwrap();
        assert_eq!(order.admit(&segment(10, 20, 1, 0)), Err(GrantFault::Overlap));
        assert_eq!(order.at_least(), 11);
        order.admit(&segment(11, 20, 1, 0)).unwrap();
    }

    #[test]
    fn the_floor_of_a_predecessor_holds() {
        let mut order = GrantOrder::new(100);
        assert_eq!(order.at_least(), 100);
        assert_eq!(order.admit(&segment(99, 200, 1, 0)), Err(GrantFault::Overlap));
        order.admit(&segment(100, 200, 1, 0)).unwrap();
    }

    #[test]
    fn stripes_ascend_each_by_itself() {
        let mut order = GrantOrder::new(0);
        order.admit(&segment(2, 102, 2, 0)).unwrap();
        order.admit(&segment(1, 51, 2, 0)).unwrap();
        assert_eq!(order.admit(&segment(49, 99, 2, 0)), Err(GrantFault::Overlap));
        order.admit(&segment(51, 99, 2, 0)).unwrap();
        assert_eq!(order.at_least(), 0);
    }

    #[test]
    fn a_change_of_stride_must_clear_every_class() {
        let mut order = GrantOrder::new(0);
        order.admit(&segment(2, 102, 2, 0)).unwrap();
        order.admit(&segment(1, 51, 2, 0)).unwrap();
        assert_eq!(order.admit(&segment(60, 70, 1, 0)), Err(GrantFault::Overlap));
        order.admit(&segment(102, 110, 1, 0)).unwrap();
        assert_eq!(order.admit(&segment(53, 63, 2, 0)), Err(GrantFault::Overlap));
    }

    #[test]
    fn a_later_generation_starts_afresh_and_an_earlier_one_is_refused() {
        let mut order = GrantOrder::new(0);
        order.admit(&segment(500, 600, 1, 1)).unwrap();
        order.admit(&segment(1, 11, 1, 2)).unwrap();
        assert_eq!(order.admit(&segment(600, 700, 1, 1)), Err(GrantFault::Overlap));
        assert_eq!(order.admit(&segment(5, 15, 1, 2)), Err(GrantFault::Overlap));
    }

    #[test]
    fn more_stripes_than_are_told_apart_are_still_checked() {
        let stride = CLASSES_MAX as u64 + 10;
        let mut order = GrantOrder::new(0);
        for start in 1..=stride {
            // The last ten restart the bookkeeping, above everything that was seen before.
            let _ = order.admit(&segment(start, start + stride, stride, 0));
        }
        assert!(order.classes.as_slice().len() <= CLASSES_MAX);
        for start in 1..=CLASSES_MAX as u64 {
            assert_eq!(order.admit(&segment(start, start + stride, stride, 0)), Err(GrantFault::Overlap));
        }
    }

    #[test]
    fn malformed_bounds_are_refused() {
        let mut order = GrantOrder::new(0);
        for bad in [
            segment(0, 10, 1, 0),
            segment(10, 10, 1, 0),
            segment(10, 9, 1, 0),
            segment(1, 10, 2, 0),
            segment(1, 10, 0, 0),
            segment(1, (1 << 63) + 1, 1, 0),
        ] {
            assert_eq!(order.admit(&bad), Err(GrantFault::Malformed), "{bad:?}");
        }
        order.admit(&segment(1, 1 << 63, 1, 0)).unwrap();
    }

    #[test]
    fn pauses_double_up_to_a_second_and_end_when_the_clock_goes_back() {
        let mut failures = Failures::new();
        assert_eq!(failures.error(0), ReserveError::Pending);
        for expected_ms in [10, 20, 40, 80, 160, 320, 640, 1000, 1000] {
            failures.store(5_000, StoreFailure::Unavailable);
            assert_eq!(failures.pause_left_ms(5_000), Some(expected_ms));
        }
        assert_eq!(failures.pause_left_ms(4_999), None);
        assert_eq!(failures.pause_left_ms(6_000), None);
        assert_eq!(failures.error(5_999), ReserveError::Store { cause: StoreFailure::Unavailable, retry_after_ms: 1 });
        assert_eq!(failures.error(6_000), ReserveError::Pending);
        failures.clear();
        assert_eq!(failures.error(5_999), ReserveError::Pending);
    }
}
