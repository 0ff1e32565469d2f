//! The tables of other systems, read and written in place: one module each, and here what they share.
//!
//! Such a table has a row per tag. It knows less of a tag than unalike's own do: how it is refilled, that it is
//! ordered, what its first number was. What a table cannot say is refused when somebody wants it said, except what
//! [`TagOptions`] say by default: that is taken as left to the table. Tails are not given back, for most of these
//! tables have no version.
//!
//! Many of these tables compare names without regard to letter case or accents. There two tags may be one row; each
//! number is still granted once, and under one of them only. Whoever goes on with such a tag elsewhere must know that
//! ([`SegmentStore::folds_names`]). A tag's sub-keys have no place in any.
//!
//! A tag whose row could be missed is ended by renaming the row, `order` to `retired:order`: the old system no longer
//! finds it, everybody can see what happened and can undo it by the opposite statement, and no tag of that name is
//! created again. To this program such a tag has used up all its numbers.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Row as _};
use unalike_storage::{
    ID_MAX, JoinedStripe, Mode, RefillPolicy, Segment, SegmentStore, StepPolicy, StoreError, Stripe, TagCreation,
    TagOptions, TagRecord, TailRelease, first_watermark, split_tag, validate_allocate, validate_new_tag,
    validate_policies, validate_raise, validate_tag,
};

use crate::MysqlOptions;
use crate::database::{Database, Statement, Turn};
use crate::error::{DUPLICATE_ENTRY, damaged, read_error};
use crate::leases;
use crate::schema::MAINTENANCE;

pub(crate) mod batch;
pub(crate) mod cosid;
mod counter;
pub(crate) mod id_generator;
pub(crate) mod leaf;
mod race;
pub(crate) mod sequence_table;
pub(crate) mod slow_ordered;
pub(crate) mod tables;
pub(crate) mod ticket;
pub(crate) mod tinyid;

use self::tables::{Column, Columns, Holds, Shape};

/// What the key of an ended tag's row begins with.
const RETIRED: &str = "retired:";

/// One table with a row per tag, as [`Foreign`] makes a store of it.
#[async_trait]
pub(crate) trait Table: fmt::Debug + Send + Sync + 'static {
    fn rows(&self) -> &Rows;

    /// The key of the tag's row.
    fn key(&self, tag: &str) -> Result<Key, StoreError> {
        self.rows().text_key(tag)
    }

    /// Whether numbers begin again, in a new generation, when they end.
    fn cycles(&self) -> bool {
        false
    }

    /// Grants numbers, fewer perhaps than were asked for; none when the tag has no row.
    async fn grant(&self, tag: &str, count: u64, at_least: u64) -> Result<Option<Segment>, StoreError>;

    /// What a row that [`Sql::find`] gave says of the tag.
    fn record(&self, tag: &str, row: &MySqlRow) -> Result<TagRecord, StoreError>;

    /// What the table's tags have when nothing is said.
    fn policies(&self) -> (StepPolicy, RefillPolicy);

    /// The figure that says these policies in a row; or what can be said.
    fn figure(&self, step: StepPolicy, refill: RefillPolicy) -> Result<u64, String>;

    /// The statement that makes the tag's row.
    fn insert(&self, key: Key, start: u64, figure: u64) -> Result<Statement<'static>, StoreError>;

    /// The statement that changes the figure in the tag's row; none when there is no such figure.
    fn change(&self, key: Key, figure: u64) -> Option<Statement<'static>>;

    /// Lifts what the tag's row says, never lowers it; false when there is no row.
    async fn raise(&self, key: Key, next: u64) -> Result<bool, StoreError>;

    /// What decides the tag's numbers and is not in its record, in words: none where it is all there.
    async fn beyond_record(&self, _row: &MySqlRow) -> Result<Option<String>, StoreError> {
        Ok(None)
    }

    /// Makes sure that nobody is granted anything from the row, which is locked.
    async fn retire(&self, turn: &mut Turn, tag: &str, key: Key, row: &MySqlRow) -> Result<(), StoreError>;

    /// The tags behind `after`, in byte order.
    async fn list(&self, after: &str, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        const DOING: &str = "listing tags";
        let rows = self.rows();
        let list = sqlx::query(rows.sql.list).bind(after.as_bytes().to_vec()).bind(limit);
        let found = rows.database.rows(DOING, list).await?;
        let records = found.iter().map(|row| self.record(&rows.text(row, "name")?, row));
        let mut records = records.collect::<Result<Vec<_>, _>>()?;
        if rows.sql.rename.is_none() {
            return Ok(records);
        }
        // Ended tags are told, too: whoever brought half of them elsewhere has to find the rest. Their rows have other
        // names, and so another place in the order.
        let ended = rows.sql.list.replace("NOT LIKE 'retired:%'", "LIKE 'retired:%'");
        let ended = sqlx::query(AssertSqlSafe(ended)).bind(format!("{RETIRED}{after}").into_bytes()).bind(limit);
        for row in &rows.database.rows(DOING, ended).await? {
            let name = rows.text(row, "name")?;
            let name = name.strip_prefix(RETIRED).unwrap_or(&name);
            // A row of that name was put there again.
            if records.iter().all(|record| record.tag != name) {
                records.push(TagRecord { watermark: ID_MAX, ..self.record(name, row)? });
            }
        }
        records.sort_by(|one, other| one.tag.cmp(&other.tag));
        records.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(records)
    }

    async fn stripe(&self) -> Result<Option<Stripe>, StoreError> {
        Ok(None)
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        let table = self.rows().sql.table;
        Err(StoreError::refused(format!(
            "the table {table} cannot be {stripe}: the system that it belongs to counts every number in it"
        )))
    }
}

/// What a row is found by.
#[derive(Clone, Debug)]
pub(crate) enum Key {
    Text(String),
    Number(i32),
}

impl Key {
    /// Binds it as the next argument.
    pub(crate) fn bind_to(self, statement: Statement<'static>) -> Statement<'static> {
        match self {
            Self::Text(text) => statement.bind(text),
            Self::Number(number) => statement.bind(number),
        }
    }
}

/// A table and the statements that are alike for all.
#[derive(Debug)]
pub(crate) struct Sql {
    /// Its name.
    pub(crate) table: &'static str,
    /// The statement that creates it.
    pub(crate) ddl: &'static str,
    /// The column with the unique key.
    pub(crate) key: &'static str,
    /// The columns that are used, that of the key first.
    pub(crate) columns: &'static [(&'static str, Holds)],
    /// The column that counts.
    pub(crate) counts: &'static str,
    /// The row of a key, with the key as `name`.
    pub(crate) find: &'static str,
    /// The same, locked until the transaction ends.
    pub(crate) lock: &'static str,
    /// The rows behind a name, so many, in byte order, without those that were ended.
    pub(crate) list: &'static str,
    /// How many tags there are.
    pub(crate) count: &'static str,
    /// Changes nothing, and fails where nothing can be changed.
    pub(crate) probe: &'static str,
    /// Renames the row of a key to [`RETIRED`] and the key, in tables where tags are ended in that way and no other.
    pub(crate) rename: Option<&'static str>,
}

impl Sql {
    /// The statements that create the table.
    pub(crate) fn statements(&self) -> Vec<String> {
        vec![self.ddl.trim().to_owned()]
    }

    /// The least privileges on the table.
    pub(crate) fn privileges(&self) -> Vec<(String, &'static str)> {
        vec![(self.table.to_owned(), "SELECT, INSERT, UPDATE")]
    }
}

/// The rows of a table that was looked at and found usable.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    pub(crate) database: Database,
    pub(crate) sql: &'static Sql,
    creation: TagCreation,
    columns: Columns,
}

impl Rows {
    /// Looks at the table, and creates it if it is missing and may be created.
    pub(crate) async fn open(
        database: &Database,
        sql: &'static Sql,
        options: &MysqlOptions,
    ) -> Result<Self, StoreError> {
        let shape = Shape { name: sql.table, ddl: sql.ddl, key: &[sql.key], columns: sql.columns };
        let columns = tables::open(database, options, &[shape]).await?.pop().unwrap_or_default();
        Ok(Self { database: database.clone(), sql, creation: options.creation, columns })
    }

    fn column(&self, name: &str) -> &Column {
        static NONE: Column = Column::none();
        // All of them were found when the table was opened.
        self.columns.get(name).unwrap_or(&NONE)
    }

    /// The greatest number that fits a column of [`Sql::columns`].
    pub(crate) fn limit(&self, column: &str) -> u64 {
        self.column(column).limit
    }

    /// Whether a column of [`Sql::columns`] holds nothing below 0.
    pub(crate) fn is_unsigned(&self, column: &str) -> bool {
        // One bit of the signed ones is the sign.
        self.limit(column).count_ones().is_multiple_of(8)
    }

    /// The error when a tag has no numbers left, for a column that counts them.
    pub(crate) fn exhausted(&self, tag: &str, column: &str) -> StoreError {
        let (limit, table) = (self.limit(column), self.sql.table);
        if limit >= ID_MAX {
            return StoreError::exhausted(tag);
        }
        StoreError::refused(format!(
            "the tag {tag:?} has no numbers left: the column {column} of {table} holds {limit} at most; make it BIGINT, and start \
             this program again"
        ))
    }

    /// The key of a table whose keys are tags.
    fn text_key(&self, tag: &str) -> Result<Key, StoreError> {
        let Sql { table, key, .. } = self.sql;
        let invalid = |reason: String| Err(StoreError::TagInvalid { tag: tag.to_owned(), reason });
        let (column, length) = (self.column(key), self.length(tag));
        if length > column.width {
            return invalid(format!("it is {length} long, and the column {key} of {table} holds {}", column.width));
        }
        if matches!(column.charset.as_str(), "utf8" | "utf8mb3") && tag.chars().any(|it| it > '\u{ffff}') {
            return invalid(format!("the column {key} of {table} holds no characters above U+FFFF: make it utf8mb4"));
        }
        let begins_retired = tag.get(..RETIRED.len()).is_some_and(|start| start.eq_ignore_ascii_case(RETIRED));
        if begins_retired && self.sql.rename.is_some() {
            return invalid(format!("{table} has the tags that were ended under names that begin with {RETIRED}"));
        }
        Ok(Key::Text(tag.to_owned()))
    }

    /// How much of the key's column a name takes.
    fn length(&self, name: &str) -> u64 {
        let bytes = self.column(self.sql.key).compares_bytes();
        let length = if bytes { name.len() } else { name.chars().count() };
        u64::try_from(length).unwrap_or(u64::MAX)
    }

    pub(crate) async fn find(&self, key: Key) -> Result<Option<MySqlRow>, StoreError> {
        let rows = self.database.rows("reading a tag", key.clone().bind_to(sqlx::query(self.sql.find))).await?;
        self.the_one(&key, rows)
    }

    /// The row, which nobody else changes until the transaction ends.
    pub(crate) async fn lock(&self, turn: &mut Turn, key: Key) -> Result<Option<MySqlRow>, StoreError> {
        let rows = turn.rows(key.clone().bind_to(sqlx::query(self.sql.lock))).await?;
        self.the_one(&key, rows)
    }

    /// The row among those that were found by a key.
    ///
    /// # Errors
    /// When there are several, as the key was unique when the table was opened; and when it is that of a tag that was
    /// ended, which some collations take for the tag that was asked for: `rétired:order` for `retired:order`.
    pub(crate) fn the_one(&self, key: &Key, mut rows: Vec<MySqlRow>) -> Result<Option<MySqlRow>, StoreError> {
        let Some(row) = rows.pop() else { return Ok(None) };
        if !rows.is_empty() {
            return Err(self.damaged(&row, &format!("{} rows have this key, which must be unique", rows.len() + 1)));
        }
        if let Key::Text(tag) = key
            && self.sql.rename.is_some()
        {
            let stored = self.text(&row, "name")?;
            if stored.starts_with(RETIRED) && !tag.starts_with(RETIRED) {
                let reason = format!("{} takes it for {stored:?}, which is a tag that was ended", self.sql.table);
                return Err(StoreError::TagInvalid { tag: tag.clone(), reason });
            }
        }
        Ok(Some(row))
    }

    /// A whole number, of 0 or more unless the column may be below.
    pub(crate) fn integer(&self, row: &MySqlRow, column: &str) -> Result<i128, StoreError> {
        // The driver reads a column as signed or unsigned, as the column is.
        let signed = |_| row.try_get::<i64, _>(column).map(i128::from);
        let value = row.try_get::<u64, _>(column).map(i128::from).or_else(signed);
        value.map_err(|error| read_error(self.database.at(), "reading a row", error))
    }

    /// A whole number of 0 or more.
    pub(crate) fn number(&self, row: &MySqlRow, column: &str) -> Result<u64, StoreError> {
        let value = self.integer(row, column)?;
        u64::try_from(value).map_err(|_| self.damaged(row, &format!("{column} is {value}, and is never negative")))
    }

    /// A step: 1 or more.
    pub(crate) fn step(&self, row: &MySqlRow, column: &str) -> Result<u64, StoreError> {
        match self.number(row, column)? {
            0 => Err(self.damaged(row, &format!("{column} is 0, and must be 1 or more"))),
            step => Ok(step),
        }
    }

    pub(crate) fn text(&self, row: &MySqlRow, column: &str) -> Result<String, StoreError> {
        row.try_get(column).map_err(|error| read_error(self.database.at(), "reading a row", error))
    }

    /// The error of a row that cannot be used.
    pub(crate) fn damaged(&self, row: &MySqlRow, what: &str) -> StoreError {
        let name = row.try_get::<String, _>("name").unwrap_or_default();
        damaged(self.database.at(), &format!("in the row {name:?} of {}, {what}", self.sql.table))
    }

    /// A statement for the row of one name, for the rows of these names.
    fn for_several(&self, sql: &str, names: &[String]) -> Option<Statement<'static>> {
        let key = self.sql.key;
        let (before, after) = sql.split_once(&format!("WHERE {key} = ?"))?;
        let places = vec!["?"; names.len()].join(", ");
        let statement = sqlx::query(AssertSqlSafe(format!("{before}WHERE {key} IN ({places}){after}")));
        (!names.is_empty()).then(|| names.iter().fold(statement, |statement, name| statement.bind(name.clone())))
    }

    /// Whether the key's column holds the name of the tag once it is ended.
    fn has_room_to_rename(&self, name: &str) -> bool {
        self.length(&format!("{RETIRED}{name}")) <= self.column(self.sql.key).width
    }

    /// Renames the row, so that nobody finds it under the old key.
    pub(crate) async fn rename(&self, turn: &mut Turn, tag: &str, key: Key, row: &MySqlRow) -> Result<(), StoreError> {
        let Sql { table, key: column, rename, .. } = self.sql;
        let Some(rename) = *rename else {
            return Err(StoreError::refused(format!("the rows of {table} are not renamed")));
        };
        let name = self.text(row, "name")?;
        let (width, width_max) = (self.length(&format!("{RETIRED}{name}")), self.column(column).width);
        if width > width_max {
            return Err(StoreError::refused(format!(
                "the tag {tag:?} was not ended: its row would become {RETIRED}{name}, and the column {column} of {table} holds \
                 {width_max} characters: widen it to {width}"
            )));
        }
        let renamed = turn.try_execute(key.bind_to(sqlx::query(rename)), &[DUPLICATE_ENTRY]).await?;
        if renamed.is_err() {
            return Err(StoreError::refused(format!(
                "the tag {tag:?} was not ended: {table} has a row {RETIRED}{name} already, from when it was ended before; rename \
                 that one"
            )));
        }
        Ok(())
    }
}

/// A store in a foreign table.
#[derive(Debug)]
pub(crate) struct Foreign<T>(pub(crate) T);

impl<T: Table> Foreign<T> {
    /// Checks the name, and finds its key.
    fn key(&self, tag: &str) -> Result<Key, StoreError> {
        validate_tag(tag)?;
        if let (tag, Some(sub)) = split_tag(tag) {
            let reason = format!("the table {} has no place for its sub-key {sub:?}", self.0.rows().sql.table);
            return Err(StoreError::TagInvalid { tag: tag.to_owned(), reason });
        }
        self.0.key(tag)
    }

    /// The rows of these tags, found by one statement, which is made from one for a single row; `None` where one of
    /// them is not found under its name as it is written, or a row is found by something else than a name.
    async fn rows_of(&self, turn: &mut Turn, sql: &str, tags: &[String]) -> Result<Option<Vec<MySqlRow>>, StoreError> {
        let rows = self.0.rows();
        let is_named = tags.iter().all(|tag| matches!(self.key(tag), Ok(Key::Text(key)) if key == *tag));
        let Some(several) = rows.for_several(sql, tags).filter(|_| is_named) else { return Ok(None) };
        let mut found = BTreeMap::new();
        for row in turn.rows(several).await? {
            found.insert(rows.text(&row, "name")?, row);
        }
        // Another one was found by a name that the table takes for it.
        Ok(tags.iter().map(|tag| found.remove(tag)).collect::<Option<Vec<_>>>().filter(|_| found.is_empty()))
    }

    /// What decides the tag's numbers besides its record, by its row.
    async fn beyond_row(&self, row: &MySqlRow) -> Result<Option<String>, StoreError> {
        if let Some(beyond) = self.0.beyond_record(row).await? {
            return Ok(Some(beyond));
        }
        let rows = self.0.rows();
        let Sql { table, counts, .. } = *rows.sql;
        let limit = rows.limit(counts);
        Ok((limit < ID_MAX).then(|| {
            format!("its numbers end at {limit}, with the column {counts} of {table}: make that BIGINT if greater ones will do")
        }))
    }

    /// The tag's record, under its name as the row has it. One that was ended has used up all its numbers.
    async fn find_tag(&self, tag: &str, key: Key) -> Result<Option<TagRecord>, StoreError> {
        let stored = |row: &MySqlRow| match self.key(tag)? {
            Key::Text(_) => self.0.rows().text(row, "name"),
            Key::Number(_) => Ok(tag.to_owned()),
        };
        if let Some(row) = self.0.rows().find(key).await? {
            return self.0.record(&stored(&row)?, &row).map(Some);
        }
        let Some(row) = self.find_ended(tag).await? else { return Ok(None) };
        let name = stored(&row)?;
        let name = name.strip_prefix(RETIRED).unwrap_or(&name);
        Ok(Some(TagRecord { watermark: ID_MAX, ..self.0.record(name, &row)? }))
    }

    /// The row of a tag that was ended by renaming it.
    async fn find_ended(&self, tag: &str) -> Result<Option<MySqlRow>, StoreError> {
        if self.0.rows().sql.rename.is_none() {
            return Ok(None);
        }
        self.0.rows().find(Key::Text(format!("{RETIRED}{tag}"))).await
    }

    /// The figure that says the options in a row.
    fn figure(&self, step: StepPolicy, refill: RefillPolicy) -> Result<u64, StoreError> {
        self.0.figure(step, refill).map_err(|can| {
            StoreError::refused(format!(
                "a row of {} cannot say this step and refill policy: {can}",
                self.0.rows().sql.table
            ))
        })
    }

    /// The new tag, or none if it exists already.
    async fn insert_tag(&self, tag: &str, key: Key, options: &TagOptions) -> Result<Option<TagRecord>, StoreError> {
        let rows = self.0.rows();
        let table = rows.sql.table;
        if options.mode != Mode::Buffered {
            return Err(StoreError::refused(format!(
                "a row of {table} cannot say that the tag {tag:?} is ordered: use another store"
            )));
        }
        let unsaid = TagOptions::default();
        let (step, refill) = self.0.policies();
        let step = if options.step == unsaid.step { step } else { options.step };
        let refill = if options.refill == unsaid.refill { refill } else { options.refill };
        let start = match first_watermark(tag, options.start, rows.database.lifted()) {
            ID_MAX => return Err(StoreError::exhausted(tag)),
            watermark => watermark + 1,
        };
        let insert = self.0.insert(key.clone(), start, self.figure(step, refill)?)?;

        // Programs that create tags at once count them one after the other.
        let mut turn = rows.database.begin_alone("creating a tag").await?;
        let found = turn.rows(key.clone().bind_to(sqlx::query(rows.sql.find))).await?;
        if !found.is_empty() {
            turn.roll_back().await?;
            return Ok(None);
        }
        if rows.sql.rename.is_some() {
            let ended = sqlx::query(rows.sql.find).bind(format!("{RETIRED}{tag}"));
            if !turn.rows(ended).await?.is_empty() {
                turn.roll_back().await?;
                return Ok(None);
            }
        }
        let counted = turn.rows(sqlx::query(rows.sql.count)).await?;
        let tags = counted.first().map(|row| rows.number(row, "tags")).transpose()?.unwrap_or_default();
        let tags_max = rows.creation.of(tag).tags_max;
        if tags >= tags_max {
            turn.roll_back().await?;
            return Err(StoreError::TagLimit { tag: tag.to_owned(), tags_max });
        }
        let time = leases::check_new_time(&mut turn, &rows.database, tag).await;
        if let Err(refused) = time.and_then(|()| validate_new_tag(tag)) {
            turn.roll_back().await?;
            return Err(refused);
        }
        // The old system may have made the row in the meantime.
        if turn.try_execute(insert, &[DUPLICATE_ENTRY]).await?.is_err() {
            turn.roll_back().await?;
            return Ok(None);
        }
        turn.commit().await?;
        tracing::info!(tag, table, "created a tag");
        self.find_tag(tag, key).await
    }

    /// An unknown tag, created if first use may do that.
    async fn use_first(&self, tag: &str, key: Key) -> Result<(), StoreError> {
        if !self.0.rows().creation.of(tag).on_first_use {
            return Err(StoreError::tag_unknown(tag));
        }
        self.insert_tag(tag, key, &TagOptions::default()).await.map(drop)
    }
}

#[async_trait]
impl<T: Table> SegmentStore for Foreign<T> {
    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        match validate_allocate(tag, count, at_least) {
            Err(StoreError::Exhausted { .. }) if self.0.cycles() => {}
            checked => checked?,
        }
        let key = self.key(tag)?;
        // Twice, when the tag comes into being in between.
        for _ in 0..2 {
            if let Some(segment) = self.0.grant(tag, count, at_least).await? {
                return Ok(segment);
            }
            if self.find_ended(tag).await?.is_some() {
                return Err(StoreError::exhausted(tag));
            }
            self.use_first(tag, key.clone()).await?;
        }
        Err(StoreError::unavailable(format!("the tag {tag:?} changes all the time: try again")))
    }

    async fn release(&self, tag: &str, _: TailRelease) -> Result<bool, StoreError> {
        validate_tag(tag)?;
        Ok(false)
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        let key = self.key(tag)?;
        if let Some(record) = self.find_tag(tag, key.clone()).await? {
            return Ok(record);
        }
        self.use_first(tag, key).await?;
        self.tag(tag).await
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        let key = self.key(tag)?;
        self.find_tag(tag, key).await?.ok_or_else(|| StoreError::tag_unknown(tag))
    }

    async fn create_tag(&self, tag: &str, options: &TagOptions) -> Result<TagRecord, StoreError> {
        let key = self.key(tag)?;
        options.validate(tag)?;
        let created = self.insert_tag(tag, key, options).await?;
        created.ok_or_else(|| StoreError::TagExists { tag: tag.to_owned() })
    }

    async fn change_tag(&self, tag: &str, step: StepPolicy, refill: RefillPolicy) -> Result<TagRecord, StoreError> {
        let key = self.key(tag)?;
        validate_policies(tag, step, refill)?;
        let record = self.tag(tag).await?;
        if (record.options.step, record.options.refill) == (step, refill) || self.find_ended(tag).await?.is_some() {
            return Ok(record);
        }
        let figure = self.figure(step, refill)?;
        if let Some(change) = self.0.change(key, figure) {
            self.0.rows().database.execute("changing a tag", change).await?;
        }
        self.tag(tag).await
    }

    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        let key = self.key(tag)?;
        validate_raise(tag, next)?;
        let is_there = self.0.rows().find(key.clone()).await?.is_some();
        let is_raised = is_there && self.0.raise(key, next).await?;
        let record = self.tag(tag).await?;
        // One that was ended is as high as it can be.
        if !is_raised && record.watermark < next - 1 {
            return Err(self.0.rows().database.held_back("raising a tag").await);
        }
        Ok(record)
    }

    async fn retire_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        let key = self.key(tag)?;
        let rows = self.0.rows();
        let mut turn = rows.database.begin("ending a tag").await?;
        let Some(row) = rows.lock(&mut turn, key.clone()).await? else {
            turn.roll_back().await?;
            return self.tag(tag).await;
        };
        let record = self.0.record(tag, &row)?;
        self.0.retire(&mut turn, tag, key, &row).await?;
        turn.commit().await?;
        tracing::info!(tag, table = rows.sql.table, watermark = record.watermark, "ended a tag");
        Ok(record)
    }

    async fn retire_tags(&self, tags: &[String]) -> Result<Option<Vec<TagRecord>>, StoreError> {
        let rows = self.0.rows();
        let Some(rename) = rows.sql.rename.and_then(|rename| rows.for_several(rename, tags)) else { return Ok(None) };
        if tags.iter().any(|tag| !rows.has_room_to_rename(tag)) {
            return Ok(None);
        }
        let mut turn = rows.database.begin("ending tags").await?.within(MAINTENANCE);
        let Some(found) = self.rows_of(&mut turn, rows.sql.lock, tags).await? else {
            turn.roll_back().await?;
            return Ok(None);
        };
        let records: Result<Vec<TagRecord>, StoreError> =
            tags.iter().zip(&found).map(|(tag, row)| self.0.record(tag, row)).collect();
        let Ok(records) = records else {
            turn.roll_back().await?;
            return Ok(None);
        };
        let renamed = turn.try_execute(rename, &[DUPLICATE_ENTRY]).await?;
        let renamed = renamed.map_or(0, |done| done.rows_affected());
        if usize::try_from(renamed).ok() != Some(tags.len()) {
            turn.roll_back().await?;
            return Ok(None);
        }
        turn.commit().await?;
        tracing::info!(tags = tags.len(), table = rows.sql.table, "ended tags");
        Ok(Some(records))
    }

    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        self.0.list(after.unwrap_or_default(), limit).await
    }

    async fn folds_names(&self) -> Result<Option<String>, StoreError> {
        let Sql { table, key, .. } = self.0.rows().sql;
        let folding = self.0.rows().column(key).folding();
        Ok(folding.map(|collation| format!("the column {key} of {table} has the collation {collation}")))
    }

    async fn beyond_record(&self, tag: &str) -> Result<Option<String>, StoreError> {
        let rows = self.0.rows();
        match rows.find(self.key(tag)?).await? {
            Some(row) => self.beyond_row(&row).await,
            None => Ok(None),
        }
    }

    async fn beyond_records(&self, tags: &[String]) -> Result<Option<Vec<Option<String>>>, StoreError> {
        let rows = self.0.rows();
        let mut turn = rows.database.turn("reading tags").await?.within(MAINTENANCE);
        let found = self.rows_of(&mut turn, rows.sql.find, tags).await?;
        turn.give_back();
        let Some(found) = found else { return Ok(None) };
        let mut beyond = Vec::with_capacity(found.len());
        for row in &found {
            beyond.push(self.beyond_row(row).await?);
        }
        Ok(Some(beyond))
    }

    async fn check(&self) -> Result<(), StoreError> {
        let rows = self.0.rows();
        rows.database.execute("a check", sqlx::query(rows.sql.probe)).await.map(drop)
    }

    async fn stripe(&self) -> Result<Option<Stripe>, StoreError> {
        self.0.stripe().await
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        self.0.join_stripe(stripe).await
    }

    async fn close(&self) {
        self.0.rows().database.close().await;
    }
}
