//! What servers are asked, and what this storage says alike in every host.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use unalike_core::SUB_SEPARATOR;

use crate::Component;
use crate::address::path;
#[cfg(feature = "wasi-0-3")]
use crate::answers::is_ordered;
use crate::answers::{Asked, Denied, Failure, Granted, digits_of_store, snowflake_ids};
use crate::bindings::exports::unalike::ids::{leases, segments};
use crate::bindings::unalike::ids::types::{Layout, StoreError};
use crate::bindings::wasi::http::types::Method;
use crate::exchange::{Access, Question};
use crate::servers::Servers;

pub(crate) fn segment(granted: Granted) -> segments::Segment {
    let Granted { start, end, stride, generation, version } = granted;
    segments::Segment { start, end, stride, generation, version }
}

pub(crate) fn store_error(denied: Denied) -> StoreError {
    match denied {
        Denied::Unavailable => StoreError::Unavailable,
        Denied::OutcomeUnknown => StoreError::OutcomeUnknown,
        Denied::TagUnknown => StoreError::TagUnknown,
        Denied::Exhausted => StoreError::Exhausted,
        Denied::Refused => StoreError::Refused,
    }
}

/// A ticket that answers `refused`.
const NO_LEASE: u64 = 0;

impl leases::Guest for Component {
    fn acquire(_: String, _: Layout, _: u64, _: u64) -> u64 {
        NO_LEASE
    }

    fn extend(_: String, _: Layout, _: u32, _: leases::GrantId, _: u64, _: u64) -> u64 {
        NO_LEASE
    }

    fn poll(_: u64) -> Option<Result<leases::Lease, StoreError>> {
        Some(Err(StoreError::Refused))
    }

    fn release(_: String, _: u32, _: leases::GrantId, _: u64) {}
}

/// A tag and its sub-key.
fn split(tag: &str) -> (&str, Option<&str>) {
    tag.split_once(SUB_SEPARATOR).map_or((tag, None), |(tag, sub)| (tag, Some(sub)))
}

/// Such a name cannot be part of a URL.
fn unnameable() -> Failure {
    Failure::of_caller(Denied::Refused, "tag-invalid", "a tag that is named . or .. cannot be part of a URL")
}

/// Up to `count` numbers of a tag, none below `at_least`.
pub(crate) async fn allocate(name: &str, count: u64, at_least: u64) -> Result<Granted, Failure> {
    let servers = Servers::of_environment()?;
    let (tag, sub) = split(name);
    let (count_text, at_least_text) = (count.to_string(), at_least.to_string());
    let mut query = alloc::vec![("count", count_text.as_str()), ("at_least", at_least_text.as_str())];
    query.extend(sub.map(|sub| ("sub", sub)));
    let path = path(&["v1", "sequences", tag, "segments"], &query).ok_or_else(unnameable)?;
    let asked = Asked { tag, sub, count, at_least };
    let question =
        Question { method: &Method::Post, path: &path, access: Access::Writes, is_store_named: true, ids: 0 };
    servers.ask(question, |answer| Granted::read(answer, &asked)).await
}

/// Whether a tag is ordered.
#[cfg(feature = "wasi-0-3")]
pub(crate) async fn open(name: &str) -> Result<bool, Failure> {
    let servers = Servers::of_environment()?;
    let (tag, sub) = split(name);
    let query: Vec<_> = sub.map(|sub| ("sub", sub)).into_iter().collect();
    let path = path(&["v1", "sequences", tag, "open"], &query).ok_or_else(unnameable)?;
    let question = Question { method: &Method::Post, path: &path, access: Access::Reads, is_store_named: true, ids: 0 };
    servers.ask(question, is_ordered).await
}

/// Ids of a snowflake of the servers.
pub(crate) async fn snowflakes(name: &str, count: u32) -> Result<Vec<u64>, Failure> {
    let servers = Servers::of_environment()?;
    let count_text = count.to_string();
    // Without their template, which nobody here could read.
    let mut query = alloc::vec![("count", count_text.as_str()), ("format", "decimal")];
    // Two stores may lease one worker to two servers. It is the server that looks, as it makes the ids.
    let leases = servers.leases().map(digits_of_store);
    query.extend(leases.as_deref().map(|leases| ("leases", leases)));
    let path = path(&["v1", "snowflakes", name, "ids"], &query).ok_or_else(unnameable)?;
    let question =
        Question { method: &Method::Get, path: &path, access: Access::Writes, is_store_named: false, ids: count };
    servers.ask(question, |answer| snowflake_ids(answer, name, count)).await
}

/// Whether a server answers that may grant.
pub(crate) async fn check() -> Result<(), Failure> {
    let path = path(&["v1", "store"], &[]).ok_or_else(unnameable)?;
    let question = Question { method: &Method::Get, path: &path, access: Access::Reads, is_store_named: true, ids: 0 };
    match Servers::of_environment()?.ask(question, |_| Some(())).await {
        // It answers, and gives snowflakes to any token.
        Err(failure) if failure.problem == "forbidden" => Ok(()),
        answer => answer,
    }
}
