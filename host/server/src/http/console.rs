//! The console: a page for people, and the figures that it shows.
//!
//! The page and what it loads hold no data and need no token. The figures are one document, made at most once a second
//! however many pages are open; what it says of the past comes from [`History`], what it says of leases from
//! [`LeaseLooks`], so no request to a store is made on the way of an answer but the one of [`Service::ready`], which is
//! bounded and shared.

mod figures;
mod history;
mod leases;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderName;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};

use self::history::{Answered, History};
use self::leases::LeaseLooks;
use super::Traffic;
use super::access::Permitted;
use super::traffic::Totals;
use crate::config::Config;
use crate::config::leases::LeasePlace;
use crate::service::Service;
use crate::service::problem::Problem;

/// Where the page is, and what it loads.
pub(super) const PAGE: &str = "/console";
pub(super) const STYLE: &str = "/console/style.css";
pub(super) const SCRIPT: &str = "/console/script.js";
/// Where the figures are.
pub(super) const FIGURES: &str = "/v1/console";

/// How long a document of figures is given to all who ask.
const KEPT: Duration = Duration::from_secs(1);

/// The page loads its own two files, and asks its own server, and nothing else; nobody shows it in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' \
                      data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) async fn page() -> Response {
    asset("text/html; charset=utf-8", include_str!("console/page.html"))
}

pub(super) async fn style() -> Response {
    asset("text/css; charset=utf-8", include_str!("console/style.css"))
}

pub(super) async fn script() -> Response {
    asset("text/javascript; charset=utf-8", include_str!("console/script.js"))
}

fn asset(content_type: &'static str, text: &'static str) -> Response {
    let headers: [(HeaderName, HeaderValue); 4] = [
        (CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    (headers, text).into_response()
}

pub(super) async fn figures(
    Permitted(permit): Permitted,
    State(service): State<Arc<Service>>,
    Extension(console): Extension<Arc<Console>>,
) -> Result<Response, Problem> {
    permit.covers_all()?;
    let body = console.document(&service).await?;
    Ok(([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response())
}

/// What the page shows, of one server.
pub(crate) struct Console {
    /// When the process began to serve.
    started: Instant,
    tokens_required: bool,
    /// The addresses of the stores, without what is secret in them.
    store: String,
    backing: Option<String>,
    leased_from: Option<String>,
    history: Mutex<History>,
    leases: Arc<LeaseLooks>,
    /// Requests and connections, once there can be some.
    traffic: OnceLock<Arc<Traffic>>,
    /// The document that was made last, and when.
    made: tokio::sync::Mutex<Option<(Instant, Bytes)>>,
}

impl Console {
    /// That of a server with this configuration.
    pub(crate) fn new(config: &Config) -> Self {
        let leased_from = match config.lease_place() {
            LeasePlace::Named(url) | LeasePlace::Beside(url) => Some(url.to_string()),
            LeasePlace::Static | LeasePlace::Nowhere => None,
        };
        Self {
            started: Instant::now(),
            tokens_required: config.tokens.is_some(),
            store: config.store.to_string(),
            backing: config.backing.as_ref().map(ToString::to_string),
            leased_from,
            history: Mutex::default(),
            leases: Arc::default(),
            traffic: OnceLock::new(),
            made: tokio::sync::Mutex::default(),
        }
    }

    /// Shows these requests and connections, too.
    pub(super) fn watch(&self, traffic: Arc<Traffic>) {
        // There is one server in a process.
        let _ = self.traffic.set(traffic);
    }

    /// Takes a sample of all that is shown over time, which is to be done every [`history::EVERY`].
    pub(crate) fn sample(&self, service: &Service) {
        let totals = self.traffic.get().map(|traffic| traffic.totals()).unwrap_or_default();
        let Totals { requests, refused, failed, .. } = totals;
        self.history().sample(service, Answered { requests, refused, failed });
    }

    /// All figures as JSON, at most [`KEPT`] old.
    async fn document(&self, service: &Arc<Service>) -> Result<Bytes, Problem> {
        let mut made = self.made.lock().await;
        if let Some((_, document)) = made.as_ref().filter(|(at, _)| at.elapsed() < KEPT) {
            return Ok(document.clone());
        }
        self.leases.look(service);
        let ready = service.ready().await;
        let document = Bytes::from(self.look(service, ready).map_err(|error| Problem::unwritten(&error))?);
        *made = Some((Instant::now(), document.clone()));
        Ok(document)
    }

    fn history(&self) -> MutexGuard<'_, History> {
        // It is whole after every statement, but for a sample that is missing.
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
