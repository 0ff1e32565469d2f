//! The component and the native core in one program: the same ids, over the same stores.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::HashSet;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use fastrand::Rng;
use unalike::storage::{
    GrantId, Lease, LeaseAcquire, LeaseExtend, LeaseRecord, LeaseStore, Mode, Segment, SegmentLayer, SegmentStore,
    StoreError, TagOptions,
};
use unalike::{
    Batch, Clock, ClockPolicy, Engine, Error, Ids, Layout, SequenceOptions, Snowflake, SnowflakeOptions, StepPolicy,
};
use unalike_memory::{MemoryOptions, MemoryStore};

const ENGINES: [Engine; 2] = [Engine::Component, Engine::Native];

/// A clock that goes on when the test says so.
struct Told(AtomicU64);

impl Clock for Told {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// An application of its own, with a store and a clock of its own.
struct World {
    ids: Ids,
    flakes: Snowflake,
    clock: Arc<Told>,
}

impl World {
    async fn new(engine: Engine) -> Self {
        let clock = Arc::new(Told(AtomicU64::new(1_700_000_000_000)));
        let shown = Arc::clone(&clock);
        let options = MemoryOptions { clock: Arc::new(move || shown.now_ms()), ..MemoryOptions::default() };
        let store = Arc::new(MemoryStore::new(options));
        let ordered = TagOptions { mode: Mode::Ordered, ..TagOptions::default() };
        store.create_tag("ordered", &ordered).await.unwrap();
        let ids = Ids::builder().segments(store.clone()).leases(store).engine(engine).clock(clock.clone());
        let ids = ids.preferred_worker(7).lanes(1).build().await.unwrap();
        let flakes = ids.snowflake("default", SnowflakeOptions::new(Layout::TWITTER)).await.unwrap();
        Self { ids, flakes, clock }
    }

    /// One draw, as the numbers say: its ids, or the name of its error.
    async fn draw(&self, kind: u8, count: u32) -> Result<Vec<u64>, &'static str> {
        let drawn = match kind {
            0 | 1 => {
                let step = Some(StepPolicy::Fixed { step: 50 });
                let options = SequenceOptions { step, id_max: Some(9_000), ..SequenceOptions::default() };
                let tag = if kind == 0 { "order" } else { "invoice" };
                match self.ids.sequence(tag, options).await {
                    Ok(sequence) => sequence.take(count).await,
                    Err(error) => Err(error),
                }
            }
            2 => match self.ids.sequence("ordered", SequenceOptions::default()).await {
                Ok(sequence) => sequence.take(count).await,
                Err(error) => Err(error),
            },
            _ => {
                self.clock.0.fetch_add(u64::from(count % 3) + 1, Ordering::SeqCst);
                self.flakes.take(count).await
            }
        };
        drawn.map(|batch| batch.iter().collect()).map_err(|error| error.kind().name())
    }
}

#[tokio::test]
async fn both_engines_hand_out_the_same_ids() {
    let [component, native] = ENGINES;
    let (component, native) = (World::new(component).await, World::new(native).await);
    let mut random = Rng::with_seed(1);
    let (mut drawn, mut refused) = (0, 0);
    for draw in 0..2_000 {
        let (kind, count) = (random.u8(..4), random.u32(0..40));
        let answer = component.draw(kind, count).await;
        assert_eq!(answer, native.draw(kind, count).await, "{count} of kind {kind}, in draw {draw}");
        match answer {
            Ok(ids) => drawn += ids.len(),
            Err(_) => refused += 1,
        }
    }
    // Counts of 0 are, and what lies above the bound.
    assert!(drawn > 20_000 && refused > 40, "{drawn} drawn, {refused} refused");
    for world in [component, native] {
        world.ids.close().await;
    }
}

#[tokio::test]
async fn one_engine_goes_on_where_the_other_ended() {
    let store = Arc::new(MemoryStore::default());
    let (mut last, mut seen) = (0, HashSet::new());
    for round in 0..10 {
        let engine = ENGINES[round % 2];
        let ids = Ids::builder().segments(store.clone()).leases(store.clone()).engine(engine).build().await.unwrap();
        let orders = ids.sequence("order", SequenceOptions::default()).await.unwrap();
        let flakes = ids.snowflake("default", SnowflakeOptions::new(Layout::TWITTER)).await.unwrap();
        for id in orders.take(700).await.unwrap().iter() {
            assert!(id > last, "{engine:?}: {id} after {last}");
            last = id;
        }
        for id in flakes.take(5_000).await.unwrap().iter() {
            assert!(seen.insert(id), "{engine:?} handed {id} out again");
        }
        ids.close().await;
    }
    // What was left went back each time, but for the rest of a run.
    assert!(last < 10 * 1_000, "{last}");
}

/// A store whose requests panic, wait, fail, and lose their answers, by turns.
struct Troubled(Arc<MemoryStore>);

impl Troubled {
    async fn pass<T>(&self, request: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        match fastrand::u8(..20) {
            0 => panic!("a panic of a store that is expected"),
            1 => Err(StoreError::unavailable("it is down")),
            2 => {
                // Longer than it may take, now and then.
                tokio::time::sleep(Duration::from_millis(fastrand::u64(..150))).await;
                request.await
            }
            lost @ 3..6 => {
                request.await?;
                assert_ne!(lost, 3, "a panic after a grant, which is expected");
                Err(StoreError::outcome_unknown("its answer is lost"))
            }
            _ => request.await,
        }
    }
}

#[async_trait]
impl SegmentLayer for Troubled {
    fn below(&self) -> Option<&dyn SegmentStore> {
        Some(&*self.0)
    }

    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        self.pass(self.0.allocate(tag, count, at_least)).await
    }
}

#[async_trait]
impl LeaseStore for Troubled {
    async fn acquire(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError> {
        self.pass(self.0.acquire(acquire)).await
    }

    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        self.pass(self.0.extend(extend)).await
    }

    async fn release(&self, namespace: &str, worker: u32, grant_id: GrantId, end_ms: u64) -> Result<bool, StoreError> {
        self.pass(LeaseStore::release(&*self.0, namespace, worker, grant_id, end_ms)).await
    }

    async fn forbid_extension(&self, namespace: &str, worker: u32) -> Result<Option<LeaseRecord>, StoreError> {
        self.0.forbid_extension(namespace, worker).await
    }

    async fn leases(&self, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        self.0.leases(namespace).await
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        self.0.namespaces().await
    }
}

/// What it brings, unless it is given up after so many looks at it.
async fn looked_at<T>(future: impl Future<Output = T>, looks: u32) -> Option<T> {
    let (mut future, mut left) = (pin!(future), looks);
    poll_fn(|context| {
        let Some(rest) = left.checked_sub(1) else { return Poll::Ready(None) };
        left = rest;
        match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => {
                if left == 0 {
                    context.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    })
    .await
}

/// Draws by a runtime of one thread, whose calls are given up at any of their waits; and by calls that block.
fn draw_until(deadline: Instant, ids: &Ids, seen: &Mutex<HashSet<(u8, u64)>>, clock: &Told, blocks: bool) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut drawn, mut random) = (0, Rng::new());
    while Instant::now() < deadline {
        let (kind, count, looks) = (random.u8(..4), random.u32(1..30), random.u32(1..6));
        clock.0.fetch_add(random.u64(..3), Ordering::SeqCst);
        if random.u8(..) == 0 {
            clock.0.fetch_sub(1_000, Ordering::SeqCst);
        }
        let tag = match kind {
            0 => "order",
            1 => "invoice",
            _ => "ordered",
        };
        let snowflake = SnowflakeOptions {
            clock: ClockPolicy::Keep { max_ms: 5_000 },
            horizon_ms: 10_000,
            ..SnowflakeOptions::new(Layout::TWITTER)
        };
        let options = SequenceOptions { step: Some(StepPolicy::Fixed { step: 50 }), ..SequenceOptions::default() };
        let began = Instant::now();
        let batch: Option<Result<Batch, Error>> = if blocks {
            Some(if kind < 3 {
                ids.sequence_blocking(tag, options).and_then(|sequence| sequence.take_blocking(count))
            } else {
                ids.snowflake_blocking("default", snowflake).and_then(|flakes| flakes.take_blocking(count))
            })
        } else {
            runtime.block_on(looked_at(
                async {
                    if kind < 3 {
                        ids.sequence(tag, options).await?.take(count).await
                    } else {
                        ids.snowflake("default", snowflake).await?.take(count).await
                    }
                },
                looks,
            ))
        };
        // Two waits at most, and whatever the machine does meanwhile.
        assert!(began.elapsed() < Duration::from_secs(30), "a call took {:?}", began.elapsed());
        let Some(Ok(batch)) = batch else { continue };
        let mut seen = seen.lock().unwrap();
        for id in batch.iter() {
            assert!(seen.insert((kind, id)), "{id} of kind {kind} came twice");
            drawn += 1;
        }
    }
    drawn
}

#[tokio::test(flavor = "multi_thread")]
async fn both_engines_share_a_troubled_store_and_no_id_comes_twice() {
    let clock = Arc::new(Told(AtomicU64::new(1_700_000_000_000)));
    let shown = Arc::clone(&clock);
    let options = MemoryOptions { clock: Arc::new(move || shown.now_ms()), ..MemoryOptions::default() };
    let store = Arc::new(MemoryStore::new(options));
    store.create_tag("ordered", &TagOptions { mode: Mode::Ordered, ..TagOptions::default() }).await.unwrap();
    let troubled = Arc::new(Troubled(store));
    let ids: Vec<_> = ENGINES
        .into_iter()
        .flat_map(|engine| [engine, engine])
        .map(|engine| {
            let ids = Ids::builder().segments(troubled.clone()).leases(troubled.clone()).clock(clock.clone());
            let ids = ids.engine(engine).lanes(1).wait_max(Duration::from_millis(300));
            ids.request_timeout(Duration::from_millis(100)).build_blocking().unwrap()
        })
        .collect();
    let (seen, deadline) = (Mutex::default(), Instant::now() + Duration::from_secs(4));
    let (shared, clock) = (&seen, &*clock);
    let drawn: Vec<u64> = std::thread::scope(|scope| {
        let draw = |ids, blocks| scope.spawn(move || draw_until(deadline, ids, shared, clock, blocks));
        let drawing: Vec<_> = ids.iter().flat_map(|ids| [draw(ids, false), draw(ids, true)]).collect();
        drawing.into_iter().map(|one| one.join().unwrap()).collect()
    });
    println!("{drawn:?} ids");
    assert!(drawn.iter().all(|drawn| *drawn > 0), "{drawn:?}");
    for ids in ids {
        ids.close().await;
    }
}
