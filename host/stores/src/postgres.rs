//! A database of PostgreSQL: `postgres://USER@HOST/DATABASE`.

use std::sync::Arc;

use async_trait::async_trait;
use unalike_postgres::{Dialect, PostgresLeases, PostgresOptions, PostgresStore};
use unalike_storage::{Lazy, LeaseStore, StoreError};

use crate::backend::{
    Account, Adopted, Adoption, Backend, LiftedTags, OpenStore, Opening, Place, SchemaStatements, Tables,
};
use crate::error::{Because as _, PlaceError};
use crate::url::StoreUrl;

pub(super) struct Postgres;

impl Backend for Postgres {
    fn title(&self) -> &'static str {
        "PostgreSQL"
    }

    fn form(&self) -> &'static str {
        "postgres://USER@HOST/DATABASE"
    }

    fn is_scheme(&self, scheme: &str) -> bool {
        matches!(scheme, "postgres" | "postgresql")
    }

    fn place(&self, url: &StoreUrl) -> Result<Arc<dyn Place>, PlaceError> {
        Ok(Arc::new(url.options(PostgresOptions::from_url, PostgresOptions::password)?))
    }

    fn dialects(&self) -> &'static [&'static str] {
        &["unalike", "sequence"]
    }

    fn tables(&self, dialect: &str, schema: Option<&str>) -> Option<Tables> {
        Dialect::named(dialect).map(|dialect| tables(dialect, schema))
    }

    fn lease_tables(&self, schema: Option<&str>) -> Option<Tables> {
        let (schema, privileges) = (schema.map(str::to_owned), PostgresLeases::privileges());
        Some(Tables { backend: &Postgres, schema, statements: PostgresLeases::ddl(), privileges })
    }

    fn schema(&self, schema: &str, user: &str) -> Option<SchemaStatements> {
        let name = quoted(schema);
        Some(SchemaStatements {
            before: vec![format!("CREATE SCHEMA IF NOT EXISTS {name}"), format!("SET search_path TO {name}")],
            privileges: format!("GRANT USAGE ON SCHEMA {name} TO {user}"),
        })
    }

    fn account(&self, user: &str) -> Account {
        let name = quoted(user);
        Account { creation: format!("CREATE ROLE {name} LOGIN PASSWORD '..'"), name }
    }
}

/// A name as statements have it: without quotes it would be folded to lower case.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn tables(dialect: Dialect, schema: Option<&str>) -> Tables {
    let (statements, privileges) = (dialect.ddl(), dialect.privileges(schema));
    Tables { backend: &Postgres, schema: schema.map(str::to_owned), statements, privileges }
}

#[async_trait]
impl Place for PostgresOptions {
    fn name(&self) -> Result<String, PlaceError> {
        let schema = self.schema.as_deref().unwrap_or_default();
        Ok(format!(
            "postgres {} {schema:?} {:?}",
            PostgresOptions::address(self),
            std::mem::discriminant(&self.dialect)
        ))
    }

    fn kind(&self) -> String {
        format!("postgres {:?}", std::mem::discriminant(&self.dialect))
    }

    fn address(&self) -> String {
        PostgresOptions::address(self)
    }

    async fn open(&self, opening: &Opening) -> Result<Arc<dyn OpenStore>, StoreError> {
        let mut options = self.clone();
        // In front of sequences, which must be there, the tables of unalike's own may be missing.
        let is_beside = opening.makes_tables && options.dialect != Dialect::Unalike;
        options.create_tables &= opening.may_begin || is_beside;
        options.only_looks = opening.only_looks;
        options.creation = opening.creation(options.creation);
        options.limits = opening.limits;
        let address = PostgresOptions::address(&options);
        Ok(Arc::new(Lazy::new(move || PostgresStore::connect(options.clone())).at(address)))
    }

    async fn connect_leases(&self, opening: &Opening) -> Result<Arc<dyn LeaseStore>, StoreError> {
        let mut options = self.clone();
        options.create_tables &= opening.may_begin;
        options.limits = opening.limits;
        Ok(Arc::new(PostgresLeases::connect(options).await?))
    }

    fn has_sub_keys(&self) -> bool {
        self.dialect == Dialect::Unalike
    }

    fn tables(&self) -> Option<Tables> {
        Some(tables(self.dialect, self.schema.as_deref()))
    }

    fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    fn has_lease_tables(&self) -> bool {
        true
    }

    async fn upgrade(&self) -> Result<(), StoreError> {
        PostgresStore::upgrade(self.clone()).await
    }

    async fn adopt(&self, _url: &StoreUrl, adoption: &Adoption) -> Result<Adopted, PlaceError> {
        // A server that was promoted applies nothing of another one any more.
        let mut options = self.clone();
        options.limits = adoption.limits;
        let adopted = match adoption.is_restored {
            true => PostgresStore::restored(options, adoption.lift).await,
            false => PostgresStore::adopt_server(options, adoption.lift).await,
        };
        let adopted = adopted.because(|| adoption.refusal().to_owned())?;
        let unalike_postgres::Adopted { tags, leases_from_ms, .. } = adopted;
        let kind = match self.dialect {
            Dialect::Sequence { .. } => LiftedTags::Sequences,
            _ => LiftedTags::Own,
        };
        Ok(Adopted { tags, kind, leases_from_ms, follows_itself: false })
    }
}

/// A database that may have been down when the program started.
#[async_trait]
impl OpenStore for Lazy<PostgresStore> {
    async fn connect(&self) -> Result<(), StoreError> {
        self.opened().await.map(drop)
    }

    async fn leases(self: Arc<Self>) -> Result<Arc<dyn LeaseStore>, StoreError> {
        Ok(Arc::new(self.opened().await?.leases().await?))
    }
}
