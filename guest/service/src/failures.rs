//! Why there is no id, in the words for callers.

use alloc::string::String;

use crate::bindings::unalike::ids::types::Error;
use crate::problem::Problem;

/// How long a request may take, as at the server.
pub(crate) const REQUEST_TIMEOUT_MS: u64 = 10_000;

/// Why the storage granted nothing, as it says it.
pub(crate) struct Told {
    pub(crate) problem: String,
    pub(crate) detail: String,
    pub(crate) retry_after_ms: u64,
}

impl Told {
    /// Of a tag, or of a sub-key of one.
    pub(crate) fn of_tag(self, name: &str) -> Problem {
        let problem = self.plain();
        match name.split_once(unalike_core::SUB_SEPARATOR) {
            Some((tag, sub)) => problem.with("tag", tag).with("sub", sub),
            None => problem.with("tag", name),
        }
    }

    /// Of a snowflake.
    pub(crate) fn of_snowflake(self, name: &str) -> Problem {
        self.plain().with("snowflake", name)
    }

    /// Of nothing in particular.
    pub(crate) fn plain(self) -> Problem {
        Problem::new(&self.problem, self.detail).retry_after(self.retry_after_ms)
    }
}

/// Why the core component has no id of a tag, given why the storage granted nothing last.
pub(crate) fn of_core(name: &str, error: Error, last: impl FnOnce() -> Option<Told>) -> Problem {
    match error {
        Error::StoreFailed(retry_after_ms) => match last() {
            Some(told) => told.of_tag(name),
            None => unavailable(retry_after_ms),
        },
        Error::Wait(wait_ms) => unavailable(wait_ms),
        Error::GrantRefused(_) => {
            Problem::new("grant-refused", "the grant was not used: look at the store").retry_after(1_000)
        }
        Error::Exhausted => Problem::new("exhausted", "every number of the tag has been granted"),
        _ => Problem::new("internal", "the component answered what it should not"),
    }
}

fn unavailable(retry_after_ms: u64) -> Problem {
    Problem::new("store-unavailable", "the servers that grant numbers are unavailable: try again")
        .retry_after(retry_after_ms.max(1))
}
