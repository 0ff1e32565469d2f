//! The connections to one server, and what is checked of it before it is trusted.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use deadpool::managed::{Manager, Metrics, Object, Pool, PoolError, QueueMode, RecycleError, RecycleResult};
use sqlx::mysql::{MySqlArguments, MySqlConnectOptions, MySqlConnection, MySqlQueryResult, MySqlRow};
use sqlx::{ConnectOptions as _, Connection as _, Executor as _, MySql, Row as _};
use tokio::time::{timeout, timeout_at};
use unalike_storage::{Process, StoreError};

use crate::MysqlOptions;
use crate::error::{broke, connect_error, damaged, no_connection, read_error, refusal, write_error};

pub(crate) type Statement<'q> = sqlx::query::Query<'q, MySql, MySqlArguments>;

/// A connection that nobody used for so long is asked for a sign of life before it is used: the server may have been
/// started anew meanwhile. To ask before each use would cost as much as the use; one that breaks within this time is
/// noticed when it is used, and its statement is burnt.
const IDLE_TRUSTED: Duration = Duration::from_secs(1);

/// A connection that nobody used for so long is not used again: a firewall between may have forgotten it.
const IDLE_MAX: Duration = Duration::from_secs(300);

/// No connection is used for longer: load spreads again over servers that share an address.
const LIFETIME_MAX: Duration = Duration::from_secs(1_800);

/// A pool of connections to one database, all of them checked; clones share it.
///
/// Not sqlx's own: that one asks each connection that is given back for a sign of life, a round trip more per
/// statement, and waits for the answer without end, so that a network that swallows packets takes the connections away
/// one by one.
#[derive(Clone)]
pub(crate) struct Database {
    pool: Pool<Connector>,
}

/// Opens connections, and says which may be used again.
struct Connector {
    /// Host, port and database, for messages.
    at: String,
    connect: MySqlConnectOptions,
    connect_timeout: Duration,
    request_timeout: Duration,
    assume_durable: bool,
    /// The identity of the server that connections must lead to, once the store is open; none where any will do.
    expected: OnceLock<Option<String>>,
    /// What else a dialect asks of a server.
    requirement: OnceLock<Requirement>,
    /// Whose connections these are. A child would share their sockets, and one of both would read the other's answers.
    process: Process,
    /// When a connection last broke: those that are older are probably broken too, and are not used again.
    broke: Mutex<Option<Instant>>,
}

/// Says what is wrong with a server.
type Requirement = Box<dyn Fn(&ServerFacts) -> Result<(), String> + Send + Sync>;

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("at", &self.at()).finish_non_exhaustive()
    }
}

/// The names of the server's variables that are looked at.
const FACTS: &str = "SHOW VARIABLES WHERE Variable_name IN ('server_uuid', 'server_uid', 'hostname', 'port', 'datadir', \
    'version', 'innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'auto_increment_increment', 'auto_increment_offset')";

/// What a server says of itself, on the connection in hand.
#[derive(Clone, Debug)]
pub(crate) struct ServerFacts(BTreeMap<String, String>);

impl ServerFacts {
    async fn read(connection: &mut MySqlConnection) -> Result<Self, sqlx::Error> {
        let rows = sqlx::query(FACTS).fetch_all(connection).await?;
        let mut facts = BTreeMap::new();
        for row in rows {
            facts.insert(row.try_get(0)?, row.try_get(1)?);
        }
        Ok(Self(facts))
    }

    /// A variable's value; empty when the server has no such variable.
    pub(crate) fn value(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Which server this is: MySQL's `server_uuid`, MariaDB's `server_uid`; older ones have neither, and are known by
    /// where they run and keep their data.
    pub(crate) fn identity(&self) -> String {
        for name in ["server_uuid", "server_uid"] {
            if !self.value(name).is_empty() {
                return format!("{name} {}", self.value(name));
            }
        }
        format!("{}:{}{}", self.value("hostname"), self.value("port"), self.value("datadir"))
    }

    /// Whether a commit that was reported is on the disk, and in the binary log if there is one: replicas that take
    /// over have it from there.
    pub(crate) fn check_durability(&self) -> Result<(), String> {
        let flush = self.value("innodb_flush_log_at_trx_commit");
        if flush != "1" {
            return Err(format!(
                "innodb_flush_log_at_trx_commit is {flush}: a crash would lose commits, and numbers would repeat; set it \
                 to 1"
            ));
        }
        let (log, sync) = (self.value("log_bin"), self.value("sync_binlog"));
        if matches!(log, "ON" | "1") && sync != "1" {
            return Err(format!(
                "the binary log is on and sync_binlog is {sync}: a replica that takes over after a crash would lack \
                 commits, and numbers would repeat; set it to 1"
            ));
        }
        Ok(())
    }
}

impl Database {
    /// Connects once, to see that the server is there, and looks at it.
    pub(crate) async fn connect(options: &MysqlOptions) -> Result<(Self, ServerFacts), StoreError> {
        let connector = Connector {
            at: options.address(),
            connect: options.connect_options(),
            connect_timeout: options.connect_timeout,
            request_timeout: options.request_timeout,
            assume_durable: options.assume_durable,
            expected: OnceLock::new(),
            requirement: OnceLock::new(),
            process: Process::current(),
            broke: Mutex::default(),
        };
        let size = usize::try_from(options.connections_max).unwrap_or(usize::MAX);
        // The connection that was used last is used next, so that those of a burst become idle.
        let pool = Pool::builder(connector).max_size(size).queue_mode(QueueMode::Lifo).build();
        let pool = pool.map_err(|error| refusal(format!("the pool of connections cannot be made: {error}")))?;
        let database = Self { pool };
        let mut turn = database.turn("looking at the server").await?;
        let facts = turn.look().await?;
        turn.give_back();
        Ok((database, facts))
    }

    /// From now on every connection must lead to this server (any, without an identity); those that are open were
    /// looked at by the caller.
    pub(crate) fn expect(&self, identity: Option<String>) {
        // Set once, when the store is opened.
        let _ = self.connector().expected.set(identity);
    }

    /// From now on every new connection must pass this check too. A dialect sets it once, when it is opened, and has
    /// looked at the server itself.
    pub(crate) fn require(&self, check: impl Fn(&ServerFacts) -> Result<(), String> + Send + Sync + 'static) {
        let _ = self.connector().requirement.set(Box::new(check));
    }

    /// Host, port and database.
    pub(crate) fn at(&self) -> &str {
        &self.connector().at
    }

    fn connector(&self) -> &Connector {
        self.pool.manager()
    }

    /// Closes what nobody uses now; the others are closed when they are given back. A child leaves its parent's alone.
    pub(crate) async fn close(&self) {
        if !self.connector().process.is_current() {
            return;
        }
        let idle = self.pool.retain(|_, _| false).removed;
        self.pool.close();
        for connection in idle {
            // A farewell, so that the server notes no broken connection; one that does not take it is dropped.
            let _ = timeout(self.connector().connect_timeout, connection.close()).await;
        }
    }

    /// Runs one statement that writes, in a transaction of its own.
    pub(crate) async fn execute(
        &self,
        doing: &'static str,
        statement: Statement<'_>,
    ) -> Result<MySqlQueryResult, StoreError> {
        let mut turn = self.turn(doing).await?;
        let done = turn.execute(statement).await?;
        turn.give_back();
        Ok(done)
    }

    /// Runs one statement that reads.
    pub(crate) async fn rows(
        &self,
        doing: &'static str,
        statement: Statement<'_>,
    ) -> Result<Vec<MySqlRow>, StoreError> {
        let mut turn = self.turn(doing).await?;
        let rows = turn.rows(statement).await?;
        turn.give_back();
        Ok(rows)
    }

    /// A transaction. Without a commit it is rolled back: its connection is closed.
    pub(crate) async fn begin(&self, doing: &'static str) -> Result<Turn, StoreError> {
        let mut turn = self.turn(doing).await?;
        turn.begin().await?;
        Ok(turn)
    }

    /// A connection for some statements, all of them within the time that a request may take.
    pub(crate) async fn turn(&self, doing: &'static str) -> Result<Turn, StoreError> {
        let connector = self.connector();
        connector.process.check(&format!("the store at {}", connector.at))?;
        let wait_max = connector.wait_max();
        let limit = connector.request_timeout;
        let deadline = Instant::now() + limit;
        let connection = match timeout(wait_max, self.pool.get()).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(PoolError::Backend(error))) => return Err(error),
            Ok(Err(PoolError::Closed)) => return Err(no_connection(self.at(), doing, "the store was closed")),
            Ok(Err(error)) => return Err(no_connection(self.at(), doing, &error.to_string())),
            Err(_) => {
                let why = format!(
                    "no connection within {} ms: the server does not answer, or too many requests wait",
                    wait_max.as_millis()
                );
                return Err(no_connection(self.at(), doing, &why));
            }
        };
        Ok(Turn { connection: Some(connection), database: self.clone(), doing, limit, deadline })
    }
}

impl Manager for Connector {
    type Type = MySqlConnection;
    type Error = StoreError;

    async fn create(&self) -> Result<MySqlConnection, StoreError> {
        let connected = self.connect.connect().await;
        let mut connection = connected.map_err(|error| connect_error(&self.at, error))?;
        self.look_at(&mut connection).await?;
        Ok(connection)
    }

    async fn recycle(&self, connection: &mut MySqlConnection, metrics: &Metrics) -> RecycleResult<StoreError> {
        let is_suspect = lock(&self.broke).is_some_and(|broke| metrics.created <= broke);
        if is_suspect || metrics.last_used() > IDLE_MAX || metrics.age() > LIFETIME_MAX {
            return Err(RecycleError::message("it is too old"));
        }
        if metrics.last_used() > IDLE_TRUSTED {
            // Half of the time, so that the other half is left for a new connection.
            let alive = timeout(self.wait_max() / 2, connection.ping()).await;
            if !matches!(alive, Ok(Ok(()))) {
                self.note_broken();
                return Err(RecycleError::message("it broke"));
            }
        }
        Ok(())
    }
}

impl Connector {
    /// How long a request waits for a connection.
    fn wait_max(&self) -> Duration {
        self.connect_timeout.min(self.request_timeout)
    }

    fn note_broken(&self) {
        *lock(&self.broke) = Some(Instant::now());
    }

    /// Sets a new connection up and checks where it leads.
    async fn look_at(&self, connection: &mut MySqlConnection) -> Result<(), StoreError> {
        let failed = |error| read_error(&self.at, "setting a connection up", error);
        // In a strict mode a number that does not fit is an error, never cut off; whatever the server's own mode is.
        // And the server is not to close what is idle before it is dropped here.
        let settings = sqlx::query(
            "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', autocommit = 1, innodb_lock_wait_timeout = ?, \
             wait_timeout = ?",
        );
        // Whole seconds. A wait for a lock that ends before the request does leaves no doubt about what was done.
        let lock_wait_s = self.request_timeout.as_secs().saturating_sub(1).max(1);
        let settings = settings.bind(lock_wait_s).bind(2 * IDLE_MAX.as_secs());
        settings.execute(&mut *connection).await.map_err(failed)?;
        let facts = ServerFacts::read(connection).await.map_err(failed)?;
        let refused = |why: String| refusal(format!("the server at {}: {why}", self.at));
        if !self.assume_durable {
            facts.check_durability().map_err(|why| refused(format!("{why} (or vouch for it: durability=assumed)")))?;
        }
        if let Some(Some(identity)) = self.expected.get()
            && *identity != facts.identity()
        {
            return Err(another_server(&self.at, identity, &facts.identity()));
        }
        self.requirement.get().map_or(Ok(()), |check| check(&facts)).map_err(refused)
    }
}

/// A server that took over may lack the last commits of the one before: numbers would repeat.
pub(crate) fn another_server(at: &str, recorded: &str, found: &str) -> StoreError {
    refusal(format!(
        "the server at {at} is another one than before ({found}, not {recorded}). If it took over from that one, it may lack \
         its last commits: lift its tags above everything that was handed out with `unalike store adopt --lift COUNT`, and \
         then restart the programs that knew the other one"
    ))
}

/// A connection in use. Unless it is given back, it is closed: nobody knows what is still under way on it.
pub(crate) struct Turn {
    connection: Option<Object<Connector>>,
    database: Database,
    doing: &'static str,
    limit: Duration,
    deadline: Instant,
}

impl Turn {
    /// The same with so much time from now on, for work on all rows at once.
    pub(crate) fn within(mut self, limit: Duration) -> Self {
        (self.limit, self.deadline) = (limit, Instant::now() + limit);
        self
    }

    /// Runs a statement that writes. After an error nothing more can be done.
    pub(crate) async fn execute(&mut self, statement: Statement<'_>) -> Result<MySqlQueryResult, StoreError> {
        let (at, doing) = (self.database.at().to_owned(), self.doing);
        self.run(|connection| statement.execute(connection)).await.map_err(|error| write_error(&at, doing, error))
    }

    /// The same, where some of the server's error numbers are the caller's business: the statement was not done then,
    /// and the connection is as good as before.
    pub(crate) async fn try_execute(
        &mut self,
        statement: Statement<'_>,
        expected: &[u16],
    ) -> Result<Result<MySqlQueryResult, u16>, StoreError> {
        let (at, doing) = (self.database.at().to_owned(), self.doing);
        match self.run(|connection| statement.execute(connection)).await {
            Ok(done) => Ok(Ok(done)),
            Err(error) => match crate::error::code(&error) {
                Some(code) if expected.contains(&code) => Ok(Err(code)),
                _ => Err(write_error(&at, doing, error)),
            },
        }
    }

    /// The same for a statement that reads, and one such number; none when the server answers with it.
    pub(crate) async fn try_rows(
        &mut self,
        statement: Statement<'_>,
        expected: u16,
    ) -> Result<Option<Vec<MySqlRow>>, StoreError> {
        let (at, doing) = (self.database.at().to_owned(), self.doing);
        match self.run(|connection| statement.fetch_all(connection)).await {
            Ok(rows) => Ok(Some(rows)),
            Err(error) if crate::error::code(&error) == Some(expected) => Ok(None),
            Err(error) => Err(read_error(&at, doing, error)),
        }
    }

    /// Runs a statement that reads.
    pub(crate) async fn rows(&mut self, statement: Statement<'_>) -> Result<Vec<MySqlRow>, StoreError> {
        let (at, doing) = (self.database.at().to_owned(), self.doing);
        self.run(|connection| statement.fetch_all(connection)).await.map_err(|error| read_error(&at, doing, error))
    }

    pub(crate) async fn look(&mut self) -> Result<ServerFacts, StoreError> {
        let (at, doing) = (self.database.at().to_owned(), self.doing);
        self.run(ServerFacts::read).await.map_err(|error| read_error(&at, doing, error))
    }

    /// Begins a transaction, on a connection that has none. Without a commit it is rolled back.
    pub(crate) async fn begin(&mut self) -> Result<(), StoreError> {
        let begun = self.run_text("START TRANSACTION").await;
        begun.map_err(|error| read_error(self.database.at(), self.doing, error))
    }

    /// Commits, and gives the connection back.
    pub(crate) async fn commit(mut self) -> Result<(), StoreError> {
        let committed = self.run_text("COMMIT").await;
        committed.map_err(|error| write_error(self.database.at(), self.doing, error))?;
        self.give_back();
        Ok(())
    }

    /// Rolls back, and gives the connection back.
    pub(crate) async fn roll_back(mut self) -> Result<(), StoreError> {
        let rolled_back = self.run_text("ROLLBACK").await;
        rolled_back.map_err(|error| read_error(self.database.at(), self.doing, error))?;
        self.give_back();
        Ok(())
    }

    /// Nothing is under way on the connection: it is as good as new.
    pub(crate) fn give_back(mut self) {
        self.connection = None;
    }

    async fn run_text(&mut self, sql: &'static str) -> Result<(), sqlx::Error> {
        self.run(|connection| connection.execute(sql)).await.map(drop)
    }

    /// Runs something to its end, or gives up when the time is up.
    async fn run<'c, T, F>(&'c mut self, work: impl FnOnce(&'c mut MySqlConnection) -> F) -> Result<T, sqlx::Error>
    where
        F: Future<Output = Result<T, sqlx::Error>>,
    {
        let Some(connection) = &mut self.connection else { return Err(sqlx::Error::PoolClosed) };
        let (connector, limit) = (self.database.connector(), self.limit);
        let done = timeout_at(self.deadline.into(), work(connection)).await.unwrap_or_else(|_| {
            let what = format!("no answer within {} ms", limit.as_millis());
            Err(sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, what)))
        });
        if done.as_ref().is_err_and(broke) {
            connector.note_broken();
        }
        done
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            // At once and without a word: on a server that hangs, a farewell would hang too.
            drop(Object::take(connection));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each value is whole at any time.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A column of whole numbers, of 0 or more: BIGINT and INT, signed or not.
///
/// Anything else is an error: the driver would read the text of a DECIMAL as if it were a number.
pub(crate) fn number(database: &Database, row: &MySqlRow, column: &str) -> Result<u64, StoreError> {
    let value = match row.try_get::<i64, _>(column) {
        Ok(value) => i128::from(value),
        Err(_) => {
            let value = row.try_get::<u64, _>(column);
            i128::from(value.map_err(|error| read_error(database.at(), "reading a row", error))?)
        }
    };
    let number = u64::try_from(value).ok().filter(|&number| i64::try_from(number).is_ok());
    number.ok_or_else(|| damaged(database.at(), &format!("{column} is {value}, and is 0 to 2^63 - 1")))
}
