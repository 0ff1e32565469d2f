//! The Python package: the suite in `host/python/tests`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, ensure};
use unalike_tests::hosts::{Servers, node, python, repository, run, test_files};

/// Files that run at once, each in a process of its own: most tests wait for servers.
const AT_ONCE: usize = 3;

/// What of the suite needs no more than a database.
const RULES_AND_ONE_SERVER: &[&str] = &["vectors", "formats", "lease_rules", "stores"];

#[test]
fn the_rules_and_one_server_of_the_python_package_pass() -> Result<()> {
    let folder = repository().join("host/python/tests");
    pass_all(RULES_AND_ONE_SERVER.iter().map(|name| folder.join(format!("test_{name}.py"))).collect())
}

#[test]
fn the_suite_of_the_python_package_passes() -> Result<()> {
    pass_all(test_files(&repository().join("host/python/tests"), "test_", ".py")?)
}

fn pass_all(files: Vec<PathBuf>) -> Result<()> {
    // Some of the tests draw ids beside Node.
    let (servers, python, _) = (Servers::start()?, python()?, node()?);
    let package = repository().join("host/python");
    let (files, variables) = (Mutex::new(files.into_iter()), servers.variables()?);
    let next = || files.lock().ok()?.next();
    let work = || -> Result<()> {
        while let Some(file) = next() {
            let mut suite = Command::new(python);
            suite.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(&file).current_dir(&package);
            pass(&file, suite.envs(variables.iter().cloned()))?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        // All of them are waited for, whatever the first one says.
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join().map_err(|_| "a thread panicked")).collect();
        ended.into_iter().try_for_each(|ended| ended.map_err(anyhow::Error::msg)?)
    })
}

fn pass(file: &Path, suite: &mut Command) -> Result<()> {
    let printed = run(suite).with_context(|| file.display().to_string())?;
    print!("{}:\n{printed}", file.display());
    let last = printed.lines().next_back().unwrap_or_default();
    ensure!(last.contains(" passed"), "no test ran in {}:\n{printed}", file.display());
    ensure!(!last.contains("skipped") && !last.contains("xfailed"), "a test was left out:\n{printed}");
    Ok(())
}
