//! Which process this is. A child inherits the memory of its parent, and none of its grants.
//!
//! The process id does not tell: it costs a system call, and parent and child may have the same one in two namespaces.
//! So each process marks a word, and the kernel wipes the word in every child that gets a copy of the memory
//! (`MADV_WIPEONFORK`, Linux 4.14), whoever makes the child and by which call. Looking costs two loads. Where the
//! kernel has no such advice, a handler of `pthread_atfork` wipes the word: children of `fork` are noticed then, and
//! those of `_Fork` and of the bare system call are not.
//!
//! A child that shares the memory instead of copying it (`vfork`, `posix_spawn`, a thread) is the same process here:
//! what it takes, its parent does not get.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use crate::StoreError;

/// A process, as the memory has it that it was marked in: compare it later to notice a fork.
///
/// Whoever holds grants, or a connection to a store, remembers in which process it got them, and refuses in any other
/// one, before it takes a lock: a thread that held the lock when the process forked is not there in the child.
///
/// ```
/// use unalike_storage::Process;
///
/// let opened_in = Process::current();
/// assert!(opened_in.is_current());
/// assert!(opened_in.check("the connection to db.example").is_ok()); // in a child an error, which says so
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

/// Where the mark is: 0 in a process that has not looked yet.
static MARK: AtomicPtr<AtomicU64> = AtomicPtr::new(UNPREPARED);
/// The mark where the kernel wipes nothing, and of a process that has not looked yet.
static BY_HANDLER: AtomicU64 = AtomicU64::new(0);
const UNPREPARED: *mut AtomicU64 = (&raw const BY_HANDLER).cast_mut();
/// The greatest mark that any process before this one may have had.
static LAST: AtomicU64 = AtomicU64::new(0);
/// The handler was registered.
static IS_HANDLED: AtomicBool = AtomicBool::new(false);

impl Process {
    /// This one.
    ///
    /// # Panics
    /// When there is no memory for the mark.
    #[must_use]
    pub fn current() -> Self {
        prepare();
        let mark = mark();
        loop {
            let found = mark.load(Ordering::Acquire);
            if found != 0 {
                return Self(found);
            }
            // Recorded before it is used: a child that is born in between takes another one.
            let next = LAST.load(Ordering::Acquire) + 1;
            LAST.fetch_max(next, Ordering::AcqRel);
            let _ = mark.compare_exchange(0, next, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// Whether this is still that process.
    #[inline]
    #[must_use]
    pub fn is_current(self) -> bool {
        mark().load(Ordering::Relaxed) == self.0
    }

    /// Refuses in a child what was opened in its parent; `what` begins the message.
    ///
    /// # Errors
    /// [`StoreError::Refused`].
    pub fn check(self, what: &str) -> Result<(), StoreError> {
        if self.is_current() {
            return Ok(());
        }
        let what = format!("{what} was opened before this process was forked: open another one in the child");
        Err(StoreError::refused(what))
    }

    /// How far this process is from an older one, of which it is a child, a child's child, ..: 0 in the same one, 1 or
    /// more in a child, and more in a child of that one if that one looked.
    #[must_use]
    pub fn generations_after(self, older: Self) -> u64 {
        self.0.saturating_sub(older.0)
    }
}

/// How much a process has open of what no child may touch, such as files whose locks do not pass to a child. A child
/// knows by it that its parent had some open when it forked, and waits for nobody to know it.
///
/// ```
/// use unalike_storage::Openings;
///
/// static OPENINGS: Openings = Openings::new();
/// assert!(OPENINGS.begin().is_ok()); // before the first is opened
/// assert!(OPENINGS.begin().is_ok()); // in a child that is born now: false
/// OPENINGS.end(); // after it was closed
/// OPENINGS.end();
/// ```
#[derive(Debug, Default)]
pub struct Openings {
    /// The mark of the process that counts. A child inherits it.
    process: AtomicU64,
    count: AtomicU64,
}

/// A parent of this process has some open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenInParent;

impl Openings {
    /// None yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { process: AtomicU64::new(0), count: AtomicU64::new(0) }
    }

    /// Counts one more. Called before it is opened: a child that is born in between knows of it.
    ///
    /// # Errors
    /// [`OpenInParent`] in a process whose parent, or whose parent's parent, had some open when it forked.
    pub fn begin(&self) -> Result<(), OpenInParent> {
        let Process(current) = Process::current();
        let mut process = self.process.load(Ordering::Acquire);
        while process != current {
            if self.count.load(Ordering::Acquire) > 0 {
                let found = self.process.load(Ordering::Acquire);
                if found == process {
                    return Err(OpenInParent);
                }
                // Another thread of this process was the first, and its count is no inherited one.
                process = found;
                continue;
            }
            match self.process.compare_exchange(process, current, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(found) => process = found,
            }
        }
        self.count.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Counts one less, in the process that began it. Called after it was closed.
    pub fn end(&self) {
        let before = self.count.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "what ends began");
    }
}

#[inline]
#[expect(unsafe_code, reason = "the mark is at an address that the kernel gave")]
fn mark() -> &'static AtomicU64 {
    // SAFETY: it is the address of a static, or of a page that is never given back.
    unsafe { &*MARK.load(Ordering::Acquire) }
}

/// Leaves all signals to the threads of the program that this one belongs to: none ends it, and no handler of the
/// program's runs on it. Above all `SIGPIPE`, which programs of Rust ignore and others die of when a connection breaks:
/// the write fails then. What the processor raises stays, as WebAssembly needs it.
pub fn block_signals() {
    #[expect(unsafe_code, reason = "there is no safe way to a thread's signals")]
    // SAFETY: the set lives for as long as the calls, the first of which initialises it.
    unsafe {
        let mut set = std::mem::MaybeUninit::uninit();
        libc::sigfillset(set.as_mut_ptr());
        for raised in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS] {
            libc::sigdelset(set.as_mut_ptr(), raised);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut());
    }
}

/// Makes a place for the mark. It waits for nobody: a thread that was at it when a child was born is not there in the
/// child.
fn prepare() {
    if MARK.load(Ordering::Acquire) != UNPREPARED || IS_HANDLED.load(Ordering::Acquire) {
        return;
    }
    #[cfg(target_os = "linux")]
    if let Some(page) = wiped_page() {
        if MARK.compare_exchange(UNPREPARED, page, Ordering::AcqRel, Ordering::Acquire).is_err() {
            give_back(page);
        }
        return;
    }
    // Twice, if two threads come at once, does no harm.
    #[cfg(unix)]
    wipe_by_handler();
    IS_HANDLED.store(true, Ordering::Release);
}

/// Another thread was quicker.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "a mapping is given back by its address")]
fn give_back(page: *mut AtomicU64) {
    // SAFETY: nobody else has heard of the page.
    let result = unsafe { libc::munmap(page.cast(), size_of::<AtomicU64>()) };
    assert!(result == 0, "the page was mapped");
}

/// A page of its own, which every child finds empty.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "there is no safe way to such a page")]
fn wiped_page() -> Option<*mut AtomicU64> {
    let size = size_of::<AtomicU64>();
    // SAFETY: a fresh mapping at an address of the kernel's choice takes nobody's memory. The kernel rounds its size up
    // to a page. It is never given back.
    let page = unsafe {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        libc::mmap(ptr::null_mut(), size, access, kind, -1, 0)
    };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the advice concerns that page. Who takes an advice that does not exist (an emulator) takes this one for
    // nothing, too.
    let is_wiped =
        unsafe { libc::madvise(page, size, -1) != 0 && libc::madvise(page, size, libc::MADV_WIPEONFORK) == 0 };
    is_wiped.then_some(page.cast())
}

#[cfg(unix)]
extern "C" fn in_child() {
    BY_HANDLER.store(0, Ordering::Relaxed);
}

#[cfg(unix)]
#[expect(unsafe_code, reason = "there is no safe way to hear of a fork")]
fn wipe_by_handler() {
    // SAFETY: the handler is async-signal-safe (one atomic store) and lives as long as the process.
    let result = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    assert!(result == 0, "out of memory while registering the fork handler");
}

#[cfg(all(test, unix))]
#[expect(unsafe_code, reason = "fork is what is tested")]
mod tests {
    use super::*;

    /// Runs this in a child that `fork` makes, and answers whether it was so there.
    fn in_child_of(fork: impl FnOnce() -> libc::pid_t, holds: impl FnOnce() -> bool) -> bool {
        let pid = fork();
        assert!(pid >= 0);
        if pid == 0 {
            // SAFETY: the child makes no call that needs another thread, and leaves by _exit.
            unsafe {
                libc::alarm(20);
                libc::_exit(i32::from(!holds()));
            }
        }
        let mut status = -1;
        // SAFETY: the child exists and `status` is a place for its status.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        status == 0
    }

    fn by_fork() -> libc::pid_t {
        // SAFETY: what the child does is up to `in_child_of`.
        unsafe { libc::fork() }
    }

    /// A child that no handler hears of.
    #[cfg(target_os = "linux")]
    fn by_system_call() -> libc::pid_t {
        // SAFETY: as `by_fork`. The second argument is the child's stack: none, so that it has a copy of this one.
        let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        libc::pid_t::try_from(pid).unwrap_or(-1)
    }

    fn is_another(parent: Process) -> bool {
        let is_inherited = !parent.is_current() && parent.check("it").is_err();
        let child = Process::current();
        is_inherited && child.is_current() && child != parent && child.generations_after(parent) >= 1
    }

    #[test]
    fn every_child_is_another_process_and_so_is_its_child() {
        let parent = Process::current();
        assert_eq!(Process::current(), parent);
        assert!(in_child_of(by_fork, || {
            let child = Process::current();
            is_another(parent) && in_child_of(by_fork, || is_another(child) && !parent.is_current())
        }));
        #[cfg(target_os = "linux")]
        assert!(in_child_of(by_system_call, || is_another(parent)));
        assert!(parent.is_current() && Process::current() == parent);
    }

    /// Its parent was used, and it was not.
    #[test]
    fn a_grandchild_is_another_process_also_if_the_child_never_looked() {
        let parent = Process::current();
        assert!(in_child_of(by_fork, || in_child_of(by_fork, || is_another(parent))));
    }

    #[test]
    fn a_child_begins_nothing_while_its_parent_has_some_open() {
        let openings = Openings::new();
        let begins = |openings: &Openings| openings.begin().is_ok();
        assert!(begins(&openings) && begins(&openings));
        let is_refused = || !begins(&openings) && in_child_of(by_fork, || !begins(&openings));
        assert!(in_child_of(by_fork, is_refused));
        openings.end();
        assert!(in_child_of(by_fork, is_refused));
        openings.end();
        assert!(in_child_of(by_fork, || begins(&openings) && in_child_of(by_fork, is_refused)));
        assert!(begins(&openings), "what a child has open is not counted here");
    }

    #[test]
    fn of_many_threads_that_begin_at_once_none_is_taken_for_a_child() {
        for _ in 0..200 {
            let openings = Openings::new();
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| openings.begin())).collect();
                for thread in threads {
                    assert_eq!(thread.join().unwrap(), Ok(()));
                }
            });
        }
    }

    #[test]
    fn the_handler_wipes_where_the_kernel_does_not() {
        wipe_by_handler();
        BY_HANDLER.store(7, Ordering::Relaxed);
        assert!(in_child_of(by_fork, || BY_HANDLER.load(Ordering::Relaxed) == 0));
        assert_eq!(BY_HANDLER.load(Ordering::Relaxed), 7);
    }
}
