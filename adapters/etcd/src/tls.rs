//! How a member proves who it is, and this program too.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use unalike_storage::StoreError;

/// TLS with members whose certificates are verified, names included.
#[derive(Clone)]
pub(crate) struct Tls {
    config: Arc<ClientConfig>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Trusts the authorities of this file, or the system's; with a certificate and its key, both in PEM, this program
    /// says who it is.
    ///
    /// # Errors
    /// [`StoreError::Refused`] naming the file that cannot be used.
    pub(crate) fn new(authorities: Option<&Path>, own: Option<(&Path, &Path)>) -> Result<Self, StoreError> {
        let mut roots = RootCertStore::empty();
        match authorities {
            Some(path) => {
                for certificate in certificates("ssl-ca", path)? {
                    roots.add(certificate).map_err(|error| unusable("ssl-ca", path, error))?;
                }
            }
            None => {
                // Those that cannot be read are left out: others may do.
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| StoreError::refused("TLS cannot be used").with_source(error))?
            .with_root_certificates(roots);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates("ssl-cert", certificate)?;
                let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable("ssl-key", key, error))?;
                builder
                    .with_client_auth_cert(chain, secret)
                    .map_err(|error| unusable("ssl-cert", certificate, error))?
            }
        };
        Ok(Self { config: Arc::new(config) })
    }

    /// For one protocol.
    pub(crate) fn config(&self, protocol: &[u8]) -> Arc<ClientConfig> {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = vec![protocol.to_vec()];
        Arc::new(config)
    }

    /// The name that a member's certificate must have.
    ///
    /// # Errors
    /// [`StoreError::Refused`].
    #[expect(clippy::unused_self, reason = "it is asked of whoever verifies names")]
    pub(crate) fn server_name(&self, host: &str) -> Result<ServerName<'static>, StoreError> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        ServerName::try_from(host.to_owned())
            .map_err(|error| StoreError::refused(format!("no certificate can be for {host:?}")).with_source(error))
    }
}

fn certificates(what: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = read.map_err(|error| unusable(what, path, error))?;
    if certificates.is_empty() {
        return Err(StoreError::refused(format!("{what}: there is no certificate in {}", path.display())));
    }
    Ok(certificates)
}

fn unusable(what: &str, path: &Path, error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::refused(format!("{what}: {} cannot be used", path.display())).with_source(error)
}
