//! Where the data are: what a dump of them does not carry.
//!
//! MySQL's `server_uuid` belongs to the server, and the mark that identifies a MariaDB belongs to the data: a dump that
//! is loaded into a server again, or into a second one, passes for what it was made from. So the place of a store is
//! the time at which its table `unalike_identity` came to be here, and each place that the store may grant at is a row
//! of that table. A dump has these rows, and loading it makes another place.
//!
//! - MySQL 8 keeps the time at which a table was created with the data, and a replica, an upgrade or a moved directory
//!   leave it alone. `OPTIMIZE TABLE` and `ALTER TABLE` of this very table make another place.
//! - MariaDB answers the time of a file for it, which a copy or a change of its owner moves. There the table has system
//!   versioning, and the place is the time at which one of its rows was written (`row_start`), to the microsecond. No
//!   program can write that column, dumps leave it out, and to alter or optimize the table leaves it alone.
//!
//! Rows are only added. So a place that was refused stays refused until an operator has spoken
//! ([`MysqlStore::restored`](crate::MysqlStore::restored)), and two programs cannot undo each other's word. A table id,
//! which `AUTO_INCREMENT` and InnoDB have, comes again in a second server, and is shown to the privileged alone. Any
//! column that a program can write is in every dump.

use sqlx::Row as _;
use unalike_storage::{StoreError, StoreIdentity};

use crate::MysqlOptions;
use crate::database::{Database, Turn};
use crate::error::{NO_SUCH_TABLE, SYNTAX_ERROR, TABLE_ACCESS_DENIED, UNKNOWN_COLUMN, VERSIONED, read_error};
use crate::fence::ServerFacts;
use crate::identity;

/// In the place of a dialect: the row whose time is the place of a MariaDB.
pub(crate) const ROW: &str = "place";

/// Before a place, in the place of a dialect: the store may grant there.
pub(crate) const MADE: &str = "made:";

/// The place on a MariaDB.
pub(crate) const ON_MARIADB: &str =
    "SELECT CAST(UNIX_TIMESTAMP(row_start) AS CHAR) AS place FROM unalike_identity WHERE dialect = 'place'";

/// The place on a MySQL. Without the hint it would depend on the session in the hour that summer time repeats. Versions
/// before 8 answer the time of a file.
pub(crate) const ON_MYSQL: &str = "SELECT /*+ SET_VAR(time_zone = '+00:00') */ \
    CAST(UNIX_TIMESTAMP(CREATE_TIME) AS CHAR) AS place FROM information_schema.TABLES \
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'unalike_identity' \
    AND CAST(SUBSTRING_INDEX(VERSION(), '.', 1) AS UNSIGNED) >= 8";

/// The places that the store may grant at.
pub(crate) const KNOWN: &str = "SELECT dialect FROM unalike_identity WHERE dialect LIKE 'made:%'";

/// Of a table that a program of an earlier version made.
pub(crate) const ADD_VERSIONING: &str = "ALTER TABLE unalike_identity ADD SYSTEM VERSIONING";

/// The statement that looks at the place of such a server.
pub(crate) fn statement(facts: &ServerFacts) -> &'static str {
    if facts.is_mariadb() { ON_MARIADB } else { ON_MYSQL }
}

/// Makes sure that the data are where the store was, and that every connection from now on finds them there. A store
/// that knows no place is given this one.
///
/// # Errors
/// [`StoreError::Refused`] in another place, and any error of the connection.
pub(crate) async fn open(database: &Database, facts: &ServerFacts, options: &MysqlOptions) -> Result<(), StoreError> {
    // The operator vouches for whatever is there.
    if options.assume_identity {
        return Ok(());
    }
    let places = Places::read(database, facts).await?;
    if places.is_new() {
        let Some(here) = make(database, facts, options).await? else {
            tracing::warn!(
                database = database.at(),
                "a dump of this store that is loaded again cannot be told from the store: use MySQL 8, MariaDB 10.3.4 or newer, and \
                 let a user with the privileges CREATE and ALTER open it once, or run the statements that `unalike schema` prints"
            );
            return Ok(());
        };
        accept(database, &here).await?;
        database.expect_place(facts, &here);
        return Ok(());
    }
    match &places.here {
        Some(here) if places.is_known() => database.expect_place(facts, here),
        here => return Err(another(database.at(), here.as_deref())),
    }
    Ok(())
}

/// Where the data are, and where they may be.
#[derive(Debug)]
pub(crate) struct Places {
    /// None where no table says it.
    here: Option<String>,
    known: Vec<String>,
}

impl Places {
    pub(crate) async fn read(database: &Database, facts: &ServerFacts) -> Result<Self, StoreError> {
        let mut turn = database.turn(LOOKING).await?;
        let known = turn.try_rows(sqlx::query(KNOWN), NO_SUCH_TABLE).await?.unwrap_or_default();
        let here = look(&mut turn, statement(facts)).await?;
        turn.give_back();
        let text = |row: &sqlx::mysql::MySqlRow| row.try_get::<String, _>("dialect");
        let known = known.iter().map(text).collect::<Result<_, _>>();
        Ok(Self { here, known: known.map_err(|error| read_error(database.at(), LOOKING, error))? })
    }

    /// Whether the store never had a place.
    fn is_new(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether the store may grant here; one without a place may.
    pub(crate) fn is_known(&self) -> bool {
        let is_here = |known: &String| known.strip_prefix(MADE) == self.here.as_deref();
        self.is_new() || self.known.iter().any(is_here)
    }

    /// The place that is to be accepted once all was lifted; none where the store goes on without.
    ///
    /// # Errors
    /// [`StoreError::Refused`] where a store that had a place cannot be given one.
    pub(crate) async fn prepare(
        &self,
        database: &Database,
        facts: &ServerFacts,
        options: &MysqlOptions,
    ) -> Result<Option<String>, StoreError> {
        let here = match &self.here {
            Some(here) => Some(here.clone()),
            None => make(database, facts, options).await?,
        };
        if here.is_none() && !self.is_new() {
            return Err(StoreError::refused(format!(
                "{}: the table unalike_identity does not say where the store is, and this user may not make it anew: run the \
                 statements that `unalike schema` prints, and `{ADD_VERSIONING}` on MariaDB",
                database.at()
            )));
        }
        Ok(here)
    }
}

/// From now on the store may grant at this place.
pub(crate) async fn accept(database: &Database, here: &str) -> Result<(), StoreError> {
    let mark = StoreIdentity::random()?.to_string();
    let insert = sqlx::query(identity::INSERT).bind(format!("{MADE}{here}")).bind(mark);
    database.execute("recording where the store is", insert).await.map(drop)
}

/// The place; none where no table says it.
pub(crate) async fn look(turn: &mut Turn, statement: &'static str) -> Result<Option<String>, StoreError> {
    const EXPECTED: [u16; 2] = [NO_SUCH_TABLE, UNKNOWN_COLUMN];
    let Ok(rows) = turn.try_text(statement, &EXPECTED).await? else { return Ok(None) };
    let place = rows.first().map(|row| row.try_get::<Option<String>, _>("place"));
    let place = place.transpose().map_err(|error| read_error(turn.at(), LOOKING, error))?;
    Ok(place.flatten())
}

/// Makes what says the place, where that is missing; none where this user may not.
async fn make(database: &Database, facts: &ServerFacts, options: &MysqlOptions) -> Result<Option<String>, StoreError> {
    let mut turn = database.turn("making a place for the store").await?;
    if options.create_tables {
        let _may_not = turn.try_execute(sqlx::query(identity::DDL), &[TABLE_ACCESS_DENIED]).await?;
        if facts.is_mariadb()
            && let Err(UNKNOWN_COLUMN) = turn.try_text(ON_MARIADB, &[NO_SUCH_TABLE, UNKNOWN_COLUMN]).await?
        {
            // Somebody else may do the same. Versions before 10.3 know no versioning.
            let expected = [TABLE_ACCESS_DENIED, VERSIONED, SYNTAX_ERROR];
            let _may_not = turn.try_execute(sqlx::query(ADD_VERSIONING), &expected).await?;
        }
    }
    if facts.is_mariadb() {
        let mark = StoreIdentity::random()?.to_string();
        let insert = sqlx::query(identity::INSERT).bind(ROW).bind(mark);
        let _may_not = turn.try_execute(insert, &[NO_SUCH_TABLE, TABLE_ACCESS_DENIED]).await?;
    }
    let here = look(&mut turn, statement(facts)).await?;
    turn.give_back();
    Ok(here)
}

/// The error of data that are not where the store was.
pub(crate) fn another(at: &str, here: Option<&str>) -> StoreError {
    StoreError::refused(format!(
        "the data at {at} are not those that were used before: they were loaded from a dump, or the table unalike_identity was \
         built anew (its time here is {}, which is not recorded in it). They may lack what was granted since: lift the tags \
         above everything that was handed out with `unalike store restored --lift COUNT`, and then restart the programs",
        here.unwrap_or("unknown")
    ))
}

const LOOKING: &str = "looking where the store is";
