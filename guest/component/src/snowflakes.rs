//! `snowflakes`: each resource is the core's generator, with its leases from the imports.

use alloc::string::String;
use core::cell::RefCell;

use unalike_core as core_;

use crate::Component;
use crate::bindings::exports::unalike::ids::snowflakes::{
    ClockPolicy, Error, Guest, GuestSnowflake, Run, Snowflake, SnowflakeOptions, SnowflakeStatus, Spread,
};
use crate::bindings::unalike::ids::leases;
use crate::translate;

impl Guest for Component {
    type Snowflake = SnowflakeState;
}

/// The imports.
struct Imports;

impl core_::Leases for Imports {
    fn acquire(&mut self, namespace: &str, layout: &core_::Layout, now_ms: u64, horizon_ms: u64) -> u64 {
        leases::acquire(namespace, translate::wit_layout(layout), now_ms, horizon_ms)
    }

    fn extend(
        &mut self,
        namespace: &str,
        layout: &core_::Layout,
        (worker, grant_id): (u32, core_::GrantId),
        now_ms: u64,
        horizon_ms: u64,
    ) -> u64 {
        leases::extend(namespace, translate::wit_layout(layout), worker, halves(grant_id), now_ms, horizon_ms)
    }

    fn poll(&mut self, ticket: u64) -> Option<Result<core_::Lease, core_::StoreFailure>> {
        leases::poll(ticket).map(|answer| answer.map(grant).map_err(translate::store_failure))
    }

    fn release(&mut self, namespace: &str, release: core_::LeaseRelease) {
        leases::release(namespace, release.worker, halves(release.grant_id), release.end_ms);
    }
}

/// A snowflake generator behind its handle.
pub(crate) struct SnowflakeState(RefCell<core_::SnowflakeGenerator>);

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
        let generator = core_::SnowflakeGenerator::open(namespace, core_options);
        Ok(Snowflake::new(Self(RefCell::new(generator.map_err(translate::options_error)?))))
    }

    fn reserve(&self, now: u64, max: u32) -> Result<Run, Error> {
        self.0.borrow_mut().reserve(&mut Imports, now, max).map(translate::run).map_err(translate::error)
    }

    fn status(&self, now: u64) -> SnowflakeStatus {
        let mut generator = self.0.borrow_mut();
        let snowflake = generator.status(&mut Imports, now);
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
        self.0.borrow_mut().close(&mut Imports);
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
