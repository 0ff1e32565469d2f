//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock, whatever became of who had it before: for values that no panic leaves half changed.
#[doc(hidden)]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
