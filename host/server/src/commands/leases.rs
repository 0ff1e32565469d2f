//! `unalike leases`: who holds which worker, and until when.

use anyhow::{Context, anyhow, bail, ensure};
use unalike::storage::{LeaseRecord, LeaseStore};
use unalike::{Clock, SystemClock};
use unalike_local::{StaticAssignment, StaticWorker};
use unalike_stores::StoreUrl;

use crate::commands::arguments::LeasesCommand;
use crate::commands::print::{Table, print};
use crate::config::Config;
use crate::config::leases::LeasePlace;
use crate::service::leases::lease_state;
use crate::service::stores::Stores;
use crate::words::rfc3339;

/// `unalike leases`
pub(crate) async fn leases(config: &Config, command: LeasesCommand) -> anyhow::Result<()> {
    if let LeasesCommand::Init { namespace, layout, not_before_ms } = &command {
        return initialise(config, namespace, layout.as_deref(), *not_before_ms).await;
    }
    let leases = Stores::leases_alone(config).await?;
    let done = match leases.store() {
        None => Err(anyhow!("there is no store of leases to look into: name it (--leases URL)")),
        Some(store) => look_into(store.as_ref(), command).await,
    };
    leases.close().await;
    done
}

async fn look_into(store: &dyn LeaseStore, command: LeasesCommand) -> anyhow::Result<()> {
    match command {
        LeasesCommand::List { namespace } => {
            let namespaces = match namespace {
                Some(namespace) => {
                    if store.leases(&namespace).await?.is_empty() {
                        eprintln!("unalike: nothing was leased under {namespace:?}");
                    }
                    vec![namespace]
                }
                None => store.namespaces().await?,
            };
            let mut table = Table::new(["NAMESPACE", "WORKER", "HOLDER", "FROM", "UNTIL", "STATE", "GRANT"]);
            for namespace in namespaces {
                let records = store.leases(&namespace).await?;
                records.iter().for_each(|record| table.add(lease_row(&namespace, record)));
            }
            table.print()
        }
        LeasesCommand::Release { namespace, worker } => {
            let record = store.forbid_extension(&namespace, worker).await?;
            let record = record.with_context(|| {
                format!(
                    "worker {worker} of {namespace:?} was never leased: `unalike leases list` shows those that were"
                )
            })?;
            let (until, holder) = (rfc3339(record.lease.valid_until_ms), record.holder);
            let left_ms = record.lease.valid_until_ms.saturating_sub(SystemClock.now_ms());
            print(&match left_ms {
                0 => format!("worker {worker} of {namespace:?}: its lease ended at {until}\n"),
                _ => format!(
                    "worker {worker} of {namespace:?}: its lease is not extended any more; {holder:?} may use it until \
                     {until}, for {} s\n",
                    left_ms.div_ceil(1_000)
                ),
            })
        }
        // It needs no open store.
        LeasesCommand::Init { .. } => Ok(()),
    }
}

fn lease_row(namespace: &str, record: &LeaseRecord) -> [String; 7] {
    let lease = record.lease;
    [
        namespace.to_owned(),
        lease.worker.to_string(),
        // A static worker has neither.
        if record.holder.is_empty() { "-".to_owned() } else { record.holder.clone() },
        // Not when it was acquired: that is by the store's clock, and a lease ends by its holder's.
        if record.acquired_ms == 0 { "-".to_owned() } else { rfc3339(lease.not_before_ms) },
        rfc3339(lease.valid_until_ms),
        lease_state(record).to_owned(),
        format!("{:032x}", lease.grant_id.0),
    ]
}

/// `unalike leases init`
pub(crate) async fn initialise(
    config: &Config,
    namespace: &str,
    layout: Option<&str>,
    not_before_ms: Option<u64>,
) -> anyhow::Result<()> {
    let layout = match (layout, config.snowflakes()?.get(namespace)) {
        (Some(name), configured) => {
            let layout = config.layouts()?.layout(name)?;
            if let Some(options) = configured {
                ensure!(
                    options.layout == layout,
                    "the snowflake {namespace:?} is configured with another layout than {name}: leave --layout out"
                );
            }
            layout
        }
        (None, Some(options)) => options.layout,
        (None, None) => {
            bail!("no snowflake {namespace:?} is configured: say which layout its ids have (--layout twitter, say)")
        }
    };
    match config.lease_place() {
        LeasePlace::Static => {
            let (Some(worker), Some(directory)) = (config.worker_number()?, &config.local_leases) else {
                bail!("a static worker needs --worker and --local-leases")
            };
            let assignment = StaticAssignment {
                namespace: namespace.to_owned(),
                worker,
                layout,
                not_before_ms: not_before_ms.unwrap_or(0),
            };
            let begun = StaticWorker::initialise(directory, &assignment).await;
            begun.with_context(|| format!("worker {worker} of {namespace:?} was not begun"))?;
            print(&format!("worker {worker} of {namespace:?} begins in {}\n", directory.display()))
        }
        LeasePlace::Named(url) if config.backing.as_ref().is_some_and(StoreUrl::is_nothing) && url.is_volatile() => {
            ensure!(not_before_ms.is_none(), "--not-before-ms is for a static worker");
            let is_new = url.lease_place()?.initialise_leases(namespace, layout, config.lease_limits()).await;
            let is_new = is_new.with_context(|| format!("the leases of {namespace:?} in {url} were not begun"))?;
            let done = if is_new { "they begin now" } else { "they were begun before, and nothing was changed" };
            print(&format!("the leases of {namespace:?} in {url}: {done}\n"))
        }
        _ => bail!(
            "only leases in Redis without a durable store behind it (--leases redis://HOST/DATABASE --backing none) and a \
             static worker (--unsafe-static-worker) are begun by command; any other lease store begins with its first use"
        ),
    }
}

#[cfg(test)]
mod tests {
    use unalike::storage::{GrantId, Lease};

    use super::*;

    #[test]
    fn no_lease_ends_before_it_begins() {
        // Given back unused by a holder whose clock is 2 ms behind the store's.
        let lease = Lease { worker: 3, grant_id: GrantId(1), not_before_ms: 1_000, valid_until_ms: 1_000 };
        let record = LeaseRecord { lease, holder: "a".to_owned(), acquired_ms: 1_002, is_final: true };
        let [.., from, until, state, _] = lease_row("default", &record);
        assert_eq!((from.as_str(), state.as_str()), (until.as_str(), "ended"));
    }
}
