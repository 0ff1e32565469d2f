//! Paths of other id services, so that their clients work unchanged against this one.
//!
//! Each is switched on by name: `drop_in = ["leaf", "tinyid", "cosid"]`. What they share:
//!
//! - Their keys, business types and names are tags, and are created on first use where tags are (`create_tags`).
//! - An error has that service's own form, and [`Problem`] decides what it says. Only what the server as a whole
//!   refuses is a problem document here too: a path without a route, a request that took longer than
//!   `request_timeout_ms`, a body above `body_max_bytes`, a name or page that may not come in.
//! - Ids are those of the store. A tag or snowflake whose ids are shown under a key, with a shard gene, or start again,
//!   gives none here: they could be those that somebody else was shown.
//! - HEAD and TRACE give nothing: an id would be lost that nobody sees.
//! - Ids are whole numbers in every body, as those services send them, and never pass through a double.
//! - Where tokens are required, `Authorization: Bearer TOKEN` is needed, good for the tag or snowflake at hand. Single
//!   ids need the scope `read`; what a client makes ids from by itself, a segment or a machine id, needs the scope
//!   `lease`, as it does under `/v1`. Clients of Leaf and CosId send no token by themselves: a proxy before this server
//!   may add the header. tinyid's clients send their `token` parameter.
//! - A segment that a client takes is the client's for ever: it comes straight from the store, and no buffer of this
//!   process ever holds it. So an ordered tag gives none, as a client that keeps numbers back would break the order
//!   that the others were promised.

mod cosid;
mod leaf;
mod tinyid;

pub(super) use cosid::MACHINE_BITS_MAX;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use unalike::storage::{Segment, SegmentStore, TagRecord, TailRelease};
use unalike::{ID_MAX, Mode, StepPolicy};

use super::access::Route;
use crate::config::drop_in::DropIn;
use crate::config::names::plain_tag;
use crate::config::tokens::Permit;
use crate::service::Service;
use crate::service::issue::{IdForm, OTHER_PATH, Owner};
use crate::service::problem::{Kind, Problem};
use crate::service::quotas::Counted;
use crate::service::troubles::{Weight, note};
use crate::words::shortened;

/// The routes of a service.
pub(super) fn routes(service: DropIn) -> Vec<Route> {
    match service {
        DropIn::Leaf => leaf::routes(),
        DropIn::Tinyid => tinyid::routes(),
        DropIn::Cosid => cosid::routes(),
    }
}

/// Clients count on before they see that a segment is spent, each of their threads by one number. This many steps
/// behind the last number must still be whole numbers of theirs, of 64 bits and a sign, lest they wrap into negative
/// ids.
const OVERSHOOT_MAX: u64 = 1 << 20;

/// How often a store may answer with fewer numbers than were asked for.
const SHORT_GRANTS_MAX: u32 = 3;

/// How many numbers a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SegmentSize {
    /// The tag's step, or fewer.
    TagStep,
    /// This many, next to one another, and not one less.
    Exactly(u64),
}

/// Grants numbers to a client, straight from the store and for ever.
async fn grant(service: &Service, permit: &Permit, tag: &str, want: SegmentSize) -> Result<Segment, Problem> {
    // None of these services knows sub-keys.
    plain_tag(tag)?;
    service.check_bare_tag(tag, OTHER_PATH)?;
    if service.quick(tag)?.is_some() {
        let detail = format!("the tag {:?} is quick, a snowflake without segments: ask for single ids", shortened(tag));
        return Err(Problem::new(Kind::TagInvalid, detail).with("tag", shortened(tag)));
    }
    service.check_bare_format(tag).await?;
    let store = service.store();
    let record = store.open_tag(tag).await?;
    if record.options.mode == Mode::Ordered {
        let detail = format!(
            "the tag {:?} is ordered, so that no client may keep numbers of it: ask for single ids",
            shortened(tag)
        );
        return Err(Problem::new(Kind::TagInvalid, detail).with("tag", shortened(tag)));
    }
    let id_max = service.shown(tag).map_or(ID_MAX, |shown| shown.format().id_max());
    let count = match (want, record.options.step) {
        (SegmentSize::Exactly(count), _) => count,
        (SegmentSize::TagStep, StepPolicy::Fixed { step }) => step,
        // What a client does with its numbers, and how soon, is not known here: there is nothing to adapt to.
        (SegmentSize::TagStep, StepPolicy::Adaptive(adaptive)) => adaptive.initial,
    };
    let count = count.min(service.segment_count_max);
    // Nothing is granted that would be refused afterwards: it would be lost to everybody.
    let count = within_bounds(store, &record, want, count, id_max).await?;
    let counted = Counted::Tag(tag);
    let count = if want == SegmentSize::TagStep { service.quotas.grantable(permit, counted, count) } else { count };
    let taken = service.quotas.take(permit, counted, count)?;
    let granted = grant_unbounded(store, tag, want, count, id_max).await;
    taken.given(granted.as_ref().map_or(0, Segment::count));
    granted
}

async fn grant_unbounded(
    store: &dyn SegmentStore,
    tag: &str,
    want: SegmentSize,
    count: u64,
    id_max: u64,
) -> Result<Segment, Problem> {
    for _ in 0..SHORT_GRANTS_MAX {
        let segment = store.allocate(tag, count, 0).await?;
        let last = segment.end.saturating_sub(segment.stride);
        let refused = match is_usable(tag, want, segment) {
            // Others may have been granted numbers since the tag was looked at.
            Ok(true) if last > id_max => Some(beyond(tag, last, id_max)),
            Ok(true) => return Ok(segment),
            // The client reckons the first number from the last, so that fewer would be somebody else's.
            Ok(false) => None,
            Err(problem) if problem.kind() == Kind::GrantRefused => return Err(problem),
            Err(problem) => Some(problem),
        };
        // Nobody was told of them; where they cannot be given back they are a gap.
        let _ = store.release(tag, TailRelease { start: segment.start, version: segment.version }).await;
        if let Some(problem) = refused {
            return Err(problem);
        }
    }
    let detail = format!("the store gave fewer than {count} numbers at once, {SHORT_GRANTS_MAX} times: try again");
    Err(Problem::new(Kind::StoreUnavailable, detail))
}

/// How many of these numbers the tag still has, as far as can be seen before any are granted.
async fn within_bounds(
    store: &dyn SegmentStore,
    record: &TagRecord,
    want: SegmentSize,
    count: u64,
    id_max: u64,
) -> Result<u64, Problem> {
    if store.stripes() > 1 {
        if want != SegmentSize::TagStep {
            return Err(strided(&record.tag, store.stripes()));
        }
        // How far each of them has got, no record says.
        return Ok(count);
    }
    let last_max = id_max.min(ID_MAX - OVERSHOOT_MAX);
    let left = last_max.saturating_sub(record.watermark);
    // Of a tag that was used up nothing is granted, unless its store begins again.
    if count <= left || record.watermark >= ID_MAX {
        return Ok(count);
    }
    // What a durable store granted to Redis may not be handed out yet.
    let left = match store.ceiling(&record.tag).await? {
        Some(ceiling) => last_max.saturating_sub(ceiling.last),
        None => left,
    };
    match want {
        _ if count <= left => Ok(count),
        SegmentSize::TagStep if left > 0 => Ok(left),
        SegmentSize::TagStep | SegmentSize::Exactly(_) => {
            let last = (last_max - left).saturating_add(count);
            Err(if last_max == id_max {
                beyond(&record.tag, last, id_max)
            } else {
                too_near_the_end(&record.tag, last)
            })
        }
    }
}

fn beyond(tag: &str, last: u64, id_max: u64) -> Problem {
    let detail = format!(
        "the numbers of the tag {:?} up to {last} pass {id_max}, the greatest that it is configured to have",
        shortened(tag)
    );
    Problem::new(Kind::Exhausted, detail).with("name", shortened(tag))
}

fn too_near_the_end(tag: &str, last: u64) -> Problem {
    let shown = shortened(tag);
    let detail =
        format!("the numbers of the tag {shown:?} up to {last} are too near 2^63 for a segment: ask for single ids");
    Problem::new(Kind::Exhausted, detail).with("name", shown)
}

fn strided(tag: &str, stride: impl std::fmt::Display) -> Problem {
    let shown = shortened(tag);
    let detail = format!("the numbers of the tag {shown:?} lie {stride} apart, and this client counts by 1");
    Problem::new(Kind::TagInvalid, detail).with("tag", shown)
}

/// Refuses what is not an interval of numbers.
fn check_segment(tag: &str, segment: Segment) -> Result<(), Problem> {
    let Err(error) = segment.validate() else { return Ok(()) };
    note(Kind::GrantRefused.name(), Weight::Lasting, format!("{tag:?} was granted {segment:?}: {error}"));
    Err(Problem::new(Kind::GrantRefused, "the grant was not used: look at the store"))
}

/// Whether these are the numbers that a client can count through, or too few of them.
fn is_usable(tag: &str, want: SegmentSize, segment: Segment) -> Result<bool, Problem> {
    check_segment(tag, segment)?;
    let last = segment.end - segment.stride;
    let reach = segment.stride.checked_mul(OVERSHOOT_MAX);
    if reach.is_none_or(|reach| reach > ID_MAX - last) {
        return Err(too_near_the_end(tag, last));
    }
    let SegmentSize::Exactly(count) = want else { return Ok(true) };
    if segment.stride != 1 {
        return Err(strided(tag, segment.stride));
    }
    if segment.count() > count {
        let error = format!("{tag:?} was granted {segment:?}, more than the {count} numbers that were asked for");
        note(Kind::GrantRefused.name(), Weight::Lasting, error);
        return Err(Problem::new(Kind::GrantRefused, "the grant was not used: look at the store"));
    }
    Ok(segment.count() == count)
}

/// One id, bare.
async fn next_of(service: &Service, permit: &Permit, owner: Owner<'_>) -> Result<u64, Problem> {
    let issued = service.issue(permit, owner, 1, IdForm::Bare).await?;
    let none = || Problem::new(Kind::Internal, "an internal error: one id was asked for, and none came");
    issued.into_numbers()?.pop().ok_or_else(none)
}

/// Up to this many ids come through the sequence in time, however short the tag's segments are.
const THROUGH_SEQUENCE: u32 = 1_000;

/// Ids of a tag, so many at once, bare.
///
/// Each segment is a write to the store, and clients wait for some seconds. Where a batch would take very many, as the
/// tag's step is fixed and short, its numbers come straight from the store, as a segment does.
async fn take_of_tag(service: &Service, permit: &Permit, tag: &str, count: u32) -> Result<Vec<u64>, Problem> {
    const SEGMENTS_MAX: u64 = 16;
    if count > THROUGH_SEQUENCE && !service.is_quick(tag) && service.shown(tag).is_none() {
        service.check_bare_format(tag).await?;
        let options = service.store().open_tag(tag).await?.options;
        if let (Mode::Buffered, StepPolicy::Fixed { step }) = (options.mode, options.step)
            && u64::from(count) > step.saturating_mul(SEGMENTS_MAX)
        {
            let taken = service.quotas.take(permit, Counted::Tag(tag), count.into())?;
            let ids = take_from_store(service, tag, count).await;
            taken.given(if ids.is_ok() { count.into() } else { 0 });
            return ids;
        }
    }
    Ok(service.issue(permit, Owner::tag(tag), count, IdForm::Bare).await?.into_numbers()?)
}

async fn take_from_store(service: &Service, tag: &str, count: u32) -> Result<Vec<u64>, Problem> {
    /// A store may answer with fewer numbers than were asked for.
    const GRANTS_MAX: u32 = 64;
    let wanted = usize::try_from(count).unwrap_or(usize::MAX);
    let mut ids: Vec<u64> = Vec::with_capacity(wanted);
    for _ in 0..GRANTS_MAX {
        let lacking = wanted - ids.len();
        let asked = u64::try_from(lacking).unwrap_or(u64::MAX).min(service.segment_count_max);
        let segment = service.store().allocate(tag, asked, 0).await?;
        check_segment(tag, segment)?;
        let mut next = segment.start;
        while next < segment.end && ids.len() < wanted {
            ids.push(next);
            next += segment.stride;
        }
        if next < segment.end {
            // Where they cannot be given back they are a gap.
            let _ = service.store().release(tag, TailRelease { start: next, version: segment.version }).await;
        }
        if ids.len() == wanted {
            // Those of several stores come in turn.
            ids.sort_unstable();
            return Ok(ids);
        }
    }
    let detail = format!("the store gave fewer than {count} numbers in {GRANTS_MAX} grants: ask for fewer at once");
    Err(Problem::new(Kind::StoreUnavailable, detail))
}

/// The name of the snowflake that ids come from when the path names none: the one called as the service is, if it is
/// configured, or else `default`.
fn snowflake_name(service: &Service, drop_in: &'static str) -> &'static str {
    if service.has_snowflake(drop_in) { drop_in } else { "default" }
}

/// The parameters of a path, percent-decoded.
async fn path_of<T: DeserializeOwned + Send>(parts: &mut Parts) -> Result<T, Problem> {
    match Path::<T>::from_request_parts(parts, &()).await {
        Ok(Path(parameters)) => Ok(parameters),
        Err(_) => Err(Problem::new(Kind::TagInvalid, "a name in the path is not UTF-8 once percent-decoded")),
    }
}

/// The parameters of a request, those of its query before those of its form. Unknown ones are nobody's business: those
/// services take any.
#[derive(Clone)]
struct Parameters {
    query: String,
    form: Bytes,
}

impl Parameters {
    /// Those of a request with any method, and its head.
    async fn of(request: Request) -> (Parts, Result<Self, Problem>) {
        let (parts, body) = request.into_parts();
        let media = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media = media.split(';').next().unwrap_or_default().trim();
        let form = if media.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            Bytes::from_request(Request::from_parts(parts.clone(), body), &())
                .await
                .map_err(|rejection| Problem::body_refused(rejection.status(), rejection.body_text()))
        } else {
            Ok(Bytes::new())
        };
        let query = parts.uri.query().unwrap_or_default().to_owned();
        (parts, form.map(|form| Self { query, form }))
    }

    /// Only those of a query.
    fn of_query(parts: &Parts) -> Self {
        Self { query: parts.uri.query().unwrap_or_default().to_owned(), form: Bytes::new() }
    }

    /// The first value; an empty one counts as none.
    fn get(&self, name: &str) -> Option<String> {
        let pairs = form_urlencoded::parse(self.query.as_bytes()).chain(form_urlencoded::parse(&self.form));
        let mut values = pairs.filter(|(known, _)| known == name).map(|(_, value)| value.into_owned());
        values.next().filter(|value| !value.is_empty())
    }
}

/// A finished answer.
fn finished(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = (status, [(CONTENT_TYPE, HeaderValue::from_static(content_type))], body.into()).into_response();
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// JSON of what is always written: text and whole numbers.
fn json(status: StatusCode, content_type: &'static str, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => finished(status, content_type, body),
        Err(error) => Problem::unwritten(&error).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(start: u64, end: u64, stride: u64) -> Segment {
        Segment { start, end, stride, generation: 0, version: 1 }
    }

    #[test]
    fn a_client_that_counts_back_from_the_last_number_gets_exactly_as_many() {
        let usable = |segment| is_usable("order", SegmentSize::Exactly(100), segment).map_err(|problem| problem.kind());
        assert_eq!(usable(segment(1, 101, 1)), Ok(true));
        assert_eq!(usable(segment(1, 100, 1)), Ok(false), "fewer are a gap");
        assert_eq!(usable(segment(1, 102, 1)), Err(Kind::GrantRefused), "more were not asked for");
        assert_eq!(usable(segment(1, 201, 2)), Err(Kind::TagInvalid), "it would take the numbers between");
        assert_eq!(usable(segment(5, 5, 1)), Err(Kind::GrantRefused), "no interval");
    }

    #[test]
    fn no_client_counts_into_negative_numbers() {
        let usable = |segment| is_usable("order", SegmentSize::TagStep, segment).map_err(|problem| problem.kind());
        let last = ID_MAX - OVERSHOOT_MAX;
        assert_eq!(usable(segment(last, last + 1, 1)), Ok(true));
        assert_eq!(usable(segment(last + 1, last + 2, 1)), Err(Kind::Exhausted));
        assert_eq!(usable(segment(1, 1 + (1 << 43), 1 << 43)), Err(Kind::Exhausted), "a stride that overflows");
        assert_eq!(usable(segment(1, 41, 4)), Ok(true));
    }
}
