//! One request to one server by WASI 0.3, sent once.

use alloc::vec::Vec;
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;

use crate::address::Address;
use crate::answers::Failure;
use crate::bindings::wasi::clocks::monotonic_clock;
use crate::bindings::wasi::http::client;
use crate::bindings::wasi::http::types::{Request, Response, Scheme};
use crate::bindings::wit_future;
use crate::exchange::{Exchange, PIECE_BYTES, Question, options, refused_by_host, timeout_ns};
use crate::json::Value;

/// Sends a request, and answers what came back.
pub(crate) async fn send(
    address: &Address,
    host: &str,
    token: Option<&str>,
    question: Question<'_>,
) -> Result<Value, Failure> {
    let mut answer = pin!(exchange(address, host, token, question));
    let mut timeout = pin!(monotonic_clock::wait_for(timeout_ns(address)));
    poll_fn(|context| {
        if let Poll::Ready(answer) = answer.as_mut().poll(context) {
            return Poll::Ready(answer);
        }
        timeout.as_mut().poll(context).map(|()| Err(question.access.lost()))
    })
    .await
}

async fn exchange(
    address: &Address,
    host: &str,
    token: Option<&str>,
    question: Question<'_>,
) -> Result<Value, Failure> {
    let Question { method, path, access, .. } = question;
    let exchange = Exchange::new(access);
    let headers = exchange.headers(method, token).ok_or_else(refused_by_host)?;
    let (trailers, no_trailers) = wit_future::new(|| Ok(None));
    drop(trailers);
    let (request, _) = Request::new(headers, None, no_trailers, Some(options(address)));
    let scheme = if address.is_https { Scheme::Https } else { Scheme::Http };
    let is_complete = request.set_method(method).is_ok()
        && request.set_scheme(Some(&scheme)).is_ok()
        && request.set_authority(Some(host)).is_ok()
        && request.set_path_with_query(Some(path)).is_ok();
    if !is_complete {
        return Err(refused_by_host());
    }
    let response = client::send(request).await.map_err(|error| exchange.failed(&error))?;
    exchange.recognise(&response.get_headers())?;
    let status = response.get_status_code();
    let body = read(response, question.answer_bytes_max()).await;
    exchange.understood(&question, status, body.as_deref())
}

/// The body, if all of it came.
async fn read(response: Response, bytes_max: usize) -> Option<Vec<u8>> {
    let (done, is_done) = wit_future::new(|| Ok(()));
    let (mut contents, trailers) = Response::consume_body(response, is_done);
    let mut body = Vec::new();
    loop {
        let (status, bytes) = contents.read(Vec::with_capacity(PIECE_BYTES)).await;
        if body.len() + bytes.len() > bytes_max {
            return None;
        }
        body.extend_from_slice(&bytes);
        if !matches!(status, wit_bindgen::StreamResult::Complete(_)) {
            break;
        }
    }
    drop(contents);
    drop(done);
    // A stream that was cut ends as any other does; this is what tells them apart.
    trailers.await.ok().map(|_| body)
}
