//! The sweep of MariaDB: `information_schema.SYSTEM_VARIABLES` says what there is, of which type and in which range.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, bail};
use async_trait::async_trait;
use sqlx::mysql::{MySqlConnectOptions, MySqlRow};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, MySqlConnection, Row as _};
use tokio::sync::Mutex;
use tokio::time::timeout;
use unalike_mysql::{MysqlOptions, MysqlStore};

use super::{
    Answer, CALL_MAX, COUNT, Change, Client, Granted, Plan, Product, START_MAX, Said, Subject, TAG, Variable,
    Variables, Way, told,
};
use crate::mariadb::MariaDb;

/// Commits are durable, and are logged for replicas.
const USUAL: [&str; 4] = ["--log-bin=log", "--sync-binlog=1", "--server-id=1", "--binlog-format=ROW"];

/// The user, whom `init_connect` concerns, as it does no one who may do everything.
const USER: &str = "ids";

/// What is not tried, by the end of its name, or by its name.
const LEFT_OUT: [(&str, &[&str]); 5] = [
    (
        "it is a path",
        &[
            "dir",
            "_file",
            "_path",
            "_basename",
            "_index",
            "_filename",
            "_directory",
            "_home",
            "socket",
            "log_error",
            "relay_log",
            "log_bin",
            "innodb_data_file_path",
            "innodb_temp_data_file_path",
            "innodb_tmpdir",
        ],
    ),
    ("it is an address or a name in a network", &["port", "_address", "_host", "_user", "_password", "_networks"]),
    (
        "it is a certificate or names a cipher",
        &["ssl_ca", "ssl_cert", "ssl_key", "ssl_capath", "ssl_crl", "ssl_crlpath"],
    ),
    (
        "it names a program or a library to load",
        &["wsrep_provider", "wsrep_notify_cmd", "wsrep_dbug_option", "init_slave"],
    ),
    (
        "its memory is taken at once, and only exhausts the machine",
        &["large_pages", "locked_in_memory", "innodb_buffer_pool_chunk_size", "thread_stack", "wsrep_slave_threads"],
    ),
];

/// Whatever is larger is not tried where bytes are counted: it only exhausts the machine.
const BYTES_MAX: u128 = 1 << 28;

/// Texts that say something; of others an empty one and a name that nothing has.
const TEXTS: [(&str, &[&str]); 14] = [
    (
        "init_connect",
        &[
            "SET autocommit = 0",
            "SET completion_type = 1",
            "BEGIN",
            "SET sql_mode = ''",
            "SET NAMES utf8mb4, time_zone = '+13:00', unique_checks = 0, foreign_key_checks = 0",
            "CREATE TEMPORARY TABLE unalike_tag (a INT)",
            "SET STATEMENT max_statement_time = 9 FOR CREATE TEMPORARY TABLE unalike_tag (a INT)",
            "LOCK TABLES unalike_tag READ",
            "XA START 'a'",
            "SET ROLE NONE",
            "SET TRANSACTION READ ONLY",
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        ],
    ),
    ("time_zone", &["+13:59", "-12:00"]),
    ("default_storage_engine", &["MyISAM", "MEMORY", "Aria"]),
    ("storage_engine", &["MyISAM", "MEMORY"]),
    ("default_tmp_storage_engine", &["MyISAM", "InnoDB"]),
    ("enforce_storage_engine", &["MyISAM", "MEMORY", "InnoDB"]),
    ("gtid_slave_pos", &["0-9-9", "7-1-1"]),
    ("gtid_binlog_state", &["0-9-9"]),
    ("system_versioning_asof", &["2020-01-01 00:00:00", "DEFAULT"]),
    ("character_set_filesystem", &["utf8mb4", "latin1"]),
    ("lc_time_names", &["ja_JP", "de_DE"]),
    ("lc_messages", &["de_DE", "ja_JP"]),
    ("innodb_monitor_enable", &["all"]),
    ("old_mode", &["", "NO_DUP_KEY_WARNINGS_WITH_IGNORE", "ZERO_DATE_TIME_CAST", "UTF8_IS_UTF8MB3"]),
];

/// Character sets and collations that are far from the usual ones.
const CHARACTER_SETS: [&str; 6] = ["latin1", "binary", "ucs2", "utf32", "sjis", "gbk"];
const COLLATIONS: [&str; 5] = ["latin1_swedish_ci", "utf8mb4_turkish_ci", "utf8mb4_bin", "binary", "utf16_general_ci"];

/// What an operator, or another program, may do to the tables.
const DEFINITIONS: [(&str, &[&str]); 29] = [
    ("the key is dropped", &["ALTER TABLE unalike_tag DROP PRIMARY KEY"]),
    ("the key is another column", &["ALTER TABLE unalike_tag DROP PRIMARY KEY, ADD PRIMARY KEY (tag, version)"]),
    ("the key is over a prefix", &["ALTER TABLE unalike_tag DROP PRIMARY KEY, ADD UNIQUE (tag(4))"]),
    ("the key is an index", &["ALTER TABLE unalike_tag DROP PRIMARY KEY, ADD INDEX (tag)"]),
    ("the watermark is an INT", &["ALTER TABLE unalike_tag MODIFY watermark INT UNSIGNED NOT NULL"]),
    ("the watermark is a SMALLINT", &["ALTER TABLE unalike_tag MODIFY watermark SMALLINT UNSIGNED NOT NULL"]),
    ("the watermark is a DOUBLE", &["ALTER TABLE unalike_tag MODIFY watermark DOUBLE NOT NULL"]),
    ("the watermark is a DECIMAL", &["ALTER TABLE unalike_tag MODIFY watermark DECIMAL(20, 0) NOT NULL"]),
    ("the watermark is a text", &["ALTER TABLE unalike_tag MODIFY watermark VARCHAR(20) NOT NULL"]),
    (
        "the version is narrow",
        &["ALTER TABLE unalike_tag MODIFY version INT UNSIGNED NOT NULL, DROP CONSTRAINT unalike_tag_stripe"],
    ),
    ("names are latin1", &["ALTER TABLE unalike_tag MODIFY tag VARCHAR(128) CHARACTER SET latin1 NOT NULL"]),
    (
        "names are compared without case",
        &["ALTER TABLE unalike_tag MODIFY tag VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL"],
    ),
    ("names are short", &["ALTER TABLE unalike_tag MODIFY tag VARBINARY(5) NOT NULL"]),
    ("the table is MyISAM", &["ALTER TABLE unalike_tag ENGINE = MyISAM"]),
    ("the table is Aria", &["ALTER TABLE unalike_tag ENGINE = Aria"]),
    ("the table is in memory", &["ALTER TABLE unalike_tag ENGINE = MEMORY"]),
    ("the store is MyISAM", &["ALTER TABLE unalike_store ENGINE = MyISAM"]),
    ("leases are MyISAM", &["ALTER TABLE unalike_lease ENGINE = MyISAM"]),
    (
        "the constraints are dropped",
        &[
            "ALTER TABLE unalike_tag DROP CONSTRAINT unalike_tag_settled, DROP CONSTRAINT unalike_tag_watermark, DROP CONSTRAINT unalike_tag_stripe",
        ],
    ),
    (
        "a trigger sets the watermark back",
        &["CREATE TRIGGER back BEFORE UPDATE ON unalike_tag FOR EACH ROW SET NEW.watermark = OLD.watermark"],
    ),
    (
        "a trigger runs afterwards",
        &[
            "CREATE TABLE log (a BIGINT)",
            "CREATE TRIGGER after_it AFTER UPDATE ON unalike_tag FOR EACH ROW INSERT INTO log VALUES (NEW.watermark)",
        ],
    ),
    (
        "a trigger fails",
        &["CREATE TRIGGER no AFTER UPDATE ON unalike_tag FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'"],
    ),
    (
        "a view stands in the table's place",
        &["RENAME TABLE unalike_tag TO tags", "CREATE VIEW unalike_tag AS SELECT * FROM tags"],
    ),
    ("the table is partitioned", &["ALTER TABLE unalike_tag PARTITION BY KEY (tag) PARTITIONS 3"]),
    ("the table has versions", &["ALTER TABLE unalike_tag ADD SYSTEM VERSIONING"]),
    ("the watermark is computed", &["ALTER TABLE unalike_tag MODIFY watermark BIGINT UNSIGNED AS (settled) VIRTUAL"]),
    (
        "the watermark is invisible",
        &["ALTER TABLE unalike_tag MODIFY watermark BIGINT UNSIGNED NOT NULL INVISIBLE DEFAULT 0"],
    ),
    ("the table is compressed", &["ALTER TABLE unalike_tag ROW_FORMAT = COMPRESSED"]),
    ("the store's row is gone", &["DELETE FROM unalike_store"]),
];

/// What the user may not do.
const RIGHTS: [(&str, &[&str]); 7] = [
    (
        "a user who may not create",
        &["EXECUTE IMMEDIATE CONCAT('REVOKE CREATE, ALTER, DROP ON ', DATABASE(), '.* FROM ids')"],
    ),
    ("a user who may not update", &["EXECUTE IMMEDIATE CONCAT('REVOKE UPDATE ON ', DATABASE(), '.* FROM ids')"]),
    ("a user who may not insert", &["EXECUTE IMMEDIATE CONCAT('REVOKE INSERT ON ', DATABASE(), '.* FROM ids')"]),
    ("a user who may not select", &["EXECUTE IMMEDIATE CONCAT('REVOKE SELECT ON ', DATABASE(), '.* FROM ids')"]),
    ("a user who may not see triggers", &["EXECUTE IMMEDIATE CONCAT('REVOKE TRIGGER ON ', DATABASE(), '.* FROM ids')"]),
    (
        "a user who may only update",
        &[
            "EXECUTE IMMEDIATE CONCAT('REVOKE ALL ON ', DATABASE(), '.* FROM ids')",
            "EXECUTE IMMEDIATE CONCAT('GRANT SELECT, UPDATE ON ', DATABASE(), '.* TO ids')",
        ],
    ),
    (
        "a user with one column",
        &[
            "EXECUTE IMMEDIATE CONCAT('REVOKE UPDATE ON ', DATABASE(), '.* FROM ids')",
            "GRANT UPDATE (settled, version, stripe_set, stripe_version) ON unalike_tag TO ids",
        ],
    ),
];

/// A private MariaDB.
#[derive(Debug)]
pub struct Mysql {
    server: MariaDb,
    /// A session of the root user.
    operator: Option<MySqlConnection>,
    database: String,
    databases: u32,
    is_control: bool,
}

impl Mysql {
    async fn operate(&mut self) -> anyhow::Result<&mut MySqlConnection> {
        if self.operator.is_none() {
            let connect = MySqlConnectOptions::new().host("127.0.0.1").port(self.server.port()).username("root");
            let connected = timeout(START_MAX, MySqlConnection::connect_with(&connect)).await;
            self.operator = Some(connected.context("no answer to the operator")??);
        }
        self.operator.as_mut().context("the operator is not connected")
    }

    /// Runs statements as root; what the server says against one.
    async fn run(&mut self, statements: &[String]) -> anyhow::Result<Said> {
        for statement in statements {
            let operator = self.operate().await?;
            match timeout(CALL_MAX, operator.execute(AssertSqlSafe(statement.clone()))).await {
                Ok(Ok(_)) => {}
                Ok(Err(sqlx::Error::Database(error))) => return Ok(Err(error.message().to_owned())),
                Ok(Err(error)) => {
                    self.operator = None;
                    return Ok(Err(error.to_string()));
                }
                Err(_) => {
                    self.operator = None;
                    return Ok(Err("the server does not answer to the statement".to_owned()));
                }
            }
        }
        Ok(Ok(()))
    }

    async fn must_run(&mut self, statements: &[String]) -> anyhow::Result<()> {
        match self.run(statements).await? {
            Ok(()) => Ok(()),
            Err(why) => bail!("{statements:?}: {why}"),
        }
    }

    async fn rows(&mut self, statement: &'static str) -> anyhow::Result<Vec<MySqlRow>> {
        let operator = self.operate().await?;
        Ok(timeout(CALL_MAX, sqlx::query(statement).fetch_all(operator)).await.context("no answer")??)
    }

    async fn wait_until_ready(&mut self) -> anyhow::Result<Said> {
        let deadline = Instant::now() + START_MAX;
        self.operator = None;
        loop {
            if self.operate().await.is_ok() {
                return Ok(Ok(()));
            }
            if self.server.has_ended()? || Instant::now() > deadline {
                let log = self.server.log();
                let line = log.lines().filter(|line| line.contains("[ERROR]")).find(|line| !line.contains("Aborting"));
                let said = line
                    .and_then(|line| line.split_once("[ERROR]"))
                    .map_or("it is not ready in time", |(_, said)| said);
                return Ok(Err(said.trim().to_owned()));
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}

fn column(row: &MySqlRow, at: usize) -> anyhow::Result<String> {
    Ok(row.try_get::<Option<String>, _>(at)?.unwrap_or_default())
}

const LIST: &str = "SELECT CAST(LOWER(VARIABLE_NAME) AS CHAR), CAST(GLOBAL_VALUE AS CHAR), CAST(VARIABLE_SCOPE AS CHAR), \
    CAST(VARIABLE_TYPE AS CHAR), CAST(NUMERIC_MIN_VALUE AS CHAR), CAST(NUMERIC_MAX_VALUE AS CHAR), \
    CAST(ENUM_VALUE_LIST AS CHAR), CAST(READ_ONLY AS CHAR), CAST(COMMAND_LINE_ARGUMENT AS CHAR) \
    FROM information_schema.SYSTEM_VARIABLES ORDER BY 1";

/// Why a variable is not tried; none for one that is.
fn why_not(name: &str) -> Option<&'static str> {
    LEFT_OUT.iter().find(|(_, ends)| ends.iter().any(|end| name.ends_with(end))).map(|(why, _)| *why)
}

/// Values that say something, of a variable of this type.
fn values(name: &str, kind: &str, now: &str, range: (&str, &str), list: &str) -> Vec<String> {
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    let known = TEXTS.iter().find(|(known, _)| *known == name).map(|(_, values)| texts(values));
    let listed = || list.split(',').filter(|value| !value.is_empty()).map(str::to_owned);
    let mut values = match kind {
        _ if known.is_some() => known.unwrap_or_default(),
        _ if name.starts_with("character_set") => texts(&CHARACTER_SETS),
        _ if name.starts_with("collation") => texts(&COLLATIONS),
        "BOOLEAN" => texts(&["ON", "OFF"]),
        "ENUM" => listed().collect(),
        "SET" => listed().chain([list.to_owned(), String::new()]).collect(),
        "FLAGSET" => {
            let flags = listed().filter(|flag| flag != "default");
            flags
                .map(
                    |flag| {
                        if now.contains(&format!("{flag}=on")) { format!("{flag}=off") } else { format!("{flag}=on") }
                    },
                )
                .collect()
        }
        "DOUBLE" => texts(&[range.0, range.1, "0.5"]),
        "VARCHAR" => texts(&["", "unalike"]),
        _ => numbers(name, range),
    };
    values.retain(|value| !value.eq_ignore_ascii_case(now));
    values.dedup();
    values
}

/// The smallest, the greatest, and one between that nobody would choose.
fn numbers(name: &str, (min, max): (&str, &str)) -> Vec<String> {
    let (least, most): (i128, u128) = (min.parse().unwrap_or(0), max.parse().unwrap_or(7));
    let counts_bytes =
        ["size", "buffer", "cache", "memory", "packet", "len", "length"].iter().any(|end| name.ends_with(end));
    let most = if counts_bytes { most.min(BYTES_MAX) } else { most };
    let odd = u128::try_from(least).unwrap_or(0).saturating_add(3).min(most);
    vec![least.to_string(), most.to_string(), odd.to_string()]
}

/// A value as a statement says it.
fn literal(value: &str) -> String {
    if value.parse::<i128>().is_ok() || value.parse::<f64>().is_ok() {
        value.to_owned()
    } else {
        format!("'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
    }
}

#[async_trait]
impl Subject for Mysql {
    async fn begin(is_control: bool) -> anyhow::Result<Self> {
        let server = MariaDb::start_with(&USUAL)?;
        let mut begun = Self { server, operator: None, database: String::new(), databases: 0, is_control };
        begun.must_run(&[format!("CREATE USER {USER}@'%'")]).await?;
        begun.renew_store().await?;
        Ok(begun)
    }

    async fn variables(&mut self, plan: &Plan) -> anyhow::Result<Variables> {
        let mut variables = Variables::default();
        for row in self.rows(LIST).await? {
            let (name, now, scope) = (column(&row, 0)?, column(&row, 1)?, column(&row, 2)?);
            let (kind, min, max, list) = (column(&row, 3)?, column(&row, 4)?, column(&row, 5)?, column(&row, 6)?);
            let (is_fixed, has_argument) = (column(&row, 7)? == "YES", !column(&row, 8)?.is_empty());
            if !plan.asks_for(&name) {
                continue;
            }
            if is_fixed && !has_argument {
                variables.left_out.push((name, "nobody can set it"));
                continue;
            }
            if let Some(why) = why_not(&name) {
                variables.left_out.push((name, why));
                continue;
            }
            let values = values(&name, &kind, &now, (&min, &max), &list);
            let all = values.len();
            let ways = match (scope.as_str(), is_fixed) {
                ("SESSION ONLY", _) => vec![(Way::Session, all)],
                (_, true) => vec![(Way::Start, all)],
                // With the argument it is what it can be set to while the server runs, but for when that is.
                (_, false) if has_argument => vec![(Way::Running, all), (Way::Start, 1)],
                _ => vec![(Way::Running, all)],
            };
            variables.tried.push(Variable { name, values, ways });
        }
        Ok(variables)
    }

    fn definitions(&self) -> Vec<(&'static str, Vec<String>)> {
        let definitions = DEFINITIONS.iter().chain(&RIGHTS);
        definitions
            .map(|(name, statements)| (*name, statements.iter().map(|&text| text.to_owned()).collect()))
            .collect()
    }

    async fn set(&mut self, way: Way, changes: &[Change]) -> anyhow::Result<Said> {
        let statements: Vec<_> = changes
            .iter()
            .map(|change| {
                let set = format!("{} = {}", change.name, literal(&change.value));
                match way {
                    Way::Session => format!(
                        "SET GLOBAL init_connect = CONCAT(@@GLOBAL.init_connect, {}, ';')",
                        literal(&format!("SET SESSION {set}"))
                    ),
                    _ => format!("SET GLOBAL {set}"),
                }
            })
            .collect();
        if way == Way::Session {
            // A session says what it does not take.
            let own: Vec<_> = changes
                .iter()
                .map(|change| format!("SET SESSION {} = {}", change.name, literal(&change.value)))
                .collect();
            let said = self.run(&own).await?;
            self.operator = None;
            if said.is_err() {
                return Ok(said);
            }
        }
        self.run(&statements).await
    }

    async fn kill_and_start(&mut self, changes: &[Change]) -> anyhow::Result<Said> {
        let usual = USUAL.iter().map(|&setting| setting.to_owned());
        let more = changes.iter().map(|change| format!("--{}={}", change.name, change.value));
        let settings: Vec<_> = usual.chain(more).collect();
        self.operator = None;
        self.server.launch(&settings)?;
        self.wait_until_ready().await
    }

    async fn renew_store(&mut self) -> anyhow::Result<()> {
        self.databases += 1;
        self.database = format!("ids_{}", self.databases);
        let name = self.database.clone();
        let mut statements = vec![format!("CREATE DATABASE {name}"), format!("GRANT ALL ON {name}.* TO {USER}@'%'")];
        if self.is_control {
            statements
                .push(format!("CREATE TABLE {name}.naive (id INT PRIMARY KEY, watermark BIGINT) ENGINE = InnoDB"));
            statements.push(format!("INSERT INTO {name}.naive VALUES (1, 0)"));
        }
        self.must_run(&statements).await
    }

    async fn define(&mut self, statements: &[String]) -> anyhow::Result<Said> {
        let usual = [format!("USE {}", self.database)];
        let said = self.run(&usual).await?;
        if said.is_err() {
            return Ok(said);
        }
        self.run(statements).await
    }

    async fn connect(&self) -> Result<Box<dyn Client>, String> {
        let url = format!("mysql://{USER}@127.0.0.1:{}/{}", self.server.port(), self.database);
        if self.is_control {
            let connected = MySqlConnection::connect(&url).await.map_err(|error| error.to_string())?;
            return Ok(Box::new(Naive(Mutex::new(connected))));
        }
        let url = format!("{url}?connect-timeout-ms=3000&request-timeout-ms=4000");
        let options = MysqlOptions::from_url(&url).map_err(|error| told(&error))?;
        let store = MysqlStore::connect(options).await.map_err(|error| told(&error))?;
        let leases = store.leases().await.map_err(|error| told(&error))?;
        Ok(Product::boxed(Arc::new(store), Some(Arc::new(leases))))
    }

    async fn granted_up_to(&mut self) -> Option<u64> {
        let database = &self.database;
        let statement = if self.is_control {
            format!("SELECT watermark FROM {database}.naive")
        } else {
            format!("SELECT CAST(watermark AS SIGNED) FROM {database}.unalike_tag WHERE tag = '{TAG}'")
        };
        let operator = self.operate().await.ok()?;
        let rows = timeout(CALL_MAX, sqlx::query(AssertSqlSafe(statement)).fetch_all(operator)).await.ok()?.ok()?;
        let watermark: i64 = rows.first()?.try_get(0).ok()?;
        u64::try_from(watermark).ok()
    }
}

/// What the systems do that unalike replaces: a statement that counts up, and one that asks how far.
struct Naive(Mutex<MySqlConnection>);

#[async_trait]
impl Client for Naive {
    async fn grant(&self, _turn: u32) -> Answer {
        const COUNT_UP: &str = "UPDATE naive SET watermark = LAST_INSERT_ID(watermark + 1000) WHERE id = 1";
        let mut connection = self.0.lock().await;
        let counted = connection.execute(COUNT_UP).await.map(|done| done.last_insert_id());
        match counted {
            Ok(watermark) => {
                let start = (watermark + 1).saturating_sub(COUNT);
                Answer { granted: vec![Granted { of: TAG.to_owned(), start, end: watermark + 1 }], refusal: None }
            }
            Err(error) => Answer { granted: Vec::new(), refusal: Some(error.to_string()) },
        }
    }

    async fn close(&self) {}
}
