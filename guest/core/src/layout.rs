//! The bit layout of a snowflake id: widths, epoch and tick, and the exact way from fields to an id and back.
//!
//! Invariant: a [`Layout`] that exists is valid (its fields fit 63 bits, its last tick ends within 64-bit
//! milliseconds), so nothing here can overflow. A value that does not fit its field is an error and never cut off:
//! a masked field is a duplicate id. Which ticks and workers may be used at all is no question for a layout; that is
//! the lease's.

use core::{fmt, ops::RangeInclusive};

use crate::LayoutError;

/// The greatest sum of all widths, in bits: ids fit a signed 64-bit column.
const BITS_MAX: u32 = 63;

/// The greatest width of datacenter and worker together, and of the sequence, in bits.
const FIELD_BITS_MAX: u32 = 31;

/// Where the worker and the sequence stand below the timestamp of a snowflake id.
///
/// ```
/// use unalike_core::{FieldOrder, Layout};
/// assert_eq!(Layout::TWITTER.order(), FieldOrder::WorkerFirst);
/// assert_eq!(Layout::SONYFLAKE.order(), FieldOrder::SequenceFirst);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldOrder {
    /// timestamp | datacenter | worker | sequence (Twitter, Leaf, most others).
    WorkerFirst,
    /// timestamp | sequence | datacenter | worker (Sonyflake).
    SequenceFirst,
}

/// What a layout is made of; any values, checked by [`Layout::new`].
///
/// ```
/// use unalike_core::{Layout, LayoutFields};
/// // Twitter's widths, counted from 2026-01-01.
/// let layout = Layout::new(LayoutFields { epoch_ms: 1_767_225_600_000, ..Layout::TWITTER.fields() })?;
/// assert_eq!(layout.bits(), 63);
/// # Ok::<(), unalike_core::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LayoutFields {
    /// Width of the timestamp field, which counts ticks since the epoch, in bits: at least 1.
    pub timestamp_bits: u8,
    /// Width of the datacenter field, the high bits of the worker id; 0 where a layout has none.
    pub datacenter_bits: u8,
    /// Width of the worker field without the datacenter, in bits; 31 at most together with the datacenter.
    pub worker_bits: u8,
    /// Width of the sequence field, in bits: 0 to 31.
    pub sequence_bits: u8,
    /// Order of the fields below the timestamp.
    pub order: FieldOrder,
    /// The instant at which tick 0 begins, in Unix milliseconds.
    pub epoch_ms: u64,
    /// Length of one tick, in milliseconds: at least 1.
    pub tick_ms: u32,
}

/// The fields of one snowflake id, as they stand in its bits.
///
/// ```
/// use unalike_core::{Layout, Parts};
/// let id = Layout::TWITTER.pack(Parts { ticks: 1_000, worker: 33, sequence: 7 })?;
/// assert_eq!(Layout::TWITTER.split_worker(Layout::TWITTER.unpack(id)?.worker)?, (1, 1));
/// # Ok::<(), unalike_core::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Parts {
    /// Ticks since the layout's epoch.
    pub ticks: u64,
    /// Datacenter and worker as one number; [`Layout::split_worker`] takes it apart.
    pub worker: u32,
    /// The number within the tick and worker.
    pub sequence: u32,
}

/// Bit widths, epoch and tick of a snowflake id, checked when it was made.
///
/// ```
/// use unalike_core::{Layout, Parts};
///
/// let parts = Parts { ticks: 278_898_726_177, worker: 39, sequence: 3448 };
/// let id = Layout::LEAF.pack(parts)?;
/// assert_eq!(id, 1_169_786_042_799_259_000);
/// assert_eq!(Layout::LEAF.unpack(id)?, parts);
/// assert_eq!(Layout::LEAF.tick_start_ms(parts.ticks), 1_567_733_700_834);
/// # Ok::<(), unalike_core::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    fields: LayoutFields,
}

impl Layout {
    /// A layout of these fields.
    ///
    /// It is a `const fn`, so that a layout known in advance is proven when it is compiled:
    ///
    /// ```
    /// use unalike_core::{FieldOrder, Layout, LayoutFields};
    ///
    /// const OURS: Layout = match Layout::new(LayoutFields {
    ///     timestamp_bits: 41,
    ///     datacenter_bits: 0,
    ///     worker_bits: 8,
    ///     sequence_bits: 14,
    ///     order: FieldOrder::WorkerFirst,
    ///     epoch_ms: 1_735_689_600_000, // 2025-01-01T00:00:00Z
    ///     tick_ms: 1,
    /// }) {
    ///     Ok(layout) => layout,
    ///     Err(_) => panic!("a bad layout"),
    /// };
    /// assert_eq!((OURS.workers(), OURS.ids_per_tick()), (256, 16_384));
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::TooWide`] when the widths sum to more than 63 bits, [`LayoutError::FieldWidth`] when one of them
    /// is out of its range, [`LayoutError::TickZero`], and [`LayoutError::EpochTooLate`] when the last tick ends later
    /// than 64 bits of milliseconds can say.
    pub const fn new(fields: LayoutFields) -> Result<Self, LayoutError> {
        let timestamp_bits = fields.timestamp_bits as u32;
        let worker_bits = fields.datacenter_bits as u32 + fields.worker_bits as u32;
        let sequence_bits = fields.sequence_bits as u32;
        let bits = timestamp_bits + worker_bits + sequence_bits;
        if bits > BITS_MAX {
            return Err(LayoutError::TooWide { bits });
        }
        if timestamp_bits == 0 || worker_bits > FIELD_BITS_MAX || sequence_bits > FIELD_BITS_MAX {
            return Err(LayoutError::FieldWidth);
        }
        if fields.tick_ms == 0 {
            return Err(LayoutError::TickZero);
        }
        let Some(span_ms) = (1_u64 << timestamp_bits).checked_mul(fields.tick_ms as u64) else {
            return Err(LayoutError::EpochTooLate);
        };
        if fields.epoch_ms.checked_add(span_ms).is_none() {
            return Err(LayoutError::EpochTooLate);
        }
        Ok(Self { fields })
    }

    /// What the layout is made of; [`Layout::new`] of it gives the same layout.
    #[must_use]
    pub const fn fields(&self) -> LayoutFields {
        self.fields
    }

    /// The instant at which tick 0 begins, in Unix milliseconds.
    #[must_use]
    pub const fn epoch_ms(&self) -> u64 {
        self.fields.epoch_ms
    }

    /// Length of one tick, in milliseconds: at least 1.
    #[must_use]
    pub const fn tick_ms(&self) -> u32 {
        self.fields.tick_ms
    }

    /// Width of the timestamp field: 1 to 63 bits.
    #[must_use]
    pub const fn timestamp_bits(&self) -> u8 {
        self.fields.timestamp_bits
    }

    /// Width of the datacenter field: 0 to 31 bits.
    #[must_use]
    pub const fn datacenter_bits(&self) -> u8 {
        self.fields.datacenter_bits
    }

    /// Width of the worker field without the datacenter: 0 to 31 bits.
    #[must_use]
    pub const fn worker_bits(&self) -> u8 {
        self.fields.worker_bits
    }

    /// Width of the sequence field: 0 to 31 bits.
    #[must_use]
    pub const fn sequence_bits(&self) -> u8 {
        self.fields.sequence_bits
    }

    /// Order of the fields below the timestamp.
    #[must_use]
    pub const fn order(&self) -> FieldOrder {
        self.fields.order
    }

    /// Width of the whole id: 1 to 63 bits. Up to 53 it is exact in a JavaScript number.
    #[must_use]
    pub const fn bits(&self) -> u8 {
        self.fields.timestamp_bits + self.lower_bits()
    }

    /// The greatest id: 2^[`bits`](Self::bits) - 1.
    #[must_use]
    pub const fn id_max(&self) -> u64 {
        ones(self.bits())
    }

    /// The greatest tick: 2^[`timestamp_bits`](Self::timestamp_bits) - 1.
    #[must_use]
    pub const fn max_tick(&self) -> u64 {
        ones(self.fields.timestamp_bits)
    }

    /// How many worker ids there are, datacenter included: 1 to 2^31.
    #[must_use]
    pub const fn workers(&self) -> u64 {
        self.worker_max() as u64 + 1
    }

    /// The greatest worker id, datacenter included.
    #[must_use]
    pub const fn worker_max(&self) -> u32 {
        ones_u32(self.node_bits())
    }

    /// The greatest sequence.
    #[must_use]
    pub const fn sequence_max(&self) -> u32 {
        ones_u32(self.fields.sequence_bits)
    }

    /// How many ids one worker has in one tick: 1 to 2^31.
    ///
    /// In tick 0, worker 0 has one less: id 0 is none.
    #[must_use]
    pub const fn ids_per_tick(&self) -> u64 {
        self.sequence_max() as u64 + 1
    }

    /// The distance between the ids of neighbouring workers, in the same tick and with the same sequence.
    #[must_use]
    pub const fn worker_stride(&self) -> u64 {
        1 << self.worker_shift()
    }

    /// The distance between the ids of neighbouring sequences, in the same tick and under the same worker: 1 where
    /// the sequence stands last, else [`workers`](Self::workers).
    #[must_use]
    pub const fn sequence_stride(&self) -> u64 {
        1 << self.sequence_shift()
    }

    /// The tick in which this instant lies; `None` before the epoch.
    ///
    /// Past the end of the layout the number goes on, greater than [`max_tick`](Self::max_tick), so that the caller
    /// sees that the timestamp field has run out.
    ///
    /// ```
    /// # use unalike_core::Layout;
    /// assert_eq!(Layout::BAIDU.tick_at(1_463_673_601_999), Some(1)); // ticks of 1 s
    /// assert_eq!(Layout::BAIDU.tick_at(1_463_673_599_999), None);
    /// ```
    #[must_use]
    pub const fn tick_at(&self, now_ms: u64) -> Option<u64> {
        match now_ms.checked_sub(self.fields.epoch_ms) {
            Some(since_ms) => Some(since_ms / self.fields.tick_ms as u64),
            None => None,
        }
    }

    /// The first tick that begins at this instant or later; 0 for all that is before the epoch.
    ///
    /// ```
    /// # use unalike_core::Layout;
    /// assert_eq!(Layout::BAIDU.first_tick_from(1_463_673_601_000), 1); // ticks of 1 s
    /// assert_eq!(Layout::BAIDU.first_tick_from(1_463_673_601_001), 2);
    /// assert_eq!(Layout::BAIDU.first_tick_from(0), 0);
    /// ```
    #[must_use]
    pub const fn first_tick_from(&self, at_ms: u64) -> u64 {
        at_ms.saturating_sub(self.fields.epoch_ms).div_ceil(self.fields.tick_ms as u64)
    }

    /// When this tick begins, in Unix milliseconds.
    ///
    /// Exact up to [`max_tick`](Self::max_tick) + 1, the end of the layout; a number of ticks so great that its
    /// beginning cannot be said in 64 bits gives [`u64::MAX`], later than any clock.
    #[must_use]
    pub const fn tick_start_ms(&self, tick: u64) -> u64 {
        self.fields.epoch_ms.saturating_add(tick.saturating_mul(self.fields.tick_ms as u64))
    }

    /// The beginning of the first tick that begins at this instant or later, in Unix milliseconds.
    ///
    /// ```
    /// # use unalike_core::Layout;
    /// assert_eq!(Layout::BAIDU.round_up_ms(1_463_673_601_001), 1_463_673_602_000); // ticks of 1 s
    /// assert_eq!(Layout::BAIDU.round_up_ms(1_463_673_602_000), 1_463_673_602_000);
    /// assert_eq!(Layout::BAIDU.round_up_ms(0), Layout::BAIDU.epoch_ms());
    /// assert_eq!(Layout::BAIDU.round_up_ms(u64::MAX), u64::MAX);
    /// ```
    #[must_use]
    pub const fn round_up_ms(&self, at_ms: u64) -> u64 {
        self.tick_start_ms(self.first_tick_from(at_ms))
    }

    /// When the last tick ends, in Unix milliseconds: from then on there are no ids.
    ///
    /// ```
    /// # use unalike_core::Layout;
    /// assert_eq!(Layout::REDIS_SHARDED.ends_ms(), 2_199_023_255_552); // 2039-09-07T15:47:35.552Z
    /// ```
    #[must_use]
    pub const fn ends_ms(&self) -> u64 {
        self.tick_start_ms(self.max_tick() + 1)
    }

    /// The id of these fields.
    ///
    /// # Errors
    /// [`LayoutError::TimestampRange`], [`LayoutError::WorkerRange`] or [`LayoutError::SequenceRange`] when a part does
    /// not fit its field, and [`LayoutError::IdRange`] when all of them are 0, because 0 is no id.
    pub const fn pack(&self, parts: Parts) -> Result<u64, LayoutError> {
        if parts.ticks > self.max_tick() {
            return Err(LayoutError::TimestampRange { max: self.max_tick() });
        }
        if parts.worker > self.worker_max() {
            return Err(LayoutError::WorkerRange { max: self.worker_max() });
        }
        if parts.sequence > self.sequence_max() {
            return Err(LayoutError::SequenceRange { max: self.sequence_max() });
        }
        // Every part fits its field and the fields do not overlap: nothing is shifted out.
        let id = (parts.ticks << self.lower_bits())
            | ((parts.worker as u64) << self.worker_shift())
            | ((parts.sequence as u64) << self.sequence_shift());
        if id == 0 {
            return Err(LayoutError::IdRange { max: self.id_max() });
        }
        Ok(id)
    }

    /// The fields of an id; [`pack`](Self::pack) of them gives the same id.
    ///
    /// # Errors
    /// [`LayoutError::IdRange`] when the id is 0 or has bits above those of the layout.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a worker and a sequence have 31 bits at most, as `new` checks"
    )]
    pub const fn unpack(&self, id: u64) -> Result<Parts, LayoutError> {
        if id == 0 || id > self.id_max() {
            return Err(LayoutError::IdRange { max: self.id_max() });
        }
        Ok(Parts {
            ticks: id >> self.lower_bits(),
            worker: ((id >> self.worker_shift()) & self.worker_max() as u64) as u32,
            sequence: ((id >> self.sequence_shift()) & self.sequence_max() as u64) as u32,
        })
    }

    /// The ids of a span of time, for a search in an index that they are sorted by: every id whose tick has a part in
    /// the span from `from_ms` to `until_ms`, which is not in it itself, and no id of another tick.
    ///
    /// What lies outside the layout's own time is cut off.
    ///
    /// ```
    /// use unalike_core::{Layout, LayoutError, instant};
    ///
    /// let ids = Layout::TWITTER.id_range(instant("2026-01-01")?, instant("2026-02-01")?)?;
    /// assert_eq!(ids, 2_006_515_713_438_646_272..=2_017_749_737_272_246_271);
    /// // A tick of 10 ms has a part in the span although it began before.
    /// let first = *Layout::SONYFLAKE.id_range(1_767_225_600_005, 1_767_225_600_006)?.start();
    /// assert_eq!(Layout::SONYFLAKE.tick_start_ms(Layout::SONYFLAKE.unpack(first)?.ticks), 1_767_225_600_000);
    /// assert_eq!(Layout::TWITTER.id_range(5, 5), Err(LayoutError::SpanEmpty));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::SpanEmpty`] when the span ends before or as it begins, and [`LayoutError::SpanOutside`] when no
    /// id has a tick in it.
    pub const fn id_range(&self, from_ms: u64, until_ms: u64) -> Result<RangeInclusive<u64>, LayoutError> {
        if from_ms >= until_ms {
            return Err(LayoutError::SpanEmpty);
        }
        // The last instant of the span is one before its end, which is not 0.
        let Some(last_tick) = self.tick_at(until_ms.wrapping_sub(1)) else { return Err(LayoutError::SpanOutside) };
        let first_tick = from_ms.saturating_sub(self.fields.epoch_ms) / self.fields.tick_ms as u64;
        let max_tick = self.max_tick();
        let last_tick = if last_tick < max_tick { last_tick } else { max_tick };
        // The timestamp takes one of the 63 bits at least: nothing is shifted out, and no shift is too far.
        let lower_bits = self.lower_bits() as u32;
        let first = first_tick.wrapping_shl(lower_bits);
        let last = !(!last_tick).wrapping_shl(lower_bits);
        // 0 is no id, and the only one of tick 0 where there is nothing below the timestamp.
        if first_tick > last_tick || last == 0 {
            return Err(LayoutError::SpanOutside);
        }
        Ok(RangeInclusive::new(if first == 0 { 1 } else { first }, last))
    }

    /// Datacenter and worker, in this order, of the two as one number.
    ///
    /// ```
    /// # use unalike_core::Layout;
    /// assert_eq!(Layout::TWITTER.split_worker(37), Ok((1, 5)));
    /// assert_eq!(Layout::LEAF.split_worker(37), Ok((0, 37)));
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::WorkerRange`] when it is greater than [`worker_max`](Self::worker_max).
    pub const fn split_worker(&self, worker: u32) -> Result<(u32, u32), LayoutError> {
        if worker > self.worker_max() {
            return Err(LayoutError::WorkerRange { max: self.worker_max() });
        }
        Ok((worker >> self.fields.worker_bits, worker & ones_u32(self.fields.worker_bits)))
    }

    /// Datacenter and worker as one number: the inverse of [`split_worker`](Self::split_worker).
    ///
    /// # Errors
    /// [`LayoutError::WorkerRange`] when one of them does not fit its own field, with that field's maximum.
    pub const fn join_worker(&self, datacenter: u32, worker: u32) -> Result<u32, LayoutError> {
        let (datacenter_max, worker_max) = (ones_u32(self.fields.datacenter_bits), ones_u32(self.fields.worker_bits));
        if datacenter > datacenter_max {
            return Err(LayoutError::WorkerRange { max: datacenter_max });
        }
        if worker > worker_max {
            return Err(LayoutError::WorkerRange { max: worker_max });
        }
        Ok((datacenter << self.fields.worker_bits) | worker)
    }

    /// The layout of ids that a shard gene of so many bits is joined to: these bits are taken from the sequence, so
    /// that `id << gene_bits | gene` is an id of this layout again, whose lowest bits of the sequence are the gene.
    ///
    /// `None` when the sequence has fewer bits, and when the lowest bits are not the sequence
    /// ([`FieldOrder::SequenceFirst`]): the worker would move.
    ///
    /// ```
    /// # use unalike_core::{Layout, Parts};
    /// let narrow = Layout::TWITTER.without_gene(4).expect("a sequence of 12 bits stands last");
    /// assert_eq!((narrow.bits(), narrow.sequence_bits()), (59, 8));
    /// let id = narrow.pack(Parts { ticks: 1_000, worker: 33, sequence: 7 })?;
    /// let whole = Layout::TWITTER.unpack(id << 4 | 5)?;
    /// assert_eq!(whole, Parts { ticks: 1_000, worker: 33, sequence: 7 << 4 | 5 });
    /// assert_eq!(Layout::SONYFLAKE.without_gene(4), None);
    /// # Ok::<(), unalike_core::LayoutError>(())
    /// ```
    #[must_use]
    pub const fn without_gene(self, gene_bits: u8) -> Option<Self> {
        if gene_bits == 0 {
            return Some(self);
        }
        match (self.fields.order, self.fields.sequence_bits.checked_sub(gene_bits)) {
            (FieldOrder::WorkerFirst, Some(sequence_bits)) => {
                Some(Self { fields: LayoutFields { sequence_bits, ..self.fields } })
            }
            _ => None,
        }
    }

    /// Datacenter and worker together, in bits.
    const fn node_bits(&self) -> u8 {
        self.fields.datacenter_bits + self.fields.worker_bits
    }

    /// Everything below the timestamp, in bits: 62 at most.
    const fn lower_bits(&self) -> u8 {
        self.node_bits() + self.fields.sequence_bits
    }

    const fn worker_shift(&self) -> u8 {
        match self.fields.order {
            FieldOrder::WorkerFirst => self.fields.sequence_bits,
            FieldOrder::SequenceFirst => 0,
        }
    }

    const fn sequence_shift(&self) -> u8 {
        match self.fields.order {
            FieldOrder::WorkerFirst => 0,
            FieldOrder::SequenceFirst => self.node_bits(),
        }
    }
}

/// The widths in the order of the bits, then epoch and tick: `41/5+5/12 epoch 1288834974657 tick 1 ms`, or
/// `39/8/16 sequence-first epoch 1735689600000 tick 10 ms`. A `+` parts datacenter and worker where there is a
/// datacenter. Different layouts are written differently.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LayoutFields { timestamp_bits, datacenter_bits, worker_bits, sequence_bits, order, epoch_ms, tick_ms } =
            self.fields;
        write!(f, "{timestamp_bits}/")?;
        if order == FieldOrder::SequenceFirst {
            write!(f, "{sequence_bits}/")?;
        }
        if datacenter_bits > 0 {
            write!(f, "{datacenter_bits}+")?;
        }
        write!(f, "{worker_bits}")?;
        match order {
            FieldOrder::WorkerFirst => write!(f, "/{sequence_bits}")?,
            FieldOrder::SequenceFirst => f.write_str(" sequence-first")?,
        }
        write!(f, " epoch {epoch_ms} tick {tick_ms} ms")
    }
}

/// 2^bits - 1, for 0 to 64 bits.
pub(crate) const fn ones(bits: u8) -> u64 {
    !u64::MAX.unbounded_shl(bits as u32)
}

/// 2^bits - 1, for 0 to 32 bits.
const fn ones_u32(bits: u8) -> u32 {
    !u32::MAX.unbounded_shl(bits as u32)
}

#[cfg(test)]
pub(crate) mod tests {
    use alloc::{collections::BTreeSet, string::ToString};

    use proptest::prelude::*;

    use super::*;

    const TWITTER: LayoutFields = LayoutFields {
        timestamp_bits: 41,
        datacenter_bits: 5,
        worker_bits: 5,
        sequence_bits: 12,
        order: FieldOrder::WorkerFirst,
        epoch_ms: 1_288_834_974_657,
        tick_ms: 1,
    };

    /// Every valid layout: each width from its least to its greatest, every epoch and tick that `new` may take.
    pub(crate) fn layouts() -> impl Strategy<Value = Layout> {
        (0..=31_u8, 0..=31_u8, prop_oneof![Just(FieldOrder::WorkerFirst), Just(FieldOrder::SequenceFirst)])
            .prop_flat_map(|(node_bits, sequence_bits, order)| {
                (0..=node_bits, 1..=63 - node_bits - sequence_bits).prop_map(
                    move |(datacenter_bits, timestamp_bits)| LayoutFields {
                        timestamp_bits,
                        datacenter_bits,
                        worker_bits: node_bits - datacenter_bits,
                        sequence_bits,
                        order,
                        ..TWITTER
                    },
                )
            })
            .prop_flat_map(|fields| {
                let tick_max = u32::try_from(u64::MAX >> fields.timestamp_bits).unwrap_or(u32::MAX);
                prop_oneof![Just(1), Just(tick_max), 1..=tick_max]
                    .prop_map(move |tick_ms| LayoutFields { tick_ms, ..fields })
            })
            .prop_flat_map(|fields| {
                let epoch_max = u64::MAX - (1_u64 << fields.timestamp_bits) * u64::from(fields.tick_ms);
                prop_oneof![Just(0), Just(epoch_max), 0..=epoch_max]
                    .prop_map(move |epoch_ms| Layout::new(LayoutFields { epoch_ms, ..fields }).unwrap())
            })
    }

    /// 0, 1, the greatest, its half and anything between.
    fn up_to(max: u64) -> impl Strategy<Value = u64> {
        prop_oneof![1 => Just(0), 1 => Just(1.min(max)), 1 => Just(max), 1 => Just(max / 2 + max % 2), 4 => 0..=max]
    }

    fn up_to_u32(max: u32) -> impl Strategy<Value = u32> {
        up_to(u64::from(max)).prop_map(|value| u32::try_from(value).unwrap())
    }

    fn parts_of(layout: Layout) -> impl Strategy<Value = Parts> {
        (up_to(layout.max_tick()), up_to_u32(layout.worker_max()), up_to_u32(layout.sequence_max()))
            .prop_map(|(ticks, worker, sequence)| Parts { ticks, worker, sequence })
    }

    fn layouts_and_parts() -> impl Strategy<Value = (Layout, Parts)> {
        layouts().prop_flat_map(|layout| (Just(layout), parts_of(layout)))
    }

    #[test]
    fn new_refuses_what_is_wider_than_63_bits() {
        for (timestamp_bits, bits) in [(42, 64), (255, 277)] {
            let fields = LayoutFields { timestamp_bits, ..TWITTER };
            assert_eq!(Layout::new(fields), Err(LayoutError::TooWide { bits }));
        }
        let all =
            LayoutFields { timestamp_bits: 255, datacenter_bits: 255, worker_bits: 255, sequence_bits: 255, ..TWITTER };
        assert_eq!(Layout::new(all), Err(LayoutError::TooWide { bits: 1020 }));
        let widest =
            LayoutFields { timestamp_bits: 63, datacenter_bits: 0, worker_bits: 0, sequence_bits: 0, ..TWITTER };
        assert_eq!(Layout::new(widest).map(|layout| layout.id_max()), Ok(crate::ID_MAX));
    }

    #[test]
    fn new_refuses_a_field_outside_its_range() {
        let narrow =
            LayoutFields { timestamp_bits: 1, datacenter_bits: 0, worker_bits: 0, sequence_bits: 0, ..TWITTER };
        assert!(Layout::new(narrow).is_ok());
        assert!(Layout::new(LayoutFields { sequence_bits: 31, ..narrow }).is_ok());
        assert!(Layout::new(LayoutFields { worker_bits: 31, ..narrow }).is_ok());
        assert!(Layout::new(LayoutFields { worker_bits: 15, datacenter_bits: 16, ..narrow }).is_ok());
        for bad in [
            LayoutFields { timestamp_bits: 0, ..TWITTER },
            LayoutFields { sequence_bits: 32, ..narrow },
            LayoutFields { worker_bits: 32, ..narrow },
            LayoutFields { datacenter_bits: 32, ..narrow },
            LayoutFields { datacenter_bits: 16, worker_bits: 16, ..narrow },
        ] {
            assert_eq!(Layout::new(bad), Err(LayoutError::FieldWidth), "{bad:?}");
        }
    }

    #[test]
    fn new_refuses_a_tick_of_nothing_and_an_end_beyond_64_bits() {
        assert_eq!(Layout::new(LayoutFields { tick_ms: 0, ..TWITTER }), Err(LayoutError::TickZero));

        let epoch_max = u64::MAX - (1 << 41);
        let latest = Layout::new(LayoutFields { epoch_ms: epoch_max, ..TWITTER }).unwrap();
        assert_eq!(latest.ends_ms(), u64::MAX);
        let later = LayoutFields { epoch_ms: epoch_max + 1, ..TWITTER };
        assert_eq!(Layout::new(later), Err(LayoutError::EpochTooLate));

        let slow = LayoutFields { tick_ms: 1 << 23, epoch_ms: 0, ..TWITTER }; // 2^41 ticks of 2^23 ms
        assert_eq!(Layout::new(slow), Err(LayoutError::EpochTooLate));
        assert!(Layout::new(LayoutFields { tick_ms: (1 << 23) - 1, ..slow }).is_ok());
    }

    #[test]
    fn getters_give_the_figures_of_twitters_layout() {
        let layout = Layout::new(TWITTER).unwrap();
        assert_eq!(layout.fields(), TWITTER);
        assert_eq!((layout.epoch_ms(), layout.tick_ms()), (1_288_834_974_657, 1));
        assert_eq!((layout.timestamp_bits(), layout.datacenter_bits()), (41, 5));
        assert_eq!((layout.worker_bits(), layout.sequence_bits()), (5, 12));
        assert_eq!((layout.bits(), layout.id_max()), (63, 9_223_372_036_854_775_807));
        assert_eq!(layout.max_tick(), 2_199_023_255_551);
        assert_eq!((layout.workers(), layout.worker_max()), (1024, 1023));
        assert_eq!((layout.ids_per_tick(), layout.sequence_max()), (4096, 4095));
        assert_eq!((layout.worker_stride(), layout.sequence_stride()), (4096, 1));
        assert_eq!(layout.ends_ms(), 3_487_858_230_209);

        let other = Layout::new(LayoutFields { order: FieldOrder::SequenceFirst, ..TWITTER }).unwrap();
        assert_eq!((other.worker_stride(), other.sequence_stride()), (1, 1024));
    }

    #[expect(clippy::unusual_byte_groupings, reason = "the groups are the fields")]
    #[test]
    fn fields_stand_where_the_order_says() {
        let parts = Parts { ticks: 0b101, worker: 0b0110_0011, sequence: 0b1001 };
        let narrow =
            LayoutFields { timestamp_bits: 3, datacenter_bits: 3, worker_bits: 4, sequence_bits: 5, ..TWITTER };
        let worker_first = Layout::new(narrow).unwrap();
        assert_eq!(worker_first.pack(parts), Ok(0b101_110_0011_01001));
        let sequence_first = Layout::new(LayoutFields { order: FieldOrder::SequenceFirst, ..narrow }).unwrap();
        assert_eq!(sequence_first.pack(parts), Ok(0b101_01001_110_0011));
        assert_eq!(worker_first.split_worker(parts.worker), Ok((0b110, 0b0011)));
    }

    /// Every combination of parts of every layout of up to 8 bits: together they are exactly the ids 1 to `id_max`.
    #[test]
    fn parts_and_ids_are_in_one_to_one_correspondence() {
        let mut layouts_seen = 0;
        for widths in 0..5_u32.pow(4) {
            let [timestamp_bits, datacenter_bits, worker_bits, sequence_bits] =
                [0, 1, 2, 3].map(|place| u8::try_from(widths / 5_u32.pow(place) % 5).unwrap());
            if timestamp_bits == 0 || timestamp_bits + datacenter_bits + worker_bits + sequence_bits > 8 {
                continue;
            }
            for order in [FieldOrder::WorkerFirst, FieldOrder::SequenceFirst] {
                let fields =
                    LayoutFields { timestamp_bits, datacenter_bits, worker_bits, sequence_bits, order, ..TWITTER };
                let layout = Layout::new(fields).unwrap();
                let mut ids = BTreeSet::new();
                for ticks in 0..1 << timestamp_bits {
                    for worker in 0..1 << (datacenter_bits + worker_bits) {
                        for sequence in 0..1 << sequence_bits {
                            let parts = Parts { ticks, worker, sequence };
                            match layout.pack(parts) {
                                Ok(id) => {
                                    assert!(ids.insert(id), "{layout}: {parts:?} gives {id} a second time");
                                    assert_eq!(layout.unpack(id), Ok(parts), "{layout}");
                                }
                                Err(error) => {
                                    assert_eq!((ticks, worker, sequence), (0, 0, 0), "{layout}: {error}");
                                    assert_eq!(error, LayoutError::IdRange { max: layout.id_max() });
                                }
                            }
                        }
                    }
                }
                assert!(ids.into_iter().eq(1..=layout.id_max()), "{layout}");
                layouts_seen += 1;
            }
        }
        assert_eq!(layouts_seen, 500);
    }

    #[test]
    fn tick_at_is_none_before_the_epoch_and_goes_on_past_the_end() {
        let layout = Layout::new(LayoutFields { epoch_ms: 1000, tick_ms: 10, timestamp_bits: 4, ..TWITTER }).unwrap();
        for (now_ms, tick) in [
            (0, None),
            (999, None),
            (1000, Some(0)),
            (1009, Some(0)),
            (1010, Some(1)),
            (1159, Some(15)),
            (1160, Some(16)),
            (u64::MAX, Some((u64::MAX - 1000) / 10)),
        ] {
            assert_eq!(layout.tick_at(now_ms), tick, "at {now_ms}");
        }
        assert_eq!((layout.max_tick(), layout.ends_ms()), (15, 1160));
    }

    #[test]
    fn tick_start_is_exact_to_the_end_and_then_saturates() {
        let latest = Layout::new(LayoutFields { epoch_ms: u64::MAX - 160, tick_ms: 10, timestamp_bits: 4, ..TWITTER });
        let latest = latest.unwrap();
        assert_eq!(latest.tick_start_ms(15), u64::MAX - 10);
        assert_eq!(latest.tick_start_ms(16), u64::MAX);
        assert_eq!(latest.tick_start_ms(17), u64::MAX);
        assert_eq!(latest.tick_start_ms(u64::MAX), u64::MAX);
    }

    #[test]
    fn join_worker_names_the_maximum_of_the_field_that_does_not_fit() {
        let layout = Layout::new(LayoutFields { datacenter_bits: 3, worker_bits: 5, ..TWITTER }).unwrap();
        assert_eq!(layout.join_worker(7, 31), Ok(255));
        assert_eq!(layout.join_worker(8, 0), Err(LayoutError::WorkerRange { max: 7 }));
        assert_eq!(layout.join_worker(0, 32), Err(LayoutError::WorkerRange { max: 31 }));
        assert_eq!(layout.split_worker(256), Err(LayoutError::WorkerRange { max: 255 }));
    }

    #[test]
    fn display_marks_the_datacenter_and_the_order() {
        let text = |fields| Layout::new(fields).unwrap().to_string();
        assert_eq!(text(TWITTER), "41/5+5/12 epoch 1288834974657 tick 1 ms");
        let leaf = LayoutFields { datacenter_bits: 0, worker_bits: 10, ..TWITTER };
        assert_eq!(text(leaf), "41/10/12 epoch 1288834974657 tick 1 ms");
        let no_worker = LayoutFields { datacenter_bits: 5, worker_bits: 0, ..TWITTER };
        assert_eq!(text(no_worker), "41/5+0/12 epoch 1288834974657 tick 1 ms");
        let sony = LayoutFields {
            timestamp_bits: 39,
            datacenter_bits: 0,
            worker_bits: 16,
            sequence_bits: 8,
            order: FieldOrder::SequenceFirst,
            epoch_ms: 1_735_689_600_000,
            tick_ms: 10,
        };
        assert_eq!(text(sony), "39/8/16 sequence-first epoch 1735689600000 tick 10 ms");
        assert_eq!(
            text(LayoutFields { datacenter_bits: 6, worker_bits: 10, ..sony }).split(' ').next(),
            Some("39/8/6+10")
        );
    }

    #[test]
    fn a_range_begins_and_ends_with_a_tick() {
        // 16 ticks of 10 ms since 1000, each with 16 ids.
        let small = LayoutFields { timestamp_bits: 4, datacenter_bits: 0, worker_bits: 2, sequence_bits: 2, ..TWITTER };
        let layout = Layout::new(LayoutFields { epoch_ms: 1_000, tick_ms: 10, ..small }).unwrap();
        for (from_ms, until_ms, ids) in [
            (1_010, 1_020, 16..=31),
            (1_019, 1_020, 16..=31),
            (1_010, 1_011, 16..=31),
            (1_019, 1_021, 16..=47),
            (1_010, 1_021, 16..=47),
            (1_000, 1_001, 1..=15),
            (0, 1_001, 1..=15),
            (999, 1_011, 1..=31),
            (1_159, 1_160, 240..=255),
            (1_150, u64::MAX, 240..=255),
            (0, u64::MAX, 1..=255),
        ] {
            assert_eq!(layout.id_range(from_ms, until_ms), Ok(ids), "{from_ms} to {until_ms}");
        }
        for (from_ms, until_ms) in [(0, 0), (1_010, 1_010), (1_011, 1_010), (u64::MAX, 0), (u64::MAX, u64::MAX)] {
            assert_eq!(layout.id_range(from_ms, until_ms), Err(LayoutError::SpanEmpty), "{from_ms} to {until_ms}");
        }
        for (from_ms, until_ms) in [(0, 1), (0, 1_000), (1_160, 1_161), (1_160, u64::MAX), (u64::MAX - 1, u64::MAX)] {
            assert_eq!(layout.id_range(from_ms, until_ms), Err(LayoutError::SpanOutside), "{from_ms} to {until_ms}");
        }
        let bare = LayoutFields { timestamp_bits: 63, worker_bits: 0, sequence_bits: 0, epoch_ms: 0, ..small };
        let bare = Layout::new(bare).unwrap();
        assert_eq!(bare.id_range(0, 1), Err(LayoutError::SpanOutside));
        assert_eq!(bare.id_range(0, 2), Ok(1..=1));
        assert_eq!(bare.id_range(5, u64::MAX), Ok(5..=crate::ID_MAX));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// The gene stands in the lowest bits of the sequence, and nothing else of an id moves.
        #[test]
        fn a_gene_takes_the_lowest_bits_of_the_sequence(
            layout in layouts(), gene_bits in 0..=16_u8, gene in any::<u32>(), random in any::<(u64, u32, u32)>(),
        ) {
            let Some(narrow) = layout.without_gene(gene_bits) else {
                let is_last = layout.order() == FieldOrder::WorkerFirst;
                prop_assert!(!is_last || layout.sequence_bits() < gene_bits);
                return Ok(());
            };
            prop_assert_eq!(narrow.bits() + gene_bits, layout.bits());
            prop_assert_eq!(Layout::new(narrow.fields()), Ok(narrow));
            let gene = gene & ones_u32(gene_bits);
            let parts = Parts {
                ticks: random.0 & narrow.max_tick(),
                worker: random.1 & narrow.worker_max(),
                sequence: random.2 & narrow.sequence_max(),
            };
            if let Ok(id) = narrow.pack(parts) {
                let whole = Parts { sequence: parts.sequence << gene_bits | gene, ..parts };
                prop_assert_eq!(layout.unpack(id << gene_bits | u64::from(gene)), Ok(whole));
            }
        }

        #[test]
        fn unpack_gives_back_exactly_what_was_packed((layout, parts) in layouts_and_parts()) {
            match layout.pack(parts) {
                Ok(id) => {
                    prop_assert!((1..=layout.id_max()).contains(&id));
                    prop_assert_eq!(layout.unpack(id), Ok(parts));
                }
                Err(error) => {
                    prop_assert_eq!(parts, Parts { ticks: 0, worker: 0, sequence: 0 });
                    prop_assert_eq!(error, LayoutError::IdRange { max: layout.id_max() });
                }
            }
        }

        #[test]
        fn pack_gives_back_exactly_the_id_that_was_unpacked(
            (layout, id) in layouts().prop_flat_map(|layout| (Just(layout), up_to(layout.id_max() - 1))),
        ) {
            let id = id + 1;
            let parts = layout.unpack(id).unwrap();
            prop_assert_eq!(layout.pack(parts), Ok(id));
        }

        /// Neighbours are where fields that overlap would meet: change one part by any one bit, or swap two parts.
        #[test]
        fn different_parts_never_share_an_id(
            (layout, parts) in layouts_and_parts(),
            (tick_bit, node_bit) in (0..63_u32, 0..31_u32),
            other in any::<u64>(),
        ) {
            let others = [
                Parts { ticks: parts.ticks ^ (1 << tick_bit), ..parts },
                Parts { worker: parts.worker ^ (1 << node_bit), ..parts },
                Parts { sequence: parts.sequence ^ (1 << node_bit), ..parts },
                Parts { worker: parts.sequence, sequence: parts.worker, ..parts },
                Parts { ticks: other & layout.max_tick(), ..parts },
            ];
            for other in others.into_iter().filter(|other| *other != parts) {
                if let (Ok(one), Ok(two)) = (layout.pack(parts), layout.pack(other)) {
                    prop_assert_ne!(one, two, "{} and {:?} and {:?}", layout, parts, other);
                }
            }
        }

        #[test]
        fn a_part_that_does_not_fit_is_refused((layout, parts) in layouts_and_parts(), beyond in any::<u64>()) {
            let beyond_u32 = u32::try_from(beyond >> 32).unwrap();
            for ticks in [layout.max_tick() + 1, beyond.max(layout.max_tick() + 1), u64::MAX] {
                let expected = Err(LayoutError::TimestampRange { max: layout.max_tick() });
                prop_assert_eq!(layout.pack(Parts { ticks, ..parts }), expected);
            }
            for worker in [layout.worker_max() + 1, beyond_u32.max(layout.worker_max() + 1), u32::MAX] {
                let expected = LayoutError::WorkerRange { max: layout.worker_max() };
                prop_assert_eq!(layout.pack(Parts { worker, ..parts }), Err(expected));
                prop_assert_eq!(layout.split_worker(worker), Err(expected));
            }
            for sequence in [layout.sequence_max() + 1, beyond_u32.max(layout.sequence_max() + 1), u32::MAX] {
                let expected = Err(LayoutError::SequenceRange { max: layout.sequence_max() });
                prop_assert_eq!(layout.pack(Parts { sequence, ..parts }), expected);
            }
            for id in [0, layout.id_max() + 1, beyond.max(layout.id_max() + 1), u64::MAX] {
                prop_assert_eq!(layout.unpack(id), Err(LayoutError::IdRange { max: layout.id_max() }));
            }
        }

        #[test]
        fn the_order_of_ids_is_the_order_of_their_fields(
            (layout, one, two) in layouts().prop_flat_map(|layout| (Just(layout), parts_of(layout), parts_of(layout))),
            same_tick in any::<bool>(),
        ) {
            let two = if same_tick { Parts { ticks: one.ticks, ..two } } else { two };
            let fields = |parts: Parts| match layout.order() {
                FieldOrder::WorkerFirst => (parts.ticks, parts.worker, parts.sequence),
                FieldOrder::SequenceFirst => (parts.ticks, parts.sequence, parts.worker),
            };
            let id = |parts| layout.pack(parts).unwrap_or(0);
            prop_assert_eq!(id(one).cmp(&id(two)), fields(one).cmp(&fields(two)));
        }

        #[test]
        fn strides_are_the_distances_between_neighbours((layout, parts) in layouts_and_parts()) {
            let id = layout.pack(parts).unwrap_or(0);
            if parts.sequence < layout.sequence_max() {
                let next = layout.pack(Parts { sequence: parts.sequence + 1, ..parts });
                prop_assert_eq!(next, Ok(id + layout.sequence_stride()));
            }
            if parts.worker < layout.worker_max() {
                let next = layout.pack(Parts { worker: parts.worker + 1, ..parts });
                prop_assert_eq!(next, Ok(id + layout.worker_stride()));
            }
        }

        #[test]
        fn split_and_joined_workers_are_the_same((layout, parts) in layouts_and_parts()) {
            let (datacenter, worker) = layout.split_worker(parts.worker).unwrap();
            prop_assert_eq!(layout.join_worker(datacenter, worker), Ok(parts.worker));
            prop_assert_eq!(u64::from(datacenter) >> layout.datacenter_bits(), 0);
            prop_assert_eq!(u64::from(worker) >> layout.worker_bits(), 0);
        }

        #[test]
        fn a_tick_holds_the_instants_from_its_start_to_the_next(
            (layout, tick) in layouts().prop_flat_map(|layout| (Just(layout), up_to(layout.max_tick()))),
        ) {
            let (start_ms, end_ms) = (layout.tick_start_ms(tick), layout.tick_start_ms(tick + 1));
            prop_assert_eq!(end_ms - start_ms, u64::from(layout.tick_ms()));
            prop_assert_eq!(layout.tick_at(start_ms), Some(tick));
            prop_assert_eq!(layout.tick_at(end_ms - 1), Some(tick));
            prop_assert_eq!(layout.tick_at(end_ms), Some(tick + 1));
            prop_assert!(end_ms <= layout.ends_ms());
            prop_assert_eq!(end_ms == layout.ends_ms(), tick == layout.max_tick());
        }

        #[test]
        fn new_takes_exactly_what_its_rules_allow(
            (timestamp_bits, datacenter_bits, worker_bits, sequence_bits) in (0..70_u8, 0..40_u8, 0..40_u8, 0..40_u8),
            (epoch_ms, tick_ms) in (any::<u64>(), prop_oneof![Just(0), Just(1), any::<u32>()]),
        ) {
            let order = FieldOrder::WorkerFirst;
            let fields =
                LayoutFields { timestamp_bits, datacenter_bits, worker_bits, sequence_bits, order, epoch_ms, tick_ms };
            let node_bits = datacenter_bits + worker_bits;
            let allowed = timestamp_bits >= 1
                && timestamp_bits + node_bits + sequence_bits <= 63
                && node_bits <= 31
                && sequence_bits <= 31
                && tick_ms >= 1
                && u128::from(epoch_ms) + (u128::from(tick_ms) << timestamp_bits) <= u128::from(u64::MAX);
            prop_assert_eq!(Layout::new(fields).is_ok(), allowed);
        }

        #[test]
        fn a_range_has_the_ids_whose_ticks_touch_the_span_and_no_others(
            (layout, id, from_tick, until_tick) in layouts().prop_flat_map(|layout| {
                let tick = || up_to(layout.max_tick());
                (Just(layout), up_to(layout.id_max() - 1), tick(), tick())
            }),
            (into_from, into_until) in (any::<u32>(), any::<u32>()),
        ) {
            let id = id + 1;
            let within = |tick, into: u32| layout.tick_start_ms(tick) + u64::from(into % layout.tick_ms());
            let (from_ms, until_ms) = (within(from_tick, into_from), within(until_tick, into_until));
            let tick = layout.unpack(id).unwrap().ticks;
            let touches = layout.tick_start_ms(tick) < until_ms && layout.tick_start_ms(tick + 1) > from_ms;
            match layout.id_range(from_ms, until_ms) {
                Ok(ids) => {
                    prop_assert!(from_ms < until_ms && !ids.is_empty());
                    prop_assert_eq!(ids.contains(&id), touches, "{} in {:?}", layout, ids);
                }
                Err(LayoutError::SpanEmpty) => prop_assert!(from_ms >= until_ms),
                Err(_) => prop_assert!(!touches),
            }
        }
    }
}
