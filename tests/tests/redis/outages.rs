//! Outages of Redis and of the durable store behind it, each provoked on real servers under the load of several
//! clients, which ask all the time: no number is ever granted twice, the numbers of one database ascend in real time,
//! none is granted that the durable store did not grant, and the clients go on by themselves.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::File;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use unalike::{ErrorKind, Ids, Sequence, SequenceOptions, StepPolicy};
use unalike_mysql::{MysqlOptions, MysqlStore};
use unalike_redis::{Backing, RedisOptions, RedisStore};
use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_storage::{Segment, SegmentStore, StoreError, lock};
use unalike_tests::PATIENCE;
use unalike_tests::clients::{Clients, Grant, assert_ascends_in_real_time, assert_disjoint, monotonic_ns};
use unalike_tests::mariadb::MariaDb;
use unalike_tests::proxy::Proxy;
use unalike_tests::redis::{Persistence, Redis};

use crate::load::{CHILD, COUNT, GRANTS, Load, PROCESSES, RAISES, TINY_RAISES, missing, watermark};

/// The hash of the tag that is asked for.
const KEY: &str = "unalike:{order}";

/// Waits until something holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: it does not come to be so");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A field of the tag's hash.
fn field(server: &Redis, name: &str) -> String {
    server.cli(&["HGET", KEY, name]).unwrap()
}

/// How many numbers the server says are left.
fn left(server: &Redis) -> u64 {
    let number = |name| field(server, name).parse::<u64>().unwrap_or(0);
    number("left") + number("next_left")
}

/// Saves all data; the file.
fn save(server: &Redis) -> PathBuf {
    server.cli(&["SAVE"]).unwrap();
    server.directory().join("dump.rdb")
}

#[test]
fn a_redis_that_is_killed_and_keeps_what_it_was_told_is_another_incarnation() {
    let mut redis = Redis::start(Persistence::AofEverySecond).unwrap();
    let mut load = Load::start(&[redis.url(0, RAISES)]);
    for _ in 0..3 {
        redis.restart().unwrap();
        load.served();
    }
    load.stop();
}

#[test]
fn a_redis_that_loses_its_last_second_repeats_nothing() {
    let mut redis = Redis::start(Persistence::AofEverySecond).unwrap();
    let mut load = Load::start(&[redis.url(0, RAISES)]);
    for _ in 0..3 {
        // With the power, all is lost that was not flushed yet.
        let file = append_only_file(&redis);
        let flushed = file.metadata().unwrap().len();
        load.served();
        until("something is to be lost", || file.metadata().unwrap().len() > flushed);
        redis.kill9().unwrap();
        file.set_len(flushed).unwrap();
        redis.restart().unwrap();
        load.served();
    }
    load.stop();
}

/// The file that takes the changes.
fn append_only_file(server: &Redis) -> File {
    let directory = std::fs::read_dir(server.directory().join("appendonlydir")).unwrap();
    let mut paths = directory.map(|entry| entry.unwrap().path());
    let path = paths.find(|path| path.to_str().is_some_and(|path| path.ends_with(".incr.aof"))).unwrap();
    File::options().write(true).open(path).unwrap()
}

#[test]
fn a_redis_that_comes_back_with_what_it_saved_some_time_ago_repeats_nothing() {
    let mut redis = Redis::start(Persistence::Rdb).unwrap();
    let mut load = Load::start(&[redis.url(0, RAISES)]);
    for _ in 0..3 {
        save(&redis);
        load.served();
        redis.restart().unwrap();
        assert!(redis.cli(&["EXISTS", KEY]).unwrap() == "1", "it has the tag, as it was");
        load.served();
    }
    load.stop();
}

#[test]
fn a_redis_that_comes_back_empty_repeats_nothing() {
    let mut redis = Redis::start(Persistence::Nothing).unwrap();
    let mut load = Load::start(&[redis.url(0, RAISES)]);
    for _ in 0..3 {
        redis.restart().unwrap();
        load.served();
    }
    load.stop();
}

#[test]
fn an_old_file_that_is_put_back_repeats_nothing() {
    let mut redis = Redis::start(Persistence::Rdb).unwrap();
    let mut load = Load::start(&[redis.url(0, RAISES)]);
    let file = save(&redis);
    let copy = redis.directory().join("copy.rdb");
    std::fs::copy(&file, &copy).unwrap();
    for _ in 0..3 {
        // It goes on, is saved, and goes on.
        load.served();
        save(&redis);
        load.served();
        redis.kill9().unwrap();
        std::fs::copy(&copy, &file).unwrap();
        redis.restart().unwrap();
        load.served();
    }
    load.stop();
}

#[test]
fn flushall_again_and_again_costs_gaps_alone() {
    for raises in [RAISES, TINY_RAISES] {
        let redis = Redis::start(Persistence::Nothing).unwrap();
        let mut load = Load::start(&[redis.url(0, raises)]);
        for _ in 0..10 {
            redis.cli(&["FLUSHALL"]).unwrap();
            load.clients.wait_for(GRANTS / 10).unwrap();
        }
        load.stop();
    }
}

#[test]
fn scripts_that_are_forgotten_again_and_again_are_told_again() {
    let redis = Redis::start(Persistence::Nothing).unwrap();
    let mut load = Load::start(&[redis.url(0, RAISES)]);
    // Sometimes just when one was told again.
    redis.cli(&["-r", "3000", "SCRIPT", "FLUSH"]).unwrap();
    load.served();
    let granted = load.stop();
    assert_eq!(missing(&granted), 0, "a script that is not known has not run");
}

#[test]
fn a_replica_that_lags_and_takes_over_repeats_nothing() {
    let mut master = Redis::start(Persistence::Nothing).unwrap();
    let proxy = Proxy::start(master.port()).unwrap();
    let mut load = Load::start(&[proxy.url(&master.url(0, RAISES))]);
    let replica = master.start_replica(Persistence::Nothing).unwrap();
    load.served();
    until("the replica has numbers", || left(&replica) > 0);
    replica.cut_off().unwrap();
    let lagging = left(&replica);
    assert!(lagging > 0, "what the replica says is left the master goes on to hand out");
    load.served();
    master.kill9().unwrap();
    assert_eq!(left(&replica), lagging);
    replica.promote().unwrap();
    proxy.lead_to(replica.port());
    load.served();
    load.stop();
}

#[test]
fn a_master_that_becomes_a_replica_and_a_master_again_repeats_nothing_of_what_it_had() {
    let first = Redis::start(Persistence::Nothing).unwrap();
    let mut load = Load::start(&[first.url(0, RAISES)]);
    let second = first.start_replica(Persistence::Nothing).unwrap();
    // The first replica that a master gets makes it another incarnation.
    load.served();
    let (process, incarnation) = (first.info("run_id").unwrap(), field(&first, "incarnation"));
    until("the replica has numbers", || field(&second, "incarnation") == incarnation && left(&second) > 0);
    second.cut_off().unwrap();
    let lagging = left(&second);
    load.served();
    // To the other one and back, while nobody asks the other one. Neither ends.
    second.promote().unwrap();
    first.follow(&second).unwrap();
    assert_eq!(field(&first, "incarnation"), incarnation);
    assert!(left(&first) == lagging && lagging > 0, "numbers that were handed out are left again");
    assert_eq!(first.info("run_id").unwrap(), process);
    let (watermark, promoted_ns) = (load.watermark(), monotonic_ns());
    first.promote().unwrap();
    load.served();
    let granted = load.stop();
    let after: Vec<_> = granted.iter().filter(|grant| grant.asked_ns > promoted_ns).collect();
    assert!(!after.is_empty());
    assert!(after.iter().all(|grant| grant.start > watermark), "nothing of what it had is handed out");
}

#[test]
fn a_replica_that_takes_writes_grants_nothing_and_two_masters_never_share_a_number() {
    let first = Redis::start(Persistence::Nothing).unwrap();
    let second = first.start_replica(Persistence::Nothing).unwrap();
    second.cli(&["CONFIG", "SET", "replica-read-only", "no"]).unwrap();
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("ids.sqlite");
    watermark(&file);
    let start = |server: &Redis| {
        let arguments = [file.to_str().unwrap(), "order", "10", &server.url(0, TINY_RAISES)];
        Clients::start(CHILD, &arguments, PROCESSES).unwrap()
    };
    let mut beside_first = start(&first);
    beside_first.wait_for(GRANTS).unwrap();
    until("the replica has numbers", || left(&second) > 0);
    let mut beside_second = start(&second);
    until("the replica is asked", || scripts_run(&second) > 500);
    second.cut_off().unwrap();
    let promoted_ns = monotonic_ns();
    second.promote().unwrap();
    beside_second.wait_for(GRANTS).unwrap();
    beside_first.wait_for(GRANTS).unwrap();
    let mut granted = beside_first.stop().unwrap();
    let of_second = beside_second.stop().unwrap();
    granted.extend(&of_second);
    assert_disjoint(&granted);
    // What its master writes would come on top of what it grants.
    let early = of_second.iter().find(|grant| grant.heard_ns < promoted_ns);
    assert!(early.is_none(), "a replica granted {early:?}");
    assert_ascends_in_real_time(&of_second);
}

/// How many scripts the server was told to run.
fn scripts_run(server: &Redis) -> u64 {
    let stats = server.info("cmdstat_evalsha").unwrap_or_default();
    let calls = stats.strip_prefix("calls=").and_then(|stats| stats.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

#[test]
fn an_installation_or_a_grant_whose_answer_is_lost_under_load_is_never_repeated() {
    let redis = Redis::start(Persistence::Nothing).unwrap();
    let proxy = Proxy::start(redis.port()).unwrap();
    let mut load = Load::start(&[proxy.url(&redis.url(0, TINY_RAISES))]);
    for word in ["installed", "granted", "yours", "here"].into_iter().cycle().take(20) {
        proxy.lose_answer_with(word);
        until("an answer is lost", || proxy.has_lost());
        load.clients.wait_for(GRANTS / 10).unwrap();
    }
    load.stop();
}

#[test]
fn a_redis_that_stands_still_for_seconds_repeats_nothing() {
    let redis = Redis::start(Persistence::Nothing).unwrap();
    let mut load = Load::start(&[redis.url(0, RAISES)]);
    redis.pause().unwrap();
    std::thread::sleep(Duration::from_secs(5));
    redis.resume().unwrap();
    load.served();
    load.stop();
}

#[test]
fn databases_under_one_durable_store_never_share_a_number_and_each_ascends_in_real_time() {
    let mut redis = [(); 2].map(|()| Redis::start(Persistence::Nothing).unwrap());
    let urls = [redis[0].url(0, RAISES), redis[0].url(1, TINY_RAISES), redis[1].url(0, TINY_RAISES)];
    let mut load = Load::start(&urls);
    redis[1].restart().unwrap();
    load.served();
    redis[0].cli(&["-n", "1", "FLUSHDB"]).unwrap();
    load.served();
    redis[0].restart().unwrap();
    load.served();
    load.stop();
}

// Durable stores that a test has in hand.

/// What happens when the durable store has granted something, before anybody hears of it.
type Happening = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What the clients' durable stores have in common.
#[derive(Default)]
struct Between {
    next: Mutex<Option<Happening>>,
    raises: AtomicU64,
}

impl Between {
    /// Has something happen after the next raise.
    fn happen(&self, happening: impl Future<Output = ()> + Send + 'static) {
        *lock(&self.next) = Some(Box::pin(happening));
    }

    /// How many intervals were granted.
    fn raises(&self) -> u64 {
        self.raises.load(Ordering::SeqCst)
    }
}

/// A durable store after whose grants something may happen.
struct Durable<S> {
    store: S,
    between: Arc<Between>,
}

#[async_trait]
impl<S: SegmentStore> unalike_storage::SegmentLayer for Durable<S> {
    fn below(&self) -> Option<&dyn SegmentStore> {
        Some(&self.store)
    }

    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        let segment = self.store.allocate(tag, count, at_least).await?;
        self.between.raises.fetch_add(1, Ordering::SeqCst);
        let next = lock(&self.between.next).take();
        if let Some(happening) = next {
            happening.await;
        }
        Ok(segment)
    }
}

/// A client of Redis over this durable store, which is raised by so many numbers at a time and looks after nothing
/// between requests.
async fn client(url: &str, raise_by: u64, durable: impl SegmentStore) -> RedisStore {
    let mut options = RedisOptions::from_url(url).unwrap();
    (options.raise_min, options.raise_max) = (raise_by, raise_by);
    (options.preheat, options.keep_every) = (false, Duration::from_secs(3_600));
    RedisStore::connect(options, Backing::Durable(Arc::new(durable))).await.unwrap()
}

async fn mysql(url: &str) -> MysqlStore {
    MysqlStore::connect(MysqlOptions::from_url(&format!("{url}?connections=2")).unwrap()).await.unwrap()
}

async fn sqlite(directory: &TempDir) -> SqliteStore {
    SqliteStore::connect(SqliteOptions::new(directory.path().join("ids.sqlite"))).await.unwrap()
}

/// Tasks, each with a store of its own, that ask all the time.
struct Crowd {
    ending: Arc<AtomicBool>,
    heard: Arc<Mutex<Heard>>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Heard {
    granted: Vec<Grant>,
    clients: Vec<Told>,
    /// When to try again, as the clients were told.
    retry_after_ms: Vec<u64>,
    /// Anything but grants and ceilings.
    others: Vec<StoreError>,
}

/// What one client was told.
#[derive(Clone, Copy, Default)]
struct Told {
    grants: usize,
    /// How often it was told of a ceiling since its last grant.
    refusals: usize,
}

impl Crowd {
    /// Starts them, and waits until all are served.
    fn start(stores: &[Arc<RedisStore>], count: u64) -> Self {
        let crowd = Self { ending: Arc::default(), heard: Arc::default(), tasks: Vec::new() };
        lock(&crowd.heard).clients = vec![Told::default(); stores.len()];
        let ask = |(client, store): (usize, &Arc<RedisStore>)| {
            let (ending, heard, store) = (Arc::clone(&crowd.ending), Arc::clone(&crowd.heard), Arc::clone(store));
            tokio::spawn(async move {
                while !ending.load(Ordering::SeqCst) {
                    let asked_ns = monotonic_ns();
                    match store.allocate("order", count, 0).await {
                        Ok(Segment { start, end, stride, .. }) => {
                            let grant = Grant { client, asked_ns, heard_ns: monotonic_ns(), start, end, stride };
                            let mut heard = lock(&heard);
                            heard.granted.push(grant);
                            let told = heard.clients.get_mut(client).unwrap();
                            *told = Told { grants: told.grants + 1, refusals: 0 };
                            continue;
                        }
                        Err(StoreError::CeilingReached { retry_after_ms, .. }) => {
                            let mut heard = lock(&heard);
                            heard.clients.get_mut(client).unwrap().refusals += 1;
                            heard.retry_after_ms.push(retry_after_ms);
                        }
                        Err(error) => {
                            assert!(error.is_retryable(), "{error:?}");
                            lock(&heard).others.push(error);
                        }
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
        };
        let tasks = stores.iter().enumerate().map(ask).collect();
        let crowd = Self { tasks, ..crowd };
        crowd.served(GRANTS);
        crowd
    }

    fn until(&self, what: &str, mut holds: impl FnMut(&Heard) -> bool) {
        until(what, || {
            assert!(!self.tasks.iter().any(JoinHandle::is_finished), "a client ended");
            holds(&lock(&self.heard))
        });
    }

    /// Waits until each has been served so many times more.
    fn served(&self, grants: usize) {
        let before = lock(&self.heard).clients.clone();
        self.until("each client is served", |heard| {
            heard.clients.iter().zip(&before).all(|(now, before)| now.grants >= before.grants + grants)
        });
    }

    /// Waits until nobody has got anything for a while, for there is nothing.
    fn refused(&self) {
        self.until("each client is refused", |heard| heard.clients.iter().all(|told| told.refusals >= 10));
    }

    /// Stops it and checks what was granted.
    async fn stop(self) -> Vec<Grant> {
        self.served(GRANTS);
        self.ending.store(true, Ordering::SeqCst);
        for task in self.tasks {
            task.await.unwrap();
        }
        let granted = std::mem::take(&mut lock(&self.heard).granted);
        assert_disjoint(&granted);
        assert_ascends_in_real_time(&granted);
        granted
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_durable_store_ids_go_on_exactly_to_the_ceiling_and_beyond_it_when_it_is_back() {
    let redis = Redis::start(Persistence::Nothing).unwrap();
    let mut mariadb = MariaDb::start().unwrap();
    let url = mariadb.database().unwrap();
    let mut stores = Vec::new();
    for _ in 0..PROCESSES {
        stores.push(Arc::new(client(&redis.url(0, "request-timeout-ms=30000"), 20_000, mysql(&url).await).await));
    }
    let crowd = Crowd::start(&stores, COUNT);
    mariadb.kill9().unwrap();
    crowd.refused();
    let ceiling = stores[0].ceiling("order").await.unwrap().unwrap();
    assert_eq!(ceiling.last, ceiling.max);
    {
        let heard = lock(&crowd.heard);
        assert_eq!(heard.granted.iter().map(|grant| grant.end).max(), Some(ceiling.max + 1));
        assert_eq!(missing(&heard.granted), 0, "each number up to the ceiling was handed out");
        assert!(heard.retry_after_ms.iter().all(|retry_after_ms| (1..=5_000).contains(retry_after_ms)));
        assert!(heard.others.is_empty(), "the ceiling is what stands in the way: {:?}", heard.others);
    }
    mariadb.restart().unwrap();
    crowd.served(GRANTS);
    crowd.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_both_down_a_sequence_lives_on_its_buffer_then_says_so_and_goes_on_when_both_are_back() {
    let mut redis = Redis::start(Persistence::Rdb).unwrap();
    let mut mariadb = MariaDb::start().unwrap();
    let url = mariadb.database().unwrap();
    let step = Some(StepPolicy::Fixed { step: 2_000 });
    let takers: Vec<_> = [(); 2].map(|()| Arc::new(Taker::default())).into();
    let (mut nodes, mut tasks) = (Vec::new(), Vec::new());
    for taker in &takers {
        let store = Arc::new(client(&redis.url(0, ""), 50_000, mysql(&url).await).await);
        let ids = Ids::builder().segments(store).wait_max(Duration::from_millis(200)).build().await.unwrap();
        let sequence = ids.sequence("order", SequenceOptions { step, ..SequenceOptions::default() }).await.unwrap();
        tasks.push(tokio::spawn(Arc::clone(taker).take(sequence)));
        nodes.push(ids);
    }
    let served = |more: u64| {
        for taker in &takers {
            let before = taker.served.load(Ordering::SeqCst);
            until("ids come", || taker.served.load(Ordering::SeqCst) >= before + more);
        }
    };
    served(100);
    redis.cli(&["SAVE"]).unwrap();
    // More than a step, so that what was saved is out of date.
    served(300);
    mariadb.kill9().unwrap();
    redis.kill9().unwrap();
    // Nine tenths of a step are left at least, or will be in a moment.
    let failed = || takers.iter().map(|taker| taker.failed.load(Ordering::SeqCst)).sum::<u64>();
    assert_eq!(failed(), 0);
    served(50);
    assert_eq!(failed(), 0, "ids come from the buffers");
    until("the buffers are empty", || takers.iter().all(|taker| taker.failed.load(Ordering::SeqCst) > 2));
    redis.restart().unwrap();
    let before = failed();
    until("Redis alone does not help", || failed() > before + 4);
    mariadb.restart().unwrap();
    served(100);
    let mut ids = Vec::new();
    for taker in &takers {
        taker.ending.store(true, Ordering::SeqCst);
    }
    for task in tasks {
        let of_node = task.await.unwrap();
        assert!(of_node.is_sorted_by(|a, b| a < b), "the ids of a node ascend");
        ids.extend(of_node);
    }
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "an id came twice");
    for node in nodes {
        node.close().await;
    }
}

/// Takes ids of a sequence until the end.
#[derive(Default)]
struct Taker {
    ending: AtomicBool,
    /// Requests that were served, and that failed.
    served: AtomicU64,
    failed: AtomicU64,
}

impl Taker {
    async fn take(self: Arc<Self>, sequence: Sequence) -> Vec<u64> {
        let mut ids = Vec::new();
        while !self.ending.load(Ordering::SeqCst) {
            match sequence.take(10).await {
                Ok(batch) => {
                    ids.extend(batch.iter());
                    self.served.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) => {
                    // And not that what was granted had been granted before.
                    assert!(matches!(error.kind(), ErrorKind::Timeout { .. } | ErrorKind::Store { .. }), "{error:?}");
                    assert!(error.is_retryable() && error.retry_after_ms().is_some(), "{error:?}");
                    self.failed.fetch_add(1, Ordering::SeqCst);
                }
            }
            // Some 5,000 ids a second at most.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        ids
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_killed_between_mysql_and_redis_cost_one_interval_each_time_at_most() {
    const RAISE_BY: u64 = 5_000;
    let redis = Arc::new(Mutex::new(Redis::start(Persistence::Rdb).unwrap()));
    let mariadb = Arc::new(Mutex::new(MariaDb::start().unwrap()));
    let (redis_url, url) = (lock(&redis).url(0, "request-timeout-ms=30000"), lock(&mariadb).database().unwrap());
    let between = Arc::new(Between::default());
    let mut stores = Vec::new();
    for _ in 0..PROCESSES {
        let durable = Durable { store: mysql(&url).await, between: Arc::clone(&between) };
        stores.push(Arc::new(client(&redis_url, RAISE_BY, durable).await));
    }
    let crowd = Crowd::start(&stores, COUNT);
    for _ in 0..2 {
        // MySQL has raised the ceiling, and dies. Redis hears of it all the same.
        let (killed, is_killed) = tokio::sync::oneshot::channel();
        let victim = Arc::clone(&mariadb);
        between.happen(async move {
            lock(&victim).kill9().unwrap();
            let _ = killed.send(());
        });
        is_killed.await.unwrap();
        crowd.refused();
        assert_eq!(missing(&lock(&crowd.heard).granted), 0, "what was raised was handed out");
        lock(&mariadb).restart().unwrap();
        crowd.served(GRANTS);
    }

    // MySQL has raised the ceiling, and Redis dies before it hears of it. It has an old copy of the tag.
    lock(&redis).cli(&["SAVE"]).unwrap();
    let (killed, is_killed) = tokio::sync::oneshot::channel();
    let victim = Arc::clone(&redis);
    between.happen(async move {
        let mut victim = lock(&victim);
        let held = left(&victim);
        victim.kill9().unwrap();
        let _ = killed.send(held);
    });
    let held = is_killed.await.unwrap();
    lock(&redis).restart().unwrap();
    crowd.served(GRANTS);
    let lost = missing(&crowd.stop().await);
    // And what was granted before it was looked at, and not heard of.
    let lost_max = RAISE_BY + held + COUNT * u64::try_from(PROCESSES).unwrap();
    assert!((RAISE_BY..=lost_max).contains(&lost), "one interval and what Redis held, {held}, and not {lost}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raise_whose_answer_is_lost_with_mysql_costs_one_interval() {
    const RAISE_BY: u64 = 5_000;
    let redis = Redis::start(Persistence::Nothing).unwrap();
    let mut mariadb = MariaDb::start().unwrap();
    let url = mariadb.database().unwrap();
    let proxy = Proxy::start(mariadb.port()).unwrap();
    let mut stores = Vec::new();
    for _ in 0..PROCESSES {
        let durable = mysql(&proxy.url(&url)).await;
        stores.push(Arc::new(client(&redis.url(0, "request-timeout-ms=30000"), RAISE_BY, durable).await));
    }
    let crowd = Crowd::start(&stores, COUNT);
    const LOSSES: u64 = 4;
    for loss in 0..LOSSES {
        // One raise at a time: no other is under way, and none follows before MariaDB is gone. It looks at the tag
        // first, which costs nothing, and then it is granted numbers.
        proxy.lose_answer_and_stall(u32::from(loss % 2 == 1));
        until("an answer is lost", || proxy.has_lost());
        mariadb.kill9().unwrap();
        proxy.stall(false);
        crowd.refused();
        mariadb.restart().unwrap();
        crowd.served(GRANTS);
    }
    let lost = missing(&crowd.stop().await);
    assert_eq!(lost % RAISE_BY, 0, "whole intervals");
    assert!((1..=LOSSES).contains(&(lost / RAISE_BY)), "{lost}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_lost_burns_a_grant_and_not_an_interval() {
    let (redis, directory) = (Redis::start(Persistence::Nothing).unwrap(), TempDir::new().unwrap());
    let proxy = Proxy::start(redis.port()).unwrap();
    let between = Arc::new(Between::default());
    let durable = Durable { store: sqlite(&directory).await, between: Arc::clone(&between) };
    let store = client(&proxy.url(&redis.url(0, "")), 1_000, durable).await;
    let mut end = store.allocate("order", 10, 0).await.unwrap().end;
    for _ in 0..3 {
        proxy.lose_answer_with("granted");
        let error = store.allocate("order", 10, 0).await.unwrap_err();
        assert!(error.may_have_granted(), "{error:?}");
        until("the answer is lost", || proxy.has_lost());
        let segment = store.allocate("order", 10, 0).await.unwrap();
        assert_eq!(segment.start, end + 10, "what was granted unheard is burnt");
        end = segment.end;
    }
    for _ in 0..3 {
        // Redis has the numbers and nobody heard of it. Whoever asks next is given them.
        proxy.lose_answer_with("installed");
        let raises = between.raises();
        let mut burnt = 0;
        while between.raises() < raises + 2 || !proxy.has_lost() {
            match store.allocate("order", 100, 0).await {
                Ok(segment) => {
                    assert!((end..=end + burnt).contains(&segment.start), "{segment:?} after {end}");
                    (end, burnt) = (segment.end, 0);
                }
                // It was on the same connection.
                Err(error) => {
                    assert!(error.is_retryable(), "{error:?}");
                    burnt += if error.may_have_granted() { 100 } else { 0 };
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_gets_an_interval_for_all_of_them() {
    let mut redis = Redis::start(Persistence::AofEverySecond).unwrap();
    let directory = TempDir::new().unwrap();
    let between = Arc::new(Between::default());
    let mut stores = Vec::new();
    for _ in 0..8 {
        let durable = Durable { store: sqlite(&directory).await, between: Arc::clone(&between) };
        // So many that none are due before all are lost.
        stores.push(Arc::new(client(&redis.url(0, "request-timeout-ms=30000"), 1 << 40, durable).await));
    }
    let crowd = Crowd::start(&stores, 1);
    for round in 1..=10 {
        assert_eq!(between.raises(), round, "each loss costs one interval");
        if round % 2 == 0 {
            redis.restart().unwrap();
        } else {
            redis.cli(&["FLUSHALL"]).unwrap();
        }
        crowd.served(GRANTS);
    }
    crowd.stop().await;
    assert_eq!(between.raises(), 11);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interval_that_comes_late_is_not_installed() {
    for goes_back in [false, true] {
        let (redis, directory) = (Redis::start(Persistence::Nothing).unwrap(), TempDir::new().unwrap());
        let replica = redis.start_replica(Persistence::Nothing).unwrap();
        let between = Arc::new(Between::default());
        let durable = Durable { store: sqlite(&directory).await, between: Arc::clone(&between) };
        let slow = Arc::new(client(&redis.url(0, ""), 1_000, durable).await);
        let quick = client(&redis.url(0, ""), 1_000, sqlite(&directory).await).await;
        // One client has an interval, and hesitates.
        let (reached, has_reached) = tokio::sync::oneshot::channel();
        let (go_on, may_go_on) = tokio::sync::oneshot::channel();
        between.happen(async move {
            let _ = reached.send(());
            let _ = may_go_on.await;
        });
        let late = tokio::spawn({
            let slow = Arc::clone(&slow);
            async move { slow.allocate("order", 10, 0).await }
        });
        has_reached.await.unwrap();
        // Its claim ends, and another client gets the next interval.
        redis.cli(&["HSET", KEY, "claim_until_ms", "0"]).unwrap();
        until("the replica follows", || field(&replica, "claim_until_ms") == "0");
        replica.cut_off().unwrap();
        let mut end = quick.allocate("order", 10, 0).await.unwrap().end;
        if goes_back {
            // To where it was before, generation and all; connections stay open.
            replica.promote().unwrap();
            redis.follow(&replica).unwrap();
            redis.promote().unwrap();
        }
        go_on.send(()).unwrap();
        match late.await.unwrap() {
            Ok(segment) => {
                assert!(segment.start >= end, "{segment:?} after {end}");
                end = segment.end;
            }
            Err(error) => assert!(error.is_retryable(), "{error:?}"),
        }
        // More than both intervals have.
        let enough = end + 3_000;
        while end < enough {
            match quick.allocate("order", 100, 0).await {
                Ok(segment) => {
                    assert!(segment.start >= end, "{segment:?} after {end}");
                    end = segment.end;
                }
                Err(error) => assert!(error.is_retryable(), "{error:?}"),
            }
        }
    }
}
