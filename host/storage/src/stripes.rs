//! Several independent stores that number together: any but one of them may be down, and no number comes twice.
//!
//! Store `index` of `count` grants the numbers that are `index + 1` modulo `count`, so the stores need to know nothing
//! of each other. What each must know, durably, is its own place: one that took another's would grant the other's
//! numbers. So a store that is recorded otherwise, or that has no record while others of its set have, is not used.

mod marks;
mod members;
mod numbering;
mod resize;
mod words;

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use unalike_core::{RefillPolicy, Segment, StepPolicy, TailRelease};

use self::members::{Member, When, combined, full_text, is_trouble, with_text};
use self::numbering::{Numbering, merged};
use self::words::{lost_data_advice, name, new_set};
use crate::{
    FormatBinding, FormatOwner, FormatPart, Mode, SegmentStore, StoreError, StoreIdentity, Stripe, TagOptions,
    TagRecord, TailsReleased, split_tag, validate_allocate, validate_policies, validate_raise, validate_tag,
};

pub use self::resize::{hand_over, resize_stripes};

/// How often stores are asked for their place while another program is recording it.
const OPEN_TRIES: u32 = 40;

/// The pause between two such tries.
const OPEN_PAUSE: Duration = Duration::from_millis(50);

/// One [`SegmentStore`] made of 2 to 1,024 others, the stripes of one set.
///
/// Requests go to the stores in turn. One that fails is left out and tried again after a pause, of 100 ms at first and
/// of 30 s at most, by one request at a time; its failure is nobody's error while another store can serve. A grant
/// whose answer was lost is burnt, and the next store is asked.
///
/// - Numbers of one tag ascend per store only: a buffer that is filled from several stores goes up and down a little.
///   So [`Mode::Ordered`] is refused.
/// - A [`TagRecord`] is put together from the stores that answer: its watermark and its version are the greatest of
///   theirs.
/// - Creating, changing, raising and ending a tag need all stores.
/// - A store that does not know a tag that others have (it was down when the tag came into being) creates it with
///   their options.
///
/// ```
/// use std::sync::Arc;
/// use unalike_storage::{SegmentStore, StoreError, StripedStore};
///
/// /// Two new stores.
/// async fn stripe(first: Arc<dyn SegmentStore>, second: Arc<dyn SegmentStore>) -> Result<(), StoreError> {
///     let store = StripedStore::open(vec![first, second]).await?;
///     let odd = store.allocate("order", 3, 0).await?; // 1, 3, 5
///     let even = store.allocate("order", 3, 0).await?; // 2, 4, 6
///     assert_eq!((odd.start, odd.end, odd.stride), (1, 7, 2));
///     assert_eq!((even.start, even.end, even.stride), (2, 8, 2));
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct StripedStore {
    members: Vec<Member>,
    /// Whose turn it is, modulo their number.
    turn: AtomicUsize,
    /// Hashes of the tags that this client has made known to all stores that were up.
    spread: Mutex<HashSet<u64>>,
    hasher: RandomState,
}

impl StripedStore {
    /// Joins the stores, which are given in the order of their places.
    ///
    /// Stores that were never used are recorded as a new set; all of them must answer then. Later those that do not
    /// answer are left out, and joined when they come back.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when there are fewer than 2 stores or more than 1,024, when they are recorded in another
    /// order, number or set, when one of them was used alone, and when only some have a record: another may have lost
    /// its data. When no store can be used, the errors of all.
    pub async fn open(stores: Vec<Arc<dyn SegmentStore>>) -> Result<Self, StoreError> {
        let count = u32::try_from(stores.len()).unwrap_or(u32::MAX);
        if !(2..=Stripe::COUNT_MAX).contains(&count) {
            return Err(StoreError::refused(format!(
                "{count} stores were given as stripes, and 2 to {} can be",
                Stripe::COUNT_MAX
            )));
        }
        // The set that this call records for the first time, if it does.
        let mut minted = None;
        let mut error = None;
        for tries in 0..OPEN_TRIES {
            if tries > 0 {
                tokio::time::sleep(OPEN_PAUSE).await;
            }
            let records = join_all(stores.iter().map(|store| store.stripe())).await;
            let set = records.iter().find_map(|record| record.as_ref().ok()?.map(|stripe| stripe.set));
            let unrecorded = records.iter().position(|record| matches!(record, Ok(None)));
            let failed = records.iter().position(Result::is_err);
            match (set, unrecorded) {
                // Every program that records a new set records it in all stores before anything is granted.
                (Some(set), _) if minted == Some(set) && (unrecorded.is_some() || failed.is_some()) => {
                    let joins = (0..).zip(&stores).map(|(index, store)| async move {
                        let joined = store.join_stripe(&Stripe { set, index, count }).await;
                        joined.err().map(|error| at_store(&name(index, &**store), error))
                    });
                    error = join_all(joins).await.into_iter().flatten().next().or(error);
                }
                // Another program is recording it just now, or did not get to the end, or the store lost its data.
                (Some(_), Some(unrecorded)) => {
                    let names: Option<String> =
                        (0..).zip(&stores).nth(unrecorded).map(|(index, store)| name(index, &**store));
                    let names = names.unwrap_or_default();
                    let left = (0..).zip(&stores).zip(&records).find_map(|(store, record)| {
                        let stripe = record.as_ref().ok()?.as_ref()?;
                        (stripe.is_mark() && !stripe.is_fence()).then_some(store)
                    });
                    error = Some(match left {
                        Some((index, store)) => resized_before(&names, &name(index, &**store)),
                        None => may_have_lost_its_data(&names),
                    });
                }
                (Some(set), None) => {
                    let stripes = (0..count).map(|index| Stripe { set, index, count });
                    return Self::join(stripes.zip(stores).collect(), &records).await;
                }
                (None, _) => {
                    // All must answer the first time.
                    for ((index, store), record) in (0..).zip(&stores).zip(records) {
                        record.map_err(|error| at_store(&name(index, &**store), error))?;
                    }
                    check_unused(&stores).await?;
                    let set = match minted {
                        Some(set) => set,
                        None => *minted.insert(new_set()?),
                    };
                    // Who is first at the first store has recorded the set, and all others find it there.
                    if let Some(first) = stores.first()
                        && let Err(failure) = first.join_stripe(&Stripe { set, index: 0, count }).await
                    {
                        error = Some(at_store(&name(0, &**first), failure));
                    }
                }
            }
        }
        Err(error.unwrap_or_else(|| {
            StoreError::unavailable("another program is recording the stripes just now: try again".to_owned())
        }))
    }

    /// Joins those that answer; at least one must.
    async fn join(
        stores: Vec<(Stripe, Arc<dyn SegmentStore>)>,
        records: &[Result<Option<Stripe>, StoreError>],
    ) -> Result<Self, StoreError> {
        for ((place, store), record) in stores.iter().zip(records) {
            if let Ok(Some(record)) = record
                && record != place
            {
                return Err(StoreError::refused(format!(
                    "{} is {record}, and not {place}: give all stores of one set in their order{}; if a resize was \
                     broken off, repeat `unalike stripes resize`",
                    name(place.index, &**store),
                    order_of(&stores, records).map_or_else(String::new, |order| format!(", which is {order}"))
                )));
            }
        }
        let members = stores.into_iter().map(|(place, store)| Member::new(place, store)).collect();
        let store = Self { members, turn: AtomicUsize::new(0), spread: Mutex::default(), hasher: RandomState::new() };
        let answers: Vec<Result<(), StoreError>> = store.each(When::Due, |_, _| std::future::ready(Ok(()))).await;
        if answers.iter().any(Result::is_ok) { Ok(store) } else { Err(combined(store.errors(answers))) }
    }

    /// What is said of the store at a place.
    fn name(&self, index: u32) -> String {
        let member = self.members.iter().find(|member| member.stripe().index == index);
        member.map_or_else(|| format!("store {index}"), Member::name)
    }

    /// The errors among the answers of all stores, by name.
    fn errors<T>(&self, answers: Vec<Result<T, StoreError>>) -> Vec<(String, StoreError)> {
        self.members.iter().zip(answers).filter_map(|(member, answer)| Some((member.name(), answer.err()?))).collect()
    }

    /// Asks all stores at once.
    async fn each<'s, T, Answer>(
        &'s self,
        when: When,
        request: impl Fn(&'s dyn SegmentStore, Numbering) -> Answer + Sync,
    ) -> Vec<Result<T, StoreError>>
    where
        T: Send,
        Answer: Future<Output = Result<T, StoreError>> + Send,
    {
        let request = &request;
        join_all(self.members.iter().map(|member| member.ask(when, request))).await
    }

    /// Asks all stores at once that are up; all, when those that are up are none.
    async fn each_up<'s, T, Answer>(
        &'s self,
        request: impl Fn(&'s dyn SegmentStore, Numbering) -> Answer + Sync,
    ) -> Vec<Result<T, StoreError>>
    where
        T: Send,
        Answer: Future<Output = Result<T, StoreError>> + Send,
    {
        let answers = self.each(When::Due, &request).await;
        let nobody = answers.iter().all(|answer| answer.as_ref().is_err_and(is_trouble));
        if nobody { self.each(When::Now, request).await } else { answers }
    }

    /// What each store that is up knows about a tag.
    async fn look_up(&self, tag: &str) -> Vec<Result<TagRecord, StoreError>> {
        let answers = self.each_up(|store, numbering| async move { Ok(numbering.record(store.tag(tag).await?)) });
        answers.await
    }

    /// Creates a tag, with the options that it has elsewhere, in the stores that were found not to know it.
    async fn complete(&self, tag: &str, found: &[Result<TagRecord, StoreError>], options: &TagOptions) {
        let missing = self.members.iter().zip(found).filter(|(_, found)| found.as_ref().is_err_and(is_unknown));
        let created = missing.map(|(member, _)| {
            member.ask(When::Due, |store, numbering| async move {
                store.create_tag(tag, &numbering.options(options)).await.map(drop)
            })
        });
        for error in join_all(created).await.into_iter().filter_map(Result::err) {
            // It is left out for this tag, or creates it later.
            tracing::debug!(tag, %error, "one of the stripes does not know the tag that others have");
        }
    }

    /// Makes a tag known to all stores that are up if one knows it, and says what they know.
    async fn spread(&self, tag: &str) -> Option<TagRecord> {
        let found = self.look_up(tag).await;
        let record = known(&found)?;
        self.complete(tag, &found, &record.options).await;
        self.note_spread(tag);
        Some(record)
    }

    fn note_spread(&self, tag: &str) {
        self.spread.lock().unwrap_or_else(PoisonError::into_inner).insert(self.hasher.hash_one(tag));
    }

    fn is_spread(&self, tag: &str) -> bool {
        self.spread.lock().unwrap_or_else(PoisonError::into_inner).contains(&self.hasher.hash_one(tag))
    }

    /// The tag, once all stores answer, and all know it if one does.
    async fn everywhere(&self, tag: &str) -> Result<TagRecord, StoreError> {
        let found =
            self.each(When::Insist, |store, numbering| async move { Ok(numbering.record(store.tag(tag).await?)) });
        let found = found.await;
        let record = known(&found);
        for (index, found) in (0..).zip(&found) {
            if let Err(error) = found
                && !is_unknown(error)
            {
                return Err(needs_all(&self.name(index), error));
            }
        }
        let record = record.ok_or_else(|| StoreError::tag_unknown(tag))?;
        self.complete(tag, &found, &record.options).await;
        Ok(record)
    }

    /// Does something to a tag in all stores, one of which knows it.
    async fn in_all<'s, Answer>(
        &'s self,
        tag: &str,
        request: impl Fn(&'s dyn SegmentStore, Numbering) -> Answer + Sync,
    ) -> Result<TagRecord, StoreError>
    where
        Answer: Future<Output = Result<TagRecord, StoreError>> + Send,
    {
        self.everywhere(tag).await?;
        let answers = self.each(When::Insist, request).await;
        let done = known(&answers);
        for (index, answer) in (0..).zip(answers) {
            if let Err(error) = answer {
                let error = needs_all(&self.name(index), &error);
                tracing::warn!(tag, ?done, %error, "a tag was changed in some of the stripes only: repeat the command");
                return Err(error);
            }
        }
        done.ok_or_else(|| StoreError::tag_unknown(tag))
    }
}

#[async_trait]
impl SegmentStore for StripedStore {
    /// From the first store in turn that grants something.
    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        validate_allocate(tag, count, at_least)?;
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.members.len();
        let (before, from) = self.members.split_at(turn);
        // A tag that was made elsewhere shall have its options here; one that this request makes shall be known
        // elsewhere.
        let is_known = self.is_spread(tag) || self.spread(tag).await.is_some();
        let mut errors: Vec<(u32, StoreError)> = Vec::new();
        for when in [When::Due, When::Now] {
            for member in from.iter().chain(before) {
                let index = member.stripe().index;
                if errors.iter().any(|(asked, _)| *asked == index) || !member.is_asked(when) {
                    continue;
                }
                let allocated = member.ask(when, |store, numbering| async move {
                    let (count, at_least) = numbering.request(tag, count, at_least)?;
                    numbering.segment(tag, store.allocate(tag, count, at_least).await?)
                });
                match allocated.await {
                    Ok(segment) => {
                        if !is_known {
                            // A sub-key that was the first of its tag made that as well.
                            if let (of_tag, Some(_)) = split_tag(tag) {
                                self.spread(of_tag).await;
                            }
                            self.spread(tag).await;
                        }
                        return Ok(segment);
                    }
                    Err(error) => errors.push((index, error)),
                }
            }
            if errors.iter().any(|(_, error)| is_unknown(error)) {
                break;
            }
        }
        for member in &self.members {
            let index = member.stripe().index;
            if errors.iter().all(|(asked, _)| *asked != index) {
                errors.push((index, member.left_out()));
            }
        }
        Err(combined(errors.into_iter().map(|(index, error)| (self.name(index), error)).collect()))
    }

    async fn release(&self, tag: &str, tail: TailRelease) -> Result<bool, StoreError> {
        validate_tag(tag)?;
        let Some(index) = Numbering::index_of(tail.start, self.members.len()) else { return Ok(false) };
        let Some(member) = self.members.get(index) else { return Ok(false) };
        let released = member.ask(When::Due, |store, numbering| store.release(tag, numbering.tail(tail)));
        released.await
    }

    /// Each store is given its own.
    async fn release_many(&self, tails: Vec<(String, TailRelease)>) -> TailsReleased {
        let mut of_members: Vec<Vec<(String, TailRelease)>> = self.members.iter().map(|_| Vec::new()).collect();
        for (tag, tail) in tails {
            let index = Numbering::index_of(tail.start, self.members.len());
            if let Some(tails) = index.and_then(|index| of_members.get_mut(index)) {
                tails.push((tag, tail));
            }
        }
        let of_members = self.members.iter().zip(of_members).filter(|(_, tails)| !tails.is_empty());
        let released = of_members.map(|(member, tails)| async move {
            let count = tails.len();
            let released = member.ask(When::Due, |store, numbering| async move {
                let tails = tails.into_iter().map(|(tag, tail)| (tag, numbering.tail(tail))).collect();
                Ok(store.release_many(tails).await)
            });
            released.await.unwrap_or_else(|error| {
                let mut released = TailsReleased::default();
                released.failed(count, error);
                released
            })
        });
        let mut all = TailsReleased::default();
        join_all(released).await.into_iter().for_each(|released| all.add(released));
        all
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        let record = match self.spread(tag).await {
            Some(record) => record,
            None => {
                let created =
                    self.each_up(|store, numbering| async move { Ok(numbering.record(store.open_tag(tag).await?)) });
                let created = created.await;
                let record = known(&created).ok_or_else(|| combined(self.errors(created)))?;
                self.note_spread(tag);
                record
            }
        };
        if record.options.mode == Mode::Ordered { Err(ordered(tag)) } else { Ok(record) }
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        let found = self.look_up(tag).await;
        known(&found).ok_or_else(|| combined(self.errors(found)))
    }

    async fn create_tag(&self, tag: &str, options: &TagOptions) -> Result<TagRecord, StoreError> {
        options.validate(tag)?;
        if options.mode == Mode::Ordered {
            return Err(ordered(tag));
        }
        match self.everywhere(tag).await {
            Err(StoreError::TagUnknown { .. }) => {}
            Err(error) => return Err(error),
            Ok(_) => return Err(StoreError::TagExists { tag: tag.to_owned() }),
        }
        let mut created = Vec::new();
        for member in &self.members {
            let in_store = member.ask(When::Insist, |store, numbering| async move {
                Ok(numbering.record(store.create_tag(tag, &numbering.options(options)).await?))
            });
            match in_store.await {
                Ok(record) => created.push(record),
                // Somebody used it meanwhile, with default options: all stores shall agree.
                Err(StoreError::TagExists { .. }) if !created.is_empty() => {
                    self.everywhere(tag).await?;
                    self.change_tag(tag, options.step, options.refill).await?;
                    return self.raise_tag(tag, options.start).await;
                }
                Err(error) if is_trouble(&error) => return Err(needs_all(&member.name(), &error)),
                Err(error) => return Err(error),
            }
        }
        merged(created.iter()).ok_or_else(|| StoreError::tag_unknown(tag))
    }

    async fn change_tag(&self, tag: &str, step: StepPolicy, refill: RefillPolicy) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        validate_policies(tag, step, refill)?;
        let changed = self.in_all(tag, |store, numbering| async move {
            Ok(numbering.record(store.change_tag(tag, step, refill).await?))
        });
        changed.await
    }

    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        validate_raise(tag, next)?;
        let raised = self.in_all(tag, |store, numbering| async move {
            Ok(numbering.record(store.raise_tag(tag, numbering.ordinal(next)).await?))
        });
        raised.await
    }

    async fn retire_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        let retired =
            self.in_all(tag, |store, numbering| async move { Ok(numbering.record(store.retire_tag(tag).await?)) });
        retired.await
    }

    fn keeps_formats(&self) -> bool {
        true
    }

    /// Binding needs all stores, one after another: so the first of them decides between those that come first at once.
    async fn bind_format(
        &self,
        owner: FormatOwner<'_>,
        part: FormatPart,
        binding: FormatBinding,
    ) -> Result<Option<u64>, StoreError> {
        let looked = self.each_up(|store, _| store.bind_format(owner, part, FormatBinding::Look)).await;
        if looked.iter().all(Result::is_err) {
            return Err(combined(self.errors(looked)));
        }
        // A binding that broke off is completed by the next one.
        let is_whole = !looked.iter().any(|bound| matches!(bound, Ok(None)));
        let mut bound = looked.into_iter().flatten().flatten();
        let first = bound.next();
        let binding = match binding {
            FormatBinding::Always(number) => FormatBinding::Always(number),
            _ if bound.any(|other| Some(other) != first) => {
                return Err(StoreError::refused(format!(
                    "the stripes have different formats of {owner}: bind one in all of them (`{}`)",
                    owner.accepting_command()
                )));
            }
            FormatBinding::First(number) if !is_whole => FormatBinding::First(first.unwrap_or(number)),
            _ => return Ok(first),
        };
        let mut bound = None;
        for member in &self.members {
            let binding = match (binding, bound) {
                (FormatBinding::First(_), Some(number)) => FormatBinding::First(number),
                _ => binding,
            };
            let in_store = member.ask(When::Insist, |store, _| store.bind_format(owner, part, binding)).await;
            bound = bound.or(in_store.map_err(|error| needs_all(&member.name(), &error))?);
        }
        Ok(bound)
    }

    async fn hides_formats(&self) -> Result<Option<String>, StoreError> {
        let looked = self.each_up(|store, _| store.hides_formats()).await;
        if looked.iter().all(Result::is_err) {
            return Err(combined(self.errors(looked)));
        }
        Ok(looked.into_iter().flatten().flatten().next())
    }

    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        let pages = self.each_up(|store, numbering| async move {
            let page = store.tags(after, limit).await?;
            Ok(page.into_iter().map(|record| numbering.record(record)).collect::<Vec<_>>())
        });
        let pages = pages.await;
        if pages.iter().all(Result::is_err) {
            return Err(combined(self.errors(pages)));
        }
        // The first tags of all are among the first of each store.
        let mut tags: BTreeMap<String, Vec<TagRecord>> = BTreeMap::new();
        for record in pages.into_iter().flatten().flatten() {
            tags.entry(record.tag.clone()).or_default().push(record);
        }
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Ok(tags.values().take(limit).filter_map(|records| merged(records.iter())).collect())
    }

    /// That of the set.
    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        Ok(self.members.first().map(|member| StoreIdentity(member.stripe().set)))
    }

    fn stripes(&self) -> usize {
        self.members.len()
    }

    /// Whether one of the stores answers and can be written to.
    async fn check(&self) -> Result<(), StoreError> {
        let answers = self.each_up(|store, _| store.check()).await;
        if answers.iter().any(Result::is_ok) { Ok(()) } else { Err(combined(self.errors(answers))) }
    }

    async fn close(&self) {
        join_all(self.members.iter().map(Member::close)).await;
    }
}

/// What the stores that know a tag say of it.
fn known(found: &[Result<TagRecord, StoreError>]) -> Option<TagRecord> {
    merged(found.iter().flatten())
}

fn is_unknown(error: &StoreError) -> bool {
    matches!(error, StoreError::TagUnknown { .. })
}

fn at_store(name: &str, error: StoreError) -> StoreError {
    let what = format!("{name} of the stripes: {}", full_text(&error));
    with_text(error, what)
}

/// What was to be done was not done, or not everywhere, since a store did not do it.
fn needs_all(name: &str, error: &StoreError) -> StoreError {
    let what = format!("all stripes are needed for this, and {name} says: {}", full_text(error));
    match error {
        StoreError::Corrupt { .. } => StoreError::corrupt(what),
        StoreError::Refused { .. } => StoreError::refused(what),
        StoreError::OutcomeUnknown { .. } => StoreError::outcome_unknown(what),
        _ => StoreError::unavailable(what),
    }
}

fn ordered(tag: &str) -> StoreError {
    let reason = "it is ordered, and several stores have no order among them: use one store for it".to_owned();
    StoreError::TagInvalid { tag: tag.to_owned(), reason }
}

/// The stores by their recorded places, where these are those of one set.
fn order_of(
    stores: &[(Stripe, Arc<dyn SegmentStore>)],
    records: &[Result<Option<Stripe>, StoreError>],
) -> Option<String> {
    let recorded: Option<Vec<Stripe>> = records.iter().map(|record| record.as_ref().ok().copied().flatten()).collect();
    let mut ordered = BTreeMap::new();
    for (record, (place, store)) in recorded?.into_iter().zip(stores) {
        if (record.set, record.count) != (place.set, place.count) {
            return None;
        }
        ordered.insert(record.index, name(place.index, &**store));
    }
    // Each place once.
    let is_whole = ordered.len() == stores.len() && (0..).zip(ordered.keys()).all(|(index, place)| index == *place);
    is_whole.then(|| ordered.into_values().collect::<Vec<_>>().join(", "))
}

/// The error of an old set, some of whose stores have no place any more.
fn resized_before(unrecorded: &str, left: &str) -> StoreError {
    StoreError::refused(format!(
        "{left} has left its set, as a resize moved its tags to other stores, and {unrecorded} is in no set: use the stores that \
         the resize named, one by itself if it named one"
    ))
}

fn may_have_lost_its_data(name: &str) -> StoreError {
    StoreError::refused(format!("{name} of the stripes: {}", lost_data_advice()))
}

/// Checks that not only some of the stores were used: what was used alone is no stripe.
async fn check_unused(stores: &[Arc<dyn SegmentStore>]) -> Result<(), StoreError> {
    let pages = join_all(stores.iter().map(|store| store.tags(None, 1))).await;
    let mut used = Vec::new();
    for ((index, store), page) in (0..).zip(stores).zip(pages) {
        let name = name(index, &**store);
        if !page.map_err(|error| at_store(&name, error))?.is_empty() {
            used.push(name);
        }
    }
    match used.first() {
        Some(name) if used.len() < stores.len() => Err(StoreError::refused(format!(
            "{name} of the stripes was used alone, and others are new: make them stripes with `unalike stripes resize`"
        ))),
        _ => Ok(()),
    }
}
