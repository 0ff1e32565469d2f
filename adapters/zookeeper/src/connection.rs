//! One connection to ZooKeeper for all requests, which it carries at once; another one as soon as it is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};
use unalike_storage::{Process, StoreError};
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error, SessionState};

use crate::ZookeeperOptions;
use crate::error::{connect_error, is_answer};

pub(crate) struct Connection {
    options: Arc<ZookeeperOptions>,
    /// Whose connection it is. A child would share its socket, and has not the task that carries the answers.
    process: Process,
    client: Mutex<Option<Client>>,
    /// An answer did not come over the connection, so another one is made for the next request.
    lost_answer: AtomicBool,
}

impl Connection {
    pub(crate) fn new(options: Arc<ZookeeperOptions>) -> Self {
        let process = Process::current();
        Self { options, process, client: Mutex::new(None), lost_answer: AtomicBool::new(false) }
    }

    /// The connection. The driver would keep what is asked for while it has none, and send it later, so a connection
    /// that was lost is replaced at once: a session is worth nothing here.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when no server answers in time; [`StoreError::Refused`] in a forked child.
    pub(crate) async fn client(&self) -> Result<Client, StoreError> {
        self.process.check(&format!("the store at {}", self.options.address()))?;
        // One request connects, and the others wait for it, no longer than it may take.
        let client = timeout(self.options.connect_timeout, self.connected()).await.unwrap_or(Err(Error::Timeout));
        client.map_err(|error| connect_error(&self.options.address(), error))
    }

    async fn connected(&self) -> Result<Client, Error> {
        let Self { options, client: kept, lost_answer, .. } = self;
        let mut kept = kept.lock().await;
        if lost_answer.swap(false, Ordering::Relaxed) {
            *kept = None;
        }
        if let Some(client) = kept.as_ref().filter(|client| client.state() == SessionState::SyncConnected) {
            return Ok(client.clone());
        }
        *kept = None;
        let mut connector = Client::connector().with_session_timeout(options.session_timeout).with_fail_eagerly();
        if let Some(user) = &options.user {
            connector = connector.with_auth("digest", format!("{user}:{}", options.password).as_bytes());
        }
        let client = connector.connect(&options.hosts).await?;
        *kept = Some(client.clone());
        Ok(client)
    }

    pub(crate) async fn close(&self) {
        if !self.process.is_current() {
            return;
        }
        *self.client.lock().await = None;
    }

    /// Has the answers to what is sent now come in time.
    pub(crate) fn deadline(&self) -> Deadline<'_> {
        Deadline { connection: self, at: Instant::now() + self.options.request_timeout }
    }

    /// How nodes are made: to stay, and only the user's where there is one.
    pub(crate) fn persistent(&self, mode: CreateMode) -> CreateOptions<'static> {
        mode.with_acls(if self.options.user.is_some() { Acls::creator_all() } else { Acls::anyone_all() })
    }
}

/// One for all that was sent at once.
#[derive(Clone, Copy)]
pub(crate) struct Deadline<'c> {
    connection: &'c Connection,
    at: Instant,
}

impl Deadline<'_> {
    /// The answer, if it comes in time. If none comes, the connection is given up: it may be to a server that hangs, or
    /// its task may have ended with the runtime that it was made in.
    pub(crate) async fn answer<T>(self, request: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let answer = timeout_at(self.at, request).await.unwrap_or(Err(Error::Timeout));
        if answer.as_ref().is_err_and(|error| !is_answer(error)) {
            self.connection.lost_answer.store(true, Ordering::Relaxed);
        }
        answer
    }
}
