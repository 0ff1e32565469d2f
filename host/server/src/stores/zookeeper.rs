//! ZooKeeper: `zookeeper://HOST,HOST/PATH`. It keeps leases only.

use std::sync::Arc;

use anyhow::{Context, ensure};
use async_trait::async_trait;
use unalike::Layout;
use unalike::storage::{LeaseStore, StoreError};
use unalike_zookeeper::{ZookeeperLeases, ZookeeperOptions};

use crate::stores::backend::{Backend, OpenStore, Opening, Place};
use crate::stores::url::{StoreUrl, UNENCODED, passwords_apart};

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

    fn place(&self, url: &StoreUrl) -> anyhow::Result<Arc<dyn Place>> {
        let failed = || format!("the store of leases {url:?} cannot be used");
        // Other parsers do not take several hosts with ports for a URL.
        let (place, query) = url.text().split_once('?').unwrap_or((url.text(), ""));
        // Else what stands before it would be taken for the host's, and shown.
        ensure!(!query.contains('@'), "{}: {UNENCODED}", failed());
        let (kept, passwords) = passwords_apart(query).with_context(failed)?;
        let is_twice =
            place.rsplit_once('@').is_some_and(|(user, _)| user.trim_start_matches("zookeeper://").contains(':'));
        ensure!(
            passwords.len() + usize::from(is_twice) <= 1,
            "the store of leases {url:?} has its password in more than one way"
        );
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(kept).finish();
        let options = ZookeeperOptions::from_url(&format!("{place}?{query}")).with_context(failed)?;
        let options = match passwords.first() {
            Some(password) => options.password(password),
            None => options,
        };
        options.validate().with_context(failed)?;
        Ok(Arc::new(options))
    }

    fn has_sequences(&self) -> bool {
        false
    }
}

#[async_trait]
impl Place for ZookeeperOptions {
    fn name(&self) -> anyhow::Result<String> {
        Ok(format!("zookeeper {}", ZookeeperOptions::address(self)))
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
}
