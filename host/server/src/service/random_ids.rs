//! UUIDs and ULIDs: which there are. They need no store.

use clap::ValueEnum;
use unalike::uuid::Uuid;
use unalike::{Error, RandomIds};

/// A version of UUIDs, by its number in RFC 9562.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UuidVersion {
    /// Random, in no order
    #[value(name = "4")]
    V4,
    /// The time and random bits, ascending
    #[value(name = "7")]
    V7,
}

impl UuidVersion {
    /// The one that is meant where nothing is said.
    pub(crate) const DEFAULT: Self = Self::V7;

    /// Its number.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V7 => 7,
        }
    }

    /// So many UUIDs of it.
    pub(crate) fn take(self, ids: &RandomIds, count: u32) -> Result<Vec<Uuid>, Error> {
        match self {
            Self::V4 => ids.take_uuids_v4(count),
            Self::V7 => ids.take_uuids_v7(count),
        }
    }
}
