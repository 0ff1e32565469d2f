//! Ordered sequences: callers that wait are served together, by rounds.
//!
//! A caller queues; whoever finds no round in flight begins one for all that are queued *then*, so a request is served
//! only from an allocation that started after it arrived. One driver task follows the rounds while anybody waits. A
//! caller that went away leaves a gap: its share is never given to a later one.
//!
//! No caller waits for the driver to be well: each has a deadline of its own, which another task looks after for all of
//! them (a timer for each is a large part of what a call costs when thousands wait), and a task that goes before its
//! time leaves its callers to another one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use unalike_core::Run;

use crate::generator::Generator;
use crate::lane::Outcome;
use crate::sync::lock;
use crate::{Batch, Error, ErrorKind};

/// So often others have their turn before a round begins. In one, each thread of a runtime runs some dozens to hundreds
/// of tasks.
const TURNS_MAX: u32 = 64;

/// The waiting callers of one tag, in the order in which they came.
#[derive(Default)]
pub(crate) struct Rounds {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// For the next round.
    waiting: VecDeque<Waiter>,
    /// Those whom the round in flight is for.
    served: VecDeque<Waiter>,
    /// A driver task is following rounds.
    driven: bool,
    /// A watcher task is looking after their time.
    watched: bool,
    /// So many that wait or are served went away.
    gone: usize,
    /// Ids that rounds brought.
    issued: u64,
}

struct Waiter {
    left: u32,
    batch: Batch,
    /// Its call ends `wait_max` later.
    arrived: Instant,
    answer: oneshot::Sender<Result<Batch, Error>>,
}

/// What the next round is for.
struct Next {
    /// How many ids its callers want.
    count: u32,
    /// When the last of them came.
    newest: Instant,
}

impl Queue {
    /// Forgets those that went away.
    fn tidy(&mut self) {
        if std::mem::take(&mut self.gone) > 0 {
            self.waiting.retain(|waiter| !waiter.answer.is_closed());
        }
    }

    /// Those who are served wait again, before all others.
    fn put_back(&mut self) {
        // Some may have gone away while they were served.
        self.gone += self.served.len();
        while let Some(waiter) = self.served.pop_back() {
            self.waiting.push_front(waiter);
        }
    }
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
        let arrived = Instant::now();
        let (answer, answered) = oneshot::channel();
        let (is_driven, is_watched) = {
            let mut queue = lock(&self.queue);
            queue.waiting.push_back(Waiter { left: count, batch: Batch::default(), arrived, answer });
            (std::mem::replace(&mut queue.driven, true), std::mem::replace(&mut queue.watched, true))
        };
        let mut call = Call { rounds: self, generator, answered };
        if !is_watched {
            Watcher::start(self, generator);
        }
        if !is_driven {
            let driver = Driver::new(self, generator);
            generator.storage().executor.spawn(driver.drive());
        }
        match (&mut call.answered).await {
            Ok(answer) => answer,
            // The driver panicked with it, and it cannot be known for whom the next one would.
            Err(_) => Err(ErrorKind::Rebuilt {
                name: generator.name.to_string(),
                reason: "the call for its round panicked".to_owned(),
                retry_after_ms: 1,
            }
            .into()),
        }
    }

    /// Lets the next round be for those who wait now: as many as one run can hold, and the rest waits for the round
    /// after it. With nobody left nobody drives.
    fn next_round(&self) -> Option<Next> {
        let mut queue = lock(&self.queue);
        queue.tidy();
        let Queue { waiting, served, .. } = &mut *queue;
        let newest = waiting.back().map(|waiter| waiter.arrived);
        let Some(newest) = newest else {
            queue.driven = false;
            return None;
        };
        let mut count = 0_u32;
        let fit = waiting.iter().take_while(|waiter| match count.checked_add(waiter.left) {
            Some(total) => {
                count = total;
                true
            }
            None => false,
        });
        let fit = fit.count();
        // Nobody is served between two rounds.
        std::mem::swap(waiting, served);
        waiting.extend(served.drain(fit..));
        Some(Next { count, newest })
    }

    /// Gives each caller its share. Whoever the store granted too little for stays first in the queue.
    fn share(&self, run: Run) {
        let mut served = {
            let mut queue = lock(&self.queue);
            // Before anybody hears of it: who has an id finds it counted.
            queue.issued += u64::from(run.count);
            std::mem::take(&mut queue.served)
        };
        let mut next = run.first;
        let mut left = run.count;
        while let Some(mut waiter) = served.pop_front() {
            let count = waiter.left.min(left);
            if count > 0 {
                waiter.batch.push(Run { first: next, stride: run.stride, count });
                next += u64::from(count) * run.stride;
                left -= count;
                waiter.left -= count;
            }
            if waiter.left > 0 {
                served.push_front(waiter);
                break;
            }
            // The ids of a caller that went away are a gap.
            let _ = waiter.answer.send(Ok(waiter.batch));
        }
        let mut queue = lock(&self.queue);
        // With the memory that it has.
        queue.served = served;
        queue.put_back();
    }

    /// Tells those whom the round in flight is for why it brought nothing.
    fn refuse(&self, generator: &Generator, error: &Error) {
        let served = std::mem::take(&mut lock(&self.queue).served);
        for waiter in served {
            let error = match error.kind() {
                // The round's time was that of the last of them.
                ErrorKind::Timeout { .. } => generator.timeout(waiter.arrived),
                _ => error.clone(),
            };
            // A caller that went away hears nothing.
            let _ = waiter.answer.send(Err(error));
        }
    }

    /// Takes out those whose time is up; and how long the others have at least. With nobody left nobody watches.
    fn late(&self, wait_max: Duration) -> (Vec<Waiter>, Option<Duration>) {
        let mut queue = lock(&self.queue);
        queue.tidy();
        let mut late = Vec::new();
        let mut left = None;
        let Queue { waiting, served, .. } = &mut *queue;
        for waiters in [served, waiting] {
            for waiter in std::mem::take(waiters) {
                match wait_max.saturating_sub(waiter.arrived.elapsed()) {
                    Duration::ZERO => late.push(waiter),
                    others => {
                        left = Some(left.map_or(others, |left: Duration| left.min(others)));
                        waiters.push_back(waiter);
                    }
                }
            }
        }
        queue.watched = left.is_some();
        (late, left)
    }
}

/// A caller that waits.
struct Call<'a> {
    rounds: &'a Rounds,
    generator: &'a Generator,
    answered: oneshot::Receiver<Result<Batch, Error>>,
}

impl Drop for Call<'_> {
    /// One that went away before its answer came need not be served. In a forked child nobody serves, and the lock may
    /// be held for ever.
    fn drop(&mut self) {
        if self.answered.is_terminated() || !self.generator.is_own_process() {
            return;
        }
        self.answered.close();
        lock(&self.rounds.queue).gone += 1;
    }
}

/// A task that follows the rounds of one tag.
struct Driver {
    rounds: Arc<Rounds>,
    generator: Arc<Generator>,
    /// Nobody waits any more, and whoever comes now begins another driver.
    is_done: bool,
}

impl Driver {
    fn new(rounds: &Arc<Rounds>, generator: &Arc<Generator>) -> Self {
        Self { rounds: Arc::clone(rounds), generator: Arc::clone(generator), is_done: false }
    }

    /// Round after round, until nobody waits.
    async fn drive(mut self) {
        while let Some(next) = self.rounds.next_round() {
            match self.round(next).await {
                Ok(run) => self.rounds.share(run),
                Err(error) => self.rounds.refuse(&self.generator, &error),
            }
            self.gather().await;
        }
        self.is_done = true;
    }

    /// Lets those who were served have their turn, as long as that brings new callers: many ask again at once. A round
    /// for the first few of them would have all others wait for two rounds. No time passes here but that of tasks that
    /// can run.
    async fn gather(&self) {
        let mut waiting = 0;
        for _ in 0..TURNS_MAX {
            tokio::task::yield_now().await;
            let now = lock(&self.rounds.queue).waiting.len();
            if now <= waiting {
                return;
            }
            waiting = now;
        }
    }

    /// One allocation for all of them; another if the store could not do it, since theirs started after they came.
    /// Given up when the last of them has gone.
    async fn round(&self, next: Next) -> Result<Run, Error> {
        let generator = &self.generator;
        let left = generator.wait_max().saturating_sub(next.newest.elapsed());
        let mut round = None;
        generator
            .until_ready_within(left, || {
                let begun = match round {
                    Some(begun) => begun,
                    None => {
                        let answer = generator.call(|call| call.begin(next.count))?;
                        match generator.outcome(answer)? {
                            Outcome::Ready(begun) => *round.insert(begun),
                            Outcome::Pending => return Ok(Outcome::Pending),
                            Outcome::Wait(wait_ms) => return Ok(Outcome::Wait(wait_ms)),
                        }
                    }
                };
                let answer = generator.call(|call| call.claim(begun))?;
                let outcome = generator.outcome(answer)?;
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
        let mut lost = VecDeque::new();
        let is_driven = {
            let mut queue = lock(&self.rounds.queue);
            if std::thread::panicking() {
                // They hear that nobody answers them.
                lost = std::mem::take(&mut queue.served);
            } else {
                // The round is lost with its task. They came before the next one, so that one may serve them.
                queue.put_back();
            }
            queue.driven = !queue.waiting.is_empty();
            queue.driven
        };
        drop(lost);
        if is_driven {
            let successor = Self::new(&self.rounds, &self.generator);
            self.generator.storage().executor.spawn_to_end(successor.drive());
        }
    }
}

/// A task that ends the calls whose time is up. It keeps nothing alive, and looks as seldom as it can: when the time of
/// the one who waited longest at its last look is up.
struct Watcher {
    rounds: Weak<Rounds>,
    generator: Weak<Generator>,
    wait_max: Duration,
    /// Nobody waits any more, and whoever comes now begins another watcher.
    is_done: bool,
}

impl Watcher {
    fn start(rounds: &Arc<Rounds>, generator: &Arc<Generator>) {
        let wait_max = generator.wait_max();
        let watcher =
            Self { rounds: Arc::downgrade(rounds), generator: Arc::downgrade(generator), wait_max, is_done: false };
        generator.storage().executor.spawn_to_end(watcher.watch());
    }

    async fn watch(mut self) {
        let mut left = Some(self.wait_max);
        while let Some(pause) = left {
            tokio::time::sleep(pause).await;
            left = self.look();
        }
        self.is_done = true;
    }

    /// Ends the calls whose time is up, and says when to look again.
    fn look(&self) -> Option<Duration> {
        let (late, left) = self.rounds.upgrade()?.late(self.wait_max);
        if !late.is_empty() {
            // Whoever waits has it.
            let generator = self.generator.upgrade()?;
            for waiter in late {
                let error = generator.count_refused(Err(generator.timeout(waiter.arrived)));
                // A caller that went away hears nothing.
                let _ = waiter.answer.send(error);
            }
        }
        left
    }
}

impl Drop for Watcher {
    /// One that panicked leaves those who wait to another one.
    fn drop(&mut self) {
        let (Some(rounds), Some(generator)) = (self.rounds.upgrade(), self.generator.upgrade()) else { return };
        if !self.is_done && generator.is_own_process() {
            Self::start(&rounds, &generator);
        }
    }
}
