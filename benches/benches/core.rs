//! The algorithm by itself: `unalike-core` called natively, beside a bare atomic and the system's clock.
//!
//! Expected, on a 2 GHz machine: `fetch_add` 6 ns (one locked instruction), `SystemTime::now` 24 to 31 ns (the vDSO). A
//! reserve is some dozens of plain instructions on warm cache lines, so 5 to 15 ns per call whatever it answers, and
//! 1,000 ids a call make that a hundredth of a nanosecond per id. A text of 11 to 19 digits costs a division by a
//! constant (1 to 2 ns) per digit to write and less to read: 15 to 40 ns.
//!
//! ```text
//! cargo bench -p unalike-benches --bench core
//! ```

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use unalike_benches::{Bench, NativeSequence, NativeSnowflake, Plan, Row, clock_ms, read_clock};
use unalike_core::{ID_MAX, Layout, SnowflakeOptions, Text, decode, encode};

const CHUNK: u32 = 1_024;
const STEP: u64 = 10_000_000;
const NOW_MS: u64 = 1_700_000_000_000;

fn main() -> Result<()> {
    let counter = AtomicU64::new(1);
    let mut bench = Bench::new("core: unalike-core natively, one thread", Plan::from_args());

    let fetch_add =
        bench.case(vec![&counter], |counter, tally| tally.ids(CHUNK, || Ok(counter.fetch_add(1, Ordering::Relaxed))));
    let clock = bench.case(vec![()], |(), tally| tally.values(CHUNK, || Ok(clock_ms())));
    let bare_clock = bench.case(vec![()], |(), tally| {
        tally.values(CHUNK, || {
            read_clock();
            Ok(0)
        })
    });
    let by_one = bench.case(vec![NativeSequence::new(STEP)?], |sequence, tally| {
        tally.ids(CHUNK, || Ok(sequence.reserve(NOW_MS, 1)?.first))
    });
    let by_thousand = bench.case(vec![NativeSequence::new(STEP)?], |sequence, tally| {
        (0..CHUNK / 16).try_for_each(|_| tally.run(&sequence.reserve(NOW_MS, 1_000)?))
    });
    let each_of_thousand = bench.case(vec![NativeSequence::new(STEP)?], |sequence, tally| {
        let run = sequence.reserve(NOW_MS, 1_000)?;
        tally.batch(&[run], run.ids())
    });
    let flakes = || NativeSnowflake::new(SnowflakeOptions::new(Layout::TWITTER), NOW_MS);
    let flake_by_one =
        bench.case(vec![flakes()?], |snowflake, tally| tally.ids(CHUNK, || Ok(snowflake.reserve(1)?.first)));
    let flake_by_tick = bench.case(vec![flakes()?], |snowflake, tally| {
        (0..CHUNK / 16).try_for_each(|_| {
            snowflake.tick();
            tally.run(&snowflake.reserve(u32::MAX)?)
        })
    });

    let base = bench.row(Row::ids("AtomicU64::fetch_add", fetch_add));
    bench.row(Row::calls("SystemTime::now", bare_clock).against(base));
    bench.row(Row::calls("SystemTime::now as Unix milliseconds", clock).against(base));
    bench.row(Row::ids("SegmentBuffer::reserve(1)", by_one).against(base));
    bench.row(Row::calls("SegmentBuffer::reserve(1000), per call", by_thousand).against(base));
    bench.row(Row::ids("SegmentBuffer::reserve(1000), per id", by_thousand).against(base));
    bench.row(Row::ids("the same, each id looked at", each_of_thousand).against(base).ns_at_most(1.0));
    bench.row(Row::ids("Snowflake::reserve(1), Twitter's layout", flake_by_one).against(base));
    bench.row(Row::calls("Snowflake::reserve(a tick), per call", flake_by_tick).against(base));
    bench.row(Row::ids("Snowflake::reserve(a tick), per id", flake_by_tick).against(base));

    for (name, text) in [("decimal", Text::Decimal), ("base 62", Text::Base62), ("base 32", Text::Base32)] {
        let write = bench.case(vec![ID_MAX - (1 << 40)], move |id, tally| {
            tally.values(CHUNK, || {
                *id += 1;
                // A text has to be written somewhere.
                Ok(black_box(&encode(*id, text)?).len() as u64)
            })
        });
        let id = ID_MAX - 12_345;
        let written = encode(id, text)?;
        ensure!(decode(&written, text)? == id, "{written} is not read as {id}");
        let read = bench.case(vec![written], move |written, tally| {
            tally.values(CHUNK, || Ok(decode(black_box(written.as_str()), text)?))
        });
        bench.row(Row::calls(format!("encode, {name}"), write).against(base));
        bench.row(Row::calls(format!("decode, {name}"), read).against(base));
    }
    bench.run()
}
