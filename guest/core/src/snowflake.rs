//! Snowflake ids: (timestamp, worker, sequence) under a lease, whatever the clock does.
//!
//! A lease is a worker id over an interval of timestamps that no other lease of that worker overlaps. So an id that is
//! stamped inside the lease, once per (timestamp, sequence), is unique by construction: the clock decides only *which*
//! tick of the interval is stamped next. The generator moves through ticks upwards only, across leases too, and never
//! stamps at or past the end of its lease; a clock that went back, a pause or a jump can cost an error, not a
//! duplicate.
//!
//! A clock that was far ahead and is set right leaves the generator with a lease whose times are far away. Rather than
//! wait for them it asks for another lease, and with another worker goes on at the clock: the ids of each worker
//! ascend, and no two workers share one. Whether the clock is right now, the lease store judges, which compares it with
//! its own.
//!
//! Sources: Twitter's Snowflake (2010), Leaf's wait, hutool's tolerance (but state changes here come after every check
//! that can fail, so a refused call leaves nothing behind).

use crate::request::Failures;
use crate::{GrantFault, GrantId, Layout, Lease, OptionsError, Parts, ReserveError, Run, StoreFailure};

/// The longest horizon: a year. A lease that long is a static assignment.
const HORIZON_MAX_MS: u64 = 366 * 24 * 60 * 60 * 1_000;

/// What to do when the clock stands behind a time that was handed in before.
///
/// ```
/// use unalike_core::{ClockPolicy, Layout, SnowflakeOptions};
/// let mut options = SnowflakeOptions::new(Layout::TWITTER);
/// options.clock = ClockPolicy::Wait { max_ms: 5 }; // as Leaf does
/// assert!(options.validate().is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClockPolicy {
    /// Refuse until it has caught up (Twitter).
    ///
    /// This and what the others refuse holds for a clock that is back by up to a
    /// [horizon](SnowflakeOptions::horizon_ms). By more, another lease is asked for.
    Reject,
    /// Ask the caller to wait for twice the difference, if that is small (Leaf: 5 ms); refuse beyond. Twice, because a
    /// clock that is being slowed down needs longer than the difference to make it good.
    Wait {
        /// How far back is waited for, in milliseconds.
        max_ms: u64,
    },
    /// Go on with the last timestamp, if the difference is small (hutool: 2,000 ms); refuse beyond.
    ///
    /// The last tick is used up. Another is entered only within [`SnowflakeOptions::ahead_max_ms`] of the clock as it
    /// stands, so until the clock has come near, callers are asked to wait. A timestamp is thus never further ahead of
    /// the clock than `max_ms` and `ahead_max_ms` together, however often the clock goes back, and never past the end
    /// of the lease.
    Keep {
        /// How far back is bridged, in milliseconds.
        max_ms: u64,
    },
}

impl Default for ClockPolicy {
    fn default() -> Self {
        Self::Keep { max_ms: 2_000 }
    }
}

/// Where in a tick the sequences begin.
///
/// While fewer ids are asked for than there are ticks, every id has sequence 0, and whoever spreads rows by `id % 2^n`
/// sends all of them to one shard. With a spread of `n` bits each tick's sequences begin at an offset in `0..2^n` and
/// go on to the last one, without starting over at 0. What lies below the offset is lost: (2^n - 1) / 2 ids of a tick
/// on average, 2^n - 1 at most.
///
/// ```
/// use unalike_core::{Layout, OptionsError, SnowflakeOptions, Spread};
/// let mut options = SnowflakeOptions::new(Layout::TWITTER);
/// options.spread = Spread::Rotating { bits: 3 }; // 8 shards; 3.5 of a tick's 4,096 ids are lost on average
/// assert!(options.validate().is_ok());
/// options.spread = Spread::Rotating { bits: 13 };
/// assert_eq!(options.validate(), Err(OptionsError::Spread));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Spread {
    /// Every tick begins with sequence 0.
    #[default]
    None,
    /// One further with each tick that is used: the offsets of 2^bits such ticks in a row are all different.
    Rotating {
        /// 1 to the layout's sequence bits.
        bits: u8,
    },
    /// A mix of seed and tick.
    Random {
        /// 1 to the layout's sequence bits.
        bits: u8,
    },
}

/// How a snowflake generator works.
///
/// Releases add fields: write `..SnowflakeOptions::new(layout)` at the end.
///
/// ```
/// use unalike_core::{Layout, SnowflakeOptions};
/// let mut options = SnowflakeOptions::new(Layout::LEAF);
/// options.horizon_ms = 15 * 60 * 1_000; // rides out ten minutes without the lease store, or more
/// assert!(options.validate().is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SnowflakeOptions {
    /// Widths, epoch and tick of the ids.
    pub layout: Layout,
    /// What to do when the clock goes back.
    pub clock: ClockPolicy,
    /// How far ahead of now a lease is asked for, 1 ms to 366 days. Renewal starts when a third has passed, so an
    /// outage of the lease store is ridden out for two thirds of it at least.
    pub horizon_ms: u64,
    /// How far ahead of the clock a tick may begin that is entered because the one before is spent; 0: never. It is
    /// ahead of the clock as it stands, also of one that has gone back.
    pub ahead_max_ms: u64,
    /// No timestamp before this, in Unix milliseconds: 0, or the end of the last tick that a predecessor used.
    pub floor_ms: u64,
    /// Where in a tick the sequences begin.
    pub spread: Spread,
    /// Where the spread begins: any number, another one at each opening. The host fills it in.
    pub seed: u64,
}

impl SnowflakeOptions {
    /// This layout with the defaults: [`ClockPolicy::Keep`] for 2 s, a horizon of 60 s, 10 ms ahead at most, no spread.
    #[must_use]
    pub const fn new(layout: Layout) -> Self {
        Self {
            layout,
            clock: ClockPolicy::Keep { max_ms: 2_000 },
            horizon_ms: 60_000,
            ahead_max_ms: 10,
            floor_ms: 0,
            spread: Spread::None,
            seed: 0,
        }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`OptionsError::Horizon`]; [`OptionsError::Spread`], also for a layout whose lowest bits are not the sequence.
    pub const fn validate(&self) -> Result<(), OptionsError> {
        if self.horizon_ms < 1 || self.horizon_ms > HORIZON_MAX_MS {
            return Err(OptionsError::Horizon);
        }
        match self.spread {
            Spread::None => Ok(()),
            Spread::Rotating { bits } | Spread::Random { bits } => {
                let fits = 1 <= bits && bits <= self.layout.sequence_bits() && self.layout.sequence_stride() == 1;
                if fits { Ok(()) } else { Err(OptionsError::Spread) }
            }
        }
    }
}

/// A request that the host must carry to the lease store.
///
/// ```
/// use unalike_core::{Layout, LeaseRequest, Snowflake, SnowflakeOptions};
/// let mut ids = Snowflake::new(SnowflakeOptions::new(Layout::TWITTER))?;
/// assert_eq!(ids.request(1_700_000_000_000), Some(LeaseRequest::Acquire));
/// # Ok::<(), unalike_core::OptionsError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseRequest {
    /// A worker id from about now on.
    Acquire,
    /// More time for this lease.
    Extend {
        /// Its worker.
        worker: u32,
        /// Its name.
        grant_id: GrantId,
    },
}

/// The lease of a closed generator, to be ended at its last used tick.
///
/// ```
/// use unalike_core::{GrantId, Layout, Lease, LeaseRelease, Snowflake, SnowflakeOptions};
/// let mut ids = Snowflake::new(SnowflakeOptions::new(Layout::TWITTER))?;
/// let now_ms = 1_700_000_000_000;
/// ids.request(now_ms);
/// let lease = Lease { worker: 7, grant_id: GrantId(1), not_before_ms: now_ms, valid_until_ms: now_ms + 60_000 };
/// ids.granted(now_ms, lease)?;
/// ids.reserve(now_ms, 1).unwrap();
/// assert_eq!(ids.close(), Some(LeaseRelease { worker: 7, grant_id: GrantId(1), end_ms: now_ms + 1 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRelease {
    /// Its worker.
    pub worker: u32,
    /// Its name.
    pub grant_id: GrantId,
    /// The end of the greatest tick that was used, or the lease's start, in Unix milliseconds.
    pub end_ms: u64,
}

/// The lease in hand.
#[derive(Clone, Copy, Debug)]
struct Held {
    lease: Lease,
    /// Ticks wholly inside the lease: `first_tick..end_tick`.
    first_tick: u64,
    end_tick: u64,
    /// When to ask for more time.
    renew_ms: u64,
    /// The store said that it can not be extended: it is used to its end, and another is asked for.
    ends: bool,
    /// The tick being used, and its next sequence.
    current: Option<(u64, u64)>,
}

/// Where the next id stands.
#[derive(Clone, Copy)]
struct NextId {
    tick: u64,
    sequence: u64,
    /// The tick was not used before.
    enters: bool,
    /// The id itself.
    first: u64,
}

/// One generator of snowflake ids.
///
/// ```
/// use unalike_core::{GrantId, Layout, Lease, LeaseRequest, Snowflake, SnowflakeOptions};
///
/// let mut ids = Snowflake::new(SnowflakeOptions::new(Layout::TWITTER))?;
/// let now_ms = 1_700_000_000_000;
/// assert_eq!(ids.request(now_ms), Some(LeaseRequest::Acquire));
/// let lease = Lease { worker: 7, grant_id: GrantId(1), not_before_ms: now_ms, valid_until_ms: now_ms + 60_000 };
/// ids.granted(now_ms, lease).unwrap();
/// let run = ids.reserve(now_ms, 3).unwrap();
/// let parts = Layout::TWITTER.unpack(run.first).unwrap();
/// assert_eq!((parts.worker, parts.sequence, run.count), (7, 0, 3));
/// # Ok::<(), unalike_core::OptionsError>(())
/// ```
#[derive(Debug)]
pub struct Snowflake {
    options: SnowflakeOptions,
    held: Option<Held>,
    /// The latest time at which ids were handed out.
    latest_ms: u64,
    /// The lowest tick that may be entered: above every tick used before, by this generator or its predecessor.
    enter_min: u64,
    /// How many ticks were entered: what a rotating spread follows.
    entered: u64,
    in_flight: Option<LeaseRequest>,
    failures: Failures,
    closed: bool,
}

impl Snowflake {
    /// A generator without a lease.
    ///
    /// # Errors
    /// [`OptionsError`] when an option is out of range.
    pub fn new(options: SnowflakeOptions) -> Result<Self, OptionsError> {
        options.validate()?;
        // Tick 0 is never used: with worker 0 and sequence 0 it would give the id 0.
        let enter_min = options.layout.first_tick_from(options.floor_ms).max(1);
        Ok(Self {
            options,
            held: None,
            latest_ms: 0,
            enter_min,
            entered: 0,
            in_flight: None,
            failures: Failures::new(),
            closed: false,
        })
    }

    /// Hands out at least one id and at most `max`, all of one tick.
    ///
    /// # Errors
    /// [`ReserveError`]; nothing changes and nothing is lost.
    pub fn reserve(&mut self, now_ms: u64, max: u32) -> Result<Run, ReserveError> {
        let NextId { tick, sequence, enters, first } = self.place(now_ms)?;
        if max == 0 {
            return Err(ReserveError::Count);
        }
        let layout = self.options.layout;
        let count = u32::try_from(layout.ids_per_tick() - sequence).unwrap_or(u32::MAX).min(max);
        // Every check that can fail is behind us.
        if let Some(held) = self.held.as_mut() {
            assert!(held.first_tick <= tick && tick < held.end_tick, "an id is never stamped outside its lease");
            assert!(!enters || tick >= self.enter_min, "a tick is entered once");
            held.current = Some((tick, sequence + u64::from(count)));
        }
        self.entered = self.entered.wrapping_add(u64::from(enters));
        self.enter_min = tick + 1;
        self.latest_ms = self.latest_ms.max(now_ms);
        Ok(Run { first, stride: layout.sequence_stride(), count })
    }

    /// Why [`Snowflake::reserve`] would hand out nothing now; none when it would.
    #[must_use]
    pub fn blocked(&self, now_ms: u64) -> Option<ReserveError> {
        self.place(now_ms).err()
    }

    /// Where the next id would stand, if there were one now: every check that a call can fail, and no change.
    fn place(&self, now_ms: u64) -> Result<NextId, ReserveError> {
        if self.closed {
            return Err(ReserveError::Closed);
        }
        let layout = self.options.layout;
        if self.is_stranded(now_ms) {
            return Err(self.failures.error(now_ms));
        }
        self.check_clock(now_ms)?;
        let clock_tick =
            layout.tick_at(now_ms).ok_or(ReserveError::ClockBeforeEpoch { first_ms: layout.tick_start_ms(1) })?;
        if clock_tick > layout.max_tick() {
            return Err(ReserveError::Exhausted);
        }
        let Some(held) = self.held.as_ref() else { return Err(self.failures.error(now_ms)) };

        let (tick, sequence, enters) = match held.current {
            Some((tick, sequence)) if tick >= clock_tick && sequence < layout.ids_per_tick() => (tick, sequence, false),
            _ => {
                let tick = clock_tick.max(self.enter_min).max(held.first_tick);
                (tick, self.offset(tick), true)
            }
        };
        if tick > layout.max_tick() {
            return Err(ReserveError::Exhausted);
        }
        if tick >= held.end_tick {
            return Err(self.failures.error(now_ms));
        }
        let clock_min_ms = layout.tick_start_ms(tick).saturating_sub(self.options.ahead_max_ms);
        if enters && clock_min_ms > now_ms {
            return Err(ReserveError::Wait { wait_ms: clock_min_ms - now_ms });
        }
        let first = u32::try_from(sequence)
            .ok()
            .and_then(|sequence| layout.pack(Parts { ticks: tick, worker: held.lease.worker, sequence }).ok());
        match first {
            Some(first) => Ok(NextId { tick, sequence, enters, first }),
            None => Err(ReserveError::GrantRefused(GrantFault::Worker)),
        }
    }

    /// The sequence with which this tick begins, when it is entered next.
    const fn offset(&self, tick: u64) -> u64 {
        let seed = self.options.seed;
        let (bits, number) = match self.options.spread {
            Spread::None => return 0,
            Spread::Rotating { bits } => (bits, seed.wrapping_add(self.entered)),
            Spread::Random { bits } => (bits, mix(seed.wrapping_add(tick))),
        };
        // 31 bits at most, since a sequence has no more.
        number & ((1 << bits) - 1)
    }

    /// Whether the clock is so far behind the times that were used that the lease in hand is of no use for longer than
    /// a horizon, in which a new one would have ended.
    fn is_stranded(&self, now_ms: u64) -> bool {
        let bridged_ms = match self.options.clock {
            ClockPolicy::Reject => 0,
            ClockPolicy::Wait { max_ms } | ClockPolicy::Keep { max_ms } => max_ms,
        };
        self.held.is_some() && self.latest_ms.saturating_sub(now_ms) > self.options.horizon_ms.max(bridged_ms)
    }

    fn check_clock(&self, now_ms: u64) -> Result<(), ReserveError> {
        let behind_ms = self.latest_ms.saturating_sub(now_ms);
        if behind_ms == 0 {
            return Ok(());
        }
        match self.options.clock {
            ClockPolicy::Wait { max_ms } if behind_ms <= max_ms => {
                Err(ReserveError::Wait { wait_ms: behind_ms.saturating_add(behind_ms) })
            }
            ClockPolicy::Keep { max_ms } if behind_ms <= max_ms => Ok(()),
            _ => Err(ReserveError::ClockMovedBack { behind_ms }),
        }
    }

    /// The request that is due now, if one is. The caller carries it to the store and owes [`Snowflake::granted`] or
    /// [`Snowflake::failed`]; until then no other is due.
    pub fn request(&mut self, now_ms: u64) -> Option<LeaseRequest> {
        if self.closed || self.in_flight.is_some() || self.failures.pause_left_ms(now_ms).is_some() {
            return None;
        }
        let request = match self.held {
            None => LeaseRequest::Acquire,
            Some(held) if held.ends || self.is_stranded(now_ms) => LeaseRequest::Acquire,
            // Due by the time that was set, which a clock that went back has not reached; or because the clock or
            // borrowing has reached the end of the lease.
            Some(held) if now_ms >= held.renew_ms || self.is_past_lease(now_ms) => {
                LeaseRequest::Extend { worker: held.lease.worker, grant_id: held.lease.grant_id }
            }
            Some(_) => return None,
        };
        self.in_flight = Some(request);
        Some(request)
    }

    /// Takes the answer of a request in. After the end, or without a request, the lease is abandoned.
    ///
    /// # Errors
    /// [`GrantFault`] when the store broke its promise; the lease is abandoned, and callers hear of it.
    pub fn granted(&mut self, now_ms: u64, lease: Lease) -> Result<(), GrantFault> {
        if self.closed {
            return Ok(());
        }
        let Some(request) = self.in_flight.take() else { return Ok(()) };
        let admitted = match request {
            LeaseRequest::Acquire => self.admit_new(now_ms, lease),
            LeaseRequest::Extend { .. } => self.admit_extension(now_ms, lease),
        };
        match admitted {
            Ok(()) if self.is_past_lease(now_ms) || self.is_stranded(now_ms) => {
                self.failures.store(now_ms, StoreFailure::ClockSkew);
            }
            Ok(()) => self.failures.clear(),
            Err(fault) => self.failures.grant(now_ms, fault),
        }
        admitted
    }

    /// Whether the lease in hand ends at or before the tick that would be stamped next. Just after a grant it tells
    /// that the clock is ahead of the store's by more than a lease: asking again at once would not help, so this counts
    /// as a failure, with its pause.
    fn is_past_lease(&self, now_ms: u64) -> bool {
        let clock_tick = self.options.layout.tick_at(now_ms).unwrap_or(0);
        self.held.is_some_and(|held| clock_tick.max(self.enter_min) >= held.end_tick)
    }

    fn admit_new(&mut self, now_ms: u64, lease: Lease) -> Result<(), GrantFault> {
        let layout = self.options.layout;
        if lease.worker > layout.worker_max() {
            return Err(GrantFault::Worker);
        }
        let (first_tick, end_tick) = lease.ticks(&layout);
        if lease.not_before_ms >= lease.valid_until_ms || first_tick >= end_tick {
            return Err(GrantFault::Malformed);
        }
        let overlaps = self
            .held
            .is_some_and(|held| held.lease.worker == lease.worker && lease.not_before_ms < held.lease.valid_until_ms);
        if overlaps {
            return Err(GrantFault::Overlap);
        }
        if self.is_stranded(now_ms) && self.held.is_some_and(|held| held.lease.worker != lease.worker) {
            // Whatever this worker was used for lies before its lease.
            self.latest_ms = 0;
            self.enter_min = layout.first_tick_from(self.options.floor_ms).max(1);
        }
        let renew_ms = renew_ms(now_ms, lease.valid_until_ms);
        self.held = Some(Held { lease, first_tick, end_tick, renew_ms, ends: false, current: None });
        Ok(())
    }

    fn admit_extension(&mut self, now_ms: u64, lease: Lease) -> Result<(), GrantFault> {
        let layout = self.options.layout;
        let Some(held) = self.held.as_mut() else { return Ok(()) };
        if (lease.worker, lease.grant_id) != (held.lease.worker, held.lease.grant_id) {
            return Err(GrantFault::Overlap);
        }
        // An answer below the known bound changes nothing.
        if lease.valid_until_ms > held.lease.valid_until_ms {
            held.lease.valid_until_ms = lease.valid_until_ms;
            held.end_tick = held.lease.ticks(&layout).1;
        }
        held.renew_ms = renew_ms(now_ms, held.lease.valid_until_ms);
        Ok(())
    }

    /// Takes the failure of a request in. A lease in hand keeps the bound that is known and is used up to it.
    pub fn failed(&mut self, now_ms: u64, failure: StoreFailure) {
        match (self.in_flight.take(), self.held.as_mut()) {
            (None, _) => {}
            (Some(LeaseRequest::Extend { .. }), Some(held)) if failure == StoreFailure::LeaseLost => held.ends = true,
            (Some(_), _) => self.failures.store(now_ms, failure),
        }
    }

    /// Ends the generator. The lease, if it holds one, ends with the greatest tick that was used.
    pub fn close(&mut self) -> Option<LeaseRelease> {
        self.closed = true;
        let held = self.held.take()?;
        let end_tick = held.current.map_or(held.first_tick, |(tick, _)| tick + 1);
        Some(LeaseRelease {
            worker: held.lease.worker,
            grant_id: held.lease.grant_id,
            end_ms: self.options.layout.tick_start_ms(end_tick),
        })
    }

    /// The lease in hand.
    #[must_use]
    pub fn lease(&self) -> Option<Lease> {
        self.held.map(|held| held.lease)
    }

    /// The end of the greatest tick used so far, in Unix milliseconds; 0 before the first.
    #[must_use]
    pub fn used_until_ms(&self) -> u64 {
        if self.latest_ms == 0 { 0 } else { self.options.layout.tick_start_ms(self.enter_min) }
    }

    /// Whether a request is under way.
    #[must_use]
    pub const fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// When to ask for a due request again if nobody calls: the end of a pause or the time to renew, in Unix
    /// milliseconds.
    #[must_use]
    pub fn wake_ms(&self, now_ms: u64) -> u64 {
        match (self.failures.pause_left_ms(now_ms), self.held) {
            (Some(left_ms), _) => now_ms.saturating_add(left_ms),
            (None, Some(_)) if self.in_flight.is_none() && (self.is_past_lease(now_ms) || self.is_stranded(now_ms)) => {
                now_ms
            }
            (None, Some(held)) => held.renew_ms,
            (None, None) => u64::MAX,
        }
    }
}

/// The last two steps of splitmix64 (Steele, Lea and Flood, 2014): neighbouring numbers become unlike ones.
const fn mix(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

/// A third of the time that is left, but never at once: a store that cannot extend must not be asked in a loop.
fn renew_ms(now_ms: u64, valid_until_ms: u64) -> u64 {
    now_ms.saturating_add((valid_until_ms.saturating_sub(now_ms) / 3).max(1))
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::{FieldOrder, LayoutFields};

    const NOW_MS: u64 = 1_700_000_000_000;

    fn layout(tick_ms: u32, worker_bits: u8, sequence_bits: u8, order: FieldOrder) -> Layout {
        Layout::new(LayoutFields {
            timestamp_bits: 41,
            datacenter_bits: 0,
            worker_bits,
            sequence_bits,
            order,
            epoch_ms: 1_600_000_000_003,
            tick_ms,
        })
        .unwrap()
    }

    fn lease(worker: u32, grant: u128, not_before_ms: u64, valid_until_ms: u64) -> Lease {
        Lease { worker, grant_id: GrantId(grant), not_before_ms, valid_until_ms }
    }

    fn with(clock: ClockPolicy, ahead_max_ms: u64) -> Snowflake {
        let options = SnowflakeOptions {
            clock,
            ahead_max_ms,
            ..SnowflakeOptions::new(layout(1, 10, 2, FieldOrder::WorkerFirst))
        };
        let mut snowflake = Snowflake::new(options).unwrap();
        assert_eq!(snowflake.request(NOW_MS), Some(LeaseRequest::Acquire));
        snowflake.granted(NOW_MS, lease(5, 1, NOW_MS, NOW_MS + 60_000)).unwrap();
        snowflake
    }

    fn stamp_ms(snowflake: &Snowflake, run: Run) -> u64 {
        let layout = snowflake.options.layout;
        layout.tick_start_ms(layout.unpack(run.first).unwrap().ticks)
    }

    #[test]
    fn nothing_without_a_lease() {
        let mut snowflake = Snowflake::new(SnowflakeOptions::new(Layout::TWITTER)).unwrap();
        assert_eq!(snowflake.reserve(NOW_MS, 1), Err(ReserveError::Pending));
        assert_eq!(snowflake.request(NOW_MS), Some(LeaseRequest::Acquire));
        assert_eq!(snowflake.request(NOW_MS), None);
        snowflake.failed(NOW_MS, StoreFailure::WorkersExhausted);
        let failed = ReserveError::Store { cause: StoreFailure::WorkersExhausted, retry_after_ms: 10 };
        assert_eq!(snowflake.reserve(NOW_MS, 1), Err(failed));
        assert_eq!(snowflake.request(NOW_MS + 10), Some(LeaseRequest::Acquire));
    }

    #[test]
    fn a_spent_sequence_waits_or_borrows_up_to_the_bound() {
        let mut waits = with(ClockPolicy::Reject, 0);
        assert_eq!(waits.reserve(NOW_MS, 3).unwrap().count, 3);
        assert_eq!(waits.reserve(NOW_MS, 3).unwrap().count, 1);
        assert_eq!(waits.reserve(NOW_MS, 3), Err(ReserveError::Wait { wait_ms: 1 }));
        assert_eq!(waits.reserve(NOW_MS + 1, 3).unwrap().count, 3);

        let mut borrows = with(ClockPolicy::Reject, 2);
        for ahead_ms in 0..=2 {
            let run = borrows.reserve(NOW_MS, 9).unwrap();
            assert_eq!((stamp_ms(&borrows, run), run.count), (NOW_MS + ahead_ms, 4));
        }
        assert_eq!(borrows.reserve(NOW_MS, 9), Err(ReserveError::Wait { wait_ms: 1 }));
    }

    #[test]
    fn clock_policies() {
        let back = |snowflake: &mut Snowflake, ms: u64| {
            snowflake.reserve(NOW_MS, 1).unwrap();
            snowflake.reserve(NOW_MS - ms, 1)
        };
        let moved = |behind_ms| Err(ReserveError::ClockMovedBack { behind_ms });
        assert_eq!(back(&mut with(ClockPolicy::Reject, 0), 1), moved(1));
        assert_eq!(back(&mut with(ClockPolicy::Wait { max_ms: 5 }, 0), 5), Err(ReserveError::Wait { wait_ms: 10 }));
        assert_eq!(back(&mut with(ClockPolicy::Wait { max_ms: 5 }, 0), 6), moved(6));
        let mut keeps = with(ClockPolicy::Keep { max_ms: 2_000 }, 0);
        let run = back(&mut keeps, 2_000).unwrap();
        assert_eq!(stamp_ms(&keeps, run), NOW_MS, "the last timestamp is kept");
        assert_eq!(back(&mut with(ClockPolicy::Keep { max_ms: 2_000 }, 0), 2_001), moved(2_001));
    }

    #[test]
    fn a_clock_that_was_a_day_ahead_costs_another_worker_and_no_waiting() {
        const DAY_MS: u64 = 86_400_000;
        for policy in [ClockPolicy::Reject, ClockPolicy::Wait { max_ms: 5 }, ClockPolicy::Keep { max_ms: 2_000 }] {
            let mut snowflake = with(policy, 10);
            snowflake.reserve(NOW_MS, 1).unwrap();
            let ahead_ms = NOW_MS + DAY_MS;
            snowflake.request(ahead_ms).unwrap();
            snowflake.granted(ahead_ms, lease(5, 1, NOW_MS, ahead_ms + 60_000)).unwrap();
            let far = snowflake.reserve(ahead_ms, 1).unwrap();
            // Set right: within a horizon it is waited for, as the policy says.
            let moved = Err(ReserveError::ClockMovedBack { behind_ms: 60_000 });
            assert_eq!((snowflake.reserve(ahead_ms - 60_000, 1), snowflake.request(ahead_ms - 60_000)), (moved, None));
            assert_eq!(snowflake.reserve(NOW_MS, 1), Err(ReserveError::Pending), "{policy:?}");
            assert_eq!(snowflake.wake_ms(NOW_MS), NOW_MS);
            assert_eq!(snowflake.request(NOW_MS), Some(LeaseRequest::Acquire));
            // What begins behind the lease in hand is of no use, and asked for again after a pause.
            snowflake.granted(NOW_MS, lease(5, 2, ahead_ms + 60_000, ahead_ms + 120_000)).unwrap();
            assert!(matches!(snowflake.reserve(NOW_MS, 1), Err(ReserveError::Store { .. })));
            assert_eq!(snowflake.request(NOW_MS), None);
            assert_eq!(snowflake.request(NOW_MS + 1_000), Some(LeaseRequest::Acquire));
            let now_ms = NOW_MS + 1_000;
            snowflake.granted(now_ms, lease(6, 3, now_ms, now_ms + 60_000)).unwrap();
            let near = snowflake.reserve(now_ms, 1).unwrap();
            assert_eq!(stamp_ms(&snowflake, near), now_ms);
            assert!(near.first < far.first);
            assert_eq!(snowflake.used_until_ms(), now_ms + 1);
            let next = snowflake.reserve(now_ms + 1, 1).unwrap();
            assert!(next.first > near.first);
            assert_eq!(snowflake.close(), Some(LeaseRelease { worker: 6, grant_id: GrantId(3), end_ms: now_ms + 2 }));
        }
    }

    /// The clock goes back again and again, by as much as is bridged, under all load that there can be.
    #[test]
    fn a_kept_tick_is_used_up_and_no_other_is_entered_before_the_clock_is_near() {
        let mut snowflake = with(ClockPolicy::Keep { max_ms: 2_000 }, 10);
        snowflake.reserve(NOW_MS + 2_000, 1).unwrap();
        let kept = snowflake.reserve(NOW_MS, 9).unwrap();
        assert_eq!((stamp_ms(&snowflake, kept), kept.count), (NOW_MS + 2_000, 3), "the rest of the last tick");
        assert_eq!(snowflake.reserve(NOW_MS, 9), Err(ReserveError::Wait { wait_ms: 1_991 }), "10 ms may be borrowed");
        assert_eq!(snowflake.reserve(NOW_MS + 1_990, 9), Err(ReserveError::Wait { wait_ms: 1 }));
        assert_eq!(snowflake.reserve(NOW_MS + 1_991, 9).unwrap().count, 4);
        assert_eq!(snowflake.reserve(NOW_MS + 1_991, 9), Err(ReserveError::Wait { wait_ms: 1 }), "and no further");
        // Borrowed ticks are kept like others, and are no step from which the next 10 ms could be counted.
        assert_eq!(snowflake.reserve(NOW_MS + 2_000, 9).unwrap().count, 4);
        let mut ahead_ms = 0;
        for call in 0..10_000_u64 {
            let now_ms = NOW_MS + 2_000 - call * 7 % 2_001;
            if let Ok(run) = snowflake.reserve(now_ms, 9) {
                ahead_ms = ahead_ms.max(stamp_ms(&snowflake, run) - now_ms);
            }
        }
        assert!(ahead_ms <= 2_010, "{ahead_ms}");
        assert!(snowflake.used_until_ms() <= NOW_MS + 2_011);
    }

    #[test]
    fn a_kept_tick_ends_with_its_lease() {
        let mut snowflake = with(ClockPolicy::Keep { max_ms: 2_000 }, 5_000);
        let last = snowflake.reserve(NOW_MS + 59_999, 4).unwrap();
        assert_eq!(stamp_ms(&snowflake, last), NOW_MS + 59_999);
        for behind_ms in [0, 1, 2_000] {
            let answer = snowflake.reserve(NOW_MS + 59_999 - behind_ms, 1);
            assert_eq!(answer, Err(ReserveError::Pending), "neither kept nor borrowed beyond the end");
        }
    }

    fn spread(spread: Spread, seed: u64) -> Snowflake {
        let options = SnowflakeOptions {
            spread,
            seed,
            horizon_ms: 100_000,
            ..SnowflakeOptions::new(layout(1, 10, 6, FieldOrder::WorkerFirst))
        };
        let mut snowflake = Snowflake::new(options).unwrap();
        snowflake.request(NOW_MS).unwrap();
        snowflake.granted(NOW_MS, lease(5, 1, NOW_MS, NOW_MS + 100_000)).unwrap();
        snowflake
    }

    fn sequence(snowflake: &Snowflake, id: u64) -> u32 {
        snowflake.options.layout.unpack(id).unwrap().sequence
    }

    #[test]
    fn one_id_a_tick_falls_evenly_to_all_shards() {
        let shares = |kind| {
            let mut snowflake = spread(kind, 7);
            let mut shares = [0_i64; 8];
            for tick in 0..10_000 {
                let id = snowflake.reserve(NOW_MS + tick, 1).unwrap().first;
                shares[usize::try_from(id % 8).unwrap()] += 1;
            }
            shares
        };
        assert_eq!(shares(Spread::Rotating { bits: 3 }), [1_250; 8]);
        for share in shares(Spread::Random { bits: 3 }) {
            // 1,250 with a standard deviation of 33.
            assert!((share - 1_250).abs() < 125, "{share} of 10,000");
        }
        assert_eq!(shares(Spread::None), [10_000, 0, 0, 0, 0, 0, 0, 0], "what this is for");
        // Those that hand out one id and end begin at different places, too.
        let starts: BTreeSet<_> = (0..64)
            .map(|seed| {
                let mut snowflake = spread(Spread::Random { bits: 3 }, seed);
                let first = snowflake.reserve(NOW_MS, 1).unwrap().first;
                sequence(&snowflake, first)
            })
            .collect();
        assert_eq!(starts.len(), 8);
    }

    #[test]
    fn a_burst_loses_what_lies_below_the_offset_and_nothing_else() {
        for kind in [Spread::Rotating { bits: 3 }, Spread::Random { bits: 3 }, Spread::Rotating { bits: 6 }] {
            let mut snowflake = spread(kind, 3);
            let (mut ids, mut lost) = (0, 0);
            for tick in 0..1_024 {
                let now_ms = NOW_MS + tick * 90;
                let first = snowflake.reserve(now_ms, 5).unwrap();
                let offset = sequence(&snowflake, first.first);
                lost += u64::from(offset);
                ids += u64::from(first.count);
                // The rest of the tick, in ascending order and without a second beginning.
                let mut next = offset + first.count;
                while next < 64 {
                    let run = snowflake.reserve(now_ms, 7).unwrap();
                    assert_eq!((stamp_ms(&snowflake, run), sequence(&snowflake, run.first)), (now_ms, next));
                    next += run.count;
                    ids += u64::from(run.count);
                }
            }
            assert_eq!(ids + lost, 1_024 * 64);
            match kind {
                Spread::Rotating { bits: 3 } => assert_eq!(lost, 1_024 * 7 / 2),
                Spread::Rotating { .. } => assert_eq!(lost, 1_024 * 63 / 2),
                _ => assert!(lost.abs_diff(1_024 * 7 / 2) < 400, "{lost}"),
            }
        }
    }

    #[test]
    fn a_refused_call_does_not_turn_the_spread() {
        let mut snowflake = spread(Spread::Rotating { bits: 3 }, 0);
        for tick in 0..20_u32 {
            let now_ms = NOW_MS + u64::from(tick) * 100;
            for refused in [snowflake.reserve(now_ms, 0), snowflake.reserve(now_ms + 200_000, 1)] {
                assert!(refused.is_err());
            }
            let run = snowflake.reserve(now_ms, 64).unwrap();
            assert_eq!(sequence(&snowflake, run.first), tick % 8);
        }
    }

    #[test]
    fn a_spread_that_does_not_fit_is_refused() {
        let ten = layout(1, 10, 6, FieldOrder::WorkerFirst);
        let reversed = layout(1, 10, 6, FieldOrder::SequenceFirst);
        let alone = layout(1, 0, 6, FieldOrder::SequenceFirst);
        for (layout, bits, fits) in [
            (ten, 0, false),
            (ten, 1, true),
            (ten, 6, true),
            (ten, 7, false),
            (ten, u8::MAX, false),
            (reversed, 3, false),
            (alone, 3, true),
        ] {
            for spread in [Spread::Rotating { bits }, Spread::Random { bits }] {
                let options = SnowflakeOptions { spread, ..SnowflakeOptions::new(layout) };
                assert_eq!(options.validate().is_ok(), fits, "{spread:?} of {layout}");
                assert_eq!(Snowflake::new(options).is_ok(), fits);
            }
        }
    }

    #[test]
    fn a_tick_is_not_entered_again_under_another_offset() {
        let kind = Spread::Rotating { bits: 6 };
        let mut snowflake = spread(kind, 40);
        let first = snowflake.reserve(NOW_MS, 1).unwrap().first;
        assert_eq!(sequence(&snowflake, first), 40);
        // A new lease: the operator forbade that the old one goes on.
        snowflake.request(NOW_MS + 40_000).unwrap();
        snowflake.failed(NOW_MS + 40_000, StoreFailure::LeaseLost);
        let last = snowflake.reserve(NOW_MS + 40_000, 1).unwrap().first;
        snowflake.request(NOW_MS + 40_000).unwrap();
        snowflake.granted(NOW_MS + 40_000, lease(6, 2, NOW_MS, NOW_MS + 90_000)).unwrap();
        let next = snowflake.reserve(NOW_MS + 40_000, 1).unwrap();
        assert_eq!(stamp_ms(&snowflake, next), NOW_MS + 40_001, "10 ms may be borrowed");
        assert!(next.first > last);
        // A rebuilt one: its host hands on where the last one ended.
        let options = SnowflakeOptions { floor_ms: snowflake.used_until_ms(), seed: 0, ..snowflake.options };
        let mut rebuilt = Snowflake::new(options).unwrap();
        rebuilt.request(NOW_MS + 40_000).unwrap();
        rebuilt.granted(NOW_MS + 40_000, lease(6, 3, NOW_MS, NOW_MS + 90_000)).unwrap();
        let run = rebuilt.reserve(NOW_MS + 40_000, 64).unwrap();
        assert_eq!((stamp_ms(&rebuilt, run), run.count), (NOW_MS + 40_002, 64));
    }

    /// hutool's published listing resets its sequence before it refuses, so the calls inside the 2 s tolerance repeat
    /// (last timestamp, 1), (last timestamp, 2), ..: 15,910 duplicates in 20,010 calls.
    #[test]
    fn hutools_listing_repeats_ids_inside_its_tolerance_and_this_does_not() {
        for policy in [ClockPolicy::Keep { max_ms: 2_000 }, ClockPolicy::Wait { max_ms: 2_000 }, ClockPolicy::Reject] {
            let mut snowflake = with(policy, 0);
            let mut ids = BTreeSet::new();
            for call in 0..20_010_u64 {
                let now_ms = if call < 10 { NOW_MS } else { NOW_MS - 1_000 + call / 10 };
                if let Ok(run) = snowflake.reserve(now_ms, 1) {
                    assert!(ids.insert(run.first), "call {call} repeats {}", run.first);
                }
            }
            assert!(ids.len() > 3_000, "ids go on when the clock has caught up");
        }
    }

    /// Vesta moves on to the next millisecond when its sequence overflows but does not remember it: (t + 1, 0) twice.
    #[test]
    fn vestas_overflow_repeats_an_id_and_this_does_not() {
        let mut snowflake = with(ClockPolicy::Reject, 5);
        let mut ids = BTreeSet::new();
        for call in 0..5_000_u64 {
            if let Ok(run) = snowflake.reserve(NOW_MS + call / 5, 1) {
                assert!(ids.insert(run.first));
            }
        }
        assert!(ids.len() >= 4_000);
    }

    #[test]
    fn no_stamp_outside_the_lease() {
        let mut snowflake = with(ClockPolicy::Reject, 1_000_000);
        assert_eq!(snowflake.reserve(NOW_MS + 60_000, 1), Err(ReserveError::Pending));
        let run = snowflake.reserve(NOW_MS + 59_999, 9).unwrap();
        assert_eq!((stamp_ms(&snowflake, run), run.count), (NOW_MS + 59_999, 4));
        assert_eq!(snowflake.reserve(NOW_MS + 59_999, 9), Err(ReserveError::Pending), "borrowing stops at the end too");
        assert_eq!(snowflake.request(NOW_MS + 59_999), Some(LeaseRequest::Extend { worker: 5, grant_id: GrantId(1) }));
        snowflake.granted(NOW_MS + 59_999, lease(5, 1, NOW_MS, NOW_MS + 70_000)).unwrap();
        assert_eq!(snowflake.reserve(NOW_MS + 59_999, 9).unwrap().count, 4);
    }

    #[test]
    fn a_lease_that_starts_later_is_waited_for() {
        let mut snowflake = Snowflake::new(SnowflakeOptions::new(Layout::TWITTER)).unwrap();
        snowflake.request(NOW_MS).unwrap();
        snowflake.granted(NOW_MS, lease(1, 1, NOW_MS + 500, NOW_MS + 60_000)).unwrap();
        assert_eq!(snowflake.reserve(NOW_MS, 1), Err(ReserveError::Wait { wait_ms: 490 }), "10 ms may be borrowed");
        assert_eq!(snowflake.reserve(NOW_MS + 490, 1).unwrap().count, 1);
    }

    #[test]
    fn coarse_ticks_are_used_only_if_they_lie_wholly_inside() {
        // A holds [0, 3), B [3, 6), tick 2: tick 1 belongs to neither.
        let layout = layout(2, 4, 4, FieldOrder::WorkerFirst);
        let epoch_ms = layout.epoch_ms();
        assert_eq!(lease(0, 1, epoch_ms, epoch_ms + 3).ticks(&layout), (0, 1));
        assert_eq!(lease(0, 2, epoch_ms + 3, epoch_ms + 6).ticks(&layout), (2, 3));
        assert_eq!(lease(0, 2, epoch_ms + 3, epoch_ms + 4).ticks(&layout), (2, 2));
        let mut snowflake = Snowflake::new(SnowflakeOptions::new(layout)).unwrap();
        snowflake.request(NOW_MS).unwrap();
        assert_eq!(snowflake.granted(NOW_MS, lease(0, 1, epoch_ms + 3, epoch_ms + 4)), Err(GrantFault::Malformed));
    }

    #[test]
    fn renewal_starts_when_a_third_has_passed_and_a_lost_answer_keeps_the_old_bound() {
        let mut snowflake = with(ClockPolicy::Reject, 0);
        assert_eq!(snowflake.request(NOW_MS + 19_999), None);
        let extend = Some(LeaseRequest::Extend { worker: 5, grant_id: GrantId(1) });
        assert_eq!(snowflake.request(NOW_MS + 20_000), extend);
        snowflake.failed(NOW_MS + 20_000, StoreFailure::OutcomeUnknown);
        assert!(snowflake.reserve(NOW_MS + 20_000, 1).is_ok());
        assert_eq!(snowflake.request(NOW_MS + 20_005), None, "the pause");
        assert_eq!(snowflake.request(NOW_MS + 20_010), extend);
        // an answer below the known bound changes nothing
        snowflake.granted(NOW_MS + 20_010, lease(5, 1, NOW_MS, NOW_MS + 100)).unwrap();
        assert_eq!(snowflake.lease().unwrap().valid_until_ms, NOW_MS + 60_000);
        assert!(snowflake.reserve(NOW_MS + 59_999, 1).is_ok());
    }

    #[test]
    fn a_lease_that_cannot_be_extended_is_used_up_while_another_is_asked_for() {
        let mut snowflake = with(ClockPolicy::Reject, 0);
        snowflake.request(NOW_MS + 20_000).unwrap();
        snowflake.failed(NOW_MS + 20_000, StoreFailure::LeaseLost);
        let last = snowflake.reserve(NOW_MS + 20_000, 1).unwrap();
        assert_eq!(snowflake.request(NOW_MS + 20_000), Some(LeaseRequest::Acquire));
        assert_eq!(
            snowflake.granted(NOW_MS + 20_000, lease(5, 2, NOW_MS + 30_000, NOW_MS + 90_000)),
            Err(GrantFault::Overlap),
            "the same worker inside the interval in hand"
        );
        assert_eq!(snowflake.request(NOW_MS + 20_010), Some(LeaseRequest::Acquire));
        snowflake.granted(NOW_MS + 20_010, lease(4, 3, NOW_MS + 20_000, NOW_MS + 80_000)).unwrap();
        // a lower worker: within the same tick ids would go down, so the next tick is entered
        assert_eq!(snowflake.reserve(NOW_MS + 20_000, 1), Err(ReserveError::Wait { wait_ms: 1 }));
        assert!(snowflake.reserve(NOW_MS + 20_001, 1).unwrap().first > last.first);
    }

    #[test]
    fn close_ends_the_lease_at_the_last_used_tick() {
        let mut snowflake = with(ClockPolicy::Reject, 0);
        snowflake.reserve(NOW_MS + 7, 1).unwrap();
        let release = LeaseRelease { worker: 5, grant_id: GrantId(1), end_ms: NOW_MS + 8 };
        assert_eq!(snowflake.close(), Some(release));
        assert_eq!(snowflake.close(), None);
        assert_eq!(snowflake.reserve(NOW_MS + 8, 1), Err(ReserveError::Closed));
        assert_eq!(snowflake.request(NOW_MS + 8), None);
        assert_eq!(with(ClockPolicy::Reject, 0).close().unwrap().end_ms, NOW_MS);
    }

    #[test]
    fn an_answer_after_the_end_is_dropped() {
        let mut snowflake = Snowflake::new(SnowflakeOptions::new(Layout::TWITTER)).unwrap();
        snowflake.request(NOW_MS).unwrap();
        assert_eq!(snowflake.close(), None);
        snowflake.granted(NOW_MS, lease(5, 1, NOW_MS, NOW_MS + 60_000)).unwrap();
        assert_eq!((snowflake.lease(), snowflake.close()), (None, None), "and not given back, either: it runs out");
        assert_eq!(snowflake.reserve(NOW_MS, 1), Err(ReserveError::Closed));
        assert_eq!(snowflake.blocked(NOW_MS), Some(ReserveError::Closed));
    }

    #[test]
    fn only_the_answer_to_the_request_in_flight_is_adopted() {
        let mut snowflake = with(ClockPolicy::Reject, 0);
        let before = snowflake.lease();
        // Nothing was asked for.
        snowflake.granted(NOW_MS, lease(7, 9, NOW_MS, NOW_MS + 90_000)).unwrap();
        assert_eq!(snowflake.lease(), before);
        // An extension was asked for, and the answer is of another grant or another worker.
        for stranger in [lease(5, 2, NOW_MS, NOW_MS + 90_000), lease(6, 1, NOW_MS, NOW_MS + 90_000)] {
            snowflake.request(NOW_MS + 30_000).unwrap();
            assert_eq!(snowflake.granted(NOW_MS + 30_000, stranger), Err(GrantFault::Overlap));
            assert_eq!(snowflake.lease(), before);
            snowflake.failures.clear();
        }
    }

    #[test]
    fn what_blocks_is_what_reserve_would_say() {
        let mut snowflake = Snowflake::new(SnowflakeOptions::new(Layout::TWITTER)).unwrap();
        assert_eq!(snowflake.blocked(NOW_MS), Some(ReserveError::Pending));
        snowflake.request(NOW_MS).unwrap();
        snowflake.failed(NOW_MS, StoreFailure::WorkersExhausted);
        let failed = ReserveError::Store { cause: StoreFailure::WorkersExhausted, retry_after_ms: 10 };
        assert_eq!(snowflake.blocked(NOW_MS), Some(failed));
        snowflake.request(NOW_MS + 10).unwrap();
        snowflake.granted(NOW_MS + 10, lease(5, 1, NOW_MS, NOW_MS + 60_000)).unwrap();
        assert_eq!(snowflake.blocked(NOW_MS + 10), None);
        assert_eq!(snowflake.blocked(0), Some(ReserveError::ClockBeforeEpoch { first_ms: 1_288_834_974_658 }));
        snowflake.reserve(NOW_MS + 10, 1).unwrap();
        assert_eq!(snowflake.blocked(NOW_MS - 5_000), Some(ReserveError::ClockMovedBack { behind_ms: 5_010 }));
        assert_eq!(snowflake.blocked(NOW_MS + 60_000), Some(ReserveError::Pending));
        assert_eq!(snowflake.blocked(u64::MAX), Some(ReserveError::Exhausted));
    }

    #[test]
    fn the_ends_of_time() {
        let mut snowflake = with(ClockPolicy::Reject, 0);
        let layout = snowflake.options.layout;
        let before = ReserveError::ClockBeforeEpoch { first_ms: layout.epoch_ms() + 1 };
        assert_eq!(snowflake.reserve(layout.epoch_ms() - 1, 1), Err(before));
        assert_eq!(snowflake.reserve(layout.ends_ms(), 1), Err(ReserveError::Exhausted));
        assert_eq!(snowflake.reserve(NOW_MS, 0), Err(ReserveError::Count));
    }

    #[test]
    fn a_clock_beyond_every_lease_hears_so_and_the_store_is_not_asked_in_a_loop() {
        let mut snowflake = with(ClockPolicy::Reject, 0);
        let later_ms = NOW_MS + 3_600_000;
        assert_eq!(snowflake.reserve(later_ms, 1), Err(ReserveError::Pending));
        assert!(snowflake.request(later_ms).is_some());
        snowflake.granted(later_ms, lease(5, 1, NOW_MS, NOW_MS + 60_010)).unwrap();
        let skew = ReserveError::Store { cause: StoreFailure::ClockSkew, retry_after_ms: 10 };
        assert_eq!(snowflake.reserve(later_ms, 1), Err(skew));
        assert_eq!(snowflake.request(later_ms), None);
        assert!(snowflake.reserve(NOW_MS + 60_009, 1).is_ok(), "ids go on when the clock is right again");
    }

    #[test]
    fn a_clock_that_comes_back_part_of_the_way_past_its_lease_asks_for_more_time() {
        let mut snowflake = with(ClockPolicy::Reject, 0);
        let later_ms = NOW_MS + 3_600_000;
        assert!(snowflake.request(later_ms).is_some());
        snowflake.granted(later_ms, lease(5, 1, NOW_MS, NOW_MS + 60_010)).unwrap();
        for now_ms in [later_ms - 1, NOW_MS + 60_010] {
            assert_eq!(snowflake.reserve(now_ms, 1), Err(ReserveError::Pending));
            assert_eq!(snowflake.wake_ms(now_ms), now_ms);
            let extend = LeaseRequest::Extend { worker: 5, grant_id: GrantId(1) };
            assert_eq!(snowflake.request(now_ms), Some(extend));
            // Behind the clock again.
            snowflake.granted(later_ms, lease(5, 1, NOW_MS, NOW_MS + 60_010)).unwrap();
        }
    }

    #[test]
    fn a_predecessors_ticks_are_not_entered_again() {
        let options = SnowflakeOptions { floor_ms: NOW_MS + 50, ..SnowflakeOptions::new(Layout::TWITTER) };
        let mut snowflake = Snowflake::new(options).unwrap();
        snowflake.request(NOW_MS).unwrap();
        snowflake.granted(NOW_MS, lease(5, 9, NOW_MS, NOW_MS + 60_000)).unwrap();
        assert_eq!(snowflake.reserve(NOW_MS, 1), Err(ReserveError::Wait { wait_ms: 40 }));
    }

    #[derive(Clone, Debug)]
    enum Event {
        Reserve {
            node: usize,
            max: u32,
        },
        Answer {
            node: usize,
            lost: bool,
        },
        Advance(u64),
        /// One holder's clock against true time.
        Skew {
            node: usize,
            ms: i64,
        },
        Restart {
            node: usize,
            graceful: bool,
        },
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            10 => (0_usize..3, 1_u32..9).prop_map(|(node, max)| Event::Reserve { node, max }),
            6 => (0_usize..3, prop::bool::weighted(0.2)).prop_map(|(node, lost)| Event::Answer { node, lost }),
            4 => (0_u64..400).prop_map(Event::Advance),
            2 => (0_usize..3, -3_000_i64..3_000).prop_map(|(node, ms)| Event::Skew { node, ms }),
            1 => (0_usize..3, any::<bool>()).prop_map(|(node, graceful)| Event::Restart { node, graceful }),
        ]
    }

    /// A lease store as the rules want it, with a true clock of its own.
    #[derive(Default)]
    struct Store {
        /// (grant, end) per worker.
        workers: [(u128, u64); 2],
        grants: u128,
    }

    impl Store {
        fn answer(&mut self, layout: &Layout, now_ms: u64, request: LeaseRequest) -> Result<Lease, StoreFailure> {
            let (tick_ms, epoch_ms) = (u64::from(layout.tick_ms()), layout.epoch_ms());
            let down = |ms: u64| epoch_ms + (ms - epoch_ms) / tick_ms * tick_ms;
            let up = |ms: u64| epoch_ms + (ms - epoch_ms).div_ceil(tick_ms) * tick_ms;
            match request {
                LeaseRequest::Acquire => {
                    let free = (0..2).find(|&worker| self.workers[worker].1 <= now_ms);
                    let worker = free.ok_or(StoreFailure::WorkersExhausted)?;
                    let start = up(self.workers[worker].1.max(now_ms));
                    let end = down(now_ms + 1_000).max(start + tick_ms);
                    self.grants += 1;
                    self.workers[worker] = (self.grants, end);
                    Ok(lease(u32::try_from(worker).unwrap(), self.grants, start, end))
                }
                LeaseRequest::Extend { worker, grant_id } => {
                    let record = &mut self.workers[worker as usize];
                    if record.0 != grant_id.0 {
                        return Err(StoreFailure::LeaseLost);
                    }
                    record.1 = record.1.max(down(now_ms + 1_000));
                    Ok(lease(worker, grant_id.0, 0, record.1))
                }
            }
        }
    }

    proptest! {
        /// Three holders share two workers, with lost answers, restarts and clocks that go where they like.
        #[test]
        fn no_two_holders_stamp_the_same_id(
            events in proptest::collection::vec(event(), 1..400),
            tick_ms in prop::sample::select(Vec::from([1_u32, 7, 10, 100])),
            order in prop::sample::select(Vec::from([FieldOrder::WorkerFirst, FieldOrder::SequenceFirst])),
            clock in prop::sample::select(Vec::from([
                ClockPolicy::Reject, ClockPolicy::Wait { max_ms: 5 }, ClockPolicy::Keep { max_ms: 2_000 },
            ])),
            ahead_max_ms in 0_u64..50,
            spread in prop::sample::select(Vec::from([
                Spread::None, Spread::Rotating { bits: 1 }, Spread::Rotating { bits: 2 }, Spread::Random { bits: 2 },
            ])),
            seed in 0_u64..4,
        ) {
            let layout = layout(tick_ms, 1, 2, order);
            // The low bits of the other layout are not the sequence.
            let spread = if order == FieldOrder::WorkerFirst { spread } else { Spread::None };
            let options = SnowflakeOptions {
                clock, horizon_ms: 1_000, ahead_max_ms, spread, seed, ..SnowflakeOptions::new(layout)
            };
            // What a timestamp may be ahead of the clock.
            let ahead_max_ms = ahead_max_ms + if let ClockPolicy::Keep { max_ms } = clock { max_ms } else { 0 };
            let mut seed = seed;
            let mut nodes: Vec<_> = (0..3).map(|_| (Snowflake::new(options).unwrap(), None, [0_u64; 2])).collect();
            let mut skews_ms = [0_i64; 3];
            let (mut true_ms, mut store, mut ids) = (NOW_MS, Store::default(), BTreeSet::new());
            for event in events {
                match event {
                    Event::Reserve { node, max } => {
                        let now_ms = true_ms.checked_add_signed(skews_ms[node]).unwrap();
                        let (snowflake, request, last) = &mut nodes[node];
                        let blocked = snowflake.blocked(now_ms);
                        let answer = snowflake.reserve(now_ms, max);
                        prop_assert_eq!(blocked, answer.err(), "the same checks");
                        if let Ok(run) = answer {
                            let Parts { ticks: tick, worker, .. } = layout.unpack(run.first).unwrap();
                            prop_assert!(layout.tick_start_ms(tick) <= now_ms + ahead_max_ms);
                            let lease = snowflake.lease().unwrap();
                            prop_assert!(lease.not_before_ms <= layout.tick_start_ms(tick));
                            prop_assert!(layout.tick_start_ms(tick + 1) <= lease.valid_until_ms);
                            let last = &mut last[worker as usize];
                            prop_assert!(run.first > *last, "the ids of one generator ascend, under each worker");
                            *last = run.last();
                            for id in run.ids() {
                                prop_assert!(ids.insert(id), "{id} was handed out before");
                            }
                        }
                        if let Some(due) = snowflake.request(now_ms) {
                            prop_assert!(request.is_none());
                            *request = Some(due);
                        }
                        let pending = answer == Err(ReserveError::Pending);
                        prop_assert!(!pending || request.is_some(), "whoever waits, waits for an answer");
                    }
                    Event::Answer { node, lost } => {
                        let (snowflake, request, _) = &mut nodes[node];
                        if let Some(due) = request.take() {
                            let now_ms = true_ms.checked_add_signed(skews_ms[node]).unwrap();
                            match store.answer(&layout, true_ms, due) {
                                Ok(_) if lost => snowflake.failed(now_ms, StoreFailure::OutcomeUnknown),
                                Ok(lease) => snowflake.granted(now_ms, lease).unwrap(),
                                Err(failure) => snowflake.failed(now_ms, failure),
                            }
                        }
                    }
                    Event::Advance(ms) => true_ms += ms,
                    Event::Skew { node, ms } => skews_ms[node] = ms,
                    Event::Restart { node, graceful } => {
                        if let (true, Some(release)) = (graceful, nodes[node].0.close()) {
                            let record = &mut store.workers[release.worker as usize];
                            if record.0 == release.grant_id.0 && release.end_ms <= record.1 {
                                record.1 = release.end_ms;
                            }
                        }
                        seed += 1;
                        nodes[node] = (Snowflake::new(SnowflakeOptions { seed, ..options }).unwrap(), None, [0; 2]);
                    }
                }
            }
        }
    }
}
