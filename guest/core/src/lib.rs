//! The whole algorithm of unalike: segment buffers, snowflake bit packing, clock-backward handling.
//!
//! One law rules every module: *an id is handed out only from a grant*, an interval that a store gave to exactly one
//! holder, for ever. A [`Segment`] is such an interval of numbers, a [`Lease`] one of timestamps for a worker id.
//! In any doubt a state machine here abandons what is left of a grant and asks for a new one: gaps are allowed,
//! duplicates never.
//!
//! This crate reads no clock and does no I/O: time and the store's answers are arguments, requests are return values.
//! So a clock that steps back, a lost reply or a pause of a week is one line in a test.
//!
//! ```
//! use unalike_core::{Segment, SequenceOptions, SegmentBuffer, ReserveError};
//!
//! let mut orders = SegmentBuffer::new(SequenceOptions::default(), 0)?;
//! assert_eq!(orders.reserve(0, 10), Err(ReserveError::Pending)); // nothing granted yet
//! let request = orders.request(0).expect("an empty buffer asks for a segment");
//! let end = 1 + request.count;
//! orders.granted(0, Segment { start: 1, end, stride: 1, generation: 0, version: 1 })?;
//! let run = orders.reserve(0, 10).unwrap();
//! assert_eq!((run.first, run.count), (1, 10));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]

extern crate alloc;

mod calendar;
mod error;
mod format;
mod format_shape;
mod gene;
mod generator;
mod grant;
mod instant;
mod layout;
mod layout_text;
mod ordered;
mod permutation;
mod policy_text;
mod presets;
mod request;
mod segment;
mod snowflake;
mod text;

pub use calendar::Date;
pub use error::{
    FormatError, GrantFault, LayoutError, OptionsError, ReadError, ReserveError, StoreFailure, TemplateFault,
    TextError, WriteError,
};
pub use format::{Format, FormatKey, FormatOptions, Issued, KEY_ID_BITS_MAX, Restart, TEMPLATE_LEN_MAX};
pub use format_shape::{FormatShape, ShapeChanges};
pub use gene::{GENE_BITS_MAX, Gene};
pub use generator::{Leases, OrderedGenerator, Segments, SequenceGenerator, SnowflakeGenerator};
pub use grant::{GrantId, Lease, Run, Segment, TailRelease};
pub use instant::{InstantError, Rfc3339, instant};
pub use layout::{FieldOrder, Layout, LayoutFields, Parts};
pub use layout_text::LayoutTextError;
pub use ordered::{OrderedBuffer, OrderedOptions};
pub use permutation::Permutation;
pub use policy_text::PolicyTextError;
pub use presets::{PRESETS, Preset, preset};
pub use request::GrantOrder;
pub use segment::{AdaptiveStep, RefillPolicy, SegmentBuffer, SegmentRequest, SequenceOptions, StepPolicy};
pub use snowflake::{ClockPolicy, LeaseRelease, LeaseRequest, Snowflake, SnowflakeOptions, Spread};
pub use text::{TEXT_LEN_MAX, Text, TextBuffer, decode, encode};

/// The greatest id: 2^63 - 1, so that every id fits a signed 64-bit column.
pub const ID_MAX: u64 = i64::MAX as u64;

/// The greatest length of a tag or namespace, in bytes.
pub const NAME_LEN_MAX: usize = 128;

/// Whether a tag or namespace is well formed: 1 to [`NAME_LEN_MAX`] bytes of UTF-8 without control characters.
///
/// ```
/// assert!(unalike_core::is_name("order"));
/// assert!(!unalike_core::is_name(""));
/// assert!(!unalike_core::is_name("a\nb"));
/// ```
#[must_use]
pub fn is_name(name: &str) -> bool {
    is_name_bytes(name.as_bytes())
}

/// [`is_name`] of UTF-8. Looking at bytes keeps the tables of `char` out of the component.
fn is_name_bytes(name: &[u8]) -> bool {
    let mut last = 0;
    // U+0000 to U+001F and U+007F are single bytes; U+0080 to U+009F are 0xC2 and a byte below 0xA0.
    let no_control = name.iter().all(|&byte| {
        let control = byte < 0x20 || byte == 0x7F || (last == 0xC2 && byte < 0xA0);
        last = byte;
        !control
    });
    !name.is_empty() && name.len() <= NAME_LEN_MAX && no_control
}

/// Stands between a tag and a sub-key of it: a control character (unit separator), which no name that people give can
/// hold.
pub const SUB_SEPARATOR: char = '\u{1f}';

/// Whether a tag is well formed: a [name](is_name), or two names with [`SUB_SEPARATOR`] between them, 1 to
/// [`NAME_LEN_MAX`] bytes in all.
///
/// ```
/// assert!(unalike_core::is_tag("chat"));
/// assert!(unalike_core::is_tag("chat\u{1f}user_1")); // the numbers of chat for user_1
/// assert!(!unalike_core::is_tag("chat\u{1f}"));
/// ```
#[must_use]
pub fn is_tag(tag: &str) -> bool {
    let mut names = 0;
    let names_only = tag.as_bytes().split(|byte| *byte == b'\x1f').all(|name| {
        names += 1;
        names <= 2 && is_name_bytes(name)
    });
    names_only && tag.len() <= NAME_LEN_MAX
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;

    #[test]
    fn names_hold_no_control_character_and_128_bytes_at_most() {
        for code in 0..=0x10_FFFF_u32 {
            if let Some(character) = char::from_u32(code) {
                let name: String = ['a', character].iter().collect();
                assert_eq!(is_name(&name), !character.is_control(), "{character:?}");
            }
        }
        assert!(is_name(&"x".repeat(NAME_LEN_MAX)) && !is_name(&"x".repeat(NAME_LEN_MAX + 1)) && !is_name(""));
    }

    #[test]
    fn a_tag_has_one_sub_key_at_most() {
        for tag in ["a", "a\u{1f}b"] {
            assert!(is_tag(tag), "{tag:?}");
        }
        let (longest, too_long) = ("x".repeat(NAME_LEN_MAX - 2), "x".repeat(NAME_LEN_MAX - 1));
        assert!(is_tag(&alloc::format!("{longest}\u{1f}b")) && !is_tag(&alloc::format!("{too_long}\u{1f}b")));
        for tag in ["", "\u{1f}", "a\u{1f}", "\u{1f}b", "a\u{1f}b\u{1f}c", "a\u{1f}\n"] {
            assert!(!is_tag(tag), "{tag:?}");
        }
    }
}
