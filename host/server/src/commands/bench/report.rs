//! What a run came to: for people, for machines, and as an exit code.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hdrhistogram::Histogram;
use serde::Serialize;

use super::arguments::BenchArguments;
use super::connection::Tally;

/// What one thread did.
pub(super) struct Share {
    pub(super) tally: Tally,
    pub(super) cpu: Duration,
}

/// The width of the longest bar.
const BAR_WIDTH: u64 = 50;

/// The figures of a run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    url: String,
    connections: u32,
    pipeline: u32,
    threads: u32,
    /// Ids per request.
    count: u32,
    /// From the first request to the last answer.
    seconds: f64,
    /// Requests that brought ids.
    requests: u64,
    ids: u64,
    requests_per_second: f64,
    ids_per_second: f64,
    errors: Errors,
    latency_us: Option<Latency>,
    /// Requests by latency; the bounds ascend by about a factor of two.
    histogram: Vec<Bar>,
    uniqueness: Uniqueness,
    /// How much of its threads' time the load generator used: at 0.9 and more it may be what limits the figures.
    generator_busy: f64,
    #[serde(skip)]
    lost_because: Option<String>,
}

#[derive(Debug, Serialize)]
struct Errors {
    /// Answers without ids, by HTTP status.
    by_status: BTreeMap<u16, Refused>,
    /// Requests without an answer.
    unanswered: u64,
    /// How often a connection broke.
    connections_broken: u64,
    /// Connections that could not be opened again.
    connections_lost: u64,
}

#[derive(Debug, Serialize)]
struct Refused {
    requests: u64,
    /// What the first of them said.
    example: String,
}

/// Microseconds.
#[derive(Debug, Serialize)]
struct Latency {
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    #[serde(rename = "p99.9")]
    p99_9: f64,
    #[serde(rename = "p99.99")]
    p99_99: f64,
    max: f64,
}

#[derive(Debug, Serialize)]
struct Bar {
    from_us: f64,
    /// Itself excluded.
    to_us: f64,
    requests: u64,
}

#[derive(Debug, Serialize)]
struct Uniqueness {
    checked: u64,
    /// Ids that there was no memory for.
    unchecked: u64,
    /// Ids that had come before. One is one too many.
    twice: u64,
    /// One of them, in decimal.
    example: Option<String>,
}

impl Report {
    /// Puts together what the threads did since `began`.
    pub(super) fn new(
        arguments: &BenchArguments,
        url: String,
        began: Instant,
        shares: Vec<Share>,
    ) -> anyhow::Result<Self> {
        let threads = u32::try_from(shares.len())?;
        let mut shares = shares.into_iter();
        let Share { tally: mut all, mut cpu } = shares.next().context("no thread did anything")?;
        for Share { tally, cpu: used } in shares {
            cpu += used;
            all.latency.add(&tally.latency).context("histograms of two shapes")?;
            all.ids += tally.ids;
            all.sent += tally.sent;
            for (status, (requests, example)) in tally.refused {
                all.refused.entry(status).or_insert((0, example)).0 += requests;
            }
            all.broken += tally.broken;
            all.lost += tally.lost;
            all.lost_because = all.lost_because.or(tally.lost_because);
            all.seen.join(tally.seen);
            all.last = all.last.max(tally.last);
        }
        let elapsed = all.last.map_or(Duration::ZERO, |last| last - began);
        let per_second = |count: u64| if elapsed.is_zero() { 0.0 } else { count as f64 / elapsed.as_secs_f64() };
        let requests = all.latency.len();
        let by_status: BTreeMap<_, _> = all
            .refused
            .into_iter()
            .map(|(status, (requests, example))| (status, Refused { requests, example }))
            .collect();
        let refused: u64 = by_status.values().map(|refused| refused.requests).sum();
        Ok(Self {
            url,
            connections: arguments.connections,
            pipeline: arguments.pipeline,
            threads,
            count: arguments.count,
            seconds: elapsed.as_secs_f64(),
            requests,
            ids: all.ids,
            requests_per_second: per_second(requests),
            ids_per_second: per_second(all.ids),
            errors: Errors {
                by_status,
                unanswered: all.sent - requests - refused,
                connections_broken: all.broken,
                connections_lost: all.lost,
            },
            latency_us: (requests > 0).then(|| Latency::of(&all.latency)),
            histogram: bars(&all.latency),
            uniqueness: Uniqueness {
                checked: all.seen.checked,
                unchecked: all.seen.unchecked,
                twice: all.seen.twice,
                example: all.seen.example.map(|id| id.to_string()),
            },
            generator_busy: if elapsed.is_zero() {
                0.0
            } else {
                cpu.as_secs_f64() / elapsed.as_secs_f64() / f64::from(threads)
            },
            lost_because: all.lost_because,
        })
    }

    /// Whether the run was a good one.
    ///
    /// # Errors
    /// An id that came twice, no id at all, a connection that was lost.
    pub(super) fn verdict(&self) -> anyhow::Result<()> {
        let Uniqueness { twice, example, .. } = &self.uniqueness;
        if *twice > 0 {
            bail!("{twice} ids came twice: {} for one", example.as_deref().unwrap_or("?"));
        }
        if self.errors.connections_lost > 0 {
            let lost = grouped(self.errors.connections_lost);
            let because = self.lost_because.as_deref().unwrap_or("no reason is known");
            bail!("{lost} of {} connections broke and could not be opened again: {because}", self.connections);
        }
        if self.requests == 0 {
            let said =
                self.errors.by_status.iter().next().map(|(status, refused)| format!("{status}: {}", refused.example));
            bail!("every request failed: {}", said.unwrap_or_else(|| "none was answered".to_owned()));
        }
        Ok(())
    }
}

impl Latency {
    fn of(latency: &Histogram<u64>) -> Self {
        let at = |quantile: f64| microseconds(latency.value_at_quantile(quantile));
        Self {
            mean: latency.mean() / 1_000.0,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.999_9),
            max: microseconds(latency.max()),
        }
    }
}

fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1_000.0
}

/// From the least to the greatest latency, between bounds of 1, 2, 5, 10, ..
fn bars(latency: &Histogram<u64>) -> Vec<Bar> {
    let bounds: Vec<_> = (0..=12).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power))).collect();
    let mut bars: Vec<Bar> = Vec::new();
    for recorded in latency.iter_recorded() {
        let ns = recorded.value_iterated_to();
        let above = bounds.partition_point(|&bound| bound <= ns);
        let bound = |at: usize| bounds.get(at).copied().unwrap_or(u64::MAX);
        let from_us = microseconds(bound(above.saturating_sub(1)));
        let requests = recorded.count_since_last_iteration();
        match bars.last_mut() {
            Some(bar) if bar.from_us == from_us => bar.requests += requests,
            _ => bars.push(Bar { from_us, to_us: microseconds(bound(above)), requests }),
        }
    }
    bars
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { connections, pipeline, seconds, .. } = self;
        write!(f, "{}\n{connections} connections", self.url)?;
        if *pipeline > 1 {
            write!(f, ", {pipeline} requests at once")?;
        }
        writeln!(f, ", {seconds:.2} s\n")?;
        let rate = |rate: f64| if rate < 100.0 { format!("{rate:.1}") } else { grouped(rounded(rate)) };
        let Self { requests, ids, requests_per_second, ids_per_second, .. } = self;
        writeln!(f, "requests  {:>15}   {:>13}/s", grouped(*requests), rate(*requests_per_second))?;
        writeln!(f, "ids       {:>15}   {:>13}/s   {}", grouped(*ids), rate(*ids_per_second), self.uniqueness)?;
        self.errors.fmt(f)?;
        let busy = if self.generator_busy < 0.9 { "" } else { ": it may be what limits the figures (--threads)" };
        writeln!(f, "load generator busy for {:.0}% of the time{busy}", self.generator_busy * 100.0)?;
        if let Some(Latency { mean, p50, p90, p99, p99_9, p99_99, max }) = self.latency_us {
            writeln!(f, "\nlatency")?;
            let figures =
                [("mean", mean), ("p50", p50), ("p90", p90), ("p99", p99), ("p99.9", p99_9), ("p99.99", p99_99)];
            for (name, figure) in figures.into_iter().chain([("max", max)]) {
                writeln!(f, "  {name:<7} {:>10}", time(figure))?;
            }
            writeln!(f)?;
        }
        let longest = self.histogram.iter().map(|bar| bar.requests).max().unwrap_or(1).max(1);
        for Bar { from_us, to_us, requests } in &self.histogram {
            let share = *requests as f64 / self.requests as f64 * 100.0;
            let width = usize::try_from((requests * BAR_WIDTH).div_ceil(longest)).unwrap_or(0);
            let bar = "█".repeat(width);
            writeln!(f, "  {:>8} .. {:<8} {share:>6.2}%  {bar}", time(*from_us), time(*to_us))?;
        }
        Ok(())
    }
}

impl Display for Uniqueness {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (self.twice, self.checked, self.unchecked) {
            (0, 0, _) => write!(f, "not checked for ids that came twice"),
            (0, _, 0) => write!(f, "all different"),
            (0, checked, _) => write!(f, "{} checked, all different (--check-memory-mib)", grouped(checked)),
            (twice, ..) => write!(f, "{} CAME TWICE", grouped(twice)),
        }
    }
}

impl Display for Errors {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (status, Refused { requests, example }) in &self.by_status {
            writeln!(f, "errors    {:>15}   with status {status}: {example}", grouped(*requests))?;
        }
        let others = [
            (self.unanswered, "requests that were not answered"),
            (self.connections_broken, "connections that broke"),
            (self.connections_lost, "connections that could not be opened again"),
        ];
        for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
            writeln!(f, "errors    {:>15}   {what}", grouped(count))?;
        }
        if self.by_status.is_empty() && self.unanswered == 0 && self.connections_broken == 0 {
            writeln!(f, "errors    {:>15}", 0)?;
        }
        Ok(())
    }
}

/// `1270123` as `1,270,123`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is positive, and saturates")]
fn rounded(rate: f64) -> u64 {
    rate.round() as u64
}

/// Microseconds with a unit that fits.
fn time(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.1} us"),
        us if us < 10_000.0 => format!("{us:.0} us"),
        us if us < 10_000_000.0 => format!("{:.0} ms", us / 1_000.0),
        us => format!("{:.0} s", us / 1_000_000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_easy_to_read() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0.5, 12.3, 9_999.0, 20_000.0, 3e7].map(time), ["0.5 us", "12 us", "9999 us", "20 ms", "30 s"]);
    }

    #[test]
    fn bars_hold_every_request() {
        let mut latency = Histogram::new_with_max(600_000_000_000, 3).unwrap();
        let ns = [900, 1_000, 1_999, 2_000, 70_000_000, 600_000_000_000];
        ns.into_iter().for_each(|ns| latency.saturating_record(ns));
        let bars = bars(&latency);
        assert_eq!(bars.iter().map(|bar| bar.requests).sum::<u64>(), ns.len() as u64);
        let first: Vec<_> = bars.iter().take(3).map(|bar| (bar.from_us, bar.requests)).collect();
        assert_eq!(first, [(0.5, 1), (1.0, 2), (2.0, 1)]);
        assert!(bars.last().is_some_and(|bar| bar.requests == 1 && bar.to_us == 1e9));
    }
}
