//! Outages of MySQL and of the network while leases are acquired, prolonged and given back, each provoked on a real
//! server: nobody is granted what another may hold, and holders keep what they were told that they have.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sqlx::mysql::MySqlConnection;
use sqlx::{Connection as _, Executor as _};
use unalike::{Ids, Snowflake, SnowflakeOptions};
use unalike_mysql::{MysqlLeases, MysqlOptions};
use unalike_storage::{Layout, Lease, LeaseLimits, LeaseStore as _, StoreError};
use unalike_tests::leases::{assert_disjoint, now_ms};
use unalike_tests::mariadb::MariaDb;
use unalike_tests::mysql_leases::Holder;
use unalike_tests::outages::Database as _;
use unalike_tests::proxy::Proxy;
use unalike_tests::{PATIENCE, until};

/// Worth a retry, may have granted.
type Judgement = (bool, bool);
const UNAVAILABLE: Judgement = (true, false);
const OUTCOME_UNKNOWN: Judgement = (true, true);

async fn connect(url: &str, parameters: &str) -> MysqlLeases {
    MysqlLeases::connect(MysqlOptions::from_url(&format!("{url}?{parameters}")).unwrap()).await.unwrap()
}

/// A transaction of somebody else that has these rows in hand, until it is dropped.
async fn lock(url: &str, statement: &'static str) -> MySqlConnection {
    let mut connection = MySqlConnection::connect(url).await.unwrap();
    connection.execute("START TRANSACTION").await.unwrap();
    connection.execute(statement).await.unwrap();
    connection
}

const LOCK_NAMESPACE: &str = "SELECT * FROM unalike_lease_namespace FOR UPDATE";
const LOCK_LEASES: &str = "SELECT * FROM unalike_lease FOR UPDATE";

fn judge<T: std::fmt::Debug>(answer: Result<T, StoreError>, judgement: Judgement, words: &str) {
    let error = match answer {
        Ok(answer) => panic!("{words:?} was to come, and not {answer:?}"),
        Err(error) => error,
    };
    assert_eq!((error.is_retryable(), error.may_have_granted()), judgement, "{error:?}");
    let said = format!("{error} {error:?}");
    assert!(said.contains(words), "{words:?} is not in {said:?}");
}

/// The end that the server has recorded for the worker of this lease, if the lease is the worker's newest.
async fn recorded_end(direct: &MysqlLeases, lease: &Lease) -> Option<u64> {
    let records = direct.leases("default").await.unwrap();
    let record = records.into_iter().find(|record| record.lease.grant_id == lease.grant_id);
    record.map(|record| record.lease.valid_until_ms)
}

/// Loses the answer to the first request of a call, then to the second of another call, and so on, until a call has no
/// more: says which was lost, and gets the answer of the call.
async fn lose_each_answer<T>(
    proxy: &Proxy,
    holder: &Holder,
    mut prepare: impl AsyncFnMut() -> Lease,
    call: impl AsyncFn(Lease) -> Result<T, StoreError>,
    mut judge: impl AsyncFnMut(u32, Lease, StoreError),
) -> u32 {
    let mut losses = 0;
    loop {
        // On a connection of its own, where each statement is prepared first.
        proxy.cut();
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = holder.leases.namespaces().await {
            assert!(error.is_retryable() && Instant::now() < deadline, "{error:?}");
        }
        let lease = prepare().await;
        proxy.lose_answer_after(losses);
        let answer = call(lease).await;
        if proxy.lost_none() {
            assert!(answer.is_ok(), "nothing was lost: {:?}", answer.err());
            return losses;
        }
        losses += 1;
        match answer {
            Ok(_) => panic!("the answer {losses} was lost, and the call succeeded"),
            Err(error) => judge(losses, lease, error).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_answer_to_an_acquire_is_lost_the_interval_is_burnt() {
    let server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let direct = connect(&url, "").await;
    let mut lost_grants = 0;
    for (namespace, is_new) in [("default", false), ("new", true)] {
        let first = Holder { layout: Holder::few_workers(), ..Holder::new(&direct, namespace, "host") };
        let mut granted = Vec::new();
        if !is_new {
            let lease = first.acquire(60_000).await.unwrap();
            first.release(&lease, lease.not_before_ms + 1).await.unwrap();
            granted.push(Lease { valid_until_ms: lease.not_before_ms + 1, ..lease });
        }
        let holder = Holder { leases: connect(&proxy.url(&url), "connections=1").await, ..first.clone() };
        // What the store granted and nobody heard of.
        let mut unheard = Vec::new();
        let dummy = granted.first().copied().unwrap_or(Lease {
            worker: 0,
            grant_id: unalike_storage::GrantId(0),
            not_before_ms: 0,
            valid_until_ms: 0,
        });
        let losses = lose_each_answer(
            &proxy,
            &holder,
            async || dummy,
            async |_| {
                // Short, so that four workers are enough.
                holder.acquire(150).await
            },
            async |losses, _, error| {
                let known: Vec<_> = granted.iter().chain(&unheard).map(|lease: &Lease| lease.grant_id).collect();
                let records = direct.leases(namespace).await.unwrap();
                let new: Vec<_> =
                    records.iter().map(|record| record.lease).filter(|it| !known.contains(&it.grant_id)).collect();
                assert!(error.is_retryable(), "{losses}: {error:?}");
                assert!(error.may_have_granted() || new.is_empty(), "{losses}: a grant was lost: {error:?}");
                unheard.extend(&new);
                // The holder asks again, and gets another.
                let next = first.acquire_at_last(150).await;
                assert!(!known.contains(&next.grant_id) && new.iter().all(|lost| lost.grant_id != next.grant_id));
                granted.push(next);
                tokio::time::sleep(Duration::from_millis(160)).await;
            },
        )
        .await;
        assert!(losses >= 8, "{losses} answers were lost");
        lost_grants += unheard.len();
        assert_disjoint(granted.into_iter().chain(unheard));
    }
    assert!(lost_grants >= 2, "{lost_grants} grants were lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_answer_to_an_extension_is_lost_its_holder_keeps_its_bound_and_may_ask_again() {
    let server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let direct = connect(&url, "").await;
    let holder = Holder::new(&connect(&proxy.url(&url), "connections=1").await, "default", "host");
    let own = Holder { leases: direct.clone(), ..holder.clone() };
    let mut done = 0;
    let losses = lose_each_answer(
        &proxy,
        &holder,
        async || own.acquire(60_000).await.unwrap(),
        async |lease| holder.extend(&lease, 90_000).await,
        async |losses, lease, error| {
            assert!(error.is_retryable(), "{losses}: {error:?}");
            let end_ms = recorded_end(&direct, &lease).await.expect("nobody else is granted the worker");
            assert!(end_ms >= lease.valid_until_ms, "its holder uses it up to there: {end_ms}, {lease:?}");
            done += u32::from(end_ms > lease.valid_until_ms);
            assert!(error.may_have_granted() || end_ms == lease.valid_until_ms, "{losses}: {error:?}");
            let again = own.extend(&lease, 60_000).await.unwrap();
            assert!(again.valid_until_ms >= end_ms && again.grant_id == lease.grant_id, "{again:?}, {end_ms}");
        },
    )
    .await;
    assert!(losses >= 2 && done >= 1, "{losses} answers were lost, {done} of them of an extension that was made");
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_answer_to_a_release_is_lost_the_worker_is_handed_over_once() {
    let server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let direct = connect(&url, "").await;
    let holder = Holder::new(&connect(&proxy.url(&url), "connections=1").await, "default", "");
    let own = Holder { leases: direct.clone(), ..holder.clone() };
    let mut done = 0;
    let losses = lose_each_answer(
        &proxy,
        &holder,
        async || own.acquire(60_000).await.unwrap(),
        async |lease| holder.release(&lease, lease.not_before_ms + 1).await,
        async |losses, lease, error| {
            assert!(error.is_retryable(), "{losses}: {error:?}");
            let used = Lease { valid_until_ms: lease.not_before_ms + 1, ..lease };
            let was_released = recorded_end(&direct, &lease).await == Some(used.valid_until_ms);
            done += u32::from(was_released);
            assert!(error.may_have_granted() || !was_released, "{losses}: {error:?}");
            let wish = Holder { preferred: Some(lease.worker), ..own.clone() };
            if was_released {
                tokio::time::sleep(Duration::from_millis(2)).await;
                let next = wish.acquire(60_000).await.unwrap();
                assert_eq!(next.worker, lease.worker, "it is free");
                // The release comes once more, and changes nothing.
                assert!(!own.release(&lease, used.valid_until_ms).await.unwrap());
                assert_eq!(recorded_end(&direct, &next).await, Some(next.valid_until_ms));
                assert_disjoint([used, next]);
            } else {
                assert_ne!(wish.acquire(60_000).await.unwrap().worker, lease.worker, "it is not free");
            }
        },
    )
    .await;
    assert!(losses >= 2 && done >= 1, "{losses} answers were lost, {done} of them of a release that was made");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_somebody_holds_for_too_long_leaves_no_doubt() {
    let server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    let leases = connect(&url, "request-timeout-ms=2500").await;
    let holder = Holder::new(&leases, "default", "host");
    let lease = holder.acquire(60_000).await.unwrap();
    let held = lock(&url, LOCK_NAMESPACE).await;
    judge(holder.acquire(60_000).await, UNAVAILABLE, "holds the row for too long");
    // Those who have a lease do not wait for those who want one.
    let lease = holder.extend(&lease, 90_000).await.unwrap();
    drop(held);
    let held = lock(&url, LOCK_LEASES).await;
    judge(holder.extend(&lease, 120_000).await, UNAVAILABLE, "holds the row for too long");
    judge(holder.release(&lease, lease.not_before_ms).await, UNAVAILABLE, "holds the row for too long");
    judge(leases.forbid_extension("default", lease.worker).await, UNAVAILABLE, "holds the row for too long");
    drop(held);
    assert_eq!(recorded_end(&leases, &lease).await, Some(lease.valid_until_ms), "nothing was done");
    holder.extend(&lease, 120_000).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_layouts_that_come_to_a_new_namespace_at_once_one_is_refused() {
    let server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    let leases = connect(&url, "").await;
    // Both find the namespace unbound, and then wait to bind it.
    let held = lock(&url, "SELECT * FROM unalike_lease_store FOR UPDATE").await;
    let binding: Vec<_> = [Layout::TWITTER, Layout::LEAF]
        .into_iter()
        .map(|layout| {
            let holder = Holder { layout, ..Holder::new(&leases, "default", "host") };
            tokio::spawn(async move { (holder.acquire(60_000).await, layout) })
        })
        .collect();
    until("both wait", async || server.waiting().len() == 2).await;
    drop(held);
    let (mut granted, mut refused) = (Vec::new(), Vec::new());
    for answer in binding {
        match answer.await.unwrap() {
            (Ok(_), layout) => granted.push(layout.to_string()),
            (Err(StoreError::LayoutMismatch { bound, .. }), _) => refused.push(bound),
            (Err(error), _) => panic!("{error:?}"),
        }
    }
    assert_eq!(granted.len(), 1);
    assert_eq!(refused, granted, "the one that is bound is named");
    assert_eq!(leases.leases("default").await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_prolonged_while_it_is_chosen_is_not_granted() {
    let server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    let leases = connect(&url, "").await;
    let old = Holder { layout: Holder::one_worker(), ..Holder::new(&leases, "default", "old") };
    let lease = old.acquire(5).await.unwrap();
    until("its lease has ended", async || now_ms() > lease.valid_until_ms).await;
    // Somebody has the worker's row in hand when it is chosen, and prolongs it then.
    let mut held = lock(&url, LOCK_LEASES).await;
    let taking = tokio::spawn({
        let new = Holder { holder: "new".to_owned(), ..old.clone() };
        async move { new.acquire(60_000).await }
    });
    until("it is chosen", async || server.waiting().len() == 1).await;
    held.execute("UPDATE unalike_lease SET valid_until_ms = valid_until_ms + 60000").await.unwrap();
    held.execute("COMMIT").await.unwrap();
    judge(taking.await.unwrap(), UNAVAILABLE, "try again");
    let end_ms = lease.valid_until_ms + 60_000;
    assert_eq!(recorded_end(&leases, &lease).await, Some(end_ms), "it is the holder's that prolonged it");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_became_of_a_lease_while_a_request_waited_is_heeded() {
    let server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    let leases = connect(&url, "").await;
    let holder = Holder::new(&leases, "default", "host");
    // Granted to another; ended by an operator; prolonged by another request of the holder; ended earlier.
    for (change, is_lost, is_released) in [
        ("UPDATE unalike_lease SET grant_id = REPEAT('x', 16)", true, false),
        ("UPDATE unalike_lease SET is_final = 1", true, false),
        ("UPDATE unalike_lease SET valid_until_ms = valid_until_ms + 500000", false, true),
        ("UPDATE unalike_lease SET valid_until_ms = not_before_ms + 1", false, false),
    ] {
        for releases in [false, true] {
            let lease = holder.acquire(60_000).await.unwrap();
            let mut held = lock(&url, LOCK_LEASES).await;
            let waits = tokio::spawn({
                let holder = holder.clone();
                async move {
                    if releases {
                        holder.release(&lease, lease.valid_until_ms).await.map(|released| (released, None))
                    } else {
                        holder.extend(&lease, 90_000).await.map(|longer| (true, Some(longer)))
                    }
                }
            });
            until("it waits", async || server.waiting().len() == 1).await;
            held.execute(change).await.unwrap();
            held.execute("COMMIT").await.unwrap();
            let row = server.sql(
                url.rsplit_once('/').unwrap().1,
                &format!("SELECT valid_until_ms FROM unalike_lease WHERE worker = {}", lease.worker),
            );
            let answer = waits.await.unwrap();
            let end_ms = leases.leases("default").await.unwrap();
            let end_ms = end_ms.iter().find(|it| it.lease.worker == lease.worker).unwrap().lease.valid_until_ms;
            match (releases, answer) {
                (true, Ok((released, _))) => assert_eq!(released, is_released, "{change}"),
                (false, Ok((_, Some(longer)))) => {
                    assert!(!is_lost, "{change}: {longer:?}");
                    assert_eq!(longer.valid_until_ms, end_ms, "{change}: what it is told is what is recorded");
                    assert!(longer.valid_until_ms >= lease.valid_until_ms + 29_000, "{change}: {longer:?}");
                    assert!(
                        !change.contains("500000") || end_ms >= lease.valid_until_ms + 500_000,
                        "lowered: {end_ms}"
                    );
                }
                (false, Err(StoreError::LeaseLost { .. })) => assert!(is_lost, "{change}"),
                (_, answer) => panic!("{change}: {answer:?}"),
            }
            if !releases && is_lost || releases && !is_released {
                // The statement may have come before or after this look, and changed nothing.
                assert_eq!(row.unwrap().trim(), end_ms.to_string(), "{change}");
            }
            server.sql(url.rsplit_once('/').unwrap().1, "DELETE FROM unalike_lease").unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_grants_nothing_and_is_worth_a_retry() {
    let server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    let (_, database) = url.rsplit_once('/').unwrap();
    let leases = connect(&url, "").await;
    let holder = Holder { layout: Holder::one_worker(), ..Holder::new(&leases, "default", "host") };
    let lease = holder.acquire(5).await.unwrap();
    until("its lease has ended", async || now_ms() > lease.valid_until_ms).await;
    let heavy = "CREATE TABLE heavy (id INT PRIMARY KEY AUTO_INCREMENT); INSERT INTO heavy WITH RECURSIVE n AS \
         (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT i FROM n";
    server.sql(database, heavy).unwrap();
    // The transaction that has done less is the victim, and this one wants the two rows the other way round.
    let mut other = lock(&url, "UPDATE heavy SET id = id + 10000 ORDER BY id DESC").await;
    other.execute(LOCK_LEASES).await.unwrap();
    let taking = tokio::spawn({
        let holder = holder.clone();
        async move { holder.acquire(60_000).await }
    });
    until("it waits for the worker's row", async || server.waiting().len() == 1).await;
    other.execute(LOCK_NAMESPACE).await.unwrap();
    other.execute("COMMIT").await.unwrap();
    judge(taking.await.unwrap(), UNAVAILABLE, "lost against another one and was rolled back");
    assert_eq!(recorded_end(&leases, &lease).await, Some(lease.valid_until_ms), "nothing was granted");
    assert_disjoint([lease, holder.acquire(60_000).await.unwrap()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_or_connection_that_ends_in_the_middle_leaves_the_outcome_of_a_write_unknown() {
    let mut server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    let leases = connect(&url, "").await;
    let holder = Holder::new(&leases, "default", "host");
    let mut granted = vec![holder.acquire(60_000).await.unwrap()];
    let mut held = granted.remove(0);

    type Ending = (&'static str, fn(&mut MariaDb));
    let endings: [Ending; 3] = [
        ("KILL", |server| {
            for id in server.waiting() {
                server.sql("", &format!("KILL {id}")).unwrap();
            }
        }),
        ("SHUTDOWN", |server| {
            server.sql("", "SHUTDOWN").unwrap();
        }),
        ("SIGKILL", |server| server.kill9().unwrap()),
    ];
    for (ending, bring_about) in endings {
        let rows = lock(&url, LOCK_LEASES).await;
        let extending = tokio::spawn({
            let holder = holder.clone();
            async move { holder.extend(&held, 90_000).await }
        });
        until("it waits", async || server.waiting().len() == 1).await;
        bring_about(&mut server);
        judge(extending.await.unwrap(), OUTCOME_UNKNOWN, "abandoned");
        drop(rows);
        if ending != "KILL" {
            server.kill9().unwrap();
            // Nobody listens: nothing can have been done.
            judge(holder.acquire(60_000).await, UNAVAILABLE, "cannot be reached");
            judge(holder.extend(&held, 90_000).await, UNAVAILABLE, "cannot be reached");
            server.restart().unwrap();
        }
        granted.push(holder.acquire_at_last(60_000).await);
        held = holder.extend(&held, 60_000).await.unwrap();
    }
    granted.push(held);
    assert_disjoint(granted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_server_ends_requests_in_time_and_then_goes_on() {
    let server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    let leases = connect(&url, "request-timeout-ms=700&connections=2").await;
    let holder = Holder::new(&leases, "default", "host");
    let lease = holder.acquire(60_000).await.unwrap();
    server.pause().unwrap();
    // Each reads before it writes, so nothing was done.
    judge(holder.extend(&lease, 90_000).await, UNAVAILABLE, "no answer within 700 ms");
    judge(holder.acquire(60_000).await, UNAVAILABLE, "within 700 ms");
    server.resume().unwrap();
    let next = holder.acquire_at_last(60_000).await;
    assert_disjoint([holder.extend(&lease, 90_000).await.unwrap(), next]);
}

// ---- many clients ----

/// What a client of its own connections was granted while something happened to the server: each lease as far as it was
/// told that it reaches.
async fn client(leases: MysqlLeases, number: u64, ending: Arc<AtomicBool>, served: Arc<AtomicU64>) -> Vec<Lease> {
    let name = format!("host {}", number % 4);
    let holder = Holder { layout: Holder::few_workers(), ..Holder::new(&leases, "crowd", &name) };
    let mut used = Vec::new();
    let mut round = 0;
    while !ending.load(Ordering::SeqCst) {
        round += 1;
        tokio::time::sleep(Duration::from_millis(2)).await;
        let mut lease = match holder.acquire(5 + (number + round) % 20).await {
            Ok(lease) => lease,
            Err(StoreError::WorkersExhausted { .. }) => continue,
            Err(error) => {
                assert!(error.is_retryable(), "{error:?}");
                continue;
            }
        };
        for _ in 0..round % 3 {
            match holder.extend(&lease, 5 + round % 30).await {
                Ok(longer) => lease = longer,
                // What it was told before stands, and it may ask again, whatever became of this.
                Err(error) => {
                    assert!(matches!(error, StoreError::LeaseLost { .. }) || error.is_retryable(), "{error:?}")
                }
            }
        }
        if round % 2 == 0 {
            let end_ms = (lease.not_before_ms + round % 4).min(lease.valid_until_ms);
            // Sent once; whatever the answer, nothing behind it is used.
            let _ = holder.release(&lease, end_ms).await;
            lease.valid_until_ms = end_ms;
        }
        used.push(lease);
        served.fetch_add(1, Ordering::SeqCst);
    }
    used
}

async fn under_load(server: &mut MariaDb, mut happen: impl AsyncFnMut(&mut MariaDb, &Proxy, &AtomicU64)) {
    let url = server.database().unwrap();
    connect(&url, "").await;
    let proxy = Proxy::start(server.port()).unwrap();
    let (ending, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut connected = Vec::new();
    for _ in 0..8 {
        // All of them before anything happens: what a start comes to then is tested elsewhere.
        connected.push(connect(&proxy.url(&url), "request-timeout-ms=1000&connect-timeout-ms=1000").await);
    }
    let clients: Vec<_> = (0..)
        .zip(connected)
        .map(|(number, leases)| tokio::spawn(client(leases, number, Arc::clone(&ending), Arc::clone(&served))))
        .collect();
    until_served(&served).await;
    happen(server, &proxy, &served).await;
    until_served(&served).await;
    ending.store(true, Ordering::SeqCst);
    let mut used = Vec::new();
    for client in clients {
        used.extend(client.await.unwrap());
    }
    assert!(used.len() >= 40, "{} leases", used.len());
    assert_disjoint(used);
}

/// Waits until some more leases were granted: nothing is stuck.
async fn until_served(served: &AtomicU64) {
    let from = served.load(Ordering::SeqCst);
    until("leases are granted", async || served.load(Ordering::SeqCst) >= from + 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_and_paused_under_load_lets_no_two_leases_meet() {
    let mut server = MariaDb::start().unwrap();
    under_load(&mut server, async |server, _, served| {
        for round in 0..4 {
            if round % 2 == 0 {
                server.kill9().unwrap();
                server.restart().unwrap();
            } else {
                server.pause().unwrap();
                tokio::time::sleep(Duration::from_millis(1_500)).await;
                server.resume().unwrap();
            }
            until_served(served).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_and_answers_that_are_lost_under_load_let_no_two_leases_meet() {
    let mut server = MariaDb::start().unwrap();
    under_load(&mut server, async |_, proxy, served| {
        for round in 0..60 {
            match round % 4 {
                0 => proxy.cut(),
                1 => proxy.swallow(),
                _ => proxy.lose_answer_after(round % 11),
            }
            let from = served.load(Ordering::SeqCst);
            until("leases are granted", async || served.load(Ordering::SeqCst) >= from + 2).await;
        }
    })
    .await;
}

// ---- snowflakes ----

async fn snowflakes(url: &str, holder: &str, horizon_ms: u64) -> (Ids, Snowflake) {
    let mut options =
        MysqlOptions::from_url(&format!("{url}?request-timeout-ms=2000&connect-timeout-ms=2000")).unwrap();
    options.limits = LeaseLimits { max_horizon_ms: 60_000, ..LeaseLimits::default() };
    let leases = Arc::new(MysqlLeases::connect(options).await.unwrap());
    let ids = Ids::builder().leases(leases).holder(holder).wait_max(Duration::from_millis(300)).build().await.unwrap();
    let flakes = SnowflakeOptions { horizon_ms, ..SnowflakeOptions::new(Layout::TWITTER) };
    let flakes = ids.snowflake("default", flakes).await.unwrap();
    (ids, flakes)
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_flow_through_an_outage_shorter_than_the_horizon_and_stop_at_its_end() {
    const HORIZON_MS: u64 = 18_000;
    let mut server = MariaDb::start().unwrap();
    let url = server.database().unwrap();
    // Two holders of one name, as two processes on a host may be.
    let (first, flakes) = snowflakes(&url, "host", HORIZON_MS).await;
    let (second, other) = snowflakes(&url, "host", HORIZON_MS).await;
    let mut ids = vec![flakes.next().await.unwrap(), other.next().await.unwrap()];
    let worker = |id: u64| Layout::TWITTER.unpack(id).unwrap().worker;
    assert_ne!(worker(ids[0]), worker(ids[1]), "one name, and two workers");

    // Much shorter than the two thirds of a horizon that are left when a lease is prolonged.
    server.kill9().unwrap();
    let down = Instant::now();
    while down.elapsed() < Duration::from_millis(2_500) {
        ids.extend([flakes.next().await.unwrap(), other.next().await.unwrap()]);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let ends = || [&flakes, &other].map(|flakes| flakes.status().unwrap().valid_until_ms);
    let held = ends();
    server.restart().unwrap();
    // Through it all, until both leases were prolonged.
    let deadline = Instant::now() + PATIENCE;
    while ends().iter().zip(held).any(|(end, held)| *end <= held) {
        assert!(Instant::now() < deadline, "a server that is back prolongs leases: {held:?}");
        ids.extend([flakes.next().await.unwrap(), other.next().await.unwrap()]);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    server.kill9().unwrap();
    let deadline = Instant::now() + PATIENCE;
    let error = loop {
        match flakes.next().await {
            Ok(id) => ids.push(id),
            Err(error) => break error,
        }
        assert!(Instant::now() < deadline, "no lease lasts for ever");
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    let (ended_ms, status) = (now_ms(), flakes.status().unwrap());
    assert!(error.is_retryable(), "{error:?}");
    assert!(
        matches!(error.store_error(), Some(StoreError::Unavailable { .. } | StoreError::OutcomeUnknown { .. })),
        "{error:?}"
    );
    // A timestamp may run ahead of the clock by 10 ms.
    assert!(ended_ms + 10 >= status.valid_until_ms, "they flowed to the end of the lease: {ended_ms}, {status:?}");
    assert!(status.used_until_ms <= status.valid_until_ms, "and no further: {status:?}");
    server.restart().unwrap();
    let direct = connect(&url, "").await;
    let records = direct.leases("default").await.unwrap();
    let record = records.iter().find(|record| Some(record.lease.worker) == status.worker).unwrap();
    assert!(record.lease.valid_until_ms >= status.valid_until_ms, "{record:?}, {status:?}");

    // And by itself it goes on.
    let deadline = Instant::now() + PATIENCE;
    loop {
        match flakes.next().await {
            Ok(id) => break ids.push(id),
            Err(error) => assert!(error.is_retryable() && Instant::now() < deadline, "{error:?}"),
        }
    }
    first.close().await;
    second.close().await;
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "an id came twice");
    assert!(count > 500, "{count} ids");
}
