//! What every open generator has, and what generators are opened in; how a call waits for the store.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use unalike_core as core;
use unalike_storage::{SegmentStore, StoreError};

use crate::clock::Time;
use crate::instance::{Refusal, Trap};
use crate::lane::{self, Call, GeneratorKind, Lane, Opening, Outcome};
use crate::lease_watch::{Ended, LeaseWatch};
use crate::requests::{Signal, Storage, did_not_end, missing};
use crate::sync::lock;
use crate::{Error, ErrorKind, metrics};

/// What generators are opened in: the stores, the lanes and the clock.
pub(crate) struct Environment {
    pub(crate) storage: Arc<Storage>,
    pub(crate) wait_max: Duration,
    pub(crate) clock: Time,
    lanes: Vec<Arc<Lane>>,
    lane_hasher: RandomState,
    /// The options that sequences were opened with, each once.
    options: Mutex<HashSet<Arc<core::SequenceOptions>>>,
}

impl Environment {
    pub(crate) fn new(storage: Arc<Storage>, wait_max: Duration, clock: Time, lanes: Vec<Arc<Lane>>) -> Self {
        Self { storage, wait_max, clock, lanes, lane_hasher: RandomState::new(), options: Mutex::default() }
    }

    /// How many lanes there are.
    pub(crate) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Asks the segment store, as a task, no longer than a call may wait.
    pub(crate) async fn ask_segments<T: Send + 'static, Answer>(
        &self,
        name: &str,
        ask: impl FnOnce(Arc<dyn SegmentStore>) -> Answer,
    ) -> Result<T, Error>
    where
        Answer: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let refused = |source| ErrorKind::Store { name: name.to_owned(), source: Arc::new(source) };
        let store = self.storage.segments.clone().ok_or_else(|| refused(missing("segment")))?;
        let wait_max = self.wait_max.min(self.storage.request_timeout);
        let request = self.storage.executor.run(self.storage.within_timeout(ask(store)));
        let answered = self.storage.executor.timeout(wait_max, request).await;
        let answer = answered.map_err(|_| ErrorKind::Timeout {
            name: name.to_owned(),
            waited_ms: u64::try_from(wait_max.as_millis()).unwrap_or(u64::MAX),
            source: None,
        })?;
        Ok(answer.unwrap_or_else(|| Err(did_not_end())).map_err(refused)?)
    }

    /// One copy of these options.
    pub(crate) fn alike(&self, options: core::SequenceOptions) -> Arc<core::SequenceOptions> {
        let mut known = lock(&self.options);
        if let Some(options) = known.get(&options) {
            return Arc::clone(options);
        }
        let options = Arc::new(options);
        known.insert(Arc::clone(&options));
        options
    }

    pub(crate) fn lane(&self, name: &str) -> Arc<Lane> {
        let hash = self.lane_hasher.hash_one(name);
        let lanes = u64::try_from(self.lanes.len()).unwrap_or(1).max(1);
        let at = usize::try_from(hash % lanes).unwrap_or(0);
        // The builder makes one lane at least, and `at` is below their number.
        self.lanes.get(at).or(self.lanes.first()).map_or_else(|| unreachable!("there is a lane"), Arc::clone)
    }
}

/// A call that waits; counted when it ends, also if its caller went away.
struct Waiting<'a> {
    generator: &'a Generator,
    started: Instant,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.generator.waits.fetch_add(1, Ordering::Relaxed);
        metrics::waited(self.generator.kind.word(), self.started.elapsed());
    }
}

/// What every open generator has: its name, its place in a lane, and how it hears of answers.
pub(crate) struct Generator {
    /// The same as in its place in the lane.
    pub(crate) name: Arc<str>,
    pub(crate) signal: Signal,
    /// How many calls had to wait.
    pub(crate) waits: AtomicU64,
    /// How many calls ended with an error.
    pub(crate) refused: AtomicU64,
    /// A snowflake's.
    lease_watch: Option<Arc<LeaseWatch>>,
    lane: Arc<Lane>,
    number: usize,
    kind: GeneratorKind,
    closed: AtomicBool,
}

impl Generator {
    pub(crate) fn new(lane: Arc<Lane>, opening: Opening, lease_watch: Option<Arc<LeaseWatch>>) -> Self {
        let (name, kind, signal) = (Arc::clone(opening.name()), opening.kind(), Signal::up_to(opening.id_max()));
        let number = lane.add(opening);
        Self {
            name,
            signal,
            waits: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            lease_watch,
            lane,
            number,
            kind,
            closed: AtomicBool::new(false),
        }
    }

    /// Whether this is still the process that opened it: a forked child hands out nothing that it inherited.
    #[inline]
    pub(crate) fn is_own_process(&self) -> bool {
        self.storage().process.is_current()
    }

    /// The stores of its lane.
    pub(crate) fn storage(&self) -> &Storage {
        self.lane.storage()
    }

    /// Refuses what was inherited. It is asked before any lock is taken: a thread that held one when the process forked
    /// is not there in the child, and nobody gives the lock back.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.is_own_process() {
            return Ok(());
        }
        Err(ErrorKind::Forked { name: self.name.to_string() }.into())
    }

    /// Whether it was ended here.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Calls the core, if the generator may still be used.
    pub(crate) fn call<T>(&self, act: impl FnOnce(&mut Call<'_>) -> Result<T, Trap>) -> Result<T, Error> {
        self.check_process()?;
        if self.is_closed() {
            return Err(ErrorKind::Closed { name: self.name.to_string() }.into());
        }
        self.lane.call(self.number, &self.signal, act)
    }

    /// The core's answer as an outcome.
    pub(crate) fn outcome<T>(&self, answer: Result<T, Refusal>) -> Result<Outcome<T>, Error> {
        lane::outcome(answer, &self.name, &self.signal).map_err(|kind| self.explained(kind))
    }

    /// The error that says most: why there is no lease is the story of the one that ended.
    pub(crate) fn explained(&self, kind: ErrorKind) -> Error {
        let Some(Ended { worker, ended_ms }) = self.lease_watch.as_ref().and_then(|watch| watch.ended()) else {
            return kind.into();
        };
        let source = match kind {
            ErrorKind::Store { source, .. } => Some(source),
            ErrorKind::Timeout { source, .. } => source,
            ErrorKind::NotYet { .. } => None,
            other => return other.into(),
        };
        ErrorKind::LeaseEnded { name: self.name.to_string(), worker, ended_ms, source }.into()
    }

    #[cfg(test)]
    pub(crate) fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }

    /// Counts a call that got no ids.
    pub(crate) fn count_refused<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        self.refused.fetch_add(u64::from(answer.is_err()), Ordering::Relaxed);
        answer
    }

    /// Ends it here: calls fail from now on, and so do those that wait.
    pub(crate) fn stop(&self) {
        self.closed.store(true, Ordering::Release);
        self.signal.wake();
    }

    /// Ends it in the core, which gives back what it can.
    pub(crate) fn close(&self) {
        self.end_by(|call| call.close());
    }

    /// Ends it in the core for good, and lets another have its place there. Nobody else has it.
    pub(crate) fn end(&self) {
        // Another generator may have the place soon: whoever still has this one calls no more.
        self.stop();
        self.end_by(|call| call.end(&self.signal));
        self.lane.remove(self.number);
    }

    fn end_by(&self, act: impl FnOnce(&mut Call<'_>) -> Result<(), Trap>) {
        if let Err(error) = self.lane.call(self.number, &self.signal, act) {
            tracing::warn!(%error, "closing gave nothing back");
        }
    }

    /// Tries again after each answer of the store, and whenever told to, until something comes or time is up.
    pub(crate) async fn until_ready<T>(&self, attempt: impl FnMut() -> Result<Outcome<T>, Error>) -> Result<T, Error> {
        self.until_ready_within(self.wait_max(), attempt).await
    }

    /// The same with a time of its own.
    pub(crate) async fn until_ready_within<T>(
        &self,
        wait_max: Duration,
        attempt: impl FnMut() -> Result<Outcome<T>, Error>,
    ) -> Result<T, Error> {
        self.count_refused(self.wait_for(wait_max, attempt).await)
    }

    async fn wait_for<T>(
        &self,
        wait_max: Duration,
        mut attempt: impl FnMut() -> Result<Outcome<T>, Error>,
    ) -> Result<T, Error> {
        let executor = &self.storage().executor;
        let started = Instant::now();
        let mut waiting = None;
        loop {
            // Listening begins before the attempt: an answer in between is not missed.
            let answered = pin!(self.signal.answered());
            let outcome = attempt()?;
            if !matches!(outcome, Outcome::Ready(_)) {
                waiting.get_or_insert_with(|| Waiting { generator: self, started });
            }
            let left = wait_max.saturating_sub(started.elapsed());
            let timed_out = match outcome {
                Outcome::Ready(value) => return Ok(value),
                Outcome::Pending => executor.timeout(left, answered).await.is_err(),
                Outcome::Wait(wait_ms) => {
                    let wait = Duration::from_millis(wait_ms.max(1));
                    if wait > left && self.signal.last_error().is_none() {
                        return Err(self.explained(ErrorKind::NotYet { name: self.name.to_string(), wait_ms }));
                    }
                    executor.sleep(wait.min(left)).await;
                    wait >= left
                }
            };
            if timed_out {
                return Err(self.timeout(started));
            }
        }
    }

    /// The same for threads that run no asynchronous code, who enter an executor only if there is something to wait
    /// for.
    pub(crate) fn until_ready_blocking<T>(
        &self,
        mut attempt: impl FnMut() -> Result<Outcome<T>, Error>,
    ) -> Result<T, Error> {
        match attempt() {
            Ok(Outcome::Ready(value)) => Ok(value),
            Ok(Outcome::Pending | Outcome::Wait(_)) => self.block_on(self.until_ready(attempt)),
            Err(error) => self.count_refused(Err(error)),
        }
    }

    /// How long a call waits.
    pub(crate) fn wait_max(&self) -> Duration {
        self.lane.wait_max()
    }

    pub(crate) fn timeout(&self, started: Instant) -> Error {
        self.explained(ErrorKind::Timeout {
            name: self.name.to_string(),
            waited_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            source: self.signal.last_error(),
        })
    }

    /// Runs a future to its end on this thread, which must not be one that runs tasks of tokio's. In a forked child it
    /// does not begin, as with [`Ids::block_on`].
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.check_process()?;
        self.storage().executor.block_on(future)
    }
}
