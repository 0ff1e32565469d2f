//! `unalike bench`: load on a running server, for those who want to know what theirs can do.
//!
//! The load generator shares the machine with the server more often than not, so it must cost little: raw sockets, a
//! request that is written once and sent again and again, and a reader that looks at nothing but what it needs. It is a
//! closed loop: a connection sends its next request (or `--pipeline` of them) when the last was answered, so a server
//! that pauses is asked less meanwhile, and the latencies are those of requests that were sent.

pub(crate) mod arguments;
mod connection;
mod report;
mod run;
mod seen;

use std::io::{self, IsTerminal};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use axum::http::Uri;
use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use self::arguments::BenchArguments;
pub(super) use self::connection::ask;
use self::connection::{Connection, Tally, drive};
use self::report::{Report, Share};
use self::run::Run;
use self::seen::Seen;
use crate::commands::print::print;
use crate::commands::reach::{ClientTls, Trust};
use crate::words::shortened;

/// A server that answers nobody for this long is given up.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How often the progress is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Descriptors that the process needs for other things than connections.
const FILES_BESIDE: u64 = 64;

/// `unalike bench`
pub(crate) fn run(arguments: &BenchArguments) -> anyhow::Result<()> {
    let target = Target::of(arguments)?;
    let requests = target.request.repeat(usize::try_from(arguments.pipeline)?);
    raise_open_files(arguments.connections)?;
    let mut run = Run {
        addresses: target.addresses,
        tls: target.tls,
        requests,
        request_bytes: target.request.len(),
        pipeline: arguments.pipeline,
        count: arguments.count,
        until: None,
        left: AtomicU64::new(arguments.requests.unwrap_or(u64::MAX)),
        answered: AtomicU64::new(0),
        gave_up: Notify::new(),
    };
    let threads = arguments.threads.min(arguments.connections);
    let seen_bytes = (u64::from(arguments.check_memory_mib) << 20) / u64::from(threads);
    let opened = connect(&run, arguments.connections, threads)
        .with_context(|| format!("{} cannot be measured (`unalike` starts a server)", arguments.url))?;

    let began = Instant::now();
    run.until = arguments.requests.is_none().then(|| began + arguments.duration);
    let run = Arc::new(run);
    let bar = progress_bar(arguments);
    let shares = work(&run, opened, seen_bytes, || match arguments.requests {
        Some(_) => bar.set_position(run.answered.load(Ordering::Relaxed)),
        None => bar.set_position(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)),
    });
    bar.finish_and_clear();
    let report = Report::new(arguments, target.shown, began, shares?)?;
    if arguments.json {
        print(&format!("{}\n", serde_json::to_string(&report)?))?;
    } else {
        print(&report.to_string())?;
    }
    report.verdict()
}

/// The server and what is sent to it.
struct Target {
    addresses: Vec<SocketAddr>,
    tls: Option<ClientTls>,
    request: Vec<u8>,
    /// The URL of the request.
    shown: String,
}

impl Target {
    fn of(arguments: &BenchArguments) -> anyhow::Result<Self> {
        let url = &arguments.url;
        let uri: Uri = url.parse().with_context(|| format!("the URL {:?} cannot be read", shortened(url)))?;
        let (scheme, port) = match uri.scheme_str() {
            Some("http") => ("http", 80),
            Some("https") => ("https", 443),
            _ => bail!("the URL {:?} must be http://HOST:PORT or https://HOST:PORT", shortened(url)),
        };
        ensure!(
            matches!(uri.path(), "" | "/") && uri.query().is_none(),
            "{url}: give {scheme}://HOST:PORT without a path"
        );
        let authority = uri.authority().with_context(|| format!("the URL {url} names no host"))?;
        // It would be shown, and sent nowhere.
        ensure!(!authority.as_str().contains('@'), "the URL must not hold a user: use --token-file or --token-env");
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let addresses: Vec<_> = (host, authority.port_u16().unwrap_or(port))
            .to_socket_addrs()
            .with_context(|| format!("the host {host:?} cannot be found"))?
            .collect();
        ensure!(!addresses.is_empty(), "the host {host:?} has no address");

        let trust = arguments.ca.as_deref().map_or(Trust::System, Trust::Authorities);
        let tls = (scheme == "https").then(|| ClientTls::new(host, trust)).transpose()?;

        let (kind, name) = match &arguments.snowflake {
            Some(name) => ("snowflakes", name),
            None => ("sequences", &arguments.tag),
        };
        let mut path = format!("/v1/{kind}/{}/ids", percent_encoded(name));
        if arguments.count > 1 {
            path.push_str(&format!("?count={}", arguments.count));
        }
        let authorization = match token(arguments)? {
            Some(token) => format!("Authorization: Bearer {token}\r\n"),
            None => String::new(),
        };
        let request = format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\n{authorization}\r\n").into_bytes();
        Ok(Self { addresses, tls, request, shown: format!("{scheme}://{authority}{path}") })
    }
}

/// A name as one segment of a path.
fn percent_encoded(name: &str) -> String {
    let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    name.bytes()
        .map(|byte| if unreserved(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// The bearer token; it is never shown.
fn token(arguments: &BenchArguments) -> anyhow::Result<Option<String>> {
    let (token, place) = if let Some(file) = &arguments.token_file {
        let place = format!("the file {}", file.display());
        (std::fs::read_to_string(file).with_context(|| format!("{place} cannot be read (--token-file)"))?, place)
    } else if let Some(name) = &arguments.token_env {
        let place = format!("the variable {name}");
        (std::env::var(name).with_context(|| format!("{place} cannot be read (--token-env)"))?, place)
    } else {
        return Ok(None);
    };
    let token = token.trim();
    ensure!(!token.is_empty(), "{place} is empty: it must hold a token");
    ensure!(token.bytes().all(|byte| byte.is_ascii_graphic()), "{place} holds what cannot be in a token");
    Ok(Some(token.to_owned()))
}

/// Every connection needs a descriptor: the limit is raised as far as this process may.
fn raise_open_files(connections: u32) -> anyhow::Result<()> {
    let wanted = u64::from(connections) + FILES_BESIDE;
    let limits = getrlimit(Resource::Nofile);
    if limits.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let raised = limits.maximum.map_or(wanted, |maximum| maximum.max(wanted));
    // A superuser may go beyond the maximum, others up to it.
    let tries =
        [raised, limits.maximum.unwrap_or(wanted)].map(|most| Rlimit { current: Some(wanted), maximum: Some(most) });
    ensure!(
        tries.into_iter().any(|limits| setrlimit(Resource::Nofile, limits).is_ok()),
        "{connections} connections need {wanted} open files, and this process may have {}: raise the limit (ulimit -n)",
        limits.maximum.or(limits.current).unwrap_or_default()
    );
    Ok(())
}

/// A thread's connections, and the runtime that they belong to.
struct Opened {
    runtime: Runtime,
    connections: Vec<Connection>,
}

/// Opens all connections before the first request, so that opening is not measured.
fn connect(run: &Run, connections: u32, threads: u32) -> anyhow::Result<Vec<Opened>> {
    (0..threads)
        .map(|thread| {
            let runtime = Builder::new_current_thread().enable_all().build().context("no asynchronous runtime")?;
            let share = connections / threads + u32::from(thread < connections % threads);
            let connections = runtime.block_on(async {
                let mut opened = Vec::new();
                for _ in 0..share {
                    opened.push(Connection::open(&run.addresses, run.tls.as_ref()).await?);
                }
                anyhow::Ok(opened)
            })?;
            Ok(Opened { runtime, connections })
        })
        .collect()
}

fn progress_bar(arguments: &BenchArguments) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (length, unit) = match arguments.requests {
        Some(requests) => (requests, "{pos} of {len} requests"),
        None => (u64::try_from(arguments.duration.as_millis()).unwrap_or(u64::MAX), "{elapsed} of {msg}"),
    };
    let style =
        ProgressStyle::with_template(&format!("{{wide_bar}} {unit}")).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style).with_message(format!("{:.0?}", arguments.duration))
}

/// Lets all threads work until the run is over.
fn work(run: &Arc<Run>, opened: Vec<Opened>, seen_bytes: u64, look: impl Fn()) -> anyhow::Result<Vec<Share>> {
    thread::scope(|scope| {
        let threads: Vec<_> =
            opened.into_iter().map(|opened| scope.spawn(move || work_alone(run, opened, seen_bytes))).collect();
        let (mut answered, mut heard) = (0, Instant::now());
        while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
            thread::sleep(LOOK_EVERY);
            look();
            let now = run.answered.load(Ordering::Relaxed);
            if now > answered {
                (answered, heard) = (now, Instant::now());
            } else if heard.elapsed() > SILENCE_MAX {
                run.gave_up.notify_waiters();
            }
        }
        threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?).collect()
    })
}

fn work_alone(run: &Arc<Run>, opened: Opened, seen_bytes: u64) -> anyhow::Result<Share> {
    let tally = Arc::new(Mutex::new(Tally::new(Seen::within(seen_bytes))?));
    let Opened { runtime, connections } = opened;
    let cpu_before = thread_cpu();
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for connection in connections {
            tasks.spawn(drive(connection, Arc::clone(run), Arc::clone(&tally)));
        }
        loop {
            tokio::select! {
                ended = tasks.join_next() => match ended {
                    Some(ended) => ended.context("a connection's task panicked")??,
                    None => return anyhow::Ok(()),
                },
                // What was not answered by now is counted as such.
                () = run.gave_up.notified() => return Ok(()),
            }
        }
    })?;
    let cpu = thread_cpu().saturating_sub(cpu_before);
    drop(runtime);
    let tally = Arc::into_inner(tally).context("a connection is still in use")?;
    Ok(Share { tally: tally.into_inner().unwrap_or_else(PoisonError::into_inner), cpu })
}

/// The processor time that this thread has had.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0));
    Duration::new(seconds, nanos)
}
