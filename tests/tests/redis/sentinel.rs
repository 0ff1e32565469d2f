//! The master that Sentinels name: the contract through their URL, and each way in which they make another server the
//! master, under load. No number is granted twice, those of the master ascend in real time, and ids flow again soon.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tempfile::TempDir;
use unalike_redis::{Backing, RedisLeases, RedisOptions, RedisStore};
use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_storage::contract::{self, Fixture, LeaseFixture, SegmentFixture};
use unalike_storage::{LeaseLimits, LeaseStore, SegmentStore, StoreError, TagCreation, lock};
use unalike_tests::clients::{Grant, monotonic_ns};
use unalike_tests::proxy::Proxy;
use unalike_tests::redis::{Persistence, Program, Redis};
use unalike_tests::redis_sentinels::{MASTER, Sentinels, Watched};

use crate::load::{Load, RAISES, assert_few_gaps};

/// Ids flow again within this time after the Sentinels have agreed.
const AGAIN: Duration = Duration::from_secs(1);

/// A master, a replica, Sentinels, and a file that keeps the ceilings and bounds.
struct UnderSqlite {
    watched: Mutex<Watched>,
    directory: TempDir,
}

impl UnderSqlite {
    fn start() -> Self {
        Self { watched: Mutex::new(Watched::start(Program::Redis).unwrap()), directory: TempDir::new().unwrap() }
    }

    fn options(&self) -> RedisOptions {
        // A machine that is busy with other tests is not a server that is down.
        let parameters = "preheat=false&connect-timeout-ms=10000&request-timeout-ms=10000&raise-timeout-ms=10000";
        RedisOptions::from_url(&lock(&self.watched).sentinels.url(parameters)).unwrap()
    }

    async fn durable(&self, creation: TagCreation) -> Backing {
        let options = SqliteOptions { creation, ..SqliteOptions::new(self.directory.path().join("ids.sqlite")) };
        Backing::Durable(Arc::new(SqliteStore::connect(options).await.unwrap()))
    }
}

#[async_trait]
impl Fixture for UnderSqlite {
    async fn restart(&self) {
        lock(&self.watched).master.restart().unwrap();
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
async fn the_master_that_sentinels_name_keeps_the_contract_of_segments() {
    contract::segments(&UnderSqlite::start()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_master_that_sentinels_name_keeps_the_contract_of_leases() {
    contract::leases(&UnderSqlite::start()).await;
}

/// Checks that each client was granted something within a second after this time.
#[track_caller]
fn assert_flow_again(granted: &[Grant], agreed_ns: u64) {
    let clients = granted.iter().map(|grant| grant.client).max().unwrap() + 1;
    for client in 0..clients {
        let of_client = granted.iter().filter(|grant| grant.client == client);
        let first = of_client.map(|grant| grant.heard_ns).filter(|&heard_ns| heard_ns > agreed_ns).min().unwrap();
        let waited = Duration::from_nanos(first - agreed_ns);
        assert!(waited < AGAIN, "client {client} waited for {waited:?} after the Sentinels had agreed");
    }
}

/// The longest time in which nobody was granted anything.
fn longest_pause(granted: &[Grant]) -> Duration {
    let mut heard: Vec<u64> = granted.iter().map(|grant| grant.heard_ns).collect();
    heard.sort_unstable();
    Duration::from_nanos(heard.iter().zip(heard.iter().skip(1)).map(|(one, next)| next - one).max().unwrap())
}

#[test]
fn a_master_that_is_killed_under_load_costs_the_sentinels_time_and_a_gap() {
    let mut watched = Watched::start(Program::Redis).unwrap();
    let mut load = Load::start(&[watched.sentinels.url(RAISES)]);
    watched.master.kill9().unwrap();
    watched.sentinels.wait_for_master(&watched.replica).unwrap();
    let agreed_ns = monotonic_ns();
    load.served();
    let granted = load.stop();
    assert_flow_again(&granted, agreed_ns);
    println!("killed: nobody was granted anything for {:?}", longest_pause(&granted));
    assert_few_gaps(&granted, 1);
}

#[test]
fn valkey_fails_over_in_the_same_way() {
    let mut watched = Watched::start(Program::Valkey).unwrap();
    let mut load = Load::start(&[watched.sentinels.url(RAISES)]);
    watched.master.kill9().unwrap();
    watched.sentinels.wait_for_master(&watched.replica).unwrap();
    load.served();
    assert_few_gaps(&load.stop(), 1);
}

#[test]
fn a_replica_that_lags_and_is_promoted_by_sentinels_repeats_nothing() {
    let mut watched = Watched::start(Program::Redis).unwrap();
    let mut load = Load::start(&[watched.sentinels.url(RAISES)]);
    watched.replica.lag().unwrap();
    let left = |redis: &Redis| redis.cli(&["HGET", "unalike:{order}", "left"]).unwrap();
    let (lagging, incarnation) = (left(&watched.replica), "unalike:{order}");
    load.served();
    watched.master.kill9().unwrap();
    assert_eq!(left(&watched.replica), lagging, "it has what was left some time ago");
    let before = watched.replica.cli(&["HGET", incarnation, "incarnation"]).unwrap();
    watched.sentinels.wait_for_master(&watched.replica).unwrap();
    load.served();
    let after = watched.replica.cli(&["HGET", incarnation, "incarnation"]).unwrap();
    assert_ne!(before, after);
    load.stop();
}

/// The Sentinels and the replica reach the master no more, and those who ask it by its own address do.
#[test]
fn an_old_master_that_goes_on_behind_a_partition_shares_no_number_with_the_new_one() {
    let old = Redis::start(Persistence::Nothing).unwrap();
    let network = Proxy::start(old.port()).unwrap();
    let replica =
        Redis::start_with(Persistence::Nothing, &["--replicaof", "127.0.0.1", &network.port().to_string()]).unwrap();
    replica.wait_until(|info| info.contains("master_link_status:up")).unwrap();
    let sentinels = Sentinels::start(Program::Redis, network.port(), 1).unwrap();
    let mut load = Load::start(&[sentinels.url(RAISES), old.url(0, RAISES)]);
    network.stall(true);
    sentinels.wait_for_master(&replica).unwrap();
    let agreed_ns = monotonic_ns();
    // Both are served: those beyond the partition by the old master, the others by the new one.
    load.served();
    assert_eq!(old.info("role").unwrap(), "master");
    let granted = load.stop();
    let beyond: Vec<Grant> = granted.iter().filter(|grant| grant.client < 3).copied().collect();
    assert_flow_again(&beyond, agreed_ns);
    drop(network);
}

/// It stands still, is replaced, and goes on as a master until a Sentinel tells it.
#[test]
fn an_old_master_that_wakes_up_is_left_for_the_new_one() {
    let watched = Watched::start(Program::Redis).unwrap();
    let mut load = Load::start(&[watched.sentinels.url(RAISES), watched.master.url(0, RAISES)]);
    watched.master.pause().unwrap();
    watched.sentinels.wait_for_master(&watched.replica).unwrap();
    watched.master.resume().unwrap();
    // Asked by its own address, it grants what is its own, until it is a replica: then nothing.
    load.served_by_first();
    watched.master.wait_until(|info| info.contains("role:slave")).unwrap();
    load.served_by_first();
    // Whoever asked the old one when it woke up was served by it once more.
    let granted = load.end_in_any_order();
    println!("paused: nobody was granted anything for {:?}", longest_pause(&granted));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_sentinel_that_answers_is_enough_and_one_that_lies_is_not_believed() {
    let mut watched = Watched::start(Program::Redis).unwrap();
    let directory = TempDir::new().unwrap();
    let open = async |url: &str| {
        let durable = SqliteStore::connect(SqliteOptions::new(directory.path().join("ids.sqlite"))).await.unwrap();
        let mut options = RedisOptions::from_url(url).unwrap();
        options.preheat = false;
        // A machine that is busy with other tests is not a server that is down.
        options.connect_timeout = Duration::from_secs(10);
        options.request_timeout = options.connect_timeout;
        RedisStore::connect(options, Backing::Durable(Arc::new(durable))).await
    };
    let granted_by = async |url: &str| {
        let store = open(url).await.unwrap();
        store.allocate("order", 1, 0).await.unwrap();
        watched.master.info("cmdstat_evalsha").unwrap().split([',', '=']).nth(1).unwrap().parse::<u64>().unwrap()
    };
    let ports = watched.sentinels.ports();
    let before = granted_by(&watched.sentinels.url("")).await;
    let dead = format!("redis+sentinel://127.0.0.1:1,127.0.0.1:{}/{MASTER}", ports[2]);
    assert!(granted_by(&dead).await > before, "one that is not there");
    // One that names a replica: of three, of two, and alone.
    let liar = liar(ports[0], watched.master.port(), watched.replica.port());
    for (honest, counts) in [(&ports[1..], true), (&ports[2..], true), (&[], false)] {
        let hosts: Vec<String> = std::iter::once(&liar).chain(honest).map(|port| format!("127.0.0.1:{port}")).collect();
        let url = format!("redis+sentinel://{}/{MASTER}", hosts.join(","));
        if counts {
            assert!(granted_by(&url).await > before, "{url}");
        } else {
            let error = open(&url).await.err().unwrap();
            assert!(error.is_retryable() && error.to_string().contains("is a replica"), "{error}");
        }
    }
    watched.sentinels.pause(0).unwrap();
    let url = watched.sentinels.url("");
    let between = monotonic_ns();
    assert!(granted_by(&url).await > before);
    let waited = Duration::from_nanos(monotonic_ns() - between);
    assert!(waited < Duration::from_secs(5), "one that stands still is not waited for, but: {waited:?}");
    watched.sentinels.kill9(1).unwrap();
    assert!(granted_by(&url).await > before, "one of three");

    let refused = |answer: Result<RedisStore, StoreError>, words: &str| {
        let error = answer.err().unwrap();
        assert!(error.to_string().contains(words) && !error.is_retryable(), "{error}");
    };
    refused(
        open(&format!("redis+sentinel://127.0.0.1:{}/other", ports[2])).await,
        "watches over no master of the name \"other\"",
    );
    refused(
        open(&watched.master.url(0, "").replace("redis://", "redis+cluster://").replace("/0", "")).await,
        "no node of a Redis Cluster",
    );
    let down = open("redis+sentinel://127.0.0.1:1,127.0.0.1:2/ids").await.err().unwrap();
    assert!(down.is_retryable() && down.to_string().contains("(a Sentinel)"), "{down}");
    let error = RedisStore::connect(RedisOptions::from_url(&dead).unwrap(), Backing::RedisAlone).await.err().unwrap();
    assert!(error.to_string().contains("durability=assumed") && !error.is_retryable(), "{error}");
    let error = RedisLeases::connect(RedisOptions::from_url(&dead).unwrap(), Backing::RedisAlone).await.err().unwrap();
    assert!(error.to_string().contains("durability=assumed"), "{error}");
}

/// The port of a Sentinel that names another server than the real one.
fn liar(sentinel: u16, right: u16, wrong: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", sentinel)).unwrap());
            let (mut asked, mut asking) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut asked, &mut asking));
            std::thread::spawn(move || {
                let mut buffer = [0; 4_096];
                loop {
                    let Ok(length @ 1..) = server.read(&mut buffer) else { return };
                    // Ports of five figures each.
                    let said = String::from_utf8_lossy(buffer.get(..length).unwrap())
                        .replace(&right.to_string(), &wrong.to_string());
                    client.write_all(said.as_bytes()).unwrap();
                }
            });
        }
    });
    port
}
