//! What is done with a Redis without a durable store whose file was restored from a backup.
//!
//! Nothing in a file tells whether it is older than it was: a copy is as good as a move. So an operator says it.

use std::time::Duration;

use unalike_storage::{ID_MAX, StoreError};

use crate::alone::Alone;
use crate::server::Server;
use crate::{Backing, Dialect, RedisLeases, RedisOptions, RedisStore};

/// How long all tags may take, at least: one script goes through them.
const LIFT_TIMEOUT: Duration = Duration::from_secs(60);

/// What became of a Redis that was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// How many tags were lifted, sub-keys among them.
    pub tags: u64,
    /// The time from which workers are leased in every namespace that is here, in Unix milliseconds.
    pub leases_from_ms: u64,
}

impl RedisStore {
    /// Continues with a Redis without a durable store ([`Backing::RedisAlone`]) that was restored from a backup: lifts
    /// every tag by `lift` numbers, 1 or more, which has to be more than was granted since the backup under any one
    /// name. A tag with fewer numbers left is exhausted. A name that the backup lacks begins that far above its start.
    ///
    /// The store has another [name](unalike_storage::SegmentStore::identity) then: programs that have it open are
    /// refused until they are restarted. All of that is one script, and Redis answers nobody else meanwhile.
    ///
    /// Leases that are kept here and have no durable store either end, and none begins before all that the lost data
    /// may have granted have ended: as when Redis was restarted.
    ///
    /// Repeated, it lifts again.
    ///
    /// # Errors
    /// As [`RedisStore::connect`]; [`StoreError::Refused`] for a lift of 0 or above 2^63 - 1, for another dialect, and
    /// for a Redis that was not initialised.
    pub async fn restored(mut options: RedisOptions, lift: u64) -> Result<Restored, StoreError> {
        if lift == 0 || lift > ID_MAX {
            return Err(StoreError::refused(format!(
                "tags were to be lifted by {lift} numbers, it must be 1 to 2^63 - 1"
            )));
        }
        if options.dialect != Dialect::Unalike {
            return Err(StoreError::refused(
                "`store restored` lifts unalike's own tags, and not those of another dialect: raise each of them \
                 (`unalike tags raise TAG NUMBER`)",
            ));
        }
        options.validate()?;
        options.check_backing(&Backing::RedisAlone)?;
        options.request_timeout = options.request_timeout.max(LIFT_TIMEOUT);
        let server = Server::connect(&options, options.must_be_durable(&Backing::RedisAlone)).await?;
        let restored = go_on(&server, &options, lift).await;
        server.close().await;
        restored
    }
}

async fn go_on(server: &Server, options: &RedisOptions, lift: u64) -> Result<Restored, StoreError> {
    let alone = Alone::open(server, options).await?;
    // Before the tags: where this fails, none was lifted, and it can be repeated at no cost.
    let leases_from_ms = RedisLeases::begin_all_anew(options).await?;
    let tags = alone.lift(lift).await?;
    tracing::info!(address = server.address(), lift, leases_from_ms, "goes on with restored data");
    Ok(Restored { tags, leases_from_ms })
}
