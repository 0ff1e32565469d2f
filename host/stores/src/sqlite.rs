//! A file of SQLite's: `sqlite://PATH`.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_storage::{LeaseStore, StoreError};

use crate::backend::{Adopted, Adoption, Backend, LiftedTags, OpenStore, Opening, Place};
use crate::error::{Because as _, PlaceError};
use crate::url::StoreUrl;

pub(super) struct Sqlite;

impl Backend for Sqlite {
    fn title(&self) -> &'static str {
        "SQLite"
    }

    fn form(&self) -> &'static str {
        "sqlite://PATH"
    }

    fn is_scheme(&self, scheme: &str) -> bool {
        scheme == "sqlite"
    }

    fn place(&self, url: &StoreUrl) -> Result<Arc<dyn Place>, PlaceError> {
        Ok(Arc::new(SqliteOptions::from_url(url.text())?))
    }

    fn is_file(&self) -> bool {
        true
    }
}

#[async_trait]
impl Place for SqliteOptions {
    fn name(&self) -> Result<String, PlaceError> {
        let path = std::path::absolute(&self.path);
        let path = path.because(|| format!("{} is not a path", self.path.display()))?;
        Ok(format!("sqlite {}", path.canonicalize().unwrap_or(path).display()))
    }

    fn kind(&self) -> String {
        "sqlite".to_owned()
    }

    fn address(&self) -> String {
        self.path.display().to_string()
    }

    async fn open(&self, opening: &Opening) -> Result<Arc<dyn OpenStore>, StoreError> {
        let mut options = self.clone();
        options.create &= opening.may_begin;
        options.creation = opening.creation(options.creation);
        options.limits = opening.limits;
        Ok(Arc::new(SqliteStore::connect(options).await?))
    }

    async fn connect_leases(&self, opening: &Opening) -> Result<Arc<dyn LeaseStore>, StoreError> {
        let mut options = self.clone();
        options.create &= opening.may_begin;
        options.limits = opening.limits;
        Ok(Arc::new(SqliteStore::connect(options).await?))
    }

    fn file(&self) -> Option<&Path> {
        Some(&self.path)
    }

    async fn adopt(&self, url: &StoreUrl, adoption: &Adoption) -> Result<Adopted, PlaceError> {
        if !adoption.is_restored {
            return Err(PlaceError::new(format!(
                "the store {url} is a file, and has no server to adopt. If it was restored from a backup, say so with \
                 `unalike store restored --lift COUNT`"
            )));
        }
        let options = SqliteOptions { limits: adoption.limits, ..self.clone() };
        let restored = SqliteStore::restored(options, adoption.lift).await;
        let restored = restored.because(|| format!("the tags in {url} were not lifted"))?;
        let (tags, leases_from_ms) = (restored.tags, restored.leases_from_ms);
        Ok(Adopted { tags, kind: LiftedTags::Own, leases_from_ms, follows_itself: false })
    }
}

#[async_trait]
impl OpenStore for SqliteStore {
    async fn leases(self: Arc<Self>) -> Result<Arc<dyn LeaseStore>, StoreError> {
        Ok(self)
    }
}
