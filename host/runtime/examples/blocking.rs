//! Threads without an asynchronous runtime: `cargo run -p unalike --example blocking`.
//!
//! The library starts a small runtime of its own for its requests; the program has plain threads and blocking calls.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Result, ensure};
use unalike::{Ids, Layout, SequenceOptions, SnowflakeOptions};
use unalike_memory::MemoryStore;

const THREADS: usize = 4;
const IDS_PER_THREAD: usize = 10_000;

fn main() -> Result<()> {
    // A program whose ids outlive it takes a durable store here.
    let store = Arc::new(MemoryStore::default());
    let ids = Ids::builder().segments(store.clone()).leases(store).build_blocking()?;
    let orders = ids.sequence_blocking("order", SequenceOptions::default())?;
    let flakes = ids.snowflake_blocking("default", SnowflakeOptions::new(Layout::TWITTER))?;

    // Handles are shared by reference or cloned; all threads share one buffer and one worker.
    let taken = std::thread::scope(|scope| {
        let work = || (0..IDS_PER_THREAD).map(|_| orders.next_blocking()).collect::<Result<Vec<_>, _>>();
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<Result<Vec<_>, _>>()
    })?;
    ensure!(taken.iter().all(|ids| ids.is_sorted()), "each thread sees its ids ascend");
    let distinct: BTreeSet<u64> = taken.into_iter().flatten().collect();

    let batch = flakes.take_blocking(1_000)?;
    ids.close_blocking();
    println!("{} distinct numbers, {} snowflakes", distinct.len(), batch.len());
    Ok(())
}
