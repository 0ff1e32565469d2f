//! The one error of the library.

use std::sync::Arc;

use unalike_core::{GrantFault, LayoutError, OptionsError, Rfc3339, WriteError};
use unalike_storage::{StoreError, shown};

use crate::clock::{Clock as _, SystemClock};
use crate::formatted::FormatMisfit;
use crate::metrics;

/// Why no ids were handed out. None were lost.
///
/// [`Error::is_retryable`] says whether the same call may succeed later, [`Error::retry_after_ms`] when, and
/// [`Error::kind`] what happened, with its figures. It is one pointer wide, so that a call that succeeds, as nearly
/// all do, answers in registers.
///
/// ```
/// # use std::sync::Arc;
/// # use unalike::{ErrorKind, Ids};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), unalike::Error> {
/// # let store = Arc::new(unalike_memory::MemoryStore::default());
/// let ids = Ids::builder().segments(store).build().await?;
/// let orders = ids.sequence("order", Default::default()).await?;
/// ids.close().await;
/// let error = orders.take(10).await.unwrap_err();
/// assert!(matches!(error.kind(), ErrorKind::Closed { name } if name == "order"));
/// assert!(!error.is_retryable());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, thiserror::Error)]
#[error(transparent)]
pub struct Error(Box<ErrorKind>);

impl From<ErrorKind> for Error {
    /// Every error of the library comes to be here, and is counted. Not those of a forked child: a thread of its parent
    /// may have held a lock of the recorder's.
    fn from(kind: ErrorKind) -> Self {
        if !matches!(kind, ErrorKind::Forked { .. }) {
            metrics::error(kind.name());
        }
        Self(Box::new(kind))
    }
}

impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// What happened, for callers that distinguish the cases.
///
/// ```
/// use unalike::{ErrorKind, Ids};
/// # use std::sync::Arc;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = Arc::new(unalike_memory::MemoryStore::default());
/// let ids = Ids::builder().segments(store).build().await?;
/// let error = ids.sequence("", Default::default()).await.unwrap_err();
/// assert!(matches!(error.kind(), ErrorKind::NameInvalid { name } if name.is_empty()));
/// assert_eq!(error.kind().name(), "name_invalid");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The store did not answer in time, and nothing was buffered.
    #[error("no ids for {shown} within {waited_ms} ms{}", because(.source), shown = shown(.name))]
    Timeout {
        /// The tag or namespace.
        name: String,
        /// How long the call waited, in milliseconds.
        waited_ms: u64,
        /// The newest failure of the store, if it said anything.
        source: Option<Arc<StoreError>>,
    },
    /// Ids can be handed out only later than the call may wait: the lease begins in the future, or the clock is behind.
    #[error("no ids for {shown} before {wait_ms} ms have passed", shown = shown(.name))]
    NotYet {
        /// The tag or namespace.
        name: String,
        /// How long to wait, in milliseconds.
        wait_ms: u64,
    },
    /// The store refused, and waiting does not help.
    #[error("no ids for {shown}: {source}", shown = shown(.name))]
    Store {
        /// The tag or namespace.
        name: String,
        /// What the store said.
        source: Arc<StoreError>,
    },
    /// The lease of a snowflake generator has ended, and the lease store gave no other within the time that the call
    /// may wait. Ids flow while a lease runs, whether its store answers or not, and never beyond its end.
    #[error(
        "no ids for {shown}: the lease of worker {worker} ended at {}, and there is no other{}",
        Rfc3339(*.ended_ms),
        because(.source),
        shown = shown(.name)
    )]
    LeaseEnded {
        /// The namespace.
        name: String,
        /// Whose lease it was.
        worker: u32,
        /// When it ended, in Unix milliseconds.
        ended_ms: u64,
        /// What the store said last; none if it has not answered.
        source: Option<Arc<StoreError>>,
    },
    /// The store broke its promise. The grant is burnt. This is an incident: look at the store.
    #[error("a grant for {shown} was refused: {source}", shown = shown(.name))]
    GrantRefused {
        /// The tag or namespace.
        name: String,
        /// What was wrong with the grant.
        source: GrantFault,
    },
    /// The clock went back beyond the policy.
    #[error(
        "the clock went back by {behind_ms} ms, which is more than the clock policy of {shown} bridges",
        shown = shown(.name)
    )]
    ClockMovedBack {
        /// The namespace.
        name: String,
        /// How far, against the latest time at which ids were handed out, in milliseconds.
        behind_ms: u64,
    },
    /// The clock is before the layout's epoch.
    #[error(
        "the clock is before the layout of {shown} begins, at {}: set the clock",
        Rfc3339(*.first_ms),
        shown = shown(.name)
    )]
    ClockBeforeEpoch {
        /// The namespace.
        name: String,
        /// The start of the first usable tick, in Unix milliseconds.
        first_ms: u64,
    },
    /// The timestamp field has run out, or every number of the tag has been granted. Final.
    #[error("{}", exhausted(.name, .what, *.id_max, *.left))]
    Exhausted {
        /// The tag or namespace.
        name: String,
        /// What ran out.
        what: &'static str,
        /// The [`SequenceOptions::id_max`](crate::SequenceOptions::id_max) that ended it, if that did: the store may
        /// have greater numbers.
        id_max: Option<u64>,
        /// How many are still left, for a call that asks for no more than these.
        left: u64,
    },
    /// A sequence was to be opened whose [`SequenceOptions::id_max`](crate::SequenceOptions::id_max) its tag's numbers
    /// have passed already, or begin above. Nothing was opened.
    #[error("{}", id_max_reached(.name, *.id_max, *.start, *.watermark))]
    IdMaxReached {
        /// The tag.
        name: String,
        /// The bound that was asked for.
        id_max: u64,
        /// The tag's first number.
        start: u64,
        /// The greatest number that may have been handed out; `start - 1` if there is none.
        watermark: u64,
    },
    /// The generator was closed. Final.
    #[error("{shown} is closed", shown = shown(.name))]
    Closed {
        /// The tag or namespace.
        name: String,
    },
    /// A count of 0.
    #[error("the count is 0, it must be 1 at least")]
    CountZero,
    /// A tag or namespace that is empty, longer than 128 bytes, or holds a control character.
    #[error("the name {name:?} is not valid: names are 1 to 128 bytes of UTF-8 without control characters")]
    NameInvalid {
        /// The name, shortened if it is too long.
        name: String,
    },
    /// Options out of range.
    #[error("the options of {shown} are not valid: {source}", shown = shown(.name))]
    Options {
        /// The tag or namespace.
        name: String,
        /// What is wrong.
        source: OptionsError,
    },
    /// A layout that cannot exist.
    #[error("the layout of {shown} is not valid: {source}", shown = shown(.name))]
    Layout {
        /// The namespace.
        name: String,
        /// What is wrong.
        source: LayoutError,
    },
    /// An id cannot be shown as the format has it, or not with the shard key that was given or left out.
    #[error("no text for {shown}: {source}", shown = shown(.name))]
    Format {
        /// The tag or namespace.
        name: String,
        /// What is wrong.
        source: WriteError,
    },
    /// A format that does not fit the generator, or what is asked of it.
    #[error("the format of {shown} does not fit: {source}", shown = shown(.name))]
    FormatMisfit {
        /// The tag or namespace.
        name: String,
        /// What does not fit.
        source: FormatMisfit,
    },
    /// The generator is open in this process with other options.
    #[error("{shown} is open with other options: open it once and clone the handle", shown = shown(.name))]
    OpenOtherwise {
        /// The tag or namespace.
        name: String,
    },
    /// The tag is bound to another mode in its store.
    #[error(
        "the tag {shown} is {stored} in its store and was asked for as {asked}: a tag has one mode for all nodes",
        shown = shown(.name)
    )]
    ModeBound {
        /// The tag.
        name: String,
        /// The tag's mode.
        stored: &'static str,
        /// The mode that was asked for.
        asked: &'static str,
    },
    /// Runs per thread or handle were asked for, and the tag's ids ascend across all nodes.
    #[error(
        "the tag {shown} is ordered across all nodes, which runs per thread or handle would break",
        shown = shown(.name)
    )]
    OrderedPerThread {
        /// The tag.
        name: String,
    },
    /// The component trapped, or the native core panicked; it is rebuilt, and what its generators held is a gap. Try
    /// again.
    #[error(
        "the component of {shown} failed, and its grants are abandoned: try again ({reason})",
        shown = shown(.name)
    )]
    Rebuilt {
        /// The tag or namespace.
        name: String,
        /// The trap.
        reason: String,
        /// After how long it is built again, in milliseconds: longer with each further trap of the same fault.
        retry_after_ms: u64,
    },
    /// The component cannot be compiled or instantiated.
    #[error("the component cannot be used: {reason}")]
    Component {
        /// wasmtime's message.
        reason: String,
    },
    /// This process was forked from the one that opened the generator, so everything inherited is abandoned.
    #[error("{shown} was opened before this process was forked: open it again in the child", shown = shown(.name))]
    Forked {
        /// The tag or namespace.
        name: String,
    },
    /// The operating system gives no random bits, and no id was made from any others.
    #[error("the operating system gives no random bits: {reason}")]
    RandomMissing {
        /// Its message.
        reason: String,
    },
    /// The library's own executor could not be started.
    #[error("no executor could be started: {reason}")]
    Executor {
        /// Why.
        reason: String,
    },
}

impl ErrorKind {
    /// A word for it, as metrics and logs have it: `timeout`, `clock_moved_back`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Timeout { .. } => "timeout",
            Self::NotYet { .. } => "not_yet",
            Self::Store { .. } => "store",
            Self::LeaseEnded { .. } => "lease_ended",
            Self::GrantRefused { .. } => "grant_refused",
            Self::ClockMovedBack { .. } => "clock_moved_back",
            Self::ClockBeforeEpoch { .. } => "clock_before_epoch",
            Self::Exhausted { .. } => "exhausted",
            Self::IdMaxReached { .. } => "id_max_reached",
            Self::Closed { .. } => "closed",
            Self::CountZero => "count_zero",
            Self::NameInvalid { .. } => "name_invalid",
            Self::Options { .. } => "options",
            Self::Layout { .. } => "layout",
            Self::Format { .. } => "format",
            Self::FormatMisfit { .. } => "format_misfit",
            Self::OpenOtherwise { .. } => "open_otherwise",
            Self::ModeBound { .. } => "mode_bound",
            Self::OrderedPerThread { .. } => "ordered_per_thread",
            Self::Rebuilt { .. } => "rebuilt",
            Self::Component { .. } => "component",
            Self::Forked { .. } => "forked",
            Self::RandomMissing { .. } => "random_missing",
            Self::Executor { .. } => "executor",
        }
    }
}

/// When a store may be asked again, where asking again helps.
fn store_retry_after_ms(error: &StoreError) -> Option<u64> {
    match error {
        StoreError::WorkersExhausted { free_at_ms: at_ms, .. } | StoreError::Quarantined { until_ms: at_ms, .. } => {
            Some(at_ms.saturating_sub(SystemClock.now_ms()).max(1))
        }
        StoreError::CeilingReached { retry_after_ms, .. } | StoreError::ClockBehind { retry_after_ms, .. } => {
            Some(*retry_after_ms)
        }
        error => error.is_retryable().then_some(1_000),
    }
}

/// Why a store has no number of a tag left.
pub(crate) const ENDED: &str =
    "it was moved or ended, as an import does, and its numbers continue elsewhere, or every number has been granted";

/// What may set the greatest id of a sequence.
const ID_MAX_IS_SET_BY: &str = "the digits of its template, bits or id_max set it";

fn id_max_reached(name: &str, id_max: u64, start: u64, watermark: u64) -> String {
    let tag = shown(name);
    let what = if start > id_max {
        format!("{tag} has no numbers: it starts at {start}")
    } else {
        format!("the numbers of {tag} are used up: those up to {watermark} may have been handed out")
    };
    format!(
        "{what}, and {id_max} is the greatest that is allowed ({ID_MAX_IS_SET_BY}); allow greater ids, or count under another tag"
    )
}

fn exhausted(name: &str, what: &str, id_max: Option<u64>, left: u64) -> String {
    let bound = id_max.map_or_else(String::new, |id_max| {
        format!(" up to {id_max}, the greatest that is allowed ({ID_MAX_IS_SET_BY})")
    });
    match left {
        0 => format!("{} is exhausted: {what}{bound}", shown(name)),
        1 => format!("only 1 id of {} is left{bound}: ask for that one", shown(name)),
        _ => format!("only {left} ids of {} are left{bound}: ask for no more", shown(name)),
    }
}

fn because(source: &Option<Arc<StoreError>>) -> String {
    source.as_ref().map_or_else(String::new, |source| format!(": {source}"))
}

impl Error {
    /// What happened.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }

    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self.kind() {
            ErrorKind::Timeout { .. }
            | ErrorKind::NotYet { .. }
            | ErrorKind::ClockMovedBack { .. }
            | ErrorKind::ClockBeforeEpoch { .. }
            | ErrorKind::Rebuilt { .. }
            | ErrorKind::RandomMissing { .. }
            | ErrorKind::GrantRefused { .. } => true,
            ErrorKind::Store { source, .. } => source.is_retryable(),
            ErrorKind::LeaseEnded { source, .. } => source.as_ref().is_none_or(|source| source.is_retryable()),
            _ => false,
        }
    }

    /// How long to wait before the same call may succeed, in milliseconds, where that can be said. What a store tells
    /// as an instant is compared with the system's clock.
    #[must_use]
    pub fn retry_after_ms(&self) -> Option<u64> {
        match self.kind() {
            ErrorKind::ClockMovedBack { behind_ms: wait_ms, .. } | ErrorKind::NotYet { wait_ms, .. } => Some(*wait_ms),
            ErrorKind::GrantRefused { .. } | ErrorKind::ClockBeforeEpoch { .. } | ErrorKind::RandomMissing { .. } => {
                Some(1_000)
            }
            ErrorKind::Rebuilt { retry_after_ms, .. } => Some(*retry_after_ms),
            ErrorKind::Timeout { source, .. } | ErrorKind::LeaseEnded { source, .. } => {
                source.as_ref().map_or(Some(1_000), |source| store_retry_after_ms(source))
            }
            ErrorKind::Store { source, .. } => store_retry_after_ms(source),
            _ => None,
        }
    }

    /// With so many that are left for a call that asks for no more.
    pub(crate) fn with_left(mut self, ids: u64) -> Self {
        if let ErrorKind::Exhausted { left, .. } = &mut *self.0 {
            *left = ids;
        }
        self
    }

    /// What the store said, where a store is the cause.
    #[must_use]
    pub fn store_error(&self) -> Option<&StoreError> {
        match self.kind() {
            ErrorKind::Store { source, .. } => Some(source),
            ErrorKind::Timeout { source, .. } | ErrorKind::LeaseEnded { source, .. } => source.as_deref(),
            _ => None,
        }
    }
}
