//! `sequences`: each resource is a generator of the core, with its segments from the imports.

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

/// The imports.
struct Imports;

impl core_::Segments for Imports {
    fn allocate(&mut self, tag: &str, count: u64, at_least: u64) -> u64 {
        segments::allocate(tag, count, at_least)
    }

    fn poll(&mut self, ticket: u64) -> Option<Result<core_::Segment, core_::StoreFailure>> {
        segments::poll(ticket).map(|answer| {
            answer.map_err(translate::store_failure).map(|segment| core_::Segment {
                start: segment.start,
                end: segment.end,
                stride: segment.stride,
                generation: segment.generation,
                version: segment.version,
            })
        })
    }

    fn release(&mut self, tag: &str, tail: core_::TailRelease) {
        segments::release(tag, tail.start, tail.version);
    }
}

/// A buffered sequence behind its handle.
pub(crate) struct SequenceState(RefCell<core_::SequenceGenerator>);

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
        let generator = core_::SequenceGenerator::open(tag, Arc::clone(shared), options.floor);
        Ok(Sequence::new(Self(RefCell::new(generator.map_err(translate::options_error)?))))
    }

    fn reserve(&self, now: u64, max: u32) -> Result<Run, Error> {
        self.0.borrow_mut().reserve(&mut Imports, now, max).map(translate::run).map_err(translate::error)
    }

    fn status(&self, now: u64) -> SequenceStatus {
        let mut generator = self.0.borrow_mut();
        let buffer = generator.status(&mut Imports, now);
        SequenceStatus {
            wake: buffer.wake_ms(now),
            remaining: buffer.remaining(),
            step: buffer.step(),
            in_flight: buffer.is_in_flight(),
        }
    }

    fn close(&self) {
        self.0.borrow_mut().close(&mut Imports);
    }
}

/// An ordered sequence behind its handle.
pub(crate) struct OrderedState(RefCell<core_::OrderedGenerator>);

impl GuestOrdered for OrderedState {
    fn open(tag: String, floor: u64, id_max: u64) -> Result<Ordered, Error> {
        translate::name(&tag)?;
        let generator = core_::OrderedGenerator::open(tag, core_::OrderedOptions { floor, id_max });
        Ok(Ordered::new(Self(RefCell::new(generator.map_err(translate::options_error)?))))
    }

    fn begin(&self, now: u64, count: u32) -> Result<u64, Error> {
        self.0.borrow_mut().begin(&mut Imports, now, count).map_err(translate::error)
    }

    fn claim(&self, now: u64, round: u64) -> Result<Run, Error> {
        self.0.borrow_mut().claim(&mut Imports, now, round).map(translate::run).map_err(translate::error)
    }
}
