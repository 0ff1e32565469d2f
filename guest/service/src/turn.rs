//! What one request does while others wait.

use alloc::collections::VecDeque;
use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::task::{Poll, Waker};

/// What one request may do at a time, in the order in which they asked for it.
///
/// Nobody waits longer than those before it need. Each of them has an earlier deadline, and ends soon after it.
#[derive(Default)]
pub(crate) struct Turn {
    /// The number of the one whose turn it is, and of those that wait, with what wakes them.
    queue: RefCell<VecDeque<(u64, Option<Waker>)>>,
    last_number: Cell<u64>,
}

impl Turn {
    pub(crate) async fn take(&self) -> Place<'_> {
        let number = self.last_number.get() + 1;
        self.last_number.set(number);
        self.queue.borrow_mut().push_back((number, None));
        // It leaves the queue also where it is dropped while it waits.
        let place = Place { turn: self, number };
        poll_fn(|context| {
            let mut queue = self.queue.borrow_mut();
            if place.is_first(&queue) {
                return Poll::Ready(());
            }
            if let Some((_, waker)) = queue.iter_mut().find(|(waiting, _)| *waiting == number) {
                *waker = Some(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
        place
    }
}

/// A place in the queue. Whose is the first one has the turn.
pub(crate) struct Place<'a> {
    turn: &'a Turn,
    number: u64,
}

impl Place<'_> {
    fn is_first(&self, queue: &VecDeque<(u64, Option<Waker>)>) -> bool {
        queue.front().is_some_and(|(first, _)| *first == self.number)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut queue = self.turn.queue.borrow_mut();
        let was_first = self.is_first(&queue);
        queue.retain(|(number, _)| *number != self.number);
        let next = queue.front_mut().filter(|_| was_first).and_then(|(_, waker)| waker.take());
        drop(queue);
        if let Some(next) = next {
            next.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    use super::*;

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A request that asked for the turn.
    struct Request<'a> {
        taking: Option<Pin<Box<dyn Future<Output = Place<'a>> + 'a>>>,
        place: Option<Place<'a>>,
        woken: Arc<Woken>,
    }

    impl<'a> Request<'a> {
        fn new(turn: &'a Turn) -> Self {
            let mut request = Self { taking: Some(Box::pin(turn.take())), place: None, woken: Arc::default() };
            request.poll();
            request
        }

        fn poll(&mut self) {
            let waker = Arc::clone(&self.woken).into();
            let polled = self.taking.as_mut().map(|taking| taking.as_mut().poll(&mut Context::from_waker(&waker)));
            if let Some(Poll::Ready(place)) = polled {
                (self.taking, self.place) = (None, Some(place));
            }
        }

        fn has_turn(&mut self) -> bool {
            self.poll();
            self.place.is_some()
        }

        fn was_woken(&self) -> usize {
            self.woken.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn the_turn_goes_to_who_waits_longest_and_wakes_nobody_else() {
        let turn = Turn::default();
        let mut requests: VecDeque<_> = (0..4).map(|_| Request::new(&turn)).collect();
        for asked in 4..100 {
            let [first, others @ ..] = requests.make_contiguous() else { panic!("there are four") };
            assert!(first.has_turn(), "request {}", asked - 4);
            assert!(others.iter_mut().all(|other| !other.has_turn() && other.was_woken() == 0));
            // Somebody new asks before the turn is over.
            requests.push_back(Request::new(&turn));
            drop(requests.pop_front());
            assert_eq!(requests[0].was_woken(), 1);
        }
    }

    #[test]
    fn one_that_is_dropped_keeps_the_turn_from_nobody() {
        let turn = Turn::default();
        let mut first = Request::new(&turn);
        assert!(first.has_turn());
        let (waiting, woken, mut last) = (Request::new(&turn), Request::new(&turn), Request::new(&turn));
        drop(waiting);
        assert!(!last.has_turn());
        drop(first);
        // It is its turn, and it never hears of it.
        assert_eq!((woken.was_woken(), last.was_woken()), (1, 0));
        drop(woken);
        assert_eq!(last.was_woken(), 1);
        assert!(last.has_turn());
        drop(last);
        assert!(Request::new(&turn).has_turn());
    }
}
