//! A SQLite store, and requests for it: for the tests and for the processes that they start.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use anyhow::ensure;
use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_storage::{FieldOrder, Layout, LayoutFields, Lease, LeaseAcquire, LeaseExtend, Segment, StoreError};

/// Opens the file with the default options.
///
/// # Errors
/// As [`SqliteStore::connect`].
pub async fn open(path: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::connect(SqliteOptions::new(path)).await
}

/// Keeps all others from writing to a store that is open, as a process that hangs in a transaction would, until the
/// answer is dropped: in write-ahead mode the right to write is byte 120 of the `-shm` file
/// (<https://www.sqlite.org/walformat.html>, section 2.3.1).
///
/// # Errors
/// When there is no store yet.
pub fn lock_writes(path: &Path) -> anyhow::Result<File> {
    let mut shared = OsString::from(path);
    shared.push("-shm");
    let file = File::options().read(true).write(true).open(shared)?;
    let lock = libc::flock {
        l_type: i16::try_from(libc::F_WRLCK)?,
        l_whence: i16::try_from(libc::SEEK_SET)?,
        l_start: 120,
        l_len: 1,
        l_pid: 0,
    };
    #[expect(unsafe_code, reason = "the file is open and the lock outlives the call")]
    let locked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLKW, &raw const lock) };
    ensure!(locked == 0, "no lock: {}", std::io::Error::last_os_error());
    Ok(file)
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
