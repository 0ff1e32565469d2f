//! A lane: one instance of the component behind a short lock. No call into it waits for anything.
//!
//! A trap poisons an instance for good. The lane then drops it with everything that it was granted, and the next
//! call builds another; generators are opened again as they are used, above what their predecessors may have handed
//! out. Other lanes never notice.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use unalike_core as core;
use unalike_storage::StoreError;
use wasmtime::Store;
use wasmtime::component::ResourceAny;

use crate::engine::bindings::exports::unalike::ids::{sequences, snowflakes};
use crate::engine::bindings::unalike::ids::types;
use crate::engine::{bindings, instantiate};
use crate::imports::{Imports, Signal, Storage};
use crate::{Clock, Error, ErrorKind};

/// The pause before a rebuild when a trap follows another within this time: a fault that repeats must not burn a worker
/// id or a segment per call.
const REBUILD_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct Lane {
    storage: Arc<Storage>,
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
}

struct Inner {
    instance: Option<Instance>,
    generators: Vec<Opened>,
    /// What a dead instance's tags had been granted.
    floors: HashMap<String, u64>,
    /// No instance is built before this: set when a trap follows a rebuild closely.
    rebuild_at: Option<Instant>,
    last_trap: Option<Instant>,
}

struct Instance {
    store: Store<Imports>,
    core: bindings::Core,
}

struct Opened {
    opening: Opening,
    /// None in an instance that did not need it yet.
    handle: Option<ResourceAny>,
}

/// How a generator is opened, and opened again.
pub(crate) enum Opening {
    Sequence { tag: String, options: core::SequenceOptions },
    Ordered { tag: String },
    Snowflake { namespace: String, options: core::SnowflakeOptions, used_until_ms: Arc<AtomicU64> },
}

impl Opening {
    fn name(&self) -> &str {
        match self {
            Self::Sequence { tag, .. } | Self::Ordered { tag } => tag,
            Self::Snowflake { namespace, .. } => namespace,
        }
    }
}

/// One call's view of its generator: the instance, the handle, and the time, read inside the lane's lock (outside it,
/// scheduling would look like a clock that goes back).
pub(crate) struct Call<'a> {
    pub(crate) store: &'a mut Store<Imports>,
    pub(crate) core: &'a bindings::Core,
    pub(crate) handle: ResourceAny,
    pub(crate) now_ms: u64,
}

impl Lane {
    /// A lane with its first instance.
    pub(crate) fn new(storage: Arc<Storage>, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let instance = Some(Instance::new(&storage, HashMap::new())?);
        let inner =
            Inner { instance, generators: Vec::new(), floors: HashMap::new(), rebuild_at: None, last_trap: None };
        Ok(Self { storage, clock, inner: Mutex::new(inner) })
    }

    /// Adds a generator and answers its number. Opening happens at its first call.
    pub(crate) fn add(&self, opening: Opening) -> usize {
        let mut inner = self.lock();
        inner.generators.push(Opened { opening, handle: None });
        inner.generators.len() - 1
    }

    /// Calls the component for one generator.
    pub(crate) fn call<T>(
        &self,
        generator: usize,
        signal: &Arc<Signal>,
        act: impl FnOnce(Call<'_>) -> wasmtime::Result<T>,
    ) -> Result<T, Error> {
        let mut inner = self.lock();
        let Inner { instance: home, generators, floors, rebuild_at, last_trap } = &mut *inner;
        let Some(opened) = generators.get_mut(generator) else {
            return Err(ErrorKind::Closed { name: format!("generator {generator}") }.into());
        };
        // Taken out for the call: a panic that unwinds through it leaves no half-used instance behind.
        let mut instance = match home.take() {
            Some(instance) => instance,
            None => {
                let left = rebuild_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
                if !left.is_zero() {
                    let reason = format!("it trapped twice, and is built again in {} ms", left.as_millis());
                    return Err(ErrorKind::Rebuilt { name: opened.opening.name().to_owned(), reason }.into());
                }
                Instance::new(&self.storage, std::mem::take(floors))?
            }
        };
        instance.store.data_mut().set_caller(signal);
        let outcome = instance.open(opened).and_then(|handle| match handle {
            Err(error) => Ok(Err(opened.opening.refused(&error))),
            Ok(handle) => {
                let Instance { store, core } = &mut instance;
                act(Call { store, core, handle, now_ms: self.clock.now_ms() }).map(Ok)
            }
        });
        match outcome {
            Ok(result) => {
                *home = Some(instance);
                result
            }
            Err(trap) => {
                let (name, reason) = (opened.opening.name().to_owned(), format!("{trap:#}"));
                tracing::error!(generator = %name, %reason, "the component trapped: its grants are abandoned");
                *floors = std::mem::take(&mut instance.store.data_mut().floors);
                let now = Instant::now();
                *rebuild_at = last_trap.filter(|&at| now - at < REBUILD_PAUSE).map(|_| now + REBUILD_PAUSE);
                *last_trap = Some(now);
                for opened in generators {
                    opened.handle = None;
                }
                Err(ErrorKind::Rebuilt { name, reason }.into())
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic during a call left no instance, which is a state like any other.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Instance {
    fn new(storage: &Arc<Storage>, floors: HashMap<String, u64>) -> Result<Self, Error> {
        let (store, core) = instantiate(Imports::new(Arc::clone(storage), floors))?;
        Ok(Self { store, core })
    }

    /// The generator's handle in this instance.
    fn open(&mut self, opened: &mut Opened) -> wasmtime::Result<Result<ResourceAny, types::Error>> {
        if let Some(handle) = opened.handle {
            return Ok(Ok(handle));
        }
        let floor = self.store.data().floors.get(opened.opening.name()).copied().unwrap_or(0);
        let handle = match &opened.opening {
            Opening::Sequence { tag, options } => {
                let options = sequence_options(options, floor);
                self.core.unalike_ids_sequences().sequence().call_open(&mut self.store, tag, options)?
            }
            Opening::Ordered { tag } => {
                self.core.unalike_ids_sequences().ordered().call_open(&mut self.store, tag, floor)?
            }
            Opening::Snowflake { namespace, options, used_until_ms } => {
                let floor = options.floor_ms.max(used_until_ms.load(Ordering::Relaxed));
                let options = snowflake_options(options, floor);
                self.core.unalike_ids_snowflakes().snowflake().call_open(&mut self.store, namespace, options)?
            }
        };
        opened.handle = handle.as_ref().ok().copied();
        Ok(handle)
    }
}

impl Opening {
    /// Options that the host had not checked: each is checked before a generator is added, so this is a defect.
    fn refused(&self, error: &types::Error) -> Error {
        ErrorKind::Component { reason: format!("it refused to open {:?}: {error:?}", self.name()) }.into()
    }
}

fn sequence_options(options: &core::SequenceOptions, floor: u64) -> sequences::SequenceOptions {
    let adaptive = match options.step {
        core::StepPolicy::Adaptive(adaptive) => adaptive,
        // Equal bounds: whatever the rule says, the step stays.
        core::StepPolicy::Fixed { step } => {
            core::AdaptiveStep { initial: step, min: step, max: step, ..core::AdaptiveStep::default() }
        }
    };
    sequences::SequenceOptions {
        step: adaptive.initial,
        step_min: adaptive.min,
        step_max: adaptive.max,
        grow_below_ms: adaptive.grow_below_ms,
        shrink_above_ms: adaptive.shrink_above_ms,
        refill: match options.refill {
            core::RefillPolicy::ShareConsumed { percent } => sequences::RefillPolicy::ShareConsumed(percent),
            core::RefillPolicy::Remaining { count } => sequences::RefillPolicy::Remaining(count),
        },
        prefetch: options.prefetch,
        floor,
    }
}

fn snowflake_options(options: &core::SnowflakeOptions, floor: u64) -> snowflakes::SnowflakeOptions {
    let fields = options.layout.fields();
    snowflakes::SnowflakeOptions {
        layout: types::Layout {
            timestamp_bits: fields.timestamp_bits,
            datacenter_bits: fields.datacenter_bits,
            worker_bits: fields.worker_bits,
            sequence_bits: fields.sequence_bits,
            order: match fields.order {
                core::FieldOrder::WorkerFirst => types::FieldOrder::WorkerFirst,
                core::FieldOrder::SequenceFirst => types::FieldOrder::SequenceFirst,
            },
            epoch_ms: fields.epoch_ms,
            tick_ms: fields.tick_ms,
        },
        clock: match options.clock {
            core::ClockPolicy::Reject => snowflakes::ClockPolicy::Reject,
            core::ClockPolicy::Wait { max_ms } => snowflakes::ClockPolicy::Wait(max_ms),
            core::ClockPolicy::Keep { max_ms } => snowflakes::ClockPolicy::Keep(max_ms),
        },
        horizon_ms: options.horizon_ms,
        ahead_max_ms: options.ahead_max_ms,
        floor,
    }
}

/// What a call brought: something, or what to wait for.
#[derive(Debug)]
pub(crate) enum Step<T> {
    Ready(T),
    /// An answer of the store is on its way.
    Pending,
    /// Nothing to be had for so many milliseconds.
    Wait(u64),
}

/// The component's answer as a step; `name` and `signal` are the generator's.
pub(crate) fn step<T>(answer: Result<T, types::Error>, name: &str, signal: &Signal) -> Result<Step<T>, Error> {
    let name = || name.to_owned();
    let error = match answer {
        Ok(value) => return Ok(Step::Ready(value)),
        Err(error) => error,
    };
    let kind = match error {
        types::Error::Pending => return Ok(Step::Pending),
        types::Error::Wait(wait_ms) => return Ok(Step::Wait(wait_ms)),
        types::Error::StoreFailed(retry_after_ms) => {
            let source = signal.last_error();
            // What stays so for longer than a caller waits is told at once.
            let lasting = source.as_deref().is_some_and(|source| {
                matches!(source, StoreError::WorkersExhausted { .. } | StoreError::ClockSkew { .. })
            });
            if retry_after_ms > 0 && !lasting {
                return Ok(Step::Wait(retry_after_ms));
            }
            let unsaid =
                || StoreError::Unavailable { what: "the clock is ahead of every lease".to_owned(), source: None };
            ErrorKind::Store { name: name(), source: source.unwrap_or_else(|| Arc::new(unsaid())) }
        }
        types::Error::ClockMovedBack(behind_ms) => ErrorKind::ClockMovedBack { name: name(), behind_ms },
        types::Error::ClockBeforeEpoch(first_ms) => ErrorKind::ClockBeforeEpoch { name: name(), first_ms },
        types::Error::Exhausted => {
            ErrorKind::Exhausted { name: name(), what: "no number, or no timestamp of its layout, is left" }
        }
        types::Error::GrantRefused(fault) => ErrorKind::GrantRefused {
            name: name(),
            source: match fault {
                types::GrantFault::Malformed => core::GrantFault::Malformed,
                types::GrantFault::Overlap => core::GrantFault::Overlap,
                types::GrantFault::Worker => core::GrantFault::Worker,
            },
        },
        types::Error::Closed => ErrorKind::Closed { name: name() },
        types::Error::InvalidArgument(types::Argument::Count) => ErrorKind::CountZero,
        // Another generator's trap took the instance away in which the round was begun.
        types::Error::InvalidArgument(types::Argument::Round) => {
            ErrorKind::Rebuilt { name: name(), reason: "its round was lost".to_owned() }
        }
        types::Error::InvalidArgument(argument) => {
            ErrorKind::Component { reason: format!("it refused an argument that the host had checked: {argument:?}") }
        }
    };
    Err(kind.into())
}

pub(crate) fn run(run: types::Run) -> core::Run {
    core::Run { first: run.first, stride: run.stride, count: run.count }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use unalike_memory::MemoryStore;

    use super::*;
    use crate::{Ids, Layout, SequenceOptions, SnowflakeOptions};

    async fn open(store: &Arc<MemoryStore>) -> Ids {
        Ids::builder().segments(Arc::clone(store)).leases(Arc::clone(store)).lanes(1).build().await.unwrap()
    }

    #[tokio::test]
    async fn a_trap_costs_one_retryable_error_and_a_gap() {
        let store = Arc::new(MemoryStore::default());
        let ids = open(&store).await;
        let orders = ids.sequence("order", SequenceOptions::default()).await.unwrap();
        let flakes = ids.snowflake("default", SnowflakeOptions::new(Layout::TWITTER)).await.unwrap();
        let before = (orders.take(10).await.unwrap().iter().last(), flakes.take(5_000).await.unwrap().iter().last());
        let error = orders.trap().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Rebuilt { .. }) && error.is_retryable(), "{error:?}");
        let after = (orders.next().await.unwrap(), flakes.next().await.unwrap());
        assert_eq!(Some(after.0), Some(1_001).max(before.0), "the first segment was abandoned");
        assert!(Some(after.1) > before.1, "and no tick is entered again");
    }

    #[tokio::test]
    async fn a_fault_that_repeats_is_not_rebuilt_at_once() {
        let store = Arc::new(MemoryStore::default());
        let ids = open(&store).await;
        let orders = ids.sequence("order", SequenceOptions::default()).await.unwrap();
        orders.next().await.unwrap();
        orders.trap().unwrap_err();
        orders.next().await.unwrap();
        orders.trap().unwrap_err();
        let error = orders.next().await.unwrap_err();
        assert!(error.is_retryable() && error.retry_after_ms().is_some_and(|ms| ms > 0), "{error:?}");
    }

    #[tokio::test]
    async fn one_instance_serves_more_than_a_hundred_thousand_tags() {
        let store = Arc::new(MemoryStore::default());
        let ids = open(&store).await;
        for number in 0..=100_000 {
            let sequence = ids.sequence(&format!("tag-{number}"), SequenceOptions::default()).await.unwrap();
            assert_eq!(sequence.next().await.unwrap(), 1, "of tag {number}");
        }
        let first = ids.open_sequence("tag-0").unwrap();
        assert_eq!(first.next().await.unwrap(), 2, "its grant was not abandoned");
    }
}
