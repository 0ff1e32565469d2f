//! An instant as people write it: Unix milliseconds, a date, or RFC 3339; and as they read it.

use core::fmt;

use crate::calendar::Date;

/// Why a text is no instant.
///
/// ```
/// use unalike_core::{InstantError, instant};
/// assert_eq!(instant("yesterday"), Err(InstantError::Form));
/// assert_eq!(instant("2026-02-29"), Err(InstantError::NoSuchDate));
/// assert_eq!(instant("1969-12-31T23:59:59Z"), Err(InstantError::Before1970));
/// assert_eq!(instant("2026-01-01T00:00:00.0001Z"), Err(InstantError::BelowMillisecond));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InstantError {
    /// None of the three notations.
    Form,
    /// A day, hour, minute or second that does not exist, or a number of milliseconds above 2^64 - 1.
    NoSuchDate,
    /// It lies before 1970.
    Before1970,
    /// A fraction of a second that is no whole number of milliseconds.
    BelowMillisecond,
}

impl fmt::Display for InstantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form => {
                "a time is written as a date (2026-01-31, at 00:00 UTC), as RFC 3339 (2026-01-31T08:00:00Z, or with \
                 +08:00 in place of Z), or as Unix milliseconds"
            }
            Self::NoSuchDate => "there is no such day or time of day",
            Self::Before1970 => "the time lies before 1970",
            Self::BelowMillisecond => "the time is finer than a millisecond",
        })
    }
}

impl core::error::Error for InstantError {}

/// The instant that a text names, in Unix milliseconds: these in decimal, a date (at 00:00 UTC), or a date and time of
/// RFC 3339 (<https://www.rfc-editor.org/rfc/rfc3339>, section 5.6), from 1970 to the year 9999. A leap second is none.
///
/// ```
/// use unalike_core::instant;
/// assert_eq!(instant("1767225600000"), Ok(1_767_225_600_000));
/// assert_eq!(instant("2026-01-01"), Ok(1_767_225_600_000));
/// assert_eq!(instant("2026-01-01T08:00:00.25+08:00"), Ok(1_767_225_600_250));
/// ```
///
/// # Errors
/// As [`InstantError`] says.
pub fn instant(text: &str) -> Result<u64, InstantError> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().map_err(|_| InstantError::NoSuchDate);
    }
    let mut rest = text.as_bytes();
    let mut date = Date { year: number(&mut rest, 4)?, ..Date::default() };
    mark(&mut rest, b"-")?;
    date.month = number(&mut rest, 2)?;
    mark(&mut rest, b"-")?;
    date.day = number(&mut rest, 2)?;
    let mut utc_offset_minutes = 0;
    if !rest.is_empty() {
        mark(&mut rest, b"Tt")?;
        date.hour = number(&mut rest, 2)?;
        mark(&mut rest, b":")?;
        date.minute = number(&mut rest, 2)?;
        mark(&mut rest, b":")?;
        date.second = number(&mut rest, 2)?;
        date.millisecond = fraction_ms(&mut rest)?;
        utc_offset_minutes = utc_offset(rest)?;
    }
    date.instant(utc_offset_minutes)
}

/// An instant in Unix milliseconds, for people: RFC 3339 in UTC, with milliseconds. There is none after the year 9999.
///
/// ```
/// use unalike_core::Rfc3339;
/// assert_eq!(Rfc3339(1_767_225_600_250).to_string(), "2026-01-01T00:00:00.250Z");
/// assert_eq!(Rfc3339(u64::MAX).to_string(), "after the year 9999");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rfc3339(pub u64);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Date { year, month, day, hour, minute, second, millisecond }) = Date::at(self.0, 0) else {
            return f.write_str("after the year 9999");
        };
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
    }
}

impl Date {
    /// When it begins, in Unix milliseconds.
    ///
    /// # Errors
    /// [`InstantError::NoSuchDate`] and [`InstantError::Before1970`].
    pub fn instant(&self, utc_offset_minutes: i16) -> Result<u64, InstantError> {
        match self.unix_ms(utc_offset_minutes) {
            Some(unix_ms) => u64::try_from(unix_ms).map_err(|_| InstantError::Before1970),
            // The calendar begins in March of the year 0.
            None if self.year == 0 && self.month < 3 => Err(InstantError::Before1970),
            None => Err(InstantError::NoSuchDate),
        }
    }
}

/// So many digits.
fn number(rest: &mut &[u8], digits: usize) -> Result<u32, InstantError> {
    let (number, after) = rest.split_at_checked(digits).ok_or(InstantError::Form)?;
    if !number.iter().all(u8::is_ascii_digit) {
        return Err(InstantError::Form);
    }
    *rest = after;
    Ok(number.iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0')))
}

/// One of these characters.
fn mark(rest: &mut &[u8], marks: &[u8]) -> Result<(), InstantError> {
    match rest.split_first() {
        Some((first, after)) if marks.contains(first) => {
            *rest = after;
            Ok(())
        }
        _ => Err(InstantError::Form),
    }
}

/// A point and digits, or nothing.
fn fraction_ms(rest: &mut &[u8]) -> Result<u32, InstantError> {
    let Some((b'.', after)) = rest.split_first() else { return Ok(0) };
    let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (fraction, after) = after.split_at(digits);
    *rest = after;
    let (upper, lower) = fraction.split_at(digits.min(3));
    if digits == 0 {
        Err(InstantError::Form)
    } else if lower.iter().any(|digit| *digit != b'0') {
        Err(InstantError::BelowMillisecond)
    } else {
        let ms = upper.iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0'));
        Ok(match upper.len() {
            1 => ms * 100,
            2 => ms * 10,
            _ => ms,
        })
    }
}

/// `Z`, or hours and minutes with a sign.
fn utc_offset(mut rest: &[u8]) -> Result<i16, InstantError> {
    if matches!(rest, b"Z" | b"z") {
        return Ok(0);
    }
    let sign = if rest.first() == Some(&b'-') { -1 } else { 1 };
    mark(&mut rest, b"+-")?;
    let hours = number(&mut rest, 2)?;
    mark(&mut rest, b":")?;
    let minutes = number(&mut rest, 2)?;
    if !rest.is_empty() {
        return Err(InstantError::Form);
    }
    if hours > 23 || minutes > 59 {
        return Err(InstantError::NoSuchDate);
    }
    i16::try_from(hours * 60 + minutes).map(|offset| sign * offset).map_err(|_| InstantError::NoSuchDate)
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_notation_is_read() {
        for (text, unix_ms) in [
            ("0", 0),
            ("18446744073709551615", u64::MAX),
            ("1970-01-01", 0),
            ("2024-02-29", 1_709_164_800_000),
            ("2010-11-04T01:42:54.657Z", 1_288_834_974_657),
            ("2010-11-04t01:42:54.657z", 1_288_834_974_657),
            ("2026-01-01T00:00:00.1Z", 1_767_225_600_100),
            ("2026-01-01T00:00:00.12Z", 1_767_225_600_120),
            ("2026-01-01T00:00:00.123000Z", 1_767_225_600_123),
            ("2020-01-01T00:00:00+08:00", 1_577_808_000_000),
            ("2019-12-31T11:30:00-04:30", 1_577_808_000_000),
            ("1970-01-01T23:00:00+23:00", 0),
            ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ] {
            assert_eq!(instant(text), Ok(unix_ms), "{text}");
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        use InstantError::{Before1970, BelowMillisecond, Form, NoSuchDate};
        for (text, error) in [
            ("", Form),
            ("-1", Form),
            ("12.5", Form),
            ("2026-01", Form),
            ("2026-1-1", Form),
            ("26-01-01", Form),
            ("2026-01-01T", Form),
            ("2026-01-01T00:00", Form),
            ("2026-01-01T00:00:00", Form),
            ("2026-01-01T00:00:00.Z", Form),
            ("2026-01-01T00:00:00ZZ", Form),
            ("2026-01-01T00:00:00+0800", Form),
            ("2026-01-01T00:00:00+08:00x", Form),
            ("2026-01-01 00:00:00Z", Form),
            ("2026-01-01é", Form),
            ("18446744073709551616", NoSuchDate),
            ("2026-02-29", NoSuchDate),
            ("2026-03-00", NoSuchDate),
            ("2026-00-01", NoSuchDate),
            ("2026-13-01", NoSuchDate),
            ("2026-01-01T24:00:00Z", NoSuchDate),
            ("2026-01-01T00:60:00Z", NoSuchDate),
            ("2016-12-31T23:59:60Z", NoSuchDate),
            ("2026-01-01T00:00:00+24:00", NoSuchDate),
            ("1969-12-31", Before1970),
            ("0000-01-01", Before1970),
            ("1969-02-30", NoSuchDate),
            ("1970-01-01T00:00:00+00:01", Before1970),
            ("2026-01-01T00:00:00.0005Z", BelowMillisecond),
        ] {
            assert_eq!(instant(text), Err(error), "{text}");
        }
        assert_eq!(instant("2026"), Ok(2026), "a number is Unix milliseconds, not a year");
    }

    proptest! {
        #[test]
        fn what_the_calendar_writes_is_read(unix_ms in 86_400_000..253_402_214_400_000_u64, offset in -1_439..=1_439_i16) {
            let Date { year, month, day, hour, minute, second, millisecond } = Date::at(unix_ms, offset).unwrap();
            let (sign, distance) = (if offset < 0 { '-' } else { '+' }, offset.unsigned_abs());
            let text = format!(
                "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}{sign}{:02}:{:02}",
                distance / 60, distance % 60
            );
            prop_assert_eq!(instant(&text), Ok(unix_ms), "{}", text);
        }

        #[test]
        fn nothing_makes_it_panic(text in "[0-9TZtz:.+-]{0,30}") {
            let _ = instant(&text);
        }
    }
}
