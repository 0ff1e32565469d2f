//! `unalike:ids/async-sequences`: other components ask, and each call is what a request is elsewhere.

use alloc::string::String;
use alloc::vec::Vec;

use crate::Component;
use crate::answer::number;
use crate::bindings::exports::unalike::ids::async_sequences::{Failure, Guest};
use crate::bindings::unalike::ids::types::Run;
use crate::problem::Problem;
use crate::tags;

/// The most ids of a call, which callers know from the interface.
const COUNT_MAX: u32 = 10_000;

impl Guest for Component {
    async fn next(tag: String) -> Result<u64, Failure> {
        match taken(&tag, 1).await?.as_slice() {
            [run, ..] => Ok(run.first),
            [] => Err(Problem::new("internal", "the component answered without an id").into()),
        }
    }

    async fn take(tag: String, count: u32) -> Result<Vec<Run>, Failure> {
        Ok(taken(&tag, count).await?)
    }
}

async fn taken(tag: &str, count: u32) -> Result<Vec<Run>, Problem> {
    tags::begin();
    if !unalike_core::is_tag(tag) {
        return Err(Problem::tag_invalid(tag));
    }
    if !(1..=COUNT_MAX).contains(&count) {
        return Err(Problem::count_invalid(&number(u64::from(count)), COUNT_MAX));
    }
    tags::take(tag, count).await
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let (problem, detail, retry_after_ms) = problem.into_parts();
        Self { problem: String::from(problem), detail, retry_after_ms }
    }
}
