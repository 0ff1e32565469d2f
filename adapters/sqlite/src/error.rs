//! From SQLite's result codes to the one error of every store.

use std::path::Path;

use unalike_storage::StoreError;

// Primary result codes, the low 8 bits of the extended ones: <https://www.sqlite.org/rescode.html>.
const PERM: i32 = 3;
const ABORT: i32 = 4;
const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const NOMEM: i32 = 7;
const READONLY: i32 = 8;
const INTERRUPT: i32 = 9;
const IOERR: i32 = 10;
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const CANTOPEN: i32 = 14;
const PROTOCOL: i32 = 15;
const SCHEMA: i32 = 17;
const AUTH: i32 = 23;
const FORMAT: i32 = 24;
const NOTADB: i32 = 26;

/// The error of a statement that writes, or of its commit.
///
/// The question that matters is whether the commit may be in the file although it was reported as failed. SQLite rolls
/// a transaction back in the file on every error but one kind: after an I/O error (a failed fsync above all) the commit
/// record may have reached the disk, and a recovery would find it valid. So I/O errors, and everything that is not
/// known, are of unknown outcome.
pub(crate) fn write_error(path: &Path, doing: &str, error: sqlx::Error) -> StoreError {
    let file = path.display();
    let code = result_code(&error);
    // The advice is fixed text: the driver's own message follows as the source of the error.
    let (kind, advice): (fn(String) -> StoreError, &str) = match code {
        Some(BUSY | LOCKED | PROTOCOL) => {
            (StoreError::unavailable, "another process holds the file's write lock for longer than the busy timeout")
        }
        // The pages did not fit the write-ahead log, so its commit record was never written, and SQLite has rolled
        // the transaction back: nothing was granted.
        Some(FULL) => (
            StoreError::unavailable,
            "the disk that the file is on is full, so nothing was written and nothing was granted: free some space there, and it \
             goes on by itself",
        ),
        Some(CANTOPEN) => (StoreError::unavailable, "the file or its -wal or -shm file cannot be opened"),
        Some(NOMEM | INTERRUPT | ABORT | SCHEMA) => {
            (StoreError::unavailable, "the statement was broken off and rolled back")
        }
        Some(READONLY | PERM | AUTH) => {
            (StoreError::refused, "this process may not write: make the file and its directory writable for its user")
        }
        // SQLite says the same of a page that makes no sense and of one that the disk could not read.
        Some(CORRUPT) => (
            StoreError::corrupt,
            "the disk reported an input/output error while it read the file, or the file is damaged. Look for disk errors in \
             the system's log (dmesg) first: if there are some, the file may be whole, so stop all programs that use it, copy \
             it with its -wal and -shm to a disk that works, and start them there. If there are none, stop them, restore the \
             file from a backup, and raise every tag above what was handed out since (or start a new file under new tags)",
        ),
        Some(NOTADB | FORMAT) => (
            StoreError::corrupt,
            "is not a SQLite database: name another file. If unalike made this one, its beginning was overwritten: stop \
             all processes, restore it from a backup, and raise every tag above what was handed out since (or start a new \
             file under new tags)",
        ),
        Some(IOERR) => (
            StoreError::outcome_unknown,
            "the disk reported an input/output error while it read or wrote the file or its -wal. It goes on by itself when the \
             disk works again; look at the system's log (dmesg), and if the errors stay, stop all programs that use the file \
             and move it, with its -wal and -shm, to another disk",
        ),
        // Our own statements are refused only when a row breaks an invariant of the schema; it was rolled back.
        Some(_) => (StoreError::refused, "SQLite refused the statement"),
        None => match &error {
            sqlx::Error::PoolTimedOut => {
                (StoreError::unavailable, "no turn within the busy timeout: too many requests are waiting")
            }
            sqlx::Error::PoolClosed => (StoreError::unavailable, "the store was closed"),
            // The connection did not begin a transaction; the pool replaces it.
            sqlx::Error::BeginFailed | sqlx::Error::InvalidSavePointStatement => {
                (StoreError::unavailable, "the transaction could not begin")
            }
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::ColumnNotFound(_) | sqlx::Error::Decode(_) => {
                (StoreError::corrupt, "a row is not as unalike writes it")
            }
            _ => (StoreError::outcome_unknown, "the connection broke"),
        },
    };
    let what = match code {
        Some(NOTADB | FORMAT) => format!("{file} {advice}"),
        _ => format!("{doing}, in {file}: {advice}"),
    };
    kind(what).with_source(error)
}

/// The error of a statement that only reads: nothing can have been granted.
pub(crate) fn read_error(path: &Path, doing: &str, error: sqlx::Error) -> StoreError {
    match write_error(path, doing, error) {
        StoreError::OutcomeUnknown { what, source } => StoreError::Unavailable { what, source },
        other => other,
    }
}

/// The error of opening the file: what exists and cannot be opened is a matter of permissions.
pub(crate) fn open_error(path: &Path, error: sqlx::Error) -> StoreError {
    if result_code(&error) == Some(CANTOPEN) {
        let what = format!(
            "opening {}: it cannot be opened: this user must be able to read and write the file and its directory",
            path.display()
        );
        return StoreError::refused(what).with_source(error);
    }
    read_error(path, "opening", error)
}

/// Whether the file is locked by somebody else just now.
pub(crate) fn is_busy(error: &sqlx::Error) -> bool {
    matches!(result_code(error), Some(BUSY | LOCKED))
}

/// A value in the file that unalike never writes.
pub(crate) fn damaged(path: &Path, what: &str) -> StoreError {
    StoreError::corrupt(format!(
        "{}: {what}; restore the file from a backup, or find out who changed it",
        path.display()
    ))
}

fn result_code(error: &sqlx::Error) -> Option<i32> {
    let sqlx::Error::Database(error) = error else { return None };
    // sqlx gives the extended code, as decimal text.
    let extended: i32 = error.code()?.parse().ok()?;
    Some(extended & 0xff)
}
