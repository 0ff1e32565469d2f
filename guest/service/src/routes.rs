//! What a request gets, whatever brought it here.

use alloc::string::String;
use alloc::vec::Vec;

use crate::answer::{Ids, SAFE_MAX};
use crate::bindings::unalike::ids::types::Run;
use crate::bindings::wasi::http::types::{Fields, Method};
use crate::bindings::wasi::random::insecure;
use crate::problem::Problem;
use crate::request::{Form, Route, Wanted, is_request_id, prefers_text};

/// A longer URL is not read, as at the server.
const URL_BYTES_MAX: usize = 8 * 1024;

/// What makes the ids.
pub(crate) trait Source {
    /// Ids of a tag or of a sub-key: `count` of them, in runs that ascend.
    async fn sequence(&self, name: &str, count: u32) -> Result<Vec<Run>, Problem>;

    /// Ids of a snowflake: `count` of them, ascending.
    async fn snowflake(&self, name: &str, count: u32) -> Result<Vec<u64>, Problem>;

    /// Whether numbers are granted.
    async fn check(&self) -> Result<(), Problem>;
}

/// A request without its body.
pub(crate) struct Head<'a> {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) url: &'a str,
    pub(crate) headers: &'a Fields,
}

/// What goes out.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    media: &'static str,
    request_id: String,
    retry_after_s: Option<String>,
    allow: Option<&'static str>,
}

/// What is wrong, and which methods there are if it is the method.
struct Refused {
    problem: Problem,
    allow: Option<&'static str>,
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self { problem, allow: None }
    }
}

impl Answer {
    /// The answer to a request that may ask for so many ids.
    pub(crate) async fn to(request: &Head<'_>, count_max: u32, source: &impl Source) -> Self {
        let request_id = request_id(request.headers);
        match answer(request, count_max, source).await {
            Ok((media, body)) => Self { status: 200, body, media, request_id, retry_after_s: None, allow: None },
            Err(Refused { problem, allow }) => Self {
                status: problem.status(),
                body: problem.document(&request_id),
                media: "application/problem+json",
                request_id,
                retry_after_s: problem.retry_after_s(),
                allow,
            },
        }
    }

    /// Its headers.
    pub(crate) fn headers(&self) -> Fields {
        let headers = Fields::new();
        let length = crate::answer::number(u64::try_from(self.body.len()).unwrap_or(u64::MAX));
        let mut pairs = alloc::vec![
            ("content-type", self.media),
            ("content-length", length.as_str()),
            // A cache would give an id to two callers.
            ("cache-control", "no-store"),
            ("x-request-id", self.request_id.as_str()),
        ];
        pairs.extend(self.retry_after_s.as_deref().map(|wait_s| ("retry-after", wait_s)));
        pairs.extend(self.allow.map(|allow| ("allow", allow)));
        for (name, value) in pairs {
            // All of them are well formed; a host that forbids one does without it.
            let _ = headers.append(name, value.as_bytes());
        }
        headers
    }
}

async fn answer(request: &Head<'_>, count_max: u32, source: &impl Source) -> Result<(&'static str, Vec<u8>), Refused> {
    let Head { method, url, headers } = request;
    if url.len() > URL_BYTES_MAX {
        return Err(Problem::url_too_long(url.len(), URL_BYTES_MAX).into());
    }
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let route = Route::of(path)?;
    // Without HEAD: an id would be lost that nobody sees.
    let (is_allowed, allow) = match route {
        Route::Sequence(_) | Route::Snowflake(_) => (matches!(method, Method::Get | Method::Post), "GET, POST"),
        // Load balancers ask by OPTIONS, too.
        Route::Live | Route::Ready => {
            (matches!(method, Method::Get | Method::Head | Method::Options), "GET, HEAD, OPTIONS")
        }
    };
    if !is_allowed {
        let advice = if allow == "GET, POST" { "GET or POST" } else { "GET or OPTIONS" };
        let problem = Problem::method_not_allowed(name_of(method), advice);
        return Err(Refused { problem, allow: Some(allow) });
    }
    match route {
        Route::Live => Ok(("application/json", b"{\"status\":\"live\"}".to_vec())),
        Route::Ready => {
            source.check().await?;
            Ok(("application/json", b"{\"status\":\"ready\"}".to_vec()))
        }
        Route::Sequence(tag) => {
            let wanted = wanted(headers, query, count_max)?;
            let runs = source.sequence(&wanted.counted_under(&tag)?, wanted.count).await?;
            let ids = runs.iter().flat_map(|run| {
                // The last id of a run is in range.
                (0..run.count).map(|place| run.first + u64::from(place) * run.stride)
            });
            Ok(written("tag", &tag, &wanted, ids)?)
        }
        Route::Snowflake(name) => {
            let wanted = wanted(headers, query, count_max)?;
            if let Some(sub) = &wanted.sub {
                return Err(Problem::sub_unwanted(sub).into());
            }
            let ids = source.snowflake(&name, wanted.count).await?;
            Ok(written("snowflake", &name, &wanted, ids.into_iter())?)
        }
    }
}

fn wanted(headers: &Fields, query: &str, count_max: u32) -> Result<Wanted, Problem> {
    if has_body(headers) {
        return Err(Problem::body_unwanted());
    }
    let accepts = headers.get("accept");
    Wanted::of(query, count_max, prefers_text(accepts.iter().map(Vec::as_slice)))
}

fn written(
    label: &str,
    name: &str,
    wanted: &Wanted,
    ids: impl Iterator<Item = u64>,
) -> Result<(&'static str, Vec<u8>), Problem> {
    let mut written = Ids::begin(label, name, wanted.sub.as_deref(), wanted.form);
    for id in ids {
        if wanted.form == Form::Numbers && id > SAFE_MAX {
            return Err(Problem::number_unsafe(name));
        }
        written.add(id);
    }
    Ok(written.finish())
}

fn has_body(headers: &Fields) -> bool {
    let lengths = headers.get("content-length");
    headers.has("transfer-encoding") || lengths.iter().any(|length| length.iter().any(|digit| *digit != b'0'))
}

fn name_of(method: &Method) -> &str {
    match method {
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Delete => "DELETE",
        Method::Connect => "CONNECT",
        Method::Options => "OPTIONS",
        Method::Trace => "TRACE",
        Method::Patch => "PATCH",
        Method::Other(name) => name,
    }
}

/// The id that came with a request, if it is well formed, else a new one.
fn request_id(headers: &Fields) -> String {
    let given = headers.get("x-request-id").into_iter().next().filter(|id| is_request_id(id));
    given.and_then(|id| String::from_utf8(id).ok()).unwrap_or_else(|| {
        let bytes = insecure::get_insecure_random_u64().to_be_bytes();
        let digits = bytes.into_iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
        digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).collect()
    })
}
