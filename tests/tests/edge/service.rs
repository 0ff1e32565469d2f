//! The service for edge runtimes, with numbers from real servers and from a store of its host.

#![expect(clippy::unwrap_used, clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use std::collections::HashSet;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use unalike_tests::misdeeds::{Misdeed, misbehave};
use unalike_tests::proxy::Proxy;
use unalike_tests::server::{Answer, Client, Server, fails};

/// How many clients ask at once, each on a connection of its own.
pub(crate) const CLIENTS: u64 = 8;

/// A host of the whole service, whose numbers these servers grant.
fn edge(servers: &str, more: &[&str]) -> anyhow::Result<Server> {
    edge_of(unalike_artifact::SERVICE_REMOTE, servers, more)
}

/// The same of this component.
pub(crate) fn edge_of(component: &[u8], servers: &str, more: &[&str]) -> anyhow::Result<Server> {
    let hosts = servers.strip_prefix("http://").and_then(|rest| rest.split('?').next()).context("a URL")?;
    let variable = format!("UNALIKE_SERVERS={servers}");
    let flags = ["--component-env", &variable, "--component-hosts", hosts];
    host(component, &[&flags, more].concat())
}

/// A host of this component.
pub(crate) fn host(component: &[u8], flags: &[&str]) -> anyhow::Result<Server> {
    let directory = Arc::new(TempDir::new()?);
    let path = directory.path().join("service.wasm");
    std::fs::write(&path, component)?;
    let mut arguments = vec!["--component".to_owned(), path.to_str().context("a path")?.to_owned()];
    arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
    Server::start_in(directory, arguments)
}

/// What clients got, and how often they were refused.
pub(crate) struct Taken {
    pub(crate) ids: Vec<u64>,
    pub(crate) refused: u64,
}

/// Has clients take ids until so many are taken, `count` at a time; they go on when they are refused with 503.
pub(crate) fn take(edge: &Server, tag: &str, total: u64, count: u64, taken: &AtomicU64) -> anyhow::Result<Taken> {
    take_at(edge, &format!("/v1/sequences/{tag}/ids?count={count}"), total, count, taken)
}

pub(crate) fn take_at(edge: &Server, path: &str, total: u64, count: u64, taken: &AtomicU64) -> anyhow::Result<Taken> {
    take_from(edge.url(), path, total, count, taken)
}

pub(crate) fn take_from(url: &str, path: &str, total: u64, count: u64, taken: &AtomicU64) -> anyhow::Result<Taken> {
    let deadline = Instant::now() + Duration::from_secs(600);
    let work = || -> anyhow::Result<Taken> {
        let client = Client::new(url);
        let (mut ids, mut refused) = (Vec::new(), 0);
        while taken.load(Ordering::Relaxed) < total {
            ensure!(Instant::now() < deadline, "{refused} requests were refused, and {} served", ids.len());
            let answer = client.get(path)?;
            if answer.status == 200 {
                let got = answer.ids()?;
                ensure!(got.len() as u64 == count, "{answer:?}");
                ensure!(got.is_sorted_by(|one, next| one < next), "ids of an answer ascend: {answer:?}");
                taken.fetch_add(count, Ordering::Relaxed);
                ids.extend(got);
            } else {
                ensure!(answer.status == 503, "{answer:?}");
                ensure!(answer.header("retry-after").is_some(), "{answer:?}");
                refused += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(Taken { ids, refused })
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(work)).collect();
        let mut all = Taken { ids: Vec::new(), refused: 0 };
        for client in clients {
            let Taken { ids, refused } = client.join().unwrap()?;
            all.ids.extend(ids);
            all.refused += refused;
        }
        Ok(all)
    })
}

pub(crate) fn assert_none_twice(ids: &[u64]) {
    let mut seen = HashSet::with_capacity(ids.len());
    for id in ids {
        assert!(seen.insert(id), "{id} was handed out twice");
    }
}

/// A figure of a host, by its name and labels as they are written.
pub(crate) fn figure(edge: &Server, name: &str) -> anyhow::Result<u64> {
    let answer = edge.get("/metrics")?;
    let line = answer.body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(line.with_context(|| format!("no {name} in {}", answer.body))?.parse()?)
}

/// How many numbers of a tag were granted.
pub(crate) fn granted(server: &Client, tag: &str) -> anyhow::Result<u64> {
    let record = server.get(&format!("/v1/tags/{tag}"))?.json()?;
    Ok(record.get("watermark").and_then(Value::as_str).with_context(|| format!("{record}"))?.parse()?)
}

/// The share of numbers that were granted and not handed out, in percent.
pub(crate) fn lost(server: &Client, tag: &str, handed_out: usize) -> anyhow::Result<f64> {
    let granted = granted(server, tag)? as f64;
    Ok((granted - handed_out as f64) / granted * 100.0)
}

/// How often a server is killed while ids are taken.
pub(crate) const KILLS: u64 = 10;

/// A server that is killed while others take ids that it grants.
pub(crate) struct KilledServer {
    server: Server,
    proxy: Proxy,
}

impl KilledServer {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let server = Server::start()?;
        let proxy = Proxy::start(port_of(&server)?)?;
        Ok(Self { server, proxy })
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// Where it answers after each kill.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.proxy.port())
    }

    /// Has clients take ids of a host until so many are taken, `count` at a time, while the server is killed.
    pub(crate) fn take(mut self, host: &str, path: &str, total: u64, count: u64) -> anyhow::Result<(Taken, Server)> {
        let taken = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let killing = scope.spawn(|| -> anyhow::Result<Server> {
                for kill in 1..=KILLS {
                    while taken.load(Ordering::Relaxed) < total * kill / (KILLS + 1) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    self.server.restart()?;
                    self.proxy.lead_to(port_of(&self.server)?);
                }
                Ok(self.server)
            });
            let all = take_from(host, &format!("{path}?count={count}"), total, count, &taken);
            // Whoever waits for clients that have given up goes on.
            taken.store(total, Ordering::Relaxed);
            let killed = killing.join().unwrap();
            all.and_then(|all| Ok((all, killed?)))
        })
    }
}

fn port_of(server: &Server) -> anyhow::Result<u16> {
    Ok(server.url().rsplit_once(':').context("a port")?.1.parse()?)
}

/// `UNALIKE_TEST_EDGE_IDS` says how many.
pub(crate) fn ids_total() -> anyhow::Result<u64> {
    Ok(match std::env::var("UNALIKE_TEST_EDGE_IDS") {
        Ok(total) => total.parse()?,
        Err(_) => 100_000,
    })
}

#[test]
fn at_a_steady_load_instances_lose_less_than_a_twentieth() -> anyhow::Result<()> {
    let server = Server::start()?;
    let edge = edge(server.url(), &[])?;
    for (tag, total, count) in [("one", 10_000, 1), ("ten", ids_total()? / 2, 10)] {
        let began = Instant::now();
        let taken = take(&edge, tag, total, count, &AtomicU64::new(0))?;
        let seconds = began.elapsed().as_secs_f64();
        assert_none_twice(&taken.ids);
        let lost = lost(&server.client(), tag, taken.ids.len())?;
        let requests = taken.ids.len() as f64 / count as f64 / seconds;
        println!("{count} ids a request: {requests:.0} requests/s, {lost:.2}% of the numbers lost");
        assert_eq!(taken.refused, 0, "{}", edge.log()?);
        assert!(lost < 5.0, "{lost}% of the numbers are lost");
    }
    Ok(())
}

#[test]
fn no_id_comes_twice_while_the_server_is_killed_and_instances_are_recycled() -> anyhow::Result<()> {
    let killed = KilledServer::start()?;
    let edge = edge(&killed.url(), &[])?;
    let (all, server) = killed.take(edge.url(), "/v1/sequences/order/ids", ids_total()?, 10)?;
    assert_none_twice(&all.ids);
    let lost = lost(&server.client(), "order", all.ids.len())?;
    println!("{} ids, {KILLS} kills: {} requests refused, {lost:.2}% of the numbers lost", all.ids.len(), all.refused);
    assert!(all.refused > 0, "nobody noticed that the server was gone");
    assert!(lost < 20.0, "{lost}% of the numbers are lost");
    Ok(())
}

#[test]
fn no_proxy_makes_an_id_of_an_instance_come_twice() -> anyhow::Result<()> {
    for misdeed in Misdeed::ALL {
        let server = Server::start()?;
        // Each instance has another grant, and memory for its work alone.
        let flags = ["--component-requests", "3", "--component-memory", "8"];
        let edge = edge(&misbehave(server.url(), misdeed)?, &flags)?;
        let began = Instant::now();
        let taken = take(&edge, "order", 400, 2, &AtomicU64::new(0))?;
        println!("{misdeed:?}: {} refused in {} ms", taken.refused, began.elapsed().as_millis());
        assert_none_twice(&taken.ids);
        let burns = misdeed != Misdeed::SendsTwice;
        assert_eq!(taken.refused > 0, burns, "{misdeed:?}: {} refused", taken.refused);
        assert_eq!(figure(&edge, "unalike_component_instances_lost_total{reason=\"trap\"}")?, 0, "{misdeed:?}");
        // Not a line for each.
        let lines = edge.log()?.lines().count();
        assert!(lines < 20, "{misdeed:?}: {lines} lines: {}", edge.log()?);
    }
    Ok(())
}

#[test]
fn a_server_that_does_not_answer_is_passed_over() -> anyhow::Result<()> {
    assert_silence_is_passed_over(unalike_artifact::SERVICE_REMOTE)
}

/// Each request gets its ids of the second of two servers, though the first may have granted some.
pub(crate) fn assert_silence_is_passed_over(component: &[u8]) -> anyhow::Result<()> {
    let (silent, server) = (TcpListener::bind("127.0.0.1:0")?, Server::start()?);
    let identity = server.get("/v1/store")?.json()?;
    let identity = identity.get("store").and_then(Value::as_str).context("a name")?;
    let second = server.url().strip_prefix("http://").context("a URL")?;
    let servers = format!("http://{},{second}?store={identity}&request-timeout-ms=300", silent.local_addr()?);
    let edge = edge_of(component, &servers, &["--component-requests", "2"])?;
    let client = edge.client();
    let mut ids = Vec::new();
    for round in 0..6 {
        let path =
            if round % 3 == 2 { "/v1/snowflakes/default/ids?count=2" } else { "/v1/sequences/order/ids?count=2" };
        ids.extend(client.ids(path)?);
    }
    assert_none_twice(&ids);
    assert_eq!(client.get("/health/ready")?.status, 200);
    Ok(())
}

#[test]
fn whether_it_is_ready_its_servers_say_too_and_the_log_has_what_is_wrong() -> anyhow::Result<()> {
    let mut server = Server::start()?;
    let proxy = Proxy::start(port_of(&server)?)?;
    for component in [unalike_artifact::SERVICE_REMOTE, unalike_artifact::SERVICE_REMOTE_0_2] {
        let edge = edge_of(component, &format!("http://127.0.0.1:{}", proxy.port()), &[])?;
        let is_ready = |wanted: u16| -> anyhow::Result<Answer> {
            let deadline = Instant::now() + Duration::from_secs(60);
            loop {
                let answer = edge.get("/health/ready")?;
                if answer.status == wanted {
                    return Ok(answer);
                }
                ensure!(Instant::now() < deadline, "{answer:?}: {}", edge.log()?);
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        assert_eq!(edge.get("/health/ready")?.json()?, json!({ "status": "ready" }));
        server.kill9()?;
        assert_eq!(is_ready(503)?.problem()?, "store-unavailable");
        edge.wait_for_log("the component is not ready", 1)?;
        assert_eq!(edge.get("/health/live")?.status, 200);
        server.restart()?;
        proxy.lead_to(port_of(&server)?);
        is_ready(200)?;
        edge.wait_for_log("the component is ready again", 1)?;
    }
    Ok(())
}

#[test]
fn settings_of_a_component_that_are_wrong_are_logged() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    let path = directory.path().join("tokens.toml");
    std::fs::write(&path, "[[tokens]]\nname = \"edge\"\ntoken = \"token-of-the-edge\"\nscope = \"lease\"\n")?;
    let server = Server::start_with(["--tokens", path.to_str().context("a path")?])?;
    // Another host of a component, which an operator may take for a server.
    let beside = host(unalike_artifact::SERVICE, &[])?;
    for component in [unalike_artifact::SERVICE_REMOTE, unalike_artifact::SERVICE_REMOTE_0_2] {
        for (servers, flags, words) in [
            (server.url(), &["--component-env", "UNALIKE_TOKEN=token-of-nobody"][..], "the servers know no such token"),
            (server.url(), &["--component-env", "UNALIKE_TOKEN=token-of-the-edge\n"], "such as a line's end"),
            (beside.url(), &["--component-env", "UNALIKE_TOKEN=token-of-the-edge"], "grants no numbers"),
            ("http://localhost?store=five", &[], "32 hexadecimal digits"),
        ] {
            let edge = edge_of(component, servers, flags)?;
            for path in ["/v1/sequences/order/ids", "/v1/snowflakes/default/ids", "/health/ready"] {
                let answer = edge.get(path)?;
                assert_eq!((answer.status, answer.problem()?), (500, "store-refused".to_owned()), "{path}: {answer:?}");
            }
            let log = edge.log()?;
            let lines: Vec<_> = log.lines().filter(|line| line.contains(words)).collect();
            // One of requests that fail, however many, and one that it is not ready.
            assert!(lines.len() == 2 && lines.iter().all(|line| !line.contains("token-of")), "{log}");
        }
        let right = edge_of(component, server.url(), &["--component-env", "UNALIKE_TOKEN=token-of-the-edge"])?;
        assert_eq!(right.client().ids("/v1/sequences/order/ids")?.len(), 1);
        assert_eq!(right.get("/health/ready")?.status, 200);
    }
    Ok(())
}

#[test]
fn a_component_without_memory_for_a_start_is_refused_at_once() -> anyhow::Result<()> {
    for component in [unalike_artifact::SERVICE, unalike_artifact::SERVICE_REMOTE, unalike_artifact::SERVICE_0_2] {
        let directory = TempDir::new()?;
        std::fs::write(directory.path().join("service.wasm"), component)?;
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--component", "service.wasm", "--component-memory", "1"];
        fails(directory.path(), &arguments, 1, &["service.wasm", "no instance of it starts", "memory"]);
        assert!(!directory.path().join("unalike.sqlite").exists(), "no store is begun for it");
    }
    Ok(())
}

/// A component of WASI 0.2 that wants a table of two million elements. It traps if it gets it, and else never ends.
const GREEDY: &str = r#"
(component
  (import "wasi:http/types@0.2.0" (instance $types
    (export "incoming-request" (type (sub resource)))
    (export "response-outparam" (type (sub resource)))))
  (alias export $types "incoming-request" (type $request))
  (alias export $types "response-outparam" (type $outparam))
  (core module $module
    (table $table 1 funcref)
    (func (export "handle") (param i32 i32)
      (if (i32.ge_s (table.grow $table (ref.null func) (i32.const 2000000)) (i32.const 0)) (then unreachable))
      (loop $again (br $again))))
  (core instance $instance (instantiate $module))
  (func $handle (param "request" (own $request)) (param "response-out" (own $outparam))
    (canon lift (core func $instance "handle")))
  (instance $handler (export "handle" (func $handle)))
  (export "wasi:http/incoming-handler@0.2.0" (instance $handler)))
"#;

#[test]
fn a_component_gets_no_table_of_any_size() -> anyhow::Result<()> {
    let edge = host(&wat::parse_str(GREEDY)?, &["--request-timeout-ms", "1000"])?;
    let answer = edge.get("/v1/sequences/order/ids")?;
    assert_eq!((answer.status, answer.problem()?), (503, "timeout".to_owned()), "{answer:?}: {}", edge.log()?);
    assert_eq!(figure(&edge, "unalike_component_instances_lost_total{reason=\"trap\"}")?, 0);
    Ok(())
}

#[test]
fn answers_are_the_servers() -> anyhow::Result<()> {
    let server = Server::start()?;
    assert_answers_are_the_servers(&server, &edge(server.url(), &[])?)
}

pub(crate) fn assert_answers_are_the_servers(server: &Server, edge: &Server) -> anyhow::Result<()> {
    let (server, edge) = (server.client().with("x-request-id", "r-1"), edge.client().with("x-request-id", "r-1"));
    for path in [
        "/v1/sequences/order/ids?count=0",
        "/v1/sequences/order/ids?count=10001",
        "/v1/sequences/order/ids?count=two",
        "/v1/sequences/order/ids?count=1&count=1",
        "/v1/sequences/order/ids?n=1",
        "/v1/sequences/order/ids?as=text",
        "/v1/sequences/%ff/ids",
        "/v1/sequences/a%0ab/ids",
        "/v1/sequences/%20order/ids",
        "/v1/sequences//ids",
        "/v1/sequences/order",
        "/v1/nothing",
        "/v1/snowflakes/nobody/ids",
        "/v1/snowflakes/default/ids?sub=a",
        "/v1/snowflakes/default/ids?count=0",
    ] {
        let (wanted, answer) = (server.get(path)?, edge.get(path)?);
        assert_eq!((answer.status, answer.problem()?), (wanted.status, wanted.problem()?), "{path}: {answer:?}");
        let (wanted, answer) = (wanted.json()?, answer.json()?);
        for member in ["type", "title", "status", "request_id", "count", "count_max", "parameter", "value", "tag"] {
            // The edge knows fewer parameters, and says so.
            assert_eq!(answer.get(member), wanted.get(member), "{path}: {member} of {answer}");
        }
    }
    for (accept, path) in [
        ("application/json", "/v1/sequences/a%20b%2Fc/ids?count=3"),
        ("text/plain", "/v1/sequences/lines/ids?count=3"),
        ("*/*", "/v1/sequences/chat/ids?sub=user%201"),
    ] {
        let answer = edge.get_as(path, accept)?;
        // The numbers of the server begin where the edge's end.
        let wanted = server.get_as(&path.replace("/ids", "-s/ids"), accept)?;
        assert_eq!(answer.body, wanted.body.replace("-s\"", "\""), "{path}");
        for header in ["content-type", "cache-control", "x-request-id"] {
            assert_eq!(answer.header(header), wanted.header(header), "{path}: {header}");
        }
    }
    for (method, path) in [("DELETE", "/v1/sequences/order/ids"), ("PUT", "/v1/sequences/order/ids")] {
        let [answer, wanted] = [&edge, &server].map(|client| client.send(method, path, "text/plain", "").unwrap());
        assert_eq!((answer.status, answer.problem()?), (wanted.status, wanted.problem()?), "{method}");
        assert_eq!(answer.header("allow"), wanted.header("allow"), "{method}");
    }
    let numbers = edge.get("/v1/sequences/numbers/ids?count=2&as=number")?;
    assert_eq!(numbers.json()?, json!({ "tag": "numbers", "ids": [1, 2] }));
    server.send("POST", "/v1/sequences/great/segments?count=1&at_least=9007199254740991", "application/json", "")?;
    assert_eq!(edge.get("/v1/sequences/great/ids?as=number")?.problem()?, "number-unsafe");
    let posted = edge.send("POST", "/v1/sequences/posted/ids?count=2", "text/plain", "")?;
    assert_eq!(posted.json()?, json!({ "tag": "posted", "ids": ["1", "2"] }));
    Ok(())
}

#[test]
fn ordered_tags_ascend_from_instance_to_instance_and_nothing_is_lost() -> anyhow::Result<()> {
    let server = Server::start()?;
    let tag = json!({ "tag": "strict", "mode": "ordered" });
    assert!(server.client().send_json("POST", "/v1/tags", &tag)?.status < 300);
    let edges =
        [edge(server.url(), &["--component-requests", "3"])?, edge(server.url(), &["--component-requests", "5"])?];
    let mut last = 0;
    for round in 0..40 {
        let ids = edges[round % 2].client().ids("/v1/sequences/strict/ids?count=2")?;
        assert_eq!(ids, [last + 1, last + 2], "in round {round}");
        last += 2;
    }
    let taken = take(&edges[0], "strict", 400, 2, &AtomicU64::new(0))?;
    assert_none_twice(&taken.ids);
    assert_eq!((taken.refused, taken.ids.len() as u64 + last), (0, granted(&server.client(), "strict")?));
    Ok(())
}

#[test]
fn snowflakes_are_the_servers_and_come_once() -> anyhow::Result<()> {
    let server = Server::start()?;
    let edge = edge(server.url(), &[])?;
    let path = "/v1/snowflakes/default/ids?count=5";
    let (at_edge, at_server) = std::thread::scope(|scope| {
        let beside = scope.spawn(|| take_at(&server, path, 5_000, 5, &AtomicU64::new(0)));
        let at_edge = take_at(&edge, path, 10_000, 5, &AtomicU64::new(0));
        (at_edge, beside.join().unwrap())
    });
    let (at_edge, at_server) = (at_edge?, at_server?);
    assert_eq!((at_edge.refused, at_server.refused), (0, 0), "{}", edge.log()?);
    assert_none_twice(&[at_edge.ids, at_server.ids].concat());
    // However long an instance holds what it was given, it hands out nothing old.
    let client = edge.client();
    let stamp = |id: u64| id >> 22;
    let mut last = 0;
    for _ in 0..3 {
        for id in client.get("/v1/snowflakes/default/ids?count=2")?.ids()? {
            assert!(stamp(id) + 1_000 >= last, "{id} is older than what was handed out before");
            last = stamp(id);
        }
        std::thread::sleep(Duration::from_millis(600));
    }
    let one = client.get("/v1/snowflakes/default/ids")?;
    assert_eq!(one.json()?["snowflake"], json!("default"));
    // A host that gives numbers of a store has no worker for an instance.
    let alone = host(unalike_artifact::SERVICE, &[])?;
    let answer = alone.get("/v1/snowflakes/default/ids")?;
    assert_eq!((answer.status, answer.problem()?), (404, "snowflake-unknown".to_owned()));
    Ok(())
}

#[test]
fn a_trap_costs_its_request_and_the_next_instance_goes_on() -> anyhow::Result<()> {
    let server = Server::start()?;
    let flags = ["--component-memory", "8", "--component-env", "UNALIKE_COUNT_MAX=1000000"];
    let edge = edge(server.url(), &flags)?;
    let client = edge.client();
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.extend(client.ids("/v1/sequences/order/ids?count=10")?);
        // Its text needs more memory than there is.
        let answer = client.get("/v1/sequences/order/ids?count=900000")?;
        assert_eq!((answer.status, answer.problem()?), (503, "rebuilt".to_owned()), "{answer:?}");
        seen.extend(client.ids("/v1/sequences/order/ids?count=10")?);
    }
    assert_none_twice(&seen);
    Ok(())
}

#[test]
fn a_service_without_servers_says_so_and_another_store_is_refused() -> anyhow::Result<()> {
    assert_only_its_store_is_believed(unalike_artifact::SERVICE_REMOTE, 1)
}

/// `first_left`: the first number that a server has left once a host was told another store, and refused its answer.
pub(crate) fn assert_only_its_store_is_believed(component: &[u8], first_left: u64) -> anyhow::Result<()> {
    let edge = |servers: &str| edge_of(component, servers, &[]);
    let (server, other) = (Server::start()?, Server::start()?);
    // Nobody listens there any more.
    let gone = {
        let gone = Server::start()?;
        gone.url().strip_prefix("http://").context("a URL")?.to_owned()
    };
    let store = |server: &Server| -> anyhow::Result<String> {
        let stores = server.get("/v1/store")?.json()?;
        Ok(stores.get("store").and_then(Value::as_str).context("a name")?.to_owned())
    };
    let address = |url: &str| url.strip_prefix("http://").unwrap().to_owned();
    let (first, second) = (address(server.url()), address(other.url()));
    let problem =
        |servers: &str| -> anyhow::Result<String> { edge(servers)?.get("/v1/sequences/order/ids")?.problem() };
    assert_eq!(problem(&format!("http://{gone}"))?, "store-unavailable");
    assert_eq!(problem(&format!("http://{first},{second}"))?, "store-refused", "without the name of the store");
    let (ours, others) = (store(&server)?, store(&other)?);
    let answer = edge(&format!("http://{first}?store={others}"))?.get("/v1/sequences/order/ids")?;
    assert_eq!(answer.problem()?, "store-refused", "its store is another");
    assert!(answer.body.contains(&format!("has the store {ours}, and not {others}")), "{answer:?}");
    // The second has another store and is passed over; the first of all is gone.
    let named = format!("http://{gone},{second},{first}?store={ours}");
    let edge = edge(&named)?;
    assert_eq!(edge.client().ids("/v1/sequences/order/ids?count=3")?, [first_left, first_left + 1, first_left + 2]);
    Ok(())
}

#[test]
fn a_server_that_had_another_store_for_a_while_is_used_again_where_the_store_is_named() -> anyhow::Result<()> {
    let (server, other) = (Server::start()?, Server::start()?);
    let store = server.get("/v1/store")?.json()?;
    let store = store.get("store").and_then(Value::as_str).context("a name")?;
    // What one instance is answered: before, while and after its server has another store. Another tag each time, so
    // that none is in hand.
    let asked = |query: &str| -> anyhow::Result<[String; 4]> {
        let proxy = Proxy::start(port_of(&server)?)?;
        loop {
            let edge = edge(&format!("http://127.0.0.1:{}{query}", proxy.port()), &[])?;
            let client = edge.client();
            let said = |path: &str| -> anyhow::Result<String> {
                let answer = client.get(path)?;
                if answer.status == 200 { Ok("ids".to_owned()) } else { answer.problem() }
            };
            let before = said("/v1/sequences/first/ids")?;
            proxy.lead_to(port_of(&other)?);
            let elsewhere = said("/v1/sequences/second/ids")?;
            proxy.lead_to(port_of(&server)?);
            let after = [said("/v1/sequences/third/ids")?, said("/v1/snowflakes/default/ids")?];
            // On a machine that pauses it may have been idle for too long.
            if figure(&edge, "unalike_component_instances_total")? == 1 {
                let [sequence, snowflake] = after;
                return Ok([before, elsewhere, sequence, snowflake]);
            }
        }
    };
    assert_eq!(asked(&format!("?store={store}"))?, ["ids", "store-refused", "ids", "ids"]);
    assert_eq!(asked("")?, ["ids", "store-refused", "store-refused", "store-refused"]);
    Ok(())
}

#[test]
fn a_host_gives_a_component_numbers_of_its_own_store() -> anyhow::Result<()> {
    let edge = host(unalike_artifact::SERVICE, &[])?;
    let taken = take(&edge, "order", 5_000, 5, &AtomicU64::new(0))?;
    assert_none_twice(&taken.ids);
    assert_eq!(taken.refused, 0);
    assert_eq!(edge.get("/health/live")?.json()?, json!({ "status": "live" }));
    Ok(())
}

/// A server with this configuration.
fn configured(configuration: &str, flags: &[&str]) -> anyhow::Result<Server> {
    let directory = Arc::new(TempDir::new()?);
    let path = directory.path().join("unalike.toml");
    std::fs::write(&path, configuration)?;
    let mut arguments = vec!["--config".to_owned(), path.to_str().context("a path")?.to_owned()];
    arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
    Server::start_in(directory, arguments)
}

#[test]
fn a_quota_that_is_used_up_is_no_store_that_is_down() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    let path = directory.path().join("service.wasm");
    std::fs::write(&path, unalike_artifact::SERVICE)?;
    let edge = configured("[tags.few]\nids_per_s = 1\n", &["--component", path.to_str().context("a path")?])?;
    // The numbers of a minute may be taken at once.
    let refused = (0..200).find_map(|_| match edge.get("/v1/sequences/few/ids") {
        Ok(answer) if answer.status == 200 => None,
        answer => Some(answer),
    });
    let refused = refused.context("two hundred ids of one a second")??;
    assert_eq!((refused.status, refused.problem()?.as_str()), (429, "quota-reached"), "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert!(refused.json()?["detail"].as_str().unwrap().contains("a quota of 1 ids per second"), "{refused:?}");
    assert_eq!(edge.get("/v1/sequences/other/ids")?.status, 200);
    Ok(())
}

#[test]
fn tags_that_are_shown_otherwise_are_refused_by_every_host() -> anyhow::Result<()> {
    const CONFIGURATION: &str = r#"
        [tags.gene]
        gene_bits = 4
        [tags.day]
        template = "{yyyyMMdd}-{id:03}"
        restart = "day"
        [tags.few]
        bits = 3
        [tags.quick]
        channel = "quick"
    "#;
    let directory = TempDir::new()?;
    let path = directory.path().join("service.wasm");
    std::fs::write(&path, unalike_artifact::SERVICE)?;
    // It has the store that a server would have, and the server shows 19 for the number 1.
    let own = configured(CONFIGURATION, &["--component", path.to_str().context("a path")?])?;
    let server = configured(CONFIGURATION, &[])?;
    for edge in [own, edge(server.url(), &[])?] {
        for tag in ["gene", "day", "quick"] {
            let answer = edge.get(&format!("/v1/sequences/{tag}/ids"))?;
            assert_eq!(answer.problem()?, "tag-invalid", "{tag}: {answer:?}");
        }
        assert_eq!(edge.client().ids("/v1/sequences/few/ids?count=7")?, [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(edge.get("/v1/sequences/few/ids")?.problem()?, "exhausted");
        assert_eq!(edge.client().ids("/v1/sequences/plain/ids?count=2")?, [1, 2]);
    }
    Ok(())
}

#[test]
fn snowflakes_of_another_store_are_refused() -> anyhow::Result<()> {
    // All servers of one store lease the only worker one after the other; two of two stores have it together.
    const CONFIGURATION: &str = "[snowflakes.web]\nlayout = \"51/0/12 epoch 2020-01-01\"";
    let (server, other) = (configured(CONFIGURATION, &[])?, configured(CONFIGURATION, &[])?);
    let store = server.get("/v1/store")?.json()?["leases"].as_str().context("a name")?.to_owned();
    let address = |url: &str| url.strip_prefix("http://").unwrap().to_owned();
    let (first, second) = (address(server.url()), address(other.url()));
    let path = "/v1/snowflakes/web/ids?count=3";
    let only = edge(&format!("http://{second}?store={store}"), &[])?;
    assert_eq!(only.get(path)?.problem()?, "store-refused");
    // The second is passed over.
    let both = edge(&format!("http://{second},{first}?store={store}"), &[])?;
    assert_eq!(both.client().ids(path)?.len(), 3);
    assert_eq!(other.get(&format!("{path}&leases={store}"))?.problem()?, "snowflake-unknown");
    assert_eq!(server.get(&format!("{path}&leases={store}"))?.ids()?.len(), 3);
    Ok(())
}

#[test]
fn snowflakes_come_from_servers_that_give_little_and_show_them_otherwise() -> anyhow::Result<()> {
    const CONFIGURATION: &str = r#"
        count_max = 50
        segment_count_max = 3
        [snowflakes.written]
        layout = "twitter"
        template = "W-{id}"
        [snowflakes.hidden]
        layout = "cosid-53"
        keys = [0]
        key_id_bits = 0
        [keys.0]
        secret = "000102030405060708090a0b0c0d0e0f"
    "#;
    let server = configured(CONFIGURATION, &[])?;
    let edge = edge(server.url(), &[])?;
    for name in ["default", "written", "hidden"] {
        let taken = take_at(&edge, &format!("/v1/snowflakes/{name}/ids?count=40"), 800, 40, &AtomicU64::new(0))?;
        assert_none_twice(&taken.ids);
        assert_eq!(taken.refused, 0, "{name}: {}", edge.log()?);
    }
    // More grants than a request may wait for in vain.
    assert_eq!(edge.client().ids("/v1/sequences/order/ids?count=1000")?.len(), 1_000);
    Ok(())
}

#[test]
fn a_token_of_some_tags_is_good_for_no_component() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    let path = directory.path().join("tokens.toml");
    let tokens = [("all", ""), ("one", "tags = [\"order\"]")].map(|(name, tags)| {
        format!("[[tokens]]\nname = \"{name}\"\ntoken = \"token-of-{name}-tags\"\nscope = \"read\"\n{tags}\n")
    });
    std::fs::write(&path, tokens.concat())?;
    let edge = host(unalike_artifact::SERVICE, &["--tokens", path.to_str().context("a path")?])?;
    let status = |name: &str| -> anyhow::Result<u16> {
        let client = edge.client().with("authorization", &format!("Bearer token-of-{name}-tags"));
        Ok(client.get("/v1/sequences/other/ids")?.status)
    };
    assert_eq!((status("all")?, status("one")?, status("no")?), (200, 403, 401));
    Ok(())
}

/// A component of `wasi:http` 0.2 whose handler never ends:
///
/// ```text
/// (component
///   (import "wasi:http/types@0.2.0" (instance $types
///     (export "incoming-request" (type (sub resource)))
///     (export "response-outparam" (type (sub resource)))))
///   (alias export $types "incoming-request" (type $request))
///   (alias export $types "response-outparam" (type $response))
///   (core module $endless (func (export "handle") (param i32 i32) (loop br 0)))
///   (core instance $instance (instantiate $endless))
///   (func $handle (param "request" (own $request)) (param "response-out" (own $response))
///     (canon lift (core func $instance "handle")))
///   (instance $handler (export "handle" (func $handle)))
///   (export "wasi:http/incoming-handler@0.2.0" (instance $handler)))
/// ```
const ENDLESS: &str = "\
    0061736d0d000100072e014202040010696e636f6d696e672d726571756573740301040011726573706f6e73652d6f7574706172616d0301\
    0a1a010015776173693a687474702f747970657340302e322e300500062a0203000010696e636f6d696e672d726571756573740300001172\
    6573706f6e73652d6f7574706172616d013c0061736d0100000001060160027f7f0003020100070a010668616e646c6500000a0901070003\
    400c000b0b000f046e616d65000807656e646c6573730204010000000720036901690240020772657175657374030c726573706f6e73652d\
    6f7574040100060c01000001000668616e646c650806010000000005050d010101000668616e646c6501000b26010020776173693a687474\
    702f696e636f6d696e672d68616e646c657240302e322e3005010000630e636f6d706f6e656e742d6e616d65010c0011010007656e646c65\
    7373010d0012010008696e7374616e6365010a0101000668616e646c65011503020107726571756573740208726573706f6e736501120502\
    00057479706573010768616e646c6572\
";

#[test]
fn components_that_never_end_keep_no_thread() -> anyhow::Result<()> {
    let digits = |place| u8::from_str_radix(&ENDLESS[place..place + 2], 16).unwrap();
    let component: Vec<u8> = (0..ENDLESS.len()).step_by(2).map(digits).collect();
    let edge = host(&component, &["--request-timeout-ms", "1000"])?;
    // More than a runtime has threads.
    let calls = 2 * std::thread::available_parallelism()?.get().max(4);
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..calls).map(|_| scope.spawn(|| edge.get("/"))).collect();
        assert_eq!(edge.get("/health/live")?.json()?, json!({ "status": "live" }));
        for call in calls {
            // The request's time is up, or its instance's.
            let answer = call.join().unwrap()?;
            assert!(answer.status == 503 && ["timeout", "rebuilt"].contains(&&*answer.problem()?), "{answer:?}");
        }
        anyhow::Ok(())
    })
}

#[test]
fn paths_of_other_services_are_refused_beside_a_component() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    std::fs::write(directory.path().join("service.wasm"), unalike_artifact::SERVICE)?;
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--component", "service.wasm", "--drop-in", "leaf"];
    fails(directory.path(), &arguments, 1, &["--drop-in", "--component"]);
    assert!(!directory.path().join("unalike.sqlite").exists());
    Ok(())
}

#[test]
fn a_host_that_ends_with_an_instance_tells_of_no_trap() -> anyhow::Result<()> {
    let server = Server::start()?;
    let mut edge = edge(server.url(), &[])?;
    assert_eq!(edge.get("/v1/sequences/order/ids")?.ids()?, [1]);
    edge.signal(libc::SIGINT)?;
    edge.wait()?;
    assert!(!edge.log()?.contains("trapped"), "{}", edge.log()?);
    Ok(())
}
