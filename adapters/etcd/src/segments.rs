//! Tags: a key each, whose value is the tag's row.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};
use unalike_storage::{
    ID_MAX, JoinedStripe, KEPT_FLOOR, KEPT_LEASES, Mode, PolicyColumns, RefillPolicy, Segment, SegmentStore,
    StepPolicy, StoreError, StoreIdentity, Stripe, StripeNumbers, TagCreation, TagOptions, TagRecord, TagRows,
    TailRelease, first_watermark, is_kept_time, split_tag, validate_policies, validate_raise, validate_tag,
};

use crate::cluster::{Doing, Expected};
use crate::error::damaged;
use crate::record::{Lift, Record};
use crate::store::{Store, Written, next, put, too_many_races};
use crate::wire::{Compare, KeyValue, RangeRequest, RangeResponse};

/// So many tags are kept in mind as they were last seen, which saves a read before a grant.
const SEEN_MAX: usize = 16_384;

/// How many rows are read at once.
const PAGE: u32 = 1_000;

/// A tag's row. Its numbers are below 2^63 but for those of policies, and JSON has them as they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// How many adoptions it has seen: those that came later lift it when it is read.
    lifts: usize,
    start: u64,
    mode: String,
    step_policy: String,
    /// These are what [`PolicyColumns`] has.
    step: u64,
    step_min: Option<u64>,
    step_max: Option<u64>,
    grow_below_ms: Option<u64>,
    shrink_above_ms: Option<u64>,
    refill_policy: String,
    refill: u64,
    /// No release lowers the watermark below this.
    settled: u64,
    /// The greatest number that may have been handed out.
    watermark: u64,
    /// Grows with every grant, release and raise.
    version: u64,
    /// How often its key was written by then, as etcd counts: a value that was put back is behind. 0 in rows of earlier
    /// programs.
    #[serde(default)]
    writes: i64,
}

/// How many tags there are.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Count {
    tags: u64,
}

/// A row as it was seen, and the revision of its last write.
#[derive(Clone, Debug)]
struct Seen {
    row: Row,
    mod_revision: i64,
}

/// A tag's row as it was last seen. Whoever changes it has it alone: requests of one program for one tag come one after
/// the other, instead of each spoiling the conditions of the others.
type Place = Arc<tokio::sync::Mutex<Option<Seen>>>;

/// Segments below a prefix.
#[derive(Clone, Debug)]
pub(crate) struct Tags {
    store: Store,
    creation: TagCreation,
    /// The stripe that this client joined.
    joined: Option<Stripe>,
    places: Arc<Mutex<HashMap<String, Place>>>,
}

impl Row {
    fn new(record: &Record, options: &TagOptions, watermark: u64) -> Self {
        let mut row = Self {
            lifts: record.lifts.len(),
            start: options.start,
            mode: options.mode.name().to_owned(),
            step_policy: String::new(),
            step: 0,
            step_min: None,
            step_max: None,
            grow_below_ms: None,
            shrink_above_ms: None,
            refill_policy: String::new(),
            refill: 0,
            settled: watermark,
            watermark,
            version: 0,
            writes: 1,
        };
        row.set_policies(options.step, options.refill);
        row
    }

    fn set_policies(&mut self, step: StepPolicy, refill: RefillPolicy) {
        let columns = PolicyColumns::new(step, refill);
        columns.step_policy.clone_into(&mut self.step_policy);
        columns.refill_policy.clone_into(&mut self.refill_policy);
        (self.step, self.refill) = (columns.step, columns.refill);
        (self.step_min, self.step_max) = (columns.step_min, columns.step_max);
        (self.grow_below_ms, self.shrink_above_ms) = (columns.grow_below_ms, columns.shrink_above_ms);
    }

    /// What a row of this tag says.
    fn record(&self, tag: &str) -> Result<TagRecord, String> {
        let figure = |column: &str| {
            let value = match column {
                "step" => Some(self.step),
                "step_min" => self.step_min,
                "step_max" => self.step_max,
                "grow_below_ms" => self.grow_below_ms,
                "shrink_above_ms" => self.shrink_above_ms,
                "refill" => Some(self.refill),
                _ => None,
            };
            value.ok_or_else(|| format!("lacks {column}"))
        };
        let unknown = || format!("has the policies {:?} and {:?}", self.step_policy, self.refill_policy);
        let (step, refill) =
            PolicyColumns::read(&self.step_policy, &self.refill_policy, figure)?.ok_or_else(unknown)?;
        let mode = Mode::named(&self.mode).ok_or_else(|| format!("has the mode {:?}", self.mode))?;
        let options = TagOptions { start: self.start, step, refill, mode };
        options.validate(tag).map_err(|error| format!("has options that are not valid ({error})"))?;
        Ok(TagRecord { tag: tag.to_owned(), options, watermark: self.watermark, version: self.version })
    }

    /// Reads this tag's key, as it is after all adoptions of the store.
    fn read(store: &Record, tag: &str, kv: &KeyValue) -> Result<Self, String> {
        let mut row: Self = serde_json::from_slice(&kv.value).map_err(|error| format!("is not unalike's ({error})"))?;
        if row.version >= ID_MAX {
            return Err(format!("has the version {}, which nothing counts to", row.version));
        }
        let lifts = store.unseen_lifts(row.lifts, row.writes, kv)?;
        row.writes = kv.version;
        for lift in lifts {
            row.lift(tag, lift);
        }
        row.lifts = store.lifts.len();
        row.record(tag)?;
        if row.settled > row.watermark || row.watermark > ID_MAX {
            return Err(format!("has the watermark {} above {}", row.watermark, row.settled));
        }
        Ok(row)
    }

    fn lift(&mut self, tag: &str, lift: &Lift) {
        let lifted = if is_time_of_leases(tag) {
            self.watermark.max(lift.kept_until_ms)
        } else {
            self.watermark.saturating_add(if is_kept_time(tag) { lift.kept_ms } else { lift.numbers })
        };
        self.watermark = lifted.min(ID_MAX);
        self.settled = self.watermark;
        self.version += 1;
    }

    fn write(&self) -> Vec<u8> {
        // Numbers and texts always have a form in JSON.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The row after a grant of `count` numbers (1 or more), none below `at_least`, or of what is left; none if nothing
    /// is.
    ///
    /// Who asks for numbers from right behind the watermark was told of the newest grant, so it is the one who holds
    /// it: both grants together are one tail, and `settled` stays. Otherwise all that was granted before is settled.
    fn granted(&self, count: u64, at_least: u64) -> Option<(Self, Segment)> {
        let behind = self.watermark.checked_add(1).filter(|next| *next <= ID_MAX)?;
        let start = behind.max(at_least);
        let watermark = start.checked_add(count.clamp(1, ID_MAX) - 1).map_or(ID_MAX, |end| end.min(ID_MAX));
        let settled = if at_least == behind { self.settled } else { start - 1 };
        let version = self.version + 1;
        let row = Self { settled, watermark, version, ..self.clone() };
        Some((row, Segment { start, end: watermark + 1, stride: 1, generation: 0, version }))
    }

    /// The row after a tail was taken back; none if it may not be.
    fn released(&self, tail: TailRelease) -> Option<Self> {
        let may_be = self.version == tail.version && self.settled < tail.start && tail.start <= self.watermark;
        may_be.then(|| self.settled_at(tail.start - 1))
    }

    fn settled_at(&self, watermark: u64) -> Self {
        Self { settled: watermark, watermark, version: self.version + 1, ..self.clone() }
    }
}

/// Whether a row's numbers are the Unix milliseconds that are granted to leases in Redis.
fn is_time_of_leases(tag: &str) -> bool {
    is_kept_time(tag) && split_tag(tag).0.trim().eq_ignore_ascii_case(KEPT_LEASES)
}

impl Tags {
    pub(crate) fn new(store: Store, creation: TagCreation) -> Self {
        Self { store, creation, joined: None, places: Arc::default() }
    }

    fn at(&self) -> &str {
        self.store.cluster.at()
    }

    /// For messages.
    fn name(&self) -> String {
        format!("the store at {}", self.at())
    }

    fn check_stripe(&self, expected: &Expected) -> Result<(), StoreError> {
        Stripe::check_grant(&self.name(), expected.record.place().as_ref(), self.joined.as_ref())
    }

    fn row(&self, expected: &Expected, tag: &str, found: &RangeResponse) -> Result<Option<Seen>, StoreError> {
        found.kvs.first().map(|kv| self.seen(expected, tag, kv)).transpose()
    }

    fn seen(&self, expected: &Expected, tag: &str, kv: &KeyValue) -> Result<Seen, StoreError> {
        let row =
            Row::read(&expected.record, tag, kv).map_err(|why| damaged(self.at(), &self.store.paths.tag(tag), &why))?;
        Ok(Seen { row, mod_revision: kv.mod_revision })
    }

    fn record_of(&self, tag: &str, row: &Row) -> Result<TagRecord, StoreError> {
        row.record(tag).map_err(|why| damaged(self.at(), &self.store.paths.tag(tag), &why))
    }

    async fn find(&self, doing: Doing, tag: &str) -> Result<Option<Seen>, StoreError> {
        let range = RangeRequest::key(&self.store.paths.tag(tag));
        let (found, expected) = self.store.read(doing, vec![range]).await?;
        self.row(&expected, tag, &next(&mut found.into_iter()))
    }

    /// Where a tag's row is kept in mind.
    fn place(&self, tag: &str) -> Place {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = places.get(tag) {
            return Arc::clone(place);
        }
        if places.len() >= SEEN_MAX {
            // Those that nobody has in hand.
            places.retain(|_, place| Arc::strong_count(place) > 1);
        }
        Arc::clone(places.entry(tag.to_owned()).or_default())
    }

    /// Changes a tag's row to what `change` makes of it, with an answer; none if there is no row, or nothing is to be
    /// changed.
    ///
    /// Another program that changed the row meanwhile was faster, and nothing was done: then the row as it is decides,
    /// which came with the answer.
    async fn change<T>(
        &self,
        tag: &str,
        what: &'static str,
        ends: bool,
        change: impl Fn(&Row) -> Option<(Row, T)> + Send + Sync,
    ) -> Result<Option<T>, StoreError> {
        let doing = self.store.cluster.begin(what);
        let (key, place) = (self.store.paths.tag(tag), self.place(tag));
        let mut kept = timeout_at(doing.until, place.lock()).await.map_err(|_| too_many_races(self.at(), doing))?;
        let mut expected = self.store.expected()?;
        // An error, or a caller that gives up, leaves nothing in mind.
        let mut seen = match kept.take().filter(|seen| seen.row.lifts == expected.record.lifts.len()) {
            Some(seen) => seen,
            None => match self.find(doing, tag).await? {
                Some(seen) => seen,
                None => return Ok(None),
            },
        };
        loop {
            if self.check_stripe(&expected).is_err() {
                // It may be another one again by now.
                expected = self.store.read(doing, Vec::new()).await?.1;
                self.check_stripe(&expected)?;
            }
            let Some((row, answer)) = change(&seen.row) else {
                let is_as_kept = self.find(doing, tag).await?;
                let Some(found) = is_as_kept else { return Ok(None) };
                if found.mod_revision == seen.mod_revision {
                    *kept = Some(found);
                    return Ok(None);
                }
                seen = found;
                continue;
            };
            let row = Row { writes: seen.row.writes.saturating_add(1), ..row };
            let compare = vec![Compare::unchanged(&key, seen.mod_revision)];
            let mut puts = vec![put(&key, row.write())];
            if ends {
                puts.push(put(&self.store.paths.ended(tag), Vec::new()));
            }
            let otherwise = vec![RangeRequest::key(&key)];
            match self.store.write(doing, &expected, compare, puts, otherwise).await? {
                Written::Done(mod_revision) => {
                    *kept = Some(Seen { row, mod_revision });
                    return Ok(Some(answer));
                }
                Written::Not(found) => {
                    expected = self.store.expected()?;
                    match self.row(&expected, tag, &next(&mut found.into_iter()))? {
                        Some(found) => seen = found,
                        None => return Ok(None),
                    }
                }
            }
            if Instant::now() >= doing.until {
                return Err(too_many_races(self.at(), doing));
            }
        }
    }

    /// Makes sure that a row is not there, or says that there is nothing left, under the right stripe.
    async fn check_grant(&self, doing: Doing) -> Result<(), StoreError> {
        let (_, expected) = self.store.read(doing, Vec::new()).await?;
        self.check_stripe(&expected)
    }

    /// How many rows of tags and sub-keys there are that users know.
    pub(crate) async fn count(&self) -> Result<u64, StoreError> {
        let (mut after, mut count) = (None, 0);
        loop {
            let page = self.tags(after.as_deref(), PAGE).await?;
            let Some(last) = page.last() else { return Ok(count) };
            after = Some(last.tag.clone());
            count += page.iter().filter(|record| !unalike_storage::is_kept(&record.tag)).count() as u64;
        }
    }

    /// Refuses a new row of [time](is_kept_time) that is granted to leases or clocks in Redis, for as long as all that
    /// may be forgotten has not ended.
    async fn check_new_time(&self, doing: Doing, expected: &Expected, name: &str) -> Result<(), StoreError> {
        let until_ms = expected.record.floor_ms;
        if until_ms == 0 || !is_kept_time(name) {
            return Ok(());
        }
        if self.store.cluster.clock_ms(doing, None).await? >= until_ms {
            return Ok(());
        }
        let (tag, sub) = split_tag(name);
        Err(StoreError::Quarantined { namespace: sub.unwrap_or(tag).to_owned(), until_ms })
    }
}

#[async_trait]
impl TagRows for Tags {
    fn creates_on_first_use(&self, tag: &str) -> bool {
        self.creation.of(tag).on_first_use
    }

    async fn find_row(&self, tag: &str) -> Result<Option<TagRecord>, StoreError> {
        let seen = self.find(self.store.cluster.begin("reading a tag"), tag).await?;
        seen.map(|seen| self.record_of(tag, &seen.row)).transpose()
    }

    async fn insert_row(&self, tag: &str, options: &TagOptions) -> Result<Option<TagRecord>, StoreError> {
        let tags_max = self.creation.of(tag).tags_max;
        let doing = self.store.cluster.begin("creating a tag");
        let paths = &self.store.paths;
        let (owner, sub) = split_tag(tag);
        let (key, count_key) = (paths.tag(tag), paths.tag_count());
        let (ended_key, floor_key) = (paths.ended(owner), paths.tag(KEPT_FLOOR));
        loop {
            let ranges = [&key, &count_key, &ended_key, &floor_key].map(|key| RangeRequest::key(key)).to_vec();
            let (found, expected) = self.store.read(doing, ranges).await?;
            let mut found = found.into_iter();
            let (row, count) = (next(&mut found), next(&mut found));
            let (ended, floor) = (next(&mut found), next(&mut found));
            if !row.kvs.is_empty() {
                return Ok(None);
            }
            self.check_stripe(&expected)?;
            self.check_new_time(doing, &expected, tag).await?;
            let mut compare = vec![Compare::unchanged(&key, 0)];
            let mut puts = Vec::new();
            if sub.is_some() {
                // Nobody ends the tag before the sub-key is there: who lists the sub-keys of one that ended sees it.
                if !ended.kvs.is_empty() {
                    return Err(StoreError::exhausted(tag));
                }
                compare.push(Compare::unchanged(&ended_key, 0));
            } else {
                let counted = count.kvs.first().map(|kv| serde_json::from_slice::<Count>(&kv.value)).transpose();
                let counted =
                    counted.map_err(|error| damaged(self.at(), &count_key, &format!("is not unalike's ({error})")))?;
                let tags = counted.map_or(0, |counted| counted.tags);
                if tags >= tags_max {
                    return Err(StoreError::TagLimit { tag: tag.to_owned(), tags_max });
                }
                let counted = serde_json::to_vec(&Count { tags: tags.saturating_add(1) }).unwrap_or_default();
                compare.push(Compare::unchanged(&count_key, revision_of(&count)));
                puts.push(put(&count_key, counted));
            }
            let above = match self.row(&expected, KEPT_FLOOR, &floor)? {
                Some(floor) => floor.row.watermark,
                None => expected.record.lifts.iter().fold(0, |sum: u64, lift| sum.saturating_add(lift.numbers)),
            };
            if tag != KEPT_FLOOR {
                compare.push(Compare::unchanged(&floor_key, revision_of(&floor)));
            }
            let new = Row::new(&expected.record, options, first_watermark(tag, options.start, above));
            puts.push(put(&key, new.write()));
            if let Written::Done(_) = self.store.write(doing, &expected, compare, puts, Vec::new()).await? {
                return self.record_of(tag, &new).map(Some);
            }
            if Instant::now() >= doing.until {
                return Err(too_many_races(self.at(), doing));
            }
        }
    }

    async fn grant_from_row(&self, tag: &str, count: u64, at_least: u64) -> Result<Option<Segment>, StoreError> {
        let doing = "allocating a segment";
        let granted = self.change(tag, doing, false, |row| row.granted(count, at_least)).await?;
        let Some(segment) = granted else {
            self.check_grant(self.store.cluster.begin(doing)).await?;
            return Ok(None);
        };
        if segment.validate().is_err() || segment.start < at_least || segment.count() > count {
            return Err(StoreError::corrupt(format!("{}: the grant {segment:?} is not what was asked for", self.at())));
        }
        Ok(Some(segment))
    }
}

/// The revision of a key's last write; 0 if it is not there.
fn revision_of(found: &RangeResponse) -> i64 {
    found.kvs.first().map_or(0, |kv| kv.mod_revision)
}

#[async_trait]
impl SegmentStore for Tags {
    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        self.grant_or_create(tag, count, at_least).await
    }

    async fn release(&self, tag: &str, tail: TailRelease) -> Result<bool, StoreError> {
        validate_tag(tag)?;
        let release = |row: &Row| Some((row.released(tail)?, ()));
        Ok(self.change(tag, "releasing a tail", false, release).await?.is_some())
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.find_or_create(tag).await
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.find_known(tag).await
    }

    async fn create_tag(&self, tag: &str, options: &TagOptions) -> Result<TagRecord, StoreError> {
        self.create_new(tag, options).await
    }

    async fn change_tag(&self, tag: &str, step: StepPolicy, refill: RefillPolicy) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        validate_policies(tag, step, refill)?;
        let change = |row: &Row| {
            let mut row = row.clone();
            row.set_policies(step, refill);
            Some((row.clone(), row))
        };
        let row = self.change(tag, "changing a tag", false, change).await?;
        self.record_of(tag, &row.ok_or_else(|| StoreError::tag_unknown(tag))?)
    }

    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        validate_raise(tag, next)?;
        let raise = |row: &Row| {
            let lifted = next - 1;
            let (settled, watermark) = (row.settled.max(lifted), row.watermark.max(lifted));
            let row = Row { settled, watermark, version: row.version + 1, ..row.clone() };
            Some((row.clone(), row))
        };
        let row = self.change(tag, "raising a tag", false, raise).await?;
        self.record_of(tag, &row.ok_or_else(|| StoreError::tag_unknown(tag))?)
    }

    async fn retire_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        let before = self.change(tag, "ending a tag", true, |row| Some((row.settled_at(ID_MAX), row.clone()))).await?;
        self.record_of(tag, &before.ok_or_else(|| StoreError::tag_unknown(tag))?)
    }

    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let prefix = self.store.paths.tags();
        let after = after.map(|after| self.store.paths.tag(after));
        let doing = self.store.cluster.begin("listing tags");
        let range = RangeRequest::prefix(&prefix, after.as_deref(), limit);
        let (found, expected) = self.store.read(doing, vec![range]).await?;
        let listed = next(&mut found.into_iter()).kvs;
        let record = |kv: &KeyValue| {
            let name = kv.key.strip_prefix(prefix.as_bytes()).and_then(|name| std::str::from_utf8(name).ok());
            let name = name.ok_or_else(|| damaged(self.at(), &prefix, "has a name behind it that is no tag's"))?;
            self.record_of(name, &self.seen(&expected, name, kv)?.row)
        };
        listed.iter().map(record).collect()
    }

    fn keeps_formats(&self) -> bool {
        true
    }

    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        let doing = self.store.cluster.begin("reading the name of the store");
        let (_, expected) = self.store.read(doing, Vec::new()).await?;
        Ok(Some(expected.record.name()))
    }

    async fn check(&self) -> Result<(), StoreError> {
        let doing = self.store.cluster.begin("checking that the store can be written to");
        // Confirmed by a majority, which is what a write needs, and without an alarm.
        let (_, expected) = self.store.read(doing, Vec::new()).await?;
        self.check_stripe(&expected)?;
        let status = self.store.cluster.status(doing).await?;
        match status.errors.first() {
            None => Ok(()),
            Some(alarm) => {
                Err(StoreError::unavailable(format!("{}: etcd {} reports {alarm:?}", self.at(), status.version)))
            }
        }
    }

    async fn stripe(&self) -> Result<Option<Stripe>, StoreError> {
        let doing = self.store.cluster.begin("reading the stripe");
        let (_, expected) = self.store.read(doing, Vec::new()).await?;
        Ok(expected.record.place())
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        let doing = self.store.cluster.begin("recording the stripe");
        loop {
            let (revision, has_granted) = self.has_granted(doing).await?;
            let expected = self.store.expected()?;
            let recorded = expected.record.place();
            stripe.check_join(&self.name(), recorded.as_ref(), recorded.is_some() || has_granted)?;
            if recorded.is_some() {
                break;
            }
            // Nothing was granted since that was looked at.
            let compare = vec![Compare::all_unchanged(&self.store.paths.tags(), revision)];
            let record = expected.record.in_place(Some(stripe));
            let puts = vec![put(&self.store.paths.store(), record.write())];
            if let Written::Done(_) = self.store.write(doing, &expected, compare, puts, Vec::new()).await? {
                self.store.read(doing, Vec::new()).await?;
                break;
            }
            if Instant::now() >= doing.until {
                return Err(too_many_races(self.at(), doing));
            }
        }
        let joined = Self { joined: Some(*stripe), ..self.clone() };
        Ok(JoinedStripe { store: Arc::new(joined), numbers: StripeNumbers::Counted })
    }

    async fn restripe(&self, expected: Option<&Stripe>, stripe: Option<&Stripe>) -> Result<(), StoreError> {
        let doing = self.store.cluster.begin("recording another stripe");
        loop {
            let (_, known) = self.store.read(doing, Vec::new()).await?;
            Stripe::check_change(&self.name(), known.record.place().as_ref(), expected, stripe)?;
            let puts = vec![put(&self.store.paths.store(), known.record.in_place(stripe).write())];
            if let Written::Done(_) = self.store.write(doing, &known, Vec::new(), puts, Vec::new()).await? {
                return self.store.read(doing, Vec::new()).await.map(drop);
            }
            if Instant::now() >= doing.until {
                return Err(too_many_races(self.at(), doing));
            }
        }
    }

    async fn close(&self) {
        self.store.cluster.close();
    }
}

impl Tags {
    /// Whether anything was ever granted, raised or ended, at this revision of the store or later.
    async fn has_granted(&self, doing: Doing) -> Result<(i64, bool), StoreError> {
        let prefix = self.store.paths.tags();
        let (mut after, mut first) = (None, None);
        loop {
            let range = RangeRequest::prefix(&prefix, after.as_deref(), PAGE);
            let (found, expected) = self.store.read(doing, vec![range]).await?;
            let page = next(&mut found.into_iter());
            let revision = *first.get_or_insert(page.header.unwrap_or_default().revision);
            for kv in &page.kvs {
                let key = std::str::from_utf8(&kv.key).unwrap_or_default();
                let name = key.strip_prefix(&prefix).unwrap_or_default();
                if self.seen(&expected, name, kv)?.row.version > 0 {
                    return Ok((revision, true));
                }
                after = Some(key.to_owned());
            }
            if page.kvs.is_empty() {
                return Ok((revision, false));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(lifts: &[u64]) -> Record {
        let lift = |numbers: &u64| Lift { numbers: *numbers, kept_ms: 7, kept_until_ms: 5_000 };
        Record { lifts: lifts.iter().map(lift).collect(), ..Record::new(None).unwrap() }
    }

    fn row(watermark: u64) -> Row {
        Row::new(&store(&[]), &TagOptions::default(), watermark)
    }

    /// What a key of this value is, which was written so often.
    fn written(value: impl Into<Vec<u8>>, version: i64) -> KeyValue {
        KeyValue { value: value.into(), version, ..KeyValue::default() }
    }

    #[test]
    fn numbers_end_at_the_top() {
        let top = row(ID_MAX - 2);
        let (after, segment) = top.granted(u64::MAX, 0).unwrap();
        assert_eq!((segment.start, segment.end), (ID_MAX - 1, ID_MAX + 1));
        assert_eq!(after.granted(1, 0), None);
        assert_eq!(row(5).granted(1, ID_MAX).unwrap().1.start, ID_MAX);
    }

    #[test]
    fn a_tail_is_taken_back_by_whoever_holds_it_and_once() {
        let (first, segment) = row(0).granted(10, 0).unwrap();
        let tail = TailRelease { start: 6, version: segment.version };
        let released = first.released(tail).unwrap();
        assert_eq!((released.watermark, released.version), (5, 2));
        assert_eq!(released.released(tail), None);
        assert_eq!(first.granted(10, 0).unwrap().0.released(tail), None, "granted again");
        // Both grants of one holder are one tail; those of two are not.
        let (both, second) = first.granted(10, 11).unwrap();
        assert!(both.released(TailRelease { start: 6, version: second.version }).is_some());
        let (others, second) = first.granted(10, 0).unwrap();
        assert!(others.released(TailRelease { start: 6, version: second.version }).is_none());
    }

    #[test]
    fn a_row_is_lifted_by_the_adoptions_that_it_has_not_seen() {
        let kv = written(row(10).write(), 1);
        let read = |lifts: &[u64], tag: &str| Row::read(&store(lifts), tag, &kv);
        let lifted = read(&[100, 1_000], "order").unwrap();
        assert_eq!((lifted.watermark, lifted.settled, lifted.lifts), (1_110, 1_110, 2));
        let lifted = Row::read(&store(&[100, 1_000]), "order", &written(lifted.write(), 1)).unwrap();
        assert_eq!(lifted.watermark, 1_110, "once");
        assert_eq!(read(&[u64::MAX], "order").unwrap().watermark, ID_MAX);
        assert_eq!(read(&[100], "redis-leases\u{1f}default").unwrap().watermark, 5_000, "a time");
        assert_eq!(read(&[100], "order\u{1f}redis-clock:60").unwrap().watermark, 17, "a time");
        assert_eq!(read(&[100], KEPT_FLOOR).unwrap().watermark, 110);
        assert!(Row::read(&store(&[]), "order", &written(lifted.write(), 1)).is_err(), "of another store");
    }

    #[test]
    fn a_value_that_was_put_back_is_told_until_an_adoption_lifts_it() {
        let kv = written(row(10).write(), 3);
        let refused = Row::read(&store(&[]), "order", &kv).unwrap_err();
        assert!(refused.contains("its write 1, and was written 3 times"), "{refused}");
        let lifted = Row::read(&store(&[100]), "order", &kv).unwrap();
        assert_eq!((lifted.watermark, lifted.writes), (110, 3));
        // It was put back after the adoption.
        let adopted = Record { adopted: Some(20), ..store(&[100]) };
        let put_in = |mod_revision| Row::read(&adopted, "order", &KeyValue { mod_revision, ..kv.clone() });
        assert!(put_in(21).unwrap_err().contains("an old value was put back"));
        assert_eq!(put_in(19).unwrap().watermark, 110);
        // A program of before wrote it.
        let before = String::from_utf8(kv.value).unwrap().replace(",\"writes\":1", "");
        assert_eq!(Row::read(&store(&[]), "order", &written(before, 7)).unwrap().writes, 7);
    }

    #[test]
    fn what_is_no_row_is_told() {
        let text = String::from_utf8(row(10).write()).unwrap();
        let read = |text: &str| Row::read(&store(&[]), "order", &written(text, 1));
        assert_eq!(read(&text), Ok(row(10)));
        for (from, to) in [
            ("\"watermark\":10", "\"watermark\":9"),
            ("\"watermark\":10", "\"watermark\":10.0"),
            ("\"watermark\":10", "\"watermark\":18446744073709551615"),
            ("\"version\":0", "\"version\":18446744073709551615"),
            ("buffered", "sideways"),
            ("\"start\":1", "\"start\":0"),
            ("\"start\":1", "\"begin\":1"),
        ] {
            let damaged = text.replace(from, to);
            assert!(damaged != text && read(&damaged).is_err(), "{damaged}");
        }
    }
}
