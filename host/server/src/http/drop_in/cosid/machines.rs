//! CosId's machine ids: workers, leased to whoever asks in CosId's words.
//!
//! | path | answer |
//! | --- | --- |
//! | `POST /machines/{namespace}?machineBit=&instanceId=&stable=&safeGuardDuration=` | `{"machineId":n,"lastTimeStamp":ms}` |
//! | `PATCH /machines/{namespace}?instanceId=&stable=&safeGuardDuration=` | nothing: the machine id stays the instance's for that long |
//! | `DELETE /machines/{namespace}?instanceId=&stable=` | nothing: it is not prolonged any more |
//!
//! A machine id is a lease in the store of leases: its namespace is `cosid:NAMESPACE:BITS`, its holder the instance,
//! and its bounds are whole seconds, since some of CosId's generators count those. `safeGuardDuration` is how far it
//! reaches, up to `lease_horizon_max_ms`; a longer one is refused, as less would be granted than the client relies on.
//! `lastTimeStamp` is where the lease begins, above every end that was ever recorded for the machine id: CosId's
//! clients wait until their clock has passed it.
//!
//! CosId's clients have no name for a lease, only for themselves, and a name proves nothing: two containers with one
//! address are two instances of one name. So no answer rests on the name only.
//!
//! - `POST` never gives a machine id that is leased, not even to the instance that it is leased to. An instance that is
//!   started again gets another one, and its old one again once that has ended.
//! - `PATCH` prolongs every machine id of the name that is leased, for each may be in use. When none is, because nobody
//!   asked in time, it prolongs the one that ended last, unless somebody else has it by now.
//! - `POST` with `stable=true` says that no other process of the name is left: what the name had before is not
//!   prolonged any more.
//! - `DELETE` lets the machine id end when its time is over, and not before: nobody here knows how far ahead the
//!   client's clock is. Where the name has several, it is not known whose it is, and all stay.
//!
//! So a machine id goes to nobody else while its instance asks in time. What no server can do is stop a client of
//! CosId's that did not: it goes on with a machine id that it has lost (`M-03`) or that somebody else has.
//!
//! A namespace has one width, as in CosId: a `machineBit` other than that of the machine ids that are leased in it is
//! refused until their leases have ended. A store says of each lease namespace whether a Redis above it has it, and
//! each width has one of its own, so `cosid:NAMESPACE:` is taken before the first machine id: all widths are where that
//! is.
//!
//! Errors are CosId's, with the status 400: `M-01` when all machine ids are leased, `M-02` when nothing is known of the
//! instance, `M-03` when its machine id was ended.
//!
//! Where tokens are required, all of these need the scope `lease`, and the first machine id of a namespace the scope
//! `admin`. Give such a token to trusted programs only: who knows the name of an instance can end its machine id, be
//! given it afterwards, and then make the ids that the instance makes.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::SignedDuration;
use serde::Serialize;
use unalike::storage::{LeaseAcquire, LeaseExtend, LeaseLimits, LeaseRecord, LeaseStore, StoreError};
use unalike::{Clock, Layout, LayoutFields, SystemClock};

use super::super::{Parameters, json, path_of};
use super::{JSON, methods, refuse_as, whole};
use crate::config::tokens::{Denied, Scope};
use crate::http::access::{LEASE, Route, permit};
use crate::service::Service;
use crate::service::leases::SharedLeases;
use crate::service::problem::{Kind, Of, Problem};
use crate::words::{rfc3339, shortened};

/// The bits of CosId's widest machine ids.
pub(crate) const MACHINE_BITS_MAX: u64 = 20;

/// The bits of the workers of the namespace that says where all widths are leased.
const PLACE_BITS: u8 = 20;

/// Some of CosId's generators count seconds: no second belongs to two leases.
const TICK_MS: u32 = 1_000;

pub(super) fn route() -> Route {
    methods().post(LEASE, distribute).patch(LEASE, guard).delete(LEASE, revert).at("/machines/{namespace}")
}

/// Why there is no machine id, in CosId's words where it has some.
struct Failed {
    code: Option<&'static str>,
    problem: Problem,
}

impl Failed {
    /// All machine ids are leased.
    const OVERFLOW: &'static str = "M-01";
    /// Nothing is known of the instance.
    const NOT_FOUND: &'static str = "M-02";
    /// It no longer has its machine id.
    const LOST: &'static str = "M-03";

    fn coded(code: &'static str, detail: String) -> Self {
        Self { code: Some(code), problem: Problem::new(Kind::LeaseEnded, detail) }
    }
}

impl From<Problem> for Failed {
    fn from(problem: Problem) -> Self {
        Self { code: None, problem }
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::WorkersExhausted { .. } => Some(Self::OVERFLOW),
            StoreError::LeaseLost { .. } => Some(Self::LOST),
            _ => None,
        };
        match code {
            Some(code) => Self::coded(code, error.to_string()),
            None => Self { code, problem: Problem::of_store(&error, Of::Leases) },
        }
    }
}

fn answer(done: Result<(), Failed>) -> Response {
    match done {
        Ok(()) => StatusCode::OK.into_response(),
        Err(Failed { code, problem }) => refuse_as(code, &problem),
    }
}

/// Member by member as CosId has them.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MachineState {
    machine_id: u32,
    last_time_stamp: u64,
}

async fn distribute(State(service): State<Arc<Service>>, request: Request) -> Response {
    match acquire(&service, request).await {
        Ok(state) => json(StatusCode::OK, JSON, &state),
        Err(failed) => answer(Err(failed)),
    }
}

async fn guard(State(service): State<Arc<Service>>, request: Request) -> Response {
    answer(extend(&service, request).await)
}

async fn revert(State(service): State<Arc<Service>>, request: Request) -> Response {
    answer(end(&service, request).await)
}

/// The most bytes of the name of an instance.
const NAME_MAX: usize = 128;
/// The most bytes of CosId's namespace: with what is put around it, it is a name, too.
const NAMESPACE_MAX: usize = NAME_MAX - "cosid::63".len();

/// What every request says.
struct MachineRequest<'s> {
    leases: &'s SharedLeases,
    /// CosId's namespace.
    namespace: String,
    instance: String,
    parameters: Parameters,
    /// Whether the namespace may be begun.
    may_begin: Result<(), Denied>,
}

impl<'s> MachineRequest<'s> {
    async fn of(service: &'s Service, request: Request) -> Result<Self, Problem> {
        let (mut parts, _) = request.into_parts();
        let permit = permit(&parts)?;
        let namespace: String = path_of(&mut parts).await?;
        permit.covers(&namespace)?;
        let parameters = Parameters::of_query(&parts);
        let instance = parameters.get("instanceId").unwrap_or_default();
        if instance.is_empty() {
            return Err(Problem::new(Kind::QueryInvalid, "instanceId is missing: it names the process that asks"));
        }
        // As names of leases and of their holders are in every store.
        for (what, name, most) in
            [("instanceId", instance.as_str(), NAME_MAX), ("the namespace", &namespace, NAMESPACE_MAX)]
        {
            if name.len() > most || name.contains(char::is_control) {
                let what = format!(
                    "{what} is {:?}: it must have {most} bytes at most, and no control characters",
                    shortened(name)
                );
                return Err(Problem::new(Kind::QueryInvalid, what));
            }
        }
        let may_begin = permit.has(Scope::Admin);
        let leases = service.stores().leases().shared().map_err(|why| Problem::new(Kind::LeasesMissing, why))?;
        leases.steps.read(Instant::now(), SystemClock.now_ms());
        Ok(Self { leases, namespace, instance, parameters, may_begin })
    }

    fn store(&self) -> &dyn LeaseStore {
        self.leases.store.as_ref()
    }

    /// What the names of the namespace's leases begin with; their bits follow.
    fn prefix(&self) -> String {
        format!("cosid:{}:", self.namespace)
    }

    /// How far a lease is to reach. A tick more, as its end is rounded down to one.
    fn horizon_ms(&self) -> Result<u64, Problem> {
        let text = self.parameters.get("safeGuardDuration").unwrap_or_default();
        let invalid = |what: String| {
            let text = shortened(&text);
            Problem::new(Kind::QueryInvalid, format!("safeGuardDuration is {text:?}, {what}"))
        };
        let duration =
            text.parse::<SignedDuration>().ok().and_then(|duration| u64::try_from(duration.as_millis()).ok());
        let duration_ms = duration
            .filter(|&ms| ms >= u64::from(TICK_MS))
            .ok_or_else(|| invalid("it must be a second or longer, as ISO 8601 writes it: PT5M".to_owned()))?;
        let max_ms = self.leases.limits.max_horizon_ms;
        if duration_ms > max_ms {
            return Err(invalid(format!(
                "and no lease reaches further than {max_ms} ms (lease_horizon_max_ms): shorten the one, or lengthen the other"
            )));
        }
        Ok(duration_ms.saturating_add(u64::from(TICK_MS)))
    }

    /// The widths in which machine ids were ever leased, each with its namespace, of all of the store's.
    fn widths(&self, namespaces: Vec<String>) -> impl Iterator<Item = (u8, String)> {
        let prefix = self.prefix();
        namespaces
            .into_iter()
            .filter_map(move |namespace| Some((namespace.strip_prefix(&prefix)?.parse().ok()?, namespace)))
    }

    /// Takes the place of all widths, unless it is taken: in one step, also between servers that lease in two stores of
    /// which one grants the other its time. A Redis alone shares nothing with another place, and has no identity.
    async fn take_place(&self, namespaces: &[String]) -> Result<(), Failed> {
        let namespace = self.prefix();
        if namespaces.contains(&namespace) || self.store().identity().await?.is_none() {
            return Ok(());
        }
        let acquire = LeaseAcquire {
            namespace,
            // Bound for ever, and so many workers that nobody waits for one.
            layout: layout(PLACE_BITS)?,
            holder: self.instance.clone(),
            preferred_worker: None,
            now_ms: SystemClock.now_ms(),
            horizon_ms: 2 * u64::from(TICK_MS),
        };
        let lease = self.store().acquire(&acquire).await?;
        // Nobody uses it. What is not released ends by itself.
        let _ = self.store().release(&acquire.namespace, lease.worker, lease.grant_id, lease.not_before_ms).await;
        Ok(())
    }

    /// The newest lease of each machine id that is recorded as this instance's, with its namespace and layout.
    async fn own(&self) -> Result<Vec<Own>, Failed> {
        let mut own = Vec::new();
        for (bits, namespace) in self.widths(self.store().namespaces().await?) {
            let layout = layout(bits)?;
            let records = self.store().leases(&namespace).await?;
            let records = records.into_iter().filter(|record| record.holder == self.instance);
            own.extend(records.map(|record| Own { namespace: namespace.clone(), layout, record }));
        }
        Ok(own)
    }

    /// Refuses machine ids of another width than those that are leased: in CosId a namespace has one width, and its
    /// machine ids differ from one another.
    async fn check_width(&self, wanted: u8, namespaces: Vec<String>) -> Result<(), Failed> {
        for (bits, namespace) in self.widths(namespaces) {
            if bits == wanted {
                continue;
            }
            let records = self.store().leases(&namespace).await?;
            let running =
                records.iter().filter(|record| self.lasts(record)).max_by_key(|record| record.lease.valid_until_ms);
            if let Some(LeaseRecord { lease, holder, .. }) = running {
                let what = format!(
                    "machineBit is {wanted}, and machine ids of {bits} bits are leased in this namespace, the last until {} by {:?}: \
                     a namespace has one width, or two instances could have one machine id; ask with machineBit={bits}, or \
                     stop those instances first",
                    rfc3339(lease.valid_until_ms),
                    shortened(holder)
                );
                return Err(Problem::new(Kind::QueryInvalid, what).into());
            }
        }
        Ok(())
    }

    /// Whether it runs and may be prolonged.
    fn runs(&self, own: &Own) -> bool {
        !own.record.is_final && self.lasts(&own.record)
    }

    /// Whether it has not ended yet, by any clock that is not refused.
    fn lasts(&self, record: &LeaseRecord) -> bool {
        let LeaseLimits { max_horizon_ms, max_skew_ms } = self.leases.limits;
        let earliest_ms = SystemClock.now_ms().saturating_sub(max_skew_ms);
        let expiry = self.leases.steps.expiry(earliest_ms, max_horizon_ms);
        !expiry.has_ended(record.lease.valid_until_ms)
    }
}

/// A lease of the instance that asks.
struct Own {
    namespace: String,
    layout: Layout,
    record: LeaseRecord,
}

impl Own {
    /// Fixes the end that it has, which may be a later one by now: an extension that was answered meanwhile remains.
    async fn fix(&self, store: &dyn LeaseStore) -> Result<(), StoreError> {
        store.forbid_extension(&self.namespace, self.record.lease.worker).await.map(drop)
    }
}

/// What leases of machine ids of so many bits are bound to. Their clients make the ids, of whatever widths.
fn layout(bits: u8) -> Result<Layout, Problem> {
    let fields = LayoutFields {
        timestamp_bits: 40,
        worker_bits: bits,
        sequence_bits: 0,
        tick_ms: TICK_MS,
        ..Layout::COSID.fields()
    };
    Layout::new(fields).map_err(|error| Problem::new(Kind::QueryInvalid, format!("machineBit is {bits}: {error}")))
}

async fn acquire(service: &Service, request: Request) -> Result<MachineState, Failed> {
    let asked = MachineRequest::of(service, request).await?;
    let bits = whole(&asked.parameters, "machineBit", 1..=MACHINE_BITS_MAX)?;
    let bits = u8::try_from(bits).unwrap_or(u8::MAX);
    let layout = layout(bits)?;
    let horizon_ms = asked.horizon_ms()?;
    let namespace = format!("{}{bits}", asked.prefix());
    let namespaces = asked.store().namespaces().await?;
    if let Err(denied) = &asked.may_begin
        && !namespaces.contains(&namespace)
    {
        return Err(Problem::from(denied.clone()).into());
    }
    asked.take_place(&namespaces).await?;
    asked.check_width(bits, namespaces).await?;
    let is_stable = asked.parameters.get("stable").is_some_and(|stable| stable.eq_ignore_ascii_case("true"));
    // Before the new one is taken: another process of the name that takes one meanwhile keeps it.
    let before = if is_stable { asked.own().await? } else { Vec::new() };
    let acquire = LeaseAcquire {
        namespace,
        layout,
        holder: asked.instance.clone(),
        preferred_worker: None,
        now_ms: SystemClock.now_ms(),
        horizon_ms,
    };
    let lease = asked.store().acquire(&acquire).await?;
    // Of two that begin with two widths at once, each has taken one by now and sees the other's.
    let checked = match asked.store().namespaces().await {
        Ok(namespaces) => asked.check_width(bits, namespaces).await,
        Err(error) => Err(error.into()),
    };
    if let Err(failed) = checked {
        // Nobody was told of it.
        asked.store().release(&acquire.namespace, lease.worker, lease.grant_id, lease.not_before_ms).await?;
        return Err(failed);
    }
    for own in before.iter().filter(|own| asked.runs(own)) {
        own.fix(asked.store()).await?;
    }
    tracing::debug!(namespace = acquire.namespace, instance = asked.instance, worker = lease.worker, "a machine id");
    Ok(MachineState { machine_id: lease.worker, last_time_stamp: lease.not_before_ms })
}

async fn extend(service: &Service, request: Request) -> Result<(), Failed> {
    let asked = MachineRequest::of(service, request).await?;
    let horizon_ms = asked.horizon_ms()?;
    let own = asked.own().await?;
    let shown = |what: &str| format!("the instance {:?} {what}", shortened(&asked.instance));
    if own.is_empty() {
        let what = "has no machine id in this namespace: it never had one, or somebody else has it";
        return Err(Failed::coded(Failed::NOT_FOUND, shown(what)));
    }
    let latest = own.iter().filter(|own| !own.record.is_final).max_by_key(|own| own.record.lease.valid_until_ms);
    let Some(latest) = latest.map(|own| own.record.lease.grant_id) else {
        return Err(Failed::coded(Failed::LOST, shown("has a machine id that was ended: ask for another")));
    };
    // All of them, whatever becomes of one: it is lost to somebody else, and the others may be the one in use.
    let (mut extended, mut lost) = (false, None);
    // One that runs is the latest too.
    for own in own.into_iter().filter(|own| own.record.lease.grant_id == latest || asked.runs(own)) {
        let lease = own.record.lease;
        let extend = LeaseExtend {
            namespace: own.namespace,
            layout: own.layout,
            worker: lease.worker,
            grant_id: lease.grant_id,
            now_ms: SystemClock.now_ms(),
            horizon_ms,
        };
        match asked.store().extend(&extend).await {
            Ok(_) => extended = true,
            Err(error @ StoreError::LeaseLost { .. }) => lost = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    match lost {
        Some(error) if !extended => Err(error.into()),
        _ => Ok(()),
    }
}

async fn end(service: &Service, request: Request) -> Result<(), Failed> {
    let asked = MachineRequest::of(service, request).await?;
    let own = asked.own().await?;
    if own.is_empty() {
        let what = format!("the instance {:?} has no machine id in this namespace", shortened(&asked.instance));
        return Err(Failed::coded(Failed::NOT_FOUND, what));
    }
    let running: Vec<&Own> = own.iter().filter(|own| asked.runs(own)).collect();
    if let [own] = running.as_slice() {
        own.fix(asked.store()).await?;
    }
    Ok(())
}
