//! What is counted of requests and connections, without a lock or an allocation.
//!
//! A request counts under the template of its route, never under its path, and under its status; how long it took is
//! from the end of its head to the beginning of its answer. The figures are pulled when they are asked for.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::http::StatusCode;

use super::metrics::SECONDS;

/// Statuses are three digits, the first of them 1 to 5.
const STATUSES: std::ops::Range<u16> = 100..600;

/// The label of what has no route.
const NO_ROUTE: &str = "none";

/// The figures of all requests and connections of a server.
pub(crate) struct Traffic {
    /// Those of each template, and at last those of what has no route.
    routes: Vec<Route>,
    accepted: AtomicU64,
    refused: AtomicU64,
    open: AtomicU64,
    handshakes_failed: AtomicU64,
}

struct Route {
    /// Its template, in a spelling that has no braces: not every reader of figures knows where a label ends.
    template: String,
    statuses: Box<[AtomicU64]>,
    /// One for each of [`SECONDS`], and one for what took longer.
    buckets: Box<[AtomicU64]>,
    microseconds: AtomicU64,
}

/// The figures of all routes together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) connections_open: u64,
    pub(crate) connections_refused: u64,
    /// Requests that were answered.
    pub(crate) requests: u64,
    /// Those among them with a status from 400 to 499.
    pub(crate) refused: u64,
    /// Those with a status from 500 on.
    pub(crate) failed: u64,
}

/// What became of a connection that was there to be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Accepted,
    Refused,
}

fn zeros(count: usize) -> Box<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

impl Traffic {
    /// That of a server with these routes.
    pub(crate) fn new(templates: &[&'static str]) -> Self {
        let route = |template: &'static str| Route {
            template: template.replace('{', ":").replace('}', ""),
            statuses: zeros(STATUSES.len()),
            buckets: zeros(SECONDS.len() + 1),
            microseconds: AtomicU64::new(0),
        };
        Self {
            routes: templates.iter().copied().chain([NO_ROUTE]).map(route).collect(),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            open: AtomicU64::new(0),
            handshakes_failed: AtomicU64::new(0),
        }
    }

    /// A request of the route with this number was answered; beyond all numbers it had none.
    pub(crate) fn answered(&self, route: usize, status: StatusCode, began: Instant) {
        let took = began.elapsed();
        let Some(route) = self.routes.get(route).or(self.routes.last()) else { return };
        let status = usize::from(status.as_u16().saturating_sub(STATUSES.start));
        let seconds = took.as_secs_f64();
        let bucket = SECONDS.partition_point(|bound| *bound < seconds);
        for count in [route.statuses.get(status), route.buckets.get(bucket)].into_iter().flatten() {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        route.microseconds.fetch_add(microseconds, Ordering::Relaxed);
    }

    /// A request that could not be read was answered.
    pub(crate) fn answered_unread(&self, status: StatusCode) {
        self.answered(usize::MAX, status, Instant::now());
    }

    /// A connection came.
    pub(crate) fn connected(&self, arrival: Arrival) {
        match arrival {
            Arrival::Accepted => {
                self.accepted.fetch_add(1, Ordering::Relaxed);
                self.open.fetch_add(1, Ordering::Relaxed);
            }
            Arrival::Refused => {
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// One that was accepted has closed.
    pub(crate) fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// What there was so far, in all.
    pub(crate) fn totals(&self) -> Totals {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut totals = Totals {
            connections_open: load(&self.open),
            connections_refused: load(&self.refused),
            ..Totals::default()
        };
        for (status, count) in self.routes.iter().flat_map(|route| STATUSES.zip(&route.statuses)) {
            let count = load(count);
            totals.requests += count;
            match status {
                400..500 => totals.refused += count,
                500.. => totals.failed += count,
                _ => {}
            }
        }
        totals
    }

    /// A client and the server did not agree on TLS.
    pub(crate) fn handshake_failed(&self) {
        self.handshakes_failed.fetch_add(1, Ordering::Relaxed);
    }

    /// The figures in Prometheus text.
    pub(crate) fn render(&self, text: &mut String) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        for (name, kind, help, value) in [
            ("unalike_connections_open", "gauge", "Connections that are open", load(&self.open)),
            ("unalike_connections_accepted_total", "counter", "Connections that were accepted", load(&self.accepted)),
            (
                "unalike_connections_refused_total",
                "counter",
                "Connections beyond connections_max, which were closed at once",
                load(&self.refused),
            ),
            (
                "unalike_tls_handshakes_failed_total",
                "counter",
                "TLS handshakes that failed, or took too long",
                load(&self.handshakes_failed),
            ),
        ] {
            // A string takes everything, here and below.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
        }
        let name = "unalike_http_requests_total";
        let _ = writeln!(text, "# HELP {name} Requests that were answered\n# TYPE {name} counter");
        for Route { template, statuses, .. } in &self.routes {
            for (status, count) in STATUSES.zip(statuses).filter(|(_, count)| load(count) > 0) {
                let _ = writeln!(text, "{name}{{route=\"{template}\",status=\"{status}\"}} {}", load(count));
            }
        }
        let name = "unalike_http_request_seconds";
        let _ = writeln!(
            text,
            "\n# HELP {name} How long requests took, from the end of the head to the beginning of the answer\n\
             # TYPE {name} histogram"
        );
        for Route { template, buckets, microseconds, .. } in &self.routes {
            let counts: Vec<u64> = buckets.iter().map(load).collect();
            let all: u64 = counts.iter().sum();
            if all == 0 {
                continue;
            }
            let mut below = 0;
            for (bound, count) in SECONDS.iter().zip(&counts) {
                below += count;
                let _ = writeln!(text, "{name}_bucket{{route=\"{template}\",le=\"{bound}\"}} {below}");
            }
            let seconds = Duration::from_micros(load(microseconds)).as_secs_f64();
            let _ = writeln!(text, "{name}_bucket{{route=\"{template}\",le=\"+Inf\"}} {all}");
            let _ = writeln!(text, "{name}_sum{{route=\"{template}\"}} {seconds}");
            let _ = writeln!(text, "{name}_count{{route=\"{template}\"}} {all}");
        }
        text.push('\n');
    }
}
