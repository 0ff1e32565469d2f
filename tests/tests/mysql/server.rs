//! The server and the command line over MariaDB: where its stores, passwords and tables come from, and what it does
//! without them.

#![expect(clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use anyhow::ensure;
use serde_json::json;
use tempfile::TempDir;
use unalike_tests::mariadb::MariaDb;
use unalike_tests::server::{Server, name_of, ok_over, run_over};

#[test]
fn ids_come_from_mysql() -> anyhow::Result<()> {
    let url = MariaDb::shared()?.database()?;
    let server = Server::start_with(["--store", url.as_str()])?;
    let client = server.client();
    assert_eq!(client.ids("/v1/sequences/order/ids?count=3")?, [1, 2, 3]);
    assert_eq!(client.ids("/v1/sequences/order/ids?sub=a&count=2")?, [1, 2]);
    assert_eq!(client.get("/health/ready")?.status, 200);

    let directory = TempDir::new()?;
    let flake = ok_over(&directory, &url, &["--leases", "sqlite://leases.sqlite", "next", "default", "--snowflake"])?;
    assert_eq!(flake.lines().count(), 1);
    assert_eq!(ok_over(&directory, &url, &["schema", "upgrade"])?.lines().count(), 1);
    Ok(())
}

#[test]
fn a_user_with_the_least_privileges_and_a_password_file_is_enough() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    let url = mariadb.database()?;
    let (database, port) = (name_of(&url), mariadb.port());
    let directory = TempDir::new()?;
    let user = format!("u_{database}");
    let schema = ok_over(&directory, &url, &["schema", "--user", &user])?;
    mariadb.sql(database, &format!("CREATE USER {user} IDENTIFIED BY 'a long secret'; {schema}"))?;
    std::fs::write(directory.path().join("password"), "a long secret\n")?;
    let store = format!("mysql://{user}@127.0.0.1:{port}/{database}?create=false&password-file=password");
    assert_eq!(ok_over(&directory, &store, &["next", "order", "-n", "2"])?, "1\n2\n");
    std::fs::write(directory.path().join("password"), "another secret\n")?;
    let ran = run_over(&directory, &store, &["next", "order"])?;
    assert!(ran.code == Some(1) && ran.stderr.contains("denied"), "{ran:?}");
    assert!(!ran.stderr.contains("secret"), "{ran:?}");
    Ok(())
}

#[test]
fn a_row_that_others_insert_is_not_said_to_begin_further_on() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    let url = mariadb.database()?;
    mariadb.sql(
        name_of(&url),
        "CREATE TABLE leaf_alloc (biz_tag VARCHAR(128) COLLATE utf8mb4_bin PRIMARY KEY, max_id BIGINT NOT NULL, step INT NOT NULL, \
             description VARCHAR(256), update_time TIMESTAMP) ENGINE = InnoDB; \
         INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('order', 1, 100)",
    )?;
    let (directory, store) = (TempDir::new()?, format!("{url}?dialect=leaf"));
    assert_eq!(ok_over(&directory, &store, &["next", "order"])?, "1\n");
    let said = ok_over(&directory, &store, &["store", "restored", "--lift", "10"])?;
    assert!(said.contains("tags: 1, each lifted by 10 numbers"), "{said}");
    assert!(said.contains("each that unalike creates") && said.contains("by hand begins at its own value"), "{said}");
    Ok(())
}

#[test]
fn leaf_s_tags_go_on_in_tables_of_our_own() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    let url = mariadb.database()?;
    let database = name_of(&url);
    mariadb.sql(
        database,
        "CREATE TABLE leaf_alloc (biz_tag VARCHAR(128) COLLATE utf8mb4_bin NOT NULL DEFAULT '' PRIMARY KEY, max_id BIGINT NOT NULL DEFAULT 1, \
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

    let done = ok_over(&directory, &url, &["tags", "import", "--from", "leaf"])?;
    let cells: Vec<Vec<&str>> = done.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(cells.len(), 2, "{done}");
    assert_eq!((cells[0][0], cells[0][2]), ("invoice", "1"), "{done}");
    assert_eq!((cells[1][0], cells[1][1], cells[1][2]), ("order", "2000", "2001"), "{done}");
    assert_eq!(ok_over(&directory, &url, &["next", "order"])?, "2001\n");
    assert_eq!(ok_over(&directory, &url, &["next", "invoice"])?, "1\n");
    // Leaf finds its rows no more.
    let leaf = mariadb
        .sql(database, "UPDATE leaf_alloc SET max_id = max_id + step WHERE biz_tag = 'order'; SELECT ROW_COUNT()")?;
    assert_eq!(leaf.trim(), "0");

    // Again: nothing is left to bring.
    let again = run_over(&directory, &url, &["tags", "import", "--from", "leaf"])?;
    assert!(again.code == Some(0) && again.stderr.contains("nothing was changed"), "{again:?}");
    assert_eq!(again.stdout.matches("was ended there before").count(), 2, "{again:?}");
    // A name that never was there is no tag that was ended.
    let misspelt = ["tags", "import", "--from", "leaf", "--tag", "ordr", "--at", "9000"];
    refused(&directory, &url, &misspelt, &["nothing was changed", "\"ordr\" is not in the source"])?;
    assert!(!ok_over(&directory, &url, &["tags", "list"])?.contains("ordr"));

    // What broke off behind the fence is finished by hand.
    let done = ok_over(&directory, &url, &["tags", "import", "--from", "leaf", "--tag", "order"])?;
    assert!(done.contains("was ended there before"), "{done}");
    let done = ok_over(&directory, &url, &["tags", "import", "--from", "leaf", "--tag", "order", "--at", "9000"])?;
    assert!(done.contains("9000") && done.contains("raised"), "{done}");
    assert_eq!(ok_over(&directory, &url, &["next", "order"])?, "9000\n");
    Ok(())
}

const LEAF: &str = "CREATE TABLE leaf_alloc (biz_tag VARCHAR(128) COLLATE utf8mb4_unicode_ci NOT NULL PRIMARY KEY, \
    max_id BIGINT NOT NULL DEFAULT 1, step INT NOT NULL) ENGINE = InnoDB";

const TINYID: &str = "CREATE TABLE tiny_id_info (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, \
    biz_type VARCHAR(63) COLLATE utf8mb4_bin NOT NULL UNIQUE, begin_id BIGINT NOT NULL DEFAULT 0, \
    max_id BIGINT NOT NULL DEFAULT 0, step INT DEFAULT 0, delta INT NOT NULL DEFAULT 1, remainder INT NOT NULL DEFAULT 0, \
    create_time TIMESTAMP NOT NULL DEFAULT NOW(), update_time TIMESTAMP NOT NULL DEFAULT NOW(), \
    version BIGINT NOT NULL DEFAULT 0) ENGINE = InnoDB";

/// A command that must change nothing and say this.
fn refused(directory: &TempDir, url: &str, arguments: &[&str], named: &[&str]) -> anyhow::Result<()> {
    let ran = run_over(directory, url, arguments)?;
    ensure!(ran.code == Some(1) && named.iter().all(|it| ran.stderr.contains(it)), "{arguments:?}: {named:?}: {ran:?}");
    Ok(())
}

/// In Leaf `order`, `ORDER`, `ordér` and `order ` are one row. Here they would be four tags.
#[test]
fn names_that_the_source_takes_for_one_are_imported_by_one_s_word_alone() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    let url = mariadb.database()?;
    let database = name_of(&url);
    mariadb
        .sql(database, &format!("{LEAF}; INSERT INTO leaf_alloc VALUES ('invoice', 500, 10), ('order', 2001, 2000)"))?;
    let rows = || mariadb.sql(database, "SELECT biz_tag, max_id FROM leaf_alloc ORDER BY biz_tag");
    let (before, directory) = (rows()?, TempDir::new()?);
    let import = |more: &[&'static str]| [&["tags", "import", "--from", "leaf"][..], more].concat();

    let named = ["nothing was changed", "biz_tag of leaf_alloc", "utf8mb4_unicode_ci", "--names-as-written"];
    refused(&directory, &url, &import(&[]), &named)?;
    refused(&directory, &url, &import(&["--tag", "order", "--at", "9000"]), &named)?;
    for tag in ["ORDER", "ordér", "order "] {
        let more = import(&["--names-as-written", "--tag", tag]);
        refused(&directory, &url, &more, &["nothing was changed", "as \"order\"", "as it is there"])?;
        let more = import(&["--names-as-written", "--tag", tag, "--at", "9000"]);
        refused(&directory, &url, &more, &["nothing was changed", "as \"order\""])?;
    }
    assert_eq!(rows()?, before);
    assert_eq!(ok_over(&directory, &url, &["tags", "list"])?.lines().count(), 1, "nothing was created");

    let done = ok_over(&directory, &url, &import(&["--names-as-written"]))?;
    assert!(done.contains("2001") && done.contains("invoice"), "{done}");
    assert_eq!(ok_over(&directory, &url, &["next", "order"])?, "2001\n");
    // A space is the one slip that the names of tags leave no room for.
    refused(&directory, &url, &["next", "order "], &["a space at an end"])?;
    Ok(())
}

#[test]
fn a_name_with_a_space_at_an_end_is_not_imported() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    let url = mariadb.database()?;
    let database = name_of(&url);
    let leaf = LEAF.replace("unicode_ci", "bin");
    mariadb.sql(
        database,
        &format!("{leaf}; INSERT INTO leaf_alloc VALUES ('invoice', 500, 10), ('order ', 2001, 2000)"),
    )?;
    let directory = TempDir::new()?;
    refused(
        &directory,
        &url,
        &["tags", "import", "--from", "leaf"],
        &["nothing was changed", "\"order \"", "rename it"],
    )?;
    // To the server it has that name already.
    mariadb.sql(database, "UPDATE leaf_alloc SET biz_tag = 'order' WHERE biz_tag = 'order'")?;
    ok_over(&directory, &url, &["tags", "import", "--from", "leaf"])?;
    assert_eq!(ok_over(&directory, &url, &["next", "order"])?, "2001\n");
    // One that came into being before there was such a rule is used as ever.
    mariadb.sql(database, "UPDATE unalike_tag SET tag = 'order ' WHERE tag = 'order'")?;
    assert_eq!(ok_over(&directory, &url, &["next", "order "])?, "2002\n");
    refused(&directory, &url, &["tags", "create", "order "], &["a space at an end"])?;
    refused(&directory, &url, &["tags", "create", "new "], &["a space at an end"])?;
    Ok(())
}

/// Two databases of tinyid that number together: the one has the odd numbers, the other one the even ones.
#[test]
fn numbers_that_others_count_between_are_imported_by_number_alone() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    let (odd, even) = (mariadb.database()?, mariadb.database()?);
    let rows = |remainder: u32, max: u32| {
        format!(
            "{TINYID}; INSERT INTO tiny_id_info (biz_type, max_id, step, delta, remainder) \
             VALUES ('alone', 70, 10, 1, 0), ('order', {max}, 10000, 2, {remainder})"
        )
    };
    mariadb.sql(name_of(&odd), &rows(1, 10_000))?;
    mariadb.sql(name_of(&even), &rows(0, 20_000))?;
    let directory = TempDir::new()?;
    let named = ["nothing was changed", "\"order\"", "delta 2", "remainder 1", "--at NUMBER"];
    refused(&directory, &odd, &["tags", "import", "--from", "tinyid"], &named)?;
    refused(&directory, &odd, &["tags", "import", "--from", "tinyid", "--source-stopped", "--tag", "order"], &named)?;
    assert_eq!(
        mariadb.sql(name_of(&odd), "SELECT biz_type FROM tiny_id_info ORDER BY biz_type")?,
        "alone\norder\n",
        "nothing was ended"
    );
    ok_over(&directory, &odd, &["tags", "import", "--from", "tinyid", "--tag", "alone"])?;

    let from_even = format!("{even}?dialect=tinyid&create=false");
    refused(&directory, &odd, &["tags", "import", "--from", &from_even, "--tag", "order"], &["unalike schema"])?;
    // Whoever only looks makes no table, and whoever is to change something does.
    let open = from_even.replace("&create=false", "");
    ok_over(&directory, &open, &["tags", "list"])?;
    refused(&directory, &odd, &["tags", "import", "--from", &from_even, "--tag", "order"], &["unalike schema"])?;
    refused(&directory, &open, &["tags", "raise", "nobody", "5"], &["nobody"])?;
    for from in ["tinyid", &from_even] {
        let done = ok_over(&directory, &odd, &["tags", "import", "--from", from, "--tag", "order", "--at", "20001"])?;
        assert!(done.contains("20001"), "{done}");
    }
    assert_eq!(ok_over(&directory, &odd, &["next", "order"])?, "20001\n");
    Ok(())
}

#[test]
fn tags_of_another_system_are_shown_and_no_table_is_made() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    let directory = TempDir::new()?;
    let leaf = format!("{}; INSERT INTO leaf_alloc VALUES ('order', 2001, 2000)", LEAF.replace("unicode_ci", "bin"));
    let tinyid = format!("{TINYID}; INSERT INTO tiny_id_info (biz_type, max_id, step) VALUES ('order', 2000, 2000)");
    for (dialect, tables) in [("leaf", leaf), ("tinyid", tinyid)] {
        let url = mariadb.database()?;
        let (database, store) = (name_of(&url), format!("{url}?dialect={dialect}"));
        let make = format!("{tables}; CREATE TABLE another (id INT)");
        mariadb.sql(database, &make)?;
        let before = mariadb.sql(database, "SHOW TABLES")?;
        for command in [&["tags", "list"][..], &["tags", "show", "order"]] {
            let shown = ok_over(&directory, &store, command)?;
            assert!(shown.contains("order") && shown.contains(" 2000 "), "{dialect}: {shown}");
            assert_eq!(mariadb.sql(database, "SHOW TABLES")?, before, "{dialect}: {command:?}");
        }
        // They come with the first id, and then the tags are shown as before.
        assert_eq!(ok_over(&directory, &store, &["next", "order"])?, "2001\n", "{dialect}");
        assert!(mariadb.sql(database, "SHOW TABLES")?.contains("unalike_store"), "{dialect}");
        assert!(ok_over(&directory, &store, &["tags", "list"])?.contains("order"), "{dialect}");
    }
    Ok(())
}

/// What decides a tag's numbers beside its record, in each kind of source.
#[test]
fn what_a_record_does_not_say_is_not_dropped() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    let directory = TempDir::new()?;
    let leaf = LEAF.replace("unicode_ci", "bin").replace("max_id BIGINT", "max_id INT");
    let sequence = "CREATE TABLE t_sequence (pk_seq_name VARCHAR(128) COLLATE utf8mb4_bin NOT NULL PRIMARY KEY, \
        current_val BIGINT NOT NULL, increment_val INT NOT NULL) ENGINE = InnoDB";
    let batch = "CREATE TABLE ng_business_mysql_autoincrement (business VARBINARY(128) NOT NULL, \
        version BIGINT UNSIGNED NOT NULL, PRIMARY KEY (business, version)) ENGINE = InnoDB; \
        CREATE TABLE unalike_batch_tag (tag VARBINARY(128) NOT NULL PRIMARY KEY, prefix BIGINT UNSIGNED NOT NULL, \
        buff_size BIGINT UNSIGNED NOT NULL, width INT UNSIGNED NOT NULL, lowest_critical_value BIGINT UNSIGNED NOT NULL)";
    for (from, tables, named) in [
        ("leaf", format!("{leaf}; INSERT INTO leaf_alloc VALUES ('order', 2001, 10)"), "end at 2147483647"),
        (
            "sequence-table",
            format!(
                "{sequence}; INSERT INTO t_sequence VALUES ('order', 1000, 1000); CREATE TABLE unalike_sequence_generation \
                 (pk_seq_name VARBINARY(512) NOT NULL PRIMARY KEY, generation BIGINT UNSIGNED NOT NULL) ENGINE = InnoDB; \
                 INSERT INTO unalike_sequence_generation VALUES ('order', 3)"
            ),
            "begun again 3 times",
        ),
        (
            "batch",
            format!(
                "{batch}; INSERT INTO unalike_batch_tag VALUES ('order', 7, 500, 6, 50); \
                 INSERT INTO ng_business_mysql_autoincrement VALUES ('order', 1)"
            ),
            "prefix 7",
        ),
    ] {
        let url = mariadb.database()?;
        mariadb.sql(name_of(&url), &tables)?;
        refused(&directory, &url, &["tags", "import", "--from", from], &["nothing was changed", "\"order\"", named])?;
        ok_over(&directory, &url, &["tags", "import", "--from", from, "--tag", "order", "--at", "800000000"])?;
        assert_eq!(ok_over(&directory, &url, &["next", "order"])?, "800000000\n", "{from}");
    }

    // A store of a set counts its own numbers alone, and a server of Flickr's pair every second ticket.
    let (target, one, two) = (mariadb.database()?, mariadb.database()?, mariadb.database()?);
    ok_over(&directory, &one, &["--store", &two, "next", "order", "-n", "100"])?;
    let import = ["tags", "import", "--from", &one];
    refused(&directory, &target, &import, &["nothing was changed", "\"order\"", "stripe 0 of 2"])?;
    let pair = MariaDb::start_with(&["--auto-increment-increment=2", "--auto-increment-offset=1"])?;
    let tickets = format!("{}?dialect=ticket", pair.database()?);
    refused(&directory, &tickets, &["tags", "raise", "nobody", "5"], &["nobody"])?;
    pair.sql(
        name_of(&tickets).split('?').next().unwrap_or_default(),
        "CREATE TABLE Tickets64 (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, stub CHAR(1) NOT NULL UNIQUE); \
         REPLACE INTO Tickets64 (stub) VALUES ('a')",
    )?;
    let import = ["tags", "import", "--from", &tickets];
    refused(&directory, &target, &import, &["nothing was changed", "Tickets64", "auto_increment_increment = 2"])?;
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
    assert_eq!(ok_over(&directory, &first, &["next", "order", "-n", "5"])?.lines().count(), 5);
    ok_over(&directory, &first, &["stripes", "resize", "--to", &first, &second])?;
    let ran = run_over(&directory, &first, &["next", "order"])?;
    assert!(ran.code == Some(1), "it is a stripe now: {ran:?}");
    let both = ["--store", second.as_str(), "next", "order", "-n", "10"];
    let ids = ok_over(&directory, &first, &both)?;
    let greatest: u64 = ids.lines().map(|id| id.parse::<u64>().unwrap()).max().unwrap();
    assert!(ids.lines().all(|id| id.parse::<u64>().is_ok_and(|id| id > 5)), "{ids}");
    ok_over(&directory, &first, &["--store", second.as_str(), "stripes", "resize", "--to", &first])?;
    let alone: u64 = ok_over(&directory, &first, &["next", "order"])?.trim().parse()?;
    assert!(alone > greatest, "{alone} after {greatest}");
    Ok(())
}

#[test]
fn a_server_that_took_over_is_adopted_by_command() -> anyhow::Result<()> {
    let mut old = MariaDb::start()?;
    let url = old.database()?;
    let directory = TempDir::new()?;
    assert_eq!(ok_over(&directory, &url, &["next", "order", "-n", "3"])?, "1\n2\n3\n");
    let ran = run_over(&directory, &url, &["store", "adopt", "--lift", "1000"])?;
    assert!(ran.code == Some(1) && ran.stderr.contains("already"), "{ran:?}");
    old.kill9()?;
    let new = old.start_copy()?;
    let url = url.replace(&format!(":{}/", old.port()), &format!(":{}/", new.port()));
    for sub in [&[][..], &["--sub", "a"]] {
        let ran = run_over(&directory, &url, &[&["next", "order"], sub].concat())?;
        assert!(ran.code == Some(1) && ran.stderr.contains("unalike store adopt"), "{ran:?}");
    }
    let done = ok_over(&directory, &url, &["store", "adopt", "--lift", "1000"])?;
    let said: Vec<&str> = done.lines().collect();
    assert_eq!((said.len(), said[1]), (5, "tags: 1, each lifted by 1000 numbers"), "{done}");
    // A time that people read, some ten minutes from now.
    let from = said[3].strip_prefix("snowflakes: workers are leased from ").and_then(|from| from.get(..24)).unwrap();
    assert!(from.starts_with("20") && from.ends_with('Z'), "{done}");
    assert_eq!(ok_over(&directory, &url, &["next", "order"])?, "1004\n");
    Ok(())
}
