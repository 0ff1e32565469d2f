//! From Redis' errors to the one error of every store.

use redis::{ErrorKind, RedisError, ServerErrorKind};
use unalike_storage::StoreError;

type Kind = fn(String, RedisError) -> StoreError;

/// The error of a command or script that writes.
///
/// The question that matters is whether it may have been done although no success was reported. Redis runs a command as
/// a whole or, if it answers with an error, not at all: every script here makes its checks before its one write. An
/// answer that did not come leaves the question open, and so does everything that is not known.
pub(crate) fn write_error(at: &str, doing: &str, error: RedisError) -> StoreError {
    let (kind, advice) = class(&error);
    kind(format!("{doing}, at {at}: {advice}"), error)
}

/// The error of a command that only reads: nothing can have been granted.
pub(crate) fn read_error(at: &str, doing: &str, error: RedisError) -> StoreError {
    match write_error(at, doing, error) {
        StoreError::OutcomeUnknown { what, source } => StoreError::Unavailable { what, source },
        other => other,
    }
}

/// The error of connecting.
pub(crate) fn connect_error(at: &str, error: RedisError) -> StoreError {
    if has_tls_trouble(&error) {
        let advice =
            "no TLS with a server that can be trusted: check rediss:// and ssl-ca, and the server's certificate";
        return StoreError::refused(format!("{at}: {advice}"), error);
    }
    if error.is_io_error() {
        return StoreError::unavailable(format!("the server at {at} cannot be reached"), error);
    }
    read_error(at, "connecting", error)
}

fn has_tls_trouble(error: &RedisError) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if error.downcast_ref::<rustls::Error>().is_some() {
            return true;
        }
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if inner.is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>) {
            return true;
        }
        source = error.source();
    }
    false
}

fn class(error: &RedisError) -> (Kind, &'static str) {
    let unavailable: Kind = StoreError::unavailable;
    let refused: Kind = StoreError::refused;
    let unknown: Kind = StoreError::outcome_unknown;
    match error.kind() {
        ErrorKind::Server(kind) => match kind {
            ServerErrorKind::BusyLoading => (unavailable, "the server is still loading its data"),
            ServerErrorKind::ReadOnly => {
                (unavailable, "the server only reads just now: is it a replica, or failing over?")
            }
            ServerErrorKind::MasterDown => (unavailable, "the server is a replica that has lost its master"),
            ServerErrorKind::TryAgain => (unavailable, "the server asks for another try"),
            ServerErrorKind::NoScript => {
                (unavailable, "the server forgot the script at once: SCRIPT FLUSH, again and again?")
            }
            ServerErrorKind::Moved
            | ServerErrorKind::Ask
            | ServerErrorKind::CrossSlot
            | ServerErrorKind::ClusterDown => {
                (refused, "the server belongs to a cluster, which is not supported: use one server with its replicas")
            }
            ServerErrorKind::NoPerm => (
                refused,
                "the user may not do it: it needs the commands EVALSHA, SCRIPT LOAD, INFO, TIME and those on hashes, for these keys",
            ),
            ServerErrorKind::ResponseError => match error.detail() {
                // A script that wrote nothing yet is killed by SCRIPT KILL.
                Some(detail) if detail.contains("killed by user") => {
                    (unavailable, "the script was killed before it wrote")
                }
                _ => (refused, "the server refused the command"),
            },
            _ => (refused, "the server refused the command"),
        },
        ErrorKind::AuthenticationFailed => (refused, "the server denied access: check user and password"),
        ErrorKind::Extension => match error.code() {
            Some("OOM") => (unavailable, "the server's memory is full: make room, or raise maxmemory"),
            Some("MISCONF") => (unavailable, "the server cannot save its data and takes no writes: look at its log"),
            Some("NOREPLICAS") => (unavailable, "the server has too few replicas to take writes"),
            Some("BUSY") => (unavailable, "the server is busy with a slow script"),
            Some("NOAUTH" | "WRONGPASS") => (refused, "the server denied access: check user and password"),
            // Of the scripts here.
            Some("DAMAGED") => (StoreError::corrupt, "the key does not hold what it should; find out who changed it"),
            Some("WRONGTYPE") => (StoreError::corrupt, "the key holds something else; find out who uses it"),
            _ => (refused, "the server refused the command"),
        },
        ErrorKind::InvalidClientConfig | ErrorKind::Client => (refused, "the connection is configured wrongly"),
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
            (unknown, "the answer cannot be read: is it a Redis server?")
        }
        _ if error.is_connection_refusal() => (unavailable, "the server cannot be reached"),
        _ => (unknown, "the answer did not come"),
    }
}

/// Whether the connection is of no use any more. One on which an answer was too late is not either: the answer may
/// come, and whoever asked is gone.
pub(crate) fn broke(error: &RedisError) -> bool {
    // A master that became a replica keeps its connections; another server may be behind the address by now.
    error.is_io_error()
        || error.is_unrecoverable_error()
        || matches!(
            error.kind(),
            ErrorKind::Parse | ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        )
}

/// Something in Redis that should not be there.
pub(crate) fn damaged(at: &str, what: &str) -> StoreError {
    StoreError::Corrupt { what: format!("{at}: {what}; find out who changed it"), source: None }
}

pub(crate) fn refusal(what: String) -> StoreError {
    StoreError::Refused { what, source: None }
}
