//! The interfaces of WASI 0.3: requests that the core component makes, and what a front end waits for.

use alloc::collections::BTreeMap;
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
    made: Vec<Made>,
    /// The answers to those that are under way (none) or over. Each tag has one or two, so a list does.
    answers: Vec<(u64, Option<Result<Granted, Denied>>)>,
    /// The tags with requests under way, and those whose newest request was granted nothing.
    tags: BTreeMap<String, Tag>,
    /// How many of all have ended. It never comes back to where it was, so whoever looks late sees that one ended.
    ended: u64,
}

struct Made {
    ticket: u64,
    tag: String,
    count: u64,
    at_least: u64,
}

#[derive(Default)]
struct Tag {
    /// How many requests are under way.
    under_way: u32,
    /// How many of all had ended when one of this tag last did.
    ended: u64,
    /// Who waits for those under way.
    waiting: Vec<Waker>,
    /// Why the newest request was granted nothing.
    failure: Option<Failure>,
}

static REQUESTS: OneThread<Requests> =
    OneThread::new(Requests { last_ticket: 0, made: Vec::new(), answers: Vec::new(), tags: BTreeMap::new(), ended: 0 });

fn requests<T>(act: impl FnOnce(&mut Requests) -> T) -> T {
    act(&mut REQUESTS.cell().borrow_mut())
}

impl segments::Guest for Component {
    fn allocate(tag: String, count: u64, at_least: u64) -> u64 {
        requests(|requests| {
            // No instance lives for 2^64 requests.
            requests.last_ticket += 1;
            let ticket = requests.last_ticket;
            requests.answers.push((ticket, None));
            requests.made.push(Made { ticket, tag, count, at_least });
            ticket
        })
    }

    fn poll(ticket: u64) -> Option<Result<segments::Segment, StoreError>> {
        requests(|requests| {
            let Some(place) = requests.answers.iter().position(|(known, _)| *known == ticket) else {
                return Some(Err(StoreError::OutcomeUnknown));
            };
            let (_, answer) = *requests.answers.get(place)?;
            let answer = answer?;
            requests.answers.swap_remove(place);
            Some(answer.map(segment).map_err(store_error))
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
        let ended = requests(|requests| requests.tags.get(&tag).map(|known| known.ended));
        let Some(ended) = ended else { return };
        poll_fn(|context| {
            requests(|requests| match requests.tags.get_mut(&tag) {
                Some(known) if known.under_way > 0 && known.ended == ended => {
                    known.waiting.push(context.waker().clone());
                    Poll::Pending
                }
                _ => Poll::Ready(()),
            })
        })
        .await;
    }

    fn last_failure(tag: String) -> Option<grants::Failure> {
        requests(|requests| requests.tags.get(&tag)?.failure.as_ref().map(told))
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
        let made = requests.made.remove(place);
        let ended = requests.ended;
        let known = requests.tags.entry(made.tag.clone()).or_insert_with(|| Tag { ended, ..Tag::default() });
        known.under_way += 1;
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
            requests.ended += 1;
            let (answer, failure) = match answer {
                Ok(granted) => (Ok(granted), None),
                Err(failure) => (Err(failure.denied), Some(failure)),
            };
            if let Some((_, known)) = requests.answers.iter_mut().find(|(ticket, _)| *ticket == self.ticket) {
                *known = Some(answer);
            }
            let Some(tag) = requests.tags.get_mut(&self.tag) else { return Vec::new() };
            tag.ended = requests.ended;
            tag.under_way -= 1;
            tag.failure = failure;
            let waiting = mem::take(&mut tag.waiting);
            if tag.under_way == 0 && tag.failure.is_none() {
                requests.tags.remove(&self.tag);
            }
            waiting
        });
        waiting.into_iter().for_each(Waker::wake);
    }
}
