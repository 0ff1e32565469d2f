//! How ids are shown, as it is configured and as it is asked for.
//!
//! A table `[tags.NAME]` or `[snowflakes.NAME]` gives ids a template, a shard gene, keys and a width. From it comes a
//! [`IdFormat`]: the format, and what may be asked of it. Where ids have a key or a gene, every notation shows the
//! number that is made of them and never the id itself; and where a counter starts again, only whole texts are unique,
//! so that there are no numbers to ask for.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use anyhow::{bail, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use unalike::settings::{FormatSettings, RestartWord, Secrets, UtcOffset};
use unalike::{Format, Issued, Layout, Restart, Text, TextError, decode, issued_by};

use crate::config::channels::{Channel, ChannelConfig};
use crate::words::decimal;
use crate::words::{rfc3339, shortened};

/// So many snowflakes are named where one is not configured.
const SNOWFLAKES_NAMED: usize = 8;

/// The greatest number that is exact in JavaScript, in bits.
pub(crate) const SAFE_BITS: u8 = 53;

/// A table `[tags.NAME]`, as its help in the configuration file says.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TagConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) channel: Option<Channel>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) buff_size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lowest_critical_value: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prefix: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sub_keys_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ids_per_s: Option<NonZeroU32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) template: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) utc_offset: Option<UtcOffset>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) restart: Option<RestartWord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bits: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gene_bits: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) keys: Option<Vec<u8>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_id_bits: Option<u8>,
}

impl TagConfig {
    /// The channel that the tag is declared as, if it is declared.
    ///
    /// # Errors
    /// When there are settings of a channel and no channel, and when the table says nothing.
    pub(crate) fn channel(&self) -> anyhow::Result<Option<ChannelConfig>> {
        let Self { buff_size, lowest_critical_value, prefix, .. } = *self;
        ensure!(
            self.channel != Some(Channel::Quick) || self.sub_keys_max.is_none(),
            "sub_keys_max is about sub-keys, and a quick tag is a snowflake, which has none"
        );
        ensure!(
            self.channel != Some(Channel::Quick) || self.ids_per_s.is_none(),
            "ids_per_s of a quick tag is that of the snowflake of its name, in [snowflakes.NAME]"
        );
        if let Some(channel) = self.channel {
            return Ok(Some(ChannelConfig { channel, buff_size, lowest_critical_value, prefix }));
        }
        let settings = [("buff_size", buff_size), ("lowest_critical_value", lowest_critical_value), ("prefix", prefix)];
        if let Some((setting, _)) = settings.into_iter().find(|(_, value)| value.is_some()) {
            bail!("{setting} belongs to a channel: add channel = \"unordered\"");
        }
        ensure!(
            self.format().is_some() || self.sub_keys_max.is_some() || self.ids_per_s.is_some(),
            "it says nothing: give it a channel, or a template or the like for its ids"
        );
        Ok(None)
    }

    /// How its ids are shown, if anything is said of that.
    pub(crate) fn format(&self) -> Option<FormatSettings> {
        let settings = FormatSettings {
            template: self.template.clone(),
            utc_offset: self.utc_offset,
            restart: self.restart,
            bits: self.bits,
            gene_bits: self.gene_bits,
            keys: self.keys.clone(),
            key_id_bits: self.key_id_bits,
        };
        Some(settings).filter(FormatSettings::says_something)
    }
}

/// How the ids of a tag or snowflake are shown, and what may be asked of it.
#[derive(Clone, Debug)]
pub(crate) struct IdFormat {
    name: String,
    format: Arc<Format>,
    has_template: bool,
    /// Whether the number that is shown is the id.
    is_bare: bool,
}

impl IdFormat {
    /// That of a tag.
    ///
    /// # Errors
    /// Says what does not fit.
    pub(crate) fn of_tag(name: &str, settings: &FormatSettings, secrets: &Secrets) -> anyhow::Result<Self> {
        Ok(Self::new(name, settings, settings.of_tag(name, secrets)?))
    }

    /// That of a snowflake with this layout, of which the gene is a part.
    ///
    /// # Errors
    /// Says what does not fit.
    pub(crate) fn of_snowflake(
        name: &str,
        settings: &FormatSettings,
        secrets: &Secrets,
        layout: Layout,
    ) -> anyhow::Result<Self> {
        Ok(Self::new(name, settings, settings.of_snowflake(name, secrets, layout)?))
    }

    fn new(name: &str, settings: &FormatSettings, format: Format) -> Self {
        Self {
            name: name.to_owned(),
            format: Arc::new(format),
            has_template: settings.template.is_some(),
            is_bare: settings.is_bare(),
        }
    }

    /// What is configured, or for ids of which nothing is configured: the id as it is.
    fn or_plain<'a>(shown: Option<&'a Self>, name: &str) -> Cow<'a, Self> {
        let plain = || Self::new(name, &FormatSettings::default(), Format::default());
        shown.map_or_else(|| Cow::Owned(plain()), Cow::Borrowed)
    }

    /// The format.
    pub(crate) fn format(&self) -> &Arc<Format> {
        &self.format
    }

    /// Whether the number that is shown is the id: nothing is lost if somebody shows it without this.
    pub(crate) fn is_bare(&self) -> bool {
        self.is_bare
    }

    /// In which notation a text is that says nothing about it.
    fn notation(&self) -> Notation {
        if self.has_template { Notation::Template } else { Notation::Decimal }
    }

    /// What a text says, in this notation or in the usual one. `layout` is that of a snowflake's ids, without the gene.
    ///
    /// # Errors
    /// [`Refusal`].
    fn read(&self, text: &str, notation: Option<Notation>, layout: Option<Layout>) -> Result<Issued, Refusal> {
        let notation = notation.unwrap_or_else(|| self.notation());
        self.check(notation)?;
        let refused = |reason: &dyn fmt::Display| Refusal::Text { text: shortened(text), reason: reason.to_string() };
        let issued = match notation.text() {
            None => self.format.read(text).map_err(|error| refused(&error))?,
            Some(notation) => {
                let number = number_in(text, notation)?;
                self.format.original(number).map_err(|error| refused(&error))?
            }
        };
        match layout {
            Some(layout) => issued_by(layout, issued).map_err(|error| refused(&error)),
            None => Ok(issued),
        }
    }

    /// Whether ids may be shown so.
    fn check(&self, notation: Notation) -> Result<(), Refusal> {
        if notation == Notation::Template {
            return if self.has_template { Ok(()) } else { Err(Refusal::template_missing(&self.name)) };
        }
        if self.format.restart() == Restart::Never {
            return Ok(());
        }
        Err(Refusal::TemplateOnly { name: shortened(&self.name), format: notation.name() })
    }
}

/// How all that is configured is shown, by name.
#[derive(Debug, Default)]
pub(crate) struct Formats {
    pub(crate) tags: BTreeMap<String, IdFormat>,
    pub(crate) snowflakes: BTreeMap<String, IdFormat>,
    /// The layout of every snowflake's ids, without a gene, those of quick tags among them.
    pub(crate) layouts: BTreeMap<String, Layout>,
    /// Tags whose ids are those of the snowflake of the same name.
    pub(crate) quick: BTreeSet<String>,
}

impl Formats {
    /// How the ids of a tag are shown, if something is said of that.
    pub(crate) fn of_tag(&self, tag: &str) -> Option<&IdFormat> {
        if self.quick.contains(tag) { self.snowflakes.get(tag) } else { self.tags.get(tag) }
    }

    /// What a command says of a snowflake that is not configured. Callers of HTTP are told no other names.
    pub(crate) fn unknown_snowflake(&self, name: &str) -> String {
        let known: Vec<String> = self.layouts.keys().take(SNOWFLAKES_NAMED).map(|known| format!("{known:?}")).collect();
        let more = if self.layouts.len() > SNOWFLAKES_NAMED { ", .." } else { "" };
        format!(
            "no snowflake {:?} is configured, only {}{more}: add [snowflakes.NAME], with a layout, to the file that --config \
             names",
            shortened(name),
            known.join(", ")
        )
    }

    /// Reads the text of an id of a tag, in this notation or in the usual one.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(crate) fn read_of_tag(&self, tag: &str, text: &str, notation: Option<Notation>) -> Result<ReadText, Refusal> {
        if self.quick.contains(tag) {
            return self.read_of_snowflake(tag, text, notation);
        }
        let issued = IdFormat::or_plain(self.tags.get(tag), tag).read(text, notation, None)?;
        Ok(ReadText::new(text, &issued))
    }

    /// The same of a snowflake.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(crate) fn read_of_snowflake(
        &self,
        name: &str,
        text: &str,
        notation: Option<Notation>,
    ) -> Result<ReadText, Refusal> {
        let layout = *self.layouts.get(name).ok_or_else(|| Refusal::snowflake_unknown(name))?;
        let issued = IdFormat::or_plain(self.snowflakes.get(name), name).read(text, notation, Some(layout))?;
        Ok(ReadText::new(text, &issued))
    }
}

/// How an id is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Notation {
    /// In decimal
    Decimal,
    /// In decimal, 19 digits with zeros in front
    Padded,
    /// 0-9a-z, 13 characters
    Base36,
    /// 0-9A-Za-z, 11 characters
    Base62,
    /// Crockford's base 32, 13 characters
    Base32,
    /// A UUID of version 8 around the id
    Uuid,
    /// By the template in the configuration
    Template,
}

impl Notation {
    /// That of a name.
    ///
    /// # Errors
    /// [`Refusal::FormatUnknown`].
    pub(crate) fn named(name: &str) -> Result<Self, Refusal> {
        let known = Self::value_variants().iter().copied().find(|notation| notation.name() == name);
        known.ok_or_else(|| Refusal::FormatUnknown { format: shortened(name) })
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Decimal => "decimal",
            Self::Padded => "padded",
            Self::Base36 => "base36",
            Self::Base62 => "base62",
            Self::Base32 => "base32",
            Self::Uuid => "uuid",
            Self::Template => "template",
        }
    }

    /// All names.
    pub(crate) fn names() -> Vec<&'static str> {
        Self::value_variants().iter().map(|notation| notation.name()).collect()
    }

    /// How the library calls it; none for a template.
    pub(crate) fn text(self) -> Option<Text> {
        match self {
            Self::Decimal => Some(Text::Decimal),
            Self::Padded => Some(Text::Padded),
            Self::Base36 => Some(Text::Base36),
            Self::Base62 => Some(Text::Base62),
            Self::Base32 => Some(Text::Base32),
            Self::Uuid => Some(Text::Uuid),
            Self::Template => None,
        }
    }
}

/// How a caller wants ids to be shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FormatRequest {
    pub(crate) notation: Option<Notation>,
    /// As a number in JSON.
    pub(crate) as_number: bool,
    pub(crate) shard_key: Option<u64>,
}

impl FormatRequest {
    /// The notation in which ids are shown, once it is clear that they can be; no id is taken before. `bits` is the
    /// width of the greatest number that may come.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(crate) fn notation(&self, name: &str, shown: Option<&IdFormat>, bits: u8) -> Result<Notation, Refusal> {
        let usual = shown.map_or(Notation::Decimal, IdFormat::notation);
        let notation = self.notation.unwrap_or(usual);
        match shown {
            Some(shown) => shown.check(notation)?,
            None if notation == Notation::Template => return Err(Refusal::template_missing(name)),
            None => {}
        }
        if self.as_number && (notation != Notation::Decimal || bits > SAFE_BITS) {
            let how = if shown.is_some_and(|shown| shown.format.restart() != Restart::Never) {
                NumberHow::Repeat(notation.name())
            } else if bits > SAFE_BITS {
                NumberHow::Bits { bits }
            } else {
                NumberHow::Format(notation.name())
            };
            return Err(Refusal::NumberUnsafe { name: shortened(name), how });
        }
        let needs_shard_key = shown.is_some_and(|shown| shown.format.needs_shard_key());
        match (needs_shard_key, self.shard_key) {
            (true, None) => Err(Refusal::ShardKeyMissing { name: shortened(name) }),
            (false, Some(_)) => Err(Refusal::ShardKeyUnwanted { name: shortened(name) }),
            (true, Some(_)) | (false, None) => Ok(notation),
        }
    }
}

/// A shard key from text.
///
/// # Errors
/// [`Refusal::ShardKeyText`].
pub(crate) fn shard_key(text: &str) -> Result<u64, Refusal> {
    decimal(text).ok_or_else(|| Refusal::ShardKeyText { text: shortened(text) })
}

/// Why ids are not shown, or a text is not read, as somebody asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the format {format:?} is unknown; the formats are {}", Notation::names().join(", "))]
    FormatUnknown { format: String },
    #[error("{name:?} has no template: give it one in the configuration file, or ask for another format")]
    TemplateMissing { name: String },
    #[error(
        "the numbers of {name:?} start again, so that only its whole texts are unique: the format is template, and cannot be \
         {format}"
    )]
    TemplateOnly { name: String, format: &'static str },
    #[error("the ids of {name:?} carry bits of a shard key, and none was given (shard_key)")]
    ShardKeyMissing { name: String },
    #[error("a shard key was given, and the ids of {name:?} carry no bits of one")]
    ShardKeyUnwanted { name: String },
    #[error("the shard key is {text:?}, it must be a whole number from 0 to {}", u64::MAX)]
    ShardKeyText { text: String },
    #[error("ids of {name:?} are not safe as numbers in JSON: {how}")]
    NumberUnsafe { name: String, how: NumberHow },
    #[error("no snowflake {name:?} is configured: add [snowflakes.NAME] to the configuration file")]
    SnowflakeUnknown { name: String },
    #[error("the format template is that of a tag or snowflake: say of which")]
    FormatAlone,
    #[error("the text {text:?} cannot be read: {reason}")]
    Text { text: String, reason: String },
}

impl Refusal {
    pub(crate) fn snowflake_unknown(name: &str) -> Self {
        Self::SnowflakeUnknown { name: shortened(name) }
    }

    fn template_missing(name: &str) -> Self {
        Self::TemplateMissing { name: shortened(name) }
    }
}

/// How a caller gets numbers after all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberHow {
    Bits {
        bits: u8,
    },
    /// The format gives texts.
    Format(&'static str),
    /// The same, and there are no numbers to ask for.
    Repeat(&'static str),
}

impl fmt::Display for NumberHow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bits { bits } => write!(
                f,
                "they may have {bits} bits, and JavaScript rounds those of more than {SAFE_BITS}. Take them as strings, or have \
                 them fit: bits = {SAFE_BITS} for a tag ([tags.NAME]), and a layout of {SAFE_BITS} bits for a snowflake"
            ),
            Self::Format(name) => write!(f, "the format {name} gives texts. Ask for format=decimal, or take strings"),
            Self::Repeat(name) => {
                write!(f, "the format {name} gives texts, and their numbers start again in each period. Take strings")
            }
        }
    }
}

/// What a text says, as HTTP and the command line tell it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ReadText {
    pub(crate) text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) snowflake: Option<String>,
    /// The id that was given out.
    pub(crate) id: String,
    /// The number that is shown for it.
    pub(crate) number: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gene: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_id: Option<u8>,
    /// When it was issued: not before, and before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<String>,
}

impl ReadText {
    /// What was read from a text.
    fn new(text: &str, issued: &Issued) -> Self {
        Self {
            text: text.to_owned(),
            tag: None,
            snowflake: None,
            id: issued.id.to_string(),
            number: issued.number.to_string(),
            gene: issued.gene,
            key_id: issued.key_id,
            from: issued.issued_ms.as_ref().map(|span| rfc3339(span.start)),
            until: issued.issued_ms.as_ref().map(|span| rfc3339(span.end)),
        }
    }

    /// The number in a notation of which nothing else is known.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(crate) fn of_notation(text: &str, notation: Notation) -> Result<Self, Refusal> {
        let Some(known) = notation.text() else { return Err(Refusal::FormatAlone) };
        let id = number_in(text, known)?;
        Ok(Self::new(text, &Issued { id, number: id, gene: None, key_id: None, issued_ms: None }))
    }
}

/// The number that a text is in this notation.
///
/// # Errors
/// [`Refusal::Text`], which says how long such texts are if this one is not.
fn number_in(text: &str, notation: Text) -> Result<u64, Refusal> {
    decode(text, notation).map_err(|error| {
        let expected = match (&error, notation) {
            (TextError::Length { .. }, Text::Decimal) => ": a text in decimal has 1 to 19 characters",
            (TextError::Length { .. }, Text::Padded) => ": a padded text has 19 characters",
            (TextError::Length { .. }, Text::Base36) => ": a text in base36 has 13 characters",
            (TextError::Length { .. }, Text::Base62) => ": a text in base62 has 11 characters",
            (TextError::Length { .. }, Text::Base32) => ": a text in base32 has 13 characters",
            (TextError::Length { .. }, Text::Uuid) => ": a UUID has 36 characters, four of which are hyphens",
            _ => "",
        };
        Refusal::Text { text: shortened(text), reason: format!("{error}{expected}") }
    })
}

/// Whether a tag that begins at this number can be shown at all.
pub(crate) fn check_start(tag: &str, shown: &IdFormat, start: u64) -> anyhow::Result<()> {
    let id_max = shown.format.id_max();
    ensure!(
        start <= id_max,
        "the tag {tag:?} begins at {start}, and its format shows ids up to {id_max}: give it more bits or digits"
    );
    Ok(())
}

/// Whether the format shows every id of a snowflake's layout, the gene left out.
pub(crate) fn check_layout(shown: &IdFormat, layout: Layout) -> anyhow::Result<()> {
    let (layout_max, id_max) = (layout.id_max(), shown.format.id_max());
    ensure!(
        layout_max <= id_max,
        "ids of its layout reach {layout_max}, and its format shows ids up to {id_max}: give it more digits"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_notation_has_its_name() {
        for notation in Notation::value_variants() {
            assert_eq!(Notation::named(notation.name()), Ok(*notation));
            assert_eq!(notation.to_possible_value().unwrap().get_name(), notation.name());
        }
        assert!(Notation::named("Decimal").is_err());
    }
}
