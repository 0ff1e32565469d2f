//! Workers beside running nodes of Leaf's: claimed in Leaf's own tree, so that ZooKeeper gives no number twice.
//!
//! A node of Leaf's is a persistent sequential one, `IP:PORT-NNNNNNNNNN`, and its worker is that number. Leaf reads the
//! names of all its nodes when it starts, splits each at `-` and looks its own `IP:PORT` up, so a claim of ours looks
//! the same: `unalike.NAMESPACE-NNNNNNNNNN`, without another `-`, and with data that Leaf could read.
//!
//! A claim is the namespace's, not a holder's: the worker is then granted by its node in the namespace, as any other.
//! So a claim whose answer was lost is found again by whoever comes next.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use unalike_storage::{Layout, LayoutFields, LeaseAcquire, NamespaceBinding, StoreError};
use zookeeper_client::{Client, CreateMode, Error, Stat};

use crate::error::{damaged, refusal, unavailable, write_error};
use crate::leases::{LostRace, modified_ms};
use crate::nodes::{LeafTree, Namespace, encode};
use crate::{Leaf, ZookeeperLeases};

/// A node of Leaf's writes its time every 3 s: one that wrote it more recently than this runs.
const LEAF_WRITES_WITHIN_MS: u64 = 7_000;

/// Leaf's nodes, and those by which a namespace has claimed workers.
#[derive(Debug)]
pub(crate) struct Claims {
    /// The transaction that made the tree.
    made_by: i64,
    /// The workers that are the namespace's. Never 0: Leaf's first nodes on an empty tree all believe to be that one.
    pub(crate) ours: BTreeSet<u32>,
    /// The greatest number that anybody has.
    latest: u64,
}

impl Claims {
    pub(crate) fn read(namespace: &str, names: &[String], stat: &Stat) -> Self {
        let (prefix, mut ours, mut latest) = (claim_prefix(namespace), BTreeSet::new(), 0);
        for name in names {
            let Some((node, number)) = name.rsplit_once('-') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            latest = latest.max(number);
            if node == prefix
                && let Ok(worker) = u32::try_from(number)
                && worker != 0
            {
                ours.insert(worker);
            }
        }
        Self { made_by: stat.czxid, ours, latest }
    }
}

fn claim_prefix(namespace: &str) -> String {
    format!("unalike.{}", encode(namespace))
}

/// What Leaf keeps in its nodes.
#[derive(Serialize, Deserialize)]
struct Endpoint {
    ip: String,
    port: String,
    timestamp: u64,
}

impl ZookeeperLeases {
    /// Ends the migration of a namespace from Leaf: from now on all workers of its layout may be had, also those that
    /// were Leaf's and worker 0. Call it when the last node of Leaf's has stopped for good. Answers from when on
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
    /// [`StoreError::Refused`] when the namespace shares its workers with no Leaf; whatever the connection brings.
    pub async fn end_leaf_migration(&self, namespace: &str) -> Result<u64, StoreError> {
        loop {
            let client = self.connection.client().await?;
            let look = self.look(&client, namespace, async || Ok(())).await?;
            let Some((bound, version)) = look.namespace.filter(|(bound, _)| bound.leaf.is_some()) else {
                return Err(refusal(format!("the namespace {namespace:?} shares its workers with no Leaf")));
            };
            if bound.leaf.as_ref().is_some_and(|tree| tree.stopped) {
                return Ok(bound.binding.floor_ms);
            }
            self.stop_leaf(&client, namespace, bound, version, look.store_ms).await?;
        }
    }

    /// Opens all workers to a namespace, unless it was changed since it was read.
    pub(crate) async fn stop_leaf(
        &self,
        client: &Client,
        namespace: &str,
        mut bound: Namespace,
        version: i32,
        store_ms: u64,
    ) -> Result<(), StoreError> {
        let Some(tree) = &mut bound.leaf else { return Ok(()) };
        tree.stopped = true;
        bound.binding.floor_ms = self.leaf_ended_ms(client, &self.paths.leaf_tree(&tree.name), store_ms).await?;
        let path = self.paths.namespace(namespace);
        let written = client.set_data(&path, &bound.write(), Some(version));
        match self.connection.deadline().answer(written).await {
            Ok(_) | Err(Error::BadVersion) => Ok(()),
            Err(error) => Err(write_error(&self.at(), "ending the migration from Leaf", error)),
        }
    }

    /// From when on no node of Leaf's can have made an id, if none runs any more.
    async fn leaf_ended_ms(&self, client: &Client, tree: &str, store_ms: u64) -> Result<u64, StoreError> {
        let failed = |error| self.read_error("reading Leaf's nodes", error);
        let deadline = self.connection.deadline();
        let names = match deadline.answer(client.get_children(tree)).await {
            Ok((names, _)) => names,
            // It was removed when Leaf had gone.
            Err(Error::NoNode) => Vec::new(),
            Err(error) => return Err(failed(error)),
        };
        let mut latest_ms = store_ms;
        let names = names.iter().filter(|name| !name.starts_with("unalike."));
        let requests: Vec<_> = names.map(|name| format!("{tree}/{name}")).collect();
        let requests: Vec<_> = requests.into_iter().map(|path| (client.get_data(&path), path)).collect();
        for (request, path) in requests {
            let (data, stat) = deadline.answer(request).await.map_err(failed)?;
            let since_ms = store_ms.saturating_sub(modified_ms(&stat)?);
            if since_ms < LEAF_WRITES_WITHIN_MS {
                return Err(unavailable(format!(
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
            (None, Some(tree)) if tree.stopped => return Ok(()),
            (Some(leaf), Some(tree)) if leaf.name() == tree.name => return Ok(()),
            (_, Some(tree)) => {
                format!("shares its workers with Leaf's nodes {name:?}: name them (leaf={name})", name = tree.name)
            }
            (Some(leaf), None) => {
                format!(
                    "was first used without Leaf's nodes {:?}, which it knows nothing of: use another one",
                    leaf.name()
                )
            }
        };
        Err(refusal(format!("the namespace {namespace:?} {what}")))
    }

    /// What a new namespace keeps of the Leaf that it shares its workers with.
    pub(crate) async fn begin_with_leaf(
        &self,
        client: &Client,
        binding: &mut NamespaceBinding,
        store_ms: u64,
        claims: Option<&Claims>,
    ) -> Result<Option<LeafTree>, StoreError> {
        let Some(leaf) = &self.options.leaf else { return Ok(None) };
        let claims = self.check_beginning(leaf, binding.layout, claims)?;
        let (name, tree) = (leaf.name().to_owned(), self.paths.leaf_tree(leaf.name()));
        let stopped = matches!(leaf, Leaf::Stopped(_));
        if stopped {
            binding.floor_ms = self.leaf_ended_ms(client, &tree, store_ms).await?;
        }
        Ok(Some(LeafTree { name, made_by: claims.made_by, stopped }))
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
            refusal(format!(
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
        claims: &Claims,
        store_ms: u64,
        free_at_ms: u64,
    ) -> Result<Result<u32, LostRace>, StoreError> {
        let Some(leaf) = &self.options.leaf else { return Ok(Err(LostRace)) };
        let (workers, worker_max) = (acquire.layout.workers(), acquire.layout.worker_max());
        let path = format!("{}/{}-", self.paths.leaf_tree(leaf.name()), claim_prefix(&acquire.namespace));
        let exhausted = || {
            if free_at_ms == u64::MAX {
                return refusal(format!(
                    "all {workers} numbers in {path} are taken, and none is unalike's: end the migration from Leaf"
                ));
            }
            StoreError::WorkersExhausted { namespace: acquire.namespace.clone(), workers, free_at_ms }
        };
        if claims.latest >= u64::from(worker_max) {
            return Err(exhausted());
        }
        let endpoint = Endpoint { ip: "unalike".to_owned(), port: acquire.holder.clone(), timestamp: store_ms };
        // Texts and a number always have a form in JSON.
        let data = serde_json::to_vec(&endpoint).unwrap_or_default();
        let options = self.connection.persistent(CreateMode::PersistentSequential);
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
    Err(refusal(format!("beside Leaf the layout must be Leaf's, {}, and {layout} was offered", Layout::LEAF)))
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
            let name = format!("{}-{:010}", claim_prefix(namespace), 42);
            let (node, worker) = leaf_splits(&name);
            assert_eq!(worker, 42, "{name}");
            assert!(!node.contains(':'), "{name}: Leaf's own begin with IP:PORT");
        }
        assert!(check_layout(Layout::LEAF).is_ok());
        assert!(check_layout(Layout::INSTAGRAM).is_err());
    }
}
