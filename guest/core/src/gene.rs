//! A shard gene: the low bits of a key, carried as the low bits of an id, so that both lead to the same shard.
//!
//! Orders that are found by their own id as well as by their buyer's need one table for both: with the low bits of the
//! buyer's id as its gene, an order's id goes to the buyer's shard by `id % 2^bits`, as the buyer's id does. The name
//! and the arithmetic are those of Chinese practice ("基因法"), in Idleaf for example:
//! `(id << log2(shards)) | user % shards`.

use crate::ID_MAX;

/// The most bits of a gene: 65,536 shards.
pub const GENE_BITS_MAX: u8 = 16;

/// So many low bits of a key: 1 to [`GENE_BITS_MAX`].
///
/// ```
/// use unalike_core::Gene;
/// let gene = Gene::new(4).expect("1 to 16 bits");
/// let (order, buyer) = (1_000, 123_456_789);
/// let id = gene.join(order, buyer).expect("it fits 63 bits");
/// assert_eq!(id % 16, buyer % 16);
/// assert_eq!(gene.split(id), Some((order, buyer % 16)));
/// ```
///
/// A tag's ids have the gene or have it not: `1 << 4 | 0` is also the sixteenth id without one. The ids of one call may
/// all be joined with one key, or each with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gene {
    bits: u8,
}

impl Gene {
    /// A gene of so many bits; `None` for 0 and for more than [`GENE_BITS_MAX`].
    #[must_use]
    pub const fn new(bits: u8) -> Option<Self> {
        if 1 <= bits && bits <= GENE_BITS_MAX { Some(Self { bits }) } else { None }
    }

    /// Its width.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.bits
    }

    /// The gene of a key: `key % 2^bits`.
    #[must_use]
    pub const fn of(self, shard_key: u64) -> u64 {
        shard_key & ((1 << self.bits) - 1)
    }

    /// The greatest id that the gene can be joined to.
    #[must_use]
    pub const fn id_max(self) -> u64 {
        ID_MAX >> self.bits
    }

    /// The id with the gene of a key as its low bits; `None` for 0 and for an id above [`id_max`](Self::id_max).
    #[must_use]
    pub const fn join(self, id: u64, shard_key: u64) -> Option<u64> {
        if id == 0 || id > self.id_max() { None } else { Some(id << self.bits | self.of(shard_key)) }
    }

    /// The id and the gene that were joined; `None` for what is no such id.
    #[must_use]
    pub const fn split(self, joined: u64) -> Option<(u64, u64)> {
        let id = joined >> self.bits;
        if id == 0 || joined > ID_MAX { None } else { Some((id, self.of(joined))) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn widths_are_1_to_16() {
        for bits in 0..=u8::MAX {
            assert_eq!(Gene::new(bits).is_some(), (1..=16).contains(&bits), "{bits}");
        }
    }

    #[test]
    fn a_gene_is_the_rest_by_the_number_of_shards() {
        // Idleaf's arithmetic, by hand.
        for (bits, id, key, joined) in [
            (1, 1, 7, 0b11),
            (4, 1_000, 123_456_789, 16_005),
            (6, 7, 64, 448),
            (10, 3, u64::MAX, 4_095),
            (16, 2, 65_537, 131_073),
        ] {
            let gene = Gene::new(bits).unwrap();
            assert_eq!(gene.bits(), bits);
            assert_eq!(gene.of(key), key % (1 << bits));
            assert_eq!(gene.join(id, key), Some(joined));
            assert_eq!(gene.split(joined), Some((id, key % (1 << bits))));
        }
    }

    #[test]
    fn each_number_is_one_id_with_one_gene() {
        for bits in 1..=8 {
            let gene = Gene::new(bits).unwrap();
            for joined in 0..4_096 {
                match gene.split(joined) {
                    Some((id, part)) => assert_eq!(gene.join(id, part), Some(joined)),
                    None => assert!(joined < 1 << bits, "{joined} of {bits} bits"),
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let gene = Gene::new(16).unwrap();
        assert_eq!(gene.join(gene.id_max(), u64::MAX), Some(ID_MAX));
        for id in [0, gene.id_max() + 1, u64::MAX] {
            assert_eq!(gene.join(id, 0), None, "{id}");
        }
        for joined in [0, 1, 0xFFFF, ID_MAX + 1, u64::MAX] {
            assert_eq!(gene.split(joined), None, "{joined}");
        }
    }

    proptest! {
        #[test]
        fn an_id_goes_where_its_key_goes(bits in 1..=16_u8, id in any::<u64>(), key in any::<u64>()) {
            let gene = Gene::new(bits).unwrap();
            let id = id % gene.id_max() + 1;
            let joined = gene.join(id, key).unwrap();
            prop_assert_eq!(joined % (1 << bits), key % (1 << bits));
            prop_assert_eq!(gene.split(joined), Some((id, key % (1 << bits))));
        }

        #[test]
        fn order_of_ids_stays(bits in 1..=16_u8, one in any::<u64>(), two in any::<u64>(), keys in any::<(u64, u64)>()) {
            let gene = Gene::new(bits).unwrap();
            let (one, two) = (one % gene.id_max() + 1, two % gene.id_max() + 1);
            prop_assume!(one < two);
            prop_assert!(gene.join(one, keys.0) < gene.join(two, keys.1));
        }
    }
}
