//! Processes that are measured from outside: their memory, the load on them, and Redis beside them.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use tempfile::TempDir;
use unalike_tests::server::binary;

/// A process that is not ready after this long never will be.
const PATIENCE: Duration = Duration::from_secs(10);

/// The memory that a process has in use (its resident set), in KiB; that of this process without an id.
///
/// # Errors
/// No such process, or no Linux.
pub fn memory_kib(process: Option<u32>) -> Result<f64> {
    let path = process.map_or_else(|| "/proc/self/status".to_owned(), |id| format!("/proc/{id}/status"));
    let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).with_context(|| format!("{path} has no VmRSS"))?;
    Ok(kib.parse()?)
}

/// Lets this process, and those that it starts, have so many files open.
///
/// # Errors
/// When it may not; with the command that helps.
pub fn allow_open_files(count: u64) -> Result<()> {
    let limits = getrlimit(Resource::Nofile);
    if limits.current.is_none_or(|current| current >= count) {
        return Ok(());
    }
    let maximum = limits.maximum.map(|maximum| maximum.max(count));
    setrlimit(Resource::Nofile, Rlimit { current: Some(count), maximum })
        .with_context(|| format!("{count} open files are needed: run `ulimit -n {count}` before, as root if need be"))
}

/// Load on a server by `unalike bench`; its report.
///
/// # Errors
/// What the run failed with: an id that came twice, for one.
pub fn load(url: &str, arguments: &[&str]) -> Result<Value> {
    let output = Command::new(binary()?).args(["bench", url, "--json"]).args(arguments).output()?;
    ensure!(output.status.success(), "unalike bench {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("the report cannot be read")
}

/// A Redis server of our own on a free port, stopped when it is dropped.
#[derive(Debug)]
pub struct Redis {
    process: Child,
    port: u16,
    _directory: TempDir,
}

/// What `redis-benchmark` says about one command.
#[derive(Clone, Copy, Debug)]
pub struct RedisFigures {
    /// Commands per second.
    pub per_second: f64,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// The latency that 1% of the commands exceeded, in microseconds.
    pub p99_us: f64,
}

impl Redis {
    /// Starts one; `durable` keeps an append-only file that is synced every second, else it keeps nothing.
    ///
    /// # Errors
    /// When Redis is not installed, or does not start.
    pub fn start(durable: bool) -> Result<Self> {
        let directory = TempDir::new()?;
        // Free a moment ago; Redis cannot be asked which port it took.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let append_only = if durable { ["yes", "--appendfsync", "everysec"] } else { ["no", "--appendfsync", "no"] };
        let process = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly"])
            .args(append_only)
            .arg("--dir")
            .arg(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("redis-server does not start: apt-get install redis-server redis-tools")?;
        let redis = Self { process, port, _directory: directory };
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            ensure!(started.elapsed() < PATIENCE, "redis-server does not listen on port {port}");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(redis)
    }

    /// `redis-benchmark` with `INCR` of one key.
    ///
    /// # Errors
    /// When it is not installed, or fails.
    pub fn increment(&self, connections: u32, pipeline: u32, requests: u64) -> Result<RedisFigures> {
        let output = Command::new("redis-benchmark")
            .args(["-h", "127.0.0.1", "--csv"])
            .args(["-p", &self.port.to_string(), "-c", &connections.to_string()])
            .args(["-P", &pipeline.to_string(), "-n", &requests.to_string()])
            .args(["INCR", "bench"])
            .output()
            .context("redis-benchmark does not start: apt-get install redis-server redis-tools")?;
        ensure!(output.status.success(), "redis-benchmark: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout)?;
        let mut lines = text.lines().map(|line| line.split(',').map(|cell| cell.trim_matches('"')).collect::<Vec<_>>());
        let (Some(names), Some(figures)) = (lines.next(), lines.next()) else {
            bail!("redis-benchmark printed no table: {text}");
        };
        let figure = |name: &str| -> Result<f64> {
            let at = names.iter().position(|known| *known == name);
            let cell = at.and_then(|at| figures.get(at)).with_context(|| format!("no {name} in {text}"))?;
            cell.parse().with_context(|| format!("{name} is {cell:?}"))
        };
        Ok(RedisFigures {
            per_second: figure("rps")?,
            p50_us: figure("p50_latency_ms")? * 1_000.0,
            p99_us: figure("p99_latency_ms")? * 1_000.0,
        })
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
