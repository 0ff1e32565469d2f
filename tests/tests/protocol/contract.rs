//! The contract suite on every store: memory and SQLite, each also as three stripes.

#![expect(clippy::expect_used, reason = "a fixture that cannot start fails the test")]

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tempfile::TempDir;
use unalike_memory::{MemoryOptions, MemoryStore};
use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_storage::contract::{self, Fixture, LeaseFixture, SegmentFixture};
use unalike_storage::{LeaseLimits, LeaseStore, SegmentStore, StripedStore, TagCreation};

/// One store in memory; it has nothing to be restarted from.
#[derive(Default)]
struct Memory {
    store: MemoryStore,
}

#[async_trait]
impl Fixture for Memory {
    async fn restart(&self) {}
}

#[async_trait]
impl SegmentFixture for Memory {
    async fn segment_client(&self, creation: TagCreation) -> Arc<dyn SegmentStore> {
        Arc::new(self.store.client(MemoryOptions { creation, ..MemoryOptions::default() }))
    }
}

#[async_trait]
impl LeaseFixture for Memory {
    async fn lease_client(&self, limits: LeaseLimits) -> Arc<dyn LeaseStore> {
        Arc::new(self.store.client(MemoryOptions { limits, ..MemoryOptions::default() }))
    }
}

/// One file in a directory of its own; each client has its own connections.
struct Sqlite {
    directory: TempDir,
    opened: Mutex<Vec<SqliteStore>>,
}

impl Sqlite {
    fn new() -> Self {
        Self { directory: TempDir::new().expect("a directory for the file"), opened: Mutex::default() }
    }

    async fn open(&self, creation: TagCreation, limits: LeaseLimits) -> SqliteStore {
        let path = self.directory.path().join("ids.sqlite");
        let options = SqliteOptions { creation, limits, ..SqliteOptions::new(path) };
        let store = SqliteStore::connect(options).await.expect("the file opens");
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).push(store.clone());
        store
    }
}

#[async_trait]
impl Fixture for Sqlite {
    async fn restart(&self) {
        let opened = std::mem::take(&mut *self.opened.lock().unwrap_or_else(PoisonError::into_inner));
        for store in opened {
            store.close().await;
        }
        let log = self.directory.path().join("ids.sqlite-wal");
        assert!(!log.exists(), "with the last connection the write-ahead log goes into the file");
    }
}

#[async_trait]
impl SegmentFixture for Sqlite {
    async fn segment_client(&self, creation: TagCreation) -> Arc<dyn SegmentStore> {
        Arc::new(self.open(creation, LeaseLimits::default()).await)
    }
}

#[async_trait]
impl LeaseFixture for Sqlite {
    async fn lease_client(&self, limits: LeaseLimits) -> Arc<dyn LeaseStore> {
        Arc::new(self.open(TagCreation::default(), limits).await)
    }
}

/// Three stores of a kind that number together.
struct Stripes<F>([F; 3]);

#[async_trait]
impl<F: Fixture> Fixture for Stripes<F> {
    async fn restart(&self) {
        for store in &self.0 {
            store.restart().await;
        }
    }
}

#[async_trait]
impl<F: SegmentFixture> SegmentFixture for Stripes<F> {
    async fn segment_client(&self, creation: TagCreation) -> Arc<dyn SegmentStore> {
        let mut stores = Vec::new();
        for store in &self.0 {
            stores.push(store.segment_client(creation).await);
        }
        Arc::new(StripedStore::open(stores).await.expect("the stripes open"))
    }

    fn keeps_order(&self) -> bool {
        false
    }

    fn can_be_a_stripe(&self) -> bool {
        false
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_keeps_the_contract_of_segments() {
    contract::segments(&Memory::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_keeps_the_contract_of_leases() {
    contract::leases(&Memory::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_keeps_the_contract_of_segments() {
    contract::segments(&Sqlite::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stripes_in_memory_keep_the_contract_of_segments() {
    contract::segments(&Stripes::<Memory>(Default::default())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stripes_in_sqlite_keep_the_contract_of_segments() {
    contract::segments(&Stripes([Sqlite::new(), Sqlite::new(), Sqlite::new()])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_keeps_the_contract_of_leases() {
    contract::leases(&Sqlite::new()).await;
}
