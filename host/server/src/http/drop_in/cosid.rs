//! CosId's proxy server; its machine ids are in [`machines`].
//!
//! | path | answer |
//! | --- | --- |
//! | `GET /ids` | an id of the snowflake `cosid` if one is configured, else of `default` (CosId's share generator) |
//! | `GET /ids/{name}` | an id of the snowflake of this name, or else of the tag |
//! | `GET /ids/as-string`, `GET /ids/as-string/{name}` | the same as CosId's clients write ids unless told otherwise: base 62, `0-9A-Za-z`, 11 characters |
//! | `POST /segments/distributor/{namespace}/{name}?offset=&step=` | nothing: the tag is there |
//! | `PATCH /segments/{namespace}/{name}?step=` | `max`: the ids in `(max - step, max]` are the client's |
//!
//! The tag of a segment is `{namespace}.{name}`, as in CosId's own tables. `POST` creates it with the start `offset +
//! 1` and the step `step` if it does not exist, and else changes nothing, whatever it says: so a client may repeat it.
//! Where the store has no place for a step, as in CosId's own tables and keys, the tag has none of its own: clients say
//! theirs with each segment.
//! Where tokens are required, ids need the scope `read`, and segments and machine ids the scope `lease`, as they do
//! under `/v1`. Creating needs the scope `admin`, as it does under `/v1/tags`. `PATCH` needs no `POST` before it where
//! tags are created on first use, so a restart of this server takes nothing from running clients. A step is 1 to
//! `segment_count_max`, and a segment has exactly as many numbers: the client reckons its first id from `max`. One that
//! the tag has not left is refused, and takes none.
//!
//! An error is `{"code":"..","msg":"..","errors":[]}`. The code is `400` for a parameter that is missing or no number,
//! `401` and `403` for a token, else CosId's `500`. The status is 401 and 403 for a token, 400 for all else that asking
//! again does not change (a bad name, a tag that is unknown or used up), and 500 for what may pass, as in CosId.

mod machines;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use unalike::storage::{StoreError, TagOptions};
use unalike::{ID_MAX, StepPolicy, Text, encode};

use super::{Parameters, SegmentSize, finished, grant, json, next_of, path_of, snowflake_name};
use crate::config::names::plain_tag;
use crate::config::tokens::{Permit, Scope};
use crate::http::access::{ByHeader, LEASE, Methods, READ, Route, permit};
use crate::service::Service;
use crate::service::issue::Owner;
use crate::service::problem::{Kind, Problem};
use crate::service::tags::create_as_can_be;
use crate::words::decimal;
use crate::words::shortened;

pub(in crate::http) use machines::MACHINE_BITS_MAX;

const TEXT: &str = "text/plain;charset=UTF-8";
const JSON: &str = "application/json";

pub(super) fn routes() -> Vec<Route> {
    vec![
        methods().get(READ, share).without_head().at("/ids"),
        methods().get(READ, share_as_string).without_head().at("/ids/as-string"),
        methods().get(READ, named).without_head().at("/ids/{name}"),
        methods().get(READ, named_as_string).without_head().at("/ids/as-string/{name}"),
        methods().post(LEASE, distributor).at("/segments/distributor/{namespace}/{name}"),
        methods().patch(LEASE, next_max_id).at("/segments/{namespace}/{name}"),
        machines::route(),
    ]
}

/// Refusals as CosId tells errors.
fn methods() -> Methods<ByHeader> {
    Methods::behind(ByHeader { refuse: |_, denied| refuse(&denied.into()) })
}

async fn share(State(service): State<Arc<Service>>, request: Request) -> Response {
    number(share_id(&service, request).await)
}

async fn share_as_string(State(service): State<Arc<Service>>, request: Request) -> Response {
    text(share_id(&service, request).await)
}

async fn named(State(service): State<Arc<Service>>, request: Request) -> Response {
    number(named_id(&service, request).await)
}

async fn named_as_string(State(service): State<Arc<Service>>, request: Request) -> Response {
    text(named_id(&service, request).await)
}

async fn share_id(service: &Service, request: Request) -> Result<u64, Problem> {
    let name = snowflake_name(service, "cosid");
    let (parts, _) = request.into_parts();
    let permit = permit(&parts)?;
    permit.covers(name)?;
    next_of(service, &permit, Owner::Snowflake { name }).await
}

async fn named_id(service: &Service, request: Request) -> Result<u64, Problem> {
    let (mut parts, _) = request.into_parts();
    let permit = permit(&parts)?;
    let name: String = path_of(&mut parts).await?;
    permit.covers(&name)?;
    if service.has_snowflake(&name) {
        return next_of(service, &permit, Owner::Snowflake { name: &name }).await;
    }
    next_of(service, &permit, Owner::tag(&name)).await
}

async fn distributor(State(service): State<Arc<Service>>, request: Request) -> Response {
    match create(&service, request).await {
        Ok(()) => StatusCode::OK.into_response(),
        Err(problem) => refuse(&problem),
    }
}

async fn create(service: &Service, request: Request) -> Result<(), Problem> {
    let (mut parts, _) = request.into_parts();
    let (tag, permit) = permitted_tag(&mut parts).await?;
    let parameters = Parameters::of_query(&parts);
    let offset = whole(&parameters, "offset", 0..=ID_MAX - 1)?;
    let step = whole(&parameters, "step", 1..=service.segment_count_max)?;
    plain_tag(&tag)?;
    match service.store().tag(&tag).await {
        Err(StoreError::TagUnknown { .. }) => {}
        known => return known.map(drop).map_err(Problem::from),
    }
    permit.has(Scope::Admin)?;
    let options = TagOptions { start: offset + 1, step: StepPolicy::Fixed { step }, ..TagOptions::default() };
    match create_as_can_be(service.store(), &tag, &options).await {
        Ok(_) => tracing::info!(tag, by = permit.token_name(), "a tag was created"),
        // Somebody else was quicker.
        Err(StoreError::TagExists { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

async fn next_max_id(State(service): State<Arc<Service>>, request: Request) -> Response {
    number(take(&service, request).await)
}

async fn take(service: &Service, request: Request) -> Result<u64, Problem> {
    let (mut parts, _) = request.into_parts();
    let (tag, permit) = permitted_tag(&mut parts).await?;
    let step = whole(&Parameters::of_query(&parts), "step", 1..=service.segment_count_max)?;
    let segment = grant(service, &permit, &tag, SegmentSize::Exactly(step)).await?;
    Ok(segment.end - 1)
}

/// The tag that namespace and name make, which the token is good for, and by what permission.
async fn permitted_tag(parts: &mut Parts) -> Result<(String, Permit), Problem> {
    let permit = permit(parts)?;
    let (namespace, name): (String, String) = path_of(parts).await?;
    let tag = format!("{namespace}.{name}");
    permit.covers(&tag)?;
    Ok((tag, permit))
}

fn whole(parameters: &Parameters, name: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, Problem> {
    let text = parameters.get(name).unwrap_or_default();
    decimal(&text).filter(|number| range.contains(number)).ok_or_else(|| {
        let (text, start, end) = (shortened(&text), range.start(), range.end());
        Problem::new(Kind::QueryInvalid, format!("{name} is {text:?}, it must be a whole number from {start} to {end}"))
    })
}

fn number(id: Result<u64, Problem>) -> Response {
    match id {
        Ok(id) => finished(StatusCode::OK, JSON, id.to_string()),
        Err(problem) => refuse(&problem),
    }
}

fn text(id: Result<u64, Problem>) -> Response {
    let text = id.and_then(|id| {
        encode(id, Text::Base62).map_err(|error| {
            tracing::error!(%error, id, "an id could not be written");
            Problem::new(Kind::Internal, "the id could not be written")
        })
    });
    match text {
        Ok(text) => finished(StatusCode::OK, TEXT, text.as_str().to_owned()),
        Err(problem) => refuse(&problem),
    }
}

/// An error as CosId tells it, its members in that order.
#[derive(Serialize)]
struct Failure<'a> {
    code: &'static str,
    msg: &'a str,
    errors: [(); 0],
}

fn refuse(problem: &Problem) -> Response {
    refuse_as(None, problem)
}

/// The same by a code of CosId's own, if there is one.
fn refuse_as(code: Option<&'static str>, problem: &Problem) -> Response {
    let (status, usual) = match problem.kind() {
        _ if code.is_some() => (StatusCode::BAD_REQUEST, "400"),
        Kind::Unauthorized => (StatusCode::UNAUTHORIZED, "401"),
        Kind::Forbidden => (StatusCode::FORBIDDEN, "403"),
        Kind::QueryInvalid => (StatusCode::BAD_REQUEST, "400"),
        Kind::QuotaReached => (StatusCode::INTERNAL_SERVER_ERROR, "500"),
        kind if kind.status().is_client_error() => (StatusCode::BAD_REQUEST, "500"),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "500"),
    };
    json(status, JSON, &Failure { code: code.unwrap_or(usual), msg: problem.detail(), errors: [] })
}
