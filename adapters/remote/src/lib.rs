//! Segments and leases from unalike servers, over HTTP.
//!
//! A host that has no database within reach, or should not have its password, is granted whole segments and leases by a
//! server: [`RemoteStore`] and [`RemoteLeases`] are the two ports over `POST /v1/sequences/{tag}/segments` and
//! `POST /v1/snowflakes/{name}/leases`. Ids are still made in the host: one request serves a thousand calls, or a
//! million.
//!
//! - **Several servers** are named in order of preference. A server that proves that it granted nothing (it cannot be
//!   reached, its store is down, it is ending) is passed over for the next one. Whatever may have been granted is
//!   burnt: a retry is always a new grant.
//! - **One answer, one caller.** A cache, or a proxy that collapses equal requests, could give one grant to two
//!   callers. Each request has a random `X-Request-Id` of 128 bits, and an answer with another one is burnt.
//! - **One store.** Each answer names the store that granted, and answers of another store are burnt: two servers with
//!   a database each would repeat each other's ids. Of several servers all must answer when the program starts, unless
//!   the options name the store ([`RemoteOptions::store`]).
//! - **No redirects, no proxies** of the environment.

mod answers;
mod leases;
mod segments;
mod servers;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use unalike_storage::{StoreError, StoreIdentity};
use url::Url;

pub use crate::leases::RemoteLeases;
pub use crate::segments::RemoteStore;

/// Where the servers are, and how they are asked.
///
/// ```
/// use unalike_remote::RemoteOptions;
/// let options = RemoteOptions::from_url("https://ids1.example,ids2.example:8443?request-timeout-ms=2000")?
///     .token("correct-horse-battery-staple");
/// assert_eq!(options.address(), "https://ids1.example,ids2.example:8443");
/// # Ok::<(), unalike_storage::StoreError>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct RemoteOptions {
    /// In order of preference, at least one; `http` or `https`, all the same.
    pub servers: Vec<Url>,
    /// The token, of the scope `lease`, where the servers want one.
    token: Option<String>,
    /// The store that all servers must have, by the identity that `GET /v1/store` answers: `store` for segments,
    /// `leases` for leases. Without it, a single server is believed, and several must all answer at the start.
    pub store: Option<StoreIdentity>,
    /// A file with the certificates of the authorities to trust, as PEM. The system's by default.
    pub ssl_ca: Option<PathBuf>,
    /// How long opening a connection may take: at most half of `request_timeout`. 1 s by default.
    pub connect_timeout: Duration,
    /// How long a request may take; after that its grant is burnt. 5 s by default.
    pub request_timeout: Duration,
}

/// The parameters of the URL.
const PARAMETERS: &str = "store, ssl-ca, connect-timeout-ms and request-timeout-ms";

/// The longest timeout, in milliseconds.
const TIMEOUT_MAX_MS: u64 = 600_000;

impl RemoteOptions {
    /// Reads `http[s]://HOST[:PORT][,HOST[:PORT]..][?PARAMETERS]`.
    ///
    /// | parameter | meaning | default |
    /// | --- | --- | --- |
    /// | `store` | [`store`](Self::store): 32 hexadecimal digits | |
    /// | `ssl-ca` | [`ssl_ca`](Self::ssl_ca) | the system's |
    /// | `connect-timeout-ms`, `request-timeout-ms` | milliseconds, 1 to 600000 | 1000, 5000 |
    ///
    /// The token is not part of the URL: [`RemoteOptions::token`].
    ///
    /// # Errors
    /// [`StoreError::Refused`] saying which part is wrong. No message holds a user or a password that the URL has.
    pub fn from_url(text: &str) -> Result<Self, StoreError> {
        let refused = |what: String| StoreError::refused(format!("the address of the servers {what}"));
        let form = "write http://HOST:PORT or https://HOST, and further hosts after commas";
        let Some((scheme, rest)) = text.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https"))
        else {
            return Err(refused(format!("has another scheme than http and https: {form}")));
        };
        let (hosts, query) = rest.split_once('?').unwrap_or((rest, ""));
        // Anywhere: a password may have a ? in it, and must not be told.
        if rest.contains('@') {
            return Err(refused(format!(
                "has a user or password, which no server takes: leave out what is before the @, and \
                 give a token; in a path an @ is written %40; {form}"
            )));
        }
        let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
        // A URL takes \ for /.
        if hosts.contains(['/', '\\']) || rest.contains('#') {
            return Err(refused(format!("has a path, which no server takes: {form}")));
        }
        let mut servers = Vec::new();
        for host in hosts.split(',') {
            let server = Url::parse(&format!("{scheme}://{host}/"));
            // What stands in the place of a port may be a password, where the host was forgotten.
            let shown = host.split_once(':').map_or(host, |(name, _)| name);
            let server = server.map_err(|error| refused(format!("has the host {shown:?}: {error}; {form}")))?;
            if servers.contains(&server) {
                return Err(refused(format!("names {host:?} twice")));
            }
            servers.push(server);
        }
        let mut options = Self {
            servers,
            token: None,
            store: None,
            ssl_ca: None,
            connect_timeout: Duration::from_secs(1),
            request_timeout: Duration::from_secs(5),
        };
        let mut seen = Vec::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            if seen.contains(&name) {
                return Err(refused(format!("has the parameter {name} twice")));
            }
            match &*name {
                "store" => options.store = Some(value.parse()?),
                "ssl-ca" if scheme == "https" => options.ssl_ca = Some(PathBuf::from(&*value)),
                "ssl-ca" => return Err(refused("has ssl-ca, which needs https".to_owned())),
                "connect-timeout-ms" => options.connect_timeout = read_timeout(&name, &value)?,
                "request-timeout-ms" => options.request_timeout = read_timeout(&name, &value)?,
                "token" | "password" => {
                    return Err(refused("has a secret in it: give the token by itself".to_owned()));
                }
                _ => return Err(refused(format!("has the parameter {name:?}, and there are {PARAMETERS}"))),
            }
            seen.push(name);
        }
        Ok(options)
    }

    /// With this token.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Checks what can be checked without asking a server: the token, and the certificates of `ssl-ca`.
    ///
    /// # Errors
    /// [`StoreError::Refused`].
    pub fn validate(&self) -> Result<(), StoreError> {
        servers::check(self)
    }

    /// The servers, for messages.
    #[must_use]
    pub fn address(&self) -> String {
        let hosts: Vec<_> = self.servers.iter().map(servers::host_of).collect();
        let scheme = self.servers.first().map_or("http", Url::scheme);
        format!("{scheme}://{}", hosts.join(","))
    }
}

impl fmt::Debug for RemoteOptions {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteOptions").field("address", &self.address()).finish_non_exhaustive()
    }
}

fn read_timeout(name: &str, text: &str) -> Result<Duration, StoreError> {
    let ms = text.parse().ok().filter(|ms| (1..=TIMEOUT_MAX_MS).contains(ms));
    ms.map(Duration::from_millis).ok_or_else(|| {
        StoreError::refused(format!(
            "{name} is {text:?}, it must be a number of milliseconds from 1 to {TIMEOUT_MAX_MS}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let options = RemoteOptions::from_url("http://a.example:8080,[::1]:9090/?connect-timeout-ms=20").unwrap();
        assert_eq!(options.address(), "http://a.example:8080,[::1]:9090");
        assert_eq!(options.connect_timeout, Duration::from_millis(20));
        let name = "00000000000000000000000000005eed";
        let options = RemoteOptions::from_url(&format!("https://a.example?store={name}&ssl-ca=/ca.pem")).unwrap();
        assert_eq!((options.store, options.ssl_ca), (Some(StoreIdentity(0x5eed)), Some("/ca.pem".into())));
    }

    #[test]
    fn addresses_that_are_none_are_refused_without_their_secrets() {
        for (text, what) in [
            ("ids.example", "scheme"),
            ("ftp://ids.example", "scheme"),
            ("http://", "host"),
            ("http://a,,b", "host"),
            ("http://a,a", "twice"),
            ("http://a/v1", "path"),
            ("http://a\\v1", "path"),
            ("http://a#b", "path"),
            ("http://ids:hunter2@a", "user or password"),
            ("http://ids:hunter2", "has the host \"ids\": invalid port"),
            ("http://ids:hunter2?@a", "user or password"),
            ("https://ids:hunter2#@a", "user or password"),
            ("http://a?token=hunter2", "secret"),
            ("http://a?store=5eed", "32 hexadecimal digits"),
            ("http://a?ssl-ca=/ca.pem", "https"),
            ("http://a?request-timeout-ms=0", "1 to 600000"),
            ("http://a?request-timeout-ms=1&request-timeout-ms=1", "twice"),
            ("http://a?timeout=1", "request-timeout-ms"),
        ] {
            let error = RemoteOptions::from_url(text).unwrap_err().to_string();
            assert!(error.contains(what) && !error.contains("hunter2"), "{text}: {error}");
        }
        let options = RemoteOptions::from_url("http://a").unwrap().token("hunter2");
        assert!(!format!("{options:?}").contains("hunter2"));
    }
}
