//! An ordered tag in a process: callers wait for rounds, and each round serves those who came before it began.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use unalike_core::{ReserveError, Run};

use super::Defect;
use super::cores::Rounds;
use super::ledger::Issue;
use super::processes::{CALL_MAX_MS, LINE, Process};
use super::requests::SegmentRequests;

/// How many more ids a round asks for where it serves those too who come later.
const FOR_LATE: u32 = 500;

/// The waiting callers of one process.
#[derive(Default)]
pub(crate) struct OrderedLane {
    waiting: Mutex<Vec<Waiter>>,
    came: Notify,
    served_ms: AtomicU64,
    heard: Mutex<String>,
}

struct Waiter {
    count: u32,
    answer: oneshot::Sender<Run>,
}

impl OrderedLane {
    pub(crate) fn start(process: &Arc<Process>, requests: SegmentRequests) -> Arc<Self> {
        let lane = Arc::new(Self::default());
        process.spawn(drive(Arc::clone(&lane), Arc::clone(process), requests));
        lane
    }

    /// When an id was last handed out, and what was heard since.
    pub(crate) fn standing(&self) -> (u64, String) {
        (self.served_ms.load(Ordering::Relaxed), self.heard.lock().unwrap().clone())
    }

    /// A thread asks for ids.
    pub(crate) async fn take(&self, process: &Process, count: u32) {
        let world = &process.world;
        let before = world.ledger.lock().unwrap().greatest(LINE);
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().unwrap().push(Waiter { count, answer });
        self.came.notify_waiters();
        let Ok(Ok(run)) = timeout(Duration::from_millis(CALL_MAX_MS), answered).await else { return };
        process.machine.go().await;
        let at_ms = world.now_ms();
        self.served_ms.store(at_ms, Ordering::Relaxed);
        let mut ledger = world.ledger.lock().unwrap();
        ledger.issue(LINE, Issue { process: process.number, at_ms, run });
        ledger.check_segment(LINE, process.number, &run);
        ledger.check_order(LINE, before, &run);
    }

    /// Gives ids to those who wait, in the order in which they came. Answers what is left.
    fn serve(&self, waiting: Vec<Waiter>, mut run: Run) -> Option<Run> {
        for waiter in waiting {
            let count = waiter.count.min(run.count);
            if count == 0 {
                break;
            }
            // Whoever no longer waits leaves a gap.
            let _ = waiter.answer.send(Run { count, ..run });
            run.first += run.stride * u64::from(count);
            run.count -= count;
        }
        Some(run).filter(|run| run.count > 0)
    }
}

/// Runs round after round.
async fn drive(lane: Arc<OrderedLane>, process: Arc<Process>, requests: SegmentRequests) {
    let mut generator = process.world.core.ordered(LINE, requests.clone());
    let serves_late = process.world.has(Defect::LateWaiters);
    loop {
        process.machine.go().await;
        let waiting = std::mem::take(&mut *lane.waiting.lock().unwrap());
        if waiting.is_empty() {
            let _ = timeout(Duration::from_millis(100), lane.came.notified()).await;
            continue;
        }
        let count: u32 = waiting.iter().map(|waiter| waiter.count).sum();
        let asked = if serves_late { count + FOR_LATE } else { count };
        match round(&mut *generator, &requests.heard, &process, asked).await {
            Ok(run) => {
                let left = lane.serve(waiting, run);
                if serves_late && let Some(left) = left {
                    let late = std::mem::take(&mut *lane.waiting.lock().unwrap());
                    lane.serve(late, left);
                }
            }
            Err(error) => {
                *lane.heard.lock().unwrap() = format!("{error:?}");
                // They came before the next round as well.
                lane.waiting.lock().unwrap().splice(..0, waiting);
                process.world.sleep(20).await;
            }
        }
    }
}

async fn round(generator: &mut dyn Rounds, heard: &Notify, process: &Process, count: u32) -> Result<Run, ReserveError> {
    let round = generator.begin(process.machine.now_ms(), count)?;
    loop {
        match generator.claim(process.machine.now_ms(), round) {
            Err(ReserveError::Pending) => {
                let _ = timeout(Duration::from_millis(50), heard.notified()).await;
                process.machine.go().await;
            }
            answer => return answer,
        }
    }
}
