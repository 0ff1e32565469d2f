//! The server and the command line over Redis: what stands behind it, the channel `ordered`, ceilings, outages of
//! either store, and what is refused by name.

#![expect(clippy::unwrap_used, clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::json;
use tempfile::TempDir;
use unalike_tests::authority::Authority;
use unalike_tests::mariadb::MariaDb;
use unalike_tests::process;
use unalike_tests::redis::{Persistence, Program, Redis};
use unalike_tests::redis_cluster::RedisCluster;
use unalike_tests::redis_sentinels::Watched;
use unalike_tests::server::{self, Ran, Server, binary, name_of, refuses, run, run_with};

/// Runs it to its end over this store, with what stands behind it.
fn run_over(directory: &TempDir, store: &str, watermark: &str, arguments: &[&str]) -> anyhow::Result<Ran> {
    server::run_over(directory, store, &[&["--backing", watermark][..], arguments].concat())
}

/// The same where it must succeed; what it printed.
fn ok(directory: &TempDir, store: &str, watermark: &str, arguments: &[&str]) -> anyhow::Result<String> {
    server::ok_over(directory, store, &[&["--backing", watermark][..], arguments].concat())
}

/// Starts a server over these stores, which gives up soon.
fn serve(directory: &Arc<TempDir>, store: &str, watermark: &str, more: &[&str]) -> anyhow::Result<Server> {
    let flags = ["--store", store, "--backing", watermark, "--wait-max-ms", "300"];
    let flags = flags.into_iter().chain(more.iter().copied());
    Server::start_in(Arc::clone(directory), flags.map(str::to_owned).collect())
}

fn cells(text: &str, row: usize) -> Vec<&str> {
    text.lines().nth(row).unwrap().split_whitespace().collect()
}

#[test]
fn ordered_ids_of_two_servers_ascend_through_kill_9_of_redis() -> anyhow::Result<()> {
    let mut redis = Redis::start(Persistence::AofEverySecond)?;
    // Small intervals, so that there are many.
    let store = redis.url(0, "raise-min=100&raise-max=400");
    let directory = Arc::new(TempDir::new()?);
    std::fs::write(directory.path().join("unalike.toml"), "[tags.chat]\nchannel = \"ordered\"\n")?;
    let more = ["--config", "unalike.toml"];
    let servers = [(); 2].map(|()| serve(&directory, &store, "sqlite://ids.sqlite", &more).unwrap());
    let tag = servers[1].get("/v1/tags/chat")?.json()?;
    assert_eq!((&tag["mode"], tag.get("ceiling")), (&json!("ordered"), None), "nothing was used yet");

    // The greatest id that anybody has: whoever asks afterwards gets a greater one.
    let greatest = AtomicU64::new(0);
    let (given, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let ids = std::thread::scope(|scope| -> anyhow::Result<Vec<u64>> {
        let ask = |server: usize| {
            let (client, greatest, given, ends) = (servers[server].client(), &greatest, &given, &ends);
            scope.spawn(move || {
                let mut ids = Vec::new();
                while !ends.load(Ordering::Relaxed) {
                    let before = greatest.load(Ordering::SeqCst);
                    let answer = client.get("/v1/sequences/chat/ids?count=3").unwrap();
                    if answer.status == 503 {
                        let kind = answer.problem().unwrap();
                        assert!(["store-unavailable", "ceiling-reached"].contains(&kind.as_str()), "{answer:?}");
                        assert!(answer.header("retry-after").is_some(), "{answer:?}");
                        continue;
                    }
                    let answered = answer.ids().unwrap();
                    assert!(answered[0] > before && answered.is_sorted(), "{answered:?} after {before}");
                    greatest.fetch_max(answered[2], Ordering::SeqCst);
                    given.fetch_add(1, Ordering::Relaxed);
                    ids.extend(answered);
                }
                ids
            })
        };
        let asking = [ask(0), ask(0), ask(1), ask(1)];
        let wait_for = |more: u64| {
            let until = given.load(Ordering::Relaxed) + more;
            while given.load(Ordering::Relaxed) < until && asking.iter().all(|asking| !asking.is_finished()) {
                std::thread::yield_now();
            }
        };
        for _ in 0..3 {
            wait_for(200);
            redis.kill9()?;
            redis.restart()?;
        }
        wait_for(200);
        ends.store(true, Ordering::Relaxed);
        Ok(asking.into_iter().flat_map(|asking| asking.join().unwrap()).collect())
    })?;
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "an id came twice");
    assert!(ids.len() >= 2_400, "{}", ids.len());

    let figures = &servers[0].get("/v1/tags/chat")?.json()?["ceiling"];
    let figure = |name: &str| figures[name].as_str().unwrap().parse::<u64>().unwrap();
    assert!(figure("cur") >= greatest.load(Ordering::SeqCst) && figure("cur") < figure("max"), "{figures}");
    assert!(figure("seq_recently") >= 600 && figure("seq_long_term") >= figure("seq_recently"), "{figures}");
    Ok(())
}

#[test]
fn ids_go_on_without_the_watermark_until_the_ceiling_is_reached() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::Nothing)?;
    let mut mariadb = MariaDb::start()?;
    let watermark = mariadb.database()?;
    let directory = Arc::new(TempDir::new()?);
    let server = serve(&directory, &redis.url(0, "raise-min=1000&raise-max=1000"), &watermark, &[])?;
    let client = server.client();
    let created = client.send_json("POST", "/v1/tags", &json!({ "tag": "chat", "channel": "ordered" }))?;
    assert_eq!((created.status, &created.json()?["mode"]), (201, &json!("ordered")));
    assert_eq!(client.ids("/v1/sequences/chat/ids?count=5")?, [1, 2, 3, 4, 5]);
    let tag = client.get("/v1/tags/chat")?.json()?;
    let ceiling = json!({ "cur": "5", "max": "1000", "seq_recently": "5", "seq_long_term": "5" });
    assert_eq!((&tag["ceiling"], &tag["watermark"]), (&ceiling, &json!("1000")));

    mariadb.kill9()?;
    let mut ids = Vec::new();
    let refused = loop {
        let answer = client.get("/v1/sequences/chat/ids?count=50")?;
        assert_eq!(client.get("/health/ready")?.body, r#"{"status":"ready"}"#, "Redis is there");
        if answer.status != 200 {
            break answer;
        }
        ids.extend(answer.ids()?);
    };
    assert!(ids.iter().copied().eq(6..6 + ids.len() as u64) && ids.len() >= 900, "{ids:?}");
    assert_eq!((refused.status, refused.problem()?.as_str()), (503, "ceiling-reached"));
    assert!(refused.header("retry-after").is_some_and(|wait_s| wait_s.parse::<u64>().is_ok_and(|wait_s| wait_s >= 1)));
    assert_eq!(refused.json()?["name"], "chat");
    assert!(!refused.body.contains("mysql"), "what only the operator can act on is in the log: {refused:?}");
    server.wait_for_log("has reached its ceiling", 1)?;
    assert_eq!(client.get("/v1/sequences/new/ids")?.status, 503, "a tag is created in the durable store");

    mariadb.restart()?;
    let after = loop {
        let answer = client.get("/v1/sequences/chat/ids")?;
        if answer.status == 200 {
            break answer.ids()?;
        }
        assert_eq!(answer.status, 503);
    };
    assert!(after[0] > *ids.last().unwrap(), "{after:?}");
    Ok(())
}

#[test]
fn without_redis_the_server_says_how_long_ids_last() -> anyhow::Result<()> {
    let mut redis = Redis::start(Persistence::Nothing)?;
    let directory = Arc::new(TempDir::new()?);
    let server = serve(&directory, &redis.url(0, ""), "sqlite://ids.sqlite", &[])?;
    let client = server.client();
    client.ids("/v1/sequences/order/ids?count=10")?;
    client.send_json("POST", "/v1/tags", &json!({ "tag": "chat", "channel": "ordered" }))?;
    let last = client.ids("/v1/sequences/chat/ids?count=10")?[9];
    redis.kill9()?;
    assert_eq!(client.get("/v1/sequences/order/ids")?.status, 200, "it is buffered");
    let ordered = client.get("/v1/sequences/chat/ids")?;
    assert_eq!((ordered.status, ordered.problem()?.as_str()), (503, "store-unavailable"));
    let ready = loop {
        let ready = client.get("/health/ready")?;
        if ready.status != 200 {
            break ready;
        }
    };
    // The ordered tag is in use, and has nothing in hand.
    assert_eq!((ready.status, ready.problem()?.as_str()), (503, "store-unavailable"));
    assert_eq!(ready.json()?["tag"], "chat");
    assert_eq!(client.get("/v1/tags/order")?.status, 503, "its ceiling is in Redis");
    redis.restart()?;
    while client.get("/health/ready")?.body != r#"{"status":"ready"}"# {}
    let first = loop {
        if let Ok(ids) = client.ids("/v1/sequences/chat/ids") {
            break ids[0];
        }
    };
    assert!(first > 100_000 && first > last, "an empty Redis begins above all that the one before it had: {first}");
    Ok(())
}

/// The ids that are printed over these stores.
fn ids_over(directory: &TempDir, store: &str, watermark: &str, arguments: &[&str]) -> anyhow::Result<Vec<u64>> {
    ok(directory, store, watermark, arguments)?.lines().map(|line| Ok(line.parse()?)).collect()
}

#[test]
fn redis_knows_the_durable_store_that_grants_its_numbers() -> anyhow::Result<()> {
    let mariadb = MariaDb::start()?;
    for parameters in ["", "dialect=clock&horizon-ms=500"] {
        for (one, other) in
            [("sqlite://a.sqlite", "sqlite://b.sqlite"), ("sqlite://a.sqlite", mariadb.database()?.as_str())]
        {
            let (redis, directory) = (Redis::start(Persistence::Nothing)?, TempDir::new()?);
            let store = redis.url(0, parameters);
            let first = ids_over(&directory, &store, one, &["next", "order", "-n", "10"])?;
            // Redis has numbers left, and the other store would grant the first ones again once they are lost.
            for _ in 0..2 {
                let ran = run_over(&directory, &store, other, &["next", "order", "-n", "5"])?;
                assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
                for named in ["granted by another durable store", "unalike:durable", "unalike store rebind"] {
                    assert!(ran.stderr.contains(named), "{ran:?}");
                }
            }
            let next = ids_over(&directory, &store, one, &["next", "order", "-n", "10"])?;
            redis.cli(&["FLUSHALL"])?;
            let after = ids_over(&directory, &store, one, &["next", "order", "-n", "10"])?;
            assert!(first < next && next < after, "{first:?}, {next:?}, {after:?}");
        }
    }
    Ok(())
}

#[test]
fn redis_knows_the_durable_store_that_grants_the_time_of_leases() -> anyhow::Result<()> {
    let (redis, directory) = (Redis::start(Persistence::Nothing)?, TempDir::new()?);
    let leases = redis.url(0, "");
    let next = |watermark: &str| {
        let flags = ["--store", "sqlite://ids.sqlite", "--leases", &leases, "--backing", watermark];
        run(directory.path(), flags.into_iter().chain(["next", "default", "--snowflake"]))
    };
    assert_eq!(next("sqlite://a.sqlite")?.code, Some(0));
    let refused = next("sqlite://b.sqlite")?;
    assert!(refused.code == Some(1) && refused.stderr.contains("another durable store"), "{refused:?}");
    assert_eq!(next("sqlite://a.sqlite")?.code, Some(0));
    Ok(())
}

#[test]
fn redis_is_handed_over_to_another_durable_store_with_its_tags() -> anyhow::Result<()> {
    let mariadb = MariaDb::start()?;
    for (from, to) in [
        ("sqlite://a.sqlite".to_owned(), "sqlite://b.sqlite".to_owned()),
        ("sqlite://a.sqlite".to_owned(), mariadb.database()?),
        (mariadb.database()?, "sqlite://b.sqlite".to_owned()),
    ] {
        let (redis, directory) = (Redis::start(Persistence::Nothing)?, TempDir::new()?);
        let store = redis.url(0, "raise-min=100&raise-max=100");
        let next = |watermark: &str, arguments: &[&str]| {
            ids_over(&directory, &store, watermark, &[&["next", "order"], arguments].concat())
        };
        let tags = [&["-n", "150"][..], &["-n", "10", "--sub", "a"]];
        let before = tags.map(|tag| next(&from, tag).unwrap());
        ok(&directory, &store, &from, &["tags", "create", "ended"])?;
        let unsaid = run_over(&directory, &store, &to, &["store", "rebind"])?;
        assert!(unsaid.code == Some(2) && unsaid.stderr.contains("--from <URL>"), "{unsaid:?}");
        let rebind = ["store", "rebind", "--from", &from];
        let said = ok(&directory, &store, &to, &rebind)?;
        for line in ["sequences: it was ", "it grants nothing more", "restart the programs"] {
            assert!(said.contains(line), "{said}");
        }
        let known = redis.cli(&["HGET", "unalike:durable", "sequences"])?;
        // What was lost does not matter, nor who comes first.
        for is_lost in [false, true] {
            if is_lost {
                redis.cli(&["FLUSHALL"])?;
            }
            let refused = run_over(&directory, &store, &from, &["next", "order", "-n", "150"])?;
            assert!(refused.code == Some(1) && refused.stderr.contains("were moved to other stores"), "{refused:?}");
        }
        for (tag, before) in tags.into_iter().zip(&before) {
            let after = next(&to, tag)?;
            assert!(before.last() < after.first(), "{before:?}, {after:?}");
        }
        assert_eq!(redis.cli(&["HGET", "unalike:durable", "sequences"])?, known, "{said}");
        let again = ok(&directory, &store, &to, &rebind)?;
        assert!(again.contains(known.trim()) && again.contains("it was that store before"), "{again}");
        assert!(ok(&directory, &store, &to, &["tags", "list"])?.contains("ended"));
    }
    let directory = TempDir::new()?;
    refuses(
        &directory,
        &["--store", "sqlite://a.sqlite", "store", "rebind", "--from", "sqlite://b.sqlite"],
        &["only a store in Redis has a durable store behind it"],
    );
    Ok(())
}

#[test]
fn ids_on_the_terminal_go_on_where_they_were() -> anyhow::Result<()> {
    let redis = Redis::start_with(Persistence::AofEverySecond, &["--requirepass", "a long secret"])?;
    let directory = TempDir::new()?;
    std::fs::write(directory.path().join("password"), "a long secret\n")?;
    let (store, watermark) = (redis.url(3, "password-file=password"), "sqlite://ids.sqlite");
    assert_eq!(ok(&directory, &store, watermark, &["next", "order", "-n", "5"])?, "1\n2\n3\n4\n5\n");
    assert_eq!(ok(&directory, &store, watermark, &["next", "order", "-n", "2"])?, "6\n7\n");
    assert_eq!(ok(&directory, &store, watermark, &["next", "order", "--sub", "a"])?, "1\n");
    // The file serves leases as it does alone.
    assert_eq!(ok(&directory, &store, watermark, &["next", "default", "--snowflake"])?.lines().count(), 1);
    assert!(!directory.path().join("unalike.sqlite").exists());

    let created = ok(&directory, &store, watermark, &["tags", "create", "chat", "--channel", "ordered"])?;
    assert_eq!(cells(&created, 1)[..2], ["chat", "ordered"]);
    assert_eq!(ok(&directory, &store, watermark, &["next", "chat"])?, "1\n");
    let figures = ["CUR", "MAX", "RECENTLY", "LONG-TERM"];
    let shown = ok(&directory, &store, watermark, &["tags", "show", "order"])?;
    assert_eq!((&cells(&shown, 0)[7..], &cells(&shown, 1)[6..]), (&figures[..], &["7", "100000", "7", "7"][..]));
    let shown = ok(&directory, &store, watermark, &["tags", "show", "order", "--sub", "a"])?;
    assert_eq!(cells(&shown, 1)[7..], ["1", "100000", "1", "1"]);
    let list = ok(&directory, &store, watermark, &["tags", "list"])?;
    assert_eq!((list.lines().count(), &cells(&list, 0)[7..]), (4, &figures[..]));
    assert_eq!(cells(&list, 1)[6..], ["1", "100000", "1", "1"], "{list}");
    let raised = ok(&directory, &store, watermark, &["tags", "raise", "chat", "500000"])?;
    assert_eq!(cells(&raised, 1)[3], "499999");
    assert_eq!(ok(&directory, &store, watermark, &["next", "chat"])?, "500000\n");
    // Without a ceiling there are no figures.
    let alone = run(directory.path(), ["--store", watermark, "tags", "show", "order"])?;
    assert_eq!((alone.code, cells(&alone.stdout, 0).len()), (Some(0), 7), "{alone:?}");
    refuses(&directory, &["--store", watermark, "tags", "show", "nobody"], &["nobody", "unknown"]);

    // From the environment and from a file, as every setting.
    let environment = [("UNALIKE_STORE", store.as_str()), ("UNALIKE_BACKING", watermark)];
    assert_eq!(run_with(directory.path(), ["next", "order"], &environment)?.stdout, "8\n");
    let file = format!("store = \"{store}\"\nbacking = \"{watermark}\"\n[tags.chat]\nchannel = \"ordered\"\n");
    std::fs::write(directory.path().join("unalike.toml"), file)?;
    assert_eq!(run(directory.path(), ["--config", "unalike.toml", "next", "chat"])?.stdout, "500001\n");

    std::fs::write(directory.path().join("password"), "another secret\n")?;
    for sub in [&[][..], &["--sub", "b"]] {
        let next = [&["--config", "unalike.toml", "next", "order"], sub].concat();
        refuses(&directory, &next, &["denied access", "password"]);
    }
    Ok(())
}

#[test]
fn a_server_gives_redis_its_numbers_beforehand_and_a_command_does_not() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::Nothing)?;
    let (store, watermark, directory) = (redis.url(0, ""), "sqlite://ids.sqlite", Arc::new(TempDir::new()?));
    ok(&directory, &store, watermark, &["next", "order"])?;
    redis.cli(&["FLUSHALL"])?;
    for arguments in [&["tags", "list"][..], &["tags", "show", "order"], &["next", "other"]] {
        ok(&directory, &store, watermark, arguments)?;
        assert_eq!(redis.cli(&["EXISTS", "unalike:{order}"])?, "0", "{arguments:?}");
    }
    let _server = serve(&directory, &store, watermark, &[])?;
    while redis.cli(&["HGET", "unalike:{order}", "left"])? != "100000" {}
    Ok(())
}

/// Sequences, ordered ones and snowflakes from the master that Sentinels name, through a fail-over, and from a Cluster.
#[test]
fn the_server_and_the_commands_take_sentinels_and_a_cluster() -> anyhow::Result<()> {
    let mut watched = Watched::start(Program::Redis)?;
    let cluster = RedisCluster::start(Program::Redis)?;
    let patient = "connect-timeout-ms=10000&raise-min=100&raise-max=100";
    for (store, leases) in
        [(watched.sentinels.url(patient), watched.sentinels.url("")), (cluster.url(patient), cluster.url(""))]
    {
        let directory = Arc::new(TempDir::new()?);
        let backing = "sqlite://ids.sqlite";
        assert_eq!(ok(&directory, &store, backing, &["next", "order", "-n", "3"])?, "1\n2\n3\n");
        ok(&directory, &store, backing, &["tags", "create", "chat", "--ordered"])?;
        let server = serve(&directory, &store, backing, &["--leases", &leases])?;
        let chat = "/v1/sequences/chat/ids?count=3";
        assert_eq!(server.client().ids(chat)?, [1, 2, 3]);
        let flake = server.get("/v1/snowflakes/default/ids?count=1")?;
        assert_eq!(flake.status, 200, "{flake:?}");
        if store.contains("sentinel") {
            watched.master.kill9()?;
            watched.sentinels.wait_for_master(&watched.replica)?;
        }
        // What was on its way when the master was lost may fail once.
        let next = server.client().ids(chat).or_else(|_| server.client().ids(chat))?;
        assert_eq!(next.first(), Some(if store.contains("sentinel") { &101 } else { &4 }));
        let ran = run_over(&directory, &store, "none", &["next", "order"])?;
        assert!(ran.code == Some(1) && ran.stderr.contains("durability=assumed"), "{ran:?}");
    }
    Ok(())
}

#[test]
fn what_cannot_be_is_refused_by_name() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    // Nothing listens on the first port.
    let (redis, file) = ("redis://ids:secret@127.0.0.1:1/0", "sqlite://ids.sqlite");
    let (over_redis, over_file) = (["--store", redis, "--backing", file], ["--store", file]);
    let alone = ["--store", redis, "--backing", "none"];
    let shown = "redis://ids@127.0.0.1:1/0";
    let with = |over: &[&'static str], more: &[&'static str]| [over, more].concat();
    for (arguments, named) in [
        (vec!["--store", redis, "next", "order"], &[shown, "--backing sqlite://PATH", "--backing none"][..]),
        (with(&over_file, &["--backing", "mysql://ids@h/db", "next", "a"]), &["--backing", file, "redis://HOST"]),
        (vec!["--store", redis, "--backing", "redis://h:2/1", "next", "a"], &["redis://h:2/1", "durable"]),
        (vec!["--store", redis, "--backing", "ids.sqlite", "next", "a"], &["--backing", "ids.sqlite", "not a URL"]),
        (with(&over_redis, &["--leases", "redis-sentinel://h", "next", "a"]), &["redis+sentinel://", "--leases"]),
        (vec!["--store", file, "--store", redis, "next", "a"], &[shown, "several", "--store"]),
        (vec!["--store", "redis-sentinel://h", "--backing", "none", "next", "a"], &["redis+sentinel://"]),
        (vec!["--store", "redis+sentinel://h", "--backing", "none", "next", "a"], &["names no master"]),
        (vec!["--store", "redis+cluster://h,i/1", "--backing", "none", "next", "a"], &["has only 0"]),
        (vec!["--store", "redis://h?dialect=id-generator", "--backing", "none", "next", "a"], &["tags import"]),
        (vec!["--store", "redis://ids:1/secret@h/0", "--backing", "none", "next", "a"], &["percent-encoded"]),
        (with(&over_redis, &["schema"]), &[shown, "no tables", "--dialect"]),
        (with(&over_redis, &["schema", "upgrade"]), &[shown, "no tables"]),
        (with(&over_redis, &["store", "adopt", "--lift", "5"]), &[shown, "not adopted", "durable store"]),
        (with(&over_redis, &["store", "restored", "--lift", "5"]), &[shown, "not adopted", "durable store"]),
        (with(&alone, &["store", "adopt", "--lift", "5"]), &[shown, "not adopted", "store restored"]),
        (with(&alone, &["store", "restored", "--lift", "5"]), &[shown, "not lifted", "cannot be reached"]),
        (with(&over_redis, &["stripes", "resize", "--to", "sqlite://a", "sqlite://b"]), &[shown, "never one"]),
        (with(&over_file, &["stripes", "resize", "--to", redis]), &[shown, "never one"]),
        (with(&over_redis, &["store", "init"]), &["--backing none", "first use"]),
        (with(&over_file, &["store", "init"]), &["--backing none", "redis://HOST"]),
        (with(&over_redis, &["tags", "import", "--from", file]), &["the store itself"]),
        (with(&over_redis, &["tags", "import", "--from", "leaf"]), &["mysql://USER@HOST/DATABASE?dialect=leaf"]),
        (with(&over_file, &["tags", "create", "a", "--channel", "ordered"]), &["redis://HOST", "slow-ordered"]),
        // Neither store may be down at the start.
        (with(&over_redis, &["next", "a"]), &[shown, "cannot be reached"]),
        (with(&over_redis, &["serve", "--listen", "127.0.0.1:0"]), &[shown, "cannot be reached"]),
    ] {
        refuses(&directory, &arguments, named);
    }
    let server = Redis::start(Persistence::Nothing)?;
    let down = ["--store", &server.url(0, ""), "--backing", "mysql://ids:secret@127.0.0.1:1/ids", "next", "a"];
    refuses(&directory, &down, &["--backing", "mysql://ids@127.0.0.1:1/ids", "cannot be opened"]);

    let file = format!("store = \"{redis}\"\nbacking = \"mysql://ids:secret@db/ids\"\n");
    std::fs::write(directory.path().join("unalike.toml"), file)?;
    let checked = run(directory.path(), ["config", "check", "unalike.toml"])?;
    assert_eq!(checked.code, Some(0), "{checked:?}");
    for line in [format!("store = \"{shown}\" # file"), "backing = \"mysql://ids@db/ids\" # file".to_owned()] {
        assert!(checked.stdout.lines().any(|printed| printed == line), "no {line:?} in {}", checked.stdout);
    }
    assert!(!checked.stdout.contains("secret"), "{checked:?}");
    let schema = ["--config", "unalike.toml", "schema"];
    assert!(run(directory.path(), schema)?.stdout.contains("unalike_store"), "of the durable store");
    Ok(())
}

#[test]
fn the_channel_ordered_needs_redis() -> anyhow::Result<()> {
    let server = Server::start()?;
    let answer = server.client().send_json("POST", "/v1/tags", &json!({ "tag": "chat", "channel": "ordered" }))?;
    assert_eq!((answer.status, answer.problem()?.as_str()), (400, "tag-invalid"));
    assert!(answer.body.contains("redis://HOST") && answer.body.contains("slow-ordered"), "{answer:?}");
    let channels = |server: &Server| -> anyhow::Result<serde_json::Value> {
        let document = server.get("/openapi.json")?.json()?;
        Ok(document["components"]["schemas"]["TagCreate"]["properties"]["channel"]["enum"].clone())
    };
    assert_eq!(channels(&server)?, json!(["unordered", "slow-ordered"]));
    let redis = Redis::start(Persistence::Nothing)?;
    let over_redis = serve(&Arc::new(TempDir::new()?), &redis.url(0, ""), "sqlite://ids.sqlite", &[])?;
    assert_eq!(channels(&over_redis)?, json!(["unordered", "ordered", "slow-ordered"]));
    Ok(())
}

#[test]
fn the_ceilings_of_the_old_table_go_on() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::Nothing)?;
    let mariadb = MariaDb::shared()?;
    let url = mariadb.database()?;
    let database = name_of(&url);
    mariadb.sql(
        database,
        "CREATE TABLE id_generator (id INT NOT NULL PRIMARY KEY, current_max_id BIGINT, increment_step INT); \
         INSERT INTO id_generator VALUES (1, 5000, 1000), (2, 70, 10)",
    )?;
    let directory = TempDir::new()?;
    let (store, table) = (redis.url(0, ""), format!("{url}?dialect=id-generator&keys=order:1,invoice:2"));
    let over = ["--store", &store, "--backing", &table];
    refuses(&directory, &[&over[..], &["next", "order"]].concat(), &["--backing", "source-stopped=true"]);

    let table = format!("{table}&source-stopped=true");
    assert_eq!(ok(&directory, &store, &table, &["next", "order", "-n", "3"])?, "5001\n5002\n5003\n");
    let row = || mariadb.sql(database, "SELECT current_max_id FROM id_generator ORDER BY id");
    assert_eq!(row()?, "105000\n70\n");
    assert_eq!(ok(&directory, &store, &table, &["next", "order"])?, "5004\n");
    assert_eq!(row()?, "105000\n70\n", "Redis has numbers left");
    let shown = ok(&directory, &store, &table, &["tags", "show", "order"])?;
    assert_eq!(cells(&shown, 1)[6..8], ["5004", "105000"], "{shown}");
    let over = ["--store", &store, "--backing", &table];
    let with = |more: &[&'static str]| [&over[..], more].concat();
    refuses(&directory, &with(&["next", "chat"]), &["chat", "unknown"]);
    // Its rows have no place for a mode.
    refuses(&directory, &with(&["tags", "create", "chat", "--channel", "ordered"]), &["chat", "unknown"]);
    std::fs::write(directory.path().join("unalike.toml"), "[tags.order]\nchannel = \"ordered\"\n")?;
    let named = ["order", "buffered in the store", "declared ordered"];
    refuses(&directory, &with(&["--config", "unalike.toml", "next", "order"]), &named);
    mariadb.sql(database, "DELETE FROM id_generator WHERE id = 1")?;
    refuses(&directory, &with(&["--config", "unalike.toml", "next", "order"]), &["order", "id_generator", "ordered"]);
    // Leases have tables of their own beside the old one.
    assert_eq!(ok(&directory, &store, &table, &["next", "default", "--snowflake"])?.lines().count(), 1);
    assert!(ok(&directory, &store, &table, &["schema"])?.contains("CREATE TABLE IF NOT EXISTS id_generator"));
    Ok(())
}

/// Below the ceiling, up to which the durable store has granted numbers that nobody was given yet.
#[test]
fn a_raise_below_the_ceiling_is_one() -> anyhow::Result<()> {
    let (redis, directory) = (Redis::start(Persistence::Nothing)?, Arc::new(TempDir::new()?));
    let (store, watermark) = (redis.url(0, ""), "sqlite://backing.sqlite");
    assert_eq!(ok(&directory, &store, watermark, &["next", "order", "-n", "3"])?, "1\n2\n3\n");
    for (next, is_raised) in [("5000", true), ("5000", true), ("4000", false)] {
        let ran = run_over(&directory, &store, watermark, &["tags", "raise", "order", next])?;
        assert_eq!((ran.code, ran.stderr.contains("nothing changed")), (Some(0), !is_raised), "{next}: {ran:?}");
    }
    assert_eq!(ok(&directory, &store, watermark, &["next", "order"])?, "5000\n");
    let server = serve(&directory, &store, watermark, &[])?;
    let raise = |next: u64| -> anyhow::Result<bool> {
        let answer = server.client().send_json("PATCH", "/v1/tags/order", &json!({ "raise_to": next }))?;
        assert_eq!(answer.status, 200, "{answer:?}");
        Ok(answer.json()?.get("unchanged").is_none())
    };
    assert_eq!((raise(7_000)?, raise(6_000)?), (true, false));
    assert_eq!(server.client().ids("/v1/sequences/order/ids")?, [7_000]);
    Ok(())
}

#[test]
fn a_command_says_that_the_ceiling_was_reached() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::Nothing)?;
    let mut mariadb = MariaDb::start()?;
    let (store, watermark) = (redis.url(0, "raise-min=2000&raise-max=2000"), mariadb.database()?);
    let directory = TempDir::new()?;
    ok(&directory, &store, &watermark, &["tags", "create", "chat", "--channel", "ordered"])?;
    let mut command = Command::new(binary()?)
        .current_dir(&directory)
        .args(["--store", &store, "--backing", &watermark, "--wait-max-ms", "300"])
        .args(["next", "chat", "-n", "1000000000", "--yes"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(command.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap()?, "1");
    // It goes on until the pipe is full.
    process::pause(&command)?;
    mariadb.kill9()?;
    process::signal(&command, libc::SIGCONT)?;
    lines.for_each(|line| drop(line.unwrap()));
    let ended = command.wait_with_output()?;
    let said = String::from_utf8(ended.stderr)?;
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("\"chat\" has reached its ceiling") && said.contains("try again in"), "{said}");
    Ok(())
}

#[test]
fn tls_is_used_as_the_url_says() -> anyhow::Result<()> {
    let authority = Authority::new("127.0.0.1");
    let (redis, tls_port) = Redis::start_with_tls(&authority, &["--requirepass", "secret-word"])?;
    let directory = Arc::new(TempDir::new()?);
    let place = format!("127.0.0.1:{tls_port}/0");
    let over = |authority: &Authority| format!("rediss://:secret-word@{place}?ssl-ca={}", authority.file("ca.pem"));
    let server = serve(&directory, &over(&authority), "sqlite://ids.sqlite", &[])?;
    assert_eq!(server.client().ids("/v1/sequences/order/ids?count=3")?, [1, 2, 3]);
    assert!(redis.cli(&["-a", "secret-word", "INFO", "clients"])?.contains("connected_clients:2"), "{redis:?}");
    assert!(!server.log()?.contains("secret-word"), "{}", server.log()?);

    let with = |store: &str, named: &[&str]| {
        refuses(&directory, &["--store", store, "--backing", "sqlite://other.sqlite", "next", "order"], named);
    };
    with(&over(&Authority::new("127.0.0.1")), &[&place, "ssl-ca", "certificate"]);
    with(&over(&Authority::new("elsewhere.example")).replace("ssl-ca", "ssl-ka"), &["ssl-ka", "unknown"]);
    with(&format!("rediss://:secret-word@{place}"), &[&place, "certificate"]);
    with(&format!("rediss://{place}?ssl-ca=/nowhere/ca.pem"), &["/nowhere/ca.pem", "cannot be read"]);
    with(&format!("redis://:secret-word@{place}?ssl-ca=ca.pem"), &["ssl-ca needs rediss://"]);
    with(&format!("redis://:secret-word@{place}"), &[&place]);
    Ok(())
}

#[test]
fn redis_alone_is_begun_by_command_and_says_what_it_may_lose() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::AofAlways)?;
    let (store, directory) = (redis.url(0, ""), TempDir::new()?);
    let ran = run_over(&directory, &store, "none", &["next", "order"])?;
    assert!(ran.code == Some(1) && ran.stderr.contains("store init"), "an empty one may have lost its data: {ran:?}");
    let done = ok(&directory, &store, "none", &["store", "init"])?;
    assert!(done.contains("it is a store now"), "{done}");
    let done = ok(&directory, &store, "none", &["store", "init"])?;
    assert!(done.contains("nothing was changed"), "{done}");
    let ran = run_over(&directory, &store, "none", &["next", "order", "-n", "3"])?;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "1\n2\n3\n"), "{ran:?}");
    assert!(ran.stderr.contains("WARN") && ran.stderr.contains("fail-over"), "{ran:?}");
    let done = ok(&directory, &store, "none", &["store", "restored", "--lift", "5000"])?;
    for said in ["the restored data", "tags: 1, each lifted by 5000 numbers", "start the programs"] {
        assert!(done.contains(said), "no {said:?} in {done}");
    }
    let next: u64 = ok(&directory, &store, "none", &["next", "order"])?.trim().parse()?;
    assert!(next > 5_003, "{next}");
    let ran = run_over(&directory, &store, "none", &["next", "default", "--snowflake"])?;
    assert!(ran.code == Some(1) && ran.stderr.contains("--leases sqlite://PATH"), "{ran:?}");

    let careless = Redis::start(Persistence::AofEverySecond)?;
    let ran = run_over(&directory, &careless.url(0, ""), "none", &["store", "init"])?;
    assert!(ran.code == Some(1) && ran.stderr.contains("appendfsync"), "{ran:?}");
    Ok(())
}

#[test]
fn counters_of_the_old_system_go_on_behind_their_ceilings() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::Nothing)?;
    for (key, cur, max) in [("id_order", "150", "1000"), ("id_invoice", "70", "9223372036854775000")] {
        redis.cli(&["HSET", key, "cur", cur, "max", max, "seq_recently", "5", "seq_long_term", "9"])?;
    }
    let (store, watermark, directory) = (redis.url(0, ""), "sqlite://ids.sqlite", TempDir::new()?);
    let by_name = "id-generator?keys=order:id_order";
    let over = ["--store", &store, "--backing", watermark, "tags", "import", "--from"];
    let import = |more: &[&'static str]| [&over[..], more].concat();
    refuses(&directory, &import(&[by_name]), &["source-stopped"]);
    refuses(&directory, &import(&["id-generator", "--source-stopped"]), &["keys="]);
    let below = [by_name, "--source-stopped", "--tag", "order", "--at", "1000"];
    refuses(&directory, &import(&below), &["up to 1000", "nothing was changed"]);
    let done = ok(&directory, &store, watermark, &["tags", "import", "--from", by_name, "--source-stopped"])?;
    assert_eq!(cells(&done, 1), ["order", "1000", "1001", "created"], "{done}");
    assert_eq!(ok(&directory, &store, watermark, &["next", "order"])?, "1001\n");

    // By a URL, into another store, at a number of one's own choice.
    let url = redis.url(0, "dialect=id-generator&keys=order:id_order,invoice:id_invoice");
    let arguments = ["--store", "sqlite://other.sqlite", "tags", "import", "--from", &url, "--source-stopped"];
    let done = run(directory.path(), arguments)?;
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(cells(&done.stdout, 1), ["invoice", "9223372036854775000", "9223372036854775001", "created"]);
    let at = [&arguments[..], &["--tag", "order", "--at", "5000"]].concat();
    assert_eq!(cells(&run(directory.path(), at)?.stdout, 1), ["order", "1000", "5000", "raised"]);
    assert_eq!(redis.cli(&["HGET", "id_order", "cur"])?, "150", "it was only read");
    Ok(())
}
