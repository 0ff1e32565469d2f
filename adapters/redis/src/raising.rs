//! How a hash in Redis gets more from the durable store: by one client at a time, by one task of it, and not at once
//! again after a failure.
//!
//! All this only spares work and numbers. What keeps grants apart is how an interval is installed: under the generation
//! that was read before the durable store was asked, and at most once. Whatever comes of an installation but success,
//! the interval is burnt.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OnceCell, OwnedMutexGuard};
use tokio::time::{Instant, timeout, timeout_at};
pub(crate) use unalike_storage::lock;
use unalike_storage::{Segment, SegmentStore, StoreError, Stripe, hand_over, random_128};

use crate::RedisOptions;
use crate::counter::{literally, scan};
use crate::server::{Access, Script, Server, To, script};

/// What the scripts begin with that a durable store's grants depend on.
pub(crate) const DURABLE: &str = include_str!("scripts/durable.lua");

static RECOGNISE: Script = Script::new(|| script(&[DURABLE, include_str!("scripts/recognise.lua")]));
static REBIND: Script = Script::new(|| script(&[include_str!("scripts/rebind.lua")]));
static REBIND_ONE: Script = Script::new(|| script(&[include_str!("scripts/rebind_one.lua")]));
static CLAIM: Script = Script::new(|| script(&[DURABLE, include_str!("scripts/claim.lua")]));
static SETTLE: Script = Script::new(|| script(&[include_str!("scripts/settle.lua")]));

/// Who gets more for a hash is let alone for this long.
const CLAIM_MS: u64 = 3_000;

/// How often it is asked whether another client has got more.
pub(crate) const ASK_AGAIN: Duration = Duration::from_millis(10);

/// A durable store that has not answered after this long counts as one that failed. Most have shorter limits of their
/// own.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The durable store is left alone this long after a failure, and twice as long after each further one, up to the
/// second figure.
const BACKOFF_MS: (u64, u64) = (100, 5_000);

/// So many hashes are known before the first time that those that nobody waits for are forgotten.
const KNOWN_MIN: usize = 1_024;

/// A hash in Redis that gives out parts of what the durable store granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HashKey<'p> {
    /// Whose it is, as callers name it.
    pub(crate) tag: &'p str,
    /// The tag that the durable store must know, or create, before there is such a hash.
    pub(crate) owner: &'p str,
    pub(crate) key: &'p str,
}

/// What came of getting more.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Raise {
    /// There is more, or enough.
    Done,
    /// Somebody else is at it, for this long at most.
    Elsewhere(Duration),
}

/// The tasks of this client that want more for one hash.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// One at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// How often one got more.
    raised: AtomicU64,
}

impl Turns {
    /// How often there was more so far.
    pub(crate) fn raised(&self) -> u64 {
        self.raised.load(Ordering::Acquire)
    }

    /// Waits for its turn.
    pub(crate) async fn take(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.turn).lock_owned().await
    }
}

/// The turns for all hashes that this client uses, by their keys.
#[derive(Debug, Default)]
pub(crate) struct KnownTurns(Mutex<KnownHashes>);

#[derive(Debug, Default)]
struct KnownHashes {
    turns: HashMap<String, Arc<Turns>>,
    /// Those that nobody waits for were forgotten when there were so many.
    forgotten_at: usize,
}

impl KnownTurns {
    /// Those for this key.
    pub(crate) fn of(&self, key: &str) -> Arc<Turns> {
        let mut known = lock(&self.0);
        if let Some(turns) = known.turns.get(key) {
            return Arc::clone(turns);
        }
        if known.turns.len() >= KNOWN_MIN.max(2 * known.forgotten_at) {
            known.turns.retain(|_, turns| Arc::strong_count(turns) > 1);
            known.forgotten_at = known.turns.len();
        }
        Arc::clone(known.turns.entry(key.to_owned()).or_default())
    }
}

/// The kinds of hashes; each may have a durable store of its own. Their names are written in Redis: they stay.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Sequences,
    Clock,
    Leases,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Sequences, Self::Clock, Self::Leases];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sequences => "sequences",
            Self::Clock => "clock",
            Self::Leases => "leases",
        }
    }
}

/// The key that says which durable store grants the numbers: a hash with an identity for each kind. In a Cluster, where
/// a script sees one key, each hash says so of itself, in a field of the name of its kind; this one says it of all,
/// for whoever comes.
pub(crate) fn durable_key(prefix: &str) -> String {
    format!("{prefix}:durable")
}

/// Gets more for the hashes of one kind.
pub(crate) struct Raising {
    server: Server,
    durable: Arc<dyn SegmentStore>,
    kind: Kind,
    durable_key: String,
    /// The durable store's, once it was asked.
    identity: OnceCell<String>,
    /// What a new hash has beside its generation and its first claim.
    new: &'static [(&'static str, &'static str)],
    timeout: Duration,
    /// Names this client where it claims a hash.
    name: String,
    /// How the durable store did.
    health: Mutex<Health>,
}

#[derive(Default)]
struct Health {
    failures: u32,
    /// Until when the durable store is left alone.
    until: Option<Instant>,
    /// What it failed with last.
    error: Option<Arc<StoreError>>,
}

/// A word that nobody else has.
pub(crate) fn nonce() -> Result<String, StoreError> {
    Ok(format!("{:032x}", random_128()?))
}

impl Raising {
    /// # Errors
    /// [`StoreError::Unavailable`] when the system gives no random numbers.
    pub(crate) fn new(
        server: Server,
        durable: Arc<dyn SegmentStore>,
        options: &RedisOptions,
        kind: Kind,
        new: &'static [(&'static str, &'static str)],
    ) -> Result<Self, StoreError> {
        Ok(Self {
            server,
            durable,
            kind,
            durable_key: durable_key(&options.prefix),
            identity: OnceCell::new(),
            new,
            timeout: options.raise_timeout,
            name: nonce()?,
            health: Mutex::default(),
        })
    }

    /// Refuses a durable store that is not the one that Redis knows. A Redis that knows none knows this one from now
    /// on, unless it was left for another one. While the durable store is down nobody can tell, and numbers that Redis
    /// has are handed out: before it gets more it is asked again, in [`Raising::claimed`]; and a Redis that knows none
    /// knows the first one that grants something.
    ///
    /// # Errors
    /// [`StoreError::Refused`] for another durable store, for one that was left, and for one that has no identity; and
    /// what Redis fails with.
    pub(crate) async fn recognise(&self) -> Result<(), StoreError> {
        let looking = async {
            let recorded = self.durable.stripe().await?;
            Stripe::check_grant("the durable store", recorded.filter(Stripe::is_mark).as_ref(), None)?;
            self.identity().await
        };
        let identity = match timeout(self.timeout, looking).await {
            Ok(Ok(identity)) => identity,
            Ok(Err(error)) if !error.is_retryable() => return Err(error),
            Ok(Err(_)) | Err(_) => {
                tracing::debug!("the durable store behind Redis does not answer, and is recognised later");
                return Ok(());
            }
        };
        let doing = "recognising the durable store";
        let key = self.durable_key.as_str();
        let keys = (key, Some(key));
        let arguments = [self.kind.name(), identity];
        let mut reply = self.server.script_beside(doing, Access::Reads, &RECOGNISE, keys, &arguments).await?;
        if reply.text()? == "other" { Err(self.other_durable(key, &reply.text()?, identity)) } else { Ok(()) }
    }

    /// Has Redis know another durable store, for all kinds of hashes, after it was given what the one before granted.
    ///
    /// # Errors
    /// [`StoreError::Refused`] when Redis knows a third one; as [`hand_over`], and as Redis fails.
    pub(crate) async fn rebind(
        server: &Server,
        prefix: &str,
        before: &Arc<dyn SegmentStore>,
        durable: &Arc<dyn SegmentStore>,
    ) -> Result<(String, BTreeMap<String, String>), StoreError> {
        let (old, new) = (identity_of(&**before).await?, identity_of(&**durable).await?);
        let key = durable_key(prefix);
        let refused = |kind: &str, recorded: &str| {
            StoreError::refused(format!(
                "in {}, the key {key} has {recorded} for its {kind}, and the durable store that it is to be taken from is \
                 {old}: name the one that grants the numbers now",
                server.address()
            ))
        };
        let (doing, command) = ("reading which durable store is known", redis::cmd("HGETALL").arg(&key).to_owned());
        let known: BTreeMap<String, String> = server.command(doing, Access::Reads, To::Key(&key), &command).await?;
        for (kind, recorded) in known {
            if recorded != old && recorded != new {
                return Err(refused(&kind, &recorded));
            }
        }
        hand_over(before, durable).await?;
        let doing = "noting another durable store";
        if server.is_cluster() {
            // A hash that moves to another node meanwhile may be passed over: it is refused until this is repeated.
            for kind in Kind::ALL {
                for key in keys_of(server, prefix, kind).await? {
                    let arguments = [kind.name(), &old, &new];
                    let mut reply = server.script(doing, Access::Writes, &REBIND_ONE, &key, &arguments).await?;
                    if reply.text()? == "other" {
                        return Err(refused(&reply.text()?, &reply.text()?));
                    }
                }
            }
        }
        let mut reply = server.script(doing, Access::Writes, &REBIND, &key, &[&old, &new]).await?;
        if reply.text()? == "other" {
            return Err(refused(&reply.text()?, &reply.text()?));
        }
        Ok((new, reply.pairs()?))
    }

    /// Where the scripts on a hash find which durable store grants the numbers.
    fn durable_key<'k>(&'k self, key: &'k str) -> &'k str {
        if self.server.is_cluster() { key } else { &self.durable_key }
    }

    async fn identity(&self) -> Result<&str, StoreError> {
        self.identity.get_or_try_init(|| identity_of(&*self.durable)).await.map(String::as_str)
    }

    fn other_durable(&self, key: &str, recorded: &str, identity: &str) -> StoreError {
        let (at, kind) = (self.server.address(), self.kind.name());
        let store = self.durable.address().map_or_else(String::new, |address| format!(" ({address})"));
        StoreError::refused(format!(
            "the numbers in {at} are granted by another durable store: the key {key} has {recorded} for its {kind}, and the \
             durable store of this program{store} is {identity}. Name the other one, or use another prefix; if its tags are \
             to be moved to this one, run `unalike store rebind`"
        ))
    }

    /// Until when a request that begins now may wait.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Asks the durable store; what may work later becomes the ceiling's error.
    pub(crate) async fn ask<T>(
        &self,
        tag: &str,
        request: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let answer = timeout(ANSWER_MAX, request).await.unwrap_or_else(|_| {
            let what = format!("the durable store did not answer for {tag:?} in {} s", ANSWER_MAX.as_secs());
            Err(StoreError::outcome_unknown(what))
        });
        match answer {
            Err(error) if error.is_retryable() => Err(self.failed(tag, error)),
            answer => answer,
        }
    }

    /// The number from which on the durable store will grant under `tag`; 0 where it does not know the tag.
    ///
    /// Whoever raises a hash looks here first: a grant that is burnt moves the watermark, and the next look would find
    /// nothing wrong with a store that lost data.
    ///
    /// # Errors
    /// As [`Raising::ask`].
    pub(crate) async fn granted_until(&self, place: HashKey<'_>, tag: &str) -> Result<u64, StoreError> {
        let look = async {
            match self.durable.tag(tag).await {
                Ok(record) => Ok(record.watermark.saturating_add(1)),
                Err(StoreError::TagUnknown { .. }) => Ok(0),
                Err(error) => Err(error),
            }
        };
        self.ask(place.tag, look).await
    }

    /// What the durable store grants under `tag` for a hash: up to `count` numbers in a row, none below `at_least`.
    ///
    /// # Errors
    /// As [`Raising::ask`]; [`StoreError::Refused`] for a grant that is not so.
    pub(crate) async fn grant(
        &self,
        place: HashKey<'_>,
        tag: &str,
        count: u64,
        at_least: u64,
    ) -> Result<Segment, StoreError> {
        let granted = self.ask(place.tag, self.durable.allocate(tag, count, at_least)).await?;
        // One that answers and grants nothing has not recovered.
        *lock(&self.health) = Health::default();
        let is_usable = granted.validate().is_ok()
            && granted.stride == 1
            && granted.generation == 0
            && granted.count() <= count
            && granted.start >= at_least;
        if !is_usable {
            return Err(StoreError::refused(format!(
                "the durable store granted {granted:?} for {tag:?}, which Redis cannot hand out: numbers without gaps, in one \
                 generation, no more than {count} and none below {at_least}, were asked for"
            )));
        }
        Ok(granted)
    }

    /// Gives a hash what was granted for it, by a script that does so only for the generation and the incarnation that
    /// were read before the durable store was asked; it gets these two, the new generation, start and end of the
    /// grant, and `more`. It is sent once: whatever comes of it but success, the grant is burnt.
    ///
    /// # Errors
    /// Whatever is not worth a retry.
    pub(crate) async fn install(
        &self,
        place: HashKey<'_>,
        script: &Script,
        (generation, incarnation): (&str, &str),
        granted: &Segment,
        more: &[&str],
    ) -> Result<Raise, StoreError> {
        let (start, end) = (granted.start.to_string(), granted.end.to_string());
        let new_generation = nonce()?;
        let mut arguments = vec![generation, incarnation, &new_generation, &start, &end];
        arguments.extend(more);
        arguments.extend([self.kind.name(), self.identity().await?]);
        let HashKey { tag, key, .. } = place;
        let doing = format!("raising the ceiling of {tag:?}, the key {key}");
        let keys = (key, Some(self.durable_key(key)));
        let why = match self.server.script_beside(&doing, Access::Writes, script, keys, &arguments).await {
            Ok(mut reply) => {
                if reply.text()? == "installed" {
                    tracing::debug!(tag, start = granted.start, end = granted.end, "the ceiling was raised");
                    return Ok(Raise::Done);
                }
                reply.text()?
            }
            Err(error) if error.is_retryable() => error.to_string(),
            Err(error) => return Err(error),
        };
        tracing::info!(tag, start = granted.start, end = granted.end, why, "a grant of the durable store was burnt");
        Ok(Raise::Elsewhere(ASK_AGAIN))
    }

    /// Waits until there is more, at most until the deadline. `raised` is how often there was when the caller asked,
    /// `raise` gets more.
    pub(crate) async fn wait(
        &self,
        tag: &str,
        turns: &Turns,
        raised: u64,
        deadline: Instant,
        raise: impl Future<Output = Result<Raise, StoreError>> + Send + 'static,
    ) -> Result<(), StoreError> {
        let Ok(turn) = timeout_at(deadline, turns.take()).await else {
            return Err(reached(tag, ASK_AGAIN, None));
        };
        if turns.raised() != raised {
            return Ok(());
        }
        if let Some((left, error)) = self.backoff() {
            return Err(reached(tag, left, error));
        }
        // A task of its own: what was begun is finished although the caller may go away.
        let raising = tokio::spawn(async move {
            let _turn = turn;
            raise.await
        });
        let Ok(raise) = timeout_at(deadline, raising).await else {
            return Err(reached(tag, ASK_AGAIN, None));
        };
        let lost = |error| StoreError::unavailable(format!("the ceiling of {tag:?} was not raised")).with_source(error);
        match raise.map_err(lost)?? {
            Raise::Done => Ok(()),
            Raise::Elsewhere(left) if Instant::now() + ASK_AGAIN.min(left) >= deadline => Err(reached(tag, left, None)),
            Raise::Elsewhere(left) => {
                tokio::time::sleep(ASK_AGAIN.min(left)).await;
                Ok(())
            }
        }
    }

    /// Gets more in the background, if nobody here is at it: before anybody needs it, so a failure is nobody's.
    pub(crate) fn soon(
        &self,
        tag: &str,
        turns: &Turns,
        raise: impl Future<Output = Result<Raise, StoreError>> + Send + 'static,
    ) {
        if self.backoff().is_some() {
            return;
        }
        if let Ok(turn) = Arc::clone(&turns.turn).try_lock_owned() {
            let tag = tag.to_owned();
            tokio::spawn(async move {
                let _turn = turn;
                if let Err(error) = raise.await {
                    tracing::warn!(tag, error = &error as &dyn std::error::Error, "the ceiling was not raised");
                }
            });
        }
    }

    /// Gets more by `raise`, if no other client is at it.
    pub(crate) async fn claimed(
        &self,
        place: HashKey<'_>,
        turns: &Turns,
        raise: impl Future<Output = Result<Raise, StoreError>>,
    ) -> Result<Raise, StoreError> {
        if let Some(left) = self.claim(place).await? {
            return Ok(Raise::Elsewhere(left));
        }
        let raise = raise.await;
        match &raise {
            Ok(Raise::Done) => {
                turns.raised.fetch_add(1, Ordering::Release);
            }
            // Nobody needs to wait until the claim ends by itself. Where Redis is gone, so is this.
            _ => {
                // What cannot get more is left alone until it is looked after again.
                let is_final = raise.as_ref().is_err_and(|error| !error.is_retryable());
                let _ = self.settle(place, is_final.then_some(0)).await;
            }
        }
        raise
    }

    /// Gives the claim up, and notes when more is due.
    pub(crate) async fn settle(&self, place: HashKey<'_>, low: Option<u64>) -> Result<(), StoreError> {
        self.settled(place, &self.name, low).await
    }

    /// Notes when more is due, whoever has a claim.
    pub(crate) async fn note_low(&self, place: HashKey<'_>, low: u64) -> Result<(), StoreError> {
        self.settled(place, "", Some(low)).await
    }

    async fn settled(&self, place: HashKey<'_>, claim: &str, low: Option<u64>) -> Result<(), StoreError> {
        let low = low.map_or_else(String::new, |low| low.to_string());
        let doing = format!("looking after {:?}", place.tag);
        self.server.script(&doing, Access::Reads, &SETTLE, place.key, &[claim, &low]).await?;
        Ok(())
    }

    /// Claims a hash; answers how long another client has it, if one has. A hash that is missing is made, if the
    /// durable store knows its tag or creates it.
    async fn claim(&self, place: HashKey<'_>) -> Result<Option<Duration>, StoreError> {
        let claim_ms = CLAIM_MS.to_string();
        let doing = format!("claiming {:?}", place.tag);
        let identity = match self.identity.get() {
            // It says nothing of how the durable store does now.
            Some(identity) => identity.as_str(),
            None => self.ask(place.tag, self.identity()).await?,
        };
        let claim = async |generation: &str| {
            let mut arguments = vec![self.name.as_str(), &claim_ms, generation];
            arguments.extend(self.new.iter().flat_map(|&(field, value)| [field, value]));
            arguments.extend([self.kind.name(), identity]);
            let keys = (place.key, Some(self.durable_key(place.key)));
            self.server.script_beside(&doing, Access::Reads, &CLAIM, keys, &arguments).await
        };
        let mut reply = claim("").await?;
        let mut answer = reply.text()?;
        if answer == "missing" {
            self.ask(place.tag, self.durable.open_tag(place.owner)).await?;
            reply = claim(&nonce()?).await?;
            answer = reply.text()?;
        }
        match answer.as_str() {
            "yours" => Ok(None),
            "other" => Err(self.other_durable(self.durable_key(place.key), &reply.text()?, identity)),
            _ => Ok(Some(Duration::from_millis(reply.number()?))),
        }
    }

    /// How long the durable store is to be left alone, and why.
    fn backoff(&self) -> Option<(Duration, Option<Arc<StoreError>>)> {
        let health = lock(&self.health);
        let left = health.until?.saturating_duration_since(Instant::now());
        (!left.is_zero()).then(|| (left, health.error.clone()))
    }

    /// Notes that the durable store failed; the ceiling's error.
    fn failed(&self, tag: &str, error: StoreError) -> StoreError {
        let mut health = lock(&self.health);
        let (first_ms, most_ms) = BACKOFF_MS;
        let wait = Duration::from_millis(first_ms.saturating_mul(1 << health.failures.min(16)).min(most_ms));
        let error = Arc::new(error);
        *health = Health {
            failures: health.failures.saturating_add(1),
            until: Some(Instant::now() + wait),
            error: Some(Arc::clone(&error)),
        };
        reached(tag, wait, Some(error))
    }
}

/// The keys of all hashes of a kind.
async fn keys_of(server: &Server, prefix: &str, kind: Kind) -> Result<BTreeSet<String>, StoreError> {
    let before = match kind {
        Kind::Sequences => format!("{prefix}:{{"),
        Kind::Clock => format!("{prefix}:clock:{{"),
        Kind::Leases => format!("{prefix}:leases:{{"),
    };
    let pattern = format!("{}*", literally(&before));
    let start = |cursor| redis::cmd("SCAN").arg(cursor).arg("MATCH").arg(&pattern).to_owned();
    let name_of = |key: &[u8]| Some(std::str::from_utf8(key).ok()?.to_owned());
    scan(server, None, start, name_of, None, u64::MAX).await
}

async fn identity_of(durable: &dyn SegmentStore) -> Result<String, StoreError> {
    let identity = durable.identity().await?;
    identity.map(|identity| identity.to_string()).ok_or_else(|| {
        let store = durable.address().map_or_else(String::new, |address| format!(" {address}"));
        StoreError::refused(format!(
            "the durable store{store} has no identity, by which Redis would know it again: take another one, or give it one \
             (SegmentStore::identity)"
        ))
    })
}

fn reached(tag: &str, retry_after: Duration, source: Option<Arc<StoreError>>) -> StoreError {
    let retry_after_ms = u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX).max(1);
    let source = source.map(|source| Box::new(source) as Box<dyn std::error::Error + Send + Sync>);
    StoreError::CeilingReached { tag: tag.to_owned(), retry_after_ms, source }
}
