//! What the clock of a member shows, to better than the second in which it is told.
//!
//! Each reading says in which second the clock was at some instant between question and answer. All readings together
//! leave an interval for how far it is from the monotonic clock of this process, which becomes narrower whenever a
//! second begins between two of them. Within the interval it is taken to be where the clocks of holders are, as long as
//! they are in it: so clocks that agree are taken to agree to the millisecond, and one that is off moves nothing.

use std::time::Instant;

/// Clocks drift apart: what was learned before so long is forgotten, in microseconds.
const DRIFT_AFTER_US: i64 = 600_000_000;

/// How far a member's clock is ahead of the time since `base`, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemberClock {
    base: Instant,
    /// At least so far.
    least_us: i64,
    /// Less than that.
    below_us: i64,
    /// Where it is taken to be.
    taken_us: i64,
    /// When the first of these readings was made, after `base`.
    since_us: i64,
}

/// A clock that was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// The second that it showed, in Unix milliseconds.
    pub(crate) second_ms: u64,
    pub(crate) asked: Instant,
    pub(crate) answered: Instant,
}

impl MemberClock {
    /// After its first reading.
    fn new(base: Instant, reading: &Reading) -> Self {
        let (least_us, below_us) = bounds(base, reading);
        Self { base, least_us, below_us, taken_us: least_us, since_us: micros(base, reading.asked) }
    }

    /// Notes a reading. If it does not fit to those before, the clock was set, and they say nothing any more.
    pub(crate) fn note(before: Option<Self>, base: Instant, reading: &Reading) -> Self {
        let new = Self::new(base, reading);
        let Some(before) = before.filter(|before| new.since_us - before.since_us < DRIFT_AFTER_US) else { return new };
        let least_us = before.least_us.max(new.least_us);
        let below_us = before.below_us.min(new.below_us);
        if least_us >= below_us {
            return new;
        }
        let taken_us = before.taken_us.clamp(least_us, below_us - 1);
        Self { least_us, below_us, taken_us, ..before }
    }

    /// Takes it to be where a holder's clock is, which showed `holder_ms` at that instant, if it may be there and that
    /// is later than it was taken to be: it never goes back for that.
    pub(crate) fn near(mut self, holder_ms: u64, at: Instant) -> Self {
        let holder_us = i64::try_from(holder_ms).unwrap_or(i64::MAX).saturating_mul(1_000);
        let ahead_us = holder_us.saturating_sub(micros(self.base, at));
        if (self.taken_us..self.below_us).contains(&ahead_us) {
            self.taken_us = ahead_us;
        }
        self
    }

    /// What it shows at that instant, in Unix milliseconds.
    pub(crate) fn shows_ms(&self, at: Instant) -> u64 {
        u64::try_from(self.taken_us.saturating_add(micros(self.base, at)) / 1_000).unwrap_or(0)
    }
}

fn bounds(base: Instant, reading: &Reading) -> (i64, i64) {
    let second_us = i64::try_from(reading.second_ms).unwrap_or(i64::MAX / 2_000).saturating_mul(1_000);
    (
        second_us.saturating_sub(micros(base, reading.answered)),
        second_us.saturating_add(1_000_000).saturating_sub(micros(base, reading.asked)),
    )
}

fn micros(base: Instant, at: Instant) -> i64 {
    i64::try_from(at.saturating_duration_since(base).as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const TRUE_MS: u64 = 1_700_000_000_400;

    /// A reading so many ms after `base`, at which the clock shows [`TRUE_MS`], that took 2 ms.
    fn reading(base: Instant, after_ms: u64) -> Reading {
        let asked = base + Duration::from_millis(after_ms);
        let second_ms = (TRUE_MS + after_ms + 1) / 1_000 * 1_000;
        Reading { second_ms, asked, answered: asked + Duration::from_millis(2) }
    }

    #[test]
    fn readings_around_the_beginning_of_a_second_tell_the_clock() {
        let base = Instant::now();
        let mut clock = MemberClock::note(None, base, &reading(base, 0));
        assert_eq!(clock.shows_ms(base), TRUE_MS - 402, "at least that");
        for after_ms in [590, 597, 600, 605, 1_600] {
            let before = clock.shows_ms(base);
            clock = MemberClock::note(Some(clock), base, &reading(base, after_ms));
            assert!((before..=TRUE_MS).contains(&clock.shows_ms(base)), "it never goes back, and is never ahead");
        }
        assert!(TRUE_MS - clock.shows_ms(base) < 10, "{clock:?}");
    }

    #[test]
    fn it_is_taken_to_be_where_holders_are_that_may_be_right() {
        let base = Instant::now();
        let clock = MemberClock::note(None, base, &reading(base, 0));
        let near = |clock: MemberClock, holder_ms| clock.near(holder_ms, base);
        assert_eq!(near(clock, 0).shows_ms(base), clock.shows_ms(base), "of 1970");
        assert_eq!(near(clock, TRUE_MS + 5_000).shows_ms(base), clock.shows_ms(base), "ahead");
        let right = near(clock, TRUE_MS);
        assert_eq!(right.shows_ms(base), TRUE_MS);
        assert_eq!(near(right, TRUE_MS - 100).shows_ms(base), TRUE_MS, "it does not go back");
        // What turns out to be impossible is given up.
        let ahead = near(right, TRUE_MS + 500);
        let told = MemberClock::note(Some(ahead), base, &reading(base, 595));
        assert!(told.shows_ms(base) <= TRUE_MS + 6, "{told:?}");
    }

    #[test]
    fn a_clock_that_was_set_is_read_anew() {
        let base = Instant::now();
        let clock = MemberClock::note(None, base, &reading(base, 0));
        for set_ms in [TRUE_MS - 86_400_000, TRUE_MS + 86_400_000] {
            let second_ms = set_ms / 1_000 * 1_000;
            let set = MemberClock::note(Some(clock), base, &Reading { second_ms, ..reading(base, 10) });
            assert!(set.shows_ms(base).abs_diff(set_ms) < 1_100, "{set:?}");
        }
    }
}
