//! Rows that hold one counter, from which one statement grants.

use unalike_storage::{ID_MAX, Segment, StoreError};

use super::{Key, Rows};
use crate::database::Turn;
use crate::error::damaged;

/// The counters of a table, one per row.
#[derive(Debug)]
pub(super) struct Counter {
    pub(super) rows: Rows,
    pub(super) sql: &'static CounterSql,
}

#[derive(Debug)]
pub(super) struct CounterSql {
    /// The column.
    pub(super) column: &'static str,
    /// What makes the next number of the column's value: 0 where it is the next number itself, 1 where it is the last
    /// one.
    pub(super) next: u64,
    /// Lifts the value to the first argument at least, adds the second one, and sends the sum along with the number of
    /// rows: in the row of the third argument, if its value is neither negative nor above the fourth one.
    pub(super) grant: &'static str,
    /// Sets the value.
    pub(super) set: &'static str,
    /// Lifts the value to the argument at least.
    pub(super) raise: &'static str,
}

impl Counter {
    /// The greatest value that a grant may leave.
    fn highest(&self) -> u64 {
        self.rows.limit(self.sql.column).min(ID_MAX)
    }

    /// Grants numbers, none when there is no such row.
    ///
    /// On a server that was adopted, a grant may have waited for its row while replication wrote an older one to it,
    /// after the fence was looked at. The row has no place that tells; so the fence is looked at again, and what was
    /// granted is burnt if it does not hold.
    pub(super) async fn grant(
        &self,
        tag: &str,
        key: Key,
        count: u64,
        at_least: u64,
    ) -> Result<Option<Segment>, StoreError> {
        let granted = self.grant_once(tag, key, count, at_least).await?;
        if granted.is_some() {
            self.rows.database.look_again("granting a segment").await?;
        }
        Ok(granted)
    }

    async fn grant_once(&self, tag: &str, key: Key, count: u64, at_least: u64) -> Result<Option<Segment>, StoreError> {
        let count = count.min(ID_MAX);
        let floor = at_least.max(1) - self.sql.next;
        let Some(highest_before) = self.highest().checked_sub(count).filter(|&highest| floor <= highest) else {
            return self.grant_what_is_left(tag, key, count, floor).await;
        };
        let grant =
            sqlx::query(self.rows.database.fenced(self.sql.grant)).bind(floor.cast_signed()).bind(count.cast_signed());
        let grant = key.clone().bind_to(grant).bind(highest_before.cast_signed());
        let done = self.rows.database.execute("granting a segment", grant).await?;
        // Both figures are of one reply: without a row the other one would be an older grant's.
        match done.rows_affected() {
            // Its transaction begins with the fence.
            0 => self.grant_what_is_left(tag, key, count, floor).await,
            1 => self.segment(tag, done.last_insert_id(), count, at_least).map(Some),
            rows => Err(self.damaged(tag, &format!("{rows} rows have the same key"))),
        }
    }

    /// The slow way: near the last number, where there is no row, and where a row is bad.
    async fn grant_what_is_left(
        &self,
        tag: &str,
        key: Key,
        count: u64,
        floor: u64,
    ) -> Result<Option<Segment>, StoreError> {
        let mut turn = self.rows.database.begin("granting what is left").await?;
        let Some(row) = self.rows.lock(&mut turn, key.clone()).await? else {
            turn.roll_back().await?;
            return Ok(None);
        };
        let before = self.rows.number(&row, self.sql.column)?.max(floor);
        let count = count.min(self.highest().saturating_sub(before));
        if count == 0 {
            turn.roll_back().await?;
            return Err(self.rows.exhausted(tag, self.sql.column));
        }
        let after = before + count;
        turn.execute(key.bind_to(sqlx::query(self.sql.set).bind(after.cast_signed()))).await?;
        turn.commit().await?;
        self.segment(tag, after, count, floor + self.sql.next).map(Some)
    }

    fn segment(&self, tag: &str, value: u64, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        let end = value.saturating_add(self.sql.next);
        let segment = Segment { start: end.saturating_sub(count), end, stride: 1, generation: 0, version: value };
        if segment.validate().is_err() || segment.start < at_least || value > self.highest() {
            return Err(self.damaged(tag, &format!("the grant {segment:?} is not what was asked for")));
        }
        Ok(segment)
    }

    /// Lifts the row so that the next number is `next` or above; false when there is no such row.
    pub(super) async fn raise(&self, key: Key, next: u64) -> Result<bool, StoreError> {
        let raise = sqlx::query(self.rows.database.fenced(self.sql.raise)).bind((next - self.sql.next).cast_signed());
        let done = self.rows.database.execute("raising a tag", key.bind_to(raise)).await?;
        Ok(done.rows_affected() > 0)
    }

    /// Ends a tag: sets the value to the greatest that the column holds, so that every addition is out of range.
    pub(super) async fn spend(&self, turn: &mut Turn, tag: &str, key: Key) -> Result<(), StoreError> {
        let (column, table) = (self.sql.column, self.rows.sql.table);
        let limit = self.rows.limit(column);
        if limit < ID_MAX {
            // A server that is not strict cuts such a sum off at the limit, instead of refusing it as one beyond 64
            // bits.
            return Err(StoreError::refused(format!(
                "the tag {tag:?} was not ended: the column {column} of {table} has less than 64 bits; make it BIGINT"
            )));
        }
        turn.execute(key.bind_to(sqlx::query(self.sql.set).bind(limit))).await.map(drop)
    }

    fn damaged(&self, tag: &str, what: &str) -> StoreError {
        damaged(self.rows.database.at(), &format!("in {}, of the tag {tag:?}, {what}", self.rows.sql.table))
    }

    /// The greatest number that may have been handed out, by the value of a row.
    pub(super) fn watermark(&self, value: u64) -> u64 {
        value.saturating_add(self.sql.next).saturating_sub(1).min(ID_MAX)
    }
}
