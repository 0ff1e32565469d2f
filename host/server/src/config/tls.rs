//! TLS on the server's port: its certificate and key, and whose clients' certificates are accepted.
//!
//! The files are read when the server starts and again at SIGHUP. A bad one fails the start, and later changes nothing.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use unalike::storage::Rfc3339;
use unalike::{Clock, SystemClock};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::config::reread::{Reading, Reread, text_of};

/// What is spoken within TLS, the best first.
const PROTOCOLS: [&[u8]; 2] = [HTTP2, b"http/1.1"];

/// How ALPN calls HTTP/2.
pub(crate) const HTTP2: &[u8] = b"h2";

/// A certificate that ends within this time, two weeks, is told of.
pub(crate) const END_NEAR: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// The files that TLS needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    certificate: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
}

/// TLS of a server.
#[derive(Debug)]
pub(crate) struct Tls {
    files: TlsFiles,
    current: Reread<Loaded>,
}

/// What was read of the files.
#[derive(Debug)]
struct Loaded {
    server: Arc<ServerConfig>,
    validity: Validity,
}

/// When a certificate is valid, in Unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    begins_ms: u64,
    ends_ms: u64,
}

impl TlsFiles {
    /// Those of the settings, if the server speaks TLS.
    ///
    /// # Errors
    /// When one is named without another that it needs.
    pub(crate) fn named(
        certificate: Option<&Path>,
        key: Option<&Path>,
        client_ca: Option<&Path>,
    ) -> anyhow::Result<Option<Self>> {
        match (certificate, key, client_ca) {
            (Some(certificate), Some(key), client_ca) => Ok(Some(Self {
                certificate: certificate.to_owned(),
                key: key.to_owned(),
                client_ca: client_ca.map(Path::to_owned),
            })),
            (None, None, None) => Ok(None),
            (Some(_), None, _) => {
                bail!("tls_cert is set and tls_key is not: name the file of its private key, too (--tls-key)")
            }
            (None, Some(_), _) => {
                bail!("tls_key is set and tls_cert is not: name the file of its certificate, too (--tls-cert)")
            }
            (None, None, Some(_)) => bail!(
                "tls_client_ca is set, and clients show certificates in TLS only: name the server's own certificate and \
                 key, too (--tls-cert, --tls-key)"
            ),
        }
    }
}

impl Tls {
    /// That of these files.
    ///
    /// # Errors
    /// Says which file cannot be used, and why.
    pub(crate) fn read(files: TlsFiles) -> anyhow::Result<Self> {
        let loaded = files.load(Reading::First)?;
        Ok(Self { files, current: Reread::new(Arc::new(loaded)) })
    }

    /// What connections that begin now are served by.
    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.current().server)
    }

    /// When the certificate is valid.
    pub(crate) fn validity(&self) -> Validity {
        self.current.current().validity
    }

    /// Reads the files again. Connections that are open go on as they began.
    ///
    /// # Errors
    /// Those of [`Tls::read`], and when one is no regular file: then all stays as it was.
    pub(crate) async fn reload(&self) -> anyhow::Result<()> {
        let files = self.files.clone();
        let what = format!("the certificate {}", files.certificate.display());
        self.current.reload(&what, move || files.load(Reading::Again).map(Arc::new)).await?;
        self.warn();
        Ok(())
    }

    /// Says in the log what is wrong though it works.
    pub(crate) fn warn(&self) {
        self.warn_of_time();
        self.warn_if_open();
    }

    /// Says so when the certificate is not valid now, or soon will not be.
    pub(crate) fn warn_of_time(&self) {
        let place = self.files.certificate.display();
        let Validity { begins_ms, ends_ms } = self.validity();
        let now_ms = SystemClock.now_ms();
        if now_ms >= ends_ms {
            tracing::warn!("the certificate {place} ended at {}, and clients refuse it: renew it", Rfc3339(ends_ms));
        } else if now_ms < begins_ms {
            let begins = Rfc3339(begins_ms);
            tracing::warn!("the certificate {place} is valid from {begins} only: set the clock, or take another one");
        } else if self.validity().left(now_ms) < END_NEAR {
            tracing::warn!("the certificate {place} ends at {}: renew it in time", Rfc3339(ends_ms));
        }
    }

    /// Says so when others than the owner's group may read the key.
    pub(crate) fn warn_if_open(&self) {
        let key = &self.files.key;
        if key.metadata().is_ok_and(|key| key.permissions().mode() & 0o004 != 0) {
            tracing::warn!("the private key {} can be read by every user of this machine: chmod 600 it", key.display());
        }
    }
}

impl Validity {
    fn of(certificate: &CertificateDer<'_>) -> anyhow::Result<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).context("its first certificate is not X.509")?;
        Ok(Self::of_parsed(&certificate))
    }

    fn of_parsed(certificate: &X509Certificate<'_>) -> Self {
        let validity = certificate.validity();
        let [begins_ms, ends_ms] = [validity.not_before, validity.not_after]
            .map(|time| u64::try_from(time.timestamp()).unwrap_or(0).saturating_mul(1_000));
        Self { begins_ms, ends_ms }
    }

    /// When it ends, in Unix milliseconds.
    pub(crate) const fn ends_ms(self) -> u64 {
        self.ends_ms
    }

    /// For how long from then on.
    pub(crate) fn left(self, now_ms: u64) -> Duration {
        Duration::from_millis(self.ends_ms.saturating_sub(now_ms))
    }
}

impl TlsFiles {
    fn load(&self, reading: Reading) -> anyhow::Result<Loaded> {
        let chain = certificates(&self.certificate, reading)
            .with_context(|| format!("the certificate {} cannot be used (--tls-cert)", self.certificate.display()))?;
        let unusable_key = || format!("the private key {} cannot be used (--tls-key)", self.key.display());
        let key = private_key(&self.key, reading).with_context(unusable_key)?;
        let leaf = chain.first().context("there is no certificate")?;
        let validity = Validity::of(leaf)
            .with_context(|| format!("the certificate {} cannot be used (--tls-cert)", self.certificate.display()))?;

        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .context("TLS cannot be set up")?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let unusable = || format!("the authorities in {} cannot be used (--tls-client-ca)", path.display());
                let mut roots = RootCertStore::empty();
                for (certificate, number) in certificates(path, reading).with_context(unusable)?.into_iter().zip(1..) {
                    let added = check_authority(&certificate).and_then(|()| Ok(roots.add(certificate)?));
                    added.with_context(|| format!("its certificate {number}")).with_context(unusable)?;
                }
                // Whoever has no certificate may have a token.
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = verifier.allow_unauthenticated().build().with_context(unusable)?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut server = builder.with_single_cert(chain, key).map_err(|error| self.unfit(&error))?;
        server.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        if self.client_ca.is_some() {
            // A session that is resumed shows no certificate: it would be good beyond the end of the client's.
            server.session_storage = Arc::new(NoServerSessionStorage {});
            server.send_tls13_tickets = 0;
        }
        Ok(Loaded { server: Arc::new(server), validity })
    }

    /// The error of a certificate and a key that are no pair, or that TLS cannot use.
    fn unfit(&self, error: &rustls::Error) -> anyhow::Error {
        let (certificate, key) = (self.certificate.display(), self.key.display());
        match error {
            rustls::Error::InconsistentKeys(_) => anyhow::anyhow!(
                "the private key {key} does not belong to the certificate {certificate}: name the two that were made \
                 together, the server's own certificate first in its file (--tls-cert, --tls-key)"
            ),
            error => anyhow::anyhow!(
                "the certificate {certificate} and the private key {key} cannot be used, which must be RSA of 2048 bits or \
                 more, P-256, P-384 or Ed25519: {error} (--tls-cert, --tls-key)"
            ),
        }
    }
}

/// Whether a certificate may vouch for clients. TLS does not look at that in those that it is told to trust: a client's
/// own would sign any name.
fn check_authority(certificate: &CertificateDer<'_>) -> anyhow::Result<()> {
    let (_, authority) = X509Certificate::from_der(certificate).ok().context("it is not X.509")?;
    let is_authority = authority.basic_constraints().ok().flatten().is_some_and(|found| found.value.ca);
    let signs = authority.key_usage().ok().is_none_or(|usage| usage.is_none_or(|found| found.value.key_cert_sign()));
    ensure!(
        is_authority && signs,
        "it is not an authority's (CA:TRUE, and keyCertSign where it has a keyUsage), and trusted as one it could sign \
         any name: name the authority that signed it"
    );
    let ends_ms = Validity::of_parsed(&authority).ends_ms();
    ensure!(ends_ms > SystemClock.now_ms(), "it ended at {}: take it out", Rfc3339(ends_ms));
    Ok(())
}

/// The certificates of a PEM file, one at least.
fn certificates(path: &Path, reading: Reading) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let text = text_of(path, reading)?;
    let found = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
    let found =
        found.ok().context("it is not PEM, or damaged: each block begins and ends, and has base64 in between")?;
    ensure!(!found.is_empty(), "there is no certificate in it: it must have PEM blocks, -----BEGIN CERTIFICATE-----");
    Ok(found)
}

/// The private key of a PEM file. What the file holds is never said.
fn private_key(path: &Path, reading: Reading) -> anyhow::Result<PrivateKeyDer<'static>> {
    let text = text_of(path, reading)?;
    ensure!(
        !(text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED")),
        "it is encrypted, and nobody is here to be asked for the password: write it without (openssl pkey -in FILE -out \
         PLAIN), and let only the server's user read it"
    );
    PrivateKeyDer::from_pem_slice(text.as_bytes()).ok().context(
        "there is no private key in it: it must have a PEM block, -----BEGIN PRIVATE KEY-----, of the kind PKCS #8, RSA \
         or SEC1",
    )
}
