//! What the ids of a tag look like, bound to the tag in its store. Another template, restart, width or secret may show
//! two ids alike, for one line of configuration that differs.
//!
//! A store keeps the numbers that [`Format::shape`] and [`Format::key_checks`] give, each as the start of a row under a
//! [name of the product's own](crate::KEPT_FORMATS). Such a row is created once, and its start never changes, in any
//! store. So of two programs that begin at once with different formats, one is refused. An operator who accepts another
//! format adds a row behind the last one: the last one counts.

use std::fmt;

use unalike_core::{Format, FormatShape, ShapeChanges};

use crate::kept::format_name;
use crate::{SegmentStore, ShellWord, StoreError, TagOptions};

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

impl FormatOwner<'_> {
    /// The command that compares the configured format with the bound one, for people to copy.
    #[must_use]
    pub fn command(self) -> String {
        self.command_with("")
    }

    /// The command that binds the configured format in the place of the bound one.
    #[must_use]
    pub fn accepting_command(self) -> String {
        self.command_with(" --accept")
    }

    /// The command with more flags, each behind a space. A name that begins with a hyphen is none.
    fn command_with(self, flags: &str) -> String {
        match self {
            Self::Tag(tag) => format!("unalike tags format{flags} -- {}", ShellWord(tag)),
            Self::Snowflake(name) => format!("unalike tags format --snowflake{flags} -- {}", ShellWord(name)),
        }
    }
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
    /// The [check](Format::key_checks) of the key with this number, where it permutes so many bits.
    Key {
        /// The key's number.
        id: u8,
        /// The width of what it permutes.
        bits: u8,
    },
}

impl FormatPart {
    /// The number that a store keeps of this part of a format, if the format has it.
    ///
    /// ```
    /// use unalike_core::Format;
    /// use unalike_storage::FormatPart;
    /// let plain = Format::default();
    /// assert_eq!(FormatPart::Shape.of(&plain), Some(plain.shape().number()));
    /// assert_eq!(FormatPart::Key { id: 1, bits: 24 }.of(&plain), None);
    /// ```
    #[must_use]
    pub fn of(self, format: &Format) -> Option<u64> {
        parts(format).find(|(part, _)| *part == self).map(|(_, number)| number)
    }
}

/// What is asked of a store about a part of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatBinding {
    /// What is bound. Nothing is bound by it.
    Look,
    /// The same, and where nothing is bound, this number is from now on: 1 to 2^63 - 1.
    First(u64),
    /// Binds this number, whatever was bound before: 1 to 2^63 - 1.
    Always(u64),
}

/// A part of a format, and what is bound of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatLook {
    /// Which.
    pub part: FormatPart,
    /// What is bound, if anything is.
    pub bound: Option<u64>,
    /// What the format has.
    pub number: u64,
}

impl FormatLook {
    /// Whether another number is bound.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.bound.is_some_and(|bound| bound != self.number)
    }

    /// What differs in the shape; `None` for a key, and where a later release bound the shape.
    #[must_use]
    pub fn shape_changes(&self) -> Option<ShapeChanges> {
        let (FormatPart::Shape, Some(bound)) = (self.part, self.bound) else { return None };
        Some(FormatShape::read(self.number)?.changes(FormatShape::read(bound)?))
    }
}

impl fmt::Display for FormatLook {
    /// What differs, in words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            FormatPart::Key { id: 0, .. } => f.write_str("the key has another secret or context"),
            FormatPart::Key { id, .. } => write!(f, "the key {id} has another secret or context"),
            FormatPart::Shape => match self.shape_changes() {
                Some(changes) => changes.fmt(f),
                None => f.write_str("a later release bound the format"),
            },
        }
    }
}

/// Looks up what is bound of a format to its owner: two requests for the shape and for each key.
///
/// # Errors
/// Any error of the connection.
pub async fn look_at_format(
    store: &dyn SegmentStore,
    owner: FormatOwner<'_>,
    format: &Format,
) -> Result<Vec<FormatLook>, StoreError> {
    let mut looks = Vec::new();
    for (part, number) in parts(format) {
        let bound = store.bind_format(owner, part, FormatBinding::Look).await?;
        looks.push(FormatLook { part, bound, number });
    }
    Ok(looks)
}

/// What is kept of a format, part by part.
fn parts(format: &Format) -> impl Iterator<Item = (FormatPart, u64)> {
    let shape = (FormatPart::Shape, format.shape().number());
    let bits = format.permuted_bits();
    [shape].into_iter().chain(format.key_checks().map(move |(id, check)| (FormatPart::Key { id, bits }, check)))
}

/// What is not bound yet of a format that may be shown.
#[derive(Clone, Debug, Default)]
pub struct UnboundFormat(Vec<FormatLook>);

impl UnboundFormat {
    /// Whether all of it is bound.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Binds it to its owner, before the first id is shown.
    ///
    /// # Errors
    /// [`StoreError::FormatBound`] when somebody else bound another format meanwhile; any error of the connection.
    pub async fn bind(self, store: &dyn SegmentStore, owner: FormatOwner<'_>) -> Result<(), StoreError> {
        for look in self.0 {
            let bound = store.bind_format(owner, look.part, FormatBinding::First(look.number)).await?;
            // Nothing more is bound of a format that is refused: its keys beside another shape would refuse everybody.
            unbound(owner, vec![FormatLook { bound, ..look }])?;
        }
        Ok(())
    }
}

/// Compares a format with what is bound to its owner, and says what is to be bound of it. What the store does not keep
/// is taken for the same.
///
/// # Errors
/// [`StoreError::FormatBound`], and any error of the connection.
///
/// ```
/// use unalike_core::Format;
/// use unalike_storage::{FormatOwner, SegmentStore, StoreError, check_format};
///
/// async fn before_the_first_text(store: &dyn SegmentStore, format: &Format) -> Result<(), StoreError> {
///     let order = FormatOwner::Tag("order");
///     check_format(store, order, format).await?.bind(store, order).await
/// }
/// ```
pub async fn check_format(
    store: &dyn SegmentStore,
    owner: FormatOwner<'_>,
    format: &Format,
) -> Result<UnboundFormat, StoreError> {
    let looks = look_at_format(store, owner, format).await?;
    let bound: Vec<FormatLook> = looks.iter().copied().filter(|look| look.bound == Some(look.number)).collect();
    let unbound = unbound(owner, looks)?;
    // It changes nothing where it is whole. A store that is a server hears what its numbers are shown in, and one of
    // several stores that did not answer when it was bound gets it now.
    for look in bound {
        store.bind_format(owner, look.part, FormatBinding::First(look.number)).await?;
    }
    Ok(unbound)
}

/// Compares a shape with the one that is bound to its owner, if one is: for those who are told only the shape of a
/// format.
///
/// # Errors
/// [`StoreError::FormatBound`].
///
/// ```
/// use unalike_storage::{FormatOwner, check_shape};
/// let order = FormatOwner::Tag("order");
/// assert!(check_shape(order, None, 1 << 62).is_ok() && check_shape(order, Some(1 << 62), 1 << 62).is_ok());
/// assert!(check_shape(order, Some(1 << 62), 1 << 62 | 1).is_err());
/// ```
pub fn check_shape(owner: FormatOwner<'_>, bound: Option<u64>, shape: u64) -> Result<(), StoreError> {
    unbound(owner, vec![FormatLook { part: FormatPart::Shape, bound, number: shape }]).map(drop)
}

/// What of this is not bound, if nothing differs.
fn unbound(owner: FormatOwner<'_>, looks: Vec<FormatLook>) -> Result<UnboundFormat, StoreError> {
    let differing: Vec<FormatLook> = looks.iter().copied().filter(FormatLook::differs).collect();
    refuse(owner, &differing)?;
    Ok(UnboundFormat(looks.into_iter().filter(|look| look.bound.is_none()).collect()))
}

/// Compares what is bound to an owner in two stores, and says what is bound in the first one alone: whoever brings a
/// tag from one store into another binds that, and it goes on in the format that its ids were shown in. Of the keys,
/// those of the widths count that are bound now.
///
/// # Errors
/// [`StoreError::FormatBound`] when another format is bound in the second store; [`StoreError::Refused`] when that
/// keeps no formats, and when the first one [hides](SegmentStore::hides_formats) some; any error of the connections.
///
/// ```
/// use unalike_storage::{FormatOwner, SegmentStore, StoreError, check_carried_format};
///
/// async fn before_it_goes_on(from: &dyn SegmentStore, to: &dyn SegmentStore) -> Result<(), StoreError> {
///     let order = FormatOwner::Tag("order");
///     check_carried_format(from, to, order).await?.bind(to, order).await
/// }
/// ```
pub async fn check_carried_format(
    from: &dyn SegmentStore,
    to: &dyn SegmentStore,
    owner: FormatOwner<'_>,
) -> Result<UnboundFormat, StoreError> {
    if !from.keeps_formats() {
        return Ok(UnboundFormat::default());
    }
    if let Some(what) = from.hides_formats().await? {
        return Err(StoreError::refused(format!("whether a format is bound to {owner} cannot be seen: {what}")));
    }
    let Some(shape) = from.bind_format(owner, FormatPart::Shape, FormatBinding::Look).await? else {
        return Ok(UnboundFormat::default());
    };
    let refused = |why: &str| Err(StoreError::refused(format!("a format is bound to {owner}, and {why}")));
    let Some((bits, id_bits)) = FormatShape::read(shape).map(FormatShape::key_widths) else {
        return refused("a later release bound it: bring the tag with that release");
    };
    if !to.keeps_formats() {
        return refused("the other store keeps none: two ids could look the same there");
    }
    let mut carried = vec![(FormatPart::Shape, shape)];
    let ids = if bits == 0 { 0 } else { 1_u32.checked_shl(id_bits.into()).unwrap_or(0) };
    for id in (0..ids).filter_map(|id| u8::try_from(id).ok()) {
        let part = FormatPart::Key { id, bits };
        if let Some(check) = from.bind_format(owner, part, FormatBinding::Look).await? {
            carried.push((part, check));
        }
    }
    let mut looks = Vec::with_capacity(carried.len());
    for (part, number) in carried {
        let bound = to.bind_format(owner, part, FormatBinding::Look).await?;
        looks.push(FormatLook { part, bound, number });
    }
    unbound(owner, looks)
}

fn refuse(owner: FormatOwner<'_>, differing: &[FormatLook]) -> Result<(), StoreError> {
    if differing.is_empty() {
        return Ok(());
    }
    let what: Vec<String> = differing.iter().map(FormatLook::to_string).collect();
    Err(StoreError::FormatBound { owner: owner.to_string(), what: what.join("; "), command: owner.command() })
}

/// Binds a format whatever was bound before, for an operator who knows which texts can repeat.
///
/// # Errors
/// Any error of the connection. Then it may be bound in parts: bind it once more.
pub async fn rebind_format(
    store: &dyn SegmentStore,
    owner: FormatOwner<'_>,
    format: &Format,
) -> Result<(), StoreError> {
    for (part, number) in parts(format) {
        store.bind_format(owner, part, FormatBinding::Always(number)).await?;
    }
    Ok(())
}

/// [`SegmentStore::bind_format`] of a store that keeps the numbers as rows among its tags.
///
/// # Errors
/// Any error of the connection.
pub(crate) async fn bind_in_tags<S: SegmentStore + ?Sized>(
    store: &S,
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
                    (FormatBinding::Always(number), bound) if bound != Some(number) => number,
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
    match binding {
        FormatBinding::Always(number) if bound != Some(number) => {
            Err(StoreError::refused(format!("{owner} had {ROWS_MAX} formats: use another name")))
        }
        _ => Ok(bound),
    }
}
