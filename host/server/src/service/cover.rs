//! For how long ids last without the store: how quickly each tag is used, and what is left of it.
//!
//! A tag's *use rate* is what was handed out in the last five to ten seconds, per second; its *cover* is what is left
//! of its numbers at that rate. Both come from figures that the library keeps beside the component, so looking at
//! hundreds of thousands of tags calls nothing.
//!
//! While the store is down a rate does not fall: a tag whose numbers are used up hands out nothing, and is no less in
//! use. Ordered tags have no cover at all: each of their ids is a request to the store.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use unalike::{Clock, Ids, Mode, Sequence, SystemClock, WeakSequence};

/// How far apart the samples lie between which use is counted.
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_secs(5);

/// A process that has just started is not taken to be in a hurry.
const WINDOW_MIN_SECONDS: f64 = 1.0;

/// The open tags of a process, watched.
pub(crate) struct Covers {
    watched: Mutex<Watched>,
}

struct Watched {
    /// In the order in which they were opened.
    tags: Vec<WatchedTag>,
    /// As which number the next one will have been opened.
    known: u64,
    /// When the newest sample was taken, and the one before.
    newest: Instant,
    before: Instant,
    down: Option<Down>,
}

struct WatchedTag {
    sequence: WeakSequence,
    /// What had been handed out at these samples.
    newest: u64,
    before: u64,
    /// The greatest rate since the store went down, else 0.
    rate_held: f64,
}

/// Since when the store is down.
#[derive(Clone, Copy, Debug)]
struct Down {
    since: Instant,
    since_ms: u64,
}

/// The figures of one tag.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    pub(crate) sequence: Sequence,
    /// Ids that were handed out.
    pub(crate) issued: u64,
    /// Numbers that are left.
    pub(crate) left: u64,
    /// Ids per second.
    pub(crate) rate: f64,
}

impl Figures {
    /// For how many seconds what is left lasts; infinite without use. None for an ordered tag.
    pub(crate) fn cover_seconds(&self) -> Option<f64> {
        if self.sequence.mode() == Mode::Ordered {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
        let left = self.left as f64;
        Some(if self.rate == 0.0 { f64::INFINITY } else { left / self.rate })
    }

    /// Whether ids of it are asked for and there are none without the store.
    pub(crate) fn is_uncovered(&self) -> bool {
        self.rate > 0.0 && self.left == 0
    }
}

/// The figures of a tag with its sub-keys, or of several tags together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TagFigures {
    pub(crate) open: u64,
    pub(crate) issued: u64,
    pub(crate) waits: u64,
    pub(crate) left: u64,
    pub(crate) rate: f64,
    /// The least of their covers; none for ordered tags.
    pub(crate) cover_seconds: Option<f64>,
}

impl TagFigures {
    /// Adds those of a tag, or of one of its sub-keys.
    pub(crate) fn add(&mut self, tag: &Figures) {
        self.open += 1;
        self.issued += tag.issued;
        self.waits += tag.sequence.waits();
        self.left += tag.left;
        self.rate += tag.rate;
        self.cover_seconds = match (self.cover_seconds, tag.cover_seconds()) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
}

/// How ids last while the store is down.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outage {
    /// Since when it is down, in Unix milliseconds.
    pub(crate) since_ms: u64,
    /// Whether there are tags with numbers left.
    has_numbers: bool,
    /// Whether there are tags in use that have none.
    has_uncovered: bool,
    /// The tag in use that has the least cover, and for how many seconds; none when none is in use.
    pub(crate) least: Option<(String, f64)>,
}

impl Outage {
    /// Whether something is handed out still, and all that is used: tags by their numbers, and snowflakes if there are
    /// some in use.
    pub(crate) fn is_covered(&self, uses_snowflakes: bool) -> bool {
        (self.has_numbers || uses_snowflakes) && !self.has_uncovered
    }
}

impl Covers {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { watched: Mutex::new(Watched { tags: Vec::new(), known: 0, newest: now, before: now, down: None }) }
    }

    /// Takes a sample, if the last one is old enough.
    pub(crate) fn sample(&self, ids: &Ids) {
        self.lock().sample(ids, Instant::now());
    }

    /// Looks at each tag.
    pub(crate) fn each(&self, ids: &Ids, mut look: impl FnMut(Figures)) {
        let mut watched = self.lock();
        watched.add_new(ids);
        let now = Instant::now();
        watched.figures(now).for_each(&mut look);
    }

    /// The store answered: what it was down for, if it was down.
    pub(crate) fn store_is_up(&self) -> Option<Duration> {
        let mut watched = self.lock();
        let down = watched.down.take()?;
        watched.tags.iter_mut().for_each(|tag| tag.rate_held = 0.0);
        Some(down.since.elapsed())
    }

    /// The store does not do what is asked of it, `since` then, or now; callers of the tags `waiting` wait for it.
    /// Gives how tags last, and whether it is news that it is down.
    pub(crate) fn store_is_down(
        &self,
        ids: &Ids,
        since: Option<(Instant, u64)>,
        waiting: &[Sequence],
    ) -> (Outage, bool) {
        let mut watched = self.lock();
        let is_news = watched.down.is_none();
        let down = *watched.down.get_or_insert_with(|| {
            let (since, since_ms) = since.unwrap_or_else(|| (Instant::now(), SystemClock.now_ms()));
            Down { since, since_ms }
        });
        watched.add_new(ids);
        let now = Instant::now();
        watched.hold(now);
        let mut outage = watched.outage(now, down);
        if let Some(dry) = waiting.iter().find(|sequence| sequence.supply().left == 0) {
            outage.has_uncovered = true;
            outage.least = Some((dry.tag().to_owned(), 0.0));
        }
        (outage, is_news)
    }

    /// Whether the store is known not to do what is asked of it.
    pub(crate) fn is_down(&self) -> bool {
        self.lock().down.is_some()
    }

    /// For how many seconds the store has been down, 0 while it is not.
    pub(crate) fn down_seconds(&self) -> f64 {
        self.lock().down.map_or(0.0, |down| down.since.elapsed().as_secs_f64())
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        // It is whole after every statement.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    fn add_new(&mut self, ids: &Ids) {
        let opened = ids.sequences_from(self.known);
        self.known = opened.last().map_or(self.known, |last| last.opened_as() + 1);
        self.tags.extend(opened.into_iter().map(|sequence| WatchedTag {
            sequence: sequence.downgrade(),
            newest: 0,
            before: 0,
            rate_held: 0.0,
        }));
    }

    fn sample(&mut self, ids: &Ids, now: Instant) {
        self.add_new(ids);
        if now.duration_since(self.newest) < SAMPLE_EVERY {
            return;
        }
        if self.down.is_some() {
            self.hold(now);
        }
        self.tags.retain_mut(|tag| {
            let Some(sequence) = tag.sequence.upgrade() else { return false };
            tag.before = std::mem::replace(&mut tag.newest, sequence.supply().issued);
            true
        });
        self.before = std::mem::replace(&mut self.newest, now);
    }

    /// Keeps rates from falling.
    fn hold(&mut self, now: Instant) {
        let seconds = self.window_seconds(now);
        for tag in &mut self.tags {
            if let Some(sequence) = tag.sequence.upgrade() {
                tag.rate_held = tag.rate(sequence.supply().issued, seconds);
            }
        }
    }

    fn window_seconds(&self, now: Instant) -> f64 {
        now.duration_since(self.before).as_secs_f64().max(WINDOW_MIN_SECONDS)
    }

    fn figures(&self, now: Instant) -> impl Iterator<Item = Figures> {
        let seconds = self.window_seconds(now);
        self.tags.iter().filter_map(move |tag| {
            let sequence = tag.sequence.upgrade()?;
            let supply = sequence.supply();
            let rate = tag.rate(supply.issued, seconds);
            Some(Figures { sequence, issued: supply.issued, left: supply.left, rate })
        })
    }

    fn outage(&self, now: Instant, down: Down) -> Outage {
        let (mut has_numbers, mut has_uncovered) = (false, false);
        let mut least: Option<(Sequence, f64)> = None;
        for tag in self.figures(now) {
            has_numbers |= tag.left > 0;
            has_uncovered |= tag.is_uncovered();
            let cover = tag.cover_seconds().unwrap_or(0.0);
            if tag.rate > 0.0 && least.as_ref().is_none_or(|(_, known)| cover < *known) {
                least = Some((tag.sequence, cover));
            }
        }
        Outage {
            since_ms: down.since_ms,
            has_numbers,
            has_uncovered,
            least: least.map(|(sequence, cover)| (sequence.tag().to_owned(), cover)),
        }
    }
}

impl WatchedTag {
    fn rate(&self, issued: u64, seconds: f64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
        let used = issued.saturating_sub(self.before) as f64;
        (used / seconds).max(self.rate_held)
    }
}
