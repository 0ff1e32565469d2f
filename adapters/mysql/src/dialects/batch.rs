//! The issuer's channel 0: `ng_business_mysql_autoincrement`, numbers in batches.
//!
//! The table holds batch numbers only, one row per batch that was taken: whoever inserts (`business`, `version`) has
//! that batch, and the unique key has everybody else read again. The ids of a batch are `prefix`, batch and an offset
//! from 1 to `buff_size`, as decimal digits one behind the other, the offset at a fixed width: [`BatchTag`]. These
//! figures are kept in a table of our own, `unalike_batch_tag`, and never change: with others, ids would be made a
//! second time. The issuer keeps them in its configuration; while it runs beside, they must be the same there.
//!
//! **The rows are a chain.** Each insert holds the number behind the greatest one that was read, whatever else it
//! inserts. So an insert that comes late, after others have moved on, always meets a row. Hence no row may ever be
//! removed, as long as anybody may still hold a greatest number that it read before: the next one would be inserted
//! twice. A program that is paused may do so after any time, so rows stay: one per `buff_size` ids. What is skipped
//! (`at_least`, raising) is one insert of two rows, the next number and the one to go on behind. A tag ends with the
//! greatest number there is, behind which nothing fits.
//!
//! Batches are never given back: a version that was inserted stays so.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::Row as _;
use sqlx::mysql::MySqlRow;
use unalike_storage::{
    ID_MAX, Mode, RefillPolicy, Segment, SegmentStore, StepPolicy, StoreError, TagCreation, TagOptions, TagRecord,
    TailRelease, split_tag, validate_allocate, validate_new_tag, validate_policies, validate_raise, validate_tag,
};

use super::race::Race;
use super::tables::{self, Column, Holds, Room, Shape, prove_writable};
use crate::MysqlOptions;
use crate::database::{Database, number};
use crate::error::{DEADLOCK, DUPLICATE_ENTRY, damaged, read_error};

const BATCHES: &str = "ng_business_mysql_autoincrement";
const DECLARATIONS: &str = "unalike_batch_tag";

/// `ng_business_mysql_autoincrement`: its articles give no statement, only the unique key and what it is for.
const BATCHES_TABLE: &str = "CREATE TABLE IF NOT EXISTS ng_business_mysql_autoincrement (
    business VARBINARY(128) NOT NULL,
    version BIGINT UNSIGNED NOT NULL,
    create_time TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (business, version)
) ENGINE = InnoDB";

const DECLARATIONS_TABLE: &str = "CREATE TABLE IF NOT EXISTS unalike_batch_tag (
    tag VARBINARY(128) NOT NULL PRIMARY KEY,
    prefix BIGINT UNSIGNED NOT NULL,
    buff_size BIGINT UNSIGNED NOT NULL,
    width INT UNSIGNED NOT NULL, -- digits of the offset
    lowest_critical_value BIGINT UNSIGNED NOT NULL
) ENGINE = InnoDB";

/// Batches first. That each is inserted once is all that grants rest on.
const SHAPES: [Shape<'static>; 2] = [
    Shape {
        name: BATCHES,
        ddl: BATCHES_TABLE,
        key: &["business", "version"],
        // A tag ends with the greatest number there is.
        columns: &[("business", Holds::Name), ("version", Holds::Id)],
    },
    Shape {
        name: DECLARATIONS,
        ddl: DECLARATIONS_TABLE,
        key: &["tag"],
        columns: &[
            ("tag", Holds::Bytes),
            ("prefix", Holds::Id),
            ("buff_size", Holds::Id),
            ("width", Holds::Whole),
            ("lowest_critical_value", Holds::Id),
        ],
    },
];

/// Declarations with the greatest batch number of each tag, 0 before the first.
macro_rules! select {
    ($business:literal, $which:literal) => {
        concat!(
            "SELECT tag, prefix, buff_size, width, lowest_critical_value, CAST(COALESCE((SELECT MAX(version) FROM ",
            "ng_business_mysql_autoincrement WHERE business = ",
            $business,
            "), 0) AS UNSIGNED) AS newest FROM unalike_batch_tag ",
            $which
        )
    };
}

/// The batch number of a tag that has ended: nothing fits behind it, for the issuer neither.
const END: u64 = ID_MAX;

/// The statements that create its tables.
pub(crate) fn ddl() -> Vec<String> {
    vec![BATCHES_TABLE.to_owned(), DECLARATIONS_TABLE.to_owned()]
}

/// The least privileges on its tables.
pub(crate) fn privileges() -> Vec<(String, &'static str)> {
    vec![(BATCHES.to_owned(), "SELECT, INSERT"), (DECLARATIONS.to_owned(), "SELECT, INSERT")]
}

pub(crate) async fn open(database: &Database, options: &MysqlOptions) -> Result<Arc<Batches>, StoreError> {
    let columns = tables::open(database, options, &SHAPES).await?;
    let business = columns.into_iter().find_map(|mut columns| columns.remove("business")).unwrap_or(Column::none());
    Ok(Arc::new(Batches { database: database.clone(), creation: options.creation, room: Room::default(), business }))
}

/// How the ids of a tag are made of batch numbers: the digits of `prefix`, those of the batch (1, 2, 3, ..), and the
/// offset (1 to `buff_size`) with zeros in front to fill `width` digits. As a number: `(prefix ++ batch) * 10^width +
/// offset`.
///
/// Later batches have greater ids, also where the batch gains a digit: 19 of prefix 1 and batch 9 is followed by 110.
///
/// ```
/// use unalike_mysql::BatchTag;
/// let tag = BatchTag { prefix: 7, width: 6, ..BatchTag::default() };
/// assert_eq!(tag.ids(12), Some((712_000_001, 712_005_000)));
/// assert_eq!(BatchTag::default().ids(1), Some((11_000_000_001, 11_000_005_000)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchTag {
    /// The leading digits, the issuer's `startNum`; 0 for none.
    pub prefix: u64,
    /// How many ids a batch has: 1 to `10^width - 1`.
    pub buff_size: u64,
    /// Digits of the offset: 1 to 18.
    pub width: u32,
    /// The next batch is taken when fewer ids than this are left.
    pub lowest_critical_value: u64,
}

impl Default for BatchTag {
    /// Prefix 1, 5,000 ids a batch with offsets of 9 digits, the next one when fewer than 500 are left.
    fn default() -> Self {
        Self { prefix: 1, buff_size: 5_000, width: 9, lowest_critical_value: 500 }
    }
}

impl BatchTag {
    /// The first and the last id of a batch; `None` when they do not fit 63 bits.
    #[must_use]
    pub fn ids(&self, batch: u64) -> Option<(u64, u64)> {
        let first = u64::try_from(self.base(batch).saturating_add(1)).ok()?;
        let last = u64::try_from(self.last(batch)).ok()?;
        (last <= ID_MAX).then_some((first, last))
    }

    /// The number in front of a batch's first id. What does not fit is far above every id.
    fn base(&self, batch: u64) -> u128 {
        let digits = batch.checked_ilog10().unwrap_or_default() + 1;
        let leading = u128::from(self.prefix).saturating_mul(10_u128.saturating_pow(digits));
        (leading.saturating_add(u128::from(batch))).saturating_mul(10_u128.saturating_pow(self.width))
    }

    fn last(&self, batch: u64) -> u128 {
        self.base(batch).saturating_add(u128::from(self.buff_size))
    }

    /// The least batch for which this holds, given that it holds for all that come after one for which it does.
    fn least_batch(holds: impl Fn(u64) -> bool) -> u64 {
        let (mut low, mut high) = (1, END);
        while low < high {
            let middle = low + (high - low) / 2;
            if holds(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    fn validate(&self, tag: &str) -> Result<(), StoreError> {
        let invalid = |reason: String| Err(StoreError::TagInvalid { tag: tag.to_owned(), reason });
        if !(1..=18).contains(&self.width) {
            return invalid(format!("its width is {}, it must be 1 to 18 digits", self.width));
        }
        let offset_max = 10_u64.saturating_pow(self.width) - 1;
        if !(1..=offset_max).contains(&self.buff_size) {
            return invalid(format!(
                "its buff-size is {}, it must be 1 to {offset_max}, so that offsets have {} digits",
                self.buff_size, self.width
            ));
        }
        if self.ids(1).is_none() {
            return invalid(format!(
                "with the prefix {} and a width of {} not even the first batch fits 63 bits",
                self.prefix, self.width
            ));
        }
        Ok(())
    }

    fn options(&self) -> TagOptions {
        TagOptions {
            start: self.ids(1).map_or(ID_MAX, |(first, _)| first),
            step: StepPolicy::Fixed { step: self.buff_size },
            refill: RefillPolicy::Remaining { count: self.lowest_critical_value },
            mode: Mode::Buffered,
        }
    }

    /// How many batches hold so many numbers.
    fn batches(&self, numbers: u64) -> u64 {
        numbers.div_ceil(self.buff_size.max(1))
    }

    /// The tag as it is when `newest` is the greatest batch that was taken.
    fn record(&self, tag: &str, newest: u64) -> TagRecord {
        let options = self.options();
        let watermark = if newest == 0 {
            options.start - 1
        } else {
            u64::try_from(self.last(newest)).unwrap_or(ID_MAX).min(ID_MAX)
        };
        TagRecord { tag: tag.to_owned(), options, watermark, version: newest }
    }
}

/// The tags of `ng_business_mysql_autoincrement`.
#[derive(Debug)]
pub(crate) struct Batches {
    database: Database,
    creation: TagCreation,
    room: Room,
    /// How names are compared where batches are inserted.
    business: Column,
}

/// A declaration as it is kept, and the greatest batch number of its tag.
#[derive(Clone, Debug)]
struct Declared {
    tag: String,
    batch_tag: BatchTag,
    newest: u64,
    /// The newest batch that may have been lost with a server before, of a tag that has none here.
    lost: u64,
}

impl Declared {
    fn record(&self) -> TagRecord {
        self.batch_tag.record(&self.tag, self.newest.max(self.lost))
    }
}

impl Batches {
    /// Declares a tag; the same declaration again changes nothing.
    pub(crate) async fn declare(&self, tag: &str, batch_tag: &BatchTag) -> Result<(), StoreError> {
        validate(tag)?;
        batch_tag.validate(tag)?;
        if let Some(declared) = self.insert(tag, batch_tag).await?
            && declared != *batch_tag
        {
            return Err(StoreError::refused(format!(
                "the tag {tag:?} was declared as {declared:?}, and ids were made of it; as {batch_tag:?} they would be made \
                 again: use another tag"
            )));
        }
        Ok(())
    }

    /// Lifts every tag by the batches that so many numbers take. Answers how many there are.
    pub(crate) async fn lift_all(&self, numbers: u64) -> Result<u64, StoreError> {
        const PAGE: u32 = 1_000;
        let (mut after, mut lifted) = (None::<String>, 0);
        loop {
            let page = self.tags(after.as_deref(), PAGE).await?;
            let Some(last) = page.last() else { return Ok(lifted) };
            after = Some(last.tag.clone());
            for TagRecord { tag, .. } in &page {
                let mut race = Race::new();
                loop {
                    let declared = self.find(tag).await?.ok_or_else(|| StoreError::tag_unknown(tag))?;
                    let (newest, batches) = (declared.newest, declared.batch_tag.batches(numbers));
                    let last = newest.max(declared.lost).saturating_add(batches).min(END);
                    if newest >= END || self.take(tag, newest, last).await? {
                        break;
                    }
                    race.lost(tag).await?;
                }
                lifted += 1;
            }
        }
    }

    async fn find(&self, tag: &str) -> Result<Option<Declared>, StoreError> {
        let statement = sqlx::query(select!("?", "WHERE tag = ?")).bind(tag).bind(tag);
        let rows = self.database.rows("reading a tag", statement).await?;
        rows.first().map(|row| self.declared(row)).transpose()
    }

    fn declared(&self, row: &MySqlRow) -> Result<Declared, StoreError> {
        let figure = |column: &str| number(&self.database, row, column);
        let tag = row.try_get_unchecked::<Vec<u8>, _>("tag");
        let tag = tag.map_err(|error| read_error(self.database.at(), "reading a tag", error))?;
        let tag = String::from_utf8_lossy(&tag).into_owned();
        let batch_tag = BatchTag {
            prefix: figure("prefix")?,
            buff_size: figure("buff_size")?,
            width: u32::try_from(figure("width")?).unwrap_or(u32::MAX),
            lowest_critical_value: figure("lowest_critical_value")?,
        };
        batch_tag.validate(&tag).map_err(|error| damaged(self.database.at(), &error.to_string()))?;
        let newest = figure("newest")?;
        let lost = match self.database.lifted() {
            0 => 0,
            _ if newest > 0 => 0,
            // One more, since each lift of the sum was rounded up.
            lifted => batch_tag.batches(lifted).saturating_add(1).min(END),
        };
        Ok(Declared { tag, batch_tag, newest, lost })
    }

    /// The declaration that was there before, if there was one.
    async fn insert(&self, tag: &str, batch_tag: &BatchTag) -> Result<Option<BatchTag>, StoreError> {
        if let Some(declared) = self.find(tag).await? {
            return Ok(Some(declared.batch_tag));
        }
        validate_new_tag(tag)?;
        self.room.take(tag, self.creation.of(tag), self.count()).await?;
        let insert = "INSERT INTO unalike_batch_tag (tag, prefix, buff_size, width, lowest_critical_value) \
            SELECT ?, ?, ?, ?, ? FROM DUAL WHERE {fence alone}";
        let insert = sqlx::query(self.database.fenced(insert))
            .bind(tag)
            .bind(batch_tag.prefix)
            .bind(batch_tag.buff_size)
            .bind(batch_tag.width)
            .bind(batch_tag.lowest_critical_value);
        let mut turn = self.database.turn("declaring a tag").await?;
        let done = turn.try_execute(insert, &[DUPLICATE_ENTRY]).await?;
        turn.give_back();
        match done {
            Ok(done) if done.rows_affected() == 0 => Err(self.database.held_back("declaring a tag").await),
            Ok(_) => Ok(None),
            Err(_) => Ok(self.find(tag).await?.map(|declared| declared.batch_tag)),
        }
    }

    async fn count(&self) -> Result<u64, StoreError> {
        let statement = sqlx::query("SELECT COUNT(*) AS tags FROM unalike_batch_tag");
        let rows = self.database.rows("counting tags", statement).await?;
        rows.first().map_or(Ok(0), |row| number(&self.database, row, "tags"))
    }

    /// The tag, declared with the default figures if first use may do that.
    async fn find_or_declare(&self, tag: &str) -> Result<Declared, StoreError> {
        if let Some(declared) = self.find(tag).await? {
            return Ok(declared);
        }
        if !self.creation.of(tag).on_first_use {
            return Err(StoreError::tag_unknown(tag));
        }
        let known = sqlx::query("SELECT 1 FROM ng_business_mysql_autoincrement WHERE business = ? LIMIT 1").bind(tag);
        if !self.database.rows("looking for batches", known).await?.is_empty() {
            // Somebody may have declared it meanwhile, and taken them.
            if let Some(declared) = self.find(tag).await? {
                return Ok(declared);
            }
            return Err(StoreError::refused(format!(
                "batches of {tag:?} were taken before, and nobody said here what ids are made of them: declare the tag with \
                 the prefix, the buff-size and the width that the issuer has"
            )));
        }
        self.insert(tag, &BatchTag::default()).await?;
        self.find(tag).await?.ok_or_else(|| StoreError::tag_unknown(tag))
    }

    /// Takes the batches from right behind `newest` to `last`, if nobody took any of them meanwhile.
    ///
    /// One statement, so all or nothing; the first row proves that `newest` still is the greatest.
    async fn take(&self, tag: &str, newest: u64, last: u64) -> Result<bool, StoreError> {
        const ONE: &str = "INSERT INTO ng_business_mysql_autoincrement (business, version) \
            SELECT ?, ? FROM DUAL WHERE {fence alone}";
        const TWO: &str = "INSERT INTO ng_business_mysql_autoincrement (business, version) \
            SELECT ?, ? FROM DUAL WHERE {fence alone} UNION ALL SELECT ?, ? FROM DUAL WHERE {fence alone}";
        assert!(newest < last, "batches are taken upwards");
        let next = newest + 1;
        let statement = if next == last {
            sqlx::query(self.database.fenced(ONE)).bind(tag).bind(last)
        } else {
            sqlx::query(self.database.fenced(TWO)).bind(tag).bind(next).bind(tag).bind(last)
        };
        let mut turn = self.database.turn("taking a batch").await?;
        // After either error the statement was rolled back: somebody else is ahead.
        let done = turn.try_execute(statement, &[DUPLICATE_ENTRY, DEADLOCK]).await?;
        turn.give_back();
        match done {
            Ok(done) if done.rows_affected() == 0 => Err(self.database.held_back("taking a batch").await),
            done => Ok(done.is_ok()),
        }
    }
}

#[async_trait]
impl SegmentStore for Batches {
    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        validate_allocate(tag, count, at_least)?;
        validate(tag)?;
        let mut race = Race::new();
        loop {
            let Declared { batch_tag, newest, lost, .. } = self.find_or_declare(tag).await?;
            let exhausted = || StoreError::exhausted(tag);
            if newest.max(lost) >= END {
                return Err(exhausted());
            }
            let floor = BatchTag::least_batch(|batch| batch_tag.last(batch) >= u128::from(at_least));
            let batch = floor.max(newest.max(lost) + 1);
            let (first, last) = batch_tag.ids(batch).ok_or_else(exhausted)?;
            if self.take(tag, newest, batch).await? {
                // The batch is ours alone; what is not asked for of it is a gap.
                let start = first.max(at_least);
                let end = start + count.min(last - start + 1);
                return Ok(Segment { start, end, stride: 1, generation: 0, version: batch });
            }
            race.lost(tag).await?;
        }
    }

    async fn release(&self, tag: &str, _tail: TailRelease) -> Result<bool, StoreError> {
        validate_tag(tag).map(|()| false)
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate(tag)?;
        Ok(self.find_or_declare(tag).await?.record())
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate(tag)?;
        self.find(tag).await?.map(|declared| declared.record()).ok_or_else(|| StoreError::tag_unknown(tag))
    }

    /// Prefix and width are the usual ones: others are declared.
    async fn create_tag(&self, tag: &str, options: &TagOptions) -> Result<TagRecord, StoreError> {
        options.validate(tag)?;
        validate(tag)?;
        let usual = BatchTag::default();
        let cannot =
            |what: &str| Err(StoreError::refused(format!("the tag {tag:?} was not created: in {BATCHES} {what}")));
        let buff_size = match options.step {
            StepPolicy::Fixed { step } => step,
            step if step == StepPolicy::default() => usual.buff_size,
            StepPolicy::Adaptive(_) => return cannot("every batch has the same size, so the step must be fixed"),
        };
        let lowest_critical_value = match options.refill {
            RefillPolicy::Remaining { count } => count,
            refill if refill == RefillPolicy::default() => usual.lowest_critical_value,
            RefillPolicy::ShareConsumed { .. } => return cannot("the refill point is a number of ids that are left"),
        };
        if options.mode != Mode::Buffered {
            return cannot("every tag is buffered");
        }
        let batch_tag = BatchTag { buff_size, lowest_critical_value, ..usual };
        batch_tag.validate(tag)?;
        if self.insert(tag, &batch_tag).await?.is_some() {
            return Err(StoreError::TagExists { tag: tag.to_owned() });
        }
        if options.start > 1 { self.raise_tag(tag, options.start).await } else { self.tag(tag).await }
    }

    async fn change_tag(&self, tag: &str, step: StepPolicy, refill: RefillPolicy) -> Result<TagRecord, StoreError> {
        validate_policies(tag, step, refill)?;
        let record = self.tag(tag).await?;
        if (record.options.step, record.options.refill) == (step, refill) {
            return Ok(record);
        }
        Err(StoreError::refused(format!(
            "the figures of the tag {tag:?} never change: with others, its ids would be made again"
        )))
    }

    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        validate_raise(tag, next)?;
        validate(tag)?;
        let mut race = Race::new();
        loop {
            let mut declared = self.find(tag).await?.ok_or_else(|| StoreError::tag_unknown(tag))?;
            // The first batch that lies wholly at or above; what lies above in the one before is skipped.
            let batch_tag = declared.batch_tag;
            let from = BatchTag::least_batch(|batch| batch_tag.base(batch) >= u128::from(next - 1));
            if from - 1 <= declared.newest.max(declared.lost) {
                return Ok(declared.record());
            }
            if self.take(tag, declared.newest, from - 1).await? {
                declared.newest = from - 1;
                return Ok(declared.record());
            }
            race.lost(tag).await?;
        }
    }

    async fn retire_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate(tag)?;
        let mut race = Race::new();
        loop {
            let mut declared = self.find(tag).await?.ok_or_else(|| StoreError::tag_unknown(tag))?;
            if declared.newest >= END {
                // Ended before, perhaps by a request whose answer was lost: behind the last batch lies the row that
                // proved that it was the last one.
                let before = "SELECT CAST(COALESCE(MAX(version), 1) AS UNSIGNED) AS fence FROM ng_business_mysql_autoincrement \
                    WHERE business = ? AND version < ?";
                let rows = self.database.rows("reading an ended tag", sqlx::query(before).bind(tag).bind(END)).await?;
                let fence = rows.first().map_or(Ok(1), |row| number(&self.database, row, "fence"))?;
                declared.newest = fence.saturating_sub(1);
                return Ok(declared.record());
            }
            if self.take(tag, declared.newest, END).await? {
                return Ok(declared.record());
            }
            race.lost(tag).await?;
        }
    }

    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        let statement = sqlx::query(select!("tag", "WHERE tag > ? ORDER BY tag LIMIT ?"));
        let statement = statement.bind(after.unwrap_or_default()).bind(limit);
        let rows = self.database.rows("listing tags", statement).await?;
        let mut declared = rows.iter().map(|row| self.declared(row)).collect::<Result<Vec<_>, _>>()?;
        if !self.business.compares_bytes() {
            // Bytes are compared here, so batches that were taken under other names of the same rows were missed.
            for found in &mut declared {
                if let Some(now) = self.find(&found.tag).await? {
                    *found = now;
                }
            }
        }
        Ok(declared.iter().map(Declared::record).collect())
    }

    async fn folds_names(&self) -> Result<Option<String>, StoreError> {
        let folding = self.business.folding();
        Ok(folding.map(|collation| format!("the column business of {BATCHES} has the collation {collation}")))
    }

    async fn beyond_record(&self, tag: &str) -> Result<Option<String>, StoreError> {
        validate(tag)?;
        Ok(self.find(tag).await?.map(|Declared { batch_tag: BatchTag { prefix, width, .. }, .. }| {
            format!("its ids are the digits of the prefix {prefix}, of a batch, and of an offset in {width} digits")
        }))
    }

    async fn check(&self) -> Result<(), StoreError> {
        prove_writable(&self.database).await
    }
}

/// The table has no place for sub-keys.
fn validate(tag: &str) -> Result<(), StoreError> {
    validate_tag(tag)?;
    match split_tag(tag) {
        (_, None) => Ok(()),
        (tag, Some(sub)) => {
            let reason =
                format!("{BATCHES} has no sub-keys, and {sub:?} was given: use a tag for each, or slow-ordered");
            Err(StoreError::TagInvalid { tag: tag.to_owned(), reason })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: BatchTag = BatchTag { prefix: 1, buff_size: 5_000, width: 9, lowest_critical_value: 500 };

    #[test]
    fn ids_are_prefix_batch_and_offset_in_digits() {
        assert_eq!(USUAL.ids(1), Some((11_000_000_001, 11_000_005_000)));
        assert_eq!(USUAL.ids(9), Some((19_000_000_001, 19_000_005_000)));
        assert_eq!(USUAL.ids(10), Some((110_000_000_001, 110_000_005_000)));
        assert_eq!(BatchTag { prefix: 0, ..USUAL }.ids(17), Some((17_000_000_001, 17_000_005_000)));
        assert_eq!(BatchTag { prefix: 20, width: 4, ..USUAL }.ids(305), Some((203_050_001, 203_055_000)));
    }

    #[test]
    fn batches_that_do_not_fit_63_bits_have_no_ids() {
        // 9,223,372,036 is the greatest number that nine digits may follow.
        assert!(USUAL.ids(999_999_999).is_some());
        assert_eq!(USUAL.ids(1_000_000_000), None, "11 digits lead");
        assert_eq!(USUAL.ids(END), None);
        let narrow = BatchTag { prefix: 92_233_720_368_547, buff_size: 5, width: 4, lowest_critical_value: 0 };
        assert_eq!(narrow.ids(7), Some((9_223_372_036_854_770_001, 9_223_372_036_854_770_005)));
        assert_eq!(narrow.ids(8), None);
        for prefix in [u64::MAX, ID_MAX] {
            assert_eq!(BatchTag { prefix, width: 18, ..USUAL }.ids(1), None);
        }
    }

    #[test]
    fn ids_ascend_with_their_batches() {
        let mut before = 0;
        for batch in (1..2_000).chain(99_990..100_010).chain(999_999_990..1_000_000_000) {
            let (first, last) = USUAL.ids(batch).unwrap();
            assert!(before < first && first < last, "{batch}");
            before = last;
        }
    }

    #[test]
    fn the_least_batch_is_found_exactly() {
        for number in [0, 1, 11_000_000_001, 11_000_005_000, 11_000_005_001, 19_000_005_001, 110_000_000_000, ID_MAX] {
            let batch = BatchTag::least_batch(|batch| USUAL.last(batch) >= u128::from(number));
            assert!(USUAL.last(batch) >= u128::from(number));
            assert!(batch == 1 || USUAL.last(batch - 1) < u128::from(number), "{number}: {batch}");
        }
        assert_eq!(BatchTag::least_batch(|batch| USUAL.last(batch) >= 19_000_005_001), 10);
    }

    #[test]
    fn figures_that_make_no_ids_are_refused() {
        for bad in [
            BatchTag { width: 0, ..USUAL },
            BatchTag { width: 19, ..USUAL },
            BatchTag { buff_size: 0, ..USUAL },
            BatchTag { buff_size: 10_000, width: 4, ..USUAL },
            BatchTag { prefix: 10_000_000_000, ..USUAL },
            BatchTag { prefix: u64::MAX, ..USUAL },
        ] {
            assert!(matches!(bad.validate("order"), Err(StoreError::TagInvalid { .. })), "{bad:?}");
        }
        assert!(BatchTag { buff_size: 9_999, width: 4, ..USUAL }.validate("order").is_ok());
    }
}
