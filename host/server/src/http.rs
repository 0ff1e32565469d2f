//! The HTTP interface: routes, limits of a request, and what happens to requests that fit no route.
//!
//! Limits of a request: the length of its URL (`url_max_bytes`), its body (`body_max_bytes`), the number of ids
//! (`count_max`), its time (`request_timeout_ms`). Those of a head and a connection are in [`crate::connections`], and
//! so is what cannot be read as HTTP. Who may come in at all is in [`crate::doors`].
//!
//! Each method of a route states which token it needs, see [`access`]. Only what lies under `/health`, the OpenAPI
//! document, and the page of the console need none.

mod access;
mod body;
#[cfg(feature = "component")]
pub(crate) mod component;
pub(crate) mod connections;
pub(crate) mod console;
mod doors;
mod drop_in;
mod formats;
mod grants;
mod ids;
mod layouts;
pub(crate) mod metrics;
mod openapi;
mod pace;
mod problem;
mod process;
mod query;
mod random_ids;
pub(crate) mod request_id;
mod tag_json;
mod tags;
mod traffic;

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue};
use axum::http::{Method, Request, StatusCode, Uri, Version};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use clap::ValueEnum as _;
use hyper::body::{Body as _, Incoming};
use serde_json::json;
use tower_service::Service as _;
use tracing::Level;
use unalike::storage::validate_tag;

use self::access::{ADMIN, IDS, LEASE, Methods, Needs, OWN, READ, Route, refused_method};
use self::body::RequestBody;
use self::metrics::Metrics;
use self::query::Parameters;
use crate::config::Config;
use crate::config::drop_in::DropIn;
use crate::http::doors::{Doors, Page};
use crate::http::request_id::X_REQUEST_ID;
use crate::service::Service;
use crate::service::problem::{Kind, Problem};
use crate::words::likeliest;

pub(crate) use traffic::{Arrival, Traffic};

/// Where load balancers ask whether the server may be sent requests.
const READY: &str = "/health/ready";

/// Where most requests go.
const SEQUENCES: &str = "/v1/sequences/{tag}/ids";
const SNOWFLAKES: &str = "/v1/snowflakes/{name}/ids";

fn routes(config: &Config, metrics: Arc<Metrics>, console: Arc<console::Console>) -> Routes {
    let own = || Methods::behind(OWN);
    let ids = Needs::Token(IDS);
    let routes = [
        own().get(ids, ids::of_sequence).post(ids, ids::of_sequence).without_head().at(SEQUENCES),
        own().get(ids, empty_name).post(ids, empty_name).at("/v1/sequences//ids"),
        own().get(ids, ids::of_snowflake).post(ids, ids::of_snowflake).without_head().at(SNOWFLAKES),
        own().get(LEASE, grants::stores).without_head().at("/v1/store"),
        own().post(LEASE, grants::format_of_tag).at("/v1/sequences/{tag}/format"),
        own().post(LEASE, grants::open).at("/v1/sequences/{tag}/open"),
        own().post(LEASE, grants::segment).at("/v1/sequences/{tag}/segments"),
        own().post(LEASE, grants::release_segment).at("/v1/sequences/{tag}/segments/release"),
        own().post(LEASE, grants::format_of_snowflake).at("/v1/snowflakes/{name}/format"),
        own().post(LEASE, grants::lease).at("/v1/snowflakes/{name}/leases"),
        own().post(LEASE, grants::extend).at("/v1/snowflakes/{name}/leases/{worker}/extend"),
        own().post(LEASE, grants::release_lease).at("/v1/snowflakes/{name}/leases/{worker}/release"),
        own().get(READ, random_ids::uuids).post(READ, random_ids::uuids).without_head().at("/v1/uuids"),
        own().get(READ, random_ids::ulids).post(READ, random_ids::ulids).without_head().at("/v1/ulids"),
        own().get(READ, tags::list).post(ADMIN, tags::create).at("/v1/tags"),
        own().get(READ, tags::show).patch(ADMIN, tags::change).at("/v1/tags/{tag}"),
        own().get(READ, empty_name).patch(ADMIN, empty_name).at("/v1/tags/"),
        own().get(READ, formats::decode).at("/v1/decode/{id}"),
        own().get(READ, layouts::list).at("/v1/layouts"),
        own().get(READ, layouts::range).at("/v1/range"),
        own().get(READ, console::figures).with(console).at(console::FIGURES),
        own().get(Needs::Nothing, console::page).at(console::PAGE),
        own().get(Needs::Nothing, console::style).at(console::STYLE),
        own().get(Needs::Nothing, console::script).at(console::SCRIPT),
        own().get(READ, metrics::render).with(metrics).at("/metrics"),
        own().get(Needs::Nothing, live).options(Needs::Nothing, live).at("/health/live"),
        own().get(Needs::Nothing, ready).options(Needs::Nothing, ready).at(READY),
    ];
    let drop_ins = config.drop_ins().into_iter().flat_map(drop_in::routes);
    let routes = routes.into_iter().chain(drop_ins).fold(Routes::default(), Routes::with);
    let document = openapi::route(config, &routes);
    routes.with(document)
}

/// Routes, and their templates: for the log, and for the OpenAPI document, which describes these and no others.
#[derive(Default)]
struct Routes {
    router: Router<Arc<Service>>,
    templates: Vec<&'static str>,
    /// What each method of each template needs.
    needs: Vec<(&'static str, Method, Needs)>,
}

impl Routes {
    fn with(mut self, route: Route) -> Self {
        let Route { template, router, needs } = route;
        self.router = self.router.route(template, router);
        self.templates.push(template);
        self.needs.extend(needs.into_iter().map(|(method, needs)| (template, method, needs)));
        self
    }
}

/// Where each request comes in and each answer goes out.
pub(crate) struct Front {
    router: Router,
    service: Arc<Service>,
    templates: Vec<&'static str>,
    /// The numbers of the two routes that are answered without the router.
    sequences: usize,
    snowflakes: usize,
    doors: Doors,
    traffic: Arc<Traffic>,
    console: Arc<console::Console>,
    request_timeout_ms: u64,
    url_max_bytes: usize,
    body_max_bytes: usize,
    /// What answers in the place of the routes.
    #[cfg(feature = "component")]
    pub(crate) component: Option<component::Component>,
}

impl Front {
    /// The routes over a service that listens at this address.
    pub(crate) fn new(config: &Config, service: Arc<Service>, metrics: Arc<Metrics>, address: IpAddr) -> Self {
        let console = Arc::new(console::Console::new(config));
        let Routes { router, templates, .. } = routes(config, Arc::clone(&metrics), Arc::clone(&console));
        let traffic = Arc::new(Traffic::new(&templates));
        console.watch(Arc::clone(&traffic));
        metrics.watch(Arc::clone(&traffic));
        let known = Arc::new(KnownRoutes::new(&templates));
        let number = |template: &str| templates.iter().position(|known| *known == template).unwrap_or(usize::MAX);
        Self {
            sequences: number(SEQUENCES),
            snowflakes: number(SNOWFLAKES),
            doors: Doors::new(config, address),
            traffic,
            console,
            // No layers: each would allocate for every request.
            router: router
                .fallback(move |uri: Uri| async move { Problem::route_unknown(&uri, &known.hint(uri.path())) })
                .method_not_allowed_fallback(method_not_allowed)
                .with_state(Arc::clone(&service)),
            service,
            templates,
            request_timeout_ms: config.request_timeout_ms,
            url_max_bytes: config.url_max_bytes,
            body_max_bytes: config.body_max_bytes,
            #[cfg(feature = "component")]
            component: None,
        }
    }

    /// Whether the routes answer by themselves.
    #[cfg(feature = "component")]
    fn has_routes(&self) -> bool {
        self.component.is_none()
    }

    /// Whether the routes answer by themselves.
    #[cfg(not(feature = "component"))]
    #[expect(clippy::unused_self, reason = "the other one looks")]
    fn has_routes(&self) -> bool {
        true
    }

    /// What is counted here.
    pub(crate) fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// What the console shows.
    pub(crate) fn console(&self) -> &Arc<console::Console> {
        &self.console
    }

    /// The answer to a request.
    pub(crate) fn answer(&self, request: Request<Incoming>) -> FrontAnswer<'_> {
        let began = Instant::now();
        let is_short = request.uri().path().len() <= self.url_max_bytes;
        if is_short
            && self.has_routes()
            && request.body().is_end_stream()
            && !tracing::enabled!(Level::DEBUG)
            && self.doors.is_plain(&request)
            && let Some(response) = ids::at_once(&self.service, &request)
        {
            let is_sequence = request.uri().path().starts_with("/v1/se");
            let route = if is_sequence { self.sequences } else { self.snowflakes };
            self.traffic.answered(route, response.status(), began);
            return FrontAnswer::Now(Some(self.finish(response, request.version(), self.id_of(&request))));
        }
        FrontAnswer::Later(Box::pin(self.answer_later(request, began)))
    }

    async fn answer_later(&self, request: Request<Incoming>, began: Instant) -> Response {
        let (id, route, version) = (self.id_of(&request), self.route_of(request.uri()), request.version());
        let response = request_id::within(id.clone(), self.answer_logged(request, route)).await;
        self.traffic.answered(route, response.status(), began);
        self.finish(response, version, id)
    }

    /// The answer to a request of which nothing is looked at but its head.
    pub(crate) fn refuse(&self, request: &Request<Incoming>, problem: Problem) -> Response {
        self.traffic.answered_unread(problem.kind().status());
        self.finish(problem.into_response(), request.version(), self.id_of(request))
    }

    /// Whether the server is about to end.
    pub(crate) fn is_ending(&self) -> bool {
        self.service.is_ending()
    }

    fn id_of(&self, request: &Request<Incoming>) -> HeaderValue {
        request_id::of(request.headers(), |id| self.service.tokens.contain(id))
    }

    async fn answer_logged(&self, request: Request<Incoming>, route: usize) -> Response {
        if !tracing::enabled!(Level::DEBUG) {
            return self.answer_limited(request).await;
        }
        // The route and not the path, and never the query: clients of other systems send their tokens there.
        let route = self.templates.get(route).copied().unwrap_or("none");
        let (method, start) = (request.method().clone(), Instant::now());
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
        let admitted = self.doors.admit(&request);
        let limit = Duration::from_millis(self.request_timeout_ms);
        let timeout = || Problem::timeout(self.request_timeout_ms).into_response();
        let version = request.version();
        let (parts, body) = request.into_parts();
        if body.is_end_stream() {
            // No body, which costs no allocation. Most answers are there at once, and need no timer.
            let mut answer = pin!(self.enter(admitted, Request::from_parts(parts, Body::empty())));
            return match poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await {
                Poll::Ready(response) => response,
                Poll::Pending => tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| timeout()),
            };
        }
        let body_bytes = body.size_hint().lower();
        if usize::try_from(body_bytes).is_ok_and(|bytes| bytes > self.body_max_bytes) {
            let detail = format!("the body has {body_bytes} bytes, {} at most are read", self.body_max_bytes);
            let response = Problem::body_refused(StatusCode::PAYLOAD_TOO_LARGE, detail).into_response();
            return if version < Version::HTTP_2 { last(response) } else { response };
        }
        let body = RequestBody::new(body, self.body_max_bytes, &parts.headers);
        let request = Request::from_parts(parts, Body::new(body.clone()));
        let deadline = tokio::time::Instant::now() + limit;
        let mut response =
            tokio::time::timeout_at(deadline, self.enter(admitted, request)).await.unwrap_or_else(|_| timeout());
        // In HTTP/2 the rest of a body is nobody's concern.
        if version < Version::HTTP_2 && !tokio::time::timeout_at(deadline, body.read_away()).await.unwrap_or(false) {
            response = last(response);
        }
        response
    }

    /// Lets a request in, if it may come in.
    async fn enter(&self, admitted: Result<Option<Page>, Problem>, request: Request<Body>) -> Response {
        let page = match admitted {
            Ok(Some(page)) => page,
            Ok(None) => return self.route(request).await,
            Err(problem) => return problem.into_response(),
        };
        let mut response = match Page::preflight(&request) {
            Some(response) => response,
            None => self.route(request).await,
        };
        page.show(response.headers_mut());
        response
    }

    async fn route(&self, mut request: Request<Body>) -> Response {
        #[cfg(feature = "component")]
        if let Some(component) = &self.component
            && !component::is_servers(request.uri().path())
        {
            return component.answer(&self.service, request).await;
        }
        let method = request.method().clone();
        if doors::is_plain_check(&request) {
            *request.uri_mut() = Uri::from_static(READY);
        }
        #[cfg(feature = "component")]
        let component = self.component.as_ref().filter(|_| request.uri().path() == READY);
        let Ok(response) = self.router.clone().call(request).await;
        #[cfg(feature = "component")]
        if let Some(component) = component
            && response.status().is_success()
            && let Some(problem) = component.not_ready().await
        {
            return problem.into_response();
        }
        match response.headers().get(ALLOW) {
            Some(allow) if response.status() == StatusCode::METHOD_NOT_ALLOWED => {
                refused_method(&method, allow.clone())
            }
            _ => response,
        }
    }

    /// The number of the route that a path takes, beyond all numbers if it takes none.
    fn route_of(&self, uri: &Uri) -> usize {
        self.templates.iter().position(|template| fits(template, uri.path())).unwrap_or(usize::MAX)
    }

    /// Adds the headers that every answer has.
    fn finish(&self, mut response: Response, version: Version, id: HeaderValue) -> Response {
        let headers = response.headers_mut();
        // A cache would give an id to two callers.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(X_REQUEST_ID, id);
        // Whoever goes on asking asks elsewhere: a connection that is kept would be closed under its next request.
        // HTTP/2 has another word for it, which is of the connection.
        if self.service.is_ending() && version < Version::HTTP_2 { last(response) } else { response }
    }
}

/// The last answer of its connection.
fn last(mut response: Response) -> Response {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// The answer to a request, which is small where it is there already: hyper moves it to the heap.
pub(crate) enum FrontAnswer<'a> {
    /// Taken out once.
    Now(Option<Response>),
    Later(Pin<Box<dyn Future<Output = Response> + Send + 'a>>),
}

impl Future for FrontAnswer<'_> {
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            // A future is not polled again once it was ready.
            Self::Now(response) => response.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(response))),
            Self::Later(answer) => answer.as_mut().poll(context).map(Ok),
        }
    }
}

/// [`Front::route`] has it say which methods there are.
async fn method_not_allowed(method: Method) -> Problem {
    Problem::method_not_allowed(&method, "")
}

/// Whether a path takes the route of a template.
fn fits(template: &str, path: &str) -> bool {
    let mut segments = path.split('/');
    template.split('/').all(|part| segments.next().is_some_and(|given| part.starts_with('{') || part == given))
        && segments.next().is_none()
}

/// What a path may be meant for that no route has.
struct KnownRoutes {
    templates: Vec<&'static str>,
    /// The paths of other services that are not there, and how each is called.
    drop_ins: Vec<(&'static str, String)>,
}

impl KnownRoutes {
    fn new(templates: &[&'static str]) -> Self {
        let named = |service: &DropIn| service.to_possible_value().map(|value| value.get_name().to_owned());
        let drop_ins = DropIn::value_variants().iter().flat_map(|service| {
            let name = named(service).unwrap_or_default();
            drop_in::routes(*service).into_iter().map(move |route| (route.template, name.clone()))
        });
        let drop_ins = drop_ins.filter(|(template, _)| !templates.contains(template)).collect();
        // Those of an empty name only say that it is empty.
        let named = templates.iter().copied().filter(|template| !template.contains("//") && !template.ends_with('/'));
        Self { templates: named.collect(), drop_ins }
    }

    /// A clause for the one who asked, or none.
    fn hint(&self, path: &str) -> String {
        if let Some((_, service)) = self.drop_ins.iter().find(|(template, _)| fits(template, path)) {
            return format!("it is one of {service}'s, which a server has that was started with --drop-in {service}; ");
        }
        let without_slash = path.strip_suffix('/').unwrap_or(path);
        let exact = self.templates.iter().copied().find(|template| fits(template, without_slash));
        let likeliest = || {
            let written: Vec<_> = self.templates.iter().map(|template| written(template, path)).collect();
            let meant = likeliest(path, &written.iter().map(String::as_str).collect::<Vec<_>>())?.to_owned();
            self.templates.iter().copied().zip(&written).find(|(_, written)| **written == meant).map(|(known, _)| known)
        };
        match exact.or_else(likeliest) {
            Some(meant) => format!("did you mean {meant}? "),
            None => String::new(),
        }
    }
}

/// A template with the parts of a path in its places.
fn written(template: &str, path: &str) -> String {
    let mut parts = path.split('/');
    let written = template.split('/').map(|part| {
        let given = parts.next().filter(|given| !given.is_empty());
        if part.starts_with('{') { given.unwrap_or(part) } else { part }
    });
    written.collect::<Vec<_>>().join("/")
}

async fn empty_name() -> Problem {
    validate_tag("").err().map_or_else(|| Problem::new(Kind::TagInvalid, "the tag is empty"), Problem::from)
}

/// The process runs and serves requests; nothing is said about the store.
async fn live() -> Json<serde_json::Value> {
    Json(json!({ "status": "live" }))
}

/// The server is not about to end, and [`Service::ready`]; or, where they are named, [`Service::ready_for_tag`] and
/// [`Service::ready_for_snowflake`].
async fn ready(State(service): State<Arc<Service>>, uri: Uri) -> Result<Json<serde_json::Value>, Problem> {
    let mut parameters = Parameters::of(&uri)?;
    let (tag, snowflake) = (parameters.take("tag"), parameters.take("snowflake"));
    parameters.finish("tag, snowflake")?;
    if service.is_ending() {
        return Err(Problem::closing());
    }
    if let Some(name) = &snowflake {
        let ready = service.ready_for_snowflake(name)?;
        if tag.is_none() {
            return Ok(Json(ready));
        }
    }
    match tag {
        Some(tag) => service.ready_for_tag(&tag).await,
        None => service.ready().await,
    }
    .map(Json)
}

/// A body of finished JSON or text.
fn finished(content_type: &'static str, body: Vec<u8>) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static(content_type))], body).into_response()
}
