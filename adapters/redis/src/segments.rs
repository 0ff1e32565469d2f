//! Segments out of the intervals that a durable store grants to Redis.
//!
//! A request is one call of `allocate.lua`. When that has nothing to give, because the hash is missing, belongs to
//! another incarnation, or is spent, one client raises the ceiling: it claims the tag, looks at its generation, takes
//! an interval from the durable store, and installs it under that generation, once. Whatever comes of the installation
//! but success, the interval is burnt. A background task of each host looks at the use of the tags it serves and raises
//! their ceilings before they are reached.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use unalike_storage::{
    Ceiling, FormatBinding, FormatOwner, FormatPart, RefillPolicy, Segment, SegmentStore, StepPolicy, StoreError,
    TagOptions, TagRecord, TailRelease, is_kept, validate_allocate, validate_tag,
};

use crate::RedisOptions;
use crate::alone::refuse_initialised;
use crate::error::not_durable;
use crate::growth::{Bounds, Demand, NUMBERS_MAX, uses};
use crate::raising::{ASK_AGAIN, DURABLE, HashKey, Kind, Raise, Raising, Turns, lock, nonce};
use crate::server::{Access, Reply, Script, Server, script};

/// What all of them begin with.
const TAG: &str = include_str!("scripts/tag.lua");

static ALLOCATE: Script = Script::new(|| script(&[TAG, include_str!("scripts/allocate.lua")]));
static LOOK: Script = Script::new(|| script(&[TAG, include_str!("scripts/look.lua")]));
static INSTALL: Script = Script::new(|| script(&[TAG, DURABLE, include_str!("scripts/install.lua")]));
static SKIP: Script = Script::new(|| script(&[TAG, include_str!("scripts/skip.lua")]));
static RELEASE: Script = Script::new(|| script(&[TAG, include_str!("scripts/release.lua")]));

/// What a new hash has beside its generation and its first claim.
const NEW: [(&str, &str); 13] = [
    ("incarnation", ""),
    ("end", "0"),
    ("left", "0"),
    ("next_end", ""),
    ("next_left", "0"),
    ("durable_version", "0"),
    ("version_base", "0"),
    ("given", "0"),
    ("raised_by", "0"),
    ("raised_ms", "0"),
    ("low", "0"),
    ("samples", ""),
    ("sampled_ms", "0"),
];

/// How old the newest note of a tag's use gets.
const SAMPLE_MS: u64 = 60 * 1_000;

/// A tag that nobody uses is looked after half as often each time, down to once in so many rounds.
const ROUNDS_MAX: u32 = 6;

/// A tag that nobody asked for this long is no longer looked after.
const IDLE: Duration = Duration::from_secs(60 * 60);

/// Known tags that get their numbers at the start: the first so many by name.
const PREHEATED_MAX: u32 = 1_000;

/// Several clients may change a tag at once; one that never gets its turn gives up.
const ATTEMPTS_MAX: u32 = 100;

/// Clones share everything.
#[derive(Clone)]
pub(crate) struct Segments(Arc<Inner>);

struct Inner {
    server: Server,
    durable: Arc<dyn SegmentStore>,
    prefix: String,
    bounds: Bounds,
    raising: Raising,
    tags: Mutex<HashMap<String, Arc<Tag>>>,
    keeper: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

/// What this client knows of a tag that it uses.
struct Tag {
    turns: Turns,
    state: Mutex<TagState>,
}

struct TagState {
    /// When it was asked for last.
    asked: Instant,
    /// The newest grant, as long as its tail can be given back.
    newest: Option<Newest>,
    rounds: Rounds,
}

/// In which rounds a tag is looked after.
#[derive(Debug)]
struct Rounds {
    /// In every so manieth one.
    every: u32,
    /// How many there are to the next look.
    left: u32,
    /// How much of the tag was used at the last look, by all hosts.
    used: u64,
}

impl Default for Rounds {
    fn default() -> Self {
        Self { every: 1, left: 1, used: 0 }
    }
}

impl Rounds {
    /// Whether the round that begins looks after the tag.
    fn is_due(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    /// It was looked at, and is all right or not.
    fn looked(&mut self, used: u64, is_low: bool) {
        self.every = if used == self.used && !is_low { (self.every * 2).min(ROUNDS_MAX) } else { 1 };
        self.left = self.every;
        self.used = used;
    }
}

struct Newest {
    start: u64,
    end: u64,
    /// As the caller knows it.
    version: u64,
    generation: String,
    /// As Redis knows it.
    redis_version: String,
}

/// What `allocate.lua` granted, and the intervals it took it from.
struct Grant {
    segment: Segment,
    generation: String,
    redis_version: String,
    ends: Ends,
    /// Of both.
    left: u64,
    low: u64,
}

/// Behind the last number of the first interval, and behind the last one of all.
#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u64,
    all: u64,
}

/// What `look.lua` sees.
struct TagView {
    generation: String,
    incarnation: String,
    /// The numbers belong to this incarnation.
    is_valid: bool,
    ends: Ends,
    left: u64,
    next_left: u64,
    demand: Demand,
    low: u64,
    used: u64,
    used_recently: u64,
    used_long_term: u64,
}

impl TagView {
    /// How many numbers Redis may still hand out.
    fn held(&self) -> u64 {
        if self.is_valid { self.left + self.next_left } else { 0 }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // It would find out by itself, but only when it looks next.
        if let Some(keeper) = lock(&self.keeper).take() {
            keeper.abort();
        }
    }
}

/// Why more numbers are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// A request for so many found none, and takes none below `at_least`.
    Nothing { count: u64, at_least: u64 },
    /// They will not last.
    Low,
}

impl fmt::Debug for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segments").field("server", &self.0.server.address()).finish_non_exhaustive()
    }
}

impl Segments {
    /// Starts to look after the tags in the background.
    ///
    /// # Errors
    /// As [`Raising::recognise`]; [`StoreError::Unavailable`] when the system gives no random numbers.
    pub(crate) async fn open(
        server: Server,
        durable: Arc<dyn SegmentStore>,
        options: &RedisOptions,
    ) -> Result<Self, StoreError> {
        let raising = Raising::new(server.clone(), Arc::clone(&durable), options, Kind::Sequences, &NEW)?;
        // Before anything is written, and once it is written who grants the numbers.
        refuse_initialised(&server, options).await?;
        raising.recognise().await?;
        refuse_initialised(&server, options).await?;
        let segments = Self(Arc::new(Inner {
            raising,
            server,
            durable,
            prefix: options.prefix.clone(),
            bounds: Bounds { min: options.raise_min, max: options.raise_max },
            tags: Mutex::default(),
            keeper: Mutex::default(),
        }));
        let keeper = tokio::spawn(keep(Arc::downgrade(&segments.0), options.keep_every, options.preheat));
        *lock(&segments.0.keeper) = Some(keeper);
        Ok(segments)
    }
}

impl Inner {
    /// In braces, so that all that may ever belong to a tag lies on one node.
    fn key(&self, tag: &str) -> String {
        format!("{}:{{{tag}}}", self.prefix)
    }

    fn tag(&self, tag: &str) -> Arc<Tag> {
        let mut tags = lock(&self.tags);
        if let Some(known) = tags.get(tag) {
            let mut state = lock(&known.state);
            state.asked = Instant::now();
            state.rounds.left = 1;
            return Arc::clone(known);
        }
        let new = Arc::new(Tag {
            turns: Turns::default(),
            state: Mutex::new(TagState { asked: Instant::now(), newest: None, rounds: Rounds::default() }),
        });
        tags.insert(tag.to_owned(), Arc::clone(&new));
        new
    }

    async fn script(
        &self,
        doing: &str,
        access: Access,
        script: &Script,
        tag: &str,
        arguments: &[&str],
    ) -> Result<Reply, StoreError> {
        let key = self.key(tag);
        self.server.script(&format!("{doing} {tag:?}, the key {key}"), access, script, &key, arguments).await
    }

    /// One call; none when there is nothing to grant.
    async fn grant(&self, tag: &str, count: u64) -> Result<Option<Grant>, StoreError> {
        let count = count.min(NUMBERS_MAX).to_string();
        let mut reply = self.script("granting numbers of", Access::Writes, &ALLOCATE, tag, &[&count]).await?;
        if reply.text()? != "granted" {
            return Ok(None);
        }
        let generation = reply.text()?;
        let end = reply.number()?;
        let (left, count) = (reply.number()?, reply.number()?);
        let next_end = reply.number_or_none()?;
        let next_left = reply.number()?;
        let redis_version = reply.text()?;
        let durable_version = reply.number()?;
        let low = reply.number()?;
        let start = end.checked_sub(left).filter(|_| (1..=left).contains(&count));
        let Some(start) = start else { return Err(reply.damaged("its numbers make no interval")) };
        let version = redis_version.parse::<u64>().ok().and_then(|version| version.checked_add(durable_version));
        let Some(version) = version else { return Err(reply.damaged("its version is not a number")) };
        let segment = Segment { start, end: start + count, stride: 1, generation: 0, version };
        if segment.validate().is_err() {
            return Err(reply.damaged("its numbers are out of range"));
        }
        let ends = Ends { first: end, all: next_end.unwrap_or(end) };
        Ok(Some(Grant { segment, generation, redis_version, ends, left: left - count + next_left, low }))
    }

    async fn look(&self, tag: &str, sample_ms: Option<u64>) -> Result<Option<TagView>, StoreError> {
        let sample_ms = sample_ms.map_or_else(String::new, |sample_ms| sample_ms.to_string());
        let mut reply = self.script("looking at", Access::Reads, &LOOK, tag, &[&sample_ms]).await?;
        if reply.text()? == "missing" {
            return Ok(None);
        }
        let (generation, incarnation) = (reply.text()?, reply.text()?);
        let is_valid = reply.text()? == "1";
        let first_end = reply.number()?;
        let left = reply.number()?;
        let next_end = reply.number_or_none()?;
        let next_left = reply.number()?;
        let used = reply.number()?;
        let (raised_by, raised_ms, low) = (reply.number()?, reply.number()?, reply.number()?);
        let samples = reply.text()?;
        let now_ms = reply.number()?;
        let (recently, long_term) = uses(&samples, now_ms, used);
        // What was lost says nothing of how long it would have lasted.
        let raised_ago_ms = if is_valid { now_ms.saturating_sub(raised_ms) } else { u64::MAX };
        Ok(Some(TagView {
            generation,
            incarnation,
            is_valid,
            ends: Ends { first: first_end, all: next_end.unwrap_or(first_end) },
            left,
            next_left,
            demand: Demand { recently, long_term, raised_by, raised_ago_ms },
            low,
            used,
            used_recently: recently.numbers,
            used_long_term: long_term.numbers,
        }))
    }

    /// Raises the ceiling in the background, if nobody here is at it.
    fn raise_soon(self: &Arc<Self>, tag: &str, known: &Arc<Tag>) {
        self.raising.soon(tag, &known.turns, Arc::clone(self).raise(tag.to_owned(), Arc::clone(known), Reason::Low));
    }

    /// Gets more numbers for a tag, if nobody else does and they are due.
    async fn raise(self: Arc<Self>, tag: String, known: Arc<Tag>, reason: Reason) -> Result<Raise, StoreError> {
        let key = self.key(&tag);
        let place = HashKey { tag: &tag, owner: &tag, key: &key };
        self.raising.claimed(place, &known.turns, self.raise_claimed(place, reason)).await
    }

    async fn raise_claimed(&self, place: HashKey<'_>, reason: Reason) -> Result<Raise, StoreError> {
        let tag = place.tag;
        let Some(view) = self.look(tag, Some(SAMPLE_MS)).await? else {
            return Ok(Raise::Elsewhere(ASK_AGAIN));
        };
        let held = view.held();
        let (is_due, wanted, at_least) = match reason {
            Reason::Nothing { count, at_least } => (held == 0, count, at_least),
            Reason::Low => (held < view.demand.low(), 0, 0),
        };
        if !is_due {
            self.raising.settle(place, Some(view.demand.low())).await?;
            return Ok(Raise::Done);
        }
        let granted_until = self.raising.granted_until(place, tag).await?;
        check_not_behind(tag, granted_until, view.ends.all)?;
        let has_next = view.is_valid && view.next_left > 0;
        if reason == Reason::Low && has_next && granted_until != view.ends.all {
            // Numbers in between were burnt, or are another's: a third interval has no room, and would be burnt, too.
            self.raising.settle(place, Some(0)).await?;
            return Ok(Raise::Done);
        }
        let count = view.demand.raise_by(held, wanted, self.bounds);
        let granted = self.raising.grant(place, tag, count, at_least).await?;
        check_not_behind(tag, granted.start, view.ends.all)?;
        let low = view.demand.raised(granted.count()).low();
        let read = (view.generation.as_str(), view.incarnation.as_str());
        let more = [granted.count(), granted.version, low].map(|number| number.to_string());
        self.raising.install(place, &INSTALL, read, &granted, &more.each_ref().map(String::as_str)).await
    }

    /// Sees to it that nothing below `next` is granted any more, and nothing that was on its way is installed.
    async fn skip(&self, tag: &str, next: u64) -> Result<(), StoreError> {
        for _ in 0..ATTEMPTS_MAX {
            let Some(view) = self.look(tag, None).await? else { return Ok(()) };
            if self.leave(tag, &view.generation, view.ends, next).await? {
                return Ok(());
            }
        }
        Err(StoreError::unavailable(format!("the tag {tag:?} changes all the time")))
    }

    /// Leaves no numbers below `next` of the intervals that end there, if the tag is of this generation.
    async fn leave(&self, tag: &str, generation: &str, ends: Ends, next: u64) -> Result<bool, StoreError> {
        let left = |end: u64| end.saturating_sub(next).min(NUMBERS_MAX).to_string();
        let arguments = [generation, &left(ends.first), &left(ends.all), &nonce()?];
        let mut reply = self.script("skipping numbers of", Access::Writes, &SKIP, tag, &arguments).await?;
        Ok(reply.text()? != "changed")
    }

    /// Looks at the use of a tag, and raises its ceiling if it is near.
    async fn look_after(self: &Arc<Self>, tag: &str, known: &Arc<Tag>) -> Result<(), StoreError> {
        let Some(view) = self.look(tag, Some(SAMPLE_MS)).await? else { return Ok(()) };
        let low = view.demand.low();
        lock(&known.state).rounds.looked(view.used, view.held() < low);
        if view.held() < low {
            self.raise_soon(tag, known);
        } else if low.abs_diff(view.low) > view.low / 10 {
            let key = self.key(tag);
            self.raising.note_low(HashKey { tag, owner: tag, key: &key }, low).await?;
        }
        Ok(())
    }

    /// Gives Redis the numbers of tags that were used before and that it does not know, or no longer.
    async fn preheat(self: &Arc<Self>) -> Result<(), StoreError> {
        for record in self.durable.tags(None, PREHEATED_MAX).await? {
            let was_used = record.watermark >= record.options.start;
            // The time of leases and clocks is granted a part at a time: what Redis got of it here would be lost.
            if was_used
                && !is_kept(&record.tag)
                && let Err(error) = self.preheat_tag(&record.tag).await
            {
                if error.is_retryable() {
                    return Err(error);
                }
                // What is wrong with one tag is nothing to the others.
                let tag = record.tag;
                tracing::debug!(tag, error = &error as &dyn std::error::Error, "a tag got no numbers beforehand");
            }
        }
        Ok(())
    }

    async fn preheat_tag(self: &Arc<Self>, tag: &str) -> Result<(), StoreError> {
        if self.look(tag, None).await?.is_none_or(|view| view.held() == 0) {
            let known = self.tag(tag);
            let _turn = known.turns.take().await;
            Arc::clone(self)
                .raise(tag.to_owned(), Arc::clone(&known), Reason::Nothing { count: 0, at_least: 0 })
                .await?;
        }
        Ok(())
    }
}

/// Refuses a durable store that would grant numbers from `next` on, where Redis had all up to `end` from it.
fn check_not_behind(tag: &str, next: u64, end: u64) -> Result<(), StoreError> {
    if next >= end {
        return Ok(());
    }
    let (granted, last) = (next.saturating_sub(1), end - 1);
    Err(StoreError::corrupt(format!(
        "the durable store has granted {tag:?} up to {granted}, and Redis had it up to {last} before: it lost data, or is another \
         store; find out which, and raise the tag there above {last}"
    )))
}

/// Looks after the tags that are in use, until nobody has the store any more. Any number of hosts may do so at once.
async fn keep(store: Weak<Inner>, every: Duration, preheat: bool) {
    if preheat
        && let Some(inner) = store.upgrade()
        && let Err(error) = inner.preheat().await
    {
        tracing::warn!(error = &error as &dyn std::error::Error, "not all tags got their numbers beforehand");
    }
    loop {
        tokio::time::sleep(every).await;
        let Some(inner) = store.upgrade() else { return };
        let tags: Vec<(String, Arc<Tag>)> = {
            let mut tags = lock(&inner.tags);
            tags.retain(|_, known| Arc::strong_count(known) > 1 || lock(&known.state).asked.elapsed() < IDLE);
            let due = tags.iter().filter(|(_, known)| lock(&known.state).rounds.is_due());
            due.map(|(tag, known)| (tag.clone(), Arc::clone(known))).collect()
        };
        for (tag, known) in tags {
            if let Err(error) = inner.look_after(&tag, &known).await {
                tracing::debug!(tag, error = &error as &dyn std::error::Error, "a tag was not looked after");
                if error.is_retryable() {
                    // The server is asked again in a while.
                    break;
                }
            }
        }
    }
}

#[async_trait]
impl SegmentStore for Segments {
    async fn leave_leases(&self, _: &str) -> Result<(), StoreError> {
        Err(not_durable())
    }

    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        validate_allocate(tag, count, at_least)?;
        let inner = &self.0;
        let known = inner.tag(tag);
        let deadline = inner.raising.deadline();
        loop {
            let raised = known.turns.raised();
            let Some(grant) = inner.grant(tag, count).await? else {
                let raise =
                    Arc::clone(inner).raise(tag.to_owned(), Arc::clone(&known), Reason::Nothing { count, at_least });
                let more = inner.raising.wait(tag, &known.turns, raised, deadline, raise).await;
                if more.as_ref().is_err_and(StoreError::is_callers_fault) {
                    // There is no such tag: it is not looked after.
                    lock(&inner.tags).remove(tag);
                }
                more?;
                continue;
            };
            if grant.left < grant.low {
                inner.raise_soon(tag, &known);
            }
            let mut segment = grant.segment;
            if segment.end <= at_least {
                // All of it lies below, and so does what would come next.
                inner.leave(tag, &grant.generation, grant.ends, at_least).await?;
                continue;
            }
            segment.start = segment.start.max(at_least);
            lock(&known.state).newest = Some(Newest {
                start: segment.start,
                end: segment.end,
                version: segment.version,
                generation: grant.generation,
                redis_version: grant.redis_version,
            });
            return Ok(segment);
        }
    }

    async fn release(&self, tag: &str, tail: TailRelease) -> Result<bool, StoreError> {
        validate_tag(tag)?;
        let inner = &self.0;
        let Some(known) = lock(&inner.tags).get(tag).cloned() else { return Ok(false) };
        // Taken out, so that it is sent once at most.
        let newest = lock(&known.state)
            .newest
            .take_if(|newest| newest.version == tail.version && (newest.start..newest.end).contains(&tail.start));
        let Some(newest) = newest else { return Ok(false) };
        let count = (newest.end - tail.start).to_string();
        let arguments = [newest.generation.as_str(), &newest.redis_version, &count];
        let mut reply = inner.script("taking back numbers of", Access::Writes, &RELEASE, tag, &arguments).await?;
        Ok(reply.text()? == "taken")
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.0.durable.open_tag(tag).await
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.0.durable.tag(tag).await
    }

    async fn create_tag(&self, tag: &str, options: &TagOptions) -> Result<TagRecord, StoreError> {
        self.0.durable.create_tag(tag, options).await
    }

    async fn change_tag(&self, tag: &str, step: StepPolicy, refill: RefillPolicy) -> Result<TagRecord, StoreError> {
        self.0.durable.change_tag(tag, step, refill).await
    }

    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        let record = self.0.durable.raise_tag(tag, next).await?;
        self.0.skip(tag, next).await?;
        Ok(record)
    }

    async fn retire_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        let record = self.0.durable.retire_tag(tag).await?;
        self.0.skip(tag, u64::MAX).await?;
        Ok(record)
    }

    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        self.0.durable.tags(after, limit).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.0.server.prove_writable(&self.0.prefix).await
    }

    async fn folds_names(&self) -> Result<Option<String>, StoreError> {
        self.0.durable.folds_names().await
    }

    async fn beyond_record(&self, tag: &str) -> Result<Option<String>, StoreError> {
        self.0.durable.beyond_record(tag).await
    }

    async fn beyond_records(&self, tags: &[String]) -> Result<Option<Vec<Option<String>>>, StoreError> {
        self.0.durable.beyond_records(tags).await
    }

    async fn hides_formats(&self) -> Result<Option<String>, StoreError> {
        self.0.durable.hides_formats().await
    }

    fn keeps_formats(&self) -> bool {
        self.0.durable.keeps_formats()
    }

    async fn bind_format(
        &self,
        owner: FormatOwner<'_>,
        part: FormatPart,
        binding: FormatBinding,
    ) -> Result<Option<u64>, StoreError> {
        self.0.durable.bind_format(owner, part, binding).await
    }

    async fn ceiling(&self, tag: &str) -> Result<Option<Ceiling>, StoreError> {
        validate_tag(tag)?;
        let view = self.0.look(tag, None).await?;
        Ok(view.filter(|view| view.ends.all > 0).map(|view| Ceiling {
            last: if view.held() == 0 { view.ends.all - 1 } else { (view.ends.first - 1).saturating_sub(view.left) },
            max: view.ends.all - 1,
            used_recently: view.used_recently,
            used_long_term: view.used_long_term,
        }))
    }

    async fn close(&self) {
        let keeper = lock(&self.0.keeper).take();
        if let Some(keeper) = keeper {
            keeper.abort();
            // Its end, by the abort or before it.
            let _ = keeper.await;
        }
        self.0.durable.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_that_nobody_uses_is_looked_after_less_often() {
        let mut rounds = Rounds::default();
        let mut looks = |used: u64, count: u32| -> Vec<u32> {
            let mut looks = Vec::new();
            for round in 0..count {
                if rounds.is_due() {
                    rounds.looked(used, false);
                    looks.push(round);
                }
            }
            looks
        };
        assert_eq!(looks(7, 20), [0, 1, 3, 7, 13, 19], "used before the first look only");
        assert_eq!(looks(8, 8), [5, 6], "used once more");
        let mut rounds = Rounds::default();
        for _ in 0..5 {
            assert!(rounds.is_due(), "as long as it is low");
            rounds.looked(7, true);
        }
    }
}
