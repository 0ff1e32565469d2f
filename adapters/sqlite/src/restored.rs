//! What is done with a file that was restored from a backup.
//!
//! Nothing in a file tells whether it is older than it was: a copy is as good as a move. So an operator says it.

use sqlx::Connection as _;
use unalike_storage::{ID_MAX, KEPT_FLOOR, KEPT_LEASE_FLOOR, KEPT_LEASES, StoreError, kept_patterns};

use crate::error::write_error;
use crate::{SqliteOptions, SqliteStore};

/// How much further than a horizon Redis asks for time for its leases, at most.
const KEPT_LEAD_MS: u64 = 60_000;

/// Makes the row of a floor, or lifts it to this.
const ADD_FLOOR: &str = include_str!("sql/add_floor.sql");

/// All tags of users, and the floor of new names, by so many numbers or to the end.
const LIFT_ALL: &str = include_str!("sql/lift_all.sql");

/// The time that was granted to clocks, by so many ms, and to leases, to this time.
const LIFT_TIME: &str = include_str!("sql/lift_time.sql");

/// The longest horizon of any namespace.
const HORIZON: &str = "SELECT coalesce(max(max_horizon_ms), 0) FROM namespace";

/// No lease from before is extended.
const END_LEASES: &str = "UPDATE lease SET released = 1 WHERE released = 0";

/// What became of a file that was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// How many tags were lifted, sub-keys among them.
    pub tags: u64,
    /// The time from which workers are leased in every namespace, in Unix milliseconds.
    pub leases_from_ms: u64,
}

impl SqliteStore {
    /// Continues with a file that was restored from a backup: lifts every tag by `lift` numbers, 1 or more, which has
    /// to be more than was granted since the backup under any one name. A tag with fewer numbers left is exhausted. A
    /// name that the backup lacks begins that far above its start. Run it before any program uses the file.
    ///
    /// No lease begins before all that the lost data may have granted have ended: the longest horizon from now on.
    /// Those of the backup are not extended. Time that was granted to Redis continues as far ahead.
    ///
    /// All of it is one transaction. Repeated, it lifts again.
    ///
    /// # Errors
    /// As [`SqliteStore::connect`]; [`StoreError::Refused`] for a lift of 0 or above 2^63 - 1, and where no file is.
    pub async fn restored(options: SqliteOptions, lift: u64) -> Result<Restored, StoreError> {
        if lift == 0 || lift > ID_MAX {
            return Err(StoreError::refused(format!(
                "tags were to be lifted by {lift} numbers, it must be 1 to 2^63 - 1"
            )));
        }
        let store = Self::connect(SqliteOptions { create: false, ..options }).await?;
        let restored = store.lift_all(lift).await;
        store.close().await;
        restored
    }

    async fn lift_all(&self, lift: u64) -> Result<Restored, StoreError> {
        let failed = |error| write_error(&self.path, "lifting all tags", error);
        let now_ms = self.read_clock().await?;
        let mut connection = self.writer()?.acquire().await.map_err(failed)?;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
        let horizon_ms: i64 = sqlx::query_scalar(HORIZON).fetch_one(&mut *transaction).await.map_err(failed)?;
        let horizon_ms = horizon_ms.unsigned_abs().max(self.limits.max_horizon_ms);
        // The holders' clocks may be off by so much.
        let leases_from_ms = now_ms.saturating_add(horizon_ms).saturating_add(self.limits.max_skew_ms);
        let kept_ms = horizon_ms.saturating_add(KEPT_LEAD_MS);
        let signed = |number: u64| number.min(ID_MAX).cast_signed();
        for (floor, at_least) in [(KEPT_FLOOR, 0), (KEPT_LEASE_FLOOR, leases_from_ms)] {
            let add = sqlx::query(ADD_FLOOR).bind(floor).bind(signed(at_least));
            add.execute(&mut *transaction).await.map_err(failed)?;
        }
        let [leases, clocks, formats] = kept_patterns();
        let all = sqlx::query(LIFT_ALL).bind(signed(lift)).bind(KEPT_LEASES).bind(KEPT_LEASE_FLOOR);
        let all = all.bind(&leases).bind(&clocks).bind(formats).execute(&mut *transaction).await.map_err(failed)?;
        let time = sqlx::query(LIFT_TIME).bind(signed(kept_ms)).bind(signed(now_ms.saturating_add(kept_ms)));
        time.bind(&leases).bind(&clocks).execute(&mut *transaction).await.map_err(failed)?;
        sqlx::query(END_LEASES).execute(&mut *transaction).await.map_err(failed)?;
        transaction.commit().await.map_err(failed)?;
        self.held.check_grant()?;
        tracing::info!(path = %self.path.display(), lift, leases_from_ms, "goes on with restored data");
        // The floor is nobody's tag.
        Ok(Restored { tags: all.rows_affected().saturating_sub(1), leases_from_ms })
    }
}
