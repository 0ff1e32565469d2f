//! `unalike next`: ids on the terminal, from the store.

use std::io::{self, BufWriter, Write as _};

use anyhow::{bail, ensure};
use unalike::{Formatted, Sequence, Snowflake, Text, encode};

use crate::commands::arguments::NextArguments;
use crate::commands::is_closed;
use crate::config::Config;
use crate::config::formats::{Asked, Notation};
use crate::config::tokens::Tokens;
use crate::service::Service;
use crate::stores::Purpose;

/// Ids that are taken at once: no more than these are lost if the reader goes away.
const BATCH: u32 = 1_000;

/// `unalike next`
pub(crate) async fn next(config: Config, arguments: NextArguments) -> anyhow::Result<()> {
    let address = std::process::id().to_string();
    let service = Service::open(&config, Tokens::unwanted(), Purpose::Command, &address).await?;
    let printed = print_ids(&service, &arguments).await;
    // Also after an error: what was not used goes back.
    service.close().await;
    printed
}

/// Where the ids come from.
enum Generator<'a> {
    Sequence(Sequence),
    Snowflake(&'a Snowflake),
    Formatted(Formatted),
}

async fn print_ids(service: &Service, arguments: &NextArguments) -> anyhow::Result<()> {
    let name = &arguments.name;
    let (shown, bits) = if arguments.snowflake || service.is_quick(name) {
        ensure!(
            arguments.sub.is_none(),
            "the tag {name:?} is quick: its ids are those of a snowflake, which has no sub-keys"
        );
        (service.shown_snowflake(name), service.snowflake(name)?.layout().bits())
    } else {
        (service.shown(name), 63)
    };
    let asked = Asked { notation: arguments.format, as_number: false, shard_key: arguments.shard_key };
    let notation = asked.notation(name, shown, bits)?;
    let generator = if arguments.snowflake || service.is_quick(name) {
        match service.formatted_snowflake(name) {
            Some(formatted) => Generator::Formatted(formatted.clone()),
            None => Generator::Snowflake(service.snowflake(name)?),
        }
    } else {
        let sub = service.sub_key(name, arguments.sub.as_deref()).await?;
        match shown {
            Some(shown) => Generator::Formatted(service.formatted(name, sub, shown).await?),
            None => Generator::Sequence(service.sequence(name, sub).await?),
        }
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let mut left = arguments.count;
    while left > 0 {
        let count = u32::try_from(left).unwrap_or(BATCH).min(BATCH);
        let written = match generator.write(&mut out, notation, arguments.shard_key, count).await {
            Ok(written) => written,
            // The last ones would be lost with this process.
            Err(error) => {
                let last = last_ids(&error);
                if last == 0 {
                    return Err(error);
                }
                let written = generator.write(&mut out, notation, arguments.shard_key, last).await?;
                if !is_closed(written)? {
                    is_closed(out.flush())?;
                }
                let printed = arguments.count - left + u64::from(last);
                bail!(
                    "{name:?} is exhausted: {printed} ids were left and are printed, and {} were asked for",
                    arguments.count
                );
            }
        };
        if is_closed(written)? {
            return Ok(());
        }
        left -= u64::from(count);
    }
    is_closed(out.flush()).map(drop)
}

/// How many ids are left, where that is why there are not as many as were asked for.
fn last_ids(error: &anyhow::Error) -> u32 {
    match error.downcast_ref::<unalike::Error>().map(unalike::Error::kind) {
        Some(unalike::ErrorKind::Exhausted { left, .. }) => u32::try_from(*left).unwrap_or(u32::MAX),
        _ => 0,
    }
}

impl Generator<'_> {
    /// Writes so many ids, one per line, and answers how that went.
    async fn write(
        &self,
        out: &mut impl io::Write,
        notation: Notation,
        shard_key: Option<u64>,
        count: u32,
    ) -> anyhow::Result<io::Result<()>> {
        match self {
            Self::Sequence(sequence) => write_numbers(out, notation, sequence.take(count).await?.iter()),
            Self::Snowflake(snowflake) => write_numbers(out, notation, snowflake.take(count).await?.iter()),
            Self::Formatted(formatted) => {
                let batch = formatted.take(count, shard_key).await?;
                if notation == Notation::Template {
                    let mut written = Ok(());
                    batch.each_text(|text| {
                        if written.is_ok() {
                            written = writeln!(out, "{text}");
                        }
                    })?;
                    Ok(written)
                } else {
                    write_numbers(out, notation, batch.numbers()?.into_iter())
                }
            }
        }
    }
}

/// Writes numbers, one per line, and answers how that went.
fn write_numbers(
    out: &mut impl io::Write,
    notation: Notation,
    numbers: impl Iterator<Item = u64>,
) -> anyhow::Result<io::Result<()>> {
    for number in numbers {
        let text = encode(number, notation.text().unwrap_or(Text::Decimal))?;
        if let Err(error) = writeln!(out, "{}", text.as_str()) {
            return Ok(Err(error));
        }
    }
    Ok(Ok(()))
}
