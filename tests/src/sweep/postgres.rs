//! The sweep of PostgreSQL: `pg_settings` says what there is, of which type and in which range, and who may set it
//! when.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, Row as _};
use tokio::sync::Mutex;
use tokio::time::timeout;
use unalike_postgres::{PostgresOptions, PostgresStore};

use super::{
    Answer, CALL_MAX, COUNT, Change, Client, Granted, Plan, Product, START_MAX, Said, Subject, TAG, Variable,
    Variables, Way, told,
};
use crate::postgres::Postgres;

/// The user, who may not do everything.
const USER: &str = "ids";

/// What is not tried, by the end of its name, or by its name.
const LEFT_OUT: [(&str, &[&str]); 4] = [
    ("it is a path", &["_file", "_directory", "_directories", "_filename", "_path", "stats_temp_directory"]),
    ("it is an address or a port", &["port", "listen_addresses", "bonjour_name", "primary_conninfo"]),
    ("it names a program or a library to load", &["_libraries", "_command", "jit_provider"]),
    (
        "its memory is taken at once, and only exhausts the machine",
        &["huge_pages", "huge_page_size", "min_dynamic_shared_memory"],
    ),
];

/// Texts that say something; of others an empty one and a name that nothing has.
const TEXTS: [(&str, &[&str]); 15] = [
    ("search_path", &["", "pg_temp, public", "nowhere", "\"$user\"", "pg_catalog"]),
    ("client_encoding", &["LATIN1", "SQL_ASCII", "EUC_JP"]),
    ("DateStyle", &["SQL, DMY", "German"]),
    ("TimeZone", &["Asia/Tokyo", "-12"]),
    ("synchronous_standby_names", &["*", "nobody"]),
    ("session_authorization", &["postgres", "nobody"]),
    ("role", &["none", "postgres", "pg_monitor"]),
    ("default_tablespace", &["pg_default", "nowhere"]),
    ("temp_tablespaces", &["pg_default"]),
    ("default_table_access_method", &["heap", "nothing"]),
    ("transaction_isolation", &["serializable", "read committed"]),
    ("lc_messages", &["C", "nowhere"]),
    ("wal_consistency_checking", &["all", "heap"]),
    ("backtrace_functions", &["ProcessQuery"]),
    ("default_text_search_config", &["pg_catalog.english", "nothing"]),
];

/// A private PostgreSQL.
#[derive(Debug)]
pub struct Postgresql {
    server: Postgres,
    /// A session of the superuser, in the store's database.
    operator: Option<PgConnection>,
    database: String,
    databases: u32,
    /// Something is set for the user, or for the database.
    is_altered: bool,
    is_control: bool,
}

impl Postgresql {
    async fn operate(&mut self) -> anyhow::Result<&mut PgConnection> {
        if self.operator.is_none() {
            let connect = PgConnectOptions::new_without_pgpass().host("127.0.0.1").port(self.server.port());
            let connect = connect.username("postgres").database(&self.database);
            let mut connected = timeout(START_MAX, PgConnection::connect_with(&connect))
                .await
                .context("no answer to the operator")??;
            // What is set for all does not hold here.
            const OWN: &str = "SET statement_timeout = 0; SET search_path = public; SET default_transaction_read_only = off; \
                SET synchronous_commit = local; SET lock_timeout = 0";
            timeout(START_MAX, connected.execute(OWN)).await.context("no answer to the operator")??;
            self.operator = Some(connected);
        }
        self.operator.as_mut().context("the operator is not connected")
    }

    /// Runs statements as the superuser; what the server says against one.
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

    async fn value(&mut self, statement: &'static str) -> anyhow::Result<String> {
        let operator = self.operate().await?;
        let row = timeout(CALL_MAX, sqlx::query(statement).fetch_one(operator)).await.context("no answer")??;
        column(&row, 0)
    }

    /// Has the server read its configuration, and waits until it has.
    async fn reload(&mut self) -> anyhow::Result<Said> {
        const READ: &str = "SELECT pg_conf_load_time()::text";
        let before = self.value(READ).await?;
        let said = self.run(&["SELECT pg_reload_conf()".to_owned()]).await?;
        let deadline = Instant::now() + START_MAX;
        while said.is_ok() && self.value(READ).await? == before {
            if Instant::now() > deadline {
                return Ok(Err("the server does not read its configuration".to_owned()));
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(said)
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
                let line = log.lines().find(|line| line.contains("FATAL:") && !line.contains("starting up"));
                let said =
                    line.and_then(|line| line.split_once("FATAL:")).map_or("it is not ready in time", |(_, said)| said);
                return Ok(Err(said.trim().to_owned()));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn column(row: &PgRow, at: usize) -> anyhow::Result<String> {
    Ok(row.try_get::<Option<String>, _>(at)?.unwrap_or_default())
}

const LIST: &str = "SELECT name, setting, COALESCE(unit, ''), context, vartype, min_val, max_val, \
    array_to_string(enumvals, ',') FROM pg_settings ORDER BY name";

/// Values that say something, of a variable of this type.
fn values(name: &str, kind: &str, (now, unit): (&str, &str), (min, max): (&str, &str), list: &str) -> Vec<String> {
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    let known = TEXTS.iter().find(|(known, _)| *known == name).map(|(_, values)| texts(values));
    let mut values = match kind {
        _ if known.is_some() => known.unwrap_or_default(),
        "bool" => texts(&["on", "off"]),
        "enum" => list.split(',').map(str::to_owned).collect(),
        "integer" => {
            // Whatever is larger only exhausts the machine.
            let bytes_max = match unit {
                "B" => 1 << 28,
                "kB" => 1 << 18,
                "8kB" => 1 << 15,
                "MB" => 1 << 8,
                _ => i64::MAX,
            };
            let (least, most) = (min.parse().unwrap_or(0_i64), max.parse().unwrap_or(7_i64).min(bytes_max));
            vec![least.to_string(), most.to_string(), (least + 3).min(most).to_string()]
        }
        "real" => texts(&[min, max, "0.5"]),
        _ => texts(&["", "unalike"]),
    };
    values.retain(|value| value != now);
    values.dedup();
    values
}

fn literal(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

/// What an operator, or another program, may do to the tables.
const DEFINITIONS: [(&str, &[&str]); 27] = [
    ("the key is dropped", &["ALTER TABLE unalike_tag DROP CONSTRAINT unalike_tag_pkey"]),
    (
        "the key is another column",
        &["ALTER TABLE unalike_tag DROP CONSTRAINT unalike_tag_pkey, ADD PRIMARY KEY (tag, version)"],
    ),
    (
        "the key is an index",
        &["ALTER TABLE unalike_tag DROP CONSTRAINT unalike_tag_pkey", "CREATE INDEX ON unalike_tag (tag)"],
    ),
    ("the watermark is an integer", &["ALTER TABLE unalike_tag ALTER watermark TYPE integer"]),
    ("the watermark is a smallint", &["ALTER TABLE unalike_tag ALTER watermark TYPE smallint"]),
    ("the watermark is a double", &["ALTER TABLE unalike_tag ALTER watermark TYPE double precision"]),
    ("the watermark is a numeric", &["ALTER TABLE unalike_tag ALTER watermark TYPE numeric"]),
    ("the version is narrow", &["ALTER TABLE unalike_tag ALTER version TYPE integer"]),
    ("names are varchar", &["ALTER TABLE unalike_tag ALTER tag TYPE varchar(128)"]),
    ("names are char", &["ALTER TABLE unalike_tag ALTER tag TYPE char(128)"]),
    ("names have another collation", &["ALTER TABLE unalike_tag ALTER tag TYPE text COLLATE \"POSIX\""]),
    (
        "names are compared without case",
        &[
            "CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level1', deterministic = false)",
            "ALTER TABLE unalike_tag ALTER tag TYPE text COLLATE folded",
        ],
    ),
    ("the table is unlogged", &["ALTER TABLE unalike_tag SET UNLOGGED"]),
    ("the store is unlogged", &["ALTER TABLE unalike_store SET UNLOGGED"]),
    ("leases are unlogged", &["ALTER TABLE unalike_lease SET UNLOGGED"]),
    (
        "a trigger sets the watermark back",
        &[
            "CREATE FUNCTION back() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.watermark = OLD.watermark; RETURN NEW; END'",
            "CREATE TRIGGER back BEFORE UPDATE ON unalike_tag FOR EACH ROW EXECUTE FUNCTION back()",
        ],
    ),
    (
        "a trigger swallows updates",
        &[
            "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            "CREATE TRIGGER no BEFORE UPDATE ON unalike_tag FOR EACH ROW EXECUTE FUNCTION no()",
        ],
    ),
    ("a rule does nothing instead", &["CREATE RULE no AS ON UPDATE TO unalike_tag DO INSTEAD NOTHING"]),
    (
        "a view stands in the table's place",
        &["ALTER TABLE unalike_tag RENAME TO tags", "CREATE VIEW unalike_tag AS SELECT * FROM tags"],
    ),
    ("a table inherits from it", &["CREATE TABLE child () INHERITS (unalike_tag)"]),
    (
        "the table is partitioned",
        &[
            "ALTER TABLE unalike_tag RENAME TO tags",
            "CREATE TABLE unalike_tag (LIKE tags INCLUDING ALL) PARTITION BY HASH (tag)",
            "CREATE TABLE part PARTITION OF unalike_tag FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
            "INSERT INTO unalike_tag SELECT * FROM tags",
            "ALTER TABLE unalike_tag OWNER TO ids",
        ],
    ),
    ("the rows have security", &["ALTER TABLE unalike_tag ENABLE ROW LEVEL SECURITY"]),
    (
        "the rows have security for the owner",
        &["ALTER TABLE unalike_tag ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"],
    ),
    (
        "a table of the same name comes first",
        &[
            "CREATE SCHEMA ids AUTHORIZATION ids",
            "CREATE TABLE ids.unalike_tag (LIKE public.unalike_tag INCLUDING ALL)",
            "ALTER TABLE ids.unalike_tag OWNER TO ids",
        ],
    ),
    (
        "the table is another one",
        &[
            "CREATE TABLE t (LIKE unalike_tag INCLUDING ALL)",
            "INSERT INTO t SELECT * FROM unalike_tag",
            "DROP TABLE unalike_tag",
            "ALTER TABLE t RENAME TO unalike_tag",
            "ALTER TABLE unalike_tag OWNER TO ids",
        ],
    ),
    ("the store's row is gone", &["DELETE FROM unalike_store"]),
    (
        "an operator of the same name comes first",
        &["CREATE FUNCTION public.length(bytea) RETURNS integer LANGUAGE sql AS 'SELECT 0'"],
    ),
];

/// What the user may not do.
const RIGHTS: [(&str, &[&str]); 7] = [
    ("a user who may not create", &["REVOKE CREATE ON SCHEMA public FROM PUBLIC, ids, pg_database_owner"]),
    (
        "a user who may not update",
        &["ALTER TABLE unalike_tag OWNER TO postgres", "GRANT SELECT, INSERT ON unalike_tag TO ids"],
    ),
    (
        "a user who may not insert",
        &["ALTER TABLE unalike_tag OWNER TO postgres", "GRANT SELECT, UPDATE ON unalike_tag TO ids"],
    ),
    (
        "a user who may not select",
        &["ALTER TABLE unalike_tag OWNER TO postgres", "GRANT UPDATE, INSERT ON unalike_tag TO ids"],
    ),
    (
        "a user with some columns",
        &[
            "ALTER TABLE unalike_tag OWNER TO postgres",
            "GRANT SELECT, UPDATE (settled, version, grant_start) ON unalike_tag TO ids",
        ],
    ),
    ("a user who may not use the schema", &["REVOKE ALL ON SCHEMA public FROM PUBLIC, ids, pg_database_owner"]),
    ("a user who may not ask which server it is", &["REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC"]),
];

#[async_trait]
impl Subject for Postgresql {
    async fn begin(is_control: bool) -> anyhow::Result<Self> {
        let server = Postgres::start()?;
        server.sql("postgres", &format!("CREATE ROLE {USER} LOGIN"))?;
        let database = "postgres".to_owned();
        let mut begun = Self { server, operator: None, database, databases: 0, is_altered: false, is_control };
        begun.renew_store().await?;
        Ok(begun)
    }

    async fn variables(&mut self, plan: &Plan) -> anyhow::Result<Variables> {
        let mut variables = Variables::default();
        let operator = self.operate().await?;
        let rows = timeout(CALL_MAX, sqlx::query(LIST).fetch_all(operator)).await.context("no answer")??;
        for row in rows {
            let (name, now, unit) = (column(&row, 0)?, column(&row, 1)?, column(&row, 2)?);
            let (context, kind, list) = (column(&row, 3)?, column(&row, 4)?, column(&row, 7)?);
            let (min, max) = (column(&row, 5)?, column(&row, 6)?);
            if !plan.asks_for(&name) {
                continue;
            }
            if context == "internal" {
                variables.left_out.push((name, "nobody can set it"));
                continue;
            }
            let is_known = TEXTS.iter().any(|(known, _)| *known == name);
            let left_out = LEFT_OUT.iter().find(|(_, ends)| ends.iter().any(|end| name.ends_with(end)));
            if let Some((why, _)) = left_out.filter(|_| !is_known) {
                variables.left_out.push((name, why));
                continue;
            }
            let values = values(&name, &kind, (&now, &unit), (&min, &max), &list);
            let all = values.len();
            let ways = match context.as_str() {
                "postmaster" => vec![(Way::Start, all)],
                "sighup" | "backend" | "superuser-backend" => vec![(Way::Running, all)],
                _ => vec![(Way::Running, all), (Way::User, all), (Way::Database, 1)],
            };
            variables.tried.push(Variable { name, values, ways });
        }
        let own = "unalike.session";
        if plan.asks_for(own) {
            let values = vec![String::new(), "0".repeat(32)];
            variables.tried.push(Variable {
                name: own.to_owned(),
                values,
                ways: vec![(Way::User, 2), (Way::Database, 2)],
            });
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
        let database = &self.database;
        let statements: Vec<_> = changes
            .iter()
            .map(|change| {
                // A list is a list of names.
                let value = match change.name.as_str() {
                    "search_path" if !change.value.is_empty() => change.value.clone(),
                    _ => literal(&change.value),
                };
                match way {
                    Way::User => format!("ALTER ROLE {USER} SET {} = {value}", change.name),
                    Way::Database => format!("ALTER DATABASE {database} SET {} = {value}", change.name),
                    _ => format!("ALTER SYSTEM SET {} = {value}", change.name),
                }
            })
            .collect();
        self.is_altered |= way != Way::Running;
        let said = self.run(&statements).await?;
        if said.is_err() || way != Way::Running {
            return Ok(said);
        }
        self.reload().await
    }

    async fn kill_and_start(&mut self, changes: &[Change]) -> anyhow::Result<Said> {
        let settings: Vec<_> = changes.iter().map(|change| format!("{}={}", change.name, change.value)).collect();
        self.operator = None;
        self.server.launch(&settings)?;
        let said = self.wait_until_ready().await?;
        if said.is_ok() && std::mem::take(&mut self.is_altered) {
            let database = &self.database;
            let reset = [format!("ALTER ROLE {USER} RESET ALL"), format!("ALTER DATABASE {database} RESET ALL")];
            self.must_run(&reset).await?;
        }
        Ok(said)
    }

    async fn renew_store(&mut self) -> anyhow::Result<()> {
        self.databases += 1;
        let name = format!("ids_{}", self.databases);
        self.must_run(&[format!("CREATE DATABASE {name} OWNER {USER}")]).await?;
        self.database = name;
        self.operator = None;
        if self.is_control {
            let naive =
                "CREATE TABLE naive (watermark bigint); INSERT INTO naive VALUES (0); GRANT ALL ON naive TO ids";
            self.must_run(&[naive.to_owned()]).await?;
        }
        Ok(())
    }

    async fn define(&mut self, statements: &[String]) -> anyhow::Result<Said> {
        self.run(statements).await
    }

    async fn connect(&self) -> Result<Box<dyn Client>, String> {
        let url = format!("postgres://{USER}@127.0.0.1:{}/{}", self.server.port(), self.database);
        if self.is_control {
            let connected = PgConnection::connect(&url).await.map_err(|error| error.to_string())?;
            return Ok(Box::new(Naive(Mutex::new(connected))));
        }
        let url = format!("{url}?connect-timeout-ms=3000&request-timeout-ms=4000");
        let options = PostgresOptions::from_url(&url).map_err(|error| told(&error))?;
        let store = PostgresStore::connect(options).await.map_err(|error| told(&error))?;
        let leases = store.leases().await.map_err(|error| told(&error))?;
        Ok(Product::boxed(Arc::new(store), Some(Arc::new(leases))))
    }

    async fn granted_up_to(&mut self) -> Option<u64> {
        let statement = if self.is_control {
            "SELECT watermark FROM naive".to_owned()
        } else {
            format!("SELECT watermark::bigint FROM unalike_tag WHERE tag = '{TAG}'")
        };
        let operator = self.operate().await.ok()?;
        let rows = timeout(CALL_MAX, sqlx::query(AssertSqlSafe(statement)).fetch_all(operator)).await.ok()?.ok()?;
        let watermark: i64 = rows.first()?.try_get(0).ok()?;
        u64::try_from(watermark).ok()
    }
}

/// What the systems do that unalike replaces: a statement that counts up, and says how far.
struct Naive(Mutex<PgConnection>);

#[async_trait]
impl Client for Naive {
    async fn grant(&self, _turn: u32) -> Answer {
        const COUNT_UP: &str = "UPDATE naive SET watermark = watermark + 1000 RETURNING watermark";
        let mut connection = self.0.lock().await;
        match sqlx::query_scalar::<_, i64>(COUNT_UP).fetch_one(&mut *connection).await {
            Ok(watermark) => {
                let end = u64::try_from(watermark).unwrap_or_default() + 1;
                let start = end.saturating_sub(COUNT);
                Answer { granted: vec![Granted { of: TAG.to_owned(), start, end }], refusal: None }
            }
            Err(error) => Answer { granted: Vec::new(), refusal: Some(error.to_string()) },
        }
    }

    async fn close(&self) {}
}
