//! What servers answer: JSON whose numbers are strings, and problem documents.

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use unalike_storage::{
    AdaptiveStep, GrantId, Lease, Mode, RefillPolicy, Segment, StepPolicy, StoreError, StoreIdentity, TagOptions,
    TagRecord, sub_tag,
};

/// A whole number of 64 bits, which JSON has as a string.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number(pub(crate) u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
        let number = is_decimal.then(|| text.parse().ok()).flatten();
        number.map(Self).ok_or_else(|| D::Error::custom(format!("{text:?} is not a whole number of 64 bits")))
    }
}

/// The name of a store, if it has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name(pub(crate) Option<StoreIdentity>);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose().map(Self)
    }
}

/// `GET /v1/store`
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct StoreNames {
    pub(crate) store: Option<String>,
    pub(crate) leases: Option<String>,
}

/// Numbers that were granted.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct GrantedSegment {
    pub(crate) tag: String,
    #[serde(default)]
    pub(crate) sub: Option<String>,
    segment: SegmentJson,
    pub(crate) store: Name,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct SegmentJson {
    start: Number,
    end: Number,
    stride: Number,
    generation: Number,
    version: Number,
}

impl GrantedSegment {
    pub(crate) fn segment(&self) -> Segment {
        let SegmentJson { start, end, stride, generation, version } = self.segment;
        Segment { start: start.0, end: end.0, stride: stride.0, generation: generation.0, version: version.0 }
    }
}

/// Whether something was taken back.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Released {
    pub(crate) released: bool,
    pub(crate) store: Name,
}

/// A worker that was leased.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct GrantedLease {
    pub(crate) snowflake: String,
    lease: LeaseJson,
    pub(crate) store: Name,
}

#[derive(Clone, Debug, Deserialize)]
struct LeaseJson {
    worker: u32,
    grant_id: String,
    not_before_ms: Number,
    valid_until_ms: Number,
}

impl GrantedLease {
    /// None where it is not one.
    pub(crate) fn lease(&self) -> Option<Lease> {
        let LeaseJson { worker, grant_id, not_before_ms, valid_until_ms } = &self.lease;
        let is_name = grant_id.len() == 32 && grant_id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let grant_id = GrantId(is_name.then(|| u128::from_str_radix(grant_id, 16).ok()).flatten()?);
        let lease =
            Lease { worker: *worker, grant_id, not_before_ms: not_before_ms.0, valid_until_ms: valid_until_ms.0 };
        (lease.not_before_ms <= lease.valid_until_ms).then_some(lease)
    }
}

/// A tag that was opened.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct OpenedTag {
    pub(crate) tag: TagJson,
    pub(crate) store: Name,
}

/// What is bound of a format.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct BoundFormat {
    pub(crate) bound: Option<Number>,
    pub(crate) store: Name,
}

/// A page of tags.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct TagPage {
    pub(crate) tags: Vec<TagJson>,
}

/// A tag as the store keeps it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct TagJson {
    tag: String,
    #[serde(default)]
    sub: Option<String>,
    mode: String,
    start: Number,
    step: StepJson,
    refill: RefillJson,
    watermark: Number,
    version: Number,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(tag = "policy", rename_all = "kebab-case")]
enum StepJson {
    Fixed { step: Number },
    Adaptive { initial: Number, min: Number, max: Number, grow_below_ms: Number, shrink_above_ms: Number },
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(tag = "policy", rename_all = "kebab-case")]
enum RefillJson {
    ShareConsumed { percent: u8 },
    Remaining { count: Number },
}

impl TagJson {
    /// The record.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when it is none: this client is older than the server, say.
    pub(crate) fn record(self) -> Result<TagRecord, StoreError> {
        let mode = Mode::named(&self.mode);
        let mode = mode.ok_or_else(|| {
            let what =
                format!("the server has {:?} in the mode {:?}, which this program does not know", self.tag, self.mode);
            StoreError::corrupt(what)
        })?;
        let step = match self.step {
            StepJson::Fixed { step } => StepPolicy::Fixed { step: step.0 },
            StepJson::Adaptive { initial, min, max, grow_below_ms, shrink_above_ms } => {
                StepPolicy::Adaptive(AdaptiveStep {
                    initial: initial.0,
                    min: min.0,
                    max: max.0,
                    grow_below_ms: grow_below_ms.0,
                    shrink_above_ms: shrink_above_ms.0,
                })
            }
        };
        let refill = match self.refill {
            RefillJson::ShareConsumed { percent } => RefillPolicy::ShareConsumed { percent },
            RefillJson::Remaining { count } => RefillPolicy::Remaining { count: count.0 },
        };
        let tag = match &self.sub {
            Some(sub) => sub_tag(&self.tag, sub)?,
            None => self.tag,
        };
        let options = TagOptions { start: self.start.0, step, refill, mode };
        Ok(TagRecord { tag, options, watermark: self.watermark.0, version: self.version.0 })
    }
}

/// Why a server granted nothing that may be used.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: StoreError,
    /// Another server may do better.
    pub(crate) is_servers: bool,
}

impl Failure {
    /// Of this server: the next one is asked, if nothing can have been granted.
    pub(crate) fn of_server(error: StoreError) -> Self {
        Self { error, is_servers: true }
    }

    /// Of the request: all servers would answer the same.
    pub(crate) fn of_caller(error: StoreError) -> Self {
        Self { error, is_servers: false }
    }

    pub(crate) fn with_source(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { error: self.error.with_source(source), ..self }
    }
}

/// A problem document (RFC 9457), as far as it is of use here.
#[derive(Clone, Debug, Deserialize)]
struct Document {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    detail: String,
    #[serde(default)]
    retry_after_ms: Option<Number>,
    #[serde(default)]
    tag: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    snowflake: Option<String>,
    #[serde(default)]
    sub: Option<String>,
    #[serde(default)]
    tags_max: Option<u64>,
    #[serde(default)]
    worker: Option<u32>,
    #[serde(default)]
    workers: Option<u64>,
    #[serde(default)]
    until_ms: Option<Number>,
    #[serde(default)]
    holder_ms: Option<Number>,
    #[serde(default)]
    store_ms: Option<Number>,
    #[serde(default)]
    max_skew_ms: Option<Number>,
    #[serde(default)]
    bound: Option<String>,
    #[serde(default)]
    offered: Option<String>,
}

/// What an answer that is not a success proves; none where it proves nothing, since a server of another kind wrote it,
/// or since this one does not know.
///
/// A problem is one of this server's about this request: the caller has checked the request's id.
pub(crate) fn problem(at: &str, status: u16, body: &[u8]) -> Option<Failure> {
    let document: Document = serde_json::from_slice(body).ok()?;
    let kind = document.kind.strip_prefix("urn:unalike:problem:")?;
    let what = || format!("{at}: {}", document.detail);
    let number = |number: Option<Number>| number.map_or(0, |number| number.0);
    let name = |name: Option<&String>| match (name, &document.sub) {
        (Some(tag), Some(sub)) => sub_tag(tag, sub).unwrap_or_else(|_| tag.clone()),
        (tag, _) => tag.cloned().unwrap_or_default(),
    };
    let tag = || name(document.tag.as_ref().or(document.name.as_ref()));
    let namespace = || document.snowflake.clone().unwrap_or_default();
    Some(match kind {
        "outcome-unknown" | "timeout" => Failure::of_server(StoreError::outcome_unknown(what())),
        // Nothing was granted, and another server may be better off.
        "store-unavailable" | "closing" | "connections-max" | "head-timeout" => {
            Failure::of_server(StoreError::unavailable(what()))
        }
        // Another server counts for itself, and would give what this one is told not to.
        "quota-reached" => Failure::of_caller(StoreError::unavailable(what())),
        "ceiling-reached" => Failure::of_caller(StoreError::CeilingReached {
            tag: tag(),
            retry_after_ms: number(document.retry_after_ms).max(1),
            source: None,
        }),
        "quarantined" => {
            Failure::of_caller(StoreError::Quarantined { namespace: namespace(), until_ms: number(document.until_ms) })
        }
        "workers-exhausted" => Failure::of_caller(StoreError::WorkersExhausted {
            namespace: namespace(),
            workers: document.workers.unwrap_or_default(),
            free_at_ms: number(document.until_ms),
        }),
        "lease-lost" => Failure::of_caller(StoreError::LeaseLost {
            namespace: namespace(),
            worker: document.worker.unwrap_or_default(),
        }),
        "clock-wrong" => Failure::of_caller(match document.store_ms {
            Some(store_ms) => StoreError::ClockSkew {
                holder_ms: number(document.holder_ms),
                store_ms: store_ms.0,
                max_skew_ms: number(document.max_skew_ms),
            },
            None => StoreError::unavailable(what()),
        }),
        "layout-mismatch" | "layout-refused" => Failure::of_caller(match (document.bound, document.offered) {
            (Some(bound), Some(offered)) => {
                StoreError::LayoutMismatch { namespace: document.snowflake.unwrap_or_default(), bound, offered }
            }
            _ => StoreError::refused(format!("{at}: {}", document.detail)),
        }),
        "tag-unknown" => Failure::of_caller(StoreError::tag_unknown(&tag())),
        "tag-exists" => Failure::of_caller(StoreError::TagExists { tag: tag() }),
        "tag-invalid" => Failure::of_caller(StoreError::TagInvalid { tag: tag(), reason: document.detail }),
        "tag-limit" => {
            Failure::of_caller(StoreError::TagLimit { tag: tag(), tags_max: document.tags_max.unwrap_or_default() })
        }
        "exhausted" => Failure::of_caller(StoreError::exhausted(&tag())),
        "store-corrupt" => Failure::of_caller(StoreError::corrupt(what())),
        "route-unknown" => Failure::of_caller(StoreError::refused(format!(
            "{}, as releases before this one say: update the servers before the programs that use them",
            what()
        ))),
        // The server says what is wrong with the request, or that its store refuses, before anything is granted.
        "store-refused" | "leases-missing" => Failure::of_caller(StoreError::refused(what())),
        _ if (400..500).contains(&status) => Failure::of_caller(StoreError::refused(what())),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_to_grant_nothing_counts_as_that() {
        let of = |status: u16, kind: &str| {
            let body = format!(r#"{{"type":"urn:unalike:problem:{kind}","detail":"so","tag":"order"}}"#);
            problem("asking", status, body.as_bytes()).map(|failure| failure.error)
        };
        for (status, kind) in [(503, "outcome-unknown"), (503, "timeout")] {
            assert!(of(status, kind).unwrap().may_have_granted(), "{kind}");
        }
        for (status, kind) in [(503, "store-unavailable"), (410, "exhausted"), (404, "tag-unknown"), (403, "forbidden")]
        {
            assert!(!of(status, kind).unwrap().may_have_granted(), "{kind}");
        }
        assert!(of(429, "quota-reached").unwrap().is_retryable(), "a quota fills again");
        for (status, kind) in [(500, "internal"), (503, "rebuilt"), (502, "of a later version")] {
            assert!(of(status, kind).is_none(), "{kind}");
        }
        for body in [&b"<html>"[..], b"", b"{}", br#"{"type":"about:blank"}"#] {
            assert!(problem("asking", 503, body).is_none());
        }
    }

    #[test]
    fn a_server_of_an_older_release_is_told_apart() {
        let body = br#"{"type":"urn:unalike:problem:route-unknown","detail":"there is no route /v1/x"}"#;
        let Failure { error, is_servers } = problem("asking", 404, body).unwrap();
        let said = "asking: there is no route /v1/x, as releases before this one say: update the servers";
        assert!(error.to_string().contains(said) && !error.is_retryable() && !is_servers, "{error}");
    }

    #[test]
    fn numbers_are_exact() {
        let number = |text: &str| serde_json::from_str::<Number>(text).map(|number| number.0).ok();
        assert_eq!(number("\"18446744073709551615\""), Some(u64::MAX));
        for text in ["1", "1.0", "\"1.0\"", "\"-1\"", "\"+1\"", "\"01\"", "\"\"", "\"18446744073709551616\"", "null"] {
            assert_eq!(number(text), None, "{text}");
        }
    }
}
