//! unalike's own tables in a real PostgreSQL: the contracts, stripes, and what is checked of a server.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a fixture that cannot start fails the test")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use unalike_postgres::{Dialect, Optimizer, PostgresLeases, PostgresOptions, PostgresStore};
use unalike_storage::contract::{self, Fixture, LeaseFixture, SegmentFixture, segment_checks};
use unalike_storage::{
    AdaptiveStep, ID_MAX, LeaseLimits, LeaseStore, Mode, RefillPolicy, Segment, SegmentStore, StepPolicy, StoreError,
    Stripe, StripedStore, TagCreation, TagOptions, resize_stripes, sub_tag,
};
use unalike_tests::authority::Authority;
use unalike_tests::postgres::Postgres;
use unalike_tests::refusals::refused;

/// A server of the test's own, with one database.
struct Server {
    postgres: Mutex<Postgres>,
    url: String,
}

impl Server {
    fn start(settings: &[&str]) -> Self {
        let postgres = Postgres::start_with(settings).expect("PostgreSQL starts");
        let url = postgres.database().expect("a database");
        Self { postgres: Mutex::new(postgres), url }
    }
}

#[async_trait]
impl Fixture for Server {
    async fn restart(&self) {
        self.postgres.lock().unwrap_or_else(PoisonError::into_inner).restart().expect("PostgreSQL starts again");
    }
}

#[async_trait]
impl SegmentFixture for Server {
    async fn segment_client(&self, creation: TagCreation) -> Arc<dyn SegmentStore> {
        let mut options = options(&self.url);
        options.creation = creation;
        Arc::new(PostgresStore::connect(options).await.expect("the store opens"))
    }
}

#[async_trait]
impl LeaseFixture for Server {
    async fn lease_client(&self, limits: LeaseLimits) -> Arc<dyn LeaseStore> {
        let mut options = options(&self.url);
        options.limits = limits;
        Arc::new(PostgresLeases::connect(options).await.expect("the leases open"))
    }
}

/// Three databases that number together.
struct Stripes([Server; 3]);

#[async_trait]
impl Fixture for Stripes {
    async fn restart(&self) {
        for server in &self.0 {
            server.restart().await;
        }
    }
}

#[async_trait]
impl SegmentFixture for Stripes {
    async fn segment_client(&self, creation: TagCreation) -> Arc<dyn SegmentStore> {
        let mut stores = Vec::new();
        for server in &self.0 {
            stores.push(server.segment_client(creation).await);
        }
        Arc::new(StripedStore::open(stores).await.expect("the stripes open"))
    }

    fn keeps_order(&self) -> bool {
        false
    }

    fn can_be_a_stripe(&self) -> bool {
        false
    }
}

/// A new database on the server that the tests share.
fn database() -> String {
    Postgres::shared().and_then(Postgres::database).expect("a database")
}

fn options(url: &str) -> PostgresOptions {
    PostgresOptions::from_url(url).expect("a URL")
}

async fn try_open(url: &str) -> Result<PostgresStore, StoreError> {
    PostgresStore::connect(PostgresOptions::from_url(url)?).await
}

async fn open(url: &str) -> PostgresStore {
    try_open(url).await.expect("the store opens")
}

/// The database's name in a URL.
fn name(url: &str) -> &str {
    url.rsplit_once('/').unwrap().1
}

fn sql(url: &str, statements: &str) -> String {
    Postgres::shared().and_then(|server| server.sql(name(url), statements)).expect("the statements run")
}

/// All numbers of these segments, each once.
fn numbers<'s>(segments: impl IntoIterator<Item = &'s Segment>) -> BTreeSet<u64> {
    let mut numbers = BTreeSet::new();
    for segment in segments {
        for number in segment.start..segment.end {
            assert!(numbers.insert(number), "{number} was granted twice");
        }
    }
    numbers
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_keeps_the_contract_of_segments_through_kill_9() {
    contract::segments(&Server::start(&[])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_keeps_the_contract_of_leases_through_kill_9() {
    contract::leases(&Server::start(&[])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stripes_in_postgres_keep_the_contract_of_segments() {
    contract::segments(&Stripes([Server::start(&[]), Server::start(&[]), Server::start(&[])])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_default_of_a_server_serves() {
    let odd = [
        "default_transaction_isolation=serializable",
        "default_transaction_isolation=repeatable read",
        "default_transaction_read_only=on",
        "synchronous_commit=off",
        "standard_conforming_strings=off",
        "statement_timeout=200",
        "lock_timeout=1",
        "bytea_output=escape",
        "quote_all_identifiers=on",
    ];
    for setting in odd {
        let server = Server::start(&[]);
        // For this database: the fixture's own statements need the usual ones.
        let (setting, value) = setting.split_once('=').unwrap();
        let database = name(&server.url);
        let alter = format!("ALTER DATABASE {database} SET {setting} = '{value}'");
        server.postgres.lock().unwrap().sql("postgres", &alter).unwrap();
        segment_checks::concurrent_clients_never_share_a_number(&server).await;
        segment_checks::a_tail_is_taken_back_once(&server).await;
        segment_checks::tags_keep_their_options(&server).await;
        segment_checks::a_raise_lifts_and_never_lowers(&server).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_that_many_create_at_once_come_into_being_once() {
    let url = database();
    let mut tasks = Vec::new();
    for client in 0..8 {
        // Tables included.
        let url = url.clone();
        tasks.push(tokio::spawn(async move {
            let store = open(&url).await;
            for tag in 0..10 {
                store.allocate(&format!("tag-{}", (tag + client) % 10), 1, 0).await.expect("a grant");
            }
        }));
    }
    for task in tasks {
        task.await.expect("a client");
    }
    let listed = open(&url).await.tags(None, 100).await.expect("a list");
    assert_eq!(listed.iter().map(|record| record.watermark).collect::<Vec<_>>(), [8; 10]);
    assert_eq!(sql(&url, "SELECT tags FROM unalike_store WHERE part = 'unalike'").trim(), "10");
}

#[tokio::test]
async fn a_store_that_became_a_stripe_grants_nothing_to_who_did_not_join() {
    let url = database();
    let store = open(&url).await;
    let granted = store.allocate("order", 5, 0).await.expect("a grant");
    let stripe = Stripe { set: 7, index: 0, count: 2 };
    store.restripe(None, Some(&stripe)).await.expect("a new set");
    refused(store.allocate("order", 5, 0).await, &["stripe 0 of 2", "together with all stores"]);
    refused(store.allocate("new", 5, 0).await, &["stripe 0 of 2", "together with all stores"]);
    let joined = SegmentStore::join_stripe(&store, &stripe).await.expect("joined");
    refused(store.allocate("order", 5, 0).await, &["stripe 0 of 2", "together with all stores"]);
    assert_eq!(joined.store.allocate("order", 5, 0).await.expect("a grant").start, granted.end);
}

#[tokio::test(flavor = "multi_thread")]
async fn stripes_are_resized_over_databases() {
    let (first, second) = (database(), database());
    let alone: Arc<dyn SegmentStore> = Arc::new(open(&first).await);
    let mut granted = vec![alone.allocate("order", 100, 0).await.expect("a grant")];
    let stores = || async { [Arc::new(open(&first).await) as Arc<dyn SegmentStore>, Arc::new(open(&second).await)] };
    resize_stripes(std::slice::from_ref(&alone), &stores().await, 0).await.expect("resized");
    refused(alone.allocate("order", 1, 0).await, &["together with all stores"]);
    let set = StripedStore::open(stores().await.to_vec()).await.expect("the set opens");
    let mut seen: BTreeSet<u64> = granted.drain(..).flat_map(|segment| segment.start..segment.end).collect();
    for _ in 0..20 {
        let segment = set.allocate("order", 10, 0).await.expect("a grant");
        for number in (0..segment.count()).map(|nth| segment.start + nth * segment.stride) {
            assert!(seen.insert(number), "{number} was granted twice");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_come_to_a_limit_of_tags_at_once_do_not_wait_for_each_other() {
    let url = database();
    let mut options = options(&format!("{url}?connections=2&connect-timeout-ms=60000&request-timeout-ms=60000"));
    options.creation.tags_max = 1;
    let store = Arc::new(PostgresStore::connect(options).await.expect("the store opens"));
    store.allocate("order", 10, 0).await.expect("a grant");
    let began = std::time::Instant::now();
    let refused: Vec<_> = (0..8)
        .map(|nth| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.allocate(&format!("tag-{nth}"), 10, 0).await })
        })
        .collect();
    for refused in refused {
        let error = refused.await.unwrap().expect_err("there is one already");
        assert!(matches!(error, StoreError::TagLimit { .. }), "{error:?}");
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(30), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_sub_key_takes_the_options_of_its_tag() {
    let url = database();
    let store = open(&url).await;
    let adaptive = AdaptiveStep { initial: 5, min: 2, max: 50, grow_below_ms: 7, shrink_above_ms: u64::MAX };
    let made = TagOptions {
        start: 1_000,
        step: StepPolicy::Adaptive(adaptive),
        refill: RefillPolicy::Remaining { count: 3 },
        mode: Mode::Ordered,
    };
    store.create_tag("chat", &made).await.expect("created");
    let user = sub_tag("chat", "user_1").expect("a name");
    assert_eq!(store.allocate(&user, 10, 0).await.expect("made on first use").start, 1_000);
    assert_eq!(store.tag(&user).await.expect("it is there").options, made);
    assert_eq!(sql(&url, "SELECT tags FROM unalike_store WHERE part = 'unalike'").trim(), "1", "it is counted as none");
}

#[tokio::test]
async fn many_tags_are_created_and_ended_in_one_step() {
    let url = database();
    let store = open(&url).await;
    let tags: Vec<_> = (0..500).map(|number| (format!("tag-{number:03}"), TagOptions::default())).collect();
    assert_eq!(store.create_tags(&tags).await.expect("created").expect("all").len(), 500);
    assert_eq!(store.create_tags(&tags[..1]).await.expect("an answer"), None, "it is there");
    assert_eq!(sql(&url, "SELECT tags FROM unalike_store WHERE part = 'unalike'").trim(), "500");
    let names: Vec<_> = tags.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(store.retire_tags(&names).await.expect("ended").expect("all").len(), 500);
    let error = store.allocate("tag-007", 1, 0).await.expect_err("it has ended");
    assert!(matches!(error, StoreError::Exhausted { .. }), "{error:?}");
}

#[tokio::test]
async fn a_server_that_may_lose_commits_is_refused_unless_somebody_vouches_for_it() {
    let server = Postgres::start_with(&["fsync=off"]).unwrap();
    let url = server.database().unwrap();
    refused(try_open(&url).await, &["fsync is off", "durability=assumed"]);
    open(&format!("{url}?durability=assumed")).await.allocate("order", 1, 0).await.expect("vouched for");

    let server = Postgres::start_with(&["zero_damaged_pages=on"]).unwrap();
    refused(try_open(&server.database().unwrap()).await, &["zero_damaged_pages is on", "durability=assumed"]);

    // While programs run: a later statement is refused, and goes on when the setting is as it was.
    let server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    let store = open(&url).await;
    let first = store.allocate("order", 10, 0).await.expect("a grant");
    for (setting, value, is_served) in [
        ("fsync", "off", false),
        ("fsync", "on", true),
        ("zero_damaged_pages", "on", false),
        ("zero_damaged_pages", "off", true),
    ] {
        server.sql("postgres", &format!("ALTER SYSTEM SET {setting} = {value}")).unwrap();
        server.sql("postgres", "SELECT pg_reload_conf()").unwrap();
        // Sessions read it between two statements, a moment later.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            let answer = store.allocate("order", 10, first.end + 1_000_000).await;
            if answer.is_ok() == is_served {
                if !is_served {
                    refused(answer, &[&format!("{setting} is {value}")]);
                }
                break;
            }
            assert!(std::time::Instant::now() < deadline);
        }
    }
}

#[tokio::test]
async fn commits_are_durable_wherever_it_is_said_that_they_need_not_be() {
    let server = Postgres::start_with(&["synchronous_commit=off"]).unwrap();
    let url = server.database().unwrap();
    server.sql("postgres", &format!("ALTER DATABASE {} SET synchronous_commit = off", name(&url))).unwrap();
    server.sql("postgres", "ALTER ROLE postgres SET synchronous_commit = off").unwrap();
    let store = open(&url).await;
    store.allocate("order", 10, 0).await.expect("its sessions are set otherwise");
    let select = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'unalike'";
    assert_eq!(server.sql("postgres", select).unwrap().trim(), "1");
}

#[tokio::test]
async fn a_table_that_grants_cannot_rest_on_is_refused() {
    let changes = [
        ("ALTER TABLE unalike_tag SET UNLOGGED", "unalike_tag is unlogged"),
        ("ALTER TABLE unalike_tag DROP CONSTRAINT unalike_tag_pkey", "the primary key ()"),
        ("ALTER TABLE unalike_tag DROP CONSTRAINT unalike_tag_pkey, ADD PRIMARY KEY (tag) DEFERRABLE", "has triggers"),
        (
            "CREATE COLLATION public.\"C\" (provider = icu, locale = 'und', deterministic = false);
             ALTER TABLE unalike_tag ALTER tag TYPE text COLLATE public.\"C\"",
            "lacks the column tag text C",
        ),
        ("ALTER TABLE unalike_tag ALTER watermark TYPE numeric", "lacks the column watermark bigint"),
        ("ALTER TABLE unalike_tag ALTER tag TYPE text COLLATE \"POSIX\"", "lacks the column tag text C"),
        ("CREATE RULE nothing AS ON UPDATE TO unalike_tag DO INSTEAD NOTHING", "has triggers, rules"),
        ("ALTER TABLE unalike_tag ENABLE ROW LEVEL SECURITY", "row security"),
        ("ALTER TABLE unalike_tag RENAME TO gone; CREATE VIEW unalike_tag AS SELECT * FROM gone", "no ordinary table"),
        ("ALTER TABLE unalike_store SET UNLOGGED", "unalike_store is unlogged"),
    ];
    for (change, words) in changes {
        let url = database();
        open(&url).await.allocate("order", 1, 0).await.expect("a grant");
        sql(&url, change);
        refused(try_open(&url).await, &[words, "unalike schema"]);
    }
    let url = database();
    PostgresLeases::connect(options(&url)).await.expect("the leases open");
    sql(&url, "ALTER TABLE unalike_lease SET UNLOGGED");
    refused(PostgresLeases::connect(options(&url)).await, &["unalike_lease is unlogged"]);
}

#[tokio::test]
async fn a_table_that_was_lost_is_not_made_again() {
    const LOST: &[&str] = &["has begun", "restore it from a backup", "unalike store restored --lift COUNT"];
    let url = database();
    // A first start that was interrupted goes on.
    open(&url).await;
    sql(&url, "DROP TABLE unalike_tag");
    let store = open(&url).await;
    assert_eq!(store.allocate("order", 3, 0).await.expect("a grant").end, 4);
    sql(&url, "ALTER TABLE unalike_tag RENAME TO kept");
    for lost in [url.clone(), format!("{url}?create=false"), url.clone()] {
        let error = try_open(&lost).await.expect_err("lost");
        assert!(!error.is_not_begun(), "{error:?}");
        refused::<()>(Err(error), LOST);
    }
    refused(PostgresStore::restored(options(&url), 1_000).await, LOST);
    sql(&url, "ALTER TABLE kept RENAME TO unalike_tag");
    assert_eq!(open(&url).await.allocate("order", 1, 0).await.expect("a grant").start, 4);
    PostgresStore::restored(options(&url), 1_000).await.expect("restored");
    assert!(open(&url).await.allocate("order", 1, 0).await.expect("a grant").start > 1_004);

    // That opened the leases, so their tables were there.
    for table in ["unalike_lease", "unalike_lease_namespace"] {
        sql(&url, &format!("ALTER TABLE {table} RENAME TO kept"));
        for _ in 0..2 {
            refused(PostgresLeases::connect(options(&url)).await, &[&format!("{table} is missing"), LOST[1]]);
        }
        sql(&url, &format!("ALTER TABLE kept RENAME TO {table}"));
        PostgresLeases::connect(options(&url)).await.expect("the leases open");
    }
}

#[tokio::test]
async fn a_database_that_cannot_keep_all_names_is_refused() {
    let server = Postgres::shared().unwrap();
    server.sql("postgres", "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0").unwrap();
    refused(try_open(&server.url("latin")).await, &["LATIN1", "UTF8"]);
}

#[tokio::test]
async fn the_least_privileges_are_enough_and_fewer_are_not() {
    let url = database();
    let server = Postgres::shared().unwrap();
    let role = format!("least_{}", name(&url));
    server.sql("postgres", &format!("CREATE ROLE {role} LOGIN")).unwrap();
    let as_role = url.replace("postgres@", &format!("{role}@"));
    refused(try_open(&as_role).await, &["unalike_store is missing", "the user may not create it", "unalike schema"]);
    for statement in Dialect::Unalike.ddl().into_iter().chain(PostgresLeases::ddl()) {
        sql(&url, &statement);
    }
    refused(try_open(&as_role).await, &["lacks a privilege", "permission denied for table unalike_store"]);
    let privileges = Dialect::Unalike.privileges(None).into_iter().chain(PostgresLeases::privileges());
    for (table, privileges) in privileges {
        sql(&url, &format!("GRANT {privileges} ON {table} TO {role}"));
    }
    let store = open(&format!("{as_role}?create=true")).await;
    store.allocate("order", 10, 0).await.expect("a grant");
    store.check().await.expect("it can be written to");
    store.raise_tag("order", 1_000).await.expect("raised");
    store.retire_tag("order").await.expect("ended");
    let leases = store.leases().await.expect("the leases open");
    assert!(leases.namespaces().await.expect("a list").is_empty());
}

#[tokio::test]
async fn a_schema_has_tables_of_its_own() {
    let url = database();
    sql(&url, "CREATE SCHEMA \"Odd 'one\"");
    let at = format!("{url}?schema=Odd%20%27one");
    let (inside, outside) = (open(&at).await, open(&url).await);
    assert_eq!(inside.allocate("order", 10, 0).await.expect("a grant").start, 1);
    assert_eq!(outside.allocate("order", 10, 0).await.expect("a grant").start, 1, "numbers of its own");
    assert_eq!(sql(&url, "SELECT watermark FROM \"Odd 'one\".unalike_tag").trim(), "10");
    refused(try_open(&format!("{url}?schema=nowhere")).await, &["no schema \"nowhere\""]);
    // Tables of one's own session stand behind.
    let shadow = "CREATE SCHEMA other; ALTER DATABASE ";
    sql(&url, &format!("{shadow}{} SET search_path = other, public", name(&url)));
    assert_eq!(open(&format!("{url}?schema=public")).await.allocate("order", 1, 0).await.expect("a grant").start, 11);
}

#[tokio::test]
async fn a_new_schema_in_the_search_path_does_not_begin_another_store() {
    let url = database();
    assert_eq!(open(&url).await.allocate("order", 10, 0).await.expect("a grant").start, 1);
    // PostgreSQL's own default begins with the schema of the user's name.
    sql(&url, "CREATE SCHEMA postgres");
    assert_eq!(open(&url).await.allocate("order", 10, 0).await.expect("a grant").start, 11);
    assert_eq!(sql(&url, "SELECT count(*) FROM pg_class WHERE relname = 'unalike_store'").trim(), "1");
}

#[tokio::test]
async fn what_somebody_else_wrote_is_told() {
    let url = database();
    let store = open(&url).await;
    store.allocate("order", 10, 0).await.expect("a grant");
    sql(&url, "UPDATE unalike_tag SET mark = decode(repeat('ab', 16), 'hex')");
    refused(store.allocate("order", 10, 0).await, &["written by or for another store"]);
    sql(&url, "DELETE FROM unalike_store");
    let error = store.identity().await.expect_err("there is no row");
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
}

#[tokio::test]
async fn numbers_end_at_the_top_and_a_count_beyond_it_is_cut() {
    let url = database();
    let store = open(&url).await;
    store.raise_tag("order", 1).await.expect_err("it is unknown");
    store.allocate("order", 1, 0).await.expect("a grant");
    store.raise_tag("order", ID_MAX - 4).await.expect("raised");
    let last = store.allocate("order", u64::MAX, 0).await.expect("a grant");
    assert_eq!((last.start, last.end), (ID_MAX - 4, ID_MAX + 1));
    let error = store.allocate("order", 1, 0).await.expect_err("there is none");
    assert!(matches!(error, StoreError::Exhausted { .. }), "{error:?}");
    numbers([&last]);
}

#[tokio::test]
async fn tls_is_used_as_the_url_says() {
    let authority = Authority::new("localhost");
    let server = Postgres::start_with_tls(&authority).unwrap();
    let url = server.database().unwrap();
    let with = |mode: &str, authority: &Authority| format!("{url}?ssl-mode={mode}&ssl-ca={}", authority.file("ca.pem"));
    let store = open(&with("verify-ca", &authority)).await;
    assert_eq!(store.allocate("order", 10, 0).await.expect("a grant").start, 1);
    open(&url).await.allocate("order", 10, 0).await.expect("preferred: encrypted, and not verified");
    let encrypted =
        "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'unalike'";
    assert_eq!(server.sql("postgres", encrypted).unwrap().trim(), "t");

    let stranger = Authority::new("localhost");
    refused(try_open(&with("verify-ca", &stranger)).await, &["ssl-ca", "certificate"]);
    // The certificate is for localhost.
    refused(try_open(&with("verify-full", &authority)).await, &["ssl-mode", "certificate"]);
    open(&with("verify-full", &authority).replace("127.0.0.1", "localhost")).await;
    refused(try_open(&format!("{url}?sslmode=disable")).await, &["demands TLS"]);
    refused(try_open(&format!("{url}?ssl-mode=verify-ca&ssl-ca=/nowhere/ca.pem")).await, &["/nowhere/ca.pem (ssl-ca)"]);
    let key = format!("{url}?ssl-mode=verify-ca&ssl-ca={}", authority.file("key.pem"));
    refused(try_open(&key).await, &["key.pem (ssl-ca)", "no certificate"]);
}

#[test]
fn urls_say_what_is_wrong_with_them() {
    for (url, words) in [
        ("mysql://ids@h/db", "must be postgres"),
        ("postgres://h/db", "no user"),
        ("postgres://ids@h", "no database"),
        ("postgres://ids@h/db?dialect=leaf", "unalike or sequence"),
        ("postgres://ids@h/db?optimizer=pooled", "needs dialect=sequence"),
        ("postgres://ids@h/db?ssl-mode=yes", "verify-full"),
        ("postgres://ids@h/db?ssl-ca=ca.pem", "ssl-ca needs ssl-mode=verify-full"),
        ("postgres://ids@h/db?sslmode=require&sslrootcert=ca.pem", "no certificate is checked"),
        ("postgres://ids@h/db?failover=yes", "refused or synchronous"),
        ("postgres://ids@h/db?connections=0", "from 1 to 10000"),
        ("postgres://ids@h/db?schema=", "the name of a schema"),
        ("postgres://ids@h/db?sslmod=require", "is unknown"),
    ] {
        refused(PostgresOptions::from_url(url), &[words]);
    }
    let options = PostgresOptions::from_url("postgresql://ids:secret@h/db?sslmode=require&schema=x").unwrap();
    assert_eq!(options.address(), "h:5432/db");
    assert!(!format!("{options:?}").contains("secret"));
    let options = PostgresOptions::from_url("postgres://ids@h/db?optimizer=pooled-lo&dialect=sequence").unwrap();
    assert_eq!(options.dialect, Dialect::Sequence { optimizer: Optimizer::PooledLo });
}
