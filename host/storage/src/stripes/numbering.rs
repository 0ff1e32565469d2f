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
        Self { count: u64::from(stripe.count), first: u64::from(stripe.index) + 1, numbers }
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
            return Err(StoreError::Exhausted { tag: tag.to_owned() });
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
            return Err(StoreError::Corrupt { what, source: None });
        }
        if self.numbers == StripeNumbers::Strided {
            return Ok(segment);
        }
        let last = (segment.end - 1).min(self.ordinal_max());
        if segment.start > last {
            return Err(StoreError::Exhausted { tag: tag.to_owned() });
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
        let watermark = match record.watermark.min(self.ordinal_max()) {
            0 => 0,
            ordinal => self.number(ordinal),
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
