//! `unalike next`: ids on the terminal, from the store.

use std::io::{self, BufWriter, Write as _};

use anyhow::{anyhow, bail, ensure};
use unalike::storage::ShellWord;

use crate::commands::arguments::NextArguments;
use crate::commands::print::is_closed;
use crate::config::Config;
use crate::config::formats::FormatRequest;
use crate::config::tokens::{Permit, Tokens};
use crate::service::Service;
use crate::service::issue::{IdForm, Issued, Owner, Written};
use crate::service::stores::Purpose;

/// Ids that are taken at once: no more than these are lost if the reader goes away.
const BATCH: u32 = 1_000;

/// More than these are asked for by a slip more often than not.
const COUNT_UNCONFIRMED_MAX: u64 = 1_000_000;

/// `unalike next`
pub(crate) async fn next(config: Config, arguments: NextArguments) -> anyhow::Result<()> {
    ensure!(
        arguments.yes || arguments.count <= COUNT_UNCONFIRMED_MAX,
        "-n {} uses up so many ids, for good: more than {COUNT_UNCONFIRMED_MAX} must be confirmed, with --yes",
        arguments.count
    );
    let service = open(&config, &arguments.name, arguments.snowflake).await?;
    let printed = print_ids(&service, &arguments).await;
    // Also after an error: what was not used goes back.
    service.close().await;
    printed
}

/// Opens the store for ids of this name. A name that is only a snowflake's is refused where a tag is meant: a tag of
/// that name would be made, and give 1.
pub(crate) async fn open(config: &Config, name: &str, is_snowflake: bool) -> anyhow::Result<Service> {
    let address = std::process::id().to_string();
    // A tag that the configuration declares is what it says there, also a snowflake.
    let is_slip = !is_snowflake && config.snowflakes()?.contains_key(name) && !config.tags.contains_key(name);
    let service = Service::open(config, Tokens::unwanted(), Purpose::Command, &address).await?;
    let refused = match is_slip {
        false => return Ok(service),
        true => match service.has_tag(name).await {
            Ok(true) => return Ok(service),
            Ok(false) => anyhow!(
                "{name:?} is a snowflake: add --snowflake. For a sequence of that name, create it first: unalike tags create -- {}",
                ShellWord(name)
            ),
            Err(error) => error.into(),
        },
    };
    service.close().await;
    Err(refused)
}

async fn print_ids(service: &Service, arguments: &NextArguments) -> anyhow::Result<()> {
    let name = arguments.name.as_str();
    let owner = if arguments.snowflake {
        Owner::Snowflake { name }
    } else {
        Owner::Tag { name, sub: arguments.sub.as_deref() }
    };
    let wish =
        IdForm::Shown(FormatRequest { notation: arguments.format, as_number: false, shard_key: arguments.shard_key });
    let mut out = BufWriter::new(io::stdout().lock());
    let mut left = arguments.count;
    while left > 0 {
        let count = u32::try_from(left).unwrap_or(BATCH).min(BATCH);
        let issued = match service.issue(&Permit::unbound(), owner, count, wish).await {
            Ok(issued) => issued,
            // The last ones would be lost with this process.
            Err(error) => {
                let last = error.left();
                if last == 0 {
                    return Err(error.into());
                }
                if !write(&mut out, &service.issue(&Permit::unbound(), owner, last, wish).await?)? {
                    is_closed(out.flush())?;
                }
                let printed = arguments.count - left + u64::from(last);
                bail!(
                    "{name:?} is exhausted: {printed} ids were left and are printed, and {} were asked for",
                    arguments.count
                );
            }
        };
        if write(&mut out, &issued)? {
            return Ok(());
        }
        left -= u64::from(count);
    }
    is_closed(out.flush()).map(drop)
}

/// Writes ids, one per line; answers whether the reader has gone.
fn write(out: &mut impl io::Write, issued: &Issued) -> anyhow::Result<bool> {
    let mut is_gone = false;
    issued.each(|id| {
        if !is_gone {
            is_gone = is_closed(match id {
                Written::Number(number) => writeln!(out, "{number}"),
                Written::Text(text) => writeln!(out, "{text}"),
            })?;
        }
        anyhow::Ok(())
    })?;
    Ok(is_gone)
}
