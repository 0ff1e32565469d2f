//! The same component in three languages: what an id costs in a program in Rust, Node and Python, from a store in
//! memory and from a server on the same two cores; the time from the start of a process to its first id; and what the
//! packages weigh.
//!
//! Expected: Rust's counter is an atomic one. In Node a call of `next()` makes a promise, some 60 ns, and each id a
//! bigint, some 20. In Python a call of a function in C costs 50 ns, one written in Python several times that, and an
//! integer above 256 some 20. Runs of a batch are not looked at, so they cost a thousandth of a call. Callers of an
//! ordered tag wait for a request in each language, and are served together. A process starts as quickly as its
//! interpreter, and loads machine code or compiles some 30 KiB of WebAssembly.
//!
//! Needs what `tests/run --test hosts` installs: Node with npm, and the Python environment in `target/hosts`.
//!
//! ```text
//! cargo bench -p unalike-benches --bench hosts
//! ```

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use unalike::storage::{Mode, SegmentStore, TagOptions};
use unalike::{Ids, SequenceOptions, StepPolicy};
use unalike_benches::{Bench, Plan, Row};
use unalike_memory::MemoryStore;
use unalike_remote::{RemoteOptions, RemoteStore};
use unalike_tests::hosts::{node, python, repository, run};
use unalike_tests::server::Server;

const CALLERS: u64 = 50;

/// The host in Rust first: the others are compared with it.
const HOSTS: [&str; 3] = ["Rust", "Node", "Python"];

/// What is measured, where the ids come from, and how the calls are named in each host.
const CASES: [(&str, &str, bool); 5] = [
    ("single", "single ids, one caller", false),
    ("batch", "take(1000), each id looked at", false),
    ("runs", "take(1000), as runs", false),
    ("single", "single ids from a server, one caller", true),
    ("ordered", "ordered ids from a server, 50 callers", true),
];

struct Hosts {
    runtime: Runtime,
    server: Server,
    package: PathBuf,
    python: PathBuf,
    length: Duration,
}

fn main() -> Result<()> {
    // This program is the one in Rust that starts.
    if std::env::args().any(|argument| argument == "--first") {
        let ids = Ids::builder().segments(Arc::new(MemoryStore::default())).build_blocking()?;
        println!("{}", ids.sequence_blocking("order", SequenceOptions::default())?.next_blocking()?);
        ids.close_blocking();
        return Ok(());
    }
    let plan = Plan::from_args();
    let is_smoke = plan.kept == 1;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let server = Server::start_with(["--log", "warn"])?;
    runtime.block_on(create_ordered(&server))?;
    let hosts = Hosts {
        runtime,
        server,
        package: node()?.to_owned(),
        python: python()?.to_owned(),
        length: Duration::from_millis(if is_smoke { 10 } else { 300 }),
    };

    let mut figures = vec![[const { Vec::new() }; 3]; CASES.len()];
    let mut starts = [const { Vec::new() }; 3];
    let mut bare = [const { Vec::new() }; 3];
    for _ in 0..plan.kept.div_ceil(3) {
        for ((case, _, is_remote), of_hosts) in CASES.iter().zip(&mut figures) {
            for (host, samples) in HOSTS.iter().zip(of_hosts) {
                samples.push(hosts.measure(host, case, *is_remote)?);
            }
        }
        for (host, (starts, bare)) in HOSTS.iter().zip(starts.iter_mut().zip(&mut bare)) {
            starts.push(first_line(&mut hosts.first(host)?)?);
            bare.push(first_line(&mut hosts.bare(host))?);
        }
    }

    let mut bench = Bench::new("hosts: the same component in three languages, in turns", plan);
    for ((_, name, _), of_hosts) in CASES.iter().zip(figures) {
        let mut base = None;
        for (host, samples) in HOSTS.iter().zip(of_hosts) {
            let mut row = Row::samples(format!("{name}: {host}"), samples, "ns");
            if let Some(base) = base {
                row = row.against(base);
            }
            base.get_or_insert(bench.row(row));
        }
    }
    for (host, (starts, bare)) in HOSTS.iter().zip(starts.into_iter().zip(bare)) {
        let base = bench.row(Row::samples(format!("a process that prints a line: {host}"), bare, "ms"));
        bench.row(Row::samples(format!("a process that prints its first id: {host}"), starts, "ms").against(base));
    }
    for (name, bytes) in hosts.sizes()? {
        bench.row(Row::samples(name, vec![bytes / 1_024.0], "KiB"));
    }
    bench.run()
}

async fn connect(server: &Server) -> Result<Arc<RemoteStore>> {
    let options = RemoteOptions::from_url(server.url()).with_context(|| server.url().to_owned())?;
    Ok(Arc::new(RemoteStore::connect(options).await?))
}

/// The tag of the callers that wait for a request each.
async fn create_ordered(server: &Server) -> Result<()> {
    let options = TagOptions { mode: Mode::Ordered, ..TagOptions::default() };
    connect(server).await?.create_tag("ticket", &options).await?;
    Ok(())
}

impl Hosts {
    /// Nanoseconds for an id.
    fn measure(&self, host: &str, case: &str, is_remote: bool) -> Result<f64> {
        if host == "Rust" {
            return self.runtime.block_on(self.measure_here(case, is_remote));
        }
        let url = if is_remote { self.server.url() } else { "-" };
        let mut program = self.program(host);
        let printed = run(program.args([case, url, &self.length.as_millis().to_string()]))?;
        printed.trim().parse().with_context(|| format!("{host} printed {printed:?}"))
    }

    async fn measure_here(&self, case: &str, is_remote: bool) -> Result<f64> {
        let store: Arc<dyn SegmentStore> =
            if is_remote { connect(&self.server).await? } else { Arc::new(MemoryStore::default()) };
        let ids = Ids::builder().segments(store).build().await?;
        let step = (!is_remote).then_some(StepPolicy::Fixed { step: 10_000_000 });
        let tag = if case == "ordered" { "ticket" } else { "order" };
        let orders = ids.sequence(tag, SequenceOptions { step, ..SequenceOptions::default() }).await?;
        let mut sum = 0;
        let mut done = 0_u64;
        // The first one is not measured.
        orders.take(1_000).await?;
        let began = Instant::now();
        while began.elapsed() < self.length {
            done += match case {
                "single" => {
                    for _ in 0..1_000 {
                        sum ^= orders.next().await?;
                    }
                    1_000
                }
                "batch" => {
                    let batch = orders.take(1_000).await?;
                    batch.iter().for_each(|id| sum ^= id);
                    batch.len()
                }
                "runs" => orders.take(1_000).await?.len(),
                _ => {
                    let callers: Vec<_> = (0..CALLERS).map(|_| tokio::spawn(ten(orders.clone()))).collect();
                    for caller in callers {
                        sum ^= caller.await??;
                    }
                    CALLERS * 10
                }
            };
        }
        let took = began.elapsed();
        std::hint::black_box(sum);
        ids.close().await;
        Ok(took.as_secs_f64() * 1e9 / done as f64)
    }

    fn program(&self, host: &str) -> Command {
        let here = repository().join("benches/hosts");
        let (program, script) =
            if host == "Node" { (Path::new("node"), "node.mjs") } else { (self.python.as_path(), "python.py") };
        let mut command = Command::new(program);
        command.arg(here.join(script)).env("UNALIKE_NODE_PACKAGE", &self.package);
        command
    }

    /// A process that prints its first id.
    fn first(&self, host: &str) -> Result<Command> {
        if host == "Rust" {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("--first");
            return Ok(command);
        }
        let mut command = self.program(host);
        command.args(["first", "-", "0"]);
        Ok(command)
    }

    /// A process that does nothing.
    fn bare(&self, host: &str) -> Command {
        let (program, arguments) = match host {
            "Rust" => (Path::new("echo"), ["1"].as_slice()),
            "Node" => (Path::new("node"), ["-e", "console.log(1)"].as_slice()),
            _ => (self.python.as_path(), ["-c", "print(1)"].as_slice()),
        };
        let mut command = Command::new(program);
        command.args(arguments);
        command
    }

    /// What is downloaded to install each package.
    fn sizes(&self) -> Result<Vec<(&'static str, f64)>> {
        let folder = TempDir::new()?;
        let mut pack = Command::new("npm");
        // Packing builds the package anew, around the library that is there.
        pack.env("UNALIKE_NODE_NATIVE", std::fs::canonicalize(self.package.join("dist/unalike.node"))?);
        run(pack.args(["pack", "--silent", "--pack-destination"]).arg(folder.path()).current_dir(&self.package))?;
        let mut wheel = Command::new(&self.python);
        wheel.args(["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]);
        let components = repository().join("target/hosts");
        wheel.env("UNALIKE_COMPONENT_WASM", components.join("unalike.wasm"));
        wheel.env("UNALIKE_FORMATS_WASM", components.join("unalike-formats.wasm"));
        wheel.env("UNALIKE_NATIVE", repository().join("host/python/src/unalike/_native.abi3.so"));
        run(wheel.arg(folder.path()).arg(repository().join("host/python")))?;
        let size = |extension: &str| -> Result<f64> {
            let files = std::fs::read_dir(folder.path())?.collect::<Result<Vec<_>, _>>()?;
            let file = files.into_iter().find(|file| file.path().extension().is_some_and(|found| found == extension));
            Ok(file.with_context(|| format!("no file .{extension}"))?.metadata()?.len() as f64)
        };
        Ok(vec![("the npm package", size("tgz")?), ("the Python wheel", size("whl")?)])
    }
}

async fn ten(tickets: unalike::Sequence) -> Result<u64> {
    let mut last = 0;
    for _ in 0..10 {
        last = tickets.next().await?;
    }
    Ok(last)
}

/// Milliseconds from the start of a process until it has printed a line.
fn first_line(command: &mut Command) -> Result<f64> {
    let began = Instant::now();
    let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(process.stdout.take().context("no output")?).read_line(&mut line)?;
    let took = began.elapsed().as_secs_f64() * 1_000.0;
    ensure!(process.wait()?.success() && line.trim_end() == "1", "no first id: {line:?}");
    Ok(took)
}
