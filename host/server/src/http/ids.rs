//! Ids of sequences and snowflakes.

use std::iter;
use std::sync::Arc;

use axum::extract::{FromRequestParts, State};
use axum::http::header::ACCEPT;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Request};
use axum::response::Response;
use unalike::Snowflake;

use super::query::{Parameters, invalid};
use super::{Readable, finished};
use crate::auth::{Scope, bearer};
use crate::layouts::shortened;
use crate::problem::Problem;
use crate::service::Service;

/// The most bytes that an id takes in an answer: 19 digits, two quotes and a comma.
const ID_BYTES_MAX: usize = 22;

pub(super) async fn of_sequence(
    State(service): State<Arc<Service>>,
    Readable(tag): Readable,
    wanted: Wanted,
) -> Result<Response, Problem> {
    if let Some(snowflake) = service.quick(&tag)? {
        if let Some(sub) = &wanted.sub {
            return Err(invalid(
                "sub",
                sub,
                "the tag is quick: its ids are those of a snowflake, which has no sub-keys",
            ));
        }
        return wanted.of_snowflake("tag", &tag, snowflake).await;
    }
    let sequence = service.sequence(&tag, wanted.sub.as_deref()).await?;
    if wanted.count == 1 {
        let id = sequence.next().await?;
        return wanted.answer("tag", &tag, iter::once(id));
    }
    let batch = sequence.take(wanted.count).await?;
    wanted.answer("tag", &tag, batch.iter())
}

pub(super) async fn of_snowflake(
    State(service): State<Arc<Service>>,
    Readable(name): Readable,
    wanted: Wanted,
) -> Result<Response, Problem> {
    if let Some(sub) = &wanted.sub {
        return Err(invalid("sub", sub, "a snowflake has no sub-keys; this route knows count and as"));
    }
    wanted.of_snowflake("snowflake", &name, service.snowflake(&name)?).await
}

/// The answer to the plainest request, for one id, if there is one without waiting.
///
/// It saves what the router allocates for every request and what its future, of some KiB, costs to move, and is no more
/// than that: whatever is refused, has to wait, or asks for anything else is none of its business, and the routes say
/// what there is to say.
pub(super) fn at_once<B>(service: &Service, request: &Request<B>) -> Option<Response> {
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
    service.tokens.check(bearer(request.headers()), Scope::Read, name).ok()?;
    let (label, id) = match kind {
        "sequences" => match service.open_sequence(name) {
            Some(sequence) => ("tag", sequence.try_next().ok()??),
            None => ("tag", service.quick(name).ok()??.try_next().ok()??),
        },
        "snowflakes" => ("snowflake", service.snowflake(name).ok()?.try_next().ok()??),
        _ => return None,
    };
    Wanted { count: 1, form: Form::Strings, sub: None }.answer(label, name, iter::once(id)).ok()
}

/// What a request asks for.
pub(super) struct Wanted {
    /// 1 to the configured maximum.
    count: u32,
    form: Form,
    /// Of which sub-key.
    sub: Option<String>,
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

impl FromRequestParts<Arc<Service>> for Wanted {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Arc<Service>) -> Result<Self, Problem> {
        let mut parameters = Parameters::of(&parts.uri)?;
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
        parameters.finish("count, sub and as")?;
        let form = if prefers(&parts.headers, "text/plain") { Form::Lines } else { form };
        Ok(Self { count, form, sub })
    }
}

impl Wanted {
    async fn of_snowflake(&self, label: &str, name: &str, snowflake: &Snowflake) -> Result<Response, Problem> {
        if self.count == 1 {
            let id = snowflake.next().await?;
            return self.answer(label, name, iter::once(id));
        }
        let batch = snowflake.take(self.count).await?;
        self.answer(label, name, batch.iter())
    }

    fn answer(&self, label: &str, name: &str, ids: impl Iterator<Item = u64>) -> Result<Response, Problem> {
        // Written by hand, since it is the whole work of most requests: a value per id would cost more than the id.
        self.write(label, name, ids).map_err(|error| Problem::unwritten(&error))
    }

    fn write(&self, label: &str, name: &str, ids: impl Iterator<Item = u64>) -> serde_json::Result<Response> {
        let count = usize::try_from(self.count).unwrap_or(0);
        let mut body = Vec::with_capacity(count.saturating_mul(ID_BYTES_MAX) + 2 * name.len() + 32);
        if self.form == Form::Lines {
            for id in ids {
                serde_json::to_writer(&mut body, &id)?;
                body.push(b'\n');
            }
            return Ok(finished("text/plain; charset=utf-8", body));
        }
        body.extend_from_slice(b"{\"");
        body.extend_from_slice(label.as_bytes());
        body.extend_from_slice(b"\":");
        serde_json::to_writer(&mut body, name)?;
        if let Some(sub) = &self.sub {
            body.extend_from_slice(b",\"sub\":");
            serde_json::to_writer(&mut body, sub)?;
        }
        body.extend_from_slice(b",\"ids\":");
        let mut before: &[u8] = b"[";
        for id in ids {
            body.extend_from_slice(before);
            if self.form == Form::Strings {
                body.push(b'"');
                serde_json::to_writer(&mut body, &id)?;
                body.push(b'"');
            } else {
                serde_json::to_writer(&mut body, &id)?;
            }
            before = b",";
        }
        body.extend_from_slice(b"]}");
        Ok(finished("application/json", body))
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
