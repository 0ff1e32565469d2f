//! Clocks that a test sets, for processes that it starts: [`FakeClock`] is the wall clock of whatever runs there
//! (libfaketime, loaded into it), and [`HandClock`] a clock that stands still, for programs that are given one.
//!
//! Only what reads the fake clock notices (SQLite's clock in the same process among it); timers and time-outs go by the
//! monotonic clock, which goes on as it is.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tempfile::TempDir;
use unalike::{Clock, SystemClock};

/// The library for programs with threads, as Debian installs it, for each architecture in a directory of its own.
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// What to do when it is not there.
const INSTALL: &str = "install libfaketime: apt-get install faketime";

/// A wall clock that runs with this machine's, so far ahead of it or behind it as it was set.
#[derive(Debug)]
pub struct FakeClock {
    directory: TempDir,
    library: PathBuf,
    readers: Mutex<Vec<u32>>,
}

impl FakeClock {
    /// A clock that shows what this machine's shows.
    ///
    /// # Errors
    /// When libfaketime is not installed.
    pub fn start() -> anyhow::Result<Self> {
        let directories = [
            format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH),
            "/usr/lib64".to_owned(),
            "/usr/local/lib".to_owned(),
            "/usr/lib".to_owned(),
        ];
        let library = directories.iter().map(|directory| Path::new(directory).join(LIBRARY)).find(|path| path.exists());
        let Some(library) = library else { anyhow::bail!("no {LIBRARY} in {directories:?}: {INSTALL}") };
        let clock = Self { directory: TempDir::new()?, library, readers: Mutex::default() };
        clock.set(0)?;
        Ok(clock)
    }

    /// Sets it so many ms ahead of this machine's clock, or behind it, in one step.
    ///
    /// # Errors
    /// When the file is not written.
    pub fn set(&self, ahead_ms: i64) -> anyhow::Result<()> {
        let sign = if ahead_ms < 0 { '-' } else { '+' };
        let (seconds, ms) = (ahead_ms.unsigned_abs() / 1_000, ahead_ms.unsigned_abs() % 1_000);
        let new = self.directory.path().join("new");
        std::fs::write(&new, format!("{sign}{seconds}.{ms:03}\n"))?;
        Ok(std::fs::rename(new, self.file())?)
    }

    /// What has a process read this clock: variables for its environment. It is to be [told of](FakeClock::read_by).
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![
            ("LD_PRELOAD", self.library.clone().into()),
            ("FAKETIME_TIMESTAMP_FILE", self.file().into()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }

    /// Remembers a process that reads it: one that is killed leaves files of libfaketime's behind, on which another
    /// with its number would fail.
    pub fn read_by(&self, process_id: u32) {
        self.readers.lock().unwrap().push(process_id);
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("offset")
    }
}

impl Drop for FakeClock {
    fn drop(&mut self) {
        for id in self.readers.lock().unwrap().iter() {
            if Path::new(&format!("/proc/{id}")).exists() {
                continue;
            }
            for file in [format!("/dev/shm/faketime_shm_{id}"), format!("/dev/shm/sem.faketime_sem_{id}")] {
                // One that ended by itself left none.
                let _ = std::fs::remove_file(file);
            }
        }
    }
}

/// A clock that stands where it was last set, in every process that opened its file.
#[derive(Debug)]
pub struct HandClock(File);

impl HandClock {
    /// The clock of this file, which is made if there is none: it is to be set then.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        File::options().create(true).truncate(false).read(true).write(true).open(path).map(Self)
    }

    /// Lets time pass as on this machine, from where the clock stands: until the machine's is there, it stands.
    pub fn catch_up(&self) {
        self.set(self.now_ms().max(SystemClock.now_ms()));
    }

    /// Sets it, forwards or back.
    pub fn set(&self, now_ms: u64) {
        self.0.write_all_at(&now_ms.to_le_bytes(), 0).unwrap();
    }
}

impl Clock for HandClock {
    fn now_ms(&self) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, 0).unwrap();
        u64::from_le_bytes(bytes)
    }
}
