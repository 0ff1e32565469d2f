//! Whether an id came twice, within a bound of memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// A block has a bit for each of so many ids that lie together.
const BLOCK_IDS: u64 = 512;
const BLOCK_WORDS: usize = 8;
/// What a block costs at worst: its 72 bytes in a map that has just grown to twice its size, and the map that it grew
/// from.
const BLOCK_BYTES_MAX: u64 = 256;

type Block = [u64; BLOCK_WORDS];

/// The ids that came, as bits: those of a sequence lie together, and those of a snowflake tick by tick.
#[derive(Debug)]
pub(super) struct Seen {
    blocks: HashMap<u64, Block>,
    /// The block of the id before, which is the block of the next one more often than not.
    current: Option<(u64, Block)>,
    blocks_max: u64,
    /// Ids that were looked at.
    pub(super) checked: u64,
    /// Ids that there was no room for.
    pub(super) unchecked: u64,
    /// Ids that had come before.
    pub(super) twice: u64,
    /// One of them.
    pub(super) example: Option<u64>,
}

impl Seen {
    /// One that takes so much memory at most; none at all with less than a block.
    pub(super) fn within(bytes: u64) -> Self {
        Self {
            blocks: HashMap::new(),
            current: None,
            blocks_max: bytes / BLOCK_BYTES_MAX,
            checked: 0,
            unchecked: 0,
            twice: 0,
            example: None,
        }
    }

    /// An id came.
    #[inline]
    pub(super) fn note(&mut self, id: u64) {
        let number = id / BLOCK_IDS;
        if self.current.is_none_or(|(current, _)| current != number) && !self.turn_to(number) {
            self.unchecked += 1;
            return;
        }
        let (word, bit) = place(id);
        let Some(word) = self.current.as_mut().and_then(|(_, block)| block.get_mut(word)) else { return };
        self.checked += 1;
        if *word & bit != 0 {
            self.twice += 1;
            self.example = Some(id);
        }
        *word |= bit;
    }

    /// Makes this the current block, if there is room for it.
    fn turn_to(&mut self, number: u64) -> bool {
        if let Some((number, block)) = self.current.take() {
            self.blocks.insert(number, block);
        }
        let is_full = self.blocks.len() as u64 >= self.blocks_max;
        match self.blocks.entry(number) {
            Entry::Vacant(_) if is_full => return false,
            entry => self.current = Some((number, *entry.or_default())),
        }
        true
    }

    /// Puts together what two threads saw.
    pub(super) fn join(&mut self, mut other: Self) {
        self.checked += other.checked;
        self.unchecked += other.unchecked;
        self.twice += other.twice;
        self.example = self.example.or(other.example);
        // In place of what the map had of them when they became current.
        self.blocks.extend(self.current.take());
        other.blocks.extend(other.current.take());
        for (number, theirs) in other.blocks {
            let ours = self.blocks.entry(number).or_default();
            for (at, (ours, theirs)) in (0_u64..).zip(ours.iter_mut().zip(theirs)) {
                let both = *ours & theirs;
                if both != 0 {
                    self.twice += u64::from(both.count_ones());
                    self.example = Some(number * BLOCK_IDS + at * 64 + u64::from(both.trailing_zeros()));
                }
                *ours |= theirs;
            }
        }
    }
}

/// The word of a block and the bit in it.
fn place(id: u64) -> (usize, u64) {
    let at = id % BLOCK_IDS;
    (usize::try_from(at / 64).unwrap_or(0), 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_comes_twice_is_noticed() {
        let mut seen = Seen::within(1 << 20);
        for id in (1..5_000).chain([u64::MAX >> 1, 1 << 40]) {
            seen.note(id);
        }
        assert_eq!((seen.checked, seen.unchecked, seen.twice, seen.example), (5_001, 0, 0, None));
        for id in [4_999, 1 << 40, 511, 6_000] {
            seen.note(id);
        }
        assert_eq!((seen.checked, seen.twice, seen.example), (5_005, 3, Some(511)));
    }

    #[test]
    fn an_id_that_two_threads_got_is_noticed() {
        let [mut one, mut two] = [Seen::within(1 << 20), Seen::within(1 << 20)];
        (1..1_000).for_each(|id| one.note(id));
        (1_000..3_000).chain([700, 64]).for_each(|id| two.note(id));
        assert_eq!((one.twice, two.twice), (0, 0));
        one.join(two);
        assert_eq!((one.checked, one.twice), (999 + 2_002, 2));
        assert!(one.example.is_some_and(|id| id == 64 || id == 700), "{:?}", one.example);
    }

    #[test]
    fn what_two_threads_got_apart_did_not_come_twice() {
        let [mut one, mut two] = [Seen::within(1 << 20), Seen::within(1 << 20)];
        [511, 512, 510].into_iter().for_each(|id| one.note(id));
        // It comes back to a block and ends in it.
        [3_584, 3_583, 3_585].into_iter().for_each(|id| two.note(id));
        one.join(two);
        assert_eq!((one.checked, one.twice, one.example), (6, 0, None));
    }

    #[test]
    fn what_does_not_fit_is_not_checked() {
        let mut seen = Seen::within(2 * BLOCK_BYTES_MAX);
        for id in [1, 600, 1_200, 1, 2, 601] {
            seen.note(id);
        }
        assert_eq!((seen.checked, seen.unchecked, seen.twice), (5, 1, 1));
        let mut nothing = Seen::within(0);
        nothing.note(1);
        nothing.note(1);
        assert_eq!((nothing.checked, nothing.unchecked, nothing.twice), (0, 2, 0));
    }
}
