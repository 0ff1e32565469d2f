//! Redis: `redis://HOST/DATABASE`, the master that Sentinels name (`redis+sentinel://HOST,HOST/MASTER`), or a Cluster
//! (`redis+cluster://HOST,HOST`); and `rediss` by TLS.

use std::sync::Arc;

use async_trait::async_trait;
use unalike_redis::{Backing, Dialect, RedisLeases, RedisOptions, RedisStore};
use unalike_storage::{Layout, LeaseLimits, LeaseStore, SegmentStore, StoreError};

use crate::backend::{Adopted, Adoption, Backend, LiftedTags, OpenStore, Opening, Place, Rebound};
use crate::error::{Because as _, PlaceError};
use crate::url::StoreUrl;

pub(super) struct Redis;

impl Backend for Redis {
    fn title(&self) -> &'static str {
        "Redis"
    }

    fn form(&self) -> &'static str {
        "redis://HOST/DATABASE"
    }

    fn is_scheme(&self, scheme: &str) -> bool {
        // With a word behind it: a Sentinel's, a Cluster's, or one that the adapter refuses.
        scheme.starts_with("redis")
    }

    fn place(&self, url: &StoreUrl) -> Result<Arc<dyn Place>, PlaceError> {
        let has_hosts = url.scheme().is_some_and(|scheme| scheme.contains('+'));
        let options = if has_hosts {
            url.options_of_hosts(RedisOptions::from_url, RedisOptions::password)?
        } else {
            url.options(RedisOptions::from_url, RedisOptions::password)?
        };
        Ok(Arc::new(options))
    }

    fn is_volatile(&self) -> bool {
        true
    }

    fn dialects(&self) -> &'static [&'static str] {
        &["unalike", "clock", "cosid", "id-generator"]
    }
}

/// What stands behind it.
fn backing(durable: Option<&Arc<dyn SegmentStore>>) -> Backing {
    durable.map_or(Backing::RedisAlone, |durable| Backing::Durable(Arc::clone(durable)))
}

#[async_trait]
impl Place for RedisOptions {
    fn name(&self) -> Result<String, PlaceError> {
        let dialect = std::mem::discriminant(&self.dialect);
        Ok(format!("redis {} {dialect:?} {}", RedisOptions::address(self), self.prefix))
    }

    fn kind(&self) -> String {
        format!("redis {:?}", std::mem::discriminant(&self.dialect))
    }

    fn address(&self) -> String {
        RedisOptions::address(self)
    }

    async fn open(&self, opening: &Opening) -> Result<Arc<dyn OpenStore>, StoreError> {
        let mut options = self.clone();
        options.creation = opening.creation(options.creation);
        options.preheat &= opening.preheats;
        Ok(Arc::new(RedisStore::connect(options, backing(opening.durable.as_ref())).await?))
    }

    async fn connect_leases(&self, opening: &Opening) -> Result<Arc<dyn LeaseStore>, StoreError> {
        let mut options = self.clone();
        options.limits = opening.limits;
        Ok(Arc::new(RedisLeases::connect(options, backing(opening.durable.as_ref())).await?))
    }

    fn is_only_read(&self) -> bool {
        matches!(self.dialect, Dialect::IdGenerator { .. })
    }

    fn has_sub_keys(&self) -> bool {
        // Those of the clock are the numbers of shards.
        self.dialect == Dialect::Unalike
    }

    fn asks_whether_source_stopped(&self) -> bool {
        matches!(self.dialect, Dialect::IdGenerator { source_stopped: false, .. })
    }

    async fn adopt(&self, url: &StoreUrl, adoption: &Adoption) -> Result<Adopted, PlaceError> {
        if !adoption.is_alone {
            return Err(PlaceError::new(format!(
                "the store {url} is in Redis, which is not adopted: whatever it lost, it goes on with new numbers. The \
                 server of the durable store behind it is, if that store is named alone (--store), and COUNT is more \
                 than it granted to Redis. If there is none (--backing none) and Redis was restored from a backup, say \
                 so with `unalike store restored --lift COUNT`"
            )));
        }
        if !adoption.is_restored {
            return Err(PlaceError::new(format!(
                "the store {url} is in Redis, which is not adopted: a program uses the store that it finds when it \
                 starts. If that was restored from a backup, or lacks the last numbers, say so with `unalike store \
                 restored --lift COUNT`"
            )));
        }
        let mut options = self.clone();
        options.limits = adoption.limits;
        let restored = RedisStore::restored(options, adoption.lift).await;
        let restored = restored.because(|| format!("the tags in {url} were not lifted"))?;
        let (tags, leases_from_ms) = (restored.tags, restored.leases_from_ms);
        Ok(Adopted { tags, kind: LiftedTags::Own, leases_from_ms, follows_itself: false })
    }

    async fn rebind(
        &self,
        before: &Arc<dyn SegmentStore>,
        durable: &Arc<dyn SegmentStore>,
    ) -> Result<Rebound, StoreError> {
        let unalike_redis::Rebound { before, identity, .. } = RedisStore::rebind(self, before, durable).await?;
        Ok(Rebound { before, identity })
    }

    async fn initialise(&self) -> Result<bool, StoreError> {
        RedisStore::initialise(self).await
    }

    async fn initialise_leases(
        &self,
        namespace: &str,
        layout: Layout,
        limits: LeaseLimits,
    ) -> Result<bool, StoreError> {
        let mut options = self.clone();
        options.limits = limits;
        RedisLeases::initialise(&options, namespace, layout).await
    }
}

#[async_trait]
impl OpenStore for RedisStore {
    async fn leases(self: Arc<Self>) -> Result<Arc<dyn LeaseStore>, StoreError> {
        // They need a durable store of their own: see `Place::connect_leases`.
        Err(StoreError::refused("leases in Redis are opened by themselves (--leases)".to_owned()))
    }
}
