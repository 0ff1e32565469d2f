//! Snowflake layouts, ids taken apart, and the ids of a span of time.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::access::Name;
use super::query::{Parameters, invalid};
use crate::config::layouts::{IdRange, LAYOUT_DEFAULT, LayoutFigures, RangeError};
use crate::service::Service;
use crate::service::problem::Problem;

pub(super) async fn decode(State(service): State<Arc<Service>>, Name(id): Name, uri: Uri) -> Result<Response, Problem> {
    let mut parameters = Parameters::of(&uri)?;
    let (layout, all) = (parameters.take("layout"), parameters.take("all"));
    parameters.finish("layout and all")?;
    let is_all = match all.as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => return Err(invalid("all", other, "all is true or false")),
    };
    match layout {
        Some(layout) => Ok(Json(service.layouts.decode(&id, &layout)?).into_response()),
        None => Ok(Json(service.layouts.candidates(&id, is_all)?).into_response()),
    }
}

pub(super) async fn range(State(service): State<Arc<Service>>, uri: Uri) -> Result<Json<IdRange>, Problem> {
    let mut parameters = Parameters::of(&uri)?;
    let layout = parameters.take("layout");
    let (from, to) = (parameters.take("from"), parameters.take("to"));
    parameters.finish("layout, from and to")?;
    let given = |name: &str, value: Option<String>| {
        value.ok_or_else(|| invalid(name, "", format!("{name} is missing: a date, RFC 3339 or Unix milliseconds")))
    };
    let (from, to) = (given("from", from)?, given("to", to)?);
    let layout = layout.as_deref().unwrap_or(LAYOUT_DEFAULT);
    service.layouts.range(layout, &from, &to).map(Json).map_err(|error| {
        let detail = error.to_string();
        match error {
            RangeError::Layout(error) => Problem::from(error),
            RangeError::Bound { bound, text, .. } => invalid(bound, &text, detail),
            RangeError::Unsorted { name, .. } => invalid("layout", &name, detail),
            RangeError::Span { .. } => invalid("to", &to, detail),
        }
    })
}

/// All layouts.
#[derive(Serialize)]
pub(super) struct LayoutList {
    layouts: Vec<LayoutFigures>,
}

pub(super) async fn list(State(service): State<Arc<Service>>) -> Json<LayoutList> {
    Json(LayoutList { layouts: service.layouts.all() })
}
