//! The shortest snowflake that there is, which everybody has written once, and what it takes to measure one below its
//! limit.

use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use unalike_core::Layout;

use crate::{Tally, clock_ms};

/// Timestamp, worker 1 of 1,024 (or none) and sequence behind a lock. It spins when a tick is spent.
#[derive(Debug)]
pub struct MutexSnowflake {
    /// The timestamp and sequence of the last id.
    last: Mutex<(u64, u64)>,
    worker_bits: u32,
    sequence_bits: u32,
}

impl Default for MutexSnowflake {
    /// Twitter's layout.
    fn default() -> Self {
        Self { last: Mutex::default(), worker_bits: 10, sequence_bits: 12 }
    }
}

impl MutexSnowflake {
    /// A sequence of 22 bits, which nobody spends.
    #[must_use]
    pub fn wide() -> Self {
        Self { last: Mutex::default(), worker_bits: 0, sequence_bits: 22 }
    }

    /// The next id.
    #[inline]
    pub fn next(&self) -> u64 {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let worker = u64::from(self.worker_bits > 0);
        loop {
            let ticks = clock_ms().max(last.0 + Layout::TWITTER.epoch_ms()) - Layout::TWITTER.epoch_ms();
            let sequence = if ticks > last.0 { 0 } else { last.1 + 1 };
            if sequence < 1 << self.sequence_bits {
                *last = (ticks, sequence);
                return ((ticks << self.worker_bits | worker) << self.sequence_bits) | sequence;
            }
            std::hint::spin_loop();
        }
    }
}

/// Waits for the next millisecond, and times what then happens.
///
/// # Errors
/// As `work`.
pub fn at_next_tick(tally: &mut Tally, work: impl FnOnce(&mut Tally) -> Result<()>) -> Result<()> {
    let now_ms = clock_ms();
    while clock_ms() == now_ms {
        std::hint::spin_loop();
    }
    tally.time(work)
}
