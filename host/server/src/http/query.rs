//! Parameters of a query, or members of a body in their place: each known, each given once at most.

use std::fmt;
use std::str::FromStr;

use axum::body::{Bytes, HttpBody as _};
use axum::extract::{FromRequest, Query, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode, Uri};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;

use crate::service::problem::{Kind, Problem};
use crate::words::decimal;
use crate::words::shortened;

/// The parameters of a request.
pub(super) struct Parameters {
    /// Those that were not taken yet.
    left: Vec<(String, String)>,
    /// The names of those that were.
    taken: Vec<&'static str>,
}

impl Parameters {
    /// Those of a request.
    pub(super) fn of(uri: &Uri) -> Result<Self, Problem> {
        if uri.query().is_none() {
            return Ok(Self { left: Vec::new(), taken: Vec::new() });
        }
        let Query(pairs) = Query::try_from_uri(uri)
            .map_err(|error| Problem::new(Kind::QueryInvalid, format!("the query cannot be read: {error}")))?;
        Ok(Self { left: pairs, taken: Vec::new() })
    }

    /// Takes the value of this parameter out.
    pub(super) fn take(&mut self, name: &'static str) -> Option<String> {
        let at = self.left.iter().position(|(known, _)| known == name)?;
        self.taken.push(name);
        Some(self.left.swap_remove(at).1)
    }

    /// Takes out a number.
    pub(super) fn take_number<T: FromStr>(&mut self, name: &'static str) -> Result<Option<T>, String> {
        self.take(name).map(|text| decimal(&text).ok_or(text)).transpose()
    }

    /// Takes out how many ids are wanted, 1 to this many; 1 if nothing is said.
    pub(super) fn take_count(&mut self, count_max: u32) -> Result<u32, Problem> {
        let count_invalid = |text: String| {
            let text = shortened(&text);
            let detail = format!("the count is {text:?}, it must be a whole number from 1 to {count_max}");
            Problem::new(Kind::CountInvalid, detail).with("count", text).with("count_max", count_max)
        };
        let count = self.take_number("count").map_err(count_invalid)?.unwrap_or(1);
        if count == 0 || count > count_max { Err(count_invalid(count.to_string())) } else { Ok(count) }
    }

    /// Refuses what nobody took: a parameter that is unknown, or given twice, or does not go with the others.
    pub(super) fn finish(self, known: &str) -> Result<(), Problem> {
        let Some((name, value)) = self.left.into_iter().next() else { return Ok(()) };
        let is_twice = self.taken.contains(&name.as_str());
        let is_known = known.split([' ', ',']).any(|known| known == name);
        let (name, value) = (shortened(&name), shortened(&value));
        let detail = match (is_twice, is_known) {
            (true, _) => format!("the parameter {name:?} is given twice: give it once"),
            (false, true) => format!("the parameter {name:?} does not go with the others; this route knows {known}"),
            (false, false) => format!("the parameter {name:?} is unknown; this route knows {known}"),
        };
        Err(invalid(&name, &value, detail))
    }
}

/// Those of the query, and of a body of JSON: `{"count":5}` says what `?count=5` says, and only one of them may.
impl<S: Send + Sync> FromRequest<S> for Parameters {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let mut parameters = Self::of(request.uri())?;
        if request.body().is_end_stream() {
            return Ok(parameters);
        }
        let media = request.headers().get(CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or_default();
        let media = media.split(';').next().unwrap_or_default().trim();
        let is_json = media.eq_ignore_ascii_case("application/json");
        let has_body = *request.method() != Method::GET;
        let body = Bytes::from_request(request, state)
            .await
            .map_err(|rejection| Problem::body_refused(rejection.status(), rejection.body_text()))?;
        if body.is_empty() {
            return Ok(parameters);
        }
        let refused = |status, detail: &str| Err(Problem::body_refused(status, detail.to_owned()));
        if !has_body {
            return refused(StatusCode::BAD_REQUEST, "a GET is read without a body: write ?count=5, or POST the body");
        }
        if !is_json {
            let detail = "a body here is JSON such as {\"count\":5}, with the header Content-Type: application/json; or write \
                          ?count=5 in the URL";
            return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail);
        }
        // What clients that were generated for Go send where nothing is given.
        if body.trim_ascii() == b"null" {
            return Ok(parameters);
        }
        let members: Members = serde_json::from_slice(&body).map_err(|error| {
            let detail = format!("the body must be an object such as {{\"count\":5}}: {error}");
            Problem::body_refused(StatusCode::BAD_REQUEST, detail)
        })?;
        parameters.left.extend(members.0);
        Ok(parameters)
    }
}

/// The members of an object, each as a query would have it; also those that come twice.
struct Members(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    let value = match value {
                        Value::String(text) => text,
                        Value::Number(number) => number.to_string(),
                        _ => return Err(A::Error::custom(format!("{name:?} must be a string or a number"))),
                    };
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

/// A parameter with a value that cannot be.
pub(super) fn invalid(name: &str, value: &str, detail: impl Into<String>) -> Problem {
    Problem::new(Kind::QueryInvalid, detail).with("parameter", name).with("value", shortened(value))
}
