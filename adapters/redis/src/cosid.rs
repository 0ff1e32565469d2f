//! CosId's counters (Ahoo-Wang/CosId), read and written in place: the text `cosid:{NAMESPACE.NAME}.adder` of a tag
//! `NAMESPACE.NAME` is its last number.
//!
//! CosId's clients make a counter that is missing by `SETNX`, and add their step by `INCRBY`: after it the ids are
//! `(last - step, last]`. They may run beside this program, on the same counters. As they know no ceiling, there can be
//! none, and the numbers are as safe as Redis is: see [`Backing::RedisAlone`].
//!
//! A counter that is missing may be new, and it may be lost. CosId's clients begin again either way. This program does
//! not: a tag is created by [`SegmentStore::create_tag`] alone, and is unknown until then, whatever
//! [`TagCreation::on_first_use`] says.
//!
//! A tag is ended by the greatest number there is: every addition to it is out of range, an error of the server. A step
//! is a setting of CosId's clients, so a tag has unalike's default one. Tails are not given back.

use std::sync::Arc;

use async_trait::async_trait;
use unalike_storage::{
    RefillPolicy, Segment, SegmentStore, StepPolicy, StoreError, TagCreation, TagOptions, TagRecord, TailRelease,
    split_tag, validate_allocate, validate_new_tag, validate_policies, validate_raise, validate_tag,
};

use crate::counter::{Counter, CounterScripts, Counters, PAGE, ScriptAnswer, counter_script, number, scan};
use crate::server::{Access, Script, Server, To};
use crate::{Backing, DialectStore, RedisOptions};

const COSID: &str = include_str!("scripts/cosid.lua");

static SCRIPTS: CounterScripts = CounterScripts {
    grant: Script::new(|| counter_script(COSID, include_str!("scripts/counter_grant.lua"))),
    raise: Script::new(|| counter_script(COSID, include_str!("scripts/counter_raise.lua"))),
    retire: Script::new(|| counter_script(COSID, include_str!("scripts/counter_retire.lua"))),
};

/// What stands around a tag in the name of its key. Neither has a meaning in patterns.
const AROUND: (&str, &str) = ("cosid:{", "}.adder");

#[derive(Debug)]
struct Cosid {
    counters: Counters,
    creation: TagCreation,
    /// Of the key that is written to see whether that is possible.
    prefix: String,
}

pub(crate) fn open(
    server: &Server,
    watermark: &Backing,
    options: &RedisOptions,
) -> Result<Arc<dyn DialectStore>, StoreError> {
    if matches!(watermark, Backing::Durable(_)) {
        return Err(StoreError::refused(
            "CosId's counters cannot stand under a ceiling of a durable store, for CosId's own clients know none and would \
             count beyond it: use them without a durable store, or import their tags into it (`unalike tags import`)"
                .to_owned(),
        ));
    }
    let counters = Counters { server: server.clone(), scripts: &SCRIPTS };
    Ok(Arc::new(Cosid { counters, creation: options.creation, prefix: options.prefix.clone() }))
}

/// The key of a tag's counter.
fn key(tag: &str) -> Result<String, StoreError> {
    validate_tag(tag)?;
    if let (tag, Some(sub)) = split_tag(tag) {
        let reason = format!("CosId's counters have no place for its sub-key {sub:?}");
        return Err(StoreError::TagInvalid { tag: tag.to_owned(), reason });
    }
    Ok(format!("{}{tag}{}", AROUND.0, AROUND.1))
}

/// The tag of a counter's key.
fn tag_of(key: &[u8]) -> Option<String> {
    let tag = std::str::from_utf8(key).ok()?.strip_prefix(AROUND.0)?.strip_suffix(AROUND.1)?;
    let is_usable = validate_tag(tag).is_ok() && split_tag(tag).1.is_none();
    is_usable.then(|| tag.to_owned())
}

fn counter<'c>(key: &'c str, tag: &'c str) -> Counter<'c> {
    Counter { key, tag, marker: None }
}

fn record(tag: &str, last: u64) -> TagRecord {
    TagRecord { tag: tag.to_owned(), options: TagOptions::default(), watermark: last, version: last }
}

/// What was done, or why it was not.
fn done<T>(tag: &str, answer: ScriptAnswer<T>) -> Result<T, StoreError> {
    match answer {
        ScriptAnswer::Done(done) => Ok(done),
        ScriptAnswer::Spent => Err(StoreError::exhausted(tag)),
        ScriptAnswer::Missing | ScriptAnswer::Void | ScriptAnswer::Another(_) => Err(StoreError::tag_unknown(tag)),
    }
}

impl Cosid {
    fn server(&self) -> &Server {
        &self.counters.server
    }

    fn read(&self, tag: &str, value: &[u8]) -> Result<TagRecord, StoreError> {
        let Some(last) = number(value) else {
            let shown: String = String::from_utf8_lossy(value).chars().take(32).collect();
            return Err(self.server().damaged(&format!("the counter of the tag {tag:?} holds {shown:?}, no number")));
        };
        Ok(record(tag, last))
    }

    async fn names(&self, after: Option<&str>, limit: u64) -> Result<Vec<String>, StoreError> {
        let pattern = format!("{}*{}", AROUND.0, AROUND.1);
        let start = |cursor| redis::cmd("SCAN").arg(cursor).arg("MATCH").arg(&pattern).to_owned();
        Ok(scan(self.server(), None, start, tag_of, after, limit).await?.into_iter().collect())
    }
}

#[async_trait]
impl SegmentStore for Cosid {
    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        validate_allocate(tag, count, at_least)?;
        done(tag, self.counters.grant(counter(&key(tag)?, tag), count, at_least).await?)
    }

    async fn release(&self, tag: &str, _: TailRelease) -> Result<bool, StoreError> {
        validate_tag(tag)?;
        Ok(false)
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.tag(tag).await
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        let (key, mut command) = (key(tag)?, redis::cmd("GET"));
        command.arg(&key);
        let value: Option<Vec<u8>> =
            self.server().command(&format!("reading {tag:?}"), Access::Reads, To::Key(&key), &command).await?;
        self.read(tag, &value.ok_or_else(|| StoreError::tag_unknown(tag))?)
    }

    async fn create_tag(&self, tag: &str, options: &TagOptions) -> Result<TagRecord, StoreError> {
        let key = key(tag)?;
        options.validate(tag)?;
        let unsaid = TagOptions { start: options.start, ..TagOptions::default() };
        if *options != unsaid {
            return Err(StoreError::refused(format!(
                "CosId's counters cannot say that the tag {tag:?} is ordered, or has a step or a refill policy of its own: leave \
                 them out, or use another store"
            )));
        }
        match self.tag(tag).await {
            Ok(_) => return Err(StoreError::TagExists { tag: tag.to_owned() }),
            Err(StoreError::TagUnknown { .. }) => validate_new_tag(tag)?,
            Err(error) => return Err(error),
        }
        let tags_max = self.creation.tags_max;
        if self.names(None, tags_max).await?.len() as u64 >= tags_max {
            return Err(StoreError::TagLimit { tag: tag.to_owned(), tags_max });
        }
        let last = options.start - 1;
        let mut command = redis::cmd("SETNX");
        command.arg(&key).arg(last);
        // A client of CosId may have made it in the meantime.
        let doing = format!("creating {tag:?}");
        let made: u64 = self.server().command(&doing, Access::Writes, To::Key(&key), &command).await?;
        if made == 0 {
            return Err(StoreError::TagExists { tag: tag.to_owned() });
        }
        tracing::info!(tag, "created a tag");
        Ok(record(tag, last))
    }

    async fn change_tag(&self, tag: &str, step: StepPolicy, refill: RefillPolicy) -> Result<TagRecord, StoreError> {
        let record = self.tag(tag).await?;
        validate_policies(tag, step, refill)?;
        if (record.options.step, record.options.refill) != (step, refill) {
            return Err(StoreError::refused(format!(
                "CosId's counters cannot say a step or a refill policy of the tag {tag:?}, so it has the default ones"
            )));
        }
        Ok(record)
    }

    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        validate_raise(tag, next)?;
        done(tag, self.counters.raise(counter(&key(tag)?, tag), next).await?)?;
        self.tag(tag).await
    }

    async fn retire_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        let last = done(tag, self.counters.retire(counter(&key(tag)?, tag)).await?)?;
        tracing::info!(tag, watermark = last, "ended a tag");
        Ok(record(tag, last))
    }

    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        let mut listed = Vec::new();
        let mut after = after.map(str::to_owned);
        // Again where keys turn out to be none: a page that is short of tags ends the list.
        while listed.len() as u64 != u64::from(limit) {
            let wanted = u64::from(limit) - listed.len() as u64;
            let names = self.names(after.as_deref(), wanted).await?;
            // In a Cluster each is a command, for they are on several nodes.
            for names in names.chunks(if self.server().is_cluster() { 1 } else { PAGE }) {
                let keys = names.iter().map(|name| key(name)).collect::<Result<Vec<_>, _>>()?;
                let command = redis::cmd("MGET").arg(&keys).to_owned();
                let first = To::Key(keys.first().map_or("", String::as_str));
                let values: Vec<Option<Vec<u8>>> =
                    self.server().command("reading tags", Access::Reads, first, &command).await?;
                for (name, value) in names.iter().zip(values) {
                    // None where a key is something else, or is gone in the meantime.
                    if let Some(value) = value {
                        listed.push(self.read(name, &value)?);
                    }
                }
            }
            if (names.len() as u64) < wanted {
                break;
            }
            after = names.into_iter().next_back();
        }
        Ok(listed)
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.server().prove_writable(&self.prefix).await
    }
}
