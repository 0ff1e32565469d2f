//! What was handed out is on the disk: each flush, where it belongs, and nothing handed out when one fails.
//!
//! This program has its own `fsync`, `fdatasync` and `rename`. They take the place of the system library's for all that
//! is linked into it, the standard library and SQLite among them; they note the call and make it. So what is seen here
//! is what the product does, without a hook in it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(unsafe_code, reason = "these functions take the place of the system library's")]

use std::ffi::{CStr, OsStr, c_char, c_int, c_long, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use unalike::{Clock as _, SystemClock};
use unalike_local::{LocalLeases, LocalOptions, StaticAssignment, StaticWorker};
use unalike_memory::MemoryStore;
use unalike_sqlite::SqliteStore;
use unalike_storage::{LeaseStore, SegmentStore, StoreError, TagOptions, TailRelease};
use unalike_tests::{local, sqlite};

use crate::power;

/// A call that puts something on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    /// The file or directory was flushed when it was so long.
    Flush(PathBuf, u64),
    /// It failed, because a test wanted it to.
    FailedFlush(PathBuf),
    Rename(PathBuf, PathBuf),
}

/// In their order. Tests run side by side, each in a directory of its own.
static CALLS: Mutex<Vec<Call>> = Mutex::new(Vec::new());

/// Files that somebody deletes while this one is flushed: the flushed one and the deleted one.
static DELETING: Mutex<Vec<(PathBuf, PathBuf)>> = Mutex::new(Vec::new());

/// Files that cannot be read.
static UNREADABLE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Where flushes fail.
static FAILING: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

// SAFETY: the system's own function has this type and this meaning.
#[unsafe(no_mangle)]
extern "C" fn fsync(file: c_int) -> c_int {
    flush(file, libc::SYS_fsync)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn fdatasync(file: c_int) -> c_int {
    flush(file, libc::SYS_fdatasync)
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    let path = |name: *const c_char| {
        // SAFETY: whoever calls it passes two strings that end in a zero.
        let name = unsafe { CStr::from_ptr(name) };
        PathBuf::from(OsStr::from_bytes(name.to_bytes()))
    };
    let call = Call::Rename(path(from), path(to));
    // SAFETY: as above.
    let outcome = unsafe { libc::syscall(libc::SYS_renameat2, libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0) };
    if outcome == 0 {
        CALLS.lock().unwrap().push(call);
    }
    c_int::try_from(outcome).unwrap()
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn pread64(file: c_int, buffer: *mut c_void, length: usize, at: i64) -> isize {
    let unreadable = UNREADABLE.lock().unwrap();
    if !unreadable.is_empty() && unreadable.contains(&fs::read_link(format!("/proc/self/fd/{file}")).unwrap()) {
        // SAFETY: the place of this thread's error number.
        unsafe { *libc::__errno_location() = libc::EIO };
        return -1;
    }
    drop(unreadable);
    // SAFETY: the arguments are the caller's own.
    let outcome = unsafe { libc::syscall(libc::SYS_pread64, file, buffer, length, at) };
    isize::try_from(outcome).unwrap()
}

fn flush(file: c_int, call: c_long) -> c_int {
    let path = fs::read_link(format!("/proc/self/fd/{file}")).unwrap();
    if FAILING.lock().unwrap().contains(&path) {
        CALLS.lock().unwrap().push(Call::FailedFlush(path));
        // SAFETY: the place of this thread's error number.
        unsafe { *libc::__errno_location() = libc::EIO };
        return -1;
    }
    power::flushing(&path);
    // Looked at and not opened: closing a file drops the locks that SQLite has on it.
    let length = fs::metadata(&path).map_or(0, |found| found.len());
    // SAFETY: the descriptor is the caller's own.
    let outcome = unsafe { libc::syscall(call, file) };
    if outcome == 0 {
        for (_, deleted) in DELETING.lock().unwrap().extract_if(.., |(flushed, _)| *flushed == path) {
            fs::remove_file(deleted).unwrap();
        }
        power::flushed(&path);
        CALLS.lock().unwrap().push(Call::Flush(path, length));
    }
    c_int::try_from(outcome).unwrap()
}

/// A directory of its own, under the name that the calls show.
struct Disk {
    _directory: TempDir,
    path: PathBuf,
}

impl Disk {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path().canonicalize().unwrap();
        Self { _directory: directory, path }
    }

    /// The calls in this directory since this was last asked.
    fn calls(&self) -> Vec<Call> {
        let is_here = |call: &Call| {
            let (Call::Flush(path, _) | Call::FailedFlush(path) | Call::Rename(path, _)) = call;
            path.starts_with(&self.path)
        };
        CALLS.lock().unwrap().extract_if(.., |call| is_here(call)).collect()
    }

    fn fail(&self, path: &Path) {
        FAILING.lock().unwrap().push(path.to_owned());
    }

    fn mend(&self) {
        FAILING.lock().unwrap().retain(|path| !path.starts_with(&self.path));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.mend();
    }
}

/// The files of the namespace `default`: the finished one and the one that is being written.
fn files(directory: &Path) -> (PathBuf, PathBuf) {
    (directory.join("default.lease.json"), directory.join("default.lease.new"))
}

/// Checks that the last calls replaced the lease's file and nothing else was done.
#[track_caller]
fn assert_replaced(disk: &Disk, directory: &Path) {
    let (file, unfinished) = files(directory);
    let calls = disk.calls();
    let [Call::Flush(flushed, length), renamed, Call::Flush(named, _)] = calls.as_slice() else {
        panic!("one file is flushed, renamed, and its directory flushed: {calls:?}")
    };
    assert_eq!((flushed, renamed), (&unfinished, &Call::Rename(unfinished.clone(), file.clone())));
    assert_eq!(*length, fs::metadata(file).unwrap().len(), "all of it was written by then");
    assert_eq!(named, directory);
}

fn assignment() -> StaticAssignment {
    StaticAssignment { namespace: "default".to_owned(), worker: 3, layout: local::layout(1), not_before_ms: 0 }
}

#[tokio::test]
async fn a_lease_s_file_is_flushed_before_it_has_its_name_and_its_directory_after() {
    const NOW_MS: u64 = 1_700_000_000_000;
    let disk = Disk::new();
    let directory = disk.path.join("a").join("b");
    let world = MemoryStore::new(unalike_memory::MemoryOptions {
        clock: Arc::new(|| NOW_MS),
        ..unalike_memory::MemoryOptions::default()
    });
    let store = LocalLeases::open(Arc::new(world), LocalOptions::new(&directory)).await.unwrap();
    // The names of the new directories survive a crash, too.
    let mut above: Vec<_> = disk
        .calls()
        .into_iter()
        .map(|call| match call {
            Call::Flush(path, _) => path,
            other => panic!("{other:?}"),
        })
        .collect();
    above.sort_unstable();
    assert_eq!(above, [disk.path.clone(), disk.path.join("a")]);

    let lease = store.acquire(&local::acquire(NOW_MS, 1, 60_000)).await.unwrap();
    assert_replaced(&disk, &directory);
    store.extend(&local::extend(&lease, NOW_MS + 1_000, 1, 60_000)).await.unwrap();
    assert_replaced(&disk, &directory);
    store.acquire(&local::acquire(NOW_MS + 2_000, 1, 60_000)).await.unwrap();
    assert_replaced(&disk, &directory);
    let next = store.acquire(&local::acquire(NOW_MS + 3_000, 1, 60_000)).await.unwrap();
    assert_replaced(&disk, &directory);
    assert!(store.release("default", next.worker, next.grant_id, next.not_before_ms).await.unwrap());
    assert_replaced(&disk, &directory);
}

#[tokio::test]
async fn a_static_worker_is_on_the_disk_before_it_is_used() {
    let disk = Disk::new();
    StaticWorker::initialise(&disk.path, &assignment()).await.unwrap();
    assert_replaced(&disk, &disk.path);
    let store = StaticWorker::open_unguarded(3, LocalOptions::new(&disk.path)).await.unwrap();
    assert_eq!(disk.calls(), []);
    let lease = store.acquire(&local::acquire(1_700_000_000_000, 1, 60_000)).await.unwrap();
    assert_replaced(&disk, &disk.path);
    store.extend(&local::extend(&lease, 1_700_000_001_000, 1, 60_000)).await.unwrap();
    assert_replaced(&disk, &disk.path);
}

/// What was not flushed is neither handed out nor, under the lease's own name, read by a restart; and a flush that
/// failed is followed by another file, not by another flush.
#[tokio::test]
async fn no_piece_is_handed_out_whose_flush_failed() {
    let disk = Disk::new();
    let (file, unfinished) = files(&disk.path);
    StaticWorker::initialise(&disk.path, &assignment()).await.unwrap();
    let store = StaticWorker::open_unguarded(3, LocalOptions::new(&disk.path)).await.unwrap();
    let lease = store.acquire(&local::acquire(1_700_000_000_000, 1, 60_000)).await.unwrap();
    let longer = local::extend(&lease, 1_700_000_001_000, 1, 60_000);
    for failing in [&unfinished, &disk.path] {
        let before = fs::read(&file).unwrap();
        disk.calls();
        disk.fail(failing);
        for _ in 0..2 {
            let refused = [
                store.extend(&longer).await.unwrap_err(),
                store.acquire(&local::acquire(1_700_000_001_000, 1, 60_000)).await.unwrap_err(),
            ];
            for error in refused {
                let names_it = error.to_string().contains(file.to_str().unwrap());
                assert!(matches!(error, StoreError::Unavailable { .. }) && names_it, "{error:?}");
            }
        }
        disk.mend();
        let calls = disk.calls();
        let failed = calls.iter().filter(|call| **call == Call::FailedFlush(failing.clone())).count();
        assert_eq!(failed, 4, "once in each attempt: {calls:?}");
        if failing == &unfinished {
            assert_eq!(calls.len(), failed, "nothing else was done: {calls:?}");
            assert_eq!(fs::read(&file).unwrap(), before, "the old file is there");
        }
    }
    let raised = store.extend(&longer).await.unwrap();
    assert_eq!((raised.grant_id, raised.not_before_ms), (lease.grant_id, lease.not_before_ms), "the old one goes on");
    assert_replaced(&disk, &disk.path);
}

/// What a SQLite store flushed while this was done.
async fn flushed<T>(disk: &Disk, work: impl Future<Output = Result<T, StoreError>>) -> (T, Vec<PathBuf>) {
    disk.calls();
    let answer = work.await.unwrap();
    let flushed = disk.calls().into_iter().filter_map(|call| match call {
        Call::Flush(path, _) => Some(path),
        Call::FailedFlush(_) | Call::Rename(..) => None,
    });
    (answer, flushed.collect())
}

#[tokio::test]
async fn each_grant_of_a_sqlite_store_is_flushed_before_it_is_answered() {
    let disk = Disk::new();
    let (path, log) = (disk.path.join("ids.sqlite"), disk.path.join("ids.sqlite-wal"));
    let (store, made) = flushed(&disk, sqlite::open(&path)).await;
    assert!(made.contains(&path) && made.contains(&disk.path), "the file and its name: {made:?}");
    let holds = |what: &str, made: Vec<PathBuf>| assert!(made.contains(&log), "{what}: {made:?}");
    for tag in ["order", "order", "invoice"] {
        holds("a segment", flushed(&disk, store.allocate(tag, 10, 0)).await.1);
    }
    let (segment, _) = flushed(&disk, store.allocate("order", 10, 0)).await;
    let tail = TailRelease { start: segment.start + 5, version: segment.version };
    let (is_back, made) = flushed(&disk, SegmentStore::release(&store, "order", tail)).await;
    assert!(is_back);
    holds("a tail", made);
    let now_ms = SystemClock.now_ms();
    let (lease, made) = flushed(&disk, store.acquire(&sqlite::acquire("holder", now_ms))).await;
    holds("a lease", made);
    holds("an extension", flushed(&disk, store.extend(&sqlite::extend(&lease, now_ms))).await.1);
    let released = LeaseStore::release(&store, "namespace", lease.worker, lease.grant_id, lease.not_before_ms);
    holds("a release", flushed(&disk, released).await.1);
    store.close().await;
}

/// Whoever opens the store after the deletion begins at 1, so nothing is granted after it, whenever it came.
#[tokio::test]
async fn what_is_committed_while_a_sqlite_file_is_deleted_is_not_granted() {
    let deleted = |path: &Path, log: &Path| DELETING.lock().unwrap().push((log.to_owned(), path.to_owned()));
    let is_gone = |error: Option<StoreError>| {
        assert!(matches!(&error, Some(StoreError::Refused { what, .. }) if what.contains("was deleted")), "{error:?}");
    };
    for kind in 0..5 {
        let disk = Disk::new();
        let (path, log) = (disk.path.join("ids.sqlite"), disk.path.join("ids.sqlite-wal"));
        let store = sqlite::open(&path).await.unwrap();
        store.allocate("order", 10, 0).await.unwrap();
        let now_ms = SystemClock.now_ms();
        let lease = store.acquire(&sqlite::acquire("holder", now_ms)).await.unwrap();
        deleted(&path, &log);
        match kind {
            0 => is_gone(store.allocate("order", 10, 0).await.err()),
            1 => is_gone(store.raise_tag("order", 100).await.err()),
            2 => is_gone(store.acquire(&sqlite::acquire("other", now_ms)).await.err()),
            3 => is_gone(store.extend(&sqlite::extend(&lease, now_ms)).await.err()),
            _ => is_gone(store.create_tag("new", &TagOptions::default()).await.err()),
        }
        assert!(!path.exists());
        is_gone(store.check().await.err());
    }
}

/// SQLite has one word for a page that makes no sense and one that the disk did not give.
#[tokio::test]
async fn a_disk_that_cannot_read_a_sqlite_file_is_named() {
    let disk = Disk::new();
    let path = disk.path.join("ids.sqlite");
    let store = sqlite::open(&path).await.unwrap();
    for tag in 0..500 {
        store
            .allocate(&format!("a long name of a tag, so that there are pages that nobody has read {tag}"), 1, 0)
            .await
            .unwrap();
    }
    store.close().await;
    let store = sqlite::open(&path).await.unwrap();
    UNREADABLE.lock().unwrap().push(path.clone());
    let error = store.tags(None, 1_000).await.unwrap_err();
    UNREADABLE.lock().unwrap().retain(|unreadable| *unreadable != path);
    let text = error.to_string();
    for word in ["the disk reported an input/output error", "dmesg", path.to_str().unwrap()] {
        assert!(text.contains(word), "{text}");
    }
    assert_eq!(store.tags(None, 1_000).await.unwrap().len(), 500);
}

#[tokio::test]
async fn a_sqlite_store_grants_nothing_that_it_could_not_flush() {
    let disk = Disk::new();
    let (path, log) = (disk.path.join("ids.sqlite"), disk.path.join("ids.sqlite-wal"));
    let store = sqlite::open(&path).await.unwrap();
    let mut granted = vec![store.allocate("order", 10, 0).await.unwrap()];
    for _ in 0..3 {
        disk.fail(&log);
        disk.calls();
        let error = store.allocate("order", 10, 0).await.unwrap_err();
        assert!(disk.calls().contains(&Call::FailedFlush(log.clone())));
        assert!(!matches!(error, StoreError::Refused { .. }), "a disk may come back: {error:?}");
        let text = error.to_string();
        assert!(text.contains("input/output error") && text.contains(path.to_str().unwrap()), "{text}");
        disk.mend();
        granted.push(store.allocate("order", 10, 0).await.unwrap());
    }
    store.close().await;
    let store: SqliteStore = sqlite::open(&path).await.unwrap();
    granted.push(store.allocate("order", 10, 0).await.unwrap());
    sqlite::assert_disjoint(&mut granted);
}
