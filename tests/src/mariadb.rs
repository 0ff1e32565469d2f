//! MariaDB or MySQL as a private child process: a free port, a data directory of its own, killed when its value is
//! dropped.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tempfile::TempDir;

use self::programs::Programs;
use crate::PATIENCE;
use crate::process;
use crate::shared::{Directory, Shared, once, unique_name};

mod programs;

/// What to do when the server's programs are not there.
const INSTALL: &str = "install MariaDB: apt-get install mariadb-server";

/// A running server.
#[derive(Debug)]
pub struct MariaDb {
    directory: Directory,
    port: u16,
    settings: Vec<String>,
    /// How far its clock is off, as libfaketime takes it.
    clock: Option<String>,
    process: Child,
}

impl MariaDb {
    /// Whether the run has MySQL in MariaDB's place.
    ///
    /// # Panics
    /// When the run names programs that are not there.
    #[must_use]
    pub fn is_mysql() -> bool {
        Programs::of_run().unwrap().is_mysql
    }

    /// Starts one with durable commits, as the adapter asks for.
    ///
    /// # Errors
    /// When MariaDB is not installed, or does not become ready; with what it said.
    pub fn start() -> anyhow::Result<Self> {
        Self::start_with(&[])
    }

    /// The one that all tests of a run [share](Shared::MariaDb), each with a [database](MariaDb::database) of its own.
    ///
    /// # Errors
    /// When the run has none.
    pub fn shared() -> anyhow::Result<&'static Self> {
        static SHARED: OnceLock<MariaDb> = OnceLock::new();
        once(&SHARED, || {
            let (port, directory) = Shared::MariaDb.server()?;
            Ok(Self { directory, port, settings: Vec::new(), clock: None, process: process::ended()? })
        })
    }

    /// The same with settings of its own, which come after the usual ones: `--innodb-flush-log-at-trx-commit=2`.
    ///
    /// # Errors
    /// As [`MariaDb::start`].
    pub fn start_with(settings: &[&str]) -> anyhow::Result<Self> {
        let mut server = Self::stopped(settings)?;
        server.restart()?;
        Ok(server)
    }

    /// One with durable commits on a copy of an empty data directory.
    ///
    /// # Errors
    /// As [`MariaDb::start`].
    pub fn start_on(template: &Path) -> anyhow::Result<Self> {
        let mut server = Self::stopped_on(template, &[])?;
        server.restart()?;
        Ok(server)
    }

    /// One with new data that does not run yet.
    pub(crate) fn stopped(settings: &[&str]) -> anyhow::Result<Self> {
        Self::stopped_on(&Shared::MariaDbData.data(make_template)?, settings)
    }

    fn stopped_on(template: &Path, settings: &[&str]) -> anyhow::Result<Self> {
        let directory = Directory::new()?;
        process::copy_folder(template, &directory.path().join("data"))?;
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        Ok(Self { directory, port: process::free_port()?, settings, clock: None, process: process::ended()? })
    }

    /// A copy of this server's data as it is on the disk, as another server: a replica that takes over, which has
    /// another `server_id`, and another `server_uuid` where there is one.
    ///
    /// This one must not be running.
    ///
    /// # Errors
    /// As [`MariaDb::start`].
    pub fn start_copy(&self) -> anyhow::Result<Self> {
        let mut ids = self.settings.iter().filter_map(|setting| setting.strip_prefix("--server-id="));
        let id: u32 = ids.next_back().map_or(Ok(1), str::parse)?;
        let mut copy = self.clone_data()?;
        copy.settings.push(format!("--server-id={}", id + 1));
        copy.forget_name()?;
        copy.restart()?;
        Ok(copy)
    }

    /// The same data, as the same server, on another port.
    ///
    /// This one must not be running.
    ///
    /// # Errors
    /// As [`MariaDb::start`].
    pub fn start_moved(&self) -> anyhow::Result<Self> {
        let mut moved = self.clone_data()?;
        moved.restart()?;
        Ok(moved)
    }

    /// From its next start on it has another `server_uuid`, which is MySQL's own name of a server.
    ///
    /// # Errors
    /// When its file cannot be removed.
    pub fn forget_name(&self) -> anyhow::Result<()> {
        let file = self.directory.path().join("data/auto.cnf");
        if file.exists() { Ok(std::fs::remove_file(file)?) } else { Ok(()) }
    }

    /// The place of another server, whose port and configuration this one has from its next start on. That one must not
    /// be running then.
    pub fn take_place_of(&mut self, other: &Self) {
        (self.port, self.settings) = (other.port, other.settings.clone());
    }

    /// Settings that are added to the others at its next start. Another `--server-id=` makes it another server, with
    /// another `server_uuid` where there is one.
    ///
    /// # Panics
    /// When the file with its name cannot be removed.
    pub fn configure(&mut self, settings: &[&str]) {
        if settings.iter().any(|setting| setting.starts_with("--server-id=")) {
            self.forget_name().unwrap();
        }
        self.settings.extend(settings.iter().map(|&setting| setting.to_owned()));
    }

    /// Has it follow another server from this place in the log on.
    ///
    /// # Errors
    /// When it does not.
    pub fn follow(&self, primary: &Self, from: &Follow) -> anyhow::Result<()> {
        let (port, is_mysql) = (primary.port(), Self::is_mysql());
        let from = match from {
            Follow::Transactions if is_mysql => "SOURCE_AUTO_POSITION=1".to_owned(),
            Follow::Transactions => "MASTER_USE_GTID=slave_pos".to_owned(),
            Follow::Position(file, position) if is_mysql => {
                format!("SOURCE_LOG_FILE='{file}', SOURCE_LOG_POS={position}, SOURCE_AUTO_POSITION=0")
            }
            Follow::Position(file, position) => {
                format!("MASTER_LOG_FILE='{file}', MASTER_LOG_POS={position}, MASTER_USE_GTID=no")
            }
        };
        let follow = if is_mysql {
            format!(
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={port}, SOURCE_USER='root', {from}; START REPLICA"
            )
        } else {
            format!(
                "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='root', {from}; START SLAVE"
            )
        };
        self.sql("", &follow).map(drop)
    }

    /// Where its binary log ends.
    ///
    /// # Errors
    /// When it has none.
    pub fn log_end(&self) -> anyhow::Result<Follow> {
        let status = self.sql("", "SHOW MASTER STATUS")?;
        let mut columns = status.split('\t');
        let (file, position) = columns.next().zip(columns.next()).context("there is no binary log")?;
        Ok(Follow::Position(file.to_owned(), position.parse()?))
    }

    /// The transactions in its binary log, by their global ids.
    ///
    /// # Errors
    /// When the server does not say it.
    pub fn transactions(&self) -> anyhow::Result<String> {
        let select = if Self::is_mysql() { "SELECT @@gtid_executed" } else { "SELECT @@gtid_binlog_pos" };
        Ok(self.sql("", select)?.trim().replace("\\n", ""))
    }

    /// Has it take these transactions of another server, or none, for those that it has.
    ///
    /// # Errors
    /// When the server does not do it.
    pub fn set_transactions(&self, transactions: &str) -> anyhow::Result<()> {
        let set = match (Self::is_mysql(), transactions) {
            (true, "") => return Ok(()),
            (true, _) => format!("SET GLOBAL gtid_purged = '{transactions}'"),
            (false, _) => format!("SET GLOBAL gtid_slave_pos = '{transactions}'"),
        };
        self.sql("", &set).map(drop)
    }

    /// Whether it has received these transactions, and may not have applied them.
    ///
    /// # Errors
    /// When the server does not say it.
    pub fn has_received(&self, transactions: &str) -> anyhow::Result<bool> {
        Ok(self.sql("", "SHOW SLAVE STATUS")?.contains(transactions))
    }

    /// Whether it has applied these transactions of another server.
    ///
    /// # Errors
    /// When the server does not say it.
    pub fn has_applied(&self, transactions: &str) -> anyhow::Result<bool> {
        if Self::is_mysql() {
            let select = format!("SELECT GTID_SUBSET('{transactions}', @@gtid_executed)");
            return Ok(self.sql("", &select)?.trim() == "1");
        }
        Ok(self.sql("", "SELECT @@gtid_slave_pos")?.contains(transactions))
    }

    /// Waits until it has all that another server has in its binary log.
    ///
    /// # Errors
    /// When it does not come to be so.
    pub fn catch_up(&self, primary: &Self) -> anyhow::Result<()> {
        let (position, within_s) = (primary.transactions()?, PATIENCE.as_secs());
        let wait = if Self::is_mysql() {
            format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{position}', {within_s})")
        } else {
            format!("SELECT MASTER_GTID_WAIT('{position}', {within_s})")
        };
        ensure!(self.sql("", &wait)?.trim() == "0", "it lags: {}", self.sql("", "SHOW SLAVE STATUS")?);
        Ok(())
    }

    /// Brings a database of another server into this one by a dump.
    ///
    /// # Errors
    /// When one of the programs fails.
    pub fn load_dump_of(&self, other: &Self, database: &str) -> anyhow::Result<()> {
        let dump = other.dump(database)?;
        self.sql("", &format!("CREATE DATABASE IF NOT EXISTS {database}"))?;
        self.load(database, &dump)
    }

    /// What `mariadb-dump` makes of a database.
    ///
    /// # Errors
    /// When it fails.
    pub fn dump(&self, database: &str) -> anyhow::Result<Vec<u8>> {
        let dump = Programs::of_run()?
            .dump()
            .arg(database)
            .arg(format!("--socket={}", self.socket().display()))
            .output()
            .context(INSTALL)?;
        ensure!(dump.status.success(), "mariadb-dump: {}", String::from_utf8_lossy(&dump.stderr));
        Ok(dump.stdout)
    }

    /// Loads a dump into a database that is there.
    ///
    /// # Errors
    /// When the server does not take it.
    pub fn load(&self, database: &str, dump: &[u8]) -> anyhow::Result<()> {
        let file = self.directory().join(format!("{database}.sql"));
        std::fs::write(&file, dump)?;
        let loaded = Programs::of_run()?
            .client()
            .args(["--no-defaults", "--user=root", database])
            .arg(format!("--socket={}", self.socket().display()))
            .stdin(File::open(&file)?)
            .output()?;
        ensure!(loaded.status.success(), "mariadb: {}", String::from_utf8_lossy(&loaded.stderr));
        Ok(())
    }

    /// The same data in a directory of its own, on a port of its own, not running.
    fn clone_data(&self) -> anyhow::Result<Self> {
        let directory = Directory::new()?;
        process::copy_folder(&self.directory.path().join("data"), &directory.path().join("data"))?;
        let (settings, clock) = (self.settings.clone(), self.clock.clone());
        Ok(Self { directory, port: process::free_port()?, settings, clock, process: process::ended()? })
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

    /// A new, empty database: its URL for the user root, who needs no password.
    ///
    /// # Errors
    /// When the server does not do it.
    pub fn database(&self) -> anyhow::Result<String> {
        let name = unique_name();
        self.sql("", &format!("CREATE DATABASE {name}"))?;
        Ok(format!("mysql://root@127.0.0.1:{}/{name}", self.port))
    }

    /// Runs statements with the server's own client, in this database if one is named; gives what they print, without
    /// titles. MariaDB's words of replication stand for MySQL's.
    ///
    /// # Errors
    /// When one of them fails.
    pub fn sql(&self, database: &str, statements: &str) -> anyhow::Result<String> {
        let programs = Programs::of_run()?;
        let mut statements = statements.to_owned();
        for (mariadb, mysql) in WORDS.iter().filter(|_| programs.is_mysql) {
            statements = statements.replace(mariadb, mysql);
        }
        let output = programs
            .client()
            .args(["--no-defaults", "--user=root", "--batch", "--skip-column-names"])
            // Since 11.4 the client trusts a server's certificate only once it has verified it, also through a socket.
            .args((!programs.is_mysql).then_some("--skip-ssl-verify-server-cert"))
            .arg(format!("--socket={}", self.socket().display()))
            .arg(format!("--execute={statements}"))
            .args((!database.is_empty()).then_some(database))
            .output()
            .context(INSTALL)?;
        ensure!(output.status.success(), "{statements}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Begins a transaction in a database and runs statements in it, which print nothing: what they lock stays so until
    /// it ends.
    ///
    /// # Errors
    /// When a statement fails.
    pub fn begin(&self, database: &str, statements: &str) -> anyhow::Result<Transaction> {
        let mut client = Programs::of_run()?
            .client()
            .args(["--no-defaults", "--user=root", "--batch", "--skip-column-names", "--unbuffered", "--silent"])
            .arg(format!("--socket={}", self.socket().display()))
            .arg(database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context(INSTALL)?;
        let input = client.stdin.as_mut().context("no input")?;
        writeln!(input, "BEGIN; {statements}; SELECT 'begun';")?;
        let mut line = String::new();
        BufReader::new(client.stdout.as_mut().context("no output")?).read_line(&mut line)?;
        let transaction = Transaction { client };
        if line.trim() != "begun" {
            transaction.roll_back()?;
            bail!("{statements}: it printed {line:?}");
        }
        Ok(transaction)
    }

    /// Kills it with SIGKILL.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn kill9(&mut self) -> anyhow::Result<()> {
        // An error means that it has ended already.
        let _ = self.process.kill();
        self.process.wait()?;
        Ok(())
    }

    /// Starts it again on the same data and the same port; kills it before if it still runs.
    ///
    /// # Errors
    /// As [`MariaDb::start`].
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.kill9()?;
        let (directory, clock) = (self.directory.path(), self.clock.as_deref());
        self.process = spawn(directory, self.port, &self.settings, clock)?;
        self.wait_until_ready()
    }

    /// Starts it on its data, with settings for this time, and does not wait until it is ready.
    pub(crate) fn spawn_with(&mut self, settings: &[String]) -> anyhow::Result<()> {
        self.kill9()?;
        let settings = [&self.settings, settings].concat();
        self.process = spawn(self.directory.path(), self.port, &settings, self.clock.as_deref())?;
        Ok(())
    }

    /// Stops it in good order.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        process::signal(&self.process, libc::SIGTERM)?;
        self.wait_until_ended()
    }

    /// Waits for its end.
    pub(crate) fn wait_until_ended(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.process.try_wait()?.is_none() {
            ensure!(Instant::now() < deadline, "MariaDB does not end; its log:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Kills it and starts it again with these settings in place of its own, and does not wait until it is ready: it
    /// may never be.
    ///
    /// # Errors
    /// When it cannot be started at all.
    pub fn launch(&mut self, settings: &[String]) -> anyhow::Result<()> {
        self.kill9()?;
        // What it says belongs to this start.
        let _ = std::fs::remove_file(self.directory.path().join(LOG));
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

    /// From its next start on its clock is off by so much, and so is a copy's: `-1h`, `+90s`.
    pub fn set_clock(&mut self, offset: &str) {
        self.clock = Some(offset.to_owned());
    }

    /// Stops it where it is, without ending it: connections stay open and nothing answers.
    ///
    /// # Errors
    /// When there is no such process, or it does not stop.
    pub fn pause(&self) -> anyhow::Result<()> {
        process::pause(&self.process)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn resume(&self) -> anyhow::Result<()> {
        process::signal(&self.process, libc::SIGCONT)
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("s.sock")
    }

    pub(crate) fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() && self.sql("", "SELECT 1").is_ok() {
                return Ok(());
            }
            if let Some(status) = self.process.try_wait()? {
                bail!("MariaDB ended with {status}; its log:\n{}", self.log());
            }
            ensure!(Instant::now() < deadline, "MariaDB does not become ready; its log:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        // It may have ended already. SIGKILL ends a stopped process too.
        let _ = self.kill9();
    }
}

/// Where a server begins to follow another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Follow {
    /// Behind the transactions that it has.
    Transactions,
    /// At a position in a file of the other one's binary log.
    Position(String, u64),
}

/// Words of MariaDB, and MySQL's for the same.
const WORDS: [(&str, &str); 6] = [
    ("STOP SLAVE", "STOP REPLICA"),
    ("START SLAVE", "START REPLICA"),
    ("RESET SLAVE", "RESET REPLICA"),
    ("SHOW SLAVE STATUS", "SHOW REPLICA STATUS"),
    ("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS"),
    ("RESET MASTER", "RESET BINARY LOGS AND GTIDS"),
];

/// A transaction that [`MariaDb::begin`] began. The server rolls it back when this is dropped, and some time may pass.
#[derive(Debug)]
pub struct Transaction {
    client: Child,
}

impl Transaction {
    /// Ends it as if it had never been: nothing is locked any more.
    ///
    /// # Errors
    /// When the server ended it before; with what it said.
    pub fn roll_back(self) -> anyhow::Result<()> {
        self.end("ROLLBACK")
    }

    /// Ends it, and what it did stays.
    ///
    /// # Errors
    /// As [`Transaction::roll_back`].
    pub fn commit(self) -> anyhow::Result<()> {
        self.end("COMMIT")
    }

    fn end(mut self, statement: &str) -> anyhow::Result<()> {
        let mut input = self.client.stdin.take().context("no input")?;
        // A client that has ended says why below.
        let _ = writeln!(input, "{statement};");
        drop(input);
        let mut said = String::new();
        self.client.stderr.take().context("no errors")?.read_to_string(&mut said)?;
        let ended = self.client.wait()?;
        ensure!(ended.success(), "the transaction ended with {ended}: {said}");
        Ok(())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}

const LOG: &str = "mariadb.log";

/// Makes an empty data directory: that takes a second or more.
///
/// # Errors
/// When MariaDB is not installed, or does not do it.
pub fn make_template() -> anyhow::Result<TempDir> {
    let directory = TempDir::new()?;
    Programs::of_run()?.install(directory.path())?;
    Ok(directory)
}

/// The library behind the program faketime, which Debian puts into the directory of the machine's kind.
pub(crate) fn faketime_library() -> anyhow::Result<PathBuf> {
    let names = ["faketime/libfaketimeMT.so.1", "libfaketimeMT.so.1"];
    let mut directories = vec![PathBuf::from("/usr/lib"), PathBuf::from("/usr/local/lib")];
    for entry in std::fs::read_dir("/usr/lib")? {
        directories.push(entry?.path());
    }
    let mut found = directories.iter().flat_map(|directory| names.map(|name| directory.join(name)));
    found.find(|path| path.exists()).context("install libfaketime: apt-get install faketime")
}

/// Starts the program.
fn spawn(directory: &Path, port: u16, settings: &[String], clock: Option<&str>) -> anyhow::Result<Child> {
    let log = File::options().create(true).append(true).open(directory.join(LOG))?;
    // Of its own: a server that starts removes the temporary tables of others from a directory that they share.
    let temporary = directory.join("tmp");
    std::fs::create_dir_all(&temporary)?;
    let mut command = Programs::of_run()?.server();
    if let Some(offset) = clock {
        // Not by the program faketime, which would be the child that is killed in the server's place. Whatever counts
        // from the machine's start, such as waiting, is as ever.
        command.env("LD_PRELOAD", faketime_library()?).env("FAKETIME", offset).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }
    // MySQL logs what it applies without being told.
    let settings = settings.iter().filter(|setting| !MariaDb::is_mysql() || *setting != "--log-slave-updates");
    // The first of them counts, which may be one of the settings.
    let user = settings.clone().find(|setting| setting.starts_with("--user="));
    command
        .args([
            user.map_or("--user=root", String::as_str),
            "--bind-address=127.0.0.1",
            "--skip-log-bin",
            "--performance-schema=off",
        ])
        .args(["--skip-name-resolve", "--max-connections=300", "--innodb-flush-log-at-trx-commit=1"])
        .arg("--innodb-buffer-pool-size=64M")
        .arg(format!("--port={port}"))
        .arg(format!("--datadir={}", directory.join("data").display()))
        .arg(format!("--tmpdir={}", temporary.display()))
        .arg(format!("--socket={}", directory.join("s.sock").display()))
        .arg(format!("--pid-file={}", directory.join("pid").display()))
        .args(settings)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .context(INSTALL)
}
