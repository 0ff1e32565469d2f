//! A store that is an object of the program's.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tokio::sync::oneshot;
use tokio::time::timeout;
use unalike::storage::{Segment, SegmentStore, StoreError, StoreIdentity, TagOptions, TagRecord, TailRelease, lock};
use unalike::{RefillPolicy, StepPolicy};

use crate::ending::Inside;
use crate::{OptionParts, SegmentParts, option_parts, tag_options};

/// After how long an answer is given up.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// A store of the program's own behind an `unalike._plain.Asked`, whose values are plain.
pub(crate) struct OwnStore {
    asked: Arc<Py<PyAny>>,
}

impl OwnStore {
    pub(crate) fn new(asked: Py<PyAny>) -> Self {
        Self { asked: Arc::new(asked) }
    }

    /// Asks on a thread of Python's. It may wait there by any means, and ends with the interpreter as all of its
    /// threads do: one of Rust's would take the process with it.
    async fn ask<T, A>(&self, what: &'static str, arguments: A) -> Result<T, StoreError>
    where
        T: for<'a, 'py> FromPyObject<'a, 'py> + Send + 'static,
        A: for<'py> IntoPyObject<'py, Output = Bound<'py, PyTuple>> + Send + 'static,
    {
        let (answers, answer) = oneshot::channel();
        let read = move |brought: Result<Bound<'_, PyAny>, StoreError>| {
            let read = brought.and_then(|brought| {
                brought
                    .extract()
                    .map_err(|_| StoreError::outcome_unknown(format!("{what} brought what it cannot bring")))
            });
            // Whoever waited may have given up: what was granted is nobody's.
            let _ = answers.send(read);
        };
        let asked = Arc::clone(&self.asked);
        let start = move || {
            let _inside = Inside::begin();
            Python::try_attach(|py| started(py, &asked, Answer(Mutex::new(Some(Box::new(read)))), what, arguments));
        };
        std::thread::Builder::new()
            .name("unalike-own".to_owned())
            .spawn(start)
            .map_err(|error| StoreError::unavailable("no thread could be started to ask it").with_source(error))?;
        let lost = |what: String| Err(StoreError::outcome_unknown(what));
        match timeout(ANSWER_MAX, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => lost(format!("{what} has ended without an answer")),
            Err(_) => lost(format!("{what} brought no answer within {} s", ANSWER_MAX.as_secs())),
        }
    }
}

fn started<A>(py: Python<'_>, asked: &Py<PyAny>, answer: Answer, what: &str, arguments: A)
where
    A: for<'py> IntoPyObject<'py, Output = Bound<'py, PyTuple>>,
{
    let start = |answer: &Py<Answer>| {
        let arguments = arguments.into_pyobject(py).map_err(Into::<PyErr>::into)?;
        asked.call_method1(py, "start", (answer, what, arguments))
    };
    let Ok(answer) = Py::new(py, answer) else { return };
    if let Err(error) = start(&answer) {
        // Where threads are greenlets it was asked by this call, and may have granted.
        answer.get().end(Err(StoreError::outcome_unknown(format!("no thread of the program could ask it: {error}"))));
    }
}

type Read = Box<dyn FnOnce(Result<Bound<'_, PyAny>, StoreError>) + Send>;

/// Where Python says what a store answered.
#[pyclass(frozen, module = "unalike._native")]
pub(crate) struct Answer(Mutex<Option<Read>>);

#[pymethods]
impl Answer {
    fn brought(&self, value: Bound<'_, PyAny>) {
        self.end(Ok(value));
    }

    fn failed(&self, kind: &str, tag: &str, message: String) {
        self.end(Err(StoreError::reported(kind, tag, message)));
    }
}

impl Answer {
    fn end(&self, brought: Result<Bound<'_, PyAny>, StoreError>) {
        let read = lock(&self.0).take();
        if let Some(read) = read {
            read(brought);
        }
    }
}

fn record(tag: &str, (options, watermark): (OptionParts, u64)) -> Result<TagRecord, StoreError> {
    let options = tag_options(options).map_err(|failure| StoreError::refused(failure.message))?;
    // Versions come with grants alone.
    Ok(TagRecord { tag: tag.to_owned(), options, watermark, version: 0 })
}

fn unable(what: &str) -> StoreError {
    StoreError::refused(format!("a store of the program's own {what}: ask the store itself"))
}

#[async_trait]
impl SegmentStore for OwnStore {
    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        let granted: SegmentParts = self.ask("allocate", (tag.to_owned(), count, at_least)).await?;
        let (start, end, stride, generation, version) = granted;
        Ok(Segment { start, end, stride, generation, version })
    }

    async fn release(&self, tag: &str, TailRelease { start, version }: TailRelease) -> Result<bool, StoreError> {
        self.ask("release", (tag.to_owned(), start, version)).await
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        record(tag, self.ask("open_tag", (tag.to_owned(),)).await?)
    }

    /// Opens it: the port of Python's stores has no other way to look at a tag.
    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.open_tag(tag).await
    }

    async fn create_tag(&self, tag: &str, options: &TagOptions) -> Result<TagRecord, StoreError> {
        record(tag, self.ask("create_tag", (tag.to_owned(), option_parts(options))).await?)
    }

    async fn change_tag(&self, _: &str, _: StepPolicy, _: RefillPolicy) -> Result<TagRecord, StoreError> {
        Err(unable("changes no tag for others"))
    }

    async fn raise_tag(&self, _: &str, _: u64) -> Result<TagRecord, StoreError> {
        Err(unable("raises no tag for others"))
    }

    async fn tags(&self, _: Option<&str>, _: u32) -> Result<Vec<TagRecord>, StoreError> {
        Err(unable("lists no tags for others"))
    }

    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        let identity: Option<String> = self.ask("identity", ()).await?;
        identity.map(|identity| identity.parse()).transpose()
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.identity().await.map(drop)
    }

    async fn leave_leases(&self, namespace: &str) -> Result<(), StoreError> {
        self.ask::<Option<bool>, _>("leave_leases", (namespace.to_owned(),)).await.map(drop)
    }
}
