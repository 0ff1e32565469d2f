//! Several members: one that is killed, stands still or is cut off costs time and never a number twice; and a cluster
//! that has forgotten something is told from the one that granted.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use unalike_etcd::{EtcdOptions, EtcdStore};
use unalike_storage::{SegmentStore, StoreError};
use unalike_tests::PATIENCE;
use unalike_tests::etcd::{Etcd, Version};
use unalike_tests::refusals::{at_last, stays_refused};

async fn try_connect(url: &str) -> Result<EtcdStore, StoreError> {
    EtcdStore::connect(EtcdOptions::from_url(url).unwrap()).await
}

async fn connect(url: &str) -> EtcdStore {
    try_connect(url).await.unwrap()
}

/// Numbers that several programs take while something happens.
struct Load {
    ending: AtomicBool,
    grants: AtomicU64,
}

impl Load {
    async fn run(self: Arc<Self>, store: EtcdStore) -> (Vec<u64>, Duration) {
        let (mut numbers, mut longest) = (Vec::new(), Duration::ZERO);
        let mut last = Instant::now();
        while !self.ending.load(Ordering::SeqCst) {
            match store.allocate("order", 3, 0).await {
                Ok(segment) => {
                    numbers.extend(segment.start..segment.end);
                    longest = longest.max(last.elapsed());
                    last = Instant::now();
                    self.grants.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) => {
                    assert!(error.is_retryable(), "{error:?}");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
        (numbers, longest)
    }

    /// Waits until numbers have come again.
    async fn until_granted(&self) {
        let (from, deadline) = (self.grants.load(Ordering::SeqCst), Instant::now() + PATIENCE);
        while self.grants.load(Ordering::SeqCst) < from + 30 {
            assert!(Instant::now() < deadline, "no numbers come");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// What happens to three members while three programs take numbers, each with another member first. Answers the
/// longest time without a number, and how many numbers nobody got.
async fn under_load(version: Version, mut happen: impl AsyncFnMut(&mut Etcd, &Load)) -> (Duration, u64) {
    let mut cluster = Etcd::start_with(version, 3, &[]).unwrap();
    let url = cluster.url();
    let load = Arc::new(Load { ending: AtomicBool::new(false), grants: AtomicU64::new(0) });
    let mut tasks = Vec::new();
    let ports = cluster.ports();
    for first in 0..3 {
        let hosts: Vec<_> = ports.iter().cycle().skip(first).take(3).map(|port| format!("127.0.0.1:{port}")).collect();
        let (_, prefix) = url.rsplit_once('/').unwrap();
        let store = connect(&format!("etcd://{}/{prefix}", hosts.join(","))).await;
        tasks.push(tokio::spawn(Arc::clone(&load).run(store)));
    }
    load.until_granted().await;
    happen(&mut cluster, &load).await;
    load.until_granted().await;
    load.ending.store(true, Ordering::SeqCst);
    let (mut seen, mut longest) = (BTreeSet::new(), Duration::ZERO);
    for task in tasks {
        let (numbers, without) = task.await.unwrap();
        for number in numbers {
            assert!(seen.insert(number), "{number} was granted twice");
        }
        longest = longest.max(without);
    }
    let watermark = connect(&url).await.tag("order").await.unwrap().watermark;
    assert!(seen.last().is_some_and(|last| *last <= watermark));
    (longest, watermark - u64::try_from(seen.len()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_killed_again_and_again_under_load_costs_gaps_alone() {
    // Not of 3.5.1, whose members do not stand that.
    let (longest, gaps) = under_load(Version::V3_4, async |cluster, load| {
        for _ in 0..6 {
            let leader = cluster.leader().unwrap();
            cluster.kill9(leader).unwrap();
            load.until_granted().await;
            cluster.start_again().unwrap();
            load.until_granted().await;
        }
    })
    .await;
    println!("at most {longest:?} without a number, and {gaps} numbers nobody got");
    assert!(gaps < 400, "{gaps}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_stands_still_under_load_costs_gaps_alone() {
    let (longest, gaps) = under_load(Version::V3_5, async |cluster, load| {
        let leader = cluster.leader().unwrap();
        for member in [leader, (leader + 1) % 3] {
            cluster.pause(member).unwrap();
            load.until_granted().await;
            cluster.resume(member).unwrap();
            load.until_granted().await;
        }
    })
    .await;
    println!("at most {longest:?} without a number, and {gaps} numbers nobody got");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_without_the_others_is_not_believed_and_grants_nothing() {
    let mut cluster = Etcd::start_with(Version::V3_4, 3, &[]).unwrap();
    let url = cluster.url();
    let store = connect(&url).await;
    let first = store.allocate("order", 10, 0).await.unwrap();
    // One is left of three, which knows what it knew, and not what others may have granted since.
    let left = connect(&format!("etcd://127.0.0.1:{}/{}", cluster.ports()[0], url.rsplit_once('/').unwrap().1)).await;
    cluster.kill9(1).unwrap();
    cluster.kill9(2).unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline {
        for answer in [left.allocate("order", 10, 0).await.map(drop), left.tag("order").await.map(drop)] {
            let error = answer.expect_err("there is no majority");
            assert!(error.is_retryable(), "{error:?}");
        }
    }
    let error = left.allocate("order", 10, 0).await.expect_err("there is no majority");
    assert!(!error.may_have_granted(), "by now it knows that there is no leader: {error:?}");
    cluster.start_again().unwrap();
    let deadline = Instant::now() + PATIENCE;
    let second = loop {
        match store.allocate("order", 10, 0).await {
            Ok(segment) => break segment,
            Err(error) => assert!(error.is_retryable() && Instant::now() < deadline, "{error:?}"),
        }
    };
    assert!(second.start >= first.end);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_snapshot_is_refused_until_it_is_adopted_with_a_lift() {
    for (members, token) in [(1, "etcd-cluster"), (1, "another"), (3, "etcd-cluster")] {
        let mut cluster = Etcd::start_with(Version::V3_4, members, &[]).unwrap();
        let url = cluster.url();
        let store = connect(&url).await;
        let mut seen: BTreeSet<u64> = BTreeSet::new();
        let mut note = |start: u64, end: u64| {
            for number in start..end {
                assert!(seen.insert(number), "{number} was granted twice");
            }
        };
        for _ in 0..20 {
            let segment = store.allocate("order", 10, 0).await.unwrap();
            note(segment.start, segment.end);
        }
        cluster.snapshot("before").unwrap();
        for _ in 0..10 {
            let segment = store.allocate("order", 10, 0).await.unwrap();
            note(segment.start, segment.end);
        }
        let lost = store.allocate("lost", 10, 0).await.unwrap();
        cluster.restore("before", token).unwrap();
        // Restarts add to the restored log; that hides nothing.
        cluster.restart().unwrap();
        // By whoever was running, and by whoever comes.
        stays_refused(async || store.allocate("order", 10, 0).await, &["store adopt"]).await;
        stays_refused(async || try_connect(&url).await, &["store adopt"]).await;

        let options = EtcdOptions::from_url(&url).unwrap();
        assert_eq!(EtcdStore::adopt(options.clone(), 100).await.unwrap().tags, 1);
        let error = store.allocate("order", 10, 0).await.expect_err("it was adopted");
        assert!(error.to_string().contains("restart this program"), "{error:?}");
        let again = connect(&url).await;
        let segment = again.allocate("order", 10, 0).await.unwrap();
        note(segment.start, segment.end);
        assert!(again.allocate("lost", 10, 0).await.unwrap().start >= lost.end, "a name that is lost begins above");
        // The same snapshot once more.
        cluster.restore("before", token).unwrap();
        // It knows nothing of the adoption.
        stays_refused(async || try_connect(&url).await, &["store adopt"]).await;
    }
}

#[tokio::test]
async fn members_that_lose_what_they_answered_are_refused_unless_somebody_vouches_for_them() {
    for members in [1, 3] {
        let cluster = Etcd::start_with(Version::V3_5, members, &[]).unwrap();
        let vouches = cluster.url();
        let (url, _) = vouches.split_once('?').unwrap();
        let error = try_connect(url).await.map(drop).expect_err("3.5.1");
        assert!(matches!(error, StoreError::Refused { .. }) && error.to_string().contains("3.5.6"), "{error:?}");
        connect(&vouches).await.allocate("order", 1, 0).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_cluster_behind_the_same_address_is_refused_and_a_restart_is_not() {
    let mut cluster = Etcd::start().unwrap();
    let url = cluster.url();
    let store = connect(&url).await;
    let mut end = store.allocate("order", 10, 0).await.unwrap().end;
    for _ in 0..3 {
        cluster.restart().unwrap();
        let segment = connect(&url).await.allocate("order", 10, 0).await.unwrap();
        assert_eq!(segment.start, end);
        end = segment.end;
    }
    // Adopted twice, and adopted where nothing was forgotten: it costs numbers.
    let options = EtcdOptions::from_url(&url).unwrap();
    for _ in 0..2 {
        EtcdStore::adopt(options.clone(), 1_000).await.unwrap();
    }
    assert_eq!(connect(&url).await.allocate("order", 10, 0).await.unwrap().start, end + 2_000);
    let vouched = connect(&format!("{url}?identity=assumed")).await;
    vouched.allocate("order", 10, 0).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_that_was_put_back_stays_refused_whatever_others_write() {
    let mut etcd = Etcd::start().unwrap();
    let store = connect(&etcd.url()).await;
    store.allocate("order", 10, 0).await.unwrap();
    etcd.kill9(0).unwrap();
    etcd.keep_data("before").unwrap();
    etcd.start_again().unwrap();
    for _ in 0..5 {
        at_last(async || store.allocate("order", 10, 0).await).await.unwrap();
    }
    etcd.kill9(0).unwrap();
    etcd.put_data_back("before").unwrap();
    etcd.start_again().unwrap();
    let forgotten = &["its revision went back", "unalike store adopt --lift COUNT"];
    stays_refused(async || store.allocate("order", 10, 0).await, forgotten).await;
    for _ in 0..20 {
        etcd.ctl(&["put", "noise", "noise"]).unwrap();
    }
    stays_refused(async || store.allocate("order", 10, 0).await, forgotten).await;
}
