//! What a request asks for: its path, its query and its `Accept`.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::problem::Problem;

/// Stands between a tag and its sub-key.
const SUB_SEPARATOR: char = unalike_core::SUB_SEPARATOR;

/// Where a request goes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Ids of a tag.
    Sequence(String),
    /// Ids of a snowflake.
    Snowflake(String),
    /// Whether the instance runs.
    Live,
    /// Whether grants are available.
    Ready,
}

impl Route {
    /// The route of a path, without its query.
    pub(crate) fn of(path: &str) -> Result<Self, Problem> {
        match path {
            "/health/live" => return Ok(Self::Live),
            "/health/ready" => return Ok(Self::Ready),
            _ => {}
        }
        let name_below = |begin: &str| {
            let name = path.strip_prefix(begin)?.strip_suffix("/ids");
            name.filter(|name| !name.contains('/'))
        };
        let (name, route): (_, fn(String) -> Self) = match (name_below("/v1/sequences/"), name_below("/v1/snowflakes/"))
        {
            (Some(tag), _) => (tag, Self::Sequence),
            (None, Some(name)) => (name, Self::Snowflake),
            (None, None) => return Err(Problem::route_unknown(path)),
        };
        let name = decoded(name.as_bytes(), false).ok_or_else(|| Problem::name_not_utf8(path))?;
        if unalike_core::is_name(&name) { Ok(route(name)) } else { Err(Problem::tag_invalid(&name)) }
    }
}

/// How ids are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// JSON, ids as strings: safe in JavaScript.
    Strings,
    /// JSON, ids as numbers.
    Numbers,
    /// One id per line.
    Lines,
}

/// What a request for ids asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// 1 to the limit.
    pub(crate) count: u32,
    pub(crate) sub: Option<String>,
    pub(crate) form: Form,
}

/// What this route knows, for messages.
const KNOWN: &str = "count, sub and as";

impl Wanted {
    /// Reads a query.
    pub(crate) fn of(query: &str, count_max: u32, prefers_text: bool) -> Result<Self, Problem> {
        let (mut count, mut sub, mut form) = (None, None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(name), Some(value)) = (decoded(name.as_bytes(), true), decoded(value.as_bytes(), true)) else {
                return Err(Problem::query_not_utf8());
            };
            let place = match name.as_str() {
                "count" => &mut count,
                "sub" => &mut sub,
                "as" => &mut form,
                _ => return Err(Problem::parameter_unknown(&name, &value, KNOWN)),
            };
            if place.is_some() {
                return Err(Problem::parameter_twice(&name, &value));
            }
            *place = Some(value);
        }
        let count = match count {
            None => 1,
            Some(text) => decimal(&text)
                .and_then(|count| u32::try_from(count).ok())
                .filter(|count| (1..=count_max).contains(count))
                .ok_or_else(|| Problem::count_invalid(&text, count_max))?,
        };
        let form = match form.as_deref() {
            None | Some("string") => Form::Strings,
            Some("number") => Form::Numbers,
            Some(other) => return Err(Problem::as_invalid(other)),
        };
        Ok(Self { count, sub, form: if prefers_text { Form::Lines } else { form } })
    }

    /// The name under which the numbers are counted.
    pub(crate) fn counted_under(&self, tag: &str) -> Result<String, Problem> {
        let Some(sub) = &self.sub else { return Ok(tag.to_string()) };
        let mut name = tag.to_string();
        name.push(SUB_SEPARATOR);
        name.push_str(sub);
        let is_sub = unalike_core::is_name(sub) && unalike_core::is_tag(&name);
        if is_sub { Ok(name) } else { Err(Problem::sub_invalid(sub)) }
    }
}

/// A whole number in decimal.
pub(crate) fn decimal(text: &str) -> Option<u64> {
    let is_decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_decimal { text.parse().ok() } else { None }
}

/// What percent-encoded text says; in a query a `+` is a space. None where that is not UTF-8.
fn decoded(text: &[u8], is_query: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        bytes.push(match (byte, after) {
            (b'%', [high, low, tail @ ..]) => match (hexadecimal(*high), hexadecimal(*low)) {
                (Some(high), Some(low)) => {
                    rest = tail;
                    high << 4 | low
                }
                _ => byte,
            },
            (b'+', _) if is_query => b' ',
            _ => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

fn hexadecimal(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Whether `text/plain` is preferred to `application/json`, as the server decides it: by RFC 9110, section 12.5.1, the
/// most specific range that fits says the weight; with equal weights the one that is named wins, and JSON if both or
/// neither are.
pub(crate) fn prefers_text<'a>(accepts: impl Iterator<Item = &'a [u8]>) -> bool {
    // (how specific, weight in thousandths)
    let (mut text, mut json) = ((0_u8, 0_u32), (0_u8, 0_u32));
    for range in accepts.filter_map(|value| core::str::from_utf8(value).ok()).flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=")).map_or(1_000, weight);
        let is = |known: &str| media.eq_ignore_ascii_case(known);
        let note = |specific: u8, known: &mut (u8, u32)| {
            if specific >= known.0 {
                *known = (specific, weight);
            }
        };
        if is("text/plain") {
            note(3, &mut text);
        } else if is("text/*") {
            note(2, &mut text);
        } else if is("application/json") {
            note(3, &mut json);
        } else if is("application/*") {
            note(2, &mut json);
        } else if is("*/*") {
            note(1, &mut text);
            note(1, &mut json);
        }
    }
    (text.1, text.0) > (json.1, json.0)
}

/// `0.8` in thousandths; what cannot be read counts as nothing.
fn weight(text: &str) -> u32 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole == "1" {
        return 1_000;
    }
    let mut thousandths = 0;
    for place in 0..3 {
        let digit = match fraction.as_bytes().get(place) {
            Some(digit @ b'0'..=b'9') => u32::from(digit - b'0'),
            Some(_) => return 0,
            None => 0,
        };
        thousandths = thousandths * 10 + digit;
    }
    thousandths
}

/// Whether an id of a request may be given back to it: 1 to 128 letters, digits and `-_.:;=+/@`.
pub(crate) fn is_request_id(id: &[u8]) -> bool {
    (1..=128).contains(&id.len()) && id.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:;=+/@".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_routes() {
        let sequence = |tag: &str| Route::Sequence(tag.to_string());
        for (path, route) in [
            ("/v1/sequences/order/ids", sequence("order")),
            ("/v1/sequences/a%20b%2Fc/ids", sequence("a b/c")),
            ("/v1/sequences/a+b/ids", sequence("a+b")),
            ("/v1/sequences/100%/ids", sequence("100%")),
            ("/v1/snowflakes/default/ids", Route::Snowflake("default".to_string())),
            ("/health/live", Route::Live),
            ("/health/ready", Route::Ready),
        ] {
            assert_eq!(Route::of(path).unwrap(), route, "{path}");
        }
        for (path, problem) in [
            ("/", "route-unknown"),
            ("/v1/sequences/order", "route-unknown"),
            ("/v1/sequences/a/b/ids", "route-unknown"),
            ("/v1/sequences//ids", "tag-invalid"),
            ("/v1/sequences/%ff/ids", "tag-invalid"),
            ("/v1/sequences/a%1fb/ids", "tag-invalid"),
        ] {
            assert_eq!(Route::of(path).unwrap_err().kind(), problem, "{path}");
        }
    }

    #[test]
    fn queries_are_read_as_the_server_reads_them() {
        let read = |query: &str| Wanted::of(query, 100, false);
        let wanted = |count, sub: Option<&str>, form| Wanted { count, sub: sub.map(str::to_string), form };
        assert_eq!(read("").unwrap(), wanted(1, None, Form::Strings));
        assert_eq!(read("count=100&as=number").unwrap(), wanted(100, None, Form::Numbers));
        assert_eq!(read("sub=a+b%25&as=string").unwrap(), wanted(1, Some("a b%"), Form::Strings));
        assert_eq!(Wanted::of("count=2", 100, true).unwrap().form, Form::Lines);
        for query in ["count=0", "count=101", "count=", "count=+1", "count=1.0", "count=99999999999999999999"] {
            assert_eq!(read(query).unwrap_err().kind(), "count-invalid", "{query}");
        }
        for query in ["n=1", "count=1&count=1", "as=text", "count=%ff", "format=base62"] {
            assert_eq!(read(query).unwrap_err().kind(), "query-invalid", "{query}");
        }
        assert_eq!(read("sub=u1").unwrap().counted_under("chat").unwrap(), "chat\u{1f}u1");
        for sub in ["sub=", "sub=%1f", "sub=%0a"] {
            assert_eq!(read(sub).unwrap().counted_under("chat").unwrap_err().kind(), "tag-invalid", "{sub}");
        }
    }

    #[test]
    fn text_is_given_to_those_who_prefer_it() {
        for accept in
            ["text/plain", "Text/Plain; charset=utf-8", "text/plain, */*", "text/*", "text/plain;q=0.9, */*;q=0.8"]
        {
            assert!(prefers_text([accept.as_bytes()].into_iter()), "{accept}");
        }
        for accept in [
            "*/*",
            "application/json",
            "application/json, text/plain",
            "text/plain;q=0.1, application/json",
            "text/html",
            "",
        ] {
            assert!(!prefers_text([accept.as_bytes()].into_iter()), "{accept}");
        }
        assert!(!prefers_text(core::iter::empty()));
    }
}
