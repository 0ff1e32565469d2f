//! Which server is asked, and whether its answer may be believed.

use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Method};
use rustls::CertificateError;
use serde::de::DeserializeOwned;
use serde_json::Value;
use unalike_storage::{Process, StoreError, StoreIdentity, cause, lock, random_128};
use url::Url;

use crate::RemoteOptions;
use crate::answers::{Failure, StoreNames, problem};

/// The header by which an answer is known to be this request's.
const X_REQUEST_ID: &str = "x-request-id";

/// A longer answer is read no further: a page of tags has some hundred kilobytes.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How long a server that failed is asked after all others, at first and at most. It doubles.
const AVOIDED: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

/// Which of a server's stores is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Segments,
    Leases,
}

/// What becomes of a request whose answer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing: it only reads.
    Reads,
    /// Nobody knows.
    Writes,
}

/// A request to any of the servers.
#[derive(Clone, Debug)]
pub(crate) struct Request<'a> {
    /// For messages: "granting numbers of ..".
    pub(crate) doing: String,
    pub(crate) access: Access,
    pub(crate) method: Method,
    /// Of the path, unencoded.
    pub(crate) path: Vec<&'a str>,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) body: Option<Value>,
}

/// The servers of one store, in order of preference.
pub(crate) struct Servers {
    servers: Vec<Server>,
    part: Part,
    client: Client,
    token: Option<HeaderValue>,
    /// Whose certificates are believed, for messages.
    trusted: String,
    /// How long opening a connection may take.
    connect_timeout: Duration,
    /// The store of all of them, once it is known. `Some(None)`: the only server's store has no name.
    store: Mutex<Option<Option<StoreIdentity>>>,
    process: Process,
    address: String,
}

struct Server {
    url: Url,
    name: String,
    state: Mutex<ServerState>,
}

#[derive(Default)]
struct ServerState {
    /// Its store is the one of the others.
    is_known: bool,
    /// Why it is never asked again.
    refused: Option<String>,
    failures: u32,
    avoided_until: Option<Instant>,
}

/// The host and port of a server, for messages.
pub(crate) fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers").field("address", &self.address).field("part", &self.part).finish_non_exhaustive()
    }
}

impl Servers {
    /// Looks at the servers: all of them when only they can tell which store is meant, else those that answer.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when they have different stores, or one that is not the expected one;
    /// [`StoreError::Unavailable`] when a server does not answer that must, or none does.
    pub(crate) async fn connect(options: &RemoteOptions, part: Part) -> Result<Self, StoreError> {
        let servers = Self::new(options, part)?;
        let looks = join_all(servers.servers.iter().map(|server| servers.look_at(server))).await;
        let all_must_answer = servers.servers.len() > 1 && options.store.is_none();
        if all_must_answer {
            let mut stores = Vec::new();
            for (server, look) in servers.servers.iter().zip(looks) {
                let store = look.map_err(|error| servers.needs_all(server, error))?;
                let Some(store) = store else {
                    return Err(StoreError::refused(format!(
                        "the store of the server {} has no name by which it could be told from another one: name this \
                         server by itself",
                        server.name
                    )));
                };
                stores.push(store);
            }
            for (server, store) in servers.servers.iter().zip(&stores) {
                if Some(store) != stores.first() {
                    return Err(servers.different_stores(server, &stores));
                }
            }
            if let Some(store) = stores.first() {
                tracing::info!(%store, servers = servers.address, "the servers have one store");
                *lock(&servers.store) = Some(Some(*store));
            }
            servers.servers.iter().for_each(|server| lock(&server.state).is_known = true);
            return Ok(servers);
        }
        let mut answered = false;
        let mut failure = None;
        for (server, look) in servers.servers.iter().zip(looks) {
            match look.and_then(|store| servers.recognise(server, store)) {
                Ok(()) => answered = true,
                // One that is refused is not asked again. Of all that say why, it lasts longest.
                Err(error) if !error.is_retryable() => failure = Some(error),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match failure {
            Some(error) if !answered => Err(error),
            _ => Ok(servers),
        }
    }

    fn new(options: &RemoteOptions, part: Part) -> Result<Self, StoreError> {
        if options.servers.is_empty() {
            return Err(StoreError::refused("no server is named: give one at least"));
        }
        let (client, token) = (client(options)?, header(options)?);
        let servers = options.servers.iter().map(|url| Server {
            url: url.clone(),
            name: format!("{}://{}", url.scheme(), host_of(url)),
            state: Mutex::default(),
        });
        Ok(Self {
            servers: servers.collect(),
            part,
            client,
            token,
            trusted: match &options.ssl_ca {
                Some(path) => format!("{} holds", path.display()),
                None => "the system trusts".to_owned(),
            },
            connect_timeout: connect_timeout(options),
            store: Mutex::new(options.store.map(Some)),
            process: Process::current(),
            address: options.address(),
        })
    }

    /// For messages.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The store of all servers, once one has answered.
    pub(crate) fn store(&self) -> Option<StoreIdentity> {
        lock(&self.store).flatten()
    }

    /// Asks the servers in order of preference until one answers. The next one is asked only after one that proves that
    /// it has granted nothing.
    ///
    /// `store_in` finds in an answer which store it is from: `None` where the answer does not say.
    ///
    /// # Errors
    /// What the last server that was asked brings; where some may succeed later, the last of these.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        request: &Request<'_>,
        store_in: impl Fn(&T) -> Option<Option<StoreIdentity>>,
    ) -> Result<T, StoreError> {
        self.process.check(&format!("the client of {}", self.address))?;
        let mut last = None;
        for server in self.in_order() {
            match self.ask_one(server, request, &store_in).await {
                Ok(answer) => {
                    let mut state = lock(&server.state);
                    (state.failures, state.avoided_until) = (0, None);
                    return Ok(answer);
                }
                Err(failure) => {
                    let Failure { error, is_servers } = failure;
                    if !is_servers {
                        return Err(error);
                    }
                    server.avoid();
                    if error.may_have_granted() {
                        return Err(error);
                    }
                    // What passes is worth trying again, though another server refuses for good.
                    if error.is_retryable() || !last.as_ref().is_some_and(StoreError::is_retryable) {
                        last = Some(error);
                    }
                }
            }
        }
        Err(last.unwrap_or_else(|| self.nobody()))
    }

    /// Whether a server answers, and its store does.
    ///
    /// # Errors
    /// As [`Servers::ask`].
    pub(crate) async fn check(&self) -> Result<(), StoreError> {
        let request = Request {
            doing: "asking whether the store is there".to_owned(),
            access: Access::Reads,
            method: Method::GET,
            path: vec!["v1", "store"],
            query: Vec::new(),
            body: None,
        };
        self.ask(&request, |_: &StoreNames| None).await.map(drop)
    }

    async fn ask_one<T: DeserializeOwned>(
        &self,
        server: &Server,
        request: &Request<'_>,
        store_in: impl Fn(&T) -> Option<Option<StoreIdentity>>,
    ) -> Result<T, Failure> {
        if !lock(&server.state).is_known {
            let store = self.look_at(server).await.map_err(Failure::of_server)?;
            self.recognise(server, store).map_err(Failure::of_server)?;
        }
        let answer = self.send(server, request).await?;
        // Before anything is made of it.
        if let Some(store) = store_in(&answer) {
            self.recognise(server, store).map_err(Failure::of_server)?;
        }
        Ok(answer)
    }

    /// Those that are not avoided first; none that was refused.
    fn in_order(&self) -> Vec<&Server> {
        let now = Instant::now();
        let usable = self.servers.iter().filter(|server| lock(&server.state).refused.is_none());
        let (avoided, mut order): (Vec<_>, Vec<_>) =
            usable.partition(|server| lock(&server.state).avoided_until.is_some_and(|until| now < until));
        order.extend(avoided);
        order
    }

    fn nobody(&self) -> StoreError {
        let refused: Vec<_> = self.servers.iter().filter_map(|server| lock(&server.state).refused.clone()).collect();
        StoreError::refused(format!("no server of {} can be used: {}", self.address, refused.join("; ")))
    }

    /// Which store a server has.
    async fn look_at(&self, server: &Server) -> Result<Option<StoreIdentity>, StoreError> {
        let request = Request {
            doing: "asking which store it has".to_owned(),
            access: Access::Reads,
            method: Method::GET,
            path: vec!["v1", "store"],
            query: Vec::new(),
            body: None,
        };
        let names: StoreNames = self.send(server, &request).await.map_err(|failure| failure.error)?;
        let name = match self.part {
            Part::Segments => names.store,
            Part::Leases => names.leases,
        };
        name.map(|name| name.parse()).transpose()
    }

    /// Takes the server's store for that of all, or refuses the server.
    fn recognise(&self, server: &Server, store: Option<StoreIdentity>) -> Result<(), StoreError> {
        let mut known = lock(&self.store);
        let is_only = self.servers.len() == 1;
        let expected = match *known {
            Some(expected) => expected,
            // Several were compared before any was used.
            None if is_only => *known.insert(store),
            None => None,
        };
        drop(known);
        let mut state = lock(&server.state);
        if store == expected && (store.is_some() || is_only) {
            state.is_known = true;
            return Ok(());
        }
        let name =
            |store: Option<StoreIdentity>| store.map_or_else(|| "without a name".to_owned(), |name| name.to_string());
        let what = format!(
            "the server {} has the store {}, and {} was expected: its ids would repeat those of the other one, so nothing that it \
             grants is used. Name servers with one store only, or restart this program if the store was meant to change",
            server.name,
            name(store),
            name(expected)
        );
        state.is_known = false;
        state.refused = Some(what.clone());
        tracing::error!("{what}");
        Err(StoreError::refused(what))
    }

    fn needs_all(&self, server: &Server, error: StoreError) -> StoreError {
        let what = format!(
            "the server {} does not say which store it has, and several servers must agree before the first one is used: start \
             it, or name the store by the identity that the others answer at GET /v1/store (store=IDENTITY)",
            server.name
        );
        if error.is_retryable() { StoreError::unavailable(what).with_source(error) } else { error }
    }

    fn different_stores(&self, server: &Server, stores: &[StoreIdentity]) -> StoreError {
        let all: Vec<_> =
            self.servers.iter().zip(stores).map(|(server, store)| format!("{} has {store}", server.name)).collect();
        StoreError::refused(format!(
            "the servers have different stores, so their ids would repeat ({}): name servers with one store only; {} is the first \
             that differs",
            all.join(", "),
            server.name
        ))
    }

    /// Why no connection could be opened, and what to do, where that is known.
    fn advice(&self, error: &reqwest::Error) -> String {
        if error.is_timeout() {
            return format!(": not within {} ms (connect-timeout-ms)", self.connect_timeout.as_millis());
        }
        match cause::<rustls::Error>(error) {
            None => String::new(),
            Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => format!(
                ": its certificate is signed by no authority that {}; give ssl-ca the file of the authority that signed it",
                self.trusted
            ),
            Some(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => ": its certificate is for another name; address it by a name that is in it".to_owned(),
            Some(rustls::Error::InvalidCertificate(_)) => {
                ": its certificate is not valid; one that signs itself needs basicConstraints CA:FALSE".to_owned()
            }
            Some(rustls::Error::InvalidMessage(_)) => {
                ": what it speaks is no TLS; write http:// if it has none".to_owned()
            }
            Some(_) => ": no TLS came about".to_owned(),
        }
    }

    /// Sends a request to one server, once.
    async fn send<T: DeserializeOwned>(&self, server: &Server, request: &Request<'_>) -> Result<T, Failure> {
        let at = || format!("{}, at {}", request.doing, server.name);
        let id = format!("{:032x}", random_128().map_err(Failure::of_caller)?);
        // Whatever is done about it, URLs leave them out.
        if let Some(dots) = request.path.iter().find(|part| matches!(**part, "." | "..")) {
            let what = format!("{}: the name {dots:?} cannot be part of a URL", at());
            return Err(Failure::of_caller(StoreError::refused(what)));
        }
        let mut url = server.url.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.clear().extend(&request.path);
        }
        if !request.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&request.query);
        }
        let mut sent = self.client.request(request.method.clone(), url).header(X_REQUEST_ID, &id);
        if let Some(token) = &self.token {
            sent = sent.header(AUTHORIZATION, token);
        }
        if let Some(body) = &request.body {
            sent = sent.header("content-type", "application/json").body(body.to_string());
        }
        let lost = |what: &str| {
            let what = format!("{} {what}", at());
            Failure::of_server(match request.access {
                Access::Reads => StoreError::unavailable(what),
                Access::Writes => StoreError::outcome_unknown(what),
            })
        };
        let mut response = match sent.send().await {
            Ok(response) => response,
            Err(error) if error.is_builder() => {
                return Err(Failure::of_caller(StoreError::refused(at()).with_source(error.without_url())));
            }
            // It was never sent.
            Err(error) if error.is_connect() => {
                let what = format!("{}: no connection could be opened{}", at(), self.advice(&error));
                return Err(Failure::of_server(StoreError::unavailable(what).with_source(error.without_url())));
            }
            Err(error) => return Err(lost("brought no answer").with_source(error.without_url())),
        };
        // Of a cache, or of a proxy that gives one answer to several: whose grant it is nobody knows.
        let status = response.status();
        match response.headers().get(X_REQUEST_ID).map(HeaderValue::as_bytes) {
            Some(given) if given == id.as_bytes() => {}
            Some(_) => {
                return Err(lost(&format!(
                    "brought the answer to another request, with the status {}: its X-Request-Id is not the one that was \
                     sent. If there is a proxy before the server, have it pass this header, and cache and collapse nothing",
                    status.as_u16()
                )));
            }
            None => {
                return Err(lost(&format!(
                    "was answered with the status {} by something that is no unalike server: no X-Request-Id came back. If \
                     there is a proxy before the server, have it pass this header",
                    status.as_u16()
                )));
            }
        }
        let mut body = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(bytes)) if body.len() + bytes.len() <= ANSWER_BYTES_MAX => body.extend_from_slice(&bytes),
                Ok(Some(_)) => return Err(lost("brought an answer that is too long")),
                Ok(None) => break,
                Err(error) => return Err(lost("brought half of an answer").with_source(error.without_url())),
            }
        }
        if !status.is_success() {
            return Err(problem(&at(), status.as_u16(), &body).unwrap_or_else(|| {
                lost(&format!("brought the status {status}, and no problem that an unalike server describes"))
            }));
        }
        serde_json::from_slice(&body).map_err(|error| lost("brought an answer that cannot be read").with_source(error))
    }
}

/// Checks what can be checked without asking a server. The system's certificates are read when one is.
///
/// # Errors
/// [`StoreError::Refused`].
pub(crate) fn check(options: &RemoteOptions) -> Result<(), StoreError> {
    header(options)?;
    if options.ssl_ca.is_some() {
        client(options)?;
    }
    Ok(())
}

/// A request's time includes connecting: what was never sent is known as that.
fn connect_timeout(options: &RemoteOptions) -> Duration {
    options.connect_timeout.min(options.request_timeout / 2)
}

fn client(options: &RemoteOptions) -> Result<Client, StoreError> {
    let mut client = Client::builder()
        .redirect(Policy::none())
        .no_proxy()
        .connect_timeout(connect_timeout(options))
        .timeout(options.request_timeout)
        .tcp_nodelay(true);
    if let Some(path) = &options.ssl_ca {
        let unusable = |what: String| StoreError::refused(format!("the certificates in {}: {what}", path.display()));
        let pem = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
        let certificates = Certificate::from_pem_bundle(&pem).map_err(|error| unusable(error.to_string()))?;
        if certificates.is_empty() {
            return Err(unusable("there is none, as PEM".to_owned()));
        }
        client = client.tls_built_in_root_certs(false);
        for certificate in certificates {
            client = client.add_root_certificate(certificate);
        }
    }
    client.build().map_err(|error| StoreError::refused("the HTTP client cannot be set up").with_source(error))
}

/// What carries the token.
fn header(options: &RemoteOptions) -> Result<Option<HeaderValue>, StoreError> {
    let token = options.token.as_ref().map(|token| {
        let header = HeaderValue::from_str(&format!("Bearer {token}"));
        header.map_err(|_| StoreError::refused("the token has letters that no header may have"))
    });
    let mut token = token.transpose()?;
    token.iter_mut().for_each(|token| token.set_sensitive(true));
    Ok(token)
}

impl Server {
    /// Has the others asked first, for a while.
    fn avoid(&self) {
        let mut state = lock(&self.state);
        let (first, most) = AVOIDED;
        let pause = first.saturating_mul(1 << state.failures.min(16)).min(most);
        state.failures = state.failures.saturating_add(1);
        state.avoided_until = Some(Instant::now() + pause);
    }
}
