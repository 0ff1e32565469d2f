//! The interfaces of WASI 0.2: each call ends when it has its answer.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::pin::pin;
use core::task::{Context, Poll, Waker};

use crate::Component;
use crate::answers::{Denied, Failure, Granted};
use crate::bindings::exports::unalike::edge::blocking;
use crate::bindings::exports::unalike::ids::segments;
use crate::bindings::unalike::ids::types::StoreError;
use crate::one_thread::OneThread;
use crate::questions::{self, segment, store_error};

struct Answers {
    last_ticket: u64,
    /// Those that the core component did not take yet. It takes each at once, so a list does.
    answers: Vec<(u64, Result<Granted, Denied>)>,
    /// Why the newest request for a tag was granted nothing.
    failures: BTreeMap<String, Failure>,
}

static ANSWERS: OneThread<Answers> =
    OneThread::new(Answers { last_ticket: 0, answers: Vec::new(), failures: BTreeMap::new() });

fn answers<T>(act: impl FnOnce(&mut Answers) -> T) -> T {
    act(&mut ANSWERS.cell().borrow_mut())
}

impl segments::Guest for Component {
    /// Waits for the servers, as nothing else can in these hosts.
    fn allocate(tag: String, count: u64, at_least: u64) -> u64 {
        let granted = at_once(questions::allocate(&tag, count.max(1), at_least));
        answers(|answers| {
            // No instance lives for 2^64 requests.
            answers.last_ticket += 1;
            let denied = granted.as_ref().map(|granted| *granted).map_err(|failure| failure.denied);
            match granted {
                Ok(_) => drop(answers.failures.remove(&tag)),
                Err(failure) => drop(answers.failures.insert(tag, failure)),
            }
            answers.answers.push((answers.last_ticket, denied));
            answers.last_ticket
        })
    }

    fn poll(ticket: u64) -> Option<Result<segments::Segment, StoreError>> {
        let answer = answers(|answers| {
            let place = answers.answers.iter().position(|(known, _)| *known == ticket)?;
            Some(answers.answers.swap_remove(place))
        });
        let answer = answer.map_or(Err(Denied::OutcomeUnknown), |(_, answer)| answer);
        Some(answer.map(segment).map_err(store_error))
    }

    /// Nothing is given back: an instance ends without a word, and what it held is a gap.
    fn release(_tag: String, _start: u64, _version: u64) {}
}

impl blocking::Guest for Component {
    fn last_failure(tag: String) -> Option<blocking::Failure> {
        answers(|answers| answers.failures.get(&tag).map(told))
    }

    fn snowflakes(name: String, count: u32) -> Result<Vec<u64>, blocking::Failure> {
        at_once(questions::snowflakes(&name, count)).map_err(|failure| told(&failure))
    }

    fn check() -> Result<(), blocking::Failure> {
        at_once(questions::check()).map_err(|failure| told(&failure))
    }
}

fn told(failure: &Failure) -> blocking::Failure {
    let Failure { problem, detail, retry_after_ms, .. } = failure;
    blocking::Failure { problem: problem.to_string(), detail: detail.clone(), retry_after_ms: *retry_after_ms }
}

/// What an exchange answers: the client has waited for all that it needs.
fn at_once<T>(exchange: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let mut exchange = pin!(exchange);
    match exchange.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => Err(Failure::unknown()),
    }
}
