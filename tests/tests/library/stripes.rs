//! Several stores that number together: which of them may fail, come back, lose their data, be exchanged, and what
//! programs notice. What every store promises is in `contract.rs`, also of stripes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tempfile::TempDir;
use tokio::sync::Semaphore;
use unalike::{ErrorKind, Ids, SequenceOptions, StepPolicy};
use unalike_memory::{MemoryOptions, MemoryStore};
use unalike_mysql::{MysqlOptions, MysqlStore};
use unalike_storage::{
    ID_MAX, JoinedStripe, Lazy, LeaseStore, Mode, RefillPolicy, Segment, SegmentLayer, SegmentStore, StoreError,
    Stripe, StripedStore, TagOptions, TailRelease, resize_stripes,
};
use unalike_tests::faulty::FaultyStore;
use unalike_tests::mariadb::MariaDb;
use unalike_tests::refusals::refused;
use unalike_tests::sqlite::open as open_file;

type Stores = Vec<Arc<dyn SegmentStore>>;

/// Servers, each with a memory that outlives its clients.
struct Servers(Vec<MemoryStore>);

impl Servers {
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| MemoryStore::default()).collect())
    }

    /// New clients, as another process would have.
    fn faulty(&self) -> Vec<Arc<FaultyStore>> {
        let client = |server: &MemoryStore| Arc::new(FaultyStore::before(server.client(MemoryOptions::default())));
        self.0.iter().map(client).collect()
    }

    fn clients(&self) -> Stores {
        dynamic(&self.faulty())
    }

    async fn open(&self) -> Result<StripedStore, StoreError> {
        StripedStore::open(self.clients()).await
    }
}

fn dynamic(stores: &[Arc<FaultyStore>]) -> Stores {
    stores.iter().map(|store| Arc::clone(store) as Arc<dyn SegmentStore>).collect()
}

fn numbers(segment: &Segment) -> impl Iterator<Item = u64> {
    (0..segment.count()).map(move |offset| segment.start + offset * segment.stride)
}

/// All numbers that were ever granted.
#[derive(Default)]
struct Granted(BTreeSet<u64>);

impl Granted {
    #[track_caller]
    fn add(&mut self, segment: &Segment) {
        for number in numbers(segment) {
            assert!(self.0.insert(number), "{number} was granted twice: {segment:?}");
        }
    }

    fn last(&self) -> u64 {
        self.0.last().copied().unwrap_or(0)
    }
}

#[tokio::test]
async fn stripes_take_turns_and_share_all_numbers() {
    let store = Servers::new(3).open().await.unwrap();
    let mut granted = Granted::default();
    for _ in 0..30 {
        granted.add(&store.allocate("order", 10, 0).await.unwrap());
    }
    assert!(granted.0.into_iter().eq(1..=300), "every number has its turn");
    let record = store.tag("order").await.unwrap();
    assert_eq!((record.watermark, record.options), (300, TagOptions::default()));
}

#[tokio::test]
async fn a_set_has_2_to_1024_stores() {
    refused(Servers::new(0).open().await, &["0 stores"]);
    refused(Servers::new(1).open().await, &["1 stores"]);
    refused(Servers::new(1_025).open().await, &["1025 stores"]);
    let store = Servers::new(1_024).open().await.unwrap();
    let mut granted = Granted::default();
    for _ in 0..2_048 {
        granted.add(&store.allocate("order", 2, 0).await.unwrap());
    }
    assert!(granted.0.into_iter().eq(1..=4_096));
}

#[tokio::test(start_paused = true)]
async fn any_store_but_one_may_be_down_and_ids_go_on() {
    for alive in 0..4 {
        let stores = Servers::new(4).faulty();
        let store = StripedStore::open(dynamic(&stores)).await.unwrap();
        let (mut granted, mut granted_new) = (Granted::default(), Granted::default());
        granted.add(&store.allocate("order", 10, 0).await.unwrap());
        for (index, faulty) in stores.iter().enumerate() {
            faulty.set_down(index != alive);
        }
        for _ in 0..20 {
            granted.add(&store.allocate("order", 10, 0).await.unwrap());
            granted_new.add(&store.allocate("new tag", 10, 0).await.unwrap());
            store.open_tag("another").await.unwrap();
            store.check().await.unwrap();
            assert!(!store.tags(None, 10).await.unwrap().is_empty());
        }
        // What all stores must know is refused, and says who is missing.
        let down = (alive + 1) % 4;
        let first_down = (0..4).find(|index| *index != alive).unwrap();
        for error in [
            store.create_tag("third", &TagOptions::default()).await.unwrap_err(),
            store.raise_tag("order", 1_000).await.unwrap_err(),
            store.retire_tag("order").await.unwrap_err(),
            store.change_tag("order", StepPolicy::default(), RefillPolicy::default()).await.unwrap_err(),
        ] {
            assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
            assert!(error.to_string().contains(&format!("store {first_down}")), "{error} names store {first_down}");
        }
        // All down: an error that is worth a retry; back again: served at once, whatever the pause was.
        stores[alive].set_down(true);
        let error = store.allocate("order", 10, 0).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
        assert!(error.to_string().contains("connection refused"), "{error}");
        assert!(store.check().await.unwrap_err().is_retryable());
        assert!(store.open_tag("order").await.unwrap_err().is_retryable());
        stores[down].set_down(false);
        granted.add(&store.allocate("order", 10, 0).await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_failed_is_tried_again_after_a_pause_that_doubles() {
    let stores = Servers::new(2).faulty();
    let store = StripedStore::open(dynamic(&stores)).await.unwrap();
    store.open_tag("order").await.unwrap();
    stores[1].set_answers_lost(true);
    // Every try is counted, since the store carries it out; an answer that was lost is nobody's error.
    let mut tried_ms = Vec::new();
    for ms in 0..100_000_u64 {
        let before = stores[1].allocations();
        store.allocate("order", 1, 0).await.unwrap();
        assert!(stores[1].allocations() <= before + 1);
        if stores[1].allocations() > before {
            tried_ms.push(ms);
        }
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    let pauses: Vec<_> = tried_ms.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let doubled = [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000];
    for (pause, expected) in pauses.iter().zip(doubled) {
        assert!((expected..=expected + 2).contains(pause), "{pauses:?}");
    }
    assert!(pauses.len() >= 9, "{pauses:?}");

    // Back again, it is used as before.
    stores[1].set_answers_lost(false);
    tokio::time::advance(Duration::from_secs(31)).await;
    let before = stores[1].allocations();
    for _ in 0..10 {
        store.allocate("order", 1, 0).await.unwrap();
    }
    assert_eq!(stores[1].allocations(), before + 5);
}

#[tokio::test(start_paused = true)]
async fn one_request_at_a_time_tries_a_store_that_failed() {
    let stores = Servers::new(2).faulty();
    let store = Arc::new(StripedStore::open(dynamic(&stores)).await.unwrap());
    store.open_tag("order").await.unwrap();
    stores[1].set_down(true);
    for _ in 0..2 {
        store.allocate("order", 1, 0).await.unwrap();
    }
    // From now on it takes requests in and does not answer.
    stores[1].set_down(false);
    stores[1].hold(true);
    tokio::time::advance(Duration::from_millis(101)).await;
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.allocate("order", 1, 0).await })
        })
        .collect();
    while waiting.iter().filter(|request| request.is_finished()).count() < 1 {
        tokio::task::yield_now().await;
    }
    for _ in 0..10 {
        store.allocate("order", 1, 0).await.unwrap();
    }
    assert_eq!(waiting.iter().filter(|request| !request.is_finished()).count(), 1, "one waits, and nobody else");
    // Its caller gives up after a while, which says that the store is still not to be used.
    tokio::time::advance(Duration::from_secs(2)).await;
    for request in waiting {
        request.abort();
        let _ = request.await;
    }
    for _ in 0..10 {
        store.allocate("order", 1, 0).await.unwrap();
    }
    stores[1].hold(false);
    tokio::time::advance(Duration::from_secs(1)).await;
    let before = stores[1].allocations();
    for _ in 0..10 {
        store.allocate("order", 1, 0).await.unwrap();
    }
    assert!(stores[1].allocations() >= before + 5);
}

#[tokio::test(start_paused = true)]
async fn no_number_comes_twice_whatever_fails() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let count = random.usize(2..6);
        let servers = Servers::new(count);
        // Two programs, whose networks fail apart.
        let networks = [servers.faulty(), servers.faulty()];
        let programs = [
            StripedStore::open(dynamic(&networks[0])).await.unwrap(),
            StripedStore::open(dynamic(&networks[1])).await.unwrap(),
        ];
        let mut granted = BTreeMap::<&str, Granted>::new();
        let mut newest: BTreeMap<(usize, &str), Segment> = BTreeMap::new();
        let mut raised: BTreeMap<&str, u64> = BTreeMap::new();
        for _ in 0..400 {
            let program = random.usize(0..2);
            let store = &programs[program];
            let tag = random.choice(["a", "b", "c"]).unwrap();
            let faulty = random.choice(&networks[program]).unwrap();
            match random.u8(0..20) {
                0 | 1 => faulty.set_down(true),
                2..=4 => faulty.set_down(false),
                5 => faulty.set_answers_lost(true),
                6 | 7 => faulty.set_answers_lost(false),
                8 => tokio::time::advance(Duration::from_millis(random.u64(1..40_000))).await,
                9 => {
                    let Some(segment) = newest.remove(&(program, tag)) else { continue };
                    let kept = random.u64(0..=segment.count() - 1);
                    let tail = TailRelease { start: segment.start + kept * segment.stride, version: segment.version };
                    // The program forgets the tail; it is granted again if it was taken back, as it may have been.
                    if matches!(store.release(tag, tail).await, Ok(false)) {
                        continue;
                    }
                    for number in numbers(&Segment { start: tail.start, ..segment }) {
                        granted.entry(tag).or_default().0.remove(&number);
                    }
                }
                10 => {
                    let next = random.u64(1..5_000);
                    if store.raise_tag(tag, next).await.is_ok() {
                        let floor = raised.entry(tag).or_default();
                        *floor = next.max(*floor);
                    }
                }
                _ => {
                    let at_least = if random.bool() { 0 } else { random.u64(1..5_000) };
                    match store.allocate(tag, random.u64(1..20), at_least).await {
                        Ok(segment) => {
                            let floor = at_least.max(raised.get(tag).copied().unwrap_or(0));
                            assert!(segment.start >= floor, "seed {seed}: {segment:?} lies below {floor}");
                            granted.entry(tag).or_default().add(&segment);
                            newest.insert((program, tag), segment);
                        }
                        Err(error) => assert!(error.is_retryable(), "seed {seed}: {error:?}"),
                    }
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn stores_are_recorded_once_and_in_their_order() {
    let servers = Servers::new(3);
    drop(servers.open().await.unwrap());
    servers.open().await.unwrap();

    let [a, b, c] = [0, 1, 2].map(|index| servers.clients()[index].clone());
    refused(
        StripedStore::open(vec![b.clone(), a.clone(), c.clone()]).await,
        &["stripe 1 of 3", "in their order, which is"],
    );
    refused(StripedStore::open(vec![a.clone(), b.clone()]).await, &["0 of 3", "0 of 2"]);
    refused(StripedStore::open(vec![a.clone(), a.clone(), c.clone()]).await, &["store 1", "stripe 0 of 3"]);
    // Alone it is not used either.
    refused(a.allocate("order", 1, 0).await, &["stripe 0 of 3", "all stores of its set"]);

    let other = Servers::new(3);
    other.open().await.unwrap();
    refused(StripedStore::open(vec![a.clone(), other.clients()[1].clone(), c.clone()]).await, &["store 1"]);
    // A store that lost its data, or another that took its address.
    let new = Servers::new(1).clients()[0].clone();
    for stores in [vec![a.clone(), new.clone(), c.clone()], vec![new.clone(), b.clone(), c.clone()]] {
        refused(StripedStore::open(stores).await, &["lost its data", "`unalike stripes resize`"]);
    }
    assert_eq!(new.stripe().await.unwrap(), None, "nothing was recorded in it");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_was_used_alone_is_no_stripe() {
    for used in 0..3 {
        let servers = Servers::new(3);
        servers.0[used].allocate("order", 10, 0).await.unwrap();
        refused(servers.open().await, &[&format!("store {used}"), "used alone", "`unalike stripes resize`"]);
        for client in servers.clients() {
            assert_eq!(client.stripe().await.unwrap(), None, "nothing was recorded");
        }
    }
    let servers = Servers::new(2);
    for server in &servers.0 {
        server.allocate("order", 10, 0).await.unwrap();
    }
    refused(servers.open().await, &["used alone", "`unalike stripes resize`"]);
}

#[tokio::test(start_paused = true)]
async fn new_stores_must_all_answer_the_first_time() {
    for down in 0..3 {
        let servers = Servers::new(3);
        let stores = servers.faulty();
        stores[down].set_down(true);
        let error = StripedStore::open(dynamic(&stores)).await.unwrap_err();
        assert!(error.is_retryable() && error.to_string().contains(&format!("store {down}")), "{error:?}");
        for server in &servers.0 {
            assert_eq!(server.stripe().await.unwrap(), None, "nothing was recorded");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn programs_that_start_at_once_agree_on_one_set() {
    for _ in 0..20 {
        let servers = Arc::new(Servers::new(3));
        let programs: Vec<_> = (0..4)
            .map(|_| {
                let servers = Arc::clone(&servers);
                tokio::spawn(async move {
                    let store = servers.open().await.unwrap();
                    let mut segments = Vec::new();
                    for _ in 0..10 {
                        segments.push(store.allocate("order", 5, 0).await.unwrap());
                    }
                    segments
                })
            })
            .collect();
        let mut granted = Granted::default();
        for program in programs {
            for segment in program.await.unwrap() {
                granted.add(&segment);
            }
        }
        let mut sets = BTreeSet::new();
        for server in &servers.0 {
            sets.insert(server.stripe().await.unwrap().unwrap().set);
        }
        assert_eq!(sets.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_at_the_start_is_joined_when_it_comes_back() {
    let servers = Servers::new(3);
    let mut granted = Granted::default();
    let before = servers.open().await.unwrap();
    for _ in 0..6 {
        granted.add(&before.allocate("order", 10, 0).await.unwrap());
    }
    let stores = servers.faulty();
    for faulty in &stores {
        faulty.set_down(true);
    }
    assert!(StripedStore::open(dynamic(&stores)).await.unwrap_err().is_retryable(), "one must answer");
    stores[0].set_down(false);
    let store = StripedStore::open(dynamic(&stores)).await.unwrap();
    for _ in 0..6 {
        granted.add(&store.allocate("order", 10, 0).await.unwrap());
    }
    assert_eq!(stores[0].allocations(), 6);
    stores[1].set_down(false);
    tokio::time::advance(Duration::from_secs(60)).await;
    for _ in 0..12 {
        granted.add(&store.allocate("order", 10, 0).await.unwrap());
    }
    assert!(stores[1].allocations() >= 4);

    // One that comes back without its data is not used: it would grant again what it granted before.
    let (lost, stays) = (MemoryStore::default(), servers.clients()[0].clone());
    let comes_back = Arc::new(FaultyStore::before(lost.clone()));
    comes_back.set_down(true);
    let stores: Stores = vec![stays, comes_back.clone(), servers.clients()[2].clone()];
    let store = StripedStore::open(stores).await.unwrap();
    comes_back.set_down(false);
    tokio::time::advance(Duration::from_secs(60)).await;
    for _ in 0..12 {
        granted.add(&store.allocate("order", 10, 0).await.unwrap());
    }
    assert_eq!((comes_back.allocations(), lost.stripe().await.unwrap()), (0, None));
    refused(store.raise_tag("order", 1).await, &["store 1", "lost its data", "`unalike stripes resize`"]);
}

#[tokio::test(start_paused = true)]
async fn a_tag_that_one_store_does_not_know_is_created_there_as_it_is_elsewhere() {
    let servers = Servers::new(3);
    let stores = servers.faulty();
    let store = StripedStore::open(dynamic(&stores)).await.unwrap();
    let options = TagOptions { start: 700, step: StepPolicy::Fixed { step: 9 }, ..TagOptions::default() };
    // A creation that was broken off: two stores know the tag, and the third does not.
    for client in &servers.clients()[..2] {
        let client = client.join_stripe(&client.stripe().await.unwrap().unwrap()).await.unwrap().store;
        client.create_tag("order", &TagOptions { start: 234, ..options }).await.unwrap();
    }
    let again = servers.open().await.unwrap();
    for _ in 0..9 {
        assert!(again.allocate("order", 1, 0).await.unwrap().start >= 700);
    }
    let error = again.create_tag("order", &options).await.unwrap_err();
    assert!(matches!(error, StoreError::TagExists { .. }), "{error:?}");

    // First use while one is down; then it is back.
    stores[1].set_down(true);
    store.open_tag("first use").await.unwrap();
    stores[1].set_down(false);
    store.raise_tag("first use", 1_000).await.unwrap();
    for _ in 0..9 {
        assert!(store.allocate("first use", 1, 0).await.unwrap().start >= 1_000);
    }
}

#[tokio::test(start_paused = true)]
async fn ordered_tags_are_refused() {
    let servers = Servers::new(2);
    let store = servers.open().await.unwrap();
    let ordered = TagOptions { mode: Mode::Ordered, ..TagOptions::default() };
    let error = store.create_tag("order", &ordered).await.unwrap_err();
    assert!(error.is_callers_fault() && error.to_string().contains("use one store"), "{error:?}");

    // Created behind the back of the set.
    for client in servers.clients() {
        let client = client.join_stripe(&client.stripe().await.unwrap().unwrap()).await.unwrap().store;
        client.create_tag("order", &ordered).await.unwrap();
    }
    let error = store.open_tag("order").await.unwrap_err();
    assert!(error.is_callers_fault() && error.to_string().contains("use one store"), "{error:?}");

    // And no store that has one becomes a stripe.
    let alone = MemoryStore::default();
    alone.create_tag("order", &ordered).await.unwrap();
    let (from, to): (Stores, Stores) = (vec![Arc::new(alone.clone())], Servers::new(1).clients());
    let both = vec![from[0].clone(), to[0].clone()];
    refused(resize_stripes(&from, &both, 0).await, &["old store 0", "ordered"]);
    assert_eq!(alone.stripe().await.unwrap(), None, "nothing was changed");
    alone.allocate("order", 1, 0).await.unwrap();
}

/// One resize after the other; whatever was granted before is never granted again.
#[tokio::test(start_paused = true)]
async fn stripes_grow_shrink_move_and_become_one_store_again() {
    let servers = Servers::new(4);
    let mut granted = Granted::default();
    granted.add(&servers.0[1].allocate("order", 500, 0).await.unwrap());
    let options = TagOptions { start: 90, step: StepPolicy::Fixed { step: 9 }, ..TagOptions::default() };
    servers.0[1].create_tag("other", &options).await.unwrap();
    let mut now = vec![1];
    for next in
        [vec![0, 1, 2], vec![0, 1, 2], vec![2, 0, 1], vec![3, 0], vec![3, 0, 1, 2], vec![2], vec![2, 3], vec![2]]
    {
        let choose =
            |places: &[usize]| -> Stores { places.iter().map(|place| servers.clients()[*place].clone()).collect() };
        let programs = open_any(choose(&now)).await.unwrap();
        for _ in 0..7 {
            granted.add(&programs.allocate("order", 5, 0).await.unwrap());
        }
        let newest = programs.allocate("order", 10, 0).await.unwrap();
        granted.add(&newest);
        let last = granted.last();
        resize_stripes(&choose(&now), &choose(&next), 0).await.unwrap();

        if now.len() > 1 || next.len() > 1 {
            refused(programs.allocate("order", 1, 0).await, &["stripe"]);
            // What the old program gives back now, or does not, is no matter.
            let _ = programs.release("order", TailRelease { start: newest.start, version: newest.version }).await;
        }
        let programs = open_any(choose(&next)).await.unwrap();
        for _ in 0..10 {
            let segment = programs.allocate("order", 3, 0).await.unwrap();
            assert!(segment.start > last, "{now:?} to {next:?}: {segment:?} is above {last}");
            granted.add(&segment);
        }
        assert_eq!(programs.open_tag("other").await.unwrap().options.step, options.step);
        for gone in now.iter().filter(|place| !next.contains(place)) {
            let alone = &servers.clients()[*gone];
            assert!(
                matches!(alone.allocate("order", 1, 0).await, Err(StoreError::Refused { .. })),
                "it is fenced for good"
            );
        }
        now = next;
    }
}

/// Stripes, or the one store.
async fn open_any(stores: Stores) -> Result<Arc<dyn SegmentStore>, StoreError> {
    match <[Arc<dyn SegmentStore>; 1]>::try_from(stores) {
        Ok([alone]) => Ok(alone),
        Err(stores) => Ok(Arc::new(StripedStore::open(stores).await?)),
    }
}

/// The command is broken off after each of its requests in turn, and then repeated.
#[tokio::test(start_paused = true)]
async fn a_resize_that_was_broken_off_anywhere_repeats_nothing_and_can_be_repeated() {
    for (old, new) in [
        (vec![0], vec![0, 1, 2]),
        (vec![0, 1, 2], vec![2, 0]),
        (vec![0, 1], vec![1]),
        (vec![0, 1], vec![0]),
        (vec![0, 1], vec![2, 3, 0]),
    ] {
        let mut requests = 0;
        loop {
            let servers = Servers::new(4);
            let choose = |places: &[usize]| -> Vec<Arc<FaultyStore>> {
                places.iter().map(|place| servers.faulty()[*place].clone()).collect()
            };
            let mut granted = Granted::default();
            let program = open_any(dynamic(&choose(&old))).await.unwrap();
            for _ in 0..10 {
                granted.add(&program.allocate("order", 7, 0).await.unwrap());
                program.open_tag("b").await.unwrap();
            }
            let (from, to) = (choose(&old), choose(&new));
            let budget = Arc::new(AtomicU64::new(requests));
            for faulty in from.iter().chain(&to) {
                faulty.set_budget(&budget);
            }
            let broken_off = resize_stripes(&dynamic(&from), &dynamic(&to), 0).await;
            let is_whole = broken_off.is_ok();
            assert!(is_whole || budget.load(Ordering::SeqCst) == 0, "{broken_off:?}");
            // Whoever runs on, or starts anew with the old or the new stores, may be refused, and is granted nothing
            // twice.
            let programs = [
                Some(program),
                open_any(dynamic(&choose(&old))).await.ok(),
                open_any(dynamic(&choose(&new))).await.ok(),
            ];
            for program in programs.iter().flatten() {
                for _ in 0..4 {
                    if let Ok(segment) = program.allocate("order", 7, 0).await {
                        granted.add(&segment);
                    }
                }
            }
            resize_stripes(&dynamic(&choose(&old)), &dynamic(&choose(&new)), 0).await.unwrap();
            let program = open_any(dynamic(&choose(&new))).await.unwrap();
            let last = granted.last();
            for _ in 0..8 {
                let segment = program.allocate("order", 7, 0).await.unwrap();
                assert!(
                    segment.start > last,
                    "{old:?} to {new:?} after {requests} requests: {segment:?} is above {last}"
                );
                granted.add(&segment);
            }
            if is_whole {
                break;
            }
            requests += 1;
        }
        assert!(requests > 10, "it was broken off at {requests} places");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_lost_is_exchanged_with_a_floor() {
    let servers = Servers::new(4);
    let choose =
        |places: [usize; 3]| -> Stores { places.iter().map(|place| servers.clients()[*place].clone()).collect() };
    let mut granted = Granted::default();
    let store = StripedStore::open(choose([0, 1, 2])).await.unwrap();
    for _ in 0..30 {
        granted.add(&store.allocate("order", 10, 0).await.unwrap());
    }
    // Store 1 is gone. All that is left of its numbers is what people know.
    let left: Stores = vec![servers.clients()[0].clone(), servers.clients()[2].clone()];
    resize_stripes(&left, &choose([0, 3, 2]), granted.last() + 1_000).await.unwrap();
    let last = granted.last();
    let store = StripedStore::open(choose([0, 3, 2])).await.unwrap();
    for _ in 0..9 {
        let segment = store.allocate("order", 10, 0).await.unwrap();
        assert!(segment.start > last + 1_000);
        granted.add(&segment);
    }
    // The one that was lost comes back: its program finds nobody to work with.
    refused(StripedStore::open(choose([0, 1, 2])).await, &["stripe"]);
}

/// Store 0 granted under names that came into being while the other one was down, and is lost then.
#[tokio::test(start_paused = true)]
async fn a_name_that_only_a_lost_store_had_begins_above_the_floor() {
    let servers = Servers::new(4);
    let sub = unalike_storage::sub_tag("order", "user_7").unwrap();
    let mut granted: BTreeMap<&str, Granted> = BTreeMap::new();
    let faulty = servers.faulty();
    let store = StripedStore::open(dynamic(&faulty[..2])).await.unwrap();
    for _ in 0..4 {
        granted.entry("order").or_default().add(&store.allocate("order", 10, 0).await.unwrap());
    }
    faulty[1].set_down(true);
    for name in ["fresh", &sub] {
        for _ in 0..4 {
            granted.entry(name).or_default().add(&store.allocate(name, 10, 0).await.unwrap());
        }
    }
    let clients = servers.clients();
    let left = &clients[1..2];
    assert!(clients[1].tag("fresh").await.is_err());
    let floor = granted.values().map(Granted::last).max().unwrap();
    // Alone, in a new set, and in one more: the floor stays with the names.
    let (mut from, sets) = (left.to_vec(), [vec![1], vec![1, 2], vec![3, 2, 1], vec![2]]);
    for (at, places) in sets.iter().enumerate() {
        let to: Stores = places.iter().map(|place| servers.clients()[*place].clone()).collect();
        resize_stripes(&from, &to, if at == 0 { floor } else { 0 }).await.unwrap();
        let store = open_any(to.clone()).await.unwrap();
        let new = format!("new in {places:?}");
        for name in ["order", "fresh", &sub, &new] {
            if at < 2 && name != "order" && name != new {
                // Used for the first time in the third set.
                continue;
            }
            for _ in 0..6 {
                let segment = store.allocate(name, 10, 0).await.unwrap();
                assert!(segment.start > floor, "{name:?} in {places:?}: {segment:?} is above {floor}");
                if let Some(granted) = granted.get_mut(name) {
                    granted.add(&segment);
                }
            }
        }
        from = to;
    }
}

#[tokio::test(start_paused = true)]
async fn a_resize_is_refused_when_it_cannot_be() {
    let servers = Servers::new(3);
    let stores = servers.clients();
    refused(resize_stripes(&stores, &[], 0).await, &["0 stores"]);
    refused(resize_stripes(&stores, &stores, ID_MAX + 1).await, &["floor"]);
    let twice = vec![stores[0].clone(), servers.clients()[0].clone()];
    refused(resize_stripes(&stores, &twice, 0).await, &["new store 0", "new store 1", "one store"]);
    let faulty = servers.faulty();
    faulty[2].set_down(true);
    let error = resize_stripes(&dynamic(&faulty), &stores[..2], 0).await.unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("old store 2"), "{error:?}");

    // An ended tag stays so.
    resize_stripes(&[], &servers.clients(), 0).await.unwrap();
    let store = servers.open().await.unwrap();
    store.open_tag("ended").await.unwrap();
    store.retire_tag("ended").await.unwrap();
    let one = vec![servers.clients()[1].clone()];
    resize_stripes(&servers.clients(), &one, 0).await.unwrap();
    let error = servers.clients()[1].allocate("ended", 1, 0).await.unwrap_err();
    assert!(matches!(error, StoreError::Exhausted { .. }), "{error:?}");
    // Whoever still names the old set is not told to resize it again.
    refused(servers.open().await, &["has left its set", "one by itself"]);

    // So does one that was ended in a single store of its set, whose greatest number is not the greatest of all.
    let servers = Servers::new(3);
    let store = servers.open().await.unwrap();
    store.create_tag("ended in one", &TagOptions::default()).await.unwrap();
    let second = servers.clients()[1].clone();
    let stripe = second.stripe().await.unwrap().unwrap();
    let joined = second.join_stripe(&stripe).await.unwrap();
    joined.store.retire_tag("ended in one").await.unwrap();
    resize_stripes(&servers.clients(), &servers.clients()[..2], 0).await.unwrap();
    let store = open_any(servers.clients()[..2].to_vec()).await.unwrap();
    let error = store.allocate("ended in one", 1, 0).await.unwrap_err();
    assert!(matches!(error, StoreError::Exhausted { .. }), "{error:?}");
}

#[tokio::test]
async fn programs_take_runs_with_the_stride_of_their_stripes() {
    let stores = Servers::new(3).faulty();
    let store = Arc::new(StripedStore::open(dynamic(&stores)).await.unwrap());
    let ids = Ids::builder().segments(store).build().await.unwrap();
    let options = SequenceOptions { step: Some(StepPolicy::Fixed { step: 100 }), ..SequenceOptions::default() };
    let orders = ids.sequence("order", options).await.unwrap();
    let mut taken: Vec<u64> = Vec::new();
    for _ in 0..1_000 {
        taken.push(orders.next().await.unwrap());
    }
    let batch = orders.take(1_000).await.unwrap();
    assert_eq!(batch.len(), 1_000);
    let first: Vec<u64> = batch.iter().take(20).collect();
    assert!(first.windows(2).filter(|pair| pair[1] == pair[0] + 3).count() >= 18, "a run has the stride: {first:?}");
    taken.extend(batch.iter());
    let mut local = orders.local().unwrap();
    for _ in 0..1_000 {
        taken.push(local.next().await.unwrap());
    }
    // Any two may be down.
    for (first, second) in [(0, 1), (1, 2), (2, 0)] {
        stores[first].set_down(true);
        stores[second].set_down(true);
        for _ in 0..1_000 {
            taken.push(orders.next().await.unwrap());
        }
        stores[first].set_down(false);
        stores[second].set_down(false);
    }
    ids.close().await;
    let unique: BTreeSet<_> = taken.iter().collect();
    assert_eq!(unique.len(), taken.len(), "no id twice");
    let remainders: BTreeSet<_> = taken.iter().map(|id| id % 3).collect();
    assert_eq!(remainders.len(), 3, "all stores were used");
}

#[tokio::test]
async fn a_bound_is_on_the_ids_of_all_stripes() {
    const BOUND: u64 = 1_000;
    let stores = Servers::new(3).faulty();
    let store = Arc::new(StripedStore::open(dynamic(&stores)).await.unwrap());
    let pause = |error: &unalike::Error| {
        tokio::time::sleep(Duration::from_millis(error.retry_after_ms().expect("it says when to try again")))
    };
    let open = || Ids::builder().segments(store.clone()).wait_max(Duration::from_millis(300)).build();
    let ids = open().await.unwrap();
    let step = Some(StepPolicy::Fixed { step: 40 });
    let options = SequenceOptions { step, id_max: Some(BOUND), ..SequenceOptions::default() };
    let orders = ids.sequence("order", options).await.unwrap();
    let mut taken: Vec<u64> = Vec::new();
    while taken.iter().map(|id| id % 3).collect::<BTreeSet<_>>().len() < 3 {
        taken.push(orders.next().await.unwrap());
    }
    // One is left behind.
    stores[1].set_down(true);
    let error = loop {
        match orders.next().await {
            Ok(id) => taken.push(id),
            Err(error) => break error,
        }
    };
    assert!(error.is_retryable(), "the one that is down has more: {error:?}");
    // The greatest watermark is beyond the bound, and who opens the sequence now can have what there is.
    assert!(store.tag("order").await.unwrap().watermark > BOUND);
    let other = open().await.unwrap();
    let others = other.sequence("order", options).await.unwrap();
    stores[1].set_down(false);
    let error = loop {
        match orders.next().await {
            Ok(id) => taken.push(id),
            Err(error) if error.is_retryable() => pause(&error).await,
            Err(error) => break error,
        }
    };
    assert!(matches!(error.kind(), ErrorKind::Exhausted { id_max: Some(BOUND), .. }), "{error:?}");
    let error = loop {
        match others.next().await {
            Ok(id) => taken.push(id),
            Err(error) if error.is_retryable() => pause(&error).await,
            Err(error) => break error,
        }
    };
    assert!(matches!(error.kind(), ErrorKind::Exhausted { id_max: Some(BOUND), .. }), "{error:?}");
    taken.sort_unstable();
    assert!(taken.into_iter().eq(1..=BOUND), "each up to the bound, once, and none above");
    ids.close().await;
    // What begins above is refused at once, as in a store that stands alone.
    let above = TagOptions { start: BOUND + 1, ..TagOptions::default() };
    store.create_tag("above", &above).await.unwrap();
    let error = other.sequence("above", options).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::IdMaxReached { id_max: BOUND, start: 1_001, .. }), "{error:?}");
    other.close().await;
}

#[tokio::test]
async fn files_are_stripes_that_outlive_their_programs() {
    let directory = TempDir::new().unwrap();
    let paths = [0, 1, 2].map(|index| directory.path().join(format!("{index}.sqlite")));
    let mut granted = Granted::default();
    for _ in 0..3 {
        let mut stores: Stores = Vec::new();
        for path in &paths {
            stores.push(Arc::new(open_file(path).await.unwrap()));
        }
        let store = StripedStore::open(stores).await.unwrap();
        for _ in 0..7 {
            granted.add(&store.allocate("order", 10, 0).await.unwrap());
        }
        store.close().await;
        assert!(store.allocate("order", 1, 0).await.unwrap_err().is_retryable(), "a closed store says so");
    }
    // A file that was replaced by a new one.
    std::fs::remove_file(&paths[1]).unwrap();
    let mut stores: Stores = Vec::new();
    for path in &paths {
        stores.push(Arc::new(open_file(path).await.unwrap()));
    }
    let named = format!("store 1 ({}) of the stripes", paths[1].display());
    refused(StripedStore::open(stores.clone()).await, &[&named, "lost its data"]);
    resize_stripes(&stores, &stores, granted.last()).await.unwrap();
    let store = StripedStore::open(stores).await.unwrap();
    for _ in 0..7 {
        granted.add(&store.allocate("order", 10, 0).await.unwrap());
    }
    store.close().await;
}

/// A server that refuses connections until it is up, and how often it was asked for one.
#[derive(Clone, Default)]
struct Starting {
    server: MemoryStore,
    is_up: Arc<AtomicBool>,
    connections: Arc<AtomicU64>,
}

impl Starting {
    async fn connect(self) -> Result<MemoryStore, StoreError> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        tokio::task::yield_now().await;
        let is_up = self.is_up.load(Ordering::Relaxed);
        if is_up { Ok(self.server) } else { Err(StoreError::unavailable("nobody listens")) }
    }

    fn lazy(&self) -> Arc<Lazy<MemoryStore>> {
        let starting = self.clone();
        Arc::new(Lazy::new(move || starting.clone().connect()))
    }

    fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

#[tokio::test]
async fn a_store_that_is_down_at_the_start_is_opened_by_the_first_request_that_finds_it_up() {
    let starting = Starting::default();
    let store: Arc<dyn SegmentStore> = starting.lazy();
    let tail = TailRelease { start: 1, version: 1 };
    assert!(matches!(store.allocate("order", 5, 0).await, Err(StoreError::Unavailable { .. })));
    let released = store.release_many(vec![("order".to_owned(), tail), ("chat".to_owned(), tail)]).await;
    assert_eq!((released.taken_back, released.failures), (0, 2));
    store.close().await;
    assert_eq!((store.address(), store.stripes(), starting.connections()), (None, 1, 2), "none of these opens it");

    starting.is_up.store(true, Ordering::Relaxed);
    let (first, second) = tokio::join!(store.allocate("order", 5, 0), store.allocate("order", 5, 0));
    let mut granted = Granted::default();
    granted.add(&first.unwrap());
    granted.add(&second.unwrap());
    assert_eq!(starting.connections(), 3, "two requests at once open it once");
    assert_eq!(store.identity().await.unwrap(), SegmentStore::identity(&starting.server).await.unwrap());

    let leases = Lazy::new({
        let starting = starting.clone();
        move || {
            let connected = starting.clone().connect();
            async { Ok(Arc::new(connected.await?)) }
        }
    });
    assert_eq!(leases.namespaces().await.unwrap(), Vec::<String>::new());
    assert_eq!(starting.connections(), 4);
}

#[tokio::test]
async fn stripes_that_are_down_at_the_start_are_left_out() {
    let starting = [Starting::default(), Starting::default()];
    starting[0].is_up.store(true, Ordering::Relaxed);
    starting[1].is_up.store(true, Ordering::Relaxed);
    let stores = || starting.iter().map(|starting| starting.lazy() as Arc<dyn SegmentStore>).collect::<Vec<_>>();
    let mut granted = Granted::default();
    // The set is recorded while both are up.
    let store = StripedStore::open(stores()).await.unwrap();
    granted.add(&store.allocate("order", 5, 0).await.unwrap());
    granted.add(&store.allocate("order", 5, 0).await.unwrap());

    starting[1].is_up.store(false, Ordering::Relaxed);
    let store = StripedStore::open(stores()).await.unwrap();
    granted.add(&store.allocate("order", 5, 0).await.unwrap());
    granted.add(&store.allocate("order", 5, 0).await.unwrap());
    starting[0].is_up.store(false, Ordering::Relaxed);
    starting[1].is_up.store(true, Ordering::Relaxed);
    let store = StripedStore::open(stores()).await.unwrap();
    for _ in 0..4 {
        granted.add(&store.allocate("order", 5, 0).await.unwrap());
    }
}

/// A store before which the last step of a resize waits until it is let on.
struct HeldAtTheEnd {
    inner: Arc<dyn SegmentStore>,
    came: Arc<Semaphore>,
    go: Arc<Semaphore>,
}

#[async_trait]
impl SegmentLayer for HeldAtTheEnd {
    fn below(&self) -> Option<&dyn SegmentStore> {
        Some(&*self.inner)
    }

    async fn join_stripe(&self, stripe: &Stripe) -> Result<JoinedStripe, StoreError> {
        let layer = |inner| Self { inner, came: self.came.clone(), go: self.go.clone() };
        Ok(self.inner.join_stripe(stripe).await?.behind(layer))
    }

    async fn restripe(&self, expected: Option<&Stripe>, stripe: Option<&Stripe>) -> Result<(), StoreError> {
        if stripe.is_none_or(|stripe| !stripe.is_mark()) {
            self.came.add_permits(1);
            self.go.acquire().await.unwrap().forget();
        }
        self.inner.restripe(expected, stripe).await
    }
}

/// A store that was used alone becomes one of two. The first call pauses before its last step; the second gets to its
/// end, and a program takes numbers; then the first goes on.
async fn a_resize_that_paused_ends_as_an_error(used: [Arc<dyn SegmentStore>; 2], again: [Arc<dyn SegmentStore>; 2]) {
    let [x, y] = used;
    let mut granted = Granted::default();
    granted.add(&x.allocate("order", 20, 0).await.unwrap());
    let (came, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let held = |inner: &Arc<dyn SegmentStore>| -> Arc<dyn SegmentStore> {
        Arc::new(HeldAtTheEnd { inner: inner.clone(), came: came.clone(), go: go.clone() })
    };
    let first = tokio::spawn({
        let (from, to) = (vec![held(&x)], vec![held(&x), held(&y)]);
        async move { resize_stripes(&from, &to, 0).await }
    });
    while came.try_acquire().map(tokio::sync::SemaphorePermit::forget).is_err() {
        assert!(!first.is_finished(), "it comes to its last step: {:?}", first.await);
        tokio::task::yield_now().await;
    }
    let [x, y] = again;
    resize_stripes(std::slice::from_ref(&x), &[y.clone(), x.clone()], 0).await.unwrap();
    let program = StripedStore::open(vec![y.clone(), x.clone()]).await.unwrap();
    for _ in 0..4 {
        granted.add(&program.allocate("order", 6, 0).await.unwrap());
    }
    go.add_permits(100);
    let error = first.await.unwrap().unwrap_err();
    assert!(matches!(error, StoreError::PlaceChanged { .. }), "{error:?}");
    assert!(error.to_string().contains("somebody else is resizing"), "{error}");
    // The set of the second one goes on, and that of the first is none.
    for _ in 0..4 {
        granted.add(&program.allocate("order", 6, 0).await.unwrap());
    }
    refused(StripedStore::open(vec![x, y]).await, &["stripe"]);
}

#[tokio::test]
async fn a_paused_resize_of_files_changes_nothing_after_another_one() {
    let directory = TempDir::new().unwrap();
    let open = async |name: &str| {
        let store: Arc<dyn SegmentStore> = Arc::new(open_file(&directory.path().join(name)).await.unwrap());
        store
    };
    let used = [open("x.sqlite").await, open("y.sqlite").await];
    a_resize_that_paused_ends_as_an_error(used, [open("x.sqlite").await, open("y.sqlite").await]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_resize_of_databases_changes_nothing_after_another_one() {
    let server = MariaDb::start().unwrap();
    let urls = [server.database().unwrap(), server.database().unwrap()];
    let open = async |url: &str| {
        let store: Arc<dyn SegmentStore> =
            Arc::new(MysqlStore::connect(MysqlOptions::from_url(url).unwrap()).await.unwrap());
        store
    };
    let used = [open(&urls[0]).await, open(&urls[1]).await];
    a_resize_that_paused_ends_as_an_error(used, [open(&urls[0]).await, open(&urls[1]).await]).await;
}

/// A store fenced by a resize is nobody's, also for a program that can reach no other of its set.
#[tokio::test(start_paused = true)]
async fn a_fence_is_no_place_for_a_program_that_sees_no_other_store() {
    let servers = Servers::new(2);
    let program = servers.open().await.unwrap();
    program.allocate("order", 10, 0).await.unwrap();
    let stores = servers.faulty();
    let budget = Arc::new(AtomicU64::new(22));
    for faulty in &stores {
        faulty.set_budget(&budget);
    }
    resize_stripes(&dynamic(&stores), &dynamic(&stores), 0).await.unwrap_err();
    for alive in 0..2 {
        assert!(servers.0[alive].stripe().await.unwrap().unwrap().is_mark(), "it was broken off under its fences");
        let stores = servers.faulty();
        stores[1 - alive].set_down(true);
        refused(StripedStore::open(dynamic(&stores)).await, &["fenced"]);
    }
}
