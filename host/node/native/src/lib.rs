//! `unalike.node`: the stores of the Rust host, for the npm package.
//!
//! Each call returns a promise at once, and asks on the library's own threads: no thread of Node waits. The promise
//! brings two values, of which one is null: why nothing was brought, or what was. It is never rejected. While one is
//! open, Node does not end; an open store by itself keeps nothing alive.

mod own;
mod parts;

use std::future::Future;
use std::sync::Arc;

use napi::Env;
use napi::bindgen_prelude::{BigInt, Function, Object, ToNapiValue};
use napi_derive::napi;
use unalike::storage::{
    FormatBinding, FormatOwner, LeaseAcquire, LeaseExtend, LeaseStore, SegmentStore, StoreError, TailRelease,
    leases_left,
};
use unalike_bindings::warnings::{self as kept, Warning};
use unalike_bindings::{Failure, HostOptions};

use crate::own::{Asked, OwnStore};
use crate::parts::{
    AcquireParts, ExtendParts, Failed, KeyParts, LeaseParts, OptionParts, RecordParts, SegmentParts, binding_number,
    format_part, grant_id, number,
};

/// Tells a promise what its call brings.
type Done<T> = Box<dyn FnOnce(Result<T, Failure>) + Send>;

/// The stores of a program, open in one thread of it.
#[napi]
pub struct Stores(unalike_bindings::Stores);

#[napi]
impl Stores {
    /// Opens them, by the options of `HostOptions` in JSON.
    #[napi]
    pub fn open<'env>(env: &'env Env, options: String) -> napi::Result<Object<'env>> {
        promise(env, |done| match HostOptions::read(&options) {
            Ok(options) => unalike_bindings::Stores::open_then(&options, |opened| done(opened.map(Self))),
            Err(failure) => done(Err(failure)),
        })
    }

    /// The same with a store in Redis above one of the program's own. `ask` is called with each question to that, and
    /// with where its answer is told; it throws nothing. It keeps nothing alive: what waits for its answers does.
    #[napi]
    pub fn open_above<'env>(
        env: &'env Env,
        options: String,
        ask: Function<'_, Asked, ()>,
    ) -> napi::Result<Object<'env>> {
        let own = Arc::new(OwnStore::new(&ask)?);
        promise(env, |done| match HostOptions::read_above(&options) {
            Ok(options) => unalike_bindings::Stores::open_above_then(own, &options, |opened| done(opened.map(Self))),
            Err(failure) => done(Err(failure)),
        })
    }

    /// Where the store of the sequences is, for messages.
    #[napi]
    pub fn address(&self) -> Option<String> {
        self.0.address()
    }

    /// Grants numbers.
    #[napi]
    pub fn allocate<'env>(
        &self,
        env: &'env Env,
        tag: String,
        count: BigInt,
        at_least: BigInt,
    ) -> napi::Result<Object<'env>> {
        self.ask(env, || {
            let (count, at_least) = (number("the count", &count)?, number("the least number", &at_least)?);
            Ok(move |store: Arc<dyn SegmentStore>| async move {
                store.allocate(&tag, count, at_least).await.map(SegmentParts::from)
            })
        })
    }

    /// Takes numbers back.
    #[napi]
    pub fn release<'env>(
        &self,
        env: &'env Env,
        tag: String,
        start: BigInt,
        version: BigInt,
    ) -> napi::Result<Object<'env>> {
        self.ask(env, || {
            let tail = TailRelease { start: number("the start", &start)?, version: number("the version", &version)? };
            Ok(move |store: Arc<dyn SegmentStore>| async move { store.release(&tag, tail).await })
        })
    }

    /// The tag as the store keeps it.
    #[napi]
    pub fn open_tag<'env>(&self, env: &'env Env, tag: String) -> napi::Result<Object<'env>> {
        self.ask(env, || {
            Ok(move |store: Arc<dyn SegmentStore>| async move { store.open_tag(&tag).await.map(RecordParts::from) })
        })
    }

    /// Creates a tag.
    #[napi]
    pub fn create_tag<'env>(&self, env: &'env Env, tag: String, options: OptionParts) -> napi::Result<Object<'env>> {
        self.ask(env, || {
            let options = options.try_into()?;
            Ok(move |store: Arc<dyn SegmentStore>| async move {
                store.create_tag(&tag, &options).await.map(RecordParts::from)
            })
        })
    }

    /// The name of the store's data.
    #[napi]
    pub fn identity<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        self.ask(env, || {
            Ok(move |store: Arc<dyn SegmentStore>| async move {
                Ok(store.identity().await?.map(|identity| identity.to_string()))
            })
        })
    }

    /// Looks up what is bound of a format: of its shape, or of the key with this number that permutes so many bits.
    /// Binds `first` where nothing is.
    #[napi]
    pub fn bind_format<'env>(
        &self,
        env: &'env Env,
        of_snowflake: bool,
        name: String,
        key: Option<KeyParts>,
        first: Option<BigInt>,
    ) -> napi::Result<Object<'env>> {
        self.ask(env, || {
            let part = format_part(key)?;
            let first = first.as_ref().map(binding_number).transpose()?;
            let binding = first.map_or(FormatBinding::Look, FormatBinding::First);
            Ok(move |store: Arc<dyn SegmentStore>| async move {
                let owner = if of_snowflake { FormatOwner::Snowflake(&name) } else { FormatOwner::Tag(&name) };
                store.bind_format(owner, part, binding).await
            })
        })
    }

    /// Notes that a Redis keeps the leases of a namespace, unless this store does.
    #[napi]
    pub fn leave_leases<'env>(&self, env: &'env Env, namespace: String) -> napi::Result<Object<'env>> {
        self.ask(env, || {
            self.0.check_leaving()?;
            Ok(move |store: Arc<dyn SegmentStore>| async move {
                let left = store.leave_leases(&namespace).await;
                leases_left(left, |time| async move { store.tag(&time).await }).await
            })
        })
    }

    /// Grants a worker.
    #[napi]
    pub fn acquire<'env>(&self, env: &'env Env, request: AcquireParts) -> napi::Result<Object<'env>> {
        self.ask_leases(env, || {
            let acquire = LeaseAcquire::try_from(request)?;
            Ok(move |leases: Arc<dyn LeaseStore>| async move { leases.acquire(&acquire).await.map(LeaseParts::from) })
        })
    }

    /// Moves the end of a lease.
    #[napi]
    pub fn extend<'env>(&self, env: &'env Env, request: ExtendParts) -> napi::Result<Object<'env>> {
        self.ask_leases(env, || {
            let extend = LeaseExtend::try_from(request)?;
            Ok(move |leases: Arc<dyn LeaseStore>| async move { leases.extend(&extend).await.map(LeaseParts::from) })
        })
    }

    /// Ends a lease.
    #[napi]
    pub fn release_lease<'env>(
        &self,
        env: &'env Env,
        namespace: String,
        worker: BigInt,
        grant: BigInt,
        end_ms: BigInt,
    ) -> napi::Result<Object<'env>> {
        self.ask_leases(env, || {
            let (worker, grant) = (number("the worker", &worker)?, grant_id(&grant)?);
            let end_ms = number("the end", &end_ms)?;
            Ok(move |leases: Arc<dyn LeaseStore>| async move {
                leases.release(&namespace, worker, grant, end_ms).await
            })
        })
    }

    /// The name of the data of the leases.
    #[napi]
    pub fn lease_identity<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        self.ask_leases(env, || {
            Ok(move |leases: Arc<dyn LeaseStore>| async move {
                Ok(leases.identity().await?.map(|identity| identity.to_string()))
            })
        })
    }

    /// Closes the connections.
    #[napi]
    pub fn close<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        promise(env, |done| self.0.close_then(done))
    }

    fn ask<'env, T, Question, Answer>(
        &self,
        env: &'env Env,
        read: impl FnOnce() -> Result<Question, Failure>,
    ) -> napi::Result<Object<'env>>
    where
        T: ToNapiValue + Send + 'static,
        Question: FnOnce(Arc<dyn SegmentStore>) -> Answer,
        Answer: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        promise(env, |done| match read() {
            Ok(question) => self.0.ask_then(question, done),
            Err(failure) => done(Err(failure)),
        })
    }

    fn ask_leases<'env, T, Question, Answer>(
        &self,
        env: &'env Env,
        read: impl FnOnce() -> Result<Question, Failure>,
    ) -> napi::Result<Object<'env>>
    where
        T: ToNapiValue + Send + 'static,
        Question: FnOnce(Arc<dyn LeaseStore>) -> Answer,
        Answer: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        promise(env, |done| match read() {
            Ok(question) => self.0.ask_leases_then(question, done),
            Err(failure) => done(Err(failure)),
        })
    }
}

/// What a store warned of.
#[napi(object, object_from_js = false)]
pub struct Warned {
    /// In words.
    pub message: String,
    /// Whether it is news, of which nobody needs to be warned.
    pub is_news: bool,
}

/// Keeps what the stores warn of from now on, and their news where somebody reads those. Called before any is opened.
#[napi]
pub fn keep(with_news: bool) {
    if with_news {
        kept::keep_news();
    } else {
        kept::keep();
    }
}

/// What was kept since the last call.
#[napi]
pub fn warnings() -> Vec<Warned> {
    kept::taken().into_iter().map(|Warning { message, is_news, .. }| Warned { message, is_news }).collect()
}

/// A promise of what `start` has told.
fn promise<'env, T: ToNapiValue + Send + 'static>(
    env: &'env Env,
    start: impl FnOnce(Done<T>),
) -> napi::Result<Object<'env>> {
    let (deferred, promise) = env.create_deferred::<(Option<Failed>, Option<T>), _>()?;
    start(Box::new(move |answer| {
        let brought = match answer {
            Ok(value) => (None, Some(value)),
            Err(failure) => (Some(Failed::from(failure)), None),
        };
        deferred.resolve(move |_| Ok(brought));
    }));
    Ok(promise)
}
