//! Another number of stripes, or another order, or other stores.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use unalike_core::ID_MAX;

use super::members::{full_text, with_text};
use super::numbering::{Numbering, merged};
use super::{new_set, refused};
use crate::{Mode, SegmentStore, StoreError, Stripe, StripeNumbers, TagRecord};

/// How many tags are read at once.
const PAGE: u32 = 1_000;

/// A store that takes part, and what its numbers meant until now.
struct Part<'s> {
    store: &'s Arc<dyn SegmentStore>,
    /// For messages: which of the stores that were given.
    name: String,
    /// Whether it is one of the new set: at this place.
    place: Option<u32>,
    old: Option<Stripe>,
    /// The place that nobody but this call knows of, so that nobody else is granted anything.
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
/// 1. Every store is fenced: it is given a place that nobody knows, so **running programs are granted nothing from it
///    until they are restarted** with the new set. What they hold already stays theirs.
/// 2. Every tag of any store is lifted, in all stores of `to`, above the greatest number that any store may have
///    granted, and above `floor`. It is created where it is missing.
/// 3. The places of the new set are recorded. Stores that leave stay fenced for good.
///
/// A store that is lost is not among `from`; what it granted is not known then: `floor` must be the greatest number
/// that may have been handed out (0 when no store is lost). Watermarks are only lifted, so each resize leaves gaps: a
/// tag of a store that goes from `n` to `m` stripes goes on at about `m / n` times its number, and after a crash once
/// more.
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
/// when `floor` is above 2^63 - 1, and when several stores shall have a tag that is ordered; and whatever a connection
/// brings. Call it again then.
pub async fn resize_stripes(
    from: &[Arc<dyn SegmentStore>],
    to: &[Arc<dyn SegmentStore>],
    floor: u64,
) -> Result<(), StoreError> {
    let count = u32::try_from(to.len()).unwrap_or(u32::MAX);
    if !(1..=Stripe::COUNT_MAX).contains(&count) {
        return Err(refused(format!(
            "{count} stores were given as the new stripes, and 1 to {} can be",
            Stripe::COUNT_MAX
        )));
    }
    if floor > ID_MAX {
        return Err(refused(format!("the floor is {floor}, and no number is above 2^63 - 1")));
    }
    let parts = fence(from, to).await?;
    lift(&parts, count, floor).await?;

    let set = new_set()?;
    for (place, part) in parts.iter().filter_map(|part| Some((part.place?, part))) {
        let stripe = (count > 1).then_some(Stripe { set, index: place, count });
        part.store.restripe(stripe.as_ref()).await.map_err(|error| part.error(error))?;
    }
    tracing::info!(count, "the stripes were resized");
    Ok(())
}

/// Gives every store a place that only this call knows, after all have answered and none has refused.
async fn fence<'s>(
    from: &'s [Arc<dyn SegmentStore>],
    to: &'s [Arc<dyn SegmentStore>],
) -> Result<Vec<Part<'s>>, StoreError> {
    let old = from.iter().zip(0..).map(|(store, index)| (store, format!("old store {index}"), None));
    let new = to.iter().zip(0..).map(|(store, index)| (store, format!("new store {index}"), Some(index)));
    let mut parts = Vec::new();
    for (store, name, place) in old.chain(new) {
        let old = store.stripe().await.map_err(|error| named(&name, error))?;
        // A store that stands alone has no place. If this call does not get to the end, the next one takes its numbers
        // for those of this fence, which are greater.
        let (index, count) = old.map_or((0, 2), |old| (old.index, old.count));
        parts.push(Part { store, name, place, old, fence: Stripe { set: new_set()?, index, count } });
    }
    for part in &parts {
        part.store.check().await.map_err(|error| part.error(error))?;
        if to.len() > 1
            && let Some(tag) = tags(part).await?.into_iter().find(|tag| tag.options.mode == Mode::Ordered)
        {
            return Err(refused(format!(
                "{}: the tag {:?} is ordered, and several stores have no order among them",
                part.name, tag.tag
            )));
        }
    }
    for part in &parts {
        part.store.restripe(Some(&part.fence)).await.map_err(|error| part.error(error))?;
    }
    // A store that was given twice, as two clients, has the fence that came last.
    let mut once: BTreeMap<u128, Part<'s>> = BTreeMap::new();
    for part in parts {
        let recorded = part.store.stripe().await.map_err(|error| part.error(error))?;
        let Some(set) = recorded.map(|recorded| recorded.set) else {
            return Err(refused(format!("{}: somebody else is resizing it", part.name)));
        };
        if let Some(same) = once.get(&set)
            && same.place.is_some()
        {
            return Err(refused(format!("{} and {} are one store: name it once", same.name, part.name)));
        }
        once.insert(set, part);
    }
    once.into_iter()
        .map(|(set, part)| {
            let others = format!("{}: somebody else is resizing it", part.name);
            if part.fence.set == set { Ok(part) } else { Err(refused(others)) }
        })
        .collect()
}

/// Lifts every tag of any store in all new stores.
async fn lift(parts: &[Part<'_>], count: u32, floor: u64) -> Result<(), StoreError> {
    let mut all: BTreeMap<String, TagRecord> = BTreeMap::new();
    for part in parts {
        let numbers = part.store.join_stripe(&part.fence).await.map_err(|error| part.error(error))?;
        if numbers != StripeNumbers::Counted {
            return Err(refused(format!(
                "{}: its increment and offset are set in the store itself: set them there",
                part.name
            )));
        }
        for record in tags(part).await? {
            let record = part.numbering().record(record);
            match all.get_mut(&record.tag) {
                None => drop(all.insert(record.tag.clone(), record)),
                Some(known) => *known = merged([&*known, &record].into_iter()).unwrap_or(record),
            }
        }
    }
    let lifted = parts.iter().filter_map(|part| {
        let index = part.place?;
        let numbering = match count {
            1 => Numbering::ALONE,
            _ => Numbering::new(&Stripe { set: part.fence.set, index, count }, StripeNumbers::Counted),
        };
        let all = &all;
        Some(async move {
            for record in all.values() {
                lift_tag(part.store, numbering, record, floor).await.map_err(|error| part.error(error))?;
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

/// All tags of a store, with its own numbers.
async fn tags(part: &Part<'_>) -> Result<Vec<TagRecord>, StoreError> {
    let mut tags: Vec<TagRecord> = Vec::new();
    loop {
        let after = tags.last().map(|last| last.tag.clone());
        let page = part.store.tags(after.as_deref(), PAGE).await.map_err(|error| part.error(error))?;
        if page.is_empty() {
            return Ok(tags);
        }
        tags.extend(page);
    }
}
