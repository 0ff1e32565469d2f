//! The names under which the product keeps something for itself among the tags of a store, and the door that keeps
//! everybody else away from them.
//!
//! The numbers of most of these tags are milliseconds that a durable store granted to Redis, for leases and for ids by
//! its clock. Anybody who took or lifted them like ids would move that time. One is the floor of all names that are new
//! ([`KEPT_FLOOR`]). They are written in stores, so their names stay as they are; a tag of a user cannot have one,
//! since no request, command or configuration comes past [`PublicTags`].

use std::sync::Arc;

use async_trait::async_trait;
use unalike_core::{ID_MAX, NAME_LEN_MAX, RefillPolicy, SUB_SEPARATOR, Segment, StepPolicy, TailRelease};

use crate::{
    Ceiling, FormatOwner, FormatPart, JoinedStripe, SegmentLayer, SegmentStore, StoreError, Stripe, TagCreation,
    TagOptions, TagRecord, TailsReleased, split_tag, sub_tag,
};

/// The tag whose sub-keys are the namespaces of leases that Redis keeps: Unix milliseconds.
pub const KEPT_LEASES: &str = "redis-leases";

/// The longest sub-key of that tag, in bytes.
const SUB_LEN_MAX: usize = 128 - KEPT_LEASES.len() - 1;

/// The beginning of those sub-keys of any tag under which the milliseconds of its shards are granted to Redis' clock:
/// milliseconds since the epoch of its ids.
pub const KEPT_CLOCK: &str = "redis-clock:";

/// The row whose watermark is the floor of all names that are new in a store: a tag or a sub-key that is created there
/// begins that much above its start. So a name that a lost server granted under, and that nobody here has heard of,
/// does not begin again. It is a count of ids, in the store's own numbers, and no time. Where the row is missing, it
/// is 0.
pub const KEPT_FLOOR: &str = "unalike-new-names\u{1f}floor";

/// The row whose watermark is the floor of leases in a store that has no other place for it: none begins before, in
/// Unix milliseconds. A store that was restored from a backup may have forgotten leases that still run. Where the row
/// is missing, it is 0.
pub const KEPT_LEASE_FLOOR: &str = "unalike-new-names\u{1f}leases";

/// The tag whose sub-keys are what the formats of tags and snowflakes were first: a row's start says it, and its
/// numbers mean nothing.
pub const KEPT_FORMATS: &str = "unalike-formats";

/// Whether the product keeps something for itself under this name.
///
/// Capitals and spaces at the ends make no difference: some tables of other systems take such names for one.
///
/// ```
/// use unalike_storage::{KEPT_FLOOR, is_kept};
/// for name in [KEPT_FLOOR, "redis-leases", "redis-leases\u{1f}default", "order\u{1f}redis-clock:60"] {
///     assert!(is_kept(name));
/// }
/// assert!(!is_kept("order") && !is_kept("redis-leases-2") && !is_kept("order\u{1f}60"));
/// ```
#[must_use]
pub fn is_kept(name: &str) -> bool {
    is_kept_time(name) || is_kept_format(name) || is_named(split_tag(name).0, split_tag(KEPT_FLOOR).0)
}

/// Whether what is kept under this name is a [format](KEPT_FORMATS).
#[must_use]
pub fn is_kept_format(name: &str) -> bool {
    is_named(split_tag(name).0, KEPT_FORMATS)
}

/// Whether time is granted under this name, and no ids: [`is_kept`] except for [`KEPT_FLOOR`], [`KEPT_LEASE_FLOOR`] and
/// the [formats](KEPT_FORMATS).
///
/// ```
/// use unalike_storage::{KEPT_FLOOR, is_kept_time};
/// assert!(is_kept_time("redis-leases\u{1f}default") && !is_kept_time(KEPT_FLOOR));
/// ```
#[must_use]
pub fn is_kept_time(name: &str) -> bool {
    let (tag, sub) = split_tag(name);
    let begins = |sub: &str| {
        sub.trim()
            .as_bytes()
            .get(..KEPT_CLOCK.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(KEPT_CLOCK.as_bytes()))
    };
    is_named(tag, KEPT_LEASES) || sub.is_some_and(begins)
}

fn is_named(tag: &str, kept: &str) -> bool {
    tag.trim().eq_ignore_ascii_case(kept)
}

/// The greatest number that counts as granted under a name that is created just now, where the floor of new names is
/// this one: [`SegmentStore::create_tag`] and first use begin after it. A name for which no number is left is
/// exhausted.
///
/// ```
/// use unalike_storage::{ID_MAX, first_watermark};
/// assert_eq!(first_watermark("order", 500, 1_000), 1_499);
/// assert_eq!(first_watermark("order", 500, ID_MAX), ID_MAX);
/// assert_eq!(first_watermark("redis-leases\u{1f}default", 1, 1_000), 0, "a time");
/// ```
#[must_use]
pub fn first_watermark(name: &str, start: u64, floor: u64) -> u64 {
    let floor = if is_kept_time(name) { 0 } else { floor };
    start.saturating_sub(1).saturating_add(floor).min(ID_MAX)
}

/// Patterns of SQL's `LIKE` that find what is kept, as the names are written: the time of leases, but for
/// [`KEPT_LEASES`] itself, the time of clocks, and [formats](KEPT_FORMATS). None of these is lifted as tags are.
#[must_use]
pub fn kept_patterns() -> [String; 3] {
    [
        format!("{KEPT_LEASES}{SUB_SEPARATOR}%"),
        format!("%{SUB_SEPARATOR}{KEPT_CLOCK}%"),
        format!("{KEPT_FORMATS}{SUB_SEPARATOR}%"),
    ]
}

impl TagCreation {
    /// What holds for a tag of this name. What the product keeps for itself comes into being when it is needed, however
    /// many tags there are.
    #[must_use]
    pub fn of(self, name: &str) -> Self {
        if is_kept(name) { Self { on_first_use: true, tags_max: u64::MAX } } else { self }
    }
}

/// The name under which a durable store grants Redis the time of a namespace of leases.
///
/// A name that is too long is shortened, and a hash of it appended. Two that have one tag would be in each other's way,
/// and nothing else: each would get time that the other one has not.
///
/// # Errors
/// [`StoreError::TagInvalid`] for a name that no namespace has.
///
/// ```
/// use unalike_storage::{KEPT_LEASES, is_kept, time_of_leases};
/// let tag = time_of_leases("default").unwrap();
/// assert!(tag == format!("{KEPT_LEASES}\u{1f}default") && is_kept(&tag));
/// ```
pub fn time_of_leases(namespace: &str) -> Result<String, StoreError> {
    if namespace.len() <= SUB_LEN_MAX {
        return sub_tag(KEPT_LEASES, namespace);
    }
    sub_tag(KEPT_LEASES, &shortened(namespace, SUB_LEN_MAX))
}

/// The beginning of a name and a hash of it, so many bytes together.
fn shortened(name: &str, len_max: usize) -> String {
    let end = format!("~{:016x}", fnv1a(name.as_bytes()));
    let length = name.floor_char_boundary(len_max - end.len());
    format!("{}{end}", name.split_at(length).0)
}

/// The name of a row in which a part of a format is bound; the rows of a part are numbered from 1.
///
/// A name that is too long is shortened, as that of [`time_of_leases`] is. Two that have one row would be refused each
/// other's formats, and nothing else.
///
/// # Errors
/// [`StoreError::TagInvalid`] for a name that no tag and no namespace has.
pub(crate) fn format_name(owner: FormatOwner<'_>, part: FormatPart, row: u32) -> Result<String, StoreError> {
    let (kind, name) = match owner {
        FormatOwner::Tag(name) => ("tag", name),
        FormatOwner::Snowflake(name) => ("snowflake", name),
    };
    let begin = match part {
        FormatPart::Shape => format!("{kind} {row} shape:"),
        FormatPart::Key { id, bits } => format!("{kind} {row} key {id} of {bits} bits:"),
    };
    let len_max = NAME_LEN_MAX - KEPT_FORMATS.len() - 1 - begin.len();
    // No new name may end in a space.
    if name.len() <= len_max && !name.ends_with(char::is_whitespace) {
        return sub_tag(KEPT_FORMATS, &format!("{begin}{name}"));
    }
    sub_tag(KEPT_FORMATS, &format!("{begin}{}", shortened(name, len_max)))
}

/// FNV-1a: the same in each version of this program, and that is all that is asked of it.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Refuses names under which the product keeps something for itself.
///
/// # Errors
/// [`StoreError::TagInvalid`].
pub fn validate_public(tag: &str) -> Result<(), StoreError> {
    if !is_kept(tag) {
        return Ok(());
    }
    let what = if is_kept_time(tag) {
        "time that is granted to leases and clocks"
    } else if is_kept_format(tag) {
        "what the ids of tags look like"
    } else {
        "the floor of new names"
    };
    let reason = format!("{what} is kept under this name: use another");
    Err(StoreError::TagInvalid { tag: split_tag(tag).0.to_owned(), reason })
}

/// A store as requests, commands and configurations may use it: without the names that the product keeps for itself.
///
/// It is a layer that guards each method of the port that names tags, and passes the others on.
///
/// ```
/// use std::sync::Arc;
/// use unalike_storage::{PublicTags, SegmentStore, StoreError};
///
/// async fn use_as_a_caller(store: Arc<dyn SegmentStore>) {
///     let public = PublicTags::new(store);
///     assert!(matches!(public.allocate("redis-leases", 10, 0).await, Err(StoreError::TagInvalid { .. })));
/// }
/// ```
pub struct PublicTags(Arc<dyn SegmentStore>);

impl PublicTags {
    /// In front of this store.
    #[must_use]
    pub fn new(store: Arc<dyn SegmentStore>) -> Self {
        Self(store)
    }
}

impl std::fmt::Debug for PublicTags {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PublicTags").finish_non_exhaustive()
    }
}

#[async_trait]
impl SegmentLayer for PublicTags {
    fn below(&self) -> Option<&dyn SegmentStore> {
        Some(&*self.0)
    }

    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        validate_public(tag)?;
        self.0.allocate(tag, count, at_least).await
    }

    async fn release(&self, tag: &str, tail: TailRelease) -> Result<bool, StoreError> {
        validate_public(tag)?;
        self.0.release(tag, tail).await
    }

    async fn release_many(&self, tails: Vec<(String, TailRelease)>) -> TailsReleased {
        let (kept, public): (Vec<_>, Vec<_>) = tails.into_iter().partition(|(tag, _)| is_kept(tag));
        let mut released = self.0.release_many(public).await;
        for (tag, _) in kept {
            if let Err(error) = validate_public(&tag) {
                released.failed(1, error);
            }
        }
        released
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate_public(tag)?;
        self.0.open_tag(tag).await
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate_public(tag)?;
        self.0.tag(tag).await
    }

    async fn create_tag(&self, tag: &str, options: &TagOptions) -> Result<TagRecord, StoreError> {
        validate_public(tag)?;
        self.0.create_tag(tag, options).await
    }

    async fn change_tag(&self, tag: &str, step: StepPolicy, refill: RefillPolicy) -> Result<TagRecord, StoreError> {
        validate_public(tag)?;
        self.0.change_tag(tag, step, refill).await
    }

    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        validate_public(tag)?;
        self.0.raise_tag(tag, next).await
    }

    async fn retire_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate_public(tag)?;
        self.0.retire_tag(tag).await
    }

    async fn retire_tags(&self, tags: &[String]) -> Result<Option<Vec<TagRecord>>, StoreError> {
        tags.iter().try_for_each(|tag| validate_public(tag))?;
        self.0.retire_tags(tags).await
    }

    async fn create_tags(&self, tags: &[(String, TagOptions)]) -> Result<Option<Vec<TagRecord>>, StoreError> {
        tags.iter().try_for_each(|(tag, _)| validate_public(tag))?;
        self.0.create_tags(tags).await
    }

    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut after = after.map(str::to_owned);
        let mut listed = Vec::new();
        while listed.len() < wanted {
            let page = self.0.tags(after.as_deref(), limit).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.tag.clone());
            listed.extend(page.into_iter().filter(|record| !is_kept(&record.tag)));
        }
        listed.truncate(wanted);
        Ok(listed)
    }

    async fn beyond_record(&self, tag: &str) -> Result<Option<String>, StoreError> {
        validate_public(tag)?;
        self.0.beyond_record(tag).await
    }

    async fn beyond_records(&self, tags: &[String]) -> Result<Option<Vec<Option<String>>>, StoreError> {
        tags.iter().try_for_each(|tag| validate_public(tag))?;
        self.0.beyond_records(tags).await
    }

    async fn ceiling(&self, tag: &str) -> Result<Option<Ceiling>, StoreError> {
        validate_public(tag)?;
        self.0.ceiling(tag).await
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        Ok(self.0.join_stripe(stripe).await?.behind(Self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_namespace_has_a_tag_for_its_time() {
        let of = |namespace: &str| time_of_leases(namespace).unwrap();
        assert_eq!(of("default"), "redis-leases\u{1f}default");
        let fits = "x".repeat(115);
        assert_eq!(of(&fits), format!("redis-leases\u{1f}{fits}"));
        for long in ["x".repeat(116), "x".repeat(128), "\u{1f600}".repeat(32), format!("x{}", "\u{1f600}".repeat(31))] {
            let other = long.replacen(['x', '\u{1f600}'], "y", 1);
            assert!(of(&long).len() <= 128 && of(&long) != of(&other), "{long}");
        }
        // It is written in stores: it stays so for ever.
        assert_eq!(of(&"x".repeat(116)), format!("redis-leases\u{1f}{}~{:016x}", "x".repeat(98), fnv1a(&[b'x'; 116])));
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn each_part_of_a_format_has_a_row() {
        let of = |owner: FormatOwner<'_>, part, row| format_name(owner, part, row).unwrap();
        let order = FormatOwner::Tag("order");
        assert_eq!(of(order, FormatPart::Shape, 1), "unalike-formats\u{1f}tag 1 shape:order");
        assert_eq!(
            of(order, FormatPart::Key { id: 3, bits: 24 }, 12),
            "unalike-formats\u{1f}tag 12 key 3 of 24 bits:order"
        );
        assert_eq!(
            of(FormatOwner::Snowflake("order"), FormatPart::Shape, 1),
            "unalike-formats\u{1f}snowflake 1 shape:order"
        );
        for name in ["order ".to_owned(), "x".repeat(128), "\u{1f600}".repeat(32)] {
            let stored = of(FormatOwner::Snowflake(&name), FormatPart::Key { id: 255, bits: 63 }, 1_000);
            assert!(stored.len() <= 128 && is_kept(&stored) && !is_kept_time(&stored), "{stored}");
            assert!(crate::validate_new_tag(&stored).is_ok(), "{stored}");
            let other = name.replacen(['o', 'x', '\u{1f600}'], "y", 1);
            assert_ne!(of(FormatOwner::Snowflake(&other), FormatPart::Key { id: 255, bits: 63 }, 1_000), stored);
        }
    }

    #[test]
    fn kept_names_are_found_however_they_are_written() {
        for kept in
            ["redis-leases", "Redis-Leases ", "redis-leases\u{1f}x", "a\u{1f}redis-clock:", "a\u{1f}REDIS-clock:7"]
        {
            assert!(is_kept(kept) && is_kept_time(kept) && validate_public(kept).is_err(), "{kept:?}");
        }
        for kept in [
            KEPT_FLOOR,
            KEPT_LEASE_FLOOR,
            "unalike-new-names",
            " Unalike-New-Names",
            "unalike-new-names\u{1f}x",
            KEPT_FORMATS,
            "Unalike-formats\u{1f}x",
        ] {
            assert!(is_kept(kept) && !is_kept_time(kept) && validate_public(kept).is_err(), "{kept:?}");
        }
        for other in ["redis-lease", "redis-clock:7", "a\u{1f}redis-clock", "a\u{1f}7", "", "x\u{1f}redis-leases"] {
            assert!(!is_kept(other) && validate_public(other).is_ok(), "{other:?}");
        }
    }
}
