//! Whether the locks that SQLite took for this process are still there, and whether it is the only SQLite in it.
//!
//! SQLite uses POSIX record locks, which belong to a process as a whole. The process loses all its locks on a file when
//! *any* descriptor of that file is closed in it: by a second copy of SQLite, by a daemon that closes what it
//! inherited, by code that reads the file. Nothing tells. Two processes may then be granted the same numbers.
//!
//! SQLite takes two locks when it opens a store, and keeps them until it closes it: one on the file, one on the index
//! of its log (`-shm`). Linux shows by which descriptor a lock was taken. As long as both are shown at the descriptors
//! that took them, nothing was closed since: SQLite itself closes none while any of its connections has a lock. However
//! many connections it has, it has one descriptor of the index, so that another one is of a second copy, or of other
//! code. All of it is looked at after each grant, before that is believed.
//!
//! Where the kernel shows no locks, the descriptors alone are compared; elsewhere than on Linux nothing is noticed.

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::{Watch, refuse_others};
#[cfg(target_os = "linux")]
pub(crate) use linux::{Watch, refuse_others};

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::{Path, PathBuf};

    use rustix::io::Errno;
    use unalike_storage::StoreError;

    use crate::held::File;

    /// What Linux tells of this process. That of its first thread is empty once that has ended.
    const TOLD: &str = "/proc/thread-self";

    /// The locks by which others see that the file and the index are in use: from which byte on, how many
    /// (<https://www.sqlite.org/walformat.html>, section 2.3).
    const OF_FILE: (u64, u64) = (0x4000_0002, 510);
    const OF_INDEX: (u64, u64) = (128, 1);

    /// The locks of one store as they were when it was opened.
    #[derive(Debug)]
    pub(crate) struct Watch {
        /// That of the index. None where the system lists none.
        index: Option<Descriptor>,
        /// By which descriptors the locks were taken, and which bytes they are on. None where the kernel shows none.
        taken: Vec<(Descriptor, (u64, u64))>,
    }

    #[derive(Clone, Debug)]
    struct Descriptor {
        number: u32,
        file: File,
        /// Its name, for messages.
        path: PathBuf,
    }

    impl Watch {
        /// Once SQLite has opened the store: the file, its log and the index of that.
        ///
        /// # Errors
        /// [`StoreError::Refused`] when the locks are not those of one SQLite alone; [`StoreError::Unavailable`] when
        /// nobody knows.
        pub(crate) fn begin(paths: &[PathBuf; 3], files: &[File; 3]) -> Result<Self, StoreError> {
            let seen = descriptors()?.unwrap_or_default();
            let ([path, _, index_path], [file, _, index_file]) = (paths, files);
            let of = |path: &Path, file: &File| -> Vec<Descriptor> {
                let mine = seen.iter().filter(|(_, found)| found == file);
                mine.map(|(number, _)| Descriptor { number: *number, file: *file, path: path.to_owned() }).collect()
            };
            let (of_file, of_index) = (of(path, file), of(index_path, index_file));
            let index = match &*of_index {
                [index] => index.clone(),
                [] if of_file.is_empty() => return Ok(Self { index: None, taken: Vec::new() }),
                // What SQLite has open is another one.
                [] => return Err(lost(index_path)),
                _ => return Err(open_twice(index_path)),
            };
            // Linux shows the locks, too, where it shows this; systems that imitate it show neither.
            if !told(index.number)?.contains("mnt_id:") {
                return Ok(Self { index: Some(index), taken: Vec::new() });
            }
            let taken = vec![taken(&of_file, OF_FILE, path)?, taken(&of_index, OF_INDEX, index_path)?];
            Ok(Self { index: Some(index), taken })
        }

        /// Refuses when a lock is gone: two looks at what the kernel has at hand.
        ///
        /// # Errors
        /// [`StoreError::Refused`], for ever; [`StoreError::Unavailable`] when nobody knows.
        pub(crate) fn check(&self) -> Result<(), StoreError> {
            for (by, bytes) in &self.taken {
                if !has_lock(&told(by.number)?, *bytes) {
                    return Err(lost(&by.path));
                }
            }
            for by in self.taken.iter().map(|(by, _)| by).chain(&self.index) {
                if file_of(by.number)? != Some(by.file) {
                    return Err(lost(&by.path));
                }
            }
            Ok(())
        }

        /// Refuses when another copy of SQLite has the index open, too; and then as [`Watch::check`].
        ///
        /// In this order: one that is closed meanwhile takes the locks with it.
        ///
        /// # Errors
        /// As there.
        pub(crate) fn check_alone(&self) -> Result<(), StoreError> {
            if let Some(index) = &self.index {
                let seen = descriptors()?.unwrap_or_default();
                if seen.iter().any(|(number, file)| *file == index.file && *number != index.number) {
                    return Err(open_twice(&index.path));
                }
            }
            self.check()
        }
    }

    /// Which of the descriptors of a file took the lock on these bytes.
    fn taken(
        descriptors: &[Descriptor],
        bytes: (u64, u64),
        path: &Path,
    ) -> Result<(Descriptor, (u64, u64)), StoreError> {
        for by in descriptors {
            if has_lock(&told(by.number)?, bytes) {
                return Ok((by.clone(), bytes));
            }
        }
        Err(lost(path))
    }

    /// Before SQLite opens a store that this copy of it has not open: it would empty the index, as it sees no locks of
    /// its own process.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when something else in this process has the index open.
    pub(crate) fn refuse_others(index: &Path) -> Result<(), StoreError> {
        let Ok(found) = std::fs::metadata(index) else { return Ok(()) };
        let file = File { device: found.dev(), inode: found.ino() };
        let seen = descriptors()?.unwrap_or_default();
        if seen.iter().any(|(_, other)| *other == file) { Err(open_twice(index)) } else { Ok(()) }
    }

    /// The descriptors of this process; none where the system does not list them. No file is opened for it but the
    /// list.
    fn descriptors() -> Result<Option<Vec<(u32, File)>>, StoreError> {
        let unseen = |error| unseen("descriptors", error);
        let entries = match std::fs::read_dir(format!("{TOLD}/fd")) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
                return Ok(None);
            }
            entries => entries.map_err(unseen)?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.map_err(unseen)?.file_name();
            let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            // One that was closed meanwhile is gone.
            found.extend(file_of(number)?.map(|file| (number, file)));
        }
        Ok(Some(found))
    }

    /// What a descriptor of this process is; none if it is closed.
    fn file_of(number: u32) -> Result<Option<File>, StoreError> {
        match std::fs::metadata(format!("{TOLD}/fd/{number}")) {
            Ok(found) => Ok(Some(File { device: found.dev(), inode: found.ino() })),
            Err(error) if is_short(&error) => Err(unseen("descriptors", error)),
            Err(_) => Ok(None),
        }
    }

    /// What the system tells of a descriptor; nothing of one that is closed.
    fn told(number: u32) -> Result<String, StoreError> {
        match std::fs::read_to_string(format!("{TOLD}/fdinfo/{number}")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && Path::new(TOLD).exists() => Ok(String::new()),
            told => told.map_err(|error| unseen("locks", error)),
        }
    }

    /// Whether a lock on these bytes is shown: `lock: 1: POSIX ADVISORY READ 6875 fe:00:10010755 128 128`.
    fn has_lock(told: &str, (start, length): (u64, u64)) -> bool {
        told.lines().any(|line| {
            let mut words = line.split_ascii_whitespace();
            let is_lock = words.next() == Some("lock:") && words.nth(1) == Some("POSIX");
            let (first, last) = (words.nth(4), words.next());
            let first = first.and_then(|first| first.parse::<u64>().ok());
            let last = last.and_then(|last| if last == "EOF" { Some(u64::MAX) } else { last.parse().ok() });
            is_lock && first.zip(last).is_some_and(|(first, last)| first <= start && last >= start + length - 1)
        })
    }

    /// Whether the process has no more room to look.
    fn is_short(error: &io::Error) -> bool {
        let short = [Errno::MFILE, Errno::NFILE, Errno::NOMEM].map(Errno::raw_os_error);
        error.raw_os_error().is_some_and(|code| short.contains(&code))
    }

    fn unseen(what: &str, error: io::Error) -> StoreError {
        let what = format!("the {what} of this process cannot be looked at, so nothing is granted");
        StoreError::unavailable(what).with_source(error)
    }

    fn lost(path: &Path) -> StoreError {
        StoreError::refused(format!(
            "{}: this process has lost its locks, since something in it closed a descriptor of this file: a second copy \
             of SQLite, code that opened the file itself, or a daemon that closes its descriptors. Others may be granted \
             the same numbers, so this process grants none any more. Restart it, with one copy of SQLite; in a daemon, \
             open the store after the descriptors were closed",
            path.display()
        ))
    }

    /// Two copies of SQLite in one process undo each other's locks.
    fn open_twice(index: &Path) -> StoreError {
        StoreError::refused(format!(
            "something else in this process has {} open: a second copy of unalike or of SQLite, or code that opened the \
             file itself. They undo each other's locks, and others would be granted the same numbers. Load one copy of \
             each, and look at the file in another process, such as by the command sqlite3; what shares this copy of \
             SQLite opens the file after this store",
            index.display()
        ))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_lock_is_read_as_the_kernel_writes_it() {
            let told = "pos:\t0\nflags:\t02100002\nmnt_id:\t31\nino:\t7\n\
                        lock:\t1: POSIX  ADVISORY  READ 6875 fe:00:10010755 1073741826 1073742335\n\
                        lock:\t2: FLOCK  ADVISORY  WRITE 6875 fe:00:10010755 0 EOF\n";
            assert!(has_lock(told, OF_FILE));
            assert!(!has_lock(told, (0x4000_0002, 511)) && !has_lock(told, (0x4000_0001, 2)));
            assert!(!has_lock(told, OF_INDEX));
            assert!(has_lock("lock:\t1: POSIX  ADVISORY  WRITE 1 fe:00:1 0 EOF", OF_INDEX));
            assert!(!has_lock("", OF_INDEX) && !has_lock("lock:", OF_INDEX));
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use std::path::{Path, PathBuf};

    use unalike_storage::StoreError;

    use crate::held::File;

    #[derive(Debug)]
    pub(crate) struct Watch;

    impl Watch {
        pub(crate) fn begin(_: &[PathBuf; 3], _: &[File; 3]) -> Result<Self, StoreError> {
            Ok(Self)
        }

        pub(crate) fn check(&self) -> Result<(), StoreError> {
            Ok(())
        }

        pub(crate) fn check_alone(&self) -> Result<(), StoreError> {
            Ok(())
        }
    }

    pub(crate) fn refuse_others(_: &Path) -> Result<(), StoreError> {
        Ok(())
    }
}
