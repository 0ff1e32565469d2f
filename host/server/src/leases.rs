//! Where snowflakes get their workers: from the configuration to an open lease store.
//!
//! Leases are kept where `--leases` says, or else in the durable store of the sequences. Sequences do without them, so
//! a lease store that is down keeps nothing but snowflakes from going on: it is connected to when it is needed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;
use unalike::storage::{
    ClockSteps, GrantId, Lease, LeaseAcquire, LeaseExtend, LeaseLimits, LeaseRecord, LeaseStore, StoreError,
};
use unalike::{Clock, Layout, LayoutFields, SystemClock};
use unalike_local::{LocalLeases, LocalOptions, StaticAssignment, StaticWorker};
use unalike_mysql::{MysqlLeases, MysqlOptions};
use unalike_redis::{RedisLeases, RedisOptions, Watermark};
use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_zookeeper::{ZookeeperLeases, ZookeeperOptions};

use crate::commands::print;
use crate::config::Config;
use crate::problem::{Kind, Problem, with_causes};
use crate::stores::{self, Mysql, OpenStores, Opened, Purpose, StoreUrl};

/// How long the start of a service waits for a lease store on a server; after that it is taken to be down.
const START_MAX: Duration = Duration::from_secs(3);

/// No shorter lease can be renewed in time by a server that looks after it now and then.
const HORIZON_MIN_MS: u64 = 300;

/// Which worker a process would like to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "it must be a worker's number, or \"ordinal\"")]
pub(crate) enum Worker {
    /// This one.
    Number(u32),
    /// One that is said by what the process runs on.
    Named(WorkerName),
}

/// What says a worker's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WorkerName {
    /// The number at the end of the host's name, as the pods of a StatefulSet have it.
    Ordinal,
}

impl Worker {
    /// The number.
    ///
    /// # Errors
    /// When the host's name ends with none.
    pub(crate) fn number(self) -> anyhow::Result<u32> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Named(WorkerName::Ordinal) => {
                let host = host_name();
                ordinal(&host).with_context(|| {
                    format!("the host's name is {host:?} and ends with no number that could be the worker: give one (--worker 3)")
                })
            }
        }
    }
}

impl std::str::FromStr for Worker {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "ordinal" => Ok(Self::Named(WorkerName::Ordinal)),
            number => number.parse().map(Self::Number).map_err(|_| "it must be a worker's number, or ordinal"),
        }
    }
}

/// The number at the end of a host's name, its domain left out.
fn ordinal(host: &str) -> Option<u32> {
    let name = host.split('.').next()?;
    let digits = name.trim_end_matches(|character: char| character.is_ascii_digit()).len();
    name.get(digits..)?.parse().ok()
}

/// What the system calls this machine.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Where leases are kept, as the configuration says it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LeasePlace<'a> {
    /// Where `--leases` says.
    Named(&'a StoreUrl),
    /// In the durable store of the sequences, as nothing else is said.
    Beside(&'a StoreUrl),
    /// Nowhere: workers are assigned by hand.
    Static,
    /// Nowhere: there are no snowflakes.
    Nowhere,
}

/// What is said where there are no leases.
const LEASES_MISSING: &str = "snowflakes need a store that leases them workers, and this server has none: start it with \
                              --leases sqlite://PATH, mysql://USER@HOST/DATABASE, redis://HOST/DATABASE or zookeeper://HOST";

/// The same where there is a store that has no room for them.
const LEASES_REFUSED: &str = "snowflakes need a store that leases them workers, and this server's refuses: run what `unalike \
                              schema` prints, where its tables are missing, or name another store (--leases sqlite://PATH); \
                              the server's log has more";

impl Config {
    /// Where leases are kept.
    pub(crate) fn lease_place(&self) -> LeasePlace<'_> {
        match &self.leases {
            Some(url) if !url.is_nothing() => return LeasePlace::Named(url),
            Some(_) if self.unsafe_static_worker => return LeasePlace::Static,
            Some(_) => return LeasePlace::Nowhere,
            None => {}
        }
        let durable = match (self.store.redis(), &self.watermark) {
            (Some(_), watermark) => watermark.as_ref(),
            (None, _) => self.store.only(),
        };
        match durable.filter(|url| !url.is_nothing()) {
            Some(url) => LeasePlace::Beside(url),
            None => LeasePlace::Nowhere,
        }
    }

    /// Whether workers are shared with Leaf's nodes, so that ids are made as Leaf makes them.
    pub(crate) fn is_beside_leaf(&self) -> bool {
        // One that cannot be read is refused elsewhere.
        let zookeeper = self.leases.as_ref().and_then(|url| url.zookeeper().ok().flatten());
        zookeeper.is_some_and(|options| options.leaf.is_some())
    }

    /// What lease stores are told.
    pub(crate) fn lease_limits(&self) -> LeaseLimits {
        LeaseLimits { max_horizon_ms: self.lease_horizon_max_ms, max_skew_ms: self.lease_skew_max_ms }
    }

    /// The worker that this process would like to have, or that is its own.
    ///
    /// # Errors
    /// When it is to be the host's number, and that has none.
    pub(crate) fn worker_number(&self) -> anyhow::Result<Option<u32>> {
        self.worker.map(Worker::number).transpose()
    }

    /// Checks what is said of leases, each by itself and together.
    ///
    /// # Errors
    /// Says what is wrong, and what to write instead.
    pub(crate) fn validate_leases(&self) -> anyhow::Result<()> {
        self.lease_limits().validate().map_err(|_| {
            let max_ms = LeaseLimits::HORIZON_MAX_MS;
            anyhow::anyhow!(
                "lease_horizon_max_ms is {}, it must be 1 to {max_ms} (366 days)",
                self.lease_horizon_max_ms
            )
        })?;
        let is_nothing = self.leases.as_ref().is_some_and(StoreUrl::is_nothing);
        if let Some(url) = self.leases.as_ref().filter(|_| !is_nothing) {
            url.lease_place().context("--leases")?;
        }
        if self.unsafe_static_worker {
            ensure!(
                is_nothing,
                "--unsafe-static-worker is for workers that no store leases: add --leases none, or leave it out, and --worker \
                 is the worker that is preferred"
            );
            ensure!(
                self.worker.is_some(),
                "--unsafe-static-worker needs the number of the worker (--worker 3, or ordinal)"
            );
            ensure!(
                self.local_leases.is_some(),
                "--unsafe-static-worker needs a directory on a disk of its own, which keeps how far its ids have got \
                 (--local-leases DIR)"
            );
        } else if is_nothing {
            let given = [("--worker", self.worker.is_some()), ("--local-leases", self.local_leases.is_some())];
            if let Some((flag, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
                bail!(
                    "{flag} is about leases, and with --leases none there are none: name a store (--leases URL), or say that \
                     nobody else has this worker number (--unsafe-static-worker, with --worker and --local-leases)"
                );
            }
        }
        let worker = self.worker_number()?;
        let is_beside_leaf = self.is_beside_leaf();
        for (name, options) in self.snowflakes()? {
            let epoch_ms = options.layout.epoch_ms();
            ensure!(
                !is_beside_leaf || options.layout.fields() == LayoutFields { epoch_ms, ..Layout::LEAF.fields() },
                "the snowflake {name:?} has the layout {}, and beside Leaf (leaf= of --leases) it must be Leaf's, {}: write \
                 layout = \"leaf\", or leave it out",
                options.layout,
                Layout::LEAF
            );
            let greatest = options.layout.worker_max();
            if let Some(worker) = worker.filter(|worker| *worker > greatest) {
                bail!(
                    "the worker is {worker}, and the snowflake {name:?} has workers 0 to {greatest}: choose one of them \
                     (--worker), or a layout with more ([snowflakes.NAME])"
                );
            }
            ensure!(
                options.horizon_ms >= HORIZON_MIN_MS,
                "the snowflake {name:?} has a horizon_ms of {}, and it must be {HORIZON_MIN_MS} or more: a lease is renewed when a \
                 third of it has passed, and a shorter one would end before the answer came",
                options.horizon_ms
            );
            ensure!(
                options.horizon_ms <= self.lease_horizon_max_ms,
                "the snowflake {name:?} has a horizon_ms of {}, and no lease is longer than lease_horizon_max_ms, {}: make one \
                 shorter or the other longer",
                options.horizon_ms,
                self.lease_horizon_max_ms
            );
        }
        Ok(())
    }
}

/// The leases of a process.
pub(crate) struct Leases {
    /// Where snowflakes get their workers.
    store: Option<Arc<dyn LeaseStore>>,
    /// The same without the local copies of this process, for those who lease workers by it.
    shared: Option<Shared>,
    /// The same, where it is on a server and nothing is in front of it.
    remote: Option<Arc<Remote>>,
}

/// A store that leases workers to others than this process.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn LeaseStore>,
    pub(crate) limits: LeaseLimits,
    /// Where this server's clock was set.
    pub(crate) steps: ClockSteps,
}

impl Shared {
    fn new(store: Arc<dyn LeaseStore>, limits: LeaseLimits) -> Self {
        let steps = ClockSteps::default();
        steps.read(Instant::now(), SystemClock.now_ms());
        Self { store, limits, steps }
    }
}

impl Leases {
    /// Opens the lease store that the configuration names.
    ///
    /// # Errors
    /// When it is named and cannot be used. One that is down is no error, nor is a store of the sequences that keeps
    /// no leases.
    pub(crate) async fn open(
        config: &Config,
        purpose: Purpose,
        open: &OpenStores,
        behind: Watermark,
    ) -> anyhow::Result<Self> {
        let (url, is_named) = match config.lease_place() {
            LeasePlace::Named(url) => (url, true),
            LeasePlace::Beside(url) => (url, false),
            LeasePlace::Static => return Self::open_static(config, purpose).await,
            LeasePlace::Nowhere => return Ok(Self { store: None, shared: None, remote: None }),
        };
        let failed = || format!("the store of leases {url} cannot be opened (--leases)");
        let limits = config.lease_limits();
        let server = match url.lease_place().with_context(failed)? {
            Place::File(mut options) => {
                let place = stores::Place::Sqlite(options.clone());
                // The same file is opened once.
                if let Some(Opened::Sqlite(store)) = open.at(&place.name()?) {
                    return Self::behind_local_copies(Arc::clone(store) as _, config, purpose).await;
                }
                options.create &= purpose != Purpose::LookingInto;
                options.limits = limits;
                let store = SqliteStore::connect(*options).await.with_context(failed)?;
                return Self::behind_local_copies(Arc::new(store), config, purpose).await;
            }
            Place::Mysql(mut options) => {
                options.create_tables &= purpose != Purpose::LookingInto;
                options.limits = limits;
                match (is_named, open.at(&stores::Place::Mysql(options.clone()).name()?)) {
                    (false, Some(Opened::Mysql(store))) => Server::Beside(Arc::clone(store)),
                    _ => Server::Mysql(options),
                }
            }
            Place::Redis(mut options) => {
                options.limits = limits;
                if matches!(behind, Watermark::RedisAlone) && purpose == Purpose::Serving {
                    tracing::warn!(
                        "nothing durable stands behind the leases in {url} (--watermark none): two workers are kept apart by \
                         the clocks of its servers, which must be within {} ms of each other",
                        limits.max_skew_ms
                    );
                }
                Server::Redis(options, behind)
            }
            Place::Zookeeper(mut options) => {
                options.limits = limits;
                Server::Zookeeper(options)
            }
        };
        let remote = Arc::new(Remote::new(server, url.to_string()));
        if purpose == Purpose::Serving {
            let connected = tokio::time::timeout(START_MAX, remote.connected()).await;
            match connected.map(|connected| connected.map(drop)) {
                Ok(Ok(())) => {}
                Ok(Err(error)) if is_named && !error.is_retryable() => return Err(error).with_context(failed),
                Ok(Err(error)) => {
                    let error = with_causes(&error);
                    tracing::warn!(error, "the store of leases {url} cannot be used now, and will be tried again");
                }
                Err(_) => tracing::warn!("the store of leases {url} does not answer, and will be tried again"),
            }
        }
        if config.local_leases.is_some() && purpose == Purpose::Serving {
            return Self::behind_local_copies(remote, config, purpose).await;
        }
        let store: Arc<dyn LeaseStore> = Arc::clone(&remote) as _;
        Ok(Self { store: Some(Arc::clone(&store)), shared: Some(Shared::new(store, limits)), remote: Some(remote) })
    }

    /// With the local copies of running leases in front, if there are to be any. A command is too short for them, and
    /// the directory may be a server's.
    async fn behind_local_copies(
        store: Arc<dyn LeaseStore>,
        config: &Config,
        purpose: Purpose,
    ) -> anyhow::Result<Self> {
        let shared = Some(Shared::new(Arc::clone(&store), config.lease_limits()));
        let store = match config.local_leases.as_ref().filter(|_| purpose == Purpose::Serving) {
            None => store,
            Some(directory) => {
                // A server that ends is mostly started again: it keeps its worker, and needs nobody for that.
                let options = LocalOptions { give_back: false, ..LocalOptions::new(directory) };
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
        let remote = Arc::new(Remote::new(server, directory.display().to_string()));
        if purpose == Purpose::Serving {
            let failed = || format!("worker {worker} cannot be used from {} (--local-leases)", directory.display());
            remote.connected().await.with_context(failed)?;
        }
        Ok(Self { store: Some(remote), shared: None, remote: None })
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
    /// When there is none, as with a worker that somebody assigned.
    pub(crate) fn shared(&self) -> Result<&Shared, Problem> {
        match (&self.shared, self.missing()) {
            (Some(shared), None) => Ok(shared),
            (_, missing) => Err(Problem::new(Kind::LeasesMissing, missing.unwrap_or(LEASES_MISSING))),
        }
    }

    /// Why there are no leases, if there is nothing that could grant one.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        match (&self.store, &self.remote) {
            (None, _) => Some(LEASES_MISSING),
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

/// Whether leases are in MySQL; `meant_there` is whether a database there is meant that the configuration does not
/// name.
///
/// # Errors
/// When the URL cannot be used.
pub(crate) fn are_in_mysql(config: &Config, meant_there: bool) -> anyhow::Result<bool> {
    match config.lease_place() {
        LeasePlace::Named(url) => Ok(matches!(url.lease_place()?, Place::Mysql(_))),
        LeasePlace::Beside(url) => Ok(meant_there || matches!(url.lease_place()?, Place::Mysql(_))),
        LeasePlace::Static | LeasePlace::Nowhere => Ok(false),
    }
}

/// `unalike leases init`
pub(crate) async fn initialise(
    config: &Config,
    namespace: &str,
    layout: Option<&str>,
    not_before_ms: Option<u64>,
) -> anyhow::Result<()> {
    let layout = match (layout, config.snowflakes()?.get(namespace)) {
        (Some(name), configured) => {
            let layout = config.layouts()?.layout(name)?;
            if let Some(options) = configured {
                ensure!(
                    options.layout == layout,
                    "the snowflake {namespace:?} is configured with another layout than {name}: leave --layout out"
                );
            }
            layout
        }
        (None, Some(options)) => options.layout,
        (None, None) => {
            bail!("no snowflake {namespace:?} is configured: say which layout its ids have (--layout twitter, say)")
        }
    };
    match config.lease_place() {
        LeasePlace::Static => {
            let (Some(worker), Some(directory)) = (config.worker_number()?, &config.local_leases) else {
                bail!("a static worker needs --worker and --local-leases")
            };
            let assignment = StaticAssignment {
                namespace: namespace.to_owned(),
                worker,
                layout,
                not_before_ms: not_before_ms.unwrap_or(0),
            };
            let begun = StaticWorker::initialise(directory, &assignment).await;
            begun.with_context(|| format!("worker {worker} of {namespace:?} was not begun"))?;
            print(&format!("worker {worker} of {namespace:?} begins in {}\n", directory.display()))
        }
        LeasePlace::Named(url) if config.watermark.as_ref().is_some_and(StoreUrl::is_nothing) && url.is_redis() => {
            ensure!(not_before_ms.is_none(), "--not-before-ms is for a static worker");
            let Place::Redis(mut options) = url.lease_place()? else { bail!("{url:?} is not in Redis") };
            options.limits = config.lease_limits();
            let is_new = RedisLeases::initialise(&options, namespace, layout).await;
            let is_new = is_new.with_context(|| format!("the leases of {namespace:?} in {url} were not begun"))?;
            let done = if is_new { "they begin now" } else { "they were begun before, and nothing was changed" };
            print(&format!("the leases of {namespace:?} in {url}: {done}\n"))
        }
        _ => bail!(
            "only leases in Redis without a durable store behind it (--leases redis://HOST/DATABASE --watermark none) and a \
             static worker (--unsafe-static-worker) are begun by command; any other lease store begins with its first use"
        ),
    }
}

/// What the URL of a lease store names.
enum Place {
    File(Box<SqliteOptions>),
    Mysql(Box<MysqlOptions>),
    Redis(Box<RedisOptions>),
    Zookeeper(Box<ZookeeperOptions>),
}

impl StoreUrl {
    /// What it names as a store of leases.
    ///
    /// # Errors
    /// Says what is wrong with it.
    fn lease_place(&self) -> anyhow::Result<Place> {
        if let Some(options) = self.zookeeper()? {
            return Ok(Place::Zookeeper(Box::new(options)));
        }
        Ok(match self.place()? {
            stores::Place::Sqlite(options) => Place::File(options),
            stores::Place::Mysql(options) => Place::Mysql(options),
            stores::Place::Redis(options) => Place::Redis(options),
        })
    }
}

/// A server that keeps leases, and how to get there.
enum Server {
    /// The database of the sequences, by the same connections.
    Beside(Arc<Mysql>),
    Mysql(Box<MysqlOptions>),
    Redis(Box<RedisOptions>, Watermark),
    Zookeeper(Box<ZookeeperOptions>),
    /// None: a worker that somebody assigned.
    Static(u32, LocalOptions),
}

impl Server {
    async fn connect(&self) -> Result<Arc<dyn LeaseStore>, StoreError> {
        Ok(match self {
            Self::Beside(store) => Arc::new(store.connected().await?.leases().await?),
            Self::Mysql(options) => Arc::new(MysqlLeases::connect(options.as_ref().clone()).await?),
            Self::Redis(options, behind) => {
                Arc::new(RedisLeases::connect(options.as_ref().clone(), behind.clone()).await?)
            }
            Self::Zookeeper(options) => Arc::new(ZookeeperLeases::connect(options.as_ref().clone()).await?),
            Self::Static(worker, options) => Arc::new(Assigned::open(*worker, options.clone()).await?),
        })
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
            return Err(Self::unknown(worker, &format!("there is no directory {}", options.directory.display())));
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
        StoreError::Refused { what, source: None }
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

    async fn close(&self) {
        self.store.close().await;
    }
}

/// A lease store that is opened when it is needed: on a server it may be down when the program starts.
struct Remote {
    server: Server,
    shown: String,
    store: OnceCell<Arc<dyn LeaseStore>>,
    /// Whether it last refused to open: for another reason than that it is down.
    refuses: AtomicBool,
}

impl Remote {
    fn new(server: Server, shown: String) -> Self {
        Self { server, shown, store: OnceCell::new(), refuses: AtomicBool::new(false) }
    }

    async fn connected(&self) -> Result<&Arc<dyn LeaseStore>, StoreError> {
        let connected = self.store.get_or_try_init(|| self.server.connect()).await;
        let refuses = connected.as_ref().is_err_and(|error| !error.is_retryable());
        if self.refuses.swap(refuses, Ordering::Relaxed) && connected.is_ok() {
            tracing::info!("the store of leases {} can be used now", self.shown);
        }
        connected
    }

    fn is_refused(&self) -> bool {
        self.store.get().is_none() && self.refuses.load(Ordering::Relaxed)
    }

    async fn look_again(&self) {
        if self.is_refused() {
            // What it says is told by `is_refused`, and to whoever asks for a lease.
            drop(self.connected().await);
        }
    }
}

#[async_trait]
impl LeaseStore for Remote {
    async fn acquire(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError> {
        self.connected().await?.acquire(acquire).await
    }

    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        self.connected().await?.extend(extend).await
    }

    async fn release(&self, namespace: &str, worker: u32, grant_id: GrantId, end_ms: u64) -> Result<bool, StoreError> {
        self.connected().await?.release(namespace, worker, grant_id, end_ms).await
    }

    async fn forbid_extension(&self, namespace: &str, worker: u32) -> Result<Option<LeaseRecord>, StoreError> {
        self.connected().await?.forbid_extension(namespace, worker).await
    }

    async fn leases(&self, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        self.connected().await?.leases(namespace).await
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        self.connected().await?.namespaces().await
    }

    async fn check_namespace(&self, namespace: &str, layout: Layout) -> Result<(), StoreError> {
        self.connected().await?.check_namespace(namespace, layout).await
    }

    fn reach_ms(&self, namespace: &str, worker: u32) -> Option<u64> {
        self.store.get()?.reach_ms(namespace, worker)
    }

    async fn close(&self) {
        if let Some(store) = self.store.get() {
            store.close().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ordinal_is_the_number_at_the_end_of_the_host_s_name() {
        for (host, number) in [
            ("unalike-3", Some(3)),
            ("unalike-12.unalike.ids.svc.cluster.local", Some(12)),
            ("web007", Some(7)),
            ("4294967295", Some(u32::MAX)),
            ("unalike-4294967296", None),
            ("unalike", None),
            ("3-unalike", None),
            ("unalike.3", None),
            ("", None),
        ] {
            assert_eq!(ordinal(host), number, "{host}");
        }
    }
}
