//! The Python package: the suite in `host/python/tests`.

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, ensure};
use unalike_tests::hosts::{Servers, node, python, repository, run, test_files};

/// Files that run at once, each in a process of its own: most tests wait for servers.
const AT_ONCE: usize = 3;

#[test]
fn the_suite_of_the_python_package_passes() -> Result<()> {
    // Some of its tests draw ids beside Node.
    let (servers, python, _) = (Servers::start()?, python()?, node()?);
    let package = repository().join("host/python");
    let files = test_files(&package.join("tests"), "test_", ".py")?;
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
