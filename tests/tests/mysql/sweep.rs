//! A small share of the [settings sweep](unalike_tests::sweep): what changes the meaning of a statement in MariaDB, and
//! what a commit keeps.
//!
//! All of it: `cargo run --bin sweep -p unalike-tests -- --store mysql`.

use unalike_tests::sweep::mysql::Mysql;
use unalike_tests::sweep::{Plan, Report};

/// The most telling variables.
const VARIABLES: &[&str] = &[
    "autocommit",
    "completion_type",
    "innodb_flush_log_at_trx_commit",
    "sql_mode",
    "sync_binlog",
    "timestamp",
    "tx_isolation",
    "init_connect",
];

/// The most telling definitions, and rights.
const DEFINITIONS: &[&str] = &[
    "the table is MyISAM",
    "a trigger sets the watermark back",
    "a view stands in the table's place",
    "a user who may not update",
];

#[test]
fn whatever_is_set_no_number_comes_twice() {
    let report = Report::make::<Mysql>(&Plan::small(&[VARIABLES, DEFINITIONS].concat())).unwrap();
    assert!(!report.is_bad(), "{report}");
    assert_eq!(report.variables(), VARIABLES.len(), "{report}");
    assert_eq!(report.definitions(), DEFINITIONS.len(), "{report}");
}

#[test]
fn a_client_that_leaves_commits_to_the_session_is_found_out() {
    let report = Report::make::<Mysql>(&Plan::control(&["autocommit"])).unwrap();
    assert!(report.is_bad(), "the sweep finds nothing any more: {report}");
}
