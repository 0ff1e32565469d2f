//! Errors of the core: hand-written, without text from outside, each with the figures a caller needs.

use core::fmt;

/// Why a store gave nothing, as far as the algorithm has to know.
///
/// ```
/// use unalike_core::StoreFailure;
/// assert!(StoreFailure::Unavailable.is_retryable());
/// assert!(!StoreFailure::TagUnknown.is_retryable());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreFailure {
    /// Not done; may be done later.
    Unavailable,
    /// Perhaps done: whatever was granted is burnt.
    OutcomeUnknown,
    /// The tag does not exist and may not be created.
    TagUnknown,
    /// Every number of the tag is granted.
    Exhausted,
    /// Every worker id of the namespace is under a lease.
    WorkersExhausted,
    /// No lease with this worker and grant id is running.
    LeaseLost,
    /// The holder's clock is too far from the store's.
    ClockSkew,
    /// Never: bad tag, other layout, limit, permission, damage.
    Refused,
}

impl StoreFailure {
    /// Whether asking again, later, may succeed.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::Unavailable | Self::OutcomeUnknown | Self::WorkersExhausted | Self::LeaseLost | Self::ClockSkew
        )
    }
}

impl fmt::Display for StoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unavailable => "the store is unavailable",
            Self::OutcomeUnknown => "the store's answer was lost",
            Self::TagUnknown => "the tag is unknown to the store",
            Self::Exhausted => "every number of the tag has been granted",
            Self::WorkersExhausted => "every worker id of the namespace is under a lease",
            Self::LeaseLost => "the lease has ended",
            Self::ClockSkew => "the clock is too far from the store's",
            Self::Refused => "the store refused",
        })
    }
}

/// What was wrong with a grant: the store broke its promise.
///
/// ```
/// use unalike_core::{GrantFault, Segment};
/// let backwards = Segment { start: 10, end: 1, stride: 1, generation: 0, version: 1 };
/// assert_eq!(backwards.validate(), Err(GrantFault::Malformed));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GrantFault {
    /// Bounds that make no interval of ids.
    Malformed,
    /// It overlaps or precedes an earlier grant, or lies below the floor.
    Overlap,
    /// A worker id that does not fit the layout.
    Worker,
}

impl fmt::Display for GrantFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the store's grant is not an interval of ids",
            Self::Overlap => "the store's grant overlaps or precedes one that it gave before",
            Self::Worker => "the store granted a worker id that does not fit the layout",
        })
    }
}

impl core::error::Error for GrantFault {}

/// Why no ids were handed out. Nothing changed, and no ids were lost.
///
/// ```
/// use unalike_core::{ReserveError, SegmentBuffer, SequenceOptions};
/// let mut buffer = SegmentBuffer::new(SequenceOptions::default(), 0)?;
/// assert_eq!(buffer.reserve(0, 0), Err(ReserveError::Count));
/// assert_eq!(buffer.reserve(0, 1), Err(ReserveError::Pending));
/// # Ok::<(), unalike_core::OptionsError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReserveError {
    /// A request to the store is due or under way: call again after its answer.
    Pending,
    /// Call again after this many milliseconds.
    Wait {
        /// Milliseconds from the `now` of the call; at least 1.
        wait_ms: u64,
    },
    /// The clock went back beyond the policy.
    ClockMovedBack {
        /// How far, against the latest time at which ids were handed out, in milliseconds.
        behind_ms: u64,
    },
    /// The clock stands before the layout's first usable tick.
    ClockBeforeEpoch {
        /// When that tick begins, in Unix milliseconds.
        first_ms: u64,
    },
    /// The timestamp field has run out, or every number of the tag, up to the greatest that is allowed, was granted.
    Exhausted,
    /// The last request failed and nothing is left.
    Store {
        /// Why it failed.
        cause: StoreFailure,
        /// Milliseconds from `now` until the store is asked again; 0 when that cannot help.
        retry_after_ms: u64,
    },
    /// The last grant was refused and is burnt.
    GrantRefused(GrantFault),
    /// A count of 0 was asked for.
    Count,
    /// A round that was never begun, is not the latest, or was claimed already.
    Round,
    /// The generator was closed.
    Closed,
}

/// Why a layout cannot exist, or a value does not fit one.
///
/// ```
/// use unalike_core::{Layout, LayoutError, LayoutFields};
/// let fields = LayoutFields { tick_ms: 0, ..Layout::TWITTER.fields() };
/// assert_eq!(Layout::new(fields), Err(LayoutError::TickZero));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayoutError {
    /// The widths sum to more than 63 bits.
    TooWide {
        /// The sum, in bits.
        bits: u32,
    },
    /// A field's width is outside its range: timestamp 1 to 63, datacenter + worker 0 to 31, sequence 0 to 31.
    FieldWidth,
    /// A tick of 0 ms.
    TickZero,
    /// The end of the last tick does not fit 64 bits of milliseconds.
    EpochTooLate,
    /// The tick number does not fit the timestamp field.
    TimestampRange {
        /// The greatest value that fits.
        max: u64,
    },
    /// The worker does not fit the datacenter and worker fields.
    WorkerRange {
        /// The greatest value that fits.
        max: u32,
    },
    /// The sequence does not fit its field.
    SequenceRange {
        /// The greatest value that fits.
        max: u32,
    },
    /// The id is 0, or has bits above those of the layout.
    IdRange {
        /// The greatest id of the layout.
        max: u64,
    },
    /// A span of time that ends before or as it begins.
    SpanEmpty,
    /// No id of the layout has its tick in the span: it lies before the epoch or after the last tick.
    SpanOutside,
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooWide { bits } => write!(f, "the fields sum to {bits} bits, ids have 63 at most"),
            Self::FieldWidth => f.write_str(
                "a field is too wide or missing: timestamp 1 to 63 bits, datacenter and worker together 31 at most, \
                 sequence 31 at most",
            ),
            Self::TickZero => f.write_str("the tick is 0 ms, it must be 1 ms at least"),
            Self::EpochTooLate => f.write_str("the layout's last tick ends beyond the range of 64-bit milliseconds"),
            Self::TimestampRange { max } => write!(f, "the timestamp does not fit its field, whose maximum is {max}"),
            Self::WorkerRange { max } => write!(f, "the worker does not fit its field, whose maximum is {max}"),
            Self::SequenceRange { max } => write!(f, "the sequence does not fit its field, whose maximum is {max}"),
            Self::IdRange { max } => write!(f, "the id is outside 1 to {max}, the ids of this layout"),
            Self::SpanEmpty => f.write_str("the span of time is empty: it must end after it begins"),
            Self::SpanOutside => f.write_str("the span of time lies before the layout's epoch or after its last tick"),
        }
    }
}

impl core::error::Error for LayoutError {}

/// Why a generator cannot be made with these options.
///
/// ```
/// use unalike_core::{OptionsError, StepPolicy};
/// assert_eq!(StepPolicy::Fixed { step: 0 }.validate(), Err(OptionsError::Step));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OptionsError {
    /// A step of 0, or bounds that contradict each other.
    Step,
    /// A share above 100 percent, or a prefetch outside 1 to 64.
    Refill,
    /// A greatest id of 0 or above 2^63 - 1.
    IdMax,
    /// A horizon of 0 or beyond 366 days.
    Horizon,
    /// A spread of no bits or of more than the sequence has, or a layout whose lowest bits are not the sequence.
    Spread,
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Step => {
                "the step policy is out of range: steps are 1 to 2^63 - 1 with min <= initial <= max, and \
                 grow_below_ms <= shrink_above_ms"
            }
            Self::Refill => "the refill policy is out of range: a share is 0 to 100 percent, prefetch is 1 to 64",
            Self::IdMax => "the greatest id is out of range: 1 to 2^63 - 1",
            Self::Horizon => "the horizon is out of range: 1 ms to 366 days",
            Self::Spread => {
                "the spread is out of range: 1 bit to as many as the sequence has, in a layout whose lowest bits are \
                 the sequence"
            }
        })
    }
}

impl core::error::Error for OptionsError {}

/// Where and why a text is no id.
///
/// ```
/// use unalike_core::{Text, TextError, decode};
/// assert_eq!(decode("12x", Text::Decimal), Err(TextError::Character { at: 2 }));
/// assert_eq!(decode("007", Text::Decimal), Err(TextError::LeadingZero));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TextError {
    /// No id has this many bytes in this notation.
    Length {
        /// The length of the text, in bytes.
        len: usize,
    },
    /// A byte that stands in no id of the notation: foreign to its alphabet, or another where all have the same.
    Character {
        /// Its position, counted from 0.
        at: usize,
    },
    /// A decimal with leading zeros.
    LeadingZero,
    /// 0, or a number greater than 2^63 - 1.
    OutOfRange,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { len } => write!(f, "no id is {len} bytes long in this notation"),
            Self::Character { at } => write!(f, "the byte at position {at} occurs in no id of this notation"),
            Self::LeadingZero => f.write_str("a decimal id has no leading zeros"),
            Self::OutOfRange => f.write_str("the number is outside 1 to 2^63 - 1"),
        }
    }
}

impl core::error::Error for TextError {}

/// What is wrong with a template, at a position.
///
/// ```
/// use unalike_core::{Format, FormatError, FormatOptions, TemplateFault};
/// let error = Format::new(&FormatOptions { template: "ORD-{ID}", ..FormatOptions::default() }).unwrap_err();
/// assert_eq!(error, FormatError::Template { at: 4, fault: TemplateFault::Placeholder });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TemplateFault {
    /// A brace that has no other one.
    Brace,
    /// An unknown placeholder, or minutes, `{mm}`, in a date without hours.
    Placeholder,
    /// A control character.
    Character,
    /// A second id, a second gene, or a gene where the number has one already.
    Twice,
    /// It ends without an id.
    IdMissing,
    /// It goes on beyond 128 bytes.
    TooLong,
}

/// Why there is no such format.
///
/// ```
/// use unalike_core::{Format, FormatError, FormatOptions};
/// let wide = FormatOptions { bits: 64, ..FormatOptions::default() };
/// assert_eq!(Format::new(&wide).unwrap_err(), FormatError::Bits);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FormatError {
    /// The template has a fault.
    Template {
        /// At this byte.
        at: usize,
        /// Which.
        fault: TemplateFault,
    },
    /// The counter starts again, and the template does not show when.
    Restart,
    /// Widths that leave nothing to the id, or are out of range: 63 bits in all, of which the gene has 16 at most and
    /// the key's id 8, and that none without keys.
    Bits,
    /// A key's id that does not fit its width, that another key has, or 0 where there are bits for it.
    Key {
        /// The key's id.
        id: u8,
    },
    /// The digits that the template gives to the id are too few for the numbers that there may be.
    Digits {
        /// How many they are.
        width: u8,
    },
    /// A distance from UTC of more than 18 hours.
    UtcOffset,
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Template { at, fault } => {
                write!(f, "the template is wrong at byte {at}: ")?;
                f.write_str(match fault {
                    TemplateFault::Brace => "a brace without its other one; write {{ or }} for the brace itself",
                    TemplateFault::Placeholder => {
                        "no such placeholder; there are {id}, {id:010}, {id:base36}, {id:base62}, {id:base32}, {id:uuid}, \
                         {gene:4} with 1 to 16 bits, and {yyyy}, {yy}, {MM}, {dd}, {HH}, {mm}, {ss}, {SSS} or several of \
                         these in one, as {yyyyMMdd}; {MM} is the month; {mm} is the minute, and beside a date needs {HH}"
                    }
                    TemplateFault::Character => "a control character; leave it out",
                    TemplateFault::Twice => {
                        "{id} or {gene} stands there twice, or the gene is in the number already (gene_bits): leave one of \
                         them out"
                    }
                    TemplateFault::IdMissing => "without an id, {id} for example, all would be alike",
                    TemplateFault::TooLong => "it has more than 128 bytes; shorten it",
                })
            }
            Self::Restart => f.write_str(
                "the counter starts again, so the template must show the period: {yyyy} for a year, {yyyyMM} for a month, \
                 {yyyyMMdd} for a day",
            ),
            Self::Bits => f.write_str(
                "the bits do not fit: 1 to 63 in all, of which a gene takes 16 at most and a key's id 8 (and none without keys), \
                 and something must be left for the id",
            ),
            Self::Key { id } => write!(f, "the key {id} is given twice, or its number does not fit: it is 1 to 2^key_id_bits - 1, and 0 without such bits"),
            Self::Digits { width } => {
                write!(f, "the template has {width} digits for the id, and the number may need more: give it more, or fewer bits")
            }
            Self::UtcOffset => f.write_str("the distance from UTC is more than 18 hours: give -1080 to 1080 minutes"),
        }
    }
}

impl core::error::Error for FormatError {}

/// Why an id cannot be shown.
///
/// ```
/// use unalike_core::{Format, FormatOptions, WriteError};
/// let format = Format::new(&FormatOptions { gene_bits: 4, ..FormatOptions::default() })?;
/// assert_eq!(format.write(1, 0, None), Err(WriteError::ShardKeyMissing));
/// # Ok::<(), unalike_core::FormatError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteError {
    /// The id is 0, or greater than the format can show.
    Id {
        /// The greatest that it can.
        max: u64,
    },
    /// The format has a gene, and no key was given to take it from.
    ShardKeyMissing,
    /// A key was given, and the format has no gene.
    ShardKeyUnwanted,
    /// The date lies after the year 9999.
    Time,
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id { max } => write!(f, "the id is outside 1 to {max}, the ids that the format can show"),
            Self::ShardKeyMissing => {
                f.write_str("the ids carry a shard gene: give the shard key that it is taken from")
            }
            Self::ShardKeyUnwanted => f.write_str("a shard key was given, and the ids carry no gene: leave it out"),
            Self::Time => f.write_str("the date of issue lies after the year 9999: check the clock"),
        }
    }
}

impl core::error::Error for WriteError {}

/// Why a text is none of a format's.
///
/// ```
/// use unalike_core::{Format, FormatOptions, ReadError};
/// let format = Format::new(&FormatOptions { template: "ORD-{id}", ..FormatOptions::default() })?;
/// assert_eq!(format.read("ORD_1").unwrap_err(), ReadError::Character { at: 3 });
/// # Ok::<(), unalike_core::FormatError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadError {
    /// No text of the format has this length.
    Length {
        /// In bytes.
        len: usize,
    },
    /// Another byte stands there in all texts of the format.
    Character {
        /// Its position.
        at: usize,
    },
    /// There is no such date, or two figures of it contradict each other.
    Date {
        /// The position of the second of two, else 0.
        at: usize,
    },
    /// No id is shown by this number.
    Number {
        /// Where it begins.
        at: usize,
    },
    /// The key with which it was written is not among those that are known.
    Key {
        /// The key's id.
        id: u8,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { len } => write!(f, "no text of this format is {len} bytes long"),
            Self::Character { at } => {
                write!(f, "the byte at position {at} is another one in every text of this format")
            }
            Self::Date { at } => {
                write!(f, "there is no such date, or its figures contradict each other at position {at}")
            }
            Self::Number { at } => write!(f, "the number at position {at} belongs to no id of this format"),
            Self::Key { id } => {
                write!(f, "it was written with the key {id}, which is not among those that are known: add it")
            }
        }
    }
}

impl core::error::Error for ReadError {}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    /// Each says what happened with its figures, and what to do or what would have been right.
    #[test]
    fn errors_of_formats_say_what_to_do() {
        let template = |at, fault| FormatError::Template { at, fault }.to_string();
        let placeholders = "{id}, {id:010}, {id:base36}, {id:base62}, {id:base32}, {id:uuid}, {gene:4} with 1 to 16 bits, and \
                            {yyyy}, {yy}, {MM}, {dd}, {HH}, {mm}, {ss}, {SSS}";
        for (message, says) in [
            (template(7, TemplateFault::Brace), ["wrong at byte 7", "write {{ or }}"]),
            (template(8, TemplateFault::Placeholder), ["wrong at byte 8", placeholders]),
            (template(9, TemplateFault::Character), ["wrong at byte 9: a control character", "leave it out"]),
            (
                template(10, TemplateFault::Twice),
                ["wrong at byte 10: {id} or {gene} stands there twice", "leave one of them out"],
            ),
            (template(11, TemplateFault::IdMissing), ["wrong at byte 11: without an id", "{id} for example"]),
            (template(128, TemplateFault::TooLong), ["wrong at byte 128", "128 bytes; shorten it"]),
            (FormatError::Restart.to_string(), ["must show the period", "{yyyyMM} for a month"]),
            (FormatError::Bits.to_string(), ["1 to 63 in all", "16 at most and a key's id 8"]),
            (FormatError::Key { id: 3 }.to_string(), ["the key 3 is given twice", "it is 1 to 2^key_id_bits - 1"]),
            (FormatError::Digits { width: 4 }.to_string(), ["4 digits", "give it more, or fewer bits"]),
            (FormatError::UtcOffset.to_string(), ["more than 18 hours", "-1080 to 1080 minutes"]),
            (WriteError::Id { max: 999 }.to_string(), ["outside 1 to 999", "the format can show"]),
            (WriteError::ShardKeyMissing.to_string(), ["carry a shard gene", "give the shard key"]),
            (WriteError::ShardKeyUnwanted.to_string(), ["carry no gene", "leave it out"]),
            (WriteError::Time.to_string(), ["after the year 9999", "check the clock"]),
            (ReadError::Length { len: 3 }.to_string(), ["no text of this format", "is 3 bytes long"]),
            (ReadError::Character { at: 4 }.to_string(), ["at position 4", "another one in every text"]),
            (ReadError::Date { at: 5 }.to_string(), ["no such date", "contradict each other at position 5"]),
            (ReadError::Number { at: 6 }.to_string(), ["the number at position 6", "no id of this format"]),
            (ReadError::Key { id: 2 }.to_string(), ["written with the key 2", "add it"]),
        ] {
            for part in says {
                assert!(message.contains(part), "{message:?} does not say {part:?}");
            }
        }
    }
}
