//! The interfaces of WASI 0.3: requests that the core component makes, and what a front end waits for.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::future::poll_fn;
use core::mem;
use core::task::{Poll, Waker};

use crate::Component;
use crate::answers::{Denied, Failure, Granted};
use crate::bindings::exports::unalike::edge::grants;
use crate::bindings::exports::unalike::ids::segments;
use crate::bindings::unalike::ids::types::StoreError;
use crate::one_thread::OneThread;
use crate::questions::{self, segment, store_error};

/// What the calls of this instance share. It is whole at every `await`.
struct Requests {
    last_ticket: u64,
    /// Requests that were made and are not sent yet.
    made: VecDeque<Made>,
    /// The answers to those that are under way (none) or over.
    answers: BTreeMap<u64, Option<Result<Granted, Denied>>>,
    /// How many are under way for a tag, and who waits for them.
    under_way: BTreeMap<String, UnderWay>,
    /// How many of all have ended. It never comes back to where it was, so whoever looks late sees that one ended.
    ended: u64,
    /// Why the newest request for a tag was granted nothing.
    failures: BTreeMap<String, Failure>,
}

struct Made {
    ticket: u64,
    tag: String,
    count: u64,
    at_least: u64,
}

#[derive(Default)]
struct UnderWay {
    count: u32,
    /// How many of all had ended when one last did.
    ended: u64,
    waiting: Vec<Waker>,
}

static REQUESTS: OneThread<Requests> = OneThread::new(Requests {
    last_ticket: 0,
    made: VecDeque::new(),
    answers: BTreeMap::new(),
    under_way: BTreeMap::new(),
    ended: 0,
    failures: BTreeMap::new(),
});

fn requests<T>(act: impl FnOnce(&mut Requests) -> T) -> T {
    act(&mut REQUESTS.cell().borrow_mut())
}

impl segments::Guest for Component {
    fn allocate(tag: String, count: u64, at_least: u64) -> u64 {
        requests(|requests| {
            // No instance lives for 2^64 requests.
            requests.last_ticket += 1;
            let ticket = requests.last_ticket;
            requests.answers.insert(ticket, None);
            requests.made.push_back(Made { ticket, tag, count, at_least });
            ticket
        })
    }

    fn poll(ticket: u64) -> Option<Result<segments::Segment, StoreError>> {
        requests(|requests| match requests.answers.get(&ticket) {
            None => Some(Err(StoreError::OutcomeUnknown)),
            Some(None) => None,
            Some(Some(_)) => {
                let answer = requests.answers.remove(&ticket).flatten()?;
                Some(answer.map(segment).map_err(store_error))
            }
        })
    }

    /// Nothing is given back: an instance ends without a word, and what it held is a gap.
    fn release(_tag: String, _start: u64, _version: u64) {}
}

impl grants::Guest for Component {
    async fn open(tag: String) -> Result<grants::Mode, grants::Failure> {
        let opened = questions::open(&tag).await;
        let mode = opened.map(|is_ordered| if is_ordered { grants::Mode::Ordered } else { grants::Mode::Buffered });
        mode.map_err(|failure| told(&failure))
    }

    async fn drive(tag: String, count: u64) {
        if let Some(made) = begin(&tag) {
            // Answers also if this call is dropped.
            let mut run = Run { ticket: made.ticket, tag, answer: None };
            run.answer = Some(questions::allocate(&run.tag, count.max(1).min(made.count), made.at_least).await);
            return;
        }
        // Another call runs it: until the next answer.
        let ended = requests(|requests| requests.under_way.get(&tag).map(|under_way| under_way.ended));
        let Some(ended) = ended else { return };
        poll_fn(|context| {
            requests(|requests| match requests.under_way.get_mut(&tag) {
                Some(under_way) if under_way.ended == ended => {
                    under_way.waiting.push(context.waker().clone());
                    Poll::Pending
                }
                _ => Poll::Ready(()),
            })
        })
        .await;
    }

    fn last_failure(tag: String) -> Option<grants::Failure> {
        requests(|requests| requests.failures.get(&tag).map(told))
    }

    async fn snowflakes(name: String, count: u32) -> Result<Vec<u64>, grants::Failure> {
        questions::snowflakes(&name, count).await.map_err(|failure| told(&failure))
    }

    async fn check() -> Result<(), grants::Failure> {
        questions::check().await.map_err(|failure| told(&failure))
    }
}

fn told(failure: &Failure) -> grants::Failure {
    grants::Failure {
        error: store_error(failure.denied),
        problem: failure.problem.to_string(),
        detail: failure.detail.clone(),
        retry_after_ms: failure.retry_after_ms,
    }
}

/// Takes the oldest request for a tag that was not sent yet.
fn begin(tag: &str) -> Option<Made> {
    requests(|requests| {
        let place = requests.made.iter().position(|made| made.tag == tag)?;
        let made = requests.made.remove(place)?;
        let ended = requests.ended;
        requests
            .under_way
            .entry(made.tag.clone())
            .or_insert_with(|| UnderWay { ended, ..UnderWay::default() })
            .count += 1;
        Some(made)
    })
}

/// A request that is under way. Whatever happens, it is answered when this goes, and whoever waits is woken.
struct Run {
    ticket: u64,
    tag: String,
    answer: Option<Result<Granted, Failure>>,
}

impl Drop for Run {
    fn drop(&mut self) {
        let answer = self.answer.take().unwrap_or_else(|| Err(Failure::unknown()));
        let waiting = requests(|requests| {
            match &answer {
                Ok(_) => drop(requests.failures.remove(&self.tag)),
                Err(failure) => drop(requests.failures.insert(self.tag.clone(), failure.clone())),
            }
            requests.answers.insert(self.ticket, Some(answer.map_err(|failure| failure.denied)));
            requests.ended += 1;
            let Some(under_way) = requests.under_way.get_mut(&self.tag) else { return Vec::new() };
            under_way.ended = requests.ended;
            under_way.count -= 1;
            let waiting = mem::take(&mut under_way.waiting);
            if under_way.count == 0 {
                requests.under_way.remove(&self.tag);
            }
            waiting
        });
        waiting.into_iter().for_each(Waker::wake);
    }
}
