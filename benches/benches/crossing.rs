//! The price of the sandbox: `reserve` through the component, by its WIT alone, and the same natively.
//!
//! Expected: a synchronous call into a component costs 140 ns on wasmtime 48 without concurrency support, a resource
//! handle 70 more, lifting a result some 30: 250 to 300 ns, whatever the count is (5 to 15 natively). So 64 ids a call
//! are 4 ns per id and 1,024 a third of one. How long it takes to get there is in the bench `start`.
//!
//! ```text
//! cargo bench -p unalike-benches --bench crossing
//! ```

use anyhow::Result;
use unalike_benches::{Bench, Compiled, NativeSequence, NativeSnowflake, Plan, Row};
use unalike_core::{Layout, SnowflakeOptions};

const CHUNK: u32 = 64;
const STEP: u64 = 10_000_000;
const NOW_MS: u64 = 1_700_000_000_000;

fn main() -> Result<()> {
    let mut bench = Bench::new("crossing: the component beside unalike-core natively, one thread", Plan::from_args());
    let compiled = Compiled::new()?;
    let instance = || compiled.instance(STEP, NOW_MS);

    let refused =
        bench.case(vec![instance()?], |instance, tally| tally.values(CHUNK, || instance.reserve_none().map(|()| 0)));
    bench.row(Row::calls("a call that is refused (count 0)", refused));
    let mut per_id = Vec::new();
    for count in [1, 64, 1_024] {
        let native = bench.case(vec![NativeSequence::new(STEP)?], move |sequence, tally| {
            (0..CHUNK).try_for_each(|_| tally.run(&sequence.reserve(NOW_MS, count)?))
        });
        let crossing = bench.case(vec![instance()?], move |instance, tally| {
            (0..CHUNK).try_for_each(|_| tally.run(&instance.reserve(count)?))
        });
        let base = bench.row(Row::calls(format!("sequence reserve({count}), native"), native));
        let row = Row::calls(format!("sequence reserve({count}), component"), crossing);
        bench.row(row.against(base).ns_at_most(300.0));
        per_id.push((count, crossing));
    }
    for (count, crossing) in per_id {
        bench.row(Row::ids(format!("sequence reserve({count}), component, per id"), crossing));
    }

    let flakes = || NativeSnowflake::new(SnowflakeOptions::new(Layout::TWITTER), NOW_MS);
    let native =
        bench.case(vec![flakes()?], |snowflake, tally| (0..CHUNK).try_for_each(|_| tally.run(&snowflake.reserve(1)?)));
    let crossing = bench.case(vec![instance()?], |instance, tally| {
        (0..CHUNK).try_for_each(|_| tally.run(&instance.reserve_snowflakes(1)?))
    });
    let native_tick = bench.case(vec![flakes()?], |snowflake, tally| {
        (0..CHUNK).try_for_each(|_| {
            snowflake.tick();
            tally.run(&snowflake.reserve(u32::MAX)?)
        })
    });
    let crossing_tick = bench.case(vec![instance()?], |instance, tally| {
        (0..CHUNK).try_for_each(|_| {
            instance.tick();
            tally.run(&instance.reserve_snowflakes(u32::MAX)?)
        })
    });
    for (name, native, crossing) in [("1", native, crossing), ("a tick", native_tick, crossing_tick)] {
        let base = bench.row(Row::calls(format!("snowflake reserve({name}), native"), native));
        let row = Row::calls(format!("snowflake reserve({name}), component"), crossing);
        bench.row(row.against(base).ns_at_most(300.0));
    }
    bench.row(Row::ids("snowflake reserve(a tick), component, per id", crossing_tick));
    bench.run()
}
