//! Ids of sequences and snowflakes.

use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, Method, Request as HttpRequest};
use axum::response::Response;
use unalike::storage::StoreIdentity;

use super::access::{IDS, Named, presented};
use super::finished;
use super::query::{Parameters, invalid};
use crate::config::formats::{FormatRequest, Notation, shard_key};
use crate::service::Service;
use crate::service::issue::{IdForm, Issued, Owner, Written};
use crate::service::problem::Problem;
use crate::words::shortened;

/// The most bytes that an id in decimal takes in an answer: 19 digits, two quotes and a comma.
const ID_BYTES_MAX: usize = 22;

pub(super) async fn of_sequence(
    State(service): State<Arc<Service>>,
    Named(tag, permit): Named,
    wanted: IdsRequest,
) -> Result<Response, Problem> {
    if let Some(leases) = wanted.leases {
        return Err(invalid("leases", &leases.to_string(), "the ids of a tag are of no lease; snowflakes know leases"));
    }
    let owner = Owner::Tag { name: &tag, sub: wanted.sub.as_deref() };
    wanted.answer(&service.issue(&permit, owner, wanted.count, IdForm::Shown(wanted.asked)).await?, owner)
}

pub(super) async fn of_snowflake(
    State(service): State<Arc<Service>>,
    Named(name, permit): Named,
    wanted: IdsRequest,
) -> Result<Response, Problem> {
    if let Some(sub) = &wanted.sub {
        return Err(invalid(
            "sub",
            sub,
            "a snowflake has no sub-keys; this route knows count, as, format, shard_key and leases",
        ));
    }
    if let Some(leases) = wanted.leases {
        service.check_leases_name(leases).await?;
    }
    let owner = Owner::Snowflake { name: &name };
    wanted.answer(&service.issue(&permit, owner, wanted.count, IdForm::Shown(wanted.asked)).await?, owner)
}

/// The answer to the plainest request, for one id, if there is one without waiting.
///
/// It saves what the router allocates for every request and what its future, of some KiB, costs to move, and is no more
/// than that: whatever is refused, has to wait, or asks for anything else is none of its business, and the routes say
/// what there is to say.
pub(super) fn at_once<B>(service: &Service, request: &HttpRequest<B>) -> Option<Response> {
    let is_plain = matches!(*request.method(), Method::GET | Method::POST) && request.uri().query().is_none();
    if !is_plain || prefers(request.headers(), "text/plain") {
        return None;
    }
    let path = request.uri().path().strip_prefix("/v1/")?.strip_suffix("/ids")?;
    let (kind, name) = path.split_once('/')?;
    // What is percent-encoded has another name.
    if name.contains(['%', '/']) {
        return None;
    }
    let owner = match kind {
        "sequences" => Owner::tag(name),
        "snowflakes" => Owner::Snowflake { name },
        _ => return None,
    };
    let permit = service.tokens.permit(presented(request.headers(), request.extensions()), IDS).ok()?;
    permit.covers(name).ok()?;
    let mut body = Body::begin(owner, 1, Form::Strings).ok()?;
    body.add(Written::Number(service.issue_at_once(&permit, owner)?)).ok()?;
    Some(body.finish())
}

/// What a request asks for.
pub(super) struct IdsRequest {
    /// 1 to the configured maximum.
    count: u32,
    form: Form,
    /// Of which sub-key.
    sub: Option<String>,
    /// The store that the worker of a snowflake must be leased from.
    leases: Option<StoreIdentity>,
    /// How they are shown.
    asked: FormatRequest,
}

/// How ids are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// JSON, ids as strings: safe in JavaScript.
    Strings,
    /// JSON, ids as numbers.
    Numbers,
    /// One id per line.
    Lines,
}

impl FromRequest<Arc<Service>> for IdsRequest {
    type Rejection = Problem;

    async fn from_request(request: Request, service: &Arc<Service>) -> Result<Self, Problem> {
        let prefers_text = prefers(request.headers(), "text/plain");
        let mut parameters = Parameters::from_request(request, service).await?;
        let count = parameters.take_count(service.count_max)?;
        let form = match parameters.take("as").as_deref() {
            None | Some("string") => Form::Strings,
            Some("number") => Form::Numbers,
            Some(other) => {
                let detail = format!("as is {:?}, it must be string or number", shortened(other));
                return Err(invalid("as", other, detail));
            }
        };
        let sub = parameters.take("sub");
        let leases = parameters.take("leases").map(|text| {
            let detail = "leases must be the 32 hexadecimal digits that GET /v1/store answers";
            text.parse::<StoreIdentity>().map_err(|_| invalid("leases", &text, detail))
        });
        let leases = leases.transpose()?;
        let notation = parameters.take("format").map(|name| Notation::named(&name)).transpose()?;
        let shard_key = parameters.take("shard_key").map(|text| shard_key(&text)).transpose()?;
        parameters.finish("count, sub, as, format, shard_key and leases")?;
        let form = if prefers_text { Form::Lines } else { form };
        let asked = FormatRequest { notation, as_number: form == Form::Numbers, shard_key };
        Ok(Self { count, form, sub, leases, asked })
    }
}

impl IdsRequest {
    fn answer(&self, issued: &Issued, owner: Owner<'_>) -> Result<Response, Problem> {
        // Written by hand, since it is the whole work of most requests: a value per id would cost more than the id.
        let unwritten = |error: serde_json::Error| Problem::unwritten(&error);
        let mut body = Body::begin(owner, self.count, self.form).map_err(unwritten)?;
        issued.each(|id| body.add(id).map_err(unwritten))?;
        Ok(body.finish())
    }
}

/// An answer that ids are written into, one after the other.
struct Body {
    bytes: Vec<u8>,
    form: Form,
    /// What comes before the next id in JSON.
    before: &'static [u8],
}

impl Body {
    fn begin(owner: Owner<'_>, count: u32, form: Form) -> serde_json::Result<Self> {
        let (label, name, sub) = match owner {
            Owner::Tag { name, sub } => ("tag", name, sub),
            Owner::Snowflake { name } => ("snowflake", name, None),
        };
        let count = usize::try_from(count).unwrap_or(0);
        let mut bytes = Vec::with_capacity(count.saturating_mul(ID_BYTES_MAX) + 2 * name.len() + 32);
        if form != Form::Lines {
            bytes.extend_from_slice(b"{\"");
            bytes.extend_from_slice(label.as_bytes());
            bytes.extend_from_slice(b"\":");
            serde_json::to_writer(&mut bytes, name)?;
            if let Some(sub) = sub {
                bytes.extend_from_slice(b",\"sub\":");
                serde_json::to_writer(&mut bytes, sub)?;
            }
            bytes.extend_from_slice(b",\"ids\":");
        }
        Ok(Self { bytes, form, before: b"[" })
    }

    fn add(&mut self, id: Written<'_>) -> serde_json::Result<()> {
        match id {
            Written::Number(number) => self.add_number(number),
            Written::Text(text) => self.add_text(text),
        }
    }

    fn add_number(&mut self, number: u64) -> serde_json::Result<()> {
        match self.form {
            Form::Lines => {
                serde_json::to_writer(&mut self.bytes, &number)?;
                self.bytes.push(b'\n');
                return Ok(());
            }
            Form::Strings => {
                self.bytes.extend_from_slice(self.before);
                self.bytes.push(b'"');
                serde_json::to_writer(&mut self.bytes, &number)?;
                self.bytes.push(b'"');
            }
            Form::Numbers => {
                self.bytes.extend_from_slice(self.before);
                serde_json::to_writer(&mut self.bytes, &number)?;
            }
        }
        self.before = b",";
        Ok(())
    }

    /// A text of one line.
    fn add_text(&mut self, text: &str) -> serde_json::Result<()> {
        if self.form == Form::Lines {
            self.bytes.extend_from_slice(text.as_bytes());
            self.bytes.push(b'\n');
            return Ok(());
        }
        self.bytes.extend_from_slice(self.before);
        serde_json::to_writer(&mut self.bytes, text)?;
        self.before = b",";
        Ok(())
    }

    fn finish(mut self) -> Response {
        if self.form == Form::Lines {
            return finished("text/plain; charset=utf-8", self.bytes);
        }
        self.bytes.extend_from_slice(b"]}");
        finished("application/json", self.bytes)
    }
}

/// Whether this kind of text, `text/plain` for example, is preferred to `application/json`, by RFC 9110, section
/// 12.5.1: the most specific range that fits says the weight. With equal weights the one that is named wins, and JSON
/// if both or neither are.
pub(super) fn prefers(headers: &HeaderMap, wanted: &str) -> bool {
    let mut accepts = headers.get_all(ACCEPT).iter().peekable();
    if accepts.peek().is_none() {
        return false;
    }
    // (how specific, weight in thousandths)
    let (mut text, mut json) = ((0_u8, 0_u32), (0_u8, 0_u32));
    for range in accepts.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default().to_ascii_lowercase();
        let weight = parts.find_map(|part| part.strip_prefix("q=")).map_or(1_000, weight);
        let note = |specific: u8, known: &mut (u8, u32)| {
            if specific >= known.0 {
                *known = (specific, weight);
            }
        };
        match media.as_str() {
            _ if media == wanted => note(3, &mut text),
            "text/*" => note(2, &mut text),
            "application/json" => note(3, &mut json),
            "application/*" => note(2, &mut json),
            "*/*" => {
                note(1, &mut text);
                note(1, &mut json);
            }
            _ => {}
        }
    }
    (text.1, text.0) > (json.1, json.0)
}

/// `0.8` in thousandths; what cannot be read counts as nothing.
fn weight(text: &str) -> u32 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction: u32 = format!("{fraction:0<3}").get(..3).and_then(|digits| digits.parse().ok()).unwrap_or(0);
    if whole == "1" { 1_000 } else { fraction }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_given_to_those_who_prefer_it() {
        let prefers_text = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            prefers(&headers, "text/plain")
        };
        for accept in [
            "text/plain",
            "Text/Plain; charset=utf-8",
            "text/plain, */*",
            "text/*",
            "application/json;q=0.5, text/plain;q=0.75",
            "text/plain, application/json;q=0",
        ] {
            assert!(prefers_text(accept), "{accept}");
        }
        for accept in [
            "*/*",
            "application/json",
            "application/json, text/plain",
            "text/plain;q=0.1, application/json",
            "text/plain;q=0, */*",
            "text/html",
            "",
        ] {
            assert!(!prefers_text(accept), "{accept}");
        }
        assert!(!prefers(&HeaderMap::new(), "text/plain"));
    }
}
