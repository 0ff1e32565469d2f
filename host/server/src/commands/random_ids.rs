//! UUIDs and ULIDs: which there are, and the commands that print them. They need no store, and open none.

use std::io::{self, BufWriter, Write as _};

use unalike::{Error, RandomIds};

use crate::commands::arguments::{UlidArguments, UuidArguments};
use crate::commands::print::is_closed;

/// Ids that are made at once by a command.
const BATCH: u32 = 1_000;

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
