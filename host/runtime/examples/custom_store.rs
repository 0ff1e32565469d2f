//! A store of one's own: one JSON file, changed under a lock and flushed to the disk before anything is answered.
//!
//! `cargo run -p unalike --example custom_store` runs the contract suite on it, which every store must pass, and then
//! takes ids from it. The store is slow and right: start here, and replace `change` by a transaction of your database.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use unalike::storage::contract::{self, Fixture, LeaseFixture, SegmentFixture};
use unalike::storage::{
    Clocks, GrantId, Lease, LeaseAcquire, LeaseExtend, LeaseLimits, LeaseRecord, LeaseStore, NamespaceBinding, Segment,
    SegmentStore, StoreError, StoreIdentity, TagCreation, TagOptions, TagRecord, TailRelease, UsedWorker,
    choose_worker, random_64, split_tag, validate_allocate, validate_new_tag, validate_policies, validate_raise,
    validate_tag,
};
use unalike::{
    AdaptiveStep, Clock, FieldOrder, ID_MAX, Ids, Layout, LayoutFields, Mode, RefillPolicy, SequenceOptions,
    SnowflakeOptions, StepPolicy, SystemClock,
};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let fixture = Directory(tempfile::tempdir()?);
    contract::segments(&fixture).await;
    let fixture = Directory(tempfile::tempdir()?);
    contract::leases(&fixture).await;
    println!("the store keeps the contract");

    let directory = tempfile::tempdir()?;
    let store = Arc::new(FileStore::new(directory.path()));
    let ids = Ids::builder().segments(store.clone()).leases(store.clone()).build().await?;
    let orders = ids.sequence("order", SequenceOptions::default()).await?;
    let batch = orders.take(1_000).await?;
    let flakes = ids.snowflake("default", SnowflakeOptions::new(Layout::TWITTER)).await?;
    let stamped = flakes.take(100).await?;
    ids.close().await;
    let kept = store.tag("order").await?;
    println!("{} numbers, {} snowflakes, the file says {}", batch.len(), stamped.len(), kept.watermark);
    Ok(())
}

/// A store in a directory; any number of processes may share it.
struct FileStore {
    directory: PathBuf,
    creation: TagCreation,
    limits: LeaseLimits,
}

/// All that is kept.
#[derive(Default, Serialize, Deserialize)]
struct State {
    /// 32 hexadecimal digits.
    #[serde(default)]
    identity: Option<String>,
    tags: BTreeMap<String, TagRow>,
    namespaces: BTreeMap<String, NamespaceRow>,
}

#[derive(Serialize, Deserialize)]
struct TagRow {
    #[serde(with = "TagOptionsRow")]
    options: TagOptions,
    /// The greatest number that may have been handed out.
    watermark: u64,
    /// Grows with every change: a tail is taken back only if nothing happened since.
    version: u64,
    /// Where the newest grant starts: a tail that begins earlier is somebody else's, as far as this store knows.
    newest_start: u64,
}

#[derive(Serialize, Deserialize)]
struct NamespaceRow {
    #[serde(with = "LayoutRow")]
    layout: LayoutFields,
    max_horizon_ms: u64,
    workers: BTreeMap<u32, WorkerRow>,
}

#[derive(Serialize, Deserialize)]
struct WorkerRow {
    grant_id: (u64, u64),
    not_before_ms: u64,
    /// The greatest end ever recorded for the worker.
    valid_until_ms: u64,
    holder: String,
    acquired_ms: u64,
    is_final: bool,
}

impl FileStore {
    fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), creation: TagCreation::default(), limits: LeaseLimits::default() }
    }

    /// Reads the state under the lock, changes it, and answers when the change is on the disk. A refusal changes
    /// nothing.
    async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut State) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let directory = self.directory.clone();
        // The work goes on when the caller goes away: then its grant is a gap.
        let work = tokio::task::spawn_blocking(move || {
            let (_lock, mut state) = read(&directory)?;
            let answer = change(&mut state)?;
            write(&directory, &state).map_err(|error| StoreError::OutcomeUnknown {
                // After a failed flush nobody knows what the disk has: what was granted is burnt.
                what: format!("writing in {}", directory.display()),
                source: Some(error.into()),
            })?;
            Ok(answer)
        });
        work.await.unwrap_or_else(|error| {
            Err(StoreError::OutcomeUnknown { what: "a change was broken off".to_owned(), source: Some(error.into()) })
        })
    }
}

/// The state, and the lock under which it stands still.
fn read(directory: &Path) -> Result<(File, State), StoreError> {
    let unavailable = |error: std::io::Error| StoreError::Unavailable {
        what: format!("reading in {}", directory.display()),
        source: Some(error.into()),
    };
    // A file of its own that is never replaced, unlike the data.
    let lock = File::create(directory.join("ids.lock")).map_err(unavailable)?;
    lock.lock().map_err(unavailable)?;
    let state = match std::fs::read(directory.join("ids.json")) {
        Ok(json) => serde_json::from_slice(&json).map_err(|error| StoreError::Corrupt {
            what: format!("{} holds no ids.json that can be read", directory.display()),
            source: Some(error.into()),
        })?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => State::default(),
        Err(error) => return Err(unavailable(error)),
    };
    Ok((lock, state))
}

/// Replaces the state: the new file is flushed before it gets the name, and the name before anybody is answered.
fn write(directory: &Path, state: &State) -> std::io::Result<()> {
    let new = directory.join("ids.json.new");
    let mut file = File::create(&new)?;
    file.write_all(&serde_json::to_vec(state)?)?;
    file.sync_all()?;
    std::fs::rename(&new, directory.join("ids.json"))?;
    File::open(directory)?.sync_all()
}

impl State {
    fn tag(&mut self, tag: &str) -> Result<&mut TagRow, StoreError> {
        self.tags.get_mut(tag).ok_or_else(|| StoreError::tag_unknown(tag))
    }

    fn insert_tag(&mut self, tag: &str, options: TagOptions, tags_max: u64) -> Result<(), StoreError> {
        validate_new_tag(tag)?;
        // A sub-key ends with its tag: the state does not change between this look and the insertion.
        if let (name, Some(_)) = split_tag(tag)
            && let Some(owner) = self.tags.get(name)
        {
            owner.record(name).options_of_sub_keys(tag)?;
        }
        // Sub-keys are not counted.
        let is_tag = |name: &str| split_tag(name).1.is_none();
        if is_tag(tag) && self.tags.keys().filter(|name| is_tag(name)).count() as u64 >= tags_max {
            return Err(StoreError::TagLimit { tag: tag.to_owned(), tags_max });
        }
        let watermark = options.start - 1;
        self.tags.insert(tag.to_owned(), TagRow { options, watermark, version: 0, newest_start: options.start });
        Ok(())
    }

    fn tag_on_first_use(&mut self, tag: &str, creation: TagCreation) -> Result<&mut TagRow, StoreError> {
        if !self.tags.contains_key(tag) {
            let options = match split_tag(tag) {
                // A sub-key has the options of its tag.
                (name, Some(_)) => self.tag_on_first_use(name, creation)?.options,
                (_, None) if creation.on_first_use => TagOptions::default(),
                (_, None) => return Err(StoreError::tag_unknown(tag)),
            };
            self.insert_tag(tag, options, creation.tags_max)?;
        }
        self.tag(tag)
    }
}

impl TagRow {
    fn record(&self, tag: &str) -> TagRecord {
        TagRecord { tag: tag.to_owned(), options: self.options, watermark: self.watermark, version: self.version }
    }
}

#[async_trait]
impl SegmentStore for FileStore {
    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        validate_allocate(tag, count, at_least)?;
        let (tag, creation) = (tag.to_owned(), self.creation);
        self.change(move |state| {
            let row = state.tag_on_first_use(&tag, creation)?;
            if row.watermark >= ID_MAX {
                return Err(StoreError::Exhausted { tag });
            }
            let start = (row.watermark + 1).max(at_least);
            row.watermark = start + (count - 1).min(ID_MAX - start);
            row.version += 1;
            row.newest_start = start;
            Ok(Segment { start, end: row.watermark + 1, stride: 1, generation: 0, version: row.version })
        })
        .await
    }

    async fn release(&self, tag: &str, tail: TailRelease) -> Result<bool, StoreError> {
        validate_tag(tag)?;
        let tag = tag.to_owned();
        self.change(move |state| {
            let Ok(row) = state.tag(&tag) else { return Ok(false) };
            let is_newest = (row.newest_start..=row.watermark).contains(&tail.start);
            if row.version != tail.version || !is_newest {
                return Ok(false);
            }
            row.watermark = tail.start - 1;
            row.version += 1;
            row.newest_start = tail.start;
            Ok(true)
        })
        .await
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        let (tag, creation) = (tag.to_owned(), self.creation);
        self.change(move |state| Ok(state.tag_on_first_use(&tag, creation)?.record(&tag))).await
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        let tag = tag.to_owned();
        self.change(move |state| Ok(state.tag(&tag)?.record(&tag))).await
    }

    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        let identity = |state: &mut State| {
            if state.identity.is_none() {
                state.identity = Some(StoreIdentity::random()?.to_string());
            }
            let mark = state.identity.as_deref().and_then(|mark| u128::from_str_radix(mark, 16).ok());
            let damaged = || StoreError::corrupt("the identity is no number".to_owned());
            mark.map(StoreIdentity).ok_or_else(damaged)
        };
        self.change(identity).await.map(Some)
    }

    async fn create_tag(&self, tag: &str, options: &TagOptions) -> Result<TagRecord, StoreError> {
        options.validate(tag)?;
        let (tag, options, tags_max) = (tag.to_owned(), *options, self.creation.tags_max);
        self.change(move |state| {
            if state.tags.contains_key(&tag) {
                return Err(StoreError::TagExists { tag });
            }
            state.insert_tag(&tag, options, tags_max)?;
            Ok(state.tag(&tag)?.record(&tag))
        })
        .await
    }

    async fn change_tag(&self, tag: &str, step: StepPolicy, refill: RefillPolicy) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        validate_policies(tag, step, refill)?;
        let tag = tag.to_owned();
        self.change(move |state| {
            let row = state.tag(&tag)?;
            (row.options.step, row.options.refill) = (step, refill);
            Ok(row.record(&tag))
        })
        .await
    }

    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        validate_raise(tag, next)?;
        let tag = tag.to_owned();
        self.change(move |state| {
            let row = state.tag(&tag)?;
            row.watermark = row.watermark.max(next - 1);
            row.version += 1;
            // No tail that is given back later may undo the raise, whatever version it names.
            row.newest_start = row.watermark + 1;
            Ok(row.record(&tag))
        })
        .await
    }

    async fn retire_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        let tag = tag.to_owned();
        self.change(move |state| {
            let row = state.tag(&tag)?;
            let record = row.record(&tag);
            row.watermark = ID_MAX;
            row.version += 1;
            Ok(record)
        })
        .await
    }

    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        let after = after.map(str::to_owned);
        self.change(move |state| {
            let later = state.tags.iter().filter(|(tag, _)| after.as_ref().is_none_or(|after| *tag > after));
            Ok(later.take(usize::try_from(limit).unwrap_or(usize::MAX)).map(|(tag, row)| row.record(tag)).collect())
        })
        .await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.change(|_| Ok(())).await
    }
}

impl NamespaceRow {
    fn binding(&self) -> Result<NamespaceBinding, StoreError> {
        let layout = Layout::new(self.layout).map_err(|error| StoreError::Corrupt {
            what: "a namespace has a layout that cannot be".to_owned(),
            source: Some(error.into()),
        })?;
        Ok(NamespaceBinding { layout, max_horizon_ms: self.max_horizon_ms, floor_ms: 0 })
    }
}

impl WorkerRow {
    fn lease(&self, worker: u32) -> Lease {
        let grant_id = GrantId(u128::from(self.grant_id.0) << 64 | u128::from(self.grant_id.1));
        Lease { worker, grant_id, not_before_ms: self.not_before_ms, valid_until_ms: self.valid_until_ms }
    }

    fn record(&self, worker: u32) -> LeaseRecord {
        LeaseRecord {
            lease: self.lease(worker),
            holder: self.holder.clone(),
            acquired_ms: self.acquired_ms,
            is_final: self.is_final,
        }
    }
}

#[async_trait]
impl LeaseStore for FileStore {
    async fn acquire(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError> {
        acquire.validate()?;
        let (acquire, limits) = (acquire.clone(), self.limits);
        self.change(move |state| {
            // The store's clock is read under the lock, like everything that decides.
            let clocks = Clocks { holder_ms: acquire.now_ms, store_ms: SystemClock.now_ms() };
            limits.check_clocks(clocks)?;
            let fresh = NamespaceBinding::new(acquire.layout, limits)?;
            let row = state.namespaces.entry(acquire.namespace.clone()).or_insert_with(|| NamespaceRow {
                layout: fresh.layout.fields(),
                max_horizon_ms: fresh.max_horizon_ms,
                workers: BTreeMap::new(),
            });
            let binding = row.binding()?;
            binding.check_layout(&acquire.namespace, acquire.layout)?;
            // A store with an index looks up what the rule must know, see `Candidates`.
            let used = row.workers.iter().map(|(&worker, row)| {
                let used = UsedWorker { worker, end_ms: row.valid_until_ms };
                (used, row.holder.as_str())
            });
            let chosen = choose_worker(&acquire, clocks.store_ms, random_64()?, used)?;
            let interval = binding.grant(chosen.end_ms, clocks, acquire.horizon_ms)?;
            let granted = WorkerRow {
                grant_id: (random_64()?, random_64()?),
                not_before_ms: interval.start,
                valid_until_ms: interval.end,
                holder: acquire.holder.clone(),
                acquired_ms: clocks.store_ms,
                is_final: false,
            };
            let lease = granted.lease(chosen.worker);
            row.workers.insert(chosen.worker, granted);
            Ok(lease)
        })
        .await
    }

    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        extend.validate()?;
        let (extend, limits) = (extend.clone(), self.limits);
        self.change(move |state| {
            let clocks = Clocks { holder_ms: extend.now_ms, store_ms: SystemClock.now_ms() };
            limits.check_clocks(clocks)?;
            let lost = || StoreError::LeaseLost { namespace: extend.namespace.clone(), worker: extend.worker };
            let row = state.namespaces.get_mut(&extend.namespace).ok_or_else(lost)?;
            let binding = row.binding()?;
            binding.check_layout(&extend.namespace, extend.layout)?;
            let worker = row.workers.get_mut(&extend.worker).ok_or_else(lost)?;
            if worker.lease(extend.worker).grant_id != extend.grant_id || worker.is_final {
                return Err(lost());
            }
            worker.valid_until_ms = binding.extended_end_ms(worker.valid_until_ms, clocks.store_ms, extend.horizon_ms);
            Ok(worker.lease(extend.worker))
        })
        .await
    }

    async fn release(&self, namespace: &str, worker: u32, grant_id: GrantId, end_ms: u64) -> Result<bool, StoreError> {
        let namespace = namespace.to_owned();
        self.change(move |state| {
            let Some(row) = state.namespaces.get_mut(&namespace) else { return Ok(false) };
            let binding = row.binding()?;
            let Some(held) = row.workers.get_mut(&worker) else { return Ok(false) };
            let lease = held.lease(worker);
            let end_ms = binding.released_end_ms(&lease, end_ms);
            let (false, true, Some(end_ms)) = (held.is_final, lease.grant_id == grant_id, end_ms) else {
                return Ok(false);
            };
            (held.valid_until_ms, held.is_final) = (end_ms, true);
            Ok(true)
        })
        .await
    }

    async fn leases(&self, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        let namespace = namespace.to_owned();
        self.change(move |state| {
            let workers = state.namespaces.get(&namespace).map(|row| &row.workers);
            Ok(workers.into_iter().flatten().map(|(&worker, row)| row.record(worker)).collect())
        })
        .await
    }

    async fn forbid_extension(&self, namespace: &str, worker: u32) -> Result<Option<LeaseRecord>, StoreError> {
        let namespace = namespace.to_owned();
        self.change(move |state| {
            let row = state.namespaces.get_mut(&namespace).and_then(|row| row.workers.get_mut(&worker));
            Ok(row.map(|row| {
                row.is_final = true;
                row.record(worker)
            }))
        })
        .await
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        self.change(|state| Ok(state.namespaces.keys().cloned().collect())).await
    }
}

// How the library's types are written to the file: serde checks that these are their fields.

#[derive(Serialize, Deserialize)]
#[serde(remote = "TagOptions")]
struct TagOptionsRow {
    start: u64,
    #[serde(with = "StepRow")]
    step: StepPolicy,
    #[serde(with = "RefillRow")]
    refill: RefillPolicy,
    #[serde(with = "ModeRow")]
    mode: Mode,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "StepPolicy")]
enum StepRow {
    Adaptive(#[serde(with = "AdaptiveRow")] AdaptiveStep),
    Fixed { step: u64 },
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "AdaptiveStep")]
struct AdaptiveRow {
    initial: u64,
    min: u64,
    max: u64,
    grow_below_ms: u64,
    shrink_above_ms: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "RefillPolicy")]
enum RefillRow {
    ShareConsumed { percent: u8 },
    Remaining { count: u64 },
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Mode")]
enum ModeRow {
    Buffered,
    Ordered,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "LayoutFields")]
struct LayoutRow {
    timestamp_bits: u8,
    datacenter_bits: u8,
    worker_bits: u8,
    sequence_bits: u8,
    #[serde(with = "OrderRow")]
    order: FieldOrder,
    epoch_ms: u64,
    tick_ms: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "FieldOrder")]
enum OrderRow {
    WorkerFirst,
    SequenceFirst,
}

/// What the contract suite needs: new clients of one store. There is no server that could be restarted.
struct Directory(tempfile::TempDir);

#[async_trait]
impl Fixture for Directory {
    async fn restart(&self) {}
}

#[async_trait]
impl SegmentFixture for Directory {
    async fn segment_client(&self, creation: TagCreation) -> Arc<dyn SegmentStore> {
        Arc::new(FileStore { creation, ..FileStore::new(self.0.path()) })
    }

    /// It keeps no record of a place among several stores.
    fn can_be_a_stripe(&self) -> bool {
        false
    }
}

#[async_trait]
impl LeaseFixture for Directory {
    async fn lease_client(&self, limits: LeaseLimits) -> Arc<dyn LeaseStore> {
        Arc::new(FileStore { limits, ..FileStore::new(self.0.path()) })
    }
}
