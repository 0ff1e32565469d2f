//! Callers that each ask for one number, again and again: the same loop for ours and for other clients.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// What callers got in one window.
#[derive(Clone, Copy, Debug)]
pub struct CallerWindow {
    /// Calls per second of all callers.
    pub per_second: f64,
    /// The median of how long a call took, in microseconds.
    pub p50_us: f64,
    /// What 1% of the calls exceeded, in microseconds.
    pub p99_us: f64,
}

const BEGINNING: u8 = 0;
const MEASURED: u8 = 1;
const ENDING: u8 = 2;

/// One window of so many callers, each a task of the runtime that this is called in, with a third of its length before
/// it for all of them to get going. Each call is timed; each caller's numbers must ascend.
///
/// # Errors
/// What a call fails with, and when a number is not above the caller's last one.
pub async fn window<F, A>(callers: usize, length: Duration, ask: F) -> Result<CallerWindow>
where
    F: Fn() -> A + Clone + Send + 'static,
    A: Future<Output = Result<u64>> + Send,
{
    let phase = Arc::new(AtomicU8::new(BEGINNING));
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let (phase, ask) = (Arc::clone(&phase), ask.clone());
            tokio::spawn(async move {
                let (mut last, mut took_ns) = (0, Vec::new());
                let mut before = Instant::now();
                loop {
                    let number = ask().await?;
                    let after = Instant::now();
                    ensure!(number > last, "{number} came after {last}");
                    last = number;
                    match phase.load(Ordering::Relaxed) {
                        BEGINNING => {}
                        MEASURED => took_ns.push(u32::try_from((after - before).as_nanos()).unwrap_or(u32::MAX)),
                        _ => return anyhow::Ok(took_ns),
                    }
                    before = after;
                    // Whoever never waits lets the others have their turn.
                    tokio::task::consume_budget().await;
                }
            })
        })
        .collect();
    tokio::time::sleep(length / 3).await;
    phase.store(MEASURED, Ordering::Relaxed);
    let began = Instant::now();
    tokio::time::sleep(length).await;
    phase.store(ENDING, Ordering::Relaxed);
    let length = began.elapsed();
    let mut took_ns = Vec::new();
    for task in tasks {
        took_ns.append(&mut task.await??);
    }
    ensure!(!took_ns.is_empty(), "no call ended within the window");
    took_ns.sort_unstable();
    let quantile = |share: usize| {
        let at = (took_ns.len() * share / 100).min(took_ns.len() - 1);
        took_ns.get(at).map_or(0.0, |&ns| f64::from(ns) / 1_000.0)
    };
    Ok(CallerWindow {
        per_second: took_ns.len() as f64 / length.as_secs_f64(),
        p50_us: quantile(50),
        p99_us: quantile(99),
    })
}
