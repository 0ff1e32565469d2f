//! The table `id_generator`: ceilings by whole numbers as keys, of counters that were kept in Redis.
//!
//! `current_max_id` is the ceiling: everything up to it may have been handed out, so the ids of a grant are
//! `(current_max_id - n, current_max_id]` after the addition. The old system counts up to a ceiling in Redis and lifts
//! it by its own estimates, in Redis alone at first sight, so it must not run beside: that it is stopped has to be
//! said.
//!
//! The keys are whole numbers, and each tag's is given with the options. `increment_step` is the tag's step.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use sqlx::mysql::MySqlRow;
use unalike_storage::{ID_MAX, RefillPolicy, Segment, StepPolicy, StoreError, TagOptions, TagRecord, validate_tag};

use super::counter::{Counter, CounterSql};
use super::tables::Holds;
use super::{Foreign, Key, Rows, Sql, Table};
use crate::database::{Database, Statement, Turn};
use crate::schema::MAINTENANCE;
use crate::{Dialect, DialectStore, MysqlOptions};

/// The article that the table comes from gives names and types of its columns, and no statement.
const DDL: &str = "
CREATE TABLE IF NOT EXISTS id_generator (
    id INT NOT NULL PRIMARY KEY,
    current_max_id BIGINT NOT NULL DEFAULT 0,
    increment_step INT NOT NULL DEFAULT 1000
) ENGINE = InnoDB";

pub(crate) static SQL: Sql = Sql {
    table: "id_generator",
    ddl: DDL,
    key: "id",
    columns: &[("id", Holds::Whole), ("current_max_id", Holds::Whole), ("increment_step", Holds::Whole)],
    counts: "current_max_id",
    find: "SELECT CAST(id AS CHAR) AS name, current_max_id, increment_step FROM id_generator WHERE id = ?",
    lock: "SELECT CAST(id AS CHAR) AS name, current_max_id, increment_step FROM id_generator WHERE id = ? FOR UPDATE",
    list: "",
    count: "SELECT COUNT(*) AS tags FROM id_generator",
    probe: "UPDATE id_generator SET current_max_id = current_max_id WHERE 1 = 0",
    rename: None,
};

static COUNTER: CounterSql = CounterSql {
    column: "current_max_id",
    next: 1,
    grant: "UPDATE id_generator SET current_max_id = LAST_INSERT_ID(GREATEST(current_max_id, ?) + ?) \
        WHERE id = ? AND current_max_id BETWEEN 0 AND ? AND {fence alone}",
    set: "UPDATE id_generator SET current_max_id = ? WHERE id = ?",
    raise: "UPDATE id_generator SET current_max_id = GREATEST(current_max_id, ?) WHERE id = ? AND {fence alone}",
};

/// The step of a tag that is made on first use.
const STEP: u64 = 1_000;

#[derive(Debug)]
struct IdGenerator {
    counter: Counter,
    keys: BTreeMap<String, i32>,
}

pub(crate) async fn open(database: &Database, options: &MysqlOptions) -> Result<Arc<dyn DialectStore>, StoreError> {
    let Dialect::IdGenerator { keys, source_stopped } = &options.dialect else {
        return Err(StoreError::refused("the table id_generator belongs to the dialect id-generator".to_owned()));
    };
    if !source_stopped {
        return Err(StoreError::refused(
            "the system that id_generator belongs to hands numbers out up to a ceiling that it keeps in Redis and lifts by its own \
             estimates, so numbers would repeat beside it: stop it, and say so (source-stopped=true)"
                .to_owned(),
        ));
    }
    let mut tags: BTreeMap<i32, &str> = BTreeMap::new();
    for (tag, key) in keys {
        validate_tag(tag)?;
        if let Some(other) = tags.insert(*key, tag) {
            return Err(StoreError::refused(format!(
                "the tags {other:?} and {tag:?} have the same key in id_generator, {key}"
            )));
        }
    }
    if keys.is_empty() {
        return Err(StoreError::refused(
            "the keys in id_generator are numbers: say which tag has which (keys=order:1,invoice:2)".to_owned(),
        ));
    }
    let rows = Rows::open(database, &SQL, options).await?;
    Ok(Arc::new(Foreign(IdGenerator { counter: Counter { rows, sql: &COUNTER }, keys: keys.clone() })))
}

/// Lifts all rows by so many numbers, or to the end: also those whose keys other programs use. Answers how many there
/// are.
pub(crate) async fn lift_all(database: &Database, options: &MysqlOptions, numbers: u64) -> Result<u64, StoreError> {
    let rows = Rows::open(database, &SQL, options).await?;
    let highest = rows.limit("current_max_id").min(ID_MAX).cast_signed();
    let mut turn = database.begin("lifting all rows").await?.within(MAINTENANCE);
    let lift = sqlx::query(
        "UPDATE id_generator SET current_max_id = current_max_id + LEAST(?, ? - current_max_id) \
         WHERE current_max_id BETWEEN 0 AND ?",
    );
    let lifted = turn.execute(lift.bind(numbers.cast_signed()).bind(highest).bind(highest)).await?.rows_affected();
    turn.commit().await?;
    Ok(lifted)
}

#[async_trait]
impl Table for IdGenerator {
    fn rows(&self) -> &Rows {
        &self.counter.rows
    }

    fn key(&self, tag: &str) -> Result<Key, StoreError> {
        let key = self.keys.get(tag).copied();
        key.map(Key::Number).ok_or_else(|| StoreError::tag_unknown(tag))
    }

    async fn grant(&self, tag: &str, count: u64, at_least: u64) -> Result<Option<Segment>, StoreError> {
        self.counter.grant(tag, self.key(tag)?, count, at_least).await
    }

    fn record(&self, tag: &str, row: &MySqlRow) -> Result<TagRecord, StoreError> {
        let value = self.rows().number(row, "current_max_id")?;
        let step = StepPolicy::Fixed { step: self.rows().step(row, "increment_step")? };
        Ok(TagRecord {
            tag: tag.to_owned(),
            options: TagOptions { step, ..TagOptions::default() },
            watermark: self.counter.watermark(value),
            version: value,
        })
    }

    fn policies(&self) -> (StepPolicy, RefillPolicy) {
        (StepPolicy::Fixed { step: STEP }, RefillPolicy::default())
    }

    fn figure(&self, step: StepPolicy, refill: RefillPolicy) -> Result<u64, String> {
        let limit = self.rows().limit("increment_step");
        match step {
            StepPolicy::Fixed { step } if step <= limit && refill == RefillPolicy::default() => Ok(step),
            _ => Err(format!("it has a fixed step of {limit} at most, refilled when 10% are used")),
        }
    }

    fn insert(&self, key: Key, start: u64, figure: u64) -> Result<Statement<'static>, StoreError> {
        let insert = sqlx::query("INSERT INTO id_generator (current_max_id, increment_step, id) VALUES (?, ?, ?)");
        Ok(key.bind_to(insert.bind((start - 1).cast_signed()).bind(figure)))
    }

    fn change(&self, key: Key, figure: u64) -> Option<Statement<'static>> {
        Some(key.bind_to(sqlx::query("UPDATE id_generator SET increment_step = ? WHERE id = ?").bind(figure)))
    }

    async fn raise(&self, key: Key, next: u64) -> Result<bool, StoreError> {
        self.counter.raise(key, next).await
    }

    async fn retire(&self, turn: &mut Turn, tag: &str, key: Key, _: &MySqlRow) -> Result<(), StoreError> {
        self.counter.spend(turn, tag, key).await
    }

    async fn list(&self, after: &str, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        let mut listed = Vec::new();
        let tags = self.keys.range::<str, _>((std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded));
        for (tag, key) in tags {
            if listed.len() as u64 == u64::from(limit) {
                break;
            }
            if let Some(row) = self.rows().find(Key::Number(*key)).await? {
                listed.push(self.record(tag, &row)?);
            }
        }
        Ok(listed)
    }
}
