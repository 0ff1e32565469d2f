//! `wasi:keyvalue` for components, in both drafts that hosts have: counters over the store of this process, or a store
//! that the host brings.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use thiserror::Error;
use unalike_storage::{ID_MAX, SegmentStore, StoreError, split_tag, validate_tag};
use wasmtime::component::{HasData, Linker, Resource, ResourceTable};

/// The names of the one bucket that [`SegmentCounters`] has.
const BUCKETS: [&str; 2] = ["", "default"];

/// A key is no longer than this, in bytes: a tag of unalike is, when each of its bytes is written as three.
const KEY_BYTES_MAX: usize = 1_024;

/// A value is no longer than this.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// How many buckets a component has open at a time.
const BUCKETS_OPEN_MAX: usize = 64;

/// How often a store that grants fewer numbers than it was asked for is asked again.
const TRIES: u32 = 4;

/// A key-value store for components: what `wasi:keyvalue` asks of it. [`SegmentCounters`] is one over a
/// [`SegmentStore`].
///
/// An implementation is shared by all instances. Requests that an instance no longer waits for run to their end.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::{Mutex, PoisonError};
/// use unalike::wasi::{KeyValue, KeyValueError};
///
/// #[derive(Default)]
/// struct Counters(Mutex<HashMap<String, i128>>);
///
/// #[async_trait::async_trait]
/// impl KeyValue for Counters {
///     async fn open(&self, bucket: &str) -> Result<(), KeyValueError> {
///         if bucket.is_empty() { Ok(()) } else { Err(KeyValueError::NoSuchStore) }
///     }
///
///     async fn get(&self, _bucket: &str, key: &str) -> Result<Option<Vec<u8>>, KeyValueError> {
///         let counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
///         Ok(counters.get(key).map(|number| number.to_string().into_bytes()))
///     }
///
///     async fn increment(&self, _bucket: &str, key: &str, delta: i128) -> Result<i128, KeyValueError> {
///         let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
///         let number = counters.entry(key.to_owned()).or_default();
///         *number += delta;
///         Ok(*number)
///     }
/// }
/// ```
#[async_trait]
pub trait KeyValue: Send + Sync + 'static {
    /// Whether there is a bucket of this name.
    ///
    /// # Errors
    /// [`KeyValueError::NoSuchStore`], and whatever the connection brings.
    async fn open(&self, bucket: &str) -> Result<(), KeyValueError>;

    /// The value of a key; none where there is no such key.
    ///
    /// # Errors
    /// Whatever the connection brings.
    async fn get(&self, bucket: &str, key: &str) -> Result<Option<Vec<u8>>, KeyValueError>;

    /// Adds to the number of a key in one step, and answers the new one; a key that is not there counts from 0. `delta`
    /// is in the range of the component's draft: a u64 or an i64.
    ///
    /// # Errors
    /// Whatever the connection brings. Except after [`KeyValueError::Denied`] nobody knows whether it was done.
    async fn increment(&self, bucket: &str, key: &str, delta: i128) -> Result<i128, KeyValueError>;

    /// Gives a key this value. Denied by default.
    ///
    /// # Errors
    /// [`KeyValueError::Denied`], and whatever the connection brings.
    async fn set(&self, _bucket: &str, key: &str, _value: &[u8]) -> Result<(), KeyValueError> {
        Err(KeyValueError::denied(format!("{key:?} is not set: this store has counters alone")))
    }

    /// Removes a key. Denied by default.
    ///
    /// # Errors
    /// [`KeyValueError::Denied`], and whatever the connection brings.
    async fn delete(&self, _bucket: &str, key: &str) -> Result<(), KeyValueError> {
        Err(KeyValueError::denied(format!("{key:?} is not removed: its numbers would come again")))
    }
}

/// Why a key-value store did not do what a component asked for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyValueError {
    /// There is no bucket of this name.
    #[error("there is no such bucket")]
    NoSuchStore,
    /// Nothing was done, and never will be. The component learns that it was denied; the reason is logged.
    #[error("denied: {reason}")]
    Denied {
        /// Why, in words.
        reason: String,
    },
    /// Anything else. The component is told so in these words.
    #[error("{what}")]
    Other {
        /// What happened, in words.
        what: String,
    },
}

impl KeyValueError {
    /// What happened, in words: [`KeyValueError::Other`].
    pub fn other(what: impl Into<String>) -> Self {
        Self::Other { what: what.into() }
    }

    /// Why nothing was done, in words: [`KeyValueError::Denied`].
    pub fn denied(reason: impl Into<String>) -> Self {
        Self::Denied { reason: reason.into() }
    }
}

/// Counters over a store of this process: what `ServiceBuilder::segments` gives a component as `wasi:keyvalue`.
///
/// There is one bucket, `default`, which has no name as well. A key is a tag, and its number the tag's watermark: an
/// increment is granted exactly `delta` numbers, and answers the last one. Reading a key answers the watermark. Nothing
/// sets a counter, removes it or lists them, and a `delta` below 1 is denied: a counter never goes back.
///
/// For the storage component of unalike, `unalike.ids.TAG` is the tag itself, so that numbers go on wherever they are
/// taken; `unalike.store` is the name of the store's data, and `unalike.mode.TAG` the tag's mode.
pub struct SegmentCounters(Arc<dyn SegmentStore>);

impl SegmentCounters {
    /// Over this store.
    #[must_use]
    pub fn new(store: Arc<dyn SegmentStore>) -> Self {
        Self(store)
    }

    async fn watermark(&self, tag: &str) -> Result<Option<Vec<u8>>, KeyValueError> {
        match self.0.tag(tag).await {
            Ok(record) => Ok(Some(record.watermark.to_string().into_bytes())),
            Err(StoreError::TagUnknown { .. }) => Ok(None),
            Err(error) => Err(told(&error)),
        }
    }
}

impl fmt::Debug for SegmentCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentCounters").finish_non_exhaustive()
    }
}

#[async_trait]
impl KeyValue for SegmentCounters {
    async fn open(&self, bucket: &str) -> Result<(), KeyValueError> {
        if BUCKETS.contains(&bucket) { Ok(()) } else { Err(KeyValueError::NoSuchStore) }
    }

    async fn get(&self, _bucket: &str, key: &str) -> Result<Option<Vec<u8>>, KeyValueError> {
        match Key::of(key)? {
            Key::Store => {
                let identity = self.0.identity().await.map_err(|error| told(&error))?;
                Ok(identity.map(|identity| identity.to_string().into_bytes()))
            }
            Key::Mode(tag) => match self.0.tag(&tag).await {
                Ok(record) => Ok(Some(record.options.mode.name().as_bytes().to_vec())),
                Err(StoreError::TagUnknown { .. }) => Ok(None),
                Err(error) => Err(told(&error)),
            },
            Key::Counter(tag) => self.watermark(&tag).await,
            Key::Other => Ok(None),
        }
    }

    async fn increment(&self, _bucket: &str, key: &str, delta: i128) -> Result<i128, KeyValueError> {
        let Key::Counter(tag) = Key::of(key)? else {
            return Err(KeyValueError::denied(format!("{key:?} is no counter")));
        };
        let count = u64::try_from(delta).ok().filter(|count| (1..=ID_MAX).contains(count));
        let Some(count) = count else {
            let reason = format!("a counter moves by 1 to 2^63 - 1 at a time, and not by {delta}");
            return Err(KeyValueError::denied(reason));
        };
        let not_counted = || {
            let why = "its numbers are every few of a set of stores, or begin again";
            KeyValueError::denied(format!("the tag {tag:?} is no counter: {why}"))
        };
        // Before anything is granted.
        if self.0.stripes() > 1 {
            return Err(not_counted());
        }
        let (mut start, mut end) = (0, 0);
        for _ in 0..TRIES {
            let granted = self.0.allocate(&tag, count - (end - start), 0).await;
            let segment = granted.map_err(|error| told(&error))?;
            if segment.stride != 1 || segment.generation != 0 {
                return Err(not_counted());
            }
            // Those before it go on in it, or are a gap.
            if segment.start != end {
                start = segment.start;
            }
            end = segment.end;
            if end - start == count {
                return Ok(i128::from(end) - 1);
            }
        }
        // Whoever asks for as many again would cost as many again.
        let reason = format!("{count} numbers of the tag {tag:?} are more than the store grants one after the other");
        Err(KeyValueError::denied(reason))
    }
}

/// What a key means.
#[derive(Debug, PartialEq, Eq)]
enum Key {
    Store,
    Mode(String),
    Counter(String),
    /// One of the storage component's, and nothing here.
    Other,
}

impl Key {
    fn of(key: &str) -> Result<Self, KeyValueError> {
        let tag = |written: &str| {
            let tag = unwritten(written).unwrap_or_else(|| key.to_owned());
            match validate_tag(&tag) {
                Ok(()) => Ok(tag),
                Err(error) => Err(KeyValueError::denied(error.to_string())),
            }
        };
        Ok(match key.strip_prefix("unalike.").and_then(|rest| rest.split_once('.')) {
            _ if key == "unalike.store" => Self::Store,
            _ if key == "unalike.refused" => Self::Other,
            Some(("ids", written)) => Self::Counter(tag(written)?),
            Some(("mode", written)) => Self::Mode(split_tag(&tag(written)?).0.to_owned()),
            Some(("seen" | "refused" | "claim", _)) => Self::Other,
            _ => Self::Counter(tag(key)?),
        })
    }
}

/// A tag, from how the storage component writes it in a key: `=` and two hexadecimal digits are a byte.
fn unwritten(written: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(written.len());
    let mut rest = written.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'=' => {
                let digits = [rest.next()?, rest.next()?];
                let is_byte = digits.iter().all(u8::is_ascii_hexdigit);
                u8::from_str_radix(std::str::from_utf8(&digits).ok().filter(|_| is_byte)?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// What a component is told, which learns nothing of paths and statements.
fn told(error: &StoreError) -> KeyValueError {
    if error.may_have_granted() {
        tracing::debug!(%error, "a component's increment may have been done");
        return KeyValueError::other("the store's answer was lost");
    }
    if error.is_retryable() {
        tracing::debug!(%error, "a component's key-value store is unavailable");
        return KeyValueError::other("the store is unavailable");
    }
    KeyValueError::denied(error.to_string())
}

/// A bucket that a component has open.
#[allow(unreachable_pub, reason = "generated code exports it again")]
pub struct Bucket {
    name: String,
}

/// A look at the store and the buckets of an instance.
pub(super) struct View<'a> {
    pub(super) table: &'a mut ResourceTable,
    pub(super) buckets: &'a mut Buckets,
}

/// The key-value store of an instance.
pub(super) struct Buckets {
    store: Option<Arc<dyn KeyValue>>,
    timeout: Duration,
    open: usize,
}

impl Buckets {
    pub(super) fn new(store: Option<Arc<dyn KeyValue>>, timeout: Duration) -> Self {
        Self { store, timeout, open: 0 }
    }
}

/// Adds the interfaces of both drafts to a linker, given how to come from a store's data to the view.
pub(super) fn add_to_linker<T: Send + 'static>(
    linker: &mut Linker<T>,
    view: fn(&mut T) -> View<'_>,
) -> wasmtime::Result<()> {
    draft::store::add_to_linker::<T, HasBuckets>(linker, view)?;
    draft::atomics::add_to_linker::<T, HasBuckets>(linker, view)?;
    draft2::store::add_to_linker::<T, HasBuckets>(linker, view)?;
    draft2::atomics::add_to_linker::<T, HasBuckets>(linker, view)
}

struct HasBuckets;

impl HasData for HasBuckets {
    type Data<'a> = View<'a>;
}

/// A request of a component: it goes on when nobody waits for it any more, and is given up in time.
async fn ask<T, F, A>(buckets: &Buckets, bucket: String, request: F) -> Result<T, KeyValueError>
where
    T: Send + 'static,
    F: FnOnce(Arc<dyn KeyValue>, String) -> A,
    A: Future<Output = Result<T, KeyValueError>> + Send + 'static,
{
    let store = buckets.store.clone().ok_or_else(|| KeyValueError::other("this host has no segment store"))?;
    let (request, timeout) = (request(store, bucket), buckets.timeout);
    let asked = tokio::spawn(async move { tokio::time::timeout(timeout, request).await });
    match asked.await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(KeyValueError::other("the store did not answer in time")),
        Err(_) => Err(KeyValueError::other("the request ended without an answer")),
    }
}

fn check_key(key: &str) -> Result<(), KeyValueError> {
    if key.len() <= KEY_BYTES_MAX {
        return Ok(());
    }
    let reason = format!("a key has {} bytes, {KEY_BYTES_MAX} at most are allowed", key.len());
    Err(KeyValueError::denied(reason))
}

impl View<'_> {
    fn bucket(&self, bucket: &Resource<Bucket>) -> wasmtime::Result<String> {
        Ok(self.table.get(bucket)?.name.clone())
    }

    async fn open(&mut self, name: String) -> wasmtime::Result<Result<Resource<Bucket>, KeyValueError>> {
        if self.buckets.open >= BUCKETS_OPEN_MAX {
            return Ok(Err(KeyValueError::other("the component has too many buckets open")));
        }
        if let Err(error) = check_key(&name) {
            return Ok(Err(error));
        }
        let opened = ask(self.buckets, name.clone(), |store, name| async move { store.open(&name).await }).await;
        if let Err(error) = opened {
            return Ok(Err(error));
        }
        let bucket = self.table.push(Bucket { name })?;
        self.buckets.open += 1;
        Ok(Ok(bucket))
    }

    async fn get(
        &mut self,
        bucket: &Resource<Bucket>,
        key: String,
    ) -> wasmtime::Result<Result<Option<Vec<u8>>, KeyValueError>> {
        let bucket = self.bucket(bucket)?;
        if let Err(error) = check_key(&key) {
            return Ok(Err(error));
        }
        Ok(ask(self.buckets, bucket, |store, bucket| async move { store.get(&bucket, &key).await }).await)
    }

    async fn set(
        &mut self,
        bucket: &Resource<Bucket>,
        key: String,
        value: Vec<u8>,
    ) -> wasmtime::Result<Result<(), KeyValueError>> {
        let bucket = self.bucket(bucket)?;
        if let Err(error) = check_key(&key) {
            return Ok(Err(error));
        }
        if value.len() > VALUE_BYTES_MAX {
            let reason = format!("a value has {} bytes, {VALUE_BYTES_MAX} at most are allowed", value.len());
            return Ok(Err(KeyValueError::denied(reason)));
        }
        Ok(ask(self.buckets, bucket, |store, bucket| async move { store.set(&bucket, &key, &value).await }).await)
    }

    async fn delete(&mut self, bucket: &Resource<Bucket>, key: String) -> wasmtime::Result<Result<(), KeyValueError>> {
        let bucket = self.bucket(bucket)?;
        if let Err(error) = check_key(&key) {
            return Ok(Err(error));
        }
        Ok(ask(self.buckets, bucket, |store, bucket| async move { store.delete(&bucket, &key).await }).await)
    }

    async fn increment(
        &mut self,
        bucket: &Resource<Bucket>,
        key: String,
        delta: i128,
    ) -> wasmtime::Result<Result<i128, KeyValueError>> {
        let bucket = self.bucket(bucket)?;
        if let Err(error) = check_key(&key) {
            return Ok(Err(error));
        }
        Ok(ask(self.buckets, bucket, |store, bucket| async move { store.increment(&bucket, &key, delta).await }).await)
    }

    fn close(&mut self, bucket: Resource<Bucket>) -> wasmtime::Result<()> {
        self.table.delete(bucket)?;
        self.buckets.open -= 1;
        Ok(())
    }
}

/// The Rust face of a draft, generated by wasmtime, and what answers it.
macro_rules! draft {
    ($draft:ident, $path:literal, $world:literal, $number:ty, $cursor:ty) => {
        mod $draft {
            use wasmtime::component::Resource;

            use crate::wasi::keyvalue::{Bucket, KeyValueError, View};

            #[allow(missing_docs, unreachable_pub, clippy::all, clippy::restriction, reason = "generated code")]
            mod bindings {
                wasmtime::component::bindgen!({
                    path: $path,
                    inline: $world,
                    world: "unalike:host/keyvalue",
                    imports: { default: async | trappable },
                    with: { "wasi:keyvalue/store.bucket": crate::wasi::keyvalue::Bucket },
                });
            }

            pub(super) use self::bindings::wasi::keyvalue::{atomics, store};

            fn error(error: KeyValueError) -> store::Error {
                match error {
                    KeyValueError::NoSuchStore => store::Error::NoSuchStore,
                    KeyValueError::Denied { reason } => {
                        tracing::debug!(reason, "a component was denied a request to its key-value store");
                        store::Error::AccessDenied
                    }
                    KeyValueError::Other { what } => store::Error::Other(what),
                }
            }

            impl store::Host for View<'_> {
                async fn open(&mut self, name: String) -> wasmtime::Result<Result<Resource<Bucket>, store::Error>> {
                    Ok(View::open(self, name).await?.map_err(error))
                }
            }

            impl store::HostBucket for View<'_> {
                async fn get(
                    &mut self,
                    bucket: Resource<Bucket>,
                    key: String,
                ) -> wasmtime::Result<Result<Option<Vec<u8>>, store::Error>> {
                    Ok(View::get(self, &bucket, key).await?.map_err(error))
                }

                async fn set(
                    &mut self,
                    bucket: Resource<Bucket>,
                    key: String,
                    value: Vec<u8>,
                ) -> wasmtime::Result<Result<(), store::Error>> {
                    Ok(View::set(self, &bucket, key, value).await?.map_err(error))
                }

                async fn delete(
                    &mut self,
                    bucket: Resource<Bucket>,
                    key: String,
                ) -> wasmtime::Result<Result<(), store::Error>> {
                    Ok(View::delete(self, &bucket, key).await?.map_err(error))
                }

                async fn exists(
                    &mut self,
                    bucket: Resource<Bucket>,
                    key: String,
                ) -> wasmtime::Result<Result<bool, store::Error>> {
                    Ok(View::get(self, &bucket, key).await?.map(|value| value.is_some()).map_err(error))
                }

                async fn list_keys(
                    &mut self,
                    _bucket: Resource<Bucket>,
                    _cursor: Option<$cursor>,
                ) -> wasmtime::Result<Result<store::KeyResponse, store::Error>> {
                    Ok(Err(store::Error::Other("keys are not listed here: ask for each by its name".to_owned())))
                }

                async fn drop(&mut self, bucket: Resource<Bucket>) -> wasmtime::Result<()> {
                    self.close(bucket)
                }
            }

            impl atomics::Host for View<'_> {
                async fn increment(
                    &mut self,
                    bucket: Resource<Bucket>,
                    key: String,
                    delta: $number,
                ) -> wasmtime::Result<Result<$number, store::Error>> {
                    let number = View::increment(self, &bucket, key, i128::from(delta)).await?;
                    Ok(number.map_err(error).and_then(|number| {
                        let beyond = || "the counter is beyond what this draft of wasi:keyvalue can answer".to_owned();
                        <$number>::try_from(number).map_err(|_| store::Error::Other(beyond()))
                    }))
                }
            }
        }
    };
}

draft!(
    draft,
    "wit/keyvalue/draft.wit",
    "package unalike:host;
    world keyvalue { import wasi:keyvalue/store@0.2.0-draft; import wasi:keyvalue/atomics@0.2.0-draft; }",
    u64,
    u64
);
draft!(
    draft2,
    "wit/keyvalue/draft2.wit",
    "package unalike:host;
    world keyvalue { import wasi:keyvalue/store@0.2.0-draft2; import wasi:keyvalue/atomics@0.2.0-draft2; }",
    i64,
    String
);

#[cfg(test)]
mod tests {
    use unalike_memory::MemoryStore;
    use unalike_storage::{Segment, SegmentLayer};

    use super::*;

    /// A store that grants three numbers at a time.
    #[derive(Default)]
    struct Frugal(MemoryStore);

    #[async_trait]
    impl SegmentLayer for Frugal {
        fn below(&self) -> Option<&dyn SegmentStore> {
            Some(&self.0)
        }

        async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
            self.0.allocate(tag, count.min(3), at_least).await
        }
    }

    #[tokio::test]
    async fn an_increment_is_put_together_of_grants_that_go_on_in_each_other() {
        let store = Arc::new(Frugal::default());
        let counters = SegmentCounters::new(Arc::clone(&store) as Arc<dyn SegmentStore>);
        assert_eq!(counters.increment("", "order", 10).await, Ok(10));
        assert_eq!(counters.increment("", "order", 2).await, Ok(12));
        // A retry would cost as many again.
        assert!(matches!(counters.increment("", "order", 13).await, Err(KeyValueError::Denied { .. })));
        assert_eq!(counters.increment("", "order", 4).await, Ok(28));
    }

    /// A store of which others are granted numbers between any two requests.
    #[derive(Default)]
    struct Busy(Frugal);

    #[async_trait]
    impl SegmentLayer for Busy {
        fn below(&self) -> Option<&dyn SegmentStore> {
            Some(&self.0)
        }

        async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
            self.0.0.allocate(tag, 1, 0).await?;
            SegmentStore::allocate(&self.0, tag, count, at_least).await
        }
    }

    #[tokio::test]
    async fn numbers_that_others_were_granted_are_no_part_of_an_increment() {
        let counters = SegmentCounters::new(Arc::new(Busy::default()));
        // Those of others: 1, 5, 7, 11, 13.
        assert!(matches!(counters.increment("", "order", 4).await, Err(KeyValueError::Denied { .. })));
        assert_eq!(counters.increment("", "order", 3).await, Ok(16));
    }

    /// A set of two stores, or what says so.
    #[derive(Default)]
    struct Set(MemoryStore);

    #[async_trait]
    impl SegmentLayer for Set {
        fn below(&self) -> Option<&dyn SegmentStore> {
            Some(&self.0)
        }

        fn stripes(&self) -> usize {
            2
        }
    }

    #[tokio::test]
    async fn a_set_of_stores_loses_nothing_to_increments() {
        let set = Arc::new(Set::default());
        let counters = SegmentCounters::new(Arc::clone(&set) as Arc<dyn SegmentStore>);
        assert!(matches!(counters.increment("", "order", 4).await, Err(KeyValueError::Denied { .. })));
        assert_eq!(counters.get("", "order").await, Ok(None), "nothing was granted");
    }

    #[test]
    fn keys_of_the_storage_component_are_its_tags() {
        let counter = |tag: &str| Ok(Key::Counter(tag.to_owned()));
        assert_eq!(Key::of("unalike.ids.order"), counter("order"));
        assert_eq!(Key::of("unalike.ids.a=2Eb=20c=2F=C3=A4=3D=1Fx"), counter("a.b c/ä=\u{1f}x"));
        assert_eq!(Key::of("unalike.mode.chat"), Ok(Key::Mode("chat".to_owned())));
        assert_eq!(Key::of("unalike.store"), Ok(Key::Store));
        for key in ["unalike.seen.order", "unalike.refused.order", "unalike.refused", "unalike.claim.7"] {
            assert_eq!(Key::of(key), Ok(Key::Other), "{key}");
        }
        for key in ["order", "unalike.probe", "unalike.other", "a=20b", "unalike.ids.a=2", "unalike.ids.a=+1"] {
            assert!(matches!(Key::of(key), Ok(Key::Counter(_))), "{key}");
        }
        for key in ["", "unalike.ids.", "unalike.ids.=00", "a\nb", &"x".repeat(200)] {
            assert!(matches!(Key::of(key), Err(KeyValueError::Denied { .. })), "{key:?}");
        }
    }
}
