//! What all tests of a run share, because it takes a second or more to make: servers, on which each test has a database
//! or a prefix of its own, and empty data directories, of which each server of a test has a copy.
//!
//! The program `shared` makes them before the first test (`.config/nextest.toml` says for which tests), and each is
//! found by a variable in the environment.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, OnceLock};

use anyhow::{Context, ensure};
use tempfile::TempDir;

/// What is shared, each by its name in the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// A running MariaDB: `PORT DIRECTORY`.
    MariaDb,
    /// An empty data directory of MariaDB.
    MariaDbData,
    /// A running PostgreSQL: `PORT DIRECTORY`.
    Postgres,
    /// An empty data directory of PostgreSQL.
    PostgresData,
    /// The folder of the PostgreSQL programs that are not the system's.
    PostgresPrograms,
    /// A running etcd: `PORT DIRECTORY`.
    Etcd,
    /// A running ZooKeeper: `PORT DIRECTORY`.
    Zookeeper,
    /// The packages for Node and Python, built.
    Packages,
}

impl Shared {
    /// The variable that says where it is.
    #[must_use]
    pub fn variable(self) -> &'static str {
        match self {
            Self::MariaDb => "TESTED_MARIADB",
            Self::MariaDbData => "TESTED_MARIADB_DATA",
            Self::Postgres => "TESTED_POSTGRES",
            Self::PostgresData => "TESTED_POSTGRES_DATA",
            Self::PostgresPrograms => "TESTED_POSTGRES_PROGRAMS",
            Self::Etcd => "TESTED_ETCD",
            Self::Zookeeper => "TESTED_ZOOKEEPER",
            Self::Packages => "TESTED_PACKAGES",
        }
    }

    /// What the variable says, where this run has it.
    #[must_use]
    pub fn value(self) -> Option<String> {
        std::env::var(self.variable()).ok()
    }

    /// The port and the directory of a running server.
    ///
    /// # Errors
    /// When this run has none.
    pub(crate) fn server(self) -> anyhow::Result<(u16, Directory)> {
        let variable = self.variable();
        let value = self.value().with_context(|| {
            format!(
                "{variable} is not set: run the test by tests/run, and name its program in .config/nextest.toml, where it \
                 says who uses this server"
            )
        })?;
        let (port, directory) = value.split_once(' ').with_context(|| format!("{variable} is {value:?}"))?;
        let directory = PathBuf::from(directory);
        ensure!(directory.is_dir(), "{variable} names {}, which is not there", directory.display());
        Ok((port.parse().with_context(|| format!("{variable} is {value:?}"))?, Directory::Shared(directory)))
    }

    /// The empty data directory of the run, or one that this program makes, once, and removes when it ends.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn data(self, make: fn() -> anyhow::Result<TempDir>) -> anyhow::Result<PathBuf> {
        static MADE: Mutex<Vec<(Shared, TempDir)>> = Mutex::new(Vec::new());
        static REGISTERED: Once = Once::new();
        extern "C" fn remove() {
            if let Ok(mut made) = MADE.try_lock() {
                made.clear();
            }
        }
        if let Some(directory) = self.value() {
            return Ok(directory.into());
        }
        // Statics are never dropped.
        #[expect(unsafe_code, reason = "the standard library has no handlers for the end of a program")]
        // SAFETY: the handler is a function of this program, and uses nothing that ends before it runs.
        REGISTERED.call_once(|| unsafe {
            libc::atexit(remove);
        });
        let mut made = MADE.lock().unwrap();
        if let Some((_, directory)) = made.iter().find(|(shared, _)| *shared == self) {
            return Ok(directory.path().to_owned());
        }
        let directory = make()?;
        let path = directory.path().to_owned();
        made.push((self, directory));
        Ok(path)
    }
}

/// What was found before, or is found now.
pub(crate) fn once<T>(found: &OnceLock<T>, find: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<&T> {
    if let Some(value) = found.get() {
        return Ok(value);
    }
    let value = find()?;
    Ok(found.get_or_init(|| value))
}

/// A server's directory.
#[derive(Debug)]
pub(crate) enum Directory {
    /// It is removed with its server.
    Own(TempDir),
    /// It is left to whoever started the server.
    Shared(PathBuf),
}

impl Directory {
    /// A new one.
    pub(crate) fn new() -> std::io::Result<Self> {
        TempDir::new().map(Self::Own)
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Own(directory) => directory.path(),
            Self::Shared(directory) => directory,
        }
    }
}

/// A name that no other test has on a shared server: `test_5f0c2a7be91d`.
pub(crate) fn unique_name() -> String {
    format!("test_{:012x}", fastrand::u64(..1 << 48))
}
