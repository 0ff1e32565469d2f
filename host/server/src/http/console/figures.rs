//! The document of figures, `GET /v1/console`.

use serde::Serialize;
use serde::ser::{SerializeSeq, Serializer};
use serde_json::{Value, json};
use unalike::{Clock, Mode, SystemClock};

use super::Console;
use super::history::{All, EMPTY, EVERY, History, Ring, SNOWFLAKES_MAX, TagLine};
use super::leases::Look;
use crate::http::tag_json::Number;
use crate::service::Service;
use crate::service::problem::{Of, Problem};
use crate::service::troubles::quietly;
use crate::words::rfc3339;

/// Three digits are enough to draw a figure.
fn short(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let unit = 10_f64.powf(value.abs().log10().floor() - 2.0);
    // By whole numbers in both cases, so that what is written is short, too.
    if unit >= 1.0 {
        return (value / unit).round() * unit;
    }
    let parts = unit.recip().round();
    (value * parts).round() / parts
}

/// Numbers over time, the newest last, with three digits each.
struct Series<'a>(&'a Ring);

impl Serialize for Series<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut sequence = serializer.serialize_seq(None)?;
        for value in self.0.iter() {
            let value = f64::from(value);
            // Without a point where there need be none: most are 0.
            #[expect(clippy::cast_possible_truncation, reason = "it is small and whole")]
            if value.fract() == 0.0 && value.abs() < 1_000.0 {
                sequence.serialize_element(&(value as i32))?;
            } else {
                sequence.serialize_element(&short(value))?;
            }
        }
        sequence.end()
    }
}

/// A figure, if there is one that is finite.
fn finite(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite()).map(short)
}

#[derive(Serialize)]
pub(super) struct Figures<'a> {
    now: String,
    now_ms: u64,
    server: ServerFigures<'a>,
    ready: Value,
    store: StoreFigures<'a>,
    series: AllSeries<'a>,
    tags_open: u64,
    least_cover_seconds: Option<f64>,
    tags: Vec<TagFigures<'a>>,
    snowflakes: Vec<SnowflakeFigures<'a>>,
}

#[derive(Serialize)]
struct ServerFigures<'a> {
    version: &'a str,
    uptime_seconds: u64,
    ending: bool,
    tokens_required: bool,
    connections_open: u64,
    connections_refused: Number,
}

#[derive(Serialize)]
struct StoreFigures<'a> {
    address: &'a str,
    backing: Option<&'a str>,
    leases: Option<&'a str>,
    identity: Option<String>,
}

/// Over time; those of the server and the store.
#[derive(Serialize)]
struct AllSeries<'a> {
    every_ms: u64,
    newest: Option<String>,
    ids_per_second: Series<'a>,
    requests_per_second: Series<'a>,
    refused_per_second: Series<'a>,
    failed_per_second: Series<'a>,
    grants_per_second: Series<'a>,
    grant_failures_per_second: Series<'a>,
    grant_median_ms: Series<'a>,
    grant_longest_ms: Series<'a>,
    probe_ms: Series<'a>,
}

#[derive(Serialize)]
struct TagFigures<'a> {
    tag: &'a str,
    mode: &'static str,
    open: u64,
    rate: f64,
    cover_seconds: Option<f64>,
    left: Number,
    issued: Number,
    waits: Number,
    rates: Series<'a>,
    covers: Series<'a>,
}

#[derive(Serialize)]
struct SnowflakeFigures<'a> {
    snowflake: String,
    layout: String,
    workers: u64,
    ready: bool,
    why: Option<String>,
    stopped_since: Option<String>,
    worker: Option<u32>,
    reach: Option<String>,
    left_seconds: f64,
    ahead_ms: u64,
    rate: f64,
    issued: Number,
    refused: Number,
    waits: Number,
    rates: Series<'a>,
    missing: Option<&'static str>,
    leased: Look,
}

impl Console {
    /// All figures as they are now, in JSON.
    pub(super) fn look(&self, service: &Service, ready: Result<Value, Problem>) -> serde_json::Result<Vec<u8>> {
        let mut history = self.history();
        history.look(service);
        let history = &*history;
        let totals = self.traffic.get().map(|traffic| traffic.totals()).unwrap_or_default();
        let now_ms = SystemClock.now_ms();
        let All { open, least_cover_seconds, .. } = history.all;
        let figures = Figures {
            now: rfc3339(now_ms),
            now_ms,
            server: ServerFigures {
                version: env!("CARGO_PKG_VERSION"),
                uptime_seconds: self.started.elapsed().as_secs(),
                ending: service.is_ending(),
                tokens_required: self.tokens_required,
                connections_open: totals.connections_open,
                connections_refused: Number(totals.connections_refused),
            },
            ready: ready.unwrap_or_else(|problem| json!({ "status": "not-ready", "problem": problem.document() })),
            store: StoreFigures {
                address: &self.store,
                backing: self.backing.as_deref(),
                leases: self.leased_from.as_deref(),
                identity: self.leases.store_name(),
            },
            series: AllSeries::of(history),
            tags_open: open,
            least_cover_seconds: finite(least_cover_seconds),
            tags: history.tags.iter().filter(|(_, line)| line.now.open > 0).map(TagFigures::of).collect(),
            snowflakes: self.snowflakes(service, history, now_ms),
        };
        serde_json::to_vec(&figures)
    }

    fn snowflakes<'a>(&self, service: &Service, history: &'a History, now_ms: u64) -> Vec<SnowflakeFigures<'a>> {
        let stops = service.stopped_snowflakes();
        let missing = service.stores().leases().missing();
        let mut snowflakes: Vec<SnowflakeFigures<'_>> = service
            .ids()
            .snowflakes()
            .into_iter()
            .take(SNOWFLAKES_MAX)
            .filter_map(|snowflake| {
                // A generator that is closed, or being built again, has no figures now.
                let status = snowflake.status().ok()?;
                let name = snowflake.namespace().to_owned();
                let stop = stops.iter().find(|stop| stop.name == name);
                let line = history.snowflakes.get(&name);
                let left_ms = if status.worker.is_some() { status.reach_ms.saturating_sub(now_ms) } else { 0 };
                Some(SnowflakeFigures {
                    layout: snowflake.layout().to_string(),
                    workers: snowflake.layout().workers(),
                    ready: stop.is_none(),
                    // No request failed by it.
                    why: stop.map(|stop| quietly(|| Problem::of(&stop.error, Of::Leases).detail().to_owned())),
                    stopped_since: stop.map(|stop| rfc3339(stop.since_ms)),
                    worker: status.worker,
                    reach: status.worker.is_some().then(|| rfc3339(status.reach_ms)),
                    left_seconds: std::time::Duration::from_millis(left_ms).as_secs_f64(),
                    ahead_ms: status.ahead_ms,
                    rate: short(line.map_or(0.0, |line| line.rate)),
                    issued: Number(status.issued),
                    refused: Number(status.refused),
                    waits: Number(status.waits),
                    rates: Series(line.map_or(&EMPTY, |line| &line.rates)),
                    missing,
                    leased: self.leases.of(&name),
                    snowflake: name,
                })
            })
            .collect();
        snowflakes.sort_by(|one, other| one.snowflake.cmp(&other.snowflake));
        snowflakes
    }
}

impl<'a> AllSeries<'a> {
    fn of(history: &'a History) -> Self {
        Self {
            every_ms: u64::try_from(EVERY.as_millis()).unwrap_or(u64::MAX),
            newest: (history.newest_ms > 0).then(|| rfc3339(history.newest_ms)),
            ids_per_second: Series(&history.ids),
            requests_per_second: Series(&history.requests),
            refused_per_second: Series(&history.refused),
            failed_per_second: Series(&history.failed),
            grants_per_second: Series(&history.grants),
            grant_failures_per_second: Series(&history.grant_failures),
            grant_median_ms: Series(&history.grant_median_ms),
            grant_longest_ms: Series(&history.grant_longest_ms),
            probe_ms: Series(&history.probe_ms),
        }
    }
}

impl<'a> TagFigures<'a> {
    fn of((tag, line): (&'a String, &'a TagLine)) -> Self {
        let now = &line.now;
        Self {
            tag,
            mode: if line.is_ordered { Mode::Ordered } else { Mode::Buffered }.name(),
            open: now.open,
            rate: short(now.rate),
            cover_seconds: finite(now.cover_seconds),
            left: Number(now.left),
            issued: Number(now.issued),
            waits: Number(now.waits),
            rates: Series(&line.rates),
            covers: Series(&line.covers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_with_three_digits() {
        for (value, written) in [
            (0.0, "0.0"),
            (0.001_234_5, "0.00123"),
            (0.1, "0.1"),
            (1.0 / 3.0, "0.333"),
            (12.345, "12.3"),
            (999.9, "1000.0"),
            (123_456.0, "123000.0"),
            (f64::INFINITY, "0.0"),
        ] {
            assert_eq!(serde_json::to_string(&short(value)).unwrap(), written);
        }
    }
}
