//! What the URL of a store means, and where its password comes from.
//!
//! A URL may hold a password, so it is never shown as it stands: not by `unalike config check`, not in the log, not in
//! errors. A password can also be kept apart, by a parameter that only this program knows and takes out:
//! `password-file=PATH`, or `password-env=NAME` for an environment variable.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use unalike::storage::StoreError;
use unalike_mysql::{Dialect, MysqlOptions};
use unalike_redis::{Dialect as RedisDialect, RedisOptions};
use unalike_sqlite::SqliteOptions;
use unalike_zookeeper::ZookeeperOptions;
use url::Url;

/// What a URL of a store looks like, for messages.
const FORMS: &str = "write sqlite://PATH, mysql://USER@HOST/DATABASE or redis://HOST/DATABASE";

/// In place of the URL of a watermark: there is none.
const NOTHING: &str = "none";

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

/// The options of the store that a URL names.
pub(crate) enum StoreOptions {
    Sqlite(Box<SqliteOptions>),
    Mysql(Box<MysqlOptions>),
    Redis(Box<RedisOptions>),
}

impl StoreUrl {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// What it names, with the password.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(crate) fn place(&self) -> anyhow::Result<StoreOptions> {
        let Some((scheme, _)) = self.0.split_once("://") else {
            bail!("the store {self:?} is not a URL: {FORMS}");
        };
        let failed = || format!("the store {self:?} cannot be used");
        match scheme {
            "sqlite" => Ok(StoreOptions::Sqlite(Box::new(SqliteOptions::from_url(&self.0)?))),
            "mysql" | "mariadb" => {
                let options = self.options(MysqlOptions::from_url, MysqlOptions::password).with_context(failed)?;
                Ok(StoreOptions::Mysql(Box::new(options)))
            }
            _ if self.is_redis() => {
                let options = self.options(RedisOptions::from_url, RedisOptions::password).with_context(failed)?;
                Ok(StoreOptions::Redis(Box::new(options)))
            }
            "zookeeper" => {
                bail!("ZooKeeper keeps leases and no numbers: name {self:?} as the store of leases (--leases)")
            }
            _ => bail!("the store's scheme {scheme:?} is unknown: {FORMS}"),
        }
    }

    /// ZooKeeper's servers, which keep leases alone, if its scheme is theirs.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(crate) fn zookeeper(&self) -> anyhow::Result<Option<ZookeeperOptions>> {
        if !self.0.starts_with("zookeeper://") {
            return Ok(None);
        }
        let failed = || format!("the store of leases {self:?} cannot be used");
        // Several hosts with ports are no URL to others.
        let (place, query) = self.0.split_once('?').unwrap_or((&self.0, ""));
        let (kept, passwords) = passwords_apart(query).with_context(failed)?;
        let is_twice =
            place.rsplit_once('@').is_some_and(|(user, _)| user.trim_start_matches("zookeeper://").contains(':'));
        ensure!(
            passwords.len() + usize::from(is_twice) <= 1,
            "the store of leases {self:?} has its password in more than one way"
        );
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(kept).finish();
        let options = ZookeeperOptions::from_url(&format!("{place}?{query}")).with_context(failed)?;
        Ok(Some(match passwords.first() {
            Some(password) => options.password(password),
            None => options,
        }))
    }

    /// Whether it names a file.
    pub(crate) fn is_file(&self) -> bool {
        self.0.starts_with("sqlite://")
    }

    /// Whether its scheme is one of Redis', those that are refused among them.
    pub(crate) fn is_redis(&self) -> bool {
        self.0.split_once("://").is_some_and(|(scheme, _)| scheme.starts_with("redis"))
    }

    /// The file that it names, if it names one.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(crate) fn file(&self) -> anyhow::Result<Option<PathBuf>> {
        if !self.0.starts_with("sqlite:") {
            return Ok(None);
        }
        Ok(match self.place()? {
            StoreOptions::Sqlite(options) => Some(options.path),
            StoreOptions::Mysql(_) | StoreOptions::Redis(_) => None,
        })
    }

    /// Whether it is the word for no store at all.
    pub(crate) fn is_nothing(&self) -> bool {
        self.0 == NOTHING
    }

    /// What an adapter makes of it, with the password from where it is kept.
    fn options<O>(
        &self,
        from_url: fn(&str) -> Result<O, StoreError>,
        with_password: fn(O, &str) -> O,
    ) -> anyhow::Result<O> {
        let (url, password) = self.read()?;
        let options = from_url(url.as_str())?;
        Ok(match password {
            Some(password) => with_password(options, &password),
            None => options,
        })
    }

    /// The URL as adapters know it, and the password if it is kept apart.
    fn read(&self) -> anyhow::Result<(Url, Option<String>)> {
        let mut url = Url::parse(&self.0).context("it is not a URL")?;
        // Else what follows such a character would be taken for the host's, and shown.
        ensure!(
            !url.path().contains('@') && url.fragment().is_none(),
            "its user and password must have @ / ? # percent-encoded (%40 %2F %3F %23)"
        );
        let (kept, passwords) = passwords_apart(url.query().unwrap_or_default())?;
        let is_twice = url.password().is_some() && !passwords.is_empty();
        ensure!(!is_twice && passwords.len() <= 1, "its password is given in more than one way");
        url.set_query(None);
        if !kept.is_empty() {
            url.query_pairs_mut().extend_pairs(kept);
        }
        Ok((url, passwords.into_iter().next()))
    }

    /// The same server and database with the tables or keys of another system, and with these parameters.
    pub(super) fn with_dialect(&self, dialect: &str, parameters: &str) -> anyhow::Result<Self> {
        let mut url = Url::parse(&self.0).context("the store's URL cannot be read")?;
        let is_shared = |name: &str| {
            !matches!(
                name,
                "dialect" | "keys" | "cycle" | "source-stopped" | "create" | "shard" | "epoch" | "horizon-ms"
            )
        };
        let shared: Vec<_> = url.query_pairs().into_owned().filter(|(name, _)| is_shared(name)).collect();
        let mut pairs = url.query_pairs_mut();
        pairs.clear().extend_pairs(shared).append_pair("dialect", dialect);
        if !self.is_redis() {
            // Nothing is made where something is looked for.
            pairs.append_pair("create", "false");
        }
        pairs.extend_pairs(form_urlencoded::parse(parameters.as_bytes()));
        drop(pairs);
        Ok(Self(url.into()))
    }

    /// The same after it was said that nothing else uses it, for a dialect that has to know.
    pub(super) fn stopped(self) -> anyhow::Result<Self> {
        let is_asked = match self.place()? {
            StoreOptions::Mysql(options) => {
                matches!(options.dialect, Dialect::IdGenerator { source_stopped: false, .. })
            }
            StoreOptions::Redis(options) => {
                matches!(options.dialect, RedisDialect::IdGenerator { source_stopped: false, .. })
            }
            StoreOptions::Sqlite(_) => false,
        };
        // Its dialect is a parameter, so there is a query.
        Ok(if is_asked { Self(format!("{}&source-stopped=true", self.0)) } else { self })
    }

    /// The URL without its password.
    fn shown(&self) -> String {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("", &self.0));
        if scheme == "sqlite" {
            return self.0.clone();
        }
        // By what no parser has to understand: everything between a colon and the last @, and a parameter of that name.
        let rest = match rest.rsplit_once('@') {
            Some((user, place)) => match user.split(':').next() {
                Some("") | None => place.to_owned(),
                Some(user) => format!("{user}@{place}"),
            },
            None => rest.to_owned(),
        };
        let (place, query) = rest.split_once('?').unwrap_or((&rest, ""));
        let parameters: Vec<_> = query.split('&').filter(|pair| !pair.is_empty() && !is_secret(pair)).collect();
        let scheme = if scheme.is_empty() { String::new() } else { format!("{scheme}://") };
        let query = if parameters.is_empty() { String::new() } else { format!("?{}", parameters.join("&")) };
        format!("{scheme}{place}{query}")
    }
}

/// Names and values.
type Parameters = Vec<(String, String)>;

/// The parameters of a query without those that say where the password is, and what they say.
fn passwords_apart(query: &str) -> anyhow::Result<(Parameters, Vec<String>)> {
    let (mut kept, mut passwords) = (Vec::new(), Vec::new());
    for (name, value) in form_urlencoded::parse(query.as_bytes()).into_owned() {
        match name.as_str() {
            "password-file" => passwords.push(read_password(Path::new(&value))?),
            "password-env" => passwords.push(
                std::env::var(&value)
                    .with_context(|| format!("the variable {value:?}, which password-env names, has no text"))?,
            ),
            "password" => {
                bail!("its password belongs before the @, into a password-file=PATH or a password-env=NAME")
            }
            _ => kept.push((name, value)),
        }
    }
    Ok((kept, passwords))
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

    /// The store, if it is one in Redis.
    pub(crate) fn redis(&self) -> Option<&StoreUrl> {
        self.only().filter(|url| url.is_redis())
    }

    /// Checks each, and that none is there twice.
    ///
    /// # Errors
    /// Says what is wrong.
    pub(crate) fn validate(&self) -> anyhow::Result<()> {
        ensure!(!self.0.is_empty(), "there is no store: {FORMS} (--store)");
        ensure!(self.0.len() <= STRIPES_MAX, "there are {} stores, {STRIPES_MAX} at most are a set", self.0.len());
        if self.only().is_none() {
            self.refuse_redis()?;
        }
        let mut places = Vec::with_capacity(self.0.len());
        for url in &self.0 {
            let place = url.place()?.name()?;
            ensure!(!places.contains(&place), "the store {url:?} is given twice");
            places.push(place);
        }
        Ok(())
    }

    /// # Errors
    /// When one of them is in Redis.
    pub(crate) fn refuse_redis(&self) -> anyhow::Result<()> {
        match self.0.iter().find(|url| url.is_redis()) {
            None => Ok(()),
            Some(url) => bail!(
                "the store {url:?} is in Redis, which is never one of several that number together: name it alone, with the \
                 durable store behind it (--watermark)"
            ),
        }
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

impl StoreOptions {
    /// Another one under which the same tags are found has the same.
    pub(crate) fn name(&self) -> anyhow::Result<String> {
        Ok(match self {
            Self::Sqlite(options) => {
                let path = &options.path;
                let path = std::path::absolute(path).with_context(|| format!("{} is not a path", path.display()))?;
                format!("sqlite {}", path.canonicalize().unwrap_or(path).display())
            }
            Self::Mysql(options) => {
                format!("mysql {} {:?}", options.address(), std::mem::discriminant(&options.dialect))
            }
            Self::Redis(options) => {
                let dialect = std::mem::discriminant(&options.dialect);
                format!("redis {} {dialect:?} {}", options.address(), options.prefix)
            }
        })
    }
}

/// Checks that what is in Redis says what stands behind it, and that nothing else has something there.
///
/// # Errors
/// Says what is wrong.
pub(crate) fn validate_watermark(
    stores: &StoreUrls,
    leases: Option<&StoreUrl>,
    watermark: Option<&StoreUrl>,
) -> anyhow::Result<()> {
    let leases = leases.filter(|url| url.is_redis());
    let Some(redis) = stores.redis().or(leases) else {
        ensure!(
            watermark.is_none(),
            "--watermark is what stands behind a store or leases in Redis, and {stores} is none: leave it out, or give a store \
             such as redis://HOST/DATABASE (--store, --leases)"
        );
        return Ok(());
    };
    if let Some(url) = stores.redis()
        && let StoreOptions::Redis(options) = url.place()?
    {
        ensure!(
            !matches!(options.dialect, RedisDialect::IdGenerator { .. }),
            "the store {redis:?} has keys that are only read: bring its tags into a store (unalike tags import --from URL)"
        );
    }
    let Some(watermark) = watermark else {
        let what = if stores.redis().is_some() { "numbers" } else { "the time of its leases" };
        bail!(
            "the store {redis:?} is in Redis, which may lose what it said: name the durable store that grants it {what} \
             (--watermark sqlite://PATH or mysql://USER@HOST/DATABASE), or say that there is none (--watermark none), and ids \
             are only as safe as Redis is"
        )
    };
    if watermark.is_nothing() {
        return Ok(());
    }
    ensure!(
        !watermark.is_redis(),
        "the watermark {watermark:?} is in Redis too: it must be durable, sqlite://PATH or mysql://USER@HOST/DATABASE, or none \
         (--watermark)"
    );
    watermark.place().context("--watermark").map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::config::tables::source;

    #[test]
    fn no_password_is_shown() {
        for (url, shown) in [
            ("mysql://ids:secret@db/ids", "mysql://ids@db/ids"),
            ("mysql://ids:se:cr@et@db:3307/ids?dialect=leaf", "mysql://ids@db:3307/ids?dialect=leaf"),
            ("mysql://ids:sec/ret?x@db/ids", "mysql://ids@db/ids"),
            ("mysql://ids@db/ids?password=secret&ssl-mode=required", "mysql://ids@db/ids?ssl-mode=required"),
            ("mysql://ids@db/ids?pass%77ord=secret", "mysql://ids@db/ids"),
            ("mysql://ids@db/ids?password-file=/run/db", "mysql://ids@db/ids?password-file=/run/db"),
            ("redis://ids:secret@cache:6380/1?ssl-ca=a", "redis://ids@cache:6380/1?ssl-ca=a"),
            ("rediss://:secret@cache", "rediss://cache"),
            ("redis://ids:12/secret@cache/0", "redis://ids@cache/0"),
            ("redis://ids:12#secret@cache/0", "redis://ids@cache/0"),
            ("zookeeper://ids:secret@a:1,b:2/c?leaf=d", "zookeeper://ids@a:1,b:2/c?leaf=d"),
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
        let place = |scheme: &str, query: &str| StoreUrl::new(format!("{scheme}://ids@db/0?{query}")).place();
        let mysql = |query: &str| place("mysql", query);
        let zookeeper = |query: &str| StoreUrl::new(format!("zookeeper://ids@a:1,b:2/c?{query}")).zookeeper();
        let redis = |query: &str| place("redis", query);
        assert!(mysql(&format!("password-file={}&dialect=leaf", path.display())).is_ok());
        assert!(redis(&format!("password-file={}&dialect=cosid", path.display())).is_ok());
        let options = zookeeper(&format!("password-file={}&leaf=d", path.display())).unwrap().unwrap();
        assert_eq!(options.address(), "a:1,b:2/c");
        std::fs::write(&path, "\n").unwrap();
        for (query, named) in [
            (format!("password-file={}", path.display()), "is empty"),
            ("password-file=/nowhere/at/all".to_owned(), "/nowhere/at/all cannot be read"),
            ("password-env=UNALIKE_NOBODY_SET_THIS".to_owned(), "UNALIKE_NOBODY_SET_THIS"),
            ("password=secret".to_owned(), "password-env=NAME"),
            ("colour=red".to_owned(), "colour"),
        ] {
            for place in [mysql(&query).err(), redis(&query).err(), zookeeper(&query).err()] {
                let error = format!("{:#}", place.unwrap());
                assert!(error.contains(named) && !error.contains("secret"), "{error}");
            }
        }
        let both = StoreUrl::new("mysql://ids:secret@db/ids?password-env=PATH").place().err().unwrap();
        assert!(format!("{both:#}").contains("more than one way"), "{both:#}");
        let both = StoreUrl::new("zookeeper://ids:secret@a?password-env=PATH").zookeeper().err().unwrap();
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
        let store = over("mysql://ids:secret@db/ids?ssl-mode=required&create=true", None);
        let leaf = source("leaf", &store, false).unwrap();
        assert_eq!(leaf.to_string(), "mysql://ids@db/ids?ssl-mode=required&dialect=leaf&create=false");
        assert!(leaf.0.contains("secret"));
        let generator = source("id-generator?keys=order:1", &store, true).unwrap();
        assert!(generator.to_string().ends_with("&keys=order%3A1&source-stopped=true"), "{generator}");
        let redis = over("rediss://:secret@cache/2?dialect=clock&shard=5&ssl-ca=ca.pem", Some("mysql://db/ids"));
        let generator = source("id-generator?keys=order:id_order", &redis, false).unwrap();
        assert_eq!(generator.to_string(), "rediss://cache/2?ssl-ca=ca.pem&dialect=id-generator&keys=order%3Aid_order");
        assert!(generator.0.contains("secret"));
        for (text, store, named) in [
            ("loof", &store, "loof"),
            ("unalike", &store, "the store itself"),
            ("mysql://other@db/ids", &store, "the store itself"),
            ("leaf", &over("sqlite://ids.sqlite", None), "mysql://USER@HOST/DATABASE?dialect=leaf"),
            ("cosid", &over("sqlite://ids.sqlite", None), "or redis://HOST/DATABASE?dialect=cosid"),
            ("clock", &store, "redis://HOST/DATABASE?dialect=clock"),
            ("sqlite://./ids.sqlite", &over("sqlite://ids.sqlite", None), "the store itself"),
            ("clock", &redis, "the store itself"),
            ("mysql://other@db/ids", &redis, "the store itself"),
            ("leaf", &redis, "mysql://USER@HOST/DATABASE?dialect=leaf"),
        ] {
            let error = format!("{:#}", source(text, store, false).unwrap_err());
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    fn over(store: &str, watermark: Option<&str>) -> Config {
        Config { store: StoreUrls::one(store), watermark: watermark.map(StoreUrl::new), ..Config::default() }
    }

    #[test]
    fn a_number_of_another_system_is_read_once_that_is_stopped() {
        let said = |url: &str| StoreUrl::new(url).stopped().unwrap().0;
        for url in ["redis://h?dialect=id-generator&keys=a:b", "mysql://h/db?dialect=id-generator&keys=a:1"] {
            assert_eq!(said(url), format!("{url}&source-stopped=true"));
            assert_eq!(said(&said(url)), said(url));
        }
        for url in ["sqlite://ids.sqlite", "mysql://h/db?dialect=leaf", "redis://h?dialect=cosid"] {
            assert_eq!(said(url), url);
        }
    }
}
