//! The conformance vectors, as far as a service shows what they are about: counts that no host may take for another
//! one. All others drive the core component, which each service has within it as it is.

#![expect(clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;

use anyhow::Context as _;
use serde_json::Value;
use unalike_tests::server::Server;

use crate::service::edge_of;

/// Every text of `hosts.json` that is refused as a number of ids.
fn refused_counts() -> anyhow::Result<BTreeSet<String>> {
    let file: Value = serde_json::from_str(include_str!("../../vectors/hosts.json"))?;
    let vectors = file.get("vectors").and_then(Value::as_array).context("vectors")?;
    let steps = vectors.iter().filter_map(|vector| vector.get("steps")?.as_array()).flatten();
    let counts = steps.filter_map(|step| {
        let name = step.get("refused")?.as_str().filter(|name| ["max", "count"].contains(name))?;
        step.get("args")?.get(name)?.as_str().map(str::to_owned)
    });
    Ok(counts.collect())
}

#[test]
fn each_service_has_the_component_within_it_that_the_vectors_pass_on() {
    let services = [
        unalike_artifact::SERVICE,
        unalike_artifact::SERVICE_REMOTE,
        unalike_artifact::SERVICE_0_2,
        unalike_artifact::SERVICE_REMOTE_0_2,
        unalike_artifact::ASYNC,
        unalike_artifact::ASYNC_REMOTE,
    ];
    let core = unalike_artifact::CORE;
    for (at, service) in services.into_iter().enumerate() {
        assert!(service.windows(core.len()).any(|part| part == core), "service {at}");
        assert!(service.len() <= 225 * 1024, "service {at} has {} bytes", service.len());
    }
}

#[test]
fn no_count_is_taken_for_another_one() -> anyhow::Result<()> {
    let counts = refused_counts()?;
    assert!(counts.len() > 10, "{counts:?}");
    let server = Server::start()?;
    for component in [unalike_artifact::SERVICE_REMOTE, unalike_artifact::SERVICE_REMOTE_0_2] {
        let edge = edge_of(component, server.url(), &[])?;
        for path in ["/v1/sequences/order/ids", "/v1/snowflakes/default/ids"] {
            for count in &counts {
                let answer = edge.get(&format!("{path}?count={count}"))?;
                let (status, problem) = (answer.status, answer.problem()?);
                assert_eq!((status, problem.as_str()), (400, "count-invalid"), "{path} {count:?}: {answer:?}");
            }
        }
    }
    assert_eq!(server.get("/v1/tags/order")?.status, 404, "nothing was granted");
    Ok(())
}
