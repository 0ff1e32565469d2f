//! A holder of a lease in a process of its own: `lease-child KEY=VALUE..`, as `unalike_tests::holders::Settings` reads
//! it.
//!
//! It takes ids of a snowflake, by turns one and several, until its standard input ends; then it gives its lease back.
//! What it prints is read by `unalike_tests::holders::Said`.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use tokio::runtime::Runtime;
use unalike::{Error, ErrorKind, Ids, Sequence, SequenceOptions, Snowflake, StepPolicy};
use unalike_memory::MemoryStore;
use unalike_storage::{
    GrantId, Lease, LeaseAcquire, LeaseExtend, LeaseRecord, LeaseStore, Mode, SegmentStore, StoreError, TagOptions,
};
use unalike_tests::clock::HandClock;
use unalike_tests::holders::{Failure, Operation, Place, Settings, What, say};

fn main() -> anyhow::Result<()> {
    let settings = Settings::read(std::env::args().skip(1))?;
    let stopped = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&stopped);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        stop.store(true, Ordering::SeqCst);
    });

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let store = runtime.block_on(settings.open_store()).context("opening the store")?;
    let store = Arc::new(Witness { store, settings: settings.clone(), answers: AtomicU64::new(0) });
    let holder = settings.holder.replace("{pid}", &std::process::id().to_string());
    let segments = Arc::new(MemoryStore::default());
    let ordered = TagOptions { mode: Mode::Ordered, ..TagOptions::default() };
    runtime.block_on(segments.create_tag("rounds", &ordered))?;
    let builder = Ids::builder().segments(segments).leases(store).lanes(1).holder(holder);
    let builder = builder.wait_max(Duration::from_millis(settings.wait_max_ms));
    let builder = builder.request_timeout(Duration::from_millis(settings.request_timeout_ms));
    let builder = match &settings.clock {
        Some(file) => builder.clock(Arc::new(HandClock::open(file)?)),
        None => builder,
    };
    let ids = runtime.block_on(builder.build())?;
    let flakes = runtime.block_on(ids.snowflake(&settings.namespace, settings.options()?))?;

    if settings.forks > 0 {
        let orders = SequenceOptions { step: Some(StepPolicy::Fixed { step: 2 }), ..SequenceOptions::default() };
        let orders = runtime.block_on(ids.sequence("orders", orders))?;
        let rounds = runtime.block_on(ids.sequence("rounds", SequenceOptions::default()))?;
        fork_while_threads_take_ids(&Open { flakes, orders, rounds }, settings.forks)?;
    } else {
        take_ids(&runtime, &flakes, &settings, &stopped);
    }
    runtime.block_on(ids.close());
    Ok(())
}

/// Takes ids by turns until it is told to stop.
fn take_ids(runtime: &Runtime, flakes: &Snowflake, settings: &Settings, stopped: &AtomicBool) {
    let mut turn = 0_u64;
    while !stopped.load(Ordering::SeqCst) {
        turn += 1;
        let got = if turn.is_multiple_of(2) {
            runtime.block_on(flakes.take(settings.batch)).map(|batch| batch.iter().collect())
        } else {
            runtime.block_on(flakes.next()).map(|id| vec![id])
        };
        tell(got);
        std::thread::sleep(Duration::from_micros(settings.pause_us));
    }
}

/// What a program with threads may have open when it forks.
struct Open {
    flakes: Snowflake,
    /// Of few ids a run.
    orders: Sequence,
    /// Each of whose ids is asked of its store.
    rounds: Sequence,
}

/// Forks so often while threads take ids.
fn fork_while_threads_take_ids(open: &Open, forks: u32) -> anyhow::Result<()> {
    let stopped = AtomicBool::new(false);
    let (forked, taken) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| open.take_until(&stopped))).collect();
        // The threads hold their locks at other moments each time.
        let forked = (0..forks).try_for_each(|_| {
            std::thread::sleep(Duration::from_micros(300));
            open.fork()
        });
        stopped.store(true, Ordering::SeqCst);
        (forked, threads.into_iter().filter_map(|thread| thread.join().ok()).collect::<Vec<_>>())
    });
    forked?;
    ensure!(taken.len() == 3, "a thread panicked");
    let mut taken = taken.concat();
    taken.sort_unstable();
    taken.chunks(100).for_each(|ids| say(What::Ids(ids.to_vec())));
    Ok(())
}

impl Open {
    /// Forks; the child tries to have an id.
    #[expect(unsafe_code, reason = "fork is what is tested")]
    fn fork(&self) -> anyhow::Result<()> {
        // SAFETY: the child only calls what is documented to work in it, and leaves by _exit.
        let id = unsafe { libc::fork() };
        ensure!(id >= 0, "no fork: {}", std::io::Error::last_os_error());
        if id == 0 {
            // SAFETY: both take an integer. A child that waits for ever is ended by the alarm.
            unsafe {
                libc::alarm(10);
                libc::_exit(i32::from(!self.is_abandoned()));
            }
        }
        let mut status = 0;
        // SAFETY: the child exists and `status` is a place for its status.
        let ended = unsafe { libc::waitpid(id, &raw mut status, 0) };
        say(What::Forked(status));
        ensure!(ended == id && status == 0, "the child ended with the status {status}");
        Ok(())
    }

    /// The snowflake's ids.
    fn take_until(&self, stopped: &AtomicBool) -> Vec<u64> {
        let mut taken = Vec::new();
        while !stopped.load(Ordering::SeqCst) {
            taken.extend(self.flakes.next_blocking());
            taken.extend(self.flakes.take_blocking(3).iter().flatten());
            // When a tick is spent, this asks the component for more again and again: locks are held most of the time.
            (0..300).for_each(|_| taken.extend(self.flakes.try_next().ok().flatten()));
            (0..300).for_each(|_| drop(self.orders.next_blocking()));
            (0..10).for_each(|_| drop(self.rounds.next_blocking()));
        }
        taken
    }

    /// Whether every way to an id says that it was inherited.
    fn is_abandoned(&self) -> bool {
        let Self { flakes, orders, rounds } = self;
        [
            flakes.try_next().err(),
            flakes.next_blocking().err(),
            flakes.take_blocking(3).err(),
            flakes.status().err(),
            orders.try_next().err(),
            orders.next_blocking().err(),
            orders.take_blocking(3).err(),
            orders.status().err(),
            rounds.next_blocking().err(),
            rounds.take_blocking(3).err(),
            rounds.status().err(),
        ]
        .iter()
        .all(|error| error.as_ref().is_some_and(|error| matches!(error.kind(), ErrorKind::Forked { .. })))
    }
}

fn tell(got: Result<Vec<u64>, Error>) {
    match got {
        Ok(ids) => say(What::Ids(ids)),
        Err(error) => {
            say(What::Error(Failure::from(&error)));
            // It is asked again, but not as fast as possible.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Says what the store grants before its holder hears of it, loses answers, and stands still in releases.
struct Witness {
    store: Arc<dyn LeaseStore>,
    settings: Settings,
    /// How many answers there were of the operation whose answers are lost.
    answers: AtomicU64,
}

impl Witness {
    /// Whether the answer of this operation, which was carried out, is heard.
    fn hear(&self, operation: Operation) -> Result<(), StoreError> {
        let is_lost = self.settings.loses == Some(operation)
            && self.answers.fetch_add(1, Ordering::SeqCst).is_multiple_of(self.settings.loses_every);
        if !is_lost {
            return Ok(());
        }
        say(What::Lost(operation));
        Err(StoreError::outcome_unknown(format!("{operation}: the answer was thrown away")))
    }

    fn granted(&self, operation: Operation, lease: Lease) -> Result<Lease, StoreError> {
        self.hear(operation)?;
        say(What::Lease(lease));
        Ok(lease)
    }

    async fn stand_still_at(&self, place: Place) {
        if self.settings.stands_still == Some(place) {
            say(What::StandsStill(place));
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl LeaseStore for Witness {
    async fn acquire(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError> {
        let lease = self.store.acquire(acquire).await?;
        self.granted(Operation::Acquire, lease)
    }

    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        let lease = self.store.extend(extend).await?;
        self.granted(Operation::Extend, lease)
    }

    async fn release(&self, namespace: &str, worker: u32, grant_id: GrantId, end_ms: u64) -> Result<bool, StoreError> {
        self.stand_still_at(Place::BeforeRelease).await;
        say(What::Releases { grant_id: grant_id.0, end_ms });
        let taken_back = self.store.release(namespace, worker, grant_id, end_ms).await?;
        self.stand_still_at(Place::AfterRelease).await;
        self.hear(Operation::Release)?;
        say(What::Released(taken_back));
        Ok(taken_back)
    }

    async fn forbid_extension(&self, namespace: &str, worker: u32) -> Result<Option<LeaseRecord>, StoreError> {
        self.store.forbid_extension(namespace, worker).await
    }

    async fn leases(&self, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        self.store.leases(namespace).await
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        self.store.namespaces().await
    }

    fn reach_ms(&self, namespace: &str, worker: u32) -> Option<u64> {
        self.store.reach_ms(namespace, worker)
    }

    async fn close(&self) {
        self.store.close().await;
    }
}
