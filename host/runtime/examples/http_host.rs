//! An application that owns its wasmtime host. Another component answers HTTP: its imports are asynchronous, and each
//! of its instances has a `Store` of its own. The numbers that it asks for come from unalike's component, whose calls
//! are synchronous, in *its* own `Store`: wasmtime refuses synchronous calls on a store with anything asynchronous in
//! it.
//!
//! ```text
//! cargo build --release --target wasm32-wasip2 --manifest-path host/runtime/examples/application/Cargo.toml
//! cargo run -p unalike --example http_host --features component -- \
//!     host/runtime/examples/application/target/wasm32-wasip2/release/application.wasm orders.sqlite 127.0.0.1:8080
//! curl http://127.0.0.1:8080/
//! ```

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use tokio::net::TcpListener;
use unalike::component::{
    COMPONENT, CorePre, IdsCtx, IdsCtxBuilder, Signal, add_to_linker, engine_config, sequences, types,
};
use unalike::{Clock, SystemClock};
use unalike_sqlite::{SqliteOptions, SqliteStore};
use wasmtime::component::{Component, HasSelf, Linker, ResourceAny, ResourceTable};
use wasmtime::{Engine, Result, Store, bail, format_err};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::io::TokioIo;
use wasmtime_wasi_http::p2::bindings::ProxyPre;
use wasmtime_wasi_http::p2::bindings::http::types::Scheme;
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

/// What the other component asks of this host.
#[allow(missing_docs, reason = "generated code")]
mod application {
    wasmtime::component::bindgen!({ path: "examples/application/wit", imports: { default: async } });
}

/// How long a request waits for a number.
const WAIT_MAX: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [wasm, file, address] = arguments.as_slice() else { bail!("usage: http_host APPLICATION.wasm FILE ADDRESS") };
    let storage = Arc::new(SqliteStore::connect(SqliteOptions::new(file)).await?);
    let numbers = Arc::new(Numbers::new(IdsCtxBuilder::new().segments(storage.clone()).build()?)?);

    // The other component, as any host of `wasi:http` runs it.
    let engine = Engine::default();
    let mut linker = Linker::<Instance>::new(&engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    application::Application::add_to_linker::<_, HasSelf<Instance>>(&mut linker, |instance| instance)?;
    let linked = ProxyPre::new(linker.instantiate_pre(&Component::from_file(&engine, wasm)?)?)?;

    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    loop {
        let connection = tokio::select! {
            accepted = listener.accept() => TokioIo::new(accepted?.0),
            _ = tokio::signal::ctrl_c() => break,
        };
        let (linked, numbers) = (linked.clone(), Arc::clone(&numbers));
        tokio::spawn(async move {
            let answer = service_fn(|request| handle(linked.clone(), Arc::clone(&numbers), request));
            if let Err(error) = http1::Builder::new().serve_connection(connection, answer).await {
                eprintln!("a connection ended: {error}");
            }
        });
    }
    let settled = numbers.close().await;
    storage.close().await;
    println!("closed, settled: {settled}");
    Ok(())
}

/// One sequence of unalike's component, in a store of its own.
struct Numbers {
    linked: CorePre<IdsCtx>,
    core: Mutex<Core>,
    /// That of each instance: whoever waits is woken also by an answer to the one that came after.
    signal: Signal,
}

/// An instance with its sequence.
struct Core {
    store: Store<IdsCtx>,
    instance: unalike::component::Core,
    orders: ResourceAny,
}

impl Numbers {
    fn new(ids: IdsCtx) -> Result<Self> {
        let engine = Engine::new(&engine_config())?;
        let mut linker = Linker::<IdsCtx>::new(&engine);
        add_to_linker(&mut linker, IdsCtx::view)?;
        let linked = CorePre::new(linker.instantiate_pre(&Component::new(&engine, COMPONENT)?)?)?;
        let signal = ids.signal();
        let core = Mutex::new(Core::new(&linked, ids)?);
        Ok(Self { linked, core, signal })
    }

    /// The next number. No lock is held while it waits.
    async fn next(&self) -> Result<u64, String> {
        let waiting = async {
            loop {
                // Listening begins before the call, so that an answer in between is not missed.
                let answered = self.signal.answered();
                match self.reserve()? {
                    Ok(run) => return Ok(run.first),
                    Err(types::Error::Pending) => answered.await,
                    Err(types::Error::Wait(ms) | types::Error::StoreFailed(ms @ 1..)) => {
                        tokio::time::sleep(Duration::from_millis(ms)).await;
                    }
                    Err(error) => return Err(format!("no number: {error:?} ({:?})", self.signal.last_error())),
                }
            }
        };
        let late = |_| format!("no number within {WAIT_MAX:?}: {:?}", self.signal.last_error());
        tokio::time::timeout(WAIT_MAX, waiting).await.map_err(late)?
    }

    /// One call, of a microsecond at most.
    fn reserve(&self) -> Result<Result<types::Run, types::Error>, String> {
        let mut core = self.core();
        let Core { store, instance, orders } = &mut *core;
        let sequence = instance.unalike_ids_sequences().sequence();
        match sequence.call_reserve(&mut *store, *orders, SystemClock.now_ms(), 1) {
            Ok(answer) => Ok(answer),
            Err(trap) => {
                // The instance is of no use any more. What it was granted is a gap, above which the next one begins.
                let mut successor = store.data().successor();
                successor.set_signal(&self.signal);
                *core = Core::new(&self.linked, successor).map_err(|error| format!("{error:#}"))?;
                Err(format!("the component trapped: {trap:#}"))
            }
        }
    }

    /// Gives back what was not used.
    async fn close(&self) -> bool {
        let settled = {
            let mut core = self.core();
            let Core { store, instance, orders } = &mut *core;
            if let Err(trap) = instance.unalike_ids_sequences().sequence().call_close(&mut *store, *orders) {
                eprintln!("closing gave nothing back: {trap:#}");
            }
            store.data().settle()
        };
        settled.await
    }

    fn core(&self) -> std::sync::MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Core {
    fn new(linked: &CorePre<IdsCtx>, ids: IdsCtx) -> Result<Self> {
        let options = sequences::SequenceOptions { floor: ids.floor("order"), ..Default::default() };
        let mut store = Store::new(linked.engine(), ids);
        let instance = linked.instantiate(&mut store)?;
        let orders = instance.unalike_ids_sequences().sequence().call_open(&mut store, "order", options)?;
        let orders = orders.map_err(|error| format_err!("the component answered {error:?}"))?;
        Ok(Self { store, instance, orders })
    }
}

/// The data of an instance of the other component.
struct Instance {
    table: ResourceTable,
    wasi: WasiCtx,
    http: WasiHttpCtx,
    numbers: Arc<Numbers>,
}

impl WasiView for Instance {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for Instance {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { ctx: &mut self.http, table: &mut self.table, hooks: Default::default() }
    }
}

impl application::numbers::Host for Instance {
    async fn next(&mut self, tag: String) -> Result<u64, String> {
        if tag == "order" { self.numbers.next().await } else { Err(format!("there is no sequence {tag:?}")) }
    }
}

/// Has an instance of its own answer a request.
async fn handle(
    linked: ProxyPre<Instance>,
    numbers: Arc<Numbers>,
    request: Request<Incoming>,
) -> Result<Response<HyperOutgoingBody>> {
    let (table, http) = (ResourceTable::new(), WasiHttpCtx::new());
    let instance = Instance { table, wasi: WasiCtx::builder().inherit_stderr().build(), http, numbers };
    let mut store = Store::new(linked.engine(), instance);
    let (answer, answered) = tokio::sync::oneshot::channel();
    let request = store.data_mut().http().new_incoming_request(Scheme::Http, request)?;
    let answer = store.data_mut().http().new_response_outparam(answer)?;
    let call = tokio::spawn(async move {
        let proxy = linked.instantiate_async(&mut store).await?;
        proxy.wasi_http_incoming_handler().call_handle(&mut store, request, answer).await
    });
    match answered.await {
        Ok(response) => Ok(response?),
        Err(_) => match call.await? {
            Ok(()) => bail!("the application gave no answer"),
            Err(trap) => Err(trap.context("the application trapped")),
        },
    }
}
