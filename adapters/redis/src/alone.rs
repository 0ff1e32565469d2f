//! unalike's own keys without a durable store: all of it in the one hash `PREFIX:alone`.
//!
//! The hash has a marker, and of each tag the last number and the options, and it never expires. Whatever Redis loses,
//! by `FLUSHALL`, `DEL`, an eviction, or an empty disk, it loses together with the marker, and without the marker
//! nothing is granted, created or read: only [`initialise`] makes one, by command.
//!
//! The marker is the name of the store. The one that was read when the store was opened is compared by each script and
//! each read: another Redis under the same address, and one that was begun anew or [restored](Alone::lift) since, is
//! refused for as long as it is there.
//!
//! A grant is one script whose one write is on Redis' disk before it is answered: the server's settings are checked on
//! connecting, and again with each script. What is not covered: a fail-over to a replica, which may not have had the
//! last writes; `appendonly` that is switched on while the server runs, until its first rewrite has ended; a file that
//! was restored from a backup, until an operator says so; and fields of the hash that somebody changes. A durable store
//! behind Redis covers all of these.
//!
//! Tails are not given back: the version that tells a late request from a new one would be a second write.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use async_trait::async_trait;
use tokio::sync::OnceCell;
use unalike_storage::{
    ID_MAX, Mode, PolicyColumns, RefillPolicy, Segment, SegmentStore, StepPolicy, StoreError, StoreIdentity,
    TagCreation, TagOptions, TagRecord, TagRows, TailRelease, kept_patterns, split_tag, validate_policies,
    validate_raise, validate_tag,
};

use crate::counter::{
    Counter, CounterScripts, Counters, NUMBER, PAGE, ScriptAnswer, answer, counter_script, number, scan,
};
use crate::error::not_durable;
use crate::raising::{Kind, durable_key};
use crate::server::{Access, Script, Server, To, script};
use crate::{Dialect, RedisOptions};

const ALONE: &str = include_str!("scripts/alone.lua");

static SCRIPTS: CounterScripts = CounterScripts {
    grant: Script::new(|| counter_script(ALONE, include_str!("scripts/counter_grant.lua"))),
    raise: Script::new(|| counter_script(ALONE, include_str!("scripts/counter_raise.lua"))),
    retire: Script::new(|| counter_script(ALONE, include_str!("scripts/counter_retire.lua"))),
};
static CREATE: Script = Script::new(|| script(&[NUMBER, ALONE, include_str!("scripts/alone_create.lua")]));
static CHANGE: Script = Script::new(|| script(&[NUMBER, ALONE, include_str!("scripts/alone_change.lua")]));
static NAME: Script = Script::new(|| script(&[NUMBER, include_str!("scripts/alone_name.lua")]));
static CHECK: Script = Script::new(|| script(&[NUMBER, ALONE, include_str!("scripts/alone_check.lua")]));
static LIFT: Script = Script::new(|| script(&[NUMBER, ALONE, include_str!("scripts/alone_lift.lua")]));
static FIELD: Script = Script::new(|| script(&[include_str!("scripts/field.lua")]));

/// The marker of all stores before they had names.
const UNNAMED: &str = "1";

/// What the name of the field with a tag's options begins with.
const OPTIONS: &str = "options:";

#[derive(Debug)]
pub(crate) struct Alone {
    counters: Counters,
    key: String,
    creation: TagCreation,
    /// The marker that was there first, as soon as it is a name.
    name: OnceCell<String>,
}

/// No tag's key has this name: those have braces.
fn key(options: &RedisOptions) -> String {
    format!("{}:alone", options.prefix)
}

/// Makes the marker, a random name, if there is none; answers whether there was none.
pub(crate) async fn initialise(server: &Server, options: &RedisOptions) -> Result<bool, StoreError> {
    if options.dialect != Dialect::Unalike {
        return Err(StoreError::refused(format!(
            "the dialect {:?} is not initialised: its keys are another system's",
            options.dialect
        )));
    }
    refuse_granted_by_others(server, options).await?;
    let (key, mut command) = (key(options), redis::cmd("HSETNX"));
    command.arg(&key).arg("marker").arg(StoreIdentity::random()?.to_string());
    let made: u64 = server.command("initialising the store", Access::Writes, To::Key(&key), &command).await?;
    Ok(made == 1)
}

/// Refuses a Redis whose numbers a durable store grants under this prefix: the same tags are counted there.
///
/// Who begins with a durable store writes that down and then looks for a [marker](refuse_initialised); who begins
/// without one makes the marker, and looks here at each opening. So of two that begin at once, one at least is refused.
async fn refuse_granted_by_others(server: &Server, options: &RedisOptions) -> Result<(), StoreError> {
    let key = durable_key(&options.prefix);
    let (doing, arguments) = ("looking for a durable store", [Kind::Sequences.name()]);
    let durable = server.script(doing, Access::Reads, &FIELD, &key, &arguments).await?.text()?;
    if durable.is_empty() {
        return Ok(());
    }
    Err(StoreError::refused(format!(
        "the numbers in {} are granted by a durable store: the key {key} has {durable}. Without that store they would \
         repeat: name it (--backing), or use another database or prefix",
        server.address()
    )))
}

/// Refuses a Redis that is a store by itself under this prefix, for who has a durable store.
pub(crate) async fn refuse_initialised(server: &Server, options: &RedisOptions) -> Result<(), StoreError> {
    let key = key(options);
    let doing = "looking for a store without a durable one";
    let marker = server.script(doing, Access::Reads, &FIELD, &key, &["marker"]).await?.text()?;
    if marker.is_empty() {
        return Ok(());
    }
    Err(StoreError::refused(format!(
        "{} was made a store without a durable one: the key {key} has its name, {marker}. With a durable store its numbers \
         would repeat: use it without (--backing none), or use another database or prefix and bring its tags there \
         (`unalike tags import`)",
        server.address()
    )))
}

impl Alone {
    /// Opens a store that was initialised.
    pub(crate) async fn open(server: &Server, options: &RedisOptions) -> Result<Self, StoreError> {
        refuse_granted_by_others(server, options).await?;
        let counters = Counters { server: server.clone(), scripts: &SCRIPTS };
        let (key, creation) = (key(options), options.creation);
        let mut alone = Self { counters, key, creation, name: OnceCell::new() };
        let marker = alone.marker().await?;
        if marker != UNNAMED {
            alone.name = OnceCell::from(marker);
        } else if let Err(error) = alone.name().await {
            // A user who may only read, or a replica: the first request that writes asks again.
            tracing::debug!(%error, "the store has no name yet");
        }
        Ok(alone)
    }

    fn server(&self) -> &Server {
        &self.counters.server
    }

    /// The marker that is there now.
    async fn marker(&self) -> Result<String, StoreError> {
        let mut command = redis::cmd("HGET");
        command.arg(&self.key).arg("marker");
        let doing = "reading the name of the store";
        let marker: Option<Vec<u8>> = self.server().command(doing, Access::Reads, To::Key(&self.key), &command).await?;
        let marker = marker.ok_or_else(|| self.void())?;
        String::from_utf8(marker).map_err(|_| self.damaged("the marker is not a name"))
    }

    /// The name of the store that was opened. One without gets it now: no request that writes comes without.
    async fn name(&self) -> Result<&str, StoreError> {
        self.name.get_or_try_init(|| self.give_name()).await.map(String::as_str)
    }

    /// The name that the store has or, if it has none, gets.
    async fn give_name(&self) -> Result<String, StoreError> {
        let name = StoreIdentity::random()?.to_string();
        let doing = "reading the name of the store";
        // What was written and not heard of is found the next time.
        let mut reply = self.server().script(doing, Access::Reads, &NAME, &self.key, &[&name]).await?;
        match reply.text()?.as_str() {
            "void" => Err(self.void()),
            _ => reply.text(),
        }
    }

    /// A tag's counter in the store that was opened.
    async fn counter<'c>(&'c self, tag: &'c str) -> Result<Counter<'c>, StoreError> {
        Ok(Counter { key: &self.key, tag, marker: Some(self.name().await?) })
    }

    /// The error of a store without a marker.
    fn void(&self) -> StoreError {
        StoreError::refused(format!(
            "the key {} on {} has no marker: this store was not initialised, or it has lost its data. If it is new, \
             initialise it (`unalike store init`, RedisStore::initialise). If it is not, numbers would repeat: find \
             out how far each tag had got, initialise it, create each tag above that (`unalike tags create TAG \
             --start NUMBER`) before anything else uses it, and restart the programs",
            self.key,
            self.server().address()
        ))
    }

    /// The error of a store that has this marker and is not the one that was opened.
    fn another(&self, found: &str) -> StoreError {
        let opened = self.name.get().map_or(UNNAMED, String::as_str);
        StoreError::refused(format!(
            "the key {} on {} now holds the store {found}, and this program opened the store {opened}. If you ran `unalike \
             store restored`, restart this program: that is all. If another Redis is there by mistake, bring {opened} \
             back, and this program goes on. If {found} is the right one and was not lifted, stop all programs, run \
             `unalike store restored --lift COUNT`, and start them",
            self.key,
            self.server().address()
        ))
    }

    /// Refuses what was read beside this marker, unless it is that of the store that was opened.
    fn check_marker(&self, found: Option<Vec<u8>>) -> Result<(), StoreError> {
        let found = found.ok_or_else(|| self.void())?;
        match self.name.get() {
            Some(name) if name.as_bytes() != found => Err(self.another(&String::from_utf8_lossy(&found))),
            _ => Ok(()),
        }
    }

    /// Something in the hash that should not be there.
    fn damaged(&self, what: &str) -> StoreError {
        self.server().damaged(&format!("in the key {}, {what}", self.key))
    }

    /// What was done, or why it was not.
    fn done<T>(&self, tag: &str, answer: ScriptAnswer<T>) -> Result<T, StoreError> {
        match answer {
            ScriptAnswer::Done(done) => Ok(done),
            ScriptAnswer::Void => Err(self.void()),
            ScriptAnswer::Another(found) => Err(self.another(&found)),
            ScriptAnswer::Missing => Err(StoreError::tag_unknown(tag)),
            ScriptAnswer::Spent => Err(StoreError::exhausted(tag)),
        }
    }

    /// The tags of these names, those that are unknown left out.
    async fn records(&self, names: &[String]) -> Result<Vec<TagRecord>, StoreError> {
        let mut command = redis::cmd("HMGET");
        command.arg(&self.key).arg("marker");
        for name in names {
            command.arg(format!("last:{name}")).arg(format!("{OPTIONS}{name}"));
        }
        let fields: Vec<Option<Vec<u8>>> =
            self.server().command("reading tags", Access::Reads, To::Key(&self.key), &command).await?;
        let mut fields = fields.into_iter();
        self.check_marker(fields.next().flatten())?;
        let mut records = Vec::new();
        for name in names {
            let record = match (fields.next().flatten(), fields.next().flatten()) {
                (Some(last), Some(options)) => number(&last).zip(read_options(&options)),
                (None, None) => continue,
                _ => None,
            };
            let checked = record.filter(|(_, options)| options.validate(name).is_ok());
            let Some((last, options)) = checked else {
                return Err(self.damaged(&format!("the fields last:{name} and {OPTIONS}{name} say no tag")));
            };
            records.push(TagRecord { tag: name.clone(), options, watermark: last, version: last });
        }
        Ok(records)
    }

    /// Goes on with a hash that was restored from a backup, as [`RedisStore::restored`](crate::RedisStore::restored)
    /// says; answers how many tags were lifted. The store has another name from then on, so that programs that have it
    /// open are refused.
    pub(crate) async fn lift(&self, lift: u64) -> Result<u64, StoreError> {
        let (name, new, lifted) = (self.name().await?, StoreIdentity::random()?.to_string(), lift.to_string());
        let most = ID_MAX.saturating_sub(lift).to_string();
        let [leases, clocks, formats] = kept_patterns().map(|pattern| pattern.trim_matches('%').to_owned());
        let arguments = [lifted.as_str(), &most, &new, &formats, &leases, &clocks, name];
        let doing = "lifting all tags";
        let mut reply = self.server().script(doing, Access::Writes, &LIFT, &self.key, &arguments).await?;
        match reply.text()?.as_str() {
            "done" => reply.number(),
            "void" => Err(self.void()),
            "another" => Err(self.another(&reply.text()?)),
            "time" => Err(StoreError::refused(format!(
                "the key {} on {} has the tag {:?}, under which time was granted to another Redis: a Redis without a \
                 durable store cannot stand behind one, and nothing was lifted",
                self.key,
                self.server().address(),
                reply.text()?
            ))),
            _ => Err(self.damaged(&format!("the field {} is no number", reply.text()?))),
        }
    }
}

#[async_trait]
impl TagRows for Alone {
    fn creates_on_first_use(&self, _tag: &str) -> bool {
        self.creation.on_first_use
    }

    async fn find_row(&self, tag: &str) -> Result<Option<TagRecord>, StoreError> {
        Ok(self.records(&[tag.to_owned()]).await?.pop())
    }

    async fn insert_row(&self, tag: &str, options: &TagOptions) -> Result<Option<TagRecord>, StoreError> {
        let tags_max = self.creation.tags_max;
        let last = options.start - 1;
        let (owner, sub) = split_tag(tag);
        let owner = if sub.is_some() { owner } else { "" };
        let (name, most) = (self.name().await?, (ID_MAX - last).to_string());
        let arguments = [tag, &last.to_string(), &write_options(options), &tags_max.to_string(), owner, &most, name];
        let doing = format!("creating {tag:?}");
        let mut reply = self.server().script(&doing, Access::Writes, &CREATE, &self.key, &arguments).await?;
        let last = match reply.text()?.as_str() {
            "done" => reply.number()?,
            "void" => return Err(self.void()),
            "another" => return Err(self.another(&reply.text()?)),
            "limit" => return Err(StoreError::TagLimit { tag: tag.to_owned(), tags_max }),
            "spent" => return Err(StoreError::exhausted(tag)),
            "damaged" => return Err(self.damaged(&format!("the field floor is {}, no number", reply.text()?))),
            _ => return Ok(None),
        };
        Ok(Some(TagRecord { tag: tag.to_owned(), options: *options, watermark: last, version: last }))
    }

    async fn grant_from_row(&self, tag: &str, count: u64, at_least: u64) -> Result<Option<Segment>, StoreError> {
        match self.counters.grant(self.counter(tag).await?, count, at_least).await? {
            ScriptAnswer::Missing => Ok(None),
            answer => self.done(tag, answer).map(Some),
        }
    }
}

#[async_trait]
impl SegmentStore for Alone {
    async fn leave_leases(&self, _: &str) -> Result<(), StoreError> {
        Err(not_durable())
    }

    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        self.grant_or_create(tag, count, at_least).await
    }

    async fn release(&self, tag: &str, _: TailRelease) -> Result<bool, StoreError> {
        validate_tag(tag)?;
        Ok(false)
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.find_or_create(tag).await
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.find_known(tag).await
    }

    async fn create_tag(&self, tag: &str, options: &TagOptions) -> Result<TagRecord, StoreError> {
        self.create_new(tag, options).await
    }

    async fn change_tag(&self, tag: &str, step: StepPolicy, refill: RefillPolicy) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        validate_policies(tag, step, refill)?;
        let (doing, policies) = (format!("changing {tag:?}"), write_policies(step, refill));
        let arguments = [tag, &policies, self.name().await?];
        let reply = self.server().script(&doing, Access::Writes, &CHANGE, &self.key, &arguments).await?;
        self.done(tag, answer(reply, tag)?)?;
        self.tag(tag).await
    }

    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        validate_raise(tag, next)?;
        self.done(tag, self.counters.raise(self.counter(tag).await?, next).await?)?;
        self.tag(tag).await
    }

    async fn retire_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        // First, so that nothing can fail once the tag is ended.
        let record = self.tag(tag).await?;
        let last = self.done(tag, self.counters.retire(self.counter(tag).await?).await?)?;
        tracing::info!(tag, watermark = last, "ended a tag");
        Ok(TagRecord { watermark: last, version: last, ..record })
    }

    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        let start = |cursor| redis::cmd("HSCAN").arg(&self.key).arg(cursor).arg("MATCH").arg("options:*").to_owned();
        // Values come between the names; none of them begins like one.
        let name_of = |field: &[u8]| std::str::from_utf8(field).ok()?.strip_prefix(OPTIONS).map(str::to_owned);
        let names = scan(self.server(), Some(&self.key), start, name_of, after, u64::from(limit)).await?;
        let names: Vec<String> = names.into_iter().collect();
        let (first, others) = names.split_at(names.len().min(PAGE));
        // Also where there are none: the scan does not look whose names they are.
        let mut listed = self.records(first).await?;
        for names in others.chunks(PAGE) {
            listed.append(&mut self.records(names).await?);
        }
        Ok(listed)
    }

    /// The marker, once it was seen that it is still there.
    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        let name = self.name().await?;
        self.records(&[]).await?;
        name.parse().map(Some).map_err(|_| self.damaged("the marker is not a name"))
    }

    fn keeps_formats(&self) -> bool {
        true
    }

    async fn check(&self) -> Result<(), StoreError> {
        let arguments = [self.name().await?];
        let reply = self.server().script("trying to write", Access::Reads, &CHECK, &self.key, &arguments).await?;
        self.done("", answer(reply, "")?).map(drop)
    }
}

/// Options as the hash has them; what the policies do not have is left out.
fn write_options(options: &TagOptions) -> String {
    let policies = write_policies(options.step, options.refill);
    format!("start={} mode={} {policies}", options.start, options.mode.name())
}

fn write_policies(step: StepPolicy, refill: RefillPolicy) -> String {
    let columns = PolicyColumns::new(step, refill);
    let mut text = format!("step_policy={} step={}", columns.step_policy, columns.step);
    for (name, figure) in [
        ("step_min", columns.step_min),
        ("step_max", columns.step_max),
        ("grow_below_ms", columns.grow_below_ms),
        ("shrink_above_ms", columns.shrink_above_ms),
        ("refill", Some(columns.refill)),
    ] {
        if let Some(figure) = figure {
            // Writing to a text does not fail.
            let _ = write!(text, " {name}={figure}");
        }
    }
    text + " refill_policy=" + columns.refill_policy
}

fn read_options(text: &[u8]) -> Option<TagOptions> {
    let text = std::str::from_utf8(text).ok()?;
    let fields: BTreeMap<&str, &str> = text.split(' ').filter_map(|field| field.split_once('=')).collect();
    let word = |name: &str| fields.get(name).copied();
    let figure = |name: &str| word(name).and_then(|text| text.parse().ok());
    let policies = PolicyColumns::read(word("step_policy")?, word("refill_policy")?, |name| figure(name).ok_or(()));
    let (step, refill) = policies.ok()??;
    Some(TagOptions { start: figure("start")?, step, refill, mode: Mode::named(word("mode")?)? })
}
