//! The rules of Redis under a ceiling, one by one, on real servers. What goes wrong only when two things meet is
//! brought about by a gate in front of the durable store: a raise is held there, between the durable grant and its
//! installation, while the test does something else.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use unalike_memory::{MemoryOptions, MemoryStore};
use unalike_redis::{Backing, RedisOptions, RedisStore};
use unalike_storage::{
    Ceiling, ID_MAX, JoinedStripe, Segment, SegmentStore, StoreError, StoreIdentity, Stripe, TagCreation, TagOptions,
    TagRecord, TailRelease,
};
use unalike_tests::PATIENCE;
use unalike_tests::proxy::Proxy;
use unalike_tests::redis::{Persistence, Redis};
use unalike_tests::until;

const TAG: &str = "order";
const KEY: &str = "unalike:{order}";

/// How many numbers a raise has, unless a test says otherwise. More are due when a quarter is left.
const RAISE: u64 = 100;

const MINUTE_MS: u64 = 60 * 1_000;

/// The greatest number that a Lua number holds beside all below it.
const NUMBERS_MAX: u64 = (1 << 53) - 1;

/// What a hash holds besides notes of use and claims: what may not change where nothing is granted.
const NUMBERS: [&str; 9] =
    ["generation", "incarnation", "end", "left", "next_end", "next_left", "durable_version", "version_base", "given"];

/// Where allocations wait; before the grant, tags that are raised or ended as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Nowhere.
    #[default]
    Nowhere,
    BeforeTheGrant,
    AfterTheGrant,
}

/// An allocation that waits at the gate; it goes on when this is dropped.
struct Held {
    /// What was granted, behind the gate.
    granted: Option<Segment>,
    _go: oneshot::Sender<()>,
}

impl Held {
    fn let_go(self) {}
}

/// A durable store with a gate.
struct Gate {
    inner: MemoryStore,
    place: Mutex<Place>,
    /// What allocations fail with instead.
    failure: Mutex<Option<fn() -> StoreError>>,
    /// What becomes of a grant.
    makes: Mutex<fn(Segment) -> Segment>,
    asked: AtomicU64,
    arrivals: mpsc::UnboundedSender<Held>,
    arrived: tokio::sync::Mutex<mpsc::UnboundedReceiver<Held>>,
}

impl Gate {
    fn new(creation: TagCreation) -> Arc<Self> {
        let (arrivals, arrived) = mpsc::unbounded_channel();
        Arc::new(Self {
            inner: MemoryStore::new(MemoryOptions { creation, ..MemoryOptions::default() }),
            place: Mutex::default(),
            failure: Mutex::default(),
            makes: Mutex::new(|segment| segment),
            asked: AtomicU64::new(0),
            arrivals,
            arrived: tokio::sync::Mutex::new(arrived),
        })
    }

    /// From now on allocations wait here.
    fn hold(&self, place: Place) {
        *self.place.lock().unwrap() = place;
    }

    fn place(&self) -> Place {
        *self.place.lock().unwrap()
    }

    /// From now on allocations fail with this.
    fn fail(&self, failure: Option<fn() -> StoreError>) {
        *self.failure.lock().unwrap() = failure;
    }

    /// From now on this becomes of grants.
    fn make(&self, makes: fn(Segment) -> Segment) {
        *self.makes.lock().unwrap() = makes;
    }

    /// The next allocation that arrives at the gate.
    async fn held(&self) -> Held {
        let mut arrived = self.arrived.lock().await;
        tokio::time::timeout(PATIENCE, arrived.recv()).await.unwrap().unwrap()
    }

    /// Whether another one has arrived.
    async fn has_held(&self) -> bool {
        !self.arrived.lock().await.is_empty()
    }

    /// How many allocations arrived, held or not.
    fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    async fn wait(&self, granted: Option<Segment>) {
        let (go, gone) = oneshot::channel();
        self.arrivals.send(Held { granted, _go: go }).unwrap();
        // An error is the test letting go.
        let _ = gone.await;
    }
}

#[async_trait]
impl unalike_storage::SegmentLayer for Gate {
    fn below(&self) -> Option<&dyn SegmentStore> {
        Some(&self.inner)
    }

    /// Nobody waits for what is handed over.
    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        self.inner.join_stripe(stripe).await
    }

    async fn allocate(&self, tag: &str, count: u64, at_least: u64) -> Result<Segment, StoreError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let place = self.place();
        if place == Place::BeforeTheGrant {
            self.wait(None).await;
        }
        let failure = *self.failure.lock().unwrap();
        if let Some(failure) = failure {
            return Err(failure());
        }
        let granted = self.inner.allocate(tag, count, at_least).await?;
        let makes = *self.makes.lock().unwrap();
        if place == Place::AfterTheGrant {
            self.wait(Some(granted)).await;
        }
        Ok(makes(granted))
    }

    async fn raise_tag(&self, tag: &str, next: u64) -> Result<TagRecord, StoreError> {
        if self.place() == Place::BeforeTheGrant {
            self.wait(None).await;
        }
        self.inner.raise_tag(tag, next).await
    }

    async fn retire_tag(&self, tag: &str) -> Result<TagRecord, StoreError> {
        if self.place() == Place::BeforeTheGrant {
            self.wait(None).await;
        }
        self.inner.retire_tag(tag).await
    }
}

/// A Redis, and the durable store that stands behind it.
struct World {
    redis: Redis,
    durable: Arc<Gate>,
}

impl World {
    fn start() -> Self {
        Self::start_with(Persistence::Nothing, TagCreation::default())
    }

    fn start_with(persistence: Persistence, creation: TagCreation) -> Self {
        Self { redis: Redis::start(persistence).unwrap(), durable: Gate::new(creation) }
    }

    /// A client that raises by [`RAISE`], has patience, and does nothing on its own.
    async fn client(&self) -> Arc<RedisStore> {
        self.client_with(|_| {}).await
    }

    async fn client_with(&self, change: impl FnOnce(&mut RedisOptions)) -> Arc<RedisStore> {
        self.client_of(&self.redis, change).await
    }

    async fn client_of(&self, redis: &Redis, change: impl FnOnce(&mut RedisOptions)) -> Arc<RedisStore> {
        self.client_at(&redis.url(0, "preheat=false"), change).await
    }

    async fn client_at(&self, url: &str, change: impl FnOnce(&mut RedisOptions)) -> Arc<RedisStore> {
        let mut options = RedisOptions::from_url(url).unwrap();
        options.connect_timeout = PATIENCE;
        options.request_timeout = PATIENCE;
        options.raise_timeout = PATIENCE;
        options.keep_every = Duration::from_secs(60 * 60);
        (options.raise_min, options.raise_max) = (RAISE, RAISE);
        change(&mut options);
        Arc::new(RedisStore::connect(options, Backing::Durable(self.durable.clone())).await.unwrap())
    }

    /// The hash of a tag; empty when there is none.
    fn hash(&self) -> BTreeMap<String, String> {
        self.hash_of(TAG)
    }

    fn hash_of(&self, tag: &str) -> BTreeMap<String, String> {
        let text = self.redis.cli(&["HGETALL", &format!("unalike:{{{tag}}}")]).unwrap();
        let mut lines = text.lines();
        let mut hash = BTreeMap::new();
        while let Some(field) = lines.next().filter(|field| !field.is_empty()) {
            hash.insert(field.to_owned(), lines.next().unwrap_or_default().to_owned());
        }
        hash
    }

    /// What there is to hand out: `end`, `left`, `next_end` and `next_left`.
    fn held(&self) -> [String; 4] {
        let hash = self.hash();
        ["end", "left", "next_end", "next_left"].map(|field| hash.get(field).cloned().unwrap_or_default())
    }

    /// The part of the hash that grants change.
    fn numbers(&self) -> BTreeMap<String, String> {
        let mut hash = self.hash();
        hash.retain(|field, _| NUMBERS.contains(&field.as_str()));
        hash
    }

    fn set(&self, fields: &[(&str, &str)]) {
        let fields = fields.iter().flat_map(|&(field, value)| [field, value]);
        let command: Vec<&str> = ["HSET", KEY].into_iter().chain(fields).collect();
        self.redis.cli(&command).unwrap();
    }

    /// Whoever has claimed the tag has not.
    fn unclaim(&self) {
        self.set(&[("claim", ""), ("claim_until_ms", "0")]);
    }

    /// By the server's clock.
    fn now_ms(&self) -> u64 {
        let time = self.redis.cli(&["TIME"]).unwrap();
        let (seconds, microseconds) = time.split_once('\n').unwrap();
        seconds.parse::<u64>().unwrap() * 1_000 + microseconds.parse::<u64>().unwrap() / 1_000
    }

    /// Somebody else takes numbers from the durable store.
    async fn take(&self, count: u64) -> Segment {
        self.durable.inner.allocate(TAG, count, 0).await.unwrap()
    }

    async fn watermark(&self) -> u64 {
        self.durable.inner.tag(TAG).await.unwrap().watermark
    }

    /// Has the tag hold two intervals that are apart: 81 to 100 and 171 to 270; and no more are due.
    async fn two_intervals(&self, client: &Arc<RedisStore>) {
        take_all(client, 75).await;
        self.take(70).await;
        grant(client, 5).await;
        until("the second interval", async || self.held() == held(101, 20, Some(271), 100)).await;
    }
}

/// As [`World::held`] has it.
fn held(end: u64, left: u64, next_end: Option<u64>, next_left: u64) -> [String; 4] {
    let next_end = next_end.map_or_else(String::new, |next_end| next_end.to_string());
    [end.to_string(), left.to_string(), next_end, next_left.to_string()]
}

/// What a script was called with, and the commands that it ran.
struct Call {
    arguments: Vec<String>,
    commands: Vec<Vec<String>>,
}

impl Call {
    /// Whether these follow one another among the arguments.
    fn has(&self, arguments: &[&str]) -> bool {
        self.arguments.windows(arguments.len()).any(|some| some == arguments)
    }

    fn writes(&self) -> Vec<&str> {
        let reads = ["HMGET", "HGET", "INFO", "TIME"];
        let names = self.commands.iter().filter_map(|command| command.first()).map(String::as_str);
        names.filter(|name| !reads.contains(name)).collect()
    }
}

/// All that a server is told, by `redis-cli MONITOR`.
struct Monitor<'a> {
    redis: &'a Redis,
    process: Child,
    directory: TempDir,
    marks: AtomicU64,
}

impl<'a> Monitor<'a> {
    async fn start(redis: &'a Redis) -> Self {
        let directory = TempDir::new().unwrap();
        let process = Command::new("redis-cli")
            .args(["-p", &redis.port().to_string(), "MONITOR"])
            .stdin(Stdio::null())
            .stdout(File::create(directory.path().join("seen")).unwrap())
            .spawn()
            .unwrap();
        let monitor = Self { redis, process, directory, marks: AtomicU64::new(0) };
        until("the monitor", async || monitor.text().starts_with("OK")).await;
        monitor
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("seen")).unwrap()
    }

    /// All that scripts were called with until now.
    async fn calls(&self) -> Vec<Call> {
        let mark = format!("mark {}", self.marks.fetch_add(1, Ordering::SeqCst));
        self.redis.cli(&["ECHO", &mark]).unwrap();
        until("the mark", async || self.text().contains(&format!("{mark}\"\n"))).await;
        self.seen()
    }

    /// What scripts were called with until a moment ago, but those that the server did not know.
    fn seen(&self) -> Vec<Call> {
        let mut calls: Vec<Call> = Vec::new();
        for line in self.text().lines() {
            let Some((source, command)) = line.split_once("] ") else { continue };
            let Some(words) = command.strip_prefix('"').and_then(|words| words.strip_suffix('"')) else { continue };
            let words: Vec<String> = words.split("\" \"").map(str::to_owned).collect();
            let is_script = words.first().is_some_and(|name| name.eq_ignore_ascii_case("EVALSHA"));
            if is_script {
                // Behind the script's hash, the number of keys, and the key.
                calls.push(Call { arguments: words, commands: Vec::new() });
            } else if source.ends_with("lua") {
                calls.last_mut().unwrap().commands.push(words);
            }
        }
        calls.retain(|call| !call.commands.is_empty());
        calls
    }
}

impl Drop for Monitor<'_> {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A request under way.
fn request(client: &Arc<RedisStore>, count: u64) -> JoinHandle<Result<Segment, StoreError>> {
    let client = Arc::clone(client);
    tokio::spawn(async move { client.allocate(TAG, count, 0).await })
}

/// The numbers that a request gets: the first one, and the one behind the last.
async fn grant(client: &Arc<RedisStore>, count: u64) -> (u64, u64) {
    let segment = client.allocate(TAG, count, 0).await.unwrap();
    (segment.start, segment.end)
}

/// Takes so many numbers that follow one another; the first one.
async fn take_all(client: &Arc<RedisStore>, count: u64) -> u64 {
    let (start, mut end) = grant(client, count).await;
    while end - start < count {
        let next = grant(client, count - (end - start)).await;
        assert_eq!(next.0, end, "numbers follow one another");
        end = next.1;
    }
    start
}

fn unavailable() -> StoreError {
    StoreError::unavailable("the durable store is away".to_owned())
}

fn tail(segment: Segment, start: u64) -> TailRelease {
    TailRelease { start, version: segment.version }
}

fn is_ceiling(answer: &Result<Segment, StoreError>) -> bool {
    matches!(answer, Err(StoreError::CeilingReached { .. }))
}

// Incarnations.

#[tokio::test(flavor = "multi_thread")]
async fn numbers_of_another_incarnation_are_void() {
    let world = World::start();
    let client = world.client_with(many).await;
    take_all(&client, 10).await;
    let here = world.hash().remove("incarnation").unwrap();
    let (run, replication) = here.split_once(':').unwrap();
    let other = "0123456789abcdef0123456789abcdef01234567";
    for incarnation in [
        format!("{other}:{replication}"),
        format!("{run}:{other}"),
        format!("{run}:"),
        format!(":{replication}"),
        run.to_owned(),
        String::new(),
    ] {
        world.set(&[("incarnation", &incarnation)]);
        refuses_and_starts_anew(&world).await;
    }
    world.redis.cli(&["HDEL", KEY, "incarnation"]).unwrap();
    refuses_and_starts_anew(&world).await;
}

/// So many that no more are due.
fn many(options: &mut RedisOptions) {
    (options.raise_min, options.raise_max) = (10_000, 10_000);
}

/// Nothing is handed out and nothing changes while the durable store is away; then numbers go on above all others.
async fn refuses_and_starts_anew(world: &World) {
    let client = world.client_with(many).await;
    world.durable.fail(Some(unavailable));
    let before = world.numbers();
    assert!(is_ceiling(&client.allocate(TAG, 5, 0).await), "{before:?} is void");
    assert_eq!(world.numbers(), before, "a refusal changes nothing");
    world.durable.fail(None);
    let behind = world.watermark().await + 1;
    let client = world.client_with(many).await;
    assert_eq!(grant(&client, 5).await, (behind, behind + 5), "numbers that are void are not handed out");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_was_a_replica_for_a_while_is_another_incarnation() {
    let world = World::start();
    let client = world.client().await;
    // The first replica is the beginning of another history.
    let other = world.redis.start_replica(Persistence::Nothing).unwrap();
    take_all(&client, 10).await;
    other.wait_until(|_| other.cli(&["HGET", KEY, "left"]).is_ok_and(|left| left == "90")).unwrap();
    other.cli(&["REPLICAOF", "NO", "ONE"]).unwrap();
    assert_eq!(take_all(&client, 30).await, 11);
    // Back to what the other one has: the run is the same, and the counter an old one.
    world.redis.cli(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]).unwrap();
    world.redis.wait_until(|info| info.contains("master_link_status:up")).unwrap();
    world.redis.cli(&["REPLICAOF", "NO", "ONE"]).unwrap();
    assert_eq!(world.held(), held(101, 90, None, 0), "its numbers are those from before");
    assert_eq!(grant(&client, 10).await, (101, 111));
    // And so is the replica that became a master.
    let promoted = world.client_of(&other, |_| {}).await;
    assert!(grant(&promoted, 10).await.0 >= 201);
}

// The hash.

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_one_write_and_a_refusal_none() {
    let world = World::start();
    let client = world.client().await;
    world.two_intervals(&client).await;
    let monitor = Monitor::start(&world.redis).await;
    for (wanted, granted) in [(10, (81, 91)), (10, (91, 101)), (95, (171, 266)), (10, (266, 271))] {
        world.set(&[("low", "0")]);
        let before = monitor.calls().await.len();
        assert_eq!(grant(&client, wanted).await, granted);
        let calls = monitor.calls().await;
        let writes: Vec<&str> = calls[before..].iter().flat_map(Call::writes).collect();
        assert_eq!(writes.len(), 1, "a grant is one write: {writes:?}");
    }
    world.durable.fail(Some(unavailable));
    let before = monitor.calls().await.len();
    assert!(is_ceiling(&client.allocate(TAG, 10, 0).await));
    let refused = &monitor.calls().await[before];
    assert_eq!((refused.writes(), refused.has(&[KEY, "10"])), (vec![], true), "a refusal writes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_are_exact_however_great() {
    let world = World::start();
    let client = world.client().await;
    for start in [(1 << 53) - 250, 1_000_000_000_000_000_206, ID_MAX - 999] {
        let tag = format!("from.{start}");
        world.durable.inner.create_tag(&tag, &TagOptions { start, ..TagOptions::default() }).await.unwrap();
        let mut end = start;
        while end < start + 1_000 {
            let segment = client.allocate(&tag, 7, 0).await.unwrap();
            assert_eq!(segment.start, end, "each number once");
            assert!((1..=7).contains(&segment.count()));
            end = segment.end;
        }
    }
    let top = format!("from.{}", ID_MAX - 999);
    assert!(matches!(client.allocate(&top, 1, 0).await, Err(StoreError::Exhausted { .. })), "2^63 - 1 was the last");
    assert_eq!(world.hash_of(&top)["end"], (ID_MAX + 1).to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_across_the_ceiling_gets_what_is_left() {
    let world = World::start();
    let client = world.client().await;
    take_all(&client, 70).await;
    world.set(&[("low", "0")]);
    assert_eq!(grant(&client, 1_000).await, (71, 101));
    assert_eq!(world.held(), held(101, 0, None, 0));
    assert_eq!(grant(&client, 1_000).await, (101, 201));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_burns_nothing() {
    let world = World::start();
    let client = world.client().await;
    take_all(&client, 70).await;
    world.set(&[("low", "0")]);
    assert_eq!(grant(&client, 30).await, (71, 101));
    let before = world.numbers();
    world.durable.fail(Some(unavailable));
    for _ in 0..5 {
        assert!(is_ceiling(&world.client().await.allocate(TAG, 10, 0).await));
    }
    assert_eq!(world.numbers(), before, "nothing ran past the ceiling");
    world.durable.fail(None);
    assert_eq!(grant(&world.client().await, 10).await, (101, 111), "nor in the durable store");
}

// Installed at most once.

#[tokio::test(flavor = "multi_thread")]
async fn of_two_raises_at_once_one_is_installed_and_the_other_burnt() {
    let world = World::start();
    let (slow, quick) = (world.client().await, world.client().await);
    world.durable.hold(Place::AfterTheGrant);
    let waiting = request(&slow, 10);
    let late = world.durable.held().await;
    assert_eq!(late.granted.map(|granted| (granted.start, granted.end)), Some((1, 101)));
    // The claim keeps others away. Nothing depends on that.
    world.unclaim();
    world.durable.hold(Place::Nowhere);
    assert_eq!(grant(&quick, 10).await, (101, 111));
    let before = world.numbers();
    world.durable.hold(Place::BeforeTheGrant);
    late.let_go();
    let segment = waiting.await.unwrap().unwrap();
    assert_eq!((segment.start, segment.end), (111, 121), "numbers ascend, and 1 to 100 are burnt");
    assert_eq!(world.held(), held(201, 80, None, 0), "nothing was installed: {before:?}");
    assert_eq!(world.durable.asked(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_granted_to_an_incarnation_is_not_installed_in_the_next_one() {
    let mut world = World::start_with(Persistence::Rdb, TagCreation::default());
    let (slow, quick) = (world.client().await, world.client().await);
    world.durable.hold(Place::AfterTheGrant);
    let waiting = request(&slow, 10);
    let late = world.durable.held().await;
    world.redis.cli(&["SAVE"]).unwrap();
    let read = world.hash()["generation"].clone();
    world.unclaim();
    world.durable.hold(Place::Nowhere);
    assert_eq!(grant(&quick, 10).await, (101, 111));
    // Back comes the old file, and with it the generation that the slow one has read.
    world.redis.restart().unwrap();
    assert_eq!(world.hash()["generation"], read);
    // The slow one has to notice that its connection broke.
    granted_at_last(&slow, "another").await;
    late.let_go();
    let segment = waiting.await.unwrap().unwrap();
    assert_eq!((segment.start, segment.end), (201, 211), "1 to 100 are burnt, and 101 to 200 were another's");
    assert_eq!(world.held(), held(301, 90, None, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_former_durable_store_granted_is_not_installed() {
    let world = World::start();
    let slow = world.client().await;
    world.durable.hold(Place::AfterTheGrant);
    let waiting = request(&slow, 10);
    let late = world.durable.held().await;
    let options = RedisOptions::from_url(&world.redis.url(0, "")).unwrap();
    let before: Arc<dyn SegmentStore> = Arc::clone(&world.durable) as _;
    let stores = [(); 2].map(|()| Arc::<MemoryStore>::default() as Arc<dyn SegmentStore>);
    let [next, third] = &stores;
    let identity = next.identity().await.unwrap().unwrap().to_string();
    let alone = RedisStore::rebind(&options, &before, &before).await.unwrap_err();
    assert!(alone.to_string().contains("are one"), "{alone}");
    let unknown = RedisStore::rebind(&options, third, next).await.unwrap_err();
    assert!(unknown.to_string().contains("name the one that grants the numbers now"), "{unknown}");
    // It can be repeated.
    for known in [&before.identity().await.unwrap().unwrap().to_string(), &identity] {
        let rebound = RedisStore::rebind(&options, &before, next).await.unwrap();
        assert_eq!((&rebound.identity, rebound.before.get("sequences")), (&identity, Some(known)), "{rebound:?}");
    }
    late.let_go();
    let refused = waiting.await.unwrap().unwrap_err();
    assert!(matches!(&refused, StoreError::Refused { what, .. } if what.contains(&identity)), "{refused:?}");
    assert_eq!(world.held(), held(0, 0, None, 0), "nothing was installed");
    let store = RedisStore::connect(options.clone(), Backing::Durable(Arc::clone(next))).await.unwrap();
    assert_eq!(store.allocate(TAG, 10, 0).await.unwrap().start, RAISE + 1, "above all that was granted");

    // Redis forgets everything, and those who still have the store before ask first: in vain, also on another Redis.
    world.redis.cli(&["FLUSHALL"]).unwrap();
    let mut elsewhere = options.clone();
    "elsewhere".clone_into(&mut elsewhere.prefix);
    for refused in [
        slow.allocate(TAG, 10, 0).await.map(drop),
        RedisStore::connect(options.clone(), Backing::Durable(Arc::clone(&before))).await.map(drop),
        RedisStore::connect(elsewhere.clone(), Backing::Durable(Arc::clone(&before))).await.map(drop),
        RedisStore::rebind(&elsewhere, &before, third).await.map(drop),
    ] {
        assert!(matches!(&refused, Err(StoreError::Refused { .. })), "{refused:?}");
    }
    assert!(store.allocate(TAG, 10, 0).await.unwrap().start > RAISE + 10, "above what Redis had");
    RedisStore::rebind(&elsewhere, &before, next).await.unwrap();
    let nameless = RedisStore::connect(options, Backing::Durable(Arc::new(Nameless(MemoryStore::default())))).await;
    assert!(matches!(&nameless, Err(StoreError::Refused { what, .. }) if what.contains("no identity")), "{nameless:?}");
}

/// A durable store of somebody who did not think of an identity.
struct Nameless(MemoryStore);

#[async_trait]
impl unalike_storage::SegmentLayer for Nameless {
    fn below(&self) -> Option<&dyn SegmentStore> {
        Some(&self.0)
    }

    async fn identity(&self) -> Result<Option<StoreIdentity>, StoreError> {
        Ok(None)
    }
}

/// A durable store whose tags are more than their records say.
struct Special(MemoryStore);

#[async_trait]
impl unalike_storage::SegmentLayer for Special {
    fn below(&self) -> Option<&dyn SegmentStore> {
        Some(&self.0)
    }

    async fn folds_names(&self) -> Result<Option<String>, StoreError> {
        Ok(Some("letter case".to_owned()))
    }

    async fn beyond_record(&self, tag: &str) -> Result<Option<String>, StoreError> {
        Ok(Some(format!("digits in front of {tag}")))
    }
}

/// Whoever moves tags from there asks Redis.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_durable_store_says_of_its_tags_redis_says() {
    let redis = Redis::start(Persistence::Nothing).unwrap();
    let durable = Backing::Durable(Arc::new(Special(MemoryStore::default())));
    let options = RedisOptions::from_url(&redis.url(0, "")).unwrap();
    let store = RedisStore::connect(options, durable).await.unwrap();
    assert_eq!(store.folds_names().await.unwrap().as_deref(), Some("letter case"));
    assert_eq!(store.beyond_record(TAG).await.unwrap().as_deref(), Some("digits in front of order"));
    assert_eq!(store.beyond_records(&[TAG.to_owned()]).await.unwrap(), None, "one by one");
}

/// What a client gets that has to notice first that its connection broke.
async fn granted_at_last(client: &Arc<RedisStore>, tag: &str) -> (u64, u64) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match client.allocate(tag, 10, 0).await {
            Ok(segment) => return (segment.start, segment.end),
            Err(error) => assert!(error.is_retryable() && Instant::now() < deadline, "{error:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_makes_no_tag_that_is_missing() {
    let world = World::start();
    let client = world.client().await;
    take_all(&client, 70).await;
    world.set(&[("low", "0")]);
    take_all(&client, 30).await;
    world.durable.hold(Place::AfterTheGrant);
    let waiting = request(&client, 10);
    let late = world.durable.held().await;
    world.redis.cli(&["FLUSHALL"]).unwrap();
    late.let_go();
    // It has to be made before anything is asked for again.
    let next = world.durable.held().await;
    assert_eq!(world.held(), held(0, 0, None, 0), "it was made without numbers");
    next.let_go();
    let segment = waiting.await.unwrap().unwrap();
    assert_eq!((segment.start, segment.end), (201, 211), "101 to 200 are burnt");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_whose_outcome_is_unknown_is_not_sent_again() {
    let world = World::start();
    let soon = Duration::from_millis(200);
    let client = world.client_with(|options| (options.connect_timeout, options.request_timeout) = (soon, soon)).await;
    // The server knows the scripts.
    client.allocate("another", 1, 0).await.unwrap();
    let monitor = Monitor::start(&world.redis).await;
    world.durable.hold(Place::AfterTheGrant);
    let waiting = request(&client, 10);
    let late = world.durable.held().await;
    world.redis.pause().unwrap();
    world.durable.hold(Place::Nowhere);
    late.let_go();
    // The installation lies in the server's socket, and its answer does not come; nor does any other.
    let answer = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert!(answer.as_ref().is_err_and(StoreError::is_retryable), "{answer:?}");
    world.redis.resume().unwrap();
    let (start, _) = granted_at_last(&client, TAG).await;
    assert!([1, 11, 101].contains(&start), "the numbers came or are burnt: {start}");
    let sent = monitor.calls().await.iter().filter(|call| call.has(&["1", "101"])).count();
    assert_eq!(sent, 1, "it was sent once");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_whose_answer_is_lost_is_sent_once() {
    let world = World::start();
    let proxy = Proxy::start(world.redis.port()).unwrap();
    let client = world.client_at(&proxy.url(&world.redis.url(0, "preheat=false")), |_| {}).await;
    // The server knows the scripts.
    client.allocate("another", 1, 0).await.unwrap();
    let monitor = Monitor::start(&world.redis).await;
    proxy.lose_answer_with("installed");
    let (start, _) = granted_at_last(&client, TAG).await;
    assert!(proxy.has_lost() && start == 1, "the numbers came, and nobody heard of it: {start}");
    let sent = monitor.calls().await.iter().filter(|call| call.has(&["1", "101"])).count();
    assert_eq!(sent, 1, "it was sent once, though there was a connection again");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_arrives_twice_changes_nothing() {
    let world = World::start();
    let client = world.client().await;
    let monitor = Monitor::start(&world.redis).await;
    let segment = client.allocate(TAG, 10, 0).await.unwrap();
    resend(&world, &monitor, "101").await;
    assert!(client.release(TAG, tail(segment, 6)).await.unwrap());
    resend(&world, &monitor, "5").await;
    // The same once more, and there are as many left as then.
    assert_eq!(grant(&client, 5).await, (6, 11));
    resend(&world, &monitor, "5").await;
    client.raise_tag(TAG, 50).await.unwrap();
    resend(&world, &monitor, "51").await;
}

/// Sends the newest script with this argument once more.
async fn resend(world: &World, monitor: &Monitor<'_>, argument: &str) {
    let calls = monitor.calls().await;
    let call = calls.iter().rfind(|call| call.arguments.len() > 5 && call.has(&[argument])).unwrap();
    let before = world.hash();
    let words: Vec<&str> = call.arguments.iter().map(String::as_str).collect();
    let answer = world.redis.cli(&words).unwrap();
    assert_eq!(world.hash(), before, "{words:?}: {answer}");
}

// Growing.

#[tokio::test(flavor = "multi_thread")]
async fn a_raise_that_is_adjacent_extends_the_interval() {
    let world = World::start();
    let client = world.client().await;
    take_all(&client, 80).await;
    until("the ceiling rises", async || world.held() == held(201, 120, None, 0)).await;
    assert_eq!(world.hash()["claim"], "", "whoever comes next need not wait");
    assert_eq!(grant(&client, 50).await, (81, 131), "as one interval");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raise_that_is_not_adjacent_becomes_a_second_interval() {
    let world = World::start();
    let client = world.client().await;
    world.two_intervals(&client).await;
    world.set(&[("low", "0")]);
    assert_eq!(grant(&client, 50).await, (81, 101), "the first one first");
    assert_eq!(world.held(), held(101, 0, Some(271), 100));
    assert_eq!(grant(&client, 50).await, (171, 221), "then the second one, and nothing in between");
    assert_eq!(world.held(), held(271, 50, None, 0));
    take_all(&client, 50).await;
    assert_eq!(grant(&client, 10).await, (271, 281));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_third_interval_is_burnt_if_it_does_not_fit() {
    let world = World::start();
    let client = world.client().await;
    world.two_intervals(&client).await;
    // A quarter of the newest raise is more than is left, so more are due.
    world.set(&[("low", "500"), ("raised_by", "2000")]);
    assert_eq!(grant(&client, 5).await, (81, 86));
    until("the second interval grows", async || world.held() == held(101, 15, Some(371), 200)).await;
    world.take(70).await;
    world.set(&[("low", "500"), ("raised_by", "2000")]);
    let asked = world.durable.asked();
    for start in [86, 88, 90, 92] {
        assert_eq!(grant(&client, 2).await, (start, start + 2));
        until("the raise ends", async || world.hash()["claim"].is_empty()).await;
    }
    until("no more is due", async || world.hash()["low"] == "0").await;
    assert_eq!(world.durable.asked(), asked, "what would have no room is not asked for");
    assert_eq!(world.held(), held(101, 7, Some(371), 200));
    assert_eq!(grant(&client, 50).await, (94, 101));
    assert_eq!(grant(&client, 200).await, (171, 371));
    assert_eq!(grant(&client, 10).await, (441, 451), "numbers ascend");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raise_that_redis_could_not_count_is_burnt() {
    let world = World::start();
    let client = world.client().await;
    grant(&client, 10).await;
    world.durable.hold(Place::AfterTheGrant);
    grant(&client, 80).await;
    let raise = world.durable.held().await;
    // As many tails that came back meanwhile would make it.
    world.set(&[("left", &(NUMBERS_MAX - RAISE + 1).to_string())]);
    let before = world.numbers();
    raise.let_go();
    until("the raise ends", async || world.hash()["claim"].is_empty()).await;
    assert_eq!(world.numbers(), before, "one more than can be counted");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ceiling_is_durable_before_redis_learns_of_it() {
    let world = World::start();
    let client = world.client().await;
    for place in [Place::BeforeTheGrant, Place::AfterTheGrant] {
        world.durable.hold(place);
        let waiting = request(&client, 50);
        let raise = world.durable.held().await;
        let [end, left, ..] = world.held();
        assert!(end.parse::<u64>().unwrap() <= world.watermark().await + 1, "{place:?}");
        assert_eq!(left, "0", "{place:?}");
        raise.let_go();
        waiting.await.unwrap().unwrap();
        world.set(&[("left", "0"), ("given", "0"), ("low", "0")]);
    }
    world.durable.hold(Place::Nowhere);
    let clients = [client, world.client().await, world.client().await];
    let working: Vec<JoinHandle<()>> = clients
        .into_iter()
        .map(|client| {
            tokio::spawn(async move {
                for _ in 0..200 {
                    client.allocate(TAG, 30, 0).await.unwrap();
                }
            })
        })
        .collect();
    while working.iter().any(|working| !working.is_finished()) {
        let [end, _, next_end, _] = world.held();
        let ceiling = next_end.parse::<u64>().or(end.parse()).unwrap();
        assert!(ceiling <= world.watermark().await + 1, "the ceiling {ceiling} is not durable");
        tokio::task::yield_now().await;
    }
    for working in working {
        working.await.unwrap();
    }
}

// Raising and ending tags.

/// Where a tag with two intervals that are apart is told to go on, and where it does.
const FLOORS: [(u64, u64); 10] =
    [(1, 81), (81, 81), (83, 83), (90, 90), (100, 100), (101, 171), (171, 171), (200, 200), (270, 270), (5_000, 5_000)];

#[tokio::test(flavor = "multi_thread")]
async fn a_raised_tag_goes_on_exactly_there_and_never_back() {
    for (next, start) in FLOORS {
        let world = World::start();
        let client = world.client().await;
        world.two_intervals(&client).await;
        world.set(&[("low", "0")]);
        let given = client.ceiling(TAG).await.unwrap().unwrap();
        world.client().await.raise_tag(TAG, next).await.unwrap();
        let skipped = client.ceiling(TAG).await.unwrap().unwrap();
        assert_eq!((skipped.max, skipped.used_recently), (given.max, given.used_recently), "no number was used");
        assert_eq!(grant(&client, 1).await.0, start, "raised to {next}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raised_tag_takes_nothing_from_a_raise_that_was_under_way() {
    let world = World::start();
    let client = world.client().await;
    world.durable.hold(Place::AfterTheGrant);
    let waiting = request(&client, 10);
    let late = world.durable.held().await;
    world.client().await.raise_tag(TAG, 1_000).await.unwrap();
    world.durable.hold(Place::Nowhere);
    late.let_go();
    let segment = waiting.await.unwrap().unwrap();
    assert_eq!((segment.start, segment.end), (1_000, 1_010));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_is_raised_or_ended_in_the_durable_store_first() {
    for ends in [false, true] {
        let world = World::start();
        let (client, other) = (world.client().await, world.client().await);
        world.durable.inner.open_tag(TAG).await.unwrap();
        world.durable.hold(Place::BeforeTheGrant);
        let raising =
            tokio::spawn(
                async move { if ends { other.retire_tag(TAG).await } else { other.raise_tag(TAG, 1_000).await } },
            );
        let raise = world.durable.held().await;
        world.durable.hold(Place::Nowhere);
        // What comes to Redis in the meantime is gone afterwards.
        assert_eq!(grant(&client, 10).await, (1, 11));
        raise.let_go();
        raising.await.unwrap().unwrap();
        match client.allocate(TAG, 10, 0).await {
            Ok(segment) => assert!(!ends && segment.start == 1_000, "{segment:?}"),
            Err(error) => assert!(ends && matches!(error, StoreError::Exhausted { .. }), "{error:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_tag_grants_nothing_that_redis_has() {
    let world = World::start();
    let client = world.client().await;
    world.two_intervals(&client).await;
    let record = world.client().await.retire_tag(TAG).await.unwrap();
    assert_eq!(record.watermark, 270, "numbers go on elsewhere from behind the ceiling");
    for client in [&client, &world.client().await] {
        assert!(matches!(client.allocate(TAG, 1, 0).await, Err(StoreError::Exhausted { .. })));
    }
    assert_eq!(world.held(), held(101, 0, Some(271), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_tag_takes_nothing_from_a_raise_that_was_under_way() {
    let world = World::start();
    let client = world.client().await;
    world.durable.hold(Place::AfterTheGrant);
    let waiting = request(&client, 10);
    let late = world.durable.held().await;
    world.client().await.retire_tag(TAG).await.unwrap();
    world.durable.hold(Place::Nowhere);
    late.let_go();
    assert!(matches!(waiting.await.unwrap(), Err(StoreError::Exhausted { .. })));
    assert_eq!(world.held(), held(0, 0, None, 0));
}

// Tails.

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_is_taken_back_once() {
    let world = World::start();
    let client = world.client().await;
    let segment = client.allocate(TAG, 10, 0).await.unwrap();
    let monitor = Monitor::start(&world.redis).await;
    for (start, version) in [(0, 0), (6, 1), (11, 0), (u64::MAX, 0)] {
        let wrong = TailRelease { start, version: segment.version + version };
        assert!(!client.release(TAG, wrong).await.unwrap(), "{wrong:?} is not of the newest grant");
    }
    assert!(monitor.calls().await.is_empty(), "and is not even sent");
    assert!(client.release(TAG, tail(segment, 6)).await.unwrap());
    assert!(!client.release(TAG, tail(segment, 6)).await.unwrap());
    assert_eq!(monitor.calls().await.len(), 1, "it is sent once");
    assert_eq!(grant(&client, 10).await, (6, 16));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_is_not_taken_back_after_anything_else() {
    let acts = [
        "another grant",
        "another grant and its tail",
        "a raise of the tag",
        "the loss of all keys",
        "another incarnation",
        "a raise of the ceiling",
    ];
    for what in acts {
        let world = World::start();
        let keeps = |options: &mut RedisOptions| options.keep_every = Duration::from_millis(5);
        let (client, other) = (world.client_with(keeps).await, world.client().await);
        world.durable.hold(Place::AfterTheGrant);
        let waiting = request(&client, 10);
        world.durable.held().await.let_go();
        let segment = waiting.await.unwrap().unwrap();
        match what {
            "another grant" => assert_eq!(grant(&other, 1).await, (11, 12)),
            "another grant and its tail" => {
                let segment = other.allocate(TAG, 10, 0).await.unwrap();
                assert!(other.release(TAG, tail(segment, segment.start)).await.unwrap());
            }
            "a raise of the tag" => drop(other.raise_tag(TAG, 1).await.unwrap()),
            "the loss of all keys" => drop(world.redis.cli(&["FLUSHALL"]).unwrap()),
            "another incarnation" => world.set(&[("incarnation", "0:0")]),
            _ => {
                // A quarter of the newest raise is more than is left.
                world.set(&[("raised_by", "2000")]);
                world.durable.held().await.let_go();
                until("the ceiling rises", async || world.held() == held(201, 190, None, 0)).await;
            }
        }
        let before = world.hash().remove("left");
        assert!(!client.release(TAG, tail(segment, 6)).await.unwrap(), "after {what}");
        assert_eq!(world.hash().remove("left"), before, "after {what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tails_that_go_round_are_told_apart() {
    let world = World::start();
    let (first, second) = (world.client().await, world.client().await);
    let a = first.allocate(TAG, 10, 0).await.unwrap();
    assert!(first.release(TAG, tail(a, 6)).await.unwrap());
    let b = second.allocate(TAG, 5, 0).await.unwrap();
    assert_eq!((b.start, b.end), (6, 11), "the same numbers again");
    assert!(b.version > a.version);
    assert!(!first.release(TAG, tail(a, 6)).await.unwrap(), "they are somebody else's");
    assert!(second.release(TAG, tail(b, 8)).await.unwrap());
    let c = first.allocate(TAG, 3, 0).await.unwrap();
    assert_eq!((c.start, c.end), (8, 11));
    assert!(!second.release(TAG, tail(b, 8)).await.unwrap());
    assert_eq!(grant(&second, 1).await, (11, 12));
}

// Floors.

#[tokio::test(flavor = "multi_thread")]
async fn a_floor_skips_exactly_and_never_back() {
    for (at_least, start) in FLOORS {
        let world = World::start();
        let client = world.client().await;
        world.two_intervals(&client).await;
        world.set(&[("low", "0")]);
        let segment = client.allocate(TAG, 5, at_least).await.unwrap();
        // What is granted begins below the floor perhaps, and the part above it is the caller's.
        assert_eq!(segment.start, start, "at least {at_least}");
        assert_eq!(client.allocate(TAG, 5, 1).await.unwrap().start, after(segment.end), "never back");
    }
}

/// The number that follows in [`World::two_intervals`].
fn after(end: u64) -> u64 {
    if end == 101 { 171 } else { end }
}

// Growth.

/// A history of use: `recently` numbers in the last 5 minutes, `long_term` in the last 30, and then nothing is left.
fn set_history(world: &World, recently: u64, long_term: u64, left: u64) {
    let now = world.now_ms();
    let before = 1_000_000_000;
    let samples =
        format!("{} {before};{} {};", now - 30 * MINUTE_MS, now - 5 * MINUTE_MS, before + long_term - recently);
    let given = (before + long_term + left).to_string();
    let (now, left) = (now.to_string(), left.to_string());
    world.set(&[("given", &given), ("samples", &samples), ("sampled_ms", &now), ("left", &left), ("low", "0")]);
    // The newest raise was of no size.
    world.set(&[("raised_by", "0"), ("version_base", &given)]);
}

/// What is said of an hour at the pace of `numbers` in `minutes`, which ended between two points of time.
fn an_hour(numbers: u64, minutes: u64, from_ms: u64, to_ms: u64) -> std::ops::RangeInclusive<u64> {
    let at = |late_ms: u64| (numbers * 60 * MINUTE_MS).div_ceil(minutes * MINUTE_MS + late_ms);
    at(to_ms - from_ms)..=at(0)
}

fn unbounded(options: &mut RedisOptions) {
    (options.raise_min, options.raise_max) = (1, 1 << 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ceiling_rises_by_the_use_of_the_next_hour() {
    for (recently, long_term, minutes) in [(60_000, 90_000, 5), (5_000, 900_000, 30)] {
        let world = World::start();
        let client = world.client_with(unbounded).await;
        grant(&client, 1).await;
        world.take(1).await;
        let from = world.now_ms();
        set_history(&world, recently, long_term, 0);
        let watermark = world.watermark().await;
        grant(&client, 1).await;
        let numbers = if minutes == 5 { recently } else { long_term };
        let hour = an_hour(numbers, minutes, from, world.now_ms());
        let rise = world.watermark().await - watermark;
        assert!(hour.contains(&rise), "{rise} is the use of an hour, {hour:?}");
        let before = world.now_ms();
        let ceiling = client.ceiling(TAG).await.unwrap().unwrap();
        assert!(world.now_ms() - before < MINUTE_MS, "the figures are those of now");
        let used = Ceiling {
            last: watermark + 1,
            max: watermark + rise,
            used_recently: recently + 1,
            used_long_term: long_term + 1,
        };
        assert_eq!(ceiling, used);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn use_is_noted_once_a_minute_for_half_an_hour() {
    let world = World::start();
    let client = world.client_with(|options| options.keep_every = Duration::from_millis(5)).await;
    take_all(&client, 10).await;
    world.durable.fail(Some(unavailable));
    let now = world.now_ms();
    let minutes = |minutes: u64| now - minutes * MINUTE_MS;
    // One of the future: the clock went back. When the newest note was made may be there too.
    let samples = format!("{} 1;{} 2;{} 3;{} 4;", minutes(40), minutes(31), minutes(29), now + 60 * MINUTE_MS);
    let mut noted = String::new();
    for sampled_ms in [minutes(1), now + 60 * MINUTE_MS] {
        world.set(&[("samples", &samples), ("sampled_ms", &sampled_ms.to_string())]);
        until("a note", async || world.hash()["samples"] != samples).await;
        let hash = world.hash();
        noted = format!("{} 2;{} 3;{} 10;", minutes(31), minutes(29), hash["sampled_ms"]);
        assert_eq!(hash["samples"], noted, "old notes are forgotten, but one");
    }
    let monitor = Monitor::start(&world.redis).await;
    until("looks", async || monitor.seen().iter().filter(|call| call.has(&[KEY, "60000"])).count() > 5).await;
    if world.now_ms() - now < MINUTE_MS {
        assert_eq!(world.hash()["samples"], noted, "the next one is due in a minute");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ceiling_rises_before_it_is_reached() {
    let world = World::start();
    let quick = |options: &mut RedisOptions| {
        unbounded(options);
        options.raise_min = 1_000;
        options.keep_every = Duration::from_millis(5);
    };
    let clients = [world.client_with(quick).await, world.client_with(quick).await, world.client_with(quick).await];
    for client in &clients {
        grant(client, 1).await;
    }
    // 12,000 in an hour, so 3,000 last for 15 minutes.
    set_history(&world, 1_000, 1_000, 3_050);
    world.set(&[("end", "4051"), ("low", "7")]);
    world.take(3_050).await;
    let before = world.durable.asked();
    until("it is noted when more are due", async || (2_900..=3_000).contains(&world.hash()["low"].parse().unwrap()))
        .await;
    assert_eq!(world.durable.asked(), before, "those that are left will last");

    world.durable.hold(Place::AfterTheGrant);
    world.set(&[("left", "2500"), ("given", &(1_000_000_000 + 1_000 + 2_500).to_string())]);
    let monitor = Monitor::start(&world.redis).await;
    let raise = world.durable.held().await;
    until("all three look", async || monitor.seen().iter().filter(|call| call.has(&[KEY, "60000"])).count() > 10).await;
    let has_another = world.durable.has_held().await;
    world.durable.hold(Place::Nowhere);
    raise.let_go();
    until("it rises", async || world.hash()["left"].parse::<u64>().unwrap() > 10_000 || world.held()[3] != "0").await;
    assert!(!has_another, "one of three asks the durable store");
    let mut end = 0;
    for client in clients.iter().cycle().take(30) {
        let granted = grant(client, 100).await;
        assert!(granted.0 >= end, "each number once");
        end = granted.1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ceiling_does_not_rise_before_it_is_due() {
    let world = World::start();
    let client = world.client_with(many).await;
    grant(&client, 10).await;
    // Somebody thought that more are due soon; whoever comes to raise the ceiling looks himself.
    world.set(&[("low", "9999")]);
    grant(&client, 10).await;
    until("it is noted when more are due", async || world.hash()["low"] == "2500").await;
    assert_eq!(world.durable.asked(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ceiling_that_cannot_rise_is_let_alone() {
    let world = World::start();
    let client = world.client().await;
    world.durable.inner.open_tag(TAG).await.unwrap();
    world.durable.inner.raise_tag(TAG, ID_MAX - 99).await.unwrap();
    take_all(&client, 80).await;
    until("it is noted that there are no more", async || world.hash()["low"] == "0").await;
    for _ in 0..5 {
        grant(&client, 2).await;
    }
    assert_eq!(world.durable.asked(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raise_that_did_not_last_is_followed_by_one_twice_as_large() {
    for (raised_ago, rise) in [(1, 2_000), (14, 2_000), (16, 100)] {
        let world = World::start();
        let client = world.client_with(|options| options.raise_max = 1 << 40).await;
        grant(&client, 1).await;
        let raised_ms = (world.now_ms() - raised_ago * MINUTE_MS).to_string();
        world.set(&[("raised_by", "1000"), ("raised_ms", &raised_ms), ("left", "0"), ("given", "0")]);
        grant(&client, 1).await;
        assert_eq!(world.watermark().await, 100 + rise, "raised {raised_ago} minutes ago");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_that_were_lost_say_nothing_of_use() {
    let mut world = World::start_with(Persistence::AofAlways, TagCreation::default());
    let raises = |options: &mut RedisOptions| (options.raise_min, options.raise_max) = (1_000, 100_000);
    let client = world.client_with(raises).await;
    grant(&client, 1).await;
    for lost in 1..=3 {
        world.redis.restart().unwrap();
        // With a connection of its own, so that no number is asked for in vain.
        let client = world.client_with(raises).await;
        assert_eq!(grant(&client, 1).await.0, 1 + lost * 1_000, "no raise is greater than the one before");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_more_than_a_raise_has_gets_it() {
    let world = World::start();
    let client = world.client_with(|options| options.raise_max = 10_000).await;
    assert_eq!(grant(&client, 5_000).await, (1, 5_001));
    world.set(&[("left", "0"), ("raised_ms", "0")]);
    let (start, end) = grant(&client, u64::MAX).await;
    assert_eq!(end - start, 10_000, "as much as a raise may have");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_number_of_two_intervals_is_known() {
    let world = World::start();
    let client = world.client().await;
    world.two_intervals(&client).await;
    world.durable.fail(Some(unavailable));
    let last = async || client.ceiling(TAG).await.unwrap().map(|ceiling| (ceiling.last, ceiling.max));
    assert_eq!(last().await, Some((80, 270)));
    grant(&client, 20).await;
    assert_eq!(last().await, Some((100, 270)));
    grant(&client, 5).await;
    assert_eq!(last().await, Some((175, 270)));
    world.redis.cli(&["HSET", KEY, "incarnation", "another"]).unwrap();
    assert_eq!(last().await, Some((270, 270)), "what is void cannot be handed out");
}

#[tokio::test(flavor = "multi_thread")]
async fn as_much_as_redis_can_count_is_granted_again_and_again() {
    let world = World::start();
    let most = |options: &mut RedisOptions| (options.raise_min, options.raise_max) = (NUMBERS_MAX, NUMBERS_MAX);
    let client = world.client_with(most).await;
    for raise in 0..4 {
        let start = 1 + raise * NUMBERS_MAX;
        for number in 0..3 {
            assert_eq!(grant(&client, 1).await, (start + number, start + number + 1), "exact to the last digit");
        }
        let segment = client.allocate(TAG, 4, 0).await.unwrap();
        assert!(!client.release(TAG, tail(segment, segment.end)).await.unwrap());
        // What has been given back cannot be counted any more; a gap can.
        let was_taken = client.release(TAG, tail(segment, segment.start + 2)).await.unwrap();
        assert_eq!(grant(&client, 1).await.0, segment.start + if was_taken { 2 } else { 4 });
        world.set(&[("low", "0")]);
        let rest = grant(&client, u64::MAX).await;
        assert_eq!(rest.1, 1 + (raise + 1) * NUMBERS_MAX);
    }
    client.raise_tag(TAG, 5 * NUMBERS_MAX).await.unwrap();
    assert_eq!(grant(&client, 1).await.0, 5 * NUMBERS_MAX);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_is_not_taken_back_where_versions_end() {
    let world = World::start();
    let client = world.client().await;
    let version_base = |below: u64| {
        let left = world.hash()["left"].parse::<u64>().unwrap();
        (left, (NUMBERS_MAX - below).to_string())
    };
    world.client().await.allocate(TAG, 10, 0).await.unwrap();
    let (_, base) = version_base(4);
    world.set(&[("version_base", &base)]);
    let segment = client.allocate(TAG, 10, 0).await.unwrap();
    assert!(client.release(TAG, tail(segment, segment.end - 2)).await.unwrap());
    let segment = client.allocate(TAG, 10, 0).await.unwrap();
    assert!(!client.release(TAG, tail(segment, segment.end - 2)).await.unwrap(), "its version would not be exact");
    assert_eq!(grant(&client, 1).await.0, segment.end);
}

// A Redis that lost its data.

#[tokio::test(flavor = "multi_thread")]
async fn known_tags_have_numbers_before_anybody_asks() {
    let world = World::start();
    let client = world.client().await;
    for tag in ["a.ended", "b.used", "c.damaged", "d.used"] {
        client.allocate(tag, 1, 0).await.unwrap();
    }
    client.open_tag("b.unused").await.unwrap();
    client.retire_tag("a.ended").await.unwrap();
    world.redis.cli(&["FLUSHALL"]).unwrap();
    world.redis.cli(&["SET", "unalike:{c.damaged}", "something else"]).unwrap();
    let _host = world.client_with(|options| options.preheat = true).await;
    for tag in ["b.used", "d.used"] {
        until(tag, async || world.hash_of(tag).get("left").is_some_and(|left| left == "100")).await;
    }
    assert!(world.hash_of("b.unused").is_empty(), "a tag that nobody used costs no numbers");
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_get_no_numbers_beforehand_if_that_is_not_wanted() {
    let world = World::start();
    take_all(&world.client().await, 10).await;
    world.redis.cli(&["FLUSHALL"]).unwrap();
    let client = world.client_with(|options| options.keep_every = Duration::from_millis(5)).await;
    client.allocate("another", 1, 0).await.unwrap();
    let monitor = Monitor::start(&world.redis).await;
    // It keeps what is in use, so the beginning is over.
    until("it looks", async || monitor.seen().iter().any(|call| call.has(&["unalike:{another}", "60000"]))).await;
    assert!(world.hash().is_empty());
}

// Past the ceiling.

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_store_that_does_not_answer_is_waited_for_a_while() {
    let world = World::start();
    let raise_timeout = Duration::from_millis(100);
    let client = world.client_with(|options| options.raise_timeout = raise_timeout).await;
    take_all(&world.client().await, 80).await;
    until("the ceiling rises", async || world.held() == held(201, 120, None, 0)).await;
    world.durable.hold(Place::BeforeTheGrant);
    for _ in 0..12 {
        client.allocate(TAG, 10, 0).await.unwrap();
    }
    let raise = world.durable.held().await;
    for _ in 0..3 {
        let asked = Instant::now();
        let answer = client.allocate(TAG, 10, 0).await;
        assert!(asked.elapsed() >= raise_timeout, "it waits");
        let Err(StoreError::CeilingReached { tag, retry_after_ms, .. }) = answer else { panic!("{answer:?}") };
        assert!(tag == TAG && (1..=3_000).contains(&retry_after_ms), "{tag}, {retry_after_ms} ms");
    }
    // Another host has no better chance, and waits as long as the claim lasts at most.
    let other = world.client_with(|options| options.raise_timeout = raise_timeout).await;
    if let Err(StoreError::CeilingReached { retry_after_ms, .. }) = other.allocate(TAG, 10, 0).await {
        assert!((1..=3_000).contains(&retry_after_ms), "{retry_after_ms} ms");
    }
    world.durable.hold(Place::Nowhere);
    raise.let_go();
    let (start, _) = granted_at_last(&client, TAG).await;
    assert!(start >= 201, "{start}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_store_that_fails_is_left_alone_for_a_while() {
    let world = World::start();
    let client = world.client().await;
    world.durable.fail(Some(unavailable));
    let begun = Instant::now();
    let error = client.allocate(TAG, 10, 0).await.unwrap_err();
    let source = std::error::Error::source(&error).expect("the error says why").to_string();
    assert!(source.contains("the durable store is away"), "{source}");
    assert!(matches!(error, StoreError::CeilingReached { retry_after_ms: 100, .. }), "{error:?}");
    let mut longest = 0;
    while longest < 1_000 {
        let Err(StoreError::CeilingReached { retry_after_ms, source, .. }) = client.allocate(TAG, 10, 0).await else {
            panic!("there is no number")
        };
        assert!((1..=1_600).contains(&retry_after_ms));
        let source = source.expect("it says why all the time").to_string();
        assert!(source.contains("the durable store is away"), "{source}");
        longest = longest.max(retry_after_ms);
        // Twice as long after each failure: so often it may have been asked by now.
        let mut asks = 1;
        while Duration::from_millis(100 * ((1 << asks) - 1)) <= begun.elapsed() {
            asks += 1;
        }
        assert!(world.durable.asked() <= asks, "{} times", world.durable.asked());
    }
    // For other tags as well.
    let asked = world.durable.asked();
    let other = client.allocate("another", 1, 0).await;
    assert!(is_ceiling(&other) && world.durable.asked() - asked <= 1, "{other:?}");
    world.durable.fail(None);
    assert_eq!(granted_at_last(&client, TAG).await, (1, 11));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_asks_the_durable_store_once() {
    let world = World::start();
    let clients = [world.client_with(many).await, world.client_with(many).await, world.client_with(many).await];
    let monitor = Monitor::start(&world.redis).await;
    world.durable.hold(Place::AfterTheGrant);
    let waiting: Vec<_> = clients.iter().cycle().take(60).map(|client| request(client, 10)).collect();
    let raise = world.durable.held().await;
    let claims = || monitor.seen().iter().filter(|call| call.has(&["3000", ""])).count();
    until("the others find it claimed", async || claims() > 4).await;
    assert!(!world.durable.has_held().await, "one client asks the durable store");
    world.durable.hold(Place::Nowhere);
    raise.let_go();
    let mut granted = Vec::new();
    for waiting in waiting {
        granted.push(waiting.await.unwrap().unwrap().start);
    }
    granted.sort_unstable();
    assert_eq!(granted, (0..60).map(|grant| 1 + 10 * grant).collect::<Vec<u64>>(), "each number once");
    assert_eq!(world.durable.asked(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_ends_by_itself() {
    let world = World::start();
    let client = world.client().await;
    grant(&client, 1).await;
    let spend_and_claim = |until_ms: u64| {
        world.set(&[("left", "0"), ("given", "0"), ("low", "0")]);
        world.set(&[("claim", "somebody who is gone"), ("claim_until_ms", &until_ms.to_string())]);
    };
    spend_and_claim(world.now_ms() + 3_000);
    let hasty = world.client_with(|options| options.raise_timeout = Duration::from_millis(50)).await;
    if let Err(StoreError::CeilingReached { retry_after_ms, .. }) = hasty.allocate(TAG, 10, 0).await {
        assert!((1..=3_000).contains(&retry_after_ms), "{retry_after_ms} ms");
    }
    assert_eq!(grant(&client, 10).await, (101, 111));
    // The clock went back by an hour.
    spend_and_claim(world.now_ms() + 60 * MINUTE_MS);
    let patient = world.client_with(|options| options.raise_timeout = Duration::from_secs(10)).await;
    assert_eq!(grant(&patient, 10).await, (201, 211));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_dropped_leaves_nothing_stuck() {
    let world = World::start();
    let client = world.client().await;
    for polls in 0..25 {
        let tag = format!("dropped.{polls}");
        let mut request = Box::pin(client.allocate(&tag, 10, 0));
        let mut polled = 0;
        std::future::poll_fn(|context| {
            polled += 1;
            if polled > polls || request.as_mut().poll(context).is_ready() {
                return std::task::Poll::Ready(());
            }
            std::task::Poll::Pending
        })
        .await;
        drop(request);
        let next = tokio::time::timeout(PATIENCE, client.allocate(&tag, 10, 0)).await.unwrap().unwrap();
        assert!(next.start == 1 || next.start == 11, "{next:?} after {polls} polls");
    }
    // One that has claimed the tag: what it began is finished.
    world.durable.hold(Place::AfterTheGrant);
    let asked = world.durable.asked();
    let waiting = request(&client, 10);
    let raise = world.durable.held().await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    raise.let_go();
    until("it is installed", async || world.held() == held(101, 100, None, 0)).await;
    assert_eq!(grant(&client, 10).await, (1, 11));
    assert_eq!(world.durable.asked(), asked + 1);
}

// Errors.

#[tokio::test(flavor = "multi_thread")]
async fn errors_that_are_not_worth_a_retry_come_as_they_are() {
    let closed = World::start_with(Persistence::Nothing, TagCreation { on_first_use: false, tags_max: 1 });
    let quick = |options: &mut RedisOptions| options.keep_every = Duration::from_millis(5);
    let client = closed.client_with(quick).await;
    for _ in 0..2 {
        assert!(matches!(client.allocate(TAG, 1, 0).await, Err(StoreError::TagUnknown { .. })));
        assert_eq!(
            closed.redis.cli(&["KEYS", "*"]).unwrap(),
            "unalike:durable",
            "an unknown tag leaves nothing in Redis"
        );
    }
    client.create_tag("known", &TagOptions::default()).await.unwrap();
    client.allocate("known", 1, 0).await.unwrap();
    let monitor = Monitor::start(&closed.redis).await;
    let looks = |key: &str| monitor.seen().iter().filter(|call| call.has(&[key, "60000"])).count();
    until("two rounds", async || looks("unalike:{known}") > 2).await;
    assert_eq!(looks(KEY), 0, "nor in the client, which would look after it");

    let limited = World::start_with(Persistence::Nothing, TagCreation { on_first_use: true, tags_max: 0 });
    let client = limited.client().await;
    assert!(matches!(client.allocate(TAG, 1, 0).await, Err(StoreError::TagLimit { tags_max: 0, .. })));
    assert_eq!(limited.redis.cli(&["KEYS", "*"]).unwrap(), "unalike:durable");

    let world = World::start();
    let client = world.client().await;
    world.durable.fail(Some(|| StoreError::refused("no".to_owned())));
    for asked in 1..=3 {
        let error = client.allocate(TAG, 1, 0).await.unwrap_err();
        assert!(matches!(&error, StoreError::Refused { what, .. } if what == "no"), "{error:?}");
        assert_eq!(world.durable.asked(), asked, "it is not taken for a failure that passes");
    }
    world.durable.fail(None);
    client.raise_tag(TAG, ID_MAX).await.unwrap();
    assert_eq!(grant(&client, 5).await, (ID_MAX, ID_MAX + 1));
    for _ in 0..3 {
        assert!(matches!(client.allocate(TAG, 1, 0).await, Err(StoreError::Exhausted { .. })));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_makes_no_tag_that_is_missing() {
    let world = World::start();
    let client = world.client().await;
    world.durable.hold(Place::BeforeTheGrant);
    world.durable.fail(Some(|| StoreError::refused("no".to_owned())));
    let waiting = request(&client, 10);
    let raise = world.durable.held().await;
    world.redis.cli(&["FLUSHALL"]).unwrap();
    raise.let_go();
    waiting.await.unwrap().unwrap_err();
    assert_eq!(world.redis.cli(&["DBSIZE"]).unwrap(), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_tag_is_nothing_to_the_others() {
    let world = World::start();
    let keeps = |options: &mut RedisOptions| {
        (options.raise_min, options.raise_max) = (1_000, 1_000);
        options.keep_every = Duration::from_millis(5);
    };
    let client = world.client_with(keeps).await;
    client.allocate(TAG, 10, 0).await.unwrap();
    for number in 0..20 {
        let tag = format!("damaged.{number}");
        client.allocate(&tag, 10, 0).await.unwrap();
        world.redis.cli(&["HDEL", &format!("unalike:{{{tag}}}"), "given"]).unwrap();
    }
    assert_eq!(world.held(), held(1_001, 990, None, 0));
    // A quarter of the newest raise is more than is left.
    world.set(&[("raised_by", "8000")]);
    until("the ceiling rises", async || world.held() == held(2_001, 1_990, None, 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_that_redis_cannot_hand_out_are_refused() {
    let world = World::start();
    let client = world.client().await;
    let unfit: [fn(Segment) -> Segment; 4] = [
        |segment| Segment { stride: 2, ..segment },
        |segment| Segment { generation: 1, ..segment },
        |segment| Segment { end: segment.end + 1, ..segment },
        |segment| Segment { end: segment.start, ..segment },
    ];
    for unfit in unfit {
        world.durable.make(unfit);
        let error = client.allocate(TAG, 10, 0).await.unwrap_err();
        assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
        assert_eq!(world.held(), held(0, 0, None, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_below_those_that_redis_had_are_refused() {
    let world = World::start();
    let client = world.client().await;
    grant(&client, 10).await;
    world.set(&[("left", "0")]);
    world.durable.make(|segment| Segment { start: 1, end: 1 + segment.count(), ..segment });
    let error = client.allocate(TAG, 10, 0).await.unwrap_err();
    let went_back =
        matches!(&error, StoreError::Corrupt { what, .. } if what.contains("it lost data, or is another store"));
    assert!(went_back, "{error:?}");
    assert_eq!(world.held(), held(101, 0, None, 0));
    world.durable.make(|segment| segment);
    assert_eq!(grant(&client, 10).await, (201, 211), "what was refused is burnt");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_store_that_lost_data_is_refused_until_its_tag_is_raised() {
    let world = World::start();
    let client = world.client().await;
    grant(&client, 10).await;
    // The durable store was restored from a copy that lacks the newest grants.
    world.set(&[("end", "301"), ("left", "0")]);
    let refused = async |client: &RedisStore| {
        let error = client.allocate(TAG, 10, 0).await.unwrap_err();
        let went_back = matches!(&error, StoreError::Corrupt { what, .. } if what.contains("up to 100, and Redis had it up to 300"));
        assert!(went_back, "{error:?}");
    };
    for _ in 0..3 {
        refused(&client).await;
    }
    // The next program does not use the notice up either.
    let another = world.client().await;
    for _ in 0..3 {
        refused(&another).await;
    }
    assert_eq!(world.durable.asked(), 1, "nothing is granted that had to be burnt");
    world.durable.inner.raise_tag(TAG, 301).await.unwrap();
    assert_eq!(grant(&another, 10).await, (301, 311));
    assert_eq!(grant(&client, 10).await, (311, 321));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_was_made_again_above_what_redis_had_goes_on() {
    let world = World::start();
    let client = world.client().await;
    grant(&client, 10).await;
    world.set(&[("left", "0")]);
    world.durable.inner.lose_all().unwrap();
    let above = TagOptions { start: 1_000, ..TagOptions::default() };
    world.durable.inner.create_tag(TAG, &above).await.unwrap();
    assert_eq!(grant(&client, 10).await, (1_000, 1_010));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_hash_hands_nothing_out() {
    let world = World::start();
    let client = world.client().await;
    world.two_intervals(&client).await;
    world.set(&[("low", "0")]);
    let whole = world.hash();
    let checked = ["end", "left", "next_end", "next_left", "version_base", "durable_version", "low"];
    // These are read when more are wanted.
    let later = ["given", "raised_by", "raised_ms", "samples", "sampled_ms"];
    let numbers = ["x", "-5", "1.5", " 1", "1e3", "0x10", "9007199254740992.5"];
    let mut damages: Vec<(&str, Option<&str>)> = Vec::new();
    for field in checked.into_iter().chain(later) {
        damages.push((field, None));
        let values = numbers.iter().filter(|_| field != "samples");
        damages.extend(values.map(|&value| (field, Some(value))));
    }
    for field in ["left", "next_left", "version_base", "given", "sampled_ms"] {
        damages.push((field, Some("")));
        damages.push((field, Some("9007199254740992")));
    }
    damages.extend([("end", Some("")), ("durable_version", Some("")), ("low", Some(""))]);
    for (field, value) in damages {
        world.redis.cli(&["DEL", KEY]).unwrap();
        world.set(&whole.iter().map(|(field, value)| (field.as_str(), value.as_str())).collect::<Vec<_>>());
        if later.contains(&field) {
            world.set(&[("left", "0"), ("next_end", ""), ("next_left", "0")]);
        }
        match value {
            None => drop(world.redis.cli(&["HDEL", KEY, field]).unwrap()),
            Some(value) => world.set(&[(field, value)]),
        }
        let before = world.numbers();
        let asked = world.durable.asked();
        damaged(client.allocate(TAG, 10, 0).await, &format!("{field} is {value:?}"));
        assert_eq!((world.numbers(), world.durable.asked()), (before, asked), "{field} is {value:?}");
    }
    world.redis.cli(&["SET", KEY, "something else"]).unwrap();
    damaged(client.allocate(TAG, 10, 0).await, "a key of another type");
    assert_eq!(world.redis.cli(&["GET", KEY]).unwrap(), "something else");
}

fn damaged(answer: Result<Segment, StoreError>, what: &str) {
    let Err(error) = answer else { panic!("{what}: {answer:?}") };
    assert!(matches!(&error, StoreError::Corrupt { what, .. } if what.contains(KEY)), "{what}: {error:?}");
}
