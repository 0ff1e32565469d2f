//! Segments and leases in etcd: each grant is one transaction, on the condition that its key was not written since it
//! was read, and that the store is the one that this program knows.
//!
//! etcd's own leases (TTL) and clocks are nothing that uniqueness rests on. A request that writes is sent once; where
//! its answer is lost, it counts as done, and what it granted is never offered again. Where it is certain that nothing
//! was done (another program was faster, or there is no leader), it is decided and sent anew, for as long as a request
//! may take.
//!
//! Every connection is looked at before it is used, and every answer says where it comes from: another cluster, and one
//! that was restored from a snapshot, are refused until they are adopted ([`EtcdStore::adopt`]).
//!
//! | key below the prefix | what it holds, as JSON |
//! | --- | --- |
//! | `store` | the cluster, its history, the place among stripes, what was adopted |
//! | `tag/NAME` | a tag or sub-key: its watermark and options |
//! | `tag-count`, `ended/NAME` | how many tags there are; that one has ended |
//! | `leases/NAMESPACE` | what a namespace of leases is bound to |
//! | `worker/NAMESPACE␟NUMBER` | a worker's newest lease |
//!
//! Tested on etcd 3.4.23, and on 3.5.1 with three members.

mod clock;
mod cluster;
mod connection;
mod error;
mod leases;
mod record;
mod segments;
mod store;
mod tls;
mod wire;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use unalike_storage::{
    HostsUrl, JoinedStripe, LeaseLimits, SegmentLayer, SegmentStore, ShellWord, StoreError, Stripe, TagCreation,
};

pub use crate::leases::EtcdLeases;
use crate::segments::Tags;
use crate::store::{Paths, Store};
use crate::tls::Tls;

const SCHEME: &str = "etcd";
const PORT: u16 = 2_379;

/// Where etcd is, and how it is used.
///
/// ```
/// use unalike_etcd::EtcdOptions;
/// let url = "etcd://ids@e1.example,e2.example:2479/shop/ids?ssl-mode=verify-full";
/// let options = EtcdOptions::from_url(url)?.password("secret");
/// assert_eq!(options.address(), "e1.example:2379,e2.example:2479/shop/ids");
/// # Ok::<(), unalike_storage::StoreError>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct EtcdOptions {
    hosts: Vec<(String, u16)>,
    prefix: String,
    user: Option<String>,
    password: String,
    /// Whether TLS is used, if that was said.
    uses_tls: Option<bool>,
    authorities: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    /// Begin a store where there is none. `true` by default.
    pub create: bool,
    /// Whether tags are created on first use, and how many there may be.
    pub creation: TagCreation,
    /// What holders of leases are allowed. It is not a parameter of the URL.
    pub limits: LeaseLimits,
    /// How long a connection may take, to all of the members in turn. 3 s by default.
    pub connect_timeout: Duration,
    /// How long one request may take, with all that is sent for it; after that a write counts as done, and its grant is
    /// burnt. 2 s by default: longer than the election of a leader, as a rule.
    pub request_timeout: Duration,
    /// Do not refuse a cluster, or a history, that is not the one that was used before. The promise that no id repeats
    /// is then the operator's.
    pub assume_identity: bool,
    /// Do not refuse a cluster of one member whose version may lose in a crash what it has answered. The promise that
    /// no id repeats is then the operator's.
    pub assume_durable: bool,
}

impl EtcdOptions {
    /// Those of the URL.
    const PARAMETERS: &str = "ssl-mode, ssl-ca, ssl-cert, ssl-key, create, connect-timeout-ms, request-timeout-ms, identity, durability, \
        password-file and password-env";

    /// Reads `etcd://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]..][/PREFIX][?PARAMETERS]`. All keys are below the
    /// prefix, which is `unalike` where none is named.
    ///
    /// | parameter | meaning | default |
    /// | --- | --- | --- |
    /// | `ssl-mode` | `disable`, or `verify-full`: TLS, with the member's certificate and its name verified | `disable`; `verify-full` where a file is named |
    /// | `ssl-ca` | a file with the certificates of the authorities to trust | the system's |
    /// | `ssl-cert`, `ssl-key` | files with the certificate of this program, and its key | |
    /// | `create` | `false`: no store is begun | `true` |
    /// | `connect-timeout-ms`, `request-timeout-ms` | milliseconds, 1 to 600000 | 3000, 2000 |
    /// | `identity` | `checked`, or `assumed`: [`assume_identity`](Self::assume_identity) | `checked` |
    /// | `durability` | `checked`, or `assumed`: [`assume_durable`](Self::assume_durable) | `checked` |
    ///
    /// In the user's name and the password, `%`, `/`, `?`, `#`, `:` and `@` are written `%25`, `%2F`, `%3F`, `%23`,
    /// `%3A` and `%40`.
    ///
    /// # Errors
    /// [`StoreError::Refused`] saying which part is wrong. No message holds the password.
    pub fn from_url(text: &str) -> Result<Self, StoreError> {
        let url = HostsUrl::read(text, SCHEME, PORT)?;
        let prefix = url.path.trim_start_matches('/');
        let mut options = Self {
            prefix: if prefix.is_empty() { "unalike".to_owned() } else { prefix.to_owned() },
            hosts: url.hosts,
            user: url.user,
            password: url.password,
            uses_tls: None,
            authorities: None,
            certificate: None,
            key: None,
            create: true,
            creation: TagCreation::default(),
            limits: LeaseLimits::default(),
            connect_timeout: Duration::from_secs(3),
            request_timeout: Duration::from_secs(2),
            assume_identity: false,
            assume_durable: false,
        };
        for (name, value) in form_urlencoded::parse(url.parameters.as_bytes()) {
            options.set(&name, &value)?;
        }
        // Keys of a store there would be among those of a store whose prefix ends before it.
        if let Some(own) = options.prefix.split('/').skip(1).find(|part| Paths::OWN.contains(part)) {
            return Err(StoreError::refused(format!(
                "the store's prefix {:?} has the part {own:?}, which stores have below their prefixes: choose another",
                options.prefix
            )));
        }
        Ok(options)
    }

    /// The password, instead of one in the URL. It requires a user.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        password.clone_into(&mut self.password);
        self
    }

    /// Hosts, ports and prefix, for messages.
    #[must_use]
    pub fn address(&self) -> String {
        let hosts: Vec<_> = self.hosts.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        format!("{}/{}", hosts.join(","), self.prefix)
    }

    /// The commands that let a user do what this program does, and no more, in the order in which they are run.
    ///
    /// ```
    /// use unalike_etcd::EtcdOptions;
    /// let commands = EtcdOptions::from_url("etcd://e1.example/ids")?.role_commands("shop");
    /// assert_eq!(commands[1], "etcdctl role grant-permission 'shop' --prefix=true readwrite 'ids/'");
    /// # Ok::<(), unalike_storage::StoreError>(())
    /// ```
    #[must_use]
    pub fn role_commands(&self, user: &str) -> Vec<String> {
        let prefix = format!("{}/", self.prefix);
        let (user, prefix) = (ShellWord(user), ShellWord(&prefix));
        vec![
            format!("etcdctl role add {user}"),
            format!("etcdctl role grant-permission {user} --prefix=true readwrite {prefix}"),
            format!("etcdctl user add {user}"),
            format!("etcdctl user grant-role {user} {user}"),
        ]
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), StoreError> {
        let expected =
            |what: &str| StoreError::refused(format!("the store's parameter {name} is {value:?}, it must be {what}"));
        let milliseconds = || {
            let number = value.parse().ok().filter(|number| (1..=600_000).contains(number));
            number.map(Duration::from_millis).ok_or_else(|| expected("a whole number from 1 to 600000"))
        };
        let file = || if value.is_empty() { Err(expected("the name of a file")) } else { Ok(Some(value.into())) };
        match name {
            "ssl-mode" => {
                self.uses_tls = match value {
                    "disable" => Some(false),
                    "verify-full" => Some(true),
                    _ => return Err(expected("disable or verify-full")),
                };
            }
            "ssl-ca" => self.authorities = file()?,
            "ssl-cert" => self.certificate = file()?,
            "ssl-key" => self.key = file()?,
            "create" => self.create = value.parse().map_err(|_| expected("true or false"))?,
            "connect-timeout-ms" => self.connect_timeout = milliseconds()?,
            "request-timeout-ms" => self.request_timeout = milliseconds()?,
            "identity" | "durability" => {
                let assumed = match value {
                    "checked" => false,
                    "assumed" => true,
                    _ => return Err(expected("checked or assumed")),
                };
                if name == "identity" {
                    self.assume_identity = assumed;
                } else {
                    self.assume_durable = assumed;
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

    /// Checks what does not fit together.
    ///
    /// # Errors
    /// [`StoreError::Refused`].
    pub fn validate(&self) -> Result<(), StoreError> {
        let refused = |why: &str| Err(StoreError::refused(format!("the store at {}: {why}", self.address())));
        let names_file = self.authorities.is_some() || self.certificate.is_some() || self.key.is_some();
        if self.certificate.is_some() != self.key.is_some() {
            return refused("ssl-cert and ssl-key go together");
        }
        if self.uses_tls == Some(false) && names_file {
            return refused("it names files for TLS, and ssl-mode=disable");
        }
        if self.user.is_none() && !self.password.is_empty() {
            return refused("it has a password and no user: name one");
        }
        self.limits.validate()
    }

    pub(crate) fn tls(&self) -> Result<Option<Tls>, StoreError> {
        self.validate()?;
        let own = self.certificate.as_deref().zip(self.key.as_deref());
        let names_file = self.authorities.is_some() || own.is_some();
        if !self.uses_tls.unwrap_or(names_file) {
            return Ok(None);
        }
        Tls::new(self.authorities.as_deref(), own).map(Some)
    }

    pub(crate) fn paths(&self) -> Paths {
        Paths { prefix: self.prefix.clone() }
    }
}

impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the password.
        f.debug_struct("EtcdOptions")
            .field("address", &self.address())
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// Segments in one cluster; clones share its connection.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use unalike_etcd::{EtcdOptions, EtcdStore};
/// use unalike_storage::SegmentStore;
///
/// # async fn open() -> Result<(), unalike_storage::StoreError> {
/// let options = EtcdOptions::from_url("etcd://e1.example,e2.example,e3.example/ids")?;
/// let store: Arc<dyn SegmentStore> = Arc::new(EtcdStore::connect(options).await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct EtcdStore {
    options: EtcdOptions,
    store: Store,
    tags: Tags,
}

impl EtcdStore {
    /// Connects, checks the cluster, and begins a store where there is none and that is allowed.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when no member answers, or they have no leader; [`StoreError::Refused`] when access
    /// is denied, and when the cluster or its history is another one than before. Each says what to do.
    pub async fn connect(options: EtcdOptions) -> Result<Self, StoreError> {
        let store = Store::open(&options).await?;
        Ok(Self::over(options, store))
    }

    fn over(options: EtcdOptions, store: Store) -> Self {
        Self { tags: Tags::new(store.clone(), options.creation), options, store }
    }

    /// Leases in the same store, over the same connection. Closing either closes both.
    ///
    /// # Errors
    /// As [`EtcdLeases::connect`].
    pub async fn leases(&self) -> Result<EtcdLeases, StoreError> {
        EtcdLeases::open(self.store.clone(), self.options.limits).await
    }

    /// Continues with a cluster that was restored from a backup, or with any that is there: lifts the watermark of
    /// every tag by `lift` numbers, 1 or more, to above all that was granted and is forgotten here, and records this
    /// cluster and its history. Answers what became of it. A tag with fewer numbers left is exhausted. In a stripe each
    /// tag is lifted by that many numbers of the stripe. All of it is one transaction; programs that were running
    /// continue after a restart.
    ///
    /// Tags and sub-keys that are forgotten here with all that was granted under them are lifted too: each name that is
    /// created from now on begins `lift` numbers above its start.
    ///
    /// Time that this store granted to Redis is lifted too, but not by `lift`, which counts ids: it continues as far
    /// ahead as any lease may have reached.
    ///
    /// Leases need no figure. None is granted before all that may be forgotten have ended: the longest horizon that any
    /// program ever came with, `limits.max_horizon_ms` included, and `limits.max_skew_ms`, by which the clocks of
    /// members may differ. The leases from before are not extended.
    ///
    /// A cluster that is the recorded one already is adopted all the same: it may have forgotten something in a way
    /// that nobody can notice.
    ///
    /// # Errors
    /// As [`EtcdStore::connect`]; [`StoreError::Refused`] for a lift of 0 or above 2^63 - 1, and where no store is.
    pub async fn adopt(options: EtcdOptions, lift: u64) -> Result<Adopted, StoreError> {
        let (store, leases_from_ms) = Store::adopt(&options, lift).await?;
        let store = Self::over(options, store);
        let tags = store.tags.count().await?;
        store.store.cluster.close();
        Ok(Adopted { tags, leases_from_ms })
    }
}

/// What became of a cluster that was adopted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Adopted {
    /// How many tags were lifted, sub-keys among them.
    pub tags: u64,
    /// The time from which workers are leased in every namespace, in Unix milliseconds.
    pub leases_from_ms: u64,
}

#[async_trait]
impl SegmentLayer for EtcdStore {
    fn below(&self) -> Option<&dyn SegmentStore> {
        Some(&self.tags)
    }

    fn address(&self) -> Option<String> {
        Some(self.options.address())
    }

    async fn leave_leases(&self, namespace: &str) -> Result<(), StoreError> {
        self.leases().await?.mark_namespace(namespace).await
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        self.tags.join_stripe(stripe).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let options = EtcdOptions::from_url("etcd://").unwrap();
        assert_eq!(options.address(), "localhost:2379/unalike");
        let options = EtcdOptions::from_url("etcd://ids:p%2Fw@[::1]:7,e_2.x/a/b/?request-timeout-ms=5").unwrap();
        assert_eq!(options.address(), "[::1]:7,e_2.x:2379/a/b");
        assert_eq!((options.user.as_deref(), options.password.as_str()), (Some("ids"), "p/w"));
        assert_eq!(options.request_timeout, Duration::from_millis(5));
        assert!(!format!("{options:?}").contains("p/w"));
        assert!(options.role_commands("o'b")[0].ends_with(r"'o'\''b'"));
    }

    #[test]
    fn bad_urls_are_refused_without_their_password() {
        for url in [
            "http://a",
            "etcds://a",
            "etcd://u:secret@a:b",
            "etcd://u:secret@b@a",
            "etcd://u:secret/x@a",
            "etcd://:secret@a",
            "etcd://a//b",
            "etcd://a/ids/tag",
            "etcd://a/ids/worker/x",
            "etcd://a?ssl-mode=prefer",
            "etcd://a?ssl-ca=",
            "etcd://a?identity=maybe",
            "etcd://a?request-timeout-ms=0",
            "etcd://a?user=u",
        ] {
            let error = EtcdOptions::from_url(url).unwrap_err();
            assert!(matches!(error, StoreError::Refused { .. }), "{url}: {error:?}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        for url in ["etcd://a?ssl-cert=x", "etcd://a?ssl-mode=disable&ssl-ca=x"] {
            assert!(EtcdOptions::from_url(url).unwrap().validate().is_err(), "{url}");
        }
        assert!(EtcdOptions::from_url("etcd://a").unwrap().password("secret").validate().is_err());
    }
}
