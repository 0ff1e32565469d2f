//! What the service says when it cannot do what was asked, and the one place where the errors of library and store
//! become such.
//!
//! A problem says what the caller can do about it. What only the operator can act on (paths, statements, drivers'
//! words) goes to the log and never into an answer.

use std::io;
use std::sync::OnceLock;

use metrics::counter;
use serde_json::{Map, Value};
use strum::VariantArray;
use unalike::storage::{StoreError, split_tag};
use unalike::{Clock, Error, ErrorKind, SystemClock, WriteError};

use crate::config::formats::Refusal;
use crate::config::layouts::DecodeError;
use crate::quotas::{OverQuota, QuotaOf};
use crate::service::tags::{RAISE_MAX, Unconfirmed};
use crate::service::troubles::{Weight, note};
use crate::words::{rfc3339, shortened, with_causes};

/// How many requests were refused for a quota.
pub(crate) const QUOTAS_REFUSED: &str = "unalike_quotas_refused_total";

/// What kind of problem it is. `urn:unalike:problem:` and the name make the stable `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
pub(crate) enum Kind {
    /// No such route.
    RouteUnknown,
    /// The route exists, with other methods.
    MethodNotAllowed,
    /// There is no token in the request, or one that is not known.
    Unauthorized,
    /// The token is not good for this.
    Forbidden,
    /// What came cannot be read as a request of HTTP.
    RequestInvalid,
    /// The request has no `Host`, more than one, or one that is not a name.
    HostInvalid,
    /// This server does not go by the name in `Host`.
    HostUnknown,
    /// The request comes from a page that may not do this.
    OriginRefused,
    /// The URL is longer than the limit.
    UrlTooLong,
    /// The head of the request is larger than the limit.
    HeadTooLarge,
    /// The head of a request did not come in time.
    HeadTimeout,
    /// As many connections are open as may be.
    ConnectionsMax,
    /// A query parameter is unknown, given twice, or has a value that cannot be read.
    QueryInvalid,
    /// The count is not a number from 1 to the limit.
    CountInvalid,
    /// The body cannot be read, or a field in it is unknown or has a bad value.
    BodyInvalid,
    /// The body is larger than the limit.
    BodyTooLarge,
    /// The body is not declared to be JSON.
    MediaTypeUnsupported,
    /// The tag's name, or one of its options, is out of range.
    TagInvalid,
    /// The tag does not exist, and is not created on first use.
    TagUnknown,
    /// The tag exists already.
    TagExists,
    /// As many tags exist as the store may have.
    TagLimit,
    /// As many sub-keys of the tag exist as it may have.
    SubKeyLimit,
    /// The tag is raised so far that it was asked to be confirmed.
    RaiseUnconfirmed,
    /// No snowflake of this name is configured.
    SnowflakeUnknown,
    /// There is no store that leases workers to snowflakes.
    LeasesMissing,
    /// No layout has this name, or what is written out is none.
    LayoutUnknown,
    /// Not an id, or no id of the layout.
    IdInvalid,
    /// No format has this name, or the ids cannot be shown in it.
    FormatInvalid,
    /// A shard key that is missing, not wanted or no number.
    ShardKeyInvalid,
    /// Ids may be greater than JavaScript's numbers are exact.
    NumberUnsafe,
    /// Every number of the tag has been granted, or the timestamps of the layout have run out. For ever.
    Exhausted,
    /// The quota of a token, tag or snowflake is used up for now.
    QuotaReached,
    /// The numbers up to the tag's ceiling are handed out, and the durable store has not raised it yet.
    CeilingReached,
    /// Every worker of the snowflake's namespace is under a lease.
    WorkersExhausted,
    /// The lease of the snowflake's worker has ended, and the store has not granted more time.
    LeaseEnded,
    /// The lease store may have forgotten leases, and grants none until they have all ended.
    Quarantined,
    /// The server's clock went back, is before the layout's epoch, or disagrees with the store's.
    ClockWrong,
    /// The store did not answer, or could not do it now.
    StoreUnavailable,
    /// The store may have granted what was asked for; whatever it was, nobody uses it.
    OutcomeUnknown,
    /// The lease is not the worker's newest one, or was ended.
    LeaseLost,
    /// The snowflake of the configuration has another layout than the host that wants a worker.
    LayoutRefused,
    /// The store has the ids in another format.
    FormatBound,
    /// The store granted what it had granted before; the grant was not used. An incident.
    GrantRefused,
    /// Ids are on their way, and the request took longer than it may.
    Timeout,
    /// The server is ending.
    Closing,
    /// The component was rebuilt after a fault.
    Rebuilt,
    /// The store is bound to another layout under this name.
    LayoutMismatch,
    /// The store's data is damaged.
    StoreCorrupt,
    /// The store refused.
    StoreRefused,
    /// A bug, or a broken installation.
    Internal,
}

impl Kind {
    /// The stable `type`.
    pub(crate) fn urn(self) -> String {
        format!("urn:unalike:problem:{}", self.describe().0)
    }

    /// Its name: the last part of the `type`.
    pub(crate) const fn name(self) -> &'static str {
        self.describe().0
    }

    /// The title.
    pub(crate) const fn title(self) -> &'static str {
        self.describe().1
    }

    /// Name and title: the whole table.
    const fn describe(self) -> (&'static str, &'static str) {
        match self {
            Self::RouteUnknown => ("route-unknown", "No such route"),
            Self::MethodNotAllowed => ("method-not-allowed", "The route has other methods"),
            Self::Unauthorized => ("unauthorized", "A token is needed"),
            Self::Forbidden => ("forbidden", "The token is not good for this"),
            Self::RequestInvalid => ("request-invalid", "The request cannot be read"),
            Self::HostInvalid => ("host-invalid", "The Host header is missing or not valid"),
            Self::HostUnknown => ("host-unknown", "The server does not go by this name"),
            Self::OriginRefused => ("origin-refused", "Pages of this origin may not do this"),
            Self::HeadTooLarge => ("head-too-large", "The head of the request is too large"),
            Self::UrlTooLong => ("url-too-long", "The URL is too long"),
            Self::HeadTimeout => ("head-timeout", "The request came too slowly"),
            Self::ConnectionsMax => ("connections-max", "Too many connections are open"),
            Self::QueryInvalid => ("query-invalid", "A query parameter is not valid"),
            Self::CountInvalid => ("count-invalid", "The count is out of range"),
            Self::BodyInvalid => ("body-invalid", "The body is not valid"),
            Self::BodyTooLarge => ("body-too-large", "The body is too large"),
            Self::MediaTypeUnsupported => ("media-type-unsupported", "The body must be JSON"),
            Self::TagInvalid => ("tag-invalid", "The tag or an option of it is not valid"),
            Self::TagUnknown => ("tag-unknown", "The tag is unknown"),
            Self::TagExists => ("tag-exists", "The tag exists already"),
            Self::TagLimit => ("tag-limit", "No more tags may be created"),
            Self::RaiseUnconfirmed => ("raise-unconfirmed", "A raise by so much must be confirmed"),
            Self::SubKeyLimit => ("sub-key-limit", "No more sub-keys of the tag may be created"),
            Self::SnowflakeUnknown => ("snowflake-unknown", "The snowflake is unknown"),
            Self::LeasesMissing => ("leases-missing", "There is no store for leases"),
            Self::LayoutUnknown => ("layout-unknown", "The layout is unknown"),
            Self::IdInvalid => ("id-invalid", "The id is not valid"),
            Self::FormatInvalid => ("format-invalid", "Ids cannot be shown in this format"),
            Self::ShardKeyInvalid => ("shard-key-invalid", "The shard key is not valid"),
            Self::NumberUnsafe => ("number-unsafe", "Ids cannot be given as numbers"),
            Self::Exhausted => ("exhausted", "There are no more ids"),
            Self::QuotaReached => ("quota-reached", "A quota is used up for now"),
            Self::CeilingReached => ("ceiling-reached", "The tag's ceiling is reached"),
            Self::WorkersExhausted => ("workers-exhausted", "All worker ids are in use"),
            Self::LeaseEnded => ("lease-ended", "The lease of the snowflake's worker has ended"),
            Self::Quarantined => ("quarantined", "The lease store grants nothing yet"),
            Self::ClockWrong => ("clock-wrong", "A clock is wrong"),
            Self::StoreUnavailable => ("store-unavailable", "The store is unavailable"),
            Self::OutcomeUnknown => ("outcome-unknown", "The store's answer was lost"),
            Self::LeaseLost => ("lease-lost", "The worker is no longer leased to this holder"),
            Self::LayoutRefused => ("layout-refused", "The snowflake has another layout"),
            Self::FormatBound => ("format-bound", "The store has another format"),
            Self::GrantRefused => ("grant-refused", "The store granted what was granted before"),
            Self::Timeout => ("timeout", "It took too long"),
            Self::Closing => ("closing", "The server is ending"),
            Self::Rebuilt => ("rebuilt", "Try again"),
            Self::LayoutMismatch => ("layout-mismatch", "The snowflake is bound to another layout"),
            Self::StoreCorrupt => ("store-corrupt", "The store is damaged"),
            Self::StoreRefused => ("store-refused", "The store refused"),
            Self::Internal => ("internal", "An internal error"),
        }
    }
}

/// Which of the stores an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// That of the sequences.
    Sequences,
    /// That of the leases.
    Leases,
}

/// The kinds of the stores of this process, for callers, who learn nothing else about them: `Redis, backed by MySQL`.
#[derive(Debug)]
pub(crate) struct StoreKinds {
    pub(crate) sequences: String,
    /// None: no store leases workers.
    pub(crate) leases: Option<String>,
}

static STORE_KINDS: OnceLock<StoreKinds> = OnceLock::new();

impl StoreKinds {
    /// From now on, problems name these.
    pub(crate) fn tell(self) {
        // A process opens its stores once.
        let _ = STORE_KINDS.set(self);
    }
}

impl Of {
    /// The subject of a sentence.
    fn subject(self) -> String {
        let kinds = STORE_KINDS.get();
        match self {
            Self::Sequences => kinds.map_or("the store".to_owned(), |kinds| format!("the store ({})", kinds.sequences)),
            Self::Leases => match kinds.and_then(|kinds| kinds.leases.as_deref()) {
                Some(kind) => format!("the lease store ({kind})"),
                None => "the lease store".to_owned(),
            },
        }
    }
}

/// The error of the operating system that is the cause of another one.
pub(crate) fn io_cause(error: &(dyn std::error::Error + 'static)) -> Option<io::ErrorKind> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        cause = error.source();
    }
    None
}

/// What a store does, in words that tell nothing of where it is.
fn predicate(error: &StoreError) -> &'static str {
    use io::ErrorKind as Io;
    match io_cause(error) {
        Some(Io::ConnectionRefused) => "refuses connections",
        Some(Io::ConnectionReset | Io::ConnectionAborted | Io::BrokenPipe | Io::UnexpectedEof | Io::NotConnected) => {
            "broke off the connection"
        }
        Some(Io::HostUnreachable | Io::NetworkUnreachable | Io::NetworkDown | Io::AddrNotAvailable) => {
            "cannot be reached"
        }
        Some(Io::TimedOut) => "did not answer in time",
        Some(Io::StorageFull) => "has no space left on its disk",
        _ => "is down, cannot write, or did not answer in time",
    }
}

/// An error as a caller is told of it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{detail}")]
pub(crate) struct Problem {
    kind: Kind,
    detail: String,
    /// The offending values, each under its own name.
    members: Map<String, Value>,
    retry_after_ms: Option<u64>,
}

impl Problem {
    /// A problem of this kind, explained.
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), members: Map::new(), retry_after_ms: None }
    }

    /// The same in other words.
    pub(crate) fn saying(self, detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), ..self }
    }

    /// Its kind.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// What happened, in words for the caller.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// The values that it is about, each under its own name.
    pub(crate) fn members(&self) -> &Map<String, Value> {
        &self.members
    }

    /// After how many milliseconds a repetition may succeed.
    pub(crate) fn retry_after_ms(&self) -> Option<u64> {
        self.retry_after_ms
    }

    /// With one more clause.
    pub(crate) fn because(mut self, clause: &str) -> Self {
        self.detail = format!("{}; {clause}", self.detail);
        self
    }

    /// With a value that the problem is about.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    /// With a name that the problem is about, and its sub-key apart.
    fn about(self, member: &str, name: &str) -> Self {
        match split_tag(name) {
            (tag, Some(sub)) => self.with(member, tag).with("sub", sub),
            (tag, None) => self.with(member, tag),
        }
    }

    /// With the number of milliseconds after which a repetition may succeed.
    pub(crate) fn retry_after(mut self, wait_ms: u64) -> Self {
        self.retry_after_ms = Some(wait_ms);
        self
    }

    /// The server is ending.
    pub(crate) fn closing() -> Self {
        Self::new(Kind::Closing, "the server is ending").retry_after(1_000)
    }

    /// The answer was there, and could not be written.
    pub(crate) fn unwritten(error: &dyn std::error::Error) -> Self {
        tracing::error!(%error, "an answer could not be written");
        Self::new(Kind::Internal, "the answer could not be written")
    }

    /// An error of the operator's or of the program's own: explained in the log, and not here.
    fn withheld(kind: Kind, detail: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        note(kind.name(), Weight::Lasting, with_causes(error));
        Self::new(kind, detail)
    }

    /// The same for what may pass.
    fn unavailable(kind: Kind, detail: &str, wait_ms: u64, error: &(dyn std::error::Error + 'static)) -> Self {
        note(kind.name(), Weight::Passing, with_causes(error));
        Self::new(kind, detail).retry_after(wait_ms)
    }
}

impl From<OverQuota> for Problem {
    fn from(over: OverQuota) -> Self {
        let detail = over.to_string();
        match over {
            OverQuota::UsedUp { of: QuotaOf { whose, name, ids_per_s }, wait_ms } => {
                counter!(QUOTAS_REFUSED, "of" => whose).increment(1);
                let error = format!("the quota of the {whose} {name:?}, {ids_per_s} ids per second, is used up");
                note(Kind::QuotaReached.name(), Weight::Passing, error);
                let problem = Self::new(Kind::QuotaReached, detail).with(whose, shortened(&name));
                let problem = problem.with("ids_per_s", ids_per_s).with("retry_after_ms", wait_ms.to_string());
                problem.retry_after(wait_ms)
            }
            OverQuota::TooMany { of: QuotaOf { whose, name, ids_per_s }, count, max } => {
                let problem = Self::new(Kind::CountInvalid, detail).with(whose, shortened(&name));
                problem.with("ids_per_s", ids_per_s).with("count", count.to_string()).with("count_max", max)
            }
        }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::of(&error, Of::Sequences)
    }
}

impl Problem {
    /// An error of the library about ids that come from this store.
    pub(crate) fn of(error: &Error, of: Of) -> Self {
        let wait_ms = error.retry_after_ms().unwrap_or(1_000);
        match error.kind() {
            ErrorKind::Store { source, .. } => Self::of_store(source, of),
            ErrorKind::Timeout { name, waited_ms, source } => {
                if let Some(source) = source {
                    return Self::of_store(source, of).about("name", name);
                }
                let detail = format!("{} did not answer within {waited_ms} ms", of.subject());
                Self::unavailable(Kind::StoreUnavailable, &detail, wait_ms, error).about("name", name)
            }
            ErrorKind::LeaseEnded { name, worker, ended_ms, source } => {
                let problem = match source.as_deref() {
                    None
                    | Some(
                        StoreError::Unavailable { .. }
                        | StoreError::OutcomeUnknown { .. }
                        | StoreError::LeaseLost { .. },
                    ) => {
                        let ended = rfc3339(*ended_ms);
                        let detail = format!(
                            "the lease of worker {worker} of {name:?} ended at {ended}, and the lease store has granted no other"
                        );
                        Self::unavailable(Kind::LeaseEnded, &detail, wait_ms, error)
                    }
                    // What it says is more.
                    Some(source) => Self::of_store(source, Of::Leases),
                };
                problem.with("snowflake", name.as_str()).with("worker", *worker).with("lease_ended_ms", *ended_ms)
            }
            ErrorKind::NotYet { .. } => Self::unavailable(Kind::Timeout, &error.to_string(), wait_ms, error),
            ErrorKind::ClockMovedBack { .. } | ErrorKind::ClockBeforeEpoch { .. } => {
                Self::unavailable(Kind::ClockWrong, &error.to_string(), wait_ms, error)
            }
            ErrorKind::GrantRefused { .. } => {
                note(Kind::GrantRefused.name(), Weight::Lasting, with_causes(error));
                Self::new(Kind::GrantRefused, "the grant was not used: look at the store").retry_after(wait_ms)
            }
            ErrorKind::Exhausted { name, .. } | ErrorKind::IdMaxReached { name, .. } => {
                Self::new(Kind::Exhausted, error.to_string()).about("name", name)
            }
            ErrorKind::Format { name, source } => {
                let kind = match source {
                    WriteError::Id { .. } => Kind::Exhausted,
                    WriteError::ShardKeyMissing | WriteError::ShardKeyUnwanted => Kind::ShardKeyInvalid,
                    WriteError::Time => Kind::ClockWrong,
                };
                Self::new(kind, error.to_string()).about("name", name)
            }
            ErrorKind::FormatMisfit { name, .. } => {
                Self::new(Kind::FormatInvalid, error.to_string()).about("name", name)
            }
            ErrorKind::Closed { .. } => Self::closing(),
            ErrorKind::Rebuilt { .. } => {
                Self::unavailable(Kind::Rebuilt, "the component was rebuilt after a fault", wait_ms, error)
            }
            ErrorKind::CountZero => Self::new(Kind::CountInvalid, error.to_string()).with("count", 0),
            ErrorKind::NameInvalid { name } => Self::new(Kind::TagInvalid, error.to_string()).about("tag", name),
            _ => Self::withheld(Kind::Internal, "an internal error; the server's log has more", error),
        }
    }

    /// An error of this store, for a host that goes on with what it is granted: it is told whether something may have
    /// been granted, and the figures that it decides by.
    pub(crate) fn of_grant(error: &StoreError, of: Of) -> Self {
        let ms = |number: &u64| Value::from(number.to_string());
        match error {
            StoreError::OutcomeUnknown { .. } => {
                let detail = format!("{} {}: what it may have granted is not used", of.subject(), predicate(error));
                Self::unavailable(Kind::OutcomeUnknown, &detail, 1_000, error)
            }
            StoreError::LeaseLost { namespace, worker } => Self::new(Kind::LeaseLost, error.to_string())
                .with("snowflake", namespace.as_str())
                .with("worker", *worker),
            StoreError::LayoutMismatch { namespace, bound, offered } => {
                Self::new(Kind::LayoutMismatch, error.to_string())
                    .with("snowflake", namespace.as_str())
                    .with("bound", bound.as_str())
                    .with("offered", offered.as_str())
            }
            StoreError::FormatBound { owner, what, .. } => {
                let detail = format!(
                    "the store has {owner} in another format, and two ids can look the same: {what}. Show its ids in the \
                     format from before, or use another name"
                );
                Self::withheld(Kind::FormatBound, &detail, error)
            }
            StoreError::CeilingReached { retry_after_ms, .. } => {
                Self::of_store(error, of).with("retry_after_ms", ms(retry_after_ms))
            }
            StoreError::WorkersExhausted { workers, free_at_ms, .. } => {
                Self::of_store(error, of).with("workers", *workers).with("until_ms", ms(free_at_ms))
            }
            StoreError::Quarantined { until_ms, .. } => Self::of_store(error, of).with("until_ms", ms(until_ms)),
            StoreError::ClockSkew { holder_ms, store_ms, max_skew_ms } => {
                let (holder, store) = (rfc3339(*holder_ms), rfc3339(*store_ms));
                let detail = format!(
                    "the holder's clock (now_ms) is {holder} and the store's is {store}, and {max_skew_ms} ms apart is the limit: \
                     set the holder's clock"
                );
                Self::unavailable(Kind::ClockWrong, &detail, 1_000, error)
                    .with("holder_ms", ms(holder_ms))
                    .with("store_ms", ms(store_ms))
                    .with("max_skew_ms", ms(max_skew_ms))
            }
            error => Self::of_store(error, of),
        }
    }

    /// What a host asked for lies too far above all that was granted.
    pub(crate) fn raise_by_host(unconfirmed: &Unconfirmed) -> Self {
        let detail = format!(
            "{}: at_least may be {RAISE_MAX} above them with this token; `unalike tags raise` raises a tag further, and so does a \
             token of the scope admin",
            unconfirmed.how_far()
        );
        Self::of_raise(Kind::Forbidden, detail, unconfirmed)
    }

    fn of_raise(kind: Kind, detail: String, unconfirmed: &Unconfirmed) -> Self {
        Self::new(kind, detail)
            .with("watermark", unconfirmed.watermark.to_string())
            .with("skipped", unconfirmed.skipped.to_string())
    }

    /// An error of this store.
    pub(crate) fn of_store(error: &StoreError, of: Of) -> Self {
        let public = |kind| Self::new(kind, error.to_string());
        match error {
            StoreError::TagUnknown { tag, .. } => public(Kind::TagUnknown).about("tag", tag),
            StoreError::TagExists { tag } => public(Kind::TagExists).about("tag", tag),
            StoreError::TagInvalid { tag, .. } => public(Kind::TagInvalid).about("tag", tag),
            StoreError::TagLimit { tag, tags_max } => {
                public(Kind::TagLimit).about("tag", tag).with("tags_max", *tags_max)
            }
            StoreError::Exhausted { tag } | StoreError::TimestampsEnded { tag, .. } => {
                public(Kind::Exhausted).about("name", tag)
            }
            StoreError::ClockBehind { tag, retry_after_ms, .. } => {
                Self::unavailable(Kind::StoreUnavailable, &error.to_string(), *retry_after_ms, error).about("name", tag)
            }
            StoreError::CeilingReached { tag, retry_after_ms, .. } => {
                Self::unavailable(Kind::CeilingReached, &error.to_string(), *retry_after_ms, error).about("name", tag)
            }
            StoreError::WorkersExhausted { namespace, free_at_ms, .. } => {
                let wait_ms = free_at_ms.saturating_sub(SystemClock.now_ms());
                Self::unavailable(Kind::WorkersExhausted, &error.to_string(), wait_ms, error)
                    .with("snowflake", namespace.as_str())
            }
            StoreError::Quarantined { namespace, until_ms } => {
                let wait_ms = until_ms.saturating_sub(SystemClock.now_ms());
                Self::unavailable(Kind::Quarantined, &error.to_string(), wait_ms, error)
                    .with("snowflake", namespace.as_str())
            }
            StoreError::ClockSkew { .. } => Self::unavailable(Kind::ClockWrong, &error.to_string(), 1_000, error),
            StoreError::Unavailable { .. } | StoreError::OutcomeUnknown { .. } => {
                let detail = format!("{} {}: try again; the server's log says more", of.subject(), predicate(error));
                Self::unavailable(Kind::StoreUnavailable, &detail, 1_000, error)
            }
            StoreError::LeaseLost { .. } => {
                let detail = "the worker is no longer leased to this server: try again";
                Self::unavailable(Kind::StoreUnavailable, detail, 1_000, error)
            }
            StoreError::LayoutMismatch { namespace, .. } => {
                let detail = "the store keeps the snowflake with another layout than this server is configured with";
                Self::withheld(Kind::LayoutMismatch, detail, error).with("snowflake", namespace.as_str())
            }
            StoreError::FormatBound { owner, .. } => {
                let detail =
                    format!("the store has {owner} in another format than this server; the server's log has more");
                Self::withheld(Kind::FormatBound, &detail, error)
            }
            StoreError::Corrupt { .. } => {
                Self::withheld(Kind::StoreCorrupt, "the store's data cannot be used; the server's log has more", error)
            }
            _ => Self::withheld(Kind::StoreRefused, "the store refused; the server's log has more", error),
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::of_store(&error, Of::Sequences)
    }
}

impl From<Unconfirmed> for Problem {
    fn from(unconfirmed: Unconfirmed) -> Self {
        let detail = format!("{unconfirmed}: send \"confirm\": true beside it, if that is meant");
        Self::of_raise(Kind::RaiseUnconfirmed, detail, &unconfirmed)
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let public = |kind| Self::new(kind, refusal.to_string());
        match &refusal {
            Refusal::FormatUnknown { format } => public(Kind::FormatInvalid).with("format", format.as_str()),
            Refusal::TemplateMissing { name } => public(Kind::FormatInvalid).about("name", name),
            Refusal::TemplateOnly { name, format } => {
                public(Kind::FormatInvalid).about("name", name).with("format", *format)
            }
            Refusal::SnowflakeUnknown { name } => public(Kind::SnowflakeUnknown).with("snowflake", name.as_str()),
            Refusal::FormatAlone => public(Kind::FormatInvalid).with("format", "template"),
            Refusal::ShardKeyMissing { name } | Refusal::ShardKeyUnwanted { name } => {
                public(Kind::ShardKeyInvalid).about("name", name)
            }
            Refusal::ShardKeyText { text } => public(Kind::ShardKeyInvalid).with("shard_key", text.as_str()),
            Refusal::NumberUnsafe { name, .. } => public(Kind::NumberUnsafe).about("name", name),
            Refusal::Text { text, .. } => public(Kind::IdInvalid).with("id", text.as_str()),
        }
    }
}

impl From<DecodeError> for Problem {
    fn from(error: DecodeError) -> Self {
        match &error {
            DecodeError::LayoutUnknown { name, .. } => {
                Self::new(Kind::LayoutUnknown, error.to_string()).with("layout", name.as_str())
            }
            DecodeError::LayoutInvalid { text: layout, .. }
            | DecodeError::EpochYear { text: layout, .. }
            | DecodeError::ForReading { name: layout } => {
                Self::new(Kind::LayoutUnknown, error.to_string()).with("layout", layout.as_str())
            }
            DecodeError::NotAnId { text } | DecodeError::NoShape { text } => {
                Self::new(Kind::IdInvalid, error.to_string()).with("id", text.as_str())
            }
            DecodeError::OutOfRange { id, layout, .. } | DecodeError::NotOfScheme { id, layout, .. } => {
                Self::new(Kind::IdInvalid, error.to_string()).with("id", id.to_string()).with("layout", layout.as_str())
            }
        }
    }
}
