//! A Redis Cluster: the contract through several nodes, slots that move while they are used, nodes that are replaced by
//! their replicas, and what becomes of a copy that a move left behind. No number is granted twice, and those of a tag
//! ascend in real time.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tempfile::TempDir;
use unalike::{Clock as _, SystemClock};
use unalike_memory::MemoryStore;
use unalike_redis::{Backing, RedisLeases, RedisOptions, RedisStore};
use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_storage::contract::{self, Fixture, LeaseFixture, SegmentFixture};
use unalike_storage::{
    Layout, LeaseAcquire, LeaseExtend, LeaseLimits, LeaseStore, Segment, SegmentStore, StoreError, TagCreation, lock,
};
use unalike_tests::proxy::Proxy;
use unalike_tests::redis::{Persistence, Program, Redis};
use unalike_tests::redis_cluster::RedisCluster;
use unalike_tests::{PATIENCE, until};

use crate::load::{Load, RAISES, assert_few_gaps};

/// The hash of the tag that load asks for.
const KEY: &str = "unalike:{order}";

/// Nodes, and a file that keeps the ceilings and bounds.
struct UnderSqlite {
    cluster: Mutex<RedisCluster>,
    directory: TempDir,
}

impl UnderSqlite {
    fn start(program: Program) -> Self {
        Self { cluster: Mutex::new(RedisCluster::start(program).unwrap()), directory: TempDir::new().unwrap() }
    }

    fn options(&self) -> RedisOptions {
        // A machine that is busy with other tests is not a server that is down.
        let parameters = "preheat=false&connect-timeout-ms=10000&request-timeout-ms=10000&raise-timeout-ms=10000";
        RedisOptions::from_url(&lock(&self.cluster).url(parameters)).unwrap()
    }

    async fn durable(&self, creation: TagCreation) -> Backing {
        let options = SqliteOptions { creation, ..SqliteOptions::new(self.directory.path().join("ids.sqlite")) };
        Backing::Durable(Arc::new(SqliteStore::connect(options).await.unwrap()))
    }
}

#[async_trait]
impl Fixture for UnderSqlite {
    async fn restart(&self) {
        let mut cluster = lock(&self.cluster);
        for number in 0..3 {
            cluster.at_mut(number).unwrap().restart().unwrap();
        }
        cluster.wait_until_whole().unwrap();
    }
}

#[async_trait]
impl SegmentFixture for UnderSqlite {
    async fn segment_client(&self, creation: TagCreation) -> Arc<dyn SegmentStore> {
        Arc::new(RedisStore::connect(self.options(), self.durable(creation).await).await.unwrap())
    }

    fn can_be_a_stripe(&self) -> bool {
        false
    }
}

#[async_trait]
impl LeaseFixture for UnderSqlite {
    async fn lease_client(&self, limits: LeaseLimits) -> Arc<dyn LeaseStore> {
        let mut options = self.options();
        options.limits = limits;
        Arc::new(RedisLeases::connect(options, self.durable(TagCreation::default()).await).await.unwrap())
    }

    fn forgets_in_a_restart(&self) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_keeps_the_contract_of_segments() {
    contract::segments(&UnderSqlite::start(Program::Redis)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_keeps_the_contract_of_leases() {
    contract::leases(&UnderSqlite::start(Program::Redis)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_valkey_keeps_the_contract_of_segments() {
    contract::segments(&UnderSqlite::start(Program::Valkey)).await;
}

// Slots that move.

#[test]
fn a_slot_that_moves_to_and_fro_under_load_costs_gaps_alone() {
    let cluster = RedisCluster::start(Program::Redis).unwrap();
    let mut load = Load::start(&[cluster.url(RAISES)]);
    let (slot, mut from) = (cluster.slot(KEY).unwrap(), cluster.first_owner(KEY).unwrap());
    for _ in 0..6 {
        let to = (from + 1) % 3;
        cluster.begin_move(slot, from, to).unwrap();
        load.served();
        cluster.move_keys(slot, from, to).unwrap();
        // Whoever comes now is sent on, for this one request.
        load.served();
        assert_eq!(cluster.at(to).unwrap().cli(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]).unwrap(), "1");
        cluster.end_move(slot, to).unwrap();
        load.served();
        from = to;
    }
    assert_few_gaps(&load.stop(), 6);
}

#[test]
fn a_key_that_is_gone_while_its_slot_moves_begins_anew_on_the_next_node() {
    let cluster = RedisCluster::start(Program::Redis).unwrap();
    let mut load = Load::start(&[cluster.url(RAISES)]);
    let (slot, from) = (cluster.slot(KEY).unwrap(), cluster.first_owner(KEY).unwrap());
    let to = (from + 1) % 3;
    cluster.begin_move(slot, from, to).unwrap();
    cluster.at(from).unwrap().cli(&["DEL", KEY]).unwrap();
    load.served();
    // Scripts that the next node has forgotten, of a slot that is not its own yet.
    cluster.at(to).unwrap().cli(&["-r", "300", "SCRIPT", "FLUSH"]).unwrap();
    load.served();
    cluster.end_move(slot, to).unwrap();
    load.stop();
}

/// Whose numbers a hash has is written in it: the node that it comes to takes none of them, and hands out its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_a_move_left_on_another_node_gives_nothing() {
    let cluster = RedisCluster::start(Program::Redis).unwrap();
    let (durable, mut granted) = (Arc::new(MemoryStore::default()), Vec::new());
    let options = RedisOptions::from_url(&cluster.url("preheat=false&raise-min=100&raise-max=100")).unwrap();
    let store = RedisStore::connect(options, Backing::Durable(durable)).await.unwrap();
    let mut grant = async |store: &RedisStore| granted.push(store.allocate("order", 10, 0).await.unwrap());
    let (slot, a) = (cluster.slot(KEY).unwrap(), cluster.first_owner(KEY).unwrap());
    let b = (a + 1) % 3;
    for _ in 0..3 {
        grant(&store).await;
    }
    cluster.begin_move(slot, a, b).unwrap();
    // The answer to the move is lost: both have the key, and the first one goes on with it.
    let port = cluster.at(b).unwrap().port().to_string();
    cluster.at(a).unwrap().cli(&["MIGRATE", "127.0.0.1", &port, KEY, "0", "5000", "COPY"]).unwrap();
    for _ in 0..3 {
        grant(&store).await;
    }
    // The slot is given to the other one with the copy that is behind.
    cluster.end_move(slot, b).unwrap();
    for _ in 0..3 {
        grant(&store).await;
    }
    // And back, with all its keys.
    cluster.begin_move(slot, b, a).unwrap();
    cluster.move_keys(slot, b, a).unwrap();
    cluster.end_move(slot, a).unwrap();
    for _ in 0..3 {
        grant(&store).await;
    }
    disjoint(&granted);
}

/// A slot that goes to another node and comes back, with the hash that this one had when the slot left a time before: a
/// replica that lags brings it when it is promoted there in between, and Valkey's own move of a slot, whose source goes
/// on for a while.
#[tokio::test(flavor = "multi_thread")]
async fn a_hash_that_comes_back_older_than_it_left_is_void() {
    let cluster = RedisCluster::start(Program::Redis).unwrap();
    let durable: Arc<dyn SegmentStore> = Arc::new(MemoryStore::default());
    let options = || RedisOptions::from_url(&cluster.url("preheat=false&raise-min=1000&raise-max=1000")).unwrap();
    let segments = RedisStore::connect(options(), Backing::Durable(Arc::clone(&durable))).await.unwrap();
    let leases = RedisLeases::connect(options(), Backing::Durable(durable)).await.unwrap();
    let lease = async |holder: &str| {
        let request = LeaseAcquire {
            namespace: "ns".to_owned(),
            layout: Layout::TWITTER,
            holder: holder.to_owned(),
            preferred_worker: Some(3),
            now_ms: SystemClock.now_ms(),
            horizon_ms: 500,
        };
        loop {
            match leases.acquire(&request).await {
                Ok(lease) => break (lease.worker, lease.not_before_ms, lease.valid_until_ms),
                Err(error) => assert!(error.is_retryable(), "{error:?}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let keys = [KEY, "unalike:leases:{ns}"];
    let owners = keys.map(|key| cluster.first_owner(key).unwrap());
    let there = |at: usize| (at + 1) % 3;
    let go = |goes: bool| {
        for (key, owner) in keys.into_iter().zip(owners) {
            let (from, to) = if goes { (owner, there(owner)) } else { (there(owner), owner) };
            let slot = cluster.slot(key).unwrap();
            cluster.begin_move(slot, from, to).unwrap();
            cluster.move_keys(slot, from, to).unwrap();
            cluster.end_move(slot, to).unwrap();
        }
    };

    let mut granted = vec![segments.allocate("order", 10, 0).await.unwrap()];
    let mut leased = vec![lease("a").await];
    go(true);
    // What a replica has that hears no more from now on.
    let older: Vec<Vec<u8>> = keys
        .into_iter()
        .zip(owners)
        .map(|(key, owner)| redis::cmd("DUMP").arg(key).query(&mut connection(&cluster, there(owner))).unwrap())
        .collect();
    go(false);
    granted.push(segments.allocate("order", 10, 0).await.unwrap());
    leased.push(lease("b").await);
    go(true);
    for ((key, owner), hash) in keys.into_iter().zip(owners).zip(older) {
        let mut restore = redis::cmd("RESTORE");
        restore.arg(key).arg(0).arg(hash).arg("REPLACE");
        restore.exec(&mut connection(&cluster, there(owner))).unwrap();
    }
    go(false);
    granted.push(segments.allocate("order", 10, 0).await.unwrap());
    leased.push(lease("c").await);

    disjoint(&granted);
    for (at, a) in leased.iter().enumerate() {
        let is_apart = |b: &(u32, u64, u64)| a.0 != b.0 || a.2 <= b.1 || b.2 <= a.1;
        assert!(leased.iter().skip(at + 1).all(is_apart), "{leased:?}");
    }
}

/// A connection to one node.
fn connection(cluster: &RedisCluster, node: usize) -> redis::Connection {
    let url = format!("redis://127.0.0.1:{}/", cluster.at(node).unwrap().port());
    redis::Client::open(url).unwrap().get_connection().unwrap()
}

fn disjoint(granted: &[Segment]) {
    for (one, next) in granted.iter().zip(granted.iter().skip(1)) {
        assert!(one.end <= next.start, "{granted:?}");
    }
}

// Nodes that are replaced.

/// A Cluster where the tag's node has a replica: the node, and its replica.
fn with_replica() -> (RedisCluster, usize, usize) {
    let mut cluster = RedisCluster::start(Program::Redis).unwrap();
    let owner = cluster.first_owner(KEY).unwrap();
    let replica = cluster.add_replica(owner).unwrap();
    (cluster, owner, replica)
}

fn promoted(cluster: &RedisCluster, replica: usize) {
    cluster.at(replica).unwrap().wait_until(|info| info.contains("role:master")).unwrap();
}

/// Has a replica take over. On a busy machine Redis gives a hand-over up after 5 s, so it is asked for again.
fn hand_over(cluster: &RedisCluster, replica: usize) {
    let started = Instant::now();
    loop {
        cluster.at(replica).unwrap().cli(&["CLUSTER", "FAILOVER"]).unwrap();
        let asked = Instant::now();
        while asked.elapsed() < Duration::from_secs(6) {
            let info = cluster.at(replica).unwrap().cli(&["INFO", "replication"]).unwrap();
            if info.contains("role:master") {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "the replica does not take over: {info}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_node_that_is_killed_under_load_is_replaced_by_its_replica_and_costs_a_gap() {
    let (mut cluster, owner, replica) = with_replica();
    let mut load = Load::start(&[cluster.url(RAISES)]);
    cluster.at_mut(owner).unwrap().kill9().unwrap();
    promoted(&cluster, replica);
    load.served();
    // It comes back with nothing, as a replica of the one that took over.
    cluster.at_mut(owner).unwrap().restart().unwrap();
    cluster.at(owner).unwrap().wait_until(|info| info.contains("master_link_status:up")).unwrap();
    load.served();
    hand_over(&cluster, owner);
    assert_few_gaps(&load.stop(), 2);
}

#[test]
fn a_replica_that_lags_and_takes_over_a_slot_repeats_nothing() {
    let (mut cluster, owner, replica) = with_replica();
    let mut load = Load::start(&[cluster.url(RAISES)]);
    cluster.at(replica).unwrap().lag().unwrap();
    load.served();
    cluster.at_mut(owner).unwrap().kill9().unwrap();
    promoted(&cluster, replica);
    load.stop();
}

/// The old master goes on until it has noticed, and those that ask it through the Cluster leave it then.
#[test]
fn a_node_that_stands_still_and_wakes_up_shares_no_number_with_its_replica() {
    let (cluster, owner, replica) = with_replica();
    let mut load = Load::start(&[cluster.url(RAISES)]);
    for (still, other) in [(owner, replica), (replica, owner)] {
        cluster.at(still).unwrap().pause().unwrap();
        promoted(&cluster, other);
        load.served();
        cluster.at(still).unwrap().resume().unwrap();
        cluster.at(still).unwrap().wait_until(|info| info.contains("master_link_status:up")).unwrap();
    }
    // By force, while both live: the old one learns of it later.
    cluster.at(replica).unwrap().cli(&["CLUSTER", "FAILOVER", "TAKEOVER"]).unwrap();
    load.stop();
}

#[test]
fn a_cluster_that_serves_nothing_for_a_while_costs_time() {
    let mut cluster = RedisCluster::start(Program::Redis).unwrap();
    let mut load = Load::start(&[cluster.url(RAISES)]);
    let owner = cluster.first_owner(KEY).unwrap();
    let other = (owner + 1) % 3;
    // Without all slots none is served: CLUSTERDOWN.
    cluster.at_mut(other).unwrap().kill9().unwrap();
    let down = || cluster.at(owner).unwrap().cli(&["CLUSTER", "INFO"]).unwrap().contains("cluster_state:fail");
    while !down() {
        std::thread::sleep(Duration::from_millis(10));
    }
    cluster.at_mut(other).unwrap().restart().unwrap();
    load.served();
    load.stop();
}

// What is refused, and what a user needs.

#[tokio::test(flavor = "multi_thread")]
async fn what_a_cluster_cannot_do_is_refused_by_name() {
    let cluster = RedisCluster::start(Program::Redis).unwrap();
    let url = cluster.url("preheat=false");
    let refused = |error: StoreError, words: &[&str]| {
        assert!(!error.is_retryable(), "{error:?}");
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{words:?}: {error}");
    };
    let durable = || Backing::Durable(Arc::new(MemoryStore::default()) as Arc<dyn SegmentStore>);
    let open = async |url: &str, backing| RedisStore::connect(RedisOptions::from_url(url).unwrap(), backing).await;
    refused(open(&url, Backing::RedisAlone).await.unwrap_err(), &["durability=assumed", "--backing"]);
    refused(open(&format!("{url}&dialect=cosid"), Backing::RedisAlone).await.unwrap_err(), &["durability=assumed"]);
    let leases = RedisLeases::connect(RedisOptions::from_url(&url).unwrap(), Backing::RedisAlone).await;
    refused(leases.unwrap_err(), &["durability=assumed"]);
    refused(RedisStore::initialise(&RedisOptions::from_url(&url).unwrap()).await.unwrap_err(), &["durability=assumed"]);
    let one = format!("redis://127.0.0.1:{}", cluster.at(0).unwrap().port());
    refused(open(&one, durable()).await.unwrap_err(), &["node of a Redis Cluster", "redis+cluster://"]);
    let alone = Redis::start(Persistence::Nothing).unwrap();
    let url = format!("redis+cluster://127.0.0.1:{}", alone.port());
    refused(open(&url, durable()).await.unwrap_err(), &["no node of a Redis Cluster"]);
    refused(RedisOptions::from_url("redis+cluster://a,b:1/3").unwrap_err(), &["has only 0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_a_cluster_needs_three_rights_more() {
    const LEAST: [&str; 9] = ["evalsha", "script|load", "info", "time", "hget", "hmget", "hset", "hincrby", "set"];
    const MORE: [&str; 3] = ["asking", "cluster|info", "cluster|slots"];
    let docs = include_str!("../../../adapters/redis/README.md");
    assert!(docs.contains("`+asking +cluster|info +cluster|slots`"));
    let cluster = RedisCluster::start(Program::Redis).unwrap();
    let (slot, from) = (cluster.slot(KEY).unwrap(), cluster.first_owner(KEY).unwrap());
    cluster.begin_move(slot, from, (from + 1) % 3).unwrap();
    let url = cluster.url("preheat=false").replace("://", "://ids:s3cret@");
    for missing in MORE.map(Some).into_iter().chain([None]) {
        let rights = LEAST.iter().chain(&MORE).filter(|right| Some(**right) != missing);
        let rights: Vec<String> = rights.map(|right| format!("+{right}")).collect();
        for node in cluster.nodes() {
            let mut rule = vec!["ACL", "SETUSER", "ids", "reset", "on", ">s3cret", "~unalike:*"];
            rule.extend(rights.iter().map(String::as_str));
            node.cli(&rule).unwrap();
        }
        let attempt = async {
            let durable = Backing::Durable(Arc::new(MemoryStore::default()));
            let store = RedisStore::connect(RedisOptions::from_url(&url).unwrap(), durable).await?;
            store.allocate("order", 10, 0).await?;
            store.check().await
        };
        match (attempt.await, missing) {
            (Ok(()), None) => {}
            (Err(error @ StoreError::Refused { .. }), Some(missing)) => {
                assert!(error.to_string().contains(&format!("+{missing}")), "{error}");
            }
            (other, missing) => panic!("without {missing:?}: {other:?}"),
        }
        for node in cluster.nodes() {
            let _ = node.cli(&["DEL", "unalike:durable"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_dialects_work_where_the_promise_is_the_operators() {
    let cluster = RedisCluster::start(Program::Redis).unwrap();
    let options = |more: &str| RedisOptions::from_url(&cluster.url(&format!("durability=assumed&{more}"))).unwrap();
    assert!(RedisStore::initialise(&options("")).await.unwrap());
    let alone = RedisStore::connect(options(""), Backing::RedisAlone).await.unwrap();
    assert_eq!(alone.allocate("order", 10, 0).await.unwrap().start, 1);
    let cosid = RedisStore::connect(options("dialect=cosid"), Backing::RedisAlone).await.unwrap();
    let names: Vec<String> = (0..20).map(|number| format!("shop.{number:02}")).collect();
    for name in &names {
        cosid.create_tag(name, &Default::default()).await.unwrap();
        assert_eq!(cosid.allocate(name, 10, 0).await.unwrap().start, 1);
    }
    let listed: Vec<String> = cosid.tags(None, 100).await.unwrap().into_iter().map(|record| record.tag).collect();
    assert_eq!(listed, names, "of all nodes");
    for node in cluster.nodes() {
        assert_ne!(node.cli(&["DBSIZE"]).unwrap(), "0", "they are on all nodes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_and_clocks_follow_their_slot_and_overlap_nowhere() {
    let cluster = RedisCluster::start(Program::Redis).unwrap();
    let durable: Arc<dyn SegmentStore> = Arc::new(MemoryStore::default());
    let options = RedisOptions::from_url(&cluster.url("")).unwrap();
    let leases = RedisLeases::connect(options, Backing::Durable(Arc::clone(&durable))).await.unwrap();
    let options = RedisOptions::from_url(&cluster.url("dialect=clock&shard=7&horizon-ms=300")).unwrap();
    let clock = RedisStore::connect(options, Backing::Durable(Arc::clone(&durable))).await.unwrap();
    let now_ms = || SystemClock.now_ms();
    let request = || LeaseAcquire {
        namespace: "ns".to_owned(),
        layout: Layout::TWITTER,
        holder: "a".to_owned(),
        preferred_worker: Some(3),
        now_ms: now_ms(),
        horizon_ms: 200,
    };
    let mut granted = Vec::new();
    let mut ids = Vec::new();
    let (lease_key, clock_key) = ("unalike:leases:{ns}", "unalike:clock:{order}:7");
    let mut owners = [cluster.first_owner(lease_key).unwrap(), cluster.first_owner(clock_key).unwrap()];
    for _ in 0..3 {
        let lease = loop {
            match leases.acquire(&request()).await {
                Ok(lease) => break lease,
                Err(error) => assert!(error.is_retryable(), "{error:?}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        granted.push((lease.worker, lease.not_before_ms, lease.valid_until_ms));
        loop {
            match clock.allocate("order", 10, 0).await {
                Ok(segment) => break ids.push(segment),
                Err(error) => assert!(error.is_retryable(), "{error:?}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for (key, owner) in [lease_key, clock_key].into_iter().zip(&mut owners) {
            let (slot, to) = (cluster.slot(key).unwrap(), (*owner + 1) % 3);
            cluster.begin_move(slot, *owner, to).unwrap();
            cluster.move_keys(slot, *owner, to).unwrap();
            cluster.end_move(slot, to).unwrap();
            *owner = to;
        }
        let extend = LeaseExtend {
            namespace: "ns".to_owned(),
            layout: Layout::TWITTER,
            worker: lease.worker,
            grant_id: lease.grant_id,
            now_ms: now_ms(),
            horizon_ms: 400,
        };
        let lost = leases.extend(&extend).await;
        assert!(
            matches!(lost, Err(StoreError::LeaseLost { .. })),
            "the next node extends no lease of this one: {lost:?}"
        );
    }
    disjoint(&ids);
    for (at, a) in granted.iter().enumerate() {
        let is_apart = |b: &(u32, u64, u64)| a.0 != b.0 || a.2 <= b.1 || b.2 <= a.1;
        assert!(granted.iter().skip(at + 1).all(is_apart), "{granted:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_durable_store_is_refused_by_every_hash_until_it_is_bound_to_it() {
    let cluster = RedisCluster::start(Program::Redis).unwrap();
    let first: Arc<dyn SegmentStore> = Arc::new(MemoryStore::default());
    let second: Arc<dyn SegmentStore> = Arc::new(MemoryStore::default());
    let options = || RedisOptions::from_url(&cluster.url("preheat=false&raise-min=100&raise-max=100")).unwrap();
    let open = async |durable: &Arc<dyn SegmentStore>| {
        RedisStore::connect(options(), Backing::Durable(Arc::clone(durable))).await
    };
    let tags: Vec<String> = (0..12).map(|number| format!("t{number}")).collect();
    let mut last = Vec::new();
    let store = open(&first).await.unwrap();
    for tag in &tags {
        last.push(store.allocate(tag, 60, 0).await.unwrap().end);
    }
    let refused = |error: StoreError| assert!(error.to_string().contains("another durable store"), "{error}");
    refused(open(&second).await.unwrap_err());
    // Nobody remembers but the hashes.
    for node in cluster.nodes() {
        let _ = node.cli(&["DEL", "unalike:durable"]);
    }
    let stranger = open(&second).await.unwrap();
    for tag in &tags {
        // What this Redis has left, it hands out; more it does not get.
        while let Ok(segment) = stranger.allocate(tag, 60, 0).await {
            assert!(segment.end <= 101, "{tag}: {segment:?}");
        }
        refused(stranger.allocate(tag, 60, 0).await.unwrap_err());
    }
    for node in cluster.nodes() {
        let _ = node.cli(&["DEL", "unalike:durable"]);
    }
    RedisStore::rebind(&options(), &first, &second).await.unwrap();
    let store = open(&second).await.unwrap();
    for (tag, last) in tags.iter().zip(&last) {
        assert!(store.allocate(tag, 60, 0).await.unwrap().start >= *last);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_is_burnt_and_never_asked_for_again() {
    let cluster = RedisCluster::start(Program::Redis).unwrap();
    let owner = cluster.first_owner(KEY).unwrap();
    let node = cluster.at(owner).unwrap();
    let proxy = Proxy::start(node.port()).unwrap();
    // Clients are told to come through the proxy.
    for node in cluster.nodes() {
        node.cli(&["CONFIG", "SET", "cluster-announce-port", &node.port().to_string()]).unwrap();
    }
    node.cli(&["CONFIG", "SET", "cluster-announce-port", &proxy.port().to_string()]).unwrap();
    // A client may ask any node again, and some hear of it later.
    let announced = format!(":{}@", proxy.port());
    for node in cluster.nodes() {
        let hears = async || node.cli(&["CLUSTER", "NODES"]).unwrap().contains(&announced);
        until("each node announces the proxy", hears).await;
    }
    let options = RedisOptions::from_url(&format!("redis+cluster://127.0.0.1:{}?preheat=false", proxy.port())).unwrap();
    let store = RedisStore::connect(options, Backing::Durable(Arc::new(MemoryStore::default()))).await.unwrap();
    let mut next = store.allocate("order", 10, 0).await.unwrap().end;
    for _ in 0..5 {
        proxy.lose_answer_with("granted");
        let error = store.allocate("order", 10, 0).await.unwrap_err();
        assert!(error.is_retryable() && error.may_have_granted(), "{error:?}");
        assert!(proxy.has_lost());
        let segment = store.allocate("order", 10, 0).await.unwrap();
        assert_eq!(segment.start, next + 10, "once, and no more");
        next = segment.end;
    }
}
