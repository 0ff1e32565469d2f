//! The segment port in memory: one row per tag.

use std::ops::Bound;
use std::sync::Arc;

use async_trait::async_trait;
use unalike_storage::{
    ID_MAX, JoinedStripe, KEPT_FLOOR, LeasesKept, RefillPolicy, Segment, SegmentStore, StepPolicy, StoreError,
    StoreIdentity, Stripe, StripeNumbers, TagOptions, TagRecord, TailRelease, first_watermark, split_tag,
    validate_allocate, validate_new_tag, validate_policies, validate_raise, validate_tag,
};

use crate::{MemoryStore, State};

/// A tag.
#[derive(Clone, Debug)]
pub(crate) struct TagRow {
    options: TagOptions,
    /// The greatest number granted; that of [`first_watermark`] at first.
    watermark: u64,
    /// No release lowers the watermark below this: what lies there may be somebody else's.
    settled: u64,
    /// Grows with every grant, release and raise.
    version: u64,
}

impl TagRow {
    fn new(options: TagOptions, watermark: u64) -> Self {
        Self { options, watermark, settled: watermark, version: 0 }
    }

    fn record(&self, tag: &str) -> TagRecord {
        TagRecord { tag: tag.to_owned(), options: self.options, watermark: self.watermark, version: self.version }
    }

    /// The next numbers, `count` of them or what is left.
    fn grant(&mut self, count: u64, at_least: u64) -> Option<Segment> {
        if self.watermark >= ID_MAX {
            return None;
        }
        let start = (self.watermark + 1).max(at_least);
        let last = start + (count - 1).min(ID_MAX - start);
        // Who asks for numbers from right behind the newest grant was told of that grant, so it is the one who holds
        // it: both together are one tail. Otherwise the tail begins anew.
        if at_least != self.watermark + 1 {
            self.settled = start - 1;
        }
        self.watermark = last;
        self.version += 1;
        Some(Segment { start, end: last + 1, stride: 1, generation: 0, version: self.version })
    }

    fn take_back(&mut self, tail: TailRelease) -> bool {
        let granted = self.settled < tail.start && tail.start <= self.watermark;
        if tail.version != self.version || !granted {
            return false;
        }
        self.watermark = tail.start - 1;
        self.settled = self.watermark;
        self.version += 1;
        true
    }
}

impl MemoryStore {
    /// The tag's row, created when it is unknown and that is allowed.
    fn tag_row<'s>(&self, state: &'s mut State, tag: &str) -> Result<&'s mut TagRow, StoreError> {
        if !state.tags.contains_key(tag) {
            let options = match split_tag(tag) {
                // A sub-key has the options of its tag.
                (name, Some(_)) => self.tag_row(state, name)?.options,
                (_, None) if self.options.creation.of(tag).on_first_use => TagOptions::default(),
                (_, None) => return Err(StoreError::tag_unknown(tag)),
            };
            self.insert_tag(state, tag, options)?;
        }
        known_row(state, tag)
    }

    fn insert_tag(&self, state: &mut State, tag: &str, options: TagOptions) -> Result<(), StoreError> {
        validate_new_tag(tag)?;
        self.check_joined(state)?;
        // A sub-key ends with its tag.
        if let (name, Some(_)) = split_tag(tag)
            && let Some(owner) = state.tags.get(name)
        {
            owner.record(name).options_of_sub_keys(tag)?;
        }
        let tags_max = self.options.creation.of(tag).tags_max;
        // Sub-keys are not counted. Counting is for those who come near the limit.
        let is_tag = |name: &str| split_tag(name).1.is_none();
        let tags = || state.tags.keys().filter(|name| is_tag(name)).count() as u64;
        if is_tag(tag) && state.tags.len() as u64 >= tags_max && tags() >= tags_max {
            return Err(StoreError::TagLimit { tag: tag.to_owned(), tags_max });
        }
        let floor = state.tags.get(KEPT_FLOOR).map_or(0, |row| row.watermark);
        state.tags.insert(tag.to_owned(), TagRow::new(options, first_watermark(tag, options.start, floor)));
        Ok(())
    }

    fn check_joined(&self, state: &State) -> Result<(), StoreError> {
        Stripe::check_grant(NAME, state.stripe.as_ref(), self.joined.as_ref())
    }

    /// This client, as the stripe: what [`SegmentStore::join_stripe`] answers.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when another stripe is recorded, or when the store was used alone.
    pub fn join(&self, stripe: &Stripe) -> Result<Self, StoreError> {
        let mut state = self.state()?;
        let has_granted = state.tags.values().any(|row| row.version > 0);
        stripe.check_join(NAME, state.stripe.as_ref(), has_granted)?;
        state.stripe = Some(*stripe);
        drop(state);
        Ok(self.joined_as(stripe))
    }

    /// This client as the stripe that it joined before. Each of its requests fails where another one is recorded.
    #[must_use]
    pub fn joined_as(&self, stripe: &Stripe) -> Self {
        Self { joined: Some(*stripe), ..self.clone() }
    }
}

/// For messages.
const NAME: &str = "the store in memory";

fn known_row<'s>(state: &'s mut State, tag: &str) -> Result<&'s mut TagRow, StoreError> {
    state.tags.get_mut(tag).ok_or_else(|| StoreError::tag_unknown(tag))
}

#[async_trait]
impl SegmentStore for MemoryStore {
    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        validate_allocate(tag, count, at_least)?;
        let mut state = self.state()?;
        self.check_joined(&state)?;
        let row = self.tag_row(&mut state, tag)?;
        row.grant(count, at_least).ok_or_else(|| StoreError::exhausted(tag))
    }

    async fn release(&self, tag: &str, tail: TailRelease) -> Result<bool, StoreError> {
        validate_tag(tag)?;
        let mut state = self.state()?;
        if self.check_joined(&state).is_err() {
            return Ok(false);
        }
        Ok(state.tags.get_mut(tag).is_some_and(|row| row.take_back(tail)))
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        let mut state = self.state()?;
        Ok(self.tag_row(&mut state, tag)?.record(tag))
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        Ok(known_row(&mut *self.state()?, tag)?.record(tag))
    }

    async fn create_tag(&self, tag: &str, options: &TagOptions) -> Result<TagRecord, StoreError> {
        options.validate(tag)?;
        let mut state = self.state()?;
        if state.tags.contains_key(tag) {
            return Err(StoreError::TagExists { tag: tag.to_owned() });
        }
        self.insert_tag(&mut state, tag, *options)?;
        Ok(known_row(&mut state, tag)?.record(tag))
    }

    async fn change_tag(&self, tag: &str, step: StepPolicy, refill: RefillPolicy) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        validate_policies(tag, step, refill)?;
        let mut state = self.state()?;
        let row = known_row(&mut state, tag)?;
        row.options.step = step;
        row.options.refill = refill;
        Ok(row.record(tag))
    }

    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        validate_raise(tag, next)?;
        let mut state = self.state()?;
        self.check_joined(&state)?;
        let row = known_row(&mut state, tag)?;
        row.watermark = row.watermark.max(next - 1);
        row.settled = row.settled.max(next - 1);
        row.version += 1;
        Ok(row.record(tag))
    }

    async fn retire_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        let mut state = self.state()?;
        self.check_joined(&state)?;
        let row = known_row(&mut state, tag)?;
        let record = row.record(tag);
        (row.watermark, row.settled) = (ID_MAX, ID_MAX);
        row.version += 1;
        Ok(record)
    }

    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let state = self.state()?;
        let tags = state.tags.range::<str, _>((from, Bound::Unbounded));
        Ok(tags.take(limit).map(|(tag, row)| row.record(tag)).collect())
    }

    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        let random = || (u128::from((self.options.random)()) << 64) | u128::from((self.options.random)());
        Ok(Some(*self.state()?.identity.get_or_insert_with(|| StoreIdentity(random()))))
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.state().map(drop)
    }

    async fn leave_leases(&self, namespace: &str) -> Result<(), StoreError> {
        let mut state = self.state()?;
        if state.namespaces.contains_key(namespace) {
            return Err(StoreError::leases_elsewhere(namespace, LeasesKept::InStore));
        }
        state.left.insert(namespace.to_owned());
        Ok(())
    }

    fn keeps_formats(&self) -> bool {
        true
    }

    async fn stripe(&self) -> Result<Option<Stripe>, StoreError> {
        Ok(self.state()?.stripe)
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        Ok(JoinedStripe { store: Arc::new(self.join(stripe)?), numbers: StripeNumbers::Counted })
    }

    async fn restripe(&self, expected: Option<&Stripe>, stripe: Option<&Stripe>) -> Result<(), StoreError> {
        let mut state = self.state()?;
        Stripe::check_change(NAME, state.stripe.as_ref(), expected, stripe)?;
        state.stripe = stripe.copied();
        Ok(())
    }
}
