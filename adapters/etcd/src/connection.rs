//! One connection to one member: gRPC over HTTP/2, by a driver that repeats nothing and never connects again by itself.
//! And the member's clock.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::uri::PathAndQuery;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::Status;
use tonic::body::Body;
use tonic::metadata::{Ascii, MetadataValue};
use tonic_prost::ProstCodec;
use unalike_storage::StoreError;

use crate::tls::Tls;

/// A longer answer is not read: the leases of 65,536 workers have some 15 MB.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Where a member is, and how it is reached.
#[derive(Clone)]
pub(crate) struct Member {
    /// As a URL has it: an IPv6 address in brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: Option<Tls>,
}

/// A connection; clones share it.
#[derive(Clone)]
pub(crate) struct Connection {
    requests: http2::SendRequest<Body>,
    origin: http::Uri,
    /// What the member knows the user by.
    token: Option<MetadataValue<Ascii>>,
}

/// What became of a request that brought no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Carriage {
    /// It never left this program.
    #[error("it was not sent: the connection is closed")]
    NotSent,
    /// It may have been carried out.
    #[error(
        "the connection broke: if it always does, check that this is etcd's port for clients, and whether it demands TLS"
    )]
    Broke(#[source] hyper::Error),
}

impl Member {
    /// For messages.
    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    async fn tcp(&self) -> Result<TcpStream, StoreError> {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let connected = TcpStream::connect((host, self.port)).await.and_then(|stream| {
            stream.set_nodelay(true)?;
            Ok(stream)
        });
        connected.map_err(|error| {
            StoreError::unavailable(format!("the member {} cannot be reached", self.name())).with_source(error)
        })
    }

    /// Connects for requests.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`], and [`StoreError::Refused`] where TLS does not lead to a member that can be
    /// trusted.
    pub(crate) async fn connect(&self) -> Result<Connection, StoreError> {
        let stream = self.tcp().await?;
        match &self.tls {
            None => self.speak(stream, "http").await,
            Some(tls) => self.speak(self.secure(tls, stream, b"h2").await?, "https").await,
        }
    }

    async fn secure(
        &self,
        tls: &Tls,
        stream: TcpStream,
        protocol: &[u8],
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, StoreError> {
        let config = tls.config(protocol);
        let name = tls.server_name(&self.host)?;
        TlsConnector::from(config).connect(name, stream).await.map_err(|error| {
            let what = format!(
                "the member {}: no TLS with a server that can be trusted: check ssl-mode, ssl-ca and ssl-cert, and the member's \
                 certificate",
                self.name()
            );
            // What the network does is no refusal.
            let is_tls = error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
            let kind = if is_tls { StoreError::refused } else { StoreError::unavailable };
            kind(what).with_source(error)
        })
    }

    async fn speak<S>(&self, stream: S, scheme: &str) -> Result<Connection, StoreError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let broke = |error: hyper::Error| {
            StoreError::unavailable(format!("the member {} does not speak HTTP/2", self.name())).with_source(error)
        };
        let handshake = http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream));
        let (requests, driver) = handshake.await.map_err(broke)?;
        // It ends with the connection, or with the last clone that sends over it.
        tokio::spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!(%error, "a connection to etcd ended");
            }
        });
        let origin = format!("{scheme}://{}", self.name()).parse();
        let origin = origin.map_err(|error: http::uri::InvalidUri| {
            StoreError::refused(format!("the store's host {} cannot be used", self.name())).with_source(error)
        })?;
        Ok(Connection { requests, origin, token: None })
    }

    /// The second in which the member's clock is, in Unix milliseconds.
    ///
    /// etcd tells its time nowhere in its API; but a member answers HTTP on the same port, and each answer has the
    /// date that RFC 9110 demands of a server with a clock.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when it does not tell.
    pub(crate) async fn clock_second_ms(&self) -> Result<u64, StoreError> {
        let stream = self.tcp().await?;
        match &self.tls {
            None => self.ask_clock(stream).await,
            Some(tls) => self.ask_clock(self.secure(tls, stream, b"http/1.1").await?).await,
        }
    }

    async fn ask_clock<S>(&self, stream: S) -> Result<u64, StoreError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let untold = || {
            format!(
                "the member {} does not tell the time: leases need the date of its answers to GET /version, over HTTP on the \
                 same port",
                self.name()
            )
        };
        let broke = |error: hyper::Error| StoreError::unavailable(untold()).with_source(error);
        let (mut requests, driver) = http1::handshake(TokioIo::new(stream)).await.map_err(broke)?;
        let request = http::Request::get("/version").header(http::header::HOST, self.name());
        let request =
            request.body(Empty::<Bytes>::new()).map_err(|error| StoreError::refused(untold()).with_source(error))?;
        let answer = async { requests.send_request(request).await };
        // Nobody drives the connection but this: with the answer's head it has ended.
        let answer = match futures_util::future::select(Box::pin(answer), driver).await {
            futures_util::future::Either::Left((answer, _)) => answer.map_err(broke)?,
            futures_util::future::Either::Right((Err(error), _)) => return Err(broke(error)),
            futures_util::future::Either::Right((Ok(()), answer)) => answer.await.map_err(broke)?,
        };
        let date = answer.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
        let time = date.and_then(|date| httpdate::parse_http_date(date).ok());
        let since_1970 = time.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        let clock_ms = since_1970.and_then(|since| u64::try_from(since.as_millis()).ok());
        clock_ms.ok_or_else(|| StoreError::unavailable(untold()))
    }
}

impl Connection {
    /// Sends one request, once.
    ///
    /// # Errors
    /// The member's refusal, or what became of the request: see [`carriage`].
    pub(crate) async fn ask<M, A>(&self, path: &'static str, message: M) -> Result<A, Status>
    where
        M: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let wire = Wire(self.requests.clone());
        let mut grpc = tonic::client::Grpc::with_origin(wire, self.origin.clone())
            .max_decoding_message_size(ANSWER_BYTES_MAX)
            .max_encoding_message_size(ANSWER_BYTES_MAX);
        grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
        let mut request = tonic::Request::new(message);
        // A member that knows no leader says so at once, and does nothing.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        let answer = grpc.unary(request, PathAndQuery::from_static(path), ProstCodec::<M, A>::default()).await?;
        Ok(answer.into_inner())
    }

    /// The same connection for a user that the member knows by this token; none if that cannot be one.
    pub(crate) fn known_by(mut self, token: &str) -> Option<Self> {
        let mut token: MetadataValue<Ascii> = token.parse().ok()?;
        token.set_sensitive(true);
        self.token = Some(token);
        Some(self)
    }

    /// Whether nothing can be sent any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.requests.is_closed()
    }
}

/// What became of the request, where its carriage failed; none where the member itself answered.
pub(crate) fn carriage(status: &Status) -> Option<&Carriage> {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if let Some(carriage) = error.downcast_ref() {
            return Some(carriage);
        }
        source = error.source();
    }
    None
}

/// The connection as gRPC sees it.
#[derive(Clone)]
struct Wire(http2::SendRequest<Body>);

impl tower_service::Service<http::Request<Body>> for Wire {
    type Response = http::Response<Incoming>;
    type Error = Carriage;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Carriage>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Carriage>> {
        self.0.poll_ready(context).map_err(|_| Carriage::NotSent)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let sent = self.0.try_send_request(request);
        Box::pin(async move {
            sent.await.map_err(|mut failed| match failed.take_message() {
                // The driver gives back what it did not send.
                Some(_) => Carriage::NotSent,
                None => Carriage::Broke(failed.into_error()),
            })
        })
    }
}

/// Members, with whatever was learned of them.
pub(crate) type Members = Arc<[Member]>;
