//! The service in wasmtime's own server.

#![expect(clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use std::sync::atomic::AtomicU64;
use std::time::Instant;

use unalike_tests::server::Server;
use unalike_tests::wasmtime::WasmtimeServe;

use crate::service::{KILLS, KilledServer, assert_none_twice, granted, ids_total, lost, take_from};

/// The service for WASI 0.3 and for 0.2, each with the flags that it needs.
const SERVICES: [(&str, &[u8], &[&str]); 2] =
    [("0.3", unalike_artifact::SERVICE_REMOTE, &[]), ("0.2", unalike_artifact::SERVICE_REMOTE_0_2, &["-S", "cli"])];

#[test]
fn no_id_comes_twice_in_wasmtimes_server_while_ours_is_killed() -> anyhow::Result<()> {
    for (wasi, component, flags) in SERVICES {
        for (path, count) in [("/v1/sequences/order/ids", 10), ("/v1/snowflakes/default/ids", 10)] {
            let killed = KilledServer::start()?;
            let edge = WasmtimeServe::start_before(component, &killed.url(), flags)?;
            let total = ids_total()? / 2;
            let began = Instant::now();
            let (all, server) = killed.take(edge.url(), path, total, count)?;
            let (taken, seconds) = (all.ids.len(), began.elapsed().as_secs_f64());
            assert_none_twice(&all.ids);
            assert!(all.refused > 0, "WASI {wasi}, {path}: nobody noticed that the server was gone");
            print!(
                "WASI {wasi}, {path}: {taken} ids in {seconds:.1} s, {KILLS} kills, {} requests refused",
                all.refused
            );
            if path.starts_with("/v1/sequences") {
                let lost = lost(&server.client(), "order", taken)?;
                print!(", {lost:.2}% of the numbers lost");
                assert!(lost < 20.0, "WASI {wasi}: {lost}% of the numbers are lost");
            }
            println!();
        }
    }
    Ok(())
}

#[test]
fn at_a_steady_load_instances_lose_less_than_a_twentieth_in_wasmtimes_server() -> anyhow::Result<()> {
    for (wasi, component, flags) in SERVICES {
        let server = Server::start()?;
        let edge = WasmtimeServe::start_before(component, server.url(), flags)?;
        let began = Instant::now();
        let all = take_from(edge.url(), "/v1/sequences/order/ids?count=10", ids_total()? / 2, 10, &AtomicU64::new(0))?;
        let requests = all.ids.len() as f64 / 10.0 / began.elapsed().as_secs_f64();
        assert_none_twice(&all.ids);
        assert_eq!(all.refused, 0, "{}", edge.log()?);
        let lost = lost(&server.client(), "order", all.ids.len())?;
        println!("WASI {wasi}: {requests:.0} requests/s, {lost:.2}% of the numbers lost");
        assert!(lost < 5.0, "{lost}% of the numbers are lost");
        if wasi == "0.2" {
            assert_eq!(granted(&server.client(), "order")?, all.ids.len() as u64, "each request has exactly its own");
        }
    }
    Ok(())
}
