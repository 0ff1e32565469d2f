//! The component: compiled once per process, linked to its host, and called through its WIT.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use unalike_core as core;
use wasmtime::component::{Component, Linker, ResourceAny};
use wasmtime::{Engine, ResourceLimiter, Store};

use super::{Answer, Instance, Places, Refusal, SequenceLook, SnowflakeLook, Trap, misdirected};
use crate::component::{self, Core, CorePre, sequences, snowflakes, types};
use crate::context::IdsCtx;
use crate::executor::published;
use crate::lane::Opening;
use crate::{Error, ErrorKind};

/// An instance with 100,000 open tags needs well under this many bytes of memory.
const MEMORY_MAX: usize = 1 << 30;

#[cfg(not(any(feature = "compiler", feature = "precompiled")))]
compile_error!(
    "the component must be compiled: enable the feature `compiler`, or `precompiled`, of the crate `unalike`"
);

/// The linked component. Compiling it takes some 70 ms, so it happens at first use and once; code that was compiled
/// ahead of time is loaded within a millisecond. Not behind a lock, which a thread of a parent might hold for ever.
static LINKED: AtomicPtr<Result<CorePre<Imports>, String>> = AtomicPtr::new(ptr::null_mut());

fn linked() -> Result<&'static CorePre<Imports>, Error> {
    loop {
        if let Some(linked) = published(LINKED.load(Ordering::Acquire)) {
            return linked.as_ref().map_err(|reason| ErrorKind::Component { reason: reason.clone() }.into());
        }
        let fresh = Box::into_raw(Box::new(link().map_err(|error| format!("{error:#}"))));
        if LINKED.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
            #[expect(unsafe_code, reason = "it comes from a box")]
            // SAFETY: another thread was the first, and nobody has seen this one.
            drop(unsafe { Box::from_raw(fresh) });
        }
    }
}

fn link() -> wasmtime::Result<CorePre<Imports>> {
    let engine = Engine::new(&component::engine_config())?;
    let component = load(&engine)?;
    let mut linker = Linker::new(&engine);
    component::add_to_linker(&mut linker, |imports: &mut Imports| imports.ids.view())?;
    CorePre::new(linker.instantiate_pre(&component)?)
}

/// The component as machine code: as it was compiled ahead of time, else compiled now.
#[cfg(feature = "precompiled")]
fn load(engine: &Engine) -> wasmtime::Result<Component> {
    #[expect(unsafe_code, reason = "machine code is trusted, and there is no safe way to say so")]
    // SAFETY: the bytes are wasmtime's own, made of the component by the build script of `unalike-artifact` and part of
    // this program since: whoever can change them can change the program. Another version's or engine's are refused.
    let precompiled = unsafe { Component::deserialize(engine, unalike_artifact::CORE_PRECOMPILED) };
    #[cfg(feature = "compiler")]
    let precompiled = precompiled.or_else(|error| {
        tracing::warn!(error = format!("{error:#}"), "the precompiled component is not usable, so it is compiled now");
        Component::new(engine, unalike_artifact::CORE)
    });
    precompiled
}

/// The component, compiled now.
#[cfg(all(feature = "compiler", not(feature = "precompiled")))]
fn load(engine: &Engine) -> wasmtime::Result<Component> {
    Component::new(engine, unalike_artifact::CORE)
}

/// The data of an instance's store.
struct Imports {
    ids: IdsCtx,
    memory: Memory,
}

impl Imports {
    fn new(ids: IdsCtx) -> Self {
        Self { ids, memory: Memory { bytes: 0 } }
    }

    fn limits(&mut self) -> &mut Memory {
        &mut self.memory
    }
}

/// What an instance takes, and how much that may be.
struct Memory {
    bytes: usize,
}

impl ResourceLimiter for Memory {
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let fits = desired <= MEMORY_MAX;
        if fits {
            self.bytes = desired;
        }
        Ok(fits)
    }

    fn table_growing(&mut self, _: usize, _: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(true)
    }
}

/// A generator's handle.
#[derive(Clone, Copy)]
enum Handle {
    Sequence(ResourceAny),
    Ordered(ResourceAny),
    Snowflake(ResourceAny),
}

/// The component with memory of its own.
pub(super) struct ComponentInstance {
    store: Store<Imports>,
    core: Core,
    handles: Places<Handle>,
}

impl ComponentInstance {
    pub(super) fn boxed(ids: IdsCtx) -> Result<Box<dyn Instance>, Error> {
        let linked = linked()?;
        let mut store = Store::new(linked.engine(), Imports::new(ids));
        store.limiter(|imports| imports.limits());
        // Every open generator is a handle, and one beyond wasmtime's 100,000 would trap. The memory is what limits
        // them.
        store.set_max_component_handles(usize::MAX);
        let core = linked.instantiate(&mut store);
        let core = core.map_err(|error| ErrorKind::Component { reason: format!("{error:#}") })?;
        Ok(Box::new(Self { store, core, handles: Places::new() }))
    }

    fn handle(&mut self, generator: usize) -> Result<Handle, Trap> {
        self.handles.get_mut(generator).copied().ok_or_else(|| misdirected(generator))
    }
}

impl From<wasmtime::Error> for Trap {
    fn from(error: wasmtime::Error) -> Self {
        Self(format!("{error:#}"))
    }
}

impl From<types::Error> for Refusal {
    fn from(error: types::Error) -> Self {
        match error {
            types::Error::Pending => Self::Pending,
            types::Error::Wait(wait_ms) => Self::Wait(wait_ms),
            types::Error::ClockMovedBack(behind_ms) => Self::ClockMovedBack(behind_ms),
            types::Error::ClockBeforeEpoch(first_ms) => Self::ClockBeforeEpoch(first_ms),
            types::Error::Exhausted => Self::Exhausted,
            types::Error::StoreFailed(retry_after_ms) => Self::StoreFailed(retry_after_ms),
            types::Error::GrantRefused(fault) => Self::GrantRefused(match fault {
                types::GrantFault::Malformed => core::GrantFault::Malformed,
                types::GrantFault::Overlap => core::GrantFault::Overlap,
                types::GrantFault::Worker => core::GrantFault::Worker,
            }),
            types::Error::InvalidArgument(types::Argument::Count) => Self::Count,
            types::Error::InvalidArgument(types::Argument::Round) => Self::Round,
            types::Error::InvalidArgument(argument) => Self::Argument(format!("{argument:?}")),
            types::Error::Closed => Self::Closed,
        }
    }
}

fn run(run: types::Run) -> core::Run {
    core::Run { first: run.first, stride: run.stride, count: run.count }
}

impl Instance for ComponentInstance {
    fn ids(&mut self) -> &mut IdsCtx {
        &mut self.store.data_mut().ids
    }

    fn is_open(&self, generator: usize) -> bool {
        self.handles.is_taken(generator)
    }

    fn count_open(&self) -> u64 {
        self.handles.count()
    }

    fn open(&mut self, generator: usize, opening: &Opening, floor: u64) -> Answer<()> {
        let opened = match opening {
            Opening::Sequence { tag, options } => {
                let options = sequences::SequenceOptions { floor, ..options.as_ref().into() };
                let sequence = self.core.unalike_ids_sequences().sequence();
                sequence.call_open(&mut self.store, tag, options)?.map(Handle::Sequence)
            }
            Opening::Ordered { tag, id_max } => {
                let ordered = self.core.unalike_ids_sequences().ordered();
                ordered.call_open(&mut self.store, tag, floor, *id_max)?.map(Handle::Ordered)
            }
            Opening::Snowflake { namespace, options, used_until_ms } => {
                let floor = options.floor_ms.max(used_until_ms.load(Ordering::Relaxed));
                let seed = opening.seed();
                let options = snowflakes::SnowflakeOptions { floor, seed, ..options.as_ref().into() };
                let snowflake = self.core.unalike_ids_snowflakes().snowflake();
                snowflake.call_open(&mut self.store, namespace, options)?.map(Handle::Snowflake)
            }
        };
        Ok(opened.map(|handle| self.handles.put(generator, handle)).map_err(Refusal::from))
    }

    fn reserve(&mut self, generator: usize, now_ms: u64, max: u32) -> Answer<core::Run> {
        let answer = match self.handle(generator)? {
            Handle::Sequence(handle) => {
                self.core.unalike_ids_sequences().sequence().call_reserve(&mut self.store, handle, now_ms, max)?
            }
            Handle::Snowflake(handle) => {
                self.core.unalike_ids_snowflakes().snowflake().call_reserve(&mut self.store, handle, now_ms, max)?
            }
            Handle::Ordered(_) => return Err(misdirected(generator)),
        };
        Ok(answer.map(run).map_err(Refusal::from))
    }

    fn look_at_sequence(&mut self, generator: usize, now_ms: u64) -> Result<SequenceLook, Trap> {
        let Handle::Sequence(handle) = self.handle(generator)? else { return Err(misdirected(generator)) };
        let sequence = self.core.unalike_ids_sequences().sequence();
        let status = sequence.call_status(&mut self.store, handle, now_ms)?;
        Ok(SequenceLook { remaining: status.remaining, step: status.step, in_flight: status.in_flight })
    }

    fn look_at_snowflake(&mut self, generator: usize, now_ms: u64) -> Result<SnowflakeLook, Trap> {
        let Handle::Snowflake(handle) = self.handle(generator)? else { return Err(misdirected(generator)) };
        let snowflake = self.core.unalike_ids_snowflakes().snowflake();
        let status = snowflake.call_status(&mut self.store, handle, now_ms)?;
        Ok(SnowflakeLook {
            worker: status.worker,
            valid_until_ms: status.valid_until,
            used_until_ms: status.used_until,
            in_flight: status.in_flight,
            blocked: status.blocked.map(Refusal::from),
        })
    }

    fn begin(&mut self, generator: usize, now_ms: u64, count: u32) -> Answer<u64> {
        let Handle::Ordered(handle) = self.handle(generator)? else { return Err(misdirected(generator)) };
        let ordered = self.core.unalike_ids_sequences().ordered();
        Ok(ordered.call_begin(&mut self.store, handle, now_ms, count)?.map_err(Refusal::from))
    }

    fn claim(&mut self, generator: usize, now_ms: u64, round: u64) -> Answer<core::Run> {
        let Handle::Ordered(handle) = self.handle(generator)? else { return Err(misdirected(generator)) };
        let ordered = self.core.unalike_ids_sequences().ordered();
        Ok(ordered.call_claim(&mut self.store, handle, now_ms, round)?.map(run).map_err(Refusal::from))
    }

    fn close(&mut self, generator: usize) -> Result<(), Trap> {
        match self.handle(generator)? {
            Handle::Sequence(handle) => {
                self.core.unalike_ids_sequences().sequence().call_close(&mut self.store, handle)?;
            }
            Handle::Snowflake(handle) => {
                self.core.unalike_ids_snowflakes().snowflake().call_close(&mut self.store, handle)?;
            }
            Handle::Ordered(_) => {}
        }
        Ok(())
    }

    fn remove(&mut self, generator: usize) -> Result<(), Trap> {
        if let Some(Handle::Sequence(handle) | Handle::Ordered(handle) | Handle::Snowflake(handle)) =
            self.handles.take(generator)
        {
            handle.resource_drop(&mut self.store)?;
        }
        Ok(())
    }

    #[cfg(test)]
    fn memory(&self) -> usize {
        self.store.data().memory.bytes
    }

    #[cfg(test)]
    fn trap(&mut self, _: usize) -> Result<(), Trap> {
        Err(Trap("a trap".to_owned()))
    }
}
