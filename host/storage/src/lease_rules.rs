//! The rules of every lease store, as pure functions: which worker is offered, and where its interval begins and ends.
//!
//! Invariant: an interval begins at or after the greatest end recorded for its worker, and both of its bounds lie on
//! the layout's tick grid, so two leases of one worker never share a tick. Clocks decide who is offered what and how
//! long, never whether intervals are disjoint.
//!
//! A store adds what only it can: its own clock, a durable record per worker, and one transaction around reading the
//! record and writing it.

use std::ops::Range;

use unalike_core::{FieldOrder, Layout, LayoutFields, Lease, Rfc3339, is_name};

use crate::{Expiry, LeaseAcquire, LeaseExtend, StoreError};

/// What a lease store allows its holders.
///
/// ```
/// use unalike_storage::LeaseLimits;
/// let limits = LeaseLimits { max_horizon_ms: 3_600_000, ..LeaseLimits::default() };
/// assert!(limits.validate().is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseLimits {
    /// How far ahead of the store's clock a lease may reach, in milliseconds: 1 to [`LeaseLimits::HORIZON_MAX_MS`].
    /// It becomes a constant of each namespace when that is first used; later limits do not change it.
    pub max_horizon_ms: u64,
    /// How far a holder's clock may be from the store's, in milliseconds.
    pub max_skew_ms: u64,
}

impl Default for LeaseLimits {
    /// Ten minutes ahead: for that long a store that may have forgotten leases, or that took over from another one,
    /// grants none. And clocks within 10 s of each other: a synchronised clock is never that wrong, and a request that
    /// waited for its turn seldom looks so.
    fn default() -> Self {
        Self { max_horizon_ms: 10 * 60 * 1_000, max_skew_ms: 10_000 }
    }
}

impl LeaseLimits {
    /// The longest horizon: 366 days. A lease that long is a static assignment.
    pub const HORIZON_MAX_MS: u64 = 366 * 24 * 60 * 60 * 1_000;

    /// Checks the limits themselves.
    ///
    /// # Errors
    /// [`StoreError::Refused`].
    pub fn validate(&self) -> Result<(), StoreError> {
        if (1..=Self::HORIZON_MAX_MS).contains(&self.max_horizon_ms) {
            return Ok(());
        }
        Err(StoreError::refused(format!(
            "max_horizon_ms is {}, it must be 1 to {} (366 days)",
            self.max_horizon_ms,
            Self::HORIZON_MAX_MS
        )))
    }

    /// Checks that the two clocks are close enough.
    ///
    /// # Errors
    /// [`StoreError::ClockSkew`].
    pub fn check_clocks(&self, clocks: Clocks) -> Result<(), StoreError> {
        let Clocks { holder_ms, store_ms } = clocks;
        if holder_ms.abs_diff(store_ms) <= self.max_skew_ms {
            return Ok(());
        }
        Err(StoreError::ClockSkew { holder_ms, store_ms, max_skew_ms: self.max_skew_ms })
    }
}

/// The two clocks of a request.
///
/// ```
/// use unalike_storage::{Clocks, LeaseLimits};
/// let a_minute_ahead = Clocks { holder_ms: 1_060_000, store_ms: 1_000_000 };
/// assert!(LeaseLimits::default().check_clocks(a_minute_ahead).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// The holder's, in Unix milliseconds.
    pub holder_ms: u64,
    /// The store's, in Unix milliseconds.
    pub store_ms: u64,
}

/// What a namespace was bound to when it was first used; never changes.
///
/// ```
/// use unalike_storage::{Clocks, Layout, LeaseLimits, NamespaceBinding};
/// let binding = NamespaceBinding::new(Layout::TWITTER, LeaseLimits::default())?;
/// let now_ms = 1_700_000_000_000;
/// let clocks = Clocks { holder_ms: now_ms, store_ms: now_ms };
/// // The worker's last lease ended in 5 ms from now: nothing is granted before.
/// assert_eq!(binding.grant(now_ms + 5, clocks, 60_000)?, now_ms + 5..now_ms + 60_000);
/// # Ok::<(), unalike_storage::StoreError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceBinding {
    /// The layout of its ids.
    pub layout: Layout,
    /// How far ahead of the store's clock its leases may reach, in milliseconds: a tick of the layout at least.
    pub max_horizon_ms: u64,
    /// No lease starts before this instant, in Unix milliseconds: the end of a quarantine, where the store may have
    /// forgotten leases. 0 where it forgets none.
    pub floor_ms: u64,
}

impl NamespaceBinding {
    /// The binding of a namespace that is used for the first time.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when the horizon has no room for a tick of the layout.
    pub fn new(layout: Layout, limits: LeaseLimits) -> Result<Self, StoreError> {
        limits.validate()?;
        if limits.max_horizon_ms < u64::from(layout.tick_ms()) {
            return Err(StoreError::refused(format!(
                "max_horizon_ms is {}, shorter than a tick of the layout {layout}: no lease would hold one",
                limits.max_horizon_ms
            )));
        }
        Ok(Self { layout, max_horizon_ms: limits.max_horizon_ms, floor_ms: 0 })
    }

    /// What a store without columns of its own keeps of a binding: names and whole numbers.
    #[must_use]
    pub fn figures(&self) -> [(&'static str, u64); 10] {
        let fields = self.layout.fields();
        [
            ("timestamp_bits", fields.timestamp_bits.into()),
            ("datacenter_bits", fields.datacenter_bits.into()),
            ("worker_bits", fields.worker_bits.into()),
            ("sequence_bits", fields.sequence_bits.into()),
            ("sequence_first", (fields.order == FieldOrder::SequenceFirst).into()),
            ("epoch_ms", fields.epoch_ms),
            ("tick_ms", fields.tick_ms.into()),
            ("max_horizon_ms", self.max_horizon_ms),
            ("floor_ms", self.floor_ms),
            ("version", 1),
        ]
    }

    /// The binding of these figures, of which `figure` gives one by its name.
    ///
    /// # Errors
    /// What `figure` answers; within, a reason why the figures are not a binding of this version.
    pub fn read<E>(mut figure: impl FnMut(&'static str) -> Result<u64, E>) -> Result<Result<Self, String>, E> {
        let version = figure("version")?;
        if version != 1 {
            return Ok(Err(format!("the lease namespace has the version {version}, and this program knows only 1")));
        }
        // What does not fit is out of every range.
        let mut bits = |name| figure(name).map(|bits| u8::try_from(bits).unwrap_or(u8::MAX));
        let fields = LayoutFields {
            timestamp_bits: bits("timestamp_bits")?,
            datacenter_bits: bits("datacenter_bits")?,
            worker_bits: bits("worker_bits")?,
            sequence_bits: bits("sequence_bits")?,
            order: match figure("sequence_first")? {
                0 => FieldOrder::WorkerFirst,
                _ => FieldOrder::SequenceFirst,
            },
            epoch_ms: figure("epoch_ms")?,
            tick_ms: u32::try_from(figure("tick_ms")?).unwrap_or(0),
        };
        let (max_horizon_ms, floor_ms) = (figure("max_horizon_ms")?, figure("floor_ms")?);
        let layout = Layout::new(fields).map_err(|error| error.to_string());
        Ok(layout.map(|layout| Self { layout, max_horizon_ms, floor_ms }))
    }

    /// Refuses everything while the store may have forgotten leases that still run.
    ///
    /// # Errors
    /// [`StoreError::Quarantined`].
    pub fn check_quarantine(&self, namespace: &str, store_ms: u64) -> Result<(), StoreError> {
        if self.floor_ms <= store_ms {
            return Ok(());
        }
        Err(StoreError::Quarantined { namespace: namespace.to_owned(), until_ms: self.floor_ms })
    }

    /// Checks that a request is for the layout that the namespace is bound to.
    ///
    /// # Errors
    /// [`StoreError::LayoutMismatch`].
    pub fn check_layout(&self, namespace: &str, offered: Layout) -> Result<(), StoreError> {
        if offered == self.layout {
            return Ok(());
        }
        Err(StoreError::LayoutMismatch {
            namespace: namespace.to_owned(),
            bound: self.layout.to_string(),
            offered: offered.to_string(),
        })
    }

    /// The interval of a new lease of a worker whose greatest recorded end is `recorded_end_ms` (0 if it was never
    /// used).
    ///
    /// It begins at the earlier clock, so that a holder whose clock is behind need not wait for it, and at the
    /// beginning of the tick in which that clock is: the tick is the worker's own from the recorded end on.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when it would hold no tick: the clock is before the layout's epoch.
    #[expect(clippy::panic_in_result_fn, reason = "the one promise of this function, checked in release builds too")]
    pub fn grant(&self, recorded_end_ms: u64, clocks: Clocks, horizon_ms: u64) -> Result<Range<u64>, StoreError> {
        let bound_ms = recorded_end_ms.max(self.floor_ms);
        let start_ms = self.layout.round_up_ms(bound_ms).max(self.grid_down(clocks.holder_ms.min(clocks.store_ms)));
        let end_ms = self.horizon_end_ms(clocks.store_ms, horizon_ms);
        if start_ms >= end_ms {
            return Err(StoreError::refused(format!(
                "no tick of the layout {} lies between {}, where the lease could begin, and {}, where it would have to end; \
                 the store's clock is {}",
                self.layout,
                Rfc3339(start_ms),
                Rfc3339(end_ms),
                Rfc3339(clocks.store_ms)
            )));
        }
        assert!(start_ms >= bound_ms, "a lease never begins before its predecessor's end");
        Ok(start_ms..end_ms)
    }

    /// Where a lease that ends at `valid_until_ms` ends after an extension: never earlier.
    #[must_use]
    pub fn extended_end_ms(&self, valid_until_ms: u64, store_ms: u64, horizon_ms: u64) -> u64 {
        valid_until_ms.max(self.horizon_end_ms(store_ms, horizon_ms))
    }

    /// Where this lease ends when its holder gives it back at `end_ms`; `None` when that is past its end.
    ///
    /// Never before its start, whatever the holder says: what lies there belongs to predecessors.
    #[must_use]
    pub fn released_end_ms(&self, lease: &Lease, end_ms: u64) -> Option<u64> {
        if end_ms > lease.valid_until_ms {
            return None;
        }
        Some(self.layout.round_up_ms(end_ms).clamp(lease.not_before_ms, lease.valid_until_ms))
    }

    /// Refuses a lease that reaches too far by the store's clock: another one decided its end, and stood further ahead.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub fn check_horizon(&self, lease: &Lease, store_ms: u64) -> Result<(), StoreError> {
        let (valid_until_ms, max_horizon_ms) = (lease.valid_until_ms, self.max_horizon_ms);
        if valid_until_ms <= store_ms.saturating_add(max_horizon_ms) {
            return Ok(());
        }
        Err(StoreError::unavailable(format!(
            "the store's clock went back to {}, and a lease of worker {} is recorded up to {}, more than {max_horizon_ms} ms \
             ahead: set the clocks of all its servers",
            Rfc3339(store_ms),
            lease.worker,
            Rfc3339(valid_until_ms)
        )))
    }

    fn horizon_end_ms(&self, store_ms: u64, horizon_ms: u64) -> u64 {
        self.grid_down(store_ms.saturating_add(horizon_ms.min(self.max_horizon_ms)))
    }

    /// The beginning of the tick in which `at_ms` lies; the epoch for all that is before.
    #[must_use]
    pub fn grid_down(&self, at_ms: u64) -> u64 {
        self.layout.tick_at(at_ms).map_or(self.layout.epoch_ms(), |tick| self.layout.tick_start_ms(tick))
    }
}

/// A worker that was granted before, or is asked for by number.
///
/// ```
/// use unalike_storage::{Candidates, Choice, UsedWorker};
/// let ended = UsedWorker { worker: 3, end_ms: 1_000 };
/// let candidates = Candidates { workers: 8, used: 1, previous: Some(ended), oldest: Some(ended), preferred: None };
/// assert_eq!(candidates.choose(2_000, 0), Choice::Worker(ended));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedWorker {
    /// The worker.
    pub worker: u32,
    /// The greatest end recorded for it, in Unix milliseconds; 0 if it was never granted.
    pub end_ms: u64,
}

/// What a store must look up to choose a worker; each is one indexed read in a store that has many.
///
/// ```
/// use unalike_storage::{Candidates, Choice};
/// let unused = Candidates { workers: 1_024, ..Candidates::default() };
/// assert!(matches!(unused.choose(0, 77), Choice::NeverUsed { nth: 77 }));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    /// How many worker ids the layout has.
    pub workers: u64,
    /// How many of them were ever granted.
    pub used: u64,
    /// The worker that the holder asked for.
    pub preferred: Option<UsedWorker>,
    /// Of the ended leases of this holder's name, the worker of the one that ended last.
    pub previous: Option<UsedWorker>,
    /// Of all workers ever granted, the one that ended, or will end, first.
    pub oldest: Option<UsedWorker>,
}

/// Which worker is offered.
///
/// ```
/// use unalike_storage::{Candidates, Choice, UsedWorker};
/// let busy = Some(UsedWorker { worker: 0, end_ms: 5_000 });
/// let full = Candidates { workers: 1, used: 1, oldest: busy, ..Candidates::default() };
/// assert_eq!(full.choose(1_000, 0), Choice::Exhausted { free_at_ms: 5_000 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// This one.
    Worker(UsedWorker),
    /// One that was never granted: see [`nth_never_used`].
    NeverUsed {
        /// Its place among those that were never granted, counted from 0.
        nth: u64,
    },
    /// None: all are under a lease.
    Exhausted {
        /// When the first lease ends, in Unix milliseconds.
        free_at_ms: u64,
    },
}

impl Candidates {
    /// Chooses by the rule of [`LeaseStore::acquire`](crate::LeaseStore::acquire). The store's clock says which leases
    /// have ended, where it is not known to have been set.
    ///
    /// `random` places the choice among the workers that were never used: at random, so that even separate stores
    /// seldom meet.
    #[must_use]
    pub fn choose(&self, expiry: impl Into<Expiry>, random: u64) -> Choice {
        let expiry = expiry.into();
        let is_free = |candidate: &UsedWorker| expiry.has_ended(candidate.end_ms);
        if let Some(worker) = self.preferred.filter(is_free).or(self.previous.filter(is_free)) {
            return Choice::Worker(worker);
        }
        let never_used = self.workers.saturating_sub(self.used);
        if let Some(nth) = random.checked_rem(never_used) {
            return Choice::NeverUsed { nth };
        }
        match self.oldest {
            Some(oldest) if is_free(&oldest) => Choice::Worker(oldest),
            Some(oldest) => Choice::Exhausted { free_at_ms: expiry.ends_at_ms(oldest.end_ms) },
            // A layout has one worker at least, so a store that has no oldest has one that was never used.
            None => Choice::Exhausted { free_at_ms: expiry.clock_ms() },
        }
    }
}

/// Chooses a worker where the store has all that were ever granted at hand: by worker, the greatest end that is
/// recorded for each and the name of its last holder. Which leases have ended is decided by the store's clock, in Unix
/// milliseconds, or by what [`ClockSteps`](crate::ClockSteps) makes of it.
///
/// # Errors
/// [`StoreError::WorkersExhausted`].
///
/// ```
/// use unalike_storage::{Layout, LeaseAcquire, UsedWorker, choose_worker};
/// # let acquire = LeaseAcquire {
/// #     namespace: "default".to_owned(), layout: Layout::TWITTER, holder: "host-a".to_owned(),
/// #     preferred_worker: None, now_ms: 2_000, horizon_ms: 60_000,
/// # };
/// let ended = UsedWorker { worker: 3, end_ms: 1_000 };
/// assert_eq!(choose_worker(&acquire, 2_000, 77, [(ended, "host-a")])?, ended);
/// # Ok::<(), unalike_storage::StoreError>(())
/// ```
pub fn choose_worker<'r>(
    acquire: &LeaseAcquire,
    expiry: impl Into<Expiry>,
    random: u64,
    used: impl IntoIterator<Item = (UsedWorker, &'r str)>,
) -> Result<UsedWorker, StoreError> {
    let expiry = expiry.into();
    let mut candidates = Candidates {
        workers: acquire.layout.workers(),
        preferred: acquire.preferred_worker.map(|worker| UsedWorker { worker, end_ms: 0 }),
        ..Candidates::default()
    };
    let mut workers = Vec::new();
    for (worker, holder) in used {
        workers.push(worker.worker);
        candidates.used += 1;
        if let Some(preferred) = candidates.preferred.as_mut().filter(|preferred| preferred.worker == worker.worker) {
            *preferred = worker;
        }
        let is_previous = !acquire.holder.is_empty() && holder == acquire.holder && expiry.has_ended(worker.end_ms);
        if is_previous && candidates.previous.is_none_or(|previous| previous.end_ms < worker.end_ms) {
            candidates.previous = Some(worker);
        }
        let ends_ms = |worker: UsedWorker| expiry.ends_at_ms(worker.end_ms);
        if candidates.oldest.is_none_or(|oldest| ends_ms(worker) < ends_ms(oldest)) {
            candidates.oldest = Some(worker);
        }
    }
    let exhausted = |free_at_ms| StoreError::WorkersExhausted {
        namespace: acquire.namespace.clone(),
        workers: candidates.workers,
        free_at_ms,
    };
    let clock_ms = expiry.clock_ms();
    match candidates.choose(expiry, random) {
        Choice::Worker(worker) => Ok(worker),
        Choice::Exhausted { free_at_ms } => Err(exhausted(free_at_ms)),
        Choice::NeverUsed { nth } => {
            let worker = nth_never_used(nth, workers).ok_or_else(|| exhausted(clock_ms))?;
            Ok(UsedWorker { worker, end_ms: 0 })
        }
    }
}

/// [`choose_worker`] where several may choose at once, and whoever comes second chooses again: after the first such
/// `race` at random among the workers that are free, since many may want the one that ended longest ago. A wish is
/// kept.
///
/// # Errors
/// [`StoreError::WorkersExhausted`].
pub fn choose_worker_after_races(
    acquire: &LeaseAcquire,
    expiry: &Expiry,
    random: u64,
    used: &[(UsedWorker, &str)],
    race: u32,
) -> Result<UsedWorker, StoreError> {
    let chosen = choose_worker(acquire, expiry.clone(), random, used.iter().copied())?;
    if race == 0 || chosen.end_ms == 0 || acquire.preferred_worker == Some(chosen.worker) {
        return Ok(chosen);
    }
    let free: Vec<_> = used.iter().map(|(used, _)| *used).filter(|used| expiry.has_ended(used.end_ms)).collect();
    let nth = usize::try_from(random % 65_536).unwrap_or(0).checked_rem(free.len());
    Ok(nth.and_then(|nth| free.get(nth).copied()).unwrap_or(chosen))
}

/// The `nth` worker, counted from 0, that is not among `used`, which ascends without repetition.
///
/// ```
/// # use unalike_storage::nth_never_used;
/// assert_eq!(nth_never_used(0, [0, 1, 3]), Some(2));
/// assert_eq!(nth_never_used(1, [0, 1, 3]), Some(4));
/// ```
#[must_use]
pub fn nth_never_used(nth: u64, used: impl IntoIterator<Item = u32>) -> Option<u32> {
    let mut worker = nth;
    for used in used {
        if u64::from(used) > worker {
            break;
        }
        worker = worker.checked_add(1)?;
    }
    u32::try_from(worker).ok()
}

impl LeaseAcquire {
    /// Checks the request itself.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when a name is not well formed, the preferred worker does not fit the layout, or the
    /// horizon is shorter than a tick.
    pub fn validate(&self) -> Result<(), StoreError> {
        validate_names(&self.namespace, &self.holder)?;
        if let Some(worker) = self.preferred_worker.filter(|&worker| worker > self.layout.worker_max()) {
            return Err(StoreError::refused(format!(
                "worker {worker} is preferred, but the workers of the layout {} are 0 to {}",
                self.layout,
                self.layout.worker_max()
            )));
        }
        validate_horizon(&self.layout, self.horizon_ms)
    }
}

impl LeaseExtend {
    /// Checks the request itself.
    ///
    /// # Errors
    /// [`StoreError::Refused`] as [`LeaseAcquire::validate`].
    pub fn validate(&self) -> Result<(), StoreError> {
        validate_names(&self.namespace, "")?;
        validate_horizon(&self.layout, self.horizon_ms)
    }
}

fn validate_names(namespace: &str, holder: &str) -> Result<(), StoreError> {
    let (what, name) = if !is_name(namespace) {
        ("namespace", namespace)
    } else if !holder.is_empty() && !is_name(holder) {
        ("holder", holder)
    } else {
        return Ok(());
    };
    let shown: String = name.chars().take(32).collect();
    let rule = "a name is 1 to 128 bytes of UTF-8 without control characters";
    Err(StoreError::refused(format!("the {what} {shown:?} is not valid: {rule}")))
}

fn validate_horizon(layout: &Layout, horizon_ms: u64) -> Result<(), StoreError> {
    if horizon_ms >= u64::from(layout.tick_ms()) {
        return Ok(());
    }
    Err(StoreError::refused(format!(
        "a horizon of {horizon_ms} ms was asked for, shorter than a tick of the layout {layout}: no lease would hold one"
    )))
}

#[cfg(test)]
mod tests {
    use unalike_core::GrantId;

    use super::*;

    const EPOCH_MS: u64 = 1_003;

    fn binding(tick_ms: u32, max_horizon_ms: u64) -> NamespaceBinding {
        let fields = LayoutFields {
            timestamp_bits: 41,
            datacenter_bits: 0,
            worker_bits: 2,
            sequence_bits: 12,
            order: FieldOrder::WorkerFirst,
            epoch_ms: EPOCH_MS,
            tick_ms,
        };
        let limits = LeaseLimits { max_horizon_ms, ..LeaseLimits::default() };
        NamespaceBinding::new(Layout::new(fields).unwrap(), limits).unwrap()
    }

    fn at(store_ms: u64) -> Clocks {
        Clocks { holder_ms: store_ms, store_ms }
    }

    #[test]
    fn bounds_lie_on_the_grid_and_behind_the_recorded_end() {
        for tick_ms in [1, 7, 10, 1_000] {
            let binding = binding(tick_ms, 5_000);
            let on_grid = |ms: u64| (ms - EPOCH_MS).is_multiple_of(u64::from(tick_ms));
            for store_ms in 9_000..9_100 {
                let horizon_ms = 2 * u64::from(tick_ms);
                for recorded_end_ms in [0, 500, 8_999, store_ms] {
                    let lease = binding.grant(recorded_end_ms, at(store_ms), horizon_ms).unwrap();
                    assert!(on_grid(lease.start) && on_grid(lease.end), "{lease:?}");
                    assert!(recorded_end_ms <= lease.start && lease.start < lease.end);
                    assert!(lease.end <= store_ms + horizon_ms);
                }
                let shortest = binding.grant(0, at(store_ms), u64::from(tick_ms)).unwrap();
                assert!(shortest.contains(&store_ms), "one tick of horizon is the tick of now");
            }
        }
    }

    #[test]
    fn a_lease_begins_at_the_earlier_clock_unless_the_predecessor_ends_later() {
        let binding = binding(1, 5_000);
        let clocks = Clocks { holder_ms: 9_000, store_ms: 9_400 };
        assert_eq!(binding.grant(0, clocks, 100).unwrap(), 9_000..9_500);
        assert_eq!(binding.grant(9_300, clocks, 100).unwrap(), 9_300..9_500);
        assert!(matches!(binding.grant(9_600, clocks, 100), Err(StoreError::Refused { .. })));
        let ahead = Clocks { holder_ms: 9_800, store_ms: 9_400 };
        assert_eq!(binding.grant(0, ahead, 100).unwrap(), 9_400..9_500);
    }

    #[test]
    fn the_horizon_is_cut_and_an_extension_never_lowers_the_end() {
        let binding = binding(1, 5_000);
        assert_eq!(binding.grant(0, at(9_000), u64::MAX).unwrap(), 9_000..14_000);
        assert_eq!(binding.extended_end_ms(9_050, 9_000, 100), 9_100);
        assert_eq!(binding.extended_end_ms(9_050, 9_000, u64::MAX), 14_000);
        assert_eq!(binding.extended_end_ms(20_000, 9_000, 100), 20_000);
    }

    #[test]
    fn a_release_ends_at_a_tick_between_the_lease_s_own_bounds() {
        let binding = binding(10, 5_000);
        let lease = Lease { worker: 0, grant_id: GrantId(1), not_before_ms: 2_003, valid_until_ms: 2_103 };
        for (end_ms, released) in [(0, 2_003), (2_003, 2_003), (2_004, 2_013), (2_013, 2_013), (2_103, 2_103)] {
            assert_eq!(binding.released_end_ms(&lease, end_ms), Some(released));
        }
        assert_eq!(binding.released_end_ms(&lease, 2_104), None);
    }

    #[test]
    fn before_the_epoch_and_with_a_horizon_below_a_tick_nothing_is_granted() {
        let binding = binding(10, 5_000);
        assert!(matches!(binding.grant(0, at(900), 10), Err(StoreError::Refused { .. })));
        let limits = LeaseLimits { max_horizon_ms: 9, ..LeaseLimits::default() };
        assert!(matches!(NamespaceBinding::new(binding.layout, limits), Err(StoreError::Refused { .. })));
    }

    #[test]
    fn nothing_starts_in_a_quarantine() {
        let binding = NamespaceBinding { floor_ms: 9_500, ..binding(1, 5_000) };
        let quarantined = binding.check_quarantine("ns", 9_499).unwrap_err();
        assert!(matches!(quarantined, StoreError::Quarantined { until_ms: 9_500, .. }), "{quarantined}");
        binding.check_quarantine("ns", 9_500).unwrap();
        assert_eq!(binding.grant(0, at(9_500), 100).unwrap(), 9_500..9_600);
        // Also where nobody asked, and where a clock is behind.
        assert_eq!(binding.grant(0, at(9_450), 100).unwrap(), 9_500..9_550);
        assert_eq!(binding.grant(0, Clocks { holder_ms: 9_000, store_ms: 9_500 }, 100).unwrap(), 9_500..9_600);
    }

    #[test]
    fn a_binding_is_read_from_what_is_kept_of_it() {
        for tick_ms in [1, 1_000] {
            let binding = NamespaceBinding { floor_ms: 77, ..binding(tick_ms, 5_000) };
            let figures = binding.figures();
            let read = |figures: &[(&str, u64)]| {
                NamespaceBinding::read(|name| {
                    figures.iter().find(|(known, _)| *known == name).map(|(_, figure)| *figure).ok_or(name)
                })
            };
            assert_eq!(read(&figures), Ok(Ok(binding)));
            for (at, &(name, _)) in figures.iter().enumerate() {
                let mut missing = figures.to_vec();
                missing.remove(at);
                assert_eq!(read(&missing), Err(name));
            }
            for damage in [("version", 2), ("tick_ms", 1 << 40), ("sequence_bits", 300), ("timestamp_bits", 0)] {
                let damaged: Vec<_> =
                    figures.iter().map(|&figure| if figure.0 == damage.0 { damage } else { figure }).collect();
                assert!(matches!(read(&damaged), Ok(Err(_))), "{damage:?}");
            }
        }
    }

    #[test]
    fn workers_are_chosen_among_all_that_are_at_hand() {
        let acquire = |holder: &str, preferred_worker| LeaseAcquire {
            namespace: "ns".to_owned(),
            layout: binding(1, 5_000).layout,
            holder: holder.to_owned(),
            preferred_worker,
            now_ms: 100,
            horizon_ms: 100,
        };
        let used = |worker, end_ms| UsedWorker { worker, end_ms };
        let all = [(used(0, 50), "a"), (used(1, 150), "a"), (used(2, 40), "b")];
        assert_eq!(choose_worker(&acquire("a", None), 100, 9, all).unwrap(), used(0, 50));
        assert_eq!(choose_worker(&acquire("a", Some(2)), 100, 9, all).unwrap(), used(2, 40));
        assert_eq!(choose_worker(&acquire("a", Some(1)), 100, 9, all).unwrap(), used(0, 50), "it is not free");
        assert_eq!(choose_worker(&acquire("", Some(3)), 100, 9, all).unwrap(), used(3, 0), "never used");
        assert_eq!(choose_worker(&acquire("", None), 100, 9, all).unwrap(), used(3, 0));
        let full = [(used(0, 150), "a"), (used(1, 150), "a"), (used(2, 140), "b"), (used(3, 180), "")];
        let exhausted = choose_worker(&acquire("a", None), 100, 9, full).unwrap_err();
        assert!(matches!(exhausted, StoreError::WorkersExhausted { workers: 4, free_at_ms: 140, .. }), "{exhausted}");
    }

    #[test]
    fn whoever_lost_a_race_takes_another_way() {
        let layout = Layout::LEAF;
        let mut acquire = LeaseAcquire {
            namespace: "ns".to_owned(),
            layout,
            holder: "late".to_owned(),
            preferred_worker: None,
            now_ms: 9_000,
            horizon_ms: 1_000,
        };
        // All but the last 24 have ended, and 7 ended first.
        let used: Vec<_> = (0..1_024)
            .map(|worker| {
                let end_ms = if worker == 7 { 100 } else { 8_000 + u64::from(worker) };
                (UsedWorker { worker, end_ms }, "")
            })
            .collect();
        let mut chosen = |preferred_worker, race, random| {
            acquire.preferred_worker = preferred_worker;
            choose_worker_after_races(&acquire, &9_000.into(), random, &used, race).unwrap().worker
        };
        assert_eq!(chosen(None, 0, 5), 7);
        let draws: std::collections::BTreeSet<_> = (0..50).map(|random| chosen(None, 1, random * 7_919)).collect();
        assert!(draws.len() > 10 && draws.iter().all(|&worker| worker <= 1_000), "{draws:?}");
        assert_eq!(chosen(Some(500), 1, 5), 500, "a wish is kept");
    }

    #[test]
    fn a_lease_that_reaches_too_far_is_told() {
        let lease = Lease { worker: 0, grant_id: GrantId(1), not_before_ms: 2_003, valid_until_ms: 9_000 };
        let binding = binding(10, 5_000);
        binding.check_horizon(&lease, 4_000).unwrap();
        assert!(binding.check_horizon(&lease, 3_999).unwrap_err().to_string().contains("went back"));
    }

    #[test]
    fn workers_are_chosen_in_the_documented_order() {
        let ended = |worker| Some(UsedWorker { worker, end_ms: 50 });
        let running = |worker| Some(UsedWorker { worker, end_ms: 150 });
        let all = Candidates { workers: 4, used: 3, preferred: ended(0), previous: ended(1), oldest: ended(2) };
        let chosen = |candidates: Candidates| candidates.choose(100, 7);
        assert_eq!(chosen(all), Choice::Worker(UsedWorker { worker: 0, end_ms: 50 }));
        assert_eq!(
            chosen(Candidates { preferred: running(0), ..all }),
            Choice::Worker(UsedWorker { worker: 1, end_ms: 50 })
        );
        let rest = Candidates { preferred: running(0), previous: running(1), ..all };
        assert_eq!(chosen(rest), Choice::NeverUsed { nth: 0 });
        assert_eq!(chosen(Candidates { used: 0, ..rest }), Choice::NeverUsed { nth: 3 });
        let full = Candidates { used: 4, ..rest };
        assert_eq!(chosen(full), Choice::Worker(UsedWorker { worker: 2, end_ms: 50 }));
        assert_eq!(chosen(Candidates { oldest: running(2), ..full }), Choice::Exhausted { free_at_ms: 150 });
    }

    #[test]
    fn never_used_workers_are_counted_past_the_used_ones() {
        let used = [0, 2, 3, 7];
        let never_used: Vec<_> = (0..4).filter_map(|nth| nth_never_used(nth, used)).collect();
        assert_eq!(never_used, [1, 4, 5, 6]);
        assert_eq!(nth_never_used(5, []), Some(5));
        assert_eq!(nth_never_used(u64::from(u32::MAX), [0]), None);
    }
}
