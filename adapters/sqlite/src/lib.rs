//! Segments and leases in one SQLite file, shared by all processes of a machine: the embedded default.
//!
//! Every grant is on the disk before anybody hears of it: the file runs with write-ahead logging and
//! `synchronous = FULL`, each grant is one transaction, and a statement is stepped to its end (which is the commit)
//! before its rows are believed. The file must lie on a local disk: write-ahead logging does not work over network file
//! systems.
//!
//! Outside the promise: a file that is deleted, or restored from an old backup without [`SqliteStore::restored`], takes
//! its knowledge of what was granted with it. A program that has the file open notices before its next grant that it
//! was deleted, moved or replaced (or the files beside it), and grants nothing any more.
//!
//! SQLite's locks belong to a process, and it loses them when *any* descriptor of the file is closed in it: by a second
//! copy of SQLite, by code that opens the file itself, by a daemon that closes what it inherited. On Linux a program
//! notices that before its next grant, and grants nothing any more until it is started again.
//!
//! One process writes at a time, and the others wait for it up to the busy timeout. Each grant is one statement, so the
//! right to write is never held while a program does anything else: from the statement's beginning to the end of its
//! flush. A process that is stopped just there (`SIGSTOP`, a frozen container, a machine that sleeps) keeps the others
//! waiting until it continues or ends; only the operating system can take the right from it. So do not freeze one of
//! several processes that share a file, and give those that must not wait for each other a database server.
//!
//! ```
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("ids.sqlite");
//! # runtime.block_on(async {
//! use unalike_sqlite::{SqliteOptions, SqliteStore};
//! use unalike_storage::SegmentStore;
//!
//! let store = SqliteStore::connect(SqliteOptions::new(path)).await?;
//! let segment = store.allocate("order", 1_000, 0).await?;
//! assert_eq!((segment.start, segment.end), (1, 1_001));
//! store.close().await;
//! # Ok::<(), unalike_storage::StoreError>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod copies;
mod error;
mod held;
mod leases;
mod locks;
mod restored;
mod segments;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions, SqliteRow, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Row, Sqlite, SqliteConnection};
use unalike_storage::{ClockSteps, LeaseLimits, NotBegun, Process, StoreError, Stripe, TagCreation};

use crate::error::{damaged, is_busy, open_error, read_error, write_error};
use crate::held::{Held, beside};
pub use crate::restored::Restored;

/// Marks the file as unalike's, in its header: "unal" in ASCII.
const APPLICATION_ID: i64 = 0x756e_616c;

/// The version of [`SCHEMA`], in the file's header.
const USER_VERSION: i64 = 2;

/// The version before, which [`UPGRADE`] makes into this one.
const USER_VERSION_BEFORE: i64 = 1;

/// Connections that read; they never wait for the one that writes.
const READERS_MAX: u32 = 2;

/// The longest busy timeout: a request must end in bounded time.
const BUSY_TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// A turn takes a flush, and the first one opens the connection: so long is waited for it at least.
const TURN_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// How long to wait for another process that is just creating the file, before the next look at it.
const RETRY: Duration = Duration::from_millis(5);

/// All tables. Numbers are 0 to 2^63 - 1, SQLite's positive integers; where 64 unsigned bits are possible (the figures
/// of policies) they are kept in two's complement.
const SCHEMA: &str = include_str!("sql/schema.sql");

/// Makes a file of version 1 into one of version 2 by adding to it: programs of version 1 that have it open go on.
const UPGRADE: &str = include_str!("sql/upgrade.sql");

/// Whether a file has no identity, as those of earlier programs.
const LACKS_IDENTITY: &str = include_str!("sql/lacks_identity.sql");

/// Gives it one. Programs that have the file open go on.
const GIVE_IDENTITY: &str = include_str!("sql/give_identity.sql");

/// Whether the triggers of a file count sub-keys as tags, as they did at first.
const COUNTS_SUB_KEYS: &str = include_str!("sql/counts_sub_keys.sql");

/// The triggers that are not unalike's own, and the tables that are not as it made them.
const NOT_AS_MADE: &str = include_str!("sql/not_as_made.sql");

/// Has them count as those of a new file do. Programs that have the file open run its triggers, and go on.
const COUNT_TAGS_ALONE: &str = include_str!("sql/count_tags_alone.sql");

/// Where the file is, and what its clients may do.
///
/// Releases add fields: write `..SqliteOptions::new(path)` at the end.
///
/// ```
/// use std::time::Duration;
/// use unalike_sqlite::SqliteOptions;
/// let options = SqliteOptions { busy_timeout: Duration::from_secs(1), ..SqliteOptions::new("ids.sqlite") };
/// assert!(options.create);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqliteOptions {
    /// The file; SQLite puts a `-wal` and a `-shm` file beside it. A relative path counts from the working directory.
    pub path: PathBuf,
    /// Create the file when it does not exist. Its directory must exist.
    pub create: bool,
    /// Whether tags are created on first use, and how many there may be.
    pub creation: TagCreation,
    /// What lease holders are allowed.
    pub limits: LeaseLimits,
    /// How long a request waits for its turn in this process (a second at least), and again for other processes: 10
    /// minutes at most.
    pub busy_timeout: Duration,
}

impl SqliteOptions {
    /// This file, created when it does not exist; 5 s of waiting, and the defaults of tags and leases.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            create: true,
            creation: TagCreation::default(),
            limits: LeaseLimits::default(),
            busy_timeout: Duration::from_secs(5),
        }
    }

    /// Reads `sqlite://PATH[?PARAMETERS]`.
    ///
    /// | parameter | meaning | default |
    /// | --- | --- | --- |
    /// | `create` | `true` or `false`: [`create`](Self::create) | `true` |
    /// | `busy-timeout-ms` | milliseconds, 0 to 600000: [`busy_timeout`](Self::busy_timeout) | 5000 |
    ///
    /// The path is taken as it is written, to the first `?`. What would mean another file to SQLite, or to other
    /// programs that read such a URL, is refused: `:memory:`, `file:..`, a `#`, and percent-encoded characters.
    ///
    /// ```
    /// use unalike_sqlite::SqliteOptions;
    /// let options = SqliteOptions::from_url("sqlite:///var/lib/ids.sqlite?create=false")?;
    /// assert_eq!((options.path.to_str(), options.create), (Some("/var/lib/ids.sqlite"), false));
    /// assert!(SqliteOptions::from_url("sqlite://ids.sqlite?mode=rwc").is_err());
    /// # Ok::<(), unalike_storage::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// [`StoreError::Refused`] saying which part is wrong, and what can be written.
    pub fn from_url(text: &str) -> Result<Self, StoreError> {
        let Some(rest) = text.strip_prefix("sqlite://") else {
            return Err(StoreError::refused(format!("the store {text:?} must be a URL like sqlite://PATH")));
        };
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        // Earlier programs took all of it for the path, and made such a file.
        let left_over = if rest != path && Path::new(rest).exists() {
            format!("; a file {rest:?} is there, which earlier versions made of such a URL: rename it to go on with it")
        } else {
            String::new()
        };
        let wrong = |what: String| Err(StoreError::refused(format!("the store {text:?} {what}{left_over}")));
        if path.is_empty() {
            return wrong("names no file: write sqlite://PATH".to_owned());
        }
        if path.starts_with(":memory:") || path.starts_with("file:") {
            return wrong(format!(
                "names {path:?}, which means no plain file to SQLite, and numbers must be kept: name one, sqlite://PATH"
            ));
        }
        if path.contains('#') || is_encoded(path) {
            return wrong(format!(
                "has a path that others would read as another one, {path:?}: a path is taken as it is written, and may have \
                 neither a # nor a % with two hexadecimal digits after it; name or rename the file without"
            ));
        }
        let mut options = Self::new(path);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let is_set = match name {
                "create" => value.parse().map(|create| options.create = create).is_ok(),
                "busy-timeout-ms" => {
                    let timeout = value.parse().map(Duration::from_millis).ok();
                    let timeout = timeout.filter(|timeout| *timeout <= BUSY_TIMEOUT_MAX);
                    timeout.map(|timeout| options.busy_timeout = timeout).is_some()
                }
                _ => {
                    return wrong(format!(
                        "has the parameter {name:?}, which is unknown: there are create (true or false) and busy-timeout-ms"
                    ));
                }
            };
            if !is_set {
                return wrong(format!(
                    "has {name}={value}: create is true or false, busy-timeout-ms a whole number from 0 to {}",
                    BUSY_TIMEOUT_MAX.as_millis()
                ));
            }
        }
        Ok(options)
    }
}

/// Whether a path has a character in it as URLs encode them.
fn is_encoded(path: &str) -> bool {
    path.as_bytes()
        .windows(3)
        .any(|three| matches!(three, [b'%', a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit()))
}

/// Segments and leases in one SQLite file; clones share its connections.
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("ids.sqlite");
/// # runtime.block_on(async {
/// use unalike_sqlite::{SqliteOptions, SqliteStore};
/// use unalike_storage::SegmentStore;
/// let store = SqliteStore::connect(SqliteOptions::new(path)).await?;
/// assert_eq!(store.allocate("order", 10, 0).await?.end, 11);
/// store.close().await;
/// # Ok::<(), unalike_storage::StoreError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SqliteStore {
    path: Arc<Path>,
    creation: TagCreation,
    limits: LeaseLimits,
    /// Where its clock was set, as far as this process has seen.
    steps: Arc<ClockSteps>,
    /// The stripe that this client joined.
    joined: Option<Stripe>,
    /// One connection, since SQLite has one writer: waiting here is fair, waiting for its lock is a poll.
    writer: SqlitePool,
    readers: SqlitePool,
    held: Arc<Held>,
    /// Whose connections these are: SQLite allows no use of them in a child.
    process: Process,
}

impl SqliteStore {
    /// Opens the file, or creates it, and proves that it can be written to. A file of the previous schema is upgraded
    /// to this one; programs of the previous version that have it open continue.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when the file or its directory is missing, is not writable, or belongs to another
    /// program or to a newer version of this one (it is then left as it is); [`StoreError::Corrupt`] when it is not a
    /// database, or is a damaged one; [`StoreError::Unavailable`] when another process keeps it locked. Each says what
    /// to do.
    pub async fn connect(options: SqliteOptions) -> Result<Self, StoreError> {
        options.limits.validate()?;
        if options.busy_timeout > BUSY_TIMEOUT_MAX {
            return Err(StoreError::refused(format!(
                "a busy timeout of {:?} was asked for, {BUSY_TIMEOUT_MAX:?} is the limit",
                options.busy_timeout
            )));
        }
        // An absolute path is always a file: SQLite reads ":memory:" and "file:..?mode=memory" as something that
        // forgets.
        let path = std::path::absolute(&options.path)
            .map_err(|error| StoreError::refused(format!("the path {:?} is not usable: {error}", options.path)))?;
        look_at_file(&path, options.create)?;
        let connect = SqliteConnectOptions::new().filename(&path).busy_timeout(options.busy_timeout);
        let held = Held::begin(&path)?;
        if path.exists()
            && let Err(error) = check_header(&path, connect.clone()).await
        {
            held.close().await;
            return Err(error);
        }

        let connect = connect
            .synchronous(SqliteSynchronous::Full)
            // On macOS fsync alone leaves data in the drive's cache; elsewhere these two do nothing.
            .pragma("fullfsync", "ON")
            .pragma("checkpoint_fullfsync", "ON");
        let pool = |size| {
            SqlitePoolOptions::new()
                .max_connections(size)
                .acquire_timeout(options.busy_timeout.max(TURN_TIMEOUT_MIN))
                .idle_timeout(None)
                .max_lifetime(None)
                // After an error in a commit SQLite has rolled back by itself, and the driver, whose own rollback then
                // fails, goes on counting an open transaction: such a connection is replaced.
                .before_acquire(|connection, _| Box::pin(async move { Ok(!connection.is_in_transaction()) }))
        };
        let read = connect.clone().pragma("query_only", "ON");
        let store = Self {
            writer: pool(1).connect_lazy_with(connect.create_if_missing(options.create)),
            readers: pool(READERS_MAX).connect_lazy_with(read.clone()),
            held: Arc::new(held),
            path: path.into(),
            creation: options.creation,
            limits: options.limits,
            steps: Arc::default(),
            joined: None,
            process: Process::current(),
        };
        store.held.add([store.writer.clone(), store.readers.clone()]);
        match store.prepare(&read, options.busy_timeout).await {
            Ok(()) => Ok(store),
            Err(error) => {
                store.close().await;
                Err(error)
            }
        }
    }

    /// Makes the file ready, holds on to it, and proves that it can be used.
    async fn prepare(&self, read: &SqliteConnectOptions, busy_timeout: Duration) -> Result<(), StoreError> {
        let is_new = self.prepare_file(busy_timeout).await?;
        self.held.hold(read).await?;
        self.prove_writable().await?;
        self.check_tables().await?;
        // What it shows from now on is compared with this. One that cannot be read is told of by who needs it.
        let _ = self.read_clock().await;
        if is_new {
            // Whoever mistyped a path must hear that the numbers of another store do not go on here.
            let identity = segments::identity(self).await?;
            tracing::warn!(
                path = %self.path.display(),
                %identity,
                "made a new store: every tag begins here at its first number"
            );
        }
        Ok(())
    }

    /// Closes all connections and waits until that is done; requests fail from now on.
    ///
    /// Not needed for safety: a process may end at any time.
    pub async fn close(&self) {
        if !self.process.is_current() {
            return;
        }
        self.held.close().await;
    }

    /// Creates the tables in a new file, checks those of an old one, and switches the file to write-ahead logging.
    /// Answers whether it created them.
    async fn prepare_file(&self, busy_timeout: Duration) -> Result<bool, StoreError> {
        let failed = |error| open_error(&self.path, error);
        let mut connection = self.writer()?.acquire().await.map_err(failed)?;
        // In a transaction, so that all of it is read before or after another process creates the tables.
        let mut transaction = connection.begin().await.map_err(failed)?;
        let version = schema_version(&self.path, &mut transaction).await?;
        transaction.rollback().await.map_err(failed)?;
        let is_new = version != Some(USER_VERSION) && self.write_schema(&mut connection).await?;
        let doing = "counting tags without their sub-keys";
        self.change_schema(&mut connection, doing, COUNTS_SUB_KEYS, COUNT_TAGS_ALONE).await?;
        self.change_schema(&mut connection, "giving the store an identity", LACKS_IDENTITY, GIVE_IDENTITY).await?;
        let mut tries_left = busy_timeout.as_millis() / RETRY.as_millis();
        loop {
            let mode = sqlx::query_scalar::<_, String>("PRAGMA journal_mode = WAL").fetch_all(&mut *connection).await;
            match mode {
                Ok(mode) if mode == ["wal"] => break,
                Ok(mode) => {
                    return Err(StoreError::refused(format!(
                        "{}: write-ahead logging is not possible there (journal mode {mode:?}): use a local disk",
                        self.path.display()
                    )));
                }
                // Two processes that start at once: SQLite does not wait by itself in this statement.
                Err(error) if is_busy(&error) && tries_left > 0 => {
                    tries_left -= 1;
                    tokio::time::sleep(RETRY).await;
                }
                Err(error) => return Err(write_error(&self.path, "switching to write-ahead logging", error)),
            }
        }
        Ok(is_new)
    }

    /// Creates the tables, or upgrades them; answers whether it created them.
    async fn write_schema(&self, connection: &mut SqliteConnection) -> Result<bool, StoreError> {
        let failed = |error| write_error(&self.path, "writing the schema", error);
        let mut transaction = connection.begin_with("BEGIN EXCLUSIVE").await.map_err(failed)?;
        // Another process may have been quicker.
        let (statements, is_new) = match schema_version(&self.path, &mut transaction).await? {
            Some(USER_VERSION) => return transaction.rollback().await.map(|()| false).map_err(failed),
            Some(_) => (UPGRADE, false),
            None => (SCHEMA, true),
        };
        sqlx::raw_sql(statements).execute(&mut *transaction).await.map_err(failed)?;
        transaction.commit().await.map_err(failed)?;
        if !is_new {
            tracing::info!(path = %self.path.display(), version = USER_VERSION, "upgraded the store's schema");
        }
        Ok(is_new)
    }

    /// The connection that writes: not in a forked child, nor to a file that others do not find.
    fn writer(&self) -> Result<&SqlitePool, StoreError> {
        self.process.check(&self.path.display().to_string())?;
        self.held.check()?;
        Ok(&self.writer)
    }

    /// Those that read, likewise.
    fn readers(&self) -> Result<&SqlitePool, StoreError> {
        self.process.check(&self.path.display().to_string())?;
        self.held.check()?;
        Ok(&self.readers)
    }

    /// Runs statements that change the schema of an earlier program, if this question has the answer 1.
    async fn change_schema(
        &self,
        connection: &mut SqliteConnection,
        doing: &str,
        is_due: &'static str,
        statements: &'static str,
    ) -> Result<(), StoreError> {
        if read_value(&self.path, connection, is_due).await? == 0 {
            return Ok(());
        }
        let failed = |error| write_error(&self.path, doing, error);
        let mut transaction = connection.begin_with("BEGIN EXCLUSIVE").await.map_err(failed)?;
        // Another process may have been quicker.
        if read_value(&self.path, &mut transaction, is_due).await? > 0 {
            sqlx::raw_sql(statements).execute(&mut *transaction).await.map_err(failed)?;
        }
        transaction.commit().await.map_err(failed)
    }

    /// Refuses tables that another program has changed: without their keys a row could come twice, and a trigger could
    /// set back what was granted.
    async fn check_tables(&self) -> Result<(), StoreError> {
        let rows = sqlx::query(NOT_AS_MADE).fetch_all(self.readers()?).await;
        let rows = rows.map_err(|error| read_error(&self.path, "looking at the tables", error))?;
        let Some(row) = rows.first() else { return Ok(()) };
        let (name, file): (String, _) = (self.column(row, "name")?, self.path.display());
        Err(StoreError::refused(match self.column(row, "kind")? {
            "trigger" => format!(
                "{file}: another program has made the trigger {name:?} on the table {:?}, and it could change what is granted: \
                 drop it (DROP TRIGGER {name})",
                self.column::<String>(row, "of")?
            ),
            _ => format!(
                "{file}: another program has changed the table {name:?}: it is not the table, with the key, that unalike made, \
                 so numbers could repeat; make it again from `.schema` of a new file, and copy the rows"
            ),
        }))
    }

    /// Takes the write lock and gives it back.
    async fn prove_writable(&self) -> Result<(), StoreError> {
        // It writes nothing, but SQLite takes the lock first.
        let probe = sqlx::query("UPDATE store SET tags = tags WHERE id = 0").execute(self.writer()?).await;
        let failed = |error| read_error(&self.path, "checking that the store can be written to", error);
        probe.map(drop).map_err(failed)
    }

    /// Runs one statement that writes, to its end, and answers its rows. They come before its commit, so they count
    /// only after it; and only if the files that are open are still those that others find.
    ///
    /// Whatever is written is one statement: SQLite has one writer, and whoever is stopped between two statements of a
    /// transaction stops all others. What a statement rests on is read before, and is part of its condition.
    async fn write(&self, doing: &str, statement: WriteStatement<'_>) -> Result<Vec<SqliteRow>, StoreError> {
        let rows = statement.fetch_all(self.writer()?).await;
        let rows = rows.map_err(|error| write_error(&self.path, doing, error))?;
        self.held.check_grant()?;
        Ok(rows)
    }

    /// A column that holds a number of 0 or more.
    fn number(&self, row: &SqliteRow, column: &str) -> Result<u64, StoreError> {
        let value: i64 = self.column(row, column)?;
        u64::try_from(value).map_err(|_| damaged(&self.path, &format!("{column} is {value}, and is never negative")))
    }

    fn column<'r, T>(&self, row: &'r SqliteRow, column: &str) -> Result<T, StoreError>
    where
        T: sqlx::Decode<'r, Sqlite> + sqlx::Type<Sqlite>,
    {
        row.try_get(column).map_err(|error| read_error(&self.path, "reading a row", error))
    }
}

type WriteStatement<'q> = sqlx::query::Query<'q, Sqlite, sqlx::sqlite::SqliteArguments>;

/// Checks what can be seen without opening the file.
///
/// It is never opened by any means but SQLite's: closing a file drops all locks that this process holds on it, also
/// those of another store in it.
fn look_at_file(path: &Path, create: bool) -> Result<(), StoreError> {
    let file = path.display();
    if path.to_str().is_none() {
        return Err(StoreError::refused(format!("the path {file} is not UTF-8, which SQLite needs: choose another")));
    }
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(StoreError::refused(format!("{file} is a directory: name a file in it"))),
        Ok(found) if found.len() == 0 && !create => Err(StoreError::refused(format!(
            "{file} is empty: restore it from a backup, or have it made anew if nothing was ever handed out from it (`unalike \
             serve`, without create=false in the URL)"
        ))),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let directory = path.parent().unwrap_or(path);
            if !directory.is_dir() {
                Err(StoreError::refused(format!("the directory {} does not exist: create it", directory.display())))
            } else if let Some(log) = log_left_behind(path) {
                Err(StoreError::refused(format!(
                    "{file} does not exist, and its log {} does: it was deleted or moved while a program had it open. Stop all \
                     programs that use the store and put the file back beside its log. If it is lost, remove the log, put \
                     a backup or a new store there (unalike tags create), and run `unalike store restored --lift COUNT` before \
                     any program uses it",
                    log.display()
                )))
            } else if !create {
                let what = format!(
                    "{file} does not exist, and is not to be made here (create=false, or a command that begins no store): check \
                     the path; `unalike serve`, `next` and `tags create` make a new store"
                );
                Err(StoreError::refused(what).with_source(NotBegun))
            } else {
                Ok(())
            }
        }
        Err(error) => Err(StoreError::Refused {
            what: format!("{file} cannot be looked at: this user must be able to enter its directory"),
            source: Some(Box::new(error)),
        }),
    }
}

/// The log of a file that is gone. SQLite makes the file first, and takes the log away when the last program closes it.
fn log_left_behind(path: &Path) -> Option<PathBuf> {
    Some(beside(path, "-wal")).filter(|log| log.exists())
}

/// Refuses a file that is not ours before anything could change it.
///
/// An immutable connection reads only the file, takes no lock and leaves no other files behind. What it sees may be
/// older than the write-ahead log, so [`schema_version`] looks again later. It may also be half of what another process
/// is just writing while it creates the file, so a refusal needs a second look.
async fn check_header(path: &Path, connect: SqliteConnectOptions) -> Result<(), StoreError> {
    let connect = connect.read_only(true).immutable(true);
    if look_at_header(path, &connect).await.is_ok() {
        return Ok(());
    }
    tokio::time::sleep(RETRY).await;
    look_at_header(path, &connect).await
}

async fn look_at_header(path: &Path, connect: &SqliteConnectOptions) -> Result<(), StoreError> {
    let mut connection = connect.connect().await.map_err(|error| open_error(path, error))?;
    let version = schema_version(path, &mut connection).await;
    // It holds nothing that closing could lose.
    let _ = connection.close().await;
    version.map(drop)
}

/// The version of the store's schema, one that this program can use; none when the file is empty.
async fn schema_version(path: &Path, connection: &mut SqliteConnection) -> Result<Option<i64>, StoreError> {
    let application_id: i64 = read_value(path, connection, "PRAGMA application_id").await?;
    let user_version: i64 = read_value(path, connection, "PRAGMA user_version").await?;
    let file = path.display();
    match (application_id, user_version) {
        (APPLICATION_ID, USER_VERSION_BEFORE | USER_VERSION) => Ok(Some(user_version)),
        (APPLICATION_ID, version) if version > USER_VERSION => Err(StoreError::refused(format!(
            "{file} was written by a newer version of unalike (schema {version}, this one knows {USER_VERSION}): \
             upgrade this process"
        ))),
        (APPLICATION_ID, version) => Err(damaged(path, &format!("its schema has the version {version}"))),
        (0, 0) if read_value(path, connection, "SELECT count(*) FROM sqlite_schema").await? == 0 => Ok(None),
        _ => Err(StoreError::refused(format!(
            "{file} is the database of another program (application id {application_id:#x}): name another file"
        ))),
    }
}

async fn read_value(path: &Path, connection: &mut SqliteConnection, sql: &'static str) -> Result<i64, StoreError> {
    sqlx::query_scalar(sql).fetch_one(connection).await.map_err(|error| open_error(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_marks_the_file_as_ours() {
        assert!(SCHEMA.contains(&format!("PRAGMA application_id = {APPLICATION_ID};")));
        assert!(SCHEMA.contains(&format!("PRAGMA user_version = {USER_VERSION};")));
        assert!(UPGRADE.contains(&format!("PRAGMA user_version = {USER_VERSION};")));
        assert_eq!(APPLICATION_ID.to_be_bytes()[4..], *b"unal");
    }

    #[test]
    fn an_old_file_comes_to_count_as_a_new_one() {
        let triggers = |text: &str| {
            let (_, triggers) = text.split_once("CREATE TRIGGER tag_created").unwrap();
            triggers.split("END;").take(2).collect::<String>()
        };
        assert_eq!(triggers(SCHEMA), triggers(COUNT_TAGS_ALONE));
    }

    #[test]
    fn an_upgraded_file_refuses_the_same_statements_as_a_new_one() {
        let (_, trigger) = SCHEMA.split_once("CREATE TRIGGER tag_granted").unwrap();
        let (trigger, _) = trigger.split_once("END;").unwrap();
        assert!(UPGRADE.contains(trigger), "{trigger}");
    }
}
