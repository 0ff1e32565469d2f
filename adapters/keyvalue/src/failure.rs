//! Why nothing that may be used was granted.

/// The cases of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    Unavailable,
    OutcomeUnknown,
    TagUnknown,
    Exhausted,
    Refused,
}

/// Why a store granted nothing that may be used. An instance has no log: the words are for operators as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) denied: Denied,
    pub(crate) problem: &'static str,
    pub(crate) detail: &'static str,
    /// 0 where nothing is known.
    pub(crate) retry_after_ms: u64,
}

impl Failure {
    const fn new(denied: Denied, problem: &'static str, detail: &'static str) -> Self {
        Self { denied, problem, detail, retry_after_ms: 0 }
    }

    /// Nothing was granted.
    pub(crate) const fn unavailable() -> Self {
        let detail = "the key-value store does not answer: try again";
        Self { retry_after_ms: 1_000, ..Self::new(Denied::Unavailable, "store-unavailable", detail) }
    }

    /// Something may have been granted; nobody uses it.
    pub(crate) const fn unknown() -> Self {
        let detail = "the key-value store's answer was lost, and what it may have granted is not used: try again";
        Self { detail, denied: Denied::OutcomeUnknown, ..Self::unavailable() }
    }

    pub(crate) const fn tag_unknown() -> Self {
        Self::new(Denied::TagUnknown, "tag-unknown", "the tag has no counter in the key-value store")
    }

    pub(crate) const fn exhausted() -> Self {
        let detail = "the tag's counter is near the end of what it can count";
        Self::new(Denied::Exhausted, "exhausted", detail)
    }

    /// What only an operator can act on.
    pub(crate) const fn refused(detail: &'static str) -> Self {
        Self::new(Denied::Refused, "store-refused", detail)
    }
}
