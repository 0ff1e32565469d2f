//! A store that is an object of the program's.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use napi::Status;
use napi::bindgen_prelude::{BigInt, FnArgs, Function};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi_derive::napi;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use unalike::storage::{Segment, SegmentStore, StoreError, StoreIdentity, TagOptions, TagRecord, TailRelease, lock};
use unalike::{RefillPolicy, StepPolicy};

use crate::parts::{OptionParts, RecordParts, SegmentParts};

/// After how long an answer is given up.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// What a program's function is called with.
pub(crate) type Asked = FnArgs<(Answer, Question)>;

/// A function that keeps no process alive. Its thread has ended where this refuses a call.
type Ask = ThreadsafeFunction<Asked, (), Asked, Status, false, true>;

type Told = oneshot::Sender<Result<Brought, StoreError>>;

/// A store of the program's own behind a function, which is called on the thread that gave it, and says later what it
/// brought.
pub(crate) struct OwnStore {
    ask: Ask,
    /// Closed once that thread has ended.
    ended: watch::Receiver<()>,
}

impl OwnStore {
    pub(crate) fn new(ask: &Function<'_, Asked, ()>) -> napi::Result<Self> {
        let (ending, ended) = watch::channel(());
        let ask = ask.build_threadsafe_function().weak::<true>().build_callback(move |call| {
            // It is dropped with this function, when the thread ends. What is waiting for the thread then is leaked.
            let _ = &ending;
            Ok(call.value)
        })?;
        Ok(Self { ask, ended })
    }

    async fn ask(&self, question: Question) -> Result<Brought, StoreError> {
        let what = question.what.clone();
        let (tell, told) = oneshot::channel();
        let answer = Answer { tag: question.tag.clone(), told: Mutex::new(Some(tell)) };
        let mut ended = self.ended.clone();
        if self.ask.call((answer, question).into(), ThreadsafeFunctionCallMode::NonBlocking) != Status::Ok {
            return Err(StoreError::unavailable(format!("the thread that has it has ended: {what} was not asked")));
        }
        let answer = async {
            tokio::select! {
                biased;
                told = told => told.ok(),
                _ = ended.changed() => None,
            }
        };
        let lost = |what: String| Err(StoreError::outcome_unknown(what));
        match timeout(ANSWER_MAX, answer).await {
            Ok(Some(answer)) => answer,
            Ok(None) => lost(format!("{what} has ended without an answer")),
            Err(_) => lost(format!("{what} brought no answer within {} s", ANSWER_MAX.as_secs())),
        }
    }
}

/// What a store is asked, and with what: the parts that its method takes.
#[napi(object, object_from_js = false)]
#[derive(Default)]
pub struct Question {
    /// The method.
    pub what: String,
    /// The tag, or the namespace.
    pub tag: String,
    /// How many numbers.
    pub count: Option<BigInt>,
    /// The least of them.
    pub at_least: Option<BigInt>,
    /// The first number that was not used.
    pub start: Option<BigInt>,
    /// Of the tag's row.
    pub version: Option<BigInt>,
    /// What the tag is created with.
    pub options: Option<OptionParts>,
}

impl Question {
    fn of(what: &str, tag: &str) -> Self {
        Self { what: what.to_owned(), tag: tag.to_owned(), ..Self::default() }
    }
}

/// What a store answered: the part that its method brings.
#[napi(object, object_to_js = false)]
pub struct Brought {
    /// Numbers.
    pub segment: Option<SegmentParts>,
    /// A tag.
    pub record: Option<RecordParts>,
    /// Whether it did.
    pub flag: Option<bool>,
    /// A name.
    pub name: Option<String>,
}

/// Where the program says what a store answered: once. Whoever asked may have given up: what was granted is nobody's.
#[napi]
pub struct Answer {
    tag: String,
    told: Mutex<Option<Told>>,
}

#[napi]
impl Answer {
    /// It did what it was asked for.
    #[napi]
    pub fn brought(&self, brought: Brought) {
        self.end(Ok(brought));
    }

    /// It failed, as a `StoreError` says it.
    #[napi]
    pub fn failed(&self, kind: String, message: String) {
        self.end(Err(StoreError::reported(&kind, &self.tag, message)));
    }

    fn end(&self, answer: Result<Brought, StoreError>) {
        if let Some(told) = lock(&self.told).take() {
            let _ = told.send(answer);
        }
    }
}

fn record(tag: &str, brought: Brought) -> Result<TagRecord, StoreError> {
    let record = brought.record.ok_or_else(|| nothing("no tag"))?;
    record.of(tag).map_err(|failure| StoreError::refused(failure.message))
}

fn nothing(what: &str) -> StoreError {
    StoreError::outcome_unknown(format!("it answered, and brought {what}"))
}

fn unable(what: &str) -> StoreError {
    StoreError::refused(format!("a store of the program's own {what}: ask the store itself"))
}

#[async_trait]
impl SegmentStore for OwnStore {
    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        let (count, at_least) = (Some(count.into()), Some(at_least.into()));
        let brought = self.ask(Question { count, at_least, ..Question::of("allocate", tag) }).await?;
        let segment = brought.segment.ok_or_else(|| nothing("no numbers"))?;
        segment.try_into().map_err(|failure: unalike_bindings::Failure| StoreError::refused(failure.message))
    }

    async fn release(&self, tag: &str, TailRelease { start, version }: TailRelease) -> Result<bool, StoreError> {
        let (start, version) = (Some(start.into()), Some(version.into()));
        let brought = self.ask(Question { start, version, ..Question::of("release", tag) }).await?;
        brought.flag.ok_or_else(|| nothing("neither true nor false"))
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        record(tag, self.ask(Question::of("openTag", tag)).await?)
    }

    /// Opens it: the port of JavaScript's stores has no other way to look at a tag.
    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.open_tag(tag).await
    }

    async fn create_tag(&self, tag: &str, options: &TagOptions) -> Result<TagRecord, StoreError> {
        let options = Some((*options).into());
        record(tag, self.ask(Question { options, ..Question::of("createTag", tag) }).await?)
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
        let brought = self.ask(Question::of("identity", "")).await?;
        brought.name.map(|identity| identity.parse()).transpose()
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.identity().await.map(drop)
    }

    async fn leave_leases(&self, namespace: &str) -> Result<(), StoreError> {
        self.ask(Question::of("leaveLeases", namespace)).await.map(drop)
    }
}
