//! A sequence table, `t_sequence`, read and written in place.
//!
//! Its programs lock a row, add `increment_val` to `current_val`, and count 1000 numbers up from the *sum*, so a block
//! is `[current_val, current_val + 1000)` after the addition, and the next one begins at `current_val + increment_val`.
//! With an `increment_val` of 1000 or more their blocks are apart, and this may run beside them: a grant begins where
//! their next block would, and leaves `current_val` so that the next block begins behind it. (A grant of
//! `increment_val` numbers is such a block.) With less their own blocks overlap, so such a row is refused. While a row
//! is in use, `increment_val` is not lowered by hand: `change_tag` lifts `current_val` along with it.
//!
//! To begin at 1, a new row has `current_val` at `1 - increment_val`, below 0.
//!
//! **`cycle`.** When the numbers have ended, the row can begin again at 0, as the old programs do. That is outside the
//! promise that no id repeats, so it has to be asked for; the segments then say their generation, which is counted in
//! `unalike_sequence_generation` in the same transaction.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::mysql::MySqlRow;
use unalike_storage::{ID_MAX, RefillPolicy, Segment, StepPolicy, StoreError, TagOptions, TagRecord};

use super::tables::{self, Holds, Shape};
use super::{Foreign, Key, Rows, Sql, Table};
use crate::database::{Database, Statement, Turn};
use crate::error::NO_SUCH_TABLE;
use crate::{Dialect, DialectStore, MysqlOptions};

/// The article that the table comes from gives the names of its columns, and no statement. There `increment_val` is 1
/// unless somebody says otherwise; here it is what the programs count.
const DDL: &str = "
CREATE TABLE IF NOT EXISTS t_sequence (
    pk_seq_name VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
    current_val BIGINT NOT NULL DEFAULT 0,
    increment_val INT NOT NULL DEFAULT 1000
) ENGINE = InnoDB";

/// How often each row has begun again.
const GENERATION_DDL: &str = "
CREATE TABLE IF NOT EXISTS unalike_sequence_generation (
    pk_seq_name VARBINARY(512) NOT NULL PRIMARY KEY,
    generation BIGINT UNSIGNED NOT NULL
) ENGINE = InnoDB";

const GENERATIONS: Shape<'static> = Shape {
    name: "unalike_sequence_generation",
    ddl: GENERATION_DDL,
    key: &["pk_seq_name"],
    columns: &[("pk_seq_name", Holds::Bytes), ("generation", Holds::Id)],
};

static SQL: Sql = Sql {
    table: "t_sequence",
    ddl: DDL,
    key: "pk_seq_name",
    columns: &[("pk_seq_name", Holds::Name), ("current_val", Holds::Whole), ("increment_val", Holds::Whole)],
    counts: "current_val",
    find: "SELECT CONVERT(pk_seq_name USING utf8mb4) AS name, current_val, increment_val FROM t_sequence WHERE pk_seq_name = ?",
    lock: "SELECT CONVERT(pk_seq_name USING utf8mb4) AS name, current_val, increment_val FROM t_sequence WHERE pk_seq_name = ? \
        FOR UPDATE",
    list: "SELECT CONVERT(pk_seq_name USING utf8mb4) AS name, current_val, increment_val FROM t_sequence \
        WHERE CAST(CONVERT(pk_seq_name USING utf8mb4) AS BINARY) > ? AND CAST(CONVERT(pk_seq_name USING utf8mb4) AS BINARY) NOT LIKE 'retired:%' \
        ORDER BY CAST(CONVERT(pk_seq_name USING utf8mb4) AS BINARY) LIMIT ?",
    count: "SELECT COUNT(*) AS tags FROM t_sequence",
    probe: "UPDATE t_sequence SET current_val = current_val WHERE 1 = 0",
    rename: Some("UPDATE t_sequence SET pk_seq_name = CONCAT('retired:', pk_seq_name) WHERE pk_seq_name = ?"),
};

/// How many numbers the old programs count up from what they read.
const BLOCK: u64 = 1_000;

#[derive(Debug)]
struct Sequence {
    rows: Rows,
    cycle: bool,
}

/// The statements that create its tables.
pub(crate) fn ddl(cycle: bool) -> Vec<String> {
    let mut statements = SQL.statements();
    statements.extend(cycle.then(|| GENERATION_DDL.trim().to_owned()));
    statements
}

/// The least privileges on its tables.
pub(crate) fn privileges(cycle: bool) -> Vec<(String, &'static str)> {
    let mut tables = SQL.privileges();
    tables.extend(cycle.then(|| ("unalike_sequence_generation".to_owned(), "SELECT, INSERT, UPDATE")));
    tables
}

pub(crate) async fn open(database: &Database, options: &MysqlOptions) -> Result<Arc<dyn DialectStore>, StoreError> {
    let cycle = options.dialect == Dialect::SequenceTable { cycle: true };
    let rows = Rows::open(database, &SQL, options).await?;
    if cycle {
        tables::open(database, options, &[GENERATIONS]).await?;
    }
    Ok(Arc::new(Foreign(Sequence { rows, cycle })))
}

impl Sequence {
    /// The number at which the next block begins, and `increment_val`.
    fn next(&self, row: &MySqlRow) -> Result<(u64, u64), StoreError> {
        let (current, increment) = (self.rows.integer(row, "current_val")?, self.rows.step(row, "increment_val")?);
        // Of a smaller increment the old programs know nothing.
        let next = current + i128::from(increment.max(BLOCK));
        match u64::try_from(next) {
            Ok(next) if next > 0 => Ok((next, increment)),
            Err(_) if next > 0 => Ok((u64::MAX, increment)),
            _ => {
                Err(self.rows.damaged(row, &format!("current_val is {current}, so far below 0 that no number follows")))
            }
        }
    }

    /// The generation of a locked row.
    async fn generation(&self, turn: &mut Turn, name: &str) -> Result<u64, StoreError> {
        if !self.cycle {
            return Ok(0);
        }
        let select = "SELECT generation FROM unalike_sequence_generation WHERE pk_seq_name = ? FOR UPDATE";
        let found = turn.rows(sqlx::query(select).bind(name.as_bytes().to_vec())).await?;
        found.first().map_or(Ok(0), |row| self.rows.number(row, "generation"))
    }

    /// Grants from a locked row, and says what `current_val` is then.
    async fn grant_locked(
        &self,
        turn: &mut Turn,
        tag: &str,
        row: &MySqlRow,
        count: u64,
        at_least: u64,
    ) -> Result<(Segment, i64), StoreError> {
        let (mut next, increment) = self.next(row)?;
        if increment < BLOCK {
            return Err(StoreError::refused(format!(
                "the row {tag:?} of t_sequence has an increment_val of {increment}, and the programs that it belongs to count \
                 {BLOCK} numbers from each value: their blocks overlap each other's and would overlap these; stop them and set \
                 it to {BLOCK} or more"
            )));
        }
        // The column must hold what is left behind a grant, and the block of an old program that follows.
        let highest = self.rows.limit("current_val").min(ID_MAX);
        let name = self.rows.text(row, "name")?;
        let mut generation = self.generation(turn, &name).await?;
        let mut at_least = at_least.max(1);
        if self.cycle && next > highest {
            next = increment;
            generation += 1;
            let count = "INSERT INTO unalike_sequence_generation (pk_seq_name, generation) VALUES (?, ?) \
                ON DUPLICATE KEY UPDATE generation = generation + 1";
            turn.execute(sqlx::query(count).bind(name.into_bytes()).bind(generation)).await?;
            tracing::warn!(
                tag,
                generation,
                "the numbers have ended and begin again: ids of this tag repeat from now on"
            );
        }
        if generation > 0 {
            // A caller that knows of an earlier generation only asks for what was above its numbers. Whoever knows of
            // this one asks for nothing above its watermark, unless the table lost what it had granted, and then
            // refuses this.
            at_least = 1;
        }
        let start = next.max(at_least);
        if start > highest {
            return Err(self.rows.exhausted(tag, "current_val"));
        }
        let count = count.min(highest - start + 1);
        let end = start + count;
        let after = i128::from(end) - i128::from(increment);
        let segment = Segment { start, end, stride: 1, generation, version: end };
        let after = i64::try_from(after).map_err(|_| self.rows.damaged(row, "its numbers have no end"))?;
        Ok((segment, after))
    }
}

#[async_trait]
impl Table for Sequence {
    fn rows(&self) -> &Rows {
        &self.rows
    }

    fn cycles(&self) -> bool {
        self.cycle
    }

    async fn grant(&self, tag: &str, count: u64, at_least: u64) -> Result<Option<Segment>, StoreError> {
        let key = self.key(tag)?;
        // The statement that grants has the fence.
        let mut turn = self.rows.database.turn("granting a segment").await?;
        turn.begin().await?;
        let Some(row) = self.rows.lock(&mut turn, key.clone()).await? else {
            turn.roll_back().await?;
            return Ok(None);
        };
        let (segment, after) = match self.grant_locked(&mut turn, tag, &row, count, at_least).await {
            Ok(granted) => granted,
            // After an error of the server there is nothing to roll back.
            Err(error) if error.is_retryable() => return Err(error),
            Err(error) => {
                turn.roll_back().await?;
                return Err(error);
            }
        };
        let set = "UPDATE t_sequence SET current_val = ? WHERE pk_seq_name = ? AND {fence}";
        let set = sqlx::query(self.rows.database.fenced(set)).bind(after);
        if turn.execute(key.bind_to(set)).await?.rows_affected() != 1 {
            turn.roll_back().await?;
            return Err(self.rows.database.held_back("granting a segment").await);
        }
        turn.commit().await?;
        Ok(Some(segment))
    }

    fn record(&self, tag: &str, row: &MySqlRow) -> Result<TagRecord, StoreError> {
        let (next, increment) = self.next(row)?;
        Ok(TagRecord {
            tag: tag.to_owned(),
            options: TagOptions { step: StepPolicy::Fixed { step: increment }, ..TagOptions::default() },
            watermark: (next - 1).min(ID_MAX),
            version: next,
        })
    }

    fn policies(&self) -> (StepPolicy, RefillPolicy) {
        (StepPolicy::Fixed { step: BLOCK }, RefillPolicy::default())
    }

    fn figure(&self, step: StepPolicy, refill: RefillPolicy) -> Result<u64, String> {
        let limit = self.rows.limit("increment_val");
        match step {
            StepPolicy::Fixed { step } if (BLOCK..=limit).contains(&step) && refill == RefillPolicy::default() => {
                Ok(step)
            }
            _ => Err(format!("it has a fixed step of {BLOCK} to {limit}, refilled when 10% are used")),
        }
    }

    fn insert(&self, key: Key, start: u64, figure: u64) -> Result<Statement<'static>, StoreError> {
        let mut before = start.cast_signed() - figure.cast_signed();
        if self.rows.is_unsigned("current_val") {
            // The first number is then `increment_val`.
            before = before.max(0);
        }
        let insert = sqlx::query("INSERT INTO t_sequence (current_val, increment_val, pk_seq_name) VALUES (?, ?, ?)");
        Ok(key.bind_to(insert.bind(before).bind(figure)))
    }

    fn change(&self, key: Key, figure: u64) -> Option<Statement<'static>> {
        // The next block begins where it would have; a row whose blocks overlapped begins behind all of them.
        let change = "UPDATE t_sequence SET current_val = current_val + GREATEST(increment_val, 1000) - ?, increment_val = ? \
            WHERE pk_seq_name = ?";
        Some(key.bind_to(sqlx::query(change).bind(figure.cast_signed()).bind(figure.cast_signed())))
    }

    async fn raise(&self, key: Key, next: u64) -> Result<bool, StoreError> {
        let raise = "UPDATE t_sequence SET current_val = GREATEST(current_val, ? - CAST(increment_val AS SIGNED)) WHERE pk_seq_name = ? \
            AND {fence alone}";
        let raise = key.bind_to(sqlx::query(self.rows.database.fenced(raise)).bind(next.cast_signed()));
        Ok(self.rows.database.execute("raising a tag", raise).await?.rows_affected() > 0)
    }

    /// Also where it is not to begin again any more.
    async fn beyond_record(&self, row: &MySqlRow) -> Result<Option<String>, StoreError> {
        let name = self.rows.text(row, "name")?;
        let mut turn = self.rows.database.turn("reading a generation").await?;
        let select = "SELECT generation FROM unalike_sequence_generation WHERE pk_seq_name = ?";
        let found = turn.try_rows(sqlx::query(select).bind(name.into_bytes()), NO_SUCH_TABLE).await?;
        turn.give_back();
        let generation = found.unwrap_or_default().first().map_or(Ok(0), |row| self.rows.number(row, "generation"))?;
        Ok(match generation {
            0 if self.cycle => Some("its numbers begin again when they end (cycle=true)".to_owned()),
            0 => None,
            again => {
                Some(format!("its numbers have begun again {again} times, and greater ones were handed out before"))
            }
        })
    }

    async fn retire(&self, turn: &mut Turn, tag: &str, key: Key, row: &MySqlRow) -> Result<(), StoreError> {
        self.rows.rename(turn, tag, key, row).await
    }
}
