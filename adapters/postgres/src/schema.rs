//! The tables: that they are there, that they are what grants rest on, and on which server.
//!
//! `unalike_store` has a row for each part of the store that was used: unalike's own tags, and sequences, each with the
//! server that it was last seen on; and one for what concerns the leases of all namespaces.

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row as _};
use unalike_storage::{NotBegun, StoreError, StoreIdentity};

use crate::database::{Database, Statement, Turn, another_server, number};
use crate::error::{DUPLICATE, NOT_ALLOWED, TABLE_EXISTS, TYPE_EXISTS, damaged, no_connection, read_error};
use crate::fence::ServerFacts;
use crate::record::{Record, ServerIdentity};
use crate::{Dialect, PostgresOptions};

/// The version of the tables that this program creates, and the only one that it serves.
pub(crate) const VERSION: i64 = 1;

/// A table, and what the grants that come from it rest on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    /// The statements that create it.
    pub(crate) ddl: &'static [&'static str],
    /// The columns of its primary key.
    key: &'static str,
    /// Columns with their types; text has the collation `C`, which compares bytes.
    columns: &'static [&'static str],
}

pub(crate) const STORE: Shape = Shape {
    name: "unalike_store",
    ddl: &[include_str!("sql/unalike_store.sql")],
    key: "part",
    columns: &["part text C", "version bigint", "server text", "identity text", "tags bigint", "stripe_set bytea"],
};

pub(crate) const TAG: Shape = Shape {
    name: "unalike_tag",
    ddl: &[include_str!("sql/unalike_tag.sql")],
    key: "tag",
    columns: &["tag text C", "start bigint", "settled bigint", "watermark bigint", "version bigint", "mark bytea"],
};

pub(crate) const NAMESPACE: Shape = Shape {
    name: "unalike_lease_namespace",
    ddl: &[include_str!("sql/unalike_lease_namespace.sql")],
    key: "namespace",
    columns: &["namespace text C", "max_horizon_ms bigint", "floor_ms bigint"],
};

pub(crate) const LEASE: Shape = Shape {
    name: "unalike_lease",
    ddl: &[
        include_str!("sql/unalike_lease.sql"),
        "CREATE INDEX IF NOT EXISTS unalike_lease_end ON unalike_lease (namespace, valid_until_ms)",
        "CREATE INDEX IF NOT EXISTS unalike_lease_holder ON unalike_lease (namespace, holder, valid_until_ms)",
    ],
    key: "namespace,worker",
    columns: &[
        "namespace text C",
        "worker bigint",
        "grant_id bytea",
        "not_before_ms bigint",
        "valid_until_ms bigint",
        "is_final boolean",
    ],
};

/// Whether there is a table of tags of unalike's own that this user may look into.
pub(crate) const HAS_TAGS: &str = "SELECT 1 WHERE has_table_privilege(to_regclass('unalike_tag'), 'SELECT')";

/// The statements that create these tables.
pub(crate) fn ddl(shapes: &[Shape]) -> Vec<String> {
    shapes.iter().flat_map(|shape| shape.ddl).map(|statement| statement.trim().to_owned()).collect()
}

/// The least privileges on these tables.
pub(crate) fn privileges(shapes: &[Shape]) -> Vec<(String, &'static str)> {
    shapes.iter().map(|shape| (shape.name.to_owned(), "SELECT, INSERT, UPDATE")).collect()
}

/// Creates tables that are missing, if that is allowed, and makes sure that all are what grants rest on.
///
/// # Errors
/// [`StoreError::Refused`] saying what is wrong with which table.
pub(crate) async fn open_tables(
    database: &Database,
    options: &PostgresOptions,
    shapes: &[Shape],
) -> Result<(), StoreError> {
    for shape in shapes {
        // Twice, when it is created in between.
        let look = async || Found::read(database, &database.rows(LOOKING, look_at(shape.name)).await?);
        let mut found = look().await?;
        if found.is_none() {
            create(database, options, shape).await?;
            found = look().await?;
        }
        let Some(found) = found else { return Err(missing(database, shape.name, NOT_CREATED)) };
        found.check_for(database, shape)?;
    }
    Ok(())
}

/// Makes sure that tables still are what grants rest on, before one of them is believed that something is not in it.
///
/// # Errors
/// [`StoreError::Refused`] saying what is wrong with which table.
pub(crate) async fn check_again(turn: &mut Turn, database: &Database, shapes: &[Shape]) -> Result<(), StoreError> {
    for shape in shapes {
        let rows = turn.rows(look_at(shape.name)).await?;
        let found = Found::read(database, &rows)?.ok_or_else(|| missing(database, shape.name, NOT_CREATED))?;
        found.check_for(database, shape)?;
    }
    Ok(())
}

/// Why a table is not created.
const NOT_CREATED: &str = "is not to be created here (create=false, or a command that begins no store)";

fn missing(database: &Database, name: &str, why: &str) -> StoreError {
    StoreError::refused(format!(
        "{}: the table {name} is missing, and {why}: have the owner of the database run what `unalike schema` prints",
        database.at()
    ))
}

/// Refuses a table that is missing, and was there: it would begin anew. `unalike_store` has counted its tags, or has
/// the row of leases, which is written once their tables are there. (That of another part may come before its tables:
/// it is for leases too.)
async fn refuse_lost(database: &Database, shape: &Shape) -> Result<(), StoreError> {
    let begun = match shape.name {
        name if name == TAG.name => "SELECT 1 FROM unalike_store WHERE tags > 0 LIMIT 1",
        name if name == NAMESPACE.name || name == LEASE.name => "SELECT 1 FROM unalike_store WHERE part = 'leases'",
        _ => return Ok(()),
    };
    let mut turn = database.turn(LOOKING).await?;
    let has_store = has_table(&mut turn, database, STORE.name).await?;
    let begun = if has_store { turn.rows(sqlx::query(begun)).await? } else { Vec::new() };
    // Another program may have made the tables, and begun, since this one looked.
    let is_lost = !begun.is_empty() && !has_table(&mut turn, database, shape.name).await?;
    turn.give_back();
    if !is_lost {
        return Ok(());
    }
    Err(StoreError::refused(format!(
        "the table {} is missing, and the store at {} has begun: restore it from a backup, then run `unalike store restored \
         --lift COUNT`",
        shape.name,
        database.at()
    )))
}

async fn create(database: &Database, options: &PostgresOptions, shape: &Shape) -> Result<(), StoreError> {
    refuse_lost(database, shape).await?;
    if !options.create_tables {
        return Err(missing(database, shape.name, NOT_CREATED).with_source(NotBegun));
    }
    let mut turn = database.turn("creating tables").await?;
    for statement in shape.ddl {
        // Somebody else may create it at the same time: then there is one.
        let done = turn.try_text(statement, &[NOT_ALLOWED, TABLE_EXISTS, TYPE_EXISTS, DUPLICATE]).await?;
        if done.is_err_and(|code| code == NOT_ALLOWED) {
            return Err(missing(database, shape.name, "the user may not create it"));
        }
    }
    turn.give_back();
    Ok(())
}

/// A table as the server describes it.
struct Found {
    kind: String,
    persistence: String,
    is_odd: bool,
    is_subscribed: bool,
    key: String,
    columns: Vec<String>,
}

impl Found {
    fn read(database: &Database, rows: &[PgRow]) -> Result<Option<Self>, StoreError> {
        let Some(row) = rows.first() else { return Ok(None) };
        let found = || -> Result<Self, sqlx::Error> {
            Ok(Self {
                kind: row.try_get("kind")?,
                persistence: row.try_get("persistence")?,
                is_odd: row.try_get("is_odd")?,
                is_subscribed: row.try_get("is_subscribed")?,
                key: row.try_get("key")?,
                columns: row.try_get("columns")?,
            })
        };
        found().map(Some).map_err(|error| read_error(database.at(), LOOKING, error))
    }

    fn check_for(&self, database: &Database, shape: &Shape) -> Result<(), StoreError> {
        self.check(shape).map_err(|why| {
            let (at, name) = (database.at(), shape.name);
            StoreError::refused(format!("{at}: the table {name} {why}; `unalike schema` prints what is needed"))
        })
    }

    fn check(&self, shape: &Shape) -> Result<(), String> {
        if self.kind != "r" {
            return Err("is no ordinary table".to_owned());
        }
        if self.persistence != "p" {
            return Err(
                "is unlogged: a crash empties it, and numbers would repeat (ALTER TABLE .. SET LOGGED)".to_owned()
            );
        }
        if self.is_odd {
            return Err("has triggers, rules, row security or partitions, and may not do what a grant says".to_owned());
        }
        if self.is_subscribed {
            return Err(
                "is written by logical replication, which may put old rows over newer ones: end the subscription"
                    .to_owned(),
            );
        }
        if self.key != shape.key {
            return Err(format!("has the primary key ({}), it must be ({})", self.key, shape.key));
        }
        let wrong = shape.columns.iter().find(|column| !self.has(column));
        wrong.map_or(Ok(()), |column| Err(format!("lacks the column {column}")))
    }

    fn has(&self, column: &str) -> bool {
        // A collation is demanded where one is named.
        self.columns.iter().any(|found| found == column || found.strip_suffix(" C") == Some(column))
    }
}

const LOOKING: &str = "looking at tables";

fn look_at<'q>(name: &'static str) -> Statement<'q> {
    sqlx::query(include_str!("sql/look_at_table.sql")).bind(name)
}

/// Whether a table is there.
async fn has_table(turn: &mut Turn, database: &Database, name: &str) -> Result<bool, StoreError> {
    let rows = turn.rows(sqlx::query("SELECT to_regclass($1) IS NOT NULL AS found").bind(name)).await?;
    let found = rows.first().map(|row| row.try_get("found")).transpose();
    found.map(|found| found.unwrap_or(false)).map_err(|error| read_error(database.at(), "looking at tables", error))
}

/// Reads the row of this part of the store, or writes it into a new database, and makes sure that the server is the one
/// it names: it alone, from now on.
///
/// # Errors
/// [`StoreError::Refused`] when the tables are missing and may not be created, when they are of another version, and
/// when the server is another one than before.
pub(crate) async fn open(database: &Database, options: &PostgresOptions) -> Result<(), StoreError> {
    let refused = |why: String| StoreError::refused(format!("the server at {}: {why}", database.at()));
    open_tables(database, options, &[STORE]).await?;
    // Now that the table is there, which is a part of its identity.
    let facts = &database.look().await?;
    let (recorded, text) = match read(database).await? {
        Some(read) => read,
        None => create_row(database, facts, options).await?,
    };
    if options.assume_identity {
        database.expect(facts, Record { server: None, is_synchronous: false, ..recorded });
        return Ok(());
    }
    let found = facts.identity().map_err(refused)?;
    let record = match recorded.server {
        Some(server) if server == found => recorded,
        Some(server) if !recorded.is_synchronous => return Err(another_server(database.at(), server, found)),
        Some(_) => {
            let mut turn = database.turn("looking at a standby that took over").await?;
            let facts = turn.look().await?;
            let record = turn.take_over(&recorded, &facts).await?;
            turn.give_back();
            record
        }
        None => {
            return Err(refused(format!(
                "the store was begun with identity=assumed ({text}), so no server is recorded: adopt this one with `unalike \
                 store adopt --lift COUNT`, or go on with identity=assumed"
            )));
        }
    };
    let record = match options.waits_for_standby {
        Some(wanted) if wanted != record.is_synchronous => change_waiting(database, facts, record, wanted).await?,
        _ => record,
    };
    if record.is_synchronous {
        facts.check_synchronous().map_err(refused)?;
    }
    database.expect(facts, record);
    Ok(())
}

/// Whether there is a store in the database: this part of it.
///
/// # Errors
/// As [`read`].
pub(crate) async fn has_begun(database: &Database) -> Result<bool, StoreError> {
    let mut turn = database.turn(LOOKING).await?;
    let has_table = has_table(&mut turn, database, STORE.name).await?;
    turn.give_back();
    Ok(has_table && read(database).await?.is_some())
}

/// What the row of this part says.
pub(crate) async fn read(database: &Database) -> Result<Option<(Record, String)>, StoreError> {
    const DOING: &str = "reading unalike_store";
    let select = sqlx::query("SELECT version, server FROM unalike_store WHERE part = $1").bind(database.part());
    let rows = database.rows(DOING, select).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let version = number(database, row, "version")?;
    if version != VERSION.cast_unsigned() {
        return Err(StoreError::refused(format!(
            "{}: its tables have the version {version}, and this program serves {VERSION} alone: upgrade the program",
            database.at()
        )));
    }
    let text: String = row.try_get("server").map_err(|error| read_error(database.at(), DOING, error))?;
    match Record::read(&text) {
        Some(record) => Ok(Some((record, text))),
        None => Err(damaged(database.at(), &format!("{text:?} in unalike_store is no record of a server"))),
    }
}

async fn create_row(
    database: &Database,
    facts: &ServerFacts,
    options: &PostgresOptions,
) -> Result<(Record, String), StoreError> {
    const INSERT: &str = "INSERT INTO unalike_store (part, version, server, identity) VALUES ($1, $2, $3, $4) \
        ON CONFLICT (part) DO NOTHING";
    let refused = |why: String| StoreError::refused(format!("the server at {}: {why}", database.at()));
    if !options.create_tables {
        let what = format!(
            "{}: no store was begun in these tables yet ({}), and none is to be begun here (create=false, or a command that \
             begins none): take the first id without create=false",
            database.at(),
            database.part()
        );
        return Err(StoreError::refused(what).with_source(NotBegun));
    }
    let server = if options.assume_identity { None } else { Some(facts.identity().map_err(refused)?) };
    let is_synchronous = options.waits_for_standby == Some(true);
    if is_synchronous {
        facts.check_synchronous().map_err(refused)?;
    }
    let record = Record::new(server, is_synchronous)?;
    let identity = StoreIdentity::random()?.to_string();
    let insert = sqlx::query(INSERT).bind(database.part()).bind(VERSION).bind(record.to_string()).bind(identity);
    let mut turn = database.turn("filling unalike_store").await?;
    if turn.execute(insert).await? == 1 {
        // Whoever mistyped a database must hear that the numbers of another store do not go on here.
        tracing::warn!(database = database.at(), server = %record, "made a new store: recorded its server");
    }
    turn.give_back();
    // As somebody else may have written it, a moment before.
    read(database).await?.ok_or_else(|| no_row(database))
}

pub(crate) fn no_row(database: &Database) -> StoreError {
    damaged(database.at(), "the table unalike_store has lost its row")
}

/// Has all grants from now on wait for a synchronous standby, or no more. Programs that know it otherwise are granted
/// nothing any more: a grant of theirs might be missing on the standby.
async fn change_waiting(
    database: &Database,
    facts: &ServerFacts,
    before: Record,
    is_synchronous: bool,
) -> Result<Record, StoreError> {
    if is_synchronous {
        let refused = |why: String| StoreError::refused(format!("the server at {}: {why}", database.at()));
        facts.check_synchronous().map_err(refused)?;
    }
    let record = Record::new(before.server, is_synchronous)?;
    let mut turn = database.begin_long("recording how grants are kept").await?;
    lock_tables(&mut turn, database).await?;
    if !replace_record(&mut turn, database, before, record).await? {
        turn.roll_back().await?;
        return Err(no_connection(
            database.at(),
            "recording how grants are kept",
            "another program changed it: try again",
        ));
    }
    // Beside sequences the tags are those of another part of the store, which are kept as they were.
    if database.part() == Dialect::Unalike.name() && has_table(&mut turn, database, TAG.name).await? {
        // Of a mark, the part that says the stripe stays.
        let change = (before.mark ^ record.mark).to_be_bytes();
        let rows = turn.rows(sqlx::query("SELECT DISTINCT mark FROM unalike_tag")).await?;
        for row in rows {
            let mark: Vec<u8> =
                row.try_get("mark").map_err(|error| read_error(database.at(), "reading the marks of tags", error))?;
            let changed: Vec<u8> = mark.iter().zip(change).map(|(old, change)| old ^ change).collect();
            let update = sqlx::query("UPDATE unalike_tag SET mark = $1 WHERE mark = $2").bind(changed).bind(mark);
            turn.execute(update).await?;
        }
    }
    turn.commit().await?;
    tracing::warn!(database = database.at(), from = %before, to = %record, "grants are kept otherwise from now on");
    Ok(record)
}

/// Waits for the grants that are under way, and has later ones wait until the transaction ends.
pub(crate) async fn lock_tables(turn: &mut Turn, database: &Database) -> Result<(), StoreError> {
    for name in [TAG.name, NAMESPACE.name, LEASE.name] {
        if has_table(turn, database, name).await? {
            turn.execute(sqlx::query(AssertSqlSafe(format!("LOCK TABLE {name} IN SHARE ROW EXCLUSIVE MODE")))).await?;
        }
    }
    Ok(())
}

/// Records one server in place of another. Answers whether that one was recorded.
pub(crate) async fn replace_record(
    turn: &mut Turn,
    database: &Database,
    before: Record,
    record: Record,
) -> Result<bool, StoreError> {
    let update = sqlx::query("UPDATE unalike_store SET server = $1 WHERE part = $2 AND server = $3");
    let update = update.bind(record.to_string()).bind(database.part()).bind(before.to_string());
    Ok(turn.execute(update).await? == 1)
}

/// Has the other dialects' parts of data that were restored wait until each is adopted: what they granted since the
/// backup is not known either.
pub(crate) async fn unsettle_others(turn: &mut Turn, database: &Database, leases: &str) -> Result<(), StoreError> {
    const OTHERS: &str = "SELECT part, server FROM unalike_store WHERE part <> $1 AND part <> $2 FOR UPDATE";
    const UPDATE: &str = "UPDATE unalike_store SET server = $1 WHERE part = $2";
    let failed = |error| read_error(database.at(), "reading unalike_store", error);
    for row in turn.rows(sqlx::query(OTHERS).bind(database.part()).bind(leases)).await? {
        let (part, text): (String, String) =
            (row.try_get("part").map_err(failed)?, row.try_get("server").map_err(failed)?);
        // Where the operator vouches for whichever server there is, no record keeps anybody back.
        let Some(Record { server: Some(server), is_synchronous, .. }) = Record::read(&text) else { continue };
        // No table has the number 0, so this is no server's.
        let record = Record::new(Some(ServerIdentity { table: 0, ..server }), is_synchronous)?;
        turn.execute(sqlx::query(UPDATE).bind(record.to_string()).bind(part)).await?;
    }
    Ok(())
}

/// The random name of this part of the store, or of the leases.
pub(crate) async fn identity(database: &Database, part: &str) -> Result<StoreIdentity, StoreError> {
    let select = sqlx::query("SELECT identity FROM unalike_store WHERE part = $1").bind(part);
    let rows = database.rows("reading unalike_store", select).await?;
    let row = rows.first().ok_or_else(|| no_row(database))?;
    let text: String =
        row.try_get("identity").map_err(|error| read_error(database.at(), "reading unalike_store", error))?;
    text.parse().map_err(|_| damaged(database.at(), &format!("{text:?} in unalike_store is no name")))
}
