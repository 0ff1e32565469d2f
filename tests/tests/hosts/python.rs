//! The Python package: the suite in `host/python/tests`.

use std::process::Command;

use anyhow::{Result, ensure};
use unalike_tests::hosts::{Servers, node, python, repository, run};

#[test]
fn the_suite_of_the_python_package_passes() -> Result<()> {
    // Some of its tests draw ids beside Node.
    let (servers, python, _) = (Servers::start()?, python()?, node()?);
    let package = repository().join("host/python");
    let mut suite = Command::new(python);
    suite.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]).current_dir(&package);
    let printed = run(suite.envs(servers.variables()?))?;
    print!("{printed}");
    let last = printed.lines().next_back().unwrap_or_default();
    ensure!(last.contains(" passed"), "no test ran:\n{printed}");
    ensure!(!last.contains("skipped") && !last.contains("xfailed"), "a test was left out:\n{printed}");
    Ok(())
}
