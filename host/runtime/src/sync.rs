//! Locks.

pub(crate) use unalike_storage::lock;
