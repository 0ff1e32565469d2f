//! Snowflakes by the clock of a real Redis: their fields, their order, and that no id repeats whatever Redis loses and
//! whatever its clock does.

#![expect(clippy::panic_in_result_fn, clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::io::Write;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use async_trait::async_trait;
use tempfile::TempDir;
use unalike_core::{Rfc3339, StoreFailure};
use unalike_memory::MemoryStore;
use unalike_redis::{Backing, Dialect, RedisOptions, RedisStore};
use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_storage::contract::{Fixture, SegmentFixture, segment_checks as check};
use unalike_storage::{
    Layout, LayoutFields, Mode, Parts, RefillPolicy, Segment, SegmentStore, StepPolicy, StoreError, TagCreation,
    TagOptions, sub_tag,
};
use unalike_tests::PATIENCE;
use unalike_tests::clients::{Clients, assert_ascends_in_real_time, assert_disjoint, assert_each_ascends};
use unalike_tests::faulty::FaultyStore;
use unalike_tests::leases::now_ms;
use unalike_tests::redis::{Persistence, Redis};

const CHILD: &str = env!("CARGO_BIN_EXE_redis-clock-child");

const CLIENTS: usize = 8;

/// The ids of this epoch, which is the default one.
const LAYOUT: Layout = match Layout::new(LayoutFields { epoch_ms: Dialect::EPOCH_MS, ..Layout::REDIS_SHARDED.fields() })
{
    Ok(layout) => layout,
    Err(_) => panic!("a layout"),
};

/// Where the fixture's hash of the tag `order`, shard 60, is.
const KEY: &str = "unalike:clock:{order}:60";

/// The tag under which the durable store grants its ms.
const LEASE: &str = "order\u{1f}redis-clock:60";

/// Now, in ms since the epoch of the ids.
fn now_tick() -> u64 {
    now_ms() - LAYOUT.epoch_ms()
}

async fn connect(redis: &Redis, durable: Arc<dyn SegmentStore>, parameters: &str) -> Result<RedisStore, StoreError> {
    // Longer than this machine is ever busy with something else.
    let patient = "connect-timeout-ms=20000&request-timeout-ms=20000&raise-timeout-ms=20000";
    let options = RedisOptions::from_url(&redis.url(0, &format!("dialect=clock&shard=60&{patient}&{parameters}")))?;
    RedisStore::connect(options, Backing::Durable(durable)).await
}

/// The tick of all ids of a segment; they must be of one tick and shard.
fn tick(segment: &Segment) -> u64 {
    let (first, last) = (LAYOUT.unpack(segment.start).unwrap(), LAYOUT.unpack(segment.end - 1).unwrap());
    assert_eq!((first.ticks, first.worker), (last.ticks, last.worker), "one ms and shard: {segment:?}");
    assert_eq!(segment.stride, 1, "{segment:?}");
    first.ticks
}

/// An id, however often it is to be asked for again.
async fn one(store: &RedisStore) -> anyhow::Result<Segment> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match store.allocate("order", 1, 0).await {
            Err(error) if error.is_retryable() && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            answer => return Ok(answer?),
        }
    }
}

/// The field of the hash of `order`.
fn field(redis: &Redis, name: &str) -> anyhow::Result<u64> {
    redis.cli(&["HGET", KEY, name])?.parse().context("a number")
}

fn assert_ascend(segments: &[Segment]) {
    for pair in segments.windows(2) {
        if let [a, b] = pair {
            assert!(a.end <= b.start, "ids ascend: {a:?} {b:?}");
        }
    }
}

/// A server, and a file that keeps the ends of leases.
struct UnderSqlite {
    redis: Mutex<Redis>,
    directory: TempDir,
}

impl UnderSqlite {
    fn start(persistence: Persistence) -> anyhow::Result<Self> {
        Ok(Self { redis: Mutex::new(Redis::start(persistence)?), directory: TempDir::new()? })
    }

    fn file(&self) -> String {
        self.directory.path().join("ids.sqlite").to_str().unwrap().to_owned()
    }

    fn redis(&self) -> std::sync::MutexGuard<'_, Redis> {
        self.redis.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn url(&self) -> String {
        self.redis().url(0, "dialect=clock&shard=60&horizon-ms=300&connect-timeout-ms=20000&raise-timeout-ms=20000")
    }
}

#[async_trait]
impl Fixture for UnderSqlite {
    async fn restart(&self) {
        self.redis().restart().unwrap();
    }
}

#[async_trait]
impl SegmentFixture for UnderSqlite {
    async fn segment_client(&self, creation: TagCreation) -> Arc<dyn SegmentStore> {
        let durable = SqliteOptions { creation, ..SqliteOptions::new(self.file()) };
        let durable = Backing::Durable(Arc::new(SqliteStore::connect(durable).await.unwrap()));
        let options = RedisOptions::from_url(&self.url()).unwrap();
        Arc::new(RedisStore::connect(options, durable).await.unwrap())
    }

    fn takes_tails_back(&self) -> bool {
        false
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_contract_holds_but_for_numbers_that_count_up() -> anyhow::Result<()> {
    let fixture = UnderSqlite::start(Persistence::Nothing)?;
    check::grants_are_well_formed_and_ascend(&fixture).await;
    check::concurrent_clients_never_share_a_number(&fixture).await;
    check::a_tail_is_taken_back_once(&fixture).await;
    check::a_tail_that_was_not_granted_is_not_taken_back(&fixture).await;
    check::an_abandoned_request_costs_only_numbers(&fixture).await;
    Ok(())
}

// What ids are made of.

#[tokio::test(flavor = "multi_thread")]
async fn an_id_has_the_time_the_shard_and_a_sequence() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::Nothing)?;
    let durable: Arc<FaultyStore> = Arc::default();
    for (epoch_ms, tag, shard) in [(0, "a", 60), (Dialect::EPOCH_MS, "b", 60), (Dialect::EPOCH_MS, "b\u{1f}6", 6)] {
        let store = connect(&redis, durable.clone(), &format!("epoch={epoch_ms}")).await?;
        let layout = Layout::new(LayoutFields { epoch_ms, ..LAYOUT.fields() })?;
        let before_ms = now_ms();
        let ids = store.allocate(tag, 3, 0).await?;
        let Parts { ticks, worker, sequence } = layout.unpack(ids.start)?;
        assert!((before_ms..=now_ms() + 10).contains(&layout.tick_start_ms(ticks)), "{tag}: {ticks} is now");
        assert_eq!((worker, sequence, ids.count(), ids.stride, ids.generation), (shard, 0, 3, 1, 0), "{tag}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_granted_what_is_left_of_a_ms() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::Nothing)?;
    let store = connect(&redis, Arc::new(FaultyStore::default()), "").await?;
    let mut runs = Vec::new();
    for _ in 0..200 {
        let run = store.allocate("order", u64::MAX, 0).await?;
        assert!(tick(&run) <= now_tick() + 10, "no id is of a time more than 10 ms ahead");
        runs.push(run);
    }
    assert_ascend(&runs);
    let ticks: BTreeSet<u64> = runs.iter().map(tick).collect();
    assert!(runs.iter().all(|run| run.count() == 1_024), "each is all of its ms: {runs:?}");
    assert_eq!(ticks.len(), runs.len());

    // Where a ms is begun, the next request has the rest of it.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (begun, rest) = (store.allocate("order", 1_000, 0).await?, store.allocate("order", 1_024, 0).await?);
        assert_eq!((begun.count(), LAYOUT.unpack(begun.start)?.sequence), (1_000, 0));
        if tick(&begun) == tick(&rest) {
            assert_eq!((rest.start, rest.count()), (begun.end, 24));
            return Ok(());
        }
        assert_eq!(rest.count(), 1_024);
        ensure!(Instant::now() < deadline, "no two requests are in one ms");
        // The rest of the one that was begun, if it is still that ms.
        while store.allocate("order", 1_024, 0).await?.count() < 1_024 {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_at_full_speed_share_no_id_and_ascend_as_they_are_served() -> anyhow::Result<()> {
    let fixture = UnderSqlite::start(Persistence::Nothing)?;
    for count in ["7", "1024"] {
        let mut clients = Clients::start(CHILD, &[&fixture.url(), &fixture.file(), "order", count], CLIENTS)?;
        clients.wait_for(300)?;
        let granted = clients.stop()?;
        assert_disjoint(&granted);
        assert_each_ascends(&granted);
        assert_ascends_in_real_time(&granted);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_one_client_wait_for_the_clock_and_do_not_fail() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::Nothing)?;
    let store = Arc::new(connect(&redis, Arc::new(FaultyStore::default()), "").await?);
    let tasks = (0..50).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let mut runs = Vec::new();
            for _ in 0..20 {
                runs.push(store.allocate("order", 1_024, 0).await?);
            }
            assert_ascend(&runs);
            Ok::<_, StoreError>(runs)
        })
    });
    let mut runs = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        runs.extend(task.await??);
    }
    runs.sort_by_key(|run| run.start);
    assert_ascend(&runs);
    Ok(())
}

// The clock.

#[tokio::test(flavor = "multi_thread")]
async fn a_short_step_back_is_waited_for() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::Nothing)?;
    let store = connect(&redis, Arc::new(FaultyStore::default()), "").await?;
    let before = store.allocate("order", 1, 0).await?;
    // As if the clock had been 400 ms further when it gave the newest id.
    let last = now_tick() + 400;
    redis.cli(&["HSET", KEY, "tick", &last.to_string(), "sequence", "5"])?;
    let next = store.allocate("order", 1, 0).await?;
    assert!(tick(&next) >= last && next.start > before.start, "it never goes back: {next:?} after {last}");
    assert!(now_tick() + 10 >= tick(&next), "and it was waited for");
    if tick(&next) == last {
        assert_eq!(LAYOUT.unpack(next.start)?.sequence, 5, "the ms goes on where it was");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_step_back_is_an_error_that_names_both_times() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::Nothing)?;
    let durable: Arc<FaultyStore> = Arc::default();
    let store = connect(&redis, durable.clone(), "").await?;
    store.allocate("order", 1, 0).await?;
    let grants = durable.allocations();
    let last = now_tick() + 3_600_000;
    redis.cli(&["HSET", KEY, "tick", &last.to_string(), "sequence", "5", "end", &(last + 1_000).to_string()])?;
    let before_ms = now_ms();
    let error = store.allocate("order", 1, 0).await.unwrap_err();
    assert!(error.is_retryable() && !error.may_have_granted(), "{error:?}");
    assert_eq!(error.failure(), StoreFailure::Unavailable);
    let StoreError::ClockBehind { clock_ms, next_ms, retry_after_ms, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*next_ms, LAYOUT.tick_start_ms(last));
    assert!((before_ms..=now_ms()).contains(clock_ms), "{error:?}");
    assert_eq!(retry_after_ms + 10, next_ms - clock_ms, "when it is 10 ms away");
    for figure in [Rfc3339(*clock_ms).to_string(), Rfc3339(*next_ms).to_string(), retry_after_ms.to_string()] {
        assert!(error.to_string().contains(&figure), "{error}");
    }
    assert_eq!(durable.allocations(), grants, "no ms were burnt for it");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_steps_repeats_nothing() -> anyhow::Result<()> {
    let redis = Redis::start_with_a_clock(Persistence::Nothing)?;
    let durable: Arc<FaultyStore> = Arc::default();
    let store = connect(&redis, durable.clone(), "horizon-ms=2000").await?;
    let mut granted = vec![store.allocate("order", 1_024, 0).await?];
    for ahead_ms in [700, 100, -300, 400, -4_000] {
        redis.set_clock(ahead_ms)?;
        for _ in 0..5 {
            granted.push(store.allocate("order", 1_024, 0).await?);
        }
    }
    assert_ascend(&granted);

    // Where it is far from this host's, what it has is all that it gets: what it stamped could not be taken back.
    for ahead_ms in [3_600_000, -3_600_000] {
        redis.set_clock(0)?;
        let before = one(&store).await?;
        let until = durable.inner().tag(LEASE).await?.watermark;
        redis.set_clock(ahead_ms)?;
        if ahead_ms < 0 {
            // A lost hash asks for a lease, where otherwise all had to wait for an hour.
            redis.cli(&["FLUSHALL"])?;
        }
        let error = store.allocate("order", 1, 0).await.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
        assert_eq!(durable.inner().tag(LEASE).await?.watermark, until, "no ms is granted: {error:?}");
        redis.set_clock(0)?;
        assert!(one(&store).await?.start >= before.end, "and it goes on where it was");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_floor_is_waited_for_and_never_jumped_to() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::Nothing)?;
    let store = connect(&redis, Arc::new(FaultyStore::default()), "").await?;
    let first = store.allocate("order", 1, 0).await?;
    let id = |ticks, worker, sequence| LAYOUT.pack(Parts { ticks, worker, sequence });
    let behind = store.allocate("order", 1, first.end).await?;
    assert!(behind.start >= first.end);

    let soon = now_tick() + 300;
    let next = store.allocate("order", 5, id(soon, 60, 7)?).await?;
    assert!(next.start >= id(soon, 60, 7)? && tick(&next) <= now_tick() + 10, "{next:?}");
    let soon = now_tick() + 300;
    let next = store.allocate("order", 5, id(soon, 61, 0)?).await?;
    assert!(tick(&next) > soon, "no id of the shard is left in that ms: {next:?}");

    let error = store.allocate("order", 1, id(now_tick() + 3_600_000, 60, 0)?).await.unwrap_err();
    assert!(matches!(error, StoreError::ClockBehind { .. }), "{error:?}");
    let after = store.allocate("order", 1, 0).await?;
    assert!(tick(&after) <= now_tick() + 10, "others are served on: {after:?}");
    Ok(())
}

// What Redis loses.

/// Clients in processes of their own, while Redis is `lost` three times.
fn under_load(persistence: Persistence, lose: impl Fn(&mut Redis) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let fixture = UnderSqlite::start(persistence)?;
    let (url, file) = (fixture.url(), fixture.file());
    let mut clients = Clients::start(CHILD, &[&url, &file, "order", "40"], CLIENTS)?;
    clients.wait_for(30)?;
    for _ in 0..3 {
        lose(&mut fixture.redis())?;
        clients.wait_for(30)?;
    }
    let granted = clients.stop()?;
    assert_disjoint(&granted);
    assert_each_ascends(&granted);
    assert_ascends_in_real_time(&granted);
    Ok(())
}

#[test]
fn a_redis_that_lost_everything_repeats_nothing() -> anyhow::Result<()> {
    under_load(Persistence::Nothing, Redis::restart)
}

#[test]
fn a_redis_with_an_old_file_repeats_nothing() -> anyhow::Result<()> {
    under_load(Persistence::Rdb, |redis| {
        redis.cli(&["SAVE"])?;
        let saved = field(redis, "tick")?;
        let deadline = Instant::now() + PATIENCE;
        while field(redis, "tick")? < saved + 20 {
            ensure!(Instant::now() < deadline, "no ids are granted");
        }
        redis.restart()
    })
}

#[test]
fn keys_that_are_gone_repeat_nothing() -> anyhow::Result<()> {
    under_load(Persistence::AofEverySecond, |redis| redis.cli(&["FLUSHALL"]).map(drop))
}

/// Checks that nothing is granted but what comes after this tick, which is far away.
fn assert_waits_for(answer: Result<Segment, StoreError>, end: u64) {
    match answer {
        Err(StoreError::ClockBehind { next_ms, .. }) => assert!(next_ms >= LAYOUT.tick_start_ms(end)),
        other => panic!("ms of another incarnation were stamped, or it failed: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_promoted_stamps_nothing_that_its_master_may() -> anyhow::Result<()> {
    let master = Redis::start(Persistence::Nothing)?;
    let durable: Arc<FaultyStore> = Arc::default();
    // A master is another incarnation when its first replica comes.
    let replica = master.start_replica(Persistence::Nothing)?;
    let on_master = connect(&master, durable.clone(), "horizon-ms=60000").await?;
    on_master.allocate("order", 1, 0).await?;
    let end = field(&master, "end")?;
    let deadline = Instant::now() + PATIENCE;
    while field(&replica, "end").ok() != Some(end) {
        ensure!(Instant::now() < deadline, "the hash is not replicated");
    }
    replica.cli(&["REPLICAOF", "NO", "ONE"])?;
    // Both go on: nobody told the master.
    let on_replica = connect(&replica, durable.clone(), "horizon-ms=60000").await?;
    assert_waits_for(on_replica.allocate("order", 1, 0).await, end);
    assert!(tick(&on_master.allocate("order", 1, 0).await?) < end);
    assert!(field(&replica, "end")? > end, "it has ms of its own");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_a_replica_meanwhile_is_another_incarnation() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::Nothing)?;
    let store = connect(&redis, Arc::new(FaultyStore::default()), "horizon-ms=60000").await?;
    store.allocate("order", 1, 0).await?;
    let end = field(&redis, "end")?;
    become_another(&redis)?;
    assert_waits_for(store.allocate("order", 1, 0).await, end);
    Ok(())
}

/// Makes it another incarnation, with all its data and in the same process.
fn become_another(redis: &Redis) -> anyhow::Result<()> {
    let master = ["REPLICAOF", "127.0.0.1", "1"];
    redis.cli(&master)?;
    redis.cli(&["REPLICAOF", "NO", "ONE"]).map(drop)
}

// The durable store.

#[tokio::test(flavor = "multi_thread")]
async fn ids_go_on_to_the_bound_without_the_durable_store() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::Nothing)?;
    let durable: Arc<FaultyStore> = Arc::default();
    let store = connect(&redis, durable.clone(), "horizon-ms=500").await?;
    let mut granted = vec![store.allocate("order", 1, 0).await?];
    durable.set_down(true);
    let end = field(&redis, "end")?;
    let error = loop {
        match store.allocate("order", 1, 0).await {
            Ok(segment) => granted.push(segment),
            Err(error) => break error,
        }
    };
    assert!(now_tick() + 10 >= end, "not before the bound");
    assert!(granted.iter().all(|segment| tick(segment) < end), "and not beyond it");
    assert!(granted.len() > 10, "but until then");
    assert!(error.is_retryable() && !error.may_have_granted(), "{error:?}");
    let StoreError::CeilingReached { tag, source, .. } = &error else { panic!("{error:?}") };
    assert_eq!(tag, "order");
    if let Some(source) = source {
        assert!(source.to_string().contains("connection refused"), "{source}");
    }
    durable.set_down(false);
    granted.push(one(&store).await?);
    assert_ascend(&granted);
    Ok(())
}

/// The clock may have gone back when Redis comes again: what it stamped is known by the durable store alone.
#[tokio::test(flavor = "multi_thread")]
async fn ticks_are_kept_when_another_durable_store_takes_over() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::Nothing)?;
    let stores = [(); 2].map(|()| Arc::<MemoryStore>::default() as Arc<dyn SegmentStore>);
    let before = connect(&redis, Arc::clone(&stores[0]), "horizon-ms=2000").await?;
    let first = one(&before).await?;
    let end = field(&redis, "end")?;
    RedisStore::rebind(&RedisOptions::from_url(&redis.url(0, ""))?, &stores[0], &stores[1]).await?;
    redis.cli(&["FLUSHALL"])?;
    let refused = before.allocate("order", 1, 0).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Refused { what, .. } if what.contains("were moved")), "{refused:?}");
    let next = one(&connect(&redis, Arc::clone(&stores[1]), "horizon-ms=2000").await?).await?;
    assert!(tick(&first) < end && tick(&next) >= end, "{first:?} {next:?} {end}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_renewed_before_it_ends() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::Nothing)?;
    let durable: Arc<FaultyStore> = Arc::default();
    let short = connect(&redis, durable.clone(), "horizon-ms=15000").await?;
    let long = connect(&redis, durable.clone(), "horizon-ms=60000").await?;
    short.allocate("order", 1, 0).await?;
    let end = field(&redis, "end")?;
    // Less is left than a third of what the other client keeps ahead.
    redis.cli(&["HSET", KEY, "low", "20000"])?;
    durable.hold(true);
    let ids = long.allocate("order", 1, 0).await?;
    assert!(tick(&ids) < end, "ids go on meanwhile");
    durable.hold(false);
    let deadline = Instant::now() + PATIENCE;
    while field(&redis, "end")? == end {
        ensure!(Instant::now() < deadline, "nobody renews it");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(field(&redis, "end")? <= now_tick() + 60_000, "and never further ahead than it may");
    assert_eq!(field(&redis, "low")?, 20_000);
    let next = long.allocate("order", 1, 0).await?;
    assert!(next.start >= ids.end && tick(&next) <= now_tick() + 10, "the ms go on: {next:?}");
    Ok(())
}

/// A durable store that lets something happen between a grant and its answer.
#[derive(Default)]
struct Between {
    inner: MemoryStore,
    happens: Mutex<Option<Event>>,
}

type Event = Box<dyn FnOnce(Segment) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

#[async_trait]
impl unalike_storage::SegmentLayer for Between {
    fn below(&self) -> Option<&dyn SegmentStore> {
        Some(&self.inner)
    }

    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        let segment = self.inner.allocate(tag, count, at_least).await?;
        let happens = self.happens.lock().unwrap().take();
        if let Some(happens) = happens {
            happens(segment).await;
        }
        Ok(segment)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_not_installed_when_its_generation_changed() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::Nothing)?;
    let durable: Arc<Between> = Arc::default();
    let store = connect(&redis, durable.clone(), "horizon-ms=1000").await?;
    let beside = Arc::new(connect(&redis, durable.clone(), "horizon-ms=1000").await?);
    beside.open_tag("order").await?;
    let floor = Arc::new(AtomicU64::new(0));
    let raised = Arc::clone(&floor);
    *durable.happens.lock().unwrap() = Some(Box::new(move |granted| {
        Box::pin(async move {
            // The operator lifts the tag into the middle of what is on its way.
            let next = LAYOUT.pack(Parts { ticks: granted.start + 300, worker: 60, sequence: 0 }).unwrap();
            beside.raise_tag("order", next).await.unwrap();
            raised.store(next, Ordering::SeqCst);
        })
    }));
    let first = store.allocate("order", 1, 0).await?;
    let floor = floor.load(Ordering::SeqCst);
    assert!(floor > 0 && first.start >= floor, "what came too late is burnt: {first:?} below {floor}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_not_installed_in_another_incarnation() -> anyhow::Result<()> {
    let redis = Arc::new(Redis::start(Persistence::Nothing)?);
    let durable: Arc<Between> = Arc::default();
    let store = connect(&redis, durable.clone(), "horizon-ms=1000").await?;
    let (changed, burnt_until) = (Arc::clone(&redis), Arc::new(AtomicU64::new(0)));
    let end = Arc::clone(&burnt_until);
    *durable.happens.lock().unwrap() = Some(Box::new(move |granted| {
        Box::pin(async move {
            // It keeps the hash and its generation, and its connections.
            become_another(&changed).unwrap();
            end.store(granted.end, Ordering::SeqCst);
        })
    }));
    let first = store.allocate("order", 1, 0).await?;
    let end = burnt_until.load(Ordering::SeqCst);
    assert!(end > 0 && tick(&first) >= end, "what was for the other one is burnt: {first:?} below {end}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ms_of_another_incarnation_or_of_none_are_not_stamped() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::Nothing)?;
    let durable: Arc<FaultyStore> = Arc::default();
    let store = connect(&redis, durable.clone(), "horizon-ms=60000").await?;
    store.allocate("order", 1, 0).await?;
    let info = redis.cli(&["INFO"])?;
    let of = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim).context("no such line");
    let (run, history) = (of("run_id:")?, of("master_replid:")?);
    let stored = redis.cli(&["HGET", KEY, "incarnation"])?;
    assert_eq!(stored.trim(), format!("{run}:{history}"));
    durable.set_down(true);
    let another = "0".repeat(40);
    for wrong in [None, Some(String::new()), Some(format!("{another}:{history}")), Some(format!("{run}:{another}"))] {
        match &wrong {
            Some(wrong) => redis.cli(&["HSET", KEY, "incarnation", wrong])?,
            None => redis.cli(&["HDEL", KEY, "incarnation"])?,
        };
        let error = store.allocate("order", 1, 0).await.unwrap_err();
        assert!(matches!(error, StoreError::CeilingReached { .. }), "{wrong:?}: {error:?}");
    }
    redis.cli(&["HSET", KEY, "incarnation", stored.trim()])?;
    store.allocate("order", 1, 0).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_store_that_went_back_is_refused_until_the_tag_is_raised() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::Nothing)?;
    let durable: Arc<FaultyStore> = Arc::default();
    let first = connect(&redis, durable.clone(), "horizon-ms=3000").await?.allocate("order", 1, 0).await?;
    let end = field(&redis, "end")?;
    become_another(&redis)?;
    // It knows nothing of the ms that it granted before, and would grant most of them again.
    durable.inner().lose_all()?;
    durable.inner().open_tag("order").await?;
    let asked_before = durable.allocations();
    // However often it is tried, by whomever, and once their time has passed too.
    for _ in 0..2 {
        let store = connect(&redis, durable.clone(), "horizon-ms=3000").await?;
        for _ in 0..3 {
            let error = store.allocate("order", 1, 0).await.unwrap_err();
            assert!(matches!(&error, StoreError::Corrupt { what, .. } if what.contains("lost data")), "{error:?}");
        }
        while now_tick() <= end {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    assert_eq!(durable.allocations(), asked_before, "it is asked for nothing");
    let store = connect(&redis, durable, "horizon-ms=3000").await?;
    store.raise_tag("order", LAYOUT.pack(Parts { ticks: end, worker: 60, sequence: 0 })?).await?;
    let next = one(&store).await?;
    assert!(tick(&next) >= end && tick(&first) < end, "{first:?} {next:?} {end}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_that_are_lost_push_ids_no_further_than_the_horizon() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::Nothing)?;
    let durable: Arc<FaultyStore> = Arc::default();
    let store = connect(&redis, durable.clone(), "horizon-ms=1000").await?;
    store.open_tag("order").await?;
    durable.set_answers_lost(true);
    let begun_ms = now_ms();
    while now_ms() < begun_ms + 2_500 {
        assert!(store.allocate("order", 1, 0).await.is_err(), "no answer comes");
        if let Ok(record) = durable.inner().tag(LEASE).await {
            assert!(record.watermark < now_tick() + 1_000, "{record:?}");
        }
    }
    durable.set_answers_lost(false);
    one(&store).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn timestamps_that_ran_out_are_the_end() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::Nothing)?;
    let durable: Arc<FaultyStore> = Arc::default();
    let store = connect(&redis, durable.clone(), "").await?;
    store.open_tag("order").await?;
    durable.open_tag(LEASE).await?;
    durable.raise_tag(LEASE, 1 << 41).await?;
    let top = LAYOUT.id_max();
    for at_least in [0, top] {
        let error = store.allocate("order", 1, at_least).await.unwrap_err();
        assert!(matches!(error, StoreError::TimestampsEnded { .. }), "{error:?}");
        assert!(!error.is_retryable(), "{error:?}");
        assert_eq!(error.failure(), StoreFailure::Exhausted);
        assert!(error.to_string().contains(&Rfc3339(LAYOUT.ends_ms()).to_string()), "it says when: {error}");
    }
    assert_eq!(
        store.tag("order").await?.watermark,
        LAYOUT.pack(Parts { ticks: LAYOUT.max_tick(), worker: 60, sequence: 1_023 })?
    );
    Ok(())
}

// Tags.

#[tokio::test(flavor = "multi_thread")]
async fn sub_keys_are_shards() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::Nothing)?;
    let durable: Arc<FaultyStore> = Arc::default();
    let store = connect(&redis, durable.clone(), "").await?;
    let mut granted = Vec::new();
    for (sub, worker) in [("6", 6), ("60", 60), ("0", 0), ("4095", 4_095)] {
        let tag = sub_tag("order", sub)?;
        let ids = store.allocate(&tag, 10, 0).await?;
        assert_eq!(LAYOUT.unpack(ids.start)?.worker, worker);
        granted.push(ids);
        let record = store.tag(&tag).await?;
        assert_eq!((record.tag.as_str(), record.options.mode), (tag.as_str(), Mode::Ordered));
        assert!(record.watermark >= ids.end - 1, "{record:?}");
        assert_eq!(LAYOUT.unpack(record.watermark)?.worker, worker, "the last id of the last ms: {record:?}");
    }
    // The tag itself is the shard of the options: the same ids, not the same ones again.
    granted.push(store.allocate("order", 10, 0).await?);
    assert_eq!(LAYOUT.unpack(granted[4].start)?.worker, 60);
    granted.sort_by_key(|ids| ids.start);
    assert_ascend(&granted);

    for sub in ["4096", "060", "+6", "-1", "x", "redis-clock:6", "99999999999999999999"] {
        let error = store.allocate(&sub_tag("order", sub)?, 1, 0).await.unwrap_err();
        assert!(matches!(error, StoreError::TagInvalid { .. }), "{sub:?}: {error:?}");
        assert!(error.to_string().contains("0 to 4095"), "{error}");
    }
    let error = store.allocate(&"x".repeat(128), 1, 0).await.unwrap_err();
    assert!(matches!(error, StoreError::TagInvalid { .. }), "no name is left for its ms: {error:?}");

    let listed: Vec<String> = store.tags(None, 100).await?.into_iter().map(|record| record.tag).collect();
    let expected = ["order", "order\u{1f}0", "order\u{1f}4095", "order\u{1f}6", "order\u{1f}60"];
    assert_eq!(listed, expected);
    let mut paged: Vec<String> = Vec::new();
    while let Some(record) = store.tags(paged.last().map(String::as_str), 1).await?.into_iter().next() {
        paged.push(record.tag);
    }
    assert_eq!(paged, expected, "page by page");
    assert!(store.tags(None, 0).await?.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_is_there_if_the_durable_store_has_it() -> anyhow::Result<()> {
    let fixture = UnderSqlite::start(Persistence::Nothing)?;
    let closed = fixture.segment_client(TagCreation { on_first_use: false, ..TagCreation::default() }).await;
    let (step, refill) = (StepPolicy::default(), RefillPolicy::default());
    for (what, error) in [
        ("allocate", closed.allocate("order", 1, 0).await.err()),
        ("a shard", closed.allocate("order\u{1f}6", 1, 0).await.err()),
        ("open_tag", closed.open_tag("order").await.err()),
        ("tag", closed.tag("order").await.err()),
        ("change_tag", closed.change_tag("order", step, refill).await.err()),
        ("raise_tag", closed.raise_tag("order", 1).await.err()),
        ("retire_tag", closed.retire_tag("order").await.err()),
    ] {
        assert!(matches!(error, Some(StoreError::TagUnknown { .. })), "{what}: {error:?}");
    }
    let ordered = TagOptions { mode: Mode::Ordered, ..TagOptions::default() };
    for options in [TagOptions::default(), TagOptions { start: 5, ..ordered }] {
        let error = closed.create_tag("order", &options).await.unwrap_err();
        assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
    }
    let error = closed.create_tag("order\u{1f}6", &ordered).await.unwrap_err();
    assert!(error.to_string().contains("create only the tag \"order\""), "{error}");
    let record = closed.create_tag("order", &ordered).await?;
    assert_eq!((record.options, record.watermark), (ordered, 0));
    assert!(matches!(closed.create_tag("order", &ordered).await, Err(StoreError::TagExists { .. })));
    assert_eq!(closed.open_tag("order").await?, record);
    closed.allocate("order", 1, 0).await?;
    closed.allocate("order\u{1f}6", 1, 0).await?;
    assert!(matches!(closed.change_tag("order", step, refill).await, Err(StoreError::Refused { .. })));
    assert!(matches!(closed.retire_tag("order").await, Err(StoreError::Refused { .. })));
    assert_eq!(closed.ceiling("order").await?, None);
    closed.check().await?;

    // One that was made elsewhere is ordered here all the same.
    let open = fixture.segment_client(TagCreation::default()).await;
    assert_eq!(open.open_tag("another").await?.options, ordered);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raise_lifts_as_far_as_the_clock_will_be_soon() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::Nothing)?;
    let durable: Arc<FaultyStore> = Arc::default();
    let store = connect(&redis, durable.clone(), "horizon-ms=1000").await?;
    let id = |ticks, worker, sequence| LAYOUT.pack(Parts { ticks, worker, sequence }).unwrap();
    store.allocate("order", 1, 0).await?;
    for next in [id(now_tick() + 400, 60, 0), id(now_tick() + 800, 60, 9), id(now_tick() + 900, 4_095, 1_023)] {
        let record = store.raise_tag("order", next).await?;
        assert!(record.watermark + 1 >= next, "{record:?} {next}");
        let ids = one(&store).await?;
        assert!(ids.start >= next, "{ids:?} {next}");
    }
    let before = one(&store).await?;
    store.raise_tag("order", 1).await?;
    assert!(one(&store).await?.start >= before.end, "it never lowers");
    // And where Redis knows nothing of it.
    redis.cli(&["FLUSHALL"])?;
    let next = id(now_tick() + 700, 60, 0);
    store.raise_tag("order", next).await?;
    assert!(one(&store).await?.start >= next);
    let error = store.raise_tag("order", id(now_tick() + 60_000, 60, 0)).await.unwrap_err();
    assert!(matches!(error, StoreError::TagInvalid { .. }), "{error:?}");
    one(&store).await?;
    Ok(())
}

// Where it is opened.

#[tokio::test(flavor = "multi_thread")]
async fn redis_alone_is_refused() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::AofAlways)?;
    let options = RedisOptions::from_url(&redis.url(0, "dialect=clock"))?;
    let error = RedisStore::connect(options, Backing::RedisAlone).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }) && error.to_string().contains("durable store"), "{error}");
    Ok(())
}

/// What is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn an_early_epoch_is_warned_of_with_the_day_of_its_end() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::Nothing)?;
    let durable: Arc<FaultyStore> = Arc::default();
    for (parameters, is_warned_of) in [("epoch=0", true), ("", false)] {
        let log = Log::default();
        let written = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || written.clone()).finish();
        let _guard = tracing_subscriber::util::SubscriberInitExt::set_default(subscriber);
        connect(&redis, durable.clone(), parameters).await?;
        let log = String::from_utf8(log.0.lock().unwrap().clone())?;
        assert_eq!(log.contains("2039-09-07"), is_warned_of, "{parameters:?}: {log:?}");
    }
    Ok(())
}

#[test]
fn the_url_has_the_shard_the_epoch_and_the_horizon() -> anyhow::Result<()> {
    let options = |parameters: &str| RedisOptions::from_url(&format!("redis://h/?{parameters}"));
    let dialect = |parameters: &str| options(parameters).map(|options| options.dialect);
    let default = Dialect::Clock { shard: 0, epoch_ms: 1_704_067_200_000, horizon_ms: 6_000 };
    assert_eq!(dialect("dialect=clock")?, default);
    let other = Dialect::Clock { shard: 60, epoch_ms: 0, horizon_ms: 3_000 };
    assert_eq!(dialect("dialect=clock&shard=60&epoch=0&horizon-ms=3000")?, other);
    for parameters in ["shard=4096", "epoch=-1", "epoch=9007199254740991", "horizon-ms=99", "horizon-ms=60001"] {
        assert!(dialect(&format!("dialect=clock&{parameters}")).is_err(), "{parameters}");
    }
    assert!(dialect("horizon-ms=3000").is_err(), "not without the dialect");
    Ok(())
}
