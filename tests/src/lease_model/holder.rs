//! The holder of a lease, as far as uniqueness is concerned: which stamp comes next.
//!
//! It is `unalike_core::Snowflake` without all that only refuses ids: clock policies, bounds on borrowing, pauses after
//! failures, the times of renewal. A holder that refuses less can do more, so what is shown for this one holds for the
//! real one; that both stamp the same otherwise is shown by driving them side by side.

use unalike_core::{GrantId, Layout};

use super::{Rule, Without};

/// A stamp: what must never be used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// The worker.
    pub worker: u8,
    /// The tick.
    pub tick: u8,
    /// The sequence in it.
    pub sequence: u8,
}

/// A lease, in milliseconds that fit a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lease {
    /// The worker.
    pub worker: u8,
    /// The name of the grant.
    pub grant: u8,
    /// The first instant of the interval.
    pub not_before_ms: u8,
    /// The first instant after it.
    pub valid_until_ms: u8,
}

impl Lease {
    /// The product's own, for its own functions.
    #[must_use]
    pub fn real(&self) -> unalike_core::Lease {
        unalike_core::Lease {
            worker: self.worker.into(),
            grant_id: GrantId(self.grant.into()),
            not_before_ms: self.not_before_ms.into(),
            valid_until_ms: self.valid_until_ms.into(),
        }
    }
}

/// The lease in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// As the store granted and prolonged it.
    pub lease: Lease,
    /// Where stamps end: at the lease's end, or at the bound of the local copy if that is lower.
    pub bound_ms: u8,
    /// The tick in use, and how many of its ids are used.
    pub current: Option<(u8, u8)>,
}

/// What a closed holder asks its store for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Release {
    /// The worker.
    pub worker: u8,
    /// The name of the grant.
    pub grant: u8,
    /// The end of the greatest tick that was reserved.
    pub end_ms: u8,
}

/// One generator of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The lease in hand.
    pub held: Option<Held>,
    /// The lowest tick that may be entered.
    pub enter_min: u8,
    /// At which sequence each tick begins.
    pub offset: u8,
    /// Whether it has ended.
    pub is_closed: bool,
}

impl Holder {
    /// A generator without a lease; its predecessor, if it knows of one, used ticks below `enter_min`. Tick 0 is never
    /// used: with worker 0 and sequence 0 it would make the id 0.
    #[must_use]
    pub fn new(enter_min: u8, offset: u8) -> Self {
        Self { held: None, enter_min: enter_min.max(1), offset, is_closed: false }
    }

    /// The next stamp at this reading of the clock; none where its lease has no tick for it.
    pub fn reserve(&mut self, layout: &Layout, without: Without, clock_ms: u8) -> Option<Stamp> {
        let ids_per_tick = byte(layout.ids_per_tick());
        let ids = if without.has(Rule::SpreadEntersOnce) { ids_per_tick } else { ids_per_tick - self.offset };
        let held = self.held.as_mut().filter(|_| !self.is_closed)?;
        let (first_tick, end_tick) = ticks(held, layout, without);
        let clock_tick = byte(layout.tick_at(clock_ms.into()).unwrap());
        let (tick, used) = match held.current {
            Some((tick, used)) if tick >= clock_tick && used < ids => (tick, used),
            _ => (clock_tick.max(self.enter_min).max(first_tick), 0),
        };
        if tick >= end_tick && !without.has(Rule::StampsEnd) {
            return None;
        }
        held.current = Some((tick, used + 1));
        self.enter_min = tick + 1;
        Some(Stamp { worker: held.lease.worker, tick, sequence: (self.offset + used) % ids_per_tick })
    }

    /// Takes the answer of an acquire in, up to `bound_ms`. Answers whether it did.
    pub fn adopt(&mut self, layout: &Layout, lease: Lease, bound_ms: u8) -> bool {
        let (first_tick, end_tick) = lease.real().ticks(layout);
        let overlaps = self
            .held
            .is_some_and(|held| held.lease.worker == lease.worker && lease.not_before_ms < held.lease.valid_until_ms);
        let is_good = lease.not_before_ms < lease.valid_until_ms && first_tick < end_tick && !overlaps;
        if is_good {
            self.held = Some(Held { lease, bound_ms, current: None });
        }
        is_good
    }

    /// Takes the answer of an extension in. One below the known bound changes nothing.
    pub fn extend(&mut self, lease: Lease) -> bool {
        let Some(held) = self.held.as_mut() else { return false };
        let is_same = (held.lease.worker, held.lease.grant) == (lease.worker, lease.grant);
        if is_same {
            held.lease.valid_until_ms = held.lease.valid_until_ms.max(lease.valid_until_ms);
        }
        is_same
    }

    /// What it would give back now.
    #[must_use]
    pub fn release(&self, layout: &Layout) -> Option<Release> {
        let held = self.held?;
        let end_tick = match held.current {
            Some((tick, _)) => u64::from(tick) + 1,
            None => held.lease.real().ticks(layout).0,
        };
        let Lease { worker, grant, .. } = held.lease;
        Some(Release { worker, grant, end_ms: byte(layout.tick_start_ms(end_tick)) })
    }
}

/// The ticks that may be stamped.
fn ticks(held: &Held, layout: &Layout, without: Without) -> (u8, u8) {
    let usable = Lease { valid_until_ms: held.bound_ms, ..held.lease };
    if without.has(Rule::HolderRounds) {
        // Every tick that the interval touches.
        let tick_ms = u64::from(layout.tick_ms());
        let first_tick = u64::from(usable.not_before_ms) / tick_ms;
        return (byte(first_tick), byte(u64::from(usable.valid_until_ms).div_ceil(tick_ms)));
    }
    let (first_tick, end_tick) = usable.real().ticks(layout);
    (byte(first_tick), byte(end_tick))
}

/// A number of this small world.
///
/// # Panics
/// When it is greater.
#[must_use]
pub fn byte(number: u64) -> u8 {
    u8::try_from(number).unwrap()
}
