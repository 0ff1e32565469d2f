//! Ordered sequences: callers that wait are served together, by rounds.
//!
//! A caller queues; whoever finds no round in flight begins one for all that are queued *then*, so a request is served
//! only from an allocation that started after it arrived. One driver task follows the rounds while anybody waits. A
//! caller that went away leaves a gap: its share is never given to a later one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use unalike_core::Run;

use crate::ids::{Generator, lock};
use crate::lane::{self, Step};
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
        let (answer, answered) = oneshot::channel();
        {
            let mut queue = lock(&self.queue);
            queue.waiting.push_back(Waiter { left: count, batch: Batch::default(), answer });
            if !queue.driven {
                queue.driven = true;
                let (rounds, generator) = (Arc::clone(self), Arc::clone(generator));
                generator.storage.executor.clone().spawn(async move { rounds.drive(&generator).await });
            }
        }
        answered.await.unwrap_or_else(|_| Err(ErrorKind::Closed { name: generator.name.clone() }.into()))
    }

    /// Round after round, until nobody waits.
    async fn drive(&self, generator: &Generator) {
        loop {
            let waiting = {
                let mut queue = lock(&self.queue);
                queue.waiting.retain(|waiter| !waiter.answer.is_closed());
                if queue.waiting.is_empty() {
                    queue.driven = false;
                    return;
                }
                // As many as one run can hold; the rest waits for the next round.
                let mut sum = 0_u32;
                let served = queue.waiting.iter().take_while(|waiter| match sum.checked_add(waiter.left) {
                    Some(total) => {
                        sum = total;
                        true
                    }
                    None => false,
                });
                let served = served.count();
                queue.waiting.drain(..served).collect::<VecDeque<_>>()
            };
            match self.round(generator, &waiting).await {
                Ok(run) => self.share(run, waiting),
                Err(error) => {
                    for waiter in waiting {
                        // A caller that went away hears nothing.
                        let _ = waiter.answer.send(Err(error.clone()));
                    }
                }
            }
        }
    }

    /// One allocation for all of them; another if the store could not do it, since theirs started after they came.
    async fn round(&self, generator: &Generator, waiting: &VecDeque<Waiter>) -> Result<Run, Error> {
        let count = waiting.iter().map(|waiter| waiter.left).sum();
        let mut round = None;
        generator
            .until_ready(|| {
                let begun = match round {
                    Some(begun) => begun,
                    None => {
                        let answer = generator.call(|call| {
                            let ordered = call.core.unalike_ids_sequences().ordered();
                            ordered.call_begin(call.store, call.handle, call.now_ms, count)
                        })?;
                        match generator.step(answer)? {
                            Step::Ready(begun) => *round.insert(begun),
                            Step::Pending => return Ok(Step::Pending),
                            Step::Wait(wait_ms) => return Ok(Step::Wait(wait_ms)),
                        }
                    }
                };
                let answer = generator.call(|call| {
                    let ordered = call.core.unalike_ids_sequences().ordered();
                    ordered.call_claim(call.store, call.handle, call.now_ms, begun)
                })?;
                let step = generator.step(answer.map(lane::run))?;
                if matches!(step, Step::Wait(_)) {
                    // The round failed and is over; the next attempt begins another.
                    round = None;
                }
                Ok(step)
            })
            .await
    }

    /// Gives each caller its share. Whoever the store granted too little for stays first in the queue.
    fn share(&self, run: Run, waiting: VecDeque<Waiter>) {
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
        queue.issued += u64::from(run.count);
        while let Some(waiter) = short.pop_back() {
            queue.waiting.push_front(waiter);
        }
    }
}
