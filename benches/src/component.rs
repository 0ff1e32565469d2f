//! The component through its WIT alone: no part of the host library, and imports that answer at once.

use std::collections::HashMap;

use anyhow::{Result, anyhow};
use unalike_core::Run;
use wasmtime::component::{Component, HasSelf, Linker, ResourceAny};
use wasmtime::{Engine, Store};

use bindings::exports::unalike::ids::{sequences, snowflakes};
use bindings::unalike::ids::{leases, segments, types};

#[allow(missing_docs, unreachable_pub, clippy::all, clippy::restriction, reason = "generated code")]
mod bindings {
    wasmtime::component::bindgen!({ path: "../wit", world: "core" });
}

/// A store that answers every request at once, from a counter: what is measured is the way in and out.
#[derive(Debug)]
pub struct Host {
    /// The next number that nobody was granted.
    next: u64,
    tickets: u64,
    segments: HashMap<u64, segments::Segment>,
    leases: HashMap<u64, leases::Lease>,
    /// The end of the newest lease.
    leased_until_ms: u64,
}

impl Default for Host {
    fn default() -> Self {
        Self { next: 1, tickets: 0, segments: HashMap::new(), leases: HashMap::new(), leased_until_ms: 0 }
    }
}

impl types::Host for Host {}

impl segments::Host for Host {
    fn allocate(&mut self, _: String, count: u64, at_least: u64) -> u64 {
        let start = self.next.max(at_least);
        self.next = start + count;
        self.tickets += 1;
        let segment = segments::Segment { start, end: self.next, stride: 1, generation: 0, version: self.tickets };
        self.segments.insert(self.tickets, segment);
        self.tickets
    }

    fn poll(&mut self, ticket: u64) -> Option<Result<segments::Segment, types::StoreError>> {
        Some(self.segments.remove(&ticket).ok_or(types::StoreError::OutcomeUnknown))
    }

    fn release(&mut self, _: String, _: u64, _: u64) {}
}

impl leases::Host for Host {
    fn acquire(&mut self, _: String, _: types::Layout, now: u64, horizon_ms: u64) -> u64 {
        self.grant(1, leases::GrantId { high: 0, low: 1 }, now.max(self.leased_until_ms), now + horizon_ms)
    }

    fn extend(
        &mut self,
        _: String,
        _: types::Layout,
        worker: u32,
        grant_id: leases::GrantId,
        now: u64,
        horizon_ms: u64,
    ) -> u64 {
        self.grant(worker, grant_id, now, now + horizon_ms)
    }

    fn poll(&mut self, ticket: u64) -> Option<Result<leases::Lease, types::StoreError>> {
        Some(self.leases.remove(&ticket).ok_or(types::StoreError::OutcomeUnknown))
    }

    fn release(&mut self, _: String, _: u32, _: leases::GrantId, _: u64) {}
}

impl Host {
    fn grant(&mut self, worker: u32, grant_id: leases::GrantId, not_before: u64, valid_until: u64) -> u64 {
        self.tickets += 1;
        self.leased_until_ms = valid_until;
        self.leases.insert(self.tickets, leases::Lease { worker, grant_id, not_before, valid_until });
        self.tickets
    }
}

/// The component compiled and its imports linked, as the host library does it: for synchronous calls only.
pub struct Compiled {
    component: Component,
    linker: Linker<Host>,
}

/// The component's machine code, as this process made it.
pub struct MachineCode(Vec<u8>);

impl MachineCode {
    /// Compiles the component, to be loaded later.
    ///
    /// # Errors
    /// As [`Compiled::new`].
    pub fn new() -> Result<Self> {
        engine()?.precompile_component(unalike_artifact::CORE).map(Self).map_err(trapped)
    }
}

impl Compiled {
    /// Compiles the component.
    ///
    /// # Errors
    /// A platform that wasmtime does not know.
    pub fn new() -> Result<Self> {
        Self::link(Component::new(&engine()?, unalike_artifact::CORE).map_err(trapped)?)
    }

    /// Loads what was compiled before.
    ///
    /// # Errors
    /// As [`Compiled::new`].
    pub fn load(code: &MachineCode) -> Result<Self> {
        #[expect(unsafe_code, reason = "machine code cannot be verified, only trusted")]
        // SAFETY: these bytes are what an engine of the same configuration made in this process, and nobody can have
        // changed them since.
        let component = unsafe { Component::deserialize(&engine()?, &code.0) };
        Self::link(component.map_err(trapped)?)
    }

    fn link(component: Component) -> Result<Self> {
        let mut linker = Linker::new(component.engine());
        bindings::Core::add_to_linker::<_, HasSelf<Host>>(&mut linker, |host| host).map_err(trapped)?;
        Ok(Self { component, linker })
    }

    /// An instance of its own; segments have `step` numbers, and the clock starts at `now_ms`.
    ///
    /// # Errors
    /// A component that does not fit the linker, or refuses to open a generator.
    pub fn instance(&self, step: u64, now_ms: u64) -> Result<Instance> {
        let mut store = Store::new(self.component.engine(), Host::default());
        let core = bindings::Core::instantiate(&mut store, &self.component, &self.linker).map_err(trapped)?;
        let options = sequences::SequenceOptions {
            step,
            step_min: step,
            step_max: step,
            grow_below_ms: 0,
            shrink_above_ms: 0,
            refill: sequences::RefillPolicy::ShareConsumed(10),
            prefetch: 1,
            floor: 0,
            id_max: unalike_core::ID_MAX,
        };
        let sequences = core.unalike_ids_sequences().sequence();
        let sequence = sequences.call_open(&mut store, "bench", options).map_err(trapped)?.map_err(refused)?;
        let snowflakes = core.unalike_ids_snowflakes().snowflake();
        let snowflake =
            snowflakes.call_open(&mut store, "bench", snowflake_options()).map_err(trapped)?.map_err(refused)?;
        Ok(Instance { store, core, sequence, snowflake, now_ms })
    }
}

fn engine() -> Result<Engine> {
    Engine::new(&unalike::component::engine_config()).map_err(trapped)
}

/// An instance with one open sequence and one open snowflake generator (Twitter's layout).
pub struct Instance {
    store: Store<Host>,
    core: bindings::Core,
    sequence: ResourceAny,
    snowflake: ResourceAny,
    now_ms: u64,
}

impl Instance {
    /// A run of a sequence, by one call unless the store had to be asked first.
    ///
    /// # Errors
    /// A trap, or an error that a store without faults never causes.
    #[inline]
    pub fn reserve(&mut self, max: u32) -> Result<Run> {
        loop {
            let sequences = self.core.unalike_ids_sequences().sequence();
            match sequences.call_reserve(&mut self.store, self.sequence, self.now_ms, max).map_err(trapped)? {
                Ok(run) => return Ok(Run { first: run.first, stride: run.stride, count: run.count }),
                Err(types::Error::Pending) => {}
                Err(error) => return Err(refused(error)),
            }
        }
    }

    /// A run of the snowflake generator; the clock moves on when it asks to wait.
    ///
    /// # Errors
    /// As [`Instance::reserve`].
    #[inline]
    pub fn reserve_snowflakes(&mut self, max: u32) -> Result<Run> {
        loop {
            let snowflakes = self.core.unalike_ids_snowflakes().snowflake();
            match snowflakes.call_reserve(&mut self.store, self.snowflake, self.now_ms, max).map_err(trapped)? {
                Ok(run) => return Ok(Run { first: run.first, stride: run.stride, count: run.count }),
                Err(types::Error::Pending) => {}
                Err(types::Error::Wait(wait_ms)) => self.now_ms += wait_ms,
                Err(error) => return Err(refused(error)),
            }
        }
    }

    /// The next millisecond has come.
    pub fn tick(&mut self) {
        self.now_ms += 1;
    }

    /// A call that does next to nothing inside: the way in and out through a resource's method.
    ///
    /// # Errors
    /// A trap.
    #[inline]
    pub fn reserve_none(&mut self) -> Result<()> {
        let sequences = self.core.unalike_ids_sequences().sequence();
        match sequences.call_reserve(&mut self.store, self.sequence, self.now_ms, 0).map_err(trapped)? {
            Err(types::Error::InvalidArgument(_)) => Ok(()),
            other => Err(anyhow!("a count of 0 was answered by {other:?}")),
        }
    }
}

fn refused(error: types::Error) -> anyhow::Error {
    anyhow!("the component answered {error:?}")
}

/// wasmtime's error as anyhow's.
#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn trapped(error: wasmtime::Error) -> anyhow::Error {
    anyhow!("{error:#}")
}

fn twitter() -> types::Layout {
    let fields = unalike_core::Layout::TWITTER.fields();
    types::Layout {
        timestamp_bits: fields.timestamp_bits,
        datacenter_bits: fields.datacenter_bits,
        worker_bits: fields.worker_bits,
        sequence_bits: fields.sequence_bits,
        order: types::FieldOrder::WorkerFirst,
        epoch_ms: fields.epoch_ms,
        tick_ms: fields.tick_ms,
    }
}

fn snowflake_options() -> snowflakes::SnowflakeOptions {
    snowflakes::SnowflakeOptions {
        layout: twitter(),
        clock: snowflakes::ClockPolicy::Keep(2_000),
        horizon_ms: 60_000,
        ahead_max_ms: 10,
        floor: 0,
        spread: snowflakes::Spread::None,
        seed: 0,
    }
}
