//! How some of the systems make ids that the product replaces. Each is right but for its defect.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use unalike_core::{ReserveError, Run, Segment, Segments as _};

use super::Defect;
use super::cores::Generator;
use super::processes::Process;
use super::requests::SegmentRequests;
use super::world::{BEGINNING_MS, World};

/// A worker that its process did not confirm for so long is free, in milliseconds.
const EXPIRES_MS: u64 = 1_000;

/// How often a process confirms its worker, in milliseconds.
const CONFIRMS_MS: u64 = 200;

/// How many ids t_sequence's block has.
const BLOCK: u64 = 1_000;

/// Where doubles no longer tell all whole numbers apart.
const DOUBLES_END: u64 = 1 << 53;

/// Where these systems keep who has which worker.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    starts: u32,
    /// The process of each worker, and when it confirmed it.
    workers: BTreeMap<u32, (u64, u64)>,
    /// The greatest timestamp of each worker.
    stamped_ms: BTreeMap<u32, u64>,
}

impl Registry {
    /// The first worker that is free by this clock.
    fn acquire(&mut self, process: u64, clock_ms: u64) -> u32 {
        let is_free = |worker: &u32| {
            self.workers.get(worker).is_none_or(|(_, confirmed_ms)| confirmed_ms + EXPIRES_MS <= clock_ms)
        };
        let worker = (0..).find(is_free).unwrap_or_default();
        self.workers.insert(worker, (process, clock_ms));
        worker
    }

    /// Confirms a worker, if it is still the process's.
    fn confirm(&mut self, worker: u32, process: u64, clock_ms: u64) {
        if let Some((holder, confirmed_ms)) = self.workers.get_mut(&worker)
            && *holder == process
        {
            *confirmed_ms = clock_ms;
        }
    }
}

/// Makes snowflakes one by one.
pub(crate) struct NaiveSnowflake {
    world: Weak<World>,
    worker: u32,
    sequence_bits: u32,
    worker_bits: u32,
    last_ms: u64,
    sequence: u64,
}

impl NaiveSnowflake {
    pub(crate) fn new(process: &Arc<Process>) -> Self {
        let (world, machine) = (&process.world, &process.machine);
        let scene = world.plan.scene();
        let number = u32::from(machine.host().unwrap_or_default());
        let mut registry = world.registry.lock().unwrap();
        registry.starts += 1;
        let workers = 1_u32 << scene.worker_bits;
        let has = |defect| world.has(defect);
        let mut worker_bits = scene.worker_bits.into();
        let mut sequence_bits = scene.sequence_bits.into();
        let worker = if has(Defect::WorkerModulo) {
            registry.starts % workers
        } else if has(Defect::WorkerHashed) {
            world.chance(("worker", process.number)).u32(0..workers)
        } else if has(Defect::WorkerBitsCut) {
            // The widths that its README recommends.
            (worker_bits, sequence_bits) = (10, 12);
            number * 16
        } else if has(Defect::NoFencing) || has(Defect::CallersClock) || has(Defect::LocalFileFirst) {
            worker_bits = 10;
            // Every other machine is one without a disk of its own.
            let of_file = machine.file.lock().unwrap().filter(|_| number.is_multiple_of(2));
            match of_file.filter(|_| has(Defect::LocalFileFirst)) {
                Some(worker) => worker,
                None => registry.acquire(process.number, clock(process)),
            }
        } else {
            number
        };
        *machine.file.lock().unwrap() = Some(worker);
        let keeps_stamps = worker_bits == 10 && !has(Defect::WorkerBitsCut);
        let last_ms = registry.stamped_ms.get(&worker).copied().filter(|_| keeps_stamps).unwrap_or_default();
        drop(registry);
        process.spawn(confirm(Arc::clone(process), worker));
        Self { world: Arc::downgrade(world), worker, sequence_bits, worker_bits, last_ms, sequence: u64::MAX }
    }

    fn next(&mut self, now_ms: u64) -> Result<Run, ReserveError> {
        let Some(world) = self.world.upgrade() else { return Err(ReserveError::Closed) };
        let has = |defect| world.has(defect);
        let greatest = (1 << self.sequence_bits) - 1;
        let (mut at_ms, behind_ms) = (now_ms, self.last_ms.saturating_sub(now_ms));
        if behind_ms > 0 && (has(Defect::ClockBackResets) || has(Defect::AheadIsForgotten)) {
            at_ms = self.last_ms;
        } else if behind_ms > 0 {
            return Err(ReserveError::ClockMovedBack { behind_ms });
        }
        if at_ms > self.last_ms {
            self.sequence = 0;
        } else if self.sequence < greatest {
            self.sequence += 1;
        } else if has(Defect::ClockBackResets) {
            // The field is written, and then the clock is waited for, which is refused.
            self.sequence = 0;
            return Err(ReserveError::Wait { wait_ms: 1 });
        } else if has(Defect::AheadIsForgotten) {
            at_ms += 1;
            self.sequence = 0;
        } else if has(Defect::OverflowKeepsLast) {
            // The next millisecond is waited for and stamped, and `last_ms` stays.
            return Ok(self.id(at_ms + 1, 0));
        } else {
            return Err(ReserveError::Wait { wait_ms: 1 });
        }
        self.last_ms = at_ms;
        let stamped_ms = &mut world.registry.lock().unwrap().stamped_ms;
        let greatest_ms = stamped_ms.entry(self.worker).or_default();
        *greatest_ms = at_ms.max(*greatest_ms);
        Ok(self.id(at_ms, self.sequence))
    }

    fn id(&self, at_ms: u64, sequence: u64) -> Run {
        let mut worker = u64::from(self.worker) << self.sequence_bits;
        if self.world.upgrade().is_some_and(|world| world.has(Defect::WorkerBitsCut)) {
            worker &= u64::from(u16::MAX);
        }
        let time = (at_ms - (BEGINNING_MS - 1_000_000_000)) << (self.worker_bits + self.sequence_bits);
        Run { first: time | worker | sequence, stride: 1, count: 1 }
    }
}

impl Generator for NaiveSnowflake {
    fn reserve(&mut self, now_ms: u64, _: u32) -> Result<Run, ReserveError> {
        self.next(now_ms)
    }
}

/// The clock by which workers end.
fn clock(process: &Process) -> u64 {
    if process.world.has(Defect::CallersClock) {
        process.machine.now_ms()
    } else {
        BEGINNING_MS + process.world.now_ms()
    }
}

async fn confirm(process: Arc<Process>, worker: u32) {
    loop {
        process.world.sleep(CONFIRMS_MS).await;
        process.machine.go().await;
        process.world.registry.lock().unwrap().confirm(worker, process.number, clock(&process));
    }
}

/// Counts by segments.
pub(crate) struct NaiveSequence {
    tag: String,
    requests: SegmentRequests,
    step: u64,
    world: Weak<World>,
    current: Option<Segment>,
    /// What callers wait for, and what was asked for ahead.
    front: Option<u64>,
    ahead: Option<u64>,
}

impl NaiveSequence {
    pub(crate) fn new(process: &Process, tag: &str, requests: SegmentRequests) -> Self {
        let step = process.world.plan.scene().step.into();
        Self {
            tag: tag.to_owned(),
            requests,
            step,
            world: Arc::downgrade(&process.world),
            current: None,
            front: None,
            ahead: None,
        }
    }

    fn next(&mut self, world: &World) -> Option<Segment> {
        if let Some(segment) = answer(&mut self.front, &mut self.requests) {
            return Some(altered(world, segment));
        }
        if self.front.is_none() {
            if let Some(segment) = answer(&mut self.ahead, &mut self.requests) {
                return Some(segment);
            }
            let at_least = if world.has(Defect::ThroughDoubles) { DOUBLES_END } else { 0 };
            self.front = Some(self.requests.allocate(&self.tag, self.step, at_least));
        }
        None
    }
}

impl Generator for NaiveSequence {
    fn reserve(&mut self, _: u64, max: u32) -> Result<Run, ReserveError> {
        let Some(world) = self.world.upgrade() else { return Err(ReserveError::Closed) };
        if self.current.is_none() {
            self.current = self.next(&world);
        }
        let Some(segment) = &mut self.current else { return Err(ReserveError::Pending) };
        let count = u32::try_from(segment.count()).unwrap_or(u32::MAX).min(max);
        let run = Run { first: segment.start, stride: segment.stride, count };
        segment.start = run.last() + run.stride;
        if segment.start >= segment.end {
            self.current = None;
        }
        if world.has(Defect::TwoRefills) && self.ahead.is_none() {
            self.ahead = Some(self.requests.allocate(&self.tag, self.step, 0));
        }
        Ok(run)
    }
}

/// The answer of a ticket that is there; a failure is asked for again.
fn answer(ticket: &mut Option<u64>, requests: &mut SegmentRequests) -> Option<Segment> {
    let answer = requests.poll((*ticket)?)?;
    *ticket = None;
    answer.ok()
}

/// What the defect makes of a segment.
fn altered(world: &World, segment: Segment) -> Segment {
    if world.has(Defect::LocalBlock) {
        return Segment { end: segment.start + BLOCK * segment.stride, ..segment };
    }
    if world.has(Defect::ThroughDoubles) && segment.start > DOUBLES_END && segment.start % 2 == 1 {
        // Half way between two doubles, it becomes the one whose last bit is 0.
        let start = if segment.start % 4 == 1 { segment.start - 1 } else { segment.start + 1 };
        return Segment { start, end: start + segment.count() * segment.stride, ..segment };
    }
    segment
}
