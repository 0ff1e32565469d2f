//! The strict mode, without a buffer: a request is served only from an allocation that started after it arrived.
//!
//! Rounds are numbered. The host collects the callers that wait, begins one round for all of them, and serves each from
//! that round's run and from no other; so ids ascend across all nodes in real time, and the tag's row is written once
//! per round trip, not once per request. Leftovers and late answers are dropped.

use crate::request::{Failures, GrantOrder};
use crate::segment::validate_id_max;
use crate::{GrantFault, ID_MAX, OptionsError, ReserveError, Run, Segment, SegmentRequest, StoreFailure};

/// Between which bounds the ids of an ordered tag lie.
///
/// ```
/// use unalike_core::{OrderedBuffer, OrderedOptions};
/// let options = OrderedOptions { id_max: (1 << 53) - 1, ..OrderedOptions::default() };
/// assert!(OrderedBuffer::new(options).is_ok());
/// assert!(OrderedBuffer::new(OrderedOptions { id_max: 0, ..options }).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OrderedOptions {
    /// No id will lie below: 0, or the end of what a predecessor had been granted.
    pub floor: u64,
    /// The greatest id, 1 to 2^63 - 1: as [`SequenceOptions::id_max`](crate::SequenceOptions::id_max).
    pub id_max: u64,
}

impl Default for OrderedOptions {
    /// All ids.
    fn default() -> Self {
        Self { floor: 0, id_max: ID_MAX }
    }
}

#[derive(Clone, Copy, Debug)]
enum Round {
    /// Nothing to claim.
    Over,
    InFlight {
        count: u32,
    },
    Granted(Run),
    Failed(ReserveError),
}

/// The rounds of one ordered tag.
///
/// ```
/// use unalike_core::{OrderedBuffer, OrderedOptions, Segment};
///
/// let mut tickets = OrderedBuffer::new(OrderedOptions::default())?;
/// let (round, request) = tickets.begin(3).unwrap(); // three callers wait
/// assert_eq!(request.count, 3);
/// tickets.granted(0, Segment { start: 7, end: 10, stride: 1, generation: 0, version: 1 })?;
/// assert!(tickets.claim(round).unwrap().ids().eq([7, 8, 9]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct OrderedBuffer {
    id_max: u64,
    order: GrantOrder,
    failures: Failures,
    /// The latest round's number; 0 before the first.
    number: u64,
    round: Round,
}

impl OrderedBuffer {
    /// No round yet.
    ///
    /// # Errors
    /// [`OptionsError::IdMax`].
    pub const fn new(options: OrderedOptions) -> Result<Self, OptionsError> {
        let OrderedOptions { floor, id_max } = options;
        if let Err(error) = validate_id_max(id_max) {
            return Err(error);
        }
        Ok(Self { id_max, order: GrantOrder::new(floor), failures: Failures::new(), number: 0, round: Round::Over })
    }

    /// Starts a round of `count` ids: its number, and the request that the host must carry to the store *after* this
    /// call. A round that was not claimed is dropped with its ids.
    ///
    /// # Errors
    /// [`ReserveError::Pending`] while a round is in flight, [`ReserveError::Count`], and [`ReserveError::Exhausted`]
    /// once nothing at or below the greatest id can come. An earlier round that was not claimed is still there then.
    pub fn begin(&mut self, count: u32) -> Result<(u64, SegmentRequest), ReserveError> {
        if count == 0 {
            return Err(ReserveError::Count);
        }
        if matches!(self.round, Round::InFlight { .. }) {
            return Err(ReserveError::Pending);
        }
        if self.order.turns(self.id_max) == 0 {
            return Err(ReserveError::Exhausted);
        }
        self.number += 1;
        self.round = Round::InFlight { count };
        Ok((self.number, SegmentRequest { count: u64::from(count), at_least: self.order.at_least() }))
    }

    /// The run of this round, once: as many ids as the round asked for, or fewer if the store granted fewer.
    ///
    /// # Errors
    /// [`ReserveError::Round`] for any round but the latest, or one that was claimed; [`ReserveError::Pending`]; and
    /// how the round failed, which ends it.
    pub fn claim(&mut self, round: u64) -> Result<Run, ReserveError> {
        if round != self.number {
            return Err(ReserveError::Round);
        }
        match self.round {
            Round::Over => Err(ReserveError::Round),
            Round::InFlight { .. } => Err(ReserveError::Pending),
            Round::Granted(run) => {
                self.round = Round::Over;
                Ok(run)
            }
            Round::Failed(error) => {
                self.round = Round::Over;
                Err(error)
            }
        }
    }

    /// Takes the answer of the round's request in. Without a request the grant is dropped, and so is what of it lies
    /// above the greatest id.
    ///
    /// # Errors
    /// [`GrantFault`] when the store broke its promise; the grant is burnt, and the round fails with it.
    pub fn granted(&mut self, now_ms: u64, mut segment: Segment) -> Result<(), GrantFault> {
        let Round::InFlight { count } = self.round else { return Ok(()) };
        if let Err(fault) = self.order.admit(&segment) {
            self.failures.grant(now_ms, fault);
            self.round = Round::Failed(ReserveError::GrantRefused(fault));
            return Err(fault);
        }
        if !segment.cut(self.id_max) {
            self.failures.above(now_ms, self.order.turns(self.id_max));
            self.round = Round::Failed(self.failures.error(now_ms));
            return Ok(());
        }
        self.failures.clear();
        let count = u32::try_from(segment.count()).unwrap_or(u32::MAX).min(count);
        self.round = Round::Granted(Run { first: segment.start, stride: segment.stride, count });
        Ok(())
    }

    /// Takes the failure of the round's request in. Whatever it may have been granted is burnt.
    pub fn failed(&mut self, now_ms: u64, failure: StoreFailure) {
        if matches!(self.round, Round::InFlight { .. }) {
            self.failures.store(now_ms, failure);
            self.round = Round::Failed(self.failures.error(now_ms));
        }
    }

    /// Whether a round's request is under way.
    #[must_use]
    pub const fn is_in_flight(&self) -> bool {
        matches!(self.round, Round::InFlight { .. })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn segment(start: u64, count: u64) -> Segment {
        Segment { start, end: start + count, stride: 1, generation: 0, version: 0 }
    }

    fn unbounded() -> OrderedBuffer {
        OrderedBuffer::new(OrderedOptions::default()).unwrap()
    }

    #[test]
    fn a_round_is_claimed_once_and_only_by_its_number() {
        let mut ordered = unbounded();
        assert_eq!(ordered.claim(0), Err(ReserveError::Round));
        let (first, _) = ordered.begin(2).unwrap();
        assert_eq!(ordered.begin(1).map(|_| ()), Err(ReserveError::Pending), "one request at a time");
        assert_eq!(ordered.claim(first), Err(ReserveError::Pending));
        ordered.granted(0, segment(1, 2)).unwrap();
        assert_eq!(ordered.claim(first + 1), Err(ReserveError::Round));
        assert_eq!(ordered.claim(first), Ok(Run { first: 1, stride: 1, count: 2 }));
        assert_eq!(ordered.claim(first), Err(ReserveError::Round));
    }

    #[test]
    fn an_unclaimed_round_is_dropped_and_never_serves_a_later_one() {
        let mut ordered = unbounded();
        let (first, _) = ordered.begin(2).unwrap();
        ordered.granted(0, segment(1, 2)).unwrap();
        let (second, request) = ordered.begin(2).unwrap();
        assert_eq!(request.at_least, 3);
        assert_eq!(ordered.claim(first), Err(ReserveError::Round));
        assert_eq!(ordered.claim(second), Err(ReserveError::Pending));
        ordered.granted(0, segment(3, 2)).unwrap();
        assert_eq!(ordered.claim(second).unwrap().first, 3);
    }

    #[test]
    fn a_late_answer_serves_no_round() {
        let mut ordered = unbounded();
        let (round, _) = ordered.begin(1).unwrap();
        ordered.failed(0, StoreFailure::OutcomeUnknown);
        ordered.granted(0, segment(1, 1)).unwrap();
        assert!(matches!(ordered.claim(round), Err(ReserveError::Store { .. })));
        ordered.granted(0, segment(1, 1)).unwrap();
        assert_eq!(ordered.claim(round), Err(ReserveError::Round));
    }

    #[test]
    fn a_store_may_grant_fewer_and_what_is_more_is_dropped() {
        let mut ordered = unbounded();
        let (round, _) = ordered.begin(5).unwrap();
        ordered.granted(0, segment(1, 3)).unwrap();
        assert_eq!(ordered.claim(round).unwrap().count, 3);
        let (round, _) = ordered.begin(5).unwrap();
        ordered.granted(0, segment(4, 100)).unwrap();
        assert_eq!(ordered.claim(round).unwrap().count, 5);
    }

    #[test]
    fn a_failed_round_is_over_and_the_next_one_may_begin_at_once() {
        let mut ordered = unbounded();
        let (round, _) = ordered.begin(1).unwrap();
        ordered.failed(0, StoreFailure::OutcomeUnknown);
        let failed = ReserveError::Store { cause: StoreFailure::OutcomeUnknown, retry_after_ms: 10 };
        assert_eq!(ordered.claim(round), Err(failed));
        assert_eq!(ordered.claim(round), Err(ReserveError::Round));
        let (round, _) = ordered.begin(1).unwrap();
        assert_eq!(ordered.granted(0, segment(1, 1)), Ok(()));
        assert_eq!(ordered.claim(round).unwrap().first, 1);
        let (round, _) = ordered.begin(1).unwrap();
        assert_eq!(ordered.granted(0, segment(1, 1)), Err(GrantFault::Overlap));
        assert_eq!(ordered.claim(round), Err(ReserveError::GrantRefused(GrantFault::Overlap)));
    }

    fn bounded(id_max: u64, floor: u64) -> OrderedBuffer {
        OrderedBuffer::new(OrderedOptions { floor, id_max }).unwrap()
    }

    fn assert_spent(ordered: &mut OrderedBuffer) {
        assert_eq!(ordered.begin(1), Err(ReserveError::Exhausted));
        assert!(!ordered.is_in_flight(), "nothing is asked for any more");
        assert_eq!(ordered.begin(0), Err(ReserveError::Count), "what is asked wrongly is told all the same");
    }

    #[test]
    fn a_round_is_cut_at_the_bound_and_none_is_begun_after_it() {
        let mut ordered = bounded(15, 0);
        let (round, _) = ordered.begin(10).unwrap();
        ordered.granted(0, segment(11, 10)).unwrap();
        assert_spent(&mut ordered);
        assert_eq!(ordered.claim(round), Ok(Run { first: 11, stride: 1, count: 5 }), "what was granted is still there");
        assert_spent(&mut ordered);
        assert_eq!(ordered.claim(round), Err(ReserveError::Round));
    }

    #[test]
    fn a_round_that_lies_above_the_bound_ends_it() {
        let mut ordered = bounded(15, 0);
        let (round, _) = ordered.begin(1).unwrap();
        ordered.granted(0, segment(16, 1)).unwrap();
        assert_eq!(ordered.claim(round), Err(ReserveError::Exhausted));
        assert_spent(&mut ordered);
        assert_spent(&mut bounded(15, 16));
        assert!(bounded(15, 15).begin(1).is_ok());
    }

    #[test]
    fn rounds_of_stripes_go_on_while_one_may_be_behind() {
        let mut ordered = bounded(10, 0);
        let mut granted = |start| {
            let (round, _) = ordered.begin(4).unwrap();
            let segment = Segment { start, end: start + 12, stride: 3, generation: 0, version: 0 };
            ordered.granted(0, segment).unwrap();
            ordered.claim(round)
        };
        assert_eq!(granted(11), Err(ReserveError::Wait { wait_ms: 10 }));
        assert_eq!(granted(12), Err(ReserveError::Wait { wait_ms: 20 }));
        assert_eq!(granted(7), Ok(Run { first: 7, stride: 3, count: 2 }));
        assert_spent(&mut ordered);
    }

    #[test]
    fn a_bound_is_an_id() {
        for id_max in [0, ID_MAX + 1, u64::MAX] {
            let refused = OrderedBuffer::new(OrderedOptions { floor: 0, id_max }).err();
            assert_eq!(refused, Some(OptionsError::IdMax), "{id_max}");
        }
        let mut ordered = bounded(ID_MAX, 0);
        let (round, _) = ordered.begin(5).unwrap();
        ordered.granted(0, segment(ID_MAX - 1, 2)).unwrap();
        assert_eq!(ordered.claim(round).unwrap().last(), ID_MAX);
        assert_spent(&mut ordered);
    }

    proptest! {
        /// A round gets what it was granted at or below the bound, all of it; one that gets nothing is the last.
        #[test]
        fn rounds_get_all_up_to_the_bound_and_nothing_above(
            rounds in proptest::collection::vec((1_u32..40, 0_u64..5, 1_u64..50, any::<bool>()), 1..60),
            stride in 1_u64..4,
            id_max in 1_u64..400,
        ) {
            let mut ordered = bounded(id_max, 0);
            let mut next = 1_u64;
            for (asked, skip, count, fails) in rounds {
                let begun = ordered.begin(asked);
                if stride == 1 {
                    prop_assert_eq!(begun.err(), (next > id_max).then_some(ReserveError::Exhausted));
                }
                let Ok((round, _)) = begun else { continue };
                if fails {
                    ordered.failed(0, StoreFailure::Unavailable);
                    prop_assert!(ordered.claim(round).is_err());
                    continue;
                }
                let start = next + skip * stride;
                next = start + count * stride;
                ordered.granted(0, Segment { start, end: next, stride, generation: 0, version: 0 }).unwrap();
                let usable = (0..count).map(|offset| start + offset * stride).filter(|&number| number <= id_max);
                match ordered.claim(round) {
                    Ok(run) => prop_assert!(run.ids().eq(usable.take(asked as usize))),
                    Err(ReserveError::Exhausted | ReserveError::Wait { .. }) => prop_assert_eq!(usable.count(), 0),
                    Err(error) => prop_assert!(false, "{error:?}"),
                }
            }
        }
    }

    proptest! {
        /// Several nodes share one store. An id claimed from a round is above every id whose claim ended before the
        /// round began, on whichever node.
        #[test]
        fn ids_ascend_across_nodes_in_real_time(
            steps in proptest::collection::vec((0_usize..3, 0_u8..4, 1_u32..5), 1..200),
        ) {
            let mut nodes: Vec<OrderedBuffer> = (0..3).map(|_| unbounded()).collect();
            // per node: (round, count, greatest id claimed anywhere when the round began)
            let mut begun: Vec<Option<(u64, u32, u64)>> = Vec::from([None; 3]);
            let (mut next, mut greatest) = (1_u64, 0_u64);
            for (at, action, count) in steps {
                let node = &mut nodes[at];
                match action {
                    0 => if let Ok((round, _)) = node.begin(count) {
                        begun[at] = Some((round, count, greatest));
                    },
                    1 => if node.is_in_flight() {
                        let count = u64::from(begun[at].unwrap().1);
                        node.granted(0, segment(next, count)).unwrap();
                        next += count;
                    },
                    2 => node.failed(0, StoreFailure::OutcomeUnknown),
                    _ => if let Some((round, count, before)) = begun[at]
                        && let Ok(run) = node.claim(round)
                    {
                        prop_assert!(run.first > before);
                        prop_assert!(run.count <= count);
                        greatest = greatest.max(run.last());
                        begun[at] = None;
                    },
                }
            }
        }
    }
}
