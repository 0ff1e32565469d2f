//! The connections to one server, and what is checked of it before it is trusted.

use std::fmt;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use deadpool::managed::{Manager, Metrics, Object, Pool, PoolError, QueueMode, RecycleError, RecycleResult};
use sqlx::mysql::{MySqlArguments, MySqlConnectOptions, MySqlConnection, MySqlQueryResult, MySqlRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, MySql, Row as _};
use tokio::time::{timeout, timeout_at};
use unalike_storage::{Process, StoreError, lock};

use crate::MysqlOptions;
use crate::error::{
    NO_SUCH_TABLE, ONLY_READS, UNKNOWN_COLUMN, broke, connect_error, damaged, no_connection, read_error, write_error,
};
use crate::fence::{COMMIT, Fence, READ_WHOLE_LISTS, ROLL_BACK, ServerFacts, mark_in};
use crate::place;
use crate::record::{Era, Record};

pub(crate) type Statement<'q> = sqlx::query::Query<'q, MySql, MySqlArguments>;

/// A connection that nobody used for so long is asked for a sign of life before it is used: the server may have been
/// started anew meanwhile. To ask before each use would cost as much as the use; one that breaks within this time is
/// noticed when it is used, and its statement is burnt.
const IDLE_TRUSTED: Duration = Duration::from_secs(1);

/// A connection that nobody used for so long is not used again: a firewall between may have forgotten it.
const IDLE_MAX: Duration = Duration::from_secs(300);

/// No connection is used for longer: load spreads again over servers that share an address.
const LIFETIME_MAX: Duration = Duration::from_secs(1_800);

/// Begins a transaction.
pub(crate) const BEGIN: &str = "START TRANSACTION";

/// The lock of whoever creates tags or changes the stripe.
pub(crate) const ALONE: &str = "SELECT id FROM unalike_store WHERE id = 1 AND {fence of the store} FOR UPDATE";

/// Why a statement was held back that would not be on another connection.
const SET_OTHERWISE: &str = "the connection led to another server, or was set otherwise: try again";

/// What `unalike_store` says which server it is on.
pub(crate) const RECORDED: &str = "SELECT server FROM unalike_store WHERE id = 1";

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
    assume_identity: bool,
    /// The name of the dialect whose tables are used.
    dialect: &'static str,
    /// The server that connections must lead to, once it is known.
    expected: OnceLock<Expected>,
    /// What else a dialect asks of a server.
    requirement: OnceLock<Requirement>,
    /// Where the data are, and the statement that says so, once that is known.
    place: OnceLock<(&'static str, String)>,
    /// When somebody last looked there.
    looked: Mutex<Option<Instant>>,
    /// Whose connections these are. A child would share their sockets, and one of both would read the other's answers.
    process: Process,
    /// When a connection last broke: those that are older are probably broken too, and are not used again.
    broke: Mutex<Option<Instant>>,
}

/// The server that connections must lead to.
#[derive(Debug)]
struct Expected {
    /// What it says it is; none where any server will do.
    identity: Option<String>,
    /// What stands in `unalike_store`; the same, or what a server is adopted in place of.
    recorded: String,
    fence: Fence,
    /// It is a node of a Galera cluster.
    is_node: bool,
    /// It was adopted, so what the server before did may still be applied; and the position says so.
    may_be_written_over: bool,
}

/// Says what is wrong with a server.
type Requirement = Box<dyn Fn(&ServerFacts) -> Result<(), String> + Send + Sync>;

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("at", &self.at()).finish_non_exhaustive()
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
            assume_identity: options.assume_identity,
            dialect: options.dialect.name(),
            expected: OnceLock::new(),
            requirement: OnceLock::new(),
            place: OnceLock::new(),
            looked: Mutex::default(),
            process: Process::current(),
            broke: Mutex::default(),
        };
        let size = usize::try_from(options.connections_max).unwrap_or(usize::MAX);
        // The connection that was used last is used next, so that those of a burst become idle.
        let pool = Pool::builder(connector).max_size(size).queue_mode(QueueMode::Lifo).build();
        let pool =
            pool.map_err(|error| StoreError::refused(format!("the pool of connections cannot be made: {error}")))?;
        let database = Self { pool };
        let mut turn = database.turn("looking at the server").await?;
        let facts = turn.look().await?;
        turn.give_back();
        Ok((database, facts))
    }

    /// From now on every connection must lead to this server, which was looked at, and to a store that has this record
    /// of it; to any server, without an identity.
    pub(crate) fn expect(&self, facts: &ServerFacts, identity: Option<String>, recorded: &str) {
        let connector = self.connector();
        let mut fence = facts.fence(!connector.assume_durable, identity.as_deref());
        if identity.is_some() {
            fence = fence.recorded(recorded);
        }
        // Set once, when the store is opened.
        let may_be_written_over =
            identity.as_deref().and_then(mark_in).is_some() && Record::read(recorded).was_adopted();
        let (recorded, is_node) = (recorded.to_owned(), facts.cluster().is_some());
        let _ = connector.expected.set(Expected { identity, recorded, fence, is_node, may_be_written_over });
    }

    /// Whether a row that a transaction locks, and does not change, stays as it is until the transaction commits.
    ///
    /// # Errors
    /// [`StoreError::Refused`] on a node of a Galera cluster: other nodes know nothing of its locks, and only changes
    /// of the same row are compared. A row that is made on one node while the store becomes another stripe on another
    /// one would be of the stripe before.
    pub(crate) fn check_rows_read(&self) -> Result<(), StoreError> {
        if !self.connector().expected.get().is_some_and(|expected| expected.is_node) {
            return Ok(());
        }
        Err(StoreError::refused(format!(
            "the server at {} is a node of a Galera cluster, which cannot be a stripe: the nodes know nothing of each other's \
             locks; use a single server for each stripe",
            self.at()
        )))
    }

    /// Refuses a server that was adopted with the tables of other dialects, and not with those that are used.
    ///
    /// # Errors
    /// [`StoreError::Refused`].
    pub(crate) fn check_adopted(&self) -> Result<(), StoreError> {
        let Connector { expected, dialect, .. } = self.connector();
        let Some(Expected { identity: Some(_), recorded, .. }) = expected.get() else { return Ok(()) };
        if Record::read(recorded).is_valid_for(dialect) {
            return Ok(());
        }
        Err(StoreError::refused(format!(
            "the server at {} took over from another one, and was adopted with the tables of other dialects in this database \
             ({recorded}): those of the dialect {dialect} may lack the last commits. Run `unalike store adopt --lift COUNT` with \
             this URL as well, and then restart the programs that use this database",
            self.at()
        )))
    }

    /// Whether the server took over from another one, and was adopted with the tables of whichever dialect.
    pub(crate) fn was_adopted(&self) -> bool {
        let expected = self.connector().expected.get().filter(|expected| expected.identity.is_some());
        expected.is_some_and(|expected| Record::read(&expected.recorded).was_adopted())
    }

    /// By how much the tables in use were lifted in sum: by so much does a name that is created in tables which have no
    /// place for a floor begin above its start. It stands while the record is what it was when this client began.
    pub(crate) fn lifted(&self) -> u64 {
        let Connector { expected, dialect, .. } = self.connector();
        expected.get().map_or(0, |expected| Record::read(&expected.recorded).lifted(dialect))
    }

    /// The era of `unalike_tag`, as it was when this client began.
    pub(crate) fn era(&self) -> Era {
        self.connector().expected.get().map_or_else(Era::default, |expected| Record::read(&expected.recorded).era())
    }

    /// A statement that grants, with the conditions that every grant rests on where it says `{fence}`, or `{fence
    /// alone}` when it is a transaction of its own. On another server, and in another session than those that were
    /// looked at, it changes no row: [`Database::check_fence`] says whether that is so.
    pub(crate) fn fenced(&self, statement: &str) -> AssertSqlSafe<String> {
        assert!(statement.contains("{fence"), "a statement without a fence: {statement}");
        AssertSqlSafe(match self.connector().expected.get() {
            Some(expected) => expected.fence.put_into(statement),
            // Before a server is known, nothing is granted.
            None => ["{fence}", "{fence alone}", "{fence of the store}", "{fence of a row}"]
                .into_iter()
                .fold(statement.to_owned(), |statement, fence| statement.replace(fence, "1 = 0")),
        })
    }

    /// Says why a statement was held back by its fence, unless it was not.
    ///
    /// # Errors
    /// [`StoreError::Refused`] on another server, or on one that may lose commits; [`StoreError::Unavailable`] where
    /// another connection may do. The connections that are open are not used again.
    pub(crate) async fn check_fence(&self) -> Result<(), StoreError> {
        let mut turn = self.turn("looking at the server").await?;
        let before = turn.look().await?;
        let facts = turn.look().await?;
        let recorded = recorded_server(&mut turn).await?;
        let connector = self.connector();
        let checked = connector.check(&facts, recorded.as_deref()).and_then(|()| {
            let unavailable = |what| StoreError::unavailable(what);
            facts.check_session(&before).map_err(|why| unavailable(format!("{}: {why}", self.at())))?;
            if facts.only_reads() { Err(unavailable(format!("{}: {ONLY_READS}", self.at()))) } else { Ok(()) }
        });
        let checked = match (checked, connector.place.get()) {
            (Ok(()), Some((statement, expected))) => {
                let here = place::look(&mut turn, statement).await?;
                if here.as_ref() == Some(expected) { Ok(()) } else { Err(place::another(self.at(), here.as_deref())) }
            }
            (checked, _) => checked,
        };
        // What a session says of a variable may be older than what holds for the server by now: `server_id`.
        let is_held_back = match &checked {
            Ok(()) => turn.rows(sqlx::query(self.fenced("SELECT 1 FROM DUAL WHERE {fence}"))).await?.is_empty(),
            Err(_) => true,
        };
        if !is_held_back {
            turn.give_back();
            return Ok(());
        }
        // Those that were opened before may all lead there.
        connector.note_broken();
        drop(turn);
        checked?;
        // A new one sees all as it is, and says what is wrong.
        self.turn("looking at the server").await?.give_back();
        Err(no_connection(self.at(), "looking at the server", SET_OTHERWISE))
    }

    /// From now on every new connection must pass this check too. A dialect sets it once, when it is opened, and has
    /// looked at the server itself.
    pub(crate) fn require(&self, check: impl Fn(&ServerFacts) -> Result<(), String> + Send + Sync + 'static) {
        let _ = self.connector().requirement.set(Box::new(check));
    }

    /// From now on the data must be at this place.
    pub(crate) fn expect_place(&self, facts: &ServerFacts, here: &str) {
        let _ = self.connector().place.set((place::statement(facts), here.to_owned()));
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

    /// A transaction, on the server that is expected. Without a commit it is rolled back: its connection is closed.
    pub(crate) async fn begin(&self, doing: &'static str) -> Result<Turn, StoreError> {
        self.begin_with(doing, "SELECT 1 FROM DUAL WHERE {fence}").await
    }

    /// The same, and nobody else creates a tag or changes the stripe until it ends. Who only reads the row first, and
    /// then locks it, could be locked out by somebody who changes the table.
    pub(crate) async fn begin_alone(&self, doing: &'static str) -> Result<Turn, StoreError> {
        self.begin_with(doing, ALONE).await
    }

    async fn begin_with(&self, doing: &'static str, fence: &str) -> Result<Turn, StoreError> {
        let mut turn = self.turn(doing).await?;
        turn.begin().await?;
        if turn.rows(sqlx::query(self.fenced(fence))).await?.is_empty() {
            drop(turn);
            return Err(self.held_back(doing).await);
        }
        Ok(turn)
    }

    /// Whether the fence of a server that was adopted still holds, where it rests on how far replication has come.
    ///
    /// # Errors
    /// As [`Database::check_fence`].
    pub(crate) async fn look_again(&self, doing: &'static str) -> Result<(), StoreError> {
        if !self.connector().expected.get().is_some_and(|expected| expected.may_be_written_over) {
            return Ok(());
        }
        let look = sqlx::query(self.fenced("SELECT 1 FROM DUAL WHERE {fence}"));
        if self.rows(doing, look).await?.is_empty() { Err(self.held_back(doing).await) } else { Ok(()) }
    }

    /// The error of a statement that its fence held back.
    pub(crate) async fn held_back(&self, doing: &'static str) -> StoreError {
        match self.check_fence().await {
            Err(error) => error,
            // On this connection it would not have been.
            Ok(()) => {
                self.connector().note_broken();
                no_connection(self.at(), doing, SET_OTHERWISE)
            }
        }
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
                    "no connection within {} ms: no MySQL or MariaDB server answers there, or too many requests wait",
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
        if metrics.last_used() > IDLE_TRUSTED || self.is_time_to_look() {
            // Half of the time, so that the other half is left for a new connection.
            let alive = timeout(self.wait_max() / 2, self.look_for_place(connection)).await;
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
        connection.execute(READ_WHOLE_LISTS).await.map_err(failed)?;
        let before = ServerFacts::read(connection).await.map_err(failed)?;
        // Whole seconds. A wait for a lock that ends before the request does leaves no doubt about what was done. And
        // the server is not to close what is idle before it is dropped here.
        let lock_wait_s = self.request_timeout.as_secs().saturating_sub(1).max(1);
        before.set_session(connection, lock_wait_s, 2 * IDLE_MAX.as_secs()).await.map_err(failed)?;
        let facts = ServerFacts::read(connection).await.map_err(failed)?;
        self.check(&facts, None)?;
        facts.check_session(&before).map_err(|why| self.refused(&why))?;
        match self.look_for_place(connection).await {
            Err(elsewhere @ StoreError::Refused { .. }) => {
                // Of other data, and of a store that was adopted since, this says more.
                let recorded = sqlx::query(RECORDED).fetch_optional(connection).await;
                let recorded = match recorded {
                    Ok(row) => row.map(|row| row.try_get::<String, _>("server")).transpose().map_err(failed)?,
                    Err(error) if crate::error::code(&error) == Some(NO_SUCH_TABLE) => None,
                    Err(error) => return Err(failed(error)),
                };
                self.check(&facts, Some(recorded.as_deref().unwrap_or_default()))?;
                Err(elsewhere)
            }
            looked => looked,
        }
    }

    /// Whether nobody has looked for a while whether the data are where they were.
    fn is_time_to_look(&self) -> bool {
        self.place.get().is_some() && lock(&self.looked).is_none_or(|looked| looked.elapsed() > IDLE_TRUSTED)
    }

    /// Asks for a sign of life that says where the data are.
    async fn look_for_place(&self, connection: &mut MySqlConnection) -> Result<(), StoreError> {
        let failed = |error| read_error(&self.at, "looking where the store is", error);
        let Some((statement, expected)) = self.place.get() else { return connection.ping().await.map_err(failed) };
        *lock(&self.looked) = Some(Instant::now());
        let here = match sqlx::raw_sql(*statement).fetch_optional(connection).await {
            Ok(row) => row.map(|row| row.try_get::<Option<String>, _>("place")).transpose().map_err(failed)?.flatten(),
            Err(error) if matches!(crate::error::code(&error), Some(NO_SUCH_TABLE | UNKNOWN_COLUMN)) => None,
            Err(error) => return Err(failed(error)),
        };
        if here.as_ref() == Some(expected) { Ok(()) } else { Err(place::another(&self.at, here.as_deref())) }
    }

    /// Checks the server, and what is recorded there if that was read.
    fn check(&self, facts: &ServerFacts, recorded: Option<&str>) -> Result<(), StoreError> {
        facts.check(self.assume_durable, self.assume_identity).map_err(|why| self.refused(&why))?;
        if let Some(Expected { identity: Some(identity), recorded: expected, .. }) = self.expected.get() {
            let found = facts.identity_as(identity);
            let found = found.map_err(|why| self.refused(&why))?;
            if found != *identity {
                return Err(facts.another_server(&self.at, identity, &found));
            }
            if let Some(recorded) = recorded.filter(|recorded| recorded != expected) {
                if Record::read(recorded).server() == Record::read(expected).server() {
                    return Err(self.refused(&format!(
                        "tables in its database were lifted since this program began ({recorded}, not {expected}): restart this \
                         program"
                    )));
                }
                return Err(facts.another_server(&self.at, expected, recorded));
            }
        }
        self.requirement.get().map_or(Ok(()), |check| check(facts)).map_err(|why| self.refused(&why))
    }

    fn refused(&self, why: &str) -> StoreError {
        StoreError::refused(format!("the server at {}: {why}", self.at))
    }
}

/// What `unalike_store` says which server it is on.
async fn recorded_server(turn: &mut Turn) -> Result<Option<String>, StoreError> {
    let rows = turn.try_rows(sqlx::query(RECORDED), NO_SUCH_TABLE).await?.unwrap_or_default();
    let text =
        |row: &MySqlRow| row.try_get("server").map_err(|error| read_error(turn.database.at(), turn.doing, error));
    // A store that is gone is another one.
    rows.first().map_or(Ok(Some(String::new())), |row| text(row).map(Some))
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

    /// Runs a statement that cannot be prepared, where some of the server's error numbers are the caller's business.
    pub(crate) async fn try_text(
        &mut self,
        sql: &'static str,
        expected: &[u16],
    ) -> Result<Result<Vec<MySqlRow>, u16>, StoreError> {
        let (at, doing) = (self.database.at().to_owned(), self.doing);
        match self.run(|connection| sqlx::raw_sql(sql).fetch_all(connection)).await {
            Ok(rows) => Ok(Ok(rows)),
            Err(error) => match crate::error::code(&error) {
                Some(code) if expected.contains(&code) => Ok(Err(code)),
                _ => Err(read_error(&at, doing, error)),
            },
        }
    }

    /// Runs a statement that reads.
    pub(crate) async fn rows(&mut self, statement: Statement<'_>) -> Result<Vec<MySqlRow>, StoreError> {
        let (at, doing) = (self.database.at().to_owned(), self.doing);
        self.run(|connection| statement.fetch_all(connection)).await.map_err(|error| read_error(&at, doing, error))
    }

    /// Host, port and database.
    pub(crate) fn at(&self) -> &str {
        self.database.at()
    }

    pub(crate) async fn look(&mut self) -> Result<ServerFacts, StoreError> {
        let (at, doing) = (self.database.at().to_owned(), self.doing);
        self.run(ServerFacts::read).await.map_err(|error| read_error(&at, doing, error))
    }

    /// Begins a transaction, on a connection that has none. Without a commit it is rolled back.
    pub(crate) async fn begin(&mut self) -> Result<(), StoreError> {
        let begun = self.run_text(BEGIN).await;
        begun.map_err(|error| read_error(self.database.at(), self.doing, error))
    }

    /// Commits, and gives the connection back.
    pub(crate) async fn commit(mut self) -> Result<(), StoreError> {
        let committed = self.run_text(COMMIT).await;
        committed.map_err(|error| write_error(self.database.at(), self.doing, error))?;
        self.give_back();
        Ok(())
    }

    /// Rolls back, and gives the connection back.
    pub(crate) async fn roll_back(mut self) -> Result<(), StoreError> {
        let rolled_back = self.run_text(ROLL_BACK).await;
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
