//! What several dialects do alike: see that their tables are there, count tags against the limit, prove that they can
//! write.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::{AssertSqlSafe, Row as _};
use unalike_storage::{StoreError, TagCreation};

use crate::MysqlOptions;
use crate::database::Database;
use crate::error::{read_error, refusal};

/// Creates those of these tables (name and statement) that are missing, if that is allowed.
///
/// # Errors
/// [`StoreError::Refused`] when one is missing and may not be created, or is kept in an engine that loses commits.
pub(crate) async fn create_missing(
    database: &Database,
    options: &MysqlOptions,
    tables: &[(String, String)],
) -> Result<(), StoreError> {
    const DOING: &str = "looking for tables";
    const ENGINES: &str = "SELECT TABLE_NAME, IF(TABLE_TYPE = 'BASE TABLE', COALESCE(ENGINE, ''), 'a view') \
        FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()";
    let mut engines: BTreeMap<String, String> = BTreeMap::new();
    for row in database.rows(DOING, sqlx::query(ENGINES)).await? {
        let failed = |error| read_error(database.at(), DOING, error);
        engines.insert(row.try_get_unchecked(0).map_err(failed)?, row.try_get_unchecked(1).map_err(failed)?);
    }
    for (name, statement) in tables {
        match engines.get(name) {
            Some(engine) => check_engine(database, name, engine)?,
            None if options.create_tables => {
                database.execute("creating a table", sqlx::query(AssertSqlSafe(statement.clone()))).await?;
                tracing::info!(database = database.at(), table = name, "created a table");
            }
            None => {
                return Err(refusal(format!(
                    "{}: the table {name} is missing, and tables are not to be created (create=false): run the statements that \
                     `unalike schema` prints",
                    database.at()
                )));
            }
        }
    }
    Ok(())
}

/// What stands in the place of an engine where a name is not a table's.
const VIEW: &str = "a view";

/// Only InnoDB keeps what it committed, and undoes what it did not.
pub(crate) fn check_engine(database: &Database, table: &str, engine: &str) -> Result<(), StoreError> {
    if engine.eq_ignore_ascii_case("InnoDB") {
        return Ok(());
    }
    let kind = if engine == VIEW { engine.to_owned() } else { format!("kept in {engine}") };
    Err(refusal(format!(
        "{}: the table {table} is {kind}, which can lose commits, and numbers would repeat: \
         ALTER TABLE {table} ENGINE = InnoDB",
        database.at()
    )))
}

/// Whether the server answers and takes writes just now: a row of our own is written as it is.
pub(crate) async fn prove_writable(database: &Database) -> Result<(), StoreError> {
    let statement = sqlx::query("UPDATE unalike_store SET schema_version = schema_version WHERE id = 1");
    database.execute("checking that the server takes writes", statement).await.map(drop)
}

/// How many more tags this process creates before it counts them all again: counting reads every row.
///
/// Close to the limit each creation counts. Farther from it, several processes may together pass the limit by what they
/// had left: it keeps a bug from filling the store, and is no quota.
#[derive(Debug, Default)]
pub(crate) struct Room(AtomicU64);

impl Room {
    /// Takes the room for one more tag.
    ///
    /// # Errors
    /// [`StoreError::TagLimit`], and what counting brings.
    pub(crate) async fn take(
        &self,
        tag: &str,
        creation: TagCreation,
        count: impl Future<Output = Result<u64, StoreError>>,
    ) -> Result<(), StoreError> {
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if left.is_ok() {
            return Ok(());
        }
        let free = creation.tags_max.saturating_sub(count.await?);
        if free == 0 {
            return Err(StoreError::TagLimit { tag: tag.to_owned(), tags_max: creation.tags_max });
        }
        // One is taken now; of a thousand that are free, some sixty may be taken without another look.
        self.0.store((free - 1) / 16, Ordering::Relaxed);
        Ok(())
    }
}
