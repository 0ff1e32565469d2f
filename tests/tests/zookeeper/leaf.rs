//! Worker leases beside nodes of Leaf's, on a real ZooKeeper: no worker is Leaf's and unalike's at once, or that of two
//! namespaces or paths, whoever comes first, whatever is lost, and when Leaf has gone.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;

use unalike_storage::{Layout, Lease, LeaseAcquire, LeaseExtend, LeaseStore, StoreError};
use unalike_tests::proxy::Proxy;
use unalike_tests::until;
use unalike_tests::zookeeper::{
    Crowd, Used, Zookeeper, assert_disjoint, extension, layout, now_ms, open, raw, request, until_ms,
};
use unalike_zookeeper::{ZookeeperLeases, ZookeeperOptions};
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

    /// One whose nodes are below another path, for holders whose clocks are half a second from the store's at most: so
    /// long it waits when Leaf has stopped. `rest` are more parameters.
    async fn open_below(&self, port: u16, path: &str, rest: &str) -> ZookeeperLeases {
        let url = format!("zookeeper://127.0.0.1:{port}{}{path}?{}{rest}", self.path, self.beside_leaf("leaf=orders"));
        let mut options = ZookeeperOptions::from_url(&url).unwrap();
        options.limits.max_skew_ms = 500;
        ZookeeperLeases::connect(options).await.unwrap()
    }

    async fn names(&self) -> Vec<String> {
        self.raw.list_children(&self.tree).await.unwrap()
    }

    /// How many workers are claimed or Leaf's.
    async fn claimed(&self) -> usize {
        self.names().await.iter().filter(|name| !name.contains(".all-")).count()
    }

    /// Copies all nodes below a path to another one.
    async fn copy(&self, from: &str, to: &str) {
        let mut paths = vec![String::new()];
        while let Some(path) = paths.pop() {
            let (data, _) = self.raw.get_data(&format!("{}{from}{path}", self.path)).await.unwrap();
            let copy = format!("{}{to}{path}", self.path);
            self.raw.create(&copy, &data, &made(CreateMode::Persistent)).await.unwrap();
            let names = self.raw.list_children(&format!("{}{from}{path}", self.path)).await.unwrap();
            paths.extend(names.into_iter().map(|name| format!("{path}/{name}")));
        }
    }
}

/// Takes a worker of the namespace, if it is free.
async fn wish(leases: &ZookeeperLeases, namespace: &str, worker: u32) -> Result<Lease, StoreError> {
    let namespace = namespace.to_owned();
    leases.acquire(&LeaseAcquire { namespace, preferred_worker: Some(worker), ..request(LEAF, "b", 60_000) }).await
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
    proxy.lose_answer_to("/unalike.default");
    let error = through.acquire(&request(LEAF, "a", 60_000)).await.unwrap_err();
    assert!(matches!(error, StoreError::OutcomeUnknown { .. }), "{error:?}");
    assert!(proxy.has_lost());
    assert_eq!(scene.names().await.len(), 4, "it was made");
    // It is none of another namespace's.
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
        // So nobody's lease goes on, and Leaf's end opens nothing.
        for error in [
            leases.extend(&extension(LEAF, &lease, 90_000)).await.map(drop).unwrap_err(),
            leases.end_leaf_migration("default").await.map(drop).unwrap_err(),
        ] {
            assert!(matches!(&error, StoreError::Corrupt { what, .. } if what.contains(&scene.tree)), "{error:?}");
        }
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
    assert_eq!(scene.claimed().await, 3, "nothing is claimed any more");
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

#[tokio::test(flavor = "multi_thread")]
async fn two_paths_beside_one_leaf_share_no_worker() {
    let scene = Scene::with_numbers(3).await;
    let mut acquiring = Vec::new();
    for host in 0..12 {
        let path = ["/a", "/b", "/b/", "/b/c"][host % 4];
        let leases = scene.open_below(scene.port, path, "").await;
        acquiring.push(tokio::spawn(async move {
            let mut used = Vec::new();
            for _ in 0..2 {
                let lease = leases.acquire(&request(LEAF, &format!("host {host}"), 60_000)).await.unwrap();
                leases.extend(&extension(LEAF, &lease, 90_000)).await.unwrap();
                used.push(Used::from(lease));
            }
            used
        }));
    }
    let mut used = Vec::new();
    for holder in acquiring {
        used.extend(holder.await.unwrap());
    }
    assert_disjoint(&used);
    assert_eq!(used.iter().map(|used| used.worker).collect::<BTreeSet<_>>().len(), 24);
    // A worker that is free again is free for those of its path alone, however that is written.
    let leases = scene.open_below(scene.port, "/b", "").await;
    let last = leases.leases("default").await.unwrap().remove(0).lease;
    assert!(leases.release("default", last.worker, last.grant_id, last.not_before_ms).await.unwrap());
    until_ms(last.not_before_ms).await;
    for path in ["/a", "/b/c"] {
        let lease = wish(&scene.open_below(scene.port, path, "").await, "default", last.worker).await.unwrap();
        assert!(used.iter().all(|used| used.worker != lease.worker), "{path}: {lease:?}");
    }
    let again = wish(&scene.open_below(scene.port, "/b/", "").await, "default", last.worker).await.unwrap();
    assert_eq!(again.worker, last.worker);
}

/// They do not say which path they belong to, so they may be another one's.
#[tokio::test(flavor = "multi_thread")]
async fn claims_of_earlier_versions_are_taken() {
    let scene = Scene::with_numbers(1).await;
    let claim = format!("{}/unalike.default-", scene.tree);
    for number in 1..4 {
        let options = made(CreateMode::PersistentSequential);
        let (_, claimed) = scene.raw.create(&claim, b"{}", &options).await.unwrap();
        assert_eq!(claimed.into_i64(), number);
    }
    let leases = scene.open("leaf=orders").await;
    let first = leases.acquire(&request(LEAF, "a", 60_000)).await.unwrap();
    assert_eq!(first.worker, 4);
    // One that was leased here before is, too.
    let worker = |worker| format!("{}/unalike/leases/default/{worker}", scene.path);
    let (data, _) = scene.raw.get_data(&worker(4)).await.unwrap();
    let (old, data) = (Lease { worker: 2, ..first }, data.as_slice());
    scene.raw.create(&worker(2), data, &made(CreateMode::Persistent)).await.unwrap();
    let error = leases.extend(&extension(LEAF, &old, 90_000)).await.unwrap_err();
    assert!(matches!(error, StoreError::LeaseLost { worker: 2, .. }), "{error:?}");
    assert!(leases.release("default", 2, old.grant_id, old.not_before_ms).await.unwrap());
    until_ms(old.not_before_ms).await;
    assert_eq!(wish(&leases, "default", 2).await.unwrap().worker, 5);
    assert_eq!(wish(&leases, "default", 1).await.unwrap().worker, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_path_has_none_of_its_workers() {
    let scene = Scene::with_numbers(0).await;
    let leases = scene.open_below(scene.port, "/a", "").await;
    let lease = leases.acquire(&request(LEAF, "a", 60_000)).await.unwrap();
    assert!(leases.release("default", lease.worker, lease.grant_id, lease.not_before_ms).await.unwrap());
    scene.copy("/a", "/b").await;
    until_ms(lease.not_before_ms).await;
    let copy = scene.open_below(scene.port, "/b", "").await;
    assert_ne!(wish(&copy, "default", lease.worker).await.unwrap().worker, lease.worker);
    // Nor was anything opened to it.
    let from_ms = leases.end_leaf_migration("default").await.unwrap();
    scene.copy("/a", "/c").await;
    until_ms(from_ms).await;
    let copy = scene.open_below(scene.port, "/c", "").await;
    let error = copy.acquire(&request(LEAF, "c", 60_000)).await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused { what, .. } if what.contains("are taken")), "{error:?}");
    let error = copy.end_leaf_migration("default").await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused { what, .. } if what.contains("leaf=orders")), "{error:?}");
}

/// What others have claimed stays theirs, also when all else is opened; and it is opened to one.
#[tokio::test(flavor = "multi_thread")]
async fn after_leaf_one_path_has_what_nobody_has_claimed() {
    let scene = Scene::with_numbers(0).await;
    let paths = [("/a", "default"), ("/a", "other"), ("/b", "default"), ("/b", "other")];
    let mut nodes = Vec::new();
    for (path, namespace) in paths {
        let leases = scene.open_below(scene.port, path, "").await;
        let lease = wish(&leases, namespace, 0).await.unwrap();
        nodes.push((leases, namespace, lease));
    }
    let ending = nodes.iter().map(|(leases, namespace, _)| {
        let (leases, namespace) = (leases.clone(), (*namespace).to_owned());
        tokio::spawn(async move { leases.end_leaf_migration(&namespace).await })
    });
    let mut ended = Vec::new();
    for ending in ending.collect::<Vec<_>>() {
        ended.push(ending.await.unwrap());
    }
    let opened = ended.iter().position(Result::is_ok).unwrap();
    let from_ms = *ended[opened].as_ref().unwrap();
    for (_, error) in ended.into_iter().enumerate().filter(|(nth, _)| *nth != opened) {
        let error = error.unwrap_err();
        assert!(matches!(&error, StoreError::Refused { what, .. } if what.contains("leaf=orders")), "{error:?}");
    }
    until_ms(from_ms).await;
    let (leases, namespace, _) = &nodes[opened];
    let mut used: Vec<_> = nodes.iter().map(|(.., lease)| Used::from(*lease)).collect();
    for worker in [0, 2, 3, 4, 5, 6, 700, 1_023] {
        let lease = wish(leases, namespace, worker).await.unwrap();
        assert!(lease.not_before_ms >= from_ms, "{lease:?}");
        used.push(lease.into());
    }
    // Nor is anything opened to one that was not there, and it is not begun.
    let late = scene.open("leaf-stopped=orders").await;
    let error = late.acquire(&request(LEAF, "b", 60_000)).await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused { what, .. } if what.contains("another namespace")), "{error:?}");
    assert_eq!(late.namespaces().await.unwrap(), [""; 0]);
    // No program gets a number any more that is a worker: not Leaf's, and not one of an earlier version.
    assert!(scene.leaf("10.0.0.1:80").await.worker > 1_023);
    // The others go on with what they have.
    for (nth, (leases, namespace, lease)) in nodes.iter().enumerate().filter(|(nth, _)| *nth != opened) {
        let extend = LeaseExtend { namespace: (*namespace).to_owned(), ..extension(LEAF, lease, 90_000) };
        leases.extend(&extend).await.unwrap();
        let error = wish(leases, namespace, 900).await.unwrap_err();
        assert!(matches!(error, StoreError::WorkersExhausted { .. }), "{nth}: {error:?}");
        assert!(leases.release(namespace, lease.worker, lease.grant_id, lease.valid_until_ms).await.unwrap());
    }
    assert_disjoint(&used);
}

/// A claim is decided by ZooKeeper, however long the one who claims was paused before and after.
#[tokio::test(flavor = "multi_thread")]
async fn who_was_paused_while_all_was_opened_shares_no_worker() {
    let patient = "&request-timeout-ms=60000&session-timeout-ms=60000";
    for stalled_at in ["/unalike.default", "/leases/default/"] {
        let scene = Scene::with_numbers(0).await;
        let opener = scene.open_below(scene.port, "/a", "").await;
        let first = opener.acquire(&request(LEAF, "a", 60_000)).await.unwrap();
        let proxy = Proxy::start(scene.port).unwrap();
        let paused = scene.open_below(proxy.port(), "/b", patient).await;
        paused.check_namespace("default", LEAF).await.unwrap();
        proxy.stall_at(stalled_at);
        let claiming = {
            let paused = paused.clone();
            tokio::spawn(async move { paused.acquire(&request(LEAF, "b", 60_000)).await })
        };
        until("it is paused", async || proxy.is_stalled()).await;
        let claimed = scene.names().await;
        let from_ms = opener.end_leaf_migration("default").await.unwrap();
        proxy.stall(false);
        let mut used = vec![Used::from(first)];
        match claiming.await.unwrap() {
            Ok(lease) => used.push(lease.into()),
            Err(error) => assert!(matches!(error, StoreError::Refused { .. }), "{error:?}"),
        }
        assert_eq!(
            used.len(),
            claimed.len() - 1,
            "{claimed:?}: who had a claim has its worker, and else there is none"
        );
        until_ms(from_ms).await;
        for worker in 2..4 {
            used.push(wish(&opener, "default", worker).await.unwrap().into());
        }
        assert_disjoint(&used);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_opening_that_was_broken_off_is_finished_by_its_own() {
    let scene = Scene::with_numbers(2).await;
    let proxy = Proxy::start(scene.port).unwrap();
    let (opener, other) =
        (scene.open_below(proxy.port(), "/a", "").await, scene.open_below(scene.port, "/b", "").await);
    let first = opener.acquire(&request(LEAF, "a", 60_000)).await.unwrap();
    let mut used = vec![Used::from(first), Used::from(other.acquire(&request(LEAF, "b", 60_000)).await.unwrap())];
    let ended = async |leases: &ZookeeperLeases| {
        let mut ended = leases.end_leaf_migration("default").await;
        until("Leaf counts as stopped", async || {
            let runs = matches!(&ended, Err(StoreError::Unavailable { what, .. }) if what.contains("still runs"));
            if runs {
                ended = leases.end_leaf_migration("default").await;
            }
            !runs
        })
        .await;
        ended
    };
    proxy.lose_answer_to(".all-");
    let error = ended(&opener).await.unwrap_err();
    assert!(matches!(error, StoreError::OutcomeUnknown { .. }), "{error:?}");
    assert!(proxy.has_lost());
    // Its first node stands, so the workers are nobody else's; until they are opened, workers are claimed as before.
    let error = other.end_leaf_migration("default").await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused { what, .. } if what.contains("leaf=orders")), "{error:?}");
    used.push(other.acquire(&request(LEAF, "b", 60_000)).await.unwrap().into());
    let from_ms = ended(&scene.open_below(scene.port, "/a", "").await).await.unwrap();
    until_ms(from_ms).await;
    for worker in 2..7 {
        used.push(wish(&opener, "default", worker).await.unwrap().into());
    }
    assert_disjoint(&used);
}

/// An earlier version opened all workers, and kept nothing of what others have claimed.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_version_opened_is_opened_again() {
    let scene = Scene::with_numbers(0).await;
    let (opened, other) = (scene.open_below(scene.port, "/a", "").await, scene.open_below(scene.port, "/b", "").await);
    let mut used = Vec::new();
    for leases in [&opened, &other] {
        used.push(Used::from(leases.acquire(&request(LEAF, "a", 60_000)).await.unwrap()));
    }
    let path = format!("{}/a/unalike/leases/default", scene.path);
    let (data, _) = scene.raw.get_data(&path).await.unwrap();
    let data = String::from_utf8(data).unwrap();
    let by_an_earlier_one = data.replace("\"stopped\":false", "\"stopped\":true");
    assert_ne!(by_an_earlier_one, data);
    scene.raw.set_data(&path, by_an_earlier_one.as_bytes(), None).await.unwrap();
    let nameless = open(scene.port, &format!("{}/a", scene.path)).await;
    let error = nameless.acquire(&request(LEAF, "a", 60_000)).await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused { what, .. } if what.contains("leaf-stopped=orders")), "{error:?}");
    let from_ms = opened.end_leaf_migration("default").await.unwrap();
    until_ms(from_ms).await;
    for worker in 2..5 {
        let wish = LeaseAcquire { preferred_worker: Some(worker), ..request(LEAF, "a", 60_000) };
        used.push(nameless.acquire(&wish).await.unwrap().into());
    }
    assert_disjoint(&used);
}
