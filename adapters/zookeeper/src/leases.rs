//! The lease port on ZooKeeper: one node per worker, changed only under the version that it was read with.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use async_trait::async_trait;
use unalike_storage::{
    Clocks, Expiry, GrantId, Layout, Lease, LeaseAcquire, LeaseExtend, LeaseRecord, LeaseStore, NamespaceBinding,
    StoreError, StoreIdentity, UsedWorker, choose_worker_after_races, random_64, random_128,
};
use zookeeper_client::{Client, CreateMode, Error, Stat};

use crate::connection::Deadline;
use crate::error::{damaged, read_error, write_error};
use crate::leaf::{Claims, claimant};
use crate::nodes::{Namespace, StoreName, decode, read_worker, read_worker_name, write_worker};
use crate::{Leaf, ZookeeperLeases};

/// How often a request that lost a race against another client looks again. Each race that is lost is one that another
/// request has won, and a request that lost one takes another way at random, so this many in a row are not chance.
pub(crate) const RACES_MAX: u32 = 64;

/// How many nodes are asked for at once.
pub(crate) const BATCH: usize = 1_024;

/// What a request sees before it decides: the store's clock, the namespace and what else it asked for, as they were
/// when the clock was read or later.
pub(crate) struct Look<T> {
    pub(crate) store_ms: u64,
    /// That of the [store's name](StoreName::floor_ms).
    pub(crate) floor_ms: u64,
    pub(crate) namespace: Option<Found>,
    pub(crate) also: Result<T, Error>,
}

/// A namespace as it was found.
pub(crate) struct Found {
    /// With a floor no lower than that of the store's name.
    pub(crate) bound: Namespace,
    /// Its node's version.
    pub(crate) version: i32,
    /// The transaction that made its node.
    pub(crate) made_by: i64,
}

/// The names of Leaf's nodes, where a program names Leaf.
type LeafNodes = Option<Result<(Vec<String>, Stat), Error>>;

/// Every worker that was ever granted: its newest lease, and its node's version.
type Workers = BTreeMap<u32, (LeaseRecord, i32)>;

/// What a request decided on lost a race: it has to look again.
pub(crate) struct LostRace;

impl ZookeeperLeases {
    pub(crate) fn at(&self) -> String {
        self.options.address()
    }

    pub(crate) fn read_error(&self, doing: &str, error: Error) -> StoreError {
        read_error(&self.at(), doing, error)
    }

    /// Writes the clock and reads the namespace, the store's name and whatever `also` asks for, in one round trip:
    /// ZooKeeper answers in the order in which it was asked.
    ///
    /// # Errors
    /// [`StoreError::Refused`] where the store has another name than before, and any error of the connection.
    pub(crate) async fn look<T, R: Future<Output = Result<T, Error>>>(
        &self,
        client: &Client,
        namespace: &str,
        also: impl FnOnce() -> R,
    ) -> Result<Look<T>, StoreError> {
        let asked = Instant::now();
        let deadline = self.connection.deadline();
        let path = self.paths.namespace(namespace);
        // What is sent first is seen by what comes later.
        let clock = client.set_data(&self.paths.clock(), b"", None);
        let node = client.get_data(&path);
        let name = client.get_data(&self.paths.identity());
        let also = also();
        let store_ms = self.clock_ms(client, deadline, deadline.answer(clock).await).await?;
        self.steps.read(asked, store_ms);
        let mut namespace = match deadline.answer(node).await {
            Ok((data, stat)) => {
                let bound = Namespace::read(&path, &data, stat.czxid)?;
                Some(Found { bound, version: stat.version, made_by: stat.czxid })
            }
            Err(Error::NoNode) => None,
            Err(error) => return Err(self.read_error("reading a namespace", error)),
        };
        let StoreName { floor_ms, .. } = self.check_name(client, deadline, deadline.answer(name).await).await?;
        if let Some(Found { bound, .. }) = &mut namespace {
            bound.binding.floor_ms = bound.binding.floor_ms.max(floor_ms);
        }
        Ok(Look { store_ms, floor_ms, namespace, also: deadline.answer(also).await })
    }

    /// The answer to a write that was just sent, where the store has the name that is known: whoever named it anew
    /// before the write was done is noticed, since ZooKeeper answers the question for the name after the write.
    ///
    /// # Errors
    /// Those of the name. What was written stays so, and is used by nobody.
    async fn answer_as_named<T>(
        &self,
        client: &Client,
        deadline: Deadline<'_>,
        write: impl Future<Output = Result<T, Error>>,
    ) -> Result<Result<T, Error>, StoreError> {
        let name = client.get_data(&self.paths.identity());
        let written = deadline.answer(write).await;
        if written.is_ok() {
            self.check_name(client, deadline, deadline.answer(name).await).await?;
        }
        Ok(written)
    }

    /// The store's name, by this answer to the question for it. It is made when somebody first asks, also beside
    /// namespaces: versions before this one leased workers in stores without a name.
    ///
    /// # Errors
    /// [`StoreError::Refused`] where it is another one than before: another ensemble, or one that was emptied or put
    /// back from a backup, knows nothing of the leases that the one before has granted.
    async fn check_name(
        &self,
        client: &Client,
        deadline: Deadline<'_>,
        mut answer: Result<(Vec<u8>, Stat), Error>,
    ) -> Result<StoreName, StoreError> {
        let path = self.paths.identity();
        if matches!(answer, Err(Error::NoNode)) {
            if let Some(known) = self.name.get() {
                return Err(self.another_store(*known, "a store without a name"));
            }
            self.make_nodes(client, deadline).await?;
            let options = self.connection.persistent(CreateMode::Persistent);
            let first = StoreName { name: StoreIdentity::random()?, floor_ms: 0 }.write();
            match deadline.answer(client.create(&path, &first, &options)).await {
                // Of two who come at once, one name stays.
                Ok(_) | Err(Error::NodeExists) => {}
                Err(error) => return Err(self.read_error("naming the store", error)),
            }
            answer = deadline.answer(client.get_data(&path)).await;
        }
        let (data, _) = answer.map_err(|error| self.read_error("reading the name of the store", error))?;
        let found = StoreName::read(&path, &data)?;
        let known = *self.name.get_or_init(|| found.name);
        if found.name == known { Ok(found) } else { Err(self.another_store(known, &found.name.to_string())) }
    }

    fn another_store(&self, known: StoreIdentity, found: &str) -> StoreError {
        StoreError::refused(format!(
            "the store at {} is another one than before ({found}, not {known}): it may lease a worker that the one before has \
             leased to somebody else. If it was put back from a backup, stop all programs, run `unalike store restored --lift 1` \
             on it, and start them again; where that was run, restart this program. If it is another ensemble, or was emptied, \
             bring the one of before back, or stop all programs and start them again once its leases have ended (after the \
             longest horizon)",
            self.at()
        ))
    }

    /// The store's clock, by this answer to the write that reads it.
    pub(crate) async fn clock_ms(
        &self,
        client: &Client,
        deadline: Deadline<'_>,
        written: Result<Stat, Error>,
    ) -> Result<u64, StoreError> {
        let written = match written {
            Err(Error::NoNode) => {
                self.make_nodes(client, deadline).await?;
                deadline.answer(client.set_data(&self.paths.clock(), b"", None)).await
            }
            written => written,
        };
        modified_ms(&written.map_err(|error| self.read_error("reading the clock", error))?)
    }

    /// Makes the nodes that all namespaces share.
    async fn make_nodes(&self, client: &Client, deadline: Deadline<'_>) -> Result<(), StoreError> {
        let (clock, namespaces) = (self.paths.clock(), self.paths.namespaces());
        let beginnings = namespaces.match_indices('/').skip(1).filter_map(|(slash, _)| namespaces.get(..slash));
        for path in beginnings.chain([namespaces.as_str(), clock.as_str()]) {
            let options = self.connection.persistent(CreateMode::Persistent);
            match deadline.answer(client.create(path, b"", &options)).await {
                Ok(_) | Err(Error::NodeExists) => {}
                Err(error) => return Err(self.read_error("making the store's nodes", error)),
            }
        }
        Ok(())
    }

    async fn workers(&self, client: &Client, namespace: &str, names: &[String]) -> Result<Workers, StoreError> {
        let mut workers = Workers::new();
        for names in names.chunks(BATCH) {
            let deadline = self.connection.deadline();
            let mut requests = Vec::new();
            for name in names {
                let path = format!("{}/{name}", self.paths.namespace(namespace));
                let worker = read_worker_name(name).ok_or_else(|| damaged(&path, "its name is not a worker's"))?;
                // It is sent here, and all others with it, before the first answer is waited for.
                requests.push((worker, client.get_data(&path), path));
            }
            for (worker, request, path) in requests {
                let answer = deadline.answer(request).await;
                let (data, stat) = answer.map_err(|error| self.read_error("reading the workers", error))?;
                workers.insert(worker, (read_worker(&path, worker, &data)?, stat.version));
            }
        }
        Ok(workers)
    }

    /// One try at an acquire.
    async fn try_acquire(&self, acquire: &LeaseAcquire, race: u32) -> Result<Result<Lease, LostRace>, StoreError> {
        let client = self.connection.client().await?;
        let namespace = acquire.namespace.as_str();
        let path = self.paths.namespace(namespace);
        let look = self.look(&client, namespace, || {
            let (children, nodes) = (client.get_children(&path), self.leaf_nodes(&client));
            async move { Ok((children.await, nodes.await)) }
        });
        let Look { store_ms, floor_ms, namespace: found, also } = look.await?;
        let clocks = Clocks { holder_ms: acquire.now_ms, store_ms };
        self.options.limits.check_clocks(clocks)?;
        let (children, nodes) = also.map_err(|error| self.read_error("reading the workers' names", error))?;
        let Some(found) = found else {
            return self.bind(&client, acquire, clocks, floor_ms, self.claims(None, nodes)?.as_ref()).await;
        };
        let bound = &found.bound;
        // First: of two reasons it is the one that says what to do.
        self.check_leaf(namespace, bound)?;
        bound.binding.check_layout(namespace, acquire.layout)?;
        if let (Some(Leaf::Stopped(_)), Some(tree)) = (&self.options.leaf, &bound.leaf)
            && tree.others().is_none()
        {
            let tree = tree.clone();
            self.stop_leaf(&client, namespace, found, tree, store_ms).await?;
            return Ok(Err(LostRace));
        }
        bound.binding.check_quarantine(namespace, store_ms)?;
        let (names, stat) = children.map_err(|error| self.read_error("reading the workers' names", error))?;
        check_removals(&path, &stat)?;
        let workers = self.workers(&client, namespace, &names).await?;
        if let Some(worker) = workers.keys().find(|&&worker| worker > acquire.layout.worker_max()) {
            return Err(damaged(&self.paths.worker(namespace, *worker), "the layout has no such worker"));
        }
        let claimant = claimant(namespace, found.made_by);
        let (claims, taken) = self.taken(bound, &claimant, nodes)?;
        let expiry = self.steps.expiry(store_ms, bound.binding.max_horizon_ms);
        let chosen = choose(acquire, &expiry, &workers, &taken, race);
        let chosen = match (chosen, &claims) {
            (Err(StoreError::WorkersExhausted { free_at_ms, .. }), Some(claims)) => {
                match self.claim(&client, acquire, &claimant, claims, store_ms, free_at_ms).await? {
                    Ok(worker) => UsedWorker { worker, end_ms: 0 },
                    Err(lost) => return Ok(Err(lost)),
                }
            }
            (chosen, _) => chosen?,
        };
        let version = workers.get(&chosen.worker).map(|(_, version)| *version);
        self.grant(&client, acquire, &bound.binding, clocks, chosen, version).await
    }

    /// Asks for the names of Leaf's nodes at once, where this program names Leaf.
    fn leaf_nodes(&self, client: &Client) -> impl Future<Output = LeafNodes> + Send + use<> {
        let tree = self.options.leaf.as_ref().map(|leaf| self.paths.leaf_tree(leaf.name()));
        let nodes = tree.map(|tree| client.get_children(&tree));
        async move { if let Some(nodes) = nodes { Some(nodes.await) } else { None } }
    }

    /// What there is of Leaf's tree, by this answer.
    pub(crate) fn claims(&self, claimant: Option<&str>, nodes: LeafNodes) -> Result<Option<Claims>, StoreError> {
        match nodes {
            Some(Ok((names, stat))) => Ok(Some(Claims::read(claimant, &names, &stat))),
            None | Some(Err(Error::NoNode)) => Ok(None),
            Some(Err(error)) => Err(self.read_error("reading Leaf's nodes", error)),
        }
    }

    /// The workers that are not the namespace's, by this answer: all that it has not claimed, as long as Leaf may run,
    /// with the claims; and those that others have claimed, when Leaf has stopped.
    fn taken(
        &self,
        bound: &Namespace,
        claimant: &str,
        nodes: LeafNodes,
    ) -> Result<(Option<Claims>, BTreeSet<u32>), StoreError> {
        let Some(tree) = &bound.leaf else { return Ok((None, BTreeSet::new())) };
        if let Some(others) = tree.others() {
            return Ok((None, others.clone()));
        }
        let claims = self.check_claims(tree, self.claims(Some(claimant), nodes)?)?;
        let workers = 0..=bound.binding.layout.worker_max();
        let taken = workers.filter(|worker| !claims.ours.contains(worker)).collect();
        Ok((Some(claims), taken))
    }

    /// Binds a namespace that is used for the first time. It is not an error if another client was quicker: in either
    /// case what it is bound to is read next.
    async fn bind(
        &self,
        client: &Client,
        acquire: &LeaseAcquire,
        clocks: Clocks,
        floor_ms: u64,
        claims: Option<&Claims>,
    ) -> Result<Result<Lease, LostRace>, StoreError> {
        let binding = NamespaceBinding::new(acquire.layout, self.options.limits)?;
        // Where the store was restored, the namespace may be one that it has forgotten.
        let binding = NamespaceBinding { floor_ms, ..binding };
        // A request that is refused binds nothing.
        binding.check_quarantine(&acquire.namespace, clocks.store_ms)?;
        binding.grant(0, clocks, acquire.horizon_ms)?;
        let leaf = self.begin_with_leaf(client, &acquire.namespace, acquire.layout, clocks.store_ms, claims).await?;
        let data = Namespace { binding, leaf }.write();
        let options = self.connection.persistent(CreateMode::Persistent);
        let path = self.paths.namespace(&acquire.namespace);
        let deadline = self.connection.deadline();
        match deadline.answer(client.create(&path, &data, &options)).await {
            Ok(_) | Err(Error::NodeExists) => Ok(Err(LostRace)),
            Err(error) => Err(write_error(&self.at(), "binding a namespace", error)),
        }
    }

    /// Writes a grant, unless somebody else was granted the worker since it was looked at.
    async fn grant(
        &self,
        client: &Client,
        acquire: &LeaseAcquire,
        binding: &NamespaceBinding,
        clocks: Clocks,
        chosen: UsedWorker,
        version: Option<i32>,
    ) -> Result<Result<Lease, LostRace>, StoreError> {
        let interval = binding.grant(chosen.end_ms, clocks, acquire.horizon_ms)?;
        let lease = Lease {
            worker: chosen.worker,
            grant_id: GrantId(random_128()?),
            not_before_ms: interval.start,
            valid_until_ms: interval.end,
        };
        let acquired_ms = clocks.store_ms;
        let record = LeaseRecord { lease, holder: acquire.holder.clone(), acquired_ms, is_final: false };
        let path = self.paths.worker(&acquire.namespace, lease.worker);
        let data = write_worker(&record);
        let deadline = self.connection.deadline();
        let written = if let Some(version) = version {
            self.answer_as_named(client, deadline, client.set_data(&path, &data, Some(version))).await?
        } else {
            let options = self.connection.persistent(CreateMode::Persistent);
            let made = client.create(&path, &data, &options);
            self.answer_as_named(client, deadline, made).await?.map(|(stat, _)| stat)
        };
        let stat = match written {
            Ok(stat) => stat,
            Err(Error::BadVersion | Error::NodeExists) => return Ok(Err(LostRace)),
            Err(error) => return Err(write_error(&self.at(), "granting a lease", error)),
        };
        // What is refused here stays recorded, and is used by nobody.
        binding.check_horizon(&lease, modified_ms(&stat)?)?;
        Ok(Ok(lease))
    }

    async fn try_extend(&self, extend: &LeaseExtend) -> Result<Result<Lease, LostRace>, StoreError> {
        let client = self.connection.client().await?;
        let (namespace, path) = (extend.namespace.as_str(), self.paths.worker(&extend.namespace, extend.worker));
        let lost = || StoreError::LeaseLost { namespace: namespace.to_owned(), worker: extend.worker };
        let look = self.look(&client, namespace, || {
            let (lease, nodes) = (client.get_data(&path), self.leaf_nodes(&client));
            async move { Ok((lease.await, nodes.await)) }
        });
        let look = look.await?;
        self.options.limits.check_clocks(Clocks { holder_ms: extend.now_ms, store_ms: look.store_ms })?;
        let Found { bound, made_by, .. } = look.namespace.ok_or_else(lost)?;
        let binding = bound.binding;
        binding.check_layout(namespace, extend.layout)?;
        let (lease, nodes) = look.also.map_err(|error| self.read_error("reading a lease", error))?;
        let (data, stat) = match lease {
            Err(Error::NoNode) => return Err(lost()),
            lease => lease.map_err(|error| self.read_error("reading a lease", error))?,
        };
        self.check_leaf(namespace, &bound)?;
        // An earlier version may have granted a worker that others have, too.
        if self.taken(&bound, &claimant(namespace, made_by), nodes)?.1.contains(&extend.worker) {
            return Err(lost());
        }
        let mut record = read_worker(&path, extend.worker, &data)?;
        // One that began before the store was restored may be another's by now, whatever its holder kept of it.
        let is_older = record.lease.not_before_ms < look.floor_ms;
        if record.lease.grant_id != extend.grant_id || record.is_final || is_older {
            return Err(lost());
        }
        let known_ms = record.lease.valid_until_ms;
        record.lease.valid_until_ms = binding.extended_end_ms(known_ms, look.store_ms, extend.horizon_ms);
        if record.lease.valid_until_ms == known_ms {
            binding.check_horizon(&record.lease, look.store_ms)?;
            return Ok(Ok(record.lease));
        }
        let deadline = self.connection.deadline();
        let written = client.set_data(&path, &write_worker(&record), Some(stat.version));
        match self.answer_as_named(&client, deadline, written).await? {
            Ok(stat) => {
                binding.check_horizon(&record.lease, modified_ms(&stat)?)?;
                Ok(Ok(record.lease))
            }
            Err(Error::BadVersion) => Ok(Err(LostRace)),
            Err(error) => Err(write_error(&self.at(), "extending a lease", error)),
        }
    }

    /// Changes a worker's newest lease to what `decide` makes of it; none where that is nothing.
    async fn change(
        &self,
        namespace: &str,
        worker: u32,
        doing: &str,
        decide: impl Fn(&NamespaceBinding, LeaseRecord) -> Option<LeaseRecord> + Send,
    ) -> Result<Option<LeaseRecord>, StoreError> {
        let path = self.paths.worker(namespace, worker);
        for _ in 0..RACES_MAX {
            let client = self.connection.client().await?;
            let look = self.look(&client, namespace, || client.get_data(&path)).await?;
            let (data, stat) = match look.also {
                Err(Error::NoNode) => return Ok(None),
                also => also.map_err(|error| self.read_error(doing, error))?,
            };
            let Some(found) = look.namespace else { return Ok(None) };
            let record = read_worker(&path, worker, &data)?;
            let Some(record) = decide(&found.bound.binding, record) else { return Ok(None) };
            let written = client.set_data(&path, &write_worker(&record), Some(stat.version));
            match self.connection.deadline().answer(written).await {
                Ok(_) => return Ok(Some(record)),
                Err(Error::BadVersion) => {}
                Err(error) => return Err(write_error(&self.at(), doing, error)),
            }
        }
        Err(too_many_races(doing))
    }

    /// The names below a node, as fresh as ZooKeeper has them.
    async fn names(&self, path: &str, doing: &str) -> Result<(Client, Vec<String>), StoreError> {
        let client = self.connection.client().await?;
        let deadline = self.connection.deadline();
        let (sync, children) = (client.sync(path), client.get_children(path));
        deadline.answer(sync).await.map_err(|error| self.read_error(doing, error))?;
        let names = match deadline.answer(children).await {
            Ok((names, _)) => names,
            Err(Error::NoNode) => Vec::new(),
            Err(error) => return Err(self.read_error(doing, error)),
        };
        Ok((client, names))
    }
}

/// Chooses a worker among all of the layout's but those that are taken for ever.
fn choose(
    acquire: &LeaseAcquire,
    expiry: &Expiry,
    workers: &Workers,
    taken: &BTreeSet<u32>,
    race: u32,
) -> Result<UsedWorker, StoreError> {
    let mut used: BTreeMap<u32, (u64, &str)> = BTreeMap::new();
    for (&worker, (record, _)) in workers {
        used.insert(worker, (record.lease.valid_until_ms, &record.holder));
    }
    // Also where a lease of it was recorded, by an earlier version or in a copy.
    used.extend(taken.iter().map(|&worker| (worker, (u64::MAX, ""))));
    let used = used.into_iter().map(|(worker, (end_ms, holder))| (UsedWorker { worker, end_ms }, holder));
    let used: Vec<_> = used.collect();
    choose_worker_after_races(acquire, expiry, random_64()?, &used, race)
}

/// A worker's node is never removed here. Where one was, a lease that still runs may be forgotten.
fn check_removals(path: &str, stat: &Stat) -> Result<(), StoreError> {
    // ZooKeeper counts what was made and what was removed, and how much of it is there.
    let removed = (i64::from(stat.cversion) - i64::from(stat.num_children)) / 2;
    if removed <= 0 {
        return Ok(());
    }
    Err(damaged(
        path,
        &format!(
            "{removed} nodes of workers were removed, whose leases may still run: stop all holders, wait for the greatest \
             horizon, then remove the namespace's node with all that is below, and begin again"
        ),
    ))
}

/// The clock of the leader that made a write.
pub(crate) fn modified_ms(stat: &Stat) -> Result<u64, StoreError> {
    u64::try_from(stat.mtime)
        .map_err(|_| StoreError::unavailable(format!("the store's clock is before 1970 ({} ms): set it", stat.mtime)))
}

pub(crate) fn too_many_races(doing: &str) -> StoreError {
    StoreError::unavailable(format!("{doing}: other clients were faster {RACES_MAX} times in a row"))
}

#[async_trait]
impl LeaseStore for ZookeeperLeases {
    async fn check_namespace(&self, namespace: &str, layout: Layout) -> Result<(), StoreError> {
        let client = self.connection.client().await?;
        let look = self.look(&client, namespace, || {
            let nodes = self.leaf_nodes(&client);
            async move { Ok(nodes.await) }
        });
        let Look { namespace: found, also, .. } = look.await?;
        let nodes = also.map_err(|error| self.read_error("reading Leaf's nodes", error))?;
        let Some(Found { bound, made_by, .. }) = found else {
            return match &self.options.leaf {
                Some(leaf) => self.check_beginning(leaf, layout, self.claims(None, nodes)?.as_ref()).map(drop),
                None => Ok(()),
            };
        };
        self.check_leaf(namespace, &bound)?;
        bound.binding.check_layout(namespace, layout)?;
        self.taken(&bound, &claimant(namespace, made_by), nodes).map(drop)
    }

    async fn acquire(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError> {
        acquire.validate()?;
        for race in 0..RACES_MAX {
            if let Ok(lease) = self.try_acquire(acquire, race).await? {
                return Ok(lease);
            }
        }
        Err(too_many_races("granting a lease"))
    }

    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        extend.validate()?;
        for _ in 0..RACES_MAX {
            if let Ok(lease) = self.try_extend(extend).await? {
                return Ok(lease);
            }
        }
        Err(too_many_races("extending a lease"))
    }

    async fn release(&self, namespace: &str, worker: u32, grant_id: GrantId, end_ms: u64) -> Result<bool, StoreError> {
        let released = self.change(namespace, worker, "releasing a lease", |binding, mut record| {
            if record.lease.grant_id != grant_id || record.is_final {
                return None;
            }
            record.lease.valid_until_ms = binding.released_end_ms(&record.lease, end_ms)?;
            record.is_final = true;
            Some(record)
        });
        Ok(released.await?.is_some())
    }

    async fn forbid_extension(&self, namespace: &str, worker: u32) -> Result<Option<LeaseRecord>, StoreError> {
        let forbid = |_: &NamespaceBinding, record| Some(LeaseRecord { is_final: true, ..record });
        self.change(namespace, worker, "forbidding a lease's extension", forbid).await
    }

    async fn leases(&self, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        let (client, names) = self.names(&self.paths.namespace(namespace), "listing leases").await?;
        let workers = self.workers(&client, namespace, &names).await?;
        Ok(workers.into_values().map(|(record, _)| record).collect())
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        let path = self.paths.namespaces();
        let (_, names) = self.names(&path, "listing lease namespaces").await?;
        let namespace = |name: &String| {
            decode(name).ok_or_else(|| damaged(&format!("{path}/{name}"), "its name is not a namespace's"))
        };
        let mut namespaces: Vec<_> = names.iter().map(namespace).collect::<Result<_, _>>()?;
        namespaces.sort_unstable();
        Ok(namespaces)
    }

    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        let client = self.connection.client().await?;
        let deadline = self.connection.deadline();
        let path = self.paths.identity();
        // A server may lag behind the one that named the store.
        let (sync, data) = (client.sync(&path), client.get_data(&path));
        deadline.answer(sync).await.map_err(|error| self.read_error("reading the name of the store", error))?;
        let answer = deadline.answer(data).await;
        Ok(Some(self.check_name(&client, deadline, answer).await?.name))
    }

    async fn close(&self) {
        self.connection.close().await;
    }
}
