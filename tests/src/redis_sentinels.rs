//! Redis with Sentinels: a master, its replica, and the Sentinels that watch over them, as private child processes.

use std::fs::File;
use std::process::{Child, Stdio};

use anyhow::Context;
use tempfile::TempDir;

use crate::process;
use crate::redis::{Persistence, Program, Redis, cli, until};

/// The name of the master.
pub const MASTER: &str = "ids";

/// A master that does not answer for this long is down, in milliseconds.
pub const DOWN_AFTER_MS: u64 = 1_000;

/// Sentinels that watch over one master.
#[derive(Debug)]
pub struct Sentinels {
    directory: TempDir,
    program: Program,
    sentinels: Vec<(u16, Option<Child>)>,
}

impl Sentinels {
    /// Starts three that watch over the master at this port, two of whom have to agree; waits until they know each
    /// other and its replicas.
    ///
    /// # Errors
    /// When one cannot be started, or they do not find each other.
    pub fn start(program: Program, master_port: u16, replicas: usize) -> anyhow::Result<Self> {
        let mut sentinels = Self { directory: TempDir::new()?, program, sentinels: Vec::new() };
        for _ in 0..3 {
            let port = process::free_port()?;
            let settings = format!(
                "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {MASTER} 127.0.0.1 {master_port} 2\n\
                 sentinel down-after-milliseconds {MASTER} {DOWN_AFTER_MS}\nsentinel failover-timeout {MASTER} 5000\n",
                sentinels.directory.path().display()
            );
            std::fs::write(sentinels.directory.path().join(format!("{port}.conf")), settings)?;
            let child = sentinels.spawn(port)?;
            sentinels.sentinels.push((port, Some(child)));
        }
        for port in sentinels.ports() {
            // So that they find each other, and a new master, soon.
            until("a Sentinel starts", || cli(port, &["PING"]).is_ok_and(|said| said == "PONG"))?;
            cli(port, &["SENTINEL", "DEBUG", "INFO-PERIOD", "200", "PUBLISH-PERIOD", "200", "ASK-PERIOD", "200"])?;
        }
        for port in sentinels.ports() {
            until("the Sentinels know each other and the replicas", || {
                let known = cli(port, &["SENTINEL", "MASTER", MASTER]).unwrap_or_default();
                let lines: Vec<&str> = known.lines().collect();
                let of = |name: &str| {
                    let at = lines.iter().position(|line| *line == name)?;
                    lines.get(at + 1)?.parse::<usize>().ok()
                };
                of("num-other-sentinels") == Some(2) && of("num-slaves") == Some(replicas)
            })?;
        }
        Ok(sentinels)
    }

    /// Where they listen.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.sentinels.iter().map(|(port, _)| *port).collect()
    }

    /// The URL of the master's first database, with these parameters.
    #[must_use]
    pub fn url(&self, parameters: &str) -> String {
        let hosts: Vec<_> = self.ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redis+sentinel://{}/{MASTER}?{parameters}", hosts.join(","))
    }

    /// Where this Sentinel says that the master is.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn master_port(&self, number: usize) -> anyhow::Result<u16> {
        let (port, _) = self.sentinels.get(number).context("there is no such Sentinel")?;
        let said = cli(*port, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER])?;
        Ok(said.lines().nth(1).context("no port")?.parse()?)
    }

    /// Waits until all that run name this server the master, and it is one.
    ///
    /// # Errors
    /// When that never happens.
    pub fn wait_for_master(&self, redis: &Redis) -> anyhow::Result<()> {
        for (number, (_, child)) in self.sentinels.iter().enumerate() {
            if child.is_some() {
                until("another master", || self.master_port(number).is_ok_and(|port| port == redis.port()))?;
            }
        }
        redis.wait_until(|info| info.contains("role:master"))
    }

    /// Kills one with SIGKILL.
    ///
    /// # Errors
    /// When there is no such Sentinel.
    pub fn kill9(&mut self, number: usize) -> anyhow::Result<()> {
        let (_, child) = self.sentinels.get_mut(number).context("there is no such Sentinel")?;
        if let Some(mut child) = child.take() {
            // It may have ended already.
            let _ = child.kill();
            child.wait()?;
        }
        Ok(())
    }

    /// Stops one where it is: it answers nobody.
    ///
    /// # Errors
    /// When there is no such Sentinel.
    pub fn pause(&self, number: usize) -> anyhow::Result<()> {
        let (_, child) = self.sentinels.get(number).context("there is no such Sentinel")?;
        process::pause(child.as_ref().context("it does not run")?)
    }

    fn spawn(&self, port: u16) -> anyhow::Result<Child> {
        let log = File::create(self.directory.path().join(format!("{port}.log")))?;
        let mut command = self.program.command()?;
        command.arg(self.directory.path().join(format!("{port}.conf"))).arg("--sentinel");
        Ok(command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?)
    }
}

impl Drop for Sentinels {
    fn drop(&mut self) {
        for number in 0..self.sentinels.len() {
            let _ = self.kill9(number);
        }
    }
}

/// A master with a replica, and their Sentinels.
#[derive(Debug)]
pub struct Watched {
    /// The first master.
    pub master: Redis,
    /// Its replica, which has all its data.
    pub replica: Redis,
    /// What watches over them.
    pub sentinels: Sentinels,
}

impl Watched {
    /// Starts them.
    ///
    /// # Errors
    /// When one cannot be started.
    pub fn start(program: Program) -> anyhow::Result<Self> {
        let master = Redis::start_program(program, Persistence::Nothing, &[])?;
        let following = ["--replicaof", "127.0.0.1", &master.port().to_string()];
        let replica = Redis::start_program(program, Persistence::Nothing, &following)?;
        replica.wait_until(|info| info.contains("master_link_status:up"))?;
        let sentinels = Sentinels::start(program, master.port(), 1)?;
        Ok(Self { master, replica, sentinels })
    }
}
