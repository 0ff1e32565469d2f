//! Snowflakes: ids of a timestamp, a worker and a sequence, under a lease.
//!
//! The component hands out the rest of a tick as one run; the host hands its ids out while the clock is in that tick,
//! and drops what is left when the clock has moved on, so that an id's timestamp is the time of its issue (ahead of it
//! by the option `ahead_max_ms` at most, and by what the policy keeps of a clock that went back; behind it by the time
//! for which a thread stands still between reading the clock and taking its id). An id costs a reading of the clock and
//! an atomic addition.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use unalike_core::{ClockPolicy, Run, SnowflakeOptions};
use unalike_storage::Process;

use crate::clock::Time;

use crate::dispenser::{Dispenser, Mapping};
use crate::generator::{Environment, Generator};
use crate::instance::{Refusal, SnowflakeLook, Trap};
use crate::lane::{self, Opening, Outcome};
use crate::lease_watch::LeaseWatch;
use crate::runs::rest_of;
use crate::sync::lock;
use crate::{Batch, Error, ErrorKind, Layout};

/// Figures of an open snowflake generator, for metrics.
///
/// ```
/// use unalike::{Layout, SnowflakeOptions};
/// # use std::sync::Arc;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = Arc::new(unalike_memory::MemoryStore::default());
/// # let ids = unalike::Ids::builder().leases(store).build().await?;
/// let flakes = ids.snowflake("default", SnowflakeOptions::new(Layout::TWITTER)).await?;
/// flakes.next().await?;
/// let status = flakes.status()?;
/// assert!(status.worker.is_some() && status.used_until_ms <= status.valid_until_ms);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnowflakeStatus {
    /// Ids that were handed out by this process since the generator was opened.
    pub issued: u64,
    /// The worker under lease.
    pub worker: Option<u32>,
    /// The end of the lease, in Unix milliseconds; 0 without one.
    pub valid_until_ms: u64,
    /// The end of the greatest tick used, in Unix milliseconds; 0 before the first.
    pub used_until_ms: u64,
    /// Whether a request to the lease store is under way.
    pub in_flight: bool,
    /// Calls that had to wait for a lease or for the next tick.
    pub waits: u64,
    /// Calls that ended with an error and no id.
    pub refused: u64,
    /// Until when the lease store was granted the lease, in Unix milliseconds: `valid_until_ms`, or later where the
    /// store hands a long lease out in short pieces. This is how long ids survive an outage of the underlying store.
    pub reach_ms: u64,
    /// How far the newest timestamp is ahead of the clock, in milliseconds: under load as far as `ahead_max_ms` allows,
    /// and more only after the clock went back. 0 if it is not.
    pub ahead_ms: u64,
}

/// The snowflake ids of one lease namespace. Clone it freely: all clones, and all threads, share one worker.
///
/// Ids ascend within the process under each worker; it takes another one only after its clock was ahead of true time
/// by more than a horizon. No id is handed out twice in its namespace, whatever the clocks do.
///
/// ```
/// use unalike::{Layout, SnowflakeOptions};
/// # use std::sync::Arc;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = Arc::new(unalike_memory::MemoryStore::default());
/// # let ids = unalike::Ids::builder().leases(store).build().await?;
/// let flakes = ids.snowflake("default", SnowflakeOptions::new(Layout::TWITTER)).await?;
/// let (first, second) = (flakes.next().await?, flakes.next().await?);
/// assert!(first < second);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Snowflake {
    shared: Arc<SnowflakeShared>,
}

pub(crate) struct SnowflakeShared {
    /// As the generator's, without the way there.
    process: Process,
    generator: Generator,
    /// What stands between it and its ids; the generator's errors tell it.
    lease_watch: Arc<LeaseWatch>,
    options: SnowflakeOptions,
    clock: Time,
    /// The end of the greatest tick that a run came from: where a rebuilt component begins.
    used_until_ms: Arc<AtomicU64>,
    /// The run of the newest tick, what is left of it.
    dispenser: Dispenser,
    /// While which times the run is handed out: from the time of the call that brought it, or as much before as the
    /// clock policy keeps, to the end of its tick.
    from_ms: AtomicU64,
    until_ms: AtomicU64,
    /// Held while a run is brought; ids that crossed into runs so far.
    refill: Mutex<u64>,
    /// Whether a task waits for the answer of a renewal.
    is_followed: AtomicBool,
    /// Whether the generator could not be looked after last time.
    renewal_fails: AtomicBool,
}

impl SnowflakeShared {
    pub(crate) fn open(environment: &Environment, namespace: &str, options: SnowflakeOptions) -> Self {
        let (used_until_ms, lease_watch) = (Arc::new(AtomicU64::new(0)), Arc::new(LeaseWatch::default()));
        let opening = Opening::Snowflake {
            namespace: namespace.into(),
            options: options.into(),
            used_until_ms: Arc::clone(&used_until_ms),
        };
        Self {
            process: environment.storage.process,
            generator: Generator::new(environment.lane(namespace), opening, Some(Arc::clone(&lease_watch))),
            lease_watch,
            options,
            clock: environment.clock.clone(),
            used_until_ms,
            dispenser: Dispenser::new(),
            from_ms: AtomicU64::new(0),
            until_ms: AtomicU64::new(0),
            refill: Mutex::new(0),
            is_followed: AtomicBool::new(false),
            renewal_fails: AtomicBool::new(false),
        }
    }

    pub(crate) fn stop(&self) {
        self.generator.stop();
    }

    pub(crate) fn close(&self) {
        // Nobody brings another run meanwhile. What is left of the last one may still be handed out by a thread that
        // came before: the lease ends after the last tick that a run came from.
        let _refilling = lock(&self.refill);
        self.generator.close();
    }

    /// Has the core renew what is due, and says how things stand, and when that was.
    fn renewed(&self) -> Result<(SnowflakeLook, u64), Error> {
        self.generator.call(|call| {
            let status = call.look_at_snowflake()?;
            self.look_at(&status, call.now_ms);
            Ok((status, call.now_ms))
        })
    }

    /// Waits for the answer of the request that is under way.
    async fn follow(&self) {
        let (signal, storage) = (&self.generator.signal, self.generator.storage());
        // Listening begins before the look: an answer in between is not missed.
        let answered = signal.answered();
        if signal.is_waiting() {
            // A request ends in that time.
            let _ = storage.executor.timeout(storage.request_timeout, answered).await;
        }
        self.is_followed.store(false, Ordering::Release);
        // What is wrong with it, calls will tell.
        let _ = self.renewed();
    }

    /// Notices that the lease has ended, or that there is another.
    fn look_at(&self, status: &SnowflakeLook, now_ms: u64) {
        let (Generator { name, signal, .. }, lease_watch) = (&self.generator, &self.lease_watch);
        if let Some(worker) = status.worker {
            lease_watch.looked_at(name, (worker, status.valid_until_ms), now_ms, || signal.last_error());
        }
    }

    /// Why there is no id now; nothing is taken.
    fn check(&self) -> Result<(), Error> {
        if self.is_time() && self.dispenser.left() > 0 {
            return Ok(());
        }
        let (status, _) = self.renewed()?;
        let Some(blocked) = status.blocked else { return Ok(()) };
        let (name, source) = (self.generator.name.to_string(), self.generator.signal.last_error());
        let kind = match blocked {
            Refusal::Pending => ErrorKind::Timeout { name, waited_ms: 0, source },
            // The store's own words, whether it is worth waiting or not.
            Refusal::StoreFailed(_) => ErrorKind::Store { name, source: source.unwrap_or_else(lane::unsaid) },
            // A tick that is used up is followed by the next.
            Refusal::Wait(wait_ms) if wait_ms <= u64::from(self.options.layout.tick_ms()) => return Ok(()),
            Refusal::Wait(wait_ms) => ErrorKind::NotYet { name, wait_ms },
            other => match lane::outcome::<()>(Err(other), &name, &self.generator.signal) {
                Ok(_) => return Ok(()),
                Err(kind) => kind,
            },
        };
        Err(self.generator.explained(kind))
    }

    /// Whether it is the time of the run in hand, and the generator may be used.
    #[inline]
    fn is_time(&self) -> bool {
        self.time_mapping().is_some()
    }

    /// How the run in hand maps positions, under the same conditions.
    #[inline]
    fn time_mapping(&self) -> Option<Mapping> {
        // The end first: if it is a new run's, so is what the dispenser shows afterwards. The clock last, as it takes
        // longest and would have the rest wait.
        let until_ms = self.until_ms.load(Ordering::Acquire);
        let mapping = self.dispenser.mapping();
        let from_ms = self.from_ms.load(Ordering::Relaxed);
        let is_open = self.process.is_current() && !self.generator.is_closed();
        let now_ms = self.clock.now_ms();
        (from_ms <= now_ms && now_ms < until_ms && is_open).then_some(mapping)
    }

    /// An id of the run in hand; else the position that was taken in vain, if one was.
    #[inline]
    fn take_native(&self) -> Result<u64, Option<u64>> {
        match self.time_mapping() {
            Some(mapping) => self.dispenser.take_of(mapping).map_err(Some),
            None => Err(None),
        }
    }

    /// At least one id and at most `max`, from the run in hand or from the next one.
    #[cold]
    fn reserve(&self, position: Option<u64>, max: u32) -> Result<Outcome<Run>, Error> {
        self.generator.check_process()?;
        let mut reserved = lock(&self.refill);
        // Somebody else may have brought a run while this thread waited for the lock.
        if let Some(first) = position.and_then(|position| self.dispenser.redeem(position)) {
            return Ok(Outcome::Ready(Run { first, stride: 1, count: 1 }));
        }
        // The clock is read inside the lock, so that waiting for it does not look like a clock that goes back.
        if self.is_time()
            && let Some(run) = self.dispenser.take_run(max)
        {
            return Ok(Outcome::Ready(run));
        }
        let layout = &self.options.layout;
        let (Generator { name, .. }, lease_watch) = (&self.generator, &self.lease_watch);
        let (asked_ms, answer) = self.generator.call(|call| {
            // The whole rest of the tick: what is not used in time is worth nothing later.
            let answer = call.reserve(u32::MAX)?;
            let run = match answer {
                Ok(run) => run,
                Err(error) => {
                    match error {
                        Refusal::ClockMovedBack(behind_ms) => {
                            lease_watch.clock_moved_back(name, behind_ms, call.now_ms);
                        }
                        Refusal::Wait(_) => lease_watch.lease_runs(name, call.now_ms),
                        _ => self.look_at(&call.look_at_snowflake()?, call.now_ms),
                    }
                    return Ok((call.now_ms, Err(error)));
                }
            };
            // Recorded before anything can take this instance's place.
            let parts = layout.unpack(run.first).map_err(|error| Trap(format!("its run is no id: {error}")))?;
            let until_ms = layout.tick_start_ms(parts.ticks.saturating_add(1));
            // With another worker, after a clock that was far ahead, it goes down: a component that takes this one's
            // place begins there too. Runs are brought one at a time, so nobody writes between.
            self.used_until_ms.store(until_ms, Ordering::Relaxed);
            lease_watch.stamped(name, parts.worker, until_ms);
            lease_watch.brought_ids(name, call.now_ms);
            Ok((call.now_ms, Ok((run, until_ms))))
        })?;
        let (run, until_ms) = match self.generator.outcome(answer)? {
            Outcome::Ready(ready) => ready,
            Outcome::Pending => return Ok(Outcome::Pending),
            Outcome::Wait(wait_ms) => return Ok(Outcome::Wait(wait_ms)),
        };
        let used = run.count.min(max);
        // Also where no run takes its place: what is left of an earlier tick must not come after this one's.
        *reserved -= self.dispenser.drop_run();
        if let Some(rest) = rest_of(run, used) {
            self.dispenser.install(rest);
            // A clock that goes back as far as the policy bridges finds the run still in hand: the last tick is kept.
            let kept_ms = match self.options.clock {
                ClockPolicy::Keep { max_ms } => max_ms,
                ClockPolicy::Reject | ClockPolicy::Wait { .. } => 0,
            };
            self.from_ms.store(asked_ms.saturating_sub(kept_ms), Ordering::Release);
            self.until_ms.store(until_ms, Ordering::Release);
        }
        *reserved += u64::from(run.count);
        Ok(Outcome::Ready(Run { count: used, ..run }))
    }
}

impl Snowflake {
    pub(crate) fn of(shared: Arc<SnowflakeShared>) -> Self {
        Self { shared }
    }

    /// Another handle of an open generator, if it was opened alike.
    pub(crate) fn again(open: &Arc<SnowflakeShared>, options: &SnowflakeOptions) -> Result<Self, Error> {
        if *options != open.options {
            return Err(ErrorKind::OpenOtherwise { name: open.generator.name.to_string() }.into());
        }
        Ok(Self { shared: Arc::clone(open) })
    }

    /// The lease namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.shared.generator.name
    }

    /// The layout of the ids.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.shared.options.layout
    }

    /// The next id. Waits, if need be, for a lease or for the next tick, up to the builder's `wait_max`.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn next(&self) -> Result<u64, Error> {
        match self.shared.take_native() {
            Ok(id) => Ok(id),
            // Boxed, so that the future of a call that does not wait is a word or two.
            Err(position) => Box::pin(self.next_slowly(position)).await,
        }
    }

    /// The next id if there is one without waiting; if there is none, what is missing has been asked for.
    ///
    /// # Errors
    /// [`Error`].
    pub fn try_next(&self) -> Result<Option<u64>, Error> {
        match self.shared.take_native() {
            Ok(id) => Ok(Some(id)),
            Err(position) => self.try_slowly(position),
        }
    }

    /// [`Snowflake::next`] for threads that run no asynchronous code.
    ///
    /// # Errors
    /// As [`Snowflake::next`].
    ///
    /// # Panics
    /// Inside asynchronous code of tokio's, when it has to wait.
    pub fn next_blocking(&self) -> Result<u64, Error> {
        match self.shared.take_native() {
            Ok(id) => Ok(id),
            Err(position) => self.next_slowly_blocking(position),
        }
    }

    /// The next `count` ids (1 or more), in ascending order, over as many ticks as it takes.
    ///
    /// # Errors
    /// [`ErrorKind::CountZero`] and as [`Snowflake::next`]. Ids that it had when it failed are a gap.
    pub async fn take(&self, count: u32) -> Result<Batch, Error> {
        if count == 0 {
            return Err(ErrorKind::CountZero.into());
        }
        let (mut batch, mut left) = (Batch::default(), count);
        while left > 0 {
            let run = match self.take_run_native(left) {
                Some(run) => run,
                None => self.shared.generator.until_ready(|| self.shared.reserve(None, left)).await?,
            };
            batch.add(run, &mut left);
        }
        Ok(batch)
    }

    /// [`Snowflake::take`] for threads that run no asynchronous code.
    ///
    /// # Errors
    /// As [`Snowflake::take`].
    ///
    /// # Panics
    /// Inside asynchronous code of tokio's.
    pub fn take_blocking(&self, count: u32) -> Result<Batch, Error> {
        if count == 0 {
            return Err(ErrorKind::CountZero.into());
        }
        let (mut batch, mut left) = (Batch::default(), count);
        while left > 0 {
            let run = match self.take_run_native(left) {
                Some(run) => run,
                None => self.shared.generator.until_ready_blocking(|| self.shared.reserve(None, left))?,
            };
            batch.add(run, &mut left);
        }
        Ok(batch)
    }

    /// Whether an id could be issued now, without taking one; if not, why not. For a service that reports whether it is
    /// ready.
    ///
    /// It never waits, and asks the lease store for what is due. Ids in hand count, and so does a tick that is used up
    /// while the next one is near enough.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use unalike::{Ids, Layout, SnowflakeOptions};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), unalike::Error> {
    /// # let store = Arc::new(unalike_memory::MemoryStore::default());
    /// # let ids = Ids::builder().leases(store).build().await?;
    /// let flakes = ids.snowflake("default", SnowflakeOptions::new(Layout::TWITTER)).await?;
    /// assert!(flakes.check().is_err()); // there is no lease yet: it is asked for now
    /// flakes.next().await?;
    /// flakes.check()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Snowflake::next`], at once: [`ErrorKind::Timeout`] while the lease store has not answered.
    pub fn check(&self) -> Result<(), Error> {
        self.shared.check()
    }

    /// Figures for metrics.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`], [`ErrorKind::Rebuilt`].
    pub fn status(&self) -> Result<SnowflakeStatus, Error> {
        let (status, now_ms) = self.shared.renewed()?;
        let generator = &self.shared.generator;
        let reach_ms = status.worker.zip(generator.storage().leases.as_ref());
        let reach_ms = reach_ms.and_then(|(worker, store)| store.reach_ms(&generator.name, worker));
        let newest_ms = status.used_until_ms.saturating_sub(u64::from(self.layout().tick_ms()));
        Ok(SnowflakeStatus {
            issued: lock(&self.shared.refill).saturating_sub(self.shared.dispenser.left()),
            refused: generator.refused.load(Ordering::Relaxed),
            reach_ms: reach_ms.unwrap_or(status.valid_until_ms),
            ahead_ms: newest_ms.saturating_sub(now_ms),
            worker: status.worker,
            valid_until_ms: status.valid_until_ms,
            used_until_ms: status.used_until_ms,
            in_flight: status.in_flight,
            waits: generator.waits.load(Ordering::Relaxed),
        })
    }

    /// Asks for what is due, and takes the answer in as soon as it comes: with the next call it could come after the
    /// end of the lease that it prolongs.
    pub(crate) fn renew(&self) {
        let looked = self.shared.renewed();
        let failed_before = self.shared.renewal_fails.swap(looked.is_err(), Ordering::Relaxed);
        match looked {
            Ok((status, _)) => {
                if status.in_flight && !self.shared.is_followed.swap(true, Ordering::AcqRel) {
                    let shared = Arc::clone(&self.shared);
                    let storage = self.shared.generator.storage();
                    storage.executor.spawn(async move { shared.follow().await });
                }
            }
            // Those that follow say the same.
            Err(_) if failed_before => {}
            Err(error) => tracing::warn!(%error, "a lease was not renewed"),
        }
    }

    /// Up to `max` ids of the run in hand.
    fn take_run_native(&self, max: u32) -> Option<Run> {
        if self.shared.is_time() { self.shared.dispenser.take_run(max) } else { None }
    }

    async fn next_slowly(&self, position: Option<u64>) -> Result<u64, Error> {
        self.shared.generator.until_ready(|| self.shared.reserve(position, 1)).await.map(|run| run.first)
    }

    #[cold]
    fn try_slowly(&self, position: Option<u64>) -> Result<Option<u64>, Error> {
        let outcome = self.shared.generator.count_refused(self.shared.reserve(position, 1))?;
        Ok(outcome.ready().map(|run| run.first))
    }

    #[cold]
    fn next_slowly_blocking(&self, position: Option<u64>) -> Result<u64, Error> {
        self.shared.generator.until_ready_blocking(|| self.shared.reserve(position, 1)).map(|run| run.first)
    }
}

impl std::fmt::Debug for Snowflake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snowflake").field("namespace", &self.namespace()).finish_non_exhaustive()
    }
}
