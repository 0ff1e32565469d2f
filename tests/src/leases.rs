//! What must hold of all leases that a store granted, also to those who come at once, and the clock that their holders
//! go by.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use unalike_storage::{FieldOrder, Layout, LayoutFields, Lease, LeaseAcquire, LeaseStore, StoreError};

/// The clock of this machine, in Unix milliseconds.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the holders' clock")]
pub fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// Checks that each lease has a name of its own, and that no two of a worker have a millisecond in common: as far as
/// their holders were told that they reach.
///
/// # Panics
/// When two have.
#[track_caller]
pub fn assert_disjoint(leases: impl IntoIterator<Item: Borrow<Lease>>) {
    let mut names = BTreeSet::new();
    let mut workers: BTreeMap<u32, Vec<Lease>> = BTreeMap::new();
    for lease in leases {
        let lease = *lease.borrow();
        assert!(names.insert(lease.grant_id), "two leases have one name: {lease:?}");
        workers.entry(lease.worker).or_default().push(lease);
    }
    for leases in workers.values_mut() {
        leases.sort_by_key(|lease| (lease.not_before_ms, lease.valid_until_ms));
        let in_order = leases.is_sorted_by(|before, after| before.valid_until_ms <= after.not_before_ms);
        assert!(in_order, "two leases of a worker overlap: {leases:?}");
    }
}

/// A layout with so many bits for the worker, and ticks of a millisecond.
#[must_use]
pub fn layout(worker_bits: u8) -> Layout {
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
#[must_use]
pub fn acquire(layout: Layout, horizon_ms: u64, offset_ms: i64) -> LeaseAcquire {
    LeaseAcquire {
        namespace: "default".to_owned(),
        holder: "holder".to_owned(),
        layout,
        preferred_worker: None,
        horizon_ms,
        now_ms: now_ms().checked_add_signed(offset_ms).unwrap(),
    }
}

/// Of two layouts that come together, in two programs on one new store, one binds the namespace.
///
/// # Panics
/// When none does, or both.
pub async fn assert_one_layout_binds(first: &impl LeaseStore, second: &impl LeaseStore) {
    let (one, other) = (acquire(layout(4), 60_000, 0), acquire(layout(5), 60_000, 0));
    let (first, second) = tokio::join!(first.acquire(&one), second.acquire(&other));
    let refused = match (first, second) {
        (Ok(_), Err(refused)) | (Err(refused), Ok(_)) => refused,
        both => panic!("one is bound and one refused: {both:?}"),
    };
    assert!(matches!(refused, StoreError::LayoutMismatch { .. }), "{refused:?}");
}

/// Many who come at once, each with connections of its own, have a worker each, while the server is killed three times.
///
/// # Panics
/// When two have one.
pub async fn assert_a_worker_each<S, L: LeaseStore, O: Future<Output = L> + Send + 'static>(
    server: &mut S,
    open: impl Fn() -> O,
    kill9: impl Fn(&mut S),
    start_again: impl Fn(&mut S),
) {
    let mut granted = Vec::new();
    for _ in 0..3 {
        let mut tasks = Vec::new();
        for _ in 0..8 {
            let opening = open();
            tasks.push(tokio::spawn(async move {
                let leases = opening.await;
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
        kill9(server);
        for task in tasks {
            granted.extend(task.await.unwrap());
        }
        start_again(server);
    }
    assert!(granted.len() > 20, "{}", granted.len());
    assert_disjoint(&granted);
}
