//! Meituan's Leaf, as its server of Spring Boot 1.5 speaks.
//!
//! | path, any method but HEAD and TRACE | answer |
//! | --- | --- |
//! | `/api/segment/get/{key}` | an id of the tag `key` |
//! | `/api/snowflake/get/{key}` | an id of the snowflake `leaf` if one is configured, else of `default`, which has Leaf's widths and epoch; the key is ignored, as Leaf does |
//! | `/decodeSnowflakeId?snowflakeId=` | the parts of an id of Leaf's layout, by query or form; the time in UTC, where Leaf takes the zone of its machine |
//!
//! An id is its decimal digits as `text/plain`, and there is no answer 200 with anything else: where Leaf answers `0`
//! in a mode that is switched off, this server has no such mode.
//!
//! An error is Spring Boot's: JSON, or a page where the client prefers HTML. The status is 500 and the message has
//! Leaf's code for it; what happened is in this server's log.
//!
//! | code | `/api/segment/get/` | Leaf's meaning |
//! | --- | --- | --- |
//! | -1 | the server is ending, or the component was rebuilt | its cache is not initialised |
//! | -2 | the key is unknown and not created on first use, is not a valid tag, or the limit of tags is reached | no such key |
//! | -3 | anything else: the store is unavailable, every number is used up | both segments are empty |
//!
//! | code | `/api/snowflake/get/` | Leaf's meaning |
//! | --- | --- | --- |
//! | -1 | not before the clock or the lease has caught up, and that takes too long | the clock is still behind after a wait |
//! | -2 | anything else: no worker is free, the store is unavailable, the server is ending | the wait was interrupted |
//! | -3 | the clock went back too far, or disagrees with the store's | the clock went back by more than 5 ms |
//!
//! An empty key is 500 `Key is none`. A token that is missing or not good is 401 or 403, without `exception`, as
//! Spring's security answers. Every path needs the scope `read`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use serde::Serialize;
use unalike::{Clock, Layout, SystemClock};

use super::{Parameters, finished, json, next_of, path_of, snowflake_name};
use crate::config::layouts::decimal_id;
use crate::config::tokens::Denied;
use crate::http::access::{ByHeader, Methods, READ, Route, permit};
use crate::http::ids::prefers;
use crate::service::Service;
use crate::service::issue::Owner;
use crate::service::problem::{Kind, Problem};
use crate::words::rfc3339;

const TEXT: &str = "text/plain;charset=UTF-8";
const JSON: &str = "application/json;charset=UTF-8";
const HTML: &str = "text/html;charset=UTF-8";

/// Refusals as Spring's security tells them.
const DOOR: ByHeader = ByHeader { refuse };

pub(super) fn routes() -> Vec<Route> {
    vec![
        Methods::any_but_head_and_trace(DOOR, READ, segment).at("/api/segment/get/{key}"),
        Methods::any_but_head_and_trace(DOOR, READ, key_is_none).at("/api/segment/get/"),
        Methods::any_but_head_and_trace(DOOR, READ, snowflake).at("/api/snowflake/get/{key}"),
        Methods::any_but_head_and_trace(DOOR, READ, key_is_none).at("/api/snowflake/get/"),
        Methods::any_but_head_and_trace(DOOR, READ, decode).at("/decodeSnowflakeId"),
    ]
}

fn refuse(parts: &Parts, denied: Denied) -> Response {
    let problem = Problem::from(denied);
    tracing::debug!(detail = problem.detail(), "an error as Leaf tells it");
    let unlikely = || Failure::new(StatusCode::FORBIDDEN, problem.detail());
    refusal(&problem).unwrap_or_else(unlikely).answer(parts)
}

async fn segment(State(service): State<Arc<Service>>, request: Request) -> Response {
    let (mut parts, _) = request.into_parts();
    let id = id_of_segment(&service, &mut parts).await;
    answer(&parts, id, segment_code)
}

async fn id_of_segment(service: &Service, parts: &mut Parts) -> Result<u64, Problem> {
    let permit = permit(parts)?;
    let key: String = path_of(parts).await?;
    permit.covers(&key)?;
    next_of(service, &permit, Owner::tag(&key)).await
}

async fn snowflake(State(service): State<Arc<Service>>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let id = id_of_snowflake(&service, &parts).await;
    answer(&parts, id, snowflake_code)
}

async fn id_of_snowflake(service: &Service, parts: &Parts) -> Result<u64, Problem> {
    let name = snowflake_name(service, "leaf");
    let permit = permit(parts)?;
    permit.covers(name)?;
    next_of(service, &permit, Owner::Snowflake { name }).await
}

fn answer(parts: &Parts, id: Result<u64, Problem>, code: fn(Kind) -> i8) -> Response {
    match id {
        Ok(id) => finished(StatusCode::OK, TEXT, id.to_string()),
        Err(problem) => {
            tracing::debug!(detail = problem.detail(), "an error as Leaf tells it");
            refusal(&problem).unwrap_or_else(|| Failure::leaf(code(problem.kind()))).answer(parts)
        }
    }
}

/// The table at the top.
fn segment_code(kind: Kind) -> i8 {
    match kind {
        Kind::Closing | Kind::Rebuilt => -1,
        Kind::TagUnknown | Kind::TagInvalid | Kind::TagLimit => -2,
        _ => -3,
    }
}

/// The table at the top.
fn snowflake_code(kind: Kind) -> i8 {
    match kind {
        Kind::Timeout => -1,
        Kind::ClockWrong => -3,
        _ => -2,
    }
}

async fn key_is_none(request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let exception = Some("com.sankuai.inf.leaf.server.exception.NoKeyException");
    Failure { exception, ..Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "Key is none") }.answer(&parts)
}

/// Member by member as Leaf's `HashMap` gives them.
#[derive(Serialize)]
struct Decoded {
    timestamp: String,
    #[serde(rename = "sequenceId")]
    sequence_id: String,
    #[serde(rename = "workerId")]
    worker_id: String,
}

/// What Leaf says of what is not a number.
#[derive(Serialize)]
struct NotDecoded {
    #[serde(rename = "errorMsg")]
    error_msg: &'static str,
}

async fn decode(request: Request) -> Response {
    let (parts, parameters) = Parameters::of(request).await;
    let text = match parameters.map(|parameters| parameters.get("snowflakeId")) {
        Ok(Some(text)) => text,
        Ok(None) => {
            let exception = Some("org.springframework.web.bind.MissingServletRequestParameterException");
            let message = "Required String parameter 'snowflakeId' is not present";
            return Failure { exception, ..Failure::new(StatusCode::BAD_REQUEST, message) }.answer(&parts);
        }
        Err(problem) => {
            return Failure::new(StatusCode::BAD_REQUEST, problem.detail()).answer(&parts);
        }
    };
    let Some(id_parts) = decimal_id(&text).ok().and_then(|id| Layout::LEAF.unpack(id).ok()) else {
        return json(StatusCode::OK, JSON, &NotDecoded { error_msg: "snowflake Id反解析发生异常!" });
    };
    let unix_ms = Layout::LEAF.tick_start_ms(id_parts.ticks);
    let time = rfc3339(unix_ms).replace('T', " ");
    let decoded = Decoded {
        timestamp: format!("{unix_ms}({})", time.trim_end_matches('Z')),
        sequence_id: id_parts.sequence.to_string(),
        worker_id: id_parts.worker.to_string(),
    };
    json(StatusCode::OK, JSON, &decoded)
}

/// An error as Spring Boot 1.x tells it, its members in that order.
#[derive(Serialize)]
struct Failure {
    timestamp: u64,
    status: u16,
    error: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    exception: Option<&'static str>,
    message: String,
    path: String,
}

impl Failure {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            timestamp: SystemClock.now_ms(),
            status: status.as_u16(),
            error: status.canonical_reason().unwrap_or_default(),
            exception: None,
            message: message.into(),
            path: String::new(),
        }
    }

    fn leaf(code: i8) -> Self {
        let message = format!("Result{{id={code}, status=EXCEPTION}}");
        let exception = Some("com.sankuai.inf.leaf.server.exception.LeafServerException");
        Self { exception, ..Self::new(StatusCode::INTERNAL_SERVER_ERROR, message) }
    }

    fn answer(mut self, parts: &Parts) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if prefers(&parts.headers, "text/html") {
            let Self { error, message, .. } = &self;
            // Each of these messages is one of this file's or a token's, and none repeats what the client sent.
            let page = format!(
                "<html><body><h1>{error}</h1><div>There was an unexpected error (type={error}, \
                 status={status}).</div><div>{message}</div></body></html>",
                status = status.as_u16()
            );
            return finished(status, HTML, page);
        }
        parts.uri.path().clone_into(&mut self.path);
        json(status, JSON, &self)
    }
}

/// A token that is missing or not good.
fn refusal(problem: &Problem) -> Option<Failure> {
    let status = match problem.kind() {
        Kind::Unauthorized => StatusCode::UNAUTHORIZED,
        Kind::Forbidden => StatusCode::FORBIDDEN,
        _ => return None,
    };
    Some(Failure::new(status, problem.detail()))
}
