//! Ids and texts against packages that others wrote: what is made here they take apart as it was meant, and the other
//! way around. The programs in `tests/others` call them.
//!
//! Where a package takes what is no id (it cuts a field that is too large, or reads a character that stands for
//! nothing), a test says so, and that it is refused here.

#![expect(
    clippy::panic_in_result_fn,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

use std::collections::BTreeSet;
use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::process::Command;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, ensure};
use fastrand::Rng;
use serde_json::{Value, json};
use unalike::uuid::Uuid;
use unalike::{Clock, RandomIds};
use unalike_core::{FieldOrder, ID_MAX, Layout, LayoutError, LayoutFields, Parts, Text, TextError, decode, encode};
use unalike_notation::Ulid;

/// How many ids are compared at least, of each package or notation and in each direction.
const COMPARED: usize = 10_000;

/// How many of each layout of a package after its first.
const COMPARED_AGAIN: usize = 1_000;

/// How many ids a package makes by the clock: fewer than it has in a millisecond, if it has that many.
const GENERATED: usize = 1_000;

/// A package, as the programs that call it name it.
#[derive(Clone, Copy)]
enum Package {
    /// In `packages.cjs`.
    Npm(&'static str),
    /// In `packages.py`.
    PyPi(&'static str),
}

const SAPPHIRE: Package = Package::Npm("sapphire");
const JAVASCRIPT: Package = Package::Npm("javascript");
const SNOWFLAKE_ID: Package = Package::PyPi("snowflake_id");
const SONYFLAKE: Package = Package::PyPi("sonyflake");
const TSIDPY: Package = Package::PyPi("tsidpy");
const ULID: Package = Package::PyPi("ulid");
const PYTHON_ULID: Package = Package::PyPi("python_ulid");
const PYTHON: Package = Package::PyPi("python");
const UUID: Package = Package::PyPi("uuid");

/// What Python calls the variant of the UUIDs that are in use.
const RFC: &str = "specified in RFC 4122";

impl Package {
    /// Asks all questions in one process: the answers, one for each.
    fn ask(self, direction: &str, questions: &[Value]) -> anyhow::Result<Vec<Value>> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no root")?;
        let installed = |path: &str, command: &str| {
            let path = root.join(path);
            ensure!(path.exists(), "packages of others are missing; install them: {command} (tests/run does that)");
            Ok(path)
        };
        let (mut command, name) = match self {
            Self::Npm(name) => {
                let modules = installed(
                    "target/others/node/node_modules",
                    "mkdir -p target/others/node && cp tests/others/package*.json target/others/node && npm ci \
                     --prefix target/others/node",
                )?;
                let mut command = Command::new("node");
                command.env("NODE_PATH", modules).arg(root.join("tests/others/packages.cjs"));
                (command, name)
            }
            Self::PyPi(name) => {
                let mut command = Command::new(installed(
                    "target/others/python/bin/python",
                    "python3 -m venv target/others/python && target/others/python/bin/pip install -r \
                     tests/others/requirements.txt",
                )?);
                command.arg("-B").arg(root.join("tests/others/packages.py"));
                (command, name)
            }
        };
        // From a file, so that neither side waits for the other to read.
        let mut lines = tempfile::tempfile()?;
        lines.write_all(questions.iter().map(|question| format!("{question}\n")).collect::<String>().as_bytes())?;
        lines.rewind()?;
        let output = command.args([name, direction]).stdin(lines).output().context("the program does not start")?;
        ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let answers: Vec<Value> =
            str::from_utf8(&output.stdout)?.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        ensure!(answers.len() == questions.len(), "{name}: {} answers to {}", answers.len(), questions.len());
        println!("{name}, {direction}: {}", answers.len());
        Ok(answers)
    }

    /// Has it read what was made here: questions, each with the only right answer.
    fn reads(self, questions: impl Iterator<Item = (Value, Value)>) -> anyhow::Result<()> {
        let (questions, expected): (Vec<_>, Vec<_>) = questions.unzip();
        for ((question, answer), expected) in questions.iter().zip(&self.ask("read", &questions)?).zip(&expected) {
            assert_eq!(answer, expected, "to {question}");
        }
        Ok(())
    }

    /// Has it make ids of these parts, and takes them apart.
    fn writes(self, layout: Layout, all: &[Parts], question: impl Fn(Parts) -> Value) -> anyhow::Result<Vec<Value>> {
        let questions: Vec<Value> = all.iter().map(|parts| question(*parts)).collect();
        let answers = self.ask("write", &questions)?;
        for ((question, answer), parts) in questions.iter().zip(&answers).zip(all) {
            let id = whole(answer, "id").with_context(|| question.to_string())?;
            assert_eq!(layout.unpack(id), Ok(*parts), "{layout}: {id} to {question}");
            assert_eq!(layout.pack(*parts), Ok(id), "{layout}: {id} to {question}");
        }
        Ok(answers)
    }

    /// Has it make ids by the clock: they are of this layout, of that time and worker, and ascend.
    fn generates(self, layout: Layout, worker: u32, mut question: Value) -> anyhow::Result<()> {
        question["count"] = json!(GENERATED.to_string());
        let answer = &self.ask("generate", &[question])?[0];
        let tick_at = |key| layout.tick_at(whole(answer, key)?).context("before the epoch");
        let ticks = tick_at("from")?..=tick_at("until")?;
        let mut ids = Vec::new();
        for id in answer["ids"].as_array().with_context(|| format!("no ids in {answer}"))? {
            let id = id.as_str().context("no text")?.parse()?;
            let parts = layout.unpack(id)?;
            assert!(parts.worker == worker && ticks.contains(&parts.ticks), "{layout}: {id} is {parts:?}");
            ids.push(id);
        }
        assert!(ids.len() == GENERATED && ids.is_sorted_by(|one, next| one < next), "{layout}: {ids:?}");
        Ok(())
    }
}

/// A text of an answer.
fn text<'a>(answer: &'a Value, key: &str) -> anyhow::Result<&'a str> {
    answer[key].as_str().with_context(|| format!("no {key} in {answer}"))
}

/// A whole number of an answer.
fn whole<T: FromStr<Err: Into<anyhow::Error>>>(answer: &Value, key: &str) -> anyhow::Result<T> {
    text(answer, key)?.parse().map_err(Into::into).with_context(|| format!("{key} of {answer}"))
}

/// 0, 1, the middle, the greatest, and their neighbours.
fn edges(max: u64) -> BTreeSet<u64> {
    [0, 1, 2, max / 2, max / 2 + 1, max.saturating_sub(1), max].into_iter().filter(|edge| *edge <= max).collect()
}

/// Each bit alone, and all others without it.
fn bits(max: u64) -> impl Iterator<Item = u64> {
    (0..64).map(|bit| 1 << bit).take_while(move |bit| *bit <= max).flat_map(move |bit| [bit, max - bit])
}

/// At least so many combinations of fields: the edges of each with those of all others, each bit beside fields of zeros
/// and of ones, and random ones, each with its neighbours.
fn parts_of(layout: Layout, count: usize) -> Vec<Parts> {
    let maxima = [layout.max_tick(), u64::from(layout.worker_max()), u64::from(layout.sequence_max())];
    let mut found = BTreeSet::new();
    for ticks in edges(maxima[0]) {
        for worker in edges(maxima[1]) {
            found.extend(edges(maxima[2]).into_iter().map(|sequence| [ticks, worker, sequence]));
        }
    }
    for (field, max) in maxima.into_iter().enumerate() {
        for bit in bits(max) {
            for mut parts in [[0; 3], maxima] {
                parts[field] = bit;
                found.insert(parts);
            }
        }
    }
    let mut random = Rng::with_seed(u64::from(layout.sequence_bits()));
    while found.len() <= count {
        let parts = maxima.map(|max| random.u64(0..=max));
        for (field, max) in maxima.into_iter().enumerate() {
            let mut neighbour = parts;
            neighbour[field] = max.min(neighbour[field] + 1);
            found.extend([parts, neighbour]);
        }
    }
    // Id 0 is none.
    found.remove(&[0; 3]);
    let narrow = |value| u32::try_from(value).unwrap();
    found
        .into_iter()
        .map(|[ticks, worker, sequence]| Parts { ticks, worker: narrow(worker), sequence: narrow(sequence) })
        .collect()
}

/// Ids: the first and the last ones, each bit, all these with their neighbours, and random ones of every length.
fn ids() -> Vec<u64> {
    let mut found: BTreeSet<u64> =
        bits(ID_MAX).chain(edges(ID_MAX)).flat_map(|id| [id.saturating_sub(1), id, id + 1]).collect();
    found.retain(|id| (1..=ID_MAX).contains(id));
    let mut random = Rng::with_seed(63);
    while found.len() < COMPARED {
        found.insert((random.u64(..ID_MAX) >> random.u32(..63)) + 1);
    }
    found.into_iter().collect()
}

/// An id as text.
fn written(id: u64, notation: Text) -> String {
    encode(id, notation).unwrap().as_str().to_owned()
}

/// Twitter's and Discord's, which the package names, and one of another epoch. Its worker and process are datacenter
/// and worker here.
#[test]
fn sapphire_snowflake_of_npm() -> anyhow::Result<()> {
    let since_2025 = Layout::new(LayoutFields { epoch_ms: 1_735_689_600_000, ..Layout::TWITTER.fields() })?;
    for (layout, epoch, count) in [
        (Layout::TWITTER, "twitter", COMPARED),
        (Layout::DISCORD, "discord", COMPARED_AGAIN),
        (since_2025, "1735689600000", COMPARED_AGAIN),
    ] {
        let fields = |parts: Parts| {
            let (datacenter, worker) = layout.split_worker(parts.worker).unwrap();
            json!({
                "timestamp": layout.tick_start_ms(parts.ticks).to_string(),
                "workerId": datacenter.to_string(),
                "processId": worker.to_string(),
                "increment": parts.sequence.to_string(),
            })
        };
        let all = parts_of(layout, count);
        SAPPHIRE.reads(all.iter().map(|parts| {
            let id = layout.pack(*parts).unwrap();
            let mut answer = fields(*parts);
            answer["ofPadded"] = json!(id.to_string());
            // It computes this with doubles, to which the last ids of a millisecond are those of the next.
            let rounded = (id as f64 / f64::from(1 << 22)).floor() + layout.epoch_ms() as f64;
            answer["timestampFrom"] = json!(rounded.to_string());
            (json!({"id": id.to_string(), "padded": written(id, Text::Padded), "epoch": epoch}), answer)
        }))?;
        SAPPHIRE.writes(layout, &all, |parts| {
            let mut question = fields(parts);
            question["epoch"] = json!(epoch);
            question
        })?;
        let own = json!({"workerId": "9", "processId": "31", "epoch": epoch});
        SAPPHIRE.generates(layout, layout.join_worker(9, 31)?, own)?;
    }
    Ok(())
}

/// Two layouts of its widths. Its instance is the worker here.
#[test]
fn snowflake_id_of_pypi() -> anyhow::Result<()> {
    for (layout, count) in [(Layout::LEAF, COMPARED), (Layout::COSID, COMPARED_AGAIN)] {
        let epoch = layout.epoch_ms().to_string();
        let fields = |parts: Parts| {
            json!({
                "milliseconds": layout.tick_start_ms(parts.ticks).to_string(),
                "instance": parts.worker.to_string(),
                "seq": parts.sequence.to_string(),
            })
        };
        let all = parts_of(layout, count);
        SNOWFLAKE_ID
            .reads(all.iter().map(|parts| {
                (json!({"id": layout.pack(*parts).unwrap().to_string(), "epoch": epoch}), fields(*parts))
            }))?;
        SNOWFLAKE_ID.writes(layout, &all, |parts| {
            let mut question = fields(parts);
            question["epoch"] = json!(epoch);
            question
        })?;
        SNOWFLAKE_ID.generates(layout, 1023, json!({"worker": "1023", "epoch": epoch}))?;
    }
    Ok(())
}

/// Its defaults, which leave the epoch open, and two others that can be given to it.
#[test]
fn sonyflake_of_pypi() -> anyhow::Result<()> {
    let other = |timestamp_bits, sequence_bits, worker_bits, tick_ms, epoch_ms| {
        let widths = LayoutFields { timestamp_bits, sequence_bits, worker_bits, ..Layout::SONYFLAKE.fields() };
        Layout::new(LayoutFields { tick_ms, epoch_ms, ..widths })
    };
    let options = |start_ms, bits_sequence, bits_machine_id, unit_ms| {
        json!({
            "start_ms": start_ms, "bits_sequence": bits_sequence, "bits_machine_id": bits_machine_id, "unit_ms": unit_ms
        })
    };
    for (layout, options, count) in [
        (Layout::SONYFLAKE, json!({"start_ms": "1735689600000"}), COMPARED),
        (other(32, 15, 16, 1000, 0)?, options("0", "15", "16", "1000"), COMPARED_AGAIN),
        // Since 2020-01-01T00:00:00Z.
        (other(43, 11, 9, 1, 1_577_836_800_000)?, options("1577836800000", "11", "9", "1"), COMPARED_AGAIN),
    ] {
        let all = parts_of(layout, count);
        SONYFLAKE.reads(all.iter().map(|parts| {
            let mut question = options.clone();
            question["id"] = json!(layout.pack(*parts).unwrap().to_string());
            let answer = json!({
                "time": parts.ticks.to_string(),
                "sequence": parts.sequence.to_string(),
                "machine_id": parts.worker.to_string(),
                "unix_ms": layout.tick_start_ms(parts.ticks).to_string(),
            });
            (question, answer)
        }))?;
        let answers = SONYFLAKE.writes(layout, &all, |parts| {
            let mut question = options.clone();
            question["unix_ms"] = json!(layout.tick_start_ms(parts.ticks).to_string());
            question["sequence"] = json!(parts.sequence.to_string());
            question["machine_id"] = json!(parts.worker.to_string());
            question
        })?;
        // These are of half a millisecond after a tick began. At its very beginning the package's floats may still be
        // in the one before.
        for answer in &answers {
            let (id, of_begin): (u64, u64) = (whole(answer, "id")?, whole(answer, "id_of_begin")?);
            assert!(id == of_begin || id == of_begin + layout.workers() * layout.ids_per_tick(), "{layout}: {answer}");
        }
        let mut own = options.clone();
        own["worker"] = json!(layout.worker_max().to_string());
        SONYFLAKE.generates(layout, layout.worker_max(), own)?;
    }
    Ok(())
}

/// With nodes of these widths: 42 bits of ms since 2020-01-01T00:00:00Z, which are 41 here, node, counter. And its
/// texts.
#[test]
fn tsidpy_of_pypi() -> anyhow::Result<()> {
    for (node_bits, count) in [(10, COMPARED), (0, COMPARED_AGAIN), (20, COMPARED_AGAIN)] {
        let layout = Layout::new(LayoutFields {
            timestamp_bits: 41,
            datacenter_bits: 0,
            worker_bits: node_bits,
            sequence_bits: 22 - node_bits,
            order: FieldOrder::WorkerFirst,
            epoch_ms: 1_577_836_800_000,
            tick_ms: 1,
        })?;
        let all = parts_of(layout, count);
        TSIDPY.reads(all.iter().map(|parts| {
            let id = layout.pack(*parts).unwrap();
            let (text, base62) = (written(id, Text::Base32), written(id, Text::Base62));
            let aliases = text.to_lowercase().replace('0', "o").replacen('1', "i", 1).replace('1', "l");
            assert_eq!(decode(&aliases, Text::Base32), Ok(id), "{aliases}");
            let id = id.to_string();
            let random = u64::from(parts.worker) << layout.sequence_bits() | u64::from(parts.sequence);
            let answer = json!({
                "timestamp": layout.tick_start_ms(parts.ticks).to_string(),
                "random": random.to_string(),
                "text": id,
                "aliases": id,
                "decimal": id,
                "base62": id,
                "written": text,
                "written_as_base62": base62,
            });
            (json!({"id": id, "text": text, "aliases": aliases, "decimal": id, "base62": base62}), answer)
        }))?;

        let questions: Vec<Value> = all
            .iter()
            .map(|parts| {
                // The package's clock goes on: an hour before the last tick it stays within the layout.
                let ticks = parts.ticks.min(layout.max_tick() - 3_600_000);
                json!({
                    "ticks": ticks.to_string(),
                    "node": parts.worker.to_string(),
                    "node_bits": node_bits.to_string(),
                    "counter": parts.sequence.to_string(),
                })
            })
            .collect();
        for ((question, answer), asked) in questions.iter().zip(&TSIDPY.ask("write", &questions)?).zip(&all) {
            let id = whole(answer, "id")?;
            let parts = layout.unpack(id)?;
            assert_eq!((parts.worker, parts.sequence), (asked.worker, asked.sequence), "{answer} to {question}");
            assert!((whole(question, "ticks")?..=whole(answer, "until_ticks")?).contains(&parts.ticks), "{answer}");
            for (key, notation) in [
                ("text", Text::Base32),
                ("lower_case", Text::Base32),
                ("decimal", Text::Decimal),
                ("base62", Text::Base62),
            ] {
                assert_eq!(decode(text(answer, key)?, notation), Ok(id), "{key} of {answer}");
            }
            assert_eq!(text(answer, "text")?, written(id, Text::Base32));
            assert_eq!(text(answer, "base62")?, written(id, Text::Base62));
        }
        // With fewer in a millisecond it takes those of the next ones in advance.
        if layout.ids_per_tick() >= 4096 {
            let own = json!({"worker": layout.worker_max().to_string(), "node_bits": node_bits.to_string()});
            TSIDPY.generates(layout, layout.worker_max(), own)?;
        }
    }
    Ok(())
}

/// The package named `ulid`, which only writes, and `python-ulid`, which reads, too.
#[test]
fn ulids_of_pypi() -> anyhow::Result<()> {
    let mut found: BTreeSet<u128> = (0..128).map(|bit| 1 << bit).flat_map(|bit: u128| [bit - 1, bit, !bit]).collect();
    found.extend([u128::MAX, u128::MAX - 1]);
    for unix_ms in edges(Ulid::UNIX_MS_MAX) {
        let randoms = [0, 1, Ulid::RANDOM_MAX / 2, Ulid::RANDOM_MAX / 2 + 1, Ulid::RANDOM_MAX - 1, Ulid::RANDOM_MAX];
        found.extend(randoms.map(|random| u128::from(unix_ms) << 80 | random));
    }
    let mut random = Rng::with_seed(128);
    while found.len() < COMPARED {
        let number = random.u128(..);
        found.extend([number, number.wrapping_add(1)]);
    }
    let all: Vec<u128> = found.into_iter().collect();
    PYTHON_ULID.reads(all.iter().map(|number| {
        let answer = json!({"number": number.to_string(), "milliseconds": (number >> 80).to_string()});
        (json!({"text": &*Ulid(*number).text()}), answer)
    }))?;
    let questions: Vec<Value> = all.iter().map(|number| json!({"number": number.to_string()})).collect();
    for package in [ULID, PYTHON_ULID] {
        for (answer, number) in package.ask("write", &questions)?.iter().zip(&all) {
            let (ulid, written) = (Ulid(*number), text(answer, "text")?);
            assert_eq!((written.parse(), written.to_lowercase().parse()), (Ok(ulid), Ok(ulid)), "{written}");
            assert_eq!(written, &*ulid.text());
            let (unix_ms, random) = (u64::try_from(number >> 80)?, number & ((1 << 80) - 1));
            assert_eq!((ulid.unix_ms(), ulid.random()), (unix_ms, random), "{written}");
            assert_eq!(Ulid::from_parts(unix_ms, random), Some(ulid), "{written}");
        }
        let answer = &package.ask("generate", &[json!({"count": GENERATED.to_string()})])?[0];
        let time = whole(answer, "from")?..=whole(answer, "until")?;
        let ids = answer["ids"].as_array().with_context(|| format!("no ids in {answer}"))?;
        assert_eq!(ids.len(), GENERATED);
        for id in ids {
            let ulid: Ulid = id.as_str().context("no text")?.parse()?;
            assert!(time.contains(&ulid.unix_ms()) && id == &*ulid.text(), "{id}");
        }
    }
    Ok(())
}

/// What the host makes at the first and the last instants that there are, read by `uuid` and `python-ulid`.
#[test]
fn random_ids_to_python() -> anyhow::Result<()> {
    struct Stopped(u64);

    impl Clock for Stopped {
        fn now_ms(&self) -> u64 {
            self.0
        }
    }

    let (mut uuids, mut ulids) = (Vec::new(), Vec::new());
    let instants = edges(Ulid::UNIX_MS_MAX);
    let count = u32::try_from(COMPARED.div_ceil(instants.len()))?;
    for unix_ms in instants {
        let ids = RandomIds::with_clock(Arc::new(Stopped(unix_ms)));
        let of_version = |uuid: &Uuid, version: &str, milliseconds: u128| {
            let [number, milliseconds] = [uuid.as_u128(), milliseconds].map(|number| number.to_string());
            let answer = json!({"number": number, "version": version, "variant": RFC, "milliseconds": milliseconds});
            (json!({"text": uuid.to_string()}), answer)
        };
        uuids.extend(ids.take_uuids_v7(count)?.iter().map(|uuid| of_version(uuid, "7", u128::from(unix_ms))));
        uuids.extend(ids.take_uuids_v4(count)?.iter().map(|uuid| of_version(uuid, "4", uuid.as_u128() >> 80)));
        ulids.extend(ids.take_ulids(count)?.iter().map(|ulid| {
            let answer = json!({"number": ulid.0.to_string(), "milliseconds": unix_ms.to_string()});
            (json!({"text": ulid.to_string()}), answer)
        }));
    }
    UUID.reads(uuids.into_iter())?;
    PYTHON_ULID.reads(ulids.into_iter())
}

/// `int()` with its base, and the module `uuid`.
#[test]
fn texts_of_python() -> anyhow::Result<()> {
    let all = ids();
    PYTHON.reads(all.iter().map(|id| {
        let question = json!({
            "decimal": written(*id, Text::Decimal),
            "padded": written(*id, Text::Padded),
            "base36": written(*id, Text::Base36),
            "uuid8": written(*id, Text::Uuid),
        });
        let id = id.to_string();
        (question, json!({"decimal": id, "padded": id, "base36": id, "uuid8": id, "version": "8", "variant": RFC}))
    }))?;
    let questions: Vec<Value> = all.iter().map(|id| json!({"id": id.to_string()})).collect();
    for (answer, id) in PYTHON.ask("write", &questions)?.iter().zip(&all) {
        for (key, notation) in [("decimal", Text::Decimal), ("padded", Text::Padded), ("uuid8", Text::Uuid)] {
            assert_eq!(text(answer, key)?, written(*id, notation));
            assert_eq!(decode(text(answer, key)?, notation), Ok(*id), "{key} of {answer}");
        }
    }
    Ok(())
}

/// `BigInt` of texts, and `toString(36)` of it.
#[test]
fn texts_of_javascript() -> anyhow::Result<()> {
    let all = ids();
    JAVASCRIPT.reads(all.iter().map(|id| {
        let question = json!({"decimal": written(*id, Text::Decimal), "padded": written(*id, Text::Padded)});
        (question, json!({"decimal": id.to_string(), "padded": id.to_string()}))
    }))?;
    let questions: Vec<Value> = all.iter().map(|id| json!({"id": id.to_string()})).collect();
    for (answer, id) in JAVASCRIPT.ask("write", &questions)?.iter().zip(&all) {
        assert_eq!(text(answer, "base36")?, written(*id, Text::Base36));
        assert_eq!(decode(text(answer, "base36")?, Text::Base36), Ok(*id));
    }
    Ok(())
}

/// `@sapphire/snowflake` cuts a field that is too large, goes past the sign and below 0, and its `timestampFrom`
/// rounds.
#[test]
fn sapphire_snowflake_takes_what_is_refused_here() -> anyhow::Result<()> {
    let layout = Layout::TWITTER;
    let (epoch_ms, epoch) = (i64::try_from(layout.epoch_ms())?, "twitter");
    let question = |since_ms: i64, worker: &str, increment: &str| {
        let timestamp = (epoch_ms + since_ms).to_string();
        json!({"timestamp": timestamp, "workerId": worker, "processId": "0", "increment": increment, "epoch": epoch})
    };
    let answers = SAPPHIRE.ask(
        "write",
        &[question(1, "32", "4097"), question(1, "0", "1"), question(1 << 41, "0", "0"), question(-1, "0", "0")],
    )?;
    let made: Vec<&str> = answers.iter().map(|answer| text(answer, "id")).collect::<Result<_, _>>()?;
    let (sign, negative) = ((1_u64 << 63).to_string(), (-1 << 22).to_string());
    assert_eq!(made, ["4194305", "4194305", &sign, &negative]);
    assert_eq!(layout.join_worker(32, 0), Err(LayoutError::WorkerRange { max: 31 }));
    let parts = Parts { ticks: 1, worker: 0, sequence: 4097 };
    assert_eq!(layout.pack(parts), Err(LayoutError::SequenceRange { max: 4095 }));
    let parts = Parts { ticks: 1 << 41, worker: 0, sequence: 0 };
    assert_eq!(layout.pack(parts), Err(LayoutError::TimestampRange { max: (1 << 41) - 1 }));
    assert_eq!(layout.unpack(1 << 63), Err(LayoutError::IdRange { max: ID_MAX }));
    assert_eq!(decode(&sign, Text::Decimal), Err(TextError::OutOfRange));
    assert_eq!(decode(&negative, Text::Decimal), Err(TextError::Character { at: 0 }));

    let id = layout.pack(Parts { ticks: 1 << 40, worker: 1023, sequence: 4095 })?.to_string();
    let answer = &SAPPHIRE.ask("read", &[json!({"id": id, "padded": id, "epoch": epoch})])?[0];
    let at_ms = layout.tick_start_ms(1 << 40);
    assert_eq!((whole(answer, "timestamp")?, whole(answer, "timestampFrom")?), (at_ms, at_ms + 1));
    Ok(())
}

/// `snowflake-id` refuses the same, but for id 0.
#[test]
fn snowflake_id_refuses_what_is_refused_here() -> anyhow::Result<()> {
    let layout = Layout::LEAF;
    let epoch = layout.epoch_ms().to_string();
    let refused = [
        (
            Parts { ticks: 1 << 41, worker: 0, sequence: 0 },
            "timestamp",
            LayoutError::TimestampRange { max: (1 << 41) - 1 },
        ),
        (Parts { ticks: 0, worker: 1024, sequence: 0 }, "instance", LayoutError::WorkerRange { max: 1023 }),
        (Parts { ticks: 0, worker: 0, sequence: 4096 }, "seq", LayoutError::SequenceRange { max: 4095 }),
    ];
    let questions = refused.map(|(parts, ..)| {
        let milliseconds = layout.tick_start_ms(parts.ticks).to_string();
        let (instance, seq) = (parts.worker.to_string(), parts.sequence.to_string());
        json!({"milliseconds": milliseconds, "instance": instance, "seq": seq, "epoch": epoch})
    });
    for (answer, (parts, field, error)) in SNOWFLAKE_ID.ask("write", &questions)?.iter().zip(refused) {
        assert!(text(answer, "error")?.starts_with(&format!("ValueError: {field} ")), "{parts:?}: {answer}");
        assert_eq!(layout.pack(parts), Err(error), "{parts:?}");
    }

    let questions = [1 << 63, 0].map(|id: u64| json!({"id": id.to_string(), "epoch": epoch}));
    let answers = SNOWFLAKE_ID.ask("read", &questions)?;
    assert!(text(&answers[0], "error")?.starts_with("ValueError: timestamp "), "{answers:?}");
    assert_eq!(answers[1], json!({"milliseconds": epoch, "instance": "0", "seq": "0"}));
    for id in [1 << 63, 0] {
        assert_eq!(layout.unpack(id), Err(LayoutError::IdRange { max: ID_MAX }), "{id}");
    }
    Ok(())
}

/// `sonyflake` takes ids with the sign bit, and the first instant of a tick is to it in the one before. It refuses the
/// same parts.
#[test]
fn sonyflake_takes_what_is_refused_here() -> anyhow::Result<()> {
    let layout = Layout::SONYFLAKE;
    let with = |fields: Value| {
        let mut question = json!({"start_ms": "1735689600000"});
        question.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        question
    };
    let answer = &SONYFLAKE.ask("read", &[with(json!({"id": (1_u64 << 63).to_string()}))])?[0];
    assert_eq!(whole::<u64>(answer, "time")?, 1 << 39);
    assert_eq!(layout.unpack(1 << 63), Err(LayoutError::IdRange { max: ID_MAX }));

    let last = LayoutError::TimestampRange { max: (1 << 39) - 1 };
    let refused = [
        (Parts { ticks: 1 << 39, worker: 0, sequence: 0 }, "OverTimeLimit", last),
        (
            Parts { ticks: 1, worker: 1 << 16, sequence: 0 },
            "InvalidMachineID",
            LayoutError::WorkerRange { max: 65_535 },
        ),
        (Parts { ticks: 1, worker: 0, sequence: 256 }, "InvalidSequence", LayoutError::SequenceRange { max: 255 }),
    ];
    let question = |parts: Parts| {
        let unix_ms = layout.tick_start_ms(parts.ticks).to_string();
        with(json!({
            "unix_ms": unix_ms,
            "machine_id": parts.worker.to_string(),
            "sequence": parts.sequence.to_string(),
        }))
    };
    let questions = refused.map(|(parts, ..)| question(parts));
    for (answer, (parts, named, error)) in SONYFLAKE.ask("write", &questions)?.iter().zip(refused) {
        assert!(text(answer, "error")?.starts_with(named), "{parts:?}: {answer}");
        assert_eq!(layout.pack(parts), Err(error), "{parts:?}");
    }

    let answer = &SONYFLAKE.ask("write", &[question(Parts { ticks: 1, worker: 7, sequence: 0 })])?[0];
    assert_eq!((whole::<u64>(answer, "id_of_begin")?, whole::<u64>(answer, "id")?), (7, 7 + (1 << 24)));
    assert_eq!(layout.tick_at(1_735_689_600_010), Some(1));
    Ok(())
}

/// `tsidpy` has ids of 64 bits, cuts the bits above them, and reads a character that stands for nothing as -1.
#[test]
fn tsidpy_takes_what_is_refused_here() -> anyhow::Result<()> {
    let taken = [
        ("8000000000000", 1 << 63, TextError::OutOfRange),
        ("FZZZZZZZZZZZZ", u64::MAX, TextError::OutOfRange),
        ("G000000000000", 0, TextError::OutOfRange),
        ("G000000000001", 1, TextError::OutOfRange),
        ("000000000002U", 63, TextError::Character { at: 12 }),
        ("000000000002-", 63, TextError::Character { at: 12 }),
    ];
    let questions =
        taken.map(|(input, ..)| json!({"id": "1", "text": input, "aliases": input, "decimal": "1", "base62": "1"}));
    for (answer, (input, number, error)) in TSIDPY.ask("read", &questions)?.iter().zip(taken) {
        assert_eq!(whole::<u64>(answer, "text")?, number, "{input}");
        assert_eq!(decode(input, Text::Base32), Err(error), "{input}");
    }
    Ok(())
}

/// `ulid` writes more than 128 bits. `python-ulid` refuses them, as is done here; but it does not read the letters that
/// stand for digits.
#[test]
fn ulid_takes_what_is_refused_here() -> anyhow::Result<()> {
    let answer = &ULID.ask("write", &[json!({"number": "340282366920938463463374607431768211456"})])?[0];
    assert_eq!(text(answer, "text")?, "80000000000000000000000000");
    assert_eq!(Ulid::from_parts(1 << 48, 0), None);

    let refused = [
        ("80000000000000000000000000", TextError::Character { at: 0 }),
        ("ZZZZZZZZZZZZZZZZZZZZZZZZZZ", TextError::Character { at: 0 }),
        ("0000000000000000000000000U", TextError::Character { at: 25 }),
        ("0000000000000000000000000", TextError::Length { len: 25 }),
        ("000000000000000000000000000", TextError::Length { len: 27 }),
    ];
    let questions = refused.map(|(input, _)| json!({"text": input}));
    for (answer, (input, error)) in PYTHON_ULID.ask("read", &questions)?.iter().zip(refused) {
        assert!(text(answer, "error")?.starts_with("ValueError"), "{input}: {answer}");
        assert_eq!(input.parse::<Ulid>(), Err(error), "{input}");
    }
    let crockford = "0000000000000000000000OoIl";
    let answer = &PYTHON_ULID.ask("read", &[json!({"text": crockford})])?[0];
    assert!(text(answer, "error")?.starts_with("ValueError"), "{answer}");
    assert_eq!(crockford.parse(), Ok(Ulid(33)));
    Ok(())
}
