//! Connections: accepted, limited, watched, ended.
//!
//! hyper speaks HTTP on each; what it does not limit is limited here. One task looks at all connections once per tick,
//! so that no request sets a timer or reads a clock: a connection notes in which tick it came to what it is doing (its
//! [`Phase`]), and a phase that has lasted too long ends it.

mod http2;
mod tls;

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::Request;
use axum::http::StatusCode;
use hyper::body::{Body as _, Incoming};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::{http1, http2 as hyper_http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::coop::unconstrained;
use unalike::storage::lock;

use crate::config::tls::Tls;
use crate::config::{CONNECTIONS_MAX, Config, HEADERS_ON_STACK};
use crate::http::pace::Pace;
use crate::http::{Arrival, Front};
use crate::service::problem::{Kind, Problem};

/// The smallest buffer that hyper takes.
const BUFFER_BYTES_MIN: usize = 8 * 1024;

/// Files beside the connections: the store's, the log, the runtime's own.
const FILES_BESIDE: usize = 64;

/// So many refused connections are told why at a time. Beyond it they are only closed.
const REFUSALS_MAX: usize = 64;

/// A refused client gets this long to read why.
const REFUSAL_LINGERS: Duration = Duration::from_secs(1);

/// A client that has just connected gets this long to send its first request when the server ends.
const FIRST_REQUEST_MAX: Duration = Duration::from_millis(300);

/// Where a handshake comes first, the first request of a connection that is older is not on its way.
const HANDSHAKE_LIKELY_MS: u64 = 1_000;

/// Fewer possible connections than this are too few for a server, whatever it was asked for.
const CONNECTIONS_FEW: usize = 1_000;

/// When no connection can be accepted, as all files are in use, it is tried again after this long.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// What would be logged for each connection is logged once in this time.
const SAY_AGAIN: Duration = Duration::from_secs(10);

/// A client of HTTP/2 gets this long to close a connection on which nothing is left to do, once it was told to.
const GOODBYE_MS: u64 = 1_000;

/// A connection that was idle for this long is likely to be idle for longer.
const PARK_AFTER_MS: u64 = 1_000;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// Accepted, and nothing was read.
    New,
    /// TLS is being agreed on.
    Handshake,
    /// Some of the first request's head was read.
    FirstHead,
    /// Some of a later one's.
    Head,
    /// A request runs: its own limit of time holds.
    Request,
    /// Its answer is being written.
    FrontAnswer,
    /// The client takes no more of it, or takes it too slowly.
    Stalled,
    /// Between two requests.
    Idle,
    /// The same, without buffers.
    Parked,
    /// The client was told that there will be no more, and nothing is left to do for it. Of HTTP/2 only.
    Goodbye,
}

impl Phase {
    const ALL: [Self; 10] = [
        Self::New,
        Self::Handshake,
        Self::FirstHead,
        Self::Head,
        Self::Request,
        Self::FrontAnswer,
        Self::Stalled,
        Self::Idle,
        Self::Parked,
        Self::Goodbye,
    ];
}

/// What is to happen to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Order {
    Serve,
    /// Give the buffers back if it is still idle.
    Park,
    /// Close if what took too long has not ended meanwhile.
    Expire,
    /// FrontAnswer the request that runs, and close.
    End,
    /// Close now.
    Break,
}

/// Why a connection serves no requests now.
enum Pause {
    Closed,
    Expired,
    Parked,
}

/// What becomes of a connection that served HTTP/1.
enum Served<S> {
    Closed,
    /// It waits without buffers, and this was read ahead.
    Parked(S, Bytes),
    /// It began with HTTP/2, and this much of it was read.
    Http2(S, Bytes),
}

/// What a connection is made of.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

/// What a connection and its watcher share.
#[derive(Debug)]
struct Watched {
    phase: AtomicU8,
    since_ms: AtomicU64,
    order: AtomicU8,
    /// It is never parked: an answer was of unknown length, and hyper may have more of it to write whenever it seems to
    /// be idle; or it has a state of its own, that of TLS or of HTTP/2.
    stays: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Watched {
    fn new(now_ms: u64) -> Self {
        Self {
            phase: AtomicU8::new(Phase::New as u8),
            since_ms: AtomicU64::new(now_ms),
            order: AtomicU8::new(Order::Serve as u8),
            stays: AtomicBool::new(false),
            waker: Mutex::new(None),
        }
    }

    fn phase(&self) -> Phase {
        let phase = self.phase.load(Ordering::Acquire);
        Phase::ALL.into_iter().find(|known| *known as u8 == phase).unwrap_or(Phase::Idle)
    }

    fn is(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::Relaxed) == phase as u8
    }

    fn enter(&self, phase: Phase) {
        // Whoever sees the phase sees when it began.
        self.phase.store(phase as u8, Ordering::Release);
    }

    fn enter_at(&self, phase: Phase, now_ms: u64) {
        self.since_ms.store(now_ms, Ordering::Relaxed);
        self.enter(phase);
    }

    fn ordered(&self, order: Order) -> bool {
        self.order.load(Ordering::Acquire) == order as u8
    }

    /// Tells the connection, and wakes it to hear it.
    fn tell(&self, order: Order) {
        self.order.store(order as u8, Ordering::Release);
        self.wake();
    }

    /// Tells a connection that is not ending.
    fn tell_while_serving(&self, order: Order) {
        if self.replace_order(Order::Serve, order) || self.replace_order(Order::Park, order) {
            self.wake();
        }
    }

    /// Whether the connection was told to expire, and a request has not come just then.
    fn expires(&self) -> bool {
        if !self.ordered(Order::Expire) {
            return false;
        }
        let expires = !(self.is(Phase::Request) || self.is(Phase::FrontAnswer));
        if !expires {
            self.replace_order(Order::Expire, Order::Serve);
        }
        expires
    }

    fn replace_order(&self, old: Order, new: Order) -> bool {
        self.order.compare_exchange(old as u8, new as u8, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// It is never parked.
    fn stays(&self) {
        self.stays.store(true, Ordering::Relaxed);
    }

    /// Whether the connection was told to park, and can: then nothing is lost with hyper's state.
    fn parks(&self) -> bool {
        self.replace_order(Order::Park, Order::Serve) && self.is(Phase::Idle) && !self.stays.load(Ordering::Relaxed)
    }

    /// Waits until there is something to read, or the peer has closed; false when the connection is to close instead.
    async fn readable(&self, stream: &TcpStream) -> bool {
        let mut registered = None;
        poll_fn(|context| {
            self.register(&mut registered, context);
            if self.ordered(Order::Expire) || self.ordered(Order::Break) {
                return Poll::Ready(false);
            }
            // What is wrong with it, reading will tell. A request that is there when the server ends is answered yet.
            match stream.poll_read_ready(context) {
                Poll::Pending if self.ordered(Order::End) => Poll::Ready(false),
                ready => ready.map(|_| true),
            }
        })
        .await
    }

    /// Notes whom to wake.
    fn register(&self, registered: &mut Option<Waker>, context: &Context<'_>) {
        if !registered.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *registered = Some(context.waker().clone());
            lock(&self.waker).clone_from(registered);
        }
    }

    fn wake(&self) {
        if let Some(waker) = lock(&self.waker).as_ref() {
            waker.wake_by_ref();
        }
    }
}

/// All connections of a server.
pub(crate) struct Connections {
    open: Mutex<Open>,
    /// Milliseconds since the start, as of the last tick.
    now_ms: Arc<AtomicU64>,
    /// When the last one has closed.
    all_closed: Notify,
    /// No more connections are accepted.
    stopping: Notify,
    refusals: Arc<Semaphore>,
    refusal: Vec<u8>,
    too_slow: Vec<u8>,
    too_large: Vec<u8>,
    url_too_long: Vec<u8>,
    http: http1::Builder,
    http2: hyper_http2::Builder<TokioExecutor>,
    /// None: plain HTTP.
    tls: Option<Arc<Tls>>,
    front: Front,
    connections_max: usize,
    headers_max: usize,
    head_max_bytes: usize,
    head_timeout_ms: u64,
    idle_timeout_ms: u64,
}

struct Open {
    connections: HashMap<u64, Arc<Watched>>,
    next: u64,
    /// No more are taken.
    ending: bool,
}

impl Connections {
    /// Those of a server that is about to listen.
    pub(crate) fn new(config: &Config, front: Front, tls: Option<Arc<Tls>>) -> Arc<Self> {
        let mut http = http1::Builder::new();
        // The one per request that hyper would set is replaced by the watch here.
        http.header_read_timeout(None);
        // Head and body in one buffer: for answers of some hundred bytes copying is cheaper than gathering.
        http.writev(false);
        http.max_header_size(config.head_max_bytes);
        http.max_buf_size(config.head_max_bytes.max(BUFFER_BYTES_MIN));
        if config.headers_max != HEADERS_ON_STACK {
            http.max_headers(config.headers_max);
        }
        let refused = Problem::new(Kind::ConnectionsMax, "as many connections are open as this server takes");
        let slow = format!("the head of the request was not there within {} ms", config.head_timeout_ms);
        let long = format!("the URL has more than the {} bytes that are read", config.url_max_bytes);
        Arc::new(Self {
            open: Mutex::new(Open { connections: HashMap::new(), next: 0, ending: false }),
            now_ms: Arc::default(),
            all_closed: Notify::new(),
            stopping: Notify::new(),
            refusals: Arc::new(Semaphore::new(REFUSALS_MAX)),
            too_large: Problem::head_too_large(config.headers_max, config.head_max_bytes).into_last_message(),
            url_too_long: Problem::new(Kind::UrlTooLong, long).into_last_message(),
            refusal: refused.retry_after(1_000).into_last_message(),
            too_slow: Problem::new(Kind::HeadTimeout, slow).into_last_message(),
            http,
            http2: http2::builder(config),
            tls,
            front,
            connections_max: connections_possible(config.connections_max),
            headers_max: config.headers_max,
            head_max_bytes: config.head_max_bytes,
            head_timeout_ms: config.head_timeout_ms,
            idle_timeout_ms: config.idle_timeout_ms,
        })
    }

    /// Accepts connections until it is told to stop. No error ends it.
    pub(crate) async fn accept(self: Arc<Self>, listener: TcpListener) {
        let (mut failures, mut refusals) = (Seldom::default(), Seldom::default());
        loop {
            // Who has come is served, also at the end.
            let accepted = tokio::select! {
                biased;
                accepted = unconstrained(listener.accept()) => accepted,
                () = self.stopping.notified() => return,
            };
            match accepted {
                Ok((stream, _)) => {
                    if let Err(stream) = Arc::clone(&self).take(stream) {
                        if let Some(count) = refusals.say() {
                            let max = self.connections_max;
                            tracing::warn!("connections_max ({max}) was reached: {count} were refused");
                        }
                        self.refuse(stream);
                    }
                }
                // The client has gone already.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    if let Some(count) = failures.say() {
                        tracing::error!(%error, "no connection could be accepted, {count} times");
                    }
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            }
        }
    }

    /// Ends [`Connections::accept`] as soon as nobody waits to be accepted.
    pub(crate) fn stop_accepting(&self) {
        self.stopping.notify_one();
    }

    /// Serves this one, or gives it back when there are as many as there may be.
    fn take(self: Arc<Self>, stream: TcpStream) -> Result<(), TcpStream> {
        let mut open = lock(&self.open);
        if open.ending || open.connections.len() >= self.connections_max {
            self.front.traffic().connected(Arrival::Refused);
            return Err(stream);
        }
        self.front.traffic().connected(Arrival::Accepted);
        // Answers are small: waiting to fill a packet would only delay them.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection keeps its delay");
        }
        let key = open.next;
        open.next += 1;
        let watched = Arc::new(Watched::new(self.now_ms.load(Ordering::Relaxed)));
        open.connections.insert(key, Arc::clone(&watched));
        drop(open);
        let entry = Entry { connections: self, key };
        tokio::spawn(async move { entry.connections.serve(stream, watched).await });
        Ok(())
    }

    /// Says why, so that the client comes back later, and closes. In TLS saying it would cost more than it helps.
    fn refuse(&self, stream: TcpStream) {
        if self.tls.is_some() {
            return;
        }
        let Ok(permit) = Arc::clone(&self.refusals).try_acquire_owned() else { return };
        let refusal = self.refusal.clone();
        tokio::spawn(async move {
            part_with(stream, &refusal).await;
            drop(permit);
        });
    }

    /// Answers what hyper could not read as a request, for it would answer without a word. `unread` is the head as far
    /// as it came.
    async fn explain(&self, stream: impl Stream, status: StatusCode, unread: &[u8], error: Option<&hyper::Error>) {
        let is_url = status == StatusCode::URI_TOO_LONG
            || (status == StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE && !unread.contains(&b'\n'));
        let (status, message) = if is_url {
            (StatusCode::URI_TOO_LONG, self.url_too_long.clone())
        } else if status == StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE {
            (status, self.too_large.clone())
        } else {
            let why = error.map_or_else(|| "it is not HTTP/1.1".to_owned(), ToString::to_string);
            let problem = Problem::new(Kind::RequestInvalid, format!("the request cannot be read: {why}"));
            (StatusCode::BAD_REQUEST, problem.into_last_message())
        };
        self.front.traffic().answered_unread(status);
        part_with(stream, &message).await;
    }

    /// Serves a connection until it closes.
    async fn serve(self: &Arc<Self>, stream: TcpStream, watched: Arc<Watched>) {
        match &self.tls {
            None => self.serve_plain(stream, watched).await,
            // No buffer for those who only connect.
            Some(tls) => match tls::first_byte(&stream, &watched).await {
                // No handshake begins with a letter, and every method does.
                Some(b'A'..=b'Z') => Box::pin(self.refuse_plain(stream)).await,
                Some(_) => Box::pin(self.serve_tls(stream, tls.server(), &watched)).await,
                None => {}
            },
        }
    }

    /// Serves a connection without TLS until it closes.
    async fn serve_plain(self: &Arc<Self>, mut stream: TcpStream, watched: Arc<Watched>) {
        let mut unread = Bytes::new();
        // hyper, and its buffers of 16 KiB, only while there is something to do.
        while !unread.is_empty() || watched.readable(&stream).await {
            if watched.is(Phase::Parked) {
                watched.enter(Phase::Idle);
            }
            match Box::pin(self.serve_http1(stream, unread, &watched, |_| {})).await {
                Served::Parked(idle, rest) => (stream, unread) = (idle, rest),
                Served::Http2(stream, unread) => {
                    return Box::pin(self.serve_http2(stream, unread, &watched, |_| {})).await;
                }
                Served::Closed => return,
            }
        }
    }

    /// Serves requests until the connection closes, or is to be parked, or turns out to be one of HTTP/2. Each request
    /// is introduced first: by what the connection knows of its client.
    async fn serve_http1<S: Stream>(
        self: &Arc<Self>,
        stream: S,
        unread: Bytes,
        watched: &Arc<Watched>,
        introduce: impl Fn(&mut Request<Incoming>),
    ) -> Served<S> {
        let stream = TokioIo::new(stream);
        let io = WatchedStream {
            stream,
            unread,
            watched: Arc::clone(watched),
            now_ms: Arc::clone(&self.now_ms),
            pace: Pace::default(),
            unreadable: None,
        };
        let service = service_fn(|mut request| {
            watched.enter(Phase::Request);
            introduce(&mut request);
            let answer = self.front.answer(request);
            async move {
                let answer = answer.await;
                if answer.as_ref().is_ok_and(|answer| answer.body().size_hint().exact().is_none()) {
                    watched.stays();
                }
                watched.enter(Phase::FrontAnswer);
                answer
            }
        });
        let mut connection = self.http.serve_connection(io, service);
        let mut ending = false;
        let mut registered = None;
        let mut ended_by = None;
        let pause = poll_fn(|context| {
            watched.register(&mut registered, context);
            loop {
                if let Poll::Ready(closed) = Pin::new(&mut connection).poll(context) {
                    if let Err(error) = closed {
                        tracing::debug!(%error, "a connection ended early");
                        ended_by = Some(error);
                    }
                    return Poll::Ready(Pause::Closed);
                }
                if watched.ordered(Order::Break) {
                    return Poll::Ready(Pause::Closed);
                }
                if watched.expires() {
                    return Poll::Ready(Pause::Expired);
                }
                if watched.parks() {
                    return Poll::Ready(Pause::Parked);
                }
                if ending || !watched.ordered(Order::End) {
                    return Poll::Pending;
                }
                ending = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
        })
        .await;
        match pause {
            Pause::Closed => {
                let parts = connection.into_parts();
                // Whoever began with HTTP/1 does not change to another one.
                if watched.is(Phase::FirstHead) && http2::begins(&parts.read_buf) {
                    return Served::Http2(parts.io.stream.into_inner(), parts.read_buf);
                }
                if let Some(status) = parts.io.unreadable {
                    self.explain(parts.io.stream.into_inner(), status, &parts.read_buf, ended_by.as_ref()).await;
                }
                Served::Closed
            }
            Pause::Parked => {
                watched.enter(Phase::Parked);
                tracing::trace!("a connection is parked");
                let parts = connection.into_parts();
                // An empty rest would keep the buffer that it was part of.
                let unread = if parts.read_buf.is_empty() { Bytes::new() } else { parts.read_buf };
                Served::Parked(parts.io.stream.into_inner(), unread)
            }
            Pause::Expired => {
                let phase = watched.phase();
                tracing::debug!(?phase, "a connection took too long and is closed");
                if matches!(phase, Phase::FirstHead | Phase::Head) {
                    tell_at_once(connection.into_parts().io.stream.into_inner(), &self.too_slow);
                }
                Served::Closed
            }
        }
    }

    /// Looks after the connections for as long as it is polled.
    pub(crate) async fn watch(self: Arc<Self>) {
        let start = Instant::now();
        let shortest_ms = self.head_timeout_ms.min(self.idle_timeout_ms);
        let tick_ms = (shortest_ms / 10).clamp(10, 1_000);
        let mut ticks = tokio::time::interval(Duration::from_millis(tick_ms));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.now_ms.store(now_ms, Ordering::Relaxed);
            for watched in lock(&self.open).connections.values() {
                let phase = watched.phase();
                let limit_ms = match phase {
                    Phase::New | Phase::Handshake | Phase::FirstHead | Phase::Head => self.head_timeout_ms,
                    Phase::Idle | Phase::Parked | Phase::Stalled => self.idle_timeout_ms,
                    // It may have begun as long ago as the last tick is.
                    Phase::Goodbye => GOODBYE_MS + tick_ms,
                    Phase::Request | Phase::FrontAnswer => continue,
                };
                let lasted_ms = now_ms.saturating_sub(watched.since_ms.load(Ordering::Relaxed));
                if lasted_ms >= limit_ms && phase == Phase::Goodbye {
                    watched.tell(Order::Break);
                } else if lasted_ms >= limit_ms {
                    watched.tell_while_serving(Order::Expire);
                } else if phase == Phase::Idle && lasted_ms >= PARK_AFTER_MS && !watched.stays.load(Ordering::Relaxed) {
                    watched.tell_while_serving(Order::Park);
                }
            }
        }
    }

    /// Takes no more, closes idle ones, and the others after the answer to the request that runs. The first request of
    /// those who have just come is on its way: they are left to [`Connections::closed_within`].
    pub(crate) fn end(&self) {
        let mut open = lock(&self.open);
        open.ending = true;
        let now_ms = self.now_ms.load(Ordering::Relaxed);
        for watched in open.connections.values() {
            let since_ms = watched.since_ms.load(Ordering::Relaxed);
            let comes = match watched.phase() {
                Phase::New if self.tls.is_none() => since_ms >= now_ms,
                Phase::New | Phase::Handshake => since_ms.saturating_add(HANDSHAKE_LIKELY_MS) >= now_ms,
                _ => false,
            };
            if !comes {
                watched.tell(Order::End);
            }
        }
    }

    /// Waits for this long until all have closed; gives how many have not.
    pub(crate) async fn closed_within(&self, limit: Duration) -> usize {
        let closed = async {
            loop {
                let closed = self.all_closed.notified();
                if lock(&self.open).connections.is_empty() {
                    return;
                }
                closed.await;
            }
        };
        let mut closed = pin!(closed);
        let on_their_way = limit.min(FIRST_REQUEST_MAX);
        // The time is over or not: what counts is who is left.
        if tokio::time::timeout(on_their_way, closed.as_mut()).await.is_err() {
            for watched in lock(&self.open).connections.values() {
                watched.tell(Order::End);
            }
            let _ = tokio::time::timeout(limit.saturating_sub(on_their_way), closed).await;
        }
        let open = lock(&self.open);
        for watched in open.connections.values() {
            watched.tell(Order::Break);
        }
        open.connections.len()
    }
}

/// The place of a connection among the open ones, which it leaves when it closes, however that comes.
struct Entry {
    connections: Arc<Connections>,
    key: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut open = lock(&self.connections.open);
        open.connections.remove(&self.key);
        self.connections.front.traffic().closed();
        if open.connections.is_empty() {
            self.connections.all_closed.notify_one();
        }
    }
}

/// A connection of HTTP/1 that notes what it is doing.
struct WatchedStream<S> {
    stream: TokioIo<S>,
    /// What was read before it was parked.
    unread: Bytes,
    watched: Arc<Watched>,
    /// As [`Connections`] has it.
    now_ms: Arc<AtomicU64>,
    pace: Pace,
    /// The status with which hyper answers what it cannot read: that answer is kept back for one that says why.
    unreadable: Option<StatusCode>,
}

impl<S> WatchedStream<S> {
    fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    /// Whether these bytes are hyper's own answer: no request came, and it refuses. They are not sent then.
    fn keeps_back(&mut self, bytes: &[u8]) -> bool {
        if self.unreadable.is_some() {
            return true;
        }
        let watched = &self.watched;
        let is_answer = watched.is(Phase::FrontAnswer)
            || !matches!(watched.phase(), Phase::FirstHead | Phase::Head | Phase::New | Phase::Idle);
        if is_answer {
            return false;
        }
        let status = bytes.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3));
        self.unreadable =
            status.and_then(|status| StatusCode::from_bytes(status).ok()).filter(StatusCode::is_client_error);
        self.unreadable.is_some()
    }

    fn written(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Pending if self.watched.is(Phase::FrontAnswer) || self.watched.is(Phase::Idle) => self.stalls(),
            Poll::Pending => {}
            Poll::Ready(taken) => {
                self.pace.took(*taken.as_ref().unwrap_or(&0), self.now_ms());
                if self.watched.is(Phase::Stalled) {
                    self.watched.enter(Phase::FrontAnswer);
                }
            }
        }
        written
    }

    /// Too slow a client does not stall anew with each byte that it takes.
    fn stalls(&mut self) {
        let behind_since_ms = self.pace.waits(self.now_ms());
        self.watched.enter_at(Phase::Stalled, behind_since_ms);
    }
}

impl<S: AsyncRead + Unpin> Read for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = if self.unread.is_empty() {
            Pin::new(&mut self.stream).poll_read(context, buffer)
        } else {
            let fits = buffer.remaining().min(self.unread.len());
            buffer.put_slice(&self.unread.split_to(fits));
            Poll::Ready(Ok(()))
        };
        if read.is_ready() {
            if self.watched.is(Phase::Idle) {
                self.watched.enter_at(Phase::Head, self.now_ms());
            } else if self.watched.is(Phase::New) {
                // The first head has had its time since the connection began.
                self.watched.enter(Phase::FirstHead);
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> Write for WatchedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.keeps_back(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        // TLS takes an answer into a buffer of its own: whether the client takes it, only this tells.
        match (flushed.is_ready(), self.watched.phase()) {
            (true, Phase::FrontAnswer | Phase::Stalled) => {
                self.pace.done();
                self.watched.enter_at(Phase::Idle, self.now_ms());
            }
            (false, Phase::FrontAnswer) => self.stalls(),
            _ => {}
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.unreadable.is_some() {
            return Poll::Ready(Ok(()));
        }
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
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.written(written)
    }
}

/// Sends a last message and closes, so that the client can read it.
async fn part_with(mut stream: impl Stream, message: &[u8]) {
    let told = async {
        stream.write_all(message).await?;
        stream.shutdown().await?;
        // A socket that is closed with its request unread takes the answer back.
        let mut unread = [0; 1024];
        while stream.read(&mut unread).await? > 0 {}
        io::Result::Ok(())
    };
    // Whoever is gone or slow does without.
    let _ = tokio::time::timeout(REFUSAL_LINGERS, told).await;
}

/// Sends a last message as far as it goes at once, and closes: whoever sends so slowly is owed no more.
fn tell_at_once(mut stream: impl Stream, message: &[u8]) {
    let mut context = Context::from_waker(Waker::noop());
    let mut told = |context: &mut Context<'_>| -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut stream).poll_write(context, message))?;
        ready!(Pin::new(&mut stream).poll_flush(context))?;
        Pin::new(&mut stream).poll_shutdown(context)
    };
    let _ = told(&mut context);
}

/// Counts what happens often, and says so seldom.
#[derive(Default)]
struct Seldom {
    last: Option<Instant>,
    count: u64,
}

impl Seldom {
    /// It happened: how often since it was last said, if it is time to say so.
    fn say(&mut self) -> Option<u64> {
        self.count += 1;
        if self.last.is_some_and(|last| last.elapsed() < SAY_AGAIN) {
            return None;
        }
        self.last = Some(Instant::now());
        Some(std::mem::take(&mut self.count))
    }
}

/// Allows this process as many files as the system lets it, and gives how many connections that is enough for. Fewer
/// than asked for is better than a store that finds no file left, and clients that are told nothing.
pub(crate) fn connections_possible(connections_max: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "the limit of open files stays as it was");
        }
    }
    let Some(files) = getrlimit(Resource::Nofile).current else { return connections_max };
    let beside = REFUSALS_MAX + FILES_BESIDE;
    let possible = usize::try_from(files).unwrap_or(usize::MAX).saturating_sub(beside).max(1);
    if possible >= connections_max {
        return connections_max;
    }
    // Nobody asked for as many as there may be by default.
    if connections_max == CONNECTIONS_MAX && possible >= CONNECTIONS_FEW {
        return possible;
    }
    tracing::warn!(
        "{possible} connections are possible instead of {connections_max}, as {files} files may be open: raise that limit \
         (ulimit -Hn, LimitNOFILE= in systemd), or lower connections_max"
    );
    possible
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::Body;
    use axum::http::Response;
    use tokio::io::{DuplexStream, ReadBuf};

    use super::*;

    /// Takes what of an answer is there, 1 KiB at most.
    fn take(client: &mut DuplexStream, context: &mut Context<'_>) {
        let mut piece = [0; 1_024];
        assert!(Pin::new(client).poll_read(context, &mut ReadBuf::new(&mut piece)).is_ready());
    }

    /// How long a client is seen to be behind, at most, that takes 1 KiB of an answer of 1 MiB 400 times, with so much
    /// time between. It takes the rest at once then, and is idle.
    fn behind_ms(piece_ms: u64) -> u64 {
        let (mut client, server) = tokio::io::duplex(1_024);
        let watched = Arc::new(Watched::new(0));
        let now_ms: Arc<AtomicU64> = Arc::default();
        let io = WatchedStream {
            stream: TokioIo::new(server),
            unread: Bytes::new(),
            watched: Arc::clone(&watched),
            now_ms: Arc::clone(&now_ms),
            pace: Pace::default(),
            unreadable: None,
        };
        let service = service_fn(|_: Request<Incoming>| {
            watched.enter(Phase::FrontAnswer);
            async { Ok::<_, Infallible>(Response::new(Body::from(vec![0_u8; 1 << 20]))) }
        });
        let mut http = http1::Builder::new();
        http.header_read_timeout(None);
        http.writev(false);
        let mut connection = pin!(http.serve_connection(io, service));
        let context = &mut Context::from_waker(Waker::noop());
        let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        assert!(Pin::new(&mut client).poll_write(context, request).is_ready());
        let mut most = 0;
        for _ in 0..400 {
            assert!(connection.as_mut().poll(context).is_pending());
            assert_eq!(watched.phase(), Phase::Stalled);
            // As the watch sees it before the next piece is taken.
            let next_ms = now_ms.fetch_add(piece_ms, Ordering::Relaxed) + piece_ms;
            most = most.max(next_ms - watched.since_ms.load(Ordering::Relaxed));
            take(&mut client, context);
        }
        while !watched.is(Phase::Idle) {
            assert!(connection.as_mut().poll(context).is_pending());
            take(&mut client, context);
        }
        assert_eq!(watched.since_ms.load(Ordering::Relaxed), now_ms.load(Ordering::Relaxed), "idle since then");
        most
    }

    #[test]
    fn a_client_that_takes_its_answer_too_slowly_is_further_and_further_behind() {
        // 1 KiB each time are 256 ms for one that takes the least.
        assert_eq!(behind_ms(250), 250);
        assert_eq!(behind_ms(500), 399 * (500 - 256) + 500);
    }
}
