//! Steps forward of a store's clock, which end nobody's lease: a clock that shows tomorrow for an instant, or that is
//! set right, says nothing of how long a holder has not asked.
//!
//! Invariant: a lease that was running by the clock before a step forward is taken to run for as long as it would have
//! without the step, measured by the process's monotonic clock. Holders that ask in time ask within that. Intervals are
//! disjoint whatever this says ([`NamespaceBinding::grant`](crate::NamespaceBinding::grant)): it decides who is offered
//! what, and no more.
//!
//! A process knows only the steps that it has seen: a clock that is already wrong when the process starts is taken as
//! right.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::LeaseLimits;

/// A clock that gains more than this from one reading to the next, against the monotonic one, was set.
const STEP_MS: u64 = 1_000;

/// So many steps are remembered, the newest.
const STEPS_MAX: usize = 64;

/// A store's clock as one process reads it.
///
/// ```
/// use std::time::Instant;
/// use unalike_storage::ClockSteps;
/// let (steps, now) = (ClockSteps::default(), Instant::now());
/// steps.read(now, 1_000_000);
/// // A moment later it shows tomorrow.
/// steps.read(now, 87_400_000);
/// let expiry = steps.expiry(87_400_000, 600_000);
/// assert!(!expiry.has_ended(1_060_000), "a lease that had a minute left");
/// assert!(expiry.has_ended(999_999), "one that had ended");
/// ```
#[derive(Debug, Default)]
pub struct ClockSteps {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: Option<Reading>,
    steps: Vec<Reading>,
}

/// What a clock showed, or would have shown without a step, and when.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Instant,
    clock_ms: u64,
}

impl Reading {
    /// What it would show at that instant, had nobody set it.
    fn shows_ms(self, at: Instant) -> u64 {
        self.clock_ms.saturating_add(millis(at.saturating_duration_since(self.at)))
    }
}

impl ClockSteps {
    /// Notes what the clock shows; `asked` is when it was asked. To be called with each reading.
    pub fn read(&self, asked: Instant, clock_ms: u64) {
        self.note(asked, Instant::now(), clock_ms);
    }

    /// [`ClockSteps::read`] where the time is told: when the clock was asked, and when it had answered.
    pub fn note(&self, asked: Instant, answered: Instant, clock_ms: u64) {
        let mut state = self.lock();
        // The answers of two requests may come in the other order: the older one tells nothing.
        if state.last.is_some_and(|last| last.at > asked) {
            return;
        }
        if let Some(last) = state.last {
            let expected_ms = last.shows_ms(answered);
            if clock_ms > expected_ms.saturating_add(STEP_MS) {
                if state.steps.len() >= STEPS_MAX {
                    state.steps.remove(0);
                }
                state.steps.push(Reading { at: answered, clock_ms: expected_ms });
            }
        }
        state.last = Some(Reading { at: asked, clock_ms });
    }

    /// Which leases have ended, by this reading of the clock, in a namespace with this bound of its leases.
    #[must_use]
    pub fn expiry(&self, clock_ms: u64, max_horizon_ms: u64) -> Expiry {
        self.expiry_at(Instant::now(), clock_ms, max_horizon_ms)
    }

    /// [`ClockSteps::expiry`] where the present is told.
    #[must_use]
    pub fn expiry_at(&self, now: Instant, clock_ms: u64, max_horizon_ms: u64) -> Expiry {
        let mut state = self.lock();
        let longest = Duration::from_millis(LeaseLimits::HORIZON_MAX_MS);
        state.steps.retain(|step| now.saturating_duration_since(step.at) < longest);
        let running = state.steps.iter().map(|step| Running {
            after_ms: step.shows_ms(now),
            up_to_ms: step.clock_ms.saturating_add(max_horizon_ms),
        });
        // Where the clock before is not behind, it says nothing else.
        let running = running.filter(|running| running.after_ms < running.up_to_ms && running.after_ms < clock_ms);
        Expiry { clock_ms, running: running.collect() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // It is whole after every statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends of leases that are still to come by a clock before a step: in
/// `(after_ms, up_to_ms]`, as that clock granted none beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Running {
    /// What that clock would show now.
    after_ms: u64,
    up_to_ms: u64,
}

/// Which leases have ended: a reading of a store's clock, and what is known of its steps.
///
/// ```
/// use unalike_storage::Expiry;
/// let expiry = Expiry::from(1_000);
/// assert!(expiry.has_ended(1_000) && !expiry.has_ended(1_001));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiry {
    clock_ms: u64,
    running: Vec<Running>,
}

impl From<u64> for Expiry {
    /// By a clock, in Unix milliseconds, that was not set.
    fn from(clock_ms: u64) -> Self {
        Self { clock_ms, running: Vec::new() }
    }
}

impl Expiry {
    /// The clock, in Unix milliseconds.
    #[must_use]
    pub fn clock_ms(&self) -> u64 {
        self.clock_ms
    }

    /// Whether only the clock says it.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.running.is_empty()
    }

    /// Whether a lease with this recorded end, in Unix milliseconds, has ended.
    #[must_use]
    pub fn has_ended(&self, end_ms: u64) -> bool {
        self.ends_at_ms(end_ms) <= self.clock_ms
    }

    /// When it will have ended, or has, by the clock as it runs now.
    #[must_use]
    pub fn ends_at_ms(&self, end_ms: u64) -> u64 {
        if end_ms > self.clock_ms {
            return end_ms;
        }
        let runs = self.running.iter().filter(|running| running.after_ms < end_ms && end_ms <= running.up_to_ms);
        let left_ms = runs.map(|running| end_ms - running.after_ms).max();
        left_ms.map_or(end_ms, |left_ms| self.clock_ms.saturating_add(left_ms))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = 86_400_000;
    const HORIZON_MS: u64 = 600_000;
    const START_MS: u64 = 1_700_000_000_000;

    struct Scene {
        steps: ClockSteps,
        began: Instant,
    }

    impl Scene {
        fn new() -> Self {
            let scene = Self { steps: ClockSteps::default(), began: Instant::now() };
            scene.read(0, 0);
            scene
        }

        /// So long after the beginning the clock is so far ahead.
        fn read(&self, after_ms: u64, ahead_ms: u64) -> Expiry {
            let at = self.began + Duration::from_millis(after_ms);
            let clock_ms = START_MS + after_ms + ahead_ms;
            self.steps.note(at, at, clock_ms);
            self.steps.expiry_at(at, clock_ms, HORIZON_MS)
        }
    }

    #[test]
    fn a_clock_that_shows_tomorrow_for_an_instant_ends_no_lease() {
        let scene = Scene::new();
        let jumped = scene.read(10, DAY_MS);
        assert!(!jumped.has_ended(START_MS + 60_000) && !jumped.has_ended(START_MS + HORIZON_MS));
        assert!(jumped.has_ended(START_MS) && jumped.has_ended(START_MS + 10));
        assert_eq!(jumped.ends_at_ms(START_MS + 60_010), START_MS + 10 + DAY_MS + 60_000, "a minute from now");
        let back = scene.read(20, 0);
        assert_eq!(back, Expiry::from(START_MS + 20), "nothing remains of it");
    }

    #[test]
    fn leases_end_when_they_would_have_ended_where_the_clock_stays_ahead() {
        let scene = Scene::new();
        let end_ms = START_MS + 60_000;
        for after_ms in [1, 30_000, 59_999] {
            assert!(!scene.read(after_ms, DAY_MS).has_ended(end_ms), "{after_ms}");
        }
        assert!(scene.read(60_000, DAY_MS).has_ended(end_ms));
        let beyond = START_MS + 2 * HORIZON_MS;
        assert!(scene.read(60_001, DAY_MS).has_ended(beyond), "the clock before granted none that long");
        assert!(scene.read(HORIZON_MS + 60_000, DAY_MS).is_plain(), "and then it is as if nothing had been");
    }

    #[test]
    fn leases_of_the_time_after_a_step_are_kept_over_the_next_one() {
        let scene = Scene::new();
        scene.read(1_000, DAY_MS);
        let end_ms = START_MS + 2_000 + DAY_MS + 60_000;
        let again = scene.read(2_000, 2 * DAY_MS);
        assert!(!again.has_ended(end_ms) && !again.has_ended(START_MS + 60_000));
        assert!(again.has_ended(START_MS + HORIZON_MS * 2));
    }

    #[test]
    fn a_clock_that_drifts_or_goes_back_is_followed() {
        let scene = Scene::new();
        for after_ms in 1..=100 {
            // It gains half a second every ten.
            let expiry = scene.read(after_ms * 10_000, after_ms * 500);
            assert!(expiry.is_plain(), "{expiry:?}");
        }
        let back = scene.read(1_000_010, 0);
        assert!(back.is_plain(), "{back:?}");
        assert!(scene.read(1_000_020, 0).is_plain());
    }

    #[test]
    fn answers_that_took_long_are_no_steps() {
        let steps = ClockSteps::default();
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        // Read at once, or at the last moment; the answer came ten seconds after it was asked for.
        steps.note(at(0), at(10_000), START_MS);
        steps.note(at(10_001), at(20_000), START_MS + 20_000);
        steps.note(at(20_001), at(30_000), START_MS + 20_001);
        assert!(steps.expiry_at(at(30_001), START_MS + 30_001, HORIZON_MS).is_plain());
        // One that was asked for before another tells nothing.
        steps.note(at(30_100), at(30_101), START_MS + 30_100);
        steps.note(at(0), at(30_102), START_MS + 30_102 + DAY_MS);
        assert!(steps.expiry_at(at(30_103), START_MS + 30_103, HORIZON_MS).is_plain());
    }
}
