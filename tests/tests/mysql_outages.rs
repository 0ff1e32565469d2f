//! Outages of MySQL, each provoked on a real server: what the store says of it (is it worth a retry, may the grant have
//! been made, is it the caller's fault), that no number is granted twice, and that the store recovers by itself.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use unalike::{Ids, Sequence, SequenceOptions, StepPolicy};
use unalike_mysql::{MysqlOptions, MysqlStore};
use unalike_storage::{Segment, SegmentStore, StoreError};
use unalike_tests::mariadb::MariaDb;
use unalike_tests::proxy::Proxy;

/// What does not happen within this time never will.
const PATIENCE: Duration = Duration::from_secs(60);

/// Worth a retry, may have granted, the caller's fault.
type Judgement = (bool, bool, bool);
const UNAVAILABLE: Judgement = (true, false, false);
const OUTCOME_UNKNOWN: Judgement = (true, true, false);
const REFUSED: Judgement = (false, false, false);

async fn try_connect(url: &str, parameters: &str) -> Result<MysqlStore, StoreError> {
    MysqlStore::connect(MysqlOptions::from_url(&format!("{url}?dialect=leaf&{parameters}"))?).await
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
    run(&mut connection, &format!("SELECT max_id FROM leaf_alloc WHERE biz_tag = '{tag}' FOR UPDATE")).await;
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

/// The numbers of the connections whose statements wait for a lock.
fn waiting(server: &MariaDb) -> Vec<String> {
    let select = "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'";
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
    judge(reader.allocate("order", 10, 0).await, REFUSED, "`unalike schema` lists them");

    server.sql(database, "RENAME TABLE leaf_alloc TO leaf_gone").unwrap();
    judge(store.allocate("order", 10, 0).await, REFUSED, "`unalike schema` prints what is needed");
    server.sql(database, "RENAME TABLE leaf_gone TO leaf_alloc").unwrap();
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
    // Somebody's trigger counts the updates, so a grant takes two locks; and somebody else takes them the other way round.
    let count = "CREATE TABLE counts (id INT PRIMARY KEY, n INT NOT NULL); INSERT INTO counts VALUES (1, 0); \
                 CREATE TRIGGER counting AFTER UPDATE ON leaf_alloc FOR EACH ROW UPDATE counts SET n = n + 1 WHERE id = 1; \
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
    run(&mut other, "UPDATE leaf_alloc SET description = 'seen' WHERE biz_tag = 'order'").await;
    run(&mut other, "COMMIT").await;
    judge(granting.await.unwrap(), UNAVAILABLE, "lost against another one and was rolled back");
    let second = store.allocate("order", 10, 0).await.unwrap();
    assert_eq!(second.start, first.end, "nothing was granted");
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
    server.sql(database, "DROP TABLE filler").unwrap();
    store.allocate("invoice", 10, 0).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_or_connection_that_ends_in_the_middle_leaves_the_outcome_unknown() {
    let mut server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    let store = Arc::new(connect(&url, "").await);
    let mut end = store.allocate("order", 10, 0).await.unwrap().end;

    let endings: [(&str, fn(&mut MariaDb)); 4] = [
        ("KILL QUERY", |server| {
            for id in waiting(server) {
                server.sql("", &format!("KILL QUERY {id}")).unwrap();
            }
        }),
        ("KILL", |server| {
            for id in waiting(server) {
                server.sql("", &format!("KILL CONNECTION {id}")).unwrap();
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
    judge(store.allocate("order", 10, 0).await, OUTCOME_UNKNOWN, "the connection broke");
    let segment = store.allocate("order", 10, 0).await.unwrap();
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
    let store = Arc::new(connect(&proxy.url(&url), "request-timeout-ms=500&connections=3").await);
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
    judge(store.allocate("order", 10, 0).await, OUTCOME_UNKNOWN, "no answer within 500 ms");
    proxy.stall(false);
    assert!(allocate_at_last(&store, "order").await.start >= end);
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_answer_is_lost_nothing_is_granted_twice() {
    let server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let store = connect(&proxy.url(&url), "connections=1").await;
    let mut end = store.allocate("order", 10, 0).await.unwrap().end;
    let (mut losses, mut grants_lost) = (0, 0);
    loop {
        // On a connection of its own, where each statement is prepared first.
        proxy.cut();
        let before = loop {
            if let Ok(record) = store.tag("order").await {
                break record.watermark;
            }
        };
        proxy.lose_answer_after(losses);
        let answer = store.allocate("order", 10, 0).await;
        if proxy.lost_none() {
            assert!(answer.unwrap().start >= end);
            break;
        }
        losses += 1;
        let granted = connect(&url, "").await.tag("order").await.unwrap().watermark > before;
        match answer {
            Ok(segment) => panic!("its answer {losses} was lost, and it is {segment:?}"),
            Err(error) => {
                assert!(error.is_retryable(), "{error:?}");
                assert!(error.may_have_granted() || !granted, "a grant was lost: {error:?}");
            }
        }
        grants_lost += u32::from(granted);
        let segment = allocate_at_last(&store, "order").await;
        assert!(segment.start >= end, "{segment:?} after {end}");
        assert!(!granted || segment.start > end, "what was lost is burnt: {segment:?} after {end}");
        end = segment.end;
    }
    assert!(losses > 0 && grants_lost > 0, "{losses} answers were lost, {grants_lost} of them with a grant");
}
