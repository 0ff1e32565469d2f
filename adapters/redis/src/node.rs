//! The connection to one Redis server: opened when it is needed, checked before it is used, given up when an answer is
//! late. The server is the one at a place, or the one that Sentinels name.
//!
//! Nothing is ever sent twice: neither the driver nor this module repeats a command whose answer was lost. The one
//! exception is a script that the server says it does not know, which has therefore not run.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::Duration;

use redis::aio::{ConnectionLike as _, MultiplexedConnection, SendError};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, PushInfo, PushKind, RedisError, RedisResult, ServerErrorKind, Value,
};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};
use unalike_storage::{Process, StoreError};

use crate::error::{CLUSTER, broke, connect_error, read_error};
use crate::place::{Clients, Place};
use crate::sentinel::Sentinels;

/// The oldest server whose scripts can ask who they run on (`INFO` of two sections).
const VERSION_MIN: u64 = 7;

/// A server that forgets a script again and again is told it so many times for one request.
const TELLS_MAX: u32 = 10;

/// Sentinels are asked again so soon while the master that they name is none.
const ASK_SENTINELS_AGAIN: Duration = Duration::from_millis(50);

/// What Sentinels said longer ago is asked for again before a master is used: it may have been replaced meanwhile.
const FRESH: Duration = Duration::from_millis(50);

/// Sentinels are asked so often whether the server that is used is still the master.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// What a server must be, and how long it may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demands {
    pub(crate) mode: Mode,
    pub(crate) database: i64,
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
    /// Without a durable store the server itself must not lose what it said.
    pub(crate) must_be_durable: bool,
}

/// Which servers belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Standalone,
    Cluster,
}

/// Which server it is.
enum Leads {
    To(Client),
    ToMasterOf(Sentinels, Clients),
}

/// One server; clones share its connection.
#[derive(Clone)]
pub(crate) struct Node(Arc<Inner>);

struct Inner {
    leads: Leads,
    address: String,
    demands: Demands,
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
pub(crate) struct Open {
    connection: MultiplexedConnection,
    /// Says so when the server closed it; the sender goes with the socket.
    lost: watch::Receiver<bool>,
}

/// What a server is asked.
#[derive(Clone, Copy)]
pub(crate) struct Request<'r> {
    pub(crate) command: &'r Cmd,
    /// The script that the command runs by its hash.
    pub(crate) script: Option<&'r redis::Script>,
}

/// Why there is no answer that is one.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing was sent.
    Unsent(StoreError),
    /// What the server or the driver says; whether the request was carried out follows from it.
    Answer(RedisError),
    /// The request was carried out, by a server that may lose it.
    Done(StoreError),
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither user nor password.
        f.debug_struct("Node").field("address", &self.0.address).finish_non_exhaustive()
    }
}

impl Node {
    /// The server there.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when the connection cannot be configured.
    pub(crate) fn at(place: &Place, address: String, clients: &Clients, demands: Demands) -> Result<Self, StoreError> {
        Ok(Self::new(Leads::To(clients.client(place)?), address, demands))
    }

    /// Whichever server Sentinels name the master.
    pub(crate) fn master_of(sentinels: Sentinels, address: String, clients: Clients, demands: Demands) -> Self {
        Self::new(Leads::ToMasterOf(sentinels, clients), address, demands)
    }

    fn new(leads: Leads, address: String, demands: Demands) -> Self {
        let (process, state) = (Process::current(), RwLock::new(State::Idle));
        Self(Arc::new(Inner { leads, address, demands, process, state, opening: Arc::default() }))
    }

    /// Where it is, for messages.
    pub(crate) fn address(&self) -> &str {
        &self.0.address
    }

    /// Sends a request, once; `asks` also in a slot of a Cluster that is only on its way to this server.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn send(&self, request: Request<'_>, asks: bool) -> Result<Value, Failure> {
        let mut open = self.connection().await.map_err(Failure::Unsent)?;
        let answer = self.ask(&mut open.connection, request, asks).await;
        let (answer, settings) = answer.map_err(|error| {
            if broke(&error) {
                self.give_up(&open.lost);
            }
            Failure::Answer(error)
        })?;
        if let Some(settings) = settings
            && let Err(refused) = self.judge(settings)
        {
            // The next request connects anew, which is refused before anything is granted.
            self.give_up(&open.lost);
            return Err(Failure::Done(refused));
        }
        Ok(answer)
    }

    /// The answer; where the server must be durable, the settings that decide it, too, as they were behind the script.
    async fn ask(
        &self,
        connection: &mut MultiplexedConnection,
        Request { command, script }: Request<'_>,
        asks: bool,
    ) -> RedisResult<(Value, Option<Value>)> {
        let looks = script.is_some() && self.0.demands.must_be_durable;
        let mut answer = query(connection, command, asks, looks).await;
        let Some(script) = script else { return answer };
        // It may be forgotten again between being told and being run.
        for _ in 0..TELLS_MAX {
            match &answer {
                Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                    script.load_async(connection).await?;
                    answer = query(connection, command, asks, looks).await;
                }
                _ => break,
            }
        }
        answer
    }

    /// Whether the server is durable, by this answer to [`settings`].
    fn judge(&self, answer: Value) -> Result<(), StoreError> {
        let settings = answer.extract_error().and_then(|value| Ok(redis::from_redis_value(value)?));
        judge_durability(settings, self.address())
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

    /// Another one may have taken its place already.
    fn give_up(&self, broken: &watch::Receiver<bool>) {
        let mut state = self.write();
        if matches!(&*state, State::Open(open) if open.lost.same_channel(broken)) {
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

    /// The connection, opened and checked if there is none.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the server does not answer, [`StoreError::Refused`] when it cannot be used.
    pub(crate) async fn connection(&self) -> Result<Open, StoreError> {
        self.check_process()?;
        if let Some(open) = self.current()? {
            return Ok(open);
        }
        // Whoever waits for longer than an attempt may take would otherwise wait for all who came before.
        let turn = timeout(self.0.demands.connect_timeout, Arc::clone(&self.0.opening).lock_owned()).await;
        let Ok(turn) = turn else { return Err(self.silent()) };
        if let Some(open) = self.current()? {
            return Ok(open);
        }
        // A task of its own: of many requests with little patience none would otherwise get it done.
        let node = self.clone();
        let opening = tokio::spawn(async move {
            let _turn = turn;
            node.open().await
        });
        let failed =
            |error| StoreError::unavailable(format!("{}: no connection was opened", self.address())).with_source(error);
        opening.await.map_err(failed)?
    }

    /// Opens a connection and checks it, all within the time for that.
    async fn open(&self) -> Result<Open, StoreError> {
        let limit = self.0.demands.connect_timeout;
        let (open, place) = match &self.0.leads {
            Leads::To(client) => {
                let opened = timeout(limit, self.open_at(client, self.address())).await;
                (opened.map_err(|_| self.silent())??, None)
            }
            Leads::ToMasterOf(sentinels, clients) => {
                let (open, place) = self.open_master(sentinels, clients, Instant::now() + limit).await?;
                (open, Some(place))
            }
        };
        let mut state = self.write();
        if matches!(&*state, State::Closed) {
            return Err(self.closed());
        }
        *state = State::Open(open.clone());
        drop(state);
        if let Some(place) = place {
            tokio::spawn(watch_master(Arc::downgrade(&self.0), open.lost.clone(), place));
        }
        Ok(open)
    }

    async fn open_at(&self, client: &Client, at: &str) -> Result<Open, StoreError> {
        let (ended, lost) = watch::channel(false);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(Some(self.0.demands.request_timeout))
            .set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    ended.send_replace(true);
                }
                Ok::<(), SendError>(())
            });
        let opened = client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = opened.map_err(|error| connect_error(at, error))?;
        self.check(&mut connection, at).await?;
        Ok(Open { connection, lost })
    }

    /// The master that most Sentinels name, or another one that one of them does: whichever proves to be a master.
    /// While there is none, they are asked again.
    async fn open_master(
        &self,
        sentinels: &Sentinels,
        clients: &Clients,
        deadline: Instant,
    ) -> Result<(Open, Place), StoreError> {
        // One that does not answer leaves time for another one.
        let attempt = self.0.demands.connect_timeout / 2;
        let mut before = None;
        loop {
            let (mut failed, asked) = (None, Instant::now());
            // What a server said before tells more than who had no time to answer at the deadline.
            let named = sentinels.masters(deadline).await.map_err(|error| before.take().unwrap_or(error))?;
            for named in named {
                let (client, at) = (clients.client(&named.place)?, format!("{} ({})", self.address(), named.place));
                let opening = async {
                    let mut open = self.open_at(&client, &at).await?;
                    self.check_is_master(&mut open.connection, &at).await?;
                    Ok(open)
                };
                match timeout_at(deadline.min(Instant::now() + attempt), opening).await {
                    Ok(Ok(open)) => {
                        let is_fresh = asked.elapsed() < FRESH;
                        if is_fresh || sentinels.masters(deadline).await?.contains(&named) {
                            return Ok((open, named.place));
                        }
                    }
                    // What the one says that most name counts.
                    Ok(Err(error)) => _ = failed.get_or_insert(error),
                    Err(_) => {
                        let what = format!("the master at {at} does not answer: is a fail-over on its way?");
                        let silent = StoreError::unavailable(what);
                        failed.get_or_insert(before.take().unwrap_or(silent));
                    }
                }
            }
            let failed = failed.unwrap_or_else(|| self.silent());
            if !failed.is_retryable() || Instant::now() + ASK_SENTINELS_AGAIN >= deadline {
                return Err(failed);
            }
            before = Some(failed);
            tokio::time::sleep(ASK_SENTINELS_AGAIN).await;
        }
    }

    fn silent(&self) -> StoreError {
        let (at, limit) = (self.address(), self.0.demands.connect_timeout.as_millis());
        StoreError::unavailable(format!(
            "no connection to {at} within {limit} ms: is it a Redis server, and is rediss:// or redis:// right?"
        ))
    }

    /// Sentinels may be behind, and may lie. A server that is none any more fails every script as well.
    async fn check_is_master(&self, connection: &mut MultiplexedConnection, at: &str) -> Result<(), StoreError> {
        let failed = |error: RedisError| read_error(at, "asking the server whether it is the master", error);
        let info: String = redis::cmd("INFO").arg("replication").query_async(connection).await.map_err(failed)?;
        if field(&info, "role") == Some("master") {
            return Ok(());
        }
        Err(StoreError::unavailable(format!("{at} is named the master by a Sentinel and is a replica")))
    }

    /// Checks that the server is one that can be used.
    async fn check(&self, connection: &mut MultiplexedConnection, at: &str) -> Result<(), StoreError> {
        let demands = self.0.demands;
        let failed = |error: RedisError| read_error(at, "asking the server what it is", error);
        let info: String = redis::cmd("INFO").arg("server").query_async(connection).await.map_err(failed)?;
        // Valkey calls it so.
        let mode = field(&info, "redis_mode").or_else(|| field(&info, "server_mode"));
        match (mode, demands.mode) {
            (Some("standalone"), Mode::Standalone) | (Some("cluster"), Mode::Cluster) => {}
            // It may be anything: a node of a Cluster, or something between that answers for several.
            (None, _) => {
                return Err(StoreError::refused(format!(
                    "{at}: its answer to INFO names no redis_mode, so it may be a Cluster or a proxy before several servers: give the \
                     address of one server that stands alone"
                )));
            }
            (Some("standalone"), Mode::Cluster) => {
                return Err(StoreError::refused(format!(
                    "{at} is no node of a Redis Cluster: it stands alone, write redis://HOST"
                )));
            }
            (Some("cluster"), Mode::Standalone) => return Err(StoreError::refused(format!("{at}: {CLUSTER}"))),
            (Some("sentinel"), _) => {
                return Err(StoreError::refused(format!(
                    "{at} is a Sentinel, which keeps no data: write redis+sentinel://HOST,HOST/MASTER, or give the address that \
                     leads to the master"
                )));
            }
            (Some(other), _) => {
                return Err(StoreError::refused(format!("{at} runs in the mode {other:?}, which is not supported")));
            }
        }
        let version = field(&info, "redis_version").unwrap_or("of unknown version");
        let major = version.split('.').next().and_then(|major| major.parse::<u64>().ok());
        if major.is_none_or(|major| major < VERSION_MIN) {
            return Err(StoreError::refused(format!("{at} is Redis {version}, it must be {VERSION_MIN} or newer")));
        }
        if demands.must_be_durable {
            check_durability(connection, at).await?;
        }
        if demands.database != 0 {
            let select = redis::cmd("SELECT").arg(demands.database).exec_async(connection).await;
            select.map_err(|error| read_error(at, "choosing the database", error))?;
        }
        Ok(())
    }
}

/// Sends a command; `asks` with the word that has a node answer for a slot that is on its way to it, which counts for
/// the next command alone. Where somebody `looks`, the question for the [`settings`] is sent behind it in one piece,
/// and its answer is the second one.
async fn query(
    connection: &mut MultiplexedConnection,
    command: &Cmd,
    asks: bool,
    looks: bool,
) -> RedisResult<(Value, Option<Value>)> {
    if !asks && !looks {
        return Ok((command.query_async(connection).await?, None));
    }
    let mut pipeline = redis::pipe();
    if asks {
        pipeline.cmd("ASKING");
    }
    pipeline.add_command(command.clone());
    if looks {
        pipeline.add_command(settings());
    }
    let count = 1 + usize::from(asks) + usize::from(looks);
    let mut answers = connection.req_packed_commands(&pipeline, 0, count).await?;
    let settings = if looks { Some(answers.pop().unwrap_or(Value::Nil)) } else { None };
    let (answer, asking) = (answers.pop(), answers.pop());
    if asks {
        // Without that word the command was redirected, and not carried out.
        asking.unwrap_or(Value::Nil).extract_error()?;
    }
    Ok((answer.unwrap_or(Value::Nil).extract_error()?, settings))
}

/// Asks Sentinels now and then, while a connection is in use, and gives it up when most of them name another master:
/// one that they left may go on, and hand out numbers out of order.
async fn watch_master(node: Weak<Inner>, mut lost: watch::Receiver<bool>, place: Place) {
    loop {
        // An error is the end of the connection.
        if timeout(WATCH_EVERY, lost.changed()).await.is_ok() {
            return;
        }
        let Some(node) = node.upgrade().map(Node) else { return };
        let is_used = matches!(&*node.read(), State::Open(open) if open.lost.same_channel(&lost));
        let Leads::ToMasterOf(sentinels, _) = &node.0.leads else { return };
        if !is_used {
            return;
        }
        let deadline = Instant::now() + node.0.demands.connect_timeout;
        let Ok(named) = sentinels.masters(deadline).await else { continue };
        if let Some(other) = named.first().filter(|named| named.votes > sentinels.count() / 2 && named.place != place) {
            tracing::info!(sentinels = node.address(), left = %place, master = %other.place, "another master was elected");
            node.give_up(&lost);
            return;
        }
    }
}

/// What `INFO`, or `CLUSTER INFO`, says under this name.
pub(crate) fn field<'i>(info: &'i str, name: &str) -> Option<&'i str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Checks that the server writes each change to its disk before it answers, and throws nothing away.
async fn check_durability(connection: &mut MultiplexedConnection, at: &str) -> Result<(), StoreError> {
    judge_durability(settings().query_async(connection).await, at)
}

/// Asks for what decides whether the server is durable.
fn settings() -> Cmd {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg(&DURABLE.map(|(name, ..)| name));
    command
}

fn judge_durability(settings: RedisResult<HashMap<String, String>>, at: &str) -> Result<(), StoreError> {
    let settings = settings.map_err(|error| {
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
