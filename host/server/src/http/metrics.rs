//! `/metrics`: the figures of this process in Prometheus text, version 0.0.4.
//!
//! What the library pushes is rendered as it is. What belongs to single tags and snowflakes is pulled at each
//! scrape into a recorder of its own, so that the path of an id counts nothing and labels never pile up. At most
//! `tags_max` tags have a label of their own, first come, first served; the rest are one line under [`OTHERS`].

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use metrics::{counter, describe_counter, describe_gauge, gauge, with_local_recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use unalike::{Clock, SnowflakeStatus, SystemClock};

use super::access::Permitted;
use super::{Traffic, finished, process};
use crate::config::tls::Tls;
use crate::config::tokens::Denied;
use crate::http::problem::TOKENS_REFUSED;
use crate::quotas::QuotaOf;
use crate::service::Service;
use crate::service::cover::TagFigures;
use crate::service::problem::{Problem, QUOTAS_REFUSED};

/// The label of all tags that have none of their own. (A tag of this very name never has one.)
const OTHERS: &str = "(others)";

/// Upper bounds of the buckets of durations, in seconds: an embedded store answers within a millisecond, a far one
/// within some hundred.
pub(super) const SECONDS: &[f64] =
    &[0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Samples of durations are kept until they are sorted into buckets, this often.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

pub(super) async fn render(
    Permitted(permit): Permitted,
    State(service): State<Arc<Service>>,
    Extension(metrics): Extension<Arc<Metrics>>,
) -> Result<Response, Problem> {
    permit.covers_all()?;
    let body = metrics.render(&service);
    Ok(finished("text/plain; version=0.0.4; charset=utf-8", body.into_bytes()))
}

/// The exporter of a process.
pub(crate) struct Metrics {
    pushed: PrometheusHandle,
    started: Instant,
    tags_max: usize,
    /// Requests and connections, once there can be some.
    traffic: OnceLock<Arc<Traffic>>,
    /// The certificate, if there is one.
    tls: OnceLock<Arc<Tls>>,
    /// The component that answers, if there is one.
    #[cfg(feature = "component")]
    component: OnceLock<unalike::wasi::Service>,
    /// Tags with a label of their own; none ever loses it, so that no counter ever goes back.
    labelled: Mutex<HashSet<String>>,
}

struct SnowflakeFigures {
    name: String,
    is_ready: bool,
    status: SnowflakeStatus,
}

/// How tags, snowflakes and the store are at a scrape.
struct Look {
    /// By label.
    tags: BTreeMap<String, TagFigures>,
    snowflakes: Vec<SnowflakeFigures>,
    store_down_seconds: f64,
}

impl Metrics {
    /// Makes this process's figures go to an exporter; once per process, inside the runtime.
    pub(crate) fn install(tags_max: usize) -> anyhow::Result<Self> {
        let recorder = exporter()?.build_recorder();
        let pushed = recorder.handle();
        metrics::set_global_recorder(recorder).context("the figures of this process go elsewhere already")?;
        unalike::metrics::describe();
        describe_counter!(TOKENS_REFUSED, "Requests that were refused for their token");
        for reason in Denied::NAMES {
            counter!(TOKENS_REFUSED, "reason" => reason).absolute(0);
        }
        describe_counter!(QUOTAS_REFUSED, "Requests that were refused because a quota was used up");
        for whose in QuotaOf::WHOSE {
            counter!(QUOTAS_REFUSED, "of" => whose).absolute(0);
        }
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
        Self {
            pushed,
            started: Instant::now(),
            tags_max,
            traffic: OnceLock::new(),
            tls: OnceLock::new(),
            #[cfg(feature = "component")]
            component: OnceLock::new(),
            labelled: Mutex::default(),
        }
    }

    /// One to which nothing is pushed.
    #[cfg(test)]
    pub(crate) fn of_nothing() -> anyhow::Result<Self> {
        Ok(Self::over(exporter()?.build_recorder().handle(), 1))
    }

    /// Shows these requests and connections, too.
    pub(super) fn watch(&self, traffic: Arc<Traffic>) {
        // There is one server in a process.
        let _ = self.traffic.set(traffic);
    }

    /// Shows how long this certificate lasts.
    pub(crate) fn watch_tls(&self, tls: Arc<Tls>) {
        // There is one in a process.
        let _ = self.tls.set(tls);
    }

    /// Shows what this component does, too.
    #[cfg(feature = "component")]
    pub(crate) fn watch_component(&self, component: unalike::wasi::Service) {
        // There is one in a process.
        let _ = self.component.set(component);
    }

    fn render(&self, service: &Service) -> String {
        // Looked at before anything is pulled: what the library counts while it looks is for the recorder of the
        // process.
        let look = self.look(service);
        let mut text = self.pushed.render();
        match exporter() {
            Ok(builder) => {
                let recorder = builder.build_recorder();
                with_local_recorder(&recorder, || self.pull(look));
                text.push_str(&recorder.handle().render());
            }
            Err(error) => tracing::error!(error = format!("{error:#}"), "the figures of tags cannot be shown"),
        }
        if let Some(traffic) = self.traffic.get() {
            traffic.render(&mut text);
        }
        text
    }

    fn look(&self, service: &Service) -> Look {
        let stops = service.stopped_snowflakes();
        let snowflakes = service.ids().snowflakes().into_iter().filter_map(|snowflake| {
            // A generator that is closed, or being built again, has no figures now.
            let status = snowflake.status().ok()?;
            let name = snowflake.namespace().to_owned();
            let is_ready = stops.iter().all(|stop| stop.name != name);
            Some(SnowflakeFigures { name, is_ready, status })
        });
        Look {
            snowflakes: snowflakes.collect(),
            tags: self.tags(service),
            store_down_seconds: service.covers.down_seconds(),
        }
    }

    fn pull(&self, look: Look) {
        describe();
        process::describe();
        process::pull();
        gauge!("unalike_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        gauge!("unalike_uptime_seconds").set(self.started.elapsed().as_secs_f64());

        #[cfg(feature = "component")]
        if let Some(component) = self.component.get() {
            super::component::pull(&component.counts());
        }

        let Look { snowflakes, tags, store_down_seconds } = look;
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a double, and a number of tags fits one")]
        gauge!("unalike_tags_open").set(tags.values().map(|figures| figures.open).sum::<u64>() as f64);
        let covers = tags.values().filter_map(|figures| figures.cover_seconds);
        gauge!("unalike_least_cover_seconds").set(covers.fold(f64::INFINITY, f64::min));
        gauge!("unalike_store_down_seconds").set(store_down_seconds);
        for (tag, figures) in tags {
            counter!("unalike_ids_total", "tag" => tag.clone()).absolute(figures.issued);
            counter!("unalike_tag_waits_total", "tag" => tag.clone()).absolute(figures.waits);
            #[expect(clippy::cast_precision_loss, reason = "a gauge is a double, and a figure to look at")]
            gauge!("unalike_remaining_ids", "tag" => tag.clone()).set(figures.left as f64);
            gauge!("unalike_use_rate", "tag" => tag.clone()).set(figures.rate);
            if let Some(cover_seconds) = figures.cover_seconds {
                gauge!("unalike_cover_seconds", "tag" => tag).set(cover_seconds);
            }
        }

        let now_ms = SystemClock.now_ms();
        let left = self.tls.get().map_or(f64::INFINITY, |tls| tls.validity().left(now_ms).as_secs_f64());
        gauge!("unalike_tls_certificate_left_seconds").set(left);
        for SnowflakeFigures { name, is_ready, status } in snowflakes {
            let seconds = |ms| Duration::from_millis(ms).as_secs_f64();
            gauge!("unalike_snowflake_ready", "snowflake" => name.clone()).set(f64::from(u8::from(is_ready)));
            let left = seconds(status.reach_ms.saturating_sub(now_ms));
            gauge!("unalike_lease_left_seconds", "snowflake" => name.clone()).set(left);
            let ahead = seconds(status.ahead_ms);
            gauge!("unalike_snowflake_ahead_seconds", "snowflake" => name.clone()).set(ahead);
            counter!("unalike_snowflake_ids_total", "snowflake" => name.clone()).absolute(status.issued);
            counter!("unalike_snowflake_refused_total", "snowflake" => name.clone()).absolute(status.refused);
            counter!("unalike_snowflake_waits_total", "snowflake" => name).absolute(status.waits);
        }
    }

    /// The figures of all open tags under their labels. Sub-keys have none: there is no end to them.
    fn tags(&self, service: &Service) -> BTreeMap<String, TagFigures> {
        // It is whole after every statement.
        let mut labelled = self.labelled.lock().unwrap_or_else(PoisonError::into_inner);
        let mut labels: BTreeMap<String, TagFigures> = BTreeMap::new();
        service.covers.each(service.ids(), |tag| {
            let name = tag.sequence.tag();
            if labelled.len() < self.tags_max && name != OTHERS && !labelled.contains(name) {
                labelled.insert(name.to_owned());
            }
            let label = if labelled.contains(name) { name } else { OTHERS };
            let figures = match labels.get_mut(label) {
                Some(figures) => figures,
                None => labels.entry(label.to_owned()).or_default(),
            };
            figures.add(&tag);
        });
        labels
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
        "unalike_use_rate",
        "Ids of the tag that this process handed out per second, in the last 5 to 10 seconds"
    );
    describe_gauge!("unalike_least_cover_seconds", "The least cover of all tags that are in use");
    describe_gauge!(
        "unalike_store_down_seconds",
        "How long the store has not answered, or has granted a tag nothing; 0 while it answers and grants"
    );
    describe_gauge!(
        "unalike_cover_seconds",
        "How long they last at the present use: an outage of the store may last as long"
    );
    describe_gauge!("unalike_tls_certificate_left_seconds", "How long the server's certificate lasts");
    describe_gauge!("unalike_snowflake_ready", "1, or 0 while the snowflake is asked for ids and gives none");
    describe_gauge!("unalike_snowflake_ahead_seconds", "How far the newest timestamp is ahead of the clock");
    describe_counter!("unalike_snowflake_refused_total", "Calls for ids of the snowflake that got an error");
    describe_gauge!("unalike_lease_left_seconds", "How long the lease of the snowflake's worker lasts; 0 without one");
    describe_counter!("unalike_snowflake_ids_total", "Ids of the snowflake that this process handed out");
    describe_counter!("unalike_snowflake_waits_total", "Calls for ids of the snowflake that had to wait");
}
