//! Step and refill policies of a tag, as the command line writes them.

use std::str::FromStr;

use unalike::{AdaptiveStep, RefillPolicy, StepPolicy};

/// A step policy on the command line: `1000`, `adaptive`, `adaptive:100..100000`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepText(pub(crate) StepPolicy);

impl FromStr for StepText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("{text:?} is neither a number nor adaptive nor adaptive:MIN..MAX");
        let policy = match text.strip_prefix("adaptive") {
            None => StepPolicy::Fixed { step: text.parse().map_err(|_| expected())? },
            Some("") => StepPolicy::default(),
            Some(bounds) => {
                let (min, max) =
                    bounds.strip_prefix(':').and_then(|bounds| bounds.split_once("..")).ok_or_else(expected)?;
                let (min, max) = (min.parse().map_err(|_| expected())?, max.parse().map_err(|_| expected())?);
                let defaults = AdaptiveStep::default();
                // Not `clamp`: bounds in the wrong order are an error below, not a panic here.
                let initial = defaults.initial.max(min).min(max);
                StepPolicy::Adaptive(AdaptiveStep { initial, min, max, ..defaults })
            }
        };
        policy.validate().map_err(|_| match policy {
            StepPolicy::Fixed { step } => format!("the step is {step}, it must be 1 to 2^63 - 1"),
            StepPolicy::Adaptive(AdaptiveStep { min, max, .. }) if min > max => {
                format!("MIN is {min} and MAX is {max}: MIN must not be above MAX")
            }
            StepPolicy::Adaptive(_) => format!("{text:?} has a MIN or a MAX outside 1 to 2^63 - 1"),
        })?;
        Ok(Self(policy))
    }
}

/// A refill policy on the command line: `10%` used, or `500` remaining.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RefillText(pub(crate) RefillPolicy);

impl FromStr for RefillText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = |_| format!("{text:?} is neither a share such as 10% nor a number");
        let policy = match text.strip_suffix('%') {
            Some(percent) => RefillPolicy::ShareConsumed { percent: percent.parse().map_err(expected)? },
            None => RefillPolicy::Remaining { count: text.parse().map_err(expected)? },
        };
        policy.validate().map_err(|_| format!("the share is {text}, it must be 0% to 100%"))?;
        Ok(Self(policy))
    }
}

/// The policy as [`StepText`] reads it.
pub(crate) fn step_text(policy: StepPolicy) -> String {
    match policy {
        StepPolicy::Fixed { step } => step.to_string(),
        StepPolicy::Adaptive(AdaptiveStep { min, max, .. }) => format!("adaptive:{min}..{max}"),
    }
}

/// The policy as [`RefillText`] reads it.
pub(crate) fn refill_text(policy: RefillPolicy) -> String {
    match policy {
        RefillPolicy::ShareConsumed { percent } => format!("{percent}%"),
        RefillPolicy::Remaining { count } => count.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_on_the_command_line_are_read_as_they_are_written() {
        for text in ["1", "9223372036854775807", "adaptive:100..1000000", "adaptive:1..5"] {
            assert_eq!(step_text(text.parse::<StepText>().unwrap().0), text);
        }
        assert_eq!("adaptive".parse(), Ok(StepText(StepPolicy::default())));
        for text in ["10%", "0%", "100%", "0", "500"] {
            assert_eq!(refill_text(text.parse::<RefillText>().unwrap().0), text);
        }
    }

    #[test]
    fn bad_policies_are_refused() {
        for text in ["", "0", "-1", "9223372036854775808", "adaptiv", "adaptive:", "adaptive:5..1", "adaptive:0..9"] {
            text.parse::<StepText>().expect_err(text);
        }
        for text in ["", "%", "101%", "256%", "-1", "ten"] {
            text.parse::<RefillText>().expect_err(text);
        }
    }
}
