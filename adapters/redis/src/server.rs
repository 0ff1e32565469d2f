//! The connection to one Redis server: opened when it is needed, checked before it is used, given up when an answer is
//! late; and the scripts that run there.
//!
//! Nothing is ever sent twice: neither the driver nor this module repeats a command whose answer was lost. The one
//! exception is a script that the server says it does not know, which has therefore not run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionInfo, RedisError, RedisResult, TlsCertificates};
use unalike_storage::StoreError;

use crate::error::{broke, connect_error, damaged, read_error, refusal, write_error};
use crate::{RedisOptions, Watermark};

/// The oldest server whose scripts can ask who they run on (`INFO` of two sections).
const VERSION_MIN: u64 = 7;

/// A script, known to the server by its hash.
pub(crate) type Script = LazyLock<redis::Script>;

/// A script of these parts, which may ask for the server's incarnation and its clock.
pub(crate) fn script(parts: &[&str]) -> redis::Script {
    redis::Script::new(&format!("{}\n{}", include_str!("scripts/server.lua"), parts.join("\n")))
}

/// Whether a request changes something: then an answer that is lost leaves its outcome open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Reads,
    Writes,
}

/// One server; clones share its connection.
#[derive(Clone, Debug)]
pub(crate) struct Server(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    client: Client,
    address: String,
    connect_timeout: Duration,
    request_timeout: Duration,
    /// Without a durable store the server itself must not lose what it said.
    must_be_durable: bool,
    open: RwLock<Option<Open>>,
    /// How many connections were opened.
    opened: AtomicU64,
    /// One connection is opened at a time.
    opening: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug)]
struct Open {
    connection: MultiplexedConnection,
    /// Tells connections apart: the one that broke may have been replaced already.
    number: u64,
}

impl Server {
    /// Connects and checks the server.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when it does not answer, [`StoreError::Refused`] when it cannot be used.
    pub(crate) async fn connect(options: &RedisOptions, watermark: &Watermark) -> Result<Self, StoreError> {
        let inner = Inner {
            client: client(options)?,
            address: options.address(),
            connect_timeout: options.connect_timeout,
            request_timeout: options.request_timeout,
            must_be_durable: matches!(watermark, Watermark::RedisAlone) && !options.assume_durable,
            open: RwLock::new(None),
            opened: AtomicU64::new(0),
            opening: tokio::sync::Mutex::new(()),
        };
        let server = Self(Arc::new(inner));
        server.connection().await?;
        Ok(server)
    }

    /// Host, port and database, for messages.
    pub(crate) fn address(&self) -> &str {
        &self.0.address
    }

    /// Runs a command.
    ///
    /// # Errors
    /// What `access` makes of the driver's error, saying what was being done.
    pub(crate) async fn command<T: redis::FromRedisValue>(
        &self,
        doing: &str,
        access: Access,
        command: &Cmd,
    ) -> Result<T, StoreError> {
        let mut open = self.connection().await?;
        let answer = command.query_async(&mut open.connection).await;
        self.judged(doing, access, &open, answer)
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
        let mut open = self.connection().await?;
        let mut invocation = script.key(key);
        for argument in arguments {
            invocation.arg(*argument);
        }
        let answer = invocation.invoke_async(&mut open.connection).await;
        let fields = self.judged(doing, access, &open, answer)?;
        Ok(Reply { at: format!("the key {key} on {}", self.address()), fields, next: 0 })
    }

    /// Proves that the server takes writes: a key below `prefix` that is gone at once.
    ///
    /// # Errors
    /// As [`Server::command`]; [`StoreError::Corrupt`] when something else answers.
    pub(crate) async fn prove_writable(&self, prefix: &str) -> Result<(), StoreError> {
        let mut command = redis::cmd("SET");
        command.arg(format!("{prefix}:check")).arg(1).arg("PX").arg(1);
        let done: String = self.command("trying to write", Access::Reads, &command).await?;
        if done == "OK" { Ok(()) } else { Err(self.damaged(&format!("a write was answered {done:?}"))) }
    }

    /// Closes the connection; the next request opens another one.
    pub(crate) fn close(&self) {
        *self.0.open.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Something in this server that should not be there.
    pub(crate) fn damaged(&self, what: &str) -> StoreError {
        damaged(self.address(), what)
    }

    fn judged<T>(&self, doing: &str, access: Access, open: &Open, answer: RedisResult<T>) -> Result<T, StoreError> {
        answer.map_err(|error| {
            if broke(&error) {
                self.give_up(open.number);
            }
            match access {
                Access::Reads => read_error(self.address(), doing, error),
                Access::Writes => write_error(self.address(), doing, error),
            }
        })
    }

    fn give_up(&self, number: u64) {
        let mut open = self.0.open.write().unwrap_or_else(PoisonError::into_inner);
        if open.as_ref().is_some_and(|open| open.number == number) {
            *open = None;
        }
    }

    fn current(&self) -> Option<Open> {
        self.0.open.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn connection(&self) -> Result<Open, StoreError> {
        if let Some(open) = self.current() {
            return Ok(open);
        }
        let _opening = self.0.opening.lock().await;
        if let Some(open) = self.current() {
            return Ok(open);
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.0.connect_timeout))
            .set_response_timeout(Some(self.0.request_timeout));
        let mut connection = self
            .0
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|error| connect_error(self.address(), error))?;
        self.check(&mut connection).await?;
        let open = Open { connection, number: self.0.opened.fetch_add(1, Ordering::Relaxed) };
        *self.0.open.write().unwrap_or_else(PoisonError::into_inner) = Some(open.clone());
        Ok(open)
    }

    /// Checks that the server is one that can be used.
    async fn check(&self, connection: &mut MultiplexedConnection) -> Result<(), StoreError> {
        let at = self.address();
        let failed = |error: RedisError| read_error(at, "asking the server what it is", error);
        let info: String = redis::cmd("INFO").arg("server").query_async(connection).await.map_err(failed)?;
        let of = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        match of("redis_mode") {
            Some("standalone") | None => {}
            Some("cluster") => {
                return Err(refusal(format!(
                    "{at} is a node of a Redis Cluster, which is not supported: use one server with its replicas"
                )));
            }
            Some("sentinel") => {
                return Err(refusal(format!(
                    "{at} is a Sentinel, which keeps no data: give the address that leads to the master"
                )));
            }
            Some(other) => return Err(refusal(format!("{at} runs in the mode {other:?}, which is not supported"))),
        }
        let version = of("redis_version").unwrap_or("of unknown version");
        let major = version.split('.').next().and_then(|major| major.parse::<u64>().ok());
        if major.is_none_or(|major| major < VERSION_MIN) {
            return Err(refusal(format!("{at} is Redis {version}, it must be {VERSION_MIN} or newer")));
        }
        if self.0.must_be_durable {
            self.check_durability(connection).await?;
        }
        Ok(())
    }

    /// Checks that the server writes each change to its disk before it answers, and throws nothing away.
    async fn check_durability(&self, connection: &mut MultiplexedConnection) -> Result<(), StoreError> {
        let at = self.address();
        let mut settings = Vec::new();
        for name in ["appendonly", "appendfsync", "maxmemory-policy"] {
            let answer: RedisResult<Vec<String>> =
                redis::cmd("CONFIG").arg("GET").arg(name).query_async(connection).await;
            let answer = answer.map_err(|error| {
                let doing = "asking the server whether it is durable (durability=assumed does not ask)";
                read_error(at, doing, error)
            })?;
            settings.push((name, answer.into_iter().nth(1).unwrap_or_default()));
        }
        for (name, value) in settings {
            let is_right = match name {
                "appendonly" => value == "yes",
                "appendfsync" => value == "always",
                _ => value == "noeviction" || value.starts_with("volatile-"),
            };
            if !is_right {
                return Err(refusal(format!(
                    "{at} has {name} {value:?}, and without a durable store the numbers are only as safe as Redis is: it needs \
                     `appendonly yes`, `appendfsync always` and `maxmemory-policy noeviction`, or a durable store beside it"
                )));
            }
        }
        Ok(())
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
        text.parse().map_err(|_| self.damaged(&format!("{text:?} is no number")))
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
        text.parse().map(Some).map_err(|_| self.damaged(&format!("{text:?} is no number")))
    }

    /// Something in the answer that should not be there.
    pub(crate) fn damaged(&self, what: &str) -> StoreError {
        damaged(&self.at, what)
    }
}

fn client(options: &RedisOptions) -> Result<Client, StoreError> {
    let at = options.address();
    let info: ConnectionInfo = options.connection_info().clone();
    let made = match options.ssl_ca() {
        None => Client::open(info),
        Some(path) => {
            let root_cert = std::fs::read(path).map_err(|error| {
                StoreError::refused(format!("the certificates in {} cannot be read", path.display()), error)
            })?;
            Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert: Some(root_cert) })
        }
    };
    made.map_err(|error| StoreError::refused(format!("the connection to {at} is configured wrongly"), error))
}
