//! A tag's policies as columns, for stores that keep them in rows.

use unalike_core::{AdaptiveStep, RefillPolicy, StepPolicy};

/// The policies of a tag, flat: two words, and the figures that go with them. All 64 bits of a figure count.
///
/// ```
/// use unalike_storage::{PolicyColumns, RefillPolicy, StepPolicy};
///
/// let columns = PolicyColumns::new(StepPolicy::Fixed { step: 500 }, RefillPolicy::Remaining { count: 50 });
/// assert_eq!((columns.step_policy, columns.step, columns.step_min), ("fixed", 500, None));
/// let read = PolicyColumns::read("fixed", "remaining", |column| {
///     Ok::<u64, ()>(if column == "step" { 500 } else { 50 })
/// });
/// assert_eq!(read, Ok(Some((StepPolicy::Fixed { step: 500 }, RefillPolicy::Remaining { count: 50 }))));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyColumns {
    /// `fixed` or `adaptive`.
    pub step_policy: &'static str,
    /// The step; of an adaptive policy the first one.
    pub step: u64,
    /// Of an adaptive policy only, as the three that follow.
    pub step_min: Option<u64>,
    /// The greatest step.
    pub step_max: Option<u64>,
    /// A segment that lasted less doubles the step, in milliseconds.
    pub grow_below_ms: Option<u64>,
    /// A segment that lasted longer halves it, in milliseconds.
    pub shrink_above_ms: Option<u64>,
    /// `share-consumed` or `remaining`.
    pub refill_policy: &'static str,
    /// A percentage, or how many numbers remain.
    pub refill: u64,
}

impl PolicyColumns {
    /// What a row says of these policies.
    #[must_use]
    pub fn new(step: StepPolicy, refill: RefillPolicy) -> Self {
        let (refill_policy, refill) = match refill {
            RefillPolicy::ShareConsumed { percent } => ("share-consumed", u64::from(percent)),
            RefillPolicy::Remaining { count } => ("remaining", count),
        };
        let fixed = Self {
            step_policy: "fixed",
            step: 0,
            step_min: None,
            step_max: None,
            grow_below_ms: None,
            shrink_above_ms: None,
            refill_policy,
            refill,
        };
        match step {
            StepPolicy::Fixed { step } => Self { step, ..fixed },
            StepPolicy::Adaptive(adaptive) => Self {
                step_policy: "adaptive",
                step: adaptive.initial,
                step_min: Some(adaptive.min),
                step_max: Some(adaptive.max),
                grow_below_ms: Some(adaptive.grow_below_ms),
                shrink_above_ms: Some(adaptive.shrink_above_ms),
                ..fixed
            },
        }
    }

    /// The policies that a row says, of whose other columns `figure` gives the value by its name here; none for unknown
    /// words. They are not checked yet.
    ///
    /// # Errors
    /// What `figure` answers.
    pub fn read<E>(
        step_policy: &str,
        refill_policy: &str,
        mut figure: impl FnMut(&str) -> Result<u64, E>,
    ) -> Result<Option<(StepPolicy, RefillPolicy)>, E> {
        let step = match step_policy {
            "fixed" => StepPolicy::Fixed { step: figure("step")? },
            "adaptive" => StepPolicy::Adaptive(AdaptiveStep {
                initial: figure("step")?,
                min: figure("step_min")?,
                max: figure("step_max")?,
                grow_below_ms: figure("grow_below_ms")?,
                shrink_above_ms: figure("shrink_above_ms")?,
            }),
            _ => return Ok(None),
        };
        let refill = match refill_policy {
            "remaining" => RefillPolicy::Remaining { count: figure("refill")? },
            // A percentage that does not fit is out of range, too.
            "share-consumed" => {
                RefillPolicy::ShareConsumed { percent: u8::try_from(figure("refill")?).unwrap_or(u8::MAX) }
            }
            _ => return Ok(None),
        };
        Ok(Some((step, refill)))
    }
}
