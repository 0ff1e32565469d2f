//! unalike's own keys in a real etcd: the contracts, stripes, and what is checked.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a fixture that cannot start fails the test")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use unalike_etcd::{EtcdLeases, EtcdOptions, EtcdStore};
use unalike_storage::contract::{self, Fixture, LeaseFixture, SegmentFixture};
use unalike_storage::{
    ID_MAX, Layout, Lease, LeaseAcquire, LeaseExtend, LeaseLimits, LeaseStore, SegmentStore, StoreError, Stripe,
    StripedStore, TagCreation, TailRelease, resize_stripes, sub_tag,
};
use unalike_tests::PATIENCE;
use unalike_tests::authority::Authority;
use unalike_tests::etcd::{Etcd, Version};
use unalike_tests::leases::{acquire, assert_disjoint, layout, now_ms};
use unalike_tests::refusals::{refused_or_damaged, stays_refused};

/// A cluster of the test's own, with one store.
struct Server {
    etcd: Mutex<Etcd>,
    url: String,
}

impl Server {
    fn start(version: Version, members: usize) -> Self {
        let etcd = Etcd::start_with(version, members, &[]).expect("etcd starts");
        let url = etcd.url();
        Self { etcd: Mutex::new(etcd), url }
    }
}

#[async_trait]
impl Fixture for Server {
    async fn restart(&self) {
        self.etcd.lock().unwrap_or_else(PoisonError::into_inner).restart().expect("etcd starts again");
    }
}

#[async_trait]
impl SegmentFixture for Server {
    async fn segment_client(&self, creation: TagCreation) -> Arc<dyn SegmentStore> {
        let mut options = options(&self.url);
        options.creation = creation;
        Arc::new(EtcdStore::connect(options).await.expect("the store opens"))
    }
}

#[async_trait]
impl LeaseFixture for Server {
    async fn lease_client(&self, limits: LeaseLimits) -> Arc<dyn LeaseStore> {
        let mut options = options(&self.url);
        options.limits = limits;
        Arc::new(EtcdLeases::connect(options).await.expect("the leases open"))
    }
}

/// Three clusters as one set.
struct Stripes([Server; 3]);

#[async_trait]
impl Fixture for Stripes {
    async fn restart(&self) {
        for server in &self.0 {
            server.restart().await;
        }
    }
}

#[async_trait]
impl SegmentFixture for Stripes {
    async fn segment_client(&self, creation: TagCreation) -> Arc<dyn SegmentStore> {
        let mut stores = Vec::new();
        for server in &self.0 {
            stores.push(server.segment_client(creation).await);
        }
        Arc::new(StripedStore::open(stores).await.expect("the stripes open"))
    }

    fn keeps_order(&self) -> bool {
        false
    }

    fn can_be_a_stripe(&self) -> bool {
        false
    }
}

/// A new store in the etcd that the tests share.
fn url() -> String {
    Etcd::shared().expect("etcd starts").url()
}

fn options(url: &str) -> EtcdOptions {
    EtcdOptions::from_url(url).expect("a URL")
}

async fn try_open(url: &str) -> Result<EtcdStore, StoreError> {
    EtcdStore::connect(EtcdOptions::from_url(url)?).await
}

async fn open(url: &str) -> EtcdStore {
    try_open(url).await.expect("the store opens")
}

/// The prefix in a URL.
fn prefix(url: &str) -> &str {
    url.rsplit_once('/').unwrap().1
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_3_5_keeps_the_contract_of_segments_through_restarts() {
    contract::segments(&Server::start(Version::V3_5, 3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_3_4_keeps_the_contract_of_segments_through_kill_9() {
    contract::segments(&Server::start(Version::V3_4, 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_3_5_keeps_the_contract_of_leases_through_restarts() {
    contract::leases(&Server::start(Version::V3_5, 3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_3_4_keeps_the_contract_of_leases_through_kill_9() {
    contract::leases(&Server::start(Version::V3_4, 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_stripes_of_etcd_keep_the_contract_through_kill_9() {
    let one = || Server::start(Version::V3_4, 1);
    contract::segments(&Stripes([one(), one(), one()])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_granted_cannot_become_a_stripe_and_one_that_is_serves_its_set_alone() {
    let (used, new) = (url(), url());
    let stripe = Stripe { set: 0x5eed, index: 0, count: 2 };
    let store = open(&used).await;
    store.allocate("order", 10, 0).await.expect("a grant");
    refused_or_damaged(SegmentStore::join_stripe(&store, &stripe).await.map(drop), &["used alone"]);

    let store = open(&new).await;
    store.open_tag("order").await.expect("created, and nothing granted");
    let joined = SegmentStore::join_stripe(&store, &stripe).await.expect("joined");
    let granted = joined.store.allocate("order", 5, 0).await.expect("a grant");
    refused_or_damaged(store.allocate("order", 5, 0).await, &["stripe 0 of 2", "together with all stores"]);
    assert_eq!(joined.store.allocate("order", 5, 0).await.expect("a grant").start, granted.end);
}

#[tokio::test]
async fn what_becomes_of_a_store_holds_at_once_for_programs_that_have_its_rows_in_mind() {
    // Another program makes it a stripe, or adopts it.
    let (url, stripe) = (url(), Stripe { set: 7, index: 0, count: 2 });
    let (running, other) = (open(&url).await, open(&url).await);
    let granted = running.allocate("order", 5, 0).await.expect("a grant");
    other.restripe(None, Some(&stripe)).await.expect("a new set");
    refused_or_damaged(running.allocate("order", 5, 0).await, &["stripe 0 of 2", "together with all stores"]);
    other.restripe(Some(&stripe), None).await.expect("alone again");
    let next = running.allocate("order", 5, 0).await.expect("a grant");
    assert_eq!(next.start, granted.end);
    EtcdStore::adopt(options(&url), 100).await.expect("adopted");
    let tail = TailRelease { start: next.start + 1, version: next.version };
    refused_or_damaged(running.release("order", tail).await, &["restart this program"]);
    refused_or_damaged(running.allocate("order", 5, 0).await, &["restart this program"]);
    assert_eq!(open(&url).await.allocate("order", 5, 0).await.expect("a grant").start, next.end + 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_comes_while_a_store_becomes_a_stripe_is_in_one_of_both() {
    for _ in 0..20 {
        let url = url();
        let (alone, joining) = (open(&url).await, open(&url).await);
        alone.open_tag("order").await.expect("created");
        let stripe = Stripe { set: 0x5eed, index: 1, count: 2 };
        let (granted, joined) =
            tokio::join!(alone.allocate("order", 5, 0), SegmentStore::join_stripe(&joining, &stripe));
        assert!(granted.is_ok() != joined.is_ok(), "{granted:?} {joined:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stripes_are_resized_over_clusters() {
    let (first, second) = (url(), url());
    let alone: Arc<dyn SegmentStore> = Arc::new(open(&first).await);
    let granted = alone.allocate("order", 100, 0).await.expect("a grant");
    let stores = || async { [Arc::new(open(&first).await) as Arc<dyn SegmentStore>, Arc::new(open(&second).await)] };
    resize_stripes(std::slice::from_ref(&alone), &stores().await, 0).await.expect("resized");
    refused_or_damaged(alone.allocate("order", 1, 0).await, &["together with all stores"]);
    let set = StripedStore::open(stores().await.to_vec()).await.expect("the set opens");
    let mut seen: BTreeSet<u64> = (granted.start..granted.end).collect();
    for _ in 0..20 {
        let segment = set.allocate("order", 10, 0).await.expect("a grant");
        for number in (0..segment.count()).map(|nth| segment.start + nth * segment.stride) {
            assert!(seen.insert(number), "{number} was granted twice");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_contend_for_one_tag_each_get_on() {
    // Each round grants to one of them, by chance. However slow the disk is, the last of them has no rival left.
    let url = format!("{}?request-timeout-ms=60000", url());
    let mut tasks = Vec::new();
    for _ in 0..16 {
        let store = open(&url).await;
        tasks.push(tokio::spawn(async move {
            let mut segments = Vec::new();
            while segments.len() < 25 {
                segments.push(store.allocate("order", 3, 0).await.expect("within the time of a request"));
            }
            segments
        }));
    }
    let mut seen = BTreeSet::new();
    for task in tasks {
        for segment in task.await.expect("it ends") {
            for number in segment.start..segment.end {
                assert!(seen.insert(number), "{number} was granted twice");
            }
        }
    }
    assert_eq!(seen.len(), 16 * 25 * 3);
    assert_eq!(seen.last(), Some(&(16 * 25 * 3)), "no race cost a gap");
}

#[tokio::test]
async fn numbers_end_at_the_top_and_a_count_beyond_it_is_cut() {
    let store = open(&url()).await;
    store.raise_tag("order", 1).await.expect_err("it is unknown");
    store.allocate("order", 1, 0).await.expect("a grant");
    store.raise_tag("order", ID_MAX - 4).await.expect("raised");
    let last = store.allocate("order", u64::MAX, 0).await.expect("a grant");
    assert_eq!((last.start, last.end), (ID_MAX - 4, ID_MAX + 1));
    let error = store.allocate("order", 1, 0).await.expect_err("there is none");
    assert!(matches!(error, StoreError::Exhausted { .. }), "{error:?}");
}

#[tokio::test]
async fn what_somebody_else_wrote_is_told() {
    let etcd = Etcd::shared().unwrap();
    let url = url();
    let store = open(&url).await;
    store.allocate("order", 10, 0).await.expect("a grant");
    etcd.ctl(&["put", &format!("{}/tag/order", prefix(&url)), "7"]).unwrap();
    refused_or_damaged(store.allocate("order", 10, 0).await, &["tag/order", "not unalike's"]);
    let again = open(&url).await;
    again.allocate("other", 10, 0).await.expect("a grant");
    etcd.ctl(&["del", &format!("{}/store", prefix(&url))]).unwrap();
    refused_or_damaged(again.allocate("other", 10, 0).await, &["/store", "is gone"]);
    refused_or_damaged(try_open(&url).await, &["there are keys below the prefix"]);
}

/// Every key of a store, without its prefix, and its value.
fn keys_of(etcd: &Etcd, url: &str) -> Vec<(String, String)> {
    let lines = etcd.ctl(&["get", "--prefix", &format!("{}/", prefix(url))]).unwrap();
    let mut lines = lines.lines();
    let pair = || {
        let (key, value) = lines.next().zip(lines.next())?;
        Some((key.strip_prefix(prefix(url))?.to_owned(), value.to_owned()))
    };
    std::iter::from_fn(pair).collect()
}

fn put_keys(etcd: &Etcd, url: &str, keys: &[(String, String)]) {
    for (key, value) in keys {
        etcd.ctl(&["put", "--", &format!("{}{key}", prefix(url)), value]).unwrap();
    }
}

#[tokio::test]
async fn keys_that_were_copied_are_refused_until_they_are_adopted() {
    let etcd = Etcd::shared().unwrap();
    let (url, copy) = (url(), url());
    let store = open(&url).await;
    assert_eq!(store.allocate("order", 10, 0).await.expect("a grant").end, 11);
    // What `etcdctl make-mirror --dest-prefix` writes.
    let keys = keys_of(etcd, &url);
    put_keys(etcd, &copy, &keys);
    stays_refused(async || try_open(&copy).await, &["its keys are a copy", "unalike store adopt --lift COUNT"]).await;
    assert_eq!(store.allocate("order", 10, 0).await.expect("a grant").end, 21);
    EtcdStore::adopt(options(&copy), 1_000).await.expect("nobody uses where it was copied from");
    assert_eq!(open(&copy).await.allocate("order", 10, 0).await.expect("a grant").start, 1_011);

    // A backup of the keys, in the same place: 11 to 20 would come again.
    etcd.ctl(&["del", "--prefix", &format!("{}/", prefix(&url))]).unwrap();
    put_keys(etcd, &url, &keys);
    stays_refused(async || store.allocate("order", 10, 0).await, &["its keys are a copy"]).await;
    stays_refused(async || try_open(&url).await, &["its keys are a copy"]).await;
    EtcdStore::adopt(options(&url), 1_000).await.expect("COUNT is above what was lost");
    assert_eq!(open(&url).await.allocate("order", 10, 0).await.expect("a grant").start, 1_011);

    // Old values over keys that are there.
    let keys = keys_of(etcd, &url);
    let (tags, store_key): (Vec<_>, Vec<_>) = keys.into_iter().partition(|(key, _)| key.starts_with("/tag/"));
    let store = open(&url).await;
    assert_eq!(store.allocate("order", 10, 0).await.expect("a grant").start, 1_021);
    put_keys(etcd, &url, &tags);
    let put_back = &["an old value was put back", "unalike store adopt --lift COUNT"];
    for _ in 0..4 {
        refused_or_damaged(store.allocate("order", 10, 0).await, put_back);
        refused_or_damaged(open(&url).await.allocate("order", 10, 0).await, put_back);
    }
    EtcdStore::adopt(options(&url), 1_000).await.expect("COUNT is above what was lost");
    for start in [2_021, 2_031] {
        assert_eq!(open(&url).await.allocate("order", 10, 0).await.expect("a grant").start, start);
    }
    // A value from before the adoption, put back after it: lifted, it would grant 2_021 again.
    put_keys(etcd, &url, &tags);
    for _ in 0..4 {
        refused_or_damaged(open(&url).await.allocate("order", 10, 0).await, put_back);
    }
    EtcdStore::adopt(options(&url), 1_000).await.expect("COUNT is above what was lost");
    // 1_020, and two lifts.
    assert_eq!(open(&url).await.allocate("order", 10, 0).await.expect("a grant").start, 3_021);
    put_keys(etcd, &url, &store_key);
    stays_refused(async || try_open(&url).await, &["old values were put back", "times, and records"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_leases_over_newer_ones_are_refused_until_they_are_adopted() {
    let etcd = Etcd::shared().unwrap();
    let url = url();
    let mut options = options(&url);
    options.limits = LeaseLimits { max_horizon_ms: 1_000, max_skew_ms: 500 };
    let leases = EtcdLeases::connect(options.clone()).await.unwrap();
    let first = leases.acquire(&acquire(layout(0), 500, 0)).await.expect("a lease");
    let is_worker = |(key, _): &(String, String)| key.starts_with("/worker/");
    let old: Vec<_> = keys_of(etcd, &url).into_iter().filter(is_worker).collect();
    let extend = || LeaseExtend {
        namespace: "default".to_owned(),
        worker: first.worker,
        grant_id: first.grant_id,
        layout: layout(0),
        horizon_ms: 1_000,
        now_ms: now_ms(),
    };
    let extended = leases.extend(&extend()).await.expect("it is extended");
    assert!(extended.valid_until_ms > first.valid_until_ms, "{extended:?}");

    // By the old value the worker would be free before the lease has ended.
    put_keys(etcd, &url, &old);
    let put_back = &["an old value was put back", "unalike store adopt --lift COUNT"];
    for _ in 0..4 {
        let started = EtcdLeases::connect(options.clone()).await.expect("the store opens");
        for leases in [&leases, &started] {
            refused_or_damaged(leases.acquire(&acquire(layout(0), 500, 0)).await, put_back);
            refused_or_damaged(leases.extend(&extend()).await, put_back);
            let (worker, grant_id) = (first.worker, first.grant_id);
            refused_or_damaged(leases.release("default", worker, grant_id, now_ms()).await, put_back);
            refused_or_damaged(leases.forbid_extension("default", worker).await, put_back);
            refused_or_damaged(leases.leases("default").await, put_back);
        }
    }
    let adopted = EtcdStore::adopt(options.clone(), 1).await.expect("COUNT is above what was lost");
    assert!(adopted.leases_from_ms >= extended.valid_until_ms);
    let leases = EtcdLeases::connect(options.clone()).await.unwrap();
    let second = acquire_after_quarantine(&leases).await;
    assert_disjoint([extended, second]);

    // A value from before the adoption, put back after it.
    put_keys(etcd, &url, &old);
    for _ in 0..4 {
        let started = EtcdLeases::connect(options.clone()).await.expect("the store opens");
        refused_or_damaged(started.acquire(&acquire(layout(0), 500, 0)).await, put_back);
    }
    // Somebody writes the namespace once more, if only what it is.
    let is_namespace = |(key, _): &(String, String)| key.starts_with("/leases/");
    put_keys(etcd, &url, &keys_of(etcd, &url).into_iter().filter(is_namespace).collect::<Vec<_>>());
    for _ in 0..4 {
        let started = EtcdLeases::connect(options.clone()).await.expect("the store opens");
        for leases in [&leases, &started] {
            refused_or_damaged(leases.check_namespace("default", layout(0)).await, put_back);
            refused_or_damaged(leases.acquire(&acquire(layout(0), 500, 0)).await, put_back);
            refused_or_damaged(leases.extend(&extend()).await, put_back);
        }
    }
    EtcdStore::adopt(options.clone(), 1).await.expect("it is never refused");
    let leases = EtcdLeases::connect(options).await.unwrap();
    assert_disjoint([extended, second, acquire_after_quarantine(&leases).await]);
}

/// A lease of the only worker, once all leases from before an adoption have ended.
async fn acquire_after_quarantine(leases: &EtcdLeases) -> Lease {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match leases.acquire(&acquire(layout(0), 500, 0)).await {
            Ok(lease) => return lease,
            Err(StoreError::Quarantined { .. }) => assert!(Instant::now() < deadline),
            Err(error) => panic!("{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn values_of_leases_without_a_count_are_those_of_earlier_versions() {
    let etcd = Etcd::shared().unwrap();
    let url = url();
    let leases = EtcdLeases::connect(options(&url)).await.unwrap();
    let lease = leases.acquire(&acquire(layout(0), 60_000, 0)).await.expect("a lease");
    let earlier = |keys: Vec<(String, String)>| -> Vec<_> {
        let without = |(key, text): (String, String)| {
            let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
            let fields = value.as_object_mut().unwrap();
            assert!(fields.remove("writes").is_some() && fields.remove("lifts").is_some(), "{key} {text}");
            (key, value.to_string())
        };
        let is_of_leases =
            |(key, _): &(String, String)| ["/leases/", "/worker/"].iter().any(|own| key.starts_with(own));
        keys.into_iter().filter(is_of_leases).map(without).collect()
    };
    let values = earlier(keys_of(etcd, &url));
    assert_eq!(values.len(), 2, "{values:?}");
    put_keys(etcd, &url, &values);
    let forbidden = leases.forbid_extension("default", lease.worker).await.expect("they are read");
    assert!(forbidden.is_some_and(|record| record.lease.grant_id == lease.grant_id));
    // With the next write both record how often they were written.
    earlier(keys_of(etcd, &url));
    leases.leases("default").await.expect("they are read");
    leases.check_namespace("default", layout(0)).await.expect("it is read");
}

#[tokio::test]
async fn a_prefix_has_keys_of_its_own_and_create_false_begins_nothing() {
    let (one, other) = (url(), url());
    refused_or_damaged(try_open(&format!("{one}?create=false")).await, &["nothing was ever handed out here"]);
    assert_eq!(open(&one).await.allocate("order", 10, 0).await.expect("a grant").start, 1);
    assert_eq!(open(&other).await.allocate("order", 10, 0).await.expect("a grant").start, 1);
    assert_eq!(open(&format!("{one}?create=false")).await.allocate("order", 10, 0).await.expect("a grant").start, 11);
}

#[tokio::test]
async fn of_two_prefixes_one_may_begin_with_the_other() {
    for is_shorter_first in [true, false] {
        let shorter = url();
        let longer = format!("{shorter}/tags");
        let mut urls = [shorter, longer];
        if !is_shorter_first {
            urls.reverse();
        }
        for url in &urls {
            let store = open(url).await;
            assert_eq!(store.allocate("order", 10, 0).await.expect("a grant").start, 1);
            assert_eq!(store.allocate("store", 10, 0).await.expect("a grant").start, 1);
        }
        for url in &urls {
            let store = open(url).await;
            assert_eq!(store.tags(None, 10).await.expect("a list").len(), 2);
            assert_eq!(store.allocate("order", 10, 0).await.expect("a grant").start, 11);
        }
    }
}

/// Every whole number in a value, with another one in its place.
fn with_other_numbers(value: &serde_json::Value, other: &serde_json::Value) -> Vec<serde_json::Value> {
    match value {
        serde_json::Value::Number(_) => vec![other.clone()],
        serde_json::Value::Object(fields) => {
            let changed = fields.iter().map(|(key, inner)| {
                with_other_numbers(inner, other).into_iter().map(move |inner| {
                    let mut whole = value.clone();
                    *whole.get_mut(key).unwrap() = inner;
                    whole
                })
            });
            changed.flatten().collect()
        }
        serde_json::Value::Array(items) => {
            let changed = items.iter().enumerate().map(|(nth, inner)| {
                with_other_numbers(inner, other).into_iter().map(move |inner| {
                    let mut whole = value.clone();
                    *whole.get_mut(nth).unwrap() = inner;
                    whole
                })
            });
            changed.flatten().collect()
        }
        _ => Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_that_somebody_wrote_end_in_an_answer() {
    let etcd = Etcd::shared().unwrap();
    let url = url();
    let prefix = prefix(&url);
    let acquire = |holder: &str| LeaseAcquire {
        namespace: "default".to_owned(),
        holder: holder.to_owned(),
        layout: Layout::TWITTER,
        preferred_worker: Some(7),
        horizon_ms: 60_000,
        now_ms: now_ms(),
    };
    open(&url).await.allocate("order", 10, 0).await.expect("a grant");
    EtcdStore::adopt(options(&url), 5).await.expect("adopted");
    let store = open(&url).await;
    store.allocate("order", 10, 0).await.expect("a grant");
    // Without a quarantine there are leases.
    let record = etcd.ctl(&["get", "--print-value-only", &format!("{prefix}/store")]).unwrap();
    let mut record: serde_json::Value = serde_json::from_str(&record).unwrap();
    record["floor_ms"] = 0.into();
    record["writes"] = 0.into();
    etcd.ctl(&["put", &format!("{prefix}/store"), &record.to_string()]).unwrap();
    let lease = EtcdLeases::connect(options(&url)).await.unwrap().acquire(&acquire("first")).await.expect("a lease");
    let worker = format!("{prefix}/worker/default\u{1f}{:010}", lease.worker);
    let keys = ["store", "tag/order", "tag-count", "leases/default"].map(|key| format!("{prefix}/{key}"));
    let mut answers = 0;
    for key in keys.iter().chain([&worker]) {
        let text = etcd.ctl(&["get", "--print-value-only", key]).unwrap();
        let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
        // As of an earlier version: else whatever is put there is refused for being put.
        if let Some(writes) = value.get_mut("writes") {
            *writes = 0.into();
        }
        for number in [u64::MAX, ID_MAX, ID_MAX - 1, ID_MAX + 1, 0] {
            for changed in with_other_numbers(&value, &number.into()) {
                etcd.ctl(&["put", key, &changed.to_string()]).unwrap();
                // None of these panics, or goes on for ever.
                let ends = async {
                    answers += 1;
                    let Ok(store) = try_open(&url).await else { return };
                    let granted = store.allocate("order", 10, 0).await;
                    if let Ok(segment) = granted {
                        let tail = TailRelease { start: segment.end - 1, version: segment.version };
                        let _ = store.release("order", tail).await;
                    }
                    let _ = store.allocate("new", 10, ID_MAX).await;
                    let _ = store.raise_tag("order", ID_MAX).await;
                    let _ = store.tags(None, 10).await;
                    let _ = store.check().await;
                    let Ok(leases) = store.leases().await else { return };
                    let _ = leases.acquire(&acquire("other")).await;
                    let extend = LeaseExtend {
                        namespace: "default".to_owned(),
                        worker: lease.worker,
                        grant_id: lease.grant_id,
                        layout: Layout::TWITTER,
                        horizon_ms: 60_000,
                        now_ms: now_ms(),
                    };
                    let _ = leases.extend(&extend).await;
                    let _ = leases.leases("default").await;
                    let _ = leases.release("default", lease.worker, lease.grant_id, now_ms()).await;
                };
                tokio::time::timeout(PATIENCE, ends).await.unwrap_or_else(|_| panic!("{key} {changed}"));
                etcd.ctl(&["del", &format!("{prefix}/tag/new")]).unwrap();
            }
        }
        etcd.ctl(&["put", key, &value.to_string()]).unwrap();
    }
    assert!(answers > 100, "{answers}");
}

#[tokio::test]
async fn a_name_with_slashes_is_no_other_key() {
    let store = open(&url()).await;
    for name in ["a/b", "/", "store", "tag/order", "ä"] {
        assert_eq!(store.allocate(name, 5, 0).await.expect("a grant").start, 1, "{name}");
    }
    let sub = sub_tag("a/b", "c/d").unwrap();
    assert_eq!(store.allocate(&sub, 5, 0).await.expect("a grant").start, 1);
    let listed: Vec<_> = store.tags(None, 10).await.unwrap().into_iter().map(|record| record.tag).collect();
    assert_eq!(listed, ["/", "a/b", sub.as_str(), "store", "tag/order", "ä"]);
}

#[tokio::test]
async fn tls_is_used_as_the_url_says() {
    let authority = Authority::new("localhost");
    let server = Etcd::start_with_tls(&authority).unwrap();
    let url = server.url();
    let with = |authority: &Authority| format!("{url}?ssl-ca={}", authority.file("ca.pem"));
    let named = |url: &str| url.replace("127.0.0.1", "localhost");
    let store = open(&named(&with(&authority))).await;
    assert_eq!(store.allocate("order", 10, 0).await.expect("a grant").start, 1);
    let leases = store.leases().await.expect("the leases open");
    // Its clock comes over TLS, too.
    leases.check_namespace("default", Layout::TWITTER).await.expect("it tells the time");

    let stranger = Authority::new("localhost");
    refused_or_damaged(try_open(&named(&with(&stranger))).await, &["ssl-ca", "certificate"]);
    // The certificate is for localhost.
    refused_or_damaged(try_open(&with(&authority)).await, &["ssl-mode", "certificate"]);
    refused_or_damaged(try_open(&format!("{url}?ssl-ca=/nowhere/ca.pem")).await, &["ssl-ca", "/nowhere/ca.pem"]);
    let error = try_open(&format!("{url}?connect-timeout-ms=1000")).await.expect_err("it speaks TLS");
    assert!(error.is_retryable(), "{error:?}");
}

#[tokio::test]
async fn the_least_privileges_are_enough_and_fewer_are_not() {
    let server = Etcd::start().unwrap();
    let url = server.url();
    for command in [
        vec!["user", "add", "root:root secret"],
        vec!["user", "grant-role", "root", "root"],
        vec!["role", "add", "ids"],
        vec!["role", "grant-permission", "ids", "--prefix=true", "readwrite", &format!("{}/", prefix(&url))],
        vec!["user", "add", "ids:a long secret"],
        vec!["user", "grant-role", "ids", "ids"],
        vec!["user", "add", "stranger:a long secret"],
        vec!["auth", "enable"],
    ] {
        server.ctl(&command).unwrap();
    }
    let as_user = |user: &str| url.replace("etcd://", &format!("etcd://{user}@"));
    let store = open(&as_user("ids:a%20long%20secret")).await;
    store.allocate("order", 10, 0).await.expect("a grant");
    store.check().await.expect("it can be written to");
    store.raise_tag("order", 1_000).await.expect("raised");
    store.retire_tag("order").await.expect("ended");
    store.tags(None, 10).await.expect("a list");
    let leases = store.leases().await.expect("the leases open");
    assert!(leases.namespaces().await.expect("a list").is_empty());
    refused_or_damaged(try_open(&as_user("ids:wrong")).await, &["denied access"]);
    refused_or_damaged(try_open(&as_user("stranger:a%20long%20secret")).await, &["the user may not", "unalike schema"]);
    refused_or_damaged(try_open(&url).await, &["asks for a user"]);
    let elsewhere = as_user("ids:a%20long%20secret").replace(prefix(&url), "elsewhere");
    refused_or_damaged(try_open(&elsewhere).await, &["the user may not"]);
    // Tokens are forgotten in a restart, and others are asked for.
    let auth = ["--user=root:root secret", "role", "list"];
    server.ctl(&auth).unwrap();
}

#[tokio::test]
async fn limits_of_tags_hold_also_for_those_who_come_together() {
    let url = url();
    let mut limited = options(&url);
    limited.creation.tags_max = 5;
    let mut tasks = Vec::new();
    for client in 0..10 {
        let store = EtcdStore::connect(limited.clone()).await.unwrap();
        tasks.push(tokio::spawn(async move { store.allocate(&format!("tag-{client}"), 1, 0).await.is_ok() }));
    }
    let mut created = 0;
    for task in tasks {
        created += u32::from(task.await.unwrap());
    }
    assert_eq!(created, 5);
    segment_checks_of(&url).await;
}

/// Tags that exist are granted from, and a limit that is reached refuses new ones alone.
async fn segment_checks_of(url: &str) {
    let mut limited = options(url);
    limited.creation.tags_max = 5;
    let store = EtcdStore::connect(limited).await.unwrap();
    let known = store.tags(None, 1).await.unwrap().remove(0).tag;
    store.allocate(&known, 1, 0).await.expect("it exists");
    let error = store.allocate("one-more", 1, 0).await.expect_err("there are five");
    assert!(matches!(error, StoreError::TagLimit { tags_max: 5, .. }), "{error:?}");
    store.allocate(&sub_tag(&known, "sub").unwrap(), 1, 0).await.expect("sub-keys are not counted");
}
