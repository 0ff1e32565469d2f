//! From PostgreSQL's error codes to the one error of every store.

use unalike_storage::StoreError;

// <https://www.postgresql.org/docs/current/errcodes-appendix.html>
pub(crate) const NOT_ALLOWED: &str = "42501";
pub(crate) const NO_SUCH_FUNCTION: &str = "42883";
pub(crate) const TABLE_EXISTS: &str = "42P07";
/// Of a table that somebody else creates: its type came first.
pub(crate) const TYPE_EXISTS: &str = "42710";
pub(crate) const DUPLICATE: &str = "23505";
pub(crate) const SEQUENCE_ENDS: &str = "2200H";

/// What a server says that takes no writes.
pub(crate) const ONLY_READS: &str =
    "the server is in recovery and only reads: it is a standby, or is being promoted; name the primary";

/// What is said of a connection whose statements run in sessions of others.
pub(crate) const POOLED: &str = "the statement came to another session than the one that was set up: a pooler between \
    that gives each transaction another session (PgBouncer: pool_mode=transaction or statement) cannot be used; connect to \
    the server itself, or set pool_mode=session for this user";

/// From a code to an error.
type Kind = fn(String) -> StoreError;

/// The error of a statement that writes, or of its commit.
///
/// The question that matters is whether the commit may stand although no success was reported. The server answers a
/// statement that it did not do, and whose transaction it rolled back, with an ERROR. Whatever else ends a statement
/// leaves that open: an answer that did not come, and a connection that the server ends (FATAL), perhaps while the
/// commit waits for a standby.
pub(crate) fn write_error(at: &str, doing: &str, error: sqlx::Error) -> StoreError {
    let (kind, advice): (Kind, &str) = match code(&error) {
        Some(code) => {
            let judged = judge(&code);
            if ends_connection(&error) || code.starts_with("08") && code != "08P01" || code == "40003" {
                (StoreError::outcome_unknown, judged.1)
            } else {
                judged
            }
        }
        None => match &error {
            sqlx::Error::Configuration(_) => (StoreError::refused, "the connection is configured wrongly"),
            sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::ColumnNotFound(_)
            | sqlx::Error::ColumnIndexOutOfBounds { .. }
            | sqlx::Error::Decode(_) => (StoreError::corrupt, "a row is not as it should be"),
            _ => (StoreError::outcome_unknown, "the connection broke"),
        },
    };
    let told = kind(format!("{doing}, at {at}: {advice}"));
    match &error {
        // The driver's text ends with a line of the server's source.
        sqlx::Error::Database(said) => told.with_source(said.message()),
        _ => told.with_source(error),
    }
}

/// What the server's code says of a statement that was not done: the kind of the error, and what to do.
fn judge(code: &str) -> (Kind, &'static str) {
    match code {
        "55P03" => {
            (StoreError::unavailable, "another transaction holds the row for too long; the statement was rolled back")
        }
        "57014" => (
            StoreError::unavailable,
            "somebody cancelled the statement, or it reached the server's statement_timeout; it was rolled back",
        ),
        "25006" | "55000" => (StoreError::unavailable, ONLY_READS),
        "53100" => (StoreError::unavailable, "the server's disk is full: make room"),
        "53300" => (StoreError::unavailable, "the server has too many connections"),
        // A plan that was made before a table changed.
        "0A000" => (StoreError::unavailable, "a table was changed while a statement ran: try again"),
        "26000" | "42P05" | "08P01" => (StoreError::refused, POOLED),
        "28000" | "28P01" => (
            StoreError::refused,
            "the server denied access: check the user's name and password (password-file=PATH or password-env=NAME in the \
             URL says where it is), the server's pg_hba.conf, and whether it demands TLS (ssl-mode)",
        ),
        NOT_ALLOWED => (
            StoreError::refused,
            "the user lacks a privilege that the statement needs, which the server names: grant what `unalike schema` \
             lists, or let the owner of the database run it",
        ),
        "3D000" => (StoreError::refused, "there is no such database: create it"),
        "3F000" => (StoreError::refused, "there is no such schema: create it, or name another (schema=NAME)"),
        "42P01" | "42703" => {
            (StoreError::refused, "a table or column is missing: `unalike schema` prints what is needed")
        }
        NO_SUCH_FUNCTION => (
            StoreError::refused,
            "the server lacks a function of PostgreSQL 13: it is older, or another database that speaks its protocol",
        ),
        "22003" => (StoreError::refused, "a number is beyond what the column can hold"),
        _ => match code.get(..2).unwrap_or_default() {
            "40" => (StoreError::unavailable, "the transaction lost against another one and was rolled back"),
            "53" => (StoreError::unavailable, "the server lacks memory or another resource"),
            "57" => (StoreError::unavailable, "the server is starting, shutting down, or ended the connection"),
            "08" | "58" => (StoreError::unavailable, "a proxy, or the server, lost the statement"),
            _ => (StoreError::refused, "the server refused the statement"),
        },
    }
}

/// The error of a statement that only reads, or of connecting: nothing can have been granted.
pub(crate) fn read_error(at: &str, doing: &str, error: sqlx::Error) -> StoreError {
    let code = code(&error);
    match write_error(at, doing, error) {
        // The server ended the connection, and said why.
        StoreError::OutcomeUnknown { what, source } => match code.map(|code| judge(&code).0(String::new())) {
            Some(StoreError::Refused { .. }) => StoreError::Refused { what, source },
            _ => StoreError::Unavailable { what, source },
        },
        other => other,
    }
}

const TLS: &str = "no TLS with a server that can be trusted: check ssl-mode and ssl-ca, and the server's certificate";

/// The error of connecting.
pub(crate) fn connect_error(at: &str, error: sqlx::Error) -> StoreError {
    use std::io::ErrorKind;
    match &error {
        // From the TLS library.
        sqlx::Error::Tls(_) => return StoreError::refused(format!("{at}: {TLS}")).with_source(error),
        sqlx::Error::Io(io) if matches!(io.kind(), ErrorKind::InvalidData | ErrorKind::NotFound) => {
            return StoreError::refused(format!("{at}: {TLS}")).with_source(error);
        }
        sqlx::Error::Io(_) => {
            return StoreError::unavailable(format!("the server at {at} cannot be reached")).with_source(error);
        }
        // PgBouncer says no more of a wrong name, user or password.
        sqlx::Error::Database(said) if said.code().as_deref() == Some("08P01") => {
            let what = format!(
                "connecting, at {at}: the server, or a pooler before it, denied access: check user, password and database"
            );
            return StoreError::refused(what).with_source(said.message());
        }
        _ => {}
    }
    read_error(at, "connecting", error)
}

/// No connection, so nothing was done.
pub(crate) fn no_connection(at: &str, doing: &str, why: &str) -> StoreError {
    StoreError::unavailable(format!("{doing}, at {at}: {why}"))
}

/// Whether the connection is gone, and others that lead to the same server may be; or what it has prepared is of no
/// use.
pub(crate) fn broke(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(_) => {
            let is_stale = |code: String| matches!(code.as_str(), "0A000" | "26000" | "42P05" | "08P01");
            ends_connection(error) || code(error).is_some_and(is_stale)
        }
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => true,
        _ => false,
    }
}

/// Whether the server, or a pooler, says so that the connection is gone.
fn ends_connection(error: &sqlx::Error) -> bool {
    use sqlx::postgres::{PgDatabaseError, PgSeverity};
    let sqlx::Error::Database(error) = error else { return false };
    let severity = error.try_downcast_ref::<PgDatabaseError>().map(PgDatabaseError::severity);
    matches!(severity, Some(PgSeverity::Fatal | PgSeverity::Panic))
}

/// The server's error code.
pub(crate) fn code(error: &sqlx::Error) -> Option<String> {
    let sqlx::Error::Database(error) = error else { return None };
    error.code().map(|code| code.into_owned())
}

/// A value in the database that should not be there.
pub(crate) fn damaged(at: &str, what: &str) -> StoreError {
    StoreError::corrupt(format!("{at}: {what}; find out who changed it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_worth_a_retry_and_what_is_wrong_is_said() {
        let is_retryable = |code: &str| judge(code).0(String::new()).is_retryable();
        for code in ["40001", "40P01", "55P03", "57014", "25006", "53100", "53200", "53300", "57P01", "57P03", "0A000"]
        {
            assert!(is_retryable(code), "{code}");
        }
        for code in ["28P01", "42501", "3D000", "42P01", "42883", "26000", "42P05", "23514", "XX001"] {
            assert!(!is_retryable(code), "{code}");
        }
    }
}
