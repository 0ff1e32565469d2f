//! `/metrics` of a real server after traffic: read by a parser, compared with the table of names in its documentation,
//! and with what was handed out.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot do its work fails the test")]

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use prometheus_parse::{Sample, Scrape, Value};
use serde_json::json;
use unalike_tests::server::Server;

const DOCUMENTATION: &str = include_str!("../../../host/server/metrics.md");

/// What a scrape says, once every line of it was understood.
fn scrape(server: &Server) -> Result<Vec<Sample>> {
    let answer = server.get("/metrics")?;
    ensure!(answer.status == 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let parsed = Scrape::parse(answer.body.lines().map(|line| Ok(line.to_owned())))?;
    for name in documented().into_keys().chain(documented_of_components().into_keys()) {
        let lines =
            |kind: &str| answer.body.lines().filter(|line| line.starts_with(&format!("# {kind} {name} "))).count();
        assert!(lines("HELP") <= 1 && lines("TYPE") <= 1, "{name} is described twice");
    }
    let samples = answer.body.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
    // A histogram is one sample to the parser; each line must belong to one.
    let understood: usize = parsed
        .samples
        .iter()
        .map(|sample| match &sample.value {
            Value::Histogram(buckets) => buckets.len(),
            _ => 1,
        })
        .sum();
    assert_eq!(understood, samples, "a line was not understood:\n{}", answer.body);
    Ok(parsed.samples)
}

/// Where the table of a server ends, and that of a component begins.
const OF_COMPONENTS: &str = "\n## Of a component\n";

/// Name to kind, as the documentation has them for every server.
fn documented() -> BTreeMap<String, String> {
    table(DOCUMENTATION.split_once(OF_COMPONENTS).unwrap().0)
}

/// The same, of what a server has beside that while a component answers.
fn documented_of_components() -> BTreeMap<String, String> {
    table(DOCUMENTATION.split_once(OF_COMPONENTS).unwrap().1)
}

fn table(text: &str) -> BTreeMap<String, String> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let mut cells = row.split(" | ");
        let name = cells.next().unwrap().trim_end_matches('`');
        (name.to_owned(), cells.next().unwrap().to_owned())
    })
    .collect()
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Counter(_) => "counter",
        Value::Gauge(_) => "gauge",
        Value::Histogram(_) => "histogram",
        Value::Summary(_) => "summary",
        Value::Untyped(_) => "untyped",
    }
}

/// The one figure of this name and label.
fn figure(samples: &[Sample], name: &str, label: (&str, &str)) -> Result<f64> {
    let mut found =
        samples.iter().filter(|sample| sample.metric == name && sample.labels.get(label.0) == Some(label.1));
    let sample = found.next().with_context(|| format!("there is no {name} with {label:?}"))?;
    assert!(found.next().is_none(), "{name} with {label:?} comes twice");
    match sample.value {
        Value::Counter(value) | Value::Gauge(value) => Ok(value),
        ref other => anyhow::bail!("{name} is {other:?}"),
    }
}

#[test]
fn each_documented_name_is_there_after_traffic_and_no_other() -> Result<()> {
    let server = Server::start()?;
    let client = server.client();
    client.ids("/v1/sequences/order/ids?count=700")?;
    client.ids("/v1/snowflakes/default/ids?count=10")?;
    assert_eq!(client.get(&format!("/v1/sequences/{}/ids", "x".repeat(200)))?.status, 400, "an error to be counted");
    let samples = scrape(&server)?;
    let mut shown: BTreeMap<String, String> = BTreeMap::new();
    for sample in &samples {
        // The parser leaves the sum and the number of a histogram as samples of their own.
        let histogram = ["_sum", "_count"].iter().find_map(|suffix| sample.metric.strip_suffix(suffix));
        let histogram = histogram.filter(|name| documented().get(*name).is_some_and(|kind| kind == "histogram"));
        match histogram {
            Some(name) => shown.entry(name.to_owned()).or_insert_with(|| "histogram".to_owned()),
            None => shown.entry(sample.metric.clone()).or_insert_with(|| kind(&sample.value).to_owned()),
        };
    }
    assert_eq!(shown, documented());
    Ok(())
}

#[test]
fn a_component_has_the_figures_of_its_table_and_no_other() -> Result<()> {
    let directory = std::sync::Arc::new(tempfile::TempDir::new()?);
    let path = directory.path().join("service.wasm");
    std::fs::write(&path, unalike_artifact::SERVICE_0_2)?;
    let arguments = ["--component", path.to_str().context("a path")?].map(str::to_owned);
    let server = Server::start_in(std::sync::Arc::clone(&directory), arguments.to_vec())?;
    server.client().ids("/v1/sequences/order/ids?count=7")?;
    let samples = scrape(&server)?;
    let shown = samples.iter().filter(|sample| sample.metric.starts_with("unalike_component_"));
    let shown: BTreeMap<_, _> = shown.map(|sample| (sample.metric.clone(), kind(&sample.value).to_owned())).collect();
    assert_eq!(shown, documented_of_components());
    assert_eq!(figure(&samples, "unalike_component_requests_total", ("outcome", "answered"))?, 1.0);
    Ok(())
}

#[test]
fn the_library_s_own_table_is_part_of_the_documentation() {
    let documented = documented();
    for metric in unalike::metrics::TABLE {
        let kind = format!("{:?}", metric.kind).to_lowercase();
        assert_eq!(documented.get(metric.name), Some(&kind), "{}", metric.name);
    }
}

#[test]
fn the_figures_are_those_of_the_traffic() -> Result<()> {
    let server = Server::start()?;
    let client = server.client();
    for _ in 0..7 {
        client.ids("/v1/sequences/order/ids?count=100")?;
    }
    let created = client.send_json("POST", "/v1/tags", &json!({ "tag": "strict", "mode": "ordered" }))?;
    ensure!(created.status == 201, "{created:?}");
    client.ids("/v1/sequences/strict/ids?count=5")?;
    client.ids("/v1/snowflakes/default/ids?count=300")?;
    let samples = scrape(&server)?;
    assert_eq!(figure(&samples, "unalike_ids_total", ("tag", "order"))?, 700.0);
    assert_eq!(figure(&samples, "unalike_ids_total", ("tag", "strict"))?, 5.0);
    assert_eq!(figure(&samples, "unalike_snowflake_ids_total", ("snowflake", "default"))?, 300.0);
    assert!(figure(&samples, "unalike_remaining_ids", ("tag", "order"))? >= 300.0);
    let cover = figure(&samples, "unalike_cover_seconds", ("tag", "order"))?;
    assert!(cover.is_finite() && cover > 0.0, "{cover}");
    assert!(figure(&samples, "unalike_tag_waits_total", ("tag", "order"))? >= 1.0, "the first call waits");
    let left = figure(&samples, "unalike_lease_left_seconds", ("snowflake", "default"))?;
    assert!(left > 0.0 && left <= 60.0, "{left}");
    let allocated: f64 = samples
        .iter()
        .filter(|sample| sample.metric == "unalike_store_requests_total")
        .filter(|sample| {
            sample.labels.get("operation") == Some("allocate") && sample.labels.get("outcome") == Some("ok")
        })
        .map(|sample| if let Value::Counter(count) = sample.value { count } else { 0.0 })
        .sum();
    assert!(allocated >= 2.0, "one segment for each tag at least: {allocated}");
    Ok(())
}

#[test]
fn tags_beyond_the_limit_are_added_up_and_no_figure_goes_back() -> Result<()> {
    let server = Server::start_with(["--metrics-tags-max", "2"])?;
    let client = server.client();
    // Quotes, backslashes and the name of the others are tags like any other.
    client.ids("/v1/sequences/a%22%5C/ids?count=3")?;
    client.ids("/v1/sequences/%28others%29/ids?count=2")?;
    client.ids("/v1/sequences/b/ids?count=4")?;
    let tags = |samples: &[Sample]| -> BTreeMap<String, f64> {
        let ids = samples.iter().filter(|sample| sample.metric == "unalike_ids_total");
        ids.map(|sample| {
            let Value::Counter(count) = sample.value else { panic!("{sample:?}") };
            (sample.labels.get("tag").unwrap().to_owned(), count)
        })
        .collect()
    };
    let first = tags(&scrape(&server)?);
    assert_eq!(first.values().copied().collect::<Vec<_>>(), [2.0, 3.0, 4.0], "{first:?}");
    for tag in 0..20 {
        client.ids(&format!("/v1/sequences/0-{tag}/ids?count=10"))?;
    }
    client.ids("/v1/sequences/b/ids?count=2")?;
    let second = tags(&scrape(&server)?);
    assert_eq!(second.keys().collect::<BTreeSet<_>>(), first.keys().collect::<BTreeSet<_>>(), "no label came or went");
    assert_eq!(second.values().copied().collect::<Vec<_>>(), [202.0, 3.0, 6.0], "{second:?}");
    Ok(())
}
