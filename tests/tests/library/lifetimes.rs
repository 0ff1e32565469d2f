//! What outlives what: runtimes that end while ids are asked for, executors that are not tokio's, a closing that is
//! given up, calls that panic, children of every kind of fork. No caller waits longer than it may, and no id comes
//! twice.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot do its work fails the test")]

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use unalike::storage::{LeaseStore, SegmentStore, TagOptions};
use unalike::{
    Clock, Engine, Error, ErrorKind, Format, FormatOptions, Ids, Layout, Mode, Restart, Sequence, SequenceOptions,
    Snowflake, SnowflakeOptions, StepPolicy,
};
use unalike_memory::MemoryStore;
use unalike_tests::faulty::FaultyStore;

/// Far longer than any wait here may be; a test that needs it has found a call that waits for ever.
const FOR_EVER: Duration = Duration::from_secs(60);

fn kind<T>(answer: &Result<T, Error>) -> Option<&ErrorKind> {
    answer.as_ref().err().map(Error::kind)
}

fn fixed(step: u64) -> SequenceOptions {
    SequenceOptions { step: Some(StepPolicy::Fixed { step }), ..SequenceOptions::default() }
}

fn twitter() -> SnowflakeOptions {
    SnowflakeOptions::new(Layout::TWITTER)
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn many_threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Does this on a thread of its own, and fails if it does not end.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = mpsc::channel();
    let worker = thread::spawn(move || {
        let result = work();
        let _ = done.send(());
        result
    });
    let ended = is_done.recv_timeout(FOR_EVER);
    assert!(!matches!(ended, Err(mpsc::RecvTimeoutError::Timeout)), "it waits for ever");
    worker.join().unwrap()
}

/// An executor that knows nothing of tokio.
fn plainly<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

/// A buffered tag of few ids a segment, an ordered one, and a snowflake.
#[derive(Clone)]
struct Generators {
    ids: Ids,
    orders: Sequence,
    tickets: Sequence,
    flakes: Snowflake,
}

/// A store with the tag "ticket", which is ordered.
fn store() -> Arc<FaultyStore> {
    let store = Arc::new(FaultyStore::default());
    plainly(store.inner().create_tag("ticket", &TagOptions { mode: Mode::Ordered, ..TagOptions::default() })).unwrap();
    store
}

async fn open(store: &Arc<FaultyStore>, wait_max: Duration) -> Generators {
    let ids = Ids::builder().segments(store.clone()).leases(store.clone()).wait_max(wait_max).lanes(1);
    generators(ids.build().await.unwrap()).await
}

async fn generators(ids: Ids) -> Generators {
    let orders = ids.sequence("order", fixed(2)).await.unwrap();
    let tickets = ids.sequence("ticket", SequenceOptions::default()).await.unwrap();
    let flakes = ids.snowflake("default", twitter()).await.unwrap();
    Generators { ids, orders, tickets, flakes }
}

impl Generators {
    /// Some of each, more than are buffered.
    async fn take(&self) -> Result<[Vec<u64>; 3], Error> {
        let numbers = self.orders.take(7).await?.iter().collect();
        let mut tickets: Vec<u64> = self.tickets.take(2).await?.iter().collect();
        tickets.push(self.tickets.next().await?);
        Ok([numbers, tickets, vec![self.flakes.next().await?]])
    }

    fn take_blocking(&self) -> Result<[Vec<u64>; 3], Error> {
        let numbers = self.orders.take_blocking(7)?.iter().collect();
        let mut tickets: Vec<u64> = self.tickets.take_blocking(2)?.iter().collect();
        tickets.push(self.tickets.next_blocking()?);
        Ok([numbers, tickets, vec![self.flakes.next_blocking()?]])
    }
}

fn assert_unique(all: &[[Vec<u64>; 3]]) {
    for which in 0..3 {
        let mut ids: Vec<u64> = all.iter().flat_map(|taken| taken.get(which).unwrap().iter().copied()).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count, "an id was handed out twice");
    }
}

/// As a `static` that many `#[tokio::test]`s share: each has a runtime of its own, and the first one is gone.
#[test]
fn ids_outlive_the_runtime_that_they_were_built_in() {
    for runtime in [one_thread, many_threads] {
        in_time(move || {
            let store = store();
            let first = runtime();
            let generators = first.block_on(open(&store, Duration::from_secs(5)));
            let mut all = vec![first.block_on(generators.take()).unwrap()];
            drop(first);
            all.push(runtime().block_on(generators.take()).unwrap());
            all.push(generators.take_blocking().unwrap());
            all.push(plainly(generators.take()).unwrap());
            assert_eq!(
                runtime().block_on(generators.ids.sequence("other", fixed(2))).unwrap().next_blocking().unwrap(),
                1
            );
            generators.ids.close_blocking();
            assert_unique(&all);
        });
    }
}

/// The store is silent when the runtime ends, so that requests, the round of an ordered tag, and look-ups are under
/// way.
#[test]
fn a_runtime_that_ends_takes_no_caller_with_it() {
    in_time(|| {
        let store = store();
        let runtime = many_threads();
        let generators = runtime.block_on(open(&store, Duration::from_secs(30)));
        store.hold(true);
        let callers: Vec<_> = (0..4)
            .map(|_| {
                let generators = generators.clone();
                thread::spawn(move || generators.take_blocking())
            })
            .collect();
        let tickets: Vec<_> = (0..4)
            .map(|_| {
                let tickets = generators.tickets.clone();
                thread::spawn(move || tickets.next_blocking())
            })
            .collect();
        while !(generators.tickets.status().unwrap().in_flight && generators.orders.status().unwrap().in_flight) {
            thread::yield_now();
        }
        drop(runtime);
        store.hold(false);
        let taken: Vec<_> = callers.into_iter().map(|caller| caller.join().unwrap().unwrap()).collect();
        let alone = tickets.into_iter().map(|caller| [vec![], vec![caller.join().unwrap().unwrap()], vec![]]);
        assert_unique(&taken.into_iter().chain(alone).collect::<Vec<_>>());
    });
}

#[test]
fn threads_wait_for_what_was_built_in_a_runtime_that_nobody_drives() {
    in_time(|| {
        let store = store();
        let runtime = one_thread();
        let generators = runtime.block_on(open(&store, Duration::from_millis(200)));
        let mut all = vec![generators.take_blocking().unwrap(), generators.take_blocking().unwrap()];
        let another = generators.ids.sequence_blocking("other", fixed(2)).unwrap();
        assert_eq!(another.next_blocking().unwrap(), 1);
        // And what is missing is told in time.
        store.hold(true);
        while let Some(id) = generators.orders.try_next().unwrap() {
            all.push([vec![id], vec![], vec![]]);
        }
        assert!(matches!(kind(&generators.orders.next_blocking()), Some(ErrorKind::Timeout { .. })));
        assert!(matches!(kind(&generators.tickets.next_blocking()), Some(ErrorKind::Timeout { .. })));
        let silent = generators.ids.sequence_blocking("silent", fixed(2));
        assert!(matches!(kind(&silent), Some(ErrorKind::Timeout { .. })), "{silent:?}");
        store.hold(false);
        generators.ids.close_blocking();
        assert_unique(&all);
        drop(runtime);
    });
}

/// Each caller of an ordered tag has its own time, in the round that is in flight and behind it, and whoever comes
/// later is served.
#[test]
fn whoever_waits_for_a_round_waits_as_long_as_it_may() {
    in_time(|| {
        for runtime in [None, Some(many_threads())] {
            let store = store();
            let wait_max = Duration::from_millis(100);
            let build = open(&store, wait_max);
            let tickets = match &runtime {
                Some(runtime) => runtime.block_on(build).tickets,
                None => plainly(build).tickets,
            };
            store.hold(true);
            let begin = || {
                let tickets = tickets.clone();
                thread::spawn(move || tickets.next_blocking())
            };
            let first = begin();
            while !tickets.status().unwrap().in_flight {
                thread::yield_now();
            }
            // These come while the first one's time runs.
            let later: Vec<_> = (0..10)
                .map(|_| {
                    thread::sleep(wait_max / 20);
                    begin()
                })
                .collect();
            for caller in [first].into_iter().chain(later) {
                let ended = caller.join().unwrap();
                assert!(
                    matches!(kind(&ended), Some(ErrorKind::Timeout { waited_ms, .. }) if *waited_ms >= 100),
                    "by its own time, not by another's: {ended:?}"
                );
            }
            store.hold(false);
            // The answers that were held back are burnt: nothing comes twice.
            let after = tickets.take_blocking(3).unwrap();
            assert!(after.iter().is_sorted_by(|one, next| one < next) && after.len() == 3, "{after:?}");
        }
    });
}

/// What nobody waits for any more is not asked for; what was asked for is nobody else's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_of_an_ordered_tag_may_go_away() {
    let store = store();
    let tickets = open(&store, FOR_EVER).await.tickets;
    assert_eq!(tickets.next().await.unwrap(), 1);
    store.hold(true);
    let mut waker = Context::from_waker(Waker::noop());
    let before = store.arrivals();
    // The round in flight is for this one.
    let mut gone = Box::pin(tickets.take(10));
    assert!(gone.as_mut().poll(&mut waker).is_pending());
    while store.arrivals() == before {
        tokio::task::yield_now().await;
    }
    // They wait for the next one.
    let (mut never_asked, mut stays, mut last) =
        (Box::pin(tickets.take(1_000)), Box::pin(tickets.next()), Box::pin(tickets.take(2)));
    assert!(never_asked.as_mut().poll(&mut waker).is_pending() && stays.as_mut().poll(&mut waker).is_pending());
    assert!(last.as_mut().poll(&mut waker).is_pending());
    drop((gone, never_asked));
    store.hold(false);
    assert_eq!(stays.await.unwrap(), 12, "ten ids are a gap, and a thousand were not asked for");
    assert!(last.await.unwrap().iter().eq([13, 14]));
    assert_eq!(tickets.next().await.unwrap(), 15);
    assert_eq!(tickets.supply().issued, 15, "what rounds brought");
}

/// Nothing of tokio is there: neither when they are built, nor when they wait, nor when they end.
/// In less than what a single memory of 4 GiB would take.
#[test]
#[cfg(target_os = "linux")]
fn instances_need_little_address_space() -> anyhow::Result<()> {
    use anyhow::Context as _;
    use rustix::process::{Resource, Rlimit, setrlimit};

    let status = std::fs::read_to_string("/proc/self/status")?;
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB"));
    let room = size.context("VmSize")?.trim().parse::<u64>()? * 1_024 + (1 << 30);
    setrlimit(Resource::As, Rlimit { current: Some(room), maximum: Some(room) })?;
    for _ in 0..20 {
        let ids = Ids::builder().segments(Arc::new(MemoryStore::default())).build_blocking()?;
        assert_eq!(ids.sequence_blocking("order", SequenceOptions::default())?.next_blocking()?, 1);
        // It lives on.
        std::mem::forget(ids);
    }
    Ok(())
}

#[test]
fn any_executor_may_build_ids_and_await_them() {
    in_time(|| {
        let store = store();
        // Slow enough that every call waits.
        store.set_delay(Duration::from_millis(5));
        let generators = plainly(open(&store, Duration::from_secs(5)));
        let all: Vec<_> = (0..5).map(|_| plainly(generators.take()).unwrap()).collect();
        // More than a tick holds: they wait for the next ones.
        let flakes = plainly(generators.flakes.take(20_000)).unwrap();
        assert_eq!(flakes.len(), 20_000);
        let format = FormatOptions { template: "{yyyyMMdd}-{id}", restart: Restart::Day, ..FormatOptions::default() };
        let format = Format::new(&format).unwrap();
        let daily = plainly(generators.ids.formatted("daily", None, fixed(2), format)).unwrap();
        let texts = plainly(daily.take(5, None)).unwrap().texts().unwrap();
        assert!(texts.is_sorted_by(|one, next| one < next) && texts.len() == 5);
        plainly(generators.ids.close());
        assert_unique(&all);
        assert!(matches!(kind(&plainly(generators.orders.take(10))), Some(ErrorKind::Closed { .. })));
    });
}

/// A store whose answers need what tokio has.
#[test]
fn a_tag_is_looked_up_where_requests_run() {
    in_time(|| {
        let store = store();
        store.set_delay(Duration::from_millis(1));
        let ids = Ids::builder().segments(store.clone()).leases(store).build_blocking().unwrap();
        let orders = plainly(ids.sequence("order", fixed(2))).unwrap();
        assert_eq!(plainly(orders.next()).unwrap(), 1);
        plainly(ids.close());
    });
}

/// A clock that stops whoever reads it, while it is told to.
#[derive(Default)]
struct Standing {
    stands: AtomicBool,
}

impl Clock for Standing {
    fn now_ms(&self) -> u64 {
        while self.stands.load(Ordering::SeqCst) {
            thread::park_timeout(Duration::from_millis(1));
        }
        unalike::SystemClock.now_ms()
    }
}

/// The one in flight does not end, and so neither does the one after it.
#[test]
fn who_waits_for_a_round_has_a_time_of_its_own() {
    in_time(|| {
        let (store, clock) = (store(), Arc::new(Standing::default()));
        let runtime = many_threads();
        let ids = Ids::builder().segments(store).clock(clock.clone()).wait_max(Duration::from_millis(100));
        let ids = runtime.block_on(ids.build()).unwrap();
        let tickets = runtime.block_on(ids.sequence("ticket", SequenceOptions::default())).unwrap();
        assert_eq!(tickets.next_blocking().unwrap(), 1);
        clock.stands.store(true, Ordering::SeqCst);
        for _ in 0..2 {
            assert!(matches!(kind(&tickets.next_blocking()), Some(ErrorKind::Timeout { .. })));
            assert!(matches!(kind(&plainly(tickets.take(2))), Some(ErrorKind::Timeout { .. })));
        }
        clock.stands.store(false, Ordering::SeqCst);
        let id = loop {
            match tickets.next_blocking() {
                Ok(id) => break id,
                Err(error) => assert!(error.is_retryable(), "{error:?}"),
            }
        };
        assert!(id > 1);
    });
}

/// A clock that panics once when it is told to.
#[derive(Default)]
struct Startling {
    startles: AtomicBool,
    readings: AtomicU64,
}

impl Clock for Startling {
    fn now_ms(&self) -> u64 {
        assert!(!self.startles.swap(false, Ordering::SeqCst), "a panic that is expected");
        1_700_000_000_000 + self.readings.fetch_add(1, Ordering::SeqCst)
    }
}

#[test]
fn a_call_that_panics_takes_its_own_round_and_no_other() {
    in_time(|| {
        let (store, clock) = (store(), Arc::new(Startling::default()));
        let ids = Ids::builder().segments(store.clone()).leases(store).clock(clock.clone()).lanes(1);
        let tickets = ids.build_blocking().unwrap().sequence_blocking("ticket", SequenceOptions::default()).unwrap();
        let before = tickets.next_blocking().unwrap();
        clock.startles.store(true, Ordering::SeqCst);
        let error = tickets.next_blocking().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Rebuilt { .. }) && error.is_retryable(), "{error:?}");
        assert!(tickets.next_blocking().unwrap() > before);
    });
}

/// The instance goes with the round in it. Whoever waits for the round hears that it is worth another try.
#[test]
fn a_round_that_is_lost_with_its_instance_may_be_tried_again() {
    in_time(|| {
        let (store, clock) = (store(), Arc::new(Startling::default()));
        let ids = Ids::builder().segments(store.clone()).leases(store.clone()).clock(clock.clone()).lanes(1);
        let Generators { orders, tickets, .. } = plainly(generators(ids.build_blocking().unwrap()));
        assert_eq!(tickets.next_blocking().unwrap(), 1);
        store.hold(true);
        let (asked, called) = (store.allocations(), clock.readings.load(Ordering::SeqCst));
        let waiting = tickets.clone();
        let waiting = thread::spawn(move || waiting.next_blocking());
        // One call begins the round, and the other would have what it brought.
        while clock.readings.load(Ordering::SeqCst) < called + 2 {
            thread::yield_now();
        }
        // Another generator's call takes the instance away, after the round has begun there.
        let startled = thread::spawn(move || {
            clock.startles.store(true, Ordering::SeqCst);
            // What is in hand needs no call.
            (0..10).try_for_each(|_| orders.try_next().map(drop))
        });
        assert!(startled.join().is_err(), "its call panicked");
        assert_eq!(store.allocations(), asked, "the store has answered nothing yet");
        store.hold(false);
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Rebuilt { .. }) && error.is_retryable(), "{error:?}");
        assert!(error.to_string().contains("its round was lost"), "{error}");
        assert!(tickets.next_blocking().unwrap() > 1);
    });
}

/// A closing that panics in one generator closes the others.
#[test]
fn a_panic_stops_no_closing() {
    in_time(|| {
        let (store, clock) = (store(), Arc::new(Startling::default()));
        let ids = Ids::builder().segments(store.clone()).clock(clock.clone()).lanes(8).build_blocking().unwrap();
        let names: Vec<String> = (0..16).map(|number| format!("tag-{number}")).collect();
        for name in &names {
            ids.sequence_blocking(name, fixed(100)).unwrap().next_blocking().unwrap();
        }
        while ids.sequences().iter().any(|sequence| sequence.status().unwrap().in_flight) {
            thread::yield_now();
        }
        clock.startles.store(true, Ordering::SeqCst);
        ids.close_blocking();
        let given_back = names.iter().filter(|name| plainly(store.inner().tag(name)).unwrap().watermark == 1).count();
        assert!(given_back > 0, "the panic stopped the rest");
    });
}

/// All that was left of segments of a thousand, and of a lease of minutes.
fn assert_given_back(store: &Arc<FaultyStore>) {
    let watermark = plainly(store.inner().tag("invoice")).unwrap().watermark;
    assert!((500..1_000).contains(&watermark), "the tail was not given back: {watermark}");
    let leases = plainly(LeaseStore::leases(store.inner(), "default")).unwrap();
    let now_ms = unalike::SystemClock.now_ms();
    assert!(
        leases.iter().all(|lease| lease.lease.valid_until_ms < now_ms + 5_000),
        "the lease was not given back: {leases:?}"
    );
}

#[test]
fn a_closing_that_is_given_up_goes_on_and_everybody_waits_for_its_end() {
    in_time(|| {
        let runtime = many_threads();
        let store = store();
        let generators = runtime.block_on(open(&store, Duration::from_secs(5)));
        runtime.block_on(generators.take()).unwrap();
        let invoices = runtime.block_on(generators.ids.sequence("invoice", fixed(1_000))).unwrap();
        runtime.block_on(invoices.take(10)).unwrap();
        while invoices.status().unwrap().in_flight {
            thread::yield_now();
        }
        // The third segment does not come before the closing is given up.
        store.hold(true);
        runtime.block_on(invoices.take(490)).unwrap();
        while !generators.orders.status().unwrap().in_flight {
            drop(generators.orders.try_next());
        }
        let ids = &generators.ids;
        let given_up = runtime.block_on(async { tokio::time::timeout(Duration::from_millis(20), ids.close()).await });
        assert!(given_up.is_err(), "the store is silent, and yet all is closed");
        assert!(matches!(kind(&runtime.block_on(generators.tickets.next())), Some(ErrorKind::Closed { .. })));
        let closers: Vec<_> = (0..3)
            .map(|_| {
                let ids = ids.clone();
                let runtime = runtime.handle().clone();
                thread::spawn(move || runtime.block_on(ids.close()))
            })
            .collect();
        thread::sleep(Duration::from_millis(20));
        assert!(closers.iter().all(|closer| !closer.is_finished()), "a second closing ended before the first");
        // Nor does it need the runtime in which it began.
        drop(runtime);
        store.hold(false);
        ids.close_blocking();
        assert_given_back(&store);
        for closer in closers {
            // Its runtime has ended, or it has seen the end.
            drop(closer.join());
        }
    });
}

/// Handles that come out while everything is being closed are closed, too.
#[test]
fn what_is_opened_while_everything_is_closed_is_closed_or_refused() {
    in_time(|| {
        for _ in 0..50 {
            let store = store();
            let ids = Ids::builder().segments(store.clone()).leases(store.clone()).build_blocking().unwrap();
            let begun = Arc::new(AtomicU64::new(0));
            let openers: Vec<_> = (0..3)
                .map(|opener| {
                    let (ids, begun) = (ids.clone(), Arc::clone(&begun));
                    thread::spawn(move || {
                        let (mut sequences, mut flakes) = (Vec::new(), Vec::new());
                        for number in 0.. {
                            begun.fetch_add(1, Ordering::SeqCst);
                            let name = format!("{opener}-{number}");
                            let opened =
                                (ids.sequence_blocking(&name, fixed(2)), ids.snowflake_blocking(&name, twitter()));
                            let is_over = opened.0.is_err() && opened.1.is_err();
                            sequences.extend(opened.0.ok());
                            flakes.extend(opened.1.ok());
                            if is_over {
                                break;
                            }
                        }
                        (sequences, flakes)
                    })
                })
                .collect();
            while begun.load(Ordering::SeqCst) < 30 {
                thread::yield_now();
            }
            ids.close_blocking();
            for opener in openers {
                let (sequences, flakes) = opener.join().unwrap();
                for sequence in sequences {
                    let answer = sequence.try_next();
                    assert!(matches!(kind(&answer), Some(ErrorKind::Closed { .. })), "{}: {answer:?}", sequence.tag());
                }
                for flakes in flakes {
                    let answer = flakes.try_next();
                    assert!(matches!(kind(&answer), Some(ErrorKind::Closed { .. })), "{answer:?}");
                }
            }
        }
    });
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "fork is what is tested")]
mod children {
    use std::cell::{Cell, RefCell};

    use unalike::storage::{Process, StoreError};
    use unalike::{RandomIds, Supply, SystemClock};
    use unalike_mysql::{MysqlOptions, MysqlStore};
    use unalike_redis::{Backing, RedisOptions, RedisStore};
    use unalike_sqlite::{SqliteOptions, SqliteStore};
    use unalike_tests::mariadb::MariaDb;
    use unalike_tests::process::alone;
    use unalike_tests::redis::{Persistence, Redis};
    use unalike_tests::zookeeper::{self, Zookeeper};

    use super::*;

    unsafe extern "C" {
        /// glibc's since 2.34: a fork without the handlers of `pthread_atfork`.
        fn _Fork() -> libc::pid_t;
    }

    #[derive(Clone, Copy, Debug)]
    enum Fork {
        WithHandlers,
        WithoutHandlers,
        SystemCall,
    }

    impl Fork {
        /// Does this in a child, which has 20 seconds, and answers the status with which the child ended.
        fn child(self, act: impl FnOnce() -> bool) -> libc::c_int {
            // SAFETY: the child makes no call that needs another thread of the parent, and leaves by _exit. Where no
            // handler runs, the parent has no other thread that may be allocating memory.
            let pid = unsafe {
                match self {
                    Self::WithHandlers => libc::fork(),
                    Self::WithoutHandlers => _Fork(),
                    Self::SystemCall => {
                        libc::pid_t::try_from(libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0)).unwrap()
                    }
                }
            };
            assert!(pid >= 0);
            if pid == 0 {
                // SAFETY: a signal ends a child that hangs.
                unsafe { libc::alarm(20) };
                let is_as_expected = act();
                // SAFETY: it never returns.
                unsafe { libc::_exit(i32::from(!is_as_expected)) };
            }
            let mut status = -1;
            // SAFETY: the child exists and `status` is a place for its status.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            status
        }
    }

    fn is_forked<T>(answer: Result<T, Error>) -> bool {
        matches!(kind(&answer), Some(ErrorKind::Forked { .. }))
    }

    /// With the handlers' word for it, with none, and past libc: nobody but the kernel sees the last ones.
    #[test]
    fn a_child_of_every_kind_abandons_what_it_inherited_and_has_ids_of_its_own() {
        alone(module_path!(), "a_child_of_every_kind_abandons_what_it_inherited_and_has_ids_of_its_own", || {
            for engine in [Engine::Component, Engine::Native] {
                let store = store();
                let builder = Ids::builder().segments(store.clone()).leases(store.clone()).engine(engine);
                let generators = plainly(generators(builder.build_blocking().unwrap()));
                let random = RandomIds::new();
                let options = SequenceOptions { order: Some(unalike::Order::Thread), ..fixed(1_000) };
                let per_thread = generators.ids.sequence_blocking("per thread", options).unwrap();
                let mut local = per_thread.local().unwrap();
                let invoices = generators.ids.sequence_blocking("invoice", fixed(1_000)).unwrap();
                invoices.take_blocking(500).unwrap();
                for fork in [Fork::WithHandlers, Fork::WithoutHandlers, Fork::SystemCall] {
                    let mut all = vec![generators.take_blocking().unwrap()];
                    // Long runs are in hand, all around.
                    for _ in 0..100 {
                        per_thread.next_blocking().unwrap();
                        local.next_blocking().unwrap();
                    }
                    // The next ulid of the parent's would be this one's successor.
                    let ulid = random.ulid().unwrap();
                    while generators.orders.status().unwrap().in_flight {
                        thread::yield_now();
                    }
                    let process = Process::current();
                    let watermark = plainly(store.inner().tag("order")).unwrap().watermark;
                    let status = fork.child(|| {
                        let Generators { ids, orders, tickets, flakes } = generators.clone();
                        let inherited = [
                            is_forked(orders.try_next()),
                            is_forked(orders.next_blocking()),
                            is_forked(orders.take_blocking(3)),
                            is_forked(plainly(orders.take(3))),
                            is_forked(tickets.next_blocking()),
                            is_forked(plainly(tickets.next())),
                            is_forked(flakes.try_next()),
                            is_forked(flakes.take_blocking(3)),
                            is_forked(per_thread.try_next()),
                            is_forked(local.try_next()),
                            is_forked(ids.sequence_blocking("order", fixed(2))),
                            is_forked(plainly(ids.snowflake("default", twitter()))),
                            is_forked(plainly(ids.formatted("order", None, fixed(2), Format::default()))),
                            is_forked(plainly(ids.formatted_snowflake("web", twitter(), Format::default()))),
                            random.ulid().is_ok_and(|its| its.0.abs_diff(ulid.0) > 1 << 32),
                            !process.is_current(),
                        ];
                        // Closing and dropping give nothing of the parent's back.
                        ids.close_blocking();
                        plainly(ids.close());
                        drop((ids, orders, tickets, flakes));
                        let is_untouched = plainly(store.inner().tag("order")).unwrap().watermark == watermark;
                        // And it has ids of its own, over stores of its own.
                        let own = MemoryStore::default();
                        let own = Ids::builder().segments(Arc::new(own)).engine(engine).build_blocking().unwrap();
                        let own = own.sequence_blocking("order", fixed(2)).unwrap();
                        let has_own = own.take_blocking(5).unwrap().iter().eq(1..=5);
                        // Its own child is yet another one.
                        let grandchild =
                            fork.child(|| is_forked(own.try_next()) && is_forked(generators.orders.try_next()));
                        assert_eq!(inherited, [true; 16], "{engine:?}, {fork:?}");
                        is_untouched && has_own && grandchild == 0
                    });
                    assert_eq!(status, 0, "{engine:?}, {fork:?}: 14 is a child that hung");
                    all.push(generators.take_blocking().unwrap());
                    assert_unique(&all);
                }
                generators.ids.close_blocking();
                assert_given_back(&store);
            }
        });
    }

    /// It would believe that it has the locks of its parent, and others would take the log away under it.
    #[test]
    fn no_child_opens_a_sqlite_store_while_its_parent_has_one_open() {
        alone(module_path!(), "no_child_opens_a_sqlite_store_while_its_parent_has_one_open", || {
            let directory = tempfile::tempdir().unwrap();
            let path = |name: &str| directory.path().join(name);
            let open = |runtime: &Runtime, name| runtime.block_on(SqliteStore::connect(SqliteOptions::new(path(name))));
            let grant = |runtime: &Runtime, store: &SqliteStore| {
                runtime.block_on(store.allocate("order", 10, 0)).map(|segment| segment.start)
            };
            let is_refused = |answer: Result<SqliteStore, StoreError>| {
                answer
                    .is_err_and(|error| error.to_string().contains("it was forked from one that has a store in SQLite"))
            };
            let runtime = one_thread();
            // One that is not opened in the end counts for nothing.
            std::fs::write(path("other"), "no database at all, and long enough to have a header of one in it").unwrap();
            assert!(open(&runtime, "other").is_err());
            let mut granted = Vec::new();
            for fork in [Fork::WithHandlers, Fork::WithoutHandlers, Fork::SystemCall] {
                let store = open(&runtime, "ids.sqlite").unwrap();
                granted.push(grant(&runtime, &store).unwrap());
                let status = fork.child(|| {
                    let own = one_thread();
                    let abandons = grant(&own, &store).is_err();
                    own.block_on(store.close());
                    abandons && ["ids.sqlite", "new.sqlite"].into_iter().all(|name| is_refused(open(&own, name)))
                });
                assert_eq!(status, 0, "{fork:?}: 14 is a child that hung");
                assert!(!path("new.sqlite").exists());
                granted.push(grant(&runtime, &store).unwrap());
                runtime.block_on(store.close());
                // With none open a child opens its own.
                let status = fork.child(|| {
                    let own = one_thread();
                    grant(&own, &open(&own, "ids.sqlite").unwrap()).is_ok()
                });
                assert_eq!(status, 0, "{fork:?}: 14 is a child that hung");
            }
            assert_eq!(granted, [1, 11, 31, 41, 61, 71], "of three children each had ten");
        });
    }

    thread_local! {
        static STICKS: Cell<bool> = const { Cell::new(false) };
    }

    /// A clock that stands in the way of some threads. The component's time is read inside its lane's lock.
    #[derive(Default)]
    struct Sticky {
        stuck: AtomicU64,
        is_over: AtomicBool,
    }

    impl Clock for Sticky {
        fn now_ms(&self) -> u64 {
            if STICKS.get() {
                self.stuck.fetch_add(1, Ordering::SeqCst);
                while !self.is_over.load(Ordering::SeqCst) {
                    thread::park_timeout(Duration::from_millis(1));
                }
            }
            SystemClock.now_ms()
        }
    }

    /// The public functions of a type, as the sources have them.
    fn functions(of: &str) -> Vec<String> {
        const SOURCES: [&str; 5] = [
            include_str!("../../../host/runtime/src/ids.rs"),
            include_str!("../../../host/runtime/src/sequence.rs"),
            include_str!("../../../host/runtime/src/snowflake.rs"),
            include_str!("../../../host/runtime/src/formatted.rs"),
            include_str!("../../../host/runtime/src/random_ids.rs"),
        ];
        let mut found = Vec::new();
        for source in SOURCES {
            let mut is_inside = false;
            for line in source.lines() {
                if !line.starts_with([' ', '/']) {
                    is_inside = line == format!("impl {of} {{") || is_inside && line.is_empty();
                }
                let function =
                    ["pub fn ", "pub async fn "].iter().find_map(|start| line.trim_start().strip_prefix(start));
                if let Some(function) = function.filter(|_| is_inside) {
                    let name = function.split(|at: char| !(at.is_alphanumeric() || at == '_')).next().unwrap();
                    found.push(format!("{of}::{name}"));
                }
            }
        }
        found.sort_unstable();
        found
    }

    /// Threads of the parent hold every lock that a call may take, and are not there in the child to give it back.
    /// Whoever adds a function to one of these types adds what it does in a child.
    #[test]
    #[expect(clippy::too_many_lines, reason = "a list of all functions")]
    fn every_function_ends_in_a_child_whatever_the_threads_of_its_parent_held() {
        let (store, clock) = (store(), Arc::new(Sticky::default()));
        let ids = Ids::builder().segments(store.clone()).leases(store).clock(clock.clone()).lanes(1);
        let Generators { ids, orders, tickets, flakes } = plainly(generators(ids.build_blocking().unwrap()));
        tickets.take_blocking(3).unwrap();
        flakes.next_blocking().unwrap();
        let random = RandomIds::new();
        let local = RefCell::new(orders.local().unwrap());
        let daily = || {
            let options =
                FormatOptions { template: "{yyyyMMdd}-{id}", restart: Restart::Day, ..FormatOptions::default() };
            Format::new(&options).unwrap()
        };
        let plain = || Format::new(&FormatOptions { template: "{id}", ..FormatOptions::default() }).unwrap();
        let formatted = ids.formatted_blocking("daily", None, fixed(2), daily()).unwrap();
        let numbers = ids.formatted_blocking("numbers", None, fixed(2), plain()).unwrap();
        let any = SequenceOptions::default;

        type Act<'a> = (&'static str, Box<dyn Fn() -> bool + 'a>);
        let acts: Vec<Act<'_>> = vec![
            ("Ids::builder", Box::new(|| Ids::builder().build_blocking().is_ok())),
            ("Ids::sequence", Box::new(|| is_forked(plainly(ids.sequence("order", any()))))),
            ("Ids::sequence_blocking", Box::new(|| is_forked(ids.sequence_blocking("order", any())))),
            ("Ids::sequence_of", Box::new(|| is_forked(plainly(ids.sequence_of("order", "sub", any()))))),
            ("Ids::sequence_of_blocking", Box::new(|| is_forked(ids.sequence_of_blocking("order", "sub", any())))),
            ("Ids::sequence_if_open", Box::new(|| ids.sequence_if_open("order").is_none())),
            ("Ids::sequences", Box::new(|| ids.sequences().is_empty())),
            ("Ids::sequences_from", Box::new(|| ids.sequences_from(0).is_empty())),
            ("Ids::close_idle", Box::new(|| ids.close_idle(Duration::ZERO) == 0)),
            ("Ids::snowflake", Box::new(|| is_forked(plainly(ids.snowflake("default", twitter()))))),
            ("Ids::snowflake_blocking", Box::new(|| is_forked(ids.snowflake_blocking("default", twitter())))),
            ("Ids::snowflakes", Box::new(|| ids.snowflakes().is_empty())),
            (
                "Ids::renew_leases",
                Box::new(|| {
                    ids.renew_leases();
                    true
                }),
            ),
            ("Ids::formatted", Box::new(|| is_forked(plainly(ids.formatted("daily", None, fixed(2), daily()))))),
            (
                "Ids::formatted_blocking",
                Box::new(|| is_forked(ids.formatted_blocking("daily", None, fixed(2), daily()))),
            ),
            (
                "Ids::formatted_snowflake",
                Box::new(|| is_forked(plainly(ids.formatted_snowflake("default", twitter(), plain())))),
            ),
            (
                "Ids::formatted_snowflake_blocking",
                Box::new(|| is_forked(ids.formatted_snowflake_blocking("default", twitter(), plain()))),
            ),
            (
                "Ids::close",
                Box::new(|| {
                    plainly(ids.close());
                    true
                }),
            ),
            (
                "Ids::close_blocking",
                Box::new(|| {
                    ids.close_blocking();
                    true
                }),
            ),
            ("Sequence::tag", Box::new(|| orders.tag() == "order")),
            ("Sequence::sub", Box::new(|| orders.sub().is_none())),
            ("Sequence::opened_as", Box::new(|| orders.opened_as() == 0)),
            ("Sequence::downgrade", Box::new(|| orders.downgrade().upgrade().is_some())),
            ("Sequence::mode", Box::new(|| tickets.mode() == Mode::Ordered)),
            ("Sequence::id_max", Box::new(|| orders.id_max() == unalike::ID_MAX)),
            ("Sequence::local", Box::new(|| is_forked(orders.local().unwrap().try_next()))),
            ("Sequence::next", Box::new(|| is_forked(plainly(orders.next())) && is_forked(plainly(tickets.next())))),
            ("Sequence::try_next", Box::new(|| is_forked(orders.try_next()) && is_forked(tickets.try_next()))),
            (
                "Sequence::next_blocking",
                Box::new(|| is_forked(orders.next_blocking()) && is_forked(tickets.next_blocking())),
            ),
            ("Sequence::take", Box::new(|| is_forked(plainly(orders.take(9))) && is_forked(plainly(tickets.take(9))))),
            (
                "Sequence::take_blocking",
                Box::new(|| is_forked(orders.take_blocking(9)) && is_forked(tickets.take_blocking(9))),
            ),
            // Of an ordered sequence it takes a lock, which is held for too short a time to meet it here.
            ("Sequence::supply", Box::new(|| [&orders, &tickets].iter().all(|all| all.supply() == Supply::default()))),
            ("Sequence::waits", Box::new(|| orders.waits() < u64::MAX)),
            ("Sequence::status", Box::new(|| is_forked(orders.status()) && is_forked(tickets.status()))),
            ("LocalSequence::tag", Box::new(|| local.borrow().tag() == "order")),
            ("LocalSequence::sub", Box::new(|| local.borrow().sub().is_none())),
            ("LocalSequence::next", Box::new(|| is_forked(plainly(local.borrow_mut().next())))),
            ("LocalSequence::try_next", Box::new(|| is_forked(local.borrow_mut().try_next()))),
            ("LocalSequence::next_blocking", Box::new(|| is_forked(local.borrow_mut().next_blocking()))),
            ("LocalSequence::take", Box::new(|| is_forked(plainly(local.borrow_mut().take(9))))),
            ("LocalSequence::take_blocking", Box::new(|| is_forked(local.borrow_mut().take_blocking(9)))),
            ("Snowflake::namespace", Box::new(|| flakes.namespace() == "default")),
            ("Snowflake::layout", Box::new(|| flakes.layout() == Layout::TWITTER)),
            ("Snowflake::next", Box::new(|| is_forked(plainly(flakes.next())))),
            ("Snowflake::try_next", Box::new(|| is_forked(flakes.try_next()))),
            ("Snowflake::next_blocking", Box::new(|| is_forked(flakes.next_blocking()))),
            ("Snowflake::take", Box::new(|| is_forked(plainly(flakes.take(9))))),
            ("Snowflake::take_blocking", Box::new(|| is_forked(flakes.take_blocking(9)))),
            ("Snowflake::check", Box::new(|| is_forked(flakes.check()))),
            ("Snowflake::status", Box::new(|| is_forked(flakes.status()))),
            ("Snowflake::formatted", Box::new(|| is_forked(flakes.formatted(plain()).unwrap().next_blocking(None)))),
            ("Formatted::name", Box::new(|| formatted.name() == "daily")),
            ("Formatted::format", Box::new(|| formatted.format().restart() == Restart::Day)),
            ("Formatted::next", Box::new(|| is_forked(plainly(formatted.next(None))))),
            ("Formatted::next_blocking", Box::new(|| is_forked(formatted.next_blocking(None)))),
            ("Formatted::next_number", Box::new(|| is_forked(plainly(numbers.next_number(None))))),
            ("Formatted::next_number_blocking", Box::new(|| is_forked(numbers.next_number_blocking(None)))),
            ("Formatted::take_numbers", Box::new(|| is_forked(plainly(numbers.take_numbers(2, None))))),
            ("Formatted::take_numbers_blocking", Box::new(|| is_forked(numbers.take_numbers_blocking(2, None)))),
            ("Formatted::read", Box::new(|| formatted.read("").is_err())),
            ("Formatted::take", Box::new(|| is_forked(plainly(formatted.take(2, None))))),
            ("Formatted::take_blocking", Box::new(|| is_forked(formatted.take_blocking(2, None)))),
            // A child has counters of its own: see the tests of `wide.rs`.
            ("RandomIds::new", Box::new(|| RandomIds::new().ulid().is_ok())),
            ("RandomIds::with_clock", Box::new(|| RandomIds::with_clock(Arc::new(SystemClock)).ulid().is_ok())),
            ("RandomIds::uuid_v4", Box::new(|| random.uuid_v4().is_ok())),
            ("RandomIds::uuid_v7", Box::new(|| random.uuid_v7().is_ok())),
            ("RandomIds::ulid", Box::new(|| random.ulid().is_ok())),
            ("RandomIds::take_uuids_v4", Box::new(|| random.take_uuids_v4(9).is_ok())),
            ("RandomIds::take_uuids_v7", Box::new(|| random.take_uuids_v7(9).is_ok())),
            ("RandomIds::take_ulids", Box::new(|| random.take_ulids(9).is_ok())),
        ];
        for of in ["Ids", "Sequence", "LocalSequence", "Snowflake", "Formatted", "RandomIds"] {
            let mut listed: Vec<_> =
                acts.iter().map(|(name, _)| *name).filter(|name| name.starts_with(&format!("{of}::"))).collect();
            listed.sort_unstable();
            assert_eq!(listed, functions(of), "the left are tried here, the right are there");
            assert!(!listed.is_empty());
        }

        thread::scope(|scope| {
            let at_end = Stop(&clock.is_over);
            // Holds the lane, and the lock under which the sequence brings its runs.
            scope.spawn(|| {
                STICKS.set(true);
                while orders.try_next().is_ok() && !clock.is_over.load(Ordering::SeqCst) {}
            });
            while clock.stuck.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            // Each comes to the lane with the lock of its own: of the runs, of all sequences, of all snowflakes.
            scope.spawn(|| while flakes.try_next().is_ok() && !clock.is_over.load(Ordering::SeqCst) {});
            scope.spawn(|| ids.sequence_blocking("another", fixed(2)));
            scope.spawn(|| ids.snowflake_blocking("another", twitter()));
            for look in [|ids: &Ids| ids.sequences().len(), |ids: &Ids| ids.snowflakes().len()] {
                loop {
                    let (looked, has_looked) = mpsc::channel();
                    let ids = &ids;
                    scope.spawn(move || looked.send(look(ids)));
                    if has_looked.recv_timeout(Duration::from_millis(200)).is_err() {
                        break;
                    }
                }
            }
            for (name, act) in &acts {
                assert_eq!(Fork::WithHandlers.child(act), 0, "{name}: 14 is a child that hung");
            }
            drop(at_end);
        });
        ids.close_blocking();
    }

    /// Sets a flag at the end, also if the test fails.
    struct Stop<'a>(&'a AtomicBool);

    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    /// A child shares the sockets of its parent: what it sent there, and what it closed, would be the parent's.
    #[test]
    fn a_child_can_neither_use_nor_end_what_its_parent_has_open() {
        let runtime = many_threads();
        let directory = tempfile::tempdir().unwrap();
        let redis = Redis::start(Persistence::AofEverySecond).unwrap();
        let mysql = MariaDb::shared().and_then(MariaDb::database).unwrap();
        let zookeeper = Zookeeper::shared().unwrap();
        let stores: Vec<(&str, Arc<dyn SegmentStore>)> = runtime.block_on(async {
            let file = |name| SqliteStore::connect(SqliteOptions::new(directory.path().join(name)));
            let (alone, durable) = (file("alone.db").await.unwrap(), file("durable.db").await.unwrap());
            let redis = RedisOptions::from_url(&redis.url(0, "preheat=false")).unwrap();
            let redis = RedisStore::connect(redis, Backing::Durable(Arc::new(durable))).await.unwrap();
            let mysql = MysqlStore::connect(MysqlOptions::from_url(&mysql).unwrap()).await.unwrap();
            vec![("SQLite", Arc::new(alone) as _), ("Redis", Arc::new(redis) as _), ("MySQL", Arc::new(mysql) as _)]
        });
        let is_refused = |error: Option<StoreError>| {
            error.is_some_and(|error| matches!(&error, StoreError::Refused { what, .. } if what.contains("forked")))
        };
        for (name, store) in stores {
            let ids = runtime.block_on(Ids::builder().segments(store.clone()).build()).unwrap();
            let orders = runtime.block_on(ids.sequence("order", fixed(2))).unwrap();
            let before = runtime.block_on(orders.take(5)).unwrap();
            while orders.status().unwrap().in_flight {
                thread::yield_now();
            }
            let mut open = Some((ids, orders, store));
            let status = Fork::WithHandlers.child(|| {
                let (ids, orders, store) = open.take().unwrap();
                let own = one_thread();
                let errors = own.block_on(async {
                    let errors = [store.allocate("order", 1, 0).await.err(), store.tag("order").await.err()];
                    store.close().await;
                    errors
                });
                let still_open = Arc::downgrade(&store);
                drop((store, orders, ids));
                errors.into_iter().all(is_refused) && still_open.upgrade().is_some()
            });
            assert_eq!(status, 0, "{name}: 14 is a child that hung");
            let (ids, orders, store) = open.unwrap();
            let after = runtime.block_on(orders.take(100)).unwrap();
            assert!(before.iter().last() < after.iter().next(), "{name}");
            runtime.block_on(ids.close());
            runtime.block_on(store.close());
        }
        let leases = runtime.block_on(zookeeper::open(zookeeper.port(), &zookeeper.path()));
        let status = Fork::WithHandlers.child(|| is_refused(one_thread().block_on(leases.namespaces()).err()));
        assert_eq!(status, 0, "ZooKeeper: 14 is a child that hung");
        runtime.block_on(leases.namespaces()).unwrap();
    }
}
