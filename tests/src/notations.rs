//! Ids whose texts say how a database keeps and compares them.

use unalike_core::{Text, encode};

/// Ids with each of the last three bits, which stand in the byte of a UUID that MariaDB looks at.
pub fn ids() -> impl Iterator<Item = u64> {
    [1, 1_000_000, 1_541_815_603_606_036_480, unalike_core::ID_MAX - 8].into_iter().flat_map(|first| first..first + 8)
}

/// Two more, whose texts in base 62 differ in case alone: `0000000000A` and `0000000000a`.
pub const ALIKE_BUT_FOR_CASE: [u64; 2] = [10, 36];

/// Writes ids as texts into a column that has each of them once, and answers how many it refused.
///
/// # Errors
/// For an id that has no text, and as `insert` for whatever else it refuses.
pub async fn write(
    ids: impl Iterator<Item = u64>,
    text: Text,
    mut insert: impl AsyncFnMut(&str) -> sqlx::Result<()>,
) -> anyhow::Result<u32> {
    let mut refused = 0;
    for id in ids {
        match insert(encode(id, text)?.as_str()).await {
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => refused += 1,
            inserted => inserted?,
        }
    }
    Ok(refused)
}
