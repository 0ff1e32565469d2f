//! Machines with processes on them: each with callers, who share generators.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;
use unalike_core::{
    ClockPolicy, Layout, LayoutFields, ReserveError, Run, SequenceOptions, SnowflakeOptions, Spread, StepPolicy,
};
use unalike_storage::{SegmentStore, StoreError, StripedStore};

use super::cores::Generator;
use super::ledger::Issue;
use super::naive::{NaiveSequence, NaiveSnowflake};
use super::ordered::OrderedLane;
use super::requests::{LeaseRequests, SegmentRequests};
use super::stores::Client;
use super::world::{BEGINNING_MS, World};
use super::{Defect, Scene};

/// What snowflakes are counted under.
pub(crate) const NAMESPACE: &str = "snowflakes";

/// What ordered numbers are counted under.
pub(crate) const LINE: &str = "line";

/// How long a caller tries to get its ids, in milliseconds.
pub(crate) const CALL_MAX_MS: u64 = 3_000;

/// How long a process of the same name or a child runs, in milliseconds.
const SECOND_MS: u64 = 3_000;

/// Whose machine it is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    Host(u8),
    Operator,
}

/// A machine: a clock, and processes that are paused together.
pub(crate) struct Machine {
    world: Weak<World>,
    role: Role,
    /// How far its clock is off, in milliseconds.
    offset_ms: AtomicI64,
    /// Since when it goes wrong by how many percent.
    drift: Mutex<(u64, i64)>,
    frozen_until_ms: AtomicU64,
    processes: Mutex<Vec<Arc<Process>>>,
    /// The worker in a file on its disk, for systems that have one.
    pub(crate) file: Mutex<Option<u32>>,
}

impl Machine {
    pub(crate) fn new(world: Weak<World>, role: Role) -> Self {
        Self {
            world,
            role,
            offset_ms: AtomicI64::new(0),
            drift: Mutex::default(),
            frozen_until_ms: AtomicU64::new(0),
            processes: Mutex::default(),
            file: Mutex::default(),
        }
    }

    pub(crate) fn world(&self) -> Arc<World> {
        self.world.upgrade().unwrap()
    }

    /// Its number, if it is no operator's.
    pub(crate) const fn host(&self) -> Option<u8> {
        match self.role {
            Role::Host(number) => Some(number),
            Role::Operator => None,
        }
    }

    /// Its clock, in Unix milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        let true_ms = self.world().now_ms();
        (BEGINNING_MS + true_ms).saturating_add_signed(self.offset_ms.load(Ordering::Relaxed) + self.drifted(true_ms))
    }

    fn drifted(&self, true_ms: u64) -> i64 {
        let (since_ms, percent) = *self.drift.lock().unwrap();
        i64::try_from(true_ms - since_ms).unwrap() * percent / 100
    }

    /// Waits while it is paused.
    pub(crate) async fn go(&self) {
        loop {
            let until_ms = self.frozen_until_ms.load(Ordering::Relaxed);
            let world = self.world();
            if until_ms <= world.now_ms() {
                return;
            }
            world.until(until_ms).await;
        }
    }

    pub(crate) fn pause(&self, for_ms: u64) {
        self.frozen_until_ms.fetch_max(self.world().now_ms() + for_ms, Ordering::Relaxed);
    }

    pub(crate) fn step_clock(&self, by_ms: i64) {
        self.offset_ms.fetch_add(by_ms, Ordering::Relaxed);
    }

    pub(crate) fn drift(&self, percent: i64) {
        let true_ms = self.world().now_ms();
        self.step_clock(self.drifted(true_ms));
        *self.drift.lock().unwrap() = (true_ms, percent);
    }

    /// Its clock is right again, and it goes on.
    pub(crate) fn mend(&self) {
        self.drift(0);
        self.offset_ms.store(0, Ordering::Relaxed);
        self.frozen_until_ms.store(0, Ordering::Relaxed);
    }

    pub(crate) fn start(self: &Arc<Self>) {
        let step = self.world().plan.scene().step.into();
        self.launch(Start { step, ..Start::default() });
    }

    fn launch(self: &Arc<Self>, start: Start) -> Arc<Process> {
        let process = Process::launch(self, start);
        self.processes.lock().unwrap().push(Arc::clone(&process));
        process
    }

    /// Ends all processes at once.
    pub(crate) fn end(&self) {
        for process in self.processes.lock().unwrap().drain(..) {
            process.end();
        }
    }

    /// Ends all processes at once, and starts one later.
    pub(crate) fn kill(self: &Arc<Self>, down_ms: u64) {
        self.end();
        self.later(down_ms, |machine| {
            if machine.running().is_empty() {
                machine.start();
            }
        });
    }

    fn later(self: &Arc<Self>, after_ms: u64, then: impl FnOnce(&Arc<Self>) + Send + 'static) {
        let (machine, world) = (Arc::clone(self), self.world());
        drop(tokio::spawn(async move {
            world.sleep(after_ms).await;
            then(&machine);
        }));
    }

    /// A process beside the other one, for a while.
    fn second(self: &Arc<Self>, start: Start) {
        // Systems that know a machine by its name have nothing to say to that.
        if self.world().defect().is_some_and(Defect::is_of_snowflakes) {
            return;
        }
        let process = self.launch(start);
        self.later(SECOND_MS, move |machine| {
            process.end();
            machine.processes.lock().unwrap().retain(|other| !Arc::ptr_eq(other, &process));
            if machine.processes.lock().unwrap().is_empty() {
                machine.start();
            }
        });
    }

    pub(crate) fn start_twin(self: &Arc<Self>) {
        self.second(Start { step: 10, ..Start::default() });
    }

    /// The memory of a process is there a second time.
    pub(crate) fn fork(self: &Arc<Self>) {
        let hands = match self.running().first() {
            Some(parent) if self.world().has(Defect::ForkKeepsGrants) => parent.hands(),
            _ => Vec::new(),
        };
        self.second(Start { step: 10, hands, ..Start::default() });
    }

    pub(crate) fn trap(&self) {
        for process in self.running() {
            process.lanes().iter().for_each(|lane| lane.trap(&process));
        }
    }

    /// Ends all processes gracefully, and starts one with another step.
    pub(crate) fn upgrade(self: &Arc<Self>, step: u64) {
        for process in self.processes.lock().unwrap().drain(..) {
            process.close();
        }
        self.later(5, move |machine| {
            if machine.running().is_empty() {
                machine.launch(Start { step, ..Start::default() });
            }
        });
    }

    pub(crate) fn start_with_other_layout(self: &Arc<Self>) {
        self.end();
        self.launch(Start { step: 10, has_other_layout: true, ..Start::default() });
        self.later(1_500, |machine| machine.kill(0));
    }

    pub(crate) fn running(&self) -> Vec<Arc<Process>> {
        self.processes.lock().unwrap().clone()
    }
}

/// How a process starts.
#[derive(Debug, Default)]
struct Start {
    step: u64,
    has_other_layout: bool,
    /// What its parent had in hand, by lane.
    hands: Vec<(String, Hand)>,
}

/// A process.
pub(crate) struct Process {
    pub(crate) world: Arc<World>,
    pub(crate) machine: Arc<Machine>,
    pub(crate) number: u64,
    start: Start,
    tasks: Mutex<JoinSet<()>>,
    lanes: OnceLock<Vec<Arc<Lane>>>,
    ordered: OnceLock<Arc<OrderedLane>>,
}

impl Process {
    fn launch(machine: &Arc<Machine>, start: Start) -> Arc<Self> {
        let world = machine.world();
        let number = world.next_process();
        let process = Arc::new(Self {
            world,
            machine: Arc::clone(machine),
            number,
            start,
            tasks: Mutex::default(),
            lanes: OnceLock::new(),
            ordered: OnceLock::new(),
        });
        process.spawn(Self::live(Arc::clone(&process)));
        process
    }

    /// Runs something that ends with the process.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap();
        while tasks.try_join_next().is_some() {}
        drop(tasks.spawn(task));
    }

    fn end(&self) {
        self.tasks.lock().unwrap().abort_all();
    }

    /// Closes its generators, sends what they give back, and ends.
    fn close(&self) {
        self.lanes().iter().for_each(|lane| lane.close());
        self.end();
    }

    pub(crate) fn lanes(&self) -> &[Arc<Lane>] {
        self.lanes.get().map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn ordered(&self) -> Option<&Arc<OrderedLane>> {
        self.ordered.get()
    }

    fn hands(&self) -> Vec<(String, Hand)> {
        let of_lane = |lane: &Arc<Lane>| Some((lane.space.clone(), lane.state.lock().unwrap().hand?));
        self.lanes().iter().filter_map(of_lane).collect()
    }

    pub(crate) fn client(&self, store: u8) -> Arc<Client> {
        Arc::new(Client::new(&self.world, store, &self.machine, self.number))
    }

    /// The store of segments that it is configured with now.
    async fn open(&self) -> Result<Arc<dyn SegmentStore>, StoreError> {
        let used = self.world.used.lock().unwrap().clone();
        let mut clients = used.iter().map(|store| self.client(*store) as Arc<dyn SegmentStore>);
        match (used.len(), clients.next()) {
            (1, Some(alone)) => Ok(alone),
            (_, first) => Ok(Arc::new(StripedStore::open(first.into_iter().chain(clients).collect()).await?)),
        }
    }

    async fn live(self: Arc<Self>) {
        let segments = loop {
            self.machine.go().await;
            match self.open().await {
                Ok(store) => break store,
                Err(_) => self.world.sleep(100).await,
            }
        };
        let scene = *self.world.plan.scene();
        let tags = (0..scene.tags).map(|tag| format!("tag-{tag}"));
        let defect = self.world.defect();
        let lanes = if defect.is_some_and(Defect::is_of_snowflakes) {
            vec![Lane::naive_snowflake(&self)]
        } else if defect.is_some_and(Defect::is_of_sequences) {
            tags.map(|tag| Lane::naive_sequence(&self, &tag)).collect()
        } else {
            if scene.stores == 1 {
                let lane = OrderedLane::start(&self, SegmentRequests::new(&self, Arc::clone(&segments)));
                drop(self.ordered.set(lane));
            }
            tags.map(|tag| Lane::sequence(&self, &tag, &segments)).chain([Lane::snowflake(&self)]).collect()
        };
        drop(self.lanes.set(lanes));
        for thread in 0..scene.threads {
            self.spawn(Self::call(Arc::clone(&self), thread));
        }
    }

    /// What a thread does.
    async fn call(self: Arc<Self>, thread: u8) {
        let scene = *self.world.plan.scene();
        let mut chance = self.world.chance(("thread", self.number, thread));
        loop {
            let is_calm = self.world.is_calm.load(Ordering::Relaxed);
            let pause_ms = u64::from(scene.pause_ms) * if is_calm { 50 } else { 2 };
            self.world.sleep(chance.u64(0..=pause_ms)).await;
            self.machine.go().await;
            if is_calm {
                // Each lane shall be heard of.
                for lane in self.lanes() {
                    lane.take(&self, 1, &mut chance).await;
                }
                if let Some(ordered) = self.ordered.get() {
                    ordered.take(&self, 1).await;
                }
                continue;
            }
            let count = chance.u32(1..=scene.count_max.into());
            let ordered = self.ordered.get().filter(|_| chance.u8(0..3) == 0);
            if let Some(ordered) = ordered {
                ordered.take(&self, count).await;
            } else if let Some(lane) = chance.choice(self.lanes()) {
                lane.take(&self, count, &mut chance).await;
            }
        }
    }
}

/// Ids that were reserved and not handed out yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hand {
    next: u64,
    stride: u64,
    left: u32,
}

/// What a lane's ids are granted by, and what carries the requests.
enum Kind {
    Sequence(SegmentRequests),
    Snowflake(LeaseRequests),
    /// A system with a way of its own.
    Naive(Arc<Notify>),
}

impl Kind {
    const fn heard(&self) -> &Arc<Notify> {
        match self {
            Self::Sequence(requests) => &requests.heard,
            Self::Snowflake(requests) => &requests.heard,
            Self::Naive(heard) => heard,
        }
    }
}

/// One tag or namespace in a process: the generator, and the run that its threads share.
pub(crate) struct Lane {
    pub(crate) space: String,
    kind: Kind,
    /// Each process is granted ascending numbers.
    ascends: bool,
    machine: Arc<Machine>,
    state: Mutex<LaneState>,
}

struct LaneState {
    generator: Box<dyn Generator>,
    /// The end of the newest tick that a run came from, in Unix milliseconds: where a generator anew begins.
    floor_ms: u64,
    /// The latest time that the clock showed, and whether it was set back by more than a lease reaches since: then ids
    /// go on under another worker, from lower timestamps.
    latest_ms: u64,
    was_set_back: bool,
    hand: Option<Hand>,
    /// When an id was last handed out, in milliseconds from the beginning; and what was heard since.
    served_ms: u64,
    heard: String,
}

/// What became of one try.
enum Try {
    Took(u32),
    Reserved,
    Wait(u64),
    Closed,
}

fn sequence_options(process: &Process) -> SequenceOptions {
    let step = StepPolicy::Fixed { step: process.start.step.max(1) };
    SequenceOptions { step, ..SequenceOptions::default() }
}

fn snowflake_options(process: &Process) -> SnowflakeOptions {
    let scene = process.world.plan.scene();
    let mut chance = process.world.chance(("snowflake", process.number));
    let bits = scene.spread_bits;
    SnowflakeOptions {
        clock: match chance.u8(0..3) {
            0 => ClockPolicy::Reject,
            1 => ClockPolicy::Wait { max_ms: 5 },
            _ => ClockPolicy::Keep { max_ms: 2_000 },
        },
        horizon_ms: scene.horizon_ms.into(),
        spread: match bits {
            0 => Spread::None,
            _ if chance.bool() => Spread::Rotating { bits },
            _ => Spread::Random { bits },
        },
        seed: chance.u64(..),
        ..SnowflakeOptions::new(layout(scene, process.start.has_other_layout))
    }
}

/// The layout of a scene, or another one.
pub(crate) fn layout(scene: &Scene, is_other: bool) -> Layout {
    Layout::new(LayoutFields {
        timestamp_bits: 41,
        datacenter_bits: 0,
        worker_bits: scene.worker_bits,
        sequence_bits: scene.sequence_bits + u8::from(is_other),
        order: scene.order,
        epoch_ms: BEGINNING_MS - 1_000_000_000,
        tick_ms: scene.tick_ms.into(),
    })
    .unwrap()
}

impl Lane {
    fn new(process: &Process, space: &str, kind: Kind, ascends: bool, generator: Box<dyn Generator>) -> Arc<Self> {
        let hand = process.start.hands.iter().find(|(name, _)| name == space).map(|(_, hand)| *hand);
        let state = LaneState {
            generator,
            floor_ms: 0,
            latest_ms: 0,
            was_set_back: false,
            hand,
            served_ms: 0,
            heard: String::new(),
        };
        let (space, machine) = (space.to_owned(), Arc::clone(&process.machine));
        Arc::new(Self { space, kind, ascends, machine, state: Mutex::new(state) })
    }

    fn sequence(process: &Arc<Process>, tag: &str, store: &Arc<dyn SegmentStore>) -> Arc<Self> {
        let world = &process.world;
        let requests = SegmentRequests::new(process, Arc::clone(store));
        let generator = world.core.sequence(tag, sequence_options(process), requests.clone());
        Self::new(process, tag, Kind::Sequence(requests), world.plan.scene().stores == 1, generator)
    }

    fn snowflake(process: &Arc<Process>) -> Arc<Self> {
        let world = &process.world;
        let requests = LeaseRequests::new(process, process.client(world.plan.scene().lease_store()));
        let generator = world.core.snowflake(NAMESPACE, snowflake_options(process), requests.clone());
        Self::new(process, NAMESPACE, Kind::Snowflake(requests), true, generator)
    }

    fn naive_sequence(process: &Arc<Process>, tag: &str) -> Arc<Self> {
        let requests = SegmentRequests::new(process, process.client(0));
        let kind = Kind::Naive(Arc::clone(&requests.heard));
        Self::new(process, tag, kind, true, Box::new(NaiveSequence::new(process, tag, requests)))
    }

    fn naive_snowflake(process: &Arc<Process>) -> Arc<Self> {
        Self::new(process, NAMESPACE, Kind::Naive(Arc::default()), false, Box::new(NaiveSnowflake::new(process)))
    }

    /// When an id was last handed out, and what was heard since.
    pub(crate) fn standing(&self) -> (u64, String) {
        let state = self.state.lock().unwrap();
        (state.served_ms, state.heard.clone())
    }

    /// A thread asks for ids.
    async fn take(&self, process: &Process, count: u32, chance: &mut fastrand::Rng) {
        let world = &process.world;
        let until_ms = world.now_ms() + CALL_MAX_MS;
        let mut left = count;
        while left > 0 && world.now_ms() < until_ms {
            self.machine.go().await;
            if world.has(Defect::TakenInTwoSteps)
                && let Some(seen) = self.peek()
            {
                world.sleep(chance.u64(0..2)).await;
                left -= self.take_from(process, seen, left);
                continue;
            }
            match self.try_once(process, left) {
                Try::Took(count) => left -= count,
                // Whoever is paused here hands the ids out later, if nobody else of the process does.
                Try::Reserved => world.sleep(chance.u64(0..2)).await,
                Try::Wait(wait_ms) => {
                    let limit = Duration::from_millis(wait_ms.clamp(1, 200));
                    let _ = timeout(limit, self.kind.heard().notified()).await;
                }
                Try::Closed => return,
            }
        }
    }

    fn peek(&self) -> Option<Hand> {
        self.state.lock().unwrap().hand
    }

    fn try_once(&self, process: &Process, left: u32) -> Try {
        let hand = self.state.lock().unwrap().hand;
        if let Some(hand) = hand {
            return Try::Took(self.take_from(process, hand, left));
        }
        let mut state = self.state.lock().unwrap();
        let (now_ms, max) = (self.machine.now_ms(), left.saturating_mul(2).clamp(1, 10_000));
        state.latest_ms = state.latest_ms.max(now_ms);
        state.was_set_back |= now_ms + u64::from(process.world.plan.scene().horizon_ms) <= state.latest_ms;
        let error = match state.generator.reserve(now_ms, max) {
            Ok(run) => {
                if matches!(self.kind, Kind::Snowflake(_)) {
                    let layout = layout(process.world.plan.scene(), process.start.has_other_layout);
                    let parts = layout.unpack(run.first).unwrap();
                    state.floor_ms = state.floor_ms.max(layout.tick_start_ms(parts.ticks + 1));
                }
                state.hand = Some(Hand { next: run.first, stride: run.stride, left: run.count });
                return Try::Reserved;
            }
            Err(error) => error,
        };
        state.heard = format!("{error:?}");
        match error {
            ReserveError::Pending => Try::Wait(50),
            ReserveError::Wait { wait_ms } => Try::Wait(wait_ms),
            ReserveError::Store { retry_after_ms, .. } => Try::Wait(retry_after_ms.max(20)),
            ReserveError::Closed => Try::Closed,
            _ => Try::Wait(100),
        }
    }

    /// Hands out ids of a run. Answers how many.
    fn take_from(&self, process: &Process, hand: Hand, left: u32) -> u32 {
        let count = left.min(hand.left);
        let run = Run { first: hand.next, stride: hand.stride, count };
        let rest = Hand { next: hand.next + hand.stride * u64::from(count), left: hand.left - count, ..hand };
        let mut state = self.state.lock().unwrap();
        state.hand = (rest.left > 0).then_some(rest);
        let world = &process.world;
        state.served_ms = world.now_ms();
        let issue = Issue { process: process.number, at_ms: state.served_ms, run };
        let mut ledger = world.ledger.lock().unwrap();
        ledger.issue(&self.space, issue);
        if world.has(Defect::Control) && process.number == 1 && ledger.violations.is_empty() {
            ledger.issue(&self.space, issue);
        }
        if self.ascends && (matches!(self.kind, Kind::Sequence(_)) || !state.was_set_back) {
            ledger.check_ascent(&self.space, process.number, &run);
        }
        match &self.kind {
            Kind::Sequence(_) => ledger.check_segment(&self.space, process.number, &run),
            Kind::Snowflake(_) => {
                let layout = layout(world.plan.scene(), process.start.has_other_layout);
                ledger.check_lease(&self.space, process.number, &layout, &run);
            }
            Kind::Naive(_) => {}
        }
        count
    }

    /// The component's instance is gone, and another one goes on.
    fn trap(&self, process: &Process) {
        let (core, mut state) = (&process.world.core, self.state.lock().unwrap());
        state.generator = match &self.kind {
            Kind::Sequence(requests) => core.sequence(&self.space, sequence_options(process), requests.clone()),
            Kind::Snowflake(requests) => {
                let options = SnowflakeOptions { floor_ms: state.floor_ms, ..snowflake_options(process) };
                core.snowflake(&self.space, options, requests.clone())
            }
            Kind::Naive(_) => return,
        };
    }

    /// Nothing more is handed out, and what is left goes back.
    fn close(&self) {
        let mut state = self.state.lock().unwrap();
        state.hand = None;
        state.generator.close();
    }
}
