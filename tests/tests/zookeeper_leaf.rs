//! Worker leases beside nodes of Leaf's, on a real ZooKeeper: no worker is Leaf's and unalike's at once, whoever comes
//! first, whatever is lost, and when Leaf has gone.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;

use unalike_storage::{Layout, LeaseAcquire, LeaseStore, StoreError};
use unalike_tests::proxy::Proxy;
use unalike_tests::zookeeper::{
    Crowd, Used, Zookeeper, assert_disjoint, extension, layout, now_ms, open, raw, request, until, until_ms,
};
use unalike_zookeeper::ZookeeperLeases;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions};

const LEAF: Layout = Layout::LEAF;

fn made(mode: CreateMode) -> CreateOptions<'static> {
    mode.with_acls(Acls::anyone_all())
}

/// What a node of Leaf's does with ZooKeeper, step by step.
struct LeafNode {
    client: Client,
    /// `IP:PORT-NNNNNNNNNN`, below the tree.
    path: String,
    address: String,
    worker: u32,
}

impl LeafNode {
    /// Starts one: it looks for its address among the nodes, and else makes its own.
    async fn start(client: &Client, tree: &str, address: &str) -> Self {
        let client = client.clone();
        let existed = client.check_stat(tree).await.unwrap().is_some();
        if existed {
            // It fails to start when there is a name that it cannot read.
            for name in client.list_children(tree).await.unwrap() {
                let mut parts = name.split('-');
                let (node, number) = (parts.next().unwrap(), parts.next().unwrap());
                let worker = number.parse().unwrap();
                if node == address {
                    let path = format!("{tree}/{name}");
                    let node = Self { client, path, address: address.to_owned(), worker };
                    let (data, _) = node.client.get_data(&node.path).await.unwrap();
                    assert!(String::from_utf8(data).unwrap().contains("\"timestamp\":"));
                    return node;
                }
            }
        } else {
            client.mkdir(tree, &made(CreateMode::Persistent)).await.unwrap();
        }
        let prefix = format!("{tree}/{address}-");
        let data = Self::data(address, 0);
        let sequential = made(CreateMode::PersistentSequential);
        let (_, number) = client.create(&prefix, &data, &sequential).await.unwrap();
        // On a tree that was not there Leaf does not read the number: its worker stays 0.
        let worker = if existed { u32::try_from(number.into_i64()).unwrap() } else { 0 };
        Self { client, path: format!("{prefix}{number}"), address: address.to_owned(), worker }
    }

    fn data(address: &str, ahead_ms: u64) -> Vec<u8> {
        let (ip, port) = address.split_once(':').unwrap();
        let timestamp = now_ms() + ahead_ms;
        format!("{{\"ip\":\"{ip}\",\"port\":\"{port}\",\"timestamp\":{timestamp}}}").into_bytes()
    }

    /// Every 3 s, by its own clock.
    async fn write_time(&self, ahead_ms: u64) {
        self.client.set_data(&self.path, &Self::data(&self.address, ahead_ms), None).await.unwrap();
    }
}

/// A part of the shared server with Leaf's tree of the name `orders`.
struct Scene {
    port: u16,
    path: String,
    tree: String,
    raw: Client,
}

impl Scene {
    async fn new() -> Self {
        let server = Zookeeper::shared().unwrap();
        let path = server.path();
        let tree = format!("{path}/snowflake/orders/forever");
        Self { port: server.port(), path, tree, raw: raw(server.port()).await }
    }

    /// With so many numbers of the tree given out to nodes of Leaf's that have gone.
    async fn with_numbers(numbers: usize) -> Self {
        let scene = Self::new().await;
        scene.raw.mkdir(&scene.tree, &made(CreateMode::Persistent)).await.unwrap();
        let (prefix, data) = (format!("{}/10.0.0.9:80-", scene.tree), LeafNode::data("10.0.0.9:80", 0));
        let options = made(CreateMode::PersistentSequential);
        let nodes: Vec<_> = (0..numbers).map(|_| scene.raw.create(&prefix, &data, &options)).collect();
        for node in nodes {
            node.await.unwrap();
        }
        scene
    }

    async fn leaf(&self, address: &str) -> LeafNode {
        LeafNode::start(&self.raw, &self.tree, address).await
    }

    /// A client of unalike's, with these parameters: `leaf=orders`.
    async fn open(&self, parameters: &str) -> ZookeeperLeases {
        open(self.port, &format!("{}?{}", self.path, self.beside_leaf(parameters))).await
    }

    /// Leaf's own address has the path of the test, too.
    fn beside_leaf(&self, parameters: &str) -> String {
        match parameters {
            "" => String::new(),
            parameters => format!("{parameters}&leaf-path={}", self.path),
        }
    }

    async fn names(&self) -> Vec<String> {
        self.raw.list_children(&self.tree).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leaf_s_nodes_and_ours_come_together_and_share_no_worker() {
    let scene = Scene::new().await;
    // Both believe to be worker 0: Leaf's own defect.
    let firsts = [scene.leaf("10.0.0.1:80").await, scene.leaf("10.0.0.2:80").await];
    assert_eq!(firsts[0].worker, 0);
    let mut leafs = BTreeSet::from([firsts[0].worker, firsts[1].worker]);
    let (mut starting, mut acquiring) = (Vec::new(), Vec::new());
    for host in 0..12 {
        let leases = scene.open("leaf=orders").await;
        acquiring.push(tokio::spawn(async move {
            let mut used = Vec::new();
            for _ in 0..2 {
                let lease = leases.acquire(&request(LEAF, &format!("host {host}"), 60_000)).await.unwrap();
                leases.extend(&extension(LEAF, &lease, 90_000)).await.unwrap();
                used.push(Used::from(lease));
            }
            used
        }));
        let (raw, tree) = (scene.raw.clone(), scene.tree.clone());
        starting.push(tokio::spawn(async move {
            let address = format!("10.0.1.{host}:80");
            let node = LeafNode::start(&raw, &tree, &address).await;
            node.write_time(0).await;
            // And once more: it finds itself again.
            assert_eq!(LeafNode::start(&raw, &tree, &address).await.worker, node.worker);
            node.worker
        }));
    }
    for node in starting {
        assert!(leafs.insert(node.await.unwrap()), "Leaf's nodes differ");
    }
    let mut used = Vec::new();
    for holder in acquiring {
        used.extend(holder.await.unwrap());
    }
    assert_disjoint(&used);
    let ours: BTreeSet<_> = used.iter().map(|used| used.worker).collect();
    assert_eq!((ours.len(), leafs.len()), (24, 14));
    assert!(ours.is_disjoint(&leafs) && !ours.contains(&0), "{ours:?} {leafs:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_0_is_leaf_s_also_on_an_empty_tree() {
    let scene = Scene::with_numbers(0).await;
    let leases = scene.open("leaf=orders").await;
    let wish = LeaseAcquire { preferred_worker: Some(0), ..request(LEAF, "a", 60_000) };
    let lease = leases.acquire(&wish).await.unwrap();
    assert_eq!(lease.worker, 1);
    assert_eq!(scene.names().await.len(), 2, "the number 0 was given to us, and is not used");
    assert_eq!(leases.leases("default").await.unwrap().len(), 1);
    // Nor is a worker that nobody has claimed.
    let wish = LeaseAcquire { preferred_worker: Some(7), ..request(LEAF, "a", 60_000) };
    assert_eq!(leases.acquire(&wish).await.unwrap().worker, 2);
}

/// Numbers are few and shared with Leaf: one that is ours is used again before another is claimed.
#[tokio::test(flavor = "multi_thread")]
async fn our_own_workers_are_used_again() {
    let scene = Scene::with_numbers(5).await;
    let leases = scene.open("leaf=orders").await;
    let first = leases.acquire(&request(LEAF, "a", 60_000)).await.unwrap();
    let second = leases.acquire(&request(LEAF, "a", 60_000)).await.unwrap();
    assert_eq!((first.worker, second.worker), (5, 6));
    for holder in ["a", "b", ""] {
        let (last, preferred_worker) = (leases.leases("default").await.unwrap().remove(0).lease, Some(5));
        assert!(leases.release("default", 5, last.grant_id, last.not_before_ms).await.unwrap());
        until_ms(last.not_before_ms).await;
        let preferred_worker = preferred_worker.filter(|_| holder == "b");
        let again = leases.acquire(&LeaseAcquire { preferred_worker, ..request(LEAF, holder, 60_000) }).await.unwrap();
        assert_eq!(again.worker, 5, "{holder}");
        assert!(again.not_before_ms >= last.not_before_ms && again.grant_id != last.grant_id);
    }
    assert_eq!(scene.names().await.len(), 7, "two were claimed");
}

/// A claim whose answer is lost is found by whoever comes next.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_answer_was_lost_is_found_again() {
    let scene = Scene::with_numbers(3).await;
    let proxy = Proxy::start(scene.port).unwrap();
    let through = open(proxy.port(), &format!("{}?{}", scene.path, scene.beside_leaf("leaf=orders"))).await;
    proxy.lose_answer_to("/unalike.default-");
    let error = through.acquire(&request(LEAF, "a", 60_000)).await.unwrap_err();
    assert!(matches!(error, StoreError::OutcomeUnknown { .. }), "{error:?}");
    assert!(proxy.has_lost());
    assert_eq!(scene.names().await.len(), 4, "it was made");
    // Another namespace's is none of it.
    let elsewhere = LeaseAcquire { namespace: "default-2".to_owned(), ..request(LEAF, "b", 60_000) };
    assert_eq!(scene.open("leaf=orders").await.acquire(&elsewhere).await.unwrap().worker, 4);
    let lease = scene.open("leaf=orders").await.acquire(&request(LEAF, "b", 60_000)).await.unwrap();
    assert_eq!((lease.worker, scene.names().await.len()), (3, 5));
    assert_eq!(through.acquire(&request(LEAF, "a", 60_000)).await.unwrap().worker, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_end_with_the_layout_s_workers() {
    let scene = Scene::with_numbers(1_021).await;
    let leases = scene.open("leaf=orders").await;
    let mut ours = Vec::new();
    for worker in 1_021..1_024 {
        let lease = leases.acquire(&request(LEAF, "a", 1_000 * u64::from(worker))).await.unwrap();
        assert_eq!(lease.worker, worker);
        ours.push(lease);
    }
    for _ in 0..2 {
        let Err(StoreError::WorkersExhausted { workers: 1_024, free_at_ms, .. }) =
            leases.acquire(&request(LEAF, "a", 60_000)).await
        else {
            panic!("all numbers are taken");
        };
        assert_eq!(free_at_ms, ours[0].valid_until_ms, "it says when one of ours is free");
    }
    assert_eq!(scene.names().await.len(), 1_024, "nothing is claimed that cannot be used");
    assert!(leases.release("default", 1_022, ours[1].grant_id, ours[1].not_before_ms).await.unwrap());
    until_ms(ours[1].not_before_ms).await;
    assert_eq!(leases.acquire(&request(LEAF, "b", 60_000)).await.unwrap().worker, 1_022);

    // Where Leaf has them all, waiting does not help.
    let other = LeaseAcquire { namespace: "other".to_owned(), ..request(LEAF, "a", 60_000) };
    let error = leases.acquire(&other).await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused { what, .. } if what.contains("end the migration")), "{error:?}");
}

/// Many more holders than there are numbers left.
#[tokio::test(flavor = "multi_thread")]
async fn forty_nodes_share_a_few_workers() {
    let scene = Scene::with_numbers(1_016).await;
    let crowd = Crowd::start(40, LEAF, 20, async || scene.open("leaf=orders").await).await;
    crowd.go_on(200).await;
    let used = crowd.end().await;
    assert_disjoint(&used);
    let workers: BTreeSet<_> = used.iter().map(|used| used.worker).collect();
    assert!(workers.iter().all(|worker| (1_016..1_024).contains(worker)), "{workers:?}");
    // Two claims at once may take more numbers than there are.
    let names = scene.names().await.len();
    assert!((1_024..1_024 + 40).contains(&names), "{names}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_keeps_to_the_leaf_that_it_was_begun_with() {
    let scene = Scene::with_numbers(3).await;
    let refused = async |parameters: &str, asked: LeaseAcquire, why: &str| {
        let error = scene.open(parameters).await.acquire(&asked).await.unwrap_err();
        assert!(matches!(&error, StoreError::Refused { what, .. } if what.contains(why)), "{parameters}: {error:?}");
    };
    let asked = || request(LEAF, "a", 60_000);
    refused("leaf=order", asked(), "there are no nodes of Leaf's").await;
    refused("leaf-stopped=order", asked(), "there are no nodes of Leaf's").await;
    refused("leaf=orders", request(layout(9), "a", 60_000), "must be Leaf's").await;
    refused("leaf=orders", request(Layout::INSTAGRAM, "a", 60_000), "must be Leaf's").await;
    assert_eq!(scene.names().await.len(), 3, "what is refused claims nothing");
    let leases = scene.open("leaf=orders").await;
    assert_eq!(leases.namespaces().await.unwrap(), [""; 0], "and binds nothing");
    let lease = leases.acquire(&asked()).await.unwrap();
    refused("", asked(), "leaf=orders").await;
    refused("leaf=order", asked(), "leaf=orders").await;
    assert_eq!(scene.open("").await.leases("default").await.unwrap()[0].lease, lease, "who only looks needs no name");

    let plain = || LeaseAcquire { namespace: "plain".to_owned(), ..asked() };
    scene.open("").await.acquire(&plain()).await.unwrap();
    refused("leaf=orders", plain(), "first used without Leaf").await;
    let error = leases.end_leaf_migration("plain").await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");

    // A tree that was made again counts from 0: its nodes get what is ours.
    for name in scene.names().await {
        scene.raw.delete(&format!("{}/{name}", scene.tree), None).await.unwrap();
    }
    scene.raw.delete(&scene.tree, None).await.unwrap();
    for _ in 0..2 {
        let error = leases.acquire(&asked()).await.unwrap_err();
        assert!(matches!(&error, StoreError::Corrupt { what, .. } if what.contains(&scene.tree)), "{error:?}");
        scene.raw.mkdir(&scene.tree, &made(CreateMode::Persistent)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_leaf_all_workers_are_ours() {
    let scene = Scene::new().await;
    let first = scene.leaf("10.0.0.1:80").await;
    let second = scene.leaf("10.0.0.2:80").await;
    let leases = scene.open("leaf=orders").await;
    let ours = leases.acquire(&request(LEAF, "a", 600_000)).await.unwrap();
    assert_eq!((first.worker, second.worker, ours.worker), (0, 1, 2));
    // Its clock is 4 s ahead. While it writes its time, it is not stopped.
    second.write_time(4_000).await;
    let written_ms = now_ms();
    for error in [
        leases.end_leaf_migration("default").await.map(drop).unwrap_err(),
        scene.open("leaf-stopped=orders").await.acquire(&request(LEAF, "a", 60_000)).await.map(drop).unwrap_err(),
    ] {
        let named = error.to_string().contains("10.0.0.2:80") || error.to_string().contains("10.0.0.1:80");
        assert!(named && matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    }
    let mut from_ms = 0;
    until("Leaf counts as stopped", async || match leases.end_leaf_migration("default").await {
        Ok(ms) => {
            from_ms = ms;
            true
        }
        Err(error) => {
            assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
            false
        }
    })
    .await;
    assert!(now_ms() >= written_ms + 6_500, "not before it has missed two times");
    assert!(from_ms >= written_ms + 6_900 + 10_000, "its clock may be 10 s ahead: {from_ms}, {written_ms}");
    assert_eq!(leases.end_leaf_migration("default").await.unwrap(), from_ms, "said once");
    // Whether they still name Leaf or not.
    for parameters in ["leaf=orders", "leaf-stopped=orders", ""] {
        let leases = scene.open(parameters).await;
        let error = leases.acquire(&request(LEAF, "a", 60_000)).await.unwrap_err();
        assert!(matches!(error, StoreError::Quarantined { until_ms, .. } if until_ms == from_ms), "{error:?}");
        leases.extend(&extension(LEAF, &ours, 900_000)).await.unwrap();
    }
    until_ms(from_ms).await;
    for (worker, parameters) in [(0, "leaf=orders"), (1, ""), (700, "leaf-stopped=orders")] {
        let wish = LeaseAcquire { preferred_worker: Some(worker), ..request(LEAF, "b", 60_000) };
        let lease = scene.open(parameters).await.acquire(&wish).await.unwrap();
        assert_eq!(lease.worker, worker);
        assert!(lease.not_before_ms >= from_ms, "{lease:?}");
    }
    assert_eq!(scene.names().await.len(), 3, "nothing is claimed any more");
}

/// Taking over from a Leaf that has gone, without having run beside it; what its nodes recorded is looked at.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_may_begin_when_leaf_has_stopped() {
    let scene = Scene::new().await;
    let node = scene.leaf("10.0.0.1:80").await;
    // It ran 20 s ahead of ZooKeeper.
    node.write_time(20_000).await;
    let written_ms = now_ms();
    let leases = scene.open("leaf-stopped=orders").await;
    let mut until_free_ms = 0;
    until("Leaf counts as stopped", async || match leases.acquire(&request(LEAF, "a", 60_000)).await {
        Err(StoreError::Quarantined { until_ms, .. }) => {
            until_free_ms = until_ms;
            true
        }
        Err(StoreError::Unavailable { .. }) => false,
        other => panic!("{other:?}"),
    })
    .await;
    let expected_ms = written_ms + 20_000 + 10_000;
    assert!((expected_ms - 1_000..=expected_ms).contains(&until_free_ms), "{until_free_ms}, {expected_ms}");
    assert_eq!(leases.leases("default").await.unwrap(), []);
    // A node whose data cannot be read is no reason to guess.
    scene.raw.set_data(&node.path, b"?", None).await.unwrap();
    let other = LeaseAcquire { namespace: "other".to_owned(), ..request(LEAF, "a", 60_000) };
    until("Leaf counts as stopped", async || {
        match leases.acquire(&LeaseAcquire { now_ms: now_ms(), ..other.clone() }).await {
            Err(StoreError::Unavailable { .. }) => false,
            Err(StoreError::Corrupt { what, .. }) => what.contains(&node.path),
            other => panic!("{other:?}"),
        }
    })
    .await;
}
