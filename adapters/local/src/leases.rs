//! The lease port in front of another: its leases, handed out in short pieces that a local file covers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{OnceCell, OwnedMutexGuard};
use unalike_storage::{
    GrantId, Layout, Lease, LeaseAcquire, LeaseExtend, LeaseRecord, LeaseStore, StoreError, StoreIdentity, lock,
};

use crate::file::{Directory, Granter, Kept, Kind};
use crate::running::{Handed, Raised, Running, Slot, names, on_disk, on_grid};
use crate::{LocalOptions, check_layout, lost, new_grant_id};

/// A renewal in the background that takes longer is given up: the next one may find a better connection. As long as a
/// request of the library may take by default.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the store may take to say which one it is when a lease that was kept goes on. One that is down does not
/// say.
const IDENTITY_TIMEOUT: Duration = Duration::from_secs(1);

/// Any lease store, with the running lease of each namespace in a local file: see the
/// [crate's documentation](crate).
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("leases");
/// # runtime.block_on(async {
/// use std::sync::Arc;
/// use unalike_local::{LocalLeases, LocalOptions};
/// use unalike_memory::MemoryStore;
/// use unalike_storage::LeaseStore;
///
/// let leases = LocalLeases::open(Arc::new(MemoryStore::default()), LocalOptions::new(path)).await?;
/// assert!(leases.namespaces().await?.is_empty());
/// # Ok::<(), unalike_storage::StoreError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LocalLeases {
    inner: Arc<dyn LeaseStore>,
    directory: Arc<Directory>,
    options: LocalOptions,
    /// The name of the store's data, once it has answered.
    identity: Arc<OnceCell<Option<StoreIdentity>>>,
    /// Those that were acquired by this process.
    namespaces: Mutex<HashMap<String, Arc<Namespace>>>,
}

#[derive(Default)]
struct Namespace {
    slot: Arc<Slot>,
    /// Held by whoever asks the store for more time: one at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
    whole: Mutex<Option<Whole>>,
    /// Whether the store failed last, which is said once and not with each piece.
    fails: AtomicBool,
}

/// The lease at the store of which pieces are handed out, as it was last heard of.
#[derive(Clone, Copy, Debug)]
struct Whole {
    lease: Lease,
    /// When to ask for more time.
    renew_ms: u64,
    /// The store extends it no more.
    is_lost: bool,
}

/// What a holder's extension came to.
enum Step {
    Enough(Handed),
    /// Only the store can help: to be asked this.
    AtEnd(Handed, LeaseExtend),
}

impl LocalLeases {
    /// Puts the directory in front of the store: creates it if it does not exist, and locks it. Nothing is asked of the
    /// store.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the directory is in use, [`StoreError::Refused`] when it cannot be created,
    /// written to or locked, or an option is out of range.
    pub async fn open(inner: Arc<dyn LeaseStore>, options: LocalOptions) -> Result<Self, StoreError> {
        options.validate()?;
        let path = options.directory.clone();
        let directory = on_disk(move || Directory::lock(&path).map(Arc::new)).await?;
        Ok(Self { inner, directory, options, identity: Arc::default(), namespaces: Mutex::default() })
    }

    /// The store that grants just now, as far as it says which one it is.
    async fn granter(&self) -> Granter {
        Granter { identity: identity_of(&*self.inner, &self.identity).await, name: self.options.store.clone() }
    }

    fn find(&self, namespace: &str) -> Option<Arc<Namespace>> {
        lock(&self.namespaces).get(namespace).cloned()
    }

    /// The next piece of the lease that the directory keeps, if it has time left. What another store granted is not
    /// continued.
    async fn go_on(&self, namespace: &Namespace, acquire: &LeaseAcquire) -> Result<Option<Handed>, StoreError> {
        let (directory, lead_ms) = (Arc::clone(&self.directory), self.options.lead_ms);
        let (acquire, grant_id) = (acquire.clone(), new_grant_id()?);
        let granter = self.granter().await;
        let work = move |slot: &mut Option<Running>| {
            let running = match slot {
                Some(running) => running,
                None => slot.insert(Running::load(&directory, Kind::StoreLease, &acquire.namespace, lead_ms)?),
            };
            running.disown_unless_of(&granter);
            if let Some(kept) = running.kept() {
                check_layout(kept, acquire.layout)?;
            }
            running.go_on(grant_id, acquire.now_ms)
        };
        namespace.slot.on_disk(work).await
    }

    /// The first piece of a lease that the store just granted.
    async fn begin(&self, namespace: &Namespace, acquire: &LeaseAcquire, lease: &Lease) -> Result<Handed, StoreError> {
        let granted = on_grid(&acquire.layout, lease);
        if granted.not_before_ms >= granted.valid_until_ms || granted.worker > acquire.layout.worker_max() {
            return Err(StoreError::corrupt(format!(
                "the store granted {lease:?}, which is not a lease in the layout {}",
                acquire.layout
            )));
        }
        let (now_ms, acquire, granter) = (acquire.now_ms, acquire.clone(), self.granter().await);
        let kept = Kept {
            kind: Kind::StoreLease,
            namespace: acquire.namespace,
            layout: acquire.layout,
            holder: acquire.holder,
            acquired_ms: now_ms,
            local_bound_ms: granted.not_before_ms,
            lease: granted,
            is_void: false,
            granter,
        };
        let work = move |slot: &mut Option<Running>| match slot {
            Some(running) => running.begin(kept, now_ms),
            None => Err(StoreError::unavailable("the local lease was not looked for".to_owned())),
        };
        namespace.slot.on_disk(work).await
    }
}

impl Namespace {
    async fn raise(&self, extend: &LeaseExtend) -> Result<Step, StoreError> {
        let extend = extend.clone();
        let work = move |slot: &mut Option<Running>| {
            let lost = || lost(&extend.namespace, extend.worker);
            let running = slot.as_mut().ok_or_else(lost)?;
            check_layout(running.kept().ok_or_else(lost)?, extend.layout)?;
            let raised = running.raise(extend.worker, extend.grant_id, extend.now_ms)?.ok_or_else(lost)?;
            Ok(match raised {
                Raised::Enough(handed) => Step::Enough(handed),
                Raised::AtEnd(handed) => {
                    let request = LeaseExtend { grant_id: handed.whole.grant_id, ..extend };
                    Step::AtEnd(handed, request)
                }
            })
        };
        self.slot.on_disk(work).await
    }

    /// Whether the store should be asked for more time.
    fn is_renewal_due(&self, whole: &Lease, now_ms: u64) -> bool {
        let mut heard = lock(&self.whole);
        match &*heard {
            Some(heard) if names(&heard.lease) == names(whole) => !heard.is_lost && heard.renew_ms <= now_ms,
            // From the file: nobody has asked since the restart.
            _ => {
                *heard = Some(Whole { lease: *whole, renew_ms: now_ms, is_lost: false });
                true
            }
        }
    }

    fn is_lost(&self, request: &LeaseExtend) -> bool {
        let heard = *lock(&self.whole);
        heard.is_some_and(|heard| heard.is_lost && names(&heard.lease) == (request.worker, request.grant_id))
    }

    fn heard(&self, lease: Lease, now_ms: u64) {
        // As for every holder: when a third of the time that is left has passed.
        let renew_ms = now_ms.saturating_add((lease.valid_until_ms.saturating_sub(now_ms) / 3).max(1));
        *lock(&self.whole) = Some(Whole { lease, renew_ms, is_lost: false });
    }

    /// Takes the store's answer in.
    async fn renewed(&self, request: &LeaseExtend, answer: Result<Lease, StoreError>) -> Result<(), StoreError> {
        match answer {
            Ok(lease) if names(&lease) == (request.worker, request.grant_id) => {
                let work =
                    move |slot: &mut Option<Running>| Ok(slot.as_mut().and_then(|running| running.prolong(&lease)));
                if let Some(whole) = self.slot.on_disk(work).await? {
                    self.heard(whole, request.now_ms);
                }
                Ok(())
            }
            Ok(lease) => Err(StoreError::corrupt(format!(
                "the store was asked for more time for worker {} under {:?}, and answered with {lease:?}",
                request.worker, request.grant_id
            ))),
            Err(error) => {
                if let (StoreError::LeaseLost { .. }, Some(heard)) = (&error, &mut *lock(&self.whole)) {
                    heard.is_lost |= names(&heard.lease) == (request.worker, request.grant_id);
                }
                Err(error)
            }
        }
    }

    /// Asks the store for more time, while ids go on below what is known; only if nobody does just now.
    fn renew_in_background(self: &Arc<Self>, store: &LocalLeases, request: LeaseExtend) {
        let Ok(turn) = Arc::clone(&self.turn).try_lock_owned() else { return };
        let (inner, known) = (&store.inner, Arc::clone(&store.identity));
        // It keeps neither the directory nor its lock: both may be given up while the store is silent.
        let (namespace, inner) = (Arc::downgrade(self), Arc::clone(inner));
        let renewal = async move {
            let _turn: OwnedMutexGuard<()> = turn;
            // It may have been down when the lease was taken from the file.
            let identity = identity_of(&*inner, &known).await;
            if let Some(namespace) = namespace.upgrade() {
                let granter = Granter { identity, name: None };
                let disown = move |slot: &mut Option<Running>| {
                    Ok(slot.as_mut().is_some_and(|running| running.disown_unless_of(&granter)))
                };
                match namespace.slot.on_disk(disown).await {
                    Ok(false) => {}
                    Ok(true) => return,
                    Err(error) => tracing::warn!(%error, "whether the lease is of this store was not looked at"),
                }
            }
            let answer = tokio::time::timeout(RENEWAL_TIMEOUT, inner.extend(&request)).await.unwrap_or_else(|_| {
                let what = format!("no answer within {} s", RENEWAL_TIMEOUT.as_secs());
                Err(StoreError::outcome_unknown(what))
            });
            let Some(namespace) = namespace.upgrade() else { return };
            let renewed = namespace.renewed(&request, answer).await;
            let failed_before = namespace.fails.swap(renewed.is_err(), Ordering::Relaxed);
            let LeaseExtend { namespace, worker, .. } = &request;
            match renewed {
                Err(error) if !failed_before => {
                    tracing::warn!(%error, %namespace, worker, "the lease was not extended at its store: it stays valid until its end");
                }
                Ok(()) if failed_before => {
                    tracing::info!(%namespace, worker, "the lease is extended at its store again")
                }
                _ => {}
            }
        };
        tokio::spawn(renewal);
    }
}

#[async_trait]
impl LeaseStore for LocalLeases {
    async fn clock_ms(&self) -> Result<Option<u64>, StoreError> {
        self.inner.clock_ms().await
    }

    async fn check_namespace(&self, namespace: &str, layout: Layout) -> Result<(), StoreError> {
        self.inner.check_namespace(namespace, layout).await
    }

    async fn acquire(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError> {
        acquire.validate()?;
        self.directory.check_process()?;
        let namespace = Arc::clone(lock(&self.namespaces).entry(acquire.namespace.clone()).or_default());
        if let Some(Handed { piece, whole }) = self.go_on(&namespace, acquire).await? {
            if namespace.is_renewal_due(&whole, acquire.now_ms) {
                let LeaseAcquire { namespace: name, layout, now_ms, horizon_ms, .. } = acquire.clone();
                let (worker, grant_id) = names(&whole);
                let request = LeaseExtend { namespace: name, layout, worker, grant_id, now_ms, horizon_ms };
                namespace.renew_in_background(self, request);
            }
            return Ok(piece);
        }
        let lease = self.inner.acquire(acquire).await?;
        let Handed { piece, whole } = self.begin(&namespace, acquire, &lease).await?;
        namespace.heard(whole, acquire.now_ms);
        Ok(piece)
    }

    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        extend.validate()?;
        self.directory.check_process()?;
        let namespace = self.find(&extend.namespace).ok_or_else(|| lost(&extend.namespace, extend.worker))?;
        if let Step::Enough(Handed { piece, whole }) = namespace.raise(extend).await? {
            if namespace.is_renewal_due(&whole, extend.now_ms) {
                let request = LeaseExtend { grant_id: whole.grant_id, ..extend.clone() };
                namespace.renew_in_background(self, request);
            }
            return Ok(piece);
        }
        let _turn = namespace.turn.lock().await;
        // Meanwhile somebody else may have heard from the store.
        let request = match namespace.raise(extend).await? {
            Step::Enough(handed) => return Ok(handed.piece),
            Step::AtEnd(_, request) => request,
        };
        if namespace.is_lost(&request) {
            return Err(lost(&extend.namespace, extend.worker));
        }
        let answer = self.inner.extend(&request).await;
        namespace.renewed(&request, answer).await?;
        match namespace.raise(extend).await? {
            Step::Enough(handed) | Step::AtEnd(handed, _) => Ok(handed.piece),
        }
    }

    async fn release(&self, namespace: &str, worker: u32, grant_id: GrantId, end_ms: u64) -> Result<bool, StoreError> {
        self.directory.check_process()?;
        let Some(found) = self.find(namespace) else { return Ok(false) };
        let is_given_back = self.options.give_back;
        let work = move |slot: &mut Option<Running>| match slot {
            Some(running) => running.end(worker, grant_id, end_ms, is_given_back),
            None => Ok(None),
        };
        // What the disk has for void is never used again, so the store may hear of it now, and no earlier.
        match found.slot.on_disk(work).await? {
            None => Ok(false),
            Some(_) if !is_given_back => Ok(true),
            Some((whole, end_ms)) => self.inner.release(namespace, whole.worker, whole.grant_id, end_ms).await,
        }
    }

    async fn forbid_extension(&self, namespace: &str, worker: u32) -> Result<Option<LeaseRecord>, StoreError> {
        self.inner.forbid_extension(namespace, worker).await
    }

    async fn leases(&self, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        self.inner.leases(namespace).await
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        self.inner.namespaces().await
    }

    fn reach_ms(&self, namespace: &str, worker: u32) -> Option<u64> {
        let heard = *lock(&self.find(namespace)?.whole);
        heard.filter(|heard| heard.lease.worker == worker).map(|heard| heard.lease.valid_until_ms)
    }

    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        self.inner.identity().await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

/// Which store it is; none while it does not answer, or if it has no name that lasts.
async fn identity_of(store: &dyn LeaseStore, known: &OnceCell<Option<StoreIdentity>>) -> Option<StoreIdentity> {
    let asked = tokio::time::timeout(IDENTITY_TIMEOUT, known.get_or_try_init(|| store.identity())).await;
    asked.ok()?.ok().copied().flatten()
}
