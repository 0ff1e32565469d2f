//! The connection to one Redis server: opened when it is needed, checked before it is used, given up when an answer is
//! late; and the scripts that run there.
//!
//! Nothing is ever sent twice: neither the driver nor this module repeats a command whose answer was lost. The one
//! exception is a script that the server says it does not know, which has therefore not run.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, LazyLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use redis::aio::{MultiplexedConnection, SendError};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisError, RedisResult,
    ServerErrorKind, TlsCertificates,
};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::sync::watch;
use tokio::time::timeout;
use unalike_storage::{Process, StoreError};

use crate::RedisOptions;
use crate::error::{CLUSTER, broke, connect_error, damaged, read_error, write_error};

/// The oldest server whose scripts can ask who they run on (`INFO` of two sections).
const VERSION_MIN: u64 = 7;

/// A connection that nobody uses is asked for a sign of life after this long, so that nothing between forgets it, and
/// one that is dead is found out before it is needed.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// A sign of life that does not come is asked for again after this long.
const KEEPALIVE_AGAIN: Duration = Duration::from_secs(5);

/// A server that forgets a script again and again is told it so many times for one request.
const TELLS_MAX: u32 = 10;

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
#[derive(Clone)]
pub(crate) struct Server(Arc<Inner>);

struct Inner {
    client: Client,
    address: String,
    database: i64,
    connect_timeout: Duration,
    request_timeout: Duration,
    /// Without a durable store the server itself must not lose what it said.
    must_be_durable: bool,
    /// Whose connection it is. A child would share its socket, and has not the task that carries the answers.
    process: Process,
    state: RwLock<State>,
    /// One connection is opened at a time.
    opening: Arc<tokio::sync::Mutex<()>>,
}

enum State {
    /// The next request opens a connection.
    Idle,
    Open(Open),
    /// For good.
    Closed,
}

/// A connection; clones share it.
#[derive(Clone)]
struct Open {
    connection: MultiplexedConnection,
    /// Says so when the server closed it; the sender goes with the socket.
    lost: watch::Receiver<bool>,
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
        let inner = Inner {
            client: client(options)?,
            address: options.address(),
            database: options.connection_info().redis_settings().db(),
            connect_timeout: options.connect_timeout,
            request_timeout: options.request_timeout,
            must_be_durable,
            process: Process::current(),
            state: RwLock::new(State::Idle),
            opening: Arc::default(),
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
        self.script_beside(doing, access, script, (key, None), arguments).await
    }

    /// The same for a script that looks at a second key.
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
        let mut open = self.connection().await?;
        let mut invocation = script.key(key);
        if let Some(beside) = beside {
            invocation.key(beside);
        }
        for argument in arguments {
            invocation.arg(*argument);
        }
        let mut answer = invocation.invoke_async(&mut open.connection).await;
        // It was forgotten again between being told and being run.
        for _ in 1..TELLS_MAX {
            match &answer {
                Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                    answer = invocation.invoke_async(&mut open.connection).await;
                }
                _ => break,
            }
        }
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

    /// Closes the connection, when the requests that use it have ended; others fail from now on.
    pub(crate) async fn close(&self) {
        if !self.0.process.is_current() {
            return;
        }
        let state = std::mem::replace(&mut *self.write(), State::Closed);
        let State::Open(Open { connection, mut lost }) = state else { return };
        drop(connection);
        // An error is the end of the sender, and with it of the socket.
        while lost.changed().await.is_ok() {}
    }

    /// Something in this server that should not be there.
    pub(crate) fn damaged(&self, what: &str) -> StoreError {
        damaged(self.address(), what)
    }

    fn judged<T>(&self, doing: &str, access: Access, open: &Open, answer: RedisResult<T>) -> Result<T, StoreError> {
        answer.map_err(|error| {
            if broke(&error) {
                self.give_up(open);
            }
            match access {
                Access::Reads => read_error(self.address(), doing, error),
                Access::Writes => write_error(self.address(), doing, error),
            }
        })
    }

    /// Another one may have taken its place already.
    fn give_up(&self, broken: &Open) {
        let mut state = self.write();
        if matches!(&*state, State::Open(open) if open.lost.same_channel(&broken.lost)) {
            *state = State::Idle;
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.0.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.0.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection, if there is one and it was not lost meanwhile.
    fn current(&self) -> Result<Option<Open>, StoreError> {
        match &*self.read() {
            State::Open(open) if !*open.lost.borrow() => Ok(Some(open.clone())),
            State::Open(_) | State::Idle => Ok(None),
            State::Closed => Err(self.closed()),
        }
    }

    fn closed(&self) -> StoreError {
        StoreError::unavailable(format!("{}: the store was closed", self.address()))
    }

    /// Refuses a child.
    pub(crate) fn check_process(&self) -> Result<(), StoreError> {
        self.0.process.check(&format!("the store at {}", self.address()))
    }

    async fn connection(&self) -> Result<Open, StoreError> {
        self.check_process()?;
        if let Some(open) = self.current()? {
            return Ok(open);
        }
        // Whoever waits for longer than an attempt may take would otherwise wait for all who came before.
        let turn = timeout(self.0.connect_timeout, Arc::clone(&self.0.opening).lock_owned()).await;
        let Ok(turn) = turn else { return Err(self.silent()) };
        if let Some(open) = self.current()? {
            return Ok(open);
        }
        // A task of its own: of many requests with little patience none would otherwise get it done.
        let server = self.clone();
        let opening = tokio::spawn(async move {
            let _turn = turn;
            server.open().await
        });
        let failed =
            |error| StoreError::unavailable(format!("{}: no connection was opened", self.address())).with_source(error);
        opening.await.map_err(failed)?
    }

    /// Opens a connection and checks it, all within the time for that.
    async fn open(&self) -> Result<Open, StoreError> {
        let (ended, lost) = watch::channel(false);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(Some(self.0.request_timeout))
            .set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    ended.send_replace(true);
                }
                Ok::<(), SendError>(())
            });
        let connecting = async {
            let opened = self.0.client.get_multiplexed_async_connection_with_config(&config).await;
            let mut connection = opened.map_err(|error| connect_error(self.address(), error))?;
            self.check(&mut connection).await?;
            Ok(connection)
        };
        let connected = timeout(self.0.connect_timeout, connecting).await;
        let open = Open { connection: connected.map_err(|_| self.silent())??, lost };
        let mut state = self.write();
        if matches!(&*state, State::Closed) {
            return Err(self.closed());
        }
        *state = State::Open(open.clone());
        Ok(open)
    }

    fn silent(&self) -> StoreError {
        let (at, limit) = (self.address(), self.0.connect_timeout.as_millis());
        StoreError::unavailable(format!(
            "no connection to {at} within {limit} ms: is it a Redis server, and is rediss:// or redis:// right?"
        ))
    }

    /// Checks that the server is one that can be used.
    async fn check(&self, connection: &mut MultiplexedConnection) -> Result<(), StoreError> {
        let at = self.address();
        let failed = |error: RedisError| read_error(at, "asking the server what it is", error);
        let info: String = redis::cmd("INFO").arg("server").query_async(connection).await.map_err(failed)?;
        let of = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        // Valkey calls it so.
        match of("redis_mode").or_else(|| of("server_mode")) {
            Some("standalone") => {}
            // It may be anything: a node of a Cluster, or something between that answers for several.
            None => {
                return Err(StoreError::refused(format!(
                    "{at}: its answer to INFO names no redis_mode, so it may be a Cluster or a proxy before several servers: give the \
                     address of one server that stands alone"
                )));
            }
            Some("cluster") => return Err(StoreError::refused(format!("{at}: {CLUSTER}"))),
            Some("sentinel") => {
                return Err(StoreError::refused(format!(
                    "{at} is a Sentinel, which keeps no data: give the address that leads to the master"
                )));
            }
            Some(other) => {
                return Err(StoreError::refused(format!("{at} runs in the mode {other:?}, which is not supported")));
            }
        }
        let version = of("redis_version").unwrap_or("of unknown version");
        let major = version.split('.').next().and_then(|major| major.parse::<u64>().ok());
        if major.is_none_or(|major| major < VERSION_MIN) {
            return Err(StoreError::refused(format!("{at} is Redis {version}, it must be {VERSION_MIN} or newer")));
        }
        if self.0.must_be_durable {
            self.check_durability(connection).await?;
        }
        if self.0.database != 0 {
            let select = redis::cmd("SELECT").arg(self.0.database).exec_async(connection).await;
            select.map_err(|error| read_error(at, "choosing the database", error))?;
        }
        Ok(())
    }

    /// Checks that the server writes each change to its disk before it answers, and throws nothing away.
    async fn check_durability(&self, connection: &mut MultiplexedConnection) -> Result<(), StoreError> {
        let at = self.address();
        let mut command = redis::cmd("CONFIG");
        command.arg("GET").arg(&DURABLE.map(|(name, ..)| name));
        let answer: RedisResult<HashMap<String, String>> = command.query_async(connection).await;
        let settings = answer.map_err(|error| {
            let doing = "asking the server whether it is durable (+config|get; durability=assumed does not ask)";
            read_error(at, doing, error)
        })?;
        for (name, right, is_right) in DURABLE {
            let value = settings.get(name).map_or("", String::as_str);
            if !is_right(value) {
                return Err(StoreError::refused(format!(
                    "{at} has {name} {value:?}, it must be {right:?}: without a durable store the numbers are only as safe as \
                     Redis is; it needs `appendonly yes`, `appendfsync always`, `no-appendfsync-on-rewrite no` and \
                     `maxmemory-policy noeviction`, or a durable store beside it"
                )));
            }
        }
        Ok(())
    }
}

/// The name of a setting, the value to recommend, and whether one will do.
type Setting = (&'static str, &'static str, fn(&str) -> bool);

/// What a server must be set to that stands alone.
const DURABLE: [Setting; 4] = [
    ("appendonly", "yes", |value| value == "yes"),
    ("appendfsync", "always", |value| value == "always"),
    ("no-appendfsync-on-rewrite", "no", |value| value == "no"),
    // Keys that never expire are not thrown away by the others.
    ("maxmemory-policy", "noeviction", |value| value == "noeviction" || value.starts_with("volatile-")),
];

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

fn client(options: &RedisOptions) -> Result<Client, StoreError> {
    let at = options.address();
    let info = options.connection_info().clone();
    // Only with the third version of the protocol the driver says that a connection was lost.
    let mut settings =
        info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name().set_db(0);
    if settings.username().is_some() && settings.password().is_none() {
        // The driver would connect as the default user.
        settings = settings.set_password("");
    }
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE_AGAIN);
    let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
    if matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. }) && CryptoProvider::get_default().is_none() {
        // What rustls does by itself, unless another crate of the program gave it a second one: then it panics.
        let _ = ring::default_provider().install_default();
    }
    let Some(path) = options.ssl_ca() else {
        return Client::open(info).map_err(|error| {
            StoreError::refused(format!("the connection to {at} is configured wrongly")).with_source(error)
        });
    };
    let at = format!("the certificates in {} (ssl-ca) cannot be read", path.display());
    let pem = std::fs::read(path).map_err(|error| StoreError::refused(at.clone()).with_source(error))?;
    if CertificateDer::pem_slice_iter(&pem).next().is_none() {
        return Err(StoreError::refused(format!("{at}: it holds no certificate in PEM")));
    }
    let certificates = TlsCertificates { client_tls: None, root_cert: Some(pem) };
    Client::build_with_tls(info, certificates).map_err(|error| StoreError::refused(at).with_source(error))
}
