//! The HTTP interface: routes, limits, and what happens to requests that fit no route.
//!
//! Limits of a request: its body (`body_max_bytes`), the number of ids (`count_max`), its time
//! (`request_timeout_ms`), and hyper's own: 100 headers, 64 KiB of URL, and a head of some 400 KiB in all. What hyper
//! cannot read as HTTP it answers itself, without a body. The number of connections, and the time that a client takes for
//! the head of a request, are not limited: before an open network this service needs a proxy, as it knows no users.

mod ids;
mod layouts;
pub(crate) mod metrics;
mod query;
mod tags;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use axum::http::request::Parts;
use axum::http::{Method, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use serde_json::json;
use unalike::storage::validate_tag;

use self::metrics::Metrics;
use crate::config::Config;
use crate::layouts::shortened;
use crate::problem::{Kind, Problem};
use crate::service::Service;

/// The routes over a service.
pub(crate) fn router(config: &Config, service: Arc<Service>, metrics: Arc<Metrics>) -> Router {
    let limit = Duration::from_millis(config.request_timeout_ms);
    Router::new()
        .route("/v1/sequences/{tag}/ids", get(ids::of_sequence).post(ids::of_sequence).head(method_not_allowed))
        .route("/v1/sequences//ids", get(empty_name).post(empty_name))
        .route("/v1/snowflakes/{name}/ids", get(ids::of_snowflake).post(ids::of_snowflake).head(method_not_allowed))
        .route("/v1/tags", get(tags::list).post(tags::create))
        .route("/v1/tags/{tag}", get(tags::show).patch(tags::change))
        .route("/v1/tags/", get(empty_name).patch(empty_name))
        .route("/v1/decode/{id}", get(layouts::decode))
        .route("/v1/layouts", get(layouts::list))
        .route("/metrics", get(metrics::render).layer(Extension(metrics)))
        .route("/health/live", get(live))
        .route("/health/ready", get(ready))
        .fallback(route_unknown)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(limit, limited))
        .layer(DefaultBodyLimit::max(config.body_max_bytes))
        .with_state(service)
}

/// Bounds the time of a request, and keeps caches from giving an id to two callers.
async fn limited(State(limit): State<Duration>, request: Request, next: Next) -> Response {
    let limit_ms = || u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    let mut response = tokio::time::timeout(limit, next.run(request))
        .await
        .unwrap_or_else(|_| Problem::timeout(limit_ms()).into_response());
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn route_unknown(uri: Uri) -> Problem {
    Problem::route_unknown(&uri)
}

async fn method_not_allowed(method: Method) -> Problem {
    Problem::method_not_allowed(&method)
}

async fn empty_name() -> Problem {
    validate_tag("").err().map_or_else(|| Problem::new(Kind::TagInvalid, "the tag is empty"), Problem::from)
}

/// The process runs and serves requests; nothing is said about the store.
async fn live() -> Json<serde_json::Value> {
    Json(json!({ "status": "live" }))
}

/// The store answers and can be written to.
async fn ready(State(service): State<Arc<Service>>) -> Result<Json<serde_json::Value>, Problem> {
    service.check().await?;
    Ok(Json(json!({ "status": "ready" })))
}

/// The one parameter of a path, percent-decoded.
struct Name(String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Self(name)),
            Err(_) => Err(Problem::new(Kind::TagInvalid, "the name is not UTF-8 once percent-decoded")
                .with("path", shortened(parts.uri.path()))),
        }
    }
}

/// A body of finished JSON or text.
fn finished(content_type: &'static str, body: Vec<u8>) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static(content_type))], body).into_response()
}
