//! A keyed permutation of ids, so that what is shown tells neither how many there are nor which comes next.
//!
//! The construction is that of FF1 (NIST SP 800-38G, 2016): an alternating Feistel network of ten rounds over the two
//! halves of the number, with radix 2, so that the modular sums are exclusive ors. Its round function is SipHash-2-4
//! (Aumasson and Bernstein, *SipHash: a fast short-input PRF*, 2012) where FF1 has AES: a pseudo-random function with a
//! key of 128 bits that was made for inputs as short as these, and is small enough to stay within the component. It is
//! FF1's structure and not FF1: no certificate speaks of it.
//!
//! **What it promises.** It is a bijection for every key, so that no two ids become alike; and without the key what is
//! shown looks like a number drawn at random, each once, as far as SipHash is a pseudo-random function (Luby and
//! Rackoff, *How to construct pseudorandom permutations*, 1988; ten rounds against the attacks on small domains that FF1
//! is made for).
//!
//! **What it does not.** It is no access control: someone can guess, and in a small domain guesses hit (of 2^32 numbers
//! with a million ids, one guess in 4,295). It hides nothing from those who have the key, or who can ask for
//! many ids and see when each was made. Equal ids under one key look equal. Below some 20 bits (NIST asks for a million
//! numbers at least) a table of all that was seen is soon a table of all.

use core::fmt;

use alloc::vec::Vec;
use siphasher::sip::SipHasher24;

/// FF1's number of rounds.
const ROUNDS: u64 = 10;

/// A bijection of the numbers 1 to 2^bits - 1, one per key, context and tweak.
///
/// ```
/// use unalike_core::Permutation;
/// let permutation = Permutation::new(0x000102030405060708090a0b0c0d0e0f, "order", 40).expect("2 to 64 bits");
/// let shown = permutation.apply(1, 0).expect("1 is within 40 bits");
/// assert_ne!(shown, 1);
/// assert_eq!(permutation.invert(shown, 0), Some(1));
/// ```
#[derive(Clone)]
pub struct Permutation {
    bits: u8,
    function: SipHasher24,
}

impl fmt::Debug for Permutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key is no one's business.
        f.debug_struct("Permutation").field("bits", &self.bits).finish_non_exhaustive()
    }
}

impl Permutation {
    /// The permutation of numbers of so many bits, 2 to 64, under a key; `None` for other widths.
    ///
    /// Another context, the name of a tag for example, gives a permutation that has nothing to do with it, as another key
    /// would.
    #[must_use]
    pub fn new(key: u128, context: &str, bits: u8) -> Option<Self> {
        if !(2..=64).contains(&bits) {
            return None;
        }
        let function = SipHasher24::new_with_keys(low_half(key), low_half(key >> 64));
        // A key of its own for each context and width, by the same function: its inputs here have 9 bytes or more, those
        // of the rounds come under the new key alone.
        let half = |which: u8| {
            let mut input = Vec::with_capacity(context.len() + 9);
            input.extend_from_slice(b"unalike");
            input.extend_from_slice(&[which, bits]);
            input.extend_from_slice(context.as_bytes());
            function.hash(&input)
        };
        Some(Self { bits, function: SipHasher24::new_with_keys(half(0), half(1)) })
    }

    /// The width, in bits.
    #[must_use]
    pub const fn bits(&self) -> u8 {
        self.bits
    }

    /// The number that stands for this one: 1 to 2^bits - 1. `None` for 0, and for a number of more bits.
    ///
    /// Each tweak, up to 2^28 - 1, gives a permutation of its own; what is shown is turned back under the same.
    #[must_use]
    pub fn apply(&self, number: u64, tweak: u32) -> Option<u64> {
        self.within(number, tweak, Self::forwards)
    }

    /// The number that this one stands for: the inverse of [`apply`](Self::apply).
    #[must_use]
    pub fn invert(&self, number: u64, tweak: u32) -> Option<u64> {
        self.within(number, tweak, Self::backwards)
    }

    /// The network permutes 0 too, which is no id. Whatever would become 0 takes the place that 0 would have: it is free,
    /// since 0 never comes.
    fn within(&self, number: u64, tweak: u32, network: fn(&Self, u64, u32) -> u64) -> Option<u64> {
        if number == 0 || number > ones(self.bits) || tweak >> 28 != 0 {
            return None;
        }
        match network(self, number, tweak) {
            0 => Some(network(self, 0, tweak)),
            other => Some(other),
        }
    }

    fn forwards(&self, number: u64, tweak: u32) -> u64 {
        let (narrow, wide) = (self.bits / 2, self.bits - self.bits / 2);
        let (mut left, mut right) = (number >> wide, number & ones(wide));
        for round in 0..ROUNDS {
            let width = if round % 2 == 0 { narrow } else { wide };
            (left, right) = (right, left ^ self.round(round, tweak, right) & ones(width));
        }
        left << wide | right
    }

    fn backwards(&self, number: u64, tweak: u32) -> u64 {
        let (narrow, wide) = (self.bits / 2, self.bits - self.bits / 2);
        let (mut left, mut right) = (number >> wide, number & ones(wide));
        for round in (0..ROUNDS).rev() {
            let width = if round % 2 == 0 { narrow } else { wide };
            (left, right) = (right ^ self.round(round, tweak, left) & ones(width), left);
        }
        left << wide | right
    }

    /// The pseudo-random function of a round: 4 bits of its number, 28 of the tweak, and a half of 32 bits at most.
    fn round(&self, round: u64, tweak: u32, half: u64) -> u64 {
        let input = round << 60 | u64::from(tweak) << 32 | half;
        self.function.hash(&input.to_le_bytes())
    }
}

/// A number of this many ones, 0 to 64.
const fn ones(bits: u8) -> u64 {
    if bits == 0 { 0 } else { u64::MAX >> (64 - bits) }
}

#[expect(clippy::cast_possible_truncation, reason = "the other half is asked for by itself")]
const fn low_half(wide: u128) -> u64 {
    wide as u64
}
