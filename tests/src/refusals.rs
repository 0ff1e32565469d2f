//! What a store refuses: never a failure that passes by itself, and never for one request alone.

use std::time::{Duration, Instant};

use unalike_storage::{StoreError, with_causes};

use crate::PATIENCE;

/// What is refused must not be tried again, and says what to do: all these words, itself or in its causes.
#[track_caller]
pub fn refused<T>(answer: Result<T, StoreError>, words: &[&str]) {
    told(answer, words, |error| matches!(error, StoreError::Refused { .. }));
}

/// The same of what a store refuses, or takes for damaged.
#[track_caller]
pub fn refused_or_damaged<T>(answer: Result<T, StoreError>, words: &[&str]) {
    told(answer, words, |error| matches!(error, StoreError::Refused { .. } | StoreError::Corrupt { .. }));
}

#[track_caller]
fn told<T>(answer: Result<T, StoreError>, words: &[&str], is_kind: impl Fn(&StoreError) -> bool) {
    let Err(error) = answer else { panic!("it must be refused") };
    assert!(is_kind(&error), "another kind: {error:?}");
    let said = with_causes(&error);
    for word in words {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
}

/// The answer of a request, once it is not that of a connection that broke or of a server that is not there yet.
pub async fn at_last<T>(mut request: impl AsyncFnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match request().await {
            Err(error) if error.is_retryable() && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            answer => break answer,
        }
    }
}

/// Checks that a request is [refused] however often it is made: a store whose notice of lost data is used up by telling
/// it grants the lost numbers again.
pub async fn stays_refused<T>(mut request: impl AsyncFnMut() -> Result<T, StoreError>, words: &[&str]) {
    for _ in 0..4 {
        refused(at_last(&mut request).await, words);
    }
}
