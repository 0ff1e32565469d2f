//! Ids as text, and back: decimal, base 36, base 62, Crockford's base 32, and inside a UUID.
//!
//! Each id has exactly one text in each notation, and reading gives back exactly that id; whatever is no id from 1 to
//! [`ID_MAX`] is refused, never cut off. In the notations of fixed width, all but the plain decimal, the order of the
//! texts, byte by byte, is the order of the ids.

use core::{fmt, ops::Deref, str};

use crate::{ID_MAX, TextError};

/// The greatest length of an id as text, in bytes: that of a UUID.
pub const TEXT_LEN_MAX: usize = 36;

/// Where the hyphens of a UUID stand.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

/// How an id is written.
///
/// ```
/// use unalike_core::{Text, encode};
/// assert_eq!(encode(1_000_000, Text::Decimal)?.as_str(), "1000000");
/// assert_eq!(encode(1_000_000, Text::Padded)?.as_str(), "0000000000001000000");
/// assert_eq!(encode(1_000_000, Text::Base36)?.as_str(), "000000000lfls");
/// assert_eq!(encode(1_000_000, Text::Base62)?.as_str(), "00000004C92");
/// assert_eq!(encode(1_000_000, Text::Base32)?.as_str(), "000000000YGJ0");
/// assert_eq!(encode(1_000_000, Text::Uuid)?.as_str(), "00000000-001e-8848-8100-000000000000");
/// # Ok::<(), unalike_core::TextError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Text {
    /// Decimal, 1 to 19 digits, without leading zeros.
    Decimal,
    /// Decimal, always 19 digits.
    Padded,
    /// `0-9a-z`, always 13 characters, as JavaScript's `toString(36)` and Java's `Long.toString(id, 36)` with zeros in
    /// front. Reading also takes upper case.
    Base36,
    /// `0-9A-Za-z`, always 11 characters.
    Base62,
    /// Crockford's base 32 (<https://www.crockford.com/base32.html>), always 13 characters, upper case: the text of a
    /// TSID. Reading also takes lower case, `i` and `l` for 1, and `o` for 0.
    Base32,
    /// A UUID of version 8, whose meaning is its maker's (RFC 9562, section 5.8): the id's 63 bits stand first, around
    /// version and variant, and 001 and zeros follow. Always 36 characters, lower case; reading also takes upper case.
    /// It is as unique as the id: under one tag, not world-wide.
    Uuid,
}

impl Text {
    /// The least and the greatest length, in bytes.
    const fn len_range(self) -> (usize, usize) {
        match self {
            Self::Decimal => (1, 19),
            Self::Padded => (19, 19),
            Self::Base36 | Self::Base32 => (13, 13),
            Self::Base62 => (11, 11),
            Self::Uuid => (TEXT_LEN_MAX, TEXT_LEN_MAX),
        }
    }

    /// The length, where every id has the same.
    pub(crate) const fn width(self) -> Option<usize> {
        match self.len_range() {
            (len_min, len_max) if len_min == len_max => Some(len_max),
            _ => None,
        }
    }

    const fn radix(self) -> u64 {
        match self {
            Self::Decimal | Self::Padded => 10,
            Self::Base36 => 36,
            Self::Base62 => 62,
            Self::Base32 => 32,
            Self::Uuid => 16,
        }
    }

    /// The digit of a value below the notation's radix.
    ///
    /// ```
    /// use unalike_core::Text;
    /// assert_eq!((Text::Base32.digit(31), Text::Base32.value(b'z')), (b'Z', Some(31)));
    /// ```
    #[must_use]
    pub fn digit(self, value: u8) -> u8 {
        match (self, value) {
            (_, 0..10) => b'0' + value,
            (Self::Base36 | Self::Uuid, _) => b'a' - 10 + value,
            // Capital letters, of which I, L, O and U are left out.
            (Self::Base32, _) => {
                b'A' - 10
                    + value
                    + u8::from(value >= 18)
                    + u8::from(value >= 20)
                    + u8::from(value >= 22)
                    + u8::from(value >= 27)
            }
            (_, 10..36) => b'A' - 10 + value,
            _ => b'a' - 36 + value,
        }
    }

    /// The value of a digit; `None` for a byte that is no digit of the notation.
    #[must_use]
    pub fn value(self, byte: u8) -> Option<u8> {
        let folded = match self {
            Self::Base32 => byte.to_ascii_uppercase(),
            Self::Base36 | Self::Uuid => byte.to_ascii_lowercase(),
            Self::Decimal | Self::Padded | Self::Base62 => byte,
        };
        match (self, folded) {
            (_, b'0'..=b'9') => Some(folded - b'0'),
            (Self::Base36, b'a'..=b'z') | (Self::Uuid, b'a'..=b'f') => Some(folded - b'a' + 10),
            (Self::Base32, b'A'..=b'H') | (Self::Base62, b'A'..=b'Z') => Some(folded - b'A' + 10),
            (Self::Base62, b'a'..=b'z') => Some(folded - b'a' + 36),
            (Self::Base32, b'J' | b'K') => Some(folded - b'J' + 18),
            (Self::Base32, b'M' | b'N') => Some(folded - b'M' + 20),
            (Self::Base32, b'P'..=b'T') => Some(folded - b'P' + 22),
            (Self::Base32, b'V'..=b'Z') => Some(folded - b'V' + 27),
            (Self::Base32, b'I' | b'L') => Some(1),
            (Self::Base32, b'O') => Some(0),
            _ => None,
        }
    }
}

/// An id as text: ASCII, made by [`encode`] without an allocation.
///
/// `Display` and `to_string` go through `core::fmt`; `String::from(buffer.as_str())` does not.
///
/// ```
/// let text = unalike_core::encode(42, unalike_core::Text::Decimal)?;
/// assert_eq!(text.as_str(), "42");
/// assert_eq!(text.len(), 2); // it is a `str` by Deref
/// # Ok::<(), unalike_core::TextError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TextBuffer {
    /// The text stands at the end; what is before it is `0`.
    pub(crate) bytes: [u8; TEXT_LEN_MAX],
    /// Where the text begins.
    pub(crate) start: usize,
}

impl TextBuffer {
    /// A buffer with this text; `None` when it is longer than [`TEXT_LEN_MAX`] or not ASCII.
    ///
    /// ```
    /// use unalike_core::TextBuffer;
    /// assert_eq!(TextBuffer::of_ascii(b"7ZZ").unwrap().as_str(), "7ZZ");
    /// assert_eq!(TextBuffer::of_ascii(&[b'0'; 37]), None);
    /// ```
    #[must_use]
    pub fn of_ascii(text: &[u8]) -> Option<Self> {
        let mut buffer = Self { bytes: [b'0'; TEXT_LEN_MAX], start: TEXT_LEN_MAX.checked_sub(text.len())? };
        buffer.bytes.get_mut(buffer.start..)?.copy_from_slice(text);
        text.is_ascii().then_some(buffer)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match str::from_utf8(self.as_bytes()) {
            Ok(text) => text,
            Err(_) => unreachable!("whoever makes a buffer writes ASCII"),
        }
    }

    /// The text as bytes, all of them ASCII.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match self.bytes.get(self.start..) {
            Some(bytes) => bytes,
            None => unreachable!("whoever makes a buffer starts it inside"),
        }
    }
}

impl Deref for TextBuffer {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for TextBuffer {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for TextBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for TextBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// An id as text.
///
/// ```
/// use unalike_core::{Text, encode};
///
/// let id = 175_928_847_299_117_063;
/// assert_eq!(&*encode(id, Text::Decimal)?, "175928847299117063");
/// assert_eq!(&*encode(id, Text::Base62)?, "0Czks0tP37X");
/// assert_eq!(&*encode(id, Text::Base32)?, "04W86BB0G4007");
/// # Ok::<(), unalike_core::TextError>(())
/// ```
///
/// # Errors
/// [`TextError::OutOfRange`] when the id is 0 or greater than [`ID_MAX`].
pub fn encode(id: u64, text: Text) -> Result<TextBuffer, TextError> {
    if id == 0 || id > ID_MAX {
        return Err(TextError::OutOfRange);
    }
    let (len_min, _) = text.len_range();
    let mut buffer = TextBuffer { bytes: [b'0'; TEXT_LEN_MAX], start: TEXT_LEN_MAX - len_min };
    match text {
        // A radix that the compiler knows costs no division.
        Text::Decimal | Text::Padded => buffer.write::<10>(id, text),
        Text::Base36 => buffer.write::<36>(id, text),
        Text::Base62 => buffer.write::<62>(id, text),
        Text::Base32 => buffer.write::<32>(id, text),
        Text::Uuid => {
            let mut rest = in_uuid(id);
            for (at, byte) in buffer.bytes.iter_mut().enumerate() {
                *byte = b'-';
                if !HYPHENS.contains(&at) {
                    rest = rest.rotate_left(4);
                    *byte = text.digit(rest.to_le_bytes()[0] & 0xF);
                }
            }
        }
    }
    Ok(buffer)
}

impl TextBuffer {
    /// Writes the digits of an id from the end on, as many as it has.
    fn write<const RADIX: u64>(&mut self, id: u64, text: Text) {
        let mut rest = id;
        for (at, byte) in self.bytes.iter_mut().enumerate().rev() {
            if rest == 0 {
                break;
            }
            #[expect(clippy::cast_possible_truncation, reason = "a digit is below 62")]
            let digit = (rest % RADIX) as u8;
            *byte = text.digit(digit);
            rest /= RADIX;
            self.start = self.start.min(at);
        }
    }
}

/// The id whose bits stand in these of a UUID, whatever the others are.
#[expect(clippy::cast_possible_truncation, reason = "the upper half, and three bits")]
const fn of_uuid(bits: u128) -> u64 {
    let high = (bits >> 64) as u64;
    high >> 16 << 15 | (high & 0xFFF) << 3 | (bits >> 59) as u64 & 7
}

/// The 128 bits of the UUID with this id: 48 bits of it, the version, 12 bits, the variant, the last 3 bits, 001 and
/// zeros.
///
/// The 1 is for MariaDB, whose type UUID takes no text of version 8 in which the byte of the variant is 0x80.
const fn in_uuid(id: u64) -> u128 {
    let high = (id >> 15 << 16) | 0x8000 | (id >> 3 & 0xFFF);
    let low = (1 << 63) | (id & 7) << 59 | 1 << 56;
    (high as u128) << 64 | low as u128
}

/// An id from text.
///
/// ```
/// use unalike_core::{Text, TextError, decode};
///
/// assert_eq!(decode("04w86bbog4oo7", Text::Base32), Ok(175_928_847_299_117_063));
/// assert_eq!(decode("17 592", Text::Decimal), Err(TextError::Character { at: 2 }));
/// ```
///
/// # Errors
/// The first of these that is true: [`TextError::Length`] when no id has this many bytes in this notation,
/// [`TextError::Character`] with the first byte that stands in no id, [`TextError::LeadingZero`] for a decimal
/// of two digits or more that begins with 0, and [`TextError::OutOfRange`] when the number is 0 or greater than
/// [`ID_MAX`].
pub fn decode(input: &str, text: Text) -> Result<u64, TextError> {
    decode_bytes(input.as_bytes(), text)
}

/// The same of bytes, which may end inside a character: that is no digit anyway.
pub(crate) fn decode_bytes(input: &[u8], text: Text) -> Result<u64, TextError> {
    let (len_min, len_max) = text.len_range();
    if input.len() < len_min || input.len() > len_max {
        return Err(TextError::Length { len: input.len() });
    }
    let mut id = 0_u64;
    if text == Text::Uuid {
        let mut bits = 0_u128;
        for (at, byte) in input.iter().copied().enumerate() {
            if HYPHENS.contains(&at) {
                if byte != b'-' {
                    return Err(TextError::Character { at });
                }
                continue;
            }
            bits = bits << 4 | u128::from(text.value(byte).ok_or(TextError::Character { at })?);
        }
        id = of_uuid(bits);
        let differs = in_uuid(id) ^ bits;
        if differs != 0 {
            // The first digit that no id has there: of the version, the variant or the zeros, with the hyphens before
            // it.
            let digit = differs.leading_zeros() as usize / 4;
            let hyphens = [8, 12, 16, 20].into_iter().filter(|before| digit >= *before).count();
            let at = digit + hyphens;
            return Err(TextError::Character { at });
        }
    } else {
        for (at, byte) in input.iter().copied().enumerate() {
            let value = text.value(byte).ok_or(TextError::Character { at })?;
            // What saturates stays at 2^64 - 1, which is out of range.
            id = id.saturating_mul(text.radix()).saturating_add(u64::from(value));
        }
    }
    if text == Text::Decimal && input.len() > 1 && input.starts_with(b"0") {
        return Err(TextError::LeadingZero);
    }
    if id == 0 || id > ID_MAX {
        return Err(TextError::OutOfRange);
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use alloc::{
        format,
        string::{String, ToString},
        vec::Vec,
    };

    use proptest::prelude::*;

    use super::*;

    const ALL: [Text; 6] = [Text::Decimal, Text::Padded, Text::Base36, Text::Base62, Text::Base32, Text::Uuid];

    /// The digits in ascending order, as the notation's definition has them.
    fn alphabet(text: Text) -> &'static str {
        match text {
            Text::Decimal | Text::Padded => "0123456789",
            Text::Base36 => "0123456789abcdefghijklmnopqrstuvwxyz",
            Text::Base62 => "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
            Text::Base32 => "0123456789ABCDEFGHJKMNPQRSTVWXYZ",
            Text::Uuid => "0123456789abcdef",
        }
    }

    /// Ids of every length, and those beside the powers of the radices.
    fn ids() -> impl Strategy<Value = u64> {
        prop_oneof![
            1 => 1..=ID_MAX,
            1 => (0..63_u32).prop_flat_map(|shift| 1..=ID_MAX >> shift),
            1 => (prop_oneof![Just(8_u64), Just(10), Just(32), Just(36), Just(62)], 0..19_u32, 0..3_u64).prop_map(|(radix, power, offset)| {
                (radix.saturating_pow(power).min(ID_MAX) - 1).saturating_add(offset).clamp(1, ID_MAX)
            }),
        ]
    }

    fn texts() -> impl Strategy<Value = Text> {
        prop::sample::select(&ALL[..])
    }

    /// By definition: the sum of the digits times the powers of the radix, in arithmetic that cannot overflow.
    fn number(input: &str, alphabet: &str) -> Option<u128> {
        input.chars().try_fold(0, |number, digit| {
            Some(number * u128::try_from(alphabet.len()).unwrap() + u128::try_from(alphabet.find(digit)?).unwrap())
        })
    }

    /// An id a line, in the order of [`ALL`].
    const KNOWN: &str = "
        1 0000000000000000001 0000000000001 00000000001 0000000000001 00000000-0000-8000-8900-000000000000
        10 0000000000000000010 000000000000a 0000000000A 000000000000A 00000000-0000-8001-9100-000000000000
        31 0000000000000000031 000000000000v 0000000000V 000000000000Z 00000000-0000-8003-b900-000000000000
        32 0000000000000000032 000000000000w 0000000000W 0000000000010 00000000-0000-8004-8100-000000000000
        36 0000000000000000036 0000000000010 0000000000a 0000000000014 00000000-0000-8004-a100-000000000000
        61 0000000000000000061 000000000001p 0000000000z 000000000001X 00000000-0000-8007-a900-000000000000
        62 0000000000000000062 000000000001q 00000000010 000000000001Y 00000000-0000-8007-b100-000000000000
        32767 0000000000000032767 0000000000pa7 000000008WV 0000000000ZZZ 00000000-0000-8fff-b900-000000000000
        32768 0000000000000032768 0000000000pa8 000000008WW 0000000001000 00000000-0001-8000-8100-000000000000
        1169786042799259000 1169786042799259000 08vy6jl9y3794 1OPdDHFpsF6 10EZA6N444ZBR 2077d46a-9084-8faf-8100-000000000000
        9223372036854775807 9223372036854775807 1y2p0ij32e8e7 AzL8n0Y58m7 7ZZZZZZZZZZZZ ffffffff-ffff-8fff-b900-000000000000
    ";

    #[test]
    fn encode_gives_the_known_texts() {
        for texts in KNOWN.trim().lines() {
            let id = texts.split_whitespace().next().unwrap().parse().unwrap();
            for (text, expected) in ALL.into_iter().zip(texts.split_whitespace()) {
                assert_eq!(encode(id, text).as_deref(), Ok(expected), "{id} as {text:?}");
                assert_eq!(decode(expected, text), Ok(id), "{expected} as {text:?}");
            }
        }
    }

    #[test]
    fn encode_refuses_what_is_no_id() {
        for text in ALL {
            for id in [0, ID_MAX + 1, u64::MAX] {
                assert_eq!(encode(id, text), Err(TextError::OutOfRange), "{id} as {text:?}");
            }
        }
    }

    #[test]
    fn decode_refuses_lengths_that_no_id_has() {
        for (text, lengths) in [
            (Text::Decimal, 1..=19),
            (Text::Padded, 19..=19),
            (Text::Base36, 13..=13),
            (Text::Base62, 11..=11),
            (Text::Base32, 13..=13),
            (Text::Uuid, 36..=36),
        ] {
            for len in 0..100 {
                let refused = decode(&"1".repeat(len), text) == Err(TextError::Length { len });
                assert_eq!(refused, !lengths.contains(&len), "{len} digits as {text:?}");
            }
        }
        // The length counts bytes, and comes before the alphabet.
        assert_eq!(decode("ééééééé", Text::Base32), Err(TextError::Length { len: 14 }));
    }

    #[test]
    fn decode_names_the_first_foreign_byte() {
        for (input, text, at) in [
            ("+1", Text::Decimal, 0),
            ("-1", Text::Decimal, 0),
            ("1 ", Text::Decimal, 1),
            ("12a4b", Text::Decimal, 2),
            ("00x", Text::Decimal, 2),
            ("999999999999999999x", Text::Decimal, 18),
            ("zzzzzzzzzz-", Text::Base62, 10),
            ("0000000é00", Text::Base62, 7),
            ("000000000000U", Text::Base32, 12),
            ("u000000000000", Text::Base32, 0),
            ("ZZZZZZ-ZZZZZZ", Text::Base32, 6),
            ("0000000000\u{0}00", Text::Base32, 10),
            ("000000000000-", Text::Base36, 12),
            ("000000000000000000a", Text::Padded, 18),
            ("00000000-0000-8000-8900-00000000000g", Text::Uuid, 35),
            ("0000000000000-8000-8900-000000000000", Text::Uuid, 8),
            ("00000000-0000-8000x8900-000000000000", Text::Uuid, 18),
            ("-0000000-0000-8000-8900-000000000000", Text::Uuid, 0),
            // Another version, another variant, and something where zeros stand.
            ("00000000-0000-7000-8900-000000000000", Text::Uuid, 14),
            ("00000000-0000-8000-0900-000000000000", Text::Uuid, 19),
            ("00000000-0000-8000-c900-000000000000", Text::Uuid, 19),
            ("00000000-0000-8000-8800-000000000000", Text::Uuid, 20),
            ("00000000-0000-8000-8d00-000000000000", Text::Uuid, 20),
            ("00000000-0000-8000-8910-000000000000", Text::Uuid, 21),
            ("00000000-0000-8000-8900-000000000001", Text::Uuid, 35),
            ("00000000-0000-8000-8900-100000000000", Text::Uuid, 24),
        ] {
            assert_eq!(decode(input, text), Err(TextError::Character { at }), "{input:?} as {text:?}");
        }
    }

    #[test]
    fn decode_refuses_numbers_that_are_no_ids() {
        for (input, text) in [
            ("0", Text::Decimal),
            ("9223372036854775808", Text::Decimal),
            ("9999999999999999999", Text::Decimal),
            ("00000000000", Text::Base62),
            ("AzL8n0Y58m8", Text::Base62),
            ("LygHa16AHYF", Text::Base62), // 2^64 - 1
            ("LygHa16AHYG", Text::Base62), // 2^64, which wraps to 0
            ("LygHa16AHYH", Text::Base62), // 2^64 + 1, which wraps to 1
            ("zzzzzzzzzzz", Text::Base62),
            ("0000000000000", Text::Base32),
            ("ooooooooooooo", Text::Base32),
            ("8000000000000", Text::Base32),
            ("FZZZZZZZZZZZZ", Text::Base32), // 2^64 - 1
            ("G000000000000", Text::Base32), // 2^64
            ("G000000000001", Text::Base32), // 2^64 + 1
            ("ZZZZZZZZZZZZZ", Text::Base32),
            ("0000000000000000000", Text::Padded),
            ("9223372036854775808", Text::Padded),
            ("0000000000000", Text::Base36),
            ("1y2p0ij32e8e8", Text::Base36),
            ("3w5e11264sgsf", Text::Base36), // 2^64 - 1
            ("3w5e11264sgsg", Text::Base36), // 2^64
            ("zzzzzzzzzzzzz", Text::Base36),
            ("00000000-0000-8000-8100-000000000000", Text::Uuid),
        ] {
            assert_eq!(decode(input, text), Err(TextError::OutOfRange), "{input} as {text:?}");
        }
    }

    #[test]
    fn decode_refuses_leading_zeros_of_decimals_only() {
        for input in ["00", "01", "0000000000000000001"] {
            assert_eq!(decode(input, Text::Decimal), Err(TextError::LeadingZero), "{input}");
        }
        assert_eq!(decode("00000000001", Text::Base62), Ok(1));
        assert_eq!(decode("0000000000001", Text::Base32), Ok(1));
        assert_eq!(decode("0000000000000000001", Text::Padded), Ok(1));
    }

    #[test]
    fn base32_reads_lower_case_and_the_letters_that_look_like_digits() {
        for one in ["1", "i", "I", "l", "L"] {
            assert_eq!(decode(&format!("ooooOOOO000o{one}"), Text::Base32), Ok(1), "{one}");
        }
        assert_eq!(decode("04w86bb0g4007", Text::Base32), Ok(175_928_847_299_117_063));
        assert_eq!(decode("08VY6Jl9Y3794", Text::Base36), Ok(1_169_786_042_799_259_000));
        assert_eq!(decode("2077D46A-9084-8FAF-8100-000000000000", Text::Uuid), Ok(1_169_786_042_799_259_000));
        // Neither stands for a digit in base 62: there they are digits of their own.
        assert_eq!(decode("0000000000o", Text::Base62), Ok(50));
        assert_eq!(decode("0000000000I", Text::Base62), Ok(18));
    }

    #[test]
    fn every_byte_is_a_digit_exactly_where_the_alphabet_says_so() {
        for text in ALL {
            let aliases = match text {
                Text::Decimal | Text::Padded | Text::Base62 => "",
                Text::Base36 => "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
                Text::Base32 => "abcdefghjkmnpqrstvwxyzIiLlOo",
                Text::Uuid => "ABCDEF",
            };
            let digits = alphabet(text);
            assert!(digits.as_bytes().is_sorted(), "{text:?}");
            for byte in 0..=u8::MAX {
                let known = digits.contains(char::from(byte)) || aliases.contains(char::from(byte));
                assert_eq!(text.value(byte).is_some(), known, "{byte} as {text:?}");
            }
            for (value, digit) in (0..).zip(digits.bytes()) {
                assert_eq!((text.digit(value), text.value(digit)), (digit, Some(value)), "{text:?}");
            }
        }
    }

    #[test]
    fn a_buffer_reads_as_its_text() {
        let buffer = encode(42, Text::Decimal).unwrap();
        assert_eq!((buffer.as_str(), buffer.as_ref(), &*buffer), ("42", "42", "42"));
        assert_eq!(buffer.to_string(), "42");
        assert_eq!(format!("{buffer:>5}|{buffer:?}"), "   42|\"42\"");
        assert_eq!(String::from(buffer.as_str()).into_bytes(), Vec::from(*b"42"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn decode_gives_back_the_id_that_was_encoded(id in ids(), text in texts()) {
            prop_assert_eq!(decode(&encode(id, text).unwrap(), text), Ok(id));
        }

        #[test]
        fn a_text_is_the_number_by_definition(id in ids(), text in texts()) {
            let written = encode(id, text).unwrap();
            let of_digits = number(&written.replace('-', ""), alphabet(text));
            match text {
                Text::Decimal => prop_assert_eq!(&*written, id.to_string()),
                Text::Uuid => {
                    // The id's bits, in the order of the UUID's.
                    let bits = format!("{:0128b}", of_digits.unwrap());
                    let of_id = [&bits[..48], &bits[52..64], &bits[66..69]].concat();
                    prop_assert_eq!(of_id, format!("{id:063b}"));
                    prop_assert_eq!((&bits[48..52], &bits[64..66], &bits[69..72]), ("1000", "10", "001"));
                    prop_assert_eq!(&bits[72..], "0".repeat(56));
                }
                _ => {
                    prop_assert_eq!(of_digits, Some(u128::from(id)));
                    prop_assert_eq!(Some(written.len()), text.width());
                }
            }
        }

        #[test]
        fn the_order_of_texts_of_fixed_width_is_the_order_of_ids(one in ids(), two in ids(), beside in any::<bool>()) {
            let two = if beside { (one % ID_MAX) + 1 } else { two };
            for text in ALL.into_iter().filter(|text| text.width().is_some()) {
                let (first, second) = (encode(one, text).unwrap(), encode(two, text).unwrap());
                prop_assert_eq!(first.as_bytes().cmp(second.as_bytes()), one.cmp(&two));
            }
        }

        /// Any text of digits is read as its number or refused for its range: nothing wraps.
        #[test]
        fn any_digits_are_their_number_or_out_of_range(
            (text, input) in prop_oneof![
                (Just(Text::Decimal), "[1-9][0-9]{0,18}"),
                (Just(Text::Padded), "[0-9]{19}"),
                (Just(Text::Base36), "[0-9a-zA-Z]{13}"),
                (Just(Text::Base62), "[0-9A-Za-z]{11}"),
                (Just(Text::Base32), "[0-9A-HJKMNP-TV-Z]{13}"),
            ],
        ) {
            let folded = if text == Text::Base36 { input.to_ascii_lowercase() } else { input.clone() };
            let number = number(&folded, alphabet(text)).unwrap();
            let expected = match u64::try_from(number) {
                Ok(id @ 1..=ID_MAX) => Ok(id),
                _ => Err(TextError::OutOfRange),
            };
            prop_assert_eq!(decode(&input, text), expected);
        }

        /// What is read is written the same way again, but for the other spellings of base 32.
        #[test]
        fn whatever_is_read_has_one_spelling(
            input in "[0-9A-Za-z]{0,20}|[0-9]{19}|[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89aAbB][08]00-0{12}|\\PC{0,20}",
            text in texts(),
        ) {
            if let Ok(id) = decode(&input, text) {
                let canonical = match text {
                    Text::Decimal | Text::Padded | Text::Base62 => input,
                    Text::Base36 | Text::Uuid => input.to_ascii_lowercase(),
                    Text::Base32 => input.to_ascii_uppercase().replace(['I', 'L'], "1").replace('O', "0"),
                };
                prop_assert_eq!(&*encode(id, text).unwrap(), canonical);
            }
        }
    }
}
