//! A database of MySQL or MariaDB: `mysql://USER@HOST/DATABASE`.

use std::sync::Arc;

use async_trait::async_trait;
use unalike_mysql::{BatchTag, Dialect, MysqlLeases, MysqlOptions, MysqlStore};
use unalike_storage::{JoinedStripe, Lazy, LeaseStore, SegmentLayer, SegmentStore, StoreError, Stripe};

use crate::backend::{
    Account, Adopted, Adoption, Backend, LiftedTags, OpenStore, Opening, Place, Tables, UnorderedTag,
};
use crate::error::{Because as _, PlaceError};
use crate::url::StoreUrl;

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

    fn place(&self, url: &StoreUrl) -> Result<Arc<dyn Place>, PlaceError> {
        Ok(Arc::new(url.options(MysqlOptions::from_url, MysqlOptions::password)?))
    }

    fn dialects(&self) -> &'static [&'static str] {
        &["unalike", "leaf", "tinyid", "cosid", "sequence-table", "id-generator", "batch", "slow-ordered", "ticket"]
    }

    fn tables(&self, dialect: &str, _schema: Option<&str>) -> Option<Tables> {
        Dialect::named(dialect).as_ref().map(tables)
    }

    fn lease_tables(&self, _schema: Option<&str>) -> Option<Tables> {
        let (statements, privileges) = (MysqlLeases::ddl(), MysqlLeases::privileges());
        Some(Tables { backend: &Mysql, schema: None, statements, privileges })
    }

    /// `'NAME'@'HOST'`
    fn account(&self, user: &str) -> Account {
        let (name, host) = user.rsplit_once('@').unwrap_or((user, "%"));
        let quoted = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"));
        let name = format!("{}@{}", quoted(name), quoted(host));
        Account { creation: format!("CREATE USER {name} IDENTIFIED BY '..'"), name }
    }
}

fn tables(dialect: &Dialect) -> Tables {
    Tables { backend: &Mysql, schema: None, statements: dialect.ddl(), privileges: dialect.privileges() }
}

#[async_trait]
impl Place for MysqlOptions {
    fn name(&self) -> Result<String, PlaceError> {
        Ok(format!("mysql {} {:?}", MysqlOptions::address(self), std::mem::discriminant(&self.dialect)))
    }

    fn kind(&self) -> String {
        format!("mysql {:?}", std::mem::discriminant(&self.dialect))
    }

    fn address(&self) -> String {
        MysqlOptions::address(self)
    }

    async fn open(&self, opening: &Opening) -> Result<Arc<dyn OpenStore>, StoreError> {
        let mut options = self.clone();
        // In front of the tables of another system, which must be there, those of unalike's own may be missing.
        let is_beside = opening.makes_tables && options.dialect != Dialect::Unalike;
        options.create_tables &= opening.may_begin || is_beside;
        options.only_looks = opening.only_looks;
        options.create_foreign &= opening.may_begin;
        options.creation = opening.creation(options.creation);
        options.limits = opening.limits;
        Ok(Arc::new(LazyMysql::new(options)))
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

    fn has_sub_keys(&self) -> bool {
        matches!(self.dialect, Dialect::Unalike | Dialect::SlowOrdered)
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

    async fn adopt(&self, _url: &StoreUrl, adoption: &Adoption) -> Result<Adopted, PlaceError> {
        let mut options = self.clone();
        options.limits = adoption.limits;
        options.assume_replication_ended = adoption.replication_ended;
        let adopted = match adoption.is_restored {
            true => MysqlStore::restored(options, adoption.lift).await,
            false => MysqlStore::adopt_server(options, adoption.lift).await,
        };
        let adopted = adopted.because(|| adoption.refusal().to_owned())?;
        let unalike_mysql::Adopted { tags, leases_from_ms, follows_itself, .. } = adopted;
        let kind = match self.dialect {
            Dialect::Unalike => LiftedTags::Own,
            _ => LiftedTags::Rows,
        };
        Ok(Adopted { tags, kind, leases_from_ms, follows_itself })
    }
}

/// A database that may have been down when the program started, with its address.
struct LazyMysql {
    options: MysqlOptions,
    store: Lazy<MysqlStore>,
}

impl LazyMysql {
    fn new(options: MysqlOptions) -> Self {
        let connected = options.clone();
        Self { options, store: Lazy::new(move || MysqlStore::connect(connected.clone())) }
    }
}

#[async_trait]
impl OpenStore for LazyMysql {
    async fn connect(&self) -> Result<(), StoreError> {
        self.store.opened().await.map(drop)
    }

    async fn leases(self: Arc<Self>) -> Result<Arc<dyn LeaseStore>, StoreError> {
        Ok(Arc::new(self.store.opened().await?.leases().await?))
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
        self.store.opened().await?.declare_batch_tag(tag, &batch_tag).await?;
        Ok(true)
    }

    async fn tinyid_tokens(&self) -> Result<Option<Vec<(String, String)>>, StoreError> {
        match self.options.dialect {
            Dialect::Tinyid => self.store.opened().await?.tinyid_tokens().await,
            // To a user of unalike's own tables it is nothing whether others are there.
            Dialect::Unalike => match self.store.opened().await?.tinyid_tokens().await {
                Err(StoreError::Refused { .. }) => Ok(None),
                tokens => tokens,
            },
            _ => Ok(None),
        }
    }
}

#[async_trait]
impl SegmentLayer for LazyMysql {
    fn below(&self) -> Option<&dyn SegmentStore> {
        Some(&self.store)
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        SegmentLayer::join_stripe(self.store.opened().await?, stripe).await
    }

    fn address(&self) -> Option<String> {
        Some(self.options.address())
    }
}
