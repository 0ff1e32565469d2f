//! The buffered mode: a chain of segments fetched ahead, so that no caller waits for the store.
//!
//! Invariants: every id that leaves lies in a segment that was granted and leaves once; ids ascend; at most one request
//! is out (two in flight come back out of order, and ids would go down); a grant that comes after the end is dropped;
//! no id is above [`SequenceOptions::id_max`].
//!
//! The step rule and the 10% point are Leaf's (Meituan-Dianping/Leaf, `SegmentIDGenImpl.java`); the fixed count of
//! numbers left is the "lowestCriticalValue" of older issuers.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use crate::request::{Failures, GrantOrder};
use crate::{GrantFault, ID_MAX, OptionsError, ReserveError, Run, Segment, StoreFailure, TailRelease};

/// The longest chain behind the current segment, whatever the policy asks: a store that grants crumbs must not fill the
/// memory.
const AHEAD_MAX: usize = 64;

/// Leaf's rule: a step that follows use. Numbers that were granted and not used do not change it.
///
/// ```
/// use unalike_core::{AdaptiveStep, StepPolicy};
/// let quick = AdaptiveStep { grow_below_ms: 60_000, shrink_above_ms: 600_000, ..AdaptiveStep::default() };
/// assert!(StepPolicy::Adaptive(quick).validate().is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AdaptiveStep {
    /// The first step.
    pub initial: u64,
    /// The smallest step, 1 or more.
    pub min: u64,
    /// The greatest step, 2^63 - 1 at most.
    pub max: u64,
    /// When as many numbers as a step are used within less than this many milliseconds, the next step doubles. So it
    /// does when the buffer runs dry.
    pub grow_below_ms: u64,
    /// When as many last longer than this many milliseconds, the next step is half of it.
    pub shrink_above_ms: u64,
}

impl Default for AdaptiveStep {
    /// 1,000 numbers at first, 100 to 1,000,000; Leaf's 15 and 30 minutes.
    fn default() -> Self {
        Self {
            initial: 1_000,
            min: 100,
            max: 1_000_000,
            grow_below_ms: 15 * 60 * 1_000,
            shrink_above_ms: 30 * 60 * 1_000,
        }
    }
}

/// How many numbers a segment asks for.
///
/// ```
/// use unalike_core::StepPolicy;
/// assert!(StepPolicy::Fixed { step: 500 }.validate().is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepPolicy {
    /// Always this many.
    Fixed {
        /// 1 to 2^63 - 1.
        step: u64,
    },
    /// By use.
    Adaptive(AdaptiveStep),
}

impl Default for StepPolicy {
    fn default() -> Self {
        Self::Adaptive(AdaptiveStep::default())
    }
}

impl StepPolicy {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`OptionsError::Step`].
    pub const fn validate(&self) -> Result<(), OptionsError> {
        let valid = match *self {
            Self::Fixed { step } => 1 <= step && step <= ID_MAX,
            Self::Adaptive(AdaptiveStep { initial, min, max, grow_below_ms, shrink_above_ms }) => {
                1 <= min && min <= initial && initial <= max && max <= ID_MAX && grow_below_ms <= shrink_above_ms
            }
        };
        if valid { Ok(()) } else { Err(OptionsError::Step) }
    }

    const fn initial(&self) -> u64 {
        match *self {
            Self::Fixed { step } => step,
            Self::Adaptive(adaptive) => adaptive.initial,
        }
    }
}

/// When the next segment is asked for.
///
/// It decides how long an outage of the store is ridden out at least. With a step of 600 x the ids per second at the
/// peak, no call waits for 10 minutes from any moment on at 0 percent (the next segment is asked for as soon as one is
/// begun), and for 20 just after a refill; at Leaf's 10 percent it is 9 and 19.
///
/// ```
/// use unalike_core::RefillPolicy;
/// assert!(RefillPolicy::ShareConsumed { percent: 50 }.validate().is_ok());
/// assert!(RefillPolicy::ShareConsumed { percent: 101 }.validate().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefillPolicy {
    /// When this share of the current segment is used.
    ShareConsumed {
        /// 0 (at once) to 100 (when it is empty).
        percent: u8,
    },
    /// When fewer numbers than this are left in the whole chain.
    Remaining {
        /// Any number; 0 means when nothing is left.
        count: u64,
    },
}

impl Default for RefillPolicy {
    /// Leaf's 10 percent.
    fn default() -> Self {
        Self::ShareConsumed { percent: 10 }
    }
}

impl RefillPolicy {
    /// Checks the range.
    ///
    /// # Errors
    /// [`OptionsError::Refill`].
    pub const fn validate(&self) -> Result<(), OptionsError> {
        match *self {
            Self::ShareConsumed { percent } if percent > 100 => Err(OptionsError::Refill),
            _ => Ok(()),
        }
    }
}

/// How a sequence fetches its segments.
///
/// Releases add fields: write `..SequenceOptions::default()` at the end.
///
/// ```
/// use unalike_core::{SequenceOptions, StepPolicy};
/// let options = SequenceOptions { step: StepPolicy::Fixed { step: 100 }, ..SequenceOptions::default() };
/// assert!(options.validate().is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SequenceOptions {
    /// How many numbers a segment asks for.
    pub step: StepPolicy,
    /// When the next one is asked for.
    pub refill: RefillPolicy,
    /// Whole segments to hold beyond the current one under [`RefillPolicy::ShareConsumed`]: 1 (Leaf's double buffer) to
    /// 64.
    pub prefetch: u32,
    /// The greatest id, 1 to 2^63 - 1 ([`ID_MAX`], which bounds nothing). What was granted above is burnt, and once
    /// nothing at or below can come the sequence is [`ReserveError::Exhausted`] and asks for nothing any more.
    /// 2^53 - 1 is the greatest whole number that JavaScript's numbers hold without gaps.
    pub id_max: u64,
}

impl Default for SequenceOptions {
    fn default() -> Self {
        Self { step: StepPolicy::default(), refill: RefillPolicy::default(), prefetch: 1, id_max: ID_MAX }
    }
}

impl SequenceOptions {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`OptionsError`].
    pub fn validate(&self) -> Result<(), OptionsError> {
        self.step.validate()?;
        self.refill.validate()?;
        validate_id_max(self.id_max)?;
        if (1..=64).contains(&self.prefetch) { Ok(()) } else { Err(OptionsError::Refill) }
    }
}

/// Checks the bound that a sequence's ids keep.
pub(crate) const fn validate_id_max(id_max: u64) -> Result<(), OptionsError> {
    if 1 <= id_max && id_max <= ID_MAX { Ok(()) } else { Err(OptionsError::IdMax) }
}

/// A request that the host must carry to the store.
///
/// ```
/// use unalike_core::{SegmentBuffer, SegmentRequest, SequenceOptions};
/// let mut buffer = SegmentBuffer::new(SequenceOptions::default(), 0)?;
/// assert!(matches!(buffer.request(0), Some(SegmentRequest { count: 1_000, .. })));
/// assert_eq!(buffer.request(0), None, "never a second one while one is out");
/// # Ok::<(), unalike_core::OptionsError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRequest {
    /// How many numbers, 1 or more; the store may grant fewer.
    pub count: u64,
    /// No number below this.
    pub at_least: u64,
}

/// What is left of one segment.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// The next number to hand out.
    next: u64,
    /// As far as it lies at or below the greatest id.
    segment: Segment,
}

impl Part {
    fn remaining(&self) -> u64 {
        (self.segment.end - self.next) / self.segment.stride
    }
}

/// The segments of one tag: hands out ids, and says when another segment is wanted.
///
/// ```
/// use unalike_core::{Segment, SegmentBuffer, SequenceOptions};
/// let mut buffer = SegmentBuffer::new(SequenceOptions::default(), 0)?;
/// let request = buffer.request(0).unwrap(); // the caller carries it to the store
/// let granted = Segment { start: 1, end: 1 + request.count, stride: 1, generation: 0, version: 1 };
/// buffer.granted(5, granted)?;
/// assert!(buffer.reserve(5, 3).unwrap().ids().eq([1, 2, 3]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SegmentBuffer {
    options: Arc<SequenceOptions>,
    /// The segment that is being used. It is not one of a chain, so that a tag that holds nothing ahead has no chain.
    current: Option<Part>,
    ahead: VecDeque<Part>,
    order: GrantOrder,
    failures: Failures,
    /// What the next request asks for.
    step: u64,
    /// Whether `step` was judged since the newest grant.
    step_judged: bool,
    /// When `step` was judged last, at first when something was granted; and how many numbers were handed out since.
    judged_ms: Option<u64>,
    used: u64,
    /// Since the newest grant a caller found nothing.
    ran_dry: bool,
    /// The greatest count that a caller asked for and did not get.
    unmet: u64,
    in_flight: bool,
    closed: bool,
}

impl SegmentBuffer {
    /// An empty buffer; no id will lie below `floor` (0, or the end of what a predecessor had been granted). Tags that
    /// are fetched alike may share their options.
    ///
    /// # Errors
    /// [`OptionsError`] when an option is out of range.
    pub fn new(options: impl Into<Arc<SequenceOptions>>, floor: u64) -> Result<Self, OptionsError> {
        let options = options.into();
        options.validate()?;
        Ok(Self {
            step: options.step.initial(),
            options,
            current: None,
            ahead: VecDeque::new(),
            order: GrantOrder::new(floor),
            failures: Failures::new(),
            step_judged: true,
            judged_ms: None,
            used: 0,
            ran_dry: false,
            unmet: 0,
            in_flight: false,
            closed: false,
        })
    }

    /// Hands out at least one id and at most `max`.
    ///
    /// # Errors
    /// [`ReserveError`]; nothing is lost.
    pub fn reserve(&mut self, now_ms: u64, max: u32) -> Result<Run, ReserveError> {
        if self.closed {
            return Err(ReserveError::Closed);
        }
        if max == 0 {
            return Err(ReserveError::Count);
        }
        let Some(part) = self.current.as_mut() else {
            self.ran_dry = true;
            self.unmet = self.unmet.max(u64::from(max));
            return Err(if self.is_spent() { ReserveError::Exhausted } else { self.failures.error(now_ms) });
        };
        let stride = part.segment.stride;
        let count = u32::try_from(part.remaining()).unwrap_or(u32::MAX).min(max);
        let run = Run { first: part.next, stride, count };
        part.next += u64::from(count) * stride;
        assert!(part.next <= part.segment.end, "a run never passes the end of its grant");
        self.used = self.used.saturating_add(u64::from(count));
        if part.next == part.segment.end {
            self.current = self.ahead.pop_front();
        }
        Ok(run)
    }

    /// The request that is due now, if one is. The caller carries it to the store and owes [`SegmentBuffer::granted`]
    /// or [`SegmentBuffer::failed`]; until then no other is due.
    pub fn request(&mut self, now_ms: u64) -> Option<SegmentRequest> {
        if self.closed || self.in_flight || self.failures.pause_left_ms(now_ms).is_some() {
            return None;
        }
        if !self.is_refill_due() || self.is_spent() {
            return None;
        }
        self.adapt_step(now_ms);
        self.in_flight = true;
        let count = match self.options.step {
            StepPolicy::Fixed { step } => step,
            StepPolicy::Adaptive(adaptive) => self.step.max(self.unmet.max(self.missing()).min(adaptive.max)),
        };
        Some(SegmentRequest { count, at_least: self.order.at_least() })
    }

    /// Whether nothing can come any more that may be handed out.
    fn is_spent(&self) -> bool {
        self.order.turns(self.options.id_max) == 0
    }

    fn is_refill_due(&self) -> bool {
        let Some(current) = self.current.as_ref() else { return true };
        let ahead = self.ahead.len();
        if ahead >= AHEAD_MAX {
            return false;
        }
        match self.options.refill {
            RefillPolicy::ShareConsumed { percent } => {
                let (granted, percent) = (current.segment.count(), u64::from(percent));
                let consumed = granted - current.remaining();
                // That share of `granted`, rounded up, without a product that could overflow.
                let due_at = granted / 100 * percent + (granted % 100 * percent).div_ceil(100);
                // `prefetch` is at most 64, so the conversion is exact.
                ahead < usize::try_from(self.options.prefetch).unwrap_or(AHEAD_MAX) && consumed >= due_at
            }
            RefillPolicy::Remaining { count } => self.remaining() < count,
        }
    }

    /// How many numbers lie below a fixed count of numbers left.
    fn missing(&self) -> u64 {
        match self.options.refill {
            RefillPolicy::ShareConsumed { .. } => 0,
            RefillPolicy::Remaining { count } => count.saturating_sub(self.remaining()),
        }
    }

    /// Fits the step to how long so many numbers last: once per grant at most, however often its request is repeated,
    /// and only by what was used. A segment that is held ahead says nothing.
    fn adapt_step(&mut self, now_ms: u64) {
        let (StepPolicy::Adaptive(adaptive), Some(judged_ms)) = (self.options.step, self.judged_ms) else { return };
        let took_ms = now_ms.saturating_sub(judged_ms);
        // A step that has just doubled follows a segment of half its size.
        let is_used = self.used >= self.step.div_ceil(2);
        if self.step_judged || !(self.ran_dry || is_used || took_ms > adaptive.shrink_above_ms) {
            return;
        }
        let lasts_ms = took_ms.saturating_mul(self.step) / self.used.max(1);
        if self.ran_dry {
            self.step = self.step.saturating_mul(2).max(self.unmet);
        } else if lasts_ms < adaptive.grow_below_ms {
            self.step = self.step.saturating_mul(2);
        } else if lasts_ms > adaptive.shrink_above_ms {
            self.step /= 2;
        }
        self.step = self.step.clamp(adaptive.min, adaptive.max);
        (self.step_judged, self.judged_ms, self.used) = (true, Some(now_ms), 0);
    }

    /// Takes the answer of a request in. After the end, or without a request, the grant is dropped: a gap. So is what
    /// of it lies above the greatest id.
    ///
    /// # Errors
    /// [`GrantFault`] when the store broke its promise; the grant is burnt, and callers hear of it.
    pub fn granted(&mut self, now_ms: u64, mut segment: Segment) -> Result<(), GrantFault> {
        if self.closed || !self.in_flight {
            return Ok(());
        }
        self.in_flight = false;
        if let Err(fault) = self.order.admit(&segment) {
            self.failures.grant(now_ms, fault);
            return Err(fault);
        }
        if !segment.cut(self.options.id_max) {
            self.failures.above(now_ms, self.order.turns(self.options.id_max));
            return Ok(());
        }
        let part = Part { next: segment.start, segment };
        if self.current.is_none() {
            self.current = Some(part);
        } else {
            if self.ahead.is_empty() {
                // One ahead is what nearly everybody holds.
                self.ahead.reserve_exact(1);
            }
            self.ahead.push_back(part);
        }
        self.failures.clear();
        self.judged_ms = self.judged_ms.or(Some(now_ms));
        self.step_judged = false;
        self.ran_dry = false;
        self.unmet = 0;
        Ok(())
    }

    /// Takes the failure of a request in. Whatever it may have been granted is burnt: the next request gets its own.
    pub fn failed(&mut self, now_ms: u64, failure: StoreFailure) {
        if self.in_flight {
            self.in_flight = false;
            self.failures.store(now_ms, failure);
        }
    }

    /// Ends the buffer. The unused tail, if it may be given back: the numbers from the lowest one that no run and no
    /// foreign grant lies above, as far as this buffer knows; the row's version decides.
    pub fn close(&mut self) -> Option<TailRelease> {
        self.closed = true;
        let mut pop_back = || self.ahead.pop_back().or_else(|| self.current.take());
        let newest = pop_back()?;
        let mut start = newest.next;
        let mut lowest = newest;
        while let Some(part) = pop_back() {
            let contiguous = part.segment.end == lowest.segment.start
                && part.segment.stride == lowest.segment.stride
                && part.segment.generation == lowest.segment.generation
                && lowest.next == lowest.segment.start;
            if !contiguous {
                break;
            }
            start = part.next;
            lowest = part;
        }
        (self.current, self.ahead) = (None, VecDeque::new());
        Some(TailRelease { start, version: newest.segment.version })
    }

    /// Numbers granted and not handed out.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.current.iter().chain(&self.ahead).fold(0, |sum, part| sum.saturating_add(part.remaining()))
    }

    /// How many numbers the next request asks for, as things stand.
    #[must_use]
    pub const fn step(&self) -> u64 {
        self.step
    }

    /// Whether a request is under way.
    #[must_use]
    pub const fn is_in_flight(&self) -> bool {
        self.in_flight
    }

    /// When to ask for a due request again if nobody calls: the end of a pause, else never (`u64::MAX`).
    #[must_use]
    pub fn wake_ms(&self, now_ms: u64) -> u64 {
        self.failures.pause_left_ms(now_ms).map_or(u64::MAX, |left_ms| now_ms.saturating_add(left_ms))
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::request::PAUSE_MAX_MS;

    fn segment(start: u64, end: u64) -> Segment {
        Segment { start, end, stride: 1, generation: 0, version: end }
    }

    fn fixed(step: u64, refill: RefillPolicy) -> SegmentBuffer {
        SegmentBuffer::new(
            SequenceOptions { step: StepPolicy::Fixed { step }, refill, ..SequenceOptions::default() },
            0,
        )
        .unwrap()
    }

    fn adaptive() -> SegmentBuffer {
        SegmentBuffer::new(SequenceOptions::default(), 0).unwrap()
    }

    /// Grants what is asked for, right behind the last grant.
    fn serve(buffer: &mut SegmentBuffer, now_ms: u64, next: &mut u64) -> Option<u64> {
        let request = buffer.request(now_ms)?;
        let start = (*next).max(request.at_least);
        *next = start + request.count;
        buffer.granted(now_ms, segment(start, *next)).unwrap();
        Some(request.count)
    }

    fn drain(buffer: &mut SegmentBuffer, now_ms: u64) {
        while buffer.reserve(now_ms, u32::MAX).is_ok() {}
    }

    #[test]
    fn one_request_at_a_time() {
        let mut buffer = fixed(10, RefillPolicy::default());
        assert_eq!(buffer.request(0), Some(SegmentRequest { count: 10, at_least: 0 }));
        assert_eq!(buffer.request(0), None);
        assert_eq!(buffer.reserve(0, 1), Err(ReserveError::Pending));
        buffer.granted(0, segment(1, 11)).unwrap();
        assert_eq!(buffer.reserve(0, 1), Ok(Run { first: 1, stride: 1, count: 1 }));
        assert_eq!(buffer.request(0), Some(SegmentRequest { count: 10, at_least: 11 }));
        assert_eq!(buffer.request(0), None);
    }

    #[test]
    fn refill_starts_at_the_policy_point_and_not_before() {
        let mut buffer = fixed(100, RefillPolicy::ShareConsumed { percent: 10 });
        let mut next = 1;
        serve(&mut buffer, 0, &mut next).unwrap();
        buffer.reserve(0, 9).unwrap();
        assert_eq!(buffer.request(0), None);
        buffer.reserve(0, 1).unwrap();
        assert!(serve(&mut buffer, 0, &mut next).is_some());
        buffer.reserve(0, 80).unwrap();
        assert_eq!(buffer.request(0), None, "one segment ahead is enough");

        let mut buffer = fixed(100, RefillPolicy::Remaining { count: 30 });
        serve(&mut buffer, 0, &mut next).unwrap();
        buffer.reserve(0, 70).unwrap();
        assert_eq!(buffer.request(0), None);
        buffer.reserve(0, 1).unwrap();
        assert!(buffer.request(0).is_some());
    }

    /// How many seconds of an outage that begins so long after the first id no call waits in; at 5 ids/s and a step of
    /// 600 seconds' worth.
    fn ridden_out_s(refill: RefillPolicy, begins_s: u64) -> u64 {
        const RATE: u32 = 5;
        let mut buffer = fixed(600 * u64::from(RATE), refill);
        let mut next = 1;
        let mut take = |now_s: u64, is_up: bool| {
            let now_ms = now_s * 1_000;
            for _ in 0..RATE {
                if is_up {
                    serve(&mut buffer, now_ms, &mut next);
                } else if buffer.request(now_ms).is_some() {
                    buffer.failed(now_ms, StoreFailure::Unavailable);
                }
                if buffer.reserve(now_ms, 1).is_err() {
                    return false;
                }
            }
            if is_up {
                serve(&mut buffer, now_ms, &mut next);
            }
            true
        };
        assert!((0..begins_s).all(|now_s| take(now_s, true)), "no call waits while the store is up");
        (begins_s..).take_while(|&now_s| take(now_s, false)).count() as u64
    }

    #[test]
    fn a_step_of_ten_minutes_rides_out_ten_minutes_from_any_moment() {
        for (percent, least_s, greatest_s) in [(0, 600, 1_200), (10, 540, 1_140)] {
            let refill = RefillPolicy::ShareConsumed { percent };
            // Two whole segments, each second of them.
            let ridden_out: Vec<u64> = (1..=1_200).map(|begins_s| ridden_out_s(refill, begins_s)).collect();
            assert!(
                ridden_out.iter().all(|&lasted_s| lasted_s >= least_s),
                "{percent}%: {:?}",
                ridden_out.iter().min()
            );
            assert_eq!(ridden_out.iter().max(), Some(&greatest_s), "{percent}%, just after a refill");
        }
    }

    #[test]
    fn a_low_water_mark_above_the_step_fetches_several_segments() {
        let mut buffer = fixed(10, RefillPolicy::Remaining { count: 35 });
        let mut next = 1;
        let mut requests = 0;
        while serve(&mut buffer, 0, &mut next).is_some() {
            requests += 1;
        }
        assert_eq!((requests, buffer.remaining()), (4, 40));
    }

    #[test]
    fn the_step_follows_leafs_rule() {
        let (minute_ms, mut now_ms, mut next) = (60_000, 0, 1);
        let mut buffer = adaptive();
        assert_eq!(serve(&mut buffer, now_ms, &mut next), Some(1_000));
        // each segment lasts less than 15 minutes: double
        for expected in [2_000, 4_000] {
            now_ms += 14 * minute_ms;
            buffer.reserve(now_ms, 1_000_000).unwrap();
            assert_eq!(serve(&mut buffer, now_ms, &mut next), Some(expected));
        }
        // between 15 and 30 minutes: keep
        now_ms += 20 * minute_ms;
        buffer.reserve(now_ms, 1_000_000).unwrap();
        assert_eq!(serve(&mut buffer, now_ms, &mut next), Some(4_000));
        // longer: halve, but not below the minimum
        for expected in [2_000, 1_000, 500, 250, 125, 100, 100] {
            now_ms += 31 * minute_ms;
            buffer.reserve(now_ms, 1_000_000).unwrap();
            assert_eq!(serve(&mut buffer, now_ms, &mut next), Some(expected));
        }
    }

    #[test]
    fn what_is_held_ahead_does_not_grow_the_step_before_it_is_used() {
        let (prefetch, mut next) = (64, 1);
        let refill = RefillPolicy::ShareConsumed { percent: 0 };
        let options = SequenceOptions { refill, prefetch, ..SequenceOptions::default() };
        let mut buffer = SegmentBuffer::new(options, 0).unwrap();
        while serve(&mut buffer, 0, &mut next).is_some() {}
        assert_eq!(buffer.remaining(), 65 * 1_000, "as many segments ahead as was asked for, each of the first step");
        // A program that takes an id now and then has the store asked for no more.
        for call in 0..64 {
            buffer.reserve(call, 1).unwrap();
            assert_eq!(serve(&mut buffer, call, &mut next), None);
        }
        // Use grows it.
        let mut greatest = 0;
        while buffer.step() < 1_000_000 {
            buffer.reserve(100, 1_000).unwrap();
            greatest = greatest.max(serve(&mut buffer, 100, &mut next).unwrap_or(0));
        }
        assert!(greatest >= 500_000, "{greatest}");
    }

    #[test]
    fn a_low_water_mark_is_reached_without_a_grant_for_each_step() {
        let refill = RefillPolicy::Remaining { count: 250_000 };
        let options = SequenceOptions { refill, ..SequenceOptions::default() };
        let mut buffer = SegmentBuffer::new(options, 0).unwrap();
        let mut next = 1;
        assert_eq!(serve(&mut buffer, 0, &mut next), Some(250_000), "what is missing is asked for at once");
        buffer.reserve(0, 10).unwrap();
        assert_eq!(serve(&mut buffer, 0, &mut next), Some(1_000), "and a step at least");
    }

    #[test]
    fn a_burst_that_runs_dry_grows_the_step_at_once_and_a_retry_does_not_grow_it_again() {
        let options = SequenceOptions {
            step: StepPolicy::Adaptive(AdaptiveStep {
                grow_below_ms: 0,
                shrink_above_ms: u64::MAX,
                ..AdaptiveStep::default()
            }),
            ..SequenceOptions::default()
        };
        let mut buffer = SegmentBuffer::new(options, 0).unwrap();
        let mut next = 1;
        serve(&mut buffer, 0, &mut next).unwrap();
        drain(&mut buffer, 0);
        let request = buffer.request(0).unwrap();
        assert_eq!(request.count, 1_000_000, "a caller that asked for more than the step gets it in one request");
        let mut buffer = SegmentBuffer::new(options, 0).unwrap();
        serve(&mut buffer, 0, &mut next).unwrap();
        buffer.reserve(0, 1_000).unwrap();
        assert_eq!(buffer.reserve(0, 1), Err(ReserveError::Pending));
        assert_eq!(buffer.request(0).unwrap().count, 2_000);
        buffer.failed(0, StoreFailure::Unavailable);
        assert_eq!(buffer.request(0), None, "the pause");
        assert_eq!(buffer.request(10).unwrap().count, 2_000);
    }

    #[test]
    fn a_failure_is_heard_only_when_nothing_is_left_and_goes_away_with_the_next_grant() {
        let mut buffer = fixed(10, RefillPolicy::ShareConsumed { percent: 0 });
        let mut next = 1;
        serve(&mut buffer, 0, &mut next).unwrap();
        assert!(buffer.request(0).is_some());
        buffer.failed(0, StoreFailure::OutcomeUnknown);
        assert_eq!(buffer.reserve(0, 10).unwrap().count, 10);
        let failed = ReserveError::Store { cause: StoreFailure::OutcomeUnknown, retry_after_ms: 10 };
        assert_eq!(buffer.reserve(0, 1), Err(failed));
        assert_eq!(buffer.wake_ms(0), 10);
        assert_eq!(buffer.reserve(10, 1), Err(ReserveError::Pending));
        next += 10; // what was perhaps granted is burnt
        serve(&mut buffer, 10, &mut next).unwrap();
        assert_eq!(buffer.reserve(10, 1).unwrap().first, 21);
    }

    #[test]
    fn a_grant_below_one_that_was_had_is_refused_and_callers_hear_it() {
        let mut buffer = fixed(10, RefillPolicy::default());
        let mut next = 1;
        serve(&mut buffer, 0, &mut next).unwrap();
        drain(&mut buffer, 0);
        buffer.request(0).unwrap();
        assert_eq!(buffer.granted(0, segment(5, 15)), Err(GrantFault::Overlap));
        assert_eq!(buffer.reserve(0, 1), Err(ReserveError::GrantRefused(GrantFault::Overlap)));
        assert!(buffer.request(1_000).is_some());
    }

    #[test]
    fn nothing_works_after_close_and_a_late_grant_is_dropped() {
        let mut buffer = fixed(10, RefillPolicy::default());
        buffer.request(0).unwrap();
        assert_eq!(buffer.close(), None);
        buffer.granted(0, segment(1, 11)).unwrap();
        assert_eq!(buffer.reserve(0, 1), Err(ReserveError::Closed));
        assert_eq!(buffer.request(0), None);
        assert_eq!(buffer.remaining(), 0);
    }

    #[test]
    fn a_grant_without_a_request_is_dropped() {
        let mut buffer = fixed(10, RefillPolicy::default());
        buffer.granted(0, segment(1, 11)).unwrap();
        assert_eq!(buffer.remaining(), 0, "nobody asked for it");
        buffer.request(0).unwrap();
        buffer.failed(0, StoreFailure::OutcomeUnknown);
        buffer.granted(1, segment(1, 11)).unwrap();
        assert_eq!(buffer.remaining(), 0, "the request failed, and what it may have been granted is burnt");
        buffer.request(1_000).unwrap();
        buffer.granted(1_000, segment(11, 21)).unwrap();
        buffer.granted(1_000, segment(21, 31)).unwrap();
        assert_eq!(buffer.remaining(), 10, "a request has one answer");
    }

    #[test]
    fn close_gives_back_what_never_crossed_into_a_run() {
        let mut buffer = fixed(10, RefillPolicy::ShareConsumed { percent: 0 });
        let mut next = 1;
        serve(&mut buffer, 0, &mut next).unwrap();
        buffer.reserve(0, 4).unwrap();
        serve(&mut buffer, 0, &mut next).unwrap();
        // [5, 11) and [11, 21) touch: one tail under the newest version
        assert_eq!(buffer.close(), Some(TailRelease { start: 5, version: 21 }));
        assert_eq!(buffer.close(), None);

        let mut buffer = fixed(10, RefillPolicy::ShareConsumed { percent: 0 });
        serve(&mut buffer, 0, &mut next).unwrap();
        next += 100; // somebody else was granted numbers in between
        serve(&mut buffer, 0, &mut next).unwrap();
        assert_eq!(buffer.close().unwrap().start, next - 10);
    }

    fn bounded(step: u64, id_max: u64, floor: u64) -> SegmentBuffer {
        let refill = RefillPolicy::ShareConsumed { percent: 0 };
        let options =
            SequenceOptions { step: StepPolicy::Fixed { step }, refill, id_max, ..SequenceOptions::default() };
        SegmentBuffer::new(options, floor).unwrap()
    }

    fn assert_spent(buffer: &mut SegmentBuffer, now_ms: u64) {
        for now_ms in [now_ms, now_ms + 10_000, 0, u64::MAX] {
            assert_eq!(buffer.reserve(now_ms, 1), Err(ReserveError::Exhausted));
            assert_eq!(buffer.request(now_ms), None, "nothing is asked for any more");
            assert_eq!(
                buffer.reserve(now_ms, 0),
                Err(ReserveError::Count),
                "what is asked wrongly is told all the same"
            );
        }
    }

    #[test]
    fn no_id_is_above_the_bound_and_nothing_more_is_asked_for() {
        for (step, id_max) in [(10, 15), (10, 10), (10, 11), (10, 1), (1, 3), (100, 15)] {
            let mut buffer = bounded(step, id_max, 0);
            let (mut next, mut last) = (1, 0);
            while last < id_max {
                serve(&mut buffer, 0, &mut next);
                let run = buffer.reserve(0, 4).unwrap();
                assert_eq!(run.first, last + 1);
                last = run.last();
            }
            assert_eq!(last, id_max, "steps of {step}");
            assert_spent(&mut buffer, 0);
            assert_eq!(buffer.wake_ms(0), u64::MAX);
            assert_eq!(buffer.close(), None);
            assert_eq!(buffer.reserve(0, 1), Err(ReserveError::Closed));
        }
    }

    #[test]
    fn the_greatest_id_of_all_is_handed_out_and_nothing_asked_for_after_it() {
        let mut buffer = bounded(10, ID_MAX, 0);
        buffer.request(0).unwrap();
        buffer.granted(0, segment(ID_MAX - 1, ID_MAX + 1)).unwrap();
        assert_eq!(buffer.reserve(0, 9), Ok(Run { first: ID_MAX - 1, stride: 1, count: 2 }));
        assert_spent(&mut buffer, 0);
    }

    #[test]
    fn what_others_took_up_to_the_bound_ends_it() {
        let mut buffer = bounded(10, 15, 0);
        buffer.request(0).unwrap();
        buffer.granted(0, segment(1, 4)).unwrap();
        buffer.request(0).unwrap();
        buffer.granted(0, segment(16, 26)).unwrap();
        assert_eq!(buffer.request(0), None);
        assert_eq!(buffer.remaining(), 3, "what was there is handed out");
        drain(&mut buffer, 0);
        assert_spent(&mut buffer, 0);
    }

    #[test]
    fn a_predecessor_that_had_been_granted_everything_up_to_the_bound_left_nothing() {
        assert_spent(&mut bounded(10, 15, 16), 0);
        let mut buffer = bounded(10, 15, 15);
        serve(&mut buffer, 0, &mut 1);
        assert_eq!(buffer.reserve(0, 9), Ok(Run { first: 15, stride: 1, count: 1 }));
        assert_spent(&mut buffer, 0);
    }

    #[test]
    fn a_tail_that_crosses_the_bound_begins_at_the_first_number_that_was_not_handed_out() {
        let mut buffer = bounded(10, 15, 0);
        let mut next = 1;
        serve(&mut buffer, 0, &mut next).unwrap();
        serve(&mut buffer, 0, &mut next).unwrap();
        assert_eq!(buffer.remaining(), 15);
        buffer.reserve(0, 10).unwrap();
        assert_eq!(buffer.reserve(0, 2), Ok(Run { first: 11, stride: 1, count: 2 }));
        assert_eq!(buffer.close(), Some(TailRelease { start: 13, version: 21 }));
    }

    fn stripe(start: u64, count: u64, stride: u64) -> Segment {
        Segment { start, end: start + count * stride, stride, generation: 0, version: 0 }
    }

    #[test]
    fn the_bound_is_on_the_ids_of_stripes_and_one_that_is_behind_is_waited_for() {
        let mut buffer = bounded(10, 100, 0);
        let grant = |buffer: &mut SegmentBuffer, now_ms, segment| {
            buffer.request(now_ms).unwrap();
            buffer.granted(now_ms, segment).unwrap();
        };
        grant(&mut buffer, 0, stripe(91, 10, 3)); // 91, 94, 97, 100 and what lies above
        assert_eq!(buffer.reserve(0, 100), Ok(Run { first: 91, stride: 3, count: 4 }));
        grant(&mut buffer, 0, stripe(101, 10, 3));
        assert_eq!(buffer.reserve(0, 1), Err(ReserveError::Wait { wait_ms: 10 }));
        assert_eq!((buffer.request(9), buffer.wake_ms(9)), (None, 10));
        // The first stripe has its turn again.
        grant(&mut buffer, 10, stripe(121, 10, 3));
        assert_eq!(buffer.reserve(10, 1), Err(ReserveError::Wait { wait_ms: 20 }));
        grant(&mut buffer, 30, stripe(6, 2, 3));
        assert_eq!(buffer.reserve(30, 9), Ok(Run { first: 6, stride: 3, count: 2 }), "the third was far behind");
        let mut now_ms = 30;
        for turn in 0..20 {
            grant(&mut buffer, now_ms, stripe(151 + 30 * turn, 10, 3));
            let waits = matches!(buffer.reserve(now_ms, 1), Err(ReserveError::Wait { wait_ms: 10..=1_000 }));
            assert!(waits, "it is known to be there, however often it is left out");
            now_ms = buffer.wake_ms(now_ms);
        }
        grant(&mut buffer, now_ms, stripe(99, 2, 3));
        assert_eq!(buffer.reserve(now_ms, 9), Ok(Run { first: 99, stride: 3, count: 1 }));
        assert_spent(&mut buffer, now_ms);
    }

    #[test]
    fn a_store_that_strides_alone_ends_after_as_many_grants_as_it_leaves_out_numbers() {
        let mut buffer = bounded(1, 10, 0);
        let mut now_ms = 0;
        for (start, expected) in [
            (11, Err(ReserveError::Wait { wait_ms: 10 })),
            (14, Err(ReserveError::Wait { wait_ms: 20 })),
            (17, Err(ReserveError::Exhausted)),
            (20, Err(ReserveError::Exhausted)),
        ] {
            buffer.request(now_ms).unwrap();
            buffer.granted(now_ms, stripe(start, 1, 3)).unwrap();
            assert_eq!(buffer.reserve(now_ms, 1), expected);
            now_ms = buffer.wake_ms(now_ms);
        }
        assert_eq!(now_ms, 10 + 20 + 1_000 + 1_000, "and is asked rarely: an operator may have changed it");
    }

    #[test]
    fn options_out_of_range_are_refused() {
        for id_max in [0, ID_MAX + 1, u64::MAX] {
            let options = SequenceOptions { id_max, ..SequenceOptions::default() };
            assert_eq!(SegmentBuffer::new(options, 0).err(), Some(OptionsError::IdMax), "{id_max}");
        }
        for id_max in [1, ID_MAX] {
            SequenceOptions { id_max, ..SequenceOptions::default() }.validate().unwrap();
        }

        let bad_step = |step| SequenceOptions { step, ..SequenceOptions::default() }.validate();
        assert_eq!(bad_step(StepPolicy::Fixed { step: 0 }), Err(OptionsError::Step));
        assert_eq!(bad_step(StepPolicy::Fixed { step: ID_MAX + 1 }), Err(OptionsError::Step));
        for adaptive in [
            AdaptiveStep { min: 0, ..AdaptiveStep::default() },
            AdaptiveStep { min: 2_000, ..AdaptiveStep::default() },
            AdaptiveStep { max: 999, ..AdaptiveStep::default() },
            AdaptiveStep { shrink_above_ms: 1, ..AdaptiveStep::default() },
        ] {
            assert_eq!(bad_step(StepPolicy::Adaptive(adaptive)), Err(OptionsError::Step));
        }
        for (percent, prefetch) in [(101, 1), (10, 0), (10, 65)] {
            let refill = RefillPolicy::ShareConsumed { percent };
            let options = SequenceOptions { refill, prefetch, ..SequenceOptions::default() };
            assert_eq!(options.validate(), Err(OptionsError::Refill));
        }
    }

    #[derive(Clone, Debug)]
    enum Event {
        Reserve(u32),
        Grant { skip: u64, short_by: u64 },
        Rewind(u64),
        Fail(bool),
        Advance(u64),
        JumpBack(u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            8 => (1_u32..200).prop_map(Event::Reserve),
            6 => (0_u64..50, 0_u64..150).prop_map(|(skip, short_by)| Event::Grant { skip, short_by }),
            1 => (1_u64..500).prop_map(Event::Rewind),
            2 => any::<bool>().prop_map(Event::Fail),
            2 => (0_u64..2_000_000).prop_map(Event::Advance),
            1 => (0_u64..5_000).prop_map(Event::JumpBack),
        ]
    }

    /// Stores that share the numbers between them: the next number of each.
    struct Stripes {
        next: Vec<u64>,
        id_max: u64,
        /// What they granted at or below the bound.
        usable: BTreeSet<u64>,
    }

    impl Stripes {
        fn grant(&mut self, at: usize, skip: u64, count: u64) -> Segment {
            let stride = self.next.len() as u64;
            let segment = stripe(self.next[at] + skip * stride, count, stride);
            self.next[at] = segment.end;
            let numbers = (0..count).map(|offset| segment.start + offset * stride);
            self.usable.extend(numbers.filter(|&number| number <= self.id_max));
            segment
        }

        fn are_past(&self) -> bool {
            self.next.iter().all(|&next| next > self.id_max)
        }
    }

    proptest! {
        /// However a program takes its ids, and however many segments it holds ahead: what it is granted is in
        /// proportion to what it used.
        #[test]
        fn the_step_follows_use_and_not_grants(
            takes in proptest::collection::vec((1_u32..3_000, 0_u64..60_000), 1..200),
            percent in 0_u8..=100,
            prefetch in 1_u32..=64,
        ) {
            let refill = RefillPolicy::ShareConsumed { percent };
            let options = SequenceOptions { refill, prefetch, ..SequenceOptions::default() };
            let mut buffer = SegmentBuffer::new(options, 0).unwrap();
            let (mut now_ms, mut next, mut used) = (0, 1, 0);
            for (count, pause_ms) in takes {
                while serve(&mut buffer, now_ms, &mut next).is_some() {}
                used += u64::from(buffer.reserve(now_ms, count).unwrap().count);
                prop_assert!(buffer.step() <= (4 * used).max(1_000), "{} after {used} ids", buffer.step());
                now_ms += pause_ms;
            }
        }

        /// Everything granted at or below the bound is handed out, nothing above it, and the end comes when no store
        /// can grant anything below it: not before, and then without a further request.
        #[test]
        fn all_ids_up_to_the_bound_are_handed_out_and_none_above(
            events in proptest::collection::vec((0_u8..8, 0_usize..4, 0_u64..9, 1_u32..60), 0..150),
            stripes in 1_u64..5,
            step in 1_u64..60,
            id_max in 1_u64..700,
        ) {
            let mut stores = Stripes { next: (1..=stripes).collect(), id_max, usable: BTreeSet::new() };
            let mut buffer = bounded(step, id_max, 0);
            let mut handed_out: Vec<u64> = Vec::new();
            let (mut now_ms, mut out) = (0, None);
            for (action, at, skip, count) in events {
                match action {
                    0..4 => {
                        let reserved = buffer.reserve(now_ms, count);
                        if let Ok(run) = reserved {
                            prop_assert!(run.last() <= id_max);
                            handed_out.extend(run.ids());
                        }
                        if reserved == Err(ReserveError::Exhausted) && stripes == 1 {
                            prop_assert!(stores.are_past(), "not before the end");
                        }
                        if let Some(request) = buffer.request(now_ms) {
                            // One that has granted nothing yet may be anywhere.
                            prop_assert!(!stores.are_past() || id_max < stripes, "nor a request after it");
                            prop_assert_eq!(out.replace(request), None);
                        }
                    }
                    4 | 5 => if let Some(request) = out.take() {
                        let segment = stores.grant(at % stores.next.len(), skip, request.count);
                        buffer.granted(now_ms, segment).unwrap();
                    },
                    6 => if out.take().is_some() {
                        buffer.failed(now_ms, StoreFailure::OutcomeUnknown);
                    },
                    _ => now_ms += skip * 100,
                }
            }
            // From here on all stores answer, in turn.
            for turn in 0.. {
                prop_assert!(turn < 10_000, "it comes to an end");
                now_ms += PAUSE_MAX_MS;
                while let Ok(run) = buffer.reserve(now_ms, 60) {
                    handed_out.extend(run.ids());
                }
                let Some(request) = out.take().or_else(|| buffer.request(now_ms)) else { break };
                buffer.granted(now_ms, stores.grant(turn % stores.next.len(), 0, request.count)).unwrap();
            }
            prop_assert_eq!(buffer.reserve(now_ms, 1), Err(ReserveError::Exhausted));
            prop_assert!(stores.are_past());
            handed_out.sort_unstable();
            prop_assert!(handed_out.iter().eq(&stores.usable), "each once, and none is lost");
        }

        #[test]
        fn ids_are_granted_ascend_and_never_repeat(
            events in proptest::collection::vec(event(), 1..300),
            percent in 0_u8..=100,
            prefetch in 1_u32..5,
            stride in 1_u64..4,
            fixed_step in proptest::option::of(1_u64..200),
        ) {
            let step = fixed_step.map_or_else(StepPolicy::default, |step| StepPolicy::Fixed { step });
            let refill = RefillPolicy::ShareConsumed { percent };
            let options = SequenceOptions { step, refill, prefetch, ..SequenceOptions::default() };
            let mut buffer = SegmentBuffer::new(options, 0).unwrap();
            let (mut now_ms, mut next) = (1_000_000_u64, 1_u64);
            let mut request: Option<SegmentRequest> = None;
            let mut granted = BTreeSet::new();
            let mut handed_out = Vec::new();
            for event in events {
                match event {
                    Event::Reserve(max) => {
                        let answer = buffer.reserve(now_ms, max);
                        if let Ok(run) = answer {
                            prop_assert!(1 <= run.count && run.count <= max);
                            handed_out.extend(run.ids());
                        }
                        if let Some(due) = buffer.request(now_ms) {
                            prop_assert!(request.is_none(), "a second request while one is out");
                            prop_assert!(due.count >= 1);
                            request = Some(due);
                        }
                        let pending = answer == Err(ReserveError::Pending);
                        prop_assert!(!pending || request.is_some(), "whoever waits, waits for an answer");
                    }
                    Event::Grant { skip, short_by } => if let Some(due) = request.take() {
                        let start = next + skip * stride;
                        let end = start + due.count.saturating_sub(short_by).max(1) * stride;
                        next = end;
                        let segment = Segment { start, end, stride, generation: 0, version: 0 };
                        buffer.granted(now_ms, segment).unwrap();
                        granted.extend((0..segment.count()).map(|offset| start + offset * stride));
                    },
                    // a store that lost its counter and grants again what it granted before
                    Event::Rewind(by) => if let Some(due) = request.take() {
                        let behind = next.saturating_sub(by * stride);
                        if behind >= 1 && next > 1 {
                            let end = behind + due.count * stride;
                            let segment = Segment { start: behind, end, stride, generation: 0, version: 0 };
                            prop_assert_eq!(buffer.granted(now_ms, segment), Err(GrantFault::Overlap));
                        } else {
                            buffer.failed(now_ms, StoreFailure::Unavailable);
                        }
                    },
                    Event::Fail(unknown) => if request.take().is_some() {
                        let cause = if unknown { StoreFailure::OutcomeUnknown } else { StoreFailure::Unavailable };
                        buffer.failed(now_ms, cause);
                    },
                    Event::Advance(ms) => now_ms += ms,
                    Event::JumpBack(ms) => now_ms -= ms.min(now_ms),
                }
            }
            prop_assert!(handed_out.is_sorted_by(|a, b| a < b), "ids ascend, so none repeats");
            prop_assert!(handed_out.iter().all(|id| granted.contains(id)), "every id was granted");
            prop_assert_eq!(handed_out.len() as u64 + buffer.remaining(), granted.len() as u64, "nothing is lost");
            if let Some(tail) = buffer.close() {
                prop_assert!(handed_out.last().is_none_or(|&last| last < tail.start));
            }
        }
    }
}
