//! What a format costs per id: writing and reading, in each notation, beside ferroid's base 32, sqids and plain
//! decimals.
//!
//! Expected, on a 2 GHz machine. A text in base 32 is 13 digits of 5 bits, shifts and a look-up: ferroid takes 5 to 10
//! ns to write one and as much to read it, and ours, whose digits are computed since a table would make the component
//! larger, two to four times that. Decimals cost a division by a constant per digit, 20 to 40 ns, of which the standard
//! library, that makes two digits at a time, saves a half and loses it again to the allocation of its `String`. Sqids
//! shuffles its alphabet for each id and looks for bad words in what comes out: a microsecond and more.
//!
//! The permutation is ten times SipHash-2-4 of 8 bytes, one after the other: 10 x 12 to 16 ns, whatever the width. A
//! template adds the date (a dozen divisions, 15 ns), the allocation of a `String` (20 ns) and some ns for each part.
//!
//! What is compared has the same thing done: an id to a text in memory, a text to an id with all of it checked. Ferroid
//! refuses foreign characters and the 64th bit as we do; it takes 0, and lets a 65th bit fall off.
//!
//! ```text
//! cargo bench -p unalike-benches --bench formats
//! ```

use std::hint::black_box;

use anyhow::{Result, anyhow, ensure};
use ferroid::base32::Base32SnowExt;
use ferroid::id::SnowflakeTwitterId;
use sqids::Sqids;
use unalike_benches::{Bench, Plan, Row, RowId};
use unalike_core::{Format, FormatKey, FormatOptions, ID_MAX, Permutation, Text, decode, encode};

const CHUNK: u32 = 1_024;
/// 2026-11-22 in Greenwich.
const NOW_MS: u64 = 1_795_361_401_000;
const FIRST: u64 = ID_MAX - (1 << 40);
const BUYER: u64 = 123_456_789;
const KEY: FormatKey = FormatKey { id: 0, secret: 0x9f3c_1e5b_7a2d_4860_0c41_e6d2_b8f5_730a };

fn main() -> Result<()> {
    let sqids = Sqids::default();
    let mut bench = Bench::new("formats: ids written and read natively, one thread", Plan::from_args());

    let sample = SnowflakeTwitterId::from_raw(FIRST).encode().as_string();
    ensure!(sample == *encode(FIRST, Text::Base32)?, "ferroid writes {sample}");
    let encode_base = writes(&mut bench, "ferroid's base 32, encode", None, FIRST, |id| {
        // A text has to be written somewhere.
        Ok(black_box(&SnowflakeTwitterId::from_raw(id).encode()).as_str().len())
    });
    let decode_base = reads(&mut bench, "ferroid's base 32, decode", None, FIRST, sample, |text| {
        Ok(SnowflakeTwitterId::decode(text).map_err(|error| anyhow!("{error}"))?.to_raw())
    })?;
    let (encoding, decoding) = (Some(encode_base), Some(decode_base));

    for (name, text) in [
        ("base 32", Text::Base32),
        ("base 36", Text::Base36),
        ("base 62", Text::Base62),
        ("decimal", Text::Decimal),
        ("padded", Text::Padded),
        ("uuid", Text::Uuid),
    ] {
        writes(&mut bench, &format!("encode, {name}"), encoding, FIRST, move |id| {
            Ok(black_box(&encode(id, text)?).len())
        });
        let written = encode(FIRST, text)?.as_str().to_owned();
        reads(&mut bench, &format!("decode, {name}"), decoding, FIRST, written, move |it| Ok(decode(it, text)?))?;
    }
    writes(&mut bench, "u64::to_string", encoding, FIRST, |id| Ok(black_box(&id.to_string()).len()));
    reads(&mut bench, "str::parse::<u64>", decoding, FIRST, FIRST.to_string(), |text| Ok(text.parse()?))?;

    writes(&mut bench, "sqids, encode", encoding, FIRST, |id| Ok(black_box(&sqids.encode(&[id])?).len()));
    reads(&mut bench, "sqids, decode", decoding, FIRST, sqids.encode(&[FIRST])?, |text| {
        sqids.decode(text).first().copied().ok_or_else(|| anyhow!("{text} is read as no number"))
    })?;

    let options = FormatOptions { template: "ORD-{yyyyMMdd}-{id:010}-{gene:4}", ..FormatOptions::default() };
    let keyed = FormatOptions { bits: 33, keys: &[KEY], context: "order", ..options };
    for (name, options) in [("template", options), ("template, permuted", keyed)] {
        let format = Format::new(&options)?;
        let text = format.write(42, NOW_MS, Some(BUYER))?;
        let reader = format.clone();
        writes(&mut bench, &format!("{name}, write"), encoding, 42, move |id| {
            Ok(black_box(&format.write(id, NOW_MS, Some(BUYER))?).len())
        });
        reads(&mut bench, &format!("{name}, read"), decoding, 42, text, move |text| Ok(reader.read(text)?.id))?;
    }

    for bits in [40, 63] {
        let permutation = Permutation::new(KEY.secret, "order", bits).ok_or_else(|| anyhow!("{bits} bits"))?;
        let last = (1 << (bits - 1)) - 1;
        ensure!(permutation.apply(last, 0).and_then(|shown| permutation.invert(shown, 0)) == Some(last), "{bits} bits");
        for (name, work) in [
            ("apply", Permutation::apply as fn(&Permutation, u64, u32) -> Option<u64>),
            ("invert", Permutation::invert),
        ] {
            let permutation = permutation.clone();
            let case = bench.case(vec![last], move |number, tally| {
                tally.values(CHUNK, || {
                    *number -= 1;
                    work(&permutation, black_box(*number), 0)
                        .ok_or_else(|| anyhow!("{number} is no number of {bits} bits"))
                })
            });
            bench.row(Row::calls(format!("Permutation::{name}, {bits} bits"), case).against(encode_base));
        }
    }
    bench.run()
}

/// A row of ids that are written one after the other.
fn writes<'a>(
    bench: &mut Bench<'a>,
    name: &str,
    base: Option<RowId>,
    first: u64,
    write: impl Fn(u64) -> Result<usize> + Send + Sync + 'a,
) -> RowId {
    let case = bench.case(vec![first], move |id, tally| {
        tally.values(CHUNK, || {
            *id += 1;
            Ok(write(*id)? as u64)
        })
    });
    row(bench, name, base, case)
}

/// A row of one text that is read again and again, after a look whether it is read rightly.
fn reads<'a>(
    bench: &mut Bench<'a>,
    name: &str,
    base: Option<RowId>,
    id: u64,
    text: String,
    read: impl Fn(&str) -> Result<u64> + Send + Sync + 'a,
) -> Result<RowId> {
    let found = read(&text)?;
    ensure!(found == id, "{name}: {text} is read as {found}, not as {id}");
    let case = bench.case(vec![text], move |text, tally| tally.values(CHUNK, || read(black_box(text.as_str()))));
    Ok(row(bench, name, base, case))
}

fn row(bench: &mut Bench<'_>, name: &str, base: Option<RowId>, case: unalike_benches::CaseId) -> RowId {
    let row = Row::calls(name, case);
    bench.row(match base {
        Some(base) => row.against(base),
        None => row,
    })
}
