//! Clients that others' programs make of the OpenAPI document: each builds, and takes ids of a running server.
//!
//! The tools are heavy (a Java program, compilers for four languages), so this runs when it is asked to: `tests/run
//! --test server -- clients --ignored`. `tests/clients/run` says what it needs, and installs what Python and npm have.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use unalike_tests::server::Server;

/// Has each client made of this server's document, built and run.
fn build_and_run(server: &Server) -> anyhow::Result<()> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/run");
    let output = Command::new(program).arg(server.url()).output().context("tests/clients/run does not start")?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    for client in ["python", "typescript", "java", "go", "openapi-python-client", "openapi-typescript"] {
        ensure!(said.lines().any(|line| line == format!("{client}: ok")), "{client} did not run: {said}");
    }
    Ok(())
}

#[test]
#[ignore = "the tools are heavy: tests/run --test server -- clients --ignored"]
fn generated_clients_build_and_take_ids() -> anyhow::Result<()> {
    build_and_run(&Server::start()?)
}

#[test]
#[ignore = "the tools are heavy: tests/run --test server -- clients --ignored"]
fn generated_clients_build_with_the_paths_of_other_services() -> anyhow::Result<()> {
    build_and_run(&Server::start_with(["--drop-in", "leaf,tinyid,cosid"])?)
}
