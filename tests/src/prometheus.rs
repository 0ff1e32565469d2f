//! Prometheus as a private child process, with alerts that do not wait.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::PATIENCE;
use crate::process;
use crate::server::Client;

const INSTALL: &str = "install Prometheus with promtool: apt-get install prometheus";

/// A running Prometheus that asks servers for their figures four times a second.
#[derive(Debug)]
pub struct Prometheus {
    _directory: TempDir,
    process: Child,
    client: Client,
}

impl Prometheus {
    /// Starts one with these alerts, over the servers at these addresses: `127.0.0.1:8080`. `token` is sent with each
    /// scrape.
    ///
    /// # Errors
    /// When it is not installed, or does not become ready; with what it said.
    pub fn start(alerts: &str, targets: &[&str], token: &str) -> anyhow::Result<Self> {
        let directory = TempDir::new()?;
        let at = directory.path();
        std::fs::write(at.join("alerts.yml"), alerts)?;
        let config = format!(
            "global: {{ scrape_interval: 250ms, evaluation_interval: 250ms }}\nrule_files: [alerts.yml]\n\
             scrape_configs: [{{ job_name: unalike, authorization: {{ credentials: {token} }}, \
             static_configs: [{{ targets: {targets:?} }}] }}]\n"
        );
        std::fs::write(at.join("prometheus.yml"), config)?;
        let port = process::free_port()?;
        let mut command = Command::new("prometheus");
        command.arg("--config.file=prometheus.yml").arg("--storage.tsdb.path=data").arg("--log.level=warn");
        command.arg(format!("--web.listen-address=127.0.0.1:{port}")).current_dir(at);
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let process = process.context(INSTALL)?;
        let mut server =
            Self { _directory: directory, process, client: Client::new(&format!("http://127.0.0.1:{port}")) };
        let deadline = Instant::now() + PATIENCE;
        while !server.client.get("/-/ready").is_ok_and(|answer| answer.status == 200) {
            if server.process.try_wait()?.is_some() || Instant::now() > deadline {
                let mut said = String::new();
                let _ = server.process.kill();
                server.process.stderr.take().context("the log")?.read_to_string(&mut said)?;
                bail!("Prometheus did not become ready: {said}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        while server.query("up == 1")?.len() < targets.len() {
            ensure!(Instant::now() < deadline, "not all of {targets:?} answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    /// The alerts that are firing.
    ///
    /// # Errors
    /// When it does not say.
    pub fn firing(&self) -> anyhow::Result<BTreeSet<String>> {
        let answer = self.client.get("/api/v1/alerts")?.json()?;
        let alerts = answer.pointer("/data/alerts").and_then(Value::as_array).context("no alerts")?;
        let text = |alert: &Value, place| alert.pointer(place).and_then(Value::as_str).map(str::to_owned);
        let firing = alerts.iter().filter(|alert| text(alert, "/state").as_deref() == Some("firing"));
        firing.map(|alert| text(alert, "/labels/alertname").context("no name")).collect()
    }

    /// Does something again and again until all of these fire.
    ///
    /// # Errors
    /// When they do not.
    pub fn until_firing(&self, alerts: &[&str], mut act: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut seen = BTreeSet::new();
        let deadline = Instant::now() + PATIENCE;
        loop {
            act()?;
            seen.extend(self.firing()?);
            if alerts.iter().all(|alert| seen.contains(*alert)) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "of {alerts:?} there were only {seen:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Does something again and again until no alert has fired for two seconds, in which there are eight looks.
    ///
    /// # Errors
    /// When some go on.
    pub fn until_quiet(&self, mut act: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let mut quiet_since = Instant::now();
        loop {
            act()?;
            let firing = self.firing()?;
            if !firing.is_empty() {
                quiet_since = Instant::now();
            }
            if quiet_since.elapsed() > Duration::from_secs(2) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{firing:?} go on");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The result of a query.
    ///
    /// # Errors
    /// When it is none.
    pub fn query(&self, query: &str) -> anyhow::Result<Vec<Value>> {
        let query: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let answer = self.client.get(&format!("/api/v1/query?query={query}"))?.json()?;
        answer.pointer("/data/result").and_then(Value::as_array).cloned().with_context(|| answer.to_string())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs promtool in this directory.
///
/// # Errors
/// When it is not installed or finds something wrong; with what it said.
pub fn promtool(directory: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("promtool").args(arguments).current_dir(directory).output().context(INSTALL)?;
    let said = [output.stdout, output.stderr].concat();
    ensure!(output.status.success(), "promtool {arguments:?}: {}", String::from_utf8_lossy(&said));
    Ok(())
}
