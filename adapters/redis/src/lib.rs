//! Segments in Redis: as fast as `HINCRBY`, strictly increasing, and safe from whatever Redis loses.
//!
//! A durable store (any [`SegmentStore`]) grants Redis a large interval of numbers, whose end is the tag's *ceiling*,
//! and Redis hands out its parts. The ceiling is durable before Redis learns of it. The numbers belong to one
//! *incarnation* of Redis, its `run_id` and `master_replid`, and in a Cluster the node's epoch: a Redis that was
//! restarted, restored or failed over hands out nothing until it has got another interval, so losing data costs a gap
//! and never a duplicate. That holds for a Redis that lost all keys, came back with an old file, or was replaced by a
//! replica that was behind.
//!
//! | [`Dialect`] | keys | what it is |
//! | --- | --- | --- |
//! | `Unalike` | hashes `unalike:{TAG}` | unalike's own, the default |
//! | `Clock` | hashes `unalike:clock:{TAG}:SHARD` | snowflakes by Redis' clock |
//! | `Cosid` | strings `cosid:{NAMESPACE.NAME}.adder` | CosId's, in place |
//! | `IdGenerator` | hashes with `cur` and `max` | counters with a ceiling, to import from |
//!
//! [`RedisLeases`] leases worker ids, in hashes `unalike:leases:{NAMESPACE}`; in the same way a durable store grants
//! the time that they may reach to.
//!
//! What is not covered: keys that somebody copies (`COPY`, `RESTORE`, `SWAPDB`) within one running server; and without
//! a durable store ([`Backing::RedisAlone`]) a fail-over, since replication is asynchronous.
//!
//! **Several servers.** `redis+sentinel://` leads to the master that Sentinels name, and `redis+cluster://` to the
//! nodes of a Redis Cluster: each tag, shard and lease namespace is one hash there, on whichever node has its slot. A
//! server that takes over, and a node that a hash is moved to, is another incarnation, whatever it has of the data.
//! The crate's page has the argument.
//!
//! Tested on Redis 7.0 and Valkey 9.1.
//!
//! A user of Redis needs no more than this for the dialect `Unalike`:
//!
//! ```text
//! ACL SETUSER ids on >PASSWORD ~unalike:* +evalsha +script|load +info +time +hget +hmget +hset +hincrby +set
//! ```
//!
//! for [`RedisLeases`], whatever store backs them:
//!
//! ```text
//! ACL SETUSER ids on >PASSWORD ~unalike:* +evalsha +script|load +info +time +hget +hmget +hset +hgetall +hkeys +hdel +scan
//! ```
//!
//! and `+select` for another database than 0, `+config|get +hlen +hscan` without a durable store, `+asking
//! +cluster|info +cluster|slots` in a Cluster, and the URL's prefix in the place of `unalike`. Without a durable store,
//! whoever initialises it needs `+hsetnx` too, and whoever restores it the rights for leases. Sentinels are asked for
//! `+sentinel|get-master-addr-by-name`. Nothing in Redis is secret, but anybody who may write there can make numbers
//! repeat: do not let anybody else write these keys.

mod alone;
mod ask_all;
mod clock;
mod cluster;
mod cosid;
mod counter;
mod error;
mod growth;
mod id_generator;
mod leases;
mod node;
mod place;
mod raising;
mod restored;
mod segments;
mod sentinel;
mod server;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::{ConnectionInfo, IntoConnectionInfo};
use unalike_storage::{
    HostsUrl, JoinedStripe, LeaseLimits, SegmentStore, StoreError, StoreIdentity, Stripe, TagCreation, percent_decode,
};
use url::Url;

use crate::alone::Alone;
use crate::growth::NUMBERS_MAX;
pub use crate::leases::RedisLeases;
use crate::place::Place;
use crate::raising::Raising;
pub use crate::restored::Restored;
use crate::segments::Segments;
use crate::server::{Server, Topology};

/// What backs Redis.
#[derive(Clone)]
pub enum Backing {
    /// A durable store grants what Redis hands out.
    Durable(Arc<dyn SegmentStore>),
    /// Nothing: numbers are as safe as Redis is. It must write each change to its disk before it answers
    /// (`appendfsync always`), which is checked again with each grant. A fail-over to a replica may repeat numbers,
    /// since replication is asynchronous. So may a file that is restored from a backup, until an operator
    /// [says so](RedisStore::restored), and `appendonly` that is switched on while the server runs, until its first
    /// rewrite has ended. Losing all data is noticed: unalike's own keys have to be
    /// [initialised](RedisStore::initialise) by command. So is another store under the same address.
    RedisAlone,
}

/// Where Redis is, and how it is used.
///
/// ```
/// use unalike_redis::{Dialect, RedisOptions};
/// let options = RedisOptions::from_url("rediss://ids@cache.example/3?ssl-ca=/etc/ids/ca.pem")?.password("secret");
/// assert_eq!(options.dialect, Dialect::Unalike);
/// assert_eq!(options.address(), "cache.example:6379/3");
/// # Ok::<(), unalike_storage::StoreError>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct RedisOptions {
    /// Of a URL with several hosts, those of the first one.
    connection: ConnectionInfo,
    topology: Topology,
    address: String,
    ssl_ca: Option<PathBuf>,
    /// Whose keys are used.
    pub dialect: Dialect,
    /// What unalike's own keys begin with: `unalike` by default. Programs with another one see other tags.
    pub prefix: String,
    /// Whether tags are created on first use, and how many there may be, without a durable store; with one, its own
    /// settings count.
    pub creation: TagCreation,
    /// What leases are allowed; without a durable store, `max_skew_ms` is also how far apart the clocks of two servers
    /// that follow each other may be, and has to be the same in all programs.
    pub limits: LeaseLimits,
    /// How long opening a connection may take. 1 s by default.
    pub connect_timeout: Duration,
    /// How long a command may take; after that its connection is given up and its grant is burnt. 1 s by default.
    pub request_timeout: Duration,
    /// How long a request waits while the ceiling is raised, before it fails. 1 s by default.
    pub raise_timeout: Duration,
    /// The least that the ceiling is raised by: 1 or more, 100,000 by default. Also what a lost Redis costs at least.
    pub raise_min: u64,
    /// The most that the ceiling is raised by: up to 2^53 - 1, 2^40 by default.
    pub raise_max: u64,
    /// How often the use of tags is noted and looked at. 10 s by default.
    pub keep_every: Duration,
    /// Give Redis its numbers of known tags at once instead of when they are first asked for. `true` by default.
    pub preheat: bool,
    /// Without a durable store: do not refuse a server that may lose what it said, or one that a replica may take over
    /// from. The promise that no id repeats is then the operator's.
    pub assume_durable: bool,
}

/// Whose keys are used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// unalike's own.
    #[default]
    Unalike,
    /// Snowflakes by Redis' clock: `(ms - epoch) << 22 | shard << 10 | sequence`.
    Clock {
        /// The shard of a tag without a sub-key: 0 to 4095.
        shard: u16,
        /// What timestamps count from, in Unix milliseconds.
        epoch_ms: u64,
        /// How far ahead of the clock the durable store lets Redis stamp, in milliseconds: what a lost Redis makes
        /// callers wait at most, and how long ids go on without the durable store.
        horizon_ms: u64,
    },
    /// CosId's counters, without a durable store: CosId's own clients know no ceiling. First use creates none of them.
    Cosid,
    /// Hashes with `cur` and `max`, to import from: nothing is granted here.
    IdGenerator {
        /// The key of each tag; others are unknown.
        keys: BTreeMap<String, String>,
        /// Nothing else uses the keys any more. This must be true: the job that raises `max` cannot be stopped from
        /// here.
        source_stopped: bool,
    },
}

impl Dialect {
    /// What it numbers apart from the others, in words that stay as they are.
    fn part(&self) -> String {
        match self {
            Self::Unalike => "sequences".to_owned(),
            Self::Clock { shard, epoch_ms, .. } => format!("clock {shard} {epoch_ms}"),
            Self::Cosid => "cosid".to_owned(),
            Self::IdGenerator { .. } => "id-generator".to_owned(),
        }
    }
}

/// Behind it 41 bits of milliseconds would not be exact in Lua.
const EPOCH_MAX_MS: u64 = 1 << 52;

impl RedisOptions {
    /// Those of the URL.
    const PARAMETERS: &str = "dialect, ssl-ca, prefix, raise-min, raise-max, connect-timeout-ms, request-timeout-ms, \
        raise-timeout-ms, preheat, durability, password-file, password-env, behind redis+sentinel:// sentinel-auth, and \
        behind some dialects shard, epoch, horizon-ms, keys and source-stopped";

    /// Reads a URL of one of these forms; `rediss` is TLS, to Sentinels too:
    ///
    /// ```text
    /// redis[s]://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE][?PARAMETERS]
    /// redis[s]+sentinel://[USER[:PASSWORD]@]SENTINEL[:PORT],SENTINEL[:PORT]../MASTER[/DATABASE][?PARAMETERS]
    /// redis[s]+cluster://[USER[:PASSWORD]@]NODE[:PORT],NODE[:PORT]..[?PARAMETERS]
    /// ```
    ///
    /// User and password are those of the Redis servers. A few nodes of a Cluster are enough to find the others.
    ///
    /// | parameter | meaning | default |
    /// | --- | --- | --- |
    /// | `dialect` | [`Dialect`] by name | `unalike` |
    /// | `ssl-ca` | after `rediss://`: a file with the certificates of the authorities to trust | the system's |
    /// | `prefix` | [`prefix`](Self::prefix) | `unalike` |
    /// | `raise-min`, `raise-max` | [`raise_min`](Self::raise_min), [`raise_max`](Self::raise_max) | 100000, 2^40 |
    /// | `connect-timeout-ms`, `request-timeout-ms`, `raise-timeout-ms` | milliseconds, 1 to 600000 | 1000 |
    /// | `preheat` | `true` or `false`: [`preheat`](Self::preheat) | `true` |
    /// | `durability` | `checked`, or `assumed`: [`assume_durable`](Self::assume_durable) | `checked` |
    /// | `sentinel-auth` | whether Sentinels get user and password too: `none`, or `same` | `none` |
    /// | `shard` | 0 to 4095, after `dialect=clock` | 0 |
    /// | `epoch` | Unix milliseconds, after `dialect=clock` | 1704067200000, the year 2024 |
    /// | `horizon-ms` | milliseconds, 100 to 60000, after `dialect=clock` | 6000 |
    /// | `keys` | `TAG:KEY,TAG:KEY`, after `dialect=id-generator` | none |
    /// | `source-stopped` | `true`, after `dialect=id-generator`, where it is needed | |
    ///
    /// In the user's name and the password, `%`, `/`, `?`, `#` and `@` are written `%25`, `%2F`, `%3F`, `%23` and
    /// `%40`. A user without a password is one whom Redis asks for none.
    ///
    /// # Errors
    /// [`StoreError::Refused`] saying which part is wrong. No message holds the password.
    pub fn from_url(text: &str) -> Result<Self, StoreError> {
        let (text, topology) = several(text)?;
        let mut url = Url::parse(&text)
            .map_err(|error| StoreError::refused(format!("the store's URL cannot be read: {error}")))?;
        if !matches!(url.scheme(), "redis" | "rediss") {
            return Err(StoreError::refused(format!(
                "the store's scheme is {:?}, it must be redis or rediss, redis+sentinel or rediss+sentinel, redis+cluster or \
                 rediss+cluster",
                url.scheme()
            )));
        }
        // Whatever follows such a host may belong to a password, and is not shown.
        let is_cut_short =
            url.fragment().is_some() || url.path().contains('@') || url.query().unwrap_or("").contains('@');
        if is_cut_short {
            return Err(unencoded());
        }
        let host = url.host_str().filter(|host| !host.is_empty()).unwrap_or("localhost").to_owned();
        let database = match url.path().trim_matches('/') {
            "" => 0,
            path => path.parse::<u32>().map_err(|_| {
                StoreError::refused(format!(
                    "the store's URL names the database {path:?}, it must be a number: redis://HOST/0"
                ))
            })?,
        };
        let listed = |places: &[Place]| places.iter().map(Place::to_string).collect::<Vec<_>>().join(",");
        let address = match &topology {
            Topology::One => format!("{host}:{}/{database}", url.port().unwrap_or(6379)),
            Topology::Sentinels { places, master, .. } => format!("{}/{master}/{database}", listed(places)),
            Topology::Cluster { places } if database == 0 => listed(places),
            Topology::Cluster { .. } => {
                return Err(StoreError::refused(format!(
                    "the store's URL names the database {database}, and a Redis Cluster has only 0: leave it out"
                )));
            }
        };
        let parameters: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        // The driver has parameters of its own.
        url.set_query(None);
        if url.host_str().is_none_or(str::is_empty) {
            url.set_host(Some(&host))
                .map_err(|error| StoreError::refused(format!("the store's host cannot be read: {error}")))?;
        }
        let connection = url.into_connection_info().map_err(|error| {
            StoreError::refused(format!("the URL of the store at {address} cannot be used")).with_source(error)
        })?;
        let mut options = Self {
            connection,
            topology,
            address,
            ssl_ca: None,
            dialect: Dialect::Unalike,
            prefix: "unalike".to_owned(),
            creation: TagCreation::default(),
            limits: LeaseLimits::default(),
            connect_timeout: Duration::from_secs(1),
            request_timeout: Duration::from_secs(1),
            raise_timeout: Duration::from_secs(1),
            raise_min: 100_000,
            raise_max: 1 << 40,
            keep_every: Duration::from_secs(10),
            preheat: true,
            assume_durable: false,
        };
        for (name, value) in parameters {
            options.set(&name, &value)?;
        }
        options.validate()?;
        Ok(options)
    }

    /// Checks what programs may have set.
    fn validate(&self) -> Result<(), StoreError> {
        let (min, max) = (self.raise_min, self.raise_max);
        if min == 0 || min > max || max > NUMBERS_MAX {
            let what =
                format!("raise-min is {min} and raise-max {max}, they must be 1 to {NUMBERS_MAX}, in this order");
            return Err(StoreError::refused(what));
        }
        if self.keep_every.is_zero() {
            return Err(StoreError::refused("keep_every is 0, it must be longer".to_owned()));
        }
        Ok(())
    }

    /// The password, instead of one in the URL.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        let settings = self.connection.redis_settings().clone().set_password(password);
        self.connection = self.connection.set_redis_settings(settings);
        self
    }

    /// Host, port and database, for messages.
    #[must_use]
    pub fn address(&self) -> String {
        self.address.clone()
    }

    /// Refuses servers that take over from each other where nothing keeps what they said.
    pub(crate) fn check_backing(&self, backing: &Backing) -> Result<(), StoreError> {
        let what = match &self.topology {
            Topology::One => return Ok(()),
            Topology::Sentinels { .. } => "Sentinels promote",
            Topology::Cluster { .. } => "a Cluster promotes",
        };
        let grants = !matches!(self.dialect, Dialect::IdGenerator { .. });
        if !grants || self.assume_durable || matches!(backing, Backing::Durable(_)) {
            return Ok(());
        }
        Err(StoreError::refused(format!(
            "{}: {what} replicas that may lack the last writes, while the old master may go on for a while: without a durable \
             store ids would repeat. Name one (--backing), or use one server, redis://HOST; `durability=assumed` in the URL \
             leaves the promise to you",
            self.address
        )))
    }

    /// Whether the server must write each change to its disk before it answers.
    fn must_be_durable(&self, watermark: &Backing) -> bool {
        // Where nothing is granted, nothing can be granted again.
        let grants = !matches!(self.dialect, Dialect::IdGenerator { .. });
        matches!(watermark, Backing::RedisAlone) && grants && !self.assume_durable
    }

    pub(crate) fn connection_info(&self) -> &ConnectionInfo {
        &self.connection
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    pub(crate) fn ssl_ca(&self) -> Option<&Path> {
        self.ssl_ca.as_deref()
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), StoreError> {
        let expected =
            |what: &str| StoreError::refused(format!("the store's parameter {name} is {value:?}, it must be {what}"));
        let flag = || value.parse::<bool>().map_err(|_| expected("true or false"));
        let whole = |range: std::ops::RangeInclusive<u64>| {
            let number = value.parse().ok().filter(|number| range.contains(number));
            number.ok_or_else(|| expected(&format!("a whole number from {} to {}", range.start(), range.end())))
        };
        let milliseconds = || whole(1..=600_000).map(Duration::from_millis);
        match name {
            "dialect" => self.dialect = Dialect::named(value).ok_or_else(|| expected(Dialect::NAMES))?,
            "ssl-ca" => {
                if !matches!(self.connection.addr(), redis::ConnectionAddr::TcpTls { .. }) {
                    return Err(StoreError::refused("the store's parameter ssl-ca needs rediss://".to_owned()));
                }
                self.ssl_ca = Some(PathBuf::from(value));
            }
            "prefix" => {
                if value.is_empty() || value.contains(['{', '}']) || value.chars().any(char::is_control) {
                    return Err(expected("a word without braces"));
                }
                value.clone_into(&mut self.prefix);
            }
            "raise-min" => self.raise_min = whole(1..=NUMBERS_MAX)?,
            "raise-max" => self.raise_max = whole(1..=NUMBERS_MAX)?,
            "connect-timeout-ms" => self.connect_timeout = milliseconds()?,
            "request-timeout-ms" => self.request_timeout = milliseconds()?,
            "raise-timeout-ms" => self.raise_timeout = milliseconds()?,
            "preheat" => self.preheat = flag()?,
            "durability" => {
                self.assume_durable = match value {
                    "checked" => false,
                    "assumed" => true,
                    _ => return Err(expected("checked or assumed")),
                };
            }
            "sentinel-auth" => {
                let Topology::Sentinels { share_password, .. } = &mut self.topology else {
                    return Err(StoreError::refused(
                        "the store's parameter sentinel-auth needs redis+sentinel://".to_owned(),
                    ));
                };
                *share_password = match value {
                    "none" => false,
                    "same" => true,
                    // It may be a password, and is not shown.
                    _ => {
                        return Err(StoreError::refused(
                            "the store's parameter sentinel-auth must be none or same".to_owned(),
                        ));
                    }
                };
            }
            "shard" | "epoch" | "horizon-ms" => {
                let Dialect::Clock { shard, epoch_ms, horizon_ms } = &mut self.dialect else {
                    return Err(StoreError::refused(format!("the store's parameter {name} needs dialect=clock")));
                };
                match name {
                    "shard" => *shard = u16::try_from(whole(0..=4_095)?).unwrap_or(u16::MAX),
                    "epoch" => *epoch_ms = whole(0..=EPOCH_MAX_MS)?,
                    _ => *horizon_ms = whole(100..=60_000)?,
                }
            }
            "keys" | "source-stopped" => {
                let Dialect::IdGenerator { keys, source_stopped } = &mut self.dialect else {
                    return Err(StoreError::refused(format!(
                        "the store's parameter {name} needs dialect=id-generator"
                    )));
                };
                if name == "keys" {
                    *keys = key_map(value).ok_or_else(|| expected("TAG:KEY,TAG:KEY"))?;
                } else {
                    *source_stopped = flag()?;
                }
            }
            _ => {
                return Err(StoreError::refused(format!(
                    "the store's parameter {name:?} is unknown: there are {}",
                    Self::PARAMETERS
                )));
            }
        }
        Ok(())
    }
}

/// The URL of the first of several hosts, and what the hosts are.
fn several(text: &str) -> Result<(String, Topology), StoreError> {
    const SENTINEL_PORT: u16 = 26_379;
    const PORT: u16 = 6_379;
    let Some((scheme, rest)) = text.split_once("://") else { return Ok((text.to_owned(), Topology::One)) };
    let scheme = scheme.to_ascii_lowercase();
    if let Some((plain, kind)) = scheme.split_once('-').filter(|(_, kind)| matches!(*kind, "sentinel" | "cluster")) {
        return Err(StoreError::refused(format!("the store's scheme is {scheme:?}: write {plain}+{kind}://")));
    }
    let (plain, port) = match scheme.split_once('+') {
        Some((plain, "sentinel")) => (plain, SENTINEL_PORT),
        Some((plain, "cluster")) => (plain, PORT),
        _ => return Ok((text.to_owned(), Topology::One)),
    };
    let (servers, behind) = rest.find(['/', '?', '#']).and_then(|end| rest.split_at_checked(end)).unwrap_or((rest, ""));
    let (user, hosts) = match servers.rsplit_once('@') {
        Some((user, hosts)) => (format!("{user}@"), hosts),
        None => (String::new(), servers),
    };
    // What follows an @ that is behind them, or a # before it, may belong to a password, and is not shown.
    if behind.contains('@') || user.matches('@').count() > 1 || behind.contains('#') {
        return Err(unencoded());
    }
    let hosts = if hosts.is_empty() { "localhost" } else { hosts };
    let places: Vec<Place> =
        HostsUrl::read_hosts(hosts, &scheme, port)?.iter().map(|(host, port)| Place::new(host, *port)).collect();
    let Some(first) = places.first() else { return Ok((text.to_owned(), Topology::One)) };
    let first = format!("{plain}://{user}{first}");
    if port == PORT {
        return Ok((format!("{first}{behind}"), Topology::Cluster { places }));
    }
    let (path, parameters) = behind.split_once('?').unwrap_or((behind, ""));
    let path = path.trim_matches('/');
    let (master, database) = path.split_once('/').unwrap_or((path, ""));
    let master = percent_decode(master).filter(|master| !master.is_empty()).ok_or_else(|| {
        StoreError::refused(format!("the store's URL names no master: write {scheme}://SENTINEL,SENTINEL/MASTER"))
    })?;
    let topology = Topology::Sentinels { places, master, share_password: false };
    Ok((format!("{first}/{database}?{parameters}"), topology))
}

/// The error of a URL that has something behind its hosts that belongs before them.
fn unencoded() -> StoreError {
    StoreError::refused(
        "the store's URL has a # or an @ behind its host: in the user's name and the password write %2F for /, %3F \
         for ?, %23 for # and %40 for @, and %40 in a parameter"
            .to_owned(),
    )
}

/// `order:id_order,invoice:id_invoice`
fn key_map(text: &str) -> Option<BTreeMap<String, String>> {
    text.split(',').map(|pair| pair.split_once(':').map(|(tag, key)| (tag.to_owned(), key.to_owned()))).collect()
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the password.
        f.debug_struct("RedisOptions")
            .field("address", &self.address)
            .field("dialect", &self.dialect)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl Dialect {
    const NAMES: &str = "unalike, clock, cosid or id-generator";

    /// The beginning of the year 2024, in Unix milliseconds: 41 bits of milliseconds last until 2093.
    pub const EPOCH_MS: u64 = 1_704_067_200_000;

    /// The dialect of this name, with its parameters at their defaults.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "unalike" => Self::Unalike,
            "clock" => Self::Clock { shard: 0, epoch_ms: Self::EPOCH_MS, horizon_ms: 6_000 },
            "cosid" => Self::Cosid,
            "id-generator" => Self::IdGenerator { keys: BTreeMap::new(), source_stopped: false },
            _ => return None,
        })
    }
}

/// Segments in one Redis database; clones share its connection.
#[derive(Clone, Debug)]
pub struct RedisStore {
    server: Server,
    /// What the dialect makes of it.
    segments: Arc<dyn DialectStore>,
    /// Whose numbers it hands out, and which part of them it is.
    durable: Option<Durable>,
}

/// A durable store, and the part of its numbers that Redis hands out, in words that stay as they are.
#[derive(Clone)]
struct Durable {
    store: Arc<dyn SegmentStore>,
    part: String,
}

impl Durable {
    fn new(watermark: &Backing, options: &RedisOptions, kind: &str) -> Option<Self> {
        let Backing::Durable(store) = watermark else { return None };
        Some(Self { store: Arc::clone(store), part: format!("redis {kind} {}", options.prefix) })
    }

    /// The name of that part.
    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        Ok(self.store.identity().await?.map(|identity| identity.of_part(&self.part)))
    }
}

impl fmt::Debug for Durable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Durable").field("part", &self.part).finish_non_exhaustive()
    }
}

/// What Redis knew of durable stores, and knows now: see [`RedisStore::rebind`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rebound {
    /// The [identity](unalike_storage::StoreIdentity) of the durable store that it knows now.
    pub identity: String,
    /// What it knew before, by kind: `sequences`, `clock` and `leases`. Empty where it knew none.
    pub before: BTreeMap<String, String>,
}

/// A dialect's way to keep segments.
trait DialectStore: SegmentStore + fmt::Debug {}

impl<S: SegmentStore + fmt::Debug> DialectStore for S {}

impl RedisStore {
    /// Connects and checks the server.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the server does not answer; [`StoreError::Refused`] when it denies access, when
    /// it is too old or of another kind than the URL says, and when it is not durable, or may be replaced by a replica,
    /// although no durable store backs it. Each says what to do.
    pub async fn connect(options: RedisOptions, watermark: Backing) -> Result<Self, StoreError> {
        options.validate()?;
        options.check_backing(&watermark)?;
        let server = Server::connect(&options, options.must_be_durable(&watermark)).await?;
        let durable = Durable::new(&watermark, &options, &options.dialect.part());
        let segments: Arc<dyn DialectStore> = match (&options.dialect, watermark) {
            (Dialect::Unalike, Backing::Durable(durable)) => {
                Arc::new(Segments::open(server.clone(), durable, &options).await?)
            }
            (Dialect::Unalike, Backing::RedisAlone) => Arc::new(Alone::open(&server, &options).await?),
            (Dialect::Clock { .. }, watermark) => clock::open(&server, watermark, &options).await?,
            (Dialect::Cosid, watermark) => cosid::open(&server, &watermark, &options)?,
            (Dialect::IdGenerator { .. }, _) => id_generator::open(&server, &options)?,
        };
        Ok(Self { server, segments, durable })
    }

    /// Makes an empty Redis a store of its own, without a durable one ([`Backing::RedisAlone`]): a command of its
    /// own, so that a Redis that lost its data is not taken for a new one. Answers whether it was none before.
    ///
    /// # Errors
    /// As [`RedisStore::connect`]; [`StoreError::Refused`] for a dialect that needs no such thing.
    pub async fn initialise(options: &RedisOptions) -> Result<bool, StoreError> {
        options.check_backing(&Backing::RedisAlone)?;
        let server = Server::connect(options, options.must_be_durable(&Backing::RedisAlone)).await?;
        alone::initialise(&server, options).await
    }

    /// Moves what the durable store `before` granted to another one, and makes Redis record that: its tags, and the
    /// time of leases and clocks. `before` grants nothing from then on, neither to Redis nor to anybody else, so
    /// programs that still use it get no more numbers than Redis has. It can be repeated, also for each further Redis,
    /// and prefix, that the store was behind.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when Redis knows a third durable store; as [`unalike_storage::hand_over`]; and what
    /// Redis fails with. Repeat it then.
    pub async fn rebind(
        options: &RedisOptions,
        before: &Arc<dyn SegmentStore>,
        durable: &Arc<dyn SegmentStore>,
    ) -> Result<Rebound, StoreError> {
        options.validate()?;
        let server = Server::connect(options, false).await?;
        let rebound = Raising::rebind(&server, &options.prefix, before, durable).await;
        server.close().await;
        rebound.map(|(identity, before)| Rebound { identity, before })
    }

    /// What the dialect makes of it. Not in a forked child, where a lock in it may be held for ever.
    fn segments(&self) -> Result<&dyn SegmentStore, StoreError> {
        self.server.check_process()?;
        Ok(&*self.segments)
    }
}

#[async_trait]
impl unalike_storage::SegmentLayer for RedisStore {
    fn below(&self) -> Option<&dyn SegmentStore> {
        self.segments().ok()
    }

    async fn reach(&self) -> Result<&dyn SegmentStore, StoreError> {
        self.segments()
    }

    fn address(&self) -> Option<String> {
        Some(self.server.address().to_owned())
    }

    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        let segments = self.segments()?;
        match &self.durable {
            Some(durable) => durable.identity().await,
            None => segments.identity().await,
        }
    }

    async fn recorded_identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        SegmentStore::identity(self).await
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        self.segments.join_stripe(stripe).await
    }

    async fn close(&self) {
        // The tasks that it would wait for are the parent's.
        let Ok(segments) = self.segments() else { return };
        segments.close().await;
        self.server.close().await;
    }
}
