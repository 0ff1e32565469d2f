//! Names of tags, as they come from outside and as stores keep them.

use unalike::storage::{StoreError, split_tag, sub_tag, validate_tag};

/// Checks the name of a tag that came from outside. There a sub-key is always apart from its tag, never in its name.
///
/// # Errors
/// [`StoreError::TagInvalid`].
pub(crate) fn plain_tag(tag: &str) -> Result<(), StoreError> {
    validate_tag(tag)?;
    if split_tag(tag).1.is_some() {
        let reason = "it holds a control character".to_owned();
        return Err(StoreError::TagInvalid { tag: tag.to_owned(), reason });
    }
    Ok(())
}

/// The name under which stores keep a tag, or one sub-key of it.
///
/// # Errors
/// [`StoreError::TagInvalid`].
pub(crate) fn stored_name(tag: &str, sub: Option<&str>) -> Result<String, StoreError> {
    plain_tag(tag)?;
    sub.map_or_else(|| Ok(tag.to_owned()), |sub| sub_tag(tag, sub))
}
