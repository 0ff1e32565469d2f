//! A file that was put back from a copy: nothing in it tells, so an operator says it.

#![expect(clippy::expect_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use unalike::{Clock as _, SystemClock};
use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_storage::{
    ID_MAX, KEPT_LEASE_FLOOR, KEPT_LEASES, LeaseAcquire, LeaseLimits, LeaseStore as _, SegmentStore, StoreError,
    resize_stripes, sub_tag,
};
use unalike_tests::sqlite::{acquire, extend};

const LIMITS: LeaseLimits = LeaseLimits { max_horizon_ms: 3_000, max_skew_ms: 200 };

fn options(path: &Path) -> SqliteOptions {
    SqliteOptions { limits: LIMITS, ..SqliteOptions::new(path) }
}

async fn open(path: &Path) -> SqliteStore {
    SqliteStore::connect(options(path)).await.expect("the store opens")
}

async fn take(store: &SqliteStore, tag: &str, granted: &mut BTreeSet<u64>) {
    let segment = store.allocate(tag, 10, 0).await.expect("a grant");
    for number in segment.start..segment.end {
        assert!(granted.insert(number), "{number} was granted twice under {tag}");
    }
}

fn request(namespace: &str, holder: &str) -> LeaseAcquire {
    LeaseAcquire {
        namespace: namespace.to_owned(),
        horizon_ms: LIMITS.max_horizon_ms,
        ..acquire(holder, SystemClock.now_ms())
    }
}

#[tokio::test]
async fn a_file_that_was_restored_repeats_nothing_once_an_operator_says_so() {
    let directory = TempDir::new().expect("a directory");
    let (path, backup) = (directory.path().join("ids.sqlite"), directory.path().join("backup"));
    let (mut order, mut late) = (BTreeSet::new(), BTreeSet::new());
    let store = open(&path).await;
    take(&store, "order", &mut order).await;
    let before = store.acquire(&request("namespace", "a")).await.expect("a lease");
    store.close().await;
    fs::copy(&path, &backup).expect("a copy");
    let store = open(&path).await;
    take(&store, "order", &mut order).await;
    take(&store, "late", &mut late).await;
    let time = sub_tag(KEPT_LEASES, "default").expect("a name");
    store.allocate(&time, 1, SystemClock.now_ms() + LIMITS.max_horizon_ms).await.expect("time for Redis");
    let mut ends = vec![store.acquire(&request("namespace", "b")).await.expect("a lease").valid_until_ms];
    ends.push(store.acquire(&request("lost", "a")).await.expect("a lease").valid_until_ms);
    store.close().await;
    fs::copy(&backup, &path).expect("it is put back");

    for lift in [0, ID_MAX + 1] {
        let refused = SqliteStore::restored(options(&path), lift).await.expect_err("it is refused");
        assert!(refused.to_string().contains("1 to 2^63 - 1"), "{refused}");
    }
    // Twice, as if the first time had been interrupted.
    SqliteStore::restored(options(&path), 100).await.expect("lifted");
    let restored = SqliteStore::restored(options(&path), 100).await.expect("lifted");
    assert_eq!(restored.tags, 1);
    assert!(ends.iter().all(|&end_ms| end_ms <= restored.leases_from_ms), "{ends:?}, {restored:?}");
    let store = open(&path).await;
    for _ in 0..2 {
        take(&store, "order", &mut order).await;
        take(&store, "late", &mut late).await;
    }
    assert!(store.extend(&extend(&before, SystemClock.now_ms())).await.is_err(), "none of before goes on");
    for namespace in ["namespace", "lost"] {
        let early = store.acquire(&request(namespace, "c")).await.expect_err("it may still run");
        assert!(matches!(early, StoreError::Quarantined { until_ms, .. } if until_ms == restored.leases_from_ms));
    }
    // Nor is time granted to a Redis under a name that the backup lacks.
    let time_of_lost = sub_tag(KEPT_LEASES, "lost-in-redis").expect("a name");
    for time in [&time_of_lost, "order\u{1f}redis-clock:0"] {
        let early = store.allocate(time, 1, SystemClock.now_ms()).await.expect_err("it may still run");
        assert!(
            matches!(early, StoreError::Quarantined { until_ms, .. } if until_ms == restored.leases_from_ms),
            "{early}"
        );
    }
    let left_ms = restored.leases_from_ms.saturating_sub(SystemClock.now_ms());
    tokio::time::sleep(Duration::from_millis(left_ms + 20)).await;
    for namespace in ["namespace", "lost"] {
        let lease = store.acquire(&request(namespace, "c")).await.expect("a lease");
        assert!(lease.not_before_ms >= restored.leases_from_ms, "{lease:?}");
    }
    store.allocate(&time_of_lost, 1, SystemClock.now_ms()).await.expect("time for Redis");
    let listed = store.tags(None, 100).await.expect("tags").into_iter().map(|record| record.watermark).max();
    assert!(listed.is_some_and(|greatest| greatest < ID_MAX));
    store.close().await;
    let nowhere = SqliteStore::restored(options(&directory.path().join("nothing")), 1).await;
    assert!(matches!(nowhere, Err(StoreError::Refused { .. })), "no store is begun: {nowhere:?}");
}

#[tokio::test]
async fn stripes_that_are_resized_leave_the_floor_of_leases_where_it_is() {
    let directory = TempDir::new().expect("a directory");
    let paths = ["one.sqlite", "two.sqlite"].map(|name| directory.path().join(name));
    open(&paths[0]).await.close().await;
    let restored = SqliteStore::restored(options(&paths[0]), 100).await.expect("lifted");
    let [one, two]: [Arc<dyn SegmentStore>; 2] = [Arc::new(open(&paths[0]).await), Arc::new(open(&paths[1]).await)];
    resize_stripes(&[Arc::clone(&one)], &[Arc::clone(&one), Arc::clone(&two)], 0).await.expect("two stripes");
    resize_stripes(&[Arc::clone(&one), Arc::clone(&two)], &[Arc::clone(&one)], 0).await.expect("one store");
    assert_eq!(one.tag(KEPT_LEASE_FLOOR).await.expect("the floor").watermark, restored.leases_from_ms);
    assert!(matches!(two.tag(KEPT_LEASE_FLOOR).await, Err(StoreError::TagUnknown { .. })));
    assert!(one.allocate("new", 1, 0).await.expect("a grant").start > 100);
}
