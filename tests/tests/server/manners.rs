//! How the command line and the service speak: what is said, about which value, and what to do.

#![expect(clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use unalike::storage::{SegmentStore as _, StoreError, sub_tag};
use unalike_sqlite::{SqliteOptions, SqliteStore};
use unalike_tests::server::{Server, binary, fails, ok, run, run_with};

/// Nothing listens there.
const NOWHERE: &str = "mysql://ids@127.0.0.1:1/ids";

#[test]
fn a_snowflake_s_name_makes_no_sequence_by_a_slip() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    fails(
        at,
        &["next", "default"],
        1,
        &["\"default\" is a snowflake", "--snowflake", "unalike tags create -- 'default'"],
    );
    assert!(std::fs::read_dir(at).unwrap().next().is_none(), "nothing was made");
    ok(at, &["tags", "create", "default"]);
    assert_eq!(ok(at, &["next", "default"]), "1\n");
}

#[test]
fn a_failure_of_a_command_is_told_once() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    ok(at, &["tags", "create", "order"]);
    let next = ["--leases", NOWHERE, "--wait-max-ms", "100", "next", "default", "--snowflake"];
    let ran = fails(at, &next, 1, &["no ids for \"default\"", "127.0.0.1:1"]);
    assert!(ran.stderr.starts_with("unalike: ") && ran.stderr.lines().count() == 1, "{}", ran.stderr);
    let ran = fails(at, &[&["--log", "warn"], &next[..]].concat(), 1, &["no lease was granted"]);
    assert!(ran.stderr.lines().count() > 1, "{}", ran.stderr);
}

#[test]
fn a_store_that_is_down_is_told_by_its_kind_and_not_by_its_place() -> anyhow::Result<()> {
    let server = Server::start_with(["--leases", NOWHERE, "--wait-max-ms", "100"])?;
    let client = server.client();
    let told = |path: &str| -> anyhow::Result<String> {
        let answer = client.get(path)?;
        assert_eq!((answer.status, answer.problem()?.as_str()), (503, "store-unavailable"), "{answer:?}");
        assert!(!answer.body.contains("127.0.0.1") && !answer.body.contains("unalike.sqlite"), "{answer:?}");
        Ok(answer.json()?["detail"].as_str().unwrap_or_default().to_owned())
    };
    for _ in 0..2 {
        let leases = told("/v1/snowflakes/default/ids")?;
        assert!(leases.starts_with("the lease store (MySQL) refuses connections"), "{leases}");
        assert!(leases.contains("try again") && leases.contains("the server's log"), "{leases}");
    }
    let _lock = server.lock_store()?;
    let sequences = told("/v1/sequences/new/ids")?;
    assert!(sequences.starts_with("the store (SQLite) "), "{sequences}");
    Ok(())
}

#[test]
fn what_a_token_lacks_is_named() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    let tokens = "[[tokens]]\nname = \"chat\"\ntoken = \"0123456789abcdef\"\nscope = \"read\"\ntags = [\"chat\"]\n";
    std::fs::write(directory.path().join("tokens.toml"), tokens)?;
    let server = Server::start_in(directory, ["--tokens", "tokens.toml"].map(str::to_owned).to_vec())?;
    let [nobody, chat] = [server.client(), server.client().with_token("0123456789abcdef")];
    let raise = json!({ "raise_to": "5" });
    for (answer, status, detail) in [
        (
            nobody.get("/v1/sequences/chat/ids")?,
            401,
            "this needs a token with the scope read: send the header Authorization: Bearer TOKEN",
        ),
        (
            nobody.send_json("PATCH", "/v1/tags/chat", &raise)?,
            401,
            "this needs a token with the scope admin: send the header Authorization: Bearer TOKEN",
        ),
        (
            chat.send_json("PATCH", "/v1/tags/chat", &raise)?,
            403,
            "this needs the scope admin, and the token has the scope read",
        ),
        (
            chat.get("/v1/snowflakes/default/ids")?,
            403,
            "the token is not valid for \"default\": it has other tags and snowflakes",
        ),
        (chat.get("/v1/tags")?, 403, "the token is valid for some tags only, and this concerns all of them"),
    ] {
        assert_eq!((answer.status, &answer.json()?["detail"]), (status, &json!(detail)), "{answer:?}");
    }
    Ok(())
}

#[test]
fn ids_are_not_read_under_a_tag_that_does_not_exist() -> anyhow::Result<()> {
    let server = Server::start()?;
    let at = server.directory();
    let client = server.client();
    let answer = client.get("/v1/decode/1?tag=ordre")?;
    assert_eq!((answer.status, answer.problem()?.as_str()), (404, "tag-unknown"), "{answer:?}");
    assert_eq!(answer.json()?["tag"], json!("ordre"));
    fails(at, &["decode", "1", "--tag", "ordre"], 1, &["the tag \"ordre\" is unknown"]);
    assert_eq!(client.get("/v1/sequences/order/ids")?.ids()?, [1]);
    assert_eq!(client.get("/v1/decode/1?tag=order")?.json()?["id"], json!("1"));
    assert_eq!(ok(at, &["decode", "1", "--tag", "order"]), "id          1\nnumber      1\n");
    // Where nobody knows, the text is read.
    let lock = server.lock_store()?;
    let elsewhere = TempDir::new()?;
    ok(elsewhere.path(), &["decode", "1", "--tag", "ordre"]);
    assert_eq!(std::fs::read_dir(elsewhere.path())?.count(), 0, "no store was made");
    drop(lock);
    Ok(())
}

#[test]
fn colours_are_for_terminals_whose_users_want_them() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    let command = format!("{} next order", binary()?.display());
    let on_a_terminal = |no_color: &str| -> anyhow::Result<String> {
        // A variable that nobody knows is worth a warning.
        let output = Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .current_dir(&directory)
            .env("NO_COLOR", no_color)
            .env("UNALIKE_NOBODYS", "1")
            .output()?;
        let said = String::from_utf8(output.stdout)?;
        assert!(said.contains("WARN") && said.contains("UNALIKE_NOBODYS"), "{said}");
        Ok(said)
    };
    // Empty counts as not set.
    assert!(on_a_terminal("")?.contains("\u{1b}[33m"), "a warning is yellow");
    assert!(!on_a_terminal("1")?.contains('\u{1b}'), "no colours");
    Ok(())
}

#[test]
fn variables_that_nothing_reads_are_named() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    let said = |variable: &str| -> anyhow::Result<String> {
        let ran = run_with(directory.path(), ["next", "order"], &[(variable, "1")])?;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        Ok(ran.stderr)
    };
    let slip = said("UNALIKE_LISEN")?;
    assert!(slip.contains("UNALIKE_LISEN is unknown") && slip.contains("did you mean UNALIKE_LISTEN?"), "{slip}");
    assert!(said("UNALIKE_COLOUR")?.contains("UNALIKE_COLOUR is unknown"));
    // Kubernetes sets these in every pod beside a service of this name.
    for of_others in ["UNALIKE_PORT", "UNALIKE_PORT_8080_TCP_ADDR", "UNALIKE_SERVICE_HOST", "OTHER_LISEN"] {
        assert_eq!(said(of_others)?, "", "{of_others}");
    }
    let checked = run_with(directory.path(), ["config", "check"], &[("UNALIKE_LISEN", "1")])?;
    assert!(checked.stderr.contains("UNALIKE_LISEN is unknown"), "{checked:?}");
    Ok(())
}

#[test]
fn errors_have_times_for_people() {
    let (tag, namespace) = ("order".to_owned(), "default".to_owned());
    let (at_ms, at) = (1_767_225_600_250, "2026-01-01T00:00:00.250Z");
    for error in [
        StoreError::ClockBehind { tag: tag.clone(), clock_ms: at_ms, next_ms: at_ms + 5, retry_after_ms: 5 },
        StoreError::TimestampsEnded { tag, ended_ms: at_ms },
        StoreError::WorkersExhausted { namespace: namespace.clone(), workers: 4, free_at_ms: at_ms },
        StoreError::Quarantined { namespace, until_ms: at_ms },
        StoreError::ClockSkew { holder_ms: at_ms, store_ms: at_ms + 20_000, max_skew_ms: 10_000 },
    ] {
        let said = error.to_string();
        assert!(said.contains(at) && !said.contains("176722"), "{said}");
    }
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    std::fs::write(at.join("late.toml"), "[snowflakes.late]\nlayout = \"41/10/12 epoch 2090-01-01\"\n").unwrap();
    let ran = fails(at, &["--config", "late.toml", "next", "late", "--snowflake"], 1, &["2090-01-01T00:00:00.001Z"]);
    assert!(!ran.stderr.contains("Unix ms"), "{}", ran.stderr);
}

#[test]
fn names_of_sub_keys_stand_apart() -> anyhow::Result<()> {
    let name = sub_tag("chat", "user_1")?;
    let said = StoreError::exhausted(&name).to_string();
    assert!(said.contains("the tag \"chat\" (sub-key \"user_1\") is exhausted: it was moved or ended"), "{said}");
    let directory = TempDir::new()?;
    let at = directory.path();
    ok(at, &["tags", "create", "chat"]);
    let ran = fails(at, &["tags", "show", "chat", "--sub", "user_1"], 1, &["\"chat\" has no sub-key \"user_1\""]);
    assert!(!ran.stderr.contains("1f}"), "{}", ran.stderr);
    let server = Server::start()?;
    assert_eq!(server.client().send_json("POST", "/v1/tags", &json!({ "tag": "chat" }))?.status, 201);
    let problem = server.get("/v1/tags/chat?sub=user_1")?.json()?;
    assert_eq!((&problem["tag"], &problem["sub"]), (&json!("chat"), &json!("user_1")), "{problem}");
    Ok(())
}

#[test]
fn an_unknown_tag_is_said_to_be_unknown_and_no_more() {
    let directory = TempDir::new().unwrap();
    ok(directory.path(), &["tags", "create", "other"]);
    let ran = fails(directory.path(), &["tags", "show", "nosuch"], 1, &["\"nosuch\" is unknown", "tags create"]);
    assert!(!ran.stderr.contains("are not created"), "{}", ran.stderr);
}

#[test]
fn a_raise_that_changes_nothing_says_so() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    ok(at, &["tags", "create", "order", "--start", "1000"]);
    let raised = |next: &str| run(at, ["tags", "raise", "order", next]).unwrap();
    let ran = raised("5000");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let ran = raised("5000");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "it goes on there: {ran:?}");
    let ran = raised("4000");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for word in ["nothing changed", "\"order\"", "up to 4999", "4000"] {
        assert!(ran.stderr.contains(word), "{ran:?}");
    }
    assert!(ran.stdout.contains(" 4999 "), "{ran:?}");
}

#[test]
fn a_change_that_changes_nothing_says_so() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    let at = directory.path();
    ok(at, &["tags", "create", "order", "--start", "1000"]);
    let change = ["tags", "change", "order", "--step", "500"];
    assert_eq!(run(at, change)?.stderr, "");
    let again = run(at, change)?;
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.stderr.contains("nothing changed") && again.stderr.contains("\"order\""), "{again:?}");

    let server = Server::start()?;
    let client = server.client();
    assert_eq!(client.send_json("POST", "/v1/tags", &json!({ "tag": "order", "start": "1000" }))?.status, 201);
    let step = json!({ "step": { "policy": "fixed", "step": "500" } });
    for (body, named) in [
        (json!({ "raise_to": "5000" }), None),
        (json!({ "raise_to": "5000" }), Some("4999")),
        (json!({ "raise_to": "4000" }), Some("4999")),
        (step.clone(), None),
        (step, Some("step")),
        (json!({}), Some("step")),
        (json!({ "raise_to": "4000", "refill": { "policy": "share-consumed", "percent": 20 } }), None),
    ] {
        let answer = client.send_json("PATCH", "/v1/tags/order", &body)?;
        assert_eq!(answer.status, 200, "{body}: {answer:?}");
        let answer = answer.json()?;
        let said = answer["unchanged"].as_str();
        match named {
            None => assert_eq!(said, None, "{body}"),
            Some(word) => {
                let said = said.unwrap_or_default();
                assert!(said.contains("nothing changed") && said.contains(word), "{body}: {answer}");
            }
        }
    }
    assert_eq!(server.log()?.matches("a tag was changed").count(), 3, "{}", server.log()?);
    Ok(())
}

#[test]
fn an_ended_tag_is_told_as_one() -> anyhow::Result<()> {
    let server = Server::start_with(["--drop-in", "cosid,tinyid"])?;
    let client = server.client();
    assert_eq!(client.send_json("POST", "/v1/tags", &json!({ "tag": "order" }))?.status, 201);
    tokio::runtime::Runtime::new()?.block_on(async {
        let store = SqliteStore::connect(SqliteOptions::new(server.directory().join("unalike.sqlite"))).await?;
        store.retire_tag("order").await
    })?;
    for path in ["/v1/sequences/order/ids", "/ids/order", "/tinyid/id/nextId?bizType=order"] {
        let answer = client.get(path)?;
        assert!(answer.body.contains("moved or ended"), "{path}: {answer:?}");
    }
    Ok(())
}

#[test]
fn numbers_out_of_range_are_told_the_range() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    for (arguments, named) in [
        (&["tags", "raise", "order", "-5"][..], &["'-5'", "from 1 to 2^63 - 1"][..]),
        (&["tags", "create", "order", "--start", "-5"], &["'-5'", "from 1 to 2^63 - 1"]),
        (&["next", "order", "-n", "-5"], &["'-5'", "--count", "a whole number from 1"]),
        (&["next", "order", "-n", "5.5"], &["'5.5'", "a whole number from 1"]),
        (&["next", "order", "--shard-key", "-1"], &["'-1'", "from 0 to 2^64 - 1"]),
        (&["tags", "create", "order", "--step", "-1"], &["-1", "neither a number nor adaptive"]),
        (&["tags", "create", "order", "--step", "0"], &["the step is 0, it must be 1 to 2^63 - 1"]),
        (&["tags", "create", "order", "--step", "adaptive:1000..10"], &["MIN is 1000", "must not be above MAX"]),
        (&["tags", "change", "order", "--refill", "200%"], &["the share is 200%, it must be 0% to 100%"]),
        (&["tags", "change", "order", "--start", "5"], &["the start of a tag never changes", "unalike tags raise"]),
        (&["tags", "change", "order"], &["--step", "--refill"]),
        (&["tags", "list", "--limit", "0"], &["'0'", "a whole number from 1"]),
        (&["leases", "release", "default", "abc"], &["<WORKER>", "`unalike leases list` shows under WORKER"]),
        (&["bench", "--connections", "-1"], &["-1", "1 to 50000"]),
        (&["bench", "--connections", "0"], &["1 to 50000", "Usage: unalike bench "]),
    ] {
        let ran = fails(at, arguments, 2, named);
        assert!(!ran.stderr.contains("unexpected argument"), "{}", ran.stderr);
    }
    fails(at, &["decode", "-5"], 1, &["\"-5\"", "from 1 to"]);
}

#[test]
fn the_last_ids_are_counted_and_not_lost() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    let at = directory.path();
    std::fs::write(at.join("small.toml"), "[tags.small]\nbits = 3\n[tags.served]\nbits = 3\n")?;
    let with = |more: &[&'static str]| [&["--config", "small.toml"], more].concat();
    assert_eq!(ok(at, &with(&["next", "small"])), "1\n");
    let ran = run(at, with(&["next", "small", "-n", "10"]))?;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), "2\n3\n4\n5\n6\n7\n"), "{ran:?}");
    for word in ["\"small\" is exhausted", "6 ids", "10 were asked"] {
        assert!(ran.stderr.contains(word), "{word:?}: {ran:?}");
    }
    let path = at.join("small.toml").to_str().unwrap().to_owned();
    let server = Server::start_in(Arc::new(TempDir::new()?), vec!["--config".into(), path])?;
    assert_eq!(server.get("/v1/sequences/served/ids")?.ids()?, [1]);
    let problem = server.get("/v1/sequences/served/ids?count=10")?.json()?;
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("only 6 ids of \"served\" are left up to 7"), "{detail}");
    assert_eq!(server.get("/v1/sequences/served/ids?count=6")?.ids()?, [2, 3, 4, 5, 6, 7]);
    let problem = server.get("/v1/sequences/served/ids")?.json()?;
    assert!(problem["detail"].as_str().unwrap().contains("is exhausted: no number is left up to 7"), "{problem}");
    Ok(())
}

#[test]
fn a_bad_body_is_told_in_words_of_the_service() -> anyhow::Result<()> {
    let server = Server::start()?;
    let client = server.client();
    for (method, path, body, named) in [
        ("POST", "/v1/tags", json!({ "tag": "t", "step": 5 }), &["step", "an object with a policy"][..]),
        ("POST", "/v1/tags", json!({ "tag": "t", "refill": 5 }), &["refill", "an object with a policy"]),
        ("POST", "/v1/tags", json!({ "tag": "t", "step": { "policy": "leaf" } }), &["step", "leaf", "fixed"]),
        ("POST", "/v1/tags", json!({ "tag": "t", "mode": 5 }), &["mode"]),
        ("POST", "/v1/tags", json!({ "tag": "t", "channel": 5 }), &["channel"]),
        ("POST", "/v1/tags", json!({ "tag": 5 }), &["tag", "a string"]),
        ("POST", "/v1/tags", json!({ "tagg": "t" }), &["tagg", "unknown field"]),
        ("POST", "/v1/tags", json!(5), &["an object such as {\"tag\":\"order\"}"]),
        ("PATCH", "/v1/tags/t", json!(5), &["an object with step, refill or raise_to"]),
        ("PATCH", "/v1/tags/t", json!({ "raise_to": true }), &["raise_to", "a whole number from 0 to 2^64 - 1"]),
    ] {
        let answer = client.send_json(method, path, &body)?;
        let problem = answer.json()?;
        assert_eq!(
            (answer.status, &problem["type"]),
            (400, &Value::from("urn:unalike:problem:body-invalid")),
            "{body}"
        );
        let detail = problem["detail"].as_str().unwrap();
        for word in named {
            assert!(detail.contains(word), "{body} does not say {word:?}: {detail}");
        }
        for of_the_program in ["Json", "TagCreate", "TagChange", "struct ", "enum ", "target type", "map"] {
            assert!(!detail.contains(of_the_program), "{body}: {detail}");
        }
    }
    let answer = client.send("POST", "/v1/sequences/order/ids?count=2", "application/json", "null")?;
    assert_eq!(answer.ids()?, [1, 2], "null is what is not given");
    let answer = client.send("POST", "/v1/tags", "application/json", "{")?;
    assert!(answer.json()?["detail"].as_str().unwrap().starts_with("the body is not JSON: "), "{answer:?}");
    let answer = client.send("POST", "/v1/tags", "text/plain", "{}")?;
    assert!(answer.json()?["detail"].as_str().unwrap().contains("Content-Type: application/json"), "{answer:?}");
    Ok(())
}

#[test]
fn a_bench_takes_seconds_and_says_that_its_tag_stays() -> anyhow::Result<()> {
    let server = Server::start()?;
    let at = server.directory();
    let report = ok(at, &["bench", server.url(), "--duration", "1", "--connections", "1", "--json"]);
    assert!(serde_json::from_str::<Value>(&report)?["requests"].as_u64() > Some(0), "{report}");
    for (time, word) in
        [("0", "more than nothing"), ("-3", "negative"), ("soon", "it must be seconds, or a time such as")]
    {
        fails(at, &["bench", server.url(), "--duration", time], 2, &["--duration", word]);
    }
    // Whoever reads only its first lines is no failure.
    let line = ["bench", server.url(), "--duration", "1", "--connections", "1"];
    let mut unread = Command::new(binary()?).args(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    drop(unread.stdout.take());
    let ended = unread.wait_with_output()?;
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
    let help = ok(at, &["bench", "--help"]);
    assert!(help.contains("the tag \"bench\", which stays"), "{help}");
    Ok(())
}

#[test]
fn config_check_refuses_what_the_server_does_not_start_with_in_the_same_words() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    std::fs::create_dir(at.join("folder")).unwrap();
    std::fs::write(at.join("file"), "").unwrap();
    for (text, named) in [
        ("[snowflakes.old]\nlayout = \"baidu\"", &["\"old\"", "2024-11-20T13:24:16.000Z", "unalike layouts"][..]),
        ("store = \"sqlite://missing/ids.sqlite\"", &["sqlite://missing/ids.sqlite", "missing", "does not exist"]),
        ("store = \"sqlite://folder\"", &["folder is a directory"]),
        ("leases = \"sqlite://missing/leases.sqlite\"", &["missing", "does not exist"]),
        ("local_leases = \"file/leases\"", &["file/leases", "file is not a directory", "--local-leases"]),
        ("[tags.\" chat\"]\nchannel = \"slow-ordered\"", &["\" chat\"", "a space at an end"]),
        ("[tags.redis-leases]\nchannel = \"slow-ordered\"", &["\"redis-leases\"", "use another"]),
        ("tags_max = 0", &["tags_max is 0", "1 at least", "create_tags = false"]),
        ("[tags.\" chat\"]\nbuff_size = 10", &["\" chat\""]),
        ("[tags.\" chat\"]\ntemplate = \"C-{id:010}\"", &["\" chat\"", "a space at an end"]),
        ("listen = \"8080\"", &["\"8080\"", "HOST:PORT", "127.0.0.1:8080"]),
        ("listen = \"0.0.0.0:0\"", &["0.0.0.0:0", "--tokens", "--insecure-no-auth"]),
        ("tokens = \"missing.toml\"", &["missing.toml"]),
        ("log = \"inof\"", &["\"inof\"", "did you mean info?"]),
        ("log = \"info,unalike\"", &["\"unalike\"", "warn,unalike=debug"]),
        ("store = \"mongodb://db/ids\"", &["the setting store", "\"mongodb\" is unknown"]),
        ("store = \"mysql://ids@db/ids?dialect=leef\"", &["dialect is \"leef\"", "leaf, tinyid"]),
        ("wait_max_ms = \"5\"", &["wait_max_ms", "string \"5\"", "a whole number from 1 to 600000, without quotes"]),
        ("count_max = -1", &["count_max", "number `-1`", "a whole number from 1 to 1000000, without quotes"]),
        ("create_tags = 1", &["create_tags", "true or false"]),
        ("tokens = 5", &["tokens", "a text in quotes"]),
        ("[keys.1]\nsecret_file = \"missing\"\n[tags.a]\nkeys = [1]\nbits = 40", &["missing"]),
        ("[snowflakes.web]\nlayout = \"twiter\"", &["\"twiter\"", "did you mean twitter?"]),
        (
            "[snowflakes.late]\nlayout = \"41/10/12 epoch 2090-01-01\"",
            &["\"late\" gives no ids before 2090-01-01T00:00:00.001Z", "an earlier epoch"],
        ),
        ("leases = \"zookeeper://zk/u?leaf-path=/x\"", &["--leases", "leaf-path goes with leaf= or leaf-stopped="]),
        ("store = \"mysql://db/ids\"", &["names no user", "mysql://USER@HOST/DATABASE"]),
        ("store = \"http://ids.example\"", &["\"http://ids.example\"", "for programs only"]),
        ("drop_in = [\"cosld\"]", &["\"cosld\" is unknown: did you mean cosid?", "leaf, tinyid, cosid"]),
        ("log_format = \"xml\"", &["log_format: \"xml\" is unknown: it is one of text, json"]),
        ("allowed_origins = \"https://app.example\"", &["must be a list: [\"https://app.example\"]"]),
        ("listen = 127.0.0.1:9100", &["at line 1", "a text is in quotes"]),
        ("[tags.order]\nbits = 40\n\n[tags.order]\nbits = 41", &["at line 4", "[tags.order] is there twice"]),
        ("[layouts]\nours = \"41/10/12 epoch 2024\"", &["\"ours\"", "2024-01-01T00:00:00Z for the year"]),
    ] {
        std::fs::write(at.join("unalike.toml"), text).unwrap();
        let ran = fails(at, &["config", "check", "unalike.toml"], 1, named);
        assert_eq!(ran.stdout, "", "{text}");
        assert_eq!(ran.stderr.matches("refused").count(), 0, "{ran:?}");
        // The others go on where one layout has ended.
        if !text.contains("baidu") {
            let served = fails(at, &["--config", "unalike.toml"], 1, &[]);
            assert_eq!(served.stderr, ran.stderr, "{text}");
        }
    }
    assert!(!at.join("unalike.sqlite").exists() && !at.join("new").exists());
    // Nothing is made, and what can be made is good.
    std::fs::write(at.join("unalike.toml"), "store = \"sqlite://folder/ids.sqlite\"\nlocal_leases = \"new/leases\"")
        .unwrap();
    assert!(ok(at, &["config", "check", "unalike.toml"]).contains("# The configuration is valid"));
    assert_eq!(std::fs::read_dir(at.join("folder")).unwrap().count(), 0);
    assert!(!at.join("new").exists());
}

#[test]
fn a_bad_value_is_told_by_the_place_that_it_comes_from() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    for (variable, value, named) in [
        (
            "UNALIKE_WAIT_MAX_MS",
            "soon",
            "the value \"soon\" of the variable UNALIKE_WAIT_MAX_MS is not valid: it must be a whole",
        ),
        (
            "UNALIKE_COUNT_MAX",
            "-1",
            "the value \"-1\" of the variable UNALIKE_COUNT_MAX is not valid: it must be a whole number",
        ),
        (
            "UNALIKE_CREATE_TAGS",
            "yes",
            "\"yes\" of the variable UNALIKE_CREATE_TAGS is not valid: it must be true or false",
        ),
        (
            "UNALIKE_LOG_FORMAT",
            "xml",
            "\"xml\" of the variable UNALIKE_LOG_FORMAT is not valid: it must be text or json",
        ),
        (
            "UNALIKE_UNSAFE_STATIC_WORKER",
            "yes",
            "\"yes\" of the variable UNALIKE_UNSAFE_STATIC_WORKER is not valid: it must be true or false",
        ),
    ] {
        let ran = run_with(at, ["serve"], &[(variable, value)]).unwrap();
        assert!(ran.code == Some(2) && ran.stderr.contains(named), "{variable}: {ran:?}");
    }
    fails(at, &["--wait-max-ms", "soon"], 2, &["\"soon\" of --wait-max-ms <MS>", "a whole number"]);
}

#[test]
fn help_has_the_flags_of_a_command_before_those_of_all() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    for arguments in [&["tags", "import", "--help"][..], &["--help"], &["serve", "--help"]] {
        let help = ok(at, arguments);
        let position = |words: &str| help.find(words).unwrap_or_else(|| panic!("no {words:?} in {help}"));
        for (heading, flag) in [
            ("\nStore:\n", "--store <URL>"),
            ("\nLeases:\n", "--lease-skew-max-ms <MS>"),
            ("\nLimits:\n", "--wait-max-ms <MS>"),
            ("\nLogging:\n", "--log-format <FORMAT>"),
        ] {
            assert!(position(heading) < position(flag), "{heading:?} {flag}: {help}");
        }
    }
    let import = ok(at, &["tags", "import", "--help"]);
    assert!(import.find("--source-stopped").unwrap() < import.find("\nStore:\n").unwrap(), "{import}");
    let serve = ok(at, &["serve", "--help"]);
    assert!(serve.find("\nHTTP:\n").unwrap() < serve.find("--tokens <FILE>").unwrap(), "{serve}");
}

#[test]
fn so_many_ids_are_not_used_up_by_a_slip() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    fails(at, &["next", "order", "-n", "99999999999"], 1, &["-n 99999999999", "more than 1000000", "--yes"]);
    assert!(!at.join("unalike.sqlite").exists());
    assert_eq!(ok(at, &["next", "order", "-n", "1000000"]).lines().count(), 1_000_000);
    assert_eq!(ok(at, &["next", "order", "-n", "1000001", "--yes"]).lines().count(), 1_000_001);
}

#[test]
fn a_year_is_no_number_of_milliseconds() {
    let directory = TempDir::new().unwrap();
    let show = |epoch: &str| format!("41/10/12 epoch {epoch}");
    for epoch in ["1", "2024", "9999"] {
        let named = ["ms after 1970", "0 for 1970", "1970-01-01T00:00:0"];
        fails(directory.path(), &["layouts", "show", &show(epoch)], 1, &named);
    }
    for epoch in ["0", "10000", "1970-01-01T00:00:02.024Z", "2024-01-01T00:00:00Z"] {
        ok(directory.path(), &["layouts", "show", &show(epoch)]);
    }
    fails(directory.path(), &["layouts", "show", "41/10/12"], 1, &["cannot be read", "the epoch is missing"]);
    // One that is yet to come is said.
    let said = |epoch: &str| ok(directory.path(), &["layouts", "show", &show(epoch)]);
    assert!(said("2090-01-01").contains("no id is issued before 2090-01-01T00:00:00.001Z"), "{}", said("2090-01-01"));
    assert!(!said("2024-01-01").contains("no id is issued"), "{}", said("2024-01-01"));
}

#[test]
fn a_spread_is_told_the_bits_of_its_layout() {
    let directory = TempDir::new().unwrap();
    let show = ["layouts", "show", "twitter", "--spread", "rotating:13"];
    fails(directory.path(), &show, 1, &["rotating:13: BITS must be 1 to 12 for this layout"]);
}

#[test]
fn a_text_of_no_layout_is_told_its_number() {
    let directory = TempDir::new().unwrap();
    let said = ok(directory.path(), &["decode", "000000000YGJ0"]);
    for once in ["As base32 it is the number 1000000.", "As base36 it is the number 1607724."] {
        assert_eq!(said.matches(once).count(), 1, "{said}");
    }
    let long = format!("{}0", "0".repeat(34));
    let cut = format!("\"{}..\"", "0".repeat(32));
    fails(directory.path(), &["decode", &long, "--format", "uuid"], 1, &[&cut, "35 bytes", "has 36 characters"]);
    fails(directory.path(), &["decode", "1", "--format", "base62"], 1, &["1 bytes", "in base62 has 11 characters"]);
}

#[test]
fn two_configuration_files_are_one_too_many() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    for name in ["a.toml", "b.toml"] {
        std::fs::write(at.join(name), "").unwrap();
    }
    fails(at, &["--config", "a.toml", "config", "check", "b.toml"], 1, &["a.toml", "b.toml", "name one"]);
    // A variable is there for all commands.
    let ran = run_with(at, ["config", "check", "b.toml"], &[("UNALIKE_CONFIG", "a.toml")]).unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn nothing_leased_is_told_apart_from_a_slip_in_a_name() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    ok(at, &["next", "default", "--snowflake"]);
    let ran = run(at, ["leases", "list", "defualt"]).unwrap();
    assert!(ran.code == Some(0) && ran.stderr.contains("nothing was leased under \"defualt\""), "{ran:?}");
    assert_eq!(run(at, ["leases", "list", "default"]).unwrap().stderr, "");
}

#[test]
fn an_address_in_use_is_told_with_its_cause_first() -> anyhow::Result<()> {
    let server = Server::start()?;
    let listen = server.url().trim_start_matches("http://");
    let directory = TempDir::new()?;
    let ran = fails(directory.path(), &["--listen", listen], 1, &["in use"]);
    assert!(ran.stderr.trim_end().ends_with(": choose another address with --listen"), "{ran:?}");
    Ok(())
}

#[test]
fn slips_in_a_request_are_named() -> anyhow::Result<()> {
    let server = Server::start()?;
    let client = server.client();
    let order = "/v1/sequences/order/ids";
    for (method, path, status, named) in [
        ("GET", format!("{order}?count=3&count=4"), 400, "\"count\" is given twice"),
        ("GET", format!("{order}?cuont=3"), 400, "\"cuont\" is unknown; this route knows count"),
        ("GET", "/v1/decode/1?tag=order&layout=leaf".to_owned(), 400, "\"layout\" does not go with the others"),
        ("GET", "/health".to_owned(), 404, "did you mean /health/live?"),
        ("GET", format!("{order}/"), 404, "did you mean /v1/sequences/{tag}/ids?"),
        ("GET", "/v1/sequence/order".to_owned(), 404, "did you mean /v1/sequences/{tag}/ids?"),
        ("GET", "/v1/sequence/order/ids".to_owned(), 404, "did you mean /v1/sequences/{tag}/ids?"),
        ("GET", "/v1/sequences/order".to_owned(), 404, "did you mean /v1/sequences/{tag}/ids?"),
        ("GET", "/api/segment/get/x".to_owned(), 404, "--drop-in leaf"),
        ("GET", "/nothing/like/it".to_owned(), 404, "no route has this path: ids are under"),
        ("DELETE", "/v1/tags/order".to_owned(), 405, "does not know the method DELETE: use GET"),
        (
            "GET",
            format!("/v1/sequences/{}/ids", "x".repeat(129)),
            400,
            "begins so and has 129 bytes, and a name has 1 to 128",
        ),
        ("GET", "/v1/sequences/%20order/ids".to_owned(), 400, "is not valid: its name has a space at an end"),
    ] {
        let answer = client.send(method, &path, "application/json", "")?;
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        assert!(answer.json()?["detail"].as_str().unwrap_or_default().contains(named), "{path}: {answer:?}");
    }
    assert_eq!(client.get(order)?.status, 200);
    let answer = client.get("/v1/decode/ORD-1?tag=order")?;
    assert!(answer.status == 400 && answer.body.contains("has no format of this tag"), "{answer:?}");
    Ok(())
}
