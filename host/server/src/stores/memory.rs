//! The memory of this process, for tests of the server itself: `memory://`. It shows what a new kind of store takes.

use std::sync::Arc;

use async_trait::async_trait;
use unalike::storage::{LeaseStore, StoreError};
use unalike_memory::MemoryStore;

use crate::stores::backend::{Backend, OpenStore, Opening, Place};
use crate::stores::url::StoreUrl;

pub(super) struct Memory;

impl Backend for Memory {
    fn title(&self) -> &'static str {
        "memory"
    }

    fn form(&self) -> &'static str {
        "memory://"
    }

    fn is_scheme(&self, scheme: &str) -> bool {
        scheme == "memory"
    }

    fn place(&self, _url: &StoreUrl) -> anyhow::Result<Arc<dyn Place>> {
        Ok(Arc::new(MemoryPlace))
    }
}

struct MemoryPlace;

#[async_trait]
impl Place for MemoryPlace {
    fn name(&self) -> anyhow::Result<String> {
        Ok("memory".to_owned())
    }

    fn kind(&self) -> String {
        "memory".to_owned()
    }

    fn address(&self) -> String {
        "memory".to_owned()
    }

    async fn open(&self, _opening: &Opening) -> Result<Arc<dyn OpenStore>, StoreError> {
        Ok(Arc::new(MemoryStore::default()))
    }

    async fn connect_leases(&self, _opening: &Opening) -> Result<Arc<dyn LeaseStore>, StoreError> {
        Ok(Arc::new(MemoryStore::default()))
    }
}

#[async_trait]
impl OpenStore for MemoryStore {
    async fn leases(self: Arc<Self>) -> Result<Arc<dyn LeaseStore>, StoreError> {
        Ok(self)
    }
}
