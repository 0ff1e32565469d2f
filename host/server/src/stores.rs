//! The open stores of a process: where sequences get their numbers, and snowflakes their workers.
//!
//! A store in Redis hands out what a durable one grants it: its *watermark*, or nothing, by name.

pub(crate) mod leases;
pub(crate) mod mysql;

use std::sync::Arc;

use anyhow::Context;
use tokio::sync::OnceCell;
use unalike::storage::{
    LeaseLimits, PublicTags, SegmentStore, StoreError, StripedStore, TagCreation, TagRecord, validate_public,
};
use unalike_mysql::{BatchTag, Dialect};
use unalike_redis::{RedisStore, Watermark};
use unalike_sqlite::SqliteStore;

use crate::config::Config;
use crate::config::channels::{Declared, needs_redis};
use crate::config::store_url::{StoreOptions, StoreUrl, StoreUrls};
use crate::stores::leases::Leases;
use crate::stores::mysql::Mysql;

/// The open stores of a process.
pub(crate) struct Stores {
    /// Where sequences get their numbers.
    segments: Arc<dyn SegmentStore>,
    /// Where snowflakes get their workers.
    leases: Leases,
    /// Those of the first, and of what stands behind them, that are in MySQL.
    mysql: Vec<Arc<Mysql>>,
    /// Whether numbers come from Redis.
    is_redis: bool,
}

/// What stores are opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A service: what can be done beforehand, is.
    Serving,
    /// A command that ends soon.
    Command,
    /// The same, about what a store has: it begins none.
    LookingInto,
}

impl Stores {
    /// Opens what the configuration names.
    ///
    /// # Errors
    /// When one store cannot be used; of several, only when one is there and refuses, or none is there.
    pub(crate) async fn open(config: &Config, purpose: Purpose) -> anyhow::Result<Self> {
        let mut opening = Opening::new(config, purpose);
        let mut open = OpenStores::default();
        if let Some(redis) = config.store.redis() {
            opening.behind = opening.behind_redis(config, &mut open).await?;
            if matches!(opening.behind, Watermark::RedisAlone) {
                tracing::warn!(
                    "nothing durable stands behind {redis} (--watermark none): ids are as safe as this Redis is, and repeat \
                     after a fail-over to a replica that was behind, or when its files are lost or restored"
                );
            }
        }
        let mut stores = Vec::new();
        for url in config.store.iter() {
            let opened = opening.open(url).await?;
            stores.push(opened.segments());
            open.add(url, opened)?;
        }
        let segments = together(stores).await.with_context(|| cannot_open(&config.store))?;
        // Redis has the durable store itself.
        let segments = Arc::new(PublicTags::new(segments));
        let leases = Self::open_leases(config, purpose, opening, &mut open).await?;
        Ok(Self { segments, leases, mysql: open.mysql(), is_redis: config.store.redis().is_some() })
    }

    /// Opens the lease store alone.
    ///
    /// # Errors
    /// When it is named and cannot be used.
    pub(crate) async fn leases_alone(config: &Config) -> anyhow::Result<Leases> {
        let opening = Opening::new(config, Purpose::LookingInto);
        Self::open_leases(config, Purpose::LookingInto, opening, &mut OpenStores::default()).await
    }

    async fn open_leases(
        config: &Config,
        purpose: Purpose,
        mut opening: Opening,
        open: &mut OpenStores,
    ) -> anyhow::Result<Leases> {
        if config.leases.as_ref().is_some_and(StoreUrl::is_redis) && matches!(opening.behind, Watermark::RedisAlone) {
            // Sequences do not wait for what leases alone need.
            opening.may_be_down = true;
            opening.behind = opening.behind_redis(config, open).await?;
        }
        Leases::open(config, purpose, open, opening.behind).await
    }

    /// The databases of sequences, and of what stands behind them.
    pub(crate) fn mysql(&self) -> &[Arc<Mysql>] {
        &self.mysql
    }

    /// Where sequences get their numbers.
    pub(crate) fn segments(&self) -> &Arc<dyn SegmentStore> {
        &self.segments
    }

    /// Where snowflakes get their workers.
    pub(crate) fn leases(&self) -> &Leases {
        &self.leases
    }

    /// Creates a tag as it is declared.
    ///
    /// # Errors
    /// As [`SegmentStore::create_tag`]; [`StoreError::TagInvalid`] for one that no store keeps.
    pub(crate) async fn create(&self, tag: &str, declared: &Declared) -> Result<TagRecord, StoreError> {
        let Some(options) = declared.options() else {
            let reason = "no store keeps a quick tag: declare it in the configuration, [tags.NAME]".to_owned();
            return Err(StoreError::TagInvalid { tag: tag.to_owned(), reason });
        };
        if *declared == Declared::Ordered && !self.is_redis {
            return Err(needs_redis(tag));
        }
        match self.segments.tag(tag).await {
            Ok(_) => return Err(StoreError::TagExists { tag: tag.to_owned() }),
            Err(StoreError::TagUnknown { .. }) => {}
            Err(error) => return Err(error),
        }
        if self.declare_batch(tag, declared).await? {
            return self.segments.tag(tag).await;
        }
        self.segments.create_tag(tag, &options).await
    }

    /// Makes sure that a tag is as it was declared; one that is unknown is created.
    ///
    /// # Errors
    /// When it is another one, or cannot be created.
    pub(crate) async fn declare(&self, tag: &str, declared: &Declared) -> anyhow::Result<()> {
        if *declared == Declared::Quick {
            return Ok(());
        }
        let failed = || format!("the tag {tag:?} cannot be as the configuration declares it");
        validate_public(tag).with_context(failed)?;
        self.declare_batch(tag, declared).await.with_context(failed)?;
        let record = match self.segments.tag(tag).await {
            Err(StoreError::TagUnknown { .. }) => match self.create(tag, declared).await {
                // Another server was quicker.
                Err(StoreError::TagExists { .. }) => self.segments.tag(tag).await,
                created => created,
            },
            known => known,
        };
        match declared.compare(&record.with_context(failed)?) {
            Ok(None) => Ok(()),
            Ok(Some(remark)) => {
                tracing::warn!(tag, "{remark}");
                Ok(())
            }
            Err(reason) => Err(anyhow::anyhow!(reason)).with_context(failed),
        }
    }

    /// Tells the issuer's own tables what its unordered tags are like, which no column of theirs says; answers whether
    /// these are the store's.
    async fn declare_batch(&self, tag: &str, declared: &Declared) -> Result<bool, StoreError> {
        let Declared::Unordered(unordered) = declared else { return Ok(false) };
        let usual = BatchTag::default();
        let batch_tag = BatchTag {
            prefix: unordered.prefix.unwrap_or(usual.prefix),
            buff_size: unordered.buff_size,
            lowest_critical_value: unordered.lowest_critical_value,
            ..usual
        };
        let mut is_batch = false;
        for store in self.mysql.iter().filter(|store| store.options.dialect == Dialect::Batch) {
            store.connected().await?.declare_batch_tag(tag, &batch_tag).await?;
            is_batch = true;
        }
        Ok(is_batch)
    }

    /// Closes them. Not needed for safety.
    pub(crate) async fn close(&self) {
        self.segments.close().await;
        self.leases.close().await;
    }
}

/// One store, for commands that concern one: its tags are never created by being asked for, and unless it is to begin,
/// it must be there.
///
/// # Errors
/// When it cannot be opened.
pub(crate) async fn open_one(url: &StoreUrl, may_begin: bool) -> anyhow::Result<Arc<dyn SegmentStore>> {
    let opening = Opening {
        may_begin,
        tags_max: TagCreation::default().tags_max,
        on_first_use: Some(false),
        may_be_down: false,
        behind: Watermark::RedisAlone,
        preheats: false,
        limits: LeaseLimits::default(),
    };
    Ok(opening.open(url).await?.segments())
}

/// The stores that are open already, each with the name of its place.
#[derive(Default)]
pub(crate) struct OpenStores(Vec<(String, Opened)>);

impl OpenStores {
    fn add(&mut self, url: &StoreUrl, opened: Opened) -> anyhow::Result<()> {
        self.0.push((url.place()?.name()?, opened));
        Ok(())
    }

    /// The one at this place.
    pub(crate) fn at(&self, name: &str) -> Option<&Opened> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, opened)| opened)
    }

    fn mysql(&self) -> Vec<Arc<Mysql>> {
        let stores = self.0.iter().filter_map(|(_, opened)| match opened {
            Opened::Mysql(store) => Some(Arc::clone(store)),
            Opened::Sqlite(_) | Opened::Redis(_) => None,
        });
        stores.collect()
    }
}

/// How stores are opened.
struct Opening {
    /// One that is not there is begun, if its URL does not say otherwise.
    may_begin: bool,
    tags_max: u64,
    /// Whether tags are created on first use, where it was said: else they are in a store of unalike's own.
    on_first_use: Option<bool>,
    /// One that is down is tried again later.
    may_be_down: bool,
    /// What stands behind one in Redis.
    behind: Watermark,
    /// One in Redis gets its numbers of known tags beforehand, unless its URL says otherwise.
    preheats: bool,
    /// For one that leases workers too.
    limits: LeaseLimits,
}

/// A store that was opened, by its kind.
pub(crate) enum Opened {
    Sqlite(Arc<SqliteStore>),
    Mysql(Arc<Mysql>),
    Redis(Arc<RedisStore>),
}

impl Opening {
    fn new(config: &Config, purpose: Purpose) -> Self {
        Self {
            may_begin: purpose != Purpose::LookingInto,
            tags_max: config.tags_max,
            on_first_use: config.create_tags_is_said.then_some(config.create_tags),
            may_be_down: config.store.only().is_none(),
            behind: Watermark::RedisAlone,
            preheats: purpose == Purpose::Serving,
            limits: config.lease_limits(),
        }
    }

    /// What stands behind Redis, opened unless it is open.
    async fn behind_redis(&self, config: &Config, open: &mut OpenStores) -> anyhow::Result<Watermark> {
        let Some(url) = config.watermark.as_ref().filter(|url| !url.is_nothing()) else {
            return Ok(Watermark::RedisAlone);
        };
        if let Some(opened) = open.at(&url.place()?.name()?) {
            return Ok(Watermark::Durable(opened.segments()));
        }
        let opened = self.open(url).await.context("--watermark")?;
        let segments = opened.segments();
        open.add(url, opened)?;
        Ok(Watermark::Durable(segments))
    }

    /// Whether tags are created on first use, where a URL by itself means this.
    fn creation(&self, of_url: TagCreation) -> TagCreation {
        TagCreation { on_first_use: self.on_first_use.unwrap_or(of_url.on_first_use), tags_max: self.tags_max }
    }

    async fn open(&self, url: &StoreUrl) -> anyhow::Result<Opened> {
        let failed = || format!("the store {url} cannot be opened");
        match url.place()? {
            StoreOptions::Sqlite(mut options) => {
                options.create &= self.may_begin;
                options.creation = self.creation(options.creation);
                options.limits = self.limits;
                Ok(Opened::Sqlite(Arc::new(SqliteStore::connect(*options).await.with_context(failed)?)))
            }
            StoreOptions::Mysql(mut options) => {
                // In front of the tables of another system, which must be there, those of unalike's own may be missing.
                options.create_tables &= self.may_begin || options.dialect != Dialect::Unalike;
                options.create_foreign &= self.may_begin;
                options.creation = self.creation(options.creation);
                options.limits = self.limits;
                let store = Arc::new(Mysql { options: *options, store: OnceCell::new() });
                match store.connected().await {
                    Ok(_) => {}
                    // Its stripes are left out until it is there.
                    Err(error @ StoreError::Unavailable { .. }) if self.may_be_down => {
                        tracing::warn!(%error, "the store {url} is down, and will be tried again");
                    }
                    Err(error) => return Err(error).with_context(failed),
                }
                Ok(Opened::Mysql(store))
            }
            StoreOptions::Redis(mut options) => {
                options.creation = self.creation(options.creation);
                options.preheat &= self.preheats;
                let store = RedisStore::connect(*options, self.behind.clone()).await;
                Ok(Opened::Redis(Arc::new(store.with_context(failed)?)))
            }
        }
    }
}

impl Opened {
    fn segments(&self) -> Arc<dyn SegmentStore> {
        match self {
            Self::Sqlite(store) => Arc::clone(store) as _,
            Self::Mysql(store) => Arc::clone(store) as _,
            Self::Redis(store) => Arc::clone(store) as _,
        }
    }
}

fn cannot_open(urls: &StoreUrls) -> String {
    format!("the store {urls} cannot be opened")
}

/// One store, or several as the stripes of one set.
async fn together(mut stores: Vec<Arc<dyn SegmentStore>>) -> Result<Arc<dyn SegmentStore>, StoreError> {
    if stores.len() == 1
        && let Some(store) = stores.pop()
    {
        return Ok(store);
    }
    Ok(Arc::new(StripedStore::open(stores).await?))
}
