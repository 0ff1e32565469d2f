//! The way to Redis: URLs, users, TLS, what is checked of a server before it is used, what becomes of a connection that
//! is cut, late or closed, and every condition in which a server takes no writes. Each on a real server.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::timeout;
use unalike_memory::{MemoryOptions, MemoryStore, Source64};
use unalike_redis::{Backing, Dialect, RedisOptions, RedisStore};
use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_storage::contract::{self, Fixture, SegmentFixture};
use unalike_storage::{
    Mode, RefillPolicy, Segment, SegmentStore, StepPolicy, StoreError, TagCreation, TagOptions, with_causes,
};
use unalike_tests::authority::Authority;
use unalike_tests::faulty::FaultyStore;
use unalike_tests::log::Log;
use unalike_tests::outages::{Judgement, OUTCOME_UNKNOWN, REFUSED, UNAVAILABLE, allocate_at_last};
use unalike_tests::process;
use unalike_tests::proxy::Proxy;
use unalike_tests::redis::{Persistence, Redis};
use unalike_tests::{PATIENCE, until};

fn options(url: &str) -> RedisOptions {
    let mut options = RedisOptions::from_url(url).expect("a URL");
    // Nothing happens but what a test does.
    options.preheat = false;
    options.keep_every = Duration::from_secs(3_600);
    options
}

/// A durable store that has granted nothing. All have one identity.
fn durable() -> Backing {
    let random: Source64 = Arc::new(|| 0x5eed);
    Backing::Durable(Arc::new(MemoryStore::new(MemoryOptions { random, ..MemoryOptions::default() })))
}

async fn try_open(url: &str) -> Result<RedisStore, StoreError> {
    within(RedisStore::connect(options(url), durable())).await
}

async fn open(url: &str) -> RedisStore {
    try_open(url).await.expect("the store opens")
}

/// For what must come to an end.
async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it comes to an end")
}

/// Checks what an error says: to programs, and to people, who get no password to read.
fn judge<T: Debug>(answer: Result<T, StoreError>, judgement: Judgement, words: &[&str]) {
    let error = match answer {
        Ok(answer) => panic!("{words:?} was to come, and not {answer:?}"),
        Err(error) => error,
    };
    let judged = (error.is_retryable(), error.may_have_granted(), error.is_callers_fault());
    assert_eq!(judged, judgement, "{error:?}");
    for word in words {
        assert!(error.to_string().contains(word), "{word:?} is not in {error}");
    }
    let all = format!("{} {error:?}", with_causes(&error));
    assert!(!all.contains("s3cret"), "{all}");
}

/// The connections to a server but the one that asks, by number.
fn clients(redis: &Redis) -> BTreeSet<u64> {
    let list = redis.cli(&["CLIENT", "LIST", "TYPE", "normal"]).expect("a list");
    let others = list.lines().filter(|line| !line.contains("cmd=client"));
    others.map(|line| line.split_once("id=").unwrap().1.split(' ').next().unwrap().parse().unwrap()).collect()
}

fn hash(redis: &Redis, tag: &str) -> String {
    redis.cli(&["HGETALL", &format!("unalike:{{{tag}}}")]).expect("a hash")
}

/// What a server was asked for so far: its commands, those of scripts too.
fn commands(redis: &Redis) -> BTreeSet<String> {
    let stats = redis.cli(&["INFO", "commandstats"]).expect("figures");
    let names = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split(':').next());
    names.map(str::to_owned).collect()
}

// ---- URLs ----

#[test]
fn a_url_says_where_redis_is() {
    for (url, address) in [
        ("redis://cache.example", "cache.example:6379/0"),
        ("redis://cache.example/", "cache.example:6379/0"),
        ("REDIS://cache.example:7000", "cache.example:7000/0"),
        ("rediss://cache.example:7000/15", "cache.example:7000/15"),
        ("redis://user@cache.example/3/", "cache.example:6379/3"),
        ("redis://user:s3cret@cache.example/3", "cache.example:6379/3"),
        ("redis://:s3cret@cache.example:1?prefix=ids", "cache.example:1/0"),
        ("redis://us%40er:s3cret%2F%3F%23%40@cache.example", "cache.example:6379/0"),
        ("redis+sentinel://s1,s2:1,[::1]/ids", "s1:26379,s2:1,[::1]:26379/ids/0"),
        ("rediss+sentinel://user:s3cret%2F%40@s1:7000/ids%20a/3?sentinel-auth=same", "s1:7000/ids a/3"),
        ("REDIS+SENTINEL://:s3cret@/ids/?sentinel-auth=none", "localhost:26379/ids/0"),
        ("redis+cluster://n1,n2:1,[::1]:2?prefix=ids", "n1:6379,n2:1,[::1]:2"),
        ("rediss+cluster://user:s3cret%3F@n1/0", "n1:6379"),
        ("redis://[::1]:7000/2", "[::1]:7000/2"),
        ("redis://10.0.0.1", "10.0.0.1:6379/0"),
        ("redis:///3", "localhost:6379/3"),
        ("redis://", "localhost:6379/0"),
    ] {
        let options = RedisOptions::from_url(url).expect(url).password("s3cret");
        assert_eq!(options.address(), address, "{url}");
        let debug = format!("{options:?} {options:#?}");
        assert!(debug.contains(address) && !debug.contains("s3cret"), "{debug}");
    }
}

#[test]
fn a_url_has_parameters() {
    let plain = RedisOptions::from_url("redis://h").expect("a URL");
    assert_eq!((plain.dialect.clone(), plain.prefix.as_str(), plain.preheat), (Dialect::Unalike, "unalike", true));
    assert_eq!((plain.raise_min, plain.raise_max, plain.assume_durable), (100_000, 1 << 40, false));
    let timeouts = [plain.connect_timeout, plain.request_timeout, plain.raise_timeout];
    assert_eq!(timeouts, [Duration::from_secs(1); 3]);

    let url = "redis://h?prefix=a.b&raise-min=1&raise-max=9007199254740991&connect-timeout-ms=1&request-timeout-ms=2\
        &raise-timeout-ms=600000&preheat=false&durability=assumed";
    let all = RedisOptions::from_url(url).expect("a URL");
    assert_eq!((all.prefix.as_str(), all.preheat, all.assume_durable), ("a.b", false, true));
    assert_eq!((all.raise_min, all.raise_max), (1, (1 << 53) - 1));
    let timeouts = [all.connect_timeout, all.request_timeout, all.raise_timeout];
    assert_eq!(timeouts, [1, 2, 600_000].map(Duration::from_millis));
    let checked = RedisOptions::from_url("redis://h?durability=checked&preheat=true&dialect=unalike").expect("a URL");
    assert_eq!((checked.preheat, checked.assume_durable), (true, false));

    for (parameters, dialect) in [
        ("dialect=clock", Dialect::Clock { shard: 0, epoch_ms: 1_704_067_200_000, horizon_ms: 6_000 }),
        ("dialect=clock&shard=4095&epoch=0", Dialect::Clock { shard: 4_095, epoch_ms: 0, horizon_ms: 6_000 }),
        ("dialect=cosid", Dialect::Cosid),
        ("dialect=id-generator", Dialect::IdGenerator { keys: BTreeMap::new(), source_stopped: false }),
        (
            "dialect=id-generator&keys=order:id_order,mail:a:b&source-stopped=true",
            Dialect::IdGenerator {
                keys: [("order", "id_order"), ("mail", "a:b")].map(|(tag, key)| (tag.into(), key.into())).into(),
                source_stopped: true,
            },
        ),
    ] {
        assert_eq!(RedisOptions::from_url(&format!("redis://h?{parameters}")).expect(parameters).dialect, dialect);
    }
}

#[test]
fn a_url_that_is_wrong_is_refused_and_shows_no_password() {
    for (url, words) in [
        ("", "cannot be read"),
        ("cache.example", "cannot be read"),
        ("cache.example:6379", "must be redis or rediss"),
        ("http://u:s3cret@h", "must be redis or rediss"),
        ("unix:///s3cret", "must be redis or rediss"),
        ("redis+unix:///s3cret", "must be redis or rediss"),
        ("redis-sentinel://:s3cret@h/mymaster", "write redis+sentinel://"),
        ("redis+sentinel://:s3cret@h", "names no master"),
        ("redis+sentinel://:s3cret@h/?dialect=clock", "names no master"),
        ("redis+sentinel://h/ids?sentinel-auth=s3cret2", "must be none or same"),
        ("redis+sentinel://h/ids/two", "must be a number"),
        ("redis+sentinel://h:x,h/ids", "redis+sentinel://HOST:PORT,HOST:PORT"),
        ("redis+sentinel://u:s3cret/@h/ids", "behind its host"),
        ("redis+cluster://u:s3c@ret@h", "behind its host"),
        ("redis+cluster://u:s3cret#@h", "behind its host"),
        ("redis+cluster://h?sentinel-auth=same", "needs redis+sentinel://"),
        ("redis://h?sentinel-auth=same", "needs redis+sentinel://"),
        ("redis+cluster://:s3cret@h/1", "has only 0"),
        ("redis+other://:s3cret@h", "redis+cluster or rediss+cluster"),
        ("rediss-cluster://:s3cret@h", "write rediss+cluster://"),
        ("redis-cluster://:s3cret@h", "write redis+cluster://"),
        ("redis://u:s3cret@", "cannot be read"),
        ("redis://u:s3cret@h:port", "cannot be read"),
        ("redis://u:s3cret@h:65536", "cannot be read"),
        ("redis://u:s3cret@[::1", "cannot be read"),
        // A password that is not encoded ends the host's name early: nothing behind is shown.
        ("redis://u:s3cret/word@h/0", "cannot be read"),
        ("redis://u:11/s3cret@h/0", "%2F for /"),
        ("redis://u:11?s3cret@h/0", "%3F for ?"),
        ("redis://u:11#s3cret@h/0", "%23 for #"),
        ("redis://u:a@b/s3cret@h/0", "%40 for @"),
        ("redis://u:s3cret%FF@h", "cannot be used"),
        ("redis://u%FF:s3cret@h", "cannot be used"),
        ("redis://u:s3cret@0.0.0.0", "cannot be used"),
        ("redis://u:s3cret@h/first", "must be a number"),
        ("redis://u:s3cret@h/-1", "must be a number"),
        ("redis://u:s3cret@h/4294967296", "must be a number"),
        ("redis://u:s3cret@h/1/2", "must be a number"),
        ("redis:3", "cannot be read"),
        // The driver's own.
        ("redis://u:s3cret@h?protocol=resp2", "\"protocol\" is unknown"),
        ("rediss://u:s3cret@h#insecure", "has a #"),
        ("rediss://u:s3cret@h/0?prefix=ids#insecure", "has a #"),
        ("redis://u:s3cret@h?password=s3cret", "\"password\" is unknown"),
        ("redis://u:s3cret@h?Prefix=ids", "\"Prefix\" is unknown"),
        ("redis://u:s3cret@h?ssl-ca=/ca.pem", "needs rediss://"),
        ("redis://u:s3cret@h?dialect=leaf", "unalike, clock, cosid or id-generator"),
        ("redis://u:s3cret@h?prefix=", "without braces"),
        ("redis://u:s3cret@h?prefix=a{b", "without braces"),
        ("redis://u:s3cret@h?prefix=a%0Ab", "without braces"),
        ("redis://u:s3cret@h?raise-min=0", "from 1 to 9007199254740991"),
        ("redis://u:s3cret@h?raise-max=9007199254740992", "from 1 to 9007199254740991"),
        ("redis://u:s3cret@h?raise-min=1e6", "a whole number"),
        ("redis://u:s3cret@h?raise-min=10&raise-max=9", "raise-min is 10 and raise-max 9"),
        ("redis://u:s3cret@h?raise-max=99999", "raise-min is 100000 and raise-max 99999"),
        ("redis://u:s3cret@h?connect-timeout-ms=0", "from 1 to 600000"),
        ("redis://u:s3cret@h?request-timeout-ms=600001", "from 1 to 600000"),
        ("redis://u:s3cret@h?raise-timeout-ms=-1", "from 1 to 600000"),
        ("redis://u:s3cret@h?preheat=yes", "true or false"),
        ("redis://u:s3cret@h?durability=none", "checked or assumed"),
        ("redis://u:s3cret@h?shard=1", "needs dialect=clock"),
        ("redis://u:s3cret@h?dialect=clock&shard=4096", "from 0 to 4095"),
        ("redis://u:s3cret@h?dialect=clock&epoch=x", "a whole number"),
        ("redis://u:s3cret@h?dialect=cosid&keys=a:b", "needs dialect=id-generator"),
        ("redis://u:s3cret@h?source-stopped=true", "needs dialect=id-generator"),
        ("redis://u:s3cret@h?dialect=id-generator&keys=a", "TAG:KEY,TAG:KEY"),
        ("redis://u:s3cret@h?dialect=id-generator&source-stopped=1", "true or false"),
    ] {
        let answer = RedisOptions::from_url(url);
        assert!(answer.is_err(), "{url} was taken");
        judge(answer, REFUSED, &[words]);
    }
}

#[tokio::test]
async fn options_that_cannot_be_are_refused_before_anything_is_asked() {
    let nobody = options("redis://127.0.0.1:1/0");
    let (mut none, mut twisted, mut great, mut restless) = (nobody.clone(), nobody.clone(), nobody.clone(), nobody);
    none.raise_min = 0;
    twisted.raise_max = twisted.raise_min - 1;
    great.raise_max = 1 << 53;
    restless.keep_every = Duration::ZERO;
    for (options, words) in [
        (none, "raise-min is 0"),
        (twisted, "raise-max 99999"),
        (great, "raise-max 9007199254740992"),
        (restless, "keep_every is 0"),
    ] {
        judge(RedisStore::connect(options, durable()).await, REFUSED, &[words]);
    }
}

// ---- passwords and users ----

#[tokio::test]
async fn a_password_is_asked_for_and_never_shown() {
    let log = Log::default();
    let _guard = log.listen();
    let redis = Redis::start_with(Persistence::Nothing, &["--requirepass", "s3cret"]).expect("Redis starts");
    let url = redis.url(0, "");
    let right = url.replace("redis://", "redis://:s3cret@");
    let store = open(&right).await;
    assert_eq!(store.allocate("order", 10, 0).await.expect("a grant").start, 1);
    assert!(!format!("{store:?} {store:#?}").contains("s3cret"), "{store:?}");
    open(&url.replace("redis://", "redis://default:s3cret@")).await;
    let given = options(&url.replace("redis://", "redis://:wrong@")).password("s3cret");
    RedisStore::connect(given, durable()).await.expect("the one that is given counts");

    judge(try_open(&url).await, REFUSED, &["denied access", "user and password"]);
    for wrong in ["redis://:s3cret2@", "redis://stranger:s3cret@", "redis://default@", "redis://s3cret@"] {
        judge(try_open(&url.replace("redis://", wrong)).await, REFUSED, &["denied access", "user and password"]);
    }
    let text = log.text();
    assert!(!text.contains("s3cret"), "{text}");
}

#[tokio::test]
async fn a_server_that_repeats_what_it_was_sent_makes_no_password_public() {
    let redis = Redis::start_with(Persistence::Nothing, &["--rename-command", "HELLO", ""]).expect("Redis starts");
    let url = redis.url(0, "").replace("redis://", "redis://ids:s3cret@");
    judge(try_open(&url).await, REFUSED, &["lacks a command", "HELLO", "rename-command"]);
}

#[tokio::test]
async fn users_and_passwords_are_written_with_percents() {
    let redis = Redis::start(Persistence::Nothing).expect("Redis starts");
    redis.cli(&["ACL", "SETUSER", "ids@eu:1", "on", ">a/b?c#d@e%f:g +ü", "~*", "+@all"]).expect("a user");
    redis.cli(&["ACL", "SETUSER", "open", "on", "nopass", "~*", "+@all"]).expect("a user");
    redis.cli(&["ACL", "SETUSER", "default", "off"]).expect("only they may come");
    let with = |user: &str| redis.url(0, "").replace("redis://", &format!("redis://{user}@"));
    open(&with("ids%40eu%3A1:a%2Fb%3Fc%23d%40e%25f%3Ag%20+%C3%BC")).await;
    open(&with("open")).await;
    open(&with("open:whatever")).await;
    judge(try_open(&with("ids%40eu%3A1")).await, REFUSED, &["denied access"]);
}

/// What this crate's documentation tells an operator to allow.
const LEAST: [&str; 9] = ["evalsha", "script|load", "info", "time", "hget", "hmget", "hset", "hincrby", "set"];

/// A server for a user with the least rights, and a file that keeps the ceilings.
struct LeastRights {
    redis: Mutex<Redis>,
    directory: TempDir,
    used: Mutex<BTreeSet<String>>,
}

impl LeastRights {
    fn start() -> Self {
        let allowed = LEAST.map(|command| format!("+{command}"));
        let mut settings = vec!["--user", "ids", "on", ">s3cret", "~unalike:*"];
        settings.extend(allowed.iter().map(String::as_str));
        let redis = Redis::start_with(Persistence::AofEverySecond, &settings).expect("Redis starts");
        let directory = TempDir::new().expect("a directory");
        Self { redis: Mutex::new(redis), directory, used: Mutex::default() }
    }

    fn url(&self) -> String {
        let redis = self.redis.lock().unwrap_or_else(PoisonError::into_inner);
        redis.url(0, "").replace("redis://", "redis://ids:s3cret@")
    }

    /// Another durable store may stand behind it then.
    fn empty(&self) {
        self.redis.lock().unwrap_or_else(PoisonError::into_inner).cli(&["FLUSHALL"]).expect("empty");
    }

    /// Notes what was used, and sees that nothing was denied, not even in the background.
    fn look(&self) {
        let redis = self.redis.lock().unwrap_or_else(PoisonError::into_inner);
        self.used.lock().unwrap_or_else(PoisonError::into_inner).extend(commands(&redis));
        assert_eq!(redis.cli(&["ACL", "LOG"]).expect("a log"), "", "something was denied");
    }
}

#[async_trait]
impl Fixture for LeastRights {
    async fn restart(&self) {
        self.look();
        self.redis.lock().unwrap_or_else(PoisonError::into_inner).restart().expect("Redis starts again");
    }
}

#[async_trait]
impl SegmentFixture for LeastRights {
    async fn segment_client(&self, creation: TagCreation) -> Arc<dyn SegmentStore> {
        let file = SqliteOptions { creation, ..SqliteOptions::new(self.directory.path().join("ids.sqlite")) };
        let durable = Backing::Durable(Arc::new(SqliteStore::connect(file).await.expect("the file opens")));
        Arc::new(RedisStore::connect(options(&self.url()), durable).await.expect("connected"))
    }

    fn can_be_a_stripe(&self) -> bool {
        false
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_least_rights_are_enough_for_all_that_the_contract_asks_and_none_is_too_many() {
    let server = LeastRights::start();
    contract::segments(&server).await;
    // A ceiling that is not raised: the claim is given up.
    server.empty();
    let faulty = Arc::new(FaultyStore::before(MemoryStore::default()));
    faulty.open_tag("order").await.expect("a tag");
    let behind = Backing::Durable(Arc::clone(&faulty) as Arc<dyn SegmentStore>);
    let store = RedisStore::connect(options(&server.url()), behind).await.expect("connected");
    faulty.set_answers_lost(true);
    store.allocate("order", 1, 0).await.expect_err("nothing is granted");
    faulty.set_answers_lost(false);
    store.change_tag("order", StepPolicy::default(), RefillPolicy::default()).await.expect("changed");
    store.raise_tag("order", 1_000).await.expect("raised");
    store.check().await.expect("ready");
    store.retire_tag("order").await.expect("ended");
    server.look();
    let used = server.used.lock().unwrap().clone();
    for command in LEAST {
        assert!(used.contains(command), "{command} is allowed and not used: {used:?}");
    }
    let docs = include_str!("../../../adapters/redis/src/lib.rs");
    let line = LEAST.map(|command| format!(" +{command}")).concat();
    assert!(docs.contains(&format!("ACL SETUSER ids on >PASSWORD ~unalike:*{line}\n")), "the line to paste is another");
}

#[tokio::test]
async fn whatever_a_user_may_not_do_is_refused_and_says_what_to_allow() {
    let redis = Redis::start(Persistence::Nothing).expect("Redis starts");
    redis.cli(&["ACL", "SETUSER", "ids", "on", ">s3cret", "~unalike:*"]).expect("a user");
    let url = redis.url(0, "").replace("redis://", "redis://ids:s3cret@");
    for missing in LEAST {
        let rights = LEAST.map(|command| format!("{}{command}", if command == missing { '-' } else { '+' }));
        let mut rule = vec!["ACL", "SETUSER", "ids", "nocommands"];
        rule.extend(rights.iter().filter(|right| right.starts_with('+')).map(String::as_str));
        redis.cli(&rule).expect("another rule");
        redis.cli(&["SCRIPT", "FLUSH"]).expect("flushed");
        redis.cli(&["FLUSHALL"]).expect("empty");
        let attempt = async {
            let store = try_open(&url).await?;
            store.allocate("order", 10, 0).await?;
            store.allocate("order", 10, 0).await?;
            store.check().await
        };
        judge(attempt.await, REFUSED, &["may not", &format!("+{missing}"), "~unalike:*"]);
    }
    let all = LEAST.map(|command| format!("+{command}"));
    let mut rule = vec!["ACL", "SETUSER", "ids", "nocommands"];
    rule.extend(all.iter().map(String::as_str));
    redis.cli(&rule).expect("another rule");
    judge(try_open(&url.replace("/0?", "/3?")).await, REFUSED, &["may not", "+select"]);
    judge(try_open(&format!("{url}prefix=other")).await, REFUSED, &["may not", "its keys", "prefix"]);
    let store = open(&url).await;
    redis.cli(&["ACL", "SETUSER", "ids", "+select"]).expect("another rule");
    open(&url.replace("/0?", "/3?")).await.allocate("order", 10, 0).await.expect("in another database");
    redis.cli(&["ACL", "DELUSER", "ids"]).expect("gone");
    // Its connection went with the user; the first request may find it cut.
    let denied = match store.allocate("order", 1, 0).await {
        Err(error) if error.is_retryable() => store.allocate("order", 1, 0).await,
        answer => answer,
    };
    judge(denied, REFUSED, &["denied access"]);
}

// ---- TLS ----

fn start_with_tls(authority: &Authority, asks_for_certificates: bool) -> (Redis, u16) {
    // The later setting counts.
    let settings = ["--tls-auth-clients", if asks_for_certificates { "yes" } else { "no" }];
    Redis::start_with_tls(authority, &settings).expect("Redis starts")
}

#[tokio::test]
async fn tls_is_for_servers_that_the_authority_vouches_for() {
    // No provider of cryptography was chosen by this program.
    let authority = Authority::new("localhost");
    let (redis, port) = start_with_tls(&authority, false);
    let ca = format!("ssl-ca={}", authority.file("ca.pem"));
    let store = open(&format!("rediss://localhost:{port}/0?{ca}")).await;
    assert_eq!(store.allocate("order", 10, 0).await.expect("a grant").start, 1);
    store.close().await;

    let words = ["rediss://", "ssl-ca", "certificate"];
    // Nobody vouches, another one does, or for another name.
    judge(try_open(&format!("rediss://localhost:{port}")).await, REFUSED, &words);
    let stranger = Authority::new("localhost");
    let url = format!("rediss://localhost:{port}?ssl-ca={}", stranger.file("ca.pem"));
    judge(try_open(&url).await, REFUSED, &words);
    judge(try_open(&format!("rediss://127.0.0.1:{port}?{ca}")).await, REFUSED, &["the host's name", "certificate"]);
    // A port that speaks no TLS answers with an error, or waits for the end of a command: it cannot be known.
    let plain = format!("rediss://localhost:{}?{ca}&connect-timeout-ms=300", redis.port());
    let error = try_open(&plain).await.expect_err("no TLS there");
    assert!(matches!(error, StoreError::Refused { .. } | StoreError::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("rediss://"), "{error}");
    let error = try_open(&format!("redis://localhost:{port}")).await.expect_err("TLS there");
    assert!(matches!(error, StoreError::Refused { .. } | StoreError::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("rediss://"), "{error}");

    let (_redis, port) = start_with_tls(&authority, true);
    judge(try_open(&format!("rediss://localhost:{port}?{ca}")).await, REFUSED, &["tls-auth-clients no"]);
}

#[tokio::test]
async fn certificates_that_cannot_be_read_are_refused_by_their_file() {
    let directory = TempDir::new().expect("a directory");
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let begin = "-----BEGIN CERTIFICATE-----\n";
    let end = "\n-----END CERTIFICATE-----\n";
    let files = [
        file("empty.pem", ""),
        file("garbage.pem", "garbage"),
        file("half.pem", &format!("{begin}AAAA")),
        file("no-base64.pem", &format!("{begin}*{end}")),
        file("no-certificate.pem", &format!("{begin}AAAA{end}")),
        "/nowhere/ca.pem".to_owned(),
        String::new(),
    ];
    for path in files {
        judge(
            try_open(&format!("rediss://localhost?ssl-ca={path}")).await,
            REFUSED,
            &["ssl-ca", &path, "cannot be read"],
        );
    }
}

// ---- what a server must be ----

/// A child that ends with its value.
struct Process(Child);

impl Process {
    fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("a child").is_some()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_node_of_a_cluster_and_a_sentinel_are_refused_by_name() {
    let bus = process::free_port().expect("a port").to_string();
    let settings = ["--cluster-enabled", "yes", "--cluster-port", &bus];
    let node = Redis::start_with(Persistence::Nothing, &settings).expect("Redis starts");
    judge(try_open(&node.url(0, "")).await, REFUSED, &["Redis Cluster", "redis+cluster://"]);
    judge(try_open(&node.url(3, "")).await, REFUSED, &["Redis Cluster", "redis+cluster://"]);

    let directory = TempDir::new().expect("a directory");
    let (port, file) = (process::free_port().expect("a port"), directory.path().join("sentinel.conf"));
    std::fs::write(&file, format!("port {port}\nbind 127.0.0.1\ndir {}\n", directory.path().display()))
        .expect("written");
    let mut command = Command::new("redis-server");
    command.arg(&file).arg("--sentinel").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _sentinel = Process(command.spawn().expect("a Sentinel starts"));
    until("the Sentinel listens", async || TcpStream::connect(("127.0.0.1", port)).is_ok()).await;
    for database in ["", "/3"] {
        let url = format!("redis://127.0.0.1:{port}{database}");
        judge(try_open(&url).await, REFUSED, &["is a Sentinel", "redis+sentinel://HOST,HOST/MASTER"]);
    }
}

/// The way to a server whose answers have these words in place of those, of the same length.
fn doctored(server: &Redis, words: &'static str, others: &'static str) -> String {
    assert_eq!(words.len(), others.len());
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (url, port) = (server.url(0, ""), listener.local_addr().expect("an address").port());
    let address = url.strip_prefix("redis://").and_then(|rest| rest.split('/').next()).expect("an address").to_owned();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let address = address.clone();
            std::thread::spawn(move || -> std::io::Result<()> {
                let (mut client, mut server) = (client, TcpStream::connect(address)?);
                let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
                std::thread::spawn(move || std::io::copy(&mut from_client, &mut to_server));
                // An answer to INFO comes as one piece.
                let mut buffer = vec![0; 1 << 16];
                loop {
                    let length = server.read(&mut buffer)?;
                    if length == 0 {
                        return Ok(());
                    }
                    let answer = buffer.get(..length).map(String::from_utf8_lossy).unwrap().replace(words, others);
                    client.write_all(answer.as_bytes())?;
                }
            });
        }
    });
    format!("redis://127.0.0.1:{port}")
}

#[tokio::test]
async fn a_server_that_does_not_say_that_it_stands_alone_is_refused() {
    let redis = Redis::start(Persistence::Nothing).expect("Redis starts");
    open_and_allocate(&doctored(&redis, "redis_mode:", "redis_mode:")).await.expect("a grant");
    // As Valkey says it, after a word that nobody knows, so that the length stays.
    let valkey = doctored(&redis, "redis_mode:standalone\r\n", "server_mode:standalone\n");
    open_and_allocate(&valkey).await.expect("a grant");
    for (words, others) in [
        ("redis_mode:", "redis_moda:"),
        ("redis_mode:standalone", "redis_mode:standaloni"),
        ("redis_mode:standalone", "redis_mode:          "),
    ] {
        let error = try_open(&doctored(&redis, words, others)).await;
        judge(error, REFUSED, &[if others.starts_with("redis_moda") { "names no redis_mode" } else { "in the mode" }]);
    }
    let nameless = try_open(&doctored(&redis, "redis_version:", "redis_versiou:")).await;
    judge(nameless, REFUSED, &["of unknown version"]);
}

#[tokio::test]
async fn a_server_that_lacks_a_command_is_refused() {
    let first = "looking for a store";
    for (command, words) in [("INFO", "what it is"), ("EVALSHA", first), ("SCRIPT", first), ("HMGET", "granting")] {
        let redis = Redis::start_with(Persistence::Nothing, &["--rename-command", command, ""]).expect("Redis starts");
        let attempt = async { open_and_allocate(&redis.url(0, "")).await };
        judge(attempt.await, REFUSED, &[words, "lacks a command", "rename-command"]);
    }
    let redis = Redis::start_with(Persistence::Nothing, &["--databases", "2"]).expect("Redis starts");
    judge(try_open(&redis.url(2, "")).await, REFUSED, &["choosing the database", "no such database"]);
    let store = open(&redis.url(1, "")).await;
    store.allocate("order", 1, 0).await.expect("a grant");
    assert_eq!(redis.cli(&["DBSIZE"]).expect("a count"), "0");
    assert_eq!(redis.cli(&["-n", "1", "DBSIZE"]).expect("a count"), "2", "the tag, and the durable store");
}

async fn open_and_allocate(url: &str) -> Result<Segment, StoreError> {
    try_open(url).await?.allocate("order", 10, 0).await
}

#[tokio::test]
async fn an_address_of_the_sixth_version_of_the_protocol_will_do() {
    let redis = Redis::start_with(Persistence::Nothing, &["--bind", "127.0.0.1", "::1"]).expect("Redis starts");
    let url = redis.url(0, "").replace("127.0.0.1", "[::1]");
    assert_eq!(open_and_allocate(&url).await.expect("a grant").start, 1);
}

#[tokio::test]
async fn a_server_that_stands_alone_must_be_durable() {
    let durable = "without a durable store";
    for (persistence, settings, words) in [
        (Persistence::Nothing, &[][..], "appendonly \"no\""),
        (Persistence::Rdb, &[], "appendonly \"no\""),
        (Persistence::AofEverySecond, &[], "appendfsync \"everysec\""),
        (Persistence::AofAlways, &["--maxmemory-policy", "allkeys-lru"], "maxmemory-policy \"allkeys-lru\""),
        (Persistence::AofAlways, &["--no-appendfsync-on-rewrite", "yes"], "no-appendfsync-on-rewrite \"yes\""),
    ] {
        let redis = Redis::start_with(persistence, settings).expect("Redis starts");
        let checked = options(&redis.url(0, ""));
        judge(RedisStore::initialise(&checked).await, REFUSED, &[words, durable]);
        judge(RedisStore::connect(checked, Backing::RedisAlone).await, REFUSED, &[words, durable]);
        open(&redis.url(0, "")).await;
        accepted(RedisStore::initialise(&options(&redis.url(0, "durability=assumed"))).await);
    }
    for settings in [&[][..], &["--maxmemory-policy", "volatile-ttl"]] {
        let redis = Redis::start_with(Persistence::AofAlways, settings).expect("Redis starts");
        accepted(RedisStore::initialise(&options(&redis.url(0, ""))).await);
    }

    // Whether it is cannot be seen.
    let redis = Redis::start(Persistence::AofAlways).expect("Redis starts");
    redis.cli(&["ACL", "SETUSER", "ids", "on", ">s3cret", "~*", "+@all", "-config"]).expect("a user");
    let url = |parameters: &str| redis.url(0, parameters).replace("redis://", "redis://ids:s3cret@");
    judge(RedisStore::initialise(&options(&url(""))).await, REFUSED, &["+config|get", "durability=assumed"]);
    accepted(RedisStore::initialise(&options(&url("durability=assumed"))).await);
    redis.cli(&["ACL", "SETUSER", "ids", "+config|get"]).expect("another rule");
    accepted(RedisStore::initialise(&options(&url(""))).await);
    let redis = Redis::start_with(Persistence::AofAlways, &["--rename-command", "CONFIG", ""]).expect("Redis starts");
    judge(
        RedisStore::initialise(&options(&redis.url(0, ""))).await,
        REFUSED,
        &["durability=assumed", "rename-command"],
    );
}

/// The server was found to be durable, or was not asked; what comes then is not for here.
fn accepted<T: Debug>(answer: Result<T, StoreError>) {
    if let Err(error) = answer {
        let text = error.to_string();
        assert!(!text.contains("appendonly") && !text.contains("durability="), "{error:?}");
    }
}

// ---- connecting ----

/// What a server answers to the first command.
const HELLO: &str = "%1\r\n+server\r\n+redis\r\n";

/// Something that listens and answers each request with these words, one after the other, and then no more.
fn listen(answers: &'static [&'static str]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            std::thread::spawn(move || -> std::io::Result<()> {
                let (mut client, mut buffer) = (client, [0; 4_096]);
                for answer in answers {
                    if client.read(&mut buffer)? == 0 {
                        return Ok(());
                    }
                    client.write_all(answer.as_bytes())?;
                }
                // Until the other side has enough.
                while client.read(&mut buffer)? > 0 {}
                Ok(())
            });
        }
    });
    port
}

#[tokio::test]
async fn where_no_redis_answers_it_is_said_and_nobody_waits_for_ever() {
    let patient = "connect-timeout-ms=600000&request-timeout-ms=600000";
    let port = process::free_port().expect("a port");
    let url = format!("redis://127.0.0.1:{port}/0?{patient}");
    judge(try_open(&url).await, UNAVAILABLE, &["cannot be reached", "nothing listens there"]);
    judge(try_open("redis://nowhere.invalid").await, UNAVAILABLE, &["nowhere.invalid:6379/0"]);

    // Nothing, or not all that is asked for at first.
    for (scheme, answers) in [("redis", &[][..]), ("rediss", &[]), ("redis", &[HELLO])] {
        let port = listen(answers);
        let url = format!("{scheme}://127.0.0.1:{port}?connect-timeout-ms=100&request-timeout-ms=600000");
        judge(try_open(&url).await, UNAVAILABLE, &["no connection", "within 100 ms", "is it a Redis server"]);
    }
    // Something else.
    let url = |port: u16| format!("redis://127.0.0.1:{port}?{patient}");
    let http = listen(&["HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"]);
    judge(try_open(&url(http)).await, REFUSED, &["is not a Redis server", "check host and port", "rediss://"]);
    let old = listen(&["-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n"]);
    judge(try_open(&url(old)).await, REFUSED, &["Redis 7 or newer"]);
    let guarded = listen(&["-DENIED Redis is running in protected mode because protected mode is enabled\r\n"]);
    judge(try_open(&url(guarded)).await, REFUSED, &["protected mode"]);
    let version = listen(&[HELLO, "$45\r\nredis_version:6.2.14\r\nredis_mode:standalone\r\n\r\n"]);
    judge(try_open(&url(version)).await, REFUSED, &["Redis 6.2.14", "7 or newer"]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    judge(try_open(&url(port)).await, UNAVAILABLE, &["hung up", "rediss://"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_too_many_clients_is_unavailable() {
    let redis = Redis::start(Persistence::Nothing).expect("Redis starts");
    let client = redis::Client::open(redis.url(0, "")).expect("a client");
    let mut operator = client.get_multiplexed_async_connection().await.expect("a connection");
    let mut limit = async |clients: u32| {
        redis::cmd("CONFIG").arg("SET").arg("maxclients").arg(clients).exec_async(&mut operator).await.expect("set");
    };
    limit(1).await;
    judge(try_open(&redis.url(0, "")).await, UNAVAILABLE, &["too many clients", "maxclients"]);
    limit(100).await;
    open(&redis.url(0, "")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_wait_for_a_connection_do_not_wait_for_each_other() {
    let redis = Redis::start(Persistence::Nothing).expect("Redis starts");
    let proxy = Proxy::start(redis.port()).expect("a proxy");
    let url = proxy.url(&redis.url(0, "connect-timeout-ms=500&request-timeout-ms=500"));
    let store = open(&url).await;
    store.allocate("order", 10, 0).await.expect("a grant");
    // Another address, where nobody says anything.
    proxy.lead_to(listen(&[]));
    let mut requests = JoinSet::new();
    for _ in 0..1_000 {
        let store = store.clone();
        requests.spawn(async move { store.allocate("order", 1, 0).await });
    }
    // One after the other they would take minutes.
    for answer in within(requests.join_all()).await {
        assert!(answer.expect_err("nobody answers").is_retryable());
    }
    proxy.lead_to(redis.port());
    within(allocate_at_last(&store, "order")).await;
}

#[tokio::test]
async fn a_connection_is_opened_though_nobody_waits_for_its_end() {
    let redis = Redis::start(Persistence::Nothing).expect("Redis starts");
    let proxy = Proxy::start(redis.port()).expect("a proxy");
    let store = open(&proxy.url(&redis.url(0, "connect-timeout-ms=60000&request-timeout-ms=60000"))).await;
    store.allocate("order", 10, 0).await.expect("a grant");
    let before = clients(&redis);
    redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]).expect("killed");
    until("the connection is gone", async || clients(&redis).is_empty()).await;
    proxy.stall(true);
    // Requests with little patience; the first one may find the connection cut.
    for _ in 0..3 {
        let request = timeout(Duration::from_millis(20), store.allocate("order", 10, 0)).await;
        assert!(request.is_err() || request.is_ok_and(|answer| answer.is_err()), "nobody answers");
    }
    proxy.stall(false);
    until("a connection was opened", async || clients(&redis).len() == 1).await;
    assert!(clients(&redis).is_disjoint(&before));
    store.allocate("order", 10, 0).await.expect("a grant");
    assert_eq!(clients(&redis).len(), 1);
}

// ---- a connection's life ----

#[tokio::test]
async fn an_answer_that_is_too_late_reaches_nobody() {
    let redis = Redis::start(Persistence::Nothing).expect("Redis starts");
    let proxy = Proxy::start(redis.port()).expect("a proxy");
    let store = open(&proxy.url(&redis.url(0, "request-timeout-ms=2000&connect-timeout-ms=60000"))).await;
    let tags = ["order", "mail"];
    let mut ends = Vec::new();
    for tag in tags {
        ends.push(allocate_at_last(&store, tag).await.end);
    }
    let (before, left) = (clients(&redis), tags.map(|tag| hash(&redis, tag)));
    proxy.stall(true);
    let (order, mail) = tokio::join!(store.allocate("order", 10, 0), store.allocate("mail", 10, 0));
    for answer in [order, mail] {
        judge(answer, OUTCOME_UNKNOWN, &["granting numbers", "the answer did not come"]);
    }
    proxy.stall(false);
    until("the server got both", async || tags.iter().zip(&left).all(|(tag, left)| hash(&redis, tag) != *left)).await;
    for (tag, end) in tags.into_iter().zip(ends) {
        let next = allocate_at_last(&store, tag).await;
        assert_eq!(next.start, end + 10, "what was granted to nobody is burnt");
    }
    assert!(clients(&redis).is_disjoint(&before), "the connection was given up");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_was_cut_costs_one_request_at_most() {
    const ROUNDS: usize = 20;
    let mut redis = Redis::start(Persistence::AofEverySecond).expect("Redis starts");
    let store = open(&redis.url(0, "connect-timeout-ms=60000&request-timeout-ms=60000")).await;
    let mut end = store.allocate("order", 1, 0).await.expect("a grant").end;
    let mut failed = 0;
    for round in 0..ROUNDS {
        let before = clients(&redis);
        if round % 10 == 9 {
            redis.restart().expect("Redis starts again");
        } else {
            redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]).expect("killed");
            until("the connection is gone", async || clients(&redis).is_disjoint(&before)).await;
        }
        let answer = store.allocate("order", 1, 0).await;
        if answer.is_err() {
            failed += 1;
            judge(answer, OUTCOME_UNKNOWN, &["the answer did not come"]);
        }
        for _ in 0..3 {
            let next = store.allocate("order", 1, 0).await.expect("on a new connection");
            assert!(next.start >= end);
            end = next.end;
        }
    }
    println!("{failed} of {ROUNDS} cuts were noticed by a request");
    assert!(
        failed < ROUNDS / 2,
        "the driver says when a connection is lost: {failed} of {ROUNDS} requests found it out"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn many_requests_at_the_moment_of_a_cut_all_end() {
    let redis = Redis::start(Persistence::Nothing).expect("Redis starts");
    let proxy = Proxy::start(redis.port()).expect("a proxy");
    let url = proxy.url(&redis.url(0, "connect-timeout-ms=60000&request-timeout-ms=60000&raise-timeout-ms=60000"));
    let store = open(&url).await;
    store.allocate("order", 1, 0).await.expect("a grant");
    let mut requests = JoinSet::new();
    for _ in 0..300 {
        let store = store.clone();
        requests.spawn(async move {
            let mut granted = Vec::new();
            for _ in 0..10 {
                match store.allocate("order", 1, 0).await {
                    Ok(segment) => granted.push(segment.start),
                    Err(error) => assert!(error.is_retryable(), "{error:?}"),
                }
            }
            granted
        });
    }
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        proxy.cut();
    }
    let mut numbers = BTreeSet::new();
    for number in within(requests.join_all()).await.into_iter().flatten() {
        assert!(numbers.insert(number), "{number} was granted twice");
    }
    within(allocate_at_last(&store, "order")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_requests_share_a_connection_and_each_gets_its_own_answer() {
    const TAGS: u64 = 20;
    let redis = Redis::start(Persistence::Nothing).expect("Redis starts");
    let store = open(&redis.url(0, "request-timeout-ms=60000&raise-timeout-ms=60000")).await;
    let start = |tag: u64| (tag + 1) * 1_000_000_000;
    for tag in 0..TAGS {
        let made = TagOptions { start: start(tag), mode: Mode::Ordered, ..TagOptions::default() };
        store.create_tag(&format!("tag{tag}"), &made).await.expect("created");
    }
    let mut requests = JoinSet::new();
    for task in 0..1_000 {
        let store = store.clone();
        requests.spawn(async move {
            let (tag, mut granted) = (task % TAGS, Vec::new());
            while granted.len() < 5 {
                match store.allocate(&format!("tag{tag}"), 1, 0).await {
                    Ok(segment) => granted.push((tag, segment.start)),
                    // Between being loaded and being run.
                    Err(error) => judge::<()>(Err(error), UNAVAILABLE, &["SCRIPT FLUSH"]),
                }
                if task % 10 == 9 && granted.len() == 2 {
                    // Some go away in the middle.
                    let name = format!("tag{tag}");
                    let _ = timeout(Duration::from_millis(task % 7), store.allocate(&name, 1, 0)).await;
                }
            }
            granted
        });
    }
    for _ in 0..5 {
        redis.cli(&["SCRIPT", "FLUSH"]).expect("flushed");
    }
    let mut numbers = BTreeSet::new();
    for (tag, number) in within(requests.join_all()).await.into_iter().flatten() {
        assert!((start(tag)..start(tag + 1)).contains(&number), "{number} belongs to another tag");
        assert!(numbers.insert(number), "{number} was granted twice");
    }
    assert_eq!(numbers.len(), 5_000);
    assert_eq!(clients(&redis).len(), 1, "one connection was enough");
}

// ---- servers that take no writes ----

/// A server that has a tag, and a store that uses it.
struct Bed {
    redis: Redis,
    store: RedisStore,
    granted: Segment,
    hash: String,
}

impl Bed {
    async fn start(settings: &[&str]) -> Self {
        let redis = Redis::start_with(Persistence::Nothing, settings).expect("Redis starts");
        let store = open(&redis.url(0, "request-timeout-ms=60000&connect-timeout-ms=60000")).await;
        store.allocate("order", 10, 0).await.expect("a grant");
        let granted = store.allocate("order", 10, 0).await.expect("a grant");
        let hash = hash(&redis, "order");
        Self { redis, store, granted, hash }
    }

    /// A command that takes its time.
    fn slow(&self, arguments: &[&str]) -> Process {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &self.redis.port().to_string()]).args(arguments);
        Process(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("a client starts"))
    }

    fn cli(&self, arguments: &[&str]) {
        self.redis.cli(arguments).expect("done");
    }

    /// Grants until something comes in between.
    async fn allocate_until_failure(&mut self) -> StoreError {
        loop {
            match within(self.store.allocate("order", 10, 0)).await {
                Ok(granted) => self.granted = granted,
                Err(error) => return error,
            }
        }
    }

    /// Nothing is granted now.
    async fn judge(&self, words: &str) {
        for _ in 0..2 {
            judge(
                within(self.store.allocate("order", 10, 0)).await,
                UNAVAILABLE,
                &["granting numbers of \"order\"", words],
            );
            judge(within(self.store.check()).await, UNAVAILABLE, &[words]);
        }
    }

    /// Nothing was granted meanwhile, and it goes on.
    async fn goes_on(&self) {
        let next = within(self.store.allocate("order", 10, 0)).await.expect("it goes on");
        assert_eq!(next.start, self.granted.end);
        self.store.check().await.expect("ready");
    }
}

#[tokio::test]
async fn a_server_whose_memory_is_full_grants_nothing() {
    let bed = Bed::start(&[]).await;
    bed.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    bed.judge("memory is full").await;
    judge(bed.store.allocate("new", 1, 0).await, UNAVAILABLE, &["memory is full"]);
    open(&bed.redis.url(0, "")).await;
    bed.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(hash(&bed.redis, "order"), bed.hash);
    bed.goes_on().await;
}

#[tokio::test]
async fn a_server_that_cannot_save_grants_nothing() {
    let bed = Bed::start(&[]).await;
    bed.cli(&["CONFIG", "SET", "save", "3600 1000000"]);
    let file = bed.redis.directory().join("dump.rdb");
    let save_ends = async |status: &str| {
        bed.cli(&["BGSAVE"]);
        let status = format!("rdb_last_bgsave_status:{status}");
        let saved = || bed.redis.cli(&["INFO", "persistence"]).expect("figures");
        until(&status, async || saved().contains(&status) && saved().contains("rdb_bgsave_in_progress:0")).await;
    };
    std::fs::create_dir(&file).expect("in the way of the file");
    save_ends("err").await;
    bed.judge("cannot save its data").await;
    assert_eq!(hash(&bed.redis, "order"), bed.hash);
    std::fs::remove_dir(&file).expect("out of the way");
    save_ends("ok").await;
    bed.goes_on().await;
}

#[tokio::test]
async fn a_server_with_too_few_replicas_grants_nothing() {
    let bed = Bed::start(&[]).await;
    bed.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    bed.judge("too few replicas").await;
    assert_eq!(hash(&bed.redis, "order"), bed.hash);
    bed.cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    bed.goes_on().await;
}

#[tokio::test]
async fn a_server_that_is_busy_with_a_script_grants_nothing() {
    let mut bed = Bed::start(&["--busy-reply-threshold", "20"]).await;
    let mut script = bed.slow(&["EVAL", "while true do end", "0"]);
    let error = bed.allocate_until_failure().await;
    judge::<()>(Err(error), UNAVAILABLE, &["busy with a slow script"]);
    bed.judge("busy with a slow script").await;
    judge(try_open(&bed.redis.url(0, "")).await, UNAVAILABLE, &["busy with a slow script"]);
    bed.cli(&["SCRIPT", "KILL"]);
    until("the script was killed", async || script.has_ended()).await;
    bed.goes_on().await;
}

#[tokio::test]
async fn a_server_that_is_loading_grants_nothing() {
    let settings =
        ["--enable-debug-command", "yes", "--rdbcompression", "no", "--loading-process-events-interval-bytes", "1024"];
    let mut bed = Bed::start(&settings).await;
    bed.cli(&["DEBUG", "POPULATE", "1000", "filler", "3000"]);
    // So many microseconds per key.
    bed.cli(&["CONFIG", "SET", "key-load-delay", "20000"]);
    let mut reload = bed.slow(&["DEBUG", "RELOAD"]);
    let error = bed.allocate_until_failure().await;
    judge::<()>(Err(error), UNAVAILABLE, &["still loading"]);
    bed.judge("still loading").await;
    judge(open_and_allocate(&bed.redis.url(0, "")).await, UNAVAILABLE, &["still loading"]);
    bed.cli(&["CONFIG", "SET", "key-load-delay", "0"]);
    until("all is loaded", async || reload.has_ended()).await;
    bed.goes_on().await;
}

#[tokio::test]
async fn a_replica_grants_nothing_and_its_connection_is_given_up() {
    let bed = Bed::start(&[]).await;
    let other = Redis::start(Persistence::Nothing).expect("Redis starts");
    // A replica of a server that is empty, and then gone.
    bed.cli(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    bed.redis.wait_until(|info| info.contains("master_link_status:up")).expect("a replica");
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        judge(bed.store.check().await, UNAVAILABLE, &["only reads", "failing over"]);
        judge(bed.store.allocate("order", 10, 0).await, UNAVAILABLE, &["only reads", "failing over"]);
        let open = bed.store.ceiling("order").await.expect("reading is allowed");
        assert_eq!(open, None, "it has the data of the other one");
        let now = clients(&bed.redis);
        assert!(now.is_disjoint(&seen), "each request that was refused gave its connection up");
        seen.extend(now);
    }
    bed.cli(&["CONFIG", "SET", "replica-serve-stale-data", "no"]);
    drop(other);
    bed.redis.wait_until(|info| info.contains("master_link_status:down")).expect("alone");
    judge(bed.store.allocate("order", 10, 0).await, UNAVAILABLE, &["replica that has lost its master"]);
    bed.cli(&["REPLICAOF", "NO", "ONE"]);
    let next = bed.store.allocate("order", 10, 0).await.expect("it was promoted");
    assert!(next.start >= bed.granted.end);
}

// ---- the end ----

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[tokio::test]
async fn a_store_that_was_closed_stays_closed_and_leaves_nothing_behind() {
    let redis = Redis::start(Persistence::Nothing).expect("Redis starts");
    let proxy = Proxy::start(redis.port()).expect("a proxy");
    let before = tasks();
    let store = open(&proxy.url(&redis.url(0, "connect-timeout-ms=60000&request-timeout-ms=60000"))).await;
    let clone = store.clone();
    store.allocate("order", 10, 0).await.expect("a grant");
    assert!(tasks() > before);

    // One that is on its way is waited for.
    proxy.stall(true);
    let late = tokio::spawn(async move { clone.allocate("order", 10, 0).await });
    tokio::task::yield_now().await;
    let closing = tokio::spawn({
        let store = store.clone();
        async move { store.close().await }
    });
    tokio::task::yield_now().await;
    for _ in 0..2 {
        judge(store.allocate("order", 10, 0).await, UNAVAILABLE, &["the store was closed"]);
    }
    assert!(!closing.is_finished());
    proxy.stall(false);
    assert_eq!(within(late).await.expect("an end").expect("a grant").start, 11);
    within(closing).await.expect("closed");
    assert_eq!(tasks(), before, "all that was open is closed");

    judge(store.allocate("new", 10, 0).await, UNAVAILABLE, &["the store was closed"]);
    judge(store.check().await, UNAVAILABLE, &["the store was closed"]);
    judge(store.ceiling("order").await, UNAVAILABLE, &["the store was closed"]);
    within(store.close()).await;
    until("the server sees it", async || clients(&redis).is_empty()).await;
    drop(store);
    assert_eq!(tasks(), before);
}

#[tokio::test]
async fn a_store_is_not_opened_again_by_those_who_wait_for_a_connection() {
    let redis = Redis::start(Persistence::Nothing).expect("Redis starts");
    let proxy = Proxy::start(redis.port()).expect("a proxy");
    let store = open(&proxy.url(&redis.url(0, "connect-timeout-ms=60000"))).await;
    redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]).expect("killed");
    proxy.stall(true);
    let waiting = tokio::spawn({
        let store = store.clone();
        // The first one may find the connection cut.
        async move { (store.check().await, store.check().await) }
    });
    tokio::task::yield_now().await;
    within(store.close()).await;
    proxy.stall(false);
    let (first, second) = within(waiting).await.expect("an end");
    assert!(first.expect_err("it was cut or closed").is_retryable());
    judge(second, UNAVAILABLE, &["the store was closed"]);
    until("nothing is open", async || clients(&redis).is_empty()).await;
}

#[tokio::test]
async fn the_last_clone_takes_all_tasks_with_it() {
    let redis = Redis::start(Persistence::Nothing).expect("Redis starts");
    let before = tasks();
    let store = open(&redis.url(0, "")).await;
    store.allocate("order", 10, 0).await.expect("a grant");
    let clone = store.clone();
    drop(store);
    clone.allocate("order", 10, 0).await.expect("a grant");
    drop(clone);
    until("no task is left", async || tasks() == before).await;
    until("the server sees it", async || clients(&redis).is_empty()).await;
}
