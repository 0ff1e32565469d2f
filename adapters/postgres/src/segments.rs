//! unalike's own tables: one row per tag, one statement per grant.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use unalike_storage::{
    ID_MAX, JoinedStripe, KEPT_FLOOR, KEPT_LEASES, Mode, PolicyColumns, RefillPolicy, Segment, SegmentStore,
    StepPolicy, StoreError, StoreIdentity, Stripe, StripeNumbers, TagCreation, TagOptions, TagRecord, TagRows,
    TailRelease, first_watermark, is_kept, kept_patterns, split_tag, validate_new_tag, validate_policies,
    validate_raise, validate_tag,
};

use crate::database::{Database, Statement, Turn, number, signed};
use crate::error::{damaged, read_error};
use crate::leases;
use crate::record::Record;
use crate::schema::{self, TAG};

/// Grants `$4` numbers (1 or more), none below `$3`, or what is left.
///
/// No sum overflows: the watermark is below 2^63 - 1 where 1 is added to it, and the last sum is at most 2^63 - 1 by
/// the `LEAST`. On the right of `=` are the old values.
///
/// Who asks for numbers from right behind the watermark was told of the newest grant, so it is the one who holds it:
/// both grants together are one tail, and `settled` stays. Otherwise all that was granted before is settled.
const ALLOCATE: &str = include_str!("sql/allocate.sql");
const RELEASE: &str = include_str!("sql/release.sql");
const RAISE: &str = include_str!("sql/raise.sql");
const RETIRE: &str = include_str!("sql/retire.sql");
const CHANGE: &str = include_str!("sql/change.sql");
const INSERT: &str = include_str!("sql/insert.sql");

/// So many more tags, up to a limit, by a client of the store's stripe and record. It comes first in a creation: its
/// lock on the row has creations and changes of the stripe wait for each other.
const COUNT: &str = include_str!("sql/count.sql");

const FIND: &str = "SELECT * FROM unalike_tag WHERE tag = $1";
const FIND_LOCKED: &str = "SELECT * FROM unalike_tag WHERE tag = $1 FOR UPDATE";
const LOCK_STORE: &str = "SELECT stripe_set, stripe_index, stripe_count FROM unalike_store WHERE part = $1 FOR UPDATE";

/// Segments in `unalike_tag`; and the formats of sequences, in that part of the store.
#[derive(Clone, Debug)]
pub(crate) struct OwnTables {
    pub(crate) database: Database,
    pub(crate) creation: TagCreation,
    /// The stripe that this client joined.
    pub(crate) joined: Option<Stripe>,
}

/// Lifts every tag, and the floor of new names, by so many numbers, or to the end, and the time that the product keeps
/// for itself by so many ms, and records in the same transaction a server in place of `recorded`. So of two at once the
/// later one finds another record, and changes nothing. Answers how many tags of users there are; none when it found
/// another record.
pub(crate) async fn lift_all(
    turn: &mut Turn,
    database: &Database,
    (numbers, kept_ms): (u64, u64),
    record: Record,
) -> Result<u64, StoreError> {
    let stripe = lock_stripe(turn, database).await?;
    let mark = record.row_mark(stripe.map_or(0, |stripe| stripe.set));
    let [leases, clocks, formats] = kept_patterns();
    let floor = TagOptions::default();
    let floor = bind_policies(sqlx::query(INSERT_UNFENCED).bind("").bind(KEPT_FLOOR), floor.step, floor.refill);
    turn.execute(floor.bind(1_i64).bind(Mode::Buffered.name()).bind(0_i64).bind(&mark)).await?;
    let of_leases = sqlx::query(include_str!("sql/lift_leases.sql"));
    turn.execute(of_leases.bind(signed(kept_ms)).bind(&mark).bind(&leases)).await?;
    let of_clocks = sqlx::query(include_str!("sql/lift_clocks.sql"));
    turn.execute(of_clocks.bind(signed(kept_ms)).bind(&mark).bind(&clocks)).await?;
    let all = sqlx::query(include_str!("sql/lift_all.sql")).bind(signed(numbers)).bind(&mark);
    let lifted = turn.execute(all.bind(leases).bind(KEPT_LEASES).bind(clocks).bind(&formats)).await?;
    let others = sqlx::query("UPDATE unalike_tag SET mark = $1 WHERE tag = $2 OR tag LIKE $3");
    turn.execute(others.bind(mark).bind(KEPT_LEASES).bind(formats)).await?;
    // The floor is nobody's tag.
    Ok(lifted.saturating_sub(1))
}

/// [`INSERT`] on a server that is about to be adopted.
const INSERT_UNFENCED: &str = "INSERT INTO unalike_tag (tag, start, mode, step_policy, step, step_min, step_max, \
    grow_below_ms, shrink_above_ms, refill_policy, refill, grant_start, settled, watermark, mark) \
    SELECT $2, $11, $12, $3, $4, $5, $6, $7, $8, $9, $10, $11, $13, $13, $14 WHERE $1 = '' \
    ON CONFLICT (tag) DO NOTHING";

/// The stripe that the store is recorded to be, which nobody changes until the transaction ends.
async fn lock_stripe(turn: &mut Turn, database: &Database) -> Result<Option<Stripe>, StoreError> {
    let rows = turn.rows(sqlx::query(LOCK_STORE).bind(database.part())).await?;
    stripe_in(database, rows.first())
}

fn stripe_in(database: &Database, row: Option<&PgRow>) -> Result<Option<Stripe>, StoreError> {
    let row = row.ok_or_else(|| schema::no_row(database))?;
    let broken = || damaged(database.at(), "the stripe in unalike_store is not valid");
    let set: Vec<u8> =
        row.try_get("stripe_set").map_err(|error| read_error(database.at(), "reading the stripe", error))?;
    let set = u128::from_be_bytes(set.try_into().map_err(|_| broken())?);
    let figure = |column| u32::try_from(number(database, row, column)?).map_err(|_| broken());
    let stripe = Stripe { set, index: figure("stripe_index")?, count: figure("stripe_count")? };
    match set {
        0 => Ok(None),
        _ if stripe.validate_record().is_ok() => Ok(Some(stripe)),
        _ => Err(broken()),
    }
}

fn set_bytes(stripe: Option<&Stripe>) -> Vec<u8> {
    stripe.map_or(0, |stripe| stripe.set).to_be_bytes().to_vec()
}

impl OwnTables {
    /// What rows of this client's store and stripe say.
    fn mark(&self) -> Result<Vec<u8>, StoreError> {
        Ok(self.database.record()?.row_mark(self.joined.map_or(0, |stripe| stripe.set)))
    }

    /// Makes sure that a statement changed no row because there is none, or none that may be: not because the session,
    /// the server, the stripe or the store's record are others.
    async fn check_grant(&self, turn: Turn, tag: &str) -> Result<(), StoreError> {
        self.database.check_fence(turn).await?;
        let recorded = self.stripe().await?;
        Stripe::check_grant(&self.name(), recorded.as_ref(), self.joined.as_ref())?;
        let rows = self.database.rows("reading a tag", sqlx::query(FIND).bind(tag)).await?;
        let Some(row) = rows.first() else { return Ok(()) };
        if self.column::<Vec<u8>>(row, "mark")? == self.mark()? {
            return Ok(());
        }
        Err(StoreError::refused(format!(
            "{}: the row of the tag {tag:?} was written by or for another store than this one: if the store was adopted since \
             this program began, restart it; else find out who wrote the row",
            self.name()
        )))
    }

    async fn find_tag(&self, tag: &str) -> Result<Option<TagRecord>, StoreError> {
        let rows = self.database.rows("reading a tag", sqlx::query(FIND).bind(tag)).await?;
        rows.first().map(|row| self.tag_record(row)).transpose()
    }

    /// Counts new tags, of which there may be so many; none when the limit, or another stripe, does not allow that.
    async fn count(&self, turn: &mut Turn, tags: u64, tags_max: u64) -> Result<Option<()>, StoreError> {
        let record = self.database.record()?;
        let recorded = recorded_text(turn, &self.database, record).await?;
        let count = turn.fenced(COUNT).bind(signed(tags)).bind(if tags == 0 { i64::MAX } else { signed(tags_max) });
        let count = count.bind(set_bytes(self.joined.as_ref())).bind(recorded).bind(self.database.part());
        let counted = turn.write(count).await?;
        Ok((!counted.is_empty()).then_some(()))
    }

    /// The floor of new names, which nobody makes or lifts before this transaction has ended.
    async fn floor_in(&self, turn: &mut Turn) -> Result<u64, StoreError> {
        let rows = turn.rows(sqlx::query(FIND).bind(KEPT_FLOOR)).await?;
        rows.first().map_or(Ok(0), |row| number(&self.database, row, "watermark"))
    }

    /// Refuses a new sub-key whose tag has ended. Until this transaction ends, nobody ends the tag: so whoever lists
    /// its sub-keys afterwards sees this one.
    async fn check_owner(&self, turn: &mut Turn, name: &str) -> Result<Result<(), StoreError>, StoreError> {
        let (tag, Some(_)) = split_tag(name) else { return Ok(Ok(())) };
        let rows = turn.rows(sqlx::query(FIND_LOCKED).bind(tag)).await?;
        // Without a row there is nothing to end.
        let Some(row) = rows.first() else { return Ok(Ok(())) };
        Ok(self.tag_record(row)?.options_of_sub_keys(name).map(drop))
    }

    /// Inserts a row in a transaction that has counted it; none if there is one.
    async fn insert_in(
        &self,
        turn: &mut Turn,
        (tag, options): (&str, &TagOptions),
        floor: u64,
    ) -> Result<Option<TagRecord>, StoreError> {
        let watermark = first_watermark(tag, options.start, floor);
        let insert = bind_policies(turn.fenced(INSERT).bind(tag.to_owned()), options.step, options.refill);
        let insert = insert.bind(signed(options.start)).bind(options.mode.name()).bind(signed(watermark));
        let rows = turn.write(insert.bind(self.mark()?)).await?;
        rows.first().map(|row| self.tag_record(row)).transpose()
    }

    fn column<'r, T>(&self, row: &'r PgRow, column: &str) -> Result<T, StoreError>
    where
        T: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        row.try_get(column).map_err(|error| read_error(self.database.at(), "reading a row of unalike_tag", error))
    }

    fn tag_record(&self, row: &PgRow) -> Result<TagRecord, StoreError> {
        let figure = |column: &str| self.column::<i64>(row, column).map(i64::cast_unsigned);
        let broken = |what: &str| damaged(self.database.at(), &format!("unalike_tag has a row with {what}"));
        let (step_policy, refill_policy) = (self.column(row, "step_policy")?, self.column(row, "refill_policy")?);
        let (step, refill) = PolicyColumns::read(step_policy, refill_policy, figure)?
            .ok_or_else(|| broken(&format!("the policies {step_policy:?} and {refill_policy:?}")))?;
        let mode: &str = self.column(row, "mode")?;
        let mode = Mode::named(mode).ok_or_else(|| broken(&format!("the mode {mode:?}")))?;
        let tag: String = self.column(row, "tag")?;
        let whole = |column: &str| number(&self.database, row, column);
        let options = TagOptions { start: whole("start")?, step, refill, mode };
        options.validate(&tag).map_err(|error| broken(&error.to_string()))?;
        Ok(TagRecord { tag, options, watermark: whole("watermark")?, version: whole("version")? })
    }

    /// For messages.
    fn name(&self) -> String {
        format!("the store at {}", self.database.at())
    }
}

/// The record as the store has it, where this client knows that it is this one; with an identity that is assumed, any.
async fn recorded_text(turn: &mut Turn, database: &Database, record: Record) -> Result<String, StoreError> {
    if record.server.is_some() {
        return Ok(record.to_string());
    }
    let rows = turn.rows(sqlx::query("SELECT server FROM unalike_store WHERE part = $1").bind(database.part())).await?;
    let text = rows.first().map(|row| row.try_get("server")).transpose();
    text.map(Option::unwrap_or_default).map_err(|error| read_error(database.at(), "reading unalike_store", error))
}

#[async_trait]
impl TagRows for OwnTables {
    fn creates_on_first_use(&self, tag: &str) -> bool {
        self.creation.of(tag).on_first_use
    }

    async fn find_row(&self, tag: &str) -> Result<Option<TagRecord>, StoreError> {
        self.find_tag(tag).await
    }

    async fn insert_row(&self, tag: &str, options: &TagOptions) -> Result<Option<TagRecord>, StoreError> {
        let tags_max = self.creation.of(tag).tags_max;
        let mut turn = self.database.turn("creating a tag").await?;
        // A crash empties a table that somebody has made unlogged meanwhile, and then all names look new.
        schema::check_again(&mut turn, &self.database, &[TAG]).await?;
        turn.begin().await?;
        let counted = u64::from(split_tag(tag).1.is_none());
        if self.count(&mut turn, counted, tags_max).await?.is_none() {
            // Who looks with another connection holds none: those who do so at once would wait for each other.
            turn.roll_back().await?;
            if self.find_tag(tag).await?.is_some() {
                return Ok(None);
            }
            self.check_grant(self.database.turn("creating a tag").await?, tag).await?;
            return Err(StoreError::TagLimit { tag: tag.to_owned(), tags_max });
        }
        let floor = self.floor_in(&mut turn).await?;
        if let Err(ended) = self.check_owner(&mut turn, tag).await? {
            turn.roll_back().await?;
            return if self.find_tag(tag).await?.is_some() { Ok(None) } else { Err(ended) };
        }
        if let Err(quarantined) = leases::check_new_time(&mut turn, &self.database, tag).await {
            turn.roll_back().await?;
            return Err(quarantined);
        }
        let Some(record) = self.insert_in(&mut turn, (tag, options), floor).await? else {
            turn.roll_back().await?;
            return Ok(None);
        };
        turn.commit().await?;
        Ok(Some(record))
    }

    async fn grant_from_row(&self, tag: &str, count: u64, at_least: u64) -> Result<Option<Segment>, StoreError> {
        let count = count.min(ID_MAX);
        let mut turn = self.database.turn("allocating a segment").await?;
        let allocate = turn.fenced(ALLOCATE).bind(tag.to_owned()).bind(signed(at_least)).bind(signed(count));
        let rows = turn.write(allocate.bind(self.mark()?)).await?;
        let Some(row) = rows.first() else {
            self.check_grant(turn, tag).await?;
            return Ok(None);
        };
        turn.give_back();
        if rows.len() > 1 {
            return Err(damaged(
                self.database.at(),
                &format!("the tag {tag:?} has {} rows in unalike_tag", rows.len()),
            ));
        }
        self.database.note_position(row)?;
        let figure = |column| number(&self.database, row, column);
        let (start, version) = (figure("grant_start")?, figure("version")?);
        let segment = Segment { start, end: figure("watermark")? + 1, stride: 1, generation: 0, version };
        if segment.validate().is_err() || segment.start < at_least || segment.count() > count {
            return Err(damaged(self.database.at(), &format!("the grant {segment:?} is not what was asked for")));
        }
        Ok(Some(segment))
    }
}

#[async_trait]
impl SegmentStore for OwnTables {
    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        self.grant_or_create(tag, count, at_least).await
    }

    async fn release(&self, tag: &str, tail: TailRelease) -> Result<bool, StoreError> {
        validate_tag(tag)?;
        // No row has a number that does not fit.
        let (Ok(start), Ok(version)) = (i64::try_from(tail.start), i64::try_from(tail.version)) else {
            return Ok(false);
        };
        let mut turn = self.database.turn("releasing a tail").await?;
        let release = turn.fenced(RELEASE).bind(tag.to_owned()).bind(start).bind(version).bind(self.mark()?);
        let released = turn.write(release).await?;
        turn.give_back();
        Ok(!released.is_empty())
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.find_or_create(tag).await
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.find_known(tag).await
    }

    async fn create_tag(&self, tag: &str, options: &TagOptions) -> Result<TagRecord, StoreError> {
        self.create_new(tag, options).await
    }

    async fn change_tag(&self, tag: &str, step: StepPolicy, refill: RefillPolicy) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        validate_policies(tag, step, refill)?;
        let mut turn = self.database.turn("changing a tag").await?;
        let change = bind_policies(turn.fenced(CHANGE).bind(tag.to_owned()), step, refill);
        let rows = turn.write(change).await?;
        let Some(row) = rows.first() else {
            self.check_grant(turn, tag).await?;
            return Err(StoreError::tag_unknown(tag));
        };
        turn.give_back();
        self.tag_record(row)
    }

    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        validate_raise(tag, next)?;
        let mut turn = self.database.turn("raising a tag").await?;
        let raise = turn.fenced(RAISE).bind(tag.to_owned()).bind(signed(next)).bind(self.mark()?);
        let rows = turn.write(raise).await?;
        let Some(row) = rows.first() else {
            self.check_grant(turn, tag).await?;
            return Err(StoreError::tag_unknown(tag));
        };
        turn.give_back();
        self.tag_record(row)
    }

    async fn retire_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        match self.retire_tags(&[tag.to_owned()]).await? {
            Some(mut records) if records.len() == 1 => Ok(records.remove(0)),
            _ => {
                self.check_grant(self.database.turn("ending a tag").await?, tag).await?;
                Err(StoreError::tag_unknown(tag))
            }
        }
    }

    async fn retire_tags(&self, tags: &[String]) -> Result<Option<Vec<TagRecord>>, StoreError> {
        tags.iter().try_for_each(|tag| validate_tag(tag))?;
        let mut turn = self.database.begin_long("ending tags").await?;
        let mut records = Vec::with_capacity(tags.len());
        for tag in tags {
            let rows = turn.rows(sqlx::query(FIND_LOCKED).bind(tag)).await?;
            let Some(row) = rows.first() else { break };
            let record = self.tag_record(row)?;
            let retire = turn.fenced(RETIRE).bind(tag.clone()).bind(self.mark()?);
            if turn.execute(retire).await? == 0 {
                break;
            }
            records.push(record);
        }
        if records.len() < tags.len() {
            turn.roll_back().await?;
            return Ok(None);
        }
        turn.commit().await?;
        Ok(Some(records))
    }

    async fn create_tags(&self, tags: &[(String, TagOptions)]) -> Result<Option<Vec<TagRecord>>, StoreError> {
        let is_odd = |(tag, options): &(String, TagOptions)| {
            validate_new_tag(tag).is_err() || options.validate(tag).is_err() || is_kept(tag)
        };
        if tags.is_empty() || tags.iter().any(is_odd) {
            return Ok(None);
        }
        let counted = tags.iter().filter(|(tag, _)| split_tag(tag).1.is_none()).count() as u64;
        let mut turn = self.database.begin_long("creating tags").await?;
        schema::check_again(&mut turn, &self.database, &[TAG]).await?;
        // Sub-keys alone too: the row says whether the store still is of this client's stripe.
        if self.count(&mut turn, counted, self.creation.tags_max).await?.is_none() {
            turn.roll_back().await?;
            return Ok(None);
        }
        let floor = self.floor_in(&mut turn).await?;
        // One sub-key for each tag; in their order, as they are ended.
        let sub_keys = tags.iter().filter(|(tag, _)| split_tag(tag).1.is_some());
        let owned: BTreeMap<&str, &str> = sub_keys.map(|(tag, _)| (split_tag(tag).0, tag.as_str())).collect();
        for name in owned.values() {
            if self.check_owner(&mut turn, name).await?.is_err() {
                turn.roll_back().await?;
                return Ok(None);
            }
        }
        let mut records = Vec::with_capacity(tags.len());
        for (tag, options) in tags {
            match self.insert_in(&mut turn, (tag, options), floor).await? {
                Some(record) => records.push(record),
                None => {
                    turn.roll_back().await?;
                    return Ok(None);
                }
            }
        }
        turn.commit().await?;
        Ok(Some(records))
    }

    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        // No tag is empty.
        let list = sqlx::query("SELECT * FROM unalike_tag WHERE tag > $1 ORDER BY tag LIMIT $2");
        let list = list.bind(after.unwrap_or_default().to_owned()).bind(i64::from(limit));
        let rows = self.database.rows("listing tags", list).await?;
        rows.iter().map(|row| self.tag_record(row)).collect()
    }

    fn keeps_formats(&self) -> bool {
        true
    }

    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        schema::identity(&self.database, self.database.part()).await.map(Some)
    }

    async fn check(&self) -> Result<(), StoreError> {
        // It changes nothing, and is refused where nothing may be changed.
        let mut turn = self.database.begin("checking that the store can be written to").await?;
        let touch = turn.fenced("UPDATE unalike_store SET tags = tags WHERE part = $2 AND {fence}");
        let touched = turn.execute(touch.bind(self.database.part())).await?;
        let turn = turn.end().await?;
        if touched == 0 {
            return Err(self.database.held_back(turn).await);
        }
        turn.give_back();
        Ok(())
    }

    async fn stripe(&self) -> Result<Option<Stripe>, StoreError> {
        let select = sqlx::query("SELECT stripe_set, stripe_index, stripe_count FROM unalike_store WHERE part = $1");
        let rows = self.database.rows("reading the stripe", select.bind(self.database.part())).await?;
        stripe_in(&self.database, rows.first())
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        let mut turn = self.database.begin_long("recording the stripe").await?;
        let recorded = lock_stripe(&mut turn, &self.database).await?;
        let has_granted = match recorded {
            Some(_) => true,
            None => {
                let granted = sqlx::query("SELECT 1 FROM unalike_tag WHERE version > 0 LIMIT 1");
                !turn.rows(granted).await?.is_empty()
            }
        };
        if let Err(refused) = stripe.check_join(&self.name(), recorded.as_ref(), has_granted) {
            turn.roll_back().await?;
            return Err(refused);
        }
        if recorded.is_none() {
            self.set_stripe(&mut turn, None, Some(stripe)).await?;
        }
        turn.commit().await?;
        let joined = Self { joined: Some(*stripe), ..self.clone() };
        Ok(JoinedStripe { store: Arc::new(joined), numbers: StripeNumbers::Counted })
    }

    async fn restripe(&self, expected: Option<&Stripe>, stripe: Option<&Stripe>) -> Result<(), StoreError> {
        let mut turn = self.database.begin_long("recording another stripe").await?;
        let recorded = lock_stripe(&mut turn, &self.database).await?;
        if let Err(refused) = Stripe::check_change(&self.name(), recorded.as_ref(), expected, stripe) {
            turn.roll_back().await?;
            return Err(refused);
        }
        self.set_stripe(&mut turn, expected, stripe).await?;
        turn.commit().await
    }

    async fn close(&self) {
        self.database.close().await;
    }
}

impl OwnTables {
    /// Records the stripe in the store and in all rows of the one before, so that every client of another one is
    /// granted nothing from then on.
    async fn set_stripe(
        &self,
        turn: &mut Turn,
        before: Option<&Stripe>,
        stripe: Option<&Stripe>,
    ) -> Result<(), StoreError> {
        const STRIPE: &str = "UPDATE unalike_store SET stripe_set = $2, stripe_index = $3, stripe_count = $4 \
            WHERE part = $5 AND {fence}";
        let (index, count) = stripe.map_or((0, 0), |stripe| (stripe.index, stripe.count));
        let update = turn.fenced(STRIPE).bind(set_bytes(stripe)).bind(i64::from(index)).bind(i64::from(count));
        if turn.execute(update.bind(self.database.part())).await? == 0 {
            return Err(schema::no_row(&self.database));
        }
        let record = self.database.record()?;
        let mark = |stripe: Option<&Stripe>| record.row_mark(stripe.map_or(0, |stripe| stripe.set));
        let update = sqlx::query("UPDATE unalike_tag SET mark = $1 WHERE mark = $2");
        turn.execute(update.bind(mark(stripe)).bind(mark(before))).await.map(drop)
    }
}

/// Binds all policies, in the order in which the statements number them, from the third argument on; all 64 bits are
/// kept, a policy may say `u64::MAX`.
fn bind_policies(statement: Statement<'_>, step: StepPolicy, refill: RefillPolicy) -> Statement<'_> {
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
