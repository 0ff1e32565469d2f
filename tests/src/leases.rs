//! What must hold of all leases that a store granted, and the clock that their holders go by.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use unalike_storage::Lease;

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
