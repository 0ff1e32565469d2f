//! Outages of MySQL, each provoked on a real server: what the store says of it (is it worth a retry, may the grant have
//! been made, is it the caller's fault), that no number is granted twice, and that the store recovers by itself.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use unalike::{Ids, Sequence, SequenceOptions, StepPolicy};
use unalike_mysql::{MysqlOptions, MysqlStore};
use unalike_storage::{Mode, Segment, SegmentStore, StoreError, TagOptions};
use unalike_tests::PATIENCE;
use unalike_tests::mariadb::MariaDb;
use unalike_tests::proxy::Proxy;
use unalike_tests::server::{Client, Server};

/// The dialects whose tags come into being on first use.
const DIALECTS: [&str; 5] = ["unalike", "leaf", "tinyid", "cosid", "sequence-table"];

/// Worth a retry, may have granted, the caller's fault.
type Judgement = (bool, bool, bool);
const UNAVAILABLE: Judgement = (true, false, false);
const OUTCOME_UNKNOWN: Judgement = (true, true, false);
const REFUSED: Judgement = (false, false, false);

async fn try_connect(url: &str, parameters: &str) -> Result<MysqlStore, StoreError> {
    MysqlStore::connect(MysqlOptions::from_url(&format!("{url}?{parameters}"))?).await
}

async fn connect(url: &str, parameters: &str) -> MysqlStore {
    try_connect(url, parameters).await.unwrap()
}

/// A connection of the test's own.
async fn raw(url: &str) -> MySqlConnection {
    MySqlConnection::connect(url).await.unwrap()
}

async fn run(connection: &mut MySqlConnection, statement: &str) {
    connection.execute(AssertSqlSafe(statement)).await.unwrap();
}

/// A transaction of somebody else that has a tag's row in hand, until it is dropped.
async fn lock_row(url: &str, tag: &str) -> MySqlConnection {
    let mut connection = raw(url).await;
    run(&mut connection, "START TRANSACTION").await;
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
async fn until_waiting(server: &MariaDb, count: usize) {
    until("statements wait for a lock", || waiting(server).len() == count).await;
}

/// Grants until one succeeds, which a store that recovers by itself does soon. All failures must be worth a retry.
async fn allocate_at_last(store: &MysqlStore, tag: &str) -> Segment {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match store.allocate(tag, 10, 0).await {
            Ok(segment) => return segment,
            Err(error) => assert!(error.is_retryable() && Instant::now() < deadline, "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The numbers of the connections whose statements wait for a lock. The server makes the table anew only when nobody
/// has looked at it for a tenth of a second.
fn waiting(server: &MariaDb) -> Vec<String> {
    let select = "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'";
    std::thread::sleep(Duration::from_millis(150));
    server.sql("", select).unwrap().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn what_is_missing_or_forbidden_is_refused_and_says_what_to_do() {
    let server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    judge(try_connect(&url.replace("root@", "stranger:wrong@"), "").await, REFUSED, "denied access");
    let (address, database) = url.rsplit_once('/').unwrap();
    judge(try_connect(&format!("{address}/nowhere"), "").await, REFUSED, "no such database: create it");

    let store = connect(&url, "").await;
    store.allocate("order", 10, 0).await.unwrap();
    server.sql("", "CREATE USER ids@'%'").unwrap();
    server.sql("", &format!("GRANT SELECT ON {database}.* TO ids@'%'")).unwrap();
    let reader = connect(&url.replace("root@", "ids@"), "create=false").await;
    judge(reader.allocate("order", 10, 0).await, REFUSED, "lacks a privilege");

    server.sql(database, "RENAME TABLE unalike_tag TO gone").unwrap();
    judge(store.allocate("order", 10, 0).await, REFUSED, "`unalike schema` prints what is needed");
    server.sql(database, "RENAME TABLE gone TO unalike_tag").unwrap();
    store.allocate("order", 10, 0).await.unwrap();
}

#[tokio::test]
async fn a_server_that_cannot_do_it_now_is_unavailable_and_nothing_was_granted() {
    let server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    let (_, database) = url.rsplit_once('/').unwrap();
    // Whom the limits of connections and of reading only hold: root is exempt from both.
    server.sql("", &format!("CREATE USER ids@'%'; GRANT ALL ON {database}.* TO ids@'%'")).unwrap();
    let url = url.replace("root@", "ids@");
    let store = connect(&url, "connections=1&request-timeout-ms=2500").await;
    let first = store.allocate("order", 10, 0).await.unwrap();

    server.sql("", "SET GLOBAL read_only = 1").unwrap();
    judge(store.allocate("order", 10, 0).await, UNAVAILABLE, "the server only reads just now");
    assert_eq!(store.tag("order").await.unwrap().watermark, first.end - 1, "it can still be looked at");
    server.sql("", "SET GLOBAL read_only = 0").unwrap();
    let second = store.allocate("order", 10, 0).await.unwrap();
    assert_eq!(second.start, first.end, "nothing was granted");

    // The store's one connection ended with an error, or was just given back: this is another one.
    server.sql("", "SET GLOBAL max_connections = 10").unwrap();
    let mut others = Vec::new();
    while let Ok(other) = MySqlConnection::connect(&url).await {
        others.push(other);
    }
    judge(try_connect(&url, "").await, UNAVAILABLE, "too many connections");
    drop(others);
    server.sql("", "SET GLOBAL max_connections = 300").unwrap();
    server.sql("", "ALTER USER ids@'%' WITH MAX_USER_CONNECTIONS 1").unwrap();
    let only = raw(&url).await;
    judge(try_connect(&url, "").await, UNAVAILABLE, "too many connections");
    drop(only);
    server.sql("", "ALTER USER ids@'%' WITH MAX_USER_CONNECTIONS 0").unwrap();

    let lock = lock_row(&url, "order").await;
    judge(store.allocate("order", 10, 0).await, UNAVAILABLE, "another transaction holds the row for too long");
    drop(lock);
    let third = store.allocate("order", 10, 0).await.unwrap();
    assert_eq!(third.start, second.end, "nothing was granted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_grants_nothing_and_is_worth_a_retry() {
    let server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    let (_, database) = url.rsplit_once('/').unwrap();
    let store = Arc::new(connect(&url, "").await);
    let first = store.allocate("order", 10, 0).await.unwrap();
    // Somebody's trigger counts the updates, so a grant takes two locks; and somebody else takes them the other way
    // round.
    let count = "CREATE TABLE counts (id INT PRIMARY KEY, n INT NOT NULL); INSERT INTO counts VALUES (1, 0); \
                 CREATE TRIGGER counting AFTER UPDATE ON unalike_tag FOR EACH ROW UPDATE counts SET n = n + 1 WHERE id = 1; \
                 CREATE TABLE heavy (id INT PRIMARY KEY AUTO_INCREMENT); INSERT INTO heavy SELECT seq FROM seq_1_to_1000";
    server.sql(database, count).unwrap();
    let mut other = raw(&url).await;
    // The transaction that has done less is the victim.
    run(&mut other, "START TRANSACTION").await;
    run(&mut other, "UPDATE heavy SET id = id + 10000 ORDER BY id DESC").await;
    run(&mut other, "UPDATE counts SET n = n + 1").await;
    let granting = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.allocate("order", 10, 0).await }
    });
    until_waiting(&server, 1).await;
    run(&mut other, "UPDATE unalike_tag SET refill = 20 WHERE tag = 'order'").await;
    run(&mut other, "COMMIT").await;
    judge(granting.await.unwrap(), UNAVAILABLE, "lost against another one and was rolled back");
    // Under a trigger the reply to a statement lacks the number that was granted, so there is no such grant.
    judge(store.allocate("order", 10, 0).await, REFUSED, "is not what was asked for");
    server.sql(database, "DROP TRIGGER counting").unwrap();
    let second = store.allocate("order", 10, 0).await.unwrap();
    assert_eq!(second.start, first.end + 10, "the deadlock granted nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_keeps_new_tags_out_and_lets_the_others_go_on() {
    // All tables in one file that does not grow.
    let full = ["--innodb-data-file-path=ibdata1:12M", "--innodb-file-per-table=0"];
    let server = MariaDb::start_with(&full).unwrap();
    let url = server.database().unwrap();
    let (_, database) = url.rsplit_once('/').unwrap();
    let store = connect(&url, "").await;
    let first = store.allocate("order", 10, 0).await.unwrap();
    let filling = "CREATE TABLE filler (id INT PRIMARY KEY AUTO_INCREMENT, text VARCHAR(2000))";
    server.sql(database, filling).unwrap();
    // Ever fewer rows at a time, until not one more fits.
    let mut rows = 1_000;
    while rows > 0 {
        let fill = format!("INSERT INTO filler (text) SELECT REPEAT('x', 2000) FROM seq_1_to_{rows}");
        if server.sql(database, &fill).is_err() {
            rows /= 10;
        }
    }
    let mut tags = 0..100_000_u32;
    let refused = loop {
        let tag = format!("{:0>120}", tags.next().expect("the disk is full at last"));
        if let Err(error) = store.allocate(&tag, 10, 0).await {
            break error;
        }
    };
    judge::<()>(Err(refused), UNAVAILABLE, "full: make room");
    let second = store.allocate("order", 10, 0).await.unwrap();
    assert_eq!(second.start, first.end, "a tag that exists needs no room");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_or_connection_that_ends_in_the_middle_leaves_the_outcome_unknown() {
    let mut server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    let store = Arc::new(connect(&url, "").await);
    let mut end = store.allocate("order", 10, 0).await.unwrap().end;

    type Ending = (&'static str, fn(&mut MariaDb));
    let endings: [Ending; 4] = [
        ("KILL QUERY", |server| {
            for id in waiting(server) {
                server.sql("", &format!("KILL QUERY {id}")).unwrap();
            }
        }),
        ("KILL", |server| {
            for id in waiting(server) {
                server.sql("", &format!("KILL {id}")).unwrap();
            }
        }),
        ("SHUTDOWN", |server| {
            server.sql("", "SHUTDOWN").unwrap();
        }),
        ("SIGKILL", |server| server.kill9().unwrap()),
    ];
    for (ending, bring_about) in endings {
        let lock = lock_row(&url, "order").await;
        let granting = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.allocate("order", 10, 0).await }
        });
        until_waiting(&server, 1).await;
        bring_about(&mut server);
        judge(granting.await.unwrap(), OUTCOME_UNKNOWN, "the grant is abandoned");
        drop(lock);
        if matches!(ending, "SHUTDOWN" | "SIGKILL") {
            // Nobody listens: nothing can have been granted.
            server.kill9().unwrap();
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
async fn idle_connections_that_broke_cost_one_request_and_not_one_each() {
    let mut server = MariaDb::start().unwrap();
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
        judge(answer, OUTCOME_UNKNOWN, "the connection broke");
        answer = store.allocate("order", 10, 0).await;
    }
    let segment = answer.unwrap();
    assert!(segment.start >= end, "{segment:?} after {end}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_server_ends_requests_in_time_and_then_goes_on() {
    let server = MariaDb::start().unwrap();
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
    let server = MariaDb::start().unwrap();
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
    let server = MariaDb::start().unwrap();
    for dialect in DIALECTS {
        lose_each_answer(&server, dialect).await;
    }
}

/// Loses the answer to the first statement of a grant, then to the second of another one, and so on.
async fn lose_each_answer(server: &MariaDb, dialect: &str) {
    let url = server.database().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let store = connect(&proxy.url(&url), &format!("dialect={dialect}&connections=1&create=true")).await;
    let direct = connect(&url, &format!("dialect={dialect}&create=true")).await;
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
async fn under_load(server: &mut MariaDb, mut happen: impl AsyncFnMut(&mut MariaDb, &Proxy, &[Arc<Load>])) {
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
    let mut server = MariaDb::start().unwrap();
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
    let mut server = MariaDb::start().unwrap();
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
    let mut server = MariaDb::start().unwrap();
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
    let mut server = MariaDb::start().unwrap();
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

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_takes_over_is_refused_unless_it_is_vouched_for() {
    let logging = |id: u32, only_reads: u32| {
        [
            format!("--server-id={id}"),
            format!("--read-only={only_reads}"),
            "--log-bin=log".to_owned(),
            "--sync-binlog=1".to_owned(),
            "--log-slave-updates".to_owned(),
        ]
    };
    let start = |settings: [String; 5]| MariaDb::start_with(&settings.each_ref().map(String::as_str)).unwrap();
    let mut primary = start(logging(1, 0));
    let replica = start(logging(2, 1));
    let follow = format!(
        "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={}, MASTER_USER='root', MASTER_USE_GTID=slave_pos; START SLAVE",
        primary.port()
    );
    replica.sql("", &follow).unwrap();
    let url = primary.database().unwrap();
    let (_, database) = url.rsplit_once('/').unwrap();
    // Root may write where others only read.
    primary.sql("", &format!("CREATE USER ids@'%'; GRANT ALL ON {database}.* TO ids@'%'")).unwrap();
    let proxy = Proxy::start(primary.port()).unwrap();
    let through = proxy.url(&url).replace("root@", "ids@");
    let (checked, vouched) = (connect(&through, "").await, connect(&through, "identity=assumed").await);
    let mut end = 0;
    for store in [&checked, &vouched] {
        end = store.allocate("order", 1_000, 0).await.unwrap().end;
    }
    let position = primary.sql("", "SELECT @@gtid_current_pos").unwrap();
    let caught_up = format!("SELECT MASTER_GTID_WAIT('{}', 60)", position.trim());
    assert_eq!(replica.sql("", &caught_up).unwrap().trim(), "0", "the replica has every commit");
    primary.kill9().unwrap();
    proxy.lead_to(replica.port());

    // The first request of each may find its connection broken. Nothing is granted by a server that only reads, or is
    // another.
    let ask = async |store: &MysqlStore| match store.allocate("order", 10, 0).await {
        Err(error) if error.may_have_granted() => store.allocate("order", 10, 0).await,
        answer => answer,
    };
    judge(ask(&checked).await, REFUSED, "lift its tags above everything that was handed out");
    judge(ask(&vouched).await, UNAVAILABLE, "the server only reads just now");
    assert_eq!(vouched.tag("order").await.unwrap().watermark, end - 1);

    replica.sql("", "STOP SLAVE; SET GLOBAL read_only = 0").unwrap();
    judge(checked.allocate("order", 10, 0).await, REFUSED, "is another one than before");
    let segment = vouched.allocate("order", 10, 0).await.unwrap();
    assert_eq!(segment.start, end, "{segment:?}");
    judge(try_connect(&through, "").await, REFUSED, "is another one than before");
}

#[test]
fn the_server_serves_on_while_its_database_is_killed_and_cut_off() {
    let mut database = MariaDb::start().unwrap();
    let url = database.database().unwrap();
    let proxy = Proxy::start(database.port()).unwrap();
    let store = format!("--store={}?request-timeout-ms=2000", proxy.url(&url));
    let server = Server::start_with([store.as_str()]).unwrap();
    // Of 100,000 numbers nine tenths are left when a refill begins, and a load of some thousand a second is on them.
    let tag = json!({ "tag": "order", "step": { "policy": "fixed", "step": 100_000 } });
    let created = server.client().send_json("POST", "/v1/tags", &tag).unwrap();
    assert_eq!(created.status, 201, "{created:?}");
    let (ending, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    let ask = |client: Client| {
        let mut ids = Vec::new();
        while !ending.load(Ordering::SeqCst) {
            // Each is served: none may fail within cover.
            ids.extend(client.ids("/v1/sequences/order/ids?count=10").unwrap());
            answers.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(5));
        }
        ids
    };
    let answered = || {
        let (from, deadline) = (answers.load(Ordering::SeqCst), Instant::now() + PATIENCE);
        while answers.load(Ordering::SeqCst) < from + 100 {
            assert!(Instant::now() < deadline, "the server does not answer");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3).map(|_| scope.spawn(|| ask(server.client()))).collect();
        for _ in 0..3 {
            answered();
            database.kill9().unwrap();
            answered();
            database.restart().unwrap();
            answered();
            proxy.cut();
        }
        // A tag that is not open yet needs the database: it is back without a restart of the server.
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = server.client().ids("/v1/sequences/invoice/ids") {
            assert!(Instant::now() < deadline, "{error:#}");
            std::thread::sleep(Duration::from_millis(10));
        }
        ending.store(true, Ordering::SeqCst);
        let mut ids: Vec<_> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count, "an id came twice");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_that_paused_while_another_one_ended_records_nothing() {
    let mut first = MariaDb::start().unwrap();
    let url = first.database().unwrap();
    connect(&url, "").await.allocate("order", 10, 0).await.unwrap();
    first.kill9().unwrap();
    let second = first.start_copy().unwrap();
    let name = url.rsplit_once('/').unwrap().1;
    let copy = format!("mysql://root@127.0.0.1:{}/{name}", second.port());
    let recorded = || second.sql(name, "SELECT server FROM unalike_store").unwrap().trim().to_owned();
    let take_over = || MysqlStore::adopt_server(MysqlOptions::from_url(&copy).unwrap(), 1_000);

    // What the other one records, for later.
    let before = recorded();
    take_over().await.unwrap();
    let other = recorded();
    assert_ne!(other, before);

    // Before it lifts the tags, for which it locks the record.
    second.sql(name, &format!("UPDATE unalike_store SET server = '{before}'")).unwrap();
    let mut held = raw(&copy).await;
    run(&mut held, "START TRANSACTION").await;
    run(&mut held, "SELECT * FROM unalike_store FOR UPDATE").await;
    let paused = tokio::spawn(take_over());
    until_waiting(&second, 1).await;
    run(&mut held, &format!("UPDATE unalike_store SET server = '{other}'")).await;
    run(&mut held, "COMMIT").await;
    paused.await.unwrap().expect_err("another one was recorded meanwhile");
    assert_eq!(recorded(), other);
    connect(&copy, "").await.allocate("order", 10, 0).await.unwrap();
}
