//! How a snowflake stamps its ids, as the configuration writes it: `clock = "wait:5"`.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use unalike::{ClockPolicy, Spread};

/// A clock that is further behind than an hour is set, not waited for.
const BEHIND_MAX_MS: RangeInclusive<u64> = 1..=3_600_000;

/// `reject`, `wait:5` or `keep:2000`: what happens when the clock goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockText(pub(crate) ClockPolicy);

impl ClockText {
    fn read(text: &str) -> Option<Self> {
        if text == "reject" {
            return Some(Self(ClockPolicy::Reject));
        }
        let (word, number) = text.split_once(':')?;
        let max_ms = number.parse().ok().filter(|max_ms| BEHIND_MAX_MS.contains(max_ms))?;
        match word {
            "wait" => Some(Self(ClockPolicy::Wait { max_ms })),
            "keep" => Some(Self(ClockPolicy::Keep { max_ms })),
            _ => None,
        }
    }
}

impl fmt::Display for ClockText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ClockPolicy::Reject => f.write_str("reject"),
            ClockPolicy::Wait { max_ms } => write!(f, "wait:{max_ms}"),
            ClockPolicy::Keep { max_ms } => write!(f, "keep:{max_ms}"),
        }
    }
}

impl Serialize for ClockText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ClockText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "must be reject, wait:MS or keep:MS, with 1 to 3600000 ms";
        deserialized(deserializer, Self::read, expected)
    }
}

const SPREADS: &str = "must be none, rotating:BITS or random:BITS";

/// `none`, `rotating:3` or `random:3`: where in a tick the ids begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpreadText(pub(crate) Spread);

impl SpreadText {
    fn read(text: &str) -> Option<Self> {
        if text == "none" {
            return Some(Self(Spread::None));
        }
        let (word, number) = text.split_once(':')?;
        let bits = number.parse().ok()?;
        match word {
            "rotating" => Some(Self(Spread::Rotating { bits })),
            "random" => Some(Self(Spread::Random { bits })),
            _ => None,
        }
    }
}

impl FromStr for SpreadText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::read(text).ok_or_else(|| SPREADS.to_owned())
    }
}

impl fmt::Display for SpreadText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Spread::None => f.write_str("none"),
            Spread::Rotating { bits } => write!(f, "rotating:{bits}"),
            Spread::Random { bits } => write!(f, "random:{bits}"),
        }
    }
}

impl Serialize for SpreadText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SpreadText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialized(deserializer, Self::read, SPREADS)
    }
}

fn deserialized<'de, T, D: Deserializer<'de>>(
    deserializer: D,
    read: fn(&str) -> Option<T>,
    expected: &str,
) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    read(&text).ok_or_else(|| serde::de::Error::custom(format!("{text:?} {expected}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_read() {
        for text in ["reject", "wait:5", "keep:2000", "keep:3600000"] {
            assert_eq!(ClockText::read(text).unwrap().to_string(), text);
        }
        for text in ["none", "rotating:3", "random:12"] {
            assert_eq!(SpreadText::read(text).unwrap().to_string(), text);
        }
        for text in ["", "rotating", "rotating:", "rotating:256", "random:-1", "none:3", "even:3"] {
            assert_eq!(SpreadText::read(text), None, "{text}");
        }
        for text in
            ["", "Reject", "reject:5", "wait", "wait:", "wait:0", "keep:-1", "keep:3600001", "keep:2s", "stop:5"]
        {
            assert_eq!(ClockText::read(text), None, "{text}");
        }
    }
}
