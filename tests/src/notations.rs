//! Ids whose texts say how a database keeps and compares them.

/// Ids with each of the last three bits, which stand in the byte of a UUID that MariaDB looks at.
pub fn ids() -> impl Iterator<Item = u64> {
    [1, 1_000_000, 1_541_815_603_606_036_480, unalike_core::ID_MAX - 8].into_iter().flat_map(|first| first..first + 8)
}

/// Two more, whose texts in base 62 differ in case alone: `0000000000A` and `0000000000a`.
pub const ALIKE_BUT_FOR_CASE: [u64; 2] = [10, 36];
