//! Ids of other systems whose bits no [`Layout`] describes: the worker above the timestamp, fields that always have one
//! value, ids without a time, ids of more than 63 bits.
//!
//! They are for reading: no generator makes such ids. Invariant: the fields of a [`Scheme`] lie side by side without a
//! gap, so that taking an id apart loses nothing, and putting it together gives the same id.

use alloc::vec::Vec;
use core::fmt;

use unalike_core::{Date, FieldOrder, Layout};

/// The greatest number of fields.
const FIELDS_MAX: usize = 6;

/// What a field of a [`Scheme`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Ticks since the epoch; one field at most.
    Time,
    /// Who made the id: a worker, a machine, a datacenter.
    Worker,
    /// A number that counts up within a tick or in all.
    Sequence,
    /// Anything else.
    Other,
    /// Always this value.
    Fixed(u64),
}

/// Some neighbouring bits of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// What the other system calls it.
    pub name: &'static str,
    /// Its width, in bits: 1 to 128.
    pub bits: u8,
    /// What it is.
    pub role: Role,
}

impl Field {
    /// A field of this name, width and role.
    #[must_use]
    pub const fn new(name: &'static str, bits: u8, role: Role) -> Self {
        Self { name, bits, role }
    }
}

/// Why there is no such scheme, or no such id in it.
///
/// ```
/// use unalike_notation::{SchemeError, scheme};
/// let seata = scheme("seata").unwrap().scheme;
/// assert_eq!(seata.take_apart(1 << 63), Err(SchemeError::IdRange { bits: 63 }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchemeError {
    /// No fields or more than six, one of no bits, more than 128 bits in all, a fixed value that does not fit its
    /// field, a second time, a time of more than 63 bits, a tick of 0 ms, or an end that 64 bits of milliseconds cannot
    /// say.
    Fields,
    /// The id has more bits than the fields.
    IdRange {
        /// How many they have.
        bits: u8,
    },
    /// A field has another value than it always has.
    Fixed {
        /// The field's name.
        name: &'static str,
        /// The value that it always has.
        expected: u64,
        /// The value that it has.
        found: u128,
    },
    /// A value that does not fit its field, or another number of values than there are fields.
    Values,
}

impl fmt::Display for SchemeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fields => f.write_str("the fields make no id of 1 to 128 bits with one time at most"),
            Self::IdRange { bits } => write!(f, "the id has more than {bits} bits"),
            Self::Fixed { name, expected, found } => {
                write!(f, "the field {name} is {found}, where it is always {expected}")
            }
            Self::Values => f.write_str("the values do not fit the fields"),
        }
    }
}

impl core::error::Error for SchemeError {}

/// The fields of an id, from the highest bits to the lowest, checked when it was made.
///
/// ```
/// use unalike_notation::{Field, Role, Scheme};
///
/// const SCHEME: Scheme = match Scheme::new(
///     &[Field::new("shard", 8, Role::Other), Field::new("time", 32, Role::Time), Field::new("number", 23, Role::Sequence)],
///     1_420_041_600_000,
///     1_000,
/// ) {
///     Ok(scheme) => scheme,
///     Err(_) => panic!("a bad scheme"),
/// };
/// let values = SCHEME.take_apart(3 << 55 | 60 << 23 | 5)?;
/// assert_eq!(values, [3, 60, 5]);
/// assert_eq!(SCHEME.unix_ms(&values), Some(1_420_041_660_000));
/// assert_eq!(SCHEME.put_together(&values), Ok(3 << 55 | 60 << 23 | 5));
/// # Ok::<(), unalike_notation::SchemeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme {
    fields: [Field; FIELDS_MAX],
    len: usize,
    epoch_ms: u64,
    tick_ms: u32,
}

impl Scheme {
    /// A scheme of these fields, the highest first. Where none of them is a time, epoch and tick have no meaning.
    ///
    /// # Errors
    /// [`SchemeError::Fields`].
    #[expect(clippy::indexing_slicing, reason = "the length is looked at before")]
    pub const fn new(fields: &[Field], epoch_ms: u64, tick_ms: u32) -> Result<Self, SchemeError> {
        if fields.is_empty() || fields.len() > FIELDS_MAX || tick_ms == 0 {
            return Err(SchemeError::Fields);
        }
        let mut kept = [Field::new("", 0, Role::Other); FIELDS_MAX];
        let (mut at, mut bits, mut has_time) = (0, 0, false);
        while at < fields.len() {
            let field = fields[at];
            bits += field.bits as u32;
            let is_good = match field.role {
                Role::Fixed(value) => value as u128 <= ones(field.bits),
                Role::Time if has_time || field.bits > 63 => false,
                Role::Time => {
                    has_time = true;
                    match (1_u64 << field.bits).checked_mul(tick_ms as u64) {
                        Some(span_ms) => epoch_ms.checked_add(span_ms).is_some(),
                        None => false,
                    }
                }
                _ => true,
            };
            if field.bits == 0 || bits > 128 || !is_good {
                return Err(SchemeError::Fields);
            }
            kept[at] = field;
            at += 1;
        }
        Ok(Self { fields: kept, len: fields.len(), epoch_ms, tick_ms })
    }

    /// The fields, from the highest bits to the lowest.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        self.fields.get(..self.len).unwrap_or_default()
    }

    /// How many bits they have in all: 1 to 128.
    #[must_use]
    pub fn bits(&self) -> u8 {
        self.fields().iter().map(|field| field.bits).sum()
    }

    /// The instant at which tick 0 begins, in Unix milliseconds.
    #[must_use]
    pub const fn epoch_ms(&self) -> u64 {
        self.epoch_ms
    }

    /// Length of one tick, in milliseconds: at least 1.
    #[must_use]
    pub const fn tick_ms(&self) -> u32 {
        self.tick_ms
    }

    /// The values of the fields, in their order.
    ///
    /// # Errors
    /// [`SchemeError::IdRange`] when the id has more bits than the fields, [`SchemeError::Fixed`] when a field has
    /// another value than it always has.
    pub fn take_apart(&self, id: u128) -> Result<Vec<u128>, SchemeError> {
        let mut below = self.bits();
        if id > ones(below) {
            return Err(SchemeError::IdRange { bits: below });
        }
        let mut values = Vec::with_capacity(self.len);
        for field in self.fields() {
            below -= field.bits;
            let found = id >> below & ones(field.bits);
            if let Role::Fixed(expected) = field.role
                && found != u128::from(expected)
            {
                return Err(SchemeError::Fixed { name: field.name, expected, found });
            }
            values.push(found);
        }
        Ok(values)
    }

    /// The id whose fields have these values: the inverse of [`take_apart`](Self::take_apart).
    ///
    /// # Errors
    /// [`SchemeError::Values`] when one does not fit its field, or there are more or fewer than fields, and
    /// [`SchemeError::Fixed`] as there.
    pub fn put_together(&self, values: &[u128]) -> Result<u128, SchemeError> {
        if values.len() != self.len {
            return Err(SchemeError::Values);
        }
        let mut id = 0_u128;
        for (field, &found) in self.fields().iter().zip(values) {
            match field.role {
                Role::Fixed(expected) if found != u128::from(expected) => {
                    return Err(SchemeError::Fixed { name: field.name, expected, found });
                }
                _ if found > ones(field.bits) => return Err(SchemeError::Values),
                // A field of all 128 bits is the only one.
                _ => id = id.unbounded_shl(u32::from(field.bits)) | found,
            }
        }
        Ok(id)
    }

    /// When the tick of these values begins, in Unix milliseconds; `None` where no field is a time.
    #[must_use]
    pub fn unix_ms(&self, values: &[u128]) -> Option<u64> {
        let time = self.fields().iter().position(|field| field.role == Role::Time)?;
        let ticks = u64::try_from(*values.get(time)?).ok()?;
        self.epoch_ms.checked_add(ticks.checked_mul(u64::from(self.tick_ms))?)
    }

    /// When the last tick ends, in Unix milliseconds; `None` where no field is a time.
    #[must_use]
    pub fn ends_ms(&self) -> Option<u64> {
        let time = self.fields().iter().find(|field| field.role == Role::Time)?;
        Some(self.epoch_ms + (u64::from(self.tick_ms) << time.bits))
    }

    /// Ids that end in the low bits of a user's number, its *gene*, so that they are found in the user's shard:
    /// Idleaf's `id << log2(shards) | user % shards`.
    ///
    /// # Errors
    /// [`SchemeError::Fields`] when the gene has no bits, or 63 and more.
    pub const fn gene(gene_bits: u8) -> Result<Self, SchemeError> {
        if gene_bits >= 63 {
            return Err(SchemeError::Fields);
        }
        let id = Field::new("id", 63 - gene_bits, Role::Sequence);
        Self::new(&[id, Field::new("gene", gene_bits, Role::Other)], 0, 1)
    }

    /// TiDB's `AUTO_RANDOM(S, R)`: the sign, 64 - R zeros, S bits of a shard, and a number that counts up.
    ///
    /// # Errors
    /// [`SchemeError::Fields`] when TiDB takes no such numbers either: the shard has 1 to 15 bits, and the range 32
    /// to 64.
    pub const fn auto_random(shard_bits: u8, range_bits: u8) -> Result<Self, SchemeError> {
        if shard_bits == 0 || shard_bits > 15 || range_bits < 32 || range_bits > 64 {
            return Err(SchemeError::Fields);
        }
        let shard = Field::new("shard", shard_bits, Role::Other);
        // Its sign takes one bit of the range.
        let increment = Field::new("increment", range_bits - shard_bits - 1, Role::Sequence);
        Self::new(&[shard, increment], 0, 1)
    }
}

/// The fields of a layout: what reads schemes reads layouts, too. Fields of no bits are left out.
impl From<Layout> for Scheme {
    fn from(layout: Layout) -> Self {
        let time = Field::new("time", layout.timestamp_bits(), Role::Time);
        let datacenter = Field::new("datacenter", layout.datacenter_bits(), Role::Worker);
        let worker = Field::new("worker", layout.worker_bits(), Role::Worker);
        let sequence = Field::new("sequence", layout.sequence_bits(), Role::Sequence);
        let ordered = match layout.order() {
            FieldOrder::WorkerFirst => [time, datacenter, worker, sequence],
            FieldOrder::SequenceFirst => [time, sequence, datacenter, worker],
        };
        let fields: Vec<Field> = ordered.into_iter().filter(|field| field.bits > 0).collect();
        match Self::new(&fields, layout.epoch_ms(), layout.tick_ms()) {
            Ok(scheme) => scheme,
            Err(_) => unreachable!("a layout's rules are stricter"),
        }
    }
}

/// A scheme with a name, as [`Preset`](unalike_core::Preset) is a layout with one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// Lower-case letters, digits and hyphens; no preset has the same.
    pub name: &'static str,
    /// The fields.
    pub scheme: Scheme,
    /// One sentence: where the figures come from, and any deviation.
    pub source: &'static str,
}

const fn proven(fields: &[Field], epoch_ms: u64, tick_ms: u32) -> Scheme {
    is_proven(Scheme::new(fields, epoch_ms, tick_ms))
}

/// Only for constants: a bad scheme does not compile.
const fn is_proven(scheme: Result<Scheme, SchemeError>) -> Scheme {
    match scheme {
        Ok(scheme) => scheme,
        Err(_) => panic!("no valid scheme"),
    }
}

/// Vesta's epoch, 2015-01-01T00:00:00 at UTC+8.
const VESTA_MS: u64 = 1_420_041_600_000;

/// CosId's `CosIdGenerator`: 80 bits, which it writes as text alone, see [`CosidText`].
pub const COSID_GENERATOR: Scheme = proven(
    &[
        Field::new("time", 44, Role::Time),
        Field::new("machine", 20, Role::Worker),
        Field::new("sequence", 16, Role::Sequence),
    ],
    0,
    1,
);

/// Every scheme of ids of up to 63 bits, each name once. Two more have figures in their names, see [`scheme`].
pub const SCHEMES: &[Foreign] = &[
    Foreign {
        name: "seata",
        scheme: proven(
            &[
                Field::new("worker", 10, Role::Worker),
                Field::new("time", 41, Role::Time),
                Field::new("sequence", 12, Role::Sequence),
            ],
            1_588_435_200_000,
            1,
        ),
        source: "Seata's IdWorker since 1.4.2: the worker stands highest, then 41 bits of ms since 2020-05-02T16:00:00Z, which \
                 run ahead under load, sequence 12; up to 1.4.1: seata-1.4.1",
    },
    Foreign {
        name: "vesta-max-peak",
        scheme: proven(
            &[
                Field::new("type", 1, Role::Fixed(0)),
                Field::new("method", 2, Role::Other),
                Field::new("time", 30, Role::Time),
                Field::new("sequence", 20, Role::Sequence),
                Field::new("machine", 10, Role::Worker),
            ],
            VESTA_MS,
            1_000,
        ),
        source: "Vesta's type max-peak as its code has it, with version 0 in the sign bit: 30 bits of s since \
                 2014-12-31T16:00:00Z, sequence 20, machine 10",
    },
    Foreign {
        name: "vesta-min-granularity",
        scheme: proven(
            &[
                Field::new("type", 1, Role::Fixed(1)),
                Field::new("method", 2, Role::Other),
                Field::new("time", 40, Role::Time),
                Field::new("sequence", 10, Role::Sequence),
                Field::new("machine", 10, Role::Worker),
            ],
            VESTA_MS,
            1,
        ),
        source: "Vesta's type min-granularity as its code has it, with version 0 in the sign bit: 40 bits of ms since \
                 2014-12-31T16:00:00Z, sequence 10, machine 10",
    },
    Foreign {
        name: "vesta-document",
        scheme: proven(
            &[
                Field::new("type", 1, Role::Fixed(0)),
                Field::new("method", 2, Role::Other),
                Field::new("machine", 10, Role::Worker),
                Field::new("time", 30, Role::Time),
                Field::new("sequence", 20, Role::Sequence),
            ],
            VESTA_MS,
            1_000,
        ),
        source: "the sample of Vesta's API document, 3456526092514361344, whose machine is above the time; its code has \
                 another order",
    },
    Foreign {
        name: "wuid",
        scheme: proven(&[Field::new("high", 27, Role::Other), Field::new("low", 36, Role::Sequence)], 0, 1),
        source: "Wuid: a high part from a store, 27 bits, that is new with each start, and a counter of 36; no time",
    },
    Foreign {
        name: "wuid-section",
        scheme: proven(
            &[
                Field::new("section", 3, Role::Other),
                Field::new("high", 24, Role::Other),
                Field::new("low", 36, Role::Sequence),
            ],
            0,
            1,
        ),
        source: "Wuid with a section, 3 bits, and then 24 bits of the high part; no time",
    },
    Foreign {
        name: "tidb-auto-random",
        scheme: is_proven(Scheme::auto_random(5, 64)),
        source: "TiDB's AUTO_RANDOM, which is AUTO_RANDOM(5, 64): 5 bits of a shard below the sign, and a number; no time. \
                 Others are tidb-auto-random:S or tidb-auto-random:S,R",
    },
];

/// The scheme of this name: one of [`SCHEMES`], or one whose name has figures, `idleaf-gene:SHARDS` (a power of two)
/// and `tidb-auto-random:S,R`. `None` for an unknown name, and for figures that cannot be.
///
/// ```
/// use unalike_notation::scheme;
/// assert_eq!(scheme("idleaf-gene:8").unwrap().scheme.take_apart(1001 << 3 | 5)?, [1001, 5]);
/// assert_eq!(scheme("tidb-auto-random:5,54").unwrap().scheme.bits(), 53);
/// assert_eq!(scheme("idleaf-gene:7"), None);
/// # Ok::<(), unalike_notation::SchemeError>(())
/// ```
#[must_use]
pub fn scheme(name: &str) -> Option<Foreign> {
    if let Some(known) = SCHEMES.iter().find(|known| known.name == name) {
        return Some(*known);
    }
    let figure = |text: &str| -> Option<u64> {
        if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
    };
    let (name, figures) = name.split_once(':')?;
    match name {
        "idleaf-gene" => {
            let shards = figure(figures).filter(|shards| shards.is_power_of_two())?;
            Some(Foreign {
                name: "idleaf-gene",
                scheme: Scheme::gene(u8::try_from(shards.ilog2()).ok()?).ok()?,
                source: "Idleaf's ids with a gene, id << log2(shards) | user % shards; no time",
            })
        }
        "tidb-auto-random" => {
            let (shard_bits, range_bits) = figures.split_once(',').unwrap_or((figures, "64"));
            let (shard_bits, range_bits) = (figure(shard_bits)?, figure(range_bits)?);
            let scheme = Scheme::auto_random(u8::try_from(shard_bits).ok()?, u8::try_from(range_bits).ok()?);
            Some(Foreign {
                name: "tidb-auto-random",
                scheme: scheme.ok()?,
                source: "TiDB's AUTO_RANDOM(S, R): S bits of a shard below 64 - R zeros and the sign, and a number; no time",
            })
        }
        _ => None,
    }
}

/// How CosId's `CosIdGenerator` writes an id; its bits are those of [`COSID_GENERATOR`].
///
/// ```
/// use unalike_notation::{COSID_GENERATOR, CosidText};
/// let id = CosidText::Friendly.read("20240229120000250-42-7").unwrap();
/// assert_eq!(COSID_GENERATOR.take_apart(id)?, [1_709_208_000_250, 42, 7]);
/// assert_eq!(CosidText::Radix62.read("0U5fyaBm000g007"), Some(id));
/// # Ok::<(), unalike_notation::SchemeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CosidText {
    /// 15 characters of `0-9A-Za-z`: 8 of the time, 4 of the machine, 3 of the sequence.
    Radix62,
    /// 17 characters of `0-9A-Z`: 9, 4 and 4. Lower case is read, too.
    Radix36,
    /// `yyyyMMddHHmmssSSS-machine-sequence`, with or without zeros before the numbers. CosId writes the time of the
    /// machine's own zone; here it is read as UTC.
    Friendly,
}

impl CosidText {
    /// The id of this text; `None` when it is none in this notation.
    #[must_use]
    pub fn read(self, text: &str) -> Option<u128> {
        if !text.is_ascii() {
            return None;
        }
        let number = |text: &str, radix: u64| {
            text.bytes().try_fold(0_u64, |number, byte| {
                let value = digit(byte, radix)?;
                number.checked_mul(radix)?.checked_add(value)
            })
        };
        let fixed = |ends: [usize; 3], radix| {
            let (text, sequence) = text.split_at_checked(ends[1]).filter(|_| text.len() == ends[2])?;
            let (time, machine) = text.split_at_checked(ends[0])?;
            Some([number(time, radix)?, number(machine, radix)?, number(sequence, radix)?])
        };
        let values = match self {
            Self::Radix62 => fixed([8, 12, 15], 62)?,
            Self::Radix36 => fixed([9, 13, 17], 36)?,
            Self::Friendly => {
                let mut parts = text.split('-');
                let (time, machine, sequence) = (parts.next()?, parts.next()?, parts.next()?);
                if time.len() != 17 || machine.is_empty() || sequence.is_empty() || parts.next().is_some() {
                    return None;
                }
                let part = |range| u32::try_from(number(time.get(range)?, 10)?).ok();
                let date = Date {
                    year: part(0..4)?,
                    month: part(4..6)?,
                    day: part(6..8)?,
                    hour: part(8..10)?,
                    minute: part(10..12)?,
                    second: part(12..14)?,
                    millisecond: part(14..17)?,
                };
                [date.instant(0).ok()?, number(machine, 10)?, number(sequence, 10)?]
            }
        };
        COSID_GENERATOR.put_together(&values.map(u128::from)).ok()
    }
}

/// The value of a digit of `0-9A-Za-z`; with a radix of 36 lower case is upper case.
fn digit(byte: u8, radix: u64) -> Option<u64> {
    let value = match byte {
        b'0'..=b'9' => byte - b'0',
        b'A'..=b'Z' => byte - b'A' + 10,
        b'a'..=b'z' if radix <= 36 => byte - b'a' + 10,
        b'a'..=b'z' => byte - b'a' + 36,
        _ => return None,
    };
    Some(u64::from(value)).filter(|value| *value < radix)
}

/// 2^bits - 1, for 0 to 128 bits.
const fn ones(bits: u8) -> u128 {
    !u128::MAX.unbounded_shl(bits as u32)
}

#[cfg(test)]
mod tests {
    use alloc::{collections::BTreeSet, format, vec};

    use proptest::prelude::*;
    use unalike_core::{LayoutFields, PRESETS, preset};

    use super::*;

    /// Layouts of all widths that there can be, with any epoch and tick that leaves them an end.
    fn layouts() -> impl Strategy<Value = Layout> {
        let order = prop_oneof![Just(FieldOrder::WorkerFirst), Just(FieldOrder::SequenceFirst)];
        let widths = (1..=63_u8, 0..=7_u8, 0..=15_u8, 0..=23_u8);
        (widths, order, 0..=1_u64 << 44, prop_oneof![Just(1), 1..=1_000_u32]).prop_filter_map(
            "no layout",
            |((timestamp_bits, datacenter_bits, worker_bits, sequence_bits), order, epoch_ms, tick_ms)| {
                let timestamp_bits = timestamp_bits.min(63 - datacenter_bits - worker_bits - sequence_bits);
                Layout::new(LayoutFields {
                    timestamp_bits,
                    datacenter_bits,
                    worker_bits,
                    sequence_bits,
                    order,
                    epoch_ms,
                    tick_ms,
                })
                .ok()
            },
        )
    }

    #[track_caller]
    fn assert_sample(name: &str, id: u128, values: &[u128], unix_ms: Option<u64>) {
        let scheme = scheme(name).unwrap().scheme;
        assert_eq!(scheme.take_apart(id).as_deref(), Ok(values), "{name}");
        assert_eq!(scheme.unix_ms(values), unix_ms, "{name}");
        assert_eq!(scheme.put_together(values), Ok(id), "{name}");
    }

    /// Vesta's API document, `/expid` and `/transtime`: Thu May 28 16:05:39 CST 2015. Type 0, method 2, machine 1022.
    #[test]
    fn vesta_samples() {
        let at_ms = Some(1_432_800_339_000);
        assert_sample("vesta-document", 3_456_526_092_514_361_344, &[0, 2, 1_022, 12_758_739, 0], at_ms);
        // The same parts in the order that the code has.
        let id = 2 << 60 | 12_758_739 << 30 | 1_022;
        assert_sample("vesta-max-peak", id, &[0, 2, 12_758_739, 0, 1_022], at_ms);
        let id = 1 << 62 | 2 << 60 | 12_758_739_000 << 20 | 1_022;
        assert_sample("vesta-min-granularity", id, &[1, 2, 12_758_739_000, 0, 1_022], at_ms);
        let other_type = scheme("vesta-min-granularity").unwrap().scheme.take_apart(3_456_526_092_514_361_344);
        assert_eq!(other_type, Err(SchemeError::Fixed { name: "type", expected: 1, found: 0 }));
    }

    /// Two ids of a Seata 2 in apache/incubator-seata#7082, of 2024-12-28: 12:45:15Z and 11:34:20Z on the 22nd.
    #[test]
    fn seata_has_the_worker_highest() {
        let id = 1_784_025_255_588_331_521;
        assert_sample("seata", id, &[198, 146_436_315_824, 1], Some(1_734_871_515_824));
        let id = 8_269_208_701_573_369_857;
        assert_sample("seata", id, &[918, 146_432_060_825, 1], Some(1_734_867_260_825));
    }

    /// The values that TiDB's own tests of AUTO_RANDOM have in their tables.
    #[test]
    fn tidb_samples() {
        assert_sample("tidb-auto-random", 288_230_376_151_711_746, &[1, 2], None);
        assert_sample("tidb-auto-random", 864_691_128_455_135_243, &[3, 11], None);
        assert_sample("tidb-auto-random:5,54", 3 << 48 | 11, &[3, 11], None);
        assert_sample("tidb-auto-random:15", 3 << 48 | 11, &[3, 11], None);
    }

    #[test]
    fn wuid_and_idleaf_are_taken_apart() {
        assert_sample("wuid", 0x07FF_FFFF << 36 | 1_023, &[0x07FF_FFFF, 1_023], None);
        assert_sample("wuid-section", 5 << 60 | 0x00AB_CDEF << 36 | 1_023, &[5, 0x00AB_CDEF, 1_023], None);
        // `(id << log2(16)) | user % 16`
        assert_sample("idleaf-gene:16", (1_000_001 << 4) | (33_333 % 16), &[1_000_001, 5], None);
    }

    #[test]
    fn names_are_distinct_from_each_other_and_from_the_presets() {
        let names: BTreeSet<_> = SCHEMES.iter().map(|known| known.name).collect();
        assert_eq!(names.len(), SCHEMES.len());
        for known in SCHEMES {
            let name = known.name;
            assert!(
                name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'),
                "{name}"
            );
            assert_eq!((scheme(name), preset(name)), (Some(*known), None));
            assert!(known.scheme.bits() <= 63 && !known.source.ends_with('.'), "{name}");
        }
        for unknown in [
            "",
            "Seata",
            "vesta",
            "seata:1",
            "idleaf-gene",
            "idleaf-gene:",
            "idleaf-gene:0",
            "idleaf-gene:1",
            "idleaf-gene:+2",
            "idleaf-gene:12",
            "idleaf-gene:9223372036854775808",
            "tidb-auto-random:0",
            "tidb-auto-random:16",
            "tidb-auto-random:5,31",
            "tidb-auto-random:5,65",
            "tidb-auto-random:5,",
        ] {
            assert_eq!(scheme(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn new_refuses_what_makes_no_id() {
        let time = Field::new("time", 41, Role::Time);
        let one = Field::new("x", 1, Role::Other);
        assert!(Scheme::new(&[one; 6], 0, 1).is_ok());
        assert!(Scheme::new(&[Field::new("x", 128, Role::Other)], 0, 1).is_ok());
        assert!(Scheme::new(&[Field::new("x", 1, Role::Fixed(1))], 0, 1).is_ok());
        assert!(Scheme::new(&[time], u64::MAX - (1 << 41), 1).is_ok());
        for (fields, epoch_ms, tick_ms) in [
            (vec![], 0, 1),
            (vec![one; 7], 0, 1),
            (vec![one, Field::new("x", 0, Role::Other)], 0, 1),
            (vec![one, Field::new("x", 128, Role::Other)], 0, 1),
            (vec![Field::new("x", 255, Role::Other); 2], 0, 1),
            (vec![Field::new("x", 1, Role::Fixed(2))], 0, 1),
            (vec![time, time], 0, 1),
            (vec![Field::new("time", 64, Role::Time)], 0, 1),
            (vec![time], 0, 0),
            (vec![time], u64::MAX - (1 << 41) + 1, 1),
            (vec![time], 0, 1 << 23),
        ] {
            assert_eq!(Scheme::new(&fields, epoch_ms, tick_ms), Err(SchemeError::Fields), "{fields:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let seata = scheme("seata").unwrap().scheme;
        assert_eq!(seata.take_apart(1 << 63), Err(SchemeError::IdRange { bits: 63 }));
        assert_eq!(seata.take_apart(u128::MAX), Err(SchemeError::IdRange { bits: 63 }));
        for values in [&[1_024, 0, 0][..], &[0, 1 << 41, 0], &[0, 0, 4_096], &[0, 0], &[0, 0, 0, 0]] {
            assert_eq!(seata.put_together(values), Err(SchemeError::Values), "{values:?}");
        }
        let vesta = scheme("vesta-max-peak").unwrap().scheme;
        let fixed = SchemeError::Fixed { name: "type", expected: 0, found: 1 };
        assert_eq!(vesta.put_together(&[1, 0, 0, 0, 0]), Err(fixed));
    }

    /// All three notations of 2024-02-29T12:00:00.250Z, machine 42, sequence 7, from CosId's own lengths.
    #[test]
    fn cosid_texts_are_read() {
        let id = COSID_GENERATOR.put_together(&[1_709_208_000_250, 42, 7]).unwrap();
        for (notation, text) in [
            (CosidText::Radix62, "0U5fyaBm000g007"),
            (CosidText::Radix36, "0LT76B9IY00160007"),
            (CosidText::Radix36, "0lt76b9iy00160007"),
            (CosidText::Friendly, "20240229120000250-0000042-00007"),
            (CosidText::Friendly, "20240229120000250-42-7"),
        ] {
            assert_eq!(notation.read(text), Some(id), "{text}");
        }
        let most = COSID_GENERATOR.put_together(&[(1 << 44) - 1, (1 << 20) - 1, (1 << 16) - 1]).unwrap();
        assert_eq!(most, (1 << 80) - 1);
        assert_eq!(CosidText::Radix62.read("4ziepp2F4OmVH31"), Some(most));
        assert_eq!(CosidText::Radix36.read("68HQLCQV3MH331EKF"), Some(most));
        for (notation, text) in [
            (CosidText::Radix62, ""),
            (CosidText::Radix62, "0U5fyaBm000g00"),
            (CosidText::Radix62, "0U5fyaBm000g0077"),
            (CosidText::Radix62, "0U5fyaBm000g0-7"),
            (CosidText::Radix62, "zzzzzzzz0000000"),
            (CosidText::Radix62, "00000000zzzz000"),
            (CosidText::Radix62, "000000000000zzz"),
            (CosidText::Radix62, "0000000000000é"),
            (CosidText::Radix36, "zzzzzzzzz00000000"),
            (CosidText::Radix36, "000000000zzzz0000"),
            (CosidText::Radix36, "0000000000000zzzz"),
            (CosidText::Friendly, "20240229120000250-42"),
            (CosidText::Friendly, "20240229120000250-42-7-7"),
            (CosidText::Friendly, "20240229120000250--7"),
            (CosidText::Friendly, "20240229120000250-42-"),
            (CosidText::Friendly, "20240229120000250-+2-7"),
            (CosidText::Friendly, "20240230120000250-42-7"),
            (CosidText::Friendly, "20240300120000250-42-7"),
            (CosidText::Friendly, "20240229240000250-42-7"),
            (CosidText::Friendly, "20240229120000250-1048576-7"),
            (CosidText::Friendly, "20240229120000250-42-65536"),
            (CosidText::Friendly, "20240229120000250-99999999999999999999-7"),
        ] {
            assert_eq!(notation.read(text), None, "{text}");
        }
    }

    /// What CosId writes: each part in its own digits.
    fn radix(mut number: u128, radix: u128, width: usize) -> alloc::string::String {
        let digits = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        let mut text = vec![b'0'; width];
        for place in text.iter_mut().rev() {
            *place = digits[usize::try_from(number % radix).unwrap()];
            number /= radix;
        }
        assert_eq!(number, 0);
        alloc::string::String::from_utf8(text).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn what_is_taken_apart_goes_together_again(which in 0..SCHEMES.len(), id in 1..=unalike_core::ID_MAX) {
            let scheme = SCHEMES[which].scheme;
            match scheme.take_apart(u128::from(id)) {
                Ok(values) => prop_assert_eq!(scheme.put_together(&values), Ok(u128::from(id))),
                Err(SchemeError::IdRange { bits }) => prop_assert!(id >> bits > 0),
                Err(SchemeError::Fixed { .. }) => {
                    prop_assert!(scheme.fields().iter().any(|field| matches!(field.role, Role::Fixed(_))));
                }
                Err(error) => prop_assert!(false, "{}", error),
            }
        }

        #[test]
        fn a_gene_and_a_shard_of_any_width_go_round(id in 1..=unalike_core::ID_MAX, bits in 1..=15_u8, range in 32..=64_u8) {
            for scheme in [Scheme::gene(bits).unwrap(), Scheme::auto_random(bits, range).unwrap()] {
                let id = u128::from(id) & ones(scheme.bits());
                prop_assert_eq!(scheme.put_together(&scheme.take_apart(id).unwrap()), Ok(id));
            }
        }

        #[test]
        fn the_scheme_of_a_layout_says_what_the_layout_says(layout in layouts(), id in any::<u64>()) {
            let id = (id & layout.id_max()).max(1);
            let (scheme, parts) = (Scheme::from(layout), layout.unpack(id).unwrap());
            let values = scheme.take_apart(u128::from(id)).unwrap();
            prop_assert_eq!(scheme.unix_ms(&values), Some(layout.tick_start_ms(parts.ticks)));
            prop_assert_eq!(scheme.ends_ms(), Some(layout.ends_ms()));
            let (datacenter, worker) = layout.split_worker(parts.worker).unwrap();
            for (field, value) in scheme.fields().iter().zip(values) {
                let expected = match field.name {
                    "time" => parts.ticks,
                    "datacenter" => u64::from(datacenter),
                    "worker" => u64::from(worker),
                    _ => u64::from(parts.sequence),
                };
                prop_assert_eq!(value, u128::from(expected), "{}", field.name);
            }
        }

        #[test]
        fn cosid_texts_of_any_parts_are_read(
            (time, machine, sequence) in (0..1_u128 << 44, 0..1_u128 << 20, 0..1_u128 << 16),
        ) {
            let id = COSID_GENERATOR.put_together(&[time, machine, sequence]).unwrap();
            let in_62 = radix(time, 62, 8) + &radix(machine, 62, 4) + &radix(sequence, 62, 3);
            prop_assert_eq!(CosidText::Radix62.read(&in_62), Some(id));
            let in_36 = radix(time, 36, 9) + &radix(machine, 36, 4) + &radix(sequence, 36, 4);
            prop_assert_eq!(CosidText::Radix36.read(&in_36), Some(id));
            if let Some(date) = Date::at(u64::try_from(time).unwrap(), 0) {
                let Date { year, month, day, hour, minute, second, millisecond } = date;
                let friendly = format!(
                    "{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}{millisecond:03}-{machine}-{sequence:05}"
                );
                prop_assert_eq!(CosidText::Friendly.read(&friendly), Some(id));
            }
        }

        #[test]
        fn nothing_makes_a_reader_panic(text in "\\PC{0,20}|[0-9A-Za-z-]{0,32}") {
            for notation in [CosidText::Radix62, CosidText::Radix36, CosidText::Friendly] {
                let _ = notation.read(&text);
            }
            let _ = scheme(&text);
        }
    }

    #[test]
    fn presets_are_as_schemes_what_they_are_as_layouts() {
        for preset in PRESETS {
            assert_eq!(Scheme::from(preset.layout).bits(), preset.layout.bits(), "{}", preset.name);
        }
    }
}
