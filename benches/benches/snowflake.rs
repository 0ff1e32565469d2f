//! Snowflakes through the component and the host library: at the layout's limit, and the cost of an id below it.
//!
//! Expected: a 12-bit sequence is spent after 4,096 ids a millisecond, so 4,096,000 ids/s is what the layout allows and
//! 244 ns per id what a saturated figure says about any generator. Windows at the limit are 500 ms long and begin after
//! 60 ms of the same work, so the 10 ms that a generator may run ahead of the clock are used up before and flatter
//! nothing; one row does without them. Below the limit an id is one reading of the clock (24 to 31 ns, 13 more as
//! milliseconds) and an uncontended lock (15 ns), so some 55 ns, with a crossing per tick on top: 3 ns per id at 100
//! ids a tick.
//! The peer is the shortest snowflake that there is: a mutex around a timestamp and a sequence.
//!
//! ```text
//! cargo bench -p unalike-benches --bench snowflake
//! ```

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use unalike::{Ids, Layout, LayoutFields, Snowflake, SnowflakeOptions};
use unalike_benches::{Bench, Latencies, MutexSnowflake, Plan, Row, at_next_tick, check_unique, clock_ms, read_clock};
use unalike_memory::MemoryStore;

const CHUNK: u32 = 256;
/// What a 12-bit sequence allows in a second of 1 ms ticks.
const LIMIT: f64 = 4_096_000.0;

fn main() -> Result<()> {
    let store = Arc::new(MemoryStore::default());
    let ids = Ids::builder().leases(store).build_blocking()?;
    let twitter = SnowflakeOptions::new(Layout::TWITTER);
    let never_ahead = SnowflakeOptions { ahead_max_ms: 0, ..twitter };
    let fields = LayoutFields { datacenter_bits: 0, worker_bits: 0, sequence_bits: 22, ..Layout::TWITTER.fields() };
    let wide = SnowflakeOptions::new(Layout::new(fields)?);
    let open = |namespace: &str, options| ids.snowflake_blocking(namespace, options);

    let plan = Plan::from_args();
    at_the_limit(plan, &open, twitter, never_ahead)?;
    below_the_limit(plan, &open, twitter, wide)?;

    let latencies = open("latency", twitter)?;
    let mut latency = Latencies::default();
    for _ in 0..2 {
        latency = Latencies::measure(plan.kept * 30_000, || Ok(latencies.next_blocking()?))?;
    }
    println!("{}", latency.line("next_blocking() at the limit, each call timed"));

    check_layout(&open("layout", twitter)?)?;
    check_unique("snowflakes on 2 threads", &mut vec![open("unique", twitter)?; 2], 500_000, |flakes| {
        Ok(flakes.next_blocking()?)
    })?;
    ids.close_blocking();
    Ok(())
}

type Open<'a> = dyn Fn(&str, SnowflakeOptions) -> Result<Snowflake, unalike::Error> + 'a;

fn at_the_limit(plan: Plan, open: &Open<'_>, twitter: SnowflakeOptions, never_ahead: SnowflakeOptions) -> Result<()> {
    let spinning = plan.windows(Duration::from_millis(500), 0.25).warm_up(Duration::from_millis(60)).unfiltered();
    let peer = MutexSnowflake::default();
    let mut bench = Bench::new("snowflake at the limit: 12-bit sequence, 4.096 M/s allowed", spinning);
    let peer = bench.case(vec![&peer], |peer, tally| tally.ids(CHUNK, || Ok(peer.next())));
    let mut case = |name: &str, options| -> Result<_> {
        Ok(bench.case(vec![open(name, options)?], |flakes: &mut Snowflake, tally| {
            tally.ids(CHUNK, || Ok(flakes.next_blocking()?))
        }))
    };
    let blocking = case("limit", twitter)?;
    let blocking_0 = case("limit-0", never_ahead)?;
    let mut case = |name: &str, options| -> Result<_> {
        Ok(bench.case(vec![open(name, options)?], |flakes: &mut Snowflake, tally| {
            tally.ids(CHUNK, || {
                loop {
                    if let Some(id) = flakes.try_next()? {
                        return Ok(id);
                    }
                }
            })
        }))
    };
    let spin = case("limit-spin", twitter)?;
    let spin_0 = case("limit-spin-0", never_ahead)?;
    let take = bench.case(vec![open("limit-take", twitter)?], |flakes, tally| {
        flakes.take_blocking(4_096)?.runs().iter().try_for_each(|run| tally.run(run))
    });
    let two = bench
        .case(vec![open("limit-2", twitter)?; 2], |flakes, tally| tally.ids(CHUNK, || Ok(flakes.next_blocking()?)));

    let target = 0.99 * LIMIT;
    let base = bench.row(Row::ids("Mutex<snowflake>, waits by spinning", peer));
    let mut row = |name: &str, case| {
        bench.row(Row::ids(name, case).against(base).per_second_at_least(target));
    };
    row("next_blocking()", blocking);
    row("next_blocking(), never ahead of the clock", blocking_0);
    row("try_next() until it answers", spin);
    row("try_next(), never ahead of the clock", spin_0);
    row("take_blocking(4096)", take);
    row("next_blocking(), 2 threads", two);
    bench.run()
}

fn below_the_limit(plan: Plan, open: &Open<'_>, twitter: SnowflakeOptions, wide: SnowflakeOptions) -> Result<()> {
    let paced = plan.windows(Duration::from_millis(6), 1.0);
    let mutexes = [MutexSnowflake::wide(), MutexSnowflake::wide()];
    let mut bench = Bench::new("snowflake below the limit: the cost of an id", plan);
    for per_tick in [100, 1_000] {
        let mutex = MutexSnowflake::default();
        let clock = bench
            .case_by(paced, vec![()], move |(), tally| at_next_tick(tally, |tally| tally.values(per_tick, bare_clock)));
        let peer = bench.case_by(paced, vec![mutex], move |peer, tally| {
            at_next_tick(tally, |tally| tally.ids(per_tick, || Ok(peer.next())))
        });
        let flakes = open(&format!("paced-{per_tick}"), twitter)?;
        let ours = bench.case_by(paced, vec![flakes], move |flakes, tally| {
            at_next_tick(tally, |tally| tally.ids(per_tick, || Ok(flakes.next_blocking()?)))
        });
        let flakes = open(&format!("paced-take-{per_tick}"), twitter)?;
        let take = bench.case_by(paced, vec![flakes], move |flakes, tally| {
            at_next_tick(tally, |tally| {
                let batch = flakes.take_blocking(per_tick)?;
                tally.batch(batch.runs(), batch.iter())
            })
        });
        let of = format!("{per_tick} ids a tick");
        let base = bench.row(Row::ids(format!("SystemTime::now, {of}"), clock));
        bench.row(Row::ids(format!("Mutex<snowflake>, {of}"), peer).against(base));
        bench.row(Row::ids(format!("next_blocking(), {of}"), ours).against(base).ratio_at_most(1.5));
        bench.row(Row::ids(format!("take_blocking({per_tick}).iter(), {of}"), take).against(base));
    }
    for (threads, mutex) in (1..).zip(&mutexes) {
        let (on, plan) = if threads == 1 { ("1 thread", plan) } else { ("2 threads", plan.may_park()) };
        let clock = bench.case_by(plan, vec![(); threads], |(), tally| tally.values(CHUNK, bare_clock));
        let peer = bench.case_by(plan, vec![mutex; threads], |peer, tally| tally.ids(CHUNK, || Ok(peer.next())));
        let flakes = open(&format!("wide-{threads}"), wide)?;
        let ours = bench
            .case_by(plan, vec![flakes; threads], |flakes, tally| tally.ids(CHUNK, || Ok(flakes.next_blocking()?)));
        let base = bench.row(Row::ids(format!("SystemTime::now, {on}"), clock));
        bench.row(Row::ids(format!("Mutex<snowflake>, 22-bit sequence, {on}"), peer).against(base));
        let row = Row::ids(format!("next_blocking(), 22-bit sequence, {on}"), ours).against(base);
        bench.row(if threads == 1 { row.ratio_at_most(1.5) } else { row });
    }
    bench.run()
}

fn bare_clock() -> Result<u64> {
    read_clock();
    Ok(0)
}

/// Ids carry the present, within what they may run ahead and a pause of this process.
fn check_layout(flakes: &Snowflake) -> Result<()> {
    let id = flakes.next_blocking()?;
    let ticks = flakes.layout().unpack(id).context("an id that its layout does not know")?.ticks;
    let (stamp_ms, now_ms) = (flakes.layout().tick_start_ms(ticks), clock_ms());
    ensure!(stamp_ms.abs_diff(now_ms) < 1_000, "an id of {stamp_ms} was handed out at {now_ms}");
    Ok(())
}
