//! The lease port: a key per worker, written only if it was not written since it was read.
//!
//! Invariant: an interval begins at or after the greatest end that was ever recorded for its worker. It is decided on
//! the worker's value, and written on the condition that the value, the namespace and the store are still those.
//!
//! etcd tells no time in its API. The clock that decides who is offered a worker, and for how long, is that of the
//! member which this program is connected to, by the date of its answers over HTTP. It is told in whole seconds, and
//! taken to be within its second where the holder's clock is nearest. It cannot make leases overlap.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use futures_util::future::try_join;
use serde::{Deserialize, Serialize};
use unalike_storage::{
    Clocks, GrantId, Layout, Lease, LeaseAcquire, LeaseExtend, LeaseLimits, LeaseRecord, LeaseStore, LeasesKept,
    NamespaceBinding, StoreError, StoreIdentity, UsedWorker, choose_worker_after_races, random_64, random_128,
    time_of_leases,
};

use crate::EtcdOptions;
use crate::cluster::{Doing, Expected};
use crate::error::damaged;
use crate::record::Record;
use crate::store::{Store, Written, next, put, too_many_races};
use crate::wire::{Compare, KeyValue, RangeRequest, RangeResponse};

/// Leases in one cluster; clones share its connection.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use unalike_etcd::{EtcdLeases, EtcdOptions};
/// use unalike_storage::LeaseStore;
///
/// # async fn open() -> Result<(), unalike_storage::StoreError> {
/// let mut options = EtcdOptions::from_url("etcd://e1.example,e2.example,e3.example/ids")?;
/// options.limits.max_horizon_ms = 60 * 60 * 1_000;
/// let leases: Arc<dyn LeaseStore> = Arc::new(EtcdLeases::connect(options).await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct EtcdLeases {
    store: Store,
    limits: LeaseLimits,
}

/// What a namespace is bound to: names and whole numbers.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Namespace {
    binding: BTreeMap<String, u64>,
    /// How many adoptions it has seen.
    #[serde(default)]
    lifts: usize,
    /// How often its key was written by then, as etcd counts: a value that was put back is behind. 0 in values of
    /// earlier programs.
    #[serde(default)]
    writes: i64,
}

/// A worker's newest lease. Its `valid_until_ms` is the greatest end recorded for the worker.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Worker {
    version: u32,
    grant_id: String,
    holder: String,
    not_before_ms: u64,
    valid_until_ms: u64,
    acquired_ms: u64,
    is_final: bool,
    /// As those of a [`Namespace`].
    #[serde(default)]
    lifts: usize,
    #[serde(default)]
    writes: i64,
}

const WORKER_VERSION: u32 = 1;

/// A namespace as it was found.
struct Bound {
    binding: NamespaceBinding,
    mod_revision: i64,
    /// What is written in its place with the next lease, if it has not seen every adoption or records no writes: only
    /// then is an older value told.
    renewed: Option<Vec<u8>>,
}

/// A worker as it was found.
struct Found {
    record: LeaseRecord,
    last: LastWrite,
}

/// The last write of a key; zeros if it is not there.
#[derive(Clone, Copy, Default)]
struct LastWrite {
    mod_revision: i64,
    /// How many there were.
    writes: i64,
}

/// What a request sees before it decides.
struct Look {
    store_ms: u64,
    expected: Arc<Expected>,
    bound: Option<Bound>,
    /// Whether time was granted to leases of the namespace in Redis.
    has_granted_time: bool,
    /// What else was asked for.
    workers: RangeResponse,
}

impl EtcdLeases {
    /// Connects, checks the cluster, and begins a store where there is none and that is allowed.
    ///
    /// # Errors
    /// As [`EtcdStore::connect`](crate::EtcdStore::connect); [`StoreError::Refused`] also for
    /// [limits](EtcdOptions::limits) out of range.
    pub async fn connect(options: EtcdOptions) -> Result<Self, StoreError> {
        Self::open(Store::open(&options).await?, options.limits).await
    }

    /// In a store that is open. A longer horizon than any before is recorded: whoever adopts the cluster must know how
    /// far ahead a lease may reach.
    pub(crate) async fn open(store: Store, limits: LeaseLimits) -> Result<Self, StoreError> {
        limits.validate()?;
        let raise = |record: &Record| {
            let max_horizon_ms = limits.max_horizon_ms;
            (record.max_horizon_ms < max_horizon_ms).then(|| Record { max_horizon_ms, ..record.clone() })
        };
        store.change_record("recording the greatest horizon", raise).await?;
        Ok(Self { store, limits })
    }

    fn at(&self) -> &str {
        self.store.cluster.at()
    }

    /// Reads the clock, and at once the namespace and workers, for a holder whose clock showed this, if one asks.
    async fn look(
        &self,
        doing: Doing,
        namespace: &str,
        workers: RangeRequest,
        holder: Option<(u64, Instant)>,
    ) -> Result<Look, StoreError> {
        let key = self.store.paths.namespace(namespace);
        let clock = self.store.cluster.clock_ms(doing, holder);
        let time = RangeRequest::key(&self.store.paths.tag(&time_of_leases(namespace)?));
        let read = self.store.read(doing, vec![RangeRequest::key(&key), time, workers]);
        let (store_ms, (found, expected)) = try_join(clock, read).await?;
        let mut found = found.into_iter();
        let bound = next(&mut found).kvs.first().map(|kv| self.bound(namespace, &expected, kv)).transpose()?;
        let has_granted_time = !next(&mut found).kvs.is_empty();
        Ok(Look { store_ms, expected, bound, has_granted_time, workers: next(&mut found) })
    }

    fn bound(&self, namespace: &str, expected: &Expected, kv: &KeyValue) -> Result<Bound, StoreError> {
        let odd = |why: &str| damaged(self.at(), &self.store.paths.namespace(namespace), why);
        let Namespace { binding: figures, lifts, writes } =
            serde_json::from_slice(&kv.value).map_err(|error| odd(&format!("is not unalike's ({error})")))?;
        let unseen = expected.record.unseen_lifts(lifts, writes, kv).map_err(|why| odd(&why))?;
        if is_in_redis(&figures) {
            return Err(StoreError::leases_elsewhere(namespace, LeasesKept::InRedis));
        }
        let mut known = 0;
        let read = NamespaceBinding::read(|name| {
            known += 1;
            figures.get(name).copied().ok_or_else(|| odd(&format!("lacks {name}")))
        });
        let binding = read?.map_err(|why| odd(&format!("is no binding: {why}")))?;
        if known != figures.len() {
            return Err(odd("has figures that this program does not know"));
        }
        // After an adoption no lease of any namespace begins before this.
        let floor_ms = binding.floor_ms.max(expected.record.floor_ms);
        let is_behind = !unseen.is_empty() || writes == 0;
        let renewed = is_behind.then(|| namespace_value(figures, &expected.record, kv.version));
        Ok(Bound { binding: NamespaceBinding { floor_ms, ..binding }, mod_revision: kv.mod_revision, renewed })
    }

    /// Writes the mark that Redis has the leases of a namespace, unless somebody has bound it here.
    pub(crate) async fn mark_namespace(&self, namespace: &str) -> Result<(), StoreError> {
        let doing = self.store.cluster.begin("noting that Redis keeps leases");
        let key = self.store.paths.namespace(namespace);
        while tokio::time::Instant::now() < doing.until {
            let (found, expected) = self.store.read(doing, vec![RangeRequest::key(&key)]).await?;
            if let Some(kv) = next(&mut found.into_iter()).kvs.first() {
                return match self.bound(namespace, &expected, kv) {
                    Err(StoreError::LeasesElsewhere { .. }) => Ok(()),
                    Ok(_) => Err(StoreError::leases_elsewhere(namespace, LeasesKept::InStore)),
                    Err(error) => Err(error),
                };
            }
            let figures = NamespaceBinding::figures_in_redis().map(|(name, figure)| (name.to_owned(), figure)).into();
            let puts = vec![put(&key, namespace_value(figures, &expected.record, 0))];
            let compare = vec![Compare::unchanged(&key, 0)];
            if let Written::Done(_) = self.store.write(doing, &expected, compare, puts, Vec::new()).await? {
                return Ok(());
            }
        }
        Err(too_many_races(self.at(), doing))
    }

    fn found(&self, expected: &Expected, prefix: &str, kv: &KeyValue) -> Result<Found, StoreError> {
        let key = String::from_utf8_lossy(&kv.key).into_owned();
        let odd = |why: &str| damaged(self.at(), &key, why);
        let number = key.strip_prefix(prefix).filter(|number| number.len() == 10);
        let worker = number.and_then(|number| number.parse().ok()).ok_or_else(|| odd("is no worker's"))?;
        let read: Worker =
            serde_json::from_slice(&kv.value).map_err(|error| odd(&format!("is not unalike's ({error})")))?;
        if read.version != WORKER_VERSION {
            return Err(odd(&format!("has the version {}, and this program knows only 1", read.version)));
        }
        // No lease from before an adoption overlaps one that is granted afterwards, whatever its end.
        expected.record.unseen_lifts(read.lifts, read.writes, kv).map_err(|why| odd(&why))?;
        let has_digits = read.grant_id.len() == 32 && read.grant_id.bytes().all(|digit| digit.is_ascii_hexdigit());
        let grant_id = has_digits.then(|| u128::from_str_radix(&read.grant_id, 16).ok()).flatten();
        let grant_id = grant_id.ok_or_else(|| odd("has a grant id without 32 hexadecimal digits"))?;
        let (not_before_ms, valid_until_ms) = (read.not_before_ms, read.valid_until_ms);
        if not_before_ms > valid_until_ms {
            return Err(odd("has a lease that ends before it begins"));
        }
        let lease = Lease { worker, grant_id: GrantId(grant_id), not_before_ms, valid_until_ms };
        let (holder, acquired_ms, is_final) = (read.holder, read.acquired_ms, read.is_final);
        let last = LastWrite { mod_revision: kv.mod_revision, writes: kv.version };
        Ok(Found { record: LeaseRecord { lease, holder, acquired_ms, is_final }, last })
    }

    fn all_found(
        &self,
        expected: &Expected,
        namespace: &str,
        found: &RangeResponse,
    ) -> Result<BTreeMap<u32, Found>, StoreError> {
        let prefix = self.store.paths.workers(namespace);
        let read = |kv| self.found(expected, &prefix, kv).map(|found| (found.record.lease.worker, found));
        found.kvs.iter().map(read).collect()
    }

    /// The two clocks, or the refusal of a holder's that is off.
    fn clocks(&self, store_ms: u64, (holder_ms, came): (u64, Instant)) -> Result<Clocks, StoreError> {
        let clocks = Clocks { holder_ms, store_ms };
        // While the request came here and the store was asked, the holder's clock went on.
        let ago_ms = u64::try_from(came.elapsed().as_millis()).unwrap_or(u64::MAX);
        let nearest_ms = store_ms.clamp(holder_ms, holder_ms.saturating_add(ago_ms));
        let checked = self.limits.check_clocks(Clocks { holder_ms: nearest_ms, store_ms });
        // As the holder sent it.
        checked.or_else(|_| self.limits.check_clocks(clocks))?;
        Ok(clocks)
    }

    /// One try at an acquire; none when another program was faster.
    async fn try_acquire(
        &self,
        doing: Doing,
        acquire: &LeaseAcquire,
        came: Instant,
        race: u32,
    ) -> Result<Option<Lease>, StoreError> {
        let namespace = acquire.namespace.as_str();
        let paths = &self.store.paths;
        let range = RangeRequest::prefix(&paths.workers(namespace), None, 0);
        let holder = (acquire.now_ms, came);
        let look = self.look(doing, namespace, range, Some(holder)).await?;
        let clocks = self.clocks(look.store_ms, holder)?;
        if look.has_granted_time {
            return Err(StoreError::leases_in_redis(namespace, look.bound.is_some()));
        }
        let Some(bound) = look.bound else {
            self.bind(doing, acquire, clocks, &look.expected).await?;
            return Ok(None);
        };
        bound.binding.check_layout(namespace, acquire.layout)?;
        bound.binding.check_quarantine(namespace, clocks.store_ms)?;
        let workers = self.all_found(&look.expected, namespace, &look.workers)?;
        if let Some(worker) = workers.keys().find(|&&worker| worker > acquire.layout.worker_max()) {
            return Err(damaged(
                self.at(),
                &paths.worker(namespace, *worker),
                "is of a worker that the layout has not",
            ));
        }
        let expiry = self.store.cluster.steps.expiry(clocks.store_ms, bound.binding.max_horizon_ms);
        let used: Vec<_> = workers
            .values()
            .map(|Found { record, .. }| {
                let used = UsedWorker { worker: record.lease.worker, end_ms: record.lease.valid_until_ms };
                (used, record.holder.as_str())
            })
            .collect();
        let chosen = choose_worker_after_races(acquire, &expiry, random_64()?, &used, race)?;
        let interval = bound.binding.grant(chosen.end_ms, clocks, acquire.horizon_ms)?;
        let lease = Lease {
            worker: chosen.worker,
            grant_id: GrantId(random_128()?),
            not_before_ms: interval.start,
            valid_until_ms: interval.end,
        };
        let record =
            LeaseRecord { lease, holder: acquire.holder.clone(), acquired_ms: clocks.store_ms, is_final: false };
        let before = workers.get(&chosen.worker).map_or_else(LastWrite::default, |found| found.last);
        Ok(self.put_worker(doing, &look.expected, (namespace, &bound, before), &record).await?.then_some(lease))
    }

    /// Binds a namespace that is used for the first time. It is not an error if another program was faster: in either
    /// case what it is bound to is read next.
    async fn bind(
        &self,
        doing: Doing,
        acquire: &LeaseAcquire,
        clocks: Clocks,
        expected: &Expected,
    ) -> Result<(), StoreError> {
        let binding = NamespaceBinding::new(acquire.layout, self.limits)?;
        // A request that is refused binds nothing.
        NamespaceBinding { floor_ms: expected.record.floor_ms, ..binding }
            .check_quarantine(&acquire.namespace, clocks.store_ms)?;
        binding.grant(0, clocks, acquire.horizon_ms)?;
        let figures = binding.figures().map(|(name, figure)| (name.to_owned(), figure)).into();
        let key = self.store.paths.namespace(&acquire.namespace);
        let puts = vec![put(&key, namespace_value(figures, &expected.record, 0))];
        self.store.write(doing, expected, vec![Compare::unchanged(&key, 0)], puts, Vec::new()).await.map(drop)
    }

    /// Writes a worker's lease, if namespace and worker were not written since they were found. Answers whether it was
    /// written.
    async fn put_worker(
        &self,
        doing: Doing,
        expected: &Expected,
        (namespace, bound, before): (&str, &Bound, LastWrite),
        record: &LeaseRecord,
    ) -> Result<bool, StoreError> {
        let paths = &self.store.paths;
        let (key, namespace) = (paths.worker(namespace, record.lease.worker), paths.namespace(namespace));
        let compare =
            vec![Compare::unchanged(&key, before.mod_revision), Compare::unchanged(&namespace, bound.mod_revision)];
        let value = json(&Worker {
            version: WORKER_VERSION,
            grant_id: format!("{:032x}", record.lease.grant_id.0),
            holder: record.holder.clone(),
            not_before_ms: record.lease.not_before_ms,
            valid_until_ms: record.lease.valid_until_ms,
            acquired_ms: record.acquired_ms,
            is_final: record.is_final,
            lifts: expected.record.lifts.len(),
            writes: before.writes.saturating_add(1),
        });
        let mut puts = vec![put(&key, value)];
        puts.extend(bound.renewed.clone().map(|value| put(&namespace, value)));
        let written = self.store.write(doing, expected, compare, puts, Vec::new()).await?;
        Ok(matches!(written, Written::Done(_)))
    }

    /// One try at an extension; none when another program was faster.
    async fn try_extend(&self, doing: Doing, extend: &LeaseExtend, came: Instant) -> Result<Option<Lease>, StoreError> {
        let namespace = extend.namespace.as_str();
        let lost = || StoreError::LeaseLost { namespace: namespace.to_owned(), worker: extend.worker };
        let range = RangeRequest::key(&self.store.paths.worker(namespace, extend.worker));
        let holder = (extend.now_ms, came);
        let look = self.look(doing, namespace, range, Some(holder)).await?;
        let clocks = self.clocks(look.store_ms, holder)?;
        let bound = look.bound.ok_or_else(lost)?;
        let binding = bound.binding;
        binding.check_layout(namespace, extend.layout)?;
        let Some(Found { mut record, last }) =
            self.all_found(&look.expected, namespace, &look.workers)?.remove(&extend.worker)
        else {
            return Err(lost());
        };
        // One that began before the end of a quarantine may be another's by now.
        let is_older = record.lease.not_before_ms < binding.floor_ms;
        if record.lease.grant_id != extend.grant_id || record.is_final || is_older {
            return Err(lost());
        }
        let known_ms = record.lease.valid_until_ms;
        record.lease.valid_until_ms = binding.extended_end_ms(known_ms, clocks.store_ms, extend.horizon_ms);
        binding.check_horizon(&record.lease, clocks.store_ms)?;
        if record.lease.valid_until_ms == known_ms {
            return Ok(Some(record.lease));
        }
        let conditions = (namespace, &bound, last);
        Ok(self.put_worker(doing, &look.expected, conditions, &record).await?.then_some(record.lease))
    }

    /// Changes a worker's newest lease to what `decide` makes of it; none where that is nothing. No clock is needed.
    async fn change(
        &self,
        what: &'static str,
        (namespace, worker): (&str, u32),
        decide: impl Fn(&NamespaceBinding, LeaseRecord) -> Option<LeaseRecord> + Send,
    ) -> Result<Option<LeaseRecord>, StoreError> {
        let doing = self.store.cluster.begin(what);
        let key = self.store.paths.namespace(namespace);
        while tokio::time::Instant::now() < doing.until {
            let ranges = vec![RangeRequest::key(&key), RangeRequest::key(&self.store.paths.worker(namespace, worker))];
            let (found, expected) = self.store.read(doing, ranges).await?;
            let mut found = found.into_iter();
            let bound = next(&mut found).kvs.first().map(|kv| self.bound(namespace, &expected, kv)).transpose()?;
            let Some(bound) = bound else { return Ok(None) };
            let Some(Found { record, last }) = self.all_found(&expected, namespace, &next(&mut found))?.remove(&worker)
            else {
                return Ok(None);
            };
            let Some(record) = decide(&bound.binding, record) else { return Ok(None) };
            if self.put_worker(doing, &expected, (namespace, &bound, last), &record).await? {
                return Ok(Some(record));
            }
        }
        Err(too_many_races(self.at(), doing))
    }
}

/// Whether the figures are the mark that Redis has the leases.
fn is_in_redis(figures: &BTreeMap<String, u64>) -> bool {
    figures.get("version") == Some(&NamespaceBinding::IN_REDIS)
}

/// A namespace's value once it is written over one that was written so often.
fn namespace_value(binding: BTreeMap<String, u64>, store: &Record, writes: i64) -> Vec<u8> {
    json(&Namespace { binding, lifts: store.lifts.len(), writes: writes.saturating_add(1) })
}

fn json(value: &impl Serialize) -> Vec<u8> {
    // Numbers, texts and flags always have a form in JSON.
    serde_json::to_vec(value).unwrap_or_default()
}

#[async_trait]
impl LeaseStore for EtcdLeases {
    async fn check_namespace(&self, namespace: &str, layout: Layout) -> Result<(), StoreError> {
        let doing = self.store.cluster.begin("looking at a namespace of leases");
        // With the clock: without it nothing is leased.
        let look = self.look(doing, namespace, RangeRequest::key(&self.store.paths.worker(namespace, 0)), None).await?;
        look.bound.map_or(Ok(()), |bound| bound.binding.check_layout(namespace, layout))
    }

    async fn acquire(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError> {
        acquire.validate()?;
        let (came, doing) = (Instant::now(), self.store.cluster.begin("acquiring a worker"));
        let mut race = 0;
        while tokio::time::Instant::now() < doing.until {
            if let Some(lease) = self.try_acquire(doing, acquire, came, race).await? {
                return Ok(lease);
            }
            race += 1;
        }
        Err(too_many_races(self.at(), doing))
    }

    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        extend.validate()?;
        let (came, doing) = (Instant::now(), self.store.cluster.begin("extending a lease"));
        while tokio::time::Instant::now() < doing.until {
            if let Some(lease) = self.try_extend(doing, extend, came).await? {
                return Ok(lease);
            }
        }
        Err(too_many_races(self.at(), doing))
    }

    async fn release(&self, namespace: &str, worker: u32, grant_id: GrantId, end_ms: u64) -> Result<bool, StoreError> {
        let decide = |binding: &NamespaceBinding, mut record: LeaseRecord| {
            let is_older = record.lease.not_before_ms < binding.floor_ms;
            if record.lease.grant_id != grant_id || record.is_final || is_older {
                return None;
            }
            record.lease.valid_until_ms = binding.released_end_ms(&record.lease, end_ms)?;
            record.is_final = true;
            Some(record)
        };
        Ok(self.change("releasing a lease", (namespace, worker), decide).await?.is_some())
    }

    async fn forbid_extension(&self, namespace: &str, worker: u32) -> Result<Option<LeaseRecord>, StoreError> {
        let forbid = |_: &NamespaceBinding, record| Some(LeaseRecord { is_final: true, ..record });
        self.change("forbidding a lease's extension", (namespace, worker), forbid).await
    }

    async fn leases(&self, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        let doing = self.store.cluster.begin("listing leases");
        let range = RangeRequest::prefix(&self.store.paths.workers(namespace), None, 0);
        let (found, expected) = self.store.read(doing, vec![range]).await?;
        let workers = self.all_found(&expected, namespace, &next(&mut found.into_iter()))?;
        Ok(workers.into_values().map(|found| found.record).collect())
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        let doing = self.store.cluster.begin("listing lease namespaces");
        let prefix = self.store.paths.namespaces();
        let (found, _) = self.store.read(doing, vec![RangeRequest::prefix(&prefix, None, 0)]).await?;
        let is_here = |kv: &&KeyValue| {
            !serde_json::from_slice::<Namespace>(&kv.value).is_ok_and(|found| is_in_redis(&found.binding))
        };
        let name = |kv: &KeyValue| {
            let name = kv.key.strip_prefix(prefix.as_bytes()).and_then(|name| std::str::from_utf8(name).ok());
            name.map(str::to_owned)
                .ok_or_else(|| damaged(self.at(), &prefix, "has a name behind it that is no namespace's"))
        };
        next(&mut found.into_iter()).kvs.iter().filter(is_here).map(name).collect()
    }

    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        let doing = self.store.cluster.begin("reading the name of the store");
        let (_, expected) = self.store.read(doing, Vec::new()).await?;
        Ok(Some(expected.record.name()))
    }

    /// Closes the connection, also for the store that these leases [share](crate::EtcdStore::leases) it with.
    async fn close(&self) {
        self.store.cluster.close();
    }
}
