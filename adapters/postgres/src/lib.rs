//! Segments and leases in PostgreSQL: in tables of unalike's own, or blocks of existing sequences.
//!
//! | [`Dialect`] | where | what it is |
//! | --- | --- | --- |
//! | `Unalike` | the table `unalike_tag` | unalike's own, the default: one statement per grant, tails given back |
//! | `Sequence` | `CREATE SEQUENCE` | blocks of a sequence that other programs use too |
//!
//! Every connection is set and checked before it is used: commits must be durable, and the server must be the one that
//! was used before ([`PostgresOptions::assume_durable`], [`PostgresOptions::assume_identity`]). Each statement that
//! grants states as its condition that it runs in that very session, so a pooler that runs it elsewhere is granted
//! nothing there. A statement whose answer is lost counts as done, and what it granted is never offered again.
//!
//! Tested on PostgreSQL 15.

mod database;
mod error;
mod fence;
mod leases;
mod record;
mod schema;
mod segments;
mod sequence;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use unalike_storage::{ID_MAX, JoinedStripe, LeaseLimits, SegmentLayer, SegmentStore, StoreError, Stripe, TagCreation};
use url::Url;

use crate::database::Database;
use crate::fence::ServerFacts;
pub use crate::leases::PostgresLeases;
use crate::record::Record;
use crate::schema::{STORE, TAG};
use crate::segments::OwnTables;
use crate::sequence::Sequences;

/// How a certificate begins in a file.
const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// How much further than a horizon Redis asks for time for its leases, at most.
const KEPT_LEAD_MS: u64 = 60_000;

/// Where the database is, and how it is used.
///
/// ```
/// use unalike_postgres::{Dialect, PostgresOptions};
/// let options = PostgresOptions::from_url("postgres://ids@db.example/shop?dialect=sequence")?.password("secret");
/// assert_eq!(options.dialect, Dialect::Sequence { optimizer: unalike_postgres::Optimizer::Pooled });
/// assert_eq!(options.address(), "db.example:5432/shop");
/// # Ok::<(), unalike_storage::StoreError>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct PostgresOptions {
    connect: PgConnectOptions,
    address: String,
    ssl_ca: Option<PathBuf>,
    /// Where tags are kept.
    pub dialect: Dialect,
    /// The schema that has the tables or sequences. By default the first of the user's search path that has a store, so
    /// that a new schema before it begins none by itself; or else the first.
    pub schema: Option<String>,
    /// Create tables that are missing, if the user may. `true` by default.
    pub create_tables: bool,
    /// Whether tags are created on first use, and how many there may be. Sequences never are.
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
    /// Do not refuse a server that is not the one that was used before. The promise that no id repeats is then the
    /// operator's.
    pub assume_identity: bool,
    /// Whether each grant waits until a synchronous standby has it, so that one that is promoted is used without being
    /// adopted. By default as it is recorded in the store, which is `false` in a new one.
    pub waits_for_standby: Option<bool>,
    /// Read sequences also where no store was begun beside them, and begin none: nothing is granted then. No parameter
    /// of the URL.
    pub only_looks: bool,
}

/// Where tags are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// In a table of unalike's own.
    #[default]
    Unalike,
    /// Each is a sequence of the schema, by its name.
    Sequence {
        /// Which numbers a value of the sequence stands for, where it counts by more than 1.
        optimizer: Optimizer,
    },
}

/// Which numbers a value of a sequence with `INCREMENT BY n` stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Optimizer {
    /// Those that end with it, as in Hibernate's pooled optimizer: `value - n + 1` to `value`.
    #[default]
    Pooled,
    /// Those that begin with it, as in Hibernate's pooled-lo optimizer: `value` to `value + n - 1`.
    PooledLo,
}

impl PostgresOptions {
    /// Those of the URL.
    const PARAMETERS: &str = "dialect, schema, ssl-mode, ssl-ca, create, connections, connect-timeout-ms, \
        request-timeout-ms, durability, identity, failover, password-file, password-env, and with dialect=sequence \
        optimizer";

    /// Reads `postgres://USER[:PASSWORD]@HOST[:PORT]/DATABASE[?PARAMETERS]`.
    ///
    /// | parameter | meaning | default |
    /// | --- | --- | --- |
    /// | `dialect` | `unalike`, or `sequence`: [`Dialect`] | `unalike` |
    /// | `optimizer` | `pooled` or `pooled-lo`, after `dialect=sequence`: [`Optimizer`] | `pooled` |
    /// | `schema` | [`schema`](Self::schema) | the first of the search path that has a store, or else the first |
    /// | `ssl-mode`, `sslmode` | `disable`, `allow`, `prefer`, `require`, `verify-ca`, `verify-full` | `prefer` |
    /// | `ssl-ca`, `sslrootcert` | a file with the certificates of the authorities to trust, for `verify-..` | the system's |
    /// | `create` | `false`: no table is created | `true` |
    /// | `connections` | [`connections_max`](Self::connections_max) | 10 |
    /// | `connect-timeout-ms`, `request-timeout-ms` | milliseconds, 1 to 600000 | 3000, 5000 |
    /// | `durability` | `checked`, or `assumed`: [`assume_durable`](Self::assume_durable) | `checked` |
    /// | `identity` | `checked`, or `assumed`: [`assume_identity`](Self::assume_identity) | `checked` |
    /// | `failover` | `refused`, or `synchronous`: [`waits_for_standby`](Self::waits_for_standby) | as recorded |
    ///
    /// # Errors
    /// [`StoreError::Refused`] saying which part is wrong. No message holds the password.
    pub fn from_url(text: &str) -> Result<Self, StoreError> {
        let mut url = Url::parse(text)
            .map_err(|error| StoreError::refused(format!("the store's URL cannot be read: {error}")))?;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return Err(StoreError::refused(format!("the store's scheme is {:?}, it must be postgres", url.scheme())));
        }
        let lacks = |what: &str| {
            StoreError::refused(format!("the store's URL names no {what}: write postgres://USER@HOST/DATABASE"))
        };
        let host = url.host_str().filter(|host| !host.is_empty()).unwrap_or("localhost").to_owned();
        let database = url.path().trim_start_matches('/').to_owned();
        if database.is_empty() {
            return Err(lacks("database"));
        }
        // The driver would take the system's user.
        if url.username().is_empty() {
            return Err(lacks("user"));
        }
        let address = format!("{}:{}/{database}", host.replace("%2F", "/"), url.port().unwrap_or(5432));
        let mut parameters: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        // Others depend on it.
        parameters.sort_by_key(|(name, _)| name != "dialect");
        url.set_query(None);
        let connect: PgConnectOptions = sqlx::ConnectOptions::from_url(&url).map_err(|error| StoreError::Refused {
            what: format!("the URL of the store at {address} cannot be used"),
            source: Some(Box::new(error)),
        })?;
        let connect = connect.port(url.port().unwrap_or(5432)).ssl_mode(PgSslMode::Prefer);
        let mut options = Self {
            // A pooler may refuse parameters that it does not know.
            connect: connect.extra_float_digits(None).application_name("unalike"),
            address,
            ssl_ca: None,
            dialect: Dialect::Unalike,
            schema: None,
            create_tables: true,
            creation: TagCreation::default(),
            limits: LeaseLimits::default(),
            connections_max: 10,
            connect_timeout: Duration::from_secs(3),
            request_timeout: Duration::from_secs(5),
            assume_durable: false,
            assume_identity: false,
            waits_for_standby: None,
            only_looks: false,
        };
        for (name, value) in parameters {
            options.set(&name, &value)?;
        }
        let is_checked = matches!(options.connect.get_ssl_mode(), PgSslMode::VerifyCa | PgSslMode::VerifyFull);
        if options.ssl_ca.is_some() && !is_checked {
            return Err(StoreError::refused(
                "the store's parameter ssl-ca needs ssl-mode=verify-full or verify-ca: no certificate is checked without one",
            ));
        }
        options.creation.on_first_use = options.dialect == Dialect::Unalike;
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
            "optimizer" => {
                let Dialect::Sequence { optimizer } = &mut self.dialect else {
                    return Err(StoreError::refused(format!(
                        "the store's parameter {name} needs dialect=sequence beside it"
                    )));
                };
                *optimizer = match value {
                    "pooled" => Optimizer::Pooled,
                    "pooled-lo" => Optimizer::PooledLo,
                    _ => return Err(expected("pooled or pooled-lo")),
                };
            }
            "schema" if value.is_empty() || value.contains('\0') => return Err(expected("the name of a schema")),
            "schema" => self.schema = Some(value.to_owned()),
            "ssl-mode" | "sslmode" => {
                let mode: PgSslMode =
                    value.parse().map_err(|_| expected("disable, allow, prefer, require, verify-ca or verify-full"))?;
                self.connect = self.connect.clone().ssl_mode(mode);
            }
            "ssl-ca" | "sslrootcert" => self.ssl_ca = Some(PathBuf::from(value)),
            "create" => self.create_tables = value.parse().map_err(|_| expected("true or false"))?,
            "connections" => {
                self.connections_max = u32::try_from(whole(1..=10_000)?).unwrap_or(u32::MAX);
            }
            "connect-timeout-ms" => self.connect_timeout = Duration::from_millis(whole(1..=600_000)?),
            "request-timeout-ms" => self.request_timeout = Duration::from_millis(whole(1..=600_000)?),
            "durability" => self.assume_durable = assumed()?,
            "identity" => self.assume_identity = assumed()?,
            "failover" => {
                self.waits_for_standby = match value {
                    "refused" => Some(false),
                    "synchronous" => Some(true),
                    _ => return Err(expected("refused or synchronous")),
                };
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

    /// What connections are opened with.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when the file of `ssl-ca` cannot be read.
    pub(crate) fn connect_options(&self) -> Result<PgConnectOptions, StoreError> {
        let connect = self.connect.clone();
        let Some(path) = &self.ssl_ca else { return Ok(connect) };
        let why = format!("the certificates in {} (ssl-ca) cannot be read", path.display());
        let pem = std::fs::read(path).map_err(|error| StoreError::refused(why.clone()).with_source(error))?;
        if !pem.windows(CERTIFICATE.len()).any(|text| text == CERTIFICATE) {
            return Err(StoreError::refused(format!("{why}: it holds no certificate in PEM")));
        }
        Ok(connect.ssl_root_cert_from_pem(pem))
    }
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the password.
        f.debug_struct("PostgresOptions")
            .field("address", &self.address)
            .field("dialect", &self.dialect)
            .finish_non_exhaustive()
    }
}

impl Dialect {
    const NAMES: &str = "unalike or sequence";

    /// By the name that URLs have for it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "unalike" => Some(Self::Unalike),
            "sequence" => Some(Self::Sequence { optimizer: Optimizer::default() }),
            _ => None,
        }
    }

    /// Its name, as URLs and records have it.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Unalike => "unalike",
            Self::Sequence { .. } => "sequence",
        }
    }

    /// The tables that it cannot do without.
    fn tables(self) -> &'static [schema::Shape] {
        match self {
            Self::Unalike => &[STORE, TAG],
            Self::Sequence { .. } => &[STORE],
        }
    }

    /// The statements that create its tables, `unalike_store` among them, for those who do not let programs do it.
    ///
    /// Beside sequences, `unalike_tag` keeps their formats. Who shows no sequence in a format can do without it.
    #[must_use]
    pub fn ddl(&self) -> Vec<String> {
        schema::ddl(&[STORE, TAG])
    }

    /// Tables, and the least privileges on each, once the tables exist. Sequences are in `schema`, by default in
    /// `public`.
    ///
    /// ```
    /// use unalike_postgres::{Dialect, Optimizer};
    /// let privileges = Dialect::Sequence { optimizer: Optimizer::Pooled }.privileges(Some("shop"));
    /// assert!(privileges.contains(&("ALL SEQUENCES IN SCHEMA \"shop\"".to_owned(), "SELECT, USAGE")));
    /// ```
    #[must_use]
    pub fn privileges(&self, schema: Option<&str>) -> Vec<(String, &'static str)> {
        let mut privileges = schema::privileges(&[STORE, TAG]);
        if let Self::Sequence { .. } = self {
            let schema =
                schema.map_or_else(|| "public".to_owned(), |name| format!("\"{}\"", name.replace('"', "\"\"")));
            privileges.push((format!("ALL SEQUENCES IN SCHEMA {schema}"), "SELECT, USAGE"));
        }
        privileges
    }
}

/// Segments in one database; clones share its connections.
#[derive(Clone, Debug)]
pub struct PostgresStore {
    database: Database,
    options: PostgresOptions,
    /// What the dialect makes of it.
    segments: Arc<dyn DialectStore>,
}

/// A dialect's way to keep segments.
trait DialectStore: SegmentStore + fmt::Debug {}

impl<S: SegmentStore + fmt::Debug> DialectStore for S {}

impl PostgresStore {
    /// Connects, checks the server, and creates the tables that are missing if that is allowed.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the server does not answer, or is in recovery; [`StoreError::Refused`] when it
    /// denies access, when its commits are not durable, when it is another server than before, and when its tables are
    /// missing or are not what grants rest on. Each says what to do.
    pub async fn connect(options: PostgresOptions) -> Result<Self, StoreError> {
        let (database, facts) = Database::connect(&options, options.dialect.name()).await?;
        warn_of_assumptions(&options, &facts);
        let looks_beside = options.only_looks && options.dialect != Dialect::Unalike;
        // While no server is expected, every fence is closed.
        if !looks_beside || schema::has_begun(&database).await? {
            schema::open(&database, &options).await?;
            schema::open_tables(&database, &options, options.dialect.tables()).await?;
        }
        let segments: Arc<dyn DialectStore> = match options.dialect {
            Dialect::Unalike => {
                Arc::new(OwnTables { database: database.clone(), creation: options.creation, joined: None })
            }
            Dialect::Sequence { optimizer } => Arc::new(Sequences::new(database.clone(), optimizer, options.clone())),
        };
        Ok(Self { database, options, segments })
    }

    /// Leases in the same database, over the same connections; creates their tables if they are missing and that is
    /// allowed. Closing either closes both.
    ///
    /// ```no_run
    /// # async fn open() -> Result<(), unalike_storage::StoreError> {
    /// use unalike_postgres::{PostgresOptions, PostgresStore};
    /// let store = PostgresStore::connect(PostgresOptions::from_url("postgres://ids@db.example/ids")?).await?;
    /// let leases = store.leases().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`PostgresLeases::connect`].
    pub async fn leases(&self) -> Result<PostgresLeases, StoreError> {
        PostgresLeases::open(&self.database, &self.options).await
    }

    /// Makes sure that the tables have the version of this program, which is the only one so far.
    ///
    /// # Errors
    /// As [`PostgresStore::connect`].
    pub async fn upgrade(options: PostgresOptions) -> Result<(), StoreError> {
        Self::connect(options).await?.database.close().await;
        Ok(())
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
    /// With [`Dialect::Sequence`] each sequence that the user may use, and that can be a tag, is drawn from, `lift`
    /// times: the programs beside this one know nothing of a fail-over. A sequence that was lost, or is made later,
    /// begins at its own `START`. Each dialect is adopted by itself, the leases with either.
    ///
    /// Time that this database granted to Redis is lifted too, but not by `lift`, which counts ids: it continues as far
    /// ahead as any lease may have reached.
    ///
    /// Leases need no figure. None is granted before all that the old server may have granted have ended: the horizon
    /// of the namespace from now on, and `limits.max_skew_ms`, by which the clocks of the two servers may differ. The
    /// leases from before are not extended. A namespace that is used here for the first time, since this server may
    /// have lost it, waits for the longest horizon that any program ever came with, `limits.max_horizon_ms` included.
    ///
    /// # Errors
    /// As [`PostgresStore::connect`]; [`StoreError::Refused`] for a lift of 0 or above 2^63 - 1, and when the server is
    /// the recorded one already.
    pub async fn adopt_server(options: PostgresOptions, lift: u64) -> Result<Adopted, StoreError> {
        Self::go_on(options, lift, false).await
    }

    /// Continues with data that were restored from a backup, of whatever kind: as [`PostgresStore::adopt_server`], and
    /// also where nothing tells that anything was restored. `lift` has to be more than was granted since the backup,
    /// under any one name; a name that the backup lacks begins that far above its start, unless it is a sequence.
    /// Repeated, it lifts again.
    ///
    /// # Errors
    /// As [`PostgresStore::adopt_server`], but for a server that is the recorded one.
    pub async fn restored(options: PostgresOptions, lift: u64) -> Result<Adopted, StoreError> {
        Self::go_on(options, lift, true).await
    }

    async fn go_on(options: PostgresOptions, lift: u64, is_restored: bool) -> Result<Adopted, StoreError> {
        if lift == 0 || lift > ID_MAX {
            return Err(StoreError::refused(format!(
                "tags were to be lifted by {lift} numbers, it must be 1 to 2^63 - 1"
            )));
        }
        options.limits.validate()?;
        let (database, facts) = Database::connect(&options, options.dialect.name()).await?;
        let refused = |why: String| StoreError::refused(format!("the server at {}: {why}", database.at()));
        schema::open_tables(&database, &options, options.dialect.tables()).await?;
        let Some((before, _)) = schema::read(&database).await? else {
            return Err(refused(
                "unalike has no store in this database, so nothing was lifted: check the name of the database"
                    .to_owned(),
            ));
        };
        let found = facts.identity().map_err(refused)?;
        if before.server == Some(found) && !is_restored {
            return Err(refused(format!(
                "it is the recorded one already ({before}). If its data were restored from a backup, say so with `unalike store \
                 restored --lift COUNT`"
            )));
        }
        let is_synchronous = options.waits_for_standby.unwrap_or(before.is_synchronous);
        if is_synchronous {
            facts.check_synchronous().map_err(refused)?;
        }
        let record = Record::new(Some(found), is_synchronous)?;
        // They may have been lost too.
        database.expect(&facts, record);
        PostgresLeases::open(&database, &options).await?;
        // As far ahead as time was ever granted to leases, by any program.
        let kept_ms = leases::longest_horizon_ms(&database).await?.saturating_add(KEPT_LEAD_MS);
        let drawn_from = match options.dialect {
            // Before the server is recorded: until then nobody is granted anything here.
            Dialect::Sequence { optimizer } => {
                Sequences::new(database.clone(), optimizer, options.clone()).draw_from_all(lift).await?
            }
            Dialect::Unalike => 0,
        };
        let mut turn = database.begin_long("adopting the server").await?;
        schema::lock_tables(&mut turn, &database).await?;
        let leases_from_ms = leases::quarantine(&mut turn, &database, options.limits).await?;
        let lifted = match options.dialect {
            Dialect::Unalike => segments::lift_all(&mut turn, &database, (lift, kept_ms), record).await?,
            Dialect::Sequence { .. } => drawn_from,
        };
        if !schema::replace_record(&mut turn, &database, before, record).await? {
            turn.roll_back().await?;
            return Err(refused("another program adopted it just now".to_owned()));
        }
        if is_restored {
            schema::unsettle_others(&mut turn, &database, leases::LEASES).await?;
        }
        turn.commit().await?;
        tracing::info!(database = database.at(), from = %before, to = %record, lift, lifted, leases_from_ms, "adopted the server");
        database.close().await;
        Ok(Adopted { tags: lifted, leases_from_ms })
    }
}

/// What became of a server that was adopted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// How many tags were lifted.
    pub tags: u64,
    /// The time from which workers are leased in every namespace, in Unix milliseconds.
    pub leases_from_ms: u64,
}

/// What the operator vouches for is said once.
pub(crate) fn warn_of_assumptions(options: &PostgresOptions, facts: &ServerFacts) {
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
impl SegmentLayer for PostgresStore {
    fn below(&self) -> Option<&dyn SegmentStore> {
        Some(&*self.segments)
    }

    fn address(&self) -> Option<String> {
        Some(self.options.address())
    }

    async fn leave_leases(&self, namespace: &str) -> Result<(), StoreError> {
        leases::leave(&self.database, &self.options, namespace).await
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        self.segments.join_stripe(stripe).await
    }
}
