//! The open store and the open generators of one process.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use unalike::storage::{SegmentStore, StoreError, TagCreation, TagRecord};
use unalike::{Error, Ids, RefillPolicy, Sequence, SequenceOptions, Snowflake, SnowflakeOptions, StepPolicy};
use unalike_sqlite::{SqliteOptions, SqliteStore};

use crate::auth::Tokens;
use crate::config::Config;

/// Everything that a request needs.
pub(crate) struct Service {
    ids: Ids,
    store: Arc<SqliteStore>,
    snowflakes: HashMap<String, Snowflake>,
    /// Who may do what.
    pub(crate) tokens: Tokens,
    ending: AtomicBool,
    /// The most ids of one request.
    pub(crate) count_max: u32,
}

impl Service {
    /// Opens the store and compiles the component. No id is reserved yet.
    pub(crate) async fn open(config: &Config, tokens: Tokens) -> anyhow::Result<Self> {
        let store = Arc::new(connect(config).await?);
        let mut builder = Ids::builder()
            .segments(store.clone())
            .leases(store.clone())
            .wait_max(Duration::from_millis(config.wait_max_ms));
        if let Some(holder) = &config.holder {
            builder = builder.holder(holder);
        }
        let ids = builder.build().await?;
        let mut snowflakes = HashMap::new();
        for (name, options) in config.snowflakes()? {
            let snowflake = open_snowflake(&ids, &name, options).await?;
            snowflakes.insert(name, snowflake);
        }
        Ok(Self { ids, store, snowflakes, tokens, ending: AtomicBool::new(false), count_max: config.count_max })
    }

    /// The sequence of a tag: a look-up in a map once it is open.
    pub(crate) async fn sequence(&self, tag: &str) -> Result<Sequence, Error> {
        self.ids.sequence(tag, SequenceOptions::default()).await
    }

    /// The sequence of a tag that was opened before.
    pub(crate) fn open_sequence(&self, tag: &str) -> Option<Sequence> {
        self.ids.open_sequence(tag)
    }

    /// The configured snowflake of this name.
    pub(crate) fn snowflake(&self, name: &str) -> Option<&Snowflake> {
        self.snowflakes.get(name)
    }

    /// The open generators, for their figures.
    pub(crate) fn ids(&self) -> &Ids {
        &self.ids
    }

    /// The store, for what concerns tags.
    pub(crate) fn store(&self) -> &SqliteStore {
        &self.store
    }

    /// Whether the store answers and can be written to.
    pub(crate) async fn check(&self) -> Result<(), StoreError> {
        self.store.check().await
    }

    /// From now on the service is not ready, though it goes on.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    /// Whether it is about to end.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Renews leases that are due, also of idle snowflakes.
    pub(crate) fn renew_leases(&self) {
        self.ids.renew_leases();
    }

    /// Gives back what was not used and closes the store.
    pub(crate) async fn close(&self) {
        self.ids.close().await;
        self.store.close().await;
    }
}

async fn open_snowflake(ids: &Ids, name: &str, options: SnowflakeOptions) -> anyhow::Result<Snowflake> {
    ids.snowflake(name, options).await.with_context(|| format!("the snowflake {name:?} cannot be opened"))
}

/// Replaces the policies of a tag that are given, and leaves the others.
///
/// # Errors
/// As [`SegmentStore::change_tag`].
pub(crate) async fn change_tag(
    store: &impl SegmentStore,
    tag: &str,
    step: Option<StepPolicy>,
    refill: Option<RefillPolicy>,
) -> Result<TagRecord, StoreError> {
    let current = store.tag(tag).await?;
    if step.is_none() && refill.is_none() {
        return Ok(current);
    }
    let (step, refill) = (step.unwrap_or(current.options.step), refill.unwrap_or(current.options.refill));
    store.change_tag(tag, step, refill).await
}

/// Opens the store that the configuration names.
pub(crate) async fn connect(config: &Config) -> anyhow::Result<SqliteStore> {
    let mut options = SqliteOptions::new(config.sqlite_path()?);
    options.creation = TagCreation { on_first_use: config.create_tags, tags_max: config.tags_max };
    SqliteStore::connect(options).await.with_context(|| format!("the store {} cannot be opened", config.store))
}
