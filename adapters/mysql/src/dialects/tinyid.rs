//! tinyid's `tiny_id_info` (didi/tinyid), read and written in place.
//!
//! `max_id` is the last number: the ids of a grant are those of `(max_id before, max_id after]` that are `remainder`
//! modulo `delta`. tinyid reads the row and then sets `max_id` if row and `version` are still as they were; so does
//! this, and both may run side by side on the same row. After three lost races the row is locked for the fourth, which
//! cannot be lost.
//!
//! `step` counts all numbers, so a segment has `step / delta` ids of it; `begin_id` is the number before the first. As
//! in tinyid the next segment is asked for when 20% are used.
//!
//! With `delta` N and another `remainder` in each, N databases count side by side. So are they used as stripes: store i
//! of N has `remainder` `(i + 1) % N` in every row, which is checked when it joins and again at each grant. The place
//! is recorded in `unalike_tinyid_stripe`.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::Row as _;
use sqlx::mysql::MySqlRow;
use unalike_storage::{
    ID_MAX, JoinedStripe, RefillPolicy, Segment, StepPolicy, StoreError, Stripe, StripeNumbers, TagOptions, TagRecord,
};

use super::tables::{self, Holds, Shape};
use super::{Foreign, Key, Rows, Sql, Table};
use crate::database::{Database, Statement, Turn, number};
use crate::error::{NO_SUCH_TABLE, read_error};
use crate::schema::{set_bytes, stripe_of};
use crate::{DialectStore, MysqlOptions};

/// tinyid's own, but for the key's collation: this one tells all names apart.
const DDL: &str = "
CREATE TABLE IF NOT EXISTS tiny_id_info (
    id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
    biz_type VARCHAR(63) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
    begin_id BIGINT NOT NULL DEFAULT 0,
    max_id BIGINT NOT NULL DEFAULT 0,
    step INT DEFAULT 0,
    delta INT NOT NULL DEFAULT 1,
    remainder INT NOT NULL DEFAULT 0,
    create_time TIMESTAMP NOT NULL DEFAULT '2010-01-01 00:00:00',
    update_time TIMESTAMP NOT NULL DEFAULT '2010-01-01 00:00:00',
    version BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (id),
    UNIQUE KEY uniq_biz_type (biz_type)
) ENGINE = InnoDB";

/// The place among stripes; no row in a store that stands alone.
const STRIPE_DDL: &str = "
CREATE TABLE IF NOT EXISTS unalike_tinyid_stripe (
    id TINYINT UNSIGNED NOT NULL PRIMARY KEY CHECK (id = 1),
    stripe_set BINARY(16) NOT NULL,
    stripe_index INT UNSIGNED NOT NULL,
    stripe_count INT UNSIGNED NOT NULL
) ENGINE = InnoDB";

const STRIPE: Shape<'static> = Shape {
    name: "unalike_tinyid_stripe",
    ddl: STRIPE_DDL,
    key: &["id"],
    columns: &[
        ("id", Holds::Whole),
        ("stripe_set", Holds::Bytes),
        ("stripe_index", Holds::Whole),
        ("stripe_count", Holds::Whole),
    ],
};

static SQL: Sql = Sql {
    table: "tiny_id_info",
    ddl: DDL,
    key: "biz_type",
    columns: &[
        ("biz_type", Holds::Name),
        ("id", Holds::Whole),
        ("begin_id", Holds::Whole),
        ("max_id", Holds::Whole),
        ("step", Holds::Whole),
        ("delta", Holds::Whole),
        ("remainder", Holds::Whole),
        ("version", Holds::Whole),
    ],
    counts: "max_id",
    find: "SELECT id, CONVERT(biz_type USING utf8mb4) AS name, begin_id, max_id, step, delta, remainder, version \
        FROM tiny_id_info WHERE biz_type = ?",
    lock: "SELECT id, CONVERT(biz_type USING utf8mb4) AS name, begin_id, max_id, step, delta, remainder, version \
        FROM tiny_id_info WHERE biz_type = ? FOR UPDATE",
    list: "SELECT id, CONVERT(biz_type USING utf8mb4) AS name, begin_id, max_id, step, delta, remainder, version \
        FROM tiny_id_info WHERE CAST(CONVERT(biz_type USING utf8mb4) AS BINARY) > ? AND CAST(CONVERT(biz_type USING utf8mb4) AS BINARY) NOT LIKE 'retired:%' \
        ORDER BY CAST(CONVERT(biz_type USING utf8mb4) AS BINARY) LIMIT ?",
    count: "SELECT COUNT(*) AS tags FROM tiny_id_info",
    probe: "UPDATE tiny_id_info SET max_id = max_id WHERE 1 = 0",
    rename: Some(
        "UPDATE tiny_id_info SET biz_type = CONCAT('retired:', biz_type), update_time = NOW(), version = version + 1 \
        WHERE biz_type = ?",
    ),
};

/// tinyid's own. Whoever changes `delta` or `remainder` need not change `version`, so these are compared, too: with
/// others, the numbers belong to another database.
const SWAP: &str = "UPDATE tiny_id_info SET max_id = ?, update_time = NOW(), version = version + 1 \
    WHERE id = ? AND max_id = ? AND version = ? AND biz_type = ? AND delta = ? AND remainder = ?";

/// How often a race is lost before the row is locked; tinyid gives up then.
const RACES_MAX: u32 = 3;

/// The step of a tag that is made on first use.
const STEP: u64 = 1_000;

/// Where tinyid asks for the next segment.
const REFILL: RefillPolicy = RefillPolicy::ShareConsumed { percent: 20 };

#[derive(Debug)]
struct TinyIdInfo {
    rows: Rows,
    /// What was recorded when the store was opened.
    recorded: Option<Stripe>,
    /// The stripe that this client joined.
    joined: Option<Stripe>,
}

/// The statements that create its tables.
pub(crate) fn ddl() -> Vec<String> {
    vec![DDL.trim().to_owned(), STRIPE_DDL.trim().to_owned()]
}

/// The least privileges on its tables.
pub(crate) fn privileges() -> Vec<(String, &'static str)> {
    vec![(SQL.table.to_owned(), "SELECT, INSERT, UPDATE"), ("unalike_tinyid_stripe".to_owned(), "SELECT, INSERT")]
}

pub(crate) async fn open(database: &Database, options: &MysqlOptions) -> Result<Arc<dyn DialectStore>, StoreError> {
    let rows = Rows::open(database, &SQL, options).await?;
    if options.create_tables {
        tables::open(database, options, &[STRIPE]).await?;
    } else {
        // Without it the store stands alone.
        tables::look(database, STRIPE).await?;
    }
    let recorded = recorded_stripe(database).await?;
    Ok(Arc::new(Foreign(TinyIdInfo { rows, recorded, joined: None })))
}

/// What the record says; none without a record.
async fn recorded_stripe(database: &Database) -> Result<Option<Stripe>, StoreError> {
    let doing = "reading unalike_tinyid_stripe";
    let mut turn = database.turn(doing).await?;
    let select = sqlx::query("SELECT stripe_set, stripe_index, stripe_count FROM unalike_tinyid_stripe WHERE id = 1");
    let Some(rows) = turn.try_rows(select, NO_SUCH_TABLE).await? else { return Ok(None) };
    turn.give_back();
    rows.first().map_or(Ok(None), |row| stripe_of(row, database, "unalike_tinyid_stripe"))
}

/// Who may have ids of which business type.
pub(crate) async fn tokens(database: &Database) -> Result<Option<Vec<(String, String)>>, StoreError> {
    let doing = "reading tiny_id_token";
    let mut turn = database.turn(doing).await?;
    let select = sqlx::query(
        "SELECT CONVERT(token USING utf8mb4) AS token, CONVERT(biz_type USING utf8mb4) AS biz_type FROM tiny_id_token",
    );
    let Some(rows) = turn.try_rows(select, NO_SUCH_TABLE).await? else { return Ok(None) };
    turn.give_back();
    let text = |row: &MySqlRow, column| row.try_get(column).map_err(|error| read_error(database.at(), doing, error));
    rows.iter().map(|row| Ok((text(row, "token")?, text(row, "biz_type")?))).collect::<Result<_, _>>().map(Some)
}

/// What `delta` and `remainder` must be in each row of a stripe.
fn stripe_numbers(stripe: &Stripe) -> (u64, u64) {
    let count = u64::from(stripe.count);
    (count, (u64::from(stripe.index) + 1) % count)
}

impl TinyIdInfo {
    /// `delta` and `remainder`, checked.
    fn numbers(&self, tag: &str, row: &MySqlRow) -> Result<(u64, u64), StoreError> {
        let (delta, remainder) = (self.rows.step(row, "delta")?, self.rows.number(row, "remainder")?);
        let at = self.rows.database.at();
        if remainder >= delta {
            return Err(StoreError::refused(format!(
                "{at}: the row {tag:?} of tiny_id_info has the remainder {remainder} and the delta {delta}: no number has that \
                 remainder; it must be below the delta"
            )));
        }
        let Some(stripe) = &self.joined else {
            if let Some(recorded) = self.recorded {
                return Err(StoreError::refused(format!(
                    "{at}: it is {recorded}, and was not opened with the other stores of that set"
                )));
            }
            return Ok((delta, remainder));
        };
        let (count, class) = stripe_numbers(stripe);
        if (delta, remainder) != (count, class) {
            return Err(StoreError::refused(format!(
                "{at}: as {stripe}, every row of tiny_id_info must have the delta {count} and the remainder {class}, and {tag:?} has \
                 {delta} and {remainder}"
            )));
        }
        Ok((delta, remainder))
    }

    /// What the row can grant, if nobody else changes it.
    fn next(&self, tag: &str, row: &MySqlRow, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        let (delta, remainder) = self.numbers(tag, row)?;
        let (max, version) = (self.rows.number(row, "max_id")?, self.rows.number(row, "version")?);
        let highest = self.rows.limit("max_id").min(ID_MAX);
        let first = first_number(max.saturating_add(1).max(at_least), delta, remainder).filter(|&it| it <= highest);
        let start = first.ok_or_else(|| self.rows.exhausted(tag, "max_id"))?;
        // As many as there are, at least the one at the start; the last one is at most `highest`.
        let count = count.min((highest - start) / delta + 1);
        let end = start + (count - 1) * delta + delta;
        Ok(Segment { start, end, stride: delta, generation: 0, version: version + 1 })
    }

    /// tinyid's statement: sets what was read to what is granted, if it is still so.
    fn swap(
        &self,
        tag: &str,
        row: &MySqlRow,
        segment: &Segment,
        fence: &str,
    ) -> Result<Statement<'static>, StoreError> {
        let last = segment.end - segment.stride;
        Ok(sqlx::query(self.rows.database.fenced(&format!("{SWAP} AND {fence}")))
            .bind(last.cast_signed())
            .bind(self.rows.number(row, "id")?)
            .bind(self.rows.number(row, "max_id")?)
            .bind(self.rows.number(row, "version")?)
            .bind(tag.to_owned())
            .bind(segment.stride)
            .bind(self.rows.number(row, "remainder")?))
    }
}

/// The first number of this remainder from `from` (1 or more) on.
fn first_number(from: u64, delta: u64, remainder: u64) -> Option<u64> {
    from.max(1).checked_add((remainder + delta - from.max(1) % delta) % delta)
}

/// The greatest distance that any tag's numbers have.
pub(crate) async fn stride(database: &Database) -> Result<u64, StoreError> {
    let statement = sqlx::query("SELECT CAST(COALESCE(MAX(delta), 1) AS SIGNED) AS stride FROM tiny_id_info");
    let rows = database.rows("reading the greatest delta", statement).await?;
    rows.first().map_or(Ok(1), |row| Ok(number(database, row, "stride")?.max(1)))
}

#[async_trait]
impl Table for TinyIdInfo {
    fn rows(&self) -> &Rows {
        &self.rows
    }

    async fn grant(&self, tag: &str, count: u64, at_least: u64) -> Result<Option<Segment>, StoreError> {
        let key = self.key(tag)?;
        for _ in 0..RACES_MAX {
            let mut turn = self.rows.database.turn("granting a segment").await?;
            let found = turn.rows(key.clone().bind_to(sqlx::query(SQL.find))).await?;
            let Some(row) = self.rows.the_one(&key, found)? else {
                turn.give_back();
                return Ok(None);
            };
            let segment = match self.next(tag, &row, count, at_least) {
                Ok(segment) => segment,
                Err(error) => {
                    turn.give_back();
                    return Err(error);
                }
            };
            let swapped = turn.execute(self.swap(tag, &row, &segment, "{fence alone}")?).await?.rows_affected();
            turn.give_back();
            if swapped == 1 {
                return Ok(Some(segment));
            }
        }
        let mut turn = self.rows.database.begin("granting a segment").await?;
        let Some(row) = self.rows.lock(&mut turn, key).await? else {
            turn.roll_back().await?;
            return Ok(None);
        };
        let segment = match self.next(tag, &row, count, at_least) {
            Ok(segment) => segment,
            Err(error) => {
                turn.roll_back().await?;
                return Err(error);
            }
        };
        if turn.execute(self.swap(tag, &row, &segment, "{fence}")?).await?.rows_affected() != 1 {
            return Err(self.rows.damaged(&row, "a locked row was changed"));
        }
        turn.commit().await?;
        Ok(Some(segment))
    }

    fn record(&self, tag: &str, row: &MySqlRow) -> Result<TagRecord, StoreError> {
        let (step, delta) = (self.rows.step(row, "step")?, self.rows.step(row, "delta")?);
        let start = self.rows.number(row, "begin_id")?.saturating_add(1).min(ID_MAX);
        Ok(TagRecord {
            tag: tag.to_owned(),
            options: TagOptions {
                start,
                step: StepPolicy::Fixed { step: (step / delta).max(1) },
                refill: REFILL,
                ..TagOptions::default()
            },
            watermark: self.rows.number(row, "max_id")?.min(ID_MAX),
            version: self.rows.number(row, "version")?,
        })
    }

    fn policies(&self) -> (StepPolicy, RefillPolicy) {
        (StepPolicy::Fixed { step: STEP }, REFILL)
    }

    fn figure(&self, step: StepPolicy, refill: RefillPolicy) -> Result<u64, String> {
        let delta = self.joined.map_or(1, |stripe| u64::from(stripe.count));
        let limit = self.rows.limit("step") / delta;
        match step {
            StepPolicy::Fixed { step } if step <= limit && refill == REFILL => Ok(step),
            _ => Err(format!("it has a fixed step of {limit} at most, refilled when 20% are used")),
        }
    }

    fn insert(&self, key: Key, start: u64, figure: u64) -> Result<Statement<'static>, StoreError> {
        let (delta, remainder) = self.joined.as_ref().map_or((1, 0), stripe_numbers);
        let before = (start - 1).cast_signed();
        let insert = sqlx::query(
            "INSERT INTO tiny_id_info (begin_id, max_id, step, delta, remainder, create_time, update_time, version, biz_type) \
             VALUES (?, ?, ?, ?, ?, NOW(), NOW(), 0, ?)",
        );
        Ok(key.bind_to(insert.bind(before).bind(before).bind(figure.saturating_mul(delta)).bind(delta).bind(remainder)))
    }

    fn change(&self, key: Key, figure: u64) -> Option<Statement<'static>> {
        let change = "UPDATE tiny_id_info SET step = delta * ?, update_time = NOW() WHERE biz_type = ?";
        Some(key.bind_to(sqlx::query(change).bind(figure)))
    }

    async fn raise(&self, key: Key, next: u64) -> Result<bool, StoreError> {
        let raise = "UPDATE tiny_id_info SET max_id = GREATEST(max_id, ?), update_time = NOW(), version = version + 1 \
            WHERE biz_type = ? AND {fence alone}";
        let raise = key.bind_to(sqlx::query(self.rows.database.fenced(raise)).bind((next - 1).cast_signed()));
        Ok(self.rows.database.execute("raising a tag", raise).await?.rows_affected() > 0)
    }

    async fn beyond_record(&self, row: &MySqlRow) -> Result<Option<String>, StoreError> {
        let (delta, remainder) = (self.rows.step(row, "delta")?, self.rows.number(row, "remainder")?);
        Ok((delta != 1).then(|| {
            format!(
                "its row in tiny_id_info has the delta {delta} and the remainder {remainder}: every {delta}th number is its own, \
                 and other databases count those between"
            )
        }))
    }

    async fn retire(&self, turn: &mut Turn, tag: &str, key: Key, row: &MySqlRow) -> Result<(), StoreError> {
        self.rows.rename(turn, tag, key, row).await
    }

    async fn stripe(&self) -> Result<Option<Stripe>, StoreError> {
        recorded_stripe(&self.rows.database).await
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        stripe.validate()?;
        let at = self.rows.database.at();
        let (delta, remainder) = stripe_numbers(stripe);
        let misfit = sqlx::query(
            "SELECT CONVERT(biz_type USING utf8mb4) AS name FROM tiny_id_info \
             WHERE (delta <> ? OR remainder <> ?) AND CAST(CONVERT(biz_type USING utf8mb4) AS BINARY) NOT LIKE 'retired:%' LIMIT 1",
        );
        let misfits = self.rows.database.rows("joining a stripe", misfit.bind(delta).bind(remainder)).await?;
        if let Some(row) = misfits.first() {
            return Err(StoreError::refused(format!(
                "{at}: as {stripe}, every row of tiny_id_info must have the delta {delta} and the remainder {remainder}; the row \
                 {:?} has others",
                self.rows.text(row, "name")?
            )));
        }
        let record = "INSERT IGNORE INTO unalike_tinyid_stripe (id, stripe_set, stripe_index, stripe_count) \
            SELECT 1, ?, ?, ? FROM DUAL WHERE {fence alone}";
        let record = sqlx::query(self.rows.database.fenced(record));
        let record = record.bind(set_bytes(Some(stripe))).bind(stripe.index).bind(stripe.count);
        self.rows.database.execute("joining a stripe", record).await?;
        let recorded = self.stripe().await?;
        if recorded != Some(*stripe) {
            let recorded = recorded.map_or_else(|| "nothing".to_owned(), |recorded| recorded.to_string());
            return Err(StoreError::refused(format!("{at}: it was to be {stripe}, and is recorded as {recorded}")));
        }
        let joined = Self { rows: self.rows.clone(), recorded, joined: Some(*stripe) };
        Ok(JoinedStripe { store: Arc::new(Foreign(joined)), numbers: StripeNumbers::Strided })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_of_a_remainder_is_found() {
        for delta in 1..20 {
            for remainder in 0..delta {
                for from in 0..100 {
                    let expected = (from.max(1)..).find(|number| number % delta == remainder);
                    assert_eq!(first_number(from, delta, remainder), expected, "{from} {delta} {remainder}");
                }
            }
        }
        assert_eq!(first_number(u64::MAX, 7, 3), None);
    }
}
