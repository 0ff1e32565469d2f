//! The service for edge runtimes beside the plain server and in wasmtime's own: what a component in the place of the
//! routes costs, what a store behind HTTP costs, and what an instance costs, by itself and where it serves a single
//! request.
//!
//! Expected: a request of WASI 0.3 is a task in an instance that is there already, some tens of microseconds beside the
//! server's own ten; 128 of them share the grant that the instance fetched. An instance is started and dropped in some
//! 50 us, and its first request finds none of its memory there: an instance for each request costs a few hundred, and
//! with numbers from a server a request to it besides. `wasmtime serve` links the same crates, and should do as much.
//!
//! ```text
//! python3 -m venv target/wasmtime && target/wasmtime/bin/pip install -r tests/wasmtime/requirements.txt
//! cargo bench -p unalike-benches --bench edge
//! ```

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use unalike::wasi::ServiceBuilder;
use unalike_benches::{Bench, Plan, Row, load};
use unalike_memory::MemoryStore;
use unalike_tests::server::Server;
use unalike_tests::wasmtime::WasmtimeServe;

/// As many as the tests have.
const CONNECTIONS: &str = "8";

/// How many instances a figure of their starts is made of.
const STARTS: u32 = 100;

/// A server under one name, and what it answered in each window.
struct Case {
    name: &'static str,
    host: Host,
    reports: Vec<Value>,
}

enum Host {
    Ours(Server),
    Wasmtime(WasmtimeServe),
}

impl Host {
    fn url(&self) -> &str {
        match self {
            Self::Ours(server) => server.url(),
            Self::Wasmtime(serve) => serve.url(),
        }
    }
}

fn main() -> Result<()> {
    let plan = Plan::from_args();
    let plain = Server::start_with(["--log", "warn"])?;
    let mut cases = vec![
        component("component, numbers of the host's store", unalike_artifact::SERVICE, &[])?,
        component("component, an instance a request", unalike_artifact::SERVICE, &["--component-requests", "1"])?,
        remote("component, numbers of a server", unalike_artifact::SERVICE_REMOTE, &plain, &[])?,
        remote(
            "component, numbers of a server, an instance a request",
            unalike_artifact::SERVICE_REMOTE,
            &plain,
            &["--component-requests", "1"],
        )?,
        wasmtime("wasmtime serve, numbers of a server", &plain, &[])?,
        wasmtime(
            "wasmtime serve, numbers of a server, an instance a request",
            &plain,
            &["--max-instance-reuse-count", "1"],
        )?,
    ];
    cases.insert(0, Case { name: "plain server", host: Host::Ours(plain), reports: Vec::new() });

    let duration = if plan.kept == 1 { "30ms" } else { "800ms" };
    for _ in 0..plan.kept.div_ceil(3) {
        for case in &mut cases {
            case.reports.push(load(case.host.url(), &["--duration", duration, "--connections", CONNECTIONS])?);
        }
    }

    let mut bench = Bench::new("edge: one id a request, 8 connections on two cores, in turns", plan);
    let mut bases = None;
    for Case { name, reports, .. } in &cases {
        let figures = |pointer: &str| -> Result<Vec<f64>> {
            let figure = |report: &Value| report.pointer(pointer).and_then(Value::as_f64);
            reports.iter().map(|report| figure(report).with_context(|| format!("no {pointer}"))).collect()
        };
        let rate = Row::samples(*name, figures("/requests_per_second")?, "/s");
        let p50 = Row::samples(format!("{name}: p50"), figures("/latency_us/p50")?, "us");
        let p99 = Row::samples(format!("{name}: p99"), figures("/latency_us/p99")?, "us");
        if let Some((base_rate, base_p50, base_p99)) = bases {
            bench.row(rate.against(base_rate));
            bench.row(p50.against(base_p50));
            bench.row(p99.against(base_p99));
        } else {
            bases = Some((bench.row(rate), bench.row(p50), bench.row(p99)));
        }
    }
    for (name, component) in [
        ("start and end of an instance", unalike_artifact::SERVICE),
        ("the same with numbers of a server", unalike_artifact::SERVICE_REMOTE),
    ] {
        bench.row(Row::samples(name, starts(component, plan)?, "us").at_most(1_000.0));
    }
    bench.run()?;
    for (name, component) in [
        ("unalike-service.wasm", unalike_artifact::SERVICE),
        ("unalike-service-remote.wasm", unalike_artifact::SERVICE_REMOTE),
    ] {
        println!("{name}: {} KiB", component.len().div_ceil(1024));
    }
    Ok(())
}

/// How long it takes to start an instance and to drop it, in microseconds.
fn starts(component: &[u8], plan: Plan) -> Result<Vec<f64>> {
    Runtime::new()?.block_on(async {
        let service = ServiceBuilder::new(component).segments(Arc::new(MemoryStore::default())).build()?;
        let mut took_us = Vec::new();
        for _ in 0..plan.kept {
            let began = Instant::now();
            for _ in 0..STARTS {
                service.check().await?;
            }
            took_us.push(began.elapsed().as_secs_f64() * 1e6 / f64::from(STARTS));
        }
        Ok(took_us)
    })
}

fn component(name: &'static str, bytes: &[u8], flags: &[&str]) -> Result<Case> {
    let directory = Arc::new(TempDir::new()?);
    let path = directory.path().join("service.wasm");
    std::fs::write(&path, bytes)?;
    let mut arguments = vec!["--log", "warn", "--component", path.to_str().context("a path")?];
    arguments.extend(flags);
    let arguments: Vec<_> = arguments.into_iter().map(str::to_owned).collect();
    Ok(Case { name, host: Host::Ours(Server::start_in(directory, arguments)?), reports: Vec::new() })
}

fn wasmtime(name: &'static str, numbers: &Server, flags: &[&str]) -> Result<Case> {
    let serve = WasmtimeServe::start_before(unalike_artifact::SERVICE_REMOTE, numbers.url(), flags)?;
    Ok(Case { name, host: Host::Wasmtime(serve), reports: Vec::new() })
}

fn remote(name: &'static str, bytes: &[u8], numbers: &Server, flags: &[&str]) -> Result<Case> {
    let variable = format!("UNALIKE_SERVERS={}", numbers.url());
    let host = numbers.url().strip_prefix("http://").context("a URL")?;
    component(name, bytes, &[&["--component-env", &variable, "--component-hosts", host], flags].concat())
}
