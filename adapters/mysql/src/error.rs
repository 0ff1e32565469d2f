//! From MySQL's and MariaDB's error codes to the one error of every store.

use std::io::ErrorKind;

use unalike_storage::StoreError;

// <https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html>,
// <https://mariadb.com/kb/en/mariadb-error-code-reference/>.
pub(crate) const TABLE_EXISTS: u16 = 1050;
pub(crate) const DUPLICATE_ENTRY: u16 = 1062;
pub(crate) const NO_SUCH_TABLE: u16 = 1146;
pub(crate) const UNKNOWN_COLUMN: u16 = 1054;
/// A table that is to have system versioning has it already.
pub(crate) const VERSIONED: u16 = 4135;
pub(crate) const SYNTAX_ERROR: u16 = 1064;
pub(crate) const TABLE_ACCESS_DENIED: u16 = 1142;
pub(crate) const ACCESS_DENIED: u16 = 1227;
pub(crate) const DEADLOCK: u16 = 1213;
pub(crate) const AUTO_INCREMENT_FAILED: u16 = 1467;

/// What a server says that takes no writes.
pub(crate) const ONLY_READS: &str = "the server only reads just now: is it a replica, or failing over?";

/// From a code to an error.
pub(crate) type Kind = fn(String) -> StoreError;

/// The error of a statement that writes, or of its commit.
///
/// The question that matters is whether the commit may stand although no success was reported. A statement that the
/// server refused was rolled back. But an answer that did not come, a server that was shut down, a connection that was
/// killed, and a commit that broke off in the storage engine or in the binary log leave that open; so does everything
/// that is not known.
pub(crate) fn write_error(at: &str, doing: &str, error: sqlx::Error) -> StoreError {
    let what = |advice: &str| format!("{doing}, at {at}: {advice}");
    let (kind, advice): (Kind, &str) = match code(&error) {
        Some(code) => judge(code),
        None => match &error {
            sqlx::Error::Configuration(_) => (StoreError::refused, "the connection is configured wrongly"),
            sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::ColumnNotFound(_)
            | sqlx::Error::ColumnIndexOutOfBounds { .. }
            | sqlx::Error::Decode(_) => (StoreError::corrupt, "a row is not as it should be"),
            _ => (StoreError::outcome_unknown, "the connection broke"),
        },
    };
    kind(what(advice)).with_source(error)
}

/// What the server's number says of a statement that writes: the kind of the error, and what to do.
pub(crate) fn judge(code: u16) -> (Kind, &'static str) {
    match code {
        1205 | 3572 => {
            (StoreError::unavailable, "another transaction holds the row for too long; the statement was rolled back")
        }
        1020 | 1206 | DEADLOCK | 1637 | 3101 => {
            (StoreError::unavailable, "the transaction lost against another one and was rolled back")
        }
        1290 | 1792 | 1836 | 3100 => (StoreError::unavailable, ONLY_READS),
        1021 | 1114 => (StoreError::unavailable, "the server's disk, or its tablespace, is full: make room"),
        1037 | 1038 | 1041 => (StoreError::unavailable, "the server is out of memory"),
        1040 | 1203 | 1226 => (StoreError::unavailable, "the server has too many connections"),
        1129 => (
            StoreError::unavailable,
            "the server blocks this host after too many broken connections: FLUSH HOSTS there",
        ),
        // A node of a cluster that is joining or has lost the others; a server that is taken offline or was idle for
        // too long.
        1047 | 3032 | 3168 | 4031 => (StoreError::unavailable, "the server serves no requests now"),
        // MariaDB answers so to a connection without TLS, too.
        1045 | 1698 => (
            StoreError::refused,
            "the server denied access: check the user's name and password, and whether it demands TLS (ssl-mode)",
        ),
        1130 => (StoreError::refused, "the server takes no connections from this host: allow the user to come from it"),
        1044 => (
            StoreError::refused,
            "the user has no privilege on this database: check its name, and grant what `unalike schema` lists",
        ),
        TABLE_ACCESS_DENIED | 1143 | ACCESS_DENIED | 1370 => (
            StoreError::refused,
            "the user lacks a privilege that the statement needs, which the server names: grant what `unalike schema` lists",
        ),
        3159 => (StoreError::refused, "the server demands TLS: check ssl-mode"),
        1049 => (StoreError::refused, "there is no such database: create it"),
        NO_SUCH_TABLE | 1054 | 1109 => {
            (StoreError::refused, "a table or column is missing: `unalike schema` prints what is needed")
        }
        // A number that does not fit its column; STRICT_ALL_TABLES, which every connection sets, has it refused.
        1264 | 1690 => (StoreError::refused, "a number is beyond what the column can hold"),
        // The constraints of unalike's own tables.
        3819 | 4025 => (
            StoreError::refused,
            "a row would not be as it must be: most likely the store became a stripe; restart the program with all \
             stores of its set",
        ),
        // The table was changed, or somebody changes it; or the statement, prepared before, is not known on the
        // connection that it went to, or not to as many.
        1243 | 1412 | 1461 | 1615 | 1684 | 1689 => {
            (StoreError::unavailable, "the server did not begin the statement, since tables or connections changed")
        }
        // Errors of a client's, sent by a proxy that is a client of the server; ProxySQL's own; and what is said by
        // many for want of a number. What the server did before is not known.
        1105 | 1152 | 1156 | 1157 | 2000..=2999 | 9000..=9999 => {
            (StoreError::outcome_unknown, "a proxy, or the server, lost the statement, and its commit may stand")
        }
        // Shut down, interrupted, killed, or broken off in a commit: it may have been done.
        1026 | 1030 | 1053 | 1077 | 1079 | 1158..=1161 | 1180 | 1181 | 1317 | 1598 | 1927 | 1969 | 3024 | 3169 => {
            (StoreError::outcome_unknown, "the server broke the statement off, and its commit may stand")
        }
        _ => (StoreError::refused, "the server refused the statement"),
    }
}

/// The error of a statement that only reads, or of connecting: nothing can have been granted.
pub(crate) fn read_error(at: &str, doing: &str, error: sqlx::Error) -> StoreError {
    match write_error(at, doing, error) {
        StoreError::OutcomeUnknown { what, source } => StoreError::Unavailable { what, source },
        other => other,
    }
}

const TLS: &str = "no TLS with a server that can be trusted: check ssl-mode and ssl-ca, and the server's certificate";

/// The error of connecting.
pub(crate) fn connect_error(at: &str, error: sqlx::Error) -> StoreError {
    match &error {
        // From the TLS library; or ssl-ca names a file that is not there.
        sqlx::Error::Tls(_) => return StoreError::refused(format!("{at}: {TLS}")).with_source(error),
        sqlx::Error::Io(io) if matches!(io.kind(), ErrorKind::InvalidData | ErrorKind::NotFound) => {
            return StoreError::refused(format!("{at}: {TLS}")).with_source(error);
        }
        sqlx::Error::Io(_) => {
            return StoreError::unavailable(format!("the server at {at} cannot be reached")).with_source(error);
        }
        // The server's own words, of a login that it denied.
        sqlx::Error::Database(said) if said.message().contains("using password: NO") => {
            let what = format!(
                "connecting, at {at}: the server denied access, and no password was given: name a file that holds it \
                 (password-file=PATH) or a variable (password-env=NAME) in the store's URL; check the user's name, and \
                 whether the server demands TLS (ssl-mode)"
            );
            return StoreError::refused(what).with_source(error);
        }
        _ => {}
    }
    read_error(at, "connecting", error)
}

/// No connection, so nothing was done.
pub(crate) fn no_connection(at: &str, doing: &str, why: &str) -> StoreError {
    StoreError::unavailable(format!("{doing}, at {at}: {why}"))
}

/// Whether the connection is gone, and others that lead to the same server may be.
pub(crate) fn broke(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(_) => code(error).is_some_and(ends_connection),
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => true,
        _ => false,
    }
}

/// Whether the server, or a proxy, says so that the connection is gone.
pub(crate) fn ends_connection(code: u16) -> bool {
    matches!(code, 1053 | 1077 | 1079 | 1927 | 2000..=2999 | 4031 | 9000..=9999)
}

/// The server's error number.
pub(crate) fn code(error: &sqlx::Error) -> Option<u16> {
    let sqlx::Error::Database(error) = error else { return None };
    Some(error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>()?.number())
}

/// A value in the database that should not be there.
pub(crate) fn damaged(at: &str, what: &str) -> StoreError {
    StoreError::corrupt(format!("{at}: {what}; find out who changed it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_worth_a_retry_and_what_may_have_been_done_is_said() {
        // Worth a retry, may have granted.
        let judged = |code: u16| {
            let error = judge(code).0(String::new());
            (error.is_retryable(), error.may_have_granted())
        };
        let passing = [
            1020, 1021, 1040, 1047, 1129, 1203, 1205, 1213, 1226, 1243, 1290, 1412, 1461, 1615, 1689, 1792, 1836, 3032,
            3100, 3101, 3168, 3572, 4031,
        ];
        for code in passing {
            assert_eq!(judged(code), (true, false), "{code}");
        }
        for code in [1030, 1053, 1105, 1180, 1317, 1598, 1927, 1969, 2003, 2006, 2013, 3024, 9001] {
            assert_eq!(judged(code), (true, true), "{code}");
        }
        for code in [1044, 1045, 1049, 1054, 1064, 1142, 1146, 1264, 1690, 4025] {
            assert_eq!(judged(code), (false, false), "{code}");
        }
    }
}
