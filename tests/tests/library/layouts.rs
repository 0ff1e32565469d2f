//! Layouts as users meet them: ids taken apart and guessed, ranges of ids, layouts written out and in the
//! configuration.

#![expect(clippy::unwrap_used, clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use anyhow::Context;
use serde_json::{Value, json};
use tempfile::TempDir;
use unalike_tests::leases::now_ms;
use unalike_tests::server::{Answer, Server, fails, ok};

/// The sample of Leaf's documentation: 2019-09-06T01:35:00.834Z, worker 39, sequence 3448.
const LEAF: &str = "1169786042799259000";

/// The row of a table that begins with this word.
#[track_caller]
fn row<'a>(table: &'a str, name: &str) -> &'a str {
    let found = table.lines().find(|line| line.split_whitespace().next() == Some(name));
    found.unwrap_or_else(|| panic!("no {name} in {table}"))
}

#[track_caller]
fn says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in {text}");
    }
}

/// A directory with a configuration file, and the flags that name it.
fn configured(text: &str) -> anyhow::Result<(Arc<TempDir>, Vec<String>)> {
    let directory = TempDir::new()?;
    let path = directory.path().join("layouts.toml");
    std::fs::write(&path, text)?;
    let path = path.to_str().context("a path of UTF-8")?.to_owned();
    Ok((Arc::new(directory), vec!["--config".to_owned(), path]))
}

#[test]
fn an_id_without_a_layout_is_guessed() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    let table = ok(at, &["decode", LEAF]);
    assert!(table.lines().nth(1).unwrap().starts_with("twitter "), "{table}");
    assert!(!table.contains("weight"), "the order says which is likelier: {table}");
    says(
        row(&table, "leaf"),
        &["2019-09-06T01:35:00.834Z", " 39 ", " 3448 ", "its time lies between the first such ids and now"],
    );
    says(row(&table, "twitter"), &["since 2010-11-04", "datacenter 1", " 7 "]);
    for implausible in ["mastodon", "redis-sharded", "cosid-53", "vesta-min-granularity", "wuid"] {
        assert!(!table.lines().any(|line| line.starts_with(implausible)), "{table}");
    }
    let all = ok(at, &["decode", LEAF, "--all"]);
    says(row(&all, "leaf"), &["its time lies between"]);
    says(row(&all, "mastodon"), &["no: its time is yet to come"]);
    says(row(&all, "redis-sharded"), &["no: there were no such ids before 2012-01-01"]);
    says(row(&all, "cosid-53"), &["no: it has more than 53 bits"]);
    says(row(&all, "vesta-min-granularity"), &["no: its type is 0, which is always 1"]);
    says(row(&all, "wuid"), &["no: any number fits"]);
    says(row(&all, "baidu"), &["2016-05-19 to 2024-11-20"]);
    says(&ok(at, &["decode", "42"]), &["a number of a sequence"]);

    for (text, name, words) in [
        ("01226N0640J7Q", "tsid", &["(base32)", "2020-04-15T20:22:07.665Z", " 4 "][..]),
        ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "ulid", &["2016-07-30T23:54:10.259Z", "by its shape"]),
        ("017F22E2-79B0-7CC3-98C4-DC0C0C07398F", "uuid-v7", &["2022-02-22T19:22:22.000Z"]),
        ("C232AB00-9414-11EC-B3C8-9F6BDECED846", "uuid-v1", &["2022-02-22T19:22:22.000Z", "clock-sequence 13256"]),
        ("919108f7-52d1-4320-9bac-f847db4148a8", "uuid-v4", &["by its shape"]),
        ("919108f752d143209bacf847db4148a8", "uuid-v4", &["by its shape"]),
        ("f17f22e2-79b0-7cc3-98c4-dc0c0c07398f", "uuid-v7", &["by its shape, though its time is yet to come"]),
        ("7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "ulid", &["by its shape, though its time is yet to come"]),
        ("00000000000000000000000000", "ulid", &["by its shape, though its time is before 1970-01-02"]),
        ("20240229120000250-0000042-00007", "cosid-friendly", &["2024-02-29T12:00:00.250Z", " 42 ", " 7 "]),
        ("0U5fyaBm000g007", "cosid-radix62", &["2024-02-29T12:00:00.250Z", " 42 ", " 7 "]),
    ] {
        says(row(&ok(at, &["decode", text]), name), words);
    }
    fails(at, &["decode", "nonsense"], 1, &["\"nonsense\"", "1 to 9223372036854775807", "a ULID or a UUID"]);
    fails(at, &["decode", LEAF, "--layout", "leaf", "--all"], 2, &["--all"]);
    assert!(!at.join("unalike.sqlite").exists(), "no store is needed for it");
}

#[test]
fn ids_of_other_systems_are_taken_apart() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    let vesta = ok(at, &["decode", "3456526092514361344", "--layout", "vesta-document"]);
    says(
        &vesta,
        &[
            "time        2015-05-28T08:05:39.000Z (1432800339000 Unix ms)\n",
            "worker      1022 (machine)\n",
            "method      2\n",
        ],
    );
    let tidb = ok(at, &["decode", "864691128455135243", "--layout", "tidb-auto-random"]);
    assert_eq!(tidb, "shard       3\nsequence    11 (increment)\n");
    let gene = ok(at, &["decode", "8013", "--layout", "idleaf-gene:8"]);
    assert_eq!(gene, "sequence    1001 (id)\ngene        5\n");
    let refused = ["decode", "3456526092514361344", "--layout", "vesta-min-granularity"];
    fails(at, &refused, 1, &["3456526092514361344", "the field type is 0, where it is always 1"]);
    fails(at, &["decode", "8013", "--layout", "idleaf-gene:7"], 1, &["idleaf-gene:7", "unknown"]);
    let bound = ["leases", "init", "web", "--layout", "seata"];
    fails(at, &bound, 1, &["seata", "for reading only"]);
}

#[test]
fn a_layout_is_written_out_where_a_name_could_be() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    let by_name = ok(at, &["decode", LEAF, "--layout", "leaf"]);
    for text in ["41/10/12 epoch 1288834974657 tick 1 ms", "41/10/12 epoch 2010-11-04T01:42:54.657Z"] {
        let decoded = ok(at, &["decode", LEAF, "--layout", text]);
        assert_eq!(decoded, by_name.replace(" (workerId)", "").replace(" (sequenceId)", ""), "{text}");
    }
    for (text, words) in [
        ("41/10/12", &["41/10/12", "the epoch is missing"][..]),
        ("41/10 epoch 0", &["TIME/WORKER/SEQUENCE"]),
        ("42/10/12 epoch 0", &["64 bits", "63 at most"]),
        ("41/10/12 epoch 2024-13-01", &["the epoch cannot be read", "no such day"]),
        ("41/10/12 epoch 0 tick 1 min", &["the tick must be"]),
        ("41/10/12 epoch 0 order worker", &["position 17", "sequence-first"]),
    ] {
        fails(at, &["decode", LEAF, "--layout", text], 1, words);
    }
}

#[test]
fn a_range_has_both_bounds_and_the_sql() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    let expected = "first  2006515713438646272\nlast   2017749737272246271\n\
                    sql    id BETWEEN 2006515713438646272 AND 2017749737272246271\n";
    for (from, to) in [("2026-01-01", "2026-02-01"), ("1767225600000", "2026-02-01T08:00:00+08:00")] {
        assert_eq!(ok(at, &["range", "--layout", "twitter", "--from", from, "--to", to]), expected);
    }
    let range = |layout, from, to| ["range", "--layout", layout, "--from", from, "--to", to];
    // From the epoch on, and 0 is no id.
    assert!(ok(at, &range("2/2/2 epoch 1970-01-01 tick 1 s", "0", "1001")).starts_with("first  1\nlast   31\n"));
    fails(at, &range("seata", "0", "1"), 1, &["seata", "the worker is above the time"]);
    fails(at, &range("twitter", "2026-02-01", "2026-01-01"), 1, &["twitter", "must end after it begins"]);
    fails(at, &range("baidu", "2025-01-01", "2026-01-01"), 1, &["baidu", "to 2024-11-20T13:24:16.000Z"]);
    fails(at, &range("twitter", "last week", "2026-01-01"), 1, &["from is \"last week\"", "2026-01-31"]);
    fails(at, &["range", "--from", "2026-01-01"], 2, &["--to"]);
}

#[test]
fn a_layout_is_shown_with_its_limits() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    let twitter = ok(at, &["layouts", "show", "twitter", "--spread", "rotating:3"]);
    let picture = format!("0|{}|{}|{}|{}\n", "t".repeat(41), "d".repeat(5), "w".repeat(5), "s".repeat(12));
    says(
        &twitter,
        &[
            &picture,
            "t time 41, d datacenter 5, w worker 5, s sequence 12\n",
            "41/5+5/12 epoch 1288834974657 tick 1 ms\n",
            "2010-11-04T01:42:54.657Z, the epoch\n",
            "2080-07-10T17:30:30.208Z\n",
            "4096000 ids/s per worker, 4194304000 in all\n",
            "ids from 2010-11-28 on are above 2^53 - 1",
            "Twitter's Snowflake of 2010",
            "8 places: 3.5 of 4096 ids per tick are left out on average (0.0%), 7 at most\n",
        ],
    );
    assert!(!twitter.contains("WARNING"), "{twitter}");
    assert_eq!(ok(at, &["layouts", "show"]).lines().next(), Some("twitter"));
    says(&ok(at, &["layouts", "show", "baidu"]), &["WARNING", "it ended at 2024-11-20T13:24:16.000Z"]);
    says(&ok(at, &["layouts", "show", "cosid-53"]), &["every id fits a number (53 bits)"]);
    let spread = ok(at, &["layouts", "show", "5/2/3 epoch 2020-01-01", "--spread", "random:3"]);
    says(&spread, &["3.5 of 8 ids per tick are left out on average (43.7%), 7 at most"]);
    says(&ok(at, &["layouts", "show", "vesta-max-peak"]), &["type 1, always 0", "for reading only", "machine 10"]);
    // 2^40 ms, some 35 years, of which five are left.
    let soon = format!("40/10/12 epoch {}", now_ms() + 5 * 366 * 86_400_000 - (1 << 40));
    says(&ok(at, &["layouts", "show", &soon]), &["WARNING", "ends within ten years"]);

    fails(at, &["layouts", "show", "twitter", "--spread", "even:3"], 2, &["even:3", "rotating:BITS"]);
    fails(at, &["layouts", "show", "twitter", "--spread", "random:13"], 1, &["random:13: BITS must be 1 to 12"]);
    fails(at, &["layouts", "show", "sonyflake", "--spread", "random:3"], 1, &["lowest bits are the sequence"]);
    fails(at, &["layouts", "show", "seata", "--spread", "random:3"], 1, &["for reading only"]);
    assert_eq!(ok(at, &["layouts"]), ok(at, &["layouts", "list"]));
    says(row(&ok(at, &["layouts"]), "seata"), &["63 = worker 10 + time 41 + sequence 12", "for reading only"]);
}

#[test]
fn the_configuration_names_layouts() -> anyhow::Result<()> {
    let soon = now_ms() + 5 * 366 * 86_400_000 - (1 << 40);
    let (directory, arguments) = configured(&format!(
        "[layouts]\nours = \"41/10/12 epoch 2024-01-01\"\nsoon = \"40/10/12 epoch {soon}\"\n\
         [snowflakes.web]\nlayout = \"ours\"\n[snowflakes.hand]\nlayout = \"41/3/9 epoch 2025-01-01\"\n"
    ))?;
    let at = directory.path();
    let with = |more: &[&str]| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
        ok(at, &arguments)
    };
    let list = with(&["layouts"]);
    says(row(&list, "ours"), &["63 = 41/10/12", "2093-09-06"]);
    says(row(&list, "soon"), &["ends within ten years"]);
    assert!(!row(&list, "twitter").contains("ends within"), "{list}");
    let id = with(&["next", "web", "--snowflake"]);
    let year = with(&["decode", id.trim(), "--layout", "ours"]);
    assert!(year.starts_with("time        20"), "{year}");
    assert_eq!(year, with(&["decode", id.trim(), "--layout", "41/10/12 epoch 1704067200000"]));
    says(row(&with(&["decode", id.trim()]), "ours"), &["its time lies between the first such ids and now"]);
    assert!(with(&["next", "hand", "--snowflake"]).trim().parse::<u64>()? < 1 << 53);
    says(&with(&["config", "check"]), &["[layouts] # file\nours = \"41/10/12 epoch 2024-01-01\"\n"]);

    for (text, words) in [
        ("[layouts]\ntwitter = \"41/10/12 epoch 2024-01-01\"", &["\"twitter\"", "choose another"][..]),
        ("[layouts]\nseata = \"41/10/12 epoch 2024-01-01\"", &["\"seata\"", "choose another"]),
        ("[layouts]\nOurs = \"41/10/12 epoch 2024-01-01\"", &["\"Ours\"", "lower-case"]),
        ("[layouts]\nours = \"41/10/12\"", &["\"ours\"", "the epoch is missing"]),
        ("[layouts]\nours = \"leaf\"", &["\"ours\"", "TIME/WORKER/SEQUENCE"]),
        ("[snowflakes.web]\nlayout = \"seata\"", &["\"web\"", "for reading only"]),
        ("[snowflakes.web]\nlayout = \"42/10/12 epoch 0\"", &["\"web\"", "63 at most"]),
    ] {
        let (directory, arguments) = configured(text)?;
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(["next", "web", "--snowflake"]).collect();
        fails(directory.path(), &arguments, 1, words);
    }
    Ok(())
}

#[track_caller]
fn assert_problem(answer: &Answer, name: &str, member: &str, value: &str) {
    assert_eq!((answer.status, answer.problem().unwrap().as_str()), (400, name), "{answer:?}");
    assert_eq!(answer.json().unwrap().get(member), Some(&json!(value)), "{answer:?}");
}

#[test]
fn http_guesses_takes_apart_and_gives_ranges() -> anyhow::Result<()> {
    let (directory, arguments) = configured("[layouts]\nours = \"41/10/12 epoch 2010-11-04T01:42:54.657Z\"\n")?;
    let server = Server::start_in(directory, arguments)?;
    let client = server.client();
    let get = |path: &str| -> anyhow::Result<Value> {
        let answer = client.get(path)?;
        anyhow::ensure!(answer.status == 200, "{path}: {answer:?}");
        answer.json()
    };

    let guessed = get(&format!("/v1/decode/{LEAF}"))?;
    assert_eq!(guessed["id"], LEAF);
    let candidates = guessed["candidates"].as_array().context("no list")?;
    let named = |list: &[Value], name: &str| list.iter().find(|candidate| candidate["layout"] == name).cloned();
    assert_eq!(candidates[0]["layout"], "ours");
    assert!(candidates.iter().all(|candidate| candidate["plausible"] == true), "{guessed}");
    let leaf = named(candidates, "leaf").context("no leaf")?;
    assert_eq!((&leaf["read_as"], &leaf["number"]), (&json!("decimal"), &json!(LEAF)));
    assert_eq!((&leaf["time"], &leaf["unix_ms"]), (&json!("2019-09-06T01:35:00.834Z"), &json!(1_567_733_700_834_u64)));
    assert_eq!((&leaf["since"], &leaf["until"]), (&json!("2017-01-01T00:00:00.000Z"), &Value::Null));
    assert_eq!(leaf["fields"], json!({ "worker": 39, "sequence": 3448 }));
    assert_eq!(leaf["source_names"], json!({ "worker": "workerId", "sequence": "sequenceId" }));
    let all = get(&format!("/v1/decode/{LEAF}?all=true"))?;
    let mastodon = named(all["candidates"].as_array().context("no list")?, "mastodon").context("no mastodon")?;
    assert_eq!((&mastodon["plausible"], &mastodon["why"]), (&json!(false), &json!("its time is yet to come")));
    assert_eq!(get("/v1/decode/42")?, json!({ "id": "42", "candidates": [] }));
    assert_eq!(get("/v1/decode/01ARZ3NDEKTSV4RRFFQ69G5FAV")?["candidates"][0]["layout"], "ulid");

    let by_name = get(&format!("/v1/decode/{LEAF}?layout=ours"))?;
    assert_eq!((&by_name["layout"], &by_name["fields"]["worker"]), (&json!("ours"), &json!(39)));
    assert_eq!(by_name["source_names"], json!({}), "nobody else has a name for it");
    let by_hand = get(&format!("/v1/decode/{LEAF}?layout=41/5%2B5/12%20epoch%201288834974657"))?;
    assert_eq!(by_hand["fields"], json!({ "datacenter": 1, "worker": 7, "sequence": 3448 }));
    assert_eq!(by_hand["layout"], "41/5+5/12 epoch 1288834974657 tick 1 ms");
    let vesta = get("/v1/decode/3456526092514361344?layout=vesta-document")?;
    let expected = json!({
        "id": "3456526092514361344", "layout": "vesta-document", "time": "2015-05-28T08:05:39.000Z",
        "unix_ms": 1_432_800_339_000_u64,
        "fields": { "type": 0, "method": 2, "worker": 1022, "sequence": 0 },
        "source_names": { "type": "type", "method": "method", "worker": "machine", "sequence": "sequence" },
    });
    assert_eq!(vesta, expected);
    let wuid = get("/v1/decode/5?layout=wuid")?;
    assert_eq!((&wuid["time"], &wuid["unix_ms"]), (&Value::Null, &Value::Null));

    let range = get("/v1/range?layout=twitter&from=2026-01-01&to=1769904000000")?;
    let expected = json!({
        "layout": "twitter", "from": "2026-01-01T00:00:00.000Z", "to": "2026-02-01T00:00:00.000Z",
        "first": "2006515713438646272", "last": "2017749737272246271",
    });
    assert_eq!(range, expected);
    let ours = get("/v1/range?layout=ours&from=2026-01-01&to=2026-02-01")?;
    assert_eq!((&ours["first"], &ours["last"]), (&range["first"], &range["last"]));

    let problem = |path: &str, name: &str, member: &str, value: &str| -> anyhow::Result<()> {
        assert_problem(&client.get(path)?, name, member, value);
        Ok(())
    };
    problem("/v1/decode/nonsense", "id-invalid", "id", "nonsense")?;
    problem("/v1/decode/5?layout=41/10/12", "layout-unknown", "layout", "41/10/12")?;
    problem("/v1/decode/5?all=yes", "query-invalid", "value", "yes")?;
    problem(
        "/v1/decode/3456526092514361344?layout=vesta-min-granularity",
        "id-invalid",
        "layout",
        "vesta-min-granularity",
    )?;
    problem("/v1/range?to=5", "query-invalid", "parameter", "from")?;
    problem("/v1/range?from=5", "query-invalid", "parameter", "to")?;
    problem("/v1/range?from=5&to=x", "query-invalid", "parameter", "to")?;
    problem("/v1/range?from=5&to=5", "query-invalid", "parameter", "to")?;
    problem("/v1/range?from=0&to=5&layout=seata", "query-invalid", "parameter", "layout")?;
    problem("/v1/range?from=0&to=5&layout=x", "layout-unknown", "layout", "x")?;

    let layouts = get("/v1/layouts")?;
    let list = layouts["layouts"].as_array().context("no list")?;
    assert_eq!((&list[0]["name"], &list[0]["ends_soon"]), (&json!("ours"), &json!(false)));
    let names: Vec<&str> = list.iter().filter_map(|layout| layout["name"].as_str()).collect();
    let config = server.directory().join("layouts.toml");
    let printed = ok(server.directory(), &["--config", config.to_str().context("a path of UTF-8")?, "layouts"]);
    let in_table: Vec<&str> = printed.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, in_table, "the command line lists the same");
    let seata = list.iter().find(|layout| layout["name"] == "seata").context("no seata")?;
    assert_eq!((&seata["reading_only"], &seata["workers"]), (&json!(true), &Value::Null));
    assert_eq!(seata["fields"][0], json!({ "name": "worker", "bits": 10, "source_name": "worker" }));
    let cosid_53 = list.iter().find(|layout| layout["name"] == "cosid-53").context("no cosid-53")?;
    assert_eq!(
        (&cosid_53["above_53_bits"], &list[0]["above_53_bits"]),
        (&Value::Null, &json!("2010-11-28T22:14:18.305Z"))
    );
    Ok(())
}

#[test]
fn yitter_begins_elsewhere_in_each_language() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    // Tick 1,000, worker 9, sequence 5.
    let id = (1_000 << 12 | 9 << 6 | 5).to_string();
    for (layout, time) in [
        ("yitter", "2020-02-19T18:20:03.000Z"),
        ("yitter-js", "2020-01-01T00:00:01.000Z"),
        ("yitter-csharp", "2020-02-20T02:20:03.020Z"),
    ] {
        says(
            &ok(at, &["decode", &id, "--layout", layout]),
            &[time, "worker      9 (WorkerId)\n", "sequence    5 (seq)\n"],
        );
        says(&ok(at, &["layouts", "show", layout]), &["51/6/6 epoch ", "Yitter's"]);
    }
}

#[test]
fn what_a_template_shows_is_read_with_a_hint_at_the_configuration() -> anyhow::Result<()> {
    let (directory, arguments) = configured("[tags.invoice]\ntemplate = \"INV-{id:06}\"\n")?;
    let at = directory.path();
    let with: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let text = ["decode", "INV-000042", "--tag", "invoice"];
    says(&ok(at, &[&with[..], &text].concat()), &["number      42\n"]);
    fails(at, &text, 1, &["--config FILE", "no format of \"invoice\""]);
    fails(at, &["decode", "INV-000042"], 1, &["what a template shows", "its tag or snowflake"]);
    Ok(())
}
