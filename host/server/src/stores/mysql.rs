//! A database of MySQL or MariaDB: `mysql://USER@HOST/DATABASE`.

use std::sync::Arc;

use anyhow::Context;
use async_trait::async_trait;
use tokio::sync::OnceCell;
use unalike::storage::{
    JoinedStripe, LeaseStore, Segment, SegmentStore, StoreError, StoreIdentity, Stripe, TagOptions, TagRecord,
    TailRelease, TailsReleased,
};
use unalike::{RefillPolicy, StepPolicy};
use unalike_mysql::{BatchTag, Dialect, MysqlLeases, MysqlOptions, MysqlStore};

use crate::stores::backend::{Adopted, Adoption, Backend, OpenStore, Opening, Place, Tables, UnorderedTag};
use crate::stores::url::StoreUrl;

pub(super) struct Mysql;

impl Backend for Mysql {
    fn title(&self) -> &'static str {
        "MySQL"
    }

    fn form(&self) -> &'static str {
        "mysql://USER@HOST/DATABASE"
    }

    fn is_scheme(&self, scheme: &str) -> bool {
        matches!(scheme, "mysql" | "mariadb")
    }

    fn place(&self, url: &StoreUrl) -> anyhow::Result<Arc<dyn Place>> {
        Ok(Arc::new(url.options(MysqlOptions::from_url, MysqlOptions::password)?))
    }

    fn dialects(&self) -> &'static [&'static str] {
        &["unalike", "leaf", "tinyid", "cosid", "sequence-table", "id-generator", "batch", "slow-ordered", "ticket"]
    }

    fn tables(&self, dialect: &str) -> Option<Tables> {
        Dialect::named(dialect).as_ref().map(tables)
    }

    fn lease_tables(&self) -> Option<Tables> {
        Some(Tables { statements: MysqlLeases::ddl(), privileges: MysqlLeases::privileges() })
    }
}

fn tables(dialect: &Dialect) -> Tables {
    Tables { statements: dialect.ddl(), privileges: dialect.privileges() }
}

#[async_trait]
impl Place for MysqlOptions {
    fn name(&self) -> anyhow::Result<String> {
        Ok(format!("mysql {} {:?}", MysqlOptions::address(self), std::mem::discriminant(&self.dialect)))
    }

    fn address(&self) -> String {
        MysqlOptions::address(self)
    }

    async fn open(&self, opening: &Opening) -> Result<Arc<dyn OpenStore>, StoreError> {
        let mut options = self.clone();
        // In front of the tables of another system, which must be there, those of unalike's own may be missing.
        options.create_tables &= opening.may_begin || options.dialect != Dialect::Unalike;
        options.create_foreign &= opening.may_begin;
        options.creation = opening.creation(options.creation);
        options.limits = opening.limits;
        Ok(Arc::new(LazyMysql { options, store: OnceCell::new() }))
    }

    async fn connect_leases(&self, opening: &Opening) -> Result<Arc<dyn LeaseStore>, StoreError> {
        let mut options = self.clone();
        options.create_tables &= opening.may_begin;
        options.limits = opening.limits;
        Ok(Arc::new(MysqlLeases::connect(options).await?))
    }

    fn asks_whether_source_stopped(&self) -> bool {
        matches!(self.dialect, Dialect::IdGenerator { source_stopped: false, .. })
    }

    fn tables(&self) -> Option<Tables> {
        Some(tables(&self.dialect))
    }

    fn has_lease_tables(&self) -> bool {
        true
    }

    async fn upgrade(&self) -> Result<(), StoreError> {
        MysqlStore::upgrade(self.clone()).await
    }

    async fn adopt(&self, _url: &StoreUrl, adoption: &Adoption) -> anyhow::Result<Adopted> {
        let mut options = self.clone();
        options.limits = adoption.limits;
        options.assume_replication_ended = adoption.replication_ended;
        let adopted = MysqlStore::adopt_server(options, adoption.lift).await;
        let adopted =
            adopted.with_context(|| format!("the server behind {} was not adopted", MysqlOptions::address(self)))?;
        let unalike_mysql::Adopted { tags, leases_from_ms, follows_itself, .. } = adopted;
        Ok(Adopted { tags, leases_from_ms, follows_itself })
    }
}

/// A database that may have been down when the program started: it is connected to when it is first needed.
struct LazyMysql {
    options: MysqlOptions,
    store: OnceCell<MysqlStore>,
}

impl LazyMysql {
    async fn connected(&self) -> Result<&MysqlStore, StoreError> {
        self.store.get_or_try_init(|| MysqlStore::connect(self.options.clone())).await
    }
}

#[async_trait]
impl OpenStore for LazyMysql {
    async fn connect(&self) -> Result<(), StoreError> {
        self.connected().await.map(drop)
    }

    async fn leases(self: Arc<Self>) -> Result<Arc<dyn LeaseStore>, StoreError> {
        Ok(Arc::new(self.connected().await?.leases().await?))
    }

    async fn declare_unordered(&self, tag: &str, declared: UnorderedTag) -> Result<bool, StoreError> {
        if self.options.dialect != Dialect::Batch {
            return Ok(false);
        }
        let usual = BatchTag::default();
        let batch_tag = BatchTag {
            prefix: declared.prefix.unwrap_or(usual.prefix),
            buff_size: declared.buff_size,
            lowest_critical_value: declared.lowest_critical_value,
            ..usual
        };
        self.connected().await?.declare_batch_tag(tag, &batch_tag).await?;
        Ok(true)
    }

    async fn tinyid_tokens(&self) -> Result<Option<Vec<(String, String)>>, StoreError> {
        match self.options.dialect {
            Dialect::Tinyid => self.connected().await?.tinyid_tokens().await,
            // To a user of unalike's own tables it is nothing whether others are there.
            Dialect::Unalike => match self.connected().await?.tinyid_tokens().await {
                Err(StoreError::Refused { .. }) => Ok(None),
                tokens => tokens,
            },
            _ => Ok(None),
        }
    }
}

#[async_trait]
impl SegmentStore for LazyMysql {
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

    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        self.connected().await?.identity().await
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
