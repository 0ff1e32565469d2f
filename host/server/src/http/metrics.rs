//! `/metrics`: the figures of this process in Prometheus text, version 0.0.4.
//!
//! What the library pushes is rendered as it stands. What belongs to single tags and snowflakes is pulled at each scrape
//! into a recorder of its own, so that the path of an id counts nothing and labels never pile up. At most `tags_max` tags
//! have a label of their own, first come, first served; the rest are one line under [`OTHERS`].

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use metrics::{counter, describe_counter, describe_gauge, gauge, with_local_recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use unalike::{Clock, Ids, SystemClock};

use super::{Reader, finished};
use crate::problem::Problem;
use crate::service::Service;

/// The label of all tags that have none of their own. (A tag of this very name never has one.)
const OTHERS: &str = "(others)";

/// Upper bounds of the buckets of durations, in seconds: an embedded store answers within a millisecond, a far one within
/// some hundred.
const SECONDS: &[f64] =
    &[0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// How far apart the two samples must lie that the use of a tag is taken from.
const WINDOW_MIN: Duration = Duration::from_secs(5);

/// Samples of durations are kept until they are sorted into buckets, this often.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// How many ids each label had at a moment.
type Issued = HashMap<String, u64>;

pub(super) async fn render(
    Reader(permit): Reader,
    State(service): State<Arc<Service>>,
    Extension(metrics): Extension<Arc<Metrics>>,
) -> Result<Response, Problem> {
    permit.covers_all()?;
    let body = metrics.render(service.ids());
    Ok(finished("text/plain; version=0.0.4; charset=utf-8", body.into_bytes()))
}

/// The exporter of a process.
pub(crate) struct Metrics {
    pushed: PrometheusHandle,
    started: Instant,
    tags_max: usize,
    window: Mutex<Window>,
}

/// Since when the use of tags is measured: the newest sample, or the one before while the newest is too young.
struct Window {
    /// Tags with a label of their own; none ever loses it, so that no counter ever goes back.
    labelled: HashSet<String>,
    newest: (Instant, Issued),
    before: (Instant, Issued),
}

/// The figures of a tag, or of several together.
#[derive(Clone, Copy, Debug, Default)]
struct TagFigures {
    issued: u64,
    waits: u64,
    remaining: u64,
    /// Ids handed out within the window.
    used: u64,
}

impl Metrics {
    /// Makes this process's figures go to an exporter; once per process, inside the runtime.
    pub(crate) fn install(tags_max: usize) -> anyhow::Result<Self> {
        let recorder = exporter()?.build_recorder();
        let pushed = recorder.handle();
        metrics::set_global_recorder(recorder).context("the figures of this process go elsewhere already")?;
        unalike::metrics::describe();
        let upkeep = pushed.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(UPKEEP_EVERY).await;
                upkeep.run_upkeep();
            }
        });
        Ok(Self::over(pushed, tags_max))
    }

    fn over(pushed: PrometheusHandle, tags_max: usize) -> Self {
        let started = Instant::now();
        let none = || (started, Issued::new());
        let window = Mutex::new(Window { labelled: HashSet::new(), newest: none(), before: none() });
        Self { pushed, started, tags_max, window }
    }

    /// One to which nothing is pushed.
    #[cfg(test)]
    pub(crate) fn of_nothing() -> anyhow::Result<Self> {
        Ok(Self::over(exporter()?.build_recorder().handle(), 1))
    }

    fn render(&self, ids: &Ids) -> String {
        let mut text = self.pushed.render();
        match exporter() {
            Ok(builder) => {
                let recorder = builder.build_recorder();
                with_local_recorder(&recorder, || self.pull(ids));
                text.push_str(&recorder.handle().render());
            }
            Err(error) => tracing::error!(error = format!("{error:#}"), "the figures of tags cannot be shown"),
        }
        text
    }

    fn pull(&self, ids: &Ids) {
        describe();
        gauge!("unalike_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        gauge!("unalike_uptime_seconds").set(self.started.elapsed().as_secs_f64());

        let (tags, seconds) = self.tags(ids);
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a double, and a number of tags fits one")]
        gauge!("unalike_tags_open").set(tags.values().map(|(count, _)| *count).sum::<u64>() as f64);
        for (tag, (_, figures)) in tags {
            counter!("unalike_ids_total", "tag" => tag.clone()).absolute(figures.issued);
            counter!("unalike_tag_waits_total", "tag" => tag.clone()).absolute(figures.waits);
            #[expect(clippy::cast_precision_loss, reason = "a gauge is a double, and a figure to look at")]
            let (remaining, used) = (figures.remaining as f64, figures.used as f64);
            gauge!("unalike_remaining_ids", "tag" => tag.clone()).set(remaining);
            // Without use it lasts for ever.
            let cover = if figures.used == 0 { f64::INFINITY } else { remaining * seconds / used };
            gauge!("unalike_cover_seconds", "tag" => tag).set(cover);
        }

        let now_ms = SystemClock.now_ms();
        for snowflake in ids.snowflakes() {
            // A generator that is closed, or being built again, has no figures now.
            let Ok(status) = snowflake.status() else { continue };
            let name = snowflake.namespace().to_owned();
            let left = Duration::from_millis(status.valid_until_ms.saturating_sub(now_ms));
            gauge!("unalike_lease_left_seconds", "snowflake" => name.clone()).set(left.as_secs_f64());
            counter!("unalike_snowflake_ids_total", "snowflake" => name.clone()).absolute(status.issued);
            counter!("unalike_snowflake_waits_total", "snowflake" => name).absolute(status.waits);
        }
    }

    /// The figures of all open tags under their labels, with how many tags each label stands for; and how many seconds the
    /// window is long.
    fn tags(&self, ids: &Ids) -> (BTreeMap<String, (u64, TagFigures)>, f64) {
        let mut window = self.lock();
        let now = Instant::now();
        let mut labels: BTreeMap<String, (u64, TagFigures)> = BTreeMap::new();
        let mut issued = Issued::new();
        let mut sequences = ids.sequences();
        sequences.sort_by(|a, b| a.tag().cmp(b.tag()));
        for sequence in sequences {
            let Ok(status) = sequence.status() else { continue };
            let tag = sequence.tag();
            if window.labelled.len() < self.tags_max && tag != OTHERS && !window.labelled.contains(tag) {
                window.labelled.insert(tag.to_owned());
            }
            let label = if window.labelled.contains(tag) { tag } else { OTHERS };
            let (count, figures) = labels.entry(label.to_owned()).or_default();
            *count += 1;
            figures.issued += status.issued;
            figures.waits += status.waits;
            figures.remaining += status.remaining;
        }
        let is_old = now.duration_since(window.newest.0) >= WINDOW_MIN;
        let (since, had) = if is_old { &window.newest } else { &window.before };
        let seconds = now.duration_since(*since).as_secs_f64();
        for (label, (_, figures)) in &mut labels {
            figures.used = figures.issued.saturating_sub(had.get(label).copied().unwrap_or(0));
            issued.insert(label.clone(), figures.issued);
        }
        if is_old {
            window.before = std::mem::replace(&mut window.newest, (now, issued));
        }
        (labels, seconds)
    }

    fn lock(&self) -> MutexGuard<'_, Window> {
        // It is whole after every statement.
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn exporter() -> anyhow::Result<PrometheusBuilder> {
    PrometheusBuilder::new().set_buckets(SECONDS).context("the buckets of durations are not valid")
}

fn describe() {
    describe_gauge!("unalike_build_info", "1, with the version as label");
    describe_gauge!("unalike_uptime_seconds", "How long this process has served");
    describe_gauge!("unalike_tags_open", "Tags that this process has open");
    describe_counter!("unalike_ids_total", "Ids of the tag that this process handed out");
    describe_counter!("unalike_tag_waits_total", "Calls for ids of the tag that had to wait");
    describe_gauge!("unalike_remaining_ids", "Numbers of the tag that this process was granted and has not handed out");
    describe_gauge!(
        "unalike_cover_seconds",
        "How long they last at the present use: the outage of the store that is ridden out"
    );
    describe_gauge!("unalike_lease_left_seconds", "How long the lease of the snowflake's worker lasts; 0 without one");
    describe_counter!("unalike_snowflake_ids_total", "Ids of the snowflake that this process handed out");
    describe_counter!("unalike_snowflake_waits_total", "Calls for ids of the snowflake that had to wait");
}
