//! The end of the interpreter. Before Python 3.14 it ends every other thread where that next wants the interpreter's
//! lock: nothing of Rust survives that, so no thread is in it by then.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pyo3::ffi;
use pyo3::prelude::*;

/// How long the interpreter waits before it ends for those that are inside.
const END_MAX: Duration = Duration::from_secs(1);

/// How often it looks.
const LOOK: Duration = Duration::from_millis(1);

/// The process, in the upper half, and how many of its threads are inside: a child has none of its parent's.
static INSIDE: AtomicU64 = AtomicU64::new(0);

/// The process whose interpreter is about to end; 0 where none is.
static ENDING: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The interpreter never ends the thread that ends it.
    static IS_ENDER: Cell<bool> = const { Cell::new(false) };
}

/// A thread that calls Python from Rust, until it is dropped.
pub(crate) struct Inside;

impl Inside {
    /// Enters; refused once the interpreter is about to end.
    pub(crate) fn enter() -> Option<Self> {
        let inside = Self::begin();
        let ending = ENDING.load(Ordering::SeqCst);
        let is_refused = ending != 0 && ending == std::process::id() && !IS_ENDER.get();
        (!is_refused).then_some(inside)
    }

    /// Enters, where Python itself refuses to begin anything.
    pub(crate) fn begin() -> Self {
        change(|inside| inside.saturating_add(1));
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        change(|inside| inside.saturating_sub(1));
    }
}

/// Does something that waits, without the interpreter's lock. A thread that the interpreter would end when it comes
/// back stays away.
pub(crate) fn waiting<T: Send>(py: Python<'_>, wait: impl FnOnce() -> T + Send) -> T {
    let (brought, _inside) = py.detach(|| {
        let brought = wait();
        loop {
            match Inside::enter() {
                Some(inside) => return (brought, inside),
                None => std::thread::park(),
            }
        }
    });
    brought
}

/// Changes how many threads of this process are inside.
fn change(changed: impl Fn(u32) -> u32) {
    // A system call each time.
    let process = std::process::id();
    let both = |both| u64::from(process) << 32 | u64::from(changed(of(both, process)));
    let _ = INSIDE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |before| Some(both(before)));
}

/// How many threads of this process are inside.
fn of(both: u64, process: u32) -> u32 {
    let is_own = both >> 32 == u64::from(process);
    if is_own { u32::try_from(both & u64::from(u32::MAX)).unwrap_or(u32::MAX) } else { 0 }
}

/// Refuses other threads from now on, and waits until none is inside: before the interpreter ends.
#[pyfunction]
pub(crate) fn end(py: Python<'_>) {
    #[expect(unsafe_code, reason = "nothing else tells which interpreter this is")]
    // SAFETY: the thread has an interpreter, as `py` says.
    let interpreter = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    // The process goes on when another one ends than its first.
    if interpreter != 0 {
        return;
    }
    IS_ENDER.set(true);
    ENDING.store(std::process::id(), Ordering::SeqCst);
    py.detach(|| {
        let began = Instant::now();
        while of(INSIDE.load(Ordering::SeqCst), std::process::id()) > 0 && began.elapsed() < END_MAX {
            std::thread::sleep(LOOK);
        }
    });
}
