//! The stores, the lanes and the open generators of one application.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use unalike_core::{Format, is_tag};
use unalike_storage::{FormatOwner, LeaseStore, SegmentStore, UnboundFormat, check_format, sub_tag};

use crate::clock::Time;
use crate::context::{IdsCtx, IdsCtxBuilder};
use crate::executor::Executor;
use crate::generator::Environment;
use crate::lane::Lane;
use crate::sequence::SequenceShared;
use crate::snowflake::SnowflakeShared;
use crate::sync::lock;
use crate::{Clock, Engine, Error, ErrorKind, Sequence, SequenceOptions, Snowflake, SnowflakeOptions};

/// More lanes than this only cost memory: a call into one takes well under a microsecond.
const LANES_MAX: usize = 8;

/// How many sequences are looked at while others cannot open one.
const LOOKED_AT_ONCE: usize = 256;

/// All id generators of an application: open it once, clone it freely.
///
/// Close it at the end ([`Ids::close`]). If an application ends without closing it, or drops all handles, ids stay just
/// as unique, but what it held is wasted: the rest of its segments is a gap, and the workers of its snowflakes stay
/// taken until their leases end.
///
/// A process that forks opens another `Ids` in the child, over stores that it connects there. All that a child inherits
/// refuses with [`ErrorKind::Forked`] or is empty, whichever call made the child. The parent goes on. A store in SQLite
/// connects in a child only if its parent had none open.
///
/// ```
/// use unalike::{Ids, SequenceOptions};
/// # use std::sync::Arc;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = Arc::new(unalike_memory::MemoryStore::default());
/// let ids = Ids::builder().segments(store.clone()).leases(store).build().await?;
/// let orders = ids.sequence("order", SequenceOptions::default()).await?;
/// assert_eq!(orders.next().await?, 1);
/// ids.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Ids {
    shared: Arc<OpenGenerators>,
}

/// The open generators, and what they are opened in.
struct OpenGenerators {
    environment: Environment,
    sequences: Mutex<OpenSequences>,
    snowflakes: Mutex<HashMap<String, Arc<SnowflakeShared>>>,
    /// The formats that the store was found to have for tags.
    formats: Mutex<HashMap<String, Arc<Format>>>,
    /// Changed before the locks of the generators are taken to close them, and read by those who add one inside.
    life: watch::Sender<Life>,
    /// From when on idleness is counted.
    built: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Open,
    Closing,
    Closed,
}

/// The sequences that are open.
#[derive(Default)]
struct OpenSequences {
    by_name: HashSet<ByName>,
    /// In the order in which they were opened, each with its number. Those that were closed are taken out now and then.
    all: Vec<(u64, Weak<SequenceShared>)>,
    /// How many were opened.
    opened: u64,
}

impl OpenSequences {
    fn get(&self, name: &str) -> Option<&Arc<SequenceShared>> {
        self.by_name.get(name).map(|ByName(open)| open)
    }

    fn add(&mut self, open: impl FnOnce(u64) -> SequenceShared) -> Arc<SequenceShared> {
        let number = self.opened;
        let opened = Arc::new(open(number));
        self.opened += 1;
        self.all.push((number, Arc::downgrade(&opened)));
        self.by_name.insert(ByName(Arc::clone(&opened)));
        opened
    }

    /// Those that were opened as this number or later.
    fn from(&self, known: u64) -> impl Iterator<Item = Arc<SequenceShared>> {
        let first = self.all.partition_point(|(number, _)| *number < known);
        self.all.iter().skip(first).filter_map(|(_, open)| open.upgrade())
    }

    /// Closes a sequence, if nobody else has it. Whoever wants the tag meanwhile waits, so that it is open once at
    /// most.
    fn close(&mut self, open: Arc<SequenceShared>) -> bool {
        if self.get(open.name()).is_none_or(|known| !Arc::ptr_eq(known, &open)) {
            return false;
        }
        self.by_name.remove(open.name());
        match Arc::try_unwrap(open) {
            Ok(unused) if !unused.is_used() => {
                unused.end();
                return true;
            }
            // Somebody began a round since this was looked at, and went away: the round's task goes on.
            Ok(used) => {
                let number = used.number();
                let open = Arc::new(used);
                let at = self.all.partition_point(|(other, _)| *other < number);
                if let Some((found, known)) = self.all.get_mut(at)
                    && *found == number
                {
                    *known = Arc::downgrade(&open);
                }
                self.by_name.insert(ByName(open));
            }
            Err(open) => drop(self.by_name.insert(ByName(open))),
        }
        false
    }
}

/// An open sequence in a set of names.
struct ByName(Arc<SequenceShared>);

impl Borrow<str> for ByName {
    fn borrow(&self) -> &str {
        self.0.name()
    }
}

impl Hash for ByName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name().hash(state);
    }
}

impl PartialEq for ByName {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name()
    }
}

impl Eq for ByName {}

/// Makes an [`Ids`].
///
/// ```
/// use std::time::Duration;
/// use unalike::Ids;
/// # use std::sync::Arc;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = Arc::new(unalike_memory::MemoryStore::default());
/// let ids = Ids::builder()
///     .segments(store.clone())
///     .leases(store)
///     .holder("host-a:8080")
///     .wait_max(Duration::from_millis(500))
///     .build()
///     .await?;
/// # Ok(())
/// # }
/// ```
pub struct IdsBuilder {
    ctx: IdsCtxBuilder,
    lanes: Option<usize>,
    engine: Engine,
    wait_max: Duration,
    clock: Time,
}

impl IdsBuilder {
    /// Where sequences get their segments. Without it there are no sequences.
    #[must_use]
    pub fn segments(mut self, store: Arc<dyn SegmentStore>) -> Self {
        self.ctx = self.ctx.segments(store);
        self
    }

    /// Where snowflakes get their leases. Without it there are no snowflakes.
    #[must_use]
    pub fn leases(mut self, store: Arc<dyn LeaseStore>) -> Self {
        self.ctx = self.ctx.leases(store);
        self
    }

    /// A stable name of this process (a host name and port, say), by which the lease store prefers the worker that it
    /// had before. It proves nothing, and two processes with one name stay unique. A random name by default.
    #[must_use]
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.ctx = self.ctx.holder(holder);
        self
    }

    /// A worker id that this process would like to have, if it is free.
    #[must_use]
    pub fn preferred_worker(mut self, worker: u32) -> Self {
        self.ctx = self.ctx.preferred_worker(worker);
        self
    }

    /// What runs the core: the component in wasmtime by default, in a program without wasmtime the native core. Ids are
    /// the same.
    #[must_use]
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// How many instances of the core share the work, 1 to 8: by default one per processor. A tag lives on one.
    #[must_use]
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.lanes = Some(lanes.clamp(1, LANES_MAX));
        self
    }

    /// How long a call waits for ids before it fails with [`ErrorKind::Timeout`]: 5 seconds by default.
    #[must_use]
    pub fn wait_max(mut self, wait_max: Duration) -> Self {
        self.wait_max = wait_max;
        self
    }

    /// The time after which a request to a store is given up, and what it may have been granted is burnt: 10 seconds by
    /// default.
    #[must_use]
    pub fn request_timeout(mut self, request_timeout: Duration) -> Self {
        self.ctx = self.ctx.request_timeout(request_timeout);
        self
    }

    /// Another clock, for tests and simulations.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Time::Given(clock);
        self
    }

    /// Compiles the component (once per process, some milliseconds) and makes its instances. No request is made yet.
    ///
    /// All requests to the stores run on the multi-threaded tokio runtime that this is called in. They run on a thread
    /// of the library's own where there is no such runtime (one of a single thread runs only while somebody blocks on
    /// it, and other executors run none of tokio's input and output), and from the moment that the runtime ends. So the
    /// ids of a `static` outlive the runtime of a test, and any executor may await them. The stores must allow it: a
    /// connection that a store opened in another runtime may end with that one.
    ///
    /// # Errors
    /// [`ErrorKind::Component`]; [`ErrorKind::Executor`] when the library's thread cannot be started.
    #[expect(clippy::unused_async, reason = "the like of `build_blocking`, and it may check its stores one day")]
    pub async fn build(self) -> Result<Ids, Error> {
        self.make(IdsCtxBuilder::build)
    }

    /// The same outside asynchronous code: all requests run on the library's own thread.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # fn main() -> Result<(), unalike::Error> {
    /// # let store = Arc::new(unalike_memory::MemoryStore::default());
    /// let ids = unalike::Ids::builder().segments(store).build_blocking()?;
    /// let orders = ids.sequence_blocking("order", Default::default())?;
    /// assert_eq!(orders.next_blocking()?, 1);
    /// ids.close_blocking();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Component`], [`ErrorKind::Executor`].
    pub fn build_blocking(self) -> Result<Ids, Error> {
        self.make(|ctx| Ok(ctx.on(Executor::own()?)))
    }

    fn make(self, origin: impl FnOnce(IdsCtxBuilder) -> Result<IdsCtx, Error>) -> Result<Ids, Error> {
        let origin = origin(self.ctx)?;
        let lanes = self.lanes.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(1, std::num::NonZero::get).clamp(1, LANES_MAX)
        });
        let lanes = (0..lanes)
            .map(|_| Lane::new(origin.successor(), self.engine, self.clock.clone(), self.wait_max).map(Arc::new))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Ids {
            shared: Arc::new(OpenGenerators {
                environment: Environment::new(Arc::clone(origin.storage()), self.wait_max, self.clock, lanes),
                sequences: Mutex::default(),
                snowflakes: Mutex::default(),
                formats: Mutex::default(),
                life: watch::Sender::new(Life::Open),
                built: Instant::now(),
            }),
        })
    }
}

impl Ids {
    /// A builder with the defaults and without stores.
    #[must_use]
    pub fn builder() -> IdsBuilder {
        IdsBuilder {
            ctx: IdsCtxBuilder::new(),
            lanes: None,
            engine: Engine::default(),
            wait_max: Duration::from_secs(5),
            clock: Time::System,
        }
    }

    /// The sequence of a tag, opened at first use; options that are not given are the tag's own, as its store keeps
    /// them.
    ///
    /// # Errors
    /// [`ErrorKind::NameInvalid`], [`ErrorKind::Options`], [`ErrorKind::ModeBound`], [`ErrorKind::OpenOtherwise`],
    /// [`ErrorKind::IdMaxReached`], [`ErrorKind::Store`] and [`ErrorKind::Timeout`] when the tag cannot be looked up.
    pub async fn sequence(&self, tag: &str, options: SequenceOptions) -> Result<Sequence, Error> {
        self.shared.check(tag)?;
        if let Some(open) = lock(&self.shared.sequences).get(tag) {
            return Sequence::again(open, &options);
        }
        let opened = SequenceShared::open(&self.shared.environment, tag, &options).await?;
        let mut sequences = lock(&self.shared.sequences);
        // Somebody may have opened it meanwhile: a process has one buffer per tag.
        match sequences.get(tag) {
            Some(open) => Sequence::again(open, &options),
            None => {
                self.shared.check_open(tag)?;
                let lane = self.shared.environment.lane(tag);
                Ok(Sequence::of(sequences.add(|number| opened.add(lane, &self.shared.environment, number))))
            }
        }
    }

    /// The sequence of a tag if it is open already, whatever its options: a look-up that waits for nothing. In a forked
    /// child there is none.
    #[must_use]
    pub fn sequence_if_open(&self, tag: &str) -> Option<Sequence> {
        if !self.shared.is_own_process() {
            return None;
        }
        lock(&self.shared.sequences).get(tag).map(|open| Sequence::of(Arc::clone(open)))
    }

    /// The sequence of a tag's sub-key: numbers of their own, for which the tag is the common name and gives the
    /// options.
    ///
    /// A sub-key is a name, and both together have at most 127 bytes. It needs no creation: its first use makes its row
    /// in the store, if the tag exists or may be created. Ids are unique, and ordered if the tag is, per tag and
    /// sub-key: the messages of each of a million chats can be numbered 1, 2, 3, ..
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use unalike::{Ids, SequenceOptions};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), unalike::Error> {
    /// # let store = Arc::new(unalike_memory::MemoryStore::default());
    /// # let ids = Ids::builder().segments(store).build().await?;
    /// let ours = ids.sequence_of("chat", "alice-and-bob", SequenceOptions::default()).await?;
    /// let theirs = ids.sequence_of("chat", "carol-and-dave", SequenceOptions::default()).await?;
    /// assert_eq!((ours.next().await?, ours.next().await?, theirs.next().await?), (1, 2, 1));
    /// assert_eq!((ours.tag(), ours.sub()), ("chat", Some("alice-and-bob")));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Ids::sequence`]; [`ErrorKind::Store`] saying what is wrong with the sub-key; and [`ErrorKind::Store`] when
    /// the store keeps no sub-keys, as tables of other systems may not.
    pub async fn sequence_of(&self, tag: &str, sub: &str, options: SequenceOptions) -> Result<Sequence, Error> {
        let name = sub_tag(tag, sub)
            .map_err(|source| ErrorKind::Store { name: tag.chars().take(32).collect(), source: Arc::new(source) })?;
        self.sequence(&name, options).await
    }

    /// [`Ids::sequence_of`] for threads that run no asynchronous code.
    ///
    /// # Errors
    /// As [`Ids::sequence_of`].
    ///
    /// # Panics
    /// Inside asynchronous code of tokio's.
    pub fn sequence_of_blocking(&self, tag: &str, sub: &str, options: SequenceOptions) -> Result<Sequence, Error> {
        self.block_on(tag, self.sequence_of(tag, sub, options))
    }

    /// [`Ids::sequence`] for threads that run no asynchronous code.
    ///
    /// # Errors
    /// As [`Ids::sequence`].
    ///
    /// # Panics
    /// Inside asynchronous code of tokio's, as every blocking call there does.
    pub fn sequence_blocking(&self, tag: &str, options: SequenceOptions) -> Result<Sequence, Error> {
        self.block_on(tag, self.sequence(tag, options))
    }

    /// Compares a format with what the store has bound to its owner; answers what is to be
    /// [bound](Self::bind_format) before an id is shown.
    pub(crate) async fn check_format(
        &self,
        owner: fn(&str) -> FormatOwner<'_>,
        name: &str,
        format: &Arc<Format>,
    ) -> Result<UnboundFormat, Error> {
        self.shared.check(name)?;
        let (asked, format) = (name.to_owned(), Arc::clone(format));
        let check = |store: Arc<dyn SegmentStore>| async move { check_format(&*store, owner(&asked), &format).await };
        self.shared.environment.ask_segments(name, check).await
    }

    /// Binds what is not bound yet.
    pub(crate) async fn bind_format(
        &self,
        owner: fn(&str) -> FormatOwner<'_>,
        name: &str,
        unbound: UnboundFormat,
    ) -> Result<(), Error> {
        if unbound.is_empty() {
            return Ok(());
        }
        let asked = name.to_owned();
        let bind = |store: Arc<dyn SegmentStore>| async move { unbound.bind(&*store, owner(&asked)).await };
        self.shared.environment.ask_segments(name, bind).await
    }

    /// Whether a tag was found to be bound to this format, in this process.
    ///
    /// # Errors
    /// For a name that is none, and in a forked child.
    pub(crate) fn is_bound(&self, tag: &str, format: &Arc<Format>) -> Result<bool, Error> {
        self.shared.check(tag)?;
        Ok(lock(&self.shared.formats).get(tag).is_some_and(|known| {
            Arc::ptr_eq(known, format) || known.shape() == format.shape() && known.key_checks().eq(format.key_checks())
        }))
    }

    /// Notes that it is.
    pub(crate) fn note_bound(&self, tag: &str, format: &Arc<Format>) {
        lock(&self.shared.formats).insert(tag.to_owned(), Arc::clone(format));
    }

    /// Whether sequences get segments from a store.
    pub(crate) fn has_segments(&self) -> bool {
        self.shared.environment.storage.segments.is_some()
    }

    /// What its clock shows, in Unix milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        self.shared.environment.clock.now_ms()
    }

    /// Runs a future to its end on this thread, which must not be one that runs tasks of tokio's. In a forked child it
    /// does not begin: the executor has locks, too, and a thread of the parent may have held one.
    pub(crate) fn block_on<T>(&self, name: &str, future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.shared.check_process(name)?;
        self.shared.environment.storage.executor.block_on(future)
    }

    /// Several waits as one, which is no longer than each of them may be.
    pub(crate) async fn within_one_wait<T>(
        &self,
        name: &str,
        waits: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let wait_max = self.shared.environment.wait_max;
        self.shared.environment.storage.executor.timeout(wait_max, waits).await.unwrap_or_else(|_| {
            let waited_ms = u64::try_from(wait_max.as_millis()).unwrap_or(u64::MAX);
            Err(ErrorKind::Timeout { name: name.to_owned(), waited_ms, source: None }.into())
        })
    }

    /// The snowflake generator of a lease namespace, opened at first use.
    ///
    /// # Errors
    /// [`ErrorKind::NameInvalid`], [`ErrorKind::Options`], [`ErrorKind::OpenOtherwise`].
    #[expect(clippy::unused_async, reason = "the like of `sequence`, and it may restore a local lease one day")]
    pub async fn snowflake(&self, namespace: &str, options: SnowflakeOptions) -> Result<Snowflake, Error> {
        self.shared.check(namespace)?;
        options.validate().map_err(|source| ErrorKind::Options { name: namespace.to_owned(), source })?;
        let mut snowflakes = lock(&self.shared.snowflakes);
        match snowflakes.get(namespace) {
            Some(open) => Snowflake::again(open, &options),
            None => {
                self.shared.check_open(namespace)?;
                let opened = Arc::new(SnowflakeShared::open(&self.shared.environment, namespace, options));
                snowflakes.insert(namespace.to_owned(), Arc::clone(&opened));
                Ok(Snowflake::of(opened))
            }
        }
    }

    /// [`Ids::snowflake`] for threads that run no asynchronous code.
    ///
    /// # Errors
    /// As [`Ids::snowflake`].
    ///
    /// # Panics
    /// Inside asynchronous code of tokio's.
    pub fn snowflake_blocking(&self, namespace: &str, options: SnowflakeOptions) -> Result<Snowflake, Error> {
        self.block_on(namespace, self.snowflake(namespace, options))
    }

    /// A handle of every open sequence, in the order of opening: for figures, see [`Sequence::status`].
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), unalike::Error> {
    /// # let store = Arc::new(unalike_memory::MemoryStore::default());
    /// # let ids = unalike::Ids::builder().segments(store).build().await?;
    /// ids.sequence("order", Default::default()).await?.next().await?;
    /// for sequence in ids.sequences() {
    ///     println!("{}: {:?}", sequence.tag(), sequence.status()?);
    /// }
    /// # assert_eq!(ids.sequences().len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn sequences(&self) -> Vec<Sequence> {
        self.sequences_from(0)
    }

    /// The same for those that were opened as number `known` or later, for programs that watch all sequences. They keep
    /// the number after the last one that they saw ([`Sequence::opened_as`]), and handles that keep none of them open
    /// ([`Sequence::downgrade`]).
    #[must_use]
    pub fn sequences_from(&self, known: u64) -> Vec<Sequence> {
        if !self.shared.is_own_process() {
            return Vec::new();
        }
        lock(&self.shared.sequences).from(known).map(Sequence::of).collect()
    }

    /// Closes the sequences that handed out nothing for this long and have no handle left, and returns how many it
    /// closed. Their tails go back to the store, their memory is free, and the next [`Ids::sequence`] opens them anew
    /// with the options that it gives: a bound that was given before is forgotten.
    ///
    /// It is for services whose tags, sub-keys and periods come and go: they call it from a timer, and keep no handles.
    /// It never waits. Use is looked at only in these calls, so a sequence is closed after this time plus up to one
    /// interval between calls. A sequence with a request under way is left to the next call.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), unalike::Error> {
    /// # let store = Arc::new(unalike_memory::MemoryStore::default());
    /// # let ids = unalike::Ids::builder().segments(store).build().await?;
    /// let orders = ids.sequence("order", Default::default()).await?;
    /// ids.sequence("invoice", Default::default()).await?.next().await?;
    /// assert_eq!(ids.close_idle(Duration::ZERO), 1); // the orders have a handle
    /// assert_eq!(ids.close_idle(Duration::from_secs(600)), 0);
    /// assert_eq!(ids.sequence("invoice", Default::default()).await?.next().await?, 2);
    /// # drop(orders);
    /// # Ok(())
    /// # }
    /// ```
    pub fn close_idle(&self, idle: Duration) -> usize {
        if self.shared.check("-").is_err() {
            return 0;
        }
        let now = self.shared.built.elapsed();
        let (mut known, mut closed) = (0, 0);
        loop {
            let looked_at: Vec<_> = lock(&self.shared.sequences).from(known).take(LOOKED_AT_ONCE).collect();
            let Some(last) = looked_at.last() else { break };
            known = last.number() + 1;
            for open in looked_at {
                if open.is_idle(now, idle) {
                    closed += usize::from(lock(&self.shared.sequences).close(open));
                }
            }
        }
        if closed > 0 {
            lock(&self.shared.sequences).all.retain(|(_, open)| open.strong_count() > 0);
        }
        closed
    }

    /// A handle of every open snowflake generator, in no order: for figures, see [`Snowflake::status`].
    #[must_use]
    pub fn snowflakes(&self) -> Vec<Snowflake> {
        if !self.shared.is_own_process() {
            return Vec::new();
        }
        lock(&self.shared.snowflakes).values().map(|open| Snowflake::of(Arc::clone(open))).collect()
    }

    /// Renews the leases that are due. Renewal also happens inside ordinary calls; a long-running service that is idle
    /// at times calls this every second or so, and its next id does not wait for the lease store.
    pub fn renew_leases(&self) {
        for snowflake in self.snowflakes() {
            snowflake.renew();
        }
    }

    /// Ends all generators and gives back what never crossed into a run: the tails of segments, and leases from their
    /// last used tick on. Waits for the stores' answers, each time at most as long as a request may take. Safe while
    /// other threads still call: they get [`ErrorKind::Closed`], or ids that they already had.
    ///
    /// The work begins with the first call and goes on by itself: a call that is dropped stops nothing, and every other
    /// call waits for the same end. In a forked child it does nothing.
    pub async fn close(&self) {
        let shared = &self.shared;
        if !shared.is_own_process() {
            return;
        }
        let mut life = shared.life.subscribe();
        let is_first = shared.life.send_if_modified(|life| {
            let is_open = *life == Life::Open;
            if is_open {
                *life = Life::Closing;
            }
            is_open
        });
        if is_first {
            let closing = Closing::begin(shared);
            shared.environment.storage.executor.spawn_to_end(closing.finish());
        }
        // The sender lives as long as `self`.
        let _ = life.wait_for(|life| *life == Life::Closed).await;
    }

    /// [`Ids::close`] for threads that run no asynchronous code.
    ///
    /// # Panics
    /// Inside asynchronous code of tokio's.
    pub fn close_blocking(&self) {
        if self.shared.is_own_process() {
            self.shared.environment.storage.executor.block_on(self.close());
        }
    }
}

/// The end of an `Ids`: every generator is closed, and those who wait for it hear when all is done.
struct Closing {
    shared: Arc<OpenGenerators>,
    sequences: Vec<Arc<SequenceShared>>,
    snowflakes: Vec<Arc<SnowflakeShared>>,
}

impl Closing {
    /// Stops all generators. None is added from here on: see [`OpenGenerators::check_open`].
    fn begin(shared: &Arc<OpenGenerators>) -> Self {
        let sequences = lock(&shared.sequences).from(0).collect::<Vec<_>>();
        let snowflakes: Vec<_> = lock(&shared.snowflakes).values().cloned().collect();
        sequences.iter().for_each(|sequence| sequence.stop());
        snowflakes.iter().for_each(|snowflake| snowflake.stop());
        Self { shared: Arc::clone(shared), sequences, snowflakes }
    }

    async fn finish(self) {
        // A segment that is on its way would stand between the tail and the tag's watermark.
        self.shared.settle("requests").await;
        let give_back = self.shared.environment.storage.hold_tails();
        self.sequences.iter().for_each(|sequence| unless_it_panics(|| sequence.close()));
        if let Some(give_back) = give_back {
            give_back();
        }
        self.snowflakes.iter().for_each(|snowflake| unless_it_panics(|| snowflake.close()));
        self.shared.settle("releases").await;
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.shared.life.send_replace(Life::Closed);
    }
}

/// Closes one generator. A clock that was given to the library may panic, and the others are to be closed all the same.
fn unless_it_panics(close: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(close)).is_err() {
        tracing::error!("closing a generator panicked: what it had is a gap");
    }
}

impl std::fmt::Debug for Ids {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ids").field("lanes", &self.shared.environment.lanes()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for IdsBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdsBuilder").field("ctx", &self.ctx).finish_non_exhaustive()
    }
}

impl OpenGenerators {
    /// Whether this is still the process that built it. It is asked before any lock is taken: a thread that held one
    /// when the process forked is not there in the child, and nobody gives the lock back.
    fn is_own_process(&self) -> bool {
        self.environment.storage.process.is_current()
    }

    /// Refuses what was inherited.
    fn check_process(&self, name: &str) -> Result<(), Error> {
        if self.is_own_process() {
            return Ok(());
        }
        Err(ErrorKind::Forked { name: name.to_owned() }.into())
    }

    fn check(&self, name: &str) -> Result<(), Error> {
        self.check_process(name)?;
        if !is_tag(name) {
            return Err(ErrorKind::NameInvalid { name: name.chars().take(32).collect() }.into());
        }
        self.check_open(name)
    }

    /// Refuses what would be opened too late. Whoever adds a generator asks under the lock of its kind: a closing that
    /// has begun shows then, and one that begins later finds the generator.
    fn check_open(&self, name: &str) -> Result<(), Error> {
        match *self.life.borrow() {
            Life::Open => Ok(()),
            Life::Closing | Life::Closed => Err(ErrorKind::Closed { name: name.to_owned() }.into()),
        }
    }

    async fn settle(&self, what: &str) {
        if !self.environment.storage.settle().await {
            let tails = self.environment.storage.tails_waiting();
            tracing::warn!(tails, "gave up waiting for {what}: what they carry is a gap");
        }
    }
}
