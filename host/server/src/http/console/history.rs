//! What the figures were in the last ten minutes, in memory of a fixed size.
//!
//! A sample is taken every five seconds, in the loop that measures the use of tags, from figures that are there anyway:
//! the path of an id does nothing for it. There is a line for each of [`TAGS_MAX`] tags, those that are used most, with
//! their sub-keys added up, and for each of [`SNOWFLAKES_MAX`] snowflakes; a line has one or two rings of [`KEPT`]
//! numbers of 32 bits. All of it is less than 400 KiB.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use unalike::{Clock, SystemClock};

use crate::service::Service;
use crate::service::cover::{SAMPLE_EVERY, TagFigures};
use crate::service::store_watch::RequestTimes;

/// How far samples lie apart.
pub(super) const EVERY: Duration = SAMPLE_EVERY;

/// How many samples are kept: those of ten minutes.
pub(super) const KEPT: usize = 120;

/// How many tags have a line.
pub(super) const TAGS_MAX: usize = 200;

/// How many snowflakes are shown.
pub(super) const SNOWFLAKES_MAX: usize = 50;

/// More tags than this that are in use and have no line are not compared.
const COMPARED_MAX: usize = 10_000;

/// In place of a number that is missing.
const NONE: f32 = -1.0;

/// Numbers over time, the newest last.
#[derive(Debug, Default)]
pub(super) struct Ring(VecDeque<f32>);

/// Without any.
pub(super) static EMPTY: Ring = Ring(VecDeque::new());

impl Ring {
    fn push(&mut self, value: Option<f64>) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        #[expect(clippy::cast_possible_truncation, reason = "a figure to look at")]
        let value = value.filter(|value| value.is_finite()).map_or(NONE, |value| value as f32);
        self.0.push_back(value);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = f32> {
        self.0.iter().copied()
    }

    fn is_idle(&self) -> bool {
        self.0.iter().all(|value| *value <= 0.0)
    }
}

/// A tag now, and over time.
#[derive(Debug, Default)]
pub(super) struct TagLine {
    pub(super) now: TagFigures,
    pub(super) is_ordered: bool,
    pub(super) rates: Ring,
    pub(super) covers: Ring,
}

/// A snowflake over time.
#[derive(Debug, Default)]
pub(super) struct SnowflakeLine {
    issued: u64,
    /// Ids per second, as of the newest sample.
    pub(super) rate: f64,
    pub(super) rates: Ring,
}

/// All open tags together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct All {
    /// Tags and sub-keys that are open.
    pub(super) open: u64,
    pub(super) rate: f64,
    pub(super) least_cover_seconds: Option<f64>,
}

/// How many requests were answered so far: all, and with a status from 400 and from 500 on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answered {
    pub(super) requests: u64,
    pub(super) refused: u64,
    pub(super) failed: u64,
}

/// What is kept.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) tags: BTreeMap<String, TagLine>,
    pub(super) snowflakes: BTreeMap<String, SnowflakeLine>,
    pub(super) all: All,
    /// When the newest sample was taken, in Unix milliseconds; 0 before the first.
    pub(super) newest_ms: u64,
    taken: Option<Instant>,
    answered: Answered,
    /// Ids of all tags and snowflakes per second.
    pub(super) ids: Ring,
    /// Requests per second: all, and those that got a status from 400 and from 500 on.
    pub(super) requests: Ring,
    pub(super) refused: Ring,
    pub(super) failed: Ring,
    /// Grants and failures of the store per second, how long grants took, and how long the store took to say that it is
    /// there, in milliseconds.
    pub(super) grants: Ring,
    pub(super) grant_failures: Ring,
    pub(super) grant_median_ms: Ring,
    pub(super) grant_longest_ms: Ring,
    pub(super) probe_ms: Ring,
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

#[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
fn per_second(now: u64, before: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { now.saturating_sub(before) as f64 / seconds } else { 0.0 }
}

impl History {
    /// Adds a sample to each line.
    pub(super) fn sample(&mut self, service: &Service, answered: Answered) {
        self.look(service);
        let now = Instant::now();
        let seconds = self.taken.map_or(0.0, |taken| now.duration_since(taken).as_secs_f64());
        self.tags.retain(|_, line| {
            line.rates.push(Some(line.now.rate));
            // Without use it is infinite.
            line.covers.push(line.now.cover_seconds);
            line.now.open > 0 || !line.rates.is_idle()
        });
        let mut of_snowflakes = 0.0;
        for snowflake in service.ids().snowflakes().into_iter().take(SNOWFLAKES_MAX) {
            // A generator that is closed, or being built again, has no figures now.
            let Ok(status) = snowflake.status() else { continue };
            let line = self.snowflakes.entry(snowflake.namespace().to_owned()).or_default();
            line.rate = per_second(status.issued, line.issued, seconds);
            line.issued = status.issued;
            line.rates.push(Some(line.rate));
            of_snowflakes += line.rate;
        }
        self.ids.push(Some(self.all.rate + of_snowflakes));
        let before = std::mem::replace(&mut self.answered, answered);
        self.requests.push(Some(per_second(answered.requests, before.requests, seconds)));
        self.refused.push(Some(per_second(answered.refused, before.refused, seconds)));
        self.failed.push(Some(per_second(answered.failed, before.failed, seconds)));
        self.add_request_times(&service.take_request_times(), seconds);
        self.taken = Some(now);
        self.newest_ms = SystemClock.now_ms();
    }

    fn add_request_times(&mut self, times: &RequestTimes, seconds: f64) {
        self.grants.push(Some(per_second(times.granted, 0, seconds)));
        self.grant_failures.push(Some(per_second(times.failed, 0, seconds)));
        self.grant_median_ms.push(times.median().map(milliseconds));
        self.grant_longest_ms.push((times.granted > 0).then(|| milliseconds(times.longest)));
        self.probe_ms.push(times.probe.map(milliseconds));
    }

    /// Notes what the tags are now, and which of them have a line.
    pub(super) fn look(&mut self, service: &Service) {
        let Self { tags, all, .. } = self;
        tags.values_mut().for_each(|line| line.now = TagFigures::default());
        *all = All::default();
        let mut others: HashMap<String, TagLine> = HashMap::new();
        service.covers.each(service.ids(), |tag| {
            all.open += 1;
            all.rate += tag.rate;
            if let Some(cover) = tag.cover_seconds() {
                all.least_cover_seconds = Some(all.least_cover_seconds.map_or(cover, |least: f64| least.min(cover)));
            }
            let name = tag.sequence.tag();
            let line = match (tags.get_mut(name), others.get_mut(name)) {
                (Some(line), _) | (None, Some(line)) => line,
                (None, None) => {
                    let is_compared = tag.rate > 0.0 && others.len() < COMPARED_MAX;
                    if !is_compared && tags.len() + others.len() >= TAGS_MAX {
                        return;
                    }
                    let is_ordered = tag.cover_seconds().is_none();
                    others.entry(name.to_owned()).or_insert(TagLine { is_ordered, ..TagLine::default() })
                }
            };
            line.now.add(&tag);
        });
        self.admit(others);
    }

    /// Gives these tags lines, as far as there is room or others are used less.
    fn admit(&mut self, others: HashMap<String, TagLine>) {
        let mut others: Vec<(String, TagLine)> = others.into_iter().collect();
        others.sort_unstable_by(|(_, one), (_, other)| other.now.rate.total_cmp(&one.now.rate));
        let mut least: Vec<(f64, String)> =
            self.tags.iter().map(|(name, line)| (line.now.rate, name.clone())).collect();
        // The last one is used least.
        least.sort_unstable_by(|(one, _), (other, _)| other.total_cmp(one));
        for (name, line) in others {
            if self.tags.len() >= TAGS_MAX {
                match least.pop() {
                    Some((rate, name)) if rate < line.now.rate => drop(self.tags.remove(&name)),
                    _ => return,
                }
            }
            self.tags.insert(name, line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(rate: f64) -> TagLine {
        TagLine { now: TagFigures { rate, open: 1, ..TagFigures::default() }, ..TagLine::default() }
    }

    #[test]
    fn a_ring_keeps_the_newest() {
        let mut ring = Ring::default();
        assert!(ring.is_idle());
        (0..200_u8).for_each(|value| ring.push(Some(value.into())));
        ring.push(Some(f64::INFINITY));
        ring.push(None);
        let kept: Vec<f32> = ring.iter().collect();
        assert_eq!((kept.len(), kept[0], &kept[117..]), (KEPT, 82.0, &[199.0, NONE, NONE][..]));
        assert!(!ring.is_idle());
    }

    #[test]
    fn the_tags_that_are_used_most_have_lines() {
        let mut history = History::default();
        let named = |first: u32, count: u32, faster: f64| {
            (first..first + count).map(|at| (format!("t{at}"), line(f64::from(at) + faster))).collect::<HashMap<_, _>>()
        };
        history.admit(named(0, 150, 0.0));
        assert_eq!(history.tags.len(), 150);
        history.admit(named(150, 100, 0.0));
        assert_eq!(history.tags.len(), TAGS_MAX);
        // 50 found room; the slowest 50 of the others gave way to the fastest.
        assert!(history.tags.contains_key("t249") && history.tags.contains_key("t50"));
        assert!(!history.tags.contains_key("t0") && !history.tags.contains_key("t49"));
        history.admit(named(1_000, 1_000, -1_000.0));
        assert_eq!(history.tags.len(), TAGS_MAX, "however many there are");
        assert!(history.tags.contains_key("t1999") && !history.tags.contains_key("t1000"));
    }
}
