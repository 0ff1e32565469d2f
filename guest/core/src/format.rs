//! How the ids of a tag are shown: from the id that a generator gives to what people see, and back.
//!
//! Three steps, each of which may be left out: the id is *permuted* under a key, and the key's id is put above it; a
//! *shard gene* is joined below; and the number that this makes is written into a *template*, beside the date of issue
//! and what else the template says. Each step is a bijection, so what is shown is as unique as the ids are.
//!
//! Counters may start again each day, month or year. Then the period is part of what numbers are counted under, and the
//! template must show it: so the same number twice never is the same text twice, whatever the clocks of hosts say.

use alloc::string::String;
use alloc::vec::Vec;
use core::{fmt, str};

use crate::calendar::Date;
use crate::gene::GENE_BITS_MAX;
use crate::layout::ones;
use crate::text::decode_bytes;
use crate::{
    FormatError, FormatShape, Gene, ID_MAX, Permutation, ReadError, TemplateFault, Text, TextError, WriteError, encode,
};

/// The greatest length of a template, in bytes.
pub const TEMPLATE_LEN_MAX: usize = 128;

/// The most bits of a key's id.
pub const KEY_ID_BITS_MAX: u8 = 8;

/// The greatest distance from UTC, in minutes: 18 hours.
const UTC_OFFSET_MAX: i16 = 18 * 60;

/// When the counter of a tag starts again at 1.
///
/// ```
/// use unalike_core::{Format, FormatOptions, Restart};
/// let template = "{yyyy}/{id}";
/// let format = Format::new(&FormatOptions { template, restart: Restart::Year, ..FormatOptions::default() })?;
/// assert_eq!(format.period(1_795_361_401_000)?.as_deref(), Some("2026"));
/// assert!(Format::new(&FormatOptions { template, restart: Restart::Day, ..FormatOptions::default() }).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Restart {
    /// Never: one counter for ever.
    #[default]
    Never,
    /// Each year; the template has `yyyy`.
    Year,
    /// Each month; the template has `yyyy` and `MM`.
    Month,
    /// Each day; the template has `yyyy`, `MM` and `dd`.
    Day,
}

/// A secret key and its number.
///
/// To change keys, put the new one in front, with a number of its own, and leave the old ones in their places behind
/// it: what they permuted can still be read, and the key's number in each keeps their numbers apart.
///
/// ```
/// use unalike_core::{Format, FormatKey, FormatOptions};
/// let old = FormatKey { id: 1, secret: 0x9f3c1e5b7a2d48600c41e6d2b8f5730a };
/// let new = FormatKey { id: 2, secret: 0x6b0d52f19c7e3a8845f0c9d1a2e7b364 };
/// let options = FormatOptions { key_id_bits: 2, keys: &[old], context: "order", ..FormatOptions::default() };
/// let text = Format::new(&options)?.write(1, 0, None)?;
/// let read = Format::new(&FormatOptions { keys: &[new, old], ..options })?.read(&text)?;
/// assert_eq!((read.id, read.key_id), (1, Some(1)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FormatKey {
    /// The key's number, which stands above each number that it permuted: 1 to 2^`key_id_bits` - 1, so that no permuted
    /// number is like an id that was shown as it is before there were keys. Without bits for it: 0.
    pub id: u8,
    /// 128 random bits, known to nobody else.
    pub secret: u128,
}

impl fmt::Debug for FormatKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FormatKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What a format is made of; any values, checked by [`Format::new`].
#[derive(Clone, Copy, Debug)]
pub struct FormatOptions<'a> {
    /// Text with placeholders, at most [`TEMPLATE_LEN_MAX`] bytes. Exactly one of
    ///
    /// - `{id}`: in decimal, without zeros in front,
    /// - `{id:010}`: in decimal with zeros in front, 10 digits always (1 to 19),
    /// - `{id:base36}`, `{id:base62}`, `{id:base32}`, `{id:uuid}`: see [`Text`];
    ///
    /// and any of `{yyyy}`, `{yy}`, `{MM}`, `{dd}`, `{HH}`, `{mm}`, `{ss}`, `{SSS}` (milliseconds), the date of issue,
    /// several in one as in `{yyyyMMdd}` and with `- _ . : /` and spaces between; and `{gene:4}`, the low 4 bits (1
    /// to 16) of the shard key in decimal, always as long as the greatest (`00` to `15`). `{{` and `}}` are braces.
    /// `{yy}` is read as a year from 2000 to 2099 where there is no `{yyyy}`.
    pub template: &'a str,
    /// How far the date's clock is ahead of UTC, in minutes: -1080 to 1080.
    pub utc_offset_minutes: i16,
    /// When the counter starts again.
    pub restart: Restart,
    /// Width of the greatest number that is shown as the id: 1 to 63. With 53 all of them are exact in JavaScript.
    pub bits: u8,
    /// The lowest bits of the number, taken from the shard key: 0 (no gene) to 16.
    pub gene_bits: u8,
    /// Width of the key's id, above the permuted bits: 0 to 8, and 0 without keys.
    pub key_id_bits: u8,
    /// Keys of the permutation: the first is used for writing, all are for reading. None: ids are shown as they are.
    pub keys: &'a [FormatKey],
    /// What the ids belong to, the name of their tag for example: each has a permutation of its own under the same key.
    pub context: &'a str,
}

impl Default for FormatOptions<'_> {
    /// The id in decimal, and nothing else.
    fn default() -> Self {
        Self {
            template: "{id}",
            utc_offset_minutes: 0,
            restart: Restart::Never,
            bits: 63,
            gene_bits: 0,
            key_id_bits: 0,
            keys: &[],
            context: "",
        }
    }
}

/// How the ids of a tag are shown.
///
/// What is shown is unique under one format. Once ids are out, only its keys are to be added or exchanged, as
/// [`FormatKey`] says: after any other change a text may come again. Programs keep what was shown first in
/// a store ([`Format::shape`], [`Format::key_checks`]), and refuse another.
///
/// ```
/// use unalike_core::{Format, FormatOptions};
///
/// let format = Format::new(&FormatOptions {
///     template: "ORD-{yyyyMMdd}-{id:010}-{gene:4}",
///     utc_offset_minutes: 8 * 60,
///     ..FormatOptions::default()
/// })?;
/// let (id, issued_ms, buyer) = (42, 1_795_361_401_000, 123_456_789);
/// let text = format.write(id, issued_ms, Some(buyer))?;
/// assert_eq!(text, "ORD-20261122-0000000042-05");
/// let read = format.read(&text)?;
/// assert_eq!((read.id, read.gene), (42, Some(buyer % 16)));
/// assert!(read.issued_ms.is_some_and(|day| day.contains(&issued_ms)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Format {
    template: String,
    parts: Vec<Part>,
    utc_offset_minutes: i16,
    restart: Restart,
    bits: u8,
    gene: Option<Gene>,
    /// The gene as a part of the text.
    gene_in_text: Option<Gene>,
    /// Width of the permuted bits.
    permuted_bits: u8,
    key_id_bits: u8,
    keys: Vec<(u8, Permutation)>,
    id_max: u64,
}

/// A piece of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// These bytes of the template.
    Literal {
        start: usize,
        end: usize,
    },
    Date(Field),
    /// The number with this many digits; 0: as many as it has.
    Digits {
        width: u8,
    },
    Number(Text),
    Gene,
}

/// A figure of a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Year,
    YearOfCentury,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
}

/// The longer name before its beginning.
const FIELDS: [(&[u8], Field); 8] = [
    (b"yyyy", Field::Year),
    (b"yy", Field::YearOfCentury),
    (b"MM", Field::Month),
    (b"dd", Field::Day),
    (b"HH", Field::Hour),
    (b"mm", Field::Minute),
    (b"ss", Field::Second),
    (b"SSS", Field::Millisecond),
];

/// What a text says, as [`Format::read`] finds it.
///
/// ```
/// use unalike_core::{Format, FormatOptions};
/// let format = Format::new(&FormatOptions { template: "{yyyy}-{id}", gene_bits: 4, ..FormatOptions::default() })?;
/// let read = format.read("2026-675")?;
/// assert_eq!((read.number, read.id, read.gene), (675, 42, Some(3))); // 675 = 42 * 16 + 3
/// assert_eq!(read.issued_ms, Some(1_767_225_600_000..1_798_761_600_000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// The id that the generator gave.
    pub id: u64,
    /// The number that is shown: the id permuted, with its key's id and its gene.
    pub number: u64,
    /// The low bits of the shard key, where the format has a gene.
    pub gene: Option<u64>,
    /// The key that was used; none for an id that was shown as it is.
    pub key_id: Option<u8>,
    /// When it was issued, as far as the date in the text says: Unix milliseconds, the end not included.
    pub issued_ms: Option<core::ops::Range<u64>>,
}

impl Default for Format {
    /// The id in decimal, and nothing else.
    fn default() -> Self {
        Self {
            template: String::new(),
            parts: alloc::vec![Part::Digits { width: 0 }],
            utc_offset_minutes: 0,
            restart: Restart::Never,
            bits: 63,
            gene: None,
            gene_in_text: None,
            permuted_bits: 63,
            key_id_bits: 0,
            keys: Vec::new(),
            id_max: ID_MAX,
        }
    }
}

impl Format {
    /// A format of these options.
    ///
    /// # Errors
    /// [`FormatError`], which says what does not fit.
    pub fn new(options: &FormatOptions<'_>) -> Result<Self, FormatError> {
        let FormatOptions { template, utc_offset_minutes, restart, bits, gene_bits, key_id_bits, keys, context } =
            *options;
        if !(-UTC_OFFSET_MAX..=UTC_OFFSET_MAX).contains(&utc_offset_minutes) {
            return Err(FormatError::UtcOffset);
        }
        let (parts, gene_in_text) = parse(template.as_bytes())?;
        let has = |field| parts.contains(&Part::Date(field));
        let shows_period = match restart {
            Restart::Never => true,
            Restart::Year => has(Field::Year),
            Restart::Month => has(Field::Year) && has(Field::Month),
            Restart::Day => has(Field::Year) && has(Field::Month) && has(Field::Day),
        };
        if !shows_period {
            return Err(FormatError::Restart);
        }
        // What is left for the id: 1 bit, or 2 for a permutation.
        let permuted_bits = bits.saturating_sub(gene_bits).saturating_sub(key_id_bits);
        let least = if keys.is_empty() { 1 } else { 2 };
        if bits > 63 || gene_bits > GENE_BITS_MAX || key_id_bits > KEY_ID_BITS_MAX || permuted_bits < least {
            return Err(FormatError::Bits);
        }
        let gene = Gene::new(gene_bits);
        if let (Some(_), Some((at, _))) = (gene, gene_in_text) {
            return Err(FormatError::Template { at, fault: TemplateFault::Twice });
        }
        let mut permutations: Vec<(u8, Permutation)> = Vec::with_capacity(keys.len());
        for key in keys {
            let is_known = permutations.iter().any(|(id, _)| *id == key.id);
            let permutation = Permutation::new(key.secret, context, permuted_bits).ok_or(FormatError::Bits)?;
            if is_known || u16::from(key.id) >> key_id_bits != 0 || (key.id == 0) != (key_id_bits == 0) {
                return Err(FormatError::Key { id: key.id });
            }
            permutations.push((key.id, permutation));
        }
        if keys.is_empty() && key_id_bits > 0 {
            return Err(FormatError::Bits);
        }
        let mut id_max = ones(permuted_bits);
        let digits = parts.iter().find_map(|part| if let Part::Digits { width } = part { Some(*width) } else { None });
        if let Some(width @ 1..) = digits {
            // The first number that has more digits; 20 digits hold all there are.
            let beyond = 10_u64.checked_pow(u32::from(width)).unwrap_or(u64::MAX);
            if keys.is_empty() {
                id_max = id_max.min((beyond >> gene_bits).saturating_sub(1));
            } else if ones(bits) >= beyond {
                id_max = 0;
            }
            if id_max == 0 {
                return Err(FormatError::Digits { width });
            }
        }
        Ok(Self {
            template: template.into(),
            parts,
            utc_offset_minutes,
            restart,
            bits,
            gene,
            gene_in_text: gene_in_text.map(|(_, gene)| gene),
            permuted_bits,
            key_id_bits,
            keys: permutations,
            id_max,
        })
    }

    /// The greatest id that can be shown: the bound for the generator, so that it ends before a text would be too long
    /// or a number too wide.
    #[must_use]
    pub const fn id_max(&self) -> u64 {
        self.id_max
    }

    /// Width of the greatest number that is shown: up to 53 it is exact in JavaScript.
    #[must_use]
    pub const fn bits(&self) -> u8 {
        self.bits
    }

    /// Width of the id in the number, without the gene and the key's id.
    #[must_use]
    pub const fn permuted_bits(&self) -> u8 {
        self.permuted_bits
    }

    /// How many of the lowest bits are taken from the shard key; 0 without a gene in the number.
    #[must_use]
    pub const fn gene_bits(&self) -> u8 {
        match self.gene {
            Some(gene) => gene.bits(),
            None => 0,
        }
    }

    /// When the counter starts again.
    #[must_use]
    pub const fn restart(&self) -> Restart {
        self.restart
    }

    /// What decides, beside the keys, whether another format may show two ids alike: a store keeps it for a tag.
    #[must_use]
    pub fn shape(&self) -> FormatShape {
        let template = if self.template.is_empty() { "{id}" } else { &self.template };
        let bits = if self.keys.is_empty() { 0 } else { self.bits };
        FormatShape::new(template, self.restart, bits, self.gene_bits(), self.key_id_bits)
    }

    /// The number of each key, and what a store keeps to know again how it permutes: [`Permutation::check`].
    pub fn key_checks(&self) -> impl Iterator<Item = (u8, u64)> + '_ {
        self.keys.iter().map(|(key_id, permutation)| (*key_id, permutation.check()))
    }

    /// Whether the template is `{id}`: the number alone, which may as well be written in another notation.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        *self.parts == [Part::Digits { width: 0 }]
    }

    /// Whether there is a gene, and so a key to be given.
    #[must_use]
    pub const fn needs_shard_key(&self) -> bool {
        self.gene.is_some() || self.gene_in_text.is_some()
    }

    /// The period in which an instant lies, `2026-11-22`, `2026-11` or `2026`: what its numbers are counted under,
    /// beside the tag. `None` where the counter never starts again.
    ///
    /// # Errors
    /// [`WriteError::Time`] after the year 9999.
    pub fn period(&self, issued_ms: u64) -> Result<Option<String>, WriteError> {
        if self.restart == Restart::Never {
            return Ok(None);
        }
        let date = self.date(issued_ms)?;
        let mut period = String::with_capacity(10);
        push_digits(&mut period, u64::from(date.year), 4);
        for (is_part, figure) in [(self.restart != Restart::Year, date.month), (self.restart == Restart::Day, date.day)]
        {
            if is_part {
                period.push('-');
                push_digits(&mut period, u64::from(figure), 2);
            }
        }
        Ok(Some(period))
    }

    /// The number that is shown for an id, in any notation: 1 to 2^`bits` - 1. Where the counter starts again, it is
    /// unique within its period only.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn number(&self, id: u64, issued_ms: u64, shard_key: Option<u64>) -> Result<u64, WriteError> {
        let date = if self.restart == Restart::Never { Date::default() } else { self.date(issued_ms)? };
        self.number_on(id, &date, shard_key)
    }

    fn number_on(&self, id: u64, date: &Date, shard_key: Option<u64>) -> Result<u64, WriteError> {
        if id == 0 || id > self.id_max {
            return Err(WriteError::Id { max: self.id_max });
        }
        if shard_key.is_some() != self.needs_shard_key() {
            return Err(if shard_key.is_some() { WriteError::ShardKeyUnwanted } else { WriteError::ShardKeyMissing });
        }
        let permuted = match self.keys.first() {
            None => id,
            Some((key_id, permutation)) => {
                let permuted = permutation.apply(id, self.tweak(date)).ok_or(WriteError::Id { max: self.id_max })?;
                u64::from(*key_id) << self.permuted_bits | permuted
            }
        };
        match (self.gene, shard_key) {
            (Some(gene), Some(key)) => gene.join(permuted, key).ok_or(WriteError::Id { max: self.id_max }),
            _ => Ok(permuted),
        }
    }

    /// The id behind a number, the gene and the key's id.
    ///
    /// # Errors
    /// [`ReadError::Number`] when no id is shown so, and always where the counter starts again, since the number alone
    /// does not say in which period; [`ReadError::Key`].
    pub fn original(&self, number: u64) -> Result<Issued, ReadError> {
        if self.restart != Restart::Never {
            return Err(ReadError::Number { at: 0 });
        }
        self.issued(number, &Date::default(), 0)
    }

    fn issued(&self, number: u64, date: &Date, at: usize) -> Result<Issued, ReadError> {
        if number > ones(self.bits) {
            return Err(ReadError::Number { at });
        }
        let (permuted, gene) = match self.gene {
            None => (number, None),
            Some(gene) => {
                let (permuted, gene) = gene.split(number).ok_or(ReadError::Number { at })?;
                (permuted, Some(gene))
            }
        };
        let mut issued = Issued { id: permuted, number, gene, key_id: None, issued_ms: None };
        // Above the bits there is a key's id, or none: then the id was shown before there were keys.
        if !self.keys.is_empty() && (self.key_id_bits == 0 || permuted >> self.permuted_bits != 0) {
            let key_id = u8::try_from(permuted >> self.permuted_bits).unwrap_or(u8::MAX);
            let key = self.keys.iter().find(|(id, _)| *id == key_id).ok_or(ReadError::Key { id: key_id })?;
            let inverse = key.1.invert(permuted & ones(self.permuted_bits), self.tweak(date));
            issued.id = inverse.ok_or(ReadError::Number { at })?;
            issued.key_id = Some(key_id);
        }
        if issued.id == 0 || issued.id > self.id_max {
            return Err(ReadError::Number { at });
        }
        Ok(issued)
    }

    /// An id as text.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn write(&self, id: u64, issued_ms: u64, shard_key: Option<u64>) -> Result<String, WriteError> {
        let mut text = String::with_capacity(self.template.len() + 8);
        self.write_to(&mut text, id, issued_ms, shard_key)?;
        Ok(text)
    }

    /// The same, behind what a text holds already; on an error it is as before.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn write_to(
        &self,
        text: &mut String,
        id: u64,
        issued_ms: u64,
        shard_key: Option<u64>,
    ) -> Result<(), WriteError> {
        let is_dated = self.parts.iter().any(|part| matches!(part, Part::Date(_)));
        let date = if is_dated { self.date(issued_ms)? } else { Date::default() };
        let number = self.number_on(id, &date, shard_key)?;
        for part in &self.parts {
            match *part {
                Part::Literal { start, end } => text.push_str(self.template.get(start..end).unwrap_or_default()),
                Part::Date(field) => push_digits(text, u64::from(field.of(&date)), field.width()),
                Part::Digits { width } => push_digits(text, number, usize::from(width)),
                Part::Number(notation) => {
                    let written = encode(number, notation).map_err(|_| WriteError::Id { max: self.id_max })?;
                    text.push_str(&written);
                }
                Part::Gene => {
                    if let (Some(gene), Some(key)) = (self.gene_in_text, shard_key) {
                        push_digits(text, gene.of(key), gene_width(gene));
                    }
                }
            }
        }
        Ok(())
    }

    /// What a text says. Digits of base 32, base 36 and UUIDs are read in all their spellings, see [`Text`]; all else
    /// is read as it is written only.
    ///
    /// # Errors
    /// [`ReadError`] when the format writes no such text.
    pub fn read(&self, text: &str) -> Result<Issued, ReadError> {
        // Pieces of a wrong text may end inside a character.
        let bytes = text.as_bytes();
        // All parts but a number of any length have one width each, which leaves the rest to it.
        let fixed: usize = self.parts.iter().map(|part| self.width(*part)).sum();
        let is_fixed = !self.parts.contains(&Part::Digits { width: 0 });
        let rest = text.len().wrapping_sub(fixed);
        if if is_fixed { rest != 0 } else { !(1..=19).contains(&rest) } {
            return Err(ReadError::Length { len: text.len() });
        }
        let mut at = 0;
        let mut date = Date { month: 1, day: 1, ..Date::default() };
        // The figures of the date, and where each is.
        let mut dated: Vec<(Field, usize)> = Vec::new();
        let (mut number, mut number_at, mut gene_in_text) = (0, 0, None);
        for part in &self.parts {
            let end = at + if *part == (Part::Digits { width: 0 }) { rest } else { self.width(*part) };
            let piece = bytes.get(at..end).ok_or(ReadError::Length { len: text.len() })?;
            match *part {
                Part::Literal { start, .. } => {
                    let wanted = self.template.as_bytes().iter().skip(start);
                    if let Some(offset) = piece.iter().zip(wanted).position(|(found, wanted)| found != wanted) {
                        return Err(ReadError::Character { at: at + offset });
                    }
                }
                Part::Date(field) => {
                    let figure = u32::try_from(digits(piece, at)?).unwrap_or(u32::MAX);
                    let before = date;
                    // Two digits of a year say nothing new beside four.
                    if field != Field::YearOfCentury || !dated.iter().any(|(known, _)| *known == Field::Year) {
                        field.set(&mut date, figure);
                    }
                    // What was said before must still be so, and what is said now too.
                    if field.of(&date) != figure || dated.iter().any(|(known, _)| known.of(&before) != known.of(&date))
                    {
                        return Err(ReadError::Date { at });
                    }
                    dated.push((field, at));
                }
                Part::Digits { width: 0 } | Part::Number(_) => {
                    let notation = if let Part::Number(notation) = *part { notation } else { Text::Decimal };
                    number = decode_bytes(piece, notation).map_err(|error| match error {
                        TextError::Length { .. } => ReadError::Length { len: text.len() },
                        TextError::Character { at: offset } => ReadError::Character { at: at + offset },
                        TextError::LeadingZero => ReadError::Character { at },
                        TextError::OutOfRange => ReadError::Number { at },
                    })?;
                    number_at = at;
                }
                Part::Digits { .. } => (number, number_at) = (digits(piece, at)?, at),
                Part::Gene => {
                    let gene = digits(piece, at)?;
                    if self.gene_in_text.is_none_or(|known| known.of(gene) != gene) {
                        return Err(ReadError::Number { at });
                    }
                    gene_in_text = Some(gene);
                }
            }
            at = end;
        }
        let issued_ms = self.span(&date, &dated)?;
        let mut issued = self.issued(number, &date, number_at)?;
        issued.gene = issued.gene.or(gene_in_text);
        issued.issued_ms = issued_ms;
        Ok(issued)
    }

    /// The width of what this part writes, in bytes; 0 for a number of any length.
    fn width(&self, part: Part) -> usize {
        match part {
            Part::Literal { start, end } => end - start,
            Part::Date(field) => field.width(),
            Part::Digits { width } => usize::from(width),
            Part::Number(text) => text.width().unwrap_or(0),
            Part::Gene => self.gene_in_text.map_or(0, gene_width),
        }
    }

    fn date(&self, issued_ms: u64) -> Result<Date, WriteError> {
        Date::at(issued_ms, self.utc_offset_minutes).ok_or(WriteError::Time)
    }

    /// A permutation of its own for each period, so that the first id of each day does not look like that of another.
    fn tweak(&self, date: &Date) -> u32 {
        match self.restart {
            Restart::Never => 0,
            Restart::Year => date.year,
            Restart::Month => date.year * 100 + date.month,
            Restart::Day => (date.year * 100 + date.month) * 100 + date.day,
        }
    }

    /// The time span of a date of which these figures are known: as fine as they follow each other from the year on.
    fn span(&self, date: &Date, dated: &[(Field, usize)]) -> Result<Option<core::ops::Range<u64>>, ReadError> {
        let place = |field: Field| dated.iter().find(|(known, _)| *known == field).map(|(_, at)| *at);
        let wrong = |field: Field| ReadError::Date { at: place(field).unwrap_or(0) };
        for (field, is_possible) in [
            (Field::Month, (1..=12).contains(&date.month)),
            (Field::Day, (1..=31).contains(&date.day)),
            (Field::Hour, date.hour < 24),
            (Field::Minute, date.minute < 60),
            (Field::Second, date.second < 60),
        ] {
            if !is_possible {
                return Err(wrong(field));
            }
        }
        let is_known = |field: Field| place(field).is_some();
        // Without a year, the day must be one of the month's in a leap year.
        let leap = Date { year: 2000, month: date.month, day: date.day, ..Date::default() };
        if is_known(Field::Month) && leap.unix_ms(0).is_none() {
            return Err(wrong(Field::Day));
        }
        let year = if is_known(Field::Year) { Field::Year } else { Field::YearOfCentury };
        if !is_known(year) {
            return Ok(None);
        }
        // The date with only the figures that follow, and how long the last of them lasts.
        let mut first = Date { year: date.year, month: 1, day: 1, ..Date::default() };
        let mut last = Field::Year;
        for field in [Field::Month, Field::Day, Field::Hour, Field::Minute, Field::Second, Field::Millisecond] {
            if !is_known(field) {
                break;
            }
            field.set(&mut first, field.of(date));
            last = field;
        }
        // Every other day is one of each year.
        let at_fault = if (first.month, first.day) == (2, 29) && first.year > 0 { Field::Day } else { year };
        let from = first.unix_ms(self.utc_offset_minutes).ok_or(wrong(at_fault))?;
        let length_ms = match last {
            Field::Millisecond => 1,
            Field::Second => 1_000,
            Field::Minute => 60_000,
            Field::Hour => 3_600_000,
            Field::Day => 86_400_000,
            Field::Month | Field::Year | Field::YearOfCentury => {
                let (year, month) = match (last, first.month) {
                    (Field::Month, month @ 1..12) => (first.year, month + 1),
                    _ => (first.year + 1, 1),
                };
                let next = Date { year, month, day: 1, ..Date::default() };
                // After the year 9999 there is no date.
                let end_ms = 253_402_300_800_000 - i64::from(self.utc_offset_minutes) * 60_000;
                next.unix_ms(self.utc_offset_minutes).unwrap_or(end_ms) - from
            }
        };
        // A period that begins before 1970 is cut there, since no id is older; one that ends before has none.
        let until = u64::try_from(from + length_ms).ok().filter(|until| *until > 0).ok_or(wrong(year))?;
        Ok(Some(u64::try_from(from).unwrap_or(0)..until))
    }
}

impl Field {
    const fn width(self) -> usize {
        match self {
            Self::Year => 4,
            Self::Millisecond => 3,
            _ => 2,
        }
    }

    const fn of(self, date: &Date) -> u32 {
        match self {
            Self::Year => date.year,
            Self::YearOfCentury => date.year % 100,
            Self::Month => date.month,
            Self::Day => date.day,
            Self::Hour => date.hour,
            Self::Minute => date.minute,
            Self::Second => date.second,
            Self::Millisecond => date.millisecond,
        }
    }

    /// Two digits of a year alone are taken to be of this century.
    const fn set(self, date: &mut Date, figure: u32) {
        match self {
            Self::Year => date.year = figure,
            Self::YearOfCentury => date.year = 2000 + figure,
            Self::Month => date.month = figure,
            Self::Day => date.day = figure,
            Self::Hour => date.hour = figure,
            Self::Minute => date.minute = figure,
            Self::Second => date.second = figure,
            Self::Millisecond => date.millisecond = figure,
        }
    }
}

/// The parts of a template, and the gene among them with its position.
type Parsed = (Vec<Part>, Option<(usize, Gene)>);

fn parse(template: &[u8]) -> Result<Parsed, FormatError> {
    let fault = |at, fault| Err(FormatError::Template { at, fault });
    if template.len() > TEMPLATE_LEN_MAX {
        return fault(TEMPLATE_LEN_MAX, TemplateFault::TooLong);
    }
    let (mut parts, mut gene, mut has_id) = (Vec::new(), None, false);
    let (mut at, mut literal) = (0, 0);
    let mut minute_at = None;
    let flush = |parts: &mut Vec<Part>, start: usize, end: usize| {
        if start < end {
            parts.push(Part::Literal { start, end });
        }
    };
    while let Some(byte) = template.get(at).copied() {
        match byte {
            b'{' | b'}' if template.get(at + 1) == Some(&byte) => {
                // One of the two begins the next literal.
                flush(&mut parts, literal, at);
                literal = at + 1;
                at += 2;
            }
            b'{' => {
                flush(&mut parts, literal, at);
                let inner = template.get(at + 1..).unwrap_or_default();
                let Some(len) = inner.iter().position(|byte| *byte == b'}') else {
                    return fault(at, TemplateFault::Brace);
                };
                let inner = inner.get(..len).unwrap_or_default();
                let is_id = inner == b"id" || inner.starts_with(b"id:");
                let is_gene = inner.starts_with(b"gene:");
                if is_id && has_id || is_gene && gene.is_some() {
                    return fault(at, TemplateFault::Twice);
                }
                if is_id {
                    parts.push(id_part(inner).ok_or(FormatError::Template { at, fault: TemplateFault::Placeholder })?);
                    has_id = true;
                } else if is_gene {
                    let bits = inner.get(5..).and_then(small_number);
                    let Some(known) = bits.and_then(Gene::new) else {
                        return fault(at, TemplateFault::Placeholder);
                    };
                    gene = Some((at, known));
                    parts.push(Part::Gene);
                } else {
                    let before = parts.len();
                    if !date_parts(&mut parts, template, at + 1, at + 1 + len) {
                        return fault(at, TemplateFault::Placeholder);
                    }
                    if parts.iter().skip(before).any(|part| *part == Part::Date(Field::Minute)) {
                        minute_at = minute_at.or(Some(at));
                    }
                }
                at += len + 2;
                literal = at;
            }
            b'}' => return fault(at, TemplateFault::Brace),
            0..0x20 | 0x7F => return fault(at, TemplateFault::Character),
            // U+0080 to U+009F.
            0xC2 if matches!(template.get(at + 1), Some(0x80..0xA0)) => return fault(at, TemplateFault::Character),
            _ => at += 1,
        }
    }
    flush(&mut parts, literal, at);
    // `{yyyymmdd}` was meant to show the month.
    let has = |fields: &[Field]| fields.iter().any(|field| parts.contains(&Part::Date(*field)));
    if let Some(at) = minute_at
        && has(&[Field::Year, Field::YearOfCentury, Field::Month, Field::Day])
        && !has(&[Field::Hour])
    {
        return fault(at, TemplateFault::Placeholder);
    }
    if has_id { Ok((parts, gene)) } else { fault(at, TemplateFault::IdMissing) }
}

fn id_part(inner: &[u8]) -> Option<Part> {
    Some(match inner {
        b"id" => Part::Digits { width: 0 },
        b"id:base36" => Part::Number(Text::Base36),
        b"id:base62" => Part::Number(Text::Base62),
        b"id:base32" => Part::Number(Text::Base32),
        b"id:uuid" => Part::Number(Text::Uuid),
        [b'i', b'd', b':', b'0', width @ ..] => match small_number(width) {
            Some(width @ 1..=19) => Part::Digits { width },
            _ => return None,
        },
        _ => return None,
    })
}

/// Adds the parts of a date between two positions; false when it is none.
fn date_parts(parts: &mut Vec<Part>, template: &[u8], start: usize, end: usize) -> bool {
    let before = parts.len();
    let mut at = start;
    while let Some(rest) = template.get(at..end).filter(|rest| !rest.is_empty()) {
        if let Some((name, field)) = FIELDS.iter().find(|(name, _)| rest.starts_with(name)) {
            parts.push(Part::Date(*field));
            at += name.len();
        } else if matches!(rest, [b'-' | b'_' | b'.' | b':' | b'/' | b' ', ..]) && at > start {
            parts.push(Part::Literal { start: at, end: at + 1 });
            at += 1;
        } else {
            return false;
        }
    }
    parts.len() > before
}

/// A number of one or two digits, the first of which is not 0.
fn small_number(text: &[u8]) -> Option<u8> {
    if !(1..=2).contains(&text.len()) || !text.iter().all(u8::is_ascii_digit) || text.starts_with(b"0") {
        return None;
    }
    Some(text.iter().fold(0, |number, digit| number * 10 + (digit - b'0')))
}

/// The number of at most 19 digits.
fn digits(piece: &[u8], at: usize) -> Result<u64, ReadError> {
    let mut number = 0_u64;
    for (offset, byte) in piece.iter().enumerate() {
        if !byte.is_ascii_digit() {
            return Err(ReadError::Character { at: at + offset });
        }
        number = number * 10 + u64::from(byte - b'0');
    }
    Ok(number)
}

/// How many digits the greatest gene has.
const fn gene_width(gene: Gene) -> usize {
    match gene.of(u64::MAX) {
        0..10 => 1,
        10..100 => 2,
        100..1_000 => 3,
        1_000..10_000 => 4,
        _ => 5,
    }
}

/// Writes a number with zeros in front, so that it has this many digits at least.
fn push_digits(text: &mut String, number: u64, width: usize) {
    let mut digits = [b'0'; 20];
    let (mut rest, mut len) = (number, 0);
    for digit in digits.iter_mut().rev() {
        if rest == 0 && len >= width.max(1) {
            break;
        }
        *digit = b'0' + (rest % 10).to_le_bytes()[0];
        len += 1;
        rest /= 10;
    }
    let written = digits.get(20 - len..).unwrap_or_default();
    text.push_str(str::from_utf8(written).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use alloc::{collections::BTreeMap, format, string::ToString, vec};
    use core::slice;

    use proptest::prelude::*;

    use super::*;

    /// 2026-11-22 15:30:01.002 in Greenwich.
    const NOW: u64 = 1_795_361_401_002;
    const DAY_MS: u64 = 86_400_000;
    /// Where the year 10000 begins in Greenwich.
    const END_MS: u64 = 253_402_300_800_000;

    const OLD: FormatKey = FormatKey { id: 1, secret: 0x9f3c_1e5b_7a2d_4860_0c41_e6d2_b8f5_730a };
    const NEW: FormatKey = FormatKey { id: 2, secret: 0x6b0d_52f1_9c7e_3a88_45f0_c9d1_a2e7_b364 };
    /// A key where there are no bits for its number.
    const ONLY: FormatKey = FormatKey { id: 0, ..OLD };

    fn with(template: &str) -> FormatOptions<'_> {
        FormatOptions { template, ..FormatOptions::default() }
    }

    fn format(template: &str) -> Format {
        Format::new(&with(template)).unwrap()
    }

    #[test]
    fn each_placeholder_writes_its_figure() {
        for (template, id, shard_key, expected) in [
            ("{id}", 42, None, "42"),
            ("{id}", ID_MAX, None, "9223372036854775807"),
            ("{id:01}", 7, None, "7"),
            ("{id:010}", 42, None, "0000000042"),
            ("{id:019}", ID_MAX, None, "9223372036854775807"),
            ("{id:base36}", 42, None, "0000000000016"),
            ("{id:base62}", 42, None, "0000000000g"),
            ("{id:base32}", 42, None, "000000000001A"),
            ("{id:uuid}", 42, None, "00000000-0000-8005-9100-000000000000"),
            ("{yyyy}-{id}", 1, None, "2026-1"),
            ("{yy}-{id}", 1, None, "26-1"),
            ("{MM}-{id}", 1, None, "11-1"),
            ("{dd}-{id}", 1, None, "22-1"),
            ("{HH}-{id}", 1, None, "15-1"),
            ("{mm}-{id}", 1, None, "30-1"),
            ("{ss}-{id}", 1, None, "01-1"),
            ("{SSS}-{id}", 1, None, "002-1"),
            ("{yyyyMMddHHmmssSSS}{id:03}", 1, None, "20261122153001002001"),
            ("{yyyy-MM-dd HH:mm:ss.SSS}_{id}", 1, None, "2026-11-22 15:30:01.002_1"),
            ("{id}/{dd/MM_yy.}", 1, None, "1/22/11_26."),
            ("{gene:1}-{id}", 1, Some(6), "0-1"),
            ("{gene:3}-{id}", 1, Some(15), "7-1"),
            ("{gene:4}-{id}", 1, Some(0x15), "05-1"),
            ("{gene:7}-{id}", 1, Some(127), "127-1"),
            ("{gene:10}-{id}", 1, Some(1), "0001-1"),
            ("{gene:16}-{id}", 1, Some(u64::MAX), "65535-1"),
            ("{{{id}}}", 42, None, "{42}"),
            ("{{}}{{a}}{id}}}b{{", 42, None, "{}{a}42}b{"),
            ("订单{id}号 é", 42, None, "订单42号 é"),
            ("ORD-{yyyyMMdd}-{id:010}-{gene:4}", 42, Some(123_456_789), "ORD-20261122-0000000042-05"),
        ] {
            let format = format(template);
            assert_eq!(format.write(id, NOW, shard_key).as_deref(), Ok(expected), "{template}");
            let read = format.read(expected).unwrap();
            assert_eq!((read.id, read.number, read.key_id), (id, id, None), "{template}");
            assert_eq!(read.gene.is_some(), shard_key.is_some(), "{template}");
            assert_eq!(format.needs_shard_key(), shard_key.is_some(), "{template}");
            assert_eq!(format.is_plain(), template == "{id}", "{template}");
            let mut text = String::from("before ");
            format.write_to(&mut text, id, NOW, shard_key).unwrap();
            assert_eq!(text, format!("before {expected}"));
        }
    }

    #[test]
    fn the_span_is_as_fine_as_the_figures_that_follow_each_other() {
        let second = 1_795_361_401_000;
        let day = NOW - NOW % DAY_MS;
        for (template, span) in [
            ("{id}", None),
            ("{MM}{dd}{HH}-{id}", None),
            ("{yyyy}-{id}", Some(1_767_225_600_000..1_798_761_600_000)),
            ("{yy}-{id}", Some(1_767_225_600_000..1_798_761_600_000)),
            ("{yyyydd}-{id}", Some(1_767_225_600_000..1_798_761_600_000)),
            ("{yyyyMM}-{id}", Some(day - 21 * DAY_MS..day + 9 * DAY_MS)),
            ("{yyyyMMHH}-{id}", Some(day - 21 * DAY_MS..day + 9 * DAY_MS)),
            ("{id}{dd}{MM}{yyyy}", Some(day..day + DAY_MS)),
            ("{yyyyMMddHH}-{id}", Some(second - 1_801_000..second + 1_799_000)),
            ("{yyyyMMddHHmm}-{id}", Some(second - 1_000..second + 59_000)),
            ("{yyyyMMddHHmmss}-{id}", Some(second..second + 1_000)),
            ("{yyyyMMddHHmmssSSS}-{id}", Some(NOW..NOW + 1)),
        ] {
            let format = format(template);
            let text = format.write(1, NOW, None).unwrap();
            assert_eq!(format.read(&text).unwrap().issued_ms, span, "{template}");
        }
        // December has its end in the next year.
        assert_eq!(
            format("{yyyyMM}/{id}").read("202612/1").unwrap().issued_ms,
            Some(1_796_083_200_000..1_798_761_600_000)
        );
    }

    #[test]
    fn a_template_is_refused_where_its_fault_is() {
        let long = format!("{{id}}{}", "x".repeat(TEMPLATE_LEN_MAX - 4));
        assert!(Format::new(&with(&long)).is_ok());
        let too_long = format!("{long}x");
        for (template, at, fault) in [
            ("", 0, TemplateFault::IdMissing),
            ("ORD-", 4, TemplateFault::IdMissing),
            ("{{id}}", 6, TemplateFault::IdMissing),
            ("{yyyy}{gene:4}", 14, TemplateFault::IdMissing),
            ("ab{id", 2, TemplateFault::Brace),
            ("{id}{", 4, TemplateFault::Brace),
            ("{id}}", 4, TemplateFault::Brace),
            ("}{id}", 0, TemplateFault::Brace),
            ("{{id}-{id}", 4, TemplateFault::Brace),
            ("é{}{id}", 2, TemplateFault::Placeholder),
            ("{id}{ID}", 4, TemplateFault::Placeholder),
            ("{ id}", 0, TemplateFault::Placeholder),
            ("{id:}", 0, TemplateFault::Placeholder),
            ("{id:10}", 0, TemplateFault::Placeholder),
            ("{id:0}", 0, TemplateFault::Placeholder),
            ("{id:00}", 0, TemplateFault::Placeholder),
            ("{id:005}", 0, TemplateFault::Placeholder),
            ("{id:020}", 0, TemplateFault::Placeholder),
            ("{id:0100}", 0, TemplateFault::Placeholder),
            ("{id:0x}", 0, TemplateFault::Placeholder),
            ("{id:hex}", 0, TemplateFault::Placeholder),
            ("{id:BASE62}", 0, TemplateFault::Placeholder),
            ("{id}{gene}", 4, TemplateFault::Placeholder),
            ("{id}{gene:}", 4, TemplateFault::Placeholder),
            ("{id}{gene:0}", 4, TemplateFault::Placeholder),
            ("{id}{gene:04}", 4, TemplateFault::Placeholder),
            ("{id}{gene:17}", 4, TemplateFault::Placeholder),
            ("{id}{gene:256}", 4, TemplateFault::Placeholder),
            ("{id}{yyy}", 4, TemplateFault::Placeholder),
            ("{id}{M}", 4, TemplateFault::Placeholder),
            ("{yyyymmdd}{id}", 0, TemplateFault::Placeholder),
            ("{yy}{mm}{dd}{id}", 4, TemplateFault::Placeholder),
            ("{id}{MM}{mm}", 8, TemplateFault::Placeholder),
            ("{id}{SS}", 4, TemplateFault::Placeholder),
            ("{id}{-yyyy}", 4, TemplateFault::Placeholder),
            ("{id}{yyyy,MM}", 4, TemplateFault::Placeholder),
            ("{id}{yyyy{{}", 4, TemplateFault::Placeholder),
            ("{id}\n", 4, TemplateFault::Character),
            ("a\u{7f}{id}", 1, TemplateFault::Character),
            ("é\u{85}{id}", 2, TemplateFault::Character),
            ("{id}-{id:010}", 5, TemplateFault::Twice),
            ("{gene:4}{gene:4}{id}", 8, TemplateFault::Twice),
            (&too_long, 128, TemplateFault::TooLong),
        ] {
            let error = Format::new(&with(template)).unwrap_err();
            assert_eq!(error, FormatError::Template { at, fault }, "{template:?}");
        }
        // A gene cannot be in the number and in the text.
        let twice = FormatOptions { gene_bits: 4, ..with("{id}-{gene:4}") };
        assert_eq!(Format::new(&twice).unwrap_err(), FormatError::Template { at: 5, fault: TemplateFault::Twice });
        // No-break space and what follows are no control characters.
        assert!(Format::new(&with("\u{a0}{id}")).is_ok());
    }

    #[test]
    fn options_that_do_not_go_together_are_refused() {
        let plain = FormatOptions::default();
        for (restart, needed) in [(Restart::Year, "yyyy"), (Restart::Month, "yyyyMM"), (Restart::Day, "yyyyMMdd")] {
            for shown in ["", "yy", "yyyy", "yyyyMM", "yyyydd", "MMdd", "yyMMdd", "HH", "yyyyMMdd"] {
                let template = if shown.is_empty() { "{id}".into() } else { format!("{{{shown}}}{{id}}") };
                let made = Format::new(&FormatOptions { restart, ..with(&template) });
                // Each figure that is needed is one of those that are shown.
                let is_shown = needed.starts_with("yyyy") == shown.starts_with("yyyy")
                    && (!needed.contains("MM") || shown.contains("MM"))
                    && (!needed.contains("dd") || shown.contains("dd"));
                assert_eq!(made.map(|it| it.restart()).ok(), is_shown.then_some(restart), "{template} {restart:?}");
            }
        }
        assert_eq!(Format::new(&FormatOptions { restart: Restart::Day, ..plain }).unwrap_err(), FormatError::Restart);
        for utc_offset_minutes in [-1_081, 1_081, i16::MIN, i16::MAX] {
            let options = FormatOptions { utc_offset_minutes, ..plain };
            assert_eq!(Format::new(&options).unwrap_err(), FormatError::UtcOffset);
        }
        assert!(Format::new(&FormatOptions { utc_offset_minutes: -1_080, ..plain }).is_ok());
        assert!(Format::new(&FormatOptions { utc_offset_minutes: 1_080, ..plain }).is_ok());
    }

    #[test]
    fn widths_leave_something_to_the_id() {
        for (bits, gene_bits, key_id_bits, keys, fits) in [
            (0, 0, 0, 0, false),
            (1, 0, 0, 0, true),
            (63, 0, 0, 0, true),
            (64, 0, 0, 0, false),
            (u8::MAX, 0, 0, 0, false),
            (63, 16, 0, 0, true),
            (63, 17, 0, 0, false),
            (63, u8::MAX, 0, 0, false),
            (17, 16, 0, 0, true),
            (16, 16, 0, 0, false),
            (63, 0, 1, 0, false), // without keys, no key's id
            (1, 0, 0, 1, false),
            (2, 0, 0, 1, true),
            (63, 16, 8, 1, true),
            (63, 16, 9, 1, false),
            (26, 16, 8, 1, true),
            (25, 16, 8, 1, false),
        ] {
            let keys = &[FormatKey { id: u8::from(key_id_bits > 0), ..OLD }][..keys];
            let options = FormatOptions { bits, gene_bits, key_id_bits, keys, ..FormatOptions::default() };
            match Format::new(&options) {
                Ok(format) => assert!(fits && format.bits() == bits, "{options:?}"),
                Err(error) => assert!(!fits && error == FormatError::Bits, "{options:?}: {error}"),
            }
        }
    }

    #[test]
    fn keys_have_numbers_of_their_own_that_fit() {
        let key = |id| FormatKey { id, ..OLD };
        for (key_id_bits, ids, wrong) in [
            (0, vec![0], None),
            (0, vec![1], Some(1)),
            (0, vec![0, 0], Some(0)),
            (1, vec![1], None),
            (1, vec![0], Some(0)),
            (1, vec![1, 2], Some(2)),
            (2, vec![3, 0], Some(0)),
            (2, vec![3, 1, 3], Some(3)),
            (7, vec![128], Some(128)),
            (8, vec![255, 1], None),
        ] {
            let keys: Vec<FormatKey> = ids.into_iter().map(key).collect();
            let made = Format::new(&FormatOptions { key_id_bits, keys: &keys, ..FormatOptions::default() });
            assert_eq!(made.err(), wrong.map(|id| FormatError::Key { id }), "{key_id_bits} {keys:?}");
        }
        assert_eq!(format!("{OLD:?}"), "FormatKey { id: 1, .. }", "nobody reads a secret in a log");
        let options = FormatOptions { keys: &[ONLY], ..FormatOptions::default() };
        let digits = OLD.secret.to_string();
        assert!(!format!("{options:?}{:?}", Format::new(&options)).contains(&digits));
    }

    #[test]
    fn digits_that_are_too_few_are_refused() {
        for (width, bits, gene_bits, keys, id_max) in [
            (1, 63, 0, 0, 9),
            (3, 63, 0, 0, 999),
            (3, 9, 0, 0, 511),
            (3, 63, 4, 0, 61), // 61 * 16 + 15 = 991, 62 * 16 + 15 = 1007
            (19, 63, 0, 0, ID_MAX),
            (2, 63, 5, 0, 2), // 2 * 32 + 31 = 95
            (1, 63, 3, 0, 0), // 1 * 8 + 7 = 15
            (2, 63, 6, 0, 0), // 1 * 64 + 63 = 127
            (3, 9, 0, 1, 511),
            (3, 10, 0, 1, 0), // 1023
            (19, 63, 0, 1, ID_MAX),
            (18, 63, 0, 1, 0),
        ] {
            let template = format!("{{id:0{width}}}");
            let options = FormatOptions { bits, gene_bits, keys: &[ONLY][..keys], ..with(&template) };
            match Format::new(&options) {
                Ok(format) => assert_eq!(format.id_max(), id_max, "{options:?}"),
                Err(error) => assert_eq!((error, id_max), (FormatError::Digits { width }, 0), "{options:?}"),
            }
        }
    }

    #[test]
    fn what_cannot_be_shown_is_refused() {
        let plain = format("{id:03}");
        for id in [0, 1_000, u64::MAX] {
            assert_eq!(plain.write(id, NOW, None), Err(WriteError::Id { max: 999 }));
            assert_eq!(plain.number(id, NOW, None), Err(WriteError::Id { max: 999 }));
        }
        assert_eq!(plain.write(1, NOW, Some(1)), Err(WriteError::ShardKeyUnwanted));
        let in_number = Format::new(&FormatOptions { gene_bits: 4, ..FormatOptions::default() }).unwrap();
        for with_gene in [&in_number, &format("{gene:4}{id}")] {
            assert_eq!(with_gene.write(1, NOW, None), Err(WriteError::ShardKeyMissing));
            assert_eq!(with_gene.number(1, NOW, None), Err(WriteError::ShardKeyMissing));
        }
        let dated = Format::new(&FormatOptions { restart: Restart::Year, ..with("{yyyy}{id}") }).unwrap();
        assert!(dated.write(1, END_MS - 1, None).is_ok());
        for late in [END_MS, u64::MAX] {
            assert_eq!(dated.write(1, late, None), Err(WriteError::Time));
            assert_eq!(dated.number(1, late, None), Err(WriteError::Time));
            assert_eq!(dated.period(late), Err(WriteError::Time));
            // Where no date is shown, none is too late.
            assert_eq!(plain.write(1, late, None).as_deref(), Ok("001"));
        }
        let mut text = String::from("before");
        assert_eq!(dated.write_to(&mut text, 1, END_MS, None), Err(WriteError::Time));
        assert_eq!(dated.write_to(&mut text, 0, NOW, None), Err(WriteError::Id { max: ID_MAX }));
        assert_eq!(text, "before");
    }

    #[test]
    fn what_is_no_text_of_the_format_is_refused_where_it_differs() {
        use ReadError::{Character, Date, Length, Number};
        for (template, text, error) in [
            ("ORD-{id}", "", Length { len: 0 }),
            ("ORD-{id}", "ORD-", Length { len: 4 }),
            ("ORD-{id}", "ORD-12345678901234567890", Length { len: 24 }),
            ("ORD-{id}", "ORD_1", Character { at: 3 }),
            ("ORD-{id}", "ord-1", Character { at: 0 }),
            ("ORD-{id}", "ORD-x", Character { at: 4 }),
            ("ORD-{id}", "ORD-1x", Character { at: 5 }),
            ("ORD-{id}", "ORD-1 ", Character { at: 5 }),
            ("ORD-{id}", "ORD-+1", Character { at: 4 }),
            ("ORD-{id}", "ORD-01", Character { at: 4 }),
            ("ORD-{id}", "ORD-0", Number { at: 4 }),
            ("ORD-{id}", "ORD-9223372036854775808", Number { at: 4 }),
            // A character of two bytes, one of which is within the literal.
            ("ORD-{id}", "ORDé1", Character { at: 3 }),
            ("é{id}", "ê1", Character { at: 1 }),
            ("{id:02}x", "1é", Character { at: 1 }),
            ("{id:02}{yyyy}", "1é026", Character { at: 1 }),
            ("{id:base62}-{yy}", "0000000000é26", Character { at: 10 }),
            ("{id:03}", "12", Length { len: 2 }),
            ("{id:03}", "0012", Length { len: 4 }),
            ("{id:03}", "000", Number { at: 0 }),
            ("{id:019}", "9223372036854775808", Number { at: 0 }),
            ("a{id:base62}", "a0000000000-", Character { at: 11 }),
            ("a{id:base62}", "aAzL8n0Y58m8", Number { at: 1 }), // 2^63
            ("a{id:base32}", "a00000000000U0", Character { at: 12 }),
            ("a{id:uuid}", "a00000000-0000-7005-9000-000000000000", Character { at: 15 }),
            ("{gene:4}-{id}", "16-1", Number { at: 0 }),
            ("{gene:4}-{id}", "1-1", Length { len: 3 }),
            ("{gene:4}-{id}", "1x-1", Character { at: 1 }),
            ("{id:01}{gene:1}", "12", Number { at: 1 }),
            ("{yyyyMMdd}-{id}", "20261322-1", Date { at: 4 }),
            ("{yyyyMMdd}-{id}", "20260022-1", Date { at: 4 }),
            ("{yyyyMMdd}-{id}", "20260229-1", Date { at: 6 }),
            ("{yyyyMMdd}-{id}", "20260200-1", Date { at: 6 }),
            ("{yyyyMMdd}-{id}", "19691231-1", Date { at: 0 }),
            ("{yyyyMMdd}-{id}", "00000101-1", Date { at: 0 }),
            ("{yyyyMMdd}-{id}", "2026x122-1", Character { at: 4 }),
            ("{MMdd}-{id}", "0230-1", Date { at: 2 }),
            ("{MMdd}-{id}", "0431-1", Date { at: 2 }),
            ("{HH}-{id}", "24-1", Date { at: 0 }),
            ("{mm}-{id}", "60-1", Date { at: 0 }),
            ("{ss}-{id}", "60-1", Date { at: 0 }),
            ("{yyyy}-{MM}-{MM}-{id}", "2026-11-12-1", Date { at: 8 }),
            ("{yyyy}{yy}-{id}", "202627-1", Date { at: 4 }),
            ("{yy}{yyyy}-{id}", "262027-1", Date { at: 2 }),
            ("{yy}{yy}-{id}", "2627-1", Date { at: 2 }),
        ] {
            assert_eq!(format(template).read(text), Err(error), "{template} {text:?}");
        }
        // What is nearly wrong.
        for (template, text, id) in [
            ("{MMdd}-{id}", "0229-1", 1),
            ("{yyyyMMdd}-{id}", "20240229-1", 1),
            ("{yy}{yyyy}-{id}", "262026-1", 1),
            ("{yy}{yyyy}-{id}", "701970-1", 1),
            ("{yyyy}{yy}-{id}", "197070-1", 1),
            ("{id:base32}", "oooooooooooiL", 33),
            ("{id:base36}", "00000000000ZZ", 1_295),
        ] {
            assert_eq!(format(template).read(text).map(|it| it.id), Ok(id), "{template} {text}");
        }
    }

    #[test]
    fn a_key_that_is_not_known_is_named() {
        let options = FormatOptions { bits: 10, key_id_bits: 2, keys: &[NEW, OLD], ..with("{id:04}") };
        let format = Format::new(&options).unwrap();
        for (number, id) in [(769, 3), (768, 3), (1_023, 3)] {
            assert_eq!(format.original(number), Err(ReadError::Key { id }));
            assert_eq!(format.read(&format!("{number:04}")), Err(ReadError::Key { id }));
        }
        assert_eq!(format.original(1_024), Err(ReadError::Number { at: 0 }));
        assert_eq!(format.read("1024"), Err(ReadError::Number { at: 0 }));
        // Without a key's id, it was shown before there were keys.
        assert_eq!(format.original(255).map(|it| (it.id, it.key_id)), Ok((255, None)));
        // Below the key's id there is no 0.
        assert_eq!(format.original(256), Err(ReadError::Number { at: 0 }));
        assert_eq!(format.original(0), Err(ReadError::Number { at: 0 }));
    }

    /// Some of whose genes would need another digit.
    #[test]
    fn an_id_beyond_the_last_is_not_read_though_its_number_has_a_place() {
        let format = Format::new(&FormatOptions { gene_bits: 4, ..with("{id:03}") }).unwrap();
        assert_eq!(format.id_max(), 61);
        assert_eq!(format.read("991").map(|it| (it.id, it.gene)), Ok((61, Some(15))));
        for number in 992..1_000 {
            assert_eq!(format.read(&number.to_string()), Err(ReadError::Number { at: 0 }));
            assert_eq!(format.original(number), Err(ReadError::Number { at: 0 }));
        }
        assert_eq!(self::format("{id:03}").original(1_000), Err(ReadError::Number { at: 0 }));
    }

    #[test]
    fn the_number_is_the_key_id_above_what_the_permutation_shows_above_the_gene() {
        for (restart, tweak) in
            [(Restart::Never, 0), (Restart::Year, 2_026), (Restart::Month, 202_611), (Restart::Day, 20_261_122)]
        {
            let options = FormatOptions {
                restart,
                bits: 53,
                gene_bits: 4,
                key_id_bits: 3,
                keys: &[NEW, OLD],
                context: "order",
                ..with("{yyyyMMdd}-{id:019}")
            };
            let format = Format::new(&options).unwrap();
            let permutation = Permutation::new(NEW.secret, "order", 46).unwrap();
            for id in [1, 2, format.id_max()] {
                let shown = permutation.apply(id, tweak).unwrap();
                assert_eq!(format.number(id, NOW, Some(0xFFF5)), Ok(2 << 50 | shown << 4 | 5), "{restart:?}");
            }
        }
    }

    /// All numbers of all keys, all ids and all genes: each once, each read back, and no other number is read at all.
    #[test]
    fn numbers_under_two_keys_never_meet() {
        for (permuted_bits, gene_bits) in [(2, 0), (3, 2), (5, 0), (6, 1), (7, 3)] {
            let (key_id_bits, bits) = (2, permuted_bits + gene_bits + 2);
            let keys = [NEW, OLD, FormatKey { id: 3, secret: 7 }];
            let ring = FormatOptions { bits, gene_bits, key_id_bits, keys: &keys, context: "order", ..with("{id}") };
            let reader = Format::new(&ring).unwrap();
            let mut shown = BTreeMap::new();
            // Before there were keys.
            let plain = FormatOptions { keys: &[], key_id_bits: 0, bits: permuted_bits + gene_bits, ..ring };
            for key in [None].into_iter().chain(keys.map(Some)) {
                // As it was written when this was the only key.
                let options = key.as_ref().map_or(plain, |key| FormatOptions { keys: slice::from_ref(key), ..ring });
                let writer = Format::new(&options).unwrap();
                assert_eq!(writer.id_max(), (1 << permuted_bits) - 1);
                for id in 1..=writer.id_max() {
                    for gene in 0..1 << gene_bits {
                        let shard_key = (gene_bits > 0).then_some(gene | 0xFF00);
                        let number = writer.number(id, NOW, shard_key).unwrap();
                        let issued = Issued {
                            id,
                            number,
                            gene: shard_key.map(|_| gene),
                            key_id: key.map(|key| key.id),
                            issued_ms: None,
                        };
                        assert_eq!(reader.original(number).as_ref(), Ok(&issued));
                        assert_eq!(reader.read(&writer.write(id, NOW, shard_key).unwrap()).as_ref(), Ok(&issued));
                        assert_eq!(shown.insert(number, issued), None, "{number} is shown twice");
                    }
                }
            }
            for number in (0..2 << bits).chain([ID_MAX, u64::MAX]) {
                assert_eq!(reader.original(number).ok().as_ref(), shown.get(&number), "{number}");
            }
        }
    }

    /// Each id of each period has a text of its own, though the numbers are the same few.
    #[test]
    fn counters_that_start_again_never_write_a_text_twice() {
        for (restart, template, starts) in [
            (Restart::Day, "{yyyyMMdd}{id:02}", (0..400).map(|day| NOW + day * DAY_MS).collect::<Vec<u64>>()),
            (Restart::Month, "{id:02}{MM}{yyyy}", (0..24).map(|month| NOW + month * 31 * DAY_MS).collect()),
            (Restart::Year, "{id:base62}{dd}{yyyy}", (0..50).map(|year| NOW + year * 366 * DAY_MS).collect()),
        ] {
            for keys in [&[][..], &[ONLY]] {
                let format = Format::new(&FormatOptions { restart, bits: 6, keys, ..with(template) }).unwrap();
                let mut shown = BTreeMap::new();
                let mut firsts = BTreeMap::new();
                for now in &starts {
                    let period = format.period(*now).unwrap().unwrap();
                    for id in 1..=format.id_max() {
                        let text = format.write(id, *now, None).unwrap();
                        let read = format.read(&text).unwrap();
                        assert_eq!(read.id, id);
                        assert!(read.issued_ms.as_ref().is_some_and(|span| span.contains(now)));
                        assert_eq!(shown.insert(text.clone(), (id, period.clone())), None, "{text} is shown twice");
                        assert_eq!(format.original(read.number), Err(ReadError::Number { at: 0 }));
                    }
                    let first = format.number(1, *now, None).unwrap();
                    *firsts.entry(first).or_insert(0_usize) += 1;
                }
                // With a key, the first of each period looks like any other of the 63.
                let most = firsts.values().max().copied().unwrap();
                assert!(if keys.is_empty() { most == starts.len() } else { most < 24 }, "{firsts:?}");
            }
        }
    }

    #[test]
    fn a_period_ends_at_midnight_of_its_clock() {
        let midnight = 1_798_761_600_000; // 2027-01-01 in Greenwich
        let period = |restart, utc_offset_minutes, now| {
            let options = FormatOptions { restart, utc_offset_minutes, ..with("{yyyyMMdd}{id}") };
            Format::new(&options).unwrap().period(now).unwrap()
        };
        for (offset, offset_ms) in
            [(0, 0), (480, 28_800_000), (-480, -28_800_000), (1_080, 64_800_000), (-1, -60_000_i64)]
        {
            let begins = midnight - offset_ms;
            for (restart, before, after) in [
                (Restart::Never, None, None),
                (Restart::Year, Some("2026"), Some("2027")),
                (Restart::Month, Some("2026-12"), Some("2027-01")),
                (Restart::Day, Some("2026-12-31"), Some("2027-01-01")),
            ] {
                let begins = u64::try_from(begins).unwrap();
                assert_eq!(period(restart, offset, begins - 1).as_deref(), before);
                assert_eq!(period(restart, offset, begins).as_deref(), after);
            }
        }
        for (now, day) in [
            (0, "1970-01-01"),
            (951_782_400_000, "2000-02-29"),
            (4_107_542_399_999, "2100-02-28"),
            (4_107_542_400_000, "2100-03-01"),
            (END_MS - 1, "9999-12-31"),
        ] {
            assert_eq!(period(Restart::Day, 0, now).as_deref(), Some(day));
        }
        assert_eq!(period(Restart::Day, -1, 0).as_deref(), Some("1969-12-31"));
        assert_eq!(period(Restart::Day, -1, END_MS).as_deref(), Some("9999-12-31"));
    }

    /// Clocks that stand at the beginning of 1970, or run to the end of 9999.
    #[test]
    fn what_is_written_at_the_ends_of_time_is_read() {
        for template in ["{yyyy}", "{yyyyMM}", "{yyyyMMdd}", "{yyyyMMddHH}", "{yyyyMMddHHmm}", "{yyyyMMddHHmmssSSS}"] {
            let template = format!("{template}-{{id}}");
            for utc_offset_minutes in [-1_080_i16, -60, -1, 0, 1, 480, 1_080] {
                let options = FormatOptions { utc_offset_minutes, ..with(&template) };
                let format = Format::new(&options).unwrap();
                let last = END_MS.saturating_add_signed(-60_000 * i64::from(utc_offset_minutes)) - 1;
                for now in [0, 1, 59_999, 3_600_000, DAY_MS, 60 * DAY_MS, last - DAY_MS, last] {
                    let text = format.write(1, now, None).unwrap();
                    let span = format.read(&text).unwrap().issued_ms.unwrap();
                    assert!(span.contains(&now), "{text} at {now} is read as {span:?}");
                    assert!(span.end <= last + 1);
                }
                assert_eq!(format.write(1, last + 1, None), Err(WriteError::Time));
            }
        }
        let west = Format::new(&FormatOptions { utc_offset_minutes: -60, ..with("{yyyy}/{id}") }).unwrap();
        assert_eq!(west.read("1969/1").unwrap().issued_ms, Some(0..3_600_000));
        assert_eq!(format("{yyyy}/{id}").read("1969/1"), Err(ReadError::Date { at: 0 }));
        // Where the figure is that no such date has.
        for (text, at) in [
            ("ORD-20261340-235959-1", 8),
            ("ORD-20260010-235959-1", 8),
            ("ORD-20260931-235959-1", 10),
            ("ORD-20260229-235959-1", 10),
            ("ORD-20260200-235959-1", 10),
            ("ORD-20261122-245959-1", 13),
            ("ORD-20261122-236059-1", 15),
            ("ORD-20261122-235960-1", 17),
            ("ORD-19691122-235959-1", 4),
            ("ORD-00000101-000000-1", 4),
            ("ORD-00000229-000000-1", 4),
        ] {
            let dated = format("ORD-{yyyy}{MM}{dd}-{HH}{mm}{ss}-{id}");
            assert_eq!(dated.read(text), Err(ReadError::Date { at }), "{text}");
        }
        let day_first = format("ORD-{dd}.{MM}.-{id}");
        assert_eq!(day_first.read("ORD-30.02.-1"), Err(ReadError::Date { at: 4 }));
        assert_eq!(day_first.read("ORD-30.13.-1"), Err(ReadError::Date { at: 7 }));
    }

    /// Everything that a format is made of, owned.
    #[derive(Clone, Debug)]
    struct Sample {
        template: String,
        utc_offset_minutes: i16,
        restart: Restart,
        bits: u8,
        gene_bits: u8,
        key_id_bits: u8,
        keys: Vec<FormatKey>,
        context: String,
        /// The digits that the template gives to the id, or 0.
        digits: u8,
        /// How the id is written, where it has other spellings than its own.
        has_spellings: bool,
        /// The date's figures all follow each other from the year on, so that what is read says all that the text does.
        is_complete: bool,
    }

    impl Sample {
        fn options(&self) -> FormatOptions<'_> {
            FormatOptions {
                template: &self.template,
                utc_offset_minutes: self.utc_offset_minutes,
                restart: self.restart,
                bits: self.bits,
                gene_bits: self.gene_bits,
                key_id_bits: self.key_id_bits,
                keys: &self.keys,
                context: &self.context,
            }
        }

        /// The greatest id all of whose numbers have a place: by search, in wide arithmetic.
        fn id_max(&self) -> u64 {
            let permuted_bits = self.bits - self.gene_bits - self.key_id_bits;
            let fits = |number: u128| self.digits == 0 || number < 10_u128.pow(u32::from(self.digits));
            if !self.keys.is_empty() {
                return if fits((1 << self.bits) - 1) { (1 << permuted_bits) - 1 } else { 0 };
            }
            let (mut fit, mut unfit) = (0_u128, 1_u128 << permuted_bits);
            while unfit - fit > 1 {
                let middle = (fit + unfit) / 2;
                let greatest = middle * (1 << self.gene_bits) + ((1 << self.gene_bits) - 1);
                *(if fits(greatest) { &mut fit } else { &mut unfit }) = middle;
            }
            u64::try_from(fit).unwrap()
        }
    }

    /// Literals as they stand in a template: any characters, braces doubled.
    fn literals() -> impl Strategy<Value = String> {
        prop_oneof!["[A-Za-z0-9 {}/._-]{0,5}", "\\PC{0,4}"].prop_map(|text| text.replace('{', "{{").replace('}', "}}"))
    }

    fn samples() -> impl Strategy<Value = Sample> {
        let dates = prop::collection::vec(
            prop::sample::select(
                &[
                    "yyyy",
                    "yy",
                    "MM",
                    "dd",
                    "HH",
                    "mm",
                    "ss",
                    "SSS",
                    "yyyyMM",
                    "yyyyMMdd",
                    "yyMMdd",
                    "HHmmss",
                    "yyyy-MM-dd HH:mm:ss.SSS",
                    "MM/dd",
                ][..],
            ),
            0..3,
        );
        let ids = prop_oneof![
            Just("{id}".to_string()),
            (1..=19_u8).prop_map(|width| format!("{{id:0{width}}}")),
            prop::sample::select(&["base36", "base62", "base32", "uuid"][..]).prop_map(|it| format!("{{id:{it}}}")),
        ];
        let restarts = prop_oneof![
            2 => Just(Restart::Never),
            1 => prop::sample::select(&[Restart::Year, Restart::Month, Restart::Day][..]),
        ];
        let genes = prop_oneof![Just((0_u8, 0_u8)), (1..=16_u8, Just(0)), (Just(0), 1..=16_u8)];
        let keys = prop_oneof![
            1 => Just((0_u8, vec![])),
            2 => (0..=8_u8).prop_flat_map(|bits| {
                let ids = if bits == 0 { 0..=0 } else { 1..=u8::MAX >> (8 - bits) };
                let ids = prop::collection::btree_set(ids, 1..4);
                (Just(bits), ids.prop_map(Vec::from_iter).prop_shuffle(), any::<[u128; 4]>())
            }).prop_map(|(bits, ids, secrets)| {
                (bits, ids.into_iter().zip(secrets).map(|(id, secret)| FormatKey { id, secret }).collect())
            }),
        ];
        let words = prop::collection::vec(literals(), 6);
        (
            dates,
            ids,
            restarts,
            genes,
            keys,
            words,
            -1_080..=1_080_i16,
            0..=63_u8,
            any::<prop::sample::Index>(),
            "[a-z]{0,3}",
        )
            .prop_flat_map(
                |(
                    mut dates,
                    id,
                    restart,
                    (gene_bits, text_gene_bits),
                    (key_id_bits, keys),
                    words,
                    offset,
                    bits,
                    _,
                    context,
                )| {
                    dates.extend(match restart {
                        Restart::Never => None,
                        Restart::Year => Some("yyyy"),
                        Restart::Month => Some("yyyyMM"),
                        Restart::Day => Some("yyyyMMdd"),
                    });
                    // Minutes beside a date need its hours.
                    if !dates.concat().contains("HH") {
                        dates.iter_mut().filter(|date| **date == "mm").for_each(|date| *date = "HHmm");
                    }
                    let figures = dates.concat();
                    let has = |name: &str| figures.contains(name);
                    let years = if has("yyyy") || has("yy") { 1 } else { 0 };
                    let follows =
                        [years == 1, has("MM"), has("dd"), has("HH"), has("mm"), figures.contains("ss"), has("SSS")];
                    let is_complete = follows.is_sorted_by(|before, after| before >= after);
                    let mut pieces: Vec<String> = dates.iter().map(|date| format!("{{{date}}}")).collect();
                    pieces.push(id.clone());
                    if text_gene_bits > 0 {
                        pieces.push(format!("{{gene:{text_gene_bits}}}"));
                    }
                    let digits =
                        id.strip_prefix("{id:0").and_then(|it| it.trim_end_matches('}').parse().ok()).unwrap_or(0);
                    let least = gene_bits + key_id_bits + if keys.is_empty() { 1 } else { 2 };
                    let sample = Sample {
                        template: String::new(),
                        utc_offset_minutes: offset,
                        restart,
                        bits: bits.max(least),
                        gene_bits,
                        key_id_bits,
                        keys,
                        context,
                        digits,
                        has_spellings: ["{id:base36}", "{id:base32}", "{id:uuid}"].contains(&&*id),
                        is_complete,
                    };
                    (Just(sample), Just(pieces).prop_shuffle(), Just(words))
                },
            )
            .prop_map(|(mut sample, pieces, words)| {
                for (place, word) in words.iter().enumerate() {
                    sample.template.push_str(word);
                    sample.template.push_str(pieces.get(place).map_or("", String::as_str));
                }
                sample
            })
            .prop_filter("a template has 128 bytes at most", |sample| sample.template.len() <= TEMPLATE_LEN_MAX)
    }

    /// Those of which there is a format: enough digits for its numbers.
    fn formats() -> impl Strategy<Value = (Sample, Format)> {
        samples().prop_filter_map("the digits are enough", |sample| {
            let made = Format::new(&sample.options());
            Some((sample, made.ok()?))
        })
    }

    /// Instants of all years, and those beside the ends of days, months and years.
    fn instants() -> impl Strategy<Value = u64> {
        let last = END_MS - 64_800_001;
        prop_oneof![
            0..=last,
            NOW - 400 * DAY_MS..NOW + 400 * DAY_MS,
            0..3 * DAY_MS,
            (0..last / DAY_MS, -1_080..=1_080_i64, -2..=2_i64).prop_map(move |(day, minutes, ms)| {
                (day * DAY_MS).saturating_add_signed(minutes * 60_000 + ms).min(last)
            }),
        ]
    }

    fn id_of(format: &Format, drawn: u64) -> u64 {
        match drawn % 4 {
            0 => 1,
            1 => format.id_max(),
            _ => drawn % format.id_max() + 1,
        }
    }

    fn key_of(format: &Format, drawn: u64) -> Option<u64> {
        format.needs_shard_key().then_some(drawn)
    }

    /// All spellings of one text alike.
    fn folded(text: &str) -> String {
        text.to_ascii_uppercase().replace(['I', 'L'], "1").replace('O', "0")
    }

    /// A text that can be read is the one that is written for what it says.
    fn check_canonical(sample: &Sample, format: &Format, text: &str) -> Result<(), TestCaseError> {
        let Ok(issued) = format.read(text) else { return Ok(()) };
        prop_assert!((1..=format.id_max()).contains(&issued.id));
        if !sample.is_complete {
            return Ok(());
        }
        let key = sample.keys.iter().filter(|key| Some(key.id) == issued.key_id).copied().collect::<Vec<_>>();
        let mut options = FormatOptions { keys: &key, ..sample.options() };
        if issued.key_id.is_none() {
            // As before there were keys.
            prop_assert!(sample.keys.is_empty() || sample.key_id_bits > 0);
            (options.bits, options.key_id_bits) = (options.bits - options.key_id_bits, 0);
        }
        prop_assert_eq!(key.len(), usize::from(issued.key_id.is_some()));
        let writer = Format::new(&options).unwrap();
        let now = issued.issued_ms.as_ref().map_or(0, |span| span.start);
        let written = writer.write(issued.id, now, issued.gene).unwrap();
        if sample.has_spellings {
            prop_assert_eq!(folded(&written), folded(text));
        } else {
            prop_assert_eq!(written, text);
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn id_max_is_the_greatest_id_that_has_a_place(sample in samples(), key in any::<u64>()) {
            let id_max = sample.id_max();
            let format = match Format::new(&sample.options()) {
                Ok(format) => format,
                Err(error) => {
                    prop_assert_eq!((error, id_max), (FormatError::Digits { width: sample.digits }, 0));
                    return Ok(());
                }
            };
            prop_assert_eq!(format.id_max(), id_max);
            let width = |id: u64| format.write(id, NOW, key_of(&format, key)).map(|text| text.len());
            let (first, last) = (width(1).unwrap(), width(id_max).unwrap());
            prop_assert!(sample.digits == 0 || first == last);
            prop_assert_eq!(width(id_max + 1), Err(WriteError::Id { max: id_max }));
            for key in [0, u64::MAX, key] {
                let number = format.number(id_max, NOW, key_of(&format, key)).unwrap();
                prop_assert!((1..=ones(sample.bits)).contains(&number));
            }
        }

        #[test]
        fn what_is_written_is_read(
            (sample, format) in formats(), id in any::<u64>(), now in instants(), key in any::<u64>(),
        ) {
            let (id, key) = (id_of(&format, id), key_of(&format, key));
            let text = format.write(id, now, key).unwrap();
            let read = format.read(&text);
            prop_assert!(read.is_ok(), "{:?} of {:?} at {}: {:?}", text, sample.template, now, read);
            let read = read.unwrap();
            prop_assert_eq!(read.id, id);
            prop_assert_eq!(read.number, format.number(id, now, key).unwrap());
            prop_assert_eq!(read.key_id, sample.keys.first().map(|key| key.id));
            let gene_bits = format.gene.or(format.gene_in_text).map(Gene::bits);
            prop_assert_eq!(read.gene, gene_bits.zip(key).map(|(bits, key)| key % (1 << bits)));
            // Two digits of a year are those of this century.
            let placeholders = sample.template.replace("{{", "");
            let has_year = placeholders.contains("{yyyy");
            let has_century = placeholders.contains("{yy");
            prop_assert_eq!(read.issued_ms.is_some(), has_year || has_century);
            if let Some(span) = &read.issued_ms {
                let year = Date::at(now, sample.utc_offset_minutes).unwrap().year;
                prop_assert!(!has_year && !(2000..2100).contains(&year) || span.contains(&now), "{:?} {}", span, now);
            }
            let alone = Issued { issued_ms: None, gene: read.gene.filter(|_| format.gene.is_some()), ..read.clone() };
            let original = format.original(read.number);
            prop_assert_eq!(original, if sample.restart == Restart::Never { Ok(alone) } else { Err(ReadError::Number { at: 0 }) });
            check_canonical(&sample, &format, &text)?;
        }

        #[test]
        fn what_was_written_with_any_key_is_read_with_the_ring(
            (sample, format) in formats(), id in any::<u64>(), now in instants(), key in any::<u64>(),
        ) {
            let (id, shard_key) = (id_of(&format, id), key_of(&format, key));
            let mut texts = BTreeMap::new();
            for key in &sample.keys {
                let before = Format::new(&FormatOptions { keys: &[*key], ..sample.options() }).unwrap();
                let text = before.write(id, now, shard_key).unwrap();
                let read = format.read(&text).unwrap();
                prop_assert_eq!((read.id, read.key_id), (id, Some(key.id)));
                prop_assert_eq!(texts.insert(text, key.id), None);
            }
        }

        /// Ids of two periods, two ids of one, or one with two genes.
        #[test]
        fn different_ids_have_different_texts(
            (sample, format) in formats(), drawn in any::<(u64, u64)>(), nows in (instants(), instants()), key in any::<(u64, u64)>(),
            near in any::<bool>(),
        ) {
            let first = id_of(&format, drawn.0);
            let (second, nows) = if near { (first % format.id_max() + 1, (nows.0, nows.0 + 1)) } else { (id_of(&format, drawn.1), nows) };
            let texts = [(first, nows.0, key.0), (second, nows.1, key.1)]
                .map(|(id, now, key)| (format.write(id, now, key_of(&format, key)).unwrap(), id, format.period(now).unwrap()));
            let [(one, id, period), (other, other_id, other_period)] = texts;
            // Without a period, the date in the text must not matter.
            if id != other_id || period != other_period {
                prop_assert_ne!(one, other, "{:?}", sample);
            }
        }

        /// One character changed, put in, left out, or two that change places: refused, or another id, date or gene.
        #[test]
        fn a_wrong_character_never_says_the_same(
            (sample, format) in formats(), id in any::<u64>(), now in instants(), key in any::<u64>(),
            at in any::<prop::sample::Index>(), other in prop_oneof!["[0-9]", "[ -~]", "\\PC"],
        ) {
            let text = format.write(id_of(&format, id), now, key_of(&format, key)).unwrap();
            let written = format.read(&text).unwrap();
            let starts: Vec<usize> = text.char_indices().map(|(start, _)| start).collect();
            let start = *at.get(&starts);
            let (before, rest) = text.split_at(start);
            let after = &rest[rest.chars().next().map_or(0, char::len_utf8)..];
            let twice = &rest[..rest.len() - after.len()];
            for changed in [
                format!("{before}{other}{after}"),
                format!("{before}{other}{rest}"),
                format!("{before}{after}"),
                format!("{before}{twice}{rest}"),
                format!("{text}{other}"),
                format!("{other}{text}"),
            ] {
                check_canonical(&sample, &format, &changed)?;
                if changed != text && sample.is_complete && !sample.has_spellings {
                    prop_assert_ne!(format.read(&changed), Ok(written.clone()), "{:?} as {:?}", text, changed);
                }
            }
        }

        /// Every byte by every other that leaves the text one.
        #[test]
        fn every_wrong_byte_is_noticed(
            (sample, format) in formats(), id in any::<u64>(), now in instants(), key in any::<u64>(),
            at in any::<prop::sample::Index>(),
        ) {
            let text = format.write(id_of(&format, id), now, key_of(&format, key)).unwrap();
            let at = at.index(text.len());
            for byte in 0..=u8::MAX {
                let mut bytes = text.clone().into_bytes();
                bytes[at] = byte;
                if let Ok(changed) = String::from_utf8(bytes) {
                    check_canonical(&sample, &format, &changed)?;
                    if let Err(ReadError::Character { at: found }) = format.read(&changed) {
                        prop_assert_eq!(found, at, "{:?} as {:?}", &text, changed);
                    }
                }
            }
        }

        #[test]
        fn any_text_is_read_or_refused((sample, format) in formats(), text in "\\PC{0,60}|[0-9]{1,60}") {
            check_canonical(&sample, &format, &text)?;
        }

        /// Text of the right shape, with any digits: dates and numbers that there are not.
        #[test]
        fn any_digits_are_read_or_refused(
            (sample, format) in formats(), now in instants(), key in any::<u64>(), digits in prop::collection::vec(0..=9_u8, 128),
        ) {
            let text = format.write(1, now, key_of(&format, key)).unwrap();
            let drawn: String = text
                .char_indices()
                .map(|(at, it)| if it.is_ascii_digit() { char::from(b'0' + digits[at % 128]) } else { it })
                .collect();
            check_canonical(&sample, &format, &drawn)?;
        }

        #[test]
        fn templates_and_options_of_any_kind_are_taken_or_refused(
            template in prop_oneof!["\\PC{0,40}", "[{}idyMHmsSgen:0-9]{0,20}", ".{0,140}"],
            numbers in any::<(u8, u8, u8, u8, u8, i16)>(), text in "\\PC{0,30}", now in any::<u64>(), id in any::<u64>(),
        ) {
            let (bits, gene_bits, key_id_bits, key_id, keys, utc_offset_minutes) = numbers;
            let key = FormatKey { id: key_id % 8, ..OLD };
            let options = FormatOptions {
                utc_offset_minutes: utc_offset_minutes % 1_200,
                bits: bits % 70,
                gene_bits: gene_bits % 20,
                key_id_bits: key_id_bits % 10,
                keys: &[key, NEW][..usize::from(keys % 3)],
                ..with(&template)
            };
            if let Ok(format) = Format::new(&options) {
                let _ = format.read(&text);
                let _ = format.original(id);
                if let Ok(text) = format.write(id, now, key_of(&format, id)) {
                    prop_assert_eq!(format.read(&text).map(|it| it.id), Ok(id));
                }
            }
        }

        /// Where all numbers are of one length and not permuted.
        #[test]
        fn the_order_of_texts_is_the_order_of_ids(
            (sample, format) in formats().prop_filter("fixed", |(sample, _)| sample.keys.is_empty() && !sample.template.contains("{id}")),
            ids in any::<(u64, u64)>(), now in instants(), key in any::<u64>(), beside in any::<bool>(),
        ) {
            let first = id_of(&format, ids.0);
            let second = if beside { first % format.id_max() + 1 } else { id_of(&format, ids.1) };
            let write = |id| format.write(id, now, key_of(&format, key)).unwrap();
            prop_assert_eq!(write(first).as_bytes().cmp(write(second).as_bytes()), first.cmp(&second), "{:?}", sample.template);
        }
    }
}
