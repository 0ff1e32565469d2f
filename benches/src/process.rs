//! Processes that are measured from outside: their memory, the load on them, and Redis beside them.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use unalike_tests::redis::Redis;
use unalike_tests::server::binary;

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

/// `redis-benchmark` with `INCR` of one key.
///
/// # Errors
/// When it is not installed, or fails.
pub fn redis_benchmark(server: &Redis, connections: u32, pipeline: u32, requests: u64) -> Result<RedisFigures> {
    let output = Command::new("redis-benchmark")
        .args(["-h", "127.0.0.1", "--csv"])
        .args(["-p", &server.port().to_string(), "-c", &connections.to_string()])
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
