//! SQLite's own ways to go wrong: files that are missing, foreign, damaged, not writable or too big, and several
//! processes on one file. What every store promises is in `contract.rs`.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, UNIX_EPOCH};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, Row, SqliteConnection};
use tempfile::TempDir;
use tokio::sync::Notify;
use unalike::{Clock as _, SystemClock};
use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_storage::{
    ID_MAX, LeaseStore, Segment, SegmentStore, StoreError, Stripe, TagOptions, TailRelease, sub_tag,
};
use unalike_tests::refusals::stays_refused;
use unalike_tests::sqlite::{acquire, assert_disjoint, extend, open};

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

/// SQLite makes the file that the links lead to, and its log beside that.
#[tokio::test]
async fn links_to_a_file_that_is_still_to_be_made_are_followed() {
    let directory = directory();
    let (file, link, to_link) = ("data/ids.sqlite", directory.path().join("link"), directory.path().join("to-link"));
    fs::create_dir(directory.path().join("data")).expect("a directory");
    std::os::unix::fs::symlink(file, &link).expect("a link");
    std::os::unix::fs::symlink("link", &to_link).expect("a link");
    for path in [to_link, link, directory.path().join(file)] {
        let store = open(&path).await.expect("the file is made, or found");
        store.allocate("order", 10, 0).await.expect("numbers");
        store.close().await;
    }
    let store = open(&directory.path().join(file)).await.expect("the file is found");
    assert_eq!(store.allocate("order", 10, 0).await.expect("numbers").start, 31);
}

#[tokio::test]
async fn a_file_that_was_deleted_without_its_log_is_not_made_again() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("ids.sqlite");
    let store = open(&path).await.unwrap();
    store.allocate("order", 10, 0).await.unwrap();
    fs::remove_file(&path).unwrap();
    for _ in 0..2 {
        let error = open(&path).await.unwrap_err();
        assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
        assert!(error.to_string().contains("ids.sqlite-wal does"), "{error}");
        assert!(!path.exists(), "nothing is left that looks like a new store");
    }
    store.close().await;
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

#[test]
fn a_url_names_one_file_or_is_refused() {
    for (url, path, create, busy_ms) in [
        ("sqlite://ids.sqlite", "ids.sqlite", true, 5_000),
        ("sqlite:///var/lib/ids.sqlite?create=false", "/var/lib/ids.sqlite", false, 5_000),
        ("sqlite://a b/100%.sqlite?busy-timeout-ms=7&create=true", "a b/100%.sqlite", true, 7),
        ("sqlite://ids.sqlite?", "ids.sqlite", true, 5_000),
    ] {
        let options = SqliteOptions::from_url(url).unwrap();
        assert_eq!((options.path.as_path(), options.create), (Path::new(path), create), "{url}");
        assert_eq!(options.busy_timeout, Duration::from_millis(busy_ms), "{url}");
    }
    let known = "create (true or false) and busy-timeout-ms";
    for (url, words) in [
        ("sqlite://ids.sqlite?mode=rwc", ["\"mode\"", known]),
        ("sqlite://ids.sqlite?cache=shared", ["\"cache\"", known]),
        ("sqlite://ids.sqlite?create=false?x", ["create=false?x", "true or false"]),
        ("sqlite://ids.sqlite?create=no", ["create=no", "true or false"]),
        ("sqlite://ids.sqlite?create", ["create=", "true or false"]),
        ("sqlite://ids.sqlite?busy-timeout-ms=600001", ["busy-timeout-ms=600001", "0 to 600000"]),
        ("sqlite://ids.sqlite#x", ["ids.sqlite#x", "neither a #"]),
        ("sqlite://%69ds.sqlite", ["%69ds", "a % with two hexadecimal digits"]),
        ("sqlite://:memory:", [":memory:", "sqlite://PATH"]),
        ("sqlite://file:ids.sqlite", ["file:ids", "sqlite://PATH"]),
        ("sqlite://?create=true", ["names no file", "sqlite://PATH"]),
        ("ids.sqlite", ["ids.sqlite", "sqlite://PATH"]),
    ] {
        let error = SqliteOptions::from_url(url).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{url}: {error}");
    }
}

/// What an operator may do to the files of a running store, so that another program would find other files.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Deleted,
    MovedAway,
    MovedOver,
    LogDeleted,
    IndexDeleted,
    Linked,
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[tokio::test]
async fn a_file_that_is_not_where_others_find_it_grants_nothing() {
    for loss in [Loss::Deleted, Loss::MovedAway, Loss::MovedOver, Loss::LogDeleted, Loss::IndexDeleted, Loss::Linked] {
        let directory = directory();
        let path = directory.path().join("ids.sqlite");
        let away = directory.path().join("away");
        let [store, other] = open_twice(&path).await;
        let segment = store.allocate("order", 10, 0).await.unwrap();
        let now_ms = SystemClock.now_ms();
        let lease = store.acquire(&acquire("holder", now_ms)).await.unwrap();
        let word = match loss {
            Loss::Deleted => {
                for suffix in ["", "-wal", "-shm"] {
                    fs::remove_file(beside(&path, suffix)).unwrap();
                }
                "ids.sqlite was deleted or moved"
            }
            Loss::MovedAway => {
                fs::rename(&path, &away).unwrap();
                "ids.sqlite was deleted or moved"
            }
            Loss::MovedOver => {
                // By another process: whoever reads the file here takes the locks of this one.
                let copied = Command::new("cp").arg(&path).arg(directory.path().join("copy")).status().unwrap();
                assert!(copied.success());
                fs::hard_link(&path, &away).unwrap();
                fs::rename(directory.path().join("copy"), &path).unwrap();
                "ids.sqlite was replaced"
            }
            Loss::LogDeleted => {
                fs::rename(beside(&path, "-wal"), &away).unwrap();
                "ids.sqlite-wal was deleted or moved"
            }
            Loss::IndexDeleted => {
                fs::rename(beside(&path, "-shm"), &away).unwrap();
                "ids.sqlite-shm was deleted or moved"
            }
            Loss::Linked => {
                fs::hard_link(&path, &away).unwrap();
                "has 2 names (hard links)"
            }
        };
        let refused = |what: &str, error: Option<StoreError>| {
            let text = error.as_ref().map(ToString::to_string).unwrap_or_default();
            assert!(matches!(error, Some(StoreError::Refused { .. })), "{loss:?}, {what}: {error:?}");
            assert!(text.contains(word) && text.contains("ids.sqlite"), "{loss:?}, {what}: {text}");
        };
        for store in [&store, &other] {
            let tail = TailRelease { start: segment.start + 5, version: segment.version };
            let later_ms = SystemClock.now_ms();
            stays_refused(async || store.allocate("order", 10, 0).await, &[word]).await;
            refused("first use", store.allocate("new", 10, 0).await.err());
            refused("release", SegmentStore::release(store, "order", tail).await.err());
            refused("release many", store.release_many(vec![("order".to_owned(), tail)]).await.error);
            refused("create", store.create_tag("new", &TagOptions::default()).await.err());
            refused("raise", store.raise_tag("order", 1_000).await.err());
            refused("end", store.retire_tag("order").await.err());
            refused("acquire", store.acquire(&acquire("holder", later_ms)).await.err());
            refused("extend", store.extend(&extend(&lease, later_ms)).await.err());
            let (worker, grant_id, end_ms) = (lease.worker, lease.grant_id, lease.not_before_ms);
            refused("end a lease", LeaseStore::release(store, "namespace", worker, grant_id, end_ms).await.err());
            refused("readiness", store.check().await.err());
        }
        let back = match loss {
            Loss::Deleted => continue,
            Loss::LogDeleted => beside(&path, "-wal"),
            Loss::IndexDeleted => beside(&path, "-shm"),
            Loss::MovedAway | Loss::MovedOver => path.clone(),
            Loss::Linked => directory.path().join("gone"),
        };
        fs::rename(&away, back).unwrap();
        if matches!(loss, Loss::Linked) {
            fs::remove_file(directory.path().join("gone")).unwrap();
        }
        if !matches!(loss, Loss::Linked) {
            for store in [&store, &other] {
                stays_refused(async || store.allocate("order", 10, 0).await, &[word]).await;
                refused("acquire, moved back", store.acquire(&acquire("holder", SystemClock.now_ms())).await.err());
            }
            refused("opened beside them", open(&path).await.err());
            store.close().await;
            other.close().await;
        }
        // As after a restart.
        let again = if matches!(loss, Loss::Linked) { store.clone() } else { open(&path).await.unwrap() };
        let next = again.allocate("order", 10, 0).await.unwrap();
        assert_eq!(next.start, segment.end, "{loss:?}: moved back, it goes on");
        for store in [again, store, other] {
            store.close().await;
        }
    }
}

/// Polls a future step by step. Between two steps it rests, as in a process that is stopped just there, and this is
/// done.
async fn step_by_step<T>(work: impl Future<Output = T>, between: impl AsyncFnMut()) -> T {
    with_pauses(work, async || {}, between).await
}

/// Polls a future step by step: does the first whenever it has asked for something, and the second whenever that has
/// come.
async fn with_pauses<T>(
    work: impl Future<Output = T>,
    mut asked: impl AsyncFnMut(),
    mut answered: impl AsyncFnMut(),
) -> T {
    struct Woken(Notify);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.notify_one();
        }
    }
    let woken = Arc::new(Woken(Notify::new()));
    let waker = Waker::from(Arc::clone(&woken));
    let mut work = pin!(work);
    loop {
        let polled = work.as_mut().poll(&mut Context::from_waker(&waker));
        if let Poll::Ready(done) = polled {
            return done;
        }
        asked().await;
        woken.0.notified().await;
        answered().await;
    }
}

#[tokio::test]
async fn who_rests_anywhere_in_a_request_lets_others_write() {
    let directory = directory();
    let path = directory.path().join("ids.sqlite");
    let store = open(&path).await.unwrap();
    let others =
        SqliteStore::connect(SqliteOptions { busy_timeout: Duration::from_secs(2), ..SqliteOptions::new(&path) });
    let others = others.await.unwrap();
    let mut steps = 0;
    let mut others_write = async || {
        others.allocate("others", 1, 0).await.expect("nobody holds the right to write");
        steps += 1;
    };
    macro_rules! step_by_step {
        ($work:expr) => {
            step_by_step($work, &mut others_write).await.unwrap()
        };
    }
    let segment = step_by_step!(store.allocate("order", 10, 0));
    let tail = TailRelease { start: segment.start + 5, version: segment.version };
    assert!(step_by_step!(SegmentStore::release(&store, "order", tail)));
    step_by_step!(store.create_tag("invoice", &TagOptions::default()));
    step_by_step!(store.raise_tag("invoice", 1_000));
    assert_eq!(step_by_step!(store.retire_tag("invoice")).watermark, 999);
    assert_eq!(step_by_step!(store.retire_tag("invoice")).watermark, ID_MAX);
    step_by_step!(store.check());
    let now_ms = SystemClock.now_ms();
    let lease = step_by_step!(store.acquire(&acquire("holder", now_ms)));
    let lease = step_by_step!(store.extend(&extend(&lease, now_ms)));
    step_by_step!(store.forbid_extension("namespace", lease.worker)).expect("it is known");
    let lease = step_by_step!(store.acquire(&acquire("other", now_ms)));
    let (worker, grant_id) = (lease.worker, lease.grant_id);
    assert!(step_by_step!(LeaseStore::release(&store, "namespace", worker, grant_id, lease.not_before_ms)));
    let tails: Vec<_> = (0..200).map(|tag| format!("tag {tag}")).collect();
    let mut granted = Vec::new();
    for tag in &tails {
        let segment = store.allocate(tag, 10, 0).await.unwrap();
        granted.push((tag.clone(), TailRelease { start: segment.start + 1, version: segment.version }));
    }
    let released = step_by_step(store.release_many(granted), &mut others_write).await;
    assert_eq!((released.taken_back, released.failures), (200, 0));
    assert!(steps > 20, "{steps}");
}

/// The tag ends in a transaction for which the making of a sub-key has to wait, whatever it has asked for meanwhile.
#[tokio::test]
async fn no_sub_key_is_made_after_its_tag_has_ended() {
    let directory = directory();
    let path = directory.path().join("ids.sqlite");
    let options = SqliteOptions { busy_timeout: Duration::from_millis(200), ..SqliteOptions::new(&path) };
    let store = SqliteStore::connect(options).await.unwrap();
    let mut ending = SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    let mut refused = 0;
    // It reads its own row and the tag's, and then writes. An answer that comes at once is not waited for.
    for (round, requests) in (0..4).flat_map(|round| (1..=3).map(move |requests| (round, requests))) {
        let tag = format!("order {round} {requests}");
        let name = sub_tag(&tag, "shop").unwrap();
        store.open_tag(&tag).await.unwrap();
        sqlx::query("BEGIN IMMEDIATE").execute(&mut ending).await.unwrap();
        let (mut request, mut is_ended) = (0, false);
        let end_in_between = async || {
            request += 1;
            if request == requests {
                let end = "UPDATE tag SET grant_start = watermark + 1, watermark = ?2, settled = ?2, \
                    version = version + 1 WHERE tag = ?1";
                sqlx::query(end).bind(&tag).bind(ID_MAX.cast_signed()).execute(&mut ending).await.unwrap();
                sqlx::query("COMMIT").execute(&mut ending).await.unwrap();
                is_ended = true;
            }
        };
        let made = with_pauses(store.open_tag(&name), end_in_between, async || {}).await;
        if !is_ended {
            sqlx::query("ROLLBACK").execute(&mut ending).await.unwrap();
        }
        match made {
            Err(StoreError::Exhausted { .. }) if is_ended => refused += 1,
            Err(error) => assert!(error.is_retryable(), "it waited for too long: {error:?}"),
            Ok(made) => panic!("{requests} requests: {made:?}"),
        }
        assert_eq!(store.tags(Some(&tag), 1).await.unwrap().first().filter(|record| record.tag == name), None);
    }
    assert!(refused > 0, "it ended in time");
}

#[tokio::test]
async fn places_among_stripes_are_changed_by_those_who_saw_them() {
    let directory = directory();
    let [store, other] = open_twice(&directory.path().join("ids.sqlite")).await;
    let (stripe, moved) = (Stripe { set: 5, index: 1, count: 3 }, Stripe { set: 6, index: 0, count: 2 });
    store.restripe(None, Some(&stripe)).await.unwrap();
    let error = other.restripe(None, Some(&moved)).await.unwrap_err();
    assert!(matches!(error, StoreError::PlaceChanged { recorded: Some(at), .. } if at == stripe), "{error:?}");
    other.restripe(Some(&stripe), Some(&moved)).await.unwrap();
    assert_eq!(store.stripe().await.unwrap(), Some(moved));
    store.restripe(Some(&moved), None).await.unwrap();
    assert_eq!(other.stripe().await.unwrap(), None);
}

#[tokio::test]
async fn many_tails_are_given_back_by_a_few_statements() {
    let directory = directory();
    let path = directory.path().join("ids.sqlite");
    let store = open(&path).await.unwrap();
    let mut tails = Vec::new();
    for number in 0..1_100 {
        let tag = format!("tag {number}");
        let segment = store.allocate(&tag, 10, 0).await.unwrap();
        tails.push((tag, TailRelease { start: 4, version: segment.version }));
    }
    // Others took from these meanwhile; nobody knows that; and these are no tails.
    store.allocate("tag 7", 10, 0).await.unwrap();
    tails.push(("unknown".to_owned(), TailRelease { start: 1, version: 1 }));
    tails.push(("tag 8".to_owned(), TailRelease { start: u64::MAX, version: 1 }));
    tails.push(("tag 9".to_owned(), TailRelease { start: 4, version: u64::MAX }));
    let released = store.release_many(tails.clone()).await;
    assert_eq!((released.taken_back, released.failures), (1_099, 0), "{:?}", released.error);
    let again = store.release_many(tails).await;
    assert_eq!((again.taken_back, again.failures), (0, 0), "what is resent changes nothing");
    for (tag, start) in [("tag 0", 4), ("tag 7", 21), ("tag 8", 4), ("tag 1099", 4)] {
        assert_eq!(store.allocate(tag, 1, 0).await.unwrap().start, start, "{tag}");
    }
    store.close().await;
    let failed = store.release_many(vec![("tag 0".to_owned(), TailRelease { start: 4, version: 3 })]).await;
    assert_eq!(failed.failures, 1);
}

#[tokio::test]
async fn a_store_has_an_identity_for_life_and_a_file_of_before_gets_one() {
    let directory = directory();
    let path = directory.path().join("ids.sqlite");
    let store = open(&path).await.unwrap();
    let identity = SegmentStore::identity(&store).await.unwrap().unwrap().to_string();
    assert!(identity.len() == 32 && identity.chars().all(|digit| digit.is_ascii_hexdigit()), "{identity}");
    store.close().await;
    let store = open(&path).await.unwrap();
    assert_eq!(SegmentStore::identity(&store).await.unwrap().unwrap().to_string(), identity);
    store.close().await;
    let options = SqliteConnectOptions::new().filename(&path);
    let mut connection = options.connect().await.unwrap();
    sqlx::raw_sql("DROP TABLE identity").execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let store = open(&path).await.unwrap();
    assert_ne!(SegmentStore::identity(&store).await.unwrap().unwrap().to_string(), identity);
}

#[tokio::test]
async fn what_is_no_database_is_refused_and_left_alone() {
    let directory = directory();
    let path = directory.path().join("ids.sqlite");
    for content in [b"short".to_vec(), b"# a text file\n".repeat(1_000), vec![0; 8_192], vec![0xff; 512]] {
        fs::write(&path, content).unwrap();
        let error = assert_refused_untouched(&path, "ids.sqlite is not a SQLite database: name another file").await;
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
        assert!(!error.to_string().contains("damaged"), "{error}");
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

#[tokio::test]
async fn beside_what_others_make_of_its_tables_nothing_is_granted() {
    let now_ms = || SystemClock.now_ms();
    for (change, undo, words) in [
        (
            "CREATE TRIGGER back AFTER UPDATE ON TAG BEGIN UPDATE tag SET watermark = OLD.watermark WHERE tag = NEW.tag; END",
            "DROP TRIGGER back",
            "the trigger \"back\" on the table \"TAG\"",
        ),
        (
            "CREATE TRIGGER no BEFORE UPDATE ON tag BEGIN SELECT RAISE(IGNORE); END",
            "DROP TRIGGER no",
            "the trigger \"no\"",
        ),
        ("CREATE TRIGGER no AFTER UPDATE ON lease BEGIN SELECT 1; END", "DROP TRIGGER no", "the trigger \"no\""),
    ] {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("ids.sqlite");
        let store = open(&path).await.unwrap();
        assert_eq!(store.allocate("order", 10, 0).await.unwrap().start, 1);
        let lease = store.acquire(&acquire("holder", now_ms())).await.unwrap();
        let mut other = SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
        sqlx::query(change).execute(&mut other).await.unwrap();
        for error in [
            store.allocate("order", 10, 0).await.unwrap_err(),
            store.allocate("new", 10, 0).await.unwrap_err(),
            store.acquire(&acquire("other", now_ms())).await.unwrap_err(),
            store.extend(&extend(&lease, now_ms())).await.unwrap_err(),
            open(&path).await.unwrap_err(),
        ] {
            assert!(matches!(error, StoreError::Refused { .. }) && error.to_string().contains(words), "{error:?}");
        }
        sqlx::query(undo).execute(&mut other).await.unwrap();
        assert_eq!(store.allocate("order", 10, 0).await.unwrap().start, 11);
        // A column more is nobody's loss.
        sqlx::query("ALTER TABLE tag ADD COLUMN more INTEGER").execute(&mut other).await.unwrap();
        sqlx::query("ALTER TABLE lease ADD COLUMN more INTEGER").execute(&mut other).await.unwrap();
        assert_eq!(store.allocate("order", 10, 0).await.unwrap().start, 21);
        store.extend(&extend(&lease, now_ms())).await.unwrap();
        // A table without its key is.
        for copy in ["CREATE TABLE copied AS SELECT * FROM tag", "DROP TABLE tag", "ALTER TABLE copied RENAME TO tag"] {
            sqlx::query(copy).execute(&mut other).await.unwrap();
        }
        let error = open(&path).await.unwrap_err();
        assert!(error.to_string().contains("changed the table \"tag\""), "{error}");
    }
}

/// The tables of tags as version 1 created them, but for write-ahead logging: no store is opened in a process that has
/// the index of the log open by other means.
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
