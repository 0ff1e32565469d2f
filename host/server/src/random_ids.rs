//! UUIDs and ULIDs: which there are, and the commands that print them. They need no store, and open none.

use std::io::{self, BufWriter, Write as _};

use clap::ValueEnum;
use unalike::uuid::Uuid;
use unalike::{Error, RandomIds};

use crate::arguments::{UlidArguments, UuidArguments};
use crate::commands::is_closed;

/// Ids that are made at once by a command.
const BATCH: u32 = 1_000;

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

/// `unalike uuid`
pub(crate) fn uuid(arguments: &UuidArguments) -> anyhow::Result<()> {
    let ids = RandomIds::new();
    print(arguments.count, |count| arguments.version.take(&ids, count))
}

/// `unalike ulid`
pub(crate) fn ulid(arguments: &UlidArguments) -> anyhow::Result<()> {
    let ids = RandomIds::new();
    print(arguments.count, |count| ids.take_ulids(count))
}

/// Prints ids, one per line.
fn print<T: std::fmt::Display>(count: u64, take: impl Fn(u32) -> Result<Vec<T>, Error>) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut left = count;
    while left > 0 {
        let count = u32::try_from(left).unwrap_or(BATCH).min(BATCH);
        for id in take(count)? {
            if is_closed(writeln!(out, "{id}"))? {
                return Ok(());
            }
        }
        left -= u64::from(count);
    }
    is_closed(out.flush()).map(drop)
}
