//! The built component of the world `formats`, through its WIT alone: that it imports nothing, how large it is, and
//! that it answers as the crate does of which it is made.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot do its work fails the test")]

use proptest::prelude::*;
use proptest::test_runner::{Config as ProptestConfig, TestRunner};
use unalike::component::engine_config;
use unalike_core as core;
use wasmtime::component::{Component, Linker};
use wasmtime::{Engine, Store};

mod bindings {
    wasmtime::component::bindgen!({ path: "../wit", world: "formats" });
}

use bindings::Formats;
use bindings::exports::unalike::ids::codec::{
    self, FormatError, FormatKey, FormatOptions, Issued, Parts, Restart, TemplateFault, Text, TextError,
};
use bindings::unalike::ids::types::{Argument, Error, FieldOrder, Layout};

const TWITTER: Layout = Layout {
    timestamp_bits: 41,
    datacenter_bits: 5,
    worker_bits: 5,
    sequence_bits: 12,
    order: FieldOrder::WorkerFirst,
    epoch_ms: 1_288_834_974_657,
    tick_ms: 1,
};

const TEXTS: [(Text, core::Text); 6] = [
    (Text::Decimal, core::Text::Decimal),
    (Text::Padded, core::Text::Padded),
    (Text::Base36, core::Text::Base36),
    (Text::Base62, core::Text::Base62),
    (Text::Base32, core::Text::Base32),
    (Text::Uuid, core::Text::Uuid),
];

struct Instance {
    store: Store<()>,
    formats: Formats,
}

impl Instance {
    fn new() -> Self {
        let engine = Engine::new(&engine_config()).unwrap();
        let component = Component::new(&engine, unalike_artifact::FORMATS).unwrap();
        let mut store = Store::new(&engine, ());
        // Nothing is linked: it needs nothing.
        let formats = Formats::instantiate(&mut store, &component, &Linker::new(&engine)).unwrap();
        Self { store, formats }
    }

    fn codec(&mut self) -> (&codec::Guest, &mut Store<()>) {
        (self.formats.unalike_ids_codec(), &mut self.store)
    }
}

#[test]
fn it_imports_no_function() {
    let engine = Engine::default();
    let component = Component::new(&engine, unalike_artifact::FORMATS).unwrap();
    let imports: Vec<_> = component.component_type().imports(&engine).map(|(name, _)| name.to_owned()).collect();
    assert!(imports.iter().all(|name| name == "unalike:ids/types@0.1.0"), "{imports:?}");
    let exports: Vec<_> = component.component_type().exports(&engine).map(|(name, _)| name.to_owned()).collect();
    assert_eq!(exports, ["unalike:ids/codec@0.1.0"]);
}

#[test]
fn it_fits_in_36_kib() {
    let size = unalike_artifact::FORMATS.len();
    assert!(size <= 36 * 1024, "the component has {size} bytes");
}

#[test]
fn texts_are_those_of_the_crate() {
    let mut host = Instance::new();
    let (codec, store) = host.codec();
    let max = core::ID_MAX;
    for id in [1, 31, 32, 61, 62, 1_169_786_042_799_259_000, max - 1, max] {
        for (text, same) in TEXTS {
            let written = codec.call_encode(&mut *store, id, text).unwrap().unwrap();
            assert_eq!(written, core::encode(id, same).unwrap().as_str());
            assert_eq!(codec.call_decode(&mut *store, &written, text).unwrap().unwrap(), id);
        }
    }
    for id in [0, max + 1, u64::MAX] {
        for (text, _) in TEXTS {
            let error = codec.call_encode(&mut *store, id, text).unwrap().unwrap_err();
            assert!(matches!(error, Error::InvalidArgument(Argument::Id)), "{error:?}");
        }
    }
    let mut runner = TestRunner::new(ProptestConfig::with_cases(2_000));
    let inputs =
        ("[0-9A-Za-z]{0,20}|[0-9]{19}|[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][08]00-0{12}|\\PC{0,12}", 0..6_usize);
    let store = std::cell::RefCell::new(store);
    runner
        .run(&inputs, |(input, text)| {
            let (text, same) = TEXTS[text];
            let answer = codec.call_decode(&mut **store.borrow_mut(), &input, text).unwrap();
            let answer = answer.map_err(|error| match error {
                TextError::Length(len) => core::TextError::Length { len: usize::try_from(len).unwrap() },
                TextError::Character(at) => core::TextError::Character { at: usize::try_from(at).unwrap() },
                TextError::LeadingZero => core::TextError::LeadingZero,
                TextError::OutOfRange => core::TextError::OutOfRange,
            });
            prop_assert_eq!(answer, core::decode(&input, same), "{:?} as {:?}", input, text);
            Ok(())
        })
        .unwrap();
}

#[test]
fn fields_go_round_exactly() {
    let mut host = Instance::new();
    let (codec, store) = host.codec();
    let parts = Parts { ticks: 7, worker: 1_023, sequence: 4_095 };
    let id = codec.call_pack(&mut *store, parts, TWITTER).unwrap().unwrap();
    assert_eq!(id, 7 << 22 | 1_023 << 12 | 4_095);
    let parts = codec.call_unpack(&mut *store, id, TWITTER).unwrap().unwrap();
    assert_eq!((parts.ticks, parts.worker, parts.sequence), (7, 1_023, 4_095));
    for parts in [
        Parts { ticks: 1 << 41, worker: 0, sequence: 0 },
        Parts { ticks: 1, worker: 1_024, sequence: 0 },
        Parts { ticks: 1, worker: 0, sequence: 4_096 },
        Parts { ticks: 0, worker: 0, sequence: 0 },
    ] {
        let error = codec.call_pack(&mut *store, parts, TWITTER).unwrap().unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(Argument::Id)), "{parts:?}: {error:?}");
    }
    for id in [0, core::ID_MAX + 1, u64::MAX] {
        let error = codec.call_unpack(&mut *store, id, TWITTER).unwrap().unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(Argument::Id)), "{id}: {error:?}");
    }
    let wide = Layout { timestamp_bits: 60, ..TWITTER };
    let error = codec.call_unpack(&mut *store, 1, wide).unwrap().unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(Argument::Layout)), "{error:?}");
}

/// What either answers, in the crate's words.
#[derive(Debug, PartialEq)]
enum Answer {
    Made(core::FormatError),
    Write(core::WriteError),
    Read(core::ReadError),
}

fn size(value: u32) -> usize {
    usize::try_from(value).unwrap()
}

/// An error's case is told from where it came: a key may be wrong in either of two.
fn answer(error: FormatError, is_read: bool) -> Answer {
    use core::{FormatError as Made, ReadError as Read, WriteError as Write};
    match error {
        FormatError::Template((at, fault)) => {
            let fault = match fault {
                TemplateFault::Brace => core::TemplateFault::Brace,
                TemplateFault::Placeholder => core::TemplateFault::Placeholder,
                TemplateFault::Character => core::TemplateFault::Character,
                TemplateFault::Twice => core::TemplateFault::Twice,
                TemplateFault::IdMissing => core::TemplateFault::IdMissing,
                TemplateFault::TooLong => core::TemplateFault::TooLong,
            };
            Answer::Made(Made::Template { at: size(at), fault })
        }
        FormatError::Restart => Answer::Made(Made::Restart),
        FormatError::Bits => Answer::Made(Made::Bits),
        FormatError::Key(id) if is_read => Answer::Read(Read::Key { id }),
        FormatError::Key(id) => Answer::Made(Made::Key { id }),
        FormatError::Digits(width) => Answer::Made(Made::Digits { width }),
        FormatError::UtcOffset => Answer::Made(Made::UtcOffset),
        FormatError::Id(max) => Answer::Write(Write::Id { max }),
        FormatError::ShardKeyMissing => Answer::Write(Write::ShardKeyMissing),
        FormatError::ShardKeyUnwanted => Answer::Write(Write::ShardKeyUnwanted),
        FormatError::Time => Answer::Write(Write::Time),
        FormatError::Length(len) => Answer::Read(Read::Length { len: size(len) }),
        FormatError::Character(at) => Answer::Read(Read::Character { at: size(at) }),
        FormatError::Date(at) => Answer::Read(Read::Date { at: size(at) }),
        FormatError::Number(at) => Answer::Read(Read::Number { at: size(at) }),
    }
}

fn issued(issued: Issued) -> core::Issued {
    let Issued { id, number, gene, key_id, span } = issued;
    core::Issued { id, number, gene, key_id, issued_ms: span.map(|(from, until)| from..until) }
}

#[derive(Clone, Debug)]
struct Case {
    template: String,
    utc_offset_minutes: i16,
    restart: u8,
    widths: (u8, u8, u8),
    keys: Vec<(u8, u128)>,
    context: String,
    id: u64,
    issued_ms: u64,
    shard_key: Option<u64>,
    /// A byte of the text that is put in another one's place.
    change: (prop::sample::Index, char),
}

fn cases() -> impl Strategy<Value = Case> {
    let template = prop_oneof![
        4 => prop::sample::select(&[
            "{id}",
            "ORD-{yyyyMMdd}-{id:010}-{gene:4}",
            "{yyyy-MM-dd HH:mm:ss.SSS}/{id:base62}",
            "é{{{yy}{id:base36}}}",
            "{yyyyMMdd}{id:06}{yyyy}",
            "{gene:16}{id:uuid}",
            "{id:base32}",
        ][..]).prop_map(str::to_owned),
        1 => "(\\{(id|id:[0-9a-z]{0,6}|gene:[0-9]{0,2}|[yMdHmsS-]{0,8})\\}|[a-z{}é\n-]){0,6}",
    ];
    let widths = (
        prop_oneof![4 => Just(63_u8), 2 => 20..=63_u8, 1 => any::<u8>()],
        prop_oneof![3 => Just(0_u8), 1 => 0..=17_u8],
        prop_oneof![1 => Just(0_u8), 3 => 4..=9_u8],
    );
    let keys = prop::collection::vec((0..16_u8, any::<u128>()), 0..3);
    let id = prop_oneof![0..100_u64, any::<u64>(), (0..64_u32).prop_map(|bits| u64::MAX >> bits)];
    let issued_ms = prop_oneof![5 => 0..253_402_300_800_000_u64, 1 => any::<u64>()];
    (
        (template, prop_oneof![5 => -1_080..=1_080_i16, 1 => any::<i16>()], 0..4_u8, widths, keys, "[a-z]{0,20}"),
        (id, issued_ms, any::<Option<u64>>(), any::<prop::sample::Index>(), any::<char>()),
    )
        .prop_map(
            |(
                (template, utc_offset_minutes, restart, widths, keys, context),
                (id, issued_ms, shard_key, at, change),
            )| Case {
                template,
                utc_offset_minutes,
                restart,
                widths,
                keys,
                context,
                id,
                issued_ms,
                shard_key,
                change: (at, change),
            },
        )
}

#[test]
fn formats_are_those_of_the_crate() {
    let host = std::cell::RefCell::new(Instance::new());
    let (made, written) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    TestRunner::new(ProptestConfig::with_cases(4_000))
        .run(&cases(), |case| {
            let mut host = host.borrow_mut();
            let (codec, store) = host.codec();
            let (restart, same_restart) = [
                (Restart::Never, core::Restart::Never),
                (Restart::Year, core::Restart::Year),
                (Restart::Month, core::Restart::Month),
                (Restart::Day, core::Restart::Day),
            ][usize::from(case.restart)];
            let (bits, gene_bits, key_id_bits) = case.widths;
            // Most formats without keys have no bits for them.
            let key_id_bits = if case.keys.is_empty() && key_id_bits < 8 { 0 } else { key_id_bits };
            let keys: Vec<_> =
                case.keys.iter().map(|(id, secret)| core::FormatKey { id: *id, secret: *secret }).collect();
            let native = core::Format::new(&core::FormatOptions {
                template: &case.template,
                utc_offset_minutes: case.utc_offset_minutes,
                restart: same_restart,
                bits,
                gene_bits,
                key_id_bits,
                keys: &keys,
                context: &case.context,
            });
            let half = |secret: u128| u64::try_from(secret & u128::from(u64::MAX)).unwrap();
            let options = FormatOptions {
                template: case.template.clone(),
                utc_offset_minutes: case.utc_offset_minutes,
                restart,
                bits,
                gene_bits,
                key_id_bits,
                keys: case
                    .keys
                    .iter()
                    .map(|(id, secret)| FormatKey { id: *id, high: half(secret >> 64), low: half(*secret) })
                    .collect(),
                context: case.context.clone(),
            };
            let format = codec.format();
            let opened = format.call_open(&mut *store, &options).unwrap();
            let (resource, native) = match (opened, native) {
                (Ok(resource), Ok(native)) => (resource, native),
                (opened, native) => {
                    prop_assert_eq!(opened.map_err(|error| answer(error, false)).err(), native.err().map(Answer::Made));
                    return Ok(());
                }
            };
            made.set(made.get() + 1);
            prop_assert_eq!(format.call_id_max(&mut *store, resource).unwrap(), native.id_max());
            prop_assert_eq!(format.call_shape(&mut *store, resource).unwrap(), native.shape().number());
            let kept = format.call_key_checks(&mut *store, resource).unwrap();
            let kept: Vec<_> = kept.into_iter().map(|key| (key.id, key.bits, key.check)).collect();
            let expected: Vec<_> = native.key_checks().map(|(id, check)| (id, native.permuted_bits(), check)).collect();
            prop_assert_eq!(kept, expected);
            let id = if case.id % 4 == 0 { case.id } else { case.id % native.id_max() + 1 };
            let shard_key = if case.id % 8 == 1 || !native.needs_shard_key() {
                case.shard_key.filter(|_| case.id % 8 == 1)
            } else {
                Some(case.shard_key.unwrap_or(7))
            };
            let write = |error| answer(error, false);
            let period = format.call_period(&mut *store, resource, case.issued_ms).unwrap();
            prop_assert_eq!(period.map_err(write), native.period(case.issued_ms).map_err(Answer::Write));
            let number = format.call_number(&mut *store, resource, id, case.issued_ms, shard_key).unwrap();
            let expected = native.number(id, case.issued_ms, shard_key);
            prop_assert_eq!(number.map_err(write), expected.map_err(Answer::Write));
            if let Ok(number) = expected {
                let original = format.call_original(&mut *store, resource, number).unwrap();
                let original = original.map(issued).map_err(|error| answer(error, true));
                prop_assert_eq!(original, native.original(number).map_err(Answer::Read));
            }
            let text = format.call_write(&mut *store, resource, id, case.issued_ms, shard_key).unwrap();
            let expected = native.write(id, case.issued_ms, shard_key);
            prop_assert_eq!(text.map_err(write), expected.clone().map_err(Answer::Write));
            if let Ok(text) = expected {
                written.set(written.get() + 1);
                let (at, change) = &case.change;
                let at = at.index(text.chars().count());
                let changed =
                    text.chars().enumerate().map(|(place, known)| if place == at { *change } else { known }).collect();
                for text in [text, changed] {
                    let read = format.call_read(&mut *store, resource, &text).unwrap();
                    let read = read.map(issued).map_err(|error| answer(error, true));
                    prop_assert_eq!(read, native.read(&text).map_err(Answer::Read), "{:?}", text);
                }
            }
            resource.resource_drop(&mut *store).unwrap();
            Ok(())
        })
        .unwrap();
    assert!(made.get() > 300 && written.get() > 200, "{} made, {} written", made.get(), written.get());
}

#[test]
fn the_ids_of_a_span_of_time_are_those_of_the_crate() {
    const NOW: u64 = 1_700_000_000_000;
    let mut host = Instance::new();
    let (codec, store) = host.codec();
    for (from, until) in [(NOW, NOW + 1), (NOW, NOW + 86_400_000), (0, u64::MAX), (TWITTER.epoch_ms, NOW)] {
        let ids = codec.call_id_range(&mut *store, TWITTER, from, until).unwrap().unwrap();
        assert_eq!(ids, core::Layout::TWITTER.id_range(from, until).unwrap().into_inner());
    }
    for (from, until) in [(NOW, NOW), (NOW, 0), (0, 1), (u64::MAX - 1, u64::MAX)] {
        let refused = codec.call_id_range(&mut *store, TWITTER, from, until).unwrap();
        assert!(matches!(refused, Err(Error::InvalidArgument(Argument::Span))), "{from} to {until}: {refused:?}");
    }
    let wide = Layout { timestamp_bits: 42, ..TWITTER };
    let refused = codec.call_id_range(&mut *store, wide, NOW, NOW + 1).unwrap();
    assert!(matches!(refused, Err(Error::InvalidArgument(Argument::Layout))), "{refused:?}");
}
