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
//! A child of a fork inherits SQLite's memory, which says that this process holds the locks by which others see that
//! the file is in use: they are the parent's, and go with it. And a mutex of SQLite's that a thread had taken stays
//! taken in the child. So no child opens a store while its parent has one open. Nor does another copy of this library
//! in the same process: see [`Mark`].

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection};
use unalike_storage::{Openings, StoreError, lock};

use crate::copies::Mark;
use crate::error::open_error;

/// So many links are followed, as by Linux.
const LINKS_MAX: usize = 40;

/// The stores that this process has open.
static OPENINGS: Openings = Openings::new();

/// Which name of a store lost its file while it was open here, and how.
type Loss = OnceLock<(PathBuf, &'static str)>;

/// What was noticed of each file that this process has open.
static LOSSES: Mutex<Vec<(File, Weak<Loss>)>> = Mutex::new(Vec::new());

/// The files of a store that is open.
#[derive(Debug)]
pub(crate) struct Held {
    /// The file, its log and the index of that.
    paths: [PathBuf; 3],
    /// What had these names when the store was opened.
    files: OnceLock<[File; 3]>,
    /// None before it is opened, and once it is closed.
    loss: Mutex<Option<Arc<Loss>>>,
    anchor: Mutex<Option<SqliteConnection>>,
    mark: Mark,
    /// Closing has begun.
    is_closed: AtomicBool,
    /// It has ended. Whoever comes meanwhile waits.
    has_closed: tokio::sync::Mutex<bool>,
}

/// What tells a file from any other, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct File {
    device: u64,
    inode: u64,
}

impl Held {
    /// Before SQLite first looks at the file. One that is never closed counts as open.
    pub(crate) fn begin(path: &Path) -> Result<Self, StoreError> {
        OPENINGS.begin().map_err(|_| {
            StoreError::refused(format!(
                "{} cannot be opened in this process: it was forked from one that has a store in SQLite open, whose locks no \
                 child inherits. Fork before the parent opens a store, close it (SqliteStore::close) before the fork, or \
                 have the child execute a program",
                path.display()
            ))
        })?;
        // SQLite keeps the other two beside the file itself, wherever a symbolic link to it is.
        let file = resolved(path);
        let mark = Mark::set(&file).inspect_err(|_| OPENINGS.end())?;
        let paths = [path.to_owned(), beside(&file, "-wal"), beside(&file, "-shm")];
        Ok(Self {
            paths,
            files: OnceLock::new(),
            loss: Mutex::default(),
            anchor: Mutex::default(),
            mark,
            is_closed: AtomicBool::new(false),
            has_closed: tokio::sync::Mutex::default(),
        })
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
        let files = match looks {
            Ok(files) => files,
            Err(error) => {
                // One that is dropped is closed later, after others were let in.
                let _ = anchor.close().await;
                return Err(error);
            }
        };
        *lock(&self.anchor) = Some(anchor);
        *lock(&self.loss) = Some(loss_of(files[0]));
        let held = self.files.get_or_init(|| files);
        assert_eq!(*held, files, "a store is opened once");
        Ok(())
    }

    /// Refuses to go on when other files than those that are open have their names, or none has, or that was noticed
    /// before.
    ///
    /// Three looks at names that the kernel has at hand: some microseconds, before a flush of milliseconds.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let Some(files) = self.files.get() else { return Ok(()) };
        // The last connection that is closed takes the other two away.
        let is_closed = self.is_closed.load(Ordering::Acquire);
        let loss = lock(&self.loss).clone();
        if let Some((path, what)) = loss.as_ref().and_then(|loss| loss.get()) {
            return Err(gone(path, what));
        }
        for (path, held) in self.paths.iter().zip(files).take(if is_closed { 1 } else { 3 }) {
            let what = match look_at(path)? {
                Some(found) if found == *held => continue,
                Some(_) => "was replaced",
                None => DELETED,
            };
            if let Some(loss) = loss {
                // Another request may have noticed it first.
                let _ = loss.set((path.clone(), what));
            }
            return Err(gone(path, what));
        }
        Ok(())
    }

    /// Lets go, when no other connection is needed any more.
    pub(crate) async fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        let mut has_closed = self.has_closed.lock().await;
        let anchor = lock(&self.anchor).take();
        if let Some(anchor) = anchor {
            // What it held is on the disk already.
            let _ = anchor.close().await;
        }
        *lock(&self.loss) = None;
        if !std::mem::replace(&mut *has_closed, true) {
            self.mark.remove();
            OPENINGS.end();
        }
    }
}

/// What was noticed of this file, by all that have it open.
fn loss_of(file: File) -> Arc<Loss> {
    let mut losses = lock(&LOSSES);
    losses.retain(|(_, loss)| loss.strong_count() > 0);
    let known = losses.iter().find(|(known, _)| *known == file);
    if let Some(loss) = known.and_then(|(_, loss)| loss.upgrade()) {
        return loss;
    }
    let loss = Arc::new(Loss::new());
    losses.push((file, Arc::downgrade(&loss)));
    loss
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
