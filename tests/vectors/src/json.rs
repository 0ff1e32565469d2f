//! Values in the words of the WIT, as JSON, and the core's own.

use serde_json::{Value, json};
use unalike_core as core;
use unalike_core::{FieldOrder, GrantId, Layout, LayoutFields, Lease, ReserveError, Run, Segment, StoreFailure};

/// A 64-bit integer.
pub(crate) fn int(value: u64) -> Value {
    Value::String(value.to_string())
}

/// The 64-bit integer of a field.
pub(crate) fn long(record: &Value, field: &str) -> u64 {
    number(&record[field]).unwrap_or_else(|| panic!("{field} of {record} is not 64 bits"))
}

/// A 64-bit integer in its one notation.
pub(crate) fn number(value: &Value) -> Option<u64> {
    let text = value.as_str()?;
    text.parse().ok().filter(|number: &u64| number.to_string() == text)
}

/// The smaller integer of a field.
pub(crate) fn short<T: TryFrom<i64>>(record: &Value, field: &str) -> T {
    let value = record[field].as_i64().and_then(|value| T::try_from(value).ok());
    value.unwrap_or_else(|| panic!("{field} of {record} is out of range"))
}

/// The text of a field.
pub(crate) fn text<'v>(record: &'v Value, field: &str) -> &'v str {
    record[field].as_str().unwrap_or_else(|| panic!("{field} of {record} is no text"))
}

/// The case of a variant, and its value.
pub(crate) fn case(variant: &Value) -> (&str, &Value) {
    match variant {
        Value::String(name) => (name, &Value::Null),
        Value::Object(object) if object.len() == 1 => {
            object.iter().map(|(name, value)| (name.as_str(), value)).next().unwrap()
        }
        _ => panic!("{variant} is no variant"),
    }
}

pub(crate) fn result<T, E>(result: Result<T, E>, ok: impl FnOnce(T) -> Value, err: impl FnOnce(E) -> Value) -> Value {
    match result {
        Ok(value) => json!({ "ok": ok(value) }),
        Err(error) => json!({ "err": err(error) }),
    }
}

pub(crate) fn segment(value: &Value) -> Segment {
    Segment {
        start: long(value, "start"),
        end: long(value, "end"),
        stride: long(value, "stride"),
        generation: long(value, "generation"),
        version: long(value, "version"),
    }
}

pub(crate) fn lease(value: &Value) -> Lease {
    let grant_id = &value["grant-id"];
    Lease {
        worker: short(value, "worker"),
        grant_id: GrantId(u128::from(long(grant_id, "high")) << 64 | u128::from(long(grant_id, "low"))),
        not_before_ms: long(value, "not-before"),
        valid_until_ms: long(value, "valid-until"),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the two halves of 128 bits")]
pub(crate) fn grant_id(grant_id: GrantId) -> Value {
    json!({ "high": int((grant_id.0 >> 64) as u64), "low": int(grant_id.0 as u64) })
}

pub(crate) fn failure(value: &Value) -> StoreFailure {
    match value.as_str().unwrap_or_default() {
        "unavailable" => StoreFailure::Unavailable,
        "outcome-unknown" => StoreFailure::OutcomeUnknown,
        "tag-unknown" => StoreFailure::TagUnknown,
        "exhausted" => StoreFailure::Exhausted,
        "workers-exhausted" => StoreFailure::WorkersExhausted,
        "lease-lost" => StoreFailure::LeaseLost,
        "clock-skew" => StoreFailure::ClockSkew,
        "refused" => StoreFailure::Refused,
        _ => panic!("{value} is no store-error"),
    }
}

pub(crate) fn run(run: Run) -> Value {
    json!({ "first": int(run.first), "stride": int(run.stride), "count": run.count })
}

pub(crate) fn error(error: ReserveError) -> Value {
    use ReserveError as E;
    match error {
        E::Pending => json!("pending"),
        E::Wait { wait_ms } => json!({ "wait": int(wait_ms) }),
        E::ClockMovedBack { behind_ms } => json!({ "clock-moved-back": int(behind_ms) }),
        E::ClockBeforeEpoch { first_ms } => json!({ "clock-before-epoch": int(first_ms) }),
        E::Exhausted => json!("exhausted"),
        E::Store { retry_after_ms, .. } => json!({ "store-failed": int(retry_after_ms) }),
        E::GrantRefused(fault) => json!({ "grant-refused": match fault {
            core::GrantFault::Malformed => "malformed",
            core::GrantFault::Overlap => "overlap",
            core::GrantFault::Worker => "worker",
        } }),
        E::Count => invalid("count"),
        E::Round => invalid("round"),
        E::Closed => json!("closed"),
    }
}

pub(crate) fn invalid(argument: &str) -> Value {
    json!({ "invalid-argument": argument })
}

pub(crate) fn options_error(error: core::OptionsError) -> Value {
    invalid(match error {
        core::OptionsError::Step => "step",
        core::OptionsError::Refill => "refill",
        core::OptionsError::IdMax => "id",
        core::OptionsError::Horizon => "horizon",
        core::OptionsError::Spread => "spread",
    })
}

/// A layout, or the error that it is none.
pub(crate) fn layout(value: &Value) -> Result<Layout, Value> {
    let fields = LayoutFields {
        timestamp_bits: short(value, "timestamp-bits"),
        datacenter_bits: short(value, "datacenter-bits"),
        worker_bits: short(value, "worker-bits"),
        sequence_bits: short(value, "sequence-bits"),
        order: match text(value, "order") {
            "worker-first" => FieldOrder::WorkerFirst,
            "sequence-first" => FieldOrder::SequenceFirst,
            order => panic!("{order} is no order of fields"),
        },
        epoch_ms: long(value, "epoch-ms"),
        tick_ms: short(value, "tick-ms"),
    };
    Layout::new(fields).map_err(|_| invalid("layout"))
}

pub(crate) fn layout_value(layout: &Layout) -> Value {
    let fields = layout.fields();
    json!({
        "timestamp-bits": fields.timestamp_bits,
        "datacenter-bits": fields.datacenter_bits,
        "worker-bits": fields.worker_bits,
        "sequence-bits": fields.sequence_bits,
        "order": match fields.order {
            FieldOrder::WorkerFirst => "worker-first",
            FieldOrder::SequenceFirst => "sequence-first",
        },
        "epoch-ms": int(fields.epoch_ms),
        "tick-ms": fields.tick_ms,
    })
}

/// The same value with all numbers as texts: as people write them.
pub(crate) fn written(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::String(number.to_string()),
        Value::Object(object) => object.iter().map(|(name, value)| (name.clone(), written(value))).collect(),
        other => other.clone(),
    }
}

/// One line of JSON. The keys that a reader looks for first come first, the others by their names.
pub(crate) fn line(value: &Value) -> String {
    const FIRST: [&str; 15] = [
        "by", "call", "on", "answer", "with", "drop", "rebuild", "fork", "import", "throws", "args", "name", "worker",
        "first", "start",
    ];
    match value {
        Value::Object(object) => {
            let place = |key: &str| FIRST.iter().position(|first| *first == key).unwrap_or(FIRST.len());
            let mut keys: Vec<&String> = object.keys().collect();
            keys.sort_by_key(|key| (place(key), key.as_str()));
            let fields: Vec<String> =
                keys.into_iter().map(|key| format!("{}:{}", json!(key), line(&object[key]))).collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(values) => format!("[{}]", values.iter().map(line).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}
