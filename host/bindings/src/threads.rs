//! The threads that talk to the stores, and calls that wait for them.

use std::fmt::Display;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::{AbortHandle, JoinError};
use unalike::storage::{Process, block_signals};

use crate::Failure;

/// What ids cost is on the threads that ask for them.
const THREADS: usize = 2;

/// Threads of the library's own. A forked child has none of them.
#[derive(Debug)]
pub(crate) struct Threads {
    process: Process,
    /// None once it is being dropped.
    runtime: Option<Runtime>,
}

impl Threads {
    pub(crate) fn start() -> Result<Self, Failure> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(THREADS).thread_name("unalike-host").on_thread_start(block_signals).enable_all();
        let failed = |why: &dyn Display| Failure::of("executor", format!("no threads could be started: {why}"));
        // Where a process may have no more threads, it panics.
        let built = catch_unwind(AssertUnwindSafe(|| builder.build()));
        let runtime = built.map_err(|_| failed(&"this process may have no more"))?.map_err(|error| failed(&error))?;
        Ok(Self { process: Process::current(), runtime: Some(runtime) })
    }

    /// Whether this is the process that started them.
    pub(crate) fn is_own_process(&self) -> bool {
        self.process.is_current()
    }

    /// Where tasks run: not in a forked child.
    fn runtime(&self) -> Option<&Runtime> {
        self.runtime.as_ref().filter(|_| self.is_own_process())
    }

    /// Has a task run. In a forked child it is dropped.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Option<AbortHandle> {
        self.runtime().map(|runtime| runtime.spawn(task).abort_handle())
    }

    /// Has a task run, and waits for it: the caller's own thread may be ended by a connection that breaks.
    ///
    /// # Errors
    /// The task's own; the kind `forked` in a child, and `panic`.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        task: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Result<T, Failure> {
        let runtime = self.runtime().ok_or_else(Failure::forked)?;
        runtime.block_on(runtime.spawn(task)).unwrap_or_else(|_| Err(Failure::panicked()))
    }

    /// Has a task run, and tells what it brings instead of waiting for it: see [`then`]. In a forked child that is the
    /// kind `forked`, told before this returns.
    pub(crate) fn run_then<T: Send + 'static>(
        &self,
        task: impl Future<Output = Result<T, Failure>> + Send + 'static,
        done: impl FnOnce(Result<T, Failure>) + Send + 'static,
    ) {
        match self.tasks() {
            Some(tasks) => then(tasks, task, done),
            None => done(Err(Failure::forked())),
        }
    }

    /// Where tasks run, for one that has these threads with it.
    pub(crate) fn tasks(&self) -> Option<&Handle> {
        self.runtime().map(Runtime::handle)
    }

    /// Ends them, for a drop. Answers whether what they were used with may be dropped: not in a forked child, where a
    /// thread of the parent's may have stopped in the middle of it.
    pub(crate) fn end(&mut self) -> bool {
        let is_own = self.is_own_process();
        match self.runtime.take() {
            // Not a wait: it may be a thread of the runtime that drops it.
            Some(runtime) if is_own => runtime.shutdown_background(),
            // Its threads are in the parent, and so are the locks that they may hold: all of it is left as it is.
            Some(runtime) => std::mem::forget(runtime),
            None => {}
        }
        is_own
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.end();
    }
}

/// Has a task run there, and tells what it brings: once, also when it panics, or ends with its threads.
pub(crate) fn then<T: Send + 'static>(
    tasks: &Handle,
    task: impl Future<Output = Result<T, Failure>> + Send + 'static,
    done: impl FnOnce(Result<T, Failure>) + Send + 'static,
) {
    let done = Done(Some(Box::new(done)));
    let task = tasks.spawn(task);
    tasks.spawn(async move {
        let ended = |error: JoinError| Err(if error.is_panic() { Failure::panicked() } else { Failure::dropped() });
        done.tell(task.await.unwrap_or_else(ended));
    });
}

type Tell<T> = Box<dyn FnOnce(Result<T, Failure>) + Send>;

/// Somebody who waits for an answer, and gets one when this is dropped, too.
struct Done<T>(Option<Tell<T>>);

impl<T> Done<T> {
    fn tell(mut self, answer: Result<T, Failure>) {
        if let Some(done) = self.0.take() {
            done(answer);
        }
    }
}

impl<T> Drop for Done<T> {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(Failure::dropped()));
        }
    }
}

/// Does what may panic, of which no caller in another language hears otherwise.
pub(crate) fn caught<T>(call: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err(Failure::panicked()))
}

/// Does what waits, unless this is a thread that others wait for. A thread that is about to end has it done by another:
/// a program's last calls come from there, of destructors and of what `atexit` was given.
pub(crate) fn waiting<T: Send>(call: &str, wait: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
    match Handle::try_current() {
        Err(error) if error.is_thread_local_destroyed() => {
            std::thread::scope(|scope| scope.spawn(wait).join()).unwrap_or_else(|_| Err(Failure::panicked()))
        }
        Err(_) => caught(wait),
        Ok(_) => Err(nested(call)),
    }
}

/// What waits is refused on a thread that others wait for.
fn nested(call: &str) -> Failure {
    Failure::of(
        "nested",
        format!(
            "{call} may wait, and was called on a thread that runs the library's tasks, as in a callback: call it on another"
        ),
    )
}
