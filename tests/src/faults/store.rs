//! The store of all nodes: a real server that is killed and paused, and what leads to it.

use std::sync::Arc;

use anyhow::Context as _;
use tempfile::TempDir;

use crate::etcd::Etcd;
use crate::mariadb::MariaDb;
use crate::postgres::Postgres;
use crate::proxy::Proxy;
use crate::redis::{Persistence, Redis};

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// A file of all nodes.
    Sqlite,
    /// MariaDB.
    MariaDb,
    /// PostgreSQL.
    Postgres,
    /// Redis that loses up to a second when it is killed, backed by a file.
    Redis,
    /// etcd.
    Etcd,
}

impl StoreKind {
    /// Each of them with its name.
    pub const ALL: [(&str, Self); 5] = [
        ("sqlite", Self::Sqlite),
        ("mariadb", Self::MariaDb),
        ("postgres", Self::Postgres),
        ("redis", Self::Redis),
        ("etcd", Self::Etcd),
    ];
}

/// The store, with a directory for the files of the nodes.
pub(super) struct Store {
    directory: Arc<TempDir>,
    server: Server,
    url: String,
    port: Option<u16>,
}

enum Server {
    /// There is none: a file.
    None,
    MariaDb(MariaDb),
    Postgres(Postgres),
    Redis(Redis),
    Etcd(Etcd),
}

impl Store {
    pub(super) fn start(kind: StoreKind) -> anyhow::Result<Self> {
        let directory = Arc::new(TempDir::new()?);
        let (server, url, port) = match kind {
            StoreKind::Sqlite => (Server::None, "sqlite://ids.sqlite".to_owned(), None),
            StoreKind::MariaDb => {
                let server = MariaDb::start()?;
                let (url, port) = (server.database()?, server.port());
                (Server::MariaDb(server), url, Some(port))
            }
            StoreKind::Postgres => {
                let server = Postgres::start()?;
                let (url, port) = (server.database()?, server.port());
                (Server::Postgres(server), url, Some(port))
            }
            StoreKind::Redis => {
                let server = Redis::start(Persistence::AofEverySecond)?;
                let (url, port) = (server.url(0, ""), server.port());
                (Server::Redis(server), url, Some(port))
            }
            StoreKind::Etcd => {
                let server = Etcd::start()?;
                let (url, port) = (server.url(), server.ports().first().copied());
                (Server::Etcd(server), url, port)
            }
        };
        Ok(Self { directory, server, url, port })
    }

    /// Where the nodes keep their files.
    pub(super) fn directory(&self) -> &Arc<TempDir> {
        &self.directory
    }

    /// A way to it of a node's own, where there is a network at all; and the flags of a node that goes by it.
    pub(super) fn way(&self) -> anyhow::Result<(Option<Proxy>, Vec<String>)> {
        let proxy = self.port.map(Proxy::start).transpose()?;
        let url = proxy.as_ref().map_or_else(|| self.url.clone(), |proxy| proxy.url(&self.url));
        let mut flags = vec!["--store".to_owned(), url];
        if matches!(self.server, Server::Redis(_)) {
            flags.extend(["--backing".to_owned(), "sqlite://backing.sqlite".to_owned()]);
        }
        Ok((proxy, flags))
    }

    /// Whether there is a server that can be killed.
    pub(super) fn is_server(&self) -> bool {
        self.port.is_some()
    }

    /// Kills it with SIGKILL and starts it again.
    pub(super) fn restart(&mut self) -> anyhow::Result<()> {
        match &mut self.server {
            Server::None => Ok(()),
            Server::MariaDb(server) => server.restart(),
            Server::Postgres(server) => server.restart(),
            Server::Redis(server) => server.restart(),
            Server::Etcd(server) => server.restart(),
        }
        .context("the store does not start again")
    }

    /// Stops it where it is.
    pub(super) fn pause(&self) -> anyhow::Result<()> {
        match &self.server {
            Server::None => Ok(()),
            Server::MariaDb(server) => server.pause(),
            Server::Postgres(server) => server.pause(),
            Server::Redis(server) => server.pause(),
            Server::Etcd(server) => server.pause(0),
        }
    }

    /// Lets it go on.
    pub(super) fn resume(&self) -> anyhow::Result<()> {
        match &self.server {
            Server::None => Ok(()),
            Server::MariaDb(server) => server.resume(),
            Server::Postgres(server) => server.resume(),
            Server::Redis(server) => server.resume(),
            Server::Etcd(server) => server.resume(0),
        }
    }
}
