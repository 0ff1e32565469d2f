//! The npm package: the suite in `host/node/test`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use unalike_tests::hosts::{Servers, node, python, run, test_files};

/// What of the suite needs no more than a database.
const RULES_AND_ONE_SERVER: &[&str] = &["vectors", "formats", "lease-rules", "mysql", "stores"];

#[test]
fn the_rules_and_one_server_of_the_npm_package_pass() -> Result<()> {
    let folder = node()?.join("test");
    pass(RULES_AND_ONE_SERVER.iter().map(|name| folder.join(format!("{name}.test.mjs"))).collect())
}

#[test]
fn the_suite_of_the_npm_package_passes() -> Result<()> {
    // A folder would be run with all that its tests start.
    pass(test_files(&node()?.join("test"), "", ".test.mjs")?)
}

fn pass(tests: Vec<PathBuf>) -> Result<()> {
    // Some of the tests draw ids beside Python.
    let (servers, package, python) = (Servers::start()?, node()?, python()?);
    let mut suite = Command::new("node");
    // Most of them wait for servers.
    suite
        .args(["--test", "--test-reporter=tap", "--test-concurrency=3"])
        .args(tests)
        .current_dir(package)
        .envs(servers.variables()?);
    suite.env("UNALIKE_TEST_PYTHON", python);
    let printed = run(&mut suite)?;
    print!("{printed}");
    let count = |name: &str| printed.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u32>().ok());
    ensure!(count("# pass ").is_some_and(|passed| passed > 0), "no test ran:\n{printed}");
    ensure!(count("# skipped ") == Some(0) && count("# todo ") == Some(0), "a test was left out:\n{printed}");
    Ok(())
}
