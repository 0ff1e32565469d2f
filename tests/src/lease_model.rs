//! The protocol of worker leases as a small world, and a search through every state that it can come to.
//!
//! The world has two or three processes, one or two workers, a store, a network, and a few milliseconds of time. Any of
//! these may happen next, in any order:
//!
//! - A process asks for a worker or for more time; it may be paused for ever at any point, since nothing ever has to
//!   happen. Its clock shows any time at any reading. It is killed and starts again, with or without the copy of its
//!   lease on its disk. It ends gracefully and gives its lease back.
//! - The network loses a message, delivers it after its sender gave up, or delivers it again.
//! - The store's clock shows any time at any request, except where the store may forget: then it is off from the true
//!   time by a bounded amount, since that is what leases in such a store rest on. An operator ends a lease.
//! - A durable store, where there is one, grants time to Redis, in which leases lie. An answer of the durable store is
//!   lost, and the time with it. Redis forgets everything; requests come to another Redis, and back.
//!
//! Two things must never happen: a stamp (worker, tick, sequence) that is handed out a second time, and a stamp outside
//! the lease that it was made under. Where time is granted, each process must get more of it in a few milliseconds from
//! every state, if all goes well from there on. Each [`Rule`] of the protocol can be taken out, and says which
//! counterexample it answers; the search then finds it, and [`Finding`] prints the shortest.
//!
//! The store's decisions are the product's own functions (`choose_worker`, [`NamespaceBinding`]); the holder is
//! [`holder::Holder`], a dozen lines that are compared with the product's.

#![expect(clippy::indexing_slicing, reason = "processes and workers are numbered by this file")]

mod granted_time;
pub mod holder;
mod search;

use std::collections::{HashMap, HashSet};
use std::fmt;

use unalike_storage::{
    Clocks, FieldOrder, Layout, LayoutFields, LeaseAcquire, LeaseLimits, NamespaceBinding, UsedWorker, choose_worker,
};

use self::granted_time::Standing;
use self::holder::{Held, Holder, Lease, Release, Stamp, byte};
pub use self::search::{Explored, Finding, search};

/// What the protocol demands, rule by rule. The example of each is what happens without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A store grants whole ticks: it rounds a lease's start up and its end down, to the layout's grid. Holders round
    /// inwards as well ([`Rule::HolderRounds`]), and either alone is enough.
    ///
    /// Without both: ticks of 2 ms, A holds [0, 3) and B [3, 6), and both stamp tick 1.
    StoreRounds,
    /// A holder stamps a tick only if it lies wholly inside its lease.
    HolderRounds,
    /// No stamp lies at or past the lease's end, however far the holder's clock is.
    ///
    /// Without it: A sleeps through the end of its lease, B gets the worker, A wakes up and stamps on.
    StampsEnd,
    /// Each acquire that succeeds has a grant id of its own.
    ///
    /// Without it, with a name of the holder's as the token: two requests of A's are granted, and B's lease lies
    /// between the two. A adopts the first and extends it; the store takes the second for it and answers with its end,
    /// past B's ticks.
    GrantIdsAreNew,
    /// An acquire is never answered with a lease that runs already, not even to the holder of the same name.
    ///
    /// Without it: A stamps, dies and starts again, and is given the same interval once more.
    AcquireIsNew,
    /// An extension must name the grant of the worker's newest lease.
    ///
    /// Without it, matched by worker alone: A sleeps, B is granted the worker, A wakes up and prolongs B's lease, and
    /// both stamp in it.
    ExtendNamesGrant,
    /// A release must name the grant of the worker's newest lease.
    ///
    /// Without it: a release is late and meets the worker's next lease, which then ends below what is stamped under it.
    ReleaseNamesGrant,
    /// A holder adopts an answer only if it is the first to the request that it waits for.
    ///
    /// Without it: A stamps, dies and starts again, and an old answer arrives once more.
    FirstAnswer,
    /// A lease begins at or after the greatest end ever recorded for its worker, whatever any clock says: expiry only
    /// decides which worker is offered.
    ///
    /// Without it: the store's clock jumps ahead, the worker looks free, and its next lease begins at the holder's
    /// present, in the middle of the old one.
    StartsAtEnd,
    /// An extension never lowers an end.
    ///
    /// Without it: the store's clock goes back, an extension of A's lease records an earlier end, and B begins there,
    /// below what A has stamped.
    ExtendNeverLowers,
    /// A holder is closed before its release is sent: it reserves nothing more.
    ///
    /// Without it: A gives its lease back and stamps once more.
    CloseBeforeRelease,
    /// A closed holder is never opened again, whatever became of its release.
    ///
    /// Without it: A hears nothing of its release, takes that for a failure and goes on.
    NoReopening,
    /// A release ends a lease no earlier than the end of the greatest tick that was stamped, whatever the clock says.
    ///
    /// Without it, with the clock's reading as the end: A's clock goes back, and B begins below what A stamped.
    ReleaseAboveStamps,
    /// What counts for a release is what was reserved, not what was handed out.
    ///
    /// Without it: A's host has a run of a tick in hand and closes; another thread, which came before, hands an id of
    /// that run out while B stamps the same tick.
    ReservedCounts,
    /// An operator's release forbids extensions and leaves the end where it is.
    ///
    /// Without it: the operator ends A's lease now, B begins there, and A, which heard nothing, stamps up to its end.
    OperatorLeavesEnd,
    /// A process that starts from its local copy begins at the copy's bound.
    ///
    /// Without it: A stamps, dies, and starts from the beginning of its lease again.
    StartAtBound,
    /// The local copy's bound is raised durably before anything above it is stamped.
    ///
    /// Without it: A stamps and dies before its disk knows, and starts at the old bound.
    BoundBeforeStamps,
    /// The local copy is made void durably before the release is sent.
    ///
    /// Without it: A's release is done at the store, A dies before its disk knows, starts from the copy and stamps
    /// where B begins.
    VoidBeforeRelease,
    /// One process at a time uses a local copy: it holds a lock for as long as it lives.
    ///
    /// Without it: B starts on A's disk, and both stamp above the same bound.
    OneProcessPerCopy,
    /// What a store still has after it may have forgotten is void, and is neither extended nor released.
    ///
    /// Without it: a replica takes over that lacks B's lease and still has A's on the same worker; A extends it, into
    /// what B stamps.
    ForgottenIsVoid,
    /// After it may have forgotten, a store grants nothing for a while.
    ///
    /// Without it: A's lease is forgotten, and B gets the same worker now.
    ForgottenWaits,
    /// It waits for as long as the longest lease may have reached.
    ///
    /// Without it, with the bound on clocks alone: A's lease is forgotten and reaches further.
    WaitCoversHorizon,
    /// It waits for as long, on top, as two servers' clocks may be apart.
    ///
    /// Without it: the server that granted A's lease was ahead of the one that took over.
    WaitCoversClocks,
    /// No lease reaches further than the namespace's longest horizon, by the store's clock, whatever is asked for.
    ///
    /// Without it: A's lease is forgotten and outlives the wait.
    HorizonIsBounded,
    /// A tick that was entered is never entered again under another start offset: a rebuilt generator begins at the
    /// next tick.
    ///
    /// Without it: A used one id of a tick from offset 1 on, is rebuilt, goes on with the second id of the tick under
    /// offset 0, and that is the same.
    SpreadEntersOnce,
    /// No lease in Redis ends beyond the time that the durable store granted to this incarnation.
    ///
    /// Without it: A's lease reaches further, Redis forgets it, and what is granted next begins inside it.
    EndsAtBound,
    /// What the durable store grants to an incarnation begins behind all that it ever granted, and leases begin there.
    ///
    /// Without it: Redis forgets A's lease, or begins anew since time was skipped, and B is granted the same worker at
    /// the same time.
    BeginsBehindGranted,
    /// Only time that begins at the bound moves it: what was skipped may be another incarnation's.
    ///
    /// Without it: of two Redis that run at once, the second is granted time, and A stamps in it. The bound of the
    /// first then moves past that, and so may B's lease.
    TimeJoins,
    /// A holder whose lease has ended, and cannot be extended, is told that it is lost, and gets one anew.
    ///
    /// Without it: an answer of the durable store is lost, so that more time does not join the bound; A's extension is
    /// refused for ever.
    LossIsTold,
}

/// The rules that are taken out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Without(u64);

impl Without {
    /// All rules hold but these.
    #[must_use]
    pub fn rules(rules: &[Rule]) -> Self {
        Self(rules.iter().fold(0, |taken, &rule| taken | (1 << rule as u32)))
    }

    /// Whether this one is taken out.
    #[must_use]
    pub fn has(self, rule: Rule) -> bool {
        self.0 & (1 << rule as u32) != 0
    }
}

/// What a scene has beside processes, a network and a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// An operator who ends leases.
    Operator,
    /// Hosts that reserve a run first and hand it out later.
    Runs,
    /// A start offset per generator, and generators that are rebuilt over the lease in hand.
    Spread,
    /// A local copy of the lease on each process's own disk.
    LocalCopy,
    /// One disk, with a local copy, for all processes: only one of them runs at first.
    SharedDisk,
    /// A store that forgets: its server dies, and another one takes over with an older state.
    Forgetting,
    /// Redis above a durable store that grants it time: it forgets, and another one runs beside it.
    GrantedTime,
}

/// How large the world is.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// What it has beside the usual.
    pub feature: Feature,
    /// How many processes there are: 1 to 3.
    pub processes: u8,
    /// How many worker ids: 1 or 2.
    pub workers: u8,
    /// The tick, in milliseconds.
    pub tick_ms: u8,
    /// How many ids a tick has: 1 or 2.
    pub sequences: u8,
    /// Clocks show 1 up to this, in milliseconds.
    pub clock_max_ms: u8,
    /// How far ahead leases are asked for, in milliseconds.
    pub horizon_ms: u8,
    /// The namespace's longest horizon, in milliseconds.
    pub max_horizon_ms: u8,
    /// How many leases are granted at most.
    pub grants_max: u8,
}

/// The bound on the distance of two servers' clocks, where a store forgets, in milliseconds.
const CLOCK_BOUND_MS: u8 = 1;
const WORKERS_MAX: usize = 2;
const PROCESSES_MAX: usize = 3;
/// Names of the processes.
const NAMES: [char; PROCESSES_MAX] = ['A', 'B', 'C'];

/// A worker's newest lease as the store keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Record {
    lease: Lease,
    is_final: bool,
    /// The process's number, where that matters.
    holder: u8,
}

type Records = [Option<Record>; WORKERS_MAX];

/// A lease in a process's local file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Piece {
    lease: Lease,
    /// Stamps stay below it.
    bound_ms: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Process {
    is_up: bool,
    holder: Holder,
    /// Reserved, and not handed out yet.
    run: Option<Stamp>,
    /// The end of the greatest tick that was handed out, where that matters.
    handed_out_ms: u8,
}

/// On its way between a process and the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Body {
    Acquire,
    Extend { worker: u8, grant: u8 },
    Release(Release),
    Acquired(Lease),
    Extended(Lease),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Message {
    process: u8,
    /// It belongs to the request that the process waits for.
    is_awaited: bool,
    body: Body,
}

/// One state of everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// The true time and how far the store's clock is ahead of it, where that matters.
    true_ms: u8,
    ahead_ms: u8,
    /// The store: its quarantine ends here; how many leases it granted; the newest lease of each worker; and what a
    /// replica has that lacks the last commit, or another Redis beside it, where that matters.
    floor_ms: u8,
    grants: u8,
    records: Records,
    replica: Records,
    /// The end of all time that a durable store granted, the end of this store's part of it (0 where it has none), and
    /// the floor and the bound of the Redis beside it, where that matters.
    granted_until_ms: u8,
    bound_ms: u8,
    beside_ms: (u8, u8),
    processes: [Process; PROCESSES_MAX],
    disks: [Option<Piece>; PROCESSES_MAX],
    /// In order, each once: what is on its way may arrive any number of times.
    messages: Vec<Message>,
    /// One bit per stamp that was handed out.
    used: u64,
}

/// What must never happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A stamp was handed out a second time.
    Twice(Stamp),
    /// A stamp was made that does not lie wholly inside its lease.
    Outside(Stamp),
    /// The process of this number gets no more time, though all goes well from here on.
    Starved(u8),
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "processes by their numbers, leases, workers, and times in milliseconds")]
pub enum Step {
    /// A process sends a request.
    Ask { process: u8, extend: Option<Lease> },
    /// A process no longer waits for its request.
    GiveUp { process: u8 },
    /// The store grants a lease.
    Grant { process: u8, lease: Lease, store_ms: u8, holder_ms: u8 },
    /// The store answers with the lease that runs.
    GrantAgain { process: u8, lease: Lease },
    /// The store prolongs a lease.
    Prolong { process: u8, lease: Lease, store_ms: u8 },
    /// The store ends a lease.
    End { process: u8, lease: Lease },
    /// An operator ends a lease.
    Order { worker: u8, valid_until_ms: u8 },
    /// An answer arrives.
    Adopt { process: u8, lease: Lease },
    /// A process makes a stamp.
    Stamp { process: u8, stamp: Stamp, clock_ms: u8, is_handed_out: bool },
    /// A process hands a reserved stamp out.
    HandOut { process: u8, stamp: Stamp },
    /// A process ends gracefully.
    Close { process: u8, end_ms: u8 },
    /// A process goes on after its end.
    Reopen { process: u8 },
    /// A process is killed.
    Kill { process: u8 },
    /// A process is killed, if it runs, and starts.
    Start { process: u8, bound_ms: Option<u8> },
    /// A generator is rebuilt.
    Rebuild { process: u8, offset: u8 },
    /// The bound of a local copy is raised.
    Raise { process: u8, bound_ms: u8 },
    /// The disk learns of a bound.
    Flush { process: u8, bound_ms: u8 },
    /// A millisecond passes.
    Wait { true_ms: u8 },
    /// Another server takes over.
    TakeOver { store_ms: u8, floor_ms: u8 },
    /// The durable store grants time, and Redis has it.
    GrantTime { from_ms: u8, until_ms: u8 },
    /// The durable store grants time, and nobody hears of it.
    SkipTime { until_ms: u8 },
    /// Redis forgets everything.
    Forget,
    /// Requests come to the other Redis.
    Turn,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |process: u8| NAMES[usize::from(process)];
        let lease = |lease: Lease| {
            let Lease { worker, grant, not_before_ms, valid_until_ms } = lease;
            format!("worker {worker} over [{not_before_ms}, {valid_until_ms}) ms, grant {grant}")
        };
        match *self {
            Self::Ask { process, extend: None } => write!(f, "{} asks for a worker", name(process)),
            Self::Ask { process, extend: Some(held) } => {
                write!(f, "{} asks for more of {}", name(process), lease(held))
            }
            Self::GiveUp { process } => write!(f, "{} waits no longer for its answer", name(process)),
            Self::Grant { process, lease: granted, store_ms, holder_ms } => {
                let clocks = format!("store's clock {store_ms} ms, holder's {holder_ms} ms");
                write!(f, "the store grants {} {} ({clocks})", name(process), lease(granted))
            }
            Self::GrantAgain { process, lease: running } => {
                write!(f, "the store answers {} with what runs: {}", name(process), lease(running))
            }
            Self::Prolong { process, lease: prolonged, store_ms } => {
                write!(f, "the store prolongs for {} {} (store's clock {store_ms} ms)", name(process), lease(prolonged))
            }
            Self::End { process, lease: ended } => {
                write!(f, "the store, by a release of {}, ends {}", name(process), lease(ended))
            }
            Self::Order { worker, valid_until_ms } => {
                write!(f, "an operator ends the lease of worker {worker}, recorded end {valid_until_ms} ms")
            }
            Self::Adopt { process, lease: adopted } => write!(f, "{} takes in {}", name(process), lease(adopted)),
            Self::Stamp { process, stamp, clock_ms, is_handed_out } => {
                let does = if is_handed_out { "hands out" } else { "reserves" };
                write!(f, "{} {does} {stamp} (its clock {clock_ms} ms)", name(process))
            }
            Self::HandOut { process, stamp } => write!(f, "{} hands out {stamp}, which it had reserved", name(process)),
            Self::Close { process, end_ms } => write!(f, "{} gives its lease back from {end_ms} ms on", name(process)),
            Self::Reopen { process } => write!(f, "{} goes on after its end", name(process)),
            Self::Kill { process } => write!(f, "{} is killed", name(process)),
            Self::Start { process, bound_ms: None } => write!(f, "{} starts again, with nothing", name(process)),
            Self::Start { process, bound_ms: Some(bound_ms) } => {
                write!(f, "{} starts from its local copy, bound {bound_ms} ms", name(process))
            }
            Self::Rebuild { process, offset } => {
                write!(f, "{}'s generator is rebuilt, with start offset {offset}", name(process))
            }
            Self::Raise { process, bound_ms } => write!(f, "{} raises its bound to {bound_ms} ms", name(process)),
            Self::Flush { process, bound_ms } => write!(f, "{}'s disk has the bound {bound_ms} ms", name(process)),
            Self::Wait { true_ms } => write!(f, "it is {true_ms} ms"),
            Self::TakeOver { store_ms, floor_ms } => {
                write!(f, "another server takes over at {store_ms} ms of its clock, and grants from {floor_ms} ms on")
            }
            Self::GrantTime { from_ms, until_ms } => {
                write!(f, "the durable store grants time, and Redis has [{from_ms}, {until_ms}) ms")
            }
            Self::SkipTime { until_ms } => {
                write!(f, "the durable store grants time up to {until_ms} ms, and its answer is lost")
            }
            Self::Forget => write!(f, "Redis starts again, with nothing"),
            Self::Turn => write!(f, "requests come to the other Redis"),
        }
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "(worker {}, tick {}, sequence {})", self.worker, self.tick, self.sequence)
    }
}

/// A lease that the store may grant, and at which clocks.
#[derive(Clone, Copy, Debug)]
struct Offer {
    worker: u8,
    start_ms: u8,
    end_ms: u8,
    store_ms: u8,
    holder_ms: u8,
}

/// The recorded end of each worker, the store's floor and bound, and its clock where that may not show any time.
type OfferKey = ([Option<u8>; WORKERS_MAX], u8, u8, Option<u8>);

/// A scene with its rules: what may happen in it.
pub struct Model {
    scene: Scene,
    without: Without,
    layout: Layout,
    binding: NamespaceBinding,
    /// Requests for no worker in particular, and for each.
    requests: Vec<LeaseAcquire>,
    /// What may be granted.
    offers: HashMap<OfferKey, Vec<Offer>>,
    /// Where a holder is known to get more time.
    served: HashSet<Standing>,
}

type Visit<'v> = &'v mut dyn FnMut(Step, World, Option<Fault>);

impl Model {
    /// This scene, without these rules.
    #[must_use]
    pub fn new(scene: Scene, without: Without) -> Self {
        let layout = layout(scene.workers, scene.tick_ms, scene.sequences);
        // A grid of 1 ms rounds nothing.
        let store_tick_ms = if without.has(Rule::StoreRounds) { 1 } else { scene.tick_ms };
        let max_horizon_ms = if without.has(Rule::HorizonIsBounded) { u8::MAX } else { scene.max_horizon_ms };
        let limits = LeaseLimits { max_horizon_ms: max_horizon_ms.into(), ..LeaseLimits::default() };
        let binding = NamespaceBinding::new(self::layout(scene.workers, store_tick_ms, scene.sequences), limits);
        let request = |preferred_worker| LeaseAcquire {
            namespace: "model".to_owned(),
            layout,
            holder: String::new(),
            preferred_worker,
            now_ms: 0,
            horizon_ms: scene.horizon_ms.into(),
        };
        let requests = (0..scene.workers).map(|worker| request(Some(worker.into())));
        let requests = std::iter::once(request(None)).chain(requests).collect();
        let (binding, offers, served) = (binding.unwrap(), HashMap::new(), HashSet::new());
        Self { scene, without, layout, binding, requests, offers, served }
    }

    /// Where it begins: processes without leases, a store that granted nothing. Where the store's clock may be off, it
    /// is off by any amount.
    #[must_use]
    pub fn beginnings(&self) -> Vec<World> {
        let aheads_ms = if self.scene.feature == Feature::Forgetting { 0..=CLOCK_BOUND_MS } else { 0..=0 };
        aheads_ms.map(|ahead_ms| World { ahead_ms, ..self.beginning() }).collect()
    }

    fn beginning(&self) -> World {
        let mut processes = [Process::default(); PROCESSES_MAX];
        for (number, process) in processes.iter_mut().enumerate().take(self.scene.processes.into()) {
            process.is_up = number == 0 || self.scene.feature != Feature::SharedDisk;
            process.holder = Holder::new(0, 0);
        }
        World {
            true_ms: 1,
            ahead_ms: 0,
            floor_ms: 0,
            grants: 0,
            records: [None; WORKERS_MAX],
            replica: [None; WORKERS_MAX],
            // Before that is no tick to stamp.
            granted_until_ms: u8::from(self.scene.feature == Feature::GrantedTime),
            bound_ms: 0,
            beside_ms: (0, 0),
            processes,
            disks: [None; PROCESSES_MAX],
            messages: Vec::new(),
            used: 0,
        }
    }

    /// Everything that may happen next.
    pub fn steps(&mut self, world: &World, visit: Visit<'_>) {
        for process in 0..self.scene.processes {
            self.process_steps(world, process, visit);
        }
        for message in &world.messages {
            let awaited_answer = message.is_awaited || self.without.has(Rule::FirstAnswer);
            match message.body {
                Body::Acquire => self.granted(world, message, visit),
                Body::Extend { worker, grant } => self.prolonged(world, message, worker, grant, visit),
                Body::Release(release) => self.ended(world, message, release, visit),
                Body::Acquired(lease) | Body::Extended(lease) if awaited_answer => {
                    self.adopted(world, message, lease, visit);
                }
                // Holders drop what they do not wait for.
                Body::Acquired(_) | Body::Extended(_) => {}
            }
        }
        match self.scene.feature {
            Feature::Operator => self.orders(world, visit),
            Feature::Forgetting => self.time_and_take_over(world, visit),
            Feature::GrantedTime => self.time_and_incarnations(world, visit),
            _ => {}
        }
    }

    fn process_steps(&self, world: &World, process: u8, visit: Visit<'_>) {
        let Process { is_up, holder, run, .. } = world.processes[usize::from(process)];
        self.start(world, process, visit);
        if !is_up {
            return;
        }
        if let Some(stamp) = run {
            let mut next = world.clone();
            next.process(process).run = None;
            let fault = next.hand_out(self, process, stamp);
            visit(Step::HandOut { process, stamp }, next, fault);
        }
        if holder.is_closed {
            if self.without.has(Rule::NoReopening) && holder.held.is_some() {
                let mut next = world.clone();
                next.process(process).holder.is_closed = false;
                visit(Step::Reopen { process }, next, None);
            }
            return;
        }
        let waits = world.messages.iter().any(|message| message.process == process && message.is_awaited);
        if waits {
            let mut next = world.clone();
            next.give_up(self, process);
            visit(Step::GiveUp { process }, next, None);
        } else {
            self.ask(world, process, visit);
        }
        if let Some(held) = holder.held {
            self.stamp(world, process, visit);
            self.close(world, process, visit);
            self.rebuild(world, process, visit);
            if self.has_disk() {
                self.raise(world, process, held, visit);
            }
        }
    }

    fn ask(&self, world: &World, process: u8, visit: Visit<'_>) {
        let mut send = |extend: Option<Lease>, body| {
            let mut next = world.clone();
            next.send(Message { process, is_awaited: true, body });
            visit(Step::Ask { process, extend }, next, None);
        };
        if world.grants < self.scene.grants_max {
            send(None, Body::Acquire);
        }
        if let Some(held) = world.processes[usize::from(process)].holder.held {
            let Lease { worker, grant, .. } = held.lease;
            send(Some(held.lease), Body::Extend { worker, grant });
        }
    }

    /// A stamp at every reading of the process's clock that makes a difference.
    fn stamp(&self, world: &World, process: u8, visit: Visit<'_>) {
        let mut last = None;
        for clock_ms in 1..=self.scene.clock_max_ms + self.scene.horizon_ms {
            let mut holder = world.processes[usize::from(process)].holder;
            let stamp = holder.reserve(&self.layout, self.without, clock_ms);
            let Some(stamp) = stamp.filter(|&stamp| last != Some(stamp)) else { continue };
            last = Some(stamp);
            let held = holder.held.unwrap();
            let mut next = world.clone();
            next.process(process).holder = holder;
            let is_handed_out = self.scene.feature != Feature::Runs;
            let mut fault = self.is_outside(&held.lease, stamp).then_some(Fault::Outside(stamp));
            if is_handed_out {
                fault = next.hand_out(self, process, stamp).or(fault);
            } else {
                next.process(process).run = Some(stamp);
            }
            visit(Step::Stamp { process, stamp, clock_ms, is_handed_out }, next, fault);
        }
    }

    fn is_outside(&self, lease: &Lease, stamp: Stamp) -> bool {
        let start_ms = byte(self.layout.tick_start_ms(stamp.tick.into()));
        start_ms < lease.not_before_ms || start_ms + self.scene.tick_ms > lease.valid_until_ms
    }

    fn close(&self, world: &World, process: u8, visit: Visit<'_>) {
        let holder = world.processes[usize::from(process)].holder;
        let mut release = holder.release(&self.layout).unwrap();
        if self.without.has(Rule::ReservedCounts) {
            release.end_ms = world.processes[usize::from(process)].handed_out_ms;
        }
        // Without the rule, any reading of a clock.
        let ends_ms = if self.without.has(Rule::ReleaseAboveStamps) {
            1..=release.end_ms
        } else {
            release.end_ms..=release.end_ms
        };
        for end_ms in ends_ms {
            let mut next = world.clone();
            next.give_up(self, process);
            if !self.without.has(Rule::CloseBeforeRelease) {
                let holder = &mut next.process(process).holder;
                holder.is_closed = true;
                // Nothing reads it any more.
                holder.held = holder.held.filter(|_| self.without.has(Rule::NoReopening));
            }
            if let Some(disk) = self.disk(process).filter(|_| !self.without.has(Rule::VoidBeforeRelease)) {
                next.disks[disk] = None;
            }
            next.send(Message { process, is_awaited: false, body: Body::Release(Release { end_ms, ..release }) });
            visit(Step::Close { process, end_ms }, next, None);
        }
    }

    /// A process that is killed, if it runs, and starts.
    fn start(&self, world: &World, process: u8, visit: Visit<'_>) {
        let is_up = world.processes[usize::from(process)].is_up;
        if self.scene.feature == Feature::SharedDisk && is_up {
            let mut next = world.clone();
            next.stop(self, process);
            next.process(process).is_up = false;
            return visit(Step::Kill { process }, next, None);
        }
        let others = world.processes.iter().enumerate().filter(|&(other, _)| other != usize::from(process));
        let is_locked = self.scene.feature == Feature::SharedDisk && others.into_iter().any(|(_, other)| other.is_up);
        if is_locked && !self.without.has(Rule::OneProcessPerCopy) {
            return;
        }
        let mut next = world.clone();
        next.stop(self, process);
        *next.process(process) = Process { is_up: true, holder: Holder::new(0, 0), ..Process::default() };
        if let Some(copy) = self.disk(process).and_then(|disk| world.disks[disk]) {
            let mut next = next.clone();
            let begin_ms = if self.without.has(Rule::StartAtBound) { copy.lease.not_before_ms } else { copy.bound_ms };
            let lease = Lease { not_before_ms: begin_ms, ..copy.lease };
            if begin_ms < lease.valid_until_ms {
                let bound_ms = copy.bound_ms;
                next.process(process).holder.held = Some(Held { lease, bound_ms, current: None });
                visit(Step::Start { process, bound_ms: Some(bound_ms) }, next, None);
            }
        }
        visit(Step::Start { process, bound_ms: None }, next, None);
    }

    /// Another generator in the same process, over the lease in hand.
    fn rebuild(&self, world: &World, process: u8, visit: Visit<'_>) {
        if self.scene.feature != Feature::Spread {
            return;
        }
        for offset in 0..self.scene.sequences {
            let mut next = world.clone();
            let holder = &mut next.process(process).holder;
            holder.offset = offset;
            if !self.without.has(Rule::SpreadEntersOnce)
                && let Some(held) = holder.held.as_mut()
            {
                // The lease's end stays below the tick that would come next, so that a release ends where it should.
                held.current = held.current.map(|(tick, _)| (tick, self.scene.sequences));
            }
            visit(Step::Rebuild { process, offset }, next, None);
        }
    }

    fn raise(&self, world: &World, process: u8, held: Held, visit: Visit<'_>) {
        let disk = self.disk(process).unwrap();
        for bound_ms in held.bound_ms + 1..=held.lease.valid_until_ms {
            let mut next = world.clone();
            if let Some(held) = next.process(process).holder.held.as_mut() {
                held.bound_ms = bound_ms;
            }
            if !self.without.has(Rule::BoundBeforeStamps) {
                next.disks[disk] = Some(Piece { lease: held.lease, bound_ms });
            }
            visit(Step::Raise { process, bound_ms }, next, None);
        }
        let written = world.disks[disk].map(|copy| copy.bound_ms);
        if self.without.has(Rule::BoundBeforeStamps) && written != Some(held.bound_ms) {
            let mut next = world.clone();
            next.disks[disk] = Some(Piece { lease: held.lease, bound_ms: held.bound_ms });
            visit(Step::Flush { process, bound_ms: held.bound_ms }, next, None);
        }
    }

    /// Every lease that the store may grant now.
    fn granted(&mut self, world: &World, message: &Message, visit: Visit<'_>) {
        let Message { process, is_awaited, .. } = *message;
        if self.without.has(Rule::AcquireIsNew) {
            let running = world.records.iter().flatten().find(|record| record.holder == process && !record.is_final);
            if let Some(&Record { lease, .. }) = running {
                let mut next = world.less(message);
                next.answer(self, process, is_awaited, Body::Acquired(lease));
                visit(Step::GrantAgain { process, lease }, next, None);
            }
        }
        if world.grants == self.scene.grants_max {
            return;
        }
        let grant = if self.without.has(Rule::GrantIdsAreNew) { process + 1 } else { world.grants + 1 };
        let ends_ms = world.records.map(|record| record.map(|record| record.lease.valid_until_ms));
        let fixed_ms = (self.scene.feature == Feature::Forgetting).then_some(world.true_ms + world.ahead_ms);
        let holder = if self.without.has(Rule::AcquireIsNew) { process } else { 0 };
        let key = (ends_ms, world.floor_ms, world.bound_ms, fixed_ms);
        if !self.offers.contains_key(&key) {
            let offers = self.offers(key);
            self.offers.insert(key, offers);
        }
        for &Offer { worker, start_ms, end_ms, store_ms, holder_ms } in &self.offers[&key] {
            let lease = Lease { worker, grant, not_before_ms: start_ms, valid_until_ms: end_ms };
            let mut next = world.less(message);
            next.record(self, Record { lease, is_final: false, holder });
            next.grants += 1;
            next.answer(self, process, is_awaited, Body::Acquired(lease));
            visit(Step::Grant { process, lease, store_ms, holder_ms }, next, None);
        }
    }

    /// What the product's rules offer where these ends are recorded, at all clocks.
    fn offers(&self, (ends_ms, floor_ms, bound_ms, fixed_ms): OfferKey) -> Vec<Offer> {
        let binding = NamespaceBinding { floor_ms: floor_ms.into(), ..self.binding };
        let used = || {
            let ends_ms = ends_ms.into_iter().zip(0_u32..);
            ends_ms.filter_map(|(end_ms, worker)| Some((UsedWorker { worker, end_ms: end_ms?.into() }, "")))
        };
        let mut offers: Vec<Offer> = Vec::new();
        for store_ms in fixed_ms.map_or(1..=self.scene.clock_max_ms, |fixed_ms| fixed_ms..=fixed_ms) {
            let reach_ms = self.reach_ms(bound_ms, store_ms);
            if reach_ms == 0 || binding.check_quarantine("model", store_ms.into()).is_err() {
                continue;
            }
            for request in &self.requests {
                let Ok(chosen) = choose_worker(request, u64::from(store_ms), 0, used()) else { continue };
                let recorded_end_ms = if self.without.has(Rule::StartsAtEnd) { 0 } else { chosen.end_ms };
                for holder_ms in 1..=self.scene.clock_max_ms {
                    let clocks = Clocks { holder_ms: holder_ms.into(), store_ms: store_ms.into() };
                    let Ok(interval) = binding.grant(recorded_end_ms, clocks, reach_ms) else { continue };
                    let worker = byte(chosen.worker.into());
                    let (start_ms, end_ms) = (byte(interval.start), byte(interval.end));
                    let same =
                        |offer: &Offer| (offer.worker, offer.start_ms, offer.end_ms) == (worker, start_ms, end_ms);
                    if !offers.iter().any(same) {
                        offers.push(Offer { worker, start_ms, end_ms, store_ms, holder_ms });
                    }
                }
            }
        }
        offers
    }

    /// As [`unalike_storage::LeaseStore::extend`].
    fn prolonged(&self, world: &World, message: &Message, worker: u8, grant: u8, visit: Visit<'_>) {
        let Some(record) = world.records[usize::from(worker)] else { return };
        let is_named = record.lease.grant == grant || self.without.has(Rule::ExtendNamesGrant);
        if !is_named || record.is_final {
            return;
        }
        let recorded_ms = if self.without.has(Rule::ExtendNeverLowers) { 0 } else { record.lease.valid_until_ms };
        let Message { process, is_awaited, .. } = *message;
        let mut last_ms = None;
        for store_ms in self.store_clocks(world) {
            let reach_ms = self.reach_ms(world.bound_ms, store_ms);
            let end_ms = self.binding.extended_end_ms(recorded_ms.into(), store_ms.into(), reach_ms);
            if reach_ms == 0 || last_ms == Some(end_ms) {
                continue;
            }
            last_ms = Some(end_ms);
            let lease = Lease { valid_until_ms: byte(end_ms), ..record.lease };
            let mut next = world.less(message);
            next.record(self, Record { lease, ..record });
            next.answer(self, process, is_awaited, Body::Extended(Lease { grant, ..lease }));
            visit(Step::Prolong { process, lease, store_ms }, next, None);
        }
    }

    /// As [`unalike_storage::LeaseStore::release`]. It may be sent again, so it stays on its way.
    fn ended(&self, world: &World, message: &Message, release: Release, visit: Visit<'_>) {
        let Some(record) = world.records[usize::from(release.worker)] else { return };
        let is_named = record.lease.grant == release.grant || self.without.has(Rule::ReleaseNamesGrant);
        let end_ms = self.binding.released_end_ms(&record.lease.real(), release.end_ms.into());
        let Some(end_ms) = end_ms.filter(|_| is_named && !record.is_final) else { return };
        let mut next = world.clone();
        let lease = Lease { valid_until_ms: byte(end_ms), ..record.lease };
        next.record(self, Record { lease, is_final: true, ..record });
        visit(Step::End { process: message.process, lease }, next, None);
    }

    fn adopted(&self, world: &World, message: &Message, lease: Lease, visit: Visit<'_>) {
        let process = message.process;
        let mut next = world.less(message);
        if self.without.has(Rule::FirstAnswer) {
            // It may arrive once more.
            next.send(Message { is_awaited: false, ..*message });
        }
        let holder = &mut next.process(process).holder;
        if holder.is_closed {
            return;
        }
        match message.body {
            Body::Acquired(_) => {
                // With a local copy nothing may be stamped before the copy's bound is raised.
                let bound_ms = if self.has_disk() { lease.not_before_ms } else { lease.valid_until_ms };
                if holder.adopt(&self.layout, lease, bound_ms)
                    && let Some(disk) = self.disk(process)
                {
                    next.disks[disk] = Some(Piece { lease, bound_ms });
                }
            }
            _ => {
                if holder.extend(lease)
                    && !self.has_disk()
                    && let Some(held) = holder.held.as_mut()
                {
                    held.bound_ms = held.lease.valid_until_ms;
                }
            }
        }
        visit(Step::Adopt { process, lease }, next, None);
    }

    fn orders(&self, world: &World, visit: Visit<'_>) {
        for (record, worker) in world.records.iter().zip(0..) {
            let Some(record) = record.filter(|record| !record.is_final) else { continue };
            let recorded_ms = record.lease.valid_until_ms;
            let earliest_ms = if self.without.has(Rule::OperatorLeavesEnd) { 1 } else { recorded_ms };
            for valid_until_ms in earliest_ms..=recorded_ms {
                let mut next = world.clone();
                let lease = Lease { valid_until_ms, ..record.lease };
                next.record(self, Record { lease, is_final: true, ..record });
                visit(Step::Order { worker, valid_until_ms }, next, None);
            }
        }
    }

    fn time_and_take_over(&self, world: &World, visit: Visit<'_>) {
        if world.true_ms < self.scene.clock_max_ms {
            let mut next = world.clone();
            next.true_ms += 1;
            visit(Step::Wait { true_ms: next.true_ms }, next, None);
        }
        for ahead_ms in 0..=CLOCK_BOUND_MS {
            let mut next = world.clone();
            next.ahead_ms = ahead_ms;
            let store_ms = world.true_ms + ahead_ms;
            let horizon_ms = if self.without.has(Rule::WaitCoversHorizon) { 0 } else { self.scene.max_horizon_ms };
            let bound_ms = if self.without.has(Rule::WaitCoversClocks) { 0 } else { CLOCK_BOUND_MS };
            let waits = !self.without.has(Rule::ForgottenWaits);
            next.floor_ms = if waits { store_ms + horizon_ms + bound_ms } else { 0 };
            let is_void = !self.without.has(Rule::ForgottenIsVoid);
            next.records = if is_void { [None; WORKERS_MAX] } else { world.replica };
            next.replica = [None; WORKERS_MAX];
            visit(Step::TakeOver { store_ms, floor_ms: next.floor_ms }, next, None);
        }
    }

    /// The times that the store's clock may show.
    fn store_clocks(&self, world: &World) -> std::ops::RangeInclusive<u8> {
        match self.scene.feature {
            Feature::Forgetting => world.true_ms + world.ahead_ms..=world.true_ms + world.ahead_ms,
            _ => 1..=self.scene.clock_max_ms,
        }
    }

    fn has_disk(&self) -> bool {
        matches!(self.scene.feature, Feature::LocalCopy | Feature::SharedDisk)
    }

    /// Which disk a process has.
    fn disk(&self, process: u8) -> Option<usize> {
        match self.scene.feature {
            Feature::LocalCopy => Some(process.into()),
            Feature::SharedDisk => Some(0),
            _ => None,
        }
    }
}

impl World {
    fn process(&mut self, process: u8) -> &mut Process {
        &mut self.processes[usize::from(process)]
    }

    fn send(&mut self, message: Message) {
        if let Err(at) = self.messages.binary_search(&message) {
            self.messages.insert(at, message);
        }
    }

    /// A copy without this message.
    fn less(&self, message: &Message) -> Self {
        let mut next = self.clone();
        next.messages.retain(|other| other != message);
        next
    }

    fn answer(&mut self, model: &Model, process: u8, is_awaited: bool, body: Body) {
        if is_awaited || model.without.has(Rule::FirstAnswer) {
            self.send(Message { process, is_awaited, body });
        }
    }

    /// Forgets messages that can do nothing any more: they name a lease that is over, and grant ids do not come back.
    fn tidy(&mut self, model: &Model) {
        if ![Rule::GrantIdsAreNew, Rule::ExtendNamesGrant, Rule::ReleaseNamesGrant, Rule::ForgottenIsVoid]
            .iter()
            .any(|&rule| model.without.has(rule))
        {
            let known = [self.records, self.replica];
            let runs = |worker: u8, grant| {
                let mut records = known.iter().filter_map(|records| records[usize::from(worker)]);
                records.any(|record| record.lease.grant == grant && !record.is_final)
            };
            self.messages.retain(|message| match message.body {
                Body::Extend { worker, grant } => message.is_awaited || runs(worker, grant),
                Body::Release(Release { worker, grant, .. }) => runs(worker, grant),
                Body::Acquire => message.is_awaited || self.grants < model.scene.grants_max,
                Body::Acquired(_) | Body::Extended(_) => true,
            });
        }
    }

    /// The process waits for nothing any more: what is on its way is late.
    fn give_up(&mut self, model: &Model, process: u8) {
        let (late, mut messages): (Vec<_>, Vec<_>) =
            self.messages.iter().partition(|message| message.process == process && message.is_awaited);
        std::mem::swap(&mut self.messages, &mut messages);
        for message in late {
            let is_answer = matches!(message.body, Body::Acquired(_) | Body::Extended(_));
            // Its holder would drop a late answer, so it need not be remembered.
            if !is_answer || model.without.has(Rule::FirstAnswer) {
                self.send(Message { is_awaited: false, ..message });
            }
        }
    }

    /// The process dies.
    fn stop(&mut self, model: &Model, process: u8) {
        self.give_up(model, process);
        *self.process(process) = Process::default();
    }

    /// Writes a worker's record.
    fn record(&mut self, model: &Model, record: Record) {
        if model.without.has(Rule::ForgottenIsVoid) {
            self.replica = self.records;
        }
        self.records[usize::from(record.lease.worker)] = Some(record);
    }

    fn hand_out(&mut self, model: &Model, process: u8, stamp: Stamp) -> Option<Fault> {
        if model.without.has(Rule::ReservedCounts) {
            let end_ms = byte(model.layout.tick_start_ms(u64::from(stamp.tick) + 1));
            let handed_out_ms = &mut self.process(process).handed_out_ms;
            *handed_out_ms = end_ms.max(*handed_out_ms);
        }
        let bit = 1 << ((stamp.worker * 16 + stamp.tick) * 2 + stamp.sequence);
        let is_twice = self.used & bit != 0;
        self.used |= bit;
        is_twice.then_some(Fault::Twice(stamp))
    }
}

/// A [`World`] in few bits. Worlds that differ only in which process is which have one key.
pub type Key = [u64; 6 + MESSAGE_WORDS];
const MESSAGE_WORDS: usize = 4;

impl Model {
    /// The key of a world.
    #[must_use]
    pub fn key(&self, world: &World) -> Key {
        let mut packed: [(u64, usize); PROCESSES_MAX] = Default::default();
        for (number, process) in world.processes.iter().enumerate() {
            let disk = if self.scene.feature == Feature::SharedDisk { None } else { world.disks[number] };
            packed[number] = (process.pack(disk), number);
        }
        // The processes' own names are of no account, unless a rule is out that makes them count.
        if !self.without.has(Rule::GrantIdsAreNew) && !self.without.has(Rule::AcquireIsNew) {
            packed.sort_unstable();
        }
        let mut numbers = [0; PROCESSES_MAX];
        for (number, &(_, before)) in (0..).zip(&packed) {
            numbers[before] = number;
        }
        let mut messages: Vec<u32> = world.messages.iter().map(|message| message.pack(&numbers)).collect();
        messages.sort_unstable();
        let mut store = Packer::default();
        for number in [world.true_ms, world.ahead_ms, world.floor_ms, world.grants] {
            store.push(number, 4);
        }
        for number in [world.granted_until_ms, world.bound_ms, world.beside_ms.0, world.beside_ms.1] {
            store.push(number, 4);
        }
        store.push_records(&world.records);
        let mut rest = Packer::default();
        rest.push_records(&world.replica);
        if self.scene.feature == Feature::SharedDisk {
            rest.push_copy(world.disks[0]);
        }
        let [first, second, third] = packed.map(|(process, _)| process);
        let mut key = [0; 6 + MESSAGE_WORDS];
        key[..6].copy_from_slice(&[world.used, first, second, third, store.0, rest.0]);
        // A bit above each message, so that none is not the same as one of zeros; three to a word.
        assert!(messages.len() <= 3 * MESSAGE_WORDS, "{world:?}");
        for (at, message) in messages.into_iter().enumerate() {
            key[6 + at / 3] |= u64::from(message | (1 << 20)) << (21 * (at % 3));
        }
        key
    }
}

/// Numbers put together: the bits, and how many there are.
#[derive(Default)]
struct Packer(u64, u32);

impl Packer {
    fn push(&mut self, number: u8, bits: u32) {
        assert!(number >> bits == 0 && self.1 + bits <= 64, "{number} fits {bits} bits of a word");
        self.0 |= u64::from(number) << self.1;
        self.1 += bits;
    }

    fn push_lease(&mut self, lease: &Lease) {
        self.push(lease.worker, 1);
        self.push(lease.grant, 3);
        self.push(lease.not_before_ms, 4);
        self.push(lease.valid_until_ms, 4);
    }

    fn push_records(&mut self, records: &Records) {
        for record in records {
            self.push(u8::from(record.is_some()), 1);
            if let Some(Record { lease, is_final, holder }) = record {
                self.push_lease(lease);
                self.push(u8::from(*is_final), 1);
                self.push(*holder, 2);
            }
        }
    }

    fn push_copy(&mut self, copy: Option<Piece>) {
        self.push(u8::from(copy.is_some()), 1);
        if let Some(Piece { lease, bound_ms }) = copy {
            self.push_lease(&lease);
            self.push(bound_ms, 4);
        }
    }
}

impl Process {
    fn pack(&self, disk: Option<Piece>) -> u64 {
        let Self { is_up, holder, run, handed_out_ms } = *self;
        let Holder { held, enter_min, offset, is_closed } = holder;
        let mut packer = Packer::default();
        for (number, bits) in [(u8::from(is_up), 1), (u8::from(is_closed), 1), (enter_min, 4), (offset, 1)] {
            packer.push(number, bits);
        }
        packer.push(handed_out_ms, 4);
        packer.push(u8::from(held.is_some()), 1);
        if let Some(Held { lease, bound_ms, current }) = held {
            packer.push_lease(&lease);
            packer.push(bound_ms, 4);
            let (tick, used) = current.unwrap_or((0, 0));
            packer.push(tick, 4);
            packer.push(used, 2);
        }
        packer.push(u8::from(run.is_some()), 1);
        if let Some(Stamp { worker, tick, sequence }) = run {
            for (number, bits) in [(worker, 1), (tick, 4), (sequence, 1)] {
                packer.push(number, bits);
            }
        }
        packer.push_copy(disk);
        packer.0
    }
}

impl Message {
    fn pack(&self, numbers: &[u8; PROCESSES_MAX]) -> u32 {
        let mut packer = Packer::default();
        packer.push(numbers[usize::from(self.process)], 2);
        packer.push(u8::from(self.is_awaited), 1);
        match self.body {
            Body::Acquire => packer.push(0, 3),
            Body::Extend { worker, grant } => {
                packer.push(1, 3);
                packer.push(worker, 1);
                packer.push(grant, 3);
            }
            Body::Release(Release { worker, grant, end_ms }) => {
                packer.push(2, 3);
                packer.push(worker, 1);
                packer.push(grant, 3);
                packer.push(end_ms, 4);
            }
            Body::Acquired(lease) => {
                packer.push(3, 3);
                packer.push_lease(&lease);
            }
            Body::Extended(lease) => {
                packer.push(4, 3);
                packer.push_lease(&lease);
            }
        }
        u32::try_from(packer.0).unwrap()
    }
}

/// The layout of a scene, which begins at 0 ms.
///
/// # Panics
/// When there is none with such figures.
#[must_use]
pub fn layout(workers: u8, tick_ms: u8, sequences: u8) -> Layout {
    let bits = |count: u8| u8::try_from(count.ilog2()).unwrap();
    let fields = LayoutFields {
        timestamp_bits: 8,
        datacenter_bits: 0,
        worker_bits: bits(workers),
        sequence_bits: bits(sequences),
        order: FieldOrder::WorkerFirst,
        epoch_ms: 0,
        tick_ms: tick_ms.into(),
    };
    Layout::new(fields).unwrap()
}
