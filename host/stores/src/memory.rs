//! The memory of this process, for the tests of this crate: `memory://`. It shows what a new kind of store takes.

use std::sync::Arc;

use async_trait::async_trait;
use unalike_memory::MemoryStore;
use unalike_storage::{LeaseStore, StoreError};

use crate::backend::{Backend, OpenStore, Opening, Place};
use crate::error::PlaceError;
use crate::url::StoreUrl;

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

    fn place(&self, _url: &StoreUrl) -> Result<Arc<dyn Place>, PlaceError> {
        Ok(Arc::new(MemoryPlace))
    }
}

struct MemoryPlace;

#[async_trait]
impl Place for MemoryPlace {
    fn name(&self) -> Result<String, PlaceError> {
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
