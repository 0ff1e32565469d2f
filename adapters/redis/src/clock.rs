//! Snowflakes by Redis' clock: `(ms - epoch) << 22 | shard << 10 | sequence`, with 12 bits of shard and 10 of sequence.
//!
//! The ids of one ms and shard are numbers in a row, so a request is one call of `clock_grant.lua`, which grants as
//! many of them as are left, 1,024 at most. The script knows the ms and the sequence alone; ids are made of them here,
//! and what does not fit its field is an error.
//!
//! **A lease on the shard.** Redis may only stamp ms that the durable store granted to it: numbers of a tag of its own,
//! the sub-key `redis-clock:SHARD` of the tag, each of which is one ms since the epoch. They reach
//! `horizon_ms` ahead of the clock, belong to one incarnation of Redis, and are renewed in the background while ids are
//! asked for and less than a third is left. Another incarnation gets ms of its own, which come after all that the old
//! one could have stamped: a lost Redis costs a wait of at most `horizon_ms`, and ids continue for as long without
//! the durable store.
//!
//! **The clock.** An id's ms is the greatest of the clock's, the last id's, and the start of what was granted, and it
//! is [`AHEAD_MAX_MS`] ahead of the clock at most. When a ms is spent, which takes more than 1,024,000 ids/s, when the
//! clock went back, and when the ms that were granted have not come yet, a request waits for the clock, or is told to
//! ([`StoreError::ClockBehind`]) if that is longer than it may wait. A clock that is far from this host's gets no
//! further ms: what it stamped ahead could not be taken back.
//!
//! **Tags.** A tag is there if the durable store has it. Its sub-keys `0` to `4095` are its shards, which need no
//! creation, and the tag itself is the shard of the options. Every tag is ordered: no host keeps ids whose time passes.
//! There is no start, no step, nothing is taken back, and a tag cannot be ended, for its ids go on with the time.
//! A watermark is the last id of the last ms that was granted to Redis. All programs must use a tag with one epoch;
//! with an earlier one its ids jump ahead, and with a later one they wait until they come to where they were.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use tokio::time::Instant;
use unalike_storage::{
    Clocks, FormatBinding, FormatOwner, FormatPart, KEPT_CLOCK, Layout, LayoutFields, LeaseLimits, Mode, Parts,
    RefillPolicy, Rfc3339, Segment, SegmentStore, StepPolicy, StoreError, TagOptions, TagRecord, TailRelease,
    split_tag, sub_tag, validate_allocate, validate_policies, validate_raise, validate_tag,
};

use crate::raising::{ASK_AGAIN, DURABLE, HashKey, Kind, KnownTurns, Raise, Raising, Turns, nonce};
use crate::server::{Access, Reply, Script, Server, script};
use crate::{Backing, Dialect, DialectStore, RedisOptions};

/// What those on the hash of a shard begin with.
const SHARD: &str = include_str!("scripts/clock.lua");

static GRANT: Script = Script::new(|| script(&[SHARD, include_str!("scripts/clock_grant.lua")]));
static LOOK: Script = Script::new(|| script(&[SHARD, include_str!("scripts/clock_look.lua")]));
static INSTALL: Script = Script::new(|| script(&[SHARD, DURABLE, include_str!("scripts/clock_install.lua")]));
static RAISE: Script = Script::new(|| script(&[SHARD, include_str!("scripts/clock_raise.lua")]));

/// What a new hash has beside its generation and its first claim.
const NEW: [(&str, &str); 5] = [("incarnation", ""), ("tick", "0"), ("sequence", "0"), ("end", "0"), ("low", "0")];

/// How far an id's time may be ahead of the clock: enough for bursts above 1,024 ids in a ms, and little where it is
/// read as a time.
const AHEAD_MAX_MS: u64 = 10;

/// Before the shard in the sub-key under which the durable store grants ms.
const LEASE: &str = KEPT_CLOCK;

pub(crate) async fn open(
    server: &Server,
    watermark: Backing,
    options: &RedisOptions,
) -> Result<Arc<dyn DialectStore>, StoreError> {
    let Dialect::Clock { shard, epoch_ms, horizon_ms } = options.dialect else {
        return Err(StoreError::refused(format!("{:?} are no snowflakes by Redis' clock", options.dialect)));
    };
    let Backing::Durable(durable) = watermark else {
        return Err(StoreError::refused(
            "dialect=clock needs a durable store beside Redis, for what is stamped must be known when Redis is lost"
                .to_owned(),
        ));
    };
    let fields = LayoutFields { epoch_ms, ..Layout::REDIS_SHARDED.fields() };
    let layout = Layout::new(fields)
        .map_err(|error| StoreError::refused(format!("the epoch is {epoch_ms} ms")).with_source(error))?;
    if layout.pack(Parts { ticks: 1, worker: shard.into(), sequence: 0 }).is_err() {
        return Err(StoreError::refused(format!("the shard is {shard}, it must be 0 to {}", layout.worker_max())));
    }
    if epoch_ms < Dialect::EPOCH_MS {
        tracing::warn!(
            epoch_ms,
            ended = ends(&layout),
            "the timestamps of ids by Redis' clock run out on that day; with a later epoch they last longer"
        );
    }
    let raising = Raising::new(server.clone(), Arc::clone(&durable), options, Kind::Clock, &NEW)?;
    raising.recognise().await?;
    let shared = ClockStore {
        raising,
        server: server.clone(),
        durable,
        prefix: options.prefix.clone(),
        layout,
        shard: shard.into(),
        horizon_ms,
        turns: KnownTurns::default(),
    };
    Ok(Arc::new(Clock(Arc::new(shared))))
}

/// When the last timestamp of a layout ends, for people.
fn ends(layout: &Layout) -> String {
    Rfc3339(layout.ends_ms()).to_string()
}

struct Clock(Arc<ClockStore>);

struct ClockStore {
    server: Server,
    durable: Arc<dyn SegmentStore>,
    raising: Raising,
    prefix: String,
    layout: Layout,
    /// Of a tag without a sub-key.
    shard: u32,
    horizon_ms: u64,
    /// For the shards that this client uses.
    turns: KnownTurns,
}

/// One shard of a tag.
#[derive(Clone, Debug)]
struct Shard {
    /// As callers name it.
    name: String,
    /// Without a sub-key.
    tag: String,
    number: u32,
    /// Its hash in Redis.
    key: String,
    /// Under which the durable store grants its ms.
    lease: String,
}

/// An id's tick and sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Position {
    tick: u64,
    sequence: u32,
}

/// What came of asking Redis for ids.
enum GrantAnswer {
    Granted {
        segment: Segment,
        is_low: bool,
    },
    /// The hash is missing, of another incarnation, or spent.
    Nothing,
}

/// What `clock_look.lua` sees.
struct ShardView {
    now_ms: u64,
    /// None where there is no hash.
    hash: Option<Hash>,
}

struct Hash {
    generation: String,
    incarnation: String,
    end: u64,
    /// Ticks that may be stamped from now on.
    left: u64,
}

/// Why more ms are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// A request found none, and takes no id below this.
    Nothing { at_least: Position },
    /// They will not last.
    Low,
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("server", &self.0.server.address()).field("layout", &self.0.layout).finish()
    }
}

/// What every tag has.
fn options() -> TagOptions {
    TagOptions { mode: Mode::Ordered, ..TagOptions::default() }
}

/// The ids of one tick from this position on.
///
/// # Errors
/// None where one of the parts does not fit its field.
fn segment(layout: &Layout, shard: u32, from: Position, count: u32) -> Option<Segment> {
    let id = |sequence| layout.pack(Parts { ticks: from.tick, worker: shard, sequence }).ok();
    let last = id(from.sequence.checked_add(count.checked_sub(1)?)?)?;
    // The greatest number is the version too: it grows with every grant.
    Some(Segment { start: id(from.sequence)?, end: last.checked_add(1)?, stride: 1, generation: 0, version: last })
}

/// Where the first id of a shard is that is no less than this.
fn position(layout: &Layout, shard: u32, id: u64) -> Position {
    let Ok(parts) = layout.unpack(id) else {
        // 0 is no id.
        return Position::default();
    };
    match parts.worker.cmp(&shard) {
        std::cmp::Ordering::Less => Position { tick: parts.ticks, sequence: 0 },
        std::cmp::Ordering::Equal => Position { tick: parts.ticks, sequence: parts.sequence },
        std::cmp::Ordering::Greater => Position { tick: parts.ticks + 1, sequence: 0 },
    }
}

#[expect(clippy::disallowed_methods, reason = "compared with Redis' clock, and never stamped")]
fn system_clock_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Shard {
    fn place(&self) -> HashKey<'_> {
        HashKey { tag: &self.name, owner: &self.tag, key: &self.key }
    }
}

impl ClockStore {
    fn shard(&self, name: &str) -> Result<Shard, StoreError> {
        validate_tag(name)?;
        let (tag, sub) = split_tag(name);
        let number = match sub {
            None => Some(self.shard),
            // Written in one way, so that each shard has one name.
            Some(sub) => sub.parse().ok().filter(|&number: &u32| number.to_string() == sub),
        };
        let Some(number) = number.filter(|&number| number <= self.layout.worker_max()) else {
            let reason = format!(
                "its sub-key is {:?}, and the ids of a tag have shards: it must be a number from 0 to {}",
                sub.unwrap_or_default(),
                self.layout.worker_max()
            );
            return Err(StoreError::TagInvalid { tag: tag.to_owned(), reason });
        };
        // In braces, so that all that may ever belong to a tag lies on one node.
        let key = format!("{}:clock:{{{tag}}}:{number}", self.prefix);
        let lease = sub_tag(tag, &format!("{LEASE}{number}"))?;
        Ok(Shard { name: name.to_owned(), tag: tag.to_owned(), number, key, lease })
    }

    async fn script(
        &self,
        doing: &str,
        access: Access,
        script: &Script,
        shard: &Shard,
        arguments: &[&str],
    ) -> Result<Reply, StoreError> {
        self.server.script(&format!("{doing} {:?}", shard.name), access, script, &shard.key, arguments).await
    }

    fn behind(&self, shard: &Shard, clock_ms: u64, next_tick: u64) -> StoreError {
        let next_ms = self.layout.tick_start_ms(next_tick);
        let retry_after_ms = next_ms.saturating_sub(clock_ms).saturating_sub(AHEAD_MAX_MS).max(1);
        StoreError::ClockBehind { tag: shard.name.clone(), clock_ms, next_ms, retry_after_ms }
    }

    fn ended(&self, shard: &Shard) -> StoreError {
        StoreError::TimestampsEnded { tag: shard.name.clone(), ended_ms: self.layout.ends_ms() }
    }

    /// One call.
    async fn grant(&self, shard: &Shard, count: u64, at_least: Position) -> Result<GrantAnswer, StoreError> {
        let arguments = [
            count.min(self.layout.ids_per_tick()),
            at_least.tick,
            at_least.sequence.into(),
            self.layout.epoch_ms(),
            AHEAD_MAX_MS,
        ]
        .map(|argument| argument.to_string());
        let arguments = arguments.each_ref().map(String::as_str);
        let mut reply = self.script("granting ids of", Access::Writes, &GRANT, shard, &arguments).await?;
        match reply.text()?.as_str() {
            "granted" => {}
            "ahead" => return Err(self.behind(shard, reply.number()?, reply.number()?)),
            _ => return Ok(GrantAnswer::Nothing),
        }
        let (tick, sequence, granted) = (reply.number()?, reply.number()?, reply.number()?);
        let is_low = reply.number()? < reply.number()?;
        if tick > self.layout.max_tick() {
            return Err(self.ended(shard));
        }
        let small = |number: u64| u32::try_from(number).ok();
        let segment = small(sequence)
            .zip(small(granted).filter(|_| granted <= count))
            .and_then(|(sequence, count)| segment(&self.layout, shard.number, Position { tick, sequence }, count));
        let Some(segment) = segment else {
            return Err(reply.damaged(&format!("{granted} ids from {sequence} on are not all of one ms")));
        };
        Ok(GrantAnswer::Granted { segment, is_low })
    }

    async fn look(&self, shard: &Shard, at_least: Position) -> Result<ShardView, StoreError> {
        let arguments = [at_least.tick, at_least.sequence.into(), self.layout.epoch_ms()];
        let arguments = arguments.map(|argument| argument.to_string());
        let arguments = arguments.each_ref().map(String::as_str);
        let mut reply = self.script("looking at", Access::Reads, &LOOK, shard, &arguments).await?;
        let is_here = reply.text()? == "here";
        let now_ms = reply.number()?;
        if !is_here {
            return Ok(ShardView { now_ms, hash: None });
        }
        let (generation, incarnation) = (reply.text()?, reply.text()?);
        let (end, left) = (reply.number()?, reply.number()?);
        Ok(ShardView { now_ms, hash: Some(Hash { generation, incarnation, end, left }) })
    }

    /// Gets more ms for a shard, if nobody else does and they are due.
    async fn raise(self: Arc<Self>, shard: Shard, turns: Arc<Turns>, reason: Reason) -> Result<Raise, StoreError> {
        self.raising.claimed(shard.place(), &turns, self.raise_claimed(&shard, reason)).await
    }

    async fn raise_claimed(&self, shard: &Shard, reason: Reason) -> Result<Raise, StoreError> {
        let (at_least, due_below) = match reason {
            Reason::Nothing { at_least } => (at_least, 1),
            Reason::Low => (Position::default(), self.low()),
        };
        let ShardView { now_ms, hash: Some(hash) } = self.look(shard, at_least).await? else {
            return Ok(Raise::Elsewhere(ASK_AGAIN));
        };
        if hash.left >= due_below {
            self.raising.settle(shard.place(), None).await?;
            return Ok(Raise::Done);
        }
        let tag = shard.name.as_str();
        let granted_until = self.raising.granted_until(shard.place(), &shard.lease).await?;
        if granted_until < hash.end {
            let time = |tick| Rfc3339(self.layout.tick_start_ms(tick));
            let behind = Parts { ticks: hash.end, worker: shard.number, sequence: 0 };
            return Err(StoreError::corrupt(format!(
                "the durable store has granted time for {tag:?} up to {}, and Redis had it up to {end} before: it lost data, or \
                 is another store; find out which. If it lost data, wait until {end} has passed, and raise this tag here, \
                 not in the durable store, to {}",
                time(granted_until),
                self.layout.pack(behind).unwrap_or(self.layout.id_max()),
                end = time(hash.end),
            )));
        }
        let now_tick = now_ms.saturating_sub(self.layout.epoch_ms());
        let start = granted_until.max(now_tick).max(1);
        if start > self.layout.max_tick() {
            return Err(self.ended(shard));
        }
        if reason == Reason::Low && start != hash.end {
            // Ms in between were burnt. What is left is used first.
            self.raising.settle(shard.place(), Some(0)).await?;
            return Ok(Raise::Done);
        }
        let end = now_tick.saturating_add(self.horizon_ms).min(self.layout.max_tick() + 1);
        if start >= end {
            return Err(self.behind(shard, now_ms, start));
        }
        let clocks = Clocks { holder_ms: system_clock_ms(), store_ms: now_ms };
        self.raising.ask(tag, async { LeaseLimits::default().check_clocks(clocks) }).await?;
        let granted = self.raising.grant(shard.place(), &shard.lease, end - start, start).await?;
        let read = (hash.generation.as_str(), hash.incarnation.as_str());
        self.raising.install(shard.place(), &INSTALL, read, &granted, &[&self.low().to_string()]).await
    }

    /// When fewer ms are left, more are due.
    fn low(&self) -> u64 {
        self.horizon_ms / 3
    }

    /// A tag as it is shown, for the record of its ms, if there is one.
    fn record(&self, name: String, number: u32, lease: Option<&TagRecord>) -> TagRecord {
        let granted = lease.filter(|lease| lease.watermark >= lease.options.start);
        let watermark = granted.map_or(0, |lease| {
            let ticks = lease.watermark.min(self.layout.max_tick());
            let last = Parts { ticks, worker: number, sequence: self.layout.sequence_max() };
            self.layout.pack(last).unwrap_or(self.layout.id_max())
        });
        TagRecord { tag: name, options: options(), watermark, version: lease.map_or(0, |lease| lease.version) }
    }

    /// A shard of a tag that exists.
    async fn shard_record(&self, shard: Shard) -> Result<TagRecord, StoreError> {
        match self.durable.tag(&shard.lease).await {
            Ok(lease) => Ok(self.record(shard.name, shard.number, Some(&lease))),
            Err(StoreError::TagUnknown { .. }) => Ok(self.record(shard.name, shard.number, None)),
            Err(error) => Err(error),
        }
    }

    async fn allocate_once(
        self: &Arc<Self>,
        shard: &Shard,
        turns: &Arc<Turns>,
        count: u64,
        at_least: Position,
        deadline: Instant,
    ) -> Result<Segment, StoreError> {
        loop {
            let raised = turns.raised();
            if let GrantAnswer::Granted { segment, is_low } = self.grant(shard, count, at_least).await? {
                if is_low {
                    let raise = Arc::clone(self).raise(shard.clone(), Arc::clone(turns), Reason::Low);
                    self.raising.soon(&shard.name, turns, raise);
                }
                return Ok(segment);
            }
            let raise = Arc::clone(self).raise(shard.clone(), Arc::clone(turns), Reason::Nothing { at_least });
            self.raising.wait(&shard.name, turns, raised, deadline, raise).await?;
        }
    }
}

#[async_trait]
impl SegmentStore for Clock {
    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        validate_allocate(tag, count, at_least)?;
        let shared = &self.0;
        let shard = shared.shard(tag)?;
        let at_least = position(&shared.layout, shard.number, at_least);
        if at_least.tick > shared.layout.max_tick() {
            return Err(shared.ended(&shard));
        }
        let turns = shared.turns.of(&shard.key);
        let deadline = shared.raising.deadline();
        loop {
            match shared.allocate_once(&shard, &turns, count, at_least, deadline).await {
                Err(StoreError::ClockBehind { retry_after_ms, .. })
                    if Instant::now() + Duration::from_millis(retry_after_ms) < deadline =>
                {
                    tokio::time::sleep(Duration::from_millis(retry_after_ms)).await;
                }
                done => return done,
            }
        }
    }

    async fn release(&self, tag: &str, _tail: TailRelease) -> Result<bool, StoreError> {
        // What is left of a ms is the next caller's, or passes.
        self.0.shard(tag).map(|_| false)
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        let shard = self.0.shard(tag)?;
        self.0.durable.open_tag(&shard.tag).await?;
        self.0.shard_record(shard).await
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        let shard = self.0.shard(tag)?;
        self.0.durable.tag(&shard.tag).await?;
        self.0.shard_record(shard).await
    }

    async fn create_tag(&self, tag: &str, wanted: &TagOptions) -> Result<TagRecord, StoreError> {
        wanted.validate(tag)?;
        let shard = self.0.shard(tag)?;
        if shard.tag != tag {
            return Err(StoreError::refused(format!("a shard needs no creation: create only the tag {:?}", shard.tag)));
        }
        if *wanted != options() {
            return Err(StoreError::refused(format!(
                "by Redis' clock every tag is ordered, and has no start, no step and no refill point: create {tag:?} in the \
                 mode ordered, and leave these out"
            )));
        }
        self.0.durable.create_tag(tag, wanted).await?;
        Ok(self.0.record(shard.name, shard.number, None))
    }

    async fn hides_formats(&self) -> Result<Option<String>, StoreError> {
        self.0.durable.hides_formats().await
    }

    fn keeps_formats(&self) -> bool {
        self.0.durable.keeps_formats()
    }

    async fn bind_format(
        &self,
        owner: FormatOwner<'_>,
        part: FormatPart,
        binding: FormatBinding,
    ) -> Result<Option<u64>, StoreError> {
        self.0.durable.bind_format(owner, part, binding).await
    }

    async fn change_tag(&self, tag: &str, step: StepPolicy, refill: RefillPolicy) -> Result<TagRecord, StoreError> {
        validate_policies(tag, step, refill)?;
        self.tag(tag).await?;
        Err(StoreError::refused(format!(
            "the tag {tag:?} is ordered: by Redis' clock it has no step and no refill point to change"
        )))
    }

    /// Up to `horizon_ms` ahead of the clock: ids rise by themselves, and what is further ahead would have to be waited
    /// for.
    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        validate_raise(tag, next)?;
        let shared = &self.0;
        let shard = shared.shard(tag)?;
        shared.durable.tag(&shard.tag).await?;
        let from = position(&shared.layout, shard.number, next);
        let tick = if from.sequence > 0 { from.tick + 1 } else { from.tick }.max(1);
        let now_ms = shared.look(&shard, Position::default()).await?.now_ms;
        let next_ms = shared.layout.tick_start_ms(tick);
        if next_ms > now_ms.saturating_add(shared.horizon_ms) {
            let reason = format!(
                "its next number was to be {next}, which is of {}, and Redis' clock is {}: its ids rise with the time",
                Rfc3339(next_ms),
                Rfc3339(now_ms)
            );
            return Err(StoreError::TagInvalid { tag: tag.to_owned(), reason });
        }
        shared.durable.open_tag(&shard.lease).await?;
        shared.durable.raise_tag(&shard.lease, tick).await?;
        let arguments = [&tick.to_string(), &nonce()?];
        shared.script("raising", Access::Writes, &RAISE, &shard, &arguments.map(String::as_str)).await?;
        shared.shard_record(shard).await
    }

    async fn retire_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.tag(tag).await?;
        Err(StoreError::refused(format!(
            "the tag {tag:?} cannot be ended: its ids are snowflakes, which rise with Redis' clock"
        )))
    }

    /// Tags, and those of their shards that have been used under a sub-key.
    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        let shared = &self.0;
        let mut after = after.map(|after| match split_tag(after) {
            (tag, Some(sub)) => sub_tag(tag, &format!("{LEASE}{sub}")).unwrap_or_else(|_| after.to_owned()),
            (tag, None) => tag.to_owned(),
        });
        let mut listed = Vec::new();
        loop {
            let records = shared.durable.tags(after.as_deref(), limit).await?;
            let is_last = records.is_empty() || u32::try_from(records.len()).unwrap_or(u32::MAX) < limit;
            after = records.last().map(|record| record.tag.clone());
            for record in records {
                // What is no shard of a tag cannot be used here: another sub-key, a name that is too long.
                let (tag, sub) = split_tag(&record.tag);
                if let Some(sub) = sub {
                    let Some(number) = sub.strip_prefix(LEASE) else { continue };
                    let Ok(shard) = sub_tag(tag, number).and_then(|name| shared.shard(&name)) else { continue };
                    listed.push(shared.record(shard.name, shard.number, Some(&record)));
                } else {
                    let Ok(shard) = shared.shard(tag) else { continue };
                    listed.push(shared.shard_record(shard).await?);
                }
                if listed.len() == usize::try_from(limit).unwrap_or(usize::MAX) {
                    return Ok(listed);
                }
            }
            if is_last {
                return Ok(listed);
            }
        }
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.0.server.prove_writable(&self.0.prefix).await
    }

    async fn close(&self) {
        self.0.durable.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published sample, which says that it is of shard 60 and is of 6.
    const OF_SHARD_6: u64 = 6_416_490_681_073_670_164;
    const OF_SHARD_60: u64 = 6_416_490_681_073_725_460;
    const SAMPLE: Position = Position { tick: 1_529_810_591_000, sequence: 20 };

    fn layout(epoch_ms: u64) -> Layout {
        Layout::new(LayoutFields { epoch_ms, ..Layout::REDIS_SHARDED.fields() }).unwrap()
    }

    #[test]
    fn ids_are_made_as_the_published_ones() {
        let ids = segment(&layout(0), 60, SAMPLE, 3).unwrap();
        assert_eq!((ids.start, ids.end), (OF_SHARD_60, OF_SHARD_60 + 3));
        assert_eq!(segment(&layout(0), 6, SAMPLE, 1).unwrap().start, OF_SHARD_6);
        assert_eq!(position(&layout(0), 60, OF_SHARD_60), SAMPLE);
    }

    #[test]
    fn what_does_not_fit_is_no_id() {
        let last = Position { tick: (1 << 41) - 1, sequence: 1_023 };
        let top = segment(&layout(0), 4_095, last, 1).unwrap();
        assert_eq!((top.start, top.end), (i64::MAX.unsigned_abs(), 1 << 63), "the sign stays free");
        assert_eq!(segment(&layout(0), 60, Position { tick: 1 << 41, sequence: 0 }, 1), None, "no tick wraps");
        assert_eq!(segment(&layout(0), 4_096, SAMPLE, 1), None);
        assert_eq!(segment(&layout(0), 60, SAMPLE, 1_005), None, "no sequence runs into the shard");
        assert!(segment(&layout(0), 60, SAMPLE, 1_004).is_some());
        assert_eq!(segment(&layout(0), 60, SAMPLE, 0), None);
        assert_eq!(segment(&layout(0), 0, Position::default(), 1), None, "0 is no id");
    }

    #[test]
    fn the_first_id_of_a_shard_that_is_no_less() {
        let layout = layout(0);
        let of = |id| position(&layout, 60, id);
        let next = Position { tick: SAMPLE.tick + 1, sequence: 0 };
        assert_eq!(of(0), Position::default());
        assert_eq!(of(OF_SHARD_6), Position { sequence: 0, ..SAMPLE }, "its shard lies below");
        assert_eq!(of(OF_SHARD_60 + 1), Position { sequence: 21, ..SAMPLE });
        assert_eq!(of(OF_SHARD_60 + 1_004), next, "behind its last sequence");
        assert_eq!(of(i64::MAX.unsigned_abs()).tick, 1 << 41, "behind its last tick");
    }

    #[test]
    fn timestamps_end_on_the_days_that_are_said() {
        assert_eq!(ends(&layout(0)), "2039-09-07T15:47:35.552Z");
        assert_eq!(layout(0).ends_ms(), 1 << 41);
        assert_eq!(ends(&layout(Dialect::EPOCH_MS)), "2093-09-06T15:47:35.552Z");
        assert_eq!(ends(&layout(1 << 60)), "after the year 9999");
    }
}
