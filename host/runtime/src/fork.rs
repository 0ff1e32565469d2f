//! A forked child inherits the memory of its parent, runs of ids included, and must hand out none of them.
//!
//! A child handler counts forks in a static; whoever holds grants remembers the count under which it got them and
//! gives up when it differs. Reading the count costs a load, asking for the process id a system call.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

static FORKS: AtomicU64 = AtomicU64::new(0);
static WATCH: Once = Once::new();

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Starts counting, if nobody did yet.
pub(crate) fn watch() {
    WATCH.call_once(|| {
        #[cfg(unix)]
        {
            #[expect(unsafe_code, reason = "there is no safe way to hear of a fork")]
            // SAFETY: the handler is async-signal-safe (one atomic addition) and lives as long as the process.
            let result = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            assert!(result == 0, "out of memory while registering the fork handler");
        }
    });
}

/// How many forks lie between the first process and this one.
#[inline]
pub(crate) fn generation() -> u64 {
    FORKS.load(Ordering::Relaxed)
}
