//! The kinds of stores: a file of this folder each, registered here.
//!
//! A new one takes its file, its line in [`BACKENDS`], and the feature of its crate in `Cargo.toml`. Nothing else in
//! the server decides by a kind of store: configuration, service and commands ask what [`Backend`], [`Place`] and
//! [`OpenStore`] answer. Help texts and a few messages name kinds; the server's page lists where.
//!
//! [`OpenStore`]: backend::OpenStore

#![cfg_attr(
    not(all(
        feature = "sqlite",
        feature = "mysql",
        feature = "postgres",
        feature = "redis",
        feature = "etcd",
        feature = "zookeeper"
    )),
    allow(dead_code, reason = "what serves a kind of store that is left out")
)]

pub(crate) mod backend;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(test)]
mod memory;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;
pub(crate) mod url;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};

use crate::stores::backend::{Backend, Place, Tables};
use crate::stores::url::StoreUrl;

/// All kinds, in the order in which messages name them.
static BACKENDS: &[&dyn Backend] = &[
    #[cfg(feature = "sqlite")]
    &sqlite::Sqlite,
    #[cfg(feature = "mysql")]
    &mysql::Mysql,
    #[cfg(feature = "postgres")]
    &postgres::Postgres,
    #[cfg(feature = "redis")]
    &redis::Redis,
    #[cfg(feature = "etcd")]
    &etcd::Etcd,
    #[cfg(feature = "zookeeper")]
    &zookeeper::Zookeeper,
    #[cfg(test)]
    &memory::Memory,
];

impl StoreUrl {
    /// What kind of store it names, if its scheme is known.
    fn backend(&self) -> Option<&'static dyn Backend> {
        let scheme = self.scheme()?;
        BACKENDS.iter().copied().find(|backend| backend.is_scheme(scheme))
    }

    /// The store of sequences that it names, with its password.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(crate) fn place(&self) -> anyhow::Result<Arc<dyn Place>> {
        let Some(scheme) = self.scheme() else {
            bail!("the store {self:?} is not a URL: write {}", forms(|backend| backend.has_sequences()));
        };
        match self.backend() {
            Some(backend) if backend.has_sequences() => backend.place(self),
            Some(backend) => {
                bail!(
                    "{} keeps leases and no sequences: name {self:?} as the store of leases (--leases)",
                    backend.title()
                )
            }
            None if matches!(scheme, "http" | "https") => bail!(
                "the store {self:?} is an unalike server, a store for programs only: write {}",
                forms(|backend| backend.has_sequences())
            ),
            None => {
                bail!("the store's scheme {scheme:?} is unknown: write {}", forms(|backend| backend.has_sequences()))
            }
        }
    }

    /// The store of leases that it names, with its password.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(crate) fn lease_place(&self) -> anyhow::Result<Arc<dyn Place>> {
        match (self.backend(), self.scheme()) {
            (Some(backend), _) => backend.place(self),
            (None, Some(scheme)) => {
                bail!("the scheme {scheme:?} is unknown: write {}, or none", lease_forms())
            }
            (None, None) => bail!("{self:?} is not a URL: write {}, or none", lease_forms()),
        }
    }

    /// Whether it names a file of this machine.
    pub(crate) fn is_file(&self) -> bool {
        self.backend().is_some_and(|backend| backend.is_file())
    }

    /// The file that it names, if it names one.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(crate) fn file(&self) -> anyhow::Result<Option<PathBuf>> {
        Ok(if self.is_file() { self.place()?.file().map(ToOwned::to_owned) } else { None })
    }

    /// Whether its store may lose what it said, so that a durable one grants it what it hands out.
    pub(crate) fn is_volatile(&self) -> bool {
        self.backend().is_some_and(|backend| backend.is_volatile())
    }

    /// The tables of leases of its kind.
    pub(crate) fn lease_tables(&self) -> Option<Tables> {
        self.backend().and_then(|backend| backend.lease_tables(self.schema().as_deref()))
    }

    /// The tables of a dialect, where its server may have them.
    fn tables(&self, dialect: &str) -> Option<Tables> {
        self.backend().and_then(|backend| backend.tables(dialect, self.schema().as_deref()))
    }

    /// The schema of its database that it names.
    fn schema(&self) -> Option<String> {
        // A URL that cannot be read is refused elsewhere.
        self.lease_place().ok()?.schema().map(str::to_owned)
    }

    /// The name of its kind, for messages about one whose scheme is known.
    pub(crate) fn title(&self) -> &'static str {
        self.backend().map_or("another kind of store", |backend| backend.title())
    }

    /// Whether its server may have the tables or keys of this dialect.
    pub(crate) fn has_dialect(&self, dialect: &str) -> bool {
        self.backend().is_some_and(|backend| backend.dialects().contains(&dialect))
    }

    /// The same server and database with the tables or keys of another system, and with these parameters.
    pub(crate) fn with_dialect(&self, dialect: &str, parameters: &str) -> Self {
        let is_created = self.backend().is_some_and(|backend| backend.tables(dialect, None).is_some());
        self.of_dialect(dialect, parameters, is_created)
    }

    /// The same after it was said that nothing else uses it, for a dialect that has to know.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn stopped(self) -> anyhow::Result<Self> {
        Ok(if self.place()?.asks_whether_source_stopped() { self.and("source-stopped=true") } else { self })
    }
}

/// What URLs of stores look like, for messages: `sqlite://PATH, mysql://USER@HOST/DATABASE or redis://HOST/DATABASE`.
fn forms(is_meant: impl Fn(&dyn Backend) -> bool) -> String {
    let forms: Vec<_> =
        BACKENDS.iter().filter(|backend| is_meant(**backend)).map(|backend| backend.form().to_owned()).collect();
    match forms.as_slice() {
        [before @ .., last] if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => forms.concat(),
    }
}

/// What URLs of stores of sequences look like.
pub(crate) fn sequence_forms() -> String {
    forms(|backend| backend.has_sequences())
}

/// The same of those that lose nothing.
pub(crate) fn durable_forms() -> String {
    forms(|backend| backend.has_sequences() && !backend.is_volatile())
}

/// What URLs of stores of leases look like.
pub(crate) fn lease_forms() -> String {
    forms(|_| true)
}

/// What URLs look like of the kinds of stores that may have the tables or keys of this dialect.
pub(crate) fn dialect_forms(dialect: &str) -> Vec<String> {
    let knows = |backend: &&&dyn Backend| backend.dialects().contains(&dialect);
    BACKENDS.iter().filter(knows).map(|backend| format!("{}?dialect={dialect}", backend.form())).collect()
}

/// The tables of a dialect: in the kind of the first of these stores that has it, or of the first kind that has.
///
/// # Errors
/// When no kind of store has such.
pub(crate) fn tables<'u>(dialect: &str, mut stores: impl Iterator<Item = &'u StoreUrl>) -> anyhow::Result<Tables> {
    let with_tables = || BACKENDS.iter().filter_map(|backend| Some((backend, backend.lease_tables(None)?)));
    let of_stores = stores.find_map(|url| url.tables(dialect));
    of_stores.or_else(|| BACKENDS.iter().find_map(|backend| backend.tables(dialect, None))).with_context(|| {
        let mut known: Vec<_> = Vec::new();
        for dialect in with_tables().flat_map(|(backend, _)| backend.dialects()) {
            if !known.contains(dialect) {
                known.push(*dialect);
            }
        }
        match known.split_last() {
            Some((last, before)) => {
                format!("the dialect {dialect:?} is unknown: it is one of {} and {last} (--dialect)", before.join(", "))
            }
            None => "this program was built without a store that has tables".to_owned(),
        }
    })
}

/// The tables of leases, beside those of the dialects: of the first kind that has some.
pub(crate) fn lease_tables() -> Option<Tables> {
    BACKENDS.iter().find_map(|backend| backend.lease_tables(None))
}

#[cfg(test)]
mod tests {
    use unalike::storage::LeaseLimits;

    use super::*;
    use crate::stores::backend::{Adoption, Opening};

    #[test]
    fn each_kind_reads_its_own_urls_and_no_other_s() {
        for backend in BACKENDS {
            let form = backend.form();
            let scheme = form.split("://").next().unwrap();
            assert!(backend.is_scheme(scheme), "{form}");
            let others = BACKENDS.iter().filter(|other| other.is_scheme(scheme)).count();
            assert_eq!(others, 1, "{form} belongs to one kind");
            assert_eq!(StoreUrl::new(form).is_volatile(), backend.is_volatile());
            for dialect in backend.dialects() {
                let parameters = if *dialect == "id-generator" { "&keys=a:1" } else { "" };
                let url = StoreUrl::new(format!("{scheme}://ids@h/0?dialect={dialect}{parameters}"));
                assert!(url.place().is_ok(), "{url}");
                assert_eq!(backend.tables(dialect, None).is_some(), backend.lease_tables(None).is_some(), "{url}");
            }
        }
    }

    #[tokio::test]
    async fn a_store_is_added_by_one_file() {
        // `memory.rs`, which only the tests have.
        let url = StoreUrl::new("memory://");
        assert!(sequence_forms().ends_with(" or memory://"), "{}", sequence_forms());
        let opening = Opening {
            may_begin: true,
            makes_tables: true,
            tags_max: 10,
            on_first_use: None,
            durable: None,
            preheats: false,
            limits: LeaseLimits::default(),
        };
        let store = url.place().unwrap().open(&opening).await.unwrap();
        store.connect().await.unwrap();
        assert_eq!(store.allocate("order", 5, 0).await.unwrap().start, 1);
        assert!(store.leases().await.unwrap().namespaces().await.unwrap().is_empty());
        assert!(url.lease_place().unwrap().connect_leases(&opening).await.is_ok());
        assert!(
            url.place()
                .unwrap()
                .adopt(&url, &Adoption { lift: 1, limits: opening.limits, replication_ended: true, is_restored: false })
                .await
                .is_err()
        );
    }
}
