//! Problems as HTTP answers: RFC 9457 documents with their status.

use axum::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use metrics::counter;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::config::tokens::Denied;
use crate::http::request_id;
use crate::service::problem::{Kind, Problem};
use crate::words::shortened;

/// How many requests were refused for their token.
pub(crate) const TOKENS_REFUSED: &str = "unalike_tokens_refused_total";

impl Kind {
    /// The status of its answer.
    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Self::RouteUnknown | Self::TagUnknown | Self::SnowflakeUnknown => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden | Self::OriginRefused | Self::TagLimit | Self::SubKeyLimit => StatusCode::FORBIDDEN,
            Self::RequestInvalid
            | Self::HostInvalid
            | Self::QueryInvalid
            | Self::CountInvalid
            | Self::BodyInvalid
            | Self::TagInvalid
            | Self::LayoutUnknown
            | Self::IdInvalid
            | Self::FormatInvalid
            | Self::ShardKeyInvalid
            | Self::NumberUnsafe => StatusCode::BAD_REQUEST,
            Self::HostUnknown => StatusCode::MISDIRECTED_REQUEST,
            Self::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::UrlTooLong => StatusCode::URI_TOO_LONG,
            Self::HeadTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::ConnectionsMax
            | Self::CeilingReached
            | Self::WorkersExhausted
            | Self::LeaseEnded
            | Self::Quarantined
            | Self::ClockWrong
            | Self::StoreUnavailable
            | Self::OutcomeUnknown
            | Self::GrantRefused
            | Self::Timeout
            | Self::Closing
            | Self::Rebuilt => StatusCode::SERVICE_UNAVAILABLE,
            Self::QuotaReached => StatusCode::TOO_MANY_REQUESTS,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::MediaTypeUnsupported => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TagExists | Self::RaiseUnconfirmed | Self::LeaseLost | Self::LayoutRefused | Self::FormatBound => {
                StatusCode::CONFLICT
            }
            Self::LeasesMissing | Self::LayoutMismatch | Self::StoreCorrupt | Self::StoreRefused | Self::Internal => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Self::Exhausted => StatusCode::GONE,
        }
    }
}

impl Problem {
    /// No such route; `hint` is which one may be meant.
    pub(crate) fn route_unknown(uri: &Uri, hint: &str) -> Self {
        let detail = format!("no route has this path: {hint}ids are under /v1/sequences/TAG/ids");
        Self::new(Kind::RouteUnknown, detail).with("path", shortened(uri.path()))
    }

    /// The route has other methods, which the `Allow` header lists: `GET, POST`.
    pub(crate) fn method_not_allowed(method: &Method, allow: &str) -> Self {
        let known: Vec<&str> = allow.split(',').map(str::trim).filter(|known| !known.is_empty()).collect();
        let advice = match known.split_last() {
            Some((last, before)) if !before.is_empty() => format!(": use {} or {last}", before.join(", ")),
            Some((only, _)) => format!(": use {only}"),
            None => String::new(),
        };
        Self::new(Kind::MethodNotAllowed, format!("this route does not know the method {method}{advice}"))
            .with("method", method.as_str())
    }

    /// The request took longer than it may.
    pub(crate) fn timeout(limit_ms: u64) -> Self {
        let detail = format!("the request took longer than {limit_ms} ms; ids that it would have got are a gap");
        Self::new(Kind::Timeout, detail).retry_after(1_000)
    }

    /// The URL is longer than it may be.
    pub(crate) fn url_too_long(url_bytes: usize, url_max_bytes: usize) -> Self {
        let detail = format!("the URL has {url_bytes} bytes, {url_max_bytes} at most are read");
        Self::new(Kind::UrlTooLong, detail).with("url_max_bytes", url_max_bytes)
    }

    /// The answer, as bytes, to a client that gets no other and whose connection is closed then.
    pub(crate) fn into_last_message(self) -> Vec<u8> {
        let status = self.kind().status();
        let retry_after = self.retry_after_s().map_or(String::new(), |wait_s| format!("retry-after: {wait_s}\r\n"));
        let body = self.body();
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n{retry_after}\
             cache-control: no-store\r\nconnection: close\r\n\r\n",
            body.len()
        );
        [head.into_bytes(), body].concat()
    }

    fn retry_after_s(&self) -> Option<u64> {
        self.retry_after_ms().map(|wait_ms| wait_ms.div_ceil(1_000).max(1))
    }

    fn body(&self) -> Vec<u8> {
        // Text and numbers are always written.
        serde_json::to_vec(&self.of_request(request_id::with_current(str::to_owned))).unwrap_or_default()
    }

    /// The document that an answer to no one request has.
    pub(super) fn document(&self) -> Value {
        serde_json::to_value(self.of_request(None)).unwrap_or_default()
    }

    fn of_request(&self, request_id: Option<String>) -> Document<'_> {
        Document {
            kind: self.kind().urn(),
            title: self.kind().title(),
            status: self.kind().status().as_u16(),
            detail: self.detail(),
            request_id,
            members: self.members(),
        }
    }

    /// A head with more headers, or of more bytes, than these.
    pub(crate) fn head_too_large(headers_max: usize, head_max_bytes: usize) -> Self {
        let detail =
            format!("the head of the request has more than {headers_max} headers, or more than {head_max_bytes} bytes");
        Self::new(Kind::HeadTooLarge, detail)
    }

    /// A body that could not be taken in, for the reason that axum's rejection gives.
    pub(crate) fn body_refused(status: StatusCode, detail: String) -> Self {
        let kind = match status {
            StatusCode::PAYLOAD_TOO_LARGE => Kind::BodyTooLarge,
            StatusCode::UNSUPPORTED_MEDIA_TYPE => Kind::MediaTypeUnsupported,
            _ => Kind::BodyInvalid,
        };
        Self::new(kind, detail)
    }
}

/// RFC 9457, section 3.1.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    detail: &'a str,
    /// By which the operator finds it in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    #[serde(flatten)]
    members: &'a Map<String, Value>,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.kind().status(), self.body()).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(wait_s) = self.retry_after_s() {
            headers.insert(RETRY_AFTER, HeaderValue::from(wait_s));
        }
        if self.kind() == Kind::Unauthorized {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        counter!(TOKENS_REFUSED, "reason" => denied.name()).increment(1);
        let kind = match denied {
            Denied::Missing { .. } | Denied::Unknown | Denied::Client { .. } | Denied::Expired { .. } => {
                Kind::Unauthorized
            }
            Denied::Scope { .. } | Denied::Tag { .. } | Denied::AllTags => Kind::Forbidden,
        };
        Self::new(kind, denied.to_string())
    }
}
