//! What servers that do not run here say of themselves, as their makers' documents have it, and what is made of it.

use std::collections::BTreeMap;

use super::{ServerFacts, UNKNOWN_UUID};

/// What a server says where its documents say nothing else. From the MySQL 8.0 Reference Manual: "Server System
/// Variables", "InnoDB Startup Options and System Variables", "Binary Logging Options and Variables" and "Replication
/// and Binary Logging Options and Variables", each with its default value.
const MYSQL_8_0: [(&str, &str); 28] = [
    ("version", "8.0.36"),
    ("server_uuid", "3e11fa47-71ca-11e1-9e33-c80aa9429562"),
    ("server_id", "1"),
    ("innodb_flush_log_at_trx_commit", "1"),
    ("log_bin", "ON"),
    ("sync_binlog", "1"),
    ("binlog_format", "ROW"),
    ("read_only", "OFF"),
    ("init_connect", ""),
    ("autocommit", "ON"),
    ("completion_type", "NO_CHAIN"),
    (
        "sql_mode",
        "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION",
    ),
    // `tx_isolation` and `tx_read_only` are gone since 8.0.3.
    ("transaction_isolation", "REPEATABLE-READ"),
    ("transaction_read_only", "OFF"),
    ("unique_checks", "ON"),
    ("foreign_key_checks", "ON"),
    ("insert_id", "0"),
    ("sql_safe_updates", "OFF"),
    ("sql_auto_is_null", "OFF"),
    ("sql_big_selects", "ON"),
    ("sql_select_limit", "18446744073709551615"),
    ("max_sort_length", "1024"),
    ("group_concat_max_len", "1024"),
    ("max_execution_time", "0"),
    ("character_set_client", "utf8mb4"),
    ("character_set_connection", "utf8mb4"),
    ("pseudo_slave_mode", "OFF"),
    ("sql_log_bin", "ON"),
];

/// From the MariaDB knowledge base: "System Variables Added in MariaDB 10.5", "Global Transaction ID", "Galera Cluster
/// System Variables".
const MARIADB: [(&str, &str); 12] = [
    ("version", "10.11.6-MariaDB-log"),
    ("server_uid", "xyz="),
    ("server_id", "1"),
    ("gtid_domain_id", "0"),
    ("gtid_slave_pos", ""),
    ("wsrep_on", "OFF"),
    ("wsrep_provider", "none"),
    ("innodb_flush_log_at_trx_commit", "1"),
    ("log_bin", "ON"),
    ("sync_binlog", "1"),
    ("binlog_format", "MIXED"),
    ("in_transaction", "0"),
];

fn with(server: &[(&str, &str)], other: &[(&str, &str)]) -> ServerFacts {
    let pairs = server.iter().chain(other).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    ServerFacts::of(pairs.collect::<BTreeMap<_, _>>())
}

/// It is taken, and known by this.
fn taken(server: &ServerFacts, identity: &str) {
    assert_eq!(server.check(false, false), Ok(()));
    assert_eq!(server.identity(7).unwrap(), identity);
}

/// It is refused, with these words.
fn refused(server: &ServerFacts, words: &[&str]) {
    let why = server.check(false, false).unwrap_err();
    for part in words {
        assert!(why.contains(part), "{part:?} is not in {why}");
    }
}

const UUID: &str = "server_uuid 3e11fa47-71ca-11e1-9e33-c80aa9429562";

#[test]
fn mysql_8_is_taken_by_its_uuid_and_its_session_is_set() {
    let server = with(&MYSQL_8_0, &[("max_execution_time", "5000")]);
    taken(&server, UUID);
    let set = server.session_statement(4, 600);
    for part in [
        "sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
        "transaction_isolation = 'READ-COMMITTED'",
        "max_execution_time = 0",
    ] {
        assert!(set.contains(part), "{set}");
    }
    // What it does not have, no statement names: it would be an error.
    let fence = server.fence(true, Some(UUID)).put_into("{fence alone} {fence of a row}");
    for missing in ["tx_isolation", "check_constraint_checks", "in_transaction", "gtid_slave_pos", "gtid_domain_id"] {
        assert!(!set.contains(&format!(" {missing}")) && !fence.contains(missing), "{missing}: {set}; {fence}");
    }
    assert!(fence.contains("@@server_uuid") && fence.contains("@@global.sync_binlog"), "{fence}");
    // MySQL 8.4 Reference Manual, "What Is New in MySQL 8.4": the old name of `pseudo_replica_mode` is still there; the
    // format of the binary log is deprecated, and a server without it logs rows.
    let mut newer = MYSQL_8_0.to_vec();
    newer.retain(|(name, _)| !matches!(*name, "binlog_format" | "pseudo_slave_mode"));
    let newer = with(&newer, &[("version", "8.4.0")]);
    taken(&newer, UUID);
    assert!(!newer.fence(true, Some(UUID)).put_into("{fence}").contains("binlog_format"));
    // "Server System Variables": a replica only reads, and says so.
    assert!(with(&MYSQL_8_0, &[("read_only", "ON")]).only_reads());
}

/// From the User Guide for Aurora, "Aurora MySQL configuration parameters": version 3 always has 1 for
/// `innodb_flush_log_at_trx_commit`, version 2 whatever is set; `sync_binlog` cannot be set; and from "Replication
/// between Aurora and MySQL": without a binary log unless `binlog_format` is set.
#[test]
fn aurora_is_taken_where_it_says_that_commits_last() {
    let aurora = |other: &[(&str, &str)]| {
        let mut facts = vec![("version", "8.0.28"), ("log_bin", "OFF"), ("binlog_format", "STATEMENT")];
        facts.extend(other);
        with(&MYSQL_8_0, &facts)
    };
    taken(&aurora(&[]), UUID);
    taken(&aurora(&[("log_bin", "ON"), ("binlog_format", "ROW")]), UUID);
    refused(
        &aurora(&[("log_bin", "ON"), ("binlog_format", "ROW"), ("sync_binlog", "0")]),
        &["sync_binlog is 0", "durability=assumed"],
    );
    refused(&aurora(&[("log_bin", "ON")]), &["binlog_format is STATEMENT", "MIXED or ROW"]);
    refused(&aurora(&[("innodb_flush_log_at_trx_commit", "0")]), &["innodb_flush_log_at_trx_commit is 0"]);
}

/// From the User Guide for RDS, "MySQL database log files": a server that is backed up has a binary log, whose format
/// is MIXED unless it is set. Its MariaDB says what MariaDB says.
#[test]
fn rds_is_taken_as_what_it_runs() {
    taken(&with(&MYSQL_8_0, &[("binlog_format", "MIXED")]), UUID);
    let mariadb = with(&MARIADB, &[("server_id", "1203488213")]);
    let identity = "mark 00000000000000000000000000000007 server_id 1203488213 gtid_domain_id 0 gtid_slave_pos none";
    taken(&mariadb, identity);
}

/// From Cloud SQL for MySQL, "Operational guidelines": `innodb_flush_log_at_trx_commit` and `sync_binlog` are flags
/// that a user may set so that commits are lost. From Azure Database for MySQL, "Server parameters": so are its
/// parameters.
#[test]
fn a_managed_server_that_is_set_to_lose_commits_is_refused() {
    let version = ("version", "8.0.31-google");
    taken(&with(&MYSQL_8_0, &[version]), UUID);
    for (name, value) in
        [("innodb_flush_log_at_trx_commit", "2"), ("sync_binlog", "1000"), ("innodb_flush_log_at_trx_commit", "")]
    {
        let server = with(&MYSQL_8_0, &[version, (name, value)]);
        refused(&server, &[&format!("{name} is {value}"), "set it to 1", "durability=assumed"]);
        assert_eq!(server.check(true, false), Ok(()));
    }
}

/// From the Percona XtraDB Cluster 8.0 documentation, "Index of wsrep system variables": it has those of Galera, beside
/// those of MySQL 8.0.
#[test]
fn percona_xtradb_cluster_is_taken_for_the_galera_cluster_that_it_is() {
    let galera = [
        ("wsrep_on", "ON"),
        ("wsrep_provider", "/usr/lib/galera4/libgalera_smm.so"),
        ("wsrep_cluster_name", "pxc-cluster"),
        ("wsrep_provider_options", "pc.ignore_quorum = false; pc.ignore_sb = false; pc.linger = PT20S; "),
    ];
    let server = with(&MYSQL_8_0, &galera);
    refused(&server, &["Galera cluster \"pxc-cluster\"", "identity=assumed"]);
    assert_eq!(server.check(false, true), Ok(()));
    let identity = "mark 00000000000000000000000000000007 wsrep_cluster_name pxc-cluster";
    assert_eq!(server.identity(7).unwrap(), identity, "each node has a server_uuid of its own");
    let fence = server.fence(true, Some(identity)).put_into("{fence}");
    assert!(fence.contains("@@wsrep_on") && !fence.contains("server_uuid"), "{fence}");
    for (option, words) in [
        ("pc.ignore_sb = true; ", "pc.ignore_sb is true"),
        ("pc.wait_prim = true; pc.ignore_quorum=YES", "pc.ignore_quorum is yes"),
    ] {
        let server = with(&MYSQL_8_0, &[&galera[..], &[("wsrep_provider_options", option)]].concat());
        assert!(server.check(false, true).unwrap_err().contains(words), "{option}");
    }
    let session = with(&MYSQL_8_0, &[&galera[..], &[("wsrep_on", "OFF")]].concat());
    assert!(session.check(false, true).unwrap_err().contains("wsrep_on is OFF"));
}

/// From TiDB's source, `pkg/sessionctx/variable/noop.go`: variables that are there for the sake of programs and mean
/// nothing, with these values on every server; from "System Variables": `version`.
#[test]
fn tidb_is_refused_by_name() {
    let tidb = with(
        &MYSQL_8_0,
        &[
            ("version", "8.0.11-TiDB-v7.5.1"),
            ("server_uuid", UNKNOWN_UUID),
            ("server_id", "0"),
            ("log_bin", "OFF"),
            ("sync_binlog", "0"),
            ("binlog_format", "STATEMENT"),
            ("insert_id", ""),
        ],
    );
    refused(&tidb, &["TiDB", "another store"]);
    assert!(tidb.check(true, true).is_err(), "nothing is vouched for that was never tried");
    assert!(tidb.identity(7).is_err(), "all of them have the same");
}

/// From Vitess' reference of vtgate: `--mysql_server_version` is "8.0.30-Vitess" where nothing else is set, and each
/// statement goes to whichever tablet is primary.
#[test]
fn vitess_is_refused_by_name() {
    for version in ["8.0.30-Vitess", "8.0.34-PlanetScale"] {
        let vitess = with(&MYSQL_8_0, &[("version", version)]);
        refused(&vitess, &[version, "another store"]);
        assert!(vitess.check(true, true).is_err());
    }
}
