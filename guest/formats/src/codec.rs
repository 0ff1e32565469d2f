//! `codec`: pure functions, straight from the core.

use alloc::string::String;
use alloc::vec::Vec;

use unalike_core as core_;

use crate::Component;
use crate::bindings::exports::unalike::ids::codec::{
    Error, Format, FormatError, FormatKey, FormatOptions, Guest, GuestFormat, Issued, KeyCheck, Layout, Parts, Restart,
    TemplateFault, Text, TextError,
};
use crate::bindings::unalike::ids::types::{Argument, FieldOrder};

impl Guest for Component {
    type Format = core_::Format;

    fn unpack(id: u64, layout: Layout) -> Result<Parts, Error> {
        let parts = checked(&layout)?.unpack(id).map_err(|_| Error::InvalidArgument(Argument::Id))?;
        Ok(Parts { ticks: parts.ticks, worker: parts.worker, sequence: parts.sequence })
    }

    fn pack(parts: Parts, layout: Layout) -> Result<u64, Error> {
        let parts = core_::Parts { ticks: parts.ticks, worker: parts.worker, sequence: parts.sequence };
        checked(&layout)?.pack(parts).map_err(|_| Error::InvalidArgument(Argument::Id))
    }

    fn id_range(layout: Layout, from: u64, until: u64) -> Result<(u64, u64), Error> {
        match checked(&layout)?.id_range(from, until) {
            Ok(ids) => Ok(ids.into_inner()),
            Err(_) => Err(Error::InvalidArgument(Argument::Span)),
        }
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

impl GuestFormat for core_::Format {
    fn open(options: FormatOptions) -> Result<Format, FormatError> {
        let key =
            |key: &FormatKey| core_::FormatKey { id: key.id, secret: u128::from(key.high) << 64 | u128::from(key.low) };
        let keys: Vec<_> = options.keys.iter().map(key).collect();
        let options = core_::FormatOptions {
            template: &options.template,
            utc_offset_minutes: options.utc_offset_minutes,
            restart: match options.restart {
                Restart::Never => core_::Restart::Never,
                Restart::Year => core_::Restart::Year,
                Restart::Month => core_::Restart::Month,
                Restart::Day => core_::Restart::Day,
            },
            bits: options.bits,
            gene_bits: options.gene_bits,
            key_id_bits: options.key_id_bits,
            keys: &keys,
            context: &options.context,
        };
        core_::Format::new(&options).map(Format::new).map_err(format_error)
    }

    fn id_max(&self) -> u64 {
        self.id_max()
    }

    fn period(&self, issued: u64) -> Result<Option<String>, FormatError> {
        self.period(issued).map_err(write_error)
    }

    fn number(&self, id: u64, issued: u64, shard_key: Option<u64>) -> Result<u64, FormatError> {
        self.number(id, issued, shard_key).map_err(write_error)
    }

    fn original(&self, number: u64) -> Result<Issued, FormatError> {
        issued(self.original(number))
    }

    fn write(&self, id: u64, issued: u64, shard_key: Option<u64>) -> Result<String, FormatError> {
        self.write(id, issued, shard_key).map_err(write_error)
    }

    fn read(&self, text: String) -> Result<Issued, FormatError> {
        issued(self.read(&text))
    }

    fn shape(&self) -> u64 {
        self.shape().number()
    }

    fn key_checks(&self) -> Vec<KeyCheck> {
        let bits = self.permuted_bits();
        self.key_checks().map(|(id, check)| KeyCheck { id, bits, check }).collect()
    }
}

fn issued(read: Result<core_::Issued, core_::ReadError>) -> Result<Issued, FormatError> {
    match read {
        Ok(read) => Ok(Issued {
            id: read.id,
            number: read.number,
            gene: read.gene,
            key_id: read.key_id,
            span: read.issued_ms.map(|span| (span.start, span.end)),
        }),
        Err(error) => Err(match error {
            core_::ReadError::Length { len } => FormatError::Length(position(len)),
            core_::ReadError::Character { at } => FormatError::Character(position(at)),
            core_::ReadError::Date { at } => FormatError::Date(position(at)),
            core_::ReadError::Number { at } => FormatError::Number(position(at)),
            core_::ReadError::Key { id } => FormatError::Key(id),
        }),
    }
}

fn format_error(error: core_::FormatError) -> FormatError {
    use core_::FormatError as E;
    match error {
        E::Template { at, fault } => FormatError::Template((position(at), template_fault(fault))),
        E::Restart => FormatError::Restart,
        E::Bits => FormatError::Bits,
        E::Key { id } => FormatError::Key(id),
        E::Digits { width } => FormatError::Digits(width),
        E::UtcOffset => FormatError::UtcOffset,
    }
}

fn template_fault(fault: core_::TemplateFault) -> TemplateFault {
    match fault {
        core_::TemplateFault::Brace => TemplateFault::Brace,
        core_::TemplateFault::Placeholder => TemplateFault::Placeholder,
        core_::TemplateFault::Character => TemplateFault::Character,
        core_::TemplateFault::Twice => TemplateFault::Twice,
        core_::TemplateFault::IdMissing => TemplateFault::IdMissing,
        core_::TemplateFault::TooLong => TemplateFault::TooLong,
    }
}

fn write_error(error: core_::WriteError) -> FormatError {
    match error {
        core_::WriteError::Id { max } => FormatError::Id(max),
        core_::WriteError::ShardKeyMissing => FormatError::ShardKeyMissing,
        core_::WriteError::ShardKeyUnwanted => FormatError::ShardKeyUnwanted,
        core_::WriteError::Time => FormatError::Time,
    }
}

#[inline(never)]
fn checked(layout: &Layout) -> Result<core_::Layout, Error> {
    core_::Layout::new(core_::LayoutFields {
        timestamp_bits: layout.timestamp_bits,
        datacenter_bits: layout.datacenter_bits,
        worker_bits: layout.worker_bits,
        sequence_bits: layout.sequence_bits,
        order: match layout.order {
            FieldOrder::WorkerFirst => core_::FieldOrder::WorkerFirst,
            FieldOrder::SequenceFirst => core_::FieldOrder::SequenceFirst,
        },
        epoch_ms: layout.epoch_ms,
        tick_ms: layout.tick_ms,
    })
    .map_err(|_| Error::InvalidArgument(Argument::Layout))
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
