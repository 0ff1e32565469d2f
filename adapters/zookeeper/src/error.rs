//! From the driver's errors to the one error of every store.

use unalike_storage::StoreError;
use zookeeper_client::Error;

/// Whether this is the server's own refusal of one request, or that of a request that was never sent: nothing was done.
///
/// Everything else leaves it open whether a write was done: the connection broke, the answer was late, or it cannot be
/// read.
pub(crate) fn is_answer(error: &Error) -> bool {
    matches!(
        error,
        Error::NoNode
            | Error::NodeExists
            | Error::BadVersion
            | Error::NoAuth
            | Error::InvalidAcl
            | Error::NoChildrenForEphemerals
            | Error::NotEmpty
            | Error::NotReadOnly
            | Error::QuotaExceeded
            | Error::Throttled
            | Error::MarshallingError
            | Error::Unimplemented
            | Error::BadArguments(_)
    )
}

/// The error of a write that may grant, or of one that a grant rests on.
pub(crate) fn write_error(at: &str, doing: &str, error: Error) -> StoreError {
    if !is_answer(&error) {
        return StoreError::outcome_unknown(format!("{doing}, at {at}")).with_source(error);
    }
    match error {
        Error::NoAuth | Error::InvalidAcl => not_allowed(at, doing, error),
        Error::QuotaExceeded => {
            StoreError::refused(format!("{doing}, at {at}: the quota of its nodes is full")).with_source(error)
        }
        Error::Throttled | Error::NotReadOnly | Error::MarshallingError => {
            StoreError::unavailable(format!("{doing}, at {at}: the server did not take it")).with_source(error)
        }
        // A node that should be there is gone, or the other way round, where no other client can have done it.
        Error::NoNode | Error::NodeExists | Error::BadVersion => {
            let what = format!("{doing}, at {at}: somebody removed or made nodes; find out who");
            StoreError::corrupt(what).with_source(error)
        }
        _ => StoreError::refused(format!("{doing}, at {at}")).with_source(error),
    }
}

/// The error of a read, or of a write that is nothing but a reading of the clock.
pub(crate) fn read_error(at: &str, doing: &str, error: Error) -> StoreError {
    match write_error(at, doing, error) {
        StoreError::OutcomeUnknown { what, source } => StoreError::Unavailable { what, source },
        other => other,
    }
}

/// The error of a connection that was not made.
pub(crate) fn connect_error(at: &str, error: Error) -> StoreError {
    match &error {
        Error::AuthFailed | Error::NoAuth => not_allowed(at, "connecting", error),
        Error::BadArguments(_) => StoreError::refused(format!("the address {at} cannot be used")).with_source(error),
        _ => {
            let advice = "check hosts and ports, and that a quorum of its servers runs";
            StoreError::unavailable(format!("ZooKeeper at {at} cannot be reached: {advice}")).with_source(error)
        }
    }
}

fn not_allowed(at: &str, doing: &str, error: Error) -> StoreError {
    StoreError::refused(format!("{doing}, at {at}: the nodes' access rights forbid it: check user and password"))
        .with_source(error)
}

/// A node's data that is not what it should be.
pub(crate) fn damaged(path: &str, what: &str) -> StoreError {
    StoreError::corrupt(format!("the node {path}: {what}; find out who changed it"))
}
