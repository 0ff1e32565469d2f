//! A database that is connected to when it is first needed.

use async_trait::async_trait;
use tokio::sync::OnceCell;
use unalike::storage::{
    JoinedStripe, Segment, SegmentStore, StoreError, Stripe, TagOptions, TagRecord, TailRelease, TailsReleased,
};
use unalike::{RefillPolicy, StepPolicy};
use unalike_mysql::{Dialect, MysqlOptions, MysqlStore};

/// A database that may have been down when the program started: it is connected to when it is first needed.
pub(crate) struct Mysql {
    pub(super) options: MysqlOptions,
    pub(super) store: OnceCell<MysqlStore>,
}

impl Mysql {
    /// Whose tables it uses.
    pub(crate) fn dialect(&self) -> &Dialect {
        &self.options.dialect
    }

    pub(crate) async fn connected(&self) -> Result<&MysqlStore, StoreError> {
        self.store.get_or_try_init(|| MysqlStore::connect(self.options.clone())).await
    }
}

#[async_trait]
impl SegmentStore for Mysql {
    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        self.connected().await?.allocate(tag, count, at_least).await
    }

    async fn release(&self, tag: &str, tail: TailRelease) -> Result<bool, StoreError> {
        self.connected().await?.release(tag, tail).await
    }

    fn address(&self) -> Option<String> {
        Some(self.options.address())
    }

    async fn release_many(&self, tails: Vec<(String, TailRelease)>) -> TailsReleased {
        match self.connected().await {
            Ok(store) => store.release_many(tails).await,
            Err(error) => {
                let mut released = TailsReleased::default();
                released.failed(tails.len(), error);
                released
            }
        }
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.connected().await?.open_tag(tag).await
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.connected().await?.tag(tag).await
    }

    async fn create_tag(&self, tag: &str, options: &TagOptions) -> Result<TagRecord, StoreError> {
        self.connected().await?.create_tag(tag, options).await
    }

    async fn change_tag(&self, tag: &str, step: StepPolicy, refill: RefillPolicy) -> Result<TagRecord, StoreError> {
        self.connected().await?.change_tag(tag, step, refill).await
    }

    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        self.connected().await?.raise_tag(tag, next).await
    }

    async fn retire_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.connected().await?.retire_tag(tag).await
    }

    async fn retire_tags(&self, tags: &[String]) -> Result<Option<Vec<TagRecord>>, StoreError> {
        self.connected().await?.retire_tags(tags).await
    }

    async fn create_tags(&self, tags: &[(String, TagOptions)]) -> Result<Option<Vec<TagRecord>>, StoreError> {
        self.connected().await?.create_tags(tags).await
    }

    async fn beyond_records(&self, tags: &[String]) -> Result<Option<Vec<Option<String>>>, StoreError> {
        self.connected().await?.beyond_records(tags).await
    }

    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        self.connected().await?.tags(after, limit).await
    }

    async fn folds_names(&self) -> Result<Option<String>, StoreError> {
        self.connected().await?.folds_names().await
    }

    async fn beyond_record(&self, tag: &str) -> Result<Option<String>, StoreError> {
        self.connected().await?.beyond_record(tag).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.connected().await?.check().await
    }

    async fn stripe(&self) -> Result<Option<Stripe>, StoreError> {
        self.connected().await?.stripe().await
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        self.connected().await?.join_stripe(stripe).await
    }

    async fn restripe(&self, expected: Option<&Stripe>, stripe: Option<&Stripe>) -> Result<(), StoreError> {
        self.connected().await?.restripe(expected, stripe).await
    }

    async fn close(&self) {
        if let Some(store) = self.store.get() {
            store.close().await;
        }
    }
}
