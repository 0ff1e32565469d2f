//! Quotas: how many ids a second a token may take, and how many a tag or snowflake gives, of this process.
//!
//! A quota is a bucket that holds the ids of one second and fills again all the time. While anything is in it a request
//! gets all that it asks for, up to the ids of a minute, and what was not in the bucket is owed: requests after it are
//! refused until that is paid, for a minute after a single one. So over any time the rate is kept, but for one second's
//! ids and those of the requests that are under way.
//!
//! What is owed is known when ids were given. Until then a request keeps no more than a second's ids from others, and
//! gives them back if it gets none (the store is down): so callers hear of the cause.

use std::num::NonZeroU32;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const SECOND_NS: u64 = 1_000_000_000;

/// One request takes no more than the ids of so many seconds.
const REQUEST_MAX_S: u64 = 60;

/// Before all that is counted here.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Now, since [`START`].
pub(crate) fn now_ns() -> u64 {
    u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// How many ids a second somebody may take, and how many were taken.
#[derive(Debug)]
pub(crate) struct Quota {
    ids_per_s: NonZeroU32,
    /// When all ids that were taken are paid for, in nanoseconds since [`START`].
    paid_ns: AtomicU64,
}

impl Quota {
    /// One of which nothing was taken.
    pub(crate) fn new(ids_per_s: NonZeroU32) -> Self {
        Self { ids_per_s, paid_ns: AtomicU64::new(0) }
    }

    /// The ids of one second.
    pub(crate) fn ids_per_s(&self) -> u32 {
        self.ids_per_s.get()
    }

    /// How long these ids are paid for, rounded up.
    fn price_ns(&self, count: u64) -> u64 {
        let price_ns = (u128::from(count) * u128::from(SECOND_NS)).div_ceil(u128::from(self.ids_per_s.get()));
        u64::try_from(price_ns).unwrap_or(u64::MAX)
    }

    /// The most ids of one request.
    pub(crate) fn request_max(&self) -> u64 {
        u64::from(self.ids_per_s.get()) * REQUEST_MAX_S
    }

    /// How many of so many ids are kept from others until it is known whether there are any.
    fn kept(&self, count: u64) -> u64 {
        count.min(self.ids_per_s.get().into())
    }

    /// Keeps ids for a request that wants so many; gives when they are paid for.
    ///
    /// # Errors
    /// After how many milliseconds there will be some.
    pub(crate) fn take(&self, now_ns: u64, count: u64) -> Result<u64, u64> {
        let price_ns = self.price_ns(self.kept(count));
        let taken = self.paid_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |paid_ns| {
            let from_ns = paid_ns.max(now_ns);
            (from_ns - now_ns < SECOND_NS).then(|| from_ns.saturating_add(price_ns))
        });
        match taken {
            Ok(paid_ns) => Ok(paid_ns.max(now_ns).saturating_add(price_ns)),
            Err(paid_ns) => Err((paid_ns.saturating_sub(now_ns).saturating_sub(SECOND_NS) + 1).div_ceil(1_000_000)),
        }
    }

    /// Of so many that were wanted and kept until then, so many were given.
    pub(crate) fn given(&self, now_ns: u64, until_ns: u64, wanted: u64, given: u64) {
        let kept = self.kept(wanted);
        if given < kept {
            // What was paid for by the time that has passed is nobody's any more.
            let left_ns = self.price_ns(kept - given).min(until_ns.saturating_sub(now_ns));
            self.change(|paid_ns| paid_ns.saturating_sub(left_ns));
        } else {
            let more_ns = self.price_ns(given - kept);
            self.change(|paid_ns| paid_ns.saturating_add(more_ns));
        }
    }

    fn change(&self, change: impl Fn(u64) -> u64) {
        // It gives a value always, so it is not refused.
        let _ = self.paid_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |paid_ns| Some(change(paid_ns)));
    }
}

/// Why a quota gives nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OverQuota {
    /// It is used up for now.
    #[error("{of}: ask again in {wait_ms} ms")]
    UsedUp {
        /// Whose quota.
        of: QuotaOf,
        /// After how many milliseconds there are some again.
        wait_ms: u64,
    },
    /// So many ids at once it never gives.
    #[error("{of}, and a request may take those of a minute, {max}: ask for fewer than {count} at once")]
    TooMany {
        /// Whose quota.
        of: QuotaOf,
        /// How many were wanted.
        count: u64,
        /// How many there may be.
        max: u64,
    },
}

impl OverQuota {
    /// After how many milliseconds there are some again; `None` for more than it ever gives at once.
    #[cfg(feature = "component")]
    pub(crate) fn wait_ms(&self) -> Option<u64> {
        match self {
            Self::UsedUp { wait_ms, .. } => Some(*wait_ms),
            Self::TooMany { .. } => None,
        }
    }
}

/// Whose quota it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {whose} {name:?} has a quota of {ids_per_s} ids per second of each server")]
pub(crate) struct QuotaOf {
    /// One of [`QuotaOf::WHOSE`].
    pub(crate) whose: &'static str,
    /// What that is called.
    pub(crate) name: String,
    /// The quota.
    pub(crate) ids_per_s: u32,
}

impl QuotaOf {
    /// What quotas may be of.
    pub(crate) const WHOSE: [&str; 3] = ["token", "tag", "snowflake"];
}

/// Ids that were taken of quotas, before it is known whether there are any.
#[must_use = "what is not given counts for nothing: say how many were"]
pub(crate) struct Taken<'a> {
    /// And until when what was taken of each is paid for.
    pub(crate) quotas: [Option<(&'a Quota, u64)>; 2],
    pub(crate) count: u64,
}

impl Taken<'_> {
    /// So many of them were given.
    pub(crate) fn given(self, count: u64) {
        for (quota, until_ns) in self.quotas.into_iter().flatten() {
            quota.given(now_ns(), until_ns, self.count, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn quota(ids_per_s: u32) -> Quota {
        Quota::new(NonZeroU32::new(ids_per_s).unwrap())
    }

    #[test]
    fn a_second_is_given_at_once_and_then_the_rate() {
        let quota = quota(1_000);
        for _ in 0..1_000 {
            quota.take(5 * MS, 1).unwrap();
        }
        assert_eq!(quota.take(5 * MS, 1), Err(1));
        quota.take(6 * MS, 1).unwrap();
        assert_eq!(quota.take(6 * MS, 1), Err(1));
        // A second later the bucket is full, and not fuller after an hour.
        let later_ns = 3_600 * SECOND_NS;
        let taken = (0..5_000).take_while(|_| quota.take(later_ns, 1).is_ok()).count();
        assert_eq!(taken, 1_000);
    }

    #[test]
    fn a_large_request_is_served_and_the_next_one_waits_for_as_long_as_it_lasts() {
        let quota = quota(100);
        quota.take(0, 5_000).unwrap();
        // It is not known yet whether it gets them.
        assert_eq!(quota.take(0, 1), Err(1));
        quota.given(0, SECOND_NS, 5_000, 5_000);
        assert_eq!(quota.take(0, 1), Err(49_001));
        assert_eq!(quota.take(48_000 * MS, 1), Err(1_001));
        quota.take(49_001 * MS, 1).unwrap();
    }

    #[test]
    fn what_is_given_back_counts_for_nothing() {
        let quota = quota(10);
        let until_ns = quota.take(0, 10).unwrap();
        assert_eq!((until_ns, quota.take(0, 1)), (SECOND_NS, Err(1)));
        quota.given(0, until_ns, 10, 4);
        let until_ns = quota.take(0, 6).unwrap();
        assert_eq!(quota.take(0, 1), Err(1));
        quota.given(0, until_ns, 6, 16);
        assert_eq!(quota.take(0, 1), Err(1_001));
    }

    #[test]
    fn what_time_has_paid_for_is_given_back_to_nobody() {
        let quota = quota(10);
        let until_ns = quota.take(0, 10).unwrap();
        // Others take a second's ids meanwhile, and then it fails.
        quota.take(5 * SECOND_NS, 10).unwrap();
        quota.given(5 * SECOND_NS, until_ns, 10, 0);
        assert_eq!(quota.take(5 * SECOND_NS, 1), Err(1));
    }

    #[test]
    fn nothing_overflows() {
        let slow = quota(1);
        slow.take(u64::MAX - 1, u64::MAX).unwrap();
        slow.given(0, u64::MAX, u64::MAX, u64::MAX);
        assert!(slow.take(0, 1).is_err());
        slow.given(0, u64::MAX, u64::MAX, 0);
        slow.given(0, 0, 0, u64::MAX);
        assert!(slow.take(0, 1).is_err());
        let fast = quota(u32::MAX);
        fast.take(0, u64::from(u32::MAX)).unwrap();
        assert_eq!(fast.take(0, 1), Err(1));
        assert_eq!(fast.request_max(), 60 * u64::from(u32::MAX));
    }

    #[test]
    fn many_threads_get_no_more_than_one() {
        let quota = quota(10_000);
        let taken: usize = std::thread::scope(|scope| {
            let take = || (0..10_000).filter(|_| quota.take(0, 1).is_ok()).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, 10_000);
    }
}
