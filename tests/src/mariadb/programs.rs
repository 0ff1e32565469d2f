//! The programs of the server: the system's MariaDB, or the MySQL or MariaDB in the folder that `TESTED_MYSQL_PACKAGE`
//! names, which `tests/mysql/fetch` makes.

use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, ensure};
use tempfile::TempDir;

use super::INSTALL;
use crate::hosts::repository;
use crate::shared::once;

const PACKAGE: &str = "TESTED_MYSQL_PACKAGE";

/// What makes such a folder.
const FETCH: &str = "make it by tests/mysql/fetch";

const MARIADB: &str = "usr/sbin/mariadbd";

/// Where the programs are, and which of the two servers they are of.
#[derive(Debug)]
pub(crate) struct Programs {
    package: Option<Package>,
    pub(crate) is_mysql: bool,
}

/// Packages of another system, unpacked: their programs run with their own libraries.
#[derive(Debug)]
struct Package {
    folder: PathBuf,
    loader: PathBuf,
    libraries: PathBuf,
}

impl Programs {
    /// Those that this run has.
    ///
    /// # Errors
    /// When the variable names no such folder.
    pub(crate) fn of_run() -> anyhow::Result<&'static Self> {
        static FOUND: OnceLock<Programs> = OnceLock::new();
        once(&FOUND, || {
            let Some(folder) = std::env::var_os(PACKAGE) else { return Ok(Self { package: None, is_mysql: false }) };
            let package = Package::at(repository().join(folder))?;
            let is_mysql = !package.folder.join(MARIADB).exists();
            Ok(Self { package: Some(package), is_mysql })
        })
    }

    /// The server, which its settings follow.
    pub(crate) fn server(&self) -> Command {
        let mut command = match &self.package {
            Some(package) => package.command(if self.is_mysql { "usr/sbin/mysqld" } else { MARIADB }),
            None => {
                // Debian puts it where ordinary users do not look.
                let program = ["/usr/sbin/mariadbd", "mariadbd"].into_iter().find(|path| Path::new(path).exists());
                Command::new(program.unwrap_or("mariadbd"))
            }
        };
        command.arg("--no-defaults");
        if let Some(package) = &self.package {
            let files = package.folder.join(if self.is_mysql { "usr/share/mysql" } else { "usr/share/mariadb" });
            command
                .arg(format!("--basedir={}", package.folder.join("usr").display()))
                .arg(format!("--lc-messages-dir={}", files.display()))
                .arg(format!("--character-sets-dir={}", files.join("charsets").display()))
                .arg(format!("--plugin-dir={}", package.folder.join("usr/lib/mysql/plugin").display()));
        }
        if self.is_mysql {
            command
                // As many of its servers run, and MariaDB ever.
                .args(["--gtid-mode=ON", "--enforce-gtid-consistency=ON"])
                .args(["--mysqlx=OFF", "--secure-file-priv=NULL"])
                .args(["--innodb-redo-log-capacity=8M", "--innodb-autoextend-increment=1"]);
        } else {
            command.arg("--innodb-log-file-size=4M");
        }
        command
    }

    /// The command line's client.
    pub(crate) fn client(&self) -> Command {
        self.by_names("mysql", "mariadb")
    }

    /// What writes dumps.
    pub(crate) fn dump(&self) -> Command {
        let mut command = self.by_names("mysqldump", "mariadb-dump");
        command.args(["--no-defaults", "--user=root", "--single-transaction"]);
        if self.is_mysql {
            // What the server has executed is no part of a database.
            command.arg("--set-gtid-purged=OFF");
        }
        command
    }

    fn by_names(&self, mysql: &str, mariadb: &str) -> Command {
        let name = if self.is_mysql { mysql } else { mariadb };
        let of_package = self.package.as_ref().map(|package| (package, format!("usr/bin/{name}")));
        match of_package.filter(|(package, program)| package.folder.join(program).exists()) {
            Some((package, program)) => package.command(&program),
            // A client of another version of MariaDB does as well.
            None => Command::new(name),
        }
    }

    /// Fills an empty folder with the data of a new server, whose user root needs no password.
    pub(crate) fn install(&self, data: &Path) -> anyhow::Result<()> {
        // A server keeps files of its own for a while, which others that are made at the same time would share.
        let scratch = TempDir::new()?;
        if self.is_mysql {
            return self.install_mysql(data, scratch.path());
        }
        if let Some(package) = &self.package {
            return self.install_mariadb(package, data, scratch.path());
        }
        let mut install = Command::new("mariadb-install-db");
        install.arg("--no-defaults");
        if rustix::process::geteuid().is_root() {
            // It refuses to run as root unless told so, and may give files to nobody else.
            install.arg("--user=root");
        }
        ran(install
            .env("TMPDIR", scratch.path())
            .args(["--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=4M"])
            .arg(format!("--datadir={}", data.display())))
    }

    fn install_mysql(&self, data: &Path, scratch: &Path) -> anyhow::Result<()> {
        let statements = scratch.join("users.sql");
        // Names are not looked up, so localhost is no address.
        std::fs::write(
            &statements,
            "CREATE USER 'root'@'127.0.0.1'; GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n",
        )?;
        ran(self
            .server()
            .args([
                "--initialize-insecure",
                "--user=root",
                "--skip-log-bin",
                "--innodb-data-file-path=ibdata1:12M:autoextend",
            ])
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--tmpdir={}", scratch.display()))
            .arg(format!("--init-file={}", statements.display())))?;
        // Each copy makes a server's name of its own.
        Ok(std::fs::remove_file(data.join("auto.cnf"))?)
    }

    fn install_mariadb(&self, package: &Package, data: &Path, scratch: &Path) -> anyhow::Result<()> {
        // One statement a line.
        let mut statements = "CREATE DATABASE mysql;\nUSE mysql;\nSET @skip_auth_anonymous=1;\n".to_owned();
        for part in ["system_tables", "performance_tables", "system_tables_data", "sys_schema"] {
            let file = package.folder.join(format!("usr/share/mariadb/mariadb_{part}.sql"));
            let text = std::fs::read_to_string(&file).with_context(|| format!("{} cannot be read", file.display()))?;
            writeln!(statements, "{text}")?;
        }
        let file = scratch.join("install.sql");
        std::fs::write(&file, statements)?;
        ran(self
            .server()
            .args(["--bootstrap", "--user=root"])
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--tmpdir={}", scratch.display()))
            .stdin(File::open(&file)?))
    }
}

impl Package {
    fn at(folder: PathBuf) -> anyhow::Result<Self> {
        let not_there = || format!("{PACKAGE} is {}, which holds no server: {FETCH}", folder.display());
        let entries = |folder: &Path| -> anyhow::Result<Vec<PathBuf>> {
            let entries = std::fs::read_dir(folder).with_context(not_there)?;
            Ok(entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?)
        };
        // The folder is named after the machine's kind.
        let mut folders = entries(&folder.join("usr/lib"))?.into_iter();
        let libraries = folders.find(|path| path.join("libc.so.6").exists()).with_context(not_there)?;
        let is_loader =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-linux-"));
        let loader = entries(&libraries)?.into_iter().find(is_loader).with_context(not_there)?;
        Ok(Self { folder, loader, libraries })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(&self.loader);
        command.arg("--library-path").arg(&self.libraries).arg(self.folder.join(program));
        command
    }
}

fn ran(command: &mut Command) -> anyhow::Result<()> {
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().context(INSTALL)?;
    ensure!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
