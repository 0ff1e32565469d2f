//! A small share of the [settings sweep](unalike_tests::sweep): what changes the meaning of a statement in PostgreSQL,
//! and what a commit keeps.
//!
//! All of it: `cargo run --bin sweep -p unalike-tests -- --store postgres`.

use unalike_tests::sweep::postgres::Postgresql;
use unalike_tests::sweep::{Plan, Report};

/// The most telling variables.
const VARIABLES: &[&str] = &["fsync", "search_path", "synchronous_commit", "zero_damaged_pages"];

/// The most telling definitions, and rights.
const DEFINITIONS: &[&str] = &[
    "the table is unlogged",
    "a trigger swallows updates",
    "a view stands in the table's place",
    "a user who may not update",
];

#[test]
fn whatever_is_set_no_number_comes_twice() {
    let report = Report::make::<Postgresql>(&Plan::small(&[VARIABLES, DEFINITIONS].concat())).unwrap();
    assert!(!report.is_bad(), "{report}");
    assert_eq!(report.variables(), VARIABLES.len(), "{report}");
    assert_eq!(report.definitions(), DEFINITIONS.len(), "{report}");
}

#[test]
fn a_client_that_leaves_durability_to_the_session_is_found_out() {
    let report = Report::make::<Postgresql>(&Plan::control(&["synchronous_commit"])).unwrap();
    assert!(report.is_bad(), "the sweep finds nothing any more: {report}");
}
