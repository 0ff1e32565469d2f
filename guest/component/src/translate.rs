//! The boundary's values and the core's, one into the other.

use unalike_core as core;

use crate::bindings::unalike::ids::types::{Argument, Error, FieldOrder, GrantFault, Layout, Run, StoreError};

#[inline(never)]
pub(crate) fn error(error: core::ReserveError) -> Error {
    use core::ReserveError as E;
    match error {
        E::Pending => Error::Pending,
        E::Wait { wait_ms } => Error::Wait(wait_ms),
        E::ClockMovedBack { behind_ms } => Error::ClockMovedBack(behind_ms),
        E::ClockBeforeEpoch { first_ms } => Error::ClockBeforeEpoch(first_ms),
        E::Exhausted => Error::Exhausted,
        E::Store { retry_after_ms, .. } => Error::StoreFailed(retry_after_ms),
        E::GrantRefused(fault) => Error::GrantRefused(grant_fault(fault)),
        E::Count => Error::InvalidArgument(Argument::Count),
        E::Round => Error::InvalidArgument(Argument::Round),
        E::Closed => Error::Closed,
    }
}

pub(crate) fn store_failure(error: StoreError) -> core::StoreFailure {
    use core::StoreFailure as F;
    match error {
        StoreError::Unavailable => F::Unavailable,
        StoreError::OutcomeUnknown => F::OutcomeUnknown,
        StoreError::TagUnknown => F::TagUnknown,
        StoreError::Exhausted => F::Exhausted,
        StoreError::WorkersExhausted => F::WorkersExhausted,
        StoreError::LeaseLost => F::LeaseLost,
        StoreError::ClockSkew => F::ClockSkew,
        StoreError::Refused => F::Refused,
    }
}

fn grant_fault(fault: core::GrantFault) -> GrantFault {
    match fault {
        core::GrantFault::Malformed => GrantFault::Malformed,
        core::GrantFault::Overlap => GrantFault::Overlap,
        core::GrantFault::Worker => GrantFault::Worker,
    }
}

pub(crate) fn options_error(error: core::OptionsError) -> Error {
    Error::InvalidArgument(match error {
        core::OptionsError::Step => Argument::Step,
        core::OptionsError::Refill => Argument::Refill,
        core::OptionsError::IdMax => Argument::Id,
        core::OptionsError::Horizon => Argument::Horizon,
        core::OptionsError::Spread => Argument::Spread,
    })
}

pub(crate) fn name(name: &str) -> Result<(), Error> {
    if core::is_tag(name) { Ok(()) } else { Err(Error::InvalidArgument(Argument::Name)) }
}

#[inline(never)]
pub(crate) fn layout(layout: &Layout) -> Result<core::Layout, Error> {
    core::Layout::new(core::LayoutFields {
        timestamp_bits: layout.timestamp_bits,
        datacenter_bits: layout.datacenter_bits,
        worker_bits: layout.worker_bits,
        sequence_bits: layout.sequence_bits,
        order: match layout.order {
            FieldOrder::WorkerFirst => core::FieldOrder::WorkerFirst,
            FieldOrder::SequenceFirst => core::FieldOrder::SequenceFirst,
        },
        epoch_ms: layout.epoch_ms,
        tick_ms: layout.tick_ms,
    })
    .map_err(|_| Error::InvalidArgument(Argument::Layout))
}

#[inline(never)]
pub(crate) fn wit_layout(layout: &core::Layout) -> Layout {
    let fields = layout.fields();
    Layout {
        timestamp_bits: fields.timestamp_bits,
        datacenter_bits: fields.datacenter_bits,
        worker_bits: fields.worker_bits,
        sequence_bits: fields.sequence_bits,
        order: match fields.order {
            core::FieldOrder::WorkerFirst => FieldOrder::WorkerFirst,
            core::FieldOrder::SequenceFirst => FieldOrder::SequenceFirst,
        },
        epoch_ms: fields.epoch_ms,
        tick_ms: fields.tick_ms,
    }
}

pub(crate) fn run(run: core::Run) -> Run {
    Run { first: run.first, stride: run.stride, count: run.count }
}
