//! What is kept on the disk: one file per namespace, and the lock on their directory.
//!
//! A file is one line of JSON and one line with its checksum. It is replaced as a whole: written under another name,
//! flushed, renamed, and the directory flushed. So a reader finds the old file or the new one, and a flush that failed
//! is never tried again on the same pages, which the kernel may call clean by then although they never reached the
//! disk: the next attempt writes a new file from its first byte on.
//!
//! The lock lies on a file of its own that is never replaced. It is taken with `flock`: a POSIX record lock would be
//! lost as soon as any part of the process closed any descriptor of that file.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use unalike_storage::{FieldOrder, GrantId, Layout, LayoutFields, Lease, Process, Rfc3339, StoreError, StoreIdentity};

/// The version of the files that this program writes, and the only one that it reads.
const VERSION: u64 = 1;

const LOCK: &str = "unalike.lock";
/// How long a lock that is held is waited for. It outlives its holder for a moment: while the holder's last write ends,
/// or while a child that the process just made has not yet begun its own program.
const LOCK_WAIT: Duration = Duration::from_secs(1);
/// The pause between two tries to take it.
const LOCK_PAUSE: Duration = Duration::from_millis(10);
const SUFFIX: &str = ".lease.json";
/// A file under this name was not finished, and is never read.
const UNFINISHED_SUFFIX: &str = ".lease.new";

/// What a file is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// A lease that a store granted.
    StoreLease,
    /// A number that somebody assigned.
    StaticWorker,
}

impl Kind {
    /// What to do about a file that cannot be used.
    fn advice(self) -> &'static str {
        match self {
            Self::StoreLease => {
                "while no process uses the directory, remove the file: the lease store then grants another lease"
            }
            Self::StaticWorker => {
                "find out why, then initialise the namespace in an empty directory, under a worker that was \
                 never used or from an instant after all its ids"
            }
        }
    }
}

/// Which store granted a lease, as far as that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Granter {
    pub(crate) identity: Option<StoreIdentity>,
    /// What the store is called: [`LocalOptions::store`](crate::LocalOptions::store).
    pub(crate) name: Option<String>,
}

impl Granter {
    /// Whether both may be one store. Where the identity of one is not known, their names decide.
    pub(crate) fn may_be(&self, other: &Self) -> bool {
        match (self.identity, other.identity) {
            (Some(one), Some(other)) => one == other,
            _ => self.name.is_none() || other.name.is_none() || self.name == other.name,
        }
    }
}

/// The lease of a namespace, as far as it may have been used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) layout: Layout,
    pub(crate) holder: String,
    /// When it was acquired, by its holder's clock.
    pub(crate) acquired_ms: u64,
    /// The whole interval, under the name that the store gave it.
    pub(crate) lease: Lease,
    /// No id has a stamp at or past this instant: a restart begins here.
    pub(crate) local_bound_ms: u64,
    /// It was given back, from the local bound on: nothing of it may be used any more.
    pub(crate) is_void: bool,
    /// Empty for a static worker, and in files of earlier versions.
    pub(crate) granter: Granter,
}

impl Kept {
    /// What every file promises, checked before one is written and after one was read.
    fn check(&self) -> Result<(), String> {
        let Lease { worker, not_before_ms, valid_until_ms, .. } = self.lease;
        let on_grid = |at_ms: u64| {
            let tick_ms = u64::from(self.layout.tick_ms());
            at_ms.checked_sub(self.layout.epoch_ms()).is_some_and(|since_ms| since_ms.is_multiple_of(tick_ms))
        };
        if worker > self.layout.worker_max() {
            return Err(format!("worker {worker} does not fit the layout {}", self.layout));
        }
        if not_before_ms > self.local_bound_ms || self.local_bound_ms > valid_until_ms {
            return Err(format!(
                "the local bound {} is not within {} and {}",
                Rfc3339(self.local_bound_ms),
                Rfc3339(not_before_ms),
                Rfc3339(valid_until_ms)
            ));
        }
        if ![not_before_ms, self.local_bound_ms, valid_until_ms].into_iter().all(on_grid) {
            return Err(format!("the bounds do not lie on the ticks of the layout {}", self.layout));
        }
        Ok(())
    }
}

/// The JSON of a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    version: u64,
    kind: Kind,
    namespace: String,
    layout: LayoutRow,
    holder: String,
    acquired_ms: u64,
    worker: u32,
    /// 32 hexadecimal digits.
    grant_id: String,
    not_before_ms: u64,
    valid_until_ms: u64,
    local_bound_ms: u64,
    is_void: bool,
    /// 32 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    store_identity: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    store: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LayoutRow {
    timestamp_bits: u8,
    datacenter_bits: u8,
    worker_bits: u8,
    sequence_bits: u8,
    sequence_first: bool,
    epoch_ms: u64,
    tick_ms: u32,
}

impl Row {
    fn new(kept: &Kept) -> Self {
        let LayoutFields { timestamp_bits, datacenter_bits, worker_bits, sequence_bits, order, epoch_ms, tick_ms } =
            kept.layout.fields();
        Self {
            version: VERSION,
            kind: kept.kind,
            namespace: kept.namespace.clone(),
            layout: LayoutRow {
                timestamp_bits,
                datacenter_bits,
                worker_bits,
                sequence_bits,
                sequence_first: order == FieldOrder::SequenceFirst,
                epoch_ms,
                tick_ms,
            },
            holder: kept.holder.clone(),
            acquired_ms: kept.acquired_ms,
            worker: kept.lease.worker,
            grant_id: format!("{:032x}", kept.lease.grant_id.0),
            not_before_ms: kept.lease.not_before_ms,
            valid_until_ms: kept.lease.valid_until_ms,
            local_bound_ms: kept.local_bound_ms,
            is_void: kept.is_void,
            store_identity: kept.granter.identity.map(|identity| identity.to_string()),
            store: kept.granter.name.clone(),
        }
    }

    fn kept(self) -> Result<Kept, String> {
        let LayoutRow { timestamp_bits, datacenter_bits, worker_bits, sequence_bits, epoch_ms, tick_ms, .. } =
            self.layout;
        let order = if self.layout.sequence_first { FieldOrder::SequenceFirst } else { FieldOrder::WorkerFirst };
        let fields =
            LayoutFields { timestamp_bits, datacenter_bits, worker_bits, sequence_bits, order, epoch_ms, tick_ms };
        let layout = Layout::new(fields).map_err(|error| error.to_string())?;
        let grant_id = u128::from_str_radix(&self.grant_id, 16).map_err(|error| format!("the grant id: {error}"))?;
        let identity = self.store_identity.map(|identity| identity.parse()).transpose();
        let identity = identity.map_err(|error: StoreError| error.to_string())?;
        let kept = Kept {
            kind: self.kind,
            namespace: self.namespace,
            layout,
            holder: self.holder,
            acquired_ms: self.acquired_ms,
            lease: Lease {
                worker: self.worker,
                grant_id: GrantId(grant_id),
                not_before_ms: self.not_before_ms,
                valid_until_ms: self.valid_until_ms,
            },
            local_bound_ms: self.local_bound_ms,
            is_void: self.is_void,
            granter: Granter { identity, name: self.store },
        };
        kept.check()?;
        Ok(kept)
    }
}

/// A directory that this process has for itself, as long as the value lives.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// The kernel drops the lock when the file is closed, and in any end of the process.
    lock: File,
    process: Process,
}

impl Directory {
    /// Creates the directory if it does not exist, and locks it. Blocks for up to [`LOCK_WAIT`] while it is in use.
    pub(crate) fn lock(path: &Path) -> Result<Self, StoreError> {
        let failed = |what: &str, error| {
            let what = format!("{what} {}: this user must be able to write there", path.display());
            StoreError::refused(what).with_source(error)
        };
        let path_from_root = std::path::absolute(path).map_err(|error| failed("finding the directory", error))?;
        let missing: Vec<&Path> = path_from_root.ancestors().take_while(|path| !path.is_dir()).collect();
        if !missing.is_empty() {
            let created = DirBuilder::new().recursive(true).mode(0o700).create(&path_from_root);
            created.map_err(|error| failed("creating the directory", error))?;
            // The names of all that were missing must survive a crash as well.
            for parent in missing.into_iter().filter_map(Path::parent) {
                sync_directory(parent).map_err(|error| failed("flushing the directory above", error))?;
            }
        }
        let name = path_from_root.join(LOCK);
        let lock = File::options().create(true).truncate(false).write(true).open(&name);
        let lock = lock.map_err(|error| failed("opening the lock in", error))?;
        let give_up = Instant::now() + LOCK_WAIT;
        loop {
            match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < give_up => thread::sleep(LOCK_PAUSE),
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(StoreError::unavailable(format!(
                        "the directory {} is in use, by another process or elsewhere in this one: give each process a \
                         directory of its own, or end the other one first",
                        path_from_root.display()
                    )));
                }
                Err(error) => return Err(failed("locking the directory", error.into())),
            }
        }
        let directory = Self { path: path_from_root, lock, process: Process::current() };
        // Whoever replaced the file while this one was opened may hold the new one.
        directory.check_lock()?;
        Ok(directory)
    }

    /// Refuses a child that was forked from the process which took the lock: it inherited the lock, and what its parent
    /// was granted is not its own.
    pub(crate) fn check_process(&self) -> Result<(), StoreError> {
        self.process.check(&format!("the directory {}", self.path.display()))
    }

    /// Refuses to go on when the lock that is held is not the one that others would find.
    fn check_lock(&self) -> Result<(), StoreError> {
        let name = self.path.join(LOCK);
        let is_ours = |found: &fs::Metadata| {
            self.lock.metadata().is_ok_and(|held| (held.dev(), held.ino()) == (found.dev(), found.ino()))
        };
        match fs::metadata(&name) {
            Ok(found) if is_ours(&found) => Ok(()),
            Ok(_) => Err(self.lock_is_gone("was replaced", None)),
            Err(error) => Err(self.lock_is_gone("cannot be found any more", Some(error))),
        }
    }

    fn lock_is_gone(&self, what: &str, error: Option<io::Error>) -> StoreError {
        StoreError::Unavailable {
            what: format!(
                "the lock {} {what}, so another process may use the directory: restart this one",
                self.path.join(LOCK).display()
            ),
            source: error.map(Into::into),
        }
    }

    /// The file of a namespace.
    pub(crate) fn file(&self, namespace: &str) -> PathBuf {
        self.path.join(format!("{}{SUFFIX}", file_name(namespace)))
    }

    /// What is kept of a namespace; none if there is no file.
    pub(crate) fn read(&self, kind: Kind, namespace: &str) -> Result<Option<Kept>, StoreError> {
        let file = self.file(namespace);
        let content = match fs::read(&file) {
            Ok(content) => content,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::unavailable(format!("reading {}", file.display())).with_source(error)),
        };
        let unusable = |why: String| StoreError::corrupt(format!("{}: {why}; {}", file.display(), kind.advice()));
        let kept = decode(&content).map_err(unusable)?;
        if kept.kind != kind {
            return Err(unusable(format!("it is of the kind {:?}, not {kind:?}", kept.kind)));
        }
        if kept.namespace != namespace {
            return Err(unusable(format!("it belongs to the namespace {:?}, not {namespace:?}", kept.namespace)));
        }
        Ok(Some(kept))
    }

    /// All namespaces of which a file is kept.
    pub(crate) fn namespaces(&self, kind: Kind) -> Result<Vec<String>, StoreError> {
        let failed = |error: io::Error| {
            StoreError::unavailable(format!("listing the directory {}", self.path.display())).with_source(error)
        };
        let mut namespaces = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let Some(namespace) = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)).and_then(namespace) else {
                continue;
            };
            if self.read(kind, &namespace)?.is_some() {
                namespaces.push(namespace);
            }
        }
        namespaces.sort_unstable();
        Ok(namespaces)
    }

    /// Replaces a namespace's file. After an error the old file or the new one is there; nothing of the new one may
    /// have been handed out.
    #[expect(clippy::panic_in_result_fn, reason = "what is kept is the promise itself, checked in release builds too")]
    pub(crate) fn write(&self, kept: &Kept) -> Result<(), StoreError> {
        let checked = kept.check();
        assert!(checked.is_ok(), "a lease is kept that breaks its own bounds: {checked:?} in {kept:?}");
        self.check_process()?;
        self.check_lock()?;
        let file = self.file(&kept.namespace);
        self.replace(&file, kept).map_err(|error| {
            let what = format!("writing {}: nothing is handed out that is not on the disk", file.display());
            StoreError::unavailable(what).with_source(error)
        })?;
        // And after it: whoever found another lock in between has read the file of before.
        self.check_lock()
    }

    fn replace(&self, file: &Path, kept: &Kept) -> io::Result<()> {
        let unfinished = self.path.join(format!("{}{UNFINISHED_SUFFIX}", file_name(&kept.namespace)));
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut new = File::options().create_new(true).write(true).open(&unfinished)?;
        new.write_all(&encode(kept)?)?;
        new.sync_all()?;
        drop(new);
        fs::rename(&unfinished, file)?;
        sync_directory(&self.path)
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn encode(kept: &Kept) -> io::Result<Vec<u8>> {
    let mut content = serde_json::to_vec(&Row::new(kept))?;
    let checksum = checksum(&content);
    content.extend_from_slice(format!("\n{checksum:016x}\n").as_bytes());
    Ok(content)
}

fn decode(content: &[u8]) -> Result<Kept, String> {
    let damaged = || "the file is damaged".to_owned();
    let text = std::str::from_utf8(content).map_err(|_| damaged())?;
    let (json, rest) = text.split_once('\n').ok_or_else(damaged)?;
    if rest != format!("{:016x}\n", checksum(json.as_bytes())) {
        return Err(damaged());
    }
    let value: serde_json::Value = serde_json::from_str(json).map_err(|error| error.to_string())?;
    match value.get("version").and_then(serde_json::Value::as_u64) {
        Some(VERSION) => {}
        version => {
            let version = version.map_or_else(|| "none".to_owned(), |version| version.to_string());
            return Err(format!("its version is {version} and this program knows only {VERSION}: upgrade it"));
        }
    }
    let row: Row = serde_json::from_value(value).map_err(|error| error.to_string())?;
    row.kept()
}

/// FNV-1a of 64 bits: each byte is mixed in by a step that can be undone, so no change of one byte goes unseen.
/// <http://www.isthe.com/chongo/tech/comp/fnv/>
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// The beginning of a file's name: the namespace itself where that is a portable name, else its bytes in base 32, so
/// that no two namespaces share a file, also where a file system does not tell upper from lower case.
fn file_name(namespace: &str) -> String {
    let is_portable = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    if namespace.bytes().all(|byte| is_portable(byte) || byte == b'.') && namespace.starts_with(|first| first != '.') {
        return namespace.to_owned();
    }
    let mut name = "=".to_owned();
    let (mut bits, mut count) = (0_u16, 0_u32);
    for byte in namespace.bytes() {
        bits = (bits & 0x1f) << 8 | u16::from(byte);
        count += 8;
        while count >= 5 {
            count -= 5;
            name.push(digit(bits >> count));
        }
    }
    if count > 0 {
        name.push(digit(bits << (5 - count)));
    }
    name
}

fn digit(bits: u16) -> char {
    char::from_digit(u32::from(bits & 0x1f), 32).unwrap_or('0')
}

/// The namespace of a file by the beginning of its name.
fn namespace(name: &str) -> Option<String> {
    let Some(digits) = name.strip_prefix('=') else { return Some(name.to_owned()) };
    let (mut bits, mut count, mut bytes) = (0_u32, 0_u32, Vec::new());
    for digit in digits.chars() {
        bits = (bits & 0xff) << 5 | digit.to_digit(32)?;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn kept() -> Kept {
        let epoch_ms = Layout::TWITTER.epoch_ms();
        Kept {
            kind: Kind::StoreLease,
            namespace: "default".to_owned(),
            layout: Layout::TWITTER,
            holder: "host \"a\"".to_owned(),
            acquired_ms: epoch_ms + 10,
            lease: Lease {
                worker: 7,
                grant_id: GrantId(u128::MAX - 1),
                not_before_ms: epoch_ms + 10,
                // Beyond what a double can hold exactly.
                valid_until_ms: (1 << 60) + 1,
            },
            local_bound_ms: (1 << 60) - 1,
            is_void: false,
            granter: Granter { identity: Some(StoreIdentity(7)), name: Some("mysql://db/ids".to_owned()) },
        }
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let locked = Directory::lock(directory.path()).unwrap();
        for kept in [kept(), Kept { namespace: "Ünï/../x".to_owned(), is_void: true, ..kept() }] {
            assert_eq!(locked.read(Kind::StoreLease, &kept.namespace).unwrap(), None);
            locked.write(&kept).unwrap();
            assert_eq!(locked.read(Kind::StoreLease, &kept.namespace).unwrap(), Some(kept));
        }
        assert_eq!(locked.namespaces(Kind::StoreLease).unwrap(), ["default", "Ünï/../x"]);
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_found() {
        let content = encode(&kept()).unwrap();
        assert_eq!(decode(&content), Ok(kept()));
        for at in 0..content.len() {
            for bit in 0..8 {
                let mut flipped = content.clone();
                flipped[at] ^= 1 << bit;
                assert!(decode(&flipped).is_err(), "bit {bit} of byte {at}");
            }
            assert!(decode(&content[..at]).is_err(), "the first {at} bytes");
        }
        assert!(decode(&[&content[..], b"\n"].concat()).is_err());
    }

    #[test]
    fn what_breaks_its_own_bounds_is_neither_read_nor_written() {
        let coarse = LayoutFields { tick_ms: 10, ..Layout::TWITTER.fields() };
        let lease = kept().lease;
        let broken = [
            Kept { local_bound_ms: lease.valid_until_ms + 1, ..kept() },
            Kept { local_bound_ms: lease.not_before_ms - 1, ..kept() },
            Kept { lease: Lease { worker: 1_024, ..lease }, ..kept() },
            Kept { layout: Layout::new(coarse).unwrap(), ..kept() },
        ];
        let directory = tempfile::tempdir().unwrap();
        let locked = Directory::lock(directory.path()).unwrap();
        for broken in broken {
            assert!(decode(&encode(&broken).unwrap()).is_err(), "{broken:?}");
            let written = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| locked.write(&broken)));
            assert!(written.is_err(), "{broken:?}");
        }
        assert_eq!(locked.namespaces(Kind::StoreLease).unwrap(), <[String; 0]>::default());
    }

    #[test]
    fn a_newer_version_and_unknown_fields_are_refused() {
        let signed = |json: &str| format!("{json}\n{:016x}\n", checksum(json.as_bytes())).into_bytes();
        let content = String::from_utf8(encode(&kept()).unwrap()).unwrap();
        let json = content.lines().next().unwrap();
        assert_eq!(decode(&signed(json)), Ok(kept()));
        let newer = decode(&signed(&json.replace("\"version\":1", "\"version\":2"))).unwrap_err();
        assert!(newer.contains("version is 2"), "{newer}");
        let more = json.replace("\"version\":1", "\"version\":1,\"more\":1");
        assert!(decode(&signed(&more)).unwrap_err().contains("more"));
        let double = json.replace(&format!("{}", (1_u64 << 60) - 1), "1.152921504606847e18");
        assert_ne!(double, json);
        assert!(decode(&signed(&double)).is_err(), "no integer passes through a double");
    }

    #[test]
    fn each_namespace_has_a_file_name_of_its_own() {
        let longest = "ö".repeat(64);
        let namespaces = ["default", "Default", "a.b", ".hidden", "a/b", "a\\b", "=a", "ä", "..", "CON", &longest];
        let names: BTreeSet<_> = namespaces.iter().map(|namespace| file_name(namespace).to_lowercase()).collect();
        assert_eq!(names.len(), namespaces.len());
        for original in namespaces {
            let name = file_name(original);
            assert_eq!(namespace(&name).as_deref(), Some(original));
            assert!(name.len() + SUFFIX.len() <= 255 && !name.contains('/') && !name.starts_with('.'), "{name}");
        }
    }

    #[test]
    fn a_directory_is_locked_once_and_a_lock_that_was_replaced_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let first = Directory::lock(directory.path()).unwrap();
        let second = Directory::lock(directory.path()).unwrap_err();
        assert!(matches!(&second, StoreError::Unavailable { what, .. } if what.contains("in use")), "{second}");
        fs::remove_file(directory.path().join(LOCK)).unwrap();
        let gone = first.write(&kept()).unwrap_err();
        assert!(gone.to_string().contains("cannot be found"), "{gone}");
        let third = Directory::lock(directory.path()).unwrap();
        let replaced = first.write(&kept()).unwrap_err();
        assert!(replaced.to_string().contains("was replaced"), "{replaced}");
        third.write(&kept()).unwrap();
        drop(third);
        Directory::lock(directory.path()).unwrap();
    }

    #[test]
    fn a_lock_that_outlives_its_holder_for_a_moment_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let holder = Directory::lock(directory.path()).unwrap();
        // As a child has it between its fork and its own program.
        let inherited = holder.lock.try_clone().unwrap();
        drop(holder);
        let child = thread::spawn(move || {
            thread::sleep(LOCK_PAUSE * 5);
            drop(inherited);
        });
        Directory::lock(directory.path()).unwrap();
        child.join().unwrap();
    }
}
