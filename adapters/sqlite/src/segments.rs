//! The segment port on SQLite: one row per tag, one statement per grant.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Sqlite, SqliteExecutor};
use unalike_storage::{
    ID_MAX, JoinedStripe, KEPT_FLOOR, KEPT_LEASE_FLOOR, Mode, PolicyColumns, RefillPolicy, Segment, SegmentStore,
    StepPolicy, StoreError, StoreIdentity, Stripe, StripeNumbers, TagOptions, TagRecord, TagRows, TailRelease,
    TailsReleased, is_kept_time, split_tag, validate_policies, validate_raise, validate_tag,
};

use crate::error::{damaged, read_error, write_error};
use crate::{SqliteStore, WriteStatement};

/// Grants `?3` numbers (1 or more), none below `?2`, or what is left, to a client that joined the stripe set `?4`.
///
/// SQLite turns an integer that overflows into floating point, so nothing here can: the watermark is below 2^63 - 1
/// where 1 is added to it, and the last sum is at most 2^63 - 1 by the `min`. On the right of `=` are the old values.
///
/// Who asks for numbers from right behind the watermark was told of the newest grant, so it is the one who holds it:
/// both grants together are one tail, and `settled` stays. Otherwise all that was granted before is settled.
///
/// The version grows by 2 in a stripe, which tells the schema's trigger that this program knows what a stripe is.
///
/// A trigger of somebody else may change the row again after it has answered: beside one, nothing is granted.
const ALLOCATE: &str = include_str!("sql/allocate.sql");

const RELEASE: &str = include_str!("sql/release.sql");

const RAISE: &str = include_str!("sql/raise.sql");

/// Grants all numbers up to the top, to nobody: the watermark was one below the start of this grant.
const RETIRE: &str = include_str!("sql/retire.sql");

/// Records the place among stripes, or none, where the place is this one.
const RESTRIPE: &str = include_str!("sql/restripe.sql");

/// Records the place among stripes in a store that has none and has granted nothing.
const JOIN: &str = include_str!("sql/join.sql");

/// Tails that are given back by one statement: it holds the right to write for some milliseconds.
const RELEASED_AT_ONCE: usize = 500;

/// Creates a tag, unless it exists, or there are `?12` tags, or the store is not of the stripe set `?13`. Sub-keys,
/// whose names hold the character 31, are not counted, and there is none whose tag `?15` has ended. It begins above the
/// watermark of the tag `?14`, if there is that one, or is exhausted.
const CREATE: &str = include_str!("sql/create.sql");

const CHANGE: &str = include_str!("sql/change.sql");

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT tag, start, mode, step_policy, step, step_min, step_max, grow_below_ms, shrink_above_ms, refill_policy, \
             refill, generation, grant_start, settled, watermark, version FROM tag WHERE ",
            $rest
        )
    };
}

/// Columns by their names, here as in all statements: where another program adds one, the driver takes no row any more
/// that has more columns than before.
const FIND: &str = select!("tag = ?1");

const LIST: &str = select!("tag > ?1 ORDER BY tag LIMIT ?2");

/// Binds all policies, in the order in which the statements number them; all 64 bits are kept, a policy may say
/// `u64::MAX`.
fn bind_policies(statement: WriteStatement<'_>, step: StepPolicy, refill: RefillPolicy) -> WriteStatement<'_> {
    let columns = PolicyColumns::new(step, refill);
    statement
        .bind(columns.step_policy)
        .bind(columns.step.cast_signed())
        .bind(columns.step_min.map(u64::cast_signed))
        .bind(columns.step_max.map(u64::cast_signed))
        .bind(columns.grow_below_ms.map(u64::cast_signed))
        .bind(columns.shrink_above_ms.map(u64::cast_signed))
        .bind(columns.refill_policy)
        .bind(columns.refill.cast_signed())
}

impl SqliteStore {
    /// Runs a statement that writes one row at most.
    async fn write_one(&self, doing: &str, statement: WriteStatement<'_>) -> Result<Option<SqliteRow>, StoreError> {
        Ok(self.write(doing, statement).await?.pop())
    }

    /// Gives tails back by one statement; answers how many were taken.
    async fn release_at_once(&self, tails: &[(String, TailRelease)]) -> Result<u64, StoreError> {
        let mut release = QueryBuilder::<Sqlite>::new("WITH tail (name, start, seen) AS (");
        release.push_values(tails, |mut row, (tag, tail)| {
            // No row has a number that does not fit, and none has the version -1.
            let fits = i64::try_from(tail.start).ok().zip(i64::try_from(tail.version).ok());
            let (start, seen) = fits.unwrap_or((0, -1));
            row.push_bind(tag.clone()).push_bind(start).push_bind(seen);
        });
        release.push(
            ") UPDATE tag SET watermark = tail.start - 1, settled = tail.start - 1, version = version + 1 FROM tail \
             WHERE tag = tail.name AND version = tail.seen AND settled < tail.start AND tail.start <= watermark \
             AND (SELECT stripe_set FROM store) IS ",
        );
        release.push_bind(self.joined_set());
        // It answers no rows, of which only some are read ahead of whoever takes them. Kept by no connection: the next
        // one has another number of tails.
        let done = release.build().persistent(false).execute(self.writer()?).await;
        let done = done.map_err(|error| write_error(&self.path, "releasing tails", error))?;
        self.held.check_grant()?;
        Ok(done.rows_affected())
    }

    /// The stripe set that this client joined, as statements compare it.
    fn joined_set(&self) -> Option<Vec<u8>> {
        self.joined.map(|stripe| stripe.set.to_be_bytes().to_vec())
    }

    async fn check_joined(&self, executor: impl SqliteExecutor<'_>) -> Result<(), StoreError> {
        let recorded = self.recorded_stripe(executor).await?;
        Stripe::check_grant(&self.path.display().to_string(), recorded.as_ref(), self.joined.as_ref())
    }

    async fn recorded_stripe(&self, executor: impl SqliteExecutor<'_>) -> Result<Option<Stripe>, StoreError> {
        let row = sqlx::query("SELECT stripe_set, stripe_index, stripe_count FROM store").fetch_one(executor).await;
        let row = row.map_err(|error| read_error(&self.path, "reading the place among stripes", error))?;
        let Some(set) = self.column::<Option<Vec<u8>>>(&row, "stripe_set")? else { return Ok(None) };
        let small = |column| Some(u32::try_from(self.number(&row, column).ok()?).unwrap_or(u32::MAX));
        let stripe = set.try_into().ok().and_then(|set| {
            let (index, count) = (small("stripe_index")?, small("stripe_count")?);
            Some(Stripe { set: u128::from_be_bytes(set), index, count })
                .filter(|stripe| stripe.validate_record().is_ok())
        });
        stripe.map(Some).ok_or_else(|| damaged(&self.path, "its place among stripes is not valid"))
    }

    fn tag_record(&self, row: &SqliteRow) -> Result<TagRecord, StoreError> {
        let figure = |column: &str| self.column::<i64>(row, column).map(i64::cast_unsigned);
        let broken = || damaged(&self.path, "a tag has an unknown policy or mode");
        let (step_policy, refill_policy) = (self.column(row, "step_policy")?, self.column(row, "refill_policy")?);
        let (step, refill) = PolicyColumns::read(step_policy, refill_policy, figure)?.ok_or_else(broken)?;
        let mode = Mode::named(self.column(row, "mode")?).ok_or_else(broken)?;
        let tag: String = self.column(row, "tag")?;
        let options = TagOptions { start: self.number(row, "start")?, step, refill, mode };
        options.validate(&tag).map_err(|error| damaged(&self.path, &error.to_string()))?;
        Ok(TagRecord { tag, options, watermark: self.number(row, "watermark")?, version: self.number(row, "version")? })
    }

    fn segment(&self, row: &SqliteRow, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        let segment = Segment {
            start: self.number(row, "grant_start")?,
            // At most 2^63, for the watermark is a positive signed integer.
            end: self.number(row, "watermark")? + 1,
            stride: 1,
            generation: self.number(row, "generation")?,
            version: self.number(row, "version")?,
        };
        if segment.validate().is_err() || segment.start < at_least || segment.count() > count {
            return Err(damaged(&self.path, &format!("the grant {segment:?} is not what was asked for")));
        }
        Ok(segment)
    }
}

/// What was written into the file when it was made.
///
/// # Errors
/// What reading the file brings.
pub(crate) async fn identity(store: &SqliteStore) -> Result<StoreIdentity, StoreError> {
    let mark = sqlx::query_scalar::<_, Vec<u8>>("SELECT mark FROM identity").fetch_optional(store.readers()?).await;
    let mark = mark.map_err(|error| read_error(&store.path, "reading the identity", error))?;
    let mark = mark.and_then(|mark| mark.try_into().ok());
    Ok(StoreIdentity(u128::from_be_bytes(mark.ok_or_else(|| damaged(&store.path, "it has no identity"))?)))
}

/// The rows of the table of tags.
struct Rows<'s>(&'s SqliteStore);

#[async_trait]
impl TagRows for Rows<'_> {
    fn creates_on_first_use(&self, tag: &str) -> bool {
        self.0.creation.of(tag).on_first_use
    }

    async fn find_row(&self, tag: &str) -> Result<Option<TagRecord>, StoreError> {
        let rows = sqlx::query(FIND).bind(tag).fetch_all(self.0.readers()?).await;
        let mut rows = rows.map_err(|error| read_error(&self.0.path, "reading a tag", error))?;
        rows.pop().map(|row| self.0.tag_record(&row)).transpose()
    }

    async fn insert_row(&self, tag: &str, options: &TagOptions) -> Result<Option<TagRecord>, StoreError> {
        let tags_max = self.0.creation.of(tag).tags_max;
        let insert = sqlx::query(CREATE).bind(tag).bind(options.start.cast_signed()).bind(options.mode.name());
        let insert = bind_policies(insert, options.step, options.refill)
            .bind(i64::try_from(tags_max).unwrap_or(i64::MAX))
            .bind(self.0.joined_set())
            // Times are not numbers.
            .bind((!is_kept_time(tag)).then_some(KEPT_FLOOR))
            .bind(owner_of(tag));
        if let Some(row) = self.0.write_one("creating a tag", insert).await? {
            return self.0.tag_record(&row).map(Some);
        }
        if self.find_row(tag).await?.is_some() {
            return Ok(None);
        }
        self.0.check_tables().await?;
        self.0.check_joined(self.0.readers()?).await?;
        // What was granted to Redis under a name that the file lacks cannot be known here: none of it ends later.
        if is_kept_time(tag)
            && let Some(TagRecord { watermark: until_ms, .. }) = self.find_row(KEPT_LEASE_FLOOR).await?
            && until_ms > self.0.read_clock().await?
        {
            let (owner, sub) = split_tag(tag);
            return Err(StoreError::Quarantined { namespace: sub.unwrap_or(owner).to_owned(), until_ms });
        }
        if let Some(owner) = owner_of(tag)
            && let Some(owner) = self.find_row(owner).await?
        {
            owner.options_of_sub_keys(tag)?;
        }
        Err(StoreError::TagLimit { tag: tag.to_owned(), tags_max })
    }

    async fn grant_from_row(&self, tag: &str, count: u64, at_least: u64) -> Result<Option<Segment>, StoreError> {
        let allocate = sqlx::query(ALLOCATE)
            .bind(tag)
            .bind(at_least.cast_signed())
            .bind(count.min(ID_MAX).cast_signed())
            .bind(self.0.joined_set());
        if let Some(row) = self.0.write_one("allocating a segment", allocate).await? {
            return self.0.segment(&row, count, at_least).map(Some);
        }
        self.0.check_tables().await?;
        self.0.check_joined(self.0.readers()?).await?;
        Ok(None)
    }
}

#[async_trait]
impl SegmentStore for SqliteStore {
    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        Rows(self).grant_or_create(tag, count, at_least).await
    }

    async fn release(&self, tag: &str, tail: TailRelease) -> Result<bool, StoreError> {
        validate_tag(tag)?;
        // No row has a number that does not fit.
        let (Ok(start), Ok(version)) = (i64::try_from(tail.start), i64::try_from(tail.version)) else {
            return Ok(false);
        };
        let release = sqlx::query(RELEASE).bind(tag).bind(start).bind(version).bind(self.joined_set());
        Ok(self.write_one("releasing a tail", release).await?.is_some())
    }

    fn address(&self) -> Option<String> {
        Some(self.path.display().to_string())
    }

    async fn release_many(&self, tails: Vec<(String, TailRelease)>) -> TailsReleased {
        let mut released = TailsReleased::default();
        for tails in tails.chunks(RELEASED_AT_ONCE) {
            match self.release_at_once(tails).await {
                Ok(taken_back) => released.taken_back += taken_back,
                Err(error) => released.failed(tails.len(), error),
            }
        }
        released
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        Rows(self).find_or_create(tag).await
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        Rows(self).find_known(tag).await
    }

    async fn create_tag(&self, tag: &str, options: &TagOptions) -> Result<TagRecord, StoreError> {
        Rows(self).create_new(tag, options).await
    }

    async fn change_tag(&self, tag: &str, step: StepPolicy, refill: RefillPolicy) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        validate_policies(tag, step, refill)?;
        let change = bind_policies(sqlx::query(CHANGE).bind(tag), step, refill);
        let row = self.write_one("changing a tag", change).await?.ok_or_else(|| StoreError::tag_unknown(tag))?;
        self.tag_record(&row)
    }

    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        validate_raise(tag, next)?;
        let raise = sqlx::query(RAISE).bind(tag).bind(next.cast_signed()).bind(self.joined_set());
        if let Some(row) = self.write_one("raising a tag", raise).await? {
            return self.tag_record(&row);
        }
        self.check_joined(self.readers()?).await?;
        Err(StoreError::tag_unknown(tag))
    }

    async fn retire_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        let retire = sqlx::query(RETIRE).bind(tag).bind(self.joined_set());
        if let Some(row) = self.write_one("ending a tag", retire).await? {
            // As it was before.
            let record = self.tag_record(&row)?;
            return Ok(TagRecord {
                watermark: self.number(&row, "grant_start")? - 1,
                version: record.version - if self.joined_set().is_some() { 2 } else { 1 },
                ..record
            });
        }
        self.check_joined(self.readers()?).await?;
        // It had ended before.
        self.tag(tag).await
    }

    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        // Text is compared by its bytes, and no tag is empty.
        let rows = sqlx::query(LIST).bind(after.unwrap_or_default()).bind(limit).fetch_all(self.readers()?).await;
        let rows = rows.map_err(|error| read_error(&self.path, "listing tags", error))?;
        rows.iter().map(|row| self.tag_record(row)).collect()
    }

    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        identity(self).await.map(Some)
    }

    async fn leave_leases(&self, namespace: &str) -> Result<(), StoreError> {
        self.mark_namespace(namespace).await
    }

    fn keeps_formats(&self) -> bool {
        true
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.prove_writable().await
    }

    async fn stripe(&self) -> Result<Option<Stripe>, StoreError> {
        self.recorded_stripe(self.readers()?).await
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        let recorded = self.recorded_stripe(self.readers()?).await?;
        let granted = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM tag WHERE version > 0)");
        let has_granted = granted.fetch_one(self.readers()?).await;
        let has_granted: bool = has_granted.map_err(|error| read_error(&self.path, "joining the stripes", error))?;
        stripe.check_join(&self.path.display().to_string(), recorded.as_ref(), has_granted)?;
        if recorded.is_none() && self.write_one("joining the stripes", record(JOIN, Some(stripe))).await?.is_none() {
            // Somebody else was quicker: with the same, or it is refused.
            let recorded = self.recorded_stripe(self.readers()?).await?;
            stripe.check_join(&self.path.display().to_string(), recorded.as_ref(), recorded.is_none())?;
        }
        let store = Self { joined: Some(*stripe), ..self.clone() };
        Ok(JoinedStripe { store: Arc::new(store), numbers: StripeNumbers::Counted })
    }

    async fn restripe(&self, expected: Option<&Stripe>, stripe: Option<&Stripe>) -> Result<(), StoreError> {
        let recorded = self.recorded_stripe(self.readers()?).await?;
        Stripe::check_change(&self.path.display().to_string(), recorded.as_ref(), expected, stripe)?;
        let restripe = bind_stripe(record(RESTRIPE, stripe), recorded.as_ref());
        if self.write_one("recording the place among stripes", restripe).await?.is_some() {
            return Ok(());
        }
        // Somebody else was quicker.
        let recorded = self.recorded_stripe(self.readers()?).await?;
        Stripe::check_change(&self.path.display().to_string(), recorded.as_ref(), expected, stripe)?;
        Err(StoreError::unavailable("the place among stripes changes all the time: try again".to_owned()))
    }

    async fn close(&self) {
        Self::close(self).await;
    }
}

/// The tag of a sub-key.
fn owner_of(name: &str) -> Option<&str> {
    let (tag, sub) = split_tag(name);
    sub.map(|_| tag)
}

/// A statement that records the place among stripes, or none.
fn record(statement: &'static str, stripe: Option<&Stripe>) -> WriteStatement<'static> {
    bind_stripe(sqlx::query(statement), stripe)
}

fn bind_stripe(statement: WriteStatement<'static>, stripe: Option<&Stripe>) -> WriteStatement<'static> {
    statement
        .bind(stripe.map(|stripe| stripe.set.to_be_bytes().to_vec()))
        .bind(stripe.map(|stripe| stripe.index))
        .bind(stripe.map(|stripe| stripe.count))
}
