//! A layout as people write it: what its `Display` prints, and the same with dates.
//!
//! No component contains it, nor [`instant`](crate::instant), which it reads dates with. They are here since only the
//! crate of a type can implement `Display` and `FromStr` for it.

use core::{fmt, str::FromStr};

use crate::policy_text::whole;
use crate::{FieldOrder, InstantError, Layout, LayoutError, LayoutFields, instant};

/// Which part of a text keeps it from being a layout.
///
/// ```
/// use unalike_core::{Layout, LayoutTextError};
/// assert_eq!("41/10/12 since 2024-01-01".parse::<Layout>(), Err(LayoutTextError::Word { at: 9 }));
/// assert_eq!("41/10/12".parse::<Layout>(), Err(LayoutTextError::EpochMissing));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayoutTextError {
    /// It does not begin with three widths.
    Widths,
    /// A word that is none of `epoch`, `tick` and `sequence-first`, or one of them a second time.
    Word {
        /// Its position in the text, in bytes, counted from 0.
        at: usize,
    },
    /// There is no epoch, and none can be guessed.
    EpochMissing,
    /// What follows `epoch` is no time.
    Epoch(InstantError),
    /// What follows `tick` is no whole number of `ms` or `s`, or more than 2^32 - 1 ms.
    Tick,
    /// The parts can be read, and make no layout together.
    Layout(LayoutError),
}

impl fmt::Display for LayoutTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Widths => f.write_str(
                "a layout begins with its widths in bits, TIME/WORKER/SEQUENCE or TIME/DATACENTER+WORKER/SEQUENCE, such \
                 as 41/10/12 or 41/5+5/12",
            ),
            Self::Word { at } => write!(
                f,
                "the word at position {at} is unknown or there twice: after the widths come epoch TIME, and perhaps tick \
                 NUMBER ms (or s) and sequence-first"
            ),
            Self::EpochMissing => f.write_str("the epoch is missing: epoch 2024-01-01, say"),
            Self::Epoch(error) => write!(f, "the epoch cannot be read: {error}"),
            Self::Tick => f.write_str("the tick must be a whole number of ms or s, such as tick 10 ms, up to 4294967295 ms"),
            Self::Layout(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for LayoutTextError {}

/// What [`Layout`]'s `Display` prints is read as the same layout. For people, the epoch may be a date or RFC 3339 as
/// [`instant`] reads it, a tick of 1 ms may be left out, `tick 10ms` and `tick 1 s` are ticks, too, and the words after
/// the widths may stand in any order.
///
/// ```
/// use unalike_core::{Layout, LayoutFields};
///
/// assert_eq!("41/5+5/12 epoch 1288834974657 tick 1 ms".parse(), Ok(Layout::TWITTER));
/// assert_eq!("39/8/16 sequence-first epoch 2025-01-01 tick 10 ms".parse(), Ok(Layout::SONYFLAKE));
/// let ours: Layout = "41/10/12 epoch 2024-01-01".parse()?;
/// assert_eq!(ours.epoch_ms(), 1_704_067_200_000);
/// # Ok::<(), unalike_core::LayoutTextError>(())
/// ```
///
/// # Errors
/// As [`LayoutTextError`] says, the first that is true from left to right.
impl FromStr for Layout {
    type Err = LayoutTextError;

    fn from_str(text: &str) -> Result<Self, LayoutTextError> {
        let mut words = text.split_ascii_whitespace();
        let widths = widths(words.next().unwrap_or_default()).ok_or(LayoutTextError::Widths)?;
        let (mut order, mut epoch_ms, mut tick_ms) = (None, None, None);
        while let Some(word) = words.next() {
            match word {
                "sequence-first" if order.is_none() => order = Some(FieldOrder::SequenceFirst),
                "epoch" if epoch_ms.is_none() => {
                    epoch_ms = Some(instant(words.next().unwrap_or_default()).map_err(LayoutTextError::Epoch)?);
                }
                "tick" if tick_ms.is_none() => {
                    let number = words.next().unwrap_or_default();
                    // The unit is a word of its own, or stands at the number.
                    let unit = if number.ends_with('s') { "" } else { words.next().unwrap_or_default() };
                    tick_ms = Some(tick(number, unit).ok_or(LayoutTextError::Tick)?);
                }
                // Both are slices of one text.
                _ => return Err(LayoutTextError::Word { at: word.as_ptr().addr() - text.as_ptr().addr() }),
            }
        }
        let [timestamp_bits, upper, lower] = widths;
        let order = order.unwrap_or(FieldOrder::WorkerFirst);
        let (node, sequence) = if order == FieldOrder::WorkerFirst { (upper, lower) } else { (lower, upper) };
        let ((None, timestamp_bits), (datacenter_bits, worker_bits), (None, sequence_bits)) =
            (timestamp_bits, node, sequence)
        else {
            return Err(LayoutTextError::Widths);
        };
        Self::new(LayoutFields {
            timestamp_bits,
            datacenter_bits: datacenter_bits.unwrap_or(0),
            worker_bits,
            sequence_bits,
            order,
            epoch_ms: epoch_ms.ok_or(LayoutTextError::EpochMissing)?,
            tick_ms: tick_ms.unwrap_or(1),
        })
        .map_err(LayoutTextError::Layout)
    }
}

/// A width, and the width of the datacenter before it.
type Width = (Option<u8>, u8);

fn widths(word: &str) -> Option<[Width; 3]> {
    let mut widths = word.split('/').map(|width| match width.split_once('+') {
        None => Some((None, whole(width)?)),
        Some((datacenter, worker)) => Some((Some(whole(datacenter)?), whole(worker)?)),
    });
    let three = [widths.next()??, widths.next()??, widths.next()??];
    if widths.next().is_none() { Some(three) } else { None }
}

fn tick(number: &str, unit: &str) -> Option<u32> {
    let (digits, unit) = match number.find(|letter: char| !letter.is_ascii_digit()) {
        Some(end) => number.split_at(end),
        None => (number, unit),
    };
    let number: u32 = digits.parse().ok()?;
    match unit {
        "ms" => Some(number),
        "s" => number.checked_mul(1_000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::*;
    use crate::PRESETS;
    use crate::layout::tests::layouts;

    #[test]
    fn people_may_write_less() {
        let cosid_53 = Layout::COSID_53;
        for text in [
            "41/3/9 epoch 1577203200000 tick 1 ms",
            "41/3/9 epoch 1577203200000",
            "  41/3/9\tepoch  2019-12-24T16:00:00Z ",
            "41/3/9 tick 1ms epoch 2019-12-25T00:00:00+08:00",
            "41/0+3/9 epoch 1577203200000",
        ] {
            assert_eq!(text.parse(), Ok(cosid_53), "{text}");
        }
        for text in [
            "28/22/13 epoch 1463673600000 tick 1000 ms",
            "28/22/13 tick 1 s epoch 1463673600000",
            "28/22/13 tick 1s epoch 1463673600000",
        ] {
            assert_eq!(text.parse(), Ok(Layout::BAIDU), "{text}");
        }
        let sonyflake = "39/8/16 epoch 2025-01-01 sequence-first tick 10ms";
        assert_eq!(sonyflake.parse(), Ok(Layout::SONYFLAKE));
    }

    #[test]
    fn an_error_says_which_part_is_wrong() {
        use LayoutTextError as E;
        for (text, error) in [
            ("", E::Widths),
            ("twitter", E::Widths),
            ("41/10 epoch 0", E::Widths),
            ("41/10/12/0 epoch 0", E::Widths),
            ("41/+10/12 epoch 0", E::Widths),
            ("+41/10/12 epoch 0", E::Widths),
            ("41/5+5+5/12 epoch 0", E::Widths),
            ("41/10/256 epoch 0", E::Widths),
            ("5+41/10/12 epoch 0", E::Widths),
            ("41/10/5+12 epoch 0", E::Widths),
            ("41/5+5/12 sequence-first epoch 0", E::Widths),
            ("41/10/12 epoc 0", E::Word { at: 9 }),
            ("41/10/12  epoch 0 é", E::Word { at: 18 }),
            ("41/10/12 epoch 0 epoch 1", E::Word { at: 17 }),
            ("41/10/12 epoch 0 tick 1 ms tick 1 ms", E::Word { at: 27 }),
            ("41/12/10 sequence-first sequence-first epoch 0", E::Word { at: 24 }),
            ("41/10/12", E::EpochMissing),
            ("41/10/12 tick 10 ms", E::EpochMissing),
            ("41/10/12 epoch", E::Epoch(InstantError::Form)),
            ("41/10/12 epoch 2024-02-30", E::Epoch(InstantError::NoSuchDate)),
            ("41/10/12 epoch 1969-07-20", E::Epoch(InstantError::Before1970)),
            ("41/10/12 epoch 0 tick", E::Tick),
            ("41/10/12 epoch 0 tick 10", E::Tick),
            ("41/10/12 epoch 0 tick ms", E::Tick),
            ("41/10/12 epoch 0 tick +1 ms", E::Tick),
            ("41/10/12 epoch 0 tick 10 us", E::Tick),
            ("41/10/12 epoch 0 tick 4294967296 ms", E::Tick),
            ("41/10/12 epoch 0 tick 4294968 s", E::Tick),
            ("41/10/12 epoch 0 tick 0 ms", E::Layout(LayoutError::TickZero)),
            ("42/10/12 epoch 0", E::Layout(LayoutError::TooWide { bits: 64 })),
            ("0/10/12 epoch 0", E::Layout(LayoutError::FieldWidth)),
            ("41/10/12 epoch 18446744073709551615", E::Layout(LayoutError::EpochTooLate)),
        ] {
            assert_eq!(text.parse::<Layout>(), Err(error), "{text}");
            assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn every_preset_is_read_as_itself() {
        for preset in PRESETS {
            assert_eq!(preset.layout.to_string().parse(), Ok(preset.layout), "{}", preset.name);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn what_is_written_is_what_is_read(layout in layouts()) {
            let text = layout.to_string();
            prop_assert_eq!(text.parse(), Ok(layout), "{}", text);
        }

        #[test]
        fn nothing_makes_it_panic(text in "[0-9/+ ]{0,12}( epoch| tick| ms| s|sequence-first| [0-9]{1,20}|é){0,8}") {
            let _ = text.parse::<Layout>();
        }
    }
}
