//! Leaf's `leaf_alloc` (Meituan-Dianping/Leaf), read and written in place.
//!
//! `max_id` is the number behind the last one: after `max_id = max_id + step` the ids are `[max_id - step, max_id)`.
//! One statement adds and answers the sum; Leaf's own, an addition and a select in one transaction, may run beside it
//! on the same row. Since the number behind the last one must fit, 2^63 - 1 itself is never granted.
//!
//! A row's `step` is used as Leaf uses it: doubled up to 1,000,000 when it lasted less than 15 minutes, halved down to
//! itself when it lasted more than 30.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::mysql::MySqlRow;
use unalike_storage::{AdaptiveStep, RefillPolicy, Segment, StepPolicy, StoreError, TagOptions, TagRecord};

use super::counter::{Counter, CounterSql};
use super::tables::Holds;
use super::{Foreign, Key, Rows, Sql, Table};
use crate::database::{Database, Statement, Turn};
use crate::{DialectStore, MysqlOptions};

/// Leaf's own, but for the key's character set, which is left to the server there: this one tells all names apart.
const DDL: &str = "
CREATE TABLE IF NOT EXISTS leaf_alloc (
    biz_tag VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
    max_id BIGINT NOT NULL DEFAULT 1,
    step INT NOT NULL,
    description VARCHAR(256) DEFAULT NULL,
    update_time TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
    PRIMARY KEY (biz_tag)
) ENGINE = InnoDB";

pub(crate) static SQL: Sql = Sql {
    table: "leaf_alloc",
    ddl: DDL,
    key: "biz_tag",
    columns: &[("biz_tag", Holds::Name), ("max_id", Holds::Whole), ("step", Holds::Whole)],
    counts: "max_id",
    find: "SELECT CONVERT(biz_tag USING utf8mb4) AS name, max_id, step FROM leaf_alloc WHERE biz_tag = ?",
    lock: "SELECT CONVERT(biz_tag USING utf8mb4) AS name, max_id, step FROM leaf_alloc WHERE biz_tag = ? FOR UPDATE",
    list: "SELECT CONVERT(biz_tag USING utf8mb4) AS name, max_id, step FROM leaf_alloc \
        WHERE CAST(CONVERT(biz_tag USING utf8mb4) AS BINARY) > ? AND CAST(CONVERT(biz_tag USING utf8mb4) AS BINARY) NOT LIKE 'retired:%' \
        ORDER BY CAST(CONVERT(biz_tag USING utf8mb4) AS BINARY) LIMIT ?",
    count: "SELECT COUNT(*) AS tags FROM leaf_alloc",
    probe: "UPDATE leaf_alloc SET max_id = max_id WHERE 1 = 0",
    rename: Some("UPDATE leaf_alloc SET biz_tag = CONCAT('retired:', biz_tag) WHERE biz_tag = ?"),
};

static COUNTER: CounterSql = CounterSql {
    column: "max_id",
    next: 0,
    // The row of an ended tag is told by its bytes: some collations take `rétired:order` for `retired:order`.
    grant: "UPDATE leaf_alloc SET max_id = LAST_INSERT_ID(GREATEST(max_id, ?) + ?) WHERE biz_tag = ? AND max_id BETWEEN 0 AND ? \
        AND CAST(CONVERT(biz_tag USING utf8mb4) AS BINARY) NOT LIKE 'retired:%' AND {fence alone}",
    set: "UPDATE leaf_alloc SET max_id = ? WHERE biz_tag = ?",
    raise: "UPDATE leaf_alloc SET max_id = GREATEST(max_id, ?) WHERE biz_tag = ? AND {fence alone}",
};

/// Leaf doubles no step beyond this.
const STEP_MAX: u64 = 1_000_000;

/// The step of a tag that is made on first use.
const STEP: u64 = 1_000;

#[derive(Debug)]
struct LeafAlloc(Counter);

pub(crate) async fn open(database: &Database, options: &MysqlOptions) -> Result<Arc<dyn DialectStore>, StoreError> {
    let rows = Rows::open(database, &SQL, options).await?;
    Ok(Arc::new(Foreign(LeafAlloc(Counter { rows, sql: &COUNTER }))))
}

/// What Leaf makes of a step.
fn policy(step: u64) -> AdaptiveStep {
    AdaptiveStep { initial: step, min: step, max: step.max(STEP_MAX), ..AdaptiveStep::default() }
}

#[async_trait]
impl Table for LeafAlloc {
    fn rows(&self) -> &Rows {
        &self.0.rows
    }

    async fn grant(&self, tag: &str, count: u64, at_least: u64) -> Result<Option<Segment>, StoreError> {
        self.0.grant(tag, self.key(tag)?, count, at_least).await
    }

    fn record(&self, tag: &str, row: &MySqlRow) -> Result<TagRecord, StoreError> {
        let value = self.rows().number(row, "max_id")?;
        let step = StepPolicy::Adaptive(policy(self.rows().step(row, "step")?));
        Ok(TagRecord {
            tag: tag.to_owned(),
            options: TagOptions { step, ..TagOptions::default() },
            watermark: self.0.watermark(value),
            version: value,
        })
    }

    fn policies(&self) -> (StepPolicy, RefillPolicy) {
        (StepPolicy::Adaptive(policy(STEP)), RefillPolicy::default())
    }

    fn figure(&self, step: StepPolicy, refill: RefillPolicy) -> Result<u64, String> {
        match step {
            StepPolicy::Adaptive(adaptive)
                if policy(adaptive.min) == AdaptiveStep { initial: adaptive.min, ..adaptive }
                    && refill == RefillPolicy::default()
                    && adaptive.min <= self.rows().limit("step") =>
            {
                Ok(adaptive.min)
            }
            _ => Err(format!(
                "it has one figure, `step`, up to {}, which is used as Leaf uses it: adaptive from there to {STEP_MAX}, doubled below \
                 15 and halved above 30 minutes, refilled when 10% are used",
                self.rows().limit("step")
            )),
        }
    }

    fn insert(&self, key: Key, start: u64, figure: u64) -> Result<Statement<'static>, StoreError> {
        let insert = sqlx::query("INSERT INTO leaf_alloc (max_id, step, biz_tag) VALUES (?, ?, ?)");
        Ok(key.bind_to(insert.bind(start.cast_signed()).bind(figure)))
    }

    fn change(&self, key: Key, figure: u64) -> Option<Statement<'static>> {
        Some(key.bind_to(sqlx::query("UPDATE leaf_alloc SET step = ? WHERE biz_tag = ?").bind(figure)))
    }

    async fn raise(&self, key: Key, next: u64) -> Result<bool, StoreError> {
        self.0.raise(key, next).await
    }

    async fn retire(&self, turn: &mut Turn, tag: &str, key: Key, row: &MySqlRow) -> Result<(), StoreError> {
        self.rows().rename(turn, tag, key, row).await
    }
}
