//! The segment port over HTTP.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use reqwest::Method;
use serde_json::{Value, json};
use unalike_storage::{
    FormatBinding, FormatOwner, FormatPart, RefillPolicy, Segment, SegmentStore, StepPolicy, StoreError, StoreIdentity,
    TagOptions, TagRecord, TailRelease, lock, split_tag, validate_allocate, validate_policies, validate_raise,
    validate_tag,
};

use crate::RemoteOptions;
use crate::answers::{BoundFormat, GrantedSegment, OpenedTag, Released, TagJson, TagPage};
use crate::servers::{Access, Part, Request, Servers};

/// The most tags that a server lists at a time.
const PAGE_MAX: u32 = 1_000;

/// Of how many tags the format is remembered: some 10 MB.
const SHAPES_MAX: usize = 100_000;

/// Segments of unalike servers; clones share the connections.
///
/// Tokens of the scope `lease` are granted numbers. To create, change and raise tags takes the scope `admin`.
///
/// ```no_run
/// use unalike_remote::{RemoteOptions, RemoteStore};
/// use unalike_storage::{SegmentStore, StoreError};
///
/// async fn a_thousand_numbers() -> Result<u64, StoreError> {
///     let store = RemoteStore::connect(RemoteOptions::from_url("http://127.0.0.1:8080")?).await?;
///     Ok(store.allocate("order", 1_000, 0).await?.start)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct RemoteStore {
    servers: Arc<Servers>,
    /// The shape of the format that this program shows a tag in, once it was told that the same is bound.
    shapes: Arc<Mutex<HashMap<String, u64>>>,
}

impl RemoteStore {
    /// Asks the servers which store they have.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when no server answers; when one of several does not, unless the options name the
    /// store. [`StoreError::Refused`] when they have different stores, want a token, or know no `/v1/store`.
    pub async fn connect(options: RemoteOptions) -> Result<Self, StoreError> {
        let servers = Arc::new(Servers::connect(&options, Part::Segments).await?);
        Ok(Self { servers, shapes: Arc::default() })
    }

    /// What a request for numbers says of the tag beside its name: the sub-key, and what the numbers are shown in.
    fn shown(&self, tag: &str) -> Vec<(&'static str, String)> {
        let mut query = sub_of(tag);
        query.extend(lock(&self.shapes).get(split_tag(tag).0).map(|shape| ("shape", shape.to_string())));
        query
    }

    /// # Errors
    /// [`StoreError::Refused`] when too many are remembered: without its shape the tag would be refused later.
    fn remember(&self, tag: &str, shape: u64) -> Result<(), StoreError> {
        let mut shapes = lock(&self.shapes);
        if shapes.len() >= SHAPES_MAX && !shapes.contains_key(tag) {
            return Err(StoreError::refused(format!(
                "the tag {tag:?} has a format, and this program remembers those of {SHAPES_MAX} tags, which are all in use: \
                 show fewer tags in one program"
            )));
        }
        shapes.insert(tag.to_owned(), shape);
        Ok(())
    }

    async fn change(&self, tag: &str, doing: &str, body: Value) -> Result<TagRecord, StoreError> {
        let (name, _) = split_tag(tag);
        let request = Request {
            doing: format!("{doing} {name:?}"),
            access: Access::Writes,
            method: Method::PATCH,
            path: vec!["v1", "tags", name],
            query: sub_of(tag),
            body: Some(body),
        };
        self.servers.ask(&request, |_: &TagJson| None).await?.record()
    }
}

fn sub_of(tag: &str) -> Vec<(&'static str, String)> {
    split_tag(tag).1.map(|sub| ("sub", sub.to_owned())).into_iter().collect()
}

fn step_json(step: StepPolicy) -> Value {
    let text = |number: u64| number.to_string();
    match step {
        StepPolicy::Fixed { step } => json!({ "policy": "fixed", "step": text(step) }),
        StepPolicy::Adaptive(step) => json!({
            "policy": "adaptive", "initial": text(step.initial), "min": text(step.min), "max": text(step.max),
            "grow_below_ms": text(step.grow_below_ms), "shrink_above_ms": text(step.shrink_above_ms),
        }),
    }
}

fn refill_json(refill: RefillPolicy) -> Value {
    match refill {
        RefillPolicy::ShareConsumed { percent } => json!({ "policy": "share-consumed", "percent": percent }),
        RefillPolicy::Remaining { count } => json!({ "policy": "remaining", "count": count.to_string() }),
    }
}

#[async_trait]
impl SegmentStore for RemoteStore {
    /// At most as many numbers as the server's `segment_count_max`.
    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        validate_allocate(tag, count, at_least)?;
        let (name, sub) = split_tag(tag);
        let mut query = self.shown(tag);
        query.extend([("count", count.to_string()), ("at_least", at_least.to_string())]);
        let request = Request {
            doing: format!("granting numbers of {name:?}"),
            access: Access::Writes,
            method: Method::POST,
            path: vec!["v1", "sequences", name, "segments"],
            query,
            body: None,
        };
        let granted: GrantedSegment =
            self.servers.ask(&request, |granted: &GrantedSegment| Some(granted.store.0)).await?;
        let segment = granted.segment();
        let is_asked_for = granted.tag == name
            && granted.sub.as_deref() == sub
            && segment.validate().is_ok()
            && segment.start >= at_least
            && segment.count() <= count;
        if !is_asked_for {
            let (address, tag, sub) = (self.servers.address(), &granted.tag, &granted.sub);
            return Err(StoreError::outcome_unknown(format!(
                "{count} numbers of {name:?} from {at_least} on were asked for, and {address} granted {segment:?} of {tag:?} \
                 {sub:?}, which is not used"
            )));
        }
        Ok(segment)
    }

    async fn release(&self, tag: &str, tail: TailRelease) -> Result<bool, StoreError> {
        validate_tag(tag)?;
        let (name, _) = split_tag(tag);
        let mut query = self.shown(tag);
        query.extend([("start", tail.start.to_string()), ("version", tail.version.to_string())]);
        let request = Request {
            doing: format!("giving numbers of {name:?} back"),
            access: Access::Writes,
            method: Method::POST,
            path: vec!["v1", "sequences", name, "segments", "release"],
            query,
            body: None,
        };
        let released = self.servers.ask(&request, |released: &Released| Some(released.store.0)).await?;
        Ok(released.released)
    }

    async fn open_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        let (name, _) = split_tag(tag);
        let request = Request {
            doing: format!("opening {name:?}"),
            access: Access::Reads,
            method: Method::POST,
            path: vec!["v1", "sequences", name, "open"],
            query: self.shown(tag),
            body: None,
        };
        let opened: OpenedTag = self.servers.ask(&request, |opened: &OpenedTag| Some(opened.store.0)).await?;
        opened.tag.record()
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        let (name, _) = split_tag(tag);
        let request = Request {
            doing: format!("looking at {name:?}"),
            access: Access::Reads,
            method: Method::GET,
            path: vec!["v1", "tags", name],
            query: sub_of(tag),
            body: None,
        };
        self.servers.ask(&request, |_: &TagJson| None).await?.record()
    }

    async fn create_tag(&self, tag: &str, options: &TagOptions) -> Result<TagRecord, StoreError> {
        options.validate(tag)?;
        if split_tag(tag).1.is_some() {
            return Err(StoreError::refused(
                "servers create sub-keys when their ids are first asked for, and not before",
            ));
        }
        let request = Request {
            doing: format!("creating {tag:?}"),
            access: Access::Writes,
            method: Method::POST,
            path: vec!["v1", "tags"],
            query: Vec::new(),
            body: Some(json!({
                "tag": tag, "start": options.start.to_string(), "step": step_json(options.step),
                "refill": refill_json(options.refill), "mode": options.mode.name(),
            })),
        };
        self.servers.ask(&request, |_: &TagJson| None).await?.record()
    }

    async fn change_tag(&self, tag: &str, step: StepPolicy, refill: RefillPolicy) -> Result<TagRecord, StoreError> {
        validate_tag(tag)?;
        validate_policies(tag, step, refill)?;
        self.change(tag, "changing", json!({ "step": step_json(step), "refill": refill_json(refill) })).await
    }

    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        validate_raise(tag, next)?;
        self.change(tag, "raising", json!({ "raise_to": next.to_string(), "confirm": true })).await
    }

    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        let mut records: Vec<TagRecord> = Vec::new();
        let mut after = after.map(str::to_owned);
        loop {
            let left = limit.saturating_sub(u32::try_from(records.len()).unwrap_or(u32::MAX)).min(PAGE_MAX);
            if left == 0 {
                return Ok(records);
            }
            let mut query = vec![("limit", left.to_string())];
            if let Some(after) = &after {
                let (name, sub) = split_tag(after);
                query.push(("after", name.to_owned()));
                query.extend(sub.map(|sub| ("after_sub", sub.to_owned())));
            }
            let request = Request {
                doing: "listing tags".to_owned(),
                access: Access::Reads,
                method: Method::GET,
                path: vec!["v1", "tags"],
                query,
                body: None,
            };
            let page: TagPage = self.servers.ask(&request, |_: &TagPage| None).await?;
            let is_last = page.tags.len() < usize::try_from(left).unwrap_or(usize::MAX);
            for tag in page.tags {
                records.push(tag.record()?);
            }
            if is_last {
                return Ok(records);
            }
            after = records.last().map(|record| record.tag.clone());
        }
    }

    /// That of the servers' store.
    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        Ok(self.servers.store())
    }

    fn keeps_formats(&self) -> bool {
        true
    }

    /// In the servers' store, or nowhere if that keeps none. The servers bind nothing in the place of what is bound.
    async fn bind_format(
        &self,
        owner: FormatOwner<'_>,
        part: FormatPart,
        binding: FormatBinding,
    ) -> Result<Option<u64>, StoreError> {
        let (kind, name) = match owner {
            FormatOwner::Tag(tag) => ("sequences", tag),
            FormatOwner::Snowflake(name) => ("snowflakes", name),
        };
        let mut query = match part {
            FormatPart::Shape => vec![("part", "shape".to_owned())],
            FormatPart::Key { id, bits } => {
                vec![("part", "key".to_owned()), ("key_id", id.to_string()), ("key_bits", bits.to_string())]
            }
        };
        match binding {
            FormatBinding::Look => {}
            FormatBinding::First(number) => query.push(("first", number.to_string())),
            FormatBinding::Always(_) => {
                return Err(StoreError::refused(format!(
                    "servers bind no other format to {owner} than the one it has: run `{}` where the servers' store is, with \
                     their --config and --store",
                    owner.accepting_command()
                )));
            }
        }
        let request = Request {
            doing: format!("comparing the format of {owner}"),
            // What is bound is bound once: asking again changes nothing.
            access: Access::Reads,
            method: Method::POST,
            path: vec!["v1", kind, name, "format"],
            query,
            body: None,
        };
        let answer: BoundFormat = self.servers.ask(&request, |answer: &BoundFormat| Some(answer.store.0)).await?;
        let bound = answer.bound.map(|number| number.0);
        if let (FormatOwner::Tag(tag), FormatPart::Shape, FormatBinding::First(shape)) = (owner, part, binding)
            && bound == Some(shape)
        {
            self.remember(tag, shape)?;
        }
        Ok(bound)
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.servers.check().await
    }

    fn address(&self) -> Option<String> {
        Some(self.servers.address().to_owned())
    }
}
