//! SQLite's own ways to go wrong: files that are missing, foreign, damaged, not writable or too big, and several
//! processes on one file. What every store promises is in `contract.rs`.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, Row, SqliteConnection};
use tempfile::TempDir;
use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_storage::{LeaseStore, Segment, SegmentStore, StoreError, Stripe};
use unalike_tests::sqlite::{acquire, assert_disjoint, open};

/// Offsets in the header of a database file: <https://www.sqlite.org/fileformat2.html#the_database_header>.
const USER_VERSION_AT: usize = 60;
const APPLICATION_ID_AT: usize = 68;

fn directory() -> TempDir {
    TempDir::new().expect("a directory for the file")
}

/// A store with some tags, closed.
async fn closed_store(directory: &TempDir) -> PathBuf {
    let path = directory.path().join("ids.sqlite");
    let store = open(&path).await.expect("a new file opens");
    for tag in 0..300 {
        store.allocate(&format!("tag {tag:0100}"), 10, 0).await.expect("a new tag has numbers");
    }
    store.close().await;
    path
}

fn patch(path: &Path, at: usize, bytes: &[u8]) {
    let mut file = fs::read(path).expect("the file can be read");
    file[at..at + bytes.len()].copy_from_slice(bytes);
    fs::write(path, file).expect("the file can be written");
}

/// What lies in the directory, by name.
fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(directory).expect("the directory can be read");
    let mut contents: Vec<_> = entries
        .map(|entry| entry.expect("the directory can be read").path())
        .map(|path| (path.clone(), fs::read(path).expect("the file can be read")))
        .collect();
    contents.sort();
    contents
}

/// The file is refused with this word in the message, and nothing around it changes.
async fn assert_refused_untouched(path: &Path, word: &str) -> StoreError {
    let before = contents(path.parent().expect("the file lies in a directory"));
    let error = open(path).await.expect_err("the file is refused");
    let message = error.to_string();
    assert!(message.contains(word), "{message:?} says {word:?}");
    assert!(message.contains("ids.sqlite"), "{message:?} names the file");
    assert!(!error.is_retryable(), "{error:?} does not go away by itself");
    assert_eq!(contents(path.parent().expect("the file lies in a directory")), before, "nothing was touched");
    error
}

#[tokio::test]
async fn a_missing_directory_is_named_and_not_created() {
    let directory = directory();
    let path = directory.path().join("no/such/ids.sqlite");
    let error = open(&path).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
    assert!(error.to_string().ends_with("no/such does not exist: create it"), "{error}");
    assert_eq!(contents(directory.path()), []);
}

#[tokio::test]
async fn a_missing_or_empty_file_is_created_only_when_that_is_allowed() {
    let directory = directory();
    let path = directory.path().join("ids.sqlite");
    let existing = SqliteOptions { create: false, ..SqliteOptions::new(&path) };
    let error = SqliteStore::connect(existing.clone()).await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused { what, .. } if what.contains("does not exist")), "{error:?}");
    assert_eq!(contents(directory.path()), []);

    fs::write(&path, b"").unwrap();
    let error = SqliteStore::connect(existing.clone()).await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused { what, .. } if what.contains("is empty")), "{error:?}");
    open(&path).await.unwrap().close().await;
    SqliteStore::connect(existing).await.unwrap().close().await;
}

#[tokio::test]
async fn names_that_mean_something_else_to_sqlite_are_files() {
    // Opened as they stand, these would forget everything.
    let directory = directory();
    for name in [":memory:", "file:ids?mode=memory", "ids.sqlite?mode=memory", "per%20cent"] {
        let path = directory.path().join(name);
        open(&path).await.unwrap().close().await;
        assert!(path.is_file(), "{name}");
        let store = open(&path).await.unwrap();
        assert_eq!(store.allocate("tag", 1, 0).await.unwrap().start, 1);
        store.close().await;
        let store = open(&path).await.unwrap();
        assert_eq!(store.allocate("tag", 1, 0).await.unwrap().start, 2);
        store.close().await;
    }
    run_child("relative-path", &directory.path().join(":memory:"));
    let error = open(directory.path()).await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused { what, .. } if what.contains("is a directory")), "{error:?}");
}

#[tokio::test]
async fn what_is_no_database_is_refused_and_left_alone() {
    let directory = directory();
    let path = directory.path().join("ids.sqlite");
    for content in [b"short".to_vec(), b"# a text file\n".repeat(1_000), vec![0; 8_192], vec![0xff; 512]] {
        fs::write(&path, content).unwrap();
        let error = assert_refused_untouched(&path, "no SQLite database").await;
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn another_program_s_database_is_refused_and_left_alone() {
    let directory = directory();
    let path = closed_store(&directory).await;
    for application_id in [0_u32, 0x0f05_5112] {
        patch(&path, APPLICATION_ID_AT, &application_id.to_be_bytes());
        let error = assert_refused_untouched(&path, "another program").await;
        assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let directory = directory();
    let path = closed_store(&directory).await;
    patch(&path, USER_VERSION_AT, &3_u32.to_be_bytes());
    let error = assert_refused_untouched(&path, "newer version").await;
    assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
    patch(&path, USER_VERSION_AT, &0_u32.to_be_bytes());
    let error = assert_refused_untouched(&path, "version 0").await;
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
}

/// The tables of tags as version 1 created them.
const SCHEMA_1: &str = "
PRAGMA application_id = 1970168172;
PRAGMA user_version = 1;
CREATE TABLE store (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    tags INTEGER NOT NULL CHECK (tags >= 0)
) STRICT;
INSERT INTO store (id, tags) VALUES (1, 0);
CREATE TABLE tag (
    tag TEXT NOT NULL PRIMARY KEY,
    start INTEGER NOT NULL CHECK (start >= 1),
    mode TEXT NOT NULL CHECK (mode IN ('buffered', 'ordered')),
    step_policy TEXT NOT NULL CHECK (step_policy IN ('fixed', 'adaptive')),
    step INTEGER NOT NULL,
    step_min INTEGER,
    step_max INTEGER,
    grow_below_ms INTEGER,
    shrink_above_ms INTEGER,
    refill_policy TEXT NOT NULL CHECK (refill_policy IN ('share-consumed', 'remaining')),
    refill INTEGER NOT NULL,
    generation INTEGER NOT NULL DEFAULT 0 CHECK (generation >= 0),
    grant_start INTEGER NOT NULL CHECK (grant_start >= 1),
    settled INTEGER NOT NULL CHECK (settled >= 0),
    watermark INTEGER NOT NULL CHECK (watermark >= settled),
    version INTEGER NOT NULL DEFAULT 0 CHECK (version >= 0)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER tag_created AFTER INSERT ON tag BEGIN UPDATE store SET tags = tags + 1; END;
CREATE TRIGGER tag_deleted AFTER DELETE ON tag BEGIN UPDATE store SET tags = tags - 1; END;
PRAGMA journal_mode = WAL;
";

/// How version 1 created a tag, and how it was granted numbers.
const CREATE_1: &str = "
INSERT INTO tag (tag, start, mode, step_policy, step, step_min, step_max, grow_below_ms, shrink_above_ms,
    refill_policy, refill, grant_start, settled, watermark)
SELECT ?1, ?2, 'buffered', 'fixed', 10, NULL, NULL, NULL, NULL, 'share-consumed', 10, ?2, ?2 - 1, ?2 - 1
FROM store WHERE tags < 1000000
ON CONFLICT (tag) DO NOTHING
RETURNING *";
const ALLOCATE_1: &str = "
UPDATE tag SET
    grant_start = max(watermark + 1, ?2),
    settled = CASE WHEN ?2 = watermark + 1 THEN settled ELSE max(watermark + 1, ?2) - 1 END,
    watermark = max(watermark + 1, ?2) + min(?3 - 1, 9223372036854775807 - max(watermark + 1, ?2)),
    version = version + 1
WHERE tag = ?1 AND watermark < 9223372036854775807
RETURNING *";

async fn allocate_as_version_1(connection: &mut SqliteConnection, tag: &str) -> Result<Segment, sqlx::Error> {
    let rows = sqlx::query(ALLOCATE_1).bind(tag).bind(0).bind(10).fetch_all(connection).await?;
    let number = |column: &str| u64::try_from(rows[0].get::<i64, _>(column)).expect("no number is negative");
    let (start, end) = (number("grant_start"), number("watermark") + 1);
    Ok(Segment { start, end, stride: 1, generation: 0, version: number("version") })
}

#[tokio::test]
async fn a_file_of_the_version_before_is_upgraded_and_programs_of_that_version_go_on() {
    let directory = directory();
    let path = directory.path().join("ids.sqlite");
    let connect =
        || SqliteConnectOptions::new().filename(&path).create_if_missing(true).busy_timeout(Duration::from_secs(5));
    let mut before = connect().connect().await.unwrap();
    sqlx::raw_sql(SCHEMA_1).execute(&mut before).await.unwrap();
    sqlx::query(CREATE_1).bind("order").bind(100).fetch_all(&mut before).await.unwrap();
    let mut segments = vec![allocate_as_version_1(&mut before, "order").await.unwrap()];
    assert_eq!(segments[0].start, 100);

    // Several programs of this version start at once, while that of the version before is at work.
    let opened = open_twice(&path).await;
    for store in &opened {
        for _ in 0..20 {
            segments.push(allocate_as_version_1(&mut before, "order").await.unwrap());
            segments.push(store.allocate("order", 10, 0).await.unwrap());
        }
        sqlx::query(CREATE_1).bind("from before").bind(1).fetch_all(&mut before).await.unwrap();
        segments.push(allocate_as_version_1(&mut before, "order").await.unwrap());
        let record = store.open_tag("order").await.unwrap();
        assert_eq!((record.options.start, record.watermark), (100, segments.last().unwrap().end - 1));
        assert!(store.tag("from before").await.is_ok());
    }
    assert_disjoint(&mut segments);
    let [store, other] = opened;

    // As one of several stripes its numbers mean something else, which the version before does not know.
    let stripe = Stripe { set: 5, index: 0, count: 2 };
    store.restripe(None, Some(&stripe)).await.unwrap();
    let error = allocate_as_version_1(&mut before, "order").await.unwrap_err();
    assert!(error.to_string().contains("one of several stripes"), "{error}");
    let joined = store.join_stripe(&stripe).await.unwrap().store;
    for _ in 0..3 {
        segments.push(joined.allocate("order", 10, 0).await.unwrap());
        assert!(allocate_as_version_1(&mut before, "order").await.is_err());
    }
    store.restripe(Some(&stripe), None).await.unwrap();
    segments.push(allocate_as_version_1(&mut before, "order").await.unwrap());
    segments.push(other.allocate("order", 10, 0).await.unwrap());
    assert_disjoint(&mut segments);
    before.close().await.unwrap();
    store.close().await;
    other.close().await;
}

/// Two programs that open the file at once.
async fn open_twice(path: &Path) -> [SqliteStore; 2] {
    let (first, second) = tokio::join!(open(path), open(path));
    [first.expect("the file opens"), second.expect("the file opens")]
}

#[tokio::test]
async fn a_damaged_file_grants_nothing() {
    let directory = directory();
    let path = closed_store(&directory).await;
    // All pages but the first, which holds the header and the schema.
    let len = fs::metadata(&path).unwrap().len();
    let damage: Vec<u8> = (0..=250).cycle().take(usize::try_from(len).unwrap() - 4_096).collect();
    patch(&path, 4_096, &damage);
    let error = match open(&path).await {
        Ok(store) => store.allocate("tag 1", 10, 0).await.unwrap_err(),
        Err(error) => error,
    };
    assert!(matches!(&error, StoreError::Corrupt { what, .. } if what.contains("backup")), "{error:?}");

    // And a file that was cut off.
    let half = directory.path().join("half.sqlite");
    fs::write(&half, &fs::read(&path).unwrap()[..6_000]).unwrap();
    let error = match open(&half).await {
        Ok(store) => store.allocate("tag 1", 10, 0).await.unwrap_err(),
        Err(error) => error,
    };
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
}

#[tokio::test]
async fn the_lease_clock_is_the_system_s_to_the_millisecond() {
    let directory = directory();
    let store = open(&directory.path().join("ids.sqlite")).await.unwrap();
    let system_ms = || u64::try_from(UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    let mut milliseconds = BTreeSet::new();
    let started_ms = system_ms();
    while system_ms() < started_ms + 1_200 {
        let before_ms = system_ms();
        let error = store.acquire(&acquire("nobody", 0)).await.unwrap_err();
        let StoreError::ClockSkew { store_ms, .. } = error else { panic!("{error:?}") };
        assert!((before_ms..=system_ms()).contains(&store_ms), "{before_ms} {store_ms}");
        milliseconds.insert(store_ms % 1_000);
    }
    assert!(milliseconds.iter().any(|ms| *ms < 100) && milliseconds.iter().any(|ms| *ms > 900), "{milliseconds:?}");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn aborted_tasks_leave_no_transaction_open_and_no_number_granted_twice() {
    let directory = directory();
    let path = directory.path().join("ids.sqlite");
    let store = open(&path).await.unwrap();
    let other = open(&path).await.unwrap();
    let (sender, mut granted) = tokio::sync::mpsc::unbounded_channel();
    for round in 0..60_u64 {
        let mut tasks = Vec::new();
        for task in 0..6_u64 {
            let store = if task % 2 == 0 { store.clone() } else { other.clone() };
            let sender = sender.clone();
            tasks.push(tokio::spawn(async move {
                for step in 0..20 {
                    if task < 4 {
                        let segment = store.allocate("tag", 1 + step, 0).await.unwrap();
                        sender.send(segment).unwrap();
                    } else {
                        let now_ms = u64::try_from(UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
                        store.acquire(&acquire("holder", now_ms)).await.unwrap();
                    }
                }
            }));
        }
        tokio::time::sleep(Duration::from_micros(round * 150)).await;
        for task in tasks {
            task.abort();
            let _ = task.await;
        }
    }
    drop(sender);
    store.check().await.unwrap();
    other.check().await.unwrap();
    let last = other.allocate("tag", 10, 0).await.unwrap();
    let mut segments = vec![last];
    while let Some(segment) = granted.recv().await {
        segments.push(segment);
    }
    assert_disjoint(&mut segments);
}

#[test]
fn several_processes_that_start_at_once_share_one_file() {
    let directory = directory();
    let path = directory.path().join("ids.sqlite");
    let children: Vec<_> = (0..4).map(|_| child("allocate", &path)).collect();
    let mut segments = Vec::new();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
        segments.extend(printed.lines().map(|grant| {
            let (start, end) = grant.split_once(' ').unwrap();
            let (start, end) = (start.parse().unwrap(), end.parse().unwrap());
            Segment { start, end, stride: 1, generation: 0, version: 0 }
        }));
    }
    assert_eq!(segments.len(), 4 * 50);
    assert_disjoint(&mut segments);
    assert_eq!(segments.last().unwrap().end, 4 * 50 * 10 + 1, "and nothing was lost");
}

/// Starts a process that does something with the file, in the file's directory.
fn child(role: &str, path: &Path) -> std::process::Child {
    Command::new(env!("CARGO_BIN_EXE_sqlite-child"))
        .arg(role)
        .arg(path)
        .current_dir(path.parent().expect("the file lies in a directory"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the child starts")
}

fn run_child(role: &str, path: &Path) {
    let output = child(role, path).wait_with_output().expect("the child ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_write_that_fails_grants_nothing_and_the_store_recovers() {
    let directory = directory();
    run_child("failing-writes", &directory.path().join("ids.sqlite"));
}

#[test]
fn a_file_or_directory_without_permission_is_refused() {
    let directory = directory();
    let path = directory.path().join("ids.sqlite");
    set_mode(directory.path(), 0o555);
    assert_no_permission("a new file in a directory that is read-only", open_as_nobody(&path));

    set_mode(directory.path(), 0o755);
    tokio::runtime::Runtime::new().unwrap().block_on(async { open(&path).await.unwrap().close().await });
    for (directory_mode, file_mode) in [(0o555, 0o444), (0o755, 0o444), (0o555, 0o644), (0o755, 0o000), (0o000, 0o644)]
    {
        set_mode(&path, file_mode);
        set_mode(directory.path(), directory_mode);
        let opened = open_as_nobody(&path);
        set_mode(directory.path(), 0o755);
        // Its owner may write to the one, but cannot put a log beside it.
        assert_no_permission(&format!("a directory {directory_mode:o} and a file {file_mode:o}"), opened);
    }
}

fn assert_no_permission(what: &str, opened: Result<(), StoreError>) {
    let error = opened.expect_err(what);
    let message = error.to_string();
    assert!(matches!(error, StoreError::Refused { .. }), "{what}: {error:?}");
    assert!(message.contains("ids.sqlite") && message.contains("user"), "{what}: {message}");
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;

    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the owner may change permissions");
}

/// Opens and closes the file; as root, in a thread that has given up root's rights to files.
fn open_as_nobody(path: &Path) -> Result<(), StoreError> {
    let opened = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            become_nobody_on_disk();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                open(path).await?.close().await;
                Ok(())
            })
        });
        thread.join()
    });
    opened.expect("opening does not panic")
}

/// From now on this thread, and those that it starts, have no more rights to files than a user without any.
#[expect(unsafe_code, reason = "the standard library cannot change the user of a thread")]
fn become_nobody_on_disk() {
    // SAFETY: it takes a number and changes this thread's credentials alone.
    unsafe {
        if libc::geteuid() == 0 {
            libc::setfsuid(65_534);
        }
    }
}
