//! Leases of worker ids from any centre that can replace a value only if nobody else did: etcd, Consul, DynamoDB, an
//! object store with conditional writes, or a table with a version column.
//!
//! `cargo run -p unalike --example lease_centre` runs the contract suite on it, which every store must pass, and then
//! takes snowflakes from it. To use a centre of your own, implement the three functions of `Centre` on its client; the
//! rules of leases stay as they are.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use unalike::storage::contract::{self, Fixture, LeaseFixture};
use unalike::storage::{
    Clocks, GrantId, Lease, LeaseAcquire, LeaseExtend, LeaseLimits, LeaseRecord, LeaseStore, NamespaceBinding,
    StoreError, UsedWorker, choose_worker, random_64, random_128,
};
use unalike::{Clock, Ids, Layout, SnowflakeOptions, SystemClock};

/// A key-value store with compare-and-swap.
///
/// It must be durable and linearizable: a value that it acknowledged is never replaced by an older one. A read may be
/// stale, since a write on top of it is then refused.
#[async_trait]
trait Centre: Send + Sync + 'static {
    /// The value of a key with its version (etcd's `mod_revision`, Consul's `ModifyIndex`, an `ETag`); none if it does
    /// not exist.
    async fn get(&self, key: &str) -> Result<Option<(Vec<u8>, u64)>, StoreError>;

    /// Replaces the value if its version is still this one, or creates it if there was none; answers whether it did.
    ///
    /// The client must not send it twice by itself, and if it does not hear the answer, the error must be
    /// `StoreError::OutcomeUnknown`: what was granted then is nobody's.
    async fn put_if_version(&self, key: &str, value: Vec<u8>, version: Option<u64>) -> Result<bool, StoreError>;

    /// All keys that begin like this.
    async fn keys(&self, prefix: &str) -> Result<Vec<String>, StoreError>;
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    contract::leases(&Shared::default()).await;
    println!("the store keeps the contract");

    let centre = Arc::new(Memory::default());
    let store = Arc::new(CentreLeases { centre: centre.clone(), limits: LeaseLimits::default() });
    let ids = Ids::builder().leases(store.clone()).holder("host-a:8080").build().await?;
    let flakes = ids.snowflake("default", SnowflakeOptions::new(Layout::TWITTER)).await?;
    let batch = flakes.take(1_000).await?;
    ids.close().await; // gives the worker back
    let leases = store.leases("default").await?;
    let ended = leases.iter().filter(|record| record.is_final).count();
    println!("{} snowflakes, {} worker leased, {ended} given back", batch.len(), leases.len());
    Ok(())
}

/// The lease port over a centre: one value per namespace, changed by one compare-and-swap per request.
struct CentreLeases<C> {
    centre: Arc<C>,
    limits: LeaseLimits,
}

const PREFIX: &str = "unalike/leases/";

/// Each try is lost only to somebody else's success.
const TRIES_MAX: u32 = 100;

/// A namespace, as its value says: what it is bound to, and the newest lease of each worker.
#[derive(Serialize, Deserialize)]
struct Namespace {
    /// The figures of a [`NamespaceBinding`], by name.
    binding: BTreeMap<String, u64>,
    workers: BTreeMap<u32, Worker>,
}

#[derive(Serialize, Deserialize)]
struct Worker {
    /// Hexadecimal: JSON of other systems rounds great numbers.
    grant_id: String,
    not_before_ms: u64,
    /// The greatest end ever recorded for the worker.
    valid_until_ms: u64,
    holder: String,
    acquired_ms: u64,
    is_final: bool,
}

impl Namespace {
    fn new(binding: &NamespaceBinding) -> Self {
        let figures = binding.figures().map(|(name, figure)| (name.to_owned(), figure));
        Self { binding: figures.into(), workers: BTreeMap::new() }
    }

    fn binding(&self) -> Result<NamespaceBinding, StoreError> {
        let figure = |name| self.binding.get(name).copied().ok_or_else(|| corrupt(format!("{name} is missing")));
        NamespaceBinding::read(figure)?.map_err(corrupt)
    }

    /// The record of this lease, if it may still be extended and released.
    fn running(&mut self, worker: u32, grant_id: GrantId) -> Option<(&mut Worker, Lease)> {
        let row = self.workers.get_mut(&worker).filter(|row| !row.is_final)?;
        let lease = row.lease(worker).ok().filter(|lease| lease.grant_id == grant_id)?;
        Some((row, lease))
    }
}

impl Worker {
    fn lease(&self, worker: u32) -> Result<Lease, StoreError> {
        let grant_id = u128::from_str_radix(&self.grant_id, 16).map_err(|error| corrupt(error.to_string()))?;
        let (not_before_ms, valid_until_ms) = (self.not_before_ms, self.valid_until_ms);
        Ok(Lease { worker, grant_id: GrantId(grant_id), not_before_ms, valid_until_ms })
    }

    fn record(&self, worker: u32) -> Result<LeaseRecord, StoreError> {
        let (holder, acquired_ms, is_final) = (self.holder.clone(), self.acquired_ms, self.is_final);
        Ok(LeaseRecord { lease: self.lease(worker)?, holder, acquired_ms, is_final })
    }
}

impl<C: Centre> CentreLeases<C> {
    /// The store's clock. A centre without one of its own, as most are, leaves it to the synchronised clocks of those
    /// who ask: they decide which worker is offered and for how long, never whether two intervals overlap.
    fn clocks(&self, holder_ms: u64) -> Result<Clocks, StoreError> {
        let clocks = Clocks { holder_ms, store_ms: SystemClock.now_ms() };
        self.limits.check_clocks(clocks)?;
        Ok(clocks)
    }

    async fn read(&self, namespace: &str) -> Result<(Option<Namespace>, Option<u64>), StoreError> {
        let Some((value, version)) = self.centre.get(&format!("{PREFIX}{namespace}")).await? else {
            return Ok((None, None));
        };
        let read = serde_json::from_slice(&value).map_err(|error| corrupt(error.to_string()))?;
        Ok((Some(read), Some(version)))
    }

    /// Reads the namespace, changes it, and answers when the change is in the centre and came of what was read. Whoever
    /// was overtaken decides anew on what is there then. A refusal changes nothing.
    async fn change<T>(
        &self,
        namespace: &str,
        change: impl Fn(&mut Option<Namespace>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        for _ in 0..TRIES_MAX {
            let (mut state, version) = self.read(namespace).await?;
            let answer = change(&mut state)?;
            let Some(changed) = state else { return Ok(answer) };
            let value = serde_json::to_vec(&changed).map_err(|error| corrupt(error.to_string()))?;
            if self.centre.put_if_version(&format!("{PREFIX}{namespace}"), value, version).await? {
                return Ok(answer);
            }
            // Others hurry, too: who waits for different times meets less often.
            tokio::time::sleep(Duration::from_micros(random_64()? % 1_000)).await;
        }
        let what = format!("{namespace:?} was changed by others {TRIES_MAX} times in between: try again");
        Err(StoreError::unavailable(what))
    }
}

#[async_trait]
impl<C: Centre> LeaseStore for CentreLeases<C> {
    async fn acquire(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError> {
        acquire.validate()?;
        self.clocks(acquire.now_ms)?;
        let fresh = NamespaceBinding::new(acquire.layout, self.limits)?;
        self.change(&acquire.namespace, |state| {
            // The clock is read for each try: one that waited for its turn must not look back.
            let clocks = Clocks { holder_ms: acquire.now_ms, store_ms: SystemClock.now_ms() };
            let namespace = state.get_or_insert_with(|| Namespace::new(&fresh));
            let binding = namespace.binding()?;
            binding.check_layout(&acquire.namespace, acquire.layout)?;
            let used = namespace.workers.iter().map(|(&worker, row)| {
                let used = UsedWorker { worker, end_ms: row.valid_until_ms };
                (used, row.holder.as_str())
            });
            let chosen = choose_worker(acquire, clocks.store_ms, random_64()?, used)?;
            let interval = binding.grant(chosen.end_ms, clocks, acquire.horizon_ms)?;
            let granted = Worker {
                grant_id: format!("{:032x}", random_128()?),
                not_before_ms: interval.start,
                valid_until_ms: interval.end,
                holder: acquire.holder.clone(),
                acquired_ms: clocks.store_ms,
                is_final: false,
            };
            let lease = granted.lease(chosen.worker);
            namespace.workers.insert(chosen.worker, granted);
            lease
        })
        .await
    }

    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        extend.validate()?;
        let clocks = self.clocks(extend.now_ms)?;
        self.change(&extend.namespace, |state| {
            let lost = || StoreError::LeaseLost { namespace: extend.namespace.clone(), worker: extend.worker };
            let namespace = state.as_mut().ok_or_else(lost)?;
            let binding = namespace.binding()?;
            binding.check_layout(&extend.namespace, extend.layout)?;
            let (row, lease) = namespace.running(extend.worker, extend.grant_id).ok_or_else(lost)?;
            row.valid_until_ms = binding.extended_end_ms(lease.valid_until_ms, clocks.store_ms, extend.horizon_ms);
            Ok(Lease { valid_until_ms: row.valid_until_ms, ..lease })
        })
        .await
    }

    async fn release(&self, namespace: &str, worker: u32, grant_id: GrantId, end_ms: u64) -> Result<bool, StoreError> {
        self.change(namespace, |state| {
            let Some(namespace) = state else { return Ok(false) };
            let binding = namespace.binding()?;
            let Some((row, lease)) = namespace.running(worker, grant_id) else { return Ok(false) };
            let Some(end_ms) = binding.released_end_ms(&lease, end_ms) else { return Ok(false) };
            (row.valid_until_ms, row.is_final) = (end_ms, true);
            Ok(true)
        })
        .await
    }

    async fn forbid_extension(&self, namespace: &str, worker: u32) -> Result<Option<LeaseRecord>, StoreError> {
        self.change(namespace, |state| {
            let row = state.as_mut().and_then(|namespace| namespace.workers.get_mut(&worker));
            row.map(|row| {
                row.is_final = true;
                row.record(worker)
            })
            .transpose()
        })
        .await
    }

    async fn leases(&self, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        let workers = self.read(namespace).await?.0.map(|namespace| namespace.workers).unwrap_or_default();
        workers.iter().map(|(&worker, row)| row.record(worker)).collect()
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        let keys = self.centre.keys(PREFIX).await?;
        let mut names: Vec<_> = keys.iter().filter_map(|key| key.strip_prefix(PREFIX)).map(str::to_owned).collect();
        names.sort_unstable();
        Ok(names)
    }
}

fn corrupt(why: String) -> StoreError {
    StoreError::corrupt(format!("a value under {PREFIX} is not as unalike writes it: {why}"))
}

/// A centre in this process, for the run of this example: yours takes its place. It forgets everything when the process
/// ends, which a centre must never do.
#[derive(Default)]
struct Memory(Mutex<BTreeMap<String, (Vec<u8>, u64)>>);

#[async_trait]
impl Centre for Memory {
    async fn get(&self, key: &str) -> Result<Option<(Vec<u8>, u64)>, StoreError> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned())
    }

    async fn put_if_version(&self, key: &str, value: Vec<u8>, version: Option<u64>) -> Result<bool, StoreError> {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_current = values.get(key).map(|(_, version)| *version) == version;
        if is_current {
            values.insert(key.to_owned(), (value, version.unwrap_or(0) + 1));
        }
        Ok(is_current)
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(values.keys().filter(|key| key.starts_with(prefix)).cloned().collect())
    }
}

/// What the contract suite needs: new clients of one centre. There is no server that could be restarted.
#[derive(Default)]
struct Shared(Arc<Memory>);

#[async_trait]
impl Fixture for Shared {
    async fn restart(&self) {}
}

#[async_trait]
impl LeaseFixture for Shared {
    async fn lease_client(&self, limits: LeaseLimits) -> Arc<dyn LeaseStore> {
        Arc::new(CentreLeases { centre: Arc::clone(&self.0), limits })
    }
}
