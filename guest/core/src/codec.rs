//! Ids as text, and back: decimal, base 62 and Crockford's base 32.
//!
//! Each id has exactly one text in each notation, and reading gives back exactly that id; whatever is no id from 1 to
//! [`ID_MAX`] is refused, never cut off. In the two notations of fixed width the order of the texts, byte by byte, is
//! the order of the ids.

use core::{fmt, ops::Deref, str};

use crate::{ID_MAX, TextError};

/// The greatest length of an id as text, in bytes: 2^63 - 1 in decimal.
pub const TEXT_LEN_MAX: usize = 19;

/// How an id is written.
///
/// ```
/// use unalike_core::{Text, encode};
/// assert_eq!(encode(1_000_000, Text::Decimal)?.as_str(), "1000000");
/// assert_eq!(encode(1_000_000, Text::Base62)?.as_str(), "00000004C92");
/// assert_eq!(encode(1_000_000, Text::Base32)?.as_str(), "000000000YGJ0");
/// # Ok::<(), unalike_core::TextError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Text {
    /// Decimal, 1 to 19 digits, without leading zeros.
    Decimal,
    /// `0-9A-Za-z`, always 11 characters: text order is id order.
    Base62,
    /// Crockford's base 32 (<https://www.crockford.com/base32.html>), always 13 characters, upper case: text order is
    /// id order. Reading also takes lower case, `i` and `l` for 1, and `o` for 0.
    Base32,
}

impl Text {
    /// The digits in ascending order, both of their values and of their bytes.
    const fn alphabet(self) -> &'static [u8] {
        match self {
            Self::Decimal => b"0123456789",
            Self::Base62 => b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
            Self::Base32 => b"0123456789ABCDEFGHJKMNPQRSTVWXYZ",
        }
    }

    /// The least and the greatest length, in bytes.
    const fn len_range(self) -> (usize, usize) {
        match self {
            Self::Decimal => (1, TEXT_LEN_MAX),
            Self::Base62 => (11, 11),
            Self::Base32 => (13, 13),
        }
    }

    /// The byte of a digit below the radix.
    fn digit(self, value: u64) -> u8 {
        match usize::try_from(value).ok().and_then(|value| self.alphabet().get(value)) {
            Some(byte) => *byte,
            None => unreachable!("a remainder is below the radix"),
        }
    }

    /// The value of a byte; `None` when it is no digit.
    fn value(self, byte: u8) -> Option<u64> {
        let byte = match (self, byte) {
            (Self::Base32, b'I' | b'i' | b'L' | b'l') => b'1',
            (Self::Base32, b'O' | b'o') => b'0',
            (Self::Base32, _) => byte.to_ascii_uppercase(),
            (Self::Decimal | Self::Base62, _) => byte,
        };
        self.alphabet().iter().position(|digit| *digit == byte).map(|value| value as u64)
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
    bytes: [u8; TEXT_LEN_MAX],
    /// Where the text begins.
    start: usize,
}

impl TextBuffer {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match str::from_utf8(self.as_bytes()) {
            Ok(text) => text,
            Err(_) => unreachable!("only `encode` makes a buffer, and writes ASCII"),
        }
    }

    /// The text as bytes, all of them ASCII.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match self.bytes.get(self.start..) {
            Some(bytes) => bytes,
            None => unreachable!("only `encode` makes a buffer, and starts it inside"),
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
    let radix = text.alphabet().len() as u64;
    let (len_min, _) = text.len_range();
    let mut buffer = TextBuffer { bytes: [b'0'; TEXT_LEN_MAX], start: TEXT_LEN_MAX - len_min };
    let mut rest = id;
    for (at, byte) in buffer.bytes.iter_mut().enumerate().rev() {
        if rest == 0 {
            break;
        }
        *byte = text.digit(rest % radix);
        rest /= radix;
        buffer.start = buffer.start.min(at);
    }
    Ok(buffer)
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
/// [`TextError::Character`] with the first byte that is not in the alphabet, [`TextError::LeadingZero`] for a decimal
/// of two digits or more that begins with 0, and [`TextError::OutOfRange`] when the number is 0 or greater than
/// [`ID_MAX`].
pub fn decode(input: &str, text: Text) -> Result<u64, TextError> {
    let (len_min, len_max) = text.len_range();
    if input.len() < len_min || input.len() > len_max {
        return Err(TextError::Length { len: input.len() });
    }
    let radix = text.alphabet().len() as u64;
    let mut id = 0_u64;
    for (at, byte) in input.bytes().enumerate() {
        let value = text.value(byte).ok_or(TextError::Character { at })?;
        // What saturates stays at 2^64 - 1, which is out of range.
        id = id.saturating_mul(radix).saturating_add(value);
    }
    if text == Text::Decimal && input.len() > 1 && input.starts_with('0') {
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

    const ALL: [Text; 3] = [Text::Decimal, Text::Base62, Text::Base32];

    /// Ids of every length, and those beside the powers of the radices.
    fn ids() -> impl Strategy<Value = u64> {
        prop_oneof![
            1 => 1..=ID_MAX,
            1 => (0..63_u32).prop_flat_map(|shift| 1..=ID_MAX >> shift),
            1 => (prop_oneof![Just(10_u64), Just(32), Just(62)], 0..19_u32, 0..3_u64).prop_map(|(radix, power, offset)| {
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

    #[test]
    fn encode_gives_the_known_texts() {
        for (id, decimal, base62, base32) in [
            (1, "1", "00000000001", "0000000000001"),
            (10, "10", "0000000000A", "000000000000A"),
            (31, "31", "0000000000V", "000000000000Z"),
            (32, "32", "0000000000W", "0000000000010"),
            (61, "61", "0000000000z", "000000000001X"),
            (62, "62", "00000000010", "000000000001Y"),
            (175_928_847_299_117_063, "175928847299117063", "0Czks0tP37X", "04W86BB0G4007"),
            (1_169_786_042_799_259_000, "1169786042799259000", "1OPdDHFpsF6", "10EZA6N444ZBR"),
            (ID_MAX, "9223372036854775807", "AzL8n0Y58m7", "7ZZZZZZZZZZZZ"),
        ] {
            for (text, expected) in ALL.into_iter().zip([decimal, base62, base32]) {
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
        for (text, lengths) in [(Text::Decimal, 1..=19), (Text::Base62, 11..=11), (Text::Base32, 13..=13)] {
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
    }

    #[test]
    fn base32_reads_lower_case_and_the_letters_that_look_like_digits() {
        for one in ["1", "i", "I", "l", "L"] {
            assert_eq!(decode(&format!("ooooOOOO000o{one}"), Text::Base32), Ok(1), "{one}");
        }
        assert_eq!(decode("04w86bb0g4007", Text::Base32), Ok(175_928_847_299_117_063));
        // Neither stands for a digit in base 62: there they are digits of their own.
        assert_eq!(decode("0000000000o", Text::Base62), Ok(50));
        assert_eq!(decode("0000000000I", Text::Base62), Ok(18));
    }

    #[test]
    fn every_byte_is_a_digit_exactly_where_the_alphabet_says_so() {
        let alphabets = [
            (Text::Decimal, "0123456789", ""),
            (Text::Base62, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", ""),
            (Text::Base32, "0123456789ABCDEFGHJKMNPQRSTVWXYZ", "abcdefghjkmnpqrstvwxyzIiLlOo"),
        ];
        for (text, digits, aliases) in alphabets {
            assert!(text.alphabet().is_sorted(), "{text:?}");
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
            let alphabet = str::from_utf8(text.alphabet()).unwrap();
            prop_assert_eq!(number(&written, alphabet), Some(u128::from(id)));
            match text {
                Text::Decimal => prop_assert_eq!(&*written, id.to_string()),
                Text::Base62 => prop_assert_eq!(written.len(), 11),
                Text::Base32 => prop_assert_eq!(written.len(), 13),
            }
        }

        #[test]
        fn the_order_of_texts_of_fixed_width_is_the_order_of_ids(one in ids(), two in ids(), beside in any::<bool>()) {
            let two = if beside { (one % ID_MAX) + 1 } else { two };
            for text in [Text::Base62, Text::Base32] {
                let (first, second) = (encode(one, text).unwrap(), encode(two, text).unwrap());
                prop_assert_eq!(first.as_bytes().cmp(second.as_bytes()), one.cmp(&two));
            }
        }

        /// Any text of digits is read as its number or refused for its range: nothing wraps.
        #[test]
        fn any_digits_are_their_number_or_out_of_range(
            (text, input) in prop_oneof![
                (Just(Text::Decimal), "[1-9][0-9]{0,18}"),
                (Just(Text::Base62), "[0-9A-Za-z]{11}"),
                (Just(Text::Base32), "[0-9A-HJKMNP-TV-Z]{13}"),
            ],
        ) {
            let number = number(&input, str::from_utf8(text.alphabet()).unwrap()).unwrap();
            let expected = match u64::try_from(number) {
                Ok(id @ 1..=ID_MAX) => Ok(id),
                _ => Err(TextError::OutOfRange),
            };
            prop_assert_eq!(decode(&input, text), expected);
        }

        /// What is read is written the same way again, but for the other spellings of base 32.
        #[test]
        fn whatever_is_read_has_one_spelling(input in "[0-9A-Za-z]{0,20}|\\PC{0,20}", text in texts()) {
            if let Ok(id) = decode(&input, text) {
                let canonical = match text {
                    Text::Decimal | Text::Base62 => input,
                    Text::Base32 => input.to_ascii_uppercase().replace(['I', 'L'], "1").replace('O', "0"),
                };
                prop_assert_eq!(&*encode(id, text).unwrap(), canonical);
            }
        }
    }
}
