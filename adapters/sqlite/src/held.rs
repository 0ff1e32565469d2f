//! Whether the files that are open are still those that others find.
//!
//! Whoever deletes, moves or replaces the file of a store, or one of the two beside it, leaves the programs that have
//! it open with files that nobody else sees. They and a program that opens what is there now would be granted the
//! same numbers. So every grant is followed by a look, by name, at the files: while those that are open are found,
//! whoever comes later opens these, and what was committed before the look is in them.
//!
//! Once another file was found, or none, this process grants nothing more from the file that it has open, also when
//! that is put back: what others were granted meanwhile is not in it. Every store and lease store on the file shares
//! that, until the last of them is closed.
//!
//! One connection that is never used is kept open for it: the log (`-wal`) and its index (`-shm`) stay the same files
//! as long as any connection to the store is open, in any process, and so another one under either name is nobody's
//! doing but an operator's.
//!
//! Whether SQLite still has its locks on them is looked at, too: see [`Watch`]. Once it has not, this process grants
//! nothing more from the file for as long as it lives, and SQLite closes nothing of it any more: the numbers of its
//! descriptors may be those of other files by then.
//!
//! A child of a fork inherits SQLite's memory, which says that this process holds the locks by which others see that
//! the file is in use: they are the parent's, and go with it. And a mutex of SQLite's that a thread had taken stays
//! taken in the child. So no child opens a store while its parent has one open. Nor does another copy of this library
//! in the same process: see [`Mark`].

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection};
use unalike_storage::{Openings, Process, StoreError, lock};

use crate::copies::Mark;
use crate::error::open_error;
use crate::locks::{Watch, refuse_others};

/// How often a store that is closed is looked at while the process has no descriptors left, and how long after another.
const LOOKS_MAX: u32 = 50;
const LOOK: Duration = Duration::from_millis(100);

/// So many links are followed, as by Linux.
const LINKS_MAX: usize = 40;

/// The stores that this process has open.
static OPENINGS: Openings = Openings::new();

/// The stores that this process has open, by their files.
static SHARED: Mutex<Vec<(File, Weak<Shared>)>> = Mutex::new(Vec::new());

/// The files of a store that is open.
#[derive(Debug)]
pub(crate) struct Held {
    /// The file, its log and the index of that.
    paths: [PathBuf; 3],
    /// What had these names when the store was opened.
    files: OnceLock<[File; 3]>,
    /// None before it is opened, and once it is closed.
    shared: Mutex<Option<Arc<Shared>>>,
    anchor: Mutex<Option<SqliteConnection>>,
    /// All other connections.
    pools: OnceLock<[SqlitePool; 2]>,
    mark: Mark,
    /// Closing has begun.
    is_closed: AtomicBool,
    /// It has ended. Whoever comes meanwhile waits.
    has_closed: tokio::sync::Mutex<bool>,
    process: Process,
}

/// What all stores and lease stores on a file have in common, until the last of them is closed.
#[derive(Debug)]
struct Shared {
    files: [File; 3],
    /// None where a lock was gone from the beginning.
    watch: Option<Watch>,
    loss: OnceLock<Loss>,
}

/// Why nothing more is granted.
#[derive(Debug)]
enum Loss {
    /// A name of the store lost its file, and how.
    File(PathBuf, &'static str),
    /// In words.
    Locks(String),
}

/// What tells a file from any other, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl Held {
    /// Before SQLite first looks at the file. One that is never closed counts as open.
    pub(crate) fn begin(path: &Path) -> Result<Self, StoreError> {
        OPENINGS.begin().map_err(|_| {
            StoreError::refused(format!(
                "{} cannot be opened in this process: it was forked from one that has a store in SQLite open, whose \
                 locks no child inherits. Close the store before the fork, open the first one after it, in the child, or \
                 have the child execute a program; in Python, fork by os.fork, which closes it, and not by daemon(3)",
                path.display()
            ))
        })?;
        // SQLite keeps the other two beside the file itself, wherever a symbolic link to it is.
        let file = resolved(path);
        let mark = Mark::set(&file).inspect_err(|_| OPENINGS.end())?;
        let paths = [path.to_owned(), beside(&file, "-wal"), beside(&file, "-shm")];
        let held = Self {
            paths,
            files: OnceLock::new(),
            shared: Mutex::default(),
            anchor: Mutex::default(),
            pools: OnceLock::new(),
            mark,
            is_closed: AtomicBool::new(false),
            has_closed: tokio::sync::Mutex::default(),
            process: Process::current(),
        };
        held.look_for_others().inspect_err(|_| held.end())?;
        Ok(held)
    }

    /// Refuses a file that this process has lost, or that another copy of SQLite has open in it.
    fn look_for_others(&self) -> Result<(), StoreError> {
        let [path, _, index] = &self.paths;
        let Some(file) = look_at(path)? else { return Ok(()) };
        let known = lock(&SHARED);
        match shared_of(&known, file) {
            Some(shared) => shared.check(Watch::check_alone),
            None if self.mark.is_first => refuse_others(index),
            // Another store of this copy is just opening or closing it, or was dropped.
            None => Ok(()),
        }
    }

    /// The connections that are closed with it.
    pub(crate) fn add(&self, pools: [SqlitePool; 2]) {
        assert!(self.pools.set(pools).is_ok(), "a store is opened once");
    }

    /// Holds on to the files as they are now, of a store that is in write-ahead mode.
    pub(crate) async fn hold(&self, connect: &SqliteConnectOptions) -> Result<(), StoreError> {
        let failed = |error| open_error(&self.paths[0], error);
        check_mount(&self.paths[0])?;
        let mut anchor = connect.connect().await.map_err(failed)?;
        // A connection opens the log, and its index, when it first reads.
        let read = sqlx::query("SELECT id FROM store").fetch_all(&mut anchor).await.map_err(failed);
        let looks = read.and_then(|_| {
            let [file, log, index] =
                self.paths.each_ref().map(|path| look_at(path)?.ok_or_else(|| gone(path, DELETED)));
            Ok([file?, log?, index?])
        });
        let shared = looks.and_then(|files| Ok((files, share(&self.paths, files)?)));
        let (files, shared) = match shared {
            Ok(shared) => shared,
            Err(error) => {
                // One that is dropped is closed later, after others were let in.
                let _ = anchor.close().await;
                return Err(error);
            }
        };
        *lock(&self.anchor) = Some(anchor);
        *lock(&self.shared) = Some(shared);
        let held = self.files.get_or_init(|| files);
        assert_eq!(*held, files, "a store is opened once");
        Ok(())
    }

    /// Refuses to go on when other files than those that are open have their names, or none has, when the locks on them
    /// are gone, or when that was noticed before.
    ///
    /// Some looks at what the kernel has at hand: microseconds, before a flush of milliseconds.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.look(Watch::check)
    }

    /// The same after a grant, before it is believed: also whether a second copy of SQLite may have disregarded the
    /// lock meanwhile. That takes longer with many open descriptors.
    pub(crate) fn check_grant(&self) -> Result<(), StoreError> {
        self.look(Watch::check_alone)
    }

    fn look(&self, look: fn(&Watch) -> Result<(), StoreError>) -> Result<(), StoreError> {
        let Some(files) = self.files.get() else { return Ok(()) };
        // Before they are let go of, they are looked at a last time, under this lock.
        let shared = lock(&self.shared);
        if let Some(shared) = &*shared {
            shared.check(look)?;
        }
        // The last connection that is closed takes the other two away.
        let is_closed = self.is_closed.load(Ordering::Acquire);
        for (path, held) in self.paths.iter().zip(files).take(if is_closed { 1 } else { 3 }) {
            let what = match look_at(path)? {
                Some(found) if found == *held => continue,
                Some(_) => REPLACED,
                None => DELETED,
            };
            if let Some(shared) = &*shared {
                shared.lose(Loss::File(path.clone(), what));
            }
            return Err(gone(path, what));
        }
        Ok(())
    }

    /// Closes all connections, and lets go.
    pub(crate) async fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        let mut has_closed = self.has_closed.lock().await;
        if *has_closed {
            return;
        }
        if !self.is_found_sound().await {
            return self.keep();
        }
        for pool in self.pools.get().into_iter().flatten() {
            pool.close().await;
        }
        // The last look. Nobody else looks while the locks go.
        let anchor = {
            let _others = lock(&SHARED);
            let mut shared = lock(&self.shared);
            let is_sound = shared.as_ref().is_none_or(|shared| shared.check_locks().is_ok());
            is_sound.then(|| {
                *shared = None;
                lock(&self.anchor).take()
            })
        };
        let Some(anchor) = anchor else { return self.keep() };
        if let Some(anchor) = anchor {
            // What it held is on the disk already.
            let _ = anchor.close().await;
        }
        *has_closed = true;
        self.end();
    }

    /// Whether SQLite may close what it has open here.
    fn is_sound(&self) -> bool {
        lock(&self.shared).as_ref().is_none_or(|shared| shared.check_locks().is_ok())
    }

    /// The same, also in a process that has no room to look just now.
    async fn is_found_sound(&self) -> bool {
        for _ in 0..LOOKS_MAX {
            match lock(&self.shared).as_ref().map(|shared| shared.check_locks()) {
                Some(Err(StoreError::Unavailable { .. })) => {}
                looked => return looked.is_none_or(|looked| looked.is_ok()),
            }
            tokio::time::sleep(LOOK).await;
        }
        false
    }

    /// Has nothing closed as long as this process lives.
    fn keep(&self) {
        std::mem::forget((self.pools.get().cloned(), lock(&self.anchor).take(), lock(&self.shared).clone()));
    }

    /// It is not open any more.
    fn end(&self) {
        self.mark.remove();
        OPENINGS.end();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A child may not wait for a lock, nor close what it inherits.
        if !self.process.is_current() {
            let (anchor, shared) = (self.anchor.get_mut(), self.shared.get_mut());
            std::mem::forget((self.pools.take(), anchor.map(Option::take).ok(), shared.map(Option::take).ok()));
        } else if !self.is_sound() {
            self.keep();
        }
    }
}

impl Shared {
    fn check(&self, look: fn(&Watch) -> Result<(), StoreError>) -> Result<(), StoreError> {
        match self.loss.get() {
            Some(loss) => Err(loss.error()),
            None => self.watched(look),
        }
    }

    /// Whether all locks are there, whatever became of the names.
    fn check_locks(&self) -> Result<(), StoreError> {
        match self.loss.get() {
            Some(loss @ Loss::Locks(_)) => Err(loss.error()),
            _ => self.watched(Watch::check_alone),
        }
    }

    /// What is not watched was lost from the beginning, and is not asked about.
    fn watched(&self, look: fn(&Watch) -> Result<(), StoreError>) -> Result<(), StoreError> {
        self.watch.as_ref().map_or(Ok(()), look).inspect_err(|error| {
            if let StoreError::Refused { what, .. } = error {
                self.lose(Loss::Locks(what.clone()));
            }
        })
    }

    /// Another request may have noticed another loss first.
    fn lose(&self, loss: Loss) {
        let _ = self.loss.set(loss);
    }
}

impl Loss {
    fn error(&self) -> StoreError {
        match self {
            Self::File(path, what) => gone(path, what),
            Self::Locks(what) => StoreError::refused(what.clone()),
        }
    }
}

/// What this process knows of a file that it has open.
fn shared_of(known: &[(File, Weak<Shared>)], file: File) -> Option<Arc<Shared>> {
    known.iter().filter(|(known, _)| *known == file).find_map(|(_, shared)| shared.upgrade())
}

/// The files of a store that was opened, for all that have it open.
fn share(paths: &[PathBuf; 3], files: [File; 3]) -> Result<Arc<Shared>, StoreError> {
    let [file, ..] = files;
    let mut known = lock(&SHARED);
    known.retain(|(_, shared)| shared.strong_count() > 0);
    if let Some(shared) = shared_of(&known, file) {
        if let Some(at) = (0..3).find(|at| files.get(*at) != shared.files.get(*at))
            && let Some(path) = paths.get(at)
        {
            shared.lose(Loss::File(path.clone(), REPLACED));
        }
        return Ok(shared);
    }
    let (watch, loss) = match Watch::begin(paths, &files) {
        Ok(watch) => (Some(watch), OnceLock::new()),
        // Another copy of SQLite has it open, whose locks would go when this one closes it.
        Err(StoreError::Refused { what, .. }) => (None, OnceLock::from(Loss::Locks(what))),
        Err(error) => return Err(error),
    };
    let shared = Arc::new(Shared { files, watch, loss });
    known.push((file, Arc::downgrade(&shared)));
    Ok(shared)
}

/// The file that SQLite opens by a path. A link may lead to one that is still to be made.
fn resolved(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        if let Ok(found) = std::fs::canonicalize(&path) {
            return found;
        }
        let Ok(target) = std::fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("/")).join(target);
    }
    path
}

/// The name of one of the two files that SQLite keeps beside its own.
pub(crate) fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The file that has this name, if one has.
#[cfg(unix)]
fn look_at(path: &Path) -> Result<Option<File>, StoreError> {
    use std::os::unix::fs::MetadataExt as _;
    match std::fs::metadata(path) {
        // Another name has another log: programs that use both grant the same numbers.
        Ok(found) if found.nlink() > 1 => Err(StoreError::refused(format!(
            "{} has {} names (hard links), and a program that uses another one would grant the same numbers: remove \
                 the others; a copy of the file is made with `sqlite3 FILE 'VACUUM INTO ..'`",
            path.display(),
            found.nlink()
        ))),
        Ok(found) => Ok(Some(File { device: found.dev(), inode: found.ino() })),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::unavailable(format!(
            "{} cannot be looked at, so nobody knows whether it is still the one that others use: this user must be \
                 able to enter its directory",
            path.display()
        ))
        .with_source(error)),
    }
}

/// Refuses a file that was mounted by itself, as containers do with single files: its log would lie in another
/// directory, which the next container has not, and what was committed last would be lost with it.
#[cfg(target_os = "linux")]
fn check_mount(path: &Path) -> Result<(), StoreError> {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    // A kernel that knows no such attribute (before 5.8) leaves it out.
    let is_mounted = statx(CWD, path, AtFlags::empty(), StatxFlags::empty())
        .is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    if !is_mounted {
        return Ok(());
    }
    let what = format!(
        "{} is mounted as a single file, so its log ({0}-wal) would lie elsewhere, and with it what was granted last: mount \
         the directory that the file is in",
        path.display()
    );
    Err(StoreError::refused(what))
}

#[cfg(not(target_os = "linux"))]
fn check_mount(_: &Path) -> Result<(), StoreError> {
    Ok(())
}

/// Elsewhere a file that is open is not deleted.
#[cfg(not(unix))]
fn look_at(_: &Path) -> Result<Option<File>, StoreError> {
    Ok(Some(File { device: 0, inode: 0 }))
}

/// What became of a file that has no name any more.
const DELETED: &str = "was deleted or moved";

const REPLACED: &str = "was replaced";

fn gone(path: &Path, what: &str) -> StoreError {
    StoreError::refused(format!(
        "{} {what} while this process had it open: whoever opens the store now would be granted numbers that were granted \
             before, so this process grants none any more. Stop all programs that use the store. If the file is there \
             under another name, move it back, with its -wal and -shm, and start them again. If it is lost, put a \
             backup or a new store there (unalike tags create), and run `unalike store restored --lift COUNT` before any \
             program uses it",
        path.display()
    ))
}
