//! The npm package: the suite in `host/node/test`.

use std::process::Command;

use anyhow::{Result, ensure};
use unalike_tests::hosts::{Servers, node, python, run, test_files};

#[test]
fn the_suite_of_the_npm_package_passes() -> Result<()> {
    // Some of its tests draw ids beside Python.
    let (servers, package, python) = (Servers::start()?, node()?, python()?);
    // A folder would be run with all that its tests start.
    let tests = test_files(&package.join("test"), "", ".test.mjs")?;
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
