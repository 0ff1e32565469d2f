//! One request to one server by WASI 0.2, sent once.

use alloc::vec::Vec;

use crate::address::Address;
use crate::answers::Failure;
use crate::bindings::wasi::clocks::monotonic_clock;
use crate::bindings::wasi::http::outgoing_handler::handle;
use crate::bindings::wasi::http::types::{IncomingResponse, OutgoingBody, OutgoingRequest, Scheme};
use crate::bindings::wasi::io::poll::{Pollable, poll};
use crate::bindings::wasi::io::streams::StreamError;
use crate::exchange::{Exchange, PIECE_BYTES, Question, options, refused_by_host, timeout_ns};
use crate::json::Value;

/// Sends a request, and answers what came back. It ends when it has the answer, or in time.
pub(crate) async fn send(
    address: &Address,
    host: &str,
    token: Option<&str>,
    question: Question<'_>,
) -> Result<Value, Failure> {
    let Question { method, path, access, .. } = question;
    let timeout = monotonic_clock::subscribe_duration(timeout_ns(address));
    let exchange = Exchange::new(access);
    let request = OutgoingRequest::new(exchange.headers(method, token).ok_or_else(refused_by_host)?);
    let scheme = if address.is_https { Scheme::Https } else { Scheme::Http };
    let is_complete = request.set_method(method).is_ok()
        && request.set_scheme(Some(&scheme)).is_ok()
        && request.set_authority(Some(host)).is_ok()
        && request.set_path_with_query(Some(path)).is_ok();
    let body = request.body();
    let (true, Ok(body)) = (is_complete, body) else { return Err(refused_by_host()) };
    let sent = handle(request, Some(options(address))).map_err(|error| exchange.failed(&error))?;
    // Without it, hosts wait for a body. What happened to a request that it fails for is what the answer says.
    let _ = OutgoingBody::finish(body, None);
    let response = loop {
        match sent.get() {
            Some(Ok(answer)) => break answer.map_err(|error| exchange.failed(&error))?,
            // It is given out once.
            Some(Err(())) => return Err(access.lost()),
            None => wait(&sent.subscribe(), &timeout).ok_or_else(|| access.lost())?,
        }
    };
    exchange.recognise(&response.headers())?;
    let body = read(&response, question.answer_bytes_max(), &timeout);
    exchange.understood(&question, response.status(), body.as_deref())
}

/// Waits until something is ready; none if the time is over before.
fn wait(ready: &Pollable, timeout: &Pollable) -> Option<()> {
    poll(&[ready, timeout]);
    (ready.ready() || !timeout.ready()).then_some(())
}

/// What came of the body. One that was cut may look like one that ended; as JSON it is none.
fn read(response: &IncomingResponse, bytes_max: usize, timeout: &Pollable) -> Option<Vec<u8>> {
    let contents = response.consume().ok()?;
    let stream = contents.stream().ok()?;
    let more = stream.subscribe();
    let mut body = Vec::new();
    loop {
        match stream.read(u64::try_from(PIECE_BYTES).unwrap_or(u64::MAX)) {
            Ok(bytes) if bytes.is_empty() => wait(&more, timeout)?,
            Ok(bytes) if body.len() + bytes.len() > bytes_max => return None,
            Ok(bytes) => body.extend_from_slice(&bytes),
            Err(StreamError::Closed) => return Some(body),
            Err(StreamError::LastOperationFailed(_)) => return None,
        }
    }
}
