//! SQLite's locks, which a process loses when any descriptor of the file is closed in it: whoever has lost them is
//! granted nothing more. Each test needs a process of its own.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(unsafe_code, reason = "descriptors are closed behind the back of whoever has them")]

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};
use tempfile::TempDir;
use unalike::{Clock as _, SystemClock};
use unalike_sqlite::SqliteStore;
use unalike_storage::{LeaseStore, SegmentStore, StoreError, TailRelease};
use unalike_tests::refusals::stays_refused;
use unalike_tests::sqlite::{acquire, extend, open};

const LOST: &str = "this process has lost its locks";

struct Scene {
    _directory: TempDir,
    path: PathBuf,
    store: SqliteStore,
}

impl Scene {
    async fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("ids.sqlite");
        let store = open(&path).await.unwrap();
        assert_eq!(store.allocate("order", 10, 0).await.unwrap().start, 1);
        Self { _directory: directory, path, store }
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(suffix);
        name.into()
    }

    /// Nothing is granted any more, by this store nor by another one, whatever is closed.
    async fn is_lost(&self, word: &str) {
        stays_refused(async || self.store.allocate("order", 10, 0).await, &[word]).await;
        stays_refused(async || open(&self.path).await, &[word]).await;
        self.store.close().await;
        stays_refused(async || self.store.allocate("order", 10, 0).await, &[word]).await;
        stays_refused(async || open(&self.path).await, &[word]).await;
    }
}

/// The descriptors of this process that are of this file.
fn descriptors(path: &Path) -> Vec<i32> {
    let all = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().file_name());
    let all = all.filter_map(|name| name.to_str().unwrap().parse().ok());
    all.filter(|number| fs::read_link(format!("/proc/self/fd/{number}")).is_ok_and(|to| to == path)).collect()
}

fn close(number: i32) {
    // SAFETY: that it is somebody's is what is tested.
    assert_eq!(unsafe { libc::close(number) }, 0);
}

#[tokio::test]
async fn code_that_reads_the_file_or_its_index_takes_the_locks() {
    for suffix in ["", "-shm"] {
        let scene = Scene::new().await;
        let now_ms = SystemClock.now_ms();
        let lease = scene.store.acquire(&acquire("holder", now_ms)).await.unwrap();
        fs::read(scene.beside(suffix)).unwrap();
        for error in [
            scene.store.allocate("order", 10, 0).await.unwrap_err(),
            scene.store.acquire(&acquire("holder", now_ms)).await.unwrap_err(),
            scene.store.extend(&extend(&lease, now_ms)).await.unwrap_err(),
            SegmentStore::release(&scene.store, "order", TailRelease { start: 5, version: 1 }).await.unwrap_err(),
            SegmentStore::identity(&scene.store).await.unwrap_err(),
        ] {
            let (text, file) = (error.to_string(), format!("ids.sqlite{suffix}: "));
            assert!(matches!(error, StoreError::Refused { .. }) && text.contains(LOST), "{text}");
            assert!(text.contains(&file), "{text}");
        }
        scene.is_lost(LOST).await;
    }
    // Other files are not concerned, nor is the log, on which there is no lock.
    let scene = Scene::new().await;
    fs::read(scene.beside("-wal")).unwrap();
    assert_eq!(scene.store.allocate("order", 10, 0).await.unwrap().start, 11);
}

/// SQLite would close whatever has the numbers of its descriptors.
#[tokio::test]
async fn descriptors_that_others_have_since_are_left_alone() {
    for suffix in ["", "-shm"] {
        let scene = Scene::new().await;
        let closed = descriptors(&scene.beside(suffix));
        assert!(!closed.is_empty());
        closed.iter().copied().for_each(close);
        let others: Vec<File> = (0..20).map(|_| File::open("/dev/null").unwrap()).collect();
        assert!(closed.iter().all(|number| others.iter().any(|other| other.as_raw_fd() == *number)));
        scene.is_lost(LOST).await;
        drop(scene);
        for other in others {
            assert!(
                fs::read_link(format!("/proc/self/fd/{}", other.as_raw_fd()))
                    .is_ok_and(|to| to == Path::new("/dev/null"))
            );
        }
    }
}

#[tokio::test]
async fn a_store_that_is_dropped_leaves_them_alone_too() {
    let Scene { path, store, _directory } = Scene::new().await;
    let null = File::open("/dev/null").unwrap();
    let replaced = descriptors(&path);
    for number in &replaced {
        // SAFETY: both are open.
        assert_eq!(unsafe { libc::dup2(null.as_raw_fd(), *number) }, *number);
    }
    drop(store);
    stays_refused(async || open(&path).await, &[LOST]).await;
    assert_eq!(
        descriptors(Path::new("/dev/null")).iter().filter(|number| replaced.contains(number)).count(),
        replaced.len()
    );
}

/// A second SQLite has a descriptor of the index of its own.
#[tokio::test]
async fn a_second_sqlite_is_noticed_while_it_is_open() {
    let scene = Scene::new().await;
    let _second = File::open(scene.beside("-shm")).unwrap();
    scene.is_lost("a second copy of unalike or of SQLite").await;

    // Or before: SQLite would empty its index.
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("ids.sqlite");
    open(&path).await.unwrap().close().await;
    let index = directory.path().join("ids.sqlite-shm");
    fs::write(&index, b"its index").unwrap();
    let first = File::open(&index).unwrap();
    stays_refused(async || open(&path).await, &["something else in this process has"]).await;
    assert_eq!(fs::read(&index).unwrap(), b"its index");
    drop(first);
    open(&path).await.unwrap().close().await;
}

#[tokio::test]
async fn stores_and_connections_of_one_sqlite_come_and_go() {
    let scene = Scene::new().await;
    let other = open(&scene.path).await.unwrap();
    let connection = SqliteConnectOptions::new().filename(&scene.path).connect().await.unwrap();
    scene.store.close().await;
    assert_eq!(other.allocate("order", 10, 0).await.unwrap().start, 11);
    connection.close().await.unwrap();
    let third = open(&scene.path).await.unwrap();
    assert_eq!(other.allocate("order", 10, 0).await.unwrap().start, 21);
    other.close().await;
    assert_eq!(third.allocate("order", 10, 0).await.unwrap().start, 31);
    third.close().await;
    assert!(descriptors(&scene.path).is_empty());
    let again = open(&scene.path).await.unwrap();
    assert_eq!(again.allocate("order", 10, 0).await.unwrap().start, 41);
}

/// Whoever cannot look does not know.
#[tokio::test]
async fn a_process_without_descriptors_is_granted_nothing_and_goes_on_later() {
    let scene = Scene::new().await;
    // All descriptors below the limit are taken.
    let limit = |soft| {
        let limit = libc::rlimit { rlim_cur: soft, rlim_max: 1_000 };
        // SAFETY: the pointer is to a live struct of the right type.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    };
    limit(200);
    let taken: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let error = scene.store.allocate("order", 10, 0).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("of this process cannot be looked at, so nothing is granted"), "{error}");
    drop(taken);
    limit(1_000);
    assert_eq!(scene.store.allocate("order", 10, 0).await.unwrap().start, 11);
    scene.store.close().await;
}
