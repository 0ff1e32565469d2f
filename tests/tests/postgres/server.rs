//! The server and the command line over PostgreSQL: where its stores, passwords and tables come from, and what it does
//! without them.

#![expect(clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use anyhow::ensure;
use tempfile::TempDir;
use unalike_tests::postgres::Postgres;
use unalike_tests::server::{Server, name_of, ok_over, run_over};

#[test]
fn ids_come_from_postgres() -> anyhow::Result<()> {
    let url = Postgres::shared()?.database()?;
    let server = Server::start_with(["--store", url.as_str()])?;
    let client = server.client();
    assert_eq!(client.ids("/v1/sequences/order/ids?count=3")?, [1, 2, 3]);
    assert_eq!(client.ids("/v1/sequences/order/ids?sub=a&count=2")?, [1, 2]);
    assert_eq!(client.ids("/v1/snowflakes/default/ids?count=2")?.len(), 2);
    assert_eq!(client.get("/health/ready")?.status, 200);
    let directory = TempDir::new()?;
    assert_eq!(ok_over(&directory, &url, &["schema", "upgrade"])?.lines().count(), 1);
    assert!(ok_over(&directory, &url, &["tags", "create", "chat", "--ordered"])?.contains("chat"));
    assert_eq!(client.ids("/v1/sequences/chat/ids?count=3")?, [1, 2, 3]);
    assert!(ok_over(&directory, &url, &["tags", "list"])?.contains("chat"));
    assert!(ok_over(&directory, &url, &["leases", "list", "default"])?.lines().count() > 1);
    Ok(())
}

#[test]
fn a_user_with_the_least_privileges_and_a_password_file_is_enough() -> anyhow::Result<()> {
    let server = Postgres::start()?;
    let url = server.database()?;
    let (database, port) = (name_of(&url), server.port());
    let directory = TempDir::new()?;
    let schema = ok_over(&directory, &url, &["schema", "--user", "o\"brien"])?;
    server.sql(database, &format!("CREATE ROLE \"o\"\"brien\" LOGIN PASSWORD 'a long secret'; {schema}"))?;
    server.demand_passwords()?;
    std::fs::write(directory.path().join("password"), "a long secret\n")?;
    let store = format!("postgres://o%22brien@127.0.0.1:{port}/{database}?create=false&password-file=password");
    // The first use begins the store: it has tables, and no row.
    let begun = format!("postgres://o%22brien@127.0.0.1:{port}/{database}?password-file=password");
    assert_eq!(ok_over(&directory, &begun, &["next", "order", "-n", "2"])?, "1\n2\n");
    assert_eq!(ok_over(&directory, &store, &["next", "order", "-n", "1"])?.lines().count(), 1);
    std::fs::write(directory.path().join("password"), "another secret\n")?;
    let ran = run_over(&directory, &store, &["next", "order"])?;
    assert!(ran.code == Some(1) && ran.stderr.contains("denied"), "{ran:?}");
    assert!(!ran.stderr.contains("secret"), "{ran:?}");
    Ok(())
}

#[test]
fn sequences_are_listed_and_no_table_is_made() -> anyhow::Result<()> {
    let server = Postgres::shared()?;
    let url = server.database()?;
    let (database, store) = (name_of(&url), format!("{url}?dialect=sequence"));
    server.sql(database, "CREATE SEQUENCE invoice")?;
    let tables = || server.sql(database, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'");
    let before = tables()?;
    let directory = TempDir::new()?;
    for command in [&["tags", "list"][..], &["tags", "show", "invoice"]] {
        assert!(ok_over(&directory, &store, command)?.contains("invoice"));
        assert_eq!(tables()?, before, "{command:?}");
    }
    assert_eq!(ok_over(&directory, &store, &["next", "invoice"])?, "1\n");
    assert!(tables()?.contains("unalike_store"));
    Ok(())
}

#[test]
fn a_schema_that_is_named_is_made_and_opened_to_the_user() -> anyhow::Result<()> {
    let server = Postgres::start()?;
    let url = server.database()?;
    let (database, port) = (name_of(&url), server.port());
    let directory = TempDir::new()?;
    // Whoever runs it has another search path, and everybody else's way to the schema is closed.
    server.sql(database, "CREATE ROLE ids LOGIN; REVOKE ALL ON SCHEMA public FROM PUBLIC")?;
    let own = format!("{url}?schema=The+%22Shop%22");
    let schema = ok_over(&directory, &own, &["schema", "--user", "ids"])?;
    server.sql(database, &schema)?;
    let store = format!("postgres://ids@127.0.0.1:{port}/{database}?schema=The+%22Shop%22");
    assert_eq!(ok_over(&directory, &store, &["next", "order", "-n", "2"])?, "1\n2\n");
    assert_eq!(ok_over(&directory, &store, &["next", "default", "--snowflake"])?.lines().count(), 1);
    // Sequences of a schema that has others' tables.
    server.sql(database, "CREATE SCHEMA shop; CREATE SEQUENCE shop.order_id_seq; CREATE SEQUENCE public.secret")?;
    let sequences = format!("{url}?dialect=sequence&schema=shop");
    server.sql(database, &ok_over(&directory, &sequences, &["schema", "--user", "ids"])?)?;
    let store = format!("postgres://ids@127.0.0.1:{port}/{database}?dialect=sequence&schema=shop");
    assert_eq!(ok_over(&directory, &store, &["next", "order_id_seq", "-n", "2"])?, "1\n2\n");
    let may = "SELECT has_sequence_privilege('ids', 'public.secret', 'USAGE')";
    assert_eq!(server.sql(database, may)?.trim(), "f");
    Ok(())
}

#[test]
fn schema_is_that_of_the_store_s_kind() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    let text = ok_over(&directory, "postgres://ids@nowhere/ids?dialect=sequence", &["schema", "--user", "ids"])?;
    for line in [
        "GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA public TO \"ids\";",
        "GRANT SELECT, INSERT, UPDATE ON unalike_store TO \"ids\";",
        "-- The least that the user needs: CREATE ROLE \"ids\" LOGIN PASSWORD '..';",
    ] {
        assert!(text.lines().any(|printed| printed == line), "no {line:?} in {text}");
    }
    assert!(text.contains("unalike_lease (") && !text.contains("ENGINE"), "{text}");
    let both = ok_over(&directory, "postgres://ids@nowhere/ids", &["--leases", "mysql://ids@nowhere/ids", "schema"])?;
    assert!(both.contains("fillfactor") && both.contains("ENGINE = InnoDB"), "{both}");
    assert!(
        ok_over(&directory, "postgres://ids@nowhere/ids", &["schema", "--dialect", "leaf"])?.contains("leaf_alloc")
    );
    Ok(())
}

#[test]
fn a_server_goes_on_without_its_database_and_by_itself_when_it_is_back() -> anyhow::Result<()> {
    let mut postgres = Postgres::start()?;
    let url = postgres.database()?;
    let store = format!("{url}?connect-timeout-ms=500&request-timeout-ms=1000");
    let server = Server::start_with(["--store", store.as_str()])?;
    let client = server.client();
    assert_eq!(client.ids("/v1/sequences/order/ids")?, [1]);
    postgres.kill9()?;
    assert_eq!(client.ids("/v1/sequences/order/ids")?, [2], "of what is buffered");
    let answer = client.get("/v1/sequences/new/ids")?;
    assert!(answer.status == 503, "{answer:?}");
    postgres.restart()?;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while client.get("/v1/sequences/new/ids")?.status != 200 {
        ensure!(std::time::Instant::now() < deadline, "it does not come back");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Ok(())
}

#[test]
fn a_server_that_took_over_is_adopted_by_command() -> anyhow::Result<()> {
    let mut primary = Postgres::start()?;
    let url = primary.database()?;
    let directory = TempDir::new()?;
    assert_eq!(ok_over(&directory, &url, &["next", "order"])?, "1\n");
    let mut standby = primary.start_standby("standby")?;
    primary.kill9()?;
    standby.promote()?;
    standby.take_place_of(&primary);
    standby.restart()?;
    let ran = run_over(&directory, &url, &["next", "order"])?;
    assert!(ran.code == Some(1) && ran.stderr.contains("timeline 2"), "{ran:?}");
    let adopted = ok_over(&directory, &url, &["store", "adopt", "--lift", "1000"])?;
    assert!(adopted.contains("tags: 1, each lifted by 1000"), "{adopted}");
    let next: u64 = ok_over(&directory, &url, &["next", "order"])?.trim().parse()?;
    assert!(next > 1_000);
    Ok(())
}

/// Unalike makes no sequence, so none begins above its start; and it draws from none that it refuses.
#[test]
fn sequences_that_were_restored_are_lifted_by_values() -> anyhow::Result<()> {
    let postgres = Postgres::shared()?;
    let url = postgres.database()?;
    let made =
        "CREATE SEQUENCE orders INCREMENT BY 50; CREATE SEQUENCE again CYCLE; CREATE SEQUENCE down INCREMENT BY -1";
    postgres.sql(name_of(&url), made)?;
    let (directory, store) = (TempDir::new()?, format!("{url}?dialect=sequence"));
    let ran = run_over(&directory, &store, &["next", "nothing"])?;
    assert!(
        ran.code == Some(1) && ran.stderr.contains("CREATE SEQUENCE") && !ran.stderr.contains("tags create"),
        "{ran:?}"
    );
    assert_eq!(ok_over(&directory, &store, &["next", "orders"])?, "1\n");
    let said = ok_over(&directory, &store, &["store", "restored", "--lift", "10"])?;
    assert!(said.contains("sequences: 1, and 10 values were drawn from each"), "{said}");
    assert!(said.contains("begins at its own START") && !said.contains("lifted"), "{said}");
    // Of ten values that stand for 50 numbers each.
    let next: u64 = ok_over(&directory, &store, &["next", "orders"])?.trim().parse()?;
    assert!(next > 500, "{next}");
    Ok(())
}
