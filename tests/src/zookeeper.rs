//! ZooKeeper as a private child process: a free port, a data directory of its own, killed when its value is dropped;
//! and holders of its leases.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use tokio::task::JoinHandle;
use unalike_storage::{GrantId, Layout, LayoutFields, Lease, LeaseAcquire, LeaseExtend, LeaseStore};
use unalike_zookeeper::{ZookeeperLeases, ZookeeperOptions};
use zookeeper_client::Client;

use crate::PATIENCE;
use crate::shared::{Directory, Shared, once, unique_name};
use crate::{process, redis, until};

/// What to do when the server's programs are not there.
const INSTALL: &str = "install ZooKeeper: apt-get install zookeeper";

/// Where Debian keeps it.
const JARS: &str = "/usr/share/java";

const LOG: &str = "zookeeper.log";
const CONFIGURATION: &str = "zoo.cfg";
const CLOCK: &str = "clock.so";
const AHEAD_MS: &str = "ahead_ms";

/// A running server.
#[derive(Debug)]
pub struct Zookeeper {
    directory: Directory,
    port: u16,
    process: Child,
}

impl Zookeeper {
    /// Starts one.
    ///
    /// # Errors
    /// When ZooKeeper is not installed, or does not become ready; with what it said.
    pub fn start() -> anyhow::Result<Self> {
        Self::start_for(false)
    }

    /// The same with a clock that [`Zookeeper::set_clock`] moves.
    ///
    /// # Errors
    /// As [`Zookeeper::start`], and when there is no C compiler.
    pub fn start_with_a_clock() -> anyhow::Result<Self> {
        Self::start_for(true)
    }

    /// The one that all tests of a run [share](Shared::Zookeeper), each below a [path](Zookeeper::path) of its own.
    ///
    /// # Errors
    /// When the run has none.
    pub fn shared() -> anyhow::Result<&'static Self> {
        static SHARED: OnceLock<Zookeeper> = OnceLock::new();
        once(&SHARED, || {
            let (port, directory) = Shared::Zookeeper.server()?;
            Ok(Self { directory, port, process: process::ended()? })
        })
    }

    fn start_for(with_clock: bool) -> anyhow::Result<Self> {
        ensure!(Path::new(JARS).join("zookeeper.jar").exists(), "{INSTALL}");
        let directory = Directory::new()?;
        let port = process::free_port()?;
        if with_clock {
            let source = directory.path().join("clock.c");
            std::fs::write(&source, redis::CLOCK_C)?;
            let mut compiler = Command::new("cc");
            compiler.args(["-shared", "-fPIC", "-o"]).arg(directory.path().join(CLOCK)).arg(source);
            ensure!(compiler.status().context("install a C compiler: apt-get install gcc")?.success(), "{compiler:?}");
            set_clock(directory.path(), 0)?;
        }
        let configuration = format!(
            "dataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=100\nmaxClientCnxns=0\n\
             admin.enableServer=false\n4lw.commands.whitelist=srvr\npreAllocSize=1024\nmaxSessionTimeout=60000\n",
            directory.path().join("data").display()
        );
        std::fs::write(directory.path().join(CONFIGURATION), configuration)?;
        let process = spawn(directory.path())?;
        let mut server = Self { directory, port, process };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Sets its clock so many ms ahead of that of this machine, or behind it.
    ///
    /// # Errors
    /// When the server reads another clock.
    pub fn set_clock(&self, ahead_ms: i64) -> anyhow::Result<()> {
        set_clock(self.directory.path(), ahead_ms)
    }

    /// Its data and log.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A path that no other test has: `/test_5f0c2a7be91d`.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/{}", unique_name())
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
    /// As [`Zookeeper::start`].
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.kill9()?;
        self.process = spawn(self.directory.path())?;
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
            // It listens before it serves.
            if self.says("srvr").is_ok_and(|text| text.contains("Mode: standalone")) {
                return Ok(());
            }
            let log = || std::fs::read_to_string(self.directory.path().join(LOG)).unwrap_or_default();
            if let Some(status) = self.process.try_wait()? {
                bail!("ZooKeeper ended with {status}; its log:\n{}", log());
            }
            ensure!(Instant::now() < deadline, "ZooKeeper does not become ready; its log:\n{}", log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Its answer to one of its words of four letters.
    fn says(&self, word: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(word.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }
}

impl Drop for Zookeeper {
    fn drop(&mut self) {
        // It may have ended already. SIGKILL ends a stopped process too.
        let _ = self.kill9();
    }
}

fn set_clock(directory: &Path, ahead_ms: i64) -> anyhow::Result<()> {
    // In one step, for the server reads it at any time.
    let new = directory.join("ahead_ms.new");
    std::fs::write(&new, ahead_ms.to_string())?;
    Ok(std::fs::rename(new, directory.join(AHEAD_MS))?)
}

/// Starts the program.
fn spawn(directory: &Path) -> anyhow::Result<Child> {
    let log = File::options().create(true).append(true).open(directory.join(LOG))?;
    let mut command = Command::new("java");
    if directory.join(CLOCK).exists() {
        command.env("LD_PRELOAD", directory.join(CLOCK)).env("UNALIKE_AHEAD_MS", directory.join(AHEAD_MS));
    }
    let jars = ["zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "netty-all"];
    let netty = ["netty-handler", "netty-common", "netty-buffer", "netty-transport"];
    let jars: Vec<_> = jars.iter().chain(&netty).map(|jar| format!("{JARS}/{jar}.jar")).collect();
    command
        // It starts in half a second with little of the compiler, and lives for seconds.
        .args(["-Xmx96m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"])
        .args(["-Dzookeeper.jmx.log4j.disable=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"])
        .args(["-cp", &jars.join(":"), "org.apache.zookeeper.server.ZooKeeperServerMain"])
        .arg(directory.join(CONFIGURATION))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context(INSTALL)
}

/// The holders' clock, in Unix milliseconds.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a holder's clock is an argument, and here it is read")]
pub fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// Leaf's layout with so few workers.
#[must_use]
pub fn layout(worker_bits: u8) -> Layout {
    Layout::new(LayoutFields { worker_bits, ..Layout::LEAF.fields() }).unwrap()
}

/// A request for a worker of the namespace `default`.
#[must_use]
pub fn request(layout: Layout, holder: &str, horizon_ms: u64) -> LeaseAcquire {
    LeaseAcquire {
        namespace: "default".to_owned(),
        layout,
        holder: holder.to_owned(),
        preferred_worker: None,
        now_ms: now_ms(),
        horizon_ms,
    }
}

/// A request to prolong a lease of the namespace `default`.
#[must_use]
pub fn extension(layout: Layout, lease: &Lease, horizon_ms: u64) -> LeaseExtend {
    LeaseExtend {
        namespace: "default".to_owned(),
        layout,
        worker: lease.worker,
        grant_id: lease.grant_id,
        now_ms: now_ms(),
        horizon_ms,
    }
}

/// A client of the server, or proxy, at this port; the rest of its URL is `/PATH?PARAMETERS`.
pub async fn open(port: u16, rest: &str) -> ZookeeperLeases {
    let url = format!("zookeeper://127.0.0.1:{port}{rest}");
    ZookeeperLeases::connect(ZookeeperOptions::from_url(&url).unwrap()).await.unwrap()
}

/// A client of the tests' own, for a look at the nodes, and worse.
pub async fn raw(port: u16) -> Client {
    Client::connect(&format!("127.0.0.1:{port}")).await.unwrap()
}

/// Waits until this machine's clock, which is the server's, has come there.
pub async fn until_ms(at_ms: u64) {
    until("a time", async || now_ms() >= at_ms).await;
}

/// What a holder could use of a grant.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    /// The worker.
    pub worker: u32,
    /// The grant.
    pub grant_id: GrantId,
    /// From when on, in Unix milliseconds.
    pub from_ms: u64,
    /// Up to when, in Unix milliseconds.
    pub until_ms: u64,
}

impl From<Lease> for Used {
    fn from(lease: Lease) -> Self {
        let Lease { worker, grant_id, not_before_ms, valid_until_ms } = lease;
        Self { worker, grant_id, from_ms: not_before_ms, until_ms: valid_until_ms }
    }
}

/// Panics if two grants of one worker have a time in common, or two grants have one name.
#[track_caller]
pub fn assert_disjoint(used: &[Used]) {
    let grants: BTreeSet<_> = used.iter().map(|used| used.grant_id).collect();
    assert_eq!(grants.len(), used.len(), "each grant has a name of its own");
    let mut workers: BTreeMap<u32, Vec<Used>> = BTreeMap::new();
    for used in used {
        workers.entry(used.worker).or_default().push(*used);
    }
    for grants in workers.values_mut() {
        grants.sort_by_key(|used| (used.from_ms, used.until_ms));
        for pair in grants.windows(2) {
            let [first, second] = pair else { continue };
            assert!(first.until_ms <= second.from_ms, "two holders had a worker at once: {pair:?}");
        }
    }
}

/// Holders of a few workers that come and go, each through its own connection, until they are told to stop.
#[derive(Debug)]
pub struct Crowd {
    stop: Arc<AtomicBool>,
    grants: Arc<AtomicUsize>,
    tasks: Vec<JoinHandle<Vec<Used>>>,
}

impl Crowd {
    /// So many members, each with a client that `open` makes.
    pub async fn start(
        members: usize,
        layout: Layout,
        horizon_ms: u64,
        open: impl AsyncFn() -> ZookeeperLeases,
    ) -> Self {
        let (stop, grants) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = Vec::new();
        for member in 0..members {
            let (leases, stop, grants) = (open().await, Arc::clone(&stop), Arc::clone(&grants));
            tasks.push(tokio::spawn(async move {
                let mut used: Vec<Used> = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    // Two and two share a name, as restarts of one host do.
                    let holder = format!("holder {}", member / 2);
                    let mut lease = match leases.acquire(&request(layout, &holder, horizon_ms)).await {
                        Ok(lease) => lease,
                        Err(error) => {
                            assert!(error.is_retryable(), "no fault here is for good: {error:?}");
                            tokio::time::sleep(Duration::from_millis(1)).await;
                            continue;
                        }
                    };
                    grants.fetch_add(1, Ordering::Relaxed);
                    for _ in 0..fastrand::u32(0..3) {
                        match leases.extend(&extension(layout, &lease, 2 * horizon_ms)).await {
                            Ok(extended) => lease = extended,
                            Err(error) => assert!(error.is_retryable(), "no fault here is for good: {error:?}"),
                        }
                    }
                    if fastrand::bool() {
                        lease.valid_until_ms = fastrand::u64(lease.not_before_ms..=lease.valid_until_ms);
                        // Whatever the answer is, the holder uses no more.
                        let _ = leases.release("default", lease.worker, lease.grant_id, lease.valid_until_ms).await;
                    }
                    used.push(lease.into());
                }
                used
            }));
        }
        Self { stop, grants, tasks }
    }

    /// Waits until so many more grants were made.
    pub async fn go_on(&self, grants: usize) {
        let before = self.grants.load(Ordering::Relaxed);
        until("leases are granted", async || self.grants.load(Ordering::Relaxed) >= before + grants).await;
    }

    /// Ends it: what its members could use of all their grants.
    pub async fn end(self) -> Vec<Used> {
        self.stop.store(true, Ordering::Relaxed);
        let mut used = Vec::new();
        for task in self.tasks {
            used.extend(task.await.unwrap());
        }
        used
    }
}
