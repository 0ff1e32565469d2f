//! Where snowflakes get their workers: from the configuration to an open lease store.
//!
//! Leases are kept where `--leases` says, or else in the durable store of the sequences. Sequences do without them, so
//! a lease store that is down keeps nothing but snowflakes from going on: it is connected to when it is needed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use async_trait::async_trait;
use unalike::storage::{
    ClockSteps, GrantId, Lazy, Lease, LeaseAcquire, LeaseExtend, LeaseLimits, LeaseRecord, LeaseStore, StoreError,
    StoreIdentity,
};
use unalike::{Clock, SystemClock};
use unalike_local::{LocalLeases, LocalOptions, StaticWorker};
use unalike_stores::{LeaseSource, OpenSet, lease_forms};

use crate::config::Config;
use crate::config::leases::LeasePlace;
use crate::service::stores::Purpose;
use crate::words::with_causes;

/// How long the start of a service waits for a lease store on a server; after that it is taken to be down.
const START_MAX: Duration = Duration::from_secs(3);

/// What is said where there are no leases.
static LEASES_MISSING: LazyLock<String> = LazyLock::new(|| {
    format!(
        "snowflakes need a store that leases them workers, and this server has none: start it with --leases {}",
        lease_forms()
    )
});

/// The same where there is a store that has no room for them.
const LEASES_REFUSED: &str = "snowflakes need a store that leases them workers, and this server's refuses: run what `unalike \
                              schema` prints, where its tables are missing, or name another store (--leases sqlite://PATH); \
                              the server's log has more";

/// The leases of a process.
pub(crate) struct Leases {
    /// Where snowflakes get their workers.
    store: Option<Arc<dyn LeaseStore>>,
    /// The same without the local copies of this process, for those who lease workers by it.
    shared: Option<SharedLeases>,
    /// The same, where it is on a server and nothing is in front of it.
    remote: Option<Remote>,
}

/// A store that leases workers to others than this process.
pub(crate) struct SharedLeases {
    pub(crate) store: Arc<dyn LeaseStore>,
    pub(crate) limits: LeaseLimits,
    /// Where this server's clock was set.
    pub(crate) steps: ClockSteps,
}

impl SharedLeases {
    fn new(store: Arc<dyn LeaseStore>, limits: LeaseLimits) -> Self {
        let steps = ClockSteps::default();
        steps.read(Instant::now(), SystemClock.now_ms());
        Self { store, limits, steps }
    }
}

/// How a lease stands now, in a word or two.
pub(crate) fn lease_state(record: &LeaseRecord) -> &'static str {
    if record.lease.valid_until_ms <= SystemClock.now_ms() {
        "ended"
    } else if record.is_final {
        "extension forbidden"
    } else {
        "running"
    }
}

impl Leases {
    /// Opens the lease store that the configuration names.
    ///
    /// # Errors
    /// When it is named and cannot be used. One that is down is no error, nor is a store of the sequences that keeps
    /// no leases.
    pub(crate) async fn open(config: &Config, purpose: Purpose, open: &mut OpenSet<'_>) -> anyhow::Result<Self> {
        if let LeasePlace::Static = config.lease_place() {
            return Self::open_static(config, purpose).await;
        }
        let Some(source) = open.leases().await? else { return Ok(Self { store: None, shared: None, remote: None }) };
        let (url, is_named, name) = (source.url().clone(), source.is_named(), source.name().to_owned());
        let (failed, limits) = (source.failure(), config.lease_limits());
        if source.is_unbacked() && purpose == Purpose::Serving {
            tracing::warn!(
                "no durable store backs the leases in {url} (--backing none): two workers are kept apart by \
                 the clocks of its servers, which must be within {} ms of each other",
                limits.max_skew_ms
            );
        }
        let server = Server::Store(source);
        if url.is_file() {
            let store = server.connect().await.context(failed)?;
            return Self::behind_local_copies(store, name, config, purpose).await;
        }
        let remote = Remote::new(server, url.to_string());
        if purpose == Purpose::Serving {
            let connected = tokio::time::timeout(START_MAX, remote.store.opened()).await;
            match connected.map(|connected| connected.map(drop)) {
                Ok(Ok(())) => {}
                Ok(Err(error)) if is_named && !error.is_retryable() => return Err(error).context(failed),
                Ok(Err(error)) => {
                    let error = with_causes(&error);
                    tracing::warn!(error, "the store of leases {url} cannot be used now, and will be tried again");
                }
                Err(_) => tracing::warn!("the store of leases {url} does not answer, and will be tried again"),
            }
        }
        if config.local_leases.is_some() && purpose == Purpose::Serving {
            return Self::behind_local_copies(remote.store, name, config, purpose).await;
        }
        let store: Arc<dyn LeaseStore> = Arc::clone(&remote.store) as _;
        Ok(Self {
            store: Some(Arc::clone(&store)),
            shared: Some(SharedLeases::new(store, limits)),
            remote: Some(remote),
        })
    }

    /// With the local copies of running leases in front, if there are to be any. A command is too short for them, and
    /// the directory may be a server's.
    async fn behind_local_copies(
        store: Arc<dyn LeaseStore>,
        name: String,
        config: &Config,
        purpose: Purpose,
    ) -> anyhow::Result<Self> {
        let shared = Some(SharedLeases::new(Arc::clone(&store), config.lease_limits()));
        let store = match config.local_leases.as_ref().filter(|_| purpose == Purpose::Serving) {
            None => store,
            Some(directory) => {
                // A server that ends is mostly started again: it keeps its worker, and needs nobody for that.
                let options = LocalOptions { give_back: false, store: Some(name), ..LocalOptions::new(directory) };
                let local = LocalLeases::open(store, options).await;
                let failed = || format!("{} cannot keep the local leases (--local-leases)", directory.display());
                Arc::new(local.with_context(failed)?)
            }
        };
        Ok(Self { store: Some(store), shared, remote: None })
    }

    async fn open_static(config: &Config, purpose: Purpose) -> anyhow::Result<Self> {
        let (Some(worker), Some(directory)) = (config.worker_number()?, &config.local_leases) else {
            bail!("a static worker needs --worker and --local-leases")
        };
        let server = Server::Static(worker, LocalOptions::new(directory));
        let remote = Remote::new(server, directory.display().to_string());
        if purpose == Purpose::Serving {
            let failed = || format!("worker {worker} cannot be used from {} (--local-leases)", directory.display());
            remote.store.opened().await.with_context(failed)?;
        }
        Ok(Self { store: Some(remote.store), shared: None, remote: None })
    }

    /// Whether the snowflakes that are configured can get workers, as far as can be told beforehand.
    ///
    /// # Errors
    /// When one cannot for good. A store that is down, and one beside the sequences that keeps no leases, are no error.
    pub(crate) async fn check(&self, config: &Config) -> anyhow::Result<()> {
        let (url, is_named) = match config.lease_place() {
            LeasePlace::Named(url) => (url, true),
            LeasePlace::Beside(url) => (url, false),
            LeasePlace::Static | LeasePlace::Nowhere => return Ok(()),
        };
        let Some(store) = self.store.as_ref().filter(|_| self.missing().is_none()) else { return Ok(()) };
        let snowflakes = config.snowflakes()?;
        // The one that is there unasked is not why somebody keeps sequences.
        let wanted = snowflakes.iter().filter(|(name, _)| is_named || config.names_snowflake(name));
        for (name, options) in wanted {
            let checked = tokio::time::timeout(START_MAX, store.check_namespace(name, options.layout)).await;
            match checked {
                Ok(Err(error)) if !error.is_retryable() => {
                    return Err(error)
                        .with_context(|| format!("the snowflake {name:?} gets no workers from {url} (--leases)"));
                }
                Ok(Ok(())) => {}
                // The store is down, of which a line tells.
                Ok(Err(_)) | Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Where snowflakes get their workers.
    pub(crate) fn store(&self) -> Option<&Arc<dyn LeaseStore>> {
        self.store.as_ref()
    }

    /// The store that leases workers to others than this process.
    ///
    /// # Errors
    /// Says why there is none, as with a worker that somebody assigned.
    pub(crate) fn shared(&self) -> Result<&SharedLeases, &'static str> {
        match (&self.shared, self.missing()) {
            (Some(shared), None) => Ok(shared),
            (_, missing) => Err(missing.unwrap_or(&LEASES_MISSING)),
        }
    }

    /// Why there are no leases, if there is nothing that could grant one.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        match (&self.store, &self.remote) {
            (None, _) => Some(&LEASES_MISSING),
            (Some(_), Some(remote)) if remote.is_refused() => Some(LEASES_REFUSED),
            (Some(_), _) => None,
        }
    }

    /// Asks a lease store again that refused to open: its tables may be there by now.
    pub(crate) async fn look_again(&self) {
        if let Some(remote) = &self.remote {
            remote.look_again().await;
        }
    }

    /// Closes the store. Not needed for safety.
    pub(crate) async fn close(&self) {
        if let Some(store) = &self.store {
            store.close().await;
        }
    }
}

/// What keeps leases, and how to get there.
enum Server {
    /// A store, that of the sequences or one of its own.
    Store(LeaseSource),
    /// None: a worker that somebody assigned.
    Static(u32, LocalOptions),
}

impl Server {
    async fn connect(&self) -> Result<Arc<dyn LeaseStore>, StoreError> {
        match self {
            Self::Store(source) => source.connect().await,
            Self::Static(worker, options) => Ok(Arc::new(Assigned::open(*worker, options.clone()).await?)),
        }
    }
}

/// A worker that somebody assigned, with what the command line says where it was not.
struct Assigned {
    worker: u32,
    /// The namespaces in which it was begun, and until when their layouts last, in Unix milliseconds.
    begun: BTreeMap<String, u64>,
    store: StaticWorker,
}

impl Assigned {
    async fn open(worker: u32, options: LocalOptions) -> Result<Self, StoreError> {
        if !options.directory.is_dir() {
            return Err(Self::unknown(
                worker,
                &format!("the directory {} does not exist", options.directory.display()),
            ));
        }
        let store = StaticWorker::open_unguarded(worker, options).await?;
        let mut begun = BTreeMap::new();
        for namespace in store.namespaces().await? {
            let ends_ms = store.leases(&namespace).await?.iter().map(|record| record.lease.valid_until_ms).max();
            begun.insert(namespace, ends_ms.unwrap_or(0));
        }
        Ok(Self { worker, begun, store })
    }

    fn unknown(worker: u32, why: &str) -> StoreError {
        let what = format!(
            "{why}, so nobody knows which ids worker {worker} has made: give the directory that keeps it (--local-leases), or, \
             if it was never used, begin it (unalike leases init NAMESPACE)"
        );
        StoreError::refused(what)
    }
}

#[async_trait]
impl LeaseStore for Assigned {
    async fn acquire(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError> {
        if self.begun.contains_key(&acquire.namespace) {
            return self.store.acquire(acquire).await;
        }
        Err(Self::unknown(self.worker, &format!("it was not begun in {:?}", acquire.namespace)))
    }

    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        self.store.extend(extend).await
    }

    async fn release(&self, namespace: &str, worker: u32, grant_id: GrantId, end_ms: u64) -> Result<bool, StoreError> {
        self.store.release(namespace, worker, grant_id, end_ms).await
    }

    async fn forbid_extension(&self, namespace: &str, worker: u32) -> Result<Option<LeaseRecord>, StoreError> {
        self.store.forbid_extension(namespace, worker).await
    }

    async fn leases(&self, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        self.store.leases(namespace).await
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        self.store.namespaces().await
    }

    fn reach_ms(&self, namespace: &str, worker: u32) -> Option<u64> {
        self.begun.get(namespace).copied().filter(|_| worker == self.worker)
    }

    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        self.store.identity().await
    }

    async fn close(&self) {
        self.store.close().await;
    }
}

/// A lease store that is opened when it is needed: on a server it may be down when the program starts.
struct Remote {
    store: Arc<Lazy<Arc<dyn LeaseStore>>>,
    /// Whether it last refused to open: for another reason than that it is down.
    refuses: Arc<AtomicBool>,
}

impl Remote {
    fn new(server: Server, shown: String) -> Self {
        let refuses = Arc::new(AtomicBool::new(false));
        let (server, last_refused) = (Arc::new((server, shown)), Arc::clone(&refuses));
        let connect = move || {
            let (server, refuses) = (Arc::clone(&server), Arc::clone(&last_refused));
            async move {
                let (server, shown) = &*server;
                let connected = server.connect().await;
                let is_refused = connected.as_ref().is_err_and(|error| !error.is_retryable());
                if refuses.swap(is_refused, Ordering::Relaxed) && connected.is_ok() {
                    tracing::info!("the store of leases {shown} can be used now");
                }
                connected
            }
        };
        Self { store: Arc::new(Lazy::new(connect)), refuses }
    }

    fn is_refused(&self) -> bool {
        self.store.get().is_none() && self.refuses.load(Ordering::Relaxed)
    }

    async fn look_again(&self) {
        if self.is_refused() {
            // What it says is told by `is_refused`, and to whoever asks for a lease.
            drop(self.store.opened().await);
        }
    }
}
