//! The instances of a component: what each is given, when it ends, and what it may reach.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;
use unalike_storage::{SegmentStore, lock};
use wasmtime::component::{GuestTaskId, ResourceTable};
use wasmtime::{Store, StoreContextMut};
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_http::handler::{
    HandlerState, Instance, ProxyPre, ShouldAccept, WorkerExpiration, WorkerState, WorkerStatus,
};
use wasmtime_wasi_http::{RequestOptions, WasiBody, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks, WasiHttpView};

use super::counts::Counted;
use super::limits::Limits;
use super::options::{AT_ONCE_MAX, REQUESTS_MAX, ServiceOptions};
use super::storage::Requests;
use crate::component::IdsCtx;

/// The data of an instance's store.
pub(super) struct Data {
    table: ResourceTable,
    wasi: WasiCtx,
    http: WasiHttpCtx,
    outgoing: Outgoing,
    limits: Limits,
    pub(super) requests: Arc<Requests>,
    /// Refuses leases.
    pub(super) ids: IdsCtx,
}

impl WasiView for Data {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for Data {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { ctx: &mut self.http, table: &mut self.table, hooks: &mut self.outgoing }
    }
}

/// Where requests of the component may go.
#[derive(Clone)]
struct Outgoing {
    hosts: Arc<[String]>,
    /// Those of them whose last request failed.
    failing: Arc<Mutex<BTreeSet<String>>>,
}

impl Outgoing {
    /// Logs when requests to a host begin to fail, and when they go on: the component tells its callers no more than
    /// that they failed.
    fn note(failing: &Mutex<BTreeSet<String>>, host: &str, error: Option<&wasmtime_wasi_http::Error>) {
        let mut failing = lock(failing);
        match error {
            Some(error) if failing.insert(host.to_owned()) => {
                tracing::warn!(host, error = format!("{error:#}"), "requests of the component to this host fail");
            }
            None if failing.remove(host) => {
                tracing::info!(host, "requests of the component to this host are answered again");
            }
            _ => {}
        }
    }
}

/// A response, and what reads its connection.
type Sent = (http::Response<WasiBody>, Box<dyn Future<Output = wasmtime_wasi_http::Result<()>> + Send>);

impl WasiHttpHooks for Outgoing {
    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _processed: Box<dyn Future<Output = wasmtime_wasi_http::Result<()>> + Send>,
    ) -> Box<dyn Future<Output = wasmtime_wasi_http::Result<Sent>> + Send> {
        let host = request.uri().authority().map(http::uri::Authority::as_str).unwrap_or_default();
        let is_allowed = self.hosts.iter().any(|allowed| allowed == host);
        if !is_allowed {
            tracing::warn!(
                host,
                "the component may not send requests to this host, which is not one of its outgoing hosts \
                 (--component-hosts)"
            );
            return Box::new(std::future::ready(Err(wasmtime_wasi_http::Error::HttpRequestDenied)));
        }
        let (host, failing) = (host.to_owned(), Arc::clone(&self.failing));
        Box::new(async move {
            use http_body_util::BodyExt as _;
            let sent = wasmtime_wasi_http::default_send_request(request, options).await;
            Self::note(&failing, &host, sent.as_ref().err());
            let (response, connection) = sent?;
            let connection: Box<dyn Future<Output = _> + Send> = Box::new(connection);
            Ok((response.map(|body| body.boxed_unsync()), connection))
        })
    }
}

/// Starts instances.
pub(super) struct Instances {
    linked: ProxyPre<Data>,
    segments: Option<Arc<dyn SegmentStore>>,
    ids: IdsCtx,
    options: ServiceOptions,
    outgoing: Outgoing,
    counted: Arc<Counted>,
}

impl Instances {
    pub(super) fn new(
        linked: ProxyPre<Data>,
        segments: Option<Arc<dyn SegmentStore>>,
        ids: IdsCtx,
        options: ServiceOptions,
    ) -> Self {
        let outgoing = Outgoing { hosts: options.outgoing_hosts.iter().cloned().collect(), failing: Arc::default() };
        Self { linked, segments, ids, options, outgoing, counted: Arc::default() }
    }

    pub(super) fn counted(&self) -> &Counted {
        &self.counted
    }

    /// How many requests an instance serves, and how many at once.
    fn requests(&self) -> (usize, usize) {
        match &self.linked {
            ProxyPre::P3(_) => (
                self.options.instance_requests.unwrap_or(REQUESTS_MAX).max(1),
                self.options.instance_at_once.unwrap_or(AT_ONCE_MAX).max(1),
            ),
            ProxyPre::P2(_) => (self.options.instance_requests.unwrap_or(1).max(1), 1),
        }
    }

    fn data(&self, requests_max: usize) -> Data {
        let mut wasi = WasiCtxBuilder::new();
        wasi.env("UNALIKE_INSTANCE_REQUESTS", requests_max.to_string());
        for (name, value) in &self.options.environment {
            wasi.env(name, value);
        }
        Data {
            table: ResourceTable::new(),
            wasi: wasi.build(),
            http: WasiHttpCtx::new(),
            outgoing: self.outgoing.clone(),
            limits: Limits::new(self.options.instance_memory, Arc::clone(&self.counted)),
            requests: Arc::new(Requests::new(self.segments.clone(), self.options.request_timeout)),
            ids: self.ids.successor(),
        }
    }
}

impl HandlerState for Instances {
    type StoreData = Data;
    type WorkerExpiration = Expiration;
    type WorkerState = State;

    async fn instantiate(&self) -> wasmtime::Result<Instance<Data, Expiration, State>> {
        let instance = self.start().await?;
        self.counted.instances.fetch_add(1, Ordering::Relaxed);
        Ok(instance)
    }
}

impl Instances {
    /// An instance that nobody has counted.
    pub(super) async fn start(&self) -> wasmtime::Result<Instance<Data, Expiration, State>> {
        let (requests_max, at_once_max) = self.requests();
        let mut store = Store::new(self.linked_engine(), self.data(requests_max));
        store.limiter(|data| &mut data.limits);
        store.epoch_deadline_async_yield_and_update(1);
        store.set_epoch_deadline(1);
        let started = tokio::time::timeout(self.options.request_timeout, self.linked.instantiate_async(&mut store));
        let proxy = started.await.map_err(|_| wasmtime::format_err!("it did not start in time"))??;
        let (timeout, is_overdue) = (self.options.request_timeout, Arc::new(AtomicBool::new(false)));
        Ok(Instance {
            store,
            proxy,
            view: WasiHttpView::http,
            expiration: Expiration {
                idle: self.options.instance_idle,
                // Later than its requests, whose callers learn from their own limit that it took too long.
                timeout: timeout + timeout / 10,
                sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
                is_overdue: Arc::clone(&is_overdue),
            },
            state: State { requests_max, at_once_max, timeout, is_overdue, counted: Arc::clone(&self.counted) },
        })
    }

    fn linked_engine(&self) -> &wasmtime::Engine {
        match &self.linked {
            ProxyPre::P3(linked) => linked.engine(),
            ProxyPre::P2(linked) => linked.engine(),
        }
    }
}

/// When an instance is dropped that nobody needs, or that does not come back.
pub(super) struct Expiration {
    idle: Duration,
    timeout: Duration,
    sleep: Pin<Box<Sleep>>,
    is_overdue: Arc<AtomicBool>,
}

impl WorkerExpiration for Expiration {
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>, status: WorkerStatus, start: Instant) -> Poll<()> {
        let limit = match status {
            WorkerStatus::Idle => self.idle,
            WorkerStatus::Requests | WorkerStatus::PostReturn => self.timeout,
        };
        let deadline = tokio::time::Instant::from_std(start) + limit;
        if deadline != self.sleep.deadline() {
            self.sleep.as_mut().reset(deadline);
        }
        let is_over = self.sleep.as_mut().poll(context);
        if is_over.is_ready() && status != WorkerStatus::Idle {
            self.is_overdue.store(true, Ordering::Relaxed);
        }
        is_over
    }
}

/// One of [`ServiceOptions::requests_at_once`], free again when nobody has it.
pub(super) type Place = Arc<OwnedSemaphorePermit>;

/// What an instance takes.
pub(super) struct State {
    requests_max: usize,
    at_once_max: usize,
    timeout: Duration,
    /// It did not come back in time.
    is_overdue: Arc<AtomicBool>,
    counted: Arc<Counted>,
}

impl WorkerState for State {
    type StoreData = Data;
    type RequestData = Place;

    fn should_accept_request(&self, at_once: usize, requests: usize) -> ShouldAccept {
        if requests >= self.requests_max {
            ShouldAccept::Never
        } else if at_once >= self.at_once_max {
            ShouldAccept::No
        } else {
            ShouldAccept::Yes
        }
    }

    fn on_request_start(
        &self,
        _store: StoreContextMut<'_, Data>,
        place: Place,
        _task: GuestTaskId,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + Sync>> {
        self.counted.requests.fetch_add(1, Ordering::Relaxed);
        let timeout = tokio::time::sleep(self.timeout);
        // An instance works on a request also when nobody waits for it any more. It has its place for as long.
        Box::pin(async move {
            timeout.await;
            drop(place);
        })
    }

    fn drop(&self, store: Store<Data>, result: wasmtime::Result<()>) {
        match result {
            Err(_) if self.is_overdue.load(Ordering::Relaxed) => {
                self.counted.overdue.fetch_add(1, Ordering::Relaxed);
                tracing::error!("an instance of the component did not come back in time and is gone");
            }
            // The program ends, and nobody runs the instance any more.
            Err(error) if !std::thread::panicking() && error.to_string() == "worker panicked" => {
                tracing::debug!("an instance of the component ended with the program");
            }
            Err(error) => {
                self.counted.traps.fetch_add(1, Ordering::Relaxed);
                tracing::error!(error = format!("{error:#}"), "an instance of the component trapped and is gone");
            }
            Ok(()) => {}
        }
        drop(store);
        self.counted.dropped.fetch_add(1, Ordering::Relaxed);
    }
}
