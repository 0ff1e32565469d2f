//! What the ids of a tag look like, bound to the tag in its store: another template, restart, width or secret may show
//! two ids alike, on one line of configuration that differs.
//!
//! A store keeps the numbers that [`FormatShape`] and [`Format::key_checks`] give, each as the start of a row under a
//! [name of the product's own](crate::KEPT_FORMATS). Such a row is created once and its start never changes, in any
//! store; so of two programs that begin at once with different formats, one is refused. An operator who accepts another
//! format adds a row behind the last one: which counts is the last.

use std::fmt;

use unalike_core::{Format, FormatShape, ShapeChanges};

use crate::kept::format_name;
use crate::{SegmentStore, StoreError, TagOptions};

/// How often a format may be accepted anew.
const ROWS_MAX: u32 = 1_000;

/// Whose ids a format shows.
///
/// ```
/// use unalike_storage::FormatOwner;
/// assert_eq!(FormatOwner::Tag("order").to_string(), "the tag \"order\"");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatOwner<'a> {
    /// Those of a tag, its sub-keys and its periods.
    Tag(&'a str),
    /// Those of a snowflake's namespace.
    Snowflake(&'a str),
}

impl fmt::Display for FormatOwner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(name) => write!(f, "the tag {name:?}"),
            Self::Snowflake(name) => write!(f, "the snowflake {name:?}"),
        }
    }
}

/// Something of a format that a store keeps a number of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatPart {
    /// Its [shape](Format::shape).
    Shape,
    /// The [check](Format::key_checks) of the key with this number.
    Key(u8),
}

/// What is asked of a store about a part of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatBinding {
    /// What is bound. Nothing is changed.
    Look,
    /// The same, and where nothing is bound, this number is from now on: 1 to 2^63 - 1.
    First(u64),
    /// Binds `number` in the place of another one, if that is bound still.
    Instead {
        /// What is bound.
        of: u64,
        /// What shall be: 1 to 2^63 - 1.
        number: u64,
    },
}

/// Compares a format with what is bound to its owner, and binds it where nothing is. What the store does not keep is
/// taken for the same. Nothing is bound of a format that is refused.
///
/// It takes two requests for the shape and for each key, and two more for each that is bound now.
///
/// # Errors
/// [`StoreError::FormatBound`], and any error of the connection.
///
/// ```
/// use unalike_core::Format;
/// use unalike_storage::{FormatOwner, SegmentStore, StoreError, bind_format};
///
/// async fn before_the_first_text(store: &dyn SegmentStore, format: &Format) -> Result<(), StoreError> {
///     bind_format(store, FormatOwner::Tag("order"), format).await
/// }
/// ```
pub async fn bind_format(store: &dyn SegmentStore, owner: FormatOwner<'_>, format: &Format) -> Result<(), StoreError> {
    let looked = look(store, owner, format).await?;
    refuse(owner, &looked)?;
    let mut bound = Vec::new();
    for Looked { part, number, .. } in looked.into_iter().filter(|looked| looked.bound.is_none()) {
        let now = store.bind_format(owner, part, FormatBinding::First(number)).await?;
        bound.push(Looked { part, bound: now, number });
    }
    refuse(owner, &bound)
}

/// Compares a format with what is bound to its owner, and binds nothing.
///
/// # Errors
/// As [`bind_format`].
pub async fn check_format(store: &dyn SegmentStore, owner: FormatOwner<'_>, format: &Format) -> Result<(), StoreError> {
    refuse(owner, &look(store, owner, format).await?)
}

/// How a format differs from what is bound to its owner: empty if it does not, and where nothing is bound.
///
/// # Errors
/// Any error of the connection.
pub async fn format_changes(
    store: &dyn SegmentStore,
    owner: FormatOwner<'_>,
    format: &Format,
) -> Result<Vec<FormatChange>, StoreError> {
    Ok(look(store, owner, format).await?.iter().filter_map(Looked::change).collect())
}

/// A part of a format, and what is bound of it.
struct Looked {
    part: FormatPart,
    bound: Option<u64>,
    number: u64,
}

impl Looked {
    fn change(&self) -> Option<FormatChange> {
        let Self { part, number, .. } = *self;
        self.bound.filter(|bound| *bound != number).map(|bound| FormatChange { part, bound, number })
    }
}

async fn look(store: &dyn SegmentStore, owner: FormatOwner<'_>, format: &Format) -> Result<Vec<Looked>, StoreError> {
    let shape = (FormatPart::Shape, format.shape().number());
    let keys = format.key_checks().map(|(key_id, check)| (FormatPart::Key(key_id), check));
    let mut looked = Vec::new();
    for (part, number) in [shape].into_iter().chain(keys) {
        let bound = store.bind_format(owner, part, FormatBinding::Look).await?;
        looked.push(Looked { part, bound, number });
    }
    Ok(looked)
}

fn refuse(owner: FormatOwner<'_>, looked: &[Looked]) -> Result<(), StoreError> {
    let changes: Vec<FormatChange> = looked.iter().filter_map(Looked::change).collect();
    if changes.is_empty() {
        return Ok(());
    }
    let what: Vec<String> = FormatChange::to_tell(&changes).map(FormatChange::to_string).collect();
    Err(StoreError::FormatBound { owner: owner.to_string(), what: what.join("; ") })
}

/// Binds a format in the place of what was bound, as an operator says who knows which texts can repeat.
///
/// # Errors
/// [`StoreError::FormatBound`] when somebody else bound another one meanwhile, and any error of the connection.
pub async fn rebind_format(
    store: &dyn SegmentStore,
    owner: FormatOwner<'_>,
    format: &Format,
    changes: &[FormatChange],
) -> Result<(), StoreError> {
    for FormatChange { part, bound, number } in changes {
        store.bind_format(owner, *part, FormatBinding::Instead { of: *bound, number: *number }).await?;
    }
    bind_format(store, owner, format).await
}

/// A part of a format that is not what is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatChange {
    /// Which.
    pub part: FormatPart,
    /// What is bound.
    pub bound: u64,
    /// What was offered.
    pub number: u64,
}

impl FormatChange {
    /// What is worth telling of these: in other widths each key permutes otherwise, which says nothing more.
    pub fn to_tell(changes: &[Self]) -> impl Iterator<Item = &Self> {
        let is_wider = changes.iter().any(|change| change.shape_changes().is_some_and(|shape| shape.in_numbers()));
        changes.iter().filter(move |change| !is_wider || change.part == FormatPart::Shape)
    }

    /// What differs in the shape; `None` for a key, and where a release that this one does not know bound the shape.
    #[must_use]
    pub fn shape_changes(&self) -> Option<ShapeChanges> {
        let (FormatPart::Shape, Some(bound)) = (self.part, FormatShape::read(self.bound)) else { return None };
        Some(FormatShape::read(self.number)?.changes(bound))
    }
}

impl fmt::Display for FormatChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            FormatPart::Key(0) => f.write_str("the key has another secret or context"),
            FormatPart::Key(key_id) => write!(f, "the key {key_id} has another secret or context"),
            FormatPart::Shape => match self.shape_changes() {
                Some(changes) => changes.fmt(f),
                None => write!(f, "a release that this one does not know bound the format ({})", self.bound),
            },
        }
    }
}

/// [`SegmentStore::bind_format`] of a store that keeps the numbers as rows among its tags.
///
/// # Errors
/// Any error of the connection.
pub async fn bind_in_tags(
    store: &dyn SegmentStore,
    owner: FormatOwner<'_>,
    part: FormatPart,
    binding: FormatBinding,
) -> Result<Option<u64>, StoreError> {
    let mut bound = None;
    for row in 1..=ROWS_MAX {
        let name = format_name(owner, part, row)?;
        let start = match store.tag(&name).await {
            Ok(record) => record.options.start,
            Err(StoreError::TagUnknown { .. }) => {
                let number = match (binding, bound) {
                    (FormatBinding::First(number), None) => number,
                    (FormatBinding::Instead { of, number }, Some(bound)) if of == bound => number,
                    _ => return Ok(bound),
                };
                match store.create_tag(&name, &TagOptions { start: number, ..TagOptions::default() }).await {
                    Ok(_) => return Ok(Some(number)),
                    // Somebody else was quicker.
                    Err(StoreError::TagExists { .. }) => store.tag(&name).await?.options.start,
                    Err(error) => return Err(error),
                }
            }
            Err(error) => return Err(error),
        };
        bound = Some(start);
    }
    Err(StoreError::refused(format!("{owner} had {ROWS_MAX} formats: use another name")))
}
