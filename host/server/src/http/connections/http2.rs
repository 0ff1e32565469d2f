//! HTTP/2 on a connection: by ALPN in TLS, and without TLS for clients that begin with it ("prior knowledge").
//!
//! hyper, by the crate h2, limits what a connection may have at once: streams, bytes of a head, frames that begin and
//! end streams for nothing. Here is what they do not limit: a connection on which no request comes, and one that takes
//! no answer. Its phase is that of its streams together:
//!
//! - [`Phase::FirstHead`], or that of the handshake, until the first request is there: `head_timeout_ms` is for all of
//!   it.
//! - [`Phase::Request`] while a request runs: its own limit of time holds.
//! - [`Phase::Stalled`] while answers are on their way and no request runs, since the client last took some of one.
//! - [`Phase::Idle`] otherwise. Frames without a request, such as PING, do not change it.
//!
//! A connection that ends is said goodbye to (GOAWAY): requests that were sent before the client knows are answered.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use axum::http::{Request, Response};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::Notify;

use super::{Connections, Order, Phase, Stream, Watched, lock};
use crate::config::Config;
use crate::service::problem::Problem;

/// What every connection begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Enough of it to know: no method of HTTP/1 is called so.
const PREFACE_BYTES_MIN: usize = 12;

/// Requests of a connection that run, or whose answers are on their way, at once. RFC 9113 advises 100 at least.
const STREAMS_MAX: u32 = 128;

/// What a client may send of one body before it is read: more than the largest that makes sense.
const STREAM_WINDOW_BYTES: u32 = 65_535;

/// The same of all bodies of a connection together.
const CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;

/// An answer goes out in pieces of this size: as large as a frame may be unless the client allows more.
const PIECE_BYTES: usize = 16 * 1024;

/// While answers of this size wait for a client to take them, its next requests are not begun.
const ANSWERS_BYTES_MAX: usize = 1024 * 1024;

/// What hyper is to allow.
pub(super) fn builder(config: &Config) -> Builder<TokioExecutor> {
    let mut http2 = Builder::new(TokioExecutor::new());
    http2.max_concurrent_streams(STREAMS_MAX);
    http2.max_header_list_size(u32::try_from(config.head_max_bytes).unwrap_or(u32::MAX));
    http2.initial_stream_window_size(STREAM_WINDOW_BYTES);
    http2.initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    http2.max_send_buf_size(PIECE_BYTES);
    http2
}

/// Whether what was read first is the beginning of HTTP/2.
pub(super) fn begins(read: &[u8]) -> bool {
    let known = read.len().min(PREFACE.len());
    known >= PREFACE_BYTES_MIN && read.get(..known) == PREFACE.get(..known)
}

impl Connections {
    /// Serves a connection until it closes. Each request is introduced first: by what the connection knows of its
    /// client.
    pub(super) async fn serve_http2<S: Stream>(
        self: &Arc<Self>,
        stream: S,
        unread: Bytes,
        watched: &Arc<Watched>,
        introduce: impl Fn(&mut Request<Incoming>),
    ) {
        watched.stays();
        let streams = Arc::new(Streams {
            counts: Mutex::default(),
            freed: Notify::new(),
            watched: Arc::clone(watched),
            all: Arc::clone(self),
        });
        let service = service_fn(|mut request| {
            introduce(&mut request);
            let streams = Arc::clone(&streams);
            async move { Ok::<_, Infallible>(streams.answer(request).await) }
        });
        let io = Rewound { stream: TokioIo::new(stream), unread };
        let mut connection = pin!(self.http2.serve_connection(io, service));
        let mut registered = None;
        let mut ending = false;
        poll_fn(|context| {
            watched.register(&mut registered, context);
            loop {
                if let Poll::Ready(closed) = connection.as_mut().poll(context) {
                    if let Err(error) = closed {
                        tracing::debug!(%error, "a connection ended early");
                    }
                    return Poll::Ready(());
                }
                if watched.ordered(Order::Break) {
                    return Poll::Ready(());
                }
                let expires = watched.expires();
                if expires && (ending || !watched.is(Phase::Idle)) {
                    let phase = watched.phase();
                    tracing::debug!(?phase, "a connection took too long and is closed");
                    return Poll::Ready(());
                }
                if ending || !(expires || watched.ordered(Order::End)) {
                    return Poll::Pending;
                }
                // A request may be on its way: it is answered yet.
                ending = true;
                streams.end();
                connection.as_mut().graceful_shutdown();
            }
        })
        .await;
    }
}

/// What is under way on a connection.
struct Streams {
    counts: Mutex<Counts>,
    /// Fewer bytes of answers wait.
    freed: Notify,
    watched: Arc<Watched>,
    all: Arc<Connections>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Requests that run.
    running: usize,
    /// Answers that are on their way.
    leaving: usize,
    /// The bytes of these.
    leaving_bytes: usize,
    /// The client was told that there will be no more.
    ending: bool,
}

impl Streams {
    /// The answer to a request.
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Answer> {
        self.room().await;
        let running = Running::new(Arc::clone(&self));
        let (front, headers_max) = (&self.all.front, self.all.headers_max);
        let response = if request.headers().len() > headers_max {
            front.refuse(&request, Problem::head_too_large(headers_max, self.all.head_max_bytes))
        } else {
            // It cannot fail.
            let Ok(response) = front.answer(request).await;
            response
        };
        if front.is_ending() {
            // In place of `Connection: close`.
            self.watched.tell_while_serving(Order::End);
        }
        running.answered(response)
    }

    /// Waits until the client has taken enough of what it asked for before.
    async fn room(&self) {
        loop {
            let freed = self.freed.notified();
            if lock(&self.counts).leaving_bytes < ANSWERS_BYTES_MAX {
                return;
            }
            freed.await;
        }
    }

    /// Changes the counts, and notes what the connection is doing then.
    fn change(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = lock(&self.counts);
        change(&mut counts);
        let phase = match *counts {
            Counts { running: 1.., .. } => return self.watched.enter(Phase::Request),
            Counts { leaving: 1.., .. } => Phase::Stalled,
            Counts { ending: true, .. } => Phase::Goodbye,
            Counts { .. } => Phase::Idle,
        };
        self.watched.enter_at(phase, self.all.now_ms.load(std::sync::atomic::Ordering::Relaxed));
    }

    /// No more requests are begun.
    fn end(&self) {
        self.change(|counts| counts.ending = true);
    }
}

/// A request that runs.
struct Running(Arc<Streams>);

impl Running {
    fn new(streams: Arc<Streams>) -> Self {
        streams.change(|counts| counts.running += 1);
        Self(streams)
    }

    /// The answer to it, which is counted until the client has taken it.
    fn answered(self, response: Response<Body>) -> Response<Answer> {
        response.map(|body| {
            let bytes = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0);
            self.0.change(|counts| {
                counts.leaving += 1;
                counts.leaving_bytes += bytes;
            });
            Answer { body, rest: Bytes::new(), leaving: Leaving { streams: Arc::clone(&self.0), bytes } }
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.change(|counts| counts.running -= 1);
    }
}

/// An answer that is on its way.
struct Leaving {
    streams: Arc<Streams>,
    bytes: usize,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.streams.change(|counts| {
            counts.leaving -= 1;
            counts.leaving_bytes -= self.bytes;
        });
        self.streams.freed.notify_waiters();
    }
}

/// A body that is given out in pieces. hyper asks for the next one when the client has room for it, which is how it is
/// known that the client takes them.
struct Answer {
    body: Body,
    rest: Bytes,
    leaving: Leaving,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)?) else { return Poll::Ready(None) };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(other) => return Poll::Ready(Some(Ok(other))),
            }
        }
        let bytes = self.rest.len().min(PIECE_BYTES);
        let piece = self.rest.split_to(bytes);
        self.leaving.streams.change(|_| {});
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.body.size_hint();
        let rest = u64::try_from(self.rest.len()).unwrap_or(u64::MAX);
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower().saturating_add(rest));
        if let Some(upper) = body.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}

/// A stream of which some was read already.
struct Rewound<S> {
    stream: TokioIo<S>,
    unread: Bytes,
}

impl<S: Stream> Read for Rewound<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let fits = buffer.remaining().min(self.unread.len());
        buffer.put_slice(&self.unread.split_to(fits));
        Poll::Ready(Ok(()))
    }
}

impl<S: Stream> Write for Rewound<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preface_is_known_by_its_beginning() {
        for bytes in
            [&b"PRI * HTTP/2"[..], b"PRI * HTTP/2.0\r\n", PREFACE, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x12\x04"]
        {
            assert!(begins(bytes), "{bytes:?}");
        }
        for bytes in
            [&b""[..], b"PRI", b"PRI * HTTP/1.1\r\n", b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\nHost: a\r\n"]
        {
            assert!(!begins(bytes), "{bytes:?}");
        }
    }
}
