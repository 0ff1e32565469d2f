//! What decides whether two formats may show two ids alike, in a number that a store can keep.

use core::fmt;

use siphasher::sip::SipHasher24;

use crate::Restart;
use crate::layout::ones;

/// A field: its lowest bit, and its width. Above all of them is a 1, so that no shape is 0.
type Field = (u32, u8);
const KEY_ID_BITS: Field = (0, 4);
const GENE_BITS: Field = (4, 5);
const BITS: Field = (9, 6);
const RESTART: Field = (15, 2);
const TEMPLATE: Field = (17, 45);
const MARK: Field = (62, 1);

/// The template, the restart and the widths of a [`Format`](crate::Format) in one number: 2^62 to 2^63 - 1.
///
/// What two formats of one shape show under the same keys differs wherever the ids do. The offset from UTC is not in
/// it: it decides which dates are shown, and no number twice under one of them. Without keys the width is not in it
/// either: it bounds the ids, and changes no text. Of the template there is a hash of 45 bits.
///
/// ```
/// use unalike_core::{Format, FormatOptions, FormatShape, Restart};
/// let daily = FormatOptions { template: "{yyyyMMdd}-{id}", restart: Restart::Day, ..FormatOptions::default() };
/// let kept = Format::new(&daily)?.shape();
/// assert_eq!(FormatShape::read(kept.number()), Some(kept));
/// let shape = Format::new(&FormatOptions { restart: Restart::Never, ..daily })?.shape();
/// assert_eq!(shape.changes(kept).to_string(), "restart was day, and is never");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FormatShape(u64);

impl FormatShape {
    /// The shape of these figures, each within its field.
    pub(crate) fn new(template: &str, restart: Restart, bits: u8, gene_bits: u8, key_id_bits: u8) -> Self {
        let hash = SipHasher24::new().hash(template.as_bytes());
        let restart = match restart {
            Restart::Never => 0,
            Restart::Year => 1,
            Restart::Month => 2,
            Restart::Day => 3,
        };
        let figures = [
            (KEY_ID_BITS, u64::from(key_id_bits)),
            (GENE_BITS, u64::from(gene_bits)),
            (BITS, u64::from(bits)),
            (RESTART, restart),
            (TEMPLATE, hash & ones(TEMPLATE.1)),
            (MARK, 1),
        ];
        Self(figures.into_iter().fold(0, |shape, ((from, _), figure)| shape | figure << from))
    }

    /// The number that a store keeps.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The shape that a store keeps as this number; `None` for a number that is none.
    #[must_use]
    pub fn read(number: u64) -> Option<Self> {
        (number >> MARK.0 == 1).then_some(Self(number))
    }

    /// The bits that are permuted, and those of a key's number; 0 both without keys.
    #[must_use]
    pub fn key_widths(self) -> (u8, u8) {
        let [bits, gene, key_id] = [BITS, GENE_BITS, KEY_ID_BITS].map(|field| self.figure(field));
        let width = |figure| u8::try_from(figure).unwrap_or(u8::MAX);
        (width(bits.saturating_sub(gene).saturating_sub(key_id)), width(key_id))
    }

    /// When the counter starts again.
    #[must_use]
    pub fn restart(self) -> Restart {
        match self.figure(RESTART) {
            0 => Restart::Never,
            1 => Restart::Year,
            2 => Restart::Month,
            _ => Restart::Day,
        }
    }

    /// How this shape differs from the one that was kept, in words for people: empty if it does not.
    #[must_use]
    pub const fn changes(self, kept: Self) -> ShapeChanges {
        ShapeChanges { kept, now: self }
    }

    fn figure(self, (from, width): Field) -> u64 {
        self.0 >> from & ones(width)
    }
}

/// How a format's shape differs from the one that was kept: see [`FormatShape::changes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapeChanges {
    kept: FormatShape,
    now: FormatShape,
}

impl ShapeChanges {
    /// Whether the template is another one.
    #[must_use]
    pub fn in_template(&self) -> bool {
        self.differ(TEMPLATE)
    }

    /// Whether the counter starts again at other times.
    #[must_use]
    pub fn in_restart(&self) -> bool {
        self.differ(RESTART)
    }

    /// Whether the numbers are others: permuted in other widths, no more, or with a gene of another width.
    #[must_use]
    pub fn in_numbers(&self) -> bool {
        [BITS, GENE_BITS, KEY_ID_BITS].into_iter().any(|field| self.differ(field))
    }

    /// Whether all that is new is a key, with bits for its id, on ids that were shown without one. Their numbers stay
    /// apart, if nobody shows ids without keys any more: these could grow into the others.
    #[must_use]
    pub fn only_adds_keys(&self) -> bool {
        let (kept, now) = (self.kept, self.now);
        !self.in_template()
            && !self.in_restart()
            && kept.figure(GENE_BITS) == now.figure(GENE_BITS)
            && kept.figure(BITS) == 0
            && now.figure(KEY_ID_BITS) > 0
    }

    fn differ(&self, field: Field) -> bool {
        self.kept.figure(field) != self.now.figure(field)
    }
}

impl fmt::Display for ShapeChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kept, now } = self;
        let mut separator = "";
        if self.in_template() {
            f.write_str("template is another one")?;
            separator = "; ";
        }
        if self.in_restart() {
            let [was, is] = [kept, now].map(|shape| match shape.restart() {
                Restart::Never => "never",
                Restart::Year => "year",
                Restart::Month => "month",
                Restart::Day => "day",
            });
            write!(f, "{separator}restart was {was}, and is {is}")?;
            separator = "; ";
        }
        let [bits_were, bits_are] = [kept, now].map(|shape| shape.figure(BITS));
        let keys = match (bits_were, bits_are) {
            (0, 1..) => "the ids were shown without keys, and are shown under keys",
            (1.., 0) => "the ids were shown under keys, and are shown without",
            _ => "",
        };
        if !keys.is_empty() {
            write!(f, "{separator}{keys}")?;
            separator = "; ";
        }
        for (field, what) in [(BITS, "bits"), (GENE_BITS, "gene_bits"), (KEY_ID_BITS, "key_id_bits")] {
            let [was, is] = [kept, now].map(|shape| shape.figure(field));
            if was != is && (keys.is_empty() || field == GENE_BITS) {
                write!(f, "{separator}{what} was {was}, and is {is}")?;
                separator = "; ";
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;
    use crate::{Format, FormatKey, FormatOptions};

    fn shape(options: &FormatOptions<'_>) -> FormatShape {
        Format::new(options).unwrap().shape()
    }

    /// They are written in stores, and stay so for ever. Another program computed them, from SipHash-2-4.
    #[test]
    fn shapes_stay_as_they_were_written() {
        let plain = FormatOptions::default();
        let keys = [FormatKey { id: 3, secret: 0x9f3c_1e5b_7a2d_4860_0c41_e6d2_b8f5_730a }];
        let keyed = FormatOptions { bits: 24, gene_bits: 4, key_id_bits: 2, keys: &keys, context: "order", ..plain };
        assert_eq!(Format::default().shape(), shape(&plain));
        assert_eq!(shape(&plain).number(), 8_372_328_055_664_279_552);
        assert_eq!(shape(&keyed).number(), 8_372_328_055_664_291_906);
        assert_eq!(
            Format::new(&keyed).unwrap().key_checks().collect::<alloc::vec::Vec<_>>(),
            [(3, 2_612_544_401_778_816_104)]
        );
    }

    #[test]
    fn whatever_can_show_two_ids_alike_changes_the_shape() {
        let keys = [FormatKey { id: 0, secret: 7 }];
        let daily = FormatOptions {
            template: "{yyyyMMdd}-{id}",
            restart: Restart::Day,
            keys: &keys,
            ..FormatOptions::default()
        };
        let kept = shape(&daily);
        assert_eq!(kept.changes(kept).to_string(), "");
        let with_ids = [FormatKey { id: 1, secret: 7 }];
        for (changed, what) in [
            (FormatOptions { template: "{yyyyMMdd}{id}", ..daily }, "template is another one"),
            (FormatOptions { restart: Restart::Month, ..daily }, "restart was day, and is month"),
            (FormatOptions { bits: 24, ..daily }, "bits was 63, and is 24"),
            (FormatOptions { gene_bits: 16, ..daily }, "gene_bits was 0, and is 16"),
            (FormatOptions { key_id_bits: 8, keys: &with_ids, ..daily }, "key_id_bits was 0, and is 8"),
            (
                FormatOptions { keys: &[], restart: Restart::Year, ..daily },
                "restart was day, and is year; the ids were shown under keys, and are shown without",
            ),
        ] {
            let now = shape(&changed);
            assert_ne!(now, kept);
            assert_eq!(now.changes(kept).to_string(), what);
            assert_eq!(now.restart(), changed.restart);
            assert_eq!(FormatShape::read(now.number()), Some(now));
        }
        assert_eq!(shape(&FormatOptions { utc_offset_minutes: 60, ..daily }), kept);
        for number in [0, 1, (1 << 62) - 1, 1 << 63, u64::MAX] {
            assert_eq!(FormatShape::read(number), None);
        }
    }

    #[test]
    fn without_keys_the_width_changes_no_text() {
        let plain = FormatOptions::default();
        assert_eq!(shape(&FormatOptions { bits: 53, ..plain }), shape(&plain));
    }

    #[test]
    fn the_check_of_a_key_is_that_of_its_permutation() {
        let check = |secret, context, bits| {
            let keys = [FormatKey { id: 0, secret }];
            let format =
                Format::new(&FormatOptions { keys: &keys, context, bits, ..FormatOptions::default() }).unwrap();
            format.key_checks().next().unwrap().1
        };
        let kept = check(7, "order", 24);
        assert_eq!(check(7, "order", 24), kept);
        for other in [check(8, "order", 24), check(7, "orders", 24), check(7, "order", 25)] {
            assert_ne!(other, kept);
            assert!((1..=crate::ID_MAX).contains(&other));
        }
    }
}
