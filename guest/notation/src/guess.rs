//! Whose id this may be: how a text can be read, and which of the known layouts it would make sense in.
//!
//! An id does not say where it comes from. What speaks for a layout is that the id's time lies between the layout's
//! first ids and now, that what is always the same is so, and that worker and sequence are small numbers, as they
//! mostly are; the less likely all that is for a number taken anywhere, the more it says. It is never a proof.

use alloc::string::String;
use alloc::vec::Vec;

use unalike_core::{Layout, PRESETS, Text, decode};

use crate::{COSID_GENERATOR, CosidText, Role, SCHEMES, Scheme, SchemeError, Ulid};

/// How far in the future an id's time may lie, in milliseconds: clocks differ, and some systems run ahead of theirs.
const AHEAD_MAX_MS: u64 = 86_400_000;

/// How soon after its epoch a layout's ids begin to be believed, in milliseconds: small numbers, those of a counter,
/// have their time there in any layout.
const AFTER_EPOCH_MIN_MS: u64 = 86_400_000;

/// From 1582-10-15, where the time of a UUID begins, to 1970-01-01, in units of 100 ns (RFC 9562, section 5.1).
const GREGORIAN_UNITS: u64 = 0x01B2_1DD2_1381_4000;

/// A layout or scheme that an id may be of.
///
/// ```
/// use unalike_core::Layout;
/// use unalike_notation::{Known, guess, known_layouts};
/// // Those of everybody, and one's own before them.
/// let own = Known::of_layout("ours", Layout::LEAF);
/// let all: Vec<Known<'_>> = [own].into_iter().chain(known_layouts()).collect();
/// // The sample of Leaf's documentation, in 2026.
/// let guesses = guess("1169786042799259000", 1_767_225_600_000, &all);
/// assert_eq!(guesses[0].name, "ours");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its fields.
    pub scheme: Scheme,
    /// No id of it is older, in Unix milliseconds.
    pub since_ms: u64,
    /// How common its ids are where the question is asked, in bits: 1 more is twice as common.
    pub common_bits: u32,
}

impl<'a> Known<'a> {
    /// A layout of the asker's own, whose ids may be as old as its epoch.
    #[must_use]
    pub fn of_layout(name: &'a str, layout: Layout) -> Self {
        Self { name, scheme: layout.into(), since_ms: layout.epoch_ms(), common_bits: OWN_COMMON_BITS }
    }
}

/// Rather the ids of the asker's own layouts than those of a preset, and these rather than those of a scheme.
const OWN_COMMON_BITS: u32 = 8;
const PRESET_COMMON_BITS: u32 = 4;

/// All that is known: the [presets](PRESETS), then the [schemes](SCHEMES).
pub fn known_layouts<'a>() -> impl Iterator<Item = Known<'a>> {
    let presets = PRESETS.iter().map(|preset| Known {
        name: preset.name,
        scheme: preset.layout.into(),
        since_ms: preset.since_ms,
        common_bits: PRESET_COMMON_BITS,
    });
    presets.chain(SCHEMES.iter().map(|foreign| Known {
        name: foreign.name,
        scheme: foreign.scheme,
        since_ms: foreign.scheme.epoch_ms(),
        common_bits: 0,
    }))
}

/// How a text was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// As an id in one of the notations of this crate.
    Id(Text),
    /// As what CosId's `CosIdGenerator` writes.
    Cosid(CosidText),
    /// As a UUID.
    Uuid,
    /// As a ULID: 26 characters of Crockford's base 32 (<https://github.com/ulid/spec>).
    Ulid,
}

/// Whether an id makes sense in a layout, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It does.
    Plausible {
        /// How much speaks for it, in bits: a number taken anywhere fits as well about once in 2^n, and those of
        /// [`Known::common_bits`] are added.
        evidence_bits: u32,
    },
    /// There is no time in it, so that any number fits, or none that says anything.
    Timeless,
    /// Its time lies before the first ids of the layout.
    TooEarly {
        /// From when on there may be some, in Unix milliseconds.
        since_ms: u64,
    },
    /// Its time lies in the future, further than clocks differ.
    TooLate,
    /// It has more bits than the layout.
    TooWide {
        /// How many that has.
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
}

impl Verdict {
    /// Whether the id makes sense in the layout.
    #[must_use]
    pub const fn is_plausible(self) -> bool {
        matches!(self, Self::Plausible { .. })
    }

    /// The greater, the less likely; the plausible ones by what speaks for them.
    fn rank(self) -> (u8, u32) {
        match self {
            Self::Plausible { evidence_bits } => (0, u32::MAX - evidence_bits),
            Self::Timeless => (1, 0),
            Self::TooEarly { .. } => (2, 0),
            Self::TooLate => (3, 0),
            Self::Fixed { .. } => (4, 0),
            Self::TooWide { .. } => (5, 0),
        }
    }
}

/// An id as one layout reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guess<'a> {
    /// The layout's name; for a text of 128 bits, and for CosId's, what it is.
    pub name: &'a str,
    /// How the text was read.
    pub shape: Shape,
    /// The id, where it has 63 bits at most.
    pub id: Option<u64>,
    /// Its time, in Unix milliseconds, where it has one.
    pub unix_ms: Option<u64>,
    /// The names and values of its other fields; none when it cannot be taken apart.
    pub fields: Vec<(&'static str, u128)>,
    /// Whether it makes sense.
    pub verdict: Verdict,
}

/// Whose id a text may be at a time, the likeliest first, and then those that it is not, with the reason. Nothing at
/// all when the text has the shape of no known id.
///
/// A text is recognised by its shape: digits alone are a decimal id (19 of them with zeros in front a padded one), 11
/// characters base 62, 13 base 32 or base 36, 15 and 17 CosId's, 26 a ULID, and 36 or, without hyphens, 32 a UUID.
///
/// ```
/// use unalike_notation::{guess, known_layouts};
///
/// let known: Vec<_> = known_layouts().collect();
/// // The sample of Leaf's documentation, in 2026.
/// let guesses = guess("1169786042799259000", 1_767_225_600_000, &known);
/// let leaf = guesses.iter().find(|guess| guess.name == "leaf").unwrap();
/// assert!(leaf.verdict.is_plausible());
/// assert_eq!(leaf.unix_ms, Some(1_567_733_700_834));
/// assert_eq!(leaf.fields, [("worker", 39), ("sequence", 3448)]);
/// // Its time in CosId's layout is yet to come.
/// assert!(guesses.iter().any(|guess| guess.name == "cosid" && !guess.verdict.is_plausible()));
/// assert_eq!(guess("no id", 1_767_225_600_000, &known), []);
/// ```
#[must_use]
pub fn guess<'a>(text: &str, now_ms: u64, known: &[Known<'a>]) -> Vec<Guess<'a>> {
    let mut guesses = Vec::new();
    let hyphenated = hyphenated(text);
    let text = hyphenated.as_deref().unwrap_or(text);
    let notations = notations(text);
    for &notation in notations {
        if let Ok(id) = decode(text, notation) {
            let shape = Shape::Id(notation);
            guesses.extend(known.iter().map(|known| of_scheme(u128::from(id), shape, known, now_ms)));
        }
    }
    // As one of CosId's, a text of digits alone without a zero in front would be of a time after 2080.
    if notations != [Text::Decimal] {
        guesses.extend(cosid(text, now_ms));
        guesses.extend(uuid(text, now_ms));
        guesses.extend(ulid(text, now_ms));
    }
    // Stable: of those that are equally likely, the one that is named first.
    guesses.sort_by_key(|guess| guess.verdict.rank());
    guesses
}

/// A UUID of 32 hexadecimal digits, which no other id has, with its hyphens.
fn hyphenated(text: &str) -> Option<String> {
    if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut uuid = String::with_capacity(36);
    for (at, digit) in text.char_indices() {
        if matches!(at, 8 | 12 | 16 | 20) {
            uuid.push('-');
        }
        uuid.push(digit);
    }
    Some(uuid)
}

/// The notations of this crate that a text of this shape may be in.
fn notations(text: &str) -> &'static [Text] {
    match text.len() {
        19 if text.starts_with('0') => &[Text::Padded],
        1..=19 if !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit()) => &[Text::Decimal],
        11 => &[Text::Base62],
        13 => &[Text::Base32, Text::Base36],
        36 => &[Text::Uuid],
        _ => &[],
    }
}

fn of_scheme<'a>(id: u128, shape: Shape, known: &Known<'a>, now_ms: u64) -> Guess<'a> {
    let mut guess = Guess {
        name: known.name,
        shape,
        id: u64::try_from(id).ok().filter(|id| *id <= unalike_core::ID_MAX),
        unix_ms: None,
        fields: Vec::new(),
        verdict: Verdict::Timeless,
    };
    let values = match known.scheme.take_apart(id) {
        Ok(values) => values,
        Err(SchemeError::Fixed { name, expected, found }) => {
            return Guess { verdict: Verdict::Fixed { name, expected, found }, ..guess };
        }
        Err(_) => return Guess { verdict: Verdict::TooWide { bits: known.scheme.bits() }, ..guess },
    };
    guess.unix_ms = known.scheme.unix_ms(&values);
    let fields = known.scheme.fields().iter().zip(values);
    guess.fields =
        fields.filter(|(field, _)| field.role != Role::Time).map(|(field, value)| (field.name, value)).collect();
    guess.verdict = match guess.unix_ms {
        None => Verdict::Timeless,
        Some(unix_ms) => judged(unix_ms, known, now_ms, || rarity_bits(&known.scheme, &guess.fields)),
    };
    guess
}

/// What a time says, and `others_bits` about the other fields.
fn judged(unix_ms: u64, known: &Known<'_>, now_ms: u64, others_bits: impl Fn() -> u32) -> Verdict {
    let since_ms = known.since_ms.max(known.scheme.epoch_ms().saturating_add(AFTER_EPOCH_MIN_MS));
    let until_ms = now_ms.saturating_add(AHEAD_MAX_MS);
    if unix_ms < since_ms {
        Verdict::TooEarly { since_ms }
    } else if unix_ms > until_ms {
        Verdict::TooLate
    } else {
        let span_ms = known.scheme.ends_ms().unwrap_or(u64::MAX) - known.scheme.epoch_ms();
        let window_ms = until_ms - since_ms;
        let time_bits = quotient_bits(u128::from(span_ms), u128::from(window_ms));
        let evidence_bits = time_bits.saturating_add(others_bits()).saturating_add(known.common_bits);
        Verdict::Plausible { evidence_bits }
    }
}

/// How seldom fields are as they are, or have smaller numbers, in bits.
fn rarity_bits(scheme: &Scheme, values: &[(&'static str, u128)]) -> u32 {
    let (mut bits, mut worker_bits, mut worker) = (0, 0, 0_u128);
    for (field, (_, value)) in scheme.fields().iter().filter(|field| field.role != Role::Time).zip(values) {
        match field.role {
            Role::Fixed(_) => bits += u32::from(field.bits),
            Role::Sequence => bits += quotient_bits(values_of(field.bits), value.saturating_add(1)),
            // Datacenter and worker are one number.
            Role::Worker => {
                worker_bits += field.bits;
                worker = worker.unbounded_shl(u32::from(field.bits)) | *value;
            }
            Role::Time | Role::Other => {}
        }
    }
    bits + quotient_bits(values_of(worker_bits), worker.saturating_add(1))
}

/// 2^bits, or the most that there is.
fn values_of(bits: u8) -> u128 {
    1_u128.checked_shl(u32::from(bits)).unwrap_or(u128::MAX)
}

/// The whole part of the binary logarithm of `all / some`; 0 when it is less.
fn quotient_bits(all: u128, some: u128) -> u32 {
    all.checked_div(some).and_then(u128::checked_ilog2).unwrap_or(0)
}

/// What CosId's `CosIdGenerator` writes.
fn cosid(text: &str, now_ms: u64) -> Option<Guess<'static>> {
    let notations = [
        ("cosid-radix62", CosidText::Radix62),
        ("cosid-radix36", CosidText::Radix36),
        ("cosid-friendly", CosidText::Friendly),
    ];
    // No text has the length of two of them.
    let (name, notation, id) =
        notations.into_iter().find_map(|(name, notation)| Some((name, notation, notation.read(text)?)))?;
    let known = Known { name, scheme: COSID_GENERATOR, since_ms: 0, common_bits: 0 };
    Some(of_scheme(id, Shape::Cosid(notation), &known, now_ms))
}

/// A UUID of any version.
fn uuid(text: &str, now_ms: u64) -> Option<Guess<'static>> {
    if text.len() != 36 {
        return None;
    }
    let mut bits = 0_u128;
    for (at, byte) in text.bytes().enumerate() {
        if matches!(at, 8 | 13 | 18 | 23) {
            if byte != b'-' {
                return None;
            }
        } else {
            bits = bits << 4 | u128::from(char::from(byte).to_digit(16)?);
        }
    }
    let field = |shift: u32, width: u32| bits >> shift & ((1 << width) - 1);
    let small = |value: u128| u64::try_from(value).unwrap_or(u64::MAX);
    let gregorian_ms = |units: u128| small(units).checked_sub(GREGORIAN_UNITS).map(|units| units / 10_000);
    let version = field(76, 4);
    let node = || [("clock-sequence", field(48, 14)), ("node", field(0, 48))].to_vec();
    let id = decode(text, Text::Uuid).ok();
    let (name, unix_ms, fields) = match (field(62, 2), version) {
        _ if bits == 0 => ("uuid-nil", None, Vec::new()),
        _ if bits == u128::MAX => ("uuid-max", None, Vec::new()),
        // Its four digits stand in reverse order of their worth.
        (0b10, 1) => ("uuid-v1", gregorian_ms(field(64, 12) << 48 | field(80, 16) << 32 | field(96, 32)), node()),
        (0b10, 2) => ("uuid-v2", None, Vec::new()),
        (0b10, 3) => ("uuid-v3", None, Vec::new()),
        (0b10, 4) => ("uuid-v4", None, Vec::new()),
        (0b10, 5) => ("uuid-v5", None, Vec::new()),
        (0b10, 6) => ("uuid-v6", gregorian_ms(field(80, 48) << 12 | field(64, 12)), node()),
        (0b10, 7) => ("uuid-v7", Some(small(field(80, 48))), Vec::new()),
        (0b10, 8) => ("uuid-v8", None, id.map(|id| ("id", u128::from(id))).into_iter().collect()),
        _ => ("uuid-unknown", None, Vec::new()),
    };
    // The shape alone says what it is: there is nothing else that it could be.
    let verdict = wide_verdict(unix_ms, now_ms);
    Some(Guess { name, shape: Shape::Uuid, id, unix_ms, fields, verdict })
}

/// A ULID: 48 bits of Unix milliseconds and 80 of chance.
fn ulid(text: &str, now_ms: u64) -> Option<Guess<'static>> {
    let unix_ms = Some(text.parse::<Ulid>().ok()?.unix_ms());
    let verdict = wide_verdict(unix_ms, now_ms);
    Some(Guess { name: "ulid", shape: Shape::Ulid, id: None, unix_ms, fields: Vec::new(), verdict })
}

/// The time of a text of 128 bits only says whether it makes sense: what it is, its shape says.
fn wide_verdict(unix_ms: Option<u64>, now_ms: u64) -> Verdict {
    match unix_ms {
        Some(unix_ms) if unix_ms > now_ms.saturating_add(AHEAD_MAX_MS) => Verdict::TooLate,
        Some(unix_ms) if unix_ms < AFTER_EPOCH_MIN_MS => Verdict::TooEarly { since_ms: AFTER_EPOCH_MIN_MS },
        _ => Verdict::Plausible { evidence_bits: 0 },
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use proptest::prelude::*;
    use unalike_core::{Parts, encode, instant};

    use super::*;

    /// 2026-11-22
    const NOW_MS: u64 = 1_795_305_600_000;

    fn guesses(text: &str) -> Vec<Guess<'static>> {
        guess(text, NOW_MS, &known_layouts().collect::<Vec<_>>())
    }

    #[track_caller]
    fn guess_of(text: &str, name: &str) -> Guess<'static> {
        guesses(text).into_iter().find(|guess| guess.name == name).unwrap()
    }

    fn plausible(text: &str) -> Vec<&'static str> {
        guesses(text).into_iter().filter(|guess| guess.verdict.is_plausible()).map(|guess| guess.name).collect()
    }

    /// The sample of Leaf's documentation, with each verdict that there is.
    #[test]
    fn leafs_sample_fits_where_it_could_be_from() {
        let text = "1169786042799259000";
        assert_eq!(plausible(text)[..3], ["twitter", "leaf", "hutool"]);
        assert!(plausible(text).contains(&"discord"), "its time would be 2023-11-03");
        let leaf = guess_of(text, "leaf");
        assert_eq!((leaf.id, leaf.unix_ms), (Some(1_169_786_042_799_259_000), Some(1_567_733_700_834)));
        assert_eq!(leaf.fields, [("worker", 39), ("sequence", 3_448)]);
        assert_eq!(guess_of(text, "twitter").fields, [("datacenter", 1), ("worker", 7), ("sequence", 3_448)]);
        assert_eq!(guess_of(text, "wuid").verdict, Verdict::Timeless);
        let redis = guess_of(text, "redis-sharded");
        assert_eq!(redis.verdict, Verdict::TooEarly { since_ms: 1_325_376_000_000 });
        assert_eq!(redis.unix_ms, Some(278_898_726_177));
        assert_eq!(guess_of(text, "cosid").verdict, Verdict::TooLate, "2028-10-25");
        assert_eq!(guess_of(text, "cosid-53").verdict, Verdict::TooWide { bits: 53 });
        let other = Verdict::Fixed { name: "type", expected: 1, found: 0 };
        assert_eq!(guess_of(text, "vesta-min-granularity").verdict, other);
        assert_eq!(guess_of(text, "cosid-53").fields, []);
    }

    #[test]
    fn those_that_fit_come_first_and_the_least_accidental_before_others() {
        let verdicts: Vec<_> = guesses("1169786042799259000").iter().map(|guess| guess.verdict).collect();
        assert!(verdicts.is_sorted_by_key(|verdict| verdict.rank()));
        assert_eq!(verdicts.len(), PRESETS.len() + SCHEMES.len());
        // The id of a Sonyflake machine, whose low bits are no counter's.
        let id = ((NOW_MS - 86_400_000 - Layout::SONYFLAKE.epoch_ms()) / 10) << 24 | 0x0A17;
        assert_eq!(plausible(&id.to_string())[0], "sonyflake");
        // Worker 1000 of Seata, which others read as a time to come.
        let id = 1_000 << 53 | (NOW_MS - 1_588_435_200_000) << 12 | 77;
        assert!(plausible(&id.to_string())[..2].contains(&"seata"), "{:?}", plausible(&id.to_string()));
        // 12 of 70 years, worker 1 of 1024, sequence 0 of 4096.
        let id = Layout::DISCORD.pack(Parts { ticks: 374_000_000_000, worker: 1, sequence: 0 }).unwrap();
        assert_eq!(guess_of(&id.to_string(), "discord").verdict, Verdict::Plausible { evidence_bits: 4 + 2 + 9 + 12 });
    }

    #[test]
    fn a_counters_number_is_no_id_with_a_time() {
        for number in [1_u64, 1_000, 4_096, 1_000_000_007, 90_000_000_000] {
            assert_eq!(plausible(&number.to_string()), Vec::<&str>::new(), "{number}");
            let twitter = guess_of(&number.to_string(), "twitter");
            assert_eq!(twitter.verdict, Verdict::TooEarly { since_ms: 1_288_834_974_657 + 86_400_000 });
        }
    }

    #[test]
    fn the_bounds_of_time_are_exact() {
        let known = [Known { since_ms: 2_000_000_000_000, ..Known::of_layout("ours", Layout::COSID) }];
        let at = |unix_ms: u64, now_ms| {
            let ticks = Layout::COSID.tick_at(unix_ms).unwrap();
            let id = Layout::COSID.pack(Parts { ticks, worker: 0, sequence: 0 }).unwrap();
            guess(&id.to_string(), now_ms, &known)[0].verdict
        };
        let now_ms = 2_100_000_000_000;
        assert!(at(2_000_000_000_000, now_ms).is_plausible());
        assert_eq!(at(1_999_999_999_999, now_ms), Verdict::TooEarly { since_ms: 2_000_000_000_000 });
        assert!(at(now_ms + 86_400_000, now_ms).is_plausible());
        assert_eq!(at(now_ms + 86_400_001, now_ms), Verdict::TooLate);
        // Seen from before the first of its ids.
        assert_eq!(at(2_000_000_000_000, 1_000_000_000_000), Verdict::TooLate);
        assert_eq!(at(1_600_000_000_000, 0), Verdict::TooEarly { since_ms: 2_000_000_000_000 });
        assert!(at(2_000_000_000_000, u64::MAX).is_plausible());
    }

    #[test]
    fn texts_are_recognised_by_their_shape() {
        let id = 1_169_786_042_799_259_000;
        for notation in [Text::Decimal, Text::Padded, Text::Base36, Text::Base62, Text::Base32, Text::Uuid] {
            let text = encode(id, notation).unwrap();
            let leaf = guesses(&text).into_iter().find(|guess| guess.name == "leaf" && guess.id == Some(id)).unwrap();
            // Nineteen digits that do not begin with zero are no padded text.
            let shape = if notation == Text::Padded { Text::Decimal } else { notation };
            assert_eq!(leaf.shape, Shape::Id(shape), "{}", &*text);
        }
        // Small ids, whose texts are digits alone.
        for notation in [Text::Padded, Text::Base62, Text::Base32, Text::Uuid] {
            let text = encode(42, notation).unwrap();
            let read = guesses(&text);
            let found = read.iter().any(|guess| guess.shape == Shape::Id(notation) && guess.id == Some(42));
            assert!(found, "{}", &*text);
        }
        for text in ["", "0", "007", "x", "-1", "1.5", "9223372036854775808", "99999999999999999999", "no id", "é"] {
            assert_eq!(guesses(text), [], "{text}");
        }
        assert!(plausible("01226N0640J7Q").contains(&"tsid"));
    }

    #[test]
    fn cosids_texts_are_recognised() {
        for (text, name, shape) in [
            ("0U5fyaBm000g007", "cosid-radix62", CosidText::Radix62),
            ("0LT76B9IY00160007", "cosid-radix36", CosidText::Radix36),
            ("20240229120000250-0000042-00007", "cosid-friendly", CosidText::Friendly),
            ("20240229120000250-42-7", "cosid-friendly", CosidText::Friendly),
        ] {
            let guess = guess_of(text, name);
            assert!(guess.verdict.is_plausible(), "{text}");
            assert_eq!((guess.shape, guess.id, guess.unix_ms), (Shape::Cosid(shape), None, Some(1_709_208_000_250)));
            assert_eq!(guess.fields, [("machine", 42), ("sequence", 7)]);
        }
        // As long as one of them, and a number.
        assert!(guesses("111111111111111").iter().all(|guess| guess.shape == Shape::Id(Text::Decimal)));
    }

    /// The samples of RFC 9562, appendix A, but for version 2, and the two of its section 5.9 and 5.10.
    #[test]
    fn uuids_tell_version_and_time() {
        let at_ms = instant("2022-02-22T14:22:22-05:00").unwrap();
        for (text, name, unix_ms) in [
            ("C232AB00-9414-11EC-B3C8-9F6BDECED846", "uuid-v1", Some(at_ms)),
            ("000003e8-cbb9-21ea-b201-00045a86c8a1", "uuid-v2", None),
            ("5df41881-3aed-3515-88a7-2f4a814cf09e", "uuid-v3", None),
            ("919108f7-52d1-4320-9bac-f847db4148a8", "uuid-v4", None),
            ("2ed6657d-e927-568b-95e1-2665a8aea6a2", "uuid-v5", None),
            ("1EC9414C-232A-6B00-B3C8-9F6BDECED846", "uuid-v6", Some(at_ms)),
            ("017F22E2-79B0-7CC3-98C4-DC0C0C07398F", "uuid-v7", Some(at_ms)),
            ("2489E9AD-2EE2-8E00-8EC9-32D5F69181C0", "uuid-v8", None),
            ("00000000-0000-0000-0000-000000000000", "uuid-nil", None),
            ("FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", "uuid-max", None),
            ("919108f7-52d1-4320-1bac-f847db4148a8", "uuid-unknown", None),
            ("919108f7-52d1-9320-9bac-f847db4148a8", "uuid-unknown", None),
        ] {
            let [guess] = &guesses(text)[..] else { panic!("{text}") };
            assert_eq!(
                (guess.name, guess.shape, guess.unix_ms, guess.id),
                (name, Shape::Uuid, unix_ms, None),
                "{text}"
            );
            assert!(guess.verdict.is_plausible(), "{text}");
        }
        let v1 = guess_of("C232AB00-9414-11EC-B3C8-9F6BDECED846", "uuid-v1");
        assert_eq!(v1.fields, [("clock-sequence", 0x33C8), ("node", 0x9F6B_DECE_D846)]);
        assert_eq!(guess_of("f17f22e2-79b0-7cc3-98c4-dc0c0c07398f", "uuid-v7").verdict, Verdict::TooLate);
        let own = guess_of(&encode(42, Text::Uuid).unwrap(), "uuid-v8");
        assert_eq!((own.id, &own.fields[..], own.verdict.is_plausible()), (Some(42), &[("id", 42)][..], true));
        for text in [
            "919108f7-52d1-4320-9bac-f847db4148ag",
            "919108f7+52d1-4320-9bac-f847db4148a8",
            "919108f7-52d14-320-9bac-f847db4148a8",
            "919108f7-52d143209bacf847db4148a8",
            "919108f752d143209bacf847db4148ag",
            "919108f752d143209bacf847db4148a8a",
            "919108f752d143209bacf847db4148é",
        ] {
            assert_eq!(guesses(text), [], "{text}");
        }
        for uuid in ["017F22E2-79B0-7CC3-98C4-DC0C0C07398F", encode(42, Text::Uuid).unwrap().as_str()] {
            let without_hyphens = guesses(&uuid.replace('-', ""));
            assert!(!without_hyphens.is_empty(), "{uuid}");
            assert_eq!(without_hyphens, guesses(uuid), "{uuid}");
        }
    }

    /// The sample of the ULID specification.
    #[test]
    fn ulids_tell_their_time() {
        let guess = guess_of("01ARZ3NDEKTSV4RRFFQ69G5FAV", "ulid");
        assert_eq!((guess.shape, guess.unix_ms), (Shape::Ulid, Some(1_469_922_850_259)));
        assert_eq!(guess_of("01arz3ndektsv4rrffq69g5fav", "ulid").unix_ms, guess.unix_ms);
        assert_eq!(guess_of("01ARZ3NDEK0000000000000000", "ulid").unix_ms, guess.unix_ms);
        assert_eq!(guess_of("7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "ulid").verdict, Verdict::TooLate);
        assert!(!guess_of("00000000000000000000000000", "ulid").verdict.is_plausible());
        for text in [
            "8ZZZZZZZZZZZZZZZZZZZZZZZZZ",
            "01ARZ3NDEKTSV4RRFFQ69G5FAU",
            "01ARZ3NDEKTSV4RRFFQ69G5FA",
            "01ARZ3NDEKTSV4RRFFQ69G5Fé",
        ] {
            assert_eq!(guesses(text), [], "{text}");
        }
    }

    #[test]
    fn each_layout_finds_its_own_ids_plausible() {
        for preset in PRESETS {
            for unix_ms in
                [preset.since_ms.max(preset.layout.epoch_ms() + 86_400_000), NOW_MS.min(preset.layout.ends_ms() - 1)]
            {
                let ticks = preset.layout.first_tick_from(unix_ms).min(preset.layout.max_tick());
                let (worker, sequence) = (preset.layout.worker_max(), preset.layout.sequence_max());
                let id = preset.layout.pack(Parts { ticks, worker, sequence }).unwrap();
                assert!(plausible(&id.to_string()).contains(&preset.name), "{} at {unix_ms}", preset.name);
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_told_is_what_the_layout_says(which in 0..PRESETS.len(), id in 1..=unalike_core::ID_MAX) {
            let preset = &PRESETS[which];
            let id = (id & preset.layout.id_max()).max(1);
            let guess = guess_of(&id.to_string(), preset.name);
            let parts = preset.layout.unpack(id).unwrap();
            prop_assert_eq!(guess.unix_ms, Some(preset.layout.tick_start_ms(parts.ticks)));
            let sequence = guess.fields.iter().find(|(name, _)| *name == "sequence").unwrap().1;
            prop_assert_eq!(sequence, u128::from(parts.sequence));
        }

        #[test]
        fn nothing_makes_it_panic(text in "\\PC{0,40}|[0-9A-Za-z-]{11,36}|[0-9]{1,20}", now_ms in any::<u64>()) {
            let known: Vec<_> = known_layouts().collect();
            let _ = guess(&text, now_ms, &known);
        }
    }
}
