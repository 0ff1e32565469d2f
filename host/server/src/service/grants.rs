//! Whole grants for other hosts: segments of tags, and workers of snowflakes.
//!
//! A host that is granted something here makes ids of it by itself, so nothing of a format is applied: only the
//! greatest id that a format can show bounds what is granted. A host that shows ids in a format binds it here, and says
//! its shape with each request for numbers. Each answer names the store that granted, by which a host with several
//! servers in its list knows that they have the same one.

use unalike::storage::{
    FormatBinding, FormatOwner, FormatPart, GrantId, Lease, LeaseAcquire, LeaseExtend, Segment, StoreError,
    StoreIdentity, TagRecord, TailRelease,
};
use unalike::{Format, ID_MAX, Layout};

use crate::config::formats::Refusal;
use crate::config::names::{plain_tag, stored_name};
use crate::config::tokens::Permit;
use crate::quotas::OverQuota;
use crate::service::Service;
use crate::service::leases::SharedLeases;
use crate::service::problem::{Kind, Of, Problem};
use crate::service::quotas::Counted;
use crate::service::tags::check_raise;
use crate::words::shortened;

/// What a host can do that asked for the bare numbers of a tag.
const NO_BARE_NUMBERS: &str = "a program is granted no bare numbers of them. Show them in that format, by \
                               ids.formatted(..), or take texts from /v1/sequences/TAG/ids";

/// The names of the stores of this server, as far as they have some.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreNames {
    /// That of the sequences.
    pub(crate) segments: Option<StoreIdentity>,
    /// That of the leases; none where there are no leases for others.
    pub(crate) leases: Option<StoreIdentity>,
}

/// A tag, or one of its sub-keys, that hosts may be granted numbers of.
#[derive(Clone, Debug)]
pub(crate) struct Grantable {
    /// The tag.
    tag: String,
    /// The name that the store knows: with the sub-key.
    name: String,
    /// The greatest id that its format can show.
    id_max: u64,
}

impl Service {
    /// Which stores it has, once they have answered.
    ///
    /// # Errors
    /// What the store of the sequences answers. Where leases cannot be looked at, there are none.
    pub(crate) async fn store_names(&self) -> Result<StoreNames, Problem> {
        self.store().check().await.map_err(|error| Problem::of_grant(&error, Of::Sequences))?;
        let segments = self.segments_name().await?;
        let leases = match self.stores().leases().shared() {
            Ok(leases) => self.leases_name(leases).await.unwrap_or(None),
            Err(_) => None,
        };
        Ok(StoreNames { segments, leases })
    }

    /// The name of the store of the sequences. It is asked once: a store that is another one is refused by its adapter.
    pub(crate) async fn segments_name(&self) -> Result<Option<StoreIdentity>, Problem> {
        let asked = self.segments_name.get_or_try_init(|| self.store().identity()).await;
        asked.copied().map_err(|error| Problem::of_grant(&error, Of::Sequences))
    }

    async fn leases_name(&self, leases: &SharedLeases) -> Result<Option<StoreIdentity>, Problem> {
        let asked = self.leases_name.get_or_try_init(|| leases.store.identity()).await;
        asked.copied().map_err(|error| Problem::of_grant(&error, Of::Leases))
    }

    /// The tag or sub-key of a request, once it is known that hosts may count under it. `shape` is that of the format
    /// that the host shows the ids in; without one it shows them as they are.
    ///
    /// # Errors
    /// When its ids are a snowflake's, or shown in another way; and as sub-keys are admitted.
    pub(crate) async fn grantable(
        &self,
        tag: &str,
        sub: Option<&str>,
        shape: Option<u64>,
    ) -> Result<Grantable, Problem> {
        plain_tag(tag)?;
        if shape.is_none() {
            self.check_bare_tag(tag, NO_BARE_NUMBERS)?;
        }
        self.check_has_segments(tag)?;
        let name = stored_name(tag, sub)?;
        let compared = match shape {
            None => self.check_bare_format(tag).await,
            Some(shape) => self.check_shape(tag, shape).await,
        };
        compared.map_err(|error| Problem::of_grant(&error, Of::Sequences))?;
        match (shape, sub) {
            (Some(shape), Some(sub)) => self.admit_of_host(tag, sub, shape).await?,
            _ => drop(self.sub_key(tag, sub).await?),
        }
        let id_max = self.shown(tag).map_or(ID_MAX, |shown| shown.format().id_max());
        Ok(Grantable { tag: tag.to_owned(), name, id_max })
    }

    fn check_has_segments(&self, tag: &str) -> Result<(), Problem> {
        if !self.is_quick(tag) {
            return Ok(());
        }
        let tag = shortened(tag);
        let detail = format!("the tag {tag:?} is quick, a snowflake without segments: lease a worker of the snowflake");
        Err(Problem::new(Kind::TagInvalid, detail).with("tag", tag))
    }

    /// Looks up what is bound of a format to a tag, or binds `first` where nothing is. What is configured here is bound
    /// in its place.
    ///
    /// # Errors
    /// As the store answers; what is bound to a tag that is not there would be a row for a name that anybody makes up,
    /// so the tag is made as on first use.
    pub(crate) async fn format_of_tag(
        &self,
        tag: &str,
        part: FormatPart,
        first: Option<u64>,
    ) -> Result<Option<u64>, Problem> {
        plain_tag(tag)?;
        self.check_has_segments(tag)?;
        if first.is_some() {
            self.store().open_tag(tag).await.map_err(|error| Problem::of_grant(&error, Of::Sequences))?;
        }
        let shown = self.shown(tag).map(|shown| &**shown.format());
        let bound = self.bind_for_host(FormatOwner::Tag(tag), shown, part, first).await;
        if first.is_some() {
            self.bound.forget_tag(tag);
        }
        bound
    }

    /// The same for a snowflake.
    ///
    /// # Errors
    /// As the store answers; [`Kind::SnowflakeUnknown`] for one that is not configured here, where requests create
    /// nothing.
    pub(crate) async fn format_of_snowflake(
        &self,
        name: &str,
        part: FormatPart,
        first: Option<u64>,
    ) -> Result<Option<u64>, Problem> {
        plain_tag(name)?;
        let is_known = self.snowflakes.contains_key(name);
        if first.is_some() && !is_known && !self.sub_keys.are_created() {
            return Err(Refusal::snowflake_unknown(name).into());
        }
        let shown = self.shown_snowflake(name).map(|shown| &**shown.format());
        let bound = self.bind_for_host(FormatOwner::Snowflake(name), shown, part, first).await;
        if first.is_some() && is_known && shown.is_none() {
            self.bound.forget_snowflake(name);
        }
        bound
    }

    async fn bind_for_host(
        &self,
        owner: FormatOwner<'_>,
        shown: Option<&Format>,
        part: FormatPart,
        first: Option<u64>,
    ) -> Result<Option<u64>, Problem> {
        let configured = shown.and_then(|format| part.of(format));
        let binding = match first {
            None => FormatBinding::Look,
            Some(first) => FormatBinding::First(configured.unwrap_or(first)),
        };
        let bound = self.store().bind_format(owner, part, binding).await;
        let bound = bound.map_err(|error| Problem::of_grant(&error, Of::Sequences))?;
        Ok(bound.or(configured))
    }

    /// The tag as its store keeps it; created as tags are on first use.
    ///
    /// # Errors
    /// As the store answers.
    pub(crate) async fn open_for_host(&self, tag: &Grantable) -> Result<TagRecord, Problem> {
        self.store().open_tag(&tag.name).await.map_err(|error| Problem::of_grant(&error, Of::Sequences))
    }

    /// Refuses a segment that begins more than [`RAISE_MAX`](crate::service::tags::RAISE_MAX) above all that was
    /// granted: the tag of many would be ended, or nearly, by what a host makes up.
    ///
    /// # Errors
    /// [`Kind::Forbidden`], and as the store answers.
    pub(crate) async fn check_raise_by_host(&self, tag: &Grantable, at_least: u64) -> Result<(), Problem> {
        // Beyond the last number the store refuses it, and says more.
        if at_least > ID_MAX {
            return Ok(());
        }
        let watermark = self.open_for_host(tag).await?.watermark;
        check_raise(&tag.name, watermark, at_least).map_err(|far| Problem::raise_by_host(&far))
    }

    /// Grants numbers to a host, straight from the store and for ever: as many as a segment may have at most, and as
    /// the quotas give in a second.
    ///
    /// # Errors
    /// As the store answers; [`Kind::OutcomeUnknown`] when it may have granted them; [`Kind::QuotaReached`].
    pub(crate) async fn grant_to_host(
        &self,
        permit: &Permit,
        tag: &Grantable,
        count: u64,
        at_least: u64,
    ) -> Result<Segment, Problem> {
        let granted = self.grant(permit, tag, count, at_least).await?;
        granted.map_err(|error| Problem::of_grant(&error, Of::Sequences))
    }

    /// The same, as the store answers.
    ///
    /// # Errors
    /// That a quota is used up, outside. Within: the store's; [`StoreError::Exhausted`] above what a format can show.
    pub(crate) async fn grant(
        &self,
        permit: &Permit,
        tag: &Grantable,
        count: u64,
        at_least: u64,
    ) -> Result<Result<Segment, StoreError>, OverQuota> {
        let counted = Counted::Tag(&tag.tag);
        let count = self.quotas.grantable(permit, counted, count.min(self.segment_count_max));
        let taken = self.quotas.take(permit, counted, count)?;
        let granted = self.grant_unbounded(tag, count, at_least).await;
        taken.given(match &granted {
            Ok(segment) => segment.count(),
            Err(error) if error.may_have_granted() => count,
            Err(_) => 0,
        });
        Ok(granted)
    }

    async fn grant_unbounded(&self, tag: &Grantable, mut count: u64, at_least: u64) -> Result<Segment, StoreError> {
        let Grantable { name, id_max, .. } = tag;
        if *id_max < ID_MAX && self.store().stripes() == 1 {
            // What lies above would be lost to everybody.
            let watermark = self.store().open_tag(name).await?.watermark;
            let next = at_least.max(watermark.saturating_add(1));
            count = count.min((*id_max).saturating_sub(next).saturating_add(1));
            if next > *id_max {
                return Err(StoreError::exhausted(name));
            }
        }
        let mut segment = self.store().allocate(name, count, at_least).await?;
        let granted = segment;
        if segment.cut(*id_max) {
            return Ok(segment);
        }
        // Nobody was told of them; where they cannot be given back they are a gap.
        let _ = self.store().release(name, TailRelease { start: granted.start, version: granted.version }).await;
        Err(StoreError::exhausted(name))
    }

    /// Takes a tail back that a host did not use.
    ///
    /// # Errors
    /// As the store answers.
    pub(crate) async fn take_back_from_host(&self, tag: &Grantable, tail: TailRelease) -> Result<bool, Problem> {
        self.store().release(&tag.name, tail).await.map_err(|error| Problem::of_grant(&error, Of::Sequences))
    }

    /// Leases a worker to a host, in the namespace of a snowflake that is configured here.
    ///
    /// # Errors
    /// As the store answers, and when the host's layout is not that of the snowflake.
    pub(crate) async fn lease_to_host(
        &self,
        acquire: &LeaseAcquire,
    ) -> Result<(Lease, Option<StoreIdentity>), Problem> {
        let leases = self.leases_of(&acquire.namespace, acquire.layout)?;
        let name = self.leases_name(leases).await?;
        let lease = leases.store.acquire(acquire).await.map_err(|error| Problem::of_grant(&error, Of::Leases))?;
        Ok((lease, name))
    }

    /// Prolongs a lease of a host's.
    ///
    /// # Errors
    /// As [`Service::lease_to_host`].
    pub(crate) async fn extend_for_host(
        &self,
        extend: &LeaseExtend,
    ) -> Result<(Lease, Option<StoreIdentity>), Problem> {
        let leases = self.leases_of(&extend.namespace, extend.layout)?;
        let name = self.leases_name(leases).await?;
        let lease = leases.store.extend(extend).await.map_err(|error| Problem::of_grant(&error, Of::Leases))?;
        Ok((lease, name))
    }

    /// Ends a lease of a host's.
    ///
    /// # Errors
    /// As the store answers.
    pub(crate) async fn end_for_host(
        &self,
        namespace: &str,
        worker: u32,
        grant_id: GrantId,
        end_ms: u64,
    ) -> Result<(bool, Option<StoreIdentity>), Problem> {
        self.snowflake(namespace)?;
        let leases = self.shared_leases()?;
        let name = self.leases_name(leases).await?;
        let released = leases.store.release(namespace, worker, grant_id, end_ms).await;
        Ok((released.map_err(|error| Problem::of_grant(&error, Of::Leases))?, name))
    }

    fn leases_of(&self, namespace: &str, offered: Layout) -> Result<&SharedLeases, Problem> {
        let bound = self.snowflake(namespace)?.layout();
        if bound != offered {
            let (bound, offered) = (bound.to_string(), offered.to_string());
            let detail = format!("the snowflake {namespace:?} has the layout {bound} here, and {offered} was offered");
            let problem = Problem::new(Kind::LayoutRefused, detail).with("snowflake", namespace);
            return Err(problem.with("bound", bound).with("offered", offered));
        }
        self.shared_leases()
    }

    /// Refuses what is expected of another store for leases: two of them may have the same worker at the same time.
    ///
    /// # Errors
    /// [`Kind::SnowflakeUnknown`], and as the store answers.
    pub(crate) async fn check_leases_name(&self, expected: StoreIdentity) -> Result<(), Problem> {
        if self.leases_name(self.shared_leases()?).await? == Some(expected) {
            return Ok(());
        }
        let detail = format!("the workers of this server are not leased from the store {expected}");
        Err(Problem::new(Kind::SnowflakeUnknown, detail).with("leases", expected.to_string()))
    }

    fn shared_leases(&self) -> Result<&SharedLeases, Problem> {
        self.stores().leases().shared().map_err(|detail| Problem::new(Kind::LeasesMissing, detail))
    }
}
