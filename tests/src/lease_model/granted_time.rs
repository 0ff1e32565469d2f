//! Time that a durable store grants to Redis, for leases to lie in, and whether each holder gets some of it.
//!
//! `unalike_redis` decides about it between round trips, by functions that need a Redis: those here are its lines once
//! more, of `reach_ms`, `acquire` and `extend` in `leases.rs` and of `raise_claimed` in `leases/granted_time.rs`, and
//! nothing compares the two. Intervals and workers are chosen by the product's own functions.

use unalike_storage::Clocks;

use super::holder::{Held, Holder, Lease, byte};
use super::{Fault, Feature, Model, Offer, Record, Records, Rule, Step, Visit, WORKERS_MAX, Without, World};

/// All that decides whether a holder gets more time: the store's records, its floor, its bound and the end of all time
/// that was granted, and the holder's lease.
pub(super) type Standing = (Records, [u8; 3], Option<Lease>);

impl Model {
    /// The end of all time that is granted before everything goes well: time enough to skip some and go on behind it.
    fn granted_max_ms(&self) -> u8 {
        self.scene.clock_max_ms + 2
    }

    /// How far ahead of the store's clock a lease may reach; 0 where it has no time.
    pub(super) fn reach_ms(&self, bound_ms: u8, store_ms: u8) -> u64 {
        let horizon_ms = self.scene.horizon_ms;
        let is_bounded = self.scene.feature == Feature::GrantedTime;
        match bound_ms {
            0 if is_bounded => 0,
            _ if is_bounded && !self.without.has(Rule::EndsAtBound) => {
                horizon_ms.min(bound_ms.saturating_sub(store_ms)).into()
            }
            _ => horizon_ms.into(),
        }
    }

    /// What may happen to a Redis and its time. More is granted by the millisecond, and several in a row are a longer
    /// grant. Redis has it at once or never, since what changed in between burns it (rule 20).
    pub(super) fn time_and_incarnations(&self, world: &World, visit: Visit<'_>) {
        if world.granted_until_ms < self.granted_max_ms() {
            let mut next = world.clone();
            next.raise(self, 0);
            visit(Step::GrantTime { from_ms: next.floor_ms, until_ms: next.bound_ms }, next, None);
            let mut next = world.clone();
            next.granted_until_ms += 1;
            visit(Step::SkipTime { until_ms: next.granted_until_ms }, next, None);
        }
        if world.bound_ms > 0 {
            let next = World { floor_ms: 0, bound_ms: 0, records: [None; WORKERS_MAX], ..world.clone() };
            visit(Step::Forget, next, None);
        }
        let mut next = world.clone();
        (next.floor_ms, next.bound_ms) = world.beside_ms;
        next.beside_ms = (world.floor_ms, world.bound_ms);
        (next.records, next.replica) = (world.replica, world.records);
        visit(Step::Turn, next, None);
    }

    /// A process that gets no more time, though from here on all goes well. Without a rule of uniqueness none is looked
    /// for: holders refuse what overlaps their leases, and the duplicate is further away.
    pub(super) fn starved(&mut self, world: &World) -> Option<Fault> {
        let is_unique = self.without == Without::default() || self.without == Without::rules(&[Rule::LossIsTold]);
        if self.scene.feature != Feature::GrantedTime || !is_unique {
            return None;
        }
        let store_ms = [world.floor_ms, world.bound_ms, world.granted_until_ms];
        for (process, number) in world.processes.iter().zip(0..self.scene.processes) {
            let standing: Standing = (world.records, store_ms, process.holder.held.map(|held| held.lease));
            if process.holder.is_closed || self.served.contains(&standing) {
                continue;
            }
            if !self.is_served(world.clone(), process.holder) {
                return Some(Fault::Starved(number));
            }
            self.served.insert(standing);
        }
        None
    }

    /// Whether this holder gets more time before the clocks show more than was ever granted, where from now on the
    /// clocks are right, this Redis stays, nothing is lost, and nobody else asks. It asks once in each millisecond, as
    /// `unalike_core::Snowflake` does: for more of its lease until that is lost, and then for a worker.
    fn is_served(&self, mut world: World, mut holder: Holder) -> bool {
        let mut is_lost = false;
        for now_ms in 1..=self.granted_max_ms() {
            let is_served = match holder.held {
                Some(Held { lease, .. }) if !is_lost => {
                    let end_ms = self.extended_ms(&mut world, lease, now_ms);
                    is_lost = end_ms.is_none();
                    end_ms.is_some_and(|end_ms| end_ms > lease.valid_until_ms.max(now_ms))
                }
                _ => {
                    let acquired = self.acquired(&mut world, now_ms);
                    acquired.is_some_and(|lease| holder.adopt(&self.layout, lease, lease.valid_until_ms))
                }
            };
            if is_served {
                return true;
            }
        }
        false
    }

    /// Where this lease ends by what its holder hears, which may be nothing new; none where it is lost.
    fn extended_ms(&self, world: &mut World, lease: Lease, now_ms: u8) -> Option<u8> {
        let is_running = |record: &Record| record.lease.grant == lease.grant && !record.is_final;
        let before_ms = world.records[usize::from(lease.worker)].filter(is_running)?.lease.valid_until_ms;
        let horizon_ms = self.scene.horizon_ms;
        if self.reach_ms(world.bound_ms, now_ms) < u64::from(horizon_ms) && world.joins(self) {
            world.raise(self, now_ms + horizon_ms);
        }
        let reach_ms = self.reach_ms(world.bound_ms, now_ms);
        let end_ms = |reach_ms| byte(self.binding.extended_end_ms(before_ms.into(), now_ms.into(), reach_ms));
        let reached_ms = if reach_ms > 0 { end_ms(reach_ms) } else { before_ms };
        if reached_ms > before_ms || end_ms(horizon_ms.into()) == before_ms {
            return Some(reached_ms);
        }
        let is_told = before_ms <= now_ms && !self.without.has(Rule::LossIsTold);
        (!is_told).then_some(lease.valid_until_ms)
    }

    /// The lease that is granted now, if one is.
    fn acquired(&self, world: &mut World, now_ms: u8) -> Option<Lease> {
        if world.floor_ms > now_ms {
            return None;
        }
        let horizon_ms = self.scene.horizon_ms;
        let clocks = Clocks { holder_ms: now_ms.into(), store_ms: now_ms.into() };
        let (reach_ms, joins) = (self.reach_ms(world.bound_ms, now_ms), world.joins(self));
        let is_usable = reach_ms > 0 && self.binding.grant(0, clocks, reach_ms).is_ok();
        if !is_usable || reach_ms < u64::from(horizon_ms) && joins {
            // Time that has not come yet is only begun.
            let has_come = joins || world.granted_until_ms <= now_ms;
            world.raise(self, if has_come { now_ms + horizon_ms } else { 0 });
        }
        let ends_ms = world.records.map(|record| record.map(|record| record.lease.valid_until_ms));
        // The last is that of the holder's latest clock.
        let offer = self.offers((ends_ms, world.floor_ms, world.bound_ms, Some(now_ms))).pop();
        let Offer { worker, start_ms, end_ms, .. } = offer?;
        let lease = Lease { worker, grant: 0, not_before_ms: start_ms, valid_until_ms: end_ms };
        world.records[usize::from(worker)] = Some(Record { lease, is_final: false, holder: 0 });
        Some(lease)
    }
}

impl World {
    /// Whether time that is granted next moves the bound; otherwise the namespace begins anew in it.
    fn joins(&self, model: &Model) -> bool {
        let is_next = self.bound_ms == self.granted_until_ms;
        is_next || self.bound_ms > 0 && model.without.has(Rule::TimeJoins)
    }

    /// The durable store grants time up to `until_ms`, but one millisecond at least, and this Redis has it.
    fn raise(&mut self, model: &Model, until_ms: u8) {
        let start_ms = self.granted_until_ms;
        if !self.joins(model) {
            let floor_ms = byte(model.binding.layout.round_up_ms(start_ms.into()));
            self.floor_ms = if model.without.has(Rule::BeginsBehindGranted) { 0 } else { floor_ms };
            self.records = [None; WORKERS_MAX];
        }
        self.granted_until_ms = until_ms.max(start_ms + 1);
        self.bound_ms = self.granted_until_ms;
    }
}
