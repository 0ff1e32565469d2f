//! A store that may be down when the program starts.

use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tokio::sync::OnceCell;
use unalike_core::{GrantId, Layout, Lease};

use crate::{
    JoinedStripe, LeaseAcquire, LeaseExtend, LeaseRecord, LeaseStore, SegmentLayer, SegmentStore, StoreError,
    StoreIdentity, Stripe, lock,
};

type Open<S> = Box<dyn Fn() -> BoxFuture<'static, Result<S, StoreError>> + Send + Sync>;

/// A store that is opened when it is first needed, so that it may be down when the program starts.
///
/// Until it has been opened, each request tries to open it, and fails with the error of opening. It is never opened
/// twice at the same time: requests that come meanwhile wait, and one that fails then fails for all that waited for it.
///
/// ```
/// use std::sync::Arc;
/// use unalike_storage::{Lazy, SegmentStore, StoreError, StripedStore};
///
/// /// Three stores as the stripes of one set, one or two of which may be down.
/// async fn together<S, Opened>(connect: fn(&'static str) -> Opened) -> Result<StripedStore, StoreError>
/// where
///     S: SegmentStore,
///     Opened: Future<Output = Result<S, StoreError>> + Send + 'static,
/// {
///     let stores = ["a.example", "b.example", "c.example"];
///     let lazy = stores.map(|address| Arc::new(Lazy::new(move || connect(address))) as Arc<dyn SegmentStore>);
///     StripedStore::open(lazy.to_vec()).await
/// }
/// ```
pub struct Lazy<S> {
    open: Open<S>,
    address: Option<String>,
    store: OnceCell<S>,
    tries: Mutex<Tries>,
}

/// How often it was tried to open a store.
#[derive(Default)]
struct Tries {
    begun: u64,
    /// What the last one failed with.
    failure: Option<StoreError>,
}

impl<S> Lazy<S> {
    /// What `open` opens. Nothing is opened yet.
    #[must_use]
    pub fn new<Opening>(open: impl Fn() -> Opening + Send + Sync + 'static) -> Self
    where
        Opening: Future<Output = Result<S, StoreError>> + Send + 'static,
    {
        Self {
            open: Box::new(move || Box::pin(open())),
            address: None,
            store: OnceCell::new(),
            tries: Mutex::default(),
        }
    }

    /// Its [`address`](SegmentStore::address), for messages before it is open too.
    ///
    /// ```
    /// use unalike_storage::{Lazy, SegmentStore, StoreError, StripedStore};
    ///
    /// let down: Lazy<StripedStore> = Lazy::new(|| async { Err(StoreError::unavailable("the server is down")) });
    /// let down = down.at("db.example/ids".to_owned());
    /// assert_eq!(down.address().as_deref(), Some("db.example/ids"));
    /// ```
    #[must_use]
    pub fn at(mut self, address: String) -> Self {
        self.address = Some(address);
        self
    }

    /// The store, opened unless it is open.
    ///
    /// # Errors
    /// Whatever opening it brings; the next request tries again.
    pub async fn opened(&self) -> Result<&S, StoreError> {
        if let Some(store) = self.get() {
            return Ok(store);
        }
        let begun_before = lock(&self.tries).begun;
        let open = async || {
            {
                let mut tries = lock(&self.tries);
                // Another try that began later than this request was made for it, too.
                if tries.begun > begun_before
                    && let Some(failure) = &tries.failure
                {
                    return Err(failure.repeated());
                }
                tries.begun += 1;
                tries.failure = None;
            }
            let opened = (self.open)().await;
            lock(&self.tries).failure = opened.as_ref().err().map(StoreError::repeated);
            opened
        };
        self.store.get_or_try_init(open).await
    }

    /// The store, if it is open.
    #[must_use]
    pub fn get(&self) -> Option<&S> {
        self.store.get()
    }
}

impl<S> fmt::Debug for Lazy<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lazy").field("is_open", &self.store.initialized()).finish_non_exhaustive()
    }
}

#[async_trait]
impl<S: SegmentStore> SegmentLayer for Lazy<S> {
    fn below(&self) -> Option<&dyn SegmentStore> {
        self.get().map(|store| store as _)
    }

    async fn reach(&self) -> Result<&dyn SegmentStore, StoreError> {
        Ok(self.opened().await?)
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        // It is open, so nothing has to be in front of the client that joined.
        self.opened().await?.join_stripe(stripe).await
    }

    fn address(&self) -> Option<String> {
        self.address.clone().or_else(|| self.below()?.address())
    }
}

#[async_trait]
impl<S: LeaseStore + ?Sized> LeaseStore for Lazy<Arc<S>> {
    async fn acquire(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError> {
        self.opened().await?.acquire(acquire).await
    }

    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        self.opened().await?.extend(extend).await
    }

    async fn release(&self, namespace: &str, worker: u32, grant_id: GrantId, end_ms: u64) -> Result<bool, StoreError> {
        self.opened().await?.release(namespace, worker, grant_id, end_ms).await
    }

    async fn forbid_extension(&self, namespace: &str, worker: u32) -> Result<Option<LeaseRecord>, StoreError> {
        self.opened().await?.forbid_extension(namespace, worker).await
    }

    async fn leases(&self, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        self.opened().await?.leases(namespace).await
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        self.opened().await?.namespaces().await
    }

    async fn check_namespace(&self, namespace: &str, layout: Layout) -> Result<(), StoreError> {
        self.opened().await?.check_namespace(namespace, layout).await
    }

    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        self.opened().await?.identity().await
    }

    async fn clock_ms(&self) -> Result<Option<u64>, StoreError> {
        self.opened().await?.clock_ms().await
    }

    fn reach_ms(&self, namespace: &str, worker: u32) -> Option<u64> {
        self.get()?.reach_ms(namespace, worker)
    }

    async fn close(&self) {
        if let Some(store) = self.get() {
            store.close().await;
        }
    }
}
