//! `wasmtime serve`, from a package of wasmtime's command.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tempfile::TempDir;

use crate::PATIENCE;
use crate::process::{self, python_program};
use crate::server::Client;

const INSTALL: &str = "install wasmtime 48: python3 -m venv target/wasmtime && target/wasmtime/bin/pip install -r \
                       tests/wasmtime/requirements.txt";

/// A component of `wasi:http` in a `wasmtime serve`.
#[derive(Debug)]
pub struct WasmtimeServe {
    directory: TempDir,
    process: Child,
    url: String,
}

impl WasmtimeServe {
    /// Serves a component, which has to answer `/health/live`, with these flags.
    ///
    /// # Errors
    /// When wasmtime is not installed, or the component does not answer; with what it said.
    pub fn start(component: &[u8], flags: &[&str]) -> anyhow::Result<Self> {
        let program = python_program("target/wasmtime", "site-packages/wasmtime_cli/wasmtime", INSTALL)?;
        let directory = TempDir::new()?;
        let path = directory.path().join("service.wasm");
        std::fs::write(&path, component)?;
        let log = File::create(directory.path().join("log"))?;
        let address = format!("127.0.0.1:{}", process::free_port()?);
        let mut command = Command::new(&program);
        command.args(["serve", "--addr", &address]).args(flags).arg(&path);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        process::end_with_thread(&mut command);
        let process = command.spawn().with_context(|| format!("{} does not start", program.display()))?;
        let mut serve = Self { directory, process, url: format!("http://{address}") };
        let deadline = Instant::now() + PATIENCE;
        while !serve.client().get("/health/live").is_ok_and(|answer| answer.status == 200) {
            if serve.process.try_wait()?.is_some() || Instant::now() > deadline {
                bail!("the component does not answer in wasmtime: {}", serve.log()?);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(serve)
    }

    /// Serves one that has its numbers from unalike servers.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_before(component: &[u8], servers: &str, flags: &[&str]) -> anyhow::Result<Self> {
        Self::start(component, &[&["--env", &format!("UNALIKE_SERVERS={servers}")], flags].concat())
    }

    /// Where it answers.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A client of it.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(&self.url)
    }

    /// What it said.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn log(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(self.directory.path().join("log"))?)
    }
}

impl Drop for WasmtimeServe {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
