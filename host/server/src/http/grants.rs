//! Grants for hosts that make ids by themselves: segments and leases, by `POST` only.
//!
//! There are no idempotency keys. A request that is sent again is granted something else, and what was granted before
//! is a gap: that is cheaper than to remember answers durably. An answer belongs to the request whose `X-Request-Id` it
//! has.

use std::ops::RangeInclusive;
use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use serde::Serialize;
use unalike::storage::{
    FormatPart, GrantId, Lease, LeaseAcquire, LeaseExtend, Segment, StoreError, StoreIdentity, TailRelease,
};
use unalike::{FormatShape, ID_MAX, Layout};

use super::access::{Named, permit};
use super::query::{Parameters, invalid};
use crate::config::names::plain_tag;
use crate::config::tokens::Scope;
use crate::http::tag_json::{Number, TagJson};
use crate::service::Service;
use crate::service::problem::{Kind, Of, Problem};
use crate::service::tags::RAISE_MAX;
use crate::words::{decimal, shortened};

/// The name of a snowflake in the path, and the worker that is leased there.
pub(super) struct NamedWorker(String, u32);

impl FromRequestParts<Arc<Service>> for NamedWorker {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Arc<Service>) -> Result<Self, Problem> {
        let not_utf8 = || {
            Problem::new(Kind::TagInvalid, "the name is not UTF-8 once percent-decoded")
                .with("path", shortened(parts.uri.path()))
        };
        let unread = not_utf8();
        let Ok(Path((name, worker))) = Path::<(String, String)>::from_request_parts(parts, service).await else {
            return Err(unread);
        };
        permit(parts)?.covers(&name)?;
        plain_tag(&name)?;
        let worker = decimal(&worker).ok_or_else(|| {
            let worker = shortened(&worker);
            invalid("worker", &worker, format!("the worker is {worker:?}, it must be a whole number below 2^32"))
        })?;
        Ok(Self(name, worker))
    }
}

/// The name of a store: 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, Serialize)]
struct StoreName(#[serde(serialize_with = "digits")] Option<StoreIdentity>);

fn digits<S: serde::Serializer>(name: &Option<StoreIdentity>, serializer: S) -> Result<S::Ok, S::Error> {
    match name {
        Some(name) => serializer.collect_str(name),
        None => serializer.serialize_none(),
    }
}

#[derive(Serialize)]
pub(super) struct StoresJson {
    store: StoreName,
    leases: StoreName,
}

#[derive(Serialize)]
pub(super) struct BoundJson {
    bound: Option<Number>,
    store: StoreName,
}

#[derive(Serialize)]
pub(super) struct OpenedJson {
    tag: TagJson,
    store: StoreName,
}

#[derive(Serialize)]
pub(super) struct SegmentGrantJson {
    tag: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sub: Option<String>,
    segment: SegmentJson,
    store: StoreName,
}

#[derive(Serialize)]
struct SegmentJson {
    start: Number,
    end: Number,
    stride: Number,
    generation: Number,
    version: Number,
}

impl From<Segment> for SegmentJson {
    fn from(segment: Segment) -> Self {
        let Segment { start, end, stride, generation, version } = segment;
        let [start, end, stride, generation, version] = [start, end, stride, generation, version].map(Number);
        Self { start, end, stride, generation, version }
    }
}

#[derive(Serialize)]
pub(super) struct ReleasedJson {
    released: bool,
    store: StoreName,
}

#[derive(Serialize)]
pub(super) struct LeaseGrantJson {
    snowflake: String,
    lease: LeaseJson,
    store: StoreName,
}

#[derive(Serialize)]
struct LeaseJson {
    worker: u32,
    grant_id: String,
    not_before_ms: Number,
    valid_until_ms: Number,
}

impl From<Lease> for LeaseJson {
    fn from(lease: Lease) -> Self {
        Self {
            worker: lease.worker,
            grant_id: format!("{:032x}", lease.grant_id.0),
            not_before_ms: Number(lease.not_before_ms),
            valid_until_ms: Number(lease.valid_until_ms),
        }
    }
}

/// Which stores the server has.
pub(super) async fn stores(State(service): State<Arc<Service>>) -> Result<Json<StoresJson>, Problem> {
    let names = service.store_names().await?;
    Ok(Json(StoresJson { store: StoreName(names.segments), leases: StoreName(names.leases) }))
}

/// What is bound of a format to a tag.
pub(super) async fn format_of_tag(
    State(service): State<Arc<Service>>,
    Named(tag, _): Named,
    parameters: Parameters,
) -> Result<Json<BoundJson>, Problem> {
    let (part, first) = format_part(parameters)?;
    let store = service.segments_name().await?;
    let bound = service.format_of_tag(&tag, part, first).await?;
    Ok(Json(BoundJson { bound: bound.map(Number), store: StoreName(store) }))
}

/// What is bound of a format to a snowflake, in the store of the sequences.
pub(super) async fn format_of_snowflake(
    State(service): State<Arc<Service>>,
    Named(name, _): Named,
    parameters: Parameters,
) -> Result<Json<BoundJson>, Problem> {
    let (part, first) = format_part(parameters)?;
    let store = service.segments_name().await?;
    let bound = service.format_of_snowflake(&name, part, first).await?;
    Ok(Json(BoundJson { bound: bound.map(Number), store: StoreName(store) }))
}

/// The record of a tag, made if tags are made on first use.
pub(super) async fn open(
    State(service): State<Arc<Service>>,
    Named(tag, _): Named,
    mut parameters: Parameters,
) -> Result<Json<OpenedJson>, Problem> {
    let sub = parameters.take("sub");
    let shape = shape(&mut parameters, "shape")?;
    parameters.finish("sub and shape")?;
    let store = service.segments_name().await?;
    let tag = service.grantable(&tag, sub.as_deref(), shape).await?;
    let record = service.open_for_host(&tag).await?;
    Ok(Json(OpenedJson { tag: record.into(), store: StoreName(store) }))
}

/// Numbers of a tag.
pub(super) async fn segment(
    State(service): State<Arc<Service>>,
    Named(tag, permit): Named,
    mut parameters: Parameters,
) -> Result<Json<SegmentGrantJson>, Problem> {
    let count = number(&mut parameters, "count")?;
    if count == 0 {
        let detail =
            "the count is 0, it must be a whole number from 1 to 2^64 - 1; as many are granted as a segment may have";
        return Err(Problem::new(Kind::CountInvalid, detail).with("count", "0"));
    }
    let at_least = number_or(&mut parameters, "at_least", 0)?;
    let sub = parameters.take("sub");
    let shape = shape(&mut parameters, "shape")?;
    parameters.finish("count, at_least, sub and shape")?;
    let store = service.segments_name().await?;
    let grantable = service.grantable(&tag, sub.as_deref(), shape).await?;
    if at_least > RAISE_MAX && permit.has(Scope::Admin).is_err() {
        service.check_raise_by_host(&grantable, at_least).await?;
    }
    let segment = service.grant_to_host(&permit, &grantable, count, at_least).await?;
    Ok(Json(SegmentGrantJson { tag, sub, segment: segment.into(), store: StoreName(store) }))
}

/// The end of a segment that was not used.
pub(super) async fn release_segment(
    State(service): State<Arc<Service>>,
    Named(tag, _): Named,
    mut parameters: Parameters,
) -> Result<Json<ReleasedJson>, Problem> {
    let start = number(&mut parameters, "start")?;
    let version = number(&mut parameters, "version")?;
    let sub = parameters.take("sub");
    let shape = shape(&mut parameters, "shape")?;
    parameters.finish("start, version, sub and shape")?;
    let store = service.segments_name().await?;
    let tag = service.grantable(&tag, sub.as_deref(), shape).await?;
    let released = service.take_back_from_host(&tag, TailRelease { start, version }).await?;
    Ok(Json(ReleasedJson { released, store: StoreName(store) }))
}

/// A worker of a snowflake.
pub(super) async fn lease(
    State(service): State<Arc<Service>>,
    Named(namespace, _): Named,
    mut parameters: Parameters,
) -> Result<Json<LeaseGrantJson>, Problem> {
    let layout = layout(&service, &mut parameters)?;
    let now_ms = number(&mut parameters, "now_ms")?;
    let horizon_ms = number(&mut parameters, "horizon_ms")?;
    let holder = parameters.take("holder").unwrap_or_default();
    let preferred_worker =
        parameters.take_number("preferred_worker").map_err(|text| whole("preferred_worker", &text))?;
    parameters.finish("layout, now_ms, horizon_ms, holder and preferred_worker")?;
    let acquire = LeaseAcquire { namespace, layout, holder, preferred_worker, now_ms, horizon_ms };
    acquire.validate().map_err(unasked)?;
    let (lease, store) = service.lease_to_host(&acquire).await?;
    Ok(Json(LeaseGrantJson { snowflake: acquire.namespace, lease: lease.into(), store: StoreName(store) }))
}

/// A lease that goes on.
pub(super) async fn extend(
    State(service): State<Arc<Service>>,
    NamedWorker(namespace, worker): NamedWorker,
    mut parameters: Parameters,
) -> Result<Json<LeaseGrantJson>, Problem> {
    let grant_id = grant_id(&mut parameters)?;
    let layout = layout(&service, &mut parameters)?;
    let now_ms = number(&mut parameters, "now_ms")?;
    let horizon_ms = number(&mut parameters, "horizon_ms")?;
    parameters.finish("grant_id, layout, now_ms and horizon_ms")?;
    let extend = LeaseExtend { namespace, layout, worker, grant_id, now_ms, horizon_ms };
    extend.validate().map_err(unasked)?;
    let (lease, store) = service.extend_for_host(&extend).await?;
    Ok(Json(LeaseGrantJson { snowflake: extend.namespace, lease: lease.into(), store: StoreName(store) }))
}

/// A lease that ends early.
pub(super) async fn release_lease(
    State(service): State<Arc<Service>>,
    NamedWorker(namespace, worker): NamedWorker,
    mut parameters: Parameters,
) -> Result<Json<ReleasedJson>, Problem> {
    let grant_id = grant_id(&mut parameters)?;
    let end_ms = number(&mut parameters, "end_ms")?;
    parameters.finish("grant_id and end_ms")?;
    let (released, store) = service.end_for_host(&namespace, worker, grant_id, end_ms).await?;
    Ok(Json(ReleasedJson { released, store: StoreName(store) }))
}

/// What is wrong with a request, before the store is asked.
fn unasked(error: StoreError) -> Problem {
    match error {
        StoreError::Refused { what, .. } => Problem::new(Kind::QueryInvalid, what),
        error => Problem::of_grant(&error, Of::Leases),
    }
}

fn whole(name: &str, text: &str) -> Problem {
    let text = shortened(text);
    invalid(name, &text, format!("{name} is {text:?}, it must be a whole number in decimal"))
}

fn number(parameters: &mut Parameters, name: &'static str) -> Result<u64, Problem> {
    let given = parameters.take_number(name).map_err(|text| whole(name, &text))?;
    given.ok_or_else(|| missing(name))
}

fn number_or(parameters: &mut Parameters, name: &'static str, otherwise: u64) -> Result<u64, Problem> {
    let given = parameters.take_number(name).map_err(|text| whole(name, &text))?;
    Ok(given.unwrap_or(otherwise))
}

/// A number that a store keeps of a part of a format, if it is given.
fn kept_number(parameters: &mut Parameters, name: &'static str) -> Result<Option<u64>, Problem> {
    let given = parameters.take_number(name).map_err(|text| whole(name, &text))?;
    match given.filter(|number| !(1..=ID_MAX).contains(number)) {
        None => Ok(given),
        Some(number) => {
            Err(invalid(name, &number.to_string(), format!("{name} is {number}, it must be 1 to 2^63 - 1")))
        }
    }
}

/// The shape of a format, if one is given.
fn shape(parameters: &mut Parameters, name: &'static str) -> Result<Option<u64>, Problem> {
    let given = kept_number(parameters, name)?;
    match given.filter(|number| FormatShape::read(*number).is_none()) {
        None => Ok(given),
        Some(number) => {
            let detail = format!("{name} is {number}, which is no shape of a format that this server knows");
            Err(invalid(name, &number.to_string(), detail))
        }
    }
}

/// Which part of a format is asked about, and what is bound of it where nothing is.
fn format_part(mut parameters: Parameters) -> Result<(FormatPart, Option<u64>), Problem> {
    let part = match parameters.take("part").as_deref() {
        None => return Err(missing("part")),
        Some("shape") => FormatPart::Shape,
        Some("key") => {
            let id = small(&mut parameters, "key_id", 0..=255)?;
            FormatPart::Key { id, bits: small(&mut parameters, "key_bits", 2..=63)? }
        }
        Some(other) => {
            let other = shortened(other);
            return Err(invalid("part", &other, format!("part is {other:?}, it must be shape or key")));
        }
    };
    let first = match part {
        FormatPart::Shape => shape(&mut parameters, "first")?,
        FormatPart::Key { .. } => kept_number(&mut parameters, "first")?,
    };
    parameters.finish("part, key_id, key_bits and first")?;
    Ok((part, first))
}

fn small(parameters: &mut Parameters, name: &'static str, allowed: RangeInclusive<u8>) -> Result<u8, Problem> {
    let text = parameters.take(name).ok_or_else(|| missing(name))?;
    decimal(&text).filter(|number| allowed.contains(number)).ok_or_else(|| {
        let (text, (least, most)) = (shortened(&text), allowed.into_inner());
        invalid(name, &text, format!("{name} is {text:?}, it must be a whole number from {least} to {most}"))
    })
}

fn missing(name: &str) -> Problem {
    invalid(name, "", format!("the parameter {name} is missing"))
}

/// The layout of a host, as its program writes it or as people do.
fn layout(service: &Service, parameters: &mut Parameters) -> Result<Layout, Problem> {
    let text = parameters.take("layout").ok_or_else(|| missing("layout"))?;
    if let Ok(layout) = text.parse() {
        return Ok(layout);
    }
    service.layouts.layout(&text).map_err(|error| {
        let problem = Problem::from(error);
        // What a + is in a query.
        let widths = text.trim_start().split("epoch").next().unwrap_or_default().trim_end();
        let has_lost_plus =
            widths.contains(' ') && widths.bytes().all(|byte| byte.is_ascii_digit() || b"/ ".contains(&byte));
        if has_lost_plus { problem.because("in a query, write + as %2B") } else { problem }
    })
}

fn grant_id(parameters: &mut Parameters) -> Result<GrantId, Problem> {
    let text = parameters.take("grant_id").ok_or_else(|| missing("grant_id"))?;
    let is_name = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let grant_id = is_name.then(|| u128::from_str_radix(&text, 16).ok()).flatten();
    grant_id.map(GrantId).ok_or_else(|| {
        let text = shortened(&text);
        invalid(
            "grant_id",
            &text,
            format!("grant_id is {text:?}, it must be the 32 hexadecimal digits that were granted"),
        )
    })
}
