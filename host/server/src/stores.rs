//! From the configuration to open stores: what the URL of a store means, and where its password comes from.
//!
//! A URL may hold a password, so it is never shown as it stands: not by `unalike config check`, not in the log, not in
//! errors. A password can also be kept apart, by a parameter that only this program knows and takes out:
//! `password-file=PATH`, or `password-env=NAME` for an environment variable.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use async_trait::async_trait;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::sync::OnceCell;
use unalike::storage::{
    Segment, SegmentStore, StoreError, Stripe, StripeNumbers, StripedStore, TagCreation, TagOptions, TagRecord,
    TailRelease, resize_stripes,
};
use unalike::{RefillPolicy, StepPolicy};
use unalike_mysql::{BatchTag, Dialect, MysqlOptions, MysqlStore};
use unalike_sqlite::{SqliteOptions, SqliteStore};
use url::Url;

use crate::channels::Declared;
use crate::commands::print;
use crate::config::Config;

/// What a URL of a store looks like, for messages.
const FORMS: &str = "write sqlite://PATH or mysql://USER@HOST/DATABASE";

/// A password file may have this many bytes.
const PASSWORD_BYTES_MAX: u64 = 4_096;

/// More stripes than this are no set.
const STRIPES_MAX: usize = 1_024;

/// The URL of a store. What shows it leaves the password out.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoreUrl(String);

/// One store, or several that number together: the stripes of a set, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreUrls(Vec<StoreUrl>);

/// What a URL names.
pub(crate) enum Place {
    Sqlite(PathBuf),
    Mysql(Box<MysqlOptions>),
}

impl StoreUrl {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// What it names, with the password.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(crate) fn place(&self) -> anyhow::Result<Place> {
        let Some((scheme, rest)) = self.0.split_once("://") else {
            bail!("the store {self:?} is no URL: {FORMS} (--store)");
        };
        match scheme {
            "sqlite" => {
                ensure!(!rest.is_empty(), "the store {self:?} names no file: write sqlite://PATH (--store)");
                Ok(Place::Sqlite(Path::new(rest).to_owned()))
            }
            "mysql" | "mariadb" => {
                let options = self.mysql().with_context(|| format!("the store {self:?} cannot be used"))?;
                Ok(Place::Mysql(Box::new(options)))
            }
            _ => bail!("the store's scheme {scheme:?} is unknown: {FORMS} (--store)"),
        }
    }

    fn mysql(&self) -> anyhow::Result<MysqlOptions> {
        let mut url = Url::parse(&self.0).context("it is no URL")?;
        let mut passwords = Vec::new();
        if url.password().is_some() {
            passwords.push(None);
        }
        let mut kept = Vec::new();
        for (name, value) in url.query_pairs().into_owned() {
            match name.as_str() {
                "password-file" => passwords.push(Some(read_password(Path::new(&value))?)),
                "password-env" => passwords.push(Some(
                    std::env::var(&value)
                        .with_context(|| format!("the variable {value:?}, which password-env names, has no text"))?,
                )),
                "password" => {
                    bail!("its password belongs before the @, into a password-file=PATH or a password-env=NAME")
                }
                _ => kept.push((name, value)),
            }
        }
        ensure!(passwords.len() <= 1, "its password is given in more than one way");
        url.set_query(None);
        if !kept.is_empty() {
            url.query_pairs_mut().extend_pairs(kept);
        }
        let options = MysqlOptions::from_url(url.as_str())?;
        Ok(match passwords.into_iter().flatten().next() {
            Some(password) => options.password(&password),
            None => options,
        })
    }

    /// The same server and database with the tables of another system.
    fn with_dialect(&self, dialect: &str, source_stopped: bool) -> anyhow::Result<Self> {
        let mut url = Url::parse(&self.0).context("the store's URL cannot be read")?;
        let is_shared = |name: &str| !matches!(name, "dialect" | "keys" | "cycle" | "source-stopped" | "create");
        let shared: Vec<_> = url.query_pairs().into_owned().filter(|(name, _)| is_shared(name)).collect();
        let mut pairs = url.query_pairs_mut();
        // Nothing is made where something is looked for.
        pairs.clear().extend_pairs(shared).append_pair("dialect", dialect).append_pair("create", "false");
        if source_stopped && dialect == "id-generator" {
            pairs.append_pair("source-stopped", "true");
        }
        drop(pairs);
        Ok(Self(url.into()))
    }

    /// The URL without its password.
    fn shown(&self) -> String {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("", &self.0));
        if scheme == "sqlite" {
            return self.0.clone();
        }
        // By what no parser has to understand: everything between a colon and the last @, and a parameter of that name.
        let rest = match rest.rsplit_once('@') {
            Some((user, place)) => format!("{}@{place}", user.split(':').next().unwrap_or_default()),
            None => rest.to_owned(),
        };
        let (place, query) = rest.split_once('?').unwrap_or((&rest, ""));
        let parameters: Vec<_> = query.split('&').filter(|pair| !pair.is_empty() && !is_secret(pair)).collect();
        let scheme = if scheme.is_empty() { String::new() } else { format!("{scheme}://") };
        let query = if parameters.is_empty() { String::new() } else { format!("?{}", parameters.join("&")) };
        format!("{scheme}{place}{query}")
    }
}

fn is_secret(parameter: &str) -> bool {
    let name = parameter.split('=').next().unwrap_or_default();
    name.contains('%') || name.eq_ignore_ascii_case("password")
}

fn read_password(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(PASSWORD_BYTES_MAX + 1).read_to_string(&mut text))
        .with_context(|| format!("the password file {} cannot be read", path.display()))?;
    ensure!(
        u64::try_from(text.len()).is_ok_and(|bytes| bytes <= PASSWORD_BYTES_MAX),
        "the password file {} is longer than {PASSWORD_BYTES_MAX} bytes",
        path.display()
    );
    // Editors end a file with a line's end.
    let password = text.trim_end_matches(['\r', '\n']);
    ensure!(!password.is_empty(), "the password file {} is empty", path.display());
    Ok(password.to_owned())
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.shown(), f)
    }
}

impl Serialize for StoreUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StoreUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

impl StoreUrls {
    /// One store.
    pub(crate) fn one(url: &str) -> Self {
        Self(vec![StoreUrl::new(url)])
    }

    pub(crate) fn of(urls: Vec<String>) -> Self {
        Self(urls.into_iter().map(StoreUrl::new).collect())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &StoreUrl> {
        self.0.iter()
    }

    /// The store, if there is just one.
    pub(crate) fn only(&self) -> Option<&StoreUrl> {
        if let [url] = self.0.as_slice() { Some(url) } else { None }
    }

    /// Checks each, and that none is there twice.
    ///
    /// # Errors
    /// Says what is wrong.
    pub(crate) fn validate(&self) -> anyhow::Result<()> {
        ensure!(!self.0.is_empty(), "there is no store: {FORMS} (--store)");
        ensure!(self.0.len() <= STRIPES_MAX, "there are {} stores, {STRIPES_MAX} at most are a set", self.0.len());
        let mut places = Vec::with_capacity(self.0.len());
        for url in &self.0 {
            let place = url.place()?.name()?;
            ensure!(!places.contains(&place), "the store {url:?} is given twice");
            places.push(place);
        }
        Ok(())
    }
}

impl fmt::Display for StoreUrls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<_> = self.0.iter().map(StoreUrl::shown).collect();
        f.write_str(&shown.join(", "))
    }
}

impl Serialize for StoreUrls {
    /// As it is written: one as text, several as a list.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.only() {
            Some(url) => url.serialize(serializer),
            None => self.0.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for StoreUrls {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a URL, or a list of URLs")]
        enum OneOrMore {
            One(StoreUrl),
            More(Vec<StoreUrl>),
        }
        Ok(match OneOrMore::deserialize(deserializer)? {
            OneOrMore::One(url) => Self(vec![url]),
            OneOrMore::More(urls) => Self(urls),
        })
    }
}

impl Place {
    /// Another one under which the same tags are found has the same.
    fn name(&self) -> anyhow::Result<String> {
        Ok(match self {
            Self::Sqlite(path) => {
                let path = std::path::absolute(path).with_context(|| format!("{} is no path", path.display()))?;
                format!("sqlite {}", path.canonicalize().unwrap_or(path).display())
            }
            Self::Mysql(options) => {
                format!("mysql {} {:?}", options.address(), std::mem::discriminant(&options.dialect))
            }
        })
    }
}

/// The open stores of a process.
pub(crate) struct Stores {
    /// Where sequences get their numbers.
    segments: Arc<dyn SegmentStore>,
    /// Where snowflakes get their workers.
    leases: Option<Arc<SqliteStore>>,
    /// Those among the first that are in MySQL.
    mysql: Vec<Arc<Mysql>>,
}

impl Stores {
    /// Opens what the configuration names.
    ///
    /// # Errors
    /// When one store cannot be used; of several, only when one is there and refuses, or none is there.
    pub(crate) async fn open(config: &Config) -> anyhow::Result<Self> {
        let creation = TagCreation { on_first_use: config.create_tags, tags_max: config.tags_max };
        let mut stores = Vec::new();
        let (mut sqlite, mut mysql) = (Vec::new(), Vec::new());
        let is_striped = config.store.only().is_none();
        for url in config.store.iter() {
            let opened = Opened::open(url, creation, is_striped).await?;
            stores.push(opened.segments());
            match opened {
                Opened::Sqlite(store) => sqlite.push(store),
                Opened::Mysql(store) => mysql.push(store),
            }
        }
        let segments = together(stores).await.with_context(|| cannot_open(&config.store))?;
        let leases = match &config.leases {
            Some(url) => Some(open_leases(url, &config.store, &sqlite).await?),
            None if is_striped => None,
            None => sqlite.pop(),
        };
        Ok(Self { segments, leases, mysql })
    }

    /// Where sequences get their numbers.
    pub(crate) fn segments(&self) -> &Arc<dyn SegmentStore> {
        &self.segments
    }

    /// Where snowflakes get their workers.
    pub(crate) fn leases(&self) -> Option<&Arc<SqliteStore>> {
        self.leases.as_ref()
    }

    /// Creates a tag as it is declared.
    ///
    /// # Errors
    /// As [`SegmentStore::create_tag`]; [`StoreError::TagInvalid`] for one that no store keeps.
    pub(crate) async fn create(&self, tag: &str, declared: &Declared) -> Result<TagRecord, StoreError> {
        let Some(options) = declared.options() else {
            let reason = "no store keeps a quick tag: declare it in the configuration, [tags.NAME]".to_owned();
            return Err(StoreError::TagInvalid { tag: tag.to_owned(), reason });
        };
        match self.segments.tag(tag).await {
            Ok(_) => return Err(StoreError::TagExists { tag: tag.to_owned() }),
            Err(StoreError::TagUnknown { .. }) => {}
            Err(error) => return Err(error),
        }
        if self.declare_batch(tag, declared).await? {
            return self.segments.tag(tag).await;
        }
        self.segments.create_tag(tag, &options).await
    }

    /// Makes sure that a tag is as it was declared; one that is unknown is created.
    ///
    /// # Errors
    /// When it is another one, or cannot be created.
    pub(crate) async fn declare(&self, tag: &str, declared: &Declared) -> anyhow::Result<()> {
        if *declared == Declared::Quick {
            return Ok(());
        }
        let failed = || format!("the tag {tag:?} cannot be as the configuration declares it");
        self.declare_batch(tag, declared).await.with_context(failed)?;
        let record = match self.segments.tag(tag).await {
            Err(StoreError::TagUnknown { .. }) => match self.create(tag, declared).await {
                // Another server was quicker.
                Err(StoreError::TagExists { .. }) => self.segments.tag(tag).await,
                created => created,
            },
            known => known,
        };
        match declared.compare(&record.with_context(failed)?) {
            Ok(None) => Ok(()),
            Ok(Some(remark)) => {
                tracing::warn!(tag, "{remark}");
                Ok(())
            }
            Err(reason) => Err(anyhow::anyhow!(reason)).with_context(failed),
        }
    }

    /// Tells the issuer's own tables what its unordered tags are like, which no column of theirs says; answers whether
    /// these are the store's.
    async fn declare_batch(&self, tag: &str, declared: &Declared) -> Result<bool, StoreError> {
        let Declared::Unordered(unordered) = declared else { return Ok(false) };
        let usual = BatchTag::default();
        let batch_tag = BatchTag {
            prefix: unordered.prefix.unwrap_or(usual.prefix),
            buff_size: unordered.buff_size,
            lowest_critical_value: unordered.lowest_critical_value,
            ..usual
        };
        let mut is_batch = false;
        for store in self.mysql.iter().filter(|store| store.options.dialect == Dialect::Batch) {
            store.connected().await?.declare_batch_tag(tag, &batch_tag).await?;
            is_batch = true;
        }
        Ok(is_batch)
    }

    /// Closes them. Not needed for safety.
    pub(crate) async fn close(&self) {
        self.segments.close().await;
        if let Some(leases) = &self.leases {
            leases.close().await;
        }
    }
}

async fn open_leases(
    url: &StoreUrl,
    stores: &StoreUrls,
    open: &[Arc<SqliteStore>],
) -> anyhow::Result<Arc<SqliteStore>> {
    let place = url.place().context("leases")?;
    let name = place.name()?;
    let Place::Sqlite(path) = place else {
        bail!("leases are kept in SQLite, and {url:?} is no such store: write sqlite://PATH (--leases)");
    };
    // The same file is opened once.
    let mut is_sqlite =
        stores.iter().filter_map(|url| url.place().ok()).filter(|place| matches!(place, Place::Sqlite(_)));
    if let Some(at) = is_sqlite.position(|place| place.name().is_ok_and(|other| other == name))
        && let Some(store) = open.get(at)
    {
        return Ok(Arc::clone(store));
    }
    let store = SqliteStore::connect(SqliteOptions::new(path)).await;
    Ok(Arc::new(store.with_context(|| format!("the store of leases {url} cannot be opened"))?))
}

/// One store, for commands that concern one: its tags are never created by being asked for.
///
/// # Errors
/// When it cannot be opened.
pub(crate) async fn open_one(url: &StoreUrl) -> anyhow::Result<Arc<dyn SegmentStore>> {
    let creation = TagCreation { on_first_use: false, ..TagCreation::default() };
    Ok(Opened::open(url, creation, false).await?.segments())
}

/// The store that tags are imported from: a URL, or the name of a dialect for other tables in the only store's
/// database.
///
/// # Errors
/// When there is no such, or when it is the store itself.
pub(crate) fn source(text: &str, stores: &StoreUrls, source_stopped: bool) -> anyhow::Result<StoreUrl> {
    let url = if text.contains("://") {
        StoreUrl::new(text)
    } else {
        ensure!(Dialect::named(text).is_some(), "{text:?} is neither a URL nor the name of a dialect, such as leaf");
        match stores.only() {
            Some(store) if matches!(store.place()?, Place::Mysql(_)) => store.with_dialect(text, source_stopped)?,
            _ => bail!(
                "{text:?} means other tables in the database of the store, but {stores} is no one MySQL database: give a URL, \
                 mysql://USER@HOST/DATABASE?dialect={text}"
            ),
        }
    };
    let name = url.place()?.name()?;
    for store in stores.iter() {
        ensure!(store.place()?.name()? != name, "the source {url} is the store itself");
    }
    Ok(url)
}

/// The tables of the first store that is in MySQL, or unalike's own.
///
/// # Errors
/// When a URL cannot be used.
pub(crate) fn dialect(stores: &StoreUrls) -> anyhow::Result<Dialect> {
    Ok(databases(stores)?.into_iter().next().map_or_else(Dialect::default, |options| options.dialect))
}

/// Those of the stores that are in MySQL.
fn databases(stores: &StoreUrls) -> anyhow::Result<Vec<MysqlOptions>> {
    let mut databases = Vec::new();
    for url in stores.iter() {
        if let Place::Mysql(options) = url.place()? {
            databases.push(*options);
        }
    }
    Ok(databases)
}

/// `unalike schema upgrade`
pub(crate) async fn upgrade(config: &Config) -> anyhow::Result<()> {
    let databases = databases(&config.store)?;
    ensure!(!databases.is_empty(), "the store {} has no tables in MySQL to upgrade (--store)", config.store);
    for options in databases {
        let address = options.address();
        MysqlStore::upgrade(options).await.with_context(|| format!("the tables in {address} cannot be upgraded"))?;
        print(&format!("{address}: the tables have the version of this program\n"))?;
    }
    Ok(())
}

/// `unalike store adopt`
pub(crate) async fn adopt(config: &Config, lift: u64) -> anyhow::Result<()> {
    let Some(url) = config.store.only() else {
        bail!("a server is adopted for one store: name it alone, not all of {} (--store)", config.store);
    };
    let Place::Mysql(options) = url.place()? else { bail!("the store {url} is a file, and has no server to adopt") };
    let address = options.address();
    let lifted = MysqlStore::adopt_server(*options, lift).await;
    let lifted = lifted.with_context(|| format!("the server behind {address} was not adopted"))?;
    print(&format!("{address}: the server is adopted, and {lifted} tags are lifted by {lift} numbers\n"))
}

/// `unalike stripes resize`
pub(crate) async fn resize(config: &Config, to: Vec<String>, floor: u64) -> anyhow::Result<()> {
    let to = StoreUrls::of(to);
    to.validate()?;
    // A store of both lists is one store.
    let mut open: Vec<(String, Arc<dyn SegmentStore>)> = Vec::new();
    let mut lists = [Vec::new(), Vec::new()];
    for (list, urls) in lists.iter_mut().zip([&config.store, &to]) {
        for url in urls.iter() {
            let name = url.place()?.name()?;
            let known = open.iter().find(|(known, _)| *known == name).map(|(_, store)| Arc::clone(store));
            let store = match known {
                Some(store) => store,
                None => {
                    let store = open_one(url).await?;
                    open.push((name, Arc::clone(&store)));
                    store
                }
            };
            list.push(store);
        }
    }
    let [from_stores, to_stores] = lists;
    let resized = resize_stripes(&from_stores, &to_stores, floor).await;
    for (_, store) in open {
        store.close().await;
    }
    resized.with_context(|| {
        format!("the stores {} are not resized yet: once that is mended, repeat the command", config.store)
    })?;
    print(&format!("the tags of {} go on in {to}: start the programs again with these\n", config.store))
}

/// A store that was opened by its kind.
enum Opened {
    Sqlite(Arc<SqliteStore>),
    Mysql(Arc<Mysql>),
}

impl Opened {
    async fn open(url: &StoreUrl, creation: TagCreation, may_be_down: bool) -> anyhow::Result<Self> {
        let failed = || format!("the store {url} cannot be opened");
        match url.place()? {
            Place::Sqlite(path) => {
                let mut options = SqliteOptions::new(path);
                options.creation = creation;
                Ok(Self::Sqlite(Arc::new(SqliteStore::connect(options).await.with_context(failed)?)))
            }
            Place::Mysql(mut options) => {
                options.creation = creation;
                let store = Arc::new(Mysql { options: *options, store: OnceCell::new() });
                match store.connected().await {
                    Ok(_) => {}
                    // Its stripes are left out until it is there.
                    Err(error @ StoreError::Unavailable { .. }) if may_be_down => {
                        tracing::warn!(%error, "the store {url} is down, and will be tried again");
                    }
                    Err(error) => return Err(error).with_context(failed),
                }
                Ok(Self::Mysql(store))
            }
        }
    }

    fn segments(&self) -> Arc<dyn SegmentStore> {
        match self {
            Self::Sqlite(store) => Arc::clone(store) as _,
            Self::Mysql(store) => Arc::clone(store) as _,
        }
    }
}

fn cannot_open(urls: &StoreUrls) -> String {
    format!("the store {urls} cannot be opened")
}

/// One store, or several as the stripes of one set.
async fn together(mut stores: Vec<Arc<dyn SegmentStore>>) -> Result<Arc<dyn SegmentStore>, StoreError> {
    if stores.len() == 1
        && let Some(store) = stores.pop()
    {
        return Ok(store);
    }
    Ok(Arc::new(StripedStore::open(stores).await?))
}

/// A database that may have been down when the program started: it is connected to when it is first needed.
struct Mysql {
    options: MysqlOptions,
    store: OnceCell<MysqlStore>,
}

impl Mysql {
    async fn connected(&self) -> Result<&MysqlStore, StoreError> {
        self.store.get_or_try_init(|| MysqlStore::connect(self.options.clone())).await
    }
}

#[async_trait]
impl SegmentStore for Mysql {
    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        self.connected().await?.allocate(tag, count, at_least).await
    }

    async fn release(&self, tag: &str, tail: TailRelease) -> Result<bool, StoreError> {
        self.connected().await?.release(tag, tail).await
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.connected().await?.open_tag(tag).await
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.connected().await?.tag(tag).await
    }

    async fn create_tag(&self, tag: &str, options: &TagOptions) -> Result<TagRecord, StoreError> {
        self.connected().await?.create_tag(tag, options).await
    }

    async fn change_tag(&self, tag: &str, step: StepPolicy, refill: RefillPolicy) -> Result<TagRecord, StoreError> {
        self.connected().await?.change_tag(tag, step, refill).await
    }

    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        self.connected().await?.raise_tag(tag, next).await
    }

    async fn retire_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.connected().await?.retire_tag(tag).await
    }

    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        self.connected().await?.tags(after, limit).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.connected().await?.check().await
    }

    async fn stripe(&self) -> Result<Option<Stripe>, StoreError> {
        self.connected().await?.stripe().await
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<StripeNumbers, StoreError> {
        self.connected().await?.join_stripe(stripe).await
    }

    async fn restripe(&self, stripe: Option<&Stripe>) -> Result<(), StoreError> {
        self.connected().await?.restripe(stripe).await
    }

    async fn close(&self) {
        if let Some(store) = self.store.get() {
            store.close().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        for (url, shown) in [
            ("mysql://ids:secret@db/ids", "mysql://ids@db/ids"),
            ("mysql://ids:se:cr@et@db:3307/ids?dialect=leaf", "mysql://ids@db:3307/ids?dialect=leaf"),
            ("mysql://ids:sec/ret?x@db/ids", "mysql://ids@db/ids"),
            ("mysql://ids@db/ids?password=secret&ssl-mode=required", "mysql://ids@db/ids?ssl-mode=required"),
            ("mysql://ids@db/ids?pass%77ord=secret", "mysql://ids@db/ids"),
            ("mysql://ids@db/ids?password-file=/run/db", "mysql://ids@db/ids?password-file=/run/db"),
            ("ids:secret@db/ids", "ids@db/ids"),
            ("sqlite:///home/a:b@c/ids.sqlite", "sqlite:///home/a:b@c/ids.sqlite"),
        ] {
            let url = StoreUrl::new(url);
            assert_eq!(url.to_string(), shown);
            assert_eq!(format!("{url:?}"), format!("{shown:?}"));
            assert_eq!(serde_json::to_value(&url).unwrap(), shown);
            let urls = StoreUrls(vec![url.clone(), url]);
            assert_eq!(urls.to_string(), format!("{shown}, {shown}"));
            if let Err(error) = urls.validate() {
                assert!(!format!("{error:?}").contains("secret"), "{error:?}");
            }
        }
    }

    #[test]
    fn a_password_comes_from_one_place() {
        let directory = tempfile_with("secret\n");
        let path = directory.join("password");
        let mysql = |query: &str| StoreUrl::new(format!("mysql://ids@db/ids?{query}")).place();
        assert!(mysql(&format!("password-file={}&dialect=leaf", path.display())).is_ok());
        std::fs::write(&path, "\n").unwrap();
        for (query, named) in [
            (format!("password-file={}", path.display()), "is empty"),
            ("password-file=/nowhere/at/all".to_owned(), "/nowhere/at/all cannot be read"),
            ("password-env=UNALIKE_NOBODY_SET_THIS".to_owned(), "UNALIKE_NOBODY_SET_THIS"),
            ("password=secret".to_owned(), "password-env=NAME"),
            ("colour=red".to_owned(), "colour"),
        ] {
            let error = format!("{:#}", mysql(&query).err().unwrap());
            assert!(error.contains(named) && !error.contains("secret"), "{error}");
        }
        let both = StoreUrl::new("mysql://ids:secret@db/ids?password-env=PATH").place().err().unwrap();
        assert!(format!("{both:#}").contains("more than one way"), "{both:#}");
        std::fs::remove_dir_all(directory).unwrap();
    }

    /// A directory of this test with a file `password`.
    fn tempfile_with(text: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("unalike-password-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("password"), text).unwrap();
        directory
    }

    #[test]
    fn a_dialect_s_name_means_other_tables_of_the_same_database() {
        let store = StoreUrls::one("mysql://ids:secret@db/ids?ssl-mode=required&create=true");
        let leaf = source("leaf", &store, false).unwrap();
        assert_eq!(leaf.to_string(), "mysql://ids@db/ids?ssl-mode=required&dialect=leaf&create=false");
        assert!(leaf.0.contains("secret"));
        let generator = source("id-generator", &store, true).unwrap();
        assert!(generator.to_string().ends_with("&source-stopped=true"), "{generator}");
        for (text, store, named) in [
            ("loof", &store, "loof"),
            ("unalike", &store, "the store itself"),
            ("mysql://other@db/ids", &store, "the store itself"),
            ("leaf", &StoreUrls::one("sqlite://ids.sqlite"), "dialect=leaf"),
            ("sqlite://./ids.sqlite", &StoreUrls::one("sqlite://ids.sqlite"), "the store itself"),
        ] {
            let error = format!("{:#}", source(text, store, false).unwrap_err());
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
