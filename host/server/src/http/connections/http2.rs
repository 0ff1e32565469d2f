//! HTTP/2 on a connection: by ALPN in TLS, and without TLS for clients that begin with it ("prior knowledge").
//!
//! hyper, by the crate h2, limits what a connection may have at once: streams, bytes of a head, frames that begin and
//! end streams for nothing. Here is what they do not limit: a connection on which no request comes, and one that takes
//! no answer. Its phase is that of its streams together:
//!
//! - [`Phase::FirstHead`], or that of the handshake, until the first request is there: `head_timeout_ms` is for all of
//!   it.
//! - [`Phase::Request`] while a request runs: its own limit of time holds.
//! - [`Phase::Stalled`] while answers are on their way and no request runs, since the client is behind: see [`Pace`].
//! - [`Phase::Idle`] otherwise. Frames without a request, such as PING, do not change it.
//!
//! A connection that ends is said goodbye to (GOAWAY): requests that were sent before the client knows are answered.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

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
use crate::http::pace::Pace;
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
            now_ms: Arc::clone(&self.now_ms),
        });
        let service = service_fn(|mut request| {
            introduce(&mut request);
            let (streams, all) = (Arc::clone(&streams), Arc::clone(self));
            async move { Ok::<_, Infallible>(streams.answer(&all, request).await) }
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
    /// As [`Connections`] has it.
    now_ms: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Requests that run.
    running: usize,
    /// Answers that are on their way.
    leaving: usize,
    /// The bytes of these.
    leaving_bytes: usize,
    /// How fast the client takes them, all together.
    pace: Pace,
    /// The client was told that there will be no more.
    ending: bool,
}

impl Streams {
    /// The answer to a request.
    async fn answer(self: Arc<Self>, all: &Connections, request: Request<Incoming>) -> Response<Answer> {
        self.room().await;
        let running = Running::new(Arc::clone(&self));
        let (front, headers_max) = (&all.front, all.headers_max);
        let response = if request.headers().len() > headers_max {
            front.refuse(&request, Problem::head_too_large(headers_max, all.head_max_bytes))
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
        let now_ms = self.now_ms();
        let mut counts = lock(&self.counts);
        change(&mut counts);
        // Requests that run meanwhile do not hide how far behind a client is with the answers to others.
        let since_ms = if counts.leaving > 0 {
            counts.pace.waits(now_ms)
        } else {
            counts.pace.done();
            now_ms
        };
        let phase = match *counts {
            Counts { running: 1.., .. } => return self.watched.enter(Phase::Request),
            Counts { leaving: 1.., .. } => Phase::Stalled,
            Counts { ending: true, .. } => Phase::Goodbye,
            Counts { .. } => Phase::Idle,
        };
        self.watched.enter_at(phase, since_ms);
    }

    fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    /// The client has taken so many bytes.
    fn took(&self, bytes: usize) {
        let now_ms = self.now_ms();
        self.change(|counts| counts.pace.took(bytes, now_ms));
    }

    /// The client waits for what the server does not have yet: it is not behind.
    fn lets_wait(&self) {
        self.change(|counts| counts.pace.done());
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
            Answer {
                body,
                rest: Bytes::new(),
                piece_bytes: 0,
                leaving: Leaving { streams: Arc::clone(&self.0), bytes },
            }
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

/// A body that is given out in pieces. hyper asks for the next one when the client has taken the one before, which is
/// how it is known that the client takes them.
struct Answer {
    body: Body,
    rest: Bytes,
    /// The size of the last one.
    piece_bytes: usize,
    leaving: Leaving,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let taken = std::mem::take(&mut self.piece_bytes);
        self.leaving.streams.took(taken);
        if self.rest.is_empty() {
            let frame = match Pin::new(&mut self.body).poll_frame(context)? {
                Poll::Ready(Some(frame)) => frame,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    self.leaving.streams.lets_wait();
                    return Poll::Pending;
                }
            };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(other) => return Poll::Ready(Some(Ok(other))),
            }
        }
        let bytes = self.rest.len().min(PIECE_BYTES);
        let piece = self.rest.split_to(bytes);
        self.piece_bytes = bytes;
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
    use std::task::Waker;

    use super::*;

    /// Those of a connection at the time 0.
    fn streams() -> Arc<Streams> {
        Arc::new(Streams {
            counts: Mutex::default(),
            freed: Notify::new(),
            watched: Arc::new(Watched::new(0)),
            now_ms: Arc::default(),
        })
    }

    /// How long a client is seen to be behind, at most, that takes an answer of 4 MiB with so much time between one
    /// piece and the next.
    fn behind_ms(piece_ms: u64) -> u64 {
        let streams = streams();
        let (now_ms, watched) = (Arc::clone(&streams.now_ms), Arc::clone(&streams.watched));
        let mut answer = Running::new(streams).answered(Response::new(Body::from(vec![0_u8; 4 << 20]))).into_body();
        let mut context = Context::from_waker(Waker::noop());
        let mut most = 0;
        while let Poll::Ready(Some(piece)) = Pin::new(&mut answer).poll_frame(&mut context) {
            assert!(piece.is_ok_and(|piece| piece.into_data().is_ok_and(|data| data.len() == PIECE_BYTES)));
            assert_eq!(watched.phase(), Phase::Stalled);
            // As the watch sees it before the next piece is taken.
            let next_ms = now_ms.fetch_add(piece_ms, Ordering::Relaxed) + piece_ms;
            most = most.max(next_ms - watched.since_ms.load(Ordering::Relaxed));
        }
        drop(answer);
        assert_eq!(watched.phase(), Phase::Idle);
        assert_eq!(watched.since_ms.load(Ordering::Relaxed), now_ms.load(Ordering::Relaxed), "idle since then");
        most
    }

    #[test]
    fn a_client_that_takes_its_answer_too_slowly_is_further_and_further_behind() {
        // 16 KiB each time are 4,096 ms for one that takes the least.
        assert_eq!(behind_ms(4_000), 4_000);
        assert_eq!(behind_ms(100), 100);
        assert_eq!(behind_ms(74_000), 255 * (74_000 - 4_096) + 74_000);
        assert_eq!(behind_ms(5_000), 255 * (5_000 - 4_096) + 5_000);
    }

    #[test]
    fn a_client_is_not_behind_while_the_server_has_nothing_for_it() {
        let streams = streams();
        let (now_ms, watched) = (Arc::clone(&streams.now_ms), Arc::clone(&streams.watched));
        let mut answer = Running::new(streams).answered(Response::new(Body::new(Never))).into_body();
        let mut context = Context::from_waker(Waker::noop());
        for asked_ms in [0, 60_000, 120_000] {
            now_ms.store(asked_ms, Ordering::Relaxed);
            assert!(Pin::new(&mut answer).poll_frame(&mut context).is_pending());
            assert_eq!(watched.since_ms.load(Ordering::Relaxed), asked_ms);
        }
    }

    /// A body of which nothing comes.
    struct Never;

    impl HttpBody for Never {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }

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
