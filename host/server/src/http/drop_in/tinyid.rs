//! Didi's tinyid, as its server speaks.
//!
//! | path, any method but HEAD and TRACE | parameters, by query or form | answer |
//! | --- | --- | --- |
//! | `/tinyid/id/nextId` | `bizType`, `batchSize`, `token` | `{"data":[1,2],"code":200,"message":""}` |
//! | `/tinyid/id/nextIdSimple` | the same | `1,2` |
//! | `/tinyid/id/nextSegmentId` | `bizType`, `token` | `{"data":{"maxId":..,"loadingId":..,"currentId":..,"delta":1,"remainder":0},"code":200,"message":""}` |
//! | `/tinyid/id/nextSegmentIdSimple` | the same | `currentId,loadingId,maxId,delta,remainder` |
//!
//! The status is always 200. An error has `data` null, code 5 for a token that is missing or not good for the business
//! type, else code 6, and a message; where a token has a lesser scope than is needed, the message says so. The Simple
//! forms have no room for errors: their body is empty then, as clients expect, and the reason is in this server's log
//! (at the level debug, as anybody can cause one; a scope that is too little is told as requests that fail are).
//!
//! `batchSize` is 1 if it is not given, and 100,000 if it is more, as tinyid does with `batch.size.max`, whatever
//! `count_max` is: no answer without an error ever has fewer ids than tinyid's would. It is an error if it is no
//! number, and if it is 0 or less. A batch that would take many segments, of a tag with a short fixed step, comes
//! straight from the store as a segment does: single ids of the buffer may come after it and be lower.
//!
//! Where the store's database has tinyid's table `tiny_id_token`, a token is good for the business types that it says,
//! and for no other, as in tinyid. It is read when the server starts, every minute, and at SIGHUP. Tokens of this
//! server's own are good beside them: `nextId` needs the scope `read`, and `nextSegmentId`, which tinyid's client asks
//! for, the scope `lease`.
//!
//! A segment is the interval `(currentId, maxId]` of the numbers `x` with `x % delta == remainder`, as many as the
//! tag's step says (the first step, where it adapts), but no more than `segment_count_max` or than the tag has left. A
//! client should ask for the next one from `loadingId` on, at a fifth of the way. Where the client sends no `token`,
//! the header `Authorization: Bearer TOKEN` counts.

use std::fmt::Write;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use unalike::storage;

use super::{Parameters, SegmentSize, finished, grant, json, take_of_tag};
use crate::config::names::plain_tag;
use crate::config::tokens::{Denied, Permit, Presented, Scope};
use crate::http::access::{Door, LEASE, Methods, READ, Route, permit, presented};
use crate::service::Service;
use crate::service::problem::{Kind, Problem};
use crate::service::troubles::{Weight, note};
use crate::words::decimal;
use crate::words::shortened;

const TEXT: &str = "text/plain;charset=UTF-8";
const JSON: &str = "application/json;charset=UTF-8";

/// tinyid's `batch.size.max`.
const BATCH_SIZE_MAX: u32 = 100_000;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Methods::any_but_head_and_trace(ByToken::Envelope, READ, next_id).at("/tinyid/id/nextId"),
        Methods::any_but_head_and_trace(ByToken::Simple, READ, next_id_simple).at("/tinyid/id/nextIdSimple"),
        Methods::any_but_head_and_trace(ByToken::Envelope, LEASE, next_segment_id).at("/tinyid/id/nextSegmentId"),
        Methods::any_but_head_and_trace(ByToken::Simple, LEASE, next_segment_id_simple)
            .at("/tinyid/id/nextSegmentIdSimple"),
    ]
}

/// A door where the token is a parameter, in one of the two forms of answers.
#[derive(Clone, Copy, Debug)]
enum ByToken {
    Envelope,
    Simple,
}

impl Door for ByToken {
    async fn admit(&self, service: &Service, scope: Scope, request: Request) -> Result<Request, Response> {
        match admit(service, scope, request).await {
            Ok(request) => Ok(request),
            Err(refusal) => Err(match self {
                Self::Envelope => Envelope::of(Err::<(), _>(refusal)),
                Self::Simple => simple(Err(refusal)),
            }),
        }
    }
}

async fn next_id(State(service): State<Arc<Service>>, request: Request) -> Response {
    Envelope::of(ids(&service, request).await)
}

async fn next_id_simple(State(service): State<Arc<Service>>, request: Request) -> Response {
    simple(ids(&service, request).await.map(|ids| {
        let mut text = String::with_capacity(ids.len().saturating_mul(20));
        for id in ids {
            let comma = if text.is_empty() { "" } else { "," };
            // A string takes everything.
            let _ = write!(text, "{comma}{id}");
        }
        text
    }))
}

async fn next_segment_id(State(service): State<Arc<Service>>, request: Request) -> Response {
    Envelope::of(segment(&service, request).await)
}

async fn next_segment_id_simple(State(service): State<Arc<Service>>, request: Request) -> Response {
    simple(segment(&service, request).await.map(|segment| {
        let Segment { max_id, loading_id, current_id, delta, remainder } = segment;
        format!("{current_id},{loading_id},{max_id},{delta},{remainder}")
    }))
}

async fn ids(service: &Service, request: Request) -> Result<Vec<u64>, Refusal> {
    let (tag, permit, parameters) = permitted(request)?;
    let count = batch_size(&parameters)?;
    take_of_tag(service, &permit, &tag, count).await.map_err(|problem| Refusal::of(&problem, &tag))
}

async fn segment(service: &Service, request: Request) -> Result<Segment, Refusal> {
    let (tag, permit, _) = permitted(request)?;
    let granted =
        grant(service, &permit, &tag, SegmentSize::TagStep).await.map_err(|problem| Refusal::of(&problem, &tag))?;
    Segment::of(granted).ok_or_else(|| {
        let message = format!("the numbers of {tag} lie {} apart, more than a segment can say", granted.stride);
        Refusal { code: CODE_FAILED, message }
    })
}

/// The tag and the parameters of a request that was let in, and by what permission.
fn permitted(request: Request) -> Result<(String, Permit, Parameters), Refusal> {
    let (mut parts, _) = request.into_parts();
    let permit = permit(&parts).map_err(|problem| Refusal::of(&problem, ""))?;
    let unread = || Problem::new(Kind::Internal, "an internal error: the parameters of the request were not read");
    let parameters: Parameters = parts.extensions.remove().ok_or_else(|| Refusal::of(&unread(), ""))?;
    let tag = parameters.get("bizType").unwrap_or_default();
    plain_tag(&tag).map_err(|error| Refusal::of(&error.into(), &tag))?;
    Ok((tag, permit, parameters))
}

/// Lets a request in whose token has this scope and is good for its tag, with its parameters beside it.
async fn admit(service: &Service, scope: Scope, request: Request) -> Result<Request, Refusal> {
    let (mut parts, parameters) = Parameters::of(request).await;
    let parameters = parameters.map_err(|problem| Refusal::of(&problem, ""))?;
    let tag = parameters.get("bizType").unwrap_or_default();
    let token = parameters.get("token");
    let presented = match token.as_deref() {
        Some(token) => Presented::token(Some(token.as_bytes())),
        None => presented(&parts.headers, &parts.extensions),
    };
    let is_tinyids = match service.tinyid_tokens.permit(token.as_deref(), &tag) {
        // Only the table says who may, as this server has no tokens of its own.
        Some(false) if !service.tokens.are_wanted() => return Err(Refusal::denied(Denied::Unknown)),
        permitted => permitted == Some(true),
    };
    let permit = if is_tinyids {
        // tinyid's own tokens have no scopes: each is good for all that tinyid does with its business types.
        Permit::unbound()
    } else {
        let permit = service.tokens.permit(presented, scope);
        permit.and_then(|permit| permit.covers(&tag).map(|()| permit)).map_err(Refusal::denied)?
    };
    parts.extensions.insert(permit);
    parts.extensions.insert(parameters);
    Ok(Request::from_parts(parts, Body::empty()))
}

fn batch_size(parameters: &Parameters) -> Result<u32, Refusal> {
    let Some(text) = parameters.get("batchSize") else { return Ok(1) };
    let Some(asked) = decimal::<u64>(&text).filter(|&asked| asked >= 1) else {
        let message = format!("batchSize is {:?}, it must be a whole number of 1 or more", shortened(&text));
        return Err(Refusal { code: CODE_FAILED, message });
    };
    Ok(u32::try_from(asked).unwrap_or(u32::MAX).min(BATCH_SIZE_MAX))
}

/// The token is missing, or not good for the business type.
const CODE_TOKEN: u16 = 5;

/// Everything else that goes wrong.
const CODE_FAILED: u16 = 6;

/// Why there is no id.
struct Refusal {
    code: u16,
    message: String,
}

impl Refusal {
    /// As tinyid tells it, and why where the token is good for something else: the one who sent it should know.
    fn denied(denied: Denied) -> Self {
        let is_lesser = matches!(denied, Denied::Scope { .. });
        let problem = Problem::from(denied);
        let Self { code, message } = Self::of(&problem, "");
        if is_lesser {
            // The Simple forms say nothing.
            note(Kind::Forbidden.name(), Weight::Lasting, format!("a segment of tinyid's: {}", problem.detail()));
            return Self { code, message: format!("{message}: {}", problem.detail()) };
        }
        Self { code, message }
    }

    fn of(problem: &Problem, tag: &str) -> Self {
        match problem.kind() {
            Kind::Unauthorized | Kind::Forbidden => Self { code: CODE_TOKEN, message: "token is error".to_owned() },
            Kind::TagUnknown => Self { code: CODE_FAILED, message: format!("can not find biztype:{tag}") },
            _ => Self { code: CODE_FAILED, message: problem.detail().to_owned() },
        }
    }
}

/// What every answer in JSON is, member by member in tinyid's order.
#[derive(Serialize)]
struct Envelope<T> {
    data: Option<T>,
    code: u16,
    message: String,
}

impl<T: Serialize> Envelope<T> {
    fn of(result: Result<T, Refusal>) -> Response {
        let envelope = match result {
            Ok(data) => Self { data: Some(data), code: 200, message: String::new() },
            Err(Refusal { code, message }) => Self { data: None, code, message },
        };
        json(StatusCode::OK, JSON, &envelope)
    }
}

fn simple(result: Result<String, Refusal>) -> Response {
    let body = result.unwrap_or_else(|Refusal { code, message }| {
        tracing::debug!(code, message, "an error as tinyid's Simple form tells it: an empty body");
        String::new()
    });
    finished(StatusCode::OK, TEXT, body)
}

/// Numbers for a client, member by member in tinyid's order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Segment {
    /// The last number.
    max_id: u64,
    /// From this number on the client should ask for the next segment.
    loading_id: u64,
    /// Below the first number, and not below the last one of others.
    current_id: u64,
    delta: i32,
    remainder: u64,
}

impl Segment {
    /// The same numbers as tinyid says them; it has no larger strides than a Java `int`.
    fn of(granted: storage::Segment) -> Option<Self> {
        let (current_id, max_id) = (granted.start - 1, granted.end - granted.stride);
        Some(Self {
            max_id,
            loading_id: current_id + (max_id - current_id) / 5,
            current_id,
            delta: i32::try_from(granted.stride).ok()?,
            remainder: granted.start % granted.stride,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a client of tinyid counts through: `SegmentId.init` and `nextId`, in Java's signed numbers.
    fn counted(segment: &Segment) -> Vec<i64> {
        let (delta, remainder) = (i64::from(segment.delta), segment.remainder.cast_signed());
        let mut id = segment.current_id.cast_signed();
        if id % delta != remainder {
            while id % delta != remainder {
                id += 1;
            }
            id -= delta;
        }
        std::iter::from_fn(|| {
            id += delta;
            (id <= segment.max_id.cast_signed()).then_some(id)
        })
        .collect()
    }

    #[test]
    fn a_client_counts_through_what_was_granted() {
        for (start, count, stride) in
            [(1, 1_000, 1), (1, 1, 1), (1, 10, 4), (3, 10, 4), (4, 10, 4), (1_001, 7, 3), (7, 1, 9)]
        {
            let granted = storage::Segment { start, end: start + count * stride, stride, generation: 0, version: 1 };
            let numbers: Vec<i64> = (0..count).map(|at| (start + at * stride).cast_signed()).collect();
            assert_eq!(counted(&Segment::of(granted).unwrap()), numbers, "{granted:?}");
        }
        let wide = storage::Segment { start: 1, end: 1 + (1 << 31), stride: 1 << 31, generation: 0, version: 1 };
        assert!(Segment::of(wide).is_none());
    }
}
