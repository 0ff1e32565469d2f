//! Sequences: ids under a tag.
//!
//! `next` is served from the dispenser, natively; the component is called once per run, and the size of runs follows
//! demand: one id at a time while ids are asked for now and then (a crash loses none), up to a thousand while runs are used
//! up within a millisecond.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use unalike_core::{RefillPolicy, Run, SequenceOptions as CoreOptions, StepPolicy};
use unalike_storage::Mode;

use crate::component::sequences;
use crate::dispenser::Dispenser;
use crate::ids::{Generator, Shared, lock};
use crate::lane::{self, Lane, Opening, Step};
use crate::ordered::Rounds;
use crate::{Batch, Error, ErrorKind};

/// The largest run. At 1,024 a crossing costs a third of a nanosecond per id; a crash loses as many ids at most.
const RUN_MAX: u32 = 1_024;
/// A run that lasted longer than this halves the next one; one that was used up within a millisecond doubles it.
const RUN_SLOW_MS: u64 = 100;

/// How a tag's sequence works in this process. What is not given is as the tag's record in the store says.
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
}

/// Figures of an open sequence, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceStatus {
    /// Numbers granted to this process that never crossed into a run. 0 for ordered sequences.
    pub remaining: u64,
    /// How many numbers the next request asks for. 0 for ordered sequences.
    pub step: u64,
    /// Whether a request to the store is under way.
    pub in_flight: bool,
    /// Numbers that crossed into runs: those that were handed out, and the rest of the run in hand.
    pub issued: u64,
    /// Calls that had to wait for the store.
    pub waits: u64,
}

/// The ids of one tag. Clone it freely: all clones, and all threads, share one buffer.
///
/// Ids ascend within the process; with [`Mode::Ordered`] they ascend across all nodes in real time. No id is handed out
/// twice.
#[derive(Clone)]
pub struct Sequence {
    shared: Arc<SequenceShared>,
}

pub(crate) struct SequenceShared {
    generator: Arc<Generator>,
    given: SequenceOptions,
    kind: Kind,
}

#[expect(clippy::large_enum_variant, reason = "one per tag, and the large one is the usual one")]
enum Kind {
    Buffered { dispenser: Dispenser, runs: Mutex<RunSize> },
    Ordered(Arc<Rounds>),
}

/// The size of the next run, by how long the last one lasted. Its lock is the refill lock.
struct RunSize {
    next: u32,
    last_ms: u64,
}

impl RunSize {
    /// A run was used up: fits the next one to demand.
    fn adapt(&mut self, now_ms: u64) -> u32 {
        let lasted_ms = now_ms.saturating_sub(self.last_ms);
        if lasted_ms <= 1 {
            self.next = self.next.saturating_mul(2).min(RUN_MAX);
        } else if lasted_ms > RUN_SLOW_MS {
            self.next = (self.next / 2).max(1);
        }
        self.last_ms = now_ms;
        self.next
    }
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
        let store = shared.storage.segments.as_ref().ok_or_else(|| refused(crate::requests::missing("segment")))?;
        let wait_max = shared.wait_max.min(shared.storage.request_timeout);
        let record = tokio::time::timeout(wait_max, store.open_tag(tag))
            .await
            .map_err(|_| ErrorKind::Timeout {
                name: name(),
                waited_ms: u64::try_from(wait_max.as_millis()).unwrap_or(u64::MAX),
                source: None,
            })?
            .map_err(refused)?;
        let mode = record.options.mode;
        if let Some(asked) = given.mode.filter(|&asked| asked != mode) {
            return Err(ErrorKind::ModeBound { name: name(), stored: mode.name(), asked: asked.name() }.into());
        }
        let options = CoreOptions {
            step: given.step.unwrap_or(record.options.step),
            refill: given.refill.unwrap_or(record.options.refill),
            prefetch: given.prefetch.unwrap_or(1),
        };
        options.validate().map_err(|source| ErrorKind::Options { name: name(), source })?;
        Ok(Looked { tag: name(), given: *given, options, mode })
    }

    pub(crate) fn stop(&self) {
        self.generator.stop();
    }

    pub(crate) fn close(&self) {
        self.generator.close(|call| match self.kind {
            Kind::Buffered { .. } => call.core.unalike_ids_sequences().sequence().call_close(call.store, call.handle),
            // It holds nothing that could be given back.
            Kind::Ordered(_) => Ok(()),
        });
    }

    /// One run straight from the component.
    fn reserve(&self, max: impl FnOnce(u64) -> u32) -> Result<Step<Run>, Error> {
        let answer = self.generator.call(|call| {
            let max = max(call.now_ms);
            call.core.unalike_ids_sequences().sequence().call_reserve(call.store, call.handle, call.now_ms, max)
        })?;
        let step = lane::step(answer.map(lane::run), &self.generator.name, &self.generator.signal)?;
        if let Step::Ready(run) = &step {
            self.generator.issued.fetch_add(u64::from(run.count), Ordering::Relaxed);
        }
        Ok(step)
    }
}

impl Looked {
    pub(crate) fn add(self, lane: Arc<Lane>, shared: &Shared) -> SequenceShared {
        let Self { tag, given, options, mode } = self;
        let (opening, kind) = match mode {
            Mode::Buffered => (
                Opening::Sequence { tag: tag.clone(), options },
                Kind::Buffered { dispenser: Dispenser::new(), runs: Mutex::new(RunSize { next: 1, last_ms: 0 }) },
            ),
            Mode::Ordered => (Opening::Ordered { tag: tag.clone() }, Kind::Ordered(Arc::default())),
        };
        SequenceShared { generator: Arc::new(Generator::new(shared, lane, &tag, opening)), given, kind }
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
        &self.shared.generator.name
    }

    /// How callers are served.
    #[must_use]
    pub fn mode(&self) -> Mode {
        match self.shared.kind {
            Kind::Buffered { .. } => Mode::Buffered,
            Kind::Ordered(_) => Mode::Ordered,
        }
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
        match self.take_buffered() {
            Ok(id) => Ok(id),
            Err(position) => self.next_slowly(position).await,
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
        let position = match self.take_buffered() {
            Ok(id) => return Ok(Some(id)),
            Err(position) => position,
        };
        match &self.shared.kind {
            Kind::Ordered(_) => Ok(None),
            Kind::Buffered { dispenser, runs } => match self.refill(dispenser, runs, position)? {
                Step::Ready(id) => Ok(Some(id)),
                Step::Pending | Step::Wait(_) => Ok(None),
            },
        }
    }

    /// [`Sequence::next`] for threads outside any runtime.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// Inside asynchronous code, when it has to wait.
    #[inline]
    pub fn next_blocking(&self) -> Result<u64, Error> {
        match self.try_next()? {
            Some(id) => Ok(id),
            None => self.shared.generator.block_on(self.next()),
        }
    }

    /// The next `count` ids (1 or more), in ascending order; not always consecutive.
    ///
    /// # Errors
    /// [`ErrorKind::CountZero`] and as [`Sequence::next`]. Ids that it had when it failed are a gap.
    pub async fn take(&self, count: u32) -> Result<Batch, Error> {
        if count == 0 {
            return Err(ErrorKind::CountZero.into());
        }
        match &self.shared.kind {
            Kind::Ordered(rounds) => rounds.take(&self.shared.generator, count).await,
            Kind::Buffered { dispenser, runs } => {
                let mut batch = Batch::default();
                let mut left = count;
                self.shared.generator.until_ready(|| self.fill(dispenser, runs, &mut batch, &mut left)).await?;
                Ok(batch)
            }
        }
    }

    /// [`Sequence::take`] for threads outside any runtime.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// Inside asynchronous code.
    pub fn take_blocking(&self, count: u32) -> Result<Batch, Error> {
        self.shared.generator.block_on(self.take(count))
    }

    /// Figures for metrics.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`], [`ErrorKind::Rebuilt`].
    pub fn status(&self) -> Result<SequenceStatus, Error> {
        let issued = self.shared.generator.issued.load(Ordering::Relaxed);
        let waits = self.shared.generator.waits.load(Ordering::Relaxed);
        match &self.shared.kind {
            Kind::Ordered(rounds) => {
                Ok(SequenceStatus { remaining: 0, step: 0, in_flight: rounds.is_in_flight(), issued, waits })
            }
            Kind::Buffered { .. } => self.shared.generator.call(|call| {
                let status =
                    call.core.unalike_ids_sequences().sequence().call_tick(call.store, call.handle, call.now_ms)?;
                let sequences::SequenceStatus { remaining, step, in_flight, .. } = status;
                Ok(SequenceStatus { remaining, step, in_flight, issued, waits })
            }),
        }
    }

    /// What a defect of the component would do.
    #[cfg(test)]
    pub(crate) fn trap(&self) -> Result<(), Error> {
        self.shared.generator.call(|_| Err(wasmtime::Error::msg("a trap")))
    }

    /// An id without a crossing; or the position that was taken in vain, if one was.
    #[inline]
    fn take_buffered(&self) -> Result<u64, Option<u64>> {
        match &self.shared.kind {
            Kind::Buffered { dispenser, .. } if self.shared.generator.is_own_process() => {
                dispenser.take().map_err(Some)
            }
            _ => Err(None),
        }
    }

    #[cold]
    async fn next_slowly(&self, position: Option<u64>) -> Result<u64, Error> {
        match &self.shared.kind {
            Kind::Ordered(rounds) => rounds.next(&self.shared.generator).await,
            Kind::Buffered { dispenser, runs } => {
                self.shared.generator.until_ready(|| self.refill(dispenser, runs, position)).await
            }
        }
    }

    /// An id from a fresh run, whose rest goes to the dispenser.
    #[cold]
    fn refill(&self, dispenser: &Dispenser, runs: &Mutex<RunSize>, position: Option<u64>) -> Result<Step<u64>, Error> {
        let mut runs = lock(runs);
        if self.shared.generator.is_own_process() {
            // Somebody else may have brought a run while this thread waited for the lock.
            if let Some(id) = position.and_then(|position| dispenser.redeem(position)) {
                return Ok(Step::Ready(id));
            }
            if let Ok(id) = dispenser.take() {
                return Ok(Step::Ready(id));
            }
        }
        Ok(match self.shared.reserve(|now_ms| runs.adapt(now_ms))? {
            Step::Ready(run) => {
                if run.count > 1 {
                    dispenser.install(Run { first: run.first + run.stride, count: run.count - 1, ..run });
                }
                Step::Ready(run.first)
            }
            Step::Pending => Step::Pending,
            Step::Wait(wait_ms) => Step::Wait(wait_ms),
        })
    }

    /// Adds runs to a batch: first what the dispenser has left, so that ids never go down, then fresh ones.
    fn fill(
        &self,
        dispenser: &Dispenser,
        runs: &Mutex<RunSize>,
        batch: &mut Batch,
        left: &mut u32,
    ) -> Result<Step<()>, Error> {
        let _refilling = lock(runs);
        if self.shared.generator.is_own_process()
            && let Some(run) = dispenser.take_run(*left)
        {
            *left -= run.count;
            batch.push(run);
        }
        while *left > 0 {
            match self.shared.reserve(|_| *left)? {
                Step::Ready(run) => {
                    *left -= run.count;
                    batch.push(run);
                }
                Step::Pending => return Ok(Step::Pending),
                Step::Wait(wait_ms) => return Ok(Step::Wait(wait_ms)),
            }
        }
        Ok(Step::Ready(()))
    }
}

impl std::fmt::Debug for Sequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sequence").field("tag", &self.tag()).field("mode", &self.mode()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_runs_follows_demand() {
        let mut runs = RunSize { next: 1, last_ms: 0 };
        assert_eq!(runs.adapt(1_000), 1, "now and then: one at a time");
        assert_eq!((0..12).map(|_| runs.adapt(1_000)).last(), Some(RUN_MAX));
        assert_eq!(runs.adapt(1_050), RUN_MAX);
        assert_eq!(runs.adapt(1_200), RUN_MAX / 2);
        assert_eq!((1..20).map(|second| runs.adapt(second * 10_000)).last(), Some(1));
    }
}
