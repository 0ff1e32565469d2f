//! Ordered sequences: callers that wait are served together, by rounds.
//!
//! A caller queues; whoever finds no round in flight begins one for all that are queued *then*, so a request is served
//! only from an allocation that started after it arrived. One driver task follows the rounds while anybody waits. A
//! caller that went away leaves a gap: its share is never given to a later one.
//!
//! No caller waits for the driver to be well: each has a deadline of its own, and a driver that goes before its time
//! leaves its callers to another one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use unalike_core::Run;

use crate::generator::Generator;
use crate::lane::{self, Outcome};
use crate::sync::lock;
use crate::{Batch, Error, ErrorKind};

/// The waiting callers of one tag, in the order in which they came.
#[derive(Default)]
pub(crate) struct Rounds {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiter>,
    /// A driver task is following rounds.
    driven: bool,
    /// Ids that rounds brought.
    issued: u64,
}

struct Waiter {
    left: u32,
    batch: Batch,
    /// Its caller goes away `wait_max` later.
    arrived: Instant,
    answer: oneshot::Sender<Result<Batch, Error>>,
}

impl Rounds {
    /// How many ids rounds have brought, and whether one is in flight.
    pub(crate) fn status(&self) -> (u64, bool) {
        let queue = lock(&self.queue);
        (queue.issued, queue.driven)
    }

    pub(crate) async fn next(self: &Arc<Self>, generator: &Arc<Generator>) -> Result<u64, Error> {
        let batch = self.take(generator, 1).await?;
        batch.iter().next().ok_or(ErrorKind::CountZero.into())
    }

    pub(crate) async fn take(self: &Arc<Self>, generator: &Arc<Generator>, count: u32) -> Result<Batch, Error> {
        // Nor is there a thread in a forked child that would drive the rounds.
        generator.check_process()?;
        let (arrived, wait_max) = (Instant::now(), generator.wait_max());
        let (answer, answered) = oneshot::channel();
        let is_driven = {
            let mut queue = lock(&self.queue);
            queue.waiting.push_back(Waiter { left: count, batch: Batch::default(), arrived, answer });
            std::mem::replace(&mut queue.driven, true)
        };
        if !is_driven {
            let driver = Driver::new(self, generator);
            generator.storage().executor.spawn(driver.drive());
        }
        match generator.storage().executor.timeout(wait_max, answered).await {
            Ok(Ok(answer)) => answer,
            // The driver panicked with it, and it cannot be known for whom the next one would.
            Ok(Err(_)) => Err(ErrorKind::Rebuilt {
                name: generator.name.to_string(),
                reason: "the call for its round panicked".to_owned(),
                retry_after_ms: 1,
            }
            .into()),
            Err(_) => generator.count_refused(Err(generator.timeout(arrived))),
        }
    }

    /// Those for whom the next round is: as many as one run can hold, and the rest waits for the round after it. With
    /// nobody left nobody drives.
    fn next_waiting(&self) -> Option<VecDeque<Waiter>> {
        let mut queue = lock(&self.queue);
        queue.waiting.retain(|waiter| !waiter.answer.is_closed());
        if queue.waiting.is_empty() {
            queue.driven = false;
            return None;
        }
        let mut sum = 0_u32;
        let served = queue.waiting.iter().take_while(|waiter| match sum.checked_add(waiter.left) {
            Some(total) => {
                sum = total;
                true
            }
            None => false,
        });
        let served = served.count();
        Some(queue.waiting.drain(..served).collect())
    }

    /// Gives each caller its share. Whoever the store granted too little for stays first in the queue.
    fn share(&self, run: Run, waiting: VecDeque<Waiter>) {
        // Before anybody hears of it: who has an id finds it counted.
        lock(&self.queue).issued += u64::from(run.count);
        let mut next = run.first;
        let mut left = run.count;
        let mut short = VecDeque::new();
        for mut waiter in waiting {
            let count = waiter.left.min(left);
            if count > 0 {
                waiter.batch.push(Run { first: next, stride: run.stride, count });
                next += u64::from(count) * run.stride;
                left -= count;
                waiter.left -= count;
            }
            if waiter.left == 0 {
                // The ids of a caller that went away are a gap.
                let _ = waiter.answer.send(Ok(waiter.batch));
            } else {
                short.push_back(waiter);
            }
        }
        let mut queue = lock(&self.queue);
        while let Some(waiter) = short.pop_back() {
            queue.waiting.push_front(waiter);
        }
    }
}

/// A task that follows the rounds of one tag, with those whom the round in flight is for.
struct Driver {
    rounds: Arc<Rounds>,
    generator: Arc<Generator>,
    waiting: VecDeque<Waiter>,
    /// Nobody waits any more, and whoever comes now begins another driver.
    is_done: bool,
}

impl Driver {
    fn new(rounds: &Arc<Rounds>, generator: &Arc<Generator>) -> Self {
        let (rounds, generator) = (Arc::clone(rounds), Arc::clone(generator));
        Self { rounds, generator, waiting: VecDeque::new(), is_done: false }
    }

    /// Round after round, until nobody waits.
    async fn drive(mut self) {
        while let Some(waiting) = self.rounds.next_waiting() {
            self.waiting = waiting;
            let outcome = self.round().await;
            let waiting = std::mem::take(&mut self.waiting);
            match outcome {
                Ok(run) => self.rounds.share(run, waiting),
                Err(error) => {
                    for waiter in waiting {
                        // A caller that went away hears nothing.
                        let _ = waiter.answer.send(Err(error.clone()));
                    }
                }
            }
        }
        self.is_done = true;
    }

    /// One allocation for all of them; another if the store could not do it, since theirs started after they came.
    /// Given up when the last of them has gone.
    async fn round(&self) -> Result<Run, Error> {
        let Self { generator, waiting, .. } = self;
        let count = waiting.iter().map(|waiter| waiter.left).sum();
        let newest = waiting.iter().map(|waiter| waiter.arrived).max();
        let left = newest.map_or(Duration::ZERO, |arrived| generator.wait_max().saturating_sub(arrived.elapsed()));
        let mut round = None;
        generator
            .until_ready_within(left, || {
                let begun = match round {
                    Some(begun) => begun,
                    None => {
                        let answer = generator.call(|call| {
                            let ordered = call.core.unalike_ids_sequences().ordered();
                            ordered.call_begin(call.store, call.handle, call.now_ms, count)
                        })?;
                        match generator.outcome(answer)? {
                            Outcome::Ready(begun) => *round.insert(begun),
                            Outcome::Pending => return Ok(Outcome::Pending),
                            Outcome::Wait(wait_ms) => return Ok(Outcome::Wait(wait_ms)),
                        }
                    }
                };
                let answer = generator.call(|call| {
                    let ordered = call.core.unalike_ids_sequences().ordered();
                    ordered.call_claim(call.store, call.handle, call.now_ms, begun)
                })?;
                let outcome = generator.outcome(answer.map(lane::run))?;
                if matches!(outcome, Outcome::Wait(_)) {
                    // The round failed and is over; the next attempt begins another.
                    round = None;
                }
                Ok(outcome)
            })
            .await
    }
}

impl Drop for Driver {
    /// A driver that panicked, or whose runtime ended, leaves those who wait to another one, which runs where nothing
    /// ends it. In a forked child nobody waits.
    fn drop(&mut self) {
        if self.is_done || !self.generator.is_own_process() {
            return;
        }
        let waiting = std::mem::take(&mut self.waiting);
        {
            let mut queue = lock(&self.rounds.queue);
            if !std::thread::panicking() {
                // The round is lost with its task. They came before the next one, so that one may serve them.
                waiting.into_iter().rev().for_each(|waiter| queue.waiting.push_front(waiter));
            }
            if queue.waiting.is_empty() {
                queue.driven = false;
                return;
            }
        }
        let successor = Self::new(&self.rounds, &self.generator);
        self.generator.storage().executor.spawn_to_end(successor.drive());
    }
}
