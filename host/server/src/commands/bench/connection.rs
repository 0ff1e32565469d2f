//! One connection of the load: it sends requests, reads their answers, and is opened again when it breaks.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use hdrhistogram::Histogram;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::run::Run;
use super::seen::Seen;
use crate::commands::reach::{ClientTls, Io};
use crate::words::shortened;

/// Room for an answer with a single id, many times over.
const READ_BYTES: usize = 8 << 10;
/// No answer is larger: a million ids of 19 digits take a third of it.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// An answer with more headers is none of this server's.
const HEADERS_MAX: usize = 64;
/// For how long a broken connection is tried again.
const REOPEN_MAX: Duration = Duration::from_secs(5);
/// The pause between two tries.
const REOPEN_PAUSE: Duration = Duration::from_millis(50);
/// No further request would be answered otherwise.
const UNAUTHORIZED: u16 = 401;
/// The longest latency that is told from others.
const LATENCY_MAX_NS: u64 = 600_000_000_000;

/// What happened on a thread's connections.
pub(super) struct Tally {
    /// Of requests that brought ids, in nanoseconds.
    pub(super) latency: Histogram<u64>,
    pub(super) ids: u64,
    pub(super) sent: u64,
    /// Answers that brought none: how many by status, and what the first one said.
    pub(super) refused: BTreeMap<u16, (u64, String)>,
    /// How often a connection broke.
    pub(super) broken: u64,
    /// Connections that could not be opened again, and why.
    pub(super) lost: u64,
    pub(super) lost_because: Option<String>,
    pub(super) seen: Seen,
    /// When the last answer came.
    pub(super) last: Option<Instant>,
}

impl Tally {
    pub(super) fn new(seen: Seen) -> anyhow::Result<Self> {
        Ok(Self {
            latency: Histogram::new_with_max(LATENCY_MAX_NS, 3).context("no histogram")?,
            ids: 0,
            sent: 0,
            refused: BTreeMap::new(),
            broken: 0,
            lost: 0,
            lost_because: None,
            seen,
            last: None,
        })
    }

    /// An answer came.
    fn note(&mut self, status: u16, body: &[u8], count: u32, sent: Instant) -> anyhow::Result<()> {
        let now = Instant::now();
        self.last = Some(now);
        if status == 200 {
            let seen = &mut self.seen;
            let came = read_ids(body, |id| seen.note(id))?;
            ensure!(came == count, "{count} ids were asked for, {came} came: {}", shown(body));
            self.ids += u64::from(came);
            let waited_ns = u64::try_from((now - sent).as_nanos()).unwrap_or(u64::MAX);
            self.latency.saturating_record(waited_ns);
        } else if status == UNAUTHORIZED {
            bail!("the server answers 401: name a token that it knows (--token-file, --token-env): {}", said(body));
        } else {
            self.refused.entry(status).or_insert_with(|| (0, said(body))).0 += 1;
        }
        Ok(())
    }
}

/// Sends requests until the run is over.
///
/// # Errors
/// What the server answered is not what this server answers.
pub(super) async fn drive(mut connection: Connection, run: Arc<Run>, tally: Arc<Mutex<Tally>>) -> anyhow::Result<()> {
    loop {
        let many = claim(&run);
        if many == 0 {
            return Ok(());
        }
        lock(&tally).sent += u64::from(many);
        match connection.exchange(&run, many, &tally).await {
            Ok(true) => continue,
            // The server said that it was the connection's last answer.
            Ok(false) => {}
            Err(Failure::Broken) => lock(&tally).broken += 1,
            Err(Failure::Wrong(error)) => return Err(error),
        }
        match reopen(&run).await {
            Ok(opened) => connection = opened,
            Err(error) => {
                let mut tally = lock(&tally);
                tally.lost += 1;
                tally.lost_because.get_or_insert_with(|| format!("{error:#}"));
                return Ok(());
            }
        }
    }
}

/// How many requests may be sent now.
fn claim(run: &Run) -> u32 {
    match run.until {
        Some(until) => {
            if Instant::now() < until {
                run.pipeline
            } else {
                0
            }
        }
        None => {
            let pipeline = u64::from(run.pipeline);
            let update = |left: u64| left.checked_sub(left.min(pipeline));
            let before = run.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update).unwrap_or(0);
            u32::try_from(before.min(pipeline)).unwrap_or(0)
        }
    }
}

/// Opens the connection again: the server may be starting anew.
async fn reopen(run: &Run) -> anyhow::Result<Connection> {
    let now = Instant::now();
    let until = run.until.unwrap_or(now + REOPEN_MAX).min(now + REOPEN_MAX);
    loop {
        match Connection::open(&run.addresses, run.tls.as_ref()).await {
            Err(error) if Instant::now() >= until => return Err(error),
            Err(_) => tokio::time::sleep(REOPEN_PAUSE).await,
            opened => return opened,
        }
    }
}

fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why an exchange ended early.
#[derive(Debug)]
enum Failure {
    /// The connection is gone, as happens.
    Broken,
    /// The other side is not such a server.
    Wrong(anyhow::Error),
}

impl From<io::Error> for Failure {
    fn from(_: io::Error) -> Self {
        Self::Broken
    }
}

/// An open connection.
pub(super) struct Connection {
    stream: Io,
    buffer: Vec<u8>,
    /// What comes before this in the buffer was answered for.
    start: usize,
}

/// What the head of an answer says.
#[derive(Clone, Copy, Debug)]
struct Head {
    status: u16,
    head_bytes: usize,
    body_bytes: usize,
    /// The server closes the connection after it.
    is_last: bool,
}

impl Connection {
    /// Opens one, to the first address that takes it.
    ///
    /// # Errors
    /// When none does.
    pub(super) async fn open(addresses: &[SocketAddr], tls: Option<&ClientTls>) -> anyhow::Result<Self> {
        let stream = Io::open(addresses, tls).await?;
        Ok(Self { stream, buffer: Vec::with_capacity(READ_BYTES), start: 0 })
    }

    /// Sends this many requests and reads their answers; whether the connection can be used again.
    async fn exchange(&mut self, run: &Run, many: u32, tally: &Mutex<Tally>) -> Result<bool, Failure> {
        let bytes = run.request_bytes * usize::try_from(many).unwrap_or(0);
        let sent = Instant::now();
        self.stream.write_all(run.requests.get(..bytes).unwrap_or(&run.requests)).await?;
        self.stream.flush().await?;
        for _ in 0..many {
            let head = self.answer().await?;
            let body = self.start + head.head_bytes;
            let end = body + head.body_bytes;
            let body = self.buffer.get(body..end).unwrap_or_default();
            lock(tally).note(head.status, body, run.count, sent).map_err(Failure::Wrong)?;
            run.answered.fetch_add(1, Ordering::Relaxed);
            self.start = end;
            if head.is_last {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The next answer, once the buffer holds all of it.
    async fn answer(&mut self) -> Result<Head, Failure> {
        let mut needed = 1;
        loop {
            let unread = self.buffer.get(self.start..).unwrap_or_default();
            if unread.len() >= needed {
                needed = match read_head(unread).map_err(Failure::Wrong)? {
                    Some(head) if head.head_bytes + head.body_bytes <= unread.len() => return Ok(head),
                    Some(head) => head.head_bytes + head.body_bytes,
                    None => unread.len() + 1,
                };
            }
            // What was answered for makes room for what comes.
            self.buffer.drain(..self.start);
            self.start = 0;
            self.buffer.reserve(READ_BYTES.max(needed.saturating_sub(self.buffer.len())));
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(Failure::Broken);
            }
        }
    }
}

/// Asks once, on a connection of its own: the status of the answer, and what it says.
///
/// # Errors
/// When nobody takes the connection, or it ends without an answer.
pub(in crate::commands) async fn ask(
    addresses: &[SocketAddr],
    tls: Option<&ClientTls>,
    request: &[u8],
) -> anyhow::Result<(u16, String)> {
    let mut connection = Connection::open(addresses, tls).await?;
    connection.stream.write_all(request).await?;
    connection.stream.flush().await?;
    let head = connection.answer().await.map_err(|failure| match failure {
        Failure::Broken => anyhow!("the connection ended before its answer did"),
        Failure::Wrong(error) => error,
    })?;
    let body = connection.buffer.get(head.head_bytes..head.head_bytes + head.body_bytes).unwrap_or_default();
    Ok((head.status, said(body)))
}

/// The head at the beginning of these bytes; none while it is incomplete.
fn read_head(bytes: &[u8]) -> anyhow::Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(bytes).map_err(|error| anyhow!("no HTTP came back ({error}): {}", shown(bytes)))?;
    let httparse::Status::Complete(head_bytes) = parsed else {
        ensure!(bytes.len() <= ANSWER_BYTES_MAX, "the head of an answer is larger than {ANSWER_BYTES_MAX} bytes");
        return Ok(None);
    };
    let (mut body_bytes, mut is_last) = (None, response.version == Some(0));
    for header in response.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            body_bytes = std::str::from_utf8(header.value).ok().and_then(|text| text.trim().parse::<usize>().ok());
        } else if header.name.eq_ignore_ascii_case("connection") {
            is_last |= header.value.eq_ignore_ascii_case(b"close");
        }
    }
    let Some(body_bytes) = body_bytes else {
        bail!("an answer has no Content-Length: name the server itself, not what is in front of it");
    };
    ensure!(body_bytes <= ANSWER_BYTES_MAX, "an answer of {body_bytes} bytes is larger than {ANSWER_BYTES_MAX}");
    Ok(Some(Head { status: response.code.unwrap_or_default(), head_bytes, body_bytes, is_last }))
}

/// Takes the ids out of `{"tag":"..","ids":["1","2"]}`; how many there are.
fn read_ids(body: &[u8], mut note: impl FnMut(u64)) -> anyhow::Result<u32> {
    // A quote in a name is escaped, so this is not part of one.
    const BEFORE: &[u8] = b"\"ids\":[";
    let at = body.windows(BEFORE.len()).position(|window| window == BEFORE);
    let ids = at.and_then(|at| body.get(at + BEFORE.len()..)).with_context(|| format!("no ids: {}", shown(body)))?;
    let (mut count, mut id, mut digits) = (0_u32, 0_u64, 0_u32);
    for &byte in ids {
        if byte.is_ascii_digit() {
            id = id
                .checked_mul(10)
                .and_then(|id| id.checked_add(u64::from(byte - b'0')))
                .with_context(|| format!("an id has more than 64 bits: {}", shown(body)))?;
            digits += 1;
        } else if digits > 0 {
            note(id);
            (count, id, digits) = (count + 1, 0, 0);
        }
        if byte == b']' {
            return Ok(count);
        }
    }
    bail!("the ids have no end: {}", shown(body))
}

/// What a problem document says, or the beginning of another body.
fn said(body: &[u8]) -> String {
    let problem: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let detail = problem.as_ref().and_then(|problem| problem.get("detail")?.as_str());
    detail.map_or_else(|| shown(body), str::to_owned)
}

fn shown(bytes: &[u8]) -> String {
    shortened(&String::from_utf8_lossy(bytes.get(..256).unwrap_or(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_come() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nConnection: close\r\n\r\nhellomore";
        let head_bytes = answer.len() - "hellomore".len();
        for end in 0..head_bytes {
            assert!(read_head(&answer[..end]).unwrap().is_none(), "{end}");
        }
        for end in head_bytes..answer.len() {
            let head = read_head(&answer[..end]).unwrap().unwrap();
            assert_eq!((head.status, head.head_bytes, head.body_bytes, head.is_last), (200, head_bytes, 5, true));
        }
        for (bytes, named) in [
            (&b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"[..], "Content-Length"),
            (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH-2.0"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n", "99999999999"),
        ] {
            let error = read_head(bytes).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn ids_are_read_in_both_forms() {
        let ids = |body: &str| {
            let mut ids = Vec::new();
            read_ids(body.as_bytes(), |id| ids.push(id)).map(|count| (count, ids))
        };
        assert_eq!(ids(r#"{"tag":"\"ids\":[7","ids":["1","22","9223372036854775807"]}"#).unwrap(), {
            (3, vec![1, 22, 9_223_372_036_854_775_807])
        });
        assert_eq!(ids(r#"{"snowflake":"x","ids":[1,22]}"#).unwrap(), (2, vec![1, 22]));
        assert_eq!(ids(r#"{"ids":[]}"#).unwrap(), (0, vec![]));
        for body in ["", "{}", r#"{"ids":["1""#, r#"{"ids":["99999999999999999999"]}"#] {
            assert!(ids(body).is_err(), "{body}");
        }
    }
}
