//! Redis: what an allocation under a durable ceiling costs beside the bare command, and strictly increasing ids for
//! many callers beside one `INCR` for each id.
//!
//! An allocation is one script: it asks the server who it is, reads the tag's hash, and writes once. A bare `HINCRBY`
//! does none of that, so the script should run somewhat more seldom; over the network of a machine both are mostly
//! waiting.
//!
//! The ordered mode serves all who wait by one allocation. A round takes some hundred microseconds, whoever waits takes
//! part in the next one, so the rate grows with the number of callers, while one `INCR` for each id is bounded by what
//! Redis answers: 10 times as many ids are expected. `redis-benchmark`, which is written in C and does nothing with the
//! answers, is the baseline; the same from Rust is shown beside it.
//!
//! Redis keeps nothing on its disk here: under a ceiling it need not.
//!
//! ```text
//! cargo bench -p unalike-benches --bench redis
//! ```

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use redis::aio::MultiplexedConnection;
use tokio::runtime::Runtime;
use unalike::storage::{Mode, SegmentStore, TagOptions};
use unalike::{Ids, Sequence, SequenceOptions};
use unalike_benches::tasks::{self, Tasks};
use unalike_benches::{Bench, Plan, Row, redis_benchmark};
use unalike_memory::MemoryStore;
use unalike_redis::{Backing, RedisOptions, RedisStore};
use unalike_tests::redis::{Persistence, Redis};

/// Numbers of one allocation.
const STEP: u64 = 1_000;
/// Connections of the baseline.
const CONNECTIONS: usize = 50;
/// How long each is measured at a time.
const WINDOW: Duration = Duration::from_millis(300);
/// Commands of one run of `redis-benchmark`.
const REQUESTS: u64 = 100_000;

/// What one caller does, again and again.
enum Caller {
    /// Runs a command on a connection of its own.
    Bare { connection: MultiplexedConnection, command: redis::Cmd },
    /// Asks a store for an allocation.
    Store { store: Arc<RedisStore>, tag: String },
    /// Takes one id in the ordered mode.
    Next { sequence: Sequence, last: u64 },
    /// Takes so many ids in the ordered mode.
    Take { sequence: Sequence, last: u64, count: u32 },
}

impl tasks::Caller for Caller {
    async fn request(&mut self) -> Result<u64> {
        match self {
            Self::Bare { connection, command } => {
                command.query_async::<u64>(connection).await?;
                Ok(1)
            }
            Self::Store { store, tag } => {
                store.allocate(tag, STEP, 0).await?;
                Ok(1)
            }
            Self::Next { sequence, last } => {
                let id = sequence.next().await?;
                ensure!(id > *last, "{id} came after {last}");
                *last = id;
                Ok(1)
            }
            Self::Take { sequence, last, count } => {
                let batch = sequence.take(*count).await?;
                for id in &batch {
                    ensure!(id > *last, "{id} came after {last}");
                    *last = id;
                }
                Ok(u64::from(*count))
            }
        }
    }
}

fn main() -> Result<()> {
    let plan = Plan::from_args();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let server = Redis::start(Persistence::Nothing)?;
    // One for both: Redis knows the store that grants what it hands out.
    let durable = MemoryStore::default();
    allocations(plan, &runtime, &server, &durable)?;
    ordered(plan, &runtime, &server, &durable)
}

/// A store with a connection of its own.
fn store(runtime: &Runtime, server: &Redis, durable: &MemoryStore) -> Result<Arc<RedisStore>> {
    let options = RedisOptions::from_url(&server.url(0, "preheat=false"))?;
    let watermark = Backing::Durable(Arc::new(durable.clone()));
    Ok(Arc::new(runtime.block_on(RedisStore::connect(options, watermark))?))
}

fn bare(runtime: &Runtime, server: &Redis, command: &[&str]) -> Result<Caller> {
    let client = redis::Client::open(server.url(0, ""))?;
    let connection = runtime.block_on(client.get_multiplexed_async_connection())?;
    let mut parts = redis::Cmd::new();
    parts.arg(command);
    Ok(Caller::Bare { connection, command: parts })
}

fn allocations(plan: Plan, runtime: &Runtime, server: &Redis, durable: &MemoryStore) -> Result<()> {
    let mut bench = Bench::new("redis: allocations of 1,000 numbers of one tag beside bare commands", plan);
    for connections in [1, CONNECTIONS] {
        let callers = |make: &dyn Fn() -> Result<Caller>| {
            (0..connections).map(|_| make()).collect::<Result<Vec<_>>>().map(Tasks::new)
        };
        let increment = callers(&|| bare(runtime, server, &["INCR", "counter"]))?;
        let add = callers(&|| bare(runtime, server, &["HINCRBY", "counters", "order", "1000"]))?;
        let tag = "order";
        let ours = callers(&|| Ok(Caller::Store { store: store(runtime, server, durable)?, tag: tag.to_owned() }))?;
        let shared = store(runtime, server, durable)?;
        let one = callers(&|| Ok(Caller::Store { store: Arc::clone(&shared), tag: tag.to_owned() }))?;
        let mut cases = [increment, add, ours, one];
        Tasks::measure(runtime, plan, WINDOW, &mut cases)?;
        let [increment, add, ours, one] = cases;
        let name = |what: &str| format!("{connections} at a time: {what}");
        let base = bench.row(Row::samples(name("HINCRBY"), add.rates, "/s"));
        bench.row(Row::samples(name("INCR"), increment.rates, "/s").against(base));
        bench.row(Row::samples(name("allocations"), ours.rates, "/s").against(base));
        if connections > 1 {
            bench.row(Row::samples(name("allocations over one connection"), one.rates, "/s").against(base));
        }
    }
    bench.run()
}

fn ordered(plan: Plan, runtime: &Runtime, server: &Redis, durable: &MemoryStore) -> Result<()> {
    let mut bench = Bench::new("redis: strictly increasing ids of one tag, ids per second", plan);
    let store = store(runtime, server, durable)?;
    let ids = runtime.block_on(Ids::builder().segments(store.clone()).build())?;
    let options = TagOptions { mode: Mode::Ordered, ..TagOptions::default() };
    runtime.block_on(store.create_tag("chat", &options))?;
    let sequence = runtime.block_on(ids.sequence("chat", SequenceOptions::default()))?;
    let next = |callers: usize| {
        Tasks::new((0..callers).map(|_| Caller::Next { sequence: sequence.clone(), last: 0 }).collect())
    };
    let take = |callers: usize, count: u32| {
        Tasks::new((0..callers).map(|_| Caller::Take { sequence: sequence.clone(), last: 0, count }).collect())
    };
    let increment: Result<Vec<_>> = (0..CONNECTIONS).map(|_| bare(runtime, server, &["INCR", "counter"])).collect();
    let mut cases =
        [Tasks::new(increment?), next(1), next(CONNECTIONS), next(500), next(5_000), take(CONNECTIONS, 100)];
    let mut benchmark = Vec::new();
    for _ in 0..plan.kept {
        benchmark.push(redis_benchmark(server, u32::try_from(CONNECTIONS)?, 1, REQUESTS)?.per_second);
        for case in &mut cases {
            runtime.block_on(case.window(WINDOW))?;
        }
    }
    runtime.block_on(ids.close());
    let [increment, one, fifty, hundreds, thousands, batches] = cases;
    let rate = |name: &str, case: Tasks<Caller>| Row::samples(name, case.rates, "/s");
    let base = bench.row(Row::samples("one INCR per id, 50 connections of redis-benchmark", benchmark, "/s"));
    bench.row(rate("one INCR per id, 50 connections from Rust", increment).against(base));
    bench.row(rate("ordered mode, 1 caller", one).against(base));
    bench.row(rate("ordered mode, 50 callers", fifty).against(base));
    bench.row(rate("ordered mode, 500 callers", hundreds).against(base));
    bench.row(rate("ordered mode, 5,000 callers", thousands).against(base).ratio_at_least(10.0));
    bench.row(rate("ordered mode, 50 callers, 100 ids a call", batches).against(base).ratio_at_least(10.0));
    bench.run()
}
