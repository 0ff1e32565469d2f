//! Where servers are, and how clients of them are made: all with the user, the password and the TLS of one URL.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, ConnectionAddr, ConnectionInfo, ProtocolVersion, TlsCertificates};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use unalike_storage::StoreError;

use crate::RedisOptions;

/// A connection that nobody uses is asked for a sign of life after this long, so that nothing between forgets it, and
/// one that is dead is found out before it is needed.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// A sign of life that does not come is asked for again after this long.
const KEEPALIVE_AGAIN: Duration = Duration::from_secs(5);

/// A host, an IPv6 address without brackets, and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Place {
    /// As a URL has the host: an IPv6 address in brackets.
    pub(crate) fn new(host: &str, port: u16) -> Self {
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Self { host: host.to_owned(), port }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// Makes clients of servers.
#[derive(Clone)]
pub(crate) struct Clients {
    info: ConnectionInfo,
    /// Of the authorities to trust, and the file that they came from.
    certificates: Option<(Vec<u8>, PathBuf)>,
}

impl Clients {
    /// # Errors
    /// [`StoreError::Refused`] when the certificates cannot be read.
    pub(crate) fn new(options: &RedisOptions) -> Result<Self, StoreError> {
        let info = options.connection_info().clone();
        // Only with the third version of the protocol the driver says that a connection was lost.
        let mut settings =
            info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name().set_db(0);
        if settings.username().is_some() && settings.password().is_none() {
            // The driver would connect as the default user.
            settings = settings.set_password("");
        }
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE_AGAIN);
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
        if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) && CryptoProvider::get_default().is_none() {
            // What rustls does by itself, unless another crate of the program gave it a second one: then it panics.
            let _ = ring::default_provider().install_default();
        }
        let certificates = match options.ssl_ca() {
            None => None,
            Some(path) => {
                let pem =
                    std::fs::read(path).map_err(|error| StoreError::refused(unreadable(path)).with_source(error))?;
                if CertificateDer::pem_slice_iter(&pem).next().is_none() {
                    let what = format!("{}: it holds no certificate in PEM", unreadable(path));
                    return Err(StoreError::refused(what));
                }
                Some((pem, path.to_owned()))
            }
        };
        let clients = Self { info, certificates };
        // Certificates that are none are found out now.
        clients.client(&Place::new("localhost", 1))?;
        Ok(clients)
    }

    /// The server that the URL names first.
    pub(crate) fn place(&self) -> Place {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => Place::new(host, *port),
            // No URL of these schemes names anything else.
            _ => Place::new("localhost", 6379),
        }
    }

    /// The same without user and password.
    pub(crate) fn anonymous(&self) -> Self {
        let settings = redis::RedisConnectionInfo::default()
            .set_protocol(self.info.redis_settings().protocol())
            .set_skip_set_lib_name();
        Self { info: self.info.clone().set_redis_settings(settings), certificates: self.certificates.clone() }
    }

    /// A client of the server there.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when there can be none.
    pub(crate) fn client(&self, place: &Place) -> Result<Client, StoreError> {
        let (host, port) = (place.host.clone(), place.port);
        let address = match self.info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        let info = self.info.clone().set_addr(address);
        let Some((pem, path)) = &self.certificates else {
            return Client::open(info).map_err(|error| {
                StoreError::refused(format!("the connection to {place} is configured wrongly")).with_source(error)
            });
        };
        let certificates = TlsCertificates { client_tls: None, root_cert: Some(pem.clone()) };
        Client::build_with_tls(info, certificates)
            .map_err(|error| StoreError::refused(unreadable(path)).with_source(error))
    }
}

fn unreadable(path: &Path) -> String {
    format!("the certificates in {} (ssl-ca) cannot be read", path.display())
}
