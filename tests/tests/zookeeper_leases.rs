//! Worker leases in ZooKeeper, on real servers: the contract, servers that are killed, paused and restarted, lost answers
//! and sessions, clocks that are moved, and nodes that somebody else changed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use unalike_storage::contract::{self, Fixture, LeaseFixture};
use unalike_storage::{LeaseLimits, LeaseStore};
use unalike_tests::zookeeper::Zookeeper;
use unalike_zookeeper::{ZookeeperLeases, ZookeeperOptions};

/// A server of its own, since the suite restarts it.
struct Server(Mutex<Zookeeper>);

#[async_trait]
impl Fixture for Server {
    async fn restart(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).restart().unwrap();
    }
}

#[async_trait]
impl LeaseFixture for Server {
    async fn lease_client(&self, limits: LeaseLimits) -> Arc<dyn LeaseStore> {
        let port = self.0.lock().unwrap_or_else(PoisonError::into_inner).port();
        let mut options = ZookeeperOptions::new(&format!("127.0.0.1:{port}")).unwrap();
        options.limits = limits;
        Arc::new(ZookeeperLeases::connect(options).await.unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn zookeeper_keeps_the_contract_of_leases() {
    contract::leases(&Server(Mutex::new(Zookeeper::start().unwrap()))).await;
}
