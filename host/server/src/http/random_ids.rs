//! UUIDs and ULIDs. They use up nothing and tell of no tag, so any token is good for them, bound to tags or not.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use clap::ValueEnum;
use unalike::uuid::Uuid;

use super::access::Permitted;
use super::finished;
use super::ids::prefers;
use super::query::{Parameters, invalid};
use crate::service::Service;
use crate::service::problem::Problem;
use crate::service::quotas::Counted;
use crate::service::random_ids::UuidVersion;
use crate::words::shortened;

/// The most bytes that an id takes in an answer: the 36 of a UUID, two quotes and a comma.
const ID_BYTES_MAX: usize = 39;

pub(super) async fn uuids(
    State(service): State<Arc<Service>>,
    Permitted(permit): Permitted,
    headers: HeaderMap,
    mut parameters: Parameters,
) -> Result<Response, Problem> {
    let count = parameters.take_count(service.count_max)?;
    let version = match parameters.take("version") {
        None => UuidVersion::DEFAULT,
        Some(text) => UuidVersion::from_str(&text, false).map_err(|_| {
            let detail = format!("the version is {:?}, it must be 4 or 7", shortened(&text));
            invalid("version", &text, detail)
        })?,
    };
    parameters.finish("count and version")?;
    service.quotas.take(&permit, Counted::Nothing, count.into())?.given(count.into());
    let uuids = version.take(&service.random_ids, count)?;
    let before = format!("{{\"version\":{},\"uuids\":", version.number());
    let mut buffer = Uuid::encode_buffer();
    Ok(answer(&headers, &before, &uuids, |uuid, body| body.push_str(uuid.hyphenated().encode_lower(&mut buffer))))
}

pub(super) async fn ulids(
    State(service): State<Arc<Service>>,
    Permitted(permit): Permitted,
    headers: HeaderMap,
    mut parameters: Parameters,
) -> Result<Response, Problem> {
    let count = parameters.take_count(service.count_max)?;
    parameters.finish("count")?;
    service.quotas.take(&permit, Counted::Nothing, count.into())?.given(count.into());
    let ulids = service.random_ids.take_ulids(count)?;
    Ok(answer(&headers, "{\"ulids\":", &ulids, |ulid, body| body.push_str(&ulid.text())))
}

/// The ids as lines, or as the last member of an object that begins so. Their texts need no escapes.
fn answer<T>(headers: &HeaderMap, before: &str, ids: &[T], mut push: impl FnMut(&T, &mut String)) -> Response {
    let mut body = String::with_capacity(before.len() + ids.len().saturating_mul(ID_BYTES_MAX) + 2);
    if prefers(headers, "text/plain") {
        for id in ids {
            push(id, &mut body);
            body.push('\n');
        }
        return finished("text/plain; charset=utf-8", body.into_bytes());
    }
    body.push_str(before);
    let mut separator = '[';
    for id in ids {
        body.push(separator);
        body.push('"');
        push(id, &mut body);
        body.push('"');
        separator = ',';
    }
    body.push_str("]}");
    finished("application/json", body.into_bytes())
}
