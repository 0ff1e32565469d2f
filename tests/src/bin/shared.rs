//! Makes what all tests of a run share ([`unalike_tests::shared`]): `shared mariadb`.
//!
//! cargo-nextest starts it before the first test, and it says in the file that NEXTEST_ENV names what variables the
//! tests get. Servers run in a process that it leaves behind, until the run has ended, however that ends.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use unalike_tests::etcd::Etcd;
use unalike_tests::mariadb::MariaDb;
use unalike_tests::postgres::Postgres;
use unalike_tests::shared::Shared;
use unalike_tests::zookeeper::Zookeeper;
use unalike_tests::{hosts, mariadb, postgres};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["packages"] => {
            hosts::node()?;
            hosts::python()?;
            tell(&format!("{}=built", Shared::Packages.variable()))
        }
        [kind] => tell(&leave_behind(kind)?),
        [kind, run] => serve(kind, run),
        _ => bail!("say what to share: mariadb, postgres, etcd, zookeeper or packages"),
    }
}

/// Gives all tests of the run these variables, one per line.
fn tell(variables: &str) -> anyhow::Result<()> {
    let file = std::env::var("NEXTEST_ENV").context("NEXTEST_ENV is not set: cargo-nextest starts this program")?;
    Ok(writeln!(std::fs::File::options().append(true).open(file)?, "{variables}")?)
}

/// Starts this program once more, to serve until the run ends; the variables that say where.
fn leave_behind(kind: &str) -> anyhow::Result<String> {
    let run = std::os::unix::process::parent_id().to_string();
    let mut server = Command::new(std::env::current_exe()?);
    // It belongs to no test, and holds nothing open that the run waits for.
    server.args([kind, &run]).process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let said = server.spawn()?.stdout.take().context("no output")?;
    let mut variables = Vec::new();
    for line in BufReader::new(said).lines() {
        match line?.as_str() {
            "ready" => return Ok(variables.join("\n")),
            line => variables.push(line.to_owned()),
        }
    }
    bail!("{kind} does not start: {}", variables.join("; "))
}

/// Runs a server until a process has ended, and says where it is.
fn serve(kind: &str, run: &str) -> anyhow::Result<()> {
    match serving(kind) {
        Ok((_server, _data, variables)) => {
            println!("{variables}\nready");
            while is_running(run) {
                std::thread::sleep(Duration::from_millis(200));
            }
            Ok(())
        }
        Err(error) => {
            println!("{error:#}");
            Err(error)
        }
    }
}

/// Whether a process has not ended, waited for or not.
fn is_running(process: &str) -> bool {
    let status = std::fs::read_to_string(Path::new("/proc").join(process).join("stat"));
    // Behind its name, which may hold a parenthesis.
    status.is_ok_and(|status| !status.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

/// A server and an empty data directory, which end and are removed with their values; and the variables that say where.
type Serving = (Box<dyn std::any::Any>, Option<tempfile::TempDir>, String);

fn serving(kind: &str) -> anyhow::Result<Serving> {
    let at = |shared: Shared, port: u16, directory: &Path| {
        let directory = directory.to_str().context("a directory's name is no text")?;
        ensure!(!directory.contains('\n'), "the directory {directory:?} has a line break in its name");
        anyhow::Ok(format!("{}={port} {directory}", shared.variable()))
    };
    let data_at = |shared: Shared, directory: &Path| format!("{}={}", shared.variable(), directory.display());
    Ok(match kind {
        "mariadb" => {
            let data = mariadb::make_template()?;
            let server = MariaDb::start_on(data.path())?;
            let variables = at(Shared::MariaDb, server.port(), server.directory())?;
            let variables = format!("{variables}\n{}", data_at(Shared::MariaDbData, data.path()));
            (Box::new(server), Some(data), variables)
        }
        "postgres" => {
            let programs = postgres::copy_programs()?;
            let data = postgres::make_template()?;
            let server = Postgres::start_on(data.path(), &[])?;
            let variables = at(Shared::Postgres, server.port(), server.directory())?;
            let mut variables = format!("{variables}\n{}", data_at(Shared::PostgresData, data.path()));
            if let Some((_, programs)) = &programs {
                variables = format!("{variables}\n{}", data_at(Shared::PostgresPrograms, programs));
            }
            // The server ends before its programs go.
            (Box::new((server, programs)), Some(data), variables)
        }
        "etcd" => {
            let server = Etcd::start()?;
            let port = *server.ports().first().context("it has no member")?;
            let variables = at(Shared::Etcd, port, server.directory())?;
            (Box::new(server), None, variables)
        }
        "zookeeper" => {
            let server = Zookeeper::start()?;
            let variables = at(Shared::Zookeeper, server.port(), server.directory())?;
            (Box::new(server), None, variables)
        }
        _ => bail!("{kind:?} is nothing that tests share: mariadb, postgres, etcd, zookeeper, packages"),
    })
}
