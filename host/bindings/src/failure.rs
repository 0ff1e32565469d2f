//! The one error of the surface.

use std::error::Error;
use std::fmt;

use unalike::ErrorKind;
use unalike::storage::{StoreError, with_causes};
use unalike_stores::PlaceError;

/// What is wrong with options is said in less.
const MESSAGE_CHARS_MAX: usize = 2_000;

/// Why a call brought nothing, as any language can show it. No id was handed out twice for it, and no message shows a
/// password.
///
/// ```
/// use unalike_bindings::HostOptions;
/// let failure = HostOptions::read(r#"{"stor": "sqlite://ids.sqlite"}"#).unwrap_err();
/// assert_eq!(failure.kind, "options");
/// assert!(failure.message.contains("unknown field `stor`"), "{failure}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// A word for it, as [`unalike::ErrorKind::name`] has it, such as `timeout` or `store`; `options` where what was
    /// given cannot be used, and `nested` where a call that waits was made in a callback.
    pub kind: &'static str,
    /// What a store said, as [`StoreError::kind`] has it, such as `unavailable`; none where no store said anything.
    pub store_kind: Option<&'static str>,
    /// Whether the same call may succeed later.
    pub is_retryable: bool,
    /// Whether a store is known to have granted numbers, or may have, that nobody received: they are a gap then.
    pub may_have_granted: bool,
    /// After how many milliseconds it may succeed, where that is known.
    pub retry_after_ms: Option<u64>,
    /// What happened, which value, what to do. With its causes.
    pub message: String,
}

impl Failure {
    /// What this is called for a language whose own store answers it: the kinds of [`StoreError`] alone.
    ///
    /// ```
    /// use unalike_bindings::HostOptions;
    /// let failure = HostOptions::read("{}").and_then(|options| unalike_bindings::Stores::open(&options)).unwrap_err();
    /// assert_eq!((failure.kind, failure.as_store_kind()), ("options", "refused"));
    /// ```
    #[must_use]
    pub fn as_store_kind(&self) -> &'static str {
        self.store_kind.unwrap_or(match self.kind {
            "panic" => "outcome-unknown",
            "executor" => "unavailable",
            _ => "refused",
        })
    }

    /// What was given cannot be used.
    pub(crate) fn options(what: impl Into<String>) -> Self {
        Self::of("options", what)
    }

    /// A fault of the library. Grants may have gone with what failed.
    pub(crate) fn panicked() -> Self {
        let what = "the library failed, which is a fault of its own: please report it with what it wrote to the standard error";
        Self { may_have_granted: true, ..Self::of("panic", what) }
    }

    /// What a store said, in these words.
    fn of_store(said: &StoreError, message: String) -> Self {
        Self {
            kind: "store",
            store_kind: Some(said.kind()),
            is_retryable: said.is_retryable(),
            may_have_granted: said.may_have_granted(),
            retry_after_ms: said.is_retryable().then_some(1_000),
            message,
        }
    }

    /// A handle that a child inherited from its parent.
    pub(crate) fn forked() -> Self {
        Self::of("forked", "it was opened before this process was forked: open it again in the child")
    }

    /// Whoever was asked is gone. What it granted nobody received.
    pub(crate) fn dropped() -> Self {
        StoreError::outcome_unknown("what was asked is gone, and its answer with it").into()
    }

    /// The same with what failed by it.
    pub(crate) fn of_what(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// One that lasts until somebody acts.
    pub(crate) fn of(kind: &'static str, what: impl Into<String>) -> Self {
        let mut message = what.into();
        // Some of what is given may be in it, as long as that is.
        if let Some((end, _)) = message.char_indices().nth(MESSAGE_CHARS_MAX) {
            message.truncate(end);
            message.push_str("..");
        }
        Self { kind, store_kind: None, is_retryable: false, may_have_granted: false, retry_after_ms: None, message }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Failure {}

impl From<unalike::Error> for Failure {
    fn from(error: unalike::Error) -> Self {
        Self {
            kind: error.kind().name(),
            store_kind: error.store_error().map(StoreError::kind),
            is_retryable: error.is_retryable(),
            may_have_granted: match error.kind() {
                ErrorKind::GrantRefused { .. } | ErrorKind::Rebuilt { .. } => true,
                _ => error.store_error().is_some_and(StoreError::may_have_granted),
            },
            retry_after_ms: error.retry_after_ms(),
            message: with_causes(&error),
        }
    }
}

impl From<PlaceError> for Failure {
    fn from(error: PlaceError) -> Self {
        let message = with_causes(&error);
        match said_by_store(&error) {
            Some(said) => Self::of_store(said, message),
            None => Self::options(message),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::of_store(&error, with_causes(&error))
    }
}

/// What a store says of itself, at whatever depth; none where it is the URL that cannot be used.
fn said_by_store<'e>(mut error: &'e (dyn Error + 'static)) -> Option<&'e StoreError> {
    loop {
        if let Some(PlaceError::Store(said)) = error.downcast_ref() {
            return Some(said);
        }
        if let Some(said) = error.downcast_ref() {
            return Some(said);
        }
        error = error.source()?;
    }
}
