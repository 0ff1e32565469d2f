//! The reference store: segments and leases in the memory of one process.
//!
//! It states in the fewest lines what every store must do, and it is the simulator's store: clock and randomness are
//! options, so a run can be repeated exactly. **It forgets everything when the process ends**, and would then grant the
//! same numbers again: it is for tests and trials, never for ids that outlive the process.
//!
//! ```
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! use unalike_memory::MemoryStore;
//! use unalike_storage::SegmentStore;
//!
//! let store = MemoryStore::default();
//! let segment = store.allocate("order", 10, 0).await?;
//! assert_eq!((segment.start, segment.end), (1, 11));
//! # Ok::<(), unalike_storage::StoreError>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod leases;
mod segments;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use unalike_storage::{LeaseLimits, StoreError, StoreIdentity, Stripe, TagCreation};

use crate::leases::NamespaceRow;
use crate::segments::TagRow;

/// A source of 64-bit numbers: Unix milliseconds for a clock, anything for randomness.
///
/// ```
/// # use std::sync::Arc;
/// let stopped: unalike_memory::Source64 = Arc::new(|| 1_700_000_000_000);
/// assert_eq!(stopped(), 1_700_000_000_000);
/// ```
pub type Source64 = Arc<dyn Fn() -> u64 + Send + Sync>;

/// What a [`MemoryStore`] is made with.
///
/// Releases add fields: write `..MemoryOptions::default()` at the end.
///
/// ```
/// use std::sync::Arc;
/// use unalike_memory::{MemoryOptions, MemoryStore};
/// let options = MemoryOptions { clock: Arc::new(|| 1_700_000_000_000), ..MemoryOptions::default() };
/// let store = MemoryStore::new(options);
/// ```
#[derive(Clone)]
pub struct MemoryOptions {
    /// Whether tags are created on first use, and how many there may be.
    pub creation: TagCreation,
    /// What lease holders are allowed.
    pub limits: LeaseLimits,
    /// The store's clock, in Unix milliseconds; by default the system's.
    pub clock: Source64,
    /// 64 random bits, for grant ids and the choice of workers; by default the system's.
    ///
    /// Two calls make a grant id, so it must not repeat itself.
    pub random: Source64,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self {
            creation: TagCreation::default(),
            limits: LeaseLimits::default(),
            clock: Arc::new(system_clock_ms),
            random: Arc::new(system_random),
        }
    }
}

impl fmt::Debug for MemoryOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryOptions")
            .field("creation", &self.creation)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Segments and leases in memory; clones share them.
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// use unalike_memory::{MemoryOptions, MemoryStore};
/// use unalike_storage::SegmentStore;
/// let store = MemoryStore::default();
/// let beside = store.client(MemoryOptions::default()); // as another process would have
/// assert_eq!(store.allocate("order", 10, 0).await?.start, 1);
/// assert_eq!(beside.allocate("order", 10, 0).await?.start, 11);
/// # Ok::<(), unalike_storage::StoreError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    options: MemoryOptions,
    /// The stripe that this client joined.
    joined: Option<Stripe>,
    state: Arc<Mutex<State>>,
}

/// All that is kept; in the order of names, which is the order in which they are listed.
#[derive(Clone, Debug, Default)]
struct State {
    /// Made when it is first asked for.
    identity: Option<StoreIdentity>,
    stripe: Option<Stripe>,
    tags: BTreeMap<String, TagRow>,
    /// No lease of any namespace starts before this instant, in Unix milliseconds.
    leases_from_ms: u64,
    namespaces: BTreeMap<String, NamespaceRow>,
    /// The namespaces whose leases a Redis keeps.
    left: BTreeSet<String>,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new(options: MemoryOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Another client of the same tags and leases, with options of its own.
    #[must_use]
    pub fn client(&self, options: MemoryOptions) -> Self {
        Self { options, joined: None, state: Arc::clone(&self.state) }
    }

    /// Another store that begins with a copy of all that this one has now: a replica that lags, or a backup.
    ///
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// use unalike_memory::{MemoryOptions, MemoryStore};
    /// use unalike_storage::SegmentStore;
    /// let store = MemoryStore::default();
    /// let replica = store.copy(MemoryOptions::default())?;
    /// assert_eq!(store.allocate("order", 10, 0).await?.start, 1);
    /// assert_eq!(replica.allocate("order", 10, 0).await?.start, 1, "it knows nothing of that");
    /// # Ok::<(), unalike_storage::StoreError>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As any request.
    pub fn copy(&self, options: MemoryOptions) -> Result<Self, StoreError> {
        let state = self.state()?.clone();
        Ok(Self { options, joined: self.joined, state: Arc::new(Mutex::new(state)) })
    }

    /// Takes it that leases were forgotten: none that is known is prolonged any more, and none starts before
    /// `until_ms`, in Unix milliseconds.
    ///
    /// # Errors
    /// As any request.
    pub fn quarantine(&self, until_ms: u64) -> Result<(), StoreError> {
        let mut state = self.state()?;
        let from_ms = state.leases_from_ms.max(until_ms);
        state.leases_from_ms = from_ms;
        state.namespaces.values_mut().for_each(|namespace| namespace.quarantine(from_ms));
        Ok(())
    }

    /// Loses all tags and leases, as a store does that comes back from an empty backup. Its identity stays.
    ///
    /// # Errors
    /// As any request.
    pub fn lose_all(&self) -> Result<(), StoreError> {
        let mut state = self.state()?;
        *state = State { identity: state.identity, ..State::default() };
        Ok(())
    }

    fn state(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        // After a panic in the middle of a change nobody knows what was granted: nothing is granted any more.
        self.state.lock().map_err(|_| {
            StoreError::corrupt("a panic interrupted a change of the store in memory: restart the process".to_owned())
        })
    }
}

#[expect(clippy::disallowed_methods, reason = "a store has a clock of its own; tests hand in another")]
fn system_clock_ms() -> u64 {
    // A clock before 1970 is so wrong that holders are told of their skew.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[expect(clippy::expect_used, reason = "an operating system without randomness runs nothing")]
fn system_random() -> u64 {
    getrandom::u64().expect("the operating system gives random bits")
}
