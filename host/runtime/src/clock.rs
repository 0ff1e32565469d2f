//! The one place that reads a clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Where the time comes from. It may stand still, jump or go back: that costs availability, never uniqueness.
///
/// ```
/// use std::sync::Arc;
/// use unalike::{Clock, Ids};
///
/// /// A clock that stands still, for a test.
/// struct Stopped;
///
/// impl Clock for Stopped {
///     fn now_ms(&self) -> u64 {
///         1_700_000_000_000
///     }
/// }
///
/// let builder = Ids::builder().clock(Arc::new(Stopped));
/// ```
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since 1970-01-01T00:00:00Z.
    fn now_ms(&self) -> u64;
}

/// The system's wall clock.
///
/// ```
/// use unalike::{Clock, SystemClock};
/// assert!(SystemClock.now_ms() > 1_700_000_000_000); // November 2023
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    /// A clock before 1970 reads 0, and one beyond the year 584 million stands still there.
    #[expect(clippy::disallowed_methods, reason = "this is the clock module")]
    fn now_ms(&self) -> u64 {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Not `as_millis`, whose 128 bits cost half as much again as the reading itself.
        since_epoch.as_secs().saturating_mul(1_000).saturating_add(u64::from(since_epoch.subsec_millis()))
    }
}
