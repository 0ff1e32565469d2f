//! What the library counts, and under which names.
//!
//! Figures are pushed through the [`metrics`](https://docs.rs/metrics) facade: without a recorder they cost next to
//! nothing, and the application decides which exporter there is. None of them is on the path of an id that is served
//! from a run. No label has unbounded values: figures of single tags are not pushed but pulled, from
//! [`Ids::sequences`](crate::Ids::sequences) and [`Ids::snowflakes`](crate::Ids::snowflakes).
//!
//! | name | kind | labels | meaning |
//! | --- | --- | --- | --- |
//! | `unalike_store_requests_total` | counter | `operation`, `outcome` | requests to stores that ended |
//! | `unalike_store_requests_in_flight` | gauge | `operation` | requests to stores that are under way |
//! | `unalike_store_request_seconds` | histogram | `operation` | how long requests to stores took |
//! | `unalike_wait_seconds` | histogram | `generator` | how long calls waited that found nothing buffered |
//! | `unalike_errors_total` | counter | `kind` | errors of the library |
//! | `unalike_lanes_rebuilt_total` | counter | | instances of the component that trapped and were replaced |
//! | `unalike_grants_abandoned_total` | counter | `reason` | grants, or requests that may have been granted, that were burnt |
//! | `unalike_lease_troubles_total` | counter | `trouble` | times that something began to stand between a snowflake and its ids |
//! | `unalike_clock_backward_total` | counter | | readings of the clock below the one before |
//! | `unalike_clock_skew_seconds` | gauge | | the clock against a lease store's when it was last refused for that, else 0 |
//!
//! - `operation`: `allocate` and `release_tail` (of one tag, or of many together) for segments; `acquire`, `extend` and
//!   `release_lease` for leases.
//! - `outcome`: `ok`, or what the store said: `unavailable`, `outcome_unknown`, `tag_unknown`, `exhausted`,
//!   `workers_exhausted`, `lease_lost`, `clock_skew`, `refused`.
//! - `generator`: `sequence`, `ordered`, `snowflake`.
//! - `kind`: [`ErrorKind::name`](crate::ErrorKind::name).
//! - `reason`: `outcome_unknown`, `refused` (the store broke its promise), `trap`.
//! - `trouble`: `not_acquired` and `not_extended` (the lease store failed after it had worked), `lost` (it no longer
//!   extends the lease), `ended` (the lease ended before there was another one), `clock_moved_back` (beyond the
//!   policy). Each is a line in the log, too, and so is its end.
//!
//! The requests themselves are `tracing` spans at the level `debug`, named `store_request`, with the fields
//! `operation`, `name`, `outcome` and `duration_us`.
//!
//! ```
//! let names: Vec<_> = unalike::metrics::TABLE.iter().map(|metric| metric.name).collect();
//! assert!(names.contains(&"unalike_store_requests_total"));
//! ```

use std::time::Duration;

use tracing::Span;
use tracing::field::Empty;
use unalike_core::StoreFailure;
use unalike_storage::StoreError;

/// How a figure behaves.
///
/// ```
/// use unalike::metrics::{MetricKind, TABLE};
/// let counters = TABLE.iter().filter(|metric| metric.kind == MetricKind::Counter);
/// assert!(counters.clone().count() > 0 && counters.clone().all(|metric| metric.name.ends_with("_total")));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// A distribution.
    Histogram,
}

/// A figure that the library pushes.
///
/// ```
/// use unalike::metrics::{MetricKind, TABLE};
/// assert!(TABLE.iter().all(|metric| metric.name.starts_with("unalike_")));
/// assert!(TABLE.iter().any(|metric| metric.kind == MetricKind::Histogram));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Metric {
    /// Its name, as Prometheus writes names.
    pub name: &'static str,
    /// How it behaves.
    pub kind: MetricKind,
    /// What it means.
    pub help: &'static str,
}

const fn metric(name: &'static str, kind: MetricKind, help: &'static str) -> Metric {
    Metric { name, kind, help }
}

const STORE_REQUESTS: Metric =
    metric("unalike_store_requests_total", MetricKind::Counter, "Requests to stores that ended");
const STORE_REQUESTS_IN_FLIGHT: Metric =
    metric("unalike_store_requests_in_flight", MetricKind::Gauge, "Requests to stores that are under way");
const STORE_REQUEST_SECONDS: Metric =
    metric("unalike_store_request_seconds", MetricKind::Histogram, "How long requests to stores took");
const WAIT_SECONDS: Metric =
    metric("unalike_wait_seconds", MetricKind::Histogram, "How long calls waited that found nothing buffered");
const ERRORS: Metric = metric("unalike_errors_total", MetricKind::Counter, "Errors of the library");
const LANES_REBUILT: Metric = metric(
    "unalike_lanes_rebuilt_total",
    MetricKind::Counter,
    "Instances of the component that trapped and were replaced",
);
const GRANTS_ABANDONED: Metric = metric(
    "unalike_grants_abandoned_total",
    MetricKind::Counter,
    "Grants, or requests that may have been granted, that were burnt",
);
const LEASE_TROUBLES: Metric = metric(
    "unalike_lease_troubles_total",
    MetricKind::Counter,
    "Times that something began to stand between a snowflake and its ids",
);
const CLOCK_BACKWARD: Metric =
    metric("unalike_clock_backward_total", MetricKind::Counter, "Readings of the clock below the one before");
const CLOCK_SKEW_SECONDS: Metric = metric(
    "unalike_clock_skew_seconds",
    MetricKind::Gauge,
    "The clock against a lease store's when it was last refused for that, else 0",
);

/// Every figure that the library pushes.
pub const TABLE: &[Metric] = &[
    STORE_REQUESTS,
    STORE_REQUESTS_IN_FLIGHT,
    STORE_REQUEST_SECONDS,
    WAIT_SECONDS,
    ERRORS,
    LANES_REBUILT,
    GRANTS_ABANDONED,
    LEASE_TROUBLES,
    CLOCK_BACKWARD,
    CLOCK_SKEW_SECONDS,
];

/// Tells the installed recorder what the figures mean, and begins the rare ones at 0. Call it once, after the recorder
/// was installed.
///
/// ```
/// unalike::metrics::describe(); // without a recorder it does nothing
/// ```
pub fn describe() {
    #[cfg(feature = "metrics")]
    {
        for Metric { name, kind, help } in TABLE {
            match kind {
                MetricKind::Counter => metrics::describe_counter!(*name, *help),
                MetricKind::Gauge => metrics::describe_gauge!(*name, *help),
                MetricKind::Histogram => metrics::describe_histogram!(*name, metrics::Unit::Seconds, *help),
            }
        }
        for operation in Operation::ALL {
            metrics::counter!(STORE_REQUESTS.name, "operation" => operation.name(), "outcome" => OUTCOME_OK)
                .absolute(0);
            metrics::gauge!(STORE_REQUESTS_IN_FLIGHT.name, "operation" => operation.name()).increment(0.0);
        }
        for reason in Abandoned::ALL {
            metrics::counter!(GRANTS_ABANDONED.name, "reason" => reason.name()).absolute(0);
        }
        for trouble in Trouble::ALL {
            metrics::counter!(LEASE_TROUBLES.name, "trouble" => trouble.name()).absolute(0);
        }
        metrics::counter!(LANES_REBUILT.name).absolute(0);
        metrics::counter!(CLOCK_BACKWARD.name).absolute(0);
        metrics::gauge!(CLOCK_SKEW_SECONDS.name).increment(0.0);
    }
}

/// A kind of request to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Allocate,
    ReleaseTail,
    Acquire,
    Extend,
    ReleaseLease,
}

impl Operation {
    #[cfg(feature = "metrics")]
    const ALL: [Self; 5] = [Self::Allocate, Self::ReleaseTail, Self::Acquire, Self::Extend, Self::ReleaseLease];

    const fn name(self) -> &'static str {
        match self {
            Self::Allocate => "allocate",
            Self::ReleaseTail => "release_tail",
            Self::Acquire => "acquire",
            Self::Extend => "extend",
            Self::ReleaseLease => "release_lease",
        }
    }

    /// The span that a request runs in.
    pub(crate) fn span(self, name: &str) -> Span {
        let operation = self.name();
        tracing::debug_span!("store_request", operation, name, outcome = Empty, duration_us = Empty)
    }
}

/// Why a grant is burnt.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Abandoned {
    OutcomeUnknown,
    Refused,
    Trap,
}

impl Abandoned {
    #[cfg(feature = "metrics")]
    const ALL: [Self; 3] = [Self::OutcomeUnknown, Self::Refused, Self::Trap];

    #[cfg(feature = "metrics")]
    const fn name(self) -> &'static str {
        match self {
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Refused => "refused",
            Self::Trap => "trap",
        }
    }
}

/// What begins to stand between a snowflake and its ids.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    NotAcquired,
    NotExtended,
    Lost,
    Ended,
    ClockMovedBack,
}

impl Trouble {
    #[cfg(feature = "metrics")]
    const ALL: [Self; 5] = [Self::NotAcquired, Self::NotExtended, Self::Lost, Self::Ended, Self::ClockMovedBack];

    #[cfg(feature = "metrics")]
    const fn name(self) -> &'static str {
        match self {
            Self::NotAcquired => "not_acquired",
            Self::NotExtended => "not_extended",
            Self::Lost => "lost",
            Self::Ended => "ended",
            Self::ClockMovedBack => "clock_moved_back",
        }
    }
}

const OUTCOME_OK: &str = "ok";

const fn outcome(failure: StoreFailure) -> &'static str {
    match failure {
        StoreFailure::Unavailable => "unavailable",
        StoreFailure::OutcomeUnknown => "outcome_unknown",
        StoreFailure::TagUnknown => "tag_unknown",
        StoreFailure::Exhausted => "exhausted",
        StoreFailure::WorkersExhausted => "workers_exhausted",
        StoreFailure::LeaseLost => "lease_lost",
        StoreFailure::ClockSkew => "clock_skew",
        StoreFailure::Refused => "refused",
    }
}

/// A request to a store has ended; called inside its span.
pub(crate) fn store_request(operation: Operation, error: Option<&StoreError>, took: Duration) {
    let outcome = error.map_or(OUTCOME_OK, |error| outcome(error.failure()));
    let span = Span::current();
    span.record("outcome", outcome);
    span.record("duration_us", u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    if error.is_some_and(StoreError::may_have_granted) && matches!(operation, Operation::Allocate | Operation::Acquire)
    {
        grants_abandoned(Abandoned::OutcomeUnknown, 1);
    }
    #[cfg(feature = "metrics")]
    {
        let operation_name = operation.name();
        metrics::counter!(STORE_REQUESTS.name, "operation" => operation_name, "outcome" => outcome).increment(1);
        metrics::gauge!(STORE_REQUESTS_IN_FLIGHT.name, "operation" => operation_name).decrement(1.0);
        metrics::histogram!(STORE_REQUEST_SECONDS.name, "operation" => operation_name).record(took);
        match (operation, error) {
            (_, Some(StoreError::ClockSkew { holder_ms, store_ms, .. })) => {
                let (ahead_ms, behind_ms) = (holder_ms.saturating_sub(*store_ms), store_ms.saturating_sub(*holder_ms));
                let ahead = Duration::from_millis(ahead_ms).as_secs_f64();
                let behind = Duration::from_millis(behind_ms).as_secs_f64();
                metrics::gauge!(CLOCK_SKEW_SECONDS.name).set(ahead - behind);
            }
            (Operation::Acquire | Operation::Extend, None) => metrics::gauge!(CLOCK_SKEW_SECONDS.name).set(0.0),
            _ => {}
        }
    }
}

/// A request to a store was started.
pub(crate) fn store_request_started(operation: Operation) {
    #[cfg(feature = "metrics")]
    metrics::gauge!(STORE_REQUESTS_IN_FLIGHT.name, "operation" => operation.name()).increment(1.0);
    #[cfg(not(feature = "metrics"))]
    let _ = operation;
}

/// A call found nothing buffered and waited, whatever came of it.
pub(crate) fn waited(generator: &'static str, wait: Duration) {
    #[cfg(feature = "metrics")]
    metrics::histogram!(WAIT_SECONDS.name, "generator" => generator).record(wait);
    #[cfg(not(feature = "metrics"))]
    let _ = (generator, wait);
}

pub(crate) fn error(kind: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!(ERRORS.name, "kind" => kind).increment(1);
    #[cfg(not(feature = "metrics"))]
    let _ = kind;
}

pub(crate) fn lane_rebuilt() {
    #[cfg(feature = "metrics")]
    metrics::counter!(LANES_REBUILT.name).increment(1);
}

pub(crate) fn grants_abandoned(reason: Abandoned, count: u64) {
    #[cfg(feature = "metrics")]
    metrics::counter!(GRANTS_ABANDONED.name, "reason" => reason.name()).increment(count);
    #[cfg(not(feature = "metrics"))]
    let _ = (reason, count);
}

/// A trouble has begun.
pub(crate) fn lease_trouble(trouble: Trouble) {
    #[cfg(feature = "metrics")]
    metrics::counter!(LEASE_TROUBLES.name, "trouble" => trouble.name()).increment(1);
    #[cfg(not(feature = "metrics"))]
    let _ = trouble;
}

/// The clock stood below its last reading.
pub(crate) fn clock_backward() {
    #[cfg(feature = "metrics")]
    metrics::counter!(CLOCK_BACKWARD.name).increment(1);
}
