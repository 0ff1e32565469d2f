//! What a program says when it opens something: JSON with the names of the server's configuration keys.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};
use unalike::settings::{FormatSettings, KeySettings, Secrets, SettingsError};
use unalike::storage::{LeaseLimits, StoreError, TagCreation, with_causes};
use unalike::{
    ClockPolicy, Layout, Mode, Order, RefillPolicy, SequenceOptions, SnowflakeOptions, Spread, StepPolicy, preset,
};
use unalike_remote::RemoteOptions;
use unalike_stores::{PlaceError, StoreSet, StoreUrl, StoreUrls};

use crate::Failure;

/// The waits that are allowed, in milliseconds.
const WAIT_MS: RangeInclusive<u64> = 1..=600_000;

/// How far clocks may be apart, in milliseconds: beyond an hour one of them must be set.
const SKEW_MS: RangeInclusive<u64> = 0..=3_600_000;

/// What a [`Host`](crate::Host) is opened with.
///
/// ```
/// use unalike_bindings::HostOptions;
///
/// let options = HostOptions::read(r#"{"store": "redis://cache/0", "backing": "mysql://ids@db/ids"}"#)?;
/// assert_eq!(options.wait_max_ms, 5_000);
/// assert!(HostOptions::read(r#"{"store": "redis://cache/0"}"#).is_err()); // no backing
/// # Ok::<(), unalike_bindings::Failure>(())
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostOptions {
    /// Where sequences get their numbers: a URL, or a list of URLs, the stripes of a set. `http://` and `https://` name
    /// unalike servers, further ones after commas.
    pub store: StoreUrls,
    /// The durable store behind one in Redis; `none` where nothing is.
    #[serde(default)]
    pub backing: Option<StoreUrl>,
    /// Where snowflakes get their workers; `none` for nowhere. By default the durable store of the sequences, or the
    /// servers.
    #[serde(default)]
    pub leases: Option<StoreUrl>,
    /// The token of the servers, of the scope `lease`.
    #[serde(default)]
    token: Option<Secret>,
    /// Whether a tag is created by its first use: true by default in a store of unalike's own.
    #[serde(default)]
    pub create_tags: Option<bool>,
    /// How many tags there may be.
    #[serde(default = "tags_max")]
    pub tags_max: u64,
    /// A worker that this process would like to have.
    #[serde(default)]
    pub worker: Option<u32>,
    /// A stable name of this process, by which a lease store prefers the worker that it had before.
    #[serde(default)]
    pub holder: Option<String>,
    /// The longest lease, in milliseconds.
    #[serde(default = "lease_horizon_max_ms")]
    pub lease_horizon_max_ms: u64,
    /// How far the clocks of holder and lease store may be apart, in milliseconds.
    #[serde(default = "lease_skew_max_ms")]
    pub lease_skew_max_ms: u64,
    /// Where the secrets of formats are, by the numbers of their keys.
    #[serde(default)]
    pub keys: BTreeMap<String, KeySettings>,
    /// How long a call waits for ids, 1 to 600,000 ms.
    #[serde(default = "wait_max_ms")]
    pub wait_max_ms: u64,
    /// After how long a request to a store is given up, and what it may have been granted burnt, 1 to 600,000 ms.
    #[serde(default = "request_timeout_ms")]
    pub request_timeout_ms: u64,
}

/// A text that nothing shows.
#[derive(Clone)]
struct Secret(String);

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Whatever else it is may be a secret, too.
        String::deserialize(deserializer).map(Self).map_err(|_| serde::de::Error::custom("it must be a text"))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

fn tags_max() -> u64 {
    TagCreation::default().tags_max
}

fn lease_horizon_max_ms() -> u64 {
    LeaseLimits::default().max_horizon_ms
}

fn lease_skew_max_ms() -> u64 {
    LeaseLimits::default().max_skew_ms
}

fn wait_max_ms() -> u64 {
    5_000
}

fn request_timeout_ms() -> u64 {
    10_000
}

impl HostOptions {
    /// Reads and checks them. Nothing is opened, and no secret is read from where it is.
    ///
    /// # Errors
    /// Kind `options`, saying which one is wrong.
    pub fn read(json: &str) -> Result<Self, Failure> {
        Self::read_with(json, None)
    }

    /// The same for a store in Redis above a durable one of the program's own, which no URL names: `backing` is not
    /// given. [`Stores::open_above`](crate::Stores::open_above) takes them, and nothing else opens with them.
    ///
    /// ```
    /// use unalike_bindings::{HostOptions, Stores};
    ///
    /// let options = HostOptions::read_above(r#"{"store": "redis://cache/0"}"#)?;
    /// assert!(Stores::open(&options).is_err()); // with nothing behind it
    /// # Ok::<(), unalike_bindings::Failure>(())
    /// ```
    ///
    /// # Errors
    /// As there; kind `options` where `backing` is given.
    pub fn read_above(json: &str) -> Result<Self, Failure> {
        // As if it were named: what can be wrong beside it is the same.
        Self::read_with(json, Some(&StoreUrl::new("none")))
    }

    fn read_with(json: &str, given: Option<&StoreUrl>) -> Result<Self, Failure> {
        let options: Self = read(json)?;
        if given.is_some() && options.backing.is_some() {
            return Err(Failure::options("backing is given twice: as a store, and by its URL"));
        }
        for (name, value, allowed) in [
            ("wait_max_ms", options.wait_max_ms, WAIT_MS),
            ("request_timeout_ms", options.request_timeout_ms, WAIT_MS),
            ("lease_skew_max_ms", options.lease_skew_max_ms, SKEW_MS),
        ] {
            if !allowed.contains(&value) {
                let (least, most) = (allowed.start(), allowed.end());
                return Err(Failure::options(format!("{name} is {value}, it must be {least} to {most}")));
            }
        }
        if options.tags_max == 0 {
            return Err(Failure::options("tags_max is 0, it must be 1 at least"));
        }
        options.limits().validate().map_err(|_| {
            let max_ms = LeaseLimits::HORIZON_MAX_MS;
            let given = options.lease_horizon_max_ms;
            Failure::options(format!("lease_horizon_max_ms is {given}, it must be 1 to {max_ms} (366 days)"))
        })?;
        if options.token.is_some() && options.remote_leases().is_none() && !options.is_remote() {
            return Err(Failure::options("token is for unalike servers, and no store is on one (http://HOST:8080)"));
        }
        if options.worker.is_some() && options.leases.as_ref().is_some_and(StoreUrl::is_nothing) {
            return Err(Failure::options("worker is about leases, and with leases = \"none\" there are none"));
        }
        Secrets::unread(&options.keys).map_err(unfit)?;
        options.check_stores(given).map_err(|error| Failure::options(with_causes(&error)))?;
        Ok(options)
    }

    /// Reads the URLs, that of the backing as if it were another one where one is given.
    fn check_stores(&self, given: Option<&StoreUrl>) -> Result<(), PlaceError> {
        let set = StoreSet { backing: given.or(self.backing.as_ref()), ..self.set() };
        if !self.is_remote() && self.store.iter().any(is_remote) {
            return Err(StoreError::refused(
                "servers are no stripes of a set: write one URL, with further servers after commas \
                 (http://ids-1:8080,ids-2:8080)",
            )
            .into());
        }
        for servers in self.store.iter().chain(&self.leases).filter(|url| is_remote(url)) {
            RemoteOptions::from_url(servers.text())?;
        }
        if !self.is_remote() {
            return set.validate();
        }
        if let Some(url) = set.leases.filter(|url| !url.is_nothing()) {
            url.lease_place()?;
        }
        set.validate_backing()
    }

    /// Whether the sequences are on unalike servers.
    pub(crate) fn is_remote(&self) -> bool {
        self.store.only().is_some_and(is_remote)
    }

    /// The servers that lease workers, if servers do.
    pub(crate) fn remote_leases(&self) -> Option<&StoreUrl> {
        match &self.leases {
            Some(url) => Some(url).filter(|url| is_remote(url)),
            None => self.store.only().filter(|url| is_remote(url)),
        }
    }

    /// The stores without those on servers.
    pub(crate) fn set(&self) -> StoreSet<'_> {
        let leases = self.leases.as_ref().filter(|url| !is_remote(url));
        StoreSet { stores: &self.store, backing: self.backing.as_ref(), leases }
    }

    pub(crate) fn limits(&self) -> LeaseLimits {
        LeaseLimits { max_horizon_ms: self.lease_horizon_max_ms, max_skew_ms: self.lease_skew_max_ms }
    }

    /// Reads the secrets from where they are.
    pub(crate) fn secrets(&self) -> Result<Secrets, Failure> {
        Secrets::read(&self.keys).map_err(unfit)
    }

    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_ref().map(|Secret(token)| token.as_str())
    }
}

/// Whether a URL names unalike servers.
pub(crate) fn is_remote(url: &StoreUrl) -> bool {
    matches!(url.scheme(), Some("http" | "https"))
}

/// What a sequence is opened with; what is not given is the tag's own, as its store keeps it.
///
/// ```
/// use unalike_bindings::SequenceOptionsText;
/// let options = SequenceOptionsText::read(r#"{"step": 1000, "refill": "10%", "id_max": 9007199254740991}"#)?;
/// assert_eq!(options.id_max, Some((1 << 53) - 1));
/// # Ok::<(), unalike_bindings::Failure>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SequenceOptionsText {
    /// How many numbers a segment asks for: `1000`, `adaptive`, or `adaptive:100..100000`.
    #[serde(deserialize_with = "text_or_number")]
    pub step: Option<StepPolicy>,
    /// When the next segment is asked for: a share used, `10%`, or a number remaining, `500`.
    #[serde(deserialize_with = "text_or_number")]
    pub refill: Option<RefillPolicy>,
    /// Whole segments to hold ahead, 1 to 64.
    pub prefetch: Option<u32>,
    /// The mode that the caller counts on: `buffered` or `ordered`.
    #[serde(deserialize_with = "mode")]
    pub mode: Option<Mode>,
    /// Among whom ids ascend: all threads of the `process`, or each `thread`.
    #[serde(deserialize_with = "order")]
    pub order: Option<Order>,
    /// The greatest id, 1 to 2^63 - 1.
    pub id_max: Option<u64>,
}

impl SequenceOptionsText {
    /// Reads them; an empty text is none.
    ///
    /// # Errors
    /// Kind `options`, saying which one is wrong.
    pub fn read(json: &str) -> Result<Self, Failure> {
        if json.is_empty() { Ok(Self::default()) } else { read(json) }
    }

    pub(crate) fn options(&self) -> SequenceOptions {
        let Self { step, refill, prefetch, mode, order, id_max } = *self;
        SequenceOptions { step, refill, prefetch, mode, order, id_max }
    }
}

/// Reads how ids are shown, as a table `[tags.NAME]` or `[snowflakes.NAME]` of the server's configuration says it.
///
/// ```
/// use unalike_bindings::read_format;
/// let settings = read_format(r#"{"template": "ORD-{yyyyMMdd}-{id:06}", "restart": "day", "utc_offset": "+08:00"}"#)?;
/// assert!(settings.restart.is_some());
/// # Ok::<(), unalike_bindings::Failure>(())
/// ```
///
/// # Errors
/// Kind `options`, saying what is wrong.
pub fn read_format(json: &str) -> Result<FormatSettings, Failure> {
    read(json)
}

/// Settings that give no format, or no secrets.
pub(crate) fn unfit(error: SettingsError) -> Failure {
    Failure::options(with_causes(&error))
}

/// What a snowflake generator is opened with, as in a table `[snowflakes.NAME]` of the server's configuration.
///
/// ```
/// use unalike_bindings::SnowflakeOptionsText;
/// let options = SnowflakeOptionsText::read(r#"{"layout": "41/10/12 epoch 2024-01-01", "clock": "keep:2000"}"#)?;
/// assert_eq!(options.horizon_ms, None);
/// # Ok::<(), unalike_bindings::Failure>(())
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnowflakeOptionsText {
    /// The layout, by the name of a preset or written out.
    pub layout: String,
    /// What happens when the clock goes back: `reject`, `wait:5` or `keep:2000`.
    #[serde(default, deserialize_with = "text_or_number")]
    pub clock: Option<ClockPolicy>,
    /// How far ahead of now a lease is asked for, in milliseconds.
    #[serde(default)]
    pub horizon_ms: Option<u64>,
    /// How far ahead of the clock a tick may begin, in milliseconds.
    #[serde(default)]
    pub ahead_max_ms: Option<u64>,
    /// Where in a tick the ids begin: `none`, `rotating:3` or `random:3`.
    #[serde(default, deserialize_with = "text_or_number")]
    pub spread: Option<Spread>,
}

impl SnowflakeOptionsText {
    /// Reads them.
    ///
    /// # Errors
    /// Kind `options`, saying which one is wrong.
    pub fn read(json: &str) -> Result<Self, Failure> {
        read(json)
    }

    /// # Errors
    /// Kind `options`, for a layout that does not exist.
    pub(crate) fn options(&self) -> Result<SnowflakeOptions, Failure> {
        let layout = match preset(&self.layout) {
            Some(preset) => preset.layout,
            None => self.layout.parse::<Layout>().map_err(|error| {
                Failure::options(format!(
                    "the layout {:?} is no preset, such as twitter or leaf, and cannot be read: {error}",
                    self.layout
                ))
            })?,
        };
        let defaults = SnowflakeOptions::new(layout);
        Ok(SnowflakeOptions {
            clock: self.clock.unwrap_or(defaults.clock),
            horizon_ms: self.horizon_ms.unwrap_or(defaults.horizon_ms),
            ahead_max_ms: self.ahead_max_ms.unwrap_or(defaults.ahead_max_ms),
            spread: self.spread.unwrap_or(defaults.spread),
            ..defaults
        })
    }
}

fn read<'de, T: Deserialize<'de>>(json: &'de str) -> Result<T, Failure> {
    let failed = |what: String| Failure::options(format!("the options cannot be read: {what}"));
    // A list would be taken for the fields in their order, and a text be shown, which may be a URL with a password.
    if !json.trim_ascii_start().starts_with('{') {
        return Err(failed("they are no JSON object, such as {\"store\": \"sqlite://ids.sqlite\"}".to_owned()));
    }
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let read = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let what = without_values(&error.inner().to_string());
        // Of the object itself there is no path, and of a name that it has not the message has it.
        let is_field = path.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') && !what.contains(&path);
        failed(if is_field { format!("{path}: {what}") } else { what })
    })?;
    deserializer.end().map_err(|error| failed(error.to_string()))?;
    Ok(read)
}

/// A message of serde's without what was given, which may be a secret in the wrong place.
fn without_values(message: &str) -> String {
    let mut shown = message.to_owned();
    if let Some((before, behind)) = shown.split_once("string \"")
        && let Some((_, behind)) = behind.rsplit_once("\", expected")
    {
        shown = format!("{before}text, expected{behind}");
    }
    if let Some((before, behind)) = shown.split_once("unknown field `")
        && let Some((name, behind)) = behind.split_once("`, expected")
        && !(name.len() <= 32 && name.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_'))
    {
        shown = format!("{before}unknown field, expected{behind}");
    }
    shown
}

fn text_or_number<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a text or a whole number")]
    enum TextOrNumber {
        Number(u64),
        Text(String),
    }
    let text = match Option::deserialize(deserializer)? {
        Some(TextOrNumber::Number(number)) => number.to_string(),
        Some(TextOrNumber::Text(text)) => text,
        None => return Ok(None),
    };
    text.parse().map(Some).map_err(|error| serde::de::Error::custom(format!("{text:?}: {error}")))
}

fn mode<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Mode>, D::Error> {
    word(deserializer, "buffered or ordered", Mode::named)
}

fn order<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Order>, D::Error> {
    word(deserializer, "process or thread", |word| match word {
        "process" => Some(Order::Process),
        "thread" => Some(Order::Thread),
        _ => None,
    })
}

fn word<'de, T, D: Deserializer<'de>>(
    deserializer: D,
    words: &str,
    meaning: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, D::Error> {
    let Some(word) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let meant = meaning(&word).ok_or_else(|| serde::de::Error::custom(format!("{word:?}: it must be {words}")))?;
    Ok(Some(meant))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_used_is_refused_before_anything_is_opened() {
        for (json, named) in [
            ("", "no JSON object"),
            ("{", "the options cannot be read: EOF"),
            (r#"["sqlite://a", "none"]"#, "no JSON object"),
            (r#""mysql://ids:hunter2@h/ids""#, "no JSON object"),
            (r#"{"mysql://ids:hunter2@h/ids": 5}"#, "unknown field, expected one of `store`"),
            (
                r#"{"store": "sqlite://a", "worker": "mysql://ids:hunter2@h/ids"}"#,
                "worker: invalid type: text, expected",
            ),
            (r#"{"store": "http://h", "token": ["hunter2"]}"#, "token: it must be a text"),
            (r#"{"store": "http://h?token=hunter2", "backing": "none"}"#, "has a secret in it"),
            (r#"{"store": ["http://h?token=hunter2", "sqlite://a"]}"#, "no stripes of a set"),
            (r#"{"store": "http://ids:hunter2@h"}"#, "no server takes"),
            (r#"{"store": "http://h", "leases": "sqlit://b"}"#, "sqlit"),
            (r#"{"store": "sqlite://a", "store": "sqlite://b"}"#, "duplicate field `store`"),
            (r#"{"store": "sqlite://a"} {}"#, "trailing characters"),
            (r#"{"store": "sqlite://a?colour=red"}"#, "colour"),
            (r#"{"store": "sqlite://a", "lease_skew_max_ms": 3600001}"#, "lease_skew_max_ms is 3600001"),
            (r#"{"store": "sqlite://a", "leases": "none", "worker": 3}"#, "worker is about leases"),
            ("{}", "missing field `store`"),
            (r#"{"store": 5}"#, "store: a URL, or a list of URLs"),
            (r#"{"store": "ids.sqlite"}"#, "is not a URL"),
            (r#"{"store": "sqlite://a", "wait_max_ms": 0}"#, "wait_max_ms is 0"),
            (r#"{"store": "sqlite://a", "request_timeout_ms": 600001}"#, "request_timeout_ms is 600001"),
            (r#"{"store": "sqlite://a", "tags_max": 0}"#, "tags_max is 0"),
            (r#"{"store": "sqlite://a", "lease_horizon_max_ms": 0}"#, "lease_horizon_max_ms is 0"),
            (r#"{"store": "sqlite://a", "backing": "sqlite://b"}"#, "is not in Redis"),
            (r#"{"store": "redis://ids:hunter2@h/0"}"#, "--backing"),
            (r#"{"store": "sqlite://a", "token": "hunter2"}"#, "no store is on one"),
            (r#"{"store": "http://h", "token": "hunter2", "backing": "none"}"#, "is not in Redis"),
            (r#"{"store": "http://h", "leases": "redis://ids:hunter2@h/0"}"#, "--backing"),
            (r#"{"store": "sqlite://a", "leases": "sqlit://b"}"#, "sqlit"),
        ] {
            let failure = HostOptions::read(json).expect_err(json);
            assert!(failure.message.contains(named), "{json}: {failure}");
            assert!(!failure.message.contains("hunter2"), "{failure}");
            assert_eq!((failure.kind, failure.is_retryable), ("options", false));
        }
        let options = HostOptions::read(r#"{"store": "http://h", "token": "hunter2"}"#).expect("a server");
        assert!(!format!("{options:?}").contains("hunter2"));
        assert_eq!(options.remote_leases().map(StoreUrl::text), Some("http://h"));
    }

    #[test]
    fn options_of_generators_are_read_as_the_configuration_writes_them() {
        let read = |json| SequenceOptionsText::read(json).map(|options| options.options());
        assert_eq!(read(""), Ok(SequenceOptions::default()));
        assert_eq!(read("{}"), Ok(SequenceOptions::default()));
        let given = r#"{"step": "adaptive:5..50", "refill": 7, "prefetch": 2, "mode": "ordered", "order": null}"#;
        let options = read(given).expect(given);
        assert_eq!(options.step.map(|step| step.to_string()).as_deref(), Some("adaptive:5..50"));
        assert_eq!(options.refill, Some(RefillPolicy::Remaining { count: 7 }));
        assert_eq!((options.prefetch, options.mode, options.order), (Some(2), Some(Mode::Ordered), None));
        for (json, named) in [
            (r#"{"step": 0}"#, "the step is 0"),
            (r#"{"step": -1}"#, "step: a text or a whole number"),
            (r#"{"step": "ten"}"#, "step: \"ten\": it is neither a number"),
            (r#"{"refill": "200%"}"#, "0% to 100%"),
            (r#"{"mode": "strict"}"#, "buffered or ordered"),
            (r#"{"order": "node"}"#, "process or thread"),
            (r#"{"id_max": 1.5}"#, "1.5"),
            (r#"{"steps": 1}"#, "unknown field `steps`"),
        ] {
            let failure = read(json).expect_err(json);
            assert!(failure.message.contains(named), "{json}: {failure}");
        }
        let read = |json| SnowflakeOptionsText::read(json).and_then(|options| options.options());
        assert_eq!(read(r#"{"layout": "twitter"}"#), Ok(SnowflakeOptions::new(Layout::TWITTER)));
        let given = r#"{"layout": "leaf", "clock": "wait:5", "spread": "rotating:3", "ahead_max_ms": 0}"#;
        let options = read(given).expect(given);
        assert_eq!((options.clock, options.spread), (ClockPolicy::Wait { max_ms: 5 }, Spread::Rotating { bits: 3 }));
        assert_eq!((options.layout, options.ahead_max_ms), (Layout::LEAF, 0));
        for (json, named) in [
            ("{}", "missing field `layout`"),
            (r#"{"layout": "leav"}"#, "\"leav\" is no preset"),
            (r#"{"layout": "leaf", "clock": "wait"}"#, "wait:MS"),
            (r#"{"layout": "leaf", "spread": "rotating"}"#, "rotating:BITS"),
        ] {
            let failure = read(json).expect_err(json);
            assert!(failure.message.contains(named), "{json}: {failure}");
        }
    }
}
