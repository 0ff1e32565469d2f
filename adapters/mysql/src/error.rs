//! From MySQL's and MariaDB's error codes to the one error of every store.

use unalike_storage::StoreError;

// <https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html>,
// <https://mariadb.com/kb/en/mariadb-error-code-reference/>.
pub(crate) const TABLE_EXISTS: u16 = 1050;
pub(crate) const DUPLICATE_ENTRY: u16 = 1062;
pub(crate) const NO_SUCH_TABLE: u16 = 1146;
pub(crate) const DEADLOCK: u16 = 1213;
pub(crate) const AUTO_INCREMENT_FAILED: u16 = 1467;

/// The error of a statement that writes, or of its commit.
///
/// The question that matters is whether the commit may stand although no success was reported. A statement that the server
/// refused was rolled back. But an answer that did not come, a server that was shut down, a connection that was killed, and
/// a commit that broke off in the storage engine or in the binary log leave that open; so does everything that is not known.
pub(crate) fn write_error(at: &str, doing: &str, error: sqlx::Error) -> StoreError {
    // The pool's own checks of a new connection say more than the driver does.
    let error = match Refusal::in_driver_error(error) {
        Ok(refusal) => return refusal,
        Err(error) => error,
    };
    let what = |advice: &str| format!("{doing}, at {at}: {advice}");
    let (kind, advice): (fn(String, sqlx::Error) -> StoreError, &str) = match code(&error) {
        Some(1205) => (unavailable, "another transaction holds the row for too long; the statement was rolled back"),
        Some(DEADLOCK | 1020 | 1637) => (unavailable, "the transaction lost against another one and was rolled back"),
        Some(1290 | 1792 | 1836 | 3100 | 3572) => {
            (unavailable, "the server only reads just now: is it a replica, or failing over?")
        }
        Some(1021 | 1114 | 3675) => (unavailable, "the server's disk is full: free some space"),
        Some(1037 | 1038 | 1041) => (unavailable, "the server is out of memory"),
        Some(1040 | 1203 | 1226) => (unavailable, "the server has too many connections"),
        Some(1044 | 1045 | 1142 | 1143 | 1227 | 1370 | 1698) => {
            (refused, "the server denied access: check user, password and privileges (`unalike schema` lists them)")
        }
        Some(1049) => (refused, "there is no such database: create it"),
        Some(NO_SUCH_TABLE | 1054 | 1109) => {
            (refused, "a table or column is missing: `unalike schema` prints what is needed")
        }
        // A number that does not fit its column; STRICT_ALL_TABLES, which every connection sets, has it refused.
        Some(1264 | 1690) => (refused, "a number is beyond what the column can hold"),
        // Shut down, interrupted, killed, or broken off in a commit: it may have been done.
        Some(1026 | 1030 | 1053 | 1077 | 1079 | 1180 | 1181 | 1317 | 1598 | 1927 | 3024) => {
            (outcome_unknown, "the server broke the statement off, and its commit may stand")
        }
        Some(_) => (refused, "the server refused the statement"),
        None => match &error {
            sqlx::Error::PoolTimedOut => {
                (unavailable, "no connection in time: the server is down, or too many requests wait")
            }
            sqlx::Error::PoolClosed => (unavailable, "the store was closed"),
            sqlx::Error::BeginFailed | sqlx::Error::InvalidSavePointStatement => {
                (unavailable, "the transaction could not begin")
            }
            sqlx::Error::Configuration(_) => (refused, "the connection is configured wrongly"),
            sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::ColumnNotFound(_)
            | sqlx::Error::ColumnIndexOutOfBounds { .. }
            | sqlx::Error::Decode(_) => (corrupt, "a row is not as it should be"),
            _ => (outcome_unknown, "the connection broke"),
        },
    };
    kind(what(advice), error)
}

/// The error of a statement that only reads, or of connecting: nothing can have been granted.
pub(crate) fn read_error(at: &str, doing: &str, error: sqlx::Error) -> StoreError {
    match write_error(at, doing, error) {
        StoreError::OutcomeUnknown { what, source } => StoreError::Unavailable { what, source },
        other => other,
    }
}

/// The server's error number.
pub(crate) fn code(error: &sqlx::Error) -> Option<u16> {
    let sqlx::Error::Database(error) = error else { return None };
    Some(error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>()?.number())
}

/// A value in the database that should not be there.
pub(crate) fn damaged(at: &str, what: &str) -> StoreError {
    StoreError::Corrupt { what: format!("{at}: {what}; find out who changed it"), source: None }
}

pub(crate) fn refusal(what: String) -> StoreError {
    StoreError::Refused { what, source: None }
}

fn unavailable(what: String, error: sqlx::Error) -> StoreError {
    StoreError::Unavailable { what, source: Some(Box::new(error)) }
}

fn outcome_unknown(what: String, error: sqlx::Error) -> StoreError {
    StoreError::OutcomeUnknown { what, source: Some(Box::new(error)) }
}

fn refused(what: String, error: sqlx::Error) -> StoreError {
    StoreError::Refused { what, source: Some(Box::new(error)) }
}

fn corrupt(what: String, error: sqlx::Error) -> StoreError {
    StoreError::Corrupt { what, source: Some(Box::new(error)) }
}

/// Why a new connection was not taken, as the pool's hook can say it.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct Refusal(StoreError);

impl Refusal {
    pub(crate) fn into_driver_error(error: StoreError) -> sqlx::Error {
        sqlx::Error::Configuration(Box::new(Self(error)))
    }

    fn in_driver_error(error: sqlx::Error) -> Result<StoreError, sqlx::Error> {
        match error {
            sqlx::Error::Configuration(inner) => match inner.downcast::<Self>() {
                Ok(refusal) => Ok(refusal.0),
                Err(inner) => Err(sqlx::Error::Configuration(inner)),
            },
            other => Err(other),
        }
    }
}
