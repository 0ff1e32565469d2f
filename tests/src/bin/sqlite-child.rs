//! What the tests of SQLite do in a process of its own: `sqlite-child ROLE PATH`.
#![expect(clippy::unwrap_used, reason = "a child that cannot go on fails its test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use unalike_storage::{LeaseStore, SegmentStore, StoreError};
use unalike_tests::sqlite::{acquire, assert_disjoint, extend, open};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [role, path] if role == "relative-path" => relative_path(Path::new(path)).await,
        [role, path] if role == "allocate" => allocate(Path::new(path)).await,
        [role, path] if role == "failing-writes" => failing_writes(Path::new(path)).await,
        _ => panic!("usage: sqlite-child relative-path|allocate|failing-writes PATH, not {arguments:?}"),
    }
}

/// The file lies in the working directory and is opened by its name alone.
async fn relative_path(path: &Path) {
    let store = open(Path::new(path.file_name().unwrap())).await.unwrap();
    assert_eq!(store.allocate("tag", 1, 0).await.unwrap().start, 3, "the file in the working directory");
    store.close().await;
}

/// Prints what it was granted.
async fn allocate(path: &Path) {
    let store = open(path).await.unwrap();
    for _ in 0..50 {
        let segment = store.allocate("tag", 10, 0).await.unwrap();
        println!("{} {}", segment.start, segment.end);
    }
    // No close: a process may end at any time.
}

/// Its writes fail now and then, and it recovers.
async fn failing_writes(path: &Path) {
    let store = open(path).await.unwrap();
    let now_ms = || u64::try_from(UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    let mut segments = vec![store.allocate("tag", 10, 0).await.unwrap()];
    let first = store.acquire(&acquire("holder", now_ms())).await.unwrap();
    let mut workers = vec![first.worker];
    let log = fs::metadata(path.with_file_name("ids.sqlite-wal")).unwrap().len();

    for room in [0, 100, 4_096, 5_000, 9_000] {
        limit_file_size(log + room);
        // Sooner or later the log is full, in the middle of whatever is being written.
        let mut errors = 0;
        for _ in 0..20 {
            match store.allocate("tag", 10, 0).await {
                Ok(segment) => segments.push(segment),
                Err(error) => errors += assert_lost(&error),
            }
            match store.acquire(&acquire("other", now_ms())).await {
                Ok(lease) => workers.push(lease.worker),
                Err(error) => errors += assert_lost(&error),
            }
            if let Err(error) = store.extend(&extend(&first, now_ms())).await {
                errors += assert_lost(&error);
            }
            if let Err(error) = store.open_tag(&format!("new {room}")).await {
                errors += assert_lost(&error);
            }
        }
        assert!(errors > 0, "the limit was felt");
        limit_file_size(u64::from(u32::MAX));
        segments.push(store.allocate("tag", 10, 0).await.unwrap());
        workers.push(store.acquire(&acquire("other", now_ms())).await.unwrap().worker);
        assert!(store.extend(&extend(&first, now_ms())).await.unwrap().valid_until_ms >= first.valid_until_ms);
        store.check().await.unwrap();
    }
    store.close().await;
    let store = open(path).await.unwrap();
    segments.push(store.allocate("tag", 10, 0).await.unwrap());
    assert_disjoint(&mut segments);
    // None of the leases has ended, so no worker was granted twice.
    assert_eq!(workers.iter().collect::<BTreeSet<_>>().len(), workers.len(), "{workers:?}");
    let listed: BTreeSet<_> = store.leases("namespace").await.unwrap().iter().map(|it| it.lease.worker).collect();
    assert!(workers.iter().all(|worker| listed.contains(worker)), "what was granted is in the file");
}

/// Checks that the error is that of a failed write, and counts it.
fn assert_lost(error: &StoreError) -> u32 {
    assert!(error.may_have_granted(), "a failed write is of unknown outcome: {error:?}");
    1
}

/// From now on this process fails to write files beyond so many bytes: its disk is as good as broken.
#[expect(unsafe_code, reason = "the standard library has no resource limits")]
fn limit_file_size(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the pointer is to a live struct of the right type; an ignored signal runs no handler.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0, "the limit can be set");
    }
}
