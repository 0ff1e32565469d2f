//! How ids are shown, as a configuration says it.
//!
//! [`FormatSettings`] are what a table `[tags.NAME]` of the server's configuration says of it, or the JSON that another
//! language gives; from them comes a [`Format`]. [`Secrets`] are those of the permutations, by number. They are read
//! when they are needed and printed nowhere, in no error and in no log.
//!
//! ```
//! use std::collections::BTreeMap;
//! use unalike::settings::{FormatSettings, KeySettings, Secrets};
//!
//! let settings: FormatSettings = serde_json::from_str(r#"{"template": "ORD-{id:08}", "bits": 26, "keys": [1]}"#)?;
//! let keys: BTreeMap<String, KeySettings> =
//!     serde_json::from_str(r#"{"1": {"secret": "000102030405060708090a0b0c0d0e0f"}}"#)?;
//! let format = settings.of_tag("order", &Secrets::read(&keys)?)?;
//! let text = format.write(1, 1_795_348_800_000, None)?;
//! assert_ne!(text, "ORD-00000001");
//! assert_eq!(format.read(&text)?.id, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use unalike_core::{Format, FormatError, FormatKey, FormatOptions, Layout, Restart, TemplateFault};

use crate::formatted::PERMUTED_BITS_MIN;

/// The width of a key's id, unless something else is said.
const KEY_ID_BITS: u8 = 4;

/// So many characters of a placeholder that does not exist are shown.
const PLACEHOLDER_SHOWN: usize = 32;

/// Why settings give no format, or keys no secrets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// Keys are told apart by numbers.
    #[error("the configuration's key {name:?} has no number from 0 to 255 for a name")]
    KeyName {
        /// What it is called.
        name: String,
    },
    /// A key without a secret.
    #[error("the configuration's key {id}")]
    Secret {
        /// Its number.
        id: u8,
        /// What is wrong with it.
        source: SecretError,
    },
    /// Ids of one key would be taken for those of the other.
    #[error("the configuration's keys {one} and {other} are the same secret")]
    SameSecret {
        /// One of them.
        one: u8,
        /// The other.
        other: u8,
    },
    /// A list of keys without any.
    #[error("its list of keys is empty: leave it out for ids that are shown as they are")]
    KeysEmpty,
    /// A width for the numbers of keys, and no keys.
    #[error("key_id_bits is about keys, and it has none")]
    KeyIdBits,
    /// Too few bits are left for a permutation.
    #[error(
        "a key for {permuted_bits} bits hides nothing: of {bits} bits, gene_bits takes {gene_bits} and key_id_bits \
         {key_id_bits}, and {PERMUTED_BITS_MIN} at least must be left; {}",
        least_of_keys(*gene_bits, *key_id_bits)
    )]
    HidesNothing {
        /// What is left.
        permuted_bits: u8,
        /// Width of all.
        bits: u8,
        /// Width of the gene.
        gene_bits: u8,
        /// Width of a key's number.
        key_id_bits: u8,
    },
    /// The template gives the id fewer digits than a number under a key may need.
    #[error(
        "the template has {width} digits for the id, and a number of {bits} bits may need {}: write {{id:0{}}}, or give it \
         fewer bits; {}",
        digits(*bits),
        digits(*bits),
        least_of_keys(*gene_bits, *key_id_bits)
    )]
    Digits {
        /// How many it has.
        width: u8,
        /// Width of the number.
        bits: u8,
        /// Width of the gene.
        gene_bits: u8,
        /// Width of a key's number.
        key_id_bits: u8,
    },
    /// The template has a placeholder that does not exist.
    #[error("{}", naming(error, placeholder))]
    Placeholder {
        /// What stands there, or its beginning.
        placeholder: String,
        /// Where, and which there are.
        error: FormatError,
    },
    /// A key that is not among the configuration's.
    #[error("there is no key {id}: add [keys.{id}]")]
    KeyUnknown {
        /// Its number.
        id: u8,
    },
    /// The number of a key does not fit.
    #[error("the key {id} has no place in key_id_bits = {key_id_bits}: {}", fitting(*key_id_bits))]
    KeyPlace {
        /// Its number.
        id: u8,
        /// Width of a key's number.
        key_id_bits: u8,
    },
    /// Ids of a snowflake that do not fit what is to show them.
    #[error(
        "its layout has {layout_bits} bits and the key's id {key_id_bits}, which do not fit {} bits: choose another layout, or \
         other bits",
        bits.min(&63)
    )]
    LayoutWidth {
        /// Width of the layout.
        layout_bits: u8,
        /// Width of a key's number.
        key_id_bits: u8,
        /// Width of all.
        bits: u8,
    },
    /// What is left to say of a format.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// How many digits the greatest number of so many bits has.
fn digits(bits: u8) -> u32 {
    let greatest = (1_u64 << bits.min(63)) - 1;
    greatest.checked_ilog10().map_or(1, |power| power + 1)
}

/// The least width that a number may have under a key.
fn least_of_keys(gene_bits: u8, key_id_bits: u8) -> String {
    let needs = |key_id_bits: u8| PERMUTED_BITS_MIN.saturating_add(gene_bits).saturating_add(key_id_bits);
    let least = needs(key_id_bits);
    let said = format!("a key needs bits = {least} ({} digits) or more", digits(least));
    if key_id_bits == 0 {
        return said;
    }
    let without = needs(0);
    format!(
        "{said}; with key_id_bits = 0, the only key, numbered 0, needs bits = {without} ({} digits)",
        digits(without)
    )
}

/// The core's message, which cannot quote the template.
fn naming(error: &FormatError, placeholder: &str) -> String {
    error.to_string().replacen("no such placeholder", &format!("no such placeholder as {placeholder:?}"), 1)
}

/// Which keys have a place in so many bits.
fn fitting(key_id_bits: u8) -> String {
    match key_greatest(key_id_bits) {
        0 => "there is room only for the key 0".to_owned(),
        greatest => format!("keys are 1 to {greatest}"),
    }
}

fn key_greatest(key_id_bits: u8) -> u16 {
    (1 << key_id_bits.min(8)) - 1
}

/// Why a key has no secret. Nothing of a secret is told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// Names are told in errors, and a secret in place of one would be.
    #[error("secret_file and secret_env name where the secret is, and this looks like the secret itself")]
    InPlaceOfName,
    /// It is nowhere, or in several places.
    #[error("give it one of secret_file, secret_env and secret")]
    NotOne,
    /// Its file.
    #[error("the file {} cannot be read", path.display())]
    File {
        /// Where it is.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// What its file holds.
    #[error("the file {}", path.display())]
    InFile {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<SecretError>,
    },
    /// Its variable.
    #[error("there is no variable {name:?}")]
    VariableMissing {
        /// What it is called.
        name: String,
    },
    /// What its variable holds.
    #[error("the variable {name:?}")]
    InVariable {
        /// What it is called.
        name: String,
        /// What is wrong with it.
        source: Box<SecretError>,
    },
    /// It is no secret.
    #[error("a secret is 128 random bits, written as 32 hexadecimal digits: `openssl rand -hex 16` prints some")]
    Digits,
}

/// How ids are shown, as it is configured: what is left out is as in [`FormatOptions`].
///
/// ```
/// use unalike::settings::{FormatSettings, Secrets};
/// let settings: FormatSettings = serde_json::from_str(r#"{"template": "A{id:04}", "utc_offset": "+08:00"}"#)?;
/// assert_eq!(settings.of_tag("order", &Secrets::default())?.write(7, 0, None)?, "A0007");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FormatSettings {
    /// Text with placeholders; the id alone by default.
    pub template: Option<String>,
    /// How far the dates in it are ahead of UTC.
    pub utc_offset: Option<UtcOffset>,
    /// When the counter starts again.
    pub restart: Option<RestartWord>,
    /// Width of the number that is shown: 63 of a tag by default, and of a snowflake what its ids need.
    pub bits: Option<u8>,
    /// How many bits of a shard key it has.
    pub gene_bits: Option<u8>,
    /// The numbers of the keys, the first of which is used.
    pub keys: Option<Vec<u8>>,
    /// Width of a key's number in it.
    pub key_id_bits: Option<u8>,
}

impl FormatSettings {
    /// Whether anything is said.
    #[must_use]
    pub fn says_something(&self) -> bool {
        *self != Self::default()
    }

    /// Whether the number that is shown is the id: nothing is lost if somebody shows it without this.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        let restarts = self.restart.is_some_and(|restart| restart != RestartWord::Never);
        !self.has_keys() && self.gene_bits.unwrap_or(0) == 0 && !restarts
    }

    /// The format of a tag.
    ///
    /// # Errors
    /// [`SettingsError`], saying what does not fit.
    pub fn of_tag(&self, tag: &str, secrets: &Secrets) -> Result<Format, SettingsError> {
        let key_id_bits = self.key_id_bits.unwrap_or(if self.has_keys() { KEY_ID_BITS } else { 0 });
        self.format(tag, secrets, self.bits.unwrap_or(63), key_id_bits)
    }

    /// The format of a snowflake with this layout, of which the gene is a part.
    ///
    /// # Errors
    /// [`SettingsError`], saying what does not fit.
    pub fn of_snowflake(&self, namespace: &str, secrets: &Secrets, layout: Layout) -> Result<Format, SettingsError> {
        let layout_bits = layout.bits();
        let left = 63 - layout_bits;
        let key_id_bits = self.key_id_bits.unwrap_or(if self.has_keys() { KEY_ID_BITS.min(left) } else { 0 });
        let least = layout_bits.saturating_add(key_id_bits);
        let bits = self.bits.unwrap_or(least);
        if bits < least || bits > 63 {
            return Err(SettingsError::LayoutWidth { layout_bits, key_id_bits, bits });
        }
        self.format(namespace, secrets, bits, key_id_bits)
    }

    fn has_keys(&self) -> bool {
        self.keys.as_ref().is_some_and(|keys| !keys.is_empty())
    }

    fn format(&self, context: &str, secrets: &Secrets, bits: u8, key_id_bits: u8) -> Result<Format, SettingsError> {
        let gene_bits = self.gene_bits.unwrap_or(0);
        let ids = self.keys.as_deref().unwrap_or_default();
        if ids.is_empty() {
            if self.keys.is_some() {
                return Err(SettingsError::KeysEmpty);
            }
            if self.key_id_bits.is_some() {
                return Err(SettingsError::KeyIdBits);
            }
        } else {
            let permuted_bits = bits.saturating_sub(gene_bits).saturating_sub(key_id_bits);
            if permuted_bits < PERMUTED_BITS_MIN {
                return Err(SettingsError::HidesNothing { permuted_bits, bits, gene_bits, key_id_bits });
            }
        }
        let mut keys = Vec::with_capacity(ids.len());
        for &id in ids {
            let secret = *secrets.0.get(&id).ok_or(SettingsError::KeyUnknown { id })?;
            let greatest = key_greatest(key_id_bits);
            if u16::from(id) > greatest || (id == 0) != (greatest == 0) {
                return Err(SettingsError::KeyPlace { id, key_id_bits });
            }
            keys.push(FormatKey { id, secret });
        }
        let template = self.template.as_deref().unwrap_or("{id}");
        let format = Format::new(&FormatOptions {
            template,
            utc_offset_minutes: self.utc_offset.map_or(0, |offset| offset.minutes),
            restart: self.restart.map_or(Restart::Never, Restart::from),
            bits,
            gene_bits,
            key_id_bits,
            keys: &keys,
            context,
        });
        format.map_err(|error| match error {
            FormatError::Digits { width } if !ids.is_empty() => {
                SettingsError::Digits { width, bits, gene_bits, key_id_bits }
            }
            FormatError::Template { at, fault: TemplateFault::Placeholder } => {
                SettingsError::Placeholder { placeholder: placeholder_at(template, at), error }
            }
            error => error.into(),
        })
    }
}

/// The placeholder that begins at this byte, or the beginning of a longer one.
fn placeholder_at(template: &str, at: usize) -> String {
    let rest = template.get(at..).unwrap_or_default();
    let whole = rest.split_inclusive('}').next().unwrap_or(rest);
    let shown: String = whole.chars().take(PLACEHOLDER_SHOWN).collect();
    if shown.len() < whole.len() { format!("{shown}..") } else { shown }
}

/// `+08:00`: how far a clock is ahead of UTC.
///
/// ```
/// use unalike::settings::UtcOffset;
/// let offset: UtcOffset = serde_json::from_str(r#""-03:30""#)?;
/// assert_eq!(offset.minutes(), -210);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UtcOffset {
    minutes: i16,
}

impl UtcOffset {
    /// Minutes, -1080 to 1080.
    #[must_use]
    pub const fn minutes(self) -> i16 {
        self.minutes
    }

    fn read(text: &str) -> Option<Self> {
        let (sign, rest) = match text.split_at_checked(1)? {
            ("+", rest) => (1, rest),
            ("-", rest) => (-1, rest),
            _ => return None,
        };
        let (hours, minutes) = rest.split_once(':')?;
        let figure = |text: &str| {
            let is_figure = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            if is_figure { text.parse::<i16>().ok() } else { None }
        };
        let (hours, minutes) = (figure(hours)?, figure(minutes)?);
        (hours <= 18 && minutes < 60).then(|| Self { minutes: sign * (hours * 60 + minutes) })
    }
}

impl Serialize for UtcOffset {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (sign, minutes) = (if self.minutes < 0 { '-' } else { '+' }, self.minutes.unsigned_abs());
        serializer.collect_str(&format_args!("{sign}{:02}:{:02}", minutes / 60, minutes % 60))
    }
}

impl<'de> Deserialize<'de> for UtcOffset {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::read(&text).ok_or_else(|| {
            de::Error::custom(format!(
                "{text:?} must be the distance from UTC, as \"+08:00\" or \"-03:30\", 18 hours at most"
            ))
        })
    }
}

/// When a counter starts again: a [`Restart`] in a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RestartWord {
    /// One counter for ever.
    Never,
    /// At 1 each year.
    Year,
    /// At 1 each month.
    Month,
    /// At 1 each day.
    Day,
}

impl From<RestartWord> for Restart {
    fn from(restart: RestartWord) -> Self {
        match restart {
            RestartWord::Never => Self::Never,
            RestartWord::Year => Self::Year,
            RestartWord::Month => Self::Month,
            RestartWord::Day => Self::Day,
        }
    }
}

/// Where the secret of a key is: in a file, in a variable of the environment, or in the configuration itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeySettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    secret_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret_env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<SecretText>,
}

/// A secret in the configuration itself, which nothing prints.
#[derive(Clone)]
struct SecretText(String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(..)")
    }
}

impl Serialize for SecretText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("not shown")
    }
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Whatever else it is may be a secret, too.
        String::deserialize(deserializer).map(Self).map_err(|_| de::Error::custom("a secret is a text"))
    }
}

impl KeySettings {
    /// The secret, which is read from where it is unless `stand_in` is given for that.
    fn secret(&self, stand_in: Option<u128>) -> Result<u128, SecretError> {
        let names = [self.secret_file.as_ref().and_then(|path| path.to_str()), self.secret_env.as_deref()];
        if names.into_iter().flatten().any(|name| hexadecimal(name.trim()).is_ok()) {
            return Err(SecretError::InPlaceOfName);
        }
        match (&self.secret_file, &self.secret_env, &self.secret) {
            (Some(path), None, None) => stand_in.map_or_else(|| read_secret(path), Ok),
            (None, Some(name), None) => stand_in.map_or_else(|| secret_of_variable(name), Ok),
            (None, None, Some(SecretText(text))) => hexadecimal(text),
            _ => Err(SecretError::NotOne),
        }
    }
}

fn read_secret(path: &Path) -> Result<u128, SecretError> {
    let mut text = String::new();
    // The digits and an end of line; more is something else.
    File::open(path)
        .and_then(|file| file.take(64).read_to_string(&mut text))
        .map_err(|source| SecretError::File { path: path.to_owned(), source })?;
    hexadecimal(text.trim_end()).map_err(|source| SecretError::InFile { path: path.to_owned(), source: source.into() })
}

fn secret_of_variable(name: &str) -> Result<u128, SecretError> {
    let text = std::env::var_os(name).ok_or_else(|| SecretError::VariableMissing { name: name.to_owned() })?;
    hexadecimal(text.to_str().unwrap_or_default())
        .map_err(|source| SecretError::InVariable { name: name.to_owned(), source: source.into() })
}

/// 32 hexadecimal digits that are not all 0.
fn hexadecimal(text: &str) -> Result<u128, SecretError> {
    let is_whole = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let secret = if is_whole { u128::from_str_radix(text, 16).ok() } else { None };
    secret.filter(|secret| *secret != 0).ok_or(SecretError::Digits)
}

/// The secrets of the keys, by their numbers.
#[derive(Clone, Default)]
pub struct Secrets(BTreeMap<u8, u128>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Secrets {
    /// Reads them from where they are.
    ///
    /// # Errors
    /// Says which key and what is wrong, and nothing of the secret.
    pub fn read(keys: &BTreeMap<String, KeySettings>) -> Result<Self, SettingsError> {
        Self::gather(keys, false)
    }

    /// Looks at all that can be seen without reading files and variables: for programs that show no ids.
    ///
    /// # Errors
    /// As [`Secrets::read`].
    pub fn unread(keys: &BTreeMap<String, KeySettings>) -> Result<Self, SettingsError> {
        Self::gather(keys, true)
    }

    fn gather(keys: &BTreeMap<String, KeySettings>, stands_in: bool) -> Result<Self, SettingsError> {
        let mut secrets = BTreeMap::new();
        for (name, key) in keys {
            let id = name.parse().ok().filter(|id: &u8| id.to_string() == *name);
            // A secret in place of a number is told nowhere.
            let shown = if hexadecimal(name.trim()).is_ok() { ".." } else { name };
            let id = id.ok_or_else(|| SettingsError::KeyName { name: shown.to_owned() })?;
            let stand_in = stands_in.then_some(u128::from(id) << 64 | 1);
            let secret = key.secret(stand_in).map_err(|source| SettingsError::Secret { id, source })?;
            if let Some((&one, _)) = secrets.iter().find(|(_, known)| **known == secret) {
                return Err(SettingsError::SameSecret { one, other: id });
            }
            secrets.insert(id, secret);
        }
        Ok(Self(secrets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_that_does_not_fit_says_the_figures() {
        let keys = serde_json::from_str(
            r#"{"0": {"secret": "000102030405060708090a0b0c0d0e0e"}, "1": {"secret": "000102030405060708090a0b0c0d0e0f"}}"#,
        );
        let secrets = Secrets::read(&keys.unwrap()).unwrap();
        let of_tag = |json: &str| serde_json::from_str::<FormatSettings>(json).unwrap().of_tag("order", &secrets);
        for (json, says) in [
            (
                r#"{"template": "{id:06}", "keys": [1]}"#,
                "has 6 digits for the id, and a number of 63 bits may need 19: write {id:019}, or give it fewer bits; a key \
                 needs bits = 24 (8 digits) or more; with key_id_bits = 0, the only key, numbered 0, needs bits = 20 (7 digits)",
            ),
            (
                r#"{"template": "{id:06}", "keys": [1], "bits": 19}"#,
                "must be left; a key needs bits = 24 (8 digits) or more",
            ),
            (
                r#"{"keys": [0], "key_id_bits": 0, "bits": 19}"#,
                "must be left; a key needs bits = 20 (7 digits) or more",
            ),
            (r#"{"keys": [1], "bits": 19, "gene_bits": 2}"#, "must be left; a key needs bits = 26 (8 digits) or more"),
            (
                r#"{"template": "{id}{idd}"}"#,
                "the template is wrong at byte 4: no such placeholder as \"{idd}\"; there are {id}, ",
            ),
            (
                r#"{"template": "{id}{éééééééééééééééééééééééééééééééééééé}"}"#,
                "no such placeholder as \"{ééééééééééééééééééééééééééééééé..\"; there are",
            ),
        ] {
            let error = of_tag(json).unwrap_err().to_string();
            assert!(error.contains(says), "{json}: {error}");
        }
        for json in [
            r#"{"template": "{id:08}", "keys": [1], "bits": 24}"#,
            r#"{"template": "{id:07}", "keys": [0], "bits": 20, "key_id_bits": 0}"#,
        ] {
            assert!(of_tag(json).is_ok(), "{json}");
        }
        assert_eq!([1, 3, 4, 19, 20, 24, 63].map(digits), [1, 1, 2, 6, 7, 8, 19]);
    }

    #[test]
    fn a_distance_from_utc_is_read_and_written() {
        for (text, minutes) in [("+00:00", 0), ("+08:00", 480), ("-03:30", -210), ("+18:00", 1080), ("-00:45", -45)] {
            let offset = UtcOffset::read(text).unwrap();
            assert_eq!(offset.minutes, minutes);
            assert_eq!(serde_json::to_value(offset).unwrap(), text);
        }
        for text in
            ["", "+", "8", "08:00", "+8:00", "+08", "+0800", "+19:00", "+08:60", "+-8:00", "é08:00", "Z", "+08:00:00"]
        {
            assert_eq!(UtcOffset::read(text), None, "{text}");
        }
    }

    #[test]
    fn a_secret_in_the_wrong_place_is_not_told() {
        let secret = "000102030405060708090a0b0c0d0e0f";
        for keys in [
            format!(r#"{{"{secret}": {{"secret_env": "A"}}}}"#),
            format!(r#"{{"1": {{"secret_file": "{secret}\n"}}}}"#),
            format!(r#"{{"1": {{"secret_env": " {secret}"}}}}"#),
        ] {
            let keys: BTreeMap<String, KeySettings> = serde_json::from_str(&keys).unwrap();
            let error = Secrets::read(&keys).unwrap_err();
            assert!(!format!("{error:?} {error}").contains("0a0b0c"), "{error:?}");
        }
    }

    #[test]
    fn a_secret_is_32_hexadecimal_digits() {
        assert_eq!(hexadecimal("000102030405060708090a0B0C0D0E0F").unwrap(), 0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f);
        for text in [
            "",
            "1",
            "000102030405060708090a0b0c0d0e0",
            "000102030405060708090a0b0c0d0e0f0",
            &"0".repeat(32),
            &"+".repeat(32),
        ] {
            let error = hexadecimal(text).unwrap_err().to_string();
            assert!(text.len() < 2 || !error.contains(text), "{error}");
        }
    }
}
