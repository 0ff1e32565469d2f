//! What the tests of local leases do in a process of its own: `local-child ROLE DIRECTORY ..`.
#![expect(clippy::unwrap_used, reason = "a child that cannot go on fails its test")]

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::OnceCell;
use unalike::{Clock, Ids, SnowflakeOptions, SystemClock};
use unalike_local::{LocalLeases, LocalOptions, StaticWorker};
use unalike_memory::MemoryStore;
use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_storage::{GrantId, Lease, LeaseAcquire, LeaseExtend, LeaseLimits, LeaseRecord, LeaseStore, StoreError};
use unalike_tests::clock::HandClock;
use unalike_tests::local::{Run, acquire, extend, layout};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (role, rest) = arguments.split_first().unwrap();
    match (role.as_str(), rest) {
        ("run", arguments) => run(&Run::parse(arguments)).await,
        ("release", [directory, path, moment]) => release(Path::new(directory), Path::new(path), moment).await,
        ("failing-writes", [directory]) => failing_writes(Path::new(directory)).await,
        ("fork", [directory]) => fork(Path::new(directory)).await,
        _ => panic!("usage: local-child run|release|failing-writes|fork .., not {arguments:?}"),
    }
}

/// A SQLite store that is opened when it is first needed, and must be there already.
struct Sqlite {
    path: PathBuf,
    store: OnceCell<SqliteStore>,
}

impl Sqlite {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), store: OnceCell::new() }
    }

    async fn store(&self) -> Result<&SqliteStore, StoreError> {
        let options = SqliteOptions {
            create: false,
            busy_timeout: Duration::from_millis(500),
            // Its clock is this machine's, and a clock that a test sets may stand anywhere.
            limits: LeaseLimits { max_skew_ms: u64::MAX, ..LeaseLimits::default() },
            ..SqliteOptions::new(self.path.clone())
        };
        self.store.get_or_try_init(|| SqliteStore::connect(options)).await
    }
}

#[async_trait]
impl LeaseStore for Sqlite {
    async fn acquire(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError> {
        self.store().await?.acquire(acquire).await
    }

    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        self.store().await?.extend(extend).await
    }

    async fn release(&self, namespace: &str, worker: u32, grant_id: GrantId, end_ms: u64) -> Result<bool, StoreError> {
        LeaseStore::release(self.store().await?, namespace, worker, grant_id, end_ms).await
    }

    async fn forbid_extension(&self, namespace: &str, worker: u32) -> Result<Option<LeaseRecord>, StoreError> {
        self.store().await?.forbid_extension(namespace, worker).await
    }

    async fn leases(&self, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        self.store().await?.leases(namespace).await
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        self.store().await?.namespaces().await
    }
}

/// The system's clock, set wrong.
struct Off(i64);

impl Clock for Off {
    fn now_ms(&self) -> u64 {
        SystemClock.now_ms().checked_add_signed(self.0).unwrap()
    }
}

/// Prints ids all the time until its standard input ends, and then closes in good order. An error is a line, too,
/// and no reason to stop.
async fn run(run: &Run) {
    let options = LocalOptions { lead_ms: run.lead_ms, give_back: run.give_back, ..LocalOptions::new(&run.directory) };
    let opened: Result<Arc<dyn LeaseStore>, StoreError> = match run.worker {
        Some(worker) => StaticWorker::open_unguarded(worker, options).await.map(|store| Arc::new(store) as _),
        None => {
            let inner = Arc::new(Sqlite::new(&run.store));
            LocalLeases::open(inner, options).await.map(|store| Arc::new(store) as _)
        }
    };
    let store = match opened {
        Ok(store) => store,
        Err(error) => return println!("refused {error}"),
    };
    let clock: Arc<dyn Clock> = match &run.clock {
        Some(file) => Arc::new(HandClock::open(file).unwrap()),
        None => Arc::new(Off(run.offset_ms)),
    };
    let ids = Ids::builder().leases(store).holder("child").clock(clock).wait_max(Duration::from_secs(1));
    let ids = ids.build().await.unwrap();
    let mut options = SnowflakeOptions::new(layout(run.tick_ms));
    options.horizon_ms = run.horizon_ms;
    let flakes = ids.snowflake("default", options).await.unwrap();
    let stopped = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&stopped);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        stop.store(true, Ordering::SeqCst);
    });
    let mut out = std::io::stdout();
    while !stopped.load(Ordering::SeqCst) {
        let mut line = String::new();
        match flakes.take(20).await {
            Ok(batch) => {
                line.push_str("ids");
                for id in &batch {
                    line.push_str(&format!(" {id}"));
                }
            }
            Err(error) => {
                line.push_str("error");
                let mut cause: Option<&dyn std::error::Error> = Some(&error);
                while let Some(error) = cause {
                    line.push_str(&format!(" {error};"));
                    cause = error.source();
                }
            }
        }
        line.push('\n');
        out.write_all(line.as_bytes()).unwrap();
        // Some ids of every millisecond: more would only keep the test busy.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    ids.close().await;
}

/// A store whose releases never come back to the process that sent them.
struct Deadly {
    inner: Sqlite,
    is_sent: bool,
}

#[async_trait]
impl LeaseStore for Deadly {
    async fn acquire(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError> {
        self.inner.acquire(acquire).await
    }

    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        self.inner.extend(extend).await
    }

    async fn release(&self, namespace: &str, worker: u32, grant_id: GrantId, end_ms: u64) -> Result<bool, StoreError> {
        if self.is_sent {
            assert!(self.inner.release(namespace, worker, grant_id, end_ms).await?, "it is taken");
        }
        std::process::exit(0);
    }

    async fn forbid_extension(&self, namespace: &str, worker: u32) -> Result<Option<LeaseRecord>, StoreError> {
        self.inner.forbid_extension(namespace, worker).await
    }

    async fn leases(&self, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        self.inner.leases(namespace).await
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        self.inner.namespaces().await
    }
}

/// Prints the piece that it holds and ends within a release of its first tick: before the local copy is void, before
/// the store hears of it, or after.
async fn release(directory: &Path, path: &Path, moment: &str) {
    let inner = Deadly { inner: Sqlite::new(path), is_sent: moment == "sent" };
    let store = LocalLeases::open(Arc::new(inner), LocalOptions::new(directory)).await.unwrap();
    let lease = store.acquire(&acquire(SystemClock.now_ms(), 1, 60_000)).await.unwrap();
    println!("{} {} {}", lease.worker, lease.not_before_ms, lease.valid_until_ms);
    if moment == "unwritten" {
        limit_file_size(0);
    }
    let released = store.release("default", lease.worker, lease.grant_id, lease.not_before_ms + 1).await;
    assert_eq!(moment, "unwritten", "a release ends the process: {released:?}");
    let error = released.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    // The generator is closed: what it held is over for this process, whatever the disk says.
    let late = store.extend(&extend(&lease, SystemClock.now_ms(), 1, 60_000)).await;
    assert!(matches!(late, Err(StoreError::LeaseLost { .. })), "{late:?}");
}

/// Its disk takes fewer bytes than it should, now and then.
async fn failing_writes(directory: &Path) {
    let now_ms = || SystemClock.now_ms();
    let inner: Arc<dyn LeaseStore> = Arc::new(MemoryStore::default());
    let options = LocalOptions { lead_ms: 50, ..LocalOptions::new(directory) };
    let store = LocalLeases::open(Arc::clone(&inner), options.clone()).await.unwrap();
    let mut lease = store.acquire(&acquire(now_ms(), 1, 60_000)).await.unwrap();
    for room in [0, 1, 100, 300] {
        limit_file_size(room);
        for _ in 0..3 {
            // Past the piece, so that it must be raised.
            let error = store.extend(&extend(&lease, lease.valid_until_ms, 1, 60_000)).await.unwrap_err();
            assert_written(&error, directory);
            let error = store.acquire(&acquire(now_ms(), 1, 60_000)).await.unwrap_err();
            assert_written(&error, directory);
        }
        limit_file_size(u64::from(u32::MAX));
        let raised = store.extend(&extend(&lease, lease.valid_until_ms, 1, 60_000)).await.unwrap();
        assert_eq!((raised.worker, raised.grant_id), (lease.worker, lease.grant_id));
        assert!(raised.valid_until_ms > lease.valid_until_ms);
        lease = raised;
    }
    limit_file_size(0);
    store.extend(&extend(&lease, lease.valid_until_ms, 1, 60_000)).await.unwrap_err();
    drop(store);
    limit_file_size(u64::from(u32::MAX));
    let store = LocalLeases::open(inner, options).await.unwrap();
    let next = store.acquire(&acquire(lease.valid_until_ms, 1, 60_000)).await.unwrap();
    assert_eq!((next.worker, next.not_before_ms), (lease.worker, lease.valid_until_ms), "from the last good bound on");
}

fn assert_written(error: &StoreError, directory: &Path) {
    let file = directory.join("default.lease.json");
    let names_it = error.to_string().contains(&file.display().to_string());
    assert!(matches!(error, StoreError::Unavailable { .. }) && names_it, "{error:?}");
}

/// A forked child has its parent's memory and lock, and none of its leases.
async fn fork(directory: &Path) {
    let store = LocalLeases::open(Arc::new(MemoryStore::default()), LocalOptions::new(directory)).await.unwrap();
    let lease = store.acquire(&acquire(SystemClock.now_ms(), 1, 60_000)).await.unwrap();
    let before = std::fs::read(directory.join("default.lease.json")).unwrap();
    #[expect(unsafe_code, reason = "the standard library cannot fork")]
    // SAFETY: the child calls what needs no other thread, and leaves without unwinding.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "it forks");
    let now_ms = SystemClock.now_ms() + 1_000;
    if child == 0 {
        let acquired = store.acquire(&acquire(now_ms, 1, 60_000)).await;
        let extended = store.extend(&extend(&lease, now_ms, 1, 60_000)).await;
        let released = store.release("default", lease.worker, lease.grant_id, lease.not_before_ms).await;
        let refused = |error: Option<&StoreError>| {
            error.is_some_and(|error| matches!(error, StoreError::Refused { what, .. } if what.contains("fork")))
        };
        let all =
            refused(acquired.as_ref().err()) && refused(extended.as_ref().err()) && refused(released.as_ref().err());
        #[expect(unsafe_code, reason = "a forked child runs no handlers of its parent")]
        // SAFETY: it never returns.
        unsafe {
            libc::_exit(if all { 0 } else { 1 })
        }
    }
    let mut status = 0;
    #[expect(unsafe_code, reason = "the standard library did not start the child")]
    // SAFETY: the pointer is to a live integer.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0), "the child is refused everything");
    assert_eq!(std::fs::read(directory.join("default.lease.json")).unwrap(), before, "and has written nothing");
    store.extend(&extend(&lease, now_ms, 1, 60_000)).await.unwrap();
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
