//! The compiled component in the place of the core: one instance, in a wasmtime store of its own, for each generator.

use std::sync::OnceLock;

use unalike::component::bindings::unalike::ids::{leases, segments};
use unalike::component::{COMPONENT, Core as Exports, CorePre, engine_config, sequences, snowflakes, types};
use unalike_core::{
    ID_MAX, LeaseRelease, Leases as _, ReserveError, Run, Segments as _, SequenceOptions, SnowflakeOptions,
    StoreFailure, TailRelease,
};
use wasmtime::component::{Component, HasSelf, Linker, ResourceAny};
use wasmtime::{Engine, Store};

use super::cores::{Core, Generator, Rounds};
use super::requests::{LeaseRequests, SegmentRequests};

/// What an instance imports: the one kind of request that its generator makes.
#[derive(Default)]
struct Imports {
    segments: Option<SegmentRequests>,
    leases: Option<LeaseRequests>,
}

impl Imports {
    fn segments(&mut self) -> &mut SegmentRequests {
        self.segments.as_mut().unwrap()
    }

    fn leases(&mut self) -> &mut LeaseRequests {
        self.leases.as_mut().unwrap()
    }
}

impl types::Host for Imports {}

impl segments::Host for Imports {
    fn allocate(&mut self, tag: String, count: u64, at_least: u64) -> u64 {
        self.segments().allocate(&tag, count, at_least)
    }

    fn poll(&mut self, ticket: u64) -> Option<Result<segments::Segment, types::StoreError>> {
        Some(self.segments().poll(ticket)?.map(Into::into).map_err(Into::into))
    }

    fn release(&mut self, tag: String, start: u64, version: u64) {
        self.segments().release(&tag, TailRelease { start, version });
    }
}

impl leases::Host for Imports {
    fn acquire(&mut self, namespace: String, layout: types::Layout, now: u64, horizon_ms: u64) -> u64 {
        self.leases().acquire(&namespace, &(&layout).try_into().unwrap(), now, horizon_ms)
    }

    fn extend(
        &mut self,
        namespace: String,
        layout: types::Layout,
        worker: u32,
        grant_id: leases::GrantId,
        now: u64,
        horizon_ms: u64,
    ) -> u64 {
        self.leases().extend(&namespace, &(&layout).try_into().unwrap(), (worker, grant_id.into()), now, horizon_ms)
    }

    fn poll(&mut self, ticket: u64) -> Option<Result<leases::Lease, types::StoreError>> {
        Some(self.leases().poll(ticket)?.map(Into::into).map_err(Into::into))
    }

    fn release(&mut self, namespace: String, worker: u32, grant_id: leases::GrantId, end: u64) {
        self.leases().release(&namespace, LeaseRelease { worker, grant_id: grant_id.into(), end_ms: end });
    }
}

/// What a run of the component means, in the core's words.
fn heard(answer: Result<types::Run, types::Error>) -> Result<Run, ReserveError> {
    answer.map(|run| Run { first: run.first, stride: run.stride, count: run.count }).map_err(|error| match error {
        types::Error::Pending => ReserveError::Pending,
        types::Error::Wait(wait_ms) => ReserveError::Wait { wait_ms },
        types::Error::StoreFailed(retry_after_ms) => {
            ReserveError::Store { cause: StoreFailure::Unavailable, retry_after_ms }
        }
        types::Error::Exhausted => ReserveError::Exhausted,
        types::Error::Closed => ReserveError::Closed,
        // After each of the others a caller of the simulation does the same.
        _ => ReserveError::Round,
    })
}

/// Makes instances.
pub(crate) struct Compiled;

struct Instance {
    store: Store<Imports>,
    exports: Exports,
    resource: ResourceAny,
}

fn compiled() -> &'static (Engine, CorePre<Imports>) {
    static COMPILED: OnceLock<(Engine, CorePre<Imports>)> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let engine = Engine::new(&engine_config()).unwrap();
        let mut linker = Linker::new(&engine);
        Exports::add_to_linker::<_, HasSelf<Imports>>(&mut linker, |imports| imports).unwrap();
        let component = Component::new(&engine, COMPONENT).unwrap();
        let prepared = CorePre::new(linker.instantiate_pre(&component).unwrap()).unwrap();
        (engine, prepared)
    })
}

impl Instance {
    fn new(imports: Imports, open: impl FnOnce(&mut Store<Imports>, &Exports) -> ResourceAny) -> Self {
        let (engine, prepared) = compiled();
        let mut store = Store::new(engine, imports);
        let exports = prepared.instantiate(&mut store).unwrap();
        let resource = open(&mut store, &exports);
        Self { store, exports, resource }
    }
}

impl Core for Compiled {
    fn sequence(&self, tag: &str, options: SequenceOptions, requests: SegmentRequests) -> Box<dyn Generator> {
        let floor = requests.floor();
        let options = sequences::SequenceOptions { floor, ..sequences::SequenceOptions::from(&options) };
        let imports = Imports { segments: Some(requests), ..Imports::default() };
        Box::new(Sequence(Instance::new(imports, |store, exports| {
            exports.unalike_ids_sequences().sequence().call_open(store, tag, options).unwrap().unwrap()
        })))
    }

    fn snowflake(&self, namespace: &str, options: SnowflakeOptions, requests: LeaseRequests) -> Box<dyn Generator> {
        let options = snowflakes::SnowflakeOptions::from(&options);
        let imports = Imports { leases: Some(requests), ..Imports::default() };
        Box::new(Snowflake(Instance::new(imports, |store, exports| {
            exports.unalike_ids_snowflakes().snowflake().call_open(store, namespace, options).unwrap().unwrap()
        })))
    }

    fn ordered(&self, tag: &str, requests: SegmentRequests) -> Box<dyn Rounds> {
        let floor = requests.floor();
        let imports = Imports { segments: Some(requests), ..Imports::default() };
        Box::new(Ordered(Instance::new(imports, |store, exports| {
            exports.unalike_ids_sequences().ordered().call_open(store, tag, floor, ID_MAX).unwrap().unwrap()
        })))
    }
}

struct Sequence(Instance);

impl Generator for Sequence {
    fn reserve(&mut self, now_ms: u64, max: u32) -> Result<Run, ReserveError> {
        let Instance { store, exports, resource } = &mut self.0;
        heard(exports.unalike_ids_sequences().sequence().call_reserve(store, *resource, now_ms, max).unwrap())
    }

    fn close(&mut self) {
        let Instance { store, exports, resource } = &mut self.0;
        exports.unalike_ids_sequences().sequence().call_close(store, *resource).unwrap();
    }
}

struct Snowflake(Instance);

impl Generator for Snowflake {
    fn reserve(&mut self, now_ms: u64, max: u32) -> Result<Run, ReserveError> {
        let Instance { store, exports, resource } = &mut self.0;
        heard(exports.unalike_ids_snowflakes().snowflake().call_reserve(store, *resource, now_ms, max).unwrap())
    }

    fn close(&mut self) {
        let Instance { store, exports, resource } = &mut self.0;
        exports.unalike_ids_snowflakes().snowflake().call_close(store, *resource).unwrap();
    }
}

struct Ordered(Instance);

impl Rounds for Ordered {
    fn begin(&mut self, now_ms: u64, count: u32) -> Result<u64, ReserveError> {
        let Instance { store, exports, resource } = &mut self.0;
        let begun = exports.unalike_ids_sequences().ordered().call_begin(store, *resource, now_ms, count).unwrap();
        begun.map_err(|error| heard(Err(error)).unwrap_err())
    }

    fn claim(&mut self, now_ms: u64, round: u64) -> Result<Run, ReserveError> {
        let Instance { store, exports, resource } = &mut self.0;
        heard(exports.unalike_ids_sequences().ordered().call_claim(store, *resource, now_ms, round).unwrap())
    }
}
