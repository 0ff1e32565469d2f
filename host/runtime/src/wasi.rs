//! Components that answer HTTP, run here with the stores of this process behind them: `wasi:http` 0.3 and 0.2.
//!
//! A component is composed of an application and the core component, as `unalike_artifact::SERVICE` is, or an
//! application that imports `unalike:ids/async-sequences` and `unalike_artifact::ASYNC`. It may import:
//!
//! - `unalike:ids/segments` and `unalike:edge/grants`: numbers of the [segment store](ServiceBuilder::segments). With
//!   WASI 0.2 it is `unalike:edge/blocking`, and each request is answered before `allocate` returns;
//! - `wasi:http`, to the hosts in [`ServiceOptions::outgoing_hosts`] alone;
//! - clocks, random numbers, and the environment that it is given. It reaches no file, no socket and no other process.
//!
//! Leases (`unalike:ids/leases`) are refused: each instance would take a worker of its own, and instances come and go
//! by the second.
//!
//! Instances are used again as wasmtime's own server does it: one serves 128 requests, 16 of them at once (of WASI 0.2:
//! one), and is dropped with whatever it holds. A trap ends the requests that its instance serves at the time and no
//! other.
//!
//! ```no_run
//! use std::sync::Arc;
//! use unalike::wasi::{ServiceBuilder, ServiceOptions};
//! use unalike_memory::MemoryStore;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let application = std::fs::read("application.wasm")?;
//! let service = ServiceBuilder::new(&application).segments(Arc::new(MemoryStore::default())).build()?;
//! let request = http::Request::get("/v1/sequences/order/ids").body(String::new())?;
//! assert_eq!(service.handle(request).await?.status(), 200);
//! # Ok(())
//! # }
//! ```

mod blocking;
mod counts;
mod instances;
mod limits;
mod options;
mod storage;

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use thiserror::Error;
use tokio::sync::Semaphore;
use unalike_storage::{PublicTags, SegmentStore};
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, Engine};
pub use wasmtime_wasi_http::WasiBody;
use wasmtime_wasi_http::handler::{ExpirationError, ProxyHandler, ProxyPre, TrapOrPanicError};

pub use self::counts::ServiceCounts;
use self::counts::{Counted, Outcome};
use self::instances::{Data, Instances};
pub use self::options::ServiceOptions;
pub use self::storage::QuotaReached;
use crate::component::IdsCtx;

/// How often a component that calculates is interrupted, so that others go on and its time is looked at.
const INTERRUPTED_EVERY: Duration = Duration::from_millis(10);

/// What a service of WASI 0.3 exports, and of WASI 0.2, each without the version.
const HANDLER_0_3: &str = "wasi:http/handler@";
const HANDLER_0_2: &str = "wasi:http/incoming-handler@";

/// What components are linked to each other by, without the version.
const FACADE: &str = "unalike:ids/async-sequences@";

/// Why a component does not answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// It is no component, or no service, or imports what nobody gives it here.
    #[error("the component cannot be used: {reason}")]
    Component {
        /// wasmtime's message.
        reason: String,
    },
    /// The request took longer than it may.
    #[error("the component did not answer within {limit_ms} ms")]
    Timeout {
        /// The limit, in milliseconds.
        limit_ms: u128,
    },
    /// As many requests as may run at once ran for half as long as a request may take.
    #[error("{at_once} requests of the component ran for half of {limit_ms} ms, and no more may at once")]
    Busy {
        /// [`ServiceOptions::requests_at_once`].
        at_once: usize,
        /// The limit of a request's time, in milliseconds.
        limit_ms: u128,
    },
    /// The instance trapped that served the request.
    #[error("the component trapped: {reason}")]
    Trap {
        /// wasmtime's message.
        reason: String,
    },
}

/// Makes a [`Service`].
pub struct ServiceBuilder<'a> {
    component: &'a [u8],
    segments: Option<Arc<dyn SegmentStore>>,
    options: ServiceOptions,
}

impl<'a> ServiceBuilder<'a> {
    /// A service of this component, without stores.
    #[must_use]
    pub fn new(component: &'a [u8]) -> Self {
        Self { component, segments: None, options: ServiceOptions::default() }
    }

    /// Where its numbers come from. Names that the product keeps for itself are refused ([`PublicTags`]).
    #[must_use]
    pub fn segments(mut self, store: Arc<dyn SegmentStore>) -> Self {
        self.segments = Some(Arc::new(PublicTags::new(store)));
        self
    }

    /// How it is run.
    #[must_use]
    pub fn options(mut self, options: ServiceOptions) -> Self {
        self.options = options;
        self
    }

    /// Compiles the component and looks whether all that it imports is given. Called within a tokio runtime, on which
    /// the instances will run.
    ///
    /// # Errors
    /// [`ServiceError::Component`].
    pub fn build(self) -> Result<Service, ServiceError> {
        let Self { component, segments, options } = self;
        let unusable = |reason: String| ServiceError::Component { reason };
        let ids = IdsCtx::builder().build().map_err(|error| unusable(error.to_string()))?;
        let linked = link(component).map_err(|error| unusable(format!("{error:#}")))?;
        let (timeout, at_once_max) = (options.request_timeout, options.requests_at_once.min(Semaphore::MAX_PERMITS));
        let handler = ProxyHandler::new(Instances::new(linked, segments, ids, options));
        Ok(Service { handler, timeout, at_once_max, at_once: Arc::new(Semaphore::new(at_once_max)) })
    }
}

impl std::fmt::Debug for ServiceBuilder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceBuilder").field("options", &self.options).finish_non_exhaustive()
    }
}

fn link(component: &[u8]) -> wasmtime::Result<ProxyPre<Data>> {
    check_is_component(component)?;
    let mut config = Config::new();
    config.epoch_interruption(true);
    let engine = Engine::new(&config)?;
    let component = Component::new(&engine, component)?;
    let is_concurrent = answers_beside_each_other(&component)?;
    let mut linker = Linker::new(&engine);
    // Languages' own libraries import files and sockets whether they are used or not. The context gives none.
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi::p3::add_to_linker(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p3::add_to_linker(&mut linker)?;
    storage::add_leases_to_linker(&mut linker, |data: &mut Data| data.ids.view())?;
    let add = if is_concurrent { storage::add_to_linker } else { blocking::add_to_linker };
    add(&mut linker, |data: &mut Data| storage::View(&data.requests))?;
    let linked = linker.instantiate_pre(&component)?;
    let linked = if is_concurrent {
        ProxyPre::P3(wasmtime_wasi_http::p3::bindings::ServicePre::new(linked)?)
    } else {
        ProxyPre::P2(wasmtime_wasi_http::p2::bindings::ProxyPre::new(linked)?)
    };
    interrupt(&engine)?;
    Ok(linked)
}

/// Interrupts what an engine runs, as long as there is one. A thread of its own does it: components that calculate keep
/// those of the runtime.
fn interrupt(engine: &Engine) -> wasmtime::Result<()> {
    let weak = engine.weak();
    std::thread::Builder::new().name("unalike-interrupts".to_owned()).spawn(move || {
        loop {
            std::thread::sleep(INTERRUPTED_EVERY);
            let Some(engine) = weak.upgrade() else { return };
            engine.increment_epoch();
        }
    })?;
    Ok(())
}

/// Looks whether this is a component at all, since wasmtime's own words for it help nobody who has the wrong file.
fn check_is_component(bytes: &[u8]) -> wasmtime::Result<()> {
    // The version of a module is 1; that of a component ends in its layer, 1.
    let what = match bytes.get(..8) {
        Some([b'\0', b'a', b's', b'm', _, _, 1, 0]) => return Ok(()),
        Some([b'\0', b'a', b's', b'm', ..]) => {
            "it is a core module: make a component of it (`wasm-tools component new`)"
        }
        _ => "it is no WebAssembly in binary form",
    };
    Err(wasmtime::format_err!("{what}"))
}

/// Whether requests run beside each other in an instance: of WASI 0.3 they do, of WASI 0.2 not.
///
/// # Errors
/// The component answers no requests.
fn answers_beside_each_other(component: &Component) -> wasmtime::Result<bool> {
    let (ty, engine) = (component.component_type(), component.engine());
    let exports = |begin: &str| ty.exports(engine).any(|(name, _)| name.starts_with(begin));
    if ty.imports(engine).any(|(name, _)| name.starts_with(FACADE)) {
        wasmtime::bail!(
            "it imports unalike:ids/async-sequences, which another component gives: link them first \
             (`wac plug THIS.wasm --plug unalike-async.wasm -o linked.wasm`)"
        );
    }
    match (exports(HANDLER_0_3), exports(HANDLER_0_2)) {
        (true, _) => Ok(true),
        (false, true) => Ok(false),
        (false, false) if exports(FACADE) => wasmtime::bail!(
            "it answers other components, and no requests: link it to an application \
             (`wac plug APPLICATION.wasm --plug THIS.wasm -o linked.wasm`)"
        ),
        (false, false) => {
            wasmtime::bail!("it exports neither wasi:http/handler@0.3 nor wasi:http/incoming-handler@0.2")
        }
    }
}

/// A component that answers HTTP. Clones share the instances.
#[derive(Clone)]
pub struct Service {
    handler: ProxyHandler<Instances>,
    timeout: Duration,
    at_once_max: usize,
    at_once: Arc<Semaphore>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Service {
    /// Has the component answer a request.
    ///
    /// # Errors
    /// [`ServiceError`]. What the component was granted for the request by then is a gap.
    pub async fn handle<B>(&self, request: http::Request<B>) -> Result<http::Response<WasiBody>, ServiceError>
    where
        B: http_body_util::BodyExt<Data = bytes::Bytes> + Send + 'static,
        B::Error: std::fmt::Display,
    {
        let mut ending = Ending { counted: self.handler.state().counted(), outcome: Outcome::Dropped };
        let answered = self.answer(request).await;
        ending.outcome = match &answered {
            Ok(_) => Outcome::Answered,
            Err(ServiceError::Timeout { .. }) => Outcome::Timeout,
            Err(ServiceError::Busy { .. }) => Outcome::Busy,
            Err(_) => Outcome::Trap,
        };
        answered
    }

    async fn answer<B>(&self, request: http::Request<B>) -> Result<http::Response<WasiBody>, ServiceError>
    where
        B: http_body_util::BodyExt<Data = bytes::Bytes> + Send + 'static,
        B::Error: std::fmt::Display,
    {
        let limit_ms = self.timeout.as_millis();
        let deadline = tokio::time::Instant::now() + self.timeout;
        // Who gets a place late has no time left for an answer, and would only take it from others.
        let place = tokio::time::timeout(self.timeout / 2, Arc::clone(&self.at_once).acquire_owned()).await;
        // Nobody closes the semaphore.
        let Ok(Ok(place)) = place else { return Err(ServiceError::Busy { at_once: self.at_once_max, limit_ms }) };
        let place = Arc::new(place);
        let request = request.map(|body| body.map_err(broken_off).boxed_unsync());
        match tokio::time::timeout_at(deadline, self.handler.handle(Arc::clone(&place), request)).await {
            Ok(Ok(response)) => Ok(response.map(|body| {
                // An instance is there until its answer was taken.
                let body = body.map_frame(move |frame| {
                    let _ = &place;
                    frame
                });
                body.boxed_unsync()
            })),
            // Whatever is said of an instance whose time was over.
            Ok(Err(error)) if error.is::<ExpirationError>() || tokio::time::Instant::now() >= deadline => {
                Err(ServiceError::Timeout { limit_ms })
            }
            Ok(Err(error)) if error.is::<TrapOrPanicError>() => {
                Err(ServiceError::Trap { reason: "another request of its instance trapped".to_owned() })
            }
            Ok(Err(error)) => Err(ServiceError::Trap { reason: format!("{error:#}") }),
            Err(_) => Err(ServiceError::Timeout { limit_ms }),
        }
    }

    /// Starts an instance and drops it: a component of which none starts would answer nobody. It is not counted.
    ///
    /// # Errors
    /// [`ServiceError::Component`]: an instance traps, does not start in time, or wants more memory than
    /// [`ServiceOptions::instance_memory`] for a start.
    pub async fn check(&self) -> Result<(), ServiceError> {
        let instances = self.handler.state();
        let started = instances.start().await.map(drop);
        started.map_err(|error| ServiceError::Component { reason: format!("no instance of it starts: {error:#}") })
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> ServiceCounts {
        self.handler.state().counted().so_far()
    }
}

/// A request, which ends also if nobody waits for it any more.
struct Ending<'a> {
    counted: &'a Counted,
    outcome: Outcome,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.counted.ended(self.outcome);
    }
}

/// A request's body that ended before its end.
fn broken_off(error: impl std::fmt::Display) -> wasmtime_wasi_http::Error {
    tracing::debug!(%error, "the body of a request was broken off");
    wasmtime_wasi_http::Error::ConnectionTerminated
}
