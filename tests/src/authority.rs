//! A certificate authority of the test's own.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType, date_time_ymd,
};
use tempfile::TempDir;

/// A certificate authority, and the certificate and key of a server that it vouches for, as files.
#[derive(Debug)]
pub struct Authority {
    directory: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Valid {
    /// Now, and for long.
    Now,
    /// It ended long ago.
    Ended,
    /// It begins in the far future.
    Later,
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
        let directory = TempDir::new().unwrap();
        std::fs::write(directory.path().join("ca.pem"), certificate.pem()).unwrap();
        let this = Self { directory, issuer: Issuer::new(authority, key) };
        this.certify_server(name, Valid::Now, "server.pem", "key.pem");
        this
    }

    /// Writes a certificate and a key for a server of this name.
    pub fn certify_server(&self, name: &str, valid: Valid, certificate_file: &str, key_file: &str) {
        let names = [name.to_owned()];
        let params = CertificateParams::new(names).unwrap();
        self.certify(params, name, ExtendedKeyUsagePurpose::ServerAuth, valid, [certificate_file, key_file]);
    }

    /// Writes `CLIENT.pem` and `CLIENT.key`, for a client with these subject alternative names. Its subject is called
    /// `CLIENT.internal`.
    pub fn certify_client(&self, client: &str, names: &[SanType], valid: Valid) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = names.to_vec();
        let files = [format!("{client}.pem"), format!("{client}.key")];
        let common = format!("{client}.internal");
        self.certify(params, &common, ExtendedKeyUsagePurpose::ClientAuth, valid, files.each_ref().map(String::as_str));
    }

    fn certify(
        &self,
        mut params: CertificateParams,
        common_name: &str,
        purpose: ExtendedKeyUsagePurpose,
        valid: Valid,
        [certificate_file, key_file]: [&str; 2],
    ) {
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.extended_key_usages = vec![purpose];
        (params.not_before, params.not_after) = match valid {
            Valid::Now => (date_time_ymd(2000, 1, 1), date_time_ymd(2200, 1, 1)),
            Valid::Ended => (date_time_ymd(2000, 1, 1), date_time_ymd(2001, 1, 1)),
            Valid::Later => (date_time_ymd(2199, 1, 1), date_time_ymd(2200, 1, 1)),
        };
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let file = |name: &str| self.directory.path().join(name);
        // Whoever reads them again in between finds no half of one.
        replace(&file(certificate_file), &certificate.pem());
        replace(&file(key_file), &key.serialize_pem());
    }

    /// The path of `ca.pem`, `server.pem`, `key.pem`, or of what was written besides.
    #[must_use]
    pub fn file(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }
}

/// Writes a file that only its owner may read, at once.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(new, path).unwrap();
}
