//! A tag's record and options as JSON and as text.
//!
//! In JSON every number that may need more than 53 bits is a string on the way out, and a string or a number on the way
//! in.

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};
use unalike::storage::{Ceiling, StoreError, TagOptions, TagRecord, split_tag};
use unalike::{AdaptiveStep, Mode, RefillPolicy, StepPolicy};

use crate::config::channels::{Channel, ChannelConfig, Declared};
use crate::config::names::plain_tag;
use crate::words::decimal;

/// A whole number of 64 bits: a string in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number(pub(crate) u64);

impl Serialize for Number {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Number;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a whole number from 0 to 2^64 - 1, or a string of one")
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Number, E> {
                Ok(Number(value))
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Number, E> {
                decimal(value).map(Number).ok_or_else(|| E::invalid_value(de::Unexpected::Str(value), &self))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// How many numbers a segment asks for. Figures that are not given are the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "policy",
    rename_all = "kebab-case",
    deny_unknown_fields,
    expecting = "an object with a policy: {\"policy\":\"fixed\",\"step\":1000} or {\"policy\":\"adaptive\"}"
)]
pub(crate) enum StepJson {
    Fixed {
        step: Number,
    },
    Adaptive {
        #[serde(default = "initial")]
        initial: Number,
        #[serde(default = "min")]
        min: Number,
        #[serde(default = "max")]
        max: Number,
        #[serde(default = "grow_below_ms")]
        grow_below_ms: Number,
        #[serde(default = "shrink_above_ms")]
        shrink_above_ms: Number,
    },
}

fn initial() -> Number {
    Number(AdaptiveStep::default().initial)
}

fn min() -> Number {
    Number(AdaptiveStep::default().min)
}

fn max() -> Number {
    Number(AdaptiveStep::default().max)
}

fn grow_below_ms() -> Number {
    Number(AdaptiveStep::default().grow_below_ms)
}

fn shrink_above_ms() -> Number {
    Number(AdaptiveStep::default().shrink_above_ms)
}

impl From<StepPolicy> for StepJson {
    fn from(policy: StepPolicy) -> Self {
        match policy {
            StepPolicy::Fixed { step } => Self::Fixed { step: Number(step) },
            StepPolicy::Adaptive(adaptive) => Self::Adaptive {
                initial: Number(adaptive.initial),
                min: Number(adaptive.min),
                max: Number(adaptive.max),
                grow_below_ms: Number(adaptive.grow_below_ms),
                shrink_above_ms: Number(adaptive.shrink_above_ms),
            },
        }
    }
}

impl From<StepJson> for StepPolicy {
    fn from(json: StepJson) -> Self {
        match json {
            StepJson::Fixed { step } => Self::Fixed { step: step.0 },
            StepJson::Adaptive { initial, min, max, grow_below_ms, shrink_above_ms } => Self::Adaptive(AdaptiveStep {
                initial: initial.0,
                min: min.0,
                max: max.0,
                grow_below_ms: grow_below_ms.0,
                shrink_above_ms: shrink_above_ms.0,
            }),
        }
    }
}

/// When the next segment is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "policy",
    rename_all = "kebab-case",
    deny_unknown_fields,
    expecting = "an object with a policy: {\"policy\":\"share-consumed\",\"percent\":10} or \
                 {\"policy\":\"remaining\",\"count\":500}"
)]
pub(crate) enum RefillJson {
    ShareConsumed { percent: u8 },
    Remaining { count: Number },
}

impl From<RefillPolicy> for RefillJson {
    fn from(policy: RefillPolicy) -> Self {
        match policy {
            RefillPolicy::ShareConsumed { percent } => Self::ShareConsumed { percent },
            RefillPolicy::Remaining { count } => Self::Remaining { count: Number(count) },
        }
    }
}

impl From<RefillJson> for RefillPolicy {
    fn from(json: RefillJson) -> Self {
        match json {
            RefillJson::ShareConsumed { percent } => Self::ShareConsumed { percent },
            RefillJson::Remaining { count } => Self::Remaining { count: count.0 },
        }
    }
}

/// A tag as its store keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct TagJson {
    tag: String,
    /// Where it is the record of a sub-key.
    #[serde(skip_serializing_if = "Option::is_none")]
    sub: Option<String>,
    mode: &'static str,
    start: Number,
    step: StepJson,
    refill: RefillJson,
    /// The greatest number that may have been handed out; `start - 1` before the first grant.
    watermark: Number,
    /// Grows with every grant, release and raise.
    version: Number,
    /// Where it is asked for, and a store in Redis has one for the tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    ceiling: Option<CeilingJson>,
    /// Why a change changed nothing, where it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    unchanged: Option<String>,
}

/// How far a tag has got below its ceiling, and how much it was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct CeilingJson {
    /// The number that was handed out last.
    cur: Number,
    /// The ceiling.
    max: Number,
    /// How many numbers were handed out in the last 5 minutes.
    seq_recently: Number,
    /// How many numbers were handed out in the last 30 minutes.
    seq_long_term: Number,
}

impl TagJson {
    /// With the reason why a change changed nothing, if it did not.
    pub(crate) fn unchanged(mut self, why: Option<String>) -> Self {
        self.unchanged = why;
        self
    }

    /// With its ceiling, where there is one.
    pub(crate) fn below(mut self, ceiling: Option<Ceiling>) -> Self {
        self.ceiling = ceiling.map(|Ceiling { last, max, used_recently, used_long_term }| CeilingJson {
            cur: Number(last),
            max: Number(max),
            seq_recently: Number(used_recently),
            seq_long_term: Number(used_long_term),
        });
        self
    }
}

impl From<TagRecord> for TagJson {
    fn from(record: TagRecord) -> Self {
        let TagOptions { start, step, refill, mode } = record.options;
        let (tag, sub) = split_tag(&record.tag);
        Self {
            tag: tag.to_owned(),
            sub: sub.map(str::to_owned),
            mode: mode.name(),
            start: Number(start),
            step: step.into(),
            refill: refill.into(),
            watermark: Number(record.watermark),
            version: Number(record.version),
            ceiling: None,
            unchanged: None,
        }
    }
}

/// The body of a request that creates a tag.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object such as {\"tag\":\"order\"}")]
pub(crate) struct TagCreate {
    /// Its name.
    pub(crate) tag: String,
    /// The first number; 1 by default.
    start: Option<Number>,
    step: Option<StepJson>,
    refill: Option<RefillJson>,
    mode: Option<ModeJson>,
    /// A channel in place of all these, and its settings.
    channel: Option<Channel>,
    buff_size: Option<Number>,
    lowest_critical_value: Option<Number>,
    prefix: Option<Number>,
}

/// What a new tag is to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewTag {
    Options(TagOptions),
    Declared(Declared),
}

impl TagCreate {
    /// What it asks for.
    ///
    /// # Errors
    /// [`StoreError::TagInvalid`] when that cannot be.
    pub(crate) fn new_tag(&self) -> Result<NewTag, StoreError> {
        plain_tag(&self.tag)?;
        let invalid = |reason: &str| StoreError::TagInvalid { tag: self.tag.clone(), reason: reason.to_owned() };
        let Self { start, step, refill, mode, channel, buff_size, lowest_critical_value, prefix, .. } = self;
        let is_channel_s = buff_size.is_some() || lowest_critical_value.is_some() || prefix.is_some();
        let is_plain = start.is_some() || step.is_some() || refill.is_some() || mode.is_some();
        match *channel {
            None if is_channel_s => Err(invalid("buff_size, lowest_critical_value and prefix need a channel")),
            None => Ok(NewTag::Options(self.options())),
            Some(_) if is_plain => Err(invalid("a channel replaces start, step, refill and mode: leave them out")),
            Some(channel) => {
                let number = |value: Option<Number>| value.map(|number| number.0);
                let config = ChannelConfig {
                    channel,
                    buff_size: number(*buff_size),
                    lowest_critical_value: number(*lowest_critical_value),
                    prefix: number(*prefix),
                };
                config.declared(&self.tag).map(NewTag::Declared)
            }
        }
    }

    fn options(&self) -> TagOptions {
        let defaults = TagOptions::default();
        TagOptions {
            start: self.start.map_or(defaults.start, |start| start.0),
            step: self.step.map_or(defaults.step, Into::into),
            refill: self.refill.map_or(defaults.refill, Into::into),
            mode: self.mode.map_or(defaults.mode, Into::into),
        }
    }
}

/// The body of a request that changes a tag; what is not given stays.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with step, refill or raise_to")]
pub(crate) struct TagChange {
    pub(crate) step: Option<StepJson>,
    pub(crate) refill: Option<RefillJson>,
    /// Every later segment starts here or above; never lowered.
    pub(crate) raise_to: Option<Number>,
    /// That a raise by more than [`RAISE_MAX`] is meant.
    pub(crate) confirm: Option<bool>,
}

/// [`Mode`] as a word.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", expecting = "buffered or ordered")]
enum ModeJson {
    Buffered,
    Ordered,
}

impl From<ModeJson> for Mode {
    fn from(json: ModeJson) -> Self {
        match json {
            ModeJson::Buffered => Self::Buffered,
            ModeJson::Ordered => Self::Ordered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_takes_numbers_and_strings_and_gives_strings() {
        let body = r#"{"tag":"t","start":"18446744073709551615","step":{"policy":"adaptive","min":7}}"#;
        let options = serde_json::from_str::<TagCreate>(body).unwrap().options();
        assert_eq!(options.start, u64::MAX);
        let adaptive = AdaptiveStep { min: 7, ..AdaptiveStep::default() };
        assert_eq!(options.step, StepPolicy::Adaptive(adaptive));
        let refill = RefillJson::from(RefillPolicy::Remaining { count: 5 });
        assert_eq!(serde_json::to_string(&refill).unwrap(), r#"{"policy":"remaining","count":"5"}"#);
    }

    #[test]
    fn json_refuses_what_it_does_not_know() {
        for body in [
            r#"{"tag":"t","stepp":1}"#,
            r#"{"tag":"t","start":-1}"#,
            r#"{"tag":"t","start":"+1"}"#,
            r#"{"tag":"t","start":1.5}"#,
            r#"{"tag":"t","step":{"policy":"fixed","step":1,"min":2}}"#,
            r#"{"tag":"t","step":{"policy":"leaf"}}"#,
            r#"{"tag":"t","mode":"fast"}"#,
        ] {
            serde_json::from_str::<TagCreate>(body).expect_err(body);
        }
    }
}
