//! `unalike store`: accept another server or restored data, or make an empty Redis a store.

use std::fmt::Write as _;

use anyhow::{Context, bail, ensure};
use unalike_stores::{Adopted, Adoption, LiftedTags, Place, StoreUrl};

use crate::commands::print::print;
use crate::config::Config;
use crate::config::leases::LeasePlace;
use crate::service::stores::open_one;
use crate::service::tags::RAISE_MAX;
use crate::words::rfc3339;

/// `unalike store adopt` and `unalike store restored`, of the store, or of this one that keeps leases only
pub(crate) async fn adopt(
    config: &Config,
    leases: Option<&StoreUrl>,
    (lift, is_confirmed): (u64, bool),
    replication_ended: bool,
    is_restored: bool,
) -> anyhow::Result<()> {
    ensure!(
        is_confirmed || lift <= RAISE_MAX,
        "--lift {lift} takes so many numbers from every tag, for good: more than {RAISE_MAX} must be confirmed, with --yes"
    );
    let Some(url) = leases.or_else(|| config.store.only()) else {
        bail!("this is said of one store at a time: name only that one, not all of {} (--store)", config.store);
    };
    let place = if leases.is_some() { url.lease_place()? } else { url.place()? };
    let address = place.address();
    let limits = config.lease_limits();
    let is_alone = config.backing.as_ref().is_some_and(StoreUrl::is_nothing);
    let adopted = place.adopt(url, &Adoption { lift, limits, replication_ended, is_restored, is_alone }).await?;
    let from = rfc3339(adopted.leases_from_ms);
    // Only databases have tables of others.
    let others = match url.scheme() {
        Some("etcd" | "sqlite" | "zookeeper") => "",
        _ if url.is_volatile() => "",
        _ => {
            "if the database has tables of other dialects too, adopt it with the URL of each (`unalike store adopt`); then "
        }
    };
    let (done, before, programs) = match is_restored {
        true => ("it continues with the restored data", "the lost data", "start the programs that use it"),
        false => ("the server is adopted", "the server before", "restart the programs that used the server before"),
    };
    let mut text = format!("{address}: {done}\n");
    if leases.is_none() {
        text.push_str(&lifted(&adopted, lift, before));
    }
    let snowflakes = match leases_elsewhere(config, &*place)? {
        Some(elsewhere) => elsewhere,
        // Beside Redis they are often kept elsewhere.
        None if url.is_volatile() => format!(
            "workers that are leased in this Redis are leased anew from {from} on; where it lacks a namespace, later, \
             when all leases of {before} have ended"
        ),
        None => format!("workers are leased from {from} on, when all leases of {before} have ended"),
    };
    writeln!(text, "snowflakes: {snowflakes}\nnext: {others}{programs}")?;
    if adopted.follows_itself {
        text.push_str(
            "mind: its own changes came back to it from a replica. It is refused again with the next that does, so it must \
             follow none (STOP SLAVE; RESET SLAVE ALL)\n",
        );
    }
    print(&text)
}

/// Where leases are kept, if that is not the place that was adopted.
fn leases_elsewhere(config: &Config, place: &dyn Place) -> anyhow::Result<Option<String>> {
    let named = match config.lease_place() {
        LeasePlace::Named(named) => named,
        LeasePlace::Beside(_) => return Ok(None),
        LeasePlace::Static => return Ok(Some("no store leases their workers (--unsafe-static-worker)".to_owned())),
        // A Redis may have leases of other programs.
        LeasePlace::Nowhere if config.leases.is_none() => return Ok(None),
        LeasePlace::Nowhere => return Ok(Some("there are none (--leases none)".to_owned())),
    };
    let other = named.lease_place()?;
    if other.address() == place.address() && other.schema() == place.schema() {
        return Ok(None);
    }
    // Whatever a Redis above a durable store loses, it goes on with new time.
    let is_above = named.is_volatile() && !config.backing.as_ref().is_some_and(StoreUrl::is_nothing);
    let hint = match is_above {
        true => String::new(),
        false => format!(": `unalike --store '{named}' store restored --lift COUNT` if that was restored"),
    };
    Ok(Some(format!("leases are kept in {named}, which is another store{hint}")))
}

/// What was lifted, and what that does for names that are not there.
fn lifted(adopted: &Adopted, lift: u64, before: &str) -> String {
    let tags = adopted.tags;
    match adopted.kind {
        LiftedTags::Own => format!(
            "tags: {tags}, each lifted by {lift} numbers\n\
             tags and sub-keys that are not here: each begins that far above its start, since {before} may have had it\n"
        ),
        LiftedTags::Rows => format!(
            "tags: {tags}, each lifted by {lift} numbers\n\
             tags that are not here: each that unalike creates begins that far above its start, since {before} may have had \
             it; a row that you insert by hand begins at its own value, so choose one above all that was handed out\n"
        ),
        LiftedTags::Sequences => format!(
            "sequences: {tags}, and {lift} values were drawn from each; with INCREMENT BY n, a value stands for n numbers\n\
             sequences that are not here: each that you create begins at its own START, since unalike makes none: choose \
             one above all that was handed out under its name\n"
        ),
    }
}

/// `unalike store rebind`
pub(crate) async fn rebind(config: &Config, from: &str) -> anyhow::Result<()> {
    let (Some(url), Some(backing)) = (config.store.volatile(), config.backing.as_ref().filter(|url| !url.is_nothing()))
    else {
        bail!(
            "only a store in Redis has a durable store behind it: name both (--store redis://HOST/DATABASE --backing URL)"
        );
    };
    let place = url.place()?;
    let from = StoreUrl::new(from);
    ensure!(
        from.place()?.name()? != backing.place()?.name()?,
        "--from and --backing are the same store, {from}: name with --from the one that was used until now"
    );
    let before = open_one(&from, false).await?;
    let durable = open_one(backing, true).await?;
    let rebound = place.rebind(&before, &durable).await;
    before.close().await;
    durable.close().await;
    let rebound = rebound.with_context(|| format!("{backing} does not stand behind {url}"))?;
    let mut text = format!(
        "{}: the durable store is {}, {backing}\n\
         {from}: it grants nothing more\n",
        place.address(),
        rebound.identity
    );
    for (kind, identity) in rebound.before {
        match identity == rebound.identity {
            true => writeln!(text, "{kind}: it was that store before")?,
            false => writeln!(text, "{kind}: it was {identity}")?,
        }
    }
    text.push_str("next: restart the programs, with --backing and the new store\n");
    print(&text)
}

/// `unalike store init`
pub(crate) async fn initialise(config: &Config) -> anyhow::Result<()> {
    let (Some(url), true) = (config.store.volatile(), config.backing.as_ref().is_some_and(StoreUrl::is_nothing)) else {
        bail!(
            "only a store in Redis without a durable one behind it is begun by command (--store redis://HOST/DATABASE \
             --backing none); any other begins with its first use"
        );
    };
    let place = url.place()?;
    let address = place.address();
    let is_new = place.initialise().await;
    let is_new = is_new.with_context(|| format!("{address} was not made a store"))?;
    let done = if is_new { "it is a store now" } else { "it was a store before, and nothing was changed" };
    print(&format!("{address}: {done}\n"))
}
