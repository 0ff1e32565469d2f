//! How far the ceiling of a tag is raised, and when: by what was used in the last 5 and 30 minutes.
//!
//! The rules are those of the Redis counter with a ceiling in MySQL: forecast the use of the next hour, and raise the
//! ceiling by it when what is left will not last 15 minutes. Two things are added. A quarter of the newest raise must
//! be left, so that a tag whose use is not known yet does not run dry; and a raise that did not last 15 minutes is
//! followed by one twice as large.

/// Numbers that Redis can keep count of: below 2^53.
pub(crate) const NUMBERS_MAX: u64 = (1 << 53) - 1;

const MINUTE_MS: u64 = 60 * 1_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

/// What is left must last this long.
const COVER_MS: u64 = 15 * MINUTE_MS;

/// How far the two figures of use look back.
const RECENTLY_MS: u64 = 5 * MINUTE_MS;
const LONG_TERM_MS: u64 = 30 * MINUTE_MS;

/// Numbers used over a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) numbers: u64,
    pub(crate) over_ms: u64,
}

impl Use {
    /// As many in an hour, if it goes on so. A stretch of less than a minute counts as one: the first moments of a
    /// tag say little.
    fn in_an_hour(self) -> u64 {
        let over_ms = u128::from(self.over_ms.max(MINUTE_MS));
        let numbers = (u128::from(self.numbers) * u128::from(HOUR_MS)).div_ceil(over_ms);
        u64::try_from(numbers).unwrap_or(u64::MAX)
    }
}

/// What is known of a tag's use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    /// In the last 5 minutes.
    pub(crate) recently: Use,
    /// In the last 30 minutes.
    pub(crate) long_term: Use,
    /// How many numbers the newest raise had; 0 before the first one.
    pub(crate) raised_by: u64,
    /// How long ago it was.
    pub(crate) raised_ago_ms: u64,
}

/// How many numbers a raise has, at least and at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// 1 or more.
    pub(crate) min: u64,
    /// At most [`NUMBERS_MAX`].
    pub(crate) max: u64,
}

impl Demand {
    /// What the next hour will use: as much as the busier of the two stretches promises.
    pub(crate) fn next_hour(&self) -> u64 {
        self.recently.in_an_hour().max(self.long_term.in_an_hour())
    }

    /// A raise is due when fewer numbers than this are left.
    pub(crate) fn low(&self) -> u64 {
        let cover = u128::from(self.next_hour()) * u128::from(COVER_MS) / u128::from(HOUR_MS);
        u64::try_from(cover).unwrap_or(u64::MAX).max(self.raised_by / 4)
    }

    /// How many numbers a raise has now, where `left` are left and somebody waits for `wanted`.
    pub(crate) fn raise_by(&self, left: u64, wanted: u64, bounds: Bounds) -> u64 {
        let was_short = self.raised_by > 0 && self.raised_ago_ms < COVER_MS;
        let jump = if was_short { self.raised_by.saturating_mul(2) } else { 0 };
        let room = NUMBERS_MAX.saturating_sub(left).max(1);
        self.next_hour().max(jump).max(wanted).clamp(bounds.min, bounds.max).min(room)
    }

    /// The same after a raise by `count`, just now.
    pub(crate) fn raised(self, count: u64) -> Self {
        Self { raised_by: count, raised_ago_ms: 0, ..self }
    }
}

/// What had been used at points of time, `ms used;ms used;..` in ascending order, up to now: the use of the last 5 and
/// of the last 30 minutes.
pub(crate) fn uses(samples: &str, now_ms: u64, used: u64) -> (Use, Use) {
    let samples: Vec<(u64, u64)> = samples
        .split_terminator(';')
        .filter_map(|sample| {
            let (at_ms, used) = sample.split_once(' ')?;
            Some((at_ms.parse().ok()?, used.parse().ok()?))
        })
        // A clock that went back makes the newest ones useless.
        .filter(|&(at_ms, _)| at_ms <= now_ms)
        .collect();
    let over = |window_ms: u64| {
        let from = samples.iter().rev().find(|(at_ms, _)| now_ms - at_ms >= window_ms).or(samples.first());
        from.map_or(Use::default(), |&(at_ms, before)| Use {
            numbers: used.saturating_sub(before),
            over_ms: now_ms - at_ms,
        })
    };
    (over(RECENTLY_MS), over(LONG_TERM_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { min: 1_000, max: 1_000_000_000 };

    fn demand(recently: u64, long_term: u64) -> Demand {
        Demand {
            recently: Use { numbers: recently, over_ms: RECENTLY_MS },
            long_term: Use { numbers: long_term, over_ms: LONG_TERM_MS },
            raised_by: 0,
            raised_ago_ms: 0,
        }
    }

    #[test]
    fn the_next_hour_is_forecast_from_both_stretches() {
        assert_eq!(demand(100, 600).next_hour(), 1_200, "as even as it was");
        assert_eq!(demand(1_000, 600).next_hour(), 12_000, "use that grows counts at once");
        assert_eq!(demand(0, 600).next_hour(), 1_200, "use that fell is not forgotten at once");
        assert_eq!(demand(0, 0).next_hour(), 0);
        assert_eq!(demand(u64::MAX, 0).next_hour(), u64::MAX);
    }

    #[test]
    fn the_first_moments_are_not_blown_up() {
        let recently = Use { numbers: 1_000, over_ms: 10 };
        assert_eq!(Demand { recently, ..Demand::default() }.next_hour(), 60_000);
    }

    #[test]
    fn a_raise_is_due_when_what_is_left_will_not_last_15_minutes() {
        assert_eq!(demand(100, 600).low(), 300);
        assert_eq!(demand(100, 600).raised(10_000).low(), 2_500, "or when a quarter of the newest raise is left");
    }

    #[test]
    fn the_ceiling_is_raised_by_the_next_hour() {
        assert_eq!(demand(500, 600).raise_by(0, 0, BOUNDS), 6_000);
        assert_eq!(demand(1, 1).raise_by(0, 0, BOUNDS), BOUNDS.min);
        assert_eq!(demand(u64::MAX, 0).raise_by(0, 0, BOUNDS), BOUNDS.max);
        assert_eq!(demand(1, 1).raise_by(0, 5_000, BOUNDS), 5_000, "or by what somebody waits for");
        assert_eq!(demand(1, 1).raise_by(0, u64::MAX, BOUNDS), BOUNDS.max);
    }

    #[test]
    fn a_raise_that_did_not_last_is_followed_by_a_greater_one() {
        let soon = Demand { raised_by: 50_000, raised_ago_ms: COVER_MS - 1, ..demand(500, 600) };
        assert_eq!(soon.raise_by(0, 0, BOUNDS), 100_000);
        let later = Demand { raised_ago_ms: COVER_MS, ..soon };
        assert_eq!(later.raise_by(0, 0, BOUNDS), 6_000);
    }

    #[test]
    fn no_more_is_left_than_redis_can_count() {
        let bounds = Bounds { min: 1, max: NUMBERS_MAX };
        assert_eq!(demand(u64::MAX, 0).raise_by(NUMBERS_MAX - 7, 0, bounds), 7);
    }

    #[test]
    fn use_is_counted_back_to_the_note_that_is_old_enough() {
        let minute = |minutes: u64| 10_000_000 + minutes * MINUTE_MS;
        let samples: String = (0..=40).map(|at| format!("{} {};", minute(at), at * 10)).collect();
        let (recently, long_term) = uses(&samples, minute(40) + 1, 1_000);
        assert_eq!(recently, Use { numbers: 650, over_ms: 5 * MINUTE_MS + 1 });
        assert_eq!(long_term, Use { numbers: 900, over_ms: 30 * MINUTE_MS + 1 });
        let (recently, long_term) = uses(&format!("{} 5;", minute(0)), minute(2), 25);
        assert_eq!(recently, Use { numbers: 20, over_ms: 2 * MINUTE_MS }, "a new tag has no more than that");
        assert_eq!(recently, long_term);
    }

    #[test]
    fn notes_that_mean_nothing_are_left_out() {
        assert_eq!(uses("", 5, 7), (Use::default(), Use::default()));
        assert_eq!(uses("x;1 ;9 3;", 5, 7), (Use::default(), Use::default()), "damaged, or of the future");
        assert_eq!(uses("1 9;", 5, 7).0, Use { numbers: 0, over_ms: 4 }, "a counter that was lost");
    }
}
