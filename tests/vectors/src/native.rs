//! The native core in the component's clothes: its functions by their WIT names, its imports called as the glue calls
//! them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use unalike_core as core;

use crate::json::{
    case, error, failure, grant_id, int, invalid, layout, lease, long, options_error, result, run, segment, short, text,
};
use crate::{Imports, Outcome, Thrown, World};

enum Resource {
    Sequence { tag: String, buffer: Box<core::SegmentBuffer>, ticket: Option<u64> },
    Ordered { tag: String, buffer: Box<core::OrderedBuffer>, ticket: Option<u64> },
    Snowflake(Box<Snowflake>),
    Format(Box<core::Format>),
}

struct Snowflake {
    namespace: String,
    layout: Value,
    horizon_ms: u64,
    state: core::Snowflake,
    ticket: Option<u64>,
}

/// The core without WebAssembly.
pub struct Native {
    imports: Arc<Mutex<Imports>>,
    instances: Vec<BTreeMap<String, Resource>>,
}

impl World for Native {
    fn new(imports: Arc<Mutex<Imports>>) -> Self {
        Self { imports, instances: Vec::new() }
    }

    fn begin(&mut self) {
        self.instances.push(BTreeMap::new());
    }

    fn end(&mut self) {
        self.instances.pop();
    }

    fn call(&mut self, call: &str, on: &str, args: &Value) -> Outcome {
        let (kind, function) = call.split_once('.').unwrap_or((call, ""));
        if kind == "codec" {
            return Outcome::Returned(Some(codec(function, args)));
        }
        let resources = self.instances.last_mut().unwrap();
        if function == "open" {
            let opened = open(kind, args);
            assert!(!resources.contains_key(on), "{on} is open already");
            let opened = opened.map(|resource| resources.insert(on.to_owned(), resource));
            return Outcome::Returned(Some(result(opened, |_| Value::Null, |error| error)));
        }
        let host = Host(&self.imports);
        let Some(resource) = resources.get_mut(on) else { panic!("{on} is not open") };
        let outcome = match (kind, resource) {
            ("sequence", Resource::Sequence { tag, buffer, ticket }) => {
                host.sequence(function, args, tag, buffer, ticket)
            }
            ("ordered", Resource::Ordered { tag, buffer, ticket }) => host.ordered(function, args, tag, buffer, ticket),
            ("snowflake", Resource::Snowflake(snowflake)) => host.snowflake(function, args, snowflake),
            ("format", Resource::Format(format)) => Ok(Some(self::format(function, args, format))),
            _ => panic!("{on} is no {kind}"),
        };
        outcome.map_or(Outcome::Trapped, Outcome::Returned)
    }

    fn drop_resource(&mut self, on: &str) {
        let dropped = self.instances.last_mut().unwrap().remove(on);
        assert!(dropped.is_some(), "{on} is not open");
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
            let buffer = core::SegmentBuffer::new(core_options, long(options, "floor")).map_err(options_error)?;
            Ok(Resource::Sequence { tag, buffer: Box::new(buffer), ticket: None })
        }
        "ordered" => {
            let tag = name("tag")?;
            let options = core::OrderedOptions { floor: long(args, "floor"), id_max: long(args, "id-max") };
            let buffer = core::OrderedBuffer::new(options).map_err(options_error)?;
            Ok(Resource::Ordered { tag, buffer: Box::new(buffer), ticket: None })
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
            Ok(Resource::Snowflake(Box::new(Snowflake {
                namespace,
                layout: options["layout"].clone(),
                horizon_ms: core_options.horizon_ms,
                state: core::Snowflake::new(core_options).map_err(options_error)?,
                ticket: None,
            })))
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

/// The imports, as the component's glue calls them.
struct Host<'a>(&'a Mutex<Imports>);

impl Host<'_> {
    fn request(&self, import: &'static str, args: Value) -> Result<Option<u64>, Thrown> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).request(import, args).map(Some)
    }

    fn release(&self, import: &'static str, args: Value) -> Result<(), Thrown> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).release(import, args)
    }

    /// The answer of the request in flight, if it has come.
    fn answer(&self, import: &'static str, ticket: &mut Option<u64>) -> Result<Option<Value>, Thrown> {
        let Some(held) = *ticket else { return Ok(None) };
        let answer = self.0.lock().unwrap_or_else(PoisonError::into_inner).poll(import, held)?;
        if answer.is_null() {
            return Ok(None);
        }
        *ticket = None;
        Ok(Some(answer))
    }

    fn sequence(
        &self,
        function: &str,
        args: &Value,
        tag: &str,
        buffer: &mut core::SegmentBuffer,
        ticket: &mut Option<u64>,
    ) -> Result<Option<Value>, Thrown> {
        let now = if function == "close" { 0 } else { long(args, "now") };
        match self.answer("segments.poll", ticket)? {
            None => {}
            Some(answer) => match answer.get("ok") {
                Some(granted) => drop(buffer.granted(now, segment(granted))),
                None => buffer.failed(now, failure(&answer["err"])),
            },
        }
        if function == "close" {
            if let Some(tail) = buffer.close() {
                let args = json!({ "tag": tag, "start": int(tail.start), "version": int(tail.version) });
                self.release("segments.release", args)?;
            }
            return Ok(None);
        }
        let reserved = (function == "reserve").then(|| buffer.reserve(now, short(args, "max")));
        if let Some(request) = buffer.request(now) {
            let args = json!({ "tag": tag, "count": int(request.count), "at-least": int(request.at_least) });
            *ticket = self.request("segments.allocate", args)?;
        }
        Ok(Some(match (reserved, function) {
            (Some(reserved), _) => result(reserved, run, error),
            (None, "status") => json!({
                "wake": int(buffer.wake_ms(now)),
                "remaining": int(buffer.remaining()),
                "step": int(buffer.step()),
                "in-flight": buffer.is_in_flight(),
            }),
            _ => panic!("a sequence has no {function}"),
        }))
    }

    fn ordered(
        &self,
        function: &str,
        args: &Value,
        tag: &str,
        buffer: &mut core::OrderedBuffer,
        ticket: &mut Option<u64>,
    ) -> Result<Option<Value>, Thrown> {
        let now = long(args, "now");
        match self.answer("segments.poll", ticket)? {
            None => {}
            Some(answer) => match answer.get("ok") {
                Some(granted) => drop(buffer.granted(now, segment(granted))),
                None => buffer.failed(now, failure(&answer["err"])),
            },
        }
        Ok(Some(match function {
            "begin" => match buffer.begin(short(args, "count")) {
                Err(refused) => json!({ "err": error(refused) }),
                Ok((round, request)) => {
                    let args = json!({ "tag": tag, "count": int(request.count), "at-least": int(request.at_least) });
                    *ticket = self.request("segments.allocate", args)?;
                    json!({ "ok": int(round) })
                }
            },
            "claim" => result(buffer.claim(long(args, "round")), run, error),
            _ => panic!("an ordered sequence has no {function}"),
        }))
    }

    fn snowflake(&self, function: &str, args: &Value, snowflake: &mut Snowflake) -> Result<Option<Value>, Thrown> {
        let Snowflake { namespace, layout, horizon_ms, state, ticket } = snowflake;
        let now = if function == "close" { 0 } else { long(args, "now") };
        match self.answer("leases.poll", ticket)? {
            None => {}
            Some(answer) => match answer.get("ok") {
                Some(granted) => drop(state.granted(now, lease(granted))),
                None => state.failed(now, failure(&answer["err"])),
            },
        }
        if function == "close" {
            if let Some(release) = state.close() {
                let (worker, grant_id) = (release.worker, grant_id(release.grant_id));
                let end = int(release.end_ms);
                let args = json!({ "namespace": namespace, "worker": worker, "grant-id": grant_id, "end": end });
                self.release("leases.release", args)?;
            }
            return Ok(None);
        }
        let reserved = (function == "reserve").then(|| state.reserve(now, short(args, "max")));
        if let Some(request) = state.request(now) {
            let mut args =
                json!({ "namespace": namespace, "layout": layout, "now": int(now), "horizon-ms": int(*horizon_ms) });
            *ticket = match request {
                core::LeaseRequest::Acquire => self.request("leases.acquire", args)?,
                core::LeaseRequest::Extend { worker, grant_id: id } => {
                    args["worker"] = json!(worker);
                    args["grant-id"] = grant_id(id);
                    self.request("leases.extend", args)?
                }
            };
        }
        let held = state.lease();
        Ok(Some(match (reserved, function) {
            (Some(reserved), _) => result(reserved, run, error),
            (None, "status") => json!({
                "wake": int(state.wake_ms(now)),
                "worker": held.map(|lease| lease.worker),
                "valid-until": int(held.map_or(0, |lease| lease.valid_until_ms)),
                "used-until": int(state.used_until_ms()),
                "in-flight": state.is_in_flight(),
                "blocked": state.blocked(now).map(error),
            }),
            _ => panic!("a snowflake has no {function}"),
        }))
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
