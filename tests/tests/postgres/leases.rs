//! Leases in a real PostgreSQL: the server's clock, which decides who is offered a worker and never what overlaps, and
//! who comes at once.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::{Duration, Instant};

use unalike_postgres::{PostgresLeases, PostgresOptions};
use unalike_storage::{
    FieldOrder, Layout, LayoutFields, LeaseAcquire, LeaseExtend, LeaseLimits, LeaseStore as _, StoreError,
};
use unalike_tests::PATIENCE;
use unalike_tests::leases::{assert_disjoint, now_ms};
use unalike_tests::postgres::Postgres;

async fn open(url: &str, limits: LeaseLimits) -> PostgresLeases {
    let mut options = PostgresOptions::from_url(url).unwrap();
    options.limits = limits;
    PostgresLeases::connect(options).await.unwrap()
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
async fn the_clock_that_counts_is_the_server_s() {
    let mut server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    let limits = LeaseLimits::default();
    let lease = open(&url, limits).await.acquire(&acquire(layout(8), 60_000, 0)).await.unwrap();
    for (offset, offset_ms) in [("-1h", -3_600_000_i64), ("+1h", 3_600_000)] {
        server.set_clock(offset);
        server.restart().unwrap();
        let leases = open(&url, limits).await;
        let extend = LeaseExtend {
            namespace: "default".to_owned(),
            worker: lease.worker,
            grant_id: lease.grant_id,
            layout: layout(8),
            horizon_ms: 90_000,
            now_ms: now_ms(),
        };
        for answer in [leases.acquire(&acquire(layout(8), 60_000, 0)).await, leases.extend(&extend).await] {
            let Err(StoreError::ClockSkew { store_ms, .. }) = answer else { panic!("{offset}: {answer:?}") };
            let server_ms = now_ms().checked_add_signed(offset_ms).unwrap();
            assert!(store_ms.abs_diff(server_ms) < 60_000, "the server's: {store_ms}, about {server_ms}");
        }
    }
}

#[tokio::test]
async fn a_step_of_the_server_s_clock_ends_nobody_s_lease() {
    let mut server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    let leases = open(&url, LeaseLimits::default()).await;
    let one = layout(0);
    let lease = leases.acquire(&acquire(one, 60_000, 0)).await.unwrap();
    server.set_clock("+1d");
    server.restart().unwrap();
    let deadline = Instant::now() + PATIENCE;
    let refused = loop {
        match leases.acquire(&acquire(one, 60_000, 86_400_000)).await {
            Err(StoreError::Unavailable { .. }) => assert!(Instant::now() < deadline),
            answer => break answer,
        }
    };
    assert!(matches!(refused, Err(StoreError::WorkersExhausted { .. })), "{refused:?}");
    // Who comes later knows of no step.
    let taken = open(&url, LeaseLimits::default()).await.acquire(&acquire(one, 60_000, 86_400_000)).await.unwrap();
    assert_disjoint([lease, taken]);
}

#[tokio::test]
async fn a_server_whose_clock_went_back_grants_no_tick_twice() {
    let mut server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    let limits = LeaseLimits { max_horizon_ms: 1_000, max_skew_ms: 60_000 };
    let one = layout(0);
    let first = open(&url, limits).await.acquire(&acquire(one, 1_000, 0)).await.unwrap();
    server.set_clock("-2s");
    server.restart().unwrap();
    let leases = open(&url, limits).await;
    let deadline = Instant::now() + PATIENCE;
    let second = loop {
        match leases.acquire(&acquire(one, 1_000, -2_000)).await {
            Ok(second) => break second,
            Err(StoreError::WorkersExhausted { free_at_ms, .. }) => {
                assert_eq!(free_at_ms, first.valid_until_ms, "not before the recorded end, whatever the clock says");
            }
            Err(error) => panic!("{error:?}"),
        }
        assert!(Instant::now() < deadline, "the clock comes to the end at last");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_disjoint([first, second]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_layouts_that_come_together_one_binds_the_namespace() {
    let server = Postgres::shared().unwrap();
    for _ in 0..10 {
        let url = server.database().unwrap();
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
    let mut server = Postgres::start().unwrap();
    let url = server.database().unwrap();
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
        server.kill9().unwrap();
        for task in tasks {
            granted.extend(task.await.unwrap());
        }
        server.restart().unwrap();
    }
    assert!(granted.len() > 20, "{}", granted.len());
    assert_disjoint(&granted);
}
