//! Outages of MySQL, each provoked on a real server: what the store says of it (is it worth a retry, may the grant have
//! been made, is it the caller's fault), that no number is granted twice, and that the store recovers by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::Connection as _;
use sqlx::mysql::MySqlConnection;
use unalike_mysql::{MysqlOptions, MysqlStore};
use unalike_storage::SegmentStore as _;
use unalike_tests::PATIENCE;
use unalike_tests::mariadb::{Follow, MariaDb};
use unalike_tests::outages::{
    Database as _, OUTCOME_UNKNOWN, REFUSED, UNAVAILABLE, a_locked_row, a_paused_server, allocate_at_last, connect,
    connections_that_the_network_forgot, cut_under_load, idle_connections_that_broke, judge, killed_under_load,
    lock_row, lose_each_answer, paused_under_load, until_waiting,
};
use unalike_tests::proxy::Proxy;
use unalike_tests::server::{Client, Server};

/// The dialects whose tags come into being on first use.
const DIALECTS: [&str; 5] = ["unalike", "leaf", "tinyid", "cosid", "sequence-table"];

#[tokio::test]
async fn what_is_missing_or_forbidden_is_refused_and_says_what_to_do() {
    let server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    judge(MariaDb::try_connect(&url.replace("root@", "stranger:wrong@"), "").await, REFUSED, "denied access");
    judge(MariaDb::try_connect(&url.replace("root@", "stranger@"), "").await, REFUSED, "password-env=NAME");
    let (address, database) = url.rsplit_once('/').unwrap();
    judge(MariaDb::try_connect(&format!("{address}/nowhere"), "").await, REFUSED, "no such database: create it");

    let store = connect::<MariaDb>(&url, "").await;
    store.allocate("order", 10, 0).await.unwrap();
    server.sql("", "CREATE USER ids@'%'").unwrap();
    server.sql("", &format!("GRANT SELECT ON {database}.* TO ids@'%'")).unwrap();
    let reader = connect::<MariaDb>(&url.replace("root@", "ids@"), "create=false").await;
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
    let store = connect::<MariaDb>(&url, "connections=1&request-timeout-ms=2500").await;
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
    judge(MariaDb::try_connect(&url, "").await, UNAVAILABLE, "too many connections");
    drop(others);
    server.sql("", "SET GLOBAL max_connections = 300").unwrap();
    server.sql("", "ALTER USER ids@'%' WITH MAX_USER_CONNECTIONS 1").unwrap();
    let only = MariaDb::raw(&url).await;
    judge(MariaDb::try_connect(&url, "").await, UNAVAILABLE, "too many connections");
    drop(only);
    server.sql("", "ALTER USER ids@'%' WITH MAX_USER_CONNECTIONS 0").unwrap();

    let lock = lock_row::<MariaDb>(&url, "order").await;
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
    let store = Arc::new(connect::<MariaDb>(&url, "").await);
    let first = store.allocate("order", 10, 0).await.unwrap();
    // Somebody's trigger counts the updates, so a grant takes two locks; and somebody else takes them the other way
    // round.
    let count = "CREATE TABLE counts (id INT PRIMARY KEY, n INT NOT NULL); INSERT INTO counts VALUES (1, 0); \
                 CREATE TRIGGER counting AFTER UPDATE ON unalike_tag FOR EACH ROW UPDATE counts SET n = n + 1 WHERE id = 1; \
                 CREATE TABLE heavy (id INT PRIMARY KEY AUTO_INCREMENT); INSERT INTO heavy WITH RECURSIVE n AS \
                 (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT i FROM n";
    server.sql(database, count).unwrap();
    let mut other = MariaDb::raw(&url).await;
    // The transaction that has done less is the victim.
    MariaDb::run(&mut other, "START TRANSACTION").await;
    MariaDb::run(&mut other, "UPDATE heavy SET id = id + 10000 ORDER BY id DESC").await;
    MariaDb::run(&mut other, "UPDATE counts SET n = n + 1").await;
    let granting = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.allocate("order", 10, 0).await }
    });
    until_waiting(&server, 1).await;
    MariaDb::run(&mut other, "UPDATE unalike_tag SET refill = 20 WHERE tag = 'order'").await;
    MariaDb::run(&mut other, "COMMIT").await;
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
    let store = connect::<MariaDb>(&url, "").await;
    let first = store.allocate("order", 10, 0).await.unwrap();
    let filling = "CREATE TABLE filler (id INT PRIMARY KEY AUTO_INCREMENT, text VARCHAR(2000))";
    server.sql(database, filling).unwrap();
    // Ever fewer rows at a time, until not one more fits.
    let mut rows = 1_000;
    while rows > 0 {
        let fill = format!(
            "INSERT INTO filler (text) WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) \
             SELECT REPEAT('x', 2000) FROM n"
        );
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
    let store = Arc::new(connect::<MariaDb>(&url, "").await);
    let mut end = store.allocate("order", 10, 0).await.unwrap().end;

    type Ending = (&'static str, fn(&mut MariaDb));
    let endings: [Ending; 4] = [
        ("KILL QUERY", |server| {
            for id in server.waiting() {
                server.sql("", &format!("KILL QUERY {id}")).unwrap();
            }
        }),
        ("KILL", |server| {
            for id in server.waiting() {
                server.sql("", &format!("KILL {id}")).unwrap();
            }
        }),
        ("SHUTDOWN", |server| {
            server.sql("", "SHUTDOWN").unwrap();
        }),
        ("SIGKILL", |server| server.kill9().unwrap()),
    ];
    for (ending, bring_about) in endings {
        let lock = lock_row::<MariaDb>(&url, "order").await;
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
        let segment = allocate_at_last(&*store, "order").await;
        assert!(segment.start >= end, "{ending}: {segment:?} after {end}");
        end = segment.end;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_that_broke_cost_one_request_and_not_one_each() {
    idle_connections_that_broke::<MariaDb>(|_| "the connection broke").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_server_ends_requests_in_time_and_then_goes_on() {
    a_paused_server::<MariaDb>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_the_network_forgot_do_not_use_the_pool_up() {
    connections_that_the_network_forgot::<MariaDb>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_answer_is_lost_nothing_is_granted_twice() {
    let server = MariaDb::start().unwrap();
    for dialect in DIALECTS {
        lose_each_answer(&server, &format!("dialect={dialect}&create=true")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_ten_times_under_load_costs_gaps_alone() {
    killed_under_load::<MariaDb>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stands_still_for_seconds_under_load_costs_gaps_alone() {
    paused_under_load::<MariaDb>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_again_and_again_under_load_cost_gaps_alone() {
    cut_under_load::<MariaDb>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_somebody_locked_blocks_its_own_tag_alone() {
    a_locked_row::<MariaDb>().await;
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
    replica.follow(&primary, &Follow::Transactions).unwrap();
    let url = primary.database().unwrap();
    let (_, database) = url.rsplit_once('/').unwrap();
    // Root may write where others only read.
    primary.sql("", &format!("CREATE USER ids@'%'; GRANT ALL ON {database}.* TO ids@'%'")).unwrap();
    let proxy = Proxy::start(primary.port()).unwrap();
    let through = proxy.url(&url).replace("root@", "ids@");
    let (checked, vouched) =
        (connect::<MariaDb>(&through, "").await, connect::<MariaDb>(&through, "identity=assumed").await);
    let mut end = 0;
    for store in [&checked, &vouched] {
        end = store.allocate("order", 1_000, 0).await.unwrap().end;
    }
    replica.catch_up(&primary).unwrap();
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
    judge(MariaDb::try_connect(&through, "").await, REFUSED, "is another one than before");
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
    connect::<MariaDb>(&url, "").await.allocate("order", 10, 0).await.unwrap();
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
    let mut held = MariaDb::raw(&copy).await;
    MariaDb::run(&mut held, "START TRANSACTION").await;
    MariaDb::run(&mut held, "SELECT * FROM unalike_store FOR UPDATE").await;
    let paused = tokio::spawn(take_over());
    until_waiting(&second, 1).await;
    MariaDb::run(&mut held, &format!("UPDATE unalike_store SET server = '{other}'")).await;
    MariaDb::run(&mut held, "COMMIT").await;
    paused.await.unwrap().expect_err("another one was recorded meanwhile");
    assert_eq!(recorded(), other);
    connect::<MariaDb>(&copy, "").await.allocate("order", 10, 0).await.unwrap();
}
