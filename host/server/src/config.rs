//! The configuration: flags before environment before file before defaults.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use figment::Figment;
use figment::providers::{Format, Serialized, Toml};
use serde::Deserialize;
use unalike::{SnowflakeOptions, storage};

use crate::arguments::{CommonArguments, ServeArguments};
use crate::layouts::{LAYOUT_DEFAULT, layout_named};

/// The snowflake that exists without configuration.
const SNOWFLAKE_DEFAULT: &str = "default";

/// The keys of the configuration file. Others are refused.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Where ids are kept: `sqlite://PATH`. Default: `sqlite://unalike.sqlite`, in the working directory.
    pub(crate) store: String,
    /// Whether an unknown tag is created on first use. Default: true.
    pub(crate) create_tags: bool,
    /// No tag is created beyond this many. Default: 1,000,000.
    pub(crate) tags_max: u64,
    /// How long a call waits for ids, in milliseconds: 1 to 600,000. Default: 5,000. Below `request_timeout_ms` the
    /// answer says what the store said.
    pub(crate) wait_max_ms: u64,
    /// What is logged to the standard error, in `tracing-subscriber`'s filter syntax. Default: `info`
    /// for `serve`, `warn` for the other commands.
    pub(crate) log: Option<String>,
    /// Where to listen, `HOST:PORT`; port 0 takes a free one. Default: `127.0.0.1:8080`.
    pub(crate) listen: String,
    /// The most ids that one request gets: 1 to 1,000,000. Default: 10,000, some 200 KiB of text.
    pub(crate) count_max: u32,
    /// The largest request body, in bytes: 1 to 16 MiB. Default: 64 KiB; the largest that makes sense is below 1 KiB.
    pub(crate) body_max_bytes: usize,
    /// After how long a request is answered with 503, in milliseconds: 1 to 600,000. Default: 10,000.
    pub(crate) request_timeout_ms: u64,
    /// How long running requests may take once the process was told to end, in milliseconds: 0 to 600,000. Default:
    /// 10,000.
    pub(crate) shutdown_timeout_ms: u64,
    /// How many tags `/metrics` shows one by one: 0 to 100,000. Default: 1,000. The others are added up.
    pub(crate) metrics_tags_max: usize,
    /// A stable name of this process, by which the lease store prefers the worker that it had before. Default: a random
    /// one. It proves nothing: two processes with one name stay unique.
    pub(crate) holder: Option<String>,
    /// The snowflakes by name. `default`, with Twitter's layout, exists without being named here.
    pub(crate) snowflakes: BTreeMap<String, SnowflakeConfig>,
}

/// A table `[snowflakes.NAME]`. The name is the lease namespace: ids are unique within it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SnowflakeConfig {
    /// The layout by name, see `unalike layouts`. A namespace keeps the layout that it was first used with.
    pub(crate) layout: String,
    /// How far ahead of now a lease is asked for, in milliseconds: 1 to 366 days. Default: 60,000. It is also the
    /// outage of the store that is ridden out.
    pub(crate) horizon_ms: Option<u64>,
    /// How far ahead of the clock a timestamp may run when a tick's ids are used up, in milliseconds. Default: 10.
    pub(crate) ahead_max_ms: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            store: "sqlite://unalike.sqlite".to_owned(),
            create_tags: true,
            tags_max: 1_000_000,
            wait_max_ms: 5_000,
            log: None,
            listen: "127.0.0.1:8080".to_owned(),
            count_max: 10_000,
            body_max_bytes: 64 * 1024,
            request_timeout_ms: 10_000,
            shutdown_timeout_ms: 10_000,
            metrics_tags_max: 1_000,
            holder: None,
            snowflakes: BTreeMap::new(),
        }
    }
}

impl Config {
    /// Puts the configuration together and checks it.
    pub(crate) fn load(common: &CommonArguments, serve: Option<&ServeArguments>) -> anyhow::Result<Self> {
        let Some(path) = &common.config else {
            return Self::assemble(None, common, serve);
        };
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("the configuration file {} cannot be read", path.display()))?;
        Self::assemble(Some((path, &text)), common, serve)
    }

    fn assemble(
        file: Option<(&Path, &str)>,
        common: &CommonArguments,
        serve: Option<&ServeArguments>,
    ) -> anyhow::Result<Self> {
        let mut figment = Figment::new();
        if let Some((path, text)) = file {
            // On its own first, so that an error is known to be the file's.
            let file = Figment::from(Toml::string(text));
            file.extract::<Self>().map_err(|error| {
                let reasons = error.into_iter().map(|error| describe(&error)).collect::<Vec<_>>().join("; ");
                anyhow::anyhow!("the configuration file {} is not valid: {reasons}", path.display())
            })?;
            figment = figment.merge(file);
        }
        figment = figment.merge(Serialized::defaults(common));
        if let Some(serve) = serve {
            figment = figment.merge(Serialized::defaults(serve));
        }
        let config: Self = figment.extract().map_err(|error| anyhow::anyhow!("{}", describe(&error)))?;
        config.validate()?;
        Ok(config)
    }

    fn validate(&self) -> anyhow::Result<()> {
        within("wait_max_ms", self.wait_max_ms, 1..=600_000)?;
        within("count_max", self.count_max, 1..=1_000_000)?;
        within("body_max_bytes", self.body_max_bytes, 1..=16 * 1024 * 1024)?;
        within("request_timeout_ms", self.request_timeout_ms, 1..=600_000)?;
        within("shutdown_timeout_ms", self.shutdown_timeout_ms, 0..=600_000)?;
        within("metrics_tags_max", self.metrics_tags_max, 0..=100_000)?;
        self.sqlite_path()?;
        self.snowflakes()?;
        Ok(())
    }

    /// The file that `store` names.
    pub(crate) fn sqlite_path(&self) -> anyhow::Result<PathBuf> {
        let Some((scheme, rest)) = self.store.split_once("://") else {
            bail!("the store {:?} is no URL: write sqlite://PATH (--store)", self.store);
        };
        ensure!(scheme == "sqlite", "the store's scheme {scheme:?} is unknown: write sqlite://PATH (--store)");
        ensure!(!rest.is_empty(), "the store {:?} names no file: write sqlite://PATH (--store)", self.store);
        Ok(Path::new(rest).to_owned())
    }

    /// The snowflakes and how each works, `default` among them.
    pub(crate) fn snowflakes(&self) -> anyhow::Result<BTreeMap<String, SnowflakeOptions>> {
        let mut snowflakes = BTreeMap::new();
        let default = layout_named(LAYOUT_DEFAULT).map_err(anyhow::Error::msg)?;
        snowflakes.insert(SNOWFLAKE_DEFAULT.to_owned(), SnowflakeOptions::new(default));
        for (name, configured) in &self.snowflakes {
            storage::validate_tag(name).map_err(|error| {
                anyhow::anyhow!("the configuration's snowflake {name:?} has no valid name: {error}")
            })?;
            let layout = layout_named(&configured.layout)
                .map_err(|error| anyhow::anyhow!("the configuration's snowflake {name:?}: {error}"))?;
            let mut options = SnowflakeOptions::new(layout);
            options.horizon_ms = configured.horizon_ms.unwrap_or(options.horizon_ms);
            options.ahead_max_ms = configured.ahead_max_ms.unwrap_or(options.ahead_max_ms);
            options.validate().map_err(|error| anyhow::anyhow!("the configuration's snowflake {name:?}: {error}"))?;
            snowflakes.insert(name.clone(), options);
        }
        Ok(snowflakes)
    }
}

/// Names the key first, then what is wrong with it.
fn describe(error: &figment::Error) -> String {
    match error.path.as_slice() {
        [] => error.kind.to_string(),
        path => format!("{}: {}", path.join("."), error.kind),
    }
}

fn within<T: PartialOrd + Display>(key: &str, value: T, range: RangeInclusive<T>) -> anyhow::Result<()> {
    ensure!(range.contains(&value), "{key} is {value}, it must be {} to {}", range.start(), range.end());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> anyhow::Result<Config> {
        Config::assemble(Some((Path::new("unalike.toml"), text)), &CommonArguments::default(), None)
    }

    #[test]
    fn an_empty_file_changes_nothing() {
        let config = load("").unwrap();
        assert_eq!((config.listen.as_str(), config.count_max, config.create_tags), ("127.0.0.1:8080", 10_000, true));
        assert_eq!(config.snowflakes().unwrap().keys().collect::<Vec<_>>(), ["default"]);
    }

    #[test]
    fn flags_come_before_the_file() {
        let file = (Path::new("unalike.toml"), "count_max = 7\ntags_max = 5\n");
        let common = CommonArguments { tags_max: Some(6), ..Default::default() };
        let serve = ServeArguments { listen: Some("[::1]:0".into()), ..Default::default() };
        let config = Config::assemble(Some(file), &common, Some(&serve)).unwrap();
        assert_eq!((config.count_max, config.tags_max, config.listen.as_str()), (7, 6, "[::1]:0"));
    }

    #[test]
    fn errors_name_the_key() {
        for (text, named) in [
            ("lisen = \"x\"", "lisen"),
            ("[snowflakes.a]\nlayout = \"leaf\"\nepoch = 1", "epoch"),
            ("[snowflakes.a]\nlayout = \"loof\"", "\"loof\""),
            ("[snowflakes.a]\nlayout = \"leaf\"\nhorizon_ms = 0", "horizon"),
            ("count_max = 0", "count_max is 0"),
            ("count_max = \"many\"", "count_max"),
            ("store = \"mysql://h/db\"", "\"mysql\""),
            ("store = \"ids.sqlite\"", "sqlite://PATH"),
        ] {
            let error = format!("{:#}", load(text).unwrap_err());
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
