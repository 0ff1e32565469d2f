//! The native core in the component's clothes: its functions by their WIT names, and its imports by theirs.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use unalike_core as core;

use crate::json::{
    case, error, failure, grant_id, int, invalid, layout, layout_value, lease, long, options_error, result, run,
    segment, short, text,
};
use crate::{Imports, Outcome, Thrown, World};

enum Resource {
    Sequence(Box<core::SequenceGenerator>),
    Ordered(Box<core::OrderedGenerator>),
    Snowflake(Box<core::SnowflakeGenerator>),
    Format(Box<core::Format>),
}

/// The core without WebAssembly.
pub struct Native {
    imports: Arc<Mutex<Imports>>,
    instances: Vec<NativeInstance>,
}

impl World for Native {
    fn new(imports: Arc<Mutex<Imports>>) -> Self {
        Self { imports, instances: Vec::new() }
    }

    fn begin(&mut self) {
        self.instances.push(NativeInstance::default());
    }

    fn end(&mut self) {
        self.instances.pop();
    }

    fn call(&mut self, call: &str, on: &str, args: &Value) -> Outcome {
        self.instances.last_mut().unwrap().call(call, on, args, &mut Host(&self.imports))
    }

    fn drop_resource(&mut self, on: &str) {
        self.instances.last_mut().unwrap().drop_resource(on);
    }
}

/// What is open of the core, without its host.
#[derive(Default)]
pub struct NativeInstance(BTreeMap<String, Resource>);

impl NativeInstance {
    /// Calls a function by its WIT name. `host` carries its requests, and panics where an import throws: that is how
    /// the native core traps.
    pub fn call(
        &mut self,
        call: &str,
        on: &str,
        args: &Value,
        host: &mut (impl core::Segments + core::Leases),
    ) -> Outcome {
        let (kind, function) = call.split_once('.').unwrap_or((call, ""));
        if kind == "codec" {
            return Outcome::Returned(Some(codec(function, args)));
        }
        let Self(resources) = self;
        if function == "open" {
            let opened = open(kind, args);
            assert!(!resources.contains_key(on), "{on} is open already");
            let opened = opened.map(|resource| resources.insert(on.to_owned(), resource));
            return Outcome::Returned(Some(result(opened, |_| Value::Null, |error| error)));
        }
        let Some(resource) = resources.get_mut(on) else { panic!("{on} is not open") };
        let returned = catch_unwind(AssertUnwindSafe(|| match (kind, resource) {
            ("sequence", Resource::Sequence(sequence)) => self::sequence(function, args, sequence, host),
            ("ordered", Resource::Ordered(ordered)) => Some(self::ordered(function, args, ordered, host)),
            ("snowflake", Resource::Snowflake(snowflake)) => self::snowflake(function, args, snowflake, host),
            ("format", Resource::Format(format)) => Some(self::format(function, args, format)),
            _ => panic!("{on} is no {kind}"),
        }));
        match returned {
            Ok(returned) => Outcome::Returned(returned),
            Err(thrown) if thrown.is::<Thrown>() => Outcome::Trapped,
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Drops a resource without closing it.
    pub fn drop_resource(&mut self, on: &str) {
        assert!(self.0.remove(on).is_some(), "{on} is not open");
    }
}

fn open(kind: &str, args: &Value) -> Result<Resource, Value> {
    let name = |field| {
        let name = text(args, field);
        if core::is_tag(name) { Ok(name.to_owned()) } else { Err(invalid("name")) }
    };
    match kind {
        "sequence" => {
            let (tag, options) = (name("tag")?, &args["options"]);
            let core_options = core::SequenceOptions {
                step: core::StepPolicy::Adaptive(core::AdaptiveStep {
                    initial: long(options, "step"),
                    min: long(options, "step-min"),
                    max: long(options, "step-max"),
                    grow_below_ms: long(options, "grow-below-ms"),
                    shrink_above_ms: long(options, "shrink-above-ms"),
                }),
                refill: match case(&options["refill"]) {
                    ("share-consumed", _) => {
                        core::RefillPolicy::ShareConsumed { percent: short(&options["refill"], "share-consumed") }
                    }
                    ("remaining", _) => core::RefillPolicy::Remaining { count: long(&options["refill"], "remaining") },
                    (other, _) => panic!("{other} is no refill-policy"),
                },
                prefetch: short(options, "prefetch"),
                id_max: long(options, "id-max"),
            };
            let sequence = core::SequenceGenerator::open(tag, core_options, long(options, "floor"));
            sequence.map(|sequence| Resource::Sequence(Box::new(sequence))).map_err(options_error)
        }
        "ordered" => {
            let tag = name("tag")?;
            let options = core::OrderedOptions { floor: long(args, "floor"), id_max: long(args, "id-max") };
            let ordered = core::OrderedGenerator::open(tag, options);
            ordered.map(|ordered| Resource::Ordered(Box::new(ordered))).map_err(options_error)
        }
        "snowflake" => {
            let (namespace, options) = (name("namespace")?, &args["options"]);
            let core_options = core::SnowflakeOptions {
                layout: layout(&options["layout"])?,
                clock: match case(&options["clock"]) {
                    ("reject", _) => core::ClockPolicy::Reject,
                    ("wait", _) => core::ClockPolicy::Wait { max_ms: long(&options["clock"], "wait") },
                    ("keep", _) => core::ClockPolicy::Keep { max_ms: long(&options["clock"], "keep") },
                    (other, _) => panic!("{other} is no clock-policy"),
                },
                horizon_ms: long(options, "horizon-ms"),
                ahead_max_ms: long(options, "ahead-max-ms"),
                floor_ms: long(options, "floor"),
                spread: match case(&options["spread"]) {
                    ("none", _) => core::Spread::None,
                    ("rotating", _) => core::Spread::Rotating { bits: short(&options["spread"], "rotating") },
                    ("random", _) => core::Spread::Random { bits: short(&options["spread"], "random") },
                    (other, _) => panic!("{other} is no spread"),
                },
                seed: long(options, "seed"),
            };
            let snowflake = core::SnowflakeGenerator::open(namespace, core_options);
            snowflake.map(|snowflake| Resource::Snowflake(Box::new(snowflake))).map_err(options_error)
        }
        "format" => {
            let options = &args["options"];
            let secret = |key| u128::from(long(key, "high")) << 64 | u128::from(long(key, "low"));
            let keys = options["keys"].as_array().unwrap();
            let keys: Vec<_> =
                keys.iter().map(|key| core::FormatKey { id: short(key, "id"), secret: secret(key) }).collect();
            let format = core::Format::new(&core::FormatOptions {
                template: text(options, "template"),
                utc_offset_minutes: short(options, "utc-offset-minutes"),
                restart: match text(options, "restart") {
                    "never" => core::Restart::Never,
                    "year" => core::Restart::Year,
                    "month" => core::Restart::Month,
                    "day" => core::Restart::Day,
                    other => panic!("{other} is no restart"),
                },
                bits: short(options, "bits"),
                gene_bits: short(options, "gene-bits"),
                key_id_bits: short(options, "key-id-bits"),
                keys: &keys,
                context: text(options, "context"),
            });
            format.map(|format| Resource::Format(Box::new(format))).map_err(format_error)
        }
        _ => panic!("{kind} is no resource"),
    }
}

/// The script's own host.
struct Host<'a>(&'a Mutex<Imports>);

impl Host<'_> {
    fn ask<T>(&self, ask: impl FnOnce(&mut Imports) -> Result<T, Thrown>) -> T {
        let asked = ask(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
        // Quietly: no message of a panic that is expected.
        asked.unwrap_or_else(|thrown| resume_unwind(Box::new(thrown)))
    }

    fn poll<T>(
        &self,
        import: &'static str,
        ticket: u64,
        granted: impl FnOnce(&Value) -> T,
    ) -> Option<Result<T, core::StoreFailure>> {
        let answer = self.ask(|imports| imports.poll(import, ticket));
        match answer.get("ok") {
            _ if answer.is_null() => None,
            Some(ok) => Some(Ok(granted(ok))),
            None => Some(Err(failure(&answer["err"]))),
        }
    }
}

impl core::Segments for Host<'_> {
    fn allocate(&mut self, tag: &str, count: u64, at_least: u64) -> u64 {
        let args = json!({ "tag": tag, "count": int(count), "at-least": int(at_least) });
        self.ask(|imports| imports.request("segments.allocate", args))
    }

    fn poll(&mut self, ticket: u64) -> Option<Result<core::Segment, core::StoreFailure>> {
        Host::poll(self, "segments.poll", ticket, segment)
    }

    fn release(&mut self, tag: &str, tail: core::TailRelease) {
        let args = json!({ "tag": tag, "start": int(tail.start), "version": int(tail.version) });
        self.ask(|imports| imports.release("segments.release", args));
    }
}

impl core::Leases for Host<'_> {
    fn acquire(&mut self, namespace: &str, layout: &core::Layout, now_ms: u64, horizon_ms: u64) -> u64 {
        let args = lease_args(namespace, layout, now_ms, horizon_ms);
        self.ask(|imports| imports.request("leases.acquire", args))
    }

    fn extend(
        &mut self,
        namespace: &str,
        layout: &core::Layout,
        (worker, held): (u32, core::GrantId),
        now_ms: u64,
        horizon_ms: u64,
    ) -> u64 {
        let mut args = lease_args(namespace, layout, now_ms, horizon_ms);
        args["worker"] = json!(worker);
        args["grant-id"] = grant_id(held);
        self.ask(|imports| imports.request("leases.extend", args))
    }

    fn poll(&mut self, ticket: u64) -> Option<Result<core::Lease, core::StoreFailure>> {
        Host::poll(self, "leases.poll", ticket, lease)
    }

    fn release(&mut self, namespace: &str, release: core::LeaseRelease) {
        let (worker, grant_id, end) = (release.worker, grant_id(release.grant_id), int(release.end_ms));
        let args = json!({ "namespace": namespace, "worker": worker, "grant-id": grant_id, "end": end });
        self.ask(|imports| imports.release("leases.release", args));
    }
}

fn lease_args(namespace: &str, layout: &core::Layout, now_ms: u64, horizon_ms: u64) -> Value {
    let layout = layout_value(layout);
    json!({ "namespace": namespace, "layout": layout, "now": int(now_ms), "horizon-ms": int(horizon_ms) })
}

fn sequence(
    function: &str,
    args: &Value,
    sequence: &mut core::SequenceGenerator,
    host: &mut impl core::Segments,
) -> Option<Value> {
    match function {
        "reserve" => Some(result(sequence.reserve(host, long(args, "now"), short(args, "max")), run, error)),
        "status" => {
            let now_ms = long(args, "now");
            let buffer = sequence.status(host, now_ms);
            Some(json!({
                "wake": int(buffer.wake_ms(now_ms)),
                "remaining": int(buffer.remaining()),
                "step": int(buffer.step()),
                "in-flight": buffer.is_in_flight(),
            }))
        }
        "close" => {
            sequence.close(host);
            None
        }
        _ => panic!("a sequence has no {function}"),
    }
}

fn ordered(
    function: &str,
    args: &Value,
    ordered: &mut core::OrderedGenerator,
    host: &mut impl core::Segments,
) -> Value {
    let now_ms = long(args, "now");
    match function {
        "begin" => result(ordered.begin(host, now_ms, short(args, "count")), int, error),
        "claim" => result(ordered.claim(host, now_ms, long(args, "round")), run, error),
        _ => panic!("an ordered sequence has no {function}"),
    }
}

fn snowflake(
    function: &str,
    args: &Value,
    snowflake: &mut core::SnowflakeGenerator,
    host: &mut impl core::Leases,
) -> Option<Value> {
    match function {
        "reserve" => Some(result(snowflake.reserve(host, long(args, "now"), short(args, "max")), run, error)),
        "status" => {
            let now_ms = long(args, "now");
            let state = snowflake.status(host, now_ms);
            let held = state.lease();
            Some(json!({
                "wake": int(state.wake_ms(now_ms)),
                "worker": held.map(|lease| lease.worker),
                "valid-until": int(held.map_or(0, |lease| lease.valid_until_ms)),
                "used-until": int(state.used_until_ms()),
                "in-flight": state.is_in_flight(),
                "blocked": state.blocked(now_ms).map(error),
            }))
        }
        "close" => {
            snowflake.close(host);
            None
        }
        _ => panic!("a snowflake has no {function}"),
    }
}

fn codec(function: &str, args: &Value) -> Value {
    match function {
        "unpack" | "pack" | "id-range" => match layout(&args["layout"]) {
            Err(refused) => json!({ "err": refused }),
            Ok(layout) if function == "unpack" => result(
                layout.unpack(long(args, "id")),
                |parts| json!({ "ticks": int(parts.ticks), "worker": parts.worker, "sequence": parts.sequence }),
                |_| invalid("id"),
            ),
            Ok(layout) if function == "pack" => {
                let parts = &args["parts"];
                let parts = core::Parts {
                    ticks: long(parts, "ticks"),
                    worker: short(parts, "worker"),
                    sequence: short(parts, "sequence"),
                };
                result(layout.pack(parts), int, |_| invalid("id"))
            }
            Ok(layout) => result(
                layout.id_range(long(args, "from"), long(args, "until")),
                |ids| json!([int(*ids.start()), int(*ids.end())]),
                |_| invalid("span"),
            ),
        },
        "encode" => {
            result(core::encode(long(args, "id"), notation(args)), |text| json!(text.as_str()), |_| invalid("id"))
        }
        "decode" => result(core::decode(text(args, "input"), notation(args)), int, |error| match error {
            core::TextError::Length { len } => json!({ "length": len }),
            core::TextError::Character { at } => json!({ "character": at }),
            core::TextError::LeadingZero => json!("leading-zero"),
            core::TextError::OutOfRange => json!("out-of-range"),
        }),
        _ => panic!("the codec has no {function}"),
    }
}

fn notation(args: &Value) -> core::Text {
    match text(args, "text") {
        "decimal" => core::Text::Decimal,
        "padded" => core::Text::Padded,
        "base36" => core::Text::Base36,
        "base62" => core::Text::Base62,
        "base32" => core::Text::Base32,
        "uuid" => core::Text::Uuid,
        other => panic!("{other} is no text"),
    }
}

fn format(function: &str, args: &Value, format: &core::Format) -> Value {
    let shard_key = || if args["shard-key"].is_null() { None } else { Some(long(args, "shard-key")) };
    match function {
        "id-max" => int(format.id_max()),
        "period" => result(format.period(long(args, "issued")), |period| json!(period), write_error),
        "number" => result(format.number(long(args, "id"), long(args, "issued"), shard_key()), int, write_error),
        "write" => {
            result(format.write(long(args, "id"), long(args, "issued"), shard_key()), Value::String, write_error)
        }
        "original" => result(format.original(long(args, "number")), issued, read_error),
        "read" => result(format.read(text(args, "text")), issued, read_error),
        "shape" => int(format.shape().number()),
        "key-checks" => {
            let bits = format.permuted_bits();
            format.key_checks().map(|(id, check)| json!({ "id": id, "bits": bits, "check": int(check) })).collect()
        }
        _ => panic!("a format has no {function}"),
    }
}

fn issued(issued: core::Issued) -> Value {
    json!({
        "id": int(issued.id),
        "number": int(issued.number),
        "gene": issued.gene.map(int),
        "key-id": issued.key_id,
        "span": issued.issued_ms.map(|span| [int(span.start), int(span.end)]),
    })
}

fn format_error(error: core::FormatError) -> Value {
    use core::{FormatError as E, TemplateFault as F};
    match error {
        E::Template { at, fault } => json!({ "template": [at, match fault {
            F::Brace => "brace",
            F::Placeholder => "placeholder",
            F::Character => "character",
            F::Twice => "twice",
            F::IdMissing => "id-missing",
            F::TooLong => "too-long",
        }] }),
        E::Restart => json!("restart"),
        E::Bits => json!("bits"),
        E::Key { id } => json!({ "key": id }),
        E::Digits { width } => json!({ "digits": width }),
        E::UtcOffset => json!("utc-offset"),
    }
}

fn write_error(error: core::WriteError) -> Value {
    match error {
        core::WriteError::Id { max } => json!({ "id": int(max) }),
        core::WriteError::ShardKeyMissing => json!("shard-key-missing"),
        core::WriteError::ShardKeyUnwanted => json!("shard-key-unwanted"),
        core::WriteError::Time => json!("time"),
    }
}

fn read_error(error: core::ReadError) -> Value {
    match error {
        core::ReadError::Length { len } => json!({ "length": len }),
        core::ReadError::Character { at } => json!({ "character": at }),
        core::ReadError::Date { at } => json!({ "date": at }),
        core::ReadError::Number { at } => json!({ "number": at }),
        core::ReadError::Key { id } => json!({ "key": id }),
    }
}
