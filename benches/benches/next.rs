//! What an application pays for an id of a sequence: `next` and `take`, one thread and two on one sequence, against a
//! bare `fetch_add` under the same threads; also with runs per thread and per handle.
//!
//! Expected, on a 2 GHz machine with two cores: `fetch_add` 6 ns on one thread and 18 on two. `next` is one `fetch_add`
//! and a few loads of a line that nobody writes, so 8 to 9 ns and 20 to 27, with a crossing (465 ns) per 8,192 ids,
//! less than a tenth of a nanosecond each. A run of one's own costs an addition to plain memory. `take(1000)` is one
//! addition per batch, a crossing per eight, an allocation, and the loop of the caller. The store grants ten million
//! numbers at a time: refills are in the figures, the store is not.
//!
//! ```text
//! cargo bench -p unalike-benches --bench next
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use tokio::runtime::Runtime;
use unalike::{Ids, Order, Sequence, SequenceOptions, StepPolicy};
use unalike_benches::{Bench, CaseId, Latencies, Plan, Row, RowId, check_unique};
use unalike_memory::MemoryStore;

const CHUNK: u32 = 1_024;
const STEP: u64 = 10_000_000;

fn main() -> Result<()> {
    let ids = Ids::builder().segments(Arc::new(MemoryStore::default())).build_blocking()?;
    let options = SequenceOptions { step: Some(StepPolicy::Fixed { step: STEP }), ..SequenceOptions::default() };
    let open = |tag: &str| ids.sequence_blocking(tag, options);
    let plan = Plan::from_args();
    let counters = [AtomicU64::new(1), AtomicU64::new(1)];
    let locks = [Mutex::new(0), Mutex::new(0)];
    let mut bench = Bench::new("next: ids of one sequence, in the process", plan);
    for ((threads, counter), locked) in (1..).zip(&counters).zip(&locks) {
        let (on, plan) = if threads == 1 { ("1 thread", plan) } else { ("2 threads", plan.may_park()) };
        let states = |tag: &str| open(tag).map(|sequence| vec![sequence; threads]);
        let asynchronous = |tag: &str| -> Result<Vec<(Runtime, Sequence)>> {
            let sequence = open(tag)?;
            (0..threads).map(|_| Ok((current_thread()?, sequence.clone()))).collect()
        };

        let fetch_add = bench.case_by(plan, vec![counter; threads], |counter, tally| {
            tally.ids(CHUNK, || Ok(counter.fetch_add(1, Ordering::Relaxed)))
        });
        let runtimes = (0..threads).map(|_| current_thread()).collect::<Result<Vec<_>>>()?;
        let counting = runtimes.into_iter().map(|runtime| (runtime, counter)).collect();
        let fetch_add_async = bench.case_by(plan, counting, |(runtime, counter), tally| {
            runtime.block_on(async {
                let mut local = *tally;
                for _ in 0..CHUNK {
                    local.id(std::future::ready(counter.fetch_add(1, Ordering::Relaxed)).await);
                }
                *tally = local;
                tally.check()
            })
        });
        let mutex = bench.case_by(plan, vec![locked; threads], |locked: &mut &Mutex<u64>, tally| {
            tally.ids(CHUNK, || {
                let mut last = locked.lock().unwrap_or_else(PoisonError::into_inner);
                *last += 1;
                Ok(*last)
            })
        });
        let next_blocking = bench.case_by(plan, states(&format!("next-blocking-{threads}"))?, |sequence, tally| {
            tally.ids(CHUNK, || Ok(sequence.next_blocking()?))
        });
        let try_next = bench.case_by(plan, states(&format!("try-next-{threads}"))?, |sequence, tally| {
            tally.ids(CHUNK, || {
                loop {
                    if let Some(id) = sequence.try_next()? {
                        return Ok(id);
                    }
                }
            })
        });
        let next = bench.case_by(plan, asynchronous(&format!("next-{threads}"))?, |(runtime, sequence), tally| {
            runtime.block_on(async {
                let mut local = *tally;
                for _ in 0..CHUNK {
                    local.id(sequence.next().await?);
                }
                *tally = local;
                tally.check()
            })
        });
        let mut threaded = options;
        threaded.order = Some(Order::Thread);
        let sequence = ids.sequence_blocking(&format!("per-thread-{threads}"), threaded)?;
        let per_thread = bench.case_by(plan.own_order(), vec![sequence; threads], |sequence, tally| {
            tally.ids(CHUNK, || Ok(sequence.next_blocking()?))
        });
        let sequence = open(&format!("local-{threads}"))?;
        let handles = (0..threads).map(|_| sequence.local()).collect::<Result<Vec<_>, _>>()?;
        let local =
            bench.case_by(plan.own_order(), handles, |handle, tally| tally.ids(CHUNK, || Ok(handle.next_blocking()?)));
        let take_runs = bench.case_by(plan, states(&format!("take-runs-{threads}"))?, |sequence, tally| {
            sequence.take_blocking(1_000)?.runs().iter().try_for_each(|run| tally.run(run))
        });
        let take_iter = bench.case_by(plan, states(&format!("take-iter-{threads}"))?, |sequence, tally| {
            let batch = sequence.take_blocking(1_000)?;
            tally.batch(batch.runs(), batch.iter())
        });
        let take_for = bench.case_by(plan, states(&format!("take-for-{threads}"))?, |sequence, tally| {
            let batch = sequence.take_blocking(1_000)?;
            tally.batch(batch.runs(), &batch)
        });
        let take = bench.case_by(plan, asynchronous(&format!("take-{threads}"))?, |(runtime, sequence), tally| {
            let batch = runtime.block_on(sequence.take(1_000))?;
            tally.batch(batch.runs(), batch.iter())
        });

        // Half of one addition; and five times the throughput of two threads that contend for one.
        let own = if threads == 1 { 0.5 } else { 0.2 };
        let base = bench.row(Row::ids(format!("fetch_add, {on}"), fetch_add));
        // What an asynchronous loop keeps across its waits lies in memory, which an addition to shared memory waits
        // for.
        bench.row(Row::ids(format!("fetch_add in an asynchronous loop, {on}"), fetch_add_async).against(base));
        bench.row(Row::ids(format!("Mutex<u64> += 1, {on}"), mutex).against(base));
        let against = |name: &str, case: CaseId| row(name, on, case, base);
        let rows = [
            against("next_blocking()", next_blocking).ratio_at_most(1.5),
            against("try_next()", try_next).ratio_at_most(1.5),
            against("next().await", next).ratio_at_most(1.5),
            against("next_blocking(), Order::Thread", per_thread).ratio_at_most(own),
            against("local().next_blocking()", local).ratio_at_most(own),
            against("take_blocking(1000), runs alone", take_runs),
            against("take_blocking(1000).iter()", take_iter).ns_at_most(1.0),
            against("for id in &take_blocking(1000)", take_for).ns_at_most(1.0),
            against("take(1000).await.iter()", take).ns_at_most(1.0),
        ];
        for row in rows {
            bench.row(row);
        }
    }
    bench.run()?;

    let latencies = open("latency")?;
    let mut latency = Latencies::default();
    for _ in 0..2 {
        // The first round opens the sequence and grows its runs.
        latency = Latencies::measure(plan.kept * 30_000, || Ok(latencies.next_blocking()?))?;
    }
    println!("{}", latency.line("next_blocking(), each call timed"));
    check_unique("next_blocking() on 2 threads", &mut vec![open("unique")?; 2], 500_000, |sequence| {
        Ok(sequence.next_blocking()?)
    })?;
    ids.close_blocking();
    Ok(())
}

fn row(name: &str, on: &str, case: CaseId, base: RowId) -> Row {
    Row::ids(format!("{name}, {on}"), case).against(base)
}

/// A runtime of the measuring thread's own, with the timers that a wait for the store needs.
fn current_thread() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
