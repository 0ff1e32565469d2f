//! Why a URL names no store, or what its store would not do.

use std::error::Error;

use unalike_storage::StoreError;

/// Why a URL names no store that can be used, or why what was asked of its place was not done.
///
/// No message shows a password.
///
/// ```
/// let error = unalike_stores::StoreUrl::new("orders.sqlite").place().err();
/// assert!(error.is_some_and(|error| error.to_string().contains("is not a URL")));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// The URL, or what it names, is not what is needed.
    #[error("{what}")]
    Unusable {
        /// What is wrong, with the value and what to do.
        what: String,
        /// What caused it, if something did.
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// The store says so itself.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl PlaceError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self::Unusable { what: what.into(), source: None }
    }

    pub(crate) fn because(what: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unusable { what: what.into(), source: Some(source.into()) }
    }
}

/// A failure, with what failed by it.
pub(crate) trait Because<T> {
    /// Says what failed.
    fn because(self, what: impl FnOnce() -> String) -> Result<T, PlaceError>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> Because<T> for Result<T, E> {
    fn because(self, what: impl FnOnce() -> String) -> Result<T, PlaceError> {
        self.map_err(|error| PlaceError::because(what(), error))
    }
}
