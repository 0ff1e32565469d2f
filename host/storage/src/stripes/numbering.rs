//! From the numbers of one store to those of the whole set, and back: exact, and up to 2^63 - 1.

use unalike_core::{ID_MAX, Segment, TailRelease};

use crate::{StoreError, Stripe, StripeNumbers, TagOptions, TagRecord};

/// What the numbers of one store are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbering {
    /// The distance between two numbers of the store: 1 if it stands alone.
    count: u64,
    /// The first number that can be the store's: 1 to `count`.
    first: u64,
    numbers: StripeNumbers,
}

impl Numbering {
    /// That of a store that stands alone.
    pub(super) const ALONE: Self = Self { count: 1, first: 1, numbers: StripeNumbers::Counted };

    pub(super) fn new(stripe: &Stripe, numbers: StripeNumbers) -> Self {
        let (index, count) = stripe.numbering();
        Self { count: u64::from(count), first: u64::from(index) + 1, numbers }
    }

    /// The distance between two numbers of the store.
    pub(super) const fn count(self) -> u64 {
        self.count
    }

    /// Which of `count` stores, by its place, has granted a number; none grants 0.
    pub(super) fn index_of(number: u64, count: usize) -> Option<usize> {
        usize::try_from(number.checked_sub(1)? % u64::try_from(count).ok()?).ok()
    }

    /// The number that the store's `ordinal`, 1 or more, stands for. What does not fit is above [`ID_MAX`] in any case.
    const fn number(self, ordinal: u64) -> u64 {
        match self.numbers {
            StripeNumbers::Counted => (ordinal - 1).saturating_mul(self.count).saturating_add(self.first),
            StripeNumbers::Strided => ordinal,
        }
    }

    /// The first ordinal, 1 or more, whose number is `number` or above.
    pub(super) const fn ordinal(self, number: u64) -> u64 {
        match self.numbers {
            StripeNumbers::Counted => number.saturating_sub(self.first).div_ceil(self.count) + 1,
            StripeNumbers::Strided if number == 0 => 1,
            StripeNumbers::Strided => number,
        }
    }

    /// The greatest ordinal whose number is an id.
    pub(super) const fn ordinal_max(self) -> u64 {
        match self.numbers {
            StripeNumbers::Counted => (ID_MAX - self.first) / self.count + 1,
            StripeNumbers::Strided => ID_MAX,
        }
    }

    /// What the store is asked for.
    pub(super) fn request(self, tag: &str, count: u64, at_least: u64) -> Result<(u64, u64), StoreError> {
        let at_least = if at_least == 0 { 0 } else { self.ordinal(at_least) };
        if at_least > self.ordinal_max() {
            return Err(StoreError::exhausted(tag));
        }
        Ok((count.min(self.ordinal_max()), at_least))
    }

    /// What the store granted; what lies above the greatest id is left.
    pub(super) fn segment(self, tag: &str, segment: Segment) -> Result<Segment, StoreError> {
        let fits = segment.validate().is_ok()
            && match self.numbers {
                StripeNumbers::Counted => segment.stride == 1,
                StripeNumbers::Strided => {
                    segment.stride.is_multiple_of(self.count) && segment.start % self.count == self.first % self.count
                }
            };
        if !fits {
            let what = format!(
                "it granted {segment:?} under {tag:?}, and its numbers must be {} modulo {}: correct its increment and offset",
                self.first, self.count
            );
            return Err(StoreError::corrupt(what));
        }
        if self.numbers == StripeNumbers::Strided {
            return Ok(segment);
        }
        let last = (segment.end - 1).min(self.ordinal_max());
        if segment.start > last {
            return Err(StoreError::exhausted(tag));
        }
        Ok(Segment {
            start: self.number(segment.start),
            end: self.number(last) + self.count,
            stride: self.count,
            ..segment
        })
    }

    /// A tail of this store's numbers.
    pub(super) const fn tail(self, tail: TailRelease) -> TailRelease {
        TailRelease { start: self.ordinal(tail.start), ..tail }
    }

    /// Options for this store.
    pub(super) fn options(self, options: &TagOptions) -> TagOptions {
        TagOptions { start: self.ordinal(options.start), ..*options }
    }

    /// What the store knows about a tag.
    pub(super) fn record(self, record: TagRecord) -> TagRecord {
        let watermark = match record.watermark {
            0 => 0,
            // Whoever ended the tag ended it in the set, whatever the greatest number of this store is.
            ID_MAX => ID_MAX,
            ordinal => self.number(ordinal.min(self.ordinal_max())),
        };
        let options = TagOptions { start: self.number(record.options.start).min(ID_MAX), ..record.options };
        TagRecord { options, watermark, ..record }
    }
}

/// One record for the tag, from those of several stores: the first start, the greatest watermark and version.
pub(super) fn merged<'r>(records: impl Iterator<Item = &'r TagRecord>) -> Option<TagRecord> {
    let mut merged: Option<TagRecord> = None;
    for record in records {
        match &mut merged {
            None => merged = Some(record.clone()),
            Some(merged) => {
                merged.options.start = merged.options.start.min(record.options.start);
                merged.watermark = merged.watermark.max(record.watermark);
                merged.version = merged.version.max(record.version);
            }
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use unalike_core::StepPolicy;

    use super::*;

    /// Any place, small sets and large ones.
    fn numbering() -> impl Strategy<Value = Numbering> {
        (prop_oneof![2..=5_u32, 2..=Stripe::COUNT_MAX], any::<u32>()).prop_map(|(count, index)| {
            Numbering::new(&Stripe { set: 1, index: index % count, count }, StripeNumbers::Counted)
        })
    }

    /// Any number, many of them near the ends.
    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![1..5_000_u64, 1..=ID_MAX, ID_MAX - 5_000..=ID_MAX]
    }

    fn segment(start: u64, end: u64) -> Segment {
        Segment { start, end, stride: 1, generation: 0, version: 7 }
    }

    proptest! {
        #[test]
        fn each_number_is_of_one_store_and_comes_back(count in 2..=Stripe::COUNT_MAX, number in number()) {
            let index = Numbering::index_of(number, count as usize).unwrap();
            for other in [0, index, count as usize - 1] {
                let stripe = Stripe { set: 1, index: u32::try_from(other).unwrap(), count };
                let numbering = Numbering::new(&stripe, StripeNumbers::Counted);
                let ordinal = numbering.ordinal(number);
                prop_assert_eq!(numbering.number(ordinal) == number, other == index);
                prop_assert!(numbering.number(ordinal) >= number, "none is below");
                prop_assert!(ordinal == 1 || numbering.number(ordinal - 1) < number, "and none is skipped");
            }
        }

        #[test]
        fn a_grant_keeps_its_count_and_its_tail(numbering in numbering(), start in number(), count in 1..10_000_u64) {
            let start = start.min(numbering.ordinal_max());
            let end = start + count;
            let granted = numbering.segment("tag", segment(start, end)).unwrap();
            prop_assert_eq!(granted.validate(), Ok(()));
            prop_assert_eq!(granted.count(), count.min(numbering.ordinal_max() - start + 1));
            prop_assert_eq!((granted.stride, granted.version), (numbering.count, 7));
            prop_assert_eq!(granted.start % numbering.count, numbering.first % numbering.count);
            for kept in [0, granted.count() / 2, granted.count() - 1] {
                let tail = TailRelease { start: granted.start + kept * granted.stride, version: 7 };
                prop_assert_eq!(numbering.tail(tail), TailRelease { start: start + kept, version: 7 });
            }
            // What follows begins at its end, also when that is what is asked for.
            if granted.end <= ID_MAX {
                prop_assert_eq!(numbering.request("tag", count, granted.end).unwrap().1, end);
            }
        }

        #[test]
        fn beyond_the_last_number_a_store_is_exhausted(numbering in numbering(), beyond in 1..10_000_u64) {
            let max = numbering.ordinal_max();
            let last = numbering.number(max);
            prop_assert!(last <= ID_MAX && last + numbering.count > ID_MAX);
            let whole = numbering.segment("tag", segment(max, max + beyond)).unwrap();
            prop_assert_eq!((whole.start, whole.end), (last, last + numbering.count));
            let above = numbering.segment("tag", segment(max + beyond, max + beyond + 1));
            prop_assert!(matches!(above, Err(StoreError::Exhausted { .. })), "{:?}", above);
            prop_assert_eq!(numbering.request("tag", u64::MAX, last).unwrap(), (max, max));
            if last < ID_MAX {
                let above = numbering.request("tag", 1, last + 1);
                prop_assert!(matches!(above, Err(StoreError::Exhausted { .. })), "{:?}", above);
            }
        }

        #[test]
        fn a_new_tag_starts_and_stands_where_it_was_told_to(count in 2..=Stripe::COUNT_MAX, start in number()) {
            let options = TagOptions { start, step: StepPolicy::Fixed { step: 3 }, ..TagOptions::default() };
            let records: Vec<_> = (0..count).map(|index| {
                let numbering = Numbering::new(&Stripe { set: 1, index, count }, StripeNumbers::Counted);
                let options = numbering.options(&options);
                options.validate("tag").unwrap();
                let record = TagRecord { tag: "tag".to_owned(), options, watermark: options.start - 1, version: 0 };
                numbering.record(record)
            }).collect();
            let record = merged(records.iter()).unwrap();
            prop_assert_eq!((record.options, record.watermark), (options, start - 1));
        }
    }

    #[test]
    fn numbers_that_are_not_the_stripe_s_are_refused() {
        let strided = Numbering::new(&Stripe { set: 1, index: 1, count: 3 }, StripeNumbers::Strided);
        for (start, end, stride, fits) in
            [(2, 14, 3, true), (2, 14, 6, true), (3, 15, 3, false), (2, 14, 1, false), (2, 14, 2, false)]
        {
            let granted = Segment { stride, ..segment(start, end) };
            let passed = strided.segment("tag", granted);
            assert_eq!(passed.as_ref().ok(), fits.then_some(&granted), "{passed:?}");
        }
        let counted = Numbering::new(&Stripe { set: 1, index: 1, count: 3 }, StripeNumbers::Counted);
        for granted in [Segment { stride: 3, ..segment(2, 14) }, segment(5, 5), segment(0, 5)] {
            assert!(matches!(counted.segment("tag", granted), Err(StoreError::Corrupt { .. })), "{granted:?}");
        }
    }
}
