//! Who holds which worker, as the lease store says it: asked for in the background, seldom, and in bounded time.
//!
//! Nobody waits for the answer: a page shows what was said last, and when. While no page is open nothing is asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use unalike::storage::{LeaseRecord, LeaseStore};
use unalike::{Clock, Layout, SystemClock};

use super::history::SNOWFLAKES_MAX;
use crate::service::Service;
use crate::service::leases::lease_state;
use crate::service::problem::{Of, Problem};
use crate::service::troubles::quietly;
use crate::words::rfc3339;

/// The store is asked at most this often, and one that is slow is asked for a tenth of the time.
const ASK_EVERY: Duration = Duration::from_secs(5);

/// It has this long to answer for one namespace.
const ASK_MAX: Duration = Duration::from_secs(2);

/// How many leases of a namespace are shown.
const SHOWN_MAX: usize = 200;

/// What lease stores said last.
#[derive(Default)]
pub(super) struct LeaseLooks(Mutex<State>);

#[derive(Default)]
struct State {
    looks: BTreeMap<String, Look>,
    /// The name of the store of the sequences, once it said so.
    store: Option<String>,
    is_asking: bool,
    /// Not before then.
    again: Option<Instant>,
}

/// The leases of one namespace.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Look {
    /// When the store answered last.
    pub(super) asked: Option<String>,
    /// Why it did not answer since.
    pub(super) error: Option<String>,
    /// Workers that somebody holds.
    held: u64,
    /// Workers that nobody holds now.
    free: u64,
    /// Some of them if there are many: those that run first.
    leases: Vec<LeaseRow>,
}

#[derive(Clone, Debug, Serialize)]
struct LeaseRow {
    worker: u32,
    /// Empty where a worker was assigned.
    holder: String,
    /// Where it is known.
    from: Option<String>,
    from_ms: u64,
    until: String,
    until_ms: u64,
    state: &'static str,
}

impl Look {
    fn new(mut records: Vec<LeaseRecord>, layout: Layout) -> Self {
        let is_ended = |record: &LeaseRecord| lease_state(record) == "ended";
        let held = u64::try_from(records.iter().filter(|record| !is_ended(record)).count()).unwrap_or(u64::MAX);
        // Of those that have ended the newest.
        records.sort_by_cached_key(|record| {
            let is_ended = is_ended(record);
            (is_ended, if is_ended { u64::MAX - record.lease.valid_until_ms } else { record.lease.worker.into() })
        });
        records.truncate(SHOWN_MAX);
        let rows = records.into_iter().map(|record| {
            let state = lease_state(&record);
            let LeaseRecord { lease, holder, acquired_ms, .. } = record;
            LeaseRow {
                worker: lease.worker,
                holder,
                from: (acquired_ms > 0).then(|| rfc3339(lease.not_before_ms)),
                from_ms: lease.not_before_ms,
                until: rfc3339(lease.valid_until_ms),
                until_ms: lease.valid_until_ms,
                state,
            }
        });
        Self {
            asked: Some(rfc3339(SystemClock.now_ms())),
            error: None,
            held,
            free: layout.workers().saturating_sub(held),
            leases: rows.collect(),
        }
    }
}

impl LeaseLooks {
    fn lock(&self) -> MutexGuard<'_, State> {
        // It is whole after every statement.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was said last of a namespace.
    pub(super) fn of(&self, namespace: &str) -> Look {
        self.lock().looks.get(namespace).cloned().unwrap_or_default()
    }

    /// The name of the store, if it is known.
    pub(super) fn store_name(&self) -> Option<String> {
        self.lock().store.clone()
    }

    /// Begins to ask, if that is due; nobody waits for it.
    pub(super) fn look(self: &Arc<Self>, service: &Arc<Service>) {
        let mut state = self.lock();
        if state.is_asking || state.again.is_some_and(|again| Instant::now() < again) {
            return;
        }
        state.is_asking = true;
        drop(state);
        let (looks, service) = (Arc::clone(self), Arc::clone(service));
        drop(tokio::spawn(async move {
            let turn = Turn { looks: &looks, began: Instant::now() };
            looks.ask(&service).await;
            drop(turn);
        }));
    }

    async fn ask(&self, service: &Service) {
        if self.store_name().is_none()
            && let Ok(Ok(Some(name))) = tokio::time::timeout(ASK_MAX, service.segments_name()).await
        {
            self.lock().store = Some(name.to_string());
        }
        let leases = service.stores().leases();
        let Some(store) = leases.shared().ok().map(|shared| &shared.store).or(leases.store()) else { return };
        if leases.missing().is_some() {
            return;
        }
        for snowflake in service.ids().snowflakes().into_iter().take(SNOWFLAKES_MAX) {
            let namespace = snowflake.namespace();
            match ask_for(store.as_ref(), namespace).await {
                Ok(records) => {
                    let look = Look::new(records, snowflake.layout());
                    self.lock().looks.insert(namespace.to_owned(), look);
                }
                Err(error) => self.lock().looks.entry(namespace.to_owned()).or_default().error = Some(error),
            }
        }
    }
}

async fn ask_for(store: &dyn LeaseStore, namespace: &str) -> Result<Vec<LeaseRecord>, String> {
    match tokio::time::timeout(ASK_MAX, store.leases(namespace)).await {
        Ok(Ok(records)) => Ok(records),
        // As a request would be told, and no request failed by it.
        Ok(Err(error)) => Err(quietly(|| Problem::of_store(&error, Of::Leases).detail().to_owned())),
        Err(_) => Err(format!("the lease store did not answer within {} s", ASK_MAX.as_secs())),
    }
}

/// A turn of asking, over when it is dropped.
struct Turn<'a> {
    looks: &'a LeaseLooks,
    began: Instant,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let wait = ASK_EVERY.max(self.began.elapsed().saturating_mul(10));
        let mut state = self.looks.lock();
        state.is_asking = false;
        state.again = Some(Instant::now() + wait);
    }
}

#[cfg(test)]
mod tests {
    use unalike::storage::{GrantId, Lease};

    use super::*;

    #[test]
    fn few_of_many_leases_are_shown_and_those_that_run_first() {
        let now_ms = SystemClock.now_ms();
        let record = |worker: u32, ends_ms: u64| LeaseRecord {
            lease: Lease { worker, grant_id: GrantId(1), not_before_ms: 1_000, valid_until_ms: ends_ms },
            holder: format!("h{worker}"),
            acquired_ms: u64::from(worker),
            is_final: worker == 900,
        };
        let ended = (0..700).map(|worker| record(worker, 2_000 + u64::from(worker)));
        let running = (900..903).rev().map(|worker| record(worker, now_ms + 60_000));
        let look = Look::new(ended.chain(running).collect(), Layout::TWITTER);
        assert_eq!((look.held, look.free, look.leases.len()), (3, 1_021, SHOWN_MAX));
        let first: Vec<(u32, &str)> = look.leases.iter().take(4).map(|row| (row.worker, row.state)).collect();
        assert_eq!(first, [(900, "extension forbidden"), (901, "running"), (902, "running"), (699, "ended")]);
    }
}
