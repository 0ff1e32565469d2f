//! Policies as people write them, in commands, configurations and the options of bindings. What their `Display` prints
//! is read as the same, but for an adaptive step's start and times, which have no text.
//!
//! No component contains it. It is here since only the crate of a type can implement `Display` and `FromStr` for it.

use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;

use crate::{AdaptiveStep, ClockPolicy, RefillPolicy, Spread, StepPolicy};

/// A clock that is further behind than an hour is set, not waited for. In milliseconds.
const BEHIND_MAX_MS: RangeInclusive<u64> = 1..=3_600_000;

/// Why a text is not the policy that it was to be.
///
/// ```
/// use unalike_core::{PolicyTextError, RefillPolicy, StepPolicy};
/// assert_eq!("ten".parse::<StepPolicy>(), Err(PolicyTextError::Step));
/// assert_eq!("101%".parse::<RefillPolicy>(), Err(PolicyTextError::Share { percent: 101 }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyTextError {
    /// No step policy.
    Step,
    /// A fixed step that is none.
    StepFixed {
        /// The number.
        step: u64,
    },
    /// An adaptive step whose bounds are none.
    StepBounds {
        /// The least step.
        min: u64,
        /// The greatest step.
        max: u64,
    },
    /// No refill policy.
    Refill,
    /// A share that is none.
    Share {
        /// The number.
        percent: u64,
    },
    /// No clock policy.
    Clock,
    /// No spread.
    Spread,
}

impl fmt::Display for PolicyTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step => f.write_str("it is neither a number nor adaptive nor adaptive:MIN..MAX"),
            Self::StepFixed { step } => write!(f, "the step is {step}, it must be 1 to 2^63 - 1"),
            Self::StepBounds { min, max } if min > max => {
                write!(f, "MIN is {min} and MAX is {max}: MIN must not be above MAX")
            }
            Self::StepBounds { min, max } => {
                write!(f, "MIN is {min} and MAX is {max}: both must be 1 to 2^63 - 1")
            }
            Self::Refill => f.write_str("it is neither a share such as 10% nor a number"),
            Self::Share { percent } => write!(f, "the share is {percent}%, it must be 0% to 100%"),
            Self::Clock => f.write_str("it must be reject, wait:MS or keep:MS, with 1 to 3600000 ms"),
            Self::Spread => f.write_str("it must be none, rotating:BITS or random:BITS"),
        }
    }
}

impl core::error::Error for PolicyTextError {}

/// `1000`, `adaptive`, or `adaptive:100..100000`.
///
/// ```
/// use unalike_core::{AdaptiveStep, StepPolicy};
/// assert_eq!("1000".parse(), Ok(StepPolicy::Fixed { step: 1_000 }));
/// assert_eq!("adaptive".parse(), Ok(StepPolicy::Adaptive(AdaptiveStep::default())));
/// ```
impl FromStr for StepPolicy {
    type Err = PolicyTextError;

    fn from_str(text: &str) -> Result<Self, PolicyTextError> {
        let number = |text: &str| whole(text).ok_or(PolicyTextError::Step);
        let policy = match text.strip_prefix("adaptive") {
            None => Self::Fixed { step: number(text)? },
            Some("") => Self::default(),
            Some(bounds) => {
                let bounds = bounds.strip_prefix(':').and_then(|bounds| bounds.split_once(".."));
                let (min, max) = bounds.ok_or(PolicyTextError::Step)?;
                let (min, max) = (number(min)?, number(max)?);
                let defaults = AdaptiveStep::default();
                // Not `clamp`: bounds in the wrong order are an error below, not a panic here.
                let initial = defaults.initial.max(min).min(max);
                Self::Adaptive(AdaptiveStep { initial, min, max, ..defaults })
            }
        };
        policy.validate().map(|()| policy).map_err(|_| match policy {
            Self::Fixed { step } => PolicyTextError::StepFixed { step },
            Self::Adaptive(AdaptiveStep { min, max, .. }) => PolicyTextError::StepBounds { min, max },
        })
    }
}

impl fmt::Display for StepPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed { step } => step.fmt(f),
            Self::Adaptive(AdaptiveStep { min, max, .. }) => write!(f, "adaptive:{min}..{max}"),
        }
    }
}

/// `10%` used, or `500` remaining.
///
/// ```
/// use unalike_core::RefillPolicy;
/// assert_eq!("10%".parse(), Ok(RefillPolicy::ShareConsumed { percent: 10 }));
/// assert_eq!("500".parse(), Ok(RefillPolicy::Remaining { count: 500 }));
/// ```
impl FromStr for RefillPolicy {
    type Err = PolicyTextError;

    fn from_str(text: &str) -> Result<Self, PolicyTextError> {
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent = whole(percent).ok_or(PolicyTextError::Refill)?;
                let policy = u8::try_from(percent).ok().map(|percent| Self::ShareConsumed { percent });
                policy.filter(|policy| policy.validate().is_ok()).ok_or(PolicyTextError::Share { percent })
            }
            None => whole(text).map(|count| Self::Remaining { count }).ok_or(PolicyTextError::Refill),
        }
    }
}

impl fmt::Display for RefillPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShareConsumed { percent } => write!(f, "{percent}%"),
            Self::Remaining { count } => count.fmt(f),
        }
    }
}

/// `reject`, `wait:5` or `keep:2000`, up to an hour in milliseconds.
///
/// ```
/// use unalike_core::ClockPolicy;
/// assert_eq!("wait:5".parse(), Ok(ClockPolicy::Wait { max_ms: 5 }));
/// ```
impl FromStr for ClockPolicy {
    type Err = PolicyTextError;

    fn from_str(text: &str) -> Result<Self, PolicyTextError> {
        if text == "reject" {
            return Ok(Self::Reject);
        }
        match figure(text) {
            Some(("wait", max_ms)) if BEHIND_MAX_MS.contains(&max_ms) => Ok(Self::Wait { max_ms }),
            Some(("keep", max_ms)) if BEHIND_MAX_MS.contains(&max_ms) => Ok(Self::Keep { max_ms }),
            _ => Err(PolicyTextError::Clock),
        }
    }
}

impl fmt::Display for ClockPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reject => f.write_str("reject"),
            Self::Wait { max_ms } => write!(f, "wait:{max_ms}"),
            Self::Keep { max_ms } => write!(f, "keep:{max_ms}"),
        }
    }
}

/// `none`, `rotating:3` or `random:3`. Whether a layout has as many bits, [`SnowflakeOptions::validate`] tells.
///
/// ```
/// use unalike_core::Spread;
/// assert_eq!("rotating:3".parse(), Ok(Spread::Rotating { bits: 3 }));
/// ```
///
/// [`SnowflakeOptions::validate`]: crate::SnowflakeOptions::validate
impl FromStr for Spread {
    type Err = PolicyTextError;

    fn from_str(text: &str) -> Result<Self, PolicyTextError> {
        if text == "none" {
            return Ok(Self::None);
        }
        match figure(text) {
            Some(("rotating", bits)) => Ok(Self::Rotating { bits }),
            Some(("random", bits)) => Ok(Self::Random { bits }),
            _ => Err(PolicyTextError::Spread),
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Rotating { bits } => write!(f, "rotating:{bits}"),
            Self::Random { bits } => write!(f, "random:{bits}"),
        }
    }
}

/// `WORD:NUMBER`
fn figure<T: FromStr>(text: &str) -> Option<(&str, T)> {
    let (word, number) = text.split_once(':')?;
    Some((word, whole(number)?))
}

/// Digits alone: `parse` would take a sign, too.
pub(crate) fn whole<T: FromStr>(text: &str) -> Option<T> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn is_read_as_written<T: FromStr<Err = PolicyTextError> + ToString>(texts: &[&str]) {
        for text in texts {
            assert_eq!(text.parse::<T>().map(|policy| policy.to_string()).as_deref(), Ok(*text));
        }
    }

    fn is_refused<T: FromStr<Err = PolicyTextError>>(texts: &[&str]) {
        for text in texts {
            assert!(text.parse::<T>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn policies_are_read_as_they_are_written() {
        is_read_as_written::<StepPolicy>(&["1", "9223372036854775807", "adaptive:100..1000000", "adaptive:1..5"]);
        is_read_as_written::<RefillPolicy>(&["10%", "0%", "100%", "0", "500"]);
        is_read_as_written::<ClockPolicy>(&["reject", "wait:5", "keep:2000", "keep:3600000"]);
        is_read_as_written::<Spread>(&["none", "rotating:3", "random:12"]);
        assert_eq!("adaptive".parse(), Ok(StepPolicy::default()));
    }

    #[test]
    fn what_is_no_policy_is_refused() {
        is_refused::<StepPolicy>(&["", "0", "-1", "+1", "9223372036854775808", "adaptiv", "adaptive:", "adaptive:5"]);
        is_refused::<StepPolicy>(&["adaptive:5..1", "adaptive:0..9", "adaptive:1..+9"]);
        is_refused::<RefillPolicy>(&["", "%", "101%", "256%", "-1", "+1", "ten"]);
        is_refused::<ClockPolicy>(&["", "Reject", "reject:5", "wait", "wait:", "wait:0", "wait:+5", "keep:-1"]);
        is_refused::<ClockPolicy>(&["keep:3600001", "keep:2s", "stop:5"]);
        is_refused::<Spread>(&["", "rotating", "rotating:", "rotating:256", "random:-1", "random:+1", "none:3"]);
        is_refused::<Spread>(&["even:3"]);
    }

    #[test]
    fn errors_show_the_figures() {
        let told = |text: &str| text.parse::<StepPolicy>().map_err(|error| error.to_string()).unwrap_err();
        assert_eq!(told("0"), "the step is 0, it must be 1 to 2^63 - 1");
        assert_eq!(told("adaptive:5..1"), "MIN is 5 and MAX is 1: MIN must not be above MAX");
        assert_eq!(told("adaptive:0..1"), "MIN is 0 and MAX is 1: both must be 1 to 2^63 - 1");
        assert_eq!("256%".parse::<RefillPolicy>(), Err(PolicyTextError::Share { percent: 256 }));
    }
}
