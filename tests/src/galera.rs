//! A Galera cluster: nodes of MariaDB as private child processes, which find each other on ports of this machine.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::PATIENCE;
use crate::mariadb::MariaDb;
use crate::process;

const PROVIDER: &str = "/usr/lib/galera/libgalera_smm.so";

/// What to do when Galera is not there.
const INSTALL: &str = "install Galera and rsync: apt-get install galera-4 rsync";

/// Who runs the servers where root runs the tests: what rsync is told to serve, it serves as nobody if root starts it,
/// and nobody may not write to a node's data.
const USER: &str = "mysql";

/// A cluster that ends with its value.
#[derive(Debug)]
pub struct Galera {
    nodes: Vec<MariaDb>,
    /// Where the nodes find each other.
    address: String,
}

impl Galera {
    /// Starts a cluster of so many nodes with durable commits, as the adapter asks for.
    ///
    /// # Errors
    /// When Galera is not installed, or a node does not become ready; with what it said.
    pub fn start(count: usize) -> anyhow::Result<Self> {
        ensure!(Path::new(PROVIDER).exists(), "there is no {PROVIDER}: {INSTALL}");
        let rsync = Command::new("rsync").arg("--version").output().context(INSTALL)?;
        ensure!(rsync.status.success(), "rsync ended with {}: {INSTALL}", rsync.status);
        let (mut nodes, mut members) = (Vec::new(), Vec::new());
        for index in 0..count {
            let [member, incremental, snapshot] = [process::free_port()?, process::free_port()?, process::free_port()?];
            // A node that was killed is missed after three seconds. What a cluster sent before it was begun anew is not
            // sent again by a node that kept it: others do not read it ("Unsupported CC action version").
            let options = format!(
                "gmcast.listen_addr=tcp://127.0.0.1:{member};ist.recv_addr=127.0.0.1:{incremental};gcache.size=8M;\
                 gcache.recover=no;evs.keepalive_period=PT0.2S;evs.inactive_check_period=PT0.2S;evs.suspect_timeout=PT3S;\
                 evs.inactive_timeout=PT6S;evs.install_timeout=PT5S"
            );
            let settings = [
                "--binlog-format=ROW".to_owned(),
                "--innodb-autoinc-lock-mode=2".to_owned(),
                "--wsrep-on=ON".to_owned(),
                format!("--wsrep-provider={PROVIDER}"),
                format!("--wsrep-provider-options={options}"),
                "--wsrep-cluster-name=tests".to_owned(),
                format!("--wsrep-node-name=node{index}"),
                "--wsrep-node-address=127.0.0.1".to_owned(),
                "--wsrep-sst-method=rsync".to_owned(),
                format!("--wsrep-sst-receive-address=127.0.0.1:{snapshot}"),
                format!("--user={USER}"),
            ];
            let node = MariaDb::stopped(&settings.each_ref().map(String::as_str))?;
            std::fs::create_dir(node.directory().join("tmp"))?;
            give_to_user(node.directory())?;
            members.push(format!("127.0.0.1:{member}"));
            nodes.push(node);
        }
        let mut cluster = Self { nodes, address: format!("gcomm://{}", members.join(",")) };
        cluster.begin(0, &[])?;
        for index in 1..count {
            cluster.join(index)?;
        }
        Ok(cluster)
    }

    /// A node.
    #[must_use]
    pub fn node(&self, index: usize) -> &MariaDb {
        self.nodes.get(index).unwrap()
    }

    fn node_mut(&mut self, index: usize) -> &mut MariaDb {
        self.nodes.get_mut(index).unwrap()
    }

    /// A new, empty database, by its name.
    ///
    /// # Errors
    /// When the first node does not make it.
    pub fn database(&self) -> anyhow::Result<String> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("cluster_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let deadline = Instant::now() + PATIENCE;
        // A node that is late, as on a busy machine, is missed for a moment, and the others are not ready then.
        while let Err(error) = self.node(0).sql("", &format!("CREATE DATABASE IF NOT EXISTS {name}")) {
            ensure!(Instant::now() < deadline, error);
        }
        Ok(name)
    }

    /// A database on a node, for the user root, who needs no password.
    #[must_use]
    pub fn url(&self, index: usize, database: &str) -> String {
        format!("mysql://root@127.0.0.1:{}/{database}", self.node(index).port())
    }

    /// Kills a node with SIGKILL.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn kill9(&mut self, index: usize) -> anyhow::Result<()> {
        self.node_mut(index).kill9()
    }

    /// Stops a node in good order.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop(&mut self, index: usize) -> anyhow::Result<()> {
        self.node_mut(index).stop()
    }

    /// Starts a node that ended, and waits until it is ready: the others send it what it lacks, or all where they no
    /// longer have that. Answers whether they sent all.
    ///
    /// # Errors
    /// When it does not become ready.
    pub fn rejoin(&mut self, index: usize) -> anyhow::Result<bool> {
        let position = self.recovered(index)?;
        self.join_with(index, &[position])
    }

    /// Starts a node that ended and no longer knows what it has, so that the others send it all.
    ///
    /// # Errors
    /// When it does not become ready, or is not sent all.
    pub fn rejoin_by_snapshot(&mut self, index: usize) -> anyhow::Result<()> {
        std::fs::remove_file(self.node(index).directory().join("data/grastate.dat"))?;
        ensure!(self.join(index)?, "node {index} was not sent all");
        Ok(())
    }

    /// Begins the cluster anew with a node that ended, as somebody does who takes it for the one that knows most. All
    /// others must have ended.
    ///
    /// # Errors
    /// When it does not become ready.
    pub fn bootstrap(&mut self, index: usize) -> anyhow::Result<()> {
        let state = self.node(index).directory().join("data/grastate.dat");
        let forced = std::fs::read_to_string(&state)?.replace("safe_to_bootstrap: 0", "safe_to_bootstrap: 1");
        std::fs::write(&state, forced)?;
        let position = self.recovered(index)?;
        self.begin(index, &[position])
    }

    /// Starts a node that ended as a server of its own, without Galera.
    ///
    /// # Errors
    /// When it does not become ready.
    pub fn start_alone(&mut self, index: usize) -> anyhow::Result<()> {
        let node = self.node_mut(index);
        node.spawn_with(&["--wsrep-on=OFF".to_owned(), "--wsrep-provider=none".to_owned()])?;
        node.wait_until_ready()
    }

    /// Cuts a node off from the others, or ends that. It still serves its clients.
    ///
    /// # Errors
    /// When it does not do it.
    pub fn isolate(&self, index: usize, isolated: bool) -> anyhow::Result<()> {
        let set = format!("SET GLOBAL wsrep_provider_options = 'gmcast.isolate={}'", u8::from(isolated));
        self.node(index).sql("", &set).map(drop)
    }

    /// What a node says of the cluster.
    ///
    /// # Errors
    /// When it does not.
    pub fn status(&self, index: usize, name: &str) -> anyhow::Result<String> {
        let row = self.node(index).sql("", &format!("SHOW GLOBAL STATUS LIKE '{name}'"))?;
        let (_, value) = row.trim_end().split_once('\t').with_context(|| format!("there is no {name}"))?;
        Ok(value.to_owned())
    }

    /// Waits until a node says this of the cluster.
    ///
    /// # Errors
    /// When it does not come to be so.
    pub fn wait_for_status(&self, index: usize, name: &str, value: &str) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.status(index, name)?;
            if found == value {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{name} of node {index} stays {found}, and was to be {value}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The position of a node that ended, as its next start takes it.
    fn recovered(&mut self, index: usize) -> anyhow::Result<String> {
        let node = self.node_mut(index);
        node.spawn_with(&["--wsrep-cluster-address=gcomm://".to_owned(), "--wsrep-recover".to_owned()])?;
        node.wait_until_ended()?;
        let log = node.log();
        let (_, position) = log.rsplit_once("WSREP: Recovered position: ").context("no position was recovered")?;
        let position = position.lines().next().context("no position was recovered")?;
        Ok(format!("--wsrep-start-position={}", position.trim()))
    }

    fn begin(&mut self, index: usize, settings: &[String]) -> anyhow::Result<()> {
        let settings = [settings, &["--wsrep-cluster-address=gcomm://".to_owned()]].concat();
        let node = self.node_mut(index);
        node.spawn_with(&settings)?;
        node.wait_until_ready()?;
        self.wait_for_status(index, "wsrep_ready", "ON")
    }

    fn join(&mut self, index: usize) -> anyhow::Result<bool> {
        self.join_with(index, &[])
    }

    fn join_with(&mut self, index: usize, settings: &[String]) -> anyhow::Result<bool> {
        let settings = [settings, &[format!("--wsrep-cluster-address={}", self.address)]].concat();
        let node = self.node_mut(index);
        let before = node.log().len();
        node.spawn_with(&settings)?;
        // What needs no table is answered before.
        node.wait_until_ready()?;
        self.wait_for_status(index, "wsrep_ready", "ON")?;
        let log = self.node(index).log();
        Ok(log.get(before..).is_some_and(|log| log.contains("rsync SST completed on joiner")))
    }
}

/// Gives a directory to those who may write to it.
fn give_to_user(directory: &Path) -> anyhow::Result<()> {
    if std::fs::metadata(directory)?.uid() != 0 {
        return Ok(());
    }
    let status = Command::new("chown").args(["--recursive", USER]).arg(directory).status()?;
    ensure!(status.success(), "the directory was not given to {USER}: {status}");
    Ok(())
}
