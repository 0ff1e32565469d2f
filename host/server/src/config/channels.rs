//! The four channels of an issuer of numbers, by name: what a tag that is declared as one of them gets.
//!
//! | channel | what it is here | settings |
//! | --- | --- | --- |
//! | `unordered` | buffered, a fixed step of `buff_size` (5000), the next segment when `lowest_critical_value` (500) numbers are left | all three |
//! | `ordered` | strictly increasing across all nodes, from Redis: the mode `ordered` of a tag of such a store | none |
//! | `quick` | the snowflake of the same name | none |
//! | `slow-ordered` | strictly increasing across all nodes: the mode `ordered` of a tag of any store | none |
//!
//! Over Redis the mode is kept by the durable store behind it. Tables of other systems say nothing of modes, and refuse
//! an ordered tag.
//!
//! Ids of an unordered tag begin with its `prefix`. In the issuer's own table (`dialect=batch`) they are the prefix, a
//! batch number and an offset. In any other store the tag's first number is the prefix followed by zeros, 18 digits in
//! all, so that ids begin with it until `10^(18 - digits of the prefix)` of them are used up.
//!
//! A tag that is declared in the configuration is created when the server starts. If the store has it already, the
//! store decides: another mode is an error, since one node that buffers would break the order that the others promise;
//! another step or refill is a warning, since all nodes share what the store says (`unalike tags change` changes it).

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use unalike::storage::{Mode, StoreError, TagOptions, TagRecord};
use unalike::{RefillPolicy, StepPolicy};

/// How the ids of a tag are made, in the issuer's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Channel {
    /// Buffered: ascending per process, the fastest of a store's
    Unordered,
    /// Strictly increasing across all nodes, from a store in Redis
    Ordered,
    /// The snowflake of the same name
    Quick,
    /// Strictly increasing across all nodes, one request to the store for all who wait
    SlowOrdered,
}

/// A channel and its settings, as they are given: a table `[tags.NAME]`, flags, or members of a JSON body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChannelConfig {
    pub(crate) channel: Channel,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) buff_size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lowest_critical_value: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prefix: Option<u64>,
}

/// What a declaration means, once it is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Declared {
    /// From the snowflake of the same name: the store has no such tag.
    Quick,
    Unordered(Unordered),
    /// Only from a store in Redis: whoever has the store asks [`needs_redis`].
    Ordered,
    SlowOrdered,
}

/// The settings of an unordered tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unordered {
    /// How many ids are fetched at once: 1 or more.
    pub(crate) buff_size: u64,
    /// How many are left when the next are fetched: below `buff_size`.
    pub(crate) lowest_critical_value: u64,
    /// What ids begin with: 1 to 17 digits.
    pub(crate) prefix: Option<u64>,
}

const BUFF_SIZE: u64 = 5_000;
const LOWEST_CRITICAL_VALUE: u64 = 500;

/// Digits of an id that begins with a prefix.
const ID_DIGITS: u32 = 18;

/// The greatest prefix: at least one digit follows it.
pub(crate) const PREFIX_MAX: u64 = 10_u64.pow(ID_DIGITS - 1) - 1;

impl ChannelConfig {
    /// What it means for this tag.
    ///
    /// # Errors
    /// [`StoreError::TagInvalid`], saying which setting is wrong.
    pub(crate) fn declared(&self, tag: &str) -> Result<Declared, StoreError> {
        let invalid = |reason: String| Err(StoreError::TagInvalid { tag: tag.to_owned(), reason });
        if self.channel != Channel::Unordered {
            let given = [
                ("buff_size", self.buff_size),
                ("lowest_critical_value", self.lowest_critical_value),
                ("prefix", self.prefix),
            ];
            if let Some((name, _)) = given.into_iter().find(|(_, value)| value.is_some()) {
                return invalid(format!("{name} belongs only to the channel unordered"));
            }
        }
        match self.channel {
            Channel::Quick => Ok(Declared::Quick),
            Channel::SlowOrdered => Ok(Declared::SlowOrdered),
            Channel::Ordered => Ok(Declared::Ordered),
            Channel::Unordered => {
                let buff_size = self.buff_size.unwrap_or(BUFF_SIZE);
                let lowest = self.lowest_critical_value.unwrap_or_else(|| LOWEST_CRITICAL_VALUE.min(buff_size / 10));
                if lowest >= buff_size {
                    return invalid(format!(
                        "lowest_critical_value is {lowest}, it must be below buff_size, {buff_size}"
                    ));
                }
                if let Some(prefix) = self.prefix
                    && !(1..=PREFIX_MAX).contains(&prefix)
                {
                    return invalid(format!(
                        "its prefix is {prefix}, it must be 1 or more, and have 17 digits at most"
                    ));
                }
                let unordered = Unordered { buff_size, lowest_critical_value: lowest, prefix: self.prefix };
                unordered.options().validate(tag)?;
                Ok(Declared::Unordered(unordered))
            }
        }
    }
}

/// Why a tag of the channel `ordered` cannot be in a store that is not in Redis.
pub(crate) fn needs_redis(tag: &str) -> StoreError {
    let reason =
        "the channel ordered takes its numbers from a store in Redis (--store redis://HOST/DATABASE), and this \
                  store is not: slow-ordered is as strictly increasing, in any store"
            .to_owned();
    StoreError::TagInvalid { tag: tag.to_owned(), reason }
}

impl Declared {
    /// The options of the tag, where a store has it.
    pub(crate) fn options(&self) -> Option<TagOptions> {
        match self {
            Self::Quick => None,
            Self::Unordered(unordered) => Some(unordered.options()),
            Self::Ordered | Self::SlowOrdered => Some(TagOptions { mode: Mode::Ordered, ..TagOptions::default() }),
        }
    }

    /// Compares it with what a store has: the difference that may stay, if there is one.
    ///
    /// # Errors
    /// Says why the tag cannot be used as it is declared.
    pub(crate) fn compare(&self, record: &TagRecord) -> Result<Option<String>, String> {
        let Some(wanted) = self.options() else { return Ok(None) };
        let stored = &record.options;
        if wanted.mode != stored.mode {
            return Err(format!(
                "it is {} in the store, and was declared {}; a tag's mode cannot be changed: declare it so, or use another tag",
                stored.mode.name(),
                wanted.mode.name()
            ));
        }
        // Ordered tags fetch what is asked for.
        let differs = wanted.mode == Mode::Buffered && (wanted.step, wanted.refill) != (stored.step, stored.refill);
        Ok(differs.then(|| {
            "its step or refill in the store is not as declared, and the store's counts: see `unalike tags change`"
                .to_owned()
        }))
    }
}

impl Unordered {
    fn options(&self) -> TagOptions {
        // At most 17 digits, of which none is cut off.
        let start = self.prefix.map_or(1, |prefix| prefix * 10_u64.pow(ID_DIGITS - 1 - prefix.ilog10()));
        TagOptions {
            start,
            step: StepPolicy::Fixed { step: self.buff_size },
            refill: RefillPolicy::Remaining { count: self.lowest_critical_value },
            mode: Mode::Buffered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNORDERED: ChannelConfig =
        ChannelConfig { channel: Channel::Unordered, buff_size: None, lowest_critical_value: None, prefix: None };

    fn options(config: ChannelConfig) -> TagOptions {
        config.declared("order").unwrap().options().unwrap()
    }

    #[test]
    fn an_unordered_tag_fetches_5000_when_500_are_left() {
        let plain = options(UNORDERED);
        assert_eq!(plain.start, 1);
        assert_eq!(plain.step, StepPolicy::Fixed { step: 5_000 });
        assert_eq!(plain.refill, RefillPolicy::Remaining { count: 500 });
        assert_eq!(
            options(ChannelConfig { buff_size: Some(1), ..UNORDERED }).refill,
            RefillPolicy::Remaining { count: 0 }
        );
    }

    #[test]
    fn a_prefix_is_followed_by_zeros_to_18_digits() {
        for (prefix, start) in [
            (1, 100_000_000_000_000_000),
            (42, 420_000_000_000_000_000),
            (9, 900_000_000_000_000_000),
            (99_999_999_999_999_999, 999_999_999_999_999_990),
        ] {
            assert_eq!(options(ChannelConfig { prefix: Some(prefix), ..UNORDERED }).start, start);
        }
    }

    #[test]
    fn what_does_not_fit_a_channel_is_refused() {
        for (config, named) in [
            (ChannelConfig { prefix: Some(0), ..UNORDERED }, "prefix is 0"),
            (ChannelConfig { prefix: Some(100_000_000_000_000_000), ..UNORDERED }, "17 digits"),
            (ChannelConfig { buff_size: Some(0), ..UNORDERED }, "buff_size"),
            (ChannelConfig { lowest_critical_value: Some(5_000), ..UNORDERED }, "below buff_size, 5000"),
            (ChannelConfig { channel: Channel::SlowOrdered, prefix: Some(1), ..UNORDERED }, "prefix belongs"),
            (ChannelConfig { channel: Channel::Quick, buff_size: Some(1), ..UNORDERED }, "buff_size belongs"),
            (ChannelConfig { channel: Channel::Ordered, buff_size: Some(1), ..UNORDERED }, "buff_size belongs"),
        ] {
            let error = config.declared("order").unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn another_mode_in_the_store_is_an_error_and_another_step_a_remark() {
        let record = |options| TagRecord { tag: "order".into(), options, watermark: 0, version: 0 };
        let slow = ChannelConfig { channel: Channel::SlowOrdered, ..UNORDERED }.declared("order").unwrap();
        let unordered = UNORDERED.declared("order").unwrap();
        slow.compare(&record(TagOptions::default())).unwrap_err();
        let ordered = ChannelConfig { channel: Channel::Ordered, ..UNORDERED }.declared("order").unwrap();
        ordered.compare(&record(TagOptions::default())).unwrap_err();
        assert_eq!(ordered.compare(&record(slow.options().unwrap())), Ok(None));
        unordered.compare(&record(slow.options().unwrap())).unwrap_err();
        assert_eq!(unordered.compare(&record(unordered.options().unwrap())), Ok(None));
        assert_eq!(slow.compare(&record(slow.options().unwrap())), Ok(None));
        assert!(unordered.compare(&record(TagOptions::default())).unwrap().is_some());
    }
}
