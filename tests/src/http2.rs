//! A client of HTTP/2 that does what it is told, and no more: with TLS and without.

use std::sync::Arc;

use anyhow::{Context, ensure};
use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Reason, SendStream};
use http::{Request, Response};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::authority::Authority;

/// TLS to a server of this authority, with a certificate of the authority's if one is named.
///
/// # Errors
/// When there is no such certificate.
pub fn connector(authority: &Authority, client: Option<&str>) -> anyhow::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(authority.file("ca.pem"))? {
        roots.add(certificate?)?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions()?.with_root_certificates(roots);
    let mut config = match client {
        None => config.with_no_client_auth(),
        Some(client) => {
            let chain = CertificateDer::pem_file_iter(authority.file(&format!("{client}.pem")))?;
            let key = PrivateKeyDer::from_pem_file(authority.file(&format!("{client}.key")))?;
            config.with_client_auth_cert(chain.collect::<Result<_, _>>()?, key)?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// TLS to this address, which agreed on HTTP/2.
///
/// # Errors
/// When there is none.
pub async fn tls(address: &str, connector: &TlsConnector) -> anyhow::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("127.0.0.1")?;
    let stream = connector.connect(name, stream).await?;
    ensure!(stream.get_ref().1.alpn_protocol() == Some(b"h2"), "the server does not speak HTTP/2");
    Ok(stream)
}

/// A connection of HTTP/2.
pub struct Http2 {
    send: SendRequest<Bytes>,
    /// What authority and scheme requests name.
    base: String,
    /// Ends with the connection, and says how.
    pub ended: JoinHandle<Result<(), h2::Error>>,
}

impl Http2 {
    /// One without TLS, by prior knowledge.
    ///
    /// # Errors
    /// When there is none.
    pub async fn plain(address: &str) -> anyhow::Result<Self> {
        Self::over(TcpStream::connect(address).await?, "http", address, &Builder::new()).await
    }

    /// One in TLS.
    ///
    /// # Errors
    /// When there is none.
    pub async fn tls(address: &str, connector: &TlsConnector) -> anyhow::Result<Self> {
        Self::over(tls(address, connector).await?, "https", address, &Builder::new()).await
    }

    /// One over this stream, by these settings.
    ///
    /// # Errors
    /// When it does not begin.
    pub async fn over(
        stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
        scheme: &str,
        authority: &str,
        settings: &Builder,
    ) -> anyhow::Result<Self> {
        let (send, connection) = settings.handshake(stream).await?;
        Ok(Self { send, base: format!("{scheme}://{authority}"), ended: tokio::spawn(connection) })
    }

    /// Waits until the server has ended the connection, with a word of goodbye and no error. What was on its way there
    /// at the time is lost.
    ///
    /// # Errors
    /// When it ended for an error.
    pub async fn ends(self) -> anyhow::Result<()> {
        match self.ended.await? {
            Err(error) if !error.is_io() && error.reason() != Some(Reason::NO_ERROR) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// The same connection for one more task.
    #[must_use]
    pub fn sender(&self) -> Sender {
        Sender { send: self.send.clone(), base: self.base.clone() }
    }
}

/// Sends requests on a connection.
#[derive(Clone)]
pub struct Sender {
    send: SendRequest<Bytes>,
    base: String,
}

impl Sender {
    /// A GET of this path, to be changed.
    #[must_use]
    pub fn request(&self, path: &str) -> http::request::Builder {
        Request::get(format!("{}{path}", self.base))
    }

    /// Sends a request without a body, once the server takes one more.
    ///
    /// # Errors
    /// When the connection takes no more.
    pub async fn send(&mut self, request: http::request::Builder) -> Result<ResponseFuture, h2::Error> {
        self.send_body(request, None).await
    }

    /// The same with a body.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub async fn send_body(
        &mut self,
        request: http::request::Builder,
        body: Option<Bytes>,
    ) -> Result<ResponseFuture, h2::Error> {
        let mut send = self.send.clone().ready().await?;
        let request = request.body(()).unwrap();
        let (response, mut stream) = send.send_request(request, body.is_none())?;
        if let Some(body) = body {
            stream.send_data(body, true)?;
        }
        Ok(response)
    }

    /// Begins a request whose body has no end, for as long as what is given beside the answer is kept.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub async fn begin(
        &mut self,
        request: http::request::Builder,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        let mut send = self.send.clone().ready().await?;
        send.send_request(request.body(()).unwrap(), false)
    }

    /// The answer to a request without a body.
    ///
    /// # Errors
    /// When there is none.
    pub async fn ask(&mut self, request: http::request::Builder) -> Result<Response<String>, h2::Error> {
        whole(self.send(request).await?).await
    }

    /// The answer to a GET of this path.
    ///
    /// # Errors
    /// When there is none.
    pub async fn get(&mut self, path: &str) -> Result<Response<String>, h2::Error> {
        self.ask(self.request(path)).await
    }

    /// Ids of a path such as `/v1/sequences/order/ids?count=3`.
    ///
    /// # Errors
    /// When there are none.
    pub async fn ids(&mut self, path: &str) -> anyhow::Result<Vec<u64>> {
        let answer = self.ask(self.request(path).header("accept", "text/plain")).await?;
        ensure!(answer.status() == 200, "{path}: {answer:?}");
        answer.body().lines().map(|line| line.parse().context("no id")).collect()
    }
}

/// An answer to its end.
///
/// # Errors
/// When it breaks off.
pub async fn whole(response: ResponseFuture) -> Result<Response<String>, h2::Error> {
    let (head, mut body) = response.await?.into_parts();
    let mut bytes = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        bytes.extend_from_slice(&data);
    }
    Ok(Response::from_parts(head, String::from_utf8_lossy(&bytes).into_owned()))
}
