//! A SQLite store, and requests for it: for the tests and for the processes that they start.

use std::path::Path;

use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_storage::{FieldOrder, Layout, LayoutFields, Lease, LeaseAcquire, LeaseExtend, Segment, StoreError};

/// Opens the file with the default options.
///
/// # Errors
/// As [`SqliteStore::connect`].
pub async fn open(path: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::connect(SqliteOptions::new(path)).await
}

/// Checks that no number was granted twice.
pub fn assert_disjoint(segments: &mut [Segment]) {
    segments.sort_by_key(|segment| segment.start);
    assert!(segments.is_sorted_by(|a, b| a.end <= b.start), "a number was granted twice");
}

fn layout() -> Layout {
    let fields = LayoutFields {
        timestamp_bits: 41,
        datacenter_bits: 0,
        worker_bits: 20,
        sequence_bits: 2,
        order: FieldOrder::WorkerFirst,
        epoch_ms: 1_577_836_800_000,
        tick_ms: 1,
    };
    Layout::new(fields).unwrap()
}

/// A request for a worker of the namespace `namespace`.
pub fn acquire(holder: &str, now_ms: u64) -> LeaseAcquire {
    LeaseAcquire {
        namespace: "namespace".to_owned(),
        layout: layout(),
        holder: holder.to_owned(),
        preferred_worker: None,
        now_ms,
        horizon_ms: 60_000,
    }
}

/// A request to prolong that lease.
pub fn extend(lease: &Lease, now_ms: u64) -> LeaseExtend {
    LeaseExtend {
        namespace: "namespace".to_owned(),
        layout: layout(),
        worker: lease.worker,
        grant_id: lease.grant_id,
        now_ms,
        horizon_ms: 90_000,
    }
}
