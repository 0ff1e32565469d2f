//! Redis as a private child process: a free port, a data directory of its own, killed when its value is dropped.

use std::fs::File;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tempfile::TempDir;

use crate::process;

/// A server that is not ready after this long never will be.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to do when the server's programs are not there.
const INSTALL: &str = "install Redis: apt-get install redis-server";

const LOG: &str = "redis.log";

/// What Redis writes to its disk, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// Nothing: after a restart it is empty.
    Nothing,
    /// A file of all data when it is told to save, and then what was saved last.
    Rdb,
    /// Each change, flushed once a second.
    AofEverySecond,
    /// Each change, flushed before it is answered.
    AofAlways,
}

impl Persistence {
    fn settings(self) -> &'static [&'static str] {
        match self {
            Self::Nothing | Self::Rdb => &["--save", "", "--appendonly", "no"],
            Self::AofEverySecond => &["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"],
            Self::AofAlways => &["--save", "", "--appendonly", "yes", "--appendfsync", "always"],
        }
    }
}

/// A running server.
#[derive(Debug)]
pub struct Redis {
    directory: TempDir,
    port: u16,
    settings: Vec<String>,
    process: Child,
}

impl Redis {
    /// Starts one.
    ///
    /// # Errors
    /// When Redis is not installed, or does not become ready; with what it said.
    pub fn start(persistence: Persistence) -> anyhow::Result<Self> {
        Self::start_with(persistence, &[])
    }

    /// The same with settings of its own, which come after the usual ones: `["--requirepass", "secret"]`.
    ///
    /// # Errors
    /// As [`Redis::start`].
    pub fn start_with(persistence: Persistence, settings: &[&str]) -> anyhow::Result<Self> {
        let directory = TempDir::new()?;
        let port = process::free_port()?;
        let settings: Vec<String> =
            persistence.settings().iter().chain(settings).map(|&setting| setting.to_owned()).collect();
        let process = spawn(directory.path(), port, &settings)?;
        let mut server = Self { directory, port, settings, process };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Starts a replica of this server, and waits until it has all its data.
    ///
    /// # Errors
    /// As [`Redis::start`].
    pub fn start_replica(&self, persistence: Persistence) -> anyhow::Result<Self> {
        let replica = Self::start_with(persistence, &["--replicaof", "127.0.0.1", &self.port.to_string()])?;
        replica.wait_until(|info| info.contains("master_link_status:up"))?;
        Ok(replica)
    }

    /// Makes this server a replica of another one, and waits until it has all its data.
    ///
    /// # Errors
    /// When it never has.
    pub fn follow(&self, master: &Self) -> anyhow::Result<()> {
        self.cli(&["REPLICAOF", "127.0.0.1", &master.port.to_string()])?;
        self.wait_until(|info| info.contains("master_link_status:up"))
    }

    /// Takes a replica's master from it: it keeps what it has, and hears of nothing more.
    ///
    /// # Errors
    /// When the server does not do it.
    pub fn cut_off(&self) -> anyhow::Result<()> {
        // Nobody listens there.
        self.cli(&["REPLICAOF", "127.0.0.1", "1"])?;
        self.wait_until(|info| info.contains("master_link_status:down"))
    }

    /// Makes a replica a master, with what it has.
    ///
    /// # Errors
    /// When the server does not do it.
    pub fn promote(&self) -> anyhow::Result<()> {
        self.cli(&["REPLICAOF", "NO", "ONE"])?;
        self.wait_until(|info| info.contains("role:master"))
    }

    /// What the server says of itself under this name: `run_id`.
    ///
    /// # Errors
    /// When it says nothing.
    pub fn info(&self, name: &str) -> anyhow::Result<String> {
        let info = self.cli(&["INFO", "everything"])?;
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        Ok(value.with_context(|| format!("INFO has no {name}"))?.trim().to_owned())
    }

    /// Where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its data and its log.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The URL of a database, with these parameters: `redis://127.0.0.1:PORT/0?PARAMETERS`.
    #[must_use]
    pub fn url(&self, database: u32, parameters: &str) -> String {
        format!("redis://127.0.0.1:{}/{database}?{parameters}", self.port)
    }

    /// Runs a command with Redis' own client, in database 0; gives what it prints.
    ///
    /// # Errors
    /// When the server does not answer, or answers with an error.
    pub fn cli(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = Command::new("redis-cli")
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-e"])
            .args(arguments)
            .output()
            .context(INSTALL)?;
        let text = String::from_utf8(output.stdout)?;
        ensure!(output.status.success(), "{arguments:?}: {text} {}", String::from_utf8_lossy(&output.stderr));
        Ok(text.trim_end().to_owned())
    }

    /// Waits until `INFO replication` is as it should be.
    ///
    /// # Errors
    /// When it never is.
    pub fn wait_until(&self, is_so: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let info = self.cli(&["INFO", "replication"])?;
            if is_so(&info) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "what was waited for does not come: {info}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills it with SIGKILL.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn kill9(&mut self) -> anyhow::Result<()> {
        // An error means that it has ended already.
        let _ = self.process.kill();
        self.process.wait()?;
        Ok(())
    }

    /// Starts it again on the same data and the same port; kills it before if it still runs.
    ///
    /// # Errors
    /// As [`Redis::start`].
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.kill9()?;
        self.process = spawn(self.directory.path(), self.port, &self.settings)?;
        self.wait_until_ready()
    }

    /// Stops it where it is, without ending it: connections stay open and nothing answers.
    ///
    /// # Errors
    /// When there is no such process, or it does not stop.
    pub fn pause(&self) -> anyhow::Result<()> {
        process::pause(&self.process)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn resume(&self) -> anyhow::Result<()> {
        process::signal(&self.process, libc::SIGCONT)
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            // With a password it answers as well, only not this.
            let is_up = TcpStream::connect(("127.0.0.1", self.port)).is_ok();
            if is_up && self.cli(&["PING"]).map_or_else(|error| format!("{error:#}").contains("NOAUTH"), |_| true) {
                return Ok(());
            }
            let log = || std::fs::read_to_string(self.directory.path().join(LOG)).unwrap_or_default();
            if let Some(status) = self.process.try_wait()? {
                bail!("Redis ended with {status}; its log:\n{}", log());
            }
            ensure!(Instant::now() < deadline, "Redis does not become ready; its log:\n{}", log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended already. SIGKILL ends a stopped process too.
        let _ = self.kill9();
    }
}

fn spawn(directory: &Path, port: u16, settings: &[String]) -> anyhow::Result<Child> {
    let log = File::options().create(true).append(true).open(directory.join(LOG))?;
    Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--daemonize", "no", "--logfile", ""])
        .arg("--dir")
        .arg(directory)
        .args(settings)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context(INSTALL)
}
