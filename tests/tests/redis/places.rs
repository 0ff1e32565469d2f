//! One namespace, one place: a Redis and the durable store behind it, either of which could lease its workers, on real
//! servers of every kind of durable store.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test that cannot go on fails"
)]

use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use unalike_etcd::{EtcdOptions, EtcdStore};
use unalike_mysql::{MysqlOptions, MysqlStore};
use unalike_postgres::{PostgresOptions, PostgresStore};
use unalike_redis::{Backing, RedisLeases, RedisOptions};
use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_storage::{
    Layout, Lease, LeaseAcquire, LeaseExtend, LeaseStore, LeasesKept, SegmentStore, StoreError, TagOptions,
    time_of_leases,
};
use unalike_tests::etcd::Etcd;
use unalike_tests::leases::now_ms;
use unalike_tests::mariadb::MariaDb;
use unalike_tests::postgres::Postgres;
use unalike_tests::redis::{Persistence, Redis};

const PATIENT: &str = "connect-timeout-ms=20000&request-timeout-ms=20000&raise-timeout-ms=20000";

/// A durable store of its own.
enum Durable {
    Sqlite(PathBuf),
    Mysql(String),
    Postgres(String),
    Etcd(String),
}

impl Durable {
    /// What grants Redis its time, and what leases workers, as one program has them.
    async fn open(&self) -> (Arc<dyn SegmentStore>, Arc<dyn LeaseStore>) {
        match self {
            Self::Sqlite(path) => {
                let store = Arc::new(SqliteStore::connect(SqliteOptions::new(path)).await.unwrap());
                (Arc::clone(&store) as _, store)
            }
            Self::Mysql(url) => {
                let store = MysqlStore::connect(MysqlOptions::from_url(url).unwrap()).await.unwrap();
                let leases = Arc::new(store.leases().await.unwrap());
                (Arc::new(store), leases)
            }
            Self::Postgres(url) => {
                let store = PostgresStore::connect(PostgresOptions::from_url(url).unwrap()).await.unwrap();
                let leases = Arc::new(store.leases().await.unwrap());
                (Arc::new(store), leases)
            }
            Self::Etcd(url) => {
                let store = EtcdStore::connect(EtcdOptions::from_url(url).unwrap()).await.unwrap();
                let leases = Arc::new(store.leases().await.unwrap());
                (Arc::new(store), leases)
            }
        }
    }
}

/// Both places, as a program that has just been started finds them.
struct Places {
    segments: Arc<dyn SegmentStore>,
    durable: Arc<dyn LeaseStore>,
    redis: Arc<dyn LeaseStore>,
}

impl Places {
    async fn open(server: &Redis, durable: &Durable) -> Self {
        let (segments, leases) = durable.open().await;
        let options = RedisOptions::from_url(&server.url(0, PATIENT)).unwrap();
        let redis = RedisLeases::connect(options, Backing::Durable(Arc::clone(&segments))).await.unwrap();
        Self { segments, durable: leases, redis: Arc::new(redis) }
    }

    /// All that either place has: the tags of the durable store, its namespaces, and the keys of Redis.
    async fn state(&self, server: &Redis) -> (Vec<(String, u64)>, Vec<String>, String) {
        let tags = self.segments.tags(None, 1_000).await.unwrap();
        let tags = tags.into_iter().map(|record| (record.tag, record.watermark)).collect();
        (tags, self.durable.namespaces().await.unwrap(), server.cli(&["KEYS", "*"]).unwrap())
    }
}

async fn acquire(store: &Arc<dyn LeaseStore>, namespace: &str) -> Result<Lease, StoreError> {
    let acquire = LeaseAcquire {
        namespace: namespace.to_owned(),
        layout: Layout::TWITTER,
        holder: String::new(),
        preferred_worker: None,
        now_ms: now_ms(),
        horizon_ms: 10_000,
    };
    store.acquire(&acquire).await
}

async fn extend(store: &Arc<dyn LeaseStore>, namespace: &str, lease: Lease) -> Result<Lease, StoreError> {
    let extend = LeaseExtend {
        namespace: namespace.to_owned(),
        layout: Layout::TWITTER,
        worker: lease.worker,
        grant_id: lease.grant_id,
        now_ms: now_ms(),
        horizon_ms: 12_000,
    };
    store.extend(&extend).await
}

#[track_caller]
fn assert_elsewhere(refused: Result<Lease, StoreError>, where_it_is: LeasesKept) {
    let error = refused.expect_err("the namespace is kept in the other place");
    assert!(!error.is_retryable() && !error.may_have_granted(), "{error}");
    match error {
        StoreError::LeasesElsewhere { kept, .. } => assert_eq!(kept, where_it_is),
        other => panic!("another error: {other}"),
    }
}

async fn check(durable: &Durable) {
    let mut server = Redis::start(Persistence::Nothing).unwrap();
    the_second_place_is_refused(&mut server, durable).await;
    of_both_at_once_one_has_it(&server, durable).await;
    what_was_begun_before_goes_on(&server, durable).await;
}

async fn the_second_place_is_refused(server: &mut Redis, durable: &Durable) {
    let first = Places::open(server, durable).await;
    let lease = acquire(&first.durable, "stored").await.unwrap();
    let before = first.state(server).await;
    assert_elsewhere(acquire(&first.redis, "stored").await, LeasesKept::InStore);
    assert_eq!(first.state(server).await, before, "what was refused changed nothing");
    extend(&first.durable, "stored", lease).await.unwrap();

    let lease = acquire(&first.redis, "cached").await.unwrap();
    let before = first.state(server).await;
    first.redis.check_namespace("cached", Layout::TWITTER).await.unwrap();
    first.redis.check_namespace("never used", Layout::LEAF).await.unwrap();
    assert!(matches!(
        first.redis.check_namespace("cached", Layout::LEAF).await,
        Err(StoreError::LayoutMismatch { .. })
    ));
    assert_elsewhere(acquire(&first.durable, "cached").await, LeasesKept::InRedis);
    assert!(matches!(
        first.durable.check_namespace("cached", Layout::TWITTER).await,
        Err(StoreError::LeasesElsewhere { kept: LeasesKept::InRedis, .. })
    ));
    assert_eq!(first.state(server).await, before, "what was refused changed nothing");
    assert_eq!(first.durable.namespaces().await.unwrap(), ["stored"], "the mark is no namespace");
    extend(&first.redis, "cached", lease).await.unwrap();

    // So it is after a restart of the programs, and of a Redis that lost everything.
    server.restart().unwrap();
    let second = Places::open(server, durable).await;
    second.redis.check_namespace("cached", Layout::TWITTER).await.unwrap();
    assert_elsewhere(acquire(&second.redis, "stored").await, LeasesKept::InStore);
    assert_elsewhere(acquire(&second.durable, "cached").await, LeasesKept::InRedis);
    acquire(&second.durable, "stored").await.unwrap();
}

async fn of_both_at_once_one_has_it(server: &Redis, durable: &Durable) {
    const PROGRAMS: usize = 4;
    let mut programs = Vec::new();
    for _ in 0..PROGRAMS {
        programs.push(Arc::new(Places::open(server, durable).await));
    }
    for round in 0..6 {
        let namespace = format!("race-{round}");
        let ask = |store: &Arc<dyn LeaseStore>, is_redis: bool| {
            let (store, namespace) = (Arc::clone(store), namespace.clone());
            tokio::spawn(async move { (is_redis, acquire(&store, &namespace).await) })
        };
        let asked: Vec<_> =
            programs.iter().flat_map(|places| [ask(&places.redis, true), ask(&places.durable, false)]).collect();
        let (mut granted, mut refused) = (Vec::new(), Vec::new());
        for asked in asked {
            match asked.await.unwrap() {
                (is_redis, Ok(_)) => granted.push(is_redis),
                (is_redis, Err(StoreError::LeasesElsewhere { .. })) => refused.push(is_redis),
                (is_redis, Err(error)) => assert!(error.is_retryable(), "{is_redis}: {error}"),
            }
        }
        assert!(!granted.is_empty() && granted.iter().all(|is_redis| *is_redis == granted[0]), "{granted:?}");
        assert!(refused.len() == PROGRAMS && !refused.contains(&granted[0]), "{granted:?} {refused:?}");
    }
}

/// Before there were marks, a namespace in Redis left its granted time in the durable store, and nothing else.
async fn what_was_begun_before_goes_on(server: &Redis, durable: &Durable) {
    let first = Places::open(server, durable).await;
    let time = time_of_leases("early").unwrap();
    let options = TagOptions { start: now_ms(), ..TagOptions::default() };
    first.segments.create_tag(&time, &options).await.unwrap();
    assert_elsewhere(acquire(&first.durable, "early").await, LeasesKept::InRedis);
    assert!(!first.durable.namespaces().await.unwrap().contains(&"early".to_owned()), "a refusal binds nothing");
    acquire(&first.redis, "early").await.unwrap();
    assert_elsewhere(acquire(&first.durable, "early").await, LeasesKept::InRedis);

    let lease = acquire(&first.durable, "both").await.unwrap();
    first.segments.create_tag(&time_of_leases("both").unwrap(), &options).await.unwrap();
    let before = first.state(server).await;
    assert_elsewhere(acquire(&first.durable, "both").await, LeasesKept::InBoth);
    assert_elsewhere(acquire(&first.redis, "both").await, LeasesKept::InBoth);
    assert_eq!(first.state(server).await, before, "what was refused changed nothing");
    extend(&first.durable, "both", lease).await.expect("a lease that runs is its holder's");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_has_one_place_in_redis_and_sqlite() {
    let directory = TempDir::new().unwrap();
    check(&Durable::Sqlite(directory.path().join("ids.sqlite"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_has_one_place_in_redis_and_mariadb() {
    check(&Durable::Mysql(MariaDb::shared().unwrap().database().unwrap())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_has_one_place_in_redis_and_postgres() {
    let server = Postgres::shared().unwrap();
    check(&Durable::Postgres(server.database().unwrap())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_has_one_place_in_redis_and_etcd() {
    check(&Durable::Etcd(Etcd::shared().unwrap().url())).await;
}
