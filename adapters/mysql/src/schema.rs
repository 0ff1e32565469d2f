//! The table that says what a database is: written once, looked at whenever it is opened.
//!
//! Beside whatever tags are kept in, every database has `unalike_store`, with one row: the version of unalike's own
//! tables, the server that it was last seen on, how many tags `unalike_tag` has, and which stripe the store is.
//!
//! Version 1 had no stripes. Its tables are served as they are, and [`upgrade`] adds to them; what is there already
//! stays as it is, so programs of both versions can run while they are replaced one by one.

use std::time::Duration;

use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Row as _};
use unalike_storage::{StoreError, Stripe, random_128};

use crate::MysqlOptions;
use crate::database::{Database, Statement, Turn, number};
use crate::dialects::tables::{self, Holds, Shape};
use crate::error::{NO_SUCH_TABLE, TABLE_ACCESS_DENIED, damaged, read_error};
use crate::fence::{ServerFacts, mark_in, names_cluster};
use crate::place;
use crate::record::Record;
use crate::segments::{self, TAG_TABLE};

/// The version of the tables that this program creates.
pub(crate) const VERSION: u64 = 2;

/// The oldest version that it still serves, so that programs can be replaced one by one before the tables are.
pub(crate) const VERSION_MIN: u64 = 1;

/// How long work on all rows, or on a table, may take.
pub(crate) const MAINTENANCE: Duration = Duration::from_secs(600);

/// `unalike_store`. The `stripe_` columns came with version 2.
///
/// The last constraint keeps programs that know version 1 alone from creating tags in a stripe: they change `tags` and
/// not `stripe_tags`, so the server refuses it.
pub(crate) const STORE_TABLE: &str = include_str!("sql/unalike_store.sql");

pub(crate) const STORE: Shape<'static> = Shape {
    name: "unalike_store",
    ddl: STORE_TABLE,
    key: &["id"],
    columns: &[("id", Holds::Whole), ("schema_version", Holds::Whole), ("server", Holds::Name), ("tags", Holds::Id)],
};

/// From version 1 to version 2, each unless it was done before.
const UPGRADE: [&str; 2] = [
    "ALTER TABLE unalike_store
    ADD COLUMN stripe_set BINARY(16) NOT NULL DEFAULT X'00000000000000000000000000000000',
    ADD COLUMN stripe_index INT UNSIGNED NOT NULL DEFAULT 0,
    ADD COLUMN stripe_count INT UNSIGNED NOT NULL DEFAULT 0,
    ADD COLUMN stripe_tags BIGINT UNSIGNED NOT NULL DEFAULT 0,
    ADD CONSTRAINT unalike_store_stripe
        CHECK (stripe_set = X'00000000000000000000000000000000' OR stripe_tags = tags)",
    "ALTER TABLE unalike_tag
    ADD COLUMN stripe_set BINARY(16) NOT NULL DEFAULT X'00000000000000000000000000000000',
    ADD COLUMN stripe_version BIGINT UNSIGNED NOT NULL DEFAULT 0,
    ADD CONSTRAINT unalike_tag_stripe
        CHECK (stripe_set = X'00000000000000000000000000000000' OR stripe_version = version)",
];

/// The errors of an upgrade that was done before: a column is there already, and on MySQL a constraint, which it looks
/// for first.
const DONE_BEFORE: [u16; 2] = [1060, 3822];

/// What the row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Schema {
    /// The version of unalike's own tables.
    pub(crate) version: u64,
}

impl Schema {
    /// That of tables which this program makes.
    pub(crate) const NEWEST: Self = Self { version: VERSION };

    /// Whether the tables have what stripes need.
    pub(crate) fn has_stripes(self) -> bool {
        self.version >= 2
    }
}

/// Reads the row, or writes it into a new database, and makes sure that the server is the one it names: it alone, from
/// now on.
///
/// # Errors
/// [`StoreError::Refused`] when the tables are missing and may not be created, when they are of another version, and
/// when the server is another one than before, or the data are a copy of those that were used before.
pub(crate) async fn open(
    database: &Database,
    facts: &ServerFacts,
    options: &MysqlOptions,
) -> Result<Schema, StoreError> {
    let schema = open_record(database, facts, options).await?;
    place::open(database, facts, options).await?;
    Ok(schema)
}

async fn open_record(database: &Database, facts: &ServerFacts, options: &MysqlOptions) -> Result<Schema, StoreError> {
    let identity = |mark| {
        facts.identity(mark).map_err(|why| StoreError::refused(format!("the server at {}: {why}", database.at())))
    };
    let is_cluster = facts.cluster().is_some();
    let new = || match options.assume_identity && !is_cluster {
        true => Ok("assumed".to_owned()),
        false => identity(random_128()?),
    };
    let (schema, mut recorded) = match read(database).await? {
        Some(row) => row,
        None => create(database, &Record::born(&new()?, random_128()?.max(1)).to_string(), options).await?,
    };
    tables::open(database, options, &[STORE]).await?;
    // The record of a cluster is looked at all the same: a node of it that runs alone is not the cluster.
    if options.assume_identity && !names_cluster(&recorded) {
        database.expect(facts, None, &recorded);
        return Ok(schema);
    }
    if mark_in(&recorded).is_none() && facts.is_unmarked(&recorded) {
        // Somebody else may do the same.
        let new = new()?;
        let update = replace_record(facts, options, &recorded, &new, &new);
        let mut turn = database.turn("recording the server").await?;
        let updated = turn.try_execute(update, &[TABLE_ACCESS_DENIED]).await?;
        turn.give_back();
        if updated.is_err() {
            // Who only leases may not. It goes on with the record as it is, until somebody else changes it.
            database.expect(facts, Some(identity(0)?), &recorded);
            return Ok(schema);
        }
        (_, recorded) = read(database).await?.ok_or_else(|| no_row(database))?;
        tracing::info!(database = database.at(), server = recorded, "recorded the server in a new form");
    }
    let found = facts
        .identity_as(&recorded)
        .map_err(|why| StoreError::refused(format!("the server at {}: {why}", database.at())))?;
    let record = Record::read(&recorded);
    if record.server() != found {
        return Err(facts.another_server(database.at(), record.server(), &found));
    }
    database.expect(facts, Some(found), &recorded);
    Ok(schema)
}

/// The statement that records a server, which it must run on, in place of what is recorded.
fn replace_record(
    facts: &ServerFacts,
    options: &MysqlOptions,
    recorded: &str,
    identity: &str,
    record: &str,
) -> Statement<'static> {
    let fence = facts.fence(!options.assume_durable, Some(identity));
    let update = fence.put_into(&format!("{REPLACE}{HERE}"));
    sqlx::query(AssertSqlSafe(update)).bind(record.to_owned()).bind(recorded.to_owned())
}

/// Records a server in place of what is recorded, in a transaction that has looked at both: see
/// [`Database::begin_alone`].
///
/// # Errors
/// [`StoreError::Corrupt`] when the record is another one all the same.
pub(crate) async fn replace_record_in(
    turn: &mut Turn,
    database: &Database,
    recorded: &str,
    record: &str,
) -> Result<(), StoreError> {
    let replaced = turn.execute(sqlx::query(REPLACE).bind(record.to_owned()).bind(recorded.to_owned())).await?;
    match replaced.rows_affected() {
        1 => Ok(()),
        _ => Err(damaged(database.at(), "the record of the server changed while it was locked")),
    }
}

/// What a statement of its own adds to [`REPLACE`].
pub(crate) const HERE: &str = " AND {fence alone}";

/// Records a server in place of what is recorded.
pub(crate) const REPLACE: &str = "UPDATE unalike_store SET server = ? WHERE id = 1 AND server = ?";

/// Version and recorded server.
pub(crate) const READ: &str = "SELECT schema_version, server FROM unalike_store WHERE id = 1";

/// The row, unless there is one.
pub(crate) const INSERT: &str = "INSERT IGNORE INTO unalike_store (id, schema_version, server) VALUES (1, ?, ?)";

/// Which stripe the store is recorded to be.
pub(crate) const STRIPE: &str = "SELECT stripe_set, stripe_index, stripe_count FROM unalike_store WHERE id = 1";

/// Version and recorded server; none when the table is missing or has no row.
///
/// # Errors
/// [`StoreError::Refused`] for a version that this program does not serve.
pub(crate) async fn read(database: &Database) -> Result<Option<(Schema, String)>, StoreError> {
    let mut turn = database.turn("reading unalike_store").await?;
    let rows = turn.try_rows(sqlx::query(READ), NO_SUCH_TABLE).await?;
    turn.give_back();
    let rows = rows.unwrap_or_default();
    let Some(row) = rows.first() else { return Ok(None) };
    let server = row.try_get("server").map_err(|error| read_error(database.at(), "reading unalike_store", error))?;
    let version = number(database, row, "schema_version")?;
    if !(VERSION_MIN..=VERSION).contains(&version) {
        let advice = if version > VERSION {
            "upgrade this program"
        } else {
            "upgrade the tables with the program before this one"
        };
        return Err(StoreError::refused(format!(
            "{}: its tables have the version {version}, and this program serves {VERSION_MIN} to {VERSION}: {advice}",
            database.at()
        )));
    }
    Ok(Some((Schema { version }, server)))
}

/// The version as it is now.
pub(crate) async fn current(database: &Database) -> Result<Schema, StoreError> {
    let row = read(database).await?;
    row.map(|(schema, _)| schema).ok_or_else(|| no_row(database))
}

async fn create(database: &Database, identity: &str, options: &MysqlOptions) -> Result<(Schema, String), StoreError> {
    // Each of these statements is a transaction of its own in MySQL, and each may be repeated. Where the table was made
    // by hand, only the row is missing, and the user may not be one who creates tables.
    let mut inserted = insert(database, identity).await?;
    if inserted.is_none() && options.create_tables {
        database.execute("creating unalike_store", sqlx::query(STORE_TABLE)).await?;
        inserted = insert(database, identity).await?;
    }
    match inserted {
        // Whoever mistyped a database must hear that the numbers of another store do not go on here.
        Some(1) => tracing::warn!(database = database.at(), server = identity, "made a new store: recorded its server"),
        Some(_) => {}
        None => {
            return Err(tables::table_is_missing(database, options, STORE.name));
        }
    }
    // As somebody else may have written it, a moment before.
    read(database).await?.ok_or_else(|| no_row(database))
}

/// Writes the row unless there is one; none without a table, else how many rows were written.
async fn insert(database: &Database, identity: &str) -> Result<Option<u64>, StoreError> {
    let mut turn = database.turn("filling unalike_store").await?;
    let inserted = turn.try_execute(sqlx::query(INSERT).bind(VERSION).bind(identity), &[NO_SUCH_TABLE]).await?;
    turn.give_back();
    Ok(inserted.ok().map(|done| done.rows_affected()))
}

/// Takes the tables to the version of this program. Programs of the version before go on.
pub(crate) async fn upgrade(database: &Database) -> Result<(), StoreError> {
    let Schema { version } = current(database).await?;
    if version == VERSION {
        return Ok(());
    }
    if tables::look(database, segments::SHAPE).await?.is_none() {
        tables::refuse_lost(database, segments::SHAPE.name, segments::BEGUN).await?;
    }
    let mut turn = database.turn("upgrading the tables").await?.within(MAINTENANCE);
    // While a table waits for running transactions, all others wait behind it: not for long.
    turn.execute(sqlx::query("SET SESSION lock_wait_timeout = 5")).await?;
    // Databases that held other systems' tables alone have no unalike_tag; nor may a program of version 1 create it
    // now.
    turn.execute(sqlx::query(TAG_TABLE)).await?;
    for statement in UPGRADE {
        // Done before, it is an error that says so.
        let _done_before = turn.try_execute(sqlx::query(statement), &DONE_BEFORE).await?;
    }
    // Last, so that an upgrade which broke off is done again.
    let record = sqlx::query("UPDATE unalike_store SET schema_version = ? WHERE id = 1 AND schema_version = ?");
    turn.execute(record.bind(VERSION).bind(version)).await?;
    turn.give_back();
    tracing::info!(database = database.at(), from = version, to = VERSION, "upgraded the tables");
    Ok(())
}

/// Records the server in place of the recorded one, with what was lifted there.
pub(crate) async fn record_server(
    database: &Database,
    facts: &ServerFacts,
    options: &MysqlOptions,
    recorded: &str,
    identity: &str,
    record: &str,
) -> Result<(), StoreError> {
    const DOING: &str = "recording the server";
    let update = replace_record(facts, options, recorded, identity, record);
    if database.execute(DOING, update).await?.rows_affected() == 0 {
        // Or somebody else recorded one just now, and this says which.
        return Err(database.held_back(DOING).await);
    }
    Ok(())
}

fn no_row(database: &Database) -> StoreError {
    StoreError::refused(format!(
        "{}: the table unalike_store is missing or has no row: run `unalike schema`",
        database.at()
    ))
}

/// Which stripe the store is recorded to be; none when it stands alone.
pub(crate) async fn stripe(turn: &mut Turn, database: &Database) -> Result<Option<Stripe>, StoreError> {
    let rows = turn.rows(sqlx::query(STRIPE)).await?;
    stripe_in(rows.first(), database)
}

/// The same, and nobody changes it or creates a tag until the transaction ends.
pub(crate) async fn lock_stripe(turn: &mut Turn, database: &Database) -> Result<Option<Stripe>, StoreError> {
    let statement = "SELECT stripe_set, stripe_index, stripe_count FROM unalike_store WHERE id = 1 FOR UPDATE";
    let rows = turn.rows(sqlx::query(statement)).await?;
    stripe_in(rows.first(), database)
}

/// Records a stripe, or that the store stands alone.
pub(crate) async fn record_stripe(turn: &mut Turn, stripe: Option<&Stripe>) -> Result<(), StoreError> {
    let statement = "UPDATE unalike_store SET stripe_set = ?, stripe_index = ?, stripe_count = ?, stripe_tags = tags \
        WHERE id = 1";
    let (index, count) = stripe.map_or((0, 0), |stripe| (stripe.index, stripe.count));
    turn.execute(sqlx::query(statement).bind(set_bytes(stripe)).bind(index).bind(count)).await?;
    Ok(())
}

fn stripe_in(row: Option<&MySqlRow>, database: &Database) -> Result<Option<Stripe>, StoreError> {
    stripe_of(row.ok_or_else(|| no_row(database))?, database, "unalike_store")
}

/// The stripe that a row of this table says; none where the set is zeros.
pub(crate) fn stripe_of(row: &MySqlRow, database: &Database, table: &str) -> Result<Option<Stripe>, StoreError> {
    let set: Vec<u8> =
        row.try_get("stripe_set").map_err(|error| read_error(database.at(), "reading a stripe", error))?;
    let broken = || damaged(database.at(), &format!("the stripe in {table} is not valid"));
    let set = u128::from_be_bytes(set.try_into().map_err(|_| broken())?);
    let figure = |column| u32::try_from(number(database, row, column)?).map_err(|_| broken());
    let stripe = Stripe { set, index: figure("stripe_index")?, count: figure("stripe_count")? };
    match set {
        0 => Ok(None),
        _ if stripe.validate_record().is_ok() => Ok(Some(stripe)),
        _ => Err(broken()),
    }
}

/// The name of the set as it is kept: zeros for a store that stands alone.
pub(crate) fn set_bytes(stripe: Option<&Stripe>) -> Vec<u8> {
    stripe.map_or(0, |stripe| stripe.set).to_be_bytes().to_vec()
}
