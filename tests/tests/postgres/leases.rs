//! Leases in a real PostgreSQL: the server's clock, which decides who is offered a worker and never what overlaps, and
//! who comes at once.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::{Duration, Instant};

use unalike_postgres::{PostgresLeases, PostgresOptions};
use unalike_storage::{LeaseExtend, LeaseLimits, LeaseStore as _, StoreError};
use unalike_tests::PATIENCE;
use unalike_tests::leases::{acquire, assert_a_worker_each, assert_disjoint, assert_one_layout_binds, layout, now_ms};
use unalike_tests::postgres::Postgres;

async fn open(url: &str, limits: LeaseLimits) -> PostgresLeases {
    let mut options = PostgresOptions::from_url(url).unwrap();
    options.limits = limits;
    PostgresLeases::connect(options).await.unwrap()
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
        assert_one_layout_binds(&first, &second).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_come_at_once_have_a_worker_each_through_kill_9() {
    let mut server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    let opening = || {
        let url = url.clone();
        async move { open(&url, LeaseLimits::default()).await }
    };
    assert_a_worker_each(&mut server, opening, |server| server.kill9().unwrap(), |server| server.restart().unwrap())
        .await;
}
