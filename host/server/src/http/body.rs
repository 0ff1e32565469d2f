//! The body of a request, of which the answer waits for the end.
//!
//! A handler that refuses does not read the body. hyper would then close the connection, sometimes, after an answer
//! that did not say so, and the client's next request would be lost. So what is left of a body is read away first, and
//! where that is not possible the answer says that it is the last.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::BoxError;
use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::http::header::EXPECT;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// A body that its handler reads, and its giver afterwards.
#[derive(Clone)]
pub(super) struct RequestBody {
    shared: Arc<Mutex<Limited<Incoming>>>,
    /// The client waits to be asked for it.
    expects: bool,
}

impl RequestBody {
    /// No more than this is read of it.
    pub(super) fn new(body: Incoming, bytes_max: usize, headers: &HeaderMap) -> Self {
        let shared = Arc::new(Mutex::new(Limited::new(body, bytes_max)));
        Self { shared, expects: headers.contains_key(EXPECT) }
    }

    /// Reads the rest away; gives whether that was all.
    pub(super) async fn read_away(mut self) -> bool {
        loop {
            if self.is_end_stream() {
                return true;
            }
            // Reading would ask for a body that nobody wants.
            if self.expects {
                return false;
            }
            match self.frame().await {
                Some(Ok(_)) => {}
                Some(Err(_)) => return false,
                None => return true,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Limited<Incoming>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut *self.lock()).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.lock().size_hint()
    }
}
