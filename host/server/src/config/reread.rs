//! What is read from files when the server starts, and again while it runs.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::fs::OFlags;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// When a file is read again and this was not enough, the log says so.
const READING_SLOW: Duration = Duration::from_secs(5);

/// Readings that go on at once. On a disk that does not answer each keeps a thread.
pub(crate) const READINGS_MAX: usize = 8;

/// A file that is longer was not meant.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// What is in force, and how it is replaced.
#[derive(Debug)]
pub(crate) struct Reread<T: ?Sized> {
    current: RwLock<Current<T>>,
    /// How often it began to be read again.
    readings: AtomicU64,
    /// One more for each reading that goes on.
    reading: Arc<()>,
}

#[derive(Debug)]
struct Current<T: ?Sized> {
    value: Arc<T>,
    /// By which of the readings.
    reading: u64,
}

impl<T: ?Sized + Send + Sync + 'static> Reread<T> {
    /// What was read at the start.
    pub(crate) fn new(value: Arc<T>) -> Self {
        Self {
            current: RwLock::new(Current { value, reading: 0 }),
            readings: AtomicU64::new(0),
            reading: Arc::default(),
        }
    }

    /// What is in force.
    pub(crate) fn current(&self) -> Arc<T> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).value)
    }

    /// Reads it again. However long that takes, nothing waits for it: no request, no later reading, and not the end of
    /// the process. `what` names it in messages.
    ///
    /// # Errors
    /// Those of `read`: then what is in force stays.
    pub(crate) async fn reload(
        &self,
        what: &str,
        read: impl FnOnce() -> anyhow::Result<Arc<T>> + Send + 'static,
    ) -> anyhow::Result<()> {
        let reading = Arc::clone(&self.reading);
        ensure!(
            // One is its own.
            Arc::strong_count(&reading) <= READINGS_MAX + 1,
            "{what} is still being read {READINGS_MAX} times, for signals before this one"
        );
        let number = self.readings.fetch_add(1, Ordering::Relaxed) + 1;
        let (done, mut value) = oneshot::channel();
        // A thread of the runtime would be waited for when the process ends.
        let begun = thread::Builder::new().name("rereading".to_owned()).spawn(move || {
            // Nobody may wait for it any more.
            let _ = done.send(read());
            drop(reading);
        });
        begun.with_context(|| format!("a thread that reads {what} does not start"))?;
        let value = if let Ok(value) = timeout(READING_SLOW, &mut value).await {
            value
        } else {
            let limit_s = READING_SLOW.as_secs();
            tracing::warn!("{what} takes more than {limit_s} s to be read; until then all stays as it was");
            value.await
        };
        self.replace(number, value.with_context(|| format!("the thread that read {what} broke off"))??);
        Ok(())
    }

    /// How many readings go on.
    #[cfg(test)]
    pub(crate) fn readings_now(&self) -> usize {
        Arc::strong_count(&self.reading) - 1
    }

    /// What this reading found is in force, unless one that began later was quicker.
    fn replace(&self, reading: u64, value: Arc<T>) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.reading < reading {
            *current = Current { value, reading };
        }
    }
}

/// When a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// When the server starts: it may be a pipe, which is read once.
    First,
    /// While it runs: only a regular file, as a pipe may never say anything.
    Again,
}

/// The text of a file.
///
/// # Errors
/// When it cannot be read, is too long, or is no text.
pub(crate) fn text_of(path: &Path, reading: Reading) -> anyhow::Result<String> {
    let file = match reading {
        Reading::First => File::open(path)?,
        Reading::Again => {
            // A pipe would not even be opened before somebody writes to it.
            let flags = OFlags::NONBLOCK.bits().cast_signed();
            let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
            ensure!(file.metadata()?.is_file(), "it is no regular file, and no other is read again");
            file
        }
    };
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    ensure!(
        u64::try_from(text.len()).is_ok_and(|length| length <= FILE_BYTES_MAX),
        "it is longer than {FILE_BYTES_MAX} bytes"
    );
    Ok(text)
}
