//! Which tables commands mean: those of the configured stores, and those that tags are imported from.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{bail, ensure};
use unalike_stores::{Place, PlaceError, StoreUrl, Tables, dialect_forms, tables};

use crate::config::Config;
use crate::config::leases::LeasePlace;

/// The store that tags are imported from: a URL, or the name of a dialect for other tables or keys in the only store's
/// database, which parameters may follow.
///
/// # Errors
/// When there is no such, or when it is the store itself.
pub(crate) fn source(text: &str, config: &Config, source_stopped: bool) -> anyhow::Result<StoreUrl> {
    let stores = &config.store;
    let url = if text.contains("://") {
        StoreUrl::new(text)
    } else {
        let (dialect, parameters) = text.split_once('?').unwrap_or((text, ""));
        // A URL that is written wrong may hold a password, so it is not shown.
        let is_name = dialect.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        ensure!(
            is_name,
            "the source is neither a URL (mysql://USER@HOST/DATABASE) nor the name of a dialect, such as leaf"
        );
        match stores.only().filter(|store| store.has_dialect(dialect)) {
            Some(store) => store.with_dialect(dialect, parameters),
            None => {
                let forms = dialect_forms(dialect);
                ensure!(!forms.is_empty(), "{dialect:?} is neither a URL nor the name of a dialect, such as leaf");
                bail!(
                    "{dialect:?} means other tables or keys in the database of the store, and {stores} has none such: give a \
                     URL, {}",
                    forms.join(" or ")
                )
            }
        }
    };
    let url = if source_stopped { url.stopped()? } else { url };
    let place = url.place()?;
    let name = place.name()?;
    for store in stores.iter().chain(config.backing.iter().filter(|url| !url.is_nothing())) {
        let own = store.place()?;
        // What else has several names is told by the identities, once the stores are open.
        let is_own =
            own.name()? == name || place.file().zip(own.file()).is_some_and(|(one, other)| is_same(one, other));
        ensure!(!is_own, "the source {url} is the store itself ({store}): name another one with --from");
    }
    Ok(url)
}

/// Whether these are names of one file, also by a hard link or a mount.
fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

/// The tables of the first store that has some, or unalike's own.
///
/// # Errors
/// When a URL cannot be used, and when there is a volatile store, which has no tables.
pub(crate) fn stores_tables(config: &Config) -> anyhow::Result<Tables> {
    if let Some(tables) = databases(config)?.into_iter().find_map(|place| place.tables()) {
        return Ok(tables);
    }
    if let Some(url) = config.store.volatile() {
        bail!("the store {url} is in {}, which has no tables: name those that are meant (--dialect)", url.title());
    }
    Ok(tables("unalike", config.store.iter())?)
}

/// The commands that let this user use the stores without tables, that of leases among them.
///
/// # Errors
/// When a URL cannot be used.
pub(crate) fn user_commands(config: &Config, user: &str) -> anyhow::Result<Vec<String>> {
    let urls = config.store.iter().chain(config.backing.iter().filter(|url| !url.is_nothing()));
    let mut places = urls.map(StoreUrl::place).collect::<Result<Vec<_>, PlaceError>>()?;
    if let LeasePlace::Named(url) = config.lease_place() {
        places.push(url.lease_place()?);
    }
    let mut commands: Vec<String> = Vec::new();
    for command in places.iter().filter_map(|place| place.user_commands(user)).flatten() {
        if !commands.contains(&command) {
            commands.push(command);
        }
    }
    Ok(commands)
}

/// Those of the stores that have tables, and of what backs a volatile one if that has any.
///
/// # Errors
/// When a URL cannot be used.
pub(crate) fn databases(config: &Config) -> anyhow::Result<Vec<Arc<dyn Place>>> {
    let urls = config.store.iter().chain(config.backing.iter().filter(|url| !url.is_nothing()));
    let places = urls.map(StoreUrl::place).collect::<Result<Vec<_>, PlaceError>>()?;
    Ok(places.into_iter().filter(|place| place.tables().is_some()).collect())
}
