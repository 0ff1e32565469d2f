//! Single ids from a server that is somewhere else: many callers of `next()` in one program, whose store is an unalike
//! server, beside tsoracle, a timestamp oracle with a client that gathers callers as well.
//!
//! Expected: callers of an ordered tag are served by rounds, one request each, for all who came before it began. A
//! round is some 100 us of HTTP on both sides and the store's commit; whoever waits takes part in the next one, so the
//! rate grows with the callers until waking them takes longer than the round: some 0.8 us each on two cores, which the
//! server has a share of. tsoracle's client lingers for a millisecond to gather callers, 2 with the timer's own, before
//! it asks: its rate is callers per 2.5 ms. Ours asks as soon as the line is free. The targets are more than its
//! figures at 50, 500 and 5,000 callers (20,000, 189,000 and 880,000 a second with p50 2.5, 2.5 and 5.5 ms), and an
//! ordered tag keeps the stricter promise for them: each round is a durable commit of its store's, while tsoracle
//! commits a window of 3 s ahead. Redis commits none, and so is what the rounds cost without a disk. A buffered tag
//! asks its server once in many thousand ids, so its callers never wait: tens of millions a second.
//!
//! Their client's lingering is an option. Without it (the rows "at once") it is the same idea as ours.
//!
//! Needs redis-server (apt-get install redis-server), and for tsoracle protoc (apt-get install protobuf-compiler): it
//! is a workspace of its own beside this file, in `benches/tsoracle`, which the first run builds.
//!
//! ```text
//! cargo bench -p unalike-benches --bench remote
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use unalike::storage::{Mode, SegmentStore, TagOptions};
use unalike::{Ids, Sequence, SequenceOptions};
use unalike_benches::callers::{CallerWindow, window};
use unalike_benches::{Bench, Plan, Row};
use unalike_remote::{RemoteOptions, RemoteStore};
use unalike_tests::redis::{Persistence, Redis};
use unalike_tests::server::Server;

/// How many callers, and the targets: at least so many calls a second, p50 at most so many microseconds.
const LOADS: [(usize, f64, f64); 3] =
    [(50, 100_000.0, 1_000.0), (500, 400_000.0, 1_500.0), (5_000, 1_200_000.0, 4_000.0)];

/// tsoracle's client by default, and without lingering, in microseconds.
const LINGERS: [(&str, u64); 2] = [("tsoracle", 1_000), ("tsoracle, at once", 0)];

/// Callers of one thing.
enum Case<'a> {
    Ours(Sequence),
    /// With a client that lingers for so many microseconds.
    Theirs(&'a Peer, u64),
}

fn main() -> Result<()> {
    let plan = Plan::from_args();
    let is_smoke = plan.kept == 1;
    let length = Duration::from_millis(if is_smoke { 30 } else { 400 });
    // What is tried out here is ours.
    let peer = if is_smoke { None } else { Some(Peer::start()?) };
    let redis = Redis::start(Persistence::Nothing)?;
    let over_sqlite = Server::start_with(["--log", "warn"])?;
    let over_redis =
        Server::start_with(["--log", "warn", "--store", &redis.url(0, ""), "--backing", "sqlite://ids.sqlite"])?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let sequence = |server: &Server, mode: Mode| runtime.block_on(open(server, mode));
    let ours = [
        ("ordered, SQLite", sequence(&over_sqlite, Mode::Ordered)?),
        ("ordered, Redis", sequence(&over_redis, Mode::Ordered)?),
        ("buffered, SQLite", sequence(&over_sqlite, Mode::Buffered)?),
    ];
    let theirs = LINGERS.iter().filter_map(|&(name, linger)| Some((name, Case::Theirs(peer.as_ref()?, linger))));
    let ours = ours.into_iter().map(|(name, sequence)| (name, Case::Ours(sequence)));
    let cases: Vec<_> = theirs.chain(ours).collect();

    let mut windows = BTreeMap::<_, Vec<CallerWindow>>::new();
    for _ in 0..plan.kept.div_ceil(3) {
        for (load, &(callers, ..)) in LOADS.iter().enumerate() {
            for (case, (_, what)) in cases.iter().enumerate() {
                windows.entry((load, case)).or_default().push(what.window(&runtime, callers, length)?);
            }
        }
    }
    let mut bench = Bench::new("remote: callers of next() on the cores of their server, in turns", plan);
    let figures = |load, case, figure: fn(&CallerWindow) -> f64| -> Vec<f64> {
        windows.get(&(load, case)).into_iter().flatten().map(figure).collect()
    };
    for (load, &(callers, per_second, p50_us)) in LOADS.iter().enumerate() {
        let (mut base_rate, mut base_p50) = (None, None);
        for (case, (name, what)) in cases.iter().enumerate() {
            let of = |what: &str| format!("{callers} callers, {name}{what}");
            let mut rate = Row::samples(of(""), figures(load, case, |window| window.per_second), "/s");
            let mut p50 = Row::samples(of(", p50"), figures(load, case, |window| window.p50_us), "us");
            let p99 = Row::samples(of(", p99"), figures(load, case, |window| window.p99_us), "us");
            if let Case::Ours(_) = what {
                (rate, p50) = (rate.at_least(per_second), p50.at_most(p50_us));
            }
            if let (Some(base), Some(base_p50)) = (base_rate, base_p50) {
                (rate, p50) = (rate.against(base), p50.against(base_p50));
            }
            let (rate, p50, _) = (bench.row(rate), bench.row(p50), bench.row(p99));
            base_rate.get_or_insert(rate);
            base_p50.get_or_insert(p50);
        }
    }
    bench.run()
}

/// A sequence of a program that has this server for its store.
async fn open(server: &Server, mode: Mode) -> Result<Sequence> {
    let store = RemoteStore::connect(RemoteOptions::from_url(server.url())?).await?;
    let tag = mode.name();
    store.create_tag(tag, &TagOptions { mode, ..TagOptions::default() }).await?;
    let ids = Ids::builder().segments(Arc::new(store)).build().await?;
    Ok(ids.sequence(tag, SequenceOptions::default()).await?)
}

impl Case<'_> {
    fn window(&self, runtime: &Runtime, callers: usize, length: Duration) -> Result<CallerWindow> {
        match self {
            Self::Ours(sequence) => {
                let sequence = sequence.clone();
                let ask = move || {
                    let sequence = sequence.clone();
                    async move { Ok(sequence.next().await?) }
                };
                runtime.block_on(window(callers, length, ask))
            }
            Self::Theirs(peer, linger_us) => peer.window(callers, length, *linger_us),
        }
    }
}

/// tsoracle's server, and the program with its client.
struct Peer {
    _directory: TempDir,
    _server: Killed,
    _client: Killed,
    lines: RefCell<(ChildStdin, BufReader<ChildStdout>)>,
}

/// A process that ends when its value is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Peer {
    fn start() -> Result<Self> {
        let directory = TempDir::new()?;
        let state = directory.path().to_str().context("the temporary directory is not UTF-8")?;
        let (server, _, mut lines) = Self::spawn(&["serve", state])?;
        let mut address = String::new();
        lines.read_line(&mut address)?;
        let (client, stdin, lines) = Self::spawn(&["call", address.trim()])?;
        Ok(Self { _directory: directory, _server: server, _client: client, lines: RefCell::new((stdin, lines)) })
    }

    /// `cargo run` becomes the program that it runs.
    fn spawn(arguments: &[&str]) -> Result<(Killed, ChildStdin, BufReader<ChildStdout>)> {
        let mut child = Command::new(env!("CARGO"))
            .args(["run", "--release", "--locked", "--quiet", "--manifest-path"])
            .args([concat!(env!("CARGO_MANIFEST_DIR"), "/tsoracle/Cargo.toml"), "--"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().context("no input")?;
        let stdout = child.stdout.take().context("no output")?;
        Ok((Killed(child), stdin, BufReader::new(stdout)))
    }

    fn window(&self, callers: usize, length: Duration, linger_us: u64) -> Result<CallerWindow> {
        let mut lines = self.lines.borrow_mut();
        let (stdin, stdout) = &mut *lines;
        writeln!(stdin, "{callers} {} {linger_us}", length.as_millis())?;
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        let figures: Vec<f64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [per_second, p50_us, p99_us] = figures.as_slice() else { bail!("tsoracle's callers failed: {line:?}") };
        Ok(CallerWindow { per_second: *per_second, p50_us: *p50_us, p99_us: *p99_us })
    }
}
