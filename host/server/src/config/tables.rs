//! Which tables commands mean: those of the configured stores, and those that tags are imported from.

use anyhow::{bail, ensure};
use unalike_mysql::{Dialect, MysqlOptions};
use unalike_redis::Dialect as RedisDialect;

use crate::config::Config;
use crate::config::store_url::{StoreOptions, StoreUrl};

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
        let place = stores.only().map(StoreUrl::place).transpose()?;
        let is_there = match place {
            Some(StoreOptions::Mysql(_)) => Dialect::named(dialect).is_some(),
            Some(StoreOptions::Redis(_)) => RedisDialect::named(dialect).is_some(),
            Some(StoreOptions::Sqlite(_)) | None => false,
        };
        match stores.only().filter(|_| is_there) {
            Some(store) => store.with_dialect(dialect, parameters)?,
            None => {
                let mut schemes = Vec::new();
                if Dialect::named(dialect).is_some() {
                    schemes.push(format!("mysql://USER@HOST/DATABASE?dialect={dialect}"));
                }
                if RedisDialect::named(dialect).is_some() {
                    schemes.push(format!("redis://HOST/DATABASE?dialect={dialect}"));
                }
                ensure!(!schemes.is_empty(), "{dialect:?} is neither a URL nor the name of a dialect, such as leaf");
                bail!(
                    "{dialect:?} means other tables or keys in the database of the store, and {stores} has none such: give a \
                     URL, {}",
                    schemes.join(" or ")
                )
            }
        }
    };
    let url = if source_stopped { url.stopped()? } else { url };
    let name = url.place()?.name()?;
    for store in stores.iter().chain(config.watermark.iter().filter(|url| !url.is_nothing())) {
        ensure!(store.place()?.name()? != name, "the source {url} is the store itself");
    }
    Ok(url)
}

/// The tables of the first store that is in MySQL, or unalike's own.
///
/// # Errors
/// When a URL cannot be used, and when there is a store without tables.
pub(crate) fn dialect(config: &Config) -> anyhow::Result<Dialect> {
    if let Some(options) = databases(config)?.into_iter().next() {
        return Ok(options.dialect);
    }
    if let Some(redis) = config.store.redis() {
        bail!("the store {redis} is in Redis, which has no tables: name those that are meant (--dialect)");
    }
    Ok(Dialect::default())
}

/// Whether one of the stores of sequences is in MySQL.
///
/// # Errors
/// When a URL cannot be used.
pub(crate) fn is_in_mysql(config: &Config) -> anyhow::Result<bool> {
    Ok(!databases(config)?.is_empty())
}

/// Those of the stores that are in MySQL, and what stands behind one in Redis if that is.
pub(crate) fn databases(config: &Config) -> anyhow::Result<Vec<MysqlOptions>> {
    let mut databases = Vec::new();
    for url in config.store.iter().chain(config.watermark.iter().filter(|url| !url.is_nothing())) {
        if let StoreOptions::Mysql(options) = url.place()? {
            databases.push(*options);
        }
    }
    Ok(databases)
}

impl Config {
    /// The flags that name the store and what stands behind it, without passwords.
    pub(crate) fn store_flags(&self) -> String {
        let stores = self.store.iter().map(|url| format!("--store '{url}'"));
        let watermark = self.watermark.iter().map(|url| format!("--watermark '{url}'"));
        stores.chain(watermark).collect::<Vec<_>>().join(" ")
    }
}
