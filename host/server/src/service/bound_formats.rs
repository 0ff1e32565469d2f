//! The configured formats, compared with those that the store has bound to tags and snowflakes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use unalike::Format;
use unalike::storage::{FormatOwner, SegmentStore, StoreError, check_format, lock};

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
    /// The tags whose bare numbers may be given, and when it said so.
    bare: Mutex<HashMap<String, Instant>>,
}

impl BoundFormats {
    /// Compares all formats when a server starts. A store that does not answer now is asked again when ids are.
    ///
    /// # Errors
    /// [`StoreError::FormatBound`].
    pub(crate) async fn compare(
        store: &dyn SegmentStore,
        formats: &Formats,
        snowflakes: impl Iterator<Item = &String>,
    ) -> Result<Self, StoreError> {
        let tags = formats.tags.iter().map(|(tag, shown)| async move {
            let checked = check_format(store, FormatOwner::Tag(tag), shown.format());
            answered(START_MAX, tag, checked).await.map(drop)
        });
        for checked in join_all(tags).await {
            unless_other(checked)?;
        }
        let snowflakes = snowflakes.map(|name| async move {
            let format = formats.snowflakes.get(name).map(|shown| Arc::clone(shown.format()));
            let checked = answered(START_MAX, name, compare_snowflake(store, name, format.as_deref())).await;
            (name, format, checked)
        });
        let mut unanswered = HashMap::new();
        for (name, format, checked) in join_all(snowflakes).await {
            if !unless_other(checked)? {
                unanswered.insert(name.clone(), format);
            }
        }
        Ok(Self {
            is_any_unanswered: AtomicBool::new(!unanswered.is_empty()),
            unanswered: Mutex::new(unanswered),
            bare: Mutex::default(),
        })
    }

    /// Compares the format of a snowflake that was not compared yet, if the store answers; its ids need no store.
    ///
    /// # Errors
    /// [`StoreError::FormatBound`].
    pub(crate) async fn check_snowflake(&self, store: &dyn SegmentStore, name: &str) -> Result<(), StoreError> {
        if !self.is_any_unanswered.load(Ordering::Acquire) {
            return Ok(());
        }
        let Some(format) = lock(&self.unanswered).get(name).cloned() else { return Ok(()) };
        if unless_other(answered(START_MAX, name, compare_snowflake(store, name, format.as_deref())).await)? {
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
        if lock(&self.bare).get(tag).is_some_and(|looked| looked.elapsed() < LOOK_AGAIN) {
            return Ok(());
        }
        let compare = async {
            let owner = FormatOwner::Tag(tag);
            match format {
                Some(format) => check_format(store, owner, format).await?.bind(store, owner).await,
                None => check_format(store, owner, &Format::default()).await.map(drop),
            }
        };
        answered(OPEN_MAX, tag, compare).await?;
        let mut bare = lock(&self.bare);
        if bare.len() >= REMEMBERED_MAX {
            bare.clear();
        }
        bare.insert(tag.to_owned(), Instant::now());
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

/// Compares the format of a snowflake, and binds it. Without one there is nothing to bind.
async fn compare_snowflake(store: &dyn SegmentStore, name: &str, format: Option<&Format>) -> Result<(), StoreError> {
    let owner = FormatOwner::Snowflake(name);
    match format {
        Some(format) => check_format(store, owner, format).await?.bind(store, owner).await,
        None => check_format(store, owner, &Format::default()).await.map(drop),
    }
}
