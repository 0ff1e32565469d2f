//! Snowflake crates side by side: saturated, and below the limit, where an id shows what it costs.
//!
//! Expected: every generator with a 12-bit sequence stops at 4,096,000 ids/s, 244 ns per id, so a saturated figure says
//! nothing about a generator but that it reaches the limit. 1,000 ids at the beginning of a millisecond stay below it:
//! there an id costs what its clock, its lock and its arithmetic cost. ferroid's clock is an atomic that a thread of
//! its own writes once a millisecond (14 ns per id); the others read the system's clock for each id (24 to 31 ns)
//! behind a lock (15 ns) or a compare-and-swap. Ours reads the clock for each id, since one more id of a tick may be
//! handed out only within it. A sequence needs no clock.
//!
//! All have Twitter's layout and worker 1. `snowflaked` panics when the clock steps back, `rs-snowflake` can repeat ids
//! then, and ferroid follows the monotonic clock from its start on; none of them knows whether another process has the
//! same worker id.
//!
//! ```text
//! cargo bench -p unalike-benches --bench peers
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Result;
use ferroid::generator::AtomicSnowflakeGenerator;
use ferroid::id::SnowflakeTwitterId;
use ferroid::time::{MonotonicClock, TWITTER_EPOCH};
use snowflake::SnowflakeIdGenerator;
use unalike::{Ids, Layout, Sequence, SequenceOptions, Snowflake, SnowflakeOptions, StepPolicy};
use unalike_benches::{Bench, CaseId, MutexSnowflake, Plan, Row, at_next_tick, check_unique, read_clock};
use unalike_memory::MemoryStore;

const CHUNK: u32 = 256;
/// Ids of a burst: a quarter of what a 12-bit sequence allows in a millisecond.
const BURST: u32 = 1_000;
const LIMIT: f64 = 4_096_000.0;

/// The generators, each shared by all threads.
struct Generators {
    counter: AtomicU64,
    mutex: MutexSnowflake,
    ferroid: AtomicSnowflakeGenerator<SnowflakeTwitterId, MonotonicClock<1>>,
    snowflaked: snowflaked::sync::Generator,
    rs_snowflake: Mutex<SnowflakeIdGenerator>,
    snowflake: Snowflake,
    sequence: Sequence,
}

impl Generators {
    fn fetch_add(&self) -> Result<u64> {
        Ok(self.counter.fetch_add(1, Ordering::Relaxed))
    }

    fn mutex(&self) -> Result<u64> {
        Ok(self.mutex.next())
    }

    fn ferroid(&self) -> Result<u64> {
        Ok(self.ferroid.next_id(|_| std::hint::spin_loop()).to_raw())
    }

    fn snowflaked(&self) -> Result<u64> {
        Ok(self.snowflaked.generate())
    }

    fn rs_snowflake(&self) -> Result<u64> {
        let mut generator = self.rs_snowflake.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(u64::try_from(generator.real_time_generate())?)
    }

    fn snowflake(&self) -> Result<u64> {
        Ok(self.snowflake.next_blocking()?)
    }

    fn sequence(&self) -> Result<u64> {
        Ok(self.sequence.next_blocking()?)
    }
}

fn main() -> Result<()> {
    let store = Arc::new(MemoryStore::default());
    let ids = Ids::builder().segments(store.clone()).leases(store).build_blocking()?;
    let step = Some(StepPolicy::Fixed { step: 10_000_000 });
    let epoch = UNIX_EPOCH + Duration::from_millis(Layout::TWITTER.epoch_ms());
    let generators = Generators {
        counter: AtomicU64::new(1),
        mutex: MutexSnowflake::default(),
        ferroid: AtomicSnowflakeGenerator::new(1, MonotonicClock::with_epoch(TWITTER_EPOCH)),
        snowflaked: snowflaked::Builder::new().instance(1).epoch(epoch).build(),
        rs_snowflake: Mutex::new(SnowflakeIdGenerator::with_epoch(0, 1, epoch)),
        snowflake: ids.snowflake_blocking("peers", SnowflakeOptions::new(Layout::TWITTER))?,
        sequence: ids.sequence_blocking("peers", SequenceOptions { step, ..SequenceOptions::default() })?,
    };
    let plan = Plan::from_args();
    at_the_limit(plan, &generators)?;
    below_the_limit(plan, &generators, 1)?;
    below_the_limit(plan.may_park(), &generators, 2)?;

    let names = ["Mutex<snowflake>", "ferroid", "snowflaked", "Mutex<rs-snowflake>", "unalike"];
    let all = [
        Generators::mutex,
        Generators::ferroid,
        Generators::snowflaked,
        Generators::rs_snowflake,
        Generators::snowflake,
    ];
    for (name, next) in names.into_iter().zip(all) {
        check_unique(&format!("{name} on 2 threads"), &mut [(), ()], 200_000, |()| next(&generators))?;
    }
    ids.close_blocking();
    Ok(())
}

/// Saturated, on one thread: windows of 100 ms after as much of the same work, so that what a generator may run ahead
/// of the clock is used up before.
fn at_the_limit(plan: Plan, generators: &Generators) -> Result<()> {
    let long = Duration::from_millis(100);
    let plan = plan.windows(long, 0.25).warm_up(long).unfiltered();
    let mut bench = Bench::new("peers at the limit: 12-bit sequence, 4.096 M/s allowed, one thread", plan);
    let mutex = saturated(&mut bench, || generators.mutex());
    let ferroid = saturated(&mut bench, || generators.ferroid());
    let snowflaked = saturated(&mut bench, || generators.snowflaked());
    let rs_snowflake = saturated(&mut bench, || generators.rs_snowflake());
    let ours = saturated(&mut bench, || generators.snowflake());
    let base = bench.row(Row::ids("Mutex<snowflake>", mutex));
    bench.row(Row::ids("ferroid 2.0 AtomicSnowflakeGenerator", ferroid).against(base));
    bench.row(Row::ids("snowflaked 1.0 sync::Generator", snowflaked).against(base));
    bench.row(Row::ids("Mutex<rs-snowflake 0.6>, real_time_generate()", rs_snowflake).against(base));
    let ours = Row::ids("unalike Snowflake::next_blocking()", ours);
    bench.row(ours.against(base).per_second_at_least(0.99 * LIMIT));
    bench.run()
}

fn saturated<'a>(bench: &mut Bench<'a>, next: impl Fn() -> Result<u64> + Sync + 'a) -> CaseId {
    bench.case(vec![()], move |(), tally| tally.ids(CHUNK, &next))
}

/// 1,000 ids at the beginning of a millisecond, which the threads share.
fn below_the_limit(plan: Plan, generators: &Generators, threads: u32) -> Result<()> {
    let title = match threads {
        1 => "peers below the limit: 1,000 ids at the beginning of a millisecond, one thread",
        _ => "peers below the limit: 1,000 ids at the beginning of a millisecond, two threads on one generator",
    };
    let mut bench = Bench::new(title, plan.windows(Duration::from_millis(6), 1.0));
    let share = BURST / threads;
    let clock = bench.case(vec![(); usize::try_from(threads)?], move |(), tally| {
        at_next_tick(tally, |tally| {
            tally.values(share, || {
                read_clock();
                Ok(0)
            })
        })
    });
    let fetch_add = burst(&mut bench, threads, || generators.fetch_add());
    let mutex = burst(&mut bench, threads, || generators.mutex());
    let ferroid = burst(&mut bench, threads, || generators.ferroid());
    let snowflaked = burst(&mut bench, threads, || generators.snowflaked());
    let rs_snowflake = burst(&mut bench, threads, || generators.rs_snowflake());
    let ours = burst(&mut bench, threads, || generators.snowflake());
    let sequence = burst(&mut bench, threads, || generators.sequence());

    let base = bench.row(Row::ids("SystemTime::now", clock));
    bench.row(Row::ids("AtomicU64::fetch_add", fetch_add).against(base));
    bench.row(Row::ids("Mutex<snowflake>", mutex).against(base));
    bench.row(Row::ids("ferroid 2.0 AtomicSnowflakeGenerator", ferroid).against(base));
    bench.row(Row::ids("snowflaked 1.0 sync::Generator", snowflaked).against(base));
    bench.row(Row::ids("Mutex<rs-snowflake 0.6>, real_time_generate()", rs_snowflake).against(base));
    let ours = Row::ids("unalike Snowflake::next_blocking()", ours).against(base);
    bench.row(if threads == 1 { ours.ratio_at_most(1.5) } else { ours });
    bench.row(Row::ids("unalike Sequence::next_blocking()", sequence).against(base));
    bench.run()
}

fn burst<'a>(bench: &mut Bench<'a>, threads: u32, next: impl Fn() -> Result<u64> + Sync + 'a) -> CaseId {
    let states = (0..threads).map(|_| ()).collect();
    bench.case(states, move |(), tally| at_next_tick(tally, |tally| tally.ids(BURST / threads, &next)))
}
