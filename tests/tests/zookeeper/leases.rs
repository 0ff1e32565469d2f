//! Worker leases in ZooKeeper, on real servers: the contract, servers that are killed, paused and restarted, lost
//! answers and sessions, clocks that are moved, and nodes that somebody else changed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tempfile::TempDir;
use tokio::sync::Barrier;
use unalike::{Ids, SnowflakeOptions};
use unalike_storage::contract::{self, Fixture, LeaseFixture};
use unalike_storage::{Layout, Lease, LeaseAcquire, LeaseExtend, LeaseLimits, LeaseStore, StoreError};
use unalike_tests::proxy::Proxy;
use unalike_tests::server::{fails, ok};
use unalike_tests::zookeeper::{
    Crowd, Used, Zookeeper, assert_disjoint, extension, layout, now_ms, open, raw, request, until_ms,
};
use unalike_tests::{PATIENCE, until};
use unalike_zookeeper::{ZookeeperLeases, ZookeeperOptions};
use zookeeper_client::{Acls, Client, CreateMode};

/// A server of its own, since the suite restarts it.
struct Server(Mutex<Zookeeper>);

#[async_trait]
impl Fixture for Server {
    async fn restart(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).restart().unwrap();
    }
}

#[async_trait]
impl LeaseFixture for Server {
    async fn lease_client(&self, limits: LeaseLimits) -> Arc<dyn LeaseStore> {
        let port = self.0.lock().unwrap_or_else(PoisonError::into_inner).port();
        let mut options = ZookeeperOptions::new(&format!("127.0.0.1:{port}")).unwrap();
        options.limits = limits;
        Arc::new(ZookeeperLeases::connect(options).await.unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn zookeeper_keeps_the_contract_of_leases() {
    contract::leases(&Server(Mutex::new(Zookeeper::start().unwrap()))).await;
}

/// A grant whose answer is lost is burnt: the error says so, its interval is recorded, and nobody gets it again.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_to_an_acquire_burns_its_interval() {
    let server = Zookeeper::shared().unwrap();
    let path = server.path();
    let proxy = Proxy::start(server.port()).unwrap();
    let (through, direct) = (open(proxy.port(), &path).await, open(server.port(), &path).await);
    let layout = layout(0);
    let mut used: Vec<Used> = Vec::new();
    // A namespace's first use; a worker's first grant, which makes its node; and a grant that changes it.
    for (word, burnt) in [("\"binding\":", 0), ("/leases/default/0", 1), ("\"is_final\":false", 2)] {
        proxy.lose_answer_to(word);
        let error = through.acquire(&request(layout, "a", 2_000)).await.unwrap_err();
        assert!(matches!(error, StoreError::OutcomeUnknown { .. }) && error.may_have_granted(), "{word}: {error:?}");
        assert!(proxy.has_lost(), "{word}");
        let listed = direct.leases("default").await.unwrap();
        assert_eq!(listed.len(), usize::from(burnt > 0), "{word}: {listed:?}");
        if let Some(record) = listed.first() {
            used.push(record.lease.into());
            let taken = direct.acquire(&request(layout, "a", 2_000)).await;
            let Err(StoreError::WorkersExhausted { free_at_ms, .. }) = taken else { panic!("{word}: {taken:?}") };
            assert_eq!(free_at_ms, record.lease.valid_until_ms, "{word}");
            until_ms(free_at_ms).await;
        }
        if burnt == 1 {
            let lease = through.acquire(&request(layout, "a", 50)).await.unwrap();
            used.push(lease.into());
            until_ms(lease.valid_until_ms).await;
        }
    }
    used.push(through.acquire(&request(layout, "a", 50)).await.unwrap().into());
    assert_disjoint(&used);
    assert_eq!(used.len(), 4);
}

/// After a lost answer the holder keeps the bound that it knows and may ask again; a release was made once.
#[tokio::test(flavor = "multi_thread")]
async fn lost_answers_to_extend_and_release() {
    let server = Zookeeper::shared().unwrap();
    let path = server.path();
    let proxy = Proxy::start(server.port()).unwrap();
    let (through, direct) = (open(proxy.port(), &path).await, open(server.port(), &path).await);
    let layout = layout(2);
    let lease = through.acquire(&request(layout, "a", 30_000)).await.unwrap();
    let end_ms = async || direct.leases("default").await.unwrap()[0].lease.valid_until_ms;

    proxy.lose_answer_to("\"is_final\":false");
    let error = through.extend(&extension(layout, &lease, 60_000)).await.unwrap_err();
    assert!(matches!(error, StoreError::OutcomeUnknown { .. }) && error.is_retryable(), "{error:?}");
    assert!(proxy.has_lost());
    let recorded_ms = end_ms().await;
    assert!(recorded_ms >= lease.valid_until_ms + 25_000, "it was done: {recorded_ms}");
    let extended = through.extend(&extension(layout, &lease, 1_000)).await.unwrap();
    assert_eq!(extended, Lease { valid_until_ms: recorded_ms, ..lease }, "the same lease goes on, and is never cut");

    proxy.lose_answer_to("\"is_final\":true");
    let used_ms = lease.not_before_ms + 7;
    let error = through.release("default", lease.worker, lease.grant_id, used_ms).await.unwrap_err();
    assert!(matches!(error, StoreError::OutcomeUnknown { .. }), "{error:?}");
    assert!(proxy.has_lost());
    assert_eq!(end_ms().await, used_ms, "it was done");
    assert!(!through.release("default", lease.worker, lease.grant_id, lease.not_before_ms).await.unwrap());
    assert_eq!(end_ms().await, used_ms, "and it is not done twice");
    let lost = through.extend(&extension(layout, &lease, 60_000)).await;
    assert!(matches!(lost, Err(StoreError::LeaseLost { .. })), "{lost:?}");
}

/// A request that decided by what it had read finds that it was changed since, and decides anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_between_look_and_write_is_noticed() {
    let server = Zookeeper::shared().unwrap();
    let layout = layout(0);
    // Of the one worker there is: never granted, ended, running, running.
    for change in ["create", "take again", "forbid", "release"] {
        let path = server.path();
        let proxy = Proxy::start(server.port()).unwrap();
        // Patient, for it is held up.
        let slow = open(proxy.port(), &format!("{path}?session-timeout-ms=60000&request-timeout-ms=60000")).await;
        let direct = open(server.port(), &path).await;
        let mut running = None;
        if change != "create" {
            let horizon_ms = if change == "take again" { 5 } else { 60_000 };
            let lease = direct.acquire(&request(layout, "first", horizon_ms)).await.unwrap();
            running = Some(lease);
            if change == "take again" {
                until_ms(lease.valid_until_ms).await;
            }
        }
        proxy.stall_at(if change == "create" { "/leases/default/0" } else { "\"is_final\":false" });
        let held = tokio::spawn(async move {
            match change {
                "create" | "take again" => slow.acquire(&request(layout, "slow", 60_000)).await,
                _ => slow.extend(&extension(layout, &running.unwrap(), 120_000)).await,
            }
        });
        until("the write is on its way", async || proxy.is_stalled()).await;
        let mut used: Vec<Used> = Vec::new();
        match change {
            "create" | "take again" => {
                used.extend(running.map(Used::from));
                used.push(direct.acquire(&request(layout, "fast", 60_000)).await.unwrap().into());
            }
            "forbid" => assert!(direct.forbid_extension("default", 0).await.unwrap().unwrap().is_final),
            _ => {
                let Lease { grant_id, not_before_ms, .. } = running.unwrap();
                assert!(direct.release("default", 0, grant_id, not_before_ms).await.unwrap());
            }
        }
        proxy.stall(false);
        let answer = held.await.unwrap();
        let is_right = match change {
            "create" | "take again" => matches!(answer, Err(StoreError::WorkersExhausted { .. })),
            _ => matches!(answer, Err(StoreError::LeaseLost { .. })),
        };
        assert!(is_right, "{change}: {answer:?}");
        let record = &direct.leases("default").await.unwrap()[0];
        match running {
            Some(lease) if change == "forbid" => assert_eq!(record.lease, lease, "{change}"),
            Some(lease) if change == "release" => {
                assert_eq!(record.lease.valid_until_ms, lease.not_before_ms, "{change}")
            }
            _ => assert_eq!(Some(record.lease.grant_id), used.last().map(|used| used.grant_id), "{change}"),
        }
        assert_disjoint(&used);
    }
}

/// A release that was on its way for so long that its worker has a successor leaves that alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_release_leaves_the_successor_alone() {
    let server = Zookeeper::shared().unwrap();
    let (path, layout) = (server.path(), layout(0));
    let proxy = Proxy::start(server.port()).unwrap();
    let slow = open(proxy.port(), &format!("{path}?session-timeout-ms=60000&request-timeout-ms=60000")).await;
    let direct = open(server.port(), &path).await;
    let lease = slow.acquire(&request(layout, "slow", 1_000)).await.unwrap();
    proxy.stall_at("\"is_final\":true");
    let held = tokio::spawn(async move { slow.release("default", 0, lease.grant_id, lease.not_before_ms).await });
    until("the release is on its way", async || proxy.is_stalled()).await;
    until_ms(lease.valid_until_ms).await;
    let next = direct.acquire(&request(layout, "next", 60_000)).await.unwrap();
    proxy.stall(false);
    assert!(!held.await.unwrap().unwrap(), "it changed nothing");
    let record = &direct.leases("default").await.unwrap()[0];
    assert_eq!((record.lease, record.is_final), (next, false));
    assert_disjoint(&[lease.into(), next.into()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_stay_disjoint_while_the_server_is_killed_and_paused() {
    let mut server = Zookeeper::start().unwrap();
    let port = server.port();
    let url = "?request-timeout-ms=1000&connect-timeout-ms=3000";
    let crowd = Crowd::start(8, layout(2), 20, async || open(port, url).await).await;
    for _ in 0..3 {
        crowd.go_on(20).await;
        server.restart().unwrap();
        crowd.go_on(20).await;
        server.pause().unwrap();
        // Longer than an answer is waited for.
        tokio::time::sleep(Duration::from_millis(1_300)).await;
        server.resume().unwrap();
    }
    crowd.go_on(20).await;
    assert_disjoint(&crowd.end().await);
}

/// Set when its value is dropped, also by a test that fails.
struct SetAtEnd<'f>(&'f AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A leader's clock may say anything, as after an election: leases stay disjoint, and none that is handed out reaches
/// further than the horizon beyond the clock of the write that granted it.
#[tokio::test(flavor = "multi_thread")]
async fn leases_stay_disjoint_while_the_server_s_clock_jumps() {
    let server = Zookeeper::start_with_a_clock().unwrap();
    let port = server.port();
    let limits = LeaseLimits { max_horizon_ms: 50, max_skew_ms: 7_200_000 };
    let open_here = async || {
        let mut options = ZookeeperOptions::new(&format!("127.0.0.1:{port}")).unwrap();
        options.limits = limits;
        ZookeeperLeases::connect(options).await.unwrap()
    };
    let crowd = Crowd::start(6, layout(8), 50, open_here).await;
    let (raw, leases) = (raw(port).await, open_here().await);
    let done = AtomicBool::new(false);
    let jumps = std::thread::scope(|scope| {
        let is_over = SetAtEnd(&done);
        let jumping = scope.spawn(|| {
            let mut jumps = 0;
            while !done.load(Ordering::Relaxed) {
                server.set_clock(fastrand::i64(-1_800_000..1_800_000)).unwrap();
                jumps += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
            jumps
        });
        let looked = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                let (deadline, mut granted, mut went_back) = (Instant::now() + PATIENCE, 0, 0);
                while (granted < 60 || went_back == 0) && Instant::now() < deadline {
                    match leases.acquire(&request(layout(8), "watched", 50)).await {
                        Ok(lease) => {
                            granted += 1;
                            let path = format!("/unalike/leases/default/{}", lease.worker);
                            let (data, stat) = raw.get_data(&path).await.unwrap();
                            if String::from_utf8(data).unwrap().contains(&format!("{:032x}", lease.grant_id.0)) {
                                let reach_ms = lease.valid_until_ms.saturating_sub(u64::try_from(stat.mtime).unwrap());
                                assert!(reach_ms <= limits.max_horizon_ms, "{lease:?} reaches {reach_ms} ms");
                            }
                        }
                        Err(error) => {
                            assert!(error.is_retryable(), "{error:?}");
                            went_back += usize::from(error.to_string().contains("clock went back"));
                        }
                    }
                }
                (granted, went_back)
            })
        });
        drop(is_over);
        assert!(looked.0 >= 60 && looked.1 > 0, "the clock was seen going back: {looked:?}");
        jumping.join().unwrap()
    });
    assert!(jumps > 20, "{jumps}");
    assert_disjoint(&crowd.end().await);
}

/// Whatever a new leader's clock says, the recorded end rules.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_an_hour_back_reaches_no_predecessor() {
    let server = Zookeeper::start_with_a_clock().unwrap();
    server.set_clock(3_600_000).unwrap();
    let mut options = ZookeeperOptions::new(&format!("127.0.0.1:{}", server.port())).unwrap();
    options.limits = LeaseLimits { max_horizon_ms: 86_400_000, max_skew_ms: 7_200_000 };
    let leases = ZookeeperLeases::connect(options.clone()).await.unwrap();
    let lease = leases.acquire(&request(layout(0), "a", 1_000)).await.unwrap();
    assert!(lease.valid_until_ms > now_ms() + 3_500_000, "{lease:?}");
    server.set_clock(0).unwrap();
    let Err(StoreError::WorkersExhausted { free_at_ms, .. }) = leases.acquire(&request(layout(0), "b", 1_000)).await
    else {
        panic!("the worker is not free");
    };
    assert_eq!(free_at_ms, lease.valid_until_ms);
    let extended = leases.extend(&extension(layout(0), &lease, 1_000)).await.unwrap();
    assert_eq!(extended, lease, "and nothing is lowered");
    server.set_clock(-86_400_000 + 3_600_000).unwrap();
    let too_far = LeaseExtend { now_ms: now_ms() - 82_800_000, ..extension(layout(0), &lease, 1_000) };
    let error = leases.extend(&too_far).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "more than the greatest horizon ahead: {error:?}");
    server.set_clock(0).unwrap();
    assert!(leases.release("default", 0, lease.grant_id, lease.not_before_ms + 5).await.unwrap());
    server.set_clock(3_600_000 + 60_000).unwrap();
    // Who saw the clock being set ahead does not count that hour as over, and who comes later knows of no step.
    let error = leases.acquire(&request(layout(0), "b", 1_000)).await.unwrap_err();
    assert!(matches!(error, StoreError::WorkersExhausted { .. }), "{error:?}");
    let later = ZookeeperLeases::connect(options).await.unwrap();
    let next = later.acquire(&request(layout(0), "b", 1_000)).await.unwrap();
    assert!(next.not_before_ms >= lease.not_before_ms + 5, "{next:?}, {lease:?}");
}

/// A request that waited in a queue looks as if its holder's clock were behind: that passes.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waited_is_refused_for_the_moment_with_both_clocks() {
    let server = Zookeeper::shared().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let path = server.path();
    // A client gives a connection up that is silent for two fifths of its session's time.
    let url = format!("zookeeper://127.0.0.1:{}{path}?session-timeout-ms=30000", proxy.port());
    let mut options = ZookeeperOptions::from_url(&url).unwrap();
    options.limits.max_skew_ms = 2_000;
    let leases = ZookeeperLeases::connect(options).await.unwrap();
    proxy.stall_at("/unalike/clock");
    let asked = request(layout(2), "a", 60_000);
    let asked_ms = asked.now_ms;
    let waiting = {
        let (leases, asked) = (leases.clone(), asked.clone());
        tokio::spawn(async move { leases.acquire(&asked).await })
    };
    until_ms(asked_ms + 2_300).await;
    proxy.stall(false);
    let error = waiting.await.unwrap().unwrap_err();
    let StoreError::ClockSkew { holder_ms, store_ms, max_skew_ms: 2_000 } = error else { panic!("{error:?}") };
    assert!(holder_ms == asked_ms && store_ms >= asked_ms + 2_300 && error.is_retryable(), "{error:?}");
    assert_eq!(leases.namespaces().await.unwrap(), [""; 0], "and nothing was bound");
    leases.acquire(&request(layout(2), "a", 60_000)).await.unwrap();
}

/// A session is worth nothing: when ZooKeeper has ended it, the lease goes on over another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_outlives_its_session() {
    let server = Zookeeper::shared().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let path = server.path();
    let url = format!("{path}?session-timeout-ms=2000&request-timeout-ms=1000&connect-timeout-ms=2000");
    let leases = open(proxy.port(), &url).await;
    let lease = leases.acquire(&request(layout(2), "a", 60_000)).await.unwrap();
    // A session of the same kind, whose end can be seen.
    let session = Client::connector().with_session_timeout(Duration::from_millis(2_000));
    let session = session.connect(&format!("127.0.0.1:{}", proxy.port())).await.unwrap();
    let mark = format!("{path}/unalike/mark");
    session.create(&mark, b"", &CreateMode::Ephemeral.with_acls(Acls::anyone_all())).await.unwrap();
    let direct = raw(server.port()).await;
    assert!(direct.check_stat(&mark).await.unwrap().is_some());
    proxy.stall(true);
    until("the session ends", async || direct.check_stat(&mark).await.unwrap().is_none()).await;
    let error = leases.extend(&extension(layout(2), &lease, 120_000)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    proxy.stall(false);
    let deadline = Instant::now() + PATIENCE;
    let extended = loop {
        match leases.extend(&extension(layout(2), &lease, 120_000)).await {
            Ok(extended) => break extended,
            Err(error) => assert!(error.is_retryable() && Instant::now() < deadline, "{error:?}"),
        }
    };
    assert!(extended.grant_id == lease.grant_id && extended.valid_until_ms > lease.valid_until_ms);
}

/// A server that is not there, or does not answer, is an error in bounded time, however many ask.
#[tokio::test(flavor = "multi_thread")]
async fn requests_end_in_bounded_time() {
    let mut server = Zookeeper::start().unwrap();
    let port = server.port();
    let leases = open(port, "?request-timeout-ms=1000&connect-timeout-ms=1000").await;
    let lease = leases.acquire(&request(layout(2), "a", 60_000)).await.unwrap();
    let all_fail = async || {
        let started = Instant::now();
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let leases = leases.clone();
                tokio::spawn(async move { leases.extend(&extension(layout(2), &lease, 120_000)).await })
            })
            .collect();
        for task in tasks {
            let error = task.await.unwrap().unwrap_err();
            assert!(matches!(error, StoreError::Unavailable { .. }), "nothing was written: {error:?}");
        }
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    };
    server.pause().unwrap();
    all_fail().await;
    // Now the connection is given up, and none can be made.
    all_fail().await;
    server.resume().unwrap();
    server.kill9().unwrap();
    all_fail().await;
    let unreachable = ZookeeperOptions::from_url(&format!("zookeeper://127.0.0.1:{port}")).unwrap();
    assert!(matches!(ZookeeperLeases::connect(unreachable.clone()).await, Err(StoreError::Unavailable { .. })));
    // A store that is not connected yet may be made all the same.
    let late = ZookeeperLeases::new(unreachable).unwrap();
    assert!(late.leases("default").await.is_err());
    server.restart().unwrap();
    assert_eq!(late.leases("default").await.unwrap()[0].lease.grant_id, lease.grant_id);
    until("it goes on", async || leases.extend(&extension(layout(2), &lease, 120_000)).await.is_ok()).await;
}

/// The task of a connection ends with the runtime that it was made in; the store goes on in another one.
#[test]
fn a_store_outlives_the_runtime_that_it_was_made_in() {
    let server = Zookeeper::shared().unwrap();
    let path = server.path();
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let leases = runtime().block_on(open(server.port(), &path));
    runtime().block_on(async {
        until("it goes on", async || leases.acquire(&request(layout(2), "a", 60_000)).await.is_ok()).await;
    });
}

/// As many as there are workers, at once and all under one name: each gets one, though all want the same.
#[tokio::test(flavor = "multi_thread")]
async fn holders_of_one_name_get_a_worker_each() {
    let server = Zookeeper::shared().unwrap();
    // On a busy machine the answers to so many at once may be seconds late.
    let path = format!("{}?session-timeout-ms=60000&request-timeout-ms=60000", server.path());
    let layout = layout(7);
    let mut used: Vec<Used> = Vec::new();
    for horizon_ms in [1, 60_000] {
        let (mut tasks, start) = (Vec::new(), Arc::new(Barrier::new(128)));
        for _ in 0..128 {
            let (leases, start) = (open(server.port(), &path).await, Arc::clone(&start));
            tasks.push(tokio::spawn(async move {
                start.wait().await;
                loop {
                    match leases.acquire(&request(layout, "one", horizon_ms)).await {
                        Ok(lease) => return lease,
                        Err(StoreError::WorkersExhausted { .. }) if horizon_ms == 1 => {}
                        Err(error) => panic!("there is one for each: {error:?}"),
                    }
                }
            }));
        }
        for task in tasks {
            used.push(task.await.unwrap().into());
        }
    }
    assert_disjoint(&used);
    let workers: BTreeSet<_> = used.iter().skip(128).map(|used| used.worker).collect();
    assert_eq!(workers.len(), 128);
}

/// Nodes that were damaged, added or removed by somebody else are refused, and the error names them.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_nodes_are_refused() {
    let server = Zookeeper::shared().unwrap();
    let raw = raw(server.port()).await;
    for damage in ["worker", "namespace", "name", "beyond", "removed"] {
        let path = server.path();
        let leases = open(server.port(), &path).await;
        let layout = layout(2);
        let lease = leases.acquire(&request(layout, "a", 60_000)).await.unwrap();
        let namespace = format!("{path}/unalike/leases/default");
        let worker = format!("{namespace}/{}", lease.worker);
        match damage {
            "worker" => drop(raw.set_data(&worker, b"{}", None).await.unwrap()),
            "namespace" => drop(raw.set_data(&namespace, b"{}", None).await.unwrap()),
            "name" | "beyond" => {
                let (data, _) = raw.get_data(&worker).await.unwrap();
                let name = if damage == "name" { "01" } else { "4" };
                let odd = CreateMode::Persistent.with_acls(Acls::anyone_all());
                raw.create(&format!("{namespace}/{name}"), &data, &odd).await.unwrap();
            }
            _ => raw.delete(&worker, None).await.unwrap(),
        }
        let error = leases.acquire(&request(layout, "b", 60_000)).await.unwrap_err();
        let StoreError::Corrupt { what, .. } = &error else { panic!("{damage}: {error:?}") };
        assert!(what.contains(&namespace) && !error.is_retryable(), "{damage}: {error}");
        let extended = leases.extend(&extension(layout, &lease, 120_000)).await;
        let is_right = match damage {
            "worker" | "namespace" => matches!(extended, Err(StoreError::Corrupt { .. })),
            "removed" => matches!(extended, Err(StoreError::LeaseLost { .. })),
            _ => extended.is_ok(),
        };
        assert!(is_right, "{damage}: {extended:?}");
    }
}

/// A store that lost everything, or another one in its place, may lease a worker that others still use: who knew the
/// one before takes no lease there, and says why.
#[tokio::test(flavor = "multi_thread")]
async fn another_store_is_never_taken_for_the_one_before() {
    let server = Zookeeper::shared().unwrap();
    let (path, raw, layout) = (server.path(), raw(server.port()).await, layout(0));
    let before = open(server.port(), &path).await;
    let lease = before.acquire(&request(layout, "a", 60_000)).await.unwrap();
    let known = before.identity().await.unwrap().unwrap().to_string();
    let empty = async || {
        for node in ["leases/default/0", "leases/default", "identity"] {
            raw.delete(&format!("{path}/unalike/{node}"), None).await.unwrap();
        }
    };
    empty().await;
    let refused = |error: StoreError, found: &str| {
        let StoreError::Refused { what, .. } = &error else { panic!("{error:?}") };
        assert!(what.contains(&format!("another one than before ({found}, not {known})")), "{what}");
        assert!(!error.is_retryable() && !error.may_have_granted(), "{error:?}");
    };
    for _ in 0..2 {
        refused(before.acquire(&request(layout, "a", 60_000)).await.unwrap_err(), "a store without a name");
    }
    let after = open(server.port(), &path).await;
    let again = after.acquire(&request(layout, "b", 60_000)).await.unwrap();
    assert_eq!(again.worker, lease.worker, "it knows nothing of the one before");
    let found = after.identity().await.unwrap().unwrap().to_string();
    for _ in 0..2 {
        refused(before.acquire(&request(layout, "a", 60_000)).await.unwrap_err(), &found);
        refused(before.extend(&extension(layout, &lease, 90_000)).await.unwrap_err(), &found);
        refused(before.identity().await.map(drop).unwrap_err(), &found);
    }
}

/// All nodes from this one down, each before those below it, with their data.
async fn nodes(raw: &Client, node: &str) -> Vec<(String, Vec<u8>)> {
    let (mut found, mut left) = (Vec::new(), vec![node.to_owned()]);
    while let Some(path) = left.pop() {
        let (data, _) = raw.get_data(&path).await.unwrap();
        let (below, _) = raw.get_children(&path).await.unwrap();
        left.extend(below.iter().map(|name| format!("{path}/{name}")));
        found.push((path, data));
    }
    found
}

/// Makes the nodes from this one down those of a backup.
async fn put_back(raw: &Client, node: &str, backup: &[(String, Vec<u8>)]) {
    for (path, _) in nodes(raw, node).await.iter().rev() {
        raw.delete(path, None).await.unwrap();
    }
    for (path, data) in backup {
        raw.create(path, data, &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.unwrap();
    }
}

/// Options for the store below a path, with these limits.
fn options(port: u16, path: &str, limits: LeaseLimits) -> ZookeeperOptions {
    let mut options = ZookeeperOptions::from_url(&format!("zookeeper://127.0.0.1:{port}{path}")).unwrap();
    options.limits = limits;
    options
}

/// Panics unless a program that knew the store before is refused, with the way on.
#[track_caller]
fn assert_another_store<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    let error = answer.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }) && !error.is_retryable(), "{error:?}");
    for word in ["another one than before", "unalike store restored"] {
        assert!(error.to_string().contains(word), "{error}");
    }
}

/// An ensemble that was put back has forgotten leases that still run, and nothing in it tells. Once an operator says
/// it, programs that run are refused for good, and no lease begins before what was forgotten has ended: not in a
/// namespace that was forgotten either.
#[tokio::test(flavor = "multi_thread")]
async fn an_ensemble_that_was_put_back_leases_nothing_before_what_it_forgot_has_ended() {
    let server = Zookeeper::shared().unwrap();
    let (path, raw, layout) = (server.path(), raw(server.port()).await, layout(0));
    let options = options(server.port(), &path, LeaseLimits { max_horizon_ms: 1_000, max_skew_ms: 2_000 });
    let ask = |namespace: &str, horizon_ms| LeaseAcquire {
        namespace: namespace.to_owned(),
        ..request(layout, "a", horizon_ms)
    };
    let running = ZookeeperLeases::connect(options.clone()).await.unwrap();
    let known = running.acquire(&ask("default", 50)).await.unwrap();
    until_ms(known.valid_until_ms).await;
    let root = format!("{path}/unalike");
    let backup = nodes(&raw, &root).await;
    let forgotten = running.acquire(&ask("default", 1_000)).await.unwrap();
    let forgotten_too = running.acquire(&ask("lost", 1_000)).await.unwrap();
    put_back(&raw, &root, &backup).await;
    // Nobody notices: the worker that somebody may still use is leased again.
    let doubled = running.acquire(&ask("default", 50)).await.unwrap();
    assert_eq!(doubled.worker, forgotten.worker);

    let restored = ZookeeperLeases::restored(options.clone()).await.unwrap();
    assert!(restored.leases_from_ms >= forgotten.valid_until_ms.max(forgotten_too.valid_until_ms), "{restored:?}");
    let stays_refused = async || {
        for _ in 0..4 {
            assert_another_store(running.acquire(&ask("default", 1_000)).await);
            assert_another_store(running.acquire(&ask("lost", 1_000)).await);
            assert_another_store(running.extend(&extension(layout, &doubled, 1_000)).await);
            assert_another_store(running.extend(&extension(layout, &forgotten, 1_000)).await);
            assert_another_store(running.identity().await);
        }
    };
    stays_refused().await;
    let after = ZookeeperLeases::connect(options.clone()).await.unwrap();
    // Also by a program that kept a copy of its lease, whether the store knows it or not.
    for lease in [&doubled, &forgotten] {
        let extended = after.extend(&extension(layout, lease, 1_000)).await;
        assert!(matches!(extended, Err(StoreError::LeaseLost { .. })), "{extended:?}");
    }
    let waits = async |leases: &ZookeeperLeases, from_ms: u64| {
        for namespace in ["default", "lost", "new"] {
            let early = leases.acquire(&ask(namespace, 1_000)).await.unwrap_err();
            let is_told = matches!(early, StoreError::Quarantined { until_ms, .. } if until_ms == from_ms);
            assert!(is_told, "{namespace}: {early:?}, {from_ms}");
        }
        assert_eq!(leases.namespaces().await.unwrap(), ["default"], "a request that is refused binds nothing");
    };
    waits(&after, restored.leases_from_ms).await;

    let again = ZookeeperLeases::restored(options.clone()).await.unwrap();
    assert!(again.leases_from_ms >= restored.leases_from_ms, "{again:?}, {restored:?}");
    assert_another_store(after.acquire(&ask("default", 1_000)).await);
    let last = ZookeeperLeases::connect(options).await.unwrap();
    waits(&last, again.leases_from_ms).await;
    until_ms(again.leases_from_ms).await;
    let mut next = Vec::new();
    for namespace in ["default", "lost", "new"] {
        let lease = last.acquire(&ask(namespace, 1_000)).await.unwrap();
        assert!(lease.not_before_ms >= again.leases_from_ms, "{namespace}: {lease:?}");
        next.push(lease);
    }
    let extended = last.extend(&extension(layout, &next[0], 1_000)).await.unwrap();
    assert_eq!(extended.grant_id, next[0].grant_id, "those that began later go on");
    assert_disjoint(&[forgotten.into(), extended.into()]);
    assert_disjoint(&[forgotten_too.into(), next[1].into()]);
    stays_refused().await;
}

/// A grant or an extension that was on its way meanwhile is used by nobody.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_on_its_way_when_a_restored_ensemble_was_named_anew_is_refused() {
    let server = Zookeeper::shared().unwrap();
    let layout = layout(2);
    for is_extension in [false, true] {
        let path = server.path();
        let proxy = Proxy::start(server.port()).unwrap();
        // Patient, for it is held up.
        let slow = open(proxy.port(), &format!("{path}?session-timeout-ms=60000&request-timeout-ms=60000")).await;
        let lease = slow.acquire(&request(layout, "a", 30_000)).await.unwrap();
        proxy.stall_at("\"is_final\":false");
        let held = tokio::spawn(async move {
            match is_extension {
                true => slow.extend(&extension(layout, &lease, 60_000)).await,
                false => slow.acquire(&request(layout, "b", 30_000)).await,
            }
        });
        until("the write is on its way", async || proxy.is_stalled()).await;
        ZookeeperLeases::restored(options(server.port(), &path, LeaseLimits::default())).await.unwrap();
        proxy.stall(false);
        assert_another_store(held.await.unwrap());
    }
}

/// Where no store is, the path may be mistyped. A store that an earlier version left without a name is one.
#[tokio::test(flavor = "multi_thread")]
async fn only_a_store_that_is_there_is_restored() {
    let server = Zookeeper::shared().unwrap();
    let (path, raw, layout) = (server.path(), raw(server.port()).await, layout(2));
    let options = options(server.port(), &path, LeaseLimits::default());
    let error = ZookeeperLeases::restored(options.clone()).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("there is no store of leases"), "{error}");
    assert!(raw.check_stat(&path).await.unwrap().is_none(), "and none is made");
    let leases = open(server.port(), &path).await;
    leases.acquire(&request(layout, "a", 60_000)).await.unwrap();
    raw.delete(&format!("{path}/unalike/identity"), None).await.unwrap();
    let restored = ZookeeperLeases::restored(options).await.unwrap();
    let early = open(server.port(), &path).await.acquire(&request(layout, "b", 60_000)).await;
    let is_told = matches!(early, Err(StoreError::Quarantined { until_ms, .. }) if until_ms == restored.leases_from_ms);
    assert!(is_told, "{early:?}, {restored:?}");
}

/// As an operator says it.
#[tokio::test(flavor = "multi_thread")]
async fn an_ensemble_that_was_put_back_is_restored_by_command() {
    let server = Zookeeper::shared().unwrap();
    let (path, layout, directory) = (server.path(), layout(2), TempDir::new().unwrap());
    let url = format!("zookeeper://127.0.0.1:{}{path}", server.port());
    let command = |word| ["--store", url.as_str(), "store", word, "--lift", "1"];
    fails(directory.path(), &command("restored"), 1, &["there is no store of leases", &path]);
    for (word, done) in [("restored", "it continues with the restored data"), ("adopt", "the server is adopted")] {
        let running = open(server.port(), &path).await;
        running.identity().await.unwrap();
        let said = ok(directory.path(), &command(word));
        for part in [path.as_str(), done, "snowflakes: workers are leased from", "start the programs"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!said.contains("tags") && !said.contains("dialects"), "{said}");
        assert_another_store(running.acquire(&request(layout, "a", 60_000)).await);
        let early = open(server.port(), &path).await.acquire(&request(layout, "a", 60_000)).await;
        assert!(matches!(early, Err(StoreError::Quarantined { .. })), "{early:?}");
    }
    // Nothing else was begun, and no other command takes such a store.
    assert!(!directory.path().join("unalike.sqlite").exists());
    fails(directory.path(), &["--store", &url, "next", "order"], 1, &["ZooKeeper keeps leases", "--leases"]);
}

/// Nodes are their user's alone; who may not use them is told.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_s_nodes_are_the_user_s_alone() {
    let server = Zookeeper::shared().unwrap();
    let (port, path) = (server.port(), server.path());
    let open_as = async |user: &str| {
        let url = format!("zookeeper://{user}127.0.0.1:{port}{path}");
        ZookeeperLeases::connect(ZookeeperOptions::from_url(&url).unwrap()).await.unwrap()
    };
    let lease = open_as("ids:s%2Fcret@").await.acquire(&request(layout(2), "a", 60_000)).await.unwrap();
    open_as("ids:s%2Fcret@").await.extend(&extension(layout(2), &lease, 90_000)).await.unwrap();
    for stranger in ["ids:other@", ""] {
        let leases = open_as(stranger).await;
        for error in [
            leases.acquire(&request(layout(2), "b", 60_000)).await.unwrap_err(),
            leases.extend(&extension(layout(2), &lease, 60_000)).await.unwrap_err(),
            leases.release("default", lease.worker, lease.grant_id, lease.not_before_ms).await.map(drop).unwrap_err(),
            leases.leases("default").await.map(drop).unwrap_err(),
        ] {
            assert!(matches!(error, StoreError::Refused { .. }), "{stranger}: {error:?}");
            assert!(!format!("{error:?}").contains("other"), "{error:?}");
        }
    }
}

/// 1,024 workers are read at once: not one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_workers_take_few_round_trips() {
    let server = Zookeeper::shared().unwrap();
    let path = server.path();
    let leases = open(server.port(), &path).await;
    let layout = layout(10);
    let first = leases.acquire(&request(layout, "a", 600_000)).await.unwrap();
    let raw = raw(server.port()).await;
    let namespace = format!("{path}/unalike/leases/default");
    let (data, _) = raw.get_data(&format!("{namespace}/{}", first.worker)).await.unwrap();
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let others: Vec<_> = (0..1_024).filter(|worker| *worker != first.worker).collect();
    let paths: Vec<_> = others.iter().map(|worker| format!("{namespace}/{worker}")).collect();
    let made: Vec<_> = paths.iter().map(|path| raw.create(path, &data, &options)).collect();
    for made in made {
        made.await.unwrap();
    }
    // All but this one run.
    let last = leases.leases("default").await.unwrap()[1_023].lease;
    assert_eq!(last.worker, 1_023);
    assert!(leases.release("default", 1_023, last.grant_id, last.not_before_ms).await.unwrap());
    let proxy = Proxy::start(server.port()).unwrap();
    let slow = open(proxy.port(), &path).await;
    let (before, started) = (proxy.requests(), Instant::now());
    let lease = slow.acquire(&request(layout, "b", 60_000)).await.unwrap();
    let (requests, took) = (proxy.requests() - before, started.elapsed());
    assert_eq!(lease.worker, 1_023);
    println!("1,024 workers: {requests} packets, {took:?}");
    assert!(requests < 200, "{requests} packets for 1,024 workers");
    let before = proxy.requests();
    slow.extend(&extension(layout, &lease, 120_000)).await.unwrap();
    let packets = proxy.requests() - before;
    // Four questions, then a write and a question behind it: what is sent at once is fewer packets.
    assert!(packets <= 5, "an extension is two round trips: {packets} packets");
}

/// End to end: ids flow while ZooKeeper is away for less than the horizon, and are as unique as ever.
#[tokio::test(flavor = "multi_thread")]
async fn ids_flow_through_an_outage_shorter_than_the_horizon() {
    let mut server = Zookeeper::start().unwrap();
    let leases = open(server.port(), "?request-timeout-ms=1000&connect-timeout-ms=1000").await;
    let ids = Ids::builder().leases(Arc::new(leases.clone())).holder("a").build().await.unwrap();
    let mut options = SnowflakeOptions::new(Layout::LEAF);
    options.horizon_ms = 18_000;
    let flakes = ids.snowflake("default", options).await.unwrap();
    let mut seen = BTreeSet::new();
    let mut make = async |for_ms: u64| {
        let until = Instant::now() + Duration::from_millis(for_ms);
        while Instant::now() < until {
            assert!(seen.insert(flakes.next().await.unwrap()), "an id comes twice");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    make(200).await;
    server.kill9().unwrap();
    // Longer than a third of the horizon, after which the lease should have been renewed.
    make(6_500).await;
    let held = flakes.status().unwrap();
    server.restart().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while flakes.status().unwrap().valid_until_ms == held.valid_until_ms {
        assert!(Instant::now() < deadline, "the lease is renewed");
        make(50).await;
    }
    make(200).await;
    let status = flakes.status().unwrap();
    assert_eq!(status.worker, held.worker, "it is still the same worker");
    ids.close().await;
    let record = &leases.leases("default").await.unwrap()[0];
    assert!(record.is_final && record.lease.valid_until_ms < now_ms() + 1_000, "it was given back: {record:?}");
}
