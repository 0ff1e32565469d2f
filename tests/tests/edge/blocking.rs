//! The service for hosts of WASI 0.2, whose instances serve one request each.

#![expect(clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use std::io::Write as _;
use std::net::TcpListener;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use serde_json::json;
use unalike_tests::misdeeds::{Misdeed, misbehave};
use unalike_tests::server::Server;

use crate::service::{
    KILLS, KilledServer, assert_answers_are_the_servers, assert_none_twice, assert_only_its_store_is_believed,
    assert_silence_is_passed_over, edge_of, figure, granted, host, ids_total, take, take_at,
};

/// A host of the whole service, whose numbers these servers grant.
fn edge(servers: &str, more: &[&str]) -> anyhow::Result<Server> {
    edge_of(unalike_artifact::SERVICE_REMOTE_0_2, servers, more)
}

/// Has a server keep an ordered tag.
fn ordered(server: &Server, tag: &str) -> anyhow::Result<()> {
    let created = server.client().send_json("POST", "/v1/tags", &json!({ "tag": tag, "mode": "ordered" }))?;
    assert!(created.status < 300, "{created:?}");
    Ok(())
}

#[test]
fn nothing_is_lost_and_an_instance_serves_one_request() -> anyhow::Result<()> {
    let server = Server::start()?;
    ordered(&server, "strict")?;
    let edge = edge(server.url(), &[])?;
    for (tag, total, count) in [("one", 1_000, 1), ("ten", 10_000, 10), ("strict", 5_000, 5)] {
        let began = Instant::now();
        let taken = take(&edge, tag, total, count, &AtomicU64::new(0))?;
        let requests = taken.ids.len() as f64 / count as f64 / began.elapsed().as_secs_f64();
        println!("{count} ids a request: {requests:.0} requests/s");
        assert_none_twice(&taken.ids);
        assert_eq!(taken.refused, 0, "{}", edge.log()?);
        assert_eq!(taken.ids.len() as u64, granted(&server.client(), tag)?, "{tag}: what is granted is handed out");
    }
    let requests = figure(&edge, "unalike_component_requests_total{outcome=\"answered\"}")?;
    assert_eq!(figure(&edge, "unalike_component_instances_total")?, requests);
    Ok(())
}

#[test]
fn no_id_comes_twice_while_the_server_is_killed_and_lost_answers_are_all_that_is_lost() -> anyhow::Result<()> {
    const COUNT: u64 = 10;
    let killed = KilledServer::start()?;
    ordered(killed.server(), "strict")?;
    let edge = edge(&killed.url(), &[])?;
    let (all, server) = killed.take(edge.url(), "/v1/sequences/strict/ids", ids_total()? / 2, COUNT)?;
    assert_none_twice(&all.ids);
    let lost = granted(&server.client(), "strict")? - all.ids.len() as u64;
    println!("{} ids, {KILLS} kills: {} requests refused, {lost} numbers lost", all.ids.len(), all.refused);
    assert!(all.refused > 0, "nobody noticed that the server was gone");
    // What was answered was handed out: only a request that was refused may have been granted something.
    assert!(lost <= all.refused * COUNT, "{lost} numbers are lost, and {} requests were refused", all.refused);
    Ok(())
}

#[test]
fn no_proxy_makes_an_id_come_twice() -> anyhow::Result<()> {
    for misdeed in Misdeed::ALL {
        let server = Server::start()?;
        let edge = edge(&misbehave(server.url(), misdeed)?, &["--component-memory", "8"])?;
        let taken = take(&edge, "order", 400, 2, &AtomicU64::new(0))?;
        println!("{misdeed:?}: {} refused", taken.refused);
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
    assert_silence_is_passed_over(unalike_artifact::SERVICE_REMOTE_0_2)
}

#[test]
fn answers_are_the_servers() -> anyhow::Result<()> {
    let server = Server::start()?;
    assert_answers_are_the_servers(&server, &edge(server.url(), &[])?)
}

#[test]
fn only_its_store_is_believed() -> anyhow::Result<()> {
    // Nothing is asked before: the number that was granted is not used.
    assert_only_its_store_is_believed(unalike_artifact::SERVICE_REMOTE_0_2, 2)
}

#[test]
fn ordered_tags_ascend_from_instance_to_instance() -> anyhow::Result<()> {
    let server = Server::start()?;
    ordered(&server, "strict")?;
    // One beside it has instances that serve several requests, and one is of WASI 0.3.
    let edges = [
        edge(server.url(), &[])?,
        edge(server.url(), &["--component-requests", "3"])?,
        edge_of(unalike_artifact::SERVICE_REMOTE, server.url(), &[])?,
    ];
    for round in 0..60 {
        let ids = edges[usize::try_from(round)? % 3].client().ids("/v1/sequences/strict/ids?count=2")?;
        assert_eq!(ids, [2 * round + 1, 2 * round + 2], "in round {round}");
    }
    Ok(())
}

#[test]
fn snowflakes_are_the_servers_and_come_once() -> anyhow::Result<()> {
    let server = Server::start()?;
    let edge = edge(server.url(), &[])?;
    let path = "/v1/snowflakes/default/ids?count=5";
    let (at_edge, at_server) = std::thread::scope(|scope| {
        let beside = scope.spawn(|| take_at(&server, path, 5_000, 5, &AtomicU64::new(0)));
        let at_edge = take_at(&edge, path, 5_000, 5, &AtomicU64::new(0));
        (at_edge, beside.join().unwrap())
    });
    let (at_edge, at_server) = (at_edge?, at_server?);
    assert_eq!((at_edge.refused, at_server.refused), (0, 0), "{}", edge.log()?);
    assert_none_twice(&[at_edge.ids, at_server.ids].concat());
    let alone = host(unalike_artifact::SERVICE_0_2, &[])?;
    let answer = alone.get("/v1/snowflakes/default/ids")?;
    assert_eq!((answer.status, answer.problem()?), (404, "snowflake-unknown".to_owned()));
    assert!(answer.body.contains("makes no ids of the snowflake"), "{answer:?}");
    Ok(())
}

#[test]
fn a_host_gives_a_component_numbers_of_its_own_store() -> anyhow::Result<()> {
    let edge = host(unalike_artifact::SERVICE_0_2, &[])?;
    let taken = take(&edge, "order", 2_000, 5, &AtomicU64::new(0))?;
    assert_none_twice(&taken.ids);
    assert_eq!(taken.refused, 0);
    // Nothing is lost here either: the greatest is their number.
    assert_eq!(taken.ids.iter().max(), Some(&(taken.ids.len() as u64)));
    assert_eq!(edge.get("/health/live")?.json()?, json!({ "status": "live" }));
    Ok(())
}

#[test]
fn a_trap_and_too_much_memory_cost_one_request() -> anyhow::Result<()> {
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
    assert_eq!(figure(&edge, "unalike_component_requests_total{outcome=\"trap\"}")?, 3);
    assert_eq!(figure(&edge, "unalike_component_instances_lost_total{reason=\"trap\"}")?, 3);
    assert!(figure(&edge, "unalike_component_memory_refused_total")? >= 3);
    Ok(())
}

/// A component of WASI 0.2 that never comes back.
const ENDLESS: &str = r#"
(component
  (import "wasi:http/types@0.2.0" (instance $types
    (export "incoming-request" (type (sub resource)))
    (export "response-outparam" (type (sub resource)))))
  (alias export $types "incoming-request" (type $request))
  (alias export $types "response-outparam" (type $outparam))
  (core module $module (func (export "handle") (param i32 i32) (loop $again (br $again))))
  (core instance $instance (instantiate $module))
  (func $handle (param "request" (own $request)) (param "response-out" (own $outparam))
    (canon lift (core func $instance "handle")))
  (instance $handler (export "handle" (func $handle)))
  (export "wasi:http/incoming-handler@0.2.0" (instance $handler)))
"#;

#[test]
fn an_instance_that_does_not_come_back_is_dropped_and_others_go_on() -> anyhow::Result<()> {
    let flags = ["--request-timeout-ms", "1000", "--component-concurrency", "2"];
    let edge = host(&wat::parse_str(ENDLESS)?, &flags)?;
    // Two run for all of their time, and most others find no place in half of theirs.
    let answers = std::thread::scope(|scope| {
        let ask = || scope.spawn(|| edge.get("/v1/sequences/order/ids"));
        let first = [ask(), ask()];
        while figure(&edge, "unalike_component_instances_total").unwrap() < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let asking: Vec<_> = first.into_iter().chain((0..8).map(|_| ask())).collect();
        asking.into_iter().map(|one| one.join().unwrap()).collect::<anyhow::Result<Vec<_>>>()
    })?;
    for answer in answers {
        assert_eq!((answer.status, answer.problem()?), (503, "timeout".to_owned()), "{answer:?}: {}", edge.log()?);
    }
    let timed_out = figure(&edge, "unalike_component_requests_total{outcome=\"timeout\"}")?;
    let busy = figure(&edge, "unalike_component_requests_total{outcome=\"busy\"}")?;
    assert!(timed_out >= 2 && busy >= 1 && timed_out + busy == 10, "{timed_out} and {busy}: {}", edge.log()?);
    // None of them goes on.
    let deadline = Instant::now() + Duration::from_secs(60);
    while figure(&edge, "unalike_component_instances_running")? > 0 {
        assert!(Instant::now() < deadline, "an instance is still there: {}", edge.log()?);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(figure(&edge, "unalike_component_instances_lost_total{reason=\"timeout\"}")? >= 2);
    assert_eq!(edge.get("/health/live")?.status, 200, "the server answers");
    Ok(())
}

#[test]
fn clients_that_hang_up_make_no_place_for_others() -> anyhow::Result<()> {
    const PLACES: u64 = 2;
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let servers = format!("http://{}?request-timeout-ms=60000", silent.local_addr()?);
    let places = PLACES.to_string();
    let edge = edge(&servers, &["--request-timeout-ms", "60000", "--component-concurrency", &places])?;
    for _ in 0..50 {
        let mut client = edge.connect()?;
        client.write_all(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
        client.write_all(b"GET /v1/sequences/order/ids HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
        client.peek(&mut [0])?;
        // The servers never answer, so whoever has a place keeps it.
        assert!(figure(&edge, "unalike_component_instances_total")? <= PLACES, "{}", edge.log()?);
        // What it has not read resets the connection.
        drop(client);
    }
    Ok(())
}

#[test]
fn servers_that_never_answer_end_a_request_in_time() -> anyhow::Result<()> {
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let servers = format!("http://{}?request-timeout-ms=300", silent.local_addr()?);
    let edge = edge(&servers, &[])?;
    for path in ["/v1/sequences/order/ids", "/v1/snowflakes/default/ids"] {
        let answer = edge.get(path)?;
        assert_eq!((answer.status, answer.problem()?), (503, "store-unavailable".to_owned()), "{path}: {answer:?}");
        assert!(answer.header("retry-after").is_some(), "{answer:?}");
    }
    Ok(())
}
