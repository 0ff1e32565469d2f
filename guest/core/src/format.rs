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
use crate::{
    FormatError, Gene, ID_MAX, Permutation, ReadError, TemplateFault, Text, TextError, WriteError, decode, encode,
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
    /// and any of `{yyyy}`, `{yy}`, `{MM}`, `{dd}`, `{HH}`, `{mm}`, `{ss}`, `{SSS}` (milliseconds), the date of issue, several
    /// in one as in `{yyyyMMdd}` and with `- _ . : /` and spaces between; and `{gene:4}`, the low 4 bits (1 to 16) of the
    /// shard key in decimal, always as long as the greatest (`00` to `15`). `{{` and `}}` are braces.
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
        if gene.is_some() && gene_in_text.is_some() {
            return Err(FormatError::Template { at: 0, fault: TemplateFault::Twice });
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
            gene_in_text,
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

    /// The period in which an instant lies, `2026-11-22`, `2026-11` or `2026`: what its numbers are counted under, beside
    /// the tag. `None` where the counter never starts again.
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

    /// The number that is shown for an id, in any notation: 1 to 2^`bits` - 1.
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

    /// What a text says.
    ///
    /// # Errors
    /// [`ReadError`] when the format writes no such text.
    pub fn read(&self, text: &str) -> Result<Issued, ReadError> {
        // All parts but a number of any length have one width each, which leaves the rest to it.
        let fixed: usize = self.parts.iter().map(|part| self.width(*part)).sum();
        let is_fixed = !self.parts.contains(&Part::Digits { width: 0 });
        let rest = text.len().wrapping_sub(fixed);
        if if is_fixed { rest != 0 } else { !(1..=19).contains(&rest) } {
            return Err(ReadError::Length { len: text.len() });
        }
        let mut at = 0;
        let mut date = Date { month: 1, day: 1, ..Date::default() };
        let mut dated: Vec<Field> = Vec::new();
        let (mut number, mut number_at, mut gene_in_text) = (0, 0, None);
        for part in &self.parts {
            let end = at + if *part == (Part::Digits { width: 0 }) { rest } else { self.width(*part) };
            let piece = text.get(at..end).ok_or(ReadError::Character { at })?;
            match *part {
                Part::Literal { start, .. } => {
                    let wanted = self.template.as_bytes().iter().skip(start);
                    if let Some(offset) = piece.bytes().zip(wanted).position(|(found, wanted)| found != *wanted) {
                        return Err(ReadError::Character { at: at + offset });
                    }
                }
                Part::Date(field) => {
                    let figure = u32::try_from(digits(piece, at)?).unwrap_or(u32::MAX);
                    let before = date;
                    // Two digits of a year say nothing new beside four.
                    if field != Field::YearOfCentury || !dated.contains(&Field::Year) {
                        field.set(&mut date, figure);
                    }
                    // What was said before must still be so, and what is said now too.
                    if field.of(&date) != figure || dated.iter().any(|known| known.of(&before) != known.of(&date)) {
                        return Err(ReadError::Date { at });
                    }
                    dated.push(field);
                }
                Part::Digits { width: 0 } | Part::Number(_) => {
                    let notation = if let Part::Number(notation) = *part { notation } else { Text::Decimal };
                    number = decode(piece, notation).map_err(|error| match error {
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
    fn span(&self, date: &Date, known: &[Field]) -> Result<Option<core::ops::Range<u64>>, ReadError> {
        let wrong = ReadError::Date { at: 0 };
        let is_possible = (1..=12).contains(&date.month)
            && (1..=31).contains(&date.day)
            && date.hour < 24
            && date.minute < 60
            && date.second < 60;
        if !is_possible {
            return Err(wrong);
        }
        if !known.contains(&Field::Year) && !known.contains(&Field::YearOfCentury) {
            return Ok(None);
        }
        // The date with only the figures that follow, and how long the last of them lasts.
        let mut first = Date { year: date.year, month: 1, day: 1, ..Date::default() };
        let mut last = Field::Year;
        for field in [Field::Month, Field::Day, Field::Hour, Field::Minute, Field::Second, Field::Millisecond] {
            if !known.contains(&field) {
                break;
            }
            field.set(&mut first, field.of(date));
            last = field;
        }
        let from = first.unix_ms(self.utc_offset_minutes).ok_or(wrong)?;
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
                let end_ms =
                    253_402_300_800_000_u64.saturating_add_signed(-i64::from(self.utc_offset_minutes) * 60_000);
                next.unix_ms(self.utc_offset_minutes).unwrap_or(end_ms) - from
            }
        };
        Ok(Some(from..from + length_ms))
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

/// The parts of a template, and the gene among them.
fn parse(template: &[u8]) -> Result<(Vec<Part>, Option<Gene>), FormatError> {
    let fault = |at, fault| Err(FormatError::Template { at, fault });
    if template.len() > TEMPLATE_LEN_MAX {
        return fault(TEMPLATE_LEN_MAX, TemplateFault::TooLong);
    }
    let (mut parts, mut gene, mut has_id) = (Vec::new(), None, false);
    let (mut at, mut literal) = (0, 0);
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
                    gene = bits.and_then(Gene::new);
                    if gene.is_none() {
                        return fault(at, TemplateFault::Placeholder);
                    }
                    parts.push(Part::Gene);
                } else if !date_parts(&mut parts, template, at + 1, at + 1 + len) {
                    return fault(at, TemplateFault::Placeholder);
                }
                at += len + 2;
                literal = at;
            }
            b'}' => return fault(at, TemplateFault::Brace),
            0..0x20 | 0x7F => return fault(at, TemplateFault::Character),
            _ => at += 1,
        }
    }
    flush(&mut parts, literal, at);
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

/// A number of one or two digits.
fn small_number(text: &[u8]) -> Option<u8> {
    if !(1..=2).contains(&text.len()) || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(text.iter().fold(0, |number, digit| number * 10 + (digit - b'0')))
}

/// The number of at most 19 digits.
fn digits(piece: &str, at: usize) -> Result<u64, ReadError> {
    let mut number = 0_u64;
    for (offset, byte) in piece.bytes().enumerate() {
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

/// A number of this many ones, 1 to 63.
const fn ones(bits: u8) -> u64 {
    ID_MAX >> (63 - bits)
}
