//! A Redis Cluster of three masters as private child processes, and replicas where a test wants them.

use anyhow::Context;

use crate::process;
use crate::redis::{Persistence, Program, Redis, until};

/// A node that does not answer for this long is down, in milliseconds.
pub const NODE_TIMEOUT_MS: u64 = 1_000;

const SLOTS: usize = 16_384;

/// The nodes of a running Cluster.
#[derive(Debug)]
pub struct RedisCluster {
    program: Program,
    nodes: Vec<Redis>,
}

impl RedisCluster {
    /// Starts three masters, each with a third of the slots.
    ///
    /// # Errors
    /// When one cannot be started, or they do not find each other.
    pub fn start(program: Program) -> anyhow::Result<Self> {
        let mut cluster = Self { program, nodes: Vec::new() };
        for number in 0..3 {
            let node = cluster.node()?;
            // Only alone may a node say this.
            node.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()])?;
            let (first, end) = (number * SLOTS / 3, (number + 1) * SLOTS / 3);
            node.cli(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &(end - 1).to_string()])?;
            cluster.meet(&node)?;
            cluster.nodes.push(node);
        }
        cluster.wait_until_whole()?;
        Ok(cluster)
    }

    /// Starts a replica of a node, and waits until it has all its data; its number.
    ///
    /// # Errors
    /// As [`RedisCluster::start`].
    pub fn add_replica(&mut self, master: usize) -> anyhow::Result<usize> {
        let (id, replica) = (self.id(master)?, self.node()?);
        self.meet(&replica)?;
        until("the replica knows its master", || {
            replica.cli(&["CLUSTER", "REPLICATE", &id]).is_ok_and(|said| said == "OK")
        })?;
        replica.wait_until(|info| info.contains("master_link_status:up"))?;
        self.nodes.push(replica);
        self.wait_until_whole()?;
        Ok(self.nodes.len() - 1)
    }

    /// All nodes, by number.
    #[must_use]
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The node of this number.
    ///
    /// # Errors
    /// When there is none.
    pub fn at(&self, number: usize) -> anyhow::Result<&Redis> {
        self.nodes.get(number).context("there is no such node")
    }

    /// The same, to end it or start it again.
    ///
    /// # Errors
    /// When there is none.
    pub fn at_mut(&mut self, number: usize) -> anyhow::Result<&mut Redis> {
        self.nodes.get_mut(number).context("there is no such node")
    }

    /// The URL of some of its nodes, with these parameters.
    #[must_use]
    pub fn url(&self, parameters: &str) -> String {
        let hosts: Vec<_> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis+cluster://{}?{parameters}", hosts.join(","))
    }

    /// The slot of a key.
    ///
    /// # Errors
    /// When no node answers.
    pub fn slot(&self, key: &str) -> anyhow::Result<usize> {
        Ok(self.at(0)?.cli(&["CLUSTER", "KEYSLOT", key])?.parse()?)
    }

    /// The master that had a key when the Cluster was started.
    ///
    /// # Errors
    /// When no node answers.
    pub fn first_owner(&self, key: &str) -> anyhow::Result<usize> {
        let slot = self.slot(key)?;
        (0..3).find(|number| slot < (number + 1) * SLOTS / 3).context("no such slot")
    }

    /// The name of a node.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn id(&self, number: usize) -> anyhow::Result<String> {
        self.at(number)?.cli(&["CLUSTER", "MYID"])
    }

    /// Begins to move a slot: keys that are not there any more are asked for at the other node.
    ///
    /// # Errors
    /// When a node refuses.
    pub fn begin_move(&self, slot: usize, from: usize, to: usize) -> anyhow::Result<()> {
        let (slot, source, target) = (slot.to_string(), self.id(from)?, self.id(to)?);
        self.at(to)?.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source])?;
        self.at(from)?.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]).map(drop)
    }

    /// Moves all keys of a slot.
    ///
    /// # Errors
    /// When a node refuses.
    pub fn move_keys(&self, slot: usize, from: usize, to: usize) -> anyhow::Result<()> {
        let (source, port) = (self.at(from)?, self.at(to)?.port().to_string());
        loop {
            let keys = source.cli(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "100"])?;
            let keys: Vec<&str> = keys.lines().filter(|key| !key.is_empty()).collect();
            if keys.is_empty() {
                return Ok(());
            }
            let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            migrate.extend(keys);
            source.cli(&migrate)?;
        }
    }

    /// Ends the move of a slot: all nodes know its new master.
    ///
    /// # Errors
    /// When a node refuses.
    pub fn end_move(&self, slot: usize, to: usize) -> anyhow::Result<()> {
        let (slot, target) = (slot.to_string(), self.id(to)?);
        // The new master first: between the two, both would send requests to the other one.
        self.at(to)?.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &target])?;
        for node in &self.nodes {
            // A replica refuses, and a master that still has keys: they hear of it from the others.
            let _ = node.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &target]);
        }
        for node in &self.nodes {
            until("all know whose the slot is", || owner(node, &slot).is_ok_and(|owner| owner == target))?;
        }
        Ok(())
    }

    /// Waits until all nodes see the whole Cluster.
    ///
    /// # Errors
    /// When they never do.
    pub fn wait_until_whole(&self) -> anyhow::Result<()> {
        let known = format!("cluster_known_nodes:{}", self.nodes.len());
        for node in &self.nodes {
            until("the Cluster is whole", || {
                let info = node.cli(&["CLUSTER", "INFO"]).unwrap_or_default();
                info.contains("cluster_state:ok") && info.contains(&known) && info.contains("cluster_size:3")
            })?;
        }
        Ok(())
    }

    fn node(&self) -> anyhow::Result<Redis> {
        let (bus, limit) = (process::free_port()?.to_string(), NODE_TIMEOUT_MS.to_string());
        let settings = [
            ["--cluster-enabled", "yes"],
            ["--cluster-port", &bus],
            ["--cluster-node-timeout", &limit],
            ["--cluster-replica-validity-factor", "0"],
        ];
        Redis::start_program(self.program, Persistence::Nothing, settings.as_flattened())
    }

    fn meet(&self, new: &Redis) -> anyhow::Result<()> {
        for node in &self.nodes {
            let bus = node.cli(&["CONFIG", "GET", "cluster-port"])?;
            let bus = bus.lines().nth(1).context("a node has no cluster-port")?;
            new.cli(&["CLUSTER", "MEET", "127.0.0.1", &node.port().to_string(), bus])?;
        }
        Ok(())
    }
}

/// Whose a slot is, as a node sees it.
fn owner(node: &Redis, slot: &str) -> anyhow::Result<String> {
    let (slot, nodes) = (slot.parse::<usize>()?, node.cli(&["CLUSTER", "NODES"])?);
    let has = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        // In brackets there are slots on their way.
        first.parse().is_ok_and(|first| slot >= first) && last.parse().is_ok_and(|last: usize| slot <= last)
    };
    let line = nodes.lines().find(|line| line.split(' ').skip(8).any(has)).context("nobody has the slot")?;
    Ok(line.split(' ').next().unwrap_or_default().to_owned())
}
