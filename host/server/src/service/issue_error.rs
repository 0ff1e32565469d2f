//! Why no ids were issued: of the store or the library, until an answer of HTTP or a line of a command is made of it.

use unalike::storage::StoreError;
use unalike::{Error, ErrorKind, TextError};

use crate::config::formats::Refusal;
use crate::service::problem::{Of, Problem};

/// Why no ids were issued.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IssueError {
    /// What was asked for cannot be, as the caller is told.
    #[error(transparent)]
    Refused(#[from] Problem),
    /// What the library says.
    #[error(transparent)]
    Failed(#[from] Error),
    /// The same of a snowflake, whose store is that of the leases.
    #[error(transparent)]
    OfSnowflake(Error),
    /// What the store says.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A number that its notation has no text for, which no store grants.
    #[error("an id cannot be written")]
    Unwritten(#[from] TextError),
}

impl IssueError {
    /// How many ids are left, where that is why there are not as many as were asked for.
    pub(crate) fn left(&self) -> u32 {
        match self {
            Self::Failed(error) | Self::OfSnowflake(error) => match error.kind() {
                ErrorKind::Exhausted { left, .. } => u32::try_from(*left).unwrap_or(u32::MAX),
                _ => 0,
            },
            Self::Refused(_) | Self::Store(_) | Self::Unwritten(_) => 0,
        }
    }
}

impl From<IssueError> for Problem {
    fn from(error: IssueError) -> Self {
        match error {
            IssueError::Refused(problem) => problem,
            IssueError::Failed(error) => error.into(),
            IssueError::OfSnowflake(error) => Self::of(&error, Of::Leases),
            IssueError::Store(error) => error.into(),
            IssueError::Unwritten(error) => Self::unwritten(&error),
        }
    }
}

impl From<Refusal> for IssueError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.into())
    }
}
