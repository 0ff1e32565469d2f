//! Fixtures that the tests share: stores that fail on demand, and the server as a child process.
#![expect(clippy::unwrap_used, reason = "a fixture that cannot do its work fails its test")]

pub mod authority;
pub mod clients;
pub mod clock;
pub mod etcd;
pub mod faults;
pub mod faulty;
pub mod galera;
pub mod holders;
pub mod hosts;
pub mod http2;
pub mod lease_model;
pub mod leases;
pub mod local;
pub mod log;
pub mod mariadb;
pub mod misdeeds;
pub mod multiplexer;
pub mod mysql_leases;
pub mod notations;
pub mod outages;
pub mod postgres;
pub mod process;
pub mod prometheus;
pub mod proxy;
pub mod redis;
pub mod redis_cluster;
pub mod redis_sentinels;
pub mod refusals;
pub mod resize_model;
pub mod server;
pub mod shared;
pub mod simulation;
pub mod sqlite;
pub mod sub_keys;
pub mod sweep;
pub mod users;
pub mod wasmtime;
pub mod zookeeper;

/// How long a test waits for what must happen, on a busy machine too. What has not happened by then never will.
pub const PATIENCE: std::time::Duration = std::time::Duration::from_secs(90);

/// Waits until something holds.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !holds().await {
        assert!(std::time::Instant::now() < deadline, "{what}: it does not come to be so");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

/// The code in the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// The code on the page of the stores, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../adapters/README.md")]
pub struct AdaptersReadme;

/// The code on the page of the store in etcd, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../adapters/etcd/README.md")]
pub struct EtcdReadme;

/// The code on the page of the library, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../host/runtime/README.md")]
pub struct RuntimeReadme;

/// The code on the page of the server, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../host/server/README.md")]
pub struct ServerReadme;
