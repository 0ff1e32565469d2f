//! URLs of stores on several servers: `SCHEME://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]..][/PATH][?PARAMETERS]`.
//! Other parsers do not take several hosts with ports for a URL.

use std::fmt;

use crate::StoreError;

/// The parts of such a URL.
///
/// ```
/// use unalike_storage::HostsUrl;
/// let url = HostsUrl::read("etcd://ids@a.example,[::1]:9/prod?create=false", "etcd", 2379)?;
/// assert_eq!(url.hosts, [("a.example".to_owned(), 2379), ("[::1]".to_owned(), 9)]);
/// assert_eq!((url.user.as_deref(), url.path.as_str(), url.parameters.as_str()), (Some("ids"), "/prod", "create=false"));
/// # Ok::<(), unalike_storage::StoreError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct HostsUrl {
    /// Names or addresses, an IPv6 address in brackets, each with its port. `localhost` where none is named.
    pub hosts: Vec<(String, u16)>,
    /// Who asks, if that is said. It is not empty, and has no colon.
    pub user: Option<String>,
    /// The user's password; empty if there is none.
    pub password: String,
    /// Empty, or names after slashes, without a slash at the end.
    pub path: String,
    /// What stands after the question mark.
    pub parameters: String,
}

impl HostsUrl {
    /// Reads a URL of this scheme, whose servers have this port where none is named.
    ///
    /// In the user's name and the password, `%`, `/`, `?`, `#`, `:` and `@` are written `%25`, `%2F`, `%3F`, `%23`,
    /// `%3A` and `%40`.
    ///
    /// # Errors
    /// [`StoreError::Refused`] saying which part is wrong. No message holds the password.
    pub fn read(text: &str, scheme: &str, port: u16) -> Result<Self, StoreError> {
        let Some(rest) = text.strip_prefix(scheme).and_then(|rest| rest.strip_prefix("://")) else {
            let found = text.split_once("://").map_or("", |(scheme, _)| scheme);
            return Err(StoreError::refused(format!("the store's scheme is {found:?}, it must be {scheme}")));
        };
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (servers, path) = rest.find('/').and_then(|slash| rest.split_at_checked(slash)).unwrap_or((rest, ""));
        // Whatever follows such a host may belong to a password, and is not shown.
        if text.contains('#') || path.contains('@') || parameters.contains('@') || servers.matches('@').count() > 1 {
            return Err(StoreError::refused(
                "the store's URL has a # or an @ where none belongs: in the user's name and the password write %2F for /, \
                 %3F for ?, %23 for #, %3A for : and %40 for @",
            ));
        }
        let (user, hosts) = match servers.split_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, servers),
        };
        let mut url = Self {
            hosts: Self::read_hosts(if hosts.is_empty() { "localhost" } else { hosts }, scheme, port)?,
            user: None,
            password: String::new(),
            path: Self::read_path("path", path)?,
            parameters: parameters.to_owned(),
        };
        if let Some(user) = user {
            let (user, password) = user.split_once(':').unwrap_or((user, ""));
            let read = |text| {
                percent_decode(text).ok_or_else(|| StoreError::refused("the store's user or password cannot be read"))
            };
            let user = read(user)?;
            if user.is_empty() || user.contains(':') {
                return Err(StoreError::refused("the store's user is empty, or has a colon in its name"));
            }
            url.user = Some(user);
            url.password = read(password)?;
        }
        Ok(url)
    }

    /// Hosts with or without ports: `zk1.example,zk2.example:2182`.
    ///
    /// # Errors
    /// [`StoreError::Refused`] saying which one is wrong.
    pub fn read_hosts(hosts: &str, scheme: &str, port: u16) -> Result<Vec<(String, u16)>, StoreError> {
        let default_port = format!(":{port}");
        let mut listed = Vec::new();
        for host in hosts.split(',') {
            let bad = || {
                let what = format!("write {scheme}://HOST:PORT,HOST:PORT/PATH, and an IPv6 address in brackets");
                StoreError::refused(format!("the store's host {host:?} cannot be read: {what}"))
            };
            // A colon in brackets is one of an address.
            let behind = host.rfind(']').unwrap_or(0);
            let (name, port) = match host.get(behind..).and_then(|rest| rest.rfind(':')) {
                Some(colon) => host.split_at_checked(behind + colon).ok_or_else(bad)?,
                None => (host, default_port.as_str()),
            };
            let port = port.trim_start_matches(':').parse::<u16>().ok().filter(|&port| port > 0).ok_or_else(bad)?;
            let is_address = name.starts_with('[') && name.ends_with(']') && name.len() > 2;
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            if name.is_empty() || !(is_address || name.bytes().all(is_name)) {
                return Err(bad());
            }
            listed.push((name.to_owned(), port));
        }
        Ok(listed)
    }

    /// A path as names of what is kept begin with it: empty, or names after slashes, without one at the end. `what`
    /// says which path it is, for messages.
    ///
    /// # Errors
    /// [`StoreError::Refused`].
    pub fn read_path(what: &str, path: &str) -> Result<String, StoreError> {
        let root = path.trim_end_matches('/');
        let is_plain = |letter: char| letter.is_ascii_graphic() && letter != '%';
        let is_name = |part: &str| !part.is_empty() && part != "." && part != ".." && part.chars().all(is_plain);
        if root.is_empty() || (root.starts_with('/') && root.split('/').skip(1).all(is_name)) {
            return Ok(root.to_owned());
        }
        let must = "it must be names after slashes, without %, blanks and letters beyond ASCII";
        Err(StoreError::refused(format!("the store's {what} is {path:?}, {must}")))
    }

    /// The hosts with their ports, as a URL has them.
    #[must_use]
    pub fn servers(&self) -> String {
        let servers: Vec<_> = self.hosts.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        servers.join(",")
    }
}

impl fmt::Debug for HostsUrl {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostsUrl")
            .field("servers", &self.servers())
            .field("user", &self.user)
            .field("path", &self.path)
            .field("parameters", &self.parameters)
            .finish_non_exhaustive()
    }
}

/// The text that `%` and two digits each encode; none where that is not one.
///
/// ```
/// use unalike_storage::percent_decode;
/// assert_eq!(percent_decode("a%2Fb").as_deref(), Some("a/b"));
/// assert_eq!(percent_decode("a%2"), None);
/// ```
#[must_use]
pub fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        bytes.push(digit()? * 16 + digit()?);
    }
    String::from_utf8(bytes).ok()
}
