//! Sequences: ids under a tag.
//!
//! `next` is served from a run, natively; the component is called once per run, and the size of runs follows demand:
//! one id at a time while ids are asked for now and then (a crash loses none), thousands while runs are used up within
//! a millisecond.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use unalike_core::{AdaptiveStep, ID_MAX, RefillPolicy, Run, SequenceOptions as CoreOptions, StepPolicy};
use unalike_storage::{Mode, Process, SegmentStore, TagOptions, TagRecord, split_tag};

use crate::dispenser::Dispenser;
use crate::ids::{Generator, Shared, lock};
use crate::lane::{self, Lane, Opening, Step};
use crate::ordered::Rounds;
use crate::requests::{did_not_end, missing};
use crate::runs::{HeldRun, RunSize, ThreadRuns, rest_of};
use crate::{Batch, Error, ErrorKind};

/// How a tag's sequence works in this process. What is not given is as the tag's record in the store says.
///
/// ```
/// use unalike::{Order, SequenceOptions, StepPolicy};
///
/// let options = SequenceOptions {
///     step: Some(StepPolicy::Fixed { step: 5_000 }),
///     order: Some(Order::Thread),
///     ..SequenceOptions::default()
/// };
/// # assert_eq!(options.prefetch, None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceOptions {
    /// How many numbers a segment asks for.
    pub step: Option<StepPolicy>,
    /// When the next segment is asked for.
    pub refill: Option<RefillPolicy>,
    /// Whole segments to hold ahead: 1 to 64, 1 by default.
    pub prefetch: Option<u32>,
    /// The mode that the caller counts on; the tag's own must be the same.
    pub mode: Option<Mode>,
    /// Among whom ids ascend: [`Order::Process`] by default.
    pub order: Option<Order>,
    /// The greatest id that this process hands out, 1 to 2^63 - 1 (the default). After it the sequence is
    /// [`ErrorKind::Exhausted`]; numbers above that the store granted are burnt. With 2^53 - 1 every id is exact in
    /// JavaScript's numbers. A step that is the tag's own, not given here, is at most a 64th of the numbers up to it.
    pub id_max: Option<u64>,
}

/// Among which calls of one process the ids of a buffered sequence ascend.
///
/// ```
/// # use std::sync::Arc;
/// # use unalike::{Ids, Order, SequenceOptions};
/// # fn main() -> Result<(), unalike::Error> {
/// # let store = Arc::new(unalike_memory::MemoryStore::default());
/// # let ids = Ids::builder().segments(store).build_blocking()?;
/// let options = SequenceOptions { order: Some(Order::Thread), ..SequenceOptions::default() };
/// let orders = ids.sequence_blocking("order", options)?;
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| assert!(orders.next_blocking().unwrap() < orders.next_blocking().unwrap()));
///     }
/// });
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// A call that begins after another has ended gets a greater id, on whichever threads they run. All threads share a
    /// run, through one atomic addition per id.
    #[default]
    Process,
    /// Each thread's ids ascend. Each thread has a run of its own, so that threads never wait for each other, and what
    /// is left of it when the thread ends is a gap. A task that moves between threads sees ids go up and down.
    Thread,
}

/// Figures of an open sequence, for metrics.
///
/// ```
/// # use std::sync::Arc;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), unalike::Error> {
/// # let store = Arc::new(unalike_memory::MemoryStore::default());
/// # let ids = unalike::Ids::builder().segments(store).build().await?;
/// let orders = ids.sequence("order", Default::default()).await?;
/// orders.take(10).await?;
/// assert_eq!(orders.status()?.issued, 10);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceStatus {
    /// Ids that were handed out by this process since the sequence was opened. What a thread or a local handle holds
    /// for itself counts.
    pub issued: u64,
    /// Numbers granted to this process that never crossed into a run. 0 for ordered sequences.
    pub remaining: u64,
    /// How many numbers the next request asks for. 0 for ordered sequences.
    pub step: u64,
    /// Whether a request to the store is under way.
    pub in_flight: bool,
    /// Calls that found nothing buffered and waited. Those of ordered sequences wait for a round instead, and do not
    /// count.
    pub waits: u64,
}

/// What a sequence has handed out and has left, counted beside the component: looking calls nothing, so that a service
/// can watch hundreds of thousands of tags. While ids are being taken the two figures may belong to neighbouring
/// moments.
///
/// ```
/// # use std::sync::Arc;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), unalike::Error> {
/// # let store = Arc::new(unalike_memory::MemoryStore::default());
/// # let ids = unalike::Ids::builder().segments(store).build().await?;
/// let orders = ids.sequence("order", Default::default()).await?;
/// orders.take(10).await?;
/// let supply = orders.supply();
/// assert_eq!(supply.issued, 10);
/// assert_eq!(supply.left, 990); // of the first segment
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Supply {
    /// As [`SequenceStatus::issued`].
    pub issued: u64,
    /// Numbers granted to this process and not handed out: they can be had while the store is down. 0 for ordered
    /// sequences.
    pub left: u64,
}

/// The ids of one tag. Clone it freely: all clones, and all threads, share one buffer.
///
/// Ids ascend within the process, or with [`Order::Thread`] within each thread; with [`Mode::Ordered`] they ascend
/// across all nodes in real time. No id is handed out twice.
///
/// ```
/// # use std::sync::Arc;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), unalike::Error> {
/// # let store = Arc::new(unalike_memory::MemoryStore::default());
/// # let ids = unalike::Ids::builder().segments(store).build().await?;
/// let orders = ids.sequence("order", Default::default()).await?;
/// let elsewhere = orders.clone();
/// assert_eq!(orders.next().await?, 1);
/// assert_eq!(tokio::spawn(async move { elsewhere.next().await }).await.unwrap()?, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Sequence {
    shared: Arc<SequenceShared>,
}

pub(crate) struct SequenceShared {
    generator: Arc<Generator>,
    given: SequenceOptions,
    kind: Kind,
    /// Ids that crossed into runs.
    reserved: AtomicU64,
    /// As the generator's, without the way there.
    process: Process,
}

enum Kind {
    /// [`Order::Process`]. The lock around the size of runs is the refill lock.
    Shared {
        dispenser: Dispenser,
        runs: Mutex<RunSize>,
    },
    /// [`Order::Thread`].
    PerThread(ThreadRuns),
    Ordered(Arc<Rounds>),
}

/// A sequence whose tag was looked up and that has no place in a lane yet.
pub(crate) struct Looked {
    tag: String,
    given: SequenceOptions,
    options: CoreOptions,
    mode: Mode,
}

impl SequenceShared {
    /// Looks the tag up and puts its options together.
    pub(crate) async fn open(shared: &Shared, tag: &str, given: &SequenceOptions) -> Result<Looked, Error> {
        let name = || tag.to_owned();
        let refused = |source| ErrorKind::Store { name: name(), source: Arc::new(source) };
        let store = shared.storage.segments.clone().ok_or_else(|| refused(missing("segment")))?;
        let wait_max = shared.wait_max.min(shared.storage.request_timeout);
        let executor = &shared.storage.executor;
        let (asked, looked_up) = (Arc::clone(&store), name());
        let request = executor.run(shared.storage.within_timeout(async move { asked.open_tag(&looked_up).await }));
        let record = executor
            .timeout(wait_max, request)
            .await
            .map_err(|_| ErrorKind::Timeout {
                name: name(),
                waited_ms: u64::try_from(wait_max.as_millis()).unwrap_or(u64::MAX),
                source: None,
            })?
            .unwrap_or_else(|| Err(did_not_end()))
            .map_err(refused)?;
        let mode = record.options.mode;
        if let Some(asked) = given.mode.filter(|&asked| asked != mode) {
            return Err(ErrorKind::ModeBound { name: name(), stored: mode.name(), asked: asked.name() }.into());
        }
        if mode == Mode::Ordered && given.order == Some(Order::Thread) {
            return Err(ErrorKind::OrderedPerThread { name: name() }.into());
        }
        let options = CoreOptions {
            step: given.step.unwrap_or_else(|| within_bound(&record.options, given.id_max)),
            refill: given.refill.unwrap_or(record.options.refill),
            prefetch: given.prefetch.unwrap_or(1),
            id_max: given.id_max.unwrap_or(ID_MAX),
        };
        options.validate().map_err(|source| ErrorKind::Options { name: name(), source })?;
        if let Some(id_max) = given.id_max {
            check_room(store.as_ref(), record, id_max)?;
        }
        Ok(Looked { tag: name(), given: *given, options, mode })
    }

    pub(crate) fn stop(&self) {
        self.generator.stop();
    }

    pub(crate) fn close(&self) {
        self.generator.close(|call| match self.kind {
            Kind::Shared { .. } | Kind::PerThread(_) => {
                call.core.unalike_ids_sequences().sequence().call_close(call.store, call.handle)
            }
            // It holds nothing that could be given back.
            Kind::Ordered(_) => Ok(()),
        });
    }

    /// One run straight from the component.
    fn reserve(&self, max: impl FnOnce(u64) -> u32) -> Result<Step<Run>, Error> {
        let answer = self.generator.call(|call| {
            let max = max(call.now_ms);
            let sequence = call.core.unalike_ids_sequences().sequence();
            let answer = sequence.call_reserve(call.store, call.handle, call.now_ms, max)?;
            if let Ok(run) = &answer {
                self.generator.signal.take_buffered(u64::from(run.count));
            }
            Ok(answer)
        })?;
        let step = self.generator.step(answer.map(lane::run))?;
        if let Step::Ready(run) = &step {
            self.reserved.fetch_add(u64::from(run.count), Ordering::Relaxed);
        }
        Ok(step)
    }

    /// Whether this is still the process that opened it: a forked child hands out nothing that it inherited.
    #[inline]
    fn is_own_process(&self) -> bool {
        self.process.is_current()
    }

    /// An id without a crossing; or the position that was taken in vain, if one was.
    #[inline]
    fn take_native(&self) -> Result<u64, Option<u64>> {
        if !self.is_own_process() {
            return Err(None);
        }
        match &self.kind {
            Kind::Shared { dispenser, .. } => dispenser.take().map_err(Some),
            Kind::PerThread(held) => held.take().ok_or(None),
            Kind::Ordered(_) => Err(None),
        }
    }

    /// An id from a fresh run, whose rest goes where the last one's was. Ordered sequences have none.
    #[cold]
    fn refill(&self, position: Option<u64>) -> Result<Step<u64>, Error> {
        self.generator.check_process()?;
        match &self.kind {
            Kind::Shared { dispenser, runs } => self.refill_shared(dispenser, runs, position),
            Kind::PerThread(held) => held.with(|held| self.refill_held(held)),
            Kind::Ordered(_) => Ok(Step::Pending),
        }
    }

    fn refill_shared(
        &self,
        dispenser: &Dispenser,
        runs: &Mutex<RunSize>,
        position: Option<u64>,
    ) -> Result<Step<u64>, Error> {
        let mut runs = lock(runs);
        if self.is_own_process() {
            // Somebody else may have brought a run while this thread waited for the lock.
            if let Some(id) = position.and_then(|position| dispenser.redeem(position)) {
                return Ok(Step::Ready(id));
            }
            if let Ok(id) = dispenser.take() {
                return Ok(Step::Ready(id));
            }
        }
        // Kept if a run comes: waiting for the store is no demand.
        let mut adapted = *runs;
        let step = self.reserve(|now_ms| adapted.adapt(now_ms))?;
        Ok(step.map(|run| {
            *runs = adapted;
            install_rest(dispenser, run, 1);
            run.first
        }))
    }

    /// The same for a run that nobody else takes from.
    fn refill_held(&self, held: &mut HeldRun) -> Result<Step<u64>, Error> {
        if self.is_own_process()
            && let Some(id) = held.take()
        {
            return Ok(Step::Ready(id));
        }
        let mut adapted = held.size;
        let step = self.reserve(|now_ms| adapted.adapt(now_ms))?;
        Ok(step.map(|run| {
            held.size = adapted;
            held.hold_rest(run, 1);
            run.first
        }))
    }

    /// Adds runs to a batch: first what is left of the last one, so that ids never go down, then fresh ones.
    fn fill(&self, batch: &mut Batch, left: &mut u32) -> Result<Step<()>, Error> {
        self.generator.check_process()?;
        match &self.kind {
            Kind::Shared { dispenser, runs } => {
                let mut runs = lock(runs);
                if self.is_own_process()
                    && let Some(run) = dispenser.take_run(*left)
                {
                    batch.add(run, left);
                }
                self.fill_fresh(&mut runs, batch, left, |run, used| install_rest(dispenser, run, used))
            }
            Kind::PerThread(held) => held.with(|held| self.fill_held(held, batch, left)),
            Kind::Ordered(_) => Ok(Step::Pending),
        }
    }

    fn fill_held(&self, held: &mut HeldRun, batch: &mut Batch, left: &mut u32) -> Result<Step<()>, Error> {
        if self.is_own_process()
            && let Some(run) = held.take_run(*left)
        {
            batch.add(run, left);
        }
        let mut size = held.size;
        let filled = self.fill_fresh(&mut size, batch, left, |run, used| held.hold_rest(run, used));
        held.size = size;
        filled
    }

    /// Adds fresh runs; of the last one the rest is kept, as is how many ids of it were used.
    fn fill_fresh(
        &self,
        size: &mut RunSize,
        batch: &mut Batch,
        left: &mut u32,
        mut keep: impl FnMut(Run, u32),
    ) -> Result<Step<()>, Error> {
        while *left > 0 {
            let mut adapted = *size;
            match self.reserve(|now_ms| adapted.adapt(now_ms).max(*left))? {
                Step::Ready(run) => {
                    *size = adapted;
                    let used = run.count.min(*left);
                    batch.add(Run { count: used, ..run }, left);
                    keep(run, used);
                }
                Step::Pending => return Ok(Step::Pending),
                Step::Wait(wait_ms) => return Ok(Step::Wait(wait_ms)),
            }
        }
        Ok(Step::Ready(()))
    }

    /// What the run that all threads share has left.
    fn left_in_run(&self) -> u64 {
        if let Kind::Shared { dispenser, .. } = &self.kind { dispenser.left() } else { 0 }
    }

    fn supply(&self) -> Supply {
        // Nothing of it is the child's, nor are the locks.
        if !self.is_own_process() {
            return Supply::default();
        }
        if let Kind::Ordered(rounds) = &self.kind {
            return Supply { issued: rounds.status().0, left: 0 };
        }
        // In this order: what crosses into a run in between counts twice in `left` rather than not at all in `issued`.
        let (buffered, reserved) = (self.generator.signal.buffered(), self.reserved.load(Ordering::Relaxed));
        let in_run = self.left_in_run();
        Supply { issued: reserved.saturating_sub(in_run), left: buffered.saturating_add(in_run) }
    }

    fn status(&self) -> Result<SequenceStatus, Error> {
        self.generator.check_process()?;
        let reserved = self.reserved.load(Ordering::Relaxed);
        let status = match &self.kind {
            Kind::Ordered(rounds) => {
                let (issued, in_flight) = rounds.status();
                return Ok(SequenceStatus { issued, remaining: 0, step: 0, in_flight, waits: 0 });
            }
            Kind::Shared { .. } | Kind::PerThread(_) => self.generator.call(|call| {
                let sequence = call.core.unalike_ids_sequences().sequence();
                let status = sequence.call_tick(call.store, call.handle, call.now_ms)?;
                self.generator.signal.set_buffered(status.remaining);
                Ok(status)
            })?,
        };
        let left = self.left_in_run();
        Ok(SequenceStatus {
            issued: reserved.saturating_sub(left),
            remaining: status.remaining,
            step: status.step,
            in_flight: status.in_flight,
            waits: self.generator.waits.load(Ordering::Relaxed),
        })
    }
}

/// The tag's step, or at most a 64th of the numbers below a bound: a process that takes a thousand numbers at once would
/// leave nothing of a hundred to the others, nor to itself after a crash.
fn within_bound(options: &TagOptions, id_max: Option<u64>) -> StepPolicy {
    let Some(id_max) = id_max else { return options.step };
    let share = (id_max.saturating_sub(options.start) / 64).max(1);
    match options.step {
        StepPolicy::Fixed { step } => StepPolicy::Fixed { step: step.min(share) },
        StepPolicy::Adaptive(adaptive) => StepPolicy::Adaptive(AdaptiveStep {
            initial: adaptive.initial.min(share),
            min: adaptive.min.min(share),
            max: adaptive.max.min(share),
            ..adaptive
        }),
    }
}

/// Refuses a bound that every number to come lies above.
fn check_room(store: &dyn SegmentStore, record: TagRecord, id_max: u64) -> Result<(), Error> {
    let TagRecord { tag: name, options, watermark, .. } = record;
    let start = options.start;
    // The watermark of stripes is the greatest of theirs, and the others may be behind.
    let passed = if store.stripes() > 1 { start.saturating_sub(1) } else { watermark };
    if passed < id_max { Ok(()) } else { Err(ErrorKind::IdMaxReached { name, id_max, start, watermark }.into()) }
}

/// Installs what a run holds beyond the ids that were used already.
fn install_rest(dispenser: &Dispenser, run: Run, used: u32) {
    if let Some(rest) = rest_of(run, used) {
        dispenser.install(rest);
    }
}

impl Looked {
    pub(crate) fn add(self, lane: Arc<Lane>, shared: &Shared) -> SequenceShared {
        let Self { tag, given, options, mode } = self;
        let (opening, kind) = match mode {
            Mode::Buffered => (
                Opening::Sequence { tag: tag.clone(), options },
                match given.order.unwrap_or_default() {
                    Order::Process => Kind::Shared { dispenser: Dispenser::new(), runs: Mutex::default() },
                    Order::Thread => Kind::PerThread(ThreadRuns::new()),
                },
            ),
            Mode::Ordered => {
                (Opening::Ordered { tag: tag.clone(), id_max: options.id_max }, Kind::Ordered(Arc::default()))
            }
        };
        let generator = Arc::new(Generator::new(shared, lane, &tag, opening));
        let process = shared.storage.process;
        SequenceShared { generator, given, kind, reserved: AtomicU64::new(0), process }
    }
}

impl Sequence {
    pub(crate) fn of(shared: Arc<SequenceShared>) -> Self {
        Self { shared }
    }

    /// Another handle of an open sequence, if it was opened alike.
    pub(crate) fn again(open: &Arc<SequenceShared>, options: &SequenceOptions) -> Result<Self, Error> {
        if *options != SequenceOptions::default() && *options != open.given {
            return Err(ErrorKind::OpenOtherwise { name: open.generator.name.clone() }.into());
        }
        Ok(Self { shared: Arc::clone(open) })
    }

    /// The tag.
    #[must_use]
    pub fn tag(&self) -> &str {
        split_tag(&self.shared.generator.name).0
    }

    /// The sub-key, if it is the sequence of one: see [`Ids::sequence_of`](crate::Ids::sequence_of).
    #[must_use]
    pub fn sub(&self) -> Option<&str> {
        split_tag(&self.shared.generator.name).1
    }

    /// How callers are served.
    #[must_use]
    pub fn mode(&self) -> Mode {
        match self.shared.kind {
            Kind::Shared { .. } | Kind::PerThread(_) => Mode::Buffered,
            Kind::Ordered(_) => Mode::Ordered,
        }
    }

    /// The greatest id that it hands out: [`SequenceOptions::id_max`] as it was opened with, 2^63 - 1 without.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use unalike::{Ids, SequenceOptions};
    /// # fn main() -> Result<(), unalike::Error> {
    /// # let store = Arc::new(unalike_memory::MemoryStore::default());
    /// # let ids = Ids::builder().segments(store).build_blocking()?;
    /// let exact = SequenceOptions { id_max: Some((1 << 53) - 1), ..SequenceOptions::default() };
    /// let orders = ids.sequence_blocking("order", exact)?;
    /// assert!(orders.id_max() < 1 << 53, "JavaScript may have them as numbers");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn id_max(&self) -> u64 {
        self.shared.generator.signal.id_max()
    }

    /// A handle with runs of its own: its ids ascend among themselves, and cost an addition each.
    ///
    /// What is left in it when it is dropped is a gap.
    ///
    /// # Errors
    /// [`ErrorKind::OrderedPerThread`] for an ordered sequence.
    pub fn local(&self) -> Result<LocalSequence, Error> {
        if let Kind::Ordered(_) = self.shared.kind {
            return Err(ErrorKind::OrderedPerThread { name: self.tag().to_owned() }.into());
        }
        Ok(LocalSequence { shared: Arc::clone(&self.shared), held: HeldRun::EMPTY })
    }

    /// The next id.
    ///
    /// Takes a few nanoseconds while the current run lasts; waits, if nothing is buffered, for the store, up to the
    /// builder's `wait_max`. A call that is dropped while it waits loses no id in buffered mode.
    ///
    /// # Errors
    /// [`Error`].
    #[inline]
    pub async fn next(&self) -> Result<u64, Error> {
        match self.shared.take_native() {
            Ok(id) => Ok(id),
            // Boxed, so that the future of a call that does not wait is a word or two.
            Err(position) => Box::pin(self.next_slowly(position)).await,
        }
    }

    /// The next id if there is one without waiting; if there is none, the store has been asked for more.
    ///
    /// An ordered sequence has none without waiting: its every id is a request to the store.
    ///
    /// # Errors
    /// [`Error`].
    #[inline]
    pub fn try_next(&self) -> Result<Option<u64>, Error> {
        match self.shared.take_native() {
            Ok(id) => Ok(Some(id)),
            Err(position) => self.try_slowly(position),
        }
    }

    /// [`Sequence::next`] for threads that run no asynchronous code. The `Ids` may have been built anywhere, and its runtime
    /// may have ended.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// Inside asynchronous code of tokio's, when it has to wait.
    #[inline]
    pub fn next_blocking(&self) -> Result<u64, Error> {
        match self.shared.take_native() {
            Ok(id) => Ok(id),
            Err(position) => self.next_slowly_blocking(position),
        }
    }

    /// The next `count` ids (1 or more), in ascending order; not always consecutive.
    ///
    /// # Errors
    /// [`ErrorKind::CountZero`] and as [`Sequence::next`]. Ids that it had when it failed are a gap.
    pub async fn take(&self, count: u32) -> Result<Batch, Error> {
        let (mut batch, mut left) = self.take_native(count)?;
        let generator = &self.shared.generator;
        if let Kind::Ordered(rounds) = &self.shared.kind {
            return rounds.take(generator, count).await;
        }
        if left > 0 {
            generator.until_ready(|| self.shared.fill(&mut batch, &mut left)).await?;
        }
        Ok(batch)
    }

    /// [`Sequence::take`] for threads that run no asynchronous code.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// Inside asynchronous code of tokio's.
    pub fn take_blocking(&self, count: u32) -> Result<Batch, Error> {
        let (mut batch, mut left) = self.take_native(count)?;
        let generator = &self.shared.generator;
        if let Kind::Ordered(rounds) = &self.shared.kind {
            return generator.block_on(rounds.take(generator, count));
        }
        if left > 0 {
            generator.until_ready_blocking(|| self.shared.fill(&mut batch, &mut left))?;
        }
        Ok(batch)
    }

    /// The two figures that tell for how long it lasts, without a call into the component.
    #[must_use]
    pub fn supply(&self) -> Supply {
        self.shared.supply()
    }

    /// How many calls found nothing buffered and waited: [`SequenceStatus::waits`], without a call into the component.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.shared.generator.waits.load(Ordering::Relaxed)
    }

    /// Figures for metrics.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`], [`ErrorKind::Rebuilt`].
    pub fn status(&self) -> Result<SequenceStatus, Error> {
        self.shared.status()
    }

    /// What a defect of the component would do.
    #[cfg(test)]
    pub(crate) fn trap(&self) -> Result<(), Error> {
        self.shared.generator.call(|_| Err(wasmtime::Error::msg("a trap")))
    }

    /// What a defect of this library, or of a clock that was given to it, would do.
    #[cfg(test)]
    pub(crate) fn panic(&self) -> Result<(), Error> {
        self.shared.generator.call(|_| panic!("a panic that is expected"))
    }

    /// As much of a batch as the run in hand has, and how many ids it still lacks.
    fn take_native(&self, count: u32) -> Result<(Batch, u32), Error> {
        if count == 0 {
            return Err(ErrorKind::CountZero.into());
        }
        let (mut batch, mut left) = (Batch::default(), count);
        if let Kind::Shared { dispenser, .. } = &self.shared.kind
            && self.shared.is_own_process()
            && let Some(run) = dispenser.take_run(count)
        {
            batch.add(run, &mut left);
        }
        Ok((batch, left))
    }

    async fn next_slowly(&self, position: Option<u64>) -> Result<u64, Error> {
        match &self.shared.kind {
            Kind::Ordered(rounds) => rounds.next(&self.shared.generator).await,
            Kind::Shared { .. } | Kind::PerThread(_) => {
                self.shared.generator.until_ready(|| self.shared.refill(position)).await
            }
        }
    }

    #[cold]
    fn try_slowly(&self, position: Option<u64>) -> Result<Option<u64>, Error> {
        Ok(self.shared.refill(position)?.ready())
    }

    #[cold]
    fn next_slowly_blocking(&self, position: Option<u64>) -> Result<u64, Error> {
        let generator = &self.shared.generator;
        match &self.shared.kind {
            Kind::Ordered(rounds) => generator.block_on(rounds.next(generator)),
            Kind::Shared { .. } | Kind::PerThread(_) => generator.until_ready_blocking(|| self.shared.refill(position)),
        }
    }
}

impl std::fmt::Debug for Sequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sequence").field("tag", &self.tag()).field("mode", &self.mode()).finish_non_exhaustive()
    }
}

/// A handle of a [`Sequence`] with runs of its own: one per thread or task that needs ids faster than an atomic
/// addition.
///
/// Its ids ascend among themselves, not among the handles of the sequence. Runs grow with demand, as they do for
/// everybody; what is left in the handle when it is dropped is a gap. Ids that it has when the sequence is closed are
/// handed out.
///
/// ```
/// # use std::sync::Arc;
/// # fn main() -> Result<(), unalike::Error> {
/// # let store = Arc::new(unalike_memory::MemoryStore::default());
/// # let ids = unalike::Ids::builder().segments(store).build_blocking()?;
/// let orders = ids.sequence_blocking("order", Default::default())?;
/// let (mut one, mut other) = (orders.local()?, orders.local()?);
/// let first = one.next_blocking()?;
/// assert_ne!(first, other.next_blocking()?);
/// assert!(first < one.next_blocking()?);
/// # Ok(())
/// # }
/// ```
#[repr(align(64))] // Two handles side by side, for two threads, share no line of the cache.
pub struct LocalSequence {
    shared: Arc<SequenceShared>,
    held: HeldRun,
}

impl LocalSequence {
    /// The tag.
    #[must_use]
    pub fn tag(&self) -> &str {
        split_tag(&self.shared.generator.name).0
    }

    /// The sub-key, if it is the sequence of one.
    #[must_use]
    pub fn sub(&self) -> Option<&str> {
        split_tag(&self.shared.generator.name).1
    }

    /// As [`Sequence::next`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub async fn next(&mut self) -> Result<u64, Error> {
        match self.take_held() {
            Some(id) => Ok(id),
            None => Box::pin(self.next_slowly()).await,
        }
    }

    /// As [`Sequence::try_next`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn try_next(&mut self) -> Result<Option<u64>, Error> {
        match self.take_held() {
            Some(id) => Ok(Some(id)),
            None => self.try_slowly(),
        }
    }

    /// As [`Sequence::next_blocking`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// Inside asynchronous code of tokio's, when it has to wait.
    #[inline]
    pub fn next_blocking(&mut self) -> Result<u64, Error> {
        match self.take_held() {
            Some(id) => Ok(id),
            None => self.next_slowly_blocking(),
        }
    }

    /// As [`Sequence::take`].
    ///
    /// # Errors
    /// As there.
    pub async fn take(&mut self, count: u32) -> Result<Batch, Error> {
        if count == 0 {
            return Err(ErrorKind::CountZero.into());
        }
        let Self { shared, held } = self;
        let (mut batch, mut left) = (Batch::default(), count);
        shared.generator.until_ready(|| shared.fill_held(held, &mut batch, &mut left)).await?;
        Ok(batch)
    }

    /// As [`Sequence::take_blocking`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// Inside asynchronous code of tokio's.
    pub fn take_blocking(&mut self, count: u32) -> Result<Batch, Error> {
        if count == 0 {
            return Err(ErrorKind::CountZero.into());
        }
        let Self { shared, held } = self;
        let (mut batch, mut left) = (Batch::default(), count);
        shared.generator.until_ready_blocking(|| shared.fill_held(held, &mut batch, &mut left))?;
        Ok(batch)
    }

    #[inline]
    fn take_held(&mut self) -> Option<u64> {
        if self.shared.is_own_process() { self.held.take() } else { None }
    }

    async fn next_slowly(&mut self) -> Result<u64, Error> {
        let Self { shared, held } = self;
        shared.generator.until_ready(|| shared.refill_held(held)).await
    }

    #[cold]
    fn try_slowly(&mut self) -> Result<Option<u64>, Error> {
        Ok(self.shared.refill_held(&mut self.held)?.ready())
    }

    #[cold]
    fn next_slowly_blocking(&mut self) -> Result<u64, Error> {
        let Self { shared, held } = self;
        shared.generator.until_ready_blocking(|| shared.refill_held(held))
    }
}

impl std::fmt::Debug for LocalSequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalSequence").field("tag", &self.tag()).finish_non_exhaustive()
    }
}
