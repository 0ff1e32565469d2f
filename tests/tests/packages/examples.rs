//! The examples of the library, each run as a reader runs it.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tempfile::TempDir;
use unalike_tests::server::{Client, cargo_build, programs};

/// An example, built with the features of the whole workspace, so that nothing is compiled twice; whatever it keeps
/// lies in this directory.
pub(crate) fn example(name: &str, directory: &TempDir) -> Result<Command> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    let folder = built.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?;
    let mut example = Command::new(folder.join(name));
    example.env("TMPDIR", directory.path());
    Ok(example)
}

/// Builds all of them, and answers where they are.
fn build() -> Result<PathBuf> {
    let output = cargo_build().args(["--quiet", "--examples"]).output()?;
    ensure!(output.status.success(), "the examples do not build: {}", String::from_utf8_lossy(&output.stderr));
    Ok(programs().join("examples"))
}

/// What an example prints that runs to its end.
fn output(name: &str, directory: &TempDir) -> Result<String> {
    let output = example(name, directory)?.output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the example {name} ended with {}: {stderr}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn orders_goes_on_where_its_last_run_ended() -> Result<()> {
    let directory = TempDir::new()?;
    let first = output("orders", &directory)?;
    assert!(first.contains("one order:      1\n") && first.contains("1,000 more:     "), "{first}");
    let second = output("orders", &directory)?;
    let order = second.lines().find_map(|line| line.strip_prefix("one order:      ")).context("it prints an order")?;
    assert!(order.parse::<u64>()? > 1_001, "above all that was handed out: {second}");
    Ok(())
}

#[test]
fn blocking_hands_out_distinct_ids_to_threads() -> Result<()> {
    assert_eq!(output("blocking", &TempDir::new()?)?, "40000 distinct numbers, 1000 snowflakes\n");
    Ok(())
}

#[test]
fn own_host_runs_the_component_in_a_store_of_its_own() -> Result<()> {
    let printed = output("own_host", &TempDir::new()?)?;
    assert!(printed.starts_with("numbers 1 to 100, a snowflake of worker "), "{printed}");
    assert!(printed.trim_end().ends_with("settled: true"), "{printed}");
    Ok(())
}

#[test]
fn custom_store_keeps_the_contract() -> Result<()> {
    let printed = output("custom_store", &TempDir::new()?)?;
    assert_eq!(
        printed, "the store keeps the contract\n1000 numbers, 100 snowflakes, the file says 1000\n",
        "what was fetched ahead went back"
    );
    Ok(())
}

#[test]
fn lease_centre_keeps_the_contract_of_leases() -> Result<()> {
    let printed = output("lease_centre", &TempDir::new()?)?;
    assert_eq!(printed, "the store keeps the contract\n1000 snowflakes, 1 worker leased, 1 given back\n");
    Ok(())
}

/// A process that is killed when its test ends otherwise than it should.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn axum_service_answers_with_ids_until_it_is_interrupted() -> Result<()> {
    let directory = TempDir::new()?;
    let started = example("axum_service", &directory)?.arg("127.0.0.1:0").stdout(Stdio::piped()).spawn()?;
    let mut service = Running(started);
    let mut lines = BufReader::new(service.0.stdout.take().context("it is piped")?).lines();
    let first = lines.next().context("it prints its address")??;
    let client = Client::new(first.strip_prefix("listening on ").with_context(|| first.clone())?);
    for id in 1..=3 {
        let answer = client.send_json("POST", "/orders", &json!({}))?;
        assert_eq!((answer.status, answer.json()?), (201, json!({ "id": id.to_string() })));
    }
    let id = libc::pid_t::try_from(service.0.id())?;
    #[expect(unsafe_code, reason = "kill takes two integers, and the child was not waited for yet")]
    let sent = unsafe { libc::kill(id, libc::SIGINT) };
    ensure!(sent == 0, "the signal was not sent");
    assert_eq!(lines.next().context("it says so when it ends")??, "closed");
    assert!(service.0.wait()?.success());
    Ok(())
}
