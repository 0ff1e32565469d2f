//! Many connections and many tags on one server: memory, latency, and that nothing is refused that the limits allow.
//!
//! Expected: a connection that is idle costs the server its task and hyper's buffers, 5 to 20 KiB; ten thousand of them
//! some 100 to 200 MiB at most. With traffic on all of them nothing of a connection is in the caches when its turn
//! comes, so a third to a half of the requests per second of 50 connections is left, and the latency is what the queue
//! of 10,000 requests takes: some 100 to 200 ms. A tag costs 0.9 KiB in the component and around it, so 200,000 some
//! 220 MiB, and an id of one of them is found by its name in a microsecond or two, cold as it is.
//!
//! Both processes need 10,000 open files and some more: the bench raises the limit if it may (`ulimit -n` otherwise).
//! The store lies in memory where there is `/dev/shm`, so that creating the tags does not measure the disk.
//!
//! ```text
//! cargo bench -p unalike-benches --bench scale
//! ```

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;
use tempfile::TempDir;
use unalike_benches::{Bench, Plan, Row, allow_open_files, load, memory_kib};
use unalike_tests::server::Server;

const CONNECTIONS: usize = 10_000;
const TAGS: usize = 200_000;
/// Connections over which the tags are created.
const CREATORS: usize = 8;
/// Open files that both processes have beside the connections.
const FILES_BESIDE: usize = 1_000;

fn main() -> Result<()> {
    let plan = Plan::from_args();
    let share = match plan.kept {
        1 => 100,
        2..10 => 4,
        _ => 1,
    };
    let (connections, tags) = (CONNECTIONS / share, TAGS / share);
    allow_open_files((connections + FILES_BESIDE) as u64)?;
    let mut bench = Bench::new("scale: many connections, many tags, one server", plan);
    measure_connections(&mut bench, connections, plan)?;
    measure_tags(&mut bench, tags, plan)?;
    bench.run()?;
    println!("{connections} connections, {tags} tags");
    Ok(())
}

fn measure_connections(bench: &mut Bench<'_>, connections: usize, plan: Plan) -> Result<()> {
    let server = start()?;
    let few = runs(plan, || load(server.url(), &["--duration", "500ms", "--connections", "50"]))?;
    let before_kib = memory_kib(Some(server.id()))?;
    let mut idle = (0..connections).map(|_| Client::connect(server.url())).collect::<Result<Vec<_>>>()?;
    idle.iter_mut().try_for_each(|client| client.get("/v1/sequences/idle/ids"))?;
    let idle_kib = memory_kib(Some(server.id()))?;
    let beside = runs(plan, || load(server.url(), &["--duration", "500ms", "--connections", "50"]))?;
    // None was closed meanwhile.
    idle.iter_mut().try_for_each(|client| client.get("/v1/sequences/idle/ids"))?;
    drop(idle);
    let all = connections.to_string();
    let busy = runs(plan, || load(server.url(), &["--duration", "2s", "--connections", &all]))?;
    let busy_kib = memory_kib(Some(server.id()))?;
    let refused: f64 = [&few, &beside, &busy].into_iter().flatten().map(errors).sum();

    let each = |to_kib: f64| vec![(to_kib - before_kib) / connections as f64];
    bench.row(Row::samples("an idle connection", each(idle_kib), "KiB").at_most(32.0));
    bench.row(Row::samples("a connection after traffic on all", each(busy_kib), "KiB").at_most(32.0));
    let rate = |reports| figures(reports, "/requests_per_second");
    let base = bench.row(Row::samples("one id, 50 connections", rate(&few)?, "/s"));
    bench.row(Row::samples("the same beside all the idle ones", rate(&beside)?, "/s").against(base));
    bench.row(Row::samples("one id, traffic on all", rate(&busy)?, "/s").against(base));
    let p99 = |reports| figures(reports, "/latency_us/p99");
    let base = bench.row(Row::samples("p99, 50 connections", p99(&few)?, "us"));
    bench.row(Row::samples("p99 beside all the idle ones", p99(&beside)?, "us").against(base));
    bench.row(Row::samples("p99, traffic on all", p99(&busy)?, "us").against(base));
    bench.row(Row::samples("requests refused or lost", vec![refused], "").at_most(0.0));
    Ok(())
}

fn measure_tags(bench: &mut Bench<'_>, tags: usize, plan: Plan) -> Result<()> {
    let server = start()?;
    let few = runs(plan, || load(server.url(), &["--duration", "500ms"]))?;
    let before_kib = memory_kib(Some(server.id()))?;
    let began = Instant::now();
    std::thread::scope(|scope| {
        let creators: Vec<_> = (0..CREATORS)
            .map(|creator| {
                let url = server.url();
                scope.spawn(move || -> Result<()> {
                    let mut client = Client::connect(url)?;
                    (creator..tags).step_by(CREATORS).try_for_each(|tag| client.get(&path(tag)))
                })
            })
            .collect();
        creators.into_iter().try_for_each(|creator| creator.join().map_err(|_| anyhow!("a thread panicked"))?)
    })?;
    let creating = began.elapsed();
    let after_kib = memory_kib(Some(server.id()))?;
    let many = runs(plan, || load(server.url(), &["--duration", "500ms"]))?;
    let mut client = Client::connect(server.url())?;
    let began = Instant::now();
    (0..tags).step_by(7).try_for_each(|tag| client.get(&path(tag)))?;
    let again = began.elapsed();

    let per_tag = 1.0 / tags as f64;
    bench.row(Row::samples("an open tag", vec![(after_kib - before_kib) * per_tag], "KiB").at_most(2.0));
    let us = creating.as_secs_f64() * 1e6 * per_tag;
    bench.row(Row::samples("creating a tag, its first id included", vec![us], "us"));
    let us = again.as_secs_f64() * 1e6 / tags.div_ceil(7) as f64;
    bench.row(Row::samples("an id of each tag in turn, one connection", vec![us], "us"));
    let rate = |reports| figures(reports, "/requests_per_second");
    let base = bench.row(Row::samples("one id, one tag open", rate(&few)?, "/s"));
    bench.row(Row::samples("one id, all tags open", rate(&many)?, "/s").against(base).ratio_at_least(0.95));
    Ok(())
}

/// A server whose store does not wait for a disk.
fn start() -> Result<Server> {
    let memory = Path::new("/dev/shm");
    let directory = if memory.is_dir() { TempDir::new_in(memory)? } else { TempDir::new()? };
    Server::start_in(Arc::new(directory), vec!["--log".to_owned(), "warn".to_owned()])
}

fn path(tag: usize) -> String {
    format!("/v1/sequences/tag-{tag:06}/ids")
}

fn runs(plan: Plan, mut run: impl FnMut() -> Result<Value>) -> Result<Vec<Value>> {
    (0..plan.kept.div_ceil(6)).map(|_| run()).collect()
}

fn figures(reports: &[Value], pointer: &str) -> Result<Vec<f64>> {
    let figure = |report: &Value| report.pointer(pointer).and_then(Value::as_f64);
    reports.iter().map(|report| figure(report).with_context(|| format!("no {pointer}: {report}"))).collect()
}

/// Requests of a report that brought no ids.
fn errors(report: &Value) -> f64 {
    let refused = report.pointer("/errors/by_status").and_then(Value::as_object).into_iter().flatten();
    let refused = refused.filter_map(|(_, refused)| refused.get("requests")?.as_f64()).sum::<f64>();
    refused + report.pointer("/errors/unanswered").and_then(Value::as_f64).unwrap_or(f64::INFINITY)
}

/// A connection that is kept, and costs this process next to nothing.
struct Client(TcpStream);

impl Client {
    fn connect(url: &str) -> Result<Self> {
        let address = url.strip_prefix("http://").context("no URL of a server")?;
        let stream = TcpStream::connect(address).with_context(|| format!("no connection to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self(stream))
    }

    /// Gets ids, and looks at no more than that it gets some.
    fn get(&mut self, path: &str) -> Result<()> {
        write!(self.0, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut answer = Vec::new();
        let mut chunk = [0; 1_024];
        while !answer.ends_with(b"]}") {
            let read = self.0.read(&mut chunk)?;
            answer.extend_from_slice(chunk.get(..read).unwrap_or_default());
            let is_good = read > 0 && (answer.len() < 12 || answer.starts_with(b"HTTP/1.1 200"));
            ensure!(is_good, "{path}: {}", String::from_utf8_lossy(&answer));
        }
        Ok(())
    }
}
