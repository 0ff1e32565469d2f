//! The stores beside each other, in one run: strictly increasing ids of one row or key for many callers, and what a
//! grant of PostgreSQL costs beside its bare statement.
//!
//! Every commit is durable in MariaDB, PostgreSQL and etcd. Redis stands under a ceiling of a store in memory, and
//! keeps nothing on its disk: it need not.
//!
//! In the ordered mode all who wait are served by one grant, the next one while they take their ids. So the rate grows
//! with the callers, until the processor is spent on waking them: at 5,000 callers 1,000,000 ids a second are aimed at,
//! from any store whose grant takes 5 ms or less.
//!
//! A grant of PostgreSQL is one statement and one round trip, with the settings of the server that it rests on as its
//! condition. It should be granted eight tenths as often as the bare `UPDATE` runs. (MySQL, Redis and etcd have benches
//! of their own for that.)
//!
//! ```text
//! cargo bench -p unalike-benches --bench stores
//! ```

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use tokio::runtime::Runtime;
use unalike::storage::{Mode, SegmentStore, TagOptions};
use unalike::{Ids, Sequence, SequenceOptions};
use unalike_benches::tasks::{Caller, Tasks};
use unalike_benches::{Bench, Plan, Row};
use unalike_etcd::{EtcdOptions, EtcdStore};
use unalike_memory::MemoryStore;
use unalike_mysql::{MysqlOptions, MysqlStore};
use unalike_postgres::{PostgresOptions, PostgresStore};
use unalike_redis::{Backing, RedisOptions, RedisStore};
use unalike_tests::etcd::Etcd;
use unalike_tests::mariadb::MariaDb;
use unalike_tests::postgres::Postgres;
use unalike_tests::redis::{Persistence, Redis};

/// How many callers wait for ids of one row.
const CALLERS: [usize; 3] = [32, 500, 5_000];

/// Takes one id after the other in the ordered mode.
struct InOrder {
    sequence: Sequence,
    last: u64,
}

impl Caller for InOrder {
    async fn request(&mut self) -> Result<u64> {
        let id = self.sequence.next().await?;
        ensure!(id > self.last, "{id} came after {}", self.last);
        self.last = id;
        Ok(1)
    }
}

/// Asks for grants.
enum Granted {
    /// A store.
    Store { store: Arc<PostgresStore>, tag: String },
    /// The server, by a statement on a connection of its own.
    Bare { connection: PgConnection, statement: String },
}

impl Caller for Granted {
    async fn request(&mut self) -> Result<u64> {
        match self {
            Self::Store { store, tag } => drop(store.allocate(tag, 1_000, 0).await?),
            Self::Bare { connection, statement } => {
                sqlx::query(AssertSqlSafe(statement.clone())).fetch_one(connection).await?;
            }
        }
        Ok(1)
    }
}

fn main() -> Result<()> {
    let plan = Plan::from_args();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let postgres = Postgres::start()?;
    {
        let (mariadb, redis, etcd) = (MariaDb::start()?, Redis::start(Persistence::Nothing)?, Etcd::start()?);
        let stores = runtime.block_on(async {
            let mysql = MysqlStore::connect(MysqlOptions::from_url(&mariadb.database()?)?).await?;
            let of_postgres = PostgresStore::connect(PostgresOptions::from_url(&postgres.database()?)?).await?;
            let of_etcd = EtcdStore::connect(EtcdOptions::from_url(&etcd.url())?).await?;
            let backing = Backing::Durable(Arc::new(MemoryStore::default()));
            let of_redis = RedisStore::connect(RedisOptions::from_url(&redis.url(0, ""))?, backing).await?;
            let stores: [(&str, Arc<dyn SegmentStore>); 4] = [
                ("MariaDB", Arc::new(mysql)),
                ("PostgreSQL", Arc::new(of_postgres)),
                ("Redis", Arc::new(of_redis)),
                ("etcd", Arc::new(of_etcd)),
            ];
            anyhow::Ok(stores)
        })?;
        ordered(plan, &runtime, &stores)?;
    }
    grants(plan, &runtime, &postgres)
}

fn ordered(plan: Plan, runtime: &Runtime, stores: &[(&str, Arc<dyn SegmentStore>)]) -> Result<()> {
    let mut bench = Bench::new("stores: strictly increasing ids of one row or key", plan);
    let mut names = Vec::new();
    let mut all = Vec::new();
    let mut open = Vec::new();
    for (name, store) in stores {
        let options = TagOptions { mode: Mode::Ordered, ..TagOptions::default() };
        runtime.block_on(store.create_tag("ordered", &options))?;
        let ids = runtime.block_on(Ids::builder().segments(Arc::clone(store)).build())?;
        let sequence = runtime.block_on(ids.sequence("ordered", SequenceOptions::default()))?;
        for callers in CALLERS {
            names.push(format!("{name}, {callers} callers"));
            all.push(Tasks::new((0..callers).map(|_| InOrder { sequence: sequence.clone(), last: 0 }).collect()));
        }
        open.push(ids);
    }
    Tasks::measure(runtime, plan, Duration::from_millis(300), &mut all)?;
    for ids in open {
        runtime.block_on(ids.close());
    }
    for (name, tasks) in names.into_iter().zip(all) {
        bench.row(Row::samples(name, tasks.rates, "/s"));
    }
    bench.run()
}

fn grants(plan: Plan, runtime: &Runtime, server: &Postgres) -> Result<()> {
    let mut bench = Bench::new("PostgreSQL: grants beside the bare statement, each a commit", plan);
    for callers in [1, 8] {
        let url = server.database()?;
        let store = Arc::new(runtime.block_on(PostgresStore::connect(PostgresOptions::from_url(&url)?))?);
        let (mut bare, mut ours) = (Vec::new(), Vec::new());
        let mut setup = runtime.block_on(PgConnection::connect(&url))?;
        runtime.block_on(setup.execute("CREATE TABLE bare (tag TEXT PRIMARY KEY, watermark BIGINT NOT NULL)"))?;
        for number in 0..callers {
            let tag = format!("tag_{number}");
            runtime.block_on(store.allocate(&tag, 1, 0))?;
            let insert = AssertSqlSafe(format!("INSERT INTO bare VALUES ('{tag}', 0)"));
            runtime.block_on(setup.execute(sqlx::query(insert)))?;
            let connection = runtime.block_on(PgConnection::connect(&url))?;
            let statement =
                format!("UPDATE bare SET watermark = watermark + 1000 WHERE tag = '{tag}' RETURNING watermark");
            bare.push(Granted::Bare { connection, statement });
            ours.push(Granted::Store { store: Arc::clone(&store), tag });
        }
        let mut all = [Tasks::new(bare), Tasks::new(ours)];
        Tasks::measure(runtime, plan, Duration::from_millis(200), &mut all)?;
        let [bare, ours] = all;
        let base = bench.row(Row::samples(format!("{callers} at a time: the bare UPDATE"), bare.rates, "/s"));
        let name = format!("{callers} at a time: grants");
        bench.row(Row::samples(name, ours.rates, "/s").against(base).ratio_at_least(0.8));
    }
    bench.run()
}
