//! Leases in the server and on the command line: where they are kept, who holds them, what is said when one ends, and
//! what a server does without its lease store.

#![expect(clippy::unwrap_used, clippy::panic_in_result_fn, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use anyhow::ensure;
use tempfile::TempDir;
use unalike_tests::server::{Ran, Server, run};

const FLAKES: &str = "/v1/snowflakes/default/ids";

/// Runs it where it must succeed; what it printed.
fn ok(directory: &TempDir, arguments: &[&str]) -> anyhow::Result<String> {
    let ran = run(directory.path(), arguments.iter().copied())?;
    ensure!(ran.code == Some(0), "{arguments:?}: {ran:?}");
    Ok(ran.stdout)
}

/// Runs it where it must fail, and name all of these in the reason.
#[track_caller]
fn fails(directory: &TempDir, arguments: &[&str], named: &[&str]) -> Ran {
    let ran = run(directory.path(), arguments.iter().copied()).unwrap();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{arguments:?}: {ran:?}");
    for word in named {
        assert!(ran.stderr.contains(word), "{arguments:?} does not say {word:?}: {}", ran.stderr);
    }
    assert!(!ran.stderr.contains("secret") && !ran.stderr.contains("panicked"), "{}", ran.stderr);
    ran
}

/// A server with these flags in this directory.
fn serve(directory: &Arc<TempDir>, flags: &[&str]) -> anyhow::Result<Server> {
    Server::start_in(Arc::clone(directory), flags.iter().map(|&flag| flag.to_owned()).collect())
}

/// A lease as `unalike leases list` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed {
    namespace: String,
    worker: u32,
    holder: String,
    taken: String,
    until: String,
    state: String,
    grant: String,
}

/// What the listing with these settings shows.
fn listed(directory: &TempDir, settings: &[&str]) -> anyhow::Result<Vec<Listed>> {
    let text = ok(directory, &[settings, &["leases", "list"]].concat())?;
    let mut lines = text.lines();
    let titles: Vec<_> = lines.next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(titles, ["NAMESPACE", "WORKER", "HOLDER", "TAKEN", "UNTIL", "STATE", "GRANT"]);
    lines
        .map(|line| {
            let cells: Vec<_> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
            let [namespace, worker, holder, taken, until, state, grant] = cells[..] else {
                anyhow::bail!("{line:?} has other cells")
            };
            let [namespace, holder, taken, until, state, grant] =
                [namespace, holder, taken, until, state, grant].map(str::to_owned);
            Ok(Listed { namespace, worker: worker.parse()?, holder, taken, until, state, grant })
        })
        .collect()
}

/// The worker of an id of the layout `twitter`.
fn worker_of(id: u64) -> u32 {
    u32::try_from(id >> 12 & 1_023).unwrap()
}

/// The machine's name, as the server knows it.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[test]
fn leases_are_listed_with_who_holds_them_and_until_when() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    std::fs::write(directory.path().join("unalike.toml"), "[snowflakes.web]\nlayout = \"cosid-53\"\n")?;
    let leases = ["--leases", "sqlite://leases.sqlite"];
    assert_eq!(listed(&directory, &leases)?, [], "nothing was used yet");
    let mut server = serve(&directory, &[&leases[..], &["--config", "unalike.toml"]].concat())?;
    let client = server.client();
    let id = client.ids(FLAKES)?[0];
    client.ids("/v1/snowflakes/web/ids")?;
    let running = listed(&directory, &leases)?;
    assert_eq!(running.iter().map(|lease| lease.namespace.as_str()).collect::<Vec<_>>(), ["default", "web"]);
    let [lease, _] = &running[..] else { anyhow::bail!("{running:?}") };
    assert_eq!((lease.worker, lease.state.as_str()), (worker_of(id), "running"));
    // By default a server is known by where it is.
    let address = server.url().strip_prefix("http://").unwrap();
    assert_eq!(lease.holder, format!("{}/{address}", host_name()));
    assert!(lease.taken < lease.until && lease.until.ends_with('Z') && lease.until.len() == 24, "{lease:?}");
    assert!(lease.grant.len() == 32 && lease.grant.bytes().all(|byte| byte.is_ascii_hexdigit()), "{lease:?}");
    assert_eq!(ok(&directory, &[&leases[..], &["leases", "list", "web"]].concat())?.lines().count(), 2);
    assert_eq!(ok(&directory, &[&leases[..], &["leases", "list", "nobody"]].concat())?.lines().count(), 1);
    // The store of the sequences has none of them.
    assert_eq!(listed(&directory, &[])?, []);

    // A process that ends gives its lease back.
    ensure!(server.sigterm()?.success(), "it ends as it should");
    assert!(listed(&directory, &leases)?.iter().all(|lease| lease.state == "ended"));
    // A command is known by its process, and a lease that was given back is no one's.
    ok(&directory, &[&leases[..], &["next", "default", "--snowflake"]].concat())?;
    let ended = listed(&directory, &leases)?;
    let commands: Vec<_> = ended.iter().filter(|lease| lease.holder != running[0].holder).collect();
    let [command] = &commands[..] else { anyhow::bail!("{ended:?}") };
    let process = command.holder.strip_prefix(&format!("{}/", host_name())).unwrap();
    assert!(process.parse::<u32>().is_ok() && command.state == "ended", "{command:?}");
    Ok(())
}

#[test]
fn a_server_has_the_worker_that_it_had_before_by_its_name() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    let mut server = serve(&directory, &["--holder", "the one"])?;
    let worker = worker_of(server.client().ids(FLAKES)?[0]);
    server.sigterm()?;
    for _ in 0..3 {
        server.restart()?;
        assert_eq!(worker_of(server.client().ids(FLAKES)?[0]), worker);
        server.sigterm()?;
    }
    assert_eq!(listed(&directory, &[])?.len(), 1, "a random choice among 1,024 workers would hardly repeat three times");
    Ok(())
}

#[test]
fn a_worker_is_preferred_when_it_is_free() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    let first = serve(&directory, &["--worker", "77"])?;
    assert_eq!(worker_of(first.client().ids(FLAKES)?[0]), 77);
    let second = first.start_beside()?;
    assert_ne!(worker_of(second.client().ids(FLAKES)?[0]), 77, "it is in use");
    // Whatever this machine is called, it is either its number or an error that says its name.
    let host = host_name();
    let ordinal = run(directory.path(), ["--worker", "ordinal", "--store", "sqlite://other", "next", "default", "--snowflake"])?;
    let is_numbered = host.split('.').next().unwrap().ends_with(|last: char| last.is_ascii_digit());
    assert!(is_numbered || ordinal.stderr.contains(&host) && ordinal.stderr.contains("--worker 3"), "{ordinal:?}");
    Ok(())
}

#[test]
fn a_lease_is_released_by_the_operator_and_used_to_its_end() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    std::fs::write(directory.path().join("unalike.toml"), "[snowflakes.default]\nlayout = \"twitter\"\nhorizon_ms = 1500\n")?;
    let server = serve(&directory, &["--config", "unalike.toml"])?;
    let client = server.client();
    let worker = worker_of(client.ids(FLAKES)?[0]);
    fails(&directory, &["leases", "release", "default", "1023"], &["1023", "never leased", "unalike leases list"]);
    fails(&directory, &["leases", "release", "nobody", "1"], &["\"nobody\"", "never leased"]);
    let said = ok(&directory, &["leases", "release", "default", &worker.to_string()])?;
    let lease = listed(&directory, &[])?.swap_remove(0);
    assert_eq!((lease.worker, lease.state.as_str()), (worker, "extension forbidden"));
    for word in [&format!("worker {worker}"), &lease.until, &lease.holder] {
        assert!(said.contains(word.as_str()), "{said}");
    }
    // Its holder goes on with it to its end, and with another then.
    let mut ids = Vec::new();
    while ids.last().is_none_or(|&id| worker_of(id) == worker) {
        ids.push(client.ids(FLAKES)?[0]);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(ids.is_sorted() && ids.len() > 2, "{ids:?}");
    let leases = listed(&directory, &[])?;
    let old = leases.iter().find(|listed| listed.grant == lease.grant).unwrap();
    assert_eq!((&old.until, old.state.as_str()), (&lease.until, "ended"), "{leases:?}");
    let said = ok(&directory, &["leases", "release", "default", &worker.to_string()])?;
    assert!(said.contains("ended at"), "{said}");
    Ok(())
}

#[test]
fn without_leases_there_are_sequences_alone() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    let server = serve(&directory, &["--leases", "none"])?;
    let client = server.client();
    assert_eq!(client.ids("/v1/sequences/order/ids?count=3")?, [1, 2, 3]);
    let answer = client.get(FLAKES)?;
    assert_eq!((answer.status, answer.problem()?.as_str()), (500, "leases-missing"));
    assert!(answer.body.contains("--leases sqlite://PATH"), "{answer:?}");
    assert_eq!(client.get("/health/ready")?.status, 200, "it was not in use");
    fails(&directory, &["--leases", "none", "leases", "list"], &["--leases URL"]);
    fails(&directory, &["--leases", "none", "next", "default", "--snowflake"], &["--leases sqlite://PATH"]);
    Ok(())
}

#[test]
fn what_makes_no_sense_is_refused_with_what_to_write() -> anyhow::Result<()> {
    let directory = TempDir::new()?;
    let next = ["next", "default", "--snowflake"];
    for (flags, named) in [
        (&["--leases", "redis://ids:secret@h/0"][..], &["redis://ids@h/0", "--watermark none"][..]),
        (&["--leases", "ids.sqlite"], &["--leases", "no URL", "sqlite://PATH"]),
        (&["--leases", "kafka://h"], &["--leases", "kafka"]),
        (&["--leases", "sqlite://missing/leases.sqlite"], &["missing/leases.sqlite", "does not exist", "--leases"]),
        (&["--leases", "none", "--worker", "5"], &["--worker", "--leases URL", "--unsafe-static-worker"]),
        (&["--leases", "none", "--local-leases", "d"], &["--local-leases", "--unsafe-static-worker"]),
        (&["--unsafe-static-worker", "--worker", "5", "--local-leases", "d"], &["--leases none", "preferred"]),
        (&["--unsafe-static-worker", "--leases", "none", "--local-leases", "d"], &["--worker 3"]),
        (&["--unsafe-static-worker", "--leases", "none", "--worker", "5"], &["--local-leases DIR"]),
        (&["--worker", "1024"], &["worker is 1024", "0 to 1023"]),
        (&["--lease-horizon-max-ms", "1000"], &["horizon_ms of 60000", "lease_horizon_max_ms, 1000"]),
        (&["--lease-skew-max-ms", "3600001"], &["lease_skew_max_ms is 3600001"]),
    ] {
        fails(&directory, &[flags, &next].concat(), named);
    }
    for flags in [["--worker", "first"], ["--worker", "-1"], ["--unsafe-static-worker=perhaps", "next"]] {
        let ran = run(directory.path(), flags.into_iter().chain(next))?;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    }
    for (namespace, more, named) in [
        ("default", &[][..], &["first use", "--watermark none", "--unsafe-static-worker"][..]),
        ("default", &["--layout", "leaf"], &["another layout"]),
        ("default", &["--layout", "loof"], &["loof", "leaf"]),
        ("nobody", &[], &["nobody", "--layout"]),
    ] {
        fails(&directory, &[&["leases", "init", namespace], more].concat(), named);
    }
    assert!(!directory.path().join("unalike.sqlite").exists(), "a mistake creates no file");
    Ok(())
}
