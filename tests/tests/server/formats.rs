//! Ids as they are configured to be shown, over real servers and on the command line: templates, counters that start
//! again, keys and their rotation, genes, numbers that are safe in JavaScript. Secrets come out nowhere.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic_in_result_fn,
    reason = "a test that cannot go on fails"
)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};
use tempfile::TempDir;
use unalike_tests::PATIENCE;
use unalike_tests::clock::FakeClock;
use unalike_tests::mariadb::MariaDb;
use unalike_tests::proxy::Proxy;
use unalike_tests::server::{Answer, Client, Ran, Server, run, run_with};

const SECRET_1: &str = "5a3c0b9d1e7f4826a1b2c3d4e5f60718";
const SECRET_2: &str = "c0ffee11deadbeef0123456789abcdef";

/// A directory with this configuration file, and the flags that name it.
fn configured(text: &str) -> anyhow::Result<(Arc<TempDir>, Vec<String>)> {
    let directory = Arc::new(TempDir::new()?);
    std::fs::write(directory.path().join("unalike.toml"), text)?;
    Ok((directory, ["--config", "unalike.toml"].map(str::to_owned).to_vec()))
}

fn serve(text: &str) -> anyhow::Result<Server> {
    let (directory, arguments) = configured(text)?;
    Server::start_in(directory, arguments)
}

/// The ids of an answer, as they are written.
fn texts(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 200, "{answer:?}");
    let ids = answer.json().unwrap()["ids"].as_array().unwrap().clone();
    ids.into_iter().map(|id| id.as_str().map_or_else(|| id.to_string(), str::to_owned)).collect()
}

fn ids(client: &Client, path: &str) -> Vec<String> {
    texts(&client.get(path).unwrap())
}

#[track_caller]
fn assert_problem(answer: &Answer, status: u16, name: &str, said: &str) {
    assert_eq!((answer.status, answer.problem().unwrap().as_str()), (status, name), "{answer:?}");
    let detail = answer.json().unwrap()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains(said), "{detail:?} does not say {said:?}");
}

/// Runs a command with the configuration of this directory.
fn command(directory: &Path, arguments: &[&str]) -> Ran {
    run(directory, ["--config", "unalike.toml"].iter().chain(arguments).copied()).unwrap()
}

#[track_caller]
fn ok(directory: &Path, arguments: &[&str]) -> String {
    let ran = command(directory, arguments);
    assert_eq!(ran.code, Some(0), "{arguments:?}: {ran:?}");
    ran.stdout
}

#[track_caller]
fn fails(directory: &Path, arguments: &[&str], said: &str) {
    let ran = command(directory, arguments);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{arguments:?}: {ran:?}");
    assert!(ran.stderr.contains(said), "{arguments:?} does not say {said:?}: {}", ran.stderr);
}

#[test]
fn ids_of_any_tag_come_in_every_notation() -> anyhow::Result<()> {
    let server = Server::start()?;
    let client = server.client();
    let order = "/v1/sequences/order/ids";
    for (format, expected) in [
        ("decimal", "1"),
        ("padded", "0000000000000000002"),
        ("base36", "0000000000003"),
        ("base62", "00000000004"),
        ("base32", "0000000000005"),
        ("uuid", "00000000-0000-8000-b100-000000000000"),
    ] {
        let answer = client.get(&format!("{order}?format={format}"))?;
        assert_eq!(answer.json()?, json!({ "tag": "order", "ids": [expected] }));
    }
    let lines = client.get_as(&format!("{order}?format=base62&count=2"), "text/plain")?;
    assert_eq!((lines.status, lines.body.as_str()), (200, "00000000007\n00000000008\n"));
    let sub = client.get(&format!("{order}?format=padded&sub=a"))?;
    assert_eq!(sub.json()?, json!({ "tag": "order", "sub": "a", "ids": ["0000000000000000001"] }));

    let flake = ids(&client, "/v1/snowflakes/default/ids?format=base32");
    let read = client.get(&format!("/v1/decode/{}?snowflake=default&format=base32", flake[0]))?.json()?;
    assert_eq!((&read["snowflake"], &read["text"]), (&json!("default"), &json!(flake[0])));
    let of_id = client.get(&format!("/v1/decode/{}?layout=twitter", read["id"].as_str().context("an id")?))?.json()?;
    assert_eq!(read["from"], of_id["time"], "a snowflake says when it was issued");
    Ok(())
}

#[test]
fn what_cannot_be_shown_is_refused_and_costs_no_id() -> anyhow::Result<()> {
    let server = serve(
        "[tags.daily]\ntemplate = \"{yyyyMMdd}-{id}\"\nrestart = \"day\"\n\
         [tags.gene]\ngene_bits = 4\nbits = 53\n\
         [tags.small]\nbits = 53\n[tags.shown]\ntemplate = \"S{id}\"\nbits = 53\n\
         [snowflakes.web]\nlayout = \"cosid-53\"\n",
    )?;
    let client = server.client();
    for (path, name, said) in [
        (
            "sequences/order/ids?format=hex",
            "format-invalid",
            "\"hex\" is unknown; the formats are decimal, padded, base36",
        ),
        ("sequences/order/ids?format=", "format-invalid", "\"\" is unknown"),
        ("sequences/order/ids?format=Base62", "format-invalid", "\"Base62\" is unknown"),
        ("sequences/order/ids?format=template", "format-invalid", "\"order\" has no template"),
        ("snowflakes/default/ids?format=template", "format-invalid", "\"default\" has no template"),
        ("sequences/daily/ids?format=decimal", "format-invalid", "start again"),
        ("sequences/daily/ids?format=base62", "format-invalid", "cannot be base62"),
        ("sequences/daily/ids?format=decimal&as=number", "format-invalid", "start again"),
        ("sequences/daily/ids?as=number", "number-unsafe", "their numbers start again in each period. Take strings"),
        ("sequences/order/ids?as=number&format=base62", "number-unsafe", "bits = 53"),
        ("sequences/order/ids?as=number", "number-unsafe", "bits = 53"),
        ("sequences/small/ids?as=number&format=base62", "number-unsafe", "Ask for format=decimal"),
        ("sequences/shown/ids?as=number", "number-unsafe", "Ask for format=decimal"),
        ("snowflakes/default/ids?as=number", "number-unsafe", "a layout of 53 bits"),
        ("sequences/gene/ids", "shard-key-invalid", "none was given"),
        ("sequences/order/ids?shard_key=5", "shard-key-invalid", "carry no bits of one"),
        ("snowflakes/web/ids?shard_key=5", "shard-key-invalid", "carry no bits of one"),
        ("sequences/gene/ids?shard_key=x", "shard-key-invalid", "\"x\", it must be a whole number"),
        ("sequences/gene/ids?shard_key=-1", "shard-key-invalid", "\"-1\""),
        ("sequences/gene/ids?shard_key=18446744073709551616", "shard-key-invalid", "0 to 18446744073709551615"),
        ("sequences/gene/ids?shard_key=1&shard_key=2", "query-invalid", "given twice"),
    ] {
        assert_problem(&client.get(&format!("/v1/{path}"))?, 400, name, said);
    }
    assert_eq!(ids(&client, "/v1/sequences/order/ids"), ["1"]);
    assert_eq!(ids(&client, "/v1/sequences/gene/ids?shard_key=18446744073709551615"), ["31"]);
    assert!(ids(&client, "/v1/sequences/daily/ids")[0].ends_with("-1"));
    for (path, expected) in [
        ("/v1/sequences/small/ids?as=number", json!([1])),
        ("/v1/sequences/gene/ids?as=number&shard_key=3", json!([35])),
        ("/v1/sequences/shown/ids?as=number&format=decimal", json!([1])),
    ] {
        assert_eq!(client.get(path)?.json()?["ids"], expected);
    }
    assert!(client.get("/v1/snowflakes/web/ids?as=number")?.json()?["ids"][0].is_u64());
    // Lines are text, whatever JSON would be.
    assert_eq!(client.ids("/v1/sequences/order/ids?as=number")?, [2]);
    Ok(())
}

#[test]
fn templates_are_written_and_read_over_http_and_on_the_command_line() -> anyhow::Result<()> {
    let server = serve(
        "[tags.order]\ntemplate = \"ORD/{yyyy}-{id:06}-{gene:4}\"\nutc_offset = \"-03:30\"\n\
         [snowflakes.web]\nlayout = \"twitter\"\ntemplate = \"W{id:base62}\"\ngene_bits = 4\n\
         [snowflakes.dated]\nlayout = \"twitter\"\ntemplate = \"{yyyy}-{id}\"\n",
    )?;
    let client = server.client();
    let answer = client.get("/v1/sequences/order/ids?count=2&shard_key=37")?;
    let year = texts(&answer)[0].get(4..8).context("a year")?.to_owned();
    assert_eq!(
        answer.json()?,
        json!({ "tag": "order", "ids": [format!("ORD/{year}-000001-05"), format!("ORD/{year}-000002-05")] })
    );
    let lines = client.get_as("/v1/sequences/order/ids?count=2&shard_key=16", "text/plain")?;
    assert_eq!(lines.body, format!("ORD/{year}-000003-00\nORD/{year}-000004-00\n"));
    assert_eq!(ids(&client, "/v1/sequences/order/ids?shard_key=1&format=decimal"), ["5"]);
    let posted = client.send("POST", "/v1/sequences/order/ids?shard_key=37&sub=x", "text/plain", "")?;
    assert_eq!(posted.json()?, json!({ "tag": "order", "sub": "x", "ids": [format!("ORD/{year}-000001-05")] }));
    // The plainest request, again and again: the id itself never gets out.
    for _ in 0..3 {
        assert_problem(&client.get("/v1/sequences/order/ids")?, 400, "shard-key-invalid", "none was given");
    }

    let read = client.get(&format!("/v1/decode/ORD%2F{year}-000004-05?tag=order"))?.json()?;
    let next: u32 = year.parse::<u32>()? + 1;
    let expected = json!({
        "text": format!("ORD/{year}-000004-05"), "tag": "order", "id": "4", "number": "4", "gene": 5,
        "from": format!("{year}-01-01T03:30:00.000Z"), "until": format!("{next}-01-01T03:30:00.000Z"),
    });
    assert_eq!(read, expected);
    assert_eq!(
        client.get("/v1/decode/0000000000008?format=base32")?.json()?,
        json!({ "text": "0000000000008", "id": "8", "number": "8" })
    );
    assert_eq!(client.get("/v1/decode/0004C92?tag=order&format=decimal")?.problem()?, "id-invalid");

    let web = ids(&client, "/v1/snowflakes/web/ids?shard_key=37");
    let read = client.get(&format!("/v1/decode/{}?snowflake=web", web[0]))?.json()?;
    assert_eq!(read["gene"], 5);
    let number = read["number"].as_str().context("a number")?;
    let parts = client.get(&format!("/v1/decode/{number}?layout=twitter"))?.json()?;
    assert_eq!((parts["fields"]["sequence"].as_u64().context("a sequence")? % 16, &parts["time"]), (5, &read["from"]));

    let dated = ids(&client, "/v1/snowflakes/dated/ids")[0].clone();
    assert_eq!(client.get(&format!("/v1/decode/{dated}?snowflake=dated"))?.status, 200);
    let of_2019 = format!("2019{}", &dated[4..]);
    let answer = client.get(&format!("/v1/decode/{of_2019}?snowflake=dated"))?;
    assert_problem(&answer, 400, "id-invalid", "its date is not that of its id");

    for (path, status, name, said) in [
        (format!("ORD%2F{year}-00000x-05?tag=order"), 400, "id-invalid", "the byte at position 14"),
        (format!("ord%2F{year}-000001-05?tag=order"), 400, "id-invalid", "the byte at position 0"),
        (format!("ORD%2F{year}-000001-16?tag=order"), 400, "id-invalid", "the number at position 16"),
        (format!("ORD%2F{year}-000000-05?tag=order"), 400, "id-invalid", "the number at position 9"),
        ("ORD?tag=order".to_owned(), 400, "id-invalid", "no text of this format is 3 bytes long"),
        ("W00000000000?snowflake=web".to_owned(), 400, "id-invalid", "the number at position 1"),
        ("12x?format=decimal".to_owned(), 400, "id-invalid", "the byte at position 2"),
        ("1?format=hex".to_owned(), 400, "format-invalid", "\"hex\" is unknown"),
        ("1?format=template".to_owned(), 400, "format-invalid", "say of which"),
        ("1?tag=plain&format=template".to_owned(), 400, "format-invalid", "\"plain\" has no template"),
        ("1?tag=order&snowflake=web".to_owned(), 400, "query-invalid", "one of them"),
        ("1?tag=order&layout=leaf".to_owned(), 400, "query-invalid", "layout"),
        ("1?tag=".to_owned(), 400, "tag-invalid", "it is empty"),
        ("1?snowflake=nobody".to_owned(), 404, "snowflake-unknown", "nobody"),
    ] {
        assert_problem(&client.get(&format!("/v1/decode/{path}"))?, status, name, said);
    }

    let at = server.directory();
    assert_eq!(
        ok(at, &["next", "order", "-n", "2", "--shard-key", "37", "--sub", "y"]),
        format!("ORD/{year}-000001-05\nORD/{year}-000002-05\n")
    );
    assert_eq!(ok(at, &["next", "order", "--shard-key", "37", "--sub", "z", "--format", "base36"]), "0000000000001\n");
    assert_eq!(ok(at, &["next", "plain", "--format", "uuid"]), "00000000-0000-8000-8900-000000000000\n");
    let printed = ok(at, &["next", "web", "--snowflake", "--shard-key", "37"]);
    let read = ok(at, &["decode", printed.trim_end(), "--snowflake", "web"]);
    assert!(read.contains("gene        5\n") && read.contains("from        20"), "{read}");
    let read = ok(at, &["decode", &format!("ORD/{year}-000004-05"), "--tag", "order"]);
    let expected = format!(
        "id          4\nnumber      4\ngene        5\nfrom        {year}-01-01T03:30:00.000Z\nuntil       {next}-01-01T03:30:00.000Z\n"
    );
    assert_eq!(read, expected);
    assert_eq!(ok(at, &["decode", "0000000000008", "--format", "base36"]), "id          8\nnumber      8\n");
    fails(at, &["next", "order"], "none was given");
    fails(at, &["next", "plain", "--shard-key", "1"], "carry no bits of one");
    fails(at, &["next", "plain", "--format", "template"], "has no template");
    fails(at, &["decode", "ORD", "--tag", "order"], "3 bytes long");
    fails(
        at,
        &["decode", "1", "--snowflake", "nobody"],
        "no snowflake \"nobody\" is configured, only \"dated\", \"default\", \"web\"",
    );
    fails(at, &["decode", "1", "--format", "template"], "say of which");
    for arguments in [
        &["next", "order", "--format", "hex"][..],
        &["next", "order", "--shard-key", "x"],
        &["decode", "1", "--tag", "order", "--snowflake", "web"],
        &["decode", "1", "--tag", "order", "--layout", "leaf"],
    ] {
        assert_eq!(command(at, arguments).code, Some(2), "{arguments:?}");
    }
    Ok(())
}

#[test]
fn two_servers_on_different_sides_of_midnight_give_no_text_twice() -> anyhow::Result<()> {
    const DAY_MS: i64 = 86_400_000;
    let (directory, arguments) =
        configured("[tags.order]\ntemplate = \"{yyyyMMdd}-{id:06}\"\nutc_offset = \"+08:00\"\nrestart = \"day\"\n")?;
    let clocks = [Arc::new(FakeClock::start()?), Arc::new(FakeClock::start()?)];
    clocks[1].set(DAY_MS)?;
    let [one, two] = clocks.clone().map(|clock| {
        Server::start_with_clock(Arc::clone(&directory), arguments.clone(), clock)
            .map(|server| (server.client(), server))
    });
    let ((one, _one), (two, _two)) = (one?, two?);
    let order = "/v1/sequences/order/ids?count=700";
    let mut all = Vec::new();
    let firsts = |texts: &[String]| texts.iter().filter(|text| text.ends_with("-000001")).count();
    let day_of = |texts: &[String]| texts[0][..8].to_owned();
    let (today, tomorrow) = (ids(&one, order), ids(&two, order));
    assert_eq!((firsts(&today), firsts(&tomorrow)), (1, 1), "each day begins at 1");
    assert!(day_of(&today) < day_of(&tomorrow));
    all.extend([today, tomorrow].concat());
    // The first goes over midnight, then the second comes back over it, and both are on the same side again.
    for (clock, ahead_ms) in [(0, DAY_MS), (1, 0), (0, 0), (1, DAY_MS)] {
        clocks[clock].set(ahead_ms)?;
        for client in [&one, &two] {
            let texts = ids(client, order);
            assert!(texts.iter().all(|text| text[..8] == texts[0][..8]), "{texts:?}");
            all.extend(texts);
        }
    }
    let total = all.len();
    assert_eq!(total, 7_000);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), total, "a text came twice");
    Ok(())
}

#[test]
fn a_period_begins_at_the_start_of_its_tag() -> anyhow::Result<()> {
    let (directory, _) = configured("[tags.order]\ntemplate = \"{yyyy}-{id:06}\"\nrestart = \"year\"\n")?;
    let run = |arguments: &[&str]| command(directory.path(), arguments);
    assert_eq!(run(&["tags", "create", "order", "--start", "1000"]).code, Some(0));
    let first = run(&["next", "order"]).stdout;
    assert!(first.ends_with("-001000\n"), "{first}");
    // The tag is raised, and its periods are not.
    assert_eq!(run(&["tags", "raise", "order", "5000"]).code, Some(0));
    assert!(run(&["next", "order", "--sub", "eu"]).stdout.ends_with("-001000\n"));
    let period = format!("@{}", &first[..4]);
    assert_eq!(run(&["tags", "raise", "order", "5000", "--sub", &period]).code, Some(0));
    assert!(run(&["next", "order"]).stdout.ends_with("-005000\n"));
    Ok(())
}

#[test]
fn the_snowflake_that_needs_no_configuration_is_compared() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    let unconfigured = |arguments: &[&str]| run(directory.path(), arguments.iter().copied());
    assert_eq!(unconfigured(&["next", "order"])?.code, Some(0));
    let bare = unconfigured(&["tags", "format", "--snowflake", "--", "default"])?;
    assert!(bare.stdout.starts_with("no format is bound to the snowflake \"default\","), "{bare:?}");
    let unknown = unconfigured(&["tags", "format", "--snowflake", "--", "web"])?;
    assert!(unknown.stderr.contains("the snowflake \"web\" is not in the configuration"), "{unknown:?}");
    Ok(())
}

const KEYED: &str = "[tags.order]\ntemplate = \"O{id:base62}\"\nkeys = KEYS\n\
     [snowflakes.web]\nlayout = \"cosid-53\"\nkeys = KEYS\n";

#[test]
fn periods_are_made_by_the_server_and_sub_keys_within_them_are_limited() -> anyhow::Result<()> {
    let server = serve(
        "create_tags = false\ntags_max = 1\n[tags.invoice]\nsub_keys_max = 1\nrestart = \"day\"\n\
         template = \"{yyyyMMdd}-{id}\"\n",
    )?;
    let client = server.client();
    assert_eq!(client.send_json("POST", "/v1/tags", &serde_json::json!({ "tag": "invoice" }))?.status, 201);
    let invoice = "/v1/sequences/invoice/ids";
    assert_eq!(client.get(invoice)?.status, 200, "a period is no sub-key that anybody named");
    assert_eq!(client.get(&format!("{invoice}?sub=a"))?.status, 200);
    assert_problem(&client.get(&format!("{invoice}?sub=b"))?, 403, "sub-key-limit", "1 sub-keys");
    assert_eq!(client.get(&format!("{invoice}?sub=a"))?.status, 200);
    assert_eq!(client.get(invoice)?.status, 200);
    Ok(())
}

#[test]
fn keys_rotate_without_a_text_coming_twice() -> anyhow::Result<()> {
    let (directory, arguments) =
        configured(&format!("{}[keys.1]\nsecret_file = \"key-1\"\n", KEYED.replace("KEYS", "[1]")))?;
    std::fs::write(directory.path().join("key-1"), format!("{SECRET_1}\n"))?;
    let one = Server::start_in(Arc::clone(&directory), arguments.clone())?;
    // The second server has the new key, from a variable of its own.
    std::fs::write(
        directory.path().join("rotated.toml"),
        format!(
            "{}[keys.1]\nsecret_file = \"key-1\"\n[keys.2]\nsecret = \"{SECRET_2}\"\n",
            KEYED.replace("KEYS", "[2, 1]")
        ),
    )?;
    let two = Server::start_in(Arc::clone(&directory), ["--config", "rotated.toml"].map(str::to_owned).to_vec())?;
    let (mut all, mut total) = (BTreeSet::new(), 0);
    for _ in 0..5 {
        for (client, key_id) in [(one.client(), 1), (two.client(), 2)] {
            for (path, whose) in [("/v1/sequences/order/ids", "tag=order"), ("/v1/snowflakes/web/ids", "snowflake=web")]
            {
                let shown = ids(&client, &format!("{path}?count=50"));
                total += shown.len();
                for text in shown.iter().step_by(17) {
                    let read = two.client().get(&format!("/v1/decode/{text}?{whose}"))?.json()?;
                    assert_eq!(read["key_id"], json!(key_id), "{read}");
                    assert_ne!(read["id"], read["number"]);
                }
                all.extend(shown);
            }
        }
    }
    assert_eq!(all.len(), total, "a text came twice");
    // Every notation shows the number, and never the id.
    let number = ids(&one.client(), "/v1/sequences/order/ids?format=decimal");
    assert!(number[0].parse::<u64>()? > 1 << 40, "{number:?}");
    let read = two.client().get(&format!("/v1/decode/{}?tag=order&format=decimal", number[0]))?.json()?;
    assert_eq!(read["key_id"], 1);
    let unread =
        one.client().get(&format!("/v1/decode/{}?tag=order", ids(&two.client(), "/v1/sequences/order/ids")[0]))?;
    assert_problem(&unread, 400, "id-invalid", "the key 2, which is not among those that are known");
    Ok(())
}

#[test]
fn a_batch_goes_where_its_shard_key_goes() -> anyhow::Result<()> {
    let (directory, arguments) = configured(
        "[tags.order]\nbits = 53\ngene_bits = 4\nkeys = [3]\n[snowflakes.web]\nlayout = \"cosid-53\"\ngene_bits = 3\n\
         [keys.3]\nsecret_env = \"ID_KEY_3\"\n",
    )?;
    // Without the variable it does not start, and says which is missing.
    fails(directory.path(), &["next", "order", "--shard-key", "1"], "there is no variable \"ID_KEY_3\"");
    let environment = [("ID_KEY_3", SECRET_1)];
    let mut all = BTreeSet::new();
    for shard_key in [0_u64, 5, 16, 12_345_678_901, u64::MAX] {
        let key = shard_key.to_string();
        let arguments =
            ["--config", "unalike.toml", "next", "order", "-n", "300", "--format", "decimal", "--shard-key", &key];
        let ran = run_with(directory.path(), arguments, &environment)?;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        for line in ran.stdout.lines() {
            let id: u64 = line.parse()?;
            assert_eq!(id % 16, shard_key % 16);
            assert!(id < 1 << 53);
            assert!(all.insert(id), "{id} came twice");
        }
    }
    assert_eq!(all.len(), 1_500);
    std::fs::write(directory.path().join("unalike.toml"), "[snowflakes.web]\nlayout = \"cosid-53\"\ngene_bits = 3\n")?;
    let server = Server::start_in(directory, arguments)?;
    for shard_key in [3_u64, 8] {
        let answer = server.get(&format!("/v1/snowflakes/web/ids?count=40&as=number&shard_key={shard_key}"))?;
        let ids: Vec<u64> = answer.json()?["ids"].as_array().context("ids")?.iter().filter_map(Value::as_u64).collect();
        assert_eq!(ids.len(), 40, "numbers: {answer:?}");
        assert!(ids.iter().all(|id| id % 8 == shard_key % 8 && *id < 1 << 53), "{ids:?}");
    }
    Ok(())
}

#[test]
fn paths_of_other_services_give_no_bare_ids_of_what_is_shown_otherwise() -> anyhow::Result<()> {
    let (directory, mut arguments) = configured(&format!(
        "[tags.keyed]\nkeys = [1]\n[tags.gene]\ngene_bits = 2\n[tags.daily]\ntemplate = \"{{yyyyMMdd}}-{{id}}\"\nrestart = \"day\"\n\
         [tags.shown]\ntemplate = \"S{{id}}\"\n[tags.few]\nbits = 53\n[tags.flake]\nchannel = \"quick\"\n\
         [snowflakes.flake]\nlayout = \"cosid-53\"\nkeys = [1]\n[keys.1]\nsecret = \"{SECRET_1}\"\n"
    ))?;
    arguments.extend(["--drop-in", "leaf,tinyid,cosid"].map(str::to_owned));
    let server = Server::start_in(directory, arguments)?;
    let client = server.client();
    for tag in ["keyed", "gene", "daily", "flake"] {
        for path in [
            format!("/api/segment/get/{tag}"),
            format!("/ids/{tag}"),
            format!("/tinyid/id/nextIdSimple?bizType={tag}"),
            format!("/tinyid/id/nextSegmentIdSimple?bizType={tag}"),
        ] {
            let answer = client.get(&path)?;
            assert!(answer.body.parse::<u64>().is_err(), "{path}: {answer:?}");
            assert!(!answer.body.chars().next().is_some_and(|first| first.is_ascii_digit()), "{path}: {answer:?}");
        }
    }
    // A template alone shows the id that there is.
    assert_eq!(client.get("/api/segment/get/shown")?.body, "1");
    assert_eq!(ids(&client, "/v1/sequences/shown/ids"), ["S2"]);
    assert_eq!(ids(&client, "/v1/sequences/shown/ids?format=decimal"), ["3"]);
    // No segment passes the tag's width.
    assert_eq!(ids(&client, "/v1/sequences/few/ids"), ["1"]);
    assert!(
        client
            .get("/tinyid/id/nextSegmentIdSimple?bizType=few")?
            .body
            .starts_with(|first: char| first.is_ascii_digit())
    );
    client.send_json("PATCH", "/v1/tags/few", &json!({ "raise_to": (1_u64 << 53) - 10, "confirm": true }))?;
    let last = client.get("/tinyid/id/nextSegmentId?bizType=few")?.json()?;
    assert_eq!(
        (&last["data"]["currentId"], &last["data"]["maxId"]),
        (&json!((1_u64 << 53) - 11), &json!((1_u64 << 53) - 1)),
        "what is left, and no more: {last}"
    );
    let answer = client.get("/tinyid/id/nextSegmentId?bizType=few")?;
    assert!(answer.body.contains("pass 9007199254740991"), "{answer:?}");
    // A quick tag is shown as its snowflake is.
    let flake = ids(&client, "/v1/sequences/flake/ids");
    let read = client.get(&format!("/v1/decode/{}?tag=flake", flake[0]))?.json()?;
    assert_eq!((&read["tag"], &read["key_id"]), (&json!("flake"), &json!(1)));
    Ok(())
}

#[test]
fn tokens_that_are_bound_to_tags_read_no_texts_of_others() -> anyhow::Result<()> {
    let (directory, mut arguments) = configured("[tags.order]\ntemplate = \"O{id}\"\n")?;
    let tokens = "[[tokens]]\nname = \"o\"\ntoken = \"0123456789abcdef\"\nscope = \"read\"\ntags = [\"order\"]\n";
    std::fs::write(directory.path().join("tokens.toml"), tokens)?;
    arguments.extend(["--tokens", "tokens.toml"].map(str::to_owned));
    let server = Server::start_in(directory, arguments)?;
    let client = server.client().with_token("0123456789abcdef");
    assert_eq!(client.get("/v1/decode/O1?tag=order")?.json()?["id"], "1");
    assert_eq!(client.get("/v1/decode/1?tag=other")?.status, 403);
    assert_eq!(client.get("/v1/decode/1?snowflake=default")?.status, 403);
    assert_eq!(server.get("/v1/decode/O1?tag=order")?.status, 401);
    Ok(())
}

#[test]
fn what_cannot_be_configured_is_refused_at_the_start() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    let at = directory.path();
    let key = format!("[keys.1]\nsecret = \"{SECRET_1}\"\n");
    let with_key = |text: &str| format!("{text}{key}");
    std::fs::write(at.join("short"), "0123\n")?;
    for (text, said) in [
        ("[tags.a]\ntemplate = \"A-{id:99}\"\n".to_owned(), "\"a\": the template is wrong at byte 2"),
        ("[tags.a]\ntemplate = \"A\"\n".to_owned(), "without an id"),
        ("[tags.a]\ntemplate = \"{id}\"\nrestart = \"day\"\n".to_owned(), "must show the period"),
        ("[tags.a]\ntemplate = \"{yyyy}{id}\"\nrestart = \"month\"\n".to_owned(), "must show the period"),
        ("[tags.a]\nrestart = \"week\"\n".to_owned(), "one of never, year, month, day"),
        ("[tags.a]\nutc_offset = \"8\"\n".to_owned(), "\"8\" must be the distance from UTC"),
        ("[tags.a]\nbits = 64\n".to_owned(), "the bits do not fit"),
        ("[tags.a]\nbits = 4\ngene_bits = 4\n".to_owned(), "the bits do not fit"),
        ("[tags.a]\ngene_bits = 17\n".to_owned(), "16 at most"),
        ("[tags.a]\nkeys = [1]\n".to_owned(), "\"a\": there is no key 1: add [keys.1]"),
        ("[tags.a]\nkeys = []\n".to_owned(), "its list of keys is empty"),
        ("[tags.a]\nkey_id_bits = 4\n".to_owned(), "key_id_bits is about keys"),
        (
            with_key("[tags.a]\nkeys = [1]\nkey_id_bits = 0\n"),
            "the key 1 has no place in key_id_bits = 0: there is room only for the key 0",
        ),
        (
            format!("[tags.a]\nkeys = [0]\n[keys.0]\nsecret = \"{SECRET_2}\"\n"),
            "the key 0 has no place in key_id_bits = 4: keys are 1 to 15",
        ),
        (with_key("[tags.a]\nkeys = [1, 1]\n"), "the key 1 is given twice"),
        (with_key("[tags.a]\nkeys = [1]\nbits = 27\ngene_bits = 4\n"), "a key for 19 bits hides nothing"),
        (with_key("[tags.a]\nkeys = [1]\ntemplate = \"{id:010}\"\n"), "10 digits"),
        ("[tags.a]\n".to_owned(), "it says nothing"),
        ("[tags.a]\nprefix = 5\n".to_owned(), "prefix belongs to a channel"),
        (
            "[tags.a]\nchannel = \"unordered\"\nprefix = 5\nbits = 53\n".to_owned(),
            "begins at 500000000000000000, and its format shows ids up to 9007199254740991",
        ),
        ("[tags.a]\nchannel = \"quick\"\ntemplate = \"{id}\"\n".to_owned(), "[snowflakes.\"a\"]"),
        ("[tags.a]\ntemplat = \"{id}\"\n".to_owned(), "did you mean template?"),
        ("[snowflakes.a]\nlayout = \"twitter\"\nbits = 53\n".to_owned(), "its layout has 63 bits"),
        ("[snowflakes.a]\nlayout = \"twitter\"\ntemplate = \"{id:015}\"\n".to_owned(), "give it more digits"),
        ("[snowflakes.a]\nlayout = \"sonyflake\"\ngene_bits = 4\n".to_owned(), "which must be last"),
        ("[snowflakes.a]\nlayout = \"twitter\"\ngene_bits = 13\n".to_owned(), "which must be last and have as many"),
        ("[snowflakes.a]\nlayout = \"twitter\"\nrestart = \"day\"\n".to_owned(), "unknown key restart"),
        (with_key("[snowflakes.a]\nlayout = \"twitter\"\nkeys = [1]\n"), "the key 1 has no place in key_id_bits = 0"),
        ("[keys.x]\nsecret_env = \"A\"\n".to_owned(), "\"x\" has no number from 0 to 255"),
        ("[keys.256]\nsecret_env = \"A\"\n".to_owned(), "\"256\" has no number"),
        ("[keys.01]\nsecret_env = \"A\"\n".to_owned(), "\"01\" has no number"),
        ("[keys.1]\n".to_owned(), "one of secret_file, secret_env and secret"),
        (with_key("") + "secret_env = \"A\"\n", "one of secret_file, secret_env and secret"),
        ("[keys.1]\nsecret_file = \"nowhere\"\n".to_owned(), "key 1: the file nowhere cannot be read"),
        ("[keys.1]\nsecret_file = \"short\"\n".to_owned(), "32 hexadecimal digits"),
        ("[keys.1]\nsecret_env = \"NOBODY_S\"\n".to_owned(), "there is no variable \"NOBODY_S\""),
        (format!("{key}[keys.2]\nsecret = \"{}\"\n", SECRET_1.to_uppercase()), "keys 1 and 2 are the same secret"),
    ] {
        std::fs::write(at.join("unalike.toml"), &text)?;
        for arguments in [&["config", "check", "unalike.toml"][..], &["next", "order"]] {
            let ran = command(at, arguments);
            assert_eq!(ran.code, Some(1), "{text}: {ran:?}");
            assert!(ran.stderr.contains(said), "{text} does not say {said:?}: {}", ran.stderr);
            assert!(!ran.stderr.to_lowercase().contains(SECRET_1), "{}", ran.stderr);
        }
        assert!(!at.join("unalike.sqlite").exists(), "{text}");
    }
    // A tag that is there already and begins too high.
    std::fs::write(at.join("unalike.toml"), "[tags.high]\nbits = 53\n")?;
    ok(at, &["tags", "create", "high", "--start", "9007199254740992"]);
    fails(at, &["next", "order"], "\"high\" begins at 9007199254740992");
    // Commands that show no ids need no secret.
    std::fs::write(at.join("unalike.toml"), "[tags.a]\nkeys = [1]\n[keys.1]\nsecret_file = \"nowhere\"\n")?;
    ok(at, &["tags", "list"]);
    Ok(())
}

#[test]
fn secrets_are_nowhere_to_be_read() -> anyhow::Result<()> {
    let configuration = format!(
        "log = \"trace\"\n[tags.order]\nkeys = [3, 2, 1]\n[keys.1]\nsecret_file = \"key-1\"\n[keys.2]\nsecret = \"{SECRET_2}\"\n\
         [keys.3]\nsecret_file = \"key-3\"\n"
    );
    let (directory, arguments) = configured(&configuration)?;
    let at = directory.path();
    std::fs::write(at.join("key-1"), SECRET_1)?;
    std::fs::write(at.join("key-3"), "00112233445566778899aabbccddeeff")?;
    let checked = ok(at, &["config", "check", "unalike.toml"]);
    assert!(checked.contains("[keys.2] # file\nsecret = \"not shown\"\n"), "{checked}");
    assert!(checked.contains("secret_file = \"key-1\""), "{checked}");
    let mut said = vec![checked];
    let server = Server::start_in(Arc::clone(&directory), arguments)?;
    let client = server.client();
    for path in [
        "/v1/sequences/order/ids?count=3",
        "/v1/sequences/order/ids?format=hex",
        "/v1/decode/1?tag=order",
        "/v1/decode/9223372036854775807?tag=order",
        "/openapi.json",
        "/metrics",
    ] {
        said.push(client.get(path)?.body);
    }
    let ran = command(at, &["next", "order", "-n", "2"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    said.extend([ran.stdout, ran.stderr, server.log()?]);
    // Mistakes that one makes with them.
    let secret = SECRET_1;
    for text in [
        format!("keys = \"{secret}\"\n"),
        format!("[keys]\n1 = \"{secret}\"\n"),
        format!("[keys.1]\nsecret = [\"{secret}\"]\n"),
        format!("[keys.1]\nsecret = {{ text = \"{secret}\" }}\n"),
        format!("[keys.1]\nsecret = \"{secret}0\"\n"),
        format!("[keys.1]\nsecret = \"{secret}\n"),
        format!("[keys.1]\nsecret = {secret}\n"),
        format!("[keys.1]\nsecret = 0x{secret}\n"),
        format!("[keys.1]\nsecret_file = [\"{secret}\"]\n"),
        format!("[keys.1]\nsecret \"{secret}\"\n"),
        format!("[keys.1]\nsecret_file = \"{secret}\"\n"),
        format!("[keys.1]\nsecret_env = \"{secret}\"\n"),
    ] {
        std::fs::write(at.join("bad.toml"), &text)?;
        for arguments in [&["config", "check"][..], &["next", "order"]] {
            let ran = run(at, ["--config", "bad.toml"].iter().chain(arguments).copied())?;
            assert_eq!(ran.code, Some(1), "{text}: {ran:?}");
            said.extend([ran.stdout, ran.stderr]);
        }
    }
    // Half of one is too much as well.
    for secret in [SECRET_1, SECRET_2, "00112233445566778899aabbccddeeff"] {
        for text in &said {
            let text = text.to_lowercase();
            assert!(!text.contains(&secret[..12]) && !text.contains(&secret[20..]), "{text}");
        }
    }
    Ok(())
}

/// Each format differs in one line from the one before.
#[test]
fn one_line_of_the_configuration_that_differs_repeats_nothing() -> anyhow::Result<()> {
    let daily = "[tags.order]\ntemplate = \"ORD-{yyyyMMdd}-{id:06}\"\n";
    let (directory, arguments) = configured(&format!("{daily}restart = \"day\"\n"))?;
    let server = Server::start_in(Arc::clone(&directory), arguments.clone())?;
    let first = ids(&server.client(), "/v1/sequences/order/ids?count=3");
    drop(server);
    let configure = |text: &str| std::fs::write(directory.path().join("unalike.toml"), text);
    for (changed, said) in [
        (daily.to_owned(), "restart was day, and is never"),
        (format!("{}restart = \"day\"\n", daily.replace(":06", ":07")), "template is another one"),
        (format!("{daily}restart = \"day\"\ngene_bits = 4\n"), "gene_bits was 0, and is 4"),
    ] {
        configure(&changed)?;
        let next =
            if changed.contains("gene_bits") { &["next", "order", "--shard-key", "5"][..] } else { &["next", "order"] };
        for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], next] {
            let refused = command(directory.path(), arguments);
            assert!(refused.code == Some(1) && refused.stderr.contains(said), "{arguments:?}: {refused:?}");
        }
        let refused = command(directory.path(), &["tags", "format", "order"]);
        assert!(refused.code == Some(1) && refused.stdout.contains(said), "{refused:?}");
        assert!(refused.stderr.contains("nothing was changed"), "{refused:?}");
    }
    // Nobody shows its bare numbers either, and no word of an operator who has forgotten the configuration counts.
    configure("")?;
    for arguments in [&["tags", "format", "order"][..], &["tags", "format", "order", "--accept"]] {
        let refused = command(directory.path(), arguments);
        assert!(refused.code == Some(1) && refused.stderr.contains("the configuration has none"), "{refused:?}");
    }
    let refused = command(directory.path(), &["next", "order"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("is bound to another format"), "{refused:?}");
    let server = Server::start_in(Arc::clone(&directory), arguments.clone())?;
    for path in ["/v1/sequences/order/ids", "/v1/sequences/order/ids?sub=shop", "/v1/sequences/order/ids?count=2"] {
        let answer = server.get(path)?;
        assert_eq!(answer.problem()?, "format-bound", "{path}");
    }
    assert_eq!(texts(&server.get("/v1/sequences/other/ids")?), ["1"]);
    // Nor in segments.
    let granted =
        server.client().send("POST", "/v1/sequences/order/segments", "application/json", r#"{"count":"10"}"#)?;
    assert_eq!(granted.problem()?, "format-bound", "{granted:?}");
    drop(server);
    // As before, it goes on.
    configure(&format!("{daily}restart = \"day\"\nutc_offset = \"+00:00\"\n"))?;
    let server = Server::start_in(Arc::clone(&directory), arguments.clone())?;
    let again = ids(&server.client(), "/v1/sequences/order/ids?count=3");
    assert!(again.iter().all(|id| !first.contains(id)), "{first:?}, {again:?}");
    drop(server);
    // Whoever accepts what repeats goes on with it.
    configure(daily)?;
    let accepted = ok(directory.path(), &["tags", "format", "order", "--accept"]);
    assert!(accepted.contains("whole texts") && accepted.contains("accepted"), "{accepted}");
    assert!(ok(directory.path(), &["tags", "format", "order"]).contains("nothing repeats"));
    assert!(ok(directory.path(), &["next", "order"]).starts_with("ORD-"));
    let listed = ok(directory.path(), &["tags", "list"]);
    assert!(listed.contains("order") && !listed.contains("unalike-formats"), "{listed}");
    // Where there is nothing to accept, nothing is bound.
    for (name, said) in [("ordr", "unknown"), ("other", "no format is bound"), ("a\tb", "control character")] {
        let refused = command(directory.path(), &["tags", "format", name, "--accept"]);
        assert!(refused.code == Some(1) && refused.stderr.contains(said), "{name}: {refused:?}");
    }
    assert!(ok(directory.path(), &["tags", "format", "other"]).contains("its ids are bare numbers"));
    Ok(())
}

/// Such a table has no place for a format. Unalike's own beside it has.
#[test]
fn in_a_table_of_another_system_a_line_that_differs_repeats_nothing() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    let url = mariadb.database()?;
    let database = url.rsplit_once('/').context("a database")?.1;
    let store = format!("{url}?dialect=leaf&create=true");
    let keyed = |secret: &str| {
        let key = format!("[keys.1]\nsecret = \"{secret}\"\n");
        format!("{key}[tags.order]\ntemplate = \"ORD-{{id:08}}\"\nkeys = [1]\nbits = 24\n")
    };
    let (directory, _) = configured(&keyed(SECRET_1))?;
    let at = directory.path();
    let flags = |more: &[&'static str]| [&["--store", store.as_str()][..], more].concat();
    // Bare numbers leave no table behind.
    assert_eq!(ok(at, &flags(&["next", "bare"])), "1\n");
    assert_eq!(mariadb.sql(database, "SHOW TABLES LIKE 'unalike_tag'")?, "");
    let first = ok(at, &flags(&["next", "order", "-n", "20"]));
    assert!(first.starts_with("ORD-") && first.lines().count() == 20, "{first}");
    std::fs::write(at.join("unalike.toml"), keyed(SECRET_2))?;
    for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["next", "order"]] {
        let refused = command(at, &flags(arguments));
        let says = |what: &str| refused.stderr.contains(what);
        assert!(refused.code == Some(1) && says("the key 1 has another secret or context"), "{refused:?}");
    }
    let refused = command(at, &flags(&["tags", "format", "order"]));
    assert!(refused.code == Some(1) && refused.stdout.contains("another secret"), "{refused:?}");
    // Nor are its bare numbers shown.
    std::fs::write(at.join("unalike.toml"), "")?;
    fails(at, &flags(&["next", "order"]), "is bound to another format");
    assert_eq!(ok(at, &flags(&["next", "bare"])).lines().count(), 1);
    // As before, it goes on.
    std::fs::write(at.join("unalike.toml"), keyed(SECRET_1))?;
    let again = ok(at, &flags(&["next", "order", "-n", "20"]));
    assert!(again.lines().all(|id| !first.contains(id)), "{first}, {again}");
    let listed = ok(at, &flags(&["tags", "list"]));
    assert!(listed.contains("order") && !listed.contains("unalike"), "{listed}");
    Ok(())
}

/// Of a tag, and of a snowflake.
/// The store of the second server is up, and answers late.
#[test]
fn no_text_of_a_snowflake_is_shown_before_the_store_was_asked() -> anyhow::Result<()> {
    let mariadb = MariaDb::shared()?;
    let (url, proxy) = (mariadb.database()?, Proxy::start(mariadb.port())?);
    let start = |secret: &str, store: &str| {
        let keyed = "layout = \"cosid-53\"\nkeys = [1]\n";
        let (directory, mut arguments) =
            configured(&format!("[keys.1]\nsecret = \"{secret}\"\n[snowflakes.web]\n{keyed}"))?;
        arguments.extend(["--store", store, "--leases", "sqlite://leases.sqlite"].map(str::to_owned));
        Server::start_in(directory, arguments)
    };
    let first = start(SECRET_1, &url)?;
    assert_eq!(first.get("/v1/snowflakes/web/ids")?.status, 200);
    proxy.delay(Duration::from_millis(200));
    let second = start(SECRET_2, &format!("{}?connect-timeout-ms=30000", proxy.url(&url)))?;
    assert!(second.get("/v1/snowflakes/web/ids")?.status >= 400);
    proxy.delay(Duration::ZERO);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = second.get("/v1/snowflakes/web/ids")?;
        assert!(answer.status >= 400 && Instant::now() < deadline, "{answer:?}");
        if answer.problem()? == "format-bound" {
            return Ok(());
        }
    }
}

#[test]
fn another_secret_under_the_number_of_a_key_is_refused() -> anyhow::Result<()> {
    let keyed = |keys: &str, secrets: &[&str]| {
        let secrets = secrets.iter().map(|secret| format!("[keys.{}]\nsecret = \"{}\"\n", &secret[..1], &secret[1..]));
        secrets.collect::<String>()
            + &format!(
                "[tags.order]\nkeys = {keys}\nbits = 24\n[snowflakes.web]\nlayout = \"cosid-53\"\nkeys = {keys}\n"
            )
    };
    let (first, second) = (format!("1{SECRET_1}"), format!("2{SECRET_2}"));
    let (directory, arguments) = configured(&keyed("[1]", &[&first]))?;
    let server = Server::start_in(Arc::clone(&directory), arguments.clone())?;
    let shown = ids(&server.client(), "/v1/sequences/order/ids?count=50");
    ids(&server.client(), "/v1/snowflakes/web/ids");
    drop(server);
    let configure = |text: &str| std::fs::write(directory.path().join("unalike.toml"), text);
    configure(&keyed("[1]", &[&format!("1{SECRET_2}")]))?;
    for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["next", "order"]] {
        let refused = command(directory.path(), arguments);
        let says = |what: &str| refused.stderr.contains(what);
        assert!(refused.code == Some(1) && says("the key 1 has another secret or context"), "{refused:?}");
        assert!(!says(SECRET_1) && !says(SECRET_2), "{refused:?}");
    }
    for arguments in [["tags", "format", "order"].to_vec(), ["tags", "format", "web", "--snowflake"].to_vec()] {
        let refused = command(directory.path(), &arguments);
        assert!(
            refused.code == Some(1) && refused.stdout.contains("Give a new secret a number of its own"),
            "{refused:?}"
        );
    }
    // The snowflake alone.
    let without_tag = keyed("[1]", &[&format!("1{SECRET_2}")]).replace("[tags.order]\nkeys = [1]\nbits = 24\n", "");
    configure(&without_tag)?;
    let refused = command(directory.path(), &["serve", "--listen", "127.0.0.1:0"]);
    assert!(
        refused.code == Some(1) && refused.stderr.contains("the snowflake \"web\" is bound to another format"),
        "{refused:?}"
    );
    // A number of its own is what a new secret needs.
    configure(&keyed("[2, 1]", &[&first, &second]))?;
    let server = Server::start_in(Arc::clone(&directory), arguments)?;
    let rotated = ids(&server.client(), "/v1/sequences/order/ids?count=50");
    assert!(rotated.iter().all(|id| !shown.contains(id)));
    ids(&server.client(), "/v1/snowflakes/web/ids");
    Ok(())
}

/// A tag that goes on in another store has its format there: what was shown under its key may not come again.
#[test]
fn an_import_brings_the_format_of_a_tag_along() -> anyhow::Result<()> {
    let with = |secret: &str| {
        format!(
            "[keys.5]\nsecret = \"{secret}\"\n[tags.order]\nkeys = [5]\nkey_id_bits = 4\nbits = 28\n[tags.bill]\n\
             template = \"B-{{yyyyMMdd}}-{{id}}\"\nrestart = \"day\"\n"
        )
    };
    let (directory, _) = configured(&with(SECRET_1))?;
    let at = directory.path();
    let flags = |store: &'static str, more: &[&'static str]| [&["--store", store][..], more].concat();
    let (before, after, other) = ("sqlite://before.sqlite", "sqlite://after.sqlite", "sqlite://other.sqlite");
    for tag in ["order", "bill", "bare"] {
        ok(at, &flags(before, &["next", tag, "-n", "5"]));
    }
    // Where the tag has been shown otherwise, nothing is brought.
    std::fs::write(at.join("unalike.toml"), with(SECRET_2))?;
    ok(at, &flags(other, &["next", "order"]));
    let refused = command(at, &flags(other, &["tags", "import", "--from", before]));
    let said = |what: &str| refused.stderr.contains(what);
    assert!(refused.code == Some(1) && said("nothing was changed") && said("another format here"), "{refused:?}");
    assert!(said("the key 5 has another secret"), "{refused:?}");
    ok(at, &flags(after, &["tags", "import", "--from", before]));
    let refused = command(at, &flags(after, &["next", "order"]));
    assert!(refused.code == Some(1) && refused.stderr.contains("the key 5 has another secret"), "{refused:?}");
    std::fs::write(at.join("unalike.toml"), with(SECRET_1).replace("restart = \"day\"\n", ""))?;
    let refused = command(at, &flags(after, &["next", "bill"]));
    assert!(refused.code == Some(1) && refused.stderr.contains("restart was day"), "{refused:?}");
    std::fs::write(at.join("unalike.toml"), with(SECRET_1))?;
    for tag in ["order", "bill", "bare"] {
        ok(at, &flags(after, &["next", tag]));
    }
    assert!(ok(at, &flags(after, &["tags", "format", "bare"])).contains("no format is bound"));
    Ok(())
}

/// A template alone leaves numbers bare, and a gene does not: 16 * n + g of the one are numbers of the other.
#[test]
fn bare_numbers_are_refused_where_others_are_shown_for_the_ids() -> anyhow::Result<()> {
    let configuration = |line: &str| format!("drop_in = [\"leaf\"]\n[tags.order]\n{line}\n[tags.used]\n{line}\n");
    let (directory, arguments) = configured(&configuration("template = \"{id:06}\""))?;
    let bare = Server::start_in(Arc::clone(&directory), arguments)?;
    // Bare numbers bind the format that they belong to.
    assert_eq!(bare.get("/api/segment/get/used")?.body, "1");
    std::fs::write(directory.path().join("gene.toml"), configuration("gene_bits = 4"))?;
    let with_gene = ["--config", "gene.toml"].map(str::to_owned).to_vec();
    let refused = run(directory.path(), ["--config", "gene.toml", "serve", "--listen", "127.0.0.1:0"])?;
    assert!(refused.code == Some(1) && refused.stderr.contains("the tag \"used\" is bound"), "{refused:?}");
    std::fs::write(
        directory.path().join("gene.toml"),
        configuration("gene_bits = 4").split("[tags.used]").next().unwrap(),
    )?;
    let gene = Server::start_in(Arc::clone(&directory), with_gene)?;
    assert_eq!(ids(&gene.client(), "/v1/sequences/order/ids?shard_key=5"), ["21"]);
    for path in ["/v1/sequences/order/ids", "/api/segment/get/order"] {
        let answer = bare.get(path)?;
        assert!(answer.status >= 400, "{path}: {answer:?}");
    }
    let granted = bare.client().send("POST", "/v1/sequences/order/segments?count=10", "application/json", "")?;
    assert_eq!(granted.problem()?, "format-bound", "{granted:?}");
    Ok(())
}
