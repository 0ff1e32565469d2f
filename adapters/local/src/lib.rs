//! Worker leases in a local file: [`LocalLeases`] puts one in front of any lease store, and [`StaticWorker`] does
//! without a store.
//!
//! A lease reaches a horizon ahead, and an ordinary holder keeps it in memory: a process that is killed leaves its
//! worker busy for the rest, and while the lease store is down none can be started. [`LocalLeases`] keeps the running
//! lease of each namespace in a file, and hands it out in pieces of a second or two. The end of the newest piece, the
//! *local bound*, is on the disk before the piece is handed out. A process that starts again goes on with the same
//! lease, above the local bound, without asking the store; it waits up to a lead for the clock to get there. Meanwhile
//! the lease is extended at the store in the background. No clock decides what is unique: pieces follow one another
//! from the beginning of the lease to its end, and never overlap.
//!
//! - **One process, one directory.** The directory is locked as long as it is open, and a second process, or a second
//!   store in the same one, is refused. A forked child is refused, too, but holds the lock as long as it lives.
//! - **One lease, one holder.** An acquire goes on with the lease that the directory keeps, and ends the piece of
//!   whoever held it: in one process a namespace has one generator, as [`Ids`] ensures by itself. A preferred worker
//!   counts when a lease is asked of the store, not while another one runs.
//! - **One disk.** The lock and the file guard this machine's own disk only. On a network share, or on a copy or an
//!   old snapshot of the disk that is used again while the lease runs, two processes could go on with the same lease.
//! - **A missing file** means no local lease: the store is asked, and what it grants is always new. **A file that
//!   cannot be used** (damaged, of another namespace, layout or version) is an error which names it and says what to
//!   do.
//! - **Giving back.** A release makes the file void first and then goes to the store, so a process that ended in
//!   good order needs the store to start again. With [`LocalOptions::give_back`] off it keeps the lease for its next
//!   start instead.
//! - **An operator's order** to end a lease is given at the store; the lease continues in pieces up to the end that it
//!   has.
//!
//! It costs two flushes of the disk for each third of a lead, whatever the rate of ids is. It needs a Unix system, and
//! a file system on which `flock`, `fsync` and `rename` work.
//!
//! [`Ids`]: https://docs.rs/unalike
//!
//! ```
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().to_owned();
//! # runtime.block_on(async {
//! use std::sync::Arc;
//! use unalike_local::{LocalLeases, LocalOptions};
//! use unalike_memory::MemoryStore;
//! use unalike_storage::{Layout, LeaseAcquire, LeaseStore};
//!
//! let now_ms = 1_700_000_000_000;
//! # let clock: unalike_memory::Source64 = Arc::new(move || now_ms);
//! # let store = Arc::new(MemoryStore::new(unalike_memory::MemoryOptions { clock, ..Default::default() }));
//! let acquire = LeaseAcquire {
//!     namespace: "default".to_owned(),
//!     layout: Layout::TWITTER,
//!     holder: "host-a:8080".to_owned(),
//!     preferred_worker: None,
//!     now_ms,
//!     horizon_ms: 600_000,
//! };
//! let options = LocalOptions { lead_ms: 1_000, ..LocalOptions::new(path) };
//! let leases = LocalLeases::open(store.clone(), options.clone()).await?;
//! let first = leases.acquire(&acquire).await?;
//! assert_eq!(first.valid_until_ms, now_ms + 1_000); // a piece; the store granted ten minutes
//! drop(leases); // as kill -9 would
//!
//! let leases = LocalLeases::open(store, options).await?;
//! let second = leases.acquire(&acquire).await?;
//! assert_eq!((second.worker, second.not_before_ms), (first.worker, first.valid_until_ms));
//! # Ok::<(), unalike_storage::StoreError>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod file;
mod leases;
mod running;
mod static_worker;

use std::path::PathBuf;

use unalike_storage::{GrantId, Layout, StoreError, random_128};

pub use crate::leases::LocalLeases;
pub use crate::static_worker::{StaticAssignment, StaticWorker};

use crate::file::Kept;

/// Where the running leases are kept, and how they are handed out.
///
/// Releases add fields: write `..LocalOptions::new(directory)` at the end.
///
/// ```
/// use unalike_local::LocalOptions;
/// let options = LocalOptions { lead_ms: 1_000, ..LocalOptions::new("/var/lib/unalike/leases") };
/// assert!(options.give_back);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalOptions {
    /// A directory for this process only, on a local disk, with room for one file per namespace.
    pub directory: PathBuf,
    /// How long a piece is, in milliseconds, rounded up to whole ticks: 1 to [`LocalOptions::LEAD_MAX_MS`]. Also how
    /// long a restart waits at most for the clock, and how slow the disk may be for a moment. Leases should reach much
    /// further.
    pub lead_ms: u64,
    /// Whether a generator that is closed gives its lease back to the store, where others may have the worker at once.
    /// If not, the lease stays here until it ends: the next start goes on with it without waiting, also while the store
    /// is down. A static worker is never given back.
    pub give_back: bool,
    /// What the lease store is called, such as its address without a password. A lease that was kept under another name
    /// is not continued, unless the store says that it is the same one.
    pub store: Option<String>,
}

impl LocalOptions {
    /// The longest lead: a minute.
    pub const LEAD_MAX_MS: u64 = 60_000;

    /// This directory, with a lead of 2 s, giving leases back, in front of a store without a name.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), lead_ms: 2_000, give_back: true, store: None }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`StoreError::Refused`].
    pub fn validate(&self) -> Result<(), StoreError> {
        if (1..=Self::LEAD_MAX_MS).contains(&self.lead_ms) {
            return Ok(());
        }
        let what = format!("lead_ms is {}, it must be 1 to {}", self.lead_ms, Self::LEAD_MAX_MS);
        Err(StoreError::refused(what))
    }
}

fn lost(namespace: &str, worker: u32) -> StoreError {
    StoreError::LeaseLost { namespace: namespace.to_owned(), worker }
}

fn check_layout(kept: &Kept, offered: Layout) -> Result<(), StoreError> {
    if kept.layout == offered {
        return Ok(());
    }
    Err(StoreError::LayoutMismatch {
        namespace: kept.namespace.clone(),
        bound: kept.layout.to_string(),
        offered: offered.to_string(),
    })
}

/// The name of a piece: as a store names its grants.
fn new_grant_id() -> Result<GrantId, StoreError> {
    Ok(GrantId(random_128()?))
}
