//! Ids over HTTP beside Redis' `INCR`, what people otherwise take for a counter that everybody shares: one server and
//! one load generator at a time on the same cores, 50 connections, in turns.
//!
//! Expected: Redis' protocol is a tenth of HTTP's bytes and its server does nothing else, some 130,000 a second on one
//! core beside a load generator on the other. An id over HTTP costs the server one read, one write and some
//! microseconds for hyper and the route, on two threads. So they are about even; the target is at least as many as
//! Redis that keeps nothing, although ours never hands out an id twice, whatever dies. A batch of 1,000 ids is one
//! request of some 10 KiB: millions of ids a second.
//!
//! Needs redis-server and redis-benchmark (apt-get install redis-server redis-tools).
//!
//! ```text
//! cargo bench -p unalike-benches --bench http
//! ```

use anyhow::{Context, Result};
use serde_json::Value;
use unalike_benches::{Bench, Plan, RedisFigures, Row, load, redis_benchmark};
use unalike_tests::redis::{Persistence, Redis};
use unalike_tests::server::Server;

const CONNECTIONS: u32 = 50;

/// One turn of everybody.
struct Round {
    redis: RedisFigures,
    redis_durable: RedisFigures,
    redis_pipelined: RedisFigures,
    single: Value,
    snowflake: Value,
    batch: Value,
    pipelined: Value,
}

fn main() -> Result<()> {
    let plan = Plan::from_args();
    let redis = Redis::start(Persistence::Nothing)?;
    let redis_durable = Redis::start(Persistence::AofEverySecond)?;
    let server = Server::start_with(["--log", "warn"])?;
    // Some 0.8 seconds each; a thirtieth of it where only the bench itself is tried out.
    let is_smoke = plan.kept == 1;
    let (duration, requests) = if is_smoke { ("30ms", 4_000) } else { ("800ms", 100_000) };
    let connections = CONNECTIONS.to_string();
    let ours = |arguments: &[&str]| {
        load(server.url(), &[&["--duration", duration, "--connections", &connections], arguments].concat())
    };
    let rounds = (0..plan.kept.div_ceil(3))
        .map(|_| {
            Ok(Round {
                redis: redis_benchmark(&redis, CONNECTIONS, 1, requests)?,
                single: ours(&[])?,
                redis_durable: redis_benchmark(&redis_durable, CONNECTIONS, 1, requests)?,
                snowflake: ours(&["--snowflake", "default"])?,
                batch: ours(&["--count", "1000"])?,
                redis_pipelined: redis_benchmark(&redis, CONNECTIONS, 16, requests * 8)?,
                pipelined: ours(&["--pipeline", "16"])?,
            })
        })
        .collect::<Result<Vec<_>>>()?;

    let mut bench = Bench::new("http: 50 connections on two cores, in turns", plan);
    let each = |figure: fn(&Round) -> f64| rounds.iter().map(figure).collect::<Vec<_>>();
    let figures = |of: fn(&Round) -> &Value, pointer: &str| -> Result<Vec<f64>> {
        let figure = |report: &Value| report.pointer(pointer).and_then(Value::as_f64);
        rounds.iter().map(|round| figure(of(round)).with_context(|| format!("no {pointer}"))).collect()
    };
    let rate = "/requests_per_second";
    let base = bench.row(Row::samples("redis INCR, nothing kept", each(|round| round.redis.per_second), "/s"));
    let durable = each(|round| round.redis_durable.per_second);
    bench.row(Row::samples("redis INCR, appendfsync everysec", durable, "/s").against(base));
    let single = Row::samples("unalike, one id of a sequence", figures(|round| &round.single, rate)?, "/s");
    bench.row(single.against(base).ratio_at_least(1.0));
    let snowflake = Row::samples("unalike, one snowflake", figures(|round| &round.snowflake, rate)?, "/s");
    bench.row(snowflake.against(base).ratio_at_least(1.0));
    let batch =
        Row::samples("unalike, 1,000 ids a request", figures(|round| &round.batch, "/ids_per_second")?, "ids/s");
    bench.row(batch.against(base));

    let p99 = bench.row(Row::samples("redis INCR, p99", each(|round| round.redis.p99_us), "us"));
    let single = Row::samples("unalike, one id, p99", figures(|round| &round.single, "/latency_us/p99")?, "us");
    bench.row(single.against(p99));
    let p50 = bench.row(Row::samples("redis INCR, p50", each(|round| round.redis.p50_us), "us"));
    let single = Row::samples("unalike, one id, p50", figures(|round| &round.single, "/latency_us/p50")?, "us");
    bench.row(single.against(p50));

    let base = each(|round| round.redis_pipelined.per_second);
    let base = bench.row(Row::samples("redis INCR, 16 at once", base, "/s"));
    let pipelined = Row::samples("unalike, one id, 16 at once", figures(|round| &round.pipelined, rate)?, "/s");
    bench.row(pipelined.against(base));
    let busy: Vec<_> =
        figures(|round| &round.single, "/generator_busy")?.into_iter().map(|busy| busy * 100.0).collect();
    bench.row(Row::samples("unalike bench, one id: its share of a core", busy, "%"));
    bench.run()
}
