//! Sentinels: which server they say is the master. Any of them may be down, behind, or wrong.
//!
//! All are asked at once. A server that more of them name comes first; whether it is a master is for it to say. That
//! costs no number whoever is right: one server's numbers are never another one's.

use std::fmt;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;
use unalike_storage::StoreError;

use crate::ask_all::{Worth, hear};
use crate::error::{connect_error, is_denied, lacks_command, read_error};
use crate::place::{Clients, Place};

/// The Sentinels that watch over one master.
#[derive(Clone)]
pub(crate) struct Sentinels(Arc<Inner>);

struct Inner {
    sentinels: Vec<Arc<Sentinel>>,
    master: String,
}

struct Sentinel {
    place: Place,
    client: Client,
    connection: Mutex<Option<MultiplexedConnection>>,
}

/// A server that Sentinels name the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) place: Place,
    /// How many of them do.
    pub(crate) votes: usize,
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sentinels").field("master", &self.0.master).finish_non_exhaustive()
    }
}

impl Sentinels {
    /// # Errors
    /// [`StoreError::Refused`] when there can be no connection to one.
    pub(crate) fn new(places: &[Place], master: &str, clients: &Clients) -> Result<Self, StoreError> {
        let sentinel = |place: &Place| {
            let (place, client) = (place.clone(), clients.client(place)?);
            Ok(Arc::new(Sentinel { place, client, connection: Mutex::default() }))
        };
        let sentinels = places.iter().map(sentinel).collect::<Result<_, StoreError>>()?;
        Ok(Self(Arc::new(Inner { sentinels, master: master.to_owned() })))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.sentinels.len()
    }

    /// The servers that they name, those first that more of them do: at least one.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when none answers in time, [`StoreError::Refused`] when none knows the master, or
    /// lets this program ask.
    pub(crate) async fn masters(&self, deadline: Instant) -> Result<Vec<Named>, StoreError> {
        let mut asked = JoinSet::new();
        for sentinel in &self.0.sentinels {
            let (sentinel, inner) = (Arc::clone(sentinel), Arc::clone(&self.0));
            asked.spawn(async move { sentinel.master(&inner.master).await });
        }
        let mut named: Vec<Named> = Vec::new();
        let failed = hear(asked, deadline, |place| {
            match named.iter_mut().find(|named| named.place == place) {
                Some(named) => named.votes += 1,
                None => named.push(Named { place, votes: 1 }),
            }
            let is_elected = named.iter().any(|named| named.votes > self.count() / 2);
            if is_elected { Worth::All } else { Worth::Something }
        });
        let failed = failed.await;
        if named.is_empty() {
            return Err(failed.unwrap_or_else(|| self.silent()));
        }
        // Stable: of those with as many votes the first one answered first.
        named.sort_by_key(|named| std::cmp::Reverse(named.votes));
        Ok(named)
    }

    fn silent(&self) -> StoreError {
        let places: Vec<_> = self.0.sentinels.iter().map(|sentinel| sentinel.place.to_string()).collect();
        StoreError::unavailable(format!(
            "none of the Sentinels answers: {}: check their addresses, and whether they use TLS as the URL says",
            places.join(", ")
        ))
    }
}

impl Sentinel {
    /// Where it says that the master is.
    async fn master(&self, master: &str) -> Result<Place, StoreError> {
        // Whoever is dropped while it waits for the answer leaves the place empty, and the next one connects again.
        let mut kept = self.connection.lock().await;
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let at = self.named();
        let failed = |error: RedisError| {
            if error.detail().is_some_and(lacks_command) {
                return StoreError::refused(format!(
                    "{at}: this is a Redis server and no Sentinel: name the Sentinels, which listen on port 26379 by default"
                ))
                .with_source(error);
            }
            let doing = "asking for the master (+sentinel|get-master-addr-by-name; `sentinel-auth=same` sends it the user and \
                the password)";
            read_error(&at, doing, error)
        };
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
        let answer: Option<(String, u16)> = command.query_async(&mut connection).await.map_err(failed)?;
        *kept = Some(connection);
        let (host, port) = answer.ok_or_else(|| {
            StoreError::refused(format!(
                "{at} watches over no master of the name {master:?}: write the one of its configuration (sentinel monitor NAME)"
            ))
        })?;
        Ok(Place::new(&host, port))
    }

    async fn connect(&self) -> Result<MultiplexedConnection, StoreError> {
        // The deadline of whoever asks is the limit.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connected = self.client.get_multiplexed_async_connection_with_config(&config).await;
        connected.map_err(|error| {
            if is_denied(&error) {
                let doing = "connecting (`sentinel-auth=same` sends it the user and the password of the URL)";
                return read_error(&self.named(), doing, error);
            }
            connect_error(&self.named(), error)
        })
    }

    fn named(&self) -> String {
        format!("{} (a Sentinel)", self.place)
    }
}
