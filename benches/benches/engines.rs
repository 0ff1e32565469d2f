//! What WebAssembly costs an application: the same calls with the core as the component, and with the native core.
//!
//! Expected: `next` is the host's own in both, and calls the core once per 8,192 ids, so there is no difference that
//! can be measured. A call that asks the core each time costs a crossing more: 250 ns in all, beside 50 natively, of
//! which the lane's lock and the clock are most. So the native core is for who wants no wasmtime in a program, not for
//! who wants more ids. The store grants ten million numbers at a time: refills are in the figures, the store is not.
//!
//! ```text
//! cargo bench -p unalike-benches --bench engines
//! ```

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use unalike::{Engine, Ids, SequenceOptions, StepPolicy};
use unalike_benches::{Bench, Plan, Row, undisturbed};
use unalike_memory::MemoryStore;

const CHUNK: u32 = 1_024;
const STEP: u64 = 10_000_000;

/// More than a run holds that is not asked for by its length.
const BATCH: u32 = 20_000;

fn main() -> Result<()> {
    let plan = Plan::from_args();
    let first = |engine| undisturbed(plan.kept, || first_id(engine));
    // The component is compiled once per process, so not in these.
    first_id(Engine::Component)?;
    let (first_component, first_native) = (first(Engine::Component)?, first(Engine::Native)?);

    let (component, native) = (open(Engine::Component)?, open(Engine::Native)?);
    let options = SequenceOptions { step: Some(StepPolicy::Fixed { step: STEP }), ..SequenceOptions::default() };
    let sequences = |tag: &str| -> Result<_> {
        Ok([component.sequence_blocking(tag, options)?, native.sequence_blocking(tag, options)?])
    };
    let mut bench = Bench::new("engines: the component and the native core, one thread", plan);
    let next = sequences("next")?
        .map(|sequence| bench.case(vec![sequence], |it, tally| tally.ids(CHUNK, || Ok(it.next_blocking()?))));
    let takes = sequences("take")?.map(|sequence| {
        bench.case(vec![sequence], |it, tally| {
            (0..CHUNK / 64).try_for_each(|_| it.take_blocking(BATCH)?.runs().iter().try_for_each(|run| tally.run(run)))
        })
    });
    let statuses = sequences("status")?
        .map(|sequence| bench.case(vec![sequence], |it, tally| tally.values(CHUNK, || Ok(it.status()?.step))));

    let [of_component, of_native] = next;
    let base = bench.row(Row::ids("next_blocking(), component", of_component));
    bench.row(Row::ids("next_blocking(), native", of_native).against(base).ratio_at_most(1.1));
    for (name, [component, native]) in [("take_blocking(20000), per run", takes), ("status()", statuses)] {
        let base = bench.row(Row::calls(format!("{name}, component"), component));
        bench.row(Row::calls(format!("{name}, native"), native).against(base).ratio_at_most(1.0));
    }
    let base = bench.row(Row::samples("another Ids and its first id, component", first_component, "ms"));
    bench.row(Row::samples("another Ids and its first id, native", first_native, "ms").against(base));
    bench.run()?;
    component.close_blocking();
    native.close_blocking();
    Ok(())
}

fn open(engine: Engine) -> Result<Ids> {
    Ok(Ids::builder().segments(Arc::new(MemoryStore::default())).engine(engine).build_blocking()?)
}

/// Milliseconds from nothing to the first id, in a program that has had one before.
fn first_id(engine: Engine) -> Result<f64> {
    let began = Instant::now();
    let ids = open(engine)?;
    ids.sequence_blocking("order", SequenceOptions::default())?.next_blocking()?;
    let took = began.elapsed();
    ids.close_blocking();
    Ok(took.as_secs_f64() * 1_000.0)
}
