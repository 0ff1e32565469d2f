//! What happens to whom, and when: all of it follows from the seed.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;

use super::node::{Node, Stop};
use super::store::Store;

/// The longest time until the next fault begins, in ms.
const NEXT_MAX_MS: u64 = 800;

/// The longest time that one lasts, in ms.
const LASTS_MAX_MS: u64 = 2_500;

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// A node is killed, and started again.
    KillNode,
    /// A node's input ends: it gives back what it did not use, and another one takes its place.
    EndNode,
    /// A node stands still for some time.
    PauseNode,
    /// A node's clock is wrong for some time, by some ms or by an hour. After a step that a lease reaches beyond, its
    /// snowflakes stop until the time comes that their ids tell.
    StepClock,
    /// A node may open no files for some time.
    LimitFiles,
    /// The connections of a node to the store are cut.
    Cut,
    /// Nothing comes through between a node and the store for some time.
    BlackHole,
    /// The network forgets the connections of a node: whatever is sent is lost, and nobody is told.
    Forget,
    /// All that a node and the store say to each other comes late for some time.
    Delay,
    /// The store does what it is asked, and the answer is lost.
    LoseAnswer,
    /// The store is killed, and started again.
    KillStore,
    /// The store stands still for some time.
    PauseStore,
}

impl FaultKind {
    const OF_NODES: [Self; 5] = [Self::KillNode, Self::EndNode, Self::PauseNode, Self::StepClock, Self::LimitFiles];

    const OF_NETWORKS: [Self; 5] = [Self::Cut, Self::BlackHole, Self::Forget, Self::Delay, Self::LoseAnswer];

    const OF_STORES: [Self; 2] = [Self::KillStore, Self::PauseStore];

    /// Its name in a report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::KillNode => ":kill-node",
            Self::EndNode => ":end-node",
            Self::PauseNode => ":pause-node",
            Self::StepClock => ":step-clock",
            Self::LimitFiles => ":limit-files",
            Self::Cut => ":cut",
            Self::BlackHole => ":black-hole",
            Self::Forget => ":forget",
            Self::Delay => ":delay",
            Self::LoseAnswer => ":lose-answer",
            Self::KillStore => ":kill-store",
            Self::PauseStore => ":pause-store",
        }
    }
}

pub(super) struct Schedule {
    rng: Rng,
    nodes: usize,
    next: Duration,
    /// What lasts, and until when.
    lasting: Vec<(Duration, FaultKind, usize)>,
    counts: BTreeMap<FaultKind, u64>,
}

impl Schedule {
    pub(super) fn new(seed: u64, nodes: usize) -> Self {
        Self { rng: Rng::with_seed(seed), nodes, next: Duration::ZERO, lasting: Vec::new(), counts: BTreeMap::new() }
    }

    /// Ends what is over by now, and begins what is due.
    pub(super) fn act(&mut self, now: Duration, nodes: &mut [Node], store: &mut Store) -> anyhow::Result<()> {
        while let Some(over) = self.lasting.iter().position(|(until, ..)| *until <= now) {
            let (_, kind, node) = self.lasting.swap_remove(over);
            undo(kind, nodes.get_mut(node), store)?;
        }
        if now < self.next {
            return Ok(());
        }
        self.next = now + Duration::from_millis(self.rng.u64(50..NEXT_MAX_MS));
        let mut kinds = FaultKind::OF_NODES.to_vec();
        if store.is_server() {
            kinds.extend(FaultKind::OF_NETWORKS);
            kinds.extend(FaultKind::OF_STORES);
        }
        let Some(kind) = self.rng.choice(kinds) else { return Ok(()) };
        // The first node is never ended: what it keeps in memory is looked at.
        let ends = matches!(kind, FaultKind::KillNode | FaultKind::EndNode);
        let number = self.rng.usize(usize::from(ends)..self.nodes);
        let lasts = Duration::from_millis(self.rng.u64(1..LASTS_MAX_MS));
        let Some(node) = nodes.get_mut(number) else { return Ok(()) };
        *self.counts.entry(kind).or_default() += 1;
        match kind {
            FaultKind::KillNode => node.restart(Stop::Killed)?,
            // One that stands still would not end.
            FaultKind::EndNode => {
                node.mend()?;
                self.lasting.retain(|(_, _, lasting)| *lasting != number);
                node.restart(Stop::Gently)?;
            }
            FaultKind::PauseNode => node.pause()?,
            FaultKind::StepClock => {
                let far = *self.rng.choice([20, 500, 3_000, 9_000, 3_600_000].iter()).unwrap_or(&20);
                node.set_clock(if self.rng.bool() { far } else { -far })?;
            }
            FaultKind::LimitFiles => node.limit_files(true)?,
            FaultKind::KillStore => {
                self.lasting.retain(|(_, lasting, _)| *lasting != FaultKind::PauseStore);
                store.restart()?;
            }
            FaultKind::PauseStore => store.pause()?,
            FaultKind::Cut | FaultKind::BlackHole | FaultKind::Forget | FaultKind::Delay | FaultKind::LoseAnswer => {
                if let Some(proxy) = node.proxy() {
                    match kind {
                        FaultKind::Cut => proxy.cut(),
                        FaultKind::BlackHole => proxy.stall(true),
                        FaultKind::Forget => proxy.swallow(),
                        FaultKind::Delay => proxy.delay(Duration::from_millis(self.rng.u64(5..200))),
                        _ => proxy.lose_next_answer(),
                    }
                }
            }
        }
        if kind.lasts() {
            self.lasting.push((now + lasts, kind, number));
        }
        Ok(())
    }

    /// Ends all that lasts.
    pub(super) fn end(&mut self, nodes: &mut [Node], store: &mut Store) -> anyhow::Result<()> {
        for (_, kind, node) in self.lasting.drain(..) {
            undo(kind, nodes.get_mut(node), store)?;
        }
        Ok(())
    }

    pub(super) fn counts(&self) -> BTreeMap<FaultKind, u64> {
        self.counts.clone()
    }
}

impl FaultKind {
    /// Whether it goes on for some time.
    const fn lasts(self) -> bool {
        matches!(
            self,
            Self::PauseNode | Self::StepClock | Self::LimitFiles | Self::BlackHole | Self::Delay | Self::PauseStore
        )
    }
}

fn undo(kind: FaultKind, node: Option<&mut Node>, store: &Store) -> anyhow::Result<()> {
    let Some(node) = node else { return Ok(()) };
    match kind {
        FaultKind::PauseNode => node.resume(),
        FaultKind::StepClock => node.set_clock(0)?,
        FaultKind::LimitFiles => node.limit_files(false)?,
        FaultKind::PauseStore => store.resume()?,
        _ => {
            if let Some(proxy) = node.proxy() {
                proxy.stall(false);
                proxy.delay(Duration::ZERO);
            }
        }
    }
    Ok(())
}
