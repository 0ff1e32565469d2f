//! The sweep of Redis, above a durable store: `CONFIG GET *` says what there is, and what `CONFIG SET` says against a
//! value that nothing takes tells the type.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use tempfile::TempDir;
use tokio::sync::Mutex;
use unalike_redis::{Backing, RedisOptions, RedisStore};
use unalike_sqlite::{SqliteOptions, SqliteStore};

use super::{
    Answer, COUNT, Change, Client, Granted, Plan, Product, START_MAX, Said, Subject, TAG, Variable, Variables, Way,
    told,
};
use crate::redis::{Persistence, Redis, cli};

/// What is not tried, by the end of its name, or by its name.
const LEFT_OUT: [(&str, &[&str]); 5] = [
    ("it is a path", &["dir", "file", "unixsocket", "unixsocketperm", "syslog-ident"]),
    ("it is an address or a port", &["port", "bind", "-addr", "-ip", "-hostname", "replicaof", "slaveof"]),
    ("it is a certificate or names a cipher", &["tls-ca-cert-dir", "tls-ciphers", "tls-ciphersuites", "tls-protocols"]),
    ("it detaches the server from this program", &["daemonize", "supervised"]),
    ("it is about processors", &["cpulist", "io-threads", "oom-score-adj-values"]),
];

/// What nothing takes but a text.
const NO_VALUE: &str = "unalike no value";

/// Texts that say something, and pairs of figures.
const TEXTS: [(&str, &[&str]); 10] = [
    ("appendfsync", &["no", "everysec"]),
    ("maxmemory-policy", &["volatile-ttl", "allkeys-lru", "allkeys-random"]),
    ("save", &["", "1 1"]),
    ("requirepass", &["secret"]),
    ("dbfilename", &["other.rdb"]),
    ("appendfilename", &["other.aof"]),
    ("appenddirname", &["other"]),
    ("client-output-buffer-limit", &["normal 1 1 1"]),
    ("notify-keyspace-events", &["KEA"]),
    ("oom-score-adj", &["no"]),
];

/// Whatever is larger only exhausts the machine.
const FIGURE_MAX: i64 = 1 << 28;

/// A private Redis, and the file of the durable store.
#[derive(Debug)]
pub struct RedisAboveSqlite {
    server: Redis,
    directory: TempDir,
    is_control: bool,
}

impl RedisAboveSqlite {
    fn run(&self, command: &[&str]) -> Said {
        cli(self.server.port(), command).map(drop).map_err(|error| {
            let text = format!("{error:#}");
            text.split_once("ERR ").map_or(text.as_str(), |(_, said)| said).trim().to_owned()
        })
    }

    /// What a variable can be set to, or none that says anything; and whether it can be while the server runs.
    fn values(&self, name: &str, now: &str) -> (Vec<String>, bool) {
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let said = self.run(&["CONFIG", "SET", name, NO_VALUE]).err().unwrap_or_default();
        let is_fixed = said.contains("immutable");
        let mut values = if let Some((_, known)) = TEXTS.iter().find(|(known, _)| *known == name) {
            texts(known)
        } else if let Some((_, list)) = said.split_once("one of the following: ") {
            list.split(',').map(|value| value.trim().to_owned()).collect()
        } else if said.contains("'yes' or 'no'") || ["yes", "no"].contains(&now) {
            texts(&["yes", "no"])
        } else if let Some((_, range)) = said.split_once("must be between ") {
            let bound =
                |word: Option<&str>| word.and_then(|word| word.parse::<i64>().ok()).unwrap_or(0).min(FIGURE_MAX);
            let mut words = range.split(' ');
            let (least, most) = (bound(words.next()), bound(words.nth(1)));
            vec![least.to_string(), most.to_string(), (least + 3).min(most).to_string()]
        } else if now.parse::<i64>().is_ok() {
            texts(&["0", "1", "268435456"])
        } else {
            Vec::new()
        };
        values.retain(|value| value != now);
        values.dedup();
        (values, !is_fixed)
    }
}

#[async_trait]
impl Subject for RedisAboveSqlite {
    async fn begin(is_control: bool) -> anyhow::Result<Self> {
        Ok(Self { server: Redis::start(Persistence::AofAlways)?, directory: TempDir::new()?, is_control })
    }

    async fn variables(&mut self, plan: &Plan) -> anyhow::Result<Variables> {
        let mut variables = Variables::default();
        let listed = cli(self.server.port(), &["CONFIG", "GET", "*"])?;
        let lines: Vec<_> = listed.lines().collect();
        ensure!(lines.len() % 2 == 0, "CONFIG GET has no pairs of lines");
        for pair in lines.chunks_exact(2) {
            let (Some(name), Some(now)) = (pair.first(), pair.last()) else { continue };
            if !plan.asks_for(name) {
                continue;
            }
            let is_known = TEXTS.iter().any(|(known, _)| known == name);
            let left_out = LEFT_OUT.iter().find(|(_, ends)| ends.iter().any(|end| name.ends_with(end)));
            if let Some((why, _)) = left_out.filter(|_| !is_known) {
                variables.left_out.push(((*name).to_owned(), why));
                continue;
            }
            let (values, can_change) = self.values(name, now);
            if values.is_empty() {
                variables.left_out.push(((*name).to_owned(), "it is a text that means nothing to grants"));
                continue;
            }
            let all = values.len();
            let ways = if can_change { vec![(Way::Running, all), (Way::Start, all)] } else { vec![(Way::Start, all)] };
            variables.tried.push(Variable { name: (*name).to_owned(), values, ways });
        }
        Ok(variables)
    }

    fn definitions(&self) -> Vec<(&'static str, Vec<String>)> {
        let definitions: [(&str, &[&str]); 14] = [
            ("all keys are gone", &["FLUSHALL"]),
            (
                "all keys expire",
                &["EVAL for_,key_in_ipairs(redis.call('KEYS','*'))do_redis.call('PEXPIRE',key,1)_end 0"],
            ),
            (
                "all keys are texts",
                &["EVAL for_,key_in_ipairs(redis.call('KEYS','*'))do_redis.call('SET',key,'1')_end 0"],
            ),
            ("keys are evicted", &["CONFIG SET maxmemory-policy allkeys-random", "CONFIG SET maxmemory 1"]),
            ("no memory is left", &["CONFIG SET maxmemory-policy noeviction", "CONFIG SET maxmemory 1"]),
            ("scripts are forgotten", &["SCRIPT FLUSH"]),
            ("the databases are swapped", &["SWAPDB 0 1"]),
            ("it is a replica", &["REPLICAOF 127.0.0.1 1"]),
            ("replicas are demanded", &["CONFIG SET min-replicas-to-write 1"]),
            ("figures are reset", &["CONFIG RESETSTAT"]),
            ("a user who may run no scripts", &["ACL SETUSER default -@scripting"]),
            ("a user who may not write", &["ACL SETUSER default -@write"]),
            ("a user who may not ask", &["ACL SETUSER default -info -config"]),
            ("a user who has other keys", &["ACL SETUSER default resetkeys ~other:*"]),
        ];
        let own = |text: &&str| (*text).to_owned();
        definitions.iter().map(|(name, commands)| (*name, commands.iter().map(own).collect())).collect()
    }

    async fn set(&mut self, _way: Way, changes: &[Change]) -> anyhow::Result<Said> {
        let mut said = Ok(());
        for change in changes {
            said = said.and_then(|()| self.run(&["CONFIG", "SET", &change.name, &change.value]));
        }
        Ok(said)
    }

    async fn kill_and_start(&mut self, changes: &[Change]) -> anyhow::Result<Said> {
        let usual = Persistence::AofAlways.settings().iter().map(|&setting| setting.to_owned());
        let more = changes.iter().flat_map(|change| [format!("--{}", change.name), change.value.clone()]);
        self.server.launch(&usual.chain(more).collect::<Vec<_>>())?;
        let deadline = Instant::now() + START_MAX;
        loop {
            let answer = cli(self.server.port(), &["PING"]).map_err(|error| format!("{error:#}"));
            if answer.is_ok() || answer.is_err_and(|error| error.contains("NOAUTH")) {
                return Ok(Ok(()));
            }
            if self.server.has_ended()? || Instant::now() > deadline {
                let log = self.server.log();
                let line = log.lines().rev().find(|line| !line.trim().is_empty());
                return Ok(Err(line.unwrap_or("it is not ready in time").to_owned()));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn renew_store(&mut self) -> anyhow::Result<()> {
        // What was changed before is not to last.
        *self = Self::begin(self.is_control).await?;
        Ok(())
    }

    async fn define(&mut self, statements: &[String]) -> anyhow::Result<Said> {
        let mut said = Ok(());
        for statement in statements {
            // A word of a command has no spaces in it.
            let words: Vec<_> = statement
                .split(' ')
                .map(|word| {
                    if word.contains("redis.call") {
                        word.replace('_', " ").replace("for  ,", "for _,")
                    } else {
                        word.to_owned()
                    }
                })
                .collect();
            said = said.and_then(|()| self.run(&words.iter().map(String::as_str).collect::<Vec<_>>()));
        }
        Ok(said)
    }

    async fn connect(&self) -> Result<Box<dyn Client>, String> {
        let url = self.server.url(0, "preheat=false");
        if self.is_control {
            let client = redis::Client::open(url.as_str()).map_err(|error| error.to_string())?;
            let connected = client.get_multiplexed_async_connection().await.map_err(|error| error.to_string())?;
            return Ok(Box::new(Naive(Mutex::new(connected))));
        }
        let path = self.directory.path().join("ids.sqlite");
        let durable = SqliteStore::connect(SqliteOptions::new(path)).await.map_err(|error| told(&error))?;
        let options = RedisOptions::from_url(&url).map_err(|error| told(&error))?;
        let store = RedisStore::connect(options, Backing::Durable(Arc::new(durable))).await;
        Ok(Product::boxed(Arc::new(store.map_err(|error| told(&error))?), None))
    }

    async fn granted_up_to(&mut self) -> Option<u64> {
        // Redis has what the durable store granted, so that says nothing of a grant.
        None
    }
}

/// What the systems do that unalike replaces: a counter.
struct Naive(Mutex<MultiplexedConnection>);

#[async_trait]
impl Client for Naive {
    async fn grant(&self, _turn: u32) -> Answer {
        let mut connection = self.0.lock().await;
        let counted = redis::cmd("INCRBY").arg("counter").arg(COUNT).query_async::<u64>(&mut *connection).await;
        match counted.context("counting") {
            Ok(end) => {
                let granted = Granted { of: TAG.to_owned(), start: (end + 1).saturating_sub(COUNT), end: end + 1 };
                Answer { granted: vec![granted], refusal: None }
            }
            Err(error) => Answer { granted: Vec::new(), refusal: Some(format!("{error:#}")) },
        }
    }

    async fn close(&self) {}
}
