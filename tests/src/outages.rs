//! Outages that the stores in MySQL and PostgreSQL have in common, each provoked on a real server: what a store says of
//! it (is it worth a retry, may the grant have been made, is it the caller's fault), that no number is granted twice,
//! and that the store recovers by itself. What does not hold ends in a panic.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sqlx::mysql::MySqlConnection;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use unalike::{Ids, Sequence, SequenceOptions, StepPolicy};
use unalike_mysql::{MysqlOptions, MysqlStore};
use unalike_postgres::{PostgresOptions, PostgresStore};
use unalike_storage::{Mode, Segment, SegmentStore, StoreError, TagOptions, with_causes};

use crate::mariadb::MariaDb;
use crate::postgres::Postgres;
use crate::proxy::Proxy;
use crate::refusals::at_last;
use crate::{PATIENCE, until};

/// Worth a retry, may have granted, the caller's fault.
pub type Judgement = (bool, bool, bool);

/// Nothing was granted, and it can be tried again.
pub const UNAVAILABLE: Judgement = (true, false, false);

/// It can be tried again, and something may have been granted.
pub const OUTCOME_UNKNOWN: Judgement = (true, true, false);

/// Somebody has to do something first.
pub const REFUSED: Judgement = (false, false, false);

/// Checks what an error says: to programs, and to people.
#[track_caller]
pub fn judge<T: Debug>(answer: Result<T, StoreError>, judgement: Judgement, words: &str) {
    let error = match answer {
        Ok(answer) => panic!("{words:?} was to come, and not {answer:?}"),
        Err(error) => error,
    };
    let judged = (error.is_retryable(), error.may_have_granted(), error.is_callers_fault());
    assert_eq!(judged, judgement, "{error:?}");
    let said = with_causes(&error);
    assert!(said.contains(words), "{words:?} is not in {said:?}");
}

/// Grants until one succeeds, which a store that recovers by itself does soon. All failures must be worth a retry.
pub async fn allocate_at_last(store: &impl SegmentStore, tag: &str) -> Segment {
    at_last(async || store.allocate(tag, 10, 0).await).await.unwrap()
}

/// A database server of the test's own, and its store.
pub trait Database: Sized + 'static {
    /// The store.
    type Store: SegmentStore;

    /// A connection of the test's own.
    type Connection;

    /// Starts one.
    ///
    /// # Errors
    /// When it does not become ready.
    fn start() -> anyhow::Result<Self>;

    /// The URL of a new, empty database.
    ///
    /// # Errors
    /// When the server does not make it.
    fn database(&self) -> anyhow::Result<String>;

    /// Where it listens.
    fn port(&self) -> u16;

    /// Kills it with SIGKILL.
    ///
    /// # Errors
    /// When it cannot be waited for.
    fn kill9(&mut self) -> anyhow::Result<()>;

    /// Starts it again on the same data and the same port; kills it before if it still runs.
    ///
    /// # Errors
    /// When it does not become ready.
    fn restart(&mut self) -> anyhow::Result<()>;

    /// Stops it where it is: connections stay open and nothing answers.
    ///
    /// # Errors
    /// When it does not stop.
    fn pause(&self) -> anyhow::Result<()>;

    /// Lets it go on.
    ///
    /// # Errors
    /// When there is no such process.
    fn resume(&self) -> anyhow::Result<()>;

    /// The numbers of the sessions whose statements wait for a lock.
    fn waiting(&self) -> Vec<String>;

    /// The store behind this URL, with these parameters.
    fn try_connect(url: &str, parameters: &str) -> impl Future<Output = Result<Self::Store, StoreError>>;

    /// Connects to the database itself.
    fn raw(url: &str) -> impl Future<Output = Self::Connection>;

    /// Runs a statement.
    fn run(connection: &mut Self::Connection, statement: &str) -> impl Future<Output = ()>;
}

/// What both fixtures have under the same names.
macro_rules! as_the_server_does {
    () => {
        fn start() -> anyhow::Result<Self> {
            Self::start()
        }

        fn database(&self) -> anyhow::Result<String> {
            self.database()
        }

        fn port(&self) -> u16 {
            self.port()
        }

        fn kill9(&mut self) -> anyhow::Result<()> {
            self.kill9()
        }

        fn restart(&mut self) -> anyhow::Result<()> {
            self.restart()
        }

        fn pause(&self) -> anyhow::Result<()> {
            self.pause()
        }

        fn resume(&self) -> anyhow::Result<()> {
            self.resume()
        }
    };
}

impl Database for MariaDb {
    type Store = MysqlStore;
    type Connection = MySqlConnection;

    as_the_server_does!();

    /// MariaDB makes its table anew only when nobody has looked at it for a tenth of a second. MySQL's cannot be read
    /// while a statement that waits contains bytes that are no text (error 3854).
    fn waiting(&self) -> Vec<String> {
        if Self::is_mysql() {
            let status = self.sql("", "SHOW ENGINE INNODB STATUS").unwrap();
            let transactions = status.split("---TRANSACTION ").filter(|text| text.contains("LOCK WAIT "));
            let thread = |text: &str| {
                let (_, behind) = text.split_once("MySQL thread id ")?;
                behind.split_once(',').map(|(thread, _)| thread.to_owned())
            };
            return transactions.filter_map(thread).collect();
        }
        let select = "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'";
        std::thread::sleep(Duration::from_millis(150));
        self.sql("", select).unwrap().lines().map(str::to_owned).collect()
    }

    async fn try_connect(url: &str, parameters: &str) -> Result<MysqlStore, StoreError> {
        MysqlStore::connect(MysqlOptions::from_url(&format!("{url}?{parameters}"))?).await
    }

    async fn raw(url: &str) -> MySqlConnection {
        MySqlConnection::connect(url).await.unwrap()
    }

    async fn run(connection: &mut MySqlConnection, statement: &str) {
        connection.execute(AssertSqlSafe(statement)).await.unwrap();
    }
}

impl Database for Postgres {
    type Store = PostgresStore;
    type Connection = PgConnection;

    as_the_server_does!();

    fn waiting(&self) -> Vec<String> {
        let select = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        self.sql("postgres", select).unwrap().lines().map(str::to_owned).collect()
    }

    async fn try_connect(url: &str, parameters: &str) -> Result<PostgresStore, StoreError> {
        PostgresStore::connect(PostgresOptions::from_url(&format!("{url}?{parameters}"))?).await
    }

    async fn raw(url: &str) -> PgConnection {
        PgConnection::connect(url).await.unwrap()
    }

    async fn run(connection: &mut PgConnection, statement: &str) {
        connection.execute(AssertSqlSafe(statement)).await.unwrap();
    }
}

/// The store behind this URL, with these parameters.
pub async fn connect<D: Database>(url: &str, parameters: &str) -> D::Store {
    D::try_connect(url, parameters).await.unwrap()
}

/// A transaction of somebody else that has a tag's row in hand, until it is dropped.
pub async fn lock_row<D: Database>(url: &str, tag: &str) -> D::Connection {
    let mut connection = D::raw(url).await;
    D::run(&mut connection, "START TRANSACTION").await;
    D::run(&mut connection, &format!("SELECT watermark FROM unalike_tag WHERE tag = '{tag}' FOR UPDATE")).await;
    connection
}

/// Waits until so many statements wait for a lock.
pub async fn until_waiting(server: &impl Database, count: usize) {
    until("statements wait for a lock", async || server.waiting().len() == count).await;
}

/// The server starts again while a store has idle connections: one request fails at most, with these words for its
/// error.
pub async fn idle_connections_that_broke<D: Database>(words: impl Fn(&StoreError) -> &'static str) {
    let mut server = D::start().unwrap();
    let url = server.database().unwrap();
    let store = Arc::new(connect::<D>(&url, "connections=5").await);
    store.allocate("order", 10, 0).await.unwrap();
    // Five connections, all of them open and idle.
    let lock = lock_row::<D>(&url, "order").await;
    let requests: Vec<_> = (0..5)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.allocate("order", 10, 0).await })
        })
        .collect();
    until_waiting(&server, 5).await;
    drop(lock);
    let mut end = 0;
    for request in requests {
        end = end.max(request.await.unwrap().unwrap().end);
    }
    server.restart().unwrap();
    let mut answer = store.allocate("order", 10, 0).await;
    // One that was used within the last second is trusted.
    if let Err(error) = &answer {
        let words = words(error);
        judge(answer, OUTCOME_UNKNOWN, words);
        answer = store.allocate("order", 10, 0).await;
    }
    let segment = answer.unwrap();
    assert!(segment.start >= end, "{segment:?} after {end}");
}

/// Requests end in time though the server is paused, and go on when it does.
pub async fn a_paused_server<D: Database>() {
    let server = D::start().unwrap();
    let url = server.database().unwrap();
    let store = connect::<D>(&url, "request-timeout-ms=1000&connect-timeout-ms=600000&connections=2").await;
    let first = store.allocate("order", 10, 0).await.unwrap();
    server.pause().unwrap();
    // On the connection that is open.
    judge(store.allocate("order", 10, 0).await, OUTCOME_UNKNOWN, "no answer within 1000 ms");
    // On a new one, which is no more patient than the request.
    judge(store.allocate("order", 10, 0).await, UNAVAILABLE, "no connection within 1000 ms");
    judge(store.tag("order").await, UNAVAILABLE, "no connection within 1000 ms");
    server.resume().unwrap();
    let second = allocate_at_last(&store, "order").await;
    assert!(second.start >= first.end, "{second:?} after {first:?}");
}

/// Connections that the network forgot do not use the pool up.
pub async fn connections_that_the_network_forgot<D: Database>() {
    let server = D::start().unwrap();
    let url = server.database().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let store = Arc::new(connect::<D>(&proxy.url(&url), "request-timeout-ms=2000&connections=3").await);
    let mut end = store.allocate("order", 10, 0).await.unwrap().end;
    for round in 0..3 {
        // All at once, so that each connection of the pool is lost, in the middle of a statement or on the way back.
        let requests: Vec<_> = (0..12)
            .map(|request| {
                let store = Arc::clone(&store);
                tokio::spawn(async move { store.allocate(&format!("order.{request}"), 10, 0).await })
            })
            .collect();
        proxy.swallow();
        for request in requests {
            if let Err(error) = request.await.unwrap() {
                assert!(error.is_retryable(), "{round}: {error:?}");
            }
        }
        let segment = allocate_at_last(&*store, "order").await;
        assert!(segment.start >= end, "{segment:?} after {end}");
        end = segment.end;
    }
    // And a network that stands still goes on where it stopped.
    proxy.stall(true);
    judge(store.allocate("order", 10, 0).await, OUTCOME_UNKNOWN, "no answer within 2000 ms");
    proxy.stall(false);
    assert!(allocate_at_last(&*store, "order").await.start >= end);
}

/// Loses the answer to the first statement of a grant, then to the second of another one, and so on, on stores with
/// these parameters.
pub async fn lose_each_answer<D: Database>(server: &D, parameters: &str) {
    let url = server.database().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let store = connect::<D>(&proxy.url(&url), &format!("{parameters}&connections=1")).await;
    let direct = connect::<D>(&url, parameters).await;
    let mut end = store.allocate("order", 10, 0).await.unwrap().end;
    let (mut losses, mut grants_lost) = (0, 0);
    loop {
        // On a connection of its own, where each statement is prepared first.
        proxy.cut();
        allocate_at_last(&store, "other").await;
        let before = direct.tag("order").await.unwrap().watermark;
        proxy.lose_answer_after(losses);
        let answer = store.allocate("order", 10, 0).await;
        if proxy.lost_none() {
            assert!(answer.unwrap().start >= end, "{parameters}");
            break;
        }
        losses += 1;
        let granted = direct.tag("order").await.unwrap().watermark > before;
        match answer {
            Ok(segment) => panic!("{parameters}: the answer {losses} was lost, and it granted {segment:?}"),
            Err(error) => {
                assert!(error.is_retryable(), "{parameters}: {error:?}");
                assert!(error.may_have_granted() || !granted, "{parameters}: a grant was lost: {error:?}");
            }
        }
        grants_lost += u32::from(granted);
        let segment = allocate_at_last(&store, "order").await;
        assert!(segment.start >= end, "{parameters}: {segment:?} after {end}");
        assert!(!granted || segment.start > end, "{parameters}: what was lost is burnt: {segment:?} after {end}");
        end = segment.end;
    }
    assert!(losses > 0 && grants_lost > 0, "{parameters}: {losses} answers were lost, {grants_lost} with a grant");
}

/// A server that is killed ten times under load costs gaps alone.
pub async fn killed_under_load<D: Database>() {
    let mut server = D::start().unwrap();
    under_load(&mut server, async |server, _, loads| {
        let [covered, ..] = loads;
        for _ in 0..10 {
            for load in loads {
                load.until_served().await;
            }
            server.kill9().unwrap();
            // What is buffered goes on.
            covered.until_served().await;
            server.restart().unwrap();
        }
    })
    .await;
}

/// A server that stands still for seconds under load costs gaps alone.
pub async fn paused_under_load<D: Database>() {
    let mut server = D::start().unwrap();
    under_load(&mut server, async |server, _, loads| {
        let [covered, ..] = loads;
        server.pause().unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
        covered.until_served().await;
        server.resume().unwrap();
    })
    .await;
}

/// Connections that are cut again and again under load cost gaps alone.
pub async fn cut_under_load<D: Database>() {
    let mut server = D::start().unwrap();
    under_load(&mut server, async |_, proxy, loads| {
        let [covered, ..] = loads;
        for round in 0..100 {
            match round % 3 {
                0 => proxy.cut(),
                1 => proxy.swallow(),
                _ => proxy.lose_answer_after(round % 7),
            }
            covered.until_served().await;
        }
    })
    .await;
}

/// A row that somebody locked blocks its own tag alone.
pub async fn a_locked_row<D: Database>() {
    let mut server = D::start().unwrap();
    let url = server.database().unwrap();
    let ids = node::<D>(&url).await;
    let small = SequenceOptions { step: Some(StepPolicy::Fixed { step: 1 }), ..SequenceOptions::default() };
    let held = ids.sequence("held", small).await.unwrap();
    held.take(5).await.unwrap();
    let lock = lock_row::<D>(&url, "held").await;
    // Ten tasks that wait for the one tag, and more tags than the pool has connections.
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let held = held.clone();
            tokio::spawn(async move { held.take(5).await })
        })
        .collect();
    until_waiting(&server, 1).await;
    for tag in 0..20 {
        let sequence = ids.sequence(&format!("free.{tag}"), small).await.unwrap();
        sequence.take(5).await.unwrap();
    }
    drop(lock);
    for task in waiting {
        if let Err(error) = task.await.unwrap() {
            assert!(error.is_retryable(), "{error:?}");
        }
    }
    until_taken(&held).await;
    ids.close().await;
    server.kill9().unwrap();
}

/// Waits until ids come again.
async fn until_taken(sequence: &Sequence) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = sequence.take(5).await {
        assert!(error.is_retryable() && Instant::now() < deadline, "{error:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Ids that many tasks take from a tag, in two nodes, while something happens to the database.
struct Load {
    tag: String,
    /// Whether requests may fail, as they may once the cover is used up.
    may_fail: bool,
    ending: AtomicBool,
    /// How many requests were served.
    served: AtomicU64,
}

impl Load {
    fn new(tag: &str, may_fail: bool) -> Arc<Self> {
        Arc::new(Self { tag: tag.to_owned(), may_fail, ending: AtomicBool::new(false), served: AtomicU64::new(0) })
    }

    /// Takes ids of one node until the end, and gives them.
    async fn take(self: Arc<Self>, sequence: Sequence) -> Vec<u64> {
        let mut ids = Vec::new();
        while !self.ending.load(Ordering::SeqCst) {
            match sequence.take(10).await {
                Ok(batch) => {
                    let before = ids.last().copied();
                    ids.extend(batch.iter());
                    assert!(before < batch.iter().next(), "{}: ids of a node ascend", self.tag);
                    self.served.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) => {
                    assert!(self.may_fail, "{}: a request within cover failed: {error:?}", self.tag);
                    assert!(error.is_retryable(), "{}: {error:?}", self.tag);
                }
            }
            // Some 3,000 ids a second, whatever the machine does beside.
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        ids
    }

    /// Waits until the next requests of everybody were served: nothing is stuck.
    async fn until_served(&self) {
        let from = self.served.load(Ordering::SeqCst);
        until(&format!("{} is served", self.tag), async || self.served.load(Ordering::SeqCst) >= from + 20).await;
    }
}

/// A node on the store behind this URL.
async fn node<D: Database>(url: &str) -> Ids {
    let store = connect::<D>(url, "connections=4&request-timeout-ms=2000&connect-timeout-ms=1000").await;
    Ids::builder().segments(Arc::new(store)).wait_max(Duration::from_secs(1)).build().await.unwrap()
}

/// What happens to the database while two nodes take ids through the proxy: of a tag whose buffer outlasts it all, one
/// whose buffer is soon empty, and one in the ordered mode, which has none.
async fn under_load<D: Database>(server: &mut D, mut happen: impl AsyncFnMut(&mut D, &Proxy, &[Arc<Load>; 3])) {
    let url = server.database().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let direct = connect::<D>(&url, "").await;
    let ordered = TagOptions { mode: Mode::Ordered, ..TagOptions::default() };
    direct.create_tag("ordered", &ordered).await.unwrap();
    let loads = [Load::new("covered", false), Load::new("hungry", true), Load::new("ordered", true)];
    let nodes = [node::<D>(&proxy.url(&url)).await, node::<D>(&proxy.url(&url)).await];
    let mut tasks = BTreeMap::<_, Vec<_>>::new();
    for node in &nodes {
        for load in &loads {
            // 50,000 numbers last 16 s, of which nine tenths are left when a refill begins.
            let step = match load.tag.as_str() {
                "covered" => Some(StepPolicy::Fixed { step: 50_000 }),
                "hungry" => Some(StepPolicy::Fixed { step: 200 }),
                _ => None,
            };
            let sequence =
                node.sequence(&load.tag, SequenceOptions { step, ..SequenceOptions::default() }).await.unwrap();
            // The first segment, and the one behind it.
            sequence.next().await.unwrap();
            tasks.entry(load.tag.clone()).or_default().push(tokio::spawn(Arc::clone(load).take(sequence)));
        }
    }
    happen(server, &proxy, &loads).await;
    for load in &loads {
        load.until_served().await;
        load.ending.store(true, Ordering::SeqCst);
    }
    for (tag, tasks) in tasks {
        let mut ids = Vec::new();
        for task in tasks {
            ids.extend(task.await.unwrap());
        }
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count, "{tag}: an id came twice");
        let watermark = direct.tag(&tag).await.unwrap().watermark;
        assert!(ids.last().is_some_and(|&last| last <= watermark), "{tag}: an id that was not granted");
    }
    for node in nodes {
        node.close().await;
    }
}
