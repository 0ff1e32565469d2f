//! `sequences`: each resource is a core state machine and the ticket of its request.

use alloc::string::String;
use alloc::sync::Arc;
use core::cell::RefCell;

use unalike_core as core_;

use crate::Component;
use crate::bindings::exports::unalike::ids::sequences::{
    Error, Guest, GuestOrdered, GuestSequence, Ordered, RefillPolicy, Run, Sequence, SequenceOptions, SequenceStatus,
};
use crate::bindings::unalike::ids::segments;
use crate::one_thread::OneThread;
use crate::translate;

/// Those of the sequence that was opened last: a host with a hundred thousand tags opens nearly all of them alike.
static OPTIONS: OneThread<Option<Arc<core_::SequenceOptions>>> = OneThread::new(None);

impl Guest for Component {
    type Sequence = SequenceState;
    type Ordered = OrderedState;
}

/// A buffered sequence behind its handle.
pub(crate) struct SequenceState {
    tag: String,
    state: RefCell<(core_::SegmentBuffer, Option<segments::Ticket>)>,
}

impl SequenceState {
    /// Takes an answer in, if there is one.
    #[inline(never)]
    fn settle(&self, now: u64) {
        let (buffer, ticket) = &mut *self.state.borrow_mut();
        if let Some(answer) = answer(ticket) {
            match answer {
                // A fault is remembered by the buffer, which tells it to the next caller.
                Ok(segment) => drop(buffer.granted(now, segment)),
                Err(failure) => buffer.failed(now, failure),
            }
        }
    }

    /// Starts the request that is due, if one is.
    #[inline(never)]
    fn request(&self, now: u64) {
        let (buffer, ticket) = &mut *self.state.borrow_mut();
        if let Some(request) = buffer.request(now) {
            *ticket = Some(segments::allocate(&self.tag, request.count, request.at_least));
        }
    }
}

impl GuestSequence for SequenceState {
    fn open(tag: String, options: SequenceOptions) -> Result<Sequence, Error> {
        translate::name(&tag)?;
        let core_options = core_::SequenceOptions {
            step: core_::StepPolicy::Adaptive(core_::AdaptiveStep {
                initial: options.step,
                min: options.step_min,
                max: options.step_max,
                grow_below_ms: options.grow_below_ms,
                shrink_above_ms: options.shrink_above_ms,
            }),
            refill: match options.refill {
                RefillPolicy::ShareConsumed(percent) => core_::RefillPolicy::ShareConsumed { percent },
                RefillPolicy::Remaining(count) => core_::RefillPolicy::Remaining { count },
            },
            prefetch: options.prefetch,
            id_max: options.id_max,
        };
        let mut last = OPTIONS.cell().borrow_mut();
        let known = last.take().filter(|known| **known == core_options);
        let shared = last.insert(known.unwrap_or_else(|| Arc::new(core_options)));
        let buffer = core_::SegmentBuffer::new(Arc::clone(shared), options.floor).map_err(translate::options_error)?;
        Ok(Sequence::new(Self { tag, state: RefCell::new((buffer, None)) }))
    }

    fn reserve(&self, now: u64, max: u32) -> Result<Run, Error> {
        self.settle(now);
        let run = self.state.borrow_mut().0.reserve(now, max);
        self.request(now);
        run.map(translate::run).map_err(translate::error)
    }

    fn status(&self, now: u64) -> SequenceStatus {
        self.settle(now);
        self.request(now);
        let (buffer, _) = &*self.state.borrow();
        SequenceStatus {
            wake: buffer.wake_ms(now),
            remaining: buffer.remaining(),
            step: buffer.step(),
            in_flight: buffer.is_in_flight(),
        }
    }

    fn close(&self) {
        // A segment that has arrived belongs to the tail; when it did no longer matters.
        self.settle(0);
        if let Some(tail) = self.state.borrow_mut().0.close() {
            segments::release(&self.tag, tail.start, tail.version);
        }
    }
}

/// An ordered sequence behind its handle.
pub(crate) struct OrderedState {
    tag: String,
    state: RefCell<(core_::OrderedBuffer, Option<segments::Ticket>)>,
}

impl OrderedState {
    fn settle(&self, now: u64) {
        let (buffer, ticket) = &mut *self.state.borrow_mut();
        if let Some(answer) = answer(ticket) {
            match answer {
                // A fault is remembered by the round, which tells it to its claimant.
                Ok(segment) => drop(buffer.granted(now, segment)),
                Err(failure) => buffer.failed(now, failure),
            }
        }
    }
}

impl GuestOrdered for OrderedState {
    fn open(tag: String, floor: u64, id_max: u64) -> Result<Ordered, Error> {
        translate::name(&tag)?;
        let options = core_::OrderedOptions { floor, id_max };
        let buffer = core_::OrderedBuffer::new(options).map_err(translate::options_error)?;
        Ok(Ordered::new(Self { tag, state: RefCell::new((buffer, None)) }))
    }

    fn begin(&self, now: u64, count: u32) -> Result<u64, Error> {
        self.settle(now);
        let (buffer, ticket) = &mut *self.state.borrow_mut();
        let (round, request) = buffer.begin(count).map_err(translate::error)?;
        *ticket = Some(segments::allocate(&self.tag, request.count, request.at_least));
        Ok(round)
    }

    fn claim(&self, now: u64, round: u64) -> Result<Run, Error> {
        self.settle(now);
        self.state.borrow_mut().0.claim(round).map(translate::run).map_err(translate::error)
    }
}

/// The answer to the request in flight, if it has come; its ticket is gone then.
#[inline(never)]
fn answer(ticket: &mut Option<segments::Ticket>) -> Option<Result<core_::Segment, core_::StoreFailure>> {
    let answer = ticket.and_then(segments::poll)?;
    *ticket = None;
    Some(answer.map_err(translate::store_failure).map(|segment| core_::Segment {
        start: segment.start,
        end: segment.end,
        stride: segment.stride,
        generation: segment.generation,
        version: segment.version,
    }))
}
