//! What a resize writes into the record of a store's place, so that every step of it can expect its own step before,
//! and so that another resize can tell what it would break.
//!
//! Beside a place of a set there are two marks, which no program can join as a place:
//! - A *fence* says which call fenced the store (the set that it makes), which set the store belonged to or left for
//!   before and how many stores that has, and how its numbers are to be read. Each store of a call has a fence of its
//!   own.
//! - A store that *left* says for which set, and how many stores that has.
//!
//! The set of a store that stands alone has the name of its data: [`StoreIdentity`].

use std::collections::HashSet;

use crate::{StoreError, StoreIdentity, Stripe};

/// In the index of a mark: the store is fenced.
const FENCE: u32 = 1 << 31;

/// In the index of a mark: the store left for the set that is named, and is not one of it.
const LEFT: u32 = 1 << 30;

/// Where the second figure begins that an index or a count of a mark holds.
const SECOND: u32 = 16;

/// The first figure.
const FIRST: u32 = (1 << SECOND) - 1;

/// The name of a set or of the call that makes it: the upper half of its random bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Name(u64);

impl Name {
    const fn of(set: u128) -> Self {
        Self((set >> 64) as u64)
    }

    /// The set of one store that stands alone.
    const fn of_alone(identity: StoreIdentity) -> Self {
        Self::of(identity.0)
    }

    /// The call in a fence.
    #[expect(clippy::cast_possible_truncation, reason = "the lower half of 128 bits")]
    const fn of_call(fence: u128) -> Self {
        Self(fence as u64)
    }
}

impl Stripe {
    /// Whether it is a mark of a resize, and no place that numbers can be granted from.
    #[must_use]
    pub const fn is_mark(&self) -> bool {
        self.index >= LEFT
    }

    pub(crate) const fn is_fence(&self) -> bool {
        self.index >= FENCE
    }

    /// It names a set that the store is not one of.
    pub(super) const fn has_left(&self) -> bool {
        self.index & LEFT != 0
    }

    /// What the store's numbers are: place `index` of `count`, by [the record](crate::SegmentStore::stripe) or by a
    /// mark.
    ///
    /// [SegmentStore::stripe]: crate::SegmentStore::stripe
    #[must_use]
    pub const fn numbering(&self) -> (u32, u32) {
        if self.is_mark() { (self.index & FIRST, self.count & FIRST) } else { (self.index, self.count) }
    }

    /// Checks that a store can keep it: a place, or a mark of a resize.
    ///
    /// # Errors
    /// [`StoreError::Refused`] saying what is out of range.
    pub fn validate_record(&self) -> Result<(), StoreError> {
        let (index, count) = self.numbering();
        // Of a store that stood alone.
        let count = if self.is_mark() && count == 1 { 2 } else { count };
        Self { set: self.set, index, count }.validate()
    }

    /// The fence that the call which makes `set` puts over what the store had, in the part of this number.
    ///
    /// A store that stands alone is marked as the first of one. `unlike` is a random name for what the store belonged
    /// to, where it belonged to nothing.
    pub(super) fn fence(set: u128, part: u32, before: &StoreBefore<'_>, all: &[Option<Self>], unlike: u128) -> Self {
        let StoreBefore { record, is_used, identity, .. } = before;
        let old = record.as_ref();
        let (index, old_count) = old.map_or((0, 1), Self::numbering);
        // If the call before has begun to record its set, it has made this store one of it, or was about to.
        let begun = old.and_then(|old| old.begun(*identity, all));
        let belonging = begun.or_else(|| old.and_then(Self::belonging));
        // Which set a store is that stands alone and has no identity, only those that left for it say.
        let left_for = all.iter().flatten().filter(|other| other.has_left()).find_map(Self::belonging);
        let alone = match identity {
            Some(identity) => Some((Name::of_alone(*identity), 1)),
            None => left_for.filter(|(_, count)| *is_used && *count == 1),
        };
        let belonging = belonging.or(alone.filter(|_| old.is_none()));
        let left = if begun.is_none() && old.is_some_and(Self::has_left) { LEFT } else { 0 };
        let (before, count) = belonging.unwrap_or((Name::of(unlike), 0));
        let set = (u128::from(before.0) << 64) | u128::from(Name::of(set).0);
        Self { set, index: FENCE | left | (part << SECOND) | index, count: (count << SECOND) | old_count }
    }

    /// The mark of a store with this fence that leaves for `set`, which has `count` stores.
    pub(super) fn left(fence: &Self, set: u128, count: u32) -> Self {
        let (index, old_count) = fence.numbering();
        Self { set, index: LEFT | index, count: (count << SECOND) | old_count }
    }

    /// The set that the store belongs to, or left for, and how many stores that has.
    fn belonging(&self) -> Option<(Name, u32)> {
        let count = if self.is_mark() { self.count >> SECOND } else { self.count };
        (count > 0).then_some((Name::of(self.set), count))
    }

    /// The set of the call that fenced the store of this identity, if any of these records says that the call has begun
    /// to record it.
    fn begun(&self, identity: Option<StoreIdentity>, all: &[Option<Self>]) -> Option<(Name, u32)> {
        if !self.is_fence() {
            return None;
        }
        let recorded = |set: Name| all.iter().flatten().filter_map(Self::belonging).find(|(name, _)| *name == set);
        recorded(Name::of_call(self.set)).or_else(|| {
            let left_for = all.iter().flatten().filter(|other| other.has_left()).filter_map(Self::belonging);
            let alone = identity.map(Name::of_alone);
            left_for.into_iter().find(|(name, count)| *count == 1 && Some(*name) == alone)
        })
    }

    /// Whether a store that left by this mark left for that store, which stands alone now.
    pub(super) fn has_left_for(&self, identity: StoreIdentity) -> bool {
        self.has_left() && !self.is_fence() && self.belonging() == Some((Name::of_alone(identity), 1))
    }

    /// The set whose stores must all be known before the store's record may be changed, and how many they are.
    fn demands(&self, part: &StoreBefore<'_>, all: &[Option<Self>]) -> Option<(Name, usize)> {
        // As a new store, one that left is as good as any.
        let belonging = self.belonging().filter(|_| part.is_old || !self.has_left());
        // Who has begun to record a new set had fenced all stores of the one before.
        let (name, count) = self.begun(part.identity, all).or(belonging)?;
        Some((name, usize::try_from(count).ok()?))
    }

    /// Whether the store is, or is about to be, one of this set.
    fn is_of(&self, set: Name) -> bool {
        let is_member = !self.has_left() && self.belonging().is_some_and(|(name, _)| name == set);
        is_member || self.is_fence() && Name::of_call(self.set) == set
    }
}

/// What is known of a store before a resize.
pub(super) struct StoreBefore<'p> {
    /// For messages.
    pub(super) name: &'p str,
    pub(super) record: Option<Stripe>,
    /// It is among the stores of the old set.
    pub(super) is_old: bool,
    /// It has tags.
    pub(super) is_used: bool,
    pub(super) identity: Option<StoreIdentity>,
}

impl StoreBefore<'_> {
    /// Whether it is the only store of this set, which its record does not say: it stands alone, or is fenced.
    fn is_alone(&self, set: Name) -> bool {
        match (self.record, self.identity) {
            (Some(record), _) if !record.is_fence() => false,
            (_, Some(identity)) => Name::of_alone(identity) == set,
            (record, None) => record.is_none() && self.is_used,
        }
    }
}

/// Checks that no store outside these belongs to the set of any of them.
///
/// Another resize may have moved a store on to a set that has more stores than were named here, or may be about to: who
/// went on without those would number beside them.
///
/// # Errors
/// [`StoreError::Refused`] naming the store.
pub(super) fn check_complete(found: &[StoreBefore<'_>]) -> Result<(), StoreError> {
    let all: Vec<_> = found.iter().map(|part| part.record).collect();
    for part in found {
        let Some((set, count)) = part.record.and_then(|record| record.demands(part, &all)) else { continue };
        let members = found.iter().filter_map(|part| part.record).filter(|record| record.is_of(set));
        let members: HashSet<_> = members.collect();
        let stands_alone = count == 1 && found.iter().any(|part| part.is_alone(set));
        if members.len() < count && !stands_alone {
            return Err(StoreError::refused(format!(
                "{}: another resize made it part of, or had it leave for, a set of {count} stores, of which {} were named: \
                 name all stores of that set; if one of them is lost, give the greatest number that may have been handed \
                 out as the floor",
                part.name,
                members.len()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: u128 = 0xaaaa << 64 | 0xbbbb;
    const OTHER: u128 = 0xcccc << 64 | 0xdddd;

    fn found(record: Option<Stripe>) -> StoreBefore<'static> {
        StoreBefore { name: "a store", record, is_old: true, is_used: true, identity: None }
    }

    fn fence(set: u128, part: u32, record: Option<Stripe>, all: &[Option<Stripe>], unlike: u128) -> Stripe {
        Stripe::fence(set, part, &found(record), all, unlike)
    }

    #[test]
    fn marks_keep_how_numbers_are_read_and_are_no_places() {
        let place = Stripe { set: SET, index: 1_022, count: 1_024 };
        let fenced = fence(OTHER, 2_047, Some(place), &[], 1);
        let left = Stripe::left(&fenced, OTHER, 1_024);
        for mark in [fenced, left, fence(SET, 0, Some(left), &[], 1)] {
            assert_eq!(mark.numbering(), (1_022, 1_024));
            assert!(mark.is_mark() && mark.validate().is_err() && mark.validate_record().is_ok(), "{mark:?}");
        }
        assert!(!place.is_mark() && place.validate_record().is_ok());
        let alone = fence(SET, 0, None, &[], 1);
        assert_eq!(alone.numbering(), (0, 1));
        assert!(alone.validate_record().is_ok() && alone.validate().is_err());
        assert_ne!(alone, fence(SET, 1, None, &[], 1), "each store has its own");
    }

    #[test]
    fn a_set_is_complete_with_all_its_places_and_with_the_fences_that_stand_for_them() {
        let place = |index| Stripe { set: SET, index, count: 2 };
        let fence_of = |part, old| fence(OTHER, part, Some(old), &[], 1);
        let complete = |records: &[Stripe]| {
            check_complete(&records.iter().map(|record| found(Some(*record))).collect::<Vec<_>>()).is_ok()
        };
        assert!(complete(&[place(0), place(1)]));
        assert!(!complete(&[place(0)]) && !complete(&[place(0), place(0)]));
        assert!(complete(&[place(0), fence_of(1, place(1))]), "fenced on the way");
        assert!(!complete(&[fence_of(0, place(0))]), "the other may still be used");
        assert!(complete(&[fence(OTHER, 0, None, &[], 7)]), "it stood alone");
        // One that left for a set that is being recorded.
        let left = Stripe::left(&fence_of(0, place(0)), OTHER, 2);
        let new = Stripe { set: OTHER, index: 0, count: 2 };
        let made = fence(OTHER, 1, None, &[], 7);
        assert!(complete(&[left, new, made]) && !complete(&[left, new]) && !complete(&[left]));
        let taken = fence(SET, 1, Some(made), &[Some(left), Some(new), Some(made)], 7);
        assert!(complete(&[left, new, taken]), "and the next call goes on there");
        assert!(!complete(&[left, new, fence(SET, 1, Some(made), &[], 7)]), "unless nothing was recorded");
        let as_new = StoreBefore { is_old: false, ..found(Some(left)) };
        assert!(check_complete(&[found(None), as_new]).is_ok());
    }
    #[test]
    fn a_store_that_stands_alone_is_known_by_its_identity() {
        let (new, other) = (StoreIdentity(SET), StoreIdentity(OTHER));
        let named = |record, identity| StoreBefore { identity: Some(identity), ..found(record) };
        let left = Stripe::left(&fence(OTHER, 0, None, &[], 7), new.0, 1);
        assert!(left.has_left_for(new) && !left.has_left_for(other));
        let complete = |found: &[StoreBefore<'_>]| check_complete(found).is_ok();
        assert!(complete(&[found(Some(left)), named(None, new)]));
        assert!(!complete(&[found(Some(left)), named(None, other)]), "it left for another one");
        assert!(!complete(&[found(Some(left))]));
        // Fenced by a call that broke off, or by one that is under way.
        for before in [None, Some(Stripe::left(&fence(7, 0, None, &[], 7), other.0, 1))] {
            let fenced = Stripe::fence(OTHER, 1, &named(before, new), &[], 7);
            let both = [found(Some(left)), named(Some(fenced), new)];
            assert!(complete(&both), "{before:?}");
            let elsewhere = Stripe::fence(OTHER, 1, &named(before, other), &[], 7);
            assert!(!complete(&[found(Some(left)), named(Some(elsewhere), other)]), "{before:?}");
            let again = Stripe::fence(9, 1, &both[1], &[Some(left), Some(fenced)], 7);
            assert!(!again.has_left(), "it is what the call before was about to make of it");
        }
    }
}
