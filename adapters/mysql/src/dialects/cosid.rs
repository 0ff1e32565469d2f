//! CosId's table `cosid` (Ahoo-Wang/CosId), read and written in place.
//!
//! `last_max_id` is the last number: after `last_max_id = last_max_id + step` the ids are `(last_max_id - step,
//! last_max_id]`. One statement adds and answers the sum; CosId's own, an addition and a select in one transaction, may
//! run beside it on the same row. A tag is the row's whole `name`, `namespace.name`. Steps are a setting of CosId's
//! clients and have no column, so a tag has unalike's default ones.
//!
//! CosId's clients make a row again that they miss, so a tag is not ended by renaming its row but by the greatest
//! number that the column holds: every further addition is out of range, an error of the server.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::mysql::MySqlRow;
use unalike_storage::{RefillPolicy, Segment, StepPolicy, StoreError, TagOptions, TagRecord};

use super::counter::{Counter, CounterSql};
use super::tables::Holds;
use super::{Foreign, Key, Rows, Sql, Table};
use crate::database::{Database, Statement, Turn};
use crate::{DialectStore, MysqlOptions};

/// CosId's own, but for the key's character set, which is left to the server there: this one tells all names apart.
const DDL: &str = "
CREATE TABLE IF NOT EXISTS cosid (
    name VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT '{namespace}.{name}',
    last_max_id BIGINT UNSIGNED NOT NULL DEFAULT 0,
    last_fetch_time BIGINT UNSIGNED NOT NULL,
    CONSTRAINT cosid_pk PRIMARY KEY (name)
) ENGINE = InnoDB";

pub(crate) static SQL: Sql = Sql {
    table: "cosid",
    ddl: DDL,
    key: "name",
    columns: &[("name", Holds::Name), ("last_max_id", Holds::Whole), ("last_fetch_time", Holds::Whole)],
    counts: "last_max_id",
    find: "SELECT CONVERT(name USING utf8mb4) AS name, last_max_id FROM cosid WHERE name = ?",
    lock: "SELECT CONVERT(name USING utf8mb4) AS name, last_max_id FROM cosid WHERE name = ? FOR UPDATE",
    list: "SELECT CONVERT(name USING utf8mb4) AS name, last_max_id FROM cosid \
        WHERE CAST(CONVERT(name USING utf8mb4) AS BINARY) > ? ORDER BY CAST(CONVERT(name USING utf8mb4) AS BINARY) LIMIT ?",
    count: "SELECT COUNT(*) AS tags FROM cosid",
    probe: "UPDATE cosid SET last_max_id = last_max_id WHERE 1 = 0",
    rename: None,
};

static COUNTER: CounterSql = CounterSql {
    column: "last_max_id",
    next: 1,
    // The time is in seconds and the server's, as in CosId's own statement.
    grant: "UPDATE cosid SET last_max_id = LAST_INSERT_ID(GREATEST(last_max_id, ?) + ?), last_fetch_time = UNIX_TIMESTAMP() \
        WHERE name = ? AND last_max_id BETWEEN 0 AND ? AND {fence alone}",
    set: "UPDATE cosid SET last_max_id = ?, last_fetch_time = UNIX_TIMESTAMP() WHERE name = ?",
    raise: "UPDATE cosid SET last_max_id = GREATEST(last_max_id, ?) WHERE name = ? AND {fence alone}",
};

#[derive(Debug)]
struct Cosid(Counter);

pub(crate) async fn open(database: &Database, options: &MysqlOptions) -> Result<Arc<dyn DialectStore>, StoreError> {
    let rows = Rows::open(database, &SQL, options).await?;
    Ok(Arc::new(Foreign(Cosid(Counter { rows, sql: &COUNTER }))))
}

#[async_trait]
impl Table for Cosid {
    fn rows(&self) -> &Rows {
        &self.0.rows
    }

    async fn grant(&self, tag: &str, count: u64, at_least: u64) -> Result<Option<Segment>, StoreError> {
        self.0.grant(tag, self.key(tag)?, count, at_least).await
    }

    fn record(&self, tag: &str, row: &MySqlRow) -> Result<TagRecord, StoreError> {
        let value = self.rows().number(row, "last_max_id")?;
        let (watermark, options) = (self.0.watermark(value), TagOptions::default());
        Ok(TagRecord { tag: tag.to_owned(), options, watermark, version: value })
    }

    fn policies(&self) -> (StepPolicy, RefillPolicy) {
        (StepPolicy::default(), RefillPolicy::default())
    }

    fn figure(&self, step: StepPolicy, refill: RefillPolicy) -> Result<u64, String> {
        if (step, refill) == self.policies() {
            return Ok(0);
        }
        Err("it has no column for them, so tags have the default ones".to_owned())
    }

    fn insert(&self, key: Key, start: u64, _: u64) -> Result<Statement<'static>, StoreError> {
        let insert =
            sqlx::query("INSERT INTO cosid (last_max_id, last_fetch_time, name) VALUES (?, UNIX_TIMESTAMP(), ?)");
        Ok(key.bind_to(insert.bind(start - 1)))
    }

    fn change(&self, _: Key, _: u64) -> Option<Statement<'static>> {
        None
    }

    async fn raise(&self, key: Key, next: u64) -> Result<bool, StoreError> {
        self.0.raise(key, next).await
    }

    async fn retire(&self, turn: &mut Turn, tag: &str, key: Key, _: &MySqlRow) -> Result<(), StoreError> {
        self.0.spend(turn, tag, key).await
    }
}
