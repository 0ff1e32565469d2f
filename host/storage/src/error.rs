//! The one error of every store.

use std::io;
use std::sync::Arc;

use unalike_core::{ID_MAX, Rfc3339, StoreFailure};

use crate::segments::{shown, split_tag};
use crate::{LeasesKept, Stripe};

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why a store gave nothing.
///
/// It answers what a caller asks: [is it worth a retry](StoreError::is_retryable), [may the grant have been
/// made](StoreError::may_have_granted), [is it the caller's fault](StoreError::is_callers_fault).
///
/// ```
/// use unalike_storage::StoreError;
/// let lost = StoreError::outcome_unknown("COMMIT on db.example:3306".to_owned());
/// assert!(lost.is_retryable() && lost.may_have_granted() && !lost.is_callers_fault());
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Nothing was done; it may work later.
    #[error("the store is unavailable: {what}")]
    Unavailable {
        /// What was tried, and where.
        what: String,
        /// The driver's error.
        #[source]
        source: Option<Source>,
    },
    /// The store may have done it, but its answer was lost. Whatever it granted is burnt.
    #[error("the store's answer was lost, so the grant is abandoned: {what}")]
    OutcomeUnknown {
        /// What was tried, and where.
        what: String,
        /// The driver's error.
        #[source]
        source: Option<Source>,
    },
    /// The tag does not exist and is not created on first use.
    #[error("{}: {advice}", unknown(.tag))]
    TagUnknown {
        /// The tag.
        tag: String,
        /// How it comes to be.
        advice: &'static str,
    },
    /// The tag exists already.
    #[error("the tag {} exists already", shown(.tag))]
    TagExists {
        /// The tag.
        tag: String,
    },
    /// The name, or an option of the tag, is out of range.
    #[error("the tag {} is not valid: {reason}", shown(.tag))]
    TagInvalid {
        /// The tag, shortened if it is too long.
        tag: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// As many tags exist as the store may have.
    #[error("the tag {} was not created: the store has {tags_max} tags, its limit", shown(.tag))]
    TagLimit {
        /// The tag that was asked for.
        tag: String,
        /// The limit.
        tags_max: u64,
    },
    /// No number up to 2^63 - 1 is left: each has been granted, or the tag was ended, as an import does with a tag that
    /// it has moved.
    #[error(
        "the tag {} is exhausted: it was moved or ended, as an import does, and its numbers continue elsewhere, or every number up to \
         {max} has been granted",
        shown(.tag),
        max = ID_MAX
    )]
    Exhausted {
        /// The tag.
        tag: String,
    },
    /// The numbers up to the tag's ceiling are handed out, and the durable store has not raised it yet.
    #[error("the tag {} has reached its ceiling, which was not raised: try again in {retry_after_ms} ms", shown(.tag))]
    CeilingReached {
        /// The tag.
        tag: String,
        /// When it is tried again, in milliseconds from now.
        retry_after_ms: u64,
        /// Why it was not raised, if that is known.
        #[source]
        source: Option<Source>,
    },
    /// The ids are snowflakes by the store's clock, and that is behind the next one: it went back, or ids are asked for
    /// faster than it goes.
    #[error(
        "the store's clock is {}, and the next id of {} is of {}: try again in {retry_after_ms} ms",
        Rfc3339(*.clock_ms),
        shown(.tag),
        Rfc3339(*.next_ms)
    )]
    ClockBehind {
        /// The tag.
        tag: String,
        /// The store's clock, in Unix milliseconds.
        clock_ms: u64,
        /// The time of the next id, in Unix milliseconds.
        next_ms: u64,
        /// When the clock has come near enough, in milliseconds from now.
        retry_after_ms: u64,
    },
    /// The ids are snowflakes by the store's clock, and their timestamps have run out.
    #[error(
        "the ids of {} ended at {}, when their timestamps ran out: count from a later epoch",
        shown(.tag),
        Rfc3339(*.ended_ms)
    )]
    TimestampsEnded {
        /// The tag.
        tag: String,
        /// When the last timestamp ended, in Unix milliseconds.
        ended_ms: u64,
    },
    /// Every worker id of the namespace is under a lease.
    #[error(
        "all {workers} worker ids of {namespace:?} are under a lease; the next is free at {}",
        Rfc3339(*.free_at_ms)
    )]
    WorkersExhausted {
        /// The namespace.
        namespace: String,
        /// How many worker ids the layout has.
        workers: u64,
        /// When the next lease ends, in Unix milliseconds.
        free_at_ms: u64,
    },
    /// The store may have forgotten leases that still run, so it grants none until the last of them has ended.
    #[error(
        "the store may have forgotten leases of {namespace:?}: it grants none before {}, when all that it could have \
         granted have ended",
        Rfc3339(*.until_ms)
    )]
    Quarantined {
        /// The namespace.
        namespace: String,
        /// When it grants again, in Unix milliseconds.
        until_ms: u64,
    },
    /// No lease with this worker and grant id is running.
    #[error("worker {worker} of {namespace:?} is no longer leased to this holder")]
    LeaseLost {
        /// The namespace.
        namespace: String,
        /// The worker.
        worker: u32,
    },
    /// The namespace is bound to another layout.
    #[error(
        "the namespace {namespace:?} is bound to the layout {bound}, and {offered} was offered: use another namespace"
    )]
    LayoutMismatch {
        /// The namespace.
        namespace: String,
        /// The layout that it was first used with.
        bound: String,
        /// The layout of this request.
        offered: String,
    },
    /// A tag or a snowflake is bound to another format.
    #[error(
        "{owner} is bound to another format in the store, and two ids can look the same: {what}. Use the format from before \
         (was --config forgotten?), or another name; `{command}`, with the same --config and --store, says what can repeat"
    )]
    FormatBound {
        /// The tag or the snowflake.
        owner: String,
        /// What differs.
        what: String,
        /// The command that says more.
        command: String,
    },
    /// The leases of the namespace are kept in another place, of which the store has a record.
    #[error("the leases of {namespace:?} are kept {kept}")]
    LeasesElsewhere {
        /// The namespace.
        namespace: String,
        /// Where.
        kept: LeasesKept,
    },
    /// The holder's clock is too far from the store's.
    #[error(
        "the clock is {}, the store's is {}, and {max_skew_ms} ms apart is the limit: set the clock",
        Rfc3339(*.holder_ms),
        Rfc3339(*.store_ms)
    )]
    ClockSkew {
        /// The holder's clock, in Unix milliseconds.
        holder_ms: u64,
        /// The store's clock, in Unix milliseconds.
        store_ms: u64,
        /// The limit, in milliseconds.
        max_skew_ms: u64,
    },
    /// The store's place among stripes is not the one that a change of it expected, and was not changed.
    #[error("the place among stripes was not changed: {what}")]
    PlaceChanged {
        /// What was expected, what is recorded, and what to do.
        what: String,
        /// What is recorded.
        recorded: Option<Stripe>,
    },
    /// The store's data is damaged or is not unalike's.
    #[error("the store's data cannot be used: {what}")]
    Corrupt {
        /// What is wrong, where, and what to do.
        what: String,
        /// The driver's error.
        #[source]
        source: Option<Source>,
    },
    /// What a store said that is not in Rust, in its own words; or what another request was answered, which was made
    /// for this one as well.
    #[error("{what}")]
    Reported {
        /// The word for it.
        kind: &'static str,
        /// What it comes to.
        failure: StoreFailure,
        /// What happened, which value, what to do.
        what: String,
    },
    /// The store will not do it: no permission, read-only, not supported, an argument out of range.
    #[error("the store refused: {what}")]
    Refused {
        /// What, and why.
        what: String,
        /// The driver's error.
        #[source]
        source: Option<Source>,
    },
}

fn unknown(name: &str) -> String {
    match split_tag(name) {
        (tag, Some(sub)) => format!("the tag {tag:?} has no sub-key {sub:?}"),
        (tag, None) => format!("the tag {tag:?} is unknown"),
    }
}

/// The source of [`StoreError::Refused`] where nothing was ever stored, and the options say not to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store has not begun")]
pub struct NotBegun;

/// An error and its causes, for logs and terminals, without what they repeat.
///
/// ```
/// use unalike_storage::{StoreError, with_causes};
/// let error = StoreError::unavailable("BEGIN on db.example:3306").with_source("connection refused");
/// assert!(with_causes(&error).ends_with("BEGIN on db.example:3306: connection refused"));
/// ```
pub fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // The text before says already which store it is.
        let next = next.strip_prefix("the store refused: ").unwrap_or(&next);
        // Many repeat their source in their own words, and the system's begin with a capital or not.
        if !text.to_lowercase().contains(&next.to_lowercase()) {
            text.push_str(": ");
            text.push_str(next);
        }
        cause = error.source();
    }
    text
}

/// An error of this type: this one, or one behind it, also where a driver shares it or the system's holds it.
///
/// ```
/// use std::io::{Error, ErrorKind};
/// use unalike_storage::{StoreError, cause};
/// let error = StoreError::unavailable("reading ids.sqlite").with_source(Error::from(ErrorKind::NotFound));
/// assert_eq!(cause::<Error>(&error).map(Error::kind), Some(ErrorKind::NotFound));
/// ```
pub fn cause<'e, E: std::error::Error + 'static>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e E> {
    let mut next: Option<&'e (dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = if let Some(shared) = error.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>() {
            Some(&**shared)
        } else if let Some(held) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(held)
        } else {
            error.source()
        };
    }
    None
}

impl StoreError {
    /// [`StoreError::Unavailable`]; `what` says what was tried, and where.
    #[must_use]
    pub fn unavailable(what: impl Into<String>) -> Self {
        Self::Unavailable { what: what.into(), source: None }
    }

    /// [`StoreError::OutcomeUnknown`]; `what` says what was tried, and where.
    #[must_use]
    pub fn outcome_unknown(what: impl Into<String>) -> Self {
        Self::OutcomeUnknown { what: what.into(), source: None }
    }

    /// [`StoreError::Refused`]; `what` says what is refused, and what to do.
    #[must_use]
    pub fn refused(what: impl Into<String>) -> Self {
        Self::Refused { what: what.into(), source: None }
    }

    /// [`StoreError::Corrupt`]; `what` says what is damaged, and where.
    #[must_use]
    pub fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into(), source: None }
    }

    /// The same with the driver's error, where there is room for one; another error stays as it is.
    ///
    /// ```
    /// use std::error::Error as _;
    /// use unalike_storage::StoreError;
    /// let error = StoreError::unavailable("BEGIN on db.example:3306").with_source("connection refused");
    /// assert_eq!(error.source().unwrap().to_string(), "connection refused");
    /// ```
    #[must_use]
    pub fn with_source(mut self, error: impl Into<Source>) -> Self {
        if let Self::Unavailable { source, .. }
        | Self::OutcomeUnknown { source, .. }
        | Self::Refused { source, .. }
        | Self::Corrupt { source, .. } = &mut self
        {
            *source = Some(error.into());
        }
        self
    }

    /// The error of the table `unalike_tag` where it keeps the formats of tags in tables of another system. Its store
    /// has begun, whether the table is there or not.
    ///
    /// ```
    /// use unalike_storage::{NotBegun, StoreError};
    /// let error = StoreError::refused("it is missing".to_owned()).with_source(NotBegun).in_table_of_formats();
    /// assert!(!error.is_not_begun());
    /// assert_eq!(error.to_string(), "the store refused: formats are kept in the table unalike_tag: it is missing");
    /// ```
    #[must_use]
    pub fn in_table_of_formats(self) -> Self {
        match self {
            Self::Refused { what, source } => Self::Refused {
                what: format!("formats are kept in the table unalike_tag: {what}"),
                source: source.filter(|source| !source.is::<NotBegun>()),
            },
            error => error,
        }
    }

    /// [`StoreError::TagUnknown`], of a store that creates tags.
    #[must_use]
    pub fn tag_unknown(tag: &str) -> Self {
        let advice = match split_tag(tag) {
            (_, Some(_)) => "its first id creates it",
            (_, None) => "create it first, with `unalike tags create` or, where that is allowed, by taking an id of it",
        };
        Self::tag_unknown_here(tag, advice)
    }

    /// [`StoreError::TagUnknown`], with how a tag comes to be in this store.
    #[must_use]
    pub fn tag_unknown_here(tag: &str, advice: &'static str) -> Self {
        Self::TagUnknown { tag: tag.to_owned(), advice }
    }

    /// [`StoreError::Exhausted`].
    #[must_use]
    pub fn exhausted(tag: &str) -> Self {
        Self::Exhausted { tag: tag.to_owned() }
    }

    /// What a store said that is not in Rust: the [word](Self::kind) for it, the tag that it was asked about, and its
    /// own words. A word that does not exist is a [refusal](Self::Refused).
    ///
    /// ```
    /// use unalike_storage::StoreError;
    /// let full = StoreError::reported("tag-limit", "order", "10 tags are there, and no more may be");
    /// assert_eq!((full.kind(), full.is_callers_fault()), ("tag-limit", true));
    /// assert!(StoreError::reported("outcome-unknown", "order", "no answer came").may_have_granted());
    /// ```
    #[must_use]
    pub fn reported(kind: &str, tag: &str, what: impl Into<String>) -> Self {
        let (kind, failure) = match kind {
            // Who asks tells this one by its variant.
            "tag-unknown" => return Self::tag_unknown(tag),
            "unavailable" => ("unavailable", StoreFailure::Unavailable),
            "outcome-unknown" => ("outcome-unknown", StoreFailure::OutcomeUnknown),
            "ceiling-reached" => ("ceiling-reached", StoreFailure::Unavailable),
            "clock-behind" => ("clock-behind", StoreFailure::Unavailable),
            "quarantined" => ("quarantined", StoreFailure::Unavailable),
            "exhausted" => ("exhausted", StoreFailure::Exhausted),
            "timestamps-ended" => ("timestamps-ended", StoreFailure::Exhausted),
            "workers-exhausted" => ("workers-exhausted", StoreFailure::WorkersExhausted),
            "lease-lost" => ("lease-lost", StoreFailure::LeaseLost),
            "clock-skew" => ("clock-skew", StoreFailure::ClockSkew),
            "tag-exists" => ("tag-exists", StoreFailure::Refused),
            "tag-invalid" => ("tag-invalid", StoreFailure::Refused),
            "tag-limit" => ("tag-limit", StoreFailure::Refused),
            "layout-mismatch" => ("layout-mismatch", StoreFailure::Refused),
            "format-bound" => ("format-bound", StoreFailure::Refused),
            "leases-elsewhere" => ("leases-elsewhere", StoreFailure::Refused),
            "place-changed" => ("place-changed", StoreFailure::Refused),
            "corrupt" => ("corrupt", StoreFailure::Refused),
            _ => ("refused", StoreFailure::Refused),
        };
        Self::Reported { kind, failure, what: what.into() }
    }

    /// The same with its causes, for another request that waited for the same answer.
    #[must_use]
    pub(crate) fn repeated(&self) -> Self {
        Self::Reported { kind: self.kind(), failure: self.failure(), what: with_causes(self) }
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.failure().is_retryable()
    }

    /// Whether it is refused because nothing was ever stored ([`NotBegun`]).
    #[must_use]
    pub fn is_not_begun(&self) -> bool {
        let first: &(dyn std::error::Error + 'static) = self;
        std::iter::successors(Some(first), |error| error.source()).any(<dyn std::error::Error>::is::<NotBegun>)
    }

    /// Whether a grant may have been made that nobody received.
    #[must_use]
    pub fn may_have_granted(&self) -> bool {
        self.failure() == StoreFailure::OutcomeUnknown
    }

    /// Whether another request by the same caller would be answered otherwise: a bad or unknown tag, a bad option.
    #[must_use]
    pub fn is_callers_fault(&self) -> bool {
        matches!(
            self.kind(),
            "tag-unknown" | "tag-exists" | "tag-invalid" | "tag-limit" | "layout-mismatch" | "format-bound"
        )
    }

    /// A word for it, the same in every language.
    ///
    /// ```
    /// use unalike_storage::StoreError;
    /// assert_eq!(StoreError::tag_unknown("order").kind(), "tag-unknown");
    /// ```
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Unavailable { .. } => "unavailable",
            Self::OutcomeUnknown { .. } => "outcome-unknown",
            Self::TagUnknown { .. } => "tag-unknown",
            Self::TagExists { .. } => "tag-exists",
            Self::TagInvalid { .. } => "tag-invalid",
            Self::TagLimit { .. } => "tag-limit",
            Self::Exhausted { .. } => "exhausted",
            Self::CeilingReached { .. } => "ceiling-reached",
            Self::ClockBehind { .. } => "clock-behind",
            Self::TimestampsEnded { .. } => "timestamps-ended",
            Self::WorkersExhausted { .. } => "workers-exhausted",
            Self::Quarantined { .. } => "quarantined",
            Self::LeaseLost { .. } => "lease-lost",
            Self::LayoutMismatch { .. } => "layout-mismatch",
            Self::FormatBound { .. } => "format-bound",
            Self::LeasesElsewhere { .. } => "leases-elsewhere",
            Self::ClockSkew { .. } => "clock-skew",
            Self::PlaceChanged { .. } => "place-changed",
            Self::Corrupt { .. } => "corrupt",
            Self::Reported { kind, .. } => kind,
            Self::Refused { .. } => "refused",
        }
    }

    /// What the component is told.
    #[must_use]
    pub fn failure(&self) -> StoreFailure {
        match self {
            Self::Reported { failure, .. } => *failure,
            Self::Unavailable { .. }
            | Self::CeilingReached { .. }
            | Self::ClockBehind { .. }
            | Self::Quarantined { .. } => StoreFailure::Unavailable,
            Self::OutcomeUnknown { .. } => StoreFailure::OutcomeUnknown,
            Self::TagUnknown { .. } => StoreFailure::TagUnknown,
            Self::Exhausted { .. } | Self::TimestampsEnded { .. } => StoreFailure::Exhausted,
            Self::WorkersExhausted { .. } => StoreFailure::WorkersExhausted,
            Self::LeaseLost { .. } => StoreFailure::LeaseLost,
            Self::ClockSkew { .. } => StoreFailure::ClockSkew,
            Self::TagExists { .. }
            | Self::TagInvalid { .. }
            | Self::TagLimit { .. }
            | Self::LayoutMismatch { .. }
            | Self::FormatBound { .. }
            | Self::LeasesElsewhere { .. }
            | Self::PlaceChanged { .. }
            | Self::Corrupt { .. }
            | Self::Refused { .. } => StoreFailure::Refused,
        }
    }
}
