//! Redis without a durable store, on real servers: unalike's own keys and what becomes of them when Redis loses its
//! data, CosId's counters beside CosId's own commands, and counters with a ceiling to import from.

#![expect(clippy::expect_used, reason = "a fixture that cannot do its work fails its test")]

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use redis::Commands as _;
use unalike_memory::MemoryStore;
use unalike_redis::{Backing, RedisOptions, RedisStore};
use unalike_storage::contract::{self, Fixture, SegmentFixture, segment_checks as check};
use unalike_storage::{
    Ceiling, ID_MAX, Mode, RefillPolicy, Segment, SegmentStore, StepPolicy, StoreError, TagCreation, TagOptions,
    TagRecord, TailRelease, sub_tag,
};
use unalike_tests::PATIENCE;
use unalike_tests::proxy::Proxy;
use unalike_tests::redis::{Persistence, Redis};

/// The hash of a store without a durable one.
const HASH: &str = "unalike:alone";

/// CosId's counter of the tag `shop.order`.
const COUNTER: &str = "cosid:{shop.order}.adder";

/// As great as the numbers of an issuer that began with a date: its last three digits get lost in a double.
const GREAT: u64 = 1_000_000_000_000_000_206;

fn range(segment: Segment) -> Range<u64> {
    assert_eq!(segment.validate(), Ok(()), "{segment:?}");
    assert_eq!((segment.stride, segment.generation), (1, 0), "{segment:?}");
    segment.start..segment.end
}

fn what(error: &StoreError) -> String {
    format!("{error} ({error:?})")
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(answer: Result<T, StoreError>, why: &str) {
    let error = answer.expect_err("it is refused");
    assert!(matches!(&error, StoreError::Refused { what, .. } if what.contains(why)), "{}", what(&error));
    assert!(!error.is_retryable() && !error.may_have_granted(), "{}", what(&error));
}

#[track_caller]
fn assert_unknown<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    let error = answer.expect_err("there is no such tag");
    assert!(matches!(error, StoreError::TagUnknown { .. }), "{}", what(&error));
}

#[track_caller]
fn assert_corrupt<T: std::fmt::Debug>(answer: Result<T, StoreError>, why: &str) {
    let error = answer.expect_err("what was found cannot be used");
    let message = format!("{error} {:?}", std::error::Error::source(&error));
    assert!(matches!(&error, StoreError::Corrupt { .. }) && message.contains(why), "{}", what(&error));
}

/// A server that writes each change to its disk before it answers.
struct Place {
    redis: Mutex<Redis>,
    parameters: &'static str,
}

impl Place {
    fn start(parameters: &'static str) -> Self {
        Self { redis: Mutex::new(Redis::start(Persistence::AofAlways).expect("Redis starts")), parameters }
    }

    /// With a store that was initialised.
    async fn initialised() -> Self {
        let place = Self::start("");
        assert!(RedisStore::initialise(&place.options()).await.expect("the store is initialised"));
        place
    }

    fn options(&self) -> RedisOptions {
        let redis = self.redis.lock().unwrap_or_else(PoisonError::into_inner);
        RedisOptions::from_url(&redis.url(0, self.parameters)).expect("the URL is right")
    }

    async fn try_store(&self) -> Result<RedisStore, StoreError> {
        RedisStore::connect(self.options(), Backing::RedisAlone).await
    }

    async fn store(&self) -> RedisStore {
        self.try_store().await.expect("the store opens")
    }

    /// What a command prints.
    fn cli(&self, arguments: &[&str]) -> String {
        self.redis.lock().unwrap_or_else(PoisonError::into_inner).cli(arguments).expect("the command runs")
    }

    /// A client that knows nothing of this program.
    fn foreign(&self) -> redis::Connection {
        let url = self.redis.lock().unwrap_or_else(PoisonError::into_inner).url(0, "");
        let client = redis::Client::open(url.trim_end_matches('?')).expect("the URL is right");
        client.get_connection().expect("the server takes a connection")
    }
}

#[async_trait]
impl Fixture for Place {
    async fn restart(&self) {
        self.redis.lock().unwrap_or_else(PoisonError::into_inner).restart().expect("Redis starts again");
    }
}

/// All numbers that were granted, each once.
#[derive(Default)]
struct Numbers(BTreeSet<u64>);

impl Numbers {
    #[track_caller]
    fn add(&mut self, numbers: Range<u64>) {
        assert!(numbers.start >= 1 && numbers.start < numbers.end, "{numbers:?}");
        for number in numbers {
            assert!(self.0.insert(number), "{number} was granted twice");
        }
    }
}

// Without a durable store.

#[tokio::test]
async fn a_replica_grants_nothing_though_it_takes_writes() {
    for (parameters, tag) in [("", "order"), ("dialect=cosid", "shop.order")] {
        let master = Place::start(parameters);
        if parameters.is_empty() {
            assert!(RedisStore::initialise(&master.options()).await.unwrap());
        }
        master.store().await.create_tag(tag, &TagOptions::default()).await.unwrap();
        let replica = master.redis.lock().unwrap().start_replica(Persistence::AofAlways).expect("a replica");
        replica.cli(&["CONFIG", "SET", "replica-read-only", "no"]).expect("it takes writes");
        let replica = Place { redis: Mutex::new(replica), parameters };
        let store = replica.store().await;
        for answer in [
            store.allocate(tag, 1, 0).await.map(drop),
            store.raise_tag(tag, 100).await.map(drop),
            store.retire_tag(tag).await.map(drop),
        ] {
            let error = answer.expect_err("what its master grants comes on top");
            assert!(matches!(error, StoreError::Unavailable { .. }), "{}", what(&error));
            assert!(error.to_string().contains("is it a replica"), "{error}");
        }
        assert_eq!(range(master.store().await.allocate(tag, 5, 0).await.unwrap()), 1..6);
        replica.redis.lock().unwrap().promote().expect("a master");
        store.check().await.unwrap();
        store.allocate(tag, 1, 0).await.unwrap();
    }
}

/// unalike's own keys, nothing behind them.
struct Alone(Place);

#[async_trait]
impl Fixture for Alone {
    async fn restart(&self) {
        self.0.restart().await;
    }
}

#[async_trait]
impl SegmentFixture for Alone {
    async fn segment_client(&self, creation: TagCreation) -> Arc<dyn SegmentStore> {
        let mut options = self.0.options();
        options.creation = creation;
        Arc::new(RedisStore::connect(options, Backing::RedisAlone).await.expect("the store opens"))
    }

    fn takes_tails_back(&self) -> bool {
        false
    }

    fn can_be_a_stripe(&self) -> bool {
        false
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_alone_keeps_the_contract_of_segments_through_kill_9() {
    contract::segments(&Alone(Place::initialised().await)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_under_load_repeats_nothing_that_redis_alone_granted() {
    let place = Place::initialised().await;
    let mut numbers = Numbers::default();
    for _ in 0..3 {
        let mut tasks = Vec::new();
        let restarted = Arc::new(AtomicBool::new(false));
        for client in 0..4_u64 {
            let (store, restarted) = (place.store().await, Arc::clone(&restarted));
            tasks.push(tokio::spawn(async move {
                let mut granted = Vec::new();
                // Until the server is gone. One that asked nothing just then finds it there again.
                while let Ok(segment) = store.allocate("order", 1 + client, 0).await {
                    granted.push(range(segment));
                    if restarted.load(Ordering::Relaxed) {
                        break;
                    }
                }
                granted
            }));
        }
        let store = place.store().await;
        let begun = store.open_tag("order").await.unwrap().watermark;
        while store.tag("order").await.unwrap().watermark < begun + 500 {
            tokio::task::yield_now().await;
        }
        place.restart().await;
        restarted.store(true, Ordering::Relaxed);
        for task in tasks {
            for grant in task.await.unwrap() {
                numbers.add(grant);
            }
        }
        numbers.add(range(place.store().await.allocate("order", 10, 0).await.unwrap()));
    }
    assert!(numbers.0.len() > 1_000);
}

#[tokio::test]
async fn redis_alone_counts_exactly_up_to_the_last_of_63_bits() {
    let place = Place::initialised().await;
    let store = place.store().await;
    store.open_tag("order").await.unwrap();
    for from in [(1 << 53) - 2, GREAT] {
        assert_eq!(store.raise_tag("order", from).await.unwrap().watermark, from - 1);
        for number in from..from + 10 {
            assert_eq!(range(store.allocate("order", 1, 0).await.unwrap()), number..number + 1);
            assert_eq!(place.cli(&["HGET", HASH, "last:order"]), number.to_string());
        }
        let skipped = from + 101;
        assert_eq!(range(store.allocate("order", 3, skipped).await.unwrap()), skipped..skipped + 3);
        // As long a text, and one less in its last place: no floor.
        assert_eq!(range(store.allocate("order", 3, skipped + 2).await.unwrap()), skipped + 3..skipped + 6);
        assert_eq!(store.raise_tag("order", skipped + 5).await.unwrap().watermark, skipped + 5, "never lowered");
    }
    store.raise_tag("order", ID_MAX - 9).await.unwrap();
    assert_eq!(range(store.allocate("order", 7, 0).await.unwrap()), ID_MAX - 9..ID_MAX - 2);
    assert_eq!(range(store.allocate("order", 7, 0).await.unwrap()), ID_MAX - 2..ID_MAX + 1, "what is left");
    for (count, at_least) in [(1, 0), (u64::MAX, 0), (1, ID_MAX), (u64::MAX, ID_MAX)] {
        let error = store.allocate("order", count, at_least).await.unwrap_err();
        assert!(matches!(error, StoreError::Exhausted { .. }), "{}", what(&error));
    }
    assert_eq!(place.cli(&["HGET", HASH, "last:order"]), ID_MAX.to_string());
    // A floor so great that the sum would be beyond all numbers.
    assert_eq!(range(store.allocate("other", 7, ID_MAX - 2).await.unwrap()), ID_MAX - 2..ID_MAX + 1);
}

/// Of a store that is not the one that the program opened.
const ANOTHER: &str = "this program opened the store";

/// Everything that can be asked of a store, each of which it refuses.
async fn assert_refuses_everything(store: &RedisStore, why: &str) {
    let (step, refill) = (StepPolicy::default(), RefillPolicy::default());
    for tag in ["order", "new"] {
        for at_least in [0, 1_000] {
            assert_refused(store.allocate(tag, 10, at_least).await, why);
        }
        assert_refused(store.open_tag(tag).await, why);
        assert_refused(store.tag(tag).await, why);
        assert_refused(store.create_tag(tag, &TagOptions::default()).await, why);
        assert_refused(store.change_tag(tag, step, refill).await, why);
        assert_refused(store.raise_tag(tag, 1_000).await, why);
        assert_refused(store.retire_tag(tag).await, why);
    }
    for limit in [0, 10] {
        assert_refused(store.tags(None, limit).await, why);
    }
    assert_refused(store.check().await, why);
}

#[tokio::test]
async fn a_redis_that_lost_its_data_grants_nothing_until_it_is_initialised() {
    const WHY: &str = "unalike store init";
    for lost in [&["FLUSHALL"][..], &["FLUSHDB", "ASYNC"], &["DEL", HASH], &["UNLINK", HASH], &["PEXPIRE", HASH, "0"]] {
        let place = Place::initialised().await;
        let store = place.store().await;
        assert_eq!(range(store.allocate("order", 1_000, 0).await.unwrap()), 1..1_001);
        store.check().await.unwrap();
        place.cli(lost);
        assert_refuses_everything(&store, WHY).await;
        assert_refused(place.try_store().await, WHY);
        assert_eq!(place.cli(&["DBSIZE"]), "0", "{lost:?}: what is refused makes nothing");

        // By command alone, and then above what was granted, by programs that were started since.
        assert!(RedisStore::initialise(&place.options()).await.unwrap());
        assert_refuses_everything(&store, ANOTHER).await;
        let store = place.store().await;
        store.create_tag("order", &TagOptions { start: 5_000, ..TagOptions::default() }).await.unwrap();
        assert_eq!(range(store.allocate("order", 10, 0).await.unwrap()), 5_000..5_010);
        store.check().await.unwrap();
    }
    // The marker alone, and the tags are still there.
    let place = Place::initialised().await;
    let store = place.store().await;
    store.allocate("order", 1_000, 0).await.unwrap();
    place.cli(&["HDEL", HASH, "marker"]);
    assert_refuses_everything(&store, WHY).await;
    assert_eq!(place.cli(&["HGET", HASH, "last:order"]), "1000");
    assert!(RedisStore::initialise(&place.options()).await.unwrap());
    assert_refuses_everything(&store, ANOTHER).await;
    let store = place.store().await;
    assert_eq!(range(store.allocate("order", 10, 0).await.unwrap()), 1_001..1_011);
}

#[tokio::test]
async fn an_empty_redis_is_refused_until_it_is_initialised() {
    let place = Place::start("");
    assert_refused(place.try_store().await, "unalike store init");
    assert_eq!(place.cli(&["DBSIZE"]), "0");
    assert!(RedisStore::initialise(&place.options()).await.unwrap(), "it was none before");
    let store = place.store().await;
    assert_eq!(range(store.allocate("order", 10, 0).await.unwrap()), 1..11);
    assert!(!RedisStore::initialise(&place.options()).await.unwrap(), "it is one already");
    assert_eq!(range(store.allocate("order", 10, 0).await.unwrap()), 11..21, "to initialise it again changes nothing");

    // Its disk is lost.
    let old = place.redis.lock().unwrap_or_else(PoisonError::into_inner).directory().join("appendonlydir");
    std::fs::remove_dir_all(old).unwrap();
    place.restart().await;
    assert_eq!(place.cli(&["DBSIZE"]), "0");
    // The connection is gone, then the store is asked.
    let error = store.allocate("order", 10, 0).await.unwrap_err();
    assert!(error.is_retryable() || matches!(error, StoreError::Refused { .. }), "{}", what(&error));
    assert_refuses_everything(&store, "unalike store init").await;

    // Another prefix is another store.
    assert!(RedisStore::initialise(&place.options()).await.unwrap());
    place.store().await.open_tag("order").await.unwrap();
    let other = Place { parameters: "prefix=other", ..place };
    assert_refused(other.try_store().await, "other:alone");
    assert!(RedisStore::initialise(&other.options()).await.unwrap());
    assert_eq!(other.store().await.tags(None, 10).await.unwrap(), []);
}

/// A request that makes a sub-key is paused while its tag ends.
#[tokio::test]
async fn no_sub_key_is_made_in_redis_after_its_tag_has_ended() {
    let place = Place::initialised().await;
    let store = place.store().await;
    store.allocate("order", 1, 0).await.unwrap();
    let port = place.redis.lock().unwrap().port();
    let proxy = Proxy::start(port).unwrap();
    let url = format!("redis://127.0.0.1:{}/0?request-timeout-ms=60000", proxy.port());
    let paused = RedisStore::connect(RedisOptions::from_url(&url).unwrap(), Backing::RedisAlone).await.unwrap();
    let name = sub_tag("order", "shop").unwrap();
    // The options of what is created.
    proxy.stall_at("start=1 mode=");
    let making = {
        let (paused, name) = (paused.clone(), name.clone());
        tokio::spawn(async move { paused.allocate(&name, 1, 0).await })
    };
    let deadline = Instant::now() + PATIENCE;
    while !proxy.is_stalled() {
        assert!(Instant::now() < deadline, "it is paused");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(store.retire_tag("order").await.unwrap().watermark, 1);
    proxy.stall(false);
    let error = making.await.unwrap().unwrap_err();
    assert!(matches!(error, StoreError::Exhausted { .. }), "{}", what(&error));
    assert_unknown(store.tag(&name).await);
    assert_eq!(store.tags(None, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_redis_that_may_lose_what_it_said_is_no_store_alone() {
    for persistence in [Persistence::Nothing, Persistence::Rdb, Persistence::AofEverySecond] {
        let redis = Redis::start(persistence).unwrap();
        for parameters in ["", "dialect=cosid"] {
            let options = RedisOptions::from_url(&redis.url(0, parameters)).unwrap();
            assert_refused(RedisStore::connect(options, Backing::RedisAlone).await, "appendfsync always");
        }
        let options = RedisOptions::from_url(&redis.url(0, "")).unwrap();
        assert_refused(RedisStore::initialise(&options).await, "appendonly");
        assert_eq!(redis.cli(&["DBSIZE"]).unwrap(), "0");
        let options = RedisOptions::from_url(&redis.url(0, "durability=assumed")).unwrap();
        assert!(RedisStore::initialise(&options).await.unwrap(), "who promises it himself may");
        RedisStore::connect(options, Backing::RedisAlone).await.unwrap();
    }
    let place = Place::initialised().await;
    for (setting, bad, good) in [
        ("appendfsync", "everysec", "always"),
        ("no-appendfsync-on-rewrite", "yes", "no"),
        ("maxmemory-policy", "allkeys-lru", "volatile-lru"),
    ] {
        place.cli(&["CONFIG", "SET", setting, bad]);
        assert_refused(place.try_store().await, setting);
        place.cli(&["CONFIG", "SET", setting, good]);
        place.store().await;
    }
}

/// What a script granted under such a setting is burnt, and the next request is refused before it grants.
#[tokio::test]
async fn a_setting_that_is_changed_while_a_store_is_open_is_seen_by_the_next_grant() {
    let place = Place::initialised().await;
    let store = place.store().await;
    let mut next = store.allocate("order", 10, 0).await.unwrap().end;
    for (setting, bad, good) in [("appendonly", "no", "yes"), ("appendfsync", "everysec", "always")] {
        place.cli(&["CONFIG", "SET", setting, bad]);
        place.cli(&["SCRIPT", "FLUSH"]);
        let burnt = store.allocate("order", 10, 0).await.unwrap_err();
        assert!(matches!(burnt, StoreError::OutcomeUnknown { .. }), "{burnt:?}");
        assert!(format!("{burnt:?}").contains(setting), "{burnt:?}");
        for _ in 0..3 {
            assert_refused(store.allocate("order", 10, 0).await, setting);
        }
        assert_refused(store.raise_tag("order", 5).await, setting);
        place.cli(&["CONFIG", "SET", setting, good]);
        let segment = store.allocate("order", 10, 0).await.unwrap();
        assert_eq!(segment.start, next + 10, "{setting}: one grant was burnt");
        next = segment.end;
    }
}

#[tokio::test]
async fn only_stores_of_its_own_are_initialised() {
    for parameters in ["dialect=cosid", "dialect=clock", "dialect=id-generator&keys=order:id_order&source-stopped=true"]
    {
        let place = Place::start(parameters);
        assert_refused(RedisStore::initialise(&place.options()).await, "is not initialised");
        assert_eq!(place.cli(&["DBSIZE"]), "0");
    }
}

#[tokio::test]
async fn a_damaged_field_is_named_and_left_alone() {
    let place = Place::initialised().await;
    let store = place.store().await;
    store.allocate("order", 10, 0).await.unwrap();
    let options = place.cli(&["HGET", HASH, "options:order"]);
    for bad in ["-5", "abc", "007", "+5", "", "1.5", "9223372036854775808", "99999999999999999999", "\u{fc}"] {
        place.cli(&["HSET", HASH, "last:order", bad]);
        for at_least in [0, ID_MAX] {
            assert_corrupt(store.allocate("order", 1, at_least).await, "order");
        }
        assert_corrupt(store.tag("order").await, "last:order");
        assert_corrupt(store.open_tag("order").await, "last:order");
        assert_corrupt(store.raise_tag("order", 5_000).await, "order");
        assert_corrupt(store.retire_tag("order").await, "order");
        assert_corrupt(store.tags(None, 10).await, "last:order");
        assert_eq!(place.cli(&["HGET", HASH, "last:order"]), bad);
    }
    place.cli(&["HSET", HASH, "last:order", "50"]);
    for bad in ["", "start=0 mode=buffered", "nonsense", &options.replace("buffered", "other"), &format!("x{options}")]
    {
        place.cli(&["HSET", HASH, "options:order", bad]);
        assert_corrupt(store.tag("order").await, "options:order");
        assert_corrupt(store.retire_tag("order").await, "options:order");
        assert_eq!(place.cli(&["HGET", HASH, "last:order"]), "50", "it was not ended");
    }
    place.cli(&["HDEL", HASH, "options:order"]);
    assert_corrupt(store.tag("order").await, "options:order");
    let error = store.create_tag("order", &TagOptions::default()).await.unwrap_err();
    assert!(matches!(error, StoreError::TagExists { .. }), "half of a tag is not made anew: {}", what(&error));
    place.cli(&["HSET", HASH, "options:order", &options]);
    assert_eq!(range(store.allocate("order", 10, 0).await.unwrap()), 51..61);

    place.cli(&["DEL", HASH]);
    place.cli(&["SET", HASH, "somebody else's"]);
    assert_corrupt(store.allocate("order", 1, 0).await, "WRONGTYPE");
    assert_corrupt(place.try_store().await, "WRONGTYPE");
    assert_corrupt(RedisStore::initialise(&place.options()).await, "WRONGTYPE");
}

#[tokio::test]
async fn thousands_of_tags_are_listed_in_order_and_each_once() {
    let place = Place::initialised().await;
    let store = place.store().await;
    store.open_tag("tag-0").await.unwrap();
    let options = place.cli(&["HGET", HASH, "options:tag-0"]);
    let fill = "for i = 1, 2999 do \
                redis.call('HSET', KEYS[1], 'last:tag-' .. i, i, 'options:tag-' .. i, ARGV[1]) end";
    place.cli(&["EVAL", fill, "1", HASH, &options]);
    let mut expected: Vec<(String, u64)> = (0..3_000).map(|number| (format!("tag-{number}"), number)).collect();
    expected.sort();
    let flat = |records: Vec<TagRecord>| -> Vec<(String, u64)> {
        records.into_iter().map(|record| (record.tag, record.watermark)).collect()
    };
    assert_eq!(flat(store.tags(None, 10_000).await.unwrap()), expected);
    let behind = expected.iter().position(|(tag, _)| tag == "tag-2").unwrap() + 1;
    assert_eq!(flat(store.tags(Some("tag-2"), 3).await.unwrap())[..], expected[behind..behind + 3]);
    assert_eq!(store.tags(Some("tag-999"), 10).await.unwrap(), []);
}

// CosId's counters.

/// What CosId's clients send: the last number of the new range.
fn cosid_takes(connection: &mut redis::Connection, key: &str, step: u64) -> redis::RedisResult<Range<u64>> {
    let _: bool = connection.set_nx(key, 0)?;
    let last: u64 = redis::cmd("INCRBY").arg(key).arg(step).query(connection)?;
    Ok(last - step + 1..last + 1)
}

fn cosid() -> Place {
    Place::start("dialect=cosid")
}

#[tokio::test]
async fn cosid_counts_up_to_the_number_in_its_key() {
    let place = cosid();
    let store = place.store().await;
    let mut old = place.foreign();
    assert_eq!(cosid_takes(&mut old, COUNTER, 100).unwrap(), 1..101);
    let record = store.tag("shop.order").await.unwrap();
    assert_eq!((record.watermark, record.options), (100, TagOptions::default()));
    assert_eq!(store.open_tag("shop.order").await.unwrap(), record);
    assert_eq!(range(store.allocate("shop.order", 10, 0).await.unwrap()), 101..111);
    assert_eq!(place.cli(&["GET", COUNTER]), "110");
    assert_eq!(cosid_takes(&mut old, COUNTER, 100).unwrap(), 111..211, "(last - step, last]");
    assert_eq!(range(store.allocate("shop.order", 10, 1_000).await.unwrap()), 1_000..1_010);
    assert_eq!(range(store.allocate("shop.order", 10, 500).await.unwrap()), 1_010..1_020);
    assert_eq!(store.raise_tag("shop.order", 9_000).await.unwrap().watermark, 8_999);
    assert_eq!(store.raise_tag("shop.order", 7_000).await.unwrap().watermark, 8_999, "never lowered");
    assert_eq!(cosid_takes(&mut old, COUNTER, 100).unwrap(), 9_000..9_100);
    let tail = TailRelease { start: 1_015, version: 1_019 };
    assert!(!store.release("shop.order", tail).await.unwrap(), "the keys have no version");
    assert_eq!(store.ceiling("shop.order").await.unwrap(), None);
    store.check().await.unwrap();

    let record = store.tag("shop.order").await.unwrap();
    let TagOptions { step, refill, .. } = record.options;
    assert_eq!(store.change_tag("shop.order", step, refill).await.unwrap(), record);
    assert_refused(store.change_tag("shop.order", StepPolicy::Fixed { step: 5 }, refill).await, "a step");
    assert_eq!(place.cli(&["GET", COUNTER]), "9099");
}

#[tokio::test]
async fn cosid_counts_exactly_up_to_the_last_of_63_bits() {
    let place = cosid();
    let store = place.store().await;
    let mut old = place.foreign();
    for from in [(1 << 53) - 4, GREAT] {
        place.cli(&["SET", COUNTER, &(from - 1).to_string()]);
        for number in (from..from + 12).step_by(3) {
            assert_eq!(range(store.allocate("shop.order", 1, 0).await.unwrap()), number..number + 1);
            assert_eq!(cosid_takes(&mut old, COUNTER, 1).unwrap(), number + 1..number + 2);
            assert_eq!(range(store.allocate("shop.order", 1, number + 2).await.unwrap()), number + 2..number + 3);
        }
        let skipped = from + 101;
        assert_eq!(range(store.allocate("shop.order", 3, skipped).await.unwrap()), skipped..skipped + 3);
        assert_eq!(range(store.allocate("shop.order", 3, skipped + 2).await.unwrap()), skipped + 3..skipped + 6);
        assert_eq!(store.raise_tag("shop.order", skipped + 100).await.unwrap().watermark, skipped + 99);
    }
    store.raise_tag("shop.order", ID_MAX - 9).await.unwrap();
    assert_eq!(range(store.allocate("shop.order", 4, 0).await.unwrap()), ID_MAX - 9..ID_MAX - 5);
    assert_eq!(cosid_takes(&mut old, COUNTER, 4).unwrap(), ID_MAX - 5..ID_MAX - 1);
    cosid_takes(&mut old, COUNTER, 4).unwrap_err();
    assert_eq!(range(store.allocate("shop.order", 4, 0).await.unwrap()), ID_MAX - 1..ID_MAX + 1, "what is left");
    for (count, at_least) in [(1, 0), (u64::MAX, 0), (1, ID_MAX)] {
        let error = store.allocate("shop.order", count, at_least).await.unwrap_err();
        assert!(matches!(error, StoreError::Exhausted { .. }), "{}", what(&error));
    }
    assert_eq!(place.cli(&["GET", COUNTER]), ID_MAX.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn cosid_clients_and_this_program_share_a_counter_without_an_overlap() {
    const GRANTS: u64 = 100;
    for begin in [0, (1 << 53) - 2_000, GREAT] {
        let place = cosid();
        place.cli(&["SET", COUNTER, &begin.to_string()]);
        let mut tasks = Vec::new();
        for client in 0..4 {
            let store = place.store().await;
            tasks.push(tokio::spawn(async move {
                let mut granted = Vec::new();
                for grant in 0..GRANTS {
                    granted.push(range(store.allocate("shop.order", 1 + (client + grant) % 7, 0).await.unwrap()));
                }
                granted
            }));
            let mut old = place.foreign();
            tasks.push(tokio::task::spawn_blocking(move || {
                (0..GRANTS).map(|grant| cosid_takes(&mut old, COUNTER, 1 + (client + grant) % 5).unwrap()).collect()
            }));
        }
        let mut numbers = Numbers::default();
        for task in tasks {
            let granted: Vec<Range<u64>> = task.await.unwrap();
            assert!(granted.is_sorted_by(|a, b| a.end <= b.start), "the grants of a client ascend: {granted:?}");
            for grant in granted {
                numbers.add(grant);
            }
        }
        assert_eq!(numbers.0.first(), Some(&(begin + 1)));
        assert_eq!(numbers.0.last().map(u64::to_string), Some(place.cli(&["GET", COUNTER])));
        assert_eq!(*numbers.0.last().unwrap() - begin, numbers.0.len() as u64, "and none is left out");
    }
}

#[tokio::test]
async fn a_counter_of_cosid_that_is_missing_is_not_begun_again() {
    let place = cosid();
    let store = place.store().await;
    let options = TagOptions { start: 500, ..TagOptions::default() };
    for _ in 0..2 {
        for at_least in [0, 1_000] {
            assert_unknown(store.allocate("shop.order", 10, at_least).await);
        }
        assert_unknown(store.open_tag("shop.order").await);
        assert_unknown(store.tag("shop.order").await);
        assert_unknown(store.raise_tag("shop.order", 1_000).await);
        assert_unknown(store.retire_tag("shop.order").await);
        assert_unknown(store.change_tag("shop.order", StepPolicy::default(), RefillPolicy::default()).await);
        assert_eq!(place.cli(&["EXISTS", COUNTER]), "0", "nothing was made");

        let record = store.create_tag("shop.order", &options).await.unwrap();
        assert_eq!((record.watermark, place.cli(&["GET", COUNTER]).as_str()), (499, "499"));
        assert_eq!(store.tag("shop.order").await.unwrap(), record);
        assert_eq!(range(store.allocate("shop.order", 10, 0).await.unwrap()), 500..510);
        let error = store.create_tag("shop.order", &TagOptions::default()).await.unwrap_err();
        assert!(matches!(error, StoreError::TagExists { .. }), "{}", what(&error));
        assert_eq!(place.cli(&["GET", COUNTER]), "509");
        // It is lost.
        place.cli(&["DEL", COUNTER]);
    }
    for options in [
        TagOptions { mode: Mode::Ordered, ..TagOptions::default() },
        TagOptions { step: StepPolicy::Fixed { step: 5 }, ..TagOptions::default() },
        TagOptions { refill: RefillPolicy::Remaining { count: 5 }, ..TagOptions::default() },
    ] {
        assert_refused(store.create_tag("shop.order", &options).await, "leave them out");
    }
    let sub = sub_tag("shop.order", "user_1").unwrap();
    for error in [
        store.allocate(&sub, 10, 0).await.unwrap_err(),
        store.create_tag(&sub, &TagOptions::default()).await.unwrap_err(),
    ] {
        let refused = matches!(&error, StoreError::TagInvalid { reason, .. } if reason.contains("user_1"));
        assert!(refused && !error.to_string().contains('\u{1f}'), "{}", what(&error));
    }
    assert_eq!(place.cli(&["DBSIZE"]), "0", "what was refused made nothing");
}

#[tokio::test]
async fn a_durable_store_cannot_stand_behind_cosid() {
    let place = cosid();
    let durable = Backing::Durable(Arc::new(MemoryStore::default()));
    assert_refused(RedisStore::connect(place.options(), durable).await, "know none");
}

#[tokio::test]
async fn the_counters_of_cosid_are_listed_and_other_keys_are_not() {
    let place = cosid();
    let store = place.store().await;
    for tag in ["shop.b", "shop.B", "shop.a", "shop.[a]*?", "shop.}", "shop.\u{fffd}", "shop.😀"] {
        store.create_tag(tag, &TagOptions::default()).await.unwrap();
    }
    // CosId's own for its machines, and what may look like a counter.
    place.cli(&["SET", "cosid:{shop}:adder", "5"]);
    place.cli(&["HSET", "cosid:{shop}:itc_idx", "a", "1|2"]);
    place.cli(&["SET", "cosid:{}.adder", "5"]);
    place.cli(&["SET", &format!("cosid:{{{}}}.adder", "x".repeat(129)), "5"]);
    place.cli(&["SET", "cosid:{shop.sub\u{1f}a}.adder", "5"]);
    for tag in ["shop.b1", "shop.b2", "shop.b3"] {
        // As many as a page holds, and more.
        place.cli(&["HSET", &format!("cosid:{{{tag}}}.adder"), "a", "1"]);
    }
    place.cli(&["EVAL", "for i = 1, 2500 do redis.call('SET', 'other:' .. i, i) end", "0"]);
    place.cli(&["EVAL", "redis.call('SET', 'cosid:{\\255}.adder', 1)", "0"]);
    let mut listed: Vec<String> = Vec::new();
    loop {
        let page = store.tags(listed.last().map(String::as_str), 2).await.unwrap();
        assert!(page.len() <= 2);
        if page.is_empty() {
            break;
        }
        listed.extend(page.into_iter().map(|record| record.tag));
    }
    assert_eq!(listed, ["shop.B", "shop.[a]*?", "shop.a", "shop.b", "shop.}", "shop.\u{fffd}", "shop.😀"]);
    assert_eq!(store.tags(None, 0).await.unwrap(), []);
}

#[tokio::test]
async fn what_is_no_counter_of_cosid_is_named_and_left_alone() {
    let place = cosid();
    let store = place.store().await;
    for bad in ["-5", "abc", "007", "+5", "", "1.5", "9223372036854775808", "99999999999999999999", "\u{fc}"] {
        place.cli(&["SET", COUNTER, bad]);
        for at_least in [0, ID_MAX] {
            assert_corrupt(store.allocate("shop.order", 1, at_least).await, "shop.order");
        }
        assert_corrupt(store.tag("shop.order").await, "shop.order");
        assert_corrupt(store.raise_tag("shop.order", 5_000).await, "shop.order");
        assert_corrupt(store.retire_tag("shop.order").await, "shop.order");
        assert_corrupt(store.create_tag("shop.order", &TagOptions::default()).await, "shop.order");
        assert_corrupt(store.tags(None, 10).await, "shop.order");
        assert_eq!(place.cli(&["GET", COUNTER]), bad);
    }
    place.cli(&["DEL", COUNTER]);
    place.cli(&["HSET", COUNTER, "a", "1"]);
    assert_corrupt(store.allocate("shop.order", 1, 0).await, "WRONGTYPE");
    assert_corrupt(store.allocate("shop.order", 1, ID_MAX).await, "WRONGTYPE");
    assert_corrupt(store.tag("shop.order").await, "WRONGTYPE");
    assert_corrupt(store.retire_tag("shop.order").await, "WRONGTYPE");
    assert_eq!(place.cli(&["HGET", COUNTER, "a"]), "1");
}

#[tokio::test]
async fn an_ended_counter_of_cosid_gives_its_clients_an_error() {
    let place = cosid();
    let (store, other) = (place.store().await, place.store().await);
    let mut old = place.foreign();
    cosid_takes(&mut old, COUNTER, 5_000).unwrap();
    let before = other.tag("shop.order").await.unwrap();
    assert_eq!(store.retire_tag("shop.order").await.unwrap(), before, "the record as it was");
    for step in [1, 100, ID_MAX] {
        let error = cosid_takes(&mut old, COUNTER, step).unwrap_err();
        assert!(error.to_string().contains("overflow"), "{error}");
    }
    for client in [&store, &other] {
        for at_least in [0, before.watermark + 1, ID_MAX] {
            let error = client.allocate("shop.order", 1, at_least).await.unwrap_err();
            assert!(matches!(error, StoreError::Exhausted { .. }), "{}", what(&error));
        }
        assert_eq!(client.retire_tag("shop.order").await.unwrap().watermark, ID_MAX, "ending it again");
        assert_eq!(client.raise_tag("shop.order", 9_000).await.unwrap().watermark, ID_MAX);
    }
}

/// A client of CosId's counters that has every tag created that it is asked for, as far as it may.
struct Creating {
    store: RedisStore,
    creation: TagCreation,
}

impl Creating {
    async fn create(&self, tag: &str) -> Result<(), StoreError> {
        if !self.creation.on_first_use {
            return Err(StoreError::tag_unknown(tag));
        }
        match self.store.create_tag(tag, &TagOptions::default()).await {
            Err(StoreError::TagExists { .. }) => Ok(()),
            created => created.map(drop),
        }
    }
}

#[async_trait]
impl unalike_storage::SegmentLayer for Creating {
    fn below(&self) -> Option<&dyn SegmentStore> {
        Some(&self.store)
    }

    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        let store: &dyn SegmentStore = &self.store;
        match store.allocate(tag, count, at_least).await {
            Err(StoreError::TagUnknown { .. }) => self.create(tag).await?,
            answer => return answer,
        }
        store.allocate(tag, count, at_least).await
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        let store: &dyn SegmentStore = &self.store;
        match store.open_tag(tag).await {
            Err(StoreError::TagUnknown { .. }) => self.create(tag).await?,
            answer => return answer,
        }
        store.open_tag(tag).await
    }
}

struct Cosid(Place);

#[async_trait]
impl Fixture for Cosid {
    async fn restart(&self) {
        self.0.restart().await;
    }
}

#[async_trait]
impl SegmentFixture for Cosid {
    async fn segment_client(&self, creation: TagCreation) -> Arc<dyn SegmentStore> {
        let mut options = self.0.options();
        options.creation = creation;
        let store = RedisStore::connect(options, Backing::RedisAlone).await.expect("the store opens");
        Arc::new(Creating { store, creation })
    }

    fn takes_tails_back(&self) -> bool {
        false
    }

    fn keeps_order(&self) -> bool {
        false
    }

    fn can_be_a_stripe(&self) -> bool {
        false
    }
}

/// Of the rest, counters without a place for options and sub-keys cannot keep them.
#[tokio::test(flavor = "multi_thread")]
async fn cosid_keeps_the_contract_as_far_as_its_keys_can() {
    let place = Cosid(cosid());
    check::the_first_number_is_the_start(&place).await;
    check::grants_are_well_formed_and_ascend(&place).await;
    check::concurrent_clients_never_share_a_number(&place).await;
    check::at_least_skips_up_and_never_back(&place).await;
    check::tags_are_independent(&place).await;
    check::unknown_tags_are_created_only_when_allowed(&place).await;
    check::bad_requests_are_refused(&place).await;
    check::odd_names_are_kept_as_they_are(&place).await;
    check::no_name_with_a_space_at_an_end_is_created(&place).await;
    check::numbers_end_at_the_top(&place).await;
    check::a_tail_is_taken_back_once(&place).await;
    check::a_tail_that_was_not_granted_is_not_taken_back(&place).await;
    check::a_raise_stands_against_a_late_release(&place).await;
    check::a_raise_lifts_and_never_lowers(&place).await;
    check::tags_are_listed_in_byte_order(&place).await;
    check::an_ended_tag_grants_nothing(&place).await;
    check::an_abandoned_request_costs_only_numbers(&place).await;
    check::the_tag_limit_holds(&place).await;
    check::a_restart_repeats_nothing(&place).await;
}

// Counters with a ceiling.

/// The key of the tag `order`.
const ORDER: &str = "id_order";

/// Adds to `cur`, and hands the sum out if it is not above the ceiling: the script that such counters come with.
fn script_takes(connection: &mut redis::Connection, count: u64) -> Option<u64> {
    let script = redis::Script::new(
        "local max = tonumber(redis.call('HGET', KEYS[1], 'max'))
         local cur = redis.call('HINCRBY', KEYS[1], 'cur', ARGV[1])
         if cur <= max then return cur else return nil end",
    );
    script.key(ORDER).arg(count).invoke(connection).expect("the script runs")
}

fn id_generator() -> Place {
    Place::start("dialect=id-generator&keys=order:id_order,invoice:other,missing:none&source-stopped=true")
}

/// Sets the fields of the counter to these alone.
fn set_counter(place: &Place, fields: &[&str]) {
    place.cli(&["DEL", ORDER]);
    place.cli(&[&["HSET", ORDER], fields].concat());
}

#[tokio::test]
async fn a_counter_with_a_ceiling_is_read_by_its_ceiling() {
    let place = id_generator();
    let store = place.store().await;
    set_counter(&place, &["cur", "1200", "max", "100000", "seq_recently", "50", "seq_long_term", "1200"]);
    place.cli(&["HSET", "other", "max", "7"]);
    let record = store.tag("order").await.unwrap();
    assert_eq!((record.tag.as_str(), record.watermark, record.options), ("order", 100_000, TagOptions::default()));
    assert_eq!(store.open_tag("order").await.unwrap(), record);
    let ceiling = Ceiling { last: 1_200, max: 100_000, used_recently: 50, used_long_term: 1_200 };
    assert_eq!(store.ceiling("order").await.unwrap(), Some(ceiling));
    let ceiling = Ceiling { last: 0, max: 7, used_recently: 0, used_long_term: 0 };
    assert_eq!(store.ceiling("invoice").await.unwrap(), Some(ceiling), "what is missing counts as 0");
    store.check().await.unwrap();

    for tag in ["missing", "unmapped", ORDER] {
        assert_unknown(store.tag(tag).await);
        assert_unknown(store.open_tag(tag).await);
        assert_unknown(store.retire_tag(tag).await);
        assert_eq!(store.ceiling(tag).await.unwrap(), None);
    }
    assert_eq!(place.cli(&["EXISTS", "none", "unmapped"]), "0");
    let tags = async |after, limit| {
        let listed = store.tags(after, limit).await.unwrap();
        listed.into_iter().map(|record| (record.tag, record.watermark)).collect::<Vec<_>>()
    };
    let (invoice, order) = (("invoice".to_owned(), 7), ("order".to_owned(), 100_000));
    assert_eq!(tags(None, 10).await, [invoice.clone(), order.clone()]);
    assert_eq!(tags(None, 1).await, [invoice]);
    assert_eq!(tags(Some("invoice"), 10).await, [order]);
    assert_eq!(tags(Some("order"), 10).await, []);
    assert_eq!(tags(None, 0).await, []);

    // A script that was refused has added to it all the same, or the ceiling was lowered since.
    for (cur, max, watermark, last) in [
        (100_013, 100_000, 100_013, 100_000),
        ((1 << 53) + 1, (1 << 53) + 3, (1 << 53) + 3, (1 << 53) + 1),
        (GREAT, GREAT + 1, GREAT + 1, GREAT),
        (GREAT + 1, GREAT, GREAT + 1, GREAT),
        (999, GREAT, GREAT, 999),
        (ID_MAX - 1, ID_MAX, ID_MAX, ID_MAX - 1),
    ] {
        set_counter(&place, &["cur", &cur.to_string(), "max", &max.to_string()]);
        assert_eq!(store.tag("order").await.unwrap().watermark, watermark, "{cur} {max}");
        let ceiling = store.ceiling("order").await.unwrap().unwrap();
        assert_eq!((ceiling.last, ceiling.max), (last, max), "{cur} {max}");
        assert_eq!(store.retire_tag("order").await.unwrap().watermark, watermark, "{cur} {max}");
        assert_eq!(store.tag("order").await.unwrap().watermark, watermark, "{cur} {max}");
    }
}

#[tokio::test]
async fn an_ended_counter_with_a_ceiling_hands_nothing_out() {
    let place = id_generator();
    let store = place.store().await;
    let mut old = place.foreign();
    set_counter(&place, &["cur", "1200", "max", "2000"]);
    assert_eq!(script_takes(&mut old, 300), Some(1_500));
    let before = store.tag("order").await.unwrap();
    assert_eq!(store.retire_tag("order").await.unwrap(), before, "the record as it was");
    assert_eq!(before.watermark, 2_000);
    for _ in 0..3 {
        assert_eq!(script_takes(&mut old, 1), None, "its own script gives out nothing");
    }
    assert_eq!(place.cli(&["HMGET", ORDER, "max", "retired_max"]), "0\n2000");
    assert_eq!(store.ceiling("order").await.unwrap(), None);
    for _ in 0..2 {
        assert_eq!(store.tag("order").await.unwrap().watermark, 2_000);
        assert_eq!(store.retire_tag("order").await.unwrap().watermark, 2_000, "ending it again lowers nothing");
    }
    // Whoever goes on asking adds to it.
    assert_eq!(script_takes(&mut old, 1_000), None);
    assert_eq!(store.retire_tag("order").await.unwrap().watermark, 2_503);
    // The job that was said to be stopped was not.
    place.cli(&["HSET", ORDER, "max", "3000"]);
    assert_eq!(script_takes(&mut old, 300), Some(2_803));
    assert_eq!(store.retire_tag("order").await.unwrap().watermark, 3_000);
    assert_eq!(script_takes(&mut old, 1), None);
    place.cli(&["DEL", ORDER]);
    assert_unknown(store.retire_tag("order").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_number_is_handed_out_beyond_the_end_of_a_counter_with_a_ceiling() {
    for _ in 0..5 {
        let place = id_generator();
        let store = place.store().await;
        set_counter(&place, &["cur", "0", "max", "1000000"]);
        let mut clients = Vec::new();
        for _ in 0..4 {
            let mut old = place.foreign();
            clients.push(tokio::task::spawn_blocking(move || {
                let mut last = 0;
                while let Some(number) = script_takes(&mut old, 7) {
                    last = number;
                }
                last
            }));
        }
        while store.ceiling("order").await.unwrap().unwrap().last < 700 {
            tokio::task::yield_now().await;
        }
        let ended = store.retire_tag("order").await.unwrap();
        for client in clients {
            // It ends only because nothing is handed out.
            assert!(client.await.unwrap() <= ended.watermark);
        }
    }
}

#[tokio::test]
async fn a_counter_with_a_ceiling_that_cannot_be_used_is_named_and_left_alone() {
    let place = id_generator();
    let store = place.store().await;
    for bad in ["-5", "abc", "007", "+5", "", "1.5", "9223372036854775808", "99999999999999999999", "\u{fc}"] {
        for field in ["cur", "max", "retired_max"] {
            set_counter(&place, &["cur", "5", "max", "10", field, bad]);
            assert_corrupt(store.tag("order").await, &format!("field {field} is"));
            assert_corrupt(store.retire_tag("order").await, &format!("field {field} is"));
            assert_corrupt(store.ceiling("order").await, &format!("field {field} is"));
            assert_corrupt(store.tags(None, 10).await, ORDER);
            assert_eq!(place.cli(&["HGET", ORDER, field]), bad);
        }
    }
    for bad in ["-5", "abc", "", "1.5"] {
        set_counter(&place, &["cur", "5", "max", "10", "seq_recently", "1", "seq_long_term", bad]);
        assert_corrupt(store.ceiling("order").await, &format!("{bad:?}"));
        assert_eq!(store.tag("order").await.unwrap().watermark, 10, "its numbers are known all the same");
    }
    set_counter(&place, &["cur", "5"]);
    assert_corrupt(store.tag("order").await, "field max is missing");
    assert_corrupt(store.retire_tag("order").await, "field max is missing");
    assert_eq!(place.cli(&["HLEN", ORDER]), "1");
    place.cli(&["DEL", ORDER]);
    place.cli(&["SET", ORDER, "5"]);
    assert_corrupt(store.tag("order").await, "WRONGTYPE");
    assert_corrupt(store.retire_tag("order").await, "WRONGTYPE");
    assert_eq!(place.cli(&["GET", ORDER]), "5");
}

#[tokio::test]
async fn counters_with_a_ceiling_are_for_importing_only() {
    const WHY: &str = "unalike tags import";
    for (parameters, why) in [
        ("dialect=id-generator&keys=order:id_order", "source-stopped=true"),
        ("dialect=id-generator&keys=order:id_order&source-stopped=false", "cannot be stopped from here"),
        ("dialect=id-generator&source-stopped=true", "keys=order:id_order"),
        ("dialect=id-generator&source-stopped=true&keys=a:x,b:x", "same key"),
    ] {
        assert_refused(Place::start(parameters).try_store().await, why);
    }
    // A durable store is not used, and what is only read need not be durable.
    let redis = Redis::start(Persistence::Nothing).unwrap();
    let parameters = "dialect=id-generator&keys=order:id_order&source-stopped=true";
    let options = RedisOptions::from_url(&redis.url(0, parameters)).unwrap();
    let durable = Backing::Durable(Arc::new(MemoryStore::default()));
    RedisStore::connect(options.clone(), durable).await.unwrap();
    let store = RedisStore::connect(options, Backing::RedisAlone).await.unwrap();

    redis.cli(&["HSET", ORDER, "cur", "5", "max", "10"]).unwrap();
    let (step, refill) = (StepPolicy::default(), RefillPolicy::default());
    assert_refused(store.allocate("order", 1, 0).await, WHY);
    assert_refused(store.allocate("order", 1, 1_000).await, WHY);
    assert_refused(store.release("order", TailRelease { start: 5, version: 10 }).await, WHY);
    assert_refused(store.create_tag("order", &TagOptions::default()).await, WHY);
    assert_refused(store.change_tag("order", step, refill).await, WHY);
    assert_refused(store.raise_tag("order", 1_000).await, WHY);
    assert_unknown(store.allocate("unmapped", 1, 0).await);
    assert_unknown(store.create_tag("unmapped", &TagOptions::default()).await);
    assert_eq!(redis.cli(&["HGETALL", ORDER]).unwrap(), "cur\n5\nmax\n10");
    assert_eq!(redis.cli(&["DBSIZE"]).unwrap(), "1");
}

/// The steps of an import, as the command takes them: what is read, ended, and goes on in another store.
#[tokio::test]
async fn tags_of_both_other_systems_go_on_in_another_store() {
    let generator = id_generator();
    set_counter(&generator, &["cur", "1200", "max", "2000"]);
    let counters = cosid();
    counters.cli(&["SET", "cosid:{order}.adder", "1500"]);
    for (place, last) in [(generator, 2_000), (counters, 1_500)] {
        let (source, target) = (place.store().await, MemoryStore::default());
        let listed = source.tags(None, 1_000).await.unwrap();
        assert_eq!(listed.iter().map(|record| record.tag.as_str()).collect::<Vec<_>>(), ["order"]);
        assert_eq!(source.tags(Some("order"), 1_000).await.unwrap(), []);
        let known = source.tag("order").await.unwrap();
        assert!(known.watermark < ID_MAX, "it was not ended before");
        let record = source.retire_tag("order").await.unwrap();
        assert_eq!(record, known);
        let options = TagOptions { start: record.watermark + 1, ..record.options };
        target.create_tag("order", &options).await.unwrap();
        assert_eq!(range(target.allocate("order", 10, 0).await.unwrap()), last + 1..last + 11);

        // Again: it goes on where it was, or is said to have been ended.
        let known = source.tag("order").await.unwrap();
        assert!(known.watermark == last || known.watermark == ID_MAX, "{known:?}");
        let error = source.allocate("order", 1, 0).await.unwrap_err();
        assert!(!error.is_retryable(), "{}", what(&error));
    }
}
