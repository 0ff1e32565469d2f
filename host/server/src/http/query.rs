//! Query parameters: each known, each given once at most.

use std::str::FromStr;

use axum::extract::Query;
use axum::http::Uri;

use crate::layouts::shortened;
use crate::problem::{Kind, Problem};
use crate::tags::decimal;

/// The parameters of a request that were not taken yet.
pub(super) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Those of a request.
    pub(super) fn of(uri: &Uri) -> Result<Self, Problem> {
        if uri.query().is_none() {
            return Ok(Self(Vec::new()));
        }
        let Query(pairs) = Query::try_from_uri(uri)
            .map_err(|error| Problem::new(Kind::QueryInvalid, format!("the query cannot be read: {error}")))?;
        Ok(Self(pairs))
    }

    /// Takes the value of this parameter out.
    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.swap_remove(at).1)
    }

    /// Takes out a number.
    pub(super) fn take_number<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, String> {
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

    /// Refuses what nobody took: a parameter that is unknown, or given twice.
    pub(super) fn finish(self, known: &str) -> Result<(), Problem> {
        let Some((name, value)) = self.0.into_iter().next() else { return Ok(()) };
        let (name, value) = (shortened(&name), shortened(&value));
        let detail = format!("the parameter {name:?} is unknown or given twice; this route knows {known}");
        Err(invalid(&name, &value, detail))
    }
}

/// A parameter with a value that cannot be.
pub(super) fn invalid(name: &str, value: &str, detail: impl Into<String>) -> Problem {
    Problem::new(Kind::QueryInvalid, detail).with("parameter", name).with("value", shortened(value))
}
