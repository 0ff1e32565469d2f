//! The lease port over HTTP.

use std::sync::Arc;

use async_trait::async_trait;
use reqwest::Method;
use unalike_storage::{GrantId, Lease, LeaseAcquire, LeaseExtend, LeaseRecord, LeaseStore, StoreError, StoreIdentity};

use crate::RemoteOptions;
use crate::answers::{GrantedLease, Released};
use crate::servers::{Access, Part, Request, Servers};

/// Leases of unalike servers; clones share the connections.
///
/// The namespace of a lease is a snowflake that the servers have in their configuration, with the same layout.
///
/// ```no_run
/// use std::sync::Arc;
/// use unalike_remote::{RemoteLeases, RemoteOptions};
/// use unalike_storage::{LeaseStore, StoreError};
///
/// async fn leases() -> Result<Arc<dyn LeaseStore>, StoreError> {
///     Ok(Arc::new(RemoteLeases::connect(RemoteOptions::from_url("http://127.0.0.1:8080")?).await?))
/// }
/// ```
#[derive(Clone, Debug)]
pub struct RemoteLeases {
    servers: Arc<Servers>,
}

impl RemoteLeases {
    /// Asks the servers which store of leases they have.
    ///
    /// # Errors
    /// As [`RemoteStore::connect`](crate::RemoteStore::connect).
    pub async fn connect(options: RemoteOptions) -> Result<Self, StoreError> {
        Ok(Self { servers: Arc::new(Servers::connect(&options, Part::Leases).await?) })
    }

    async fn grant(
        &self,
        namespace: &str,
        request: &Request<'_>,
        is_asked_for: impl Fn(&Lease) -> bool,
    ) -> Result<Lease, StoreError> {
        let granted: GrantedLease = self.servers.ask(request, |granted: &GrantedLease| Some(granted.store.0)).await?;
        let lease = granted.lease().filter(|lease| granted.snowflake == namespace && is_asked_for(lease));
        lease.ok_or_else(|| {
            let address = self.servers.address();
            StoreError::outcome_unknown(format!(
                "{}: {address} answered {granted:?}, which was not asked for and is not used",
                request.doing
            ))
        })
    }

    fn administered<T>(what: &str) -> Result<T, StoreError> {
        let what = format!("{what} where the leases are kept, and not over HTTP: run `unalike leases` there");
        Err(StoreError::refused(what))
    }
}

#[async_trait]
impl LeaseStore for RemoteLeases {
    async fn acquire(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError> {
        acquire.validate()?;
        let namespace = acquire.namespace.as_str();
        let mut query = vec![
            ("layout", acquire.layout.to_string()),
            ("now_ms", acquire.now_ms.to_string()),
            ("horizon_ms", acquire.horizon_ms.to_string()),
        ];
        if !acquire.holder.is_empty() {
            query.push(("holder", acquire.holder.clone()));
        }
        query.extend(acquire.preferred_worker.map(|worker| ("preferred_worker", worker.to_string())));
        let request = Request {
            doing: format!("leasing a worker of {namespace:?}"),
            access: Access::Writes,
            method: Method::POST,
            path: vec!["v1", "snowflakes", namespace, "leases"],
            query,
            body: None,
        };
        self.grant(namespace, &request, |lease| lease.worker <= acquire.layout.worker_max()).await
    }

    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        extend.validate()?;
        let (namespace, worker) = (extend.namespace.as_str(), extend.worker.to_string());
        let request = Request {
            doing: format!("extending the lease of worker {worker} of {namespace:?}"),
            access: Access::Writes,
            method: Method::POST,
            path: vec!["v1", "snowflakes", namespace, "leases", &worker, "extend"],
            query: vec![
                ("grant_id", format!("{:032x}", extend.grant_id.0)),
                ("layout", extend.layout.to_string()),
                ("now_ms", extend.now_ms.to_string()),
                ("horizon_ms", extend.horizon_ms.to_string()),
            ],
            body: None,
        };
        let is_same = |lease: &Lease| lease.worker == extend.worker && lease.grant_id == extend.grant_id;
        self.grant(namespace, &request, is_same).await
    }

    async fn release(&self, namespace: &str, worker: u32, grant_id: GrantId, end_ms: u64) -> Result<bool, StoreError> {
        let number = worker.to_string();
        let request = Request {
            doing: format!("giving worker {worker} of {namespace:?} back"),
            access: Access::Writes,
            method: Method::POST,
            path: vec!["v1", "snowflakes", namespace, "leases", &number, "release"],
            query: vec![("grant_id", format!("{:032x}", grant_id.0)), ("end_ms", end_ms.to_string())],
            body: None,
        };
        let released = self.servers.ask(&request, |released: &Released| Some(released.store.0)).await?;
        Ok(released.released)
    }

    async fn forbid_extension(&self, _namespace: &str, _worker: u32) -> Result<Option<LeaseRecord>, StoreError> {
        Self::administered("leases are ended")
    }

    async fn leases(&self, _namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        Self::administered("leases are listed")
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        Self::administered("namespaces are listed")
    }

    /// That of the servers' store of leases.
    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        Ok(self.servers.store())
    }
}
