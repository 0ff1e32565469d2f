//! The one place that reads a clock.

use std::sync::Arc;

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
    /// A clock before 1970 reads 0.
    #[inline]
    fn now_ms(&self) -> u64 {
        let (seconds, nanoseconds) = read();
        seconds.saturating_mul(1_000).saturating_add(u64::from(nanoseconds / 1_000_000))
    }
}

/// Seconds and nanoseconds since 1970. `SystemTime` reads the same, and then takes a third as long again to subtract
/// 1970 from it, which would be a fifth of a snowflake's cost.
#[cfg(unix)]
#[inline]
fn read() -> (u64, u32) {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    #[expect(unsafe_code, reason = "the system's clock, read without detours")]
    // SAFETY: `time` is a place for what is read.
    let outcome = unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    assert!(outcome == 0, "every system has a wall clock");
    (u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(not(unix))]
#[expect(clippy::disallowed_methods, reason = "this is the clock module")]
fn read() -> (u64, u32) {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    (since_epoch.as_secs(), since_epoch.subsec_nanos())
}

/// The clock of an `Ids`. The system's own is called directly: the call is a part of every snowflake's cost.
#[derive(Clone)]
pub(crate) enum Time {
    System,
    Given(Arc<dyn Clock>),
}

impl Time {
    #[inline]
    pub(crate) fn now_ms(&self) -> u64 {
        match self {
            Self::System => SystemClock.now_ms(),
            Self::Given(clock) => clock.now_ms(),
        }
    }
}
