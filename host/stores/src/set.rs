//! The stores that a program uses together: one or several of sequences, what backs a volatile one, and where workers
//! are leased.

use std::fmt;
use std::sync::Arc;

use futures_util::future::join_all;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use unalike_storage::{Lazy, LeaseStore, SegmentStore, StoreError, StripedStore};

use crate::backend::{OpenStore, Opening, Place};
use crate::error::{Because as _, PlaceError};
use crate::url::StoreUrl;
use crate::{durable_forms, sequence_forms};

/// A set has no more stripes than this.
const STRIPES_MAX: usize = 1_024;

/// One store, or several that number together: the stripes of a set, in this order. In a configuration it is a text, or
/// a list of texts.
///
/// ```
/// use unalike_stores::StoreUrls;
/// let stores = StoreUrls::of(["sqlite://a.sqlite", "sqlite://b.sqlite"]);
/// assert_eq!(stores.to_string(), "sqlite://a.sqlite, sqlite://b.sqlite");
/// assert!(stores.only().is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreUrls(Vec<StoreUrl>);

impl StoreUrls {
    /// One store.
    pub fn one(url: impl Into<String>) -> Self {
        Self(vec![StoreUrl::new(url)])
    }

    /// One or several.
    pub fn of<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> Self {
        Self(urls.into_iter().map(StoreUrl::new).collect())
    }

    /// In their order.
    pub fn iter(&self) -> impl Iterator<Item = &StoreUrl> {
        self.0.iter()
    }

    /// The store, if there is just one.
    pub fn only(&self) -> Option<&StoreUrl> {
        if let [url] = self.0.as_slice() { Some(url) } else { None }
    }

    /// The store, if it is one that may lose what it said.
    pub fn volatile(&self) -> Option<&StoreUrl> {
        self.only().filter(|url| url.is_volatile())
    }

    /// Checks each, and that none is there twice.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn validate(&self) -> Result<(), PlaceError> {
        if self.0.is_empty() {
            return Err(PlaceError::new(format!("there is no store: write {} (--store)", sequence_forms())));
        }
        if self.0.len() > STRIPES_MAX {
            let what = format!("there are {} stores, {STRIPES_MAX} at most are a set", self.0.len());
            return Err(PlaceError::new(what));
        }
        if self.only().is_none() {
            self.refuse_volatile()?;
        }
        let mut places = Vec::with_capacity(self.0.len());
        for url in &self.0 {
            let place = url.place()?.name()?;
            if places.contains(&place) {
                return Err(PlaceError::new(format!("the store {url:?} is given twice")));
            }
            places.push(place);
        }
        Ok(())
    }

    /// Checks that they can be stripes of a set.
    ///
    /// # Errors
    /// When one of them may lose what it said.
    pub fn refuse_volatile(&self) -> Result<(), PlaceError> {
        match self.0.iter().find(|url| url.is_volatile()) {
            None => Ok(()),
            Some(url) => Err(PlaceError::new(format!(
                "the store {url:?} is in {}, which is never one of several that number together: name only it, with the \
                 durable store behind it (--backing)",
                url.title()
            ))),
        }
    }
}

impl fmt::Display for StoreUrls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<_> = self.0.iter().map(StoreUrl::to_string).collect();
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

/// The stores that a program uses, as it names them. Errors name them as the command's flags do: `--store`,
/// `--backing`, `--leases`.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use unalike_stores::{Opening, StoreSet, StoreUrls};
///
/// # let directory = tempfile::tempdir()?;
/// # let url = format!("sqlite://{}/ids.sqlite", directory.path().display());
/// let stores = StoreUrls::one(url); // such as "sqlite://ids.sqlite"
/// let set = StoreSet { stores: &stores, backing: None, leases: None };
/// set.validate()?;
/// let mut open = set.open(Opening::default()).await?;
/// let segments = open.segments().expect("opened");
/// assert_eq!(segments.allocate("order", 100, 0).await?.start, 1);
/// let leases = open.leases().await?.expect("beside the sequences").connect().await?;
/// # drop(leases);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sqlite"))]
/// # fn main() {}
/// ```
#[derive(Clone, Copy, Debug)]
pub struct StoreSet<'a> {
    /// Those of the sequences.
    pub stores: &'a StoreUrls,
    /// What grants a volatile store what it hands out; [nothing](StoreUrl::is_nothing), where that is said.
    pub backing: Option<&'a StoreUrl>,
    /// Where workers are leased; [nowhere](StoreUrl::is_nothing), where that is said, and in the durable store of the
    /// sequences where nothing is.
    pub leases: Option<&'a StoreUrl>,
}

/// Where workers are leased.
#[derive(Clone, Copy, Debug)]
pub enum LeasePlace<'a> {
    /// In the store that is named for it.
    Named(&'a StoreUrl),
    /// In the durable store of the sequences, as nothing else is said.
    Beside(&'a StoreUrl),
    /// Nowhere.
    Nowhere,
}

impl<'a> StoreSet<'a> {
    /// Checks each store, and that what backs a volatile one is said, and is said of no other.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn validate(&self) -> Result<(), PlaceError> {
        self.stores.validate().because(|| "the setting store (--store)".to_owned())?;
        self.validate_backing()?;
        if let Some(url) = self.leases.filter(|url| !url.is_nothing()) {
            url.lease_place().because(|| "--leases".to_owned())?;
        }
        Ok(())
    }

    /// Checks only that what backs a volatile store is said, and is said of no other.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn validate_backing(&self) -> Result<(), PlaceError> {
        let leases = self.leases.filter(|url| url.is_volatile());
        let Some(volatile) = self.stores.volatile().or(leases) else {
            if self.backing.is_some() {
                return Err(PlaceError::new(format!(
                    "--backing (or the variable UNALIKE_BACKING) names the durable store behind a store or leases in Redis, and {} is \
                     not in Redis: leave it out (or unset it), or name one such as redis://HOST/DATABASE (--store, --leases)",
                    self.stores
                )));
            }
            return Ok(());
        };
        if let Some(url) = self.stores.volatile()
            && url.place()?.is_only_read()
        {
            return Err(PlaceError::new(format!(
                "the store {url:?} has keys that are only read: bring its tags into a store (unalike tags import --from URL)"
            )));
        }
        let (title, durable) = (volatile.title(), durable_forms());
        let Some(backing) = self.backing else {
            let what = if self.stores.volatile().is_some() { "numbers" } else { "the time of its leases" };
            return Err(PlaceError::new(format!(
                "the store {volatile:?} is in {title}, which may lose what it said: name the durable store that grants it \
                 {what} (--backing {durable}), or say that there is none (--backing none), and ids are only as safe as \
                 {title} is"
            )));
        };
        if backing.is_nothing() {
            return Ok(());
        }
        if backing.is_volatile() {
            return Err(PlaceError::new(format!(
                "the backing store {backing:?} is in {} too: it must be durable, {durable}, or none (--backing)",
                backing.title()
            )));
        }
        backing.place().because(|| "--backing".to_owned()).map(drop)
    }

    /// Where workers are leased.
    pub fn lease_place(&self) -> LeasePlace<'a> {
        if let Some(url) = self.leases {
            return if url.is_nothing() { LeasePlace::Nowhere } else { LeasePlace::Named(url) };
        }
        let durable = match self.stores.volatile() {
            Some(_) => self.backing.filter(|url| !url.is_nothing()),
            None => self.stores.only(),
        };
        durable.map_or(LeasePlace::Nowhere, LeasePlace::Beside)
    }

    /// Opens the stores of the sequences. A volatile one gets what `opening` has for it, or else the
    /// backing store.
    ///
    /// # Errors
    /// When one store cannot be used; of several, only when one is there and refuses, or none is there.
    pub async fn open(&self, opening: Opening) -> Result<OpenSet<'a>, PlaceError> {
        let mut set = self.unopened(opening);
        match set.open().await {
            Ok(()) => Ok(set),
            Err(error) => {
                // Those that opened before: a file of SQLite that is never closed counts as open.
                set.close().await;
                Err(error)
            }
        }
    }

    /// Without the stores of the sequences, for who only needs the leases.
    pub fn unopened(&self, opening: Opening) -> OpenSet<'a> {
        OpenSet { set: *self, opening, segments: None, open: Vec::new() }
    }
}

impl StoreUrl {
    /// Opens the store of sequences that it names, and connects to it. One that may be down is tried again later.
    ///
    /// # Errors
    /// When it cannot be used.
    pub async fn connect(&self, opening: &Opening, may_be_down: bool) -> Result<Opened, PlaceError> {
        let failed = || format!("the store {self} cannot be opened");
        let place = self.place()?;
        let name = place.name()?;
        let store = place.open(opening).await.because(failed)?;
        match store.connect().await {
            Ok(()) => {}
            // Its stripes are left out until it is there.
            Err(error @ StoreError::Unavailable { .. }) if may_be_down => {
                tracing::warn!(%error, "the store {self} is down, and will be tried again");
            }
            Err(error) => return Err(error).because(failed),
        }
        Ok(Opened { url: self.clone(), name, store })
    }
}

/// The open stores of a program.
pub struct OpenSet<'a> {
    set: StoreSet<'a>,
    opening: Opening,
    /// None where only leases are wanted.
    segments: Option<Arc<dyn SegmentStore>>,
    open: Vec<Opened>,
}

/// An open store, and where it is.
#[derive(Clone)]
pub struct Opened {
    /// Its URL.
    pub url: StoreUrl,
    /// The name of its [`Place`].
    pub name: String,
    /// The store.
    pub store: Arc<dyn OpenStore>,
}

impl OpenSet<'_> {
    async fn open(&mut self) -> Result<(), PlaceError> {
        let stores = self.set.stores;
        if let Some(volatile) = stores.volatile() {
            self.take_backing(false).await?;
            if self.opening.durable.is_none() {
                let title = volatile.title();
                tracing::warn!(
                    "no durable store backs {volatile} (--backing none): ids are as safe as this {title} is, and repeat \
                     after a fail-over to a replica that was behind, when its files are lost, or when they are restored and \
                     `unalike store restored` is not run"
                );
            }
        }
        // At once: those that are silent are waited for together.
        let (opening, may_be_down) = (&self.opening, stores.only().is_none());
        let tried = join_all(stores.iter().map(|url| url.connect(opening, may_be_down))).await;
        let mut opened: Vec<Arc<dyn SegmentStore>> = Vec::new();
        let mut failed = None;
        for tried in tried {
            match tried {
                Ok(one) => {
                    opened.push(Arc::clone(&one.store) as _);
                    self.open.push(one);
                }
                // Those after it that opened are to be closed.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let together = match opened.len() {
            1 => opened.pop(),
            _ => None,
        };
        self.segments = Some(match together {
            Some(only) => only,
            None => {
                Arc::new(StripedStore::open(opened).await.because(|| format!("the store {} cannot be opened", stores))?)
            }
        });
        Ok(())
    }

    /// Closes the stores of the sequences, and what backs them. Not needed for safety.
    pub async fn close(&self) {
        for opened in &self.open {
            opened.store.close().await;
        }
    }

    /// Where sequences get their numbers: the store, or the set of stripes. None where they were not
    /// [opened](StoreSet::unopened).
    pub fn segments(&self) -> Option<&Arc<dyn SegmentStore>> {
        self.segments.as_ref()
    }

    /// The stores of the sequences one by one, and what backs them.
    pub fn into_stores(self) -> Vec<Opened> {
        self.open
    }

    /// Where workers are leased, with what it takes to get there. None where they are nowhere.
    ///
    /// # Errors
    /// When its URL cannot be used, or what grants it its time cannot be opened.
    pub async fn leases(&mut self) -> Result<Option<LeaseSource>, PlaceError> {
        let (url, is_named) = match self.set.lease_place() {
            LeasePlace::Named(url) => (url, true),
            LeasePlace::Beside(url) => (url, false),
            LeasePlace::Nowhere => return Ok(None),
        };
        if url.is_volatile() {
            // Sequences do not wait for what only leases need.
            self.take_backing(true).await?;
        }
        let place = url.lease_place().because(|| lease_failure(url))?;
        // A file is opened once. A server that is named has connections of its own.
        let name = place.name()?;
        let beside = if is_named && !url.is_file() { None } else { self.at(&name).map(Arc::clone) };
        let has_backing = self.opening.durable.is_some();
        let way = match beside {
            Some(store) => Way::Beside(store),
            None => Way::Apart(place, Box::new(self.opening.clone())),
        };
        Ok(Some(LeaseSource { url: url.clone(), name, is_named, has_backing, way }))
    }

    /// The one at this place.
    fn at(&self, name: &str) -> Option<&Arc<dyn OpenStore>> {
        self.open.iter().find(|opened| opened.name == name).map(|opened| &opened.store)
    }

    /// Opens what backs a volatile store, unless it is open. One that may be down is tried again later.
    async fn take_backing(&mut self, may_be_down: bool) -> Result<(), PlaceError> {
        if self.opening.durable.is_some() {
            return Ok(());
        }
        // Nothing backs it only where that is said.
        self.set.validate_backing()?;
        let Some(url) = self.set.backing.filter(|url| !url.is_nothing()) else { return Ok(()) };
        let durable = match self.at(&url.place()?.name()?) {
            Some(store) => Arc::clone(store),
            None => {
                let opened = url.connect(&self.opening, may_be_down).await.because(|| "--backing".to_owned())?;
                let store = Arc::clone(&opened.store);
                self.open.push(opened);
                store
            }
        };
        self.opening.durable = Some(durable);
        Ok(())
    }
}

/// What a failure to open leases begins with.
fn lease_failure(url: &StoreUrl) -> String {
    format!("the store of leases {url} cannot be opened (--leases)")
}

/// What leases workers, and how to get there.
pub struct LeaseSource {
    url: StoreUrl,
    name: String,
    is_named: bool,
    has_backing: bool,
    way: Way,
}

enum Way {
    /// The store of the sequences, by the same connections.
    Beside(Arc<dyn OpenStore>),
    /// A store of its own.
    Apart(Arc<dyn Place>, Box<Opening>),
}

impl LeaseSource {
    /// Its URL.
    pub fn url(&self) -> &StoreUrl {
        &self.url
    }

    /// The name of its [`Place`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it was named for leases.
    pub fn is_named(&self) -> bool {
        self.is_named
    }

    /// Whether it may lose what it said, and nothing durable grants it the time that it leases.
    pub fn is_unbacked(&self) -> bool {
        self.url.is_volatile() && !self.has_backing
    }

    /// What a failure to open it begins with.
    pub fn failure(&self) -> String {
        lease_failure(&self.url)
    }

    /// Connects to it.
    ///
    /// # Errors
    /// When it cannot be used.
    pub async fn connect(&self) -> Result<Arc<dyn LeaseStore>, StoreError> {
        match &self.way {
            Way::Beside(store) => Arc::clone(store).leases().await,
            Way::Apart(place, opening) => place.connect_leases(opening).await,
        }
    }

    /// The store, which is connected to when it is first needed, and asked again after it refused: on a server it may
    /// be down when a program starts.
    pub fn lazy(self) -> Arc<dyn LeaseStore> {
        let source = Arc::new(self);
        Arc::new(Lazy::new(move || {
            let source = Arc::clone(&source);
            async move { source.connect().await }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_of_several_stores_shows_a_password() {
        for url in ["mysql://ids:secret@db/ids", "redis://ids:12/secret@cache/0", "ids:secret@db/ids"] {
            let urls = StoreUrls::of([url, url]);
            assert!(!urls.to_string().contains("secret"));
            let error = urls.validate().expect_err("the same store twice");
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
    }

    #[cfg(feature = "mysql")]
    #[tokio::test]
    async fn stores_that_are_silent_are_waited_for_together() {
        use std::io::ErrorKind;
        use tokio::net::TcpListener;

        let listen = async |_| TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let listeners = join_all((0..3).map(listen)).await;
        let url = |listener: &TcpListener| format!("mysql://ids@{}/ids", listener.local_addr().expect("it is bound"));
        let stores = StoreUrls::of(listeners.iter().map(url));
        let set = StoreSet { stores: &stores, backing: None, leases: None };
        let silent = async {
            let accepted = join_all(listeners.iter().map(TcpListener::accept)).await;
            accepted.into_iter().all(|accepted| {
                let connection = accepted.and_then(|(connection, _)| connection.into_std()).expect("a connection");
                connection.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
            })
        };
        let (set, waits_for_all) = tokio::join!(set.open(Opening::default()), silent);
        assert!(waits_for_all, "none of the connections was given up before the last was made");
        assert!(set.is_err(), "no store is there");
    }
}
