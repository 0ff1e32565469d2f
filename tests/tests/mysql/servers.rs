//! Which server, and which session, grants: a store knows its data again wherever they are, and knows a replica that
//! took the place of its primary; and no statement grants in a session that may lose what it did.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection};
use unalike_mysql::{MysqlLeases, MysqlOptions, MysqlStore};
use unalike_storage::{LeaseStore as _, Segment, SegmentStore, StoreError, TagOptions, TailRelease};
use unalike_tests::mariadb::{Follow, MariaDb};
use unalike_tests::multiplexer::Multiplexer;
use unalike_tests::mysql_leases::Holder;
use unalike_tests::outages::Database as _;
use unalike_tests::proxy::Proxy;
use unalike_tests::refusals::stays_refused;
use unalike_tests::until;

/// The dialects that grant many numbers at once.
const DIALECTS: [&str; 8] =
    ["unalike", "leaf", "tinyid", "cosid", "sequence-table", "batch", "slow-ordered", "id-generator"];

fn options(url: &str, parameters: &str) -> MysqlOptions {
    MysqlOptions::from_url(&format!("{url}?{parameters}")).unwrap()
}

async fn open(url: &str) -> MysqlStore {
    MysqlStore::connect(options(url, "")).await.unwrap()
}

fn dialect(name: &str) -> String {
    let more = if name == "id-generator" { "&keys=order:1&source-stopped=true" } else { "" };
    format!("dialect={name}{more}&create=true")
}

/// All numbers that were ever granted: none twice.
#[derive(Debug, Default)]
struct Granted(BTreeSet<u64>);

impl Granted {
    fn add(&mut self, segment: Segment) {
        let mut number = segment.start;
        while number < segment.end {
            assert!(self.0.insert(number), "{number} was granted twice: {segment:?}");
            number += segment.stride;
        }
    }
}

fn words<T: std::fmt::Debug>(answer: Result<T, StoreError>, parts: &[&str]) -> StoreError {
    let error = answer.unwrap_err();
    for part in parts {
        assert!(error.to_string().contains(part), "{part:?} is not in {error}");
    }
    error
}

fn refused<T: std::fmt::Debug>(answer: Result<T, StoreError>, parts: &[&str]) {
    let error = words(answer, parts);
    assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
}

/// What a message says to do before an adoption.
fn end_replication() -> &'static str {
    if MariaDb::is_mysql() { "STOP REPLICA; RESET REPLICA ALL" } else { "STOP ALL SLAVES; RESET SLAVE ALL" }
}

const ANOTHER: &[&str] = &["another one than before", "unalike store adopt --lift"];

/// Settings of a server that others follow.
fn logging(id: u32, more: &[&str]) -> Vec<String> {
    let mut settings = vec![format!("--server-id={id}"), "--log-bin=log".to_owned(), "--sync-binlog=1".to_owned()];
    // MySQL has no domains.
    let has_it = |setting: &&&str| !MariaDb::is_mysql() || !setting.starts_with("--gtid-domain-id=");
    settings.extend(more.iter().filter(has_it).map(|&setting| setting.to_owned()));
    settings
}

fn start(settings: &[String]) -> MariaDb {
    MariaDb::start_with(&settings.iter().map(String::as_str).collect::<Vec<_>>()).unwrap()
}

fn recorded(server: &MariaDb, url: &str) -> String {
    let (_, database) = url.rsplit_once('/').unwrap();
    server.sql(database, "SELECT server FROM unalike_store").unwrap().trim().to_owned()
}

/// How a replica gets the data that were there before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    /// It follows from the first transaction on.
    Empty,
    /// From a dump.
    Dump,
    /// From a copy of the data directory.
    Copy,
}

/// A replica that lacks one commit takes the primary's place: its host, its port, and its whole configuration.
async fn promoted_in_place(made: Made, by_position: bool, primary_has: &[&str], replica_has: &[&str]) {
    let case = format!("{made:?}, by position: {by_position}, {primary_has:?}, {replica_has:?}");
    let mut primary = start(&logging(1, primary_has));
    let url = primary.database().unwrap();
    let (mut granted, store) = (Granted::default(), open(&url).await);
    granted.add(store.allocate("order", 1_000, 0).await.unwrap());
    let mut from = primary.log_end().unwrap();
    let mut replica = match made {
        Made::Copy => {
            let transactions = primary.transactions().unwrap();
            primary.kill9().unwrap();
            let copy = primary.start_copy().unwrap();
            primary.restart().unwrap();
            // MySQL's copy has them with its data.
            if !MariaDb::is_mysql() {
                copy.set_transactions(if by_position { "" } else { &transactions }).unwrap();
            }
            from = primary.log_end().unwrap();
            copy
        }
        Made::Empty | Made::Dump => start(&logging(2, replica_has)),
    };
    match made {
        Made::Dump => {
            let transactions = primary.transactions().unwrap();
            let (_, database) = url.rsplit_once('/').unwrap();
            replica.load_dump_of(&primary, database).unwrap();
            replica.sql("", "RESET MASTER").unwrap();
            // What has no global ids of its own is waited for by those of the dump.
            replica.set_transactions(if by_position && !MariaDb::is_mysql() { "" } else { &transactions }).unwrap();
        }
        Made::Empty if by_position => {
            let first = primary.sql("", "SHOW BINARY LOGS").unwrap();
            let file = first.split('\t').next().unwrap();
            from = Follow::Position(file.to_owned(), 4);
        }
        _ => {}
    }
    let from = if by_position { from } else { Follow::Transactions };
    replica.follow(&primary, &from).unwrap();
    let store = if made == Made::Copy { open(&url).await } else { store };
    granted.add(store.allocate("order", 1_000, 0).await.unwrap());
    replica.catch_up(&primary).unwrap();
    replica.sql("", "STOP SLAVE; RESET SLAVE ALL").unwrap();
    // It lacks this one.
    granted.add(store.allocate("order", 1_000, 0).await.unwrap());
    let record = recorded(&primary, &url);
    primary.kill9().unwrap();
    replica.kill9().unwrap();
    replica.take_place_of(&primary);
    replica.restart().unwrap();
    assert_eq!(recorded(&replica, &url), record, "{case}: it has the record");

    stays_refused(async || MysqlStore::connect(options(&url, "")).await, ANOTHER).await;
    // Those that knew the primary: the first request may find its connection broken.
    stays_refused(async || store.allocate("order", 1, 0).await, ANOTHER).await;
    assert_eq!(MysqlStore::adopt_server(options(&url, ""), 1_000).await.unwrap().tags, 1, "{case}");
    stays_refused(async || store.allocate("order", 1, 0).await, &["another one", "restart"]).await;
    assert_ne!(recorded(&replica, &url), record, "{case}");
    let store = open(&url).await;
    granted.add(store.allocate("order", 1_000, 0).await.unwrap());
    replica.restart().unwrap();
    granted.add(open(&url).await.allocate("order", 1_000, 0).await.unwrap());
    // The one before comes back: what it has is void.
    replica.kill9().unwrap();
    primary.restart().unwrap();
    stays_refused(async || store.allocate("order", 1, 0).await, ANOTHER).await;
}

#[tokio::test]
async fn a_replica_of_a_whole_log_that_takes_its_primary_s_place_is_refused() {
    promoted_in_place(Made::Empty, false, &[], &["--log-slave-updates"]).await;
    promoted_in_place(Made::Empty, true, &["--gtid-domain-id=7"], &[]).await;
}

#[tokio::test]
async fn a_replica_of_a_dump_that_takes_its_primary_s_place_is_refused() {
    promoted_in_place(Made::Dump, true, &[], &[]).await;
    promoted_in_place(Made::Dump, false, &["--gtid-domain-id=3"], &["--log-slave-updates"]).await;
}

#[tokio::test]
async fn a_replica_of_a_copy_that_takes_its_primary_s_place_is_refused() {
    promoted_in_place(Made::Copy, true, &[], &[]).await;
    promoted_in_place(Made::Copy, false, &["--log-slave-updates"], &[]).await;
}

#[tokio::test]
async fn the_same_data_are_known_wherever_they_are() {
    let mut server = start(&logging(1, &[]));
    let url = server.database().unwrap();
    let mut granted = Granted::default();
    let record = {
        let store = open(&url).await;
        granted.add(store.allocate("order", 1_000, 0).await.unwrap());
        recorded(&server, &url)
    };
    server.restart().unwrap();
    granted.add(open(&url).await.allocate("order", 1_000, 0).await.unwrap());
    server.kill9().unwrap();
    let moved = server.start_moved().unwrap();
    let there = url.replace(&format!(":{}/", server.port()), &format!(":{}/", moved.port()));
    granted.add(open(&there).await.allocate("order", 1_000, 0).await.unwrap());
    assert_eq!(recorded(&moved, &there), record);
    let (of_data, of_server) = if MariaDb::is_mysql() {
        ("server_uuid ", " era ")
    } else {
        ("mark ", " server_id 1 gtid_domain_id 0 gtid_slave_pos none era ")
    };
    assert!(record.starts_with(of_data) && record.contains(of_server), "{record}");
}

#[tokio::test]
async fn a_primary_whose_own_changes_come_back_is_told_from_no_replica_and_is_refused() {
    let active = start(&logging(1, &[]));
    let standby = start(&logging(2, &["--log-slave-updates"]));
    let url = active.database().unwrap();
    let (mut granted, store) = (Granted::default(), open(&url).await);
    granted.add(store.allocate("order", 1_000, 0).await.unwrap());
    standby.follow(&active, &Follow::Transactions).unwrap();
    standby.catch_up(&active).unwrap();
    granted.add(store.allocate("order", 1_000, 0).await.unwrap());
    active.follow(&standby, &Follow::Transactions).unwrap();
    active.catch_up(&active).unwrap();
    let own = &["another one than before", "its own changes came back"];
    refused(store.allocate("order", 1_000, 0).await, own);
    refused(MysqlStore::connect(options(&url, "")).await, own);
    active.sql("", "STOP SLAVE").unwrap();
    refused(
        MysqlStore::adopt_server(options(&url, ""), 1).await,
        &["still replicates from 127.0.0.1", "RESET SLAVE ALL"],
    );
    active.sql("", "RESET SLAVE ALL").unwrap();
    let adopted = MysqlStore::adopt_server(options(&url, ""), 1).await.unwrap();
    assert!(adopted.follows_itself, "it says what must not go on");
    granted.add(open(&url).await.allocate("order", 1_000, 0).await.unwrap());
    let there = url.replace(&format!(":{}/", active.port()), &format!(":{}/", standby.port()));
    refused(MysqlStore::connect(options(&there, "")).await, ANOTHER);
}

/// A replica takes over while it has changes of its primary that it has not applied, and applies them later.
async fn an_applier_that_goes_on(replica_has: &[&str]) {
    let mut primary = start(&logging(1, &[]));
    let replica = start(&logging(2, replica_has));
    let url = primary.database().unwrap();
    let there = url.replace(&format!(":{}/", primary.port()), &format!(":{}/", replica.port()));
    let (mut granted, store) = (Granted::default(), open(&url).await);
    granted.add(store.allocate("order", 10, 0).await.unwrap());
    replica.follow(&primary, &Follow::Transactions).unwrap();
    replica.catch_up(&primary).unwrap();
    replica.sql("", "STOP SLAVE SQL_THREAD").unwrap();
    granted.add(store.allocate("order", 5_000, 0).await.unwrap());
    let end = primary.transactions().unwrap();
    until("the replica has the change", async || replica.has_received(&end).unwrap()).await;
    primary.kill9().unwrap();

    refused(
        MysqlStore::adopt_server(options(&there, ""), 100_000).await,
        &["still replicates from 127.0.0.1", end_replication()],
    );
    let mut vouched = options(&there, "");
    vouched.assume_replication_ended = true;
    MysqlStore::adopt_server(vouched.clone(), 100_000).await.unwrap();
    if MariaDb::is_mysql() {
        // Nothing in its statements would tell.
        let replicates = &["was adopted, and replicates from 127.0.0.1", end_replication()];
        refused(MysqlStore::connect(options(&there, "")).await, replicates);
        refused(MysqlLeases::connect(options(&there, "")).await, replicates);
        return;
    }
    let store = open(&there).await;
    granted.add(store.allocate("order", 5_000, 0).await.unwrap());
    replica.sql("", "START SLAVE SQL_THREAD").unwrap();
    until("the change is applied", async || replica.has_applied(&end).unwrap()).await;
    let row = "SELECT watermark FROM unalike_tag WHERE tag = 'order'";
    let (_, database) = url.rsplit_once('/').unwrap();
    assert_eq!(replica.sql(database, row).unwrap().trim(), "5010", "old rows lie over those that were lifted");

    refused(store.allocate("order", 1, 0).await, ANOTHER);
    refused(MysqlStore::connect(options(&there, "")).await, ANOTHER);
    replica.sql("", "STOP SLAVE; RESET SLAVE ALL").unwrap();
    // More than was granted since it was adopted; from the old row it would lead into the midst of that.
    assert_eq!(MysqlStore::adopt_server(options(&there, ""), 96_000).await.unwrap().tags, 1);
    refused(store.allocate("order", 1, 0).await, &["restart"]);
    for _ in 0..2 {
        granted.add(open(&there).await.allocate("order", 1_000, 0).await.unwrap());
    }
}

/// A transaction that has the rows of a table, until it is dropped.
async fn hold_rows(url: &str, table: &str) -> MySqlConnection {
    let mut connection = MySqlConnection::connect(url).await.unwrap();
    for statement in ["BEGIN", &format!("SELECT * FROM {table} FOR UPDATE")] {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut connection).await.unwrap();
    }
    connection
}

/// Whether replication waits for a lock.
fn applier_waits(server: &MariaDb) -> bool {
    server.waiting().len() == 1
}

/// Whether a grant waits for a lock behind it.
fn grant_waits(server: &MariaDb) -> bool {
    server.waiting().len() == 2
}

/// A grant that waits for the row while an applier writes an older one to it: what it was sent with was so then.
async fn a_grant_that_waits_for_an_applier(of_primary: &[&str], dialect: &str, table: &str, column: &str) {
    let mut primary = start(&logging(1, of_primary));
    let replica = start(&logging(2, &[]));
    let url = primary.database().unwrap();
    let there = url.replace(&format!(":{}/", primary.port()), &format!(":{}/", replica.port()));
    let (_, database) = url.rsplit_once('/').unwrap();
    let (mut granted, store) = (Granted::default(), MysqlStore::connect(options(&url, dialect)).await.unwrap());
    granted.add(store.allocate("order", 10, 0).await.unwrap());
    replica.follow(&primary, &Follow::Transactions).unwrap();
    replica.catch_up(&primary).unwrap();
    replica.sql("", "STOP SLAVE SQL_THREAD").unwrap();
    granted.add(store.allocate("order", 5_000, 0).await.unwrap());
    // Gives back what is left: the row goes down.
    let tail = store.allocate("order", 1_000_000, 0).await.unwrap();
    store.release("order", TailRelease { start: tail.start, version: tail.version }).await.unwrap();
    let end = primary.transactions().unwrap();
    until("the replica has the change", async || replica.has_received(&end).unwrap()).await;
    primary.kill9().unwrap();
    let mut vouched = options(&there, dialect);
    vouched.assume_replication_ended = true;
    MysqlStore::adopt_server(vouched.clone(), 2_000_000).await.unwrap();

    let store = MysqlStore::connect(options(&there, &format!("request-timeout-ms=20000&{dialect}"))).await.unwrap();
    granted.add(store.allocate("order", 5_000, 0).await.unwrap());
    let row = hold_rows(&there, table).await;
    replica.sql("", "START SLAVE SQL_THREAD").unwrap();
    until("the applier waits for the row", async || applier_waits(&replica)).await;
    let request = tokio::spawn(async move { store.allocate("order", 1_000, 0).await });
    until("so does a grant, behind it", async || grant_waits(&replica)).await;
    row.close().await.unwrap();
    refused(request.await.unwrap(), &[]);
    until("the change is applied", async || replica.has_applied(&end).unwrap()).await;
    let number = replica.sql(database, &format!("SELECT MIN({column}) FROM {table}")).unwrap();
    assert!(number.trim().parse::<u64>().unwrap() < 2_000_000, "old rows lie over those that were lifted: {number}");

    // Its figures may change too, and the row is below all that was granted since: what counts is how far it had got.
    replica.sql("", "STOP SLAVE; RESET SLAVE ALL; SET GLOBAL gtid_domain_id = 5").unwrap();
    MysqlStore::adopt_server(options(&there, dialect), 5_001).await.unwrap();
    let store = MysqlStore::connect(options(&there, dialect)).await.unwrap();
    granted.add(store.allocate("order", 1_000, 0).await.unwrap());
}

#[tokio::test]
async fn a_grant_that_waits_while_old_rows_are_applied_is_none() {
    for images in [&[][..], &["--binlog-row-image=MINIMAL"]] {
        a_grant_that_waits_for_an_applier(images, "", "unalike_tag", "watermark").await;
    }
    a_grant_that_waits_for_an_applier(&[], &dialect("leaf"), "leaf_alloc", "max_id").await;
    a_grant_that_waits_for_an_applier(&[], &dialect("cosid"), "cosid", "last_max_id").await;
}

/// Each lifts, and one is recorded: what the others did must not keep it from its own rows.
#[tokio::test(flavor = "multi_thread")]
async fn of_several_who_adopt_a_server_at_once_one_does() {
    let mut server = start(&logging(1, &[]));
    let url = server.database().unwrap();
    let mut granted = Granted::default();
    for id in 2..5 {
        let store = open(&url).await;
        granted.add(store.allocate("order", 1_000, 0).await.unwrap());
        store.allocate("invoice", 1_000, 0).await.unwrap();
        server.kill9().unwrap();
        server.configure(&[&format!("--server-id={id}")]);
        server.restart().unwrap();
        let adopts: Vec<_> = (0..4)
            .map(|_| {
                let options = options(&url, "request-timeout-ms=20000");
                tokio::spawn(async move { MysqlStore::adopt_server(options, 10_000).await })
            })
            .collect();
        let mut adopted = 0;
        for adopt in adopts {
            match adopt.await.unwrap() {
                Ok(done) => {
                    assert_eq!(done.tags, 2);
                    adopted += 1;
                }
                Err(error) => assert!(matches!(error, StoreError::Refused { .. }), "{error:?}"),
            }
        }
        assert_eq!(adopted, 1);
    }
    granted.add(open(&url).await.allocate("order", 1_000, 0).await.unwrap());
}

/// The server before goes on, follows the one that was adopted, and is still used.
#[tokio::test]
async fn a_grant_while_the_successors_rows_are_applied_is_none() {
    let (before, adopted) = (start(&logging(1, &[])), start(&logging(2, &[])));
    let url = before.database().unwrap();
    let there = url.replace(&format!(":{}/", before.port()), &format!(":{}/", adopted.port()));
    let (mut granted, store) =
        (Granted::default(), MysqlStore::connect(options(&url, "request-timeout-ms=20000")).await.unwrap());
    granted.add(store.allocate("order", 10, 0).await.unwrap());
    adopted.follow(&before, &Follow::Transactions).unwrap();
    adopted.catch_up(&before).unwrap();
    adopted.sql("", "STOP SLAVE; RESET SLAVE ALL").unwrap();
    let from = adopted.log_end().unwrap();
    MysqlStore::adopt_server(options(&there, ""), 100_000).await.unwrap();
    granted.add(open(&there).await.allocate("order", 5_000, 0).await.unwrap());

    let row = hold_rows(&url, "unalike_tag WHERE tag = 'order'").await;
    before.follow(&adopted, &from).unwrap();
    until("the applier waits for the row", async || applier_waits(&before)).await;
    let request = tokio::spawn(async move { store.allocate("order", 1_000, 0).await });
    // Unless it has noticed already that the quarantine of leases was applied, which comes before the tags.
    until("so does a grant", async || request.is_finished() || grant_waits(&before)).await;
    row.close().await.unwrap();
    refused(request.await.unwrap(), &[]);
}

#[tokio::test]
async fn what_an_adopted_server_applies_of_the_one_before_repeats_nothing() {
    an_applier_that_goes_on(&[]).await;
    an_applier_that_goes_on(&["--log-slave-updates"]).await;
}

#[tokio::test]
async fn what_an_adopted_server_applies_in_another_domain_repeats_nothing() {
    an_applier_that_goes_on(&["--gtid-domain-id=1"]).await;
}

#[tokio::test]
async fn who_may_not_look_for_replication_vouches_for_its_end() {
    let mut primary = start(&logging(1, &[]));
    let url = primary.database().unwrap();
    let mut granted = Granted::default();
    granted.add(open(&url).await.allocate("order", 1_000, 0).await.unwrap());
    let mut replica = lagging(&mut primary);
    take_over(&mut primary, &mut replica);
    let (_, database) = url.rsplit_once('/').unwrap();
    let user = format!("CREATE USER ids@'%'; GRANT ALL ON `{database}`.* TO ids@'%'");
    replica.sql("", &user).unwrap();
    let mut by_user = options(&url.replace("root@", "ids@"), "");
    let privilege = if MariaDb::is_mysql() { "GRANT REPLICATION CLIENT" } else { "GRANT SLAVE MONITOR" };
    let hidden = &["does not say to this user", privilege, "--replication-ended"];
    refused(MysqlStore::adopt_server(by_user.clone(), 1_000).await, hidden);
    by_user.assume_replication_ended = true;
    MysqlStore::adopt_server(by_user, 1_000).await.unwrap();
    granted.add(open(&url).await.allocate("order", 1_000, 0).await.unwrap());
}

/// The primary's data without what is granted from now on, under the primary's port: a replica that lagged.
fn lagging(primary: &mut MariaDb) -> MariaDb {
    primary.kill9().unwrap();
    let mut replica = primary.start_copy().unwrap();
    replica.kill9().unwrap();
    replica.configure(&["--server-id=2"]);
    primary.restart().unwrap();
    replica
}

fn take_over(primary: &mut MariaDb, replica: &mut MariaDb) {
    primary.kill9().unwrap();
    replica.take_place_of(primary);
    replica.configure(&["--server-id=2"]);
    replica.restart().unwrap();
}

#[tokio::test]
async fn each_dialect_of_a_database_is_adopted_by_itself() {
    let mut primary = start(&logging(1, &[]));
    let url = primary.database().unwrap();
    let (mut own, mut leaf, mut fresh) = (Granted::default(), Granted::default(), Granted::default());
    let open_as = |parameters: &'static str| MysqlStore::connect(options(&url, parameters));
    const LEAF: &str = "dialect=leaf&create=true";
    own.add(open(&url).await.allocate("order", 10, 0).await.unwrap());
    leaf.add(open_as(LEAF).await.unwrap().allocate("order", 10, 0).await.unwrap());
    let mut replica = lagging(&mut primary);
    let (before, leaf_before) = (open(&url).await, open_as(LEAF).await.unwrap());
    for _ in 0..3 {
        own.add(before.allocate("order", 100, 0).await.unwrap());
        leaf.add(leaf_before.allocate("order", 100, 0).await.unwrap());
        fresh.add(leaf_before.allocate("fresh", 100, 0).await.unwrap());
    }
    take_over(&mut primary, &mut replica);
    refused(open_as("").await, ANOTHER);
    refused(open_as(LEAF).await, ANOTHER);
    assert_eq!(MysqlStore::adopt_server(options(&url, LEAF), 1_000).await.unwrap().tags, 1);
    let record = recorded(&replica, &url);
    assert!(record.contains(" lifted leaf=1000 era "), "{record}");
    // It is valid for the tables that were lifted, for no others, and for leases.
    let not_lifted = &["dialect unalike", "unalike store adopt --lift", "this URL as well"];
    refused(open_as("").await, not_lifted);
    refused(open_as("dialect=cosid&create=true").await, &["dialect cosid", "unalike store adopt"]);
    MysqlLeases::connect(options(&url, "")).await.unwrap();
    let lifted = open_as(LEAF).await.unwrap();
    leaf.add(lifted.allocate("order", 10, 0).await.unwrap());
    fresh.add(lifted.allocate("fresh", 10, 0).await.unwrap());
    let created = lifted.create_tag("late", &TagOptions { start: 500, ..TagOptions::default() }).await.unwrap();
    assert_eq!(created.watermark, 1_499);

    refused(MysqlStore::adopt_server(options(&url, LEAF), 10).await, &["recorded one already", "leaf"]);
    let (_, database) = url.rsplit_once('/').unwrap();
    let quarantine = |server: &MariaDb| server.sql(database, "SELECT * FROM unalike_lease_store").unwrap();
    let leases = quarantine(&replica);
    assert_eq!(MysqlStore::adopt_server(options(&url, ""), 500).await.unwrap().tags, 1);
    assert!(recorded(&replica, &url).contains(" lifted leaf=1000,unalike=500 era "));
    assert_eq!(quarantine(&replica), leases, "leases were waited for before");
    refused(MysqlStore::adopt_server(options(&url, ""), 10).await, &["recorded one already", "unalike"]);
    // Programs of the dialect that was adopted before start again, and go on.
    refused(lifted.allocate("order", 10, 0).await, &["lifted", "restart this program"]);
    own.add(open(&url).await.allocate("order", 10, 0).await.unwrap());
    leaf.add(open_as(LEAF).await.unwrap().allocate("order", 10, 0).await.unwrap());
    // The next server: both again, with the sums.
    replica.kill9().unwrap();
    replica.configure(&["--server-id=3"]);
    replica.restart().unwrap();
    refused(open_as(LEAF).await, ANOTHER);
    MysqlStore::adopt_server(options(&url, ""), 7).await.unwrap();
    assert!(recorded(&replica, &url).contains(" lifted -leaf=1000,unalike=507 era "), "{}", recorded(&replica, &url));
    refused(open_as(LEAF).await, &["dialect leaf"]);
    MysqlStore::adopt_server(options(&url, LEAF), 30).await.unwrap();
    let lifted = open_as(LEAF).await.unwrap();
    assert_eq!(lifted.allocate("once more", 10, 0).await.unwrap().start, 1_031);
    assert_eq!(open(&url).await.allocate("once more", 10, 0).await.unwrap().start, 508);
}

#[tokio::test]
async fn a_name_that_the_new_server_never_had_begins_above_the_lift() {
    let mut primary = start(&logging(1, &[]));
    let url = primary.database().unwrap();
    let dialects: Vec<String> = DIALECTS.iter().chain(&["ticket"]).map(|name| dialect(name)).collect();
    for dialect in &dialects {
        MysqlStore::connect(options(&url, dialect)).await.unwrap().allocate("order", 1, 0).await.unwrap();
    }
    let mut replica = lagging(&mut primary);
    let names = |dialect: &str| match dialect {
        _ if dialect.contains("id-generator") => vec!["invoice"],
        _ if dialect.contains("unalike") || dialect.contains("slow-ordered") => vec!["fresh", "order\u{1f}user_7"],
        _ => vec!["fresh"],
    };
    // The keys of another program than the one that is adopted with.
    let with_key = |dialect: &str| dialect.replace("order:1", "invoice:2");
    let mut granted: BTreeMap<(&str, &str), Granted> = BTreeMap::new();
    for dialect in &dialects {
        let store = MysqlStore::connect(options(&url, &with_key(dialect))).await.unwrap();
        for name in names(dialect) {
            for _ in 0..3 {
                granted.entry((dialect, name)).or_default().add(store.allocate(name, 100, 0).await.unwrap());
            }
        }
    }
    take_over(&mut primary, &mut replica);
    for dialect in &dialects {
        // A batch that is taken for a part of it is taken whole.
        let lift = if dialect.contains("batch") { 20_000 } else { 1_000 };
        MysqlStore::adopt_server(options(&url, dialect), lift).await.unwrap();
    }
    for dialect in &dialects {
        let store = MysqlStore::connect(options(&url, &with_key(dialect))).await.unwrap();
        for name in names(dialect) {
            let opened = store.open_tag(name).await.unwrap();
            let greatest = granted[&(dialect.as_str(), name)].0.last().copied().unwrap();
            assert!(opened.watermark >= greatest, "{dialect}, {name:?}: {opened:?} is below {greatest}");
            for _ in 0..3 {
                let segment = store.allocate(name, 100, 0).await.unwrap();
                assert!(segment.start > opened.watermark, "{dialect}: {segment:?} after {opened:?}");
                granted.entry((dialect, name)).or_default().add(segment);
            }
        }
    }
}

#[tokio::test]
async fn rows_of_keys_that_were_not_named_are_lifted_too() {
    let mut primary = start(&logging(1, &[]));
    let url = primary.database().unwrap();
    let keys = |keys: &str| format!("dialect=id-generator&source-stopped=true&create=true&keys={keys}");
    let mut granted = Granted::default();
    let order = MysqlStore::connect(options(&url, &keys("order:1"))).await.unwrap();
    order.allocate("order", 10, 0).await.unwrap();
    let invoice = MysqlStore::connect(options(&url, &keys("invoice:2"))).await.unwrap();
    granted.add(invoice.allocate("invoice", 10, 0).await.unwrap());
    let mut replica = lagging(&mut primary);
    let invoice = MysqlStore::connect(options(&url, &keys("invoice:2"))).await.unwrap();
    for _ in 0..3 {
        granted.add(invoice.allocate("invoice", 100, 0).await.unwrap());
    }
    take_over(&mut primary, &mut replica);
    assert_eq!(MysqlStore::adopt_server(options(&url, &keys("order:1")), 1_000).await.unwrap().tags, 2, "all rows");
    let invoice = MysqlStore::connect(options(&url, &keys("invoice:2"))).await.unwrap();
    granted.add(invoice.allocate("invoice", 100, 0).await.unwrap());
}

#[tokio::test]
async fn a_record_of_an_older_program_is_taken_over_where_it_proves_something() {
    let server = start(&logging(1, &[]));
    let url = server.database().unwrap();
    let (_, database) = url.rsplit_once('/').unwrap();
    let mut granted = Granted::default();
    granted.add(open(&url).await.allocate("order", 10, 0).await.unwrap());
    // Its rows have no marks.
    server.sql(database, "UPDATE unalike_tag SET stripe_set = REPEAT(X'00', 16)").unwrap();
    let set = |what: &str| server.sql(database, &format!("UPDATE unalike_store SET server = {what}")).unwrap();
    set("CONCAT('server_uid ', @@server_uid)");
    refused(MysqlStore::adopt_server(options(&url, ""), 10).await, &["recorded one already"]);
    let (one, other) = (open(&url).await, open(&url).await);
    assert!(recorded(&server, &url).starts_with("mark "));
    granted.add(one.allocate("order", 10, 0).await.unwrap());
    granted.add(other.allocate("order", 10, 0).await.unwrap());
    // Who only leases may not write the record, and goes on with it as it is.
    let leasing: Vec<String> = MysqlLeases::ddl()
        .into_iter()
        .chain(["CREATE USER leaser@'%'".to_owned()])
        .chain(
            MysqlLeases::privileges().into_iter().map(|(table, may)| format!("GRANT {may} ON {table} TO leaser@'%'")),
        )
        .collect();
    server.sql(database, &leasing.join("; ")).unwrap();
    set("CONCAT('server_uid ', @@server_uid)");
    let leases = MysqlLeases::connect(options(&url.replace("root@", "leaser@"), "create=false")).await.unwrap();
    Holder::new(&leases, "default", "a").acquire(60_000).await.unwrap();
    assert!(recorded(&server, &url).starts_with("server_uid "));
    // A card that is not known, a card of another machine, nothing.
    for old in ["'server_uid unknown'", "'server_uid abc='", "'unknown'", "''", "'mark '"] {
        set(old);
        refused(MysqlStore::connect(options(&url, "")).await, ANOTHER);
        assert!(one.allocate("order", 10, 0).await.is_err(), "{old}");
    }
    // Data that came from elsewhere: it may be a replica in its primary's place.
    set("CONCAT('server_uid ', @@server_uid)");
    server.sql("", "SET GLOBAL gtid_slave_pos = '0-9-5'").unwrap();
    refused(MysqlStore::connect(options(&url, "")).await, ANOTHER);
    MysqlStore::adopt_server(options(&url, ""), 1_000).await.unwrap();
    assert!(recorded(&server, &url).contains(" gtid_slave_positions 0-9-5 lifted unalike=1000 era "));
    granted.add(open(&url).await.allocate("order", 10, 0).await.unwrap());
}

#[tokio::test]
async fn rows_whose_record_was_lost_grant_nothing_until_they_are_lifted() {
    let server = start(&logging(1, &[]));
    let url = server.database().unwrap();
    let (_, database) = url.rsplit_once('/').unwrap();
    let mut granted = Granted::default();
    let known = open(&url).await;
    granted.add(known.allocate("order", 10, 0).await.unwrap());
    // As in a database to which one table of a backup was brought back. Who knew the store may have been granted more.
    server.sql(database, "DELETE FROM unalike_store").unwrap();
    granted.add(known.allocate("order", 10, 0).await.unwrap());
    let new = open(&url).await;
    refused(new.allocate("order", 10, 0).await, &["unalike_store was made anew", "unalike store adopt --lift"]);
    assert_eq!(new.allocate("invoice", 10, 0).await.unwrap().start, 1);
    assert_eq!(MysqlStore::adopt_server(options(&url, ""), 1_000).await.unwrap().tags, 2);
    for before in [known, new] {
        refused(before.allocate("order", 10, 0).await, &["restart"]);
    }
    let order = open(&url).await.allocate("order", 10, 0).await.unwrap();
    assert!(order.start > 1_020, "{order:?}");
    granted.add(order);
    refused(MysqlStore::adopt_server(options(&url, ""), 10).await, &["recorded one already"]);
}

#[tokio::test]
async fn other_data_under_the_same_address_grant_nothing() {
    let (first, second) = (MariaDb::start().unwrap(), MariaDb::start().unwrap());
    let name = "ids";
    for server in [&first, &second] {
        server.sql("", &format!("CREATE DATABASE {name}")).unwrap();
    }
    let url = |port: u16| format!("mysql://root@127.0.0.1:{port}/{name}");
    let proxy = Proxy::start(first.port()).unwrap();
    for dialect in DIALECTS.map(dialect) {
        // Whatever tells two servers apart is alike, but for what they hold.
        let other = MysqlStore::connect(options(&url(second.port()), &dialect)).await.unwrap();
        let before = other.allocate("order", 10, 0).await.unwrap();
        proxy.lead_to(first.port());
        let store = MysqlStore::connect(options(&proxy.url(&url(first.port())), &dialect)).await.unwrap();
        store.allocate("order", 10, 0).await.unwrap();
        proxy.lead_to(second.port());
        // The first request finds its connection broken.
        stays_refused(async || store.allocate("order", 10, 0).await, ANOTHER).await;
        refused(store.raise_tag("order", before.end + 1_000_000_000_000).await, ANOTHER);
        let after = other.allocate("order", 10, 0).await.unwrap();
        assert!(after.start < before.end + 1_000_000_000_000, "{dialect}: {after:?} after {before:?}");
    }
}

// ---- sessions ----

/// Settings that change what a statement means or keeps, as a configuration says them.
const CONFIGURED: [&[&str]; 15] = [
    &["--completion-type=CHAIN"],
    &["--completion-type=RELEASE"],
    &["--autocommit=0"],
    &["--autocommit=0", "--completion-type=CHAIN"],
    &["--sql-mode=ANSI,SIMULTANEOUS_ASSIGNMENT,NO_UNSIGNED_SUBTRACTION"],
    &["--sql-mode="],
    &["--transaction-isolation=READ-UNCOMMITTED"],
    &["--transaction-isolation=SERIALIZABLE"],
    &["--transaction-read-only=1"],
    &["--init-connect=SET unique_checks = 0, foreign_key_checks = 0, check_constraint_checks = 0"],
    &["--init-connect=SET sql_safe_updates = 1, sql_auto_is_null = 1, sql_select_limit = 1, sql_big_selects = 0"],
    &["--init-connect=SET max_sort_length = 64, group_concat_max_len = 4, max_statement_time = 5"],
    &["--init-connect=SET autocommit = 0"],
    &["--init-connect=BEGIN"],
    &[
        "--init-connect=SET completion_type = 1, NAMES latin1, time_zone = '+09:00', insert_id = 3, skip_replication = 1",
    ],
];

/// Those that a session cannot undo: each is refused by its name.
const UNDOABLE: [(&str, &str); 2] = [
    ("--init-connect=SET timestamp = 1000", "timestamp"),
    ("--init-connect=SET system_versioning_asof = '2020-01-01 00:00:00'", "system_versioning_asof"),
];

/// A server that has a user whom `init_connect` concerns; their URL.
fn with_user(settings: &[&str]) -> (MariaDb, String) {
    let mut server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    let (_, database) = url.rsplit_once('/').unwrap();
    server.sql("", &format!("CREATE USER ids@'%'; GRANT ALL ON {database}.* TO ids@'%'")).unwrap();
    server.configure(settings);
    server.restart().unwrap();
    let url = url.replace("root@", "ids@");
    (server, url)
}

#[tokio::test]
async fn a_server_id_that_is_changed_under_a_session_is_told() {
    let server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    let store = open(&url).await;
    store.allocate("order", 10, 0).await.unwrap();
    // A session goes on to say the one that it began with.
    server.sql("", "SET GLOBAL server_id = 7").unwrap();
    refused(store.allocate("order", 10, 0).await, &["another one than before", "server_id 7", "not mark"]);
    server.sql("", "SET GLOBAL server_id = 1").unwrap();
    assert_eq!(store.allocate("order", 10, 0).await.unwrap().start, 11);
}

#[tokio::test]
async fn whatever_a_server_s_sessions_are_set_to_no_number_comes_twice_after_a_crash() {
    for settings in CONFIGURED {
        let (mut server, url) = with_user(settings);
        let mut granted: BTreeMap<String, Granted> = BTreeMap::new();
        for _ in 0..2 {
            for dialect in DIALECTS.map(dialect).into_iter().chain([dialect("ticket")]) {
                let granted = granted.entry(dialect.clone()).or_default();
                // One connection, so that its second and third statement are seen too.
                let parameters = format!("{dialect}&connections=1");
                let store = MysqlStore::connect(options(&url, &parameters)).await;
                let store = store.unwrap_or_else(|error| panic!("{settings:?}, {dialect}: {error}"));
                store.open_tag("order").await.unwrap();
                for _ in 0..3 {
                    let segment = store.allocate("order", 2, 0).await;
                    granted.add(segment.unwrap_or_else(|error| panic!("{settings:?}, {dialect}: {error:?}")));
                }
                let watermark = store.tag("order").await.unwrap().watermark;
                store.raise_tag("order", watermark + 10).await.unwrap();
                granted.add(store.allocate("order", 2, watermark + 10).await.unwrap());
            }
            server.restart().unwrap();
        }
    }
}

/// What to try a session variable with, by its type, its least value and the words that it takes.
fn values_of(kind: &str, least: &str, words: &str) -> Vec<String> {
    match kind {
        "BOOLEAN" => vec!["0".to_owned(), "1".to_owned()],
        "ENUM" | "SET" | "FLAGSET" => words.split(',').map(|word| format!("'{word}'")).collect(),
        "VARCHAR" => Vec::new(),
        _ => vec![least.to_owned()],
    }
}

#[tokio::test]
async fn every_session_variable_is_harmless_or_set_again_or_named() {
    let (server, url) = with_user(&[]);
    let (_, database) = url.rsplit_once('/').unwrap();
    let list = "SELECT LOWER(VARIABLE_NAME), VARIABLE_TYPE, COALESCE(NUMERIC_MIN_VALUE, 0), COALESCE(ENUM_VALUE_LIST, '') \
        FROM information_schema.SYSTEM_VARIABLES WHERE VARIABLE_SCOPE IN ('SESSION', 'SESSION ONLY')";
    let list = server.sql("", list).unwrap();
    let mut root = MySqlConnection::connect(&url.replace("ids@", "root@")).await.unwrap();
    let (mut granted, mut tried, mut surprises) = (Granted::default(), 0, Vec::new());
    for line in list.lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        let [name, kind, least, words] = columns.as_slice() else { panic!("{line}") };
        for value in values_of(kind, least, words) {
            let set = format!("SET SESSION {name} = {value}");
            sqlx::query("SET GLOBAL init_connect = ?").bind(&set).execute(&mut root).await.unwrap();
            // A connection whose setting fails is closed by the server: users cannot set this.
            let Ok(mut user) = MySqlConnection::connect(&url).await else { continue };
            if user.ping().await.is_err() {
                continue;
            }
            tried += 1;
            let store = match MysqlStore::connect(options(&url, "connections=1")).await {
                Ok(store) => store,
                Err(error) => {
                    // The server's own words have it as an option.
                    if !format!("{error:?}").replace('-', "_").contains(name) {
                        surprises.push(format!("{set}: {error:?}"));
                    }
                    continue;
                }
            };
            for _ in 0..2 {
                let segment = match store.allocate("order", 2, 0).await {
                    Ok(segment) => segment,
                    Err(error) => {
                        surprises.push(format!("{set}: {error:?}"));
                        break;
                    }
                };
                granted.add(segment);
                // Somebody else sees it, so it is committed.
                let read = format!("SELECT watermark FROM {database}.unalike_tag WHERE tag = 'order'");
                let watermark: u64 = sqlx::query_scalar(AssertSqlSafe(read)).fetch_one(&mut root).await.unwrap();
                assert_eq!(watermark, segment.end - 1, "{set}");
            }
        }
    }
    assert!(tried > 150, "{tried} settings were tried");
    assert!(surprises.is_empty(), "{surprises:#?}");
}

#[tokio::test]
async fn a_session_that_cannot_be_set_is_refused_by_the_name_of_the_variable() {
    for (setting, name) in UNDOABLE {
        let (_server, url) = with_user(&[setting]);
        refused(MysqlStore::connect(options(&url, "")).await, &[name, "init_connect"]);
    }
    // What not every user may do, and whose changes would not reach a replica.
    let (server, url) = with_user(&["--server-id=1", "--log-bin=log", "--sync-binlog=1"]);
    server.sql("", "GRANT BINLOG ADMIN ON *.* TO ids@'%'; SET GLOBAL init_connect = 'SET sql_log_bin = 0'").unwrap();
    refused(MysqlStore::connect(options(&url, "")).await, &["sql_log_bin", "init_connect"]);
    server.sql("", "SET GLOBAL init_connect = '', GLOBAL binlog_format = STATEMENT").unwrap();
    refused(MysqlStore::connect(options(&url, "")).await, &["binlog_format", "ROW"]);
}

#[tokio::test]
async fn a_session_that_begins_with_a_table_of_its_own_is_refused() {
    let (server, url) = with_user(&[]);
    let (_, database) = url.rsplit_once('/').unwrap();
    let store = open(&url).await;
    let before = store.allocate("order", 10, 0).await.unwrap();
    for init in [
        format!("CREATE TEMPORARY TABLE IF NOT EXISTS {database}.unalike_tag AS SELECT * FROM {database}.unalike_tag"),
        "SET @a = 1; CREATE TEMPORARY TABLE one (a INT)".to_owned(),
    ] {
        server.sql("", &format!("SET GLOBAL init_connect = '{init}'")).unwrap();
        refused(MysqlStore::connect(options(&url, "")).await, &["init_connect", "CREATE TEMPORARY TABLE"]);
    }
    server.sql("", "SET GLOBAL init_connect = 'SET autocommit = 0'").unwrap();
    assert_eq!(open(&url).await.allocate("order", 10, 0).await.unwrap().start, before.end);
}

#[tokio::test]
async fn a_server_that_is_set_otherwise_while_it_is_used_grants_nothing_more() {
    let server = start(&logging(1, &[]));
    let url = server.database().unwrap();
    for dialect in DIALECTS.map(dialect) {
        let store = MysqlStore::connect(options(&url, &dialect)).await.unwrap();
        let first = store.allocate("order", 10, 0).await.unwrap();
        for (set, reset, said) in [
            ("innodb_flush_log_at_trx_commit = 2", "innodb_flush_log_at_trx_commit = 1", "would lose commits"),
            ("sync_binlog = 0", "sync_binlog = 1", "sync_binlog is 0"),
            ("server_id = 9", "server_id = 1", "another one than before"),
            ("gtid_slave_pos = '0-2-9'", "gtid_slave_pos = ''", "another one than before"),
            // Root is exempt from it.
            ("read_only = 1", "read_only = 0", "only reads just now"),
        ] {
            server.sql("", &format!("SET GLOBAL {set}")).unwrap();
            words(store.allocate("order", 10, 0).await, &[said]);
            server.sql("", &format!("SET GLOBAL {reset}")).unwrap();
        }
        let second = store.allocate("order", 10, 0).await.unwrap();
        assert!(second.start >= first.end, "{dialect}: {second:?} after {first:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_set_otherwise_while_it_is_used_leases_nothing_more() {
    let server = start(&logging(1, &[]));
    let url = server.database().unwrap();
    let leases = MysqlLeases::connect(options(&url, "")).await.unwrap();
    let holder = Holder::new(&leases, "default", "a");
    let lease = holder.acquire(60_000).await.unwrap();
    for (set, reset, said) in [
        ("innodb_flush_log_at_trx_commit = 2", "innodb_flush_log_at_trx_commit = 1", "would lose commits"),
        ("gtid_slave_pos = '0-2-9'", "gtid_slave_pos = ''", "another one than before"),
        ("read_only = 1", "read_only = 0", "only reads just now"),
    ] {
        server.sql("", &format!("SET GLOBAL {set}")).unwrap();
        words(holder.acquire(60_000).await, &[said]);
        words(holder.extend(&lease, 60_000).await, &[said]);
        server.sql("", &format!("SET GLOBAL {reset}")).unwrap();
    }
    assert_eq!(leases.leases("default").await.unwrap().len(), 1, "one was granted");
    holder.extend(&lease, 60_000).await.unwrap();
    holder.acquire(60_000).await.unwrap();
}

// ---- behind a proxy ----

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_moves_statements_to_another_server_is_leased_nothing_there() {
    let (first, second) = (MariaDb::start().unwrap(), MariaDb::start().unwrap());
    for server in [&first, &second] {
        server.sql("", "CREATE DATABASE ids").unwrap();
    }
    let url = |port: u16| format!("mysql://root@127.0.0.1:{port}/ids");
    let other = MysqlLeases::connect(options(&url(second.port()), "")).await.unwrap();
    Holder::new(&other, "default", "b").acquire(60_000).await.unwrap();
    let proxy = Multiplexer::start(&[first.port(), second.port()], Box::new(|_| 0)).unwrap();
    let leases = MysqlLeases::connect(options(&proxy.url(&url(first.port())), "connections=1")).await.unwrap();
    let holder = Holder::new(&leases, "default", "a");
    let lease = holder.acquire(60_000).await.unwrap();
    proxy.route(Box::new(|text| usize::from(!is_about_the_session(text))));
    for _ in 0..3 {
        words(holder.acquire(60_000).await, &[]);
        words(holder.extend(&lease, 60_000).await, &[]);
    }
    assert_eq!(other.leases("default").await.unwrap().len(), 1, "the other server leased something");
    proxy.route(Box::new(|_| 0));
    while holder.extend(&lease, 60_000).await.is_err() {}
}

/// Whether a statement tells what server and session it runs on, or sets them.
fn is_about_the_session(text: &str) -> bool {
    text.starts_with("SHOW VARIABLES") || text.starts_with("SET ") || text.starts_with("ROLLBACK")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_moves_statements_to_another_server_is_granted_nothing_there() {
    let (first, second) = (MariaDb::start().unwrap(), MariaDb::start().unwrap());
    for server in [&first, &second] {
        server.sql("", "CREATE DATABASE ids").unwrap();
    }
    let url = |port: u16| format!("mysql://root@127.0.0.1:{port}/ids");
    for dialect in DIALECTS.map(dialect) {
        let other = MysqlStore::connect(options(&url(second.port()), &dialect)).await.unwrap();
        let theirs = other.allocate("order", 10, 0).await.unwrap();
        let proxy = Multiplexer::start(&[first.port(), second.port()], Box::new(|_| 0)).unwrap();
        let parameters = format!("{dialect}&connections=1");
        let store = MysqlStore::connect(options(&proxy.url(&url(first.port())), &parameters)).await.unwrap();
        let mut granted = Granted::default();
        granted.add(store.allocate("order", 10, 0).await.unwrap());
        // Whatever looks at the server sees the right one; all others go astray.
        proxy.route(Box::new(|text| usize::from(!is_about_the_session(text))));
        for _ in 0..2 {
            words(store.allocate("order", 10, 0).await, &[]);
        }
        // Every other one goes astray.
        let mut count = 0;
        proxy.route(Box::new(move |text| {
            count += 1;
            usize::from(!is_about_the_session(text) && count % 2 == 0)
        }));
        for _ in 0..8 {
            if let Ok(segment) = store.allocate("order", 10, 0).await {
                granted.add(segment);
            }
        }
        let next = other.allocate("order", 10, 0).await.unwrap();
        let is_next =
            if dialect.contains("batch") { next.version == theirs.version + 1 } else { next.start == theirs.end };
        assert!(is_next, "{dialect}: the other server granted something: {next:?} after {theirs:?}");
        proxy.route(Box::new(|_| 0));
        while store.allocate("order", 10, 0).await.is_err() {}
        granted.add(store.allocate("order", 10, 0).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_moves_statements_to_another_session_is_granted_nothing_there() {
    for init in
        ["SET autocommit = 0", "BEGIN", "SET unique_checks = 0, check_constraint_checks = 0", "SET NAMES latin1"]
    {
        let (mut server, url) = with_user(&[&format!("--init-connect={init}")]);
        let mut granted: BTreeMap<String, Granted> = BTreeMap::new();
        for _ in 0..2 {
            for dialect in DIALECTS.map(dialect).into_iter().chain([dialect("ticket")]) {
                let granted = granted.entry(dialect.clone()).or_default();
                let ports = [server.port(), server.port()];
                let proxy = Multiplexer::start(&ports, Box::new(|_| 0)).unwrap();
                let parameters = format!("{dialect}&connections=1");
                let store = MysqlStore::connect(options(&proxy.url(&url), &parameters)).await.unwrap();
                store.open_tag("order").await.unwrap();
                granted.add(store.allocate("order", 10, 0).await.unwrap());
                // The session of the second connection was never set.
                proxy.route(Box::new(|text| usize::from(!is_about_the_session(text))));
                for _ in 0..2 {
                    if let Ok(segment) = store.allocate("order", 10, 0).await {
                        granted.add(segment);
                    }
                }
            }
            server.restart().unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_proxy_says_for_its_server_is_worth_a_retry() {
    let server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    let proxy = Multiplexer::start(&[server.port()], Box::new(|_| 0)).unwrap();
    let store = MysqlStore::connect(options(&proxy.url(&url), "connections=1")).await.unwrap();
    let mut end = store.allocate("order", 10, 0).await.unwrap().end;
    for (number, may_have_granted) in [
        (1615, false),
        (1461, false),
        (1243, false),
        (1105, true),
        (2003, true),
        (2006, true),
        (2013, true),
        (9001, true),
    ] {
        proxy.fail("UPDATE unalike_tag", number);
        let error = store.allocate("order", 10, 0).await.unwrap_err();
        assert!(error.is_retryable(), "{number}: {error:?}");
        assert_eq!(error.may_have_granted(), may_have_granted, "{number}: {error:?}");
        let segment = store.allocate("order", 10, 0).await.unwrap();
        assert_eq!(segment.start, end, "{number}");
        end = segment.end;
        // What only reads granted nothing, and is worth a retry all the same.
        proxy.fail("SELECT tag, start", number);
        let error = store.tag("order").await.unwrap_err();
        assert!(error.is_retryable() && !error.may_have_granted(), "{number}: {error:?}");
    }
    store.create_tag("invoice", &TagOptions::default()).await.unwrap();
}
