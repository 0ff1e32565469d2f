//! Blocks of existing sequences, beside the programs that use them.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a fixture that cannot start fails the test")]

use std::collections::BTreeSet;

use sqlx::postgres::PgConnection;
use sqlx::{Connection as _, Row as _};
use unalike_core::{Format, FormatKey, FormatOptions};
use unalike_postgres::{PostgresOptions, PostgresStore};
use unalike_storage::{
    FormatBinding, FormatOwner, FormatPart, ID_MAX, Segment, SegmentStore as _, StoreError, check_format, sub_tag,
};
use unalike_tests::postgres::Postgres;

async fn open(url: &str, parameters: &str) -> PostgresStore {
    let url = format!("{url}?dialect=sequence{parameters}");
    PostgresStore::connect(PostgresOptions::from_url(&url).unwrap()).await.expect("the store opens")
}

fn sql(url: &str, statements: &str) -> String {
    let server = Postgres::shared().unwrap();
    server.sql(url.rsplit_once('/').unwrap().1, statements).expect("the statements run").trim().to_owned()
}

fn database() -> String {
    Postgres::shared().and_then(Postgres::database).expect("a database")
}

fn of(segment: &Segment) -> (u64, u64) {
    (segment.start, segment.end)
}

/// What Hibernate's pooled optimizer makes of a value.
fn pooled(value: u64, increment: u64) -> std::ops::RangeInclusive<u64> {
    value - (increment - 1)..=value
}

#[tokio::test]
async fn numbers_are_those_that_the_other_users_take_a_value_for() {
    let url = database();
    sql(
        &url,
        "CREATE SEQUENCE one; CREATE SEQUENCE fifty INCREMENT BY 50; CREATE SEQUENCE late START 1000 INCREMENT BY 50",
    );
    let store = open(&url, "").await;
    // By one, as Rails and Django use it: each value is one number.
    assert_eq!(of(&store.allocate("one", 10, 0).await.unwrap()), (1, 11));
    assert_eq!(sql(&url, "SELECT nextval('one')"), "11");
    assert_eq!(of(&store.allocate("one", 1, 0).await.unwrap()), (12, 13));
    // By fifty, as Hibernate does: a value is the last of its numbers; the first one stands alone.
    assert_eq!(of(&store.allocate("fifty", 50, 0).await.unwrap()), (1, 2));
    assert_eq!(sql(&url, "SELECT nextval('fifty')"), "51");
    assert_eq!(of(&store.allocate("fifty", 100, 0).await.unwrap()), (52, 152));
    assert_eq!(of(&store.allocate("fifty", 10, 0).await.unwrap()), (152, 162), "the others are left out");
    assert_eq!(of(&store.allocate("late", 50, 0).await.unwrap()), (1_000, 1_001), "nobody takes numbers below a start");
    assert_eq!(of(&store.allocate("late", 50, 0).await.unwrap()), (1_001, 1_051));
    let low = open(&url, "&optimizer=pooled-lo").await;
    assert_eq!(of(&low.allocate("fifty", 50, 0).await.unwrap()), (251, 301), "a value is the first of its numbers");
    assert_eq!(store.tag("one").await.unwrap().watermark, 12);
    let tags: Vec<String> = store.tags(None, 10).await.unwrap().into_iter().map(|record| record.tag).collect();
    assert_eq!(tags, ["fifty", "late", "one"]);
    assert_eq!(store.tags(Some("fifty"), 1).await.unwrap()[0].tag, "late");
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_its_other_users_no_number_comes_twice() {
    let url = database();
    sql(&url, "CREATE SEQUENCE one; CREATE SEQUENCE fifty INCREMENT BY 50 CACHE 5; SELECT nextval('fifty')");
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let url = url.clone();
        tasks.push(tokio::spawn(async move {
            let store = open(&url, "").await;
            let mut taken = Vec::new();
            for round in 0..60 {
                for tag in ["one", "fifty"] {
                    let segment = store.allocate(tag, 1 + round * 7, 0).await.expect("a grant");
                    taken.extend((segment.start..segment.end).map(|number| (tag, number)));
                }
            }
            taken
        }));
    }
    for _ in 0..3 {
        let url = url.clone();
        tasks.push(tokio::spawn(async move {
            let mut other = PgConnection::connect(&url).await.unwrap();
            let mut taken = Vec::new();
            for _ in 0..300 {
                let row =
                    sqlx::query("SELECT nextval('one') AS one, nextval('fifty') AS fifty").fetch_one(&mut other).await;
                let row = row.unwrap();
                let value = |name| u64::try_from(row.get::<i64, _>(name)).unwrap();
                taken.push(("one", value("one")));
                taken.extend(pooled(value("fifty"), 50).map(|number| ("fifty", number)));
            }
            taken
        }));
    }
    let mut seen = BTreeSet::new();
    for task in tasks {
        for (tag, number) in task.await.unwrap() {
            assert!(seen.insert((tag, number)), "{number} of {tag} came twice");
        }
    }
}

/// A server whose log is written only when somebody waits for it: what is not flushed is lost when it is killed.
fn slow() -> Postgres {
    Postgres::start_with(&["wal_writer_delay=10000ms", "wal_writer_flush_after=0"]).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_another_transaction_has_logged_is_durable_before_it_is_granted() {
    let mut server = slow();
    let url = server.database().unwrap();
    let name = url.rsplit_once('/').unwrap().1;
    server.sql(name, "CREATE SEQUENCE plain; CREATE SEQUENCE ours; CHECKPOINT").unwrap();
    let store = open(&url, "").await;
    for (sequence, repeats) in [("plain", true), ("ours", false)] {
        // A transaction that has logged the next 32 values, and has not ended.
        let mut open = PgConnection::connect(&url).await.unwrap();
        for statement in ["BEGIN".to_owned(), format!("SELECT nextval('{sequence}')")] {
            sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut open).await.unwrap();
        }
        let value = match sequence {
            // What `nextval` alone answers: it has nothing to wait for.
            "plain" => server.sql(name, "SELECT nextval('plain')").unwrap().trim().parse().unwrap(),
            _ => match store.allocate(sequence, 1, 0).await {
                // The connection is from before the server was killed, and the next one is not.
                Err(error) if error.is_retryable() => store.allocate(sequence, 1, 0).await.unwrap().start,
                answer => answer.unwrap().start,
            },
        };
        assert_eq!(value, 2);
        server.kill9().unwrap();
        drop(open);
        server.restart().unwrap();
        let next: u64 = server.sql(name, &format!("SELECT nextval('{sequence}')")).unwrap().trim().parse().unwrap();
        assert_eq!(next <= value, repeats, "{sequence}: {next} after {value}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn through_kill_9_no_number_comes_twice() {
    let mut server = slow();
    let url = server.database().unwrap();
    let name = url.rsplit_once('/').unwrap().1.to_owned();
    server.sql(&name, "CREATE SEQUENCE ours INCREMENT BY 10").unwrap();
    let store = open(&url, "&connections=4").await;
    let mut seen = BTreeSet::new();
    for _ in 0..5 {
        let mut tasks = Vec::new();
        for _ in 0..4 {
            let store = store.clone();
            tasks.push(tokio::spawn(async move {
                let mut taken = Vec::new();
                loop {
                    match store.allocate("ours", 30, 0).await {
                        Ok(segment) => taken.push(segment),
                        // Until it is killed, or was before.
                        Err(error) if !taken.is_empty() => {
                            assert!(error.is_retryable(), "{error:?}");
                            return taken;
                        }
                        Err(error) => assert!(error.is_retryable(), "{error:?}"),
                    }
                }
            }));
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        server.kill9().unwrap();
        server.restart().unwrap();
        // Those that had nothing yet go on, and end with the next kill.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        server.kill9().unwrap();
        for task in tasks {
            for segment in task.await.unwrap() {
                for number in segment.start..segment.end {
                    assert!(seen.insert(number), "{number} came twice");
                }
            }
        }
        server.restart().unwrap();
    }
    assert!(seen.len() > 100);
}

#[tokio::test]
async fn a_sequence_gets_further_by_drawing_alone() {
    let url = database();
    sql(&url, "CREATE SEQUENCE one; CREATE SEQUENCE fifty INCREMENT BY 50 START 50; CREATE SEQUENCE small MAXVALUE 5");
    let store = open(&url, "").await;
    assert!(store.allocate("one", 10, 5_000).await.unwrap().start >= 5_000);
    assert!(store.raise_tag("fifty", 1_000_000).await.unwrap().watermark >= 999_999);
    assert!(store.allocate("fifty", 10, 0).await.unwrap().start >= 1_000_000);
    // Also where none was drawn before.
    for (optimizer, next) in [("", 5_005), ("&optimizer=pooled-lo", 6_006)] {
        let store = open(&url, optimizer).await;
        sql(&url, "DROP SEQUENCE IF EXISTS ten; CREATE SEQUENCE ten INCREMENT BY 10");
        assert!(store.raise_tag("ten", next).await.unwrap().watermark >= next - 1);
        assert!(store.allocate("ten", 3, 0).await.unwrap().start >= next, "{optimizer}");
    }
    sql(&url, "CREATE SEQUENCE ahead CACHE 100");
    let error = store.raise_tag("ahead", 50).await.expect_err("sessions hold lower values");
    assert!(error.to_string().contains("CACHE 1"), "{error}");
    let error = store.raise_tag("one", ID_MAX).await.expect_err("it is too far");
    assert!(error.to_string().contains("RESTART"), "{error:?}");
    // What is left is granted, and then it has ended.
    let mut left = Vec::new();
    let error = loop {
        match store.allocate("small", 3, 0).await {
            Ok(segment) => left.extend(segment.start..segment.end),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::Exhausted { .. }), "{error:?}");
    assert!(left.iter().all(|number| (1..=5).contains(number)) && !left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn what_numbers_cannot_rest_on_is_refused() {
    let url = database();
    sql(
        &url,
        "CREATE SEQUENCE cycles MAXVALUE 5 CYCLE; CREATE SEQUENCE down INCREMENT BY -1; CREATE UNLOGGED SEQUENCE forgets; \
         CREATE SEQUENCE zero MINVALUE 0 START 0; CREATE SEQUENCE hidden; CREATE TABLE a_table (id INT); \
         CREATE SEQUENCE below MINVALUE -5 START -5; SELECT nextval('below'); \
         CREATE SEQUENCE sunk MINVALUE -5 START 1; SELECT setval('sunk', -3)",
    );
    let store = open(&url, "").await;
    for (sequence, words) in [("below", "begins below 1"), ("sunk", "was set below 1")] {
        // Trying does not bring it up again.
        for _ in 0..5 {
            for answer in [store.tag(sequence).await.map(drop), store.allocate(sequence, 1, 0).await.map(drop)] {
                let error = answer.expect_err(words);
                assert!(matches!(error, StoreError::Refused { .. }) && error.to_string().contains(words), "{error:?}");
            }
        }
        assert!(store.beyond_record(sequence).await.unwrap().is_some_and(|why| why.contains(words)), "{sequence}");
    }
    assert_eq!(store.tags(None, 10).await.unwrap().len(), 7, "all are listed");
    assert_eq!(store.beyond_record("hidden").await.unwrap(), None);
    for (sequence, words) in
        [("cycles", "CYCLE"), ("down", "counts down"), ("forgets", "unlogged"), ("zero", "below 1")]
    {
        let error = store.allocate(sequence, 1, 0).await.expect_err(words);
        assert!(matches!(error, StoreError::Refused { .. }) && error.to_string().contains(words), "{error:?}");
    }
    for unknown in ["nothing", "a_table", "pg_class", "one'; DROP TABLE a_table; --"] {
        let error = store.allocate(unknown, 1, 0).await.expect_err(unknown);
        assert!(matches!(error, StoreError::TagUnknown { .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains("is unknown: creating a sequence cannot be done here") && !text.contains("tags create"),
            "{text}"
        );
    }
    let error = store.open_tag(&sub_tag("hidden", "a").unwrap()).await.expect_err("no place for it");
    assert!(matches!(error, StoreError::TagInvalid { .. }) && error.to_string().contains("no sub-keys"), "{error:?}");
    let error = store.create_tag("made", &unalike_storage::TagOptions::default()).await.expect_err("not here");
    assert!(error.to_string().contains("CREATE SEQUENCE"), "{error:?}");
    // One that is another's.
    let role = format!("other_{}", url.rsplit_once('/').unwrap().1);
    sql(
        &url,
        &format!(
            "CREATE ROLE {role} LOGIN; GRANT SELECT ON SEQUENCE hidden TO {role}; GRANT ALL ON unalike_store TO {role}"
        ),
    );
    let other = open(&url.replace("postgres@", &format!("{role}@")), "").await;
    for answer in [other.open_tag("hidden").await.map(drop), other.tag("hidden").await.map(drop)] {
        let error = answer.expect_err("it may not be used");
        assert!(error.to_string().contains("the user may not use the sequence \"hidden\""), "{error:?}");
    }
    // One that changes while it is used.
    sql(&url, "CREATE SEQUENCE changes INCREMENT BY 10 START 10");
    assert_eq!(of(&store.allocate("changes", 1, 0).await.unwrap()), (10, 11));
    sql(&url, "ALTER SEQUENCE changes INCREMENT BY 2");
    assert_eq!(of(&store.allocate("changes", 2, 0).await.unwrap()), (11, 13));
    sql(&url, "ALTER SEQUENCE changes CYCLE");
    let error = store.allocate("changes", 1, 0).await.expect_err("it would repeat");
    assert!(error.to_string().contains("CYCLE"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_s_sequences_are_lifted_when_it_is_adopted() {
    let mut primary = Postgres::start().unwrap();
    let url = primary.database().unwrap();
    let name = url.rsplit_once('/').unwrap().1;
    primary.sql(name, "CREATE SEQUENCE one").unwrap();
    let store = open(&url, "").await;
    let mut standby = primary.start_standby("standby").unwrap();
    let granted = store.allocate("one", 500, 0).await.unwrap();
    primary.kill9().unwrap();
    standby.promote().unwrap();
    standby.take_place_of(&primary);
    standby.restart().unwrap();
    let options = PostgresOptions::from_url(&format!("{url}?dialect=sequence")).unwrap();
    let error = PostgresStore::connect(options.clone()).await.expect_err("it took over");
    assert!(error.to_string().contains("store adopt --lift"), "{error:?}");
    let adopted = PostgresStore::adopt_server(options, 1_000).await.unwrap();
    assert_eq!(adopted.tags, 1);
    assert!(open(&url, "").await.allocate("one", 1, 0).await.unwrap().start >= granted.start + 1_000);
}

/// The ids of a sequence in a template, under a key with this secret.
fn format_with(secret: u128) -> Format {
    let keys = [FormatKey { id: 1, secret }];
    let options = FormatOptions {
        template: "ORD-{id}",
        bits: 24,
        key_id_bits: 1,
        keys: &keys,
        context: "orders",
        ..FormatOptions::default()
    };
    Format::new(&options).expect("the format can be shown")
}

/// Another secret is refused, and the same goes on.
async fn shows_orders_as_before(store: &PostgresStore) {
    let owner = FormatOwner::Tag("orders");
    let refused = check_format(store, owner, &format_with(8)).await;
    assert!(matches!(refused, Err(StoreError::FormatBound { .. })), "{refused:?}");
    let unbound = check_format(store, owner, &format_with(7)).await.expect("it is the format that is bound");
    assert!(unbound.is_empty(), "all of it is bound");
}

/// A sequence has no place for what ids look like. Unalike's own table beside it has.
#[tokio::test]
async fn a_sequence_is_shown_in_one_format() {
    let url = database();
    sql(&url, "CREATE SEQUENCE orders");
    let (first, second) = (open(&url, "").await, open(&url, "").await);
    let (owner, shape) = (FormatOwner::Tag("orders"), FormatPart::Shape);
    assert_eq!(of(&first.allocate("orders", 10, 0).await.unwrap()), (1, 11));
    assert_eq!(second.bind_format(owner, shape, FormatBinding::Look).await.unwrap(), None);
    assert_eq!(sql(&url, "SELECT to_regclass('unalike_tag') IS NULL"), "t", "bare numbers need no table");

    check_format(&first, owner, &format_with(7)).await.unwrap().bind(&first, owner).await.unwrap();
    // Unalike's own tags are in the same table.
    let own = PostgresStore::connect(PostgresOptions::from_url(&url).unwrap()).await.unwrap();
    for store in [&first, &second, &open(&url, "").await, &own] {
        shows_orders_as_before(store).await;
    }
    let tags: Vec<String> = second.tags(None, 10).await.unwrap().into_iter().map(|record| record.tag).collect();
    assert_eq!(tags, ["orders"], "what is kept is nobody's tag");
    assert_eq!(sql(&url, "SELECT nextval('orders')"), "11");
    assert_eq!(of(&second.allocate("orders", 10, 0).await.unwrap()), (12, 22));

    // It stays where the sequences are lifted, and others are bound as before.
    for store in [&first, &second, &own] {
        store.close().await;
    }
    let options = PostgresOptions::from_url(&format!("{url}?dialect=sequence")).unwrap();
    PostgresStore::restored(options, 5).await.unwrap();
    let store = open(&url, "").await;
    shows_orders_as_before(&store).await;
    let other = FormatOwner::Tag("other");
    assert_eq!(store.bind_format(other, shape, FormatBinding::First(9)).await.unwrap(), Some(9));
}

/// The privileges are those that sequences needed before their formats were kept.
#[tokio::test]
async fn a_user_of_sequences_alone_is_refused_formats_alone() {
    let url = database();
    sql(&url, "CREATE SEQUENCE orders");
    let store = open(&url, "").await;
    let role = format!("bare_{}", url.rsplit_once('/').unwrap().1);
    sql(&url, &format!("CREATE ROLE {role} LOGIN"));
    for on in ["SELECT, INSERT, UPDATE ON unalike_store", "SELECT, USAGE ON ALL SEQUENCES IN SCHEMA public"] {
        sql(&url, &format!("GRANT {on} TO {role}"));
    }
    let as_role = url.replace("postgres@", &format!("{role}@"));
    let (owner, shape) = (FormatOwner::Tag("orders"), FormatPart::Shape);
    // Where the table is missing, and where somebody else has it.
    for said in ["the user may not create it", "lacks a privilege"] {
        let bare = open(&as_role, "").await;
        for _ in 0..2 {
            assert_eq!(bare.bind_format(owner, shape, FormatBinding::Look).await.unwrap(), None, "{said}");
            let error = bare.bind_format(owner, shape, FormatBinding::First(8)).await.unwrap_err();
            let text = error.to_string();
            assert!(text.contains(said) && text.contains("unalike schema"), "{error:?}");
            assert!(matches!(error, StoreError::Refused { .. }) && !error.is_not_begun(), "{error:?}");
        }
        bare.allocate("orders", 1, 0).await.unwrap();
        // It carries no tag to another store that has a format which it cannot see.
        let hidden = bare.hides_formats().await.unwrap();
        assert_eq!(hidden.is_some_and(|what| what.contains("GRANT SELECT")), said == "lacks a privilege");
        assert_eq!(store.bind_format(owner, shape, FormatBinding::First(7)).await.unwrap(), Some(7));
    }
    sql(&url, &format!("GRANT SELECT, INSERT, UPDATE ON unalike_tag TO {role}"));
    assert_eq!(open(&as_role, "").await.bind_format(owner, shape, FormatBinding::First(8)).await.unwrap(), Some(7));
}
