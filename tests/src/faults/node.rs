//! A node and its client: a process that is asked for ids all the time.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::{Value, json};
use tempfile::TempDir;
use unalike::Layout;

use super::checker::{Checker, Ids};
use super::store::Store;
use crate::clock::FakeClock;
use crate::process;
use crate::proxy::Proxy;
use crate::server;

/// A call that is not answered by a running process within this time never will be.
const CALL_MAX: Duration = Duration::from_secs(60);

/// Requests that are under way at once.
const WINDOW: u64 = 32;

/// A client that was refused waits a little.
const AFTER_ERROR: Duration = Duration::from_millis(2);

/// A node that could not start is started again after this time.
const START_AGAIN: Duration = Duration::from_millis(200);

/// A process this old has taken the memory that it needs at first.
const WARM: Duration = Duration::from_secs(10);

/// What one process had in memory once it was warm, and at the end, in KiB.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// How long the two are apart.
    pub span: Duration,
    /// At first.
    pub first_kib: u64,
    /// At the end.
    pub last_kib: u64,
}

/// How a process is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// By the end of its input.
    Gently,
    /// By SIGKILL.
    Killed,
}

pub(super) struct Node {
    number: usize,
    ids: Ids,
    flags: Vec<String>,
    directory: Arc<TempDir>,
    proxy: Option<Proxy>,
    clock: FakeClock,
    checker: Arc<Checker>,
    running: Running,
}

/// One process of a node, and the thread that asks it.
struct Running {
    process: Child,
    client: Option<JoinHandle<()>>,
    calls: Arc<Calls>,
    since: Instant,
    is_paused: bool,
    first_kib: Option<(Instant, u64)>,
}

/// The calls of one process.
#[derive(Default)]
struct Calls {
    open: Mutex<HashMap<u64, Sent>>,
    answered: AtomicU64,
    /// Why one was refused, last.
    refusal: Mutex<String>,
    /// No more are to be made.
    is_over: AtomicBool,
}

struct Sent {
    at: Instant,
    /// What the process had answered with before.
    after: Arc<Greatest>,
}

/// The greatest id of each worker; sequences have one of them, 0.
type Greatest = BTreeMap<u32, u64>;

impl Calls {
    fn refusal(&self) -> MutexGuard<'_, String> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Sent>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node {
    pub(super) fn start(number: usize, store: &Store, checker: Arc<Checker>) -> anyhow::Result<Self> {
        let (proxy, mut flags) = store.way()?;
        let ids = if number.is_multiple_of(2) { Ids::Sequence } else { Ids::Snowflake };
        flags.push("maelstrom".to_owned());
        if ids == Ids::Snowflake {
            flags.extend(["default".to_owned(), "--snowflake".to_owned()]);
        }
        let (directory, clock) = (Arc::clone(store.directory()), FakeClock::start()?);
        let running = Running::start(number, ids, &flags, &directory, &clock, &checker)?;
        Ok(Self { number, ids, flags, directory, proxy, clock, checker, running })
    }

    /// Whether a network leads to the store.
    pub(super) fn proxy(&self) -> Option<&Proxy> {
        self.proxy.as_ref()
    }

    /// Sets its clock so far off.
    pub(super) fn set_clock(&self, ahead_ms: i64) -> anyhow::Result<()> {
        self.clock.set(ahead_ms)
    }

    pub(super) fn pause(&mut self) -> anyhow::Result<()> {
        if self.running.process.try_wait()?.is_none() && process::pause(&self.running.process).is_ok() {
            self.running.is_paused = true;
        }
        Ok(())
    }

    pub(super) fn resume(&mut self) {
        // One that ended meanwhile needs none.
        let _ = process::signal(&self.running.process, libc::SIGCONT);
        self.running.is_paused = false;
    }

    /// Lets it open no more files, or as many as before.
    pub(super) fn limit_files(&self, is_limited: bool) -> anyhow::Result<()> {
        let usual = getrlimit(Resource::Nofile);
        let limit = if is_limited { Rlimit { current: Some(1), maximum: usual.maximum } } else { usual };
        let id = Pid::from_raw(libc::pid_t::try_from(self.running.process.id())?).context("no process")?;
        // One that ended meanwhile has none.
        let _ = prlimit(Some(id), Resource::Nofile, limit);
        Ok(())
    }

    /// Ends its process and starts another.
    pub(super) fn restart(&mut self, stop: Stop) -> anyhow::Result<()> {
        self.running.end(stop)?;
        self.running = Running::start(self.number, self.ids, &self.flags, &self.directory, &self.clock, &self.checker)?;
        Ok(())
    }

    /// Starts it again if it ended by itself: a node whose store is away does not start.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        let running = &mut self.running;
        if let Some(status) = running.process.try_wait()? {
            if running.since.elapsed() > START_AGAIN {
                ensure!(!status.success(), "node {} ended by itself: {:?}", self.number, self.checker.notes());
                self.restart(Stop::Killed)?;
            }
            return Ok(());
        }
        if running.first_kib.is_none() && running.since.elapsed() > WARM {
            running.first_kib = running.resident_kib().map(|kib| (Instant::now(), kib));
        }
        let oldest = running.calls.open().values().map(|sent| sent.at).min();
        let is_stuck = oldest.is_some_and(|at| at.elapsed() > CALL_MAX) && !running.is_paused;
        ensure!(!is_stuck, "node {}: a call was not answered within {CALL_MAX:?}: {}", self.number, self.log()?);
        Ok(())
    }

    /// Undoes what was done to it.
    pub(super) fn mend(&mut self) -> anyhow::Result<()> {
        self.resume();
        self.limit_files(false)?;
        self.clock.set(0)?;
        if let Some(proxy) = &self.proxy {
            proxy.stall(false);
            proxy.delay(Duration::ZERO);
            proxy.cut();
        }
        Ok(())
    }

    /// Waits until it gives an id, from now on.
    pub(super) fn wait_for_ids(&mut self, within: Duration) -> anyhow::Result<()> {
        let (began, mut process) = (Instant::now(), self.running.process.id());
        let mut before = self.running.calls.answered.load(Ordering::SeqCst);
        while self.running.calls.answered.load(Ordering::SeqCst) <= before {
            ensure!(
                began.elapsed() < within,
                "node {} gives no id within {within:?}; {} calls are open, the last refusal: {:?}; its log:\n{}",
                self.number,
                self.running.calls.open().len(),
                self.running.calls.refusal(),
                self.log()?
            );
            self.check()?;
            if self.running.process.id() != process {
                (process, before) = (self.running.process.id(), 0);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// What its process has come to need, if it has lived for a while.
    pub(super) fn memory(&self) -> Option<Memory> {
        let (at, first_kib) = self.running.first_kib?;
        Some(Memory { span: at.elapsed(), first_kib, last_kib: self.running.resident_kib()? })
    }

    /// Ends it, and looks at what it logged.
    pub(super) fn end(mut self, stop: Stop) -> anyhow::Result<()> {
        self.running.end(stop)?;
        let log = self.log()?;
        ensure!(!log.contains("panicked"), "node {} panicked:\n{log}", self.number);
        Ok(())
    }

    fn log(&self) -> anyhow::Result<String> {
        let log = std::fs::read_to_string(log_path(&self.directory, self.number))?;
        // Its end is what matters.
        let lines: Vec<_> = log.lines().collect();
        Ok(lines.get(lines.len().saturating_sub(50)..).unwrap_or_default().join("\n"))
    }
}

impl Running {
    fn start(
        number: usize,
        ids: Ids,
        flags: &[String],
        directory: &TempDir,
        clock: &FakeClock,
        checker: &Arc<Checker>,
    ) -> anyhow::Result<Self> {
        let log = File::options().create(true).append(true).open(log_path(directory, number))?;
        let mut process = server::command(directory.path())?
            .envs(clock.environment())
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        clock.read_by(process.id());
        let (input, output) = process.stdin.take().zip(process.stdout.take()).context("its pipes")?;
        let calls = Arc::<Calls>::default();
        let client = {
            let (calls, checker) = (Arc::clone(&calls), Arc::clone(checker));
            std::thread::spawn(move || {
                // The end of the process ends this.
                if let Err(error) = ask(ids, input, output, &calls, &checker) {
                    checker.note(&format!("node {number}: {error:#}"));
                }
            })
        };
        let since = Instant::now();
        Ok(Self { process, client: Some(client), calls, since, is_paused: false, first_kib: None })
    }

    fn end(&mut self, stop: Stop) -> anyhow::Result<()> {
        self.calls.is_over.store(true, Ordering::SeqCst);
        let deadline = Instant::now() + CALL_MAX;
        while stop == Stop::Gently && self.process.try_wait()?.is_none() {
            ensure!(Instant::now() < deadline, "a process does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
        // An error means that it has ended already.
        let _ = self.process.kill();
        self.process.wait()?;
        match self.client.take().map(JoinHandle::join) {
            Some(Err(_)) => bail!("a client panicked"),
            _ => Ok(()),
        }
    }

    fn resident_kib(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().strip_suffix(" kB")?.parse().ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.end(Stop::Killed);
    }
}

/// Asks a process for ids until it ends, or no more are wanted: then its input is closed.
fn ask(ids: Ids, input: ChildStdin, output: ChildStdout, calls: &Calls, checker: &Checker) -> anyhow::Result<()> {
    let (mut input, mut output) = (Some(input), BufReader::new(output));
    let (mut number, mut greatest, mut line) = (0, Arc::<Greatest>::default(), String::new());
    send(&mut input, &json!({ "type": "init", "msg_id": 0, "node_id": "n", "node_ids": ["n"] }));
    let mut wanted = WINDOW;
    loop {
        for _ in 0..wanted {
            number += 1;
            calls.open().insert(number, Sent { at: Instant::now(), after: Arc::clone(&greatest) });
            checker.attempt(ids);
            send(&mut input, &json!({ "type": "generate", "msg_id": number }));
        }
        line.clear();
        // Half a line is the end of a process that was killed.
        if output.read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return Ok(());
        }
        let answer: Value = serde_json::from_str(&line).with_context(|| format!("it printed {line:?}"))?;
        let member = |name: &str| answer.pointer(&format!("/body/{name}"));
        wanted = 0;
        if member("type") == Some(&json!("init_ok")) {
            continue;
        }
        let call = member("in_reply_to").and_then(Value::as_u64).and_then(|number| calls.open().remove(&number));
        let call = call.with_context(|| format!("nobody asked for {line:?}"))?;
        if let Some(id) = member("id").and_then(Value::as_u64) {
            checker.acknowledge(ids, id);
            // A snowflake whose clock was an hour ahead may go on with an earlier time, and another worker.
            let worker = match ids {
                Ids::Sequence => 0,
                Ids::Snowflake => Layout::TWITTER.unpack(id)?.worker,
            };
            let before = call.after.get(&worker).copied().unwrap_or(0);
            ensure!(id > before, "{id} was answered to a call that was made after {before} had come");
            let greatest = Arc::make_mut(&mut greatest).entry(worker).or_default();
            *greatest = id.max(*greatest);
            calls.answered.fetch_add(1, Ordering::SeqCst);
        } else {
            ensure!(member("code") == Some(&json!(11)), "a call was refused for good: {line}");
            let text = member("text").and_then(Value::as_str).unwrap_or_default();
            checker.fail(ids, text);
            text.clone_into(&mut calls.refusal());
            std::thread::sleep(AFTER_ERROR);
        }
        match calls.is_over.load(Ordering::SeqCst) {
            true => input = None,
            false => wanted = 1,
        }
    }
}

/// Sends a message. A process that has ended takes none, and its output ends, too.
fn send(input: &mut Option<ChildStdin>, body: &Value) {
    if let Some(input) = input {
        let _ = writeln!(input, "{}", json!({ "src": "c1", "dest": "n1", "body": body }));
    }
}

fn log_path(directory: &TempDir, node: usize) -> PathBuf {
    directory.path().join(format!("node-{node}.log"))
}
