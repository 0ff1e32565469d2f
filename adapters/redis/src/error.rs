//! From Redis' errors to the one error of every store.

use std::io;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use unalike_storage::{StoreError, cause};

type Kind = fn(String) -> StoreError;

pub(crate) const CLUSTER: &str =
    "the server is a node of a Redis Cluster: write redis+cluster://HOST,HOST with some of its nodes";

const DENIED: &str = "the server denied access: check user and password";

/// The same commands as in the table of this crate.
const NOT_ALLOWED: &str = "the user may not do it: for its keys (~unalike:*, or as the URL's prefix says) allow it +evalsha \
    +script|load +info +time +hget +hmget +hset +hincrby +set, for leases +hgetall +hkeys +hdel +scan, without a \
    durable store +hlen +hscan +hsetnx, +select for another database than 0, and in a Cluster +asking +cluster|info \
    +cluster|slots";

const TLS: &str = "no TLS with a server that can be trusted: check rediss:// and ssl-ca, the host's name, and the server's \
    certificate, which needs basicConstraints CA:FALSE where it signs itself; a server that asks for the client's needs \
    `tls-auth-clients no`";

/// Which leases are kept where, a durable store notes alone.
pub(crate) fn not_durable() -> StoreError {
    StoreError::refused("a store in Redis cannot stand behind one in Redis: name the durable store behind it")
}

/// The error of a command or script that writes.
///
/// The question that matters is whether it may have been done although no success was reported. Redis runs a command as
/// a whole or, if it answers with an error, not at all: every script here makes its checks before its one write. An
/// answer that did not come leaves the question open, and so does everything that is not known.
pub(crate) fn write_error(at: &str, doing: &str, error: RedisError) -> StoreError {
    let (kind, advice) = class(&error);
    kind(format!("{doing}, at {at}: {advice}")).with_source(error)
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
    if cause::<rustls::Error>(&error).is_some() {
        return StoreError::refused(format!("{at}: {TLS}")).with_source(error);
    }
    if error.is_io_error() {
        let Some(io) = cause::<io::Error>(&error) else {
            // The system's certificates, or the host's name, cannot be read.
            return StoreError::refused(format!("{at}: {TLS}")).with_source(error);
        };
        let advice = match io.kind() {
            io::ErrorKind::ConnectionRefused => "nothing listens there",
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                "it hung up: is it a Redis server, and does it use TLS (rediss://) or not (redis://) as the URL says?"
            }
            _ => "check host and port",
        };
        return StoreError::unavailable(format!("the server at {at} cannot be reached: {advice}")).with_source(error);
    }
    match error.kind() {
        ErrorKind::Parse => {
            let advice =
                "what answers is not a Redis server: check host and port, and whether it demands TLS (rediss://)";
            StoreError::refused(format!("{at}: {advice}")).with_source(error)
        }
        ErrorKind::RESP3NotSupported => StoreError::refused(format!("{at}: {LACKS}")),
        // The server repeats what it was sent, and so the password.
        _ if error.detail().is_some_and(lacks_command) => StoreError::refused(format!("{at}: {LACKS} (HELLO)")),
        _ => read_error(at, "connecting", error),
    }
}

const LACKS: &str = "the server lacks a command that is needed: is it Redis 7 or newer, and is there a rename-command in its configuration?";

/// Whether the server does not know a command, by what it says.
pub(crate) fn lacks_command(detail: &str) -> bool {
    detail.starts_with("unknown command") || detail.starts_with("Unknown Redis command")
}

/// What is behind an error that has no code of its own.
fn class_by_detail(detail: &str) -> (Kind, &'static str) {
    if detail.contains("killed by user") {
        // SCRIPT KILL ends only those that wrote nothing yet.
        return (StoreError::unavailable, "the script was killed before it wrote");
    }
    if detail.starts_with("max number of clients") {
        return (StoreError::unavailable, "the server has too many clients: raise maxclients");
    }
    let advice = if lacks_command(detail) {
        LACKS
    } else if detail.starts_with("The user executing the script") || detail.starts_with("ACL failure in script") {
        NOT_ALLOWED
    } else if detail.starts_with("DB index") {
        "the server has no such database: raise `databases`, or use another one"
    } else {
        "the server refused the command"
    };
    (StoreError::refused, advice)
}

/// Whether the server wants a user or a password, or others.
pub(crate) fn is_denied(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed || matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
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
            | ServerErrorKind::ClusterDown => (refused, CLUSTER),
            ServerErrorKind::NoPerm => (refused, NOT_ALLOWED),
            ServerErrorKind::ResponseError => class_by_detail(error.detail().unwrap_or_default()),
            _ => (refused, "the server refused the command"),
        },
        ErrorKind::AuthenticationFailed => (refused, DENIED),
        ErrorKind::Extension => match error.code() {
            Some("OOM") => (unavailable, "the server's memory is full: make room, or raise maxmemory"),
            Some("MISCONF") => (unavailable, "the server cannot save its data and takes no writes: look at its log"),
            Some("NOREPLICAS") => (unavailable, "the server has too few replicas to take writes"),
            Some("BUSY") => (unavailable, "the server is busy with a slow script"),
            // Of the scripts here.
            Some("DAMAGED") => (StoreError::corrupt, "the key does not hold what it should; find out who changed it"),
            Some("NOAUTH" | "WRONGPASS") => (refused, DENIED),
            Some("DENIED") => {
                (refused, "the server is in protected mode: give it a password, or an address to bind to")
            }
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
    StoreError::corrupt(format!("{at}: {what}; find out who changed it"))
}
