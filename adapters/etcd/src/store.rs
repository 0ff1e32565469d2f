//! What segments and leases share: where keys are, transactions under the store's record, and how a store is begun and
//! adopted.

use std::fmt;
use std::sync::Arc;

use futures_util::future::try_join_all;
use unalike_storage::{ID_MAX, LeaseLimits, NotBegun, StoreError};

use crate::EtcdOptions;
use crate::cluster::{Access, Cluster, Doing, Expected, RANGE, TXN, applied};
use crate::record::{History, Lift, Record, lead};
use crate::wire::{Compare, PutRequest, RangeRequest, RangeResponse, Response, TxnRequest, TxnResponse};

/// How much further than a horizon Redis asks for time for its leases, at most.
const KEPT_LEAD_MS: u64 = 60_000;

/// So many times what is known of a store is looked at again where it changes meanwhile.
const LOOKS_MAX: u32 = 16;

/// Where things are kept below a prefix.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    /// Without a slash at either end; not empty.
    pub(crate) prefix: String,
}

impl Paths {
    const STORE: &str = "store";
    const TAG_COUNT: &str = "tag-count";
    const TAG: &str = "tag";
    const ENDED: &str = "ended";
    const LEASES: &str = "leases";
    const WORKER: &str = "worker";

    /// What follows the prefix in keys.
    pub(crate) const OWN: [&str; 6] =
        [Self::STORE, Self::TAG_COUNT, Self::TAG, Self::ENDED, Self::LEASES, Self::WORKER];

    fn below(&self, own: &str) -> String {
        format!("{}/{own}", self.prefix)
    }

    /// The store's record.
    pub(crate) fn store(&self) -> String {
        self.below(Self::STORE)
    }

    /// How many tags there are, sub-keys not counted.
    pub(crate) fn tag_count(&self) -> String {
        self.below(Self::TAG_COUNT)
    }

    /// What all rows of tags begin with; their names follow.
    pub(crate) fn tags(&self) -> String {
        format!("{}/", self.below(Self::TAG))
    }

    pub(crate) fn tag(&self, tag: &str) -> String {
        format!("{}{tag}", self.tags())
    }

    /// It is there if the tag has ended, and no sub-key of it is created any more.
    pub(crate) fn ended(&self, tag: &str) -> String {
        format!("{}/{tag}", self.below(Self::ENDED))
    }

    pub(crate) fn namespaces(&self) -> String {
        format!("{}/", self.below(Self::LEASES))
    }

    pub(crate) fn namespace(&self, namespace: &str) -> String {
        format!("{}{namespace}", self.namespaces())
    }

    /// What all workers of a namespace begin with. No name has a control character, so no namespace's workers are
    /// among another one's.
    pub(crate) fn workers(&self, namespace: &str) -> String {
        format!("{}/{namespace}\u{1f}", self.below(Self::WORKER))
    }

    /// In the order of the numbers.
    pub(crate) fn worker(&self, namespace: &str, worker: u32) -> String {
        format!("{}{worker:010}", self.workers(namespace))
    }
}

/// A store in a cluster; clones share its connection.
#[derive(Clone)]
pub(crate) struct Store {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) paths: Paths,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("at", &self.cluster.at()).finish_non_exhaustive()
    }
}

/// What came of a transaction.
#[derive(Debug)]
pub(crate) enum Written {
    /// Its conditions held; the revision of what was written.
    Done(i64),
    /// One did not, so nothing was written; what was asked for in this case, and the store as it is.
    Not(Vec<RangeResponse>),
}

impl Store {
    /// Connects, and begins a store where there is none and that is allowed.
    pub(crate) async fn open(options: &EtcdOptions) -> Result<Self, StoreError> {
        let store = Self { cluster: Arc::new(Cluster::new(options)?), paths: options.paths() };
        let (mut found, mut history) = store.look().await?;
        if found.kvs.is_empty() {
            store.begin_record(options, history).await?;
            (found, history) = store.look().await?;
        }
        let (record, mod_revision) = store.cluster.read_record(&found)?.ok_or_else(|| {
            StoreError::corrupt(format!(
                "{}: there are keys below the prefix, and the one with the store's record is missing ({:?}). If somebody removed \
                 it, put it back, and run `unalike store adopt --lift COUNT`. Choose another prefix only if these keys are not \
                 yours: tags begin at 1 there",
                store.cluster.at(),
                store.paths.store()
            ))
        })?;
        match (record.cluster, options.assume_identity) {
            (None, false) => {
                return Err(StoreError::refused(format!(
                    "the cluster at {}: the store was begun with identity=assumed, so no cluster is recorded: adopt this one with \
                     `unalike store adopt --lift COUNT`, or go on with identity=assumed",
                    store.cluster.at()
                )));
            }
            // The next connection is looked at for what is recorded.
            _ => store.cluster.expect(record.clone(), mod_revision),
        }
        store.read(store.cluster.begin("looking at the store"), Vec::new()).await?;
        let recorded = record.cluster.filter(|_| !options.assume_identity);
        let lacks_creation = |cluster: Option<History>| cluster.is_some_and(|cluster| cluster.created.is_none());
        // Restarts and elections add to the lead. The more of it is recorded, the sooner a restored snapshot is
        // noticed.
        let is_behind = recorded.is_some_and(|recorded| recorded.lead < history.lead);
        if is_behind || lacks_creation(recorded) || record.is_of_earlier_version() {
            let known = |recorded: History| {
                let lead = recorded.lead.max(history.lead);
                History { lead, created: history.created, ..recorded }
            };
            let record = Record { cluster: recorded.map(known).or(record.cluster), ..record };
            let raised =
                store.replace_record(store.cluster.begin("recording the history"), mod_revision, &record).await;
            // Another program may have done it; and who only reads need not.
            if let Err(error) = raised {
                let (_, expected) = store.read(store.cluster.begin("looking at the store"), Vec::new()).await?;
                // Until it is there, a copy cannot be told.
                if lacks_creation(recorded) && lacks_creation(expected.record.cluster) {
                    return Err(error);
                }
                tracing::debug!(%error, "the history of the cluster was not recorded again");
            }
        }
        Ok(store)
    }

    /// The record's key, if there is one, and the cluster's history: at least as much as it has by now.
    async fn look(&self) -> Result<(RangeResponse, History), StoreError> {
        let doing = self.cluster.begin("looking at the cluster");
        let status = self.cluster.status(doing).await?;
        let range = RangeRequest::key(&self.paths.store());
        let found: RangeResponse = self.cluster.ask(doing, Access::Reads, RANGE, range).await?;
        // The revision was read after the log's index, and confirmed by a majority: so the lead is not taken for more
        // than it is.
        let header = found.header.unwrap_or_default();
        let history = History {
            id: header.cluster_id.into(),
            lead: lead(applied(&status), header.revision),
            created: found.kvs.first().map(|kv| kv.create_revision),
        };
        Ok((found, history))
    }

    /// Writes the record, unless there are keys of a store already.
    async fn begin_record(&self, options: &EtcdOptions, history: History) -> Result<(), StoreError> {
        if !options.create {
            let what = format!(
                "{}: nothing was ever handed out here, and no store is to be begun here (create=false, or a command that begins \
                 none)",
                self.cluster.at()
            );
            return Err(StoreError::refused(what).with_source(NotBegun));
        }
        let key = self.paths.store();
        // Other prefixes may begin with this one.
        let below = Paths::OWN.map(|own| format!("{}/", self.paths.below(own)));
        let mut compare = vec![Compare::unchanged(&key, 0), Compare::unchanged(&self.paths.tag_count(), 0)];
        compare.extend(below.iter().map(|prefix| Compare::all_unchanged(prefix, 0)));
        let record = Record::new((!options.assume_identity).then_some(history))?;
        let txn = TxnRequest {
            // Nothing may be left of another one.
            compare,
            success: vec![put(&key, record.write()).into()],
            failure: Vec::new(),
        };
        let doing = self.cluster.begin("beginning the store");
        let answer: TxnResponse = self.cluster.ask(doing, Access::Writes, TXN, txn).await?;
        if answer.succeeded {
            tracing::warn!(store = self.cluster.at(), cluster = format!("{:x}", history.id), "made a new store");
        }
        Ok(())
    }

    /// Continues with what is there: see [`EtcdStore::adopt`](crate::EtcdStore::adopt).
    pub(crate) async fn adopt(options: &EtcdOptions, lift: u64) -> Result<(Self, u64), StoreError> {
        if lift == 0 || lift > ID_MAX {
            return Err(StoreError::refused(format!(
                "tags were to be lifted by {lift} numbers, it must be 1 to 2^63 - 1"
            )));
        }
        let LeaseLimits { max_horizon_ms, max_skew_ms } = options.limits;
        let store = Self { cluster: Arc::new(Cluster::new(options)?), paths: options.paths() };
        let (found, history) = store.look().await?;
        let Some((before, mod_revision)) = store.cluster.read_copied_record(&found)? else {
            return Err(StoreError::refused(format!(
                "{}: there is no record of a store here ({:?}), so there is none to go on with: check the prefix",
                store.cluster.at(),
                store.paths.store()
            )));
        };
        let doing = store.cluster.begin("adopting the cluster");
        // It may be a second further.
        let now_ms = store.cluster.clock_ms(doing, None).await?.saturating_add(1_000);
        let horizon_ms = before.max_horizon_ms.max(max_horizon_ms);
        let floor_ms = now_ms.saturating_add(horizon_ms).saturating_add(max_skew_ms);
        // As far ahead as time is ever granted to leases.
        let kept_ms = horizon_ms.saturating_add(KEPT_LEAD_MS);
        let lift = Lift { numbers: lift, kept_ms, kept_until_ms: now_ms.saturating_add(kept_ms) };
        let record = before.adopted((!options.assume_identity).then_some(history), lift, floor_ms)?;
        let txn = TxnRequest {
            compare: vec![Compare::unchanged(&store.paths.store(), mod_revision)],
            success: vec![put(&store.paths.store(), record.write()).into()],
            failure: Vec::new(),
        };
        let answer: TxnResponse = store.cluster.ask(doing, Access::Writes, TXN, txn).await?;
        if !answer.succeeded {
            let why = "another program changed the store just now: look, and repeat it if need be";
            return Err(StoreError::refused(format!("{}: {why}", store.cluster.at())));
        }
        tracing::info!(store = store.cluster.at(), lift = lift.numbers, floor_ms, "adopted the cluster");
        store.cluster.expect(record.written(), answer.header.unwrap_or_default().revision);
        Ok((store, floor_ms))
    }

    /// The store as it is known.
    ///
    /// # Errors
    /// [`StoreError::Refused`] before it is.
    pub(crate) fn expected(&self) -> Result<Arc<Expected>, StoreError> {
        self.cluster
            .expected()
            .ok_or_else(|| StoreError::refused(format!("{}: no store is known yet", self.cluster.at())))
    }

    /// Reads all of these, and then what the store is: a row has seen no adoption that the store has not. Whoever
    /// decides on them writes on the condition that all of them are still the same.
    ///
    /// Not in one transaction: up to etcd 3.5.4 a member ends in a panic when one that only reads is given up, as it is
    /// when the caller's future is dropped (etcd-io/etcd#14110).
    pub(crate) async fn read(
        &self,
        doing: Doing,
        ranges: Vec<RangeRequest>,
    ) -> Result<(Vec<RangeResponse>, Arc<Expected>), StoreError> {
        let ask = |range| self.cluster.ask::<_, RangeResponse>(doing, Access::Reads, RANGE, range);
        let found = try_join_all(ranges.into_iter().map(ask)).await?;
        let expected = self.cluster.note(&ask(RangeRequest::key(&self.paths.store())).await?)?;
        Ok((found, expected))
    }

    /// Writes, if all of these conditions hold and the store is as it was expected to be; otherwise reads these.
    ///
    /// # Errors
    /// [`StoreError::OutcomeUnknown`] when the answer was lost.
    pub(crate) async fn write(
        &self,
        doing: Doing,
        expected: &Expected,
        mut compare: Vec<Compare>,
        puts: Vec<PutRequest>,
        otherwise: Vec<RangeRequest>,
    ) -> Result<Written, StoreError> {
        compare.push(Compare::unchanged(&self.paths.store(), expected.mod_revision));
        let txn = TxnRequest {
            compare,
            success: puts.into_iter().map(Into::into).collect(),
            failure: self.with_record(otherwise),
        };
        let answer: TxnResponse = self.cluster.ask(doing, Access::Writes, TXN, txn).await?;
        if answer.succeeded {
            return Ok(Written::Done(answer.header.unwrap_or_default().revision));
        }
        self.parts(answer).map(|(ranges, _)| Written::Not(ranges))
    }

    /// Puts another record in the place of that of this revision.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when another program was faster.
    pub(crate) async fn replace_record(
        &self,
        doing: Doing,
        mod_revision: i64,
        record: &Record,
    ) -> Result<(), StoreError> {
        let expected = Expected { record: record.clone(), mod_revision };
        let puts = vec![put(&self.paths.store(), record.write())];
        match self.write(doing, &expected, Vec::new(), puts, Vec::new()).await? {
            Written::Done(_) => self.read(doing, Vec::new()).await.map(drop),
            Written::Not(_) => Err(too_many_races(self.cluster.at(), doing)),
        }
    }

    /// Changes the record to what `change` makes of it, if anything, whoever else changes it.
    pub(crate) async fn change_record(
        &self,
        what: &'static str,
        change: impl Fn(&Record) -> Option<Record>,
    ) -> Result<(), StoreError> {
        let doing = self.cluster.begin(what);
        for _ in 0..LOOKS_MAX {
            let expected = self.expected()?;
            let Some(record) = change(&expected.record) else { return Ok(()) };
            let puts = vec![put(&self.paths.store(), record.write())];
            if let Written::Done(_) = self.write(doing, &expected, Vec::new(), puts, Vec::new()).await? {
                return self.read(doing, Vec::new()).await.map(drop);
            }
        }
        Err(too_many_races(self.cluster.at(), doing))
    }

    fn with_record(&self, mut ranges: Vec<RangeRequest>) -> Vec<crate::wire::RequestOp> {
        ranges.push(RangeRequest::key(&self.paths.store()));
        ranges.into_iter().map(Into::into).collect()
    }

    fn parts(&self, answer: TxnResponse) -> Result<(Vec<RangeResponse>, Arc<Expected>), StoreError> {
        let mut ranges = Vec::with_capacity(answer.responses.len());
        for operation in answer.responses {
            match operation.response {
                Some(Response::Range(range)) => ranges.push(RangeResponse { header: answer.header, ..range }),
                _ => return Err(self.odd_answer()),
            }
        }
        let record = ranges.pop().ok_or_else(|| self.odd_answer())?;
        let expected = self.cluster.note(&record)?;
        Ok((ranges, expected))
    }

    pub(crate) fn odd_answer(&self) -> StoreError {
        StoreError::corrupt(format!("{}: an answer is not what was asked for: is it etcd?", self.cluster.at()))
    }
}

/// A key's new value.
pub(crate) fn put(key: &str, value: Vec<u8>) -> PutRequest {
    PutRequest { key: key.into(), value }
}

/// Others changed the same keys all the time that a request may take. Nothing was done.
pub(crate) fn too_many_races(at: &str, doing: Doing) -> StoreError {
    StoreError::unavailable(format!("{}, at {at}: other programs were faster all the time: try again", doing.what))
}

/// The next of the answers to a read.
pub(crate) fn next(ranges: &mut std::vec::IntoIter<RangeResponse>) -> RangeResponse {
    ranges.next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_namespace_s_workers_are_among_another_one_s() {
        let paths = Paths { prefix: "p".to_owned() };
        assert!(!paths.worker("a", 1).starts_with(&paths.workers("a/b")));
        assert!(!paths.worker("a/b", 1).starts_with(&paths.workers("a")));
        assert!(paths.worker("a", 10) > paths.worker("a", 9));
    }
}
