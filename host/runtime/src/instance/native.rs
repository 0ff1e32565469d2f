//! The core, compiled into the program.
//!
//! A panic in it is caught here and costs what a trap of the component does: whoever holds the instance throws it away.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use unalike_core::{
    OrderedGenerator, OrderedOptions, ReserveError, Run, SequenceGenerator, SnowflakeGenerator, SnowflakeOptions,
};

use super::{Answer, Instance, Places, Refusal, SequenceLook, SnowflakeLook, Trap, misdirected};
use crate::context::IdsCtx;
use crate::lane::Opening;

/// Boxed, so that a place takes a word whatever has it.
enum Generator {
    Sequence(Box<SequenceGenerator>),
    Ordered(Box<OrderedGenerator>),
    Snowflake(Box<SnowflakeGenerator>),
}

/// The generators of a lane, and their context.
pub(super) struct NativeInstance {
    ids: IdsCtx,
    generators: Places<Generator>,
}

impl NativeInstance {
    pub(super) fn new(ids: IdsCtx) -> Self {
        Self { ids, generators: Places::new() }
    }

    /// Calls the core for one generator.
    fn call<T>(
        &mut self,
        generator: usize,
        call: impl FnOnce(&mut Generator, &mut IdsCtx) -> Option<T>,
    ) -> Result<T, Trap> {
        let Self { ids, generators } = self;
        let open = generators.get_mut(generator).ok_or_else(|| misdirected(generator))?;
        guarded(|| call(open, ids))?.ok_or_else(|| misdirected(generator))
    }
}

/// Whatever panics in there is not used again: the instance goes with its trap.
fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, Trap> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| Trap(format!("it panicked: {}", said(panic.as_ref()))))
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

impl From<ReserveError> for Refusal {
    fn from(error: ReserveError) -> Self {
        match error {
            ReserveError::Pending => Self::Pending,
            ReserveError::Wait { wait_ms } => Self::Wait(wait_ms),
            ReserveError::ClockMovedBack { behind_ms } => Self::ClockMovedBack(behind_ms),
            ReserveError::ClockBeforeEpoch { first_ms } => Self::ClockBeforeEpoch(first_ms),
            ReserveError::Exhausted => Self::Exhausted,
            ReserveError::Store { retry_after_ms, .. } => Self::StoreFailed(retry_after_ms),
            ReserveError::GrantRefused(fault) => Self::GrantRefused(fault),
            ReserveError::Count => Self::Count,
            ReserveError::Round => Self::Round,
            ReserveError::Closed => Self::Closed,
        }
    }
}

impl Instance for NativeInstance {
    fn ids(&mut self) -> &mut IdsCtx {
        &mut self.ids
    }

    fn is_open(&self, generator: usize) -> bool {
        self.generators.is_taken(generator)
    }

    fn count_open(&self) -> u64 {
        self.generators.count()
    }

    fn open(&mut self, generator: usize, opening: &Opening, floor: u64) -> Answer<()> {
        let name = opening.name();
        if !unalike_core::is_tag(name) {
            return Ok(Err(Refusal::Argument(format!("the name {name:?} is not valid"))));
        }
        let name = name.as_ref().to_owned();
        let opened = guarded(|| match opening {
            Opening::Sequence { options, .. } => {
                SequenceGenerator::open(name, Arc::clone(options), floor).map(|it| Generator::Sequence(it.into()))
            }
            Opening::Ordered { id_max, .. } => OrderedGenerator::open(name, OrderedOptions { floor, id_max: *id_max })
                .map(|it| Generator::Ordered(it.into())),
            Opening::Snowflake { options, used_until_ms, .. } => {
                let floor_ms = options.floor_ms.max(used_until_ms.load(Ordering::Relaxed));
                let options = SnowflakeOptions { floor_ms, seed: opening.seed(), ..**options };
                SnowflakeGenerator::open(name, options).map(|it| Generator::Snowflake(it.into()))
            }
        })?;
        match opened {
            Ok(opened) => {
                self.generators.put(generator, opened);
                Ok(Ok(()))
            }
            Err(error) => Ok(Err(Refusal::Argument(error.to_string()))),
        }
    }

    fn reserve(&mut self, generator: usize, now_ms: u64, max: u32) -> Answer<Run> {
        let answer = self.call(generator, |open, ids| match open {
            Generator::Sequence(sequence) => Some(sequence.reserve(ids, now_ms, max)),
            Generator::Snowflake(snowflake) => Some(snowflake.reserve(ids, now_ms, max)),
            Generator::Ordered(_) => None,
        })?;
        Ok(answer.map_err(Refusal::from))
    }

    fn look_at_sequence(&mut self, generator: usize, now_ms: u64) -> Result<SequenceLook, Trap> {
        self.call(generator, |open, ids| {
            let Generator::Sequence(sequence) = open else { return None };
            let buffer = sequence.status(ids, now_ms);
            Some(SequenceLook { remaining: buffer.remaining(), step: buffer.step(), in_flight: buffer.is_in_flight() })
        })
    }

    fn look_at_snowflake(&mut self, generator: usize, now_ms: u64) -> Result<SnowflakeLook, Trap> {
        self.call(generator, |open, ids| {
            let Generator::Snowflake(snowflake) = open else { return None };
            let state = snowflake.status(ids, now_ms);
            let lease = state.lease();
            Some(SnowflakeLook {
                worker: lease.map(|lease| lease.worker),
                valid_until_ms: lease.map_or(0, |lease| lease.valid_until_ms),
                used_until_ms: state.used_until_ms(),
                in_flight: state.is_in_flight(),
                blocked: state.blocked(now_ms).map(Refusal::from),
            })
        })
    }

    fn begin(&mut self, generator: usize, now_ms: u64, count: u32) -> Answer<u64> {
        let answer = self.call(generator, |open, ids| {
            let Generator::Ordered(ordered) = open else { return None };
            Some(ordered.begin(ids, now_ms, count))
        })?;
        Ok(answer.map_err(Refusal::from))
    }

    fn claim(&mut self, generator: usize, now_ms: u64, round: u64) -> Answer<Run> {
        let answer = self.call(generator, |open, ids| {
            let Generator::Ordered(ordered) = open else { return None };
            Some(ordered.claim(ids, now_ms, round))
        })?;
        Ok(answer.map_err(Refusal::from))
    }

    fn close(&mut self, generator: usize) -> Result<(), Trap> {
        self.call(generator, |open, ids| {
            match open {
                Generator::Sequence(sequence) => sequence.close(ids),
                Generator::Snowflake(snowflake) => snowflake.close(ids),
                Generator::Ordered(_) => {}
            }
            Some(())
        })
    }

    fn remove(&mut self, generator: usize) -> Result<(), Trap> {
        drop(self.generators.take(generator));
        Ok(())
    }

    #[cfg(test)]
    fn memory(&self) -> usize {
        self.generators.0.capacity() * size_of::<Option<Generator>>()
    }

    #[cfg(test)]
    fn trap(&mut self, generator: usize) -> Result<(), Trap> {
        self.call(generator, |_, _| -> Option<()> { panic!("a panic of the core that is expected") })
    }
}
