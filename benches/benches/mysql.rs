//! MySQL: the ordered mode on one row against a compare-and-swap per request, and what a grant costs beside its bare
//! statement.
//!
//! Every commit is durable, so one row is written as often as the disk can be flushed, some hundred to some thousand
//! times a second. Without a store of tickets in between, strict order costs one such write per request, and where
//! callers compare and swap without a pause, most of their tries are lost besides: 421 requests a second were measured
//! so, with 97% of the tries lost. The ordered mode serves all who wait by one write, the next one while they take
//! their ids: 32 callers should get 100 times the rate of the article's loop on the same row, and 64 rows do
//! not give as much again, since one round of all callers is as cheap as one of half a caller.
//!
//! A run of the baseline counts only if fewer than 10% of its tries succeed: otherwise the machine was so busy with
//! other things that the callers seldom met.
//!
//! A grant is one statement and one round trip, so a store should grant nine tenths as often as its bare statement runs
//! on a connection of its own. sqlx's own pool asks each connection that is given back for a sign of life, a round trip
//! more; where it is measured beside, that is its price.
//!
//! ```text
//! cargo bench -p unalike-benches --bench mysql
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sqlx::mysql::{MySqlConnection, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, MySqlPool};
use tokio::runtime::Runtime;
use unalike::storage::{Mode, SegmentStore, TagOptions};
use unalike::{Ids, Sequence, SequenceOptions};
use unalike_benches::{Bench, Plan, Row};
use unalike_mysql::{MysqlOptions, MysqlStore};
use unalike_tests::mariadb::MariaDb;

/// Callers of the ordered mode, and of the loop that it replaces.
const CALLERS: usize = 32;
/// Rows, each in a table of its own, over which both are spread for comparison.
const ROWS: usize = 64;
/// How long the loop goes on before it gives up.
const CAS_MAX: Duration = Duration::from_secs(2);
/// A share of successful tries from which on the loop was not contended.
const CAS_SHARE_MAX: f64 = 0.1;

/// The statements of one grant on the rows of a dialect, with `{tag}` for the tag and `{number}` for its number.
struct Bare {
    /// As a parameter of the store's URL, with what goes with it.
    dialect: &'static str,
    grant: &'static [&'static str],
}

const BARE: &[Bare] = &[
    Bare {
        dialect: "unalike",
        grant: &["UPDATE unalike_tag SET watermark = LAST_INSERT_ID(watermark) + 1000 WHERE tag = '{tag}'"],
    },
    Bare {
        dialect: "leaf",
        grant: &["UPDATE leaf_alloc SET max_id = LAST_INSERT_ID(max_id + 1000) WHERE biz_tag = '{tag}'"],
    },
    Bare {
        dialect: "tinyid",
        grant: &[
            "SELECT id, max_id, version FROM tiny_id_info WHERE biz_type = '{tag}'",
            "UPDATE tiny_id_info SET max_id = max_id + 1000, update_time = NOW(), version = version + 1 \
             WHERE biz_type = '{tag}'",
        ],
    },
    Bare {
        dialect: "cosid",
        grant: &["UPDATE cosid SET last_max_id = LAST_INSERT_ID(last_max_id + 1000), \
                  last_fetch_time = UNIX_TIMESTAMP() * 1000 WHERE name = '{tag}'"],
    },
    Bare {
        dialect: "sequence-table",
        grant: &[
            "START TRANSACTION",
            "SELECT current_val, increment_val FROM t_sequence WHERE pk_seq_name = '{tag}' FOR UPDATE",
            "UPDATE t_sequence SET current_val = current_val + increment_val WHERE pk_seq_name = '{tag}'",
            "COMMIT",
        ],
    },
    Bare {
        dialect: "id-generator&source-stopped=true&keys=tag_0:0,tag_1:1,tag_2:2,tag_3:3,tag_4:4,tag_5:5,tag_6:6,tag_7:7",
        grant: &["UPDATE id_generator SET current_max_id = LAST_INSERT_ID(current_max_id + 1000) WHERE id = {number}"],
    },
    Bare {
        dialect: "batch",
        grant: &[
            "SELECT MAX(version) FROM ng_business_mysql_autoincrement WHERE business = '{tag}'",
            "INSERT INTO ng_business_mysql_autoincrement (business, version) \
             SELECT '{tag}', MAX(version) + 1 FROM ng_business_mysql_autoincrement WHERE business = '{tag}'",
        ],
    },
    Bare {
        dialect: "slow-ordered",
        grant: &[
            "SELECT num FROM ng_business_slowordered0 WHERE business = '{tag}' AND subBusiness = ''",
            "UPDATE ng_business_slowordered0 SET num = num + 1000 WHERE business = '{tag}' AND subBusiness = ''",
        ],
    },
    // One number at a time: that is all that such a server gives.
    Bare { dialect: "ticket", grant: &["REPLACE INTO {tag} (stub) VALUES ('a')"] },
];

/// What one caller does, again and again.
enum Caller {
    /// Takes an id of a sequence in the ordered mode.
    Ordered { sequence: Sequence, last: u64 },
    /// The article's loop: read, and write if nobody else has.
    Cas { connection: MySqlConnection, table: String, last: u64 },
    /// Asks a store for a grant.
    Store { store: Arc<MysqlStore>, tag: String },
    /// Runs the statements of a grant on a connection of its own.
    Bare { connection: MySqlConnection, statements: Vec<String> },
    /// Runs them on a connection from sqlx's pool.
    Pooled { pool: MySqlPool, statements: Vec<String> },
}

/// What callers counted.
#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    tries: AtomicU64,
}

impl Caller {
    async fn request(&mut self, counts: &Counts) -> Result<()> {
        match self {
            Self::Ordered { sequence, last } => {
                let id = sequence.next().await?;
                ensure!(id > *last, "{id} came after {last}");
                *last = id;
            }
            Self::Cas { connection, table, last } => {
                let began = Instant::now();
                loop {
                    let select = sqlx::query_scalar(AssertSqlSafe(format!("SELECT num FROM {table} WHERE id = 1")));
                    let old: i64 = select.fetch_one(&mut *connection).await?;
                    let update = AssertSqlSafe(format!("UPDATE {table} SET num = ? WHERE id = 1 AND num = ?"));
                    let update = sqlx::query(update).bind(old + 1).bind(old);
                    counts.tries.fetch_add(1, Ordering::Relaxed);
                    if update.execute(&mut *connection).await?.rows_affected() == 1 {
                        let id = u64::try_from(old + 1)?;
                        ensure!(id > *last, "{id} came after {last}");
                        *last = id;
                        break;
                    }
                    if began.elapsed() > CAS_MAX {
                        // It fails, and is no request that was served.
                        return Ok(());
                    }
                }
            }
            Self::Store { store, tag } => {
                store.allocate(tag, 1_000, 0).await?;
            }
            Self::Bare { connection, statements } => {
                for statement in statements {
                    sqlx::query(AssertSqlSafe(statement.clone())).execute(&mut *connection).await?;
                }
            }
            Self::Pooled { pool, statements } => {
                let mut connection = pool.acquire().await?;
                for statement in statements {
                    sqlx::query(AssertSqlSafe(statement.clone())).execute(&mut *connection).await?;
                }
            }
        }
        counts.requests.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Callers that are measured in windows, in turns with others.
struct Case {
    callers: Vec<Caller>,
    /// Requests per second in each window.
    rates: Vec<f64>,
    /// The share of tries that succeeded in each window, of callers that count them.
    shares: Vec<f64>,
}

impl Case {
    fn new(callers: Vec<Caller>) -> Self {
        Self { callers, rates: Vec::new(), shares: Vec::new() }
    }

    /// One window, with a third of its length before it for all callers to get going.
    async fn window(&mut self, length: Duration) -> Result<()> {
        let (counts, ending) = (Arc::new(Counts::default()), Arc::new(AtomicBool::new(false)));
        let tasks: Vec<_> = self
            .callers
            .drain(..)
            .map(|mut caller| {
                let (counts, ending) = (Arc::clone(&counts), Arc::clone(&ending));
                tokio::spawn(async move {
                    while !ending.load(Ordering::Relaxed) {
                        caller.request(&counts).await?;
                    }
                    anyhow::Ok(caller)
                })
            })
            .collect();
        let count = || (counts.requests.load(Ordering::Relaxed), counts.tries.load(Ordering::Relaxed));
        tokio::time::sleep(length / 3).await;
        let (requests_before, tries_before) = count();
        let began = Instant::now();
        tokio::time::sleep(length).await;
        let ((requests, tries), took) = (count(), began.elapsed());
        ending.store(true, Ordering::Relaxed);
        for task in tasks {
            self.callers.push(task.await??);
        }
        let (requests, tries) = (requests - requests_before, tries - tries_before);
        self.rates.push(requests as f64 / took.as_secs_f64());
        if tries > 0 {
            self.shares.push(requests as f64 / tries as f64);
        }
        Ok(())
    }
}

fn main() -> Result<()> {
    let plan = Plan::from_args();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let server = MariaDb::start()?;
    ordered(plan, &runtime, &server)?;
    grants(plan, &runtime, &server)
}

/// Measures cases in turns.
fn measure(runtime: &Runtime, plan: Plan, length: Duration, cases: &mut [Case]) -> Result<()> {
    for _ in 0..plan.kept {
        for case in &mut *cases {
            runtime.block_on(case.window(length))?;
        }
    }
    Ok(())
}

fn ordered(plan: Plan, runtime: &Runtime, server: &MariaDb) -> Result<()> {
    let mut bench = Bench::new("mysql: strictly increasing ids for 32 callers, every commit durable", plan);
    let url = server.database()?;
    let database = url.rsplit('/').next().context("a URL")?;
    for row in 0..ROWS {
        let create = format!(
            "CREATE TABLE cas_{row} (id INT PRIMARY KEY, num BIGINT NOT NULL) ENGINE = InnoDB; INSERT INTO cas_{row} VALUES (1, 0)"
        );
        server.sql(database, &create)?;
    }
    // As many connections as the loop has.
    let options = MysqlOptions::from_url(&format!("{url}?connections={CALLERS}"))?;
    let store = Arc::new(runtime.block_on(MysqlStore::connect(options))?);
    let ids = runtime.block_on(Ids::builder().segments(store.clone()).build())?;
    let cas = |row: usize| -> Result<Caller> {
        let connection = runtime.block_on(MySqlConnection::connect(&url))?;
        Ok(Caller::Cas { connection, table: format!("cas_{row}"), last: 0 })
    };
    let in_order = |row: usize| -> Result<Caller> {
        let tag = format!("ordered_{row}");
        let options = TagOptions { mode: Mode::Ordered, ..TagOptions::default() };
        if ids.sequence_if_open(&tag).is_none() {
            runtime.block_on(store.create_tag(&tag, &options))?;
        }
        let sequence = runtime.block_on(ids.sequence(&tag, SequenceOptions::default()))?;
        Ok(Caller::Ordered { sequence, last: 0 })
    };
    let one = |_| 0;
    // Each caller's key leads to a row of its own, as nearly all do among 64.
    let spread = |caller: usize| 1 + caller % (ROWS - 1);
    let callers = |make: &dyn Fn(usize) -> Result<Caller>, row: &dyn Fn(usize) -> usize| {
        (0..CALLERS).map(|caller| make(row(caller))).collect::<Result<Vec<_>>>().map(Case::new)
    };
    let mut cases =
        [callers(&cas, &one)?, callers(&in_order, &one)?, callers(&cas, &spread)?, callers(&in_order, &spread)?];
    measure(runtime, plan, Duration::from_millis(300), &mut cases)?;
    runtime.block_on(ids.close());

    let [cas_one, in_order_one, cas_spread, in_order_spread] = cases;
    let mut shares = cas_one.shares.clone();
    shares.sort_by(f64::total_cmp);
    let share = shares.get(shares.len() / 2).copied().context("the loop was never run")?;
    let rate = |name: &str, case: Case| Row::samples(name, case.rates, "/s");
    let base = bench.row(rate("one row, a compare-and-swap per request", cas_one));
    bench.row(Row::samples("one row, successful tries of it", shares.iter().map(|share| share * 100.0).collect(), "%"));
    bench.row(rate("one row, the ordered mode", in_order_one).against(base).ratio_at_least(100.0));
    let base_spread = bench.row(rate("64 rows, a compare-and-swap per request", cas_spread).against(base));
    bench.row(rate("64 rows, the ordered mode", in_order_spread).against(base_spread));
    bench.run()?;
    if share >= CAS_SHARE_MAX {
        println!("this run does not count: {:.1}% of the tries succeeded, the callers seldom met", share * 100.0);
    }
    Ok(())
}

fn grants(plan: Plan, runtime: &Runtime, server: &MariaDb) -> Result<()> {
    let mut bench = Bench::new("mysql: grants beside the bare statements, every commit durable", plan);
    // The pool of sqlx starts a task when it is made.
    let _entered = runtime.enter();
    for Bare { dialect, grant } in BARE {
        for connections in [1, 8] {
            let url = server.database()?;
            let options =
                MysqlOptions::from_url(&format!("{url}?dialect={dialect}&create=true&connections={connections}"))?;
            let store = Arc::new(runtime.block_on(MysqlStore::connect(options))?);
            let pool = MySqlPoolOptions::new().max_connections(connections);
            let pool = pool.test_before_acquire(false).connect_lazy(&url)?;
            // A row for each, so that none waits for another: what is measured is the way to the server.
            let mut cases = [Case::new(Vec::new()), Case::new(Vec::new()), Case::new(Vec::new())];
            let [bare, ours, pooled] = &mut cases;
            for number in 0..connections {
                let tag = format!("tag_{number}");
                runtime.block_on(store.allocate(&tag, 1, 0))?;
                let statements: Vec<_> = grant
                    .iter()
                    .map(|statement| statement.replace("{tag}", &tag).replace("{number}", &number.to_string()))
                    .collect();
                let connection = runtime.block_on(MySqlConnection::connect(&url))?;
                bare.callers.push(Caller::Bare { connection, statements: statements.clone() });
                ours.callers.push(Caller::Store { store: Arc::clone(&store), tag });
                pooled.callers.push(Caller::Pooled { pool: pool.clone(), statements });
            }
            measure(runtime, plan, Duration::from_millis(100), &mut cases)?;
            runtime.block_on(store.close());
            let [bare, ours, pooled] = cases;
            let dialect = dialect.split('&').next().unwrap_or_default();
            let name = |what: &str| format!("{dialect}, {connections} at a time: {what}");
            let base = bench.row(Row::samples(name("the bare statements"), bare.rates, "/s"));
            bench.row(Row::samples(name("grants"), ours.rates, "/s").against(base).ratio_at_least(0.9));
            bench.row(Row::samples(name("the bare statements, sqlx's pool"), pooled.rates, "/s").against(base));
        }
    }
    bench.run()
}
