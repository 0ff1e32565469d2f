//! The issuer's channel 3: `ng_business_slowordered0` to `63`, strictly increasing.
//!
//! A row per (`business`, `subBusiness`) holds `num`, the greatest number that was granted. A grant is one
//! compare-and-swap: `UPDATE .. SET num = old + size WHERE num = old`, and its numbers are `(old, old + size]`; who
//! loses reads again, for up to two seconds. The issuer's own statements may run beside: both sides move `num` in this
//! way alone.
//!
//! A tag is a `business`, and the [sub-key](unalike_storage::sub_tag) of a tag its `subBusiness`, empty without one.
//! The table of a row follows from the sub-key, by Java's `String.hashCode`, so rows of one business spread over all
//! 64. Rows are made on first use, from 1 on; the tables have no column for a start that later sub-keys could take
//! over.
//!
//! Tags are always in ordered mode. The original has no public DDL; here `business` and `subBusiness` are compared by
//! their bytes, and `num` is checked to be no less than 0, so that an addition beyond 2^63 by anybody, which wraps in
//! Java, is an error. In tables that compare otherwise two names may share a row: numbers stay unique. A tag is ended
//! by setting its `num` to 2^63 - 1, since the issuer may create a row that it misses; what it was is kept in a row
//! whose business has the character U+001F in front.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Row as _};
use unalike_storage::{
    ID_MAX, Mode, RefillPolicy, Segment, SegmentStore, StepPolicy, StoreError, TagCreation, TagOptions, TagRecord,
    TailRelease, first_watermark, split_tag, sub_tag, validate_allocate, validate_new_tag, validate_policies,
    validate_raise, validate_tag,
};

use super::race::Race;
use super::tables::{self, Holds, Room, Shape, prove_writable};
use crate::database::{Database, Statement, number};
use crate::error::{DUPLICATE_ENTRY, damaged, read_error};
use crate::{DialectStore, MysqlOptions, leases};

/// Fixed: with another number every row would be looked for elsewhere.
const TABLES: u32 = 64;

/// In front of the business of a row that says how far a tag had come when it was ended; no tag begins with it.
const ENDED: char = '\u{1f}';

/// The statements that create its tables.
pub(crate) fn ddl() -> Vec<String> {
    tables().into_iter().map(|(_, statement)| statement).collect()
}

/// The least privileges on its tables.
pub(crate) fn privileges() -> Vec<(String, &'static str)> {
    (0..TABLES).map(|table| (table_name(table), "SELECT, INSERT, UPDATE")).collect()
}

pub(crate) async fn open(database: &Database, options: &MysqlOptions) -> Result<Arc<dyn DialectStore>, StoreError> {
    let tables = tables();
    let shapes: Vec<Shape<'_>> = tables.iter().map(|(name, ddl)| Shape { name, ddl, ..SHAPE }).collect();
    let opened = tables::open(database, options, &shapes).await?;
    let folding = shapes.iter().zip(&opened).find_map(|(shape, columns)| {
        let (column, collation) = columns.iter().find_map(|(name, column)| Some((name, column.folding()?)))?;
        Some(format!("the column {column} of {} has the collation {collation}", shape.name))
    });
    let (database, creation) = (database.clone(), options.creation);
    Ok(Arc::new(SlowOrdered { database, creation, room: Room::default(), folding }))
}

/// What all of them are. By the key a row is made once; two would be two counters of one tag.
const SHAPE: Shape<'static> = Shape {
    name: "",
    ddl: "",
    key: &["business", "subBusiness"],
    // A tag ends with the greatest number there is.
    columns: &[("business", Holds::Name), ("subbusiness", Holds::Name), ("num", Holds::Id)],
};

fn tables() -> Vec<(String, String)> {
    let statement = |name: &str| {
        format!(
            "CREATE TABLE IF NOT EXISTS {name} (
    business VARBINARY(129) NOT NULL,
    subBusiness VARBINARY(128) NOT NULL,
    num BIGINT NOT NULL DEFAULT 0 CHECK (num >= 0),
    PRIMARY KEY (business, subBusiness)
) ENGINE = InnoDB"
        )
    };
    (0..TABLES).map(table_name).map(|name| (name.clone(), statement(&name))).collect()
}

fn table_name(table: u32) -> String {
    format!("ng_business_slowordered{table}")
}

/// Java's `String.hashCode`: over UTF-16 code units, in 32 bits that wrap.
fn java_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// The table of a sub-key. In Java the absolute value of the least hash stays negative; 64 divides it all the same.
fn table_of(sub: &str) -> u32 {
    java_hash(sub).unsigned_abs() % TABLES
}

/// Rows, each with its names as they stand.
const SELECT: &str = "SELECT CAST(business AS BINARY) AS b, CAST(subBusiness AS BINARY) AS s, num FROM";

/// Where a tag is kept.
#[derive(Clone, Copy, Debug)]
struct RowKey<'t> {
    tag: &'t str,
    table: u32,
    business: &'t str,
    sub: &'t str,
}

impl<'t> RowKey<'t> {
    fn of(tag: &'t str) -> Self {
        let (business, sub) = split_tag(tag);
        let sub = sub.unwrap_or_default();
        Self { tag, table: table_of(sub), business, sub }
    }

    /// A statement on its table, that begins like this and ends with its row.
    fn statement(&self, begin: &str, end: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(self.text(begin, end))
    }

    fn text(&self, begin: &str, end: &str) -> String {
        format!("{begin} {} {end}", table_name(self.table))
    }

    fn select(&self, suffix: &str) -> Statement<'t> {
        let end = format!("WHERE business = ? AND subBusiness = ? {suffix}");
        sqlx::query(self.statement(SELECT, &end)).bind(self.business).bind(self.sub)
    }

    fn record(&self, num: u64) -> TagRecord {
        record(self.tag.to_owned(), num)
    }
}

/// What every tag has: its start is not kept, and nothing is buffered.
fn options() -> TagOptions {
    TagOptions { mode: Mode::Ordered, ..TagOptions::default() }
}

/// The greatest number is the version too: it grows with every grant and raise.
fn record(tag: String, num: u64) -> TagRecord {
    TagRecord { tag, options: options(), watermark: num, version: num }
}

#[derive(Debug)]
struct SlowOrdered {
    database: Database,
    creation: TagCreation,
    room: Room,
    /// What takes names for one, if anything does.
    folding: Option<String>,
}

impl SlowOrdered {
    async fn read(&self, place: RowKey<'_>) -> Result<Option<u64>, StoreError> {
        Ok(self.find(place).await?.map(|record| record.watermark))
    }

    /// The tag's record, under its name as the row has it.
    async fn find(&self, place: RowKey<'_>) -> Result<Option<TagRecord>, StoreError> {
        let rows = self.database.rows("reading num", place.select("")).await?;
        self.the_one(place, &rows)?.map(|row| self.listed(row)).transpose()
    }

    /// The row among those that were found at a place.
    ///
    /// # Errors
    /// When there are several, as the key was unique when the table was opened.
    fn the_one<'r>(&self, place: RowKey<'_>, rows: &'r [MySqlRow]) -> Result<Option<&'r MySqlRow>, StoreError> {
        let RowKey { business, sub, table, .. } = place;
        match rows {
            [] => Ok(None),
            [row] => Ok(Some(row)),
            _ => Err(damaged(
                self.database.at(),
                &format!(
                    "{} has {} rows of {business:?} and {sub:?}, which must be one",
                    table_name(table),
                    rows.len()
                ),
            )),
        }
    }

    fn fenced(&self, place: RowKey<'_>, begin: &str, end: &str) -> AssertSqlSafe<String> {
        self.database.fenced(&place.text(begin, end))
    }

    fn num(&self, row: &MySqlRow) -> Result<u64, StoreError> {
        number(&self.database, row, "num")
    }

    /// Moves `num` on, unless somebody else did: one reply tells both.
    async fn swap(&self, place: RowKey<'_>, old: u64, new: u64) -> Result<bool, StoreError> {
        let end = "SET num = ? WHERE business = ? AND subBusiness = ? AND num = ? AND {fence alone}";
        let statement =
            sqlx::query(self.fenced(place, "UPDATE", end)).bind(new).bind(place.business).bind(place.sub).bind(old);
        match self.database.execute("swapping num", statement).await?.rows_affected() {
            0 => Ok(false),
            1 => Ok(true),
            rows => Err(damaged(
                self.database.at(),
                &format!("{} has {rows} rows of {:?} and {:?}", table_name(place.table), place.business, place.sub),
            )),
        }
    }

    /// Creates the row if first use may do that: a sub-key of a tag that exists always may.
    async fn use_first(&self, place: RowKey<'_>) -> Result<(), StoreError> {
        let its_tag = RowKey::of(place.business);
        let owner = if place.sub.is_empty() { None } else { self.find(its_tag).await? };
        if let Some(owner) = &owner {
            owner.options_of_sub_keys(place.tag)?;
        }
        let has_tag = owner.is_some();
        if !has_tag && !self.creation.on_first_use {
            return Err(StoreError::tag_unknown(place.tag));
        }
        if !has_tag && !place.sub.is_empty() {
            // So that it is counted.
            self.insert(its_tag, self.first(its_tag, 1)).await?;
        }
        self.insert(place, self.first(place, 1)).await.map(drop)
    }

    /// What a new row holds for this start.
    fn first(&self, place: RowKey<'_>, start: u64) -> u64 {
        first_watermark(place.tag, start, self.database.lifted())
    }

    /// Whether the row is new.
    async fn insert(&self, place: RowKey<'_>, num: u64) -> Result<bool, StoreError> {
        validate_new_tag(place.tag)?;
        // Sub-keys are not counted.
        if place.sub.is_empty() {
            self.room.take(place.tag, self.creation, self.count()).await?;
        }
        let mut turn = self.database.begin("creating a row").await?;
        if let Err(quarantined) = leases::check_new_time(&mut turn, &self.database, place.tag).await {
            turn.roll_back().await?;
            return Err(quarantined);
        }
        if !place.sub.is_empty() {
            // Until this transaction ends, nobody ends the tag: so whoever lists its sub-keys afterwards sees this one.
            let its_tag = RowKey::of(place.business);
            let rows = turn.rows(its_tag.select("FOR UPDATE")).await?;
            let owner = self.the_one(its_tag, &rows)?.map(|row| self.listed(row)).transpose()?;
            if let Some(Err(ended)) = owner.map(|owner| owner.options_of_sub_keys(place.tag)) {
                turn.roll_back().await?;
                return if self.find(place).await?.is_some() { Ok(false) } else { Err(ended) };
            }
        }
        let end = "(business, subBusiness, num) SELECT ?, ?, ? FROM DUAL WHERE {fence}";
        let statement =
            sqlx::query(self.fenced(place, "INSERT INTO", end)).bind(place.business).bind(place.sub).bind(num);
        match turn.try_execute(statement, &[DUPLICATE_ENTRY]).await? {
            Ok(done) if done.rows_affected() == 0 => {
                turn.roll_back().await?;
                Err(self.database.held_back("creating a row").await)
            }
            Ok(_) => turn.commit().await.map(|()| true),
            Err(_) => turn.roll_back().await.map(|()| false),
        }
    }

    /// All tags: rows without a sub-key, which lie in one table.
    async fn count(&self) -> Result<u64, StoreError> {
        let table = table_name(table_of(""));
        let statement = AssertSqlSafe(format!("SELECT COUNT(*) AS tags FROM {table} WHERE subBusiness = ''"));
        let rows = self.database.rows("counting tags", sqlx::query(statement)).await?;
        rows.first().map_or(Ok(0), |row| number(&self.database, row, "tags"))
    }

    /// A row as [`SegmentStore::tags`] selects it.
    fn listed(&self, row: &MySqlRow) -> Result<TagRecord, StoreError> {
        let text = |column: &str| {
            let bytes = row.try_get_unchecked::<Vec<u8>, _>(column);
            let bytes = bytes.map_err(|error| read_error(self.database.at(), "listing rows", error))?;
            Ok::<_, StoreError>(String::from_utf8_lossy(&bytes).into_owned())
        };
        let (business, sub) = (text("b")?, text("s")?);
        // What is no name here may be one for the issuer: it is shown as it stands.
        let tag =
            if sub.is_empty() { business } else { sub_tag(&business, &sub).unwrap_or(format!("{business}/{sub}")) };
        Ok(record(tag, self.num(row)?))
    }
}

#[async_trait]
impl SegmentStore for SlowOrdered {
    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        validate_allocate(tag, count, at_least)?;
        let place = RowKey::of(tag);
        let mut race = Race::new();
        loop {
            if let Some(old) = self.read(place).await? {
                let below = old.max(at_least.saturating_sub(1));
                if below >= ID_MAX {
                    return Err(StoreError::exhausted(tag));
                }
                let new = below + count.min(ID_MAX - below);
                if self.swap(place, old, new).await? {
                    return Ok(Segment { start: below + 1, end: new + 1, stride: 1, generation: 0, version: new });
                }
                if race.is_new() {
                    self.database.check_fence().await?;
                }
            } else {
                self.use_first(place).await?;
            }
            race.lost(tag).await?;
        }
    }

    async fn release(&self, tag: &str, _tail: TailRelease) -> Result<bool, StoreError> {
        // The row has no version: a request that arrives late could take back what was granted since.
        validate_tag(tag).map(|()| false)
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        let place = RowKey::of(tag);
        if let Some(record) = self.find(place).await? {
            return Ok(record);
        }
        self.use_first(place).await?;
        self.tag(tag).await
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        self.find(RowKey::of(tag)).await?.ok_or_else(|| StoreError::tag_unknown(tag))
    }

    async fn create_tag(&self, tag: &str, wanted: &TagOptions) -> Result<TagRecord, StoreError> {
        wanted.validate(tag)?;
        if *wanted != (TagOptions { start: wanted.start, ..options() }) {
            return Err(StoreError::refused(format!(
                "in ng_business_slowordered every tag is ordered and has no step and no refill point of its own: create {tag:?} \
                 in the mode ordered, and leave these out"
            )));
        }
        let place = RowKey::of(tag);
        let num = self.first(place, wanted.start);
        // That it exists is more useful to hear than that there is no room.
        if self.read(place).await?.is_none() && self.insert(place, num).await? {
            return Ok(place.record(num));
        }
        Err(StoreError::TagExists { tag: tag.to_owned() })
    }

    async fn change_tag(&self, tag: &str, step: StepPolicy, refill: RefillPolicy) -> Result<TagRecord, StoreError> {
        validate_policies(tag, step, refill)?;
        self.tag(tag).await?;
        Err(StoreError::refused(format!(
            "the tag {tag:?} is ordered: ng_business_slowordered has no step and no refill point to change"
        )))
    }

    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        validate_raise(tag, next)?;
        let place = RowKey::of(tag);
        let end = "SET num = GREATEST(num, ?) WHERE business = ? AND subBusiness = ? AND {fence alone}";
        let statement =
            sqlx::query(self.fenced(place, "UPDATE", end)).bind(next - 1).bind(place.business).bind(place.sub);
        // The driver counts rows that were found, changed or not.
        if self.database.execute("raising num", statement).await?.rows_affected() == 0 {
            self.database.check_fence().await?;
            return Err(StoreError::tag_unknown(tag));
        }
        self.tag(tag).await
    }

    async fn retire_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        let place = RowKey::of(tag);
        let mark = format!("{ENDED}{}", place.business);
        let marked = RowKey { business: &mark, ..place };
        let mut turn = self.database.begin("ending a tag").await?;
        let rows = turn.rows(place.select("FOR UPDATE")).await?;
        let Some(num) = self.the_one(place, &rows)?.map(|row| self.num(row)).transpose()? else {
            turn.roll_back().await?;
            return Err(StoreError::tag_unknown(tag));
        };
        if num >= ID_MAX {
            // Ended before, perhaps by a request whose answer was lost; or there never was a number left.
            let rows = turn.rows(marked.select("")).await?;
            turn.roll_back().await?;
            return Ok(place.record(rows.first().map(|row| self.num(row)).transpose()?.unwrap_or(num)));
        }
        let values = "(business, subBusiness, num) VALUES (?, ?, ?) ON DUPLICATE KEY UPDATE num = ?";
        let statement = sqlx::query(place.statement("INSERT INTO", values));
        turn.execute(statement.bind(&mark).bind(place.sub).bind(num).bind(num)).await?;
        let statement = place.statement("UPDATE", "SET num = ? WHERE business = ? AND subBusiness = ?");
        turn.execute(sqlx::query(statement).bind(ID_MAX).bind(place.business).bind(place.sub)).await?;
        turn.commit().await?;
        Ok(place.record(num))
    }

    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        // The separator sorts below all that names are made of: the order of the pairs is that of the tags. Marks of
        // ended tags lie below the first name.
        let (business, sub) = after.map_or(("\u{1f}\u{10ffff}", ""), |after| {
            let (business, sub) = split_tag(after);
            (business, sub.unwrap_or_default())
        });
        let part = |table: u32| {
            format!(
                "(SELECT CAST(business AS BINARY) AS b, CAST(subBusiness AS BINARY) AS s, CAST(num AS SIGNED) AS num FROM {} \
                 WHERE CAST(business AS BINARY) > ? OR CAST(business AS BINARY) = ? AND CAST(subBusiness AS BINARY) > ? \
                 ORDER BY b, s LIMIT ?)",
                table_name(table)
            )
        };
        let parts: Vec<String> = (0..TABLES).map(part).collect();
        let statement = format!("{} ORDER BY b, s LIMIT ?", parts.join(" UNION ALL "));
        let mut statement = sqlx::query(AssertSqlSafe(statement));
        for _ in 0..TABLES {
            let (business, sub) = (business.as_bytes(), sub.as_bytes());
            statement = statement.bind(business).bind(business).bind(sub).bind(limit);
        }
        let rows = self.database.rows("listing rows", statement.bind(limit)).await?;
        rows.iter().map(|row| self.listed(row)).collect()
    }

    async fn folds_names(&self) -> Result<Option<String>, StoreError> {
        Ok(self.folding.clone())
    }

    async fn check(&self) -> Result<(), StoreError> {
        prove_writable(&self.database).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sub_keys_are_hashed_as_java_does() {
        let golden = [
            ("", 0),
            ("a", 33),
            ("im", 36),
            ("order", 14),
            ("23", 1),
            ("user_1", 3),
            ("polygenelubricants", 0),
            ("\u{4f1a}\u{8bdd}", 3),
            ("\u{1f600}", 35),
        ];
        for (sub, table) in golden {
            assert_eq!(table_of(sub), table, "{sub:?}");
        }
        assert_eq!(java_hash("polygenelubricants"), i32::MIN);
        assert!(java_hash("user_1") < 0);
    }

    #[test]
    fn a_tag_and_its_sub_keys_have_rows_of_their_own() {
        let place = RowKey::of("chat");
        assert_eq!((place.business, place.sub, place.table), ("chat", "", 0));
        let tag = sub_tag("chat", "user_1").unwrap();
        let place = RowKey::of(&tag);
        assert_eq!((place.business, place.sub, place.table), ("chat", "user_1", 3));
    }
}
