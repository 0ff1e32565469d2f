//! A search through every order in which the requests of concurrent resizes can reach their stores, with a crash at any
//! of them, programs that take numbers in between, and the call that repeats what broke off.
//!
//! It drives [`resize_stripes`] itself over stores in memory: each request waits at a gate until the search lets it
//! through. Where two orders lead to the same records, tags and answers, one of them is followed. In every state it
//! asks each store what a program could be granted there, by opening it as programs do while all other stores are down:
//! no number may come from two stores, nor twice.
#![expect(clippy::indexing_slicing, reason = "stores and calls are numbered by this file")]

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use unalike_memory::{MemoryOptions, MemoryStore};
use unalike_storage::{
    JoinedStripe, KEPT_FLOOR, RefillPolicy, Segment, SegmentStore, StepPolicy, StoreError, Stripe, StripeNumbers,
    StripedStore, TagOptions, TagRecord, TailRelease, resize_stripes,
};

const TAG: &str = "order";

/// What is searched: stores are named by their numbers.
#[derive(Clone, Debug)]
pub struct Resizes {
    /// The stores that number until now.
    pub from: Vec<usize>,
    /// What each of the concurrent calls makes of them.
    pub to: [Vec<usize>; 2],
    /// How many numbers programs take, one each, anywhere.
    pub grants: u32,
    /// How many calls crash, anywhere.
    pub crashes: u32,
    /// The floor of each call: above 0 it says that stores are lost, and which belong together is not looked at.
    pub floor: u64,
    /// Takes the compare out: a record is written whatever it was.
    pub unconditional: bool,
}

/// How far a search got.
#[derive(Clone, Copy, Debug, Default)]
pub struct Searched {
    /// Different states.
    pub states: usize,
    /// Ends of all calls.
    pub ends: usize,
    /// Ends from which a call gets on with a floor alone.
    pub floors: usize,
}

/// Goes through all orders.
///
/// # Errors
/// What a number came twice by: the steps that led to it.
pub fn search(resizes: &Resizes) -> Result<Searched, String> {
    let mut seen = HashSet::new();
    let mut searched = Searched::default();
    // Paths of steps that are still to be followed.
    let mut open: Vec<Vec<Step>> = vec![Vec::new()];
    while let Some(path) = open.pop() {
        let mut world = World::new(resizes);
        let mut path_now = Vec::new();
        for step in path {
            world.take(step);
            path_now.push(step);
        }
        // The first way on is followed as it is; others begin again.
        loop {
            world.check().map_err(|what| format!("{what} after {path_now:?} in {resizes:?}"))?;
            if !seen.insert(world.fingerprint()) {
                break;
            }
            searched.states += 1;
            let steps = world.steps();
            let Some((first, others)) = steps.split_first() else {
                searched.ends += 1;
                searched.floors +=
                    world.check_repeats().map_err(|what| format!("{what} after {path_now:?} in {resizes:?}"))?;
                break;
            };
            open.extend(others.iter().map(|step| path_now.iter().copied().chain([*step]).collect()));
            world.take(*first);
            path_now.push(*first);
        }
    }
    Ok(searched)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The next request of a call is carried out.
    Request(usize),
    /// A call is never heard of again.
    Crash(usize),
    /// A program takes a number from a store.
    Grant(usize),
}

type Resize = Pin<Box<dyn Future<Output = Result<(), StoreError>>>>;

/// A call, and how it ended.
struct Call {
    /// Not started, or under way.
    resize: Option<Resize>,
    log: Arc<Log>,
    is_ok: bool,
}

struct World<'r> {
    resizes: &'r Resizes,
    servers: Vec<MemoryStore>,
    /// A program of the old set goes on with these, which the calls were given as well: by store, with its place then.
    old: BTreeMap<usize, (MemoryStore, Option<Stripe>)>,
    names: Arc<Mutex<HashMap<u64, u64>>>,
    /// Both calls, and the one that repeats the second if that failed.
    calls: Vec<Call>,
    granted: BTreeSet<u64>,
    grants_left: u32,
    crashes_left: u32,
}

impl<'r> World<'r> {
    fn new(resizes: &'r Resizes) -> Self {
        let count = resizes.from.iter().chain(resizes.to.iter().flatten()).max().map_or(0, |last| last + 1);
        let mut world = Self {
            resizes,
            servers: (0..count).map(|_| MemoryStore::default()).collect(),
            old: BTreeMap::new(),
            names: Arc::default(),
            calls: Vec::new(),
            granted: BTreeSet::new(),
            grants_left: resizes.grants,
            crashes_left: resizes.crashes,
        };
        let old_set = u128::from(u64::MAX) << 64 | 1;
        let old_count = u32::try_from(resizes.from.len()).unwrap();
        for (index, server) in (0..).zip(&resizes.from) {
            let place = (old_count > 1).then_some(Stripe { set: old_set, index, count: old_count });
            let alone = world.servers[*server].client(MemoryOptions::default());
            let client = place.as_ref().map_or_else(|| alone.clone(), |place| alone.join(place).unwrap());
            let used = ready(client.allocate(TAG, 3 + u64::from(index), 0)).unwrap();
            world.granted.extend((used.start..used.end).map(|n| (n - 1) * u64::from(old_count) + u64::from(index) + 1));
            world.old.insert(*server, (client, place));
        }
        for to in [0, 1, 1] {
            world.add_call(&resizes.to[to], resizes.floor);
        }
        world
    }

    fn add_call(&mut self, to: &[usize], floor: u64) {
        let log = Arc::new(Log {
            number: self.calls.len(),
            names: Arc::clone(&self.names),
            unconditional: self.resizes.unconditional,
            state: Mutex::default(),
        });
        let clients = |places: &[usize]| -> Vec<Arc<dyn SegmentStore>> {
            places.iter().map(|place| self.gated(*place, &log)).collect()
        };
        let (from, to) = (clients(&self.resizes.from), clients(to));
        let resize: Resize = Box::pin(async move { resize_stripes(&from, &to, floor).await });
        self.calls.push(Call { resize: Some(resize), log, is_ok: false });
    }

    fn gated(&self, place: usize, log: &Arc<Log>) -> Arc<dyn SegmentStore> {
        let new = || self.servers[place].client(MemoryOptions::default());
        let inner = self.old.get(&place).map_or_else(new, |(client, _)| client.clone());
        Arc::new(Gated { place, inner, log: Arc::clone(log) })
    }

    /// The third call comes after the second failed.
    fn may_run(&self, call: usize) -> bool {
        let second = &self.calls[1];
        self.calls[call].resize.is_some() && (call < 2 || second.resize.is_none() && !second.is_ok)
    }

    fn steps(&self) -> Vec<Step> {
        let running: Vec<_> = (0..self.calls.len()).filter(|call| self.may_run(*call)).collect();
        let mut steps: Vec<_> = running.iter().map(|call| Step::Request(*call)).collect();
        if self.crashes_left > 0 {
            steps.extend(running.iter().filter(|call| **call < 2).map(|call| Step::Crash(*call)));
        }
        if self.grants_left > 0 && !running.is_empty() {
            let live = (0..self.servers.len()).filter(|server| self.program(*server).is_some());
            steps.extend(live.map(Step::Grant));
        }
        steps
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Request(call) => self.request(call),
            Step::Crash(call) => {
                self.calls[call].resize = None;
                self.crashes_left -= 1;
            }
            Step::Grant(server) => {
                let (program, _) = self.program(server).unwrap();
                let segment = ready(program.allocate(TAG, 1, 0)).unwrap();
                // What comes twice is found by the check of the state before.
                self.granted.insert(segment.start);
                self.grants_left -= 1;
            }
        }
    }

    fn request(&mut self, call: usize) {
        let call = &mut self.calls[call];
        call.log.state.lock().unwrap().tokens = 1;
        loop {
            let resize = call.resize.as_mut().unwrap();
            if let Poll::Ready(result) = resize.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                call.is_ok = result.is_ok();
                call.resize = None;
                return;
            }
            if call.log.state.lock().unwrap().tokens == 0 {
                return;
            }
        }
    }

    /// A program that uses this store while all others are down, and what it would be granted next: the first number
    /// and their distance.
    fn program(&self, server: usize) -> Option<(Arc<dyn SegmentStore>, (u64, u64))> {
        let client = self.servers[server].client(MemoryOptions::default());
        let record = ready(client.stripe()).unwrap();
        let program: Arc<dyn SegmentStore> = match record {
            None => Arc::new(client),
            Some(stripe) => {
                let (index, count) = stripe.numbering();
                let stores = (0..count).map(|place| -> Arc<dyn SegmentStore> {
                    if place == index { Arc::new(client.clone()) } else { Arc::new(Down) }
                });
                Arc::new(ready(StripedStore::open(stores.collect())).ok()?)
            }
        };
        // A new store that nobody has used yet is nobody's.
        let tag = ready(program.tag(TAG)).ok()?;
        let distance = record.map_or(1, |stripe| u64::from(stripe.numbering().1));
        let first = match record {
            None => tag.watermark + 1,
            // Before the first grant the watermark may be no number of the store's.
            Some(stripe) => {
                let ordinal = ready(self.servers[server].tag(TAG)).unwrap().watermark;
                ordinal * distance + u64::from(stripe.numbering().0) + 1
            }
        };
        Some((program, (first, distance)))
    }

    /// Whether a number may come twice from here.
    fn check(&self) -> Result<(), String> {
        for (server, (client, place)) in &self.old {
            // It changes no number, and goes to those who would be granted some.
            if ready(client.raise_tag(TAG, 1)).is_ok() && ready(client.stripe()).unwrap() != *place {
                return Err(format!("a client of store {server} counts as before, and may be granted numbers"));
            }
        }
        let live: BTreeMap<_, _> =
            (0..self.servers.len()).filter_map(|server| Some((server, self.program(server)?.1))).collect();
        for (server, (first, distance)) in &live {
            for number in self.granted.iter().filter(|number| *number >= first) {
                if (number - first).is_multiple_of(*distance) {
                    return Err(format!("store {server} may grant {number}, which was granted before"));
                }
            }
            for (other, (others_first, others_distance)) in live.range(server + 1..) {
                // Both are small, so a common number is soon found.
                let begin = first.max(others_first);
                let common = (*begin..begin + distance * others_distance).find(|n| {
                    (n - first).is_multiple_of(*distance) && (n - others_first).is_multiple_of(*others_distance)
                });
                if let Some(number) = common {
                    return Err(format!("both store {server} and store {other} may grant {number}"));
                }
            }
        }
        Ok(())
    }

    /// All calls have ended: one of them, made again, gets to the end. Whether that takes a floor.
    fn check_repeats(&mut self) -> Result<usize, String> {
        let greatest = self.granted.last().copied().unwrap_or(0);
        for (floors, floor) in [(0, self.resizes.floor), (1, greatest)] {
            for to in &self.resizes.to {
                self.add_call(to, floor);
                let call = self.calls.len() - 1;
                while self.calls[call].resize.is_some() {
                    self.request(call);
                    self.check()?;
                }
                if self.calls[call].is_ok {
                    return Ok(floors);
                }
            }
        }
        Err("no call gets to the end any more".to_owned())
    }

    /// The same for states from which the same can follow.
    fn fingerprint(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        for call in &self.calls {
            (call.resize.is_some(), call.is_ok, call.resize.as_ref().map(|_| call.log.fingerprint())).hash(&mut hash);
        }
        for server in &self.servers {
            let names = self.names.lock().unwrap();
            named(&names, ready(server.stripe()).unwrap()).hash(&mut hash);
            drop(names);
            for name in [TAG, KEPT_FLOOR] {
                ready(server.tag(name)).map(|tag| tag.watermark).ok().hash(&mut hash);
            }
        }
        (&self.granted, self.grants_left, self.crashes_left).hash(&mut hash);
        hash.finish()
    }
}

/// What stores in memory answer at once.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a store in memory waits for nothing"),
    }
}

fn hash(value: impl Hash) -> u64 {
    let mut hash = DefaultHasher::new();
    value.hash(&mut hash);
    hash.finish()
}

fn low_half(set: u128) -> u64 {
    u64::try_from(set & u128::from(u64::MAX)).unwrap()
}

/// Random names, replaced by who gave them.
fn named(names: &HashMap<u64, u64>, stripe: Option<Stripe>) -> Option<(u64, u64, u32, u32)> {
    let name = |half: u64| names.get(&half).copied().unwrap_or(half);
    stripe.map(|it| (name(u64::try_from(it.set >> 64).unwrap()), name(low_half(it.set)), it.index, it.count))
}

/// What a call was answered.
struct Log {
    number: usize,
    names: Arc<Mutex<HashMap<u64, u64>>>,
    unconditional: bool,
    state: Mutex<LogState>,
}

#[derive(Default)]
struct LogState {
    tokens: u32,
    answers: Vec<u64>,
}

impl Log {
    fn fingerprint(&self) -> u64 {
        hash(&self.state.lock().unwrap().answers)
    }

    fn answered(&self, answer: impl Hash) {
        self.state.lock().unwrap().answers.push(hash(answer));
    }

    /// Random names are first seen when they are written.
    fn learn(&self, stripe: Option<&Stripe>) {
        let Some(stripe) = stripe else { return };
        let mut names = self.names.lock().unwrap();
        let (high, low) = (u64::try_from(stripe.set >> 64).unwrap(), low_half(stripe.set));
        names.entry(low).or_insert_with(|| hash((self.number, "low", stripe.is_mark())));
        names.entry(high).or_insert_with(|| hash((self.number, "high", stripe.index)));
    }
}

/// A store whose requests wait for the search.
struct Gated {
    place: usize,
    inner: MemoryStore,
    log: Arc<Log>,
}

impl Gated {
    async fn pass(&self) {
        std::future::poll_fn(|_| {
            let mut state = self.log.state.lock().unwrap();
            if state.tokens == 0 {
                return Poll::Pending;
            }
            state.tokens -= 1;
            Poll::Ready(())
        })
        .await;
    }

    fn answered<T>(&self, request: &str, answer: &Result<T, StoreError>, what: impl Hash) {
        self.log.answered((self.place, request, answer.is_ok(), what));
    }
}

#[async_trait]
impl SegmentStore for Gated {
    async fn allocate(&self, _: &str, _: u64, _: u64) -> Result<Segment, StoreError> {
        unreachable!("a resize takes no numbers")
    }

    async fn release(&self, _: &str, _: TailRelease) -> Result<bool, StoreError> {
        unreachable!("a resize gives nothing back")
    }

    async fn open_tag(&self, _: &str) -> Result<TagRecord, StoreError> {
        unreachable!("a resize uses no tag")
    }

    async fn tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        self.pass().await;
        let answer = self.inner.tag(tag).await;
        self.answered("tag", &answer, ());
        answer
    }

    async fn create_tag(&self, tag: &str, options: &TagOptions) -> Result<TagRecord, StoreError> {
        self.pass().await;
        let answer = self.inner.create_tag(tag, options).await;
        self.answered("create", &answer, ());
        answer
    }

    async fn change_tag(&self, _: &str, _: StepPolicy, _: RefillPolicy) -> Result<TagRecord, StoreError> {
        unreachable!("a resize changes no policies")
    }

    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        self.pass().await;
        let answer = self.inner.raise_tag(tag, next).await;
        self.answered("raise", &answer, next);
        answer
    }

    async fn tags(&self, after: Option<&str>, limit: u32) -> Result<Vec<TagRecord>, StoreError> {
        // There is one tag, and the floor of new names, so nothing follows.
        if after.is_none() {
            self.pass().await;
        }
        let answer = self.inner.tags(after, limit).await;
        let watermarks: Option<Vec<_>> =
            answer.as_ref().ok().map(|tags| tags.iter().map(|tag| tag.watermark).collect());
        self.answered("tags", &answer, watermarks);
        answer
    }

    async fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn stripe(&self) -> Result<Option<Stripe>, StoreError> {
        self.pass().await;
        let answer = self.inner.stripe().await;
        let recorded = named(&self.log.names.lock().unwrap(), *answer.as_ref().unwrap());
        self.answered("stripe", &answer, recorded);
        answer
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        self.pass().await;
        let answer = self.inner.join(stripe);
        self.answered("join", &answer, ());
        let joined = Self { place: self.place, inner: answer?, log: Arc::clone(&self.log) };
        Ok(JoinedStripe { store: Arc::new(joined), numbers: StripeNumbers::Counted })
    }

    async fn restripe(&self, expected: Option<&Stripe>, stripe: Option<&Stripe>) -> Result<(), StoreError> {
        self.pass().await;
        self.log.learn(stripe);
        let mut answer = self.inner.restripe(expected, stripe).await;
        if let Err(StoreError::PlaceChanged { recorded, .. }) = &answer {
            // A call knows its own fences in any case.
            let own = |stripe: Option<&Stripe>| stripe.filter(|it| it.is_mark()).map(|it| low_half(it.set));
            if self.log.unconditional && (own(recorded.as_ref()).is_none() || own(recorded.as_ref()) != own(stripe)) {
                answer = self.inner.restripe(recorded.clone().as_ref(), stripe).await;
            }
        }
        self.answered("restripe", &answer, ());
        answer
    }
}

/// A store that does not answer.
struct Down;

impl Down {
    fn error<T>() -> Result<T, StoreError> {
        Err(StoreError::unavailable("it is down".to_owned()))
    }
}

#[async_trait]
impl SegmentStore for Down {
    async fn allocate(&self, _: &str, _: u64, _: u64) -> Result<Segment, StoreError> {
        Self::error()
    }

    async fn release(&self, _: &str, _: TailRelease) -> Result<bool, StoreError> {
        Self::error()
    }

    async fn open_tag(&self, _: &str) -> Result<TagRecord, StoreError> {
        Self::error()
    }

    async fn tag(&self, _: &str) -> Result<TagRecord, StoreError> {
        Self::error()
    }

    async fn create_tag(&self, _: &str, _: &TagOptions) -> Result<TagRecord, StoreError> {
        Self::error()
    }

    async fn change_tag(&self, _: &str, _: StepPolicy, _: RefillPolicy) -> Result<TagRecord, StoreError> {
        Self::error()
    }

    async fn raise_tag(&self, _: &str, _: u64) -> Result<TagRecord, StoreError> {
        Self::error()
    }

    async fn tags(&self, _: Option<&str>, _: u32) -> Result<Vec<TagRecord>, StoreError> {
        Self::error()
    }

    async fn check(&self) -> Result<(), StoreError> {
        Self::error()
    }

    async fn stripe(&self) -> Result<Option<Stripe>, StoreError> {
        Self::error()
    }
}
