//! The segment port: numbers under a tag, granted in intervals.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use sha2::{Digest as _, Sha256};
use unalike_core::{ID_MAX, RefillPolicy, SUB_SEPARATOR, Segment, StepPolicy, TailRelease, is_tag};

use crate::formats::bind_in_tags;
use crate::{FormatBinding, FormatOwner, FormatPart, StoreError, random_128};

/// Tails that are given back at a time where a store cannot write many at once.
const RELEASES_AT_ONCE: usize = 16;

/// Grants intervals of numbers under a tag, each to one holder for ever.
///
/// **What to implement.** One object serves a host, so this is one port, in four parts:
/// - *granting*, which every store needs: [`allocate`](Self::allocate), [`release`](Self::release),
///   [`open_tag`](Self::open_tag) and [`check`](Self::check);
/// - *tags*, which every store needs: [`tag`](Self::tag), [`create_tag`](Self::create_tag),
///   [`change_tag`](Self::change_tag), [`raise_tag`](Self::raise_tag) and [`tags`](Self::tags);
/// - *stripes and ceilings*, for stores that have them: [`stripe`](Self::stripe), [`join_stripe`](Self::join_stripe),
///   [`restripe`](Self::restripe) and [`ceiling`](Self::ceiling);
/// - *moving tags elsewhere*, for stores that can end a tag: [`retire_tag`](Self::retire_tag),
///   [`identity`](Self::identity), [`recorded_identity`](Self::recorded_identity),
///   [`folds_names`](Self::folds_names) and [`beyond_record`](Self::beyond_record).
///
/// The first two have no defaults. The others answer by default what is true of a store without the feature, and those
/// that do many at once do them one by one. Whoever changes only some requests of a store writes a
/// [`SegmentLayer`](crate::SegmentLayer).
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
    /// An unknown tag is created with default options when the store's [`TagCreation`] allows it. A [sub-key](sub_tag)
    /// of a tag that exists is always created, with the tag's own options; one of an unknown tag creates that first.
    /// Starts ascend per tag, generation, stride and remainder.
    ///
    /// # Errors
    /// [`StoreError::TagUnknown`], [`StoreError::TagLimit`], [`StoreError::TagInvalid`], [`StoreError::Exhausted`]
    /// (also when `at_least` is above 2^63 - 1), [`StoreError::Refused`] for a count of 0, and whatever the connection
    /// brings.
    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError>;

    /// Takes numbers back, from `tail.start` to the tag's watermark, if the tag's row still has `tail.version`.
    ///
    /// Answers whether they were taken back. The row's version grows with every grant, release and raise, so a request
    /// that arrives twice, or late, changes nothing. A tail may begin in an earlier grant only if the store can tell
    /// that nobody else was granted anything from there on; a store in doubt answers `false`, and so does one that
    /// takes nothing back.
    ///
    /// # Errors
    /// Any error of the connection; the caller then leaves a gap.
    async fn release(&self, tag: &str, tail: TailRelease) -> Result<bool, StoreError>;

    /// Gives back the tails of many segments, as [`SegmentStore::release`] does each: when a program ends that has many
    /// tags open. By default some at a time; a store that can write many at once does.
    ///
    /// What fails is a gap, and nobody tries it again: a tail that was taken may be granted again at once.
    async fn release_many(&self, tails: Vec<(String, TailRelease)>) -> TailsReleased {
        let requests: Vec<_> =
            tails.into_iter().map(|(tag, tail)| async move { self.release(&tag, tail).await }).collect();
        let mut answers = stream::iter(requests).buffer_unordered(RELEASES_AT_ONCE);
        let mut released = TailsReleased::default();
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(taken_back) => released.taken_back += u64::from(taken_back),
                Err(error) => released.failed(1, error),
            }
        }
        released
    }

    /// The tag as the store keeps it; created with default options when it is unknown and [`TagCreation`] allows it.
    ///
    /// # Errors
    /// As [`SegmentStore::allocate`].
    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError>;

    /// The tag as the store keeps it; never creates one.
    ///
    /// # Errors
    /// [`StoreError::TagUnknown`], [`StoreError::TagInvalid`], and any error of the connection.
    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError>;

    /// Creates a tag with these options, whatever [`TagCreation`] says about first use (its limit applies).
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

    /// Ends a tag: answers its record as it was, and nothing is ever granted under it again, to this program or to any
    /// other that uses the same row. Reading and ending are one step, so the numbers can continue in another store
    /// above that record's watermark. From then on no sub-key of the tag is created: the store checks the tag in the
    /// step that creates one. So whoever lists the sub-keys afterwards sees all that will ever exist.
    ///
    /// # Errors
    /// [`StoreError::TagUnknown`], [`StoreError::TagInvalid`]; [`StoreError::Refused`] by a store that cannot end a
    /// tag.
    async fn retire_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        Err(StoreError::refused(format!("this store cannot end the tag {tag:?}")))
    }

    /// Ends these tags, as [`SegmentStore::retire_tag`] ends each, all in one step; their records in the same order.
    /// `None`, and nothing is changed, where the store cannot, or where something is to be said of one of them: then
    /// they are ended one by one.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn retire_tags(&self, _tags: &[String]) -> Result<Option<Vec<TagRecord>>, StoreError> {
        Ok(None)
    }

    /// Creates these tags, as [`SegmentStore::create_tag`] creates each, all in one step; their records in the same
    /// order. `None`, and nothing is changed, where the store cannot, or where something is to be said of one of them,
    /// such as that it exists: then they are created one by one.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn create_tags(&self, _tags: &[(String, TagOptions)]) -> Result<Option<Vec<TagRecord>>, StoreError> {
        Ok(None)
    }

    /// Up to `limit` tags in ascending byte order of their names, those after `after` only.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError>;

    /// The random name of the data in this store: the same at each time, over each connection, after a restart and
    /// after a move; another one in each store that was begun by itself. A copy of the data has the same.
    ///
    /// Whoever hands out what this store grants remembers it, and refuses the grants of another store: Redis does.
    /// `None` in a store that has no such name, which cannot back a Redis.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        Ok(None)
    }

    /// The [`identity`](Self::identity), where it was asked for before: a store that is only read is given none by
    /// this. `None` where nobody has asked for it yet, so this is not the data of a store that has one.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn recorded_identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        self.identity().await
    }

    /// What makes this store treat names as one that differ in more than spaces at their end, such as in letter case,
    /// in words: `None` in a store that distinguishes all names. The numbers continue under each of these names; a tag
    /// that is continued in another store would begin anew there under all of its names but one.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn folds_names(&self) -> Result<Option<String>, StoreError> {
        Ok(None)
    }

    /// What decides a tag's numbers but is not in its record, in words, such as that others count the numbers in
    /// between: `None` where its record says everything. Another store that continues the tag would not know it.
    ///
    /// # Errors
    /// As [`SegmentStore::tag`].
    async fn beyond_record(&self, _tag: &str) -> Result<Option<String>, StoreError> {
        Ok(None)
    }

    /// [`SegmentStore::beyond_record`] of each of these tags, in the same order; `None` where the store has to be asked
    /// one by one.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn beyond_records(&self, _tags: &[String]) -> Result<Option<Vec<Option<String>>>, StoreError> {
        Ok(None)
    }

    /// Whether the store answers and can be written to, for readiness checks.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn check(&self) -> Result<(), StoreError>;

    /// How far a tag has got below its ceiling; `None` where there is none: in a durable store, which grants each
    /// number itself, and for a tag that has not been used.
    ///
    /// # Errors
    /// [`StoreError::TagInvalid`], and any error of the connection.
    async fn ceiling(&self, tag: &str) -> Result<Option<Ceiling>, StoreError> {
        validate_tag(tag)?;
        Ok(None)
    }

    /// Notes that a Redis which this store grants its time keeps the leases of a namespace, and not the store itself:
    /// at its first use, in one step, also between processes. A store that leases no workers has nothing to note.
    ///
    /// # Errors
    /// [`StoreError::LeasesElsewhere`] when the store leases workers of the namespace itself; and any error of the
    /// connection.
    async fn leave_leases(&self, _namespace: &str) -> Result<(), StoreError> {
        Ok(())
    }

    /// Whether the store keeps what the formats of tags were first: as tags of its own, in the usual case.
    fn keeps_formats(&self) -> bool {
        false
    }

    /// Looks up, or binds, what a part of a format is; answers what is bound then. One step, also between processes.
    /// `None` where nothing is bound, and always from a store that [keeps no formats](Self::keeps_formats).
    ///
    /// # Errors
    /// Any error of the connection.
    async fn bind_format(
        &self,
        owner: FormatOwner<'_>,
        part: FormatPart,
        binding: FormatBinding,
    ) -> Result<Option<u64>, StoreError> {
        if self.keeps_formats() { bind_in_tags(self, owner, part, binding).await } else { Ok(None) }
    }

    /// What may hide formats from this user of the store, in words, with what to do: `None` where it sees all of them.
    /// A tag that goes on in another store would have lost its format there.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn hides_formats(&self) -> Result<Option<String>, StoreError> {
        Ok(None)
    }

    /// How many stores share a tag's numbers between them: 1, or that of the stripes. A record of several has the
    /// greatest watermark of theirs; lower numbers may come from the others.
    fn stripes(&self) -> usize {
        1
    }

    /// The place among stripes that this store is recorded to have; `None` when it is not a stripe.
    ///
    /// # Errors
    /// Any error of the connection.
    async fn stripe(&self) -> Result<Option<Stripe>, StoreError> {
        Ok(None)
    }

    /// A client that uses the store as this stripe, over the connections of this one. The first one records the stripe
    /// durably, in a store that has never granted anything. A client is granted numbers only while the record is what
    /// it joined.
    ///
    /// A store whose stripes are [counted](StripeNumbers::Counted) begins new names above
    /// [`KEPT_FLOOR`](crate::KEPT_FLOOR), whoever creates them: [`first_watermark`](crate::first_watermark).
    ///
    /// **This client stays what it was**: not a stripe, or the stripe that it joined. So whoever uses it continues to
    /// count as before, or is granted nothing.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when another stripe is recorded, when the store was used alone, and by a store that
    /// cannot be a stripe; and any error of the connection.
    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        let what = format!("this store cannot be {stripe}: it keeps no record of it");
        Err(StoreError::refused(what))
    }

    /// Records another place among stripes, a mark of a resize, or none, if what is recorded is `expected`: both in one
    /// step, also between processes. Every client that joined another one is granted nothing from then on. Only for
    /// resizing, which lifts all tags before anybody joins.
    ///
    /// # Errors
    /// [`StoreError::PlaceChanged`] when something else is recorded; [`StoreError::Refused`] by a store that cannot be
    /// a stripe; and any error of the connection.
    async fn restripe(&self, _expected: Option<&Stripe>, stripe: Option<&Stripe>) -> Result<(), StoreError> {
        let what = format!("this store cannot be {}: it keeps no record of it", Stripe::name(stripe));
        Err(StoreError::refused(what))
    }

    /// Closes what it has open and waits until that is done; requests fail from now on. Not needed for safety.
    async fn close(&self) {}

    /// Where the store is, for messages: a path, or a host and a database, without user and password.
    fn address(&self) -> Option<String> {
        None
    }
}

/// The random name of the data in a store: see [`SegmentStore::identity`].
///
/// ```
/// use unalike_storage::StoreIdentity;
/// assert_eq!(StoreIdentity(0x5eed).to_string(), "00000000000000000000000000005eed");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreIdentity(pub u128);

impl StoreIdentity {
    /// A new one, for a store that is begun.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the system gives no random numbers.
    pub fn random() -> Result<Self, StoreError> {
        random_128().map(Self)
    }

    /// The name of a part that numbers by itself on the same data, such as Redis under a prefix on what its backing
    /// store grants: always the same for the same part.
    ///
    /// ```
    /// use unalike_storage::StoreIdentity;
    /// let data = StoreIdentity(0x5eed);
    /// assert_eq!(data.of_part("redis"), data.of_part("redis"));
    /// assert_ne!(data.of_part("redis"), data.of_part("leases"));
    /// ```
    #[must_use]
    pub fn of_part(self, part: &str) -> Self {
        let digest = Sha256::new().chain_update(self.0.to_be_bytes()).chain_update(part).finalize();
        Self(digest.iter().take(16).fold(0, |name, byte| name << 8 | u128::from(*byte)))
    }
}

impl FromStr for StoreIdentity {
    type Err = StoreError;

    /// Reads the 32 hexadecimal digits that it is displayed as.
    fn from_str(text: &str) -> Result<Self, StoreError> {
        let is_identity = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let identity = is_identity.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        identity.map(Self).ok_or_else(|| {
            let shown: String = text.chars().take(40).collect();
            StoreError::refused(format!("{shown:?} is not the identity of a store, which has 32 hexadecimal digits"))
        })
    }
}

impl fmt::Display for StoreIdentity {
    /// 32 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// How far a quick store has got with the numbers that a durable store granted to it (the `cur`, `max`, `seq_recently`
/// and `seq_long_term` of Redis counters with a ceiling).
///
/// ```
/// use unalike_storage::Ceiling;
/// let ceiling = Ceiling { last: 1_200, max: 100_000, used_recently: 50, used_long_term: 1_200 };
/// assert_eq!(ceiling.max - ceiling.last, 98_800, "so many are left");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceiling {
    /// The number that was handed out last; `max` when what is left cannot be handed out.
    pub last: u64,
    /// The ceiling: the greatest number that may be handed out before it is raised.
    pub max: u64,
    /// How many numbers were handed out in the last 5 minutes.
    pub used_recently: u64,
    /// How many numbers were handed out in the last 30 minutes.
    pub used_long_term: u64,
}

/// One place among several independent stores that number together: store `index` of `count` grants the numbers that
/// are `index + 1` modulo `count`, so no two stores ever grant the same one.
///
/// ```
/// use unalike_storage::Stripe;
/// let second = Stripe { set: 0x5eed, index: 1, count: 3 }; // grants 2, 5, 8, ..
/// assert_eq!(second.to_string(), "stripe 1 of 3 in the set 00000000000000000000000000005eed");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stripe {
    /// The random name of the set; another one after each resize. Never 0.
    pub set: u128,
    /// Which store of the set: below `count`.
    pub index: u32,
    /// How many stores the set has: 2 to [`Stripe::COUNT_MAX`].
    pub count: u32,
}

impl Stripe {
    /// The most stores of a set: as many remainders as a sequence tells apart when it checks that grants ascend.
    pub const COUNT_MAX: u32 = 1_024;

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`StoreError::Refused`] saying what is out of range.
    pub fn validate(&self) -> Result<(), StoreError> {
        if self.set == 0 || !(2..=Self::COUNT_MAX).contains(&self.count) || self.index >= self.count {
            let what = format!("there is no {self}: a set has 2 to {} stores and is not 0", Self::COUNT_MAX);
            return Err(StoreError::refused(what));
        }
        Ok(())
    }

    /// Checks that a client that joined `joined` may be granted something from `store` (a name for messages), which is
    /// recorded to be `recorded`.
    ///
    /// # Errors
    /// [`StoreError::Refused`] saying what to do.
    pub fn check_grant(store: &str, recorded: Option<&Self>, joined: Option<&Self>) -> Result<(), StoreError> {
        if recorded == joined {
            return Ok(());
        }
        let is = Self::name(recorded);
        let what = match joined {
            _ if recorded.is_some_and(Self::is_mark) => format!(
                "{store} is {is}: restart this program with the stores that have its tags now; if that was broken off, repeat \
                 `unalike stripes resize`, or `unalike store rebind`"
            ),
            None => format!("{store} is {is}: use it together with all stores of its set, in their order"),
            Some(joined) => format!(
                "{store} is {is}, and this program uses it as {joined}: the stripes were resized, so restart this program \
                 with the stores of the new set"
            ),
        };
        Err(StoreError::refused(what))
    }

    /// Checks that `store` (a name for messages), which is recorded to be `recorded` and `has_granted` something or
    /// not, may be joined as this stripe.
    ///
    /// # Errors
    /// [`StoreError::Refused`] saying what to do.
    pub fn check_join(&self, store: &str, recorded: Option<&Self>, has_granted: bool) -> Result<(), StoreError> {
        self.validate_record()?;
        let what = match recorded {
            Some(recorded) if recorded == self => return Ok(()),
            Some(recorded) => format!("{store} is {recorded}, and not {self}"),
            None if has_granted => format!(
                "{store} was used alone, so it cannot be {self} as it is: make it one with `unalike stripes resize`"
            ),
            None => return Ok(()),
        };
        Err(StoreError::refused(what))
    }

    /// Checks that the record of `store` (a name for messages) is the one that a change of it expects.
    ///
    /// # Errors
    /// [`StoreError::PlaceChanged`].
    pub fn check_change(
        store: &str,
        recorded: Option<&Self>,
        expected: Option<&Self>,
        wanted: Option<&Self>,
    ) -> Result<(), StoreError> {
        wanted.map_or(Ok(()), Self::validate_record)?;
        if recorded == expected {
            return Ok(());
        }
        let (is, was) = (Self::name(recorded), Self::name(expected));
        let what =
            format!("{store} is {is}, and was {was} a moment ago: somebody else is resizing it; look, and repeat");
        Err(StoreError::PlaceChanged { what, recorded: recorded.copied() })
    }

    /// In words, for messages.
    fn name(stripe: Option<&Self>) -> String {
        stripe.map_or_else(|| "a store that is used alone".to_owned(), Self::to_string)
    }
}

impl fmt::Display for Stripe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index, count) = self.numbering();
        let mark = match (self.is_mark(), self.is_fence()) {
            (false, _) => return write!(f, "stripe {index} of {count} in the set {:032x}", self.set),
            (true, true) => "fenced while its tags are moved",
            (true, false) => "left, as its tags were moved to other stores",
        };
        write!(f, "{mark} ({:032x})", self.set)
    }
}

/// A client that joined a stripe: see [`SegmentStore::join_stripe`].
#[derive(Clone)]
pub struct JoinedStripe {
    /// The store, used as that stripe. It shares its connections with the client that joined: closing one closes both.
    pub store: Arc<dyn SegmentStore>,
    /// What the numbers that it grants are.
    pub numbers: StripeNumbers,
}

impl JoinedStripe {
    /// The same client behind a layer: what forwards to a store forwards to the joined one as well.
    #[must_use]
    pub fn behind<L: SegmentStore>(self, layer: impl FnOnce(Arc<dyn SegmentStore>) -> L) -> Self {
        Self { store: Arc::new(layer(self.store)), numbers: self.numbers }
    }
}

impl fmt::Debug for JoinedStripe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinedStripe").field("numbers", &self.numbers).finish_non_exhaustive()
    }
}

/// What became of tails that were given back: see [`SegmentStore::release_many`].
///
/// ```
/// use unalike_storage::{StoreError, TailsReleased};
/// let mut released = TailsReleased { taken_back: 7, ..TailsReleased::default() };
/// released.failed(2, StoreError::tag_unknown("order"));
/// assert_eq!((released.taken_back, released.failures), (7, 2));
/// ```
#[derive(Debug, Default)]
pub struct TailsReleased {
    /// How many the store took: their numbers are granted again.
    pub taken_back: u64,
    /// How many requests failed: their numbers are a gap. What the store refused since something was granted after a
    /// tail is neither.
    pub failures: u64,
    /// Why the first of them failed.
    pub error: Option<StoreError>,
}

impl TailsReleased {
    /// So many failed, with this error.
    pub fn failed(&mut self, tails: usize, error: StoreError) {
        self.failures += tails as u64;
        self.error.get_or_insert(error);
    }

    /// Both together.
    pub fn add(&mut self, more: Self) {
        self.taken_back += more.taken_back;
        self.failures += more.failures;
        if self.error.is_none() {
            self.error = more.error;
        }
    }
}

/// What the numbers that a stripe grants are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StripeNumbers {
    /// It counts 1, 2, 3, .. as if it were not a stripe: whoever uses it makes `(n - 1) * count + index + 1` of `n`.
    Counted,
    /// Its segments have the stride and the remainder of the stripe already.
    Strided,
}

/// The name under which a tag's numbers for one sub-key are kept: a row of its own, with the tag's options, made on
/// first use (the issuer's `business` and `subBusiness`). Ids are unique per tag and sub-key.
///
/// ```
/// use unalike_storage::{split_tag, sub_tag};
/// let chat = sub_tag("chat", "user_1")?;
/// assert_eq!(split_tag(&chat), ("chat", Some("user_1")));
/// assert_eq!(split_tag("chat"), ("chat", None));
/// # Ok::<(), unalike_storage::StoreError>(())
/// ```
///
/// # Errors
/// [`StoreError::TagInvalid`] when either is not a name, or both together have more than 127 bytes.
pub fn sub_tag(tag: &str, sub: &str) -> Result<String, StoreError> {
    let name = format!("{tag}{SUB_SEPARATOR}{sub}");
    if is_tag(&name) {
        return Ok(name);
    }
    validate_tag(tag)?;
    let reason = if sub.is_empty() {
        "its sub-key is empty".to_owned()
    } else if sub.chars().any(char::is_control) || tag.contains(SUB_SEPARATOR) {
        "its sub-key holds a control character".to_owned()
    } else {
        format!("with its sub-key it has {} bytes, 127 at most are allowed", name.len() - 1)
    };
    Err(StoreError::TagInvalid { tag: tag.to_owned(), reason })
}

/// A tag, and the sub-key in its name if there is one.
#[must_use]
pub fn split_tag(name: &str) -> (&str, Option<&str>) {
    match name.split_once(SUB_SEPARATOR) {
        Some((tag, sub)) => (tag, Some(sub)),
        None => (name, None),
    }
}

/// A name for people: the tag, and its sub-key apart.
///
/// ```
/// use unalike_storage::{shown, sub_tag};
/// assert_eq!(shown("chat"), "\"chat\"");
/// assert_eq!(shown(&sub_tag("chat", "user_1").unwrap()), "\"chat\" (sub-key \"user_1\")");
/// ```
#[must_use]
pub fn shown(name: &str) -> String {
    match split_tag(name) {
        (tag, Some(sub)) => format!("{tag:?} (sub-key {sub:?})"),
        (tag, None) => format!("{tag:?}"),
    }
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
    /// No tag is created beyond this many: a client with a bug must not fill the store. [Sub-keys](sub_tag) are not
    /// counted: a program that lets others name them limits them per tag, and they take no place from a tag.
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

    /// The mode of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Buffered, Self::Ordered].into_iter().find(|mode| mode.name() == name)
    }
}

/// What a tag is created with.
///
/// Releases add fields: write `..TagOptions::default()` at the end.
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
        return Err(StoreError::refused(format!("0 numbers were asked for under {tag:?}")));
    }
    if at_least > ID_MAX {
        return Err(StoreError::exhausted(tag));
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
    if is_tag(tag) {
        return Ok(());
    }
    let reason = if tag.is_empty() {
        "it is empty, and a name has 1 to 128 bytes".to_owned()
    } else if tag.chars().any(char::is_control) {
        "it holds a control character".to_owned()
    } else {
        format!("its name begins so and has {} bytes, and a name has 1 to 128 bytes", tag.len())
    };
    let shown: String = tag.chars().take(32).collect();
    Err(StoreError::TagInvalid { tag: shown, reason })
}

/// Checks the name of a tag that is about to be created, and its sub-key's: a space at either end is a mistake of the
/// caller, and would begin at 1 what was meant to continue. Tags that exist are used whatever their names are.
///
/// ```
/// use unalike_storage::{validate_new_tag, validate_tag};
/// assert!(validate_tag("order ").is_ok() && validate_new_tag("order ").is_err());
/// assert!(validate_new_tag("my order").is_ok());
/// ```
///
/// # Errors
/// [`StoreError::TagInvalid`].
pub fn validate_new_tag(tag: &str) -> Result<(), StoreError> {
    validate_tag(tag)?;
    let (name, sub) = split_tag(tag);
    let invalid = |what: &str| {
        let reason = format!("{what} has a space at an end, and no new one may: leave the space out");
        Err(StoreError::TagInvalid { tag: name.to_owned(), reason })
    };
    match sub.filter(|sub| sub.trim() != *sub) {
        Some(sub) => invalid(&format!("its sub-key {sub:?}")),
        None if name.trim() != name => invalid("its name"),
        None => Ok(()),
    }
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
    /// The greatest number that may have been handed out. Before the first grant it is `start - 1`, or the
    /// [floor of new names](crate::KEPT_FLOOR) above that.
    pub watermark: u64,
    /// Grows with every grant, release and raise.
    pub version: u64,
}

impl TagRecord {
    /// What a new sub-key of this tag gets: the tag's own options.
    ///
    /// A store checks this in the step that makes a row for the sub-key `name`, under whatever keeps the tag's row as
    /// it is until that row is there.
    ///
    /// # Errors
    /// [`StoreError::Exhausted`] when the tag has ended: its sub-keys continue elsewhere, or will begin there.
    ///
    /// ```
    /// use unalike_storage::{ID_MAX, StoreError, TagOptions, TagRecord, sub_tag};
    ///
    /// let order = TagRecord { tag: "order".to_owned(), options: TagOptions::default(), watermark: 7, version: 1 };
    /// let name = sub_tag("order", "shop")?;
    /// assert_eq!(order.options_of_sub_keys(&name)?, order.options);
    /// let ended = TagRecord { watermark: ID_MAX, ..order };
    /// assert!(matches!(ended.options_of_sub_keys(&name), Err(StoreError::Exhausted { .. })));
    /// # Ok::<(), StoreError>(())
    /// ```
    pub fn options_of_sub_keys(&self, name: &str) -> Result<TagOptions, StoreError> {
        if self.watermark >= ID_MAX { Err(StoreError::exhausted(name)) } else { Ok(self.options) }
    }
}
