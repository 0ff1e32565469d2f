//! What the configuration says of leases: where they are kept, for how long, and which worker is preferred.

use anyhow::{bail, ensure};
use unalike::storage::LeaseLimits;
use unalike::{Layout, LayoutFields};
use unalike_stores::{StoreUrl, Tables};

use crate::config::Config;
use crate::config::worker::Worker;

/// No shorter lease can be renewed in time by a server that looks after it now and then.
const HORIZON_MIN_MS: u64 = 300;

/// Where leases are kept, as the configuration says it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LeasePlace<'a> {
    /// Where `--leases` says.
    Named(&'a StoreUrl),
    /// In the durable store of the sequences, as nothing else is said.
    Beside(&'a StoreUrl),
    /// Nowhere: workers are assigned by hand.
    Static,
    /// Nowhere: there are no snowflakes.
    Nowhere,
}

impl Config {
    /// Where leases are kept.
    pub(crate) fn lease_place(&self) -> LeasePlace<'_> {
        match self.stores().lease_place() {
            unalike_stores::LeasePlace::Named(url) => LeasePlace::Named(url),
            unalike_stores::LeasePlace::Beside(url) => LeasePlace::Beside(url),
            unalike_stores::LeasePlace::Nowhere if self.unsafe_static_worker => LeasePlace::Static,
            unalike_stores::LeasePlace::Nowhere => LeasePlace::Nowhere,
        }
    }

    /// The layout of all snowflakes, where workers are shared with another system, which decides it.
    pub(crate) fn shared_layout(&self) -> Option<Layout> {
        // A URL that cannot be read is refused elsewhere.
        self.leases.as_ref().filter(|url| !url.is_nothing())?.lease_place().ok()?.layout()
    }

    /// What lease stores are told.
    pub(crate) fn lease_limits(&self) -> LeaseLimits {
        LeaseLimits { max_horizon_ms: self.lease_horizon_max_ms, max_skew_ms: self.lease_skew_max_ms }
    }

    /// The worker that this process would like to have, or that is its own.
    ///
    /// # Errors
    /// When it is to be the host's number, and that has none.
    pub(crate) fn worker_number(&self) -> anyhow::Result<Option<u32>> {
        self.worker.map(Worker::number).transpose()
    }

    /// Checks what is said of leases, each by itself and together.
    ///
    /// # Errors
    /// Says what is wrong, and what to write instead.
    pub(crate) fn validate_leases(&self) -> anyhow::Result<()> {
        self.lease_limits().validate().map_err(|_| {
            let max_ms = LeaseLimits::HORIZON_MAX_MS;
            anyhow::anyhow!(
                "lease_horizon_max_ms is {}, it must be 1 to {max_ms} (366 days)",
                self.lease_horizon_max_ms
            )
        })?;
        let is_nothing = self.leases.as_ref().is_some_and(StoreUrl::is_nothing);
        if self.unsafe_static_worker {
            ensure!(
                is_nothing,
                "--unsafe-static-worker is for workers that no store leases: add --leases none, or leave it out, and --worker \
                 is the worker that is preferred"
            );
            ensure!(
                self.worker.is_some(),
                "--unsafe-static-worker needs the number of the worker (--worker 3, or ordinal)"
            );
            ensure!(
                self.local_leases.is_some(),
                "--unsafe-static-worker needs a directory on a disk of its own, which keeps how far its ids have got \
                 (--local-leases DIR)"
            );
        } else if is_nothing {
            let given = [("--worker", self.worker.is_some()), ("--local-leases", self.local_leases.is_some())];
            if let Some((flag, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
                bail!(
                    "{flag} is about leases, and with --leases none there are none: name a store (--leases URL), or say that \
                     nobody else has this worker (--unsafe-static-worker, with --worker and --local-leases)"
                );
            }
        }
        let worker = self.worker_number()?;
        let shared = self.shared_layout();
        for (name, options) in self.snowflakes()? {
            let epoch_ms = options.layout.epoch_ms();
            if let Some(shared) = shared {
                ensure!(
                    options.layout.fields() == LayoutFields { epoch_ms, ..shared.fields() },
                    "the snowflake {name:?} has the layout {}, and beside Leaf (leaf= of --leases) it must be Leaf's, {shared}: \
                     write layout = \"leaf\", or leave it out",
                    options.layout
                );
            }
            let greatest = options.layout.worker_max();
            if let Some(worker) = worker.filter(|worker| *worker > greatest) {
                bail!(
                    "the worker is {worker}, and the snowflake {name:?} has workers 0 to {greatest}: choose one of them \
                     (--worker), or a layout with more ([snowflakes.NAME])"
                );
            }
            ensure!(
                options.horizon_ms >= HORIZON_MIN_MS,
                "the snowflake {name:?} has a horizon_ms of {}, and it must be {HORIZON_MIN_MS} or more: a lease is renewed when a \
                 third of it has passed, and a shorter one would end before the answer came",
                options.horizon_ms
            );
            ensure!(
                options.horizon_ms <= self.lease_horizon_max_ms,
                "the snowflake {name:?} has a horizon_ms of {}, and no lease is longer than lease_horizon_max_ms, {}: make one \
                 shorter or the other longer",
                options.horizon_ms,
                self.lease_horizon_max_ms
            );
        }
        Ok(())
    }
}

/// Whether leases are kept in tables; `meant_there` is whether a database is meant that the configuration does not
/// name.
///
/// # Errors
/// When the URL cannot be used.
pub(crate) fn are_in_tables(config: &Config, meant_there: bool) -> anyhow::Result<bool> {
    match config.lease_place() {
        LeasePlace::Named(url) => Ok(url.lease_place()?.has_lease_tables()),
        LeasePlace::Beside(url) => Ok(meant_there || url.lease_place()?.has_lease_tables()),
        LeasePlace::Static | LeasePlace::Nowhere => Ok(false),
    }
}

/// The tables of the leases whose place is named.
///
/// # Errors
/// When the URL cannot be used.
pub(crate) fn named_tables(config: &Config) -> anyhow::Result<Option<Tables>> {
    match config.lease_place() {
        LeasePlace::Named(url) => Ok(url.lease_tables()),
        LeasePlace::Beside(url) => Ok(url.lease_tables()),
        LeasePlace::Static | LeasePlace::Nowhere => Ok(None),
    }
}
