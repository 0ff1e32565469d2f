//! The hosts in other languages, built from this repository: the npm package in `host/node`, the Python package in
//! `host/python`.
//!
//! `tests/run` installs what they are built with. Each is built once per run, with the components of this build inside.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};

use crate::etcd::Etcd;
use crate::mariadb::MariaDb;
use crate::postgres::Postgres;
use crate::redis::{Persistence, Redis};
use crate::server;
use crate::shared::Shared;

/// What to do when something was not installed.
const INSTALL: &str = "run the tests by their own command, which installs it: tests/run --test hosts";

/// Servers that the suites of these hosts use. Each test has a tag, a namespace or a prefix of its own in them.
#[derive(Debug)]
pub struct Servers {
    database: String,
    /// The database of the server's administrator.
    postgres: String,
    /// Without a prefix.
    etcd: String,
    redis: Redis,
}

impl Servers {
    /// Starts them.
    ///
    /// # Errors
    /// When one is not installed, or does not become ready.
    pub fn start() -> Result<Self> {
        let port = *Etcd::shared()?.ports().first().context("etcd has no member")?;
        Ok(Self {
            database: MariaDb::shared()?.database()?,
            postgres: Postgres::shared()?.url("postgres"),
            etcd: format!("etcd://127.0.0.1:{port}"),
            redis: Redis::start(Persistence::AofAlways)?,
        })
    }

    /// The variables by which the suites find them, the binary `unalike` and the components.
    ///
    /// # Errors
    /// When the binary does not build, or the components cannot be written.
    pub fn variables(&self) -> Result<Vec<(&'static str, String)>> {
        let [core, formats] = components()?;
        Ok(vec![
            ("UNALIKE_TEST_MYSQL", self.database.clone()),
            ("UNALIKE_TEST_REDIS", self.redis.url(0, "")),
            ("UNALIKE_TEST_POSTGRES", self.postgres.clone()),
            ("UNALIKE_TEST_ETCD", self.etcd.clone()),
            ("UNALIKE_BIN", shown(server::binary()?)),
            ("UNALIKE_COMPONENT_WASM", shown(&core)),
            ("UNALIKE_FORMATS_WASM", shown(&formats)),
            ("UNALIKE_NATIVE", shown(&library("libunalike_python.so")?)),
        ])
    }
}

/// The files of a folder with tests, by how their names begin and end.
///
/// # Errors
/// When there is none.
pub fn test_files(folder: &Path, begin: &str, end: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for file in std::fs::read_dir(folder)? {
        let path = file?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(begin) && name.ends_with(end) {
            files.push(path);
        }
    }
    ensure!(!files.is_empty(), "there is no test in {}", folder.display());
    Ok(files)
}

/// The folder of the npm package, built.
///
/// # Errors
/// When it does not build, with what its build said.
pub fn node() -> Result<&'static Path> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| build_node().map_err(|error| format!("{error:#}")));
    built.as_deref().map_err(|error| anyhow::anyhow!("{error}"))
}

fn build_node() -> Result<PathBuf> {
    let package = repository().join("host/node");
    ensure!(package.join("node_modules").exists(), "host/node has no node_modules: {INSTALL}");
    if Shared::Packages.value().is_some() {
        return Ok(package);
    }
    let [core, formats] = components()?;
    let mut build = Command::new("npm");
    build.args(["run", "build"]).current_dir(&package);
    build.env("UNALIKE_COMPONENT_WASM", core).env("UNALIKE_FORMATS_WASM", formats);
    run(build.env_remove("UNALIKE_NODE_NATIVE"))?;
    // A link: no package that the tests make takes it along, which would have all of its 150 MB compressed.
    symlink(library("libunalike_node.so")?, package.join("dist/unalike.node"))?;
    Ok(package)
}

/// Python, with the package installed and all that its suite needs.
///
/// # Errors
/// When it does not build, with what its build said.
pub fn python() -> Result<&'static Path> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| build_python().map_err(|error| format!("{error:#}")));
    built.as_deref().map_err(|error| anyhow::anyhow!("{error}"))
}

fn build_python() -> Result<PathBuf> {
    let python = repository().join("target/hosts/python/bin/python");
    ensure!(python.exists(), "target/hosts/python is missing: {INSTALL}");
    if Shared::Packages.value().is_some() {
        return Ok(python);
    }
    let mut build = Command::new(&python);
    build.args(["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--force-reinstall"]);
    build.arg(repository().join("host/python"));
    run(build.env("UNALIKE_NATIVE", library("libunalike_python.so")?))?;
    Ok(python)
}

/// The library of a package, which `tests/run` builds beside the command.
fn library(name: &str) -> Result<PathBuf> {
    let library = server::binary()?.with_file_name(name);
    ensure!(library.exists(), "{} is missing: {INSTALL}", library.display());
    Ok(library)
}

/// The files of the two components.
fn components() -> Result<[PathBuf; 2]> {
    let folder = repository().join("target/hosts");
    std::fs::create_dir_all(&folder)?;
    let write = |name: &str, bytes: &[u8]| -> Result<PathBuf> {
        let file = folder.join(name);
        // Another test program may read it just now.
        if std::fs::read(&file).ok().as_deref() != Some(bytes) {
            let new = tempfile::NamedTempFile::new_in(&folder)?;
            std::fs::write(new.path(), bytes)?;
            new.persist(&file)?;
        }
        Ok(file)
    };
    Ok([write("unalike.wasm", unalike_artifact::CORE)?, write("unalike-formats.wasm", unalike_artifact::FORMATS)?])
}

/// The root of the repository.
#[must_use]
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Runs a program to its end; gives what it printed.
///
/// # Errors
/// When it fails, with what it printed: of a suite that printed results (TAP), those that failed.
pub fn run(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("{program} did not start: {INSTALL}"))?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let printed = failed_results(&stdout).unwrap_or_else(|| stdout.clone().into_owned());
    ensure!(output.status.success(), "{program} ended with {}:\n{printed}\n{stderr}", output.status);
    Ok(stdout.into_owned())
}

/// The results of a suite that failed, each with what is said of it.
fn failed_results(printed: &str) -> Option<String> {
    let mut is_failed = false;
    let mut failed = Vec::new();
    for line in printed.lines() {
        is_failed |= line.trim_start().starts_with("not ok ");
        if is_failed {
            failed.push(line);
        }
        is_failed &= line.trim() != "...";
    }
    (!failed.is_empty()).then(|| failed.join("\n"))
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
