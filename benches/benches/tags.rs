//! A hundred thousand open tags in one instance of the component: what they cost, and whether one of many is as quick
//! as one alone.
//!
//! Expected: a tag is a generator in the component (some hundred bytes there), a handle, an entry in two maps and a
//! dispenser with its lines of cache outside of it, half a KiB to one KiB in all, so 50 to 100 MiB for 100,000. A call
//! goes to its generator by an index, whatever their number is; only a tag that was not used for long is out of the
//! cache, which costs some hundred nanoseconds per level that it has left. The store's own rows are counted apart.
//!
//! ```text
//! cargo bench -p unalike-benches --bench tags
//! ```

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use unalike::storage::{SegmentStore, StepPolicy, TagOptions};
use unalike::{Ids, Sequence, SequenceOptions};
use unalike_benches::{Bench, Plan, Row, memory_kib};
use unalike_memory::MemoryStore;

const TAGS: usize = 100_000;
const CHUNK: u32 = 1_024;
/// A run that is longer than any that the dispenser holds, so that each call is one crossing.
const TAKEN: u32 = 20_000;
const STEP: u64 = 10_000_000;

fn main() -> Result<()> {
    let plan = Plan::from_args();
    // One chosen tag per call, in an order that no cache foresees.
    let tags = if plan.kept > 1 { TAGS } else { 1_000 };
    let store = Arc::new(MemoryStore::default());
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let alone = Ids::builder().segments(store.clone()).lanes(1).build_blocking()?;
    let many = Ids::builder().segments(store.clone()).lanes(1).build_blocking()?;
    let open = |ids: &Ids, tag: &str| -> Result<Sequence> {
        let sequence = ids.sequence_blocking(tag, SequenceOptions::default())?;
        sequence.next_blocking()?;
        Ok(sequence)
    };
    let options = TagOptions { step: StepPolicy::Fixed { step: STEP }, ..TagOptions::default() };
    let create = |tag: &str| runtime.block_on(store.create_tag(tag, &options)).map(drop);
    create("alone")?;
    create("one of many")?;
    let alone_sequence = open(&alone, "alone")?;
    let chosen = open(&many, "one of many")?;
    let names: Vec<_> = (0..tags).map(|number| format!("tag-{number:06}")).collect();

    let before_store_kib = memory_kib(None)?;
    names.iter().try_for_each(|name| create(name))?;
    let before_kib = memory_kib(None)?;
    let began = Instant::now();
    let mut sequences = names.iter().map(|name| open(&many, name)).collect::<Result<Vec<_>>>()?;
    let opening = began.elapsed();
    let after_kib = memory_kib(None)?;
    shuffle(&mut sequences);
    let again = Instant::now();
    names.iter().try_for_each(|name| many.sequence_blocking(name, SequenceOptions::default()).map(drop))?;
    let looking_up = again.elapsed();

    let mut bench = Bench::new("tags: 100,000 open tags in one instance, beside one tag alone", plan);
    let next = |sequence: &mut &Sequence, tally: &mut unalike_benches::Tally| {
        tally.ids(CHUNK, || Ok(sequence.next_blocking()?))
    };
    let reserve = |sequence: &mut &Sequence, tally: &mut unalike_benches::Tally| {
        (0..16).try_for_each(|_| sequence.take_blocking(TAKEN)?.runs().iter().try_for_each(|run| tally.run(run)))
    };
    let next_alone = bench.case(vec![&alone_sequence], next);
    let next_one = bench.case(vec![&chosen], next);
    let reserve_alone = bench.case(vec![&alone_sequence], reserve);
    let reserve_one = bench.case(vec![&chosen], reserve);
    // Ids of many tags do not ascend, so they are no more than values here.
    let next_each = bench.case(vec![sequences.iter().cycle()], |each, tally| {
        tally.values(CHUNK, || Ok(each.next().context("no tag")?.next_blocking()?))
    });
    let reserve_each = bench.case(vec![sequences.iter().cycle()], |each, tally| {
        tally.values(16, || Ok(each.next().context("no tag")?.take_blocking(TAKEN)?.iter().next().unwrap_or(0)))
    });
    let base = bench.row(Row::ids("next_blocking(), one tag alone", next_alone));
    bench.row(Row::ids("next_blocking(), one of many", next_one).against(base).ratio_at_most(1.1));
    bench.row(Row::calls("next_blocking(), each of many in turn", next_each).against(base));
    let base = bench.row(Row::calls("reserve: take_blocking(20000), one tag alone", reserve_alone));
    bench.row(Row::calls("the same, one of many", reserve_one).against(base).ratio_at_most(1.1));
    bench.row(Row::calls("the same, each of many in turn", reserve_each).against(base));

    let each = |duration: std::time::Duration| duration.as_secs_f64() * 1e6 / tags as f64;
    let mib = |from: f64, to: f64| vec![(to - from) / 1_024.0];
    bench.row(Row::samples("memory of all tags in the store", mib(before_store_kib, before_kib), "MiB"));
    bench.row(Row::samples("memory of all tags, open", mib(before_kib, after_kib), "MiB").at_most(100.0));
    bench.row(Row::samples("opening a tag, its first id included", vec![each(opening)], "us"));
    bench.row(Row::samples("looking an open tag up by its name", vec![each(looking_up)], "us"));
    bench.run()?;
    println!("{tags} tags");
    alone.close_blocking();
    many.close_blocking();
    Ok(())
}

/// The same order each time, and one that is far from that of memory.
fn shuffle<T>(items: &mut [T]) {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for at in (1..items.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        items.swap(at, usize::try_from(state % (at as u64 + 1)).unwrap_or(0));
    }
}
