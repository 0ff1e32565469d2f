//! The facade for other components, behind a shop that is composed with it: run in this process, and by the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::task::JoinSet;
use unalike::wasi::{Service, ServiceBuilder, ServiceOptions};
use unalike_artifact::{ASYNC, ASYNC_REMOTE, CORE, SERVICE};
use unalike_memory::MemoryStore;
use unalike_storage::{Mode, SegmentStore, TagOptions};
use unalike_tests::faulty::FaultyStore;
use unalike_tests::hosts::repository;
use unalike_tests::process;
use unalike_tests::server::{Answer, Client, Server, target};
use wac_graph::types::Package;
use wac_graph::{CompositionGraph, EncodeOptions};
use wit_component::DecodedWasm;
use wit_parser::{FunctionKind, WorldItem};

use super::service::{CLIENTS, assert_none_twice, edge_of, figure, host};

/// How long a store may take to be used again.
const PATIENCE: Duration = Duration::from_secs(60);

/// The shop by itself.
fn unlinked_shop() -> anyhow::Result<Vec<u8>> {
    let target = target().join("shop");
    let manifest = "host/runtime/examples/shop/Cargo.toml";
    let mut build = process::cargo();
    build.args(["build", "--quiet", "--locked", "--release", "--target", "wasm32-wasip2", "--manifest-path", manifest]);
    let built = build.arg("--target-dir").arg(&target).current_dir(repository()).output()?;
    ensure!(built.status.success(), "the shop does not build: {}", String::from_utf8_lossy(&built.stderr));
    Ok(std::fs::read(target.join("wasm32-wasip2/release/shop.wasm"))?)
}

/// The shop, linked to this facade as `wac plug` links them.
fn shop(facade: &[u8]) -> anyhow::Result<Vec<u8>> {
    let shop = unlinked_shop()?;
    let mut graph = CompositionGraph::new();
    let mut register = |name: &str, bytes: &[u8]| -> anyhow::Result<_> {
        let package = Package::from_bytes(name, None, bytes.to_vec(), graph.types_mut())?;
        Ok(graph.register_package(package)?)
    };
    let (shop, facade) = (register("example:shop", &shop)?, register("unalike:facade", facade)?);
    wac_graph::plug(&mut graph, vec![facade], shop)?;
    graph.encode(EncodeOptions::default()).context("the shop and the facade fit together")
}

/// A host of this process, with numbers of this store.
fn within(component: &[u8], store: Arc<dyn SegmentStore>, options: ServiceOptions) -> anyhow::Result<Service> {
    Ok(ServiceBuilder::new(component).segments(store).options(options).build()?)
}

/// Each instance serves so many requests, however long it waits for one.
fn of_requests(requests: usize) -> ServiceOptions {
    ServiceOptions { instance_requests: Some(requests), instance_idle: PATIENCE, ..ServiceOptions::default() }
}

/// What an order was answered.
#[derive(Debug)]
enum Said {
    Ids(Vec<u64>),
    Failure { status: u16, problem: String, retry_after: Option<String> },
}

impl Said {
    fn ids(self) -> anyhow::Result<Vec<u64>> {
        match self {
            Self::Ids(ids) => Ok(ids),
            Self::Failure { .. } => bail!("no order: {self:?}"),
        }
    }
}

fn path(count: u64) -> String {
    if count == 1 { "/orders".to_owned() } else { format!("/orders?count={count}") }
}

/// The numbers of an answer, which ascend.
fn numbers(text: &str, count: u64) -> anyhow::Result<Vec<u64>> {
    let ids = text.lines().map(str::parse).collect::<Result<Vec<u64>, _>>()?;
    ensure!(ids.len() as u64 == count && ids.is_sorted_by(|one, next| one < next), "{count} numbers: {text:?}");
    Ok(ids)
}

async fn send(service: &Service, request: Request<String>) -> anyhow::Result<(u16, Option<String>, String)> {
    let response = service.handle(request).await?;
    let status = response.status().as_u16();
    let retry_after = response.headers().get("retry-after").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, retry_after, String::from_utf8(body.to_vec())?))
}

async fn order_at(service: &Service, path: &str, count: u64) -> anyhow::Result<Said> {
    let (status, retry_after, body) = send(service, Request::post(path).body(String::new())?).await?;
    if status == 201 {
        return Ok(Said::Ids(numbers(&body, count)?));
    }
    let document: Value = serde_json::from_str(&body)?;
    let kind = document.get("type").and_then(Value::as_str).context("a type")?;
    let problem = kind.strip_prefix("urn:unalike:problem:").context("a problem of unalike's")?.to_owned();
    Ok(Said::Failure { status, problem, retry_after })
}

async fn order(service: &Service, count: u64) -> anyhow::Result<Said> {
    order_at(service, &path(count), count).await
}

/// Has callers order until so many ids were handed out.
async fn many(service: &Service, total: u64, count: u64) -> anyhow::Result<Vec<u64>> {
    let taken = Arc::new(AtomicU64::new(0));
    let mut callers = JoinSet::new();
    for _ in 0..CLIENTS {
        let (service, taken) = (service.clone(), Arc::clone(&taken));
        callers.spawn(async move {
            let mut ids = Vec::new();
            while taken.load(Ordering::Relaxed) < total {
                ids.extend(order(&service, count).await?.ids()?);
                taken.fetch_add(count, Ordering::Relaxed);
            }
            anyhow::Ok(ids)
        });
    }
    let mut all = Vec::new();
    while let Some(ids) = callers.join_next().await {
        all.extend(ids??);
    }
    Ok(all)
}

/// Its functions are what hosts ask for whose components call each other: all of them may wait.
#[test]
fn the_facade_is_asynchronous_throughout() -> anyhow::Result<()> {
    let of_its_host = [
        "unalike:ids/types@0.1.0",
        "unalike:ids/segments@0.1.0",
        "unalike:ids/leases@0.1.0",
        "unalike:edge/grants@0.1.0",
        "wasi:cli/environment@0.3.0",
        "wasi:clocks/system-clock@0.3.0",
    ];
    for (component, kib_max) in [(ASYNC, 96), (ASYNC_REMOTE, 224)] {
        let DecodedWasm::Component(resolve, world) = wit_component::decode(component)? else {
            bail!("it is WIT, and no component");
        };
        let world = resolve.worlds.get(world).context("its world")?;
        for key in world.imports.keys() {
            let name = resolve.name_world_key(key);
            let is_wasi = name.starts_with("wasi:") && name.ends_with("@0.3.0");
            // Types are there for whoever uses them, and nobody has to give any.
            let is_known = of_its_host.contains(&name.as_str());
            let is_remote = component == ASYNC_REMOTE;
            assert!(if is_remote { is_wasi || name == of_its_host[0] } else { is_known }, "it imports {name}");
        }
        let exports: Vec<_> = world.exports.iter().collect();
        let [(key, WorldItem::Interface { id, .. })] = exports.as_slice() else { bail!("it exports {exports:?}") };
        assert_eq!(resolve.name_world_key(key), "unalike:ids/async-sequences@0.1.0");
        let functions = &resolve.interfaces.get(*id).context("its interface")?.functions;
        assert_eq!(functions.keys().collect::<Vec<_>>(), ["next", "take"]);
        for (name, function) in functions {
            assert_eq!(function.kind, FunctionKind::AsyncFreestanding, "{name}");
        }
        assert!(component.len() <= kib_max * 1024, "it has {} bytes", component.len());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_order_comes_twice_over_instances_that_are_recycled() -> anyhow::Result<()> {
    let store = Arc::new(MemoryStore::default());
    let service = within(&shop(ASYNC)?, Arc::clone(&store) as Arc<dyn SegmentStore>, of_requests(40))?;
    let ids = many(&service, 20_000, 10).await?;
    assert_none_twice(&ids);
    let (counts, granted) = (service.counts(), store.tag("order").await?.watermark);
    println!("{} ids of {granted} numbers, by {} instances", ids.len(), counts.instances);
    assert!(counts.instances >= 20_000 / 10 / 40, "{counts:?}");
    assert_eq!((counts.traps, counts.overdue), (0, 0), "{counts:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_fails_is_told_to_the_shop_and_used_again() -> anyhow::Result<()> {
    let component = shop(ASYNC)?;
    let troubles: [fn(&FaultyStore, bool); 2] = [FaultyStore::set_down, FaultyStore::set_answers_lost];
    for trouble in troubles {
        let store = Arc::new(FaultyStore::default());
        let service = within(&component, Arc::clone(&store) as Arc<dyn SegmentStore>, of_requests(1_000))?;
        let mut ids = order(&service, 3).await?.ids()?;
        trouble(&store, true);
        // What is in hand comes first.
        let failure = loop {
            match order(&service, 3).await? {
                Said::Ids(more) => ids.extend(more),
                failure @ Said::Failure { .. } => break failure,
            }
            ensure!(ids.len() < 100, "the store fails, and there are {ids:?}");
        };
        let Said::Failure { status, problem, retry_after } = failure else { unreachable!() };
        assert_eq!((status, problem.as_str(), retry_after.as_deref()), (503, "store-unavailable", Some("1")));
        trouble(&store, false);
        let deadline = Instant::now() + PATIENCE;
        let more = loop {
            match order(&service, 3).await? {
                Said::Ids(more) => break more,
                failure @ Said::Failure { .. } => ensure!(Instant::now() < deadline, "the store is back: {failure:?}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        ids.extend(more);
        assert_none_twice(&ids);
        assert_eq!(service.counts().instances, 1, "the same instance goes on");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_an_ordered_tag_ascend_over_instances_and_hosts() -> anyhow::Result<()> {
    let store = Arc::new(MemoryStore::default());
    store.create_tag("order", &TagOptions { mode: Mode::Ordered, ..TagOptions::default() }).await?;
    let component = shop(ASYNC)?;
    let open = || within(&component, Arc::clone(&store) as Arc<dyn SegmentStore>, of_requests(3));
    let hosts = [open()?, open()?];
    let mut last = 0;
    for host in hosts.iter().cycle().take(20) {
        assert_eq!(order(host, 2).await?.ids()?, [last + 1, last + 2]);
        last += 2;
    }
    // Of several at once, each is above all that were answered before it began.
    let greatest = Arc::new(AtomicU64::new(last));
    let mut callers = JoinSet::new();
    for host in hosts.iter().cycle().take(8) {
        let (host, greatest) = (host.clone(), Arc::clone(&greatest));
        callers.spawn(async move {
            for _ in 0..10 {
                let before = greatest.load(Ordering::SeqCst);
                let ids = order(&host, 2).await?.ids()?;
                ensure!(ids.iter().all(|id| *id > before), "{ids:?} after {before}");
                greatest.fetch_max(ids.iter().copied().max().unwrap_or_default(), Ordering::SeqCst);
            }
            Ok(())
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    assert!(greatest.load(Ordering::SeqCst) >= last + 8 * 10 * 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_calls_give_the_same_ids_as_the_service() -> anyhow::Result<()> {
    let open = |component: &[u8]| within(component, Arc::new(MemoryStore::default()), of_requests(50));
    let (shop, service) = (open(&shop(ASYNC)?)?, open(SERVICE)?);
    for (call, count) in [1, 1, 5, 2, 100, 1, 1, 1, 30, 7].into_iter().cycle().take(150).enumerate() {
        let request = Request::get(format!("/v1/sequences/order/ids?count={count}")).header("accept", "text/plain");
        let (status, _, body) = send(&service, request.body(String::new())?).await?;
        assert_eq!(status, 200, "{body}");
        assert_eq!(order(&shop, count).await?.ids()?, numbers(&body, count)?, "call {call}, for {count}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_dropped_takes_no_other_with_it() -> anyhow::Result<()> {
    let store = Arc::new(FaultyStore::default());
    let service = within(&shop(ASYNC)?, Arc::clone(&store) as Arc<dyn SegmentStore>, of_requests(1_000))?;
    let mut ids = order(&service, 1).await?.ids()?;
    store.hold(true);
    let arrived = store.arrivals();
    let calls = [(); 6].map(|()| {
        let service = service.clone();
        tokio::spawn(async move { order(&service, 50).await })
    });
    while store.arrivals() == arrived {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (dropped, others) = calls.split_at(3);
    dropped.iter().for_each(tokio::task::JoinHandle::abort);
    store.hold(false);
    let others = others.len();
    for call in calls {
        match call.await {
            Ok(said) => ids.extend(said?.ids()?),
            Err(error) => ensure!(error.is_cancelled(), "{error}"),
        }
    }
    ids.extend(order(&service, 3).await?.ids()?);
    assert_none_twice(&ids);
    let granted = store.inner().tag("order").await?.watermark;
    println!("{} ids of {granted} numbers", ids.len());
    assert!(ids.len() >= 1 + others * 50 + 3 && granted >= ids.len() as u64);
    assert_eq!(service.counts().traps, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_without_end_is_granted_what_its_latest_calls_used() -> anyhow::Result<()> {
    const CALLS: u64 = 50;
    let environment = vec![("UNALIKE_INSTANCE_REQUESTS".to_owned(), CALLS.to_string())];
    let store = Arc::new(MemoryStore::default());
    let options = ServiceOptions { environment, ..of_requests(1_000_000) };
    let service = within(&shop(ASYNC)?, Arc::clone(&store) as Arc<dyn SegmentStore>, options)?;
    let ids = many(&service, 6_000, 4).await?;
    assert_none_twice(&ids);
    let held = store.tag("order").await?.watermark - ids.len() as u64;
    let instances = service.counts().instances;
    println!("{} ids, {held} numbers held by {instances} instances", ids.len());
    assert!(held <= CALLS * 4 * instances, "{held} numbers are held by {instances} instances");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_out_of_range_are_refused_and_the_store_is_not_asked() -> anyhow::Result<()> {
    let store = Arc::new(MemoryStore::default());
    let service = within(&shop(ASYNC)?, Arc::clone(&store) as Arc<dyn SegmentStore>, of_requests(1_000))?;
    for count in ["0", "10001", "4294967295"] {
        let said = order_at(&service, &format!("/orders?count={count}"), 0).await?;
        let Said::Failure { status, problem, retry_after } = said else { bail!("{count}: {said:?}") };
        assert_eq!((status, problem.as_str(), retry_after), (400, "count-invalid", None), "{count}");
    }
    for query in ["count=abc", "count=-1", "cuont=3"] {
        let request = Request::post(format!("/orders?{query}")).body(String::new())?;
        let (status, _, said) = send(&service, request).await?;
        assert!(status == 400 && said.contains(query), "{status} {said}");
    }
    assert!(store.tag("order").await.is_err(), "nobody used it");
    assert_eq!(order(&service, 10_000).await?.ids()?.len(), 10_000);
    Ok(())
}

#[tokio::test]
async fn what_is_not_linked_yet_is_told_what_to_do() -> anyhow::Result<()> {
    for (component, said) in [
        (ASYNC, "it answers other components, and no requests: link it to an application"),
        (&unlinked_shop()?, "it imports unalike:ids/async-sequences, which another component gives"),
        (CORE, "it exports neither wasi:http/handler@0.3 nor wasi:http/incoming-handler@0.2"),
    ] {
        let error = ServiceBuilder::new(component).build().err().context("it answers no requests")?;
        assert!(error.to_string().contains(said), "{error}");
    }
    Ok(())
}

fn post(client: &Client, count: u64) -> anyhow::Result<Answer> {
    client.send("POST", &path(count), "text/plain", "")
}

#[test]
fn no_order_comes_twice_in_a_server_that_runs_the_shop() -> anyhow::Result<()> {
    const ROUNDS: u64 = 30;
    let mut server = Server::start()?;
    let flags = ["--component-requests", "40"];
    let (own, remote) = (host(&shop(ASYNC)?, &flags)?, edge_of(&shop(ASYNC_REMOTE)?, server.url(), &flags)?);
    for host in [&own, &remote] {
        let ids = std::thread::scope(|scope| {
            let work = || -> anyhow::Result<Vec<u64>> {
                let client = host.client();
                let mut ids = Vec::new();
                for _ in 0..ROUNDS {
                    let answer = post(&client, 10)?;
                    ensure!(answer.status == 201, "{answer:?}");
                    ids.extend(numbers(&answer.body, 10)?);
                }
                Ok(ids)
            };
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(work)).collect();
            let ids =
                clients.into_iter().map(|client| client.join().map_err(|_| anyhow::anyhow!("a client panicked"))?);
            ids.collect::<anyhow::Result<Vec<_>>>()
        })?;
        assert_none_twice(&ids.concat());
        assert!(figure(host, "unalike_component_instances_total")? >= CLIENTS * ROUNDS / 40);
        assert_eq!(figure(host, "unalike_component_instances_lost_total{reason=\"trap\"}")?, 0, "{}", host.log()?);
    }
    server.kill9()?;
    let client = remote.client();
    let refused =
        (0..1_000).map(|_| post(&client, 10)).find(|answer| !matches!(answer, Ok(answer) if answer.status == 201));
    let refused = refused.context("a shop whose numbers have no end")??;
    assert_eq!((refused.status, refused.problem()?.as_str()), (503, "store-unavailable"), "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    Ok(())
}
