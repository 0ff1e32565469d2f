//! The open stores of a process: where sequences get their numbers, and snowflakes their workers.
//!
//! A volatile store hands out what a durable one grants it: its *backing store*, or nothing, by name.

use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use unalike::storage::{LeaseLimits, PublicTags, SegmentStore, StoreError, TagCreation, TagRecord, validate_public};
use unalike_stores::{OpenStore, Opened, Opening, StoreUrl, UnorderedTag};

use crate::config::Config;
use crate::config::channels::{Declared, needs_redis};
use crate::config::leases::LeasePlace;
use crate::service::leases::Leases;
use crate::service::problem::StoreKinds;

/// The open stores of a process.
pub(crate) struct Stores {
    /// Where sequences get their numbers.
    segments: Arc<dyn SegmentStore>,
    /// Where snowflakes get their workers.
    leases: Leases,
    /// Those of the first, and what backs them.
    open: Vec<Opened>,
    /// Whether numbers come from a volatile store.
    is_volatile: bool,
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
    /// The same, and no table is made for it.
    Examining,
    /// The same, to show what another system has, too, where nothing of unalike's own is there yet.
    Listing,
}

impl Stores {
    /// Opens what the configuration names.
    ///
    /// # Errors
    /// When one store cannot be used; of several, only when one is there and refuses, or none is there.
    pub(crate) async fn open(config: &Config, purpose: Purpose) -> anyhow::Result<Self> {
        let mut open = config.stores().open(opening(config, purpose)).await?;
        let segments = open.segments().context("no store of sequences is open")?;
        // A volatile store has the durable one itself.
        let segments = Arc::new(PublicTags::new(Arc::clone(segments)));
        let leases = Leases::open(config, purpose, &mut open).await?;
        Ok(Self { segments, leases, open: open.into_stores(), is_volatile: config.store.volatile().is_some() })
    }

    /// Opens only the lease store.
    ///
    /// # Errors
    /// When it is named and cannot be used.
    pub(crate) async fn leases_alone(config: &Config) -> anyhow::Result<Leases> {
        let mut open = config.stores().unopened(opening(config, Purpose::LookingInto));
        Leases::open(config, Purpose::LookingInto, &mut open).await
    }

    /// The stores of sequences one by one, and what backs them.
    pub(crate) fn open_stores(&self) -> Vec<Arc<dyn OpenStore>> {
        self.open.iter().map(|opened| Arc::clone(&opened.store)).collect()
    }

    /// Refuses a source of tags that is one of these stores under another name: its tags would be ended here. Where
    /// neither has an identity, that cannot be told, and the source must be one that is `only_read`.
    ///
    /// # Errors
    /// When it is, and when a store of the same kind cannot be told from it.
    pub(crate) async fn check_other(
        &self,
        url: &StoreUrl,
        source: &dyn SegmentStore,
        only_read: bool,
    ) -> anyhow::Result<()> {
        let kind = url.place()?.kind();
        let mut known = Vec::new();
        // All of them before the source is asked, which may get its name only by that.
        for Opened { url: own, store, .. } in &self.open {
            if own.place()?.kind() == kind {
                known.push((own, store.identity().await));
            }
        }
        if known.is_empty() {
            return Ok(());
        }
        let of_source = source.recorded_identity().await;
        let of_source = of_source.with_context(|| format!("the identity of the source {url} cannot be read"))?;
        for (own, identity) in known {
            let untold = || format!("the source {url} cannot be told from the store {own}");
            match identity {
                Ok(Some(identity)) => ensure!(
                    of_source != Some(identity),
                    "the source {url} and the store {own} are the same data, by two names: both have the identity \
                     {identity}. Name another store with --from. Of a copy of the store nothing is to be imported: raise \
                     the tags here above all that the copy granted (unalike tags raise)"
                ),
                // It would have the identity that the source has.
                Ok(None) if of_source.is_some() => {}
                Err(error) if error.is_not_begun() && of_source.is_some() => {}
                Ok(None) | Err(StoreError::Refused { .. }) if only_read => {}
                Err(error) => return Err(error).with_context(untold),
                Ok(None) => bail!(
                    "{}: neither has an identity. See that they are two, stop every program that uses the source, and add \
                     --source-stopped, which only reads it",
                    untold()
                ),
            }
        }
        Ok(())
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
        if *declared == Declared::Ordered && !self.is_volatile {
            return Err(needs_redis(tag));
        }
        match self.segments.tag(tag).await {
            Ok(_) => return Err(StoreError::TagExists { tag: tag.to_owned() }),
            Err(StoreError::TagUnknown { .. }) => {}
            Err(error) => return Err(error),
        }
        if self.declare_unordered(tag, declared).await? {
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
        self.declare_unordered(tag, declared).await.with_context(failed)?;
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

    /// Notes what an unordered tag is like where no column says it; answers whether a store is such a one.
    async fn declare_unordered(&self, tag: &str, declared: &Declared) -> Result<bool, StoreError> {
        let Declared::Unordered(unordered) = declared else { return Ok(false) };
        let declared = UnorderedTag {
            prefix: unordered.prefix,
            buff_size: unordered.buff_size,
            lowest_critical_value: unordered.lowest_critical_value,
        };
        let mut is_noted = false;
        for Opened { store, .. } in &self.open {
            is_noted |= store.declare_unordered(tag, declared).await?;
        }
        Ok(is_noted)
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
        makes_tables: true,
        only_looks: false,
        tags_max: TagCreation::default().tags_max,
        on_first_use: Some(false),
        durable: None,
        preheats: false,
        limits: LeaseLimits::default(),
    };
    Ok(url.connect(&opening, false).await?.store)
}

/// How the configuration has stores opened.
fn opening(config: &Config, purpose: Purpose) -> Opening {
    Opening {
        may_begin: matches!(purpose, Purpose::Serving | Purpose::Command),
        makes_tables: !matches!(purpose, Purpose::Examining | Purpose::Listing),
        only_looks: purpose == Purpose::Listing,
        tags_max: config.tags_max,
        on_first_use: config.create_tags_is_said.then_some(config.create_tags),
        durable: None,
        preheats: purpose == Purpose::Serving,
        limits: config.lease_limits(),
    }
}

/// The kinds of the stores that the configuration names.
pub(crate) fn kinds(config: &Config) -> StoreKinds {
    let backed = |url: &StoreUrl| match config.backing.as_ref().filter(|backing| !backing.is_nothing()) {
        Some(backing) if url.is_volatile() => format!("{}, backed by {}", url.title(), backing.title()),
        _ => url.title().to_owned(),
    };
    let mut sequences: Vec<_> = config.store.iter().map(backed).collect();
    sequences.dedup();
    let leases = match config.lease_place() {
        LeasePlace::Named(url) => Some(backed(url)),
        LeasePlace::Beside(url) => Some(url.title().to_owned()),
        LeasePlace::Static | LeasePlace::Nowhere => None,
    };
    StoreKinds { sequences: sequences.join(", "), leases }
}
