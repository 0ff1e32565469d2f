//! The server, or the servers that keep one set of keys: one that stands alone, the master that Sentinels name, or a
//! Cluster; and the scripts that run there.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use redis::{Cmd, FromRedisValue, RedisError, Value};
use tokio::task::JoinSet;
use unalike_storage::StoreError;

use crate::RedisOptions;
use crate::cluster::Cluster;
use crate::error::{damaged, read_error, write_error};
use crate::node::{Demands, Failure, Mode, Node, Request};
use crate::place::{Clients, Place};
use crate::sentinel::Sentinels;

/// A script, known to the server by its hash.
pub(crate) type Script = LazyLock<redis::Script>;

/// A script of these parts, which may ask for the server's incarnation and its clock.
pub(crate) fn script(parts: &[&str]) -> redis::Script {
    redis::Script::new(&format!("{}\n{}", include_str!("scripts/server.lua"), parts.join("\n")))
}

/// Keys of a Cluster that are written to in order to see whether any node takes writes.
const CHECKS: u32 = 8;

/// Whether a request changes something: then an answer that is lost leaves its outcome open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Reads,
    Writes,
}

/// Which of several servers a command is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum To<'t> {
    /// The one that has this key.
    Key(&'t str),
    /// This one of [`Server::masters`].
    Master(&'t Master),
}

/// One of the servers that the keys are spread over.
#[derive(Clone, Debug)]
pub(crate) struct Master(Option<Place>);

/// What keeps one set of keys.
#[derive(Clone, Debug)]
pub(crate) enum Topology {
    /// The server of the URL.
    One,
    /// The master of this name that Sentinels at these places name.
    Sentinels { places: Vec<Place>, master: String, share_password: bool },
    /// The masters of a Cluster that these nodes belong to.
    Cluster { places: Vec<Place> },
}

/// Clones share their connections.
#[derive(Clone)]
pub(crate) struct Server(Arc<Inner>);

struct Inner {
    address: String,
    servers: Servers,
}

enum Servers {
    One(Node),
    Cluster(Cluster),
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither user nor password.
        f.debug_struct("Server").field("address", &self.0.address).finish_non_exhaustive()
    }
}

impl Server {
    /// Connects and checks the server; whether it is durable, too, if it must be.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when it does not answer, [`StoreError::Refused`] when it cannot be used.
    pub(crate) async fn connect(options: &RedisOptions, must_be_durable: bool) -> Result<Self, StoreError> {
        let (address, clients) = (options.address(), Clients::new(options)?);
        let demands = Demands {
            mode: Mode::Standalone,
            database: options.connection_info().redis_settings().db(),
            connect_timeout: options.connect_timeout,
            request_timeout: options.request_timeout,
            must_be_durable,
        };
        let servers = match options.topology() {
            Topology::One => Servers::One(Node::at(&clients.place(), address.clone(), &clients, demands)?),
            Topology::Sentinels { places, master, share_password } => {
                let asking = if *share_password { clients.clone() } else { clients.anonymous() };
                let sentinels = Sentinels::new(places, master, &asking)?;
                Servers::One(Node::master_of(sentinels, address.clone(), clients, demands))
            }
            Topology::Cluster { places } => {
                let demands = Demands { mode: Mode::Cluster, ..demands };
                Servers::Cluster(Cluster::new(places.clone(), address.clone(), clients, demands))
            }
        };
        match &servers {
            Servers::One(node) => drop(node.connection().await?),
            Servers::Cluster(cluster) => drop(cluster.masters().await?),
        }
        Ok(Self(Arc::new(Inner { address, servers })))
    }

    /// Hosts, ports and what is used there, for messages.
    pub(crate) fn address(&self) -> &str {
        &self.0.address
    }

    /// Whether the keys are spread over several servers: a command and a script have one key then.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.0.servers, Servers::Cluster(_))
    }

    /// All servers that have keys.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when no node of a Cluster tells.
    pub(crate) async fn masters(&self) -> Result<Vec<Master>, StoreError> {
        Ok(match &self.0.servers {
            Servers::One(_) => vec![Master(None)],
            Servers::Cluster(cluster) => {
                cluster.masters().await?.into_iter().map(|place| Master(Some(place))).collect()
            }
        })
    }

    /// Runs a command.
    ///
    /// # Errors
    /// What `access` makes of the driver's error, saying what was being done.
    pub(crate) async fn command<T: FromRedisValue>(
        &self,
        doing: &str,
        access: Access,
        to: To<'_>,
        command: &Cmd,
    ) -> Result<T, StoreError> {
        let answer = self.send(to, Request { command, script: None }).await;
        self.judged(doing, access, answer)
    }

    /// Runs a script on a key.
    ///
    /// # Errors
    /// As [`Server::command`].
    pub(crate) async fn script(
        &self,
        doing: &str,
        access: Access,
        script: &Script,
        key: &str,
        arguments: &[&str],
    ) -> Result<Reply, StoreError> {
        self.script_beside(doing, access, script, (key, None), arguments).await
    }

    /// The same for a script that looks at a second key. In a Cluster both are one.
    ///
    /// # Errors
    /// As [`Server::command`].
    pub(crate) async fn script_beside(
        &self,
        doing: &str,
        access: Access,
        script: &Script,
        (key, beside): (&str, Option<&str>),
        arguments: &[&str],
    ) -> Result<Reply, StoreError> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(script.get_hash()).arg(1 + usize::from(beside.is_some())).arg(key).arg(beside).arg(arguments);
        let answer = self.send(To::Key(key), Request { command: &command, script: Some(script) }).await;
        let fields = self.judged(doing, access, answer)?;
        Ok(Reply { at: format!("the key {key} on {}", self.address()), fields, next: 0 })
    }

    /// Proves that the server takes writes: a key below `prefix` that is gone at once. In a Cluster one node that does
    /// is enough: the tags of others are theirs to tell.
    ///
    /// # Errors
    /// As [`Server::command`]; [`StoreError::Corrupt`] when something else answers.
    pub(crate) async fn prove_writable(&self, prefix: &str) -> Result<(), StoreError> {
        let key = format!("{prefix}:check");
        if !self.is_cluster() {
            return self.write_to(key).await;
        }
        let mut tried = JoinSet::new();
        // Their slots lie far apart.
        for number in 0..CHECKS {
            let (server, key) = (self.clone(), format!("{key}:{number}"));
            tried.spawn(async move { server.write_to(key).await });
        }
        let mut failed = None;
        while let Some(written) = tried.join_next().await {
            match written {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => failed = Some(error),
                Err(error) => failed = Some(StoreError::unavailable("a check was broken off").with_source(error)),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn write_to(&self, key: String) -> Result<(), StoreError> {
        let command = redis::cmd("SET").arg(&key).arg(1).arg("PX").arg(1).to_owned();
        let done: String = self.command("trying to write", Access::Reads, To::Key(&key), &command).await?;
        if done == "OK" { Ok(()) } else { Err(self.damaged(&format!("a write was answered {done:?}"))) }
    }

    /// Closes the connections, when the requests that use them have ended; others fail from now on.
    pub(crate) async fn close(&self) {
        match &self.0.servers {
            Servers::One(node) => node.close().await,
            Servers::Cluster(cluster) => cluster.close().await,
        }
    }

    /// Something in this server that should not be there.
    pub(crate) fn damaged(&self, what: &str) -> StoreError {
        damaged(self.address(), what)
    }

    /// Refuses a child.
    pub(crate) fn check_process(&self) -> Result<(), StoreError> {
        match &self.0.servers {
            Servers::One(node) => node.check_process(),
            Servers::Cluster(cluster) => cluster.check_process(),
        }
    }

    async fn send(&self, to: To<'_>, request: Request<'_>) -> Result<Value, Failure> {
        match (&self.0.servers, to) {
            (Servers::One(node), _) => node.send(request, false).await,
            (Servers::Cluster(cluster), To::Key(key)) => cluster.send(key, request).await,
            (Servers::Cluster(cluster), To::Master(Master(Some(place)))) => cluster.send_to(place, request).await,
            (Servers::Cluster(_), To::Master(Master(None))) => {
                Err(Failure::Unsent(self.damaged("a node of a Cluster has no place")))
            }
        }
    }

    fn judged<T: FromRedisValue>(
        &self,
        doing: &str,
        access: Access,
        answer: Result<Value, Failure>,
    ) -> Result<T, StoreError> {
        let error = match answer {
            Ok(value) => match redis::from_redis_value(value) {
                Ok(read) => return Ok(read),
                Err(unread) => RedisError::from(unread),
            },
            Err(Failure::Unsent(error)) => return Err(error),
            Err(Failure::Done(error)) => {
                return Err(match access {
                    Access::Reads => error,
                    Access::Writes => {
                        let what = format!("{doing}, which was done, but may be lost again");
                        StoreError::outcome_unknown(what).with_source(error)
                    }
                });
            }
            Err(Failure::Answer(error)) => error,
        };
        Err(match access {
            Access::Reads => read_error(self.address(), doing, error),
            Access::Writes => write_error(self.address(), doing, error),
        })
    }
}

/// A script's answer, field by field.
#[derive(Debug)]
pub(crate) struct Reply {
    /// What was looked at, for messages.
    at: String,
    fields: Vec<Option<String>>,
    next: usize,
}

impl Reply {
    /// # Errors
    /// [`StoreError::Corrupt`] when there is none.
    pub(crate) fn text(&mut self) -> Result<String, StoreError> {
        let field = self.fields.get_mut(self.next).and_then(Option::take);
        self.next += 1;
        field.ok_or_else(|| self.damaged("a field is missing"))
    }

    /// # Errors
    /// [`StoreError::Corrupt`] when there is none.
    pub(crate) fn number(&mut self) -> Result<u64, StoreError> {
        let text = self.text()?;
        text.parse().map_err(|_| self.damaged(&format!("{text:?} is not a number")))
    }

    /// A number, or nothing where the field is empty.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when it is neither.
    pub(crate) fn number_or_none(&mut self) -> Result<Option<u64>, StoreError> {
        let text = self.text()?;
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| self.damaged(&format!("{text:?} is not a number")))
    }

    /// What is left of it, names with their values.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when a value is missing.
    pub(crate) fn pairs(&mut self) -> Result<BTreeMap<String, String>, StoreError> {
        let mut pairs = BTreeMap::new();
        while self.next < self.fields.len() {
            pairs.insert(self.text()?, self.text()?);
        }
        Ok(pairs)
    }

    /// Something in the answer that should not be there.
    pub(crate) fn damaged(&self, what: &str) -> StoreError {
        damaged(&self.at, what)
    }
}
