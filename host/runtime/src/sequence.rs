//! Sequences: ids under a tag.
//!
//! `next` is served from a run, natively; the component is called once per run, and the size of runs follows demand:
//! one id at a time while ids are asked for now and then (a crash loses none), thousands while runs are used up within
//! a millisecond.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use unalike_core::{AdaptiveStep, ID_MAX, RefillPolicy, Run, SequenceOptions as CoreOptions, StepPolicy};
use unalike_storage::{Mode, Process, SegmentStore, TagOptions, TagRecord, split_tag};

use crate::dispenser::Dispenser;
use crate::error::ENDED;
use crate::generator::{Environment, Generator};
use crate::lane::{Lane, Opening, Outcome};
use crate::ordered::Rounds;
use crate::runs::{HELD_MAX, HeldRun, Kept, RunSize, ThreadRuns, rest_of};
use crate::sync::lock;
use crate::{Batch, Error, ErrorKind};

/// How a tag's sequence works in this process. Options that are not given are taken from the tag's record in the store.
///
/// Releases add fields: write `..SequenceOptions::default()` at the end.
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
#[non_exhaustive]
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
#[non_exhaustive]
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
#[non_exhaustive]
pub struct Supply {
    /// As [`SequenceStatus::issued`].
    pub issued: u64,
    /// Numbers granted to this process and not handed out: they are available while the store is down. 0 for ordered
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

/// A call reads what is before the dispenser's counter and writes the counter. What is behind it is seldom used, and
/// keeps it apart from the next allocation.
#[repr(C)]
pub(crate) struct SequenceShared {
    /// As the generator's, without the way there.
    process: Process,
    kind: Kind,
    generator: Arc<Generator>,
    /// None if nothing was given.
    given: Option<Box<SequenceOptions>>,
    /// Ids that crossed into runs.
    reserved: AtomicU64,
    /// Those of them that are kept: see [`Runs`].
    kept: AtomicU64,
    /// How many were opened before.
    number: u64,
    /// What had been handed out when idleness was looked at last, and since when that is so, in milliseconds;
    /// `u64::MAX` before the first look.
    seen: AtomicU64,
    seen_since_ms: AtomicU64,
}

const _: () = assert!(
    size_of::<SequenceShared>() - std::mem::offset_of!(SequenceShared, generator) + size_of::<u64>() >= 64,
    "a counter shares a cache line with the next allocation"
);

enum Kind {
    /// [`Order::Process`].
    Shared(Dispenser<Refill>),
    /// [`Order::Thread`].
    PerThread(ThreadRuns),
    Ordered(Arc<Rounds>),
}

/// The refill lock, between the dispenser's map and its counter.
#[derive(Default)]
struct Refill {
    runs: Mutex<Runs>,
    _gap: [u64; 3],
}

/// What the refill lock guards.
#[derive(Default)]
struct Runs {
    size: RunSize,
    /// Above what the dispenser has: what calls that wait for more have brought so far. Whoever comes next gets it.
    kept: Kept,
}

/// A sequence whose tag was looked up and that has no place in a lane yet.
pub(crate) struct UnopenedSequence {
    tag: String,
    given: SequenceOptions,
    options: CoreOptions,
    mode: Mode,
}

impl SequenceShared {
    /// Looks the tag up and puts its options together.
    pub(crate) async fn open(
        environment: &Environment,
        tag: &str,
        given: &SequenceOptions,
    ) -> Result<UnopenedSequence, Error> {
        let name = || tag.to_owned();
        let looked_up = name();
        let open = |store: Arc<dyn SegmentStore>| async move {
            let record = store.open_tag(&looked_up).await?;
            Ok((store, record))
        };
        let (store, record) = environment.ask_segments(tag, open).await?;
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
        Ok(UnopenedSequence { tag: name(), given: *given, options, mode })
    }

    pub(crate) fn name(&self) -> &str {
        &self.generator.name
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether it has handed out nothing for this long, and waits for nothing. Each call is a look.
    pub(crate) fn is_idle(&self, now: Duration, idle: Duration) -> bool {
        let (issued, now_ms) = (self.supply().issued, millis(now));
        let before = self.seen.swap(issued, Ordering::Relaxed);
        let mut since_ms = self.seen_since_ms.load(Ordering::Relaxed);
        if before != issued || since_ms == u64::MAX {
            since_ms = now_ms;
            self.seen_since_ms.store(now_ms, Ordering::Relaxed);
        }
        !self.is_used() && now_ms.saturating_sub(since_ms) >= millis(idle)
    }

    /// Whether a request is out, or a task follows the rounds of callers, who may have gone away.
    pub(crate) fn is_used(&self) -> bool {
        self.generator.signal.is_waiting() || Arc::strong_count(&self.generator) > 1
    }

    /// Ends it for good: nobody else has it.
    pub(crate) fn end(self) {
        self.generator.end();
    }

    pub(crate) fn stop(&self) {
        self.generator.stop();
    }

    pub(crate) fn close(&self) {
        self.generator.close();
    }

    /// One run straight from the core.
    fn reserve(&self, max: impl FnOnce(u64) -> u32) -> Result<Outcome<Run>, Error> {
        let answer = self.generator.call(|call| {
            let answer = call.reserve(max(call.now_ms))?;
            if let Ok(run) = &answer {
                self.generator.signal.take_buffered(u64::from(run.count));
            }
            Ok(answer)
        })?;
        let outcome = self.generator.outcome(answer)?;
        if let Outcome::Ready(run) = &outcome {
            self.reserved.fetch_add(u64::from(run.count), Ordering::Relaxed);
        }
        Ok(outcome)
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
            Kind::Shared(dispenser) => dispenser.take().map_err(Some),
            Kind::PerThread(held) => held.take().ok_or(None),
            Kind::Ordered(_) => Err(None),
        }
    }

    /// An id from a fresh run, whose rest goes where the last one's was. Ordered sequences have none.
    #[cold]
    fn refill(&self, position: Option<u64>) -> Result<Outcome<u64>, Error> {
        self.generator.check_process()?;
        match &self.kind {
            Kind::Shared(dispenser) => self.refill_shared(dispenser, position),
            Kind::PerThread(held) => held.with(|held| self.refill_held(held)),
            Kind::Ordered(_) => Ok(Outcome::Pending),
        }
    }

    fn refill_shared(&self, dispenser: &Dispenser<Refill>, position: Option<u64>) -> Result<Outcome<u64>, Error> {
        let mut runs = lock(&dispenser.between.runs);
        let Runs { size, kept } = &mut *runs;
        if self.is_own_process() {
            // Somebody else may have brought a run while this thread waited for the lock.
            if let Some(id) = position.and_then(|position| dispenser.redeem(position)) {
                return Ok(Outcome::Ready(id));
            }
            if let Ok(id) = dispenser.take() {
                return Ok(Outcome::Ready(id));
            }
            if let Some(run) = kept.pop() {
                self.kept.store(kept.count(), Ordering::Relaxed);
                install_rest(dispenser, run, 1);
                return Ok(Outcome::Ready(run.first));
            }
        }
        Ok(self.reserve_by(size, 1)?.map(|run| {
            install_rest(dispenser, run, 1);
            run.first
        }))
    }

    /// The same for a run that nobody else takes from.
    fn refill_held(&self, held: &mut HeldRun) -> Result<Outcome<u64>, Error> {
        if self.is_own_process()
            && let Some(id) = held.take_ahead()
        {
            return Ok(Outcome::Ready(id));
        }
        Ok(self.reserve_by(held.size(), 1)?.map(|run| {
            if let Some(rest) = rest_of(run, 1) {
                held.push(rest);
            }
            run.first
        }))
    }

    /// So many ids: first what is left of the last run, so that they never go down, then fresh ones. While they are not
    /// enough nobody has them: a call that gives up leaves them to the next.
    fn fill(&self, count: u32) -> Result<Outcome<Batch>, Error> {
        self.generator.check_process()?;
        match &self.kind {
            Kind::Shared(dispenser) => {
                let mut runs = lock(&dispenser.between.runs);
                let filled = self.fill_shared(dispenser, &mut runs, count);
                self.kept.store(runs.kept.count(), Ordering::Relaxed);
                filled
            }
            Kind::PerThread(held) => held.with(|held| self.fill_held(held, count)),
            Kind::Ordered(_) => Ok(Outcome::Pending),
        }
    }

    fn fill_shared(&self, dispenser: &Dispenser<Refill>, runs: &mut Runs, count: u32) -> Result<Outcome<Batch>, Error> {
        let Runs { size, kept } = runs;
        if let Some(run) = dispenser.take_run(count) {
            // If these are not enough, the dispenser has no more, and nobody had any of those that are kept.
            kept.push_first(run);
        }
        while kept.count() < u64::from(count) {
            let lacking = u64::from(count) - kept.count();
            match self.reserve_by(size, lacking).map_err(|error| error.with_left(kept.count()))? {
                Outcome::Ready(run) => kept.push(run),
                Outcome::Pending => return Ok(Outcome::Pending),
                Outcome::Wait(wait_ms) => return Ok(Outcome::Wait(wait_ms)),
            }
        }
        let (mut batch, mut left) = (Batch::default(), count);
        kept.take(&mut batch, &mut left);
        if dispenser.left() == 0
            && let Some(rest) = kept.pop()
        {
            dispenser.install(rest);
        }
        Ok(Outcome::Ready(batch))
    }

    fn fill_held(&self, held: &mut HeldRun, count: u32) -> Result<Outcome<Batch>, Error> {
        self.generator.check_process()?;
        while held.count() < u64::from(count) {
            let lacking = u64::from(count) - held.count();
            match self.reserve_by(held.size(), lacking).map_err(|error| error.with_left(held.count()))? {
                Outcome::Ready(run) => held.push(run),
                Outcome::Pending => return Ok(Outcome::Pending),
                Outcome::Wait(wait_ms) => return Ok(Outcome::Wait(wait_ms)),
            }
        }
        let (mut batch, mut left) = (Batch::default(), count);
        held.take_batch(&mut batch, &mut left);
        Ok(Outcome::Ready(batch))
    }

    /// A run as demand has it, or as long as what is lacking.
    fn reserve_by(&self, size: &mut RunSize, lacking: u64) -> Result<Outcome<Run>, Error> {
        let lacking = u32::try_from(lacking).unwrap_or(HELD_MAX).min(HELD_MAX);
        let mut adapted = *size;
        let outcome = self.reserve(|now_ms| adapted.adapt(now_ms).max(lacking))?;
        if matches!(outcome, Outcome::Ready(_)) {
            // Waiting for the store is no demand.
            *size = adapted;
        }
        Ok(outcome)
    }

    /// What the runs that all threads share have left.
    fn left_in_runs(&self) -> u64 {
        let Kind::Shared(dispenser) = &self.kind else { return 0 };
        self.kept.load(Ordering::Relaxed) + dispenser.left()
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
        let in_run = self.left_in_runs();
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
            Kind::Shared(_) | Kind::PerThread(_) => self.generator.call(|call| {
                let status = call.look_at_sequence()?;
                self.generator.signal.set_buffered(status.remaining);
                Ok(status)
            })?,
        };
        let left = self.left_in_runs();
        Ok(SequenceStatus {
            issued: reserved.saturating_sub(left),
            remaining: status.remaining,
            step: status.step,
            in_flight: status.in_flight,
            waits: self.generator.waits.load(Ordering::Relaxed),
        })
    }
}

/// The tag's step, or at most a 64th of the numbers below a bound: a process that takes a thousand numbers at once
/// would leave nothing of a hundred to the others, nor to itself after a crash.
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

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Refuses a bound that every number to come lies above.
fn check_room(store: &dyn SegmentStore, record: TagRecord, id_max: u64) -> Result<(), Error> {
    let TagRecord { tag: name, options, watermark, .. } = record;
    let start = options.start;
    // The watermark of stripes is the greatest of theirs, and the others may be behind.
    let passed = if store.stripes() > 1 { start.saturating_sub(1) } else { watermark };
    if passed >= ID_MAX {
        return Err(ErrorKind::Exhausted { name, what: ENDED, id_max: None, left: 0 }.into());
    }
    if passed < id_max { Ok(()) } else { Err(ErrorKind::IdMaxReached { name, id_max, start, watermark }.into()) }
}

/// Installs what a run holds beyond the ids that were used already.
fn install_rest(dispenser: &Dispenser<Refill>, run: Run, used: u32) {
    if let Some(rest) = rest_of(run, used) {
        dispenser.install(rest);
    }
}

impl UnopenedSequence {
    pub(crate) fn add(self, lane: Arc<Lane>, environment: &Environment, number: u64) -> SequenceShared {
        let Self { tag, given, options, mode } = self;
        let tag: Arc<str> = tag.into();
        let (opening, kind) = match mode {
            Mode::Buffered => (
                Opening::Sequence { tag: Arc::clone(&tag), options: environment.alike(options) },
                match given.order.unwrap_or_default() {
                    Order::Process => Kind::Shared(Dispenser::around(Refill::default())),
                    Order::Thread => Kind::PerThread(ThreadRuns::new()),
                },
            ),
            Mode::Ordered => {
                (Opening::Ordered { tag: Arc::clone(&tag), id_max: options.id_max }, Kind::Ordered(Arc::default()))
            }
        };
        let generator = Arc::new(Generator::new(lane, opening, None));
        let given = (given != SequenceOptions::default()).then(|| Box::new(given));
        SequenceShared {
            generator,
            given,
            kind,
            reserved: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            process: environment.storage.process,
            number,
            seen: AtomicU64::new(0),
            seen_since_ms: AtomicU64::new(u64::MAX),
        }
    }
}

impl Sequence {
    pub(crate) fn of(shared: Arc<SequenceShared>) -> Self {
        Self { shared }
    }

    /// Another handle of an open sequence, if it was opened alike.
    pub(crate) fn again(open: &Arc<SequenceShared>, options: &SequenceOptions) -> Result<Self, Error> {
        let default = SequenceOptions::default();
        if *options != default && *options != *open.given.as_deref().unwrap_or(&default) {
            return Err(ErrorKind::OpenOtherwise { name: open.generator.name.to_string() }.into());
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

    /// How many sequences this process had opened before it. Numbers are never used again.
    #[must_use]
    pub fn opened_as(&self) -> u64 {
        self.shared.number
    }

    /// A handle that does not keep it open: see [`Ids::close_idle`](crate::Ids::close_idle).
    #[must_use]
    pub fn downgrade(&self) -> WeakSequence {
        WeakSequence { shared: Arc::downgrade(&self.shared) }
    }

    /// How callers are served.
    #[must_use]
    pub fn mode(&self) -> Mode {
        match self.shared.kind {
            Kind::Shared(_) | Kind::PerThread(_) => Mode::Buffered,
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
    /// An ordered sequence has none without waiting: each of its ids is a request to the store.
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

    /// [`Sequence::next`] for threads that run no asynchronous code. The `Ids` may have been built anywhere, and its
    /// runtime may have ended.
    ///
    /// # Errors
    /// As [`Sequence::next`].
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
    /// [`ErrorKind::CountZero`] and as [`Sequence::next`]. In buffered mode a call that fails, or is dropped while it
    /// waits, loses no id: what had come for it goes to the next call. So a call that takes more than the store grants
    /// within `wait_max` succeeds after some tries.
    pub async fn take(&self, count: u32) -> Result<Batch, Error> {
        if let Some(batch) = self.take_native(count)? {
            return Ok(batch);
        }
        let generator = &self.shared.generator;
        match &self.shared.kind {
            Kind::Ordered(rounds) => rounds.take(generator, count).await,
            Kind::Shared(_) | Kind::PerThread(_) => generator.until_ready(|| self.shared.fill(count)).await,
        }
    }

    /// [`Sequence::take`] for threads that run no asynchronous code.
    ///
    /// # Errors
    /// As [`Sequence::take`].
    ///
    /// # Panics
    /// Inside asynchronous code of tokio's.
    pub fn take_blocking(&self, count: u32) -> Result<Batch, Error> {
        if let Some(batch) = self.take_native(count)? {
            return Ok(batch);
        }
        let generator = &self.shared.generator;
        match &self.shared.kind {
            Kind::Ordered(rounds) => generator.block_on(rounds.take(generator, count)),
            Kind::Shared(_) | Kind::PerThread(_) => generator.until_ready_blocking(|| self.shared.fill(count)),
        }
    }

    /// The two figures that tell how long it lasts, without a call into the component.
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

    #[cfg(test)]
    pub(crate) fn lane(&self) -> &Arc<Lane> {
        self.shared.generator.lane()
    }

    /// What a defect of the component would do.
    #[cfg(test)]
    pub(crate) fn trap(&self) -> Result<(), Error> {
        self.shared.generator.call(|call| call.trap())
    }

    /// What a defect of this library, or of a clock that was given to it, would do.
    #[cfg(test)]
    pub(crate) fn panic(&self) -> Result<(), Error> {
        self.shared.generator.call(|_| panic!("a panic that is expected"))
    }

    /// The whole batch, if the run in hand has as much.
    fn take_native(&self, count: u32) -> Result<Option<Batch>, Error> {
        if count == 0 {
            return Err(ErrorKind::CountZero.into());
        }
        let Kind::Shared(dispenser) = &self.shared.kind else { return Ok(None) };
        let run = if self.shared.is_own_process() { dispenser.take_exactly(count) } else { None };
        Ok(run.map(Batch::from))
    }

    async fn next_slowly(&self, position: Option<u64>) -> Result<u64, Error> {
        match &self.shared.kind {
            Kind::Ordered(rounds) => rounds.next(&self.shared.generator).await,
            Kind::Shared(_) | Kind::PerThread(_) => {
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
            Kind::Shared(_) | Kind::PerThread(_) => generator.until_ready_blocking(|| self.shared.refill(position)),
        }
    }
}

impl std::fmt::Debug for Sequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sequence").field("tag", &self.tag()).field("mode", &self.mode()).finish_non_exhaustive()
    }
}

/// A handle of a [`Sequence`] that does not keep it open while it is idle, for programs that watch it.
///
/// ```
/// # use std::sync::Arc;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), unalike::Error> {
/// # let store = Arc::new(unalike_memory::MemoryStore::default());
/// # let ids = unalike::Ids::builder().segments(store).build().await?;
/// let watched = ids.sequence("order", Default::default()).await?.downgrade();
/// assert!(watched.upgrade().is_some());
/// ids.close_idle(Duration::ZERO);
/// assert!(watched.upgrade().is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct WeakSequence {
    shared: Weak<SequenceShared>,
}

impl WeakSequence {
    /// The sequence, unless it was closed as idle.
    #[must_use]
    pub fn upgrade(&self) -> Option<Sequence> {
        self.shared.upgrade().map(Sequence::of)
    }
}

impl std::fmt::Debug for WeakSequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WeakSequence").field(&self.upgrade()).finish()
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
    /// As [`Sequence::next`].
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
    /// As [`Sequence::try_next`].
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
    /// As [`Sequence::next_blocking`].
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
    /// As [`Sequence::take`].
    pub async fn take(&mut self, count: u32) -> Result<Batch, Error> {
        if count == 0 {
            return Err(ErrorKind::CountZero.into());
        }
        let Self { shared, held } = self;
        shared.generator.until_ready(|| shared.fill_held(held, count)).await
    }

    /// As [`Sequence::take_blocking`].
    ///
    /// # Errors
    /// As [`Sequence::take_blocking`].
    ///
    /// # Panics
    /// Inside asynchronous code of tokio's.
    pub fn take_blocking(&mut self, count: u32) -> Result<Batch, Error> {
        if count == 0 {
            return Err(ErrorKind::CountZero.into());
        }
        let Self { shared, held } = self;
        shared.generator.until_ready_blocking(|| shared.fill_held(held, count))
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
