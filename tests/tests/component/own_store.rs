//! The component in a wasmtime `Store` of the host's own, through `unalike::component`: what an application does that
//! runs wasmtime already. Each test has its own engine, linker and store; the library's lanes take no part.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot do its work fails the test")]

use std::sync::Arc;
use std::time::Duration;

use unalike::component::{
    COMPONENT, Core, IdsCtx, IdsCtxBuilder, Signal, add_to_linker, engine_config, sequences, snowflakes, types,
};
use unalike::storage::{SegmentStore, StoreError, StripedStore};
use unalike::{Clock, Layout, SnowflakeOptions, SystemClock};
use unalike_memory::MemoryStore;
use unalike_tests::faulty::FaultyStore;
use wasmtime::component::{Component, Linker, ResourceAny};
use wasmtime::{Engine, Store};

/// The data of a host: the context is one part of it.
struct Host {
    ids: IdsCtx,
    log: Vec<String>,
}

struct Instance {
    store: Store<Host>,
    core: Core,
}

impl Instance {
    fn new(ids: IdsCtx) -> Self {
        Self::on(&Engine::new(&engine_config()).unwrap(), ids)
    }

    fn on(engine: &Engine, ids: IdsCtx) -> Self {
        let mut linker = Linker::<Host>::new(engine);
        add_to_linker(&mut linker, |host| host.ids.view()).unwrap();
        let component = Component::new(engine, COMPONENT).unwrap();
        let mut store = Store::new(engine, Host { ids, log: Vec::new() });
        let core = Core::instantiate(&mut store, &component, &linker).unwrap();
        Self { store, core }
    }

    fn open(&mut self, tag: &str, step: u64) -> ResourceAny {
        let floor = self.store.data().ids.floor(tag);
        let options = sequences::SequenceOptions { step, step_min: step, step_max: step, floor, ..Default::default() };
        self.core.unalike_ids_sequences().sequence().call_open(&mut self.store, tag, options).unwrap().unwrap()
    }

    fn reserve(&mut self, sequence: ResourceAny, max: u32) -> Result<types::Run, types::Error> {
        let now_ms = SystemClock.now_ms();
        self.core.unalike_ids_sequences().sequence().call_reserve(&mut self.store, sequence, now_ms, max).unwrap()
    }

    /// Calls again after each answer, as a host does.
    async fn run(&mut self, signal: &Signal, sequence: ResourceAny, max: u32) -> types::Run {
        loop {
            let answered = signal.answered();
            match self.reserve(sequence, max) {
                Ok(run) => return run,
                Err(types::Error::Pending) => answered.await,
                Err(types::Error::Wait(ms)) => tokio::time::sleep(Duration::from_millis(ms)).await,
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    fn close(&mut self, sequence: ResourceAny) {
        self.core.unalike_ids_sequences().sequence().call_close(&mut self.store, sequence).unwrap();
    }
}

fn context(store: &Arc<FaultyStore>) -> IdsCtx {
    IdsCtxBuilder::new().segments(store.clone()).leases(store.clone()).build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_and_snowflakes_come_from_a_store_of_the_host_s_own() {
    let store = Arc::new(FaultyStore::default());
    // An engine as other guests need it; concurrency support only costs time.
    let mut instance = Instance::on(&Engine::default(), context(&store));
    let signal = instance.store.data().ids.signal();

    let orders = instance.open("order", 100);
    let mut numbers = Vec::new();
    while numbers.len() < 250 {
        let run = instance.run(&signal, orders, 40).await;
        numbers.extend((0..u64::from(run.count)).map(|offset| run.first + offset * run.stride));
    }
    assert!(numbers.iter().copied().eq(1..=u64::try_from(numbers.len()).unwrap()), "one host has no gaps: {numbers:?}");

    let options = snowflakes::SnowflakeOptions::from(&SnowflakeOptions::new(Layout::TWITTER));
    let snowflake = instance.core.unalike_ids_snowflakes().snowflake();
    let flakes = snowflake.call_open(&mut instance.store, "default", options).unwrap().unwrap();
    let stamped = loop {
        let answered = signal.answered();
        match snowflake.call_reserve(&mut instance.store, flakes, SystemClock.now_ms(), 10).unwrap() {
            Ok(run) => break run,
            Err(types::Error::Pending) => answered.await,
            Err(types::Error::Wait(ms)) => tokio::time::sleep(Duration::from_millis(ms)).await,
            Err(error) => panic!("{error:?}"),
        }
    };
    let worker = Layout::TWITTER.unpack(stamped.first).unwrap().worker;
    let leases = unalike::storage::LeaseStore::leases(&*store, "default").await.unwrap();
    assert_eq!(leases.iter().map(|record| record.lease.worker).collect::<Vec<_>>(), [worker]);
    instance.store.data_mut().log.push("the rest of the host's data is its own".to_owned());
}

#[tokio::test]
async fn a_sequence_with_a_floor_begins_there_though_its_store_is_behind() {
    let store = Arc::new(FaultyStore::default());
    let mut instance = Instance::new(context(&store));
    let signal = instance.store.data().ids.signal();
    let options = sequences::SequenceOptions { floor: 5_000, ..sequences::SequenceOptions::default() };
    let sequence = instance.core.unalike_ids_sequences().sequence();
    let orders = sequence.call_open(&mut instance.store, "order", options).unwrap().unwrap();
    assert_eq!(instance.run(&signal, orders, 10).await.first, 5_000);
}

#[tokio::test]
async fn a_graceful_end_gives_the_tail_back_and_waits_for_it() {
    let store = Arc::new(FaultyStore::default());
    let mut instance = Instance::new(context(&store));
    let signal = instance.store.data().ids.signal();
    let orders = instance.open("order", 1_000);
    assert_eq!(instance.run(&signal, orders, 10).await.count, 10);
    // A segment on its way would stand between the tail and the tag's watermark.
    assert!(instance.store.data().ids.settle().await);
    store.set_delay(Duration::from_millis(20));
    instance.close(orders);
    assert_eq!(instance.reserve(orders, 1).unwrap_err(), types::Error::Closed);
    assert!(instance.store.data().ids.settle().await);
    assert_eq!(store.tag("order").await.unwrap().watermark, 10, "what never crossed into a run went back");
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_given_up_and_answered() {
    let store = Arc::new(FaultyStore::default());
    let ctx = IdsCtxBuilder::new().segments(store.clone()).request_timeout(Duration::from_millis(30)).build().unwrap();
    let mut instance = Instance::new(ctx);
    let signal = instance.store.data().ids.signal();
    let orders = instance.open("order", 100);
    store.hold(true);
    let answered = signal.answered();
    assert_eq!(instance.reserve(orders, 1).unwrap_err(), types::Error::Pending);
    // What it may have been granted is burnt.
    answered.await;
    assert!(matches!(instance.reserve(orders, 1), Err(types::Error::StoreFailed(retry_ms)) if retry_ms > 0));
    assert!(matches!(signal.last_error().as_deref(), Some(StoreError::OutcomeUnknown { .. })));
    store.hold(false);
    assert!(instance.store.data().ids.settle().await);
}

#[tokio::test]
async fn an_answer_wakes_those_whose_signal_was_set() {
    let store = Arc::new(FaultyStore::default());
    let mut instance = Instance::new(context(&store));
    let (order, invoice) = (Signal::default(), Signal::default());
    let orders = instance.open("order", 100);
    let invoices = instance.open("invoice", 100);
    store.hold(true);
    let (order_answered, invoice_answered) = (order.answered(), invoice.answered());
    instance.store.data_mut().ids.set_signal(&order);
    assert_eq!(instance.reserve(orders, 1).unwrap_err(), types::Error::Pending);
    store.hold(false);
    order_answered.await;
    assert_eq!(instance.reserve(orders, 1).unwrap().first, 1);
    store.set_down(true);
    instance.store.data_mut().ids.set_signal(&invoice);
    assert_eq!(instance.reserve(invoices, 1).unwrap_err(), types::Error::Pending);
    invoice_answered.await;
    assert!(matches!(instance.reserve(invoices, 1), Err(types::Error::StoreFailed(_))));
    assert!(order.last_error().is_none() && invoice.last_error().is_some(), "each hears of its own requests");
}

#[tokio::test]
async fn a_successor_begins_above_its_predecessor_and_takes_none_of_its_answers() {
    let store = Arc::new(FaultyStore::default());
    let mut first = Instance::new(context(&store));
    let signal = first.store.data().ids.signal();
    let orders = first.open("order", 100);
    assert_eq!(first.run(&signal, orders, 100).await.first, 1);
    assert!(first.store.data().ids.settle().await);
    store.hold(true);
    while first.reserve(orders, 100).is_ok() {}

    // As after a trap: the instance goes while a request is on its way.
    let ctx = first.store.data().ids.successor();
    let floor = ctx.floor("order");
    assert!(floor > 100, "the floor outlives the instance: {floor}");
    drop(first);
    let mut second = Instance::new(ctx);
    let signal = second.store.data().ids.signal();
    let orders = second.open("order", 100);
    assert_eq!(second.reserve(orders, 100).unwrap_err(), types::Error::Pending);
    store.hold(false);
    let run = second.run(&signal, orders, 100).await;
    assert!(run.first >= floor, "{run:?} begins below {floor}");

    // A store that repeats itself is found out, also by a successor. (The call takes in what was fetched ahead.)
    assert!(second.store.data().ids.settle().await);
    second.reserve(orders, 1).unwrap();
    assert!(second.store.data().ids.settle().await);
    let mut third = Instance::new(second.store.data().ids.successor());
    let signal = third.store.data().ids.signal();
    let orders = third.open("order", 100);
    store.rewind_once();
    let answered = signal.answered();
    assert_eq!(third.reserve(orders, 1).unwrap_err(), types::Error::Pending);
    answered.await;
    assert_eq!(third.reserve(orders, 1).unwrap_err(), types::Error::GrantRefused(types::GrantFault::Overlap));
}

/// Two stores that number together, of which the first is far ahead.
#[tokio::test]
async fn a_bounded_successor_has_what_each_stripe_has_left_and_nothing_twice() {
    let stores = [Arc::new(FaultyStore::default()), Arc::new(FaultyStore::default())];
    let members = stores.iter().map(|store| Arc::clone(store) as Arc<dyn SegmentStore>).collect();
    let striped = Arc::new(StripedStore::open(members).await.unwrap());
    striped.open_tag("order").await.unwrap();
    let first = stores[0].inner();
    let stripe = first.stripe().await.unwrap().unwrap();
    first.join(&stripe).unwrap().raise_tag("order", 1_000).await.unwrap();
    let mut instance = Instance::new(IdsCtxBuilder::new().segments(striped).build().unwrap());
    let mut last = 0;
    for _ in 0..2 {
        let signal = instance.store.data().ids.signal();
        let floor = instance.store.data().ids.floor("order");
        let (step, id_max) = (50, 1_000);
        let options = sequences::SequenceOptions {
            step,
            step_min: step,
            step_max: step,
            floor,
            id_max,
            ..sequences::SequenceOptions::default()
        };
        let sequence = instance.core.unalike_ids_sequences().sequence();
        let orders = sequence.call_open(&mut instance.store, "order", options).unwrap().unwrap();
        let run = instance.run(&signal, orders, 50).await;
        assert!(run.first > last && run.first % 2 == 0, "{run:?} after {last}");
        last = run.first + u64::from(run.count - 1) * run.stride;
        assert!(instance.store.data().ids.settle().await);
        instance = Instance::new(instance.store.data().ids.successor());
    }
    // The second store, which is below the common floor, repeats itself: only what the host knows shows it.
    let signal = instance.store.data().ids.signal();
    let orders = instance.open("order", 50);
    stores[1].rewind_once();
    loop {
        let answered = signal.answered();
        match instance.reserve(orders, 50) {
            Ok(run) => assert!(run.first > last, "{run:?} after {last}"),
            Err(types::Error::Pending) => answered.await,
            Err(types::Error::Wait(ms)) => tokio::time::sleep(Duration::from_millis(ms)).await,
            Err(error) => {
                assert!(matches!(error, types::Error::StoreFailed(_)), "{error:?}");
                break;
            }
        }
    }
}

/// A store that answers nonsense once.
#[tokio::test]
async fn a_malformed_grant_leaves_no_floor() {
    let store = Arc::new(FaultyStore::default());
    let mut first = Instance::new(context(&store));
    let signal = first.store.data().ids.signal();
    let orders = first.open("order", 100);
    store.malform_once();
    let answered = signal.answered();
    assert_eq!(first.reserve(orders, 1).unwrap_err(), types::Error::Pending);
    answered.await;
    assert_eq!(first.reserve(orders, 1).unwrap_err(), types::Error::GrantRefused(types::GrantFault::Malformed));
    assert_eq!(first.store.data().ids.floor("order"), 0);
}

#[test]
fn requests_run_on_the_runtime_that_the_builder_was_given_or_on_the_librarys_own() {
    let store = Arc::new(MemoryStore::default());
    let mut instance = Instance::new(IdsCtxBuilder::new().segments(store.clone()).build().unwrap());
    let signal = instance.store.data().ids.signal();
    let orders = instance.open("order", 100);
    // It has no drivers, and runs nothing but this.
    let bare = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(bare.block_on(instance.run(&signal, orders, 5)).first, 1);

    let store = Arc::new(MemoryStore::default());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let ctx = IdsCtxBuilder::new().segments(store).executor(runtime.handle().clone()).build().unwrap();
    let mut instance = Instance::new(ctx);
    let signal = instance.store.data().ids.signal();
    let orders = instance.open("order", 100);
    assert_eq!(runtime.block_on(instance.run(&signal, orders, 5)).first, 1);
}

#[tokio::test]
async fn a_store_that_was_not_given_refuses() {
    let ctx = IdsCtxBuilder::new().segments(Arc::new(MemoryStore::default())).build().unwrap();
    let mut instance = Instance::new(ctx);
    let signal = instance.store.data().ids.signal();
    let options = snowflakes::SnowflakeOptions::from(&SnowflakeOptions::new(Layout::TWITTER));
    let snowflake = instance.core.unalike_ids_snowflakes().snowflake();
    let flakes = snowflake.call_open(&mut instance.store, "default", options).unwrap().unwrap();
    let answered = signal.answered();
    let mut reserve = || snowflake.call_reserve(&mut instance.store, flakes, SystemClock.now_ms(), 1).unwrap();
    assert_eq!(reserve().unwrap_err(), types::Error::Pending);
    answered.await;
    assert_eq!(reserve().unwrap_err(), types::Error::StoreFailed(0), "asking again cannot help");
    assert!(matches!(signal.last_error().as_deref(), Some(StoreError::Refused { what, .. }) if what.contains("lease")));
}
