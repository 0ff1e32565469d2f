//! Outages of PostgreSQL, each provoked on a real server: what the store says of it (is it worth a retry, may the grant
//! have been made, is it the caller's fault), that no number is granted twice, and that the store recovers by itself.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use unalike::{Ids, Sequence, SequenceOptions, StepPolicy};
use unalike_postgres::{PostgresLeases, PostgresOptions, PostgresStore};
use unalike_storage::{
    Layout, LeaseAcquire, LeaseExtend, LeaseStore as _, Mode, Segment, SegmentStore, StoreError, TagOptions,
};
use unalike_tests::PATIENCE;
use unalike_tests::leases::{assert_disjoint, now_ms};
use unalike_tests::postgres::Postgres;
use unalike_tests::proxy::Proxy;
use unalike_tests::users::Users;

/// Worth a retry, may have granted, the caller's fault.
type Judgement = (bool, bool, bool);
const UNAVAILABLE: Judgement = (true, false, false);
const OUTCOME_UNKNOWN: Judgement = (true, true, false);
const REFUSED: Judgement = (false, false, false);

async fn try_connect(url: &str, parameters: &str) -> Result<PostgresStore, StoreError> {
    PostgresStore::connect(PostgresOptions::from_url(&format!("{url}?{parameters}"))?).await
}

async fn connect(url: &str, parameters: &str) -> PostgresStore {
    try_connect(url, parameters).await.unwrap()
}

/// A connection of the test's own.
async fn raw(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap()
}

async fn run(connection: &mut PgConnection, statement: &str) {
    connection.execute(AssertSqlSafe(statement)).await.unwrap();
}

/// A transaction of somebody else that has a tag's row in hand, until it is dropped.
async fn lock_row(url: &str, tag: &str) -> PgConnection {
    let mut connection = raw(url).await;
    run(&mut connection, "BEGIN").await;
    run(&mut connection, &format!("SELECT watermark FROM unalike_tag WHERE tag = '{tag}' FOR UPDATE")).await;
    connection
}

/// The error and all that is behind it, in words.
fn said(error: &StoreError) -> String {
    let mut words = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        words = format!("{words}: {error}");
        source = error.source();
    }
    words
}

/// Checks what an error says: to programs, and to people.
fn judge<T: std::fmt::Debug>(answer: Result<T, StoreError>, judgement: Judgement, words: &str) {
    let error = match answer {
        Ok(answer) => panic!("{words:?} was to come, and not {answer:?}"),
        Err(error) => error,
    };
    let judged = (error.is_retryable(), error.may_have_granted(), error.is_callers_fault());
    assert_eq!(judged, judgement, "{error:?}");
    assert!(said(&error).contains(words), "{words:?} is not in {:?}", said(&error));
}

/// Waits until something holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: it does not come to be so");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until so many statements wait for a lock.
async fn until_waiting(server: &Postgres, count: usize) {
    until("statements wait for a lock", || waiting(server).len() == count).await;
}

/// The processes of the sessions whose statements wait for a lock.
fn waiting(server: &Postgres) -> Vec<String> {
    let select = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    server.sql("postgres", select).unwrap().lines().map(str::to_owned).collect()
}

/// Grants until one succeeds, which a store that recovers by itself does soon. All failures must be worth a retry.
async fn allocate_at_last(store: &PostgresStore, tag: &str) -> Segment {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match store.allocate(tag, 10, 0).await {
            Ok(segment) => return segment,
            Err(error) => assert!(error.is_retryable() && Instant::now() < deadline, "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn what_is_missing_or_forbidden_is_refused_and_says_what_to_do() {
    let server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    judge(try_connect(&url.replace("postgres@", "stranger:wrong@"), "").await, REFUSED, "denied access");
    let (address, database) = url.rsplit_once('/').unwrap();
    judge(try_connect(&format!("{address}/nowhere"), "").await, REFUSED, "no such database: create it");
    let store = connect(&url, "").await;
    store.allocate("order", 10, 0).await.unwrap();
    server.sql(database, "CREATE ROLE ids LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO ids").unwrap();
    let reader = connect(&url.replace("postgres@", "ids@"), "create=false").await;
    judge(reader.allocate("order", 10, 0).await, REFUSED, "lacks a privilege");
    server.sql(database, "ALTER TABLE unalike_tag RENAME TO gone").unwrap();
    judge(store.allocate("order", 10, 0).await, REFUSED, "`unalike schema` prints what is needed");
    server.sql(database, "ALTER TABLE gone RENAME TO unalike_tag").unwrap();
    store.allocate("order", 10, 0).await.unwrap();
}

#[tokio::test]
async fn a_server_that_cannot_do_it_now_is_unavailable_and_nothing_was_granted() {
    let server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    let (_, database) = url.rsplit_once('/').unwrap();
    let store = connect(&url, "connections=1&request-timeout-ms=2500").await;
    let first = store.allocate("order", 10, 0).await.unwrap();

    server.sql("postgres", &format!("ALTER DATABASE {database} CONNECTION LIMIT 1; CREATE ROLE one LOGIN")).unwrap();
    let one = url.replace("postgres@", "one@");
    judge(try_connect(&one, "").await, UNAVAILABLE, "too many connections");
    server.sql("postgres", &format!("ALTER DATABASE {database} CONNECTION LIMIT -1")).unwrap();

    let lock = lock_row(&url, "order").await;
    judge(store.allocate("order", 10, 0).await, UNAVAILABLE, "another transaction holds the row for too long");
    drop(lock);
    let second = store.allocate("order", 10, 0).await.unwrap();
    assert_eq!(second.start, first.end, "nothing was granted");

    // A table that was changed: plans of before are of no use.
    server.sql(database, "ALTER TABLE unalike_tag ADD COLUMN note TEXT").unwrap();
    assert_eq!(allocate_at_last(&store, "order").await.start, second.end, "nothing was granted");
    store.tag("order").await.map(drop).or_else(|error| if error.is_retryable() { Ok(()) } else { Err(error) }).unwrap();
    assert_eq!(store.tag("order").await.unwrap().watermark, second.end + 9);
}

#[tokio::test]
async fn tables_that_are_made_unlogged_while_programs_run_are_told_once_a_crash_has_emptied_them() {
    let mut server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    let (_, database) = url.rsplit_once('/').unwrap();
    let store = connect(&url, "").await;
    let leases = store.leases().await.unwrap();
    let acquire = |namespace: &str| LeaseAcquire {
        namespace: namespace.to_owned(),
        holder: "holder".to_owned(),
        layout: Layout::TWITTER,
        preferred_worker: Some(7),
        horizon_ms: 60_000,
        now_ms: now_ms(),
    };
    store.allocate("order", 10, 0).await.unwrap();
    leases.acquire(&acquire("default")).await.unwrap();
    let tables = ["unalike_tag", "unalike_lease", "unalike_lease_namespace"];
    for table in tables {
        server.sql(database, &format!("ALTER TABLE {table} SET UNLOGGED")).unwrap();
    }
    server.restart().unwrap();
    let answer = loop {
        match store.allocate("order", 10, 0).await {
            Err(error) if error.is_retryable() => {}
            other => break other,
        }
    };
    judge(answer, REFUSED, "unalike_tag is unlogged");
    judge(store.create_tags(&[("new".to_owned(), TagOptions::default())]).await, REFUSED, "unalike_tag is unlogged");
    judge(leases.acquire(&acquire("default")).await, REFUSED, "is unlogged");
    server.sql(database, "ALTER TABLE unalike_lease_namespace SET LOGGED").unwrap();
    judge(leases.acquire(&acquire("default")).await, REFUSED, "unalike_lease is unlogged");
}

#[tokio::test]
async fn a_server_that_ends_idle_sessions_costs_no_request() {
    let server = Postgres::start_with(&["idle_session_timeout=300ms"]).unwrap();
    let store = connect(&server.database().unwrap(), "").await;
    let mut next = 1;
    for _ in 0..3 {
        let granted = store.allocate("order", 10, 0).await.unwrap();
        assert_eq!(granted.start, next);
        next = granted.end;
        // Longer than that, and shorter than a connection is trusted without a question.
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_grants_nothing_and_is_worth_a_retry() {
    // The store's session looks for a deadlock once, so long after it began to wait: on a busy machine the other one
    // has to wait too by then.
    let server = Postgres::start_with(&["deadlock_timeout=3s"]).unwrap();
    let url = server.database().unwrap();
    let store = Arc::new(connect(&url, "").await);
    let end = store.allocate("order", 10, 0).await.unwrap().end;
    // A tag is ended with two rows in hand, in an order that somebody else does not keep.
    store.allocate("other", 10, 0).await.unwrap();
    let mut raw = lock_row(&url, "other").await;
    let ending = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.retire_tags(&["order".to_owned(), "other".to_owned()]).await }
    });
    until_waiting(&server, 1).await;
    // Who looks first is the victim.
    run(&mut raw, "SET deadlock_timeout = '60s'").await;
    run(&mut raw, "UPDATE unalike_tag SET refill = 20 WHERE tag = 'order'").await;
    judge(ending.await.unwrap(), UNAVAILABLE, "lost against another one and was rolled back");
    run(&mut raw, "COMMIT").await;
    assert_eq!(store.allocate("order", 10, 0).await.unwrap().start, end, "nothing was ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_or_connection_that_ends_in_the_middle_leaves_no_number_in_two_hands() {
    let mut server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    let store = Arc::new(connect(&url, "").await);
    let mut end = store.allocate("order", 10, 0).await.unwrap().end;

    type Ending = (&'static str, Judgement, fn(&mut Postgres));
    let endings: [Ending; 3] = [
        // An ERROR is the server's word that it was not done.
        ("pg_cancel_backend", UNAVAILABLE, |server| {
            for id in waiting(server) {
                server.sql("postgres", &format!("SELECT pg_cancel_backend({id})")).unwrap();
            }
        }),
        ("pg_terminate_backend", OUTCOME_UNKNOWN, |server| {
            for id in waiting(server) {
                server.sql("postgres", &format!("SELECT pg_terminate_backend({id})")).unwrap();
            }
        }),
        ("SIGKILL", OUTCOME_UNKNOWN, |server| server.kill9().unwrap()),
    ];
    for (ending, judgement, bring_about) in endings {
        let lock = lock_row(&url, "order").await;
        let granting = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.allocate("order", 10, 0).await }
        });
        until_waiting(&server, 1).await;
        bring_about(&mut server);
        judge(granting.await.unwrap(), judgement, "allocating a segment");
        drop(lock);
        if ending == "SIGKILL" {
            // Nobody listens: nothing can have been granted.
            judge(store.allocate("order", 10, 0).await, UNAVAILABLE, "cannot be reached");
            judge(store.tag("order").await, UNAVAILABLE, "cannot be reached");
            server.restart().unwrap();
        }
        let segment = allocate_at_last(&store, "order").await;
        assert!(segment.start >= end, "{ending}: {segment:?} after {end}");
        end = segment.end;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_dropped_leaves_no_transaction_behind() {
    let server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    let (_, database) = url.rsplit_once('/').unwrap();
    let store = connect(&url, "").await;
    store.allocate("order", 10, 0).await.unwrap();
    let leases = store.leases().await.unwrap();
    for polls in 1..30 {
        let tag = format!("tag-{polls}");
        abandoned_after(polls, store.allocate(&tag, 10, 0)).await;
        abandoned_after(polls, leases.acquire(&acquire_request())).await;
    }
    let open = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}' AND application_name = 'unalike' \
         AND state LIKE 'idle in transaction%'"
    );
    until("no transaction is open", || server.sql("postgres", &open).unwrap().trim() == "0").await;
    let lock = "SELECT 1 FROM unalike_store, unalike_tag FOR UPDATE OF unalike_store, unalike_tag NOWAIT";
    until("nothing is locked", || server.sql(database, lock).is_ok()).await;
    store.allocate("last", 10, 0).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_that_broke_cost_one_request_and_not_one_each() {
    let mut server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    let store = Arc::new(connect(&url, "connections=5").await);
    store.allocate("order", 10, 0).await.unwrap();
    // Five connections, all of them open and idle.
    let lock = lock_row(&url, "order").await;
    let requests: Vec<_> = (0..5)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.allocate("order", 10, 0).await })
        })
        .collect();
    until_waiting(&server, 5).await;
    drop(lock);
    let mut end = 0;
    for request in requests {
        end = end.max(request.await.unwrap().unwrap().end);
    }
    server.restart().unwrap();
    let mut answer = store.allocate("order", 10, 0).await;
    // One that was used within the last second is trusted.
    if answer.is_err() {
        // A server that is killed may still say so.
        let has_said_so = answer.as_ref().is_err_and(|error| said(error).contains("unexpected postmaster exit"));
        judge(answer, OUTCOME_UNKNOWN, if has_said_so { "ended the connection" } else { "the connection broke" });
        answer = store.allocate("order", 10, 0).await;
    }
    let segment = answer.unwrap();
    assert!(segment.start >= end, "{segment:?} after {end}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_server_ends_requests_in_time_and_then_goes_on() {
    let server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    let store = connect(&url, "request-timeout-ms=1000&connect-timeout-ms=600000&connections=2").await;
    let first = store.allocate("order", 10, 0).await.unwrap();
    server.pause().unwrap();
    // On the connection that is open.
    judge(store.allocate("order", 10, 0).await, OUTCOME_UNKNOWN, "no answer within 1000 ms");
    // On a new one, which is no more patient than the request.
    judge(store.allocate("order", 10, 0).await, UNAVAILABLE, "no connection within 1000 ms");
    judge(store.tag("order").await, UNAVAILABLE, "no connection within 1000 ms");
    server.resume().unwrap();
    let second = allocate_at_last(&store, "order").await;
    assert!(second.start >= first.end, "{second:?} after {first:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_the_network_forgot_do_not_use_the_pool_up() {
    let server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let store = Arc::new(connect(&proxy.url(&url), "request-timeout-ms=2000&connections=3").await);
    let mut end = store.allocate("order", 10, 0).await.unwrap().end;
    for round in 0..3 {
        // All at once, so that each connection of the pool is lost, in the middle of a statement or on the way back.
        let requests: Vec<_> = (0..12)
            .map(|request| {
                let store = Arc::clone(&store);
                tokio::spawn(async move { store.allocate(&format!("order.{request}"), 10, 0).await })
            })
            .collect();
        proxy.swallow();
        for request in requests {
            if let Err(error) = request.await.unwrap() {
                assert!(error.is_retryable(), "{round}: {error:?}");
            }
        }
        let segment = allocate_at_last(&store, "order").await;
        assert!(segment.start >= end, "{segment:?} after {end}");
        end = segment.end;
    }
    // And a network that stands still goes on where it stopped.
    proxy.stall(true);
    judge(store.allocate("order", 10, 0).await, OUTCOME_UNKNOWN, "no answer within 2000 ms");
    proxy.stall(false);
    assert!(allocate_at_last(&store, "order").await.start >= end);
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_answer_is_lost_nothing_is_granted_twice() {
    lose_each_answer(&Postgres::start().unwrap(), "unalike").await;
}

/// Loses the answer to the first statement of a grant, then to the second of another one, and so on.
async fn lose_each_answer(server: &Postgres, dialect: &str) {
    let url = server.database().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let store = connect(&proxy.url(&url), &format!("dialect={dialect}&connections=1")).await;
    let direct = connect(&url, &format!("dialect={dialect}")).await;
    let mut end = store.allocate("order", 10, 0).await.unwrap().end;
    let (mut losses, mut grants_lost) = (0, 0);
    loop {
        // On a connection of its own, where each statement is prepared first.
        proxy.cut();
        allocate_at_last(&store, "other").await;
        let before = direct.tag("order").await.unwrap().watermark;
        proxy.lose_answer_after(losses);
        let answer = store.allocate("order", 10, 0).await;
        if proxy.lost_none() {
            assert!(answer.unwrap().start >= end, "{dialect}");
            break;
        }
        losses += 1;
        let granted = direct.tag("order").await.unwrap().watermark > before;
        match answer {
            Ok(segment) => panic!("{dialect}: the answer {losses} was lost, and it granted {segment:?}"),
            Err(error) => {
                assert!(error.is_retryable(), "{dialect}: {error:?}");
                assert!(error.may_have_granted() || !granted, "{dialect}: a grant was lost: {error:?}");
            }
        }
        grants_lost += u32::from(granted);
        let segment = allocate_at_last(&store, "order").await;
        assert!(segment.start >= end, "{dialect}: {segment:?} after {end}");
        assert!(!granted || segment.start > end, "{dialect}: what was lost is burnt: {segment:?} after {end}");
        end = segment.end;
    }
    assert!(losses > 0 && grants_lost > 0, "{dialect}: {losses} answers were lost, {grants_lost} of them with a grant");
}

/// Ids that many tasks take from a tag, in two nodes, while something happens to the database.
struct Load {
    tag: String,
    /// Whether requests may fail, as they may once the cover is used up.
    may_fail: bool,
    ending: AtomicBool,
    /// How many requests were served.
    served: AtomicU64,
}

impl Load {
    fn new(tag: &str, may_fail: bool) -> Arc<Self> {
        Arc::new(Self { tag: tag.to_owned(), may_fail, ending: AtomicBool::new(false), served: AtomicU64::new(0) })
    }

    /// Takes ids of one node until the end, and gives them.
    async fn take(self: Arc<Self>, sequence: Sequence) -> Vec<u64> {
        let mut ids = Vec::new();
        while !self.ending.load(Ordering::SeqCst) {
            match sequence.take(10).await {
                Ok(batch) => {
                    let before = ids.last().copied();
                    ids.extend(batch.iter());
                    assert!(before < batch.iter().next(), "{}: ids of a node ascend", self.tag);
                    self.served.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) => {
                    assert!(self.may_fail, "{}: a request within cover failed: {error:?}", self.tag);
                    assert!(error.is_retryable(), "{}: {error:?}", self.tag);
                }
            }
            // Some 3,000 ids a second, whatever the machine does beside.
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        ids
    }

    /// Waits until the next requests of everybody were served: nothing is stuck.
    async fn until_served(&self) {
        let from = self.served.load(Ordering::SeqCst);
        until(&format!("{} is served", self.tag), || self.served.load(Ordering::SeqCst) >= from + 20).await;
    }
}

/// A node on the store behind this URL.
async fn node(url: &str) -> Ids {
    let store = Arc::new(connect(url, "connections=4&request-timeout-ms=2000&connect-timeout-ms=1000").await);
    Ids::builder().segments(store).wait_max(Duration::from_secs(1)).build().await.unwrap()
}

/// What happens to the database while two nodes take ids through the proxy: of a tag whose buffer outlasts it all, one
/// whose buffer is soon empty, and one in the ordered mode, which has none.
async fn under_load(server: &mut Postgres, mut happen: impl AsyncFnMut(&mut Postgres, &Proxy, &[Arc<Load>])) {
    let url = server.database().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let direct = connect(&url, "").await;
    let ordered = TagOptions { mode: Mode::Ordered, ..TagOptions::default() };
    direct.create_tag("ordered", &ordered).await.unwrap();
    let loads = [Load::new("covered", false), Load::new("hungry", true), Load::new("ordered", true)];
    let nodes = [node(&proxy.url(&url)).await, node(&proxy.url(&url)).await];
    let mut tasks = BTreeMap::<_, Vec<_>>::new();
    for node in &nodes {
        for load in &loads {
            // 50,000 numbers last 16 s, of which nine tenths are left when a refill begins.
            let step = match load.tag.as_str() {
                "covered" => Some(StepPolicy::Fixed { step: 50_000 }),
                "hungry" => Some(StepPolicy::Fixed { step: 200 }),
                _ => None,
            };
            let sequence =
                node.sequence(&load.tag, SequenceOptions { step, ..SequenceOptions::default() }).await.unwrap();
            // The first segment, and the one behind it.
            sequence.next().await.unwrap();
            tasks.entry(load.tag.clone()).or_default().push(tokio::spawn(Arc::clone(load).take(sequence)));
        }
    }
    happen(server, &proxy, &loads).await;
    for load in &loads {
        load.until_served().await;
        load.ending.store(true, Ordering::SeqCst);
    }
    for (tag, tasks) in tasks {
        let mut ids = Vec::new();
        for task in tasks {
            ids.extend(task.await.unwrap());
        }
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count, "{tag}: an id came twice");
        let watermark = direct.tag(&tag).await.unwrap().watermark;
        assert!(ids.last().is_some_and(|&last| last <= watermark), "{tag}: an id that was not granted");
    }
    for node in nodes {
        node.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_ten_times_under_load_costs_gaps_alone() {
    let mut server = Postgres::start().unwrap();
    under_load(&mut server, async |server, _, loads| {
        for _ in 0..10 {
            for load in loads {
                load.until_served().await;
            }
            server.kill9().unwrap();
            // What is buffered goes on.
            loads[0].until_served().await;
            server.restart().unwrap();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stands_still_for_seconds_under_load_costs_gaps_alone() {
    let mut server = Postgres::start().unwrap();
    under_load(&mut server, async |server, _, loads| {
        server.pause().unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
        loads[0].until_served().await;
        server.resume().unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_again_and_again_under_load_cost_gaps_alone() {
    let mut server = Postgres::start().unwrap();
    under_load(&mut server, async |_, proxy, loads| {
        for round in 0..100 {
            match round % 3 {
                0 => proxy.cut(),
                1 => proxy.swallow(),
                _ => proxy.lose_answer_after(round % 7),
            }
            loads[0].until_served().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_somebody_locked_blocks_its_own_tag_alone() {
    let mut server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    let ids = node(&url).await;
    let small = SequenceOptions { step: Some(StepPolicy::Fixed { step: 1 }), ..SequenceOptions::default() };
    let held = ids.sequence("held", small).await.unwrap();
    held.take(5).await.unwrap();
    let lock = lock_row(&url, "held").await;
    // Ten tasks that wait for the one tag, and more tags than the pool has connections.
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let held = held.clone();
            tokio::spawn(async move { held.take(5).await })
        })
        .collect();
    until_waiting(&server, 1).await;
    for tag in 0..20 {
        let sequence = ids.sequence(&format!("free.{tag}"), small).await.unwrap();
        sequence.take(5).await.unwrap();
    }
    drop(lock);
    for task in waiting {
        if let Err(error) = task.await.unwrap() {
            assert!(error.is_retryable(), "{error:?}");
        }
    }
    until_taken(&held).await;
    ids.close().await;
    server.kill9().unwrap();
}

/// Waits until ids come again.
async fn until_taken(sequence: &Sequence) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = sequence.take(5).await {
        assert!(error.is_retryable() && Instant::now() < deadline, "{error:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Runs a request until it was polled so often, then drops it.
async fn abandoned_after<T>(polls: u32, request: impl Future<Output = T>) {
    let (mut request, mut polled) = (std::pin::pin!(request), 0);
    std::future::poll_fn(|context| {
        polled += 1;
        let answer = request.as_mut().poll(context);
        if answer.is_ready() || polled == polls { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

fn acquire_request() -> LeaseAcquire {
    LeaseAcquire {
        namespace: "default".to_owned(),
        holder: "holder".to_owned(),
        layout: Layout::TWITTER,
        preferred_worker: Some(7),
        horizon_ms: 1_000,
        now_ms: now_ms(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_answer_about_a_lease_is_lost_no_two_leases_meet() {
    let server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let options = |url: &str| PostgresOptions::from_url(&format!("{url}?connections=1")).unwrap();
    let leases = PostgresLeases::connect(options(&proxy.url(&url))).await.unwrap();
    let direct = PostgresLeases::connect(options(&url)).await.unwrap();
    let mut granted = Vec::new();
    let (mut losses, mut unheard) = (0, 0);
    loop {
        // On a connection of its own, where each statement is prepared first.
        proxy.cut();
        until_async(async || leases.namespaces().await.is_ok()).await;
        let records = async || direct.leases("default").await.unwrap();
        let before = records().await;
        proxy.lose_answer_after(losses);
        let answer = leases.acquire(&acquire_request()).await;
        if proxy.lost_none() {
            granted.push(answer.unwrap());
            break;
        }
        losses += 1;
        let error = answer.expect_err("its answer was lost");
        let new = records().await.len() > before.len()
            || records().await.iter().zip(&before).any(|(now, before)| now.lease.grant_id != before.lease.grant_id);
        assert!(error.is_retryable() && (error.may_have_granted() || !new), "{losses}: {error:?}");
        unheard += u32::from(new);
        granted.push(direct.acquire(&LeaseAcquire { preferred_worker: None, ..acquire_request() }).await.unwrap());
    }
    assert!(losses >= 8 && unheard >= 1, "{losses} answers were lost, {unheard} of them with a grant");
    assert_disjoint(&granted);

    // An extension whose answer was lost: its holder keeps the old bound, and may ask again.
    let lease = direct.acquire(&LeaseAcquire { preferred_worker: None, ..acquire_request() }).await.unwrap();
    let extend = || LeaseExtend {
        namespace: "default".to_owned(),
        worker: lease.worker,
        grant_id: lease.grant_id,
        layout: Layout::TWITTER,
        horizon_ms: 600_000,
        now_ms: now_ms(),
    };
    proxy.lose_answer_after(1);
    let error = leases.extend(&extend()).await.expect_err("its answer was lost");
    assert!(error.is_retryable(), "{error:?}");
    until_async(async || leases.extend(&extend()).await.is_ok()).await;
}

async fn until_async(mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "it does not come to be so");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn two_servers_and_a_program_on_one_store_repeat_nothing_while_it_is_killed() {
    let mut database = Postgres::start().unwrap();
    let url = database.database().unwrap();
    let users = Users { url: &url, request_timeout_ms: 2_000, program: env!("CARGO_BIN_EXE_postgres-child") };
    let ids = users.repeat_nothing(10_000, || {
        database.kill9()?;
        database.restart()
    });
    assert!(ids.unwrap() >= 10_000_000);
}
