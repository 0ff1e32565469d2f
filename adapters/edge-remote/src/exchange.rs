//! What is said in a request to a server, and what its answer proves.

use alloc::string::String;
use alloc::vec::Vec;

use crate::address::Address;
use crate::answers::{Failure, problem};
use crate::bindings::wasi::http::types::{ErrorCode, Fields, Method, RequestOptions};
use crate::bindings::wasi::random::random;
use crate::json::{VALUES_MAX, Value};

/// The header by which an answer is known to be this request's.
const X_REQUEST_ID: &str = "x-request-id";

/// A longer answer is read no further: a grant has some 200 bytes, and a problem some 500.
const ANSWER_BYTES_MAX: usize = 16 * 1024;

/// As many more for each id that is asked for: it has 19 digits, two quotes and a comma.
const ID_BYTES_MAX: usize = 32;

/// How much of it is read at a time.
pub(crate) const PIECE_BYTES: usize = 16 * 1024;

const NS_PER_MS: u64 = 1_000_000;

/// What becomes of a request whose answer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing: it only reads.
    Reads,
    /// Nobody knows.
    Writes,
}

impl Access {
    /// What a lost answer means.
    pub(crate) fn lost(self) -> Failure {
        match self {
            Self::Reads => Failure::unavailable(),
            Self::Writes => Failure::unknown(),
        }
    }
}

/// What a server is asked.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) method: &'a Method,
    /// Path and query.
    pub(crate) path: &'a str,
    pub(crate) access: Access,
    /// Whether the answer must name its store. Otherwise the request names it.
    pub(crate) is_store_named: bool,
    /// How many ids the answer lists. What is longer than such an answer is none, and must not fill the memory, which
    /// all requests of an instance share.
    pub(crate) ids: u32,
}

impl Question<'_> {
    /// How many bytes an answer has at most.
    pub(crate) fn answer_bytes_max(&self) -> usize {
        ANSWER_BYTES_MAX.saturating_add(self.ids_max().saturating_mul(ID_BYTES_MAX))
    }

    /// How many values an answer has at most.
    fn values_max(&self) -> usize {
        VALUES_MAX.saturating_add(self.ids_max())
    }

    fn ids_max(&self) -> usize {
        usize::try_from(self.ids).unwrap_or(usize::MAX)
    }
}

/// A request that is sent once.
pub(crate) struct Exchange {
    id: String,
    access: Access,
}

impl Exchange {
    pub(crate) fn new(access: Access) -> Self {
        Self { id: random_id(), access }
    }

    /// The headers of the request; none where the host refuses one.
    pub(crate) fn headers(&self, method: &Method, token: Option<&str>) -> Option<Fields> {
        let headers = Fields::new();
        headers.append(X_REQUEST_ID, self.id.as_bytes()).ok()?;
        if let Some(token) = token {
            let mut value = String::from("Bearer ");
            value.push_str(token);
            headers.append("authorization", value.as_bytes()).ok()?;
        }
        if matches!(method, Method::Post) {
            // Without it, hosts send an empty body in chunks, which not every proxy takes.
            headers.append("content-length", b"0").ok()?;
        }
        Some(headers)
    }

    /// What a host says that sent nothing, or had no answer.
    pub(crate) fn failed(&self, error: &ErrorCode) -> Failure {
        if was_never_sent(error) { Failure::unavailable() } else { self.access.lost() }
    }

    /// Looks whether an answer is to this request. Of a cache, or of a proxy that gives one answer to several, nobody
    /// knows whose grant it is.
    pub(crate) fn recognise(&self, headers: &Fields) -> Result<(), Failure> {
        let echo = headers.get(X_REQUEST_ID);
        let is_ours = echo.len() == 1 && echo.first().map(Vec::as_slice) == Some(self.id.as_bytes());
        if is_ours { Ok(()) } else { Err(self.access.lost()) }
    }

    /// What an answer says, if all of its body came.
    pub(crate) fn understood(
        &self,
        question: &Question<'_>,
        status: u16,
        body: Option<&[u8]>,
    ) -> Result<Value, Failure> {
        let lost = || self.access.lost();
        let body = body.ok_or_else(lost)?;
        if !(200..300).contains(&status) {
            return Err(problem(status, body).unwrap_or_else(lost));
        }
        Value::read(body, question.values_max()).ok_or_else(lost)
    }
}

/// The host refuses what every host of HTTP sends.
pub(crate) fn refused_by_host() -> Failure {
    Failure::refused("the host of this component refuses its requests: look at the settings")
}

/// How long to wait for a connection.
pub(crate) fn options(address: &Address) -> RequestOptions {
    let options = RequestOptions::new();
    // A host without it has the timeout of the whole request.
    let _ = options.set_connect_timeout(Some(address.connect_timeout_ms.saturating_mul(NS_PER_MS)));
    options
}

/// How long a request may take, in nanoseconds.
pub(crate) fn timeout_ns(address: &Address) -> u64 {
    address.request_timeout_ms.saturating_mul(NS_PER_MS)
}

/// Whether an error proves that no server has seen the request (RFC 9209, section 2.3).
fn was_never_sent(error: &ErrorCode) -> bool {
    matches!(
        error,
        ErrorCode::DnsTimeout
            | ErrorCode::DnsError(_)
            | ErrorCode::DestinationNotFound
            | ErrorCode::DestinationUnavailable
            | ErrorCode::DestinationIpProhibited
            | ErrorCode::DestinationIpUnroutable
            | ErrorCode::ConnectionRefused
            | ErrorCode::ConnectionTimeout
            | ErrorCode::ConnectionLimitReached
            | ErrorCode::TlsCertificateError
            | ErrorCode::HttpRequestDenied
            | ErrorCode::HttpRequestUriInvalid
    )
}

/// 128 random bits in hexadecimal.
fn random_id() -> String {
    let mut id = String::with_capacity(32);
    for _ in 0..2 {
        for byte in random::get_random_u64().to_be_bytes() {
            for digit in [byte >> 4, byte & 0xf] {
                id.push(char::from(if digit < 10 { b'0' + digit } else { b'a' + digit - 10 }));
            }
        }
    }
    id
}
