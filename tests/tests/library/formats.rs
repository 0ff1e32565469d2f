//! Ids as a format shows them, in the library: around midnight, under keys, with genes, over several stores.

#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot do its work fails the test")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use unalike::storage::{
    FormatBinding, FormatOwner, FormatPart, SegmentStore, StoreError, StripedStore, TagOptions, check_format,
    rebind_format, resize_stripes,
};
use unalike::{
    Clock, Error, ErrorKind, Format, FormatKey, FormatMisfit, FormatOptions, Formatted, Ids, Layout, Mode, Restart,
    SequenceOptions, SnowflakeOptions, Spread, WriteError,
};
use unalike_memory::{MemoryOptions, MemoryStore};

/// 2026-11-22T16:00:00Z: midnight in Shanghai.
const MIDNIGHT_MS: u64 = 1_795_363_200_000;
const SHANGHAI: i16 = 8 * 60;

/// A clock that a test moves.
struct HandClock(AtomicU64);

impl HandClock {
    fn at(now_ms: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(now_ms)))
    }

    fn set(&self, now_ms: u64) {
        self.0.store(now_ms, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

fn daily(template: &str) -> FormatOptions<'_> {
    FormatOptions { template, utc_offset_minutes: SHANGHAI, restart: Restart::Day, ..FormatOptions::default() }
}

/// A store whose clock is this one.
fn store_with(clock: &Arc<HandClock>) -> Arc<MemoryStore> {
    let clock = Arc::clone(clock);
    Arc::new(MemoryStore::new(MemoryOptions { clock: Arc::new(move || clock.now_ms()), ..MemoryOptions::default() }))
}

async fn open(store: &Arc<MemoryStore>, clock: &Arc<HandClock>) -> Ids {
    let builder = Ids::builder().segments(store.clone()).leases(store.clone());
    builder.clock(Arc::clone(clock) as Arc<dyn Clock>).build().await.unwrap()
}

async fn formatted(ids: &Ids, tag: &str, sub: Option<&str>, options: &FormatOptions<'_>) -> Formatted {
    ids.formatted(tag, sub, SequenceOptions::default(), Format::new(options).unwrap()).await.unwrap()
}

fn kind<T: std::fmt::Debug>(answer: Result<T, Error>) -> ErrorKind {
    answer.unwrap_err().kind().clone()
}

#[tokio::test]
async fn numbers_begin_again_each_day_and_a_clock_that_goes_back_repeats_none() {
    let (store, clock) = (Arc::new(MemoryStore::default()), HandClock::at(MIDNIGHT_MS - 1));
    let ids = open(&store, &clock).await;
    let orders = formatted(&ids, "order", None, &daily("{yyyyMMdd}-{id:04}")).await;
    assert_eq!(orders.next(None).await.unwrap(), "20261122-0001");
    assert_eq!(orders.next(None).await.unwrap(), "20261122-0002");
    clock.set(MIDNIGHT_MS);
    assert_eq!(orders.next(None).await.unwrap(), "20261123-0001");
    assert_eq!(orders.take(2, None).await.unwrap().texts().unwrap(), ["20261123-0002", "20261123-0003"]);
    // Back over midnight, and on again: each day goes on where it was.
    clock.set(MIDNIGHT_MS - 5);
    assert_eq!(orders.next(None).await.unwrap(), "20261122-0003");
    clock.set(MIDNIGHT_MS + 5);
    assert_eq!(orders.next(None).await.unwrap(), "20261123-0004");
    ids.close().await;

    // What was given back is given to a successor, and what had crossed into a run is a gap.
    let ids = open(&store, &clock).await;
    let orders = formatted(&ids, "order", None, &daily("{yyyyMMdd}-{id:04}")).await;
    for (now_ms, last) in [(MIDNIGHT_MS + 5, 4), (MIDNIGHT_MS - 5, 3)] {
        clock.set(now_ms);
        let text = orders.next(None).await.unwrap();
        let read = orders.format().read(&text).unwrap();
        assert!(read.id > last && read.id < 100, "{text}");
        assert!(read.issued_ms.unwrap().contains(&now_ms), "{text}");
    }
}

/// Many tasks of two processes, whose clocks go back and forth over midnight at different times.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_text_comes_twice_while_clocks_go_over_midnight_and_back() {
    for mode in [Mode::Buffered, Mode::Ordered] {
        let store = Arc::new(MemoryStore::default());
        store.create_tag("order", &TagOptions { mode, ..TagOptions::default() }).await.unwrap();
        let mut tasks = Vec::new();
        for process in 0..2_u64 {
            let clock = HandClock::at(MIDNIGHT_MS - 1);
            let ids = open(&store, &clock).await;
            let orders = formatted(&ids, "order", None, &daily("{yyyyMMdd}-{id}")).await;
            for task in 0..3_u64 {
                let (orders, clock) = (orders.clone(), Arc::clone(&clock));
                tasks.push(tokio::spawn(async move {
                    let mut texts = Vec::new();
                    for round in 0..100_u64 {
                        let ahead = (round * (7 + process) + task) % 5;
                        clock.set(MIDNIGHT_MS - 2 + ahead);
                        let batch = orders.take(u32::try_from(round % 4 + 1).unwrap(), None).await.unwrap();
                        let batch = batch.texts().unwrap();
                        assert!(batch.iter().all(|text| text[..8] == batch[0][..8]), "one call, two days: {batch:?}");
                        texts.extend(batch);
                    }
                    texts
                }));
            }
        }
        let (mut all, mut total) = (BTreeSet::new(), 0);
        for task in tasks {
            let texts = task.await.unwrap();
            total += texts.len();
            all.extend(texts);
        }
        assert_eq!((total, all.len()), (1_500, 1_500), "{mode:?}");
        for day in ["20261122-1", "20261123-1"] {
            assert!(all.contains(day), "each day begins at 1: {mode:?}");
        }
    }
}

#[tokio::test]
async fn an_ordered_tag_is_ordered_within_each_day() {
    let (store, clock) = (Arc::new(MemoryStore::default()), HandClock::at(MIDNIGHT_MS - 1));
    store.create_tag("strict", &TagOptions { mode: Mode::Ordered, ..TagOptions::default() }).await.unwrap();
    let (one, two) = (open(&store, &clock).await, open(&store, &clock).await);
    let options = daily("{yyyyMMdd}-{id}");
    let (one, two) = (formatted(&one, "strict", None, &options).await, formatted(&two, "strict", None, &options).await);
    let mut texts = Vec::new();
    for now_ms in [MIDNIGHT_MS - 1, MIDNIGHT_MS] {
        clock.set(now_ms);
        for _ in 0..2 {
            texts.push(one.next(None).await.unwrap());
            texts.push(two.next(None).await.unwrap());
        }
    }
    let days = ["20261122", "20261123"].iter();
    let expected: Vec<_> = days.flat_map(|day| (1..=4).map(move |id| format!("{day}-{id}"))).collect();
    assert_eq!(texts, expected);
}

#[tokio::test]
async fn sub_keys_and_periods_share_no_numbers() {
    let (store, clock) = (Arc::new(MemoryStore::default()), HandClock::at(MIDNIGHT_MS - 1));
    let ids = open(&store, &clock).await;
    let options = daily("{yyyyMMdd}-{id}");
    for sub in [None, Some("a"), Some("a@2026-11-22"), Some("@2026-11-22"), Some("@")] {
        let orders = formatted(&ids, "order", sub, &options).await;
        assert_eq!(orders.next(None).await.unwrap(), "20261122-1", "{sub:?} has numbers of its own");
    }
    for bad in ["", "a\nb", &"x".repeat(113)] {
        let format = Format::new(&options).unwrap();
        let answer = ids.formatted("order", Some(bad), SequenceOptions::default(), format).await;
        assert!(matches!(kind(answer), ErrorKind::Store { .. }), "{bad:?}");
    }
    // 5 + 1 + 111 + 11 bytes.
    formatted(&ids, "order", Some(&"x".repeat(111)), &options).await;
    let months = FormatOptions { template: "{yyyyMM}-{id}", restart: Restart::Month, ..FormatOptions::default() };
    assert_eq!(formatted(&ids, "bill", None, &months).await.next(None).await.unwrap(), "202611-1");
    let years = FormatOptions { template: "{yyyy}-{id}", restart: Restart::Year, ..FormatOptions::default() };
    assert_eq!(formatted(&ids, "year", None, &years).await.next(None).await.unwrap(), "2026-1");
    let names: BTreeSet<_> = store.tags(None, 100).await.unwrap().into_iter().map(|record| record.tag).collect();
    for name in ["bill\u{1f}@2026-11", "year\u{1f}@2026", "order\u{1f}@2026-11-22", "order\u{1f}a@2026-11-22"] {
        assert!(names.contains(name), "{names:?}");
    }
}

#[tokio::test]
async fn several_stores_number_each_day_together() {
    let clock = HandClock::at(MIDNIGHT_MS - 1);
    let stores: Vec<Arc<dyn SegmentStore>> =
        (0..3).map(|_| Arc::new(MemoryStore::default()) as Arc<dyn SegmentStore>).collect();
    let stripes = Arc::new(StripedStore::open(stores).await.unwrap());
    let (mut all, mut total) = (BTreeSet::new(), 0);
    for _ in 0..2 {
        let builder = Ids::builder().segments(stripes.clone()).clock(Arc::clone(&clock) as Arc<dyn Clock>);
        let orders = formatted(&builder.build().await.unwrap(), "order", None, &daily("{yyyyMMdd}-{id}")).await;
        for now_ms in [MIDNIGHT_MS - 1, MIDNIGHT_MS, MIDNIGHT_MS - 1] {
            clock.set(now_ms);
            let texts = orders.take(2_500, None).await.unwrap().texts().unwrap();
            total += texts.len();
            all.extend(texts);
        }
    }
    assert_eq!((total, all.len()), (15_000, 15_000));
}

#[tokio::test]
async fn numbers_alone_are_refused_where_they_repeat_and_cost_nothing() {
    let (store, clock) = (Arc::new(MemoryStore::default()), HandClock::at(MIDNIGHT_MS));
    let ids = open(&store, &clock).await;
    let orders = formatted(&ids, "order", None, &daily("{yyyyMMdd}-{id}")).await;
    let repeat = |kind| matches!(kind, ErrorKind::FormatMisfit { source: FormatMisfit::NumbersRepeat, .. });
    assert!(repeat(kind(orders.next_number(None).await)));
    let batch = orders.take(1, None).await.unwrap();
    assert!(repeat(kind(batch.numbers())));
    assert_eq!(batch.texts().unwrap(), ["20261123-1"], "the refused call took no number");
}

#[tokio::test]
async fn a_shard_key_that_is_missing_or_not_wanted_costs_no_id() {
    let (store, clock) = (Arc::new(MemoryStore::default()), HandClock::at(MIDNIGHT_MS));
    let ids = open(&store, &clock).await;
    let gene = FormatOptions { gene_bits: 4, ..FormatOptions::default() };
    let orders = formatted(&ids, "order", None, &gene).await;
    let write_error = |kind| match kind {
        ErrorKind::Format { source, .. } => source,
        other => panic!("{other:?}"),
    };
    assert_eq!(write_error(kind(orders.next(None).await)), WriteError::ShardKeyMissing);
    assert_eq!(write_error(kind(orders.take(3, None).await)), WriteError::ShardKeyMissing);
    assert_eq!(orders.next_number(Some(37)).await.unwrap(), 1 << 4 | 5);
    let plain = formatted(&ids, "plain", None, &FormatOptions::default()).await;
    assert_eq!(write_error(kind(plain.next_number(Some(37)).await)), WriteError::ShardKeyUnwanted);
    assert_eq!(plain.next(None).await.unwrap(), "1");
    assert!(matches!(kind(plain.take(0, None).await), ErrorKind::CountZero));
}

#[tokio::test]
async fn a_batch_goes_where_its_key_goes_and_keys_rotate_without_repeating() {
    let (store, clock) = (Arc::new(MemoryStore::default()), HandClock::at(MIDNIGHT_MS));
    let ids = open(&store, &clock).await;
    let keys = [FormatKey { id: 2, secret: 0xF00D }, FormatKey { id: 1, secret: 0xCAFE }];
    let options = |keys| FormatOptions {
        template: "O{id:016}",
        bits: 53,
        gene_bits: 4,
        key_id_bits: 4,
        keys,
        context: "order",
        ..FormatOptions::default()
    };
    let before = formatted(&ids, "order", None, &options(&keys[1..])).await;
    let after = formatted(&ids, "order", None, &options(&keys)).await;
    let mut all = BTreeSet::new();
    for (round, orders) in (0..20_u64).zip([&before, &after].into_iter().cycle()) {
        let shard_key = round * 7_919;
        let batch = orders.take(50, Some(shard_key)).await.unwrap();
        let (numbers, texts) = (batch.numbers().unwrap(), batch.texts().unwrap());
        assert_eq!((numbers.len(), texts.len()), (50, 50));
        for (number, text) in numbers.into_iter().zip(texts) {
            assert_eq!(number % 16, shard_key % 16);
            assert!(number < 1 << 53);
            let read = after.format().read(&text).unwrap();
            assert_eq!((read.number, read.gene), (number, Some(shard_key % 16)));
            assert_eq!(read.key_id, Some(if round % 2 == 0 { 1 } else { 2 }));
            assert!(all.insert(number), "{number} came twice");
        }
    }
}

#[tokio::test]
async fn a_snowflake_carries_its_gene_in_the_sequence_and_its_date_is_its_own() {
    let clock = HandClock::at(MIDNIGHT_MS - 1);
    let store = store_with(&clock);
    let ids = open(&store, &clock).await;
    let options = FormatOptions {
        template: "{yyyyMMddHHmmssSSS}/{id}",
        utc_offset_minutes: SHANGHAI,
        gene_bits: 4,
        ..FormatOptions::default()
    };
    let format = Arc::new(Format::new(&options).unwrap());
    // More ids than one tick has, some of them ahead of the clock: each has the date of its own tick.
    let flakes = SnowflakeOptions { ahead_max_ms: 1_000, ..SnowflakeOptions::new(Layout::TWITTER) };
    let web = ids.formatted_snowflake("web", flakes, Arc::clone(&format)).await.unwrap();
    let batch = web.take(600, Some(37)).await.unwrap();
    let (numbers, texts) = (batch.numbers().unwrap(), batch.texts().unwrap());
    let mut dates = BTreeSet::new();
    for (number, text) in numbers.iter().zip(&texts) {
        let parts = Layout::TWITTER.unpack(*number).unwrap();
        assert_eq!((number % 16, parts.sequence % 16), (5, 5));
        let read = format.read(text).unwrap();
        assert_eq!((read.number, read.id, read.gene), (*number, number >> 4, Some(5)));
        let start_ms = Layout::TWITTER.tick_start_ms(parts.ticks);
        assert_eq!(read.issued_ms, Some(start_ms..start_ms + 1));
        dates.insert(&text[..8]);
    }
    assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), 600);
    assert_eq!(dates.into_iter().collect::<Vec<_>>(), ["20261122", "20261123"], "256 ids are one tick's");
    // The namespace has the narrower layout.
    let narrow = Layout::TWITTER.without_gene(4).unwrap();
    assert!(ids.snowflakes().iter().any(|open| open.namespace() == "web" && open.layout() == narrow));
}

#[tokio::test]
async fn a_format_that_does_not_fit_a_snowflake_opens_nothing() {
    let (store, clock) = (Arc::new(MemoryStore::default()), HandClock::at(MIDNIGHT_MS));
    let ids = open(&store, &clock).await;
    let gene = FormatOptions { gene_bits: 4, ..FormatOptions::default() };
    let wide = FormatOptions { gene_bits: 13, ..FormatOptions::default() };
    let short = FormatOptions { template: "{id:018}", ..FormatOptions::default() };
    for (layout, options, expected) in [
        (Layout::TWITTER, daily("{yyyyMMdd}-{id}"), FormatMisfit::Restart),
        (Layout::SONYFLAKE, gene, FormatMisfit::Gene { gene_bits: 4 }),
        (Layout::TWITTER, wide, FormatMisfit::Gene { gene_bits: 13 }),
        (
            Layout::TWITTER,
            short,
            FormatMisfit::Width { layout_max: Layout::TWITTER.id_max(), format_max: 999_999_999_999_999_999 },
        ),
    ] {
        let format = Format::new(&options).unwrap();
        let answer = ids.formatted_snowflake("web", SnowflakeOptions::new(layout), format).await;
        match kind(answer) {
            ErrorKind::FormatMisfit { source, .. } => assert_eq!(source, expected),
            other => panic!("{other:?}"),
        }
    }
    assert!(ids.snowflakes().is_empty());
    let keys = [FormatKey { id: 0, secret: 7 }];
    for bits in [19, 20] {
        let format = Format::new(&FormatOptions { bits, keys: &keys, ..FormatOptions::default() }).unwrap();
        let answer = ids.formatted("hidden", None, SequenceOptions::default(), format).await;
        match answer.map_err(|error| error.to_string()) {
            Ok(_) => assert_eq!(bits, 20),
            Err(message) => assert!(bits == 19 && message.contains("a key for 19 bits hides nothing"), "{message}"),
        }
    }
    // On a generator that is there already: its layout is taken as the one without the gene.
    let sony = ids.snowflake("sony", SnowflakeOptions::new(Layout::SONYFLAKE)).await.unwrap();
    let misfit = sony.formatted(Format::new(&gene).unwrap());
    assert!(matches!(kind(misfit), ErrorKind::FormatMisfit { source: FormatMisfit::Gene { .. }, .. }));
    // A spread needs as many bits of what is left.
    let spread = SnowflakeOptions { spread: Spread::Random { bits: 9 }, ..SnowflakeOptions::new(Layout::TWITTER) };
    let answer = ids.formatted_snowflake("spread", spread, Format::new(&gene).unwrap()).await;
    assert!(matches!(kind(answer), ErrorKind::Options { .. }));
}

#[test]
fn threads_without_a_runtime_use_the_blocking_calls() {
    let clock = HandClock::at(MIDNIGHT_MS - 1);
    let store = store_with(&clock);
    let builder = Ids::builder().segments(store.clone()).leases(store).clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let ids = builder.build_blocking().unwrap();
    let format = |options: &FormatOptions<'_>| Format::new(options).unwrap();
    let daily = format(&daily("{yyyyMMdd}-{id}"));
    let orders = ids.formatted_blocking("order", None, SequenceOptions::default(), daily).unwrap();
    assert_eq!(orders.next_blocking(None).unwrap(), "20261122-1");
    clock.set(MIDNIGHT_MS);
    assert_eq!(orders.take_blocking(2, None).unwrap().texts().unwrap(), ["20261123-1", "20261123-2"]);
    assert!(matches!(kind(orders.next_number_blocking(None)), ErrorKind::FormatMisfit { .. }));
    let gene = format(&FormatOptions { gene_bits: 2, ..FormatOptions::default() });
    let tickets = ids.formatted_blocking("ticket", None, SequenceOptions::default(), gene).unwrap();
    assert_eq!(tickets.next_number_blocking(Some(7)).unwrap(), 1 << 2 | 3);
    assert!(matches!(kind(tickets.next_blocking(None)), ErrorKind::Format { .. }));
    let flakes =
        ids.formatted_snowflake_blocking("web", SnowflakeOptions::new(Layout::TWITTER), Format::default()).unwrap();
    assert_eq!(flakes.take_blocking(3, None).unwrap().len(), 3);
    ids.close_blocking();
    assert!(matches!(kind(orders.next_blocking(None)), ErrorKind::Closed { .. }));
}

#[tokio::test]
async fn few_numbers_a_day_are_shared_by_several_processes() {
    let (store, clock) = (Arc::new(MemoryStore::default()), HandClock::at(MIDNIGHT_MS));
    let mut texts = BTreeSet::new();
    // One after the other, none of which is closed, as after crashes.
    for process in 0..10 {
        let ids = open(&store, &clock).await;
        let orders = formatted(&ids, "order", None, &daily("{yyyyMMdd}-{id:02}")).await;
        for _ in 0..5 {
            let text = orders.next(None).await.unwrap();
            assert!(texts.insert(text.clone()), "process {process} gives {text} again");
        }
    }
    assert_eq!(texts.len(), 50);
}

#[tokio::test]
async fn a_sequence_ends_before_its_texts_are_too_long() {
    let (store, clock) = (Arc::new(MemoryStore::default()), HandClock::at(MIDNIGHT_MS - 1));
    let ids = open(&store, &clock).await;
    let orders = formatted(&ids, "order", None, &daily("{yyyyMMdd}-{id:02}")).await;
    let mut texts = Vec::new();
    let ended = loop {
        match orders.next(None).await {
            Ok(text) => texts.push(text),
            Err(error) => break error,
        }
    };
    assert_eq!(texts.len(), 99);
    assert_eq!(texts.last().map(String::as_str), Some("20261122-99"));
    assert!(matches!(ended.kind(), ErrorKind::Exhausted { id_max: Some(99), .. }), "{ended:?}");
    assert!(!ended.is_retryable());
    // The next day has numbers again.
    clock.set(MIDNIGHT_MS);
    assert_eq!(orders.next(None).await.unwrap(), "20261123-01");
}

/// Each of these differs from the first in one line.
#[tokio::test]
async fn a_tag_is_shown_in_the_format_that_it_had_first_and_no_other_process_shows_it_otherwise() {
    let clock = HandClock::at(MIDNIGHT_MS);
    let store = store_with(&clock);
    let keys = [FormatKey { id: 1, secret: 0x5a3c_0b9d_1e7f_4826_a1b2_c3d4_e5f6_0718 }];
    let template = "ORD-{yyyyMMdd}-{id:08}";
    let first = FormatOptions { bits: 24, key_id_bits: 2, keys: &keys, context: "order", ..daily(template) };
    let others = [FormatKey { secret: 7, ..keys[0] }];
    let later = [FormatKey { id: 2, secret: 7 }, keys[0]];
    let changed = [
        (FormatOptions { template: "{yyyyMMdd}-{id:08}", ..first }, "template is another one"),
        (FormatOptions { restart: Restart::Never, ..first }, "restart was day, and is never"),
        (FormatOptions { bits: 26, ..first }, "bits was 24, and is 26"),
        (FormatOptions { gene_bits: 2, ..first }, "gene_bits was 0, and is 2"),
        (FormatOptions { key_id_bits: 3, ..first }, "key_id_bits was 2, and is 3"),
        (FormatOptions { keys: &others, ..first }, "the key 1 has another secret or context"),
        (FormatOptions { context: "orders", ..first }, "the key 1 has another secret or context"),
    ];
    let open_as = async |options: &FormatOptions<'_>| {
        let ids = open(&store, &clock).await;
        ids.formatted("order", None, SequenceOptions::default(), Format::new(options).unwrap()).await
    };
    // Where a format is refused at first, nothing is bound of it.
    assert!(open_as(&first).await.unwrap().next(None).await.is_ok());
    for _ in 0..2 {
        for (options, said) in &changed {
            let refused = kind(open_as(options).await);
            let ErrorKind::Store { source, .. } = &refused else { panic!("{refused:?}") };
            assert!(matches!(&**source, StoreError::FormatBound { what, .. } if what == said), "{source} for {said}");
        }
    }
    let ids = open(&store, &clock).await;
    let orders = formatted(&ids, "order", None, &first).await;
    let refused = ids.formatted("order", Some("shop"), SequenceOptions::default(), Format::new(&changed[0].0).unwrap());
    assert!(matches!(kind(refused.await), ErrorKind::Store { .. }), "a sub-key is shown as its tag");
    // The zone of the date, a key more and a key less repeat nothing.
    for options in [
        FormatOptions { utc_offset_minutes: 0, ..first },
        FormatOptions { keys: &later, ..first },
        FormatOptions { keys: &later[..1], ..first },
    ] {
        assert!(open_as(&options).await.unwrap().next(None).await.is_ok(), "{options:?}");
    }
    assert!(orders.next(None).await.is_ok());
    // Whoever knows what repeats binds another one, and the first is the other one then.
    let other = Format::new(&changed[0].0).unwrap();
    rebind_format(&*store, FormatOwner::Tag("order"), &other).await.unwrap();
    assert!(open_as(&changed[0].0).await.unwrap().next(None).await.unwrap().starts_with("2026"));
    assert!(matches!(kind(open_as(&first).await), ErrorKind::Store { .. }));
}

/// Each process by itself.
#[tokio::test]
async fn of_formats_that_come_first_at_once_one_is_shown() {
    let clock = HandClock::at(MIDNIGHT_MS);
    let store = store_with(&clock);
    let mut all = Vec::new();
    for number in 0..16_u8 {
        let ids = open(&store, &clock).await;
        let template = format!("{}{{id}}", char::from(b'A' + number % 8));
        all.push(tokio::spawn(async move {
            let format = Format::new(&FormatOptions { template: &template, ..FormatOptions::default() }).unwrap();
            ids.formatted("order", None, SequenceOptions::default(), format).await?.next(None).await
        }));
    }
    let mut shown = BTreeSet::new();
    for one in all {
        match one.await.unwrap() {
            Ok(text) => assert!(shown.insert(text)),
            Err(error) => assert!(error.to_string().contains("template is another one"), "{error}"),
        }
    }
    let first: BTreeSet<_> = shown.iter().map(|text| &text[..1]).collect();
    assert_eq!((first.len(), shown.len()), (1, 2), "{shown:?}");
}

/// Each had looked before the other one bound its own.
#[tokio::test]
async fn of_a_format_that_comes_second_nothing_is_bound() {
    let store = store_with(&HandClock::at(MIDNIGHT_MS));
    let owner = FormatOwner::Tag("order");
    let formats = [("A{id}", 7), ("B{id}", 8)].map(|(template, secret)| {
        let keys = [FormatKey { id: 1, secret }];
        let options = FormatOptions {
            template,
            bits: 24,
            key_id_bits: 1,
            keys: &keys,
            context: "order",
            ..FormatOptions::default()
        };
        Format::new(&options).unwrap()
    });
    let first = check_format(&*store, owner, &formats[0]).await.unwrap();
    let second = check_format(&*store, owner, &formats[1]).await.unwrap();
    // The first one has bound its shape, and was interrupted.
    let shape = FormatBinding::First(formats[0].shape().number());
    store.bind_format(owner, FormatPart::Shape, shape).await.unwrap();
    assert!(matches!(second.bind(&*store, owner).await, Err(StoreError::FormatBound { .. })));
    first.bind(&*store, owner).await.unwrap();
    assert!(check_format(&*store, owner, &formats[0]).await.unwrap().is_empty());
}

/// Ids without keys that others go on to show could grow into the numbers under keys.
#[tokio::test]
async fn the_first_keys_need_a_word() {
    let clock = HandClock::at(MIDNIGHT_MS);
    let store = store_with(&clock);
    let keys = [FormatKey { id: 1, secret: 7 }];
    let plain = FormatOptions { template: "A{id}", ..FormatOptions::default() };
    let keyed = FormatOptions { bits: 21, key_id_bits: 1, keys: &keys, context: "order", ..plain };
    let open_as = async |options: &FormatOptions<'_>| {
        let ids = open(&store, &clock).await;
        ids.formatted("order", None, SequenceOptions::default(), Format::new(options).unwrap()).await
    };
    open_as(&plain).await.unwrap();
    assert!(matches!(kind(open_as(&keyed).await), ErrorKind::Store { .. }));
    rebind_format(&*store, FormatOwner::Tag("order"), &Format::new(&keyed).unwrap()).await.unwrap();
    open_as(&keyed).await.unwrap();
    assert!(matches!(kind(open_as(&plain).await), ErrorKind::Store { .. }));
}

#[tokio::test]
async fn a_snowflake_is_bound_to_its_format_where_there_is_a_store_of_segments() {
    let clock = HandClock::at(MIDNIGHT_MS);
    let store = store_with(&clock);
    let show = async |template: &str| {
        let format = Format::new(&FormatOptions { template, ..FormatOptions::default() }).unwrap();
        let options = SnowflakeOptions::new(Layout::TWITTER);
        open(&store, &clock).await.formatted_snowflake("web", options, format).await
    };
    show("W{id}").await.unwrap();
    assert!(matches!(kind(show("{id}W").await), ErrorKind::Store { .. }));
    show("W{id}").await.unwrap();
}

/// All stripes have what one of them is bound to, and those that a resize makes. Where they differ, nobody is shown
/// anything until one format is bound in all of them.
#[tokio::test]
async fn stripes_have_one_format() {
    let clock = HandClock::at(MIDNIGHT_MS);
    let stores: Vec<Arc<dyn SegmentStore>> = (0..3).map(|_| store_with(&clock) as Arc<dyn SegmentStore>).collect();
    let (owner, shape) = (FormatOwner::Tag("order"), FormatPart::Shape);
    let bound_in =
        async |store: &Arc<dyn SegmentStore>| store.bind_format(owner, shape, FormatBinding::Look).await.unwrap();
    let striped = StripedStore::open(stores[..2].to_vec()).await.unwrap();
    assert_eq!(striped.bind_format(owner, shape, FormatBinding::First(7)).await.unwrap(), Some(7));
    assert_eq!(striped.bind_format(owner, shape, FormatBinding::First(8)).await.unwrap(), Some(7));
    for store in &stores[..2] {
        assert_eq!(bound_in(store).await, Some(7));
    }
    let place = stores[1].stripe().await.unwrap().unwrap();
    let second = stores[1].join_stripe(&place).await.unwrap().store;
    // One that broke off is completed by the next opening.
    let (other, format) = (FormatOwner::Tag("other"), Format::default());
    let number = format.shape().number();
    second.bind_format(other, shape, FormatBinding::First(number)).await.unwrap();
    assert!(check_format(&striped, other, &format).await.unwrap().is_empty());
    assert_eq!(stores[0].bind_format(other, shape, FormatBinding::Look).await.unwrap(), Some(number));
    second.bind_format(owner, shape, FormatBinding::Always(8)).await.unwrap();
    for binding in [FormatBinding::Look, FormatBinding::First(7), FormatBinding::First(8)] {
        let refused = striped.bind_format(owner, shape, binding).await;
        assert!(matches!(refused, Err(StoreError::Refused { .. })), "{refused:?}");
    }
    for _ in 0..2 {
        assert_eq!(striped.bind_format(owner, shape, FormatBinding::Always(9)).await.unwrap(), Some(9));
    }
    resize_stripes(&stores[..2], &stores, 0).await.unwrap();
    for store in &stores {
        assert_eq!(bound_in(store).await, Some(9));
    }
}
