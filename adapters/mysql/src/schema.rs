//! The table that says what a database is: written once, looked at whenever it is opened.
//!
//! Beside whatever tags are kept in, every database has `unalike_store`, with one row: the version of unalike's own tables,
//! and the server that it was last seen on.

use sqlx::Row as _;
use unalike_storage::StoreError;

use crate::MysqlOptions;
use crate::database::{Database, ServerFacts, another_server, number};
use crate::error::{NO_SUCH_TABLE, read_error, refusal};

/// The version of the tables that this program creates.
pub(crate) const VERSION: u64 = 2;

/// The oldest version that it still serves, so that programs can be replaced one by one before the tables are.
const VERSION_MIN: u64 = 1;

/// `unalike_store`, as every version has it.
pub(crate) const STORE_TABLE: &str = "
CREATE TABLE IF NOT EXISTS unalike_store (
    id TINYINT UNSIGNED NOT NULL PRIMARY KEY CHECK (id = 1),
    schema_version INT UNSIGNED NOT NULL,
    server VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, -- the only one that is used
    tags BIGINT UNSIGNED NOT NULL DEFAULT 0                                 -- rows in unalike_tag
) ENGINE = InnoDB";

/// What the row says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schema {
    /// The version of unalike's own tables.
    pub(crate) version: u64,
}

/// Reads the row, or writes it into a new database, and makes sure that the server is the one it names.
///
/// # Errors
/// [`StoreError::Refused`] when the tables are missing and may not be created, when they are of another version, and when
/// the server is another one than before.
pub(crate) async fn open(
    database: &Database,
    facts: &ServerFacts,
    options: &MysqlOptions,
) -> Result<Schema, StoreError> {
    let identity = facts.identity();
    let mut found = read(database).await?;
    if found == Found::NoTable {
        create(database, options).await?;
        found = Found::NoRow;
    }
    if found == Found::NoRow {
        let insert = "INSERT IGNORE INTO unalike_store (id, schema_version, server) VALUES (1, ?, ?)";
        database.execute("filling unalike_store", sqlx::query(insert).bind(VERSION).bind(&identity)).await?;
        tracing::info!(database = database.at(), server = identity, "filled the table unalike_store");
        found = read(database).await?;
    }
    let Found::Row { version, server } = found else {
        return Err(refusal(format!("{}: the table unalike_store does not keep its row", database.at())));
    };
    if !(VERSION_MIN..=VERSION).contains(&version) {
        let advice = if version > VERSION {
            "upgrade this program"
        } else {
            "upgrade the tables with the program before this one"
        };
        return Err(refusal(format!(
            "{}: its tables have the version {version}, and this program serves {VERSION_MIN} to {VERSION}: {advice}",
            database.at()
        )));
    }
    if server != identity && !options.assume_identity {
        return Err(another_server(database.at(), &server, &identity));
    }
    Ok(Schema { version })
}

#[derive(PartialEq)]
enum Found {
    NoTable,
    /// As the statements that are printed for those who forbid CREATE leave it.
    NoRow,
    Row {
        version: u64,
        server: String,
    },
}

async fn read(database: &Database) -> Result<Found, StoreError> {
    let mut turn = database.turn("reading unalike_store").await?;
    let statement = sqlx::query("SELECT schema_version, server FROM unalike_store WHERE id = 1");
    let Some(rows) = turn.try_rows(statement, NO_SUCH_TABLE).await? else { return Ok(Found::NoTable) };
    turn.give_back();
    let Some(row) = rows.first() else { return Ok(Found::NoRow) };
    let server = row.try_get("server").map_err(|error| read_error(database.at(), "reading unalike_store", error))?;
    Ok(Found::Row { version: number(database, row, "schema_version")?, server })
}

async fn create(database: &Database, options: &MysqlOptions) -> Result<(), StoreError> {
    if !options.create_tables {
        return Err(refusal(format!(
            "{}: the table unalike_store is missing, and tables are not to be created (create=false): run the statements that \
             `unalike schema` prints",
            database.at()
        )));
    }
    // Such a statement is a transaction of its own in MySQL, and may be repeated.
    database.execute("creating unalike_store", sqlx::query(STORE_TABLE)).await?;
    tracing::info!(database = database.at(), "created the table unalike_store");
    Ok(())
}
