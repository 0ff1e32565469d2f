//! The segment port: numbers under a tag, granted in intervals.

use async_trait::async_trait;
use unalike_core::{ID_MAX, RefillPolicy, Segment, StepPolicy, TailRelease, is_name};

use crate::StoreError;

/// Grants intervals of numbers under a tag, each to one holder for ever.
///
/// Implementations are shared by all tasks of a process and must not wait for one tag while they serve another.
/// An implementation that cannot know whether a grant was made answers [`StoreError::OutcomeUnknown`] and never offers
/// that grant again; it does not retry on its own once a statement may have reached the server.
///
/// ```
/// use unalike_storage::{SegmentStore, StoreError, TailRelease};
///
/// async fn take_ten_and_give_five_back(store: &dyn SegmentStore) -> Result<bool, StoreError> {
///     let segment = store.allocate("order", 10, 0).await?;
///     store.release("order", TailRelease { start: segment.start + 5, version: segment.version }).await
/// }
/// ```
#[async_trait]
pub trait SegmentStore: Send + Sync + 'static {
    /// Grants up to `count` numbers (1 or more) under `tag`, none below `at_least`: fewer perhaps, never none.
    ///
    /// An unknown tag is created with default options when the store's [`TagCreation`] allows it. Starts ascend per
    /// tag, generation, stride and remainder.
    ///
    /// # Errors
    /// [`StoreError::TagUnknown`], [`StoreError::TagLimit`], [`StoreError::TagInvalid`], [`StoreError::Exhausted`] (also
    /// when `at_least` is above 2^63 - 1), [`StoreError::Refused`] for a count of 0, and whatever the connection brings.
    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError>;

    /// Takes numbers back, from `tail.start` to the tag's watermark, if the tag's row still has `tail.version`.
    ///
    /// Answers whether they were taken back. The row's version grows with every grant, release and raise, so a request
    /// that arrives twice, or late, changes nothing. A tail may begin in an earlier grant only if the store can tell
    /// that nobody else was granted anything from there on; a store in doubt answers `false`, and so does one that
    /// takes nothing back.
    ///
    /// # Errors
    /// As the connection brings; the caller then leaves a gap.
    async fn release(&self, tag: &str, tail: TailRelease) -> Result<bool, StoreError>;

    /// The tag as the store keeps it; created with default options when it is unknown and [`TagCreation`] allows it.
    ///
    /// # Errors
    /// As [`SegmentStore::allocate`].
    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError>;

    /// The tag as the store keeps it; never creates one.
    ///
    /// # Errors
    /// [`StoreError::TagUnknown`], [`StoreError::TagInvalid`], and whatever the connection brings.
    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError>;

    /// Creates a tag with these options, whatever [`TagCreation`] says about first use (its limit stands).
    ///
    /// # Errors
    /// [`StoreError::TagExists`], [`StoreError::TagLimit`], [`StoreError::TagInvalid`].
    async fn create_tag(&self, tag: &str, options: &TagOptions) -> Result<TagRecord, StoreError>;

    /// Replaces a tag's step and refill policy. Its start and its mode stay as they were created: other nodes may be
    /// using them.
    ///
    /// # Errors
    /// [`StoreError::TagUnknown`], [`StoreError::TagInvalid`].
    async fn change_tag(&self, tag: &str, step: StepPolicy, refill: RefillPolicy) -> Result<TagRecord, StoreError>;

    /// Lifts the tag's watermark so that every later grant starts at `next` or above; never lowers it. Answers the
    /// record as it then is. Its version grows even if the watermark was that high already: a tail that is given back
    /// afterwards would otherwise bring grants below `next`.
    ///
    /// # Errors
    /// [`StoreError::TagUnknown`]; [`StoreError::TagInvalid`] when `next` is 0 or above 2^63 - 1.
    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError>;

    /// Up to `limit` tags in ascending byte order of their names, those after `after` only.
    ///
    /// # Errors
    /// As the connection brings.
    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError>;

    /// Whether the store answers and can be written to, for readiness checks.
    ///
    /// # Errors
    /// As the connection brings.
    async fn check(&self) -> Result<(), StoreError>;
}

/// Whether tags come into being on first use, and how many there may be.
///
/// ```
/// use unalike_storage::TagCreation;
/// let only_by_command = TagCreation { on_first_use: false, ..TagCreation::default() };
/// assert_eq!(only_by_command.tags_max, 1_000_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagCreation {
    /// `allocate` and `open_tag` create a tag that they do not know.
    pub on_first_use: bool,
    /// No tag is created beyond this many: a client with a bug must not fill the store.
    pub tags_max: u64,
}

impl Default for TagCreation {
    /// On first use, up to 1,000,000 tags.
    fn default() -> Self {
        Self { on_first_use: true, tags_max: 1_000_000 }
    }
}

/// How callers of a tag are served; bound to the tag in the store, since one buffered node would break the order that
/// all others promise.
///
/// ```
/// use unalike_storage::Mode;
/// assert_eq!(Mode::default(), Mode::Buffered);
/// assert_eq!(Mode::Ordered.name(), "ordered");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// From segments fetched ahead: fast, ascending per process.
    #[default]
    Buffered,
    /// Each request from an allocation that started after it arrived: ascending across all nodes in real time.
    Ordered,
}

impl Mode {
    /// The word for it in configuration, HTTP and SQL.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Buffered => "buffered",
            Self::Ordered => "ordered",
        }
    }
}

/// What a tag is created with.
///
/// ```
/// use unalike_storage::{StepPolicy, TagOptions};
/// let options = TagOptions { start: 1_000_000, step: StepPolicy::Fixed { step: 500 }, ..TagOptions::default() };
/// assert!(options.validate("invoice").is_ok());
/// assert!(options.validate("").is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TagOptions {
    /// The first number that is ever granted: 1 to 2^63 - 1.
    pub start: u64,
    /// How many numbers a segment asks for.
    pub step: StepPolicy,
    /// When the next segment is asked for.
    pub refill: RefillPolicy,
    /// How callers are served.
    pub mode: Mode,
}

impl Default for TagOptions {
    /// First number 1, and the core's default policies, buffered.
    fn default() -> Self {
        Self { start: 1, step: StepPolicy::default(), refill: RefillPolicy::default(), mode: Mode::default() }
    }
}

impl TagOptions {
    /// Checks the options, and the name they are for.
    ///
    /// # Errors
    /// [`StoreError::TagInvalid`] naming the tag and what is wrong.
    pub fn validate(&self, tag: &str) -> Result<(), StoreError> {
        validate_tag(tag)?;
        let invalid = |reason: String| StoreError::TagInvalid { tag: tag.to_owned(), reason };
        if self.start == 0 || self.start > ID_MAX {
            return Err(invalid(format!("its start is {}, it must be 1 to 2^63 - 1", self.start)));
        }
        validate_policies(tag, self.step, self.refill)
    }
}

/// Checks what [`SegmentStore::allocate`] is asked.
///
/// # Errors
/// [`StoreError::TagInvalid`], [`StoreError::Refused`] for a count of 0, [`StoreError::Exhausted`] when no number is
/// as great as `at_least`.
pub fn validate_allocate(tag: &str, count: u64, at_least: u64) -> Result<(), StoreError> {
    validate_tag(tag)?;
    if count == 0 {
        return Err(StoreError::Refused { what: format!("0 numbers were asked for under {tag:?}"), source: None });
    }
    if at_least > ID_MAX {
        return Err(StoreError::Exhausted { tag: tag.to_owned() });
    }
    Ok(())
}

/// Checks what [`SegmentStore::raise_tag`] is asked.
///
/// # Errors
/// [`StoreError::TagInvalid`].
pub fn validate_raise(tag: &str, next: u64) -> Result<(), StoreError> {
    validate_tag(tag)?;
    if next == 0 || next > ID_MAX {
        let reason = format!("its next number was to be {next}, it must be 1 to 2^63 - 1");
        return Err(StoreError::TagInvalid { tag: tag.to_owned(), reason });
    }
    Ok(())
}

/// Checks a tag's name.
///
/// # Errors
/// [`StoreError::TagInvalid`].
pub fn validate_tag(tag: &str) -> Result<(), StoreError> {
    if is_name(tag) {
        return Ok(());
    }
    let reason = if tag.is_empty() {
        "it is empty".to_owned()
    } else if tag.chars().any(char::is_control) {
        "it holds a control character".to_owned()
    } else {
        format!("it has {} bytes, 128 at most are allowed", tag.len())
    };
    let shown: String = tag.chars().take(32).collect();
    Err(StoreError::TagInvalid { tag: shown, reason })
}

/// Checks the policies of a tag.
///
/// # Errors
/// [`StoreError::TagInvalid`].
pub fn validate_policies(tag: &str, step: StepPolicy, refill: RefillPolicy) -> Result<(), StoreError> {
    step.validate()
        .and_then(|()| refill.validate())
        .map_err(|error| StoreError::TagInvalid { tag: tag.to_owned(), reason: error.to_string() })
}

/// A tag as its store keeps it.
///
/// ```
/// use unalike_storage::{SegmentStore, StoreError};
///
/// async fn next_number(store: &dyn SegmentStore, tag: &str) -> Result<u64, StoreError> {
///     Ok(store.tag(tag).await?.watermark + 1)
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagRecord {
    /// Its name.
    pub tag: String,
    /// What it was created with or changed to.
    pub options: TagOptions,
    /// The greatest number that may have been handed out; `start - 1` before the first grant.
    pub watermark: u64,
    /// Grows with every grant, release and raise.
    pub version: u64,
}
