//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock, whatever became of who had it before.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that these locks guard is ever left half changed by a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
