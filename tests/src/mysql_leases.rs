//! Holders of leases, as the tests of MySQL have them.

use std::time::{Duration, Instant};

use unalike_mysql::MysqlLeases;
use unalike_storage::{
    FieldOrder, Layout, LayoutFields, Lease, LeaseAcquire, LeaseExtend, LeaseStore as _, StoreError,
};

use crate::leases::now_ms;

/// Somebody who wants a worker.
#[derive(Clone, Debug)]
pub struct Holder {
    /// Where from.
    pub leases: MysqlLeases,
    /// Of which namespace.
    pub namespace: String,
    /// Its name.
    pub holder: String,
    /// The layout of its ids: 1,024 workers and ticks of a millisecond, unless something else is said.
    pub layout: Layout,
    /// The worker that it would like to have.
    pub preferred: Option<u32>,
    /// How far its clock is off, in milliseconds.
    pub offset_ms: i64,
}

impl Holder {
    /// One whose clock is right.
    #[must_use]
    pub fn new(leases: &MysqlLeases, namespace: &str, holder: &str) -> Self {
        Self {
            leases: leases.clone(),
            namespace: namespace.to_owned(),
            holder: holder.to_owned(),
            layout: Layout::TWITTER,
            preferred: None,
            offset_ms: 0,
        }
    }

    /// A layout with four workers and ticks of a millisecond.
    #[must_use]
    pub fn few_workers() -> Layout {
        layout(2)
    }

    /// A layout with one worker and ticks of a millisecond.
    #[must_use]
    pub fn one_worker() -> Layout {
        layout(0)
    }

    fn now_ms(&self) -> u64 {
        now_ms().checked_add_signed(self.offset_ms).unwrap()
    }

    /// What it asks for.
    #[must_use]
    pub fn request(&self, horizon_ms: u64) -> LeaseAcquire {
        LeaseAcquire {
            namespace: self.namespace.clone(),
            layout: self.layout,
            holder: self.holder.clone(),
            preferred_worker: self.preferred,
            now_ms: self.now_ms(),
            horizon_ms,
        }
    }

    /// Acquires a worker.
    ///
    /// # Errors
    /// As the store's.
    pub async fn acquire(&self, horizon_ms: u64) -> Result<Lease, StoreError> {
        self.leases.acquire(&self.request(horizon_ms)).await
    }

    /// Acquires until it succeeds, which a store that recovers by itself does soon.
    ///
    /// # Panics
    /// When it fails for good, or does not succeed within a minute.
    pub async fn acquire_at_last(&self, horizon_ms: u64) -> Lease {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            match self.acquire(horizon_ms).await {
                Ok(lease) => return lease,
                Err(error) => assert!(error.is_retryable() && Instant::now() < deadline, "{error:?}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Prolongs a lease.
    ///
    /// # Errors
    /// As the store's.
    pub async fn extend(&self, lease: &Lease, horizon_ms: u64) -> Result<Lease, StoreError> {
        let extend = LeaseExtend {
            namespace: self.namespace.clone(),
            layout: self.layout,
            worker: lease.worker,
            grant_id: lease.grant_id,
            now_ms: self.now_ms(),
            horizon_ms,
        };
        self.leases.extend(&extend).await
    }

    /// Gives a lease back.
    ///
    /// # Errors
    /// As the store's.
    pub async fn release(&self, lease: &Lease, end_ms: u64) -> Result<bool, StoreError> {
        self.leases.release(&self.namespace, lease.worker, lease.grant_id, end_ms).await
    }
}

fn layout(worker_bits: u8) -> Layout {
    let fields = LayoutFields {
        timestamp_bits: 41,
        datacenter_bits: 0,
        worker_bits,
        sequence_bits: 12,
        order: FieldOrder::WorkerFirst,
        epoch_ms: 1_577_836_800_000,
        tick_ms: 1,
    };
    Layout::new(fields).unwrap()
}
