//! Real faults: nodes of the product as processes of their own on one real server, a network between them, and a seed
//! that says what happens to whom and when. Whatever a client received is kept and looked at by a checker that knows
//! nothing of the product.
//!
//! A node is `unalike maelstrom`: this is also what drives Maelstrom's workload `unique-ids` here, with partitions that
//! matter, between a node and its store. `cargo run --bin soak` runs it for as long as is wanted.

mod checker;
mod node;
mod schedule;
mod store;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use self::checker::Checker;
pub use self::checker::{Ids, Report};
use self::node::{Node, Stop};
pub use self::schedule::FaultKind;
use self::schedule::Schedule;
use self::store::Store;
pub use self::store::StoreKind;

/// After the last fault each node must give ids again within this time.
const RECOVERY_MAX: Duration = Duration::from_secs(30);

/// How often the schedule and the nodes are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What is run.
#[derive(Clone, Debug)]
pub struct Soak {
    /// On which store.
    pub store: StoreKind,
    /// What happens, and when.
    pub seed: u64,
    /// Nodes: every other one gives snowflakes, the others numbers of one tag.
    pub nodes: usize,
    /// For how long faults happen.
    pub duration: Duration,
    /// Gives the first node another store than the others, as one who takes an old copy for the store: the run must end
    /// badly.
    pub control: bool,
}

impl Soak {
    /// Runs it to its end.
    ///
    /// A node that is stuck, or does not recover, ends the run: the report says so beside all that was counted.
    ///
    /// # Errors
    /// When a server or a node does not start.
    pub fn run(&self) -> anyhow::Result<Report> {
        ensure!(self.nodes >= 2, "{} nodes: there must be 2 at least", self.nodes);
        let mut store = Store::start(self.store)?;
        let checker = Arc::new(Checker::default());
        let other = self.control.then(|| Store::start(self.store)).transpose()?;
        let mut nodes = Vec::new();
        for number in 0..self.nodes {
            let store = other.as_ref().filter(|_| number == 0).unwrap_or(&store);
            nodes.push(Node::start(number, store, Arc::clone(&checker))?);
        }
        for node in &mut nodes {
            node.wait_for_ids(RECOVERY_MAX)?;
        }
        checker.begin();
        let mut schedule = Schedule::new(self.seed, self.nodes);
        let began = Instant::now();
        let ended = self.go_through_faults(began, &mut schedule, &mut nodes, &mut store);
        let took = began.elapsed();
        checker.end();
        let memory: Vec<_> = nodes.iter().filter_map(Node::memory).collect();
        // Who is stuck does not end by itself.
        let stop = if ended.is_ok() { Stop::Gently } else { Stop::Killed };
        if let Err(error) = ended {
            checker.note(&format!("{error:#}"));
        }
        for node in nodes {
            if let Err(error) = node.end(stop) {
                checker.note(&format!("{error:#}"));
            }
        }
        let faults: BTreeMap<FaultKind, u64> = schedule.counts();
        Ok(checker.report(self.clone(), took, faults, memory))
    }

    fn go_through_faults(
        &self,
        began: Instant,
        schedule: &mut Schedule,
        nodes: &mut [Node],
        store: &mut Store,
    ) -> anyhow::Result<()> {
        while began.elapsed() < self.duration {
            schedule.act(began.elapsed(), nodes, store)?;
            for node in &mut *nodes {
                node.check()?;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        schedule.end(nodes, store)?;
        for node in &mut *nodes {
            node.mend()?;
        }
        for node in nodes {
            node.wait_for_ids(RECOVERY_MAX).with_context(|| format!("seed {}, after all faults", self.seed))?;
        }
        Ok(())
    }
}
