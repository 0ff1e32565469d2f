//! The configuration: flags before environment before file before defaults.

pub(crate) mod arguments;
pub(crate) mod channels;
pub(crate) mod clients;
pub(crate) mod drop_in;
pub(crate) mod formats;
pub(crate) mod layouts;
pub(crate) mod leases;
pub(crate) mod log;
pub(crate) mod names;
mod reread;
pub(crate) mod sources;
pub(crate) mod stamps;
pub(crate) mod store_urls;
pub(crate) mod tls;
pub(crate) mod tokens;
pub(crate) mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Args;
use figment::Figment;
use figment::providers::{Format as _, Serialized, Toml};
use rustix::fs::Access;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use unalike::settings::{FormatSettings, KeySettings, RestartWord, Secrets, UtcOffset};
use unalike::storage::LeaseLimits;
use unalike::{Clock, ClockPolicy, Layout, SnowflakeOptions, Spread, SystemClock, storage};
use unalike_stores::{StoreUrl, StoreUrls};

use crate::config::arguments::{CommonArguments, LogFormat, ServeArguments};
use crate::config::channels::{Channel, Declared, needs_redis};
use crate::config::drop_in::{DropIn, SEGMENT_COUNT_MAX};
use crate::config::formats::{Formats, IdFormat, TagConfig, check_layout, check_start};
use crate::config::layouts::{LAYOUT_DEFAULT, Layouts};
use crate::config::names::plain_tag;
use crate::config::stamps::AsText;
use crate::config::tls::{Tls, TlsFiles};
use crate::config::tokens::{Clients, Tokens};
use crate::config::worker::Worker;
use crate::words::{likeliest, rfc3339};

/// So many headers hyper reads into an array on the stack; with any other limit it allocates.
pub(crate) const HEADERS_ON_STACK: usize = 100;

/// How many connections may be open, unless something else is said.
pub(crate) const CONNECTIONS_MAX: usize = 20_000;

/// Where a server listens, unless something else is said.
pub(crate) const LISTEN_DEFAULT: &str = "127.0.0.1:8080";

/// The snowflake that exists without configuration.
pub(crate) const SNOWFLAKE_DEFAULT: &str = "default";

/// What the key `backing` was called before; taken for one more version.
const BACKING_BEFORE: &str = "watermark";

/// The keys of the configuration file; what they mean is said once, in [`CommonArguments`] and [`ServeArguments`].
/// Others are refused.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    pub(crate) store: StoreUrls,
    pub(crate) backing: Option<StoreUrl>,
    pub(crate) leases: Option<StoreUrl>,
    pub(crate) lease_horizon_max_ms: u64,
    pub(crate) lease_skew_max_ms: u64,
    pub(crate) local_leases: Option<PathBuf>,
    pub(crate) worker: Option<Worker>,
    pub(crate) unsafe_static_worker: bool,
    pub(crate) create_tags: bool,
    /// Whether somebody said that, be it in the file, by a flag or by a variable.
    #[serde(skip)]
    pub(crate) create_tags_is_said: bool,
    pub(crate) tags_max: u64,
    pub(crate) sub_keys_max: u64,
    pub(crate) wait_max_ms: u64,
    pub(crate) log: Option<String>,
    pub(crate) log_format: LogFormat,
    pub(crate) listen: String,
    pub(crate) tokens: Option<PathBuf>,
    pub(crate) insecure_no_auth: bool,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) tls_client_ca: Option<PathBuf>,
    pub(crate) insecure_no_tls: bool,
    pub(crate) allowed_hosts: Option<Vec<String>>,
    pub(crate) allowed_origins: Option<Vec<String>>,
    pub(crate) count_max: u32,
    pub(crate) segment_count_max: u64,
    pub(crate) sequence_idle_ms: u64,
    pub(crate) body_max_bytes: usize,
    pub(crate) url_max_bytes: usize,
    pub(crate) head_max_bytes: usize,
    pub(crate) headers_max: usize,
    pub(crate) connections_max: usize,
    pub(crate) head_timeout_ms: u64,
    pub(crate) idle_timeout_ms: u64,
    pub(crate) request_timeout_ms: u64,
    pub(crate) drain_ms: u64,
    pub(crate) shutdown_timeout_ms: u64,
    pub(crate) metrics_tags_max: usize,
    pub(crate) holder: Option<String>,
    pub(crate) drop_in: Option<Vec<DropIn>>,
    /// Layouts by name, written out.
    pub(crate) layouts: BTreeMap<String, String>,
    /// The snowflakes by name. `default`, with Twitter's layout, exists without being named here.
    pub(crate) snowflakes: BTreeMap<String, SnowflakeConfig>,
    /// Tags that are declared by the name of a channel, or whose ids are shown in a way of their own.
    pub(crate) tags: BTreeMap<String, TagConfig>,
    /// Secret keys by number.
    pub(crate) keys: BTreeMap<String, KeySettings>,
    /// Whether some of it comes from a file.
    #[serde(skip)]
    pub(crate) has_file: bool,
}

/// A table `[snowflakes.NAME]`, as [`SNOWFLAKES_HELP`] says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SnowflakeConfig {
    pub(crate) layout: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) horizon_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ahead_max_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) clock: Option<AsText<ClockPolicy>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) spread: Option<AsText<Spread>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) template: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) utc_offset: Option<UtcOffset>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bits: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gene_bits: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) keys: Option<Vec<u8>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_id_bits: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ids_per_s: Option<NonZeroU32>,
}

impl SnowflakeConfig {
    /// The layout of what is shown, the gene included.
    fn layout(&self, name: &str, layouts: &Layouts) -> anyhow::Result<Layout> {
        layouts.layout(&self.layout).map_err(|error| anyhow::anyhow!("the configuration's snowflake {name:?}: {error}"))
    }

    /// How its ids are shown, if anything is said of that.
    fn format(&self) -> Option<FormatSettings> {
        let settings = FormatSettings {
            template: self.template.clone(),
            utc_offset: self.utc_offset,
            restart: None,
            bits: self.bits,
            gene_bits: self.gene_bits,
            keys: self.keys.clone(),
            key_id_bits: self.key_id_bits,
        };
        Some(settings).filter(FormatSettings::says_something)
    }
}

/// The key whose default says less than the same value in a file: see [`Config::create_tags_is_said`].
const CREATE_TAGS: &str = "create_tags";

/// What a configuration file says of layouts, which no flag sets.
const LAYOUTS_HELP: &str = "\
# Layouts by name, besides those that `unalike layouts` lists: TIME/WORKER/SEQUENCE in bits, 63 at most in all, or
# TIME/DATACENTER+WORKER/SEQUENCE, and the epoch, a date or RFC 3339 or Unix milliseconds. \"tick 10 ms\" and \"sequence-first\"
# (which is TIME/SEQUENCE/WORKER) may follow. A layout can be written out like this wherever its name can be used.
#
# [layouts]
# ours = \"41/10/12 epoch 2024-01-01\"
";

/// What it says of snowflakes, which no flag sets either.
const SNOWFLAKES_HELP: &str = "\
# Snowflakes by name: GET /v1/snowflakes/web/ids. The name is the lease namespace: ids are unique within it, and it keeps
# the layout that it was first used with. \"default\", with the layout twitter, exists without being named here.
#
# [snowflakes.web]
# The layout by name, which `unalike layouts` lists, or written out.
# layout = \"cosid-53\"
# How far ahead of now a lease is asked for, in milliseconds: 300 to 366 days. It is renewed when a third has passed, so an
# outage of the store is ridden out for two thirds of it at least.
# horizon_ms = 60000
# How far ahead of the clock a timestamp may run when a tick's ids are used up, in milliseconds.
# ahead_max_ms = 10
# What happens when the clock shows an earlier time than it showed before: \"reject\" refuses until it has caught up, \"wait:5\"
# has callers wait up to 5 ms for that and refuses when it is further behind, and \"keep:2000\" goes on with the last
# timestamp up to 2000 ms behind, and refuses beyond. Behind by more than horizon_ms, another worker is leased.
# clock = \"keep:2000\"
# Where in a tick the ids begin: \"none\" begins each with sequence 0, so that at low rates all ids are alike in their last
# bits and `id % 8` picks one shard for all. \"rotating:3\" begins at another of 2^3 places each time, one after the other,
# and \"random:3\" anywhere among them. It costs half of these 2^3 ids of a tick on average, and the sequence must be the
# lowest field of the layout.
# spread = \"none\"
# The most ids per second that each server gives of it, as for tags below. Ids that hosts make with a leased worker are not
# counted.
# ids_per_s = 5000
# How ids are shown, as for tags below. The date is that of the id itself; a gene takes the lowest bits of the layout's
# sequence, which must be last. The widths are those of the layout unless something else is said: key_id_bits is up to 4,
# as far as it leaves some of 63 bits, and bits is the sum. The layout with the gene taken off is what the name is bound to.
# template = \"W-{id:base62}\"
# utc_offset = \"+00:00\"
# gene_bits = 4
# keys = [2, 1]
# key_id_bits = 4
# bits = 57
";

/// What it says of tags, which no flag sets either.
const TAGS_HELP: &str = "\
# Tags by name, declared as one of the channels unordered, ordered, slow-ordered and quick: created when the server starts,
# compared with what the store has otherwise. Another mode there is an error; another step or refill is a warning, and the
# store's counts. Tags that are not named here are as they were created.
#
# [tags.order]
# unordered: buffered, ascending per server. ordered: strictly increasing across all servers, from a store in Redis.
# slow-ordered: the same from any store. quick: ids of the snowflake of the same name, which has the layout twitter unless
# a table [snowflakes.NAME] says otherwise.
# channel = \"unordered\"
# How many ids are fetched at once, and how many are left when the next are fetched; of unordered tags only, as what follows.
# buff_size = 5000
# lowest_critical_value = 500
# What ids begin with, 1 to 17 digits. In a store with dialect=batch a batch number and an offset follow; in others the first
# id is this followed by zeros, 18 digits in all.
# prefix = 10
# How many sub-keys (?sub=NAME) it may have, each with numbers of its own, in place of the sub_keys_max of all tags. A tag with
# this key gets new sub-keys also where create_tags is false, and only such tags do then. 0: it has none.
# sub_keys_max = 1000000
# The most ids per second that each server gives of it, with its sub-keys, in whatever way: beyond it requests are refused with
# the status 429. A second's ids may be taken at once, and those of a minute by one request, for which the next ones wait.
# ids_per_s = 5000
#
# How ids are shown, which needs no channel.
# [tags.invoice]
# The text around the id, which is {id}, {id:010} (10 digits always), {id:base36}, {id:base62}, {id:base32} or {id:uuid}.
# The date of issue is any of {yyyy}, {yy}, {MM}, {dd}, {HH}, {mm}, {ss} and {SSS}, together as well. {MM} is the month; {mm} is
# the minute, and beside a date needs {HH}. {gene:4} is the lowest 4 bits of the shard key. {{ and }} are braces. Texts of this form are what ids are by default then (format=template).
# template = \"INV-{yyyyMMdd}-{id:016}\"
# The clock of that date: how far it is ahead of UTC.
# utc_offset = \"+08:00\"
# When the numbers begin again: \"never\", or each \"year\", \"month\" or \"day\", which the template must show. Whole texts are
# unique then, and numbers are given in no other form.
# restart = \"day\"
# How many bits the number has at most: the tag ends before it has more. With 53 or less ids may be numbers in JSON
# (as=number), as JavaScript has them exact.
# bits = 53
# How many of the number's lowest bits are those of a shard key, which each request gives then (shard_key=N): ids go where
# the key goes, by `id % 16` for 4 bits. 16 at most.
# gene_bits = 4
# The secret keys below under which numbers are permuted, so that they tell neither how many there are nor which comes next.
# The first is used for new ids, all for reading. To change keys put the new one in front, on all servers. What was shown
# without a key stays what it is: no number of a key is like it.
# keys = [2, 1]
# How many bits above the number say which key it was.
# key_id_bits = 4
";

/// And of keys.
const KEYS_HELP: &str = "\
# Secret keys by number, 1 to 255, for `keys` of tags and snowflakes (and 0 where key_id_bits is 0). A secret is 128 random bits, as 32 hexadecimal digits:
# `openssl rand -hex 16`. It is in a file, in a variable (secret_env = \"NAME\"), or here (secret = \"..\"); it is never printed.
# A key is kept for as long as ids that were shown under it are read.
#
# [keys.2]
# secret_file = \"/run/secrets/id-key-2\"
# [keys.1]
# secret_file = \"/run/secrets/id-key-1\"
";

impl Default for Config {
    fn default() -> Self {
        Self {
            store: StoreUrls::one("sqlite://unalike.sqlite"),
            backing: None,
            leases: None,
            lease_horizon_max_ms: LeaseLimits::default().max_horizon_ms,
            lease_skew_max_ms: LeaseLimits::default().max_skew_ms,
            local_leases: None,
            worker: None,
            unsafe_static_worker: false,
            create_tags: true,
            create_tags_is_said: false,
            tags_max: 1_000_000,
            sub_keys_max: 100_000,
            wait_max_ms: 5_000,
            log: None,
            log_format: LogFormat::Text,
            listen: LISTEN_DEFAULT.to_owned(),
            tokens: None,
            insecure_no_auth: false,
            tls_cert: None,
            tls_key: None,
            tls_client_ca: None,
            insecure_no_tls: false,
            allowed_hosts: None,
            allowed_origins: None,
            count_max: 10_000,
            segment_count_max: 1_000_000,
            sequence_idle_ms: 900_000,
            body_max_bytes: 64 * 1024,
            url_max_bytes: 8 * 1024,
            head_max_bytes: 16 * 1024,
            headers_max: HEADERS_ON_STACK,
            connections_max: CONNECTIONS_MAX,
            head_timeout_ms: 10_000,
            idle_timeout_ms: 75_000,
            request_timeout_ms: 10_000,
            drain_ms: 5_000,
            shutdown_timeout_ms: 10_000,
            metrics_tags_max: 1_000,
            holder: None,
            drop_in: None,
            layouts: BTreeMap::new(),
            snowflakes: BTreeMap::new(),
            tags: BTreeMap::new(),
            keys: BTreeMap::new(),
            has_file: false,
        }
    }
}

impl Config {
    /// Puts the configuration together and checks it.
    pub(crate) fn load(common: &CommonArguments, serve: Option<&ServeArguments>) -> anyhow::Result<Self> {
        let Some(path) = &common.config else {
            return Self::assemble(None, common, serve);
        };
        Self::assemble(Some((path, &read(path)?)), common, serve)
    }

    fn assemble(
        file: Option<(&Path, &str)>,
        common: &CommonArguments,
        serve: Option<&ServeArguments>,
    ) -> anyhow::Result<Self> {
        let mut figment = Figment::new();
        if let Some((path, text)) = file {
            // The parser's own message would show the line, and with it a secret.
            let mut table = toml::from_str::<toml::Table>(text).map_err(|error| {
                let line = error
                    .span()
                    .and_then(|span| text.get(..span.start))
                    .map_or(1, |before| before.matches('\n').count() + 1);
                let at = format!("the configuration file {} is not TOML, at line {line}", path.display());
                let is_header = |line: &&str| line.starts_with('[');
                let header = text.lines().nth(line.saturating_sub(1)).map(str::trim).filter(is_header);
                match header.filter(|header| text.lines().filter(|line| line.trim() == *header).count() > 1) {
                    Some(header) => anyhow::anyhow!("{at}: {header} is there twice: write its keys under one"),
                    None if error.message().starts_with("expected newline") => {
                        anyhow::anyhow!("{at}: {}; a text is in quotes: key = \"text\"", error.message())
                    }
                    None => anyhow::anyhow!("{at}: {}", error.message()),
                }
            })?;
            if let Some(before) = table.remove(BACKING_BEFORE) {
                let is_twice = table.insert("backing".to_owned(), before).is_some();
                ensure!(
                    !is_twice,
                    "the configuration file {} has backing and its former name, {BACKING_BEFORE}",
                    path.display()
                );
            }
            // On its own first, so that an error is known to be the file's.
            let file = Figment::from(Toml::string(&table.to_string()));
            file.extract::<Self>().map_err(|error| {
                let reasons = error.into_iter().map(|error| describe(&error)).collect::<Vec<_>>().join("; ");
                anyhow::anyhow!("the configuration file {} is not valid: {reasons}", path.display())
            })?;
            figment = figment.merge(file);
        }
        figment = figment.merge(Serialized::defaults(common));
        if let Some(before) = &common.backing_before {
            figment = figment.merge(Serialized::default("backing", before));
        }
        if let Some(serve) = serve {
            figment = figment.merge(Serialized::defaults(serve));
        }
        let mut config: Self = figment.extract().map_err(|error| anyhow::anyhow!("{}", describe(&error)))?;
        config.has_file = file.is_some();
        config.create_tags_is_said = figment.contains(CREATE_TAGS);
        config.validate()?;
        Ok(config)
    }

    fn validate(&self) -> anyhow::Result<()> {
        for (key, value, range) in self.numbers() {
            ensure!(range.contains(&value), "{key} is {value}, it must be {} to {}", range.start(), range.end());
        }
        ensure!(
            self.tags_max > 0,
            "tags_max is 0, it must be 1 at least: create_tags = false keeps requests from creating tags"
        );
        self.validate_doors()?;
        self.tls_files()?;
        if let Some(filter) = &self.log {
            log::filter(filter)?;
        }
        self.stores().validate()?;
        self.layouts()?;
        self.declared()?;
        self.formats(&Secrets::unread(&self.keys)?)?;
        self.check_restarts()?;
        self.validate_leases()?;
        Ok(())
    }

    /// Refuses a counter that starts again where its periods have no place: each is a sub-key.
    fn check_restarts(&self) -> anyhow::Result<()> {
        let restarts = |tag: &TagConfig| tag.restart.is_some_and(|restart| restart != RestartWord::Never);
        let Some((name, _)) = self.tags.iter().find(|(_, tag)| restarts(tag)) else { return Ok(()) };
        for url in self.store.iter().chain(&self.backing).filter(|url| !url.is_nothing()) {
            ensure!(
                url.place()?.has_sub_keys(),
                "the configuration's tag {name:?} starts again (restart), and counts each period under a sub-key, which tags in \
                 {url} do not have: leave restart out, or use a store without dialect=, or with dialect=slow-ordered"
            );
        }
        Ok(())
    }

    /// Settings that are numbers, and what each may be.
    fn numbers(&self) -> Vec<(&'static str, u64, RangeInclusive<u64>)> {
        let wide = |value: usize| u64::try_from(value).unwrap_or(u64::MAX);
        vec![
            ("wait_max_ms", self.wait_max_ms, 1..=600_000),
            ("count_max", self.count_max.into(), 1..=1_000_000),
            ("sequence_idle_ms", self.sequence_idle_ms, 1_000..=31 * 86_400_000),
            ("segment_count_max", self.segment_count_max, 1..=SEGMENT_COUNT_MAX),
            ("body_max_bytes", wide(self.body_max_bytes), 1..=1024 * 1024),
            ("url_max_bytes", wide(self.url_max_bytes), 256..=65_534),
            ("head_max_bytes", wide(self.head_max_bytes), 1_024..=1024 * 1024),
            ("headers_max", wide(self.headers_max), 1..=1_000),
            ("connections_max", wide(self.connections_max), 1..=1_000_000),
            ("head_timeout_ms", self.head_timeout_ms, 100..=600_000),
            ("idle_timeout_ms", self.idle_timeout_ms, 100..=3_600_000),
            ("request_timeout_ms", self.request_timeout_ms, 1..=600_000),
            ("drain_ms", self.drain_ms, 0..=600_000),
            ("shutdown_timeout_ms", self.shutdown_timeout_ms, 0..=600_000),
            ("metrics_tags_max", wide(self.metrics_tags_max), 0..=100_000),
            ("lease_skew_max_ms", self.lease_skew_max_ms, 0..=3_600_000),
        ]
    }

    /// The services whose paths there are too, each once.
    pub(crate) fn drop_ins(&self) -> BTreeSet<DropIn> {
        self.drop_in.iter().flatten().copied().collect()
    }

    /// The tags that are declared, and what each is.
    pub(crate) fn declared(&self) -> anyhow::Result<BTreeMap<String, Declared>> {
        let mut all = BTreeMap::new();
        for (name, config) in &self.tags {
            let cannot_be = "the configuration declares a tag that cannot be";
            plain_tag(name).context(cannot_be)?;
            storage::validate_public(name).context(cannot_be)?;
            let channel = config.channel().with_context(|| format!("the configuration's tag {name:?}"))?;
            let Some(channel) = channel else { continue };
            let declared = channel.declared(name).context(cannot_be)?;
            if declared == Declared::Ordered && self.store.volatile().is_none() {
                return Err(needs_redis(name)).context(cannot_be);
            }
            all.insert(name.clone(), declared);
        }
        Ok(all)
    }

    /// The layouts, those of the configuration among them.
    pub(crate) fn layouts(&self) -> anyhow::Result<Layouts> {
        Layouts::new(&self.layouts)
    }

    /// Whether the configuration speaks of this snowflake, or of a quick tag of this name.
    pub(crate) fn names_snowflake(&self, name: &str) -> bool {
        self.snowflakes.contains_key(name) || self.tags.get(name).is_some_and(|tag| tag.channel == Some(Channel::Quick))
    }

    /// The snowflakes and how each works, `default` among them, and those of quick tags. The layout is that of the
    /// generator's ids, without a gene.
    pub(crate) fn snowflakes(&self) -> anyhow::Result<BTreeMap<String, SnowflakeOptions>> {
        let mut snowflakes = BTreeMap::new();
        let layouts = self.layouts()?;
        // Beside Leaf no other layout would do.
        let default = match self.shared_layout() {
            Some(layout) => layout,
            None => layouts.layout(LAYOUT_DEFAULT)?,
        };
        snowflakes.insert(SNOWFLAKE_DEFAULT.to_owned(), SnowflakeOptions::new(default));
        for (name, _) in self.tags.iter().filter(|(_, tag)| tag.channel == Some(Channel::Quick)) {
            snowflakes.insert(name.clone(), SnowflakeOptions::new(default));
        }
        for (name, configured) in &self.snowflakes {
            storage::validate_tag(name).map_err(|error| {
                anyhow::anyhow!("the configuration's snowflake {name:?} has no valid name: {error}")
            })?;
            let gene_bits = configured.gene_bits.unwrap_or(0);
            let layout = configured.layout(name, &layouts)?.without_gene(gene_bits).with_context(|| {
                format!(
                    "the configuration's snowflake {name:?}: gene_bits = {gene_bits} are taken from the sequence of the layout, \
                     which must be last and have as many"
                )
            })?;
            let mut options = SnowflakeOptions::new(layout);
            options.horizon_ms = configured.horizon_ms.unwrap_or(options.horizon_ms);
            options.ahead_max_ms = configured.ahead_max_ms.unwrap_or(options.ahead_max_ms);
            options.clock = configured.clock.map_or(options.clock, |clock| clock.0);
            options.spread = configured.spread.map_or(options.spread, |spread| spread.0);
            options.validate().map_err(|error| anyhow::anyhow!("the configuration's snowflake {name:?}: {error}"))?;
            snowflakes.insert(name.clone(), options);
        }
        Ok(snowflakes)
    }

    /// How the ids of tags and snowflakes are shown, where something is said of that.
    ///
    /// # Errors
    /// Says of which, and what does not fit.
    pub(crate) fn formats(&self, secrets: &Secrets) -> anyhow::Result<Formats> {
        let declared = self.declared()?;
        let mut formats = Formats::default();
        for (name, tag) in &self.tags {
            let Some(config) = tag.format() else { continue };
            let of_tag = || format!("the configuration's tag {name:?}");
            if tag.channel == Some(Channel::Quick) {
                bail!(
                    "{}: its ids are those of the snowflake of its name, where template and the like belong: [snowflakes.{}]",
                    of_tag(),
                    Value::from(name.as_str())
                );
            }
            let shown = IdFormat::of_tag(name, &config, secrets).with_context(of_tag)?;
            if let Some(options) = declared.get(name).and_then(Declared::options) {
                check_start(name, &shown, options.start).with_context(of_tag)?;
            }
            formats.tags.insert(name.clone(), shown);
        }
        let quick = declared.iter().filter(|(_, declared)| **declared == Declared::Quick);
        formats.quick = quick.map(|(name, _)| name.clone()).collect();
        let (narrow, layouts) = (self.snowflakes()?, self.layouts()?);
        formats.layouts = narrow.iter().map(|(name, options)| (name.clone(), options.layout)).collect();
        for (name, snowflake) in &self.snowflakes {
            let Some(config) = snowflake.format() else { continue };
            let of_snowflake = || format!("the configuration's snowflake {name:?}");
            let layout = snowflake.layout(name, &layouts)?;
            let shown = IdFormat::of_snowflake(name, &config, secrets, layout).with_context(of_snowflake)?;
            if let Some(options) = narrow.get(name) {
                check_layout(&shown, options.layout).with_context(of_snowflake)?;
            }
            formats.snowflakes.insert(name.clone(), shown);
        }
        Ok(formats)
    }

    /// Whether the declared tags may be created: the server does that when it starts.
    fn check_names(&self) -> anyhow::Result<()> {
        for name in self.tags.keys() {
            storage::validate_new_tag(name).context("the configuration has a tag that cannot be created")?;
        }
        Ok(())
    }

    /// Whether there are ids of each snowflake at this time.
    ///
    /// # Errors
    /// Names those of which there are no more.
    pub(crate) fn check_ends(&self, now_ms: u64) -> anyhow::Result<()> {
        for (name, options) in self.snowflakes()? {
            let ends_ms = options.layout.ends_ms();
            ensure!(
                now_ms < ends_ms,
                "the configuration's snowflake {name:?} gives no ids: its layout ended at {}; choose another (`unalike layouts`)",
                rfc3339(ends_ms)
            );
        }
        Ok(())
    }

    /// Whether ids of each snowflake that is configured can be issued already.
    ///
    /// # Errors
    /// Names the first of which there are none yet, and says from when on there are.
    pub(crate) fn check_begins(&self, now_ms: u64) -> anyhow::Result<()> {
        for (name, options) in self.snowflakes()? {
            // The one that is there unasked has an epoch that is past: where the clock is before it, others go on.
            let begins_ms = if self.names_snowflake(&name) { options.layout.tick_start_ms(1) } else { 0 };
            ensure!(
                begins_ms <= now_ms,
                "the configuration's snowflake {name:?} gives no ids before {}: choose an earlier epoch for its layout, or set \
                 the clock if it is wrong",
                rfc3339(begins_ms)
            );
        }
        Ok(())
    }

    /// What is checked before a server starts, besides the settings themselves: tokens, secrets, names and places.
    /// Nothing is made.
    ///
    /// # Errors
    /// Says what a server with this configuration would not start with.
    pub(crate) fn check(&self) -> anyhow::Result<Checked> {
        self.addresses()?;
        let tokens = self.read_tokens()?;
        let tls = self.tls_files()?.map(Tls::read).transpose()?;
        self.formats(&Secrets::read(&self.keys)?)?;
        self.check_names()?;
        self.check_places()?;
        Ok(Checked { tokens, tls })
    }

    /// Whether the files and directories of the configuration can be opened, without making any.
    fn check_places(&self) -> anyhow::Result<()> {
        let urls = self.store.iter().chain(&self.backing).chain(&self.leases).filter(|url| !url.is_nothing());
        for url in urls {
            if let Some(path) = url.file()? {
                check_file(&path).with_context(|| format!("the store {url} cannot be opened"))?;
            }
        }
        if let Some(directory) = &self.local_leases {
            check_directory(directory)
                .with_context(|| format!("the directory {} cannot be used (--local-leases)", directory.display()))?;
        }
        Ok(())
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the host is unknown, and when other machines reach it and everyone there could do everything, though nobody
    /// said that it is meant so.
    pub(crate) fn addresses(&self) -> anyhow::Result<Vec<SocketAddr>> {
        ensure!(
            self.listen.contains(':'),
            "listen is {:?}, it must be HOST:PORT, such as {LISTEN_DEFAULT} (--listen)",
            self.listen
        );
        let addresses: Vec<_> = self.listen.to_socket_addrs().map_err(|error| self.cannot_listen(&error))?.collect();
        let open = addresses.iter().find(|address| !address.ip().to_canonical().is_loopback());
        if let (Some(address), None, false) = (open, &self.tokens, self.insecure_no_auth) {
            bail!(
                "{address} is open to other machines, where everyone could take ids and change tags: give a file of \
                 tokens (--tokens FILE), or say that it is meant so (--insecure-no-auth)"
            );
        }
        Ok(addresses)
    }

    /// The error of an address.
    pub(crate) fn cannot_listen(&self, cause: &std::io::Error) -> anyhow::Error {
        anyhow::anyhow!("cannot listen on {}: {cause}: choose another address with --listen", self.listen)
    }

    /// The tokens that requests need.
    ///
    /// # Errors
    /// When the file cannot be read or is not valid.
    pub(crate) fn read_tokens(&self) -> anyhow::Result<Tokens> {
        let clients = if self.tls_client_ca.is_some() { Clients::Certified } else { Clients::Unknown };
        self.tokens.as_deref().map_or_else(|| Ok(Tokens::unwanted()), |path| Tokens::read(path, clients))
    }

    /// The files of TLS, if the server speaks it.
    fn tls_files(&self) -> anyhow::Result<Option<TlsFiles>> {
        ensure!(
            self.tls_client_ca.is_none() || self.tokens.is_some(),
            "tls_client_ca is set without tokens, so nobody needs a certificate: name the file that says what clients may \
             do (--tokens), or leave it out"
        );
        TlsFiles::named(self.tls_cert.as_deref(), self.tls_key.as_deref(), self.tls_client_ca.as_deref())
    }

    /// Whether other machines reach it.
    ///
    /// # Errors
    /// As [`Config::addresses`].
    pub(crate) fn is_open(&self) -> anyhow::Result<bool> {
        Ok(self.addresses()?.iter().any(|address| !address.ip().to_canonical().is_loopback()))
    }

    /// Whether tokens can be read on their way here, as far as it is known.
    ///
    /// # Errors
    /// As [`Config::addresses`].
    pub(crate) fn shows_tokens(&self) -> anyhow::Result<bool> {
        Ok(self.tokens.is_some() && self.tls_cert.is_none() && !self.insecure_no_tls && self.is_open()?)
    }
}

/// What was read of the files of a configuration that is valid.
pub(crate) struct Checked {
    pub(crate) tokens: Tokens,
    /// None: plain HTTP.
    pub(crate) tls: Option<Tls>,
}

/// Whether a file can be read and written, or made where it is to be.
fn check_file(path: &Path) -> anyhow::Result<()> {
    if !path.exists() {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or_else(|| Path::new("."));
        ensure!(parent.is_dir(), "the directory {} does not exist: make it, or choose another path", parent.display());
        return is_writable(parent);
    }
    ensure!(!path.is_dir(), "{} is a directory: name a file", path.display());
    std::fs::OpenOptions::new().read(true).write(true).open(path).map(drop).with_context(|| path.display().to_string())
}

/// Whether a directory is there or can be made, and takes new files.
fn check_directory(path: &Path) -> anyhow::Result<()> {
    match path.ancestors().filter(|path| !path.as_os_str().is_empty()).find(|path| path.exists()) {
        Some(there) => {
            ensure!(there.is_dir(), "{} is not a directory", there.display());
            is_writable(there)
        }
        None => is_writable(Path::new(".")),
    }
}

fn is_writable(directory: &Path) -> anyhow::Result<()> {
    rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK)
        .with_context(|| format!("the directory {} cannot be written to", directory.display()))
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("the configuration file {} cannot be read", path.display()))
}

/// A configuration file with every key, its meaning and its default.
///
/// # Errors
/// When the defaults cannot be written.
pub(crate) fn default_text() -> anyhow::Result<String> {
    let defaults = keys(&Config::default())?;
    let mut text =
        "# The configuration of unalike: unalike --config FILE\n# Flags and UNALIKE_.. variables of the same \
                    names come before it. Every key may be left out.\n"
            .to_owned();
    for argument in &documented_arguments() {
        let key = argument.get_id().as_str();
        let Some(default) = defaults.get(key) else { continue };
        let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
        text.push('\n');
        for paragraph in without_default(&help).split("\n\n") {
            text.push_str(&commented(paragraph));
        }
        match default {
            Value::Null => writeln!(text, "# {key} =")?,
            // Said, it would be more than the default.
            default if key == CREATE_TAGS => writeln!(text, "# {key} = {default}")?,
            default => writeln!(text, "{key} = {default}")?,
        }
    }
    for help in [LAYOUTS_HELP, SNOWFLAKES_HELP, TAGS_HELP, KEYS_HELP] {
        text.push('\n');
        text.push_str(help);
    }
    Ok(text)
}

/// What is effective, and where each key comes from: a configuration file too.
///
/// # Errors
/// When it is not valid, or the tokens are not.
pub(crate) fn effective_text(common: &CommonArguments, serve: &ServeArguments) -> anyhow::Result<String> {
    let config = Config::load(common, Some(serve))?;
    let Checked { tokens, tls } = config.check()?;
    let now_ms = SystemClock.now_ms();
    config.check_ends(now_ms)?;
    config.check_begins(now_ms)?;
    let file: toml::Table = match &common.config {
        Some(path) => toml::from_str(&read(path)?).context("the configuration file has changed")?,
        None => toml::Table::new(),
    };
    let given = [keys(common)?, keys(serve)?];
    let mut text = "# The configuration is valid. What is effective, and where it comes from:\n".to_owned();
    for argument in &documented_arguments() {
        let key = argument.get_id().as_str();
        let Some(value) = keys(&config)?.remove(key) else { continue };
        let is_backing = key == "backing";
        let source =
            if given.iter().any(|given| given.contains_key(key)) || is_backing && common.backing_before.is_some() {
                "flag or environment"
            } else if file.contains_key(key) || is_backing && file.contains_key(BACKING_BEFORE) {
                "file"
            } else {
                "default"
            };
        match value {
            Value::Null => writeln!(text, "# {key} is not set")?,
            value if key == CREATE_TAGS && source == "default" => {
                let rest = "not in the tables of other systems, unless true is said here";
                writeln!(text, "{key} = {value} # {source}; {rest}")?;
            }
            value => writeln!(text, "{key} = {value} # {source}")?,
        }
    }
    if !config.layouts.is_empty() {
        writeln!(text, "[layouts] # file")?;
        for (name, layout) in config.layouts {
            writeln!(text, "{name} = {}", Value::from(layout))?;
        }
    }
    for (name, snowflake) in config.snowflakes {
        writeln!(text, "[snowflakes.{}] # file", Value::from(name))?;
        for (key, value) in keys(&snowflake)? {
            writeln!(text, "{key} = {value}")?;
        }
    }
    for (name, tag) in config.tags {
        writeln!(text, "[tags.{}] # file", Value::from(name))?;
        for (key, value) in keys(&tag)? {
            writeln!(text, "{key} = {value}")?;
        }
    }
    for (number, key) in config.keys {
        writeln!(text, "[keys.{number}] # file")?;
        for (key, value) in keys(&key)? {
            writeln!(text, "{key} = {value}")?;
        }
    }
    if tokens.are_wanted() {
        writeln!(text, "# the token file is valid: {} tokens", tokens.count())?;
    }
    if let Some(tls) = tls {
        writeln!(text, "# the certificate and its key are valid, until {}", rfc3339(tls.validity().ends_ms()))?;
    }
    Ok(text)
}

/// Every key that a flag sets too, with its documentation.
fn documented_arguments() -> Vec<clap::Arg> {
    let settings = ServeArguments::augment_args(CommonArguments::augment_args(clap::Command::new("unalike")));
    settings.get_arguments().filter(|argument| !argument.is_hide_set()).cloned().collect()
}

/// Keys and values. What JSON writes of strings, numbers and booleans is TOML.
fn keys(settings: &impl Serialize) -> anyhow::Result<Map<String, Value>> {
    match serde_json::to_value(settings)? {
        Value::Object(keys) => Ok(keys),
        other => bail!("no settings: {other}"),
    }
}

/// The help without its remark on the default, which the file shows.
fn without_default(help: &str) -> String {
    let Some((before, rest)) = help.split_once("[default: ") else { return help.to_owned() };
    let after = rest.split_once(']').map_or("", |(_, after)| after);
    format!("{}{after}", before.trim_end())
}

/// A paragraph as comments, 100 columns wide.
fn commented(paragraph: &str) -> String {
    let mut lines = String::new();
    let mut line = "#".to_owned();
    for word in paragraph.split_whitespace() {
        if line.len() + 1 + word.len() > 100 {
            lines.push_str(&line);
            lines.push('\n');
            line = "#".to_owned();
        }
        line.push(' ');
        line.push_str(word);
    }
    lines + &line + "\n"
}

/// Names the key first, then what is wrong with it.
fn describe(error: &figment::Error) -> String {
    use figment::error::{Actual, Kind};
    let path = error.path.join(".");
    // What is in place of a secret may be one.
    if error.path.first().is_some_and(|first| first == "keys")
        && let Kind::InvalidType(_, expected) | Kind::InvalidValue(_, expected) = &error.kind
    {
        return format!("{path}: it must be {expected}");
    }
    if let Kind::UnknownField(key, known) = &error.kind {
        let place = error.path.split_last().map_or(&[][..], |(_, place)| place).join(".");
        let place = if place.is_empty() { place } else { format!("{place}: ") };
        return format!("{place}unknown key {key}: {}", suggestion(key, known));
    }
    // What a key may be is the same, whatever is in its place.
    let numbers = Config::default().numbers();
    let must_be = |expected: &str| match numbers.iter().find(|(key, ..)| *key == path) {
        Some((.., range)) => format!("a whole number from {} to {}, without quotes", range.start(), range.end()),
        None => in_words(expected).to_owned(),
    };
    let what = match &error.kind {
        Kind::UnknownVariant(word, known) => match likeliest(word, known) {
            Some(meant) => format!("{word:?} is unknown: did you mean {meant}? It is one of {}", known.join(", ")),
            None => format!("{word:?} is unknown: it is one of {}", known.join(", ")),
        },
        Kind::InvalidType(Actual::Str(text), expected) if *expected == "a sequence" => {
            format!("it is the string {text:?}, and must be a list: [{text:?}]")
        }
        Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected) => {
            let found = found.to_string().replace("unsigned int ", "number ").replace("signed int ", "number ");
            format!("it is the {found}, and must be {}", must_be(expected))
        }
        Kind::MissingField(field) => format!("the key {field} is missing: add it"),
        kind => kind.to_string(),
    };
    if path.is_empty() { what } else { format!("{path}: {what}") }
}

/// What a key must be, where the parser names a type of the program.
fn in_words(expected: &str) -> &str {
    match expected {
        "u8" => "a whole number from 0 to 255, without quotes",
        "u16" => "a whole number from 0 to 65535, without quotes",
        "u32" => "a whole number from 0 to 4294967295, without quotes",
        "u64" | "usize" => "a whole number from 0 on, without quotes",
        "a nonzero u32" => "a whole number from 1 to 4294967295, without quotes",
        table if table.starts_with("struct ") => "a table, [KEY.NAME]",
        "a boolean" => "true or false, without quotes",
        "a string" | "path string" => "a text in quotes",
        "a sequence" => "a list in brackets",
        expected => expected,
    }
}

/// The key that was probably meant, or all of them.
fn suggestion(key: &str, known: &[&str]) -> String {
    match likeliest(key, known) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("the keys are {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use unalike::{ClockPolicy, Spread};

    use super::*;
    use crate::config::leases::LeasePlace;

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
            ("lisen = \"x\"", "unknown key lisen: did you mean listen?"),
            ("colour = \"x\"", "unknown key colour: the keys are store, "),
            (
                "[snowflakes.a]\nlayout = \"leaf\"\nhorizon = 1",
                "snowflakes.a: unknown key horizon: did you mean horizon_ms?",
            ),
            ("[snowflakes.a]\nlayout = \"loof\"", "\"loof\""),
            ("[snowflakes.a]\nlayout = \"leaf\"\nhorizon_ms = 0", "horizon"),
            ("[snowflakes.a]\nlayout = \"leaf\"\nhorizon_ms = 299", "horizon_ms of 299, and it must be 300 or more"),
            ("allowed_hosts = [\"ids.example:80\"]", "allowed_hosts has \"ids.example:80\""),
            ("allowed_origins = [\"app.example\"]", "allowed_origins has \"app.example\""),
            ("count_max = 0", "count_max is 0"),
            ("tags_max = 0", "tags_max is 0, it must be 1 at least: create_tags = false"),
            ("[tags.redis-leases]\ntemplate = \"R-{id}\"", "\"redis-leases\""),
            ("drop_in = [\"leaf\", \"loof\"]", "drop_in.1: \"loof\" is unknown: it is one of leaf, tinyid, cosid"),
            ("count_max = \"many\"", "count_max"),
            ("store = \"kafka://h/0\"", "\"kafka\""),
            ("store = \"redis://h/0\"", "--backing none"),
            ("store = \"redis://h/first\"\nbacking = \"none\"", "\"first\""),
            ("store = \"redis+cluster://h/1\"\nbacking = \"none\"", "a Redis Cluster has only 0"),
            ("store = \"redis://h?dialect=id-generator\"\nbacking = \"none\"", "tags import"),
            ("store = \"redis://h\"\nbacking = \"rediss://h/1\"", "the backing store \"rediss://h/1\" is in Redis"),
            ("store = \"redis://h\"\nbacking = \"file\"", "--backing: the store \"file\" is not a URL"),
            ("store = \"redis://h\"\nbacking = \"mysql://ids@h/db?dialect=loof\"", "dialect is \"loof\""),
            ("backing = \"sqlite://a\"", "sqlite://unalike.sqlite is not in Redis"),
            ("backing = \"none\"", "leave it out"),
            ("store = [\"sqlite://a\", \"redis://h\"]", "\"redis://h\" is in Redis"),
            ("leases = \"redis://h\"", "grants it the time of its leases (--backing"),
            ("leases = \"redis://h/first\"\nbacking = \"none\"", "\"first\""),
            ("leases = \"redis://h\"\nbacking = \"redis://h/1\"", "the backing store \"redis://h/1\" is in Redis"),
            ("leases = \"kafka://h\"", "--leases: "),
            ("leases = \"mysql://ids@h/db?dialect=loof\"", "dialect is \"loof\""),
            ("store = \"zookeeper://h\"", "--leases"),
            ("lease_horizon_max_ms = 0", "lease_horizon_max_ms is 0, it must be 1 to 31622400000 (366 days)"),
            ("lease_horizon_max_ms = 31622400001", "lease_horizon_max_ms is 31622400001"),
            ("lease_horizon_max_ms = 59999", "\"default\" has a horizon_ms of 60000"),
            ("lease_skew_max_ms = 3600001", "lease_skew_max_ms is 3600001, it must be 0 to 3600000"),
            ("worker = 1024", "the snowflake \"default\" has workers 0 to 1023"),
            ("worker = 40\n[snowflakes.web]\nlayout = \"cosid-53\"", "\"web\" has workers"),
            ("worker = -1", "a worker's number, or \"ordinal\""),
            ("worker = \"first\"", "a worker's number, or \"ordinal\""),
            ("leases = \"none\"\nworker = 3", "--unsafe-static-worker"),
            ("leases = \"none\"\nlocal_leases = \"d\"", "--local-leases is about leases"),
            ("unsafe_static_worker = true\nworker = 3\nlocal_leases = \"d\"", "add --leases none"),
            ("unsafe_static_worker = true\nleases = \"none\"\nlocal_leases = \"d\"", "needs the number of the worker"),
            ("unsafe_static_worker = true\nleases = \"none\"\nworker = 3", "needs a directory"),
            ("[snowflakes.a]\nlayout = \"leaf\"\nclock = \"wait\"", "\"wait\": it must be reject, wait:MS or keep:MS"),
            (
                "[snowflakes.a]\nlayout = \"leaf\"\nspread = \"even\"",
                "\"even\": it must be none, rotating:BITS or random:BITS",
            ),
            ("[snowflakes.a]\nlayout = \"leaf\"\nspread = \"random:13\"", "\"a\": the spread is out of range"),
            ("[snowflakes.a]\nlayout = \"leaf\"\nclock = 5", "snowflakes.a.clock"),
            ("store = \"ids.sqlite\"", "sqlite://PATH"),
            ("store = []", "there is no store"),
            ("store = 5", "a URL, or a list of URLs"),
            ("store = [\"sqlite://a\", \"sqlite://./a\"]", "given twice"),
            ("store = \"mysql://ids@h/db?dialect=loof\"", "dialect is \"loof\""),
            ("[tags.a]\nchannel = \"ordered\"", "--store redis://HOST/DATABASE"),
            ("[tags.a]\nchannel = \"fast\"", "tags.a.channel: \"fast\" is unknown: it is one of "),
            ("[tags.a]\nbuff_size = 5", "channel"),
            (
                "store = \"mysql://ids@h/db?dialect=leaf\"\n[tags.a]\ntemplate = \"{yyyy}{id}\"\nrestart = \"year\"",
                "\"a\" starts again (restart), and counts each period under a sub-key, which tags in mysql://ids@h/db?dialect=leaf",
            ),
            (
                "store = \"postgres://ids@h/db?dialect=sequence\"\n[tags.a]\ntemplate = \"{yyyy}{id}\"\nrestart = \"year\"",
                "leave restart out",
            ),
            (
                "store = \"redis://h\"\nbacking = \"mysql://ids@h/db?dialect=tinyid\"\n[tags.a]\ntemplate = \"{yyyy}{id}\"\n\
                 restart = \"year\"",
                "leave restart out",
            ),
            ("[tags.a]\nids_per_s = 0", "tags.a.ids_per_s: it is the number `0`, and must be a whole number from 1"),
            ("[tags]\nids_per_s = 5", "tags.ids_per_s: it is the number `5`, and must be a table"),
            ("[snowflakes.a]\nids_per_s = 5", "the key layout is missing"),
            ("[snowflakes.a]\nlayout = \"leaf\"\nids_per_s = 5000000000", "ids_per_s"),
            ("[tags.a]\nchannel = \"quick\"\nids_per_s = 5", "[snowflakes.NAME]"),
            ("[tags.a]\nchannel = \"quick\"\nsub_keys_max = 5", "sub_keys_max"),
            ("segment_count_max = 0", "segment_count_max is 0, it must be 1 to 1000000000"),
            ("[tags.a]\nchannel = \"unordered\"\nbufsize = 1", "did you mean buff_size?"),
            ("[tags.a]\nchannel = \"unordered\"\nbuff_size = 0", "\"a\""),
            ("[tags.\"a\\u001fb\"]\nchannel = \"quick\"", "control character"),
        ] {
            let error = format!("{:#}", load(text).unwrap_err());
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    #[test]
    fn a_counter_starts_again_in_stores_with_sub_keys() {
        for store in ["sqlite://a", "mysql://ids@h/db", "mysql://ids@h/db?dialect=slow-ordered", "etcd://h/ids"] {
            let restart = "[tags.a]\ntemplate = \"{yyyy}{id}\"\nrestart = \"year\"";
            assert!(load(&format!("store = \"{store}\"\n{restart}")).is_ok(), "{store}");
        }
        let never = "[tags.a]\ntemplate = \"{id}\"\nrestart = \"never\"";
        assert!(load(&format!("store = \"mysql://ids@h/db?dialect=leaf\"\n{never}")).is_ok());
    }

    #[test]
    fn the_backing_store_may_have_its_former_name() {
        let before = load("store = \"redis://h/0\"\nwatermark = \"sqlite://a\"").unwrap();
        let now = load("store = \"redis://h/0\"\nbacking = \"sqlite://a\"").unwrap();
        assert!(before.backing == now.backing && now.backing.is_some());
        let error = load("store = \"redis://h/0\"\nwatermark = \"none\"\nbacking = \"none\"").unwrap_err().to_string();
        assert!(error.contains("former name, watermark"), "{error}");
        let flag = CommonArguments { backing_before: Some("sqlite://b".to_owned()), ..CommonArguments::default() };
        let text = "store = \"redis://h/0\"\nwatermark = \"sqlite://a\"";
        let config = Config::assemble(Some((Path::new("unalike.toml"), text)), &flag, None).unwrap();
        assert_eq!(config.backing.unwrap().text(), "sqlite://b");
    }

    #[test]
    fn the_documented_defaults_are_the_defaults() {
        let defaults = keys(&Config::default()).unwrap();
        let mut undocumented: Vec<_> = defaults.keys().cloned().collect();
        for argument in &documented_arguments() {
            let key = argument.get_id().as_str();
            let help = argument.get_help().unwrap().to_string();
            assert_eq!(argument.get_env().unwrap().to_str().unwrap(), format!("UNALIKE_{}", key.to_uppercase()));
            assert_eq!(argument.get_long().unwrap(), key.replace('_', "-"));
            let Some(default) = defaults.get(key).filter(|default| !default.is_null()) else { continue };
            let default = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
            assert!(help.ends_with(&format!("[default: {default}]")), "{key}: {help}");
        }
        undocumented.retain(|key| documented_arguments().iter().all(|argument| argument.get_id() != key.as_str()));
        assert_eq!(undocumented, ["keys", "layouts", "snowflakes", "tags"], "keys of the file that no flag sets");
    }

    #[test]
    fn the_default_file_is_valid_and_changes_nothing() {
        let text = default_text().unwrap();
        let config = load(&text).unwrap();
        assert_eq!(keys(&config).unwrap(), keys(&Config::default()).unwrap());
        assert!(!config.create_tags_is_said, "it would create rows in the tables of other systems");
        for key in keys(&Config::default()).unwrap().keys() {
            assert!(
                [format!("{key} ="), format!("[{key}."), format!("[{key}]")].iter().any(|said| text.contains(said)),
                "{key} is missing:\n{text}"
            );
        }
        // The examples at its end are examples.
        let example = |help: &str| {
            let lines = help.lines().filter_map(|line| line.strip_prefix("# "));
            lines
                .filter(|line| {
                    line.starts_with('[') || line.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '))
                })
                .fold(String::new(), |text, line| text + line + "\n")
        };
        let example = example(LAYOUTS_HELP) + &example(SNOWFLAKES_HELP) + &example(TAGS_HELP) + &example(KEYS_HELP);
        let config = load(&example).unwrap();
        let formats = config.formats(&Secrets::unread(&config.keys).unwrap()).unwrap();
        assert_eq!((formats.tags.len(), formats.snowflakes.len()), (1, 1), "{example}");
        assert_eq!(config.snowflakes().unwrap().len(), 2, "{example}");
        assert_eq!(config.declared().unwrap().len(), 1, "{example}");
    }

    #[test]
    fn leases_are_kept_where_it_is_said_or_beside_the_durable_store() {
        let place = |text: &str| {
            let config = load(text).unwrap();
            match config.lease_place() {
                LeasePlace::Named(url) => format!("named {url}"),
                LeasePlace::Beside(url) => format!("beside {url}"),
                LeasePlace::Static => "static".to_owned(),
                LeasePlace::Nowhere => "nowhere".to_owned(),
            }
        };
        for (text, expected) in [
            ("", "beside sqlite://unalike.sqlite"),
            ("store = \"mysql://ids@h/db?dialect=leaf\"", "beside mysql://ids@h/db?dialect=leaf"),
            ("store = \"redis://h\"\nbacking = \"sqlite://a\"", "beside sqlite://a"),
            ("store = \"redis://h\"\nbacking = \"mysql://ids@h/db\"", "beside mysql://ids@h/db"),
            ("store = \"redis://h\"\nbacking = \"none\"", "nowhere"),
            ("store = [\"sqlite://a\", \"sqlite://b\"]", "nowhere"),
            ("store = [\"sqlite://a\", \"sqlite://b\"]\nleases = \"sqlite://c\"", "named sqlite://c"),
            ("leases = \"mysql://ids@h/db\"", "named mysql://ids@h/db"),
            ("leases = \"none\"", "nowhere"),
            ("leases = \"none\"\nunsafe_static_worker = true\nworker = 3\nlocal_leases = \"d\"", "static"),
        ] {
            assert_eq!(place(text), expected, "{text}");
        }
    }

    #[test]
    fn a_snowflake_stamps_as_it_is_written() {
        let config = load("[snowflakes.a]\nlayout = \"leaf\"\nclock = \"wait:7\"\nspread = \"random:3\"").unwrap();
        let snowflakes = config.snowflakes().unwrap();
        assert_eq!(
            (snowflakes["a"].clock, snowflakes["a"].spread),
            (ClockPolicy::Wait { max_ms: 7 }, Spread::Random { bits: 3 })
        );
        assert_eq!((snowflakes["default"].clock, snowflakes["default"].spread), (ClockPolicy::default(), Spread::None));
    }

    #[test]
    fn a_quick_tag_has_a_snowflake_of_its_name() {
        let config = load(
            "[tags.flake]\nchannel = \"quick\"\n[tags.web]\nchannel = \"quick\"\n[snowflakes.web]\nlayout = \"leaf\"",
        );
        let snowflakes = config.unwrap().snowflakes().unwrap();
        assert_eq!(snowflakes.keys().collect::<Vec<_>>(), ["default", "flake", "web"]);
        assert_eq!(snowflakes["flake"], snowflakes["default"]);
        assert_ne!(snowflakes["web"], snowflakes["default"]);
    }
}
