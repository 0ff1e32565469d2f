//! Worker leases in a real Redis, by itself and with a durable store behind it: the contract, and that no two intervals
//! of one worker overlap whatever Redis loses.

#![expect(clippy::panic_in_result_fn, clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use tempfile::TempDir;
use unalike_redis::{RedisLeases, RedisOptions, Watermark};
use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_storage::contract::{self, Fixture, LeaseFixture};
use unalike_storage::{
    GrantId, Layout, Lease, LeaseAcquire, LeaseExtend, LeaseLimits, LeaseRecord, LeaseStore, StoreError,
};
use unalike_tests::redis::{Persistence, Redis};

/// Longer than this machine is ever busy with something else.
const PATIENT: &str = "connect-timeout-ms=20000&request-timeout-ms=20000&raise-timeout-ms=20000";

#[expect(clippy::disallowed_methods, reason = "a holder's clock")]
fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn options(url: &str, limits: LeaseLimits) -> RedisOptions {
    let mut options = RedisOptions::from_url(&format!("{url}&{PATIENT}")).unwrap();
    options.limits = limits;
    options
}

// The contract.

/// A server, and a file that keeps its bounds.
struct UnderSqlite {
    redis: Mutex<Redis>,
    directory: TempDir,
}

impl UnderSqlite {
    fn start(persistence: Persistence) -> Self {
        Self { redis: Mutex::new(Redis::start(persistence).unwrap()), directory: TempDir::new().unwrap() }
    }
}

#[async_trait]
impl Fixture for UnderSqlite {
    async fn restart(&self) {
        lock(&self.redis).restart().unwrap();
    }
}

#[async_trait]
impl LeaseFixture for UnderSqlite {
    async fn lease_client(&self, limits: LeaseLimits) -> Arc<dyn LeaseStore> {
        let durable = SqliteStore::connect(SqliteOptions::new(self.directory.path().join("ids.sqlite"))).await.unwrap();
        let options = options(&lock(&self.redis).url(0, ""), limits);
        Arc::new(RedisLeases::connect(options, Watermark::Durable(Arc::new(durable))).await.unwrap())
    }

    fn forgets_in_a_restart(&self) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_under_a_durable_store_keeps_the_contract_though_it_keeps_nothing() {
    contract::leases(&UnderSqlite::start(Persistence::Nothing)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_under_a_durable_store_keeps_the_contract_and_what_it_persists() {
    contract::leases(&UnderSqlite::start(Persistence::AofAlways)).await;
}

/// A server alone, whose namespaces are initialised before they are used first.
struct Alone {
    redis: Mutex<Redis>,
    initialised: Arc<Mutex<HashSet<String>>>,
}

impl Alone {
    fn start(persistence: Persistence) -> Self {
        Self { redis: Mutex::new(Redis::start(persistence).unwrap()), initialised: Arc::default() }
    }
}

#[async_trait]
impl Fixture for Alone {
    async fn restart(&self) {
        lock(&self.redis).restart().unwrap();
    }
}

#[async_trait]
impl LeaseFixture for Alone {
    async fn lease_client(&self, limits: LeaseLimits) -> Arc<dyn LeaseStore> {
        let options = options(&lock(&self.redis).url(0, ""), limits);
        let leases = RedisLeases::connect(options.clone(), Watermark::RedisAlone).await.unwrap();
        Arc::new(Initialised { leases, options, initialised: Arc::clone(&self.initialised) })
    }

    fn forgets_in_a_restart(&self) -> bool {
        true
    }
}

/// Leases of namespaces that are initialised, once, when a request finds that they are not.
struct Initialised {
    leases: RedisLeases,
    options: RedisOptions,
    initialised: Arc<Mutex<HashSet<String>>>,
}

#[async_trait]
impl LeaseStore for Initialised {
    async fn acquire(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError> {
        let answer = self.leases.acquire(acquire).await;
        if !matches!(answer, Err(StoreError::Quarantined { .. })) {
            return answer;
        }
        let namespace = acquire.namespace.as_str();
        if lock(&self.initialised).insert(namespace.to_owned()) {
            assert!(RedisLeases::initialise(&self.options, namespace, acquire.layout).await?, "it is new");
        }
        self.leases.acquire(acquire).await
    }

    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        self.leases.extend(extend).await
    }

    async fn release(&self, namespace: &str, worker: u32, grant_id: GrantId, end_ms: u64) -> Result<bool, StoreError> {
        self.leases.release(namespace, worker, grant_id, end_ms).await
    }

    async fn forbid_extension(&self, namespace: &str, worker: u32) -> Result<Option<LeaseRecord>, StoreError> {
        self.leases.forbid_extension(namespace, worker).await
    }

    async fn leases(&self, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        self.leases.leases(namespace).await
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        self.leases.namespaces().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_alone_keeps_the_contract_though_it_keeps_nothing() {
    contract::leases(&Alone::start(Persistence::Nothing)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_alone_keeps_the_contract_and_what_it_persists() {
    contract::leases(&Alone::start(Persistence::AofAlways)).await;
}
