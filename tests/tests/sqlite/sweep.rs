//! A small share of the [settings sweep](unalike_tests::sweep): what another program may set in the file.
//!
//! All of it: `cargo run --bin sweep -p unalike-tests -- --store sqlite`.

use unalike_tests::sweep::sqlite::SqliteFile;
use unalike_tests::sweep::{Plan, Report};

/// The most telling variables.
const VARIABLES: &[&str] = &["application_id", "journal_mode", "locking_mode", "synchronous", "user_version"];

/// The most telling definitions, and rights.
const DEFINITIONS: &[&str] =
    &["a trigger sets the watermark back", "a trigger changes leases", "a column is added", "the table is another one"];

#[test]
fn whatever_is_set_no_number_comes_twice() {
    let report = Report::make::<SqliteFile>(&Plan::small(&[VARIABLES, DEFINITIONS].concat())).unwrap();
    assert!(!report.is_bad(), "{report}");
    assert_eq!(report.variables(), VARIABLES.len(), "{report}");
    assert_eq!(report.definitions(), DEFINITIONS.len(), "{report}");
}

#[test]
fn a_number_that_others_may_set_is_found_out() {
    let report = Report::make::<SqliteFile>(&Plan::control(&["user_version"])).unwrap();
    assert!(report.is_bad(), "the sweep finds nothing any more: {report}");
}
