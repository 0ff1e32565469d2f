//! Where the leases of a namespace are kept, where a store grants some itself, and to a Redis above it the time of
//! others.
//!
//! Two such places know nothing of each other's leases, so a namespace has one of them. The store's own row of the
//! namespace says which: it is bound to a layout, or it is a mark that Redis has the leases. Whoever writes it first
//! has the namespace, in one step, since a namespace has one row. A Redis has the mark written before it is granted the
//! first time. Time that was granted before there were marks is found under its tag, [`time_of_leases`].
//!
//! [`time_of_leases`]: crate::time_of_leases

use std::fmt;

use crate::{NamespaceBinding, StoreError, TagRecord, time_of_leases};

/// Where the leases of a namespace are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeasesKept {
    /// In the store that also grants a Redis its time, and not in that Redis.
    InStore,
    /// In a Redis that is granted its time by the store, and not in the store itself.
    InRedis,
    /// In both: they were begun in each before anybody looked.
    InBoth,
}

impl fmt::Display for LeasesKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InStore => {
                "in the durable store itself, and not in the Redis above it that was asked: open them there (--leases with the \
                 durable store's URL, or no --leases), or use another namespace"
            }
            Self::InRedis => {
                "in a Redis above this store, and not in the store itself, which was asked: open them there (--leases with the URL \
                 of that Redis), or use another namespace"
            }
            Self::InBoth => {
                "both in the durable store itself and in a Redis above it, so that two holders may have one worker: nothing more is \
                 granted until an operator has ended one of them (adapters/README.md, \"One namespace, one place\")"
            }
        })
    }
}

impl NamespaceBinding {
    /// The version of a mark that Redis has the leases of a namespace.
    pub const IN_REDIS: u64 = 2;

    /// What stands in the place of the [figures](Self::figures) of a binding where Redis has the leases. A program that
    /// knows no such mark refuses it: it is no layout.
    #[must_use]
    pub const fn figures_in_redis() -> [(&'static str, u64); 10] {
        [
            ("timestamp_bits", 0),
            ("datacenter_bits", 0),
            ("worker_bits", 0),
            ("sequence_bits", 0),
            ("sequence_first", 0),
            ("epoch_ms", 0),
            ("tick_ms", 1),
            ("max_horizon_ms", 1),
            ("floor_ms", 0),
            ("version", Self::IN_REDIS),
        ]
    }
}

impl StoreError {
    /// [`StoreError::LeasesElsewhere`].
    #[must_use]
    pub fn leases_elsewhere(namespace: &str, kept: LeasesKept) -> Self {
        Self::LeasesElsewhere { namespace: namespace.to_owned(), kept }
    }

    /// The error of a store in which leases are asked for, and which has granted a Redis time for the same namespace.
    #[must_use]
    pub fn leases_in_redis(namespace: &str, is_bound: bool) -> Self {
        Self::leases_elsewhere(namespace, if is_bound { LeasesKept::InBoth } else { LeasesKept::InRedis })
    }
}

/// What [`SegmentStore::leave_leases`](crate::SegmentStore::leave_leases) answered, with the time looked for that was
/// granted to leases in Redis before anybody looked at both places; `tag` looks a tag up.
///
/// ```
/// use unalike_storage::{SegmentStore, StoreError, leases_left};
///
/// async fn leave(store: &dyn SegmentStore, namespace: &str) -> Result<(), StoreError> {
///     let left = store.leave_leases(namespace).await;
///     leases_left(left, |time| async move { store.tag(&time).await }).await
/// }
/// ```
///
/// # Errors
/// The store's own; [`LeasesKept::InBoth`] in place of [`LeasesKept::InStore`] where there is such time.
pub async fn leases_left<Looked>(
    left: Result<(), StoreError>,
    tag: impl FnOnce(String) -> Looked,
) -> Result<(), StoreError>
where
    Looked: Future<Output = Result<TagRecord, StoreError>>,
{
    let Err(StoreError::LeasesElsewhere { namespace, kept: LeasesKept::InStore }) = left else { return left };
    let kept = match tag(time_of_leases(&namespace)?).await {
        Err(StoreError::TagUnknown { .. }) => LeasesKept::InStore,
        known => known.map(|_| LeasesKept::InBoth)?,
    };
    Err(StoreError::leases_elsewhere(&namespace, kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_no_binding() {
        let figures = NamespaceBinding::figures_in_redis();
        let figure = |name| figures.iter().find(|(known, _)| *known == name).map(|(_, figure)| *figure).ok_or(());
        assert!(NamespaceBinding::read(figure).unwrap().is_err());
        let as_version_1 = |name| if name == "version" { Ok(1) } else { figure(name) };
        assert!(NamespaceBinding::read(as_version_1).unwrap().is_err());
    }
}
