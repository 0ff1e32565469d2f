//! Tags: listed, created, changed, raised.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, Request, State};
use axum::http::{StatusCode, Uri};
use serde::Serialize;
use serde::de::DeserializeOwned;
use unalike::SUB_SEPARATOR;
use unalike::storage::validate_raise;

use super::access::{Named, Permitted};
use super::query::{Parameters, invalid};
use crate::config::names::stored_name;
use crate::http::tag_json::{NewTag, TagChange, TagCreate, TagJson};
use crate::service::Service;
use crate::service::problem::{Kind, Problem};
use crate::service::tags::change_tag;
use crate::service::tags::{check_raise_of, instead_of_raise, reached, unchanged};

/// How many tags one page has at most, and when nothing is asked: a page is read into memory.
const LIMIT_MAX: u32 = 1_000;
const LIMIT_DEFAULT: u32 = 100;

/// A page of tags in the byte order of their names; the next page comes after the last of this one.
#[derive(Serialize)]
pub(super) struct TagPage {
    tags: Vec<TagJson>,
}

pub(super) async fn list(
    State(service): State<Arc<Service>>,
    Permitted(permit): Permitted,
    uri: Uri,
) -> Result<Json<TagPage>, Problem> {
    permit.covers_all()?;
    let mut parameters = Parameters::of(&uri)?;
    let limit_invalid = |text: String| {
        invalid("limit", &text, format!("limit is {text:?}, it must be a whole number from 1 to {LIMIT_MAX}"))
    };
    let limit = parameters.take_number("limit").map_err(limit_invalid)?.unwrap_or(LIMIT_DEFAULT);
    if limit == 0 || limit > LIMIT_MAX {
        return Err(limit_invalid(limit.to_string()));
    }
    let after = parameters.take("after");
    let after_sub = parameters.take("after_sub");
    parameters.finish("after, after_sub and limit")?;
    let after = match (after, after_sub) {
        (Some(after), Some(sub)) => Some(format!("{after}{SUB_SEPARATOR}{sub}")),
        (None, Some(sub)) => {
            return Err(invalid("after_sub", &sub, "after_sub needs after, the tag that it belongs to"));
        }
        (after, None) => after,
    };
    let records = service.store().tags(after.as_deref(), limit).await?;
    Ok(Json(TagPage { tags: records.into_iter().map(TagJson::from).collect() }))
}

pub(super) async fn create(
    State(service): State<Arc<Service>>,
    Permitted(permit): Permitted,
    Body(body): Body<TagCreate>,
) -> Result<(StatusCode, Json<TagJson>), Problem> {
    permit.covers(&body.tag)?;
    let record = match body.new_tag()? {
        NewTag::Options(options) => service.store().create_tag(&body.tag, &options).await?,
        NewTag::Declared(declared) => service.stores().create(&body.tag, &declared).await?,
    };
    tracing::info!(tag = record.tag, by = permit.token_name(), "a tag was created");
    Ok((StatusCode::CREATED, Json(record.into())))
}

pub(super) async fn show(
    State(service): State<Arc<Service>>,
    Named(tag, _): Named,
    uri: Uri,
) -> Result<Json<TagJson>, Problem> {
    let name = stored_name(&tag, sub_of(&uri)?.as_deref())?;
    let store = service.store();
    let record = store.tag(&name).await?;
    Ok(Json(TagJson::from(record).below(store.ceiling(&name).await?)))
}

/// The sub-key that a request for one tag means.
fn sub_of(uri: &Uri) -> Result<Option<String>, Problem> {
    let mut parameters = Parameters::of(uri)?;
    let sub = parameters.take("sub");
    parameters.finish("sub")?;
    Ok(sub)
}

pub(super) async fn change(
    State(service): State<Arc<Service>>,
    Named(tag, permit): Named,
    uri: Uri,
    Body(body): Body<TagChange>,
) -> Result<Json<TagJson>, Problem> {
    let tag = stored_name(&tag, sub_of(&uri)?.as_deref())?;
    let store = service.store();
    let explained = |problem: Problem| match body.raise_to {
        Some(next) if problem.kind() == Kind::TagUnknown => problem.saying(instead_of_raise(&tag, next.0)),
        _ => problem,
    };
    if let Some(next) = body.raise_to {
        validate_raise(&tag, next.0)?;
        let checked = check_raise_of::<Problem>(store, &tag, next.0, body.confirm == Some(true)).await;
        checked.map_err(explained)?;
    }
    let before = reached(store, &tag).await.map_err(|error| explained(error.into()))?;
    // The raise first: if it is refused, nothing has changed.
    let raised = match body.raise_to {
        Some(next) => Some(store.raise_tag(&tag, next.0).await?),
        None => None,
    };
    let record = match (raised, body.step, body.refill) {
        (Some(raised), None, None) => raised,
        (_, step, refill) => change_tag(store, &tag, step.map(Into::into), refill.map(Into::into)).await?,
    };
    // Of several stores some may have been behind.
    let is_known = body.raise_to.is_none() || store.stripes() == 1;
    let why = unchanged(&before, &record, body.raise_to.map(|next| next.0)).filter(|_| is_known);
    if why.is_none() {
        tracing::info!(tag = record.tag, watermark = record.watermark, by = permit.token_name(), "a tag was changed");
    }
    Ok(Json(TagJson::from(record).unchanged(why)))
}

/// A body of JSON, whose every fault is a problem.
pub(super) struct Body<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(body)) => Ok(Self(body)),
            Err(rejection) => {
                let (status, said) = (rejection.status(), rejection.body_text());
                // axum's words speak of its own types first.
                let what = said.split_once(": ").map_or(said.as_str(), |(_, what)| what);
                let detail = match rejection {
                    JsonRejection::JsonDataError(_) => format!("the body is not valid: {what}"),
                    JsonRejection::JsonSyntaxError(_) => format!("the body is not JSON: {what}"),
                    JsonRejection::MissingJsonContentType(_) => {
                        "the body must be JSON, declared as such: send Content-Type: application/json".to_owned()
                    }
                    _ => said,
                };
                Err(Problem::body_refused(status, detail))
            }
        }
    }
}
