//! From etcd's refusals to the one error of every store.
//!
//! The question that matters is whether a write may stand although no success was reported. etcd answers with a code
//! and a text; the codes are shared by what is certain and what is not, so the text decides. What is not known here
//! counts as done.

use tonic::Status;
use unalike_storage::StoreError;

use crate::connection::{Carriage, carriage};

/// What is known of a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing was done, and another member, or this one in a moment, may do it.
    NotNow,
    /// Nothing was done, since the member knows the user no longer: it is to be named again.
    Stranger,
    /// Nothing was done, and it is worth a retry later.
    Unavailable(&'static str),
    /// Nothing was done, and never will be.
    Refused(&'static str),
    /// It may have been done.
    Unknown,
    /// The same, and it is known why it came to that.
    UnknownWith(&'static str),
}

/// What etcd says where nothing was done, unless the verdict says otherwise, by a part of the text: what is in
/// `api/v3rpc/rpctypes`, and what raft says.
const KNOWN: &[(&str, Verdict)] = &[
    ("etcdserver: no leader", Verdict::NotNow),
    ("raft proposal dropped", Verdict::NotNow),
    ("etcdserver: invalid auth token", Verdict::Stranger),
    ("etcdserver: revision of auth store is old", Verdict::Stranger),
    ("auth: revision in header is old", Verdict::Stranger),
    ("etcdserver: too many requests", Verdict::Unavailable("the member has too much to do")),
    (
        // Also of a request that was carried out when the quota was reached by it.
        "etcdserver: mvcc: database space exceeded",
        Verdict::UnknownWith(
            "its quota of space is used up, and it takes no more writes: compact and defragment it, or raise \
             --quota-backend-bytes, and then disarm the alarm (`etcdctl alarm disarm`)",
        ),
    ),
    ("etcdserver: rpc not supported for learner", Verdict::NotNow),
    ("etcdserver: permission denied", Verdict::Refused("the user may not: grant what `unalike schema` lists")),
    (
        "etcdserver: user name is empty",
        Verdict::Refused("it asks for a user: name one before the @, with its password"),
    ),
    (
        "etcdserver: authentication failed, invalid user ID or password",
        Verdict::Refused("it denied access: check the user's name and password"),
    ),
    (
        "etcdserver: authentication is not enabled",
        Verdict::Refused("a user is named, and it asks for none: leave the user out, or enable authentication"),
    ),
    ("etcdserver: role name is empty", Verdict::Refused("the user has no role")),
    ("etcdserver: request is too large", Verdict::Refused("its --max-request-bytes is too small")),
    ("etcdserver: too many operations in txn request", Verdict::Refused("its --max-txn-ops is too small")),
    ("etcdserver: corrupt cluster", Verdict::Refused("its members have different data: repair the cluster")),
    ("etcdserver: not capable", Verdict::Refused("it is older than 3.3")),
];

/// Judges a failure.
pub(crate) fn judge(status: &Status) -> Verdict {
    match carriage(status) {
        Some(Carriage::NotSent) => return Verdict::NotNow,
        Some(Carriage::Broke(_)) => return Verdict::Unknown,
        None => {}
    }
    let known = KNOWN.iter().find(|(text, _)| status.message().contains(text));
    known.map_or(Verdict::Unknown, |(_, verdict)| *verdict)
}

/// A request whose outcome is unknown: what it did is lost, if it writes.
pub(crate) fn lost(at: &str, doing: &str, is_write: bool, why: &str) -> StoreError {
    let what = format!("{doing}, at {at}: {why}");
    if is_write { StoreError::outcome_unknown(what) } else { StoreError::unavailable(what) }
}

/// A value that is not what it should be.
pub(crate) fn damaged(at: &str, key: &str, what: &str) -> StoreError {
    StoreError::corrupt(format!("{at}: the key {key:?} {what}; find out who changed it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_may_have_been_done() {
        for text in [
            "etcdserver: request timed out",
            "etcdserver: request timed out, possibly due to previous leader failure",
            "etcdserver: request timed out, possibly due to connection lost",
            "etcdserver: leader changed",
            "etcdserver: server stopped",
            "something new",
            "",
        ] {
            assert_eq!(judge(&Status::unavailable(text)), Verdict::Unknown, "{text:?}");
        }
        assert_eq!(judge(&Status::unavailable("etcdserver: no leader")), Verdict::NotNow);
        assert_eq!(judge(&Status::from_error(Box::new(Carriage::NotSent))), Verdict::NotNow);
    }
}
