//! The stores of a program by their URLs, for languages that ask them themselves.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;

use unalike::storage::{Lazy, LeaseStore, SegmentStore, StoreError};
use unalike_remote::{RemoteLeases, RemoteOptions, RemoteStore};
use unalike_stores::{OpenSet, Opened, Opening, PlaceError, StoreUrl};

use crate::threads::{Threads, waiting};
use crate::{Failure, HostOptions};

/// The stores that a program uses together, for a language that has generators of its own: it asks them for grants and
/// leases. Who has none opens a [`Host`](crate::Host).
///
/// What is granted is the caller's: an answer that it throws away is a gap. A process that forks opens others in the
/// child: what it inherits refuses with the kind `forked`.
///
/// ```
/// use unalike_bindings::{Failure, HostOptions, Stores};
///
/// # let directory = tempfile::tempdir().unwrap();
/// # let json = format!(r#"{{"store": "sqlite://{}/ids.sqlite"}}"#, directory.path().display());
/// // Such as {"store": "sqlite://ids.sqlite"}.
/// let stores = Stores::open(&HostOptions::read(&json)?)?;
/// let segment = stores.ask(|store| async move { store.allocate("order", 100, 0).await })?;
/// assert_eq!((segment.start, segment.end), (1, 101));
/// stores.close()?;
/// # Ok::<(), Failure>(())
/// ```
pub struct Stores {
    /// Dropped in its own process only.
    open: ManuallyDrop<OpenStores>,
    /// After how long a close gives up.
    close_max: Duration,
    threads: Threads,
}

impl Stores {
    /// Opens them, and connects to those of the sequences; unalike servers, and stores that only lease workers, are
    /// connected to when they are first asked.
    ///
    /// # Errors
    /// When one cannot be used: kind `options` or `store`.
    pub fn open(options: &HostOptions) -> Result<Self, Failure> {
        Self::open_with(options, Opening::default())
    }

    /// The same with a store in Redis above a durable one of the program's own, by options that
    /// [`HostOptions::read_above`] read. It is closed with Redis.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use unalike::storage::SegmentStore;
    /// use unalike_bindings::{Failure, HostOptions, Stores};
    ///
    /// fn above(durable: Arc<dyn SegmentStore>) -> Result<Stores, Failure> {
    ///     Stores::open_above(durable, &HostOptions::read_above(r#"{"store": "redis://cache/0"}"#)?)
    /// }
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn open_above(durable: Arc<dyn SegmentStore>, options: &HostOptions) -> Result<Self, Failure> {
        // It may not be able to list its tags.
        Self::open_with(options, Opening { durable: Some(durable), preheats: false, ..Opening::default() })
    }

    fn open_with(options: &HostOptions, opening: Opening) -> Result<Self, Failure> {
        waiting("opening stores", || {
            let threads = Threads::start()?;
            let close_max = 2 * Duration::from_millis(options.request_timeout_ms);
            let options = options.clone();
            let open = threads.run(async move { OpenStores::open(&options, opening).await })?;
            Ok(Self { open: ManuallyDrop::new(open), close_max, threads })
        })
    }

    /// Initialises what a process initialises once. Called before the process has threads that fork: a child would wait
    /// for ever for a thread of its parent that is in the middle of it.
    pub fn prepare() {
        // Who has no threads hears of it when stores are opened.
        drop(Threads::start());
    }

    /// Asks the store of the sequences, and waits for its answer.
    ///
    /// # Errors
    /// The kind `store`, `forked`, or `nested` on a thread of the library's.
    pub fn ask<T, Answer>(&self, question: impl FnOnce(Arc<dyn SegmentStore>) -> Answer + Send) -> Result<T, Failure>
    where
        T: Send + 'static,
        Answer: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let store = self.own()?.segments.clone();
        waiting("a question to a store", || {
            let store = store.ok_or_else(|| Failure::options("there is no store of sequences"))?;
            let answer = question(store);
            self.threads.run(async { Ok(answer.await?) })
        })
    }

    /// Asks the store of the leases, and waits for its answer.
    ///
    /// # Errors
    /// As [`ask`](Self::ask), and the kind `options` where there is none.
    pub fn ask_leases<T, Answer>(
        &self,
        question: impl FnOnce(Arc<dyn LeaseStore>) -> Answer + Send,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        Answer: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let leases = self.own()?.leases.clone();
        waiting("a question to a store", || {
            let leases = leases.ok_or_else(|| {
                Failure::options(
                    "nothing leases workers here: name the store that does with `leases`, such as mysql://ids@db/ids",
                )
            })?;
            let answer = question(leases);
            self.threads.run(async { Ok(answer.await?) })
        })
    }

    /// Where the store of the sequences is, for messages.
    #[must_use]
    pub fn address(&self) -> Option<String> {
        self.own().ok()?.segments.as_ref()?.address()
    }

    /// Closes the connections. Not needed for safety. In a forked child it does nothing.
    ///
    /// # Errors
    /// The kind `nested` on a thread of the library's.
    pub fn close(&self) -> Result<(), Failure> {
        let Ok(open) = self.own() else { return Ok(()) };
        let (open, close_max) = (open.clone(), self.close_max);
        waiting("closing stores", || {
            self.threads.run(async move {
                // What does not close by then ends with the process.
                let _ = tokio::time::timeout(close_max, open.close()).await;
                Ok(())
            })
        })
    }

    fn own(&self) -> Result<&OpenStores, Failure> {
        if self.threads.is_own_process() { Ok(&self.open) } else { Err(Failure::forked()) }
    }
}

impl Drop for Stores {
    fn drop(&mut self) {
        if self.threads.end() {
            #[expect(unsafe_code, reason = "they are not dropped where they were inherited")]
            // SAFETY: nobody uses them after this.
            unsafe {
                ManuallyDrop::drop(&mut self.open);
            }
        }
    }
}

impl std::fmt::Debug for Stores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stores").finish_non_exhaustive()
    }
}

/// What is open of a program's stores.
#[derive(Clone)]
pub(crate) struct OpenStores {
    /// Where sequences get their numbers.
    pub(crate) segments: Option<Arc<dyn SegmentStore>>,
    /// Where workers are leased.
    pub(crate) leases: Option<Arc<dyn LeaseStore>>,
    /// One by one, with what backs them.
    sequences: Vec<Opened>,
    /// Whether the leases are in a file.
    has_lease_file: bool,
}

impl OpenStores {
    pub(crate) async fn open(options: &HostOptions, opening: Opening) -> Result<Self, Failure> {
        let opening = Opening {
            on_first_use: options.create_tags,
            tags_max: options.tags_max,
            limits: options.limits(),
            ..opening
        };
        let set = options.set();
        let mut open = if options.is_remote() { set.unopened(opening) } else { set.open(opening).await? };
        match leases(options, &mut open).await {
            Ok((leases, has_lease_file)) => {
                let segments: Option<Arc<dyn SegmentStore>> = match options.store.only() {
                    Some(servers) if options.is_remote() => {
                        let servers = remote(servers, options)?;
                        let address = servers.address();
                        Some(Arc::new(Lazy::new(move || RemoteStore::connect(servers.clone())).at(address)))
                    }
                    _ => open.segments().map(Arc::clone),
                };
                Ok(Self { segments, leases, sequences: open.into_stores(), has_lease_file })
            }
            Err(failure) => {
                // A file of SQLite that is never closed counts as open.
                open.close().await;
                Err(failure)
            }
        }
    }

    /// Closes those in files: while one is open, no child of the process opens any.
    pub(crate) async fn close_files(&self) {
        for opened in self.sequences.iter().filter(|opened| opened.url.is_file()) {
            opened.store.close().await;
        }
        if let Some(leases) = self.leases.as_ref().filter(|_| self.has_lease_file) {
            leases.close().await;
        }
    }

    async fn close(&self) {
        if let Some(segments) = &self.segments {
            segments.close().await;
        }
        for opened in &self.sequences {
            opened.store.close().await;
        }
        if let Some(leases) = &self.leases {
            leases.close().await;
        }
    }
}

/// What leases workers, and whether it is a file.
async fn leases(options: &HostOptions, open: &mut OpenSet<'_>) -> Result<(Option<Arc<dyn LeaseStore>>, bool), Failure> {
    if let Some(servers) = options.remote_leases() {
        let servers = remote(servers, options)?;
        let connect = move || {
            let connected = RemoteLeases::connect(servers.clone());
            async move { connected.await.map(Arc::new) }
        };
        return Ok((Some(Arc::new(Lazy::new(connect))), false));
    }
    Ok(match open.leases().await? {
        // A file is there at once, or never.
        Some(source) if source.url().is_file() => {
            let failed = |error| Failure::from(PlaceError::from(error)).of_what(&source.failure());
            (Some(source.connect().await.map_err(failed)?), true)
        }
        Some(source) => (Some(source.lazy()), false),
        None => (None, false),
    })
}

/// The servers of a URL.
fn remote(url: &StoreUrl, options: &HostOptions) -> Result<RemoteOptions, Failure> {
    let servers = RemoteOptions::from_url(url.text()).map_err(|error| Failure::options(error.to_string()))?;
    let servers = match options.token() {
        Some(token) => servers.token(token),
        None => servers,
    };
    // They are connected to later, and what is wrong with these is known now.
    servers.validate()?;
    Ok(servers)
}
