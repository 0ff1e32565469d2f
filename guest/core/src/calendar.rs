//! Dates of the proleptic Gregorian calendar, at a fixed distance from UTC.

/// A date of the proleptic Gregorian calendar and a time of day, at a fixed distance from UTC, without leap seconds.
///
/// ```
/// use unalike_core::Date;
/// let date = Date::at(1_795_341_600_000, 60).unwrap();
/// assert_eq!((date.year, date.month, date.day, date.hour), (2026, 11, 22, 11));
/// assert_eq!(date.unix_ms(60), Some(1_795_341_600_000));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Date {
    pub year: u32,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
    pub hour: u32,
    pub minute: u32,
    pub second: u32,
    pub millisecond: u32,
}

const DAY_MS: u64 = 86_400_000;

/// The days from 0000-03-01 to 1970-01-01: the year begins in March here, so that the leap day is its last.
const EPOCH_DAYS: u64 = 719_468;

/// The days of 400 years.
const ERA_DAYS: u64 = 146_097;

impl Date {
    /// The date at an instant; `None` after the year 9999.
    ///
    /// The arithmetic of eras of 400 years is Howard Hinnant's (*chrono-compatible low-level date algorithms*, 2013).
    #[must_use]
    pub fn at(unix_ms: u64, utc_offset_minutes: i16) -> Option<Self> {
        // Counted from 0000-03-01, so that nothing before 1970 is negative.
        let ms = unix_ms.checked_add(EPOCH_DAYS * DAY_MS)?;
        Self::after(ms.checked_add_signed(i64::from(utc_offset_minutes) * 60_000)?)
    }

    /// The date so many milliseconds after the beginning of 0000-03-01; `None` after the year 9999.
    fn after(ms: u64) -> Option<Self> {
        let (days, of_day) = (ms / DAY_MS, ms % DAY_MS);
        let (era, of_era) = (days / ERA_DAYS, days % ERA_DAYS);
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * of_year + 2) / 153;
        let (is_next_year, month) = if from_march < 10 { (0, from_march + 3) } else { (1, from_march - 9) };
        let year = era * 400 + year_of_era + is_next_year;
        if year > 9_999 {
            return None;
        }
        let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        Some(Self {
            year: small(year),
            month: small(month),
            day: small(of_year - (153 * from_march + 2) / 5 + 1),
            hour: small(of_day / 3_600_000),
            minute: small(of_day / 60_000 % 60),
            second: small(of_day / 1_000 % 60),
            millisecond: small(of_day % 1_000),
        })
    }

    /// When it begins, in Unix milliseconds, which are negative before 1970; `None` when there is no such date, and in
    /// the first two months of the year 0.
    #[must_use]
    pub fn unix_ms(&self, utc_offset_minutes: i16) -> Option<i64> {
        if self.year > 9_999 || self.month > 12 || self.day > 31 {
            return None;
        }
        let (year, month, day) = (u64::from(self.year), u64::from(self.month), u64::from(self.day));
        let (year, from_march) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
        let (era, year_of_era) = (year / 400, year % 400);
        let of_year = ((153 * from_march + 2) / 5 + day).checked_sub(1)?;
        let days = era * ERA_DAYS + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
        let of_day = ((u64::from(self.hour) * 60 + u64::from(self.minute)) * 60 + u64::from(self.second)) * 1_000
            + u64::from(self.millisecond);
        let ms = days * DAY_MS + of_day;
        // What is no date (31 April) is another one.
        if Self::after(ms)? != *self {
            return None;
        }
        ms.checked_signed_diff(EPOCH_DAYS * DAY_MS)?.checked_sub(i64::from(utc_offset_minutes) * 60_000)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn date(year: u32, month: u32, day: u32) -> Date {
        Date { year, month, day, ..Date::default() }
    }

    /// By the rules, without arithmetic.
    fn days_of(year: u32, month: u32) -> u32 {
        let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        match month {
            4 | 6 | 9 | 11 => 30,
            2 if is_leap => 29,
            2 => 28,
            _ => 31,
        }
    }

    #[test]
    fn known_dates() {
        for (unix_ms, expected) in [
            (0, date(1970, 1, 1)),
            (951_782_400_000, date(2000, 2, 29)),
            (1_709_164_800_000, date(2024, 2, 29)),
            (1_709_251_200_000, date(2024, 3, 1)),
            (4_107_542_400_000, date(2100, 3, 1)),
            (253_402_214_400_000, date(9999, 12, 31)),
        ] {
            assert_eq!(Date::at(unix_ms, 0), Some(expected));
            assert_eq!(expected.unix_ms(0), i64::try_from(unix_ms).ok());
        }
        assert_eq!(Date::at(253_402_300_800_000, 0), None, "the year 10000");
        assert_eq!(Date::at(u64::MAX, 0), None);
        let late = Date { hour: 23, minute: 30, second: 1, millisecond: 2, ..date(2026, 11, 22) };
        assert_eq!(Date::at(1_795_361_401_002, 8 * 60), Some(late));
        assert_eq!(late.unix_ms(8 * 60), Some(1_795_361_401_002));
    }

    #[test]
    fn what_is_no_date_has_no_instant() {
        for (year, month, day) in [
            (2026, 2, 29),
            (2100, 2, 29),
            (2026, 4, 31),
            (2026, 1, 32),
            (2026, 13, 1),
            (2026, 0, 1),
            (2026, 1, 0),
            (2026, 3, 0),
            (0, 1, 1),
            (10_000, 1, 1),
            (u32::MAX, 1, 1),
            (2026, u32::MAX, 1),
            (2026, 1, u32::MAX),
        ] {
            assert_eq!(date(year, month, day).unix_ms(0), None, "{year}-{month}-{day}");
        }
        let noon = Date { hour: 12, ..date(2026, 1, 1) };
        assert!(noon.unix_ms(0).is_some());
        for wrong in [
            Date { hour: 24, ..noon },
            Date { minute: 60, ..noon },
            Date { second: 60, ..noon },
            Date { millisecond: 1_000, ..noon },
        ] {
            assert_eq!(wrong.unix_ms(0), None, "{wrong:?}");
        }
    }

    #[test]
    fn dates_west_of_greenwich_begin_before_1970_and_those_east_end_after_9999() {
        let eve = Date { hour: 23, minute: 59, ..date(1969, 12, 31) };
        assert_eq!(Date::at(0, -1), Some(eve));
        assert_eq!(eve.unix_ms(-1), Some(0));
        assert_eq!(date(1970, 1, 1).unix_ms(1), Some(-60_000));
        assert_eq!(date(0, 3, 1).unix_ms(0), Some(-62_162_035_200_000));
        let last = Date { hour: 23, minute: 59, second: 59, millisecond: 999, ..date(9999, 12, 31) };
        for offset in [-1_080_i16, -1, 0, 1, 1_080] {
            let last_ms = 253_402_300_799_999 - i64::from(offset) * 60_000;
            assert_eq!(last.unix_ms(offset), Some(last_ms));
            let last_ms = u64::try_from(last_ms).unwrap();
            assert_eq!((Date::at(last_ms, offset), Date::at(last_ms + 1, offset)), (Some(last), None));
        }
        for unix_ms in [u64::MAX - 1, u64::MAX / 2, u64::MAX - 719_468 * DAY_MS] {
            assert_eq!(Date::at(unix_ms, 1_080), None, "{unix_ms}");
        }
    }

    #[test]
    fn each_day_of_800_years_follows_the_one_before() {
        let mut before = date(1970, 1, 1);
        for day in 1..292_194_u64 {
            let today = Date::at(day * DAY_MS, 0).unwrap();
            let length = days_of(before.year, before.month);
            let expected = match before {
                Date { month: 12, day: 31, year, .. } => date(year + 1, 1, 1),
                Date { day, month, year, .. } if day == length => date(year, month + 1, 1),
                Date { day, month, year, .. } => date(year, month, day + 1),
            };
            assert_eq!(today, expected);
            before = today;
        }
    }

    proptest! {
        #[test]
        fn instants_and_dates_are_in_one_to_one_correspondence(
            unix_ms in prop_oneof![0..172_800_000_u64, 0..253_402_200_000_000_u64],
            offset in -1_080..=1_080_i16,
        ) {
            let date = Date::at(unix_ms, offset).unwrap();
            prop_assert_eq!(date.unix_ms(offset), i64::try_from(unix_ms).ok());
        }

        #[test]
        fn whatever_figures_are_a_date_are_those_of_its_instant(
            (year, month, day) in (1970..=9_999_u32, 0..=13_u32, 0..=32_u32),
            (hour, minute, second, millisecond) in (0..=24_u32, 0..=60_u32, 0..=60_u32, 0..=1_000_u32),
            offset in -1_080..=1_080_i16,
        ) {
            let figures = Date { year, month, day, hour, minute, second, millisecond };
            // By the rules: a date unless a figure is out of its range.
            let length = days_of(year, month);
            let is_date = (1..=12).contains(&month)
                && (1..=length).contains(&day)
                && hour < 24
                && minute < 60
                && second < 60
                && millisecond < 1_000;
            let unix_ms = figures.unix_ms(offset);
            prop_assert_eq!(unix_ms.is_some(), is_date);
            if let Some(unix_ms) = unix_ms.and_then(|unix_ms| u64::try_from(unix_ms).ok()) {
                prop_assert_eq!(Date::at(unix_ms, offset), Some(figures));
            }
        }
    }
}
