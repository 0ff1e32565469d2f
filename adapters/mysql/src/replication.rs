//! Whether a server applies changes that another one made: old ones, perhaps, over rows that were lifted since.

use sqlx::Row as _;
use sqlx::mysql::MySqlRow;
use unalike_storage::StoreError;

use crate::database::Database;
use crate::error::{ACCESS_DENIED, SYNTAX_ERROR};
use crate::fence::ServerFacts;

/// What a server is found to follow.
enum Replication {
    Nothing,
    /// A source, by its host, whether changes of it are applied just now or not.
    Of(String),
    /// The user may not look.
    Hidden,
}

/// Refuses to adopt a server that follows another one, unless the operator vouches for the end of that.
///
/// # Errors
/// [`StoreError::Refused`] saying what to run.
pub(crate) async fn refuse(database: &Database, facts: &ServerFacts, is_vouched: bool) -> Result<(), StoreError> {
    if is_vouched {
        return Ok(());
    }
    let end = if facts.is_mariadb() { "STOP ALL SLAVES; RESET SLAVE ALL" } else { "STOP REPLICA; RESET REPLICA ALL" };
    match look(database, facts).await? {
        Replication::Nothing => Ok(()),
        Replication::Of(source) => Err(StoreError::refused(format!(
            "the server at {} still replicates from {source}: what it has not applied yet would write old rows over those \
             that are lifted. End that first ({end}; on MariaDB for each connection that has a name: RESET SLAVE 'NAME' ALL)",
            database.at()
        ))),
        Replication::Hidden => Err(StoreError::refused(format!(
            "the server at {} does not say to this user whether it replicates from another one: GRANT {} ON *.* TO the user, or \
             end replication by hand ({end}) and say so (--replication-ended)",
            database.at(),
            if facts.is_mariadb() { "SLAVE MONITOR" } else { "REPLICATION CLIENT" }
        ))),
    }
}

/// Refuses an adopted server that follows another one, where nothing in its statements would notice what it applies.
///
/// # Errors
/// [`StoreError::Refused`] saying what to run.
pub(crate) async fn refuse_unnoticed(database: &Database, facts: &ServerFacts) -> Result<(), StoreError> {
    if facts.is_mariadb() || !database.was_adopted() {
        return Ok(());
    }
    match look(database, facts).await? {
        Replication::Of(source) => Err(StoreError::refused(format!(
            "the server at {} was adopted, and replicates from {source}: what it applies may write old rows over those that \
             were lifted. End that (STOP REPLICA; RESET REPLICA ALL), and adopt it again",
            database.at()
        ))),
        Replication::Nothing | Replication::Hidden => Ok(()),
    }
}

async fn look(database: &Database, facts: &ServerFacts) -> Result<Replication, StoreError> {
    let mut turn = database.turn("looking for replication").await?;
    let statements: &[&'static str] =
        if facts.is_mariadb() { &["SHOW ALL SLAVES STATUS"] } else { &["SHOW REPLICA STATUS", "SHOW SLAVE STATUS"] };
    for statement in statements {
        match turn.try_text(statement, &[SYNTAX_ERROR, ACCESS_DENIED]).await? {
            Ok(rows) => {
                turn.give_back();
                return Ok(rows.first().map_or(Replication::Nothing, |row| Replication::Of(source(row))));
            }
            Err(ACCESS_DENIED) => {
                turn.give_back();
                return Ok(Replication::Hidden);
            }
            // MySQL before 8.0.22.
            Err(_) => {}
        }
    }
    turn.give_back();
    Ok(Replication::Hidden)
}

fn source(row: &MySqlRow) -> String {
    let host = ["Master_Host", "Source_Host"].into_iter().find_map(|column| row.try_get::<String, _>(column).ok());
    host.filter(|host| !host.is_empty()).unwrap_or_else(|| "another server".to_owned())
}
