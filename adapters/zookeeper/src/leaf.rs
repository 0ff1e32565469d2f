//! Workers beside running nodes of Leaf's: claimed in Leaf's own tree, so that ZooKeeper gives no number twice.
//!
//! A node of Leaf's is a persistent sequential one, `IP:PORT-NNNNNNNNNN`, and its worker is that number. Leaf reads the
//! names of all its nodes when it starts, splits each at `-` and looks its own `IP:PORT` up, so a claim of ours looks
//! the same: `unalike.NAMESPACE.MADE-NNNNNNNNNN`, without another `-`, and with data that Leaf could read.
//!
//! MADE is the transaction that made the namespace's node. It names this node and no other one: neither one of the same
//! name below another path, nor a copy, nor one that was made again; and it is the same however the path is written.
//!
//! A claim is the namespace's, not a holder's: the worker is then granted by its node in the namespace, as any other.
//! So a claim whose answer was lost is found again by whoever comes next. The claims of all other namespaces are taken
//! for ever, and so are those of versions that did not write MADE: nothing tells whose they are.
//!
//! When Leaf has stopped, one namespace may have all workers that nobody has claimed. It makes nodes
//! `unalike.NAMESPACE.MADE.all-NNNNNNNNNN` until no number is left, so that nobody can claim another worker. Whoever
//! made the first of them has the workers.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use unalike_storage::{Layout, LayoutFields, LeaseAcquire, StoreError};
use zookeeper_client::{Client, CreateMode, Error, Stat};

use crate::error::{damaged, write_error};
use crate::leases::{Found, LostRace, modified_ms, too_many_races};
use crate::nodes::{LeafTree, Namespace, Opened, encode};
use crate::{Leaf, ZookeeperLeases};

/// A node of Leaf's writes its time every 3 s: one that wrote it more recently than this runs.
const LEAF_WRITES_WITHIN_MS: u64 = 7_000;

/// How often the opening of all workers looks whether a number is left. Each look but the first finds none, unless
/// somebody removes nodes.
const LOOKS_MAX: u32 = 8;

/// What all our names in Leaf's tree begin with.
const OURS: &str = "unalike.";

/// Leaf's nodes, and those by which namespaces have claimed workers.
#[derive(Debug)]
pub(crate) struct Claims {
    /// The transaction that made the tree.
    made_by: i64,
    /// The workers that are the namespace's. Never 0: Leaf's first nodes on an empty tree all believe to be that one.
    pub(crate) ours: BTreeSet<u32>,
    /// Those that another namespace may have.
    others: BTreeSet<u32>,
    /// The greatest number that anybody has.
    latest: u64,
    /// The first node that opens all workers.
    opened: Option<(u64, String)>,
    /// The greatest number that the namespace took to open all workers.
    opened_up_to: Option<u64>,
}

impl Claims {
    /// The claims as this claimant sees them. Without one nothing in the tree is the namespace's.
    pub(crate) fn read(claimant: Option<&str>, names: &[String], stat: &Stat) -> Self {
        let made_by = stat.czxid;
        let (ours, others) = (BTreeSet::new(), BTreeSet::new());
        let mut claims = Self { made_by, ours, others, latest: 0, opened: None, opened_up_to: None };
        for name in names {
            let Some((node, number)) = name.rsplit_once('-') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            claims.latest = claims.latest.max(number);
            if !node.starts_with(OURS) {
                continue;
            }
            if let Some(opener) = opener(node) {
                if claims.opened.as_ref().is_none_or(|(first, _)| number < *first) {
                    claims.opened = Some((number, name.clone()));
                }
                if claimant == Some(opener) {
                    claims.opened_up_to = claims.opened_up_to.max(Some(number));
                }
            } else if let Some(worker) = u32::try_from(number).ok().filter(|&worker| worker != 0) {
                let whose = if claimant == Some(node) { &mut claims.ours } else { &mut claims.others };
                whose.insert(worker);
            }
        }
        claims
    }
}

/// How a namespace is named in Leaf's tree: by its name, and by the transaction that made its node.
pub(crate) fn claimant(namespace: &str, made_by: i64) -> String {
    format!("{OURS}{}.{made_by:x}", encode(namespace))
}

/// The name of a node that opens all workers to this claimant, before its number.
fn opening(claimant: &str) -> String {
    format!("{claimant}.all")
}

/// Whom a node of this name opens all workers to. A claim of the namespace `all` by an earlier version is no such node.
fn opener(node: &str) -> Option<&str> {
    node.strip_suffix(".all").filter(|claimant| claimant.matches('.').count() == 2)
}

/// What Leaf keeps in its nodes.
#[derive(Serialize, Deserialize)]
struct Endpoint {
    ip: String,
    port: String,
    timestamp: u64,
}

impl ZookeeperLeases {
    /// Ends the migration of a namespace from Leaf: from now on all workers of its layout are leased, also those
    /// that were Leaf's and worker 0. Call it when the last node of Leaf's has stopped for good. Answers from when on
    /// workers are granted, in Unix milliseconds: the store's present, or the greatest time that one of Leaf's nodes
    /// has recorded, and [`max_skew_ms`](unalike_storage::LeaseLimits::max_skew_ms) for their clocks. Until then an
    /// acquire is refused as [`StoreError::Quarantined`]; leases that run go on. To say it twice changes nothing.
    ///
    /// ```no_run
    /// # async fn example(leases: unalike_zookeeper::ZookeeperLeases) -> Result<(), unalike_storage::StoreError> {
    /// let from_ms = leases.end_leaf_migration("default").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when a node of Leaf's wrote its time a moment ago, so that it still runs;
    /// [`StoreError::Refused`] when the namespace shares its workers with no Leaf; any error of the connection.
    pub async fn end_leaf_migration(&self, namespace: &str) -> Result<u64, StoreError> {
        loop {
            let client = self.connection.client().await?;
            let look = self.look(&client, namespace, async || Ok(())).await?;
            let Some((tree, found)) = look.namespace.and_then(|found| Some((found.bound.leaf.clone()?, found))) else {
                return Err(StoreError::refused(format!(
                    "the namespace {namespace:?} shares its workers with no Leaf"
                )));
            };
            if tree.others().is_some() {
                return Ok(found.bound.binding.floor_ms);
            }
            self.stop_leaf(&client, namespace, found, tree, look.store_ms).await?;
        }
    }

    /// Opens all workers that nobody else has claimed to a namespace, unless it was changed since it was read.
    pub(crate) async fn stop_leaf(
        &self,
        client: &Client,
        namespace: &str,
        found: Found,
        mut tree: LeafTree,
        store_ms: u64,
    ) -> Result<(), StoreError> {
        let Found { mut bound, version, made_by } = found;
        let ended_ms = self.leaf_ended_ms(client, &self.paths.leaf_tree(&tree.name), store_ms).await?;
        bound.binding.floor_ms = bound.binding.floor_ms.max(ended_ms);
        let others = self.take_all(client, namespace, made_by, &tree, bound.binding.layout, store_ms).await?;
        tree.stopped = true;
        tree.opened = Some(Opened { made_by, others });
        bound.leaf = Some(tree);
        let path = self.paths.namespace(namespace);
        let written = client.set_data(&path, &bound.write(), Some(version));
        match self.connection.deadline().answer(written).await {
            Ok(_) | Err(Error::BadVersion) => Ok(()),
            Err(error) => Err(write_error(&self.at(), "ending the migration from Leaf", error)),
        }
    }

    /// Takes all numbers that are left, so that nobody claims another worker. Answers with the workers of others.
    async fn take_all(
        &self,
        client: &Client,
        namespace: &str,
        made_by: i64,
        tree: &LeafTree,
        layout: Layout,
        store_ms: u64,
    ) -> Result<BTreeSet<u32>, StoreError> {
        let claimant = claimant(namespace, made_by);
        let (path, last) = (self.paths.leaf_tree(&tree.name), u64::from(layout.worker_max()));
        for _ in 0..LOOKS_MAX {
            // It sees what was written before over this connection.
            let children = self.connection.deadline().answer(client.get_children(&path)).await;
            if tree.stopped && children.as_ref().is_err_and(|error| matches!(error, Error::NoNode)) {
                // An earlier version opened all workers, and without the tree nobody else gets one.
                return Ok(BTreeSet::new());
            }
            let claims = self.check_claims(tree, self.claims(Some(&claimant), Some(children))?)?;
            self.check_opened(&claims, Some(&claimant), &tree.name, namespace)?;
            let next = match claims.opened_up_to {
                Some(number) if number >= last => return Ok(claims.others),
                Some(number) => number.saturating_add(1),
                // The first one tells what number comes next, whatever names somebody else has written.
                None => last,
            };
            let name = format!("{path}/{}-", opening(&claimant));
            let data = self.endpoint(namespace, "", store_ms);
            let options = self.connection.persistent(CreateMode::PersistentSequential);
            let deadline = self.connection.deadline();
            let made: Vec<_> = (next..=last).map(|_| client.create(&name, &data, &options)).collect();
            for made in made {
                let doing = "taking the numbers that Leaf has left";
                deadline.answer(made).await.map_err(|error| write_error(&self.at(), doing, error))?;
            }
        }
        Err(too_many_races("taking the numbers that Leaf has left"))
    }

    /// Refuses to open all workers to a second namespace; one that is not there yet is no claimant.
    fn check_opened(
        &self,
        claims: &Claims,
        claimant: Option<&str>,
        leaf: &str,
        namespace: &str,
    ) -> Result<(), StoreError> {
        let Some((_, name)) = &claims.opened else { return Ok(()) };
        if claimant.is_some_and(|claimant| name.starts_with(&format!("{}-", opening(claimant)))) {
            return Ok(());
        }
        Err(StoreError::refused(format!(
            "the workers that Leaf has left belong to another namespace or path: the data of the node {}/{name} says which; \
             {namespace:?} at {} keeps those that it claimed before (leaf={leaf})",
            self.paths.leaf_tree(leaf),
            self.at()
        )))
    }

    /// What a node of ours in Leaf's tree holds: whose it is, and when it was made.
    fn endpoint(&self, namespace: &str, holder: &str, store_ms: u64) -> Vec<u8> {
        let (ip, port) = (self.paths.namespace(namespace), holder.to_owned());
        // Texts and a number always have a form in JSON.
        serde_json::to_vec(&Endpoint { ip, port, timestamp: store_ms }).unwrap_or_default()
    }

    /// From when on no node of Leaf's can have made an id, if none runs any more.
    async fn leaf_ended_ms(&self, client: &Client, tree: &str, store_ms: u64) -> Result<u64, StoreError> {
        let failed = |error| self.read_error("reading Leaf's nodes", error);
        let deadline = self.connection.deadline();
        let names = match deadline.answer(client.get_children(tree)).await {
            Ok((names, _)) => names,
            // Whether that can be is judged with the claims.
            Err(Error::NoNode) => Vec::new(),
            Err(error) => return Err(failed(error)),
        };
        let mut latest_ms = store_ms;
        let names = names.iter().filter(|name| !name.starts_with(OURS));
        let requests: Vec<_> = names.map(|name| format!("{tree}/{name}")).collect();
        let requests: Vec<_> = requests.into_iter().map(|path| (client.get_data(&path), path)).collect();
        for (request, path) in requests {
            let (data, stat) = deadline.answer(request).await.map_err(failed)?;
            let since_ms = store_ms.saturating_sub(modified_ms(&stat)?);
            if since_ms < LEAF_WRITES_WITHIN_MS {
                return Err(StoreError::unavailable(format!(
                    "the node {path} of Leaf's was written {since_ms} ms ago, so it still runs: stop it, and try again \
                     {LEAF_WRITES_WITHIN_MS} ms later"
                )));
            }
            let endpoint: Endpoint = serde_json::from_slice(&data)
                .map_err(|error| damaged(&path, &format!("its data is not Leaf's ({error})")))?;
            latest_ms = latest_ms.max(endpoint.timestamp);
        }
        Ok(latest_ms.saturating_add(self.options.limits.max_skew_ms))
    }

    /// Refuses to take workers otherwise than the namespace was begun with.
    pub(crate) fn check_leaf(&self, namespace: &str, bound: &Namespace) -> Result<(), StoreError> {
        let what = match (&self.options.leaf, &bound.leaf) {
            (None, None) => return Ok(()),
            (None, Some(tree)) if tree.others().is_some() => return Ok(()),
            (Some(leaf), Some(tree)) if leaf.name() == tree.name => return Ok(()),
            (None, Some(LeafTree { name, stopped: true, .. })) => {
                format!("was opened by an earlier version after Leaf's nodes {name:?}: name them (leaf-stopped={name})")
            }
            (_, Some(tree)) => {
                format!("shares its workers with Leaf's nodes {name:?}: name them (leaf={name})", name = tree.name)
            }
            (Some(leaf), None) => {
                format!(
                    "was first used without Leaf's nodes {:?}, which it knows nothing of: use another path in the URL, or another snowflake's name",
                    leaf.name()
                )
            }
        };
        Err(StoreError::refused(format!("the namespace {namespace:?} {what}")))
    }

    /// What a new namespace keeps of the Leaf that it shares its workers with.
    pub(crate) async fn begin_with_leaf(
        &self,
        client: &Client,
        namespace: &str,
        layout: Layout,
        store_ms: u64,
        claims: Option<&Claims>,
    ) -> Result<Option<LeafTree>, StoreError> {
        let Some(leaf) = &self.options.leaf else { return Ok(None) };
        let claims = self.check_beginning(leaf, layout, claims)?;
        if matches!(leaf, Leaf::Stopped(_)) {
            // A request that is refused binds nothing.
            self.leaf_ended_ms(client, &self.paths.leaf_tree(leaf.name()), store_ms).await?;
            self.check_opened(claims, None, leaf.name(), namespace)?;
        }
        let name = leaf.name().to_owned();
        Ok(Some(LeafTree { name, made_by: claims.made_by, stopped: false, opened: None }))
    }

    /// The claims, if a namespace with this layout can begin beside them.
    pub(crate) fn check_beginning<'c>(
        &self,
        leaf: &Leaf,
        layout: Layout,
        claims: Option<&'c Claims>,
    ) -> Result<&'c Claims, StoreError> {
        check_layout(layout)?;
        // Without its nodes nothing tells which workers Leaf has, and a misspelt name looks like this.
        claims.ok_or_else(|| {
            let (name, tree) = (leaf.name(), self.paths.leaf_tree(leaf.name()));
            StoreError::refused(format!(
                "there are no nodes of Leaf's at {tree}: is {name:?} its leaf.name? Where Leaf's own address has a path, say it \
                 (leaf-path=/PATH)"
            ))
        })
    }

    /// The claims, if they are of the tree that the namespace was begun with.
    pub(crate) fn check_claims(&self, tree: &LeafTree, claims: Option<Claims>) -> Result<Claims, StoreError> {
        let path = self.paths.leaf_tree(&tree.name);
        let claims = claims.ok_or_else(|| {
            let what = "it was removed, and so was what tells Leaf's workers; where Leaf's own address has a path, say it \
                        (leaf-path=/PATH)";
            damaged(&path, what)
        })?;
        if claims.made_by != tree.made_by {
            return Err(damaged(&path, "it was removed and made again, so Leaf's nodes get numbers that are taken"));
        }
        Ok(claims)
    }

    /// Claims another worker; refused where the layout has no more, or the next is free at `free_at_ms`.
    pub(crate) async fn claim(
        &self,
        client: &Client,
        acquire: &LeaseAcquire,
        claimant: &str,
        claims: &Claims,
        store_ms: u64,
        free_at_ms: u64,
    ) -> Result<Result<u32, LostRace>, StoreError> {
        let Some(leaf) = &self.options.leaf else { return Ok(Err(LostRace)) };
        let (workers, worker_max) = (acquire.layout.workers(), acquire.layout.worker_max());
        let tree = self.paths.leaf_tree(leaf.name());
        let exhausted = || {
            if free_at_ms == u64::MAX {
                return StoreError::refused(format!(
                    "all {workers} numbers in {tree} are taken, and none is this namespace's: end the migration from Leaf"
                ));
            }
            StoreError::WorkersExhausted { namespace: acquire.namespace.clone(), workers, free_at_ms }
        };
        if claims.latest >= u64::from(worker_max) {
            return Err(exhausted());
        }
        let data = self.endpoint(&acquire.namespace, &acquire.holder, store_ms);
        let options = self.connection.persistent(CreateMode::PersistentSequential);
        let path = format!("{tree}/{claimant}-");
        let claimed = self.connection.deadline().answer(client.create(&path, &data, &options)).await;
        let (_, number) = claimed.map_err(|error| write_error(&self.at(), "claiming a worker beside Leaf", error))?;
        match u32::try_from(number.into_i64()) {
            // Another one has to be claimed.
            Ok(0) => Ok(Err(LostRace)),
            Ok(worker) if worker <= worker_max => Ok(Ok(worker)),
            _ => Err(exhausted()),
        }
    }
}

/// Ids beside Leaf's have to be made like Leaf's, but for the epoch, which its nodes can be given.
fn check_layout(layout: Layout) -> Result<(), StoreError> {
    let (fields, leaf) = (layout.fields(), Layout::LEAF.fields());
    if (LayoutFields { epoch_ms: leaf.epoch_ms, ..fields }) == leaf {
        return Ok(());
    }
    Err(StoreError::refused(format!(
        "beside Leaf the layout must be Leaf's, {}, and {layout} was offered",
        Layout::LEAF
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Leaf does with the name of each node in its tree when it starts.
    fn leaf_splits(name: &str) -> (String, u32) {
        let parts: Vec<_> = name.split('-').collect();
        (parts[0].to_owned(), parts[1].parse().unwrap())
    }

    #[test]
    fn leaf_reads_our_names_and_never_finds_itself_in_them() {
        for namespace in ["default", "a-b", "10.0.0.1:8080", "-", "é.x"] {
            let claimant = claimant(namespace, i64::MAX);
            for node in [opening(&claimant), claimant] {
                let name = format!("{node}-{:010}", 42);
                let (node, worker) = leaf_splits(&name);
                assert_eq!(worker, 42, "{name}");
                assert!(!node.contains(':'), "{name}: Leaf's own begin with IP:PORT");
            }
        }
        assert!(check_layout(Layout::LEAF).is_ok());
        assert!(check_layout(Layout::INSTAGRAM).is_err());
    }

    #[test]
    fn a_claim_is_its_namespace_s_alone() {
        let ours = claimant("all", 0x2_0000_0001);
        let names = [
            "unalike.all.200000001-0000000003",
            "unalike.all.200000002-0000000004",
            "unalike.all-0000000005",
            "unalike.other-0000000006",
            "unalike.all.200000001-0000000000",
            "unalike.all.200000002.all-0000000009",
            "unalike.all.200000001.all-0000000008",
            "unalike.all.200000001.all-0000000010",
            "10.0.0.1:80-0000000007",
        ];
        let stat = Stat {
            czxid: 5,
            mzxid: 0,
            ctime: 0,
            mtime: 0,
            version: 0,
            cversion: 0,
            aversion: 0,
            ephemeral_owner: 0,
            data_length: 0,
            num_children: 0,
            pzxid: 0,
        };
        let claims = Claims::read(Some(&ours), &names.map(str::to_owned), &stat);
        assert_eq!((claims.made_by, claims.latest), (5, 10));
        assert_eq!((claims.ours, claims.others), ([3].into(), [4, 5, 6].into()));
        assert_eq!(claims.opened.map(|(number, _)| number), Some(8));
        assert_eq!(claims.opened_up_to, Some(10));
    }
}
