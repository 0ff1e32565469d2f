//! How commands reach a server: plain or in TLS, and whose certificate they take for it.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use anyhow::{Context, ensure};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Whose certificates are taken for a server's.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trust<'a> {
    /// Those that the system's authorities vouch for.
    System,
    /// Those that the authorities of this PEM file vouch for.
    Authorities(&'a Path),
    /// Any: for what sends no secret and asks this machine's own server.
    Anybody,
}

/// TLS to a server of one name.
#[derive(Clone)]
pub(super) struct ClientTls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl ClientTls {
    /// TLS to the server of this name or address.
    ///
    /// # Errors
    /// When the name cannot be one, or there are no authorities.
    pub(super) fn new(host: &str, trust: Trust<'_>) -> anyhow::Result<Self> {
        let name = ServerName::try_from(host.to_owned())
            .with_context(|| format!("the host {host:?} is neither a name nor an address"))?;
        let provider = Arc::new(ring::default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = match trust {
            Trust::Anybody => Arc::new(Anybody(Arc::clone(&provider))),
            Trust::System | Trust::Authorities(_) => {
                let roots = Arc::new(roots(trust)?);
                WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
                    .build()
                    .context("the authorities cannot be used")?
            }
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .context("TLS cannot be set up")?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }
}

fn roots(trust: Trust<'_>) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    match trust {
        Trust::Authorities(path) => {
            let unusable = || format!("the authorities in {} cannot be used (--ca)", path.display());
            let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            for certificate in read.with_context(unusable)? {
                roots.add(certificate).with_context(unusable)?;
            }
            ensure!(!roots.is_empty(), "there is no certificate in {} (--ca)", path.display());
        }
        Trust::System | Trust::Anybody => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            ensure!(!roots.is_empty(), "this machine knows no authorities: name the server's own (--ca FILE)");
        }
    }
    Ok(roots)
}

/// A connection to a server.
pub(super) enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Io {
    /// Opens one, to the first address that takes it.
    ///
    /// # Errors
    /// When none does, or the server's certificate is not to be trusted.
    pub(super) async fn open(addresses: &[SocketAddr], tls: Option<&ClientTls>) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(addresses).await.with_context(|| match addresses {
            [address] => format!("no connection to {address}"),
            _ => format!("no connection to any of {addresses:?}"),
        })?;
        stream.set_nodelay(true).context("the connection keeps its delay")?;
        let Some(ClientTls { connector, name }) = tls else { return Ok(Self::Plain(stream)) };
        let agreed = connector.connect(name.clone(), stream).await;
        let agreed = agreed.with_context(|| format!("no TLS with {}", name.to_str()))?;
        Ok(Self::Tls(Box::new(agreed)))
    }
}

impl AsyncRead for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, context: &mut TaskContext<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// Takes any certificate. That its owner has the key is checked all the same.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
