//! Random numbers of the operating system's, for whoever names a grant or chooses a worker.

use crate::StoreError;

/// 64 random bits: to choose a worker by, see [`choose_worker`](crate::choose_worker).
///
/// # Errors
/// [`StoreError::Unavailable`] when the operating system gives none.
///
/// ```
/// # use unalike_storage::{random_64, random_128};
/// assert_ne!(random_64()?, random_64()?);
/// assert_ne!(random_128()?, random_128()?);
/// # Ok::<(), unalike_storage::StoreError>(())
/// ```
pub fn random_64() -> Result<u64, StoreError> {
    getrandom::u64().map_err(none)
}

/// 128 random bits, which nobody else has: a [`GrantId`](crate::GrantId), say.
///
/// # Errors
/// As [`random_64`].
pub fn random_128() -> Result<u128, StoreError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(none)?;
    Ok(u128::from_ne_bytes(bytes))
}

fn none(error: getrandom::Error) -> StoreError {
    StoreError::unavailable("the operating system gives no random bits".to_owned()).with_source(error)
}
