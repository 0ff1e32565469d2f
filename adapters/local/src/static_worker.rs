//! The lease port without a store: a worker id that somebody assigned.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use unalike_storage::{
    GrantId, Layout, Lease, LeaseAcquire, LeaseExtend, LeaseRecord, LeaseStore, Rfc3339, StoreError,
};

use crate::file::{Directory, Granter, Kept, Kind};
use crate::running::{Raised, Running, Slot, on_disk};
use crate::{LocalOptions, check_layout, lost, new_grant_id};

/// A worker id that you assign yourself, in place of a lease store: the ordinal of a Kubernetes `StatefulSet`, say.
///
/// **Nothing guards the number.** Two processes with one number in one namespace repeat ids, and nobody notices: use
/// this only where something else makes sure of it, and a lease store wherever you can. What is guarded is the number's
/// own past: stamps stay below a bound in a local file, raised on the disk before it is used, and a restart begins
/// there, whatever the clock says. So the directory must survive restarts with the number (a persistent volume), and
/// lie on a local disk: its lock keeps a second process out on this machine only. A clock that was ahead makes a
/// restart wait until the time that was stamped before.
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("worker");
/// # runtime.block_on(async {
/// use unalike_local::{LocalOptions, StaticAssignment, StaticWorker};
/// use unalike_storage::{Layout, LeaseAcquire, LeaseStore};
///
/// let assignment =
///     StaticAssignment { namespace: "default".to_owned(), worker: 3, layout: Layout::TWITTER, not_before_ms: 0 };
/// StaticWorker::initialise(&path, &assignment).await?; // once in the life of the number
///
/// let leases = StaticWorker::open_unguarded(3, LocalOptions::new(&path)).await?;
/// # let acquire = LeaseAcquire {
/// #     namespace: "default".to_owned(), layout: Layout::TWITTER, holder: String::new(), preferred_worker: None,
/// #     now_ms: 1_700_000_000_000, horizon_ms: 60_000,
/// # };
/// let lease = leases.acquire(&acquire).await?;
/// assert_eq!((lease.worker, lease.valid_until_ms), (3, acquire.now_ms + 2_001));
/// # Ok::<(), unalike_storage::StoreError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct StaticWorker {
    worker: u32,
    directory: Arc<Directory>,
    options: LocalOptions,
    namespaces: Mutex<HashMap<String, Arc<Slot>>>,
}

/// A worker id for the ids of a namespace, assigned once and for all.
///
/// ```
/// use unalike_local::StaticAssignment;
/// use unalike_storage::Layout;
/// let assignment =
///     StaticAssignment { namespace: "default".to_owned(), worker: 3, layout: Layout::TWITTER, not_before_ms: 0 };
/// assert!(assignment.worker <= assignment.layout.worker_max());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticAssignment {
    /// Which set of worker ids: ids are unique within it.
    pub namespace: String,
    /// The worker, datacenter included; one that fits the layout.
    pub worker: u32,
    /// The layout of the ids. Another one needs another namespace.
    pub layout: Layout,
    /// No id has a stamp before this instant, in Unix milliseconds: 0 for a worker that was never used in this
    /// namespace, else an instant after all stamps that it ever made.
    pub not_before_ms: u64,
}

impl StaticWorker {
    /// Assigns a worker id to a namespace in this directory, which is created if it does not exist.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when there is an assignment already, the name is not valid, the worker does not fit the
    /// layout or the layout ends before; [`StoreError::Corrupt`] when there is a file that cannot be read;
    /// [`StoreError::Unavailable`] when the directory is in use or cannot be written to.
    pub async fn initialise(directory: impl Into<PathBuf>, assignment: &StaticAssignment) -> Result<(), StoreError> {
        let StaticAssignment { namespace, worker, layout, not_before_ms } = assignment.clone();
        // The same rules as for a request.
        let horizon_ms = layout.tick_ms().into();
        let preferred_worker = Some(worker);
        LeaseAcquire { namespace, layout, holder: String::new(), preferred_worker, now_ms: 0, horizon_ms }
            .validate()?;
        let lease = Lease {
            worker,
            grant_id: new_grant_id()?,
            not_before_ms: layout.round_up_ms(not_before_ms),
            valid_until_ms: layout.ends_ms(),
        };
        if lease.not_before_ms >= lease.valid_until_ms {
            return Err(StoreError::refused(format!(
                "the layout {layout} has no ticks between {} and its end at {}",
                Rfc3339(not_before_ms),
                Rfc3339(lease.valid_until_ms)
            )));
        }
        let kept = Kept {
            kind: Kind::StaticWorker,
            namespace: assignment.namespace.clone(),
            layout,
            holder: String::new(),
            acquired_ms: 0,
            lease,
            local_bound_ms: lease.not_before_ms,
            is_void: false,
            granter: Granter::default(),
        };
        let path = directory.into();
        on_disk(move || {
            let directory = Directory::lock(&path)?;
            match directory.read(Kind::StaticWorker, &kept.namespace)? {
                None => directory.write(&kept),
                Some(found) => Err(StoreError::refused(format!(
                    "{} assigns worker {} to {:?} already: open it as it is",
                    directory.file(&kept.namespace).display(),
                    found.lease.worker,
                    kept.namespace
                ))),
            }
        })
        .await
    }

    /// Opens the assignments of this worker in a directory, and locks it. That no other process anywhere uses the
    /// number is your promise.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the directory is in use, [`StoreError::Refused`] when it does not exist, cannot
    /// be written to or locked, or an option is out of range.
    pub async fn open_unguarded(worker: u32, options: LocalOptions) -> Result<Self, StoreError> {
        options.validate()?;
        let path = options.directory.clone();
        let directory = on_disk(move || {
            if !path.is_dir() {
                return Err(StoreError::refused(format!(
                    "the directory {} does not exist: mount the volume that keeps it, or, if worker {worker} was never \
                     used, initialise it (`StaticWorker::initialise`)",
                    path.display()
                )));
            }
            Directory::lock(&path).map(Arc::new)
        })
        .await?;
        Ok(Self { worker, directory, options, namespaces: Mutex::default() })
    }

    fn namespaces(&self) -> MutexGuard<'_, HashMap<String, Arc<Slot>>> {
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, namespace: &str) -> Option<Arc<Slot>> {
        self.namespaces().get(namespace).cloned()
    }

    /// What the directory keeps of a namespace, found in order.
    fn load(&self, namespace: &str) -> impl FnOnce() -> Result<Running, StoreError> + Send + 'static {
        let (directory, worker, lead_ms) = (Arc::clone(&self.directory), self.worker, self.options.lead_ms);
        let namespace = namespace.to_owned();
        move || {
            let running = Running::load(&directory, Kind::StaticWorker, &namespace, lead_ms)?;
            let file = directory.file(&namespace);
            match running.kept() {
                Some(kept) if kept.lease.worker == worker => Ok(running),
                Some(kept) => Err(StoreError::refused(format!(
                    "{} belongs to worker {}, not {worker}: mount the volume of this worker",
                    file.display(),
                    kept.lease.worker
                ))),
                None => Err(StoreError::refused(format!(
                    "{} does not exist, so nobody knows which ids worker {worker} has made: mount the volume that keeps it, \
                     or, if it was never used in {namespace:?}, initialise it (`StaticWorker::initialise`)",
                    file.display()
                ))),
            }
        }
    }
}

#[async_trait]
impl LeaseStore for StaticWorker {
    async fn acquire(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError> {
        acquire.validate()?;
        self.directory.check_process()?;
        if let Some(preferred) = acquire.preferred_worker.filter(|&preferred| preferred != self.worker) {
            return Err(StoreError::refused(format!(
                "worker {preferred} is preferred, and {} is assigned",
                self.worker
            )));
        }
        let (load, acquire, grant_id) = (self.load(&acquire.namespace), acquire.clone(), new_grant_id()?);
        let (file, lead_ms) = (self.directory.file(&acquire.namespace), self.options.lead_ms);
        let slot = Arc::clone(self.namespaces().entry(acquire.namespace.clone()).or_default());
        slot.on_disk(move |slot| {
            let running = match slot {
                Some(running) => running,
                None => slot.insert(load()?),
            };
            let bound_ms = match running.kept() {
                Some(kept) => {
                    check_layout(kept, acquire.layout)?;
                    kept.local_bound_ms
                }
                None => 0,
            };
            if let Some(handed) = running.go_on(grant_id, acquire.now_ms)? {
                return Ok(handed.piece);
            }
            if acquire.now_ms >= acquire.layout.ends_ms() {
                return Err(StoreError::refused(format!("the layout {} has ended", acquire.layout)));
            }
            Err(StoreError::unavailable(format!(
                    "by {} the worker was used up to {}, the clock is {}, and {lead_ms} ms before it is the limit: wait, or set \
                     the clock",
                    file.display(),
                    Rfc3339(bound_ms),
                    Rfc3339(acquire.now_ms)
                )))
        })
        .await
    }

    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        extend.validate()?;
        self.directory.check_process()?;
        let extend = extend.clone();
        self.find(&extend.namespace)
            .ok_or_else(|| lost(&extend.namespace, extend.worker))?
            .on_disk(move |slot| {
                let lost = || lost(&extend.namespace, extend.worker);
                let running = slot.as_mut().ok_or_else(lost)?;
                check_layout(running.kept().ok_or_else(lost)?, extend.layout)?;
                match running.raise(extend.worker, extend.grant_id, extend.now_ms)?.ok_or_else(lost)? {
                    Raised::Enough(handed) => Ok(handed.piece),
                    Raised::AtEnd(_) => Err(StoreError::refused(format!("the layout {} has ended", extend.layout))),
                }
            })
            .await
    }

    /// The number stays assigned; a restart begins at `end_ms`.
    async fn release(&self, namespace: &str, worker: u32, grant_id: GrantId, end_ms: u64) -> Result<bool, StoreError> {
        self.directory.check_process()?;
        let Some(slot) = self.find(namespace) else { return Ok(false) };
        slot.on_disk(move |slot| match slot {
            Some(running) => Ok(running.end(worker, grant_id, end_ms, false)?.is_some()),
            None => Ok(false),
        })
        .await
    }

    /// Not possible: nobody but the process itself ends a static worker.
    async fn forbid_extension(&self, namespace: &str, worker: u32) -> Result<Option<LeaseRecord>, StoreError> {
        Err(StoreError::refused(format!(
            "worker {worker} of {namespace:?} is assigned statically, and is nobody's to end: stop its process"
        )))
    }

    async fn leases(&self, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        let (directory, namespace) = (Arc::clone(&self.directory), namespace.to_owned());
        let kept = on_disk(move || directory.read(Kind::StaticWorker, &namespace)).await?;
        let record = kept.map(|kept| LeaseRecord {
            lease: kept.lease,
            holder: kept.holder,
            acquired_ms: kept.acquired_ms,
            is_final: false,
        });
        Ok(record.into_iter().collect())
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        let directory = Arc::clone(&self.directory);
        on_disk(move || directory.namespaces(Kind::StaticWorker)).await
    }
}
