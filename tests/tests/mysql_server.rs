//! The server and the command line over MariaDB: where its stores, passwords and tables come from, and what it does
//! without them.

#![expect(clippy::unwrap_used, clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use anyhow::ensure;
use serde_json::json;
use tempfile::TempDir;
use unalike_tests::mariadb::MariaDb;
use unalike_tests::server::{Ran, Server, run};

/// Runs it to its end over this store.
fn run_over(directory: &TempDir, store: &str, arguments: &[&str]) -> anyhow::Result<Ran> {
    run(directory.path(), ["--store", store].into_iter().chain(arguments.iter().copied()))
}

/// The same where it must succeed; what it printed.
fn ok(directory: &TempDir, store: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let ran = run_over(directory, store, arguments)?;
    ensure!(ran.code == Some(0), "{arguments:?}: {ran:?}");
    Ok(ran.stdout)
}

/// The name of the database in its URL.
fn name_of(url: &str) -> &str {
    url.rsplit('/').next().unwrap()
}

#[test]
fn ids_come_from_mysql() -> anyhow::Result<()> {
    let url = MariaDb::shared()?.database()?;
    let server = Server::start_with(["--store", url.as_str()])?;
    let client = server.client();
    assert_eq!(client.ids("/v1/sequences/order/ids?count=3")?, [1, 2, 3]);
    assert_eq!(client.ids("/v1/sequences/order/ids?sub=a&count=2")?, [1, 2]);
    assert_eq!(client.get("/health/ready")?.status, 200);

    let directory = TempDir::new()?;
    let flake = ok(&directory, &url, &["--leases", "sqlite://leases.sqlite", "next", "default", "--snowflake"])?;
    assert_eq!(flake.lines().count(), 1);
    assert_eq!(ok(&directory, &url, &["schema", "upgrade"])?.lines().count(), 1);
    Ok(())
}

#[test]
fn a_user_with_the_least_privileges_and_a_password_file_is_enough() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    let url = mariadb.database()?;
    let (database, port) = (name_of(&url), mariadb.port());
    let directory = TempDir::new()?;
    let user = format!("u_{database}");
    let schema = ok(&directory, &url, &["schema", "--user", &user])?;
    mariadb.sql(database, &format!("CREATE USER {user} IDENTIFIED BY 'a long secret'; {schema}"))?;
    std::fs::write(directory.path().join("password"), "a long secret\n")?;
    let store = format!("mysql://{user}@127.0.0.1:{port}/{database}?create=false&password-file=password");
    assert_eq!(ok(&directory, &store, &["next", "order", "-n", "2"])?, "1\n2\n");
    std::fs::write(directory.path().join("password"), "another secret\n")?;
    let ran = run_over(&directory, &store, &["next", "order"])?;
    assert!(ran.code == Some(1) && ran.stderr.contains("denied"), "{ran:?}");
    assert!(!ran.stderr.contains("secret"), "{ran:?}");
    Ok(())
}

#[test]
fn leaf_s_tags_go_on_in_tables_of_our_own() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    let url = mariadb.database()?;
    let database = name_of(&url);
    mariadb.sql(
        database,
        "CREATE TABLE leaf_alloc (biz_tag VARCHAR(128) NOT NULL DEFAULT '' PRIMARY KEY, max_id BIGINT NOT NULL DEFAULT 1, \
             step INT NOT NULL, description VARCHAR(256), \
             update_time TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP) ENGINE = InnoDB; \
         INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 2001, 2000), ('invoice', 1, 100)",
    )?;
    let directory = TempDir::new()?;
    // A number that Leaf has handed out is refused, before anything is changed.
    let ran = run_over(&directory, &url, &["tags", "import", "--from", "leaf", "--tag", "order", "--at", "2000"])?;
    assert!(ran.code == Some(1) && ran.stderr.contains("nothing was changed"), "{ran:?}");
    let rows = "SELECT biz_tag, max_id FROM leaf_alloc ORDER BY biz_tag";
    assert_eq!(mariadb.sql(database, rows)?, "invoice\t1\norder\t2001\n");

    let done = ok(&directory, &url, &["tags", "import", "--from", "leaf"])?;
    let cells: Vec<Vec<&str>> = done.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(cells.len(), 2, "{done}");
    assert_eq!((cells[0][0], cells[0][2]), ("invoice", "1"), "{done}");
    assert_eq!((cells[1][0], cells[1][1], cells[1][2]), ("order", "2000", "2001"), "{done}");
    assert_eq!(ok(&directory, &url, &["next", "order"])?, "2001\n");
    assert_eq!(ok(&directory, &url, &["next", "invoice"])?, "1\n");
    // Leaf finds its rows no more.
    let leaf = mariadb
        .sql(database, "UPDATE leaf_alloc SET max_id = max_id + step WHERE biz_tag = 'order'; SELECT ROW_COUNT()")?;
    assert_eq!(leaf.trim(), "0");

    // Again: nothing is left to bring.
    assert_eq!(ok(&directory, &url, &["tags", "import", "--from", "leaf"])?, "");

    // What broke off behind the fence is finished by hand.
    let done = ok(&directory, &url, &["tags", "import", "--from", "leaf", "--tag", "order"])?;
    assert!(done.contains("was ended there before"), "{done}");
    let done = ok(&directory, &url, &["tags", "import", "--from", "leaf", "--tag", "order", "--at", "9000"])?;
    assert!(done.contains("9000") && done.contains("raised"), "{done}");
    assert_eq!(ok(&directory, &url, &["next", "order"])?, "9000\n");
    Ok(())
}

#[test]
fn a_server_goes_on_without_its_database_and_by_itself_when_it_is_back() -> anyhow::Result<()> {
    let mut mariadb = MariaDb::start()?;
    let url = mariadb.database()?;
    let server = Server::start_with(["--store", url.as_str()])?;
    let client = server.client();
    client.ids("/v1/sequences/order/ids?count=10")?;
    mariadb.kill9()?;
    for _ in 0..50 {
        assert_eq!(client.get("/v1/sequences/order/ids")?.status, 200, "it is covered");
    }
    let ready = loop {
        let ready = client.get("/health/ready")?;
        if ready.body != r#"{"status":"ready"}"# {
            break ready;
        }
    };
    assert_eq!(
        (ready.status, &ready.json()?["status"], &ready.json()?["tag"]),
        (200, &json!("covered"), &json!("order"))
    );
    assert_eq!(client.get("/v1/sequences/new/ids")?.status, 503);
    mariadb.restart()?;
    while client.get("/health/ready")?.body != r#"{"status":"ready"}"# {}
    while client.get("/v1/sequences/new/ids")?.status != 200 {}
    Ok(())
}

#[test]
fn stripes_serve_while_one_of_them_was_never_there() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    let mut third = MariaDb::start()?;
    let stores = [mariadb.database()?, mariadb.database()?, third.database()?];
    let flags: Vec<String> = stores.iter().flat_map(|store| ["--store".to_owned(), store.clone()]).collect();
    let directory = Arc::new(TempDir::new()?);
    let mut ids = {
        let mut server = Server::start_in(Arc::clone(&directory), flags.clone())?;
        let ids = server.client().ids("/v1/sequences/order/ids?count=5000")?;
        ensure!(server.sigterm()?.success(), "it ends as it should");
        ids
    };
    third.kill9()?;
    let server = Server::start_in(directory, flags)?;
    let client = server.client();
    ids.extend(client.ids("/v1/sequences/order/ids?count=5000")?);
    assert_eq!(client.get("/health/ready")?.status, 200);
    assert!(server.log()?.contains("is down, and will be tried again"), "{}", server.log()?);
    third.restart()?;
    ids.extend(client.ids("/v1/sequences/order/ids?count=10000")?);
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "an id came twice");
    Ok(())
}

#[test]
fn stores_become_stripes_and_one_store_again() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    let (first, second) = (mariadb.database()?, mariadb.database()?);
    let directory = TempDir::new()?;
    assert_eq!(ok(&directory, &first, &["next", "order", "-n", "5"])?.lines().count(), 5);
    ok(&directory, &first, &["stripes", "resize", "--to", &first, &second])?;
    let ran = run_over(&directory, &first, &["next", "order"])?;
    assert!(ran.code == Some(1), "it is a stripe now: {ran:?}");
    let both = ["--store", second.as_str(), "next", "order", "-n", "10"];
    let ids = ok(&directory, &first, &both)?;
    let greatest: u64 = ids.lines().map(|id| id.parse::<u64>().unwrap()).max().unwrap();
    assert!(ids.lines().all(|id| id.parse::<u64>().is_ok_and(|id| id > 5)), "{ids}");
    ok(&directory, &first, &["--store", second.as_str(), "stripes", "resize", "--to", &first])?;
    let alone: u64 = ok(&directory, &first, &["next", "order"])?.trim().parse()?;
    assert!(alone > greatest, "{alone} after {greatest}");
    Ok(())
}

#[test]
fn a_server_that_took_over_is_adopted_by_command() -> anyhow::Result<()> {
    let mut old = MariaDb::start()?;
    let url = old.database()?;
    let directory = TempDir::new()?;
    assert_eq!(ok(&directory, &url, &["next", "order", "-n", "3"])?, "1\n2\n3\n");
    let ran = run_over(&directory, &url, &["store", "adopt", "--lift", "1000"])?;
    assert!(ran.code == Some(1) && ran.stderr.contains("already"), "{ran:?}");
    old.kill9()?;
    let new = old.start_copy()?;
    let url = url.replace(&format!(":{}/", old.port()), &format!(":{}/", new.port()));
    let ran = run_over(&directory, &url, &["next", "order"])?;
    assert!(ran.code == Some(1) && ran.stderr.contains("unalike store adopt"), "{ran:?}");
    let done = ok(&directory, &url, &["store", "adopt", "--lift", "1000"])?;
    assert!(done.contains("1 tags are lifted by 1000"), "{done}");
    assert_eq!(ok(&directory, &url, &["next", "order"])?, "1004\n");
    Ok(())
}
