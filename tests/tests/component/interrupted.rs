//! Calls that a host interrupts in their middle: by fuel, by an epoch's deadline, and by dropping a call that yields.
//! Whatever the host does then, no id comes twice.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot do its work fails the test")]

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use wasmtime::component::{Component, HasSelf, Linker, ResourceAny};
use wasmtime::{Config, Engine, Store};

mod bindings {
    wasmtime::component::bindgen!({ path: "../wit", world: "core", exports: { default: async } });
}

use bindings::exports::unalike::ids::sequences::{RefillPolicy, SequenceOptions};
use bindings::unalike::ids::types::{Error, StoreError};
use bindings::unalike::ids::{leases, segments, types};

const NOW: u64 = 1_700_000_000_000;

/// A host that answers at once.
#[derive(Default)]
struct Host {
    next: u64,
    answers: HashMap<u64, segments::Segment>,
}

impl types::Host for Host {}

impl segments::Host for Host {
    fn allocate(&mut self, _: String, count: u64, at_least: u64) -> u64 {
        let start = self.next.max(at_least).max(1);
        self.next = start + count;
        self.answers
            .insert(start, segments::Segment { start, end: self.next, stride: 1, generation: 0, version: start });
        start
    }

    fn poll(&mut self, ticket: u64) -> Option<Result<segments::Segment, StoreError>> {
        Some(self.answers.remove(&ticket).ok_or(StoreError::OutcomeUnknown))
    }

    /// Taken back if it was granted last, as stores do.
    fn release(&mut self, _: String, start: u64, _: u64) {
        self.next = self.next.min(start);
    }
}

impl leases::Host for Host {
    fn acquire(&mut self, _: String, _: types::Layout, _: u64, _: u64) -> u64 {
        0
    }

    fn extend(&mut self, _: String, _: types::Layout, _: u32, _: leases::GrantId, _: u64, _: u64) -> u64 {
        0
    }

    fn poll(&mut self, _: u64) -> Option<Result<leases::Lease, StoreError>> {
        Some(Err(StoreError::Refused))
    }

    fn release(&mut self, _: String, _: u32, _: leases::GrantId, _: u64) {}
}

/// An instance with a sequence.
struct Instance {
    store: Store<Host>,
    core: bindings::Core,
    sequence: ResourceAny,
}

fn engine(configure: impl FnOnce(&mut Config)) -> (Engine, Component) {
    let mut config = Config::new();
    configure(&mut config);
    let engine = Engine::new(&config).unwrap();
    let component = Component::new(&engine, unalike_artifact::CORE).unwrap();
    (engine, component)
}

impl Instance {
    /// With numbers from this one on.
    async fn new((engine, component): &(Engine, Component), next: u64, prepare: fn(&mut Store<Host>)) -> Self {
        let mut linker = Linker::new(engine);
        bindings::Core::add_to_linker::<_, HasSelf<Host>>(&mut linker, |host| host).unwrap();
        let mut store = Store::new(engine, Host { next, ..Host::default() });
        prepare(&mut store);
        let core = bindings::Core::instantiate_async(&mut store, component, &linker).await.unwrap();
        let options = SequenceOptions {
            step: 10,
            step_min: 10,
            step_max: 10,
            grow_below_ms: 0,
            shrink_above_ms: 0,
            refill: RefillPolicy::Remaining(5),
            prefetch: 1,
            floor: 0,
            id_max: (1 << 63) - 1,
        };
        let sequence = core.unalike_ids_sequences().sequence().call_open(&mut store, "order", options).await;
        Self { store, core, sequence: sequence.unwrap().unwrap() }
    }

    async fn reserve(&mut self) -> wasmtime::Result<Vec<u64>> {
        let sequence = self.core.unalike_ids_sequences().sequence();
        match sequence.call_reserve(&mut self.store, self.sequence, NOW, 3).await? {
            Ok(run) => Ok((0..u64::from(run.count)).map(|place| run.first + place * run.stride).collect()),
            Err(Error::Pending) => Ok(Vec::new()),
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Interrupts one call of each instance, later and later, until none is interrupted any more; and goes on with the
/// instance as a host would that knows no better. Answers how often.
async fn interrupt(
    engine: (Engine, Component),
    prepare: fn(&mut Store<Host>),
    mut interrupt: impl AsyncFnMut(&mut Instance, u64) -> Option<wasmtime::Result<Vec<u64>>>,
) -> u64 {
    let (mut seen, mut next, mut interrupted) = (HashSet::new(), 1, 0);
    // The second call takes its numbers from a grant, some later ones ask for another as well.
    for calls in 0..8 {
        for after in 0.. {
            let mut instance = Instance::new(&engine, next, prepare).await;
            let mut ids = Vec::new();
            for _ in 0..calls {
                ids.extend(instance.reserve().await.unwrap());
            }
            let is_over = match interrupt(&mut instance, after).await {
                Some(Ok(more)) => {
                    ids.extend(more);
                    true
                }
                Some(Err(_)) | None => false,
            };
            interrupted += u64::from(!is_over);
            prepare(&mut instance.store);
            for _ in 0..12 {
                // One that was interrupted must not be entered again.
                match instance.reserve().await {
                    Ok(more) => ids.extend(more),
                    Err(_) => assert!(!is_over),
                }
            }
            let sequence = instance.core.unalike_ids_sequences().sequence();
            let _ = sequence.call_close(&mut instance.store, instance.sequence).await;
            next = instance.store.data().next;
            for id in ids {
                assert!(seen.insert(id), "{id} came twice: {calls} calls, interrupted after {after}");
            }
            if is_over {
                break;
            }
        }
    }
    interrupted
}

#[tokio::test]
async fn no_id_comes_twice_of_an_instance_that_ran_out_of_fuel() {
    let plenty = |store: &mut Store<Host>| store.set_fuel(1 << 40).unwrap();
    let interrupted = interrupt(engine(|config| _ = config.consume_fuel(true)), plenty, async |instance, after| {
        instance.store.set_fuel(1 + after * 7).unwrap();
        Some(instance.reserve().await)
    });
    let interrupted = interrupted.await;
    println!("{interrupted} times");
    assert!(interrupted > 100, "{interrupted}");
}

#[tokio::test]
async fn no_id_comes_twice_of_an_instance_whose_call_was_dropped_while_it_yielded() {
    let yielding = |store: &mut Store<Host>| {
        store.set_fuel(1 << 40).unwrap();
        store.fuel_async_yield_interval(Some(7)).unwrap();
    };
    let interrupted = interrupt(engine(|config| _ = config.consume_fuel(true)), yielding, async |instance, after| {
        let mut call = pin!(instance.reserve());
        for _ in 0..=after {
            if let Poll::Ready(answer) = call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return Some(answer);
            }
        }
        None
    });
    let interrupted = interrupted.await;
    println!("{interrupted} times");
    assert!(interrupted > 100, "{interrupted}");
}
