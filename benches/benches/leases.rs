//! What the renewal of a lease costs those who ask for ids: single calls under a lease that is renewed all the time,
//! against a lease of 366 days that is never renewed.
//!
//! Expected: nothing. A renewal starts inside an ordinary call when a third of the horizon has passed, its request runs
//! on the executor, and its answer is taken in by a later call; no call waits for it while the old end is still to
//! come. With a horizon of 100 ms and a store that takes 5 ms there are some 26 renewals a second, two crossings more
//! for each among the thousand that a second's ticks take. So p50 to p99.9 are those of the static lease, and the ratio
//! of p99.99 is 1 within the noise (one call in 10,000 is slower than the crossing of its tick, for reasons of the
//! machine).
//!
//! Ids are asked for at a million a second, a quarter of what the layout allows, and each call is timed, one reading of
//! the clock (some 28 ns) included. The two take turns of 100 ms; a figure is the median of the turns' quantiles.
//!
//! ```text
//! cargo bench -p unalike-benches --bench leases
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use async_trait::async_trait;
use unalike::storage::{GrantId, Lease, LeaseAcquire, LeaseExtend, LeaseLimits, LeaseRecord, LeaseStore, StoreError};
use unalike::{Ids, Layout, Snowflake, SnowflakeOptions};
use unalike_benches::{Bench, Latencies, Plan, Row};
use unalike_memory::{MemoryOptions, MemoryStore};

/// What the store takes to answer.
const STORE_TAKES: Duration = Duration::from_millis(5);
const HORIZON_MS: u64 = 100;
const TURN: Duration = Duration::from_millis(100);
/// Calls are paced in groups of as many as fall into a microsecond.
const CALL_EVERY: Duration = Duration::from_micros(1);
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.999_9)];

/// A lease store that is far away, and counts what it is asked.
struct Distant {
    inner: MemoryStore,
    extended: AtomicU64,
}

#[async_trait]
impl LeaseStore for Distant {
    async fn acquire(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError> {
        tokio::time::sleep(STORE_TAKES).await;
        self.inner.acquire(acquire).await
    }

    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        tokio::time::sleep(STORE_TAKES).await;
        self.extended.fetch_add(1, Ordering::Relaxed);
        self.inner.extend(extend).await
    }

    async fn release(&self, namespace: &str, worker: u32, grant_id: GrantId, end_ms: u64) -> Result<bool, StoreError> {
        LeaseStore::release(&self.inner, namespace, worker, grant_id, end_ms).await
    }

    async fn forbid_extension(&self, namespace: &str, worker: u32) -> Result<Option<LeaseRecord>, StoreError> {
        self.inner.forbid_extension(namespace, worker).await
    }

    async fn leases(&self, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        self.inner.leases(namespace).await
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        self.inner.namespaces().await
    }
}

/// The calls under one kind of lease: quantiles by turn, and all together.
struct Side {
    name: &'static str,
    flakes: Snowflake,
    store: Arc<Distant>,
    quantiles_ns: [Vec<f64>; QUANTILES.len()],
    all: Latencies,
    last: u64,
    /// How many of the timed calls had to wait.
    waits: u64,
}

impl Side {
    fn open(name: &'static str, horizon_ms: u64) -> Result<(Self, Ids)> {
        let limits = LeaseLimits { max_horizon_ms: LeaseLimits::HORIZON_MAX_MS, ..LeaseLimits::default() };
        let inner = MemoryStore::new(MemoryOptions { limits, ..MemoryOptions::default() });
        let store = Arc::new(Distant { inner, extended: AtomicU64::new(0) });
        let ids = Ids::builder().leases(store.clone()).build_blocking()?;
        let options = SnowflakeOptions { horizon_ms, ..SnowflakeOptions::new(Layout::TWITTER) };
        let flakes = ids.snowflake_blocking("default", options)?;
        flakes.next_blocking()?;
        let (quantiles_ns, all) = (Default::default(), Latencies::default());
        Ok((Self { name, flakes, store, quantiles_ns, all, last: 0, waits: 0 }, ids))
    }

    /// Asks for ids for a while; a caller that was late catches up, as requests that queue do.
    fn turn(&mut self) -> Result<()> {
        let mut latencies = Latencies::default();
        // While it was the other's turn nobody asked, and a short lease has run out: that is not what is measured.
        self.last = self.flakes.next_blocking()?;
        let waits = self.flakes.status()?.waits;
        let began = Instant::now();
        let mut due = began;
        loop {
            let mut before = Instant::now();
            while before < due {
                std::hint::spin_loop();
                before = Instant::now();
            }
            due += CALL_EVERY;
            if before - began >= TURN {
                break;
            }
            let id = self.flakes.next_blocking()?;
            let took = before.elapsed();
            latencies.add(took);
            self.all.add(took);
            ensure!(id > self.last, "the id {id} came after {}", self.last);
            self.last = id;
        }
        self.waits += self.flakes.status()?.waits - waits;
        for (samples, (_, share)) in self.quantiles_ns.iter_mut().zip(QUANTILES) {
            samples.push(latencies.quantile_ns(share) as f64);
        }
        Ok(())
    }
}

fn main() -> Result<()> {
    let plan = Plan::from_args();
    let (mut fixed, fixed_ids) = Side::open("a lease of 366 days", LeaseLimits::HORIZON_MAX_MS)?;
    let (mut renewed, renewed_ids) = Side::open("a lease of 100 ms", HORIZON_MS)?;
    // The first turns are for the caches, and for the first renewals.
    for kept in [false, true] {
        for side in [&mut fixed, &mut renewed] {
            (side.quantiles_ns, side.all) = (Default::default(), Latencies::default());
            side.store.extended.store(0, Ordering::Relaxed);
            side.waits = 0;
        }
        for _ in 0..if kept { plan.kept } else { 2 } {
            fixed.turn()?;
            renewed.turn()?;
        }
    }

    let mut bench = Bench::new("leases: next_blocking() at 1 M/s, each call timed", plan);
    let quantiles = std::mem::take(&mut fixed.quantiles_ns).into_iter().zip(std::mem::take(&mut renewed.quantiles_ns));
    for ((label, _), (fixed_ns, renewed_ns)) in QUANTILES.into_iter().zip(quantiles) {
        let base = bench.row(Row::samples(format!("{}: {label}", fixed.name), fixed_ns, "ns"));
        bench
            .row(Row::samples(format!("{}: {label}", renewed.name), renewed_ns, "ns").against(base).ratio_at_most(1.2));
    }
    let extended = [&fixed, &renewed].map(|side| side.store.extended.load(Ordering::Relaxed));
    ensure!(extended[0] == 0, "a lease of 366 days was renewed {} times", extended[0]);
    ensure!(extended[1] > 0, "the short lease was never renewed");
    bench.run()?;
    for (side, extended) in [&fixed, &renewed].into_iter().zip(extended) {
        println!("{}, renewed {extended} times, {} calls waited", side.all.line(side.name), side.waits);
    }
    fixed_ids.close_blocking();
    renewed_ids.close_blocking();
    Ok(())
}
