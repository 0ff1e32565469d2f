//! `codec`: pure functions, straight from the core.

use alloc::string::String;
use alloc::vec::Vec;

use unalike_core as core_;

use crate::Component;
use crate::bindings::exports::unalike::ids::codec::{Error, Guest, Layout, Parts, Text, TextError};
use crate::bindings::unalike::ids::types::Argument;
use crate::translate;

impl Guest for Component {
    fn unpack(id: u64, layout: Layout) -> Result<Parts, Error> {
        let parts = translate::layout(&layout)?.unpack(id).map_err(translate::layout_error)?;
        Ok(Parts { ticks: parts.ticks, worker: parts.worker, sequence: parts.sequence })
    }

    fn pack(parts: Parts, layout: Layout) -> Result<u64, Error> {
        let parts = core_::Parts { ticks: parts.ticks, worker: parts.worker, sequence: parts.sequence };
        translate::layout(&layout)?.pack(parts).map_err(translate::layout_error)
    }

    fn id_range(layout: Layout, from: u64, until: u64) -> Result<(u64, u64), Error> {
        let ids = translate::layout(&layout)?.id_range(from, until).map_err(translate::layout_error)?;
        Ok((*ids.start(), *ids.end()))
    }

    fn encode(id: u64, text: Text) -> Result<String, Error> {
        match core_::encode(id, notation(text)) {
            #[expect(unsafe_code, reason = "the check for UTF-8 would be a fortieth of the component")]
            // SAFETY: an encoded id is ASCII.
            Ok(buffer) => Ok(unsafe { String::from_utf8_unchecked(Vec::from(buffer.as_bytes())) }),
            Err(_) => Err(Error::InvalidArgument(Argument::Id)),
        }
    }

    fn decode(input: String, text: Text) -> Result<u64, TextError> {
        core_::decode(&input, notation(text)).map_err(|error| match error {
            core_::TextError::Length { len } => TextError::Length(position(len)),
            core_::TextError::Character { at } => TextError::Character(position(at)),
            core_::TextError::LeadingZero => TextError::LeadingZero,
            core_::TextError::OutOfRange => TextError::OutOfRange,
        })
    }
}

/// A length or position in a text: the memory of a component has 32-bit addresses, so it always fits.
fn position(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn notation(text: Text) -> core_::Text {
    match text {
        Text::Decimal => core_::Text::Decimal,
        Text::Padded => core_::Text::Padded,
        Text::Base36 => core_::Text::Base36,
        Text::Base62 => core_::Text::Base62,
        Text::Base32 => core_::Text::Base32,
        Text::Uuid => core_::Text::Uuid,
    }
}
