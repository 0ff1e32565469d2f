//! PgBouncer between a program and PostgreSQL: its sessions serve as the server's own, and in its transaction mode,
//! where each statement may run in another session, nothing is granted in the wrong one, and somebody is told.

#![expect(clippy::unwrap_used, reason = "a fixture that cannot start fails the test")]

use std::collections::BTreeSet;

use unalike_postgres::{PostgresOptions, PostgresStore};
use unalike_storage::{SegmentStore as _, StoreError};
use unalike_tests::postgres::{PgBouncer, Postgres};

/// So many clients, each with some connections, take grants at once: the numbers, and what went wrong.
async fn take(url: &str, clients: usize) -> (Vec<u64>, Vec<StoreError>) {
    let mut tasks = Vec::new();
    for _ in 0..clients {
        let url = format!("{url}?connections=3");
        tasks.push(tokio::spawn(async move {
            let (mut numbers, mut errors) = (Vec::new(), Vec::new());
            let store = match PostgresStore::connect(PostgresOptions::from_url(&url).unwrap()).await {
                Ok(store) => store,
                Err(error) => return (numbers, vec![error]),
            };
            let mut requests = Vec::new();
            for request in 0..60 {
                let store = store.clone();
                requests.push(tokio::spawn(async move {
                    // Statements of several kinds, so that their numbers differ from session to session.
                    if request % 3 == 0 {
                        let _ = store.tag("order").await;
                    }
                    let tag = if request % 5 == 0 { "invoice" } else { "order" };
                    store.allocate(tag, 3, 0).await.map(|segment| (tag, segment))
                }));
            }
            for request in requests {
                match request.await.unwrap() {
                    Ok((tag, segment)) => {
                        // Both tags in one list.
                        let offset = if tag == "order" { 0 } else { 1 << 40 };
                        numbers.extend((segment.start..segment.end).map(|number| number + offset));
                    }
                    Err(error) => errors.push(error),
                }
            }
            store.close().await;
            (numbers, errors)
        }));
    }
    let (mut numbers, mut errors) = (Vec::new(), Vec::new());
    for task in tasks {
        let (more, wrong) = task.await.unwrap();
        numbers.extend(more);
        errors.extend(wrong);
    }
    (numbers, errors)
}

fn assert_disjoint(numbers: &[u64]) {
    assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), numbers.len(), "a number was granted twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_a_pooler_serve_as_the_server_s_own() {
    let server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    let pooler = PgBouncer::start(&server, "session", 8).unwrap();
    let through = url.replace(&format!(":{}/", server.port()), &format!(":{}/", pooler.port()));
    let (numbers, errors) = take(&through, 2).await;
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(numbers.len(), 2 * 60 * 3);
    assert_disjoint(&numbers);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_that_gives_each_transaction_another_session_is_told_of_and_repeats_nothing() {
    let server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    let direct = PostgresStore::connect(PostgresOptions::from_url(&url).unwrap()).await.unwrap();
    let first = direct.allocate("order", 3, 0).await.unwrap();
    direct.allocate("invoice", 3, 0).await.unwrap();
    let pooler = PgBouncer::start(&server, "transaction", 8).unwrap();
    let through = url.replace(&format!(":{}/", server.port()), &format!(":{}/", pooler.port()));
    let (mut numbers, errors) = take(&through, 4).await;
    numbers.extend(first.start..first.end);
    assert_disjoint(&numbers);
    let told = |error: &StoreError| {
        matches!(error, StoreError::Refused { .. }) && error.to_string().contains("pool_mode=session")
    };
    assert!(errors.iter().any(told), "somebody is told: {errors:?}");
    // Whatever it is, it is no grant that somebody believes in.
    for error in &errors {
        assert!(told(error) || error.is_retryable() || matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    }
    // The table knows of each number that somebody got.
    let greatest = direct.tag("order").await.unwrap().watermark;
    assert!(numbers.iter().filter(|number| **number < 1 << 40).all(|number| *number <= greatest));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_leave_in_a_session_that_they_share_grants_nothing() {
    let server = Postgres::start().unwrap();
    let url = server.database().unwrap();
    let name = url.rsplit_once('/').unwrap().1;
    // All clients of the pooler have the one session, one transaction after the other.
    let pooler = PgBouncer::start(&server, "transaction", 1).unwrap();
    let through = url.replace(&format!(":{}/", server.port()), &format!(":{}/", pooler.port()));
    for (left, words) in [
        ("RESET unalike.session", "pool_mode=session"),
        ("SET synchronous_commit = off", "synchronous_commit is off"),
        ("SET search_path = pg_catalog", ""),
    ] {
        let options = PostgresOptions::from_url(&format!("{through}?connections=1")).unwrap();
        let store = PostgresStore::connect(options).await.unwrap();
        let before = store.allocate("order", 3, 0).await.unwrap();
        pooler.sql(name, left).unwrap();
        let error = store.allocate("order", 3, 0).await.expect_err(left);
        assert!(!error.may_have_granted() && error.to_string().contains(words), "{left}: {error:?}");
        let greatest = server.sql(name, "SELECT watermark FROM public.unalike_tag WHERE tag = 'order'").unwrap();
        assert_eq!(greatest.trim(), (before.end - 1).to_string(), "{left}: nothing was granted");
        store.close().await;
        // The next one finds a session that is as it was.
        pooler.sql(name, "DISCARD ALL").unwrap();
    }
}

#[tokio::test]
async fn a_pooler_that_knows_no_such_user_is_no_pooler_that_mixes_sessions() {
    let server = Postgres::start().unwrap();
    let database = server.database().unwrap().rsplit_once('/').unwrap().1.to_owned();
    let pooler = PgBouncer::start(&server, "session", 2).unwrap();
    let url = format!("postgres://stranger@127.0.0.1:{}/{database}", pooler.port());
    let error = PostgresStore::connect(PostgresOptions::from_url(&url).unwrap()).await.unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(matches!(error, StoreError::Refused { .. }), "{text}");
    assert!(
        text.contains("denied access") && text.contains("authentication failed") && !text.contains("pool_mode"),
        "{text}"
    );
}
