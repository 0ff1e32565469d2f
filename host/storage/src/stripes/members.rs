//! One store of a set: whether it is up, when it is tried again, and what its failures mean for the whole.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use unalike_core::StoreFailure;

use super::numbering::Numbering;
use crate::{SegmentStore, StoreError, Stripe};

/// How long a store is left out after its first failure; twice as long after each further one.
const PAUSE_FIRST: Duration = Duration::from_millis(100);

/// The longest that a store is left out.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// A request that was given up after this long says that the store does not answer.
const UNANSWERED: Duration = Duration::from_secs(1);

/// The most stores whose errors a message repeats.
const ERRORS_SHOWN: usize = 3;

/// When a store is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// When it is up, or when it may be tried again.
    Due,
    /// Before its pause is over too, unless another request is trying it.
    Now,
    /// In any case: nothing can be done without it.
    Insist,
}

/// A store at its place.
pub(super) struct Member {
    stripe: Stripe,
    store: Arc<dyn SegmentStore>,
    /// The client that joined it, once one has, and what its numbers are.
    joined: OnceLock<(Arc<dyn SegmentStore>, Numbering)>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Why it is left out, while it is.
    trouble: Option<Trouble>,
}

#[derive(Debug)]
struct Trouble {
    /// The last error, for messages.
    error: String,
    kind: StoreFailure,
    pause: Duration,
    until: Instant,
    /// A request is trying it.
    is_tried: bool,
}

impl Trouble {
    fn may_be_tried(&self, when: When) -> bool {
        match when {
            When::Due => !self.is_tried && self.until <= Instant::now(),
            When::Now => !self.is_tried,
            When::Insist => true,
        }
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("stripe", &self.stripe).field("state", &self.state).finish_non_exhaustive()
    }
}

impl Member {
    pub(super) fn new(stripe: Stripe, store: Arc<dyn SegmentStore>) -> Self {
        Self { stripe, store, joined: OnceLock::new(), state: Mutex::default() }
    }

    pub(super) const fn stripe(&self) -> &Stripe {
        &self.stripe
    }

    /// What is said of it.
    pub(super) fn name(&self) -> String {
        super::words::name(self.stripe.index, &*self.store)
    }

    pub(super) async fn close(&self) {
        self.store.close().await;
    }

    /// Whether it would be asked.
    pub(super) fn is_asked(&self, when: When) -> bool {
        self.state().trouble.as_ref().is_none_or(|trouble| trouble.may_be_tried(when))
    }

    /// What is said about it while it is not asked.
    pub(super) fn left_out(&self) -> StoreError {
        let state = self.state();
        let error = state.trouble.as_ref().map_or("it was not asked", |trouble| &trouble.error);
        StoreError::unavailable(format!("it is left out for now: {error}"))
    }

    /// Asks the store, after joining it if that was not possible before.
    ///
    /// # Errors
    /// What the store answers, or that it is left out.
    pub(super) async fn ask<'s, T, Answer>(
        &'s self,
        when: When,
        request: impl FnOnce(&'s dyn SegmentStore, Numbering) -> Answer + Send,
    ) -> Result<T, StoreError>
    where
        T: Send,
        Answer: Future<Output = Result<T, StoreError>> + Send,
    {
        let turn = self.begin(when).ok_or_else(|| self.left_out())?;
        let answer = match self.joined().await {
            Ok((store, numbering)) => request(&**store, *numbering).await,
            Err(error) => Err(error),
        };
        turn.end(answer.as_ref().err());
        answer
    }

    fn begin(&self, when: When) -> Option<Turn<'_>> {
        let mut is_retry = false;
        if let Some(trouble) = &mut self.state().trouble {
            if !trouble.may_be_tried(when) {
                return None;
            }
            is_retry = !trouble.is_tried;
            trouble.is_tried = true;
        }
        Some(Turn { member: self, is_retry, began: Instant::now(), ended: false })
    }

    /// Joins it, if that was not possible before. Never records anything: a store that has no record although others of
    /// its set were used may have lost its data.
    async fn joined(&self) -> Result<&(Arc<dyn SegmentStore>, Numbering), StoreError> {
        if let Some(joined) = self.joined.get() {
            return Ok(joined);
        }
        match self.store.stripe().await? {
            Some(recorded) if recorded == self.stripe => {}
            Some(recorded) => return Err(StoreError::refused(format!("it is {recorded}, and not {}", self.stripe))),
            None => return Err(StoreError::refused(super::words::lost_data_advice())),
        }
        let joined = self.store.join_stripe(&self.stripe).await?;
        let numbering = Numbering::new(&self.stripe, joined.numbers);
        Ok(self.joined.get_or_init(|| (joined.store, numbering)))
    }

    fn failed(&self, kind: StoreFailure, error: String, is_retry: bool) {
        let mut state = self.state();
        let pause = match &state.trouble {
            // It was up when this request began, and failed another one meanwhile.
            Some(_) if !is_retry => return,
            Some(trouble) => (trouble.pause * 2).min(PAUSE_MAX),
            None => PAUSE_FIRST,
        };
        if state.trouble.as_ref().is_none_or(|trouble| trouble.kind != kind) {
            tracing::warn!(stripe = %self.stripe, %error, "a store is left out");
        }
        state.trouble = Some(Trouble { error, kind, pause, until: Instant::now() + pause, is_tried: false });
    }

    fn answered(&self) {
        if self.state().trouble.take().is_some() {
            tracing::info!(stripe = %self.stripe, "a store that was left out serves again");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment, so a panic leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request under way. A caller may drop it anywhere.
struct Turn<'m> {
    member: &'m Member,
    /// The store is left out, and this request tries it.
    is_retry: bool,
    began: Instant,
    ended: bool,
}

impl Turn<'_> {
    fn end(mut self, error: Option<&StoreError>) {
        self.ended = true;
        match error.filter(|error| is_trouble(error)) {
            Some(error) => self.member.failed(error.failure(), full_text(error), self.is_retry),
            None => self.member.answered(),
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if self.began.elapsed() >= UNANSWERED {
            let error = format!("it did not answer within {UNANSWERED:?}");
            self.member.failed(StoreFailure::Unavailable, error, self.is_retry);
        } else if self.is_retry
            && let Some(trouble) = &mut self.member.state().trouble
        {
            trouble.is_tried = false;
        }
    }
}

/// Whether the error says something about the store, and not about the request.
pub(super) fn is_trouble(error: &StoreError) -> bool {
    use StoreError as E;
    matches!(error, E::Unavailable { .. } | E::OutcomeUnknown { .. } | E::Corrupt { .. } | E::Refused { .. })
}

/// One error of several stores, by their names: the one that helps most, with what the others said.
pub(super) fn combined(errors: Vec<(String, StoreError)>) -> StoreError {
    let texts: Vec<_> = errors.iter().map(|(name, error)| format!("{name}: {}", full_text(error))).collect();
    let more = texts.len().saturating_sub(ERRORS_SHOWN);
    let mut text = texts.into_iter().take(ERRORS_SHOWN).collect::<Vec<_>>().join("; ");
    if more > 0 {
        text = format!("{text}; and {more} more");
    }
    let what = format!("none of the stripes can serve: {text}");
    // What the caller can change comes first, then what may pass by itself; a store that gave all its numbers away says
    // least.
    let rank = |error: &StoreError| match error {
        StoreError::TagInvalid { .. } | StoreError::TagUnknown { .. } => 0,
        StoreError::OutcomeUnknown { .. } => 1,
        StoreError::Unavailable { .. } => 2,
        StoreError::Corrupt { .. } => 3,
        StoreError::Refused { .. } => 4,
        StoreError::Exhausted { .. } => 6,
        _ => 5,
    };
    match errors.into_iter().map(|(_, error)| error).min_by_key(rank) {
        None => StoreError::unavailable("none of the stripes was asked".to_owned()),
        Some(error) => with_text(error, what),
    }
}

/// The same error, where it has a text of its own with this one.
pub(super) fn with_text(error: StoreError, what: String) -> StoreError {
    match error {
        StoreError::OutcomeUnknown { source, .. } => StoreError::OutcomeUnknown { what, source },
        StoreError::Unavailable { source, .. } => StoreError::Unavailable { what, source },
        StoreError::Corrupt { source, .. } => StoreError::Corrupt { what, source },
        StoreError::Refused { source, .. } => StoreError::Refused { what, source },
        StoreError::PlaceChanged { recorded, .. } => StoreError::PlaceChanged { what, recorded },
        other => other,
    }
}

/// The error and its causes.
pub(super) fn full_text(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
