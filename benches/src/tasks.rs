//! Callers as tasks, measured in windows: for stores, whose requests take longer than a processor's noise.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::runtime::Runtime;

use crate::Plan;

/// What one caller does, again and again.
pub trait Caller: Send + 'static {
    /// Once. Answers how many ids, grants or statements it was.
    fn request(&mut self) -> impl Future<Output = Result<u64>> + Send;
}

/// Callers that are measured in windows, in turns with others.
#[derive(Debug)]
pub struct Tasks<C> {
    callers: Vec<C>,
    /// How much was served each second, in each window.
    pub rates: Vec<f64>,
    /// What the caller that got least had of an even share, in percent, in each window.
    pub shares: Vec<f64>,
}

impl<C: Caller> Tasks<C> {
    /// These, one task each.
    #[must_use]
    pub const fn new(callers: Vec<C>) -> Self {
        Self { callers, rates: Vec::new(), shares: Vec::new() }
    }

    /// One window, with a third of its length before it for all callers to get going.
    ///
    /// # Errors
    /// What a caller fails with.
    pub async fn window(&mut self, length: Duration) -> Result<()> {
        let ending = Arc::new(AtomicBool::new(false));
        let counts: Arc<[AtomicU64]> = self.callers.iter().map(|_| AtomicU64::new(0)).collect();
        let tasks: Vec<_> = (0..)
            .zip(self.callers.drain(..))
            .map(|(number, mut caller)| {
                let (counts, ending) = (Arc::clone(&counts), Arc::clone(&ending));
                tokio::spawn(async move {
                    while !ending.load(Ordering::Relaxed) {
                        let served = caller.request().await?;
                        if let Some(count) = counts.get(number) {
                            count.fetch_add(served, Ordering::Relaxed);
                        }
                    }
                    anyhow::Ok(caller)
                })
            })
            .collect();
        let count = || counts.iter().map(|count| count.load(Ordering::Relaxed)).collect::<Vec<_>>();
        tokio::time::sleep(length / 3).await;
        let (before, began) = (count(), Instant::now());
        tokio::time::sleep(length).await;
        let (after, took) = (count(), began.elapsed());
        ending.store(true, Ordering::Relaxed);
        for task in tasks {
            self.callers.push(task.await??);
        }
        let served: Vec<_> = after.iter().zip(before).map(|(after, before)| after - before).collect();
        let total = served.iter().sum::<u64>() as f64;
        self.rates.push(total / took.as_secs_f64());
        let least = served.iter().min().copied().unwrap_or_default() as f64;
        self.shares.push(100.0 * least * served.len() as f64 / total.max(1.0));
        Ok(())
    }

    /// As many windows of each as the plan keeps, in turns.
    ///
    /// # Errors
    /// What a caller fails with.
    pub fn measure(runtime: &Runtime, plan: Plan, length: Duration, all: &mut [Self]) -> Result<()> {
        for _ in 0..plan.kept {
            for tasks in &mut *all {
                runtime.block_on(tasks.window(length))?;
            }
        }
        Ok(())
    }
}
