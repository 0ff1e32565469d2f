//! What the clients and operators of Leaf, tinyid and CosId do when they come over: the calls of their programs by the
//! wire, over their own tables, keys and nodes on real servers, and imports of many tags.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic_in_result_fn,
    reason = "a test that cannot go on fails"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::json;
use tempfile::TempDir;
use unalike_tests::PATIENCE;
use unalike_tests::clock::FakeClock;
use unalike_tests::mariadb::MariaDb;
use unalike_tests::proxy::Proxy;
use unalike_tests::redis::{Persistence, Redis};
use unalike_tests::server::{Answer, Client, Ran, Server, binary, name_of, run};
use unalike_tests::zookeeper::{Zookeeper, raw};
use zookeeper_client::{Acls, CreateMode};

/// CosId's own, as its initializer writes it.
const COSID: &str = "create table cosid (name varchar(100) not null comment '{namespace}.{name}', \
    last_max_id bigint unsigned not null default 0, last_fetch_time bigint unsigned not null default 0, \
    constraint cosid_pk primary key (name)) engine = InnoDB";

/// tinyid's own.
const TINYID: &str = "CREATE TABLE tiny_id_info (id bigint(20) unsigned NOT NULL AUTO_INCREMENT, \
    biz_type varchar(63) NOT NULL DEFAULT '', begin_id bigint(20) NOT NULL DEFAULT '0', \
    max_id bigint(20) NOT NULL DEFAULT '0', step int(11) DEFAULT '0', delta int(11) NOT NULL DEFAULT '1', \
    remainder int(11) NOT NULL DEFAULT '0', create_time timestamp NOT NULL DEFAULT '2010-01-01 00:00:00', \
    update_time timestamp NOT NULL DEFAULT '2010-01-01 00:00:00', version bigint(20) NOT NULL DEFAULT '0', \
    PRIMARY KEY (id), UNIQUE KEY uniq_biz_type (biz_type)) ENGINE=InnoDB DEFAULT CHARSET=utf8; \
    CREATE TABLE tiny_id_token (id int(11) unsigned NOT NULL AUTO_INCREMENT, token varchar(255) NOT NULL DEFAULT '', \
    biz_type varchar(63) NOT NULL DEFAULT '', remark varchar(255) NOT NULL DEFAULT '', \
    create_time timestamp NOT NULL DEFAULT '2010-01-01 00:00:00', \
    update_time timestamp NOT NULL DEFAULT '2010-01-01 00:00:00', PRIMARY KEY (id)) ENGINE=InnoDB DEFAULT CHARSET=utf8; \
    INSERT INTO tiny_id_info (biz_type, begin_id, max_id, step) VALUES ('test', 1, 1, 100), ('other', 1, 1, 100)";

/// Leaf's own, but for the collation.
const LEAF: &str = "CREATE TABLE leaf_alloc (biz_tag varchar(128) COLLATE utf8mb4_bin NOT NULL DEFAULT '' PRIMARY KEY, \
    max_id bigint(20) NOT NULL DEFAULT '1', step int(11) NOT NULL, description varchar(256) DEFAULT NULL, \
    update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP) ENGINE=InnoDB";

/// A request as CosId's client sends it.
fn cosid(client: &Client, method: &str, path: &str) -> anyhow::Result<Answer> {
    client.send(method, path, "application/json; charset=utf-8", "")
}

/// The first calls of CosId's proxy client on a name that nobody used before.
fn begin_with_cosid(server: &Server) -> anyhow::Result<()> {
    let client = server.client();
    for _ in 0..2 {
        let created = cosid(&client, "POST", "/segments/distributor/shop/new?offset=0&step=10")?;
        assert_eq!((created.status, created.body.as_str()), (200, ""), "{created:?}");
    }
    for max in ["10", "20"] {
        let segment = cosid(&client, "PATCH", "/segments/shop/new?step=10")?;
        assert_eq!((segment.status, segment.body.as_str()), (200, max), "{segment:?}");
    }
    let behind = cosid(&client, "POST", "/segments/distributor/shop/late?offset=500&step=10")?;
    assert_eq!(behind.status, 200, "{behind:?}");
    assert_eq!(cosid(&client, "PATCH", "/segments/shop/late?step=10")?.body, "510");
    Ok(())
}

#[test]
fn a_proxy_client_of_cosid_begins_on_a_new_name_in_mysql() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    let url = mariadb.database()?;
    mariadb.sql(name_of(&url), COSID)?;
    let server = Server::start_with(["--store", &format!("{url}?dialect=cosid"), "--drop-in", "cosid"])?;
    begin_with_cosid(&server)?;
    let rows = "SELECT name, last_max_id, ABS(UNIX_TIMESTAMP() - last_fetch_time) < 600 FROM cosid ORDER BY name";
    assert_eq!(mariadb.sql(name_of(&url), rows)?, "shop.late\t510\t1\nshop.new\t20\t1\n", "its times are seconds");
    Ok(())
}

#[test]
fn a_proxy_client_of_cosid_begins_on_a_new_name_in_redis() -> anyhow::Result<()> {
    let redis = Redis::start(Persistence::AofAlways)?;
    let store = redis.url(0, "dialect=cosid");
    let leases = ["--leases", "sqlite://leases.sqlite"];
    let over = ["--store", &store, "--backing", "none", "--drop-in", "cosid"];
    let server = Server::start_with(over.into_iter().chain(leases))?;
    begin_with_cosid(&server)?;
    assert_eq!(redis.cli(&["GET", "cosid:{shop.new}.adder"])?.trim(), "20");
    Ok(())
}

/// A machine id and what it begins with.
fn distribute(client: &Client, namespace: &str, query: &str) -> anyhow::Result<(u64, u64)> {
    let answer = cosid(client, "POST", &format!("/machines/{namespace}?{query}"))?;
    ensure!(answer.status == 200, "{answer:?}");
    let state = answer.json()?;
    let figure = |name: &str| state[name].as_u64().with_context(|| format!("no {name}: {state}"));
    ensure!(state.as_object().is_some_and(|state| state.len() == 2), "{state}");
    Ok((figure("machineId")?, figure("lastTimeStamp")?))
}

#[track_caller]
fn assert_refused(answer: &Answer, code: &str, named: &str) {
    let body = answer.json().unwrap();
    assert_eq!((answer.status, &body["code"], &body["errors"]), (400, &json!(code), &json!([])), "{answer:?}");
    assert!(body["msg"].as_str().is_some_and(|said| said.contains(named)), "{named}: {answer:?}");
}

/// The lease of a machine id, as the command line lists it: holder, end and state.
fn leases(server: &Server, namespace: &str, more: &[&str]) -> anyhow::Result<Vec<(u64, String, String)>> {
    let listed = run(server.directory(), more.iter().copied().chain(["leases", "list", namespace]))?;
    ensure!(listed.code == Some(0), "{listed:?}");
    let rows = listed.stdout.lines().skip(1).map(|line| {
        let cells: Vec<&str> = line.split_whitespace().collect();
        Ok((cells[1].parse()?, cells[2].to_owned(), cells[4].to_owned()))
    });
    rows.collect()
}

const GUARD: &str = "safeGuardDuration=PT5M";

#[test]
fn machine_ids_of_cosid_are_leased_and_never_shared() -> anyhow::Result<()> {
    let server = Server::start_with(["--drop-in", "cosid"])?;
    let beside = server.start_beside()?;
    let (client, other) = (server.client(), beside.client());
    let ask = format!("machineBit=2&instanceId=10.0.0.1:8080&stable=false&{GUARD}");
    let (first, begins_ms) = distribute(&client, "shop", &ask)?;
    assert!(begins_ms % 1_000 == 0 && begins_ms > 1_700_000_000_000, "{begins_ms}");
    // Two containers with one address are two instances of one name.
    let (second, _) = distribute(&other, "shop", &ask)?;
    assert_ne!(first, second);
    // Any server prolongs both, for each may be in use.
    let before = leases(&server, "cosid:shop:2", &[])?;
    let longer = "instanceId=10.0.0.1:8080&stable=false&safeGuardDuration=PT9M";
    let guarded = cosid(&other, "PATCH", &format!("/machines/shop?{longer}"))?;
    assert_eq!((guarded.status, guarded.body.as_str()), (200, ""), "{guarded:?}");
    for ((_, _, was), (_, holder, is)) in before.iter().zip(&leases(&server, "cosid:shop:2", &[])?) {
        assert!(was < is && holder == "10.0.0.1:8080", "{was} {is}");
    }
    // Nor does one of them end what may be the other's.
    assert_eq!(cosid(&client, "DELETE", "/machines/shop?instanceId=10.0.0.1:8080&stable=false")?.status, 200);
    assert_eq!(cosid(&client, "PATCH", &format!("/machines/shop?{longer}"))?.status, 200);

    // Those of another namespace are others.
    distribute(&client, "store", &ask)?;
    let mut taken = BTreeSet::from([first, second]);
    for instance in ["b", "c"] {
        taken.insert(distribute(&client, "shop", &format!("machineBit=2&instanceId={instance}&{GUARD}"))?.0);
    }
    assert_eq!(taken, BTreeSet::from([0, 1, 2, 3]));
    let full = cosid(&client, "POST", &format!("/machines/shop?machineBit=2&instanceId=d&{GUARD}"))?;
    assert_refused(&full, "M-01", "4");
    // What is given back is nobody's until its time is over, whatever the clock of its client says.
    assert_eq!(cosid(&client, "DELETE", "/machines/shop?instanceId=b&stable=false")?.status, 200);
    assert_refused(&cosid(&client, "PATCH", &format!("/machines/shop?instanceId=b&{GUARD}"))?, "M-03", "ended");
    let full = cosid(&client, "POST", &format!("/machines/shop?machineBit=2&instanceId=d&{GUARD}"))?;
    assert_refused(&full, "M-01", "4");
    Ok(())
}

#[test]
fn a_machine_id_goes_on_to_another_instance_behind_its_end() -> anyhow::Result<()> {
    let server = Server::start_with(["--drop-in", "cosid"])?;
    let client = server.client();
    let shortly = "machineBit=1&stable=false&safeGuardDuration=PT1S";
    let mut taken = Vec::new();
    for instance in ["a", "b"] {
        taken.push(distribute(&client, "shop", &format!("{shortly}&instanceId={instance}"))?);
    }
    assert_ne!(taken[0].0, taken[1].0);
    let deadline = Instant::now() + PATIENCE;
    let next = loop {
        let answer = cosid(&client, "POST", &format!("/machines/shop?{shortly}&instanceId=c"))?;
        if answer.status == 200 {
            break answer.json()?;
        }
        assert_refused(&answer, "M-01", "2");
        ensure!(Instant::now() < deadline, "no machine id gets free");
    };
    let before = taken.iter().find(|(machine, _)| json!(machine) == next["machineId"]).context("one of the two")?;
    assert!(next["lastTimeStamp"].as_u64() >= Some(before.1 + 1_000), "{next} {before:?}");
    // Whose it was has lost it. Nobody may have asked for the other one, and then it goes on without a gap.
    let [lost, kept] = if before.0 == taken[0].0 { ["a", "b"] } else { ["b", "a"] };
    let guard = |instance: &str| cosid(&client, "PATCH", &format!("/machines/shop?instanceId={instance}&{GUARD}"));
    assert_refused(&guard(lost)?, "M-02", "somebody else has it");
    assert_eq!(guard(kept)?.status, 200);
    assert_refused(&guard("nobody")?, "M-02", "nobody");
    assert_refused(&cosid(&client, "DELETE", "/machines/shop?instanceId=nobody")?, "M-02", "nobody");
    // Of an instance that says that no other of its name is left, only the newest is prolonged.
    let stable = format!("machineBit=4&stable=true&instanceId=shop-0&{GUARD}");
    let (old, _) = distribute(&client, "pods", &stable)?;
    let (new, _) = distribute(&client, "pods", &stable)?;
    let longer = "/machines/pods?instanceId=shop-0&stable=true&safeGuardDuration=PT9M";
    assert_eq!(cosid(&client, "PATCH", longer)?.status, 200);
    let ends = leases(&server, "cosid:pods:4", &[])?;
    let end_of = |machine: u64| ends.iter().find(|lease| lease.0 == machine).map(|lease| lease.2.clone()).unwrap();
    assert!(end_of(old) < end_of(new), "{ends:?}");
    // An operator's word is the last one.
    let released = run(server.directory(), ["leases", "release", "cosid:pods:4", &new.to_string()])?;
    assert_eq!(released.code, Some(0), "{released:?}");
    assert_refused(&cosid(&client, "PATCH", longer)?, "M-03", "ended");
    Ok(())
}

/// A clock that shows tomorrow for an instant says nothing of those who ask in time.
#[test]
fn a_clock_that_jumps_ahead_for_an_instant_gives_no_machine_id_away() -> anyhow::Result<()> {
    const DAY_MS: i64 = 86_400_000;
    let clock = Arc::new(FakeClock::start()?);
    let flags = ["--drop-in", "cosid"].map(str::to_owned).to_vec();
    let server = Server::start_with_clock(Arc::new(TempDir::new()?), flags, Arc::clone(&clock))?;
    let client = server.client();
    for instance in ["a", "b"] {
        distribute(&client, "full", &format!("machineBit=1&instanceId={instance}&{GUARD}"))?;
    }
    let (mine, _) = distribute(&client, "shop", &format!("machineBit=10&instanceId=a&{GUARD}"))?;
    clock.set(DAY_MS)?;
    let refused = cosid(&client, "POST", &format!("/machines/full?machineBit=1&instanceId=c&{GUARD}"))?;
    // Nor does another of the same name get it, nor one with another width.
    let (other, _) = distribute(&client, "shop", &format!("machineBit=10&instanceId=a&{GUARD}"))?;
    let wider = cosid(&client, "POST", &format!("/machines/shop?machineBit=11&instanceId=b&{GUARD}"))?;
    clock.set(0)?;
    assert_refused(&refused, "M-01", "2");
    assert_ne!(mine, other);
    assert_refused(&wider, "400", "machineBit=10");
    for (namespace, instance) in [("full", "a"), ("full", "b"), ("shop", "a")] {
        let guarded = cosid(&client, "PATCH", &format!("/machines/{namespace}?instanceId={instance}&{GUARD}"))?;
        assert_eq!(guarded.status, 200, "{guarded:?}");
    }
    Ok(())
}

#[test]
fn machine_ids_of_one_namespace_have_one_width() -> anyhow::Result<()> {
    let server = Server::start_with(["--drop-in", "cosid", "--lease-skew-max-ms", "100"])?;
    let client = server.client();
    let short = "safeGuardDuration=PT2S";
    distribute(&client, "shop", &format!("machineBit=10&instanceId=a&{short}"))?;
    let narrower = format!("/machines/shop?machineBit=8&instanceId=b&{GUARD}");
    let refused = cosid(&client, "POST", &narrower)?;
    for named in ["machineBit is 8", "machineBit=10", "\"a\"", "one width"] {
        assert_refused(&refused, "400", named);
    }
    assert_eq!(leases(&server, "cosid:shop:8", &[])?, [], "nothing was leased");
    distribute(&client, "other", &format!("machineBit=8&instanceId=b&{GUARD}"))?;
    // Once they have ended, it has another one.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = cosid(&client, "POST", &narrower)?;
        if answer.status == 200 {
            break;
        }
        ensure!(Instant::now() < deadline, "{answer:?}");
        thread::sleep(Duration::from_millis(10));
    }
    let wider = cosid(&client, "POST", &format!("/machines/shop?machineBit=10&instanceId=a&{GUARD}"))?;
    assert_refused(&wider, "400", "machineBit=8");
    // Nor do two that begin at once have two.
    for round in 0..20 {
        let ask = |bits: u32| {
            cosid(&client, "POST", &format!("/machines/round-{round}?machineBit={bits}&instanceId=a&{GUARD}"))
        };
        let statuses = thread::scope(|scope| {
            let asked = [8, 10].map(|bits| scope.spawn(move || ask(bits)));
            asked.map(|asked| asked.join().unwrap().map(|answer| answer.status))
        });
        let [one, other] = statuses;
        assert_ne!((one?, other?), (200, 200), "in round {round}");
    }
    Ok(())
}

#[test]
fn machine_ids_are_refused_where_they_cannot_be_what_is_asked() -> anyhow::Result<()> {
    let mut server = Server::start_with(["--drop-in", "cosid"])?;
    let client = server.client();
    for (query, named) in [
        (format!("instanceId=a&{GUARD}"), "machineBit is \"\""),
        (format!("machineBit=0&instanceId=a&{GUARD}"), "machineBit is \"0\""),
        (format!("machineBit=21&instanceId=a&{GUARD}"), "machineBit is \"21\""),
        (format!("machineBit=10&{GUARD}"), "instanceId is missing"),
        ("machineBit=10&instanceId=a".to_owned(), "safeGuardDuration is \"\""),
        ("machineBit=10&instanceId=a&safeGuardDuration=soon".to_owned(), "safeGuardDuration is \"soon\""),
        ("machineBit=10&instanceId=a&safeGuardDuration=PT0.5S".to_owned(), "a second or longer"),
        ("machineBit=10&instanceId=a&safeGuardDuration=-PT5M".to_owned(), "a second or longer"),
        // What CosId says where nobody guards.
        ("machineBit=10&instanceId=a&safeGuardDuration=PT2562047788015H12M55.807S".to_owned(), "lease_horizon_max_ms"),
        ("machineBit=10&instanceId=a&safeGuardDuration=PT11M".to_owned(), "lease_horizon_max_ms"),
        (format!("machineBit=10&instanceId={}&{GUARD}", "a".repeat(129)), "128 bytes at most"),
        (format!("machineBit=10&instanceId=a%00b&{GUARD}"), "no control characters"),
    ] {
        assert_refused(&cosid(&client, "POST", &format!("/machines/shop?{query}"))?, "400", named);
    }
    assert_eq!(leases(&server, "cosid:shop:10", &[])?, [], "nothing was leased");
    // They are in the store, and a server that is killed forgets none.
    let (machine, _) = distribute(&client, "shop", &format!("machineBit=10&instanceId=a&{GUARD}"))?;
    server.restart()?;
    let client = server.client();
    assert_eq!(cosid(&client, "PATCH", &format!("/machines/shop?instanceId=a&{GUARD}"))?.status, 200);
    assert_eq!(leases(&server, "cosid:shop:10", &[])?[0].0, machine);
    // With local copies of running leases, too, which are this process's own.
    let local = ["--drop-in", "cosid", "--local-leases", "leases", "--leases", "sqlite://leases.sqlite"];
    let server = Server::start_with(local)?;
    let client = server.client();
    distribute(&client, "shop", &format!("machineBit=10&instanceId=a&{GUARD}"))?;
    let listed = leases(&server, "cosid:shop:10", &["--leases", "sqlite://leases.sqlite"])?;
    assert_eq!(listed.len(), 1);
    let none = Server::start_with(["--drop-in", "cosid", "--leases", "none"])?;
    let refused = cosid(&none.client(), "POST", &format!("/machines/shop?machineBit=10&instanceId=a&{GUARD}"))?;
    assert!(refused.status == 500 && refused.body.contains("--leases"), "{refused:?}");
    Ok(())
}

/// Whoever was answered that a machine id is prolonged has it for that long, whoever ends it at the same time.
#[test]
fn an_extension_of_a_machine_id_that_was_answered_is_not_taken_back() -> anyhow::Result<()> {
    let server = Server::start_with(["--drop-in", "cosid"])?;
    let beside = server.start_beside()?;
    let (client, other) = (server.client(), beside.client());
    let instances: Vec<String> = (0..30).map(|number| format!("instance-{number:02}")).collect();
    for instance in &instances {
        distribute(&client, "shop", &format!("machineBit=10&instanceId={instance}&safeGuardDuration=PT1M"))?;
    }
    let ends = || -> anyhow::Result<BTreeMap<String, String>> {
        Ok(leases(&server, "cosid:shop:10", &[])?.into_iter().map(|(_, holder, end)| (holder, end)).collect())
    };
    let before = ends()?;
    let mut prolonged = Vec::new();
    for instance in &instances {
        let longer = format!("/machines/shop?instanceId={instance}&safeGuardDuration=PT9M");
        let answer = thread::scope(|scope| {
            let ended = scope.spawn(|| cosid(&other, "DELETE", &format!("/machines/shop?instanceId={instance}")));
            let answer = cosid(&client, "PATCH", &longer);
            ensure!(ended.join().unwrap()?.status == 200, "it is ended");
            answer
        })?;
        if answer.status == 200 {
            prolonged.push(instance);
        }
    }
    let after = ends()?;
    for instance in prolonged {
        assert!(before[instance] < after[instance], "{instance}: {} {}", before[instance], after[instance]);
    }
    Ok(())
}

#[test]
fn machine_ids_are_leased_in_mysql_too() -> anyhow::Result<()> {
    let url = MariaDb::shared()?.database()?;
    let server = Server::start_with(["--store", url.as_str(), "--drop-in", "cosid"])?;
    let client = server.client();
    let (machine, _) = distribute(&client, "shop", &format!("machineBit=10&instanceId=a&{GUARD}"))?;
    assert!(machine < 1_024);
    for method in ["PATCH", "DELETE"] {
        let answer = cosid(&client, method, &format!("/machines/shop?instanceId=a&{GUARD}"))?;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert_refused(&cosid(&client, "PATCH", &format!("/machines/shop?instanceId=a&{GUARD}"))?, "M-03", "ended");
    Ok(())
}

#[test]
fn machine_ids_need_a_token_where_tokens_are_wanted() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    let token = |name: &str, scope: &str, tags: &str| {
        format!("[[tokens]]\nname = \"{name}\"\ntoken = \"a-token-of-{name}-x\"\nscope = \"{scope}\"\n{tags}\n")
    };
    let tokens = token("admin", "admin", "") + &token("host", "lease", "tags = [\"shop\"]");
    std::fs::write(directory.path().join("tokens.toml"), tokens)?;
    let arguments = ["--drop-in", "cosid", "--tokens", "tokens.toml"].map(str::to_owned).to_vec();
    let server = Server::start_in(directory, arguments)?;
    let [admin, host] = ["admin", "host"].map(|name| server.client().with_token(&format!("a-token-of-{name}-x")));
    let ask = |namespace: &str| format!("/machines/{namespace}?machineBit=10&instanceId=a&{GUARD}");
    assert_eq!(cosid(&server.client(), "POST", &ask("shop"))?.status, 401);
    let first = cosid(&host, "POST", &ask("shop"))?;
    assert!(first.status == 403 && first.body.contains("the scope admin"), "{first:?}");
    assert_eq!(cosid(&admin, "POST", &ask("shop"))?.status, 200);
    assert_eq!(cosid(&host, "POST", &ask("shop"))?.status, 200);
    assert_eq!(cosid(&host, "PATCH", &ask("shop"))?.status, 200);
    assert_eq!(cosid(&host, "POST", &ask("store"))?.status, 403);
    Ok(())
}

/// A server beside a node of Leaf's: what it is started with, and why it does not start.
fn refused_beside_leaf(arguments: &[&str]) -> anyhow::Result<String> {
    let directory = TempDir::new()?;
    let flags = ["serve", "--listen", "127.0.0.1:0", "--drop-in", "leaf"];
    let ran = run(directory.path(), flags.into_iter().chain(arguments.iter().copied()))?;
    ensure!(ran.code == Some(1) && ran.stdout.is_empty(), "it must say why and end: {ran:?}");
    // Behind what it logged.
    Ok(ran.stderr.lines().last().unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_leaf_the_layout_is_leaf_s_and_what_cannot_be_does_not_start() -> anyhow::Result<()> {
    let zookeeper = Zookeeper::start()?;
    let client = raw(zookeeper.port()).await;
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    for name in ["shop", "other"] {
        let tree = format!("/snowflake/{name}/forever");
        client.mkdir(&tree, &options).await?;
        let data = br#"{"ip":"10.0.0.1","port":"8080","timestamp":1700000000000}"#;
        let node = CreateMode::PersistentSequential.with_acls(Acls::anyone_all());
        client.create(&format!("{tree}/10.0.0.1:8080-"), data, &node).await?;
    }
    let port = zookeeper.port();
    let url = move |rest: &str| format!("zookeeper://127.0.0.1:{port}{rest}");
    tokio::task::spawn_blocking(move || {
        // The path is ours, and Leaf's nodes are where Leaf puts them.
        for rest in ["?leaf=shop", "/ids?leaf=shop"] {
            let server = Server::start_with(["--leases", &url(rest), "--drop-in", "leaf"])?;
            let id = server.get("/api/snowflake/get/order")?;
            assert_eq!(id.status, 200, "{id:?}: {}", server.log()?);
            let decoded = server.get(&format!("/decodeSnowflakeId?snowflakeId={}", id.body))?.json()?;
            let worker: u32 = decoded["workerId"].as_str().unwrap_or_default().parse()?;
            assert!((1..1_024).contains(&worker), "{decoded}");
            let listed = leases(&server, "default", &["--leases", &url(rest)])?;
            assert_eq!(listed[0].0, u64::from(worker));
        }
        for (rest, more, named) in [
            // One path shares its workers with one Leaf.
            ("?leaf=other", &[][..], "shares its workers with Leaf's nodes \"shop\""),
            ("", &[], "leaf=shop"),
            ("?leaf=nosuch", &[], "shares its workers"),
            ("/new?leaf=nosuch", &[], "no nodes of Leaf's at /snowflake/nosuch/forever"),
            ("/new?leaf=shop&leaf-path=/prod", &[], "no nodes of Leaf's at /prod/snowflake/shop/forever"),
            ("/new?leaf=shop", &["--config", "unalike.toml"], "the snowflake \"web\" has the layout"),
        ] {
            let config = "[snowflakes.web]\nlayout = \"baidu\"\n";
            let directory = TempDir::new()?;
            let path = directory.path().join("unalike.toml");
            std::fs::write(&path, config)?;
            let path = path.to_str().context("a path of UTF-8")?;
            let more: Vec<&str> = more.iter().map(|&word| if word == "unalike.toml" { path } else { word }).collect();
            let refused = refused_beside_leaf(&[&["--leases", &url(rest)][..], &more].concat())?;
            assert!(refused.contains(named), "{rest}: {refused}");
        }
        Ok(())
    })
    .await?
}

const TOKEN: &str = "0f673adf80504e2eaa552f5d791b644c";

#[test]
fn tinyid_s_own_tokens_are_good_for_the_business_types_that_they_are_good_for_there() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    let url = mariadb.database()?;
    let tokens = format!("INSERT INTO tiny_id_token (token, biz_type) VALUES ('{TOKEN}', 'test'), ('second', 'other')");
    mariadb.sql(name_of(&url), &format!("{TINYID}; {tokens}"))?;
    let store = format!("{url}?dialect=tinyid");
    let server = Server::start_with(["--store", &store, "--drop-in", "tinyid", "--log", "debug"])?;
    let client = server.client();
    let wrong = r#"{"data":null,"code":5,"message":"token is error"}"#;
    for query in
        ["bizType=test", "bizType=test&token=", "bizType=test&token=second", "token=second", "bizType=&token=x"]
    {
        for path in ["nextId", "nextSegmentId"] {
            assert_eq!(client.get(&format!("/tinyid/id/{path}?{query}"))?.body, wrong, "{query}");
            assert_eq!(client.get(&format!("/tinyid/id/{path}Simple?{query}"))?.body, "", "{query}");
        }
    }
    let good = format!("bizType=test&token={TOKEN}");
    assert_eq!(client.get(&format!("/tinyid/id/nextIdSimple?{good}&batchSize=2"))?.body, "2,3");
    let segment = client.send("POST", &format!("/tinyid/id/nextSegmentIdSimple?{good}"), "text/plain", "")?;
    assert_eq!(segment.body, "101,121,201,1,0");
    // A row that is new counts once the table was read again; one that has gone no more.
    mariadb.sql(name_of(&url), "UPDATE tiny_id_token SET token = 'third' WHERE token = 'second'")?;
    let read = server.log()?.matches("the table tiny_id_token was read").count();
    server.signal(libc::SIGHUP)?;
    server.wait_for_log("the table tiny_id_token was read", read + 1)?;
    assert_eq!(client.get("/tinyid/id/nextId?bizType=other&token=second")?.body, wrong);
    assert_eq!(client.get("/tinyid/id/nextIdSimple?bizType=other&token=third")?.body, "2");
    assert!(!server.log()?.contains(TOKEN));
    drop(server);

    // They are good as ever when the numbers have moved, beside tokens of this server's own.
    let directory = Arc::new(TempDir::new()?);
    let own = "[[tokens]]\nname = \"own\"\ntoken = \"a-token-of-our-own\"\nscope = \"read\"\n";
    std::fs::write(directory.path().join("tokens.toml"), own)?;
    let moved = ["--store", url.as_str(), "--drop-in", "tinyid", "--tokens", "tokens.toml"];
    let server = Server::start_in(directory, moved.map(str::to_owned).to_vec())?;
    let client = server.client();
    let simple = |query: &str| anyhow::Ok(client.get(&format!("/tinyid/id/nextIdSimple?{query}"))?.body);
    assert_eq!(simple(&good)?, "1");
    assert_eq!(simple("bizType=test&token=a-token-of-our-own")?, "2");
    assert_eq!(simple(&format!("bizType=other&token={TOKEN}"))?, "");
    assert_eq!(client.get("/v1/sequences/test/ids")?.status, 401, "a token of tinyid's is one of its paths alone");
    assert_eq!(server.client().with_token(TOKEN).get("/v1/sequences/test/ids")?.status, 401);
    // An empty table lets nobody in, as in tinyid; without one there are no such tokens.
    mariadb.sql(name_of(&url), "DELETE FROM tiny_id_token")?;
    let empty = Server::start_with(["--store", &store, "--drop-in", "tinyid"])?;
    assert_eq!(empty.get(&format!("/tinyid/id/nextId?{good}"))?.body, wrong);
    mariadb.sql(name_of(&url), "DROP TABLE tiny_id_token")?;
    let none = Server::start_with(["--store", &store, "--drop-in", "tinyid"])?;
    assert_eq!(none.get("/tinyid/id/nextId?bizType=test")?.json()?["code"], 200);
    Ok(())
}

#[test]
fn a_table_of_tokens_that_must_not_be_read_is_no_open_door() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    let url = mariadb.database()?;
    let database = name_of(&url);
    mariadb.sql(database, TINYID)?;
    let user = format!("t_{database}");
    let rights = "GRANT SELECT, INSERT, UPDATE ON";
    let tables = ["tiny_id_info", "unalike_store", "unalike_identity"];
    let tables = tables.map(|table| format!("{rights} {table} TO {user}")).join("; ");
    let directory = TempDir::new()?;
    // unalike's own tables come with the first use.
    let raise = ["tags", "raise", "nobody", "5"];
    let made = run(directory.path(), ["--store", &format!("{url}?dialect=tinyid")].into_iter().chain(raise))?;
    ensure!(made.code == Some(1) && made.stderr.contains("nobody"), "{made:?}");
    mariadb.sql(database, &format!("CREATE USER {user}; {tables}; {rights} unalike_tinyid_stripe TO {user}"))?;
    let store = format!("mysql://{user}@127.0.0.1:{}/{database}?dialect=tinyid&create=false", mariadb.port());
    let flags = ["--listen", "127.0.0.1:0", "--leases", "sqlite://leases.sqlite", "--drop-in", "tinyid"];
    let refused = run(directory.path(), ["--store", &store, "serve"].into_iter().chain(flags))?;
    let says = |word: &str| refused.stderr.contains(word);
    assert!(refused.code == Some(1) && says("tiny_id_token") && says("GRANT SELECT"), "{refused:?}");
    mariadb.sql(database, &format!("GRANT SELECT ON tiny_id_token TO {user}"))?;
    let server = Server::start_with(["--store", &store].into_iter().chain(flags.into_iter().skip(2)))?;
    assert_eq!(server.get("/tinyid/id/nextId?bizType=test")?.json()?["code"], 5);
    Ok(())
}

/// So many rows of Leaf's, each with other numbers.
fn leaf_with(mariadb: &MariaDb, rows: u32) -> anyhow::Result<String> {
    let url = mariadb.database()?;
    let fill = format!(
        "{LEAF}; INSERT INTO leaf_alloc (biz_tag, max_id, step) \
         SELECT CONCAT('tag-', LPAD(seq, 5, '0')), seq * 10 + 1, 10 FROM seq_1_to_{rows}"
    );
    mariadb.sql(name_of(&url), &fill)?;
    Ok(url)
}

fn import(directory: &TempDir, store: &str, more: &[&str]) -> anyhow::Result<Ran> {
    run(directory.path(), ["--store", store, "tags", "import", "--from"].into_iter().chain(more.iter().copied()))
}

/// The files that an import left behind.
fn journals(directory: &TempDir) -> anyhow::Result<Vec<String>> {
    let entries = std::fs::read_dir(directory.path())?;
    let names: Result<Vec<String>, _> =
        entries.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned())).collect();
    Ok(names?.into_iter().filter(|name| name.starts_with("unalike-import-")).collect())
}

#[test]
fn many_tags_are_imported_together_and_summed_up() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    for to_mysql in [true, false] {
        let url = leaf_with(mariadb, 2_100)?;
        let (database, directory) = (name_of(&url), TempDir::new()?);
        let from = format!("{url}?dialect=leaf");
        let store = if to_mysql { url.as_str() } else { "sqlite://ids.sqlite" };
        let done = import(&directory, store, &[&from])?;
        assert_eq!((done.code, done.stdout.as_str()), (Some(0), "2100 tags: created\n"), "{done:?}");
        let lines = done.stderr.lines().filter(|line| !line.contains("made a new store"));
        assert_eq!(lines.count(), 0, "no line for each: {done:?}");
        assert_eq!(journals(&directory)?, [""; 0]);
        let left = "SELECT COUNT(*), SUM(biz_tag LIKE 'retired:%') FROM leaf_alloc";
        assert_eq!(mariadb.sql(database, left)?, "2100\t2100\n");
        let listed = run(directory.path(), ["--store", store, "tags", "list"])?.stdout;
        assert_eq!(listed.lines().count(), 2_101);
        for (tag, next) in [("tag-00001", 11), ("tag-01000", 10_001), ("tag-01001", 10_011), ("tag-02100", 21_001)] {
            let ran = run(directory.path(), ["--store", store, "next", tag])?;
            assert_eq!(ran.stdout, format!("{next}\n"), "{tag}");
        }
        let again = import(&directory, store, &[&from])?;
        let said = format!("{}{}", again.stdout, again.stderr);
        assert!(again.code == Some(0) && said.contains("nothing was changed"), "{again:?}");
    }
    Ok(())
}

/// The same database by another name of its server.
fn by_name(url: &str) -> anyhow::Result<String> {
    ensure!(url.contains("127.0.0.1"), "{url}");
    Ok(url.replace("127.0.0.1", "localhost"))
}

#[test]
fn an_import_from_the_store_itself_by_another_name_ends_no_tag() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    let directory = TempDir::new()?;
    let refused = |store: &[&str], from: &str| {
        let flags = ["tags", "import", "--from", from];
        let ran = run(directory.path(), store.iter().copied().chain(flags))?;
        ensure!(ran.code == Some(1) && ran.stdout.is_empty(), "{from}: {ran:?}");
        ensure!(ran.stderr.contains("the same data") && ran.stderr.contains("nothing was changed"), "{from}: {ran:?}");
        anyhow::Ok(ran.stderr)
    };
    let url = mariadb.database()?;
    let next = |store: &[&str]| {
        let ran = run(directory.path(), store.iter().copied().chain(["next", "order"]))?;
        ensure!(ran.code == Some(0), "{ran:?}");
        anyhow::Ok(ran.stdout.trim().parse::<u64>()?)
    };
    assert_eq!(next(&["--store", &url])?, 1);
    let said = refused(&["--store", &url], &by_name(&url)?)?;
    assert!(said.contains("localhost") && said.contains("127.0.0.1"), "{said}");
    refused(&["--store", &by_name(&url)?], &url)?;
    assert_eq!(next(&["--store", &url])?, 2, "it was not ended");

    // Behind a Redis it is the store, too; and so it is among several.
    let redis = Redis::start(Persistence::AofAlways)?;
    let over = redis.url(0, "");
    refused(&["--store", &over, "--backing", &url], &by_name(&url)?)?;
    let (one, two) = (mariadb.database()?, mariadb.database()?);
    let both = ["--store", &one, "--store", &two];
    assert!(next(&both)? >= 1);
    refused(&both, &by_name(&two)?)?;
    assert!(next(&both)? >= 1);

    // Tables of another system: by either name they are the same, and beside the store's own they are others.
    let leaf = leaf_with(mariadb, 2)?;
    let (tables, renamed) = (format!("{leaf}?dialect=leaf"), format!("{}?dialect=leaf", by_name(&leaf)?));
    refused(&["--store", &tables], &renamed)?;
    let brought =
        run(directory.path(), ["--store", &leaf, "tags", "import", "--names-as-written", "--from", &renamed])?;
    assert_eq!(brought.code, Some(0), "{brought:?}");
    Ok(())
}

/// Between the end there and the beginning here: the tags are in neither store, and each repetition says so.
#[test]
fn an_import_that_broke_off_is_told_of_whenever_it_is_repeated() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    let (url, directory) = (leaf_with(mariadb, 2)?, TempDir::new()?);
    let (from, store) = (format!("{url}?dialect=leaf"), "sqlite://ids.sqlite");
    let flags = ["--store", store, "--tags-max", "1", "tags", "import", "--from", &from];
    let broken = run(directory.path(), flags)?;
    assert_eq!(broken.code, Some(1), "the second tag was ended, and cannot be created: {broken:?}");
    for _ in 0..2 {
        let again = run(directory.path(), flags)?;
        assert_eq!(again.code, Some(1), "{again:?}");
        let said = format!("{}{}", again.stdout, again.stderr);
        assert!(said.contains("--tag='tag-00002' --at"), "{said}");
    }
    Ok(())
}

#[test]
fn what_an_import_of_many_tags_left_undone_is_written_down() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    let url = leaf_with(mariadb, 30)?;
    let directory = TempDir::new()?;
    let from = format!("{url}?dialect=leaf");
    let store = "sqlite://ids.sqlite";
    // One is here already, further on; and there is room for ten.
    let made = run(directory.path(), ["--store", store, "tags", "create", "tag-00003", "--start", "5000"])?;
    ensure!(made.code == Some(0), "{made:?}");
    let broken = import(&directory, store, &[&from, "--tags-max", "10"])?;
    assert!(broken.code == Some(1) && broken.stderr.contains("10 tags"), "{broken:?}");
    let [journal] = &journals(&directory)?[..] else { anyhow::bail!("one file: {:?}", journals(&directory)?) };
    assert!(broken.stderr.contains(journal.as_str()), "{broken:?}");
    let lines = std::fs::read_to_string(directory.path().join(journal))?;
    assert_eq!(lines.lines().count(), 30, "{lines}");
    let finish = |number: u32| format!("--tag='tag-{number:05}' --at {}", number * 10 + 1);
    for number in 1..=30 {
        assert!(lines.contains(&finish(number)), "{lines}");
    }
    // By these the rest is finished; what is here is never lowered.
    for number in [3, 30] {
        let (tag, at) = (format!("tag-{number:05}"), (number * 10 + 1).to_string());
        let done = import(&directory, store, &[&from, "--tag", &tag, "--at", &at])?;
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    let next = |tag: &str| anyhow::Ok(run(directory.path(), ["--store", store, "next", tag])?.stdout);
    assert_eq!((next("tag-00003")?.as_str(), next("tag-00030")?.as_str()), ("5000\n", "301\n"));
    // Of many tags that are here already it is said how many were raised.
    let (url, directory) = (leaf_with(mariadb, 25)?, TempDir::new()?);
    let from = format!("{url}?dialect=leaf");
    for (tag, start) in [("tag-00001", "1"), ("tag-00002", "5000")] {
        let made = run(directory.path(), ["--store", store, "tags", "create", tag, "--start", start])?;
        ensure!(made.code == Some(0), "{made:?}");
    }
    let done = import(&directory, store, &[&from])?;
    let said = "23 tags: created\n1 tag: raised\n1 tag: ended there; was here, further on\n";
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), said), "{done:?}");
    assert_eq!(journals(&directory)?, [""; 0]);
    Ok(())
}

/// Killed when the source has ended a tag, and its answer has not come.
#[test]
fn an_import_that_is_killed_while_a_tag_ends_has_written_down_how_far_it_had_got() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    // One tag at a time, and many in one transaction.
    for (dialect, tags) in [("slow-ordered", 25), ("slow-ordered", 1), ("leaf", 25), ("leaf", 1)] {
        let one_at_a_time = dialect == "slow-ordered" || tags == 1;
        let directory = TempDir::new()?;
        let url = if dialect == "leaf" { leaf_with(mariadb, tags)? } else { mariadb.database()? };
        if dialect == "slow-ordered" {
            let made = format!("{url}?dialect={dialect}&create=true");
            for tag in 1..=tags {
                let (tag, start) = (format!("tag-{tag:05}"), (tag * 10 + 1).to_string());
                let create = ["--store", &made, "tags", "create", &tag, "--ordered", "--start", &start];
                let made = run(directory.path(), create)?;
                ensure!(made.code == Some(0), "{made:?}");
            }
        }
        let (proxy, store) = (Proxy::start(mariadb.port())?, "sqlite://ids.sqlite");
        let from = format!("{}?dialect={dialect}&request-timeout-ms=60000", proxy.url(&url));
        proxy.stall_at("FOR UPDATE");
        let mut importing = Command::new(binary()?)
            .current_dir(directory.path())
            .args(["--store", store, "tags", "import", "--names-as-written", "--from", &from])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let deadline = Instant::now() + PATIENCE;
        let mut pause = |is_over: &dyn Fn() -> bool| {
            while !is_over() {
                let ended = importing.try_wait()?;
                ensure!(ended.is_none() && Instant::now() < deadline, "{dialect}: it is paused, not {ended:?}");
                thread::sleep(Duration::from_millis(2));
            }
            anyhow::Ok(())
        };
        pause(&|| proxy.is_stalled())?;
        proxy.stall_at("COMMIT");
        proxy.stall(false);
        pause(&|| proxy.is_stalled())?;
        proxy.lose_answer_and_stall(0);
        proxy.stall(false);
        let is_ended = || {
            let shown = run(directory.path(), ["--store", &format!("{url}?dialect={dialect}"), "next", "tag-00001"]);
            shown.is_ok_and(|shown| shown.code == Some(1))
        };
        pause(&is_ended)?;
        importing.kill()?;
        importing.wait()?;
        proxy.stall(false);

        let [journal] = &journals(&directory)?[..] else { anyhow::bail!("one file: {:?}", journals(&directory)?) };
        assert!(journal.ends_with(".txt"), "{journal}");
        let lines = std::fs::read_to_string(directory.path().join(journal))?;
        assert_eq!(lines.lines().count(), if one_at_a_time { 1 } else { 25 }, "{lines}");
        for said in ["of the tag \"tag-00001\" 10 was the last number", "--tag='tag-00001' --at NUMBER"] {
            assert!(lines.contains(said), "{said}: {lines}");
        }
        // What is said is done.
        let from = format!("{url}?dialect={dialect}");
        let finished = import(&directory, store, &[&from, "--tag", "tag-00001", "--at", "11", "--names-as-written"])?;
        assert_eq!(finished.code, Some(0), "{finished:?}");
        assert_eq!(run(directory.path(), ["--store", store, "next", "tag-00001"])?.stdout, "11\n");
    }
    Ok(())
}

/// A tag that is in no row of the source, and one whose table has another name since it was ended.
#[test]
fn a_tag_that_never_was_in_the_source_is_not_brought() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    let url = mariadb.database()?;
    let (store, directory) = ("sqlite://ids.sqlite", TempDir::new()?);
    let tickets = format!("{url}?dialect=ticket");
    let made = run(directory.path(), ["--store", &tickets, "tags", "create", "ordr2"])?;
    ensure!(made.code == Some(0), "{made:?}");
    let done = import(&directory, store, &[&tickets, "--tag", "ordr2", "--names-as-written"])?;
    assert_eq!(done.code, Some(0), "{done:?}");
    let finished = import(&directory, store, &[&tickets, "--tag", "ordr2", "--at", "500", "--names-as-written"])?;
    assert!(finished.code == Some(0) && finished.stdout.contains("500"), "{finished:?}");
    let old = run(directory.path(), ["--store", "sqlite://old.sqlite", "tags", "create", "other"])?;
    ensure!(old.code == Some(0), "{old:?}");
    for from in [tickets.as_str(), "sqlite://old.sqlite"] {
        let refused = import(&directory, store, &[from, "--tag", "ordr", "--at", "500", "--names-as-written"])?;
        assert!(refused.code == Some(1) && refused.stderr.contains("\"ordr\" is not in the source"), "{refused:?}");
    }
    let listed = run(directory.path(), ["--store", store, "tags", "show", "ordr"])?;
    assert_eq!(listed.code, Some(1), "{listed:?}");
    Ok(())
}

/// A client makes a sub-key when the import has listed the tags, and not ended this one yet.
#[test]
fn a_sub_key_that_is_made_during_an_import_is_brought() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    // Many tags are brought together.
    for tags in [2, 25] {
        let (url, directory) = (mariadb.database()?, TempDir::new()?);
        let next = |store: &str, sub: &str| {
            let ran = run(directory.path(), ["--store", store, "next", "tag-01", "--sub", sub, "-n", "9"])?;
            anyhow::Ok(ran.stdout.lines().map(str::parse).collect::<Result<Vec<u64>, _>>()?)
        };
        assert_eq!(next(&url, "early")?.len(), 9);
        for tag in 2..=tags {
            let made = run(directory.path(), ["--store", &url, "tags", "create", &format!("tag-{tag:02}")])?;
            ensure!(made.code == Some(0), "{made:?}");
        }
        let (proxy, store) = (Proxy::start(mariadb.port())?, "sqlite://ids.sqlite");
        let from = format!("{}?request-timeout-ms=60000", proxy.url(&url));
        // The row of a tag that is about to end.
        proxy.stall_at("FROM unalike_tag WHERE tag = ? FOR UPDATE");
        let (done, granted) = thread::scope(|scope| {
            let importing = scope.spawn(|| import(&directory, store, &[&from]));
            let deadline = Instant::now() + PATIENCE;
            while !proxy.is_stalled() {
                ensure!(!importing.is_finished() && Instant::now() < deadline, "it is paused");
                thread::sleep(Duration::from_millis(2));
            }
            let granted = next(&url, "late");
            proxy.stall(false);
            Ok((importing.join().unwrap()?, granted?))
        })?;
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_eq!(granted.len(), 9);
        let (there, here) = (next(&url, "late")?, next(store, "late")?);
        assert_eq!((there.len(), here.len()), (0, 9), "{tags} tags: it ended there, and goes on here");
        assert!(here.iter().all(|number| !granted.contains(number)), "{tags} tags: {granted:?} {here:?}");
    }
    Ok(())
}

/// Two stores that import each other's tags: the second import would end the tag in both.
#[test]
fn a_tag_is_not_brought_back_to_where_it_ended() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    let (old, new) = ("sqlite://old.sqlite", "sqlite://new.sqlite");
    let next = |store: &str, more: &[&str]| {
        run(directory.path(), [&["--store", store, "next", "order", "-n", "3"], more].concat())
    };
    ensure!(next(old, &[])?.code == Some(0) && next(old, &["--sub", "shop"])?.code == Some(0));
    assert_eq!(import(&directory, new, &[old])?.code, Some(0));
    let back = import(&directory, old, &[new])?;
    assert!(back.code == Some(1) && back.stderr.contains("was ended in the store that it is to come to"), "{back:?}");
    assert!(back.stderr.contains("nothing was changed"), "{back:?}");
    // Nor is anything to be raised where it ended, or to be counted otherwise.
    let raised = run(directory.path(), ["--store", old, "tags", "raise", "order", "5"])?;
    assert!(raised.code == Some(0) && raised.stderr.contains("moved or ended"), "{raised:?}");
    let bound = "[tags.order]\ntemplate = \"{yyyyMMdd}-{id:06}\"\nrestart = \"day\"\n";
    std::fs::write(directory.path().join("unalike.toml"), bound)?;
    let ended = next(old, &[])?;
    assert!(ended.code == Some(1) && ended.stderr.contains("moved or ended"), "{ended:?}");
    assert!(!ended.stderr.contains("allow greater"), "{ended:?}");
    std::fs::remove_file(directory.path().join("unalike.toml"))?;
    let further = next(new, &[])?;
    assert_eq!(further.stdout, "4\n5\n6\n", "{further:?}");
    // What nobody has asked for yet begins in the new store alone, where it was ended.
    for sub in ["shop", "bank"] {
        let ended = next(old, &["--sub", sub])?;
        assert!(ended.code == Some(1) && ended.stdout.is_empty(), "{ended:?}");
    }
    let begun = next(new, &["--sub", "bank"])?;
    // Where its tag began there.
    assert_eq!(begun.stdout, "4\n5\n6\n", "{begun:?}");
    Ok(())
}
