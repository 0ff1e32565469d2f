//! The names of clients, as their certificates have them.
//!
//! A name is a DNS name, a URI or an e-mail address among the subject alternative names; the subject itself is not
//! looked at. Names are compared byte by byte, upper and lower case included. Which of the three a text is shows in the
//! text, and a certificate's name counts only if it is of the kind that it says it is: no e-mail address passes for a
//! DNS name.

use std::fmt::{self, Display};
use std::iter;

use anyhow::{Context, ensure};
use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::words::shortened;

/// No name is longer.
const NAME_BYTES_MAX: usize = 512;

/// So many names of a certificate are told.
const NAMES_SHOWN_MAX: usize = 4;

/// What a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Dns,
    Uri,
    Email,
}

impl Form {
    /// The only one that a text can have.
    fn of(text: &str) -> Self {
        if text.contains(':') {
            Self::Uri
        } else if text.contains('@') {
            Self::Email
        } else {
            Self::Dns
        }
    }
}

/// The name of a client in the file of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientName(String);

impl ClientName {
    /// Takes a name as it is in a certificate.
    ///
    /// # Errors
    /// When no certificate has such a name.
    pub(crate) fn new(name: &str) -> anyhow::Result<Self> {
        ensure!(
            is_name(name),
            "client must be a name as certificates have it, of 1 to {NAME_BYTES_MAX} printable ASCII characters: \
             billing.internal, spiffe://internal/billing or billing@internal.example"
        );
        Ok(Self(name.to_owned()))
    }
}

/// Certificates have names in ASCII only.
fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The names in a client's certificate, which was verified.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ClientNames(Vec<String>);

impl ClientNames {
    /// Those of this certificate, which the handshake has verified.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn of_verified(certificate: &CertificateDer<'_>) -> anyhow::Result<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).context("the client certificate is not X.509")?;
        let names = certificate.subject_alternative_name().context("its subject alternative names cannot be read")?;
        let names = names.into_iter().flat_map(|names| &names.value.general_names).filter_map(|name| {
            let (text, form) = match name {
                GeneralName::DNSName(text) => (*text, Form::Dns),
                GeneralName::URI(text) => (*text, Form::Uri),
                GeneralName::RFC822Name(text) => (*text, Form::Email),
                _ => return None,
            };
            (is_name(text) && Form::of(text) == form).then(|| text.to_owned())
        });
        Ok(Self(names.collect()))
    }

    /// Whether this is one of them.
    pub(crate) fn contain(&self, name: &ClientName) -> bool {
        self.0.contains(&name.0)
    }
}

impl Display for ClientNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no name");
        }
        f.write_str("the names ")?;
        for (name, between) in self.0.iter().take(NAMES_SHOWN_MAX).zip(iter::once("").chain(iter::repeat(", "))) {
            write!(f, "{between}{}", shortened(name))?;
        }
        if self.0.len() > NAMES_SHOWN_MAX { f.write_str(", ..") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_form() {
        for (text, form) in [
            ("billing.internal", Form::Dns),
            ("*.internal", Form::Dns),
            ("spiffe://internal/a@b", Form::Uri),
            ("urn:uuid:0", Form::Uri),
            ("billing@internal.example", Form::Email),
        ] {
            assert_eq!(Form::of(text), form, "{text}");
            ClientName::new(text).unwrap();
        }
        for none in ["", "a b", "ä.internal", "a\n", &"a".repeat(513)] {
            ClientName::new(none).unwrap_err();
        }
    }
}
