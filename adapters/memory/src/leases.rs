//! The lease port in memory: one row per worker of a namespace.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use async_trait::async_trait;
use unalike_storage::{
    Clocks, GrantId, Lease, LeaseAcquire, LeaseExtend, LeaseRecord, LeaseStore, NamespaceBinding, SegmentStore,
    StoreError, StoreIdentity, UsedWorker, choose_worker, time_of_leases,
};

use crate::MemoryStore;

/// A namespace: what it is bound to, and the newest lease of each worker that was ever granted.
#[derive(Clone, Debug)]
pub(crate) struct NamespaceRow {
    binding: NamespaceBinding,
    workers: BTreeMap<u32, WorkerRow>,
}

impl NamespaceRow {
    pub(crate) fn quarantine(&mut self, until_ms: u64) {
        self.binding.floor_ms = until_ms;
        self.workers.values_mut().for_each(|worker| worker.is_final = true);
    }
}

#[derive(Clone, Debug)]
struct WorkerRow {
    /// Its `valid_until_ms` is the greatest end recorded for the worker.
    lease: Lease,
    holder: String,
    acquired_ms: u64,
    /// The end is fixed.
    is_final: bool,
}

impl WorkerRow {
    fn record(&self) -> LeaseRecord {
        let Self { lease, holder, acquired_ms, is_final } = self;
        LeaseRecord { lease: *lease, holder: holder.clone(), acquired_ms: *acquired_ms, is_final: *is_final }
    }
}

#[async_trait]
impl LeaseStore for MemoryStore {
    async fn acquire(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError> {
        acquire.validate()?;
        let namespace = acquire.namespace.as_str();
        let mut state = self.state()?;
        let clocks = Clocks { holder_ms: acquire.now_ms, store_ms: (self.options.clock)() };
        self.options.limits.check_clocks(clocks)?;
        if state.left.contains(namespace) || state.tags.contains_key(&time_of_leases(namespace)?) {
            return Err(StoreError::leases_in_redis(namespace, state.namespaces.contains_key(namespace)));
        }
        let floor_ms = state.leases_from_ms;
        let row = match state.namespaces.entry(namespace.to_owned()) {
            Entry::Occupied(row) => row.into_mut(),
            Entry::Vacant(row) => {
                let binding = NamespaceBinding::new(acquire.layout, self.options.limits)?;
                let binding = NamespaceBinding { floor_ms, ..binding };
                binding.check_quarantine(namespace, clocks.store_ms)?;
                // A request that is refused binds nothing.
                binding.grant(0, clocks, acquire.horizon_ms)?;
                row.insert(NamespaceRow { binding, workers: BTreeMap::new() })
            }
        };
        row.binding.check_layout(namespace, acquire.layout)?;
        row.binding.check_quarantine(namespace, clocks.store_ms)?;

        let used = row.workers.iter().map(|(&worker, row)| {
            let used = UsedWorker { worker, end_ms: row.lease.valid_until_ms };
            (used, row.holder.as_str())
        });
        let chosen = choose_worker(acquire, clocks.store_ms, (self.options.random)(), used)?;
        let interval = row.binding.grant(chosen.end_ms, clocks, acquire.horizon_ms)?;
        let (high, low) = ((self.options.random)(), (self.options.random)());
        let lease = Lease {
            worker: chosen.worker,
            grant_id: GrantId(u128::from(high) << 64 | u128::from(low)),
            not_before_ms: interval.start,
            valid_until_ms: interval.end,
        };
        let acquired_ms = clocks.store_ms;
        let granted = WorkerRow { lease, holder: acquire.holder.clone(), acquired_ms, is_final: false };
        row.workers.insert(lease.worker, granted);
        Ok(lease)
    }

    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        extend.validate()?;
        let namespace = extend.namespace.as_str();
        let lost = || StoreError::LeaseLost { namespace: namespace.to_owned(), worker: extend.worker };
        let mut state = self.state()?;
        let clocks = Clocks { holder_ms: extend.now_ms, store_ms: (self.options.clock)() };
        self.options.limits.check_clocks(clocks)?;
        let row = state.namespaces.get_mut(namespace).ok_or_else(lost)?;
        row.binding.check_layout(namespace, extend.layout)?;
        let worker = row.workers.get_mut(&extend.worker).ok_or_else(lost)?;
        if worker.lease.grant_id != extend.grant_id || worker.is_final {
            return Err(lost());
        }
        worker.lease.valid_until_ms =
            row.binding.extended_end_ms(worker.lease.valid_until_ms, clocks.store_ms, extend.horizon_ms);
        Ok(worker.lease)
    }

    async fn release(&self, namespace: &str, worker: u32, grant_id: GrantId, end_ms: u64) -> Result<bool, StoreError> {
        let mut state = self.state()?;
        let Some(row) = state.namespaces.get_mut(namespace) else { return Ok(false) };
        let Some(worker) = row.workers.get_mut(&worker) else { return Ok(false) };
        if worker.lease.grant_id != grant_id || worker.is_final {
            return Ok(false);
        }
        let Some(end_ms) = row.binding.released_end_ms(&worker.lease, end_ms) else { return Ok(false) };
        worker.lease.valid_until_ms = end_ms;
        worker.is_final = true;
        Ok(true)
    }

    async fn leases(&self, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        let state = self.state()?;
        let workers = state.namespaces.get(namespace).map(|row| row.workers.values());
        Ok(workers.into_iter().flatten().map(WorkerRow::record).collect())
    }

    async fn forbid_extension(&self, namespace: &str, worker: u32) -> Result<Option<LeaseRecord>, StoreError> {
        let mut state = self.state()?;
        let row = state.namespaces.get_mut(namespace).and_then(|row| row.workers.get_mut(&worker));
        Ok(row.map(|row| {
            row.is_final = true;
            row.record()
        }))
    }

    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        SegmentStore::identity(self).await
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        Ok(self.state()?.namespaces.keys().cloned().collect())
    }
}
