//! Requests that a component answers in the place of the routes.

use std::time::Instant;

use axum::body::{Body, to_bytes};
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use metrics::{counter, describe_counter, describe_gauge, gauge};
use serde_json::Value;
use strum::VariantArray as _;
use tokio::sync::Mutex;
use unalike::wasi::{ServiceCounts, ServiceError};

use super::READY;
use super::access::presented;
use crate::config::tokens::Scope;
use crate::http::request_id::{self, X_REQUEST_ID};
use crate::service::problem::{Kind, Problem};
use crate::service::troubles::{Weight, note, quietly};
use crate::service::{CHECK_KEPT, Service};

/// What is read of a problem that a component answers. None of its own is longer.
const PROBLEM_BYTES_MAX: usize = 16 * 1024;

/// What is told of a component's words, in characters.
const WORDS_MAX: usize = 500;

/// Whether the server answers this path also where a component answers the others.
pub(super) fn is_servers(path: &str) -> bool {
    path.starts_with("/health/") || path == "/metrics"
}

/// A component, and whether it is ready.
pub(crate) struct Component {
    service: unalike::wasi::Service,
    /// Why it was not ready, if it was not, and when it said so.
    said: Mutex<Option<(Instant, Option<Problem>)>>,
}

impl Component {
    pub(crate) fn new(service: unalike::wasi::Service) -> Self {
        Self { service, said: Mutex::new(None) }
    }

    /// Its answer, to those who may ask.
    pub(super) async fn answer(&self, service: &Service, mut request: Request<Body>) -> Response {
        // Which tags a request concerns only the component knows.
        let permit = service.tokens.permit(presented(request.headers(), request.extensions()), Scope::Read);
        if let Err(denied) = permit.and_then(|permit| permit.covers_all()) {
            return Problem::from(denied).into_response();
        }
        if service.tokens.count() > 0 {
            // It is this server's, and the component may send requests elsewhere.
            request.headers_mut().remove(AUTHORIZATION);
        }
        if let Some(Ok(id)) = request_id::with_current(HeaderValue::from_str) {
            request.headers_mut().insert(X_REQUEST_ID, id);
        }
        match self.service.handle(request).await {
            Ok(response) if response.status().is_server_error() => noted(response.map(Body::new)).await,
            Ok(response) => response.map(Body::new),
            Err(error) => problem(&error).into_response(),
        }
    }

    /// Why it cannot answer as it should, if it says so, or does not answer at all. One that knows nothing of it is
    /// ready.
    ///
    /// Anybody may want to know at any rate: what it says is kept for [`CHECK_KEPT`], and it is asked once at a time.
    pub(super) async fn not_ready(&self) -> Option<Problem> {
        let mut said = self.said.lock().await;
        if let Some((_, kept)) = said.as_ref().filter(|(at, _)| at.elapsed() < CHECK_KEPT) {
            return kept.clone();
        }
        let before = said.as_ref().and_then(|(_, problem)| problem.as_ref().map(Problem::kind));
        let problem = self.ask_if_ready().await;
        match &problem {
            Some(problem) if before != Some(problem.kind()) => {
                tracing::warn!(problem = problem.kind().name(), error = problem.detail(), "the component is not ready");
            }
            None if before.is_some() => tracing::info!("the component is ready again"),
            _ => {}
        }
        *said = Some((Instant::now(), problem.clone()));
        problem
    }

    /// Its answer is a part of the server's own, which has the same path.
    async fn ask_if_ready(&self) -> Option<Problem> {
        let request = Request::get(READY).header(HOST, "localhost").body(Body::empty());
        let request = request.inspect_err(|error| tracing::error!(%error, "a request cannot be made")).ok()?;
        match self.service.handle(request).await {
            Ok(response) if response.status().is_server_error() => {
                let (parts, body) = response.map(Body::new).into_parts();
                let document = to_bytes(body, PROBLEM_BYTES_MAX).await.unwrap_or_default();
                let Said { kind, words } = Said::by(parts.status, &document);
                Some(Problem::new(kind, format!("the component is not ready: {words}")).retry_after(1_000))
            }
            Ok(_) => None,
            // No request failed by it.
            Err(error) => Some(quietly(|| problem(&error))),
        }
    }
}

/// What a component says of a failure.
struct Said {
    kind: Kind,
    words: String,
}

impl Said {
    /// By what it answered: a problem of unalike's, or something else.
    fn by(status: StatusCode, document: &[u8]) -> Self {
        let document: Value = serde_json::from_slice(document).unwrap_or_default();
        let text = |name: &str| document.get(name).and_then(Value::as_str);
        let name = text("type").and_then(|urn| urn.strip_prefix("urn:unalike:problem:"));
        let kind = Kind::VARIANTS.iter().copied().find(|kind| Some(kind.name()) == name);
        let words = match text("detail") {
            Some(detail) => detail.chars().take(WORDS_MAX).collect(),
            None => format!("it answered {status}"),
        };
        Self { kind: kind.unwrap_or(Kind::Rebuilt), words }
    }
}

/// An answer that says that something is wrong, noted for the operator: a component has no log.
async fn noted(response: Response) -> Response {
    let status = response.status();
    let weight = if status == StatusCode::INTERNAL_SERVER_ERROR { Weight::Lasting } else { Weight::Passing };
    let note_it = |document: &[u8]| {
        let Said { kind, words } = Said::by(status, document);
        note(kind.name(), weight, format!("the component: {words}"));
    };
    if !is_short_problem(response.headers()) {
        note_it(b"");
        return response;
    }
    let (parts, body) = response.into_parts();
    match to_bytes(body, PROBLEM_BYTES_MAX).await {
        Ok(document) => {
            note_it(&document);
            Response::from_parts(parts, Body::from(document))
        }
        Err(error) => {
            let why = format!("the component did not finish an answer: {error}");
            note(Kind::Rebuilt.name(), Weight::Passing, why);
            rebuilt().into_response()
        }
    }
}

fn is_short_problem(headers: &HeaderMap) -> bool {
    let is_problem = headers.get(CONTENT_TYPE).is_some_and(|media| media.as_bytes() == b"application/problem+json");
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    is_problem && length.is_some_and(|length| length <= PROBLEM_BYTES_MAX)
}

fn problem(error: &ServiceError) -> Problem {
    let problem = match error {
        ServiceError::Timeout { limit_ms } | ServiceError::Busy { limit_ms, .. } => {
            Problem::timeout(u64::try_from(*limit_ms).unwrap_or(u64::MAX))
        }
        _ => rebuilt(),
    };
    note(problem.kind().name(), Weight::Passing, error.to_string());
    problem
}

fn rebuilt() -> Problem {
    Problem::new(Kind::Rebuilt, "the component did not answer, and another instance of it is started")
        .retry_after(1_000)
}

/// Its figures, for the recorder of a scrape.
pub(super) fn pull(counts: &ServiceCounts) {
    describe_counter!("unalike_component_requests_total", "Requests that the component was given, by how they ended");
    describe_counter!("unalike_component_instances_total", "Instances of the component that were started");
    describe_gauge!("unalike_component_instances_running", "Instances of the component that there are");
    describe_counter!("unalike_component_instances_lost_total", "Instances that trapped, or did not come back in time");
    describe_counter!(
        "unalike_component_memory_refused_total",
        "Times that an instance wanted more memory than it may have"
    );
    for (outcome, count) in [
        ("answered", counts.answered),
        ("trap", counts.trapped),
        ("timeout", counts.timed_out),
        ("busy", counts.busy),
        ("dropped", counts.forsaken),
    ] {
        counter!("unalike_component_requests_total", "outcome" => outcome).absolute(count);
    }
    counter!("unalike_component_instances_total").absolute(counts.instances);
    #[expect(clippy::cast_precision_loss, reason = "a gauge is a double, and a number of instances fits one")]
    gauge!("unalike_component_instances_running").set(counts.running as f64);
    for (reason, count) in [("trap", counts.traps), ("timeout", counts.overdue)] {
        counter!("unalike_component_instances_lost_total", "reason" => reason).absolute(count);
    }
    counter!("unalike_component_memory_refused_total").absolute(counts.memory_refused);
}
