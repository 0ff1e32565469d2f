//! Opens any store of unalike by its URL: `sqlite://ids.sqlite`, `mysql://ids@db/ids`; `redis://cache/0` above a
//! [durable](Opening::durable) one.
//!
//! A [`StoreUrl`] names a [`Place`]; opened, it grants numbers, and leases workers. Each kind of store is a cargo
//! feature and a file of this crate, which depends on the adapter's.
//!
//! ```
//! # #[cfg(feature = "sqlite")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use unalike_stores::{Opening, StoreUrl};
//!
//! # let directory = tempfile::tempdir()?;
//! # let url = format!("sqlite://{}/ids.sqlite", directory.path().display());
//! // Such as "sqlite://ids.sqlite".
//! let store = StoreUrl::new(url).place()?.open(&Opening::default()).await?;
//! store.connect().await?;
//! let segment = store.allocate("order", 100, 0).await?;
//! assert_eq!((segment.start, segment.end), (1, 101));
//! let leases = store.leases().await?;
//! # drop(leases);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "sqlite"))]
//! # fn main() {}
//! ```
//!
//! A [`StoreSet`] is what a program uses together: one store or several, what backs a volatile one, and where workers
//! are leased.
//!
//! A new kind takes its file, its line in `BACKENDS`, and the feature of its crate in `Cargo.toml`. Nothing else
//! decides by a kind of store: others ask what [`Backend`], [`Place`] and [`OpenStore`] answer.

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

mod backend;
mod error;
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
mod set;
#[cfg(feature = "sqlite")]
mod sqlite;
mod url;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::path::PathBuf;
use std::sync::Arc;

pub use crate::backend::{
    Account, Adopted, Adoption, Backend, LiftedTags, OpenStore, Opening, Place, Rebound, SchemaStatements, Tables,
    UnorderedTag,
};
pub use crate::error::PlaceError;
pub use crate::set::{LeasePlace, LeaseSource, OpenSet, Opened, StoreSet, StoreUrls};
pub use crate::url::StoreUrl;

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
    pub fn place(&self) -> Result<Arc<dyn Place>, PlaceError> {
        let Some(scheme) = self.scheme() else {
            return Err(PlaceError::new(format!("the store {self:?} is not a URL: write {}", sequence_forms())));
        };
        let what = match self.backend() {
            Some(backend) if backend.has_sequences() => return backend.place(self),
            Some(backend) => format!(
                "{} keeps leases and no sequences: name {self:?} as the store of leases (--leases)",
                backend.title()
            ),
            None if matches!(scheme, "http" | "https") => {
                format!(
                    "the store {self:?} is an unalike server, a store for programs only: write {}",
                    sequence_forms()
                )
            }
            None => format!("the store's scheme {scheme:?} is unknown: write {}", sequence_forms()),
        };
        Err(PlaceError::new(what))
    }

    /// The store of leases that it names, with its password.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn lease_place(&self) -> Result<Arc<dyn Place>, PlaceError> {
        let what = match (self.backend(), self.scheme()) {
            (Some(backend), _) => return backend.place(self),
            (None, Some(scheme)) => format!("the scheme {scheme:?} is unknown: write {}, or none", lease_forms()),
            (None, None) => format!("{self:?} is not a URL: write {}, or none", lease_forms()),
        };
        Err(PlaceError::new(what))
    }

    /// Whether its store keeps leases and no sequences.
    pub fn keeps_only_leases(&self) -> bool {
        self.backend().is_some_and(|backend| !backend.has_sequences())
    }

    /// Whether it names a file of this machine.
    pub fn is_file(&self) -> bool {
        self.backend().is_some_and(|backend| backend.is_file())
    }

    /// The file that it names, if it names one.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn file(&self) -> Result<Option<PathBuf>, PlaceError> {
        Ok(if self.is_file() { self.place()?.file().map(ToOwned::to_owned) } else { None })
    }

    /// Whether its store may lose what it said, so that a durable one grants it what it hands out.
    pub fn is_volatile(&self) -> bool {
        self.backend().is_some_and(|backend| backend.is_volatile())
    }

    /// The tables of leases of its kind.
    pub fn lease_tables(&self) -> Option<Tables> {
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
    pub fn title(&self) -> &'static str {
        self.backend().map_or("another kind of store", |backend| backend.title())
    }

    /// Whether its server may have the tables or keys of this dialect.
    pub fn has_dialect(&self, dialect: &str) -> bool {
        self.backend().is_some_and(|backend| backend.dialects().contains(&dialect))
    }

    /// The same server and database with the tables or keys of another system, and with these parameters.
    pub fn with_dialect(&self, dialect: &str, parameters: &str) -> Self {
        let is_created = self.backend().is_some_and(|backend| backend.tables(dialect, None).is_some());
        self.of_dialect(dialect, parameters, is_created)
    }

    /// The same after it was said that nothing else uses it, for a dialect that has to know.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn stopped(self) -> Result<Self, PlaceError> {
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
pub fn sequence_forms() -> String {
    forms(|backend| backend.has_sequences())
}

/// The same of those that lose nothing.
pub fn durable_forms() -> String {
    forms(|backend| backend.has_sequences() && !backend.is_volatile())
}

/// What URLs of stores of leases look like.
pub fn lease_forms() -> String {
    forms(|_| true)
}

/// What URLs look like of the kinds of stores that may have the tables or keys of this dialect.
pub fn dialect_forms(dialect: &str) -> Vec<String> {
    let knows = |backend: &&&dyn Backend| backend.dialects().contains(&dialect);
    BACKENDS.iter().filter(knows).map(|backend| format!("{}?dialect={dialect}", backend.form())).collect()
}

/// The tables of a dialect: in the kind of the first of these stores that has it, or of the first kind that has.
///
/// # Errors
/// When no kind of store has such.
pub fn tables<'u>(dialect: &str, mut stores: impl Iterator<Item = &'u StoreUrl>) -> Result<Tables, PlaceError> {
    let with_tables = || BACKENDS.iter().filter_map(|backend| Some((backend, backend.lease_tables(None)?)));
    let of_stores = stores.find_map(|url| url.tables(dialect));
    of_stores.or_else(|| BACKENDS.iter().find_map(|backend| backend.tables(dialect, None))).ok_or_else(|| {
        let mut known: Vec<_> = Vec::new();
        for dialect in with_tables().flat_map(|(backend, _)| backend.dialects()) {
            if !known.contains(dialect) {
                known.push(*dialect);
            }
        }
        PlaceError::new(match known.split_last() {
            Some((last, before)) => {
                format!("the dialect {dialect:?} is unknown: it is one of {} and {last} (--dialect)", before.join(", "))
            }
            None => "this program was built without a store that has tables".to_owned(),
        })
    })
}

/// The tables of leases, beside those of the dialects: of the first kind that has some.
pub fn lease_tables() -> Option<Tables> {
    BACKENDS.iter().find_map(|backend| backend.lease_tables(None))
}

#[cfg(test)]
mod tests {
    use unalike_storage::LeaseLimits;

    use super::*;
    use crate::backend::{Adoption, Opening};

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
        let opening = Opening::default();
        let store = url.place().unwrap().open(&opening).await.unwrap();
        store.connect().await.unwrap();
        assert_eq!(store.allocate("order", 5, 0).await.unwrap().start, 1);
        assert!(store.leases().await.unwrap().namespaces().await.unwrap().is_empty());
        assert!(url.lease_place().unwrap().connect_leases(&opening).await.is_ok());
        assert!(
            url.place()
                .unwrap()
                .adopt(
                    &url,
                    &Adoption {
                        lift: 1,
                        limits: LeaseLimits::default(),
                        replication_ended: true,
                        is_restored: false,
                        is_alone: false
                    }
                )
                .await
                .is_err()
        );
    }
}
