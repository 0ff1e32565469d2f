//! The configured formats, compared with those that the store has bound to tags and snowflakes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use unalike::Format;
use unalike::storage::{
    FormatBinding, FormatOwner, FormatPart, SegmentStore, StoreError, check_format, check_shape, lock,
};

use crate::config::formats::Formats;

/// The store is asked for this long when a server starts.
const START_MAX: Duration = Duration::from_millis(700);

/// And for this long before a tag is opened.
const OPEN_MAX: Duration = Duration::from_secs(5);

/// For this long it is taken for granted that the store has no other format of a tag.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Of how many tags that is remembered.
const REMEMBERED_MAX: usize = 10_000;

/// What the store said of formats.
#[derive(Debug, Default)]
pub(crate) struct BoundFormats {
    /// The snowflakes of which it said nothing when the server started, with their formats.
    unanswered: Mutex<HashMap<String, Option<Arc<Format>>>>,
    /// Whether there are any: each request for a snowflake asks.
    is_any_unanswered: AtomicBool,
    /// The tags whose numbers may be given, to whom, and when it said so.
    tags: Mutex<HashMap<String, (GivenTo, Instant)>>,
}

/// What the one makes of numbers who is given them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GivenTo {
    /// Ids as they are.
    Bare,
    /// Texts in a format of this shape.
    Shape(u64),
}

impl BoundFormats {
    /// Compares all formats when a server starts. A store that does not answer now is asked again when ids are. Beside
    /// each snowflake stands whether it is configured: one that is there anyway stops no start, and is refused later.
    ///
    /// # Errors
    /// [`StoreError::FormatBound`].
    pub(crate) async fn compare<'a>(
        store: &dyn SegmentStore,
        formats: &Formats,
        snowflakes: impl Iterator<Item = (&'a String, bool)>,
    ) -> Result<Self, StoreError> {
        let tags = formats.tags.iter().map(|(tag, shown)| async move {
            let checked = check_format(store, FormatOwner::Tag(tag), shown.format());
            answered(START_MAX, tag, checked).await.map(drop)
        });
        for checked in join_all(tags).await {
            unless_other(checked)?;
        }
        let snowflakes = snowflakes.map(|(name, is_configured)| async move {
            let format = formats.snowflakes.get(name).map(|shown| Arc::clone(shown.format()));
            let comparing = compare_with(store, FormatOwner::Snowflake(name), format.as_deref());
            let checked = answered(START_MAX, name, comparing).await;
            (name, format, if is_configured { unless_other(checked) } else { Ok(checked.is_ok()) })
        });
        let mut unanswered = HashMap::new();
        for (name, format, checked) in join_all(snowflakes).await {
            if !checked? {
                unanswered.insert(name.clone(), format);
            }
        }
        Ok(Self {
            is_any_unanswered: AtomicBool::new(!unanswered.is_empty()),
            unanswered: Mutex::new(unanswered),
            tags: Mutex::default(),
        })
    }

    /// Compares the format of a snowflake that was not compared yet. Bare ids need no store, and go on while it does
    /// not answer; texts wait until it has said that they are shown so everywhere.
    ///
    /// # Errors
    /// [`StoreError::FormatBound`]; for texts, any error of the connection.
    pub(crate) async fn check_snowflake(&self, store: &dyn SegmentStore, name: &str) -> Result<(), StoreError> {
        if !self.is_any_unanswered.load(Ordering::Acquire) {
            return Ok(());
        }
        let Some(format) = lock(&self.unanswered).get(name).cloned() else { return Ok(()) };
        let limit = if format.is_some() { OPEN_MAX } else { START_MAX };
        let comparing = compare_with(store, FormatOwner::Snowflake(name), format.as_deref());
        let checked = answered(limit, name, comparing).await;
        let is_compared = match checked {
            Err(error) if format.is_some() => return Err(error),
            checked => unless_other(checked)?,
        };
        if is_compared {
            let mut unanswered = lock(&self.unanswered);
            unanswered.remove(name);
            self.is_any_unanswered.store(!unanswered.is_empty(), Ordering::Release);
        }
        Ok(())
    }

    /// Whether a snowflake was not compared yet.
    pub(crate) fn is_unanswered(&self, name: &str) -> bool {
        self.is_any_unanswered.load(Ordering::Acquire) && lock(&self.unanswered).contains_key(name)
    }

    /// Whether texts of a snowflake wait until it is compared.
    pub(crate) fn waits(&self, name: &str) -> bool {
        self.is_any_unanswered.load(Ordering::Acquire) && lock(&self.unanswered).get(name).is_some_and(Option::is_some)
    }

    /// Compares the format of a tag, before its bare numbers are given: they may be what others were shown as. One that
    /// is configured is bound.
    ///
    /// # Errors
    /// [`StoreError::FormatBound`], and any error of the connection.
    pub(crate) async fn check_bare(
        &self,
        store: &dyn SegmentStore,
        tag: &str,
        format: Option<&Format>,
    ) -> Result<(), StoreError> {
        self.unless_known(tag, GivenTo::Bare, compare_with(store, FormatOwner::Tag(tag), format)).await
    }

    /// Compares the shape of the format that a host shows the numbers of a tag in. The format that is configured is
    /// bound.
    ///
    /// # Errors
    /// [`StoreError::FormatBound`], and any error of the connection.
    pub(crate) async fn check_shape(
        &self,
        store: &dyn SegmentStore,
        tag: &str,
        format: Option<&Format>,
        shape: u64,
    ) -> Result<(), StoreError> {
        let compare = async {
            let owner = FormatOwner::Tag(tag);
            let bound = match format {
                Some(configured) => {
                    compare_with(store, owner, format).await?;
                    FormatPart::Shape.of(configured)
                }
                None => store.bind_format(owner, FormatPart::Shape, FormatBinding::Look).await?,
            };
            check_shape(owner, bound, shape)
        };
        self.unless_known(tag, GivenTo::Shape(shape), compare).await
    }

    /// A host has bound something to a tag: what was known of it is no longer.
    pub(crate) fn forget_tag(&self, tag: &str) {
        lock(&self.tags).remove(tag);
    }

    /// A host has bound something to a snowflake whose bare ids are given here: the next request for them compares.
    pub(crate) fn forget_snowflake(&self, name: &str) {
        let mut unanswered = lock(&self.unanswered);
        unanswered.insert(name.to_owned(), None);
        self.is_any_unanswered.store(true, Ordering::Release);
    }

    /// Compares what is not known of a tag, and remembers it.
    async fn unless_known(
        &self,
        tag: &str,
        given_to: GivenTo,
        compare: impl Future<Output = Result<(), StoreError>>,
    ) -> Result<(), StoreError> {
        let looked = lock(&self.tags).get(tag).filter(|(known, _)| *known == given_to).map(|(_, looked)| *looked);
        if looked.is_some_and(|looked| looked.elapsed() < LOOK_AGAIN) {
            return Ok(());
        }
        match answered(OPEN_MAX, tag, compare).await {
            // What was bound stays bound, and a Redis above the store has numbers.
            Err(error) if looked.is_some() && error.is_retryable() => {}
            // Nor is it known any longer if the store does not answer next time.
            Err(other) if looked.is_some() => {
                self.forget_tag(tag);
                return Err(other);
            }
            compared => compared?,
        }
        let mut tags = lock(&self.tags);
        if tags.len() >= REMEMBERED_MAX {
            tags.clear();
        }
        tags.insert(tag.to_owned(), (given_to, Instant::now()));
        Ok(())
    }
}

/// What the store answers within this time.
async fn answered<T>(
    limit: Duration,
    name: &str,
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| {
        let what = format!("it did not say within {} ms what the format of {name:?} is", limit.as_millis());
        Err(StoreError::unavailable(what))
    })
}

/// Whether the store answered, if it did not say that another format is bound.
fn unless_other(checked: Result<(), StoreError>) -> Result<bool, StoreError> {
    match checked {
        Ok(()) => Ok(true),
        Err(other @ StoreError::FormatBound { .. }) => Err(other),
        Err(_) => Ok(false),
    }
}

/// Compares the format of a tag or a snowflake, and binds it. Without one there is nothing to bind.
async fn compare_with(
    store: &dyn SegmentStore,
    owner: FormatOwner<'_>,
    format: Option<&Format>,
) -> Result<(), StoreError> {
    match format {
        Some(format) => check_format(store, owner, format).await?.bind(store, owner).await,
        None => check_format(store, owner, &Format::default()).await.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: u64 = 1 << 62;

    /// Lets the time pass in which nothing is asked.
    fn later(formats: &BoundFormats) {
        for (_, looked) in lock(&formats.tags).values_mut() {
            *looked = looked.checked_sub(LOOK_AGAIN).unwrap();
        }
    }

    #[tokio::test]
    async fn what_is_known_of_a_tag_stays_known_while_its_store_is_down() {
        let formats = BoundFormats::default();
        let compared =
            |given_to, answer: Result<(), StoreError>| formats.unless_known("order", given_to, async move { answer });
        let down = || Err(StoreError::unavailable("it is down, said the test"));
        let other = || check_shape(FormatOwner::Tag("order"), Some(SHAPE), SHAPE | 1);
        assert!(compared(GivenTo::Bare, down()).await.is_err(), "nothing is known yet");
        assert!(compared(GivenTo::Bare, Ok(())).await.is_ok());
        assert!(compared(GivenTo::Bare, other()).await.is_ok(), "it is not asked again at once");
        assert!(compared(GivenTo::Shape(SHAPE), down()).await.is_err(), "of texts nothing is known");
        for _ in 0..3 {
            later(&formats);
            assert!(compared(GivenTo::Bare, down()).await.is_ok(), "however long it is down");
        }
        // What another program binds counts as soon as the store says it, also if it is down then.
        later(&formats);
        assert!(compared(GivenTo::Bare, other()).await.is_err());
        assert!(compared(GivenTo::Bare, down()).await.is_err());
        assert!(compared(GivenTo::Shape(SHAPE), Ok(())).await.is_ok());
        formats.forget_tag("order");
        assert!(compared(GivenTo::Shape(SHAPE), down()).await.is_err(), "a host has bound something");
    }
}
