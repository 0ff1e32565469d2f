//! The connections to one server, and what is checked of it before it is trusted.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use deadpool::managed::{Manager, Metrics, Object, Pool, PoolError, QueueMode, RecycleError, RecycleResult};
use sqlx::postgres::{PgArguments, PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, Postgres, Row as _};
use tokio::time::{timeout, timeout_at};
use unalike_storage::{Process, StoreError, lock, random_128};

use crate::PostgresOptions;
use crate::error::{POOLED, broke, code, connect_error, damaged, no_connection, read_error, write_error};
use crate::fence::{Fence, ServerFacts};
use crate::record::{Record, ServerIdentity};

pub(crate) type Statement<'q> = sqlx::query::Query<'q, Postgres, PgArguments>;

/// A connection that nobody used for so long is asked for a sign of life before it is used: the server may have been
/// started anew meanwhile. To ask before each use would cost as much as the use; one that breaks within this time is
/// noticed when it is used, and its statement is burnt.
const IDLE_TRUSTED: Duration = Duration::from_secs(1);

/// A connection that nobody used for so long is not used again: a firewall between may have forgotten it.
const IDLE_MAX: Duration = Duration::from_secs(300);

/// No connection is used for longer: load spreads again over servers that share an address.
const LIFETIME_MAX: Duration = Duration::from_secs(1_800);

/// How long work on all rows may take.
pub(crate) const MAINTENANCE: Duration = Duration::from_secs(600);

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";

/// A transaction that works on all rows has the time that it needs: see [`MAINTENANCE`].
const BEGIN_LONG: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL statement_timeout = '610s'; \
    SET LOCAL lock_timeout = '60s'";

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
pub(crate) struct Connector {
    /// Host, port and database, for messages.
    at: String,
    connect: PgConnectOptions,
    connect_timeout: Duration,
    request_timeout: Duration,
    assume_durable: bool,
    /// Which part of the store is used.
    part: &'static str,
    /// The schema that has the tables, once it is known.
    schema: OnceLock<String>,
    /// The server that connections must lead to, once it is known.
    expected: Mutex<Option<Arc<Expected>>>,
    /// Whose connections these are. A child would share their sockets, and one of both would read the other's answers.
    process: Process,
    /// When a connection last broke: those that are older are probably broken too, and are not used again.
    broke: Mutex<Option<Instant>>,
    /// Set for good once the server is seen to have forgotten grants of this program: later writes of others lift its
    /// log past them. It says what was seen.
    forgot: OnceLock<String>,
    /// How far the server's log was when the newest grant was made. What was logged before that lasts.
    log_position: AtomicI64,
}

/// The server that connections must lead to, as `unalike_store` says it.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) record: Record,
    fence: Fence,
}

/// An open connection, with what it was found to be.
pub(crate) struct Session {
    connection: PgConnection,
    /// Set in the session; each grant states it.
    mark: String,
    /// For which record it was looked at.
    seen: Option<Arc<Expected>>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("at", &self.at()).finish_non_exhaustive()
    }
}

impl Database {
    /// Connects once, to see that the server is there, and looks at it.
    pub(crate) async fn connect(
        options: &PostgresOptions,
        part: &'static str,
    ) -> Result<(Self, ServerFacts), StoreError> {
        let connector = Connector {
            at: options.address(),
            connect: options.connect_options()?,
            connect_timeout: options.connect_timeout,
            request_timeout: options.request_timeout,
            assume_durable: options.assume_durable,
            part,
            schema: options.schema.clone().map_or_else(OnceLock::new, OnceLock::from),
            expected: Mutex::default(),
            process: Process::current(),
            broke: Mutex::default(),
            forgot: OnceLock::new(),
            log_position: AtomicI64::new(0),
        };
        let size = usize::try_from(options.connections_max).unwrap_or(usize::MAX);
        // The connection that was used last is used next, so that those of a burst become idle.
        let pool = Pool::builder(connector).max_size(size).queue_mode(QueueMode::Lifo).build();
        let pool =
            pool.map_err(|error| StoreError::refused(format!("the pool of connections cannot be made: {error}")))?;
        let database = Self { pool };
        let facts = database.look().await?;
        Ok((database, facts))
    }

    /// What the server says of itself now.
    pub(crate) async fn look(&self) -> Result<ServerFacts, StoreError> {
        let mut turn = self.turn("looking at the server").await?;
        let facts = turn.look().await?;
        turn.give_back();
        Ok(facts)
    }

    /// Notes how far the server's log was when this grant, which is committed, was made.
    pub(crate) fn note_position(&self, granted: &PgRow) -> Result<(), StoreError> {
        let position: i64 = granted
            .try_get("log_position")
            .map_err(|error| read_error(self.at(), "reading how far the log is written", error))?;
        self.connector().log_position.fetch_max(position, Ordering::SeqCst);
        Ok(())
    }

    /// From now on every connection must lead to the server of this record, and to a store that has this record.
    pub(crate) fn expect(&self, facts: &ServerFacts, record: Record) {
        self.connector().expect(facts, record);
    }

    /// What is expected.
    ///
    /// # Errors
    /// [`StoreError::Refused`] before a server is known.
    pub(crate) fn record(&self) -> Result<Record, StoreError> {
        let expected = lock(&self.connector().expected).as_ref().map(|expected| expected.record);
        expected.ok_or_else(|| StoreError::refused(format!("{}: no server is known yet", self.at())))
    }

    /// Which part of the store is used.
    pub(crate) fn part(&self) -> &'static str {
        self.connector().part
    }

    /// Says why a statement was held back by its fence, unless it was not.
    ///
    /// # Errors
    /// [`StoreError::Refused`] on another server, on one that may lose commits, and behind a pooler that gives each
    /// transaction another session. The connections that are open are not used again then.
    pub(crate) async fn check_fence(&self, turn: Turn) -> Result<(), StoreError> {
        let checked = self.look_again(turn).await;
        if checked.is_err() {
            // Those that were opened before may all lead there.
            self.connector().note_broken();
        }
        checked
    }

    async fn look_again(&self, mut turn: Turn) -> Result<(), StoreError> {
        let facts = turn.look().await?;
        let mark = turn.session_mark();
        if facts.session != mark {
            return Err(self.connector().refused(POOLED));
        }
        facts.check_kind()?;
        self.connector().check(&facts)?;
        let (record, recorded) = (self.record()?, turn.recorded().await?);
        let is_another = record.server.is_some_and(|server| facts.identity() != Ok(server));
        if is_another || recorded != Some(record) {
            // A new connection says what became of it.
            drop(turn);
            self.connector().note_broken();
            self.turn("looking at the server").await?.give_back();
            return Err(self.lifted());
        }
        turn.give_back();
        Ok(())
    }

    fn lifted(&self) -> StoreError {
        self.connector().refused("the store was adopted or moved since this program began: restart this program")
    }

    /// The error of a statement that its fence held back.
    pub(crate) async fn held_back(&self, turn: Turn) -> StoreError {
        let doing = turn.doing;
        match self.check_fence(turn).await {
            Err(error) => error,
            // By now it would not be.
            Ok(()) => no_connection(self.at(), doing, "the server's settings change just now: try again"),
        }
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
        for session in idle {
            // A farewell, so that the server notes no broken connection; one that does not take it is dropped.
            let _ = timeout(self.connector().connect_timeout, session.connection.close()).await;
        }
    }

    /// Runs one statement that reads.
    pub(crate) async fn rows(&self, doing: &'static str, statement: Statement<'_>) -> Result<Vec<PgRow>, StoreError> {
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

    /// The same for work on all rows.
    pub(crate) async fn begin_long(&self, doing: &'static str) -> Result<Turn, StoreError> {
        let mut turn = self.turn(doing).await?;
        // A server that does not answer to this is not waited for any longer than for anything else.
        turn.run_text(BEGIN_LONG).await.map_err(|error| read_error(self.at(), doing, error))?;
        (turn.limit, turn.deadline) = (MAINTENANCE, Instant::now() + MAINTENANCE);
        Ok(turn)
    }

    /// A connection for some statements, all of them within the time that a request may take.
    pub(crate) async fn turn(&self, doing: &'static str) -> Result<Turn, StoreError> {
        let connector = self.connector();
        connector.process.check(&format!("the store at {}", connector.at))?;
        let wait_max = connector.wait_max();
        let limit = connector.request_timeout;
        let deadline = Instant::now() + limit;
        let session = match timeout(wait_max, self.pool.get()).await {
            Ok(Ok(session)) => session,
            Ok(Err(PoolError::Backend(error))) => return Err(error),
            Ok(Err(PoolError::Closed)) => return Err(no_connection(self.at(), doing, "the store was closed")),
            Ok(Err(error)) => return Err(no_connection(self.at(), doing, &error.to_string())),
            Err(_) => {
                let why = format!(
                    "no connection within {} ms: no PostgreSQL server answers there, or too many requests wait",
                    wait_max.as_millis()
                );
                return Err(no_connection(self.at(), doing, &why));
            }
        };
        Ok(Turn { session: Some(session), database: self.clone(), doing, limit, deadline })
    }
}

impl Manager for Connector {
    type Type = Session;
    type Error = StoreError;

    async fn create(&self) -> Result<Session, StoreError> {
        let connected = self.connect.connect().await;
        let mut connection = connected.map_err(|error| connect_error(&self.at, error))?;
        let mark = format!("{:032x}", random_128()?);
        let seen = self.look_at(&mut connection, &mark).await?;
        Ok(Session { connection, mark, seen })
    }

    async fn recycle(&self, session: &mut Session, metrics: &Metrics) -> RecycleResult<StoreError> {
        let is_suspect = lock(&self.broke).is_some_and(|broke| metrics.created <= broke);
        let is_of_another = !is_same(session.seen.as_ref(), lock(&self.expected).as_ref());
        if is_suspect || is_of_another || metrics.last_used() > IDLE_MAX || metrics.age() > LIFETIME_MAX {
            return Err(RecycleError::message("it is too old"));
        }
        if metrics.last_used() > IDLE_TRUSTED {
            // Half of the time, so that the other half is left for a new connection.
            let alive = timeout(self.wait_max() / 2, session.connection.ping()).await;
            if !matches!(alive, Ok(Ok(()))) {
                self.note_broken();
                return Err(RecycleError::message("it broke"));
            }
        }
        Ok(())
    }
}

/// Whether a session was looked at for what is expected now.
fn is_same(seen: Option<&Arc<Expected>>, expected: Option<&Arc<Expected>>) -> bool {
    match (seen, expected) {
        // It was opened before the server was known, and is the one that the server was known by.
        (None, _) => true,
        (Some(seen), Some(expected)) => Arc::ptr_eq(seen, expected),
        (Some(_), None) => false,
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

    fn expect(&self, facts: &ServerFacts, record: Record) -> Arc<Expected> {
        let fence = facts.fence(!self.assume_durable, &record);
        let expected = Arc::new(Expected { record, fence });
        *lock(&self.expected) = Some(expected.clone());
        expected
    }

    /// Sets a new connection up and checks where it leads.
    async fn look_at(&self, connection: &mut PgConnection, mark: &str) -> Result<Option<Arc<Expected>>, StoreError> {
        const DOING: &str = "setting a connection up";
        let failed = |error| read_error(&self.at, DOING, error);
        let before = ServerFacts::read(connection).await.map_err(failed)?;
        before.check_kind().map_err(|error| self.told(error))?;
        let schema = match (self.schema.get(), before.schema) {
            (Some(schema), _) => schema.as_str(),
            (None, Some(schema)) => self.schema.get_or_init(|| schema),
            (None, None) => {
                return Err(
                    self.refused("the user's search_path names no schema that is there: name one (schema=NAME)")
                );
            }
        };
        ServerFacts::set_session(connection, mark, schema, self.request_timeout).await.map_err(failed)?;
        // Before the server is asked: other grants go on meanwhile.
        let granted_at = self.log_position.load(Ordering::SeqCst);
        let facts = ServerFacts::read(connection).await.map_err(failed)?;
        if facts.session != mark {
            return Err(self.refused(POOLED));
        }
        if facts.schema.as_deref() != Some(schema) {
            return Err(self.refused(&format!(
                "there is no schema {schema:?} that the user may use: have the owner of the database run what `unalike schema` \
                 prints"
            )));
        }
        self.check(&facts)?;
        let expected = lock(&self.expected).clone();
        let Some(expected) = expected else { return Ok(None) };
        let recorded = read_record(connection, self.part).await.map_err(failed)?;
        let expected = self.check_recorded(connection, (&facts, granted_at), expected, recorded).await?;
        self.check_position(&expected.record, &facts, granted_at)?;
        Ok(Some(expected))
    }

    /// Checks that the server has not forgotten what it granted to this program.
    fn check_position(&self, record: &Record, facts: &ServerFacts, granted_at: i64) -> Result<(), StoreError> {
        if let Some(why) = self.forgot.get() {
            return Err(self.refused(why));
        }
        if record.server.is_none() || facts.log_position >= granted_at {
            return Ok(());
        }
        let why = format!(
            "it has forgotten grants of this program: its log ends at {:X}, and was at {granted_at:X} already. It is a copy of \
             its data from before: use the newer data; or lift all tags above everything that was handed out (`unalike store \
             restored --lift COUNT`); and then restart the programs that knew it",
            facts.log_position
        );
        Err(self.refused(self.forgot.get_or_init(|| why)))
    }

    /// Checks the settings.
    fn check(&self, facts: &ServerFacts) -> Result<(), StoreError> {
        if !self.assume_durable {
            let vouch = |why| self.refused(&format!("{why} (or vouch for it: durability=assumed)"));
            facts.check_durability().map_err(vouch)?;
        }
        let is_synchronous = lock(&self.expected).as_ref().is_some_and(|expected| expected.record.is_synchronous);
        if is_synchronous { facts.check_synchronous().map_err(|why| self.refused(&why)) } else { Ok(()) }
    }

    /// Checks that the server and its record are those that are expected. A synchronous standby that took over is
    /// adopted here, where the record allows it.
    async fn check_recorded(
        &self,
        connection: &mut PgConnection,
        (facts, granted_at): (&ServerFacts, i64),
        expected: Arc<Expected>,
        recorded: Option<String>,
    ) -> Result<Arc<Expected>, StoreError> {
        let Some(known) = expected.record.server else { return Ok(expected) };
        let text = recorded.unwrap_or_default();
        let Some(recorded) = Record::read(&text).filter(|recorded| recorded.mark == expected.record.mark) else {
            return Err(self.refused(&format!(
                "its store was adopted, moved or replaced since this program began ({text}, not {}): restart this program",
                expected.record
            )));
        };
        let found = facts.identity().map_err(|why| self.refused(&why))?;
        let Some(of_record) = recorded.server else { return Err(another_server(&self.at, known, found)) };
        if recorded == expected.record && found == known {
            return Ok(expected);
        }
        // The history that this program knows goes on here, and the record is not older than what it knows.
        if recorded.is_synchronous && of_record.continues(&known) {
            // Before it is recorded: one that has forgotten grants was not waited for.
            self.check_position(&expected.record, facts, granted_at)?;
            let record = take_over(connection, &self.at, self.part, &recorded, facts).await?;
            return Ok(self.expect(facts, record));
        }
        Err(another_server(&self.at, known, found))
    }

    fn refused(&self, why: &str) -> StoreError {
        StoreError::refused(format!("the server at {}: {why}", self.at))
    }

    /// The same error with the server's address.
    fn told(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Refused { what, source } => {
                StoreError::Refused { what: format!("the server at {}: {what}", self.at), source }
            }
            StoreError::Unavailable { what, source } => {
                StoreError::Unavailable { what: format!("the server at {}: {what}", self.at), source }
            }
            other => other,
        }
    }
}

/// What is recorded for a part of the store.
async fn read_record(connection: &mut PgConnection, part: &str) -> Result<Option<String>, sqlx::Error> {
    let rows = sqlx::query("SELECT server FROM unalike_store WHERE part = $1").bind(part).fetch_all(connection).await?;
    rows.first().map(|row| row.try_get("server")).transpose()
}

/// Has a store whose grants waited for a synchronous standby go on with a later timeline of the same data, and records
/// it in place of the earlier one. Answers the record as it is afterwards.
///
/// # Errors
/// [`StoreError::Refused`] when the server is no later timeline of the recorded one, or does not wait for a standby.
pub(crate) async fn take_over(
    connection: &mut PgConnection,
    at: &str,
    part: &'static str,
    recorded: &Record,
    facts: &ServerFacts,
) -> Result<Record, StoreError> {
    const TAKE_OVER: &str = "UPDATE unalike_store SET server = $1 WHERE part = $2 AND server = $3 \
        AND current_setting('unalike.session', true) = $4";
    const DOING: &str = "recording a standby that took over";
    let refused = |why: &str| StoreError::refused(format!("the server at {at}: {why}"));
    let found = facts.identity().map_err(|why| refused(&why))?;
    let is_later = recorded.server.is_some_and(|server| found.continues(&server) && recorded.is_synchronous);
    if !is_later {
        return Err(recorded
            .server
            .map_or_else(|| refused("its record names no server"), |server| another_server(at, server, found)));
    }
    facts.check_synchronous().map_err(|why| {
        // The record of the one before is not ended here.
        refused(&if recorded.server == Some(found) {
            why
        } else {
            "it took over, and its grants would wait for no standby: name one of its own (synchronous_standby_names), or \
             adopt it without one, by `unalike store adopt --lift COUNT` with failover=refused in the URL"
                .to_owned()
        })
    })?;
    let record = Record { server: Some(found), ..*recorded };
    if record != *recorded {
        let update = sqlx::query(TAKE_OVER).bind(record.to_string()).bind(part).bind(recorded.to_string());
        let updated = update.bind(&facts.session).execute(connection).await;
        let updated = updated.map_err(|error| write_error(at, DOING, error))?;
        if updated.rows_affected() == 0 {
            return Err(no_connection(at, DOING, "another program did so just now: try again"));
        }
        tracing::warn!(
            database = at,
            from = %recorded,
            to = %record,
            "a standby took over, and lacks no grant, as each waited for a synchronous standby"
        );
    }
    Ok(record)
}

/// The error when a server is not the recorded one: one that took over may lack the last commits of the one before, and
/// numbers would repeat. Data that came into a database of the same server from elsewhere are older than they were.
pub(crate) fn another_server(at: &str, recorded: ServerIdentity, found: ServerIdentity) -> StoreError {
    if recorded.is_restored_as(&found) {
        return StoreError::refused(format!(
            "the store at {at} is another one than before ({found}, not {recorded}): its data were restored from a dump, or \
             copied, and may lack the last commits. Lift its tags above everything that was handed out with `unalike store \
             restored --lift COUNT`, and then restart the programs that use it"
        ));
    }
    StoreError::refused(format!(
        "the server at {at} is another one than before ({found}, not {recorded}). If it took over from that one, or its data \
         were copied or restored, it may lack the last commits: lift its tags above everything that was handed out with \
         `unalike store adopt --lift COUNT`, and then restart the programs that knew the other one"
    ))
}

/// A connection in use. Unless it is given back, it is closed: nobody knows what is still under way on it.
pub(crate) struct Turn {
    session: Option<Object<Connector>>,
    database: Database,
    doing: &'static str,
    limit: Duration,
    deadline: Instant,
}

impl Turn {
    /// A statement that grants or changes something, with the conditions that every grant rests on where it says
    /// `{fence}`. Its first argument, the mark of the session, is bound.
    pub(crate) fn fenced<'q>(&self, statement: &str) -> Statement<'q> {
        let expected = lock(&self.database.connector().expected).clone();
        let text = match expected {
            Some(expected) => expected.fence.put_into(statement),
            None => Fence::closed().put_into(statement),
        };
        sqlx::query(AssertSqlSafe(text)).bind(self.session_mark())
    }

    fn session_mark(&self) -> String {
        self.session.as_ref().map(|session| session.mark.clone()).unwrap_or_default()
    }

    /// Runs a statement that writes, to the end of its transaction if it is one of its own: the rows are there when it
    /// is committed. After an error nothing more can be done.
    pub(crate) async fn write(&mut self, statement: Statement<'_>) -> Result<Vec<PgRow>, StoreError> {
        let (at, doing) = (self.database.at().to_owned(), self.doing);
        self.run(|connection| statement.fetch_all(connection)).await.map_err(|error| write_error(&at, doing, error))
    }

    /// The same for one that answers no rows: how many it changed.
    pub(crate) async fn execute(&mut self, statement: Statement<'_>) -> Result<u64, StoreError> {
        let (at, doing) = (self.database.at().to_owned(), self.doing);
        let done = self.run(|connection| statement.execute(connection)).await;
        done.map(|done| done.rows_affected()).map_err(|error| write_error(&at, doing, error))
    }

    /// The same for text without arguments, where some of the server's codes are the caller's business: the statement
    /// was not done then.
    pub(crate) async fn try_text(
        &mut self,
        sql: &'static str,
        expected: &[&str],
    ) -> Result<Result<(), String>, StoreError> {
        match self.run_text(sql).await {
            Ok(()) => Ok(Ok(())),
            Err(error) => match code(&error) {
                Some(code) if expected.contains(&code.as_str()) => Ok(Err(code)),
                _ => Err(write_error(self.database.at(), self.doing, error)),
            },
        }
    }

    /// Runs a statement that writes, where one of the server's codes is the caller's business: none then, and in a
    /// transaction nothing more can be done.
    pub(crate) async fn try_write(
        &mut self,
        statement: Statement<'_>,
        expected: &str,
    ) -> Result<Option<Vec<PgRow>>, StoreError> {
        let (at, doing) = (self.database.at().to_owned(), self.doing);
        match self.run(|connection| statement.fetch_all(connection)).await {
            Ok(rows) => Ok(Some(rows)),
            Err(error) if code(&error).as_deref() == Some(expected) => Ok(None),
            Err(error) => Err(write_error(&at, doing, error)),
        }
    }

    /// Runs a statement that reads.
    pub(crate) async fn rows(&mut self, statement: Statement<'_>) -> Result<Vec<PgRow>, StoreError> {
        let (at, doing) = (self.database.at().to_owned(), self.doing);
        self.run(|connection| statement.fetch_all(connection)).await.map_err(|error| read_error(&at, doing, error))
    }

    pub(crate) async fn look(&mut self) -> Result<ServerFacts, StoreError> {
        let (at, doing) = (self.database.at().to_owned(), self.doing);
        self.run(ServerFacts::read).await.map_err(|error| read_error(&at, doing, error))
    }

    /// What is recorded for this part of the store; none for what is no record.
    async fn recorded(&mut self) -> Result<Option<Record>, StoreError> {
        let (at, doing, part) = (self.database.at().to_owned(), self.doing, self.database.part());
        let read = self.run(|connection| read_record(connection, part)).await;
        let text = read.map_err(|error| read_error(&at, doing, error))?;
        Ok(text.and_then(|text| Record::read(&text)))
    }

    /// [`take_over`] on this connection.
    pub(crate) async fn take_over(&mut self, recorded: &Record, facts: &ServerFacts) -> Result<Record, StoreError> {
        let (at, part) = (self.database.at().to_owned(), self.database.part());
        let deadline = self.deadline;
        let Some(session) = &mut self.session else { return Err(no_connection(&at, self.doing, "it was closed")) };
        let taken = timeout_at(deadline.into(), take_over(&mut session.connection, &at, part, recorded, facts)).await;
        taken.unwrap_or_else(|_| Err(no_connection(&at, self.doing, "no answer in time")))
    }

    /// Begins a transaction, on a connection that has none. Without a commit it is rolled back.
    pub(crate) async fn begin(&mut self) -> Result<(), StoreError> {
        let begun = self.run_text(BEGIN).await;
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
    pub(crate) async fn roll_back(self) -> Result<(), StoreError> {
        self.end().await.map(Self::give_back)
    }

    /// Rolls back, and goes on with the connection.
    pub(crate) async fn end(mut self) -> Result<Self, StoreError> {
        let rolled_back = self.run_text("ROLLBACK").await;
        rolled_back.map_err(|error| read_error(self.database.at(), self.doing, error))?;
        Ok(self)
    }

    /// Nothing is under way on the connection: it is as good as new.
    pub(crate) fn give_back(mut self) {
        self.session = None;
    }

    async fn run_text(&mut self, sql: &'static str) -> Result<(), sqlx::Error> {
        self.run(|connection| connection.execute(sql)).await.map(drop)
    }

    /// Runs something to its end, or gives up when the time is up.
    async fn run<'c, T, F>(&'c mut self, work: impl FnOnce(&'c mut PgConnection) -> F) -> Result<T, sqlx::Error>
    where
        F: Future<Output = Result<T, sqlx::Error>>,
    {
        let Some(session) = &mut self.session else { return Err(sqlx::Error::PoolClosed) };
        let (connector, limit) = (self.database.connector(), self.limit);
        let done = timeout_at(self.deadline.into(), work(&mut session.connection)).await.unwrap_or_else(|_| {
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
        if let Some(session) = self.session.take() {
            // At once and without a word: on a server that hangs, a farewell would hang too.
            drop(Object::take(session));
        }
    }
}

/// A column of whole numbers of 0 or more.
pub(crate) fn number(database: &Database, row: &PgRow, column: &str) -> Result<u64, StoreError> {
    let value: i64 = row.try_get(column).map_err(|error| read_error(database.at(), "reading a row", error))?;
    u64::try_from(value).map_err(|_| damaged(database.at(), &format!("{column} is {value}, and is 0 or more")))
}

/// A number that a statement gets. What does not fit is beyond every row.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
