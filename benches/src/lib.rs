//! Measures nanoseconds on machines that are not quiet, and says where each figure stands against its target.
//!
//! Long unfiltered windows lie under load: while somebody else has one of two cores, two threads share the other, and
//! a contended figure looks uncontended. So a window is short (3 ms); before it every thread sleeps (12 ms, for fresh
//! credit with the scheduler) and then works until a common start instant; each reads its own processor time, and a
//! window in which any thread got less than 96% of its time is thrown away and repeated. Threads that park on a lock
//! sleep at times: for them it is the time spent waiting for a processor that must be below 4%.
//!
//! Thrown away as well is a window of one thread beside which the probe, a fixed piece of arithmetic, took over 15%
//! longer than at best: a virtual machine's core can run at half its speed while the core's other half works for
//! somebody else, which no clock of the guest shows, and which slows arithmetic far more than atomic operations, so
//! that ratios lie too.
//!
//! What counts is the median of 31 kept windows; "(busy)" marks figures for which too few could be kept. The cases of
//! a bench take turns, so that a slow minute hits a figure and its baseline alike.
//!
//! Ids are folded into an exclusive-or in registers: `black_box` stores each one to memory, which costs some 4 ns
//! before an atomic read-modify-write. Their order is checked beside it, and an id that is wrong fails the bench; a
//! figure that misses its target never does.
//!
//! ```
//! use unalike_benches::{Bench, Plan, Row};
//!
//! # fn main() -> anyhow::Result<()> {
//! let counter = std::sync::atomic::AtomicU64::new(1);
//! let mut bench = Bench::new("an example", Plan::smoke());
//! let case = bench.case(vec![&counter], |counter, tally| {
//!     tally.ids(1_000, || Ok(counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed)))
//! });
//! bench.row(Row::ids("fetch_add", case).ns_at_most(1_000.0));
//! bench.run()
//! # }
//! ```
//!
//! `-- --quick` takes 7 windows instead of 31, for trying things out. Without `--bench`, as under `cargo test`, each
//! case runs one window, to show that the bench still works.

pub mod callers;
mod component;
mod latency;
mod native;
mod peer;
mod process;
mod table;
mod tally;
pub mod tasks;
mod windows;

pub use component::{Compiled, Host, Instance, MachineCode};
pub use latency::Latencies;
pub use native::{NativeSequence, NativeSnowflake};
pub use peer::{MutexSnowflake, at_next_tick};
pub use process::{RedisFigures, allow_open_files, load, memory_kib, redis_benchmark};
pub use table::{Bench, Row, RowId};
pub use tally::Tally;
pub use windows::{CaseId, Plan, check_unique, undisturbed};

use std::hint::black_box;
use std::time::{SystemTime, UNIX_EPOCH};

/// The wall clock in Unix milliseconds, as the standard library gives it.
#[inline]
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the peers read it")]
pub fn clock_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since_epoch.as_secs() * 1_000 + u64::from(since_epoch.subsec_millis())
}

/// A bare reading of the wall clock, which is never cheaper: turning it into milliseconds costs half as much again.
#[inline]
#[expect(clippy::disallowed_methods, reason = "the clock is one of the baselines")]
pub fn read_clock() {
    black_box(SystemTime::now());
}
