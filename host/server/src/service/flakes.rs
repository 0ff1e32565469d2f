//! Whether the snowflakes that are in use give ids, and since when one does not.
//!
//! A snowflake is in use once ids of it were asked for. It stops when its lease has ended and the store does not
//! prolong it, or when the clock is wrong beyond its policy; calls then fail, and later it goes on by itself. A
//! call that fails by that is a stop. It is looked at every second, too, and one look that finds nothing is no stop: a
//! request for the lease may be under way, and nobody may have asked.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use unalike::{Clock, Error, ErrorKind, Ids, Snowflake, SystemClock};

use crate::words::with_causes;

/// A wait for the next tick, or for the beginning of a lease, up to so many milliseconds is no stop: callers wait as
/// long.
const WAIT_MAX_MS: u64 = 1_000;

/// The snowflakes of a process, watched.
#[derive(Default)]
pub(crate) struct Flakes {
    /// Those that gave nothing when they were looked at or asked, by name.
    stopped: Mutex<BTreeMap<String, Stopped>>,
}

/// Since when one gives nothing.
#[derive(Clone, Copy, Debug)]
struct Stopped {
    since: Instant,
    since_ms: u64,
    /// Whether it was looked at twice, or a call failed.
    is_sure: bool,
}

impl Stopped {
    /// Says it in the log, if that is news.
    fn is_sure_now(&mut self, name: &str, error: &Error) {
        if !std::mem::replace(&mut self.is_sure, true) {
            let error = with_causes(error);
            tracing::error!(snowflake = name, error, "the snowflake gives no ids");
        }
    }
}

/// A snowflake in use that gives no ids now.
#[derive(Debug)]
pub(crate) struct Stop {
    /// Its name.
    pub(crate) name: String,
    /// Since when, in Unix milliseconds.
    pub(crate) since_ms: u64,
    /// Why.
    pub(crate) error: Error,
}

impl Flakes {
    /// Looks at each, and says in the log which has stopped and which goes on.
    pub(crate) fn look(&self, ids: &Ids) {
        let mut stopped = self.lock();
        for snowflake in ids.snowflakes().iter().filter(|snowflake| is_used(snowflake)) {
            let name = snowflake.namespace();
            match (obstacle(snowflake), stopped.get_mut(name)) {
                (None, None) => {}
                (None, Some(Stopped { since, is_sure, .. })) => {
                    if *is_sure {
                        let stopped_ms = since.elapsed().as_millis();
                        tracing::info!(snowflake = name, stopped_ms, "the snowflake gives ids again");
                    }
                    stopped.remove(name);
                }
                (Some(_), None) => {
                    let (since, since_ms) = (Instant::now(), SystemClock.now_ms());
                    stopped.insert(name.to_owned(), Stopped { since, since_ms, is_sure: false });
                }
                (Some(error), Some(stop)) => stop.is_sure_now(name, &error),
            }
        }
    }

    /// Looks at one by which a call failed; answers whether it gives no ids.
    pub(crate) fn failed(&self, snowflake: &Snowflake) -> bool {
        // What failed may have been the call only.
        let Some(error) = obstacle(snowflake) else { return false };
        let (since, since_ms) = (Instant::now(), SystemClock.now_ms());
        let mut stopped = self.lock();
        let stop = stopped.entry(snowflake.namespace().to_owned());
        stop.or_insert(Stopped { since, since_ms, is_sure: false }).is_sure_now(snowflake.namespace(), &error);
        true
    }

    /// Those that are known to give nothing and give nothing now, in the order of their names.
    pub(crate) fn stops(&self, ids: &Ids) -> Vec<Stop> {
        let stopped = self.lock();
        if stopped.is_empty() {
            return Vec::new();
        }
        let mut stops: Vec<Stop> =
            ids.snowflakes().iter().filter_map(|snowflake| stop_of(&stopped, snowflake)).collect();
        stops.sort_by(|one, other| one.name.cmp(&other.name));
        stops
    }

    /// What is known of this one, if it is known to give nothing and gives nothing now.
    pub(crate) fn stop(&self, snowflake: &Snowflake) -> Option<Stop> {
        stop_of(&self.lock(), snowflake)
    }

    /// Why this one is known to give nothing, where its store said why: whoever waits for that would wait in vain. A
    /// wait for a clock, or for a store that has not failed, may be worth it.
    pub(crate) fn outage(&self, snowflake: &Snowflake) -> Option<Error> {
        let Stop { error, .. } = self.stop(snowflake)?;
        let is_said = matches!(
            error.kind(),
            ErrorKind::Timeout { source: Some(_), .. }
                | ErrorKind::LeaseEnded { source: Some(_), .. }
                | ErrorKind::Store { .. }
        );
        is_said.then_some(error)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Stopped>> {
        // It is whole after every statement.
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stop_of(stopped: &BTreeMap<String, Stopped>, snowflake: &Snowflake) -> Option<Stop> {
    let &Stopped { since_ms, .. } = stopped.get(snowflake.namespace()).filter(|stop| stop.is_sure)?;
    Some(Stop { name: snowflake.namespace().to_owned(), since_ms, error: obstacle(snowflake)? })
}

/// Whether ids of it were ever asked for in this process.
pub(crate) fn is_used(snowflake: &Snowflake) -> bool {
    snowflake.status().is_ok_and(|status| status.issued > 0 || status.refused > 0 || status.waits > 0)
}

/// Why a call for an id of it would fail now.
fn obstacle(snowflake: &Snowflake) -> Option<Error> {
    let error = snowflake.check().err()?;
    let is_near = matches!(error.kind(), ErrorKind::NotYet { wait_ms, .. } if *wait_ms <= WAIT_MAX_MS);
    if is_near { None } else { Some(error) }
}
