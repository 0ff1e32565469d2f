//! What becomes of the requests to the store: which tags it grants nothing, and since when.
//!
//! A probe tells whether a store is there. Whether it grants, only grants tell: a disk may be full, a table gone, one
//! row locked. So each allocation is watched on its way. A tag *fails* from an allocation that failed, or that has been
//! under way for too long, to the next one that succeeds.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use unalike::storage::{
    FormatBinding, FormatOwner, FormatPart, JoinedStripe, Segment, SegmentLayer, SegmentStore, StoreError, Stripe,
    TagRecord,
};
use unalike::{Clock, SystemClock};

use crate::service::problem::io_cause;
use crate::words::with_causes;

/// An allocation that takes longer keeps its callers waiting for too long.
const OVERDUE: Duration = Duration::from_secs(2);

/// What is remembered of a tag that is not open, and of tags that could not be opened.
const KEPT: Duration = Duration::from_secs(5);

/// While tags cannot be opened, one request in this time tries it.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// More failing tags than this say no more.
const TAGS_MAX: usize = 10_000;

/// The last bucket of durations begins at some hours.
const BUCKETS: usize = 140;

/// The requests to one store.
#[derive(Default)]
pub(crate) struct StoreWatch {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Allocations that were not answered, by a number of their own.
    under_way: HashMap<u64, (String, Instant)>,
    next: u64,
    failing: HashMap<String, Failure>,
    /// Why a tag could not be looked up or created last; none after one could.
    opening: Option<Failure>,
    /// When a request was last let try that.
    tried: Option<Instant>,
    /// When the store last granted something.
    granted: Option<Instant>,
    /// How long allocations took, and when asked for nothing but an answer, the store.
    times: RequestTimes,
}

/// How long requests to the store took since that was last taken: of fixed size, whatever there is.
#[derive(Clone, Debug)]
pub(crate) struct RequestTimes {
    /// Allocations that succeeded, by microseconds: four buckets for each doubling.
    buckets: [u32; BUCKETS],
    /// How many of them there were.
    pub(crate) granted: u64,
    /// How many failed.
    pub(crate) failed: u64,
    /// The longest that succeeded.
    pub(crate) longest: Duration,
    /// How long the store took to say that it is there, if it was asked and did.
    pub(crate) probe: Option<Duration>,
}

impl Default for RequestTimes {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], granted: 0, failed: 0, longest: Duration::ZERO, probe: None }
    }
}

impl RequestTimes {
    fn add(&mut self, took: Duration) {
        let microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let exponent = microseconds.ilog2();
        let quarter = (microseconds << 2 >> exponent) & 3;
        let bucket = usize::try_from(u64::from(exponent) * 4 + quarter).unwrap_or(BUCKETS).min(BUCKETS - 1);
        if let Some(count) = self.buckets.get_mut(bucket) {
            *count = count.saturating_add(1);
        }
        self.granted += 1;
        self.longest = self.longest.max(took);
    }

    /// The median of those that succeeded, to an eighth; none without any.
    pub(crate) fn median(&self) -> Option<Duration> {
        let mut below = 0;
        let bucket = self.buckets.iter().position(|count| {
            below += u64::from(*count);
            below > 0 && below * 2 >= self.granted
        })?;
        let bucket = u64::try_from(bucket).ok()?;
        // The middle of the bucket.
        let microseconds = (9 + 2 * (bucket % 4)) << (bucket / 4) >> 3;
        Some(Duration::from_micros(microseconds.max(1)).min(self.longest))
    }
}

/// What the store does not do.
#[derive(Debug)]
pub(crate) struct Failures {
    /// The names of the tags and sub-keys that it grants nothing, and why.
    pub(crate) tags: Vec<(String, Arc<StoreError>)>,
    /// Whether these are all.
    pub(crate) is_all: bool,
    /// Why none is opened.
    pub(crate) opening: Option<Arc<StoreError>>,
    /// What has failed longest, of tags and of opening them.
    pub(crate) longest: Option<Failure>,
}

/// Since when it fails, and what was said last.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) since: Instant,
    pub(crate) since_ms: u64,
    last: Instant,
    pub(crate) error: Arc<StoreError>,
}

impl Failure {
    fn new(error: StoreError, since: Instant) -> Self {
        let ago_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(0);
        let since_ms = SystemClock.now_ms().saturating_sub(ago_ms);
        Self { since, since_ms, last: Instant::now(), error: Arc::new(error) }
    }

    fn goes_on(before: Option<Self>, error: StoreError) -> Self {
        let now = Self::new(error, Instant::now());
        match before {
            Some(before) => Self { since: before.since, since_ms: before.since_ms, ..now },
            None => now,
        }
    }
}

/// The error again, as far as anybody needs it; none if it says nothing of the store.
fn fault(error: &StoreError) -> Option<StoreError> {
    let what = || {
        let said = with_causes(error);
        // Which it is again says so again.
        let bare =
            ["the store is unavailable: ", "the store refused: "].iter().find_map(|word| said.strip_prefix(word));
        bare.map(str::to_owned).unwrap_or(said)
    };
    match error {
        StoreError::Unavailable { .. } | StoreError::OutcomeUnknown { .. } | StoreError::CeilingReached { .. } => {
            let again = StoreError::unavailable(what());
            Some(match io_cause(error) {
                Some(kind) => again.with_source(io::Error::from(kind)),
                None => again,
            })
        }
        StoreError::Corrupt { .. } => Some(StoreError::corrupt(what())),
        StoreError::Refused { .. } | StoreError::PlaceChanged { .. } => Some(StoreError::refused(what())),
        _ => None,
    }
}

impl StoreWatch {
    fn lock(&self) -> MutexGuard<'_, State> {
        // It is whole after every statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why an allocation for this tag would fail, as far as is known.
    pub(crate) fn failure_of(&self, tag: &str) -> Option<Arc<StoreError>> {
        let state = self.lock();
        if let Some(failure) = state.failing.get(tag) {
            return Some(Arc::clone(&failure.error));
        }
        let is_overdue = state.under_way.values().any(|(other, since)| other == tag && since.elapsed() >= OVERDUE);
        is_overdue.then(|| Arc::new(overdue_error()))
    }

    /// Why tags cannot be opened, to all but one request in a second, which tries it.
    pub(crate) fn refuses_to_open(&self) -> Option<Arc<StoreError>> {
        let mut state = self.lock();
        let error = state.opening_fails().map(|failure| Arc::clone(&failure.error))?;
        if state.tried.is_none_or(|tried| tried.elapsed() >= TRY_AGAIN) {
            state.tried = Some(Instant::now());
            return None;
        }
        Some(error)
    }

    /// What fails now, and why.
    pub(crate) fn failures(&self) -> Failures {
        let state = self.lock();
        let overdue = state.overdue();
        let failing = || state.failing.iter().chain(overdue.iter().map(|(tag, failure)| (tag, failure)));
        let opening = state.opening_fails();
        let longest = failing().map(|(_, failure)| failure).chain(opening).min_by_key(|failure| failure.since);
        let tags = failing().map(|(tag, failure)| (tag.clone(), Arc::clone(&failure.error)));
        let tags: Vec<_> = tags.take(TAGS_MAX).collect();
        let is_all = tags.len() < TAGS_MAX;
        let opening = opening.map(|failure| Arc::clone(&failure.error));
        Failures { tags, is_all, opening, longest: longest.cloned() }
    }

    /// Whether a tag could not be opened lately for a reason that does not pass by itself: it may be the tag's.
    pub(crate) fn was_refused(&self) -> bool {
        self.lock().opening.as_ref().is_some_and(|failure| !failure.error.is_retryable())
    }

    /// Whether the store has granted something since then.
    pub(crate) fn has_granted_since(&self, then: Instant) -> bool {
        self.lock().granted.is_some_and(|granted| granted > then)
    }

    /// Forgets what is over: what could not be opened lately, and tags that nobody has open.
    pub(crate) fn forget(&self, is_open: impl Fn(&str) -> bool) {
        let mut state = self.lock();
        if state.opening.as_ref().is_some_and(|failure| failure.last.elapsed() >= KEPT) {
            state.opening = None;
        }
        state.failing.retain(|tag, failure| failure.last.elapsed() < KEPT || is_open(tag));
    }

    /// The store said within this time that it is there.
    pub(crate) fn probed(&self, took: Duration) {
        self.lock().times.probe = Some(took);
    }

    /// How long requests took since this was last asked.
    pub(crate) fn take_times(&self) -> RequestTimes {
        std::mem::take(&mut self.lock().times)
    }

    fn opened<T>(&self, answer: &Result<T, StoreError>) {
        let mut state = self.lock();
        match answer {
            Ok(_) => state.opening = None,
            Err(error) => {
                if let Some(error) = fault(error) {
                    state.tried = Some(Instant::now());
                    state.opening = Some(Failure::goes_on(state.opening.take(), error));
                }
            }
        }
    }
}

impl State {
    /// Why nothing can be opened. What does not pass by itself may be the tag's own.
    fn opening_fails(&self) -> Option<&Failure> {
        self.opening.as_ref().filter(|failure| failure.error.is_retryable())
    }

    fn overdue(&self) -> Vec<(String, Failure)> {
        let overdue = self.under_way.values().filter(|(_, since)| since.elapsed() >= OVERDUE);
        overdue.map(|(tag, since)| (tag.clone(), Failure::new(overdue_error(), *since))).collect()
    }
}

fn overdue_error() -> StoreError {
    let what = format!("a request for numbers has not been answered for {} s", OVERDUE.as_secs());
    StoreError::unavailable(what)
}

/// An allocation under way. One that is given up has failed.
struct Allocation<'a> {
    watch: &'a StoreWatch,
    number: u64,
    tag: &'a str,
    error: Option<StoreError>,
}

impl<'a> Allocation<'a> {
    fn begin(watch: &'a StoreWatch, tag: &'a str) -> Self {
        let mut state = watch.lock();
        let number = state.next;
        state.next += 1;
        state.under_way.insert(number, (tag.to_owned(), Instant::now()));
        Self { watch, number, tag, error: Some(overdue_error()) }
    }

    fn end(mut self, answer: &Result<Segment, StoreError>) {
        self.error = answer.as_ref().err().and_then(fault);
        if answer.is_ok() {
            let mut state = self.watch.lock();
            let now = Instant::now();
            state.granted = Some(now);
            state.failing.remove(self.tag);
            if let Some((_, began)) = state.under_way.get(&self.number) {
                let took = now.duration_since(*began);
                state.times.add(took);
            }
        }
    }
}

impl Drop for Allocation<'_> {
    fn drop(&mut self) {
        let mut state = self.watch.lock();
        let Some((_, began)) = state.under_way.remove(&self.number) else { return };
        let Some(error) = self.error.take() else { return };
        state.times.failed += 1;
        let failure = match state.failing.remove(self.tag) {
            Some(before) => Failure::goes_on(Some(before), error),
            None => Failure::new(error, began),
        };
        if state.failing.len() < TAGS_MAX {
            state.failing.insert(self.tag.to_owned(), failure);
        }
    }
}

/// A store whose requests are watched.
pub(crate) struct WatchedStore {
    inner: Arc<dyn SegmentStore>,
    watch: Arc<StoreWatch>,
}

impl WatchedStore {
    /// In front of this store.
    pub(crate) fn new(inner: Arc<dyn SegmentStore>, watch: Arc<StoreWatch>) -> Self {
        Self { inner, watch }
    }
}

#[async_trait]
impl SegmentLayer for WatchedStore {
    fn below(&self) -> Option<&dyn SegmentStore> {
        Some(&*self.inner)
    }

    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        let allocation = Allocation::begin(&self.watch, tag);
        let answer = self.inner.allocate(tag, count, at_least).await;
        allocation.end(&answer);
        answer
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        let answer = self.inner.open_tag(tag).await;
        self.watch.opened(&answer);
        answer
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        let answer = self.inner.tag(tag).await;
        self.watch.opened(&answer);
        answer
    }

    /// It comes before a tag is opened.
    async fn bind_format(
        &self,
        owner: FormatOwner<'_>,
        part: FormatPart,
        binding: FormatBinding,
    ) -> Result<Option<u64>, StoreError> {
        let answer = self.inner.bind_format(owner, part, binding).await;
        self.watch.opened(&answer);
        answer
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        let joined = self.inner.join_stripe(stripe).await?;
        Ok(joined.behind(|store| Self::new(store, Arc::clone(&self.watch))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_right_to_an_eighth() {
        let mut times = RequestTimes::default();
        assert_eq!(times.median(), None);
        for microseconds in [1_u32, 2, 3, 7, 100, 4_321, 700_000, 90_000_000] {
            let mut one = RequestTimes::default();
            one.add(Duration::from_micros(microseconds.into()));
            let median = one.median().unwrap().as_secs_f64() * 1e6;
            let expected = f64::from(microseconds);
            assert!((median - expected).abs() <= (expected / 8.0).max(1.0), "{microseconds}: {median}");
            times.add(Duration::from_micros(microseconds.into()));
        }
        assert_eq!((times.granted, times.longest), (8, Duration::from_secs(90)));
        let median = times.median().unwrap();
        assert!((6..=8).contains(&median.as_micros()), "{median:?}");
        times.add(Duration::ZERO);
        times.add(Duration::MAX);
        assert!(times.median().is_some());
    }
}
