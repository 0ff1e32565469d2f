//! `snowflakes`: the core's generator and the ticket of its lease request.

use alloc::string::String;
use core::cell::RefCell;

use unalike_core as core_;

use crate::Component;
use crate::bindings::exports::unalike::ids::snowflakes::{
    ClockPolicy, Error, Guest, GuestSnowflake, Layout, Run, Snowflake, SnowflakeOptions, SnowflakeStatus, Spread,
};
use crate::bindings::unalike::ids::{leases, segments::Ticket};
use crate::translate;

impl Guest for Component {
    type Snowflake = SnowflakeState;
}

/// A snowflake generator behind its handle.
pub(crate) struct SnowflakeState {
    namespace: String,
    layout: Layout,
    horizon_ms: u64,
    state: RefCell<(core_::Snowflake, Option<Ticket>)>,
}

impl SnowflakeState {
    /// Takes an answer in, if there is one.
    #[inline(never)]
    fn settle(&self, now: u64) {
        let (snowflake, ticket) = &mut *self.state.borrow_mut();
        if let Some(answer) = ticket.and_then(leases::poll) {
            *ticket = None;
            match answer {
                // A fault is remembered by the generator, which tells it to the next caller.
                Ok(lease) => drop(snowflake.granted(now, grant(lease))),
                Err(error) => snowflake.failed(now, translate::store_failure(error)),
            }
        }
    }

    /// Starts the request that is due, if one is.
    #[inline(never)]
    fn request(&self, now: u64) {
        let (snowflake, ticket) = &mut *self.state.borrow_mut();
        let (namespace, layout, horizon_ms) = (&self.namespace, self.layout, self.horizon_ms);
        match snowflake.request(now) {
            None => {}
            Some(core_::LeaseRequest::Acquire) => {
                *ticket = Some(leases::acquire(namespace, layout, now, horizon_ms));
            }
            Some(core_::LeaseRequest::Extend { worker, grant_id }) => {
                *ticket = Some(leases::extend(namespace, layout, worker, halves(grant_id), now, horizon_ms));
            }
        }
    }
}

impl GuestSnowflake for SnowflakeState {
    fn open(namespace: String, options: SnowflakeOptions) -> Result<Snowflake, Error> {
        translate::name(&namespace)?;
        let core_options = core_::SnowflakeOptions {
            layout: translate::layout(&options.layout)?,
            clock: match options.clock {
                ClockPolicy::Reject => core_::ClockPolicy::Reject,
                ClockPolicy::Wait(max_ms) => core_::ClockPolicy::Wait { max_ms },
                ClockPolicy::Keep(max_ms) => core_::ClockPolicy::Keep { max_ms },
            },
            horizon_ms: options.horizon_ms,
            ahead_max_ms: options.ahead_max_ms,
            floor_ms: options.floor,
            spread: match options.spread {
                Spread::None => core_::Spread::None,
                Spread::Rotating(bits) => core_::Spread::Rotating { bits },
                Spread::Random(bits) => core_::Spread::Random { bits },
            },
            seed: options.seed,
        };
        let snowflake = core_::Snowflake::new(core_options).map_err(translate::options_error)?;
        Ok(Snowflake::new(Self {
            namespace,
            layout: options.layout,
            horizon_ms: options.horizon_ms,
            state: RefCell::new((snowflake, None)),
        }))
    }

    fn reserve(&self, now: u64, max: u32) -> Result<Run, Error> {
        self.settle(now);
        let run = self.state.borrow_mut().0.reserve(now, max);
        self.request(now);
        run.map(translate::run).map_err(translate::error)
    }

    fn status(&self, now: u64) -> SnowflakeStatus {
        self.settle(now);
        self.request(now);
        let (snowflake, _) = &*self.state.borrow();
        let lease = snowflake.lease();
        SnowflakeStatus {
            wake: snowflake.wake_ms(now),
            worker: lease.map(|lease| lease.worker),
            valid_until: lease.map_or(0, |lease| lease.valid_until_ms),
            used_until: snowflake.used_until_ms(),
            in_flight: snowflake.is_in_flight(),
            blocked: snowflake.blocked(now).map(translate::error),
        }
    }

    fn close(&self) {
        // A lease that has arrived goes back too; when it did no longer matters.
        self.settle(0);
        if let Some(release) = self.state.borrow_mut().0.close() {
            leases::release(&self.namespace, release.worker, halves(release.grant_id), release.end_ms);
        }
    }
}

fn grant(lease: leases::Lease) -> core_::Lease {
    core_::Lease {
        worker: lease.worker,
        grant_id: core_::GrantId((u128::from(lease.grant_id.high) << 64) | u128::from(lease.grant_id.low)),
        not_before_ms: lease.not_before,
        valid_until_ms: lease.valid_until,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the two halves of 128 bits")]
fn halves(grant_id: core_::GrantId) -> leases::GrantId {
    leases::GrantId { high: (grant_id.0 >> 64) as u64, low: grant_id.0 as u64 }
}
