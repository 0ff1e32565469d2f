//! The command line, as its users see it: output, errors, exit codes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tempfile::TempDir;
use unalike_tests::server::{Ran, Server, binary, fails, ok, run, run_with};

fn numbers(text: &str) -> Vec<u64> {
    text.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn next_prints_ids_and_gives_the_rest_back() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    assert_eq!(ok(at, &["next", "order", "-n", "5"]), "1\n2\n3\n4\n5\n");
    assert_eq!(ok(at, &["next", "order"]), "6\n", "the rest of the segment went back to the store");
    assert_eq!(numbers(&ok(at, &["next", "order", "--count", "2500"])), (7..=2_506).collect::<Vec<_>>());
    assert!(at.join("unalike.sqlite").exists());

    let snowflakes = numbers(&ok(at, &["next", "default", "--snowflake", "-n", "3"]));
    let later = numbers(&ok(at, &["next", "default", "--snowflake"]));
    assert_eq!(snowflakes.len(), 3);
    assert!(snowflakes.is_sorted() && snowflakes[2] < later[0]);
}

#[test]
fn a_file_that_was_put_back_goes_on_once_the_printed_command_was_run() {
    let directory = TempDir::new().unwrap();
    let (at, file) = (directory.path(), directory.path().join("unalike.sqlite"));
    ok(at, &["next", "order", "-n", "5"]);
    std::fs::copy(&file, at.join("backup")).unwrap();
    ok(at, &["next", "order", "-n", "5"]);
    ok(at, &["next", "late", "-n", "5"]);
    std::fs::copy(at.join("backup"), &file).unwrap();
    fails(at, &["store", "adopt", "--lift", "1000"], 1, &["has no server", "unalike store restored --lift COUNT"]);
    let said = ok(at, &["store", "restored", "--lift", "1000"]);
    assert!(said.contains("tags: 1, each lifted by 1000") && said.contains("start the programs"), "{said}");
    assert!(said.contains("snowflakes: workers are leased from 20"), "{said}");
    assert_eq!(ok(at, &["next", "order"]), "1006\n");
    assert_eq!(ok(at, &["next", "late"]), "1001\n");
    fails(at, &["--store", "sqlite://none.sqlite", "store", "restored", "--lift", "5"], 1, &["does not exist"]);

    let restored = ["store", "restored", "--lift", "5"];
    for (leases, words) in [
        ("sqlite://unalike.sqlite", "snowflakes: workers are leased from 20"),
        ("none", "snowflakes: there are none (--leases none)"),
        (
            "zookeeper://zk/leases",
            "snowflakes: leases are kept in zookeeper://zk/leases, which is another store: `unalike --store \
             'zookeeper://zk/leases' store restored --lift COUNT` if that was restored",
        ),
    ] {
        let said = ok(at, &[&["--leases", leases], &restored[..]].concat());
        assert!(said.contains(words), "{words}: {said}");
        assert!(leases.starts_with("sqlite") || !said.contains("workers are leased from"), "{said}");
    }
}

#[test]
fn what_backs_no_redis_is_named_with_its_variable() {
    let directory = TempDir::new().unwrap();
    let given = [("UNALIKE_BACKING", "mysql://ids@db/ids")];
    let line = ["--store", "sqlite://b.sqlite", "store", "restored", "--lift", "10"];
    let ran = run_with(directory.path(), line, &given).unwrap();
    assert!(ran.code == Some(1) && ran.stderr.contains("the variable UNALIKE_BACKING"), "{ran:?}");
}

#[test]
fn next_shares_its_file_with_a_server() {
    let server = Server::start_with(["--store", "sqlite://ids.sqlite"]).unwrap();
    let served = server.get("/v1/sequences/order/ids?count=10").unwrap().ids().unwrap();
    let printed = numbers(&ok(server.directory(), &["--store", "sqlite://ids.sqlite", "next", "order", "-n", "10"]));
    let served_later = server.get("/v1/sequences/order/ids?count=10").unwrap().ids().unwrap();
    let mut all = [served, printed, served_later].concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 30);
}

#[test]
fn next_ends_when_its_reader_has_gone() {
    let directory = TempDir::new().unwrap();
    let mut process = Command::new(binary().unwrap())
        .current_dir(&directory)
        .args(["next", "order", "-n", "100000000", "--yes"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "1\n");
    let output = process.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.lines().count() == 1 && said.contains("made a new store"), "nothing but this: {said}");
}

#[test]
fn a_new_store_is_said_aloud_once_and_made_by_nobody_else() {
    let directory = TempDir::new().unwrap();
    // As the program names it.
    let at = &directory.path().canonicalize().unwrap();
    let none_is_there = || assert_eq!(std::fs::read_dir(at).unwrap().count(), 0, "no file was made");
    let missing = &["ids.sqlite does not exist", "check the path"];
    for command in [
        &["tags", "list"][..],
        &["tags", "show", "order"],
        &["tags", "raise", "order", "5"],
        &["tags", "change", "order", "--step", "5"],
        &["leases", "list"],
        &["leases", "release", "default", "1"],
        &["stripes", "resize", "--to", "sqlite://a.sqlite"],
    ] {
        fails(at, &[&["--store", "sqlite://ids.sqlite"], command].concat(), 1, missing);
        none_is_there();
    }
    let refused = ["--store", "sqlite://ids.sqlite?create=false", "next", "order"];
    fails(at, &refused, 1, missing);
    for (url, named) in [
        (
            "sqlite://ids.sqlite?mode=rwc",
            "\"mode\", which is unknown: there are create (true or false) and busy-timeout-ms",
        ),
        ("sqlite://ids.sqlite?cache=shared", "cache"),
        ("sqlite://ids.sqlite#x", "neither a #"),
        ("sqlite://:memory:", ":memory:"),
        ("sqlite://%69ds.sqlite", "%69ds"),
        ("mysql://ids@127.0.0.1:1/ids?mode=x", "\"mode\" is unknown: there are dialect, ssl-mode, ssl-ca, create,"),
        ("redis://127.0.0.1:1/0?mode=x", "\"mode\" is unknown: there are dialect, ssl-ca, prefix,"),
    ] {
        let more: &[&str] = if url.starts_with("redis") { &["--backing", "none"] } else { &[] };
        fails(at, &[&["--store", url], more, &["next", "order"]].concat(), 1, &[named]);
        none_is_there();
    }
    let ran = run(at, ["--store", "sqlite://ids.sqlite?create=true", "next", "order"]).unwrap();
    assert_eq!(ran.stdout, "1\n", "{ran:?}");
    let path = at.join("ids.sqlite");
    let said = |ran: &Ran, path: &Path| {
        let line = ran.stderr.lines().find(|line| line.contains("made a new store")).unwrap_or_default();
        let identity = line.split("identity=").nth(1).unwrap_or_default();
        let is_one = identity.trim_matches('"').split(['"', ' ']).next().unwrap_or_default().len() == 32;
        assert!(line.contains(&format!("path={}", path.display())) && is_one, "{ran:?}");
    };
    said(&ran, &path);
    let ran = run(at, refused).unwrap();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("2\n", ""), "it is there, and nothing is said");
    // A typo in the source of an import, and in what is resized, makes nothing; where tags are to go on, a store is
    // begun.
    let import = ["--store", "sqlite://new.sqlite", "tags", "import", "--from", "sqlite://nofile.sqlite"];
    fails(at, &import, 1, &["nofile.sqlite does not exist"]);
    fails(at, &["--store", "sqlite://nofile.sqlite", "stripes", "resize", "--to", "sqlite://a.sqlite"], 1, &["nofile"]);
    assert!(!at.join("nofile.sqlite").exists() && !at.join("a.sqlite").exists() && !at.join("new.sqlite").exists());
    let to = ["--to", "sqlite://ids.sqlite", "--to", "sqlite://two.sqlite"];
    let ran = run(at, [&["--store", "sqlite://ids.sqlite", "stripes", "resize"][..], &to].concat()).unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    said(&ran, &at.join("two.sqlite"));
    let fresh = at.join("fresh.sqlite");
    let ran = run(at, ["--store", "sqlite://fresh.sqlite", "tags", "create", "order"]).unwrap();
    said(&ran, &fresh);
}

#[test]
fn next_refuses_bad_input() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    fails(at, &["next"], 2, &["<NAME>", "Usage"]);
    fails(at, &["next", "order", "-n", "0"], 2, &["0", "--count"]);
    fails(at, &["next", "order", "-n", "many"], 2, &["many"]);
    fails(at, &["next", ""], 1, &["\"\"", "1 to 128 bytes"]);
    fails(at, &["next", &"x".repeat(129)], 1, &["1 to 128 bytes"]);
    fails(at, &["next", "a\nb"], 1, &["control character"]);
    fails(at, &["next", "nobody", "--snowflake"], 1, &["nobody", "[snowflakes.NAME]"]);
    fails(at, &["--create-tags", "false", "next", "order"], 1, &["order", "create it first"]);
    fails(at, &["--create-tags", "perhaps", "next", "order"], 2, &["perhaps", "--create-tags"]);
    assert_eq!(ok(at, &["next", "order"]), "1\n", "nothing was lost");
    fails(at, &["--tags-max", "1", "next", "another"], 1, &["another", "limit"]);
}

#[test]
fn what_is_refused_makes_no_store() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    for (command, named) in [
        (&["next", " order"][..], "has a space at an end"),
        (&["next", ""], "it is empty"),
        (&["next", "order", "--sub", ""], "its sub-key is empty"),
        (&["next", "order", "--sub", "north "], "has a space at an end"),
        (&["next", "redis-leases"], "is kept under this name"),
        (
            &["next", "nosuch", "--snowflake"],
            "no snowflake \"nosuch\" is configured, only \"default\": add [snowflakes.",
        ),
        (&["next", "default"], "is a snowflake: add --snowflake"),
        (&["next", "order", "--shard-key", "5"], "carry no bits of one"),
        (&["next", "default", "--snowflake", "--shard-key", "5"], "carry no bits of one"),
        (&["next", "order", "--format", "template"], "has no template"),
        (&["maelstrom", " order"], "has a space at an end"),
        (&["tags", "create", " x"], "has a space at an end"),
        (&["tags", "create", "redis-leases"], "is kept under this name"),
    ] {
        fails(at, command, 1, &[named]);
        assert_eq!(std::fs::read_dir(at).unwrap().count(), 0, "{command:?} made a file");
    }
    // What is there already is used, whatever its name is.
    ok(at, &["tags", "create", "default"]);
    assert_eq!(ok(at, &["next", "default"]), "1\n");
    fails(at, &["next", " order"], 1, &["has a space at an end"]);
}

#[test]
fn tags_are_created_listed_changed_and_raised() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    fails(at, &["tags", "list"], 1, &["unalike.sqlite does not exist"]);
    let created = ok(at, &["tags", "create", "invoice", "--start", "100", "--step", "10", "--refill", "3"]);
    let cells = |text: &str, row: usize| -> Vec<String> {
        text.lines().nth(row).unwrap().split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(cells(&created, 0), ["TAG", "SUB", "MODE", "START", "WATERMARK", "STEP", "REFILL"]);
    assert_eq!(cells(&created, 1), ["invoice", "buffered", "100", "99", "10", "3"]);
    assert_eq!(ok(at, &["next", "invoice"]), "100\n");
    let changed = ok(at, &["tags", "change", "invoice", "--step", "adaptive:5..50"]);
    assert_eq!(cells(&changed, 1)[4..], ["adaptive:5..50", "3"]);
    let changed = ok(at, &["tags", "change", "invoice", "--refill", "50%"]);
    assert_eq!(cells(&changed, 1)[4..], ["adaptive:5..50", "50%"]);
    let raised = ok(at, &["tags", "raise", "invoice", "5000"]);
    assert_eq!(cells(&raised, 1)[3], "4999");
    assert_eq!(ok(at, &["next", "invoice"]), "5000\n");
    ok(at, &["tags", "create", "strict", "--ordered"]);
    assert_eq!(ok(at, &["next", "strict", "-n", "2"]), "1\n2\n");
    let list = ok(at, &["tags", "list"]);
    assert_eq!(
        (list.lines().count(), &cells(&list, 1)[0], &cells(&list, 2)[..2]),
        (3, &"invoice".to_owned(), &["strict".to_owned(), "ordered".to_owned()][..])
    );
    assert_eq!(ok(at, &["tags", "list", "--after", "invoice"]).lines().count(), 2);
    assert_eq!(ok(at, &["tags", "list", "--limit", "1"]).lines().count(), 2);

    fails(at, &["tags", "create", "invoice"], 1, &["invoice", "exists already"]);
    fails(at, &["tags", "create", "x", "--start", "0"], 2, &["--start", "from 1 to 2^63 - 1"]);
    fails(at, &["tags", "create", "x", "--step", "0"], 2, &["--step", "0"]);
    fails(at, &["tags", "create", "x", "--refill", "101%"], 2, &["--refill", "101%"]);
    fails(at, &["tags", "change", "invoice"], 2, &["--step"]);
    fails(at, &["tags", "change", "nobody", "--step", "5"], 1, &["nobody", "unknown"]);
    // So many numbers are not thrown away by a slip.
    let far = ["tags", "raise", "invoice", "9223372036854775806"];
    fails(at, &far, 1, &["invoice", "5000", "9223372036854775806", "nothing was changed", "--yes"]);
    fails(at, &["tags", "raise", "invoice", "1000005002"], 1, &["1000000001 further on"]);
    assert!(ok(at, &["tags", "raise", "invoice", "1000005001"]).contains("1000005000"));
    assert!(ok(at, &[&far[..], &["--yes"]].concat()).contains("9223372036854775805"));
    fails(at, &["store", "adopt", "--lift", "1000000001"], 1, &["1000000001", "--yes"]);
    fails(at, &["store", "restored", "--lift", "1000000001"], 1, &["1000000001", "--yes"]);
    fails(
        at,
        &["stripes", "resize", "--to", "sqlite://x.sqlite", "--floor", "1000000001"],
        1,
        &["1000000001", "--yes"],
    );
    // After a loss, an id would create it from its first number on.
    let refused = fails(at, &["tags", "raise", "nobody", "5000"], 1, &["nobody", "unknown"]);
    assert!(!refused.stderr.contains("by taking an id"), "{refused:?}");
    assert_eq!(paste(at, refused.stderr.split('`').nth(1).unwrap()).code, Some(0));
    assert_eq!(ok(at, &["next", "nobody"]), "5000\n");
    fails(at, &["tags", "raise", "strict", "5000", "--sub", "nobody"], 1, &["nobody", "throw", "then raise it"]);
    fails(at, &["tags", "raise", "invoice", "0"], 2, &["<NEXT>", "1 to 2^63 - 1"]);
    fails(at, &["tags", "raise", "invoice", "9223372036854775808"], 2, &["<NEXT>", "1 to 2^63 - 1"]);
}

#[test]
fn decode_takes_an_id_apart() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    let text = ok(at, &["decode", "1169786042799259000", "--layout", "leaf"]);
    for part in ["2019-09-06T01:35:00.834Z", "1567733700834", "worker      39 (workerId)\n", "sequence    3448"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(ok(at, &["decode", "1169786042799259000", "--layout", "twitter"]).contains("datacenter  1\n"));
    for id in ["0", "x", "9223372036854775808", ""] {
        fails(at, &["decode", id], 1, &[&format!("{id:?}"), "1 to 9223372036854775807"]);
    }
    fails(at, &["decode", "9223372036854775807", "--layout", "cosid-53"], 1, &["cosid-53", "9007199254740991"]);
    fails(at, &["decode", "1", "--layout", "nobody's"], 1, &["nobody's", "twitter", "sonyflake"]);
    assert!(!at.join("unalike.sqlite").exists(), "no store is needed for it");
}

#[test]
fn layouts_tell_limits_and_ends() {
    let directory = TempDir::new().unwrap();
    let text = ok(directory.path(), &["layouts"]);
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    for figure in ["63 = 41/5+5/12", "4096000", "1024", "2080-07-10"] {
        assert!(line("twitter").contains(figure), "{text}");
    }
    assert!(line("baidu").contains("has ended"));
    assert!(!line("twitter").contains("ended"));
    assert!(line("sonyflake").contains("25600"));
}

#[test]
fn help_has_examples() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    for (arguments, words) in [
        (
            &["--help"][..],
            &["unalike next order -n 5", "curl", "UNALIKE_STORE", "Exit codes", "unalike leases list"][..],
        ),
        (&["serve", "--help"], &["--listen", "UNALIKE_LISTEN", "/v1/sequences/TAG/ids", "SIGTERM", "127.0.0.1:8080"]),
        (&["next", "--help"], &["--snowflake", "--count"]),
        (&["tags", "create", "--help"], &["adaptive:MIN..MAX", "10%"]),
        (&["leases", "--help"], &["list", "release", "init"]),
        (&["leases", "release", "--help"], &["<NAMESPACE>", "<WORKER>", "until it ends"]),
    ] {
        let help = ok(at, arguments);
        for word in words {
            assert!(help.contains(word), "{arguments:?} does not show {word:?}: {help}");
        }
    }
    assert!(ok(at, &["--version"]).starts_with("unalike 0."));
    fails(at, &["sevre"], 2, &["sevre", "serve"]);
    fails(at, &["serve", "--lisen", "x"], 2, &["--lisen", "--listen"]);
}

#[test]
fn shells_complete_commands_and_flags_and_each_command_has_a_manual_page() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    std::fs::write(at.join("unalike.bash"), ok(at, &["completions", "bash"])).unwrap();
    let completed = |words: &str, count: usize| {
        let script = format!(
            "source ./unalike.bash; COMP_WORDS=({words}); COMP_CWORD={count}; _unalike unalike \"${{COMP_WORDS[{count}]}}\" \
             \"${{COMP_WORDS[{count}-1]}}\"; echo \"${{COMPREPLY[@]}}\""
        );
        let output = Command::new("bash").args(["-c", &script]).current_dir(at).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(completed("unalike ser", 1), "serve\n");
    assert_eq!(completed("unalike tags cr", 2), "create\n");
    assert!(completed("unalike serve --con", 2).contains("--connections-max"), "a flag of the server");
    assert!(ok(at, &["completions", "zsh"]).starts_with("#compdef unalike\n"));
    assert!(ok(at, &["completions", "fish"]).contains("complete -c unalike"));

    ok(at, &["man", "."]);
    let commands = ok(at, &["help"]);
    let commands = commands.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty()).filter_map(|line| line.strip_prefix("  "));
    let commands: Vec<_> = commands.filter_map(|line| line.split(' ').next().filter(|word| !word.is_empty())).collect();
    assert!(commands.contains(&"serve") && commands.len() > 15, "{commands:?}");
    for command in commands.into_iter().filter(|command| *command != "help") {
        let page = std::fs::read_to_string(at.join(format!("unalike-{command}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
    }
    assert!(std::fs::read_to_string(at.join("unalike.1")).unwrap().contains("unalike\\-serve(1)"));
    fails(at, &["man", "nowhere"], 1, &["cannot be written to nowhere"]);
}

#[test]
fn a_port_in_use_is_named_and_no_file_is_made() {
    let directory = TempDir::new().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    fails(directory.path(), &["serve", "--listen", &address], 1, &[&address, "--listen", "in use"]);
    fails(directory.path(), &["serve", "--listen", "nonsense"], 1, &["nonsense", "--listen"]);
    assert!(!directory.path().join("unalike.sqlite").exists());
}

#[test]
fn a_store_that_cannot_be_used_is_named_and_left_alone() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    let commands = [&["serve", "--listen", "127.0.0.1:0"][..], &["next", "order"], &["tags", "list"]];
    std::fs::create_dir(at.join("folder")).unwrap();
    std::fs::write(at.join("text.sqlite"), "no database, but long enough to be one. ".repeat(100)).unwrap();
    // A store whose middle was overwritten.
    ok(at, &["--store", "sqlite://torn.sqlite", "next", "order"]);
    let mut torn = std::fs::read(at.join("torn.sqlite")).unwrap();
    for byte in torn.iter_mut().skip(16).take(2_000) {
        *byte = 0xa5;
    }
    std::fs::write(at.join("torn.sqlite"), &torn).unwrap();
    for command in commands {
        for (store, named) in [
            ("sqlite://folder", &["folder", "directory"][..]),
            ("sqlite://missing/ids.sqlite", &["missing", "does not exist"]),
            ("sqlite://text.sqlite", &["text.sqlite", "database"]),
            ("sqlite://torn.sqlite", &["torn.sqlite"]),
            ("sqlite:///dev/null/ids.sqlite", &["/dev/null"]),
            ("sqlite:///proc/ids.sqlite", &["/proc/ids.sqlite"]),
            ("sqlite://", &["names no file", "sqlite://PATH"]),
            // Nothing listens on the first port.
            ("mysql://ids:secret@127.0.0.1:1/ids", &["mysql://ids@127.0.0.1:1/ids"]),
            ("mysql://ids:secret@127.0.0.1:1", &["mysql://ids@127.0.0.1:1", "names no database"]),
            ("redis://ids:secret@127.0.0.1/0", &["redis://ids@127.0.0.1/0", "--backing sqlite://PATH"]),
            ("kafka://127.0.0.1/0", &["kafka", "sqlite://PATH", "mysql://", "redis://"]),
            ("ids.sqlite", &["ids.sqlite", "sqlite://PATH"]),
        ] {
            let arguments = [&["--store", store][..], command].concat();
            let ran = fails(at, &arguments, 1, named);
            assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
        }
    }
    assert_eq!(std::fs::read(at.join("torn.sqlite")).unwrap(), torn);
    assert!(std::fs::read_to_string(at.join("text.sqlite")).unwrap().starts_with("no database"));
}

#[test]
fn bad_configuration_is_named() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    for (text, named) in [
        ("lisen = \"127.0.0.1:0\"", &["unknown key lisen", "did you mean listen?"][..]),
        ("colour = 5", &["unknown key colour", "the keys are store"]),
        ("count_max = \"many\"", &["count_max", "many"]),
        ("count_max = 0", &["count_max is 0", "1 to 1000000"]),
        ("[snowflakes.web]\nlayout = \"loof\"", &["web", "loof", "leaf"]),
        ("[snowflakes.web]\nlayout = \"leaf\"\nepoch = 1", &["epoch"]),
        ("[snowflakes.web]", &["layout"]),
        ("[snowflakes.\"\"]\nlayout = \"leaf\"", &["snowflake", "empty"]),
        ("not toml", &["unalike.toml"]),
    ] {
        std::fs::write(at.join("unalike.toml"), text).unwrap();
        fails(at, &["serve", "--config", "unalike.toml"], 1, named);
    }
    fails(at, &["serve", "--config", "missing.toml"], 1, &["missing.toml"]);
    fails(at, &["serve", "--count-max", "0"], 1, &["count_max is 0"]);
    fails(at, &["--log", "lo=ud=", "next", "order"], 1, &["--log"]);
    let ran = run_with(at, ["serve"], &[("UNALIKE_TAGS_MAX", "lots")]).unwrap();
    assert!(ran.code == Some(2) && ran.stderr.contains("lots"), "{ran:?}");
    assert!(!at.join("unalike.sqlite").exists());
}

#[test]
fn the_default_configuration_is_valid_and_is_what_is_effective_without_one() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    let text = ok(at, &["config", "default"]);
    std::fs::write(at.join("unalike.toml"), &text).unwrap();
    // The drain is set by the environment of these tests.
    let values = |printed: &str| -> Vec<String> {
        let lines = printed.lines().filter(|line| !line.starts_with("drain_ms"));
        lines.map(|line| line.split(" # ").next().unwrap().to_owned()).collect()
    };
    let with_file = ok(at, &["config", "check", "unalike.toml"]);
    assert_eq!(values(&with_file), values(&ok(at, &["config", "check"])));
    assert!(with_file.contains("listen = \"127.0.0.1:8080\" # file\n"), "{with_file}");
    assert!(with_file.contains("drain_ms = 0 # flag or environment\n"), "{with_file}");
    assert!(with_file.contains("# tokens is not set"), "{with_file}");
    for line in with_file.lines().filter(|line| line.contains(" = ") && !line.starts_with("drain_ms")) {
        let setting = line.split(" # ").next().unwrap();
        // Said in a file, this default would be more than the default.
        let setting = if setting == "create_tags = true" { "# create_tags = true" } else { setting };
        assert!(text.contains(&format!("\n{setting}\n")), "{setting:?} is not in {text}");
    }
    assert!(!at.join("unalike.sqlite").exists());
}

#[test]
fn config_check_says_what_is_effective_and_why() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    std::fs::write(
        at.join("tokens.toml"),
        "[[tokens]]\nname = \"a\"\ntoken = \"0123456789abcdef\"\nscope = \"read\"\n",
    )
    .unwrap();
    let file = "listen = \"0.0.0.0:0\"\ntokens = \"tokens.toml\"\ncount_max = 5\nworker = \"ordinal\"\n[snowflakes.web]\n\
                layout = \"leaf\"\nclock = \"wait:5\"\nspread = \"rotating:3\"\n";
    std::fs::write(at.join("unalike.toml"), file).unwrap();
    let environment = [
        ("UNALIKE_CONFIG", "unalike.toml"),
        ("UNALIKE_COUNT_MAX", "7"),
        ("UNALIKE_WORKER", "9"),
        ("UNALIKE_LOCAL_LEASES", "leases"),
    ];
    let ran = run_with(at, ["--store", "sqlite://x.sqlite", "config", "check"], &environment).unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for line in [
        "store = \"sqlite://x.sqlite\" # flag or environment",
        "listen = \"0.0.0.0:0\" # file",
        "count_max = 7 # flag or environment",
        "tags_max = 1000000 # default",
        "create_tags = true # default; not in the tables of other systems, unless true is said here",
        "[snowflakes.\"web\"] # file",
        "layout = \"leaf\"",
        "clock = \"wait:5\"",
        "spread = \"rotating:3\"",
        "worker = 9 # flag or environment",
        "local_leases = \"leases\" # flag or environment",
        "lease_horizon_max_ms = 600000 # default",
        "unsafe_static_worker = false # default",
        "# leases is not set",
        "# the token file is valid: 1 tokens",
    ] {
        assert!(ran.stdout.lines().any(|printed| printed == line), "no {line:?} in {}", ran.stdout);
    }
    assert!(!ran.stdout.contains("0123456789abcdef"));
    // What would keep the server from starting fails here too.
    fails(at, &["config", "check", "missing.toml"], 1, &["missing.toml"]);
    std::fs::write(at.join("bad.toml"), "listen = \"0.0.0.0:0\"").unwrap();
    fails(at, &["config", "check", "bad.toml"], 1, &["--tokens FILE", "--insecure-no-auth"]);
    std::fs::write(at.join("bad.toml"), "head_timeout_ms = 5").unwrap();
    fails(at, &["config", "check", "bad.toml"], 1, &["head_timeout_ms is 5, it must be 100 to 600000"]);
    std::fs::write(at.join("bad.toml"), "tokens = \"missing.toml\"").unwrap();
    fails(at, &["config", "check", "bad.toml"], 1, &["token file missing.toml cannot be used"]);
    let ran = run_with(at, ["config", "check"], &[("UNALIKE_IDLE_TIMEOUT_MS", "soon")]).unwrap();
    assert!(ran.code == Some(2) && ran.stderr.contains("soon"), "{ran:?}");
}

#[test]
fn flags_come_before_environment_before_file_before_defaults() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    std::fs::write(at.join("unalike.toml"), "store = \"sqlite://file.sqlite\"\n").unwrap();
    let environment = [("UNALIKE_CONFIG", "unalike.toml")];
    assert_eq!(run_with(at, ["next", "order"], &environment).unwrap().stdout, "1\n");
    assert!(at.join("file.sqlite").exists());
    let environment = [environment[0], ("UNALIKE_STORE", "sqlite://environment.sqlite")];
    assert_eq!(run_with(at, ["next", "order"], &environment).unwrap().stdout, "1\n");
    assert!(at.join("environment.sqlite").exists());
    let flags = ["--store", "sqlite://flag.sqlite", "next", "order"];
    assert_eq!(run_with(at, flags, &environment).unwrap().stdout, "1\n");
    assert!(at.join("flag.sqlite").exists());
    assert!(!at.join("unalike.sqlite").exists());
}

#[test]
fn unalike_alone_serves() {
    let directory = TempDir::new().unwrap();
    // With a port of its own: 8080 may be in use.
    let mut process = Command::new(binary().unwrap())
        .current_dir(&directory)
        .env("UNALIKE_LISTEN", "127.0.0.1:0")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let ready = BufReader::new(process.stdout.take().unwrap()).read_line(&mut line);
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(ready.is_ok() && line.starts_with("listening on http://127.0.0.1:"), "{line}");
    assert!(directory.path().join("unalike.sqlite").exists());
}

#[test]
fn a_server_says_why_it_does_not_start() {
    let directory = Arc::new(TempDir::new().unwrap());
    let error = Server::start_in(directory, vec!["--store".into(), "sqlite://missing/ids.sqlite".into()]).unwrap_err();
    assert!(error.to_string().contains("does not exist"), "{error:#}");
}

#[test]
fn a_sub_key_has_numbers_of_its_own() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    ok(at, &["tags", "create", "chat", "--step", "10", "--start", "5"]);
    assert_eq!(ok(at, &["next", "chat", "--sub", "user_1", "-n", "3"]), "5\n6\n7\n");
    assert_eq!(ok(at, &["next", "chat", "--sub", "user_2"]), "5\n");
    assert_eq!(ok(at, &["next", "chat", "--sub", "user_1"]), "8\n");
    let raised = ok(at, &["tags", "raise", "chat", "100", "--sub", "user_1"]);
    assert!(raised.lines().nth(1).unwrap().starts_with("chat  user_1  buffered  5      99"), "{raised}");
    assert_eq!(ok(at, &["next", "chat", "--sub", "user_1"]), "100\n");
    ok(at, &["tags", "change", "chat", "--sub", "user_2", "--step", "20"]);
    let list = ok(at, &["tags", "list", "--after", "chat"]);
    assert_eq!(list.lines().count(), 3, "{list}");
    assert_eq!(ok(at, &["tags", "list", "--after", "chat", "--after-sub", "user_1"]).lines().count(), 2);
    fails(at, &["next", "chat", "--sub", ""], 1, &["sub-key is empty"]);
    fails(at, &["next", "chat", "--sub", "a\tb"], 1, &["control character"]);
    fails(at, &["next", "chat\u{1f}user_1"], 1, &["control character"]);
    fails(at, &["tags", "raise", "chat\u{1f}user_1", "5"], 1, &["control character"]);
    fails(at, &["next", "default", "--snowflake", "--sub", "x"], 2, &["--sub", "--snowflake"]);
    fails(at, &["tags", "list", "--after-sub", "x"], 2, &["--after"]);
}

#[test]
fn tags_are_declared_as_the_channels_of_an_issuer() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    let file = "[tags.order]\nchannel = \"unordered\"\nbuff_size = 50\nprefix = 12\n[tags.chat]\nchannel = \"slow-ordered\"\n\
                [tags.flake]\nchannel = \"quick\"\n";
    std::fs::write(at.join("unalike.toml"), file).unwrap();
    let with = |more: &[&'static str]| [&["--config", "unalike.toml"], more].concat();
    assert_eq!(ok(at, &with(&["next", "order", "-n", "2"])), "120000000000000000\n120000000000000001\n");
    assert_eq!(ok(at, &with(&["next", "chat", "--sub", "a"])), "1\n");
    assert!(numbers(&ok(at, &with(&["next", "flake"])))[0] > 1 << 53);
    fails(at, &with(&["next", "flake", "--sub", "a"]), 1, &["flake", "quick"]);
    let list = ok(at, &["tags", "list"]);
    let row =
        |name: &str| list.lines().find(|line| line.starts_with(name)).unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(row("order")[1..], ["buffered", "120000000000000000", "120000000000000001", "50", "5"]);
    assert_eq!(row("chat")[..2], ["chat", "ordered"]);
    assert!(!list.contains("flake"), "no store keeps it");
    let checked = ok(at, &["config", "check", "unalike.toml"]);
    assert!(
        checked.contains("[tags.\"order\"] # file\nbuff_size = 50\nchannel = \"unordered\"\nprefix = 12\n"),
        "{checked}"
    );

    // Another step is the store's affair, and another mode nobody's.
    std::fs::write(at.join("unalike.toml"), "[tags.order]\nchannel = \"unordered\"\nbuff_size = 60\n").unwrap();
    let ran = run(at, with(&["next", "order"])).unwrap();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "120000000000000002\n"));
    assert!(ran.stderr.contains("WARN") && ran.stderr.contains("tags change"), "{}", ran.stderr);
    std::fs::write(at.join("unalike.toml"), "[tags.order]\nchannel = \"slow-ordered\"\n").unwrap();
    for command in [&["next", "order"][..], &["serve", "--listen", "127.0.0.1:0"]] {
        fails(at, &with(command), 1, &["order", "buffered in the store", "declared ordered"]);
    }

    let created = ok(at, &["tags", "create", "invoice", "--channel", "unordered", "--buff-size", "7", "--prefix", "3"]);
    assert!(created.contains("300000000000000000"), "{created}");
    assert!(ok(at, &["tags", "create", "strict", "--channel", "slow-ordered"]).contains("ordered"));
    fails(at, &["tags", "create", "x", "--channel", "quick"], 1, &["[tags.NAME]"]);
    fails(at, &["tags", "create", "x", "--channel", "ordered"], 1, &["Redis", "slow-ordered"]);
    fails(at, &["tags", "create", "x", "--channel", "slow-ordered", "--prefix", "1"], 1, &["prefix"]);
    fails(at, &["tags", "create", "x", "--channel", "unordered", "--step", "5"], 2, &["--step"]);
    fails(at, &["tags", "create", "x", "--buff-size", "5"], 2, &["--channel"]);
}

#[test]
fn no_password_is_ever_shown() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    std::fs::write(at.join("password"), "secret\n").unwrap();
    let stores = [
        "mysql://ids:secret@127.0.0.1:1/ids",
        "mysql://ids@127.0.0.1:1/ids?password-file=password",
        "mysql://ids@127.0.0.1:1/ids?password-env=DB_PASSWORD",
        "mysql://ids@127.0.0.1:1/ids?password=secret",
        "mysql://ids:secret@127.0.0.1:1/ids?password-file=password",
        "mysql://ids:sec/ret@127.0.0.1:1/ids",
        "mysql://ids:secret@127.0.0.1:1/ids?colour=red",
        "redis://ids:secret@127.0.0.1/0",
        "redis://:secret@127.0.0.1:1?password-file=password",
        "rediss://ids:sec/ret@127.0.0.1:1",
        "ids:secret@127.0.0.1",
    ];
    for store in stores {
        std::fs::write(at.join("unalike.toml"), format!("store = \"{store}\"\n")).unwrap();
        for command in
            [&["config", "check"][..], &["next", "order"], &["serve", "--listen", "127.0.0.1:0"], &["--help"]]
        {
            let environment = [("DB_PASSWORD", "secret"), ("UNALIKE_LOG", "trace")];
            let by_file = run_with(at, [&["--config", "unalike.toml"], command].concat(), &environment).unwrap();
            let by_variable =
                run_with(at, command.iter().copied(), &[environment[0], ("UNALIKE_STORE", store)]).unwrap();
            for ran in [by_file, by_variable] {
                let said = ran.stdout + &ran.stderr;
                assert!(!said.contains("secret") && !said.contains("sec/ret"), "{store} {command:?}: {said}");
            }
        }
    }
    let sources = ["mysql//ids:secret@h/ids", "mysql:ids:secret@h/ids", "redis:/:secret@h/0", "//ids:secret@h/ids"];
    for source in sources.into_iter().chain(stores) {
        let (import, rebind) = (["tags", "import", "--from", source], ["store", "rebind", "--from", source]);
        let redis = ["--store", "redis://127.0.0.1:1/0", "--backing", "sqlite://a.sqlite"];
        let resize = ["stripes", "resize", "--to", source, "sqlite://b.sqlite"];
        for command in [&import[..], &[&redis[..], &rebind].concat(), &resize] {
            let ran = run_with(at, command.iter().copied(), &[("DB_PASSWORD", "secret")]).unwrap();
            let said = ran.stdout + &ran.stderr;
            assert!(
                ran.code != Some(0) && !said.contains("secret") && !said.contains("sec/ret"),
                "{command:?}: {said}"
            );
        }
    }
    let shown = ok(at, &["--store", stores[1], "config", "check"]);
    assert!(shown.contains("store = \"mysql://ids@127.0.0.1:1/ids?password-file=password\""), "{shown}");
    let shown = ok(at, &["--store", stores[0], "config", "check"]);
    assert!(shown.contains("store = \"mysql://ids@127.0.0.1:1/ids\""), "{shown}");
    fails(at, &["--store", stores[2], "config", "check"], 1, &["DB_PASSWORD", "password-env"]);
}

#[test]
fn several_stores_are_a_list_in_each_of_the_ways() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    let line = "store = [\"sqlite://a.sqlite\",\"sqlite://b.sqlite\"] # ";
    let shown = ok(at, &["--store", "sqlite://a.sqlite", "--store", "sqlite://b.sqlite", "config", "check"]);
    assert!(shown.contains(&format!("{line}flag or environment")), "{shown}");
    let environment = [("UNALIKE_STORE", "sqlite://a.sqlite\nsqlite://b.sqlite")];
    let shown = run_with(at, ["config", "check"], &environment).unwrap().stdout;
    assert!(shown.contains(&format!("{line}flag or environment")), "{shown}");
    std::fs::write(at.join("unalike.toml"), "store = [\"sqlite://a.sqlite\", \"sqlite://b.sqlite\"]\n").unwrap();
    let shown = ok(at, &["config", "check", "unalike.toml"]);
    assert!(shown.contains(&format!("{line}file")), "{shown}");
    fails(
        at,
        &["--store", "sqlite://a.sqlite", "--store", "sqlite://./a.sqlite", "next", "order"],
        1,
        &["given twice"],
    );
}

#[test]
fn snowflakes_need_a_store_for_leases() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    let flake = ok(at, &["--leases", "sqlite://leases.sqlite", "next", "default", "--snowflake"]);
    assert_eq!((flake.lines().count(), at.join("leases.sqlite").exists()), (1, true));
    fails(at, &["--leases", "none", "next", "default", "--snowflake"], 1, &["--leases", "sqlite://PATH"]);
}

#[test]
fn schema_prints_tables_and_the_least_privileges() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    let text = ok(at, &["schema", "--user", "o'brien@10.%"]);
    for line in [
        "CREATE TABLE IF NOT EXISTS unalike_store (",
        "GRANT SELECT, INSERT, UPDATE ON unalike_store TO 'o''brien'@'10.%';",
        // Leases move along with a store whose leases are beside it.
        "CREATE TABLE IF NOT EXISTS unalike_lease (",
    ] {
        assert!(text.lines().any(|printed| printed == line), "no {line:?} in {text}");
    }
    assert!(!text.contains(";;"));
    let said = run(at, ["schema"]).unwrap().stderr;
    assert!(said.contains("sqlite://unalike.sqlite needs none") && said.contains("for MySQL"), "{said}");
    assert_eq!(run(at, ["schema", "--dialect", "unalike"]).unwrap().stderr, "");
    fails(at, &["schema", "--dialect", "loof"], 1, &["loof", "tinyid"]);
    fails(at, &["schema", "upgrade"], 1, &["sqlite://unalike.sqlite", "MySQL"]);
    assert!(!at.join("unalike.sqlite").exists(), "no store is needed for it");
}

#[test]
fn tags_go_on_in_another_store() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    let old = |arguments: &[&'static str]| ok(at, &[&["--store", "sqlite://old.sqlite"], arguments].concat());
    old(&["tags", "create", "order", "--step", "10", "--refill", "3"]);
    old(&["tags", "create", "strict", "--ordered", "--start", "500"]);
    old(&["next", "order", "-n", "25"]);
    old(&["next", "strict"]);
    old(&["next", "strict", "--sub", "a", "-n", "2"]);
    let import = |more: &[&'static str]| {
        [&["tags", "import", "--from", "sqlite://old.sqlite", "--source-stopped"], more].concat()
    };
    let cells = |text: &str| -> Vec<Vec<String>> {
        text.lines().skip(1).map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    };

    fails(at, &import(&["--tag", "order", "--at", "25"]), 1, &["--at is 25", "up to 25", "nothing was changed"]);
    fails(at, &import(&["--at", "26"]), 2, &["--tag"]);
    fails(
        at,
        &import(&["--tag", "order", "--at", "1000000027"]),
        1,
        &["1000000001 further on", "nothing was changed", "--yes"],
    );
    fails(at, &import(&["--tag", "order", "--tag", "strict", "--at", "600"]), 1, &["one tag"]);
    fails(at, &import(&["--tag", "nobody"]), 1, &["nobody", "is not in the source"]);
    fails(at, &["tags", "import", "--from", "leaf"], 1, &["leaf", "dialect=leaf"]);
    fails(at, &["tags", "import", "--from", "sqlite://unalike.sqlite"], 1, &["the store itself"]);

    let done = ok(at, &import(&[]));
    assert_eq!(
        cells(&done),
        [
            &["order", "25", "26", "created"][..],
            &["strict", "500", "501", "created"],
            &["strict", "a", "501", "502", "created"],
        ]
    );
    assert_eq!(ok(at, &["next", "order"]), "26\n");
    assert_eq!(ok(at, &["next", "strict"]), "501\n");
    assert_eq!(ok(at, &["next", "strict", "--sub", "a"]), "502\n");
    let list = ok(at, &["tags", "list"]);
    assert_eq!(cells(&list)[0], ["order", "buffered", "26", "26", "10", "3"]);
    assert_eq!(cells(&list)[1][..2], ["strict", "ordered"]);

    // Again: nothing is lowered, and what went on in the old store is passed.
    old(&["next", "order", "-n", "75"]);
    // 100, or a little more: what had crossed into a run is not given back.
    let last: u64 = cells(&old(&["tags", "list"]))[0][3].parse().unwrap();
    assert!((100..130).contains(&last), "{last}");
    let done = ok(at, &import(&[]));
    assert_eq!(cells(&done)[0], ["order", &last.to_string(), &(last + 1).to_string(), "raised"]);
    assert!(done.contains("was here, further on"), "{done}");
    assert_eq!(ok(at, &["next", "order"]), format!("{}\n", last + 1));
    assert_eq!(ok(at, &["next", "strict"]), "502\n");
    // What would break off is finished in this store, whatever the next one has by default.
    old(&["tags", "create", "later"]);
    let here = "sqlite://unalike.sqlite?create=false";
    let ran = run(at, ["--store", here, "tags", "import", "--from", "sqlite://old.sqlite", "--tag", "later"]).unwrap();
    let finish = format!(
        "finish it with: unalike --store '{here}' tags import --from 'sqlite://old.sqlite' --tag='later' --at 1"
    );
    assert!(ran.code == Some(0) && ran.stderr.contains(&finish), "{ran:?}");

    let done = ok(at, &import(&["--tag", "order", "--at", "5000"]));
    assert_eq!(cells(&done), [["order", &last.to_string(), "5000", "raised"]]);
    assert_eq!(ok(at, &["next", "order"]), "5000\n");
}

/// The words that a shell in this directory makes of a command line of unalike's.
fn words_of(at: &Path, line: &str) -> Vec<String> {
    let arguments = line.strip_prefix("unalike ").unwrap_or_else(|| panic!("no command: {line}"));
    let shell = Command::new("sh").arg("-c").arg(format!("printf '%s\\0' {arguments}")).current_dir(at).output();
    let shell = shell.unwrap();
    assert!(shell.status.success(), "{line}: {shell:?}");
    String::from_utf8(shell.stdout).unwrap().split_terminator('\0').map(str::to_owned).collect()
}

/// Runs a command line as somebody does who pastes it.
fn paste(at: &Path, line: &str) -> Ran {
    let arguments = words_of(at, line);
    run(at, arguments.iter().map(String::as_str)).unwrap()
}

#[test]
fn a_command_that_is_printed_runs_nothing_but_itself() {
    const NAMES: [&str; 12] = [
        "$(touch pwned)",
        "`touch pwned`",
        "$HOME",
        "it's",
        "a\"b",
        "back\\slash",
        "-n",
        "--at",
        "; touch pwned #",
        "a  b",
        "!!",
        "*",
    ];
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    // A store's name is the operator's, and a word, too.
    let (from, here) = ("sqlite://old it's $(touch pwned).sqlite", "sqlite://new it's `touch pwned`.sqlite");
    for name in NAMES {
        ok(at, &["--store", from, "tags", "create", "--", name]);
    }
    ok(at, &["--store", from, "next", "$HOME", "--sub", "$(touch pwned)'s"]);
    let ran = run(at, ["--store", here, "tags", "import", "--from", from]).unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let printed: Vec<&str> =
        ran.stderr.lines().filter_map(|line| line.split_once("finish it with: ")).map(|(_, command)| command).collect();
    assert_eq!(printed.len(), NAMES.len() + 1, "{ran:?}");
    for name in NAMES {
        let tag = format!("--tag={name}");
        let expected = ["--store", here, "tags", "import", "--from", from, &tag, "--at"];
        let found = printed.iter().map(|line| words_of(at, line)).find(|words| words.get(6) == Some(&tag));
        assert_eq!(found.unwrap_or_else(|| panic!("none for {name:?}: {printed:?}"))[..8], expected, "{name:?}");
    }
    let sub = printed
        .iter()
        .map(|line| words_of(at, line))
        .find(|words| words.contains(&"--sub=$(touch pwned)'s".to_owned()));
    assert_eq!(sub.unwrap()[6], "--tag=$HOME");

    // The journal's lines are such commands, too, and finish what broke off.
    let full = "sqlite://full.sqlite";
    let name = "$(touch pwned) `touch pwned` it's \"so\"";
    ok(at, &["--store", "sqlite://one.sqlite", "tags", "create", name, "--start", "7"]);
    ok(at, &["--store", full, "tags", "create", "other"]);
    let import = ["--store", full, "--tags-max", "1", "tags", "import", "--from", "sqlite://one.sqlite"];
    let broken = run(at, import).unwrap();
    assert_eq!(broken.code, Some(1), "{broken:?}");
    let journal = std::fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path());
    let journal = journal.filter(|path| path.to_string_lossy().contains("unalike-import-")).collect::<Vec<_>>();
    let [journal] = journal.as_slice() else { panic!("one journal: {journal:?}") };
    let lines = std::fs::read_to_string(journal).unwrap();
    let finished = paste(at, lines.trim_end());
    assert_eq!(finished.code, Some(0), "{lines}: {finished:?}");
    assert_eq!(ok(at, &["--store", full, "next", name]), "7\n");

    let refused = fails(at, &["next", "default"], 1, &["is a snowflake"]);
    let create = refused.stderr.trim_end().split_once("create it first: ").unwrap().1;
    assert_eq!(words_of(at, create), ["tags", "create", "--", "default"]);
    assert_eq!(paste(at, create).code, Some(0));
    assert!(!at.join("pwned").exists());

    // Nor is a name a flag.
    let next = |template: &str| {
        std::fs::write(at.join("formats.toml"), format!("[tags.\"--accept\"]\ntemplate = \"{template}\"\n")).unwrap();
        run(at, ["--config", "formats.toml", "next", "--", "--accept"]).unwrap()
    };
    assert_eq!(next("A{id}").stdout, "A1\n");
    let refused = next("{id}A");
    assert!(refused.code == Some(1) && refused.stderr.contains("is bound to another format"), "{refused:?}");
    let compare = refused.stderr.split('`').nth(1).unwrap();
    assert_eq!(words_of(at, compare), ["tags", "format", "--", "--accept"]);
    let refused = fails(at, &["tags", "raise", "--", "--start", "5000"], 1, &["is unknown"]);
    let create = refused.stderr.split('`').nth(1).unwrap();
    assert_eq!(words_of(at, create), ["tags", "create", "--start", "5000", "--", "--start"]);
}

#[test]
fn an_import_from_the_store_itself_ends_no_tag() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    let here = "sqlite://ids.sqlite";
    ok(at, &["--store", here, "next", "order", "-n", "5"]);
    let own = |from: &str, named: &[&str]| {
        for more in [&[][..], &["--source-stopped"], &["--tag", "order"], &["--tag", "order", "--at", "100"]] {
            let arguments = [&["--store", here, "tags", "import", "--from", from][..], more].concat();
            fails(at, &arguments, 1, named);
        }
    };
    own(here, &["the store itself"]);
    own("sqlite://./ids.sqlite", &["the store itself"]);
    std::os::unix::fs::symlink("ids.sqlite", at.join("link.sqlite")).unwrap();
    own("sqlite://link.sqlite", &["sqlite://link.sqlite", "the store itself"]);
    std::os::unix::fs::symlink(".", at.join("folder")).unwrap();
    own("sqlite://folder/ids.sqlite", &["the store itself"]);
    std::fs::hard_link(at.join("ids.sqlite"), at.join("hard.sqlite")).unwrap();
    own("sqlite://hard.sqlite", &["sqlite://hard.sqlite", "the store itself"]);
    std::fs::remove_file(at.join("hard.sqlite")).unwrap();
    assert_eq!(ok(at, &["--store", here, "next", "order"]), "6\n", "it goes on as if nothing had been asked");

    // A copy has the same name, and the same numbers.
    std::fs::copy(at.join("ids.sqlite"), at.join("copy.sqlite")).unwrap();
    own("sqlite://copy.sqlite", &["the same data", "sqlite://copy.sqlite", "unalike tags raise"]);
    assert_eq!(ok(at, &["--store", here, "next", "order"]), "7\n");
}

#[test]
fn an_import_says_that_it_ended_tags_that_were_further_on_here() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    for (store, start) in [("sqlite://old.sqlite", "1"), ("sqlite://new.sqlite", "5000")] {
        ok(at, &["--store", store, "tags", "create", "order", "--start", start]);
    }
    let import = |more: &[&'static str]| {
        let flags = ["--store", "sqlite://new.sqlite", "tags", "import", "--from", "sqlite://old.sqlite"];
        run(at, flags.into_iter().chain(more.iter().copied())).unwrap()
    };
    let only_read = import(&["--source-stopped"]);
    assert!(only_read.code == Some(0) && only_read.stderr.contains("nothing was changed"), "{only_read:?}");
    let ended = import(&[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("ended there; was here, further on"), "{ended:?}");
    assert!(!ended.stderr.contains("nothing was changed"), "{ended:?}");
    assert!(
        ended.stderr.contains("1 tag was ended in sqlite://old.sqlite; here none had to be created or raised"),
        "{ended:?}"
    );
    fails(at, &["--store", "sqlite://old.sqlite", "next", "order"], 1, &["order"]);
    let again = import(&[]);
    assert!(again.code == Some(0) && again.stderr.contains("nothing was changed"), "{again:?}");
}
