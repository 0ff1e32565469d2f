//! ULIDs: 48 bits of Unix milliseconds and 80 random bits, as 26 characters.
//!
//! The specification is <https://github.com/ulid/spec>. This module writes and reads; it makes none, because that takes
//! randomness, which neither this crate nor the component has.

use core::{fmt, str};

use unalike_core::{Text, TextBuffer, TextError};

/// The number of characters of a ULID.
const LEN: usize = 26;

/// The bits of a ULID that are random.
const RANDOM_BITS: u32 = 80;

/// A ULID, by its 128 bits: every number of 128 bits is one.
///
/// They are ordered by time first, and so are their texts, byte by byte.
///
/// ```
/// use unalike_core::TextError;
/// use unalike_notation::Ulid;
///
/// let ulid: Ulid = "01ARYZ6S41TSV4RRFFQ69G5FAV".parse()?;
/// assert_eq!(ulid.unix_ms(), 1_469_918_176_385); // 2016-07-30T22:36:16.385Z
/// assert_eq!(ulid.random(), 0xD676_4C61_EFB9_9302_BD5B);
/// assert_eq!(&*ulid.text(), "01ARYZ6S41TSV4RRFFQ69G5FAV");
/// # Ok::<(), TextError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ulid(pub u128);

impl Ulid {
    /// The latest time that a ULID can have, in Unix milliseconds: 2^48 - 1, in the year 10889.
    pub const UNIX_MS_MAX: u64 = (1 << (u128::BITS - RANDOM_BITS)) - 1;

    /// The greatest random part: 2^80 - 1.
    pub const RANDOM_MAX: u128 = (1 << RANDOM_BITS) - 1;

    /// The ULID of this time, in Unix milliseconds, with these random bits; none when one of them is beyond
    /// [`Ulid::UNIX_MS_MAX`] or [`Ulid::RANDOM_MAX`].
    ///
    /// ```
    /// use unalike_notation::Ulid;
    /// assert_eq!(Ulid::from_parts(1, 2), Some(Ulid(1 << 80 | 2)));
    /// assert_eq!(Ulid::from_parts(1 << 48, 2), None);
    /// assert_eq!(Ulid::from_parts(1, 1 << 80), None);
    /// ```
    #[must_use]
    pub const fn from_parts(unix_ms: u64, random: u128) -> Option<Self> {
        if unix_ms > Self::UNIX_MS_MAX || random > Self::RANDOM_MAX {
            return None;
        }
        Some(Self((unix_ms as u128) << RANDOM_BITS | random))
    }

    /// When it was made, in Unix milliseconds: 0 to [`Ulid::UNIX_MS_MAX`].
    #[must_use]
    pub const fn unix_ms(self) -> u64 {
        (self.0 >> RANDOM_BITS) as u64
    }

    /// The random part: 0 to [`Ulid::RANDOM_MAX`].
    #[must_use]
    pub const fn random(self) -> u128 {
        self.0 & Self::RANDOM_MAX
    }

    /// The text: 26 characters of Crockford's base 32, upper case, the first of them 7 at most. `Display` writes the
    /// same through `core::fmt`.
    #[must_use]
    pub fn text(self) -> TextBuffer {
        let (mut text, mut rest) = ([b'0'; LEN], self.0);
        for byte in text.iter_mut().rev() {
            *byte = Text::Base32.digit(rest.to_le_bytes()[0] & 0x1F);
            rest >>= 5;
        }
        TextBuffer::of_ascii(&text).unwrap_or_else(|| unreachable!("26 digits fit"))
    }
}

impl str::FromStr for Ulid {
    type Err = TextError;

    /// Reads the 26 characters, in lower case too, with `i` and `l` for 1 and `o` for 0, as Crockford has it.
    ///
    /// ```
    /// use unalike_core::TextError;
    /// use unalike_notation::Ulid;
    /// assert_eq!("7ZZZZZZZZZZZZZZZZZZZZZZZZZ".parse(), Ok(Ulid(u128::MAX)));
    /// // 130 bits would fit 26 characters: what is beyond 128 is refused and not cut off.
    /// assert_eq!("80000000000000000000000000".parse::<Ulid>(), Err(TextError::Character { at: 0 }));
    /// ```
    ///
    /// # Errors
    /// The first of these that is true: [`TextError::Length`] unless it has 26 bytes, and [`TextError::Character`] with
    /// the first byte that stands in no ULID there, which is 0 for a first character above 7.
    fn from_str(input: &str) -> Result<Self, TextError> {
        if input.len() != LEN {
            return Err(TextError::Length { len: input.len() });
        }
        let mut bits = 0_u128;
        for (at, byte) in input.bytes().enumerate() {
            let value = Text::Base32.value(byte).ok_or(TextError::Character { at })?;
            if at == 0 && value > 7 {
                return Err(TextError::Character { at });
            }
            bits = bits << 5 | u128::from(value);
        }
        Ok(Self(bits))
    }
}

impl fmt::Display for Ulid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.text(), f)
    }
}

#[cfg(test)]
mod tests {
    use alloc::{
        format,
        string::{String, ToString},
    };

    use proptest::prelude::*;

    use super::*;

    const ALPHABET: &str = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

    /// By definition: the most significant digit first, in arithmetic that cannot overflow (130 bits as two halves).
    fn halves(input: &str) -> Option<(u128, u128)> {
        let number = |half: &str| {
            half.chars()
                .try_fold(0_u128, |number, digit| Some(number * 32 + u128::try_from(ALPHABET.find(digit)?).unwrap()))
        };
        Some((number(input.get(..13)?)?, number(input.get(13..)?)?))
    }

    /// Numbers of every length.
    fn ulids() -> impl Strategy<Value = Ulid> {
        prop_oneof![any::<u128>(), (any::<u128>(), 0..128_u32).prop_map(|(bits, shift)| bits >> shift)].prop_map(Ulid)
    }

    #[test]
    fn the_texts_of_the_specification_are_read_and_written() {
        for (text, unix_ms) in [
            ("00000000000000000000000000", 0),
            ("01ARZ3NDEKTSV4RRFFQ69G5FAV", 1_469_922_850_259),
            ("01AN4Z07BY79KA1307SR9X4MV3", 1_465_824_320_894),
            ("01BX5ZZKBKACTAV9WEVGEMMVRZ", 1_508_808_576_371),
            ("01BX5ZZKBKZZZZZZZZZZZZZZZX", 1_508_808_576_371),
            ("7ZZZZZZZZZZZZZZZZZZZZZZZZZ", 281_474_976_710_655),
        ] {
            let ulid: Ulid = text.parse().unwrap();
            assert_eq!((ulid.unix_ms(), &*ulid.text()), (unix_ms, text));
        }
        assert_eq!(Ulid::UNIX_MS_MAX, 281_474_976_710_655);
        let next = |text: &str| Ulid(text.parse::<Ulid>().unwrap().0 + 1).to_string();
        assert_eq!(next("01BX5ZZKBKACTAV9WEVGEMMVRZ"), "01BX5ZZKBKACTAV9WEVGEMMVS0");
    }

    /// The fields of the specification's figure: 16 octets, the most significant first.
    #[test]
    fn the_bits_stand_where_the_specification_has_them() {
        let octets = [0x01, 0x5F, 0x4B, 0xFF, 0xCD, 0x73, 0x53, 0x34, 0xAD, 0xA7, 0x8E, 0xDC, 0x1D, 0x4A, 0x6F, 0x1F];
        let ulid = Ulid::from_parts(0x015F_4BFF_CD73, 0x5334_ADA7_8EDC_1D4A_6F1F).unwrap();
        assert_eq!(ulid.0.to_be_bytes(), octets);
        assert_eq!((ulid.unix_ms(), ulid.random()), (1_508_808_576_371, 0x5334_ADA7_8EDC_1D4A_6F1F));
        assert_eq!(Ulid::from_parts(Ulid::UNIX_MS_MAX, Ulid::RANDOM_MAX), Some(Ulid(u128::MAX)));
        assert_eq!(Ulid::from_parts(Ulid::UNIX_MS_MAX + 1, 0), None);
        assert_eq!(Ulid::from_parts(0, Ulid::RANDOM_MAX + 1), None);
    }

    #[test]
    fn what_is_beyond_128_bits_is_refused() {
        for (at, first) in ALPHABET.chars().enumerate() {
            for rest in ["0", "Z"] {
                let text = format!("{first}{}", rest.repeat(25));
                let read = text.parse::<Ulid>();
                match at {
                    0..=7 => assert_eq!(read.unwrap().to_string(), text),
                    _ => assert_eq!(read, Err(TextError::Character { at: 0 }), "{text}"),
                }
            }
        }
    }

    #[test]
    fn other_lengths_and_bytes_are_refused_with_their_place() {
        for len in (0..100).filter(|len| *len != 26) {
            assert_eq!("0".repeat(len).parse::<Ulid>(), Err(TextError::Length { len }));
        }
        for (text, at) in [
            ("01ARZ3NDEKTSV4RRFFQ69G5FAU", 25),
            ("u1ARZ3NDEKTSV4RRFFQ69G5FAV", 0),
            ("01ARZ3NDEK-SV4RRFFQ69G5FAV", 10),
            ("01ARZ3NDEK SV4RRFFQ69G5FAV", 10),
            ("01ARZ3NDE\u{e9}SV4RRFFQ69G5FAV", 9),
            ("8-ARZ3NDEKTSV4RRFFQ69G5FAV", 0),
            ("0-ARZ3NDEK-SV4RRFFQ69G5FAV", 1),
        ] {
            assert_eq!(text.parse::<Ulid>(), Err(TextError::Character { at }), "{text:?}");
        }
    }

    #[test]
    fn lower_case_and_the_letters_that_look_like_digits_are_read() {
        let ulid: Ulid = "01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
        for text in ["01arz3ndektsv4rrffq69g5fav", "OiaRz3NdEkTsV4rRfFq69g5FaV", "oLarz3ndektsv4rrffq69g5fav"] {
            assert_eq!(text.parse(), Ok(ulid), "{text}");
        }
        assert_eq!(format!("{ulid}|{ulid:>28}"), "01ARZ3NDEKTSV4RRFFQ69G5FAV|  01ARZ3NDEKTSV4RRFFQ69G5FAV");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn what_is_written_is_read_again(ulid in ulids()) {
            let text = ulid.text();
            prop_assert_eq!(text.len(), LEN);
            prop_assert_eq!(halves(&text), Some((ulid.0 >> 65, ulid.0 & ((1 << 65) - 1))));
            prop_assert_eq!(text.parse(), Ok(ulid));
            prop_assert_eq!(Ulid::from_parts(ulid.unix_ms(), ulid.random()), Some(ulid));
        }

        #[test]
        fn texts_are_in_the_order_of_ulids(one in ulids(), other in ulids()) {
            prop_assert_eq!(one.cmp(&other), one.text().as_bytes().cmp(other.text().as_bytes()));
        }

        /// Reading refuses exactly what is none, and gives what the definition has.
        #[test]
        fn reading_follows_the_definition(input in "[0-9A-HJKMNP-TV-Z]{26}|[0-9A-Za-z]{26}|[0-7][0-9A-HJKMNP-TV-Z]{25}|\\PC{0,30}") {
            let folded: String = input.to_ascii_uppercase().replace(['I', 'L'], "1").replace('O', "0");
            let expected = match halves(&folded) {
                Some((high, low)) if input.len() == LEN && high >> 63 == 0 => Ok(Ulid(high << 65 | low)),
                _ => Err(()),
            };
            prop_assert_eq!(input.parse::<Ulid>().map_err(|_| ()), expected);
        }
    }
}
