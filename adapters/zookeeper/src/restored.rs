//! What is done with an ensemble that was put back from a backup, or that has lost its newest writes in another way.
//!
//! It has forgotten leases that still run, and nothing in it tells. So an operator says it, and the node with the
//! store's name is written: another name, and with it the time from which workers are leased.
//!
//! Both are one write, under the version that was read, so no interruption leaves one without the other, and whoever
//! repeats it gets a third name and a later time. Every look compares the name, and every grant and extension asks for
//! it once more behind its own write: a program that knew the name before is granted nothing from this write on, also
//! by requests that were on their way. A program that starts later reads the time together with the name: it is granted
//! nothing before that time, in no namespace, be it one that was forgotten, and extends no lease that began before,
//! also one that it kept a copy of.

use unalike_storage::{StoreError, StoreIdentity};
use zookeeper_client::{Client, CreateMode, Error};

use crate::error::write_error;
use crate::leases::{BATCH, LostRace, RACES_MAX, too_many_races};
use crate::nodes::{Namespace, StoreName};
use crate::{ZookeeperLeases, ZookeeperOptions};

const DOING: &str = "naming the store anew";

/// What became of an ensemble that was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The time from which workers are leased in every namespace, in Unix milliseconds.
    pub leases_from_ms: u64,
}

/// The longest of what the namespaces were bound to.
struct Longest {
    horizon_ms: u64,
    floor_ms: u64,
}

impl ZookeeperLeases {
    /// Continues with an ensemble that was put back from a backup, or that lost its newest writes: no lease begins
    /// before all that it may have forgotten have ended, also in namespaces that it lacks. That is the longest horizon
    /// from now on, of its namespaces and of `options.limits`, and
    /// [`max_skew_ms`](unalike_storage::LeaseLimits::max_skew_ms), by which the servers' clocks may differ. The leases
    /// that it knows are not extended. Until then an acquire is refused as [`StoreError::Quarantined`].
    ///
    /// The store has another [name](unalike_storage::LeaseStore::identity) then: programs that use it are refused until
    /// they are started again. To say it twice moves the time on.
    ///
    /// ```no_run
    /// use unalike_zookeeper::{ZookeeperLeases, ZookeeperOptions};
    ///
    /// # async fn example() -> Result<(), unalike_storage::StoreError> {
    /// let options = ZookeeperOptions::from_url("zookeeper://zk1.example,zk2.example,zk3.example")?;
    /// let restored = ZookeeperLeases::restored(options).await?;
    /// println!("workers are leased from {} on", restored.leases_from_ms);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`StoreError::Refused`] where no store is; as [`ZookeeperLeases::connect`], and any error of the connection.
    pub async fn restored(options: ZookeeperOptions) -> Result<Restored, StoreError> {
        let leases = Self::new(options)?;
        let restored = leases.name_anew().await;
        leases.connection.close().await;
        restored
    }

    async fn name_anew(&self) -> Result<Restored, StoreError> {
        for _ in 0..RACES_MAX {
            if let Ok(restored) = self.try_name_anew().await? {
                return Ok(restored);
            }
        }
        Err(too_many_races(DOING))
    }

    async fn try_name_anew(&self) -> Result<Result<Restored, LostRace>, StoreError> {
        let failed = |error| self.read_error(DOING, error);
        let client = self.connection.client().await?;
        let deadline = self.connection.deadline();
        let path = self.paths.identity();
        // A server may lag behind the one that named the store.
        let (sync, name) = (client.sync(&path), client.get_data(&path));
        let children = client.get_children(&self.paths.namespaces());
        deadline.answer(sync).await.map_err(failed)?;
        let before = match deadline.answer(name).await {
            Ok((data, stat)) => Some((StoreName::read(&path, &data)?, stat.version)),
            // Nothing has used it since an earlier version did.
            Err(Error::NoNode) => None,
            Err(error) => return Err(failed(error)),
        };
        let names = match deadline.answer(children).await {
            Ok((names, _)) => names,
            Err(Error::NoNode) if before.is_some() => Vec::new(),
            Err(Error::NoNode) => return Err(self.no_store()),
            Err(error) => return Err(failed(error)),
        };
        let longest = self.longest(&client, &names).await?;
        let deadline = self.connection.deadline();
        let clock = client.set_data(&self.paths.clock(), b"", None);
        let store_ms = self.clock_ms(&client, deadline, deadline.answer(clock).await).await?;
        let floor_ms = store_ms.saturating_add(longest.horizon_ms).saturating_add(self.options.limits.max_skew_ms);
        let floor_ms = before.map_or(floor_ms, |(before, _)| floor_ms.max(before.floor_ms));
        let data = StoreName { name: StoreIdentity::random()?, floor_ms }.write();
        let written = if let Some((_, version)) = before {
            deadline.answer(client.set_data(&path, &data, Some(version))).await.map(drop)
        } else {
            let options = self.connection.persistent(CreateMode::Persistent);
            deadline.answer(client.create(&path, &data, &options)).await.map(drop)
        };
        match written {
            Ok(()) => Ok(Ok(Restored { leases_from_ms: floor_ms.max(longest.floor_ms) })),
            // Somebody else named it meanwhile, or removed the name.
            Err(Error::BadVersion | Error::NodeExists | Error::NoNode) => Ok(Err(LostRace)),
            Err(error) => Err(write_error(&self.at(), DOING, error)),
        }
    }

    /// What the namespaces of these nodes were bound to, and the limits of this program.
    async fn longest(&self, client: &Client, names: &[String]) -> Result<Longest, StoreError> {
        let mut longest = Longest { horizon_ms: self.options.limits.max_horizon_ms, floor_ms: 0 };
        for names in names.chunks(BATCH) {
            let deadline = self.connection.deadline();
            let paths = names.iter().map(|name| format!("{}/{name}", self.paths.namespaces()));
            // All are sent before the first answer is waited for.
            let requests: Vec<_> = paths.map(|path| (client.get_data(&path), path)).collect();
            for (request, path) in requests {
                let answer = deadline.answer(request).await;
                let (data, stat) = answer.map_err(|error| self.read_error("reading the namespaces", error))?;
                let binding = Namespace::read(&path, &data, stat.czxid)?.binding;
                longest.horizon_ms = longest.horizon_ms.max(binding.max_horizon_ms);
                longest.floor_ms = longest.floor_ms.max(binding.floor_ms);
            }
        }
        Ok(longest)
    }

    fn no_store(&self) -> StoreError {
        StoreError::refused(format!(
            "there is no store of leases at {}: check the path. If the ensemble was emptied, start programs only once all \
             leases of before have ended (after the longest horizon)",
            self.at()
        ))
    }
}
