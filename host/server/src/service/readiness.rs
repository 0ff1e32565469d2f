//! Whether the server is ready: for all that it is used for, or for one tag or snowflake.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use unalike::Mode;
use unalike::storage::StoreError;

use crate::service::cover::{Figures, Outage};
use crate::service::flakes::Stop;
use crate::service::problem::{Of, Problem};
use crate::service::store_watch::Failures;
use crate::service::troubles::quietly;
use crate::words::rfc3339;

/// What was found when the server was looked at.
pub(super) struct Readiness {
    pub(super) found_at: Instant,
    /// What is said of the server as a whole.
    pub(super) whole: Result<Value, Problem>,
    /// None while the store grants what is asked of it.
    trouble: Option<Trouble>,
}

/// What the store does not do, and for whom.
struct Trouble {
    error: Arc<StoreError>,
    since: String,
    /// What it said when it was asked whether it is there.
    down: Option<Arc<StoreError>>,
    failures: Failures,
    /// Made when somebody asks for a tag: there may be hundreds of thousands.
    tags: Option<HashMap<String, TagSupply>>,
}

/// What is in hand of a tag and its sub-keys, and what the store says of them.
#[derive(Debug, Default)]
pub(super) struct TagSupply {
    is_open: bool,
    left: u64,
    /// For how many seconds the one of them lasts that is used up first; none while none is used.
    cover_seconds: Option<f64>,
    is_ordered: bool,
    /// Whether ids of one of them are asked for, and there are none.
    pub(super) is_uncovered: bool,
    pub(super) failure: Option<Arc<StoreError>>,
}

impl TagSupply {
    pub(super) fn add(&mut self, figures: &Figures) {
        self.is_open = true;
        self.left = self.left.saturating_add(figures.left);
        self.is_ordered |= figures.sequence.mode() == Mode::Ordered;
        self.is_uncovered |= figures.is_uncovered();
        if let Some(seconds) = figures.cover_seconds().filter(|seconds| seconds.is_finite()) {
            self.cover_seconds = Some(self.cover_seconds.map_or(seconds, |least| least.min(seconds)));
        }
    }
}

impl Readiness {
    /// By what the store said, a snowflake that gives no ids, and how ids last while the store does not do what is
    /// asked of it.
    pub(super) fn new(
        said: &Result<(), Arc<StoreError>>,
        stop: Option<Stop>,
        outage: Option<(Outage, Arc<StoreError>)>,
        failures: Failures,
        uses_snowflakes: bool,
    ) -> Self {
        let refused = said.as_ref().err().filter(|error| !error.is_retryable());
        let whole = match (refused, stop, &outage) {
            (Some(error), ..) => Err(Problem::of_store(error, Of::Sequences)),
            (None, Some(stop), _) => Err(stopped(stop)),
            (None, None, Some((outage, error))) => during(outage, error, uses_snowflakes),
            (None, None, None) => Ok(yes()),
        };
        let trouble = outage.map(|(outage, error)| Trouble {
            error,
            since: rfc3339(outage.since_ms),
            down: said.as_ref().err().cloned(),
            failures,
            tags: None,
        });
        Self { found_at: Instant::now(), whole, trouble }
    }

    /// What is said of a tag; `supplies` tells what is in hand of each, and is asked once at most.
    pub(super) fn of_tag(
        &mut self,
        tag: &str,
        supplies: impl FnOnce(&Failures) -> HashMap<String, TagSupply>,
    ) -> Result<Value, Problem> {
        let Some(trouble) = &mut self.trouble else { return Ok(yes()) };
        let tags = trouble.tags.get_or_insert_with(|| supplies(&trouble.failures));
        let none = TagSupply::default();
        let supply = tags.get(tag).unwrap_or(&none);
        let opening = trouble.failures.opening.as_ref().filter(|_| !supply.is_open);
        // Of some that fail nothing is known, where there are too many.
        let others = Some(&trouble.error).filter(|_| !trouble.failures.is_all);
        let failure = [trouble.down.as_ref(), supply.failure.as_ref(), opening, others].into_iter().flatten().next();
        let Some(error) = failure else { return Ok(yes()) };
        let is_covered = supply.left > 0 && !supply.is_ordered && !supply.is_uncovered;
        if is_covered && error.is_retryable() {
            let cover_seconds = supply.cover_seconds;
            return Ok(json!({
                "status": "covered", "store_down_since": trouble.since, "cover_seconds": cover_seconds, "tag": tag,
            }));
        }
        let problem = quietly(|| Problem::of_store(error, Of::Sequences));
        Err(problem.with("store_down_since", trouble.since.as_str()).with("tag", tag))
    }
}

fn during(outage: &Outage, error: &StoreError, uses_snowflakes: bool) -> Result<Value, Problem> {
    let since = rfc3339(outage.since_ms);
    let (tag, cover_seconds) = outage.least.clone().unzip();
    if outage.is_covered(uses_snowflakes) {
        return Ok(json!({
            "status": "covered", "store_down_since": since, "cover_seconds": cover_seconds, "tag": tag,
        }));
    }
    let problem = Problem::of_store(error, Of::Sequences).with("store_down_since", since);
    Err(problem.with("cover_seconds", cover_seconds).with("tag", tag))
}

/// What is said of a snowflake.
pub(super) fn of_snowflake(stop: Option<Stop>) -> Result<Value, Problem> {
    stop.map_or_else(|| Ok(yes()), |stop| Err(quietly(|| stopped(stop))))
}

fn yes() -> Value {
    json!({ "status": "ready" })
}

/// Why a snowflake gives no ids.
fn stopped(stop: Stop) -> Problem {
    let since = rfc3339(stop.since_ms);
    Problem::of(&stop.error, Of::Leases).with("snowflake", stop.name).with("stopped_since", since)
}
