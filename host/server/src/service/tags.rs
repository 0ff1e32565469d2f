//! What changes a tag: a change of its policies, a raise, and what is said where nothing changed.

use unalike::storage::{SegmentStore, ShellWord, StoreError, TagOptions, TagRecord, shown, split_tag};
use unalike::{ID_MAX, RefillPolicy, StepPolicy};

/// A raise by more numbers than this is asked for twice: nobody ever gets them, and no raise is taken back.
pub(crate) const RAISE_MAX: u64 = 1_000_000_000;

/// A raise that was not confirmed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}, and a raise by more than {RAISE_MAX} must be confirmed", self.how_far())]
pub(crate) struct Unconfirmed {
    name: String,
    pub(crate) watermark: u64,
    next: u64,
    pub(crate) skipped: u64,
}

impl Unconfirmed {
    /// Without what to do.
    pub(crate) fn how_far(&self) -> String {
        let Self { name, watermark, next, skipped } = self;
        format!(
            "the numbers of {name} have got to {watermark}, and {next} is {skipped} further on: nobody would ever get those \
             between"
        )
    }
}

/// Refuses to raise a tag so far without being told twice.
///
/// # Errors
/// [`Unconfirmed`].
pub(crate) fn check_raise(name: &str, watermark: u64, next: u64) -> Result<(), Unconfirmed> {
    let skipped = next.saturating_sub(1).saturating_sub(watermark);
    if skipped <= RAISE_MAX {
        return Ok(());
    }
    let (tag, sub) = split_tag(name);
    let name = sub.map_or_else(|| format!("the tag {tag:?}"), |sub| format!("the sub-key {sub:?} of the tag {tag:?}"));
    Err(Unconfirmed { name, watermark, next, skipped })
}

/// A tag as it is, with the last number that may have been handed out for its watermark: below a ceiling that is less.
pub(crate) async fn reached(store: &dyn SegmentStore, name: &str) -> Result<TagRecord, StoreError> {
    let mut record = store.tag(name).await?;
    if let Some(ceiling) = store.ceiling(name).await? {
        record.watermark = ceiling.last;
    }
    Ok(record)
}

/// What to do where a tag that is to be raised is not there. An id that is taken would create it too, from its first
/// number on: after a loss that is one which somebody has.
pub(crate) fn instead_of_raise(name: &str, next: u64) -> String {
    match split_tag(name) {
        (tag, None) => format!(
            "the tag {tag:?} is unknown, so there is nothing to raise: create it from there on, with \
             `unalike tags create --start {next} -- {}`",
            ShellWord(tag)
        ),
        (tag, Some(sub)) => format!(
            "the tag {tag:?} has no sub-key {sub:?}, so there is nothing to raise: take an id of it, which creates it, and \
             throw that id away; then raise it"
        ),
    }
}

/// Why a change of a tag changed nothing, if it did not: `before` is the tag as it was, and `next` what it was raised
/// to.
pub(crate) fn unchanged(before: &TagRecord, after: &TagRecord, next: Option<u64>) -> Option<String> {
    let is_raised = after.watermark < ID_MAX && next.is_some_and(|next| before.watermark < next.saturating_sub(1));
    if is_raised || (before.options.step, before.options.refill) != (after.options.step, after.options.refill) {
        return None;
    }
    let name = shown(&after.tag);
    Some(match next {
        // A raise does not get there by itself.
        Some(_) if after.watermark >= ID_MAX => format!("nothing changed: {}", StoreError::exhausted(&after.tag)),
        Some(next) => format!(
            "nothing changed: numbers of {name} up to {} may have been handed out already, and every later one is {next} or \
             above; a tag is never lowered",
            before.watermark
        ),
        None => format!("nothing changed: step and refill of {name} are so already"),
    })
}

/// The same for a tag of a store, whose watermark is asked for only where that matters.
///
/// # Errors
/// [`Unconfirmed`], and what the store says.
pub(crate) async fn check_raise_of<E: From<Unconfirmed> + From<StoreError>>(
    store: &dyn SegmentStore,
    name: &str,
    next: u64,
    is_confirmed: bool,
) -> Result<(), E> {
    // Beyond the last number the store refuses it, and says more.
    if is_confirmed || next <= RAISE_MAX || next > ID_MAX {
        return Ok(());
    }
    Ok(check_raise(name, store.tag(name).await?.watermark, next)?)
}

/// Replaces the policies of a tag that are given, and leaves the others.
///
/// # Errors
/// As [`SegmentStore::change_tag`].
pub(crate) async fn change_tag(
    store: &dyn SegmentStore,
    tag: &str,
    step: Option<StepPolicy>,
    refill: Option<RefillPolicy>,
) -> Result<TagRecord, StoreError> {
    let current = store.tag(tag).await?;
    if step.is_none() && refill.is_none() {
        return Ok(current);
    }
    let (step, refill) = (step.unwrap_or(current.options.step), refill.unwrap_or(current.options.refill));
    store.change_tag(tag, step, refill).await
}

/// Creates a tag, and says whether as it is wanted: a table or key of another system may have no place for a step or a
/// refill policy, and gets the tag with those that its tags have.
///
/// # Errors
/// As [`SegmentStore::create_tag`].
pub(crate) async fn create_as_can_be(
    store: &dyn SegmentStore,
    tag: &str,
    wanted: &TagOptions,
) -> Result<(TagRecord, bool), StoreError> {
    let plain = TagOptions { start: wanted.start, mode: wanted.mode, ..TagOptions::default() };
    match store.create_tag(tag, wanted).await {
        Err(StoreError::Refused { .. } | StoreError::TagInvalid { .. }) if *wanted != plain => {
            Ok((store.create_tag(tag, &plain).await?, false))
        }
        created => Ok((created?, true)),
    }
}
