//! `next` across refills: what single calls take, and how many of them have to wait, when the store is slow.
//!
//! Expected: a call takes some 10 ns, one in some hundred or thousand a crossing more (300 ns to 1 us), and none waits
//! for the store once the step fits the demand: a refill begins when a tenth of a segment is used, so a store that
//! takes 50 ms is waited for only while nine tenths of a segment last less than that. Steps double from 1,000 to
//! 1,000,000 with each segment that is used up within 15 minutes, so a million ids a second have outgrown a store of 50
//! ms after some 10 segments, and a tenfold burst needs no further growth: 900,000 numbers last 90 ms at ten million a
//! second. At a hundred million a second they last 9 ms; there the step may grow to 100,000,000.
//!
//! Each call is timed, one reading of the clock (some 28 ns) included; the baseline is the same loop around nothing.
//! What the machine takes for itself (interrupts, other processes) is in the tails of both. A call waits if `try_next`
//! has no id for it.
//!
//! ```text
//! cargo bench -p unalike-benches --bench refill
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use unalike::{AdaptiveStep, Ids, Sequence, SequenceOptions, StepPolicy};
use unalike_benches::{Bench, Latencies, Plan, Row, RowId};
use unalike_tests::faulty::FaultyStore;

/// Calls are paced in groups of as many as fall into a microsecond.
const GROUP_EVERY: Duration = Duration::from_micros(1);

/// How fast ids are asked for.
#[derive(Clone, Copy)]
enum Pace {
    /// So many in every microsecond.
    PerMicrosecond(u32),
    /// One after the other.
    Saturated,
}

/// What a stretch of calls came to.
#[derive(Default)]
struct Stretch {
    latencies: Latencies,
    waited: u64,
    calls: u64,
}

fn main() -> Result<()> {
    let plan = Plan::from_args();
    // 3.1 seconds, so that a million calls a second are enough for the target.
    let measured = Duration::from_millis(100) * u32::try_from(plan.kept)?;
    let settled = Duration::from_millis(65) * u32::try_from(plan.kept)?;
    let mut bench = Bench::new("refill: next() across refills from a slow store, each call timed", plan);
    let mut lines = Vec::new();

    let calm = "1 M/s";
    let nothing = run(Pace::PerMicrosecond(1), measured, || Ok((1, false)))?;
    let base_paced = add(&mut bench, &mut lines, &format!("nothing, {calm}"), &nothing, None);
    let nothing = run(Pace::Saturated, measured / 4, || Ok((1, false)))?;
    let base_saturated = add(&mut bench, &mut lines, "nothing, saturated", &nothing, None);

    for delay_ms in [0, 1, 50] {
        let store = Arc::new(FaultyStore::default());
        store.set_delay(Duration::from_millis(delay_ms));
        let ids = Ids::builder().segments(store.clone()).build_blocking()?;
        let steady = ids.sequence_blocking("steady", SequenceOptions::default())?;
        let at = |what: &str| format!("store {delay_ms} ms, {what}");

        let adapting = run(Pace::PerMicrosecond(1), settled, next(&steady))?;
        bench.row(share_waiting(at(&format!("{calm}, the first seconds")), &adapting));
        let stretch = run(Pace::PerMicrosecond(1), measured, next(&steady))?;
        add(&mut bench, &mut lines, &at(calm), &stretch, Some(base_paced));
        bench.row(share_waiting(at(calm), &stretch).at_most(1.0));
        let burst = run(Pace::PerMicrosecond(10), settled, next(&steady))?;
        bench.row(share_waiting(at("then a burst of 10 M/s, its first seconds"), &burst));
        let burst = run(Pace::PerMicrosecond(10), measured, next(&steady))?;
        add(&mut bench, &mut lines, &at("then 10 M/s"), &burst, Some(base_paced));
        bench.row(share_waiting(at("then 10 M/s"), &burst).at_most(1.0));

        let step = AdaptiveStep { max: 100_000_000, ..AdaptiveStep::default() };
        let options = SequenceOptions { step: Some(StepPolicy::Adaptive(step)), ..SequenceOptions::default() };
        let saturated = ids.sequence_blocking("saturated", options)?;
        run(Pace::Saturated, settled, next(&saturated))?;
        let stretch = run(Pace::Saturated, measured / 4, next(&saturated))?;
        add(&mut bench, &mut lines, &at("saturated"), &stretch, Some(base_saturated));
        bench.row(share_waiting(at("saturated"), &stretch).at_most(1.0));
        ids.close_blocking();
    }
    bench.run()?;
    lines.iter().for_each(|line| println!("{line}"));
    Ok(())
}

/// The next id of a sequence, and whether it had to be waited for.
fn next(sequence: &Sequence) -> impl FnMut() -> Result<(u64, bool)> {
    move || match sequence.try_next()? {
        Some(id) => Ok((id, false)),
        None => Ok((sequence.next_blocking()?, true)),
    }
}

/// Adds the rows of a stretch, and the line with all its quantiles; answers the row of the mean.
fn add(
    bench: &mut Bench<'_>,
    lines: &mut Vec<String>,
    name: &str,
    stretch: &Stretch,
    base: Option<(RowId, RowId)>,
) -> (RowId, RowId) {
    let mean = Row::samples(format!("{name}: mean"), vec![stretch.latencies.mean_ns()], "ns");
    let tail = Row::samples(format!("{name}: p99.99"), vec![stretch.latencies.quantile_ns(0.999_9) as f64], "ns");
    lines.push(stretch.latencies.line(name));
    match base {
        Some((base_mean, base_tail)) => (bench.row(mean.against(base_mean)), bench.row(tail.against(base_tail))),
        None => (bench.row(mean), bench.row(tail)),
    }
}

fn share_waiting(name: String, stretch: &Stretch) -> Row {
    let per_million = stretch.waited as f64 / stretch.calls.max(1) as f64 * 1e6;
    Row::samples(format!("{name}: calls that waited"), vec![per_million], "per million")
}

/// Asks for ids at a pace for a while. A caller that was late catches up, as requests that queue do.
fn run(pace: Pace, length: Duration, mut next: impl FnMut() -> Result<(u64, bool)>) -> Result<Stretch> {
    let group = match pace {
        Pace::PerMicrosecond(group) => group,
        Pace::Saturated => 1_024,
    };
    let mut stretch = Stretch::default();
    let mut last = 0;
    let began = Instant::now();
    let mut due = began;
    loop {
        let mut before = Instant::now();
        if let Pace::PerMicrosecond(_) = pace {
            while before < due {
                std::hint::spin_loop();
                before = Instant::now();
            }
            due += GROUP_EVERY;
        }
        if before - began >= length {
            break;
        }
        for _ in 0..group {
            let (id, waited) = next()?;
            let after = Instant::now();
            stretch.latencies.add(after - before);
            before = after;
            stretch.waited += u64::from(waited);
            stretch.calls += 1;
            ensure!(id > last || id == 1, "the id {id} came after {last}");
            last = id;
        }
    }
    Ok(stretch)
}
