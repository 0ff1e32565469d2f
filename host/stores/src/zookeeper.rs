//! ZooKeeper: `zookeeper://HOST,HOST/PATH`. It keeps leases only.

use std::sync::Arc;

use async_trait::async_trait;
use unalike_storage::{Layout, LeaseStore, StoreError};
use unalike_zookeeper::{ZookeeperLeases, ZookeeperOptions};

use crate::backend::{Adopted, Adoption, Backend, LiftedTags, OpenStore, Opening, Place};
use crate::error::{Because as _, PlaceError};
use crate::url::StoreUrl;

pub(super) struct Zookeeper;

impl Backend for Zookeeper {
    fn title(&self) -> &'static str {
        "ZooKeeper"
    }

    fn form(&self) -> &'static str {
        "zookeeper://HOST"
    }

    fn is_scheme(&self, scheme: &str) -> bool {
        scheme == "zookeeper"
    }

    fn place(&self, url: &StoreUrl) -> Result<Arc<dyn Place>, PlaceError> {
        let options =
            url.options_of_hosts(ZookeeperOptions::from_url, |options, password| options.password(password))?;
        options.validate().because(|| format!("the store {url:?} cannot be used"))?;
        Ok(Arc::new(options))
    }

    fn has_sequences(&self) -> bool {
        false
    }
}

#[async_trait]
impl Place for ZookeeperOptions {
    fn name(&self) -> Result<String, PlaceError> {
        Ok(format!("zookeeper {}", ZookeeperOptions::address(self)))
    }

    fn kind(&self) -> String {
        "zookeeper".to_owned()
    }

    fn address(&self) -> String {
        ZookeeperOptions::address(self)
    }

    async fn open(&self, _opening: &Opening) -> Result<Arc<dyn OpenStore>, StoreError> {
        Err(StoreError::refused("ZooKeeper keeps leases and no sequences".to_owned()))
    }

    async fn connect_leases(&self, opening: &Opening) -> Result<Arc<dyn LeaseStore>, StoreError> {
        let mut options = self.clone();
        options.limits = opening.limits;
        Ok(Arc::new(ZookeeperLeases::connect(options).await?))
    }

    fn layout(&self) -> Option<Layout> {
        self.leaf.is_some().then_some(Layout::LEAF)
    }

    async fn adopt(&self, url: &StoreUrl, adoption: &Adoption) -> Result<Adopted, PlaceError> {
        // Another ensemble may lack leases as one that was put back does. There is no tag to lift.
        let mut options = self.clone();
        options.limits = adoption.limits;
        let restored = ZookeeperLeases::restored(options).await;
        let restored = restored.because(|| format!("the store {url} was not named anew"))?;
        let leases_from_ms = restored.leases_from_ms;
        Ok(Adopted { tags: 0, kind: LiftedTags::Own, leases_from_ms, follows_itself: false })
    }
}
