//! Where requests run, and what ends a wait.
//!
//! Requests run on the tokio runtime that [`Ids`](crate::Ids) was built in, if that has threads of its own and as long
//! as it lives. Everywhere else they run on the library's own executor: outside tokio, where a runtime runs only while
//! somebody blocks on it, and after the runtime has ended. That executor is one thread, which starts with the first
//! [`Ids`](crate::Ids) of a process and never ends. Its timers bound every wait, so a caller needs no runtime to wait
//! in.

use std::future::{Future, pending};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::time::Duration;

use tokio::runtime::{Handle, Runtime, RuntimeFlavor};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::Sleep;
use tokio::time::error::Elapsed;
use unalike_storage::{Process, block_signals};

use crate::{Error, ErrorKind};

/// What a set of generators runs on.
#[derive(Debug)]
pub(crate) struct Executor {
    own: Handle,
    given: Option<Given>,
}

/// A runtime that somebody else may end.
#[derive(Debug)]
struct Given {
    handle: Handle,
    /// The runtime has ended, or is about to.
    ended: Arc<AtomicBool>,
    /// The task that the runtime drops when it ends.
    sentinel: AbortHandle,
    process: Process,
}

impl Executor {
    /// The library's own, whatever else there is.
    pub(crate) fn own() -> Result<Self, Error> {
        Ok(Self { own: own()?, given: None })
    }

    /// The runtime that this is called in, if its tasks run whether anybody waits or not.
    pub(crate) fn here() -> Result<Self, Error> {
        match Handle::try_current() {
            Ok(handle) if handle.runtime_flavor() != RuntimeFlavor::CurrentThread => Self::given(handle),
            _ => Self::own(),
        }
    }

    /// This runtime.
    pub(crate) fn given(handle: Handle) -> Result<Self, Error> {
        let own = own()?;
        let ended = Arc::new(AtomicBool::new(false));
        let at_end = AtEnd(Arc::clone(&ended));
        let sentinel = handle.spawn(async move {
            let _at_end = at_end;
            pending::<()>().await;
        });
        let given = Given { handle, ended, sentinel: sentinel.abort_handle(), process: Process::current() };
        Ok(Self { own, given: Some(given) })
    }

    /// Runs a task. A runtime that ends drops it: what must happen then is up to a guard in the task.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match &self.given {
            Some(given) if !given.ended.load(Ordering::Acquire) => drop(given.handle.spawn(task)),
            _ => self.spawn_to_end(task),
        }
    }

    /// Runs a task that nothing but a panic stops.
    pub(crate) fn spawn_to_end(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.own.spawn(task));
    }

    /// What a future comes to, run as a task; none if it panicked, or its runtime ended.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.spawn(async move {
            // Whoever asked may have gone.
            let _ = answer.send(work.await);
        });
        answered.await.ok()
    }

    /// Runs a future to its end on this thread, which must not be one that runs tasks of tokio's.
    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.own.block_on(work)
    }

    /// Gives a future up after this time, which begins when it is first polled. It may be made and awaited anywhere: a
    /// thread that is about to end can begin no timer, but hand this to a task.
    pub(crate) fn timeout<F: Future>(
        &self,
        limit: Duration,
        work: F,
    ) -> impl Future<Output = Result<F::Output, Elapsed>> + use<F> {
        let own = self.own.clone();
        async move {
            let timeout = {
                let _timers = own.enter();
                tokio::time::timeout(limit, work)
            };
            timeout.await
        }
    }

    /// Ends after this time. It may be awaited anywhere.
    pub(crate) fn sleep(&self, duration: Duration) -> Sleep {
        let _timers = self.own.enter();
        tokio::time::sleep(duration)
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        // In a child the runtime is a copy of the parent's, and so are its locks.
        if self.process.is_current() {
            self.sentinel.abort();
        }
    }
}

struct AtEnd(Arc<AtomicBool>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The library's own executor, and the process that it belongs to. Not behind a lock, which a thread of a parent might
/// hold for ever.
struct Own {
    process: Process,
    runtime: Runtime,
}

static OWN: AtomicPtr<Own> = AtomicPtr::new(std::ptr::null_mut());

/// The executor of this process, started if there is none yet. That of a parent is left alone.
fn own() -> Result<Handle, Error> {
    let process = Process::current();
    let found = OWN.load(Ordering::Acquire);
    if let Some(own) = published(found).filter(|own| own.process == process) {
        return Ok(own.runtime.handle().clone());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("unalike")
        .on_thread_start(block_signals)
        .enable_all()
        .build()
        .map_err(|error| ErrorKind::Executor { reason: error.to_string() })?;
    let handle = runtime.handle().clone();
    let fresh = Box::into_raw(Box::new(Own { process, runtime }));
    match OWN.compare_exchange(found, fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(handle),
        Err(first) => {
            #[expect(unsafe_code, reason = "it comes from a box")]
            // SAFETY: nobody else has seen it.
            let surplus = unsafe { Box::from_raw(fresh) };
            // Dropping a runtime waits for its threads, which asynchronous code must not do.
            surplus.runtime.shutdown_background();
            Ok(published(first).map_or(handle, |own| own.runtime.handle().clone()))
        }
    }
}

/// What a pointer to something that is never freed points to.
#[expect(unsafe_code, reason = "a pointer stands where a lock would")]
pub(crate) fn published<T>(pointer: *const T) -> Option<&'static T> {
    // SAFETY: what was published is never freed.
    unsafe { pointer.as_ref() }
}
