//! A Galera cluster of real nodes: programs on different nodes share its rows, nodes are killed, cut off, behind, and
//! come back; and a cluster that lost commits is not taken for the one before.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use unalike_mysql::{MysqlLeases, MysqlOptions, MysqlStore};
use unalike_storage::{Lease, Segment, SegmentStore as _, StoreError, Stripe, with_causes};
use unalike_tests::PATIENCE;
use unalike_tests::galera::Galera;
use unalike_tests::leases::assert_disjoint;
use unalike_tests::mysql_leases::Holder;
use unalike_tests::refusals::{at_last, stays_refused};

/// The nodes of a cluster.
const NODES: [usize; 3] = [0, 1, 2];

/// The dialects that grant many numbers at once.
const DIALECTS: [&str; 8] = [
    "dialect=unalike",
    "dialect=leaf&create=true",
    "dialect=tinyid&create=true",
    "dialect=cosid&create=true",
    "dialect=sequence-table&create=true",
    "dialect=batch&create=true",
    "dialect=slow-ordered&create=true",
    "dialect=id-generator&keys=order:1&source-stopped=true&create=true",
];

/// The operator promises that the cluster is never begun anew with a node that lacks commits.
const VOUCHED: &str = "identity=assumed";

fn options(url: &str, parameters: &str) -> MysqlOptions {
    MysqlOptions::from_url(&format!("{url}?{parameters}")).unwrap()
}

async fn try_open(url: &str, parameters: &str) -> Result<MysqlStore, StoreError> {
    MysqlStore::connect(options(url, parameters)).await
}

/// Opens until it succeeds. All failures must be worth a retry.
async fn open(url: &str, parameters: &str) -> MysqlStore {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match try_open(url, parameters).await {
            Ok(store) => return store,
            Err(error) => assert!(error.is_retryable() && Instant::now() < deadline, "{parameters}: {error:?}"),
        }
    }
}

/// Grants until one succeeds. All failures must be worth a retry.
async fn allocate_at_last(store: &MysqlStore) -> Segment {
    allocate_many(store, 10).await
}

/// The same with so many numbers.
async fn allocate_many(store: &MysqlStore, count: u64) -> Segment {
    at_last(async || store.allocate("order", count, 0).await).await.unwrap()
}

/// All numbers that were ever granted: none twice.
#[derive(Clone, Debug, Default)]
struct Granted(Arc<Mutex<BTreeSet<u64>>>);

impl Granted {
    fn add(&self, segment: Segment) {
        let mut numbers = self.0.lock().unwrap();
        let mut number = segment.start;
        while number < segment.end {
            assert!(numbers.insert(number), "{number} was granted twice: {segment:?}");
            number += segment.stride;
        }
    }
}

/// Programs that draw from one row without a pause, one for each node, until they are ended.
struct Programs {
    end: Arc<AtomicBool>,
    drawing: Vec<JoinHandle<Drawn>>,
}

/// How often a program was granted something, and what it was told otherwise.
#[derive(Debug, Default)]
struct Drawn {
    grants: u64,
    errors: BTreeMap<String, u64>,
}

impl Programs {
    async fn start(cluster: &Galera, database: &str, parameters: &str, granted: &Granted) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let mut drawing = Vec::new();
        for node in NODES {
            let store = open(&cluster.url(node, database), parameters).await;
            let (granted, end, parameters) = (granted.clone(), Arc::clone(&end), parameters.to_owned());
            drawing.push(tokio::spawn(async move {
                let mut drawn = Drawn::default();
                while !end.load(Ordering::SeqCst) {
                    match store.allocate("order", 7, 0).await {
                        Ok(segment) => {
                            granted.add(segment);
                            drawn.grants += 1;
                        }
                        Err(error) => {
                            assert!(error.is_retryable(), "{parameters}: {error:?}");
                            let kind = if error.may_have_granted() { "unknown: " } else { "" };
                            *drawn.errors.entry(format!("{kind}{}", with_causes(&error))).or_default() += 1;
                            tokio::time::sleep(Duration::from_millis(5)).await;
                        }
                    }
                }
                drawn
            }));
        }
        Self { end, drawing }
    }

    async fn end(self) -> Vec<Drawn> {
        self.end.store(true, Ordering::SeqCst);
        let mut drawn = Vec::new();
        for program in self.drawing {
            drawn.push(program.await.unwrap());
        }
        drawn
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_on_all_nodes_share_rows_while_nodes_are_killed_cut_off_and_behind() {
    let mut cluster = Galera::start(NODES.len()).unwrap();
    each_dialect(&cluster).await;
    leases(&cluster).await;

    let database = cluster.database().unwrap();
    let granted = Granted::default();
    granted.add(allocate_at_last(&open(&cluster.url(0, &database), VOUCHED).await).await);
    let programs = Programs::start(&cluster, &database, VOUCHED, &granted).await;
    // One that is sent all, and the one that began the cluster, which is sent what it lacks.
    for (node, by_snapshot) in [(1, true), (0, false)] {
        cluster.kill9(node).unwrap();
        if by_snapshot {
            cluster.rejoin_by_snapshot(node).unwrap();
        } else {
            cluster.rejoin(node).unwrap();
        }
        granted.add(allocate_at_last(&open(&cluster.url(node, &database), VOUCHED).await).await);
    }
    let drawn = programs.end().await;
    assert!(drawn.iter().all(|drawn| drawn.grants > 10), "{drawn:?}");

    cut_off(&cluster, &database, &granted).await;
    behind(&cluster, &database, &granted).await;
}

/// Programs of each dialect on all nodes at once.
async fn each_dialect(cluster: &Galera) {
    let (mut ready, mut running) = (Vec::new(), Vec::new());
    for dialect in DIALECTS {
        let (database, granted) = (cluster.database().unwrap(), Granted::default());
        let parameters = format!("{dialect}&{VOUCHED}");
        let store = open(&cluster.url(0, &database), &parameters).await;
        store.open_tag("order").await.unwrap();
        granted.add(allocate_at_last(&store).await);
        ready.push((dialect, database, parameters, granted));
    }
    for (dialect, database, parameters, granted) in ready {
        running.push((dialect, Programs::start(cluster, &database, &parameters, &granted).await));
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    for (dialect, programs) in running {
        let drawn = programs.end().await;
        assert!(drawn.iter().map(|drawn| drawn.grants).sum::<u64>() > 2, "{dialect}: {drawn:?}");
    }
}

/// Holders on all nodes want more workers than there are.
async fn leases(cluster: &Galera) {
    let database = cluster.database().unwrap();
    let mut running = Vec::new();
    for number in 0..6 {
        let url = cluster.url(number % NODES.len(), &database);
        let leases = MysqlLeases::connect(options(&url, VOUCHED)).await.unwrap();
        running.push(tokio::spawn(async move {
            let mut holder = Holder::new(&leases, "default", &format!("holder {number}"));
            holder.layout = Holder::few_workers();
            let (mut had, deadline): (Vec<Lease>, _) = (Vec::new(), Instant::now() + Duration::from_secs(2));
            while Instant::now() < deadline {
                match holder.acquire(60).await {
                    Ok(lease) => match holder.extend(&lease, 120).await {
                        Ok(longer) => had.push(longer),
                        Err(_) => had.push(lease),
                    },
                    // All workers are in use, or another one was faster.
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
            had
        }));
    }
    let mut all = Vec::new();
    for holder in running {
        all.extend(holder.await.unwrap());
    }
    assert!(all.len() > 2, "{} leases", all.len());
    assert_disjoint(all);
}

/// A node without the others grants nothing.
async fn cut_off(cluster: &Galera, database: &str, granted: &Granted) {
    let url = cluster.url(2, database);
    let store = open(&url, VOUCHED).await;
    granted.add(allocate_at_last(&store).await);
    cluster.isolate(2, true).unwrap();
    cluster.wait_for_status(2, "wsrep_cluster_status", "non-Primary").unwrap();
    for _ in 0..3 {
        let error = store.allocate("order", 10, 0).await.unwrap_err();
        assert!(error.is_retryable() && with_causes(&error).contains("WSREP has not yet prepared node"), "{error:?}");
        let error = try_open(&url, VOUCHED).await.unwrap_err();
        assert!(error.is_retryable() && with_causes(&error).contains("WSREP has not yet prepared node"), "{error:?}");
    }
    let other = open(&cluster.url(0, database), VOUCHED).await;
    granted.add(allocate_at_last(&other).await);
    cluster.isolate(2, false).unwrap();
    cluster.wait_for_status(2, "wsrep_local_state_comment", "Synced").unwrap();
    granted.add(allocate_at_last(&store).await);
}

/// A node that has yet to apply what others committed.
async fn behind(cluster: &Galera, database: &str, granted: &Granted) {
    cluster.node(0).sql(database, "CREATE TABLE heavy (id INT PRIMARY KEY)").unwrap();
    let [first, second] = [0, 1].map(|node| cluster.url(node, database));
    let (first, second) = (open(&first, VOUCHED).await, open(&second, VOUCHED).await);
    let mut stale = 0;
    for round in 0..40 {
        // By chance it may have caught up each time.
        if stale > 0 && round > 2 {
            break;
        }
        let heavy = format!("INSERT INTO heavy SELECT seq + {} FROM seq_1_to_30000", round * 30_000);
        cluster.node(0).sql(database, &heavy).unwrap();
        let there = allocate_at_last(&first).await;
        granted.add(there);
        stale += u64::from(second.tag("order").await.unwrap().watermark < there.end - 1);
        for _ in 0..4 {
            match second.allocate("order", 10, 0).await {
                Ok(segment) => {
                    assert!(segment.start >= there.end, "{segment:?} after {there:?}");
                    granted.add(segment);
                }
                Err(error) => assert!(error.is_retryable() && !error.may_have_granted(), "{error:?}"),
            }
        }
    }
    assert!(stale > 0, "the second node was never behind");
}

/// A cluster is stopped and begun anew with a node that lacks commits: nothing in it tells. So it is not used unless
/// its operator promises that this does not happen, or lifts the tags.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_begun_anew_may_lack_commits_and_is_used_on_a_promise_alone() {
    let mut cluster = Galera::start(2).unwrap();
    let database = cluster.database().unwrap();
    let [url, other] = [0, 1].map(|node| cluster.url(node, &database));
    let named = &["a node of the Galera cluster \"tests\"", "identity=assumed", "unalike store adopt"];
    stays_refused(async || try_open(&url, "").await, named).await;
    stays_refused(async || MysqlLeases::connect(options(&url, "")).await, named).await;
    stays_refused(async || MysqlStore::adopt_server(options(&url, ""), 1).await, named).await;
    stays_refused(
        async || try_open(&url, "dialect=ticket&create=true&identity=assumed").await,
        &["each node has a counter of its own"],
    )
    .await;

    let (granted, of_leaf) = (Granted::default(), Granted::default());
    let store = open(&url, VOUCHED).await;
    granted.add(allocate_at_last(&store).await);
    let record = "SELECT server FROM unalike_store";
    let recorded = cluster.node(1).sql(&database, record).unwrap();
    assert!(recorded.contains(" wsrep_cluster_name tests era "), "{recorded}");
    stays_refused(async || store.join_stripe(&stripe()).await.map(drop), &["Galera", "cannot be a stripe"]).await;
    settings(&cluster, &store, &granted).await;

    let state = cluster.status(0, "wsrep_cluster_state_uuid").unwrap();
    cluster.stop(1).unwrap();
    let lost = allocate_many(&store, 1_000).await;
    granted.add(lost);
    cluster.kill9(0).unwrap();
    cluster.bootstrap(1).unwrap();
    cluster.rejoin_by_snapshot(0).unwrap();
    assert_eq!(cluster.status(0, "wsrep_cluster_state_uuid").unwrap(), state, "it says that it is the one before");
    assert_eq!(cluster.node(0).sql(&database, record).unwrap(), recorded);
    let lacks = open(&url, VOUCHED).await.tag("order").await.unwrap();
    assert!(lacks.watermark < lost.end - 1, "the commit was lost: {lacks:?}");

    // Twice, as often as it is lost; each time for all dialects.
    for _ in 0..2 {
        let before = open(&url, VOUCHED).await;
        adopt(&other, VOUCHED).await;
        stays_refused(async || before.allocate("order", 1, 0).await, &["restart"]).await;
        let leaf = "dialect=leaf&create=true&identity=assumed";
        stays_refused(async || try_open(&url, leaf).await, &["adopted with the tables of other dialects"]).await;
        adopt(&other, leaf).await;
        for url in [&url, &other] {
            granted.add(allocate_at_last(&open(url, VOUCHED).await).await);
            of_leaf.add(allocate_at_last(&open(url, leaf).await).await);
        }
    }

    // A node that runs alone, with the data of the cluster.
    cluster.stop(1).unwrap();
    cluster.start_alone(1).unwrap();
    stays_refused(async || try_open(&other, VOUCHED).await, &["another one than before"]).await;
}

/// Lifts the tags above what was lost.
async fn adopt(url: &str, parameters: &str) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = MysqlStore::adopt_server(options(url, parameters), 10_000).await {
        assert!(error.is_retryable() && Instant::now() < deadline, "{error:?}");
    }
}

fn stripe() -> Stripe {
    Stripe { set: 7, index: 0, count: 2 }
}

/// What must not be set otherwise on a node, while it is used and before.
async fn settings(cluster: &Galera, store: &MysqlStore, granted: &Granted) {
    let url = store.address().unwrap();
    let url = format!("mysql://root@{url}");
    for (set, reset, said) in [
        ("wsrep_on = OFF", "wsrep_on = ON", "wsrep_on is OFF"),
        (
            "wsrep_provider_options = 'pc.ignore_sb=true'",
            "wsrep_provider_options = 'pc.ignore_sb=false'",
            "pc.ignore_sb is true",
        ),
        (
            "wsrep_provider_options = 'pc.ignore_quorum=true'",
            "wsrep_provider_options = 'pc.ignore_quorum=false'",
            "pc.ignore_quorum is true",
        ),
        (
            "innodb_flush_log_at_trx_commit = 2",
            "innodb_flush_log_at_trx_commit = 1",
            "innodb_flush_log_at_trx_commit is 2",
        ),
    ] {
        cluster.node(0).sql("", &format!("SET GLOBAL {set}")).unwrap();
        stays_refused(async || try_open(&url, VOUCHED).await, &[said]).await;
        cluster.node(0).sql("", &format!("SET GLOBAL {reset}")).unwrap();
    }
    granted.add(allocate_at_last(store).await);
}
