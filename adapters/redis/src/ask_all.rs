//! Several servers that are asked the same at once: none is waited for in vain, and none is believed for being first.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use unalike_storage::StoreError;

/// When one has said something useful, the others have this much time to answer.
const GRACE: Duration = Duration::from_millis(100);

/// What an answer is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    /// The others are waited for as before.
    Little,
    /// The others are waited for a moment longer.
    Something,
    /// Nobody else is waited for.
    All,
}

/// Takes the answers as they come, until the deadline at most. Gives the error that tells most, if one failed.
pub(crate) async fn hear<T: 'static>(
    mut asked: JoinSet<Result<T, StoreError>>,
    deadline: Instant,
    mut take: impl FnMut(T) -> Worth,
) -> Option<StoreError> {
    let (mut failed, mut until): (Option<StoreError>, _) = (None, deadline);
    while let Ok(Some(answer)) = timeout_at(until, asked.join_next()).await {
        match answer {
            Ok(Ok(answer)) => match take(answer) {
                Worth::Little => {}
                Worth::Something => until = until.min(Instant::now() + GRACE),
                Worth::All => break,
            },
            // One that may answer later tells more than one that refuses.
            Ok(Err(error)) => {
                if failed.as_ref().is_none_or(|failed| !failed.is_retryable()) {
                    failed = Some(error);
                }
            }
            // It panicked, or the runtime ends.
            Err(_) => {}
        }
    }
    failed
}
