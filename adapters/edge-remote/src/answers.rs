//! What servers answer, and what their answers prove: the table of `unalike-remote`.

use alloc::collections::BinaryHeap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::json::{VALUES_MAX, Value};

/// How much of a server's words callers are told, in characters.
const DETAIL_MAX: usize = 500;

/// Why nothing that may be used was granted: the cases of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    Unavailable,
    OutcomeUnknown,
    TagUnknown,
    Exhausted,
    Refused,
}

/// Why a server granted nothing that may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) denied: Denied,
    /// Another server may do better.
    pub(crate) is_servers: bool,
    /// The name of the problem for callers.
    pub(crate) problem: &'static str,
    /// For callers, who learn nothing of servers and tokens.
    pub(crate) detail: String,
    /// 0 where nothing is known.
    pub(crate) retry_after_ms: u64,
}

impl Failure {
    /// Nothing was granted, and another server may be better off.
    pub(crate) fn unavailable() -> Self {
        let detail = "the servers that grant numbers cannot be used now: try again";
        Self {
            denied: Denied::Unavailable,
            is_servers: true,
            problem: "store-unavailable",
            detail: String::from(detail),
            retry_after_ms: 1_000,
        }
    }

    /// Something may have been granted; whatever it was, nobody uses it.
    pub(crate) fn unknown() -> Self {
        let detail = "the answer of a server was lost, and what it may have granted is not used: try again";
        Self { denied: Denied::OutcomeUnknown, detail: String::from(detail), ..Self::unavailable() }
    }

    /// All servers would answer the same.
    pub(crate) fn of_caller(denied: Denied, problem: &'static str, detail: &str) -> Self {
        Self { denied, is_servers: false, problem, detail: String::from(detail), retry_after_ms: 0 }
    }

    /// What only the operator can act on.
    pub(crate) fn refused(detail: &str) -> Self {
        Self::of_caller(Denied::Refused, "store-refused", detail)
    }

    /// Whether callers learn of this rather than of what a server did that was asked later. Something may have been
    /// granted, whatever others say. And what passes is worth trying again, though another server refuses for good.
    pub(crate) fn outweighs(&self, later: &Self) -> bool {
        match self.denied {
            Denied::OutcomeUnknown => true,
            Denied::Unavailable => !matches!(later.denied, Denied::OutcomeUnknown | Denied::Unavailable),
            Denied::TagUnknown | Denied::Exhausted | Denied::Refused => false,
        }
    }

    fn with_retry(self, retry_after_ms: u64) -> Self {
        Self { retry_after_ms, ..self }
    }
}

/// What an answer that is not a success proves; none where it proves nothing, since a server of another kind wrote it,
/// or since this one does not know.
///
/// A problem is one of this server's about this request: the caller has checked the request's id.
pub(crate) fn problem(status: u16, body: &[u8]) -> Option<Failure> {
    let document = Value::read(body, VALUES_MAX)?;
    let kind = document.get("type")?.text()?.strip_prefix("urn:unalike:problem:")?;
    let detail = shortened(document.get("detail").and_then(Value::text).unwrap_or_default());
    let retry_after_ms = document.get("retry_after_ms").and_then(Value::whole).unwrap_or(0);
    let of_caller = |denied, problem| Failure::of_caller(denied, problem, detail);
    let of_own = |detail| Failure::of_caller(Denied::Refused, "tag-invalid", detail);
    Some(match kind {
        "outcome-unknown" | "timeout" => Failure::unknown(),
        "store-unavailable" | "closing" | "connections-max" | "head-timeout" => Failure::unavailable(),
        // Another server counts for itself, and would give what this one is told not to.
        "quota-reached" => of_caller(Denied::Unavailable, "quota-reached").with_retry(retry_after_ms.max(1)),
        "ceiling-reached" => of_caller(Denied::Unavailable, "ceiling-reached").with_retry(retry_after_ms.max(1)),
        "quarantined" => of_caller(Denied::Unavailable, "quarantined").with_retry(1_000),
        "clock-wrong" => of_caller(Denied::Unavailable, "clock-wrong").with_retry(1_000),
        "tag-unknown" => of_caller(Denied::TagUnknown, "tag-unknown"),
        "exhausted" => of_caller(Denied::Exhausted, "exhausted"),
        "tag-invalid" => of_caller(Denied::Refused, "tag-invalid"),
        // Another server may lease its workers from the store that was named.
        "snowflake-unknown" if document.get("leases").is_some() => Failure {
            is_servers: true,
            ..Failure::refused(
                "a server leases its workers from another store than UNALIKE_SERVERS names (?leases=, else ?store=): \
                 GET /v1/store of the server says which",
            )
        },
        "snowflake-unknown" => of_caller(Denied::Refused, "snowflake-unknown"),
        "lease-ended" => Failure { problem: "lease-ended", ..Failure::unavailable() },
        "tag-limit" => of_caller(Denied::Refused, "tag-limit"),
        "sub-key-limit" => of_caller(Denied::Refused, "sub-key-limit"),
        "store-corrupt" => of_caller(Denied::Refused, "store-corrupt"),
        "forbidden" => Failure::of_caller(
            Denied::Refused,
            "forbidden",
            "the token of this host (UNALIKE_TOKEN) is not of the scope lease, or not valid for this name",
        ),
        "unauthorized" => Failure::refused(
            "the servers know no such token: set UNALIKE_TOKEN to one of the scope lease, without Bearer",
        ),
        // The server says what is wrong with the request, or that its store refuses, before anything is granted.
        "format-invalid" => {
            of_own("its ids are shown under a key, with a shard gene, or begin again: ask a server for them")
        }
        "store-refused" | "leases-missing" | "layout-mismatch" | "workers-exhausted" => {
            Failure::refused("the servers refuse; their log has more")
        }
        "route-unknown" => Failure::refused(
            "what answers at UNALIKE_SERVERS grants no numbers: name unalike servers, and no hosts of this component",
        ),
        "count-invalid" => of_caller(Denied::Refused, "count-invalid"),
        "shard-key-invalid" => Failure::of_caller(
            Denied::Refused,
            "shard-key-invalid",
            "its ids have a shard gene, and no shard key is passed on here: ask a server for them",
        ),
        _ if (400..500).contains(&status) => Failure::refused(
            "the servers refuse what this host asks for: UNALIKE_SERVERS must name unalike servers of no earlier \
             version, and no hosts of this component",
        ),
        _ => return None,
    })
}

fn shortened(text: &str) -> &str {
    let end = text.char_indices().nth(DETAIL_MAX).map_or(text.len(), |(end, _)| end);
    text.get(..end).unwrap_or_default()
}

/// Numbers that were granted: `start`, `start + stride`, .. below `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) stride: u64,
    pub(crate) generation: u64,
    pub(crate) version: u64,
}

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) tag: &'a str,
    pub(crate) sub: Option<&'a str>,
    pub(crate) count: u64,
    pub(crate) at_least: u64,
}

/// The greatest id.
const ID_MAX: u64 = u64::MAX >> 1;

impl Granted {
    /// Reads a grant; none where it is not one, or not what was asked for.
    pub(crate) fn read(answer: &Value, asked: &Asked<'_>) -> Option<Self> {
        let (tag, sub) = (answer.get("tag")?.text()?, answer.get("sub").map(Value::text));
        let is_of_tag = tag == asked.tag && sub == asked.sub.map(Some);
        let segment = answer.get("segment")?;
        let number = |name| segment.get(name).and_then(Value::whole);
        let granted = Self {
            start: number("start")?,
            end: number("end")?,
            stride: number("stride")?,
            generation: number("generation")?,
            version: number("version")?,
        };
        (is_of_tag && granted.is_asked_for(asked)).then_some(granted)
    }

    fn is_asked_for(&self, asked: &Asked<'_>) -> bool {
        let Self { start, end, stride, .. } = *self;
        let is_interval = start >= 1 && start < end && stride >= 1;
        is_interval
            && (end - start).is_multiple_of(stride)
            && end - stride <= ID_MAX
            && start >= asked.at_least
            && (end - start) / stride <= asked.count
    }
}

/// The name of the store that an answer is from; `Some(None)`: it has none. None where the answer does not say.
pub(crate) fn store_of(answer: &Value) -> Option<Option<u128>> {
    match answer.get("store")? {
        Value::Null => Some(None),
        Value::Text(name) => store_name(name).map(Some),
        _ => None,
    }
}

/// The name of a store: 32 hexadecimal digits.
pub(crate) fn store_name(text: &str) -> Option<u128> {
    let is_name = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_name { u128::from_str_radix(text, 16).ok() } else { None }
}

/// The name of a store as it is written.
pub(crate) fn digits_of_store(name: u128) -> String {
    let digits = name.to_be_bytes().into_iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).collect()
}

/// Whether a tag that was opened is ordered; none where its mode is one that nobody knows here.
#[cfg(any(feature = "wasi-0-3", test))]
pub(crate) fn is_ordered(answer: &Value) -> Option<bool> {
    match answer.get("tag")?.get("mode")?.text()? {
        "ordered" => Some(true),
        "buffered" => Some(false),
        _ => None,
    }
}

/// The ids of a snowflake, as many as were asked for. Those that are shown under a key come in any order.
pub(crate) fn snowflake_ids(answer: &Value, name: &str, count: u32) -> Option<Vec<u64>> {
    let Value::Array(ids) = answer.get("ids")? else { return None };
    // Sorted by a heap, which takes a tenth of the code of `sort_unstable`.
    let ids: BinaryHeap<u64> = ids.iter().map(Value::whole).collect::<Option<_>>()?;
    let ids = ids.into_sorted_vec();
    let is_asked_for = answer.get("snowflake")?.text()? == name
        && u32::try_from(ids.len()) == Ok(count)
        && ids.iter().all(|id| (1..=ID_MAX).contains(id))
        && ids.is_sorted_by(|one, next| one < next);
    is_asked_for.then_some(ids)
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    /// The same kinds as in the table of `unalike-remote`.
    #[test]
    fn callers_learn_what_may_have_been_granted_and_what_passes_rather_than_a_refusal() {
        let (refused, unavailable, unknown) = (Failure::refused("so"), Failure::unavailable(), Failure::unknown());
        for (first, later, outweighs) in [
            (&unknown, &unavailable, true),
            (&unknown, &refused, true),
            (&unavailable, &refused, true),
            (&unavailable, &unavailable, false),
            (&unavailable, &unknown, false),
            (&refused, &unavailable, false),
            (&refused, &refused, false),
        ] {
            assert_eq!(first.outweighs(later), outweighs, "{first:?}, then {later:?}");
        }
    }

    #[test]
    fn only_what_is_known_to_grant_nothing_counts_as_that() {
        let of = |status: u16, kind: &str| {
            let body = format!(r#"{{"type":"urn:unalike:problem:{kind}","detail":"so","tag":"order"}}"#);
            problem(status, body.as_bytes())
        };
        for (status, kind) in [(503, "outcome-unknown"), (503, "timeout")] {
            assert_eq!(of(status, kind).unwrap().denied, Denied::OutcomeUnknown, "{kind}");
        }
        for kind in ["store-unavailable", "closing", "connections-max", "head-timeout"] {
            let failure = of(503, kind).unwrap();
            assert!(failure.denied == Denied::Unavailable && failure.is_servers, "{kind}");
        }
        for (status, kind) in [(503, "ceiling-reached"), (410, "exhausted"), (404, "tag-unknown"), (403, "forbidden")] {
            let failure = of(status, kind).unwrap();
            assert!(failure.denied != Denied::OutcomeUnknown && !failure.is_servers, "{kind}");
        }
        let over = problem(429, br#"{"type":"urn:unalike:problem:quota-reached","retry_after_ms":"250"}"#).unwrap();
        assert_eq!((over.denied, over.problem, over.retry_after_ms), (Denied::Unavailable, "quota-reached", 250));
        assert_eq!(of(400, "of a later version").unwrap().denied, Denied::Refused);
        for (status, kind) in [(500, "internal"), (503, "rebuilt"), (502, "of a later version")] {
            assert_eq!(of(status, kind), None, "{kind}");
        }
        for body in [&b"<html>"[..], b"", b"{}", br#"{"type":"about:blank"}"#, br#"{"type":7}"#] {
            assert_eq!(problem(503, body), None);
            assert_eq!(problem(404, body), None);
        }
    }

    #[test]
    fn callers_are_told_so_much_of_what_a_server_says() {
        let detail = |detail: &str| {
            let body = format!(r#"{{"type":"urn:unalike:problem:tag-invalid","detail":"{detail}"}}"#);
            problem(400, body.as_bytes()).unwrap().detail
        };
        assert_eq!(detail(r"it is \u00e4"), "it is \u{e4}");
        assert_eq!(detail(&"\u{e4}".repeat(5_000)), "\u{e4}".repeat(DETAIL_MAX));
    }

    fn granted(text: &str, sub: Option<&str>, count: u64, at_least: u64) -> Option<Granted> {
        Granted::read(&Value::read(text.as_bytes(), VALUES_MAX).unwrap(), &Asked { tag: "order", sub, count, at_least })
    }

    fn grant(tag: &str, start: u64, end: u64, stride: u64) -> String {
        format!(
            r#"{{"tag":{tag},"segment":{{"start":"{start}","end":"{end}","stride":"{stride}","generation":"0","version":"1"}},"store":null}}"#
        )
    }

    #[test]
    fn a_grant_is_what_was_asked_for() {
        let order = r#""order""#;
        let read = granted(&grant(order, 1, 11, 1), None, 10, 0).unwrap();
        assert_eq!((read.start, read.end, read.version), (1, 11, 1));
        let most = ID_MAX + 1;
        assert!(granted(&grant(order, ID_MAX, most, 1), None, 1, 0).is_some());
        assert!(granted(&grant(r#""order","sub":"a""#, 1, 2, 1), Some("a"), 1, 0).is_some());
        for (text, sub, count, at_least) in [
            (grant(r#""other""#, 1, 11, 1), None, 10, 0),
            (grant(r#""order","sub":"a""#, 1, 11, 1), None, 10, 0),
            (grant(r#""order","sub":"a""#, 1, 11, 1), Some("b"), 10, 0),
            (grant(r#""order","sub":null"#, 1, 11, 1), None, 10, 0),
            (grant(order, 1, 11, 1), Some("a"), 10, 0),
            (grant(order, 1, 11, 1), None, 9, 0),
            (grant(order, 1, 11, 1), None, 10, 2),
            (grant(order, 0, 10, 1), None, 10, 0),
            (grant(order, 11, 11, 1), None, 10, 0),
            (grant(order, 12, 11, 1), None, 10, 0),
            (grant(order, 1, 11, 0), None, 10, 0),
            (grant(order, 1, 11, 3), None, 10, 0),
            (grant(order, ID_MAX, most + 1, 1), None, 10, 0),
        ] {
            assert_eq!(granted(&text, sub, count, at_least), None, "{text}");
        }
    }

    #[test]
    fn snowflakes_are_those_that_were_asked_for() {
        let read =
            |text: &str, count| snowflake_ids(&Value::read(text.as_bytes(), VALUES_MAX).unwrap(), "default", count);
        assert_eq!(read(r#"{"snowflake":"default","ids":["5","7"]}"#, 2), Some(alloc::vec![5, 7]));
        assert_eq!(read(r#"{"snowflake":"default","ids":["7","5"]}"#, 2), Some(alloc::vec![5, 7]));
        for (text, count) in [
            (r#"{"snowflake":"other","ids":["5","7"]}"#, 2),
            (r#"{"tag":"default","ids":["5","7"]}"#, 2),
            (r#"{"snowflake":"default","ids":["5","7"]}"#, 3),
            (r#"{"snowflake":"default","ids":["5","7","5"]}"#, 3),
            (r#"{"snowflake":"default","ids":["5","5"]}"#, 2),
            (r#"{"snowflake":"default","ids":["0"]}"#, 1),
            (r#"{"snowflake":"default","ids":["F-5"]}"#, 1),
            (r#"{"snowflake":"default","ids":[5]}"#, 1),
        ] {
            assert_eq!(read(text, count), None, "{text}");
        }
    }

    #[test]
    fn stores_are_told_apart() {
        let of = |text: &str| store_of(&Value::read(text.as_bytes(), VALUES_MAX).unwrap());
        assert_eq!(of(r#"{"store":"00000000000000000000000000005eed"}"#), Some(Some(0x5eed)));
        assert_eq!(of(r#"{"store":null}"#), Some(None));
        assert_eq!(digits_of_store(0x5eed), "00000000000000000000000000005eed");
        for text in ["{}", r#"{"store":"5eed"}"#, r#"{"store":1}"#, r#"{"store":"+0000000000000000000000000005eed"}"#] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
