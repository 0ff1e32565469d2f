//! Leases in a real MariaDB: the contract, what the tables must be, the server's clock, and a server that takes over.
//! What happens when the server or the network fails is in `mysql_lease_outages.rs`.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use tokio::time::sleep;
use unalike_mysql::{MysqlLeases, MysqlOptions, MysqlStore};
use unalike_storage::contract::{self, Fixture, LeaseFixture, lease_checks};
use unalike_storage::{
    GrantId, Layout, Lease, LeaseAcquire, LeaseExtend, LeaseLimits, LeaseStore, SegmentStore, StoreError, TagOptions,
};
use unalike_tests::leases::{assert_disjoint, now_ms};
use unalike_tests::mariadb::MariaDb;
use unalike_tests::mysql_leases::Holder;
use unalike_tests::refusals::refused_or_damaged;

/// A server of the test's own, with one database.
struct Server {
    mariadb: Mutex<MariaDb>,
    url: String,
}

impl Server {
    fn start(settings: &[&str]) -> Self {
        let mariadb = MariaDb::start_with(settings).expect("MariaDB starts");
        let url = mariadb.database().expect("a database");
        Self { mariadb: Mutex::new(mariadb), url }
    }

    fn sql(&self, statements: &str) -> String {
        let database = self.url.split('?').next().unwrap().rsplit_once('/').unwrap().1;
        self.mariadb.lock().unwrap().sql(database, statements).expect(statements)
    }
}

#[async_trait]
impl Fixture for Server {
    async fn restart(&self) {
        self.mariadb.lock().unwrap_or_else(PoisonError::into_inner).restart().expect("MariaDB starts again");
    }
}

#[async_trait]
impl LeaseFixture for Server {
    async fn lease_client(&self, limits: LeaseLimits) -> Arc<dyn LeaseStore> {
        let mut options = options(&self.url);
        options.limits = limits;
        Arc::new(MysqlLeases::connect(options).await.expect("the leases open"))
    }
}

/// A new database on the server that the tests share.
fn database() -> String {
    MariaDb::shared().and_then(MariaDb::database).expect("a database")
}

fn options(url: &str) -> MysqlOptions {
    MysqlOptions::from_url(url).expect("a URL")
}

async fn open(url: &str) -> MysqlLeases {
    MysqlLeases::connect(options(url)).await.expect("the leases open")
}

async fn run(url: &str, statement: &str) {
    let mut connection = MySqlConnection::connect(url).await.expect("a connection");
    connection.execute(AssertSqlSafe(statement)).await.expect(statement);
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_keeps_the_contract_of_leases_through_kill_9() {
    contract::leases(&Server::start(&[])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_isolation_level_and_a_binary_log_serve() {
    for settings in [
        &["--transaction-isolation=READ-UNCOMMITTED"][..],
        &["--transaction-isolation=READ-COMMITTED"],
        &["--transaction-isolation=SERIALIZABLE"],
        &["--log-bin=binlog", "--server-id=1", "--binlog-format=ROW", "--sync-binlog=1"],
    ] {
        let server = Server::start(settings);
        lease_checks::concurrent_holders_never_share_a_tick(&server).await;
        lease_checks::a_stranger_extends_nothing(&server).await;
        lease_checks::a_release_hands_the_worker_over(&server).await;
        lease_checks::a_holder_gets_its_worker_back(&server).await;
        lease_checks::an_operator_ends_a_lease_where_it_ends(&server).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_at_a_new_namespace_binds_it_once_and_nobody_is_turned_away() {
    let url = database();
    let leases = open(&url).await;
    // Again and again: what would go wrong does so for whoever comes in the same moment.
    for round in 0..10 {
        let namespace = format!("new {round}");
        let holders = (0..4).map(|number| {
            let layout = Holder::few_workers();
            let holder = Holder { layout, ..Holder::new(&leases, &namespace, &format!("host {number}")) };
            tokio::spawn(async move { holder.acquire(60_000).await })
        });
        let holders: Vec<_> = holders.collect();
        let mut granted = Vec::new();
        for holder in holders {
            granted.push(holder.await.unwrap().expect("a lease"));
        }
        assert_disjoint(granted);
    }
    assert_eq!(leases.namespaces().await.unwrap().len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_layouts_that_come_together_one_binds_the_namespace() {
    let url = database();
    let leases = open(&url).await;
    for round in 0..20 {
        let namespace = format!("bound {round}");
        let start = Arc::new(tokio::sync::Barrier::new(4));
        let holders = (0..4).map(|number| {
            let layout = if number % 2 == 0 { Holder::few_workers() } else { Layout::TWITTER };
            let holder = Holder { layout, ..Holder::new(&leases, &namespace, &format!("host {number}")) };
            let start = Arc::clone(&start);
            tokio::spawn(async move {
                start.wait().await;
                (number % 2, holder.acquire(60_000).await)
            })
        });
        let holders: Vec<_> = holders.collect();
        let (mut bound, mut refused) = (BTreeSet::new(), BTreeSet::new());
        for holder in holders {
            match holder.await.unwrap() {
                (layout, Ok(_)) => bound.insert(layout),
                (layout, Err(StoreError::LayoutMismatch { .. })) => refused.insert(layout),
                (_, Err(error)) => panic!("{error:?}"),
            };
        }
        assert!(bound.len() == 1 && refused.len() == 1 && bound.is_disjoint(&refused), "{bound:?} {refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_that_wants_the_last_workers_gets_one_each() {
    let url = database();
    let leases = open(&url).await;
    for round in 0..10 {
        let namespace = format!("few {round}");
        let holder = Holder { layout: Holder::few_workers(), ..Holder::new(&leases, &namespace, "") };
        let mut granted = vec![holder.acquire(60_000).await.expect("the first")];
        let others: Vec<_> = (0..3)
            .map(|_| {
                let holder = holder.clone();
                tokio::spawn(async move { holder.acquire(60_000).await })
            })
            .collect();
        for other in others {
            granted.push(other.await.unwrap().expect("nobody chooses what another has chosen"));
        }
        assert_disjoint(granted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_clients_that_come_prolong_and_go_never_share_a_tick() {
    let server = Server::start(&[]);
    let mut clients = Vec::new();
    for client in 0..8_u64 {
        let leases = open(&server.url).await;
        clients.push(tokio::spawn(async move {
            let holder =
                Holder { layout: Holder::few_workers(), ..Holder::new(&leases, "crowd", &format!("{}", client % 3)) };
            let mut used = Vec::new();
            for round in 0..60 {
                let mut lease = match holder.acquire(3 + (client + round) % 7).await {
                    Ok(lease) => lease,
                    Err(StoreError::WorkersExhausted { .. }) => {
                        sleep(Duration::from_millis(2)).await;
                        continue;
                    }
                    Err(error) => {
                        assert!(error.is_retryable() && !error.may_have_granted(), "{error:?}");
                        continue;
                    }
                };
                for _ in 0..round % 3 {
                    let Ok(longer) = holder.extend(&lease, 2 + round % 9).await else { break };
                    assert!(longer.valid_until_ms >= lease.valid_until_ms, "an extension never lowers: {longer:?}");
                    lease = longer;
                }
                if round % 2 == 0 {
                    let end_ms = lease.not_before_ms + 1;
                    // Whatever the answer, the holder uses no more.
                    let _ = holder.release(&lease, end_ms).await.expect("an answer");
                    lease.valid_until_ms = end_ms;
                }
                used.push(lease);
            }
            used
        }));
    }
    let mut used = Vec::new();
    for client in clients {
        used.extend(client.await.unwrap());
    }
    assert!(used.len() > 100, "{} leases", used.len());
    assert_disjoint(used);
}

#[tokio::test]
async fn with_all_workers_used_every_statement_reads_by_a_key() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let server = Server::start(&[
        "--slow-query-log=1",
        "--long-query-time=0",
        "--log-slow-verbosity=query_plan,explain",
        &format!("--slow-query-log-file={}", log.path().display()),
    ]);
    let leases = open(&server.url).await;
    let holder = Holder { layout: Layout::TWITTER, ..Holder::new(&leases, "all", "host 7") };
    let first = holder.acquire(60_000).await.unwrap();
    holder.release(&first, first.not_before_ms + 1).await.unwrap();
    // All other workers of this namespace, ended, and as many of the next one.
    server.sql(&format!(
        "INSERT IGNORE INTO unalike_lease SELECT n.name, seq, UNHEX(MD5(CONCAT(n.name, seq))), CONCAT('host ', 100 + seq), \
         {0}, {0} + 1 + seq, {0}, 0 FROM seq_0_to_1023, (SELECT 'all' AS name UNION SELECT 'other') AS n; \
         ANALYZE TABLE unalike_lease",
        now_ms() - 100_000
    ));
    std::fs::write(log.path(), "").unwrap();
    let lease = holder.acquire(60_000).await.unwrap();
    assert_eq!(lease.worker, first.worker, "its previous worker");
    holder.extend(&lease, 90_000).await.unwrap();
    assert!(holder.release(&lease, lease.not_before_ms).await.unwrap());
    let stranger = Holder { holder: "stranger".to_owned(), preferred: Some(5), ..holder.clone() };
    assert_eq!(stranger.acquire(60_000).await.unwrap().worker, 5);
    let oldest = Holder { preferred: None, ..stranger }.acquire(60_000).await.unwrap();
    assert_eq!(oldest.worker, 0, "all were used, and this one ended first");
    leases.forbid_extension("all", 0).await.unwrap();
    // Grant ids are no text.
    let text = String::from_utf8_lossy(&std::fs::read(log.path()).unwrap()).into_owned();
    // # explain: id select_type table type possible_keys key key_len ref rows r_rows filtered ..
    let plans: Vec<Vec<&str>> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# explain: "))
        .map(|line| line.split('\t').collect())
        .filter(|plan: &Vec<&str>| ["unalike_lease", "unalike_lease_namespace", "l", "n"].contains(&plan[2]))
        .collect();
    assert!(plans.len() >= 20, "{} plans are in the log:\n{text}", plans.len());
    for plan in &plans {
        assert!(!["ALL", "index"].contains(&plan[3]) && plan[5] != "NULL", "no key is used: {plan:?}\n{text}");
    }
    // Only the count looks at more than a row or two, and at this namespace alone.
    let examined = text.lines().filter_map(|line| line.split("Rows_examined: ").nth(1));
    let mut examined: Vec<u64> = examined.map(|rest| rest.trim().parse().unwrap()).collect();
    examined.sort_unstable_by_key(|&rows| std::cmp::Reverse(rows));
    let counts = examined.iter().filter(|&&rows| rows > 4).count();
    assert!(counts <= 3 && examined[0] <= 1_030, "rows were examined: {examined:?}\n{text}");
}

// ---- what is there before ----

#[tokio::test(flavor = "multi_thread")]
async fn the_least_privileges_are_enough_for_all_that_the_contract_asks() {
    let mut server = Server::start(&[]);
    let mut statements = MysqlLeases::ddl();
    statements.push("CREATE USER ids@'127.0.0.1'".to_owned());
    for (table, privileges) in MysqlLeases::privileges() {
        statements.push(format!("GRANT {privileges} ON {table} TO ids@'127.0.0.1'"));
    }
    server.sql(&statements.join(";\n"));
    let user = server.url.replace("root@", "ids@");
    server.url = format!("{user}?create=false");
    contract::leases(&server).await;
    // And no more than these.
    let mut raw = MySqlConnection::connect(&user).await.unwrap();
    for statement in ["DELETE FROM unalike_lease", "UPDATE unalike_store SET tags = 0", "DROP TABLE unalike_lease"] {
        let denied = raw.execute(statement).await.expect_err("denied");
        assert!(denied.to_string().contains("command denied"), "{denied}");
    }
}

#[tokio::test]
async fn tables_that_are_missing_or_not_ours_are_refused_and_it_is_said_what_to_do() {
    let url = database();
    refused_or_damaged(
        MysqlLeases::connect(options(&format!("{url}?create=false"))).await,
        &["unalike_store", "`unalike schema`"],
    );
    run(&url, &MysqlLeases::ddl()[0]).await;
    refused_or_damaged(
        MysqlLeases::connect(options(&format!("{url}?create=false"))).await,
        &["unalike_lease", "`unalike schema`"],
    );
    // Those who print the statements and run them need no leave to create.
    for statement in MysqlLeases::ddl() {
        run(&url, &statement).await;
    }
    let leases = open(&format!("{url}?create=false")).await;
    Holder::new(&leases, "default", "host").acquire(60_000).await.expect("a lease");

    for (damage, repair, words) in [
        ("ALTER TABLE unalike_lease ENGINE = MyISAM", "ALTER TABLE unalike_lease ENGINE = InnoDB", &["kept in MyISAM"]),
        (
            "ALTER TABLE unalike_lease DROP PRIMARY KEY",
            "ALTER TABLE unalike_lease ADD PRIMARY KEY (namespace, worker)",
            &["no unique key over exactly namespace, worker"],
        ),
        (
            "ALTER TABLE unalike_lease CHANGE acquired_ms taken_ms BIGINT UNSIGNED NOT NULL",
            "ALTER TABLE unalike_lease CHANGE taken_ms acquired_ms BIGINT UNSIGNED NOT NULL",
            &["a table or column is missing"],
        ),
        (
            "UPDATE unalike_lease_store SET version = 2",
            "UPDATE unalike_lease_store SET version = 1",
            &["have the version 2, and this program serves 1 alone"],
        ),
    ] {
        run(&url, damage).await;
        refused_or_damaged(MysqlLeases::connect(options(&url)).await, words);
        run(&url, repair).await;
    }
    open(&url).await;
}

#[tokio::test]
async fn a_table_of_leases_that_was_lost_is_not_made_again() {
    let url = database();
    let leases = open(&url).await;
    Holder::new(&leases, "default", "host").acquire(60_000).await.expect("a lease");
    leases.close().await;
    for table in ["unalike_lease", "unalike_lease_namespace"] {
        run(&url, &format!("RENAME TABLE {table} TO kept")).await;
        for lost in [url.clone(), format!("{url}?create=false"), url.clone()] {
            let lost = MysqlLeases::connect(options(&lost)).await;
            refused_or_damaged(lost, &[&format!("{table} is missing"), "has begun: restore it from a backup"]);
        }
        run(&url, &format!("RENAME TABLE kept TO {table}")).await;
        open(&url).await.close().await;
    }
}

#[tokio::test]
async fn rows_that_somebody_damaged_grant_nothing() {
    let url = database();
    let leases = open(&url).await;
    let holder = Holder { layout: Holder::few_workers(), ..Holder::new(&leases, "default", "host") };
    let lease = holder.acquire(60_000).await.unwrap();
    for (damage, repair, words) in [
        // Written by a program of later: not ours to judge.
        (
            "UPDATE unalike_lease_namespace SET version = 3",
            "UPDATE unalike_lease_namespace SET version = 1",
            "version 3",
        ),
        (
            "UPDATE unalike_lease_namespace SET worker_bits = 60",
            "UPDATE unalike_lease_namespace SET worker_bits = 2",
            "is not a binding",
        ),
        ("DELETE FROM unalike_lease_store", "INSERT INTO unalike_lease_store VALUES (1, 1, 86400000, 0)", "has no row"),
    ] {
        run(&url, damage).await;
        if damage.contains("lease_store") {
            let other = Holder { namespace: "other".to_owned(), ..holder.clone() };
            refused_or_damaged(other.acquire(1_000).await, &[words]);
        } else {
            refused_or_damaged(holder.acquire(1_000).await, &[words]);
            refused_or_damaged(holder.extend(&lease, 90_000).await, &[words]);
            refused_or_damaged(holder.release(&lease, lease.not_before_ms).await, &[words]);
        }
        run(&url, repair).await;
    }
    // A worker that the layout has not, ended first of all.
    let alien = "INSERT INTO unalike_lease VALUES ('default', 77, REPEAT('x', 16), 'alien', 1, 2, 1, 0)";
    run(&url, alien).await;
    let alien = Holder { holder: "alien".to_owned(), ..holder.clone() };
    refused_or_damaged(alien.acquire(1_000).await, &["the worker 77, which its layout has not"]);
    run(&url, "DELETE FROM unalike_lease WHERE worker = 77").await;
    assert_disjoint([lease, holder.acquire(60_000).await.expect("a lease")]);

    // What is no lease does not get into the table at all.
    for wrong in [
        "UPDATE unalike_lease SET valid_until_ms = not_before_ms - 1",
        "UPDATE unalike_lease SET valid_until_ms = not_before_ms, is_final = 0",
        "UPDATE unalike_lease SET is_final = 2",
        "UPDATE unalike_lease SET valid_until_ms = 9223372036854775808",
        "UPDATE unalike_lease_namespace SET tick_ms = 0",
        "UPDATE unalike_lease_namespace SET max_horizon_ms = 0",
    ] {
        let mut raw = MySqlConnection::connect(&url).await.unwrap();
        let error = raw.execute(wrong).await.expect_err(wrong);
        assert!(error.to_string().to_lowercase().contains("constraint"), "{wrong}: {error}");
    }
}

#[tokio::test]
async fn leases_stand_beside_the_tables_of_any_dialect_and_share_an_open_store_s_connections() {
    let server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    let (_, database) = url.rsplit_once('/').unwrap();
    let leases = open(&format!("{url}?dialect=leaf")).await;
    assert_eq!(
        server.sql(database, "SHOW TABLES").unwrap().lines().collect::<Vec<_>>(),
        ["unalike_identity", "unalike_lease", "unalike_lease_namespace", "unalike_lease_store", "unalike_store"],
        "the tables of leases alone"
    );
    let mine = Holder::new(&leases, "default", "host").acquire(60_000).await.unwrap();
    leases.close().await;

    let mut one = options(&format!("{url}?dialect=leaf&create=true&connections=1"));
    one.limits.max_skew_ms = 1_234;
    let store = MysqlStore::connect(one).await.unwrap();
    let leases = store.leases().await.unwrap();
    store.create_tag("order", &TagOptions::default()).await.unwrap();
    let holder = Holder::new(&leases, "default", "host");
    for _ in 0..3 {
        store.allocate("order", 10, 0).await.unwrap();
        assert_ne!(holder.acquire(60_000).await.unwrap().worker, mine.worker);
    }
    let off = LeaseAcquire { now_ms: now_ms() - 5_000, ..holder.request(60_000) };
    let error = leases.acquire(&off).await.unwrap_err();
    assert!(matches!(error, StoreError::ClockSkew { max_skew_ms: 1_234, .. }), "the store's limits: {error:?}");
    let connections =
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB LIKE 'test%' AND ID <> CONNECTION_ID()";
    assert_eq!(server.sql("", connections).unwrap().trim(), "1");
}

#[tokio::test]
async fn limits_out_of_range_are_refused() {
    let url = database();
    for max_horizon_ms in [0, LeaseLimits::HORIZON_MAX_MS + 1] {
        let mut options = options(&url);
        options.limits.max_horizon_ms = max_horizon_ms;
        refused_or_damaged(MysqlLeases::connect(options.clone()).await, &["max_horizon_ms"]);
        refused_or_damaged(MysqlStore::connect(options).await.unwrap().leases().await, &["max_horizon_ms"]);
    }
}

#[tokio::test]
async fn a_refused_request_binds_nothing() {
    let leases = open(&database()).await;
    let holder = Holder::new(&leases, "default", "host");
    let future =
        Layout::new(unalike_storage::LayoutFields { epoch_ms: now_ms() + 3_600_000, ..holder.layout.fields() });
    let refused = Holder { layout: future.unwrap(), ..holder.clone() }.acquire(60_000).await.unwrap_err();
    assert!(matches!(refused, StoreError::Refused { .. }), "{refused:?}");
    assert_eq!(leases.namespaces().await.unwrap(), Vec::<String>::new());
    holder.acquire(60_000).await.expect("another layout binds it");
}

// ---- clocks ----

#[tokio::test]
async fn a_clock_that_is_off_is_refused_with_both_times_on_either_side() {
    let mut server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    let lease = Holder::new(&open(&url).await, "default", "host").acquire(60_000).await.unwrap();
    for (offset, seconds) in [("-1h", -3_600_i64), ("+1h", 3_600)] {
        server.set_clock(offset);
        server.restart().unwrap();
        let leases = open(&url).await;
        let holder = Holder::new(&leases, "default", "host");
        let before_ms = now_ms();
        for answer in [holder.acquire(60_000).await, holder.extend(&lease, 90_000).await] {
            let Err(StoreError::ClockSkew { holder_ms, store_ms, max_skew_ms: 10_000 }) = answer else {
                panic!("{offset}: {answer:?}");
            };
            let server_ms = before_ms.checked_add_signed(seconds * 1_000).unwrap();
            assert!((before_ms..=now_ms()).contains(&holder_ms), "the holder's: {holder_ms}");
            assert!(store_ms.abs_diff(server_ms) < 60_000, "the server's: {store_ms}, about {server_ms}");
        }
    }
}

/// Clients that saw the server's clock step take no lease for ended that was running; who comes later knows of no step.
#[tokio::test]
async fn a_step_of_the_servers_clock_ends_nobodys_lease() {
    let mut server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    let holder = |leases: &MysqlLeases, name: &str, offset_ms: i64| Holder {
        layout: Holder::one_worker(),
        offset_ms,
        ..Holder::new(leases, "default", name)
    };
    let leases = open(&url).await;
    let lease = holder(&leases, "a", 0).acquire(60_000).await.unwrap();
    server.set_clock("+1d");
    server.restart().unwrap();
    for name in ["a", "b"] {
        let other = holder(&leases, name, 86_400_000);
        let refused = loop {
            match other.acquire(60_000).await {
                Err(StoreError::Unavailable { .. }) => sleep(Duration::from_millis(10)).await,
                answer => break answer,
            }
        };
        assert!(matches!(refused, Err(StoreError::WorkersExhausted { .. })), "{name}: {refused:?}");
    }
    let later = open(&url).await;
    let taken = holder(&later, "c", 86_400_000).acquire(60_000).await.unwrap();
    assert_disjoint([lease, taken]);
}

#[tokio::test]
async fn a_server_whose_clock_went_back_grants_no_tick_twice() {
    let mut server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    // One worker, in ticks of a ms; the holders' clocks go with the server's.
    let granted = async |url: &str, offset_ms: i64| {
        let mut options = options(url);
        options.limits = LeaseLimits { max_horizon_ms: 1_000, max_skew_ms: 60_000 };
        let leases = MysqlLeases::connect(options).await.unwrap();
        let holder = Holder { layout: Holder::one_worker(), offset_ms, ..Holder::new(&leases, "default", "host") };
        (holder.acquire(1_000).await, holder)
    };
    let (first, _) = granted(&url, 0).await;
    let first = first.unwrap();
    server.set_clock("-2s");
    server.restart().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let (second, holder) = loop {
        match granted(&url, -2_000).await {
            (Ok(second), holder) => break (second, holder),
            (Err(StoreError::WorkersExhausted { free_at_ms, .. }), _) => {
                assert_eq!(free_at_ms, first.valid_until_ms, "not before the recorded end, whatever the clock says");
            }
            (Err(error), _) => panic!("{error:?}"),
        }
        assert!(Instant::now() < deadline, "the clock comes to the end at last");
        sleep(Duration::from_millis(50)).await;
    };
    let longer = holder.extend(&second, 1_000).await.unwrap();
    assert!(longer.valid_until_ms >= second.valid_until_ms);
    assert_disjoint([first, longer]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waited_for_its_turn_does_not_look_as_if_its_clock_were_off() {
    let url = database();
    let mut one = options(&format!("{url}?connections=1&request-timeout-ms=30000&connect-timeout-ms=30000"));
    one.limits.max_skew_ms = 800;
    let leases = MysqlLeases::connect(one).await.unwrap();
    let holder = Holder::new(&leases, "default", "host");
    let lease = holder.acquire(60_000).await.unwrap();
    let mut lock = MySqlConnection::connect(&url).await.unwrap();
    run_in(&mut lock, "START TRANSACTION").await;
    run_in(&mut lock, "SELECT * FROM unalike_lease_namespace FOR UPDATE").await;
    // The first has the only connection and waits for the lock, the others for the connection.
    let waiting: Vec<_> = (0..3)
        .map(|number| {
            let holder = holder.clone();
            tokio::spawn(async move {
                if number == 1 { holder.extend(&lease, 90_000).await } else { holder.acquire(60_000).await }
            })
        })
        .collect();
    sleep(Duration::from_millis(1_600)).await;
    run_in(&mut lock, "COMMIT").await;
    for request in waiting {
        request.await.unwrap().expect("its clock is right");
    }
    // One that is off stays so.
    let off = LeaseAcquire { now_ms: now_ms() - 3_000, ..holder.request(60_000) };
    assert!(matches!(leases.acquire(&off).await, Err(StoreError::ClockSkew { .. })));
}

async fn run_in(connection: &mut MySqlConnection, statement: &str) {
    connection.execute(AssertSqlSafe(statement)).await.expect(statement);
}

// ---- a server that takes over ----

/// The same database on another server.
fn moved(url: &str, server: &MariaDb) -> String {
    let name = url.rsplit_once('/').expect("a database").1;
    format!("mysql://root@127.0.0.1:{}/{name}", server.port())
}

fn with_horizon(url: &str, max_horizon_ms: u64) -> MysqlOptions {
    let mut options = options(url);
    options.limits = LeaseLimits { max_horizon_ms, max_skew_ms: 300 };
    options
}

fn quarantined_until(answer: Result<Lease, StoreError>) -> u64 {
    match answer {
        Err(StoreError::Quarantined { until_ms, .. }) => until_ms,
        other => panic!("it may have forgotten leases: {other:?}"),
    }
}

#[tokio::test]
async fn a_server_that_took_over_grants_nothing_before_all_that_it_may_have_lost_has_ended() {
    let mut first = MariaDb::start().unwrap();
    let url = first.database().unwrap();
    let leases = MysqlLeases::connect(with_horizon(&url, 90_000)).await.unwrap();
    let few = Holder { layout: Holder::few_workers(), ..Holder::new(&leases, "default", "host") };
    let known = few.acquire(1_000).await.unwrap();
    // Another program allows its namespaces more.
    let long = MysqlLeases::connect(with_horizon(&url, 150_000)).await.unwrap();
    Holder { layout: Holder::few_workers(), ..Holder::new(&long, "long", "host") }.acquire(1_000).await.unwrap();
    // The replica has all up to here, and not what follows: an extension, a lease, a namespace.
    leases.close().await;
    long.close().await;
    first.kill9().unwrap();
    let mut replica = first.start_copy().unwrap();
    replica.kill9().unwrap();
    first.restart().unwrap();
    let leases = MysqlLeases::connect(with_horizon(&url, 90_000)).await.unwrap();
    let holder = Holder { layout: Holder::few_workers(), ..Holder::new(&leases, "default", "host") };
    let extended = holder.extend(&known, 90_000).await.unwrap();
    let mut lost = vec![extended];
    let other = Holder { holder: "other".to_owned(), ..holder.clone() };
    for _ in 0..3 {
        lost.push(other.acquire(90_000).await.unwrap());
    }
    let lost_namespace = Holder { namespace: "lost".to_owned(), ..holder.clone() }.acquire(90_000).await.unwrap();
    first.kill9().unwrap();

    replica.restart().unwrap();
    let copy = moved(&url, &replica);
    refused_or_damaged(MysqlLeases::connect(options(&copy)).await, &["another one", "unalike store adopt --lift"]);
    let before_ms = now_ms();
    MysqlStore::adopt_server(with_horizon(&copy, 60_000), 1_000).await.unwrap();
    let after_ms = now_ms();
    let leases = MysqlLeases::connect(with_horizon(&copy, 60_000)).await.unwrap();
    let holder =
        Holder { layout: Holder::few_workers(), holder: "new".to_owned(), ..Holder::new(&leases, "default", "") };
    let error = holder.extend(&known, 1_000).await.unwrap_err();
    assert!(matches!(error, StoreError::LeaseLost { .. }), "what began before is not prolonged: {error:?}");
    assert!(!holder.release(&known, known.not_before_ms).await.unwrap(), "nor ended: another may have it");
    let until_ms = quarantined_until(holder.acquire(1_000).await);
    assert!((before_ms + 90_300..=after_ms + 90_300).contains(&until_ms), "its horizon and the clocks': {until_ms}");
    for lease in &lost {
        assert!(until_ms > lease.valid_until_ms, "{until_ms}, {lease:?}");
    }
    // What was lost altogether, and what never was: the longest horizon that any program came with.
    for namespace in ["lost", "new"] {
        let holder = Holder { namespace: namespace.to_owned(), ..holder.clone() };
        let until_ms = quarantined_until(holder.acquire(1_000).await);
        assert!((before_ms + 150_300..=after_ms + 150_300).contains(&until_ms), "{namespace}: {until_ms}");
    }
    assert_eq!(leases.namespaces().await.unwrap(), ["default", "long"], "a quarantine binds nothing");

    // When that time has passed, by the clocks of all.
    replica.set_clock("+200s");
    replica.restart().unwrap();
    for (namespace, mut granted) in [("default", lost), ("lost", vec![lost_namespace])] {
        let holder = Holder { namespace: namespace.to_owned(), offset_ms: 200_000, ..holder.clone() };
        let lease = holder.acquire_at_last(1_000).await;
        assert!(lease.not_before_ms >= until_ms);
        holder.extend(&lease, 1_000).await.expect("what begins afterwards is prolonged");
        granted.push(lease);
        assert_disjoint(granted);
    }
}

#[tokio::test]
async fn a_server_that_lost_the_tables_of_leases_is_quarantined_all_the_same() {
    let mut first = MariaDb::start().unwrap();
    let url = first.database().unwrap();
    MysqlStore::connect(options(&url)).await.unwrap().close().await;
    first.kill9().unwrap();
    let mut second = first.start_copy().unwrap();
    let copy = moved(&url, &second);
    refused_or_damaged(
        MysqlStore::adopt_server(options(&format!("{copy}?create=false")), 10).await,
        &["leases that the server before may have granted", "`unalike schema`"],
    );
    refused_or_damaged(MysqlLeases::connect(options(&copy)).await, &["another one"]);
    MysqlStore::adopt_server(with_horizon(&copy, 60_000), 10).await.unwrap();
    let leases = MysqlLeases::connect(with_horizon(&copy, 1_000)).await.unwrap();
    quarantined_until(Holder::new(&leases, "default", "host").acquire(1_000).await);

    // Whoever knew the server before grants nothing either, and a third one is another one again.
    second.kill9().unwrap();
    let third = second.start_copy().unwrap();
    refused_or_damaged(MysqlLeases::connect(options(&moved(&url, &third))).await, &["another one"]);
}

#[tokio::test]
async fn an_unknown_grant_is_nobody_s() {
    let leases = open(&database()).await;
    let holder = Holder::new(&leases, "default", "host");
    let lease = holder.acquire(60_000).await.unwrap();
    let extend = LeaseExtend {
        namespace: "default".to_owned(),
        layout: holder.layout,
        worker: lease.worker,
        // Text that reads as the number 0 is another name than 16 zeros.
        grant_id: GrantId(u128::from_be_bytes(*b"0000000000000000")),
        now_ms: now_ms(),
        horizon_ms: 90_000,
    };
    assert!(matches!(leases.extend(&extend).await, Err(StoreError::LeaseLost { .. })));
    let names: BTreeSet<_> = leases.leases("default").await.unwrap().iter().map(|it| it.lease.grant_id).collect();
    assert_eq!(names, BTreeSet::from([lease.grant_id]));
}
