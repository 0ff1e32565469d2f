//! The random names of what is kept in a database, which stay with it when another server is adopted.
//!
//! Several dialects of one database number by themselves, so each has a name, and so have the leases. A name is made
//! when somebody first asks for it.

use sqlx::Row as _;
use unalike_storage::{StoreError, StoreIdentity};

use crate::MysqlOptions;
use crate::database::Database;
use crate::dialects::tables;
use crate::error::{NO_SUCH_TABLE, TABLE_ACCESS_DENIED, damaged, read_error};

pub(crate) const NAME: &str = "unalike_identity";

pub(crate) const DDL: &str = include_str!("sql/unalike_identity.sql");

/// The name of these tables.
pub(crate) const READ: &str = "SELECT mark FROM unalike_identity WHERE dialect = ?";

/// A name, unless there is one.
pub(crate) const INSERT: &str = "INSERT IGNORE INTO unalike_identity (dialect, mark) VALUES (?, ?)";

/// In the place of a dialect: the leases.
pub(crate) const LEASES: &str = "leases";

/// The name of the tables of this dialect, or of the [`LEASES`].
///
/// # Errors
/// [`StoreError::Refused`] when the table is missing and must not be created, and any error of the connection.
pub(crate) async fn of(
    database: &Database,
    options: &MysqlOptions,
    dialect: &'static str,
) -> Result<StoreIdentity, StoreError> {
    if let Some(identity) = read(database, dialect).await?.flatten() {
        return Ok(identity);
    }
    let missing = || tables::table_is_missing(database, options, NAME);
    if read(database, dialect).await?.is_none() {
        if !options.create_tables {
            return Err(missing());
        }
        let mut turn = database.turn("creating unalike_identity").await?;
        let created = turn.try_execute(sqlx::query(DDL), &[TABLE_ACCESS_DENIED]).await?;
        turn.give_back();
        created.map_err(|_| missing())?;
    }
    // Of two who come at once, one name stays.
    let mark = StoreIdentity::random()?.to_string();
    database.execute("naming the store in unalike_identity", sqlx::query(INSERT).bind(dialect).bind(mark)).await?;
    let identity = read(database, dialect).await?.flatten();
    identity.ok_or_else(|| damaged(database.at(), "unalike_identity has lost the row that was just written"))
}

/// The name of the tables of this dialect, where somebody has asked for it before.
///
/// # Errors
/// Any error of the connection.
pub(crate) async fn recorded(database: &Database, dialect: &'static str) -> Result<Option<StoreIdentity>, StoreError> {
    Ok(read(database, dialect).await?.flatten())
}

/// No table; no row; or the name.
async fn read(database: &Database, dialect: &'static str) -> Result<Option<Option<StoreIdentity>>, StoreError> {
    let mut turn = database.turn("reading unalike_identity").await?;
    let rows = turn.try_rows(sqlx::query(READ).bind(dialect), NO_SUCH_TABLE).await?;
    turn.give_back();
    let Some(rows) = rows else { return Ok(None) };
    let Some(row) = rows.first() else { return Ok(Some(None)) };
    let mark = row.try_get::<String, _>("mark");
    let mark = mark.map_err(|error| read_error(database.at(), "reading unalike_identity", error))?;
    let identity = u128::from_str_radix(&mark, 16).map(StoreIdentity);
    let identity = identity.map_err(|_| damaged(database.at(), &format!("{mark:?} in unalike_identity is no name")))?;
    Ok(Some(Some(identity)))
}
