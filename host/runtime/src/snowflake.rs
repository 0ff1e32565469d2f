//! Snowflakes: ids of a timestamp, a worker and a sequence, under a lease.
//!
//! The component hands out the rest of a tick as one run; the host hands its ids out while the clock is in that tick, and
//! drops what is left when the clock has moved on, so that an id's timestamp is the time of its issue (ahead of it by
//! the option `ahead_max_ms` at most).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use unalike_core::{Run, SnowflakeOptions};

use crate::ids::{Generator, Shared, lock};
use crate::lane::{self, Opening, Step};
use crate::{Batch, Clock, Error, ErrorKind, Layout};

/// Figures of an open snowflake generator, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnowflakeStatus {
    /// The worker under lease.
    pub worker: Option<u32>,
    /// The end of the lease, in Unix milliseconds; 0 without one.
    pub valid_until_ms: u64,
    /// The end of the greatest tick used, in Unix milliseconds; 0 before the first.
    pub used_until_ms: u64,
    /// Whether a request to the lease store is under way.
    pub in_flight: bool,
    /// Ids that were handed out.
    pub issued: u64,
    /// Calls that had to wait for a lease or for the next tick.
    pub waits: u64,
}

/// The snowflake ids of one lease namespace. Clone it freely: all clones, and all threads, share one worker.
///
/// Ids ascend within the process. No id is handed out twice in its namespace, whatever the clocks do.
#[derive(Clone)]
pub struct Snowflake {
    shared: Arc<SnowflakeShared>,
}

pub(crate) struct SnowflakeShared {
    generator: Generator,
    options: SnowflakeOptions,
    clock: Arc<dyn Clock>,
    /// The end of the greatest tick that a run came from: where a rebuilt component begins.
    used_until_ms: Arc<AtomicU64>,
    current: Mutex<Current>,
}

/// What is left of the newest run, and while which times it may be handed out.
struct Current {
    left: Option<Run>,
    from_ms: u64,
    until_ms: u64,
    /// Ids taken so far.
    issued: u64,
}

impl Current {
    /// Up to `max` ids of the run, if it is still its time.
    fn take(&mut self, now_ms: u64, max: u32) -> Option<Run> {
        let run = self.left.filter(|_| self.from_ms <= now_ms && now_ms < self.until_ms)?;
        let count = run.count.min(max);
        self.left = (run.count > count).then(|| Run {
            first: run.first + u64::from(count) * run.stride,
            count: run.count - count,
            ..run
        });
        self.issued += u64::from(count);
        Some(Run { count, ..run })
    }
}

impl SnowflakeShared {
    pub(crate) fn open(shared: &Shared, namespace: &str, options: SnowflakeOptions) -> Self {
        let used_until_ms = Arc::new(AtomicU64::new(0));
        let opening =
            Opening::Snowflake { namespace: namespace.to_owned(), options, used_until_ms: Arc::clone(&used_until_ms) };
        Self {
            generator: Generator::new(shared, shared.lane(namespace), namespace, opening),
            options,
            clock: Arc::clone(&shared.clock),
            used_until_ms,
            current: Mutex::new(Current { left: None, from_ms: 0, until_ms: 0, issued: 0 }),
        }
    }

    pub(crate) fn stop(&self) {
        self.generator.stop();
    }

    pub(crate) fn close(&self) {
        // No run outlives the lease: what is left of it is dropped before the lease goes back.
        let mut current = lock(&self.current);
        current.left = None;
        self.generator.close(|call| call.core.unalike_ids_snowflakes().snowflake().call_close(call.store, call.handle));
    }

    pub(crate) fn renew(&self) -> Result<(), Error> {
        self.generator
            .call(|call| call.core.unalike_ids_snowflakes().snowflake().call_tick(call.store, call.handle, call.now_ms))
            .map(|_| ())
    }

    /// At least one id and at most `max`, from the run in hand or from the next one.
    fn reserve(&self, max: u32) -> Result<Step<Run>, Error> {
        let mut current = lock(&self.current);
        if self.generator.is_open() {
            // The clock is read inside the lock, so that waiting for it does not look like a clock that goes back.
            if let Some(run) = current.take(self.clock.now_ms(), max) {
                return Ok(Step::Ready(run));
            }
        }
        let mut asked_ms = 0;
        let answer = self.generator.call(|call| {
            asked_ms = call.now_ms;
            // The whole rest of the tick: what is not used in time is worth nothing later.
            call.core.unalike_ids_snowflakes().snowflake().call_reserve(call.store, call.handle, call.now_ms, u32::MAX)
        })?;
        let run = match lane::step(answer.map(lane::run), &self.generator.name, &self.generator.signal)? {
            Step::Ready(run) => run,
            step => return Ok(step),
        };
        let layout = &self.options.layout;
        let ticks = layout.unpack(run.first).map_err(|error| ErrorKind::Component { reason: error.to_string() })?.ticks;
        let until_ms = layout.tick_start_ms(ticks.saturating_add(1));
        self.used_until_ms.fetch_max(until_ms, Ordering::Relaxed);
        *current = Current { left: Some(run), from_ms: asked_ms, until_ms, ..*current };
        // With a policy that keeps the last timestamp the clock may stand past `until_ms` never, before it always.
        Ok(match current.take(asked_ms.min(until_ms.saturating_sub(1)), max) {
            Some(run) => Step::Ready(run),
            None => Step::Wait(1),
        })
    }
}

impl Snowflake {
    pub(crate) fn of(shared: Arc<SnowflakeShared>) -> Self {
        Self { shared }
    }

    /// Another handle of an open generator, if it was opened alike.
    pub(crate) fn again(open: &Arc<SnowflakeShared>, options: &SnowflakeOptions) -> Result<Self, Error> {
        if *options != open.options {
            return Err(ErrorKind::OpenOtherwise { name: open.generator.name.clone() }.into());
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
        match self.shared.reserve(1)? {
            Step::Ready(run) => Ok(run.first),
            _ => self.shared.generator.until_ready(|| self.shared.reserve(1)).await.map(|run| run.first),
        }
    }

    /// The next id if there is one without waiting; if there is none, what is missing has been asked for.
    ///
    /// # Errors
    /// [`Error`].
    pub fn try_next(&self) -> Result<Option<u64>, Error> {
        Ok(match self.shared.reserve(1)? {
            Step::Ready(run) => Some(run.first),
            Step::Pending | Step::Wait(_) => None,
        })
    }

    /// [`Snowflake::next`] for threads outside any runtime.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// Inside asynchronous code, when it has to wait.
    pub fn next_blocking(&self) -> Result<u64, Error> {
        match self.try_next()? {
            Some(id) => Ok(id),
            None => self.shared.generator.block_on(self.next()),
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
        let mut batch = Batch::default();
        let mut left = count;
        while left > 0 {
            let run = self.shared.generator.until_ready(|| self.shared.reserve(left)).await?;
            left -= run.count;
            batch.push(run);
        }
        Ok(batch)
    }

    /// [`Snowflake::take`] for threads outside any runtime.
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
    pub fn status(&self) -> Result<SnowflakeStatus, Error> {
        let issued = lock(&self.shared.current).issued;
        self.shared.generator.call(|call| {
            let status =
                call.core.unalike_ids_snowflakes().snowflake().call_tick(call.store, call.handle, call.now_ms)?;
            Ok(SnowflakeStatus {
                worker: status.worker,
                valid_until_ms: status.valid_until,
                used_until_ms: status.used_until,
                in_flight: status.in_flight,
                issued,
                waits: self.shared.generator.waits.load(Ordering::Relaxed),
            })
        })
    }
}

impl std::fmt::Debug for Snowflake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snowflake").field("namespace", &self.namespace()).finish_non_exhaustive()
    }
}
