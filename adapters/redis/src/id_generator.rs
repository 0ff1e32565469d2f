//! Hashes of counters with a ceiling, to import from: nothing is granted here.
//!
//! | field | meaning |
//! | --- | --- |
//! | `cur` | what the counter was added up to last |
//! | `max` | the ceiling: the greatest number that may be handed out |
//! | `seq_recently`, `seq_long_term` | how many were, in the last 5 and 30 minutes |
//!
//! The system's own script adds to `cur`, and hands the numbers out if the sum is not above `max`. So all that it may
//! have handed out is up to `max`. `cur` alone says nothing: a replica that took over may be behind, and a script that
//! was refused has added to it all the same. The watermark is the greater of the two nevertheless, as `max` may have
//! been lowered by hand since: a gap is what that costs.
//!
//! A replica that took over may be behind in `max` as well. The table `id_generator` in the database is not: the
//! ceiling is raised there first. Where there was a fail-over, import from that one.
//!
//! The job that raises `max` cannot be stopped from here, so that it is stopped has to be said. To end a tag sets `max`
//! to 0, so that the script hands out nothing, and keeps what it was as `retired_max`.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use async_trait::async_trait;
use unalike_storage::{
    Ceiling, RefillPolicy, Segment, SegmentStore, StepPolicy, StoreError, TagOptions, TagRecord, TailRelease,
    validate_tag,
};

use crate::counter::NUMBER;
use crate::server::{Access, Reply, Script, Server, To, script};
use crate::{Dialect, DialectStore, RedisOptions};

static LOOK: Script = Script::new(|| script(&[NUMBER, include_str!("scripts/id_generator.lua")]));

#[derive(Debug)]
struct IdGenerator {
    server: Server,
    keys: BTreeMap<String, String>,
}

pub(crate) fn open(server: &Server, options: &RedisOptions) -> Result<Arc<dyn DialectStore>, StoreError> {
    let Dialect::IdGenerator { keys, source_stopped } = &options.dialect else {
        return Err(StoreError::refused("counters with a ceiling belong to the dialect id-generator".to_owned()));
    };
    if !source_stopped {
        return Err(StoreError::refused(
            "the system that these counters belong to lifts their ceilings by a job of its own, which cannot be stopped from \
             here, so numbers would repeat beside it: stop it, and say so (source-stopped=true)"
                .to_owned(),
        ));
    }
    if keys.is_empty() {
        return Err(StoreError::refused(
            "counters with a ceiling are found by their keys: say which tag has which (keys=order:id_order)".to_owned(),
        ));
    }
    let mut tags: BTreeMap<&str, &str> = BTreeMap::new();
    for (tag, key) in keys {
        validate_tag(tag)?;
        if let Some(other) = tags.insert(key, tag) {
            return Err(StoreError::refused(format!("the tags {other:?} and {tag:?} have the same key, {key}")));
        }
    }
    Ok(Arc::new(IdGenerator { server: server.clone(), keys: keys.clone() }))
}

/// A counter, as far as it was looked at.
struct Counter {
    reply: Reply,
    /// The greatest number that may have been handed out.
    watermark: u64,
    max: u64,
    cur: u64,
}

impl IdGenerator {
    fn key(&self, tag: &str) -> Result<&str, StoreError> {
        validate_tag(tag)?;
        self.keys.get(tag).map(String::as_str).ok_or_else(|| StoreError::tag_unknown(tag))
    }

    /// Looks at a counter, and ends it if that is asked for; none when there is no such key.
    async fn look(&self, tag: &str, key: &str, ends: bool) -> Result<Option<Counter>, StoreError> {
        let (doing, access, argument) =
            if ends { ("ending", Access::Writes, "end") } else { ("reading", Access::Reads, "") };
        let mut reply = self.server.script(&format!("{doing} {tag:?}"), access, &LOOK, key, &[argument]).await?;
        match reply.text()?.as_str() {
            "here" => {}
            "missing" => return Ok(None),
            _ => {
                let (field, found) = (reply.text()?, reply.text()?);
                return Err(reply.damaged(&format!("of the tag {tag:?} its field {field} is {found}, no number")));
            }
        }
        let (watermark, max, cur) = (reply.number()?, reply.number()?, reply.number()?);
        Ok(Some(Counter { reply, watermark, max, cur }))
    }

    async fn record(&self, tag: &str, ends: bool) -> Result<TagRecord, StoreError> {
        let counter = self.look(tag, self.key(tag)?, ends).await?;
        counter.map(|counter| record(tag, &counter)).ok_or_else(|| StoreError::tag_unknown(tag))
    }

    /// The error of whatever grants or changes something.
    fn refused<T>(&self, tag: &str) -> Result<T, StoreError> {
        self.key(tag)?;
        Err(StoreError::refused(format!(
            "the tag {tag:?} is a counter of another system, which is read and ended here and nothing else: bring it to a \
             store of your own (`unalike tags import`)"
        )))
    }
}

fn record(tag: &str, counter: &Counter) -> TagRecord {
    let (options, watermark) = (TagOptions::default(), counter.watermark);
    TagRecord { tag: tag.to_owned(), options, watermark, version: watermark }
}

#[async_trait]
impl SegmentStore for IdGenerator {
    async fn allocate(&self, tag: &str, _: u64, _: u64) -> Result<Segment, StoreError> {
        self.refused(tag)
    }

    async fn release(&self, tag: &str, _: TailRelease) -> Result<bool, StoreError> {
        self.refused(tag)
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.tag(tag).await
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.record(tag, false).await
    }

    async fn create_tag(&self, tag: &str, _: &TagOptions) -> Result<TagRecord, StoreError> {
        self.refused(tag)
    }

    async fn change_tag(&self, tag: &str, _: StepPolicy, _: RefillPolicy) -> Result<TagRecord, StoreError> {
        self.refused(tag)
    }

    async fn raise_tag(&self, tag: &str, _: u64) -> Result<TagRecord, StoreError> {
        self.refused(tag)
    }

    async fn retire_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        let record = self.record(tag, true).await?;
        tracing::info!(tag, watermark = record.watermark, "ended a tag");
        Ok(record)
    }

    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        let mut listed = Vec::new();
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        for (tag, key) in self.keys.range::<str, _>((after, Bound::Unbounded)) {
            if listed.len() as u64 == u64::from(limit) {
                break;
            }
            if let Some(counter) = self.look(tag, key, false).await? {
                listed.push(record(tag, &counter));
            }
        }
        Ok(listed)
    }

    async fn check(&self) -> Result<(), StoreError> {
        let to = To::Key(self.keys.values().next().map_or("", String::as_str));
        self.server
            .command::<String>("asking whether it answers", Access::Reads, to, &redis::cmd("PING"))
            .await
            .map(drop)
    }

    /// None of a counter that is missing, or was ended.
    async fn ceiling(&self, tag: &str) -> Result<Option<Ceiling>, StoreError> {
        validate_tag(tag)?;
        let Some(key) = self.keys.get(tag) else { return Ok(None) };
        let counter = self.look(tag, key, false).await?;
        let Some(mut counter) = counter.filter(|counter| counter.max > 0) else { return Ok(None) };
        Ok(Some(Ceiling {
            // A script that was refused has added all the same.
            last: counter.cur.min(counter.max),
            max: counter.max,
            used_recently: counter.reply.number()?,
            used_long_term: counter.reply.number()?,
        }))
    }
}
