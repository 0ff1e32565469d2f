//! A lane: one instance of the core behind a short lock. No call into it waits for anything.
//!
//! A trap ends an instance for good, and so does a panic of the core where it runs natively. The lane then drops it
//! with everything that it was granted, and the next call builds another; generators are opened again as they are used,
//! above what their predecessors may have handed out. Other lanes never notice.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use unalike_core as core;
use unalike_storage::StoreError;

use crate::clock::Time;
use crate::context::IdsCtx;
use crate::error::ENDED;
use crate::instance::{Answer, Instance, Refusal, SequenceLook, SnowflakeLook, Trap};
use crate::metrics::{self, Abandoned};
use crate::requests::{Signal, Storage};
use crate::{Engine, Error, ErrorKind};

/// The pause before a rebuild when a trap follows another; it doubles with each further one. A fault that repeats must
/// not burn a worker id or a segment per call.
const REBUILD_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause: of a fault that stays, a worker a minute is burnt, and each is free again after its horizon.
const REBUILD_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Traps count as one fault until there was none for so long.
const CALM: Duration = Duration::from_secs(10 * 60);

pub(crate) struct Lane {
    /// What each instance's context succeeds.
    origin: IdsCtx,
    engine: Engine,
    clock: Time,
    /// How long a call waits.
    wait_max: Duration,
    inner: Mutex<Inner>,
}

struct Inner {
    instance: Option<Box<dyn Instance>>,
    generators: Vec<Opening>,
    /// Numbers of those that were taken out.
    free: Vec<usize>,
    traps: Traps,
    /// The newest reading of the clock.
    now_ms: u64,
}

/// The traps of one fault, and when the next instance may be built.
#[derive(Debug, Default)]
struct Traps {
    in_a_row: u32,
    last: Option<Instant>,
}

impl Traps {
    fn record(&mut self, now: Instant) {
        let is_same_fault = self.last.is_some_and(|last| now.saturating_duration_since(last) < CALM);
        self.in_a_row = if is_same_fault { self.in_a_row.saturating_add(1) } else { 1 };
        self.last = Some(now);
    }

    /// How long no instance may be built.
    fn pause_left(&self, now: Instant) -> Duration {
        let (Some(last), Some(further @ 1..)) = (self.last, self.in_a_row.checked_sub(1)) else {
            return Duration::ZERO;
        };
        let pause = REBUILD_PAUSE.saturating_mul(1 << (further - 1).min(16)).min(REBUILD_PAUSE_MAX);
        pause.saturating_sub(now.saturating_duration_since(last))
    }
}

/// How a generator is opened, and opened again.
pub(crate) enum Opening {
    Sequence { tag: Arc<str>, options: Arc<core::SequenceOptions> },
    Ordered { tag: Arc<str>, id_max: u64 },
    Snowflake { namespace: Arc<str>, options: Box<core::SnowflakeOptions>, used_until_ms: Arc<AtomicU64> },
}

impl Opening {
    pub(crate) fn name(&self) -> &Arc<str> {
        match self {
            Self::Sequence { tag, .. } | Self::Ordered { tag, .. } => tag,
            Self::Snowflake { namespace, .. } => namespace,
        }
    }

    /// Where a snowflake's spread begins.
    pub(crate) fn seed(&self) -> u64 {
        let Self::Snowflake { options, .. } = self else { return 0 };
        // Without randomness every opening begins its spread at the same place, which costs evenness only.
        getrandom::u64().unwrap_or(options.seed)
    }

    /// No id of it is above this.
    pub(crate) fn id_max(&self) -> u64 {
        match self {
            Self::Sequence { options, .. } => options.id_max,
            Self::Ordered { id_max, .. } => *id_max,
            Self::Snowflake { .. } => core::ID_MAX,
        }
    }

    pub(crate) fn kind(&self) -> GeneratorKind {
        match self {
            Self::Sequence { .. } => GeneratorKind::Sequence,
            Self::Ordered { .. } => GeneratorKind::Ordered,
            Self::Snowflake { .. } => GeneratorKind::Snowflake,
        }
    }
}

/// What is opened by an [`Opening`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum GeneratorKind {
    Sequence,
    Ordered,
    Snowflake,
}

impl GeneratorKind {
    /// For metrics.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Sequence => "sequence",
            Self::Ordered => "ordered",
            Self::Snowflake => "snowflake",
        }
    }
}

/// One call's view of its generator: the instance, and the time, read inside the lane's lock (outside it, scheduling
/// would look like a clock that goes back).
pub(crate) struct Call<'a> {
    instance: &'a mut dyn Instance,
    generator: usize,
    pub(crate) now_ms: u64,
}

impl Call<'_> {
    /// A run of a sequence or a snowflake generator.
    pub(crate) fn reserve(&mut self, max: u32) -> Answer<core::Run> {
        self.instance.reserve(self.generator, self.now_ms, max)
    }

    pub(crate) fn look_at_sequence(&mut self) -> Result<SequenceLook, Trap> {
        self.instance.look_at_sequence(self.generator, self.now_ms)
    }

    pub(crate) fn look_at_snowflake(&mut self) -> Result<SnowflakeLook, Trap> {
        self.instance.look_at_snowflake(self.generator, self.now_ms)
    }

    /// Begins a round of an ordered sequence.
    pub(crate) fn begin(&mut self, count: u32) -> Answer<u64> {
        self.instance.begin(self.generator, self.now_ms, count)
    }

    pub(crate) fn claim(&mut self, round: u64) -> Answer<core::Run> {
        self.instance.claim(self.generator, self.now_ms, round)
    }

    #[cfg(test)]
    pub(crate) fn trap(&mut self) -> Result<(), Trap> {
        self.instance.trap(self.generator)
    }

    /// Ends the generator, which gives back what it can.
    pub(crate) fn close(&mut self) -> Result<(), Trap> {
        self.instance.close(self.generator)
    }

    /// The same for good: nothing stays of it.
    pub(crate) fn end(&mut self, signal: &Signal) -> Result<(), Trap> {
        self.close()?;
        self.instance.remove(self.generator)?;
        self.instance.ids().forget(signal);
        Ok(())
    }
}

impl Lane {
    /// A lane with its first instance.
    pub(crate) fn new(origin: IdsCtx, engine: Engine, clock: Time, wait_max: Duration) -> Result<Self, Error> {
        let instance = Some(engine.instance(origin.successor())?);
        let inner = Inner { instance, generators: Vec::new(), free: Vec::new(), traps: Traps::default(), now_ms: 0 };
        Ok(Self { origin, engine, clock, wait_max, inner: Mutex::new(inner) })
    }

    pub(crate) fn wait_max(&self) -> Duration {
        self.wait_max
    }

    /// What its requests go to.
    pub(crate) fn storage(&self) -> &Arc<Storage> {
        self.origin.storage()
    }

    /// Adds a generator and answers its number. Opening happens at its first call.
    pub(crate) fn add(&self, opening: Opening) -> usize {
        let mut inner = self.lock();
        let Inner { generators, free, .. } = &mut *inner;
        match free.pop().and_then(|number| Some((number, generators.get_mut(number)?))) {
            Some((number, place)) => {
                *place = opening;
                number
            }
            None => {
                generators.push(opening);
                generators.len() - 1
            }
        }
    }

    /// Takes a generator out that has ended in the component, and that nobody calls any more: another one gets its
    /// number.
    pub(crate) fn remove(&self, generator: usize) {
        let mut inner = self.lock();
        let Inner { generators, free, .. } = &mut *inner;
        if let Some(opening) = generators.get_mut(generator) {
            *opening = Opening::Ordered { tag: "".into(), id_max: core::ID_MAX };
            free.push(generator);
        }
    }

    /// Calls the core for one generator.
    pub(crate) fn call<T>(
        &self,
        generator: usize,
        signal: &Signal,
        act: impl FnOnce(&mut Call<'_>) -> Result<T, Trap>,
    ) -> Result<T, Error> {
        let mut inner = self.lock();
        let Inner { instance: home, generators, free: _, traps, now_ms } = &mut *inner;
        if home.is_none() {
            let left = traps.pause_left(Instant::now());
            if !left.is_zero() {
                let name = generators.get(generator).map_or("", |opening| opening.name()).to_owned();
                let retry_after_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
                let reason = format!("it trapped {} times, and is built again in {retry_after_ms} ms", traps.in_a_row);
                return Err(ErrorKind::Rebuilt { name, reason, retry_after_ms }.into());
            }
            *home = Some(self.engine.instance(self.origin.successor())?);
        }
        // Taken out for the call: a panic that unwinds through it leaves no half-used instance behind.
        let (Some(opening), Some(mut instance)) = (generators.get(generator), home.take()) else {
            return Err(ErrorKind::Closed { name: format!("generator {generator}") }.into());
        };
        instance.ids().set_signal(signal);
        let opened = if instance.is_open(generator) {
            Ok(Ok(()))
        } else {
            // What a predecessor held is abandoned.
            signal.set_buffered(0);
            instance.open(generator, opening, signal.floor())
        };
        let outcome = opened.and_then(|opened| match opened {
            Err(refusal) => Ok(Err(opening.refused(&refusal))),
            Ok(()) => {
                let before_ms = std::mem::replace(now_ms, self.clock.now_ms());
                if *now_ms < before_ms {
                    metrics::clock_backward();
                }
                act(&mut Call { instance: &mut *instance, generator, now_ms: *now_ms }).map(Ok)
            }
        });
        match outcome {
            Ok(result) => {
                *home = Some(instance);
                result
            }
            Err(Trap(reason)) => {
                let name = opening.name().to_string();
                tracing::error!(generator = %name, %reason, "the core trapped: its grants are abandoned");
                metrics::lane_rebuilt();
                let now = Instant::now();
                traps.record(now);
                let retry_after_ms = u64::try_from(traps.pause_left(now).as_millis()).unwrap_or(u64::MAX).max(1);
                metrics::grants_abandoned(Abandoned::Trap, instance.count_open());
                Err(ErrorKind::Rebuilt { name, reason, retry_after_ms }.into())
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic during a call left no instance, which is a state like any other.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Opening {
    /// Options that the host had not checked: each is checked before a generator is added, so this is a defect.
    fn refused(&self, refusal: &Refusal) -> Error {
        ErrorKind::Component { reason: format!("it refused to open {:?}: {refusal:?}", self.name()) }.into()
    }
}

/// What a call brought: something, or what to wait for.
#[derive(Debug)]
pub(crate) enum Outcome<T> {
    Ready(T),
    /// An answer of the store is on its way.
    Pending,
    /// Nothing is available for so many milliseconds.
    Wait(u64),
}

impl<T> Outcome<T> {
    /// What it brought, made into something else.
    pub(crate) fn map<U>(self, into: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Ready(value) => Outcome::Ready(into(value)),
            Self::Pending => Outcome::Pending,
            Self::Wait(wait_ms) => Outcome::Wait(wait_ms),
        }
    }

    /// What it brought, if that is not to be waited for.
    pub(crate) fn ready(self) -> Option<T> {
        match self {
            Self::Ready(value) => Some(value),
            Self::Pending | Self::Wait(_) => None,
        }
    }
}

/// The core's answer as an outcome; `name` and `signal` are the generator's.
pub(crate) fn outcome<T>(answer: Result<T, Refusal>, name: &str, signal: &Signal) -> Result<Outcome<T>, ErrorKind> {
    let name = || name.to_owned();
    let error = match answer {
        Ok(value) => return Ok(Outcome::Ready(value)),
        Err(error) => error,
    };
    let kind = match error {
        Refusal::Pending => return Ok(Outcome::Pending),
        Refusal::Wait(wait_ms) => return Ok(Outcome::Wait(wait_ms)),
        Refusal::StoreFailed(retry_after_ms) => {
            let source = signal.last_error();
            // What stays so for longer than a caller waits is told at once.
            let lasting = source.as_deref().is_some_and(|source| {
                matches!(
                    source,
                    StoreError::WorkersExhausted { .. } | StoreError::ClockSkew { .. } | StoreError::Quarantined { .. }
                )
            });
            if retry_after_ms > 0 && !lasting {
                return Ok(Outcome::Wait(retry_after_ms));
            }
            ErrorKind::Store { name: name(), source: source.unwrap_or_else(unsaid) }
        }
        Refusal::ClockMovedBack(behind_ms) => ErrorKind::ClockMovedBack { name: name(), behind_ms },
        Refusal::ClockBeforeEpoch(first_ms) => ErrorKind::ClockBeforeEpoch { name: name(), first_ms },
        Refusal::Exhausted => {
            let by_store = signal.last_error().is_some_and(|said| matches!(*said, StoreError::Exhausted { .. }));
            let id_max = Some(signal.id_max()).filter(|&id_max| id_max < core::ID_MAX && !by_store);
            let what = if by_store {
                ENDED
            } else if id_max.is_some() {
                "no number is left"
            } else {
                "no number, or no timestamp of its layout, is left"
            };
            ErrorKind::Exhausted { name: name(), what, id_max, left: 0 }
        }
        Refusal::GrantRefused(fault) => {
            metrics::grants_abandoned(Abandoned::Refused, 1);
            ErrorKind::GrantRefused { name: name(), source: fault }
        }
        Refusal::Closed => ErrorKind::Closed { name: name() },
        Refusal::Count => ErrorKind::CountZero,
        // Another generator's trap took the instance away in which the round was begun.
        Refusal::Round => {
            ErrorKind::Rebuilt { name: name(), reason: "its round was lost".to_owned(), retry_after_ms: 1 }
        }
        Refusal::Argument(argument) => {
            ErrorKind::Component { reason: format!("it refused an argument that the host had checked: {argument}") }
        }
    };
    Err(kind)
}

/// What a store says whose answers were fine, when the core has no use for them.
pub(crate) fn unsaid() -> Arc<StoreError> {
    Arc::new(StoreError::unavailable("the clock is ahead of every lease".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use unalike_memory::{MemoryOptions, MemoryStore};
    use unalike_storage::{Mode, Segment, SegmentStore, StoreError, TagOptions};

    use super::*;
    use crate::{Clock, Ids, Layout, SequenceOptions, SnowflakeOptions, Spread};

    const ENGINES: &[Engine] = &[
        #[cfg(feature = "wasm")]
        Engine::Component,
        #[cfg(feature = "native")]
        Engine::Native,
    ];

    async fn open(store: &Arc<MemoryStore>, engine: Engine) -> Ids {
        let ids = Ids::builder().segments(store.clone()).leases(store.clone()).engine(engine).lanes(1);
        ids.build().await.unwrap()
    }

    #[tokio::test]
    async fn a_trap_costs_one_retryable_error_and_a_gap() {
        for &engine in ENGINES {
            let store = Arc::new(MemoryStore::default());
            let ids = open(&store, engine).await;
            let orders = ids.sequence("order", SequenceOptions::default()).await.unwrap();
            let flakes = ids.snowflake("default", SnowflakeOptions::new(Layout::TWITTER)).await.unwrap();
            let before =
                (orders.take(10).await.unwrap().iter().last(), flakes.take(5_000).await.unwrap().iter().last());
            let error = orders.trap().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Rebuilt { .. }) && error.is_retryable(), "{error:?}");
            let after = (orders.next().await.unwrap(), flakes.next().await.unwrap());
            assert_eq!(Some(after.0), Some(1_001).max(before.0), "the first segment was abandoned");
            assert!(Some(after.1) > before.1, "and no tick is entered again");
        }
    }

    /// A store that grants from 1 again whenever it is told to, as one that lost its data.
    struct Forgetful {
        inner: MemoryStore,
        forgot: std::sync::atomic::AtomicBool,
    }

    #[async_trait::async_trait]
    impl unalike_storage::SegmentLayer for Forgetful {
        fn below(&self) -> Option<&dyn SegmentStore> {
            Some(&self.inner)
        }

        async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
            let segment = self.inner.allocate(tag, count, at_least).await?;
            if self.forgot.load(Ordering::SeqCst) {
                return Ok(Segment { start: 1, end: 1 + count, ..segment });
            }
            Ok(segment)
        }
    }

    #[tokio::test]
    async fn a_rebuilt_sequence_refuses_what_its_predecessor_was_granted() {
        for &engine in ENGINES {
            for mode in [Mode::Buffered, Mode::Ordered] {
                let store = Arc::new(Forgetful { inner: MemoryStore::default(), forgot: false.into() });
                store.create_tag("order", &TagOptions { mode, ..TagOptions::default() }).await.unwrap();
                let ids = Ids::builder().segments(store.clone()).engine(engine).lanes(1).build().await.unwrap();
                let orders = ids.sequence("order", SequenceOptions::default()).await.unwrap();
                orders.take(10).await.unwrap();
                store.forgot.store(true, Ordering::SeqCst);
                orders.trap().unwrap_err();
                // What an open round or a run in hand still has may come first.
                let error = loop {
                    match orders.next().await {
                        Ok(id) => assert!(id > 10, "{mode:?}: {id} was handed out before"),
                        Err(error) if matches!(error.kind(), ErrorKind::Rebuilt { .. }) => {}
                        Err(error) => break error,
                    }
                };
                assert!(matches!(error.kind(), ErrorKind::GrantRefused { .. }), "{mode:?}: {error:?}");
            }
        }
    }

    #[tokio::test]
    async fn a_rebuilt_sequence_keeps_its_bound() {
        for &engine in ENGINES {
            // What the first instance was granted is abandoned: the whole first segment, if there are segments.
            for (mode, abandoned) in [(Mode::Buffered, 1_000), (Mode::Ordered, 999)] {
                for id_max in [1_005, 999] {
                    let store = Arc::new(MemoryStore::default());
                    store.create_tag("order", &TagOptions { mode, ..TagOptions::default() }).await.unwrap();
                    let ids = open(&store, engine).await;
                    let options = SequenceOptions { id_max: Some(id_max), ..SequenceOptions::default() };
                    let orders = ids.sequence("order", options).await.unwrap();
                    orders.take(if mode == Mode::Buffered { 10 } else { 999 }).await.unwrap();
                    orders.trap().unwrap_err();
                    let mut fresh = Vec::new();
                    let error = loop {
                        match orders.next().await {
                            Ok(id) => fresh.extend(Some(id).filter(|&id| id > abandoned)),
                            Err(error) => break error,
                        }
                    };
                    let ended =
                        matches!(error.kind(), ErrorKind::Exhausted { id_max: Some(said), .. } if *said == id_max);
                    assert!(ended && !error.is_retryable(), "{error:?}");
                    assert!(fresh.iter().copied().eq(abandoned + 1..=id_max), "{mode:?} up to {id_max}: {fresh:?}");
                }
            }
        }
    }

    /// A clock that stands still, so that whatever begins again would begin in the same tick.
    struct Stopped;

    impl Clock for Stopped {
        fn now_ms(&self) -> u64 {
            1_700_000_000_000
        }
    }

    #[tokio::test]
    async fn a_rebuilt_snowflake_begins_at_the_next_tick() {
        for &engine in ENGINES {
            for spread in [Spread::None, Spread::Rotating { bits: 12 }, Spread::Random { bits: 12 }] {
                let options = MemoryOptions { clock: Arc::new(|| Stopped.now_ms()), ..MemoryOptions::default() };
                let store = Arc::new(MemoryStore::new(options));
                let ids = Ids::builder().segments(store.clone()).leases(store).clock(Arc::new(Stopped));
                let ids = ids.engine(engine).lanes(1).build().await.unwrap();
                let orders = ids.sequence("order", SequenceOptions::default()).await.unwrap();
                // A tick that begins near its end holds few ids, and the clock stands still: there must be ticks enough
                // ahead.
                let options =
                    SnowflakeOptions { spread, ahead_max_ms: 10_000, ..SnowflakeOptions::new(Layout::TWITTER) };
                let flakes = ids.snowflake("default", options).await.unwrap();
                let mut last = 0;
                for round in 0..2 {
                    // More than a tick holds.
                    for _ in 0..5_000 {
                        let id = flakes.next().await.unwrap();
                        assert!(id > last, "{spread:?}: {id} after {last}");
                        last = id;
                    }
                    if round == 0 {
                        orders.trap().unwrap_err();
                    }
                }
            }
        }
    }

    #[test]
    fn a_fault_that_stays_is_met_less_and_less_often() {
        // Whoever asks as soon as may be, and whoever asks just too late for that.
        for late in [Duration::ZERO, Duration::from_millis(1_001), Duration::from_secs(59)] {
            let began = Instant::now();
            let (mut traps, mut now, mut built) = (Traps::default(), began, Vec::new());
            while now - began < Duration::from_secs(3_600) {
                traps.record(now);
                now += traps.pause_left(now) + late;
                assert_eq!(traps.pause_left(now), Duration::ZERO);
                built.push(now - began);
                now += Duration::from_millis(1);
            }
            let within = |from: u64, to: u64| {
                built.iter().filter(|at| (Duration::from_secs(from)..Duration::from_secs(to)).contains(at)).count()
            };
            assert!(within(0, 60) <= 7, "{built:?}");
            assert!((30..3_600).step_by(30).all(|from| within(from, from + 60) <= 2), "{built:?}");
        }
        let (mut traps, now) = (Traps::default(), Instant::now());
        for trap in 0..3 {
            traps.record(now + CALM * trap);
            assert_eq!(traps.pause_left(now + CALM * trap), Duration::ZERO, "the first of another fault");
        }
    }

    #[tokio::test]
    async fn a_fault_that_repeats_is_not_rebuilt_at_once() {
        for &engine in ENGINES {
            let store = Arc::new(MemoryStore::default());
            let ids = open(&store, engine).await;
            let orders = ids.sequence("order", SequenceOptions::default()).await.unwrap();
            orders.next().await.unwrap();
            orders.trap().unwrap_err();
            orders.next().await.unwrap();
            let before = Instant::now();
            assert_eq!(orders.trap().unwrap_err().retry_after_ms(), Some(1_000));
            // More than a run in hand may hold.
            match orders.take(10_000).await {
                Err(error) => {
                    assert!(error.is_retryable() && error.retry_after_ms().is_some_and(|ms| ms > 0), "{error:?}");
                }
                Ok(_) => assert!(before.elapsed() >= REBUILD_PAUSE, "it was built again within the pause"),
            }
        }
    }

    /// Counts the readings of the clock while a lane is locked, and while it is not.
    #[derive(Default)]
    struct Readings {
        lane: std::sync::OnceLock<std::sync::Weak<Lane>>,
        locked: AtomicU64,
        unlocked: AtomicU64,
    }

    impl Clock for Readings {
        fn now_ms(&self) -> u64 {
            let lane = self.lane.get().and_then(std::sync::Weak::upgrade);
            let is_locked = lane.is_some_and(|lane| lane.inner.try_lock().is_err());
            if is_locked { &self.locked } else { &self.unlocked }.fetch_add(1, Ordering::SeqCst);
            Stopped.now_ms()
        }
    }

    #[tokio::test]
    async fn the_time_of_a_call_is_read_while_its_lane_is_locked() {
        let clock = Arc::new(Readings::default());
        let store = Arc::new(MemoryStore::default());
        let ids = Ids::builder().segments(store).clock(clock.clone()).lanes(1).build().await.unwrap();
        let orders = ids.sequence("order", SequenceOptions::default()).await.unwrap();
        clock.lane.set(Arc::downgrade(orders.lane())).unwrap();
        let before = clock.unlocked.load(Ordering::SeqCst);
        // Several segments.
        orders.take(5_000).await.unwrap();
        assert!(clock.locked.load(Ordering::SeqCst) > 0);
        assert_eq!(clock.unlocked.load(Ordering::SeqCst), before);
    }

    #[tokio::test]
    async fn a_panic_in_a_call_costs_what_a_trap_does() {
        for &engine in ENGINES {
            let store = Arc::new(MemoryStore::default());
            let ids = open(&store, engine).await;
            let orders = ids.sequence("order", SequenceOptions::default()).await.unwrap();
            let invoices = ids.sequence("invoice", SequenceOptions::default()).await.unwrap();
            let before = (orders.take(10).await.unwrap(), invoices.take(10).await.unwrap());
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| orders.panic()));
            assert!(panicked.is_err());
            for (sequence, before) in [(&orders, before.0), (&invoices, before.1)] {
                let after = sequence.take(10_000).await.unwrap();
                assert!(after.iter().next() > before.iter().last(), "{after:?} after {before:?}");
            }
        }
    }

    /// How many places for generators the lane of a sequence has, and how many bytes its instance.
    fn room(sequence: &crate::Sequence) -> (usize, usize) {
        let lane = sequence.lane();
        let inner = lane.lock();
        let places = inner.generators.len();
        let instance = inner.instance.as_ref().unwrap();
        let bytes = instance.memory();
        (places, bytes)
    }

    #[tokio::test]
    async fn sequences_that_come_and_go_take_no_more_room_than_those_that_are_open() {
        for &engine in ENGINES {
            let store = Arc::new(MemoryStore::default());
            let ids = open(&store, engine).await;
            let kept = ids.sequence("kept", SequenceOptions::default()).await.unwrap();
            let round = async |round: u32| {
                for number in 0..500 {
                    let sequence =
                        ids.sequence(&format!("tag-{round}-{number}"), SequenceOptions::default()).await.unwrap();
                    sequence.take(number % 3 * 200 + 1).await.unwrap();
                }
                let mut closed = 0;
                while closed < 500 {
                    closed += ids.close_idle(Duration::ZERO);
                    tokio::task::yield_now().await;
                }
            };
            round(0).await;
            let (places, bytes) = room(&kept);
            for number in 1..8 {
                round(number).await;
            }
            let (places_after, bytes_after) = room(&kept);
            assert_eq!(places_after, places);
            assert!(bytes_after <= bytes + (64 << 10), "{bytes_after} after {bytes}: a page, as pieces lie");
            assert_eq!(ids.sequences().len(), 1);
        }
    }

    #[tokio::test]
    async fn one_instance_serves_more_than_a_hundred_thousand_tags() {
        for &engine in ENGINES {
            let store = Arc::new(MemoryStore::default());
            let ids = open(&store, engine).await;
            for number in 0..=100_000 {
                let sequence = ids.sequence(&format!("tag-{number}"), SequenceOptions::default()).await.unwrap();
                assert_eq!(sequence.next().await.unwrap(), 1, "of tag {number}");
            }
            let first = ids.sequence_if_open("tag-0").unwrap();
            assert_eq!(first.next().await.unwrap(), 2, "its grant was not abandoned");
        }
    }
}
