//! Whether another copy of this library has the same file open in this process.
//!
//! A process as a whole holds its locks on a file, and each copy of SQLite counts by itself which of them it needs: two
//! copies in one process do not wait for each other, and the first that closes the file drops the other's locks. Both
//! would be granted the same numbers. Libraries that are loaded while a program runs bring copies: two plug-ins, or the
//! extensions of two languages.
//!
//! So whoever opens a store says so before, to all of its process: by a file in memory whose name tells which file is
//! open, and by which copy. The others find it among the descriptors of the process. A child of a fork inherits it, and
//! takes no notice: the name tells the process, too. Linux alone has both such files and such a list; elsewhere nothing
//! is noticed.

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::Mark;
#[cfg(target_os = "linux")]
pub(crate) use linux::Mark;

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeMap;
    use std::ffi::CString;
    use std::io;
    use std::os::fd::OwnedFd;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;
    use std::sync::Mutex;

    use rustix::fs::{MemfdFlags, memfd_create};
    use rustix::io::Errno;
    use unalike_storage::{StoreError, lock};

    /// So much of a file's name is told, from its end: the kernel takes 249 bytes for all.
    const NAME_MAX_BYTES: usize = 150;

    /// What this copy has open: by the name of the mark, how often. Its address tells this copy from others.
    static MARKED: Mutex<BTreeMap<Vec<u8>, Marked>> = Mutex::new(BTreeMap::new());

    struct Marked {
        count: usize,
        /// None where the system gives no such files.
        #[expect(dead_code, reason = "it is there as long as this value")]
        memory: Option<OwnedFd>,
    }

    /// Says, as long as the store is open, that this copy of the library has it open. It stays when it is dropped,
    /// since the connections of a store that was never closed may.
    #[derive(Debug)]
    pub(crate) struct Mark {
        /// None once it is removed, or where nothing is marked.
        name: Mutex<Option<Vec<u8>>>,
        /// Whether this copy had not marked it before.
        pub(crate) is_first: bool,
    }

    impl Mark {
        /// Before SQLite first looks at the file.
        ///
        /// No child meets the lock as a thread of its parent left it: one that is born meanwhile opens no store.
        pub(crate) fn set(file: &Path) -> Result<Self, StoreError> {
            let Some(name) = name(file) else {
                return Ok(Self { name: Mutex::default(), is_first: true });
            };
            let copy = format!("{:x}", std::ptr::from_ref(&MARKED).addr());
            let unseen = |error: io::Error| {
                let what = format!(
                    "{} is not opened, since it cannot be seen whether another copy of this library has it open in this process",
                    file.display()
                );
                StoreError::unavailable(what).with_source(error)
            };
            let is_first = {
                let mut marked = lock(&MARKED);
                if let Some(known) = marked.get_mut(&name) {
                    known.count += 1;
                    false
                } else {
                    let memory = memory(&[&*name, copy.as_bytes()].concat()).map_err(unseen)?;
                    marked.insert(name.clone(), Marked { count: 1, memory });
                    true
                }
            };
            let mark = Self { name: Mutex::new(Some(name.clone())), is_first };
            // After it was marked: of two copies that open the file at once, one sees the other's.
            let error = match is_marked_by_another(&name, copy.as_bytes()) {
                Ok(false) => return Ok(mark),
                Ok(true) => StoreError::refused(format!(
                    "{} is open in this process already, by another copy of this library. Copies of SQLite in one process do \
                     not see each other's locks, so both would grant the same numbers: load one copy of the library, or \
                     close the store in the other one first",
                    file.display()
                )),
                Err(error) => unseen(error),
            };
            mark.remove();
            Err(error)
        }

        /// After the last connection was closed.
        pub(crate) fn remove(&self) {
            let Some(name) = lock(&self.name).take() else { return };
            let mut marked = lock(&MARKED);
            if let Some(known) = marked.get_mut(&name) {
                known.count -= 1;
                if known.count == 0 {
                    marked.remove(&name);
                }
            }
        }
    }

    /// Names the process and the file, whose directory is told by what it is under any path.
    fn name(file: &Path) -> Option<Vec<u8>> {
        let directory = std::fs::metadata(file.parent()?).ok()?;
        let (device, inode, process) = (directory.dev(), directory.ino(), std::process::id());
        let mut name = format!("unalike-sqlite-{process}-{device:x}-{inode:x}-").into_bytes();
        let file = file.file_name()?.as_bytes();
        name.extend(file.iter().skip(file.len().saturating_sub(NAME_MAX_BYTES)));
        name.push(b'-');
        Some(name)
    }

    /// A file in memory with this name; none where the system has no such files, or a sandbox allows none.
    fn memory(name: &[u8]) -> io::Result<Option<OwnedFd>> {
        let Ok(name) = CString::new(name) else { return Ok(None) };
        let flags = MemfdFlags::CLOEXEC;
        // A kernel may want the second flag, and one before 6.3 does not know it.
        let made = match memfd_create(&*name, flags | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => memfd_create(&*name, flags),
            made => made,
        };
        match made {
            Ok(memory) => Ok(Some(memory)),
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => Err(error.into()),
            Err(_) => Ok(None),
        }
    }

    /// Looks at names alone. To open one of them could open the file of a store that has just taken its number, and to
    /// close that again would drop the locks on it.
    fn is_marked_by_another(name: &[u8], copy: &[u8]) -> io::Result<bool> {
        // The list of the process is empty once its first thread has ended; that of a thread is the same.
        let descriptors = match std::fs::read_dir("/proc/thread-self/fd") {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
                return Ok(false);
            }
            descriptors => descriptors?,
        };
        for entry in descriptors {
            // One that was closed meanwhile is gone.
            let Ok(target) = std::fs::read_link(entry?.path()) else { continue };
            let marked = target.as_os_str().as_bytes().strip_prefix(b"/memfd:").and_then(|of| of.strip_prefix(name));
            let by = marked.and_then(|by| by.strip_suffix(b" (deleted)"));
            if by.is_some_and(|by| by != copy && by.iter().all(u8::is_ascii_hexdigit)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use std::path::Path;

    use unalike_storage::StoreError;

    #[derive(Debug)]
    pub(crate) struct Mark {
        pub(crate) is_first: bool,
    }

    impl Mark {
        pub(crate) fn set(_: &Path) -> Result<Self, StoreError> {
            Ok(Self { is_first: true })
        }

        pub(crate) fn remove(&self) {}
    }
}
