//! HTTP by WASI 0.2: what comes in, and what goes out.
//!
//! Each request is served from rounds of its own, so that nothing is left when its instance ends, which most hosts of
//! WASI 0.2 do after one request.

use alloc::vec::Vec;
use core::pin::pin;
use core::task::{Context, Poll, Waker};

use crate::Component;
use crate::bindings::exports::wasi::http::incoming_handler::{Guest, IncomingRequest, ResponseOutparam};
use crate::bindings::unalike::edge::blocking::{self, Failure};
use crate::bindings::unalike::ids::sequences::Ordered;
use crate::bindings::unalike::ids::types::{Error, Run};
use crate::bindings::wasi::clocks::{monotonic_clock, wall_clock};
use crate::bindings::wasi::http::types::{ErrorCode, OutgoingBody, OutgoingResponse};
use crate::bindings::wasi::io::poll::poll;
use crate::bindings::wasi::io::streams::OutputStream;
use crate::failures::{REQUEST_TIMEOUT_MS, Told, of_core};
use crate::problem::Problem;
use crate::routes::{Answer, Head, Source};
use crate::settings::Settings;

impl Guest for Component {
    fn handle(request: IncomingRequest, response_out: ResponseOutparam) {
        let settings = Settings::of_environment();
        let (headers, url) = (request.headers(), request.path_with_query().unwrap_or_default());
        let head = Head { method: request.method(), url: &url, headers: &headers };
        let mut answer = pin!(Answer::to(&head, settings.count_max, &Blocking));
        // Calls of the source end when they have their answer: there is nothing that it could wait for.
        match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => respond(response_out, answer),
            Poll::Pending => ResponseOutparam::set(response_out, Err(ErrorCode::InternalError(None))),
        }
    }
}

/// The storage, whose calls block.
struct Blocking;

impl Source for Blocking {
    async fn sequence(&self, name: &str, count: u32) -> Result<Vec<Run>, Problem> {
        let deadline_ms = now_ms().saturating_add(REQUEST_TIMEOUT_MS);
        let no_ids = |error| of_core(name, error, || blocking::last_failure(name).map(told));
        // A buffered tag, too: what an instance held ahead would end with it.
        let ordered = Ordered::open(name, 0, unalike_core::ID_MAX).map_err(|_| Problem::tag_invalid(name))?;
        let (mut runs, mut left) = (Vec::new(), count);
        while left > 0 {
            if now_ms() >= deadline_ms {
                return Err(Problem::timeout(REQUEST_TIMEOUT_MS));
            }
            let round = ordered.begin(now_ms(), left).map_err(no_ids)?;
            let run = ordered.claim(now_ms(), round).map_err(|error| match error {
                Error::Pending => Problem::new("internal", "the storage did not answer before it returned"),
                error => no_ids(error),
            })?;
            left = left.saturating_sub(run.count);
            runs.push(run);
        }
        Ok(runs)
    }

    async fn snowflake(&self, name: &str, count: u32) -> Result<Vec<u64>, Problem> {
        blocking::snowflakes(name, count).map_err(|failure| told(failure).of_snowflake(name))
    }

    async fn check(&self) -> Result<(), Problem> {
        blocking::check().map_err(|failure| told(failure).plain())
    }
}

fn told(failure: Failure) -> Told {
    let Failure { problem, detail, retry_after_ms } = failure;
    Told { problem, detail, retry_after_ms }
}

fn respond(response_out: ResponseOutparam, answer: Answer) {
    let response = OutgoingResponse::new(answer.headers());
    // Only a status that is none would be refused.
    let _ = response.set_status_code(answer.status);
    // Of a new response there is one.
    let body = response.body();
    ResponseOutparam::set(response_out, Ok(response));
    let Ok(body) = body else { return };
    let is_written = body.write().is_ok_and(|stream| write(&stream, &answer.body).is_some());
    // One that is not finished is told to the caller as one that was cut.
    if is_written {
        let _ = OutgoingBody::finish(body, None);
    }
}

/// Writes all of it; none if that fails, or takes too long.
fn write(stream: &OutputStream, mut bytes: &[u8]) -> Option<()> {
    let timeout = monotonic_clock::subscribe_duration(REQUEST_TIMEOUT_MS.saturating_mul(1_000_000));
    let taken = stream.subscribe();
    while !bytes.is_empty() {
        let room = usize::try_from(stream.check_write().ok()?).unwrap_or(usize::MAX);
        if room == 0 {
            poll(&[&taken, &timeout]);
            if timeout.ready() && !taken.ready() {
                return None;
            }
            continue;
        }
        let (now, rest) = bytes.split_at(room.min(bytes.len()));
        stream.write(now).ok()?;
        bytes = rest;
    }
    stream.flush().ok()
}

/// Unix time.
fn now_ms() -> u64 {
    let now = wall_clock::now();
    now.seconds.saturating_mul(1_000).saturating_add(u64::from(now.nanoseconds / 1_000_000))
}
