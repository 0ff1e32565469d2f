//! The stores of a program by their URLs, for languages that ask them themselves.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;

use unalike::storage::{Lazy, LeaseStore, SegmentStore, StoreError};
use unalike_remote::{RemoteLeases, RemoteOptions, RemoteStore};
use unalike_stores::{OpenSet, Opened, Opening, PlaceError, StoreUrl};

use crate::threads::{Threads, caught, then, waiting};
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
        Self::open_with(options, above(durable))
    }

    fn open_with(options: &HostOptions, opening: Opening) -> Result<Self, Failure> {
        waiting("opening stores", || {
            let threads = Threads::start()?;
            let (options, close_max) = (options.clone(), close_max(options));
            let open = threads.run(async move { OpenStores::open(&options, opening).await })?;
            Ok(Self { open: ManuallyDrop::new(open), close_max, threads })
        })
    }

    /// As [`open`](Self::open), for a thread that must not wait: it returns at once, and `done` is told, once, what was
    /// opened. That is on a thread of the library's, or before this returns. `done` must return soon, and may drop what
    /// it got.
    ///
    /// ```
    /// use std::sync::mpsc;
    ///
    /// use unalike_bindings::{Failure, HostOptions, Stores};
    ///
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let json = format!(r#"{{"store": "sqlite://{}/ids.sqlite"}}"#, directory.path().display());
    /// let (told, opened) = mpsc::channel();
    /// Stores::open_then(&HostOptions::read(&json)?, move |opened| told.send(opened).unwrap_or_default());
    /// let stores = opened.recv().unwrap()?;
    ///
    /// let (told, answer) = mpsc::channel();
    /// stores.ask_then(
    ///     |store| async move { store.allocate("order", 100, 0).await },
    ///     move |segment| told.send(segment).unwrap_or_default(),
    /// );
    /// assert_eq!(answer.recv().unwrap()?.end, 101);
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn open_then(options: &HostOptions, done: impl FnOnce(Result<Self, Failure>) + Send + 'static) {
        Self::open_with_then(options, Opening::default(), done);
    }

    /// As [`open_above`](Self::open_above), for a thread that must not wait: as [`open_then`](Self::open_then).
    pub fn open_above_then(
        durable: Arc<dyn SegmentStore>,
        options: &HostOptions,
        done: impl FnOnce(Result<Self, Failure>) + Send + 'static,
    ) {
        Self::open_with_then(options, above(durable), done);
    }

    fn open_with_then(
        options: &HostOptions,
        opening: Opening,
        done: impl FnOnce(Result<Self, Failure>) + Send + 'static,
    ) {
        let threads = match Threads::start() {
            Ok(threads) => threads,
            Err(failure) => return done(Err(failure)),
        };
        let Some(tasks) = threads.tasks().cloned() else { return done(Err(Failure::forked())) };
        let (options, close_max) = (options.clone(), close_max(options));
        let opening = async move { OpenStores::open(&options, opening).await };
        then(&tasks, opening, move |open| {
            done(open.map(|open| Self { open: ManuallyDrop::new(open), close_max, threads }));
        });
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
        let store = self.segments()?;
        waiting("a question to a store", || {
            let answer = question(store);
            self.threads.run(async { Ok(answer.await?) })
        })
    }

    /// As [`ask`](Self::ask), for a thread that must not wait: it returns at once, and `done` is told the answer, as
    /// [`open_then`](Self::open_then) tells it. With the stores dropped meanwhile, the answer is that its outcome is
    /// unknown.
    pub fn ask_then<T, Answer>(
        &self,
        question: impl FnOnce(Arc<dyn SegmentStore>) -> Answer,
        done: impl FnOnce(Result<T, Failure>) + Send + 'static,
    ) where
        T: Send + 'static,
        Answer: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        self.answer_then(caught(|| Ok(question(self.segments()?))), done);
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
        let leases = self.leases()?;
        waiting("a question to a store", || {
            let answer = question(leases);
            self.threads.run(async { Ok(answer.await?) })
        })
    }

    /// As [`ask_leases`](Self::ask_leases), for a thread that must not wait: as [`ask_then`](Self::ask_then).
    pub fn ask_leases_then<T, Answer>(
        &self,
        question: impl FnOnce(Arc<dyn LeaseStore>) -> Answer,
        done: impl FnOnce(Result<T, Failure>) + Send + 'static,
    ) where
        T: Send + 'static,
        Answer: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        self.answer_then(caught(|| Ok(question(self.leases()?))), done);
    }

    fn answer_then<T: Send + 'static>(
        &self,
        answer: Result<impl Future<Output = Result<T, StoreError>> + Send + 'static, Failure>,
        done: impl FnOnce(Result<T, Failure>) + Send + 'static,
    ) {
        match answer {
            Ok(answer) => self.threads.run_then(async { Ok(answer.await?) }, done),
            Err(failure) => done(Err(failure)),
        }
    }

    /// Looks whether a Redis above this store may lease its workers itself: no namespace would have two places then, as
    /// it is this store that notes which have left it.
    ///
    /// # Errors
    /// The kind `store` where workers are leased from another store, which would not hear of it.
    pub fn check_leaving(&self) -> Result<(), Failure> {
        if !self.own()?.has_leases_elsewhere {
            return Ok(());
        }
        let what = "the store behind Redis has its leases in another store, which would lease the same workers: keep the \
                    leases there, or open it without";
        Err(StoreError::refused(what).into())
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
        let closing = open.clone().closed_within(self.close_max);
        waiting("closing stores", || self.threads.run(closing))
    }

    /// As [`close`](Self::close), for a thread that must not wait: as [`ask_then`](Self::ask_then).
    pub fn close_then(&self, done: impl FnOnce(Result<(), Failure>) + Send + 'static) {
        match self.own() {
            Ok(open) => self.threads.run_then(open.clone().closed_within(self.close_max), done),
            Err(_) => done(Ok(())),
        }
    }

    fn segments(&self) -> Result<Arc<dyn SegmentStore>, Failure> {
        self.own()?.segments.clone().ok_or_else(|| Failure::options("there is no store of sequences"))
    }

    fn leases(&self) -> Result<Arc<dyn LeaseStore>, Failure> {
        self.own()?.leases.clone().ok_or_else(|| {
            Failure::options(
                "nothing leases workers here: name the store that does with `leases`, such as mysql://ids@db/ids",
            )
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

/// How a store in Redis is opened above a durable one of the program's own, which may not be able to list its tags.
fn above(durable: Arc<dyn SegmentStore>) -> Opening {
    Opening { durable: Some(durable), preheats: false, ..Opening::default() }
}

/// After how long a close gives up.
fn close_max(options: &HostOptions) -> Duration {
    2 * Duration::from_millis(options.request_timeout_ms)
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
    /// Whether workers are leased from another store than that of the sequences.
    has_leases_elsewhere: bool,
}

impl OpenStores {
    pub(crate) async fn open(options: &HostOptions, opening: Opening) -> Result<Self, Failure> {
        let opening = Opening {
            on_first_use: options.create_tags,
            tags_max: options.tags_max,
            limits: options.limits(),
            ..opening
        };
        let has_leases_elsewhere =
            options.leases.as_ref().is_some_and(|url| !url.is_nothing() && options.store.only() != Some(url));
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
                Ok(Self { segments, leases, sequences: open.into_stores(), has_lease_file, has_leases_elsewhere })
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

    /// Closes them all. What does not close by then ends with the process.
    async fn closed_within(self, close_max: Duration) -> Result<(), Failure> {
        let _ = tokio::time::timeout(close_max, self.close()).await;
        Ok(())
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

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::mpsc;

    use tempfile::TempDir;
    use unalike::storage::{GrantId, Segment};

    use super::*;

    type Done<T> = Box<dyn FnOnce(Result<T, Failure>) + Send>;

    /// What is told within a minute.
    fn told<T: Send + 'static>(start: impl FnOnce(Done<T>)) -> Result<T, Failure> {
        let (tell, told) = mpsc::channel();
        start(Box::new(move |answer| tell.send(answer).expect("somebody waits")));
        let answer = told.recv_timeout(Duration::from_secs(60)).expect("it is told");
        assert!(told.recv().is_err(), "it is told once");
        answer
    }

    fn options(directory: &TempDir, more: &str) -> HostOptions {
        let json = format!(r#"{{"store": "sqlite://{}/ids.sqlite"{more}}}"#, directory.path().display());
        HostOptions::read(&json).expect("they are options")
    }

    fn opened(directory: &TempDir) -> Stores {
        told(|done| Stores::open_then(&options(directory, ""), done)).expect("it opens")
    }

    fn allocated(stores: &Stores) -> Result<Segment, Failure> {
        told(|done| stores.ask_then(|store| async move { store.allocate("order", 10, 0).await }, done))
    }

    #[test]
    fn answers_are_told_until_the_stores_are_closed() {
        let directory = TempDir::new().expect("a folder");
        let stores = opened(&directory);
        assert_eq!(allocated(&stores).expect("numbers").end, 11);
        let release = |stores: &Stores| {
            let question = |leases: Arc<dyn LeaseStore>| async move { leases.release("none", 1, GrantId(1), 1).await };
            told(|done| stores.ask_leases_then(question, done))
        };
        assert_eq!(release(&stores), Ok(false));
        assert_eq!(told(|done| stores.close_then(done)), Ok(()));
        assert_eq!(told(|done| stores.close_then(done)), Ok(()), "a second time");
        let closed = allocated(&stores).expect_err("it is closed");
        assert_eq!(closed.kind, "store", "{closed}");

        let without = Stores::open(&options(&directory, r#", "leases": "none""#)).expect("it opens");
        let none = release(&without).expect_err("there are none");
        assert_eq!((none.kind, none.store_kind), ("options", None), "{none}");
        let missing = HostOptions::read(r#"{"store": "sqlite:///is/not/there/ids.sqlite"}"#).expect("options");
        let failure = told(|done| Stores::open_then(&missing, done)).expect_err("there is no folder");
        assert_eq!(failure.kind, "store", "{failure}");
    }

    #[test]
    fn a_store_above_one_of_the_programs_own_is_told() {
        let directory = TempDir::new().expect("a folder");
        let stores = opened(&directory);
        let options = HostOptions::read_above(r#"{"store": "redis://127.0.0.1:1/0"}"#).expect("they are options");
        let durable = stores.segments().expect("there are sequences");
        let failure = told(|done| Stores::open_above_then(durable, &options, done)).expect_err("nothing listens there");
        assert_eq!((failure.kind, failure.store_kind), ("store", Some("unavailable")), "{failure}");
    }

    #[test]
    fn a_panic_is_told_and_the_stores_go_on() {
        let directory = TempDir::new().expect("a folder");
        let stores = opened(&directory);
        let failed = told(|done| stores.ask_then(|_| async { panic!("said the test") }, done as Done<u64>));
        assert_eq!(failed.map_err(|failure| (failure.kind, failure.may_have_granted)), Err(("panic", true)));
        let failed = told(|done: Done<Segment>| {
            let question = |store: Arc<dyn SegmentStore>| {
                assert!(store.address().is_some_and(|_| false), "said the test");
                async move { store.allocate("order", 1, 0).await }
            };
            stores.ask_then(question, done);
        });
        assert_eq!(failed.map_err(|failure| failure.kind), Err("panic"));
        assert_eq!(allocated(&stores).expect("numbers").start, 1);
    }

    #[test]
    fn whoever_waits_for_stores_that_are_dropped_is_told() {
        let directory = TempDir::new().expect("a folder");
        let stores = opened(&directory);
        let (begin, began) = mpsc::channel();
        let failed = told(move |done: Done<u64>| {
            let question = |_| async move {
                begin.send(()).expect("somebody waits");
                pending().await
            };
            stores.ask_then(question, done);
            began.recv().expect("it is asked");
            drop(stores);
        });
        let failed = failed.expect_err("nobody is there");
        assert_eq!((failed.store_kind, failed.may_have_granted), (Some("outcome-unknown"), true), "{failed}");
    }

    #[test]
    fn whoever_is_told_may_ask_and_drop_on_the_thread_of_the_library() {
        let directory = TempDir::new().expect("a folder");
        let options = options(&directory, "");
        let segment = told(|done| {
            Stores::open_then(&options, |opened| match opened {
                Ok(stores) => {
                    let stores = Arc::new(stores);
                    let question = |store: Arc<dyn SegmentStore>| async move { store.allocate("order", 10, 0).await };
                    let nested = stores.ask(question).expect_err("it would wait");
                    assert_eq!(nested.kind, "nested");
                    let kept = Arc::clone(&stores);
                    stores.ask_then(question, move |answer| {
                        drop(kept);
                        done(answer);
                    });
                }
                Err(failure) => done(Err(failure)),
            });
        });
        assert_eq!(segment.expect("numbers").start, 1);
    }
}
