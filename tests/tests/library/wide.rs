//! Ids of 128 bits, as callers of the library, the server and the command line get them: unique, ascending where they
//! are to be, each in its form, without a store.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::HashSet;
use std::fmt::Debug;
use std::fs;
use std::hash::Hash;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;
use unalike::uuid::{Uuid, Variant};
use unalike::{Clock, Error, RandomIds, SystemClock, TextError, Ulid};
use unalike_tests::server::{Answer, Server, binary, run};

#[track_caller]
fn assert_distinct<T: Eq + Hash + Copy>(ids: &[T], expected: usize) {
    assert_eq!((ids.len(), ids.iter().copied().collect::<HashSet<_>>().len()), (expected, expected));
}

/// A UUID in the one form in which it is written.
#[track_caller]
fn uuid(text: &str, version: usize) -> Uuid {
    let uuid = Uuid::parse_str(text).unwrap();
    assert_eq!(
        (uuid.to_string().as_str(), uuid.get_version_num(), uuid.get_variant()),
        (text, version, Variant::RFC4122)
    );
    uuid
}

/// A ULID in the one form in which it is written.
#[track_caller]
fn ulid(text: &str) -> Ulid {
    let ulid: Ulid = text.parse().unwrap();
    assert_eq!(ulid.to_string(), text);
    ulid
}

fn unix_ms(uuid: Uuid) -> u64 {
    u64::try_from(uuid.as_u128() >> 80).unwrap()
}

/// Four threads, a million ids, one at a time and in batches: no two alike, and ascending on each thread.
fn four_threads<T: Eq + Ord + Hash + Copy + Debug + Send>(
    next: fn(&RandomIds) -> Result<T, Error>,
    take: fn(&RandomIds, u32) -> Result<Vec<T>, Error>,
) {
    const THREADS: usize = 4;
    const EACH: usize = 250_000;
    let ids = RandomIds::new();
    let barrier = Barrier::new(THREADS);
    let work = || {
        barrier.wait();
        let mut own = Vec::with_capacity(EACH);
        while own.len() < EACH {
            own.push(next(&ids).unwrap());
            let left = u32::try_from(EACH - own.len()).unwrap();
            if left > 0 {
                own.extend(take(&ids, left.min(97)).unwrap());
            }
        }
        assert!(own.is_sorted_by(|one, next| one < next), "the ids of a thread ascend");
        own
    };
    let all: Vec<T> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_distinct(&all, THREADS * EACH);
}

#[test]
fn a_million_uuids_of_four_threads_differ_and_ascend() {
    four_threads(RandomIds::uuid_v7, RandomIds::take_uuids_v7);
}

#[test]
fn a_million_ulids_of_four_threads_differ_and_ascend() {
    four_threads(RandomIds::ulid, RandomIds::take_ulids);
}

#[test]
fn a_million_uuids_of_version_4_differ() {
    assert_distinct(&RandomIds::new().take_uuids_v4(1_000_000).unwrap(), 1_000_000);
}

/// Whatever was there before on any thread is less: the promise is the process's, and not the thread's.
#[test]
fn ids_ascend_from_thread_to_thread() {
    let ids = RandomIds::new();
    let newest = Mutex::new((Uuid::nil(), Ulid(0)));
    thread::scope(|scope| {
        for _ in 0..4 {
            let (ids, newest) = (ids.clone(), &newest);
            scope.spawn(move || {
                for _ in 0..50_000 {
                    let before = *newest.lock().unwrap();
                    let own = (ids.uuid_v7().unwrap(), ids.ulid().unwrap());
                    assert!(before.0 < own.0 && before.1 < own.1);
                    let mut newest = newest.lock().unwrap();
                    *newest = (newest.0.max(own.0), newest.1.max(own.1));
                }
            });
        }
    });
}

/// A clock that goes back and forth by chance, by years too.
struct Wild(Mutex<fastrand::Rng>);

impl Clock for Wild {
    fn now_ms(&self) -> u64 {
        let mut random = self.0.lock().unwrap();
        let bits = random.u32(0..48);
        random.u64(..=(1 << bits))
    }
}

#[test]
fn ids_ascend_whatever_the_clock_does() {
    let seed = 20_261_122;
    let ids = RandomIds::with_clock(Arc::new(Wild(Mutex::new(fastrand::Rng::with_seed(seed)))));
    let (mut uuids, mut ulids) = (Vec::new(), Vec::new());
    for _ in 0..10_000 {
        uuids.push(ids.uuid_v7().unwrap());
        ulids.push(ids.ulid().unwrap());
    }
    assert!(uuids.is_sorted_by(|one, next| one < next) && ulids.is_sorted_by(|one, next| one < next));
}

/// Each id has the time at which it was asked for, unless it had to be later than the one before.
#[test]
fn ids_have_the_time_of_the_clock() {
    let ids = RandomIds::new();
    let before = SystemClock.now_ms();
    let (uuid, ulid) = (ids.uuid_v7().unwrap(), ids.ulid().unwrap());
    let after = SystemClock.now_ms();
    for unix_ms in [unix_ms(uuid), ulid.unix_ms()] {
        assert!((before..=after).contains(&unix_ms), "{before} <= {unix_ms} <= {after}");
    }
}

/// Ends a loop when the test ends, also if it fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// While a thread of the parent holds the locks nearly all the time, children are born: none hangs, and none has an id
/// of the parent's or of another child's.
#[test]
#[expect(unsafe_code, reason = "fork is what is tested")]
fn children_of_a_busy_parent_neither_hang_nor_repeat() {
    const CHILDREN: usize = 40;
    const EACH: u32 = 50;
    let ids = RandomIds::new();
    let stop = AtomicBool::new(false);
    let (parents, children) = thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let mut all = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let ulids = ids.take_ulids(1_000).unwrap().into_iter().map(|ulid| ulid.0);
                let uuids = ids.take_uuids_v7(1_000).unwrap().into_iter().map(|uuid| uuid.as_u128());
                // A machine that is busy with other things takes long over its children.
                if all.len() < 1_000_000 {
                    all.extend(ulids.chain(uuids));
                }
            }
            all
        });
        let at_end = Stop(&stop);
        let mut children = Vec::new();
        for _ in 0..CHILDREN {
            let mut pipe = [0; 2];
            // SAFETY: `pipe` is a place for two descriptors.
            assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
            let [reader, writer] = pipe;
            // SAFETY: the child makes no call that needs another thread, and leaves by _exit.
            let pid = unsafe { libc::fork() };
            assert!(pid >= 0);
            if pid == 0 {
                // SAFETY: a signal ends a child that hangs.
                unsafe { libc::alarm(30) };
                let Ok(ulids) = ids.take_ulids(EACH) else { std::process::abort() };
                let Ok(uuids) = ids.take_uuids_v7(EACH) else { std::process::abort() };
                let all: Vec<u128> =
                    ulids.iter().map(|ulid| ulid.0).chain(uuids.iter().map(|uuid| uuid.as_u128())).collect();
                let bytes: Vec<u8> = all.iter().flat_map(|id| id.to_ne_bytes()).collect();
                // SAFETY: the bytes are there, and fewer than a pipe holds; as above.
                unsafe {
                    libc::write(writer, bytes.as_ptr().cast(), bytes.len());
                    libc::_exit(0);
                }
            }
            let mut status = 0;
            // SAFETY: the child exists and `status` is a place for its status; the descriptors are this function's.
            unsafe {
                assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
                libc::close(writer);
            }
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the child hung or failed: {status}");
            let mut bytes = vec![0_u8; 32 * usize::try_from(EACH).unwrap() + 1];
            // SAFETY: as many bytes as there is room for; the descriptor is this function's.
            let read = unsafe {
                let read = libc::read(reader, bytes.as_mut_ptr().cast(), bytes.len());
                libc::close(reader);
                read
            };
            let all = &bytes[..usize::try_from(read).unwrap()];
            children.extend(all.chunks_exact(16).map(|id| u128::from_ne_bytes(id.try_into().unwrap())));
        }
        drop(at_end);
        (busy.join().unwrap(), children)
    });
    assert_eq!(children.len(), CHILDREN * 2 * usize::try_from(EACH).unwrap());
    let all = [parents, children].concat();
    assert_distinct(&all, all.len());
}

#[test]
fn what_is_no_ulid_is_refused_with_its_place() {
    for (text, error) in [
        ("80000000000000000000000000", TextError::Character { at: 0 }),
        ("ZZZZZZZZZZZZZZZZZZZZZZZZZZ", TextError::Character { at: 0 }),
        ("01ARZ3NDEKTSV4RRFFQ69G5FA", TextError::Length { len: 25 }),
        ("01ARZ3NDEKTSV4RRFFQ69G5FAU", TextError::Character { at: 25 }),
    ] {
        assert_eq!(text.parse::<Ulid>(), Err(error), "{text}");
    }
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

fn text(answer: &Answer) -> Vec<&str> {
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/plain; charset=utf-8")));
    assert!(answer.body.ends_with('\n'));
    answer.body.lines().collect()
}

#[test]
fn uuids_over_http() -> anyhow::Result<()> {
    let server = Server::start()?;
    let client = server.client();
    let mut all = Vec::new();
    for (query, version, count) in [
        ("", 7, 1),
        ("?count=3", 7, 3),
        ("?version=7&count=10000", 7, 10_000),
        ("?version=4", 4, 1),
        ("?count=1000&version=4", 4, 1_000),
    ] {
        let answer = client.get(&format!("/v1/uuids{query}"))?;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")), "{query}");
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        let body = answer.json()?;
        assert_eq!((body.as_object().unwrap().len(), &body["version"]), (2, &json!(version)));
        let uuids: Vec<Uuid> = texts(&body["uuids"]).into_iter().map(|text| uuid(text, version)).collect();
        assert_eq!(uuids.len(), count);
        assert!(version == 4 || uuids.is_sorted_by(|one, next| one < next));
        all.extend(uuids);
    }
    let posted = client.send("POST", "/v1/uuids?count=2", "application/json", "")?.json()?;
    all.extend(texts(&posted["uuids"]).into_iter().map(|text| uuid(text, 7)));
    let lines = client.get_as("/v1/uuids?count=5&version=4", "text/plain")?;
    all.extend(text(&lines).into_iter().map(|text| uuid(text, 4)));
    let lines = client.get_as("/v1/uuids?count=5", "text/plain")?;
    all.extend(text(&lines).into_iter().map(|text| uuid(text, 7)));
    let len = 1 + 3 + 10_000 + 1 + 1_000 + 2 + 5 + 5;
    assert_distinct(&all, len);
    let ascending: Vec<_> = all.iter().filter(|uuid| uuid.get_version_num() == 7).collect();
    assert!(ascending.is_sorted(), "from answer to answer, too");
    Ok(())
}

#[test]
fn ulids_over_http() -> anyhow::Result<()> {
    let server = Server::start()?;
    let client = server.client();
    let mut all = Vec::new();
    for (query, count) in [("", 1), ("?count=3", 3), ("?count=10000", 10_000)] {
        let answer = client.get(&format!("/v1/ulids{query}"))?;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")), "{query}");
        let body = answer.json()?;
        assert_eq!(body.as_object().unwrap().len(), 1);
        let ulids: Vec<Ulid> = texts(&body["ulids"]).into_iter().map(ulid).collect();
        assert_eq!(ulids.len(), count);
        all.extend(ulids);
    }
    let posted = client.send("POST", "/v1/ulids", "application/json", "")?.json()?;
    all.extend(texts(&posted["ulids"]).into_iter().map(ulid));
    let lines = client.get_as("/v1/ulids?count=5", "text/plain")?;
    all.extend(text(&lines).into_iter().map(ulid));
    assert_distinct(&all, 1 + 3 + 10_000 + 1 + 5);
    assert!(all.is_sorted(), "from answer to answer, too");
    Ok(())
}

#[track_caller]
fn assert_problem(answer: &Answer, status: u16, name: &str, member: &str, value: &Value) {
    assert_eq!((answer.status, answer.problem().unwrap().as_str()), (status, name), "{answer:?}");
    assert_eq!(answer.json().unwrap().get(member), Some(value), "{answer:?}");
}

#[test]
fn bad_requests_are_refused_with_their_reason() -> anyhow::Result<()> {
    let server = Server::start_with(["--count-max", "20"])?;
    let client = server.client();
    for path in ["/v1/uuids", "/v1/ulids"] {
        assert_eq!(client.get_as(&format!("{path}?count=20"), "text/plain")?.body.lines().count(), 20);
        for count in ["0", "21", "4294967297", "-1", "1.5", "ten", ""] {
            let answer = client.get(&format!("{path}?count={count}"))?;
            assert_problem(&answer, 400, "count-invalid", "count", &json!(count));
            assert_eq!(answer.json()?["count_max"], 20);
        }
        for parameter in ["as=number", "sub=x", "cuont=5"] {
            let answer = client.get(&format!("{path}?{parameter}"))?;
            let name = parameter.split('=').next().unwrap();
            assert_problem(&answer, 400, "query-invalid", "parameter", &json!(name));
        }
        let twice = client.get(&format!("{path}?count=5&count=6"))?;
        assert_problem(&twice, 400, "query-invalid", "parameter", &json!("count"));
        for method in ["PUT", "DELETE", "HEAD"] {
            assert_eq!(client.send(method, path, "application/json", "")?.status, 405, "{method} {path}");
        }
    }
    for version in ["1", "5", "8", "07", "v7", " 7", "", "-4"] {
        let answer = client.get(&format!("/v1/uuids?version={}", version.replace(' ', "%20")))?;
        assert_problem(&answer, 400, "query-invalid", "value", &json!(version));
        assert!(answer.json()?["detail"].as_str().unwrap().contains("4 or 7"));
    }
    let answer = client.get("/v1/ulids?version=7")?;
    assert_problem(&answer, 400, "query-invalid", "parameter", &json!("version"));
    Ok(())
}

#[test]
fn any_token_is_good_for_them_and_one_is_needed() -> anyhow::Result<()> {
    let directory = Arc::new(TempDir::new()?);
    let path = directory.path().join("tokens.toml");
    let token = |name: &str, scope: &str, tags: &str| {
        format!("[[tokens]]\nname = \"{name}\"\ntoken = \"a-token-that-is-{name}\"\nscope = \"{scope}\"\n{tags}\n")
    };
    let bound = token("bound", "read", "tags = [\"order\"]");
    fs::write(&path, [token("reader", "read", ""), bound, token("admin", "admin", "")].concat())?;
    let arguments = ["--tokens", path.to_str().unwrap()].map(str::to_owned).to_vec();
    let server = Server::start_in(directory, arguments)?;
    for path in ["/v1/uuids", "/v1/ulids", "/v1/uuids?version=4"] {
        for name in ["reader", "bound", "admin"] {
            let client = server.client().with_token(&format!("a-token-that-is-{name}"));
            assert_eq!(client.get(path)?.status, 200, "{path} with {name}");
        }
        let unknown = server.client().with_token("a-token-that-is-unknown").get(path)?;
        for answer in [server.get(path)?, unknown] {
            assert_eq!((answer.status, answer.problem()?.as_str()), (401, "unauthorized"), "{path}");
        }
    }
    Ok(())
}

/// The store hangs, sequences wait for it, and these do not.
#[test]
fn a_store_that_is_down_is_nothing_to_them() -> anyhow::Result<()> {
    let server = Server::start_with(["--wait-max-ms", "200"])?;
    let _lock = server.lock_store()?;
    let client = server.client();
    assert_eq!(client.get("/v1/sequences/order/ids")?.status, 503, "the store does not answer");
    assert_eq!((client.get("/v1/uuids")?.status, client.get("/v1/ulids")?.status), (200, 200));
    Ok(())
}

/// Runs it where it must succeed; gives what it printed.
#[track_caller]
fn ok(directory: &Path, arguments: &[&str]) -> String {
    let ran = run(directory, arguments.iter().copied()).unwrap();
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{arguments:?}: {ran:?}");
    ran.stdout
}

#[test]
fn the_commands_print_ids_and_open_no_store() {
    let directory = TempDir::new().unwrap();
    let at = directory.path();
    let uuids = |arguments: &[&str], version: usize| -> Vec<Uuid> {
        let printed = ok(at, &[&["uuid"], arguments].concat());
        assert!(printed.ends_with('\n'));
        printed.lines().map(|line| uuid(line, version)).collect()
    };
    let v7 = uuids(&["-n", "2500"], 7);
    assert!(v7.is_sorted_by(|one, next| one < next));
    assert_distinct(&v7, 2_500);
    assert_distinct(&uuids(&["--version", "4", "--count", "2500"], 4), 2_500);
    assert_eq!(
        (uuids(&[], 7).len(), uuids(&["--version", "7"], 7).len(), uuids(&["--version", "4"], 4).len()),
        (1, 1, 1)
    );
    let ulids: Vec<Ulid> = ok(at, &["ulid", "-n", "2500"]).lines().map(ulid).collect();
    assert!(ulids.is_sorted_by(|one, next| one < next));
    assert_distinct(&ulids, 2_500);
    assert_eq!(ok(at, &["ulid"]).lines().map(ulid).count(), 1);
    // A store that cannot be opened is none of their business.
    let nowhere = ["--store", "sqlite:///nowhere/at/all.sqlite"];
    ok(at, &[&nowhere[..], &["ulid"]].concat());
    ok(at, &[&nowhere[..], &["uuid"]].concat());
    assert_eq!(fs::read_dir(at).unwrap().count(), 0, "a file was made");
}

#[test]
fn the_commands_refuse_bad_input() {
    let directory = TempDir::new().unwrap();
    for (arguments, named) in [
        (&["uuid", "--version", "5"][..], "[possible values: 4, 7]"),
        (&["uuid", "-n", "0"], "--count"),
        (&["ulid", "-n", "0"], "--count"),
        (&["ulid", "-n", "-1"], "-1"),
        (&["uuid", "-n", "18446744073709551616"], "18446744073709551616"),
        (&["ulid", "--version", "7"], "--version"),
        (&["uuid", "order"], "order"),
    ] {
        let ran = run(directory.path(), arguments.iter().copied()).unwrap();
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{arguments:?}: {ran:?}");
        assert!(ran.stderr.contains(named), "{arguments:?} does not say {named:?}: {}", ran.stderr);
    }
}

#[test]
fn the_commands_end_when_their_reader_has_gone() {
    let directory = TempDir::new().unwrap();
    for command in ["uuid", "ulid"] {
        let mut process = Command::new(binary().unwrap())
            .current_dir(&directory)
            .args([command, "-n", "18446744073709551615"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.len() > 26, "{line}");
        let output = process.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
    }
}
