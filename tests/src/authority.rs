//! A certificate authority of the test's own.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use tempfile::TempDir;

/// A certificate authority, and the certificate and key of a server that it vouches for, as files.
#[derive(Debug)]
pub struct Authority {
    directory: TempDir,
}

impl Authority {
    /// One with a server of this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        authority.distinguished_name.push(DnType::CommonName, "an authority of the test's own");
        let key = KeyPair::generate().unwrap();
        let certificate = authority.self_signed(&key).unwrap();
        let issuer = Issuer::new(authority, key);
        let server_key = KeyPair::generate().unwrap();
        let mut server = CertificateParams::new(vec![name.to_owned()]).unwrap();
        server.distinguished_name.push(DnType::CommonName, name);
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let server = server.signed_by(&server_key, &issuer).unwrap();
        let directory = TempDir::new().unwrap();
        for (file, pem) in
            [("ca.pem", certificate.pem()), ("server.pem", server.pem()), ("key.pem", server_key.serialize_pem())]
        {
            std::fs::write(directory.path().join(file), pem).unwrap();
        }
        Self { directory }
    }

    /// The path of `ca.pem`, `server.pem` or `key.pem`.
    #[must_use]
    pub fn file(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }
}
