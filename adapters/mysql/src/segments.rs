//! unalike's own tables: one row per tag, one statement per grant.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Row as _};
use unalike_storage::{
    ID_MAX, JoinedStripe, KEPT_FLOOR, KEPT_LEASES, Mode, PolicyColumns, RefillPolicy, Segment, SegmentStore,
    StepPolicy, StoreError, Stripe, StripeNumbers, TagCreation, TagOptions, TagRecord, TagRows, TailRelease,
    first_watermark, is_kept, kept_patterns, random_128, split_tag, validate_new_tag, validate_policies,
    validate_raise, validate_tag,
};

use crate::database::{Database, Statement, Turn, number};
use crate::dialects::tables::{self, Holds, Shape};
use crate::error::{DUPLICATE_ENTRY, NO_SUCH_TABLE, damaged, read_error};
use crate::leases;
use crate::record::{Era, Record};
use crate::schema::{self, MAINTENANCE, Schema};
use crate::{DialectStore, MysqlOptions};

/// The tags.
///
/// A name is kept as bytes: it is compared exactly and sorted by its bytes, on every server and under every collation.
/// `start`, `settled` and `watermark` are 2^63 - 1 at most; the figures of policies have all 64 bits.
///
/// `stripe_set` and `stripe_version` came with version 2. The set says which stripe the row is of, and in which [`Era`]
/// it was written: both as one figure ([`row_set`]). The last constraint keeps programs that know version 1 alone from
/// being granted anything from a stripe: they change the version and not `stripe_version`, so the server refuses it.
pub(crate) const TAG_TABLE: &str = include_str!("sql/unalike_tag.sql");

/// What grants rest on.
pub(crate) const SHAPE: Shape<'static> = Shape {
    name: "unalike_tag",
    ddl: TAG_TABLE,
    key: &["tag"],
    columns: &[
        ("tag", Holds::Bytes),
        ("start", Holds::Id),
        ("settled", Holds::Id),
        ("watermark", Holds::Id),
        ("version", Holds::Id),
    ],
};

/// A change of one tag's row that counts as one in its version, as a database of version 1 takes it, and as one of
/// version 2 does.
///
/// MySQL assigns from left to right, each assignment seeing those before it; MariaDB does too, or all at once
/// (`SIMULTANEOUS_ASSIGNMENT`). So each here reads only columns that are assigned later, or by itself.
pub(crate) struct Change {
    pub(crate) plain: &'static str,
    pub(crate) striped: &'static str,
    /// In version 2 it is for clients of the row's stripe alone.
    is_striped: bool,
}

macro_rules! change {
    ($assignments:literal, $condition:literal, $stripe:literal, [$fence:literal, $fence_of_row:literal]) => {
        Change {
            plain: concat!(
                "UPDATE unalike_tag SET ",
                $assignments,
                ", version = GREATEST(version + 1, ?) WHERE tag = ?",
                $condition,
                $fence
            ),
            striped: concat!(
                "UPDATE unalike_tag SET ",
                $assignments,
                ", stripe_set = stripe_set, stripe_version = GREATEST(version + 1, ?), version = GREATEST(version + 1, ?) \
                 WHERE tag = ?",
                $condition,
                $stripe,
                $fence_of_row
            ),
            is_striped: !$stripe.is_empty(),
        }
    };
}

/// Grants some numbers (one more than the fourth argument), none below the others, or what is left.
///
/// The reply alone says what was granted: that one row was matched, and its `LAST_INSERT_ID`, the start. (A reply about
/// no row would hold an older one; a second statement to ask for it could land on another connection.) The end follows
/// from the count and the greatest id. No sum overflows: the watermark is below 2^63 - 1 where 1 is added to it.
///
/// Who asks for numbers from right behind the watermark was told of the newest grant, so it is the one who holds it:
/// both grants together are one tail, and `settled` stays. Otherwise all that was granted before is settled.
pub(crate) const ALLOCATE: Change = change!(
    "settled = IF(? = watermark + 1, settled, GREATEST(watermark + 1, ?) - 1), \
     watermark = LAST_INSERT_ID(GREATEST(watermark + 1, ?)) + LEAST(?, 9223372036854775807 - GREATEST(watermark + 1, ?))",
    " AND watermark < 9223372036854775807",
    " AND stripe_set = ?",
    [" AND {fence alone}", " AND {fence of a row}"]
);

pub(crate) const RELEASE: Change = change!(
    "settled = ?, watermark = ?",
    " AND version = ? AND settled < ? AND watermark >= ?",
    " AND stripe_set = ?",
    [" AND {fence alone}", " AND {fence of a row}"]
);

const RAISE: Change = change!(
    "settled = GREATEST(settled, ?), watermark = GREATEST(watermark, ?)",
    "",
    " AND stripe_set = ?",
    [" AND {fence}", " AND {fence}"]
);

const RETIRE: Change = change!(
    "settled = 9223372036854775807, watermark = 9223372036854775807",
    "",
    " AND stripe_set = ?",
    [" AND {fence}", " AND {fence}"]
);

macro_rules! lift {
    ($plain:literal, $striped:literal, $which:literal) => {
        [
            concat!(
                "UPDATE unalike_tag SET settled = ",
                $plain,
                ", watermark = ",
                $plain,
                ", version = version + 1 ",
                "WHERE ",
                $which
            ),
            concat!(
                "UPDATE unalike_tag SET settled = ",
                $striped,
                ", watermark = ",
                $striped,
                ", stripe_set = ?, stripe_version = version + 1, version = version + 1 WHERE ",
                $which
            ),
        ]
    };
}

/// All tags of users, and the floor of new names, by so many numbers or to the end: as a database of version 1 takes
/// it, and as one of version 2. There, rows that are not of the set and era are lifted above the given number first.
const LIFT_ALL: [&str; 2] = lift!(
    "watermark + LEAST(?, 9223372036854775807 - watermark)",
    "IF(stripe_set = ?, watermark, GREATEST(watermark, ?)) \
     + LEAST(?, 9223372036854775807 - IF(stripe_set = ?, watermark, GREATEST(watermark, ?)))",
    "NOT (tag LIKE ? OR tag = ? OR tag LIKE ? OR tag LIKE ?)"
);

/// The greatest number that was granted under a tag of users, but for tags that have ended.
const REACHED: &str = "SELECT watermark FROM unalike_tag WHERE watermark < 9223372036854775807 \
    AND NOT (tag LIKE ? OR tag = ? OR tag LIKE ? OR tag LIKE ?) ORDER BY watermark DESC LIMIT 1";

/// The time that was granted to leases: so many ms ahead of the server's clock, unless it is there.
const LIFT_LEASES: [&str; 2] = lift!(
    "GREATEST(watermark, ? + CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED))",
    "GREATEST(watermark, ? + CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED))",
    "tag LIKE ?"
);

/// The time that was granted to clocks, each with an epoch of its own: by so many ms.
const LIFT_CLOCKS: [&str; 2] = lift!(
    "watermark + LEAST(?, 9223372036854775807 - watermark)",
    "watermark + LEAST(?, 9223372036854775807 - watermark)",
    "tag LIKE ?"
);

/// What the formats of tags were: rows of the new era, and the same numbers.
const KEEP_FORMATS: [&str; 2] = lift!("watermark", "watermark", "tag LIKE ?");

const RESTRIPE_ALL: &str = "UPDATE unalike_tag SET stripe_set = ?, stripe_version = version WHERE stripe_set = ?";

/// One more tag, below the limit, by a client of the store's stripe; or a sub-key, which adds nothing. It comes first
/// in a creation: its lock on the row has creations and changes of the stripe wait for each other.
pub(crate) const COUNT: &str = "UPDATE unalike_store SET tags = tags + ? WHERE id = 1 AND tags < ?";

pub(crate) const COUNT_STRIPED: &str =
    "UPDATE unalike_store SET stripe_tags = tags + ?, tags = tags + ? WHERE id = 1 AND tags < ? AND stripe_set = ?";

/// The floor of new names, with the lock of a change: who only reads the table first, and then writes to it, could be
/// locked out by somebody who alters it.
pub(crate) const FLOOR: &str = "SELECT watermark FROM unalike_tag WHERE tag = ? FOR UPDATE";

pub(crate) const INSERT: &str = "INSERT INTO unalike_tag (tag, start, mode, step_policy, step, step_min, step_max, grow_below_ms, \
    shrink_above_ms, refill_policy, refill, settled, watermark) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

pub(crate) const INSERT_STRIPED: &str = "INSERT INTO unalike_tag (tag, start, mode, step_policy, step, step_min, step_max, \
    grow_below_ms, shrink_above_ms, refill_policy, refill, settled, watermark, stripe_set) \
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

const CHANGE_POLICIES: &str = "UPDATE unalike_tag SET step_policy = ?, step = ?, step_min = ?, step_max = ?, \
    grow_below_ms = ?, shrink_above_ms = ?, refill_policy = ?, refill = ? WHERE tag = ?";

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT tag, start, mode, step_policy, step, step_min, step_max, grow_below_ms, shrink_above_ms, \
             refill_policy, refill, watermark, version FROM unalike_tag ",
            $rest
        )
    };
}

/// The row of a tag.
pub(crate) const FIND: &str = select!("WHERE tag = ?");

/// The same, locked until the transaction ends.
pub(crate) const FIND_LOCKED: &str = select!("WHERE tag = ? FOR UPDATE");

/// What a row says of its stripe and era.
pub(crate) const ROW_STRIPE: &str = "SELECT stripe_set FROM unalike_tag WHERE tag = ?";

/// Whether a tag was ever created, and so whether there was a table of tags. The store's row says it, which is made
/// before that table, also for leases or for tables of another system alone.
pub(crate) const BEGUN: &str = "SELECT 1 FROM unalike_store WHERE id = 1 AND tags > 0";

const OF_ANOTHER_ERA: &str = "SELECT 1 FROM unalike_tag WHERE stripe_set <> ? LIMIT 1";

/// The statement that creates its table.
pub(crate) fn ddl() -> Vec<String> {
    vec![TAG_TABLE.trim().to_owned()]
}

/// The least privileges on its table.
pub(crate) fn privileges() -> Vec<(String, &'static str)> {
    vec![("unalike_tag".to_owned(), "SELECT, INSERT, UPDATE")]
}

pub(crate) async fn open(
    database: &Database,
    schema: Schema,
    options: &MysqlOptions,
) -> Result<Arc<dyn DialectStore>, StoreError> {
    Ok(Arc::new(OwnTables::open(database, schema, options, Some(BEGUN)).await?))
}

/// The same for what the product keeps for itself beside tables of another system: as whichever stripe the store is.
pub(crate) async fn open_beside(
    database: &Database,
    schema: Schema,
    options: &MysqlOptions,
) -> Result<Arc<dyn DialectStore>, StoreError> {
    // It is made when the first format is bound, and may be hidden from a user who shows none.
    let rows = OwnTables::open(database, schema, options, None).await?;
    // Who only looks changes nothing, and may find no record of a stripe.
    let joined = if options.only_looks { None } else { rows.stripe().await? };
    Ok(Arc::new(OwnTables { joined, ..rows }))
}

/// Lifts every tag, and the floor of new names, by so many numbers, or to the end, and the time that the product keeps
/// for itself by so many ms, and records in the same transaction, in place of `recorded`, what is to be said of the
/// server in the era that all rows are of from then on. So of two at once the later one finds another record, and
/// changes nothing. Answers how many tags of users there are.
///
/// A row that is not of the era before was written over by an older one, or came into being by replication: it is
/// lifted as if it had been the greatest.
pub(crate) async fn lift_all(
    database: &Database,
    schema: Schema,
    numbers: u64,
    kept_ms: u64,
    (recorded, record): (&str, impl FnOnce(Era) -> String),
) -> Result<u64, StoreError> {
    let before = Record::read(recorded).era();
    let has_stripes = schema.has_stripes();
    let at = usize::from(has_stripes);
    let [leases, clocks, formats] = kept_patterns().map(String::into_bytes);
    let statement = |statements: [&'static str; 2]| sqlx::query(statements.get(at).copied().unwrap_or_default());
    let mut turn = database.begin_alone("lifting all tags").await?.within(MAINTENANCE);
    let stripe = if has_stripes { schema::lock_stripe(&mut turn, database).await? } else { None };
    let mut era = Era { mark: if has_stripes { random_128()?.max(1) } else { 0 }, reached: 0 };
    let (set_before, set) = (row_set(stripe.as_ref(), before), row_set(stripe.as_ref(), era));
    let floor = insert(KEPT_FLOOR, &TagOptions::default(), 0, has_stripes.then(|| set_before.clone()));
    let _there_before = turn.try_execute(floor, &[DUPLICATE_ENTRY]).await?;
    for (lift, pattern) in [(LIFT_LEASES, &leases), (LIFT_CLOCKS, &clocks)] {
        let mut kept = statement(lift).bind(kept_ms).bind(kept_ms);
        if has_stripes {
            kept = kept.bind(set.clone());
        }
        turn.execute(kept.bind(pattern.clone())).await?;
    }
    let mut kept = statement(KEEP_FORMATS);
    if has_stripes {
        kept = kept.bind(set.clone());
    }
    turn.execute(kept.bind(formats.clone())).await?;
    let mut all = statement(LIFT_ALL);
    // Of `settled`, and of the watermark.
    for _ in 0..2 {
        all = if has_stripes {
            let all = all.bind(set_before.clone()).bind(before.reached).bind(numbers);
            all.bind(set_before.clone()).bind(before.reached)
        } else {
            all.bind(numbers)
        };
    }
    if has_stripes {
        all = all.bind(set);
    }
    let all = all.bind(leases.clone()).bind(KEPT_LEASES.as_bytes()).bind(clocks.clone()).bind(formats.clone());
    let lifted = turn.execute(all).await?.rows_affected();
    if has_stripes {
        let reached = sqlx::query(REACHED).bind(leases).bind(KEPT_LEASES.as_bytes()).bind(clocks).bind(formats);
        let rows = turn.rows(reached).await?;
        era.reached = rows.first().map(|row| number(database, row, "watermark")).transpose()?.unwrap_or_default();
    }
    schema::replace_record_in(&mut turn, database, recorded, &record(era)).await?;
    turn.commit().await?;
    // The floor is nobody's tag.
    Ok(lifted.saturating_sub(1))
}

/// Whether no row was written by another server, or before the record of this one was made: such rows grant nothing.
pub(crate) async fn are_all_of_era(database: &Database, schema: Schema, era: Era) -> Result<bool, StoreError> {
    if era.mark == 0 || !schema.has_stripes() {
        return Ok(true);
    }
    let mut turn = database.turn("looking for rows of another server").await?;
    let stripe = schema::stripe(&mut turn, database).await?;
    let others = sqlx::query(OF_ANOTHER_ERA).bind(row_set(stripe.as_ref(), era));
    let others = turn.try_rows(others, NO_SUCH_TABLE).await?;
    turn.give_back();
    Ok(others.is_none_or(|rows| rows.is_empty()))
}

/// What a row says of its stripe and its era.
fn row_set(stripe: Option<&Stripe>, era: Era) -> Vec<u8> {
    (stripe.map_or(0, |stripe| stripe.set) ^ era.mark).to_be_bytes().to_vec()
}

/// Segments in `unalike_tag`.
#[derive(Debug)]
struct OwnTables {
    database: Database,
    creation: TagCreation,
    /// Of the tables when they were last looked at; they may be newer by now.
    schema: Mutex<Schema>,
    /// The stripe that this client joined.
    joined: Option<Stripe>,
    era: Era,
}

/// The version that a row shall have after the statement that is about to run, at least.
///
/// The reply to an allocation has no room for the row's version, so the client proposes it: `GREATEST(version + 1, ?)`.
/// A row that was ahead of the proposal has another version than the client believes, and a greater one for ever: the
/// tail cannot be given back, which is a gap. A version that does match was set by the very statement that proposed it,
/// for each statement after it sets a greater one. Hence proposals need not be unique among programs. They grow within
/// a program, and with the clock across restarts, so that they are seldom behind; uniqueness never rests on the clock.
fn propose_version() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    #[expect(clippy::disallowed_methods, reason = "a wrong clock costs a gap when a tail is given back, and no more")]
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // 2^47 ms are some 4,000 years.
    let clock = u64::try_from(since.as_millis()).unwrap_or_default().min((1 << 47) - 1) << 16;
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(clock.max(last + 1)));
    // It always gives a new value, so both arms hold the old one.
    let (Ok(last) | Err(last)) = last;
    clock.max(last + 1)
}

impl OwnTables {
    /// As a store that stands alone.
    async fn open(
        database: &Database,
        schema: Schema,
        options: &MysqlOptions,
        begun: Option<&'static str>,
    ) -> Result<Self, StoreError> {
        tables::open_begun(database, options, &[SHAPE], begun).await?;
        let creation = options.creation;
        let (schema, era) = (Mutex::new(schema), database.era());
        Ok(Self { database: database.clone(), creation, schema, joined: None, era })
    }

    fn schema(&self) -> MutexGuard<'_, Schema> {
        self.schema.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A change of the tag's row, and the version that it proposes.
    fn change<'q>(
        &self,
        change: &Change,
        tag: &'q str,
        assignments: &[u64],
        conditions: &[u64],
    ) -> (Statement<'q>, u64) {
        let has_stripes = self.schema().has_stripes();
        let version = propose_version();
        let sql = if has_stripes { change.striped } else { change.plain };
        let mut statement = sqlx::query(self.database.fenced(sql));
        for &value in assignments {
            statement = statement.bind(value);
        }
        statement = statement.bind(version);
        if has_stripes {
            statement = statement.bind(version);
        }
        statement = statement.bind(tag.as_bytes());
        for &value in conditions {
            statement = statement.bind(value);
        }
        if has_stripes && change.is_striped {
            statement = statement.bind(self.row_set());
        }
        (statement, version)
    }

    /// What rows of this client's stripe and era say.
    fn row_set(&self) -> Vec<u8> {
        row_set(self.joined.as_ref(), self.era)
    }

    async fn find_tag(&self, tag: &str) -> Result<Option<TagRecord>, StoreError> {
        let rows = self.database.rows("reading a tag", find(tag)).await?;
        rows.first().map(|row| self.tag_record(row)).transpose()
    }

    /// The row, after it was changed or while it is locked.
    async fn tag_in(&self, turn: &mut Turn, tag: &str) -> Result<TagRecord, StoreError> {
        let rows = turn.rows(find(tag)).await?;
        let row = rows.first().ok_or_else(|| damaged(self.database.at(), &format!("the tag {tag:?} vanished")))?;
        self.tag_record(row)
    }

    /// The floor of new names, which nobody makes or lifts before this transaction has ended.
    async fn floor_in(&self, turn: &mut Turn) -> Result<u64, StoreError> {
        let rows = turn.rows(sqlx::query(FLOOR).bind(KEPT_FLOOR.as_bytes())).await?;
        Ok(rows.first().map(|row| self.column(row, "watermark")).transpose()?.unwrap_or_default())
    }

    /// Refuses a new sub-key whose tag has ended. Until this transaction ends, nobody ends the tag: so whoever lists
    /// its sub-keys afterwards sees this one.
    async fn check_owner(&self, turn: &mut Turn, name: &str) -> Result<Result<(), StoreError>, StoreError> {
        let (tag, Some(_)) = split_tag(name) else { return Ok(Ok(())) };
        let rows = turn.rows(sqlx::query(FIND_LOCKED).bind(tag.as_bytes())).await?;
        // Without a row there is nothing to end.
        let Some(row) = rows.first() else { return Ok(Ok(())) };
        Ok(self.tag_record(row)?.options_of_sub_keys(name).map(drop))
    }

    /// The new tag, or none if it exists already.
    async fn insert_tag(&self, tag: &str, options: &TagOptions) -> Result<Option<TagRecord>, StoreError> {
        let has_stripes = self.schema().has_stripes();
        let tags_max = self.creation.of(tag).tags_max;
        let mut turn = self.database.begin_alone("creating a tag").await?;
        let (counted, limit) = if split_tag(tag).1.is_none() { (1_u64, tags_max) } else { (0, u64::MAX) };
        let mut count = sqlx::query(if has_stripes { COUNT_STRIPED } else { COUNT }).bind(counted);
        if has_stripes {
            count = count.bind(counted);
        }
        count = count.bind(limit);
        if has_stripes {
            count = count.bind(schema::set_bytes(self.joined.as_ref()));
        }
        if turn.execute(count).await?.rows_affected() == 0 {
            turn.roll_back().await?;
            self.check_stripe().await?;
            return match self.find_tag(tag).await? {
                Some(_) => Ok(None),
                None => Err(StoreError::TagLimit { tag: tag.to_owned(), tags_max }),
            };
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
        let watermark = first_watermark(tag, options.start, floor);
        let insert = insert(tag, options, watermark, has_stripes.then(|| self.row_set()));
        if turn.try_execute(insert, &[DUPLICATE_ENTRY]).await?.is_err() {
            turn.roll_back().await?;
            return Ok(None);
        }
        turn.commit().await?;
        Ok(Some(TagRecord { tag: tag.to_owned(), options: *options, watermark, version: 0 }))
    }

    fn column<'r, T>(&self, row: &'r MySqlRow, column: &str) -> Result<T, StoreError>
    where
        T: sqlx::Decode<'r, sqlx::MySql> + sqlx::Type<sqlx::MySql>,
    {
        row.try_get(column).map_err(|error| read_error(self.database.at(), "reading a row of unalike_tag", error))
    }

    fn tag_record(&self, row: &MySqlRow) -> Result<TagRecord, StoreError> {
        let figure = |column: &str| self.column::<u64>(row, column);
        let broken = |what: &str| damaged(self.database.at(), &format!("unalike_tag has a row with {what}"));
        let (step_policy, refill_policy) = (self.column(row, "step_policy")?, self.column(row, "refill_policy")?);
        let (step, refill) = PolicyColumns::read(step_policy, refill_policy, figure)?
            .ok_or_else(|| broken(&format!("the policies {step_policy:?} and {refill_policy:?}")))?;
        let mode: &str = self.column(row, "mode")?;
        let mode = Mode::named(mode).ok_or_else(|| broken(&format!("the mode {mode:?}")))?;
        let tag = String::from_utf8(self.column(row, "tag")?).map_err(|_| broken("a name that is not UTF-8"))?;
        let options = TagOptions { start: figure("start")?, step, refill, mode };
        options.validate(&tag).map_err(|error| broken(&error.to_string()))?;
        let watermark = figure("watermark")?;
        if watermark > ID_MAX {
            return Err(broken(&format!("the watermark {watermark}, and 2^63 - 1 is the greatest")));
        }
        Ok(TagRecord { tag, options, watermark, version: figure("version")? })
    }

    /// Whether the database has stripes by now: somebody else may have taken it to a newer version.
    async fn has_stripes(&self) -> Result<bool, StoreError> {
        if !self.schema().has_stripes() {
            let current = schema::current(&self.database).await?;
            *self.schema() = current;
        }
        Ok(self.schema().has_stripes())
    }

    async fn require_stripes(&self) -> Result<(), StoreError> {
        if self.has_stripes().await? {
            return Ok(());
        }
        Err(StoreError::refused(format!(
            "{}: its tables have a version that knows no stripes: run `unalike schema upgrade`",
            self.database.at()
        )))
    }

    /// Makes sure that the store is what this client joined.
    async fn check_stripe(&self) -> Result<(), StoreError> {
        let recorded = self.stripe().await?;
        Stripe::check_grant(&self.name(), recorded.as_ref(), self.joined.as_ref())
    }

    /// Makes sure that the tag's row is of this client's stripe and era.
    async fn check_row(&self, tag: &str) -> Result<(), StoreError> {
        self.check_stripe().await?;
        if !self.schema().has_stripes() {
            return Ok(());
        }
        let find = sqlx::query(ROW_STRIPE).bind(tag.as_bytes());
        let rows = self.database.rows("reading a row's stripe", find).await?;
        let Some(row) = rows.first() else { return Ok(()) };
        let found: Vec<u8> = row
            .try_get("stripe_set")
            .map_err(|error| read_error(self.database.at(), "reading a row's stripe", error))?;
        if found == self.row_set() {
            return Ok(());
        }
        Err(StoreError::refused(format!(
            "{}: the row of the tag {tag:?} was written by another server than the one that unalike_store records, or unalike_store \
             was made anew since. End replication if it goes on here (MySQL: STOP REPLICA; RESET REPLICA ALL. MariaDB: STOP ALL \
             SLAVES; RESET SLAVE ALL), lift the tags above everything that was handed out with `unalike store adopt --lift \
             COUNT`, and restart the programs",
            self.database.at()
        )))
    }

    /// For messages.
    fn name(&self) -> String {
        format!("the store at {}", self.database.at())
    }
}

/// The statement that inserts a row: of this stripe and era, in a database that has stripes.
fn insert<'q>(tag: &'q str, options: &TagOptions, watermark: u64, row_set: Option<Vec<u8>>) -> Statement<'q> {
    let insert = sqlx::query(if row_set.is_some() { INSERT_STRIPED } else { INSERT });
    let insert = insert.bind(tag.as_bytes()).bind(options.start).bind(options.mode.name());
    let insert = bind_policies(insert, options.step, options.refill).bind(watermark).bind(watermark);
    match row_set {
        Some(row_set) => insert.bind(row_set),
        None => insert,
    }
}

fn find(tag: &str) -> Statement<'_> {
    sqlx::query(FIND).bind(tag.as_bytes())
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
        self.insert_tag(tag, options).await
    }

    async fn grant_from_row(&self, tag: &str, count: u64, at_least: u64) -> Result<Option<Segment>, StoreError> {
        let others = count.min(ID_MAX) - 1;
        let assignments = [at_least, at_least, at_least, others, at_least];
        let (statement, version) = self.change(&ALLOCATE, tag, &assignments, &[]);
        let done = self.database.execute("allocating a segment", statement).await?;
        if done.rows_affected() == 1 {
            let start = done.last_insert_id();
            let end = if start > ID_MAX { 0 } else { start + others.min(ID_MAX - start) + 1 };
            let segment = Segment { start, end, stride: 1, generation: 0, version };
            if segment.validate().is_err() || segment.start < at_least {
                return Err(damaged(self.database.at(), &format!("the grant {segment:?} is not what was asked for")));
            }
            return Ok(Some(segment));
        }
        self.database.check_fence().await?;
        self.check_row(tag).await?;
        Ok(None)
    }
}

#[async_trait]
impl SegmentStore for OwnTables {
    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        self.grant_or_create(tag, count, at_least).await
    }

    async fn release(&self, tag: &str, tail: TailRelease) -> Result<bool, StoreError> {
        validate_tag(tag)?;
        if tail.start == 0 {
            return Ok(false);
        }
        let assignments = [tail.start - 1, tail.start - 1];
        let conditions = [tail.version, tail.start, tail.start];
        let (statement, _) = self.change(&RELEASE, tag, &assignments, &conditions);
        Ok(self.database.execute("releasing a tail", statement).await?.rows_affected() == 1)
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
        let mut turn = self.database.begin("changing a tag").await?;
        let change = bind_policies(sqlx::query(CHANGE_POLICIES), step, refill).bind(tag.as_bytes());
        if turn.execute(change).await?.rows_affected() == 0 {
            turn.roll_back().await?;
            return Err(StoreError::tag_unknown(tag));
        }
        let record = self.tag_in(&mut turn, tag).await?;
        turn.commit().await?;
        Ok(record)
    }

    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        validate_raise(tag, next)?;
        let mut turn = self.database.begin("raising a tag").await?;
        let (statement, _) = self.change(&RAISE, tag, &[next - 1, next - 1], &[]);
        if turn.execute(statement).await?.rows_affected() == 0 {
            turn.roll_back().await?;
            self.check_row(tag).await?;
            return Err(StoreError::tag_unknown(tag));
        }
        let record = self.tag_in(&mut turn, tag).await?;
        turn.commit().await?;
        Ok(record)
    }

    async fn retire_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        let mut turn = self.database.begin("ending a tag").await?;
        let rows = turn.rows(sqlx::query(FIND_LOCKED).bind(tag.as_bytes())).await?;
        let Some(row) = rows.first() else {
            turn.roll_back().await?;
            return Err(StoreError::tag_unknown(tag));
        };
        let record = self.tag_record(row)?;
        let (statement, _) = self.change(&RETIRE, tag, &[], &[]);
        if turn.execute(statement).await?.rows_affected() == 0 {
            turn.roll_back().await?;
            self.check_row(tag).await?;
            return Err(StoreError::tag_unknown(tag));
        }
        turn.commit().await?;
        Ok(record)
    }

    async fn retire_tags(&self, tags: &[String]) -> Result<Option<Vec<TagRecord>>, StoreError> {
        tags.iter().try_for_each(|tag| validate_tag(tag))?;
        let mut turn = self.database.begin("ending tags").await?.within(MAINTENANCE);
        let mut records = Vec::with_capacity(tags.len());
        for tag in tags {
            let rows = turn.rows(sqlx::query(FIND_LOCKED).bind(tag.as_bytes())).await?;
            let Some(row) = rows.first() else { break };
            let record = self.tag_record(row)?;
            let (statement, _) = self.change(&RETIRE, tag, &[], &[]);
            if turn.execute(statement).await?.rows_affected() == 0 {
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
        let counted = tags.iter().filter(|(tag, _)| split_tag(tag).1.is_none()).count() as u64;
        // Below the limit afterwards, too.
        let limit = self.creation.tags_max.checked_sub(counted).and_then(|limit| limit.checked_add(1));
        let Some(limit) = limit.filter(|_| !tags.is_empty() && !tags.iter().any(is_odd)) else { return Ok(None) };
        let has_stripes = self.schema().has_stripes();
        let mut turn = self.database.begin_alone("creating tags").await?.within(MAINTENANCE);
        let mut count = sqlx::query(if has_stripes { COUNT_STRIPED } else { COUNT }).bind(counted);
        if has_stripes {
            count = count.bind(counted);
        }
        count = count.bind(if counted > 0 { limit } else { u64::MAX });
        if has_stripes {
            count = count.bind(schema::set_bytes(self.joined.as_ref()));
        }
        // Sub-keys alone too: the row says whether the store still is of this client's stripe.
        if turn.execute(count).await?.rows_affected() == 0 {
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
        let insert = if has_stripes { INSERT_STRIPED } else { INSERT };
        let (into, row) = insert.split_once("VALUES ").unwrap_or((insert, ""));
        let rows = vec![row; tags.len()].join(", ");
        let mut insert = sqlx::query(AssertSqlSafe(format!("{into}VALUES {rows}")));
        let mut records = Vec::with_capacity(tags.len());
        for (tag, options) in tags {
            let watermark = first_watermark(tag, options.start, floor);
            insert = insert.bind(tag.as_bytes()).bind(options.start).bind(options.mode.name());
            insert = bind_policies(insert, options.step, options.refill).bind(watermark).bind(watermark);
            if has_stripes {
                insert = insert.bind(self.row_set());
            }
            records.push(TagRecord { tag: tag.clone(), options: *options, watermark, version: 0 });
        }
        if turn.try_execute(insert, &[DUPLICATE_ENTRY]).await?.is_err() {
            turn.roll_back().await?;
            return Ok(None);
        }
        turn.commit().await?;
        Ok(Some(records))
    }

    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        // No tag is empty.
        let list = sqlx::query(select!("WHERE tag > ? ORDER BY tag LIMIT ?"));
        let list = list.bind(after.unwrap_or_default().as_bytes()).bind(limit);
        let rows = self.database.rows("listing tags", list).await?;
        rows.iter().map(|row| self.tag_record(row)).collect()
    }

    fn keeps_formats(&self) -> bool {
        true
    }

    async fn check(&self) -> Result<(), StoreError> {
        // It changes nothing, and is refused where nothing may be changed.
        let mut turn = self.database.begin_alone("checking that the store can be written to").await?;
        let touch = sqlx::query("UPDATE unalike_store SET tags = tags WHERE id = 1");
        let touched = turn.execute(touch).await?.rows_affected();
        turn.roll_back().await?;
        if touched == 0 {
            return Err(damaged(self.database.at(), "the table unalike_store has no row"));
        }
        Ok(())
    }

    async fn stripe(&self) -> Result<Option<Stripe>, StoreError> {
        if !self.has_stripes().await? {
            return Ok(None);
        }
        let mut turn = self.database.turn("reading the stripe").await?;
        let recorded = schema::stripe(&mut turn, &self.database).await?;
        turn.give_back();
        Ok(recorded)
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        self.require_stripes().await?;
        let mut turn = self.database.begin_alone("recording the stripe").await?.within(MAINTENANCE);
        let recorded = schema::lock_stripe(&mut turn, &self.database).await?;
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
            set_stripe(&mut turn, None, Some(stripe), self.era).await?;
        }
        turn.commit().await?;
        let schema = Mutex::new(*self.schema());
        let (database, creation, era) = (self.database.clone(), self.creation, self.era);
        let joined = Self { database, creation, schema, joined: Some(*stripe), era };
        Ok(JoinedStripe { store: Arc::new(joined), numbers: StripeNumbers::Counted })
    }

    async fn restripe(&self, expected: Option<&Stripe>, stripe: Option<&Stripe>) -> Result<(), StoreError> {
        self.require_stripes().await?;
        let mut turn = self.database.begin_alone("recording another stripe").await?.within(MAINTENANCE);
        let recorded = schema::lock_stripe(&mut turn, &self.database).await?;
        if let Err(refused) = Stripe::check_change(&self.name(), recorded.as_ref(), expected, stripe) {
            turn.roll_back().await?;
            return Err(refused);
        }
        set_stripe(&mut turn, expected, stripe, self.era).await?;
        turn.commit().await
    }

    async fn close(&self) {
        self.database.close().await;
    }
}

/// Records the stripe in the store and in all rows of the one before, so that every client of another one is granted
/// nothing from then on.
async fn set_stripe(
    turn: &mut Turn,
    before: Option<&Stripe>,
    stripe: Option<&Stripe>,
    era: Era,
) -> Result<(), StoreError> {
    schema::record_stripe(turn, stripe).await?;
    turn.execute(sqlx::query(RESTRIPE_ALL).bind(row_set(stripe, era)).bind(row_set(before, era))).await?;
    Ok(())
}

/// Binds all policies, in the order in which the statements name their columns.
fn bind_policies(statement: Statement<'_>, step: StepPolicy, refill: RefillPolicy) -> Statement<'_> {
    let columns = PolicyColumns::new(step, refill);
    statement
        .bind(columns.step_policy)
        .bind(columns.step)
        .bind(columns.step_min)
        .bind(columns.step_max)
        .bind(columns.grow_below_ms)
        .bind(columns.shrink_above_ms)
        .bind(columns.refill_policy)
        .bind(columns.refill)
}
