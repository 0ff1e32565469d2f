//! Blocks of existing sequences, beside the programs that use them: `nextval` alone, as they do it.
//!
//! A tag is a sequence of the schema. A grant draws as many values as it needs by one statement, and takes the longest
//! run of them that nobody else drew from in between; other values are left out, which sequences do anyway.
//!
//! **Durability.** `nextval` alone is not durable when it is answered. It logs 32 values ahead, in the transaction that
//! draws the first of them; who draws one of the others writes nothing, and so waits for nothing, though the first
//! transaction may not have ended. After a crash these values come again. So each grant writes a message of its own
//! into the log (`pg_logical_emit_message`), with which its transaction has something to commit: the flush of its
//! commit has all that was logged before on the disk, and on a synchronous standby.
//!
//! **Parameters.** They are read behind the values: from the first draw on, the transaction holds a lock that
//! `ALTER SEQUENCE` waits for.
//!
//! **Formats.** A sequence has no place for what its ids look like. That is kept in `unalike_tag`, as it is for
//! unalike's own tags. The table is made when the first format is bound: whoever shows none needs neither the table nor
//! a privilege on it.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use unalike_storage::{
    FormatBinding, FormatOwner, FormatPart, ID_MAX, RefillPolicy, Segment, SegmentStore, StepPolicy, StoreError,
    StoreIdentity, TagOptions, TagRecord, TailRelease, split_tag, validate_allocate, validate_raise, validate_tag,
};

use crate::database::{Database, number, signed};
use crate::error::{SEQUENCE_ENDS, damaged, read_error};
use crate::schema::{self, TAG};
use crate::segments::OwnTables;
use crate::{Optimizer, PostgresOptions};

/// So many values are drawn for one grant, at most.
const DRAWN_MAX: u64 = 1_000;

/// So many are drawn by one statement to get further, at most.
const SKIPPED_AT_ONCE: u64 = 500_000;

/// So many are drawn to get further, at most: some ten seconds.
const SKIPPED_MAX: u64 = 10_000_000;

/// How a sequence comes to be.
const MADE_BY_OWNER: &str =
    "creating a sequence cannot be done here: have the owner of the database do it (CREATE SEQUENCE)";

const DRAW: &str = include_str!("sql/draw.sql");
const SKIP: &str = include_str!("sql/skip.sql");
const LIST: &str = include_str!("sql/sequences.sql");

/// The sequences of a schema.
#[derive(Debug)]
pub(crate) struct Sequences {
    database: Database,
    optimizer: Optimizer,
    options: PostgresOptions,
    /// The table of formats was found usable, by this user.
    has_formats: AtomicBool,
}

/// A sequence as the server describes it.
struct Found {
    name: String,
    persistence: String,
    start: i64,
    increment: i64,
    cycles: bool,
    /// How many values each session draws ahead.
    cache: i64,
    max: i64,
    /// The value that was drawn last; none in a new one.
    last: Option<i64>,
}

impl Found {
    /// Whether numbers of it can be unique.
    fn check(&self, at: &str) -> Result<(), StoreError> {
        let why = if self.persistence != "p" {
            "is unlogged or temporary: a crash would begin it anew"
        } else if self.cycles {
            "begins again when it ends (CYCLE), and numbers would repeat"
        } else if self.increment <= 0 {
            "counts down"
        } else if self.start < 1 {
            "begins below 1"
        } else if self.last.is_some_and(|last| last < 1) {
            "was set below 1"
        } else {
            return Ok(());
        };
        Err(StoreError::refused(format!("{at}: the sequence {:?} {why}: use another", self.name)))
    }
}

impl Sequences {
    pub(crate) fn new(database: Database, optimizer: Optimizer, options: PostgresOptions) -> Self {
        Self { database, optimizer, options, has_formats: AtomicBool::new(false) }
    }

    /// The table of formats for this request. None for one that only looks, where there is no table, or none that this
    /// user may look into.
    async fn formats(&self, binding: FormatBinding) -> Result<Option<OwnTables>, StoreError> {
        if !self.has_formats.load(Ordering::Relaxed) {
            let has_tags = self.database.rows("looking for formats", sqlx::query(schema::HAS_TAGS)).await?;
            if has_tags.is_empty() && binding == FormatBinding::Look {
                return Ok(None);
            }
            let opened = schema::open_tables(&self.database, &self.options, &[TAG]).await;
            opened.map_err(StoreError::in_table_of_formats)?;
            self.has_formats.store(!has_tags.is_empty(), Ordering::Relaxed);
        }
        Ok(Some(OwnTables { database: self.database.clone(), creation: self.options.creation, joined: None }))
    }

    async fn find(&self, tag: &str) -> Result<Option<Found>, StoreError> {
        Ok(self.list("", tag, 1).await?.pop())
    }

    async fn list(&self, after: &str, name: &str, limit: u32) -> Result<Vec<Found>, StoreError> {
        const DOING: &str = "looking at sequences";
        let list = sqlx::query(LIST).bind(after.to_owned()).bind(name.to_owned()).bind(i64::from(limit));
        let rows = self.database.rows(DOING, list).await?;
        let found = |row: &PgRow| -> Result<Found, sqlx::Error> {
            Ok(Found {
                name: row.try_get("name")?,
                persistence: row.try_get("persistence")?,
                start: row.try_get("start")?,
                increment: row.try_get("increment")?,
                cycles: row.try_get("cycles")?,
                cache: row.try_get("cache")?,
                max: row.try_get("max")?,
                last: row.try_get("last")?,
            })
        };
        let found: Result<Vec<_>, _> = rows.iter().map(found).collect();
        found.map_err(|error| read_error(self.database.at(), DOING, error))
    }

    async fn known(&self, tag: &str) -> Result<Found, StoreError> {
        validate_tag(tag)?;
        if let (name, Some(sub)) = split_tag(tag) {
            let reason = format!("sequences have no sub-keys, and {sub:?} was given: use a sequence for each");
            return Err(StoreError::TagInvalid { tag: name.to_owned(), reason });
        }
        let Some(found) = self.find(tag).await? else { return Err(self.unknown(tag).await?) };
        found.check(self.database.at())?;
        Ok(found)
    }

    /// Why there is no sequence that the user may use.
    async fn unknown(&self, tag: &str) -> Result<StoreError, StoreError> {
        let look = sqlx::query(include_str!("sql/has_sequence.sql")).bind(tag.to_owned());
        Ok(match self.database.rows("looking at sequences", look).await?.is_empty() {
            true => StoreError::tag_unknown_here(tag, MADE_BY_OWNER),
            false => StoreError::refused(format!(
                "{}: the user may not use the sequence {tag:?}: have its owner run GRANT USAGE, SELECT ON SEQUENCE",
                self.database.at()
            )),
        })
    }

    /// The record of a tag; of one that cannot be a tag, with 0 in place of what is below.
    fn record(&self, found: &Found) -> TagRecord {
        let from_0 = |number: i64| u64::try_from(number).unwrap_or(0);
        let (start, increment) = (from_0(found.start), from_0(found.increment));
        let watermark = found.last.map_or(start.saturating_sub(1), |last| match self.optimizer {
            Optimizer::Pooled => from_0(last),
            Optimizer::PooledLo => from_0(last).saturating_add(increment.saturating_sub(1)).min(ID_MAX),
        });
        let is_at_end = found.last.is_some_and(|last| found.max.saturating_sub(last) < found.increment);
        let watermark = if is_at_end { ID_MAX } else { watermark };
        TagRecord {
            tag: found.name.clone(),
            options: TagOptions { start, ..TagOptions::default() },
            watermark,
            version: 0,
        }
    }

    /// Why a statement drew nothing.
    async fn nothing_drawn(&self, turn: crate::database::Turn, tag: &str) -> StoreError {
        if let Err(error) = self.database.check_fence(turn).await {
            return error;
        }
        match self.known(tag).await {
            Err(error) => error,
            Ok(_) => StoreError::unavailable(format!("the sequence {tag:?} was changed just now: try again")),
        }
    }

    /// Numbers by one statement.
    async fn draw(&self, tag: &str, count: u64) -> Result<Segment, StoreError> {
        let mut turn = self.database.turn("drawing from a sequence").await?;
        let draw = turn.fenced(DRAW).bind(tag.to_owned()).bind(signed(count.min(ID_MAX / 2))).bind(signed(DRAWN_MAX));
        let Some(rows) = turn.try_write(draw, SEQUENCE_ENDS).await? else {
            turn.give_back();
            return self.draw_the_rest(tag, count).await;
        };
        let Some(row) = rows.first() else { return Err(self.nothing_drawn(turn, tag).await) };
        turn.give_back();
        self.segment(tag, row, count)
    }

    /// The values that are left may be fewer than were asked for.
    async fn draw_the_rest(&self, tag: &str, count: u64) -> Result<Segment, StoreError> {
        let mut turn = self.database.turn("drawing from a sequence").await?;
        let draw = turn.fenced(DRAW).bind(tag.to_owned()).bind(1_i64).bind(1_i64);
        let Some(rows) = turn.try_write(draw, SEQUENCE_ENDS).await? else {
            turn.give_back();
            return Err(StoreError::exhausted(tag));
        };
        let Some(row) = rows.first() else { return Err(self.nothing_drawn(turn, tag).await) };
        turn.give_back();
        self.segment(tag, row, count)
    }

    fn segment(&self, tag: &str, row: &PgRow, count: u64) -> Result<Segment, StoreError> {
        let unreadable = |error| read_error(self.database.at(), "reading values of a sequence", error);
        let numbers: Vec<i64> = row.try_get("numbers").map_err(unreadable)?;
        let figure = |column| number(&self.database, row, column);
        self.database.note_position(row)?;
        let (increment, start) = (figure("increment")?, figure("start_value")?);
        let broken = |what: &str| damaged(self.database.at(), &format!("the sequence {tag:?} {what}"));
        if figure("increments")? != 1 || increment == 0 {
            return Err(broken("changed while it was drawn from"));
        }
        let numbers: Vec<u64> =
            numbers.into_iter().map(u64::try_from).collect::<Result<_, _>>().map_err(|_| broken("is below 0"))?;
        let (first, last) = longest_run(&numbers, increment).ok_or_else(|| broken("gave no value"))?;
        let (low, high) = match self.optimizer {
            // Below its start, nobody expects numbers of it.
            Optimizer::Pooled => ((first + 1).saturating_sub(increment).max(start.min(first)), last),
            Optimizer::PooledLo => (first, last.saturating_add(increment - 1).min(ID_MAX)),
        };
        let end = high.min(low.saturating_add(count - 1)) + 1;
        let segment = Segment { start: low, end, stride: 1, generation: 0, version: 0 };
        if segment.validate().is_err() {
            return Err(broken(&format!("gave {segment:?}, and numbers are 1 to 2^63 - 1")));
        }
        Ok(segment)
    }

    /// Draws so many values from a sequence, or what is left.
    async fn skip(&self, tag: &str, values: u64) -> Result<(), StoreError> {
        let mut left = values;
        while left > 0 {
            let now = left.min(SKIPPED_AT_ONCE);
            let mut turn = self.database.begin_long("drawing values to get further").await?;
            let skip = turn.fenced(SKIP).bind(tag.to_owned()).bind(signed(now));
            let Some(rows) = turn.try_write(skip, SEQUENCE_ENDS).await? else {
                // Values that were drawn before it ended stay drawn.
                turn.roll_back().await?;
                return Ok(());
            };
            if rows.is_empty() {
                let turn = turn.end().await?;
                return Err(self.nothing_drawn(turn, tag).await);
            }
            turn.commit().await?;
            left -= now;
        }
        Ok(())
    }

    /// Draws as many values as lie below this number, if they are not too many.
    async fn reach(&self, tag: &str, at_least: u64) -> Result<(), StoreError> {
        let found = self.known(tag).await?;
        let reached = self.record(&found).watermark;
        // The value that stands for it is drawn next.
        let values = at_least.saturating_sub(1).saturating_sub(reached) / found.increment.cast_unsigned();
        if values > SKIPPED_MAX {
            return Err(StoreError::refused(format!(
                "{}: the sequence {tag:?} is {values} values below {at_least}, and {SKIPPED_MAX} at most are drawn to get \
                 further: have its owner set it (ALTER SEQUENCE .. RESTART WITH {at_least})",
                self.database.at()
            )));
        }
        self.skip(tag, values).await
    }

    /// Draws so many values from each sequence that the user may use and that can be a tag; answers how many there are.
    pub(crate) async fn draw_from_all(&self, values: u64) -> Result<u64, StoreError> {
        if values > SKIPPED_MAX {
            return Err(StoreError::refused(format!(
                "each sequence was to be lifted by {values} values, and {SKIPPED_MAX} at most are drawn: have their owner set \
                 them (ALTER SEQUENCE .. RESTART WITH NUMBER, an INCREMENT above all that was handed out), and adopt the server with \
                 --lift 1"
            )));
        }
        let mut drawn = 0;
        for found in self.list("", "", u32::MAX).await? {
            if found.check(self.database.at()).is_ok() {
                self.skip(&found.name, values).await?;
                drawn += 1;
            }
        }
        Ok(drawn)
    }

    fn not_here(&self, what: &str, instead: &str) -> StoreError {
        StoreError::refused(format!("{}: {what} cannot be done here: {instead}", self.database.at()))
    }
}

/// The first and the last value of the longest run without a gap.
fn longest_run(numbers: &[u64], increment: u64) -> Option<(u64, u64)> {
    let mut longest: Option<(u64, u64)> = None;
    let mut current: Option<(u64, u64)> = None;
    for &number in numbers {
        let run = match current {
            Some((first, last)) if last.checked_add(increment) == Some(number) => (first, number),
            _ => (number, number),
        };
        current = Some(run);
        if longest.is_none_or(|longest| longest.1 - longest.0 < run.1 - run.0) {
            longest = Some(run);
        }
    }
    longest
}

#[async_trait]
impl SegmentStore for Sequences {
    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        validate_allocate(tag, count, at_least)?;
        let mut segment = self.draw(tag, count).await?;
        if segment.start < at_least && segment.end <= at_least {
            // What was drawn is left out.
            self.reach(tag, at_least).await?;
            segment = self.draw(tag, count).await?;
        }
        if segment.start < at_least {
            segment.start = at_least;
        }
        if segment.validate().is_err() {
            return Err(StoreError::unavailable(format!("the sequence {tag:?} is below {at_least} still: try again")));
        }
        Ok(segment)
    }

    async fn release(&self, tag: &str, _tail: TailRelease) -> Result<bool, StoreError> {
        validate_tag(tag)?;
        Ok(false)
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.tag(tag).await
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.known(tag).await.map(|found| self.record(&found))
    }

    async fn create_tag(&self, tag: &str, _options: &TagOptions) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        if self.find(tag).await?.is_some() {
            return Err(StoreError::TagExists { tag: tag.to_owned() });
        }
        Err(StoreError::refused(format!("{}: {MADE_BY_OWNER}", self.database.at())))
    }

    async fn change_tag(&self, tag: &str, _step: StepPolicy, _refill: RefillPolicy) -> Result<TagRecord, StoreError> {
        self.known(tag).await?;
        Err(self.not_here("changing the policies of a tag", "a sequence has no room for them"))
    }

    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        validate_raise(tag, next)?;
        if self.known(tag).await?.cache > 1 {
            return Err(self.not_here(
                &format!("raising the sequence {tag:?}"),
                "each session holds values ahead (CACHE), which go on below: have its owner do it (ALTER SEQUENCE .. CACHE 1 \
                 RESTART WITH NUMBER), and restart the programs that draw from it",
            ));
        }
        self.reach(tag, next).await?;
        let mut record = self.tag(tag).await?;
        // Of the value that is drawn next some numbers may lie below: the first value of a new sequence stands for one.
        for _ in 0..2 {
            if record.watermark >= next - 1 {
                break;
            }
            self.skip(tag, 1).await?;
            record = self.tag(tag).await?;
        }
        Ok(record)
    }

    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        let found = self.list(after.unwrap_or_default(), "", limit).await?;
        Ok(found.iter().map(|found| self.record(found)).collect())
    }

    /// That it cannot be a tag, if it cannot: it is listed all the same.
    async fn beyond_record(&self, tag: &str) -> Result<Option<String>, StoreError> {
        let found = self.find(tag).await?;
        Ok(found.and_then(|found| found.check(self.database.at()).err()).map(|refused| refused.to_string()))
    }

    fn keeps_formats(&self) -> bool {
        true
    }

    async fn bind_format(
        &self,
        owner: FormatOwner<'_>,
        part: FormatPart,
        binding: FormatBinding,
    ) -> Result<Option<u64>, StoreError> {
        match self.formats(binding).await? {
            Some(formats) => formats.bind_format(owner, part, binding).await,
            None => Ok(None),
        }
    }

    async fn hides_formats(&self) -> Result<Option<String>, StoreError> {
        const HIDDEN: &str = "SELECT 1 FROM to_regclass('unalike_tag') AS t \
            WHERE t IS NOT NULL AND NOT has_table_privilege(t, 'SELECT')";
        let rows = self.database.rows("looking for formats", sqlx::query(HIDDEN)).await?;
        Ok((!rows.is_empty()).then(|| {
            "formats are kept in the table unalike_tag, which this user may not look into: GRANT SELECT on it"
                .to_owned()
        }))
    }

    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        schema::identity(&self.database, self.database.part()).await.map(Some)
    }

    async fn check(&self) -> Result<(), StoreError> {
        let mut turn = self.database.turn("checking that the store can be used").await?;
        let look = turn.fenced("SELECT 1 WHERE {fence}");
        if turn.rows(look).await?.is_empty() {
            return Err(self.database.held_back(turn).await);
        }
        turn.give_back();
        Ok(())
    }

    async fn close(&self) {
        self.database.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_run_is_taken() {
        assert_eq!(longest_run(&[], 1), None);
        assert_eq!(longest_run(&[7], 50), Some((7, 7)));
        assert_eq!(longest_run(&[1, 2, 4, 5, 6, 9], 1), Some((4, 6)));
        assert_eq!(longest_run(&[1, 51, 151, 201], 50), Some((1, 51)));
    }
}
