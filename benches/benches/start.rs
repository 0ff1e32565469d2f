//! How long it takes until the first id: of the component by itself, of the command line, of the server.
//!
//! Expected: compiling some 30 KiB of WebAssembly takes cranelift some 45 to 75 ms on one core, once per process;
//! machine code made before loads in half a millisecond, and an instance takes a fifth of one. A process of its own
//! starts in 1 to 2 ms, and opens a SQLite file that exists in 1 to 2 more. So `unalike next` is about the compilation
//! where the component is compiled at start, and well below 30 ms where it was compiled before.
//!
//! ```text
//! cargo bench -p unalike-benches --bench start
//! ```

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use unalike_artifact::{CORE, FORMATS};
use unalike_benches::{Bench, Compiled, MachineCode, Plan, Row, undisturbed};
use unalike_tests::server::{Server, binary, run};

const STEP: u64 = 10_000_000;
const NOW_MS: u64 = 1_700_000_000_000;

/// Milliseconds from nothing to the first id.
struct Start {
    compile: f64,
    first_id: f64,
    total: f64,
    load: f64,
    process: f64,
    next: f64,
    server: f64,
    /// Of the server's, until it says that it listens.
    listening: f64,
}

fn main() -> Result<()> {
    let plan = Plan::from_args();
    binary()?;
    let code = MachineCode::new()?;
    let directory = Arc::new(TempDir::new()?);
    // The file exists, and so does the tag.
    let first = run(directory.path(), ["next", "order"])?;
    ensure!(first.stdout == "1\n", "a new store begins at 1: {first:?}");
    let started = undisturbed(plan.kept, || start(&code, &directory))?;

    let mut bench = Bench::new("start: until the first id", plan);
    let each = |figure: fn(&Start) -> f64| started.iter().map(figure).collect();
    bench.row(Row::samples("engine, compilation, link", each(|start| start.compile), "ms"));
    bench.row(Row::samples("instantiation and first id", each(|start| start.first_id), "ms"));
    bench.row(Row::samples("from the component's bytes to the first id", each(|start| start.total), "ms"));
    bench.row(Row::samples("the same from machine code compiled before", each(|start| start.load), "ms").at_most(5.0));
    let base = bench.row(Row::samples("a process: unalike --version", each(|start| start.process), "ms"));
    let next = Row::samples("unalike next, kept SQLite file", each(|start| start.next), "ms");
    bench.row(next.against(base).at_most(30.0));
    let server = Row::samples("unalike serve, until it listens", each(|start| start.listening), "ms");
    bench.row(server.against(base));
    let server = Row::samples("unalike serve, until the first id is answered", each(|start| start.server), "ms");
    bench.row(server.against(base).at_most(30.0));
    bench.row(Row::samples("size of the component", vec![CORE.len() as f64 / 1_024.0], "KiB").at_most(32.0));
    bench.row(Row::samples("size of the one for formats", vec![FORMATS.len() as f64 / 1_024.0], "KiB").at_most(32.0));
    bench.run()
}

fn start(code: &MachineCode, directory: &Arc<TempDir>) -> Result<Start> {
    let began = Instant::now();
    let compiled = Compiled::new()?;
    let compile = ms(began.elapsed());
    let instantiating = Instant::now();
    compiled.instance(STEP, NOW_MS)?.reserve(1)?;
    let (first_id, total) = (ms(instantiating.elapsed()), ms(began.elapsed()));

    let began = Instant::now();
    Compiled::load(code)?.instance(STEP, NOW_MS)?.reserve(1)?;
    let load = ms(began.elapsed());

    let began = Instant::now();
    ensure!(run(directory.path(), ["--version"])?.code == Some(0), "no version");
    let process = ms(began.elapsed());

    let next = first_line(directory)?;

    let began = Instant::now();
    let server = Server::start_in(Arc::clone(directory), vec!["--log".to_owned(), "warn".to_owned()])?;
    let listening = ms(began.elapsed());
    let answer = server.get("/v1/sequences/order/ids")?;
    let until_answer = ms(began.elapsed());
    ensure!(answer.ids()?.len() == 1, "no id: {answer:?}");
    Ok(Start { compile, first_id, total, load, process, next, server: until_answer, listening })
}

/// Until `unalike next` has printed its id: the process then gives the rest back, which nobody waits for.
fn first_line(directory: &TempDir) -> Result<f64> {
    let began = Instant::now();
    let mut process = Command::new(binary()?)
        .current_dir(directory)
        .args(["next", "order"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(process.stdout.take().context("no output")?).read_line(&mut line)?;
    let took = ms(began.elapsed());
    ensure!(process.wait()?.success() && line.trim_end().parse::<u64>().is_ok(), "no id: {line:?}");
    Ok(took)
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
