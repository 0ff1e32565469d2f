//! The price of the sandbox: `reserve` through the component, by its WIT alone, and the same natively.
//!
//! Expected: a synchronous call into a component costs 140 ns on wasmtime 48 without concurrency support, a resource
//! handle 70 more, lifting a result some 30: 250 to 300 ns, whatever the count is (5 to 15 natively). So 64 ids a call
//! are 4 ns per id and 1,024 a third of one. Compiling some 30 KiB of WebAssembly takes cranelift some 45 ms on
//! one core, once per process; machine code made before loads in half a millisecond, and an instance takes a fifth of one.
//!
//! ```text
//! cargo bench -p unalike-benches --bench crossing
//! ```

use std::time::Instant;

use anyhow::Result;
use unalike_artifact::CORE;
use unalike_benches::{Bench, Compiled, MachineCode, NativeSequence, NativeSnowflake, Plan, Row, undisturbed};
use unalike_core::{Layout, SnowflakeOptions};

const CHUNK: u32 = 64;
const STEP: u64 = 10_000_000;
const NOW_MS: u64 = 1_700_000_000_000;

/// Milliseconds from nothing to the first id, step by step.
struct Start {
    compile: f64,
    first_id: f64,
    total: f64,
    load: f64,
}

fn main() -> Result<()> {
    let plan = Plan::from_args();
    let start = start(plan.kept)?;

    let mut bench = Bench::new("crossing: the component beside unalike-core natively, one thread", plan);
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

    let each = |figure: fn(&Start) -> f64| start.iter().map(figure).collect();
    bench.row(Row::samples("engine, compilation, link", each(|start| start.compile), "ms"));
    bench.row(Row::samples("instantiation and first id", each(|start| start.first_id), "ms"));
    bench.row(Row::samples("from the component's bytes to the first id", each(|start| start.total), "ms").at_most(5.0));
    bench.row(Row::samples("the same from machine code compiled before", each(|start| start.load), "ms").at_most(5.0));
    bench.row(Row::samples("size of the component", vec![CORE.len() as f64 / 1_024.0], "KiB").at_most(32.0));
    bench.run()
}

fn start(times: usize) -> Result<Vec<Start>> {
    let code = MachineCode::new()?;
    undisturbed(times, || {
        let began = Instant::now();
        let compiled = Compiled::new()?;
        let compile = ms(began.elapsed());
        let instantiating = Instant::now();
        compiled.instance(STEP, NOW_MS)?.reserve(1)?;
        let (first_id, total) = (ms(instantiating.elapsed()), ms(began.elapsed()));

        let loading = Instant::now();
        Compiled::load(&code)?.instance(STEP, NOW_MS)?.reserve(1)?;
        Ok(Start { compile, first_id, total, load: ms(loading.elapsed()) })
    })
}

fn ms(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
