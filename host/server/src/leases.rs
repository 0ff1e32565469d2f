//! Where snowflakes get their workers: from the configuration to an open lease store.
//!
//! Leases are kept where `--leases` says, or else in the durable store of the sequences. Sequences do without them, so a
//! lease store that is down keeps nothing but snowflakes from going on: it is connected to when it is needed.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;
use unalike::storage::{
    GrantId, Lease, LeaseAcquire, LeaseExtend, LeaseLimits, LeaseRecord, LeaseStore, StoreError,
};
use unalike_mysql::MysqlOptions;
use unalike_sqlite::{SqliteOptions, SqliteStore};

use crate::config::Config;
use crate::layouts::layout_named;
use crate::problem::with_causes;
use crate::stores::{self, Purpose, StoreUrl};

/// How long the start of a service waits for a lease store on a server; after that it is taken to be down.
const START_MAX: Duration = Duration::from_secs(3);

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
            anyhow::anyhow!("lease_horizon_max_ms is {}, it must be 1 to {max_ms} (366 days)", self.lease_horizon_max_ms)
        })?;
        let is_nothing = self.leases.as_ref().is_some_and(StoreUrl::is_nothing);
        if let Some(url) = self.leases.as_ref().filter(|_| !is_nothing) {
            url.lease_place(self.lease_limits()).context("--leases")?;
        }
        if self.unsafe_static_worker {
            ensure!(
                is_nothing,
                "--unsafe-static-worker is for workers that no store leases: add --leases none, or leave it out, and --worker \
                 is the worker that is preferred"
            );
            ensure!(self.worker.is_some(), "--unsafe-static-worker needs the number of the worker (--worker 3, or ordinal)");
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
        for (name, options) in self.snowflakes()? {
            let greatest = options.layout.worker_max();
            if let Some(worker) = worker.filter(|worker| *worker > greatest) {
                bail!(
                    "the worker is {worker}, and the snowflake {name:?} has workers 0 to {greatest}: choose one of them \
                     (--worker), or a layout with more ([snowflakes.NAME])"
                );
            }
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
    /// The same or what is behind it, where it is on a server.
    remote: Option<Arc<Remote>>,
}

/// The SQLite files that are open already, by their places.
pub(crate) type OpenFiles = [(String, Arc<SqliteStore>)];

impl Leases {
    /// Opens the lease store that the configuration names.
    ///
    /// # Errors
    /// When it is named and cannot be used. One that is down is no error, nor is a store of the sequences that keeps
    /// no leases.
    pub(crate) async fn open(config: &Config, purpose: Purpose, open: &OpenFiles) -> anyhow::Result<Self> {
        let (url, is_named) = match config.lease_place() {
            LeasePlace::Named(url) => (url, true),
            LeasePlace::Beside(url) => (url, false),
            LeasePlace::Static | LeasePlace::Nowhere => return Ok(Self { store: None, remote: None }),
        };
        let failed = || format!("the store of leases {url} cannot be opened (--leases)");
        let server = match url.lease_place(config.lease_limits()).with_context(failed)? {
            Place::Server(server) => server,
            Place::File(path) => {
                let name = stores::Place::Sqlite(path.clone()).name()?;
                // The same file is opened once.
                if let Some((_, store)) = open.iter().find(|(known, _)| *known == name) {
                    return Ok(Self { store: Some(Arc::clone(store) as _), remote: None });
                }
                let mut options = SqliteOptions::new(path);
                options.limits = config.lease_limits();
                let store = SqliteStore::connect(options).await.with_context(failed)?;
                return Ok(Self { store: Some(Arc::new(store)), remote: None });
            }
        };
        let remote = Arc::new(Remote { server, shown: url.to_string(), store: OnceCell::new(), refuses: AtomicBool::new(false) });
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
        Ok(Self { store: Some(Arc::clone(&remote) as _), remote: Some(remote) })
    }

    /// The same without the stores of the sequences.
    ///
    /// # Errors
    /// As [`Leases::open`].
    pub(crate) async fn alone(config: &Config) -> anyhow::Result<Self> {
        Self::open(config, Purpose::Command, &[]).await
    }

    /// Where snowflakes get their workers.
    pub(crate) fn store(&self) -> Option<&Arc<dyn LeaseStore>> {
        self.store.as_ref()
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

/// `unalike leases init`
pub(crate) async fn initialise(config: &Config, namespace: &str, layout: Option<&str>) -> anyhow::Result<()> {
    let _layout = match (layout, config.snowflakes()?.get(namespace)) {
        (Some(name), configured) => {
            let layout = layout_named(name)?;
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
    bail!(
        "only leases in Redis without a durable store behind it (--leases redis://HOST/DATABASE --watermark none) and a static \
         worker (--unsafe-static-worker) are begun by command; any other lease store begins with its first use"
    )
}

/// What the URL of a lease store names.
enum Place {
    /// A file.
    File(PathBuf),
    /// A server.
    Server(Server),
}

/// A server that keeps leases, and how to get there.
enum Server {
    Mysql(Box<MysqlOptions>),
}

impl StoreUrl {
    /// What it names as a store of leases.
    ///
    /// # Errors
    /// Says what is wrong with it.
    fn lease_place(&self, limits: LeaseLimits) -> anyhow::Result<Place> {
        match self.place()? {
            stores::Place::Sqlite(path) => Ok(Place::File(path)),
            stores::Place::Mysql(options) => Ok(Place::Server(Server::Mysql(options))),
            stores::Place::Redis(_) => bail!("{limits:?}"),
        }
    }
}

impl Server {
    async fn connect(&self) -> Result<Arc<dyn LeaseStore>, StoreError> {
        match self {
            Self::Mysql(_) => Err(StoreError::Refused { what: "not yet".to_owned(), source: None }),
        }
    }
}

/// A lease store on a server, which may be down when the program starts.
struct Remote {
    server: Server,
    shown: String,
    store: OnceCell<Arc<dyn LeaseStore>>,
    /// Whether it last refused to open: for another reason than that it is down.
    refuses: AtomicBool,
}

impl Remote {
    async fn connected(&self) -> Result<&Arc<dyn LeaseStore>, StoreError> {
        let connected = self.store.get_or_try_init(|| self.server.connect()).await;
        self.refuses.store(connected.as_ref().is_err_and(|error| !error.is_retryable()), Ordering::Relaxed);
        connected
    }

    fn is_refused(&self) -> bool {
        self.store.get().is_none() && self.refuses.load(Ordering::Relaxed)
    }

    async fn look_again(&self) {
        if self.is_refused() && self.connected().await.is_ok() {
            tracing::info!("the store of leases {} can be used now", self.shown);
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
