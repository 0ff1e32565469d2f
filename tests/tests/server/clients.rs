//! Clients that others' programs make of the OpenAPI document: each builds, and takes ids of a running server.
//!
//! The tools are heavy (a Java program, compilers for four languages), so this runs when it is asked to: `tests/run
//! --test server -- clients --ignored`. `tests/clients/run` says what it needs, and installs what Python and npm have.
//! `tests/clients/snippets` runs what the page for other languages shows.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use unalike_tests::server::Server;

/// The clients that `tests/clients/run` makes.
const GENERATED: [&str; 6] = ["python", "typescript", "java", "go", "openapi-python-client", "openapi-typescript"];

/// Runs a program of `tests/clients` against this server, which says of each of these that it is ok.
fn run(program: &str, server: &Server, clients: &[&str]) -> anyhow::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(program);
    let output = Command::new(path).arg(server.url()).output();
    let output = output.with_context(|| format!("tests/clients/{program} does not start"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    for client in clients {
        ensure!(said.lines().any(|line| line == format!("{client}: ok")), "{client} did not run: {said}");
    }
    Ok(())
}

#[test]
#[ignore = "the tools are heavy: tests/run --test server -- clients --ignored"]
fn generated_clients_build_and_take_ids() -> anyhow::Result<()> {
    run("run", &Server::start()?, &GENERATED)
}

#[test]
#[ignore = "the tools are heavy: tests/run --test server -- clients --ignored"]
fn generated_clients_build_with_the_paths_of_other_services() -> anyhow::Result<()> {
    run("run", &Server::start_with(["--drop-in", "leaf,tinyid,cosid"])?, &GENERATED)
}

#[test]
#[ignore = "the tools are heavy: tests/run --test server -- clients --ignored"]
fn the_programs_of_the_page_take_ids_and_ask_again() -> anyhow::Result<()> {
    run("snippets", &Server::start()?, &["java", "go", "php", "csharp"])
}
