//! A cluster of etcd: `etcd://HOST,HOST/PREFIX`.

use std::sync::Arc;

use async_trait::async_trait;
use unalike_etcd::{EtcdLeases, EtcdOptions, EtcdStore};
use unalike_storage::{Lazy, LeaseStore, StoreError};

use crate::backend::{Adopted, Adoption, Backend, LiftedTags, OpenStore, Opening, Place};
use crate::error::{Because as _, PlaceError};
use crate::url::StoreUrl;

pub(super) struct Etcd;

impl Backend for Etcd {
    fn title(&self) -> &'static str {
        "etcd"
    }

    fn form(&self) -> &'static str {
        "etcd://HOST,HOST/PREFIX"
    }

    fn is_scheme(&self, scheme: &str) -> bool {
        scheme == "etcd"
    }

    fn place(&self, url: &StoreUrl) -> Result<Arc<dyn Place>, PlaceError> {
        let options = url.options_of_hosts(EtcdOptions::from_url, EtcdOptions::password)?;
        options.validate().because(|| format!("the store {url:?} cannot be used"))?;
        Ok(Arc::new(options))
    }
}

#[async_trait]
impl Place for EtcdOptions {
    fn name(&self) -> Result<String, PlaceError> {
        Ok(format!("etcd {}", EtcdOptions::address(self)))
    }

    fn kind(&self) -> String {
        "etcd".to_owned()
    }

    fn address(&self) -> String {
        EtcdOptions::address(self)
    }

    async fn open(&self, opening: &Opening) -> Result<Arc<dyn OpenStore>, StoreError> {
        let mut options = self.clone();
        options.create &= opening.may_begin;
        options.creation = opening.creation(options.creation);
        options.limits = opening.limits;
        let address = EtcdOptions::address(&options);
        Ok(Arc::new(Lazy::new(move || EtcdStore::connect(options.clone())).at(address)))
    }

    async fn connect_leases(&self, opening: &Opening) -> Result<Arc<dyn LeaseStore>, StoreError> {
        let mut options = self.clone();
        options.create &= opening.may_begin;
        options.limits = opening.limits;
        Ok(Arc::new(EtcdLeases::connect(options).await?))
    }

    fn user_commands(&self, user: &str) -> Option<Vec<String>> {
        Some(self.role_commands(user))
    }

    async fn adopt(&self, _url: &StoreUrl, adoption: &Adoption) -> Result<Adopted, PlaceError> {
        // A cluster follows no other.
        let mut options = self.clone();
        options.limits = adoption.limits;
        let adopted = EtcdStore::adopt(options, adoption.lift).await;
        let adopted = adopted.because(|| format!("the cluster at {} was not adopted", EtcdOptions::address(self)))?;
        let unalike_etcd::Adopted { tags, leases_from_ms, .. } = adopted;
        Ok(Adopted { tags, kind: LiftedTags::Own, leases_from_ms, follows_itself: false })
    }
}

/// A cluster that may have been down when the program started.
#[async_trait]
impl OpenStore for Lazy<EtcdStore> {
    async fn connect(&self) -> Result<(), StoreError> {
        self.opened().await.map(drop)
    }

    async fn leases(self: Arc<Self>) -> Result<Arc<dyn LeaseStore>, StoreError> {
        Ok(Arc::new(self.opened().await?.leases().await?))
    }
}
