//! Redis without a durable store, in whose place another store comes: a second Redis under its address, and its own
//! data of yesterday. What a program must do when Redis loses its data is in `dialects`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use unalike_memory::MemoryStore;
use unalike_redis::{Backing, RedisLeases, RedisOptions, RedisStore};
use unalike_remote::{RemoteOptions, RemoteStore};
use unalike_storage::{
    ID_MAX, LeaseAcquire, LeaseExtend, LeaseStore as _, RefillPolicy, SegmentStore as _, StepPolicy, StoreError,
    TagOptions, sub_tag,
};
use unalike_tests::leases::{acquire, layout};
use unalike_tests::proxy::Proxy;
use unalike_tests::redis::{Persistence, Redis};
use unalike_tests::refusals::{at_last, refused, stays_refused};
use unalike_tests::server::Server;

const HASH: &str = "unalike:alone";

/// What is said of another store, beside the names of both.
const ANOTHER: [&str; 4] =
    [HASH, "this program opened the store", "store restored --lift COUNT", "restart this program"];

fn options(url: &str) -> RedisOptions {
    RedisOptions::from_url(url).unwrap()
}

/// One that was made a store.
async fn initialised() -> Redis {
    let redis = Redis::start(Persistence::AofAlways).unwrap();
    assert!(RedisStore::initialise(&options(&redis.url(0, ""))).await.unwrap());
    redis
}

async fn open(url: &str) -> RedisStore {
    RedisStore::connect(options(url), Backing::RedisAlone).await.unwrap()
}

/// The name of the store that is there.
fn marker(redis: &Redis) -> String {
    redis.cli(&["HGET", HASH, "marker"]).unwrap()
}

async fn take(store: &RedisStore, tag: &str, count: u64, granted: &mut BTreeSet<u64>) {
    let segment = store.allocate(tag, count, 0).await.unwrap();
    assert_eq!(segment.count(), count, "{segment:?}");
    for number in segment.start..segment.end {
        assert!(granted.insert(number), "{number} was granted twice under {tag}");
    }
}

/// Copies the files of a directory to another one, which is emptied before.
fn replace(to: &Path, from: &Path) {
    if to.exists() {
        fs::remove_dir_all(to).unwrap();
    }
    fs::create_dir(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

#[tokio::test]
async fn a_redis_in_the_place_of_the_one_that_was_opened_is_refused_until_that_one_is_back() {
    let (first, second) = (initialised().await, initialised().await);
    let proxy = Proxy::start(first.port()).unwrap();
    let store = open(&proxy.url(&first.url(0, ""))).await;
    assert_eq!(store.allocate("order", 10, 0).await.unwrap().end, 11);
    // It has the tag too, and has granted fewer of its numbers.
    open(&second.url(0, "")).await.allocate("order", 3, 0).await.unwrap();
    let (opened, found, before) = (marker(&first), marker(&second), second.cli(&["HGETALL", HASH]).unwrap());
    let at = format!("127.0.0.1:{}/0", proxy.port());
    let words = [&ANOTHER[..], &[opened.as_str(), found.as_str(), at.as_str()]].concat();

    proxy.lead_to(second.port());
    let (step, refill) = (StepPolicy::default(), RefillPolicy::default());
    for tag in ["order", "new"] {
        stays_refused(async || store.allocate(tag, 10, 0).await, &words).await;
        stays_refused(async || store.allocate(tag, 10, 1_000).await, &words).await;
        stays_refused(async || store.open_tag(tag).await, &words).await;
        stays_refused(async || store.tag(tag).await, &words).await;
        stays_refused(async || store.create_tag(tag, &TagOptions::default()).await, &words).await;
        stays_refused(async || store.change_tag(tag, step, refill).await, &words).await;
        stays_refused(async || store.raise_tag(tag, 1_000).await, &words).await;
        stays_refused(async || store.retire_tag(tag).await, &words).await;
    }
    for limit in [0, 10] {
        stays_refused(async || store.tags(None, limit).await, &words).await;
    }
    stays_refused(async || store.identity().await, &words).await;
    stays_refused(async || store.check().await, &words).await;
    assert_eq!(second.cli(&["HGETALL", HASH]).unwrap(), before, "nothing was written there");

    proxy.lead_to(first.port());
    let segment = at_last(async || store.allocate("order", 10, 0).await).await.unwrap();
    assert!(segment.start > 10, "{segment:?}");
    store.check().await.unwrap();
    assert_eq!(store.tags(None, 10).await.unwrap().len(), 1);
    assert_eq!(store.identity().await.unwrap().unwrap().to_string(), opened);
    // Who comes when the other one is there, and says nothing else, has meant that one.
    proxy.lead_to(second.port());
    assert_eq!(open(&proxy.url(&second.url(0, ""))).await.allocate("order", 1, 0).await.unwrap().start, 4);
}

/// The server remembers the name of its store, and hosts remember it too.
#[tokio::test(flavor = "multi_thread")]
async fn hosts_of_a_server_are_refused_while_another_redis_is_behind_it() {
    let (first, second) = (initialised().await, initialised().await);
    let proxy = Proxy::start(first.port()).unwrap();
    let flags = ["--store", &proxy.url(&first.url(0, "")), "--backing", "none"].map(str::to_owned);
    let server = Server::start_in(Arc::new(TempDir::new().unwrap()), flags.to_vec()).unwrap();
    let connect = async || RemoteStore::connect(RemoteOptions::from_url(server.url()).unwrap()).await;
    let host = connect().await.unwrap();
    assert_eq!(host.allocate("order", 10, 0).await.unwrap().start, 1);

    proxy.lead_to(second.port());
    let words = ["the store refused"];
    stays_refused(async || host.allocate("order", 10, 0).await, &words).await;
    stays_refused(async || host.open_tag("order").await, &words).await;
    stays_refused(connect, &words).await;
    server.wait_for_log("this program opened the store", 1).unwrap();
    assert_eq!(second.cli(&["HLEN", HASH]).unwrap(), "1", "no tag was made there");

    proxy.lead_to(first.port());
    let segment = at_last(async || host.allocate("order", 10, 0).await).await.unwrap();
    assert!(segment.start > 10, "{segment:?}");
}

/// Before stores had names, the marker of each was 1.
#[tokio::test]
async fn a_store_without_a_name_gets_one_from_the_first_program_that_may_write() {
    let redis = Redis::start(Persistence::AofAlways).unwrap();
    redis.cli(&["HSET", HASH, "marker", "1"]).unwrap();
    redis.cli(&["ACL", "SETUSER", "reader", "on", ">s3cret", "~*", "+@all", "-@write"]).unwrap();
    let reader = open(&redis.url(0, "").replace("redis://", "redis://reader:s3cret@")).await;
    assert_eq!(reader.tags(None, 10).await.unwrap(), []);
    refused(reader.allocate("order", 1, 0).await, &["may not"]);
    refused(reader.identity().await, &["may not"]);
    assert_eq!(marker(&redis), "1");

    let store = open(&redis.url(0, "")).await;
    let name = marker(&redis);
    assert_eq!(name.len(), 32, "{name}");
    assert_eq!(store.allocate("order", 10, 0).await.unwrap().start, 1);
    assert_eq!(reader.tags(None, 10).await.unwrap().len(), 1, "it goes on");
    for store in [&store, &reader, &open(&redis.url(0, "")).await] {
        assert_eq!(store.identity().await.unwrap().unwrap().to_string(), name);
    }
    assert_eq!(marker(&redis), name);
    // It has the name now.
    redis.cli(&["HSET", HASH, "marker", "1"]).unwrap();
    stays_refused(async || reader.tags(None, 10).await, &ANOTHER).await;
    stays_refused(async || store.allocate("order", 10, 0).await, &ANOTHER).await;
}

#[tokio::test]
async fn a_redis_that_was_restored_repeats_nothing_once_an_operator_says_so() {
    const LIFT: u64 = 1_000;
    let mut redis = initialised().await;
    let (url, backup) = (redis.url(0, ""), TempDir::new().unwrap());
    let (data, backup) = (redis.directory().join("appendonlydir"), backup.path().join("appendonlydir"));
    let (shop, other_shop) = (sub_tag("order", "shop").unwrap(), sub_tag("order", "other").unwrap());
    let (mut order, mut sub, mut late) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let running = open(&url).await;
    take(&running, "order", 100, &mut order).await;
    take(&running, &shop, 100, &mut sub).await;
    for tag in ["ended", "near-the-end"] {
        running.allocate(tag, 10, 0).await.unwrap();
    }
    running.retire_tag("ended").await.unwrap();
    running.raise_tag("near-the-end", ID_MAX - 500).await.unwrap();
    redis.kill9().unwrap();
    replace(&backup, &data);
    redis.restart().unwrap();

    let store = open(&url).await;
    take(&store, "order", 400, &mut order).await;
    take(&store, &shop, 400, &mut sub).await;
    take(&store, "late", 700, &mut late).await;
    redis.kill9().unwrap();
    replace(&data, &backup);
    redis.restart().unwrap();

    // Leases of the restored server end, too.
    assert!(RedisLeases::initialise(&options(&url), "default", layout(4)).await.unwrap());
    let leases = RedisLeases::connect(options(&url), Backing::RedisAlone).await.unwrap();
    let lease = leases.acquire(&acquire(layout(4), 60_000, 0)).await.unwrap();
    for lift in [0, ID_MAX + 1] {
        refused(RedisStore::restored(options(&url), lift).await, &["1 to 2^63 - 1"]);
    }
    let before = marker(&redis);
    let restored = RedisStore::restored(options(&url), LIFT).await.unwrap();
    assert_eq!(restored.tags, 4);
    assert!(restored.leases_from_ms >= lease.valid_until_ms, "{restored:?}");
    let LeaseAcquire { namespace, layout, now_ms, horizon_ms, .. } = acquire(layout(4), 60_000, 0);
    let (worker, grant_id) = (lease.worker, lease.grant_id);
    let extend = LeaseExtend { namespace, layout, worker, grant_id, now_ms, horizon_ms };
    let lost = leases.extend(&extend).await.unwrap_err();
    assert!(matches!(lost, StoreError::LeaseLost { .. }), "{lost:?}");
    let early = leases.acquire(&acquire(layout, 60_000, 0)).await.unwrap_err();
    assert!(
        matches!(early, StoreError::Quarantined { until_ms, .. } if until_ms == restored.leases_from_ms),
        "{early:?}, {restored:?}"
    );

    // Programs that had it open all the time, or since before the loss.
    let now = marker(&redis);
    assert_ne!(now, before);
    let words = [&ANOTHER[..], &[before.as_str(), now.as_str()]].concat();
    for program in [&running, &store] {
        stays_refused(async || program.allocate("order", 10, 0).await, &words).await;
        stays_refused(async || program.tags(None, 10).await, &words).await;
    }

    let store = open(&url).await;
    for _ in 0..2 {
        take(&store, "order", 300, &mut order).await;
        take(&store, &shop, 300, &mut sub).await;
        take(&store, "late", 300, &mut late).await;
    }
    assert_eq!(store.tag("order").await.unwrap().watermark, 100 + LIFT + 600);
    let started = store.create_tag("new", &TagOptions { start: 50, ..TagOptions::default() }).await.unwrap();
    assert_eq!((started.watermark, started.options.start), (49 + LIFT, 50));
    assert_eq!(store.tag("new").await.unwrap(), started);
    assert_eq!(store.allocate("new", 10, 0).await.unwrap().start, 50 + LIFT);
    assert_eq!(store.allocate(&other_shop, 10, 0).await.unwrap().start, 1 + LIFT);
    for tag in ["ended", "near-the-end"] {
        let exhausted = store.allocate(tag, 1, 0).await.unwrap_err();
        assert!(matches!(exhausted, StoreError::Exhausted { .. }), "{tag}: {exhausted:?}");
    }

    // Repeated, it lifts again, and the floor is none of the tags.
    let again = RedisStore::restored(options(&url), LIFT).await.unwrap();
    assert_eq!(again.tags, 7);
    let store = open(&url).await;
    assert_eq!(store.tag("order").await.unwrap().watermark, 100 + 2 * LIFT + 600);
    assert_eq!(store.allocate("newest", 10, 0).await.unwrap().start, 1 + 2 * LIFT);
    let last = RedisStore::restored(options(&url), ID_MAX).await.unwrap();
    assert_eq!(last.tags, 8);
    let store = open(&url).await;
    assert!(store.tags(None, 100).await.unwrap().iter().all(|record| record.watermark == ID_MAX));
    let exhausted = store.allocate("behind-the-end", 1, 0).await.unwrap_err();
    assert!(matches!(exhausted, StoreError::Exhausted { .. }), "{exhausted:?}");
}

/// What tags are counted against their limit once there is a floor.
#[tokio::test]
async fn a_floor_is_no_tag_and_what_is_no_store_is_not_lifted() {
    let redis = Redis::start(Persistence::AofAlways).unwrap();
    let url = redis.url(0, "");
    refused(RedisStore::restored(options(&url), 1).await, &["no marker", "store init"]);
    refused(RedisStore::restored(options(&format!("{url}dialect=cosid")), 1).await, &["lifts unalike's own tags"]);
    assert_eq!(redis.cli(&["DBSIZE"]).unwrap(), "0");
    assert!(RedisStore::initialise(&options(&url)).await.unwrap());
    assert_eq!(RedisStore::restored(options(&url), 5).await.unwrap().tags, 0);
    let mut limited = options(&url);
    limited.creation.tags_max = 2;
    let store = RedisStore::connect(limited, Backing::RedisAlone).await.unwrap();
    for (tag, start) in [("a", 6), ("b", 6)] {
        assert_eq!(store.allocate(tag, 1, 0).await.unwrap().start, start);
    }
    let full = store.allocate("c", 1, 0).await.unwrap_err();
    assert!(matches!(full, StoreError::TagLimit { tags_max: 2, .. }), "{full:?}");

    // Time of another Redis is not counted in ids.
    redis.cli(&["HSET", HASH, "last:redis-leases\u{1f}default", "5"]).unwrap();
    refused(RedisStore::restored(options(&url), 5).await, &["redis-leases", "nothing was lifted"]);
    assert_eq!(store.allocate("a", 1, 0).await.unwrap().start, 7);
}

/// With a durable store and without one, the same tags would be counted twice.
#[tokio::test]
async fn a_redis_is_a_store_by_itself_or_has_a_durable_one_and_not_both() {
    let durable = |redis: &Redis, prefix: &str| {
        let options = options(&redis.url(0, prefix));
        async move { RedisStore::connect(options, Backing::Durable(Arc::new(MemoryStore::default()))).await }
    };
    let alone = initialised().await;
    let store = open(&alone.url(0, "")).await;
    assert_eq!(store.allocate("order", 1, 0).await.unwrap().start, 1);
    for _ in 0..3 {
        refused(durable(&alone, "").await, &[HASH, "--backing none", "tags import"]);
    }
    assert_eq!(store.allocate("order", 1, 0).await.unwrap().start, 2, "it goes on");
    assert_eq!(open(&alone.url(0, "")).await.allocate("order", 1, 0).await.unwrap().start, 3, "after a restart, too");
    let other = durable(&alone, "prefix=other").await.unwrap();
    assert_eq!(other.allocate("order", 1, 0).await.unwrap().start, 1, "under another prefix are other tags");

    let backed = Redis::start(Persistence::AofAlways).unwrap();
    let store = durable(&backed, "").await.unwrap();
    assert_eq!(store.allocate("order", 1, 0).await.unwrap().start, 1);
    let said = ["unalike:durable", "name it (--backing)"];
    for _ in 0..3 {
        refused(RedisStore::initialise(&options(&backed.url(0, ""))).await, &said);
    }
    assert_eq!(backed.cli(&["EXISTS", HASH]).unwrap(), "0");
    // Of two that began at once, one had looked too early.
    backed.cli(&["HSET", HASH, "marker", "00112233445566778899aabbccddeeff"]).unwrap();
    let opened = RedisStore::connect(options(&backed.url(0, "")), Backing::RedisAlone).await;
    refused(opened, &said);
    assert_eq!(store.allocate("order", 1, 0).await.unwrap().start, 2, "it goes on");
}
