//! Stores, a runtime and the open generators of a program in any language.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use unalike::settings::{FormatSettings, Secrets};
use unalike::storage::{Lazy, LeaseStore, Process, SegmentStore, block_signals};
use unalike::{Formatted, Ids, Sequence, Snowflake};
use unalike_remote::{RemoteLeases, RemoteOptions, RemoteStore};
use unalike_stores::{OpenSet, OpenStore, Opening, PlaceError, StoreUrl};

use crate::options::unfit;
use crate::{Failure, HostOptions, SequenceOptionsText, SnowflakeOptionsText};

/// Threads that talk to the stores. What ids cost is on the threads that ask for them.
const THREADS: usize = 2;

/// What a file takes to close that nobody keeps locked, and more.
const FILE_CLOSES: Duration = Duration::from_secs(1);

/// How often leases are looked after, as nobody else does it.
const RENEWAL: Duration = Duration::from_secs(1);

/// What a program opens: see the [crate's example](crate).
///
/// A process that forks opens another one in the child: what it inherits refuses with the kind `forked`.
pub struct Host {
    /// Dropped in its own process only.
    ids: ManuallyDrop<Ids>,
    files: Arc<Files>,
    secrets: Secrets,
    /// After how long a close leaves files open.
    close_max: Duration,
    /// What looks after the leases.
    renewal: AbortHandle,
    process: Process,
    /// None once it is being dropped.
    runtime: Option<Runtime>,
}

impl Host {
    /// Opens the stores, and connects to those of the sequences; unalike servers are connected to when they are first
    /// needed. How long that may take is up to the stores' own timeouts, which are parameters of their URLs.
    ///
    /// # Errors
    /// When one cannot be used: kind `options` or `store`. The kind `nested` in a callback.
    pub fn open(options: &HostOptions) -> Result<Self, Failure> {
        waiting("unalike_open", || Self::open_here(options))
    }

    fn open_here(options: &HostOptions) -> Result<Self, Failure> {
        let secrets = options.secrets()?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("unalike-host")
            .on_thread_start(block_signals)
            .enable_all()
            .build()
            .map_err(|error| Failure::of("executor", format!("no threads could be started: {error}")))?;
        let close_max = 2 * Duration::from_millis(options.request_timeout_ms);
        let options = options.clone();
        // On a thread of the runtime's: the caller's may be ended by a connection that breaks.
        let opened = runtime.spawn(async move { open(&options).await });
        let opened = runtime.block_on(opened).unwrap_or_else(|_| Err(Failure::panicked()));
        match opened {
            Ok((ids, files)) => {
                let looked_after = ids.clone();
                let renewal = runtime.spawn(async move {
                    loop {
                        tokio::time::sleep(RENEWAL).await;
                        looked_after.renew_leases();
                    }
                });
                let (renewal, process) = (renewal.abort_handle(), Process::current());
                let (ids, files) = (ManuallyDrop::new(ids), Arc::new(files));
                Ok(Self { ids, files, secrets, close_max, renewal, process, runtime: Some(runtime) })
            }
            Err(failure) => {
                runtime.shutdown_background();
                Err(failure)
            }
        }
    }

    /// The sequence of a tag, or of its sub-key: [`Ids::sequence`], [`Ids::sequence_of`].
    ///
    /// # Errors
    /// As there. The kind `nested` in a callback.
    pub fn sequence(&self, tag: &str, sub: Option<&str>, options: &SequenceOptionsText) -> Result<Sequence, Failure> {
        let options = options.options();
        waiting("unalike_sequence_open", || {
            Ok(match sub {
                Some(sub) => self.ids.sequence_of_blocking(tag, sub, options)?,
                None => self.ids.sequence_blocking(tag, options)?,
            })
        })
    }

    /// The snowflake generator of a lease namespace: [`Ids::snowflake`].
    ///
    /// # Errors
    /// As there. The kind `nested` in a callback.
    pub fn snowflake(&self, namespace: &str, options: &SnowflakeOptionsText) -> Result<Snowflake, Failure> {
        let options = options.options()?;
        waiting("unalike_snowflake_open", || Ok(self.ids.snowflake_blocking(namespace, options)?))
    }

    /// The ids of a tag, or of its sub-key, as a format shows them: [`Ids::formatted`].
    ///
    /// # Errors
    /// As there, and the kind `options` for settings that give no format. The kind `nested` in a callback.
    pub fn formatted(
        &self,
        tag: &str,
        sub: Option<&str>,
        format: &FormatSettings,
        options: &SequenceOptionsText,
    ) -> Result<Formatted, Failure> {
        let format = format.of_tag(tag, &self.secrets).map_err(unfit)?;
        let options = options.options();
        waiting("unalike_formatted_open", || Ok(self.ids.formatted_blocking(tag, sub, options, format)?))
    }

    /// The ids of a snowflake as a format shows them: [`Ids::formatted_snowflake`].
    ///
    /// # Errors
    /// As there, and the kind `options` for settings that give no format. The kind `nested` in a callback.
    pub fn formatted_snowflake(
        &self,
        namespace: &str,
        format: &FormatSettings,
        options: &SnowflakeOptionsText,
    ) -> Result<Formatted, Failure> {
        let options = options.options()?;
        let format = format.of_snowflake(namespace, &self.secrets, options.layout).map_err(unfit)?;
        let open = || Ok(self.ids.formatted_snowflake_blocking(namespace, options, format)?);
        waiting("unalike_formatted_snowflake_open", open)
    }

    /// Whether this is the process that opened it.
    pub fn is_own_process(&self) -> bool {
        self.process.is_current()
    }

    /// Runs a call on the host's threads. In a forked child, which has none of them, it is dropped: see
    /// [`is_own_process`](Self::is_own_process).
    pub fn spawn(&self, call: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = self.runtime.as_ref().filter(|_| self.is_own_process()) {
            runtime.spawn(call);
        }
    }

    /// Gives back what was not used, and waits for that: [`Ids::close`]. In a forked child it does nothing.
    ///
    /// # Errors
    /// The kind `nested` in a callback.
    pub fn close(&self) -> Result<(), Failure> {
        waiting("unalike_close", || {
            if let Some(runtime) = self.runtime.as_ref().filter(|_| self.is_own_process()) {
                let until = Instant::now() + self.close_max;
                self.renewal.abort();
                self.ids.close_blocking();
                let files = Arc::clone(&self.files);
                // A file that is well closes at once.
                let until = until.max(Instant::now() + FILE_CLOSES);
                let closed = runtime.spawn(async move { tokio::time::timeout_at(until, files.close()).await });
                // One that is not closed by then counts as open, for children.
                let _ = runtime.block_on(closed);
            }
            Ok(())
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        if !self.process.is_current() {
            // Its threads are in the parent, and so are the locks that they may hold: all of it is left as it is.
            std::mem::forget(runtime);
            return;
        }
        // Not a wait: it may be a thread of the runtime that drops it.
        runtime.shutdown_background();
        #[expect(unsafe_code, reason = "it is not dropped where it was inherited")]
        // SAFETY: nobody uses it after this.
        unsafe {
            ManuallyDrop::drop(&mut self.ids);
        }
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("ids", &self.ids).finish_non_exhaustive()
    }
}

/// The stores in files: while one is open, no child of the process opens any.
#[derive(Default)]
struct Files {
    sequences: Vec<Arc<dyn OpenStore>>,
    leases: Option<Arc<dyn LeaseStore>>,
}

impl Files {
    async fn close(&self) {
        for store in &self.sequences {
            store.close().await;
        }
        if let Some(leases) = &self.leases {
            leases.close().await;
        }
    }
}

/// Does what waits, unless this is a thread that others wait for. A thread that is about to end has it done by another:
/// a program's last calls come from there, of destructors and of what `atexit` was given.
pub(crate) fn waiting<T: Send>(call: &str, wait: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
    match Handle::try_current() {
        Err(error) if error.is_thread_local_destroyed() => {
            std::thread::scope(|scope| scope.spawn(wait).join()).unwrap_or_else(|_| Err(Failure::panicked()))
        }
        Err(_) => wait(),
        Ok(_) => Err(nested(call)),
    }
}

/// What waits is refused on a thread that others wait for.
fn nested(call: &str) -> Failure {
    Failure::of(
        "nested",
        format!(
            "{call} may wait, and was called on a thread that runs the library's tasks, as in a callback: call it on another"
        ),
    )
}

async fn open(options: &HostOptions) -> Result<(Ids, Files), Failure> {
    let opening = Opening {
        on_first_use: options.create_tags,
        tags_max: options.tags_max,
        limits: options.limits(),
        ..Opening::default()
    };
    let set = options.set();
    let mut open = if options.is_remote() { set.unopened(opening) } else { set.open(opening).await? };
    match connect(options, &mut open).await {
        Ok((ids, leases)) => {
            let sequences = open.into_stores().into_iter().filter(|opened| opened.url.is_file());
            Ok((ids, Files { sequences: sequences.map(|opened| opened.store).collect(), leases }))
        }
        Err(failure) => {
            open.close().await;
            Err(failure)
        }
    }
}

/// Over the stores that are open, and the servers. Answers the leases as well, if they are in a file.
async fn connect(options: &HostOptions, open: &mut OpenSet<'_>) -> Result<(Ids, Option<Arc<dyn LeaseStore>>), Failure> {
    let segments: Option<Arc<dyn SegmentStore>> = match options.store.only().filter(|_| options.is_remote()) {
        Some(servers) => {
            let servers = remote(servers, options)?;
            Some(Arc::new(Lazy::new(move || RemoteStore::connect(servers.clone()))))
        }
        None => open.segments().map(Arc::clone),
    };
    let mut in_file = None;
    let leases: Option<Arc<dyn LeaseStore>> = match options.remote_leases() {
        Some(servers) => {
            let servers = remote(servers, options)?;
            let connect = move || {
                let connected = RemoteLeases::connect(servers.clone());
                async move { connected.await.map(Arc::new) }
            };
            Some(Arc::new(Lazy::new(connect)))
        }
        None => match open.leases().await? {
            // A file is there at once, or never.
            Some(source) if source.url().is_file() => {
                let failed = |error| Failure::from(PlaceError::from(error)).of_what(&source.failure());
                in_file = Some(source.connect().await.map_err(failed)?);
                in_file.clone()
            }
            Some(source) => Some(source.lazy()),
            None => None,
        },
    };
    let mut builder = Ids::builder()
        .wait_max(Duration::from_millis(options.wait_max_ms))
        .request_timeout(Duration::from_millis(options.request_timeout_ms));
    if let Some(segments) = segments {
        builder = builder.segments(segments);
    }
    if let Some(leases) = leases {
        builder = builder.leases(leases);
    }
    if let Some(worker) = options.worker {
        builder = builder.preferred_worker(worker);
    }
    if let Some(holder) = &options.holder {
        builder = builder.holder(holder);
    }
    match builder.build().await {
        Ok(ids) => Ok((ids, in_file)),
        Err(error) => {
            if let Some(file) = &in_file {
                file.close().await;
            }
            Err(error.into())
        }
    }
}

/// The servers of a URL.
fn remote(url: &StoreUrl, options: &HostOptions) -> Result<RemoteOptions, Failure> {
    let servers = RemoteOptions::from_url(url.text()).map_err(|error| Failure::options(error.to_string()))?;
    Ok(match options.token() {
        Some(token) => servers.token(token),
        None => servers,
    })
}
