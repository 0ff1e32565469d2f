//! Leases in Redis: one hash per namespace, with the newest lease of each worker.
//!
//! A request looks at the hash by one script, decides by the rules of every lease store, and writes one worker by
//! another script, sent once. That one writes only if the server is the same incarnation, the namespace did not begin
//! anew, and the worker's field is, byte for byte, what was seen; otherwise the request looks again.

mod granted_time;
mod hash;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use unalike_storage::{
    ClockSteps, Clocks, GrantId, Layout, Lease, LeaseAcquire, LeaseExtend, LeaseLimits, LeaseRecord, LeaseStore,
    NamespaceBinding, Rfc3339, StoreError, StoreIdentity, UsedWorker, choose_worker, random_64, random_128,
};

use crate::counter::{literally, scan};
use crate::raising::{DURABLE, lock, nonce};
use crate::server::{Access, Script, Server, script};
use crate::{Backing, Durable, RedisOptions};
use granted_time::{GrantedTime, WantedTime, lead_ms};
use hash::{
    BegunBy, FIELDS, Hash, Kept, MS_MAX, NamespaceView, Valid, Worker, worker_field, write_binding, write_worker,
};

const LEASES: &str = include_str!("scripts/leases.lua");

static LOOK: Script = Script::new(|| script(&[include_str!("scripts/leases_look.lua")]));
static WRITE: Script = Script::new(|| script(&[LEASES, include_str!("scripts/leases_write.lua")]));
static ADOPT: Script = Script::new(|| script(&[include_str!("scripts/leases_adopt.lua")]));
static BEGIN: Script = Script::new(|| script(&[LEASES, include_str!("scripts/leases_begin.lua")]));
static INSTALL: Script = Script::new(|| script(&[LEASES, DURABLE, include_str!("scripts/leases_install.lua")]));

/// Leases in one Redis database; clones share its connection.
///
/// **Under a durable store** ([`Backing::Durable`]) leases lie within time that the durable store granted to this
/// incarnation of Redis. Another one gets time behind all that. So a Redis that was restarted, flushed, restored or
/// failed over, or two that run at once, cost a wait and never an overlap, whatever any clock says. The wait is as long
/// as the time reached ahead: the longest horizon that somebody asked for lately, and half of it more (1 s at least,
/// 1 min at most); 90 s for holders who ask for 60 s. A namespace needs no command. While the durable store is down,
/// leases go on for the same while.
///
/// **Alone** ([`Backing::RedisAlone`]) all leases are void when Redis is another incarnation, and when the hash is
/// gone: by a restart whatever was persisted, a fail-over, `FLUSHALL`, an eviction (`maxmemory-policy` takes the hash
/// as a whole). Then nothing is granted or extended before all that may have been granted has ended: for
/// [`ALONE_HORIZON_MAX_MS`](Self::ALONE_HORIZON_MAX_MS), since what was bound shorter may have been bound longer
/// before, and for `max_skew_ms` of the [limits](RedisOptions::limits), since the clock that those leases were granted
/// by may have been ahead of this one. Not so when the server's replication id changed and nothing was lost: when its
/// first replica came, or the last one had been gone for `repl-backlog-ttl`. (A server that was a replica meanwhile is
/// told from that by what it received, unless all traces were removed: `repl-backlog-ttl` below 10 minutes, and
/// `CONFIG RESETSTAT`.) So does the first use of a namespace, unless it was
/// [initialised](Self::initialise) by command. It rests on two things that nobody checks: that the clocks of two
/// servers that follow each other are within `max_skew_ms`, and that the old one is not used any more when the new one
/// is. Only a durable store carries the unconditional promise. How Redis persists does not matter, for nothing is taken
/// over.
///
/// Whatever stands behind Redis, a namespace whose hash was lost has forgotten its layout too, and is bound again by
/// its next use.
///
/// ```no_run
/// use std::sync::Arc;
/// use unalike_redis::{RedisLeases, RedisOptions, Backing};
/// use unalike_storage::{SegmentStore, StoreError};
///
/// async fn leases(durable: Arc<dyn SegmentStore>) -> Result<RedisLeases, StoreError> {
///     let options = RedisOptions::from_url("redis://cache.example/0")?;
///     RedisLeases::connect(options, Backing::Durable(durable)).await
/// }
/// ```
#[derive(Clone)]
pub struct RedisLeases(Arc<LeaseServer>);

struct LeaseServer {
    server: Server,
    prefix: String,
    limits: LeaseLimits,
    /// Where clocks were set, as far as this process has seen: those of a Cluster's nodes for each namespace, which
    /// moves from one to another; otherwise one, without a name.
    steps: Mutex<HashMap<String, Arc<ClockSteps>>>,
    /// None where Redis stands alone.
    time: Option<Arc<GrantedTime>>,
    durable: Option<Durable>,
    /// How long a request waits for time, and how long it tries in all.
    raise_timeout: Duration,
    patience: Duration,
}

/// A namespace, and where it is.
#[derive(Clone, Debug)]
struct Namespace {
    name: String,
    key: String,
    /// On which server, for messages.
    at: String,
}

impl fmt::Debug for RedisLeases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLeases").field("server", &self.0.server.address()).finish_non_exhaustive()
    }
}

/// The tries of one request.
struct Tries {
    begun: Instant,
    patience: Duration,
    /// The holder's clock when it asked, in Unix milliseconds.
    holder_ms: u64,
    count: u64,
}

impl Tries {
    /// The first tries, which follow each other at once. Each one after them waits a ms longer than the one before.
    const AT_ONCE: u64 = 4;
    /// The longest wait before a try, in milliseconds.
    const PAUSE_MAX_MS: u64 = 20;

    /// The holder's clock, which goes on while the request is tried again.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when it was tried for too long.
    async fn next(&mut self, namespace: &Namespace) -> Result<u64, StoreError> {
        self.count += 1;
        if self.count == 1 {
            return Ok(self.holder_ms);
        }
        let pause_ms = self.count.saturating_sub(Self::AT_ONCE).min(Self::PAUSE_MAX_MS);
        if pause_ms > 0 {
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
        let waited = self.begun.elapsed();
        if waited >= self.patience {
            let what = format!("the leases of {:?} on {} change all the time: try again", namespace.name, namespace.at);
            return Err(StoreError::unavailable(what));
        }
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        Ok(self.holder_ms.saturating_add(waited_ms))
    }
}

impl Namespace {
    /// The error of one that was used with a durable store and is to be used without one, or the other way round.
    fn kept_otherwise(&self) -> StoreError {
        StoreError::refused(format!(
            "the leases of {:?}, the key {} on {}, are kept the other way: with a durable store and not without one, or the \
             other way round. Open them as they were; or end all leases and wait until the last has ended and another minute, \
             delete the key, and begin anew",
            self.name, self.key, self.at
        ))
    }
}

/// Looks at a namespace and these workers of it.
async fn look(server: &Server, namespace: &Namespace, workers: &[u32]) -> Result<NamespaceView, StoreError> {
    let workers: Vec<String> = workers.iter().map(|&worker| worker_field(worker)).collect();
    let fields: Vec<&str> = FIELDS.into_iter().chain(workers.iter().map(String::as_str)).collect();
    look_at(server, namespace, &fields).await
}

/// Looks at a namespace and all workers of it.
async fn look_at_all(server: &Server, namespace: &Namespace) -> Result<NamespaceView, StoreError> {
    look_at(server, namespace, &[]).await
}

async fn look_at(server: &Server, namespace: &Namespace, fields: &[&str]) -> Result<NamespaceView, StoreError> {
    let doing = format!("looking at the leases of {:?}", namespace.name);
    NamespaceView::read(server.script(&doing, Access::Reads, &LOOK, &namespace.key, fields).await?)
}

impl RedisLeases {
    /// The longest horizon without a durable store, in milliseconds: 10 minutes. A longer one, of the limits or a
    /// request, is cut to it.
    ///
    /// When the hash of a namespace is gone, nobody knows what horizon it was bound to, so that all that any program
    /// may ever have granted has to be waited for. The longer this is, the longer the holders of leases get over a
    /// loss, and the longer is the wait for those who have none: holders who ask for all of it lose little more than
    /// `max_skew_ms` and a third of it.
    pub const ALONE_HORIZON_MAX_MS: u64 = 10 * 60 * 1_000;

    /// Connects and checks the server.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when the server does not answer; [`StoreError::Refused`] when it denies access, when
    /// it is too old or of another kind than the URL says, and for limits that are out of range. Each says what to do.
    pub async fn connect(options: RedisOptions, watermark: Backing) -> Result<Self, StoreError> {
        options.validate()?;
        options.check_backing(&watermark)?;
        let mut limits = options.limits;
        limits.validate()?;
        // What is in doubt after a restart is void, so nothing has to be on a disk.
        let server = Server::connect(&options, false).await?;
        let durable = Durable::new(&watermark, &options, "leases");
        let time = match watermark {
            Backing::Durable(durable) => Some(Arc::new(GrantedTime::open(&server, durable, &options).await?)),
            Backing::RedisAlone => {
                limits.max_horizon_ms = limits.max_horizon_ms.min(Self::ALONE_HORIZON_MAX_MS);
                None
            }
        };
        let raise_timeout = options.raise_timeout;
        let patience = raise_timeout.saturating_add(options.request_timeout);
        let steps = Mutex::default();
        let prefix = options.prefix;
        let server = LeaseServer { server, prefix, limits, steps, time, durable, raise_timeout, patience };
        Ok(Self(Arc::new(server)))
    }

    /// Says that no lease of this namespace reaches beyond now, so that it needs no quarantine: for Redis alone, a
    /// command of its own, so that a Redis that lost its data is not taken for a new one. Answers whether the namespace
    /// was new: where leases were granted as far as anybody can see, nothing changes.
    ///
    /// # Errors
    /// As [`RedisLeases::connect`]; [`StoreError::LayoutMismatch`]; [`StoreError::Refused`] where the namespace is kept
    /// with a durable store.
    ///
    /// ```no_run
    /// # use unalike_redis::{RedisLeases, RedisOptions};
    /// # use unalike_storage::{Layout, StoreError};
    /// # async fn command() -> Result<(), StoreError> {
    /// let options = RedisOptions::from_url("redis://cache.example/0")?;
    /// let was_new = RedisLeases::initialise(&options, "default", Layout::TWITTER).await?;
    /// # Ok(()) }
    /// ```
    pub async fn initialise(options: &RedisOptions, namespace: &str, layout: Layout) -> Result<bool, StoreError> {
        let leases = Self::connect(options.clone(), Backing::RedisAlone).await?;
        let initialised = leases.0.initialise(namespace, layout).await;
        leases.close().await;
        initialised
    }

    /// Ends all leases that no durable store stands behind: their namespaces begin anew when all that may ever have
    /// been granted have ended. Answers from when on workers are leased in each of them; one that the data lack begins
    /// with its first use, and waits as long from there on.
    pub(crate) async fn begin_all_anew(options: &RedisOptions) -> Result<u64, StoreError> {
        let leases = Self::connect(options.clone(), Backing::RedisAlone).await?;
        let begun = match leases.namespaces().await {
            Ok(names) => leases.0.begin_all_anew(&names).await,
            Err(error) => Err(error),
        };
        leases.close().await;
        begun
    }
}

impl LeaseServer {
    fn namespace(&self, name: &str) -> Namespace {
        // In braces, so that all that may ever belong to a namespace lies on one node.
        let key = format!("{}:leases:{{{name}}}", self.prefix);
        Namespace { name: name.to_owned(), key, at: self.server.address().to_owned() }
    }

    fn steps(&self, namespace: &Namespace) -> Arc<ClockSteps> {
        let name = if self.server.is_cluster() { namespace.name.as_str() } else { "" };
        Arc::clone(lock(&self.steps).entry(name.to_owned()).or_default())
    }

    /// Looks at a namespace and these workers of it, or all. Where no durable store stands behind it, a change of the
    /// server's replication id by which nothing was lost is no other incarnation.
    async fn look(&self, namespace: &Namespace, workers: Option<&[u32]>) -> Result<NamespaceView, StoreError> {
        let look = async || match workers {
            Some(workers) => look(&self.server, namespace, workers).await,
            None => look_at_all(&self.server, namespace).await,
        };
        let view = look().await?;
        let Some(hash) = view.hash.as_ref().filter(|hash| self.time.is_none() && hash.is_of_same_process(&view.here))
        else {
            return Ok(view);
        };
        let doing = format!("looking whether leases of {:?} were lost", namespace.name);
        let arguments = [hash.generation.as_str(), hash.incarnation(), &view.here];
        let mut reply = self.server.script(&doing, Access::Reads, &ADOPT, &namespace.key, &arguments).await?;
        if reply.text()? != "adopted" {
            return Ok(view);
        }
        let name = namespace.name.as_str();
        tracing::info!(namespace = name, "the server's replication id changed, and nothing was lost: all leases stand");
        look().await
    }

    fn tries(&self, holder_ms: u64) -> Tries {
        Tries { begun: Instant::now(), patience: self.patience, holder_ms, count: 0 }
    }

    /// Checks that a namespace is kept as this client keeps them.
    fn check_kept(&self, namespace: &Namespace, view: &NamespaceView) -> Result<(), StoreError> {
        let Some(hash) = &view.hash else { return Ok(()) };
        match hash.kept {
            Kept::UnderBound { .. } if self.time.is_some() => Ok(()),
            Kept::ByQuarantine { .. } if self.time.is_none() => {
                let horizon_ms = hash.binding.map_or(0, |binding| binding.max_horizon_ms);
                let max_ms = RedisLeases::ALONE_HORIZON_MAX_MS;
                if horizon_ms <= max_ms {
                    return Ok(());
                }
                let what = format!("its horizon is {horizon_ms} ms, longer than {max_ms}");
                Err(self.server.damaged(&format!("in the key {}, {what}", namespace.key)))
            }
            _ => Err(namespace.kept_otherwise()),
        }
    }

    /// What a namespace is bound to that begins anew: its old layout and horizon, where they are known.
    fn begins_with(
        &self,
        namespace: &Namespace,
        view: &NamespaceView,
        layout: Layout,
    ) -> Result<NamespaceBinding, StoreError> {
        let known = view.hash.as_ref().and_then(|hash| hash.binding);
        let binding = known.map_or_else(|| NamespaceBinding::new(layout, self.limits), Ok)?;
        binding.check_layout(&namespace.name, layout)?;
        Ok(binding)
    }

    /// Begins a namespace anew that no durable store stands behind; whether it is so now.
    async fn begin(
        &self,
        namespace: &Namespace,
        view: &NamespaceView,
        binding: NamespaceBinding,
        begun_by: BegunBy,
    ) -> Result<bool, StoreError> {
        if binding.floor_ms > MS_MAX || binding.layout.epoch_ms() > MS_MAX {
            return Err(StoreError::refused(format!(
                "the leases of {:?} could not begin before {}, and times are below {}",
                namespace.name,
                Rfc3339(binding.floor_ms.max(binding.layout.epoch_ms())),
                Rfc3339(MS_MAX)
            )));
        }
        let seen = view.hash.as_ref().map_or("", |hash| hash.generation.as_str());
        let (new, binding_text) = (nonce()?, write_binding(&binding));
        let arguments = [seen, &view.here, &new, &binding_text, begun_by.name()];
        let doing = format!("beginning the leases of {:?} anew", namespace.name);
        // What was begun and not heard of is found by the next look.
        let mut reply = self.server.script(&doing, Access::Reads, &BEGIN, &namespace.key, &arguments).await?;
        let is_begun = reply.text()? == "begun";
        if is_begun {
            let (name, until_ms) = (namespace.name.as_str(), binding.floor_ms);
            tracing::warn!(namespace = name, until_ms, by = begun_by.name(), "leases begin anew");
        }
        Ok(is_begun)
    }

    async fn initialise(&self, name: &str, layout: Layout) -> Result<bool, StoreError> {
        let (holder, horizon_ms) = (String::new(), layout.tick_ms().into());
        let namespace = name.to_owned();
        LeaseAcquire { namespace, layout, holder, preferred_worker: None, now_ms: 0, horizon_ms }.validate()?;
        let namespace = self.namespace(name);
        let mut tries = self.tries(0);
        loop {
            tries.next(&namespace).await?;
            let view = self.look(&namespace, None).await?;
            self.check_kept(&namespace, &view)?;
            let binding = self.begins_with(&namespace, &view, layout)?;
            let is_new = view.hash.as_ref().is_none_or(|hash| {
                hash.kept == Kept::ByQuarantine { begun_by: BegunBy::Use } && hash.workers.is_empty()
            });
            if !is_new {
                return Ok(false);
            }
            // All leases of before have ended by now, and on the grid of ticks, whatever the clock of whoever asks next
            // shows.
            let floor_ms = binding.grid_down(view.now_ms);
            let binding = NamespaceBinding { floor_ms, ..binding };
            if self.begin(&namespace, &view, binding, BegunBy::Command).await? {
                return Ok(true);
            }
        }
    }

    async fn begin_all_anew(&self, names: &[String]) -> Result<u64, StoreError> {
        let mut from_ms = self.quarantined_until_ms(&look(&self.server, &self.namespace("default"), &[]).await?);
        for name in names {
            let namespace = self.namespace(name);
            let mut tries = self.tries(0);
            loop {
                tries.next(&namespace).await?;
                let view = look_at_all(&self.server, &namespace).await?;
                let kept_here = view.hash.as_ref().filter(|hash| matches!(hash.kept, Kept::ByQuarantine { .. }));
                let Some(binding) = kept_here.and_then(|hash| hash.binding) else { break };
                if let Some(floor_ms) = self.begin_quarantine(&namespace, &view, binding).await? {
                    from_ms = from_ms.max(floor_ms);
                    break;
                }
            }
        }
        Ok(from_ms)
    }

    /// When all leases that this server, or one before it, may have granted have ended.
    fn quarantined_until_ms(&self, view: &NamespaceView) -> u64 {
        // Not by the horizon of the hash: it may be an old one, and the namespace have been lost and bound to a longer
        // one since.
        let longest_ms = RedisLeases::ALONE_HORIZON_MAX_MS.saturating_add(self.limits.max_skew_ms);
        view.now_ms.saturating_add(longest_ms)
    }

    /// Puts a namespace into quarantine, whose leases are another server's or are not to be used any more; until when,
    /// or none when somebody else changed it.
    async fn begin_quarantine(
        &self,
        namespace: &Namespace,
        view: &NamespaceView,
        binding: NamespaceBinding,
    ) -> Result<Option<u64>, StoreError> {
        let known_ms = view.hash.as_ref().map_or(0, Hash::greatest_end_ms);
        // A floor within a tick would be refused to those who ask for no more than that tick.
        let floor_ms = binding.layout.round_up_ms(self.quarantined_until_ms(view).max(known_ms));
        let begun_by = if view.hash.is_some() { BegunBy::Loss } else { BegunBy::Use };
        if let Some(cause) = view.hash.as_ref().and_then(|hash| hash.cause(&view.here)) {
            tracing::warn!(namespace = namespace.name, cause, "the leases are void");
        }
        let is_begun = self.begin(namespace, view, NamespaceBinding { floor_ms, ..binding }, begun_by).await?;
        Ok(is_begun.then_some(floor_ms))
    }

    /// Writes the newest lease of a worker in the place of what was seen; whether that was still so. Time is granted up
    /// to `granted_until_ms`, 0 where none is.
    async fn write(
        &self,
        namespace: &Namespace,
        valid: Valid<'_>,
        before: Option<&Worker>,
        record: &LeaseRecord,
        granted_until_ms: u64,
    ) -> Result<bool, StoreError> {
        let Lease { worker, not_before_ms, valid_until_ms, .. } = record.lease;
        if not_before_ms.max(valid_until_ms).max(record.acquired_ms) > MS_MAX {
            return Err(StoreError::refused(format!(
                "the lease {:?} is of a time beyond {}",
                record.lease,
                Rfc3339(MS_MAX)
            )));
        }
        let (field, text) = (worker_field(worker), write_worker(record));
        let seen = before.map_or("", |before| before.text.as_str());
        let (granted_until, horizon) = (granted_until_ms.to_string(), valid.binding.max_horizon_ms.to_string());
        let hash = valid.hash;
        let arguments = [&hash.generation, hash.incarnation(), &field, seen, &text, &granted_until, &horizon]
            .map(|text: &str| text);
        let doing = format!("writing the lease of worker {worker} of {:?}", namespace.name);
        let mut reply = self.server.script(&doing, Access::Writes, &WRITE, &namespace.key, &arguments).await?;
        match reply.text()?.as_str() {
            "written" => Ok(true),
            "changed" => Ok(false),
            other => Err(reply.damaged(&format!("a script answered {other:?}"))),
        }
    }

    /// How far ahead of the clock a lease may reach: `horizon_ms`, and no further than the bound; 0 behind that.
    fn reach_ms(&self, valid: Valid<'_>, now_ms: u64, horizon_ms: u64) -> u64 {
        let horizon_ms = horizon_ms.min(valid.binding.max_horizon_ms);
        match valid.hash.kept {
            Kept::UnderBound { bound_ms } => horizon_ms.min(bound_ms.saturating_sub(now_ms)),
            Kept::ByQuarantine { .. } => horizon_ms,
        }
    }

    async fn acquire(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError> {
        acquire.validate()?;
        let namespace = self.namespace(&acquire.namespace);
        let mut tries = self.tries(acquire.now_ms);
        let deadline = tries.begun + self.raise_timeout;
        let mut has_asked = false;
        loop {
            let holder_ms = tries.next(&namespace).await?;
            let looked = Instant::now();
            let view = self.look(&namespace, None).await?;
            self.steps(&namespace).read(looked.into_std(), view.now_ms);
            let clocks = Clocks { holder_ms, store_ms: view.now_ms };
            self.limits.check_clocks(clocks)?;
            self.check_kept(&namespace, &view)?;
            let valid = view.valid();
            let binding = match valid {
                Some(valid) => valid.binding,
                None => self.begins_with(&namespace, &view, acquire.layout)?,
            };
            binding.check_layout(&namespace.name, acquire.layout)?;
            // A request that is refused binds nothing.
            NamespaceBinding { floor_ms: 0, ..binding }.grant(0, clocks, acquire.horizon_ms)?;
            let Some(time) = &self.time else {
                let Some(valid) = valid else {
                    self.begin_quarantine(&namespace, &view, binding).await?;
                    continue;
                };
                if let Some(lease) = self.acquire_once(&namespace, &view, valid, acquire, clocks).await? {
                    return Ok(lease);
                }
                continue;
            };

            let horizon_ms = acquire.horizon_ms.min(binding.max_horizon_ms);
            let least_ms = view.now_ms.saturating_add(horizon_ms);
            let until_ms = least_ms.saturating_add(lead_ms(horizon_ms));
            let reach_ms = valid.map_or(0, |valid| self.reach_ms(valid, view.now_ms, horizon_ms));
            valid.map_or(Ok(()), |valid| valid.binding.check_quarantine(&namespace.name, view.now_ms))?;
            // Behind the bound no lease begins or ends, whatever the holder's clock says.
            let usable = valid.filter(|valid| reach_ms > 0 && valid.binding.grant(0, clocks, reach_ms).is_ok());
            let Some(valid) = usable else {
                // Somewhat before the earlier clock, so that a holder whose clock is behind need not wait.
                let behind_ms = self.limits.max_skew_ms.saturating_add(binding.layout.tick_ms().into());
                let floor_ms = view.now_ms.saturating_sub(behind_ms);
                let anew = Some(NamespaceBinding { floor_ms, ..binding });
                time.wait(&namespace, WantedTime { least_ms, until_ms, anew }, deadline).await?;
                continue;
            };
            if reach_ms < horizon_ms && !has_asked {
                let asked = time.wait(&namespace, WantedTime { least_ms, until_ms, anew: None }, deadline).await;
                has_asked = asked.unwrap_or_else(|error| {
                    shorter(&namespace, &error);
                    true
                });
                continue;
            }
            if let Some(lease) = self.acquire_once(&namespace, &view, valid, acquire, clocks).await? {
                self.raise_soon(time, &namespace, valid, least_ms, horizon_ms);
                return Ok(lease);
            }
        }
    }

    /// None when another client was faster.
    async fn acquire_once(
        &self,
        namespace: &Namespace,
        view: &NamespaceView,
        valid: Valid<'_>,
        acquire: &LeaseAcquire,
        clocks: Clocks,
    ) -> Result<Option<Lease>, StoreError> {
        let Valid { hash, binding } = valid;
        binding.check_quarantine(&namespace.name, view.now_ms)?;
        let used = hash.workers.iter().map(|(&worker, Worker { record, .. })| {
            (UsedWorker { worker, end_ms: record.lease.valid_until_ms }, record.holder.as_str())
        });
        let draw = random_64()?;
        let expiry = self.steps(namespace).expiry(view.now_ms, binding.max_horizon_ms);
        let chosen = choose_worker(acquire, expiry, draw, used)?;
        let reach_ms = self.reach_ms(valid, view.now_ms, acquire.horizon_ms);
        let interval = binding.grant(chosen.end_ms, clocks, reach_ms)?;
        let lease = Lease {
            worker: chosen.worker,
            grant_id: GrantId(random_128()?),
            not_before_ms: interval.start,
            valid_until_ms: interval.end,
        };
        let record = LeaseRecord { lease, holder: acquire.holder.clone(), acquired_ms: view.now_ms, is_final: false };
        let before = hash.workers.get(&chosen.worker);
        let is_written = self.write(namespace, valid, before, &record, interval.end).await?;
        Ok(is_written.then_some(lease))
    }

    /// Raises the bound before it is too short for the next request of its kind.
    fn raise_soon(
        &self,
        time: &Arc<GrantedTime>,
        namespace: &Namespace,
        valid: Valid<'_>,
        needed_ms: u64,
        horizon_ms: u64,
    ) {
        let Kept::UnderBound { bound_ms } = valid.hash.kept else { return };
        let lead_ms = lead_ms(horizon_ms);
        let least_ms = needed_ms.saturating_add(lead_ms / 2);
        if bound_ms < least_ms {
            let until_ms = needed_ms.saturating_add(lead_ms);
            time.soon(namespace, WantedTime { least_ms, until_ms, anew: None });
        }
    }

    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        extend.validate()?;
        let namespace = self.namespace(&extend.namespace);
        let lost = || StoreError::LeaseLost { namespace: namespace.name.clone(), worker: extend.worker };
        let mut tries = self.tries(extend.now_ms);
        let deadline = tries.begun + self.raise_timeout;
        let mut asked = None;
        loop {
            let holder_ms = tries.next(&namespace).await?;
            let looked = Instant::now();
            let view = self.look(&namespace, Some(&[extend.worker])).await?;
            self.steps(&namespace).read(looked.into_std(), view.now_ms);
            self.limits.check_clocks(Clocks { holder_ms, store_ms: view.now_ms })?;
            self.check_kept(&namespace, &view)?;
            let valid = view.valid().ok_or_else(lost)?;
            valid.binding.check_layout(&namespace.name, extend.layout)?;
            let worker = valid.hash.running(extend.worker, extend.grant_id).ok_or_else(lost)?;

            let horizon_ms = extend.horizon_ms.min(valid.binding.max_horizon_ms);
            let least_ms = view.now_ms.saturating_add(horizon_ms);
            let reach_ms = self.reach_ms(valid, view.now_ms, horizon_ms);
            if let Some(time) = self.time.as_ref().filter(|_| reach_ms < horizon_ms && asked.is_none()) {
                let until_ms = least_ms.saturating_add(lead_ms(horizon_ms));
                let wanted = WantedTime { least_ms, until_ms, anew: None };
                asked = time.wait(&namespace, wanted, deadline).await.map(|is_done| is_done.then_some(())).transpose();
                continue;
            }
            let mut record = worker.record.clone();
            let before_ms = record.lease.valid_until_ms;
            if reach_ms > 0 {
                record.lease.valid_until_ms = valid.binding.extended_end_ms(before_ms, view.now_ms, reach_ms);
            }
            if record.lease.valid_until_ms == before_ms {
                let would_ms = valid.binding.extended_end_ms(before_ms, view.now_ms, horizon_ms);
                if would_ms == before_ms {
                    return Ok(record.lease);
                }
                return Err(match asked {
                    Some(Err(error)) => error,
                    // Whatever the durable store granted behind it is not here: the holder gets a lease anew.
                    _ if before_ms <= view.now_ms => lost(),
                    _ => at_bound(&namespace, before_ms),
                });
            }
            let granted_until_ms = record.lease.valid_until_ms;
            if self.write(&namespace, valid, Some(worker), &record, granted_until_ms).await? {
                if let Some(Err(error)) = &asked {
                    shorter(&namespace, error);
                }
                if let Some(time) = &self.time {
                    self.raise_soon(time, &namespace, valid, least_ms, horizon_ms);
                }
                return Ok(record.lease);
            }
        }
    }

    /// Changes a worker's newest lease so that it grants no more time than before, if this server granted it; the lease
    /// as it is then. None where `change` gives none, and where there is no such lease.
    async fn change(
        &self,
        name: &str,
        worker: u32,
        change: impl Fn(&Hash, &NamespaceBinding) -> Option<LeaseRecord>,
    ) -> Result<Option<LeaseRecord>, StoreError> {
        let namespace = self.namespace(name);
        let mut tries = self.tries(0);
        loop {
            tries.next(&namespace).await?;
            let view = self.look(&namespace, Some(&[worker])).await?;
            self.check_kept(&namespace, &view)?;
            let Some(valid) = view.valid() else { return Ok(None) };
            let Some(record) = change(valid.hash, &valid.binding) else { return Ok(None) };
            let before = valid.hash.workers.get(&worker);
            if self.write(&namespace, valid, before, &record, 0).await? {
                return Ok(Some(record));
            }
        }
    }
}

/// Notes that a lease is shorter than was asked for.
fn shorter(namespace: &Namespace, error: &StoreError) {
    let error: &dyn std::error::Error = error;
    tracing::warn!(namespace = namespace.name, error, "a lease ends where the time of Redis does");
}

/// The error of an extension beyond time that was granted and never installed.
fn at_bound(namespace: &Namespace, bound_ms: u64) -> StoreError {
    let what = format!(
        "the time that the durable store granted Redis for the leases of {:?} ends at {}, and behind it some was lost: \
         they begin anew then",
        namespace.name,
        Rfc3339(bound_ms)
    );
    StoreError::unavailable(what)
}

#[async_trait]
impl LeaseStore for RedisLeases {
    async fn acquire(&self, acquire: &LeaseAcquire) -> Result<Lease, StoreError> {
        self.0.acquire(acquire).await
    }

    async fn extend(&self, extend: &LeaseExtend) -> Result<Lease, StoreError> {
        self.0.extend(extend).await
    }

    async fn release(&self, namespace: &str, worker: u32, grant_id: GrantId, end_ms: u64) -> Result<bool, StoreError> {
        let released = self.0.change(namespace, worker, |hash, binding| {
            let record = hash.running(worker, grant_id)?.record.clone();
            let lease = Lease { valid_until_ms: binding.released_end_ms(&record.lease, end_ms)?, ..record.lease };
            Some(LeaseRecord { lease, is_final: true, ..record })
        });
        Ok(released.await?.is_some())
    }

    async fn forbid_extension(&self, namespace: &str, worker: u32) -> Result<Option<LeaseRecord>, StoreError> {
        let forbidden = self.0.change(namespace, worker, |hash, _| {
            let record = hash.workers.get(&worker)?.record.clone();
            Some(LeaseRecord { is_final: true, ..record })
        });
        if let Some(record) = forbidden.await? {
            return Ok(Some(record));
        }
        // One that another incarnation granted is never extended.
        Ok(self.leases(namespace).await?.into_iter().find(|record| record.lease.worker == worker))
    }

    async fn leases(&self, namespace: &str) -> Result<Vec<LeaseRecord>, StoreError> {
        let namespace = self.0.namespace(namespace);
        let view = self.0.look(&namespace, None).await?;
        self.0.check_kept(&namespace, &view)?;
        let is_void = view.valid().is_none();
        let workers = view.hash.map(|hash| hash.workers).unwrap_or_default().into_values();
        let as_it_stands = |Worker { record, .. }| LeaseRecord { is_final: record.is_final || is_void, ..record };
        Ok(workers.map(as_it_stands).collect())
    }

    async fn namespaces(&self) -> Result<Vec<String>, StoreError> {
        let (before, behind) = (format!("{}:leases:{{", self.0.prefix), "}");
        let pattern = format!("{}*{behind}", literally(&before));
        let start = |cursor| redis::cmd("SCAN").arg(cursor).arg("MATCH").arg(&pattern).to_owned();
        let name_of = |key: &[u8]| {
            let name = std::str::from_utf8(key).ok()?.strip_prefix(&before)?.strip_suffix(behind)?;
            Some(name.to_owned())
        };
        Ok(scan(&self.0.server, None, start, name_of, None, u64::MAX).await?.into_iter().collect())
    }

    async fn check_namespace(&self, namespace: &str, layout: Layout) -> Result<(), StoreError> {
        let namespace = self.0.namespace(namespace);
        let view = self.0.look(&namespace, Some(&[])).await?;
        self.0.check_kept(&namespace, &view)?;
        let binding = match view.valid() {
            Some(valid) => valid.binding,
            None => self.0.begins_with(&namespace, &view, layout)?,
        };
        binding.check_layout(&namespace.name, layout)
    }

    /// That of its part of what the durable store grants. Redis alone keeps no name: it may lose everything.
    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        match &self.0.durable {
            Some(durable) => durable.identity().await,
            None => Ok(None),
        }
    }

    /// That of one server, in a Cluster.
    async fn clock_ms(&self) -> Result<Option<u64>, StoreError> {
        let view = look(&self.0.server, &self.0.namespace("default"), &[]).await?;
        Ok(Some(view.now_ms))
    }

    async fn close(&self) {
        if let Some(time) = &self.0.time {
            time.close().await;
        }
        self.0.server.close().await;
    }
}
