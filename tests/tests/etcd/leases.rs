//! Leases in a real etcd: the member's clock, which decides who is offered a worker and never what overlaps, and who
//! comes at once.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::{Duration, Instant};

use unalike_etcd::{EtcdLeases, EtcdOptions};
use unalike_storage::{
    FieldOrder, Layout, LayoutFields, LeaseAcquire, LeaseExtend, LeaseLimits, LeaseStore as _, StoreError,
};
use unalike_tests::PATIENCE;
use unalike_tests::etcd::Etcd;
use unalike_tests::leases::{assert_disjoint, now_ms};

async fn open(url: &str, limits: LeaseLimits) -> EtcdLeases {
    let mut options = EtcdOptions::from_url(url).unwrap();
    options.limits = limits;
    EtcdLeases::connect(options).await.unwrap()
}

/// A layout with so many bits for the worker, and ticks of a millisecond.
fn layout(worker_bits: u8) -> Layout {
    let fields = LayoutFields {
        timestamp_bits: 41,
        datacenter_bits: 0,
        worker_bits,
        sequence_bits: 10,
        order: FieldOrder::WorkerFirst,
        epoch_ms: 1_500_000_000_000,
        tick_ms: 1,
    };
    Layout::new(fields).unwrap()
}

/// A request by a holder whose clock is off by so much.
fn acquire(layout: Layout, horizon_ms: u64, offset_ms: i64) -> LeaseAcquire {
    LeaseAcquire {
        namespace: "default".to_owned(),
        holder: "holder".to_owned(),
        layout,
        preferred_worker: None,
        horizon_ms,
        now_ms: now_ms().checked_add_signed(offset_ms).unwrap(),
    }
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
        let (one, other) = (acquire(layout(4), 60_000, 0), acquire(layout(5), 60_000, 0));
        let (first, second) = tokio::join!(first.acquire(&one), second.acquire(&other));
        let refused = match (first, second) {
            (Ok(_), Err(refused)) | (Err(refused), Ok(_)) => refused,
            both => panic!("one is bound and one refused: {both:?}"),
        };
        assert!(matches!(refused, StoreError::LayoutMismatch { .. }), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_come_at_once_have_a_worker_each_through_kill_9() {
    let mut server = Etcd::start().unwrap();
    let url = server.url();
    let mut granted = Vec::new();
    for _ in 0..3 {
        let mut tasks = Vec::new();
        for _ in 0..8 {
            let url = url.clone();
            tasks.push(tokio::spawn(async move {
                let leases = open(&url, LeaseLimits::default()).await;
                let mut granted = Vec::new();
                loop {
                    match leases.acquire(&acquire(layout(3), 200, 0)).await {
                        Ok(lease) => granted.push(lease),
                        Err(StoreError::WorkersExhausted { .. }) => {
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                        Err(error) => {
                            assert!(error.is_retryable(), "{error:?}");
                            return granted;
                        }
                    }
                }
            }));
        }
        tokio::time::sleep(Duration::from_millis(700)).await;
        server.kill9(0).unwrap();
        for task in tasks {
            granted.extend(task.await.unwrap());
        }
        server.start_again().unwrap();
    }
    assert!(granted.len() > 20, "{}", granted.len());
    assert_disjoint(&granted);
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
