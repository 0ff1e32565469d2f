//! Redis under a ceiling that a durable store keeps: the contract, and what is checked of a server before it is used.

#![expect(clippy::expect_used, reason = "a fixture that cannot start fails the test")]

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tempfile::TempDir;
use unalike_redis::{Backing, RedisOptions, RedisStore};
use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_storage::contract::{self, Fixture, SegmentFixture};
use unalike_storage::{SegmentStore, TagCreation};
use unalike_tests::redis::{Persistence, Program, Redis};

/// A server, and a file that keeps the ceilings.
struct UnderSqlite {
    redis: Mutex<Redis>,
    directory: TempDir,
}

impl UnderSqlite {
    fn start(persistence: Persistence) -> Self {
        Self::start_program(Program::Redis, persistence)
    }

    fn start_program(program: Program, persistence: Persistence) -> Self {
        let redis = Redis::start_program(program, persistence, &[]).expect("Redis starts");
        Self { redis: Mutex::new(redis), directory: TempDir::new().expect("a directory") }
    }

    fn options(&self) -> RedisOptions {
        let redis = self.redis.lock().unwrap_or_else(PoisonError::into_inner);
        RedisOptions::from_url(&redis.url(0, "preheat=false")).expect("a URL")
    }

    async fn durable(&self, creation: TagCreation) -> Arc<dyn SegmentStore> {
        let options = SqliteOptions { creation, ..SqliteOptions::new(self.directory.path().join("ids.sqlite")) };
        Arc::new(SqliteStore::connect(options).await.expect("the file opens"))
    }
}

#[async_trait]
impl Fixture for UnderSqlite {
    async fn restart(&self) {
        self.redis.lock().unwrap_or_else(PoisonError::into_inner).restart().expect("Redis starts again");
    }
}

#[async_trait]
impl SegmentFixture for UnderSqlite {
    async fn segment_client(&self, creation: TagCreation) -> Arc<dyn SegmentStore> {
        let watermark = Backing::Durable(self.durable(creation).await);
        Arc::new(RedisStore::connect(self.options(), watermark).await.expect("connected"))
    }

    fn can_be_a_stripe(&self) -> bool {
        false
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_keeps_the_contract_of_segments_through_kill_9() {
    contract::segments(&UnderSqlite::start(Persistence::AofEverySecond)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_keeps_the_contract_of_segments_though_it_keeps_nothing() {
    contract::segments(&UnderSqlite::start(Persistence::Nothing)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn valkey_keeps_the_contract_of_segments() {
    contract::segments(&UnderSqlite::start_program(Program::Valkey, Persistence::Nothing)).await;
}
