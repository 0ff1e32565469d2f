//! What calls show of a generator's lease, remembered for errors and told to the log: once when a trouble begins and
//! once when it is over, however many calls meet it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use unalike_core::Lease;
use unalike_storage::StoreError;

use crate::metrics::{self, Trouble};
use crate::sync::lock;

/// The troubles of one generator's ids, as far as they are its lease's or its clock's.
#[derive(Debug, Default)]
pub(crate) struct LeaseWatch {
    /// Whether there is any: looked at with each run, so without the lock.
    troubled: AtomicBool,
    /// None nearly always.
    troubles: Mutex<Option<Box<Troubles>>>,
    /// The end of the newest tick that ids came from.
    stamped_ms: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Troubles {
    ended: Option<Ended>,
    clock_moved_back: bool,
}

/// A lease that has ended while there is no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) worker: u32,
    pub(crate) ended_ms: u64,
}

impl LeaseWatch {
    /// The lease that has ended, while there is no other.
    pub(crate) fn ended(&self) -> Option<Ended> {
        lock(&self.troubles).as_ref()?.ended
    }

    /// The lease in hand was looked at: its worker and end.
    pub(crate) fn looked_at(
        &self,
        namespace: &str,
        (worker, valid_until_ms): (u32, u64),
        now_ms: u64,
        last_error: impl FnOnce() -> Option<Arc<StoreError>>,
    ) {
        if now_ms < valid_until_ms {
            self.lease_runs(namespace, now_ms);
        } else if self
            .change(|troubles| troubles.ended = Some(Ended { worker, ended_ms: valid_until_ms }))
            .ended
            .is_none()
        {
            let store = last_error().map(|error| error.to_string());
            let store = store.as_deref().unwrap_or("it has not answered");
            let ended_ms = valid_until_ms;
            tracing::error!(
                namespace,
                worker,
                ended_ms,
                now_ms,
                store,
                "the lease has ended: no ids until there is another"
            );
            metrics::lease_trouble(Trouble::Ended);
        }
    }

    /// There is a lease that has not ended.
    pub(crate) fn lease_runs(&self, namespace: &str, now_ms: u64) {
        if self.troubled.load(Ordering::Relaxed)
            && let Some(Ended { worker, ended_ms }) = self.change(|troubles| troubles.ended = None).ended
        {
            tracing::info!(namespace, worker, ended_ms, now_ms, "after the lease that ended there is one again");
        }
    }

    /// A call was refused since the clock went back beyond the policy.
    pub(crate) fn clock_moved_back(&self, namespace: &str, behind_ms: u64, now_ms: u64) {
        if !self.change(|troubles| troubles.clock_moved_back = true).clock_moved_back {
            tracing::error!(namespace, behind_ms, now_ms, "the clock went back: no ids until it has caught up");
            metrics::lease_trouble(Trouble::ClockMovedBack);
        }
    }

    /// A call brought ids.
    pub(crate) fn brought_ids(&self, namespace: &str, now_ms: u64) {
        self.lease_runs(namespace, now_ms);
        if self.troubled.load(Ordering::Relaxed)
            && self.change(|troubles| troubles.clock_moved_back = false).clock_moved_back
        {
            tracing::info!(namespace, now_ms, "the clock has caught up: ids continue");
        }
    }

    /// Ids of this worker came, up to this instant.
    pub(crate) fn stamped(&self, namespace: &str, worker: u32, until_ms: u64) {
        let before_ms = self.stamped_ms.swap(until_ms, Ordering::Relaxed);
        if until_ms < before_ms {
            tracing::warn!(
                namespace,
                worker,
                before_ms,
                until_ms,
                "the clock was ahead by more than a lease and went back: ids continue under another worker, from lower timestamps"
            );
        }
    }

    fn change(&self, change: impl FnOnce(&mut Troubles)) -> Troubles {
        let mut troubles = lock(&self.troubles);
        let before = troubles.as_deref().copied().unwrap_or_default();
        let mut after = before;
        change(&mut after);
        *troubles = (after != Troubles::default()).then(|| Box::new(after));
        self.troubled.store(troubles.is_some(), Ordering::Relaxed);
        before
    }
}

/// What a lease is asked for: in which namespace, and whose lease shall be extended.
#[derive(Debug)]
pub(crate) struct LeaseQuestion {
    pub(crate) namespace: String,
    /// None: a new lease.
    pub(crate) worker: Option<u32>,
}

impl LeaseQuestion {
    /// The store has answered; `before` is what it had said to the request before this one, if that failed.
    pub(crate) fn answered(&self, answer: &Result<Lease, Arc<StoreError>>, before: Option<&StoreError>) {
        let Self { namespace, worker } = self;
        match (worker, answer) {
            (_, Ok(Lease { worker, valid_until_ms, .. })) if before.is_some() => {
                tracing::info!(namespace, worker, valid_until_ms, "the lease store grants again");
            }
            (_, Ok(_)) => {}
            (Some(worker), Err(error)) if matches!(**error, StoreError::LeaseLost { .. }) => {
                tracing::warn!(namespace, worker, "the lease is lost: it is used to its end, and another is asked for");
                metrics::lease_trouble(Trouble::Lost);
            }
            // Those that follow say the same, or what it has come to.
            (_, Err(_)) if before.is_some_and(|before| !matches!(before, StoreError::LeaseLost { .. })) => {}
            (Some(worker), Err(error)) => {
                tracing::warn!(namespace, worker, %error, "a lease was not extended: it is used to its end");
                metrics::lease_trouble(Trouble::NotExtended);
            }
            (None, Err(error)) => {
                tracing::warn!(namespace, %error, "no lease was granted");
                metrics::lease_trouble(Trouble::NotAcquired);
            }
        }
    }
}
