//! Outages of PostgreSQL, each provoked on a real server: what the store says of it (is it worth a retry, may the grant
//! have been made, is it the caller's fault), that no number is granted twice, and that the store recovers by itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unalike_postgres::{PostgresLeases, PostgresOptions};
use unalike_storage::{
    Layout, LeaseAcquire, LeaseExtend, LeaseStore as _, SegmentStore as _, StoreError, TagOptions, with_causes,
};
use unalike_tests::leases::{assert_disjoint, now_ms};
use unalike_tests::outages::{
    Database as _, Judgement, OUTCOME_UNKNOWN, REFUSED, UNAVAILABLE, a_locked_row, a_paused_server, allocate_at_last,
    connect, connections_that_the_network_forgot, cut_under_load, idle_connections_that_broke, judge,
    killed_under_load, lock_row, lose_each_answer, paused_under_load, until_waiting,
};
use unalike_tests::postgres::Postgres;
use unalike_tests::proxy::Proxy;
use unalike_tests::refusals::at_last;
use unalike_tests::users::Users;
use unalike_tests::{PATIENCE, until};

#[tokio::test]
async fn what_is_missing_or_forbidden_is_refused_and_says_what_to_do() {
    let server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    judge(Postgres::try_connect(&url.replace("postgres@", "stranger:wrong@"), "").await, REFUSED, "denied access");
    let (address, database) = url.rsplit_once('/').unwrap();
    judge(Postgres::try_connect(&format!("{address}/nowhere"), "").await, REFUSED, "no such database: create it");
    let store = connect::<Postgres>(&url, "").await;
    store.allocate("order", 10, 0).await.unwrap();
    server.sql(database, "CREATE ROLE ids LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO ids").unwrap();
    let reader = connect::<Postgres>(&url.replace("postgres@", "ids@"), "create=false").await;
    judge(reader.allocate("order", 10, 0).await, REFUSED, "lacks a privilege");
    server.sql(database, "ALTER TABLE unalike_tag RENAME TO gone").unwrap();
    judge(store.allocate("order", 10, 0).await, REFUSED, "`unalike schema` prints what is needed");
    server.sql(database, "ALTER TABLE gone RENAME TO unalike_tag").unwrap();
    store.allocate("order", 10, 0).await.unwrap();
}

#[tokio::test]
async fn a_server_that_cannot_do_it_now_is_unavailable_and_nothing_was_granted() {
    let server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    let (_, database) = url.rsplit_once('/').unwrap();
    let store = connect::<Postgres>(&url, "connections=1&request-timeout-ms=2500").await;
    let first = store.allocate("order", 10, 0).await.unwrap();

    server.sql("postgres", &format!("ALTER DATABASE {database} CONNECTION LIMIT 1; CREATE ROLE one LOGIN")).unwrap();
    let one = url.replace("postgres@", "one@");
    judge(Postgres::try_connect(&one, "").await, UNAVAILABLE, "too many connections");
    server.sql("postgres", &format!("ALTER DATABASE {database} CONNECTION LIMIT -1")).unwrap();

    let lock = lock_row::<Postgres>(&url, "order").await;
    judge(store.allocate("order", 10, 0).await, UNAVAILABLE, "another transaction holds the row for too long");
    drop(lock);
    let second = store.allocate("order", 10, 0).await.unwrap();
    assert_eq!(second.start, first.end, "nothing was granted");

    // A table that was changed: plans of before are of no use.
    server.sql(database, "ALTER TABLE unalike_tag ADD COLUMN note TEXT").unwrap();
    assert_eq!(allocate_at_last(&store, "order").await.start, second.end, "nothing was granted");
    store.tag("order").await.map(drop).or_else(|error| if error.is_retryable() { Ok(()) } else { Err(error) }).unwrap();
    assert_eq!(store.tag("order").await.unwrap().watermark, second.end + 9);
}

#[tokio::test]
async fn tables_that_are_made_unlogged_while_programs_run_are_told_once_a_crash_has_emptied_them() {
    let mut server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    let (_, database) = url.rsplit_once('/').unwrap();
    let store = connect::<Postgres>(&url, "").await;
    let leases = store.leases().await.unwrap();
    let acquire = |namespace: &str| LeaseAcquire {
        namespace: namespace.to_owned(),
        holder: "holder".to_owned(),
        layout: Layout::TWITTER,
        preferred_worker: Some(7),
        horizon_ms: 60_000,
        now_ms: now_ms(),
    };
    store.allocate("order", 10, 0).await.unwrap();
    leases.acquire(&acquire("default")).await.unwrap();
    let tables = ["unalike_tag", "unalike_lease", "unalike_lease_namespace"];
    for table in tables {
        server.sql(database, &format!("ALTER TABLE {table} SET UNLOGGED")).unwrap();
    }
    server.restart().unwrap();
    let answer = at_last(async || store.allocate("order", 10, 0).await).await;
    judge(answer, REFUSED, "unalike_tag is unlogged");
    judge(store.create_tags(&[("new".to_owned(), TagOptions::default())]).await, REFUSED, "unalike_tag is unlogged");
    judge(leases.acquire(&acquire("default")).await, REFUSED, "is unlogged");
    server.sql(database, "ALTER TABLE unalike_lease_namespace SET LOGGED").unwrap();
    judge(leases.acquire(&acquire("default")).await, REFUSED, "unalike_lease is unlogged");
}

#[tokio::test]
async fn a_server_that_ends_idle_sessions_costs_no_request() {
    let server = Postgres::start_with(&["idle_session_timeout=300ms"]).unwrap();
    let store = connect::<Postgres>(&server.database().unwrap(), "").await;
    let mut next = 1;
    for _ in 0..3 {
        let granted = store.allocate("order", 10, 0).await.unwrap();
        assert_eq!(granted.start, next);
        next = granted.end;
        // Longer than that, and shorter than a connection is trusted without a question.
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_grants_nothing_and_is_worth_a_retry() {
    // The store's session looks for a deadlock once, so long after it began to wait: on a busy machine the other one
    // has to wait too by then.
    let server = Postgres::start_with(&["deadlock_timeout=3s"]).unwrap();
    let url = server.database().unwrap();
    let store = Arc::new(connect::<Postgres>(&url, "").await);
    let end = store.allocate("order", 10, 0).await.unwrap().end;
    // A tag is ended with two rows in hand, in an order that somebody else does not keep.
    store.allocate("other", 10, 0).await.unwrap();
    let mut raw = lock_row::<Postgres>(&url, "other").await;
    let ending = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.retire_tags(&["order".to_owned(), "other".to_owned()]).await }
    });
    until_waiting(&server, 1).await;
    // Who looks first is the victim.
    Postgres::run(&mut raw, "SET deadlock_timeout = '60s'").await;
    Postgres::run(&mut raw, "UPDATE unalike_tag SET refill = 20 WHERE tag = 'order'").await;
    judge(ending.await.unwrap(), UNAVAILABLE, "lost against another one and was rolled back");
    Postgres::run(&mut raw, "COMMIT").await;
    assert_eq!(store.allocate("order", 10, 0).await.unwrap().start, end, "nothing was ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_or_connection_that_ends_in_the_middle_leaves_no_number_in_two_hands() {
    let mut server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    let store = Arc::new(connect::<Postgres>(&url, "").await);
    let mut end = store.allocate("order", 10, 0).await.unwrap().end;

    type Ending = (&'static str, Judgement, fn(&mut Postgres));
    let endings: [Ending; 3] = [
        // An ERROR is the server's word that it was not done.
        ("pg_cancel_backend", UNAVAILABLE, |server| {
            for id in server.waiting() {
                server.sql("postgres", &format!("SELECT pg_cancel_backend({id})")).unwrap();
            }
        }),
        ("pg_terminate_backend", OUTCOME_UNKNOWN, |server| {
            for id in server.waiting() {
                server.sql("postgres", &format!("SELECT pg_terminate_backend({id})")).unwrap();
            }
        }),
        ("SIGKILL", OUTCOME_UNKNOWN, |server| server.kill9().unwrap()),
    ];
    for (ending, judgement, bring_about) in endings {
        let lock = lock_row::<Postgres>(&url, "order").await;
        let granting = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.allocate("order", 10, 0).await }
        });
        until_waiting(&server, 1).await;
        bring_about(&mut server);
        judge(granting.await.unwrap(), judgement, "allocating a segment");
        drop(lock);
        if ending == "SIGKILL" {
            // Nobody listens: nothing can have been granted.
            judge(store.allocate("order", 10, 0).await, UNAVAILABLE, "cannot be reached");
            judge(store.tag("order").await, UNAVAILABLE, "cannot be reached");
            server.restart().unwrap();
        }
        let segment = allocate_at_last(&*store, "order").await;
        assert!(segment.start >= end, "{ending}: {segment:?} after {end}");
        end = segment.end;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_dropped_leaves_no_transaction_behind() {
    let server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    let (_, database) = url.rsplit_once('/').unwrap();
    let store = connect::<Postgres>(&url, "").await;
    store.allocate("order", 10, 0).await.unwrap();
    let leases = store.leases().await.unwrap();
    for polls in 1..30 {
        let tag = format!("tag-{polls}");
        abandoned_after(polls, store.allocate(&tag, 10, 0)).await;
        abandoned_after(polls, leases.acquire(&acquire_request())).await;
    }
    let open = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}' AND application_name = 'unalike' \
         AND state LIKE 'idle in transaction%'"
    );
    until("no transaction is open", async || server.sql("postgres", &open).unwrap().trim() == "0").await;
    let lock = "SELECT 1 FROM unalike_store, unalike_tag FOR UPDATE OF unalike_store, unalike_tag NOWAIT";
    until("nothing is locked", async || server.sql(database, lock).is_ok()).await;
    store.allocate("last", 10, 0).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_that_broke_cost_one_request_and_not_one_each() {
    // A server that is killed may still say so.
    let has_said_so = |error: &StoreError| with_causes(error).contains("unexpected postmaster exit");
    let words = |error: &StoreError| if has_said_so(error) { "ended the connection" } else { "the connection broke" };
    idle_connections_that_broke::<Postgres>(words).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_server_ends_requests_in_time_and_then_goes_on() {
    a_paused_server::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_the_network_forgot_do_not_use_the_pool_up() {
    connections_that_the_network_forgot::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_answer_is_lost_nothing_is_granted_twice() {
    lose_each_answer(&Postgres::start().unwrap(), "dialect=unalike").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_ten_times_under_load_costs_gaps_alone() {
    killed_under_load::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stands_still_for_seconds_under_load_costs_gaps_alone() {
    paused_under_load::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_again_and_again_under_load_cost_gaps_alone() {
    cut_under_load::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_somebody_locked_blocks_its_own_tag_alone() {
    a_locked_row::<Postgres>().await;
}

/// Runs a request until it was polled so often, then drops it.
async fn abandoned_after<T>(polls: u32, request: impl Future<Output = T>) {
    let (mut request, mut polled) = (std::pin::pin!(request), 0);
    std::future::poll_fn(|context| {
        polled += 1;
        let answer = request.as_mut().poll(context);
        if answer.is_ready() || polled == polls { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

fn acquire_request() -> LeaseAcquire {
    LeaseAcquire {
        namespace: "default".to_owned(),
        holder: "holder".to_owned(),
        layout: Layout::TWITTER,
        preferred_worker: Some(7),
        horizon_ms: 1_000,
        now_ms: now_ms(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whichever_answer_about_a_lease_is_lost_no_two_leases_meet() {
    let server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let options = |url: &str| PostgresOptions::from_url(&format!("{url}?connections=1")).unwrap();
    let leases = PostgresLeases::connect(options(&proxy.url(&url))).await.unwrap();
    let direct = PostgresLeases::connect(options(&url)).await.unwrap();
    let mut granted = Vec::new();
    let (mut losses, mut unheard) = (0, 0);
    loop {
        // On a connection of its own, where each statement is prepared first.
        proxy.cut();
        until_async(async || leases.namespaces().await.is_ok()).await;
        let records = async || direct.leases("default").await.unwrap();
        let before = records().await;
        proxy.lose_answer_after(losses);
        let answer = leases.acquire(&acquire_request()).await;
        if proxy.lost_none() {
            granted.push(answer.unwrap());
            break;
        }
        losses += 1;
        let error = answer.expect_err("its answer was lost");
        let new = records().await.len() > before.len()
            || records().await.iter().zip(&before).any(|(now, before)| now.lease.grant_id != before.lease.grant_id);
        assert!(error.is_retryable() && (error.may_have_granted() || !new), "{losses}: {error:?}");
        unheard += u32::from(new);
        granted.push(direct.acquire(&LeaseAcquire { preferred_worker: None, ..acquire_request() }).await.unwrap());
    }
    assert!(losses >= 8 && unheard >= 1, "{losses} answers were lost, {unheard} of them with a grant");
    assert_disjoint(&granted);

    // An extension whose answer was lost: its holder keeps the old bound, and may ask again.
    let lease = direct.acquire(&LeaseAcquire { preferred_worker: None, ..acquire_request() }).await.unwrap();
    let extend = || LeaseExtend {
        namespace: "default".to_owned(),
        worker: lease.worker,
        grant_id: lease.grant_id,
        layout: Layout::TWITTER,
        horizon_ms: 600_000,
        now_ms: now_ms(),
    };
    proxy.lose_answer_after(1);
    let error = leases.extend(&extend()).await.expect_err("its answer was lost");
    assert!(error.is_retryable(), "{error:?}");
    until_async(async || leases.extend(&extend()).await.is_ok()).await;
}

async fn until_async(mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "it does not come to be so");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn two_servers_and_a_program_on_one_store_repeat_nothing_while_it_is_killed() {
    let mut database = Postgres::start().unwrap();
    let url = database.database().unwrap();
    let users = Users { url: &url, request_timeout_ms: 2_000, program: env!("CARGO_BIN_EXE_store-child") };
    let ids = users.repeat_nothing(10_000, || {
        database.kill9()?;
        database.restart()
    });
    assert!(ids.unwrap() >= 10_000_000);
}
