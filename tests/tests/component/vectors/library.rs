//! The library's own host of a component, `unalike::component`, over a store that answers when a script says so.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use unalike::component::bindings::unalike::ids::{leases, segments};
use unalike::component::{IdsCtx, IdsCtxBuilder, types};
use unalike::storage::{LeaseAcquire, LeaseExtend, LeaseRecord, LeaseStore};
use unalike::storage::{SegmentStore, StoreError, TagOptions, TagRecord};
use unalike_core::{
    FieldOrder, GrantId, Layout, Lease, LeaseRelease, Leases, RefillPolicy, Segment, Segments, StepPolicy,
    StoreFailure, TailRelease,
};
use unalike_vectors::{Imports, NativeInstance, Outcome, Thrown, World};

/// The requests of all contexts of one script.
pub(super) struct Library {
    /// Nobody drives it but [`Library::drive`], so that each step ends before the next one begins.
    runtime: Runtime,
    store: Arc<Scripted>,
    /// The library's tickets, by those of the script's record.
    tickets: Mutex<HashMap<u64, u64>>,
    tags: Mutex<BTreeSet<String>>,
}

/// A store whose answers the script has.
#[derive(Default)]
struct Scripted {
    /// Requests on their way to the store, in their order, by the tickets of the script's record.
    begun: Mutex<VecDeque<u64>>,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Value>>>,
}

impl Library {
    pub(super) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        Self { runtime, store: Arc::default(), tickets: Mutex::default(), tags: Mutex::default() }
    }

    /// A context that succeeds none.
    pub(super) fn context(&self) -> IdsCtx {
        let builder = IdsCtxBuilder::new().segments(self.store.clone()).leases(self.store.clone());
        let patience = Duration::from_secs(600);
        builder.executor(self.runtime.handle().clone()).request_timeout(patience).build().unwrap()
    }

    /// Lets all requests go as far as they can.
    pub(super) fn drive(&self) {
        self.runtime.block_on(async {
            for _ in 0..16 {
                tokio::task::yield_now().await;
            }
        });
    }

    /// The library's ticket; the number itself where it is none of the record's.
    pub(super) fn ticket(&self, recorded: u64) -> u64 {
        self.tickets.lock().unwrap().get(&recorded).copied().unwrap_or(recorded)
    }

    /// The store answers.
    pub(super) fn answer(&self, recorded: u64, answer: &Value) {
        if let Some(waiting) = self.store.waiting.lock().unwrap().remove(&recorded) {
            // Nobody listens any more if the request was given up.
            let _ = waiting.send(answer.clone());
        }
        self.drive();
    }

    /// The next request that reaches the store is the one that the script has recorded under this ticket.
    fn begun(&self, recorded: u64) {
        self.store.begun.lock().unwrap().push_back(recorded);
    }

    /// Carries a request out that the script has recorded under a ticket: the library's ticket.
    pub(super) fn request(&self, ids: &mut IdsCtx, import: &str, args: &Value, recorded: u64) -> u64 {
        self.begun(recorded);
        let mut view = ids.view();
        let ticket = if import == "segments.allocate" {
            let tag = word(args, "tag");
            self.tags.lock().unwrap().insert(tag.clone());
            segments::Host::allocate(&mut view, tag, long(args, "count"), long(args, "at-least"))
        } else {
            let (namespace, layout) = (word(args, "namespace"), layout(&args["layout"]));
            let (now, horizon_ms) = (long(args, "now"), long(args, "horizon-ms"));
            if import == "leases.acquire" {
                leases::Host::acquire(&mut view, namespace, layout, now, horizon_ms)
            } else {
                let (worker, grant_id) = (short(args, "worker"), grant_id(&args["grant-id"]));
                leases::Host::extend(&mut view, namespace, layout, worker, grant_id, now, horizon_ms)
            }
        };
        self.tickets.lock().unwrap().insert(recorded, ticket);
        ticket
    }

    pub(super) fn release(&self, ids: &mut IdsCtx, import: &str, args: &Value) {
        let mut view = ids.view();
        if import == "segments.release" {
            segments::Host::release(&mut view, word(args, "tag"), long(args, "start"), long(args, "version"));
        } else {
            let (worker, grant_id) = (short(args, "worker"), grant_id(&args["grant-id"]));
            leases::Host::release(&mut view, word(args, "namespace"), worker, grant_id, long(args, "end"));
        }
    }

    pub(super) fn poll(&self, ids: &mut IdsCtx, import: &str, ticket: u64) -> Value {
        let mut view = ids.view();
        if import == "segments.poll" {
            answer(segments::Host::poll(&mut view, ticket), |segment| {
                json!({
                    "start": segment.start.to_string(),
                    "end": segment.end.to_string(),
                    "stride": segment.stride.to_string(),
                    "generation": segment.generation.to_string(),
                    "version": segment.version.to_string(),
                })
            })
        } else {
            answer(leases::Host::poll(&mut view, ticket), |lease| {
                json!({
                    "worker": lease.worker,
                    "grant-id": { "high": lease.grant_id.high.to_string(), "low": lease.grant_id.low.to_string() },
                    "not-before": lease.not_before.to_string(),
                    "valid-until": lease.valid_until.to_string(),
                })
            })
        }
    }

    /// Where successors begin, by their tags.
    pub(super) fn floors(&self, ids: &IdsCtx) -> Value {
        let tags = self.tags.lock().unwrap();
        let floors = tags.iter().map(|tag| (tag, ids.floor(tag))).filter(|(_, floor)| *floor > 0);
        floors.map(|(tag, floor)| (tag.clone(), json!(floor.to_string()))).collect()
    }
}

/// The native core in the library's host: what `Engine::Native` runs.
pub(super) struct NativeLibrary {
    imports: Arc<Mutex<Imports>>,
    library: Library,
    instances: Vec<(NativeInstance, IdsCtx)>,
    /// For the instance that takes the place of one that was given up.
    successor: Option<IdsCtx>,
}

impl World for NativeLibrary {
    fn new(imports: Arc<Mutex<Imports>>) -> Self {
        Self { imports, library: Library::new(), instances: Vec::new(), successor: None }
    }

    fn begin(&mut self) {
        // A forked child has nothing of its parent's.
        let inherited = if self.instances.is_empty() { self.successor.take() } else { None };
        let context = inherited.unwrap_or_else(|| self.library.context());
        self.instances.push((NativeInstance::default(), context));
    }

    fn end(&mut self) {
        let ended = self.instances.pop();
        if self.instances.is_empty() {
            self.successor = ended.map(|(_, ids)| ids.successor());
        }
    }

    fn answered(&mut self, ticket: u64, answer: &Value) {
        self.library.answer(ticket, answer);
    }

    fn poll(&mut self, import: &str, ticket: u64) -> Option<Value> {
        let (_, ids) = self.instances.last_mut().unwrap();
        Some(self.library.poll(ids, import, self.library.ticket(ticket)))
    }

    fn floors(&self) -> Option<Value> {
        let (_, ids) = self.instances.last().unwrap();
        Some(self.library.floors(ids))
    }

    fn call(&mut self, call: &str, on: &str, args: &Value) -> Outcome {
        let Self { imports, library, instances, .. } = self;
        let (instance, ids) = instances.last_mut().unwrap();
        let outcome = instance.call(call, on, args, &mut Recorded { imports, library, ids });
        library.drive();
        outcome
    }

    fn drop_resource(&mut self, on: &str) {
        self.instances.last_mut().unwrap().0.drop_resource(on);
    }
}

/// The library's context as the core's host, of which the script keeps a record.
struct Recorded<'a> {
    imports: &'a Mutex<Imports>,
    library: &'a Library,
    ids: &'a mut IdsCtx,
}

impl Recorded<'_> {
    fn record<T>(&self, record: impl FnOnce(&mut Imports) -> Result<T, Thrown>) -> T {
        let recorded = record(&mut self.imports.lock().unwrap());
        recorded.unwrap_or_else(|thrown| std::panic::resume_unwind(Box::new(thrown)))
    }

    /// A request for a lease: the library's ticket.
    fn lease(
        &mut self,
        import: &'static str,
        mut args: Value,
        layout: &Layout,
        request: impl FnOnce(&mut IdsCtx) -> u64,
    ) -> u64 {
        let fields = layout.fields();
        args["layout"] = json!({
            "timestamp-bits": fields.timestamp_bits,
            "datacenter-bits": fields.datacenter_bits,
            "worker-bits": fields.worker_bits,
            "sequence-bits": fields.sequence_bits,
            "order": match fields.order {
                FieldOrder::WorkerFirst => "worker-first",
                FieldOrder::SequenceFirst => "sequence-first",
            },
            "epoch-ms": fields.epoch_ms.to_string(),
            "tick-ms": fields.tick_ms,
        });
        let recorded = self.record(|imports| imports.request(import, args));
        self.library.begun(recorded);
        let ticket = request(self.ids);
        self.library.tickets.lock().unwrap().insert(recorded, ticket);
        ticket
    }
}

impl Segments for Recorded<'_> {
    fn allocate(&mut self, tag: &str, count: u64, at_least: u64) -> u64 {
        let args = json!({ "tag": tag, "count": count.to_string(), "at-least": at_least.to_string() });
        let recorded = self.record(|imports| imports.request("segments.allocate", args));
        self.library.begun(recorded);
        self.library.tags.lock().unwrap().insert(tag.to_owned());
        let ticket = Segments::allocate(self.ids, tag, count, at_least);
        self.library.tickets.lock().unwrap().insert(recorded, ticket);
        ticket
    }

    fn poll(&mut self, ticket: u64) -> Option<Result<Segment, StoreFailure>> {
        self.record(|imports| imports.throw("segments.poll"));
        Segments::poll(self.ids, ticket)
    }

    fn release(&mut self, tag: &str, tail: TailRelease) {
        let args = json!({ "tag": tag, "start": tail.start.to_string(), "version": tail.version.to_string() });
        self.record(|imports| imports.release("segments.release", args));
        Segments::release(self.ids, tag, tail);
    }
}

impl Leases for Recorded<'_> {
    fn acquire(&mut self, namespace: &str, layout: &Layout, now_ms: u64, horizon_ms: u64) -> u64 {
        let args = json!({ "namespace": namespace, "now": now_ms.to_string(), "horizon-ms": horizon_ms.to_string() });
        self.lease("leases.acquire", args, layout, |ids| Leases::acquire(ids, namespace, layout, now_ms, horizon_ms))
    }

    fn extend(&mut self, namespace: &str, layout: &Layout, held: (u32, GrantId), now_ms: u64, horizon_ms: u64) -> u64 {
        let args = json!({
            "namespace": namespace,
            "worker": held.0,
            "grant-id": written(held.1),
            "now": now_ms.to_string(),
            "horizon-ms": horizon_ms.to_string(),
        });
        self.lease("leases.extend", args, layout, |ids| {
            Leases::extend(ids, namespace, layout, held, now_ms, horizon_ms)
        })
    }

    fn poll(&mut self, ticket: u64) -> Option<Result<Lease, StoreFailure>> {
        self.record(|imports| imports.throw("leases.poll"));
        Leases::poll(self.ids, ticket)
    }

    fn release(&mut self, namespace: &str, release: LeaseRelease) {
        let args = json!({
            "namespace": namespace,
            "worker": release.worker,
            "grant-id": written(release.grant_id),
            "end": release.end_ms.to_string(),
        });
        self.record(|imports| imports.release("leases.release", args));
        Leases::release(self.ids, namespace, release);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the two halves of 128 bits")]
fn written(GrantId(id): GrantId) -> Value {
    json!({ "high": ((id >> 64) as u64).to_string(), "low": (id as u64).to_string() })
}

fn answer<T>(polled: Option<Result<T, types::StoreError>>, granted: impl FnOnce(T) -> Value) -> Value {
    use types::StoreError as E;
    match polled {
        None => Value::Null,
        Some(Ok(value)) => json!({ "ok": granted(value) }),
        Some(Err(error)) => json!({ "err": match error {
            E::Unavailable => "unavailable",
            E::OutcomeUnknown => "outcome-unknown",
            E::TagUnknown => "tag-unknown",
            E::Exhausted => "exhausted",
            E::WorkersExhausted => "workers-exhausted",
            E::LeaseLost => "lease-lost",
            E::ClockSkew => "clock-skew",
            E::Refused => "refused",
        } }),
    }
}

impl Scripted {
    /// The answer to the request that came here first of those without one.
    async fn answer(&self) -> Result<Value, StoreError> {
        let (sender, answer) = oneshot::channel();
        let recorded = self.begun.lock().unwrap().pop_front().unwrap();
        self.waiting.lock().unwrap().insert(recorded, sender);
        let mut answer = answer.await.map_err(|_| StoreError::outcome_unknown("the script has ended"))?;
        match answer["err"].as_str() {
            None => Ok(answer["ok"].take()),
            Some(error) => Err(failure(error)),
        }
    }
}

/// What a store says that fails so.
fn failure(error: &str) -> StoreError {
    let namespace = "default".to_owned();
    match error {
        "unavailable" => StoreError::unavailable("as the script says"),
        "outcome-unknown" => StoreError::outcome_unknown("as the script says"),
        "tag-unknown" => StoreError::tag_unknown("order"),
        "exhausted" => StoreError::exhausted("order"),
        "workers-exhausted" => StoreError::WorkersExhausted { namespace, workers: 1_024, free_at_ms: 0 },
        "lease-lost" => StoreError::LeaseLost { namespace, worker: 33 },
        "clock-skew" => StoreError::ClockSkew { holder_ms: 1, store_ms: 0, max_skew_ms: 0 },
        "refused" => unsaid(),
        _ => panic!("{error} is no store-error"),
    }
}

fn unsaid() -> StoreError {
    StoreError::refused("the script says nothing of it")
}

#[async_trait]
impl SegmentStore for Scripted {
    async fn allocate(&self, _: &str, _: u64, _: u64) -> Result<Segment, StoreError> {
        let granted = self.answer().await?;
        Ok(Segment {
            start: long(&granted, "start"),
            end: long(&granted, "end"),
            stride: long(&granted, "stride"),
            generation: long(&granted, "generation"),
            version: long(&granted, "version"),
        })
    }

    async fn release(&self, _: &str, _: TailRelease) -> Result<bool, StoreError> {
        Ok(true)
    }

    async fn open_tag(&self, _: &str) -> Result<TagRecord, StoreError> {
        Err(unsaid())
    }

    async fn tag(&self, _: &str) -> Result<TagRecord, StoreError> {
        Err(unsaid())
    }

    async fn create_tag(&self, _: &str, _: &TagOptions) -> Result<TagRecord, StoreError> {
        Err(unsaid())
    }

    async fn change_tag(&self, _: &str, _: StepPolicy, _: RefillPolicy) -> Result<TagRecord, StoreError> {
        Err(unsaid())
    }

    async fn raise_tag(&self, _: &str, _: u64) -> Result<TagRecord, StoreError> {
        Err(unsaid())
    }

    async fn tags(&self, _: Option<&str>, _: u32) -> Result<Vec<TagRecord>, StoreError> {
        Err(unsaid())
    }

    async fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl LeaseStore for Scripted {
    async fn acquire(&self, _: &LeaseAcquire) -> Result<Lease, StoreError> {
        let granted = self.answer().await?;
        let leases::GrantId { high, low } = grant_id(&granted["grant-id"]);
        Ok(Lease {
            worker: short(&granted, "worker"),
            grant_id: GrantId(u128::from(high) << 64 | u128::from(low)),
            not_before_ms: long(&granted, "not-before"),
            valid_until_ms: long(&granted, "valid-until"),
        })
    }

    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        let LeaseExtend { namespace, layout, now_ms, horizon_ms, .. } = extend.clone();
        let acquire =
            LeaseAcquire { namespace, layout, holder: String::new(), preferred_worker: None, now_ms, horizon_ms };
        self.acquire(&acquire).await
    }

    async fn release(&self, _: &str, _: u32, _: GrantId, _: u64) -> Result<bool, StoreError> {
        Ok(true)
    }

    async fn forbid_extension(&self, _: &str, _: u32) -> Result<Option<LeaseRecord>, StoreError> {
        Err(unsaid())
    }

    async fn leases(&self, _: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        Err(unsaid())
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        Err(unsaid())
    }
}

fn word(record: &Value, field: &str) -> String {
    record[field].as_str().unwrap().to_owned()
}

fn long(record: &Value, field: &str) -> u64 {
    record[field].as_str().unwrap().parse().unwrap()
}

fn short<T: TryFrom<u64>>(record: &Value, field: &str) -> T {
    record[field].as_u64().and_then(|number| T::try_from(number).ok()).unwrap()
}

fn grant_id(value: &Value) -> leases::GrantId {
    leases::GrantId { high: long(value, "high"), low: long(value, "low") }
}

fn layout(value: &Value) -> types::Layout {
    types::Layout {
        timestamp_bits: short(value, "timestamp-bits"),
        datacenter_bits: short(value, "datacenter-bits"),
        worker_bits: short(value, "worker-bits"),
        sequence_bits: short(value, "sequence-bits"),
        order: match value["order"].as_str() {
            Some("sequence-first") => types::FieldOrder::SequenceFirst,
            _ => types::FieldOrder::WorkerFirst,
        },
        epoch_ms: long(value, "epoch-ms"),
        tick_ms: short(value, "tick-ms"),
    }
}
