//! Tags that come into being on first use.

use async_trait::async_trait;
use unalike_core::{ID_MAX, Segment};

use crate::{StoreError, TagOptions, TagRecord, split_tag, validate_allocate, validate_new_tag, validate_tag};

/// How a store of one row for each tag finds, inserts and changes a row.
///
/// What the port asks for follows from these steps in the same way in every such store, above all what first use
/// creates: it is said here once. [`SegmentStore`](crate::SegmentStore) calls the methods that are given.
///
/// ```
/// use unalike_storage::{Segment, StoreError, TagOptions, TagRecord, TagRows};
///
/// /// Knows one tag, and nobody creates another.
/// struct One(TagRecord);
///
/// #[async_trait::async_trait]
/// impl TagRows for One {
///     fn creates_on_first_use(&self, _tag: &str) -> bool {
///         false
///     }
///
///     async fn find_row(&self, tag: &str) -> Result<Option<TagRecord>, StoreError> {
///         Ok((tag == self.0.tag).then(|| self.0.clone()))
///     }
///
///     async fn insert_row(&self, _tag: &str, _options: &TagOptions) -> Result<Option<TagRecord>, StoreError> {
///         Err(StoreError::refused("there is one tag"))
///     }
///
///     async fn grant_from_row(&self, _tag: &str, _count: u64, _least: u64) -> Result<Option<Segment>, StoreError> {
///         Ok(None)
///     }
/// }
///
/// async fn its_record(store: &One) -> Result<TagRecord, StoreError> {
///     store.find_or_create("order").await
/// }
/// ```
#[async_trait]
pub trait TagRows: Send + Sync {
    /// Whether [`TagCreation`](crate::TagCreation) lets first use create this tag, which is not a sub-key.
    fn creates_on_first_use(&self, tag: &str) -> bool;

    /// The tag as its row has it; none if there is no row.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn find_row(&self, tag: &str) -> Result<Option<TagRecord>, StoreError>;

    /// Inserts a row for a name that a new tag may have, whatever [`TagCreation`](crate::TagCreation) says about first
    /// use; none if the tag exists, or if somebody else was quicker. For a sub-key it checks in the same step that the
    /// tag has not ended.
    ///
    /// # Errors
    /// [`StoreError::TagLimit`], [`StoreError::Exhausted`], and any error of the connection.
    async fn insert_row(&self, tag: &str, options: &TagOptions) -> Result<Option<TagRecord>, StoreError>;

    /// Grants numbers from the row, as [`SegmentStore::allocate`](crate::SegmentStore::allocate) does; none if there is
    /// no row or no number is left.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn grant_from_row(&self, tag: &str, count: u64, at_least: u64) -> Result<Option<Segment>, StoreError>;

    /// [`SegmentStore::allocate`](crate::SegmentStore::allocate).
    ///
    /// # Errors
    /// As [`SegmentStore::allocate`](crate::SegmentStore::allocate).
    async fn grant_or_create(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        validate_allocate(tag, count, at_least)?;
        // Twice, when the tag comes into being in between.
        for _ in 0..2 {
            if let Some(segment) = self.grant_from_row(tag, count, at_least).await? {
                return Ok(segment);
            }
            match self.find_row(tag).await? {
                Some(record) if record.watermark == ID_MAX => return Err(StoreError::exhausted(tag)),
                Some(_) => {}
                None => {
                    self.create_on_first_use(tag).await?;
                }
            }
        }
        Err(StoreError::unavailable(format!("the tag {tag:?} changes all the time: try again")))
    }

    /// [`SegmentStore::open_tag`](crate::SegmentStore::open_tag).
    ///
    /// # Errors
    /// As [`SegmentStore::open_tag`](crate::SegmentStore::open_tag).
    async fn find_or_create(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        if let Some(record) = self.find_row(tag).await? {
            return Ok(record);
        }
        match self.create_on_first_use(tag).await? {
            Some(record) => Ok(record),
            None => self.find_known(tag).await,
        }
    }

    /// [`SegmentStore::tag`](crate::SegmentStore::tag).
    ///
    /// # Errors
    /// As [`SegmentStore::tag`](crate::SegmentStore::tag).
    async fn find_known(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        self.find_row(tag).await?.ok_or_else(|| StoreError::tag_unknown(tag))
    }

    /// [`SegmentStore::create_tag`](crate::SegmentStore::create_tag).
    ///
    /// # Errors
    /// As [`SegmentStore::create_tag`](crate::SegmentStore::create_tag).
    async fn create_new(&self, tag: &str, options: &TagOptions) -> Result<TagRecord, StoreError> {
        options.validate(tag)?;
        insert(self, tag, options).await?.ok_or_else(|| StoreError::TagExists { tag: tag.to_owned() })
    }

    /// A tag without a row, if first use may create it; none if somebody else was quicker. A sub-key of a tag that
    /// exists, or may be created, always may be: it has the options of its tag, and ends with it.
    ///
    /// # Errors
    /// [`StoreError::TagUnknown`], [`StoreError::TagInvalid`], and as [`TagRows::insert_row`].
    async fn create_on_first_use(&self, tag: &str) -> Result<Option<TagRecord>, StoreError> {
        let options = match split_tag(tag) {
            (owner, Some(_)) => self.find_or_create(owner).await?.options_of_sub_keys(tag)?,
            (_, None) if self.creates_on_first_use(tag) => TagOptions::default(),
            (_, None) => return Err(StoreError::tag_unknown(tag)),
        };
        let made = insert(self, tag, &options).await?;
        // A mistyped tag begins anew, and nothing else tells. Sub-keys come with each day or tenant.
        if let Some(record) = made.as_ref().filter(|_| split_tag(tag).1.is_none()) {
            tracing::info!(tag, next = record.watermark.saturating_add(1), "created a tag on first use");
        }
        Ok(made)
    }
}

/// A row under a name that a new tag may have; none if the tag exists, whatever its name is.
async fn insert<R>(rows: &R, tag: &str, options: &TagOptions) -> Result<Option<TagRecord>, StoreError>
where
    R: TagRows + ?Sized,
{
    match validate_new_tag(tag) {
        Err(_) if rows.find_row(tag).await?.is_some() => Ok(None),
        Err(refused) => Err(refused),
        Ok(()) => rows.insert_row(tag, options).await,
    }
}
