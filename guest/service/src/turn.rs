//! What one request does while others wait.

use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::mem;
use core::task::{Poll, Waker};

/// What one request may do at a time.
#[derive(Default)]
pub(crate) struct Turn {
    is_taken: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

impl Turn {
    pub(crate) async fn take(&self) -> Taken<'_> {
        poll_fn(|context| {
            if self.is_taken.replace(true) {
                self.waiting.borrow_mut().push(context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        Taken(self)
    }
}

pub(crate) struct Taken<'a>(&'a Turn);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.is_taken.set(false);
        // All of them: the first may be one that was dropped.
        let waiting = mem::take(&mut *self.0.waiting.borrow_mut());
        waiting.into_iter().for_each(Waker::wake);
    }
}
