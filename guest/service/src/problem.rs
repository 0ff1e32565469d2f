//! Problem documents (RFC 9457), by the names, titles and statuses that the server has.

use alloc::string::String;
use alloc::vec::Vec;

use crate::answer::{number, push_number, push_text};

/// The longest piece of a request that a problem repeats, in characters.
const SHOWN_MAX: usize = 64;

/// Why a request is not answered as it wishes.
#[derive(Debug)]
pub(crate) struct Problem {
    kind: &'static Kind,
    detail: String,
    members: Vec<(&'static str, Member)>,
    retry_after_ms: u64,
}

#[derive(Debug)]
enum Member {
    Text(String),
    Number(u64),
}

/// A kind of problem, as the server has it.
#[derive(Debug)]
struct Kind {
    name: &'static str,
    title: &'static str,
    status: u16,
}

/// The names, titles and statuses of the server's problems that occur here.
static KINDS: [Kind; 28] = [
    kind("internal", "An internal error", 500),
    kind("route-unknown", "No such route", 404),
    kind("method-not-allowed", "The route has other methods", 405),
    kind("unauthorized", "A token is needed", 401),
    kind("forbidden", "The token is not good for this", 403),
    kind("url-too-long", "The URL is too long", 414),
    kind("query-invalid", "A query parameter is not valid", 400),
    kind("count-invalid", "The count is out of range", 400),
    kind("shard-key-invalid", "The shard key is not valid", 400),
    kind("body-invalid", "The body is not valid", 400),
    kind("tag-invalid", "The tag or an option of it is not valid", 400),
    kind("tag-unknown", "The tag is unknown", 404),
    kind("tag-limit", "No more tags may be created", 403),
    kind("sub-key-limit", "No more sub-keys of the tag may be created", 403),
    kind("number-unsafe", "Ids cannot be given as numbers", 400),
    kind("exhausted", "There are no more ids", 410),
    kind("quota-reached", "A quota is used up for now", 429),
    kind("ceiling-reached", "The tag's ceiling is reached", 503),
    kind("store-unavailable", "The store is unavailable", 503),
    kind("grant-refused", "The store granted what was granted before", 503),
    kind("timeout", "It took too long", 503),
    kind("clock-wrong", "A clock is wrong", 503),
    kind("snowflake-unknown", "The snowflake is unknown", 404),
    kind("lease-ended", "The lease of the snowflake's worker has ended", 503),
    kind("leases-missing", "There is no store for leases", 500),
    kind("store-corrupt", "The store is damaged", 500),
    kind("store-refused", "The store refused", 500),
    kind("quarantined", "The lease store grants nothing yet", 503),
];

const fn kind(name: &'static str, title: &'static str, status: u16) -> Kind {
    Kind { name, title, status }
}

impl Problem {
    /// A problem of the kind with this name; one that nobody knows is internal.
    pub(crate) fn new(name: &str, detail: impl Into<String>) -> Self {
        let [internal, ..] = &KINDS;
        let kind = KINDS.iter().find(|kind| kind.name == name).unwrap_or(internal);
        Self { kind, detail: detail.into(), members: Vec::new(), retry_after_ms: 0 }
    }

    /// With a text that it is about.
    pub(crate) fn with(mut self, name: &'static str, text: &str) -> Self {
        self.members.push((name, Member::Text(shortened(text))));
        self
    }

    fn with_number(mut self, name: &'static str, number: u64) -> Self {
        self.members.push((name, Member::Number(number)));
        self
    }

    /// With the number of milliseconds after which a repetition may succeed; 0: nothing is known.
    pub(crate) fn retry_after(mut self, wait_ms: u64) -> Self {
        self.retry_after_ms = wait_ms;
        self
    }

    /// The name of its kind, what happened, and the milliseconds after which a repetition may succeed.
    #[cfg(feature = "facade")]
    pub(crate) fn into_parts(self) -> (&'static str, String, u64) {
        (self.kind.name, self.detail, self.retry_after_ms)
    }

    #[cfg(test)]
    pub(crate) fn kind(&self) -> &'static str {
        self.kind.name
    }

    /// The status of its answer.
    pub(crate) fn status(&self) -> u16 {
        self.kind.status
    }

    /// The header `Retry-After`, in seconds.
    pub(crate) fn retry_after_s(&self) -> Option<String> {
        (self.retry_after_ms > 0).then(|| number(self.retry_after_ms.div_ceil(1_000)))
    }

    /// The document.
    pub(crate) fn document(&self, request_id: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(b"{\"type\":\"urn:unalike:problem:");
        bytes.extend_from_slice(self.kind.name.as_bytes());
        bytes.extend_from_slice(b"\",\"title\":");
        push_text(&mut bytes, self.kind.title);
        bytes.extend_from_slice(b",\"status\":");
        push_number(&mut bytes, u64::from(self.kind.status));
        bytes.extend_from_slice(b",\"detail\":");
        push_text(&mut bytes, &self.detail);
        bytes.extend_from_slice(b",\"request_id\":");
        push_text(&mut bytes, request_id);
        for (name, member) in &self.members {
            bytes.push(b',');
            push_text(&mut bytes, name);
            bytes.push(b':');
            match member {
                Member::Text(text) => push_text(&mut bytes, text),
                Member::Number(number) => push_number(&mut bytes, *number),
            }
        }
        bytes.push(b'}');
        bytes
    }

    pub(crate) fn route_unknown(path: &str) -> Self {
        let detail = "no route has this path: ids are under /v1/sequences/TAG/ids";
        Self::new("route-unknown", detail).with("path", path)
    }

    pub(crate) fn method_not_allowed(method: &str, allow: &str) -> Self {
        let detail = words(&["this route does not know the method ", &shortened(method), ": use ", allow]);
        Self::new("method-not-allowed", detail).with("method", method)
    }

    pub(crate) fn url_too_long(url_bytes: usize, url_max_bytes: usize) -> Self {
        let (bytes, most) = (number(widened(url_bytes)), number(widened(url_max_bytes)));
        let detail = words(&["the URL has ", &bytes, " bytes, ", &most, " at most are read"]);
        Self::new("url-too-long", detail).with_number("url_max_bytes", widened(url_max_bytes))
    }

    pub(crate) fn body_unwanted() -> Self {
        Self::new("body-invalid", "requests are read without a body here: write ?count=5 in the URL")
    }

    pub(crate) fn name_not_utf8(path: &str) -> Self {
        Self::new("tag-invalid", "the name is not UTF-8 once percent-decoded").with("path", path)
    }

    pub(crate) fn tag_invalid(tag: &str) -> Self {
        let detail = if tag.is_empty() {
            String::from("the tag is empty")
        } else {
            words(&["the tag ", &quoted(tag), " is longer than 128 bytes or holds a control character"])
        };
        Self::new("tag-invalid", detail).with("tag", tag)
    }

    pub(crate) fn sub_invalid(sub: &str) -> Self {
        let detail = words(&[
            "the sub-key ",
            &quoted(sub),
            " is empty, holds a control character, or has with its tag more than 128 bytes",
        ]);
        Self::new("tag-invalid", detail).with("sub", sub)
    }

    pub(crate) fn query_not_utf8() -> Self {
        Self::new("query-invalid", "the query cannot be read: it is not UTF-8 once percent-decoded")
    }

    pub(crate) fn parameter_unknown(name: &str, value: &str, known: &str) -> Self {
        let detail = words(&["the parameter ", &quoted(name), " is unknown; this route knows ", known]);
        Self::new("query-invalid", detail).with("parameter", name).with("value", value)
    }

    pub(crate) fn parameter_twice(name: &str, value: &str) -> Self {
        let detail = words(&["the parameter ", &quoted(name), " is given twice: give it once"]);
        Self::new("query-invalid", detail).with("parameter", name).with("value", value)
    }

    pub(crate) fn as_invalid(value: &str) -> Self {
        let detail = words(&["as is ", &quoted(value), ", it must be string or number"]);
        Self::new("query-invalid", detail).with("parameter", "as").with("value", value)
    }

    pub(crate) fn sub_unwanted(sub: &str) -> Self {
        let detail = "a snowflake has no sub-keys; this route knows count and as";
        Self::new("query-invalid", detail).with("parameter", "sub").with("value", sub)
    }

    pub(crate) fn count_invalid(count: &str, count_max: u32) -> Self {
        let most = number(u64::from(count_max));
        let detail = words(&["the count is ", &quoted(count), ", it must be a whole number from 1 to ", &most]);
        Self::new("count-invalid", detail).with("count", count).with_number("count_max", u64::from(count_max))
    }

    pub(crate) fn number_unsafe(tag: &str) -> Self {
        let detail = words(&[
            "ids of ",
            &quoted(tag),
            " are greater than 2^53 - 1, up to which JavaScript's numbers are exact: leave as=number out",
        ]);
        Self::new("number-unsafe", detail).with("name", tag)
    }

    pub(crate) fn timeout(limit_ms: u64) -> Self {
        let limit = number(limit_ms);
        let detail = words(&["the request took longer than ", &limit, " ms; ids that it would have got are a gap"]);
        Self::new("timeout", detail).retry_after(1_000)
    }
}

/// These, one after the other.
pub(crate) fn words(words: &[&str]) -> String {
    let mut all = String::new();
    words.iter().for_each(|word| all.push_str(word));
    all
}

/// A piece of a request between quotes, for messages.
fn quoted(text: &str) -> String {
    let mut bytes = Vec::new();
    push_text(&mut bytes, &shortened(text));
    String::from_utf8(bytes).unwrap_or_default()
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => words(&[text.get(..end).unwrap_or_default(), ".."]),
        None => String::from(text),
    }
}

fn widened(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn documents_are_whole() {
        let problem = Problem::count_invalid("0", 10).retry_after(1_001);
        assert_eq!((problem.status(), problem.retry_after_s()), (400, Some("2".to_string())));
        let document = String::from_utf8(problem.document("r1")).unwrap();
        let expected =
            r#"{"type":"urn:unalike:problem:count-invalid","title":"The count is out of range","status":400,"#;
        assert!(document.starts_with(expected), "{document}");
        assert!(document.ends_with(r#""request_id":"r1","count":"0","count_max":10}"#), "{document}");
    }

    #[test]
    fn every_kind_is_the_servers() {
        let server = include_str!("../../../host/server/src/service/problem.rs");
        for kind in &KINDS {
            let described = alloc::format!("(\"{}\", \"{}\")", kind.name, kind.title);
            assert!(server.contains(&described), "{described}");
        }
    }
}
