//! The server and the command line as real processes.
//!
//! The binary is built once per test process, a server starts on a port of its own in a directory of its own and is
//! waited for by the line that it prints when it is ready, and it is killed when its value is dropped.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use http::{Request, Response};
use serde_json::Value;
use tempfile::TempDir;
use ureq::Agent;

use crate::PATIENCE;
use crate::clock::FakeClock;
use crate::hosts::repository;
use crate::sqlite::lock_writes;

/// The variable that names a built `unalike`.
const GIVEN: &str = "TESTED_UNALIKE";

/// The binary `unalike`, with the features of the whole workspace and in the profile of this test.
///
/// # Errors
/// When it does not build.
pub fn binary() -> anyhow::Result<&'static Path> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    // `tests/run` has built it.
    let given = || std::env::var_os(GIVEN).map(PathBuf::from);
    let built = BINARY.get_or_init(|| given().map_or_else(build, Ok).map_err(|error| format!("{error:#}")));
    built.as_deref().map_err(|error| anyhow::anyhow!("{error}"))
}

fn build() -> anyhow::Result<PathBuf> {
    let mut cargo = cargo_build();
    cargo.args(["--bin", "unalike", "--message-format=json-render-diagnostics"]);
    let output = cargo.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "the binary does not build: {}", output.status);
    String::from_utf8(output.stdout)?
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message.pointer("/target/name").is_some_and(|name| name == "unalike"))
        .find_map(|message| message.get("executable")?.as_str().map(PathBuf::from))
        .context("cargo named no executable")
}

/// `cargo build` of the workspace in the profile of this test; what is built is still to be said.
#[must_use]
pub fn cargo_build() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--workspace"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    // Which package is tested is nothing to other packages: a build script that watches these would run again each
    // time, and all that needs its package be built anew.
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|own| name.to_string_lossy().starts_with(own)) {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Where cargo leaves programs and packages.
#[must_use]
pub fn target() -> PathBuf {
    // `tests/run` asks cargo.
    let given = std::env::var_os(GIVEN).map(PathBuf::from);
    let of_given = given.and_then(|binary| Some(binary.parent()?.parent()?.to_owned()));
    let of_cargo = || std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    of_given.or_else(of_cargo).unwrap_or_else(|| repository().join("target"))
}

/// Where cargo leaves the programs that are built in the profile of this test.
#[must_use]
pub fn programs() -> PathBuf {
    target().join(if cfg!(debug_assertions) { "debug" } else { "release" })
}

/// The binary in this directory, without settings from the environment of the test.
///
/// # Errors
/// As [`binary`].
pub(crate) fn command(directory: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new(binary()?);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("UNALIKE_") {
            command.env_remove(name);
        }
    }
    // No load balancer is told, unless a test says otherwise.
    command.current_dir(directory).env("UNALIKE_DRAIN_MS", "0").stdin(Stdio::null());
    Ok(command)
}

/// What a command left behind.
#[derive(Debug)]
pub struct Ran {
    /// The exit code; none after a signal.
    pub code: Option<i32>,
    /// The standard output.
    pub stdout: String,
    /// The standard error.
    pub stderr: String,
}

/// Runs the binary to its end, in this directory and with these variables.
///
/// # Errors
/// When it cannot be started, or prints what is not UTF-8.
pub fn run_with<'a>(
    directory: &Path,
    arguments: impl IntoIterator<Item = &'a str>,
    environment: &[(&str, &str)],
) -> anyhow::Result<Ran> {
    let output = command(directory)?.args(arguments).envs(environment.iter().copied()).output()?;
    Ok(Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout)?,
        stderr: String::from_utf8(output.stderr)?,
    })
}

/// Runs the binary to its end in this directory.
///
/// # Errors
/// As [`run_with`].
pub fn run<'a>(directory: &Path, arguments: impl IntoIterator<Item = &'a str>) -> anyhow::Result<Ran> {
    run_with(directory, arguments, &[])
}

/// Runs the binary in this directory, where it must succeed; gives what it printed.
///
/// # Panics
/// When it fails.
#[track_caller]
pub fn ok(directory: &Path, arguments: &[&str]) -> String {
    let ran = run(directory, arguments.iter().copied()).unwrap();
    assert_eq!(ran.code, Some(0), "{arguments:?}: {ran:?}");
    ran.stdout
}

/// Runs the binary to its end in this directory over this store.
///
/// # Errors
/// As [`run_with`].
pub fn run_over(directory: &TempDir, store: &str, arguments: &[&str]) -> anyhow::Result<Ran> {
    run(directory.path(), ["--store", store].into_iter().chain(arguments.iter().copied()))
}

/// The same where it must succeed; gives what it printed.
///
/// # Errors
/// When it fails.
pub fn ok_over(directory: &TempDir, store: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let ran = run_over(directory, store, arguments)?;
    ensure!(ran.code == Some(0), "{arguments:?}: {ran:?}");
    Ok(ran.stdout)
}

/// The name of the database in the URL of a store.
#[must_use]
pub fn name_of(url: &str) -> &str {
    url.rsplit('/').next().unwrap()
}

/// Runs the binary in this directory, where it must fail with this code, print nothing but the reason, and name all of
/// these in it.
///
/// # Panics
/// When it does otherwise.
#[track_caller]
pub fn fails(directory: &Path, arguments: &[&str], code: i32, named: &[&str]) -> Ran {
    let ran = run(directory, arguments.iter().copied()).unwrap();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{arguments:?}: {ran:?}");
    for word in named {
        assert!(ran.stderr.contains(word), "{arguments:?} does not say {word:?}: {}", ran.stderr);
    }
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    ran
}

/// The same with the code 1, where no secret may be in the reason.
///
/// # Panics
/// As [`fails`].
#[track_caller]
pub fn refuses(directory: &TempDir, arguments: &[&str], named: &[&str]) {
    let ran = fails(directory.path(), arguments, 1, named);
    assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    directory: Arc<TempDir>,
    arguments: Vec<String>,
    listen: &'static str,
    clock: Option<Arc<FakeClock>>,
    process: Child,
    /// Kept open, so that the server never writes to a closed pipe.
    _stdout: BufReader<ChildStdout>,
    url: String,
}

impl Server {
    /// Starts one with an empty store.
    ///
    /// # Errors
    /// When it does not become ready; with what it said.
    pub fn start() -> anyhow::Result<Self> {
        Self::start_with([])
    }

    /// The same with flags of its own.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_with<'a>(arguments: impl IntoIterator<Item = &'a str>) -> anyhow::Result<Self> {
        Self::start_in(Arc::new(TempDir::new()?), arguments.into_iter().map(str::to_owned).collect())
    }

    /// Another one on the same file, with the same flags.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_beside(&self) -> anyhow::Result<Self> {
        Self::start_by(Arc::clone(&self.directory), self.arguments.clone(), self.listen, self.clock.clone())
    }

    /// One with flags of its own in this directory.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_in(directory: Arc<TempDir>, arguments: Vec<String>) -> anyhow::Result<Self> {
        Self::start_by(directory, arguments, HERE, None)
    }

    /// The same on an address that other machines reach. Its URL names no address.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_open(directory: Arc<TempDir>, arguments: Vec<String>) -> anyhow::Result<Self> {
        Self::start_by(directory, arguments, "0.0.0.0:0", None)
    }

    /// The same with this wall clock.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_with_clock(
        directory: Arc<TempDir>,
        arguments: Vec<String>,
        clock: Arc<FakeClock>,
    ) -> anyhow::Result<Self> {
        Self::start_by(directory, arguments, HERE, Some(clock))
    }

    fn start_by(
        directory: Arc<TempDir>,
        arguments: Vec<String>,
        listen: &'static str,
        clock: Option<Arc<FakeClock>>,
    ) -> anyhow::Result<Self> {
        let (process, stdout, url) = spawn(directory.path(), &arguments, listen, clock.as_deref())?;
        Ok(Self { directory, arguments, listen, clock, process, _stdout: stdout, url })
    }

    /// Ends it with SIGKILL if it still runs, and starts it again on the same file.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.kill9()?;
        let (process, stdout, url) = spawn(self.directory.path(), &self.arguments, self.listen, self.clock.as_deref())?;
        (self.process, self._stdout, self.url) = (process, stdout, url);
        Ok(())
    }

    /// Kills it with SIGKILL: it gets no chance to put anything in order.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn kill9(&mut self) -> anyhow::Result<()> {
        // An error means that it has ended already.
        let _ = self.process.kill();
        self.process.wait()?;
        Ok(())
    }

    /// Tells it to end, and waits until it has.
    ///
    /// # Errors
    /// When it does not end.
    pub fn sigterm(&mut self) -> anyhow::Result<ExitStatus> {
        self.signal(libc::SIGTERM)?;
        self.wait()
    }

    /// The number of its process.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Where it listens: `127.0.0.1:PORT`.
    ///
    /// # Errors
    /// When it printed no URL.
    pub fn address(&self) -> anyhow::Result<&str> {
        Ok(self.url.split_once("://").context("a URL")?.1)
    }

    /// A bare connection to it.
    ///
    /// # Errors
    /// When it does not listen.
    pub fn connect(&self) -> anyhow::Result<TcpStream> {
        let stream = TcpStream::connect(self.address()?)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// Keeps all others from writing to its store, as [`lock_writes`] does.
    ///
    /// # Errors
    /// When there is no store yet.
    pub fn lock_store(&self) -> anyhow::Result<File> {
        self.lock_file("unalike.sqlite")
    }

    /// The same for another store in its directory.
    ///
    /// # Errors
    /// When there is no such store.
    pub fn lock_file(&self, store: &str) -> anyhow::Result<File> {
        lock_writes(&self.directory().join(store))
    }

    /// Waits until it has logged this, `count` times at least.
    ///
    /// # Errors
    /// When it does not.
    pub fn wait_for_log(&self, text: &str, count: usize) -> anyhow::Result<()> {
        let deadline = std::time::Instant::now() + PATIENCE;
        while self.log()?.matches(text).count() < count {
            ensure!(std::time::Instant::now() < deadline, "no {text:?} in the log:\n{}", self.log()?);
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn signal(&self, signal: i32) -> anyhow::Result<()> {
        let id = libc::pid_t::try_from(self.process.id())?;
        #[expect(unsafe_code, reason = "kill takes two integers, and the child was not waited for yet")]
        let sent = unsafe { libc::kill(id, signal) };
        ensure!(sent == 0, "the signal was not sent: {}", std::io::Error::last_os_error());
        Ok(())
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// When it does not.
    pub fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.try_wait()? {
                return Ok(status);
            }
            ensure!(std::time::Instant::now() < deadline, "the server does not end; its log:\n{}", self.log()?);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The id of its process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its address: `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where it keeps its files.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// What it logged, all servers of the directory together.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn log(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(self.directory.path().join(LOG))?)
    }

    /// The lines of its log that tell of a trouble; that it made its store is none.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn troubles(&self) -> anyhow::Result<Vec<String>> {
        let log = self.log()?;
        let is_trouble =
            |line: &&str| (line.contains("WARN") || line.contains("ERROR")) && !line.contains("made a new store");
        Ok(log.lines().filter(is_trouble).map(str::to_owned).collect())
    }

    /// A client with connections of its own.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(&self.url)
    }

    /// One answer to a GET.
    ///
    /// # Errors
    /// When there is none.
    pub fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.client().get(path)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.kill9();
    }
}

const LOG: &str = "server.log";

/// A free port that only this machine reaches.
const HERE: &str = "127.0.0.1:0";

fn spawn(
    directory: &Path,
    arguments: &[String],
    listen: &str,
    clock: Option<&FakeClock>,
) -> anyhow::Result<(Child, BufReader<ChildStdout>, String)> {
    let log = File::options().create(true).append(true).open(directory.join(LOG))?;
    let mut process = command(directory)?
        .envs(clock.map(FakeClock::environment).unwrap_or_default())
        .args([OsStr::new("serve"), OsStr::new("--listen"), OsStr::new(listen)])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()?;
    if let Some(clock) = clock {
        clock.read_by(process.id());
    }
    let stdout = process.stdout.take().context("the standard output is not piped")?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        let read = stdout.read_line(&mut line);
        // Nobody waits any longer if the patience was over.
        let _ = sender.send(read.map(|_| (stdout, line)));
    });
    let ready = match receiver.recv_timeout(PATIENCE) {
        Ok(Ok((stdout, line))) => line
            .trim_end()
            .strip_prefix("listening on ")
            .map(|url| (stdout, url.to_owned()))
            .with_context(|| format!("the server printed {line:?}")),
        Ok(Err(error)) => Err(error.into()),
        Err(error) => Err(error.into()),
    };
    match ready {
        Ok((stdout, url)) => Ok((process, stdout, url)),
        Err(error) => {
            let _ = process.kill();
            let status = process.wait()?;
            let log = std::fs::read_to_string(directory.join(LOG))?;
            bail!("the server is not ready: {error:#}; {status}; its log:\n{log}")
        }
    }
}

/// An HTTP client of one server.
#[derive(Clone, Debug)]
pub struct Client {
    agent: Agent,
    url: String,
    /// Sent with each request.
    headers: Vec<(String, String)>,
}

impl Client {
    /// A client of the server at this address; every status is an answer.
    #[must_use]
    pub fn new(url: &str) -> Self {
        let config = Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE)).build();
        Self { agent: config.new_agent(), url: url.to_owned(), headers: Vec::new() }
    }

    /// The same client, with this header in each of its requests.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same client, with this token in each of its requests.
    #[must_use]
    pub fn with_token(self, token: &str) -> Self {
        self.with("authorization", &format!("Bearer {token}"))
    }

    /// The answer to a GET.
    ///
    /// # Errors
    /// When there is none.
    pub fn get(&self, path: &str) -> anyhow::Result<Answer> {
        let request = self.agent.get(format!("{}{path}", self.url));
        Answer::read(self.headers.iter().fold(request, |request, (name, value)| request.header(name, value)).call()?)
    }

    /// The same with an `Accept` header.
    ///
    /// # Errors
    /// When there is none.
    pub fn get_as(&self, path: &str, accept: &str) -> anyhow::Result<Answer> {
        self.clone().with("accept", accept).get(path)
    }

    /// The answer to a request with a body, or to one with another method.
    ///
    /// # Errors
    /// When there is none.
    pub fn send(&self, method: &str, path: &str, content_type: &str, body: &str) -> anyhow::Result<Answer> {
        let request =
            Request::builder().method(method).uri(format!("{}{path}", self.url)).header("content-type", content_type);
        let request = self.headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        let request = request.body(body.to_owned())?;
        let request = self.agent.configure_request(request).allow_non_standard_methods(true).build();
        Answer::read(self.agent.run(request)?)
    }

    /// The answer to JSON.
    ///
    /// # Errors
    /// When there is none.
    pub fn send_json(&self, method: &str, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.send(method, path, "application/json", &body.to_string())
    }

    /// Ids of a path such as `/v1/sequences/order/ids?count=3`, one per line.
    ///
    /// # Errors
    /// When there are none.
    pub fn ids(&self, path: &str) -> anyhow::Result<Vec<u64>> {
        let answer = self.get_as(path, "text/plain")?;
        ensure!(answer.status == 200, "{path}: {answer:?}");
        answer.body.lines().map(|line| line.parse().context("no id")).collect()
    }
}

/// What a server answered.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers; names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

impl Answer {
    fn read(mut response: Response<ureq::Body>) -> anyhow::Result<Self> {
        let headers = response.headers().iter();
        let headers = headers
            .map(|(name, value)| Ok((name.to_string(), value.to_str()?.to_owned())))
            .collect::<anyhow::Result<_>>()?;
        Ok(Self { status: response.status().as_u16(), headers, body: response.body_mut().read_to_string()? })
    }

    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// When it is none.
    pub fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_str(&self.body).with_context(|| format!("no JSON: {self:?}"))
    }

    /// The ids in a JSON body, strings or numbers.
    ///
    /// # Errors
    /// When there are none.
    pub fn ids(&self) -> anyhow::Result<Vec<u64>> {
        let json = self.json()?;
        let ids = json.get("ids").and_then(Value::as_array).with_context(|| format!("no ids: {self:?}"))?;
        ids.iter().map(|id| id.as_str().map_or_else(|| id.as_u64().context("no id"), |id| Ok(id.parse()?))).collect()
    }

    /// The short name of the problem that this is, once its form is checked.
    ///
    /// # Errors
    /// When it is no problem document by RFC 9457.
    pub fn problem(&self) -> anyhow::Result<String> {
        ensure!(self.header("content-type") == Some("application/problem+json"), "no problem: {self:?}");
        let json = self.json()?;
        ensure!(json.get("status").and_then(Value::as_u64) == Some(u64::from(self.status)), "status: {self:?}");
        for member in ["title", "detail"] {
            let text = json.get(member).and_then(Value::as_str).unwrap_or_default();
            ensure!(!text.is_empty(), "no {member}: {self:?}");
        }
        let name = json.get("type").and_then(Value::as_str).and_then(|name| name.strip_prefix("urn:unalike:problem:"));
        Ok(name.with_context(|| format!("no type: {self:?}"))?.to_owned())
    }
}
