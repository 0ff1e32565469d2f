//! Worker leases in ZooKeeper, also beside running nodes of Leaf's.
//!
//! Each namespace is a persistent node, bound to its layout, and each of its workers a persistent node below it that
//! holds the worker's newest lease. Every change names the version of the node that it was decided by, so of two
//! clients that change one worker at once one is refused by ZooKeeper, looks again and decides anew. Nothing rests on
//! sessions or ephemeral nodes: they end when ZooKeeper has not heard from a client for a while, and a lease ends at
//! its time.
//!
//! ```text
//! /unalike/clock                    its modification time is the store's clock: each request writes it first
//! /unalike/identity                 the store's name: by another one, a program knows another ensemble, or an emptied
//!                                   one; and the time from which workers are leased, where the store was restored
//! /unalike/leases/NAMESPACE         the layout, the greatest horizon, the tree of Leaf's
//! /unalike/leases/NAMESPACE/WORKER  the worker's newest lease
//! ```
//!
//! An acquire takes three round trips: the clock, the namespace and the workers' names; all workers, read at once; the
//! grant. An extension takes two. The leader's clock decides who is offered what and for how long, and a leader whose
//! clock is different cannot make leases overlap, since none begins before the greatest end that is recorded for its
//! worker.
//!
//! Do not let anybody remove a worker's node: a namespace where that was done is refused, since the lease may still
//! run. An ensemble that was put back from a backup, or runs with `forceSync=no` and lost power, may have forgotten
//! leases, and nothing in it tells: say it with [`ZookeeperLeases::restored`] before any program uses it.
//!
//! # Beside Leaf
//!
//! Leaf takes its worker from the number of a persistent sequential node of its own in `/snowflake/NAME/forever` (below
//! the path of its own address, if that has one: `leaf-path`). With [`Leaf::Beside`] a worker is taken in the same way:
//! by making such a node, whose number ZooKeeper gives to nobody else, and from then on it is leased like any other,
//! again and again. Worker 0 is never taken, since Leaf's first nodes all believe to be it. The namespace keeps Leaf's
//! name, and refuses clients that do not give it; ids of a namespace that was begun without Leaf's name may be the same
//! as Leaf's.
//!
//! Each namespace has the workers that it has taken itself, and no other: neither those of another namespace, nor those
//! of the same name below another path. The node's name says whose it is. Nodes of versions that did not write that
//! (`unalike.NAMESPACE-NNNNNNNNNN`) count as taken by somebody else.
//!
//! When Leaf's last node has stopped, [`ZookeeperLeases::end_leaf_migration`] or [`Leaf::Stopped`] opens all workers
//! that nobody else has taken to the namespace: to the first one that asks, and no other. It takes all numbers that are
//! left, so nobody gets one that is a worker from then on.
//!
//! Do not let anybody remove a node whose name begins with `unalike.` from Leaf's tree while programs may use its
//! worker, nor the tree before all workers were opened.
//!
//! Each number that is taken is one less for new nodes of Leaf's, of 1,024. unalike takes another one only while all
//! that it has are leased: as many as holders run at once, and those that were killed within the last horizon.
//!
//! Tested on ZooKeeper 3.8, without TLS.

mod connection;
mod error;
mod leaf;
mod leases;
mod nodes;
mod restored;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use unalike_storage::{ClockSteps, HostsUrl, LeaseLimits, StoreError, StoreIdentity};

use crate::connection::Connection;
use crate::nodes::Paths;
pub use crate::restored::Restored;

const SCHEME: &str = "zookeeper";
const PORT: u16 = 2_181;

/// Where ZooKeeper is, and how it is used.
///
/// ```
/// use unalike_zookeeper::{Leaf, ZookeeperOptions};
/// let url = "zookeeper://ids@zk1.example,zk2.example:2182/prod?leaf=orders";
/// let options = ZookeeperOptions::from_url(url)?.password("secret");
/// assert_eq!(options.address(), "zk1.example:2181,zk2.example:2182/prod");
/// assert_eq!(options.leaf, Some(Leaf::Beside("orders".to_owned())));
/// # Ok::<(), unalike_storage::StoreError>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct ZookeeperOptions {
    hosts: String,
    root: String,
    user: Option<String>,
    password: String,
    /// What holders are allowed.
    pub limits: LeaseLimits,
    /// The nodes of Leaf's that the workers are shared with. None by default.
    pub leaf: Option<Leaf>,
    /// The path after Leaf's own ZooKeeper address (`zk1:2181/PATH`), where that has one: `/prod`.
    leaf_root: String,
    /// How long a connection to all of the servers in turn may take. 3 s by default.
    pub connect_timeout: Duration,
    /// How long the answers to requests that are sent together may take; after that a write among them counts as lost.
    /// 3 s by default.
    pub request_timeout: Duration,
    /// How long ZooKeeper keeps a session that it does not hear from. No lease depends on it; a connection that is
    /// silent for two fifths of it is given up. 6 s by default.
    pub session_timeout: Duration,
}

/// Nodes of Leaf's, by Leaf's own name (`leaf.name`), with which a namespace shares its workers. The layout must have
/// Leaf's widths and tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// They run, or may be started.
    Beside(String),
    /// The last one has stopped, and none is started again. The operator says so; a node that still writes its time is
    /// noticed.
    Stopped(String),
}

impl Leaf {
    /// Leaf's own name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Beside(name) | Self::Stopped(name) => name,
        }
    }
}

impl ZookeeperOptions {
    /// These servers with the defaults, each with or without a port: `zk1.example,zk2.example:2182`.
    ///
    /// # Errors
    /// [`StoreError::Refused`] saying which part is wrong.
    pub fn new(hosts: &str) -> Result<Self, StoreError> {
        let hosts = HostsUrl::read_hosts(hosts, SCHEME, PORT)?;
        let listed: Vec<_> = hosts.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        Ok(Self {
            hosts: listed.join(","),
            root: String::new(),
            user: None,
            password: String::new(),
            limits: LeaseLimits::default(),
            leaf: None,
            leaf_root: String::new(),
            connect_timeout: Duration::from_secs(3),
            request_timeout: Duration::from_secs(3),
            session_timeout: Duration::from_secs(6),
        })
    }

    /// Reads `zookeeper://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]..][/PATH][?PARAMETERS]`. All nodes of unalike's
    /// lie below the path. Leaf's are where Leaf puts them, `/snowflake/NAME/forever`, whatever the path is.
    ///
    /// | parameter | meaning | default |
    /// | --- | --- | --- |
    /// | `leaf` | Leaf's name, beside its running nodes: [`Leaf::Beside`] | |
    /// | `leaf-stopped` | Leaf's name, after its last node: [`Leaf::Stopped`] | |
    /// | `leaf-path` | the path after Leaf's own ZooKeeper address, where that has one | |
    /// | `connect-timeout-ms`, `request-timeout-ms` | milliseconds, 1 to 600000 | 3000 |
    /// | `session-timeout-ms` | milliseconds, 100 to 600000 | 6000 |
    ///
    /// The user is one of the scheme `digest`; nodes that are created belong to this user only. In the user's name and
    /// the password, `%`, `/`, `?`, `#`, `:` and `@` are written `%25`, `%2F`, `%3F`, `%23`, `%3A` and `%40`.
    ///
    /// # Errors
    /// [`StoreError::Refused`] saying which part is wrong. No message holds the password.
    pub fn from_url(text: &str) -> Result<Self, StoreError> {
        let url = HostsUrl::read(text, SCHEME, PORT)?;
        let mut options = Self::new(&url.servers())?;
        (options.root, options.user, options.password) = (url.path, url.user, url.password);
        for (name, value) in form_urlencoded::parse(url.parameters.as_bytes()) {
            options.set(&name, &value)?;
        }
        Ok(options)
    }

    /// The user and the password of the scheme `digest`.
    #[must_use]
    pub fn user(mut self, user: &str) -> Self {
        self.user = Some(user.to_owned());
        self
    }

    /// The password, instead of one in the URL. It requires a user.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        password.clone_into(&mut self.password);
        self
    }

    /// Hosts, ports and path, for messages.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{}{}", self.hosts, self.root)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), StoreError> {
        let expected =
            |what: &str| StoreError::refused(format!("the store's parameter {name} is {value:?}, it must be {what}"));
        let milliseconds = |min: u64| {
            let number = value.parse().ok().filter(|number| (min..=600_000).contains(number));
            let number = number.ok_or_else(|| expected(&format!("a whole number from {min} to 600000")));
            number.map(Duration::from_millis)
        };
        match name {
            "leaf" | "leaf-stopped" => {
                if self.leaf.is_some() {
                    return Err(StoreError::refused(
                        "the store's URL names Leaf twice: write leaf= or leaf-stopped=".to_owned(),
                    ));
                }
                let leaf = value.to_owned();
                self.leaf = Some(if name == "leaf" { Leaf::Beside(leaf) } else { Leaf::Stopped(leaf) });
            }
            "leaf-path" => self.leaf_root = HostsUrl::read_path("leaf-path", value)?,
            "connect-timeout-ms" => self.connect_timeout = milliseconds(1)?,
            "request-timeout-ms" => self.request_timeout = milliseconds(1)?,
            "session-timeout-ms" => self.session_timeout = milliseconds(100)?,
            _ => {
                let known =
                    "leaf, leaf-stopped, leaf-path, connect-timeout-ms, request-timeout-ms and session-timeout-ms";
                return Err(StoreError::refused(format!(
                    "the store's parameter {name} is not known; those known are {known}"
                )));
            }
        }
        Ok(())
    }

    /// Checks what programs may have set. Every connection begins with it.
    ///
    /// # Errors
    /// [`StoreError::Refused`] saying what does not fit together.
    pub fn validate(&self) -> Result<(), StoreError> {
        self.limits.validate()?;
        if self.user.is_none() && !self.password.is_empty() {
            return Err(StoreError::refused(format!(
                "ZooKeeper at {} has a password and no user: name one",
                self.address()
            )));
        }
        if self.leaf.is_none() && !self.leaf_root.is_empty() {
            return Err(StoreError::refused(
                "the store's parameter leaf-path goes with leaf= or leaf-stopped=".to_owned(),
            ));
        }
        if let Some(name) = self.leaf.as_ref().map(Leaf::name) {
            let is_odd = name.is_empty() || name == "." || name == ".." || name.contains('/');
            if is_odd || name.chars().any(char::is_control) || name.len() > 255 {
                return Err(StoreError::refused(format!("Leaf's name is {name:?}, it must be that of one node")));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ZookeeperOptions {
    /// Without the password.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ZookeeperOptions")
            .field("address", &self.address())
            .field("user", &self.user)
            .field("limits", &self.limits)
            .field("leaf", &self.leaf)
            .field("leaf_root", &self.leaf_root)
            .field("connect_timeout", &self.connect_timeout)
            .field("request_timeout", &self.request_timeout)
            .field("session_timeout", &self.session_timeout)
            .finish_non_exhaustive()
    }
}

/// Worker leases in ZooKeeper: a [`LeaseStore`](unalike_storage::LeaseStore). Clones share one connection.
///
/// ```no_run
/// use unalike_zookeeper::{ZookeeperLeases, ZookeeperOptions};
///
/// # async fn example() -> Result<(), unalike_storage::StoreError> {
/// let options = ZookeeperOptions::from_url("zookeeper://zk1.example,zk2.example,zk3.example")?;
/// let leases = ZookeeperLeases::connect(options).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ZookeeperLeases {
    pub(crate) options: Arc<ZookeeperOptions>,
    pub(crate) paths: Paths,
    pub(crate) connection: Arc<Connection>,
    /// Where the servers' clock was set, as far as this process has seen.
    pub(crate) steps: Arc<ClockSteps>,
    /// The store's name, once it was read: what is found there must have it from then on.
    pub(crate) name: Arc<OnceLock<StoreIdentity>>,
}

impl ZookeeperLeases {
    /// A store that connects with its first request, and again whenever its connection is lost.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when an option is out of range.
    pub fn new(options: ZookeeperOptions) -> Result<Self, StoreError> {
        options.validate()?;
        let options = Arc::new(options);
        let paths = Paths { root: options.root.clone(), leaf_root: options.leaf_root.clone() };
        let connection = Arc::new(Connection::new(Arc::clone(&options)));
        Ok(Self { paths, connection, options, steps: Arc::default(), name: Arc::default() })
    }

    /// The same, connected.
    ///
    /// # Errors
    /// As [`ZookeeperLeases::new`], and when no server can be reached.
    pub async fn connect(options: ZookeeperOptions) -> Result<Self, StoreError> {
        let leases = Self::new(options)?;
        leases.connection.client().await?;
        Ok(leases)
    }
}

impl fmt::Debug for ZookeeperLeases {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ZookeeperLeases").field("options", &self.options).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let options = ZookeeperOptions::from_url("zookeeper://").unwrap();
        assert_eq!((options.address().as_str(), &options.user), ("localhost:2181", &None));
        let url = "zookeeper://a%3Ab%40:p%2Fw@[::1]:7,zk_2.x/a/b.c/?leaf=com.x%20y&request-timeout-ms=5";
        // A user of the scheme has no colon in its name.
        assert!(ZookeeperOptions::from_url(url).is_err());
        let options = ZookeeperOptions::from_url(&url.replace("%3A", "")).unwrap();
        assert_eq!(options.address(), "[::1]:7,zk_2.x:2181/a/b.c");
        assert_eq!((options.user.as_deref(), options.password.as_str()), (Some("ab@"), "p/w"));
        assert_eq!(options.leaf, Some(Leaf::Beside("com.x y".to_owned())));
        assert_eq!(options.request_timeout, Duration::from_millis(5));
        assert!(!format!("{options:?}").contains("p/w"));
    }

    #[test]
    fn bad_urls_are_refused_without_their_password() {
        for url in [
            "http://a",
            "zookeepers://a:1",
            "zookeeper://u:secret@a:b",
            "zookeeper://u:secret@a:0",
            "zookeeper://u:secret@a:65536",
            "zookeeper://u:secret@a,",
            "zookeeper://u:secret@a b",
            "zookeeper://u:secret@[]:1",
            "zookeeper://u:sec%ret@a",
            "zookeeper://u:secret@b@a",
            "zookeeper://u:secret#@a",
            "zookeeper://u:secret/x@a",
            "zookeeper://u:secret?x@a",
            "zookeeper://:secret@a",
            "zookeeper://a//b",
            "zookeeper://a/../b",
            "zookeeper://a/b%2F",
            "zookeeper://a?user=u",
            "zookeeper://a?leaf=x&leaf-stopped=x",
            "zookeeper://a?leaf=x&leaf-path=prod",
            "zookeeper://a?leaf=x&leaf-path=/a//b",
            "zookeeper://a?request-timeout-ms=0",
            "zookeeper://a?session-timeout-ms=99",
        ] {
            let error = ZookeeperOptions::from_url(url).unwrap_err();
            assert!(matches!(error, StoreError::Refused { .. }), "{url}: {error:?}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        let with_leaf = |name: &str| ZookeeperOptions {
            leaf: Some(Leaf::Beside(name.to_owned())),
            ..ZookeeperOptions::new("a").unwrap()
        };
        for bad in ["", ".", "..", "a/b", "a\n"].map(with_leaf) {
            assert!(ZookeeperLeases::new(bad).is_err());
        }
        assert!(ZookeeperLeases::new(with_leaf("a-b")).is_ok());
        assert!(ZookeeperLeases::new(ZookeeperOptions::new("a").unwrap().password("secret")).is_err());
    }
}
