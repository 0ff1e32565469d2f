//! The tags of an instance, each with its generator in the core component.
//!
//! Requests of one instance run beside each other, and any of them may be dropped while it waits: what is shared is
//! whole at every `await`, and whoever waits is woken also by one that was dropped.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, OnceCell};
use core::mem;

use crate::bindings::unalike::edge::grants::{self, Failure, Mode};
use crate::bindings::unalike::ids::sequences::{Ordered, RefillPolicy, Sequence, SequenceOptions};
use crate::bindings::unalike::ids::types::{Error, Run};
use crate::bindings::wasi::clocks::system_clock;
use crate::failures::{REQUEST_TIMEOUT_MS, Told, of_core};
use crate::life::{Life, Use};
use crate::one_thread::OneThread;
use crate::problem::Problem;
use crate::settings::Settings;
use crate::turn::Turn;

/// How many numbers the core component asks for at a time: more than any instance needs, since it is the front end that
/// bounds each request.
const STEP: u64 = 1_000_000;

/// A request that waited so often without an id has met a defect.
const DRIVES_MAX: u32 = 1_000;

/// How many tags an instance without end knows, though they are not asked for any more.
#[cfg(feature = "facade")]
const IDLE_TAGS_MAX: usize = 1_000;

/// What the requests of this instance share.
struct Instance {
    settings: Settings,
    life: Life,
    tags: BTreeMap<String, Rc<Tag>>,
}

static INSTANCE: OneThread<Option<Instance>> = OneThread::new(None);

fn instance<T>(act: impl FnOnce(&mut Instance) -> T) -> T {
    act(INSTANCE.cell().borrow_mut().get_or_insert_with(|| {
        let settings = Settings::of_environment();
        Instance { settings, life: Life::new(settings.instance_requests), tags: BTreeMap::new() }
    }))
}

/// Another request is here: the settings for it.
pub(crate) fn begin() -> Settings {
    instance(|instance| {
        #[cfg(feature = "facade")]
        instance.go_on();
        instance.life.begin();
        instance.settings
    })
}

#[cfg(feature = "facade")]
impl Instance {
    /// What a facade needs whose host may never end it: grants and memory that do not grow with its age.
    fn go_on(&mut self) {
        if !self.life.go_on() {
            return;
        }
        let are_many = self.tags.len() > IDLE_TAGS_MAX;
        self.tags.retain(|_, tag| {
            let mut used = tag.used.get();
            let is_idle = used.halve();
            tag.used.set(used);
            // Nobody else has it. What it holds is a gap, and its next user asks for a grant of its own.
            !(are_many && is_idle && Rc::strong_count(tag) == 1)
        });
    }
}

/// How many to ask for, after this use, in what is left of the instance's life.
pub(crate) fn worth_asking_for(used: Use) -> u64 {
    instance(|instance| used.grant(&instance.life))
}

/// A tag, or a sub-key of one.
struct Tag {
    name: String,
    /// Whose turn it is to open it, or to begin a round.
    turn: Turn,
    generator: OnceCell<Generator>,
    used: Cell<Use>,
}

enum Generator {
    Buffered(Sequence),
    Ordered(Ordered),
}

/// Hands out ids of a tag: `count` of them, in runs that ascend.
///
/// # Errors
/// What callers are told. Ids that it had by then are a gap.
pub(crate) async fn take(name: &str, count: u32) -> Result<Vec<Run>, Problem> {
    let tag = known(name);
    let deadline_ms = now_ms().saturating_add(REQUEST_TIMEOUT_MS);
    let mut waiting = Waiting { tag: &tag, left: 0, deadline_ms, drives: 0 };
    waiting.begin(count);
    match tag.opened(deadline_ms).await? {
        Generator::Buffered(sequence) => waiting.buffered(sequence).await,
        Generator::Ordered(ordered) => waiting.ordered(ordered).await,
    }
}

fn known(name: &str) -> Rc<Tag> {
    instance(|instance| {
        if let Some(tag) = instance.tags.get(name) {
            return Rc::clone(tag);
        }
        let tag = Tag {
            name: String::from(name),
            turn: Turn::default(),
            generator: OnceCell::new(),
            used: Cell::new(Use::default()),
        };
        let tag = Rc::new(tag);
        instance.tags.insert(String::from(name), Rc::clone(&tag));
        tag
    })
}

impl Tag {
    async fn opened(&self, deadline_ms: u64) -> Result<&Generator, Problem> {
        if let Some(generator) = self.generator.get() {
            return Ok(generator);
        }
        let _turn = self.turn.take().await;
        if let Some(generator) = self.generator.get() {
            return Ok(generator);
        }
        // Those before it may have waited for servers that do not answer, one after the other.
        check_time(deadline_ms)?;
        let opened = match grants::open(self.name.clone()).await {
            Ok(Mode::Buffered) => Sequence::open(&self.name, options()).map(Generator::Buffered),
            Ok(Mode::Ordered) => Ordered::open(&self.name, 0, unalike_core::ID_MAX).map(Generator::Ordered),
            Err(failure) => {
                // Names that nobody may use must not fill the memory. By now another one of this name may be there.
                instance(|instance| {
                    if instance.tags.get(&self.name).is_some_and(|known| core::ptr::eq(Rc::as_ptr(known), self)) {
                        instance.tags.remove(&self.name);
                    }
                });
                return Err(self.problem_of(failure));
            }
        };
        let generator = opened.map_err(|_| Problem::tag_invalid(&self.name))?;
        Ok(self.generator.get_or_init(|| generator))
    }

    fn problem_of(&self, failure: Failure) -> Problem {
        told(failure).of_tag(&self.name)
    }

    /// Why the core component has no id.
    fn problem(&self, error: Error) -> Problem {
        of_core(&self.name, error, || grants::last_failure(&self.name).map(told))
    }
}

/// Why the storage granted nothing.
pub(crate) fn told(failure: Failure) -> Told {
    let Failure { problem, detail, retry_after_ms, .. } = failure;
    Told { problem, detail, retry_after_ms }
}

fn options() -> SequenceOptions {
    SequenceOptions {
        step: STEP,
        step_min: STEP,
        step_max: STEP,
        grow_below_ms: 0,
        shrink_above_ms: 0,
        // An instance ends without a word: what is held ahead would be lost with it.
        refill: RefillPolicy::Remaining(0),
        prefetch: 1,
        floor: 0,
        id_max: unalike_core::ID_MAX,
    }
}

/// A request that waits for ids.
struct Waiting<'a> {
    tag: &'a Tag,
    left: u32,
    deadline_ms: u64,
    drives: u32,
}

impl Waiting<'_> {
    fn begin(&mut self, count: u32) {
        self.left = count;
        self.change(|used| used.awaited = used.awaited.saturating_add(u64::from(count)));
    }

    fn received(&mut self, count: u32) {
        let count = count.min(self.left);
        self.left -= count;
        self.drives = 0;
        self.change(|used| {
            used.awaited = used.awaited.saturating_sub(u64::from(count));
            used.handed_out = used.handed_out.saturating_add(u64::from(count));
        });
    }

    fn change(&self, change: impl FnOnce(&mut Use)) {
        let mut used = self.tag.used.get();
        change(&mut used);
        self.tag.used.set(used);
    }

    async fn buffered(mut self, sequence: &Sequence) -> Result<Vec<Run>, Problem> {
        let mut runs = Vec::new();
        while self.left > 0 {
            match sequence.reserve(now_ms(), self.left) {
                Ok(run) => {
                    self.received(run.count);
                    runs.push(run);
                }
                Err(Error::Pending) => {
                    let count = worth_asking_for(self.tag.used.get());
                    self.drive(count).await?;
                }
                Err(error) => return Err(self.tag.problem(error)),
            }
        }
        Ok(runs)
    }

    /// Each request has a round of its own, which begins after the request came.
    async fn ordered(mut self, ordered: &Ordered) -> Result<Vec<Run>, Problem> {
        let _turn = self.tag.turn.take().await;
        let mut runs = Vec::new();
        while self.left > 0 {
            // A round that nobody claims costs the next request one more.
            check_time(self.deadline_ms)?;
            let round = match ordered.begin(now_ms(), self.left) {
                Ok(round) => round,
                // Of a request that was dropped.
                Err(Error::Pending) => {
                    self.drive(1).await?;
                    continue;
                }
                Err(error) => return Err(self.tag.problem(error)),
            };
            let run = loop {
                self.drive(u64::from(self.left)).await?;
                match ordered.claim(now_ms(), round) {
                    Ok(run) => break run,
                    Err(Error::Pending) => {}
                    Err(error) => return Err(self.tag.problem(error)),
                }
            };
            self.received(run.count);
            runs.push(run);
        }
        Ok(runs)
    }

    async fn drive(&mut self, count: u64) -> Result<(), Problem> {
        self.drives += 1;
        check_time(self.deadline_ms)?;
        if self.drives > DRIVES_MAX {
            return Err(Problem::new("internal", "the storage answers without an answer"));
        }
        grants::drive(self.tag.name.clone(), count).await;
        Ok(())
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let left = u64::from(mem::take(&mut self.left));
        self.change(|used| used.awaited = used.awaited.saturating_sub(left));
    }
}

/// Whether a request may still begin something.
pub(crate) fn check_time(deadline_ms: u64) -> Result<(), Problem> {
    if now_ms() >= deadline_ms { Err(Problem::timeout(REQUEST_TIMEOUT_MS)) } else { Ok(()) }
}

/// Unix time. Before 1970 it stands still.
pub(crate) fn now_ms() -> u64 {
    let now = system_clock::now();
    let seconds = u64::try_from(now.seconds).unwrap_or(0);
    seconds.saturating_mul(1_000).saturating_add(u64::from(now.nanoseconds / 1_000_000))
}
