//! Snowflake layouts by name, of the configuration and written out: their figures, the parts of an id, whose id it may
//! be, and the ids of a span of time.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use unalike::{
    COSID_GENERATOR, Clock, CosidText, Guess, ID_MAX, InstantError, Known, Layout, LayoutError, LayoutTextError,
    PRESETS, Role, SCHEMES, Scheme, SchemeError, Shape, SystemClock, Text, Verdict, guess, instant, known_layouts,
    preset, scheme,
};

use crate::words::{decimal, likeliest, rfc3339, shortened};

/// The layout that is meant when none is named, and that of the snowflake `default`.
pub(crate) const LAYOUT_DEFAULT: &str = "twitter";

/// Ids that end within this time, in milliseconds, should not be begun: ten years.
const ENDS_SOON_MS: u64 = 3_653 * 86_400_000;

/// The least number that a double does not tell from the next, less 1: the greatest that JavaScript has exactly.
const JAVASCRIPT_MAX: u64 = (1 << 53) - 1;

/// Why an id was not taken apart, or a layout not found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    /// No layout has this name.
    #[error(
        "the layout {name:?} is unknown: {meant}the layouts are {known}, idleaf-gene:SHARDS, tidb-auto-random:S,R, and any \
         that is written out, such as \"41/10/12 epoch 2024-01-01\""
    )]
    LayoutUnknown {
        /// The name.
        name: String,
        /// The question whether another was meant, if one is alike.
        meant: String,
        /// Those that there are.
        known: String,
    },
    /// A layout that is written out, and cannot be.
    #[error("the layout {text:?} cannot be read: {error}")]
    LayoutInvalid {
        /// What was given, shortened if it is too long.
        text: String,
        /// Which part is wrong.
        error: LayoutTextError,
    },
    /// An epoch that looks like a year, and would be milliseconds.
    #[error(
        "the layout {text:?} has the epoch {epoch_ms}, which is {epoch_ms} ms after 1970: write {epoch_ms:04}-01-01T00:00:00Z for \
         the year, 0 for 1970, or {instant} for this instant",
        instant = rfc3339(*.epoch_ms)
    )]
    EpochYear {
        /// What was given, shortened if it is too long.
        text: String,
        /// The number.
        epoch_ms: u64,
    },
    /// No generator makes such ids.
    #[error("the layout {name:?} is for reading only: its fields are not those of a snowflake of this program")]
    ForReading {
        /// The layout's name.
        name: String,
    },
    /// Not a whole number in decimal.
    #[error("the id {text:?} is not a whole number from 1 to {ID_MAX}")]
    NotAnId {
        /// What was given, shortened if it is too long.
        text: String,
    },
    /// Without a layout: in none of the notations.
    #[error(
        "the id {text:?} is not a whole number from 1 to {ID_MAX}, nor has it the shape of another id: 11 characters of \
         base 62, 13 of base 32 or base 36, 15 or 17 of CosId's, 19 digits, a ULID or a UUID; to read what a template shows, \
         name its tag or snowflake"
    )]
    NoShape {
        /// What was given, shortened if it is too long.
        text: String,
    },
    /// The layout has no such id.
    #[error("the id {id} is outside 1 to {max}, the ids of the layout {layout}")]
    OutOfRange {
        /// The id.
        id: u64,
        /// The layout's name.
        layout: String,
        /// The greatest id of the layout.
        max: u64,
    },
    /// The other system makes no such id.
    #[error("the id {id} is not of the layout {layout}: {error}")]
    NotOfScheme {
        /// The id.
        id: u64,
        /// The layout's name.
        layout: String,
        /// Why it is none.
        error: SchemeError,
    },
}

/// Why there are no ids of a span of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RangeError {
    /// There is no such layout.
    #[error(transparent)]
    Layout(#[from] DecodeError),
    /// A bound that is not a time.
    #[error("{bound} is {text:?}: {error}")]
    Bound {
        /// `from` or `to`.
        bound: &'static str,
        /// What was given, shortened if it is too long.
        text: String,
        /// What is wrong with it.
        error: InstantError,
    },
    /// Ids of neighbouring times are not neighbours.
    #[error("the ids of {name} are not in the order of their times: {reason}")]
    Unsorted {
        /// The layout's name.
        name: String,
        /// Why not.
        reason: String,
    },
    /// An empty span, or one before or after all ids.
    #[error("no ids of {name}: {reason}")]
    Span {
        /// The layout's name.
        name: String,
        /// Why not.
        reason: String,
    },
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// Its name, or its text where it is written out.
    pub(crate) name: String,
    pub(crate) what: What,
    /// What its system calls datacenter, worker and sequence, where `what` is a layout: see [`unalike::Preset`].
    pub(crate) field_names: [&'static str; 3],
    /// Where it comes from.
    pub(crate) source: String,
}

/// A layout, or fields that no layout describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Layout(Layout),
    Scheme(Box<Scheme>),
}

/// All layouts: those that are known by name, those of the configuration, and any that is written out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layouts {
    own: BTreeMap<String, Layout>,
}

impl Layouts {
    /// With those of the configuration.
    ///
    /// # Errors
    /// When a name is taken, or no name, or the layout cannot be read.
    pub(crate) fn new(configured: &BTreeMap<String, String>) -> anyhow::Result<Self> {
        let mut own = BTreeMap::new();
        for (name, text) in configured {
            let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            anyhow::ensure!(
                (1..=64).contains(&name.len()) && name.bytes().all(letter),
                "the configuration's layout {name:?} has no valid name: 1 to 64 lower-case letters, digits and hyphens"
            );
            anyhow::ensure!(
                preset(name).is_none() && scheme(name).is_none(),
                "the configuration's layout {name:?} has the name of a layout that there is already: choose another"
            );
            let layout =
                written_out(text).map_err(|error| anyhow::anyhow!("the configuration's layout {name:?}: {error}"))?;
            own.insert(name.clone(), layout);
        }
        Ok(Self { own })
    }

    /// What a name, or a layout that is written out, stands for.
    pub(crate) fn find(&self, text: &str) -> Result<Named, DecodeError> {
        let named = |name: &str, what, source: &str| Named {
            name: name.to_owned(),
            what,
            field_names: preset(name).map(|preset| preset.field_names).unwrap_or_default(),
            source: source.to_owned(),
        };
        if let Some(layout) = self.own.get(text) {
            return Ok(named(text, What::Layout(*layout), OF_CONFIGURATION));
        }
        if let Some(preset) = preset(text) {
            return Ok(named(preset.name, What::Layout(preset.layout), preset.source));
        }
        if let Some(foreign) = scheme(text) {
            return Ok(named(text, What::Scheme(Box::new(foreign.scheme)), foreign.source));
        }
        // No name has one of these, and no layout that is written out has none.
        if !text.contains(['/', ' ']) {
            let names = self.own.keys().map(String::as_str).chain(PRESETS.iter().map(|preset| preset.name));
            let known: Vec<_> = names.chain(SCHEMES.iter().map(|foreign| foreign.name)).collect();
            let meant = likeliest(text, &known).map_or_else(String::new, |meant| format!("did you mean {meant}? "));
            return Err(DecodeError::LayoutUnknown { name: shortened(text), meant, known: known.join(", ") });
        }
        let layout = written_out(text)?;
        Ok(named(&layout.to_string(), What::Layout(layout), "written out"))
    }

    /// The layout of this name or text, for a generator.
    pub(crate) fn layout(&self, text: &str) -> Result<Layout, DecodeError> {
        match self.find(text)? {
            Named { what: What::Layout(layout), .. } => Ok(layout),
            Named { name, what: What::Scheme(_), .. } => Err(DecodeError::ForReading { name }),
        }
    }

    /// Takes an id apart, which is of this layout.
    pub(crate) fn decode(&self, id: &str, layout: &str) -> Result<Decoded, DecodeError> {
        let named = self.find(layout)?;
        let number = decimal_id(id)?;
        let name = named.name.clone();
        let scheme = named.scheme();
        let values = scheme.take_apart(u128::from(number)).map_err(|error| match named.what {
            What::Layout(layout) => DecodeError::OutOfRange { id: number, layout: name.clone(), max: layout.id_max() },
            What::Scheme(_) => DecodeError::NotOfScheme { id: number, layout: name.clone(), error },
        })?;
        let unix_ms = scheme.unix_ms(&values);
        let fields = scheme.fields().iter().zip(values).filter(|(field, _)| field.role != Role::Time);
        Ok(Decoded {
            id: number.to_string(),
            layout: name,
            time: unix_ms.map(rfc3339),
            unix_ms,
            fields: Fields::new(Some(&named), fields.map(|(field, value)| (field.name, value))),
        })
    }

    /// Whose id it may be: the plausible layouts, the likeliest first, and after them the others if `all` are wanted.
    pub(crate) fn candidates(&self, id: &str, all: bool) -> Result<Candidates, DecodeError> {
        let now_ms = SystemClock.now_ms();
        let own = self.own.iter().map(|(name, layout)| Known::of_layout(name, *layout));
        let known: Vec<Known<'_>> = own.chain(known_layouts()).collect();
        let guesses = guess(id, now_ms, &known);
        if guesses.is_empty() {
            return Err(DecodeError::NoShape { text: shortened(id) });
        }
        let wanted = guesses.iter().filter(|guess| all || makes_sense(guess));
        let in_use = |guess: &Guess<'_>| {
            let known = known.iter().find(|known| matches!(guess.shape, Shape::Id(_)) && known.name == guess.name)?;
            Some(InUse::of(known.since_ms, known.scheme.ends_ms()?, now_ms))
        };
        let candidates = wanted.map(|guess| self.candidate(guess, in_use(guess).unwrap_or_default())).collect();
        Ok(Candidates { id: id.to_owned(), candidates })
    }

    /// The ids from one time to another, which is not part of the span.
    pub(crate) fn range(&self, layout: &str, from: &str, to: &str) -> Result<IdRange, RangeError> {
        let Named { name, what, .. } = self.find(layout)?;
        let layout = match what {
            What::Layout(layout) => layout,
            What::Scheme(scheme) => return Err(RangeError::Unsorted { name, reason: unsorted(&scheme) }),
        };
        let bound = |bound, text: &str| {
            instant(text).map_err(|error| RangeError::Bound { bound, text: shortened(text), error })
        };
        let (from_ms, to_ms) = (bound("from", from)?, bound("to", to)?);
        let ids = layout.id_range(from_ms, to_ms).map_err(|error| {
            let reason = match error {
                LayoutError::SpanOutside => {
                    let (begins_ms, ends_ms) = (layout.epoch_ms(), layout.ends_ms());
                    format!("its ids are of the time from {} to {}", rfc3339(begins_ms), rfc3339(ends_ms))
                }
                error => error.to_string(),
            };
            RangeError::Span { name: name.clone(), reason }
        })?;
        Ok(IdRange {
            layout: name,
            from: rfc3339(from_ms),
            to: rfc3339(to_ms),
            first: ids.start().to_string(),
            last: ids.end().to_string(),
        })
    }

    /// The figures of all layouts as of now: those of the configuration, then the others, and last those for reading
    /// only.
    pub(crate) fn all(&self) -> Vec<LayoutFigures> {
        let now_ms = SystemClock.now_ms();
        let names = self.own.keys().map(String::as_str).chain(PRESETS.iter().map(|preset| preset.name));
        let names = names.chain(SCHEMES.iter().map(|foreign| foreign.name));
        names.filter_map(|name| self.find(name).ok()).map(|named| figures(&named, now_ms)).collect()
    }

    fn candidate(&self, guess: &Guess<'_>, in_use: InUse) -> Candidate {
        let named = match guess.shape {
            Shape::Id(_) => self.find(guess.name).ok(),
            Shape::Cosid(_) => Some(Named::of_scheme(guess.name, COSID_GENERATOR, "CosId's CosIdGenerator")),
            Shape::Uuid | Shape::Ulid => None,
        };
        Candidate {
            layout: guess.name.to_owned(),
            read_as: match guess.shape {
                Shape::Id(Text::Decimal) => "decimal",
                Shape::Id(Text::Padded) => "padded",
                Shape::Id(Text::Base36) => "base36",
                Shape::Id(Text::Base62) => "base62",
                Shape::Id(Text::Base32) => "base32",
                Shape::Id(Text::Uuid) | Shape::Uuid => "uuid",
                Shape::Cosid(CosidText::Radix62) => "cosid-radix62",
                Shape::Cosid(CosidText::Radix36) => "cosid-radix36",
                Shape::Cosid(CosidText::Friendly) => "cosid-friendly",
                Shape::Ulid => "ulid",
            },
            number: guess.id.map(|id| id.to_string()),
            plausible: makes_sense(guess),
            why: why(guess),
            in_use,
            time: guess.unix_ms.map(rfc3339),
            unix_ms: guess.unix_ms,
            fields: Fields::new(named.as_ref(), guess.fields.iter().copied()),
        }
    }
}

impl Named {
    fn of_scheme(name: &str, scheme: Scheme, source: &str) -> Self {
        let (name, source) = (name.to_owned(), source.to_owned());
        Self { name, what: What::Scheme(Box::new(scheme)), field_names: Default::default(), source }
    }

    /// Its fields.
    pub(crate) fn scheme(&self) -> Scheme {
        match &self.what {
            What::Layout(layout) => Scheme::from(*layout),
            What::Scheme(scheme) => **scheme,
        }
    }

    /// What a field is called here, and what by its own system if that is known.
    fn names_of(&self, field: &'static str) -> (&'static str, Option<&'static str>) {
        match &self.what {
            What::Layout(_) => {
                let [datacenter, worker, sequence] = self.field_names;
                let own = match field {
                    "datacenter" => datacenter,
                    "worker" => worker,
                    "sequence" => sequence,
                    _ => "",
                };
                (field, Some(own).filter(|own| !own.is_empty()))
            }
            What::Scheme(scheme) => {
                let role = scheme.fields().iter().find(|of_scheme| of_scheme.name == field).map(|field| field.role);
                match role {
                    Some(Role::Worker) => ("worker", Some(field)),
                    Some(Role::Sequence) => ("sequence", Some(field)),
                    _ => (field, Some(field)),
                }
            }
        }
    }
}

/// The layout that people write out. What programs write has an epoch like `2024` for what it is.
fn written_out(text: &str) -> Result<Layout, DecodeError> {
    let shown = || text.chars().take(80).collect();
    let layout: Layout = text.parse().map_err(|error| DecodeError::LayoutInvalid { text: shown(), error })?;
    let epoch = text.split_ascii_whitespace().skip_while(|word| *word != "epoch").nth(1);
    match epoch.and_then(decimal) {
        Some(epoch_ms @ 1..=9_999) => Err(DecodeError::EpochYear { text: shown(), epoch_ms }),
        _ => Ok(layout),
    }
}

const OF_CONFIGURATION: &str = "the configuration of this program";

/// The id that a text is in decimal.
///
/// # Errors
/// [`DecodeError::NotAnId`].
pub(crate) fn decimal_id(id: &str) -> Result<u64, DecodeError> {
    let not_an_id = || DecodeError::NotAnId { text: shortened(id) };
    if !id.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(not_an_id());
    }
    id.parse().ok().filter(|number| (1..=ID_MAX).contains(number)).ok_or_else(not_an_id)
}

/// An id taken apart: one shape for every layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Decoded {
    /// The id, in decimal.
    pub(crate) id: String,
    /// The layout's name.
    pub(crate) layout: String,
    /// When the id's tick began, RFC 3339, in UTC, if there is a time in it.
    pub(crate) time: Option<String>,
    /// The same in Unix milliseconds.
    pub(crate) unix_ms: Option<u64>,
    /// The other fields.
    #[serde(flatten)]
    pub(crate) fields: Fields,
}

/// The fields of an id beside its time, from the highest bits to the lowest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Fields {
    /// Each by its name here: `datacenter`, `worker` and `sequence` are these in every layout.
    #[serde(rename = "fields", serialize_with = "in_order")]
    pub(crate) values: Vec<(&'static str, FieldValue)>,
    /// What the system that the layout comes from calls these fields, where that is known.
    #[serde(serialize_with = "in_order")]
    pub(crate) source_names: Vec<(&'static str, &'static str)>,
}

/// A number in JSON where JavaScript has it exactly, and else its digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FieldValue(pub(crate) u128);

impl Serialize for FieldValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match u64::try_from(self.0) {
            Ok(value) if value <= JAVASCRIPT_MAX => serializer.serialize_u64(value),
            _ => serializer.collect_str(&self.0),
        }
    }
}

impl Fields {
    fn new(named: Option<&Named>, values: impl Iterator<Item = (&'static str, u128)>) -> Self {
        let mut fields = Self::default();
        for (field, value) in values {
            let (name, own) = named.map_or((field, None), |named| named.names_of(field));
            fields.values.push((name, FieldValue(value)));
            fields.source_names.extend(own.map(|own| (name, own)));
        }
        fields
    }

    /// Each value with its name here and, where that is another, its own system's name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, u128, Option<&'static str>)> {
        self.values.iter().map(|(name, value)| {
            let own = self.source_names.iter().find(|(known, own)| known == name && own != name);
            (*name, value.0, own.map(|(_, own)| *own))
        })
    }
}

/// An object whose members are in this order.
fn in_order<S: Serializer>(members: &[(&'static str, impl Serialize)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(members.iter().map(|(name, value)| (name, value)))
}

/// Whose id it may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Candidates {
    /// The text that was given.
    pub(crate) id: String,
    /// The likeliest first.
    pub(crate) candidates: Vec<Candidate>,
}

/// An id as one layout reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Candidate {
    /// The layout's name; for a text of 128 bits, and for CosId's, what it is.
    pub(crate) layout: String,
    /// How the text was read.
    pub(crate) read_as: &'static str,
    /// The id in decimal, if it is one of 63 bits.
    pub(crate) number: Option<String>,
    /// Whether it makes sense there.
    pub(crate) plausible: bool,
    /// Why, or why not.
    pub(crate) why: String,
    /// When there are ids of the layout.
    #[serde(flatten)]
    pub(crate) in_use: InUse,
    /// When the id's tick began, RFC 3339, in UTC, if there is a time in it.
    pub(crate) time: Option<String>,
    /// The same in Unix milliseconds.
    pub(crate) unix_ms: Option<u64>,
    /// The other fields.
    #[serde(flatten)]
    pub(crate) fields: Fields,
}

/// When there are ids of a layout; nothing where that is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct InUse {
    /// No id is older, RFC 3339, in UTC.
    pub(crate) since: Option<String>,
    /// From when on there are no more, if that has passed.
    pub(crate) until: Option<String>,
}

impl InUse {
    fn of(since_ms: u64, ends_ms: u64, now_ms: u64) -> Self {
        Self { since: Some(rfc3339(since_ms)), until: Some(ends_ms).filter(|ends_ms| *ends_ms <= now_ms).map(rfc3339) }
    }
}

/// A UUID and a ULID are what their shape says, whatever their time is.
fn is_known_by_shape(guess: &Guess<'_>) -> bool {
    matches!(guess.shape, Shape::Uuid | Shape::Ulid)
}

fn makes_sense(guess: &Guess<'_>) -> bool {
    guess.verdict.is_plausible() || is_known_by_shape(guess)
}

fn why(guess: &Guess<'_>) -> String {
    match guess.verdict {
        Verdict::Plausible { .. } if is_known_by_shape(guess) => "by its shape".to_owned(),
        Verdict::TooEarly { since_ms } if is_known_by_shape(guess) => {
            format!("by its shape, though its time is before {}", rfc3339(since_ms))
        }
        Verdict::TooLate if is_known_by_shape(guess) => "by its shape, though its time is yet to come".to_owned(),
        // How much speaks for it decides the order.
        Verdict::Plausible { .. } => "its time lies between the first such ids and now".to_owned(),
        Verdict::Timeless => "any number fits: it has no time".to_owned(),
        Verdict::TooEarly { since_ms } => format!("there were no such ids before {}", rfc3339(since_ms)),
        Verdict::TooLate => "its time is yet to come".to_owned(),
        Verdict::TooWide { bits } => format!("it has more than {bits} bits"),
        Verdict::Fixed { name, expected, found } => format!("its {name} is {found}, which is always {expected}"),
    }
}

/// What is above the time.
fn unsorted(scheme: &Scheme) -> String {
    let highest = scheme.fields().iter().find(|field| !matches!(field.role, Role::Fixed(_)));
    match highest {
        Some(field) if scheme.ends_ms().is_some() => format!("the {} is above the time", field.name),
        _ => "there is no time in them".to_owned(),
    }
}

/// The ids of a span of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct IdRange {
    /// The layout's name.
    pub(crate) layout: String,
    /// When the span begins, RFC 3339, in UTC.
    pub(crate) from: String,
    /// When it ends: the first instant that is not in it.
    pub(crate) to: String,
    /// The least id, in decimal.
    pub(crate) first: String,
    /// The greatest.
    pub(crate) last: String,
}

/// The figures of a layout; those that ids for reading only do not have are `None`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LayoutFigures {
    /// Its name.
    pub(crate) name: String,
    /// Width of an id, in bits.
    pub(crate) bits: u8,
    /// Width of the timestamp, in bits.
    pub(crate) timestamp_bits: u8,
    /// Width of the datacenter, in bits.
    pub(crate) datacenter_bits: u8,
    /// Width of the worker without the datacenter, in bits.
    pub(crate) worker_bits: u8,
    /// Width of the sequence, in bits.
    pub(crate) sequence_bits: u8,
    /// All fields, the highest bits first.
    pub(crate) fields: Vec<FieldFigures>,
    /// Length of a tick, in milliseconds, if there is a time in the ids.
    pub(crate) tick_ms: Option<u32>,
    /// When tick 0 begins, RFC 3339, if there is a time.
    pub(crate) epoch: Option<String>,
    /// How many workers there are, datacenter included.
    pub(crate) workers: Option<u64>,
    /// The most ids that one worker gives, per second.
    pub(crate) ids_per_second: Option<u64>,
    /// When the last tick ends, RFC 3339, if there is a time: from then on there are no ids.
    pub(crate) ends: Option<String>,
    /// Whether that has passed: such ids can be read only.
    pub(crate) ended: bool,
    /// Whether that is so within ten years.
    pub(crate) ends_soon: bool,
    /// From when on ids are above 2^53 - 1, so that JavaScript rounds them: RFC 3339, if that ever is.
    pub(crate) above_53_bits: Option<String>,
    /// Whether no generator makes such ids: they can be taken apart only.
    pub(crate) reading_only: bool,
    /// Where the figures come from.
    pub(crate) source: String,
    /// The widths in the order of the bits, see [`Layout`]'s own text.
    #[serde(skip)]
    pub(crate) widths: String,
}

/// A field of a layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct FieldFigures {
    /// Its name here.
    pub(crate) name: &'static str,
    /// Its width.
    pub(crate) bits: u8,
    /// What the system that the layout comes from calls it, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source_name: Option<&'static str>,
}

/// The figures of a layout at a time.
pub(crate) fn figures(named: &Named, now_ms: u64) -> LayoutFigures {
    let scheme = named.scheme();
    let layout = match &named.what {
        What::Layout(layout) => Some(layout),
        What::Scheme(_) => None,
    };
    let fields: Vec<FieldFigures> = scheme
        .fields()
        .iter()
        .map(|field| {
            let (name, source_name) = named.names_of(field.name);
            FieldFigures { name, bits: field.bits, source_name }
        })
        .collect();
    let bits_of = |name| fields.iter().filter(|field| field.name == name).map(|field| field.bits).sum();
    // Without a time neither epoch nor tick mean anything.
    let ends_ms = scheme.ends_ms();
    let ids_per_second = |layout: &Layout| layout.ids_per_tick().saturating_mul(1_000) / u64::from(layout.tick_ms());
    let first_above = layout.and_then(|layout| Some((layout, layout.unpack(JAVASCRIPT_MAX + 1).ok()?)));
    LayoutFigures {
        name: named.name.clone(),
        bits: scheme.bits(),
        timestamp_bits: bits_of("time"),
        datacenter_bits: bits_of("datacenter"),
        worker_bits: bits_of("worker"),
        sequence_bits: bits_of("sequence"),
        tick_ms: ends_ms.map(|_| scheme.tick_ms()),
        epoch: ends_ms.map(|_| rfc3339(scheme.epoch_ms())),
        workers: layout.map(Layout::workers),
        ids_per_second: layout.map(ids_per_second),
        ends: ends_ms.map(rfc3339),
        ended: ends_ms.is_some_and(|ends_ms| ends_ms <= now_ms),
        ends_soon: ends_ms.is_some_and(|ends_ms| now_ms < ends_ms && ends_ms <= now_ms.saturating_add(ENDS_SOON_MS)),
        above_53_bits: first_above.map(|(layout, parts)| rfc3339(layout.tick_start_ms(parts.ticks))),
        reading_only: layout.is_none(),
        source: named.source.clone(),
        widths: layout.map_or_else(
            || fields.iter().map(|field| format!("{} {}", field.name, field.bits)).collect::<Vec<_>>().join(" + "),
            widths,
        ),
        fields,
    }
}

/// `41/5+5/12`: the widths as the layout writes them, without epoch and tick.
fn widths(layout: &Layout) -> String {
    let text = layout.to_string();
    text.split_once(" epoch").map_or(text.as_str(), |(widths, _)| widths).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(name: &str, text: &str) -> anyhow::Result<Layouts> {
        Layouts::new(&BTreeMap::from([(name.to_owned(), text.to_owned())]))
    }

    #[test]
    fn an_id_of_leaf_is_taken_apart() {
        let decoded = Layouts::default().decode("1169786042799259000", "leaf").unwrap();
        assert_eq!(decoded.time.as_deref(), Some("2019-09-06T01:35:00.834Z"));
        assert_eq!(decoded.unix_ms, Some(1_567_733_700_834));
        assert_eq!(decoded.fields.values, [("worker", FieldValue(39)), ("sequence", FieldValue(3_448))]);
        assert_eq!(decoded.fields.source_names, [("worker", "workerId"), ("sequence", "sequenceId")]);
    }

    #[test]
    fn numbers_that_javascript_rounds_are_strings() {
        let decoded = |id: &str, layout: &str| {
            serde_json::to_value(Layouts::default().decode(id, layout).unwrap()).unwrap()["fields"].clone()
        };
        assert_eq!(decoded("8013", "idleaf-gene:8"), serde_json::json!({ "sequence": 1001, "gene": 5 }));
        let large = decoded("9223372036854775807", "idleaf-gene:8");
        assert_eq!(large, serde_json::json!({ "sequence": "1152921504606846975", "gene": 7 }));
    }

    #[test]
    fn what_is_no_id_of_the_layout_is_refused() {
        let layouts = Layouts::default();
        for text in ["", "0", "-1", "+1", "1.0", "abc", "9223372036854775808", "99999999999999999999999"] {
            for layout in ["twitter", "seata"] {
                assert!(matches!(layouts.decode(text, layout), Err(DecodeError::NotAnId { .. })), "{text}");
            }
        }
        let decode = |id, layout| layouts.decode(id, layout).unwrap_err();
        assert!(matches!(decode("9223372036854775807", "cosid-53"), DecodeError::OutOfRange { .. }));
        assert!(matches!(decode("9223372036854775807", "vesta-max-peak"), DecodeError::NotOfScheme { .. }));
        assert!(matches!(decode("1", "nobody's"), DecodeError::LayoutUnknown { .. }));
        assert!(matches!(decode("1", "41/10 epoch 0"), DecodeError::LayoutInvalid { .. }));
    }

    #[test]
    fn names_of_the_configuration_are_found_and_others_refused() {
        let layouts = own("ours", "41/10/12 epoch 2024-01-01").unwrap();
        let expected: Layout = "41/10/12 epoch 1704067200000".parse().unwrap();
        assert_eq!(layouts.layout("ours"), Ok(expected));
        assert_eq!(layouts.layout("41/10/12 epoch 2024-01-01"), Ok(expected));
        assert_eq!(layouts.all()[0].name, "ours");
        assert_eq!(layouts.layout("seata"), Err(DecodeError::ForReading { name: "seata".to_owned() }));
        assert!(layouts.layout("theirs").unwrap_err().to_string().contains("ours, twitter"));
        for name in ["twitter", "seata", "", "Ours", "our/s", "tidb-auto-random:5"] {
            let error = own(name, "41/10/12 epoch 2024-01-01").unwrap_err().to_string();
            assert!(error.contains(&format!("{name:?}")), "{error}");
        }
        let error = own("ours", "41/10/12").unwrap_err().to_string();
        assert!(error.contains("\"ours\"") && error.contains("the epoch is missing"), "{error}");
    }

    #[test]
    fn the_figures_say_what_the_layouts_promise() {
        let figures_of = |name| Layouts::default().all().into_iter().find(|layout| layout.name == name).unwrap();
        let twitter = figures_of("twitter");
        assert_eq!((twitter.ids_per_second, twitter.workers), (Some(4_096_000), Some(1_024)));
        assert_eq!((twitter.ended, twitter.ends.as_deref()), (false, Some("2080-07-10T17:30:30.209Z")));
        assert_eq!(twitter.above_53_bits.as_deref(), Some("2010-11-28T22:14:18.305Z"));
        let baidu = figures_of("baidu");
        assert!(baidu.ended && !baidu.ends_soon);
        assert_eq!(figures_of("sonyflake").ids_per_second, Some(25_600));
        let seata = figures_of("seata");
        assert!(seata.reading_only && seata.workers.is_none(), "{seata:?}");
        assert_eq!((seata.timestamp_bits, seata.worker_bits, seata.sequence_bits), (41, 10, 12));
        assert_eq!(figures_of("wuid").epoch, None);
        assert_eq!(figures_of("cosid-53").above_53_bits, None);
        assert_eq!(figures_of("yitter").above_53_bits.as_deref(), Some("2089-10-26T10:07:37.552Z"));
    }

    #[test]
    fn candidates_tell_when_their_layouts_are_in_use() {
        let guessed = own("ours", "41/10/12 epoch 2024-01-01").unwrap().candidates("118876832896389120", true).unwrap();
        let in_use = |name: &str| {
            let candidate = guessed.candidates.iter().find(|candidate| candidate.layout == name).unwrap();
            (candidate.in_use.since.as_deref(), candidate.in_use.until.as_deref())
        };
        assert_eq!(in_use("seata-1.4.1"), (Some("2020-05-02T16:00:00.000Z"), None));
        assert_eq!(in_use("leaf"), (Some("2017-01-01T00:00:00.000Z"), None), "years after its epoch");
        assert_eq!(in_use("baidu"), (Some("2016-05-19T16:00:00.000Z"), Some("2024-11-20T13:24:16.000Z")));
        assert_eq!(in_use("vesta-max-peak"), (Some("2014-12-31T16:00:00.000Z"), None));
        assert_eq!(in_use("ours"), (Some("2024-01-01T00:00:00.000Z"), None));
        assert_eq!(in_use("wuid"), (None, None));
        let ulid = Layouts::default().candidates("01ARZ3NDEKTSV4RRFFQ69G5FAV", false).unwrap();
        assert_eq!(ulid.candidates[0].in_use, InUse::default());
        let shown = serde_json::to_value(&guessed.candidates[0]).unwrap();
        assert!(shown["since"].is_string() && shown["until"].is_null() && shown["why"].is_string(), "{shown}");
    }

    #[test]
    fn what_ends_within_ten_years_is_told() {
        let ends_ms = Layout::TWITTER.ends_ms();
        let at = |now_ms| {
            let figures = figures(&Layouts::default().find("twitter").unwrap(), now_ms);
            (figures.ends_soon, figures.ended)
        };
        assert_eq!(at(ends_ms - ENDS_SOON_MS - 1), (false, false));
        assert_eq!(at(ends_ms - ENDS_SOON_MS), (true, false));
        assert_eq!(at(ends_ms - 1), (true, false));
        assert_eq!(at(ends_ms), (false, true));
    }

    #[test]
    fn a_range_says_why_there_is_none() {
        let layouts = Layouts::default();
        let range = |layout: &str, from: &str, to: &str| layouts.range(layout, from, to);
        let ids = range("twitter", "2026-01-01", "2026-02-01").unwrap();
        assert_eq!((ids.first.as_str(), ids.last.as_str()), ("2006515713438646272", "2017749737272246271"));
        assert_eq!((ids.from.as_str(), ids.to.as_str()), ("2026-01-01T00:00:00.000Z", "2026-02-01T00:00:00.000Z"));
        for (layout, from, to, words) in [
            ("seata", "0", "1", "the worker is above the time"),
            ("vesta-max-peak", "0", "1", "the method is above the time"),
            ("wuid", "0", "1", "there is no time"),
            ("twitter", "soon", "1", "from is \"soon\""),
            ("twitter", "1", "2026-02-30", "to is \"2026-02-30\": there is no such day"),
            ("twitter", "2026-01-01", "2026-01-01", "empty"),
            ("twitter", "0", "1", "from 2010-11-04T01:42:54.657Z to 2080-07-10T17:30:30.209Z"),
            ("nobody's", "0", "1", "unknown"),
        ] {
            let error = range(layout, from, to).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
