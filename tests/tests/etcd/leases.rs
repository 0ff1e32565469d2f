//! Leases in a real etcd: the member's clock, which decides who is offered a worker and never what overlaps, and who
//! comes at once.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::{Duration, Instant};

use unalike_etcd::{EtcdLeases, EtcdOptions};
use unalike_storage::{LeaseExtend, LeaseLimits, LeaseStore as _, StoreError};
use unalike_tests::PATIENCE;
use unalike_tests::etcd::Etcd;
use unalike_tests::leases::{acquire, assert_a_worker_each, assert_disjoint, assert_one_layout_binds, layout, now_ms};

async fn open(url: &str, limits: LeaseLimits) -> EtcdLeases {
    let mut options = EtcdOptions::from_url(url).unwrap();
    options.limits = limits;
    EtcdLeases::connect(options).await.unwrap()
}

#[tokio::test]
async fn the_clock_that_counts_is_the_member_s() {
    let mut server = Etcd::start().unwrap();
    let url = server.url();
    let limits = LeaseLimits::default();
    let lease = open(&url, limits).await.acquire(&acquire(layout(8), 60_000, 0)).await.unwrap();
    for (offset, offset_ms) in [("-1h", -3_600_000_i64), ("+1h", 3_600_000)] {
        let leases = open(&url, limits).await;
        let extend = LeaseExtend {
            namespace: "default".to_owned(),
            worker: lease.worker,
            grant_id: lease.grant_id,
            layout: layout(8),
            horizon_ms: 90_000,
            now_ms: now_ms().checked_add_signed(offset_ms).unwrap(),
        };
        for answer in [leases.acquire(&acquire(layout(8), 60_000, offset_ms)).await, leases.extend(&extend).await] {
            let Err(StoreError::ClockSkew { store_ms, .. }) = answer else { panic!("{offset}: {answer:?}") };
            assert!(store_ms.abs_diff(now_ms()) < 60_000, "the member's: {store_ms}");
        }
    }
    server.kill9(0).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_layouts_that_come_together_one_binds_the_namespace() {
    let server = Etcd::shared().unwrap();
    for _ in 0..10 {
        let url = server.url();
        let (first, second) = (open(&url, LeaseLimits::default()).await, open(&url, LeaseLimits::default()).await);
        assert_one_layout_binds(&first, &second).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_come_at_once_have_a_worker_each_through_kill_9() {
    let mut server = Etcd::start().unwrap();
    let url = server.url();
    let opening = || {
        let url = url.clone();
        async move { open(&url, LeaseLimits::default()).await }
    };
    assert_a_worker_each(
        &mut server,
        opening,
        |server| server.kill9(0).unwrap(),
        |server| server.start_again().unwrap(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_adoption_no_lease_begins_before_all_from_before_have_ended() {
    let mut server = Etcd::start().unwrap();
    let url = server.url();
    let limits = LeaseLimits { max_horizon_ms: 1_000, max_skew_ms: 500 };
    let leases = open(&url, limits).await;
    leases.acquire(&acquire(layout(0), 1_000, 0)).await.unwrap();
    server.snapshot("before").unwrap();
    // Of this lease the snapshot knows nothing.
    let deadline = Instant::now() + PATIENCE;
    let forgotten = loop {
        match leases.acquire(&acquire(layout(0), 1_000, 0)).await {
            Ok(lease) => break lease,
            Err(StoreError::WorkersExhausted { .. }) => assert!(Instant::now() < deadline),
            Err(error) => panic!("{error:?}"),
        }
    };
    server.restore("before", "etcd-cluster").unwrap();
    let mut options = EtcdOptions::from_url(&url).unwrap();
    options.limits = limits;
    assert!(matches!(EtcdLeases::connect(options.clone()).await, Err(StoreError::Refused { .. })));
    let adopted = unalike_etcd::EtcdStore::adopt(options.clone(), 1).await.unwrap();
    assert!(adopted.leases_from_ms >= forgotten.valid_until_ms);
    let extend = LeaseExtend {
        namespace: "default".to_owned(),
        worker: forgotten.worker,
        grant_id: forgotten.grant_id,
        layout: layout(0),
        horizon_ms: 1_000,
        now_ms: now_ms(),
    };
    let error = leases.extend(&extend).await.expect_err("it is another store");
    assert!(!matches!(error, StoreError::LeaseLost { .. }), "{error:?}");
    let leases = open(&url, limits).await;
    let error = leases.extend(&extend).await.expect_err("it is forgotten");
    assert!(matches!(error, StoreError::LeaseLost { .. }), "{error:?}");
    let deadline = Instant::now() + PATIENCE;
    let next = loop {
        match leases.acquire(&acquire(layout(0), 1_000, 0)).await {
            Ok(lease) => break lease,
            Err(StoreError::Quarantined { until_ms, .. }) => {
                assert_eq!(until_ms, adopted.leases_from_ms);
                assert!(Instant::now() < deadline);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error:?}"),
        }
    };
    assert_disjoint([forgotten, next]);
}
