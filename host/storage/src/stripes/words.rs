//! What stores of a set are called.

use crate::{SegmentStore, StoreError, random_128};

/// What is said of a store: its place among those that were given, from 0 on, and where it is.
pub(super) fn name(index: u32, store: &dyn SegmentStore) -> String {
    store.address().map_or_else(|| format!("store {index}"), |address| format!("store {index} ({address})"))
}

pub(super) fn lost_data_advice() -> String {
    "it has no record of its place, and others have: it may have lost its data, or was never used. Find out, then run \
     `unalike stripes resize` over all stores of the set"
        .to_owned()
}

/// A name that no other set has.
pub(super) fn new_set() -> Result<u128, StoreError> {
    Ok(random_128()?.max(1))
}
