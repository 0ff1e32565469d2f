//! Requests that fail, told when that begins, now and then while it lasts, and when it is over: never one line for
//! each.
//!
//! A store that is down fails every request, and a disk that is full of log lines keeps it down. Each failure is a line
//! at the level debug.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// It is over this long after the last failure.
const OVER_AFTER: Duration = Duration::from_secs(10);

/// While it lasts it is said again after this long.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// A reason that was not said yet is said after this long.
const SAY_OTHER: Duration = Duration::from_secs(10);

/// So many reasons are remembered, as some have figures in them.
const REASONS_MAX: usize = 16;

/// Whose it is to do something about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// It may pass by itself.
    Passing,
    /// Somebody has to mend something.
    Lasting,
}

/// Requests that fail in one way.
struct Trouble {
    began: Instant,
    last: Instant,
    said: Instant,
    /// Since it was said, and in all.
    since_said: u64,
    count: u64,
    reasons: Vec<String>,
}

/// By the name of the problem: there are some forty.
static TROUBLES: Mutex<BTreeMap<&'static str, Trouble>> = Mutex::new(BTreeMap::new());

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

fn troubles() -> MutexGuard<'static, BTreeMap<&'static str, Trouble>> {
    // It is whole after every statement.
    TROUBLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a problem that no request met.
pub(crate) fn quietly<T>(make: impl FnOnce() -> T) -> T {
    let was = IS_QUIET.replace(true);
    let made = make();
    IS_QUIET.set(was);
    made
}

/// A request failed with this problem, for this reason.
pub(crate) fn note(problem: &'static str, weight: Weight, error: String) {
    if IS_QUIET.get() {
        return;
    }
    tracing::debug!(problem, error, "a request failed");
    let now = Instant::now();
    let mut troubles = troubles();
    let Some(trouble) = troubles.get_mut(problem) else {
        match weight {
            Weight::Passing => tracing::warn!(problem, error, "requests fail"),
            Weight::Lasting => tracing::error!(problem, error, "requests fail"),
        }
        troubles.insert(
            problem,
            Trouble { began: now, last: now, said: now, since_said: 0, count: 1, reasons: vec![error] },
        );
        return;
    };
    trouble.last = now;
    trouble.count += 1;
    trouble.since_said += 1;
    let is_known = trouble.reasons.contains(&error) || trouble.reasons.len() >= REASONS_MAX;
    if now.duration_since(trouble.said) >= if is_known { SAY_AGAIN } else { SAY_OTHER } {
        trouble.said = now;
        let failed = std::mem::take(&mut trouble.since_said);
        tracing::warn!(problem, failed, error, "requests still fail");
        if !is_known {
            trouble.reasons.push(error);
        }
    }
}

/// Says what is over. To be called every second or so.
pub(crate) fn look() {
    end(OVER_AFTER);
}

/// Says what there was, at the end of the process.
pub(crate) fn finish() {
    end(Duration::ZERO);
}

fn end(over_after: Duration) {
    let now = Instant::now();
    troubles().retain(|problem, trouble| {
        let goes_on = now.duration_since(trouble.last) < over_after;
        if !goes_on {
            let lasted_ms = trouble.last.duration_since(trouble.began).as_millis();
            tracing::info!(problem, failed = trouble.count, lasted_ms, "no request fails so any more");
        }
        goes_on
    });
}
