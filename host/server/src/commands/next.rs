//! `unalike next`: ids on the terminal, from the store.

use std::error::Error;
use std::io::{self, BufWriter, Write as _};

use anyhow::{anyhow, bail, ensure};
use unalike::settings::Secrets;
use unalike::storage::{NotBegun, ShellWord, validate_new_tag};

use crate::commands::arguments::NextArguments;
use crate::commands::print::is_closed;
use crate::config::Config;
use crate::config::formats::FormatRequest;
use crate::config::names::stored_name;
use crate::config::tokens::{Permit, Tokens};
use crate::service::Service;
use crate::service::issue::{IdForm, Issued, Owner, Written, check_wish};
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
    let name = arguments.name.as_str();
    let owner = if arguments.snowflake {
        Owner::Snowflake { name }
    } else {
        Owner::Tag { name, sub: arguments.sub.as_deref() }
    };
    let asked = FormatRequest { notation: arguments.format, as_number: false, shard_key: arguments.shard_key };
    let service = open(&config, owner, asked).await?;
    let printed = print_ids(&service, owner, asked, arguments.count).await;
    // Also after an error: what was not used goes back.
    service.close().await;
    printed
}

/// Opens the store for ids of this owner. What no store could mend is refused before, so that a mistake makes none.
pub(crate) async fn open(config: &Config, owner: Owner<'_>, asked: FormatRequest) -> anyhow::Result<Service> {
    check_wish(&config.formats(&Secrets::read(&config.keys)?)?, owner, asked)?;
    let address = std::process::id().to_string();
    let Some(Doubtful { tag, refused }) = Doubtful::of(config, owner)? else {
        return Service::open(config, Tokens::unwanted(), Purpose::Command, &address).await;
    };
    let service = match Service::open(config, Tokens::unwanted(), Purpose::LookingInto, &address).await {
        // Nor is there the tag.
        Err(error) if error.chain().any(<dyn Error>::is::<NotBegun>) => return Err(refused),
        opened => opened?,
    };
    let refused = match service.has_tag(&tag).await {
        Ok(true) => return Ok(service),
        Ok(false) => refused,
        Err(error) => error.into(),
    };
    service.close().await;
    Err(refused)
}

/// A tag that is not to be made: one that is there is used, whatever its name is.
struct Doubtful {
    /// The name that the store has it under.
    tag: String,
    /// Why it is not made.
    refused: anyhow::Error,
}

impl Doubtful {
    /// A name that is only a snowflake's is doubtful where a tag is meant, which would give 1; and so is one with a
    /// space at an end.
    fn of(config: &Config, owner: Owner<'_>) -> anyhow::Result<Option<Self>> {
        let Owner::Tag { name, sub } = owner else { return Ok(None) };
        // A tag that the configuration declares is what it says there, also a snowflake.
        if config.tags.contains_key(name) {
            return Ok(None);
        }
        if config.snowflakes()?.contains_key(name) {
            let refused = anyhow!(
                "{name:?} is a snowflake: add --snowflake. For a sequence of that name, create it first: unalike tags create -- {}",
                ShellWord(name)
            );
            return Ok(Some(Self { tag: name.to_owned(), refused }));
        }
        let tag = stored_name(name, sub)?;
        Ok(validate_new_tag(&tag).err().map(|error| Self { tag, refused: error.into() }))
    }
}

async fn print_ids(service: &Service, owner: Owner<'_>, asked: FormatRequest, wanted: u64) -> anyhow::Result<()> {
    let wish = IdForm::Shown(asked);
    let mut out = BufWriter::new(io::stdout().lock());
    let mut left = wanted;
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
                let (name, printed) = (owner.name(), wanted - left + u64::from(last));
                bail!("{name:?} is exhausted: {printed} ids were left and are printed, and {wanted} were asked for");
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
