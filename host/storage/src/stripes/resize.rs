//! Another number of stripes, or another order, or other stores.

use std::collections::BTreeMap;
use std::slice;
use std::sync::Arc;

use futures_util::future::join_all;
use unalike_core::ID_MAX;

use super::marks::{StoreBefore, check_complete};
use super::members::{full_text, with_text};
use super::numbering::{Numbering, merged};
use super::words::{name, new_set};
use crate::{
    KEPT_FLOOR, KEPT_LEASE_FLOOR, Mode, SegmentStore, StoreError, StoreIdentity, Stripe, StripeNumbers, TagOptions,
    TagRecord, is_kept_format, is_kept_time,
};

/// How many tags are read at once.
const PAGE: u32 = 1_000;

/// A store that takes part, and what its numbers meant until now.
struct Part<'s> {
    store: &'s Arc<dyn SegmentStore>,
    /// For messages: which of the stores that were given.
    name: String,
    /// Whether it is one of the old set.
    is_old: bool,
    /// Whether it is one of the new set: at this place.
    place: Option<u32>,
    old: Option<Stripe>,
    /// Whether it had tags.
    is_used: bool,
    identity: Option<StoreIdentity>,
    /// The mark of this call, so that nobody is granted anything and everybody else's next step fails.
    fence: Stripe,
}

impl Part<'_> {
    fn numbering(&self) -> Numbering {
        self.old.map_or(Numbering::ALONE, |old| Numbering::new(&old, StripeNumbers::Counted))
    }

    /// The error, and of which store it is.
    fn error(&self, error: StoreError) -> StoreError {
        named(&self.name, error)
    }
}

fn named(name: &str, error: StoreError) -> StoreError {
    let what = format!("{name}: {}", full_text(&error));
    with_text(error, what)
}

/// Makes the stores `to` the stripes of one new set, in this order, or one store that stands alone, instead of `from`.
///
/// `from` and `to` may have stores in common, and each may be anything: a stripe of any set, used alone, or new. All
/// must answer. In three steps, each of which can be repeated after a crash by calling this again:
/// 1. Every store is fenced: it is given a mark that nobody can use it by, so **running programs are granted nothing
///    from it until they are restarted** with the new set. What they hold already stays theirs.
/// 2. Every tag of any store is lifted, in all stores of `to`, above the greatest number that any store may have
///    granted, and above `floor`. It is created where it is missing. So is the floor of names that none of them knows
///    ([`KEPT_FLOOR`]): a tag or a sub-key that only a lost store had begins above `floor` as well.
/// 3. Stores that leave are marked so, and the places of the new set are recorded: in the stores that had numbers
///    before, and then in those that come new.
///
/// Of two calls at once, one at most gets to the end: each step changes a store's record only if it is the one that
/// this call read or wrote before, **however long it paused**. The other one fails with
/// [`StoreError::PlaceChanged`], or is refused since it does not name all stores of the set that the first one makes.
/// After that one of them is repeated. A store that stands alone is known by its
/// [identity](SegmentStore::identity); without one, the next call may want a floor where one that was to leave a single
/// store was broken off by another.
///
/// A store that is lost is not among `from`; what it granted is not known then: `floor` must be the greatest number
/// that may have been handed out under any name (0 when no store is lost; then all stores of the set must be named).
/// Watermarks are only lifted, so each resize leaves gaps: a tag of a store that goes from `n` to `m` stripes goes on
/// at about `m / n` times its number, and after a crash once more.
///
/// ```
/// use std::sync::Arc;
/// use unalike_storage::{SegmentStore, StoreError, StripedStore, resize_stripes};
///
/// /// One store that was used alone, and a new one.
/// async fn grow(alone: Arc<dyn SegmentStore>, new: Arc<dyn SegmentStore>) -> Result<StripedStore, StoreError> {
///     let to = vec![alone.clone(), new];
///     resize_stripes(&[alone], &to, 0).await?;
///     StripedStore::open(to).await
/// }
/// ```
///
/// # Errors
/// [`StoreError::Refused`] when `to` names no store, more than 1,024, or one twice, when a store cannot be a stripe,
/// when `floor` is above 2^63 - 1, when not all stores of a set are named and `floor` is 0, and when several stores
/// shall have a tag that is ordered; [`StoreError::PlaceChanged`] when somebody else resizes one of them; and whatever
/// a connection brings. Call it again then.
pub async fn resize_stripes(
    from: &[Arc<dyn SegmentStore>],
    to: &[Arc<dyn SegmentStore>],
    floor: u64,
) -> Result<(), StoreError> {
    let count = u32::try_from(to.len()).unwrap_or(u32::MAX);
    if !(1..=Stripe::COUNT_MAX).contains(&count) {
        return Err(StoreError::refused(format!(
            "{count} stores were given as the new stripes, and 1 to {} can be",
            Stripe::COUNT_MAX
        )));
    }
    if floor > ID_MAX {
        return Err(StoreError::refused(format!("the floor is {floor}, and no number is above 2^63 - 1")));
    }
    let set = new_set()?;
    let mut parts = fence(from, to, set, floor, count).await?;
    lift(&parts, count, floor).await?;
    if count == 1 {
        // A store that stands alone does not say since when: those that left for it do.
        parts.sort_by_key(|part| part.place.is_some());
    }
    let alone = parts.iter().find(|part| count == 1 && part.place.is_some()).and_then(|part| part.identity);
    let left_for = alone.map_or(set, |identity| identity.0);
    // In the order of the fences: who has the first old store has won, and no new one is used before all old ones.
    for part in &parts {
        let record = match part.place {
            None => Some(Stripe::left(&part.fence, left_for, count)),
            Some(index) => (count > 1).then_some(Stripe { set, index, count }),
        };
        let recorded = part.store.restripe(Some(&part.fence), record.as_ref()).await;
        recorded.map_err(|error| part.error(error))?;
    }
    tracing::info!(count, "the stripes were resized");
    Ok(())
}

/// Has the store `to` grant what the store `from` granted until now: its tags, and what the product keeps in it, the
/// time that leases and clocks in Redis were granted included. `from` grants nothing from then on, for good.
///
/// A [resize](resize_stripes) of the one store to the other one. It can be repeated, also after it has ended: then it
/// changes nothing.
///
/// # Errors
/// [`StoreError::Refused`] for two clients of one store, for a store without an
/// [identity](SegmentStore::identity), when `from` was handed over to another store before, and when either store
/// cannot be a stripe; otherwise as [`resize_stripes`].
pub async fn hand_over(from: &Arc<dyn SegmentStore>, to: &Arc<dyn SegmentStore>) -> Result<(), StoreError> {
    let mut identities = [StoreIdentity(0); 2];
    for (identity, (what, store)) in identities.iter_mut().zip([("old", from), ("new", to)]) {
        let name = format!("{what} {}", name(0, &**store));
        let found = store.identity().await.map_err(|error| named(&name, error))?;
        *identity = found
            .ok_or_else(|| StoreError::refused(format!("{name} has no identity, by which it would be known again")))?;
    }
    let [old, new] = identities;
    if old == new {
        return Err(StoreError::refused(format!("the old and the new store are one: both have the identity {old}")));
    }
    let is_done = from.stripe().await?.is_some_and(|record| record.has_left_for(new)) && to.stripe().await?.is_none();
    if is_done { Ok(()) } else { resize_stripes(slice::from_ref(from), slice::from_ref(to), 0).await }
}

/// Gives every store a mark of this call, after all have answered and none has refused.
async fn fence<'s>(
    from: &'s [Arc<dyn SegmentStore>],
    to: &'s [Arc<dyn SegmentStore>],
    set: u128,
    floor: u64,
    count: u32,
) -> Result<Vec<Part<'s>>, StoreError> {
    let old = from.iter().zip(0..).map(|(store, index)| (store, format!("old {}", name(index, &**store)), None));
    let new = to.iter().zip(0..).map(|(store, index)| (store, format!("new {}", name(index, &**store)), Some(index)));
    let (mut given, mut records) = (Vec::new(), Vec::new());
    for (store, name, place) in old.chain(new) {
        records.push(store.stripe().await.map_err(|error| named(&name, error))?);
        given.push((store, name, place));
    }
    let mut parts = Vec::new();
    for (((store, name, place), old), number) in given.into_iter().zip(&records).zip(0..) {
        store.check().await.map_err(|error| named(&name, error))?;
        let tags = tags(store).await.map_err(|error| named(&name, error))?;
        check_tags(&name, &tags, old.as_ref(), count)?;
        let (is_old, is_used) = (place.is_none(), !tags.is_empty());
        let identity = match store.identity().await {
            // One that may not be given an identity goes without.
            Err(StoreError::Refused { .. }) => None,
            identity => identity.map_err(|error| named(&name, error))?,
        };
        let before = StoreBefore { name: &name, record: *old, is_old, is_used, identity };
        let fence = Stripe::fence(set, number, &before, &records, new_set()?);
        parts.push(Part { store, name, is_old, place, old: *old, is_used, identity, fence });
    }
    let found = parts.iter().map(|part| {
        let Part { name, old: record, is_old, is_used, identity, .. } = part;
        StoreBefore { name, record: *record, is_old: *is_old, is_used: *is_used, identity: *identity }
    });
    if floor == 0 {
        check_complete(&found.collect::<Vec<_>>())?;
    }
    // All calls begin with the same store: of two at once, one fails there and has changed nothing.
    parts.sort_by_key(|part| (!part.is_old, part.old.map_or(0, |old| old.numbering().0)));
    let mut fenced: Vec<Part<'s>> = Vec::new();
    for part in parts {
        match part.store.restripe(part.old.as_ref(), Some(&part.fence)).await {
            Ok(()) => fenced.push(part),
            // A store that was given twice, as two clients, has the fence that came first.
            Err(StoreError::PlaceChanged { recorded: Some(recorded), what }) => {
                let Some(same) = fenced.iter_mut().find(|same| same.fence == recorded && same.old == part.old) else {
                    return Err(part.error(StoreError::PlaceChanged { recorded: Some(recorded), what }));
                };
                if same.place.is_some() && part.place.is_some() {
                    return Err(StoreError::refused(format!(
                        "{} and {} are one store: name it once",
                        same.name, part.name
                    )));
                }
                same.is_old |= part.is_old;
                if part.place.is_some() {
                    same.name = part.name;
                }
                same.place = same.place.or(part.place);
            }
            Err(error) => return Err(part.error(error)),
        }
    }
    Ok(fenced)
}

/// Lifts every tag of any store in all new stores.
async fn lift(parts: &[Part<'_>], count: u32, floor: u64) -> Result<(), StoreError> {
    let mut all: BTreeMap<String, TagRecord> = BTreeMap::new();
    // Of names that none of the stores knows: `floor`, and what any of them has, which stands for numbers from the
    // start of each name on. As a place in its stripe, a start is less exact by the number of stripes.
    let mut floor_of_names = floor;
    let mut formats: BTreeMap<String, TagOptions> = BTreeMap::new();
    let mut stores = Vec::new();
    for part in parts {
        let joined = part.store.join_stripe(&part.fence).await.map_err(|error| part.error(error))?;
        if joined.numbers != StripeNumbers::Counted {
            return Err(StoreError::refused(format!(
                "{}: its increment and offset are set in the store itself: set them there",
                part.name
            )));
        }
        for record in tags(&joined.store).await.map_err(|error| part.error(error))? {
            if is_kept_format(&record.tag) {
                // What a format was is no number of a stripe. A new store that has it already keeps its own.
                formats.entry(record.tag).or_insert(record.options);
                continue;
            }
            let record = part.numbering().record(record);
            if record.tag == KEPT_FLOOR {
                let inexact = part.numbering().count() + u64::from(count);
                floor_of_names = floor_of_names.max(record.watermark.saturating_add(inexact).min(ID_MAX));
                continue;
            }
            // A time is no number of a stripe, and stays where it is.
            if record.tag == KEPT_LEASE_FLOOR {
                continue;
            }
            match all.get_mut(&record.tag) {
                None => drop(all.insert(record.tag.clone(), record)),
                Some(known) => *known = merged([&*known, &record].into_iter()).unwrap_or(record),
            }
        }
        stores.push(joined.store);
    }
    let lifted = parts.iter().zip(&stores).filter_map(|(part, store)| {
        let index = part.place?;
        let numbering = match count {
            1 => Numbering::ALONE,
            _ => Numbering::new(&Stripe { set: part.fence.set, index, count }, StripeNumbers::Counted),
        };
        let (all, formats) = (&all, &formats);
        Some(async move {
            for record in all.values() {
                lift_tag(store, numbering, record, floor).await.map_err(|error| part.error(error))?;
            }
            for (name, options) in formats {
                match store.create_tag(name, options).await {
                    Ok(_) | Err(StoreError::TagExists { .. }) => {}
                    Err(error) => return Err(part.error(error)),
                }
            }
            // Last, since it lifts the names that are created after it.
            if floor_of_names > 0 {
                lift_floor(store, numbering, floor_of_names).await.map_err(|error| part.error(error))?;
            }
            Ok(())
        })
    });
    join_all(lifted).await.into_iter().collect()
}

/// Always writes the row, however high it is: a tail that its old holder gives back later has the version from before.
async fn lift_tag(
    store: &Arc<dyn SegmentStore>,
    numbering: Numbering,
    record: &TagRecord,
    floor: u64,
) -> Result<(), StoreError> {
    match store.tag(&record.tag).await {
        Err(StoreError::TagUnknown { .. }) => {
            store.create_tag(&record.tag, &numbering.options(&record.options)).await?;
        }
        known => drop(known?),
    }
    // Whoever ended a tag ended it for good.
    match record.watermark.max(floor).checked_add(1).filter(|next| *next <= ID_MAX) {
        Some(next) => store.raise_tag(&record.tag, numbering.ordinal(next)).await.map(drop),
        None => store.retire_tag(&record.tag).await.map(drop),
    }
}

/// Lifts the floor of new names, so that each begins above this number.
async fn lift_floor(store: &Arc<dyn SegmentStore>, numbering: Numbering, floor: u64) -> Result<(), StoreError> {
    match store.create_tag(KEPT_FLOOR, &TagOptions::default()).await {
        // From before, or from a call that was broken off.
        Err(StoreError::TagExists { .. }) => {}
        created => drop(created?),
    }
    match floor.checked_add(1).filter(|next| *next <= ID_MAX) {
        Some(next) => store.raise_tag(KEPT_FLOOR, numbering.ordinal(next)).await.map(drop),
        None => store.retire_tag(KEPT_FLOOR).await.map(drop),
    }
}

/// Checks that the tags of a store can be numbered by so many stores.
fn check_tags(name: &str, tags: &[TagRecord], old: Option<&Stripe>, count: u32) -> Result<(), StoreError> {
    if count > 1
        && let Some(tag) = tags.iter().find(|tag| tag.options.mode == Mode::Ordered)
    {
        return Err(StoreError::refused(format!(
            "{name}: the tag {:?} is ordered, and several stores have no order among them",
            tag.tag
        )));
    }
    // Their numbers are times, and would be others.
    if old.map_or(1, |old| old.numbering().1) != count
        && let Some(tag) = tags.iter().find(|tag| is_kept_time(&tag.tag))
    {
        return Err(StoreError::refused(format!(
            "{name}: it grants time to Redis, for leases or for ids by its clock ({:?}), which cannot be numbered otherwise: \
             let another store stand behind Redis, and make stripes of those that do not",
            tag.tag
        )));
    }
    Ok(())
}

/// All tags of a store, with its own numbers.
async fn tags(store: &Arc<dyn SegmentStore>) -> Result<Vec<TagRecord>, StoreError> {
    let mut tags: Vec<TagRecord> = Vec::new();
    loop {
        let after = tags.last().map(|last| last.tag.clone());
        let page = store.tags(after.as_deref(), PAGE).await?;
        if page.is_empty() {
            return Ok(tags);
        }
        tags.extend(page);
    }
}
