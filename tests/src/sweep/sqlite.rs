//! The sweep of SQLite: `pragma_pragma_list` says what there is. Another program sets it in its own connection, and has
//! that open, or closed again, while a program that is killed now and then takes grants from the file.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, Row as _, SqliteConnection};
use tempfile::TempDir;
use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_storage::{LeaseStore as _, SegmentStore as _};

use super::{Answer, COUNT, Change, Client, Granted, Plan, Said, Subject, TAG, Variable, Variables, Way, told, worker};
use crate::server;

/// What is not tried.
const LEFT_OUT: [(&str, &[&str]); 3] = [
    ("it is about the process that says it alone", &["hard_heap_limit", "soft_heap_limit", "threads"]),
    ("it is a path", &["temp_store_directory", "data_store_directory"]),
    (
        "it only tells something",
        &[
            "collation_list",
            "compile_options",
            "database_list",
            "foreign_key_check",
            "foreign_key_list",
            "freelist_count",
            "function_list",
            "index_info",
            "index_list",
            "index_xinfo",
            "integrity_check",
            "module_list",
            "page_count",
            "pragma_list",
            "quick_check",
            "stats",
            "table_info",
            "table_list",
            "table_xinfo",
            "data_version",
        ],
    ),
];

/// Texts that say something.
const TEXTS: [(&str, &[&str]); 13] = [
    ("journal_mode", &["DELETE", "TRUNCATE", "PERSIST", "MEMORY", "OFF", "WAL"]),
    ("locking_mode", &["EXCLUSIVE", "NORMAL"]),
    ("synchronous", &["OFF", "NORMAL", "EXTRA"]),
    ("encoding", &["'UTF-16le'", "'UTF-8'"]),
    ("auto_vacuum", &["FULL", "INCREMENTAL"]),
    ("secure_delete", &["ON", "FAST"]),
    ("temp_store", &["MEMORY", "FILE"]),
    ("wal_checkpoint", &["PASSIVE", "FULL", "RESTART", "TRUNCATE"]),
    ("application_id", &["0", "1"]),
    ("user_version", &["0", "1", "3", "-1"]),
    ("schema_version", &["1", "1000000"]),
    ("page_size", &["512", "65536"]),
    ("wal_autocheckpoint", &["0", "1", "-1"]),
];

/// A file, and the other program that has it open.
#[derive(Debug)]
pub struct SqliteFile {
    directory: TempDir,
    other: Option<SqliteConnection>,
    is_control: bool,
}

impl SqliteFile {
    fn path(&self) -> PathBuf {
        self.directory.path().join("ids.sqlite")
    }

    async fn other(&mut self) -> Result<&mut SqliteConnection, String> {
        if self.other.is_none() {
            let connect = SqliteConnectOptions::new().filename(self.path()).busy_timeout(Duration::from_secs(1));
            self.other = Some(connect.connect().await.map_err(|error| error.to_string())?);
        }
        self.other.as_mut().ok_or_else(|| "it is not open".to_owned())
    }

    async fn run(&mut self, statement: &str) -> Said {
        let statement = statement.to_owned();
        self.other().await?.execute(AssertSqlSafe(statement)).await.map(drop).map_err(|error| error.to_string())
    }

    async fn leave(&mut self) {
        if let Some(other) = self.other.take() {
            let _ = other.close().await;
        }
    }
}

#[async_trait]
impl Subject for SqliteFile {
    async fn begin(is_control: bool) -> anyhow::Result<Self> {
        Ok(Self { directory: TempDir::new()?, other: None, is_control })
    }

    async fn variables(&mut self, plan: &Plan) -> anyhow::Result<Variables> {
        let mut variables = Variables::default();
        let mut any = SqliteConnectOptions::new().in_memory(true).connect().await?;
        let names = sqlx::query("SELECT name FROM pragma_pragma_list ORDER BY name").fetch_all(&mut any).await?;
        for name in names {
            let name: String = name.try_get(0)?;
            if !plan.asks_for(&name) {
                continue;
            }
            if let Some((why, _)) = LEFT_OUT.iter().find(|(_, names)| names.contains(&name.as_str())) {
                variables.left_out.push((name, why));
                continue;
            }
            let known = TEXTS.iter().find(|(known, _)| *known == name).map(|(_, values)| *values);
            let values: Vec<String> =
                known.unwrap_or(&["0", "1", "1000"]).iter().map(|&text| text.to_owned()).collect();
            let all = values.len();
            variables.tried.push(Variable { name, values, ways: vec![(Way::Running, all), (Way::Start, all)] });
        }
        Ok(variables)
    }

    fn definitions(&self) -> Vec<(&'static str, Vec<String>)> {
        let definitions: [(&str, &[&str]); 15] = [
            (
                "the table is another one",
                &["CREATE TABLE t AS SELECT * FROM tag", "DROP TABLE tag", "ALTER TABLE t RENAME TO tag"],
            ),
            (
                "a view stands in the table's place",
                &["ALTER TABLE tag RENAME TO tags", "CREATE VIEW tag AS SELECT * FROM tags"],
            ),
            (
                "a trigger sets the watermark back",
                &[
                    "CREATE TRIGGER back AFTER UPDATE ON tag BEGIN UPDATE tag SET watermark = OLD.watermark WHERE tag = NEW.tag; END",
                ],
            ),
            ("a trigger swallows updates", &["CREATE TRIGGER no BEFORE UPDATE ON tag BEGIN SELECT RAISE(IGNORE); END"]),
            ("a trigger fails", &["CREATE TRIGGER no BEFORE UPDATE ON tag BEGIN SELECT RAISE(ABORT, 'no'); END"]),
            ("the table is gone", &["DROP TABLE tag"]),
            ("the store's row is gone", &["DELETE FROM store"]),
            ("the identity is gone", &["DELETE FROM identity"]),
            ("the identity's table is gone", &["DROP TABLE identity"]),
            ("a column is renamed", &["ALTER TABLE tag RENAME COLUMN watermark TO mark"]),
            (
                "a trigger changes leases",
                &["CREATE TRIGGER back AFTER UPDATE ON lease BEGIN UPDATE lease SET valid_until_ms = 0 WHERE 1; END"],
            ),
            ("a column is added", &["ALTER TABLE tag ADD COLUMN more INTEGER"]),
            ("its triggers are gone", &["DROP TRIGGER tag_created", "DROP TRIGGER tag_deleted"]),
            ("another program is writing", &["BEGIN IMMEDIATE", "UPDATE tag SET version = version"]),
            ("another program reads for long", &["BEGIN", "SELECT * FROM tag"]),
        ];
        let own = |text: &&str| (*text).to_owned();
        definitions.iter().map(|(name, statements)| (*name, statements.iter().map(own).collect())).collect()
    }

    async fn set(&mut self, _way: Way, changes: &[Change]) -> anyhow::Result<Said> {
        let mut said = Ok(());
        for change in changes {
            let statement = format!("PRAGMA {} = {}", change.name, change.value);
            if said.is_ok() {
                said = self.run(&statement).await;
            }
        }
        if said.is_ok() {
            // What it is set to shows when the file is used.
            let _ = self.run("SELECT count(*) FROM sqlite_schema").await;
        }
        Ok(said)
    }

    async fn kill_and_start(&mut self, changes: &[Change]) -> anyhow::Result<Said> {
        self.leave().await;
        let said = self.set(Way::Start, changes).await?;
        self.leave().await;
        Ok(said)
    }

    async fn renew_store(&mut self) -> anyhow::Result<()> {
        *self = Self::begin(self.is_control).await?;
        Ok(())
    }

    async fn define(&mut self, statements: &[String]) -> anyhow::Result<Said> {
        let mut said = Ok(());
        for statement in statements {
            if said.is_ok() {
                said = self.run(statement).await;
            }
        }
        if !statements.iter().any(|statement| statement.starts_with("BEGIN")) {
            self.leave().await;
        }
        Ok(said)
    }

    async fn connect(&self) -> Result<Box<dyn Client>, String> {
        let (path, is_control) = (self.path(), self.is_control);
        let begun = tokio::task::spawn_blocking(move || Process::begin(&path, is_control)).await;
        let process = begun.map_err(|error| error.to_string())?.map_err(|error| format!("{error:#}"))?;
        match process.ask().await {
            Answer { refusal: Some(why), .. } => Err(why),
            _ => Ok(Box::new(process)),
        }
    }

    async fn granted_up_to(&mut self) -> Option<u64> {
        if self.is_control {
            return None;
        }
        let statement = format!("SELECT watermark FROM tag WHERE tag = '{TAG}'");
        let other = self.other().await.ok()?;
        let rows = sqlx::query(AssertSqlSafe(statement)).fetch_all(other).await.ok()?;
        u64::try_from(rows.first()?.try_get::<i64, _>(0).ok()?).ok()
    }
}

/// A program that takes grants from the file: `sweep --client PATH`. It answers each line, and ends by SIGKILL.
#[derive(Debug)]
struct Process(Arc<Mutex<Pipes>>);

#[derive(Debug)]
struct Pipes {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Drop for Pipes {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    fn begin(path: &Path, is_control: bool) -> anyhow::Result<Self> {
        let program = server::programs().join("sweep");
        ensure!(program.is_file(), "{} is missing: cargo build --workspace --bin sweep", program.display());
        let mut command = Command::new(program);
        command.arg(if is_control { "--naive-client" } else { "--client" }).arg(path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (questions, answers) = (child.stdin.take().context("a pipe")?, child.stdout.take().context("a pipe")?);
        Ok(Self(Arc::new(Mutex::new(Pipes { child, questions, answers: BufReader::new(answers) }))))
    }

    /// Asks for a line: the first one says whether the file was opened, each after that what was granted.
    async fn ask(&self) -> Answer {
        let pipes = Arc::clone(&self.0);
        let asked = tokio::task::spawn_blocking(move || {
            let mut pipes = pipes.lock().unwrap();
            let mut line = String::new();
            ensure!(pipes.answers.read_line(&mut line)? > 0, "the program has ended");
            anyhow::Ok(line)
        });
        let line = asked.await.map_err(anyhow::Error::from).flatten();
        match line {
            Ok(line) => read(&line),
            Err(error) => Answer { granted: Vec::new(), refusal: Some(format!("{error:#}")) },
        }
    }
}

/// `order 1 1001;worker 3 5 9;` and what was refused.
fn read(line: &str) -> Answer {
    let mut answer = Answer::default();
    for part in line.trim().split(';').filter(|part| !part.is_empty()) {
        let words: Vec<_> = part.rsplitn(3, ' ').collect();
        match words.as_slice() {
            [end, start, of] if let (Ok(start), Ok(end)) = (start.parse(), end.parse()) => {
                answer.granted.push(Granted { of: (*of).to_owned(), start, end });
            }
            _ => answer.refusal = Some(part.to_owned()),
        }
    }
    answer
}

/// An answer as [`read`] takes it.
fn line(answer: &Answer) -> String {
    let granted = answer.granted.iter().map(|granted| format!("{} {} {};", granted.of, granted.start, granted.end));
    let refusal = answer.refusal.as_deref().unwrap_or_default().replace([';', '\n'], ",");
    granted.chain([refusal]).collect()
}

#[async_trait]
impl Client for Process {
    async fn grant(&self, turn: u32) -> Answer {
        let pipes = Arc::clone(&self.0);
        let asked = tokio::task::spawn_blocking(move || writeln!(pipes.lock().unwrap().questions, "{turn}"));
        match asked.await {
            Ok(Ok(())) => self.ask().await,
            other => Answer { granted: Vec::new(), refusal: Some(format!("the program has ended: {other:?}")) },
        }
    }

    async fn close(&self) {
        // It may have ended. Whoever still waits for a line hears of the end.
        let _ = self.0.try_lock().map(|mut pipes| pipes.child.kill());
    }
}

/// What the program does: it opens the file, and takes a grant for each line that it is sent.
///
/// # Errors
/// When nobody reads its answers.
pub async fn serve(path: &Path, is_control: bool) -> anyhow::Result<()> {
    let store = if is_control {
        Ok(None)
    } else {
        SqliteStore::connect(SqliteOptions { busy_timeout: Duration::from_secs(2), ..SqliteOptions::new(path) })
            .await
            .map(Some)
    };
    let mut answer = Answer { granted: Vec::new(), refusal: store.as_ref().err().map(told) };
    println!("{}", line(&answer));
    let Ok(store) = store else { return Ok(()) };
    for turn in std::io::stdin().lock().lines() {
        answer = match &store {
            Some(store) => grant(store, turn?.parse()?).await,
            None => count_up(path).await,
        };
        println!("{}", line(&answer));
    }
    Ok(())
}

async fn grant(store: &SqliteStore, turn: u32) -> Answer {
    let mut answer = Answer::default();
    match store.allocate(TAG, COUNT, 0).await {
        Ok(segment) => answer.granted.push(Granted { of: TAG.to_owned(), start: segment.start, end: segment.end }),
        Err(error) => answer.refusal = Some(told(&error)),
    }
    match store.acquire(&worker(turn)).await {
        Ok(lease) => answer.granted.push(Granted {
            of: format!("worker {}", lease.worker),
            start: lease.not_before_ms,
            end: lease.valid_until_ms,
        }),
        Err(error) => answer.refusal = answer.refusal.or_else(|| Some(told(&error))),
    }
    answer
}

/// What a program may do that keeps its number where it is easily kept.
async fn count_up(path: &Path) -> Answer {
    let counted = async {
        let connect = SqliteConnectOptions::new().filename(path).create_if_missing(true);
        let mut connection = connect.connect().await?;
        let before: i64 = sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut connection).await?;
        connection.execute(AssertSqlSafe(format!("PRAGMA user_version = {}", before + 1_000))).await?;
        anyhow::Ok(u64::try_from(before)?)
    };
    match counted.await {
        Ok(before) => {
            let granted = Granted { of: TAG.to_owned(), start: before + 1, end: before + 1 + COUNT };
            Answer { granted: vec![granted], refusal: None }
        }
        Err(error) => Answer { granted: Vec::new(), refusal: Some(format!("{error:#}")) },
    }
}
