//! What is counted of a component.

use std::sync::atomic::{AtomicU64, Ordering};

/// What happened in a service so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceCounts {
    /// Requests that an instance took.
    pub requests: u64,
    /// Requests that ended with an answer of the component.
    pub answered: u64,
    /// Requests that ended with [`ServiceError::Trap`](super::ServiceError::Trap).
    pub trapped: u64,
    /// Requests that ended with [`ServiceError::Timeout`](super::ServiceError::Timeout).
    pub timed_out: u64,
    /// Requests that ended with [`ServiceError::Busy`](super::ServiceError::Busy).
    pub busy: u64,
    /// Requests whose callers did not wait for their end.
    pub forsaken: u64,
    /// Instances that were started.
    pub instances: u64,
    /// Of these, how many are there now.
    pub running: u64,
    /// How many trapped.
    pub traps: u64,
    /// How many were dropped because they did not come back in time.
    pub overdue: u64,
    /// How often an instance asked for more memory than it may have.
    pub memory_refused: u64,
}

/// What happened in all instances.
#[derive(Default)]
pub(super) struct Counted {
    pub(super) requests: AtomicU64,
    answered: AtomicU64,
    trapped: AtomicU64,
    timed_out: AtomicU64,
    busy: AtomicU64,
    forsaken: AtomicU64,
    pub(super) instances: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) traps: AtomicU64,
    pub(super) overdue: AtomicU64,
    pub(super) memory_refused: AtomicU64,
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    Answered,
    Trap,
    Timeout,
    Busy,
    /// Its caller did not wait.
    Dropped,
}

impl Counted {
    /// A request has ended.
    pub(super) fn ended(&self, outcome: Outcome) {
        let count = match outcome {
            Outcome::Answered => &self.answered,
            Outcome::Trap => &self.trapped,
            Outcome::Timeout => &self.timed_out,
            Outcome::Busy => &self.busy,
            Outcome::Dropped => &self.forsaken,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn so_far(&self) -> ServiceCounts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        // One that was dropped was started before.
        let dropped = load(&self.dropped);
        let instances = load(&self.instances);
        ServiceCounts {
            requests: load(&self.requests),
            answered: load(&self.answered),
            trapped: load(&self.trapped),
            timed_out: load(&self.timed_out),
            busy: load(&self.busy),
            forsaken: load(&self.forsaken),
            instances,
            running: instances.saturating_sub(dropped),
            traps: load(&self.traps),
            overdue: load(&self.overdue),
            memory_refused: load(&self.memory_refused),
        }
    }
}
