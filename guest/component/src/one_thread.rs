//! What all resources of an instance share.
#![expect(unsafe_code, reason = "a static that is not behind a lock")]

use core::cell::RefCell;

/// A static of an instance.
pub(crate) struct OneThread<T>(RefCell<T>);

// SAFETY: an instance of a component has one thread.
unsafe impl<T> Sync for OneThread<T> {}

impl<T> OneThread<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(RefCell::new(value))
    }

    pub(crate) const fn cell(&self) -> &RefCell<T> {
        &self.0
    }
}
