//! The HTTP interface: routes, limits of a request, and what happens to requests that fit no route.
//!
//! Limits of a request: the length of its URL (`url_max_bytes`), its body (`body_max_bytes`), the number of ids
//! (`count_max`), its time (`request_timeout_ms`). Those of a head and a connection are in [`crate::connections`]. What
//! hyper cannot read as HTTP, or a head beyond its limits, it answers itself, without a body.
//!
//! A route asks for the token that it needs by an extractor: [`Readable`] and [`Changeable`] for one tag, [`Reader`]
//! and [`Admin`] for anything else. Only what lies under `/health` and the OpenAPI document need none.

mod body;
mod drop_in;
mod formats;
mod ids;
mod layouts;
pub(crate) mod metrics;
mod openapi;
mod query;
mod random_ids;
mod tags;

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue};
use axum::http::request::Parts;
use axum::http::{Method, Request, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use axum::{Extension, Json, Router};
use hyper::body::{Body as _, Incoming};
use serde_json::json;
use tower_service::Service as _;
use tracing::Level;
use unalike::storage::{split_tag, validate_tag};

use self::body::RequestBody;
use self::metrics::Metrics;
use crate::auth::{Permit, Scope, bearer};
use crate::config::Config;
use crate::layouts::{rfc3339, shortened};
use crate::problem::{Kind, Problem};
use crate::request_id::{self, X_REQUEST_ID};
use crate::service::{Checked, Service};
use crate::tags::plain_tag;

pub(crate) use drop_in::{DropIn, SEGMENT_COUNT_MAX};

fn routes(config: &Config, metrics: Arc<Metrics>) -> Routes {
    let routes = Routes::default()
        .route("/v1/sequences/{tag}/ids", get(ids::of_sequence).post(ids::of_sequence).head(method_not_allowed))
        .route("/v1/sequences//ids", get(empty_name).post(empty_name))
        .route("/v1/snowflakes/{name}/ids", get(ids::of_snowflake).post(ids::of_snowflake).head(method_not_allowed))
        .route("/v1/uuids", get(random_ids::uuids).post(random_ids::uuids).head(method_not_allowed))
        .route("/v1/ulids", get(random_ids::ulids).post(random_ids::ulids).head(method_not_allowed))
        .route("/v1/tags", get(tags::list).post(tags::create))
        .route("/v1/tags/{tag}", get(tags::show).patch(tags::change))
        .route("/v1/tags/", get(empty_name).patch(empty_name))
        .route("/v1/decode/{id}", get(formats::decode))
        .route("/v1/layouts", get(layouts::list))
        .route("/v1/range", get(layouts::range))
        .route("/metrics", get(metrics::render).layer(Extension(metrics)))
        .route("/health/live", get(live))
        .route("/health/ready", get(ready));
    let routes = config
        .drop_ins()
        .into_iter()
        .flat_map(DropIn::routes)
        .fold(routes, |routes, (template, methods)| routes.route(template, methods));
    let document = openapi::route(config, &routes.templates);
    routes.route(openapi::PATH, document)
}

/// A template, and what answers there by which methods.
type Route = (&'static str, MethodRouter<Arc<Service>>);

/// Routes, and their templates: for the log, and for the OpenAPI document, which describes these and no others.
#[derive(Default)]
struct Routes {
    router: Router<Arc<Service>>,
    templates: Vec<&'static str>,
}

impl Routes {
    fn route(mut self, template: &'static str, methods: MethodRouter<Arc<Service>>) -> Self {
        self.router = self.router.route(template, methods);
        self.templates.push(template);
        self
    }
}

/// Where each request comes in and each answer goes out.
pub(crate) struct Front {
    router: Router,
    service: Arc<Service>,
    templates: Vec<&'static str>,
    request_timeout_ms: u64,
    url_max_bytes: usize,
    body_max_bytes: usize,
}

impl Front {
    /// The routes over a service.
    pub(crate) fn new(config: &Config, service: Arc<Service>, metrics: Arc<Metrics>) -> Self {
        let Routes { router, templates } = routes(config, metrics);
        Self {
            // No layers: each would allocate for every request.
            router: router
                .fallback(route_unknown)
                .method_not_allowed_fallback(method_not_allowed)
                .with_state(Arc::clone(&service)),
            service,
            templates,
            request_timeout_ms: config.request_timeout_ms,
            url_max_bytes: config.url_max_bytes,
            body_max_bytes: config.body_max_bytes,
        }
    }

    /// The answer to a request.
    pub(crate) fn answer(&self, request: Request<Incoming>) -> Answer<'_> {
        let is_short = request.uri().path().len() <= self.url_max_bytes;
        if is_short
            && request.body().is_end_stream()
            && !tracing::enabled!(Level::DEBUG)
            && let Some(response) = ids::at_once(&self.service, &request)
        {
            return Answer::Now(Some(finish(response, self.id_of(&request))));
        }
        Answer::Later(Box::pin(self.answer_later(request)))
    }

    async fn answer_later(&self, request: Request<Incoming>) -> Response {
        let id = self.id_of(&request);
        let response = request_id::within(id.clone(), self.answer_logged(request)).await;
        finish(response, id)
    }

    fn id_of(&self, request: &Request<Incoming>) -> HeaderValue {
        request_id::of(request.headers(), |id| self.service.tokens.contain(id))
    }

    async fn answer_logged(&self, request: Request<Incoming>) -> Response {
        if !tracing::enabled!(Level::DEBUG) {
            return self.answer_limited(request).await;
        }
        // The route and not the path, and never the query: clients of other systems send their tokens there.
        let (method, route, start) = (request.method().clone(), self.route_of(request.uri()), Instant::now());
        let response = self.answer_limited(request).await;
        let duration_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        tracing::debug!(%method, route, status = response.status().as_u16(), duration_us, "answered");
        response
    }

    async fn answer_limited(&self, request: Request<Incoming>) -> Response {
        let url_bytes = request.uri().path_and_query().map_or(0, |url| url.as_str().len());
        if url_bytes > self.url_max_bytes {
            return Problem::url_too_long(url_bytes, self.url_max_bytes).into_response();
        }
        let limit = Duration::from_millis(self.request_timeout_ms);
        let timeout = || Problem::timeout(self.request_timeout_ms).into_response();
        let (parts, body) = request.into_parts();
        if body.is_end_stream() {
            // No body, which costs no allocation. Most answers are there at once, and need no timer.
            let mut answer = pin!(self.route(Request::from_parts(parts, Body::empty())));
            return match poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await {
                Poll::Ready(response) => response,
                Poll::Pending => tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| timeout()),
            };
        }
        let body = RequestBody::new(body, self.body_max_bytes, &parts.headers);
        let request = Request::from_parts(parts, Body::new(body.clone()));
        let deadline = tokio::time::Instant::now() + limit;
        let mut response = tokio::time::timeout_at(deadline, self.route(request)).await.unwrap_or_else(|_| timeout());
        if !tokio::time::timeout_at(deadline, body.read_away()).await.unwrap_or(false) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    async fn route(&self, request: Request<Body>) -> Response {
        match self.router.clone().call(request).await {
            Ok(response) => response,
        }
    }

    /// The template of the route that a path takes.
    fn route_of(&self, uri: &Uri) -> &'static str {
        let fits = |template: &str| {
            let mut segments = uri.path().split('/');
            template.split('/').all(|part| segments.next().is_some_and(|given| part.starts_with('{') || part == given))
                && segments.next().is_none()
        };
        self.templates.iter().copied().find(|template| fits(template)).unwrap_or("none")
    }
}

/// The answer to a request, which is small where it is there already: hyper moves it to the heap.
pub(crate) enum Answer<'a> {
    /// Taken out once.
    Now(Option<Response>),
    Later(Pin<Box<dyn Future<Output = Response> + Send + 'a>>),
}

impl Future for Answer<'_> {
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            // A future is not polled again once it was ready.
            Self::Now(response) => response.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(response))),
            Self::Later(answer) => answer.as_mut().poll(context).map(Ok),
        }
    }
}

/// Adds the headers that every answer has.
fn finish(mut response: Response, id: HeaderValue) -> Response {
    let headers = response.headers_mut();
    // A cache would give an id to two callers.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_REQUEST_ID, id);
    response
}

async fn route_unknown(uri: Uri) -> Problem {
    Problem::route_unknown(&uri)
}

async fn method_not_allowed(method: Method) -> Problem {
    Problem::method_not_allowed(&method)
}

async fn empty_name(_: Reader) -> Problem {
    validate_tag("").err().map_or_else(|| Problem::new(Kind::TagInvalid, "the tag is empty"), Problem::from)
}

/// The process runs and serves requests; nothing is said about the store.
async fn live() -> Json<serde_json::Value> {
    Json(json!({ "status": "live" }))
}

/// The server is not about to end; the store answers and can be written to, or what it granted before still lasts; and
/// each snowflake that is in use gives ids.
async fn ready(State(service): State<Arc<Service>>) -> Result<Json<serde_json::Value>, Problem> {
    if service.is_ending() {
        return Err(Problem::closing());
    }
    let checked = service.check().await.map_err(|error| Problem::from(&*error))?;
    if let Some(stop) = service.stopped_snowflakes().into_iter().next() {
        let since = rfc3339(stop.since_ms);
        return Err(Problem::from(stop.error).with("snowflake", stop.name).with("stopped_since", since));
    }
    let (outage, error) = match checked {
        Checked::Up => return Ok(Json(json!({ "status": "ready" }))),
        Checked::Down(outage, error) => (outage, error),
    };
    let (is_covered, since) = (outage.is_covered(service.uses_snowflakes()), rfc3339(outage.since_ms));
    let (tag, cover_seconds) = outage.least.unzip();
    if is_covered {
        return Ok(Json(json!({
            "status": "covered", "store_down_since": since, "cover_seconds": cover_seconds, "tag": tag,
        })));
    }
    Err(Problem::from(&*error).with("store_down_since", since).with("cover_seconds", cover_seconds).with("tag", tag))
}

/// A request whose token, if tokens are wanted, may look at things and take ids.
struct Reader(Permit);

/// A request whose token, if tokens are wanted, may change things.
struct Admin(Permit);

/// The name in a path, of a tag or snowflake that the request may look at and take ids of.
struct Readable(String);

/// The name in a path, of a tag that the request may change, and by what permission.
struct Changeable(String, Permit);

impl FromRequestParts<Arc<Service>> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Arc<Service>) -> Result<Self, Problem> {
        Ok(Self(service.tokens.permit(bearer(&parts.headers), Scope::Read)?))
    }
}

impl FromRequestParts<Arc<Service>> for Admin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Arc<Service>) -> Result<Self, Problem> {
        Ok(Self(service.tokens.permit(bearer(&parts.headers), Scope::Admin)?))
    }
}

impl FromRequestParts<Arc<Service>> for Readable {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Arc<Service>) -> Result<Self, Problem> {
        let Name(name) = Name::from_request_parts(parts, service).await?;
        service.tokens.check(bearer(&parts.headers), Scope::Read, &name)?;
        Ok(Self(name))
    }
}

impl FromRequestParts<Arc<Service>> for Changeable {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Arc<Service>) -> Result<Self, Problem> {
        let Name(name) = Name::from_request_parts(parts, service).await?;
        let permit = service.tokens.permit(bearer(&parts.headers), Scope::Admin)?;
        permit.covers(&name)?;
        Ok(Self(name, permit))
    }
}

/// The one parameter of a path, percent-decoded.
struct Name(String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<String>::from_request_parts(parts, state).await {
            // An empty or a long one is answered by whoever looks it up.
            Ok(Path(name)) if split_tag(&name).1.is_none() => Ok(Self(name)),
            Ok(Path(name)) => plain_tag(&name).map(|()| Self(name)).map_err(Problem::from),
            Err(_) => Err(Problem::new(Kind::TagInvalid, "the name is not UTF-8 once percent-decoded")
                .with("path", shortened(parts.uri.path()))),
        }
    }
}

/// A body of finished JSON or text.
fn finished(content_type: &'static str, body: Vec<u8>) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static(content_type))], body).into_response()
}
