//! The URL of a store as it is written, and where its password comes from.
//!
//! A URL may hold a password, so it is never shown in full: not by `unalike config check`, not in the log, not in
//! errors. A password can also be kept apart, by a parameter that only this program knows and takes out:
//! `password-file=PATH`, or `password-env=NAME` for an environment variable.

use std::fmt;
use std::io::Read as _;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use unalike_storage::StoreError;
use url::Url;

use crate::error::{Because as _, PlaceError};

/// In place of the URL of a backing store or of leases: there is none.
const NOTHING: &str = "none";

/// A password file may have this many bytes.
const PASSWORD_BYTES_MAX: u64 = 4_096;

/// The URL of a store. What shows it leaves the password out.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl(String);

impl StoreUrl {
    /// A URL as it is written. Nothing is checked yet: [`place`](Self::place) does.
    ///
    /// ```
    /// use unalike_stores::StoreUrl;
    /// assert_eq!(StoreUrl::new("mysql://ids:secret@db/ids").to_string(), "mysql://ids@db/ids");
    /// ```
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// As it is written, with the password.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// What comes before `://`.
    pub fn scheme(&self) -> Option<&str> {
        self.0.split_once("://").map(|(scheme, _)| scheme)
    }

    /// The same with one more parameter, after those that it has.
    pub(crate) fn and(&self, parameter: &str) -> Self {
        Self(format!("{}&{parameter}", self.0))
    }

    /// Whether it is the word for no store at all.
    pub fn is_nothing(&self) -> bool {
        self.0 == NOTHING
    }

    /// What an adapter makes of it, with the password from where it is kept.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(crate) fn options<O>(
        &self,
        from_url: fn(&str) -> Result<O, StoreError>,
        with_password: fn(O, &str) -> O,
    ) -> Result<O, PlaceError> {
        let failed = || format!("the store {self:?} cannot be used");
        let (url, password) = self.read().because(failed)?;
        let options = from_url(url.as_str()).because(failed)?;
        Ok(match password {
            Some(password) => with_password(options, &password),
            None => options,
        })
    }

    /// [`StoreUrl::options`] of a store on several hosts with ports, which other parsers do not take for a URL.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(crate) fn options_of_hosts<O>(
        &self,
        from_url: fn(&str) -> Result<O, StoreError>,
        with_password: fn(O, &str) -> O,
    ) -> Result<O, PlaceError> {
        let failed = || format!("the store {self:?} cannot be used");
        let (place, query) = self.0.split_once('?').unwrap_or((&self.0, ""));
        // Else what stands before it would be taken for the host's, and shown.
        if query.contains('@') {
            return Err(PlaceError::new(format!("{}: {UNENCODED}", failed())));
        }
        let (kept, passwords) = passwords_apart(query).because(failed)?;
        let user = place.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@')).map(|(user, _)| user);
        let is_twice = user.is_some_and(|user| user.contains(':'));
        if passwords.len() + usize::from(is_twice) > 1 {
            return Err(PlaceError::new(format!("{}: its password is given in more than one way", failed())));
        }
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(kept).finish();
        let options = from_url(&format!("{place}?{query}")).because(failed)?;
        Ok(match passwords.first() {
            Some(password) => with_password(options, password),
            None => options,
        })
    }

    /// The URL as adapters know it, and the password if it is kept apart.
    fn read(&self) -> Result<(Url, Option<String>), PlaceError> {
        let mut url = Url::parse(&self.0).because(|| "it is not a URL".to_owned())?;
        // Else what follows such a character would be taken for the host's, and shown.
        let has_at = url.path().contains('@') || url.query().is_some_and(|query| query.contains('@'));
        if has_at || url.fragment().is_some() {
            return Err(PlaceError::new(UNENCODED));
        }
        let (kept, passwords) = passwords_apart(url.query().unwrap_or_default())?;
        let is_twice = url.password().is_some() && !passwords.is_empty();
        if is_twice || passwords.len() > 1 {
            return Err(PlaceError::new("its password is given in more than one way: keep one"));
        }
        url.set_query(None);
        if !kept.is_empty() {
            url.query_pairs_mut().extend_pairs(kept);
        }
        Ok((url, passwords.into_iter().next()))
    }

    /// The same server and database with the tables or keys of another system, and with these parameters. Where tables
    /// are created for it, none are.
    pub(crate) fn of_dialect(&self, dialect: &str, parameters: &str, is_created: bool) -> Self {
        // Not by a parser, which would not take several hosts for a URL.
        let (place, query) = self.0.split_once('?').unwrap_or((&self.0, ""));
        let is_shared = |name: &str| {
            !matches!(
                name,
                "dialect" | "keys" | "cycle" | "source-stopped" | "create" | "shard" | "epoch" | "horizon-ms"
            )
        };
        let mut pairs = form_urlencoded::Serializer::new(String::new());
        pairs.extend_pairs(form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| is_shared(name)));
        pairs.append_pair("dialect", dialect);
        if is_created {
            // Nothing is made where something is looked for.
            pairs.append_pair("create", "false");
        }
        pairs.extend_pairs(form_urlencoded::parse(parameters.as_bytes()));
        Self(format!("{place}?{}", pairs.finish()))
    }

    /// The URL without its password.
    fn shown(&self) -> String {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("", &self.0));
        // A path without its slashes is no secret either.
        let is_path = scheme.is_empty() && self.0.starts_with("sqlite:") && !self.0.contains(['@', '?']);
        if scheme == "sqlite" || is_path {
            return self.0.clone();
        }
        // By what no parser has to understand: everything between a colon and the last @, and a parameter of that name.
        let rest = match rest.rsplit_once('@') {
            Some((user, place)) => match user.split(':').next() {
                Some("") | None => place.to_owned(),
                Some(user) => format!("{user}@{place}"),
            },
            None => without_words_for_ports(rest),
        };
        let (place, query) = rest.split_once('?').unwrap_or((&rest, ""));
        let parameters: Vec<_> = query.split('&').filter(|pair| !pair.is_empty() && !is_secret(pair)).collect();
        let scheme = if scheme.is_empty() { String::new() } else { format!("{scheme}://") };
        let query = if parameters.is_empty() { String::new() } else { format!("?{}", parameters.join("&")) };
        up_to_password(format!("{scheme}{place}{query}"))
    }
}

/// A text that is cut where a password may follow, as in `host=h password=..` or behind a separator that no URL has.
fn up_to_password(mut text: String) -> String {
    let lower = text.to_ascii_lowercase();
    if let Some(end) = ["password=", "passwd=", "pwd="].iter().filter_map(|word| lower.find(word)).min() {
        text.truncate(end);
        text.push_str("..");
    }
    text
}

/// What is wrong with a URL that has an @ behind its hosts.
const UNENCODED: &str = "its user and password must have @ / ? # percent-encoded (%40 %2F %3F %23)";

/// Names and values.
type Parameters = Vec<(String, String)>;

/// The parameters of a query without those that say where the password is, and what they say.
fn passwords_apart(query: &str) -> Result<(Parameters, Vec<String>), PlaceError> {
    let (mut kept, mut passwords) = (Vec::new(), Vec::new());
    for (name, value) in form_urlencoded::parse(query.as_bytes()).into_owned() {
        match name.as_str() {
            "password-file" => passwords.push(read_password(Path::new(&value))?),
            "password-env" => passwords.push(
                // An error of its own could show what is in it.
                std::env::var(&value).map_err(|_| {
                    PlaceError::new(format!("the variable {value:?}, which password-env names, has no text"))
                })?,
            ),
            "password" => {
                let what = "its password belongs before the @, into a password-file=PATH or a password-env=NAME";
                return Err(PlaceError::new(what));
            }
            _ => kept.push((name, value)),
        }
    }
    Ok((kept, passwords))
}

/// Whether what a parameter says may be a secret, by its name: one that does not exist may be meant for a password.
fn is_secret(parameter: &str) -> bool {
    let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
    let name = name.to_ascii_lowercase();
    let is_word = name == "sentinel-auth" && matches!(value, "same" | "none");
    let is_place = is_word || matches!(name.as_str(), "password-file" | "password-env");
    let is_named = ["pass", "pwd", "auth", "secret", "token", "user", "cred"].iter().any(|word| name.contains(word));
    name.contains('%') || is_named && !is_place
}

/// What comes before a path, without what stands in the place of a port: where a host was forgotten, it is a password.
fn without_words_for_ports(rest: &str) -> String {
    let (hosts, behind) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let shown: Vec<_> = hosts
        .split(',')
        .map(|host| match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') && !port.bytes().all(|byte| byte.is_ascii_digit()) => {
                format!("{name}:..")
            }
            _ => host.to_owned(),
        })
        .collect();
    format!("{}{behind}", shown.join(","))
}

fn read_password(path: &Path) -> Result<String, PlaceError> {
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(PASSWORD_BYTES_MAX + 1).read_to_string(&mut text))
        .because(|| format!("the password file {} cannot be read", path.display()))?;
    let refused = |what: &str| PlaceError::new(format!("the password file {} {what}", path.display()));
    if u64::try_from(text.len()).is_ok_and(|bytes| bytes > PASSWORD_BYTES_MAX) {
        return Err(refused(&format!("is longer than {PASSWORD_BYTES_MAX} bytes")));
    }
    // Editors end a file with a line's end.
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        return Err(refused("is empty"));
    }
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
