//! Segments in MySQL and MariaDB: in tables of unalike's own, or in those of the systems that it replaces, in place;
//! and leases, in tables of their own beside them ([`MysqlLeases`]).
//!
//! | [`Dialect`] | table | what it is |
//! | --- | --- | --- |
//! | `Unalike` | `unalike_tag` | unalike's own, the default: one statement per grant, tails given back |
//! | `Leaf` | `leaf_alloc` | Meituan's Leaf |
//! | `Tinyid` | `tiny_id_info` | Didi's tinyid |
//! | `Cosid` | `cosid` | CosId |
//! | `SequenceTable` | `t_sequence` | a row lock per block |
//! | `IdGenerator` | `id_generator` | a ceiling by whole numbers as keys |
//! | `Batch` | `ng_business_mysql_autoincrement` | the issuer's channel 0: numbers in batches |
//! | `SlowOrdered` | `ng_business_slowordered0` to `63` | the issuer's channel 3: strictly increasing, 64 tables |
//! | `Ticket` | one per tag | Flickr's ticket servers: `REPLACE INTO` and `auto_increment` |
//!
//! Every connection is set and checked before it is used: commits must be durable, and the server must be the one that
//! was used before ([`MysqlOptions::assume_durable`], [`MysqlOptions::assume_identity`]). Each statement that grants
//! repeats these checks as its condition, so a proxy that runs it on another connection or server is granted nothing
//! there. A statement whose answer is lost counts as done, and what it granted is never offered again.
//!
//! Tested on MariaDB 10.11, alone and in a Galera cluster. The statements are those that MySQL 8.0.16 takes too; MySQL
//! before that ignores the `CHECK`s, which keep programs that know no stripes out of them.

mod beside;
mod database;
mod dialects;
mod error;
mod fence;
mod identity;
mod leases;
mod place;
mod record;
mod replication;
mod schema;
mod segments;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};
use unalike_storage::{
    ID_MAX, JoinedStripe, LeaseLimits, SegmentStore, StoreError, StoreIdentity, Stripe, TagCreation, TagRecord,
    is_kept_time, random_128,
};
use url::Url;

use crate::beside::Beside;
use crate::database::Database;
pub use crate::dialects::batch::BatchTag;
use crate::dialects::batch::Batches;
use crate::dialects::{batch, cosid, id_generator, leaf, sequence_table, slow_ordered, tables, ticket, tinyid};
use crate::fence::ServerFacts;
pub use crate::leases::MysqlLeases;
use crate::place::Places;
use crate::record::{Era, Record};
use crate::schema::Schema;

/// How much further than a horizon Redis asks for time for its leases, at most.
const KEPT_LEAD_MS: u64 = 60_000;

/// Where the database is, and how it is used.
///
/// ```
/// use unalike_mysql::{Dialect, MysqlOptions};
/// let options = MysqlOptions::from_url("mysql://ids@db.example/leaf?dialect=leaf")?.password("secret");
/// assert_eq!(options.dialect, Dialect::Leaf);
/// assert_eq!(options.address(), "db.example:3306/leaf");
/// # Ok::<(), unalike_storage::StoreError>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct MysqlOptions {
    connect: MySqlConnectOptions,
    address: String,
    /// Whose tables are used.
    pub dialect: Dialect,
    /// Create tables of unalike's own that are missing, if the user may. `true` by default.
    pub create_tables: bool,
    /// Create tables of the other system that are missing too, if [`create_tables`](Self::create_tables) is set.
    /// `false` by default: in a database where they are missing, or have another name, the old system answers with an
    /// error, and a table that is created there begins at 1.
    pub create_foreign: bool,
    /// Whether tags are created on first use, and how many there may be. In tables of another system they are not,
    /// unless the URL says `create=true` or this is set afterwards.
    pub creation: TagCreation,
    /// What holders of leases are allowed. It is not a parameter of the URL.
    pub limits: LeaseLimits,
    /// The most connections at a time: 1 or more, 10 by default.
    pub connections_max: u32,
    /// How long a request waits for a connection: for its turn, or for a new one to open. 3 s by default.
    pub connect_timeout: Duration,
    /// How long the statements of one request may take; after that its connection is closed and its grant is burnt. 5 s
    /// by default.
    pub request_timeout: Duration,
    /// Do not refuse a server whose settings allow it to lose a commit in a crash. The promise that no id repeats is
    /// then the operator's.
    pub assume_durable: bool,
    /// Do not refuse a server that is not the one that was used before, nor a node of a Galera cluster: for clusters
    /// that take over, and begin anew, without losing a commit. The promise that no id repeats is then the operator's.
    pub assume_identity: bool,
    /// Adopt a server that does not say whether it replicates from another one. The promise that it does not, and
    /// applies nothing any more, is then the operator's. No parameter of the URL.
    pub assume_replication_ended: bool,
    /// Read the tables of another system also where no store was begun beside them, and begin none: nothing is granted
    /// then. No parameter of the URL.
    pub only_looks: bool,
}

/// Whose tables are used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// unalike's own.
    #[default]
    Unalike,
    /// Leaf's `leaf_alloc`.
    Leaf,
    /// tinyid's `tiny_id_info`.
    Tinyid,
    /// CosId's `cosid`.
    Cosid,
    /// `t_sequence`.
    SequenceTable {
        /// Start again at the beginning when the numbers end: a new generation, outside the promise that no id repeats.
        cycle: bool,
    },
    /// `id_generator`.
    IdGenerator {
        /// The row of each tag; others are unknown.
        keys: BTreeMap<String, i32>,
        /// Nothing else uses the table any more. This must be true: programs that count up to a ceiling of their own
        /// cannot be told apart.
        source_stopped: bool,
    },
    /// `ng_business_mysql_autoincrement`.
    Batch,
    /// `ng_business_slowordered0` to `63`.
    SlowOrdered,
    /// A table with `auto_increment` per tag.
    Ticket,
}

impl MysqlOptions {
    /// Those of the URL.
    const PARAMETERS: &str = "dialect, ssl-mode, ssl-ca, create, connections, connect-timeout-ms, request-timeout-ms, \
        durability, identity, password-file, password-env, and behind some dialects cycle, keys and source-stopped";

    /// Reads `mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE[?PARAMETERS]`.
    ///
    /// | parameter | meaning | default |
    /// | --- | --- | --- |
    /// | `dialect` | [`Dialect`] by name | `unalike` |
    /// | `ssl-mode` | `disabled`, `preferred`, `required`, `verify_ca`, `verify_identity` | `preferred` |
    /// | `ssl-ca` | with a mode that verifies: a file with the certificates of the authorities to trust | the system's |
    /// | `create` | `false`: no table is created; `true`: also the tables of another system, and tags in them on first use | unalike's own tables are |
    /// | `connections` | [`connections_max`](Self::connections_max) | 10 |
    /// | `connect-timeout-ms`, `request-timeout-ms` | milliseconds, 1 to 600000 | 3000, 5000 |
    /// | `durability` | `checked`, or `assumed`: [`assume_durable`](Self::assume_durable) | `checked` |
    /// | `identity` | `checked`, or `assumed`: [`assume_identity`](Self::assume_identity) | `checked` |
    /// | `cycle` | `true` or `false`, after `dialect=sequence-table` | `false` |
    /// | `keys` | `TAG:NUMBER,TAG:NUMBER`, after `dialect=id-generator` | none |
    /// | `source-stopped` | `true`, after `dialect=id-generator`, where it is needed | |
    ///
    /// # Errors
    /// [`StoreError::Refused`] saying which part is wrong. No message holds the password.
    pub fn from_url(text: &str) -> Result<Self, StoreError> {
        let mut url = Url::parse(text)
            .map_err(|error| StoreError::refused(format!("the store's URL cannot be read: {error}")))?;
        if !matches!(url.scheme(), "mysql" | "mariadb") {
            return Err(StoreError::refused(format!("the store's scheme is {:?}, it must be mysql", url.scheme())));
        }
        let host = url.host_str().filter(|host| !host.is_empty()).unwrap_or("localhost").to_owned();
        let database = url.path().trim_start_matches('/').to_owned();
        if database.is_empty() {
            return Err(StoreError::refused(
                "the store's URL names no database: write mysql://USER@HOST/DATABASE".to_owned(),
            ));
        }
        // The driver would take root.
        if url.username().is_empty() {
            return Err(StoreError::refused(
                "the store's URL names no user: write mysql://USER@HOST/DATABASE".to_owned(),
            ));
        }
        let address = format!("{host}:{}/{database}", url.port().unwrap_or(3306));
        let parameters: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        url.set_query(None);
        let connect: MySqlConnectOptions =
            sqlx::ConnectOptions::from_url(&url).map_err(|error| StoreError::Refused {
                what: format!("the URL of the store at {address} cannot be used"),
                source: Some(Box::new(error)),
            })?;
        let mut options = Self {
            // What these would set, every connection sets itself.
            connect: connect.pipes_as_concat(false).no_engine_substitution(false),
            address,
            dialect: Dialect::Unalike,
            create_tables: true,
            create_foreign: false,
            creation: TagCreation::default(),
            limits: LeaseLimits::default(),
            connections_max: 10,
            connect_timeout: Duration::from_secs(3),
            request_timeout: Duration::from_secs(5),
            assume_durable: false,
            assume_identity: false,
            assume_replication_ended: false,
            only_looks: false,
        };
        let mut names_authority = false;
        for (name, value) in parameters {
            options.set(&name, &value)?;
            names_authority |= name == "ssl-ca";
        }
        let mode = options.connect.get_ssl_mode();
        if names_authority && !matches!(mode, MySqlSslMode::VerifyCa | MySqlSslMode::VerifyIdentity) {
            return Err(StoreError::refused(
                "the store's parameter ssl-ca needs ssl-mode=verify_identity or verify_ca: no certificate is checked \
                 without one",
            ));
        }
        options.creation.on_first_use = options.dialect == Dialect::Unalike || options.create_foreign;
        Ok(options)
    }

    /// The password, instead of one in the URL.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.connect = self.connect.password(password);
        self
    }

    /// Host, port and database, for messages.
    #[must_use]
    pub fn address(&self) -> String {
        self.address.clone()
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), StoreError> {
        let expected =
            |what: &str| StoreError::refused(format!("the store's parameter {name} is {value:?}, it must be {what}"));
        let dialect = self.dialect.clone();
        let flag = || value.parse::<bool>().map_err(|_| expected("true or false"));
        let whole = |range: std::ops::RangeInclusive<u64>| {
            let number = value.parse().ok().filter(|number| range.contains(number));
            number.ok_or_else(|| expected(&format!("a whole number from {} to {}", range.start(), range.end())))
        };
        let assumed = || match value {
            "checked" => Ok(false),
            "assumed" => Ok(true),
            _ => Err(expected("checked or assumed")),
        };
        match name {
            "dialect" => self.dialect = Dialect::named(value).ok_or_else(|| expected(Dialect::NAMES))?,
            "ssl-mode" => {
                let mode: MySqlSslMode = value
                    .parse()
                    .map_err(|_| expected("disabled, preferred, required, verify_ca or verify_identity"))?;
                self.connect = self.connect.clone().ssl_mode(mode);
            }
            "ssl-ca" => self.connect = self.connect.clone().ssl_ca(PathBuf::from(value)),
            "cycle" if matches!(dialect, Dialect::SequenceTable { .. }) => {
                self.dialect = Dialect::SequenceTable { cycle: flag()? };
            }
            "keys" | "source-stopped" => {
                let Dialect::IdGenerator { keys, source_stopped } = &mut self.dialect else {
                    return Err(StoreError::refused(format!(
                        "the store's parameter {name} needs dialect=id-generator"
                    )));
                };
                if name == "keys" {
                    *keys = key_map(value).ok_or_else(|| expected("TAG:NUMBER,TAG:NUMBER"))?;
                } else {
                    *source_stopped = flag()?;
                }
            }
            "create" => {
                self.create_tables = flag()?;
                self.create_foreign = self.create_tables;
            }
            "connections" => {
                self.connections_max = u32::try_from(whole(1..=10_000)?).unwrap_or(u32::MAX);
            }
            "connect-timeout-ms" => self.connect_timeout = Duration::from_millis(whole(1..=600_000)?),
            "request-timeout-ms" => self.request_timeout = Duration::from_millis(whole(1..=600_000)?),
            "durability" => self.assume_durable = assumed()?,
            "identity" => self.assume_identity = assumed()?,
            "cycle" => {
                return Err(StoreError::refused(format!("the store's parameter {name} needs dialect=sequence-table")));
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

    /// Whether a table of this name may be created where it is missing.
    pub(crate) fn may_create(&self, table: &str) -> bool {
        self.create_tables && (self.create_foreign || table.starts_with(OWN_TABLES))
    }

    pub(crate) fn connect_options(&self) -> MySqlConnectOptions {
        self.connect.clone()
    }
}

/// What the names of unalike's own tables begin with.
const OWN_TABLES: &str = "unalike_";

/// `order:1,invoice:2`
fn key_map(text: &str) -> Option<BTreeMap<String, i32>> {
    let pairs = text.split(',').map(|pair| {
        let (tag, key) = pair.rsplit_once(':')?;
        Some((tag.to_owned(), key.parse().ok()?))
    });
    pairs.collect()
}

impl fmt::Debug for MysqlOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the password.
        f.debug_struct("MysqlOptions")
            .field("address", &self.address)
            .field("dialect", &self.dialect)
            .field("create_tables", &self.create_tables)
            .finish_non_exhaustive()
    }
}

impl Dialect {
    const NAMES: &str = "unalike, leaf, tinyid, cosid, sequence-table, id-generator, batch, slow-ordered or ticket";

    /// The dialect of this name, with its parameters at their defaults.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "unalike" => Self::Unalike,
            "leaf" => Self::Leaf,
            "tinyid" => Self::Tinyid,
            "cosid" => Self::Cosid,
            "sequence-table" => Self::SequenceTable { cycle: false },
            "id-generator" => Self::IdGenerator { keys: BTreeMap::new(), source_stopped: false },
            "batch" => Self::Batch,
            "slow-ordered" => Self::SlowOrdered,
            "ticket" => Self::Ticket,
            _ => return None,
        })
    }

    /// Its name, as URLs and records have it.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Unalike => "unalike",
            Self::Leaf => "leaf",
            Self::Tinyid => "tinyid",
            Self::Cosid => "cosid",
            Self::SequenceTable { .. } => "sequence-table",
            Self::IdGenerator { .. } => "id-generator",
            Self::Batch => "batch",
            Self::SlowOrdered => "slow-ordered",
            Self::Ticket => "ticket",
        }
    }

    /// The tables of the other system that it cannot do without; none for unalike's own.
    fn foreign_tables(&self) -> Vec<String> {
        let tables = match self {
            // A ticket's table is its tag.
            Self::Unalike | Self::Ticket => return Vec::new(),
            Self::Leaf => leaf::SQL.privileges(),
            Self::Tinyid => tinyid::privileges(),
            Self::Cosid => cosid::SQL.privileges(),
            Self::SequenceTable { cycle } => sequence_table::privileges(*cycle),
            Self::IdGenerator { .. } => id_generator::SQL.privileges(),
            Self::Batch => batch::privileges(),
            Self::SlowOrdered => slow_ordered::privileges(),
        };
        tables.into_iter().map(|(table, _)| table).filter(|table| !table.starts_with(OWN_TABLES)).collect()
    }

    /// The statements that create its tables, `unalike_store` among them, for those who do not let programs do it.
    ///
    /// Beside tables of another system, `unalike_tag` keeps the formats of tags. Who shows no tag in a format can do
    /// without it.
    #[must_use]
    pub fn ddl(&self) -> Vec<String> {
        let mut statements = [schema::STORE_TABLE, identity::DDL].map(|statement| statement.trim().to_owned()).to_vec();
        // Beside tables of another system, for formats.
        statements.extend(segments::ddl());
        statements.extend(match self {
            Self::Unalike => Vec::new(),
            Self::Leaf => leaf::SQL.statements(),
            Self::Tinyid => tinyid::ddl(),
            Self::Cosid => cosid::SQL.statements(),
            Self::SequenceTable { cycle } => sequence_table::ddl(*cycle),
            Self::IdGenerator { .. } => id_generator::SQL.statements(),
            Self::Batch => batch::ddl(),
            Self::SlowOrdered => slow_ordered::ddl(),
            Self::Ticket => ticket::ddl(),
        });
        statements
    }

    /// Tables, and the least privileges on each, once the tables exist.
    #[must_use]
    pub fn privileges(&self) -> Vec<(String, &'static str)> {
        let mut tables =
            vec![("unalike_store".to_owned(), "SELECT, INSERT, UPDATE"), (identity::NAME.to_owned(), "SELECT, INSERT")];
        tables.extend(segments::privileges());
        tables.extend(match self {
            Self::Unalike => Vec::new(),
            Self::Leaf => leaf::SQL.privileges(),
            Self::Tinyid => tinyid::privileges(),
            Self::Cosid => cosid::SQL.privileges(),
            Self::SequenceTable { cycle } => sequence_table::privileges(*cycle),
            Self::IdGenerator { .. } => id_generator::SQL.privileges(),
            Self::Batch => batch::privileges(),
            Self::SlowOrdered => slow_ordered::privileges(),
            Self::Ticket => ticket::privileges(),
        });
        tables
    }
}

/// Segments in one database; clones share its connections.
#[derive(Clone, Debug)]
pub struct MysqlStore {
    database: Database,
    options: MysqlOptions,
    /// What the dialect makes of it.
    segments: Arc<dyn DialectStore>,
    /// The same, where the dialect is [`Dialect::Batch`].
    batches: Option<Arc<Batches>>,
}

/// A dialect's way to keep segments.
trait DialectStore: SegmentStore + fmt::Debug {}

impl<S: SegmentStore + fmt::Debug> DialectStore for S {}

impl MysqlStore {
    /// Connects, checks the server, and creates the tables that are missing if that is allowed.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the server does not answer; [`StoreError::Refused`] when it denies access, when
    /// its commits are not durable, when it is another server than before, when it was adopted only with tables of
    /// other dialects, and when its tables are missing or of another version. Each says what to do.
    pub async fn connect(options: MysqlOptions) -> Result<Self, StoreError> {
        let (database, facts) = Database::connect(&options).await?;
        warn_of_assumptions(&options, &facts);
        if !options.create_foreign {
            // Nothing is left in a database that is not the other system's.
            tables::require(&database, &options, &options.dialect.foreign_tables()).await?;
        }
        let looks_beside = options.only_looks && options.dialect != Dialect::Unalike;
        if looks_beside && schema::read(&database).await?.is_none() {
            // While no server is expected, every fence is closed.
            let options = MysqlOptions { create_tables: false, ..options };
            return Self::open(database, Schema::NEWEST, options).await;
        }
        let schema = schema::open(&database, &facts, &options).await?;
        database.check_adopted()?;
        replication::refuse_unnoticed(&database, &facts).await?;
        Self::open(database, schema, options).await
    }

    /// On a server that is known.
    async fn open(database: Database, schema: Schema, options: MysqlOptions) -> Result<Self, StoreError> {
        let mut batches = None;
        let segments = match &options.dialect {
            Dialect::Unalike => segments::open(&database, schema, &options).await?,
            Dialect::Leaf => leaf::open(&database, &options).await?,
            Dialect::Tinyid => tinyid::open(&database, &options).await?,
            Dialect::Cosid => cosid::open(&database, &options).await?,
            Dialect::SequenceTable { .. } => sequence_table::open(&database, &options).await?,
            Dialect::IdGenerator { .. } => id_generator::open(&database, &options).await?,
            Dialect::Batch => batches.insert(batch::open(&database, &options).await?).clone(),
            Dialect::SlowOrdered => slow_ordered::open(&database, &options).await?,
            Dialect::Ticket => ticket::open(&database, &options).await?,
        };
        let segments: Arc<dyn DialectStore> = match &options.dialect {
            Dialect::Unalike => segments,
            _ => Arc::new(Beside::new(segments, &database, schema, &options)),
        };
        Ok(Self { database, options, segments, batches })
    }

    /// Leases in the same database, over the same connections; creates their tables if they are missing and that is
    /// allowed. Closing either closes both.
    ///
    /// ```no_run
    /// # async fn open() -> Result<(), unalike_storage::StoreError> {
    /// use unalike_mysql::{MysqlOptions, MysqlStore};
    /// let store = MysqlStore::connect(MysqlOptions::from_url("mysql://ids@db.example/ids")?).await?;
    /// let leases = store.leases().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`MysqlLeases::connect`].
    pub async fn leases(&self) -> Result<MysqlLeases, StoreError> {
        MysqlLeases::open(&self.database, &self.options).await
    }

    /// Says how the ids of a tag in [`Dialect::Batch`] are made, before its first use; otherwise that takes the
    /// [default](BatchTag::default). The same declaration again changes nothing.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when the tag was declared otherwise, since its ids would be made again, and in other
    /// dialects; [`StoreError::TagInvalid`] when the figures make no ids of 63 bits; [`StoreError::TagLimit`].
    pub async fn declare_batch_tag(&self, tag: &str, batch_tag: &BatchTag) -> Result<(), StoreError> {
        match &self.batches {
            Some(batches) => batches.declare(tag, batch_tag).await,
            None => Err(StoreError::refused(format!(
                "{tag:?} cannot be declared as a tag of batches: use the dialect batch"
            ))),
        }
    }

    /// Takes unalike's own tables to the version that this program creates, by statements that only add. Programs of
    /// the version before go on. Needs the privileges CREATE and ALTER; may be repeated.
    ///
    /// # Errors
    /// As [`MysqlStore::connect`]. A busy table is [`StoreError::Unavailable`] after some seconds: try again.
    pub async fn upgrade(options: MysqlOptions) -> Result<(), StoreError> {
        let (database, facts) = Database::connect(&options).await?;
        schema::open(&database, &facts, &options).await?;
        let upgraded = schema::upgrade(&database).await;
        database.close().await;
        upgraded
    }

    /// Continues with a server that took over from the recorded one, which must have ended: lifts the watermark of
    /// every tag by `lift` numbers, 1 or more, to above all that the old server granted and this one may have lost, and
    /// records the new server. Answers how many tags were lifted. A tag with fewer numbers left is exhausted. In a
    /// stripe each tag is lifted by that many numbers of the stripe. If it is interrupted, repeat it; programs that
    /// were running continue after a restart.
    ///
    /// Tags and sub-keys that this server has lost with all that was granted under them are lifted too: each name that
    /// is created from now on begins `lift` numbers above its start.
    ///
    /// **Each dialect is adopted by itself.** A database may hold the tables of several; only those of `options` are
    /// lifted, and clients of the others are refused until their tables are lifted in the same way. Of `id_generator`
    /// all rows are lifted, whatever keys are given. Restart running programs after each adoption.
    ///
    /// Time that this database granted to Redis is lifted too, but not by `lift`, which counts ids: it continues as far
    /// ahead as any lease may have reached.
    ///
    /// Leases need no figure. None is granted before all that the old server may have granted have ended: the horizon
    /// of the namespace from now on, and `limits.max_skew_ms`, by which the clocks of the two servers may differ. The
    /// leases from before are not extended. A namespace that is used here for the first time, since this server may
    /// have lost it, waits for the longest horizon that any program ever came with, `limits.max_horizon_ms` included.
    /// This makes the tables of leases where all are missing, for they may have been lost too.
    ///
    /// **Replication has to end first.** A server that still applies what another one sent overwrites lifted rows with
    /// old ones. One that follows another server is refused, and so is one that does not let this user check that,
    /// unless [`assume_replication_ended`](MysqlOptions::assume_replication_ended) is set. A MariaDB that applies
    /// anything after it was adopted grants nothing more, and rows of `unalike_tag` that it writes in this way can be
    /// recognised. To adopt it again, `lift` has to be more than what was granted since it was adopted: a row that was
    /// overwritten is lifted from the greatest number that any tag had then. In tables of other dialects, where they
    /// cannot be recognised, all earlier lifts are added to it; where the earlier server gave back tails after this one
    /// took over, it has to be greater by these.
    ///
    /// # Errors
    /// As [`MysqlStore::connect`]; [`StoreError::Refused`] for a lift of 0 or above 2^63 - 1, when the server is
    /// the recorded one already, with the tables of this dialect and all their data, and when it follows another
    /// server.
    pub async fn adopt_server(options: MysqlOptions, lift: u64) -> Result<Adopted, StoreError> {
        Self::go_on(options, lift, false).await
    }

    /// Continues with data that were restored from a backup, of whatever kind: as [`MysqlStore::adopt_server`], and
    /// also where nothing tells that anything was restored. `lift` has to be more than was granted since the backup,
    /// under any one name; a name that the backup lacks begins that far above its start. In tables of other dialects a
    /// row that somebody else inserts begins at its own value.
    ///
    /// Repeated, it lifts again. Tables of other dialects, which were restored with them, are refused until each was
    /// [adopted](MysqlStore::adopt_server).
    ///
    /// # Errors
    /// As [`MysqlStore::adopt_server`], but for a server that is the recorded one.
    pub async fn restored(options: MysqlOptions, lift: u64) -> Result<Adopted, StoreError> {
        Self::go_on(options, lift, true).await
    }

    async fn go_on(options: MysqlOptions, lift: u64, is_restored: bool) -> Result<Adopted, StoreError> {
        if lift == 0 || lift > ID_MAX {
            return Err(StoreError::refused(format!(
                "tags were to be lifted by {lift} numbers, it must be 1 to 2^63 - 1"
            )));
        }
        let (database, facts) = Database::connect(&options).await?;
        let (schema, recorded) = schema::read(&database).await?.ok_or_else(|| {
            StoreError::refused(format!(
                "{}: unalike has no store in this database, so nothing was lifted: check the name of the database",
                database.at()
            ))
        })?;
        let found = |identity: Result<String, String>| {
            identity.map_err(|why| StoreError::refused(format!("the server at {}: {why}", database.at())))
        };
        let dialect = options.dialect.name();
        let before = Record::read(&recorded);
        // Where the operator vouches for whatever is there, nobody looks at the place.
        let places = match options.assume_identity {
            true => None,
            false => Some(Places::read(&database, &facts).await?),
        };
        // A cluster that lost commits looks as before: it is another one each time that all was lifted before.
        let is_again = facts.cluster().is_some() && before.is_valid_for(dialect);
        // Whatever was lifted of it before, the data are older than that by now.
        let is_older = is_restored || is_again || places.as_ref().is_some_and(|places| !places.is_known());
        let is_recorded = !is_older && found(facts.identity_as(before.server()))? == before.server();
        let is_unalike = matches!(options.dialect, Dialect::Unalike);
        let is_whole = !is_unalike || segments::are_all_of_era(&database, schema, before.era()).await?;
        if is_recorded && before.is_valid_for(dialect) && is_whole || !is_older && facts.is_unmarked(&recorded) {
            return Err(StoreError::refused(format!(
                "{}: this server ({recorded}) is the recorded one already, for the dialect {dialect} too. If its data were \
                 restored from a backup, say so with `unalike store restored --lift COUNT`",
                database.at()
            )));
        }
        // Of its own, so that the server before cannot be taken for this one.
        let identity =
            if is_recorded { before.server().to_owned() } else { found(facts.adopted_identity(random_128()?))? };
        replication::refuse(&database, &facts, options.assume_replication_ended).await?;
        let here = match &places {
            Some(places) => places.prepare(&database, &facts, &options).await?,
            None => None,
        };
        // A server that applied changes after it was adopted may have written old rows over those that were lifted. Its
        // other figures may have changed since, so this is asked of none. In rows with an era it can be seen.
        let is_seen = is_unalike && before.era().mark != 0;
        let lift = if is_recorded || is_seen { lift } else { lift.saturating_add(before.lifted(dialect)).min(ID_MAX) };
        database.expect(&facts, Some(identity.clone()), &recorded);
        let store = Self::open(database.clone(), schema, options.clone()).await?;
        // In tables that count in strides, so many grants reach further.
        let numbers = match &options.dialect {
            Dialect::Unalike => lift,
            _ => lift.saturating_mul(store.stride().await?),
        };
        let adopted = before.adopted(&identity, dialect, numbers, is_older);
        if !adopted.clone().of_era(Era { mark: u128::MAX, reached: ID_MAX }).fits() {
            return Err(StoreError::refused(format!(
                "{}: the record of the server is too long for unalike_store: {adopted}",
                database.at()
            )));
        }
        // Leases were waited for with the first dialect, and those of now are this server's.
        let leases_from_ms = leases::quarantine(&database, &options, is_recorded).await?;
        // As far ahead as time was ever granted to leases, by any program: see below.
        let kept_ms = leases::longest_horizon_ms(&database).await?.saturating_add(KEPT_LEAD_MS);
        // The record comes last: until then nobody is granted anything here.
        let lifted = match &options.dialect {
            Dialect::Unalike => {
                let record = |era| adopted.clone().of_era(era).to_string();
                segments::lift_all(&database, schema, lift, kept_ms, (&recorded, record)).await
            }
            // The keys that are given may be some of those that are used.
            Dialect::IdGenerator { .. } => id_generator::lift_all(&database, &options, lift).await,
            _ => match &store.batches {
                Some(batches) => batches.lift_all(lift).await,
                None => store.lift_each(numbers, kept_ms).await,
            },
        }?;
        if !matches!(options.dialect, Dialect::Unalike) {
            schema::record_server(&database, &facts, &options, &recorded, &identity, &adopted.to_string()).await?;
        }
        // Last of all: until then nobody is granted anything at this place.
        if let Some(here) = here {
            place::accept(&database, &here).await?;
        }
        tracing::info!(
            database = database.at(),
            from = recorded,
            to = %adopted,
            lift,
            lifted,
            leases_from_ms,
            "adopted the server"
        );
        store.close().await;
        Ok(Adopted { tags: lifted, leases_from_ms, follows_itself: facts.has_own_changes() })
    }

    /// tinyid's tokens, each with a business type that it is valid for: the content of its table `tiny_id_token`,
    /// whichever tables this store uses. `None` where there is no such table.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when the user may not read it, and any error of the connection.
    pub async fn tinyid_tokens(&self) -> Result<Option<Vec<(String, String)>>, StoreError> {
        tinyid::tokens(&self.database).await
    }

    /// How far apart two numbers of a tag may lie.
    async fn stride(&self) -> Result<u64, StoreError> {
        let stripes = self.stripe().await?.map_or(1, |stripe| u64::from(stripe.numbering().1));
        let rows = match &self.options.dialect {
            Dialect::Tinyid => tinyid::stride(&self.database).await?,
            _ => 1,
        };
        Ok(stripes.max(rows))
    }

    /// Lifts the tags one by one, as every dialect can.
    async fn lift_each(&self, numbers: u64, kept_ms: u64) -> Result<u64, StoreError> {
        const PAGE: u32 = 1_000;
        let mut lifted = 0;
        let mut page = self.tags(None, PAGE).await?;
        while let Some(last) = page.last() {
            let after = last.tag.clone();
            for TagRecord { tag, watermark, .. } in &page {
                let numbers = if is_kept_time(tag) { kept_ms } else { numbers };
                match watermark.checked_add(numbers).map(|greatest| greatest + 1) {
                    Some(next) if next <= ID_MAX => drop(self.raise_tag(tag, next).await?),
                    _ if *watermark < ID_MAX => drop(self.retire_tag(tag).await?),
                    _ => {}
                }
                lifted += 1;
            }
            page = self.tags(Some(&after), PAGE).await?;
        }
        Ok(lifted)
    }
}

/// What became of a server that was adopted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// How many tags were lifted.
    pub tags: u64,
    /// The time from which workers are leased in every namespace, in Unix milliseconds.
    pub leases_from_ms: u64,
    /// Whether its own changes have come back to it from a replica. It is another one again with the next that does.
    pub follows_itself: bool,
}

/// What the operator vouches for is said once.
fn warn_of_assumptions(options: &MysqlOptions, facts: &ServerFacts) {
    if let Err(why) = facts.check_durability()
        && options.assume_durable
    {
        tracing::warn!(
            database = options.address,
            why,
            "commits may be lost; durability=assumed takes the server all the same"
        );
    }
}

#[async_trait]
impl unalike_storage::SegmentLayer for MysqlStore {
    fn below(&self) -> Option<&dyn SegmentStore> {
        Some(&*self.segments)
    }

    fn address(&self) -> Option<String> {
        Some(self.options.address())
    }

    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        identity::of(&self.database, &self.options, self.options.dialect.name()).await.map(Some)
    }

    async fn recorded_identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        identity::recorded(&self.database, self.options.dialect.name()).await
    }

    async fn leave_leases(&self, namespace: &str) -> Result<(), StoreError> {
        leases::leave(&self.database, &self.options, namespace).await
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        self.database.check_rows_read()?;
        self.segments.join_stripe(stripe).await
    }

    async fn restripe(&self, expected: Option<&Stripe>, stripe: Option<&Stripe>) -> Result<(), StoreError> {
        self.database.check_rows_read()?;
        self.segments.restripe(expected, stripe).await
    }

    async fn close(&self) {
        self.database.close().await;
    }
}
