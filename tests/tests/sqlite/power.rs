//! Lost power: what each flush put on the disk is all that is left, or that and some of the rest.
//!
//! The files of a directory are looked at before each flush in it, and after each answer of the product. Each of these
//! moments gives several disks on which the machine may start again: what was flushed alone; that under the names of
//! now; all that was written; and old and new sectors of 512 bytes, drawn by a seed. On each of them the product begins
//! anew. It must be able to, and grant nothing again that it had answered by then.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use fastrand::Rng;
use tempfile::TempDir;
use unalike::{Clock as _, SystemClock};
use unalike_local::{LocalLeases, LocalOptions, StaticAssignment, StaticWorker};
use unalike_memory::MemoryStore;
use unalike_storage::{Lease, LeaseAcquire, LeaseStore, Segment, SegmentStore, TailRelease};
use unalike_tests::{local, sqlite};

const SECTOR: usize = 512;

/// The directories of the tests that run.
static DISKS: Mutex<Vec<Disk>> = Mutex::new(Vec::new());

/// The numbers of files, by their names.
type Names = BTreeMap<OsString, u64>;

/// A directory, and what would be left of it.
struct Disk {
    path: PathBuf,
    /// Files that were seen, by their numbers. They stay open: SQLite's locks on a file end when anybody in the process
    /// closes it.
    files: BTreeMap<u64, File>,
    flushed: BTreeMap<u64, Arc<[u8]>>,
    flushed_names: Names,
    answered: usize,
    /// Of the flushes of a log, and of the answers, one in so many is a moment.
    every: usize,
    flushes: usize,
    moments: Vec<Moment>,
}

/// What was on the disk and what was written at a moment, and how many answers had been given by then.
struct Moment {
    at: String,
    answered: usize,
    flushed_names: Names,
    names: Names,
    /// Flushed and written.
    contents: BTreeMap<u64, [Arc<[u8]>; 2]>,
}

impl Disk {
    /// What is written now. A file that somebody deletes meanwhile may be missing.
    fn names(&mut self) -> Names {
        let mut names = Names::new();
        for entry in fs::read_dir(&self.path).unwrap().flatten() {
            // The index of the log is nothing that a disk keeps: whoever is first opens an empty one. A second
            // descriptor of it would be a second SQLite's.
            if entry.file_name().to_string_lossy().ends_with("-shm") {
                continue;
            }
            let Ok(number) = entry.metadata().map(|found| found.ino()) else { continue };
            if let Entry::Vacant(place) = self.files.entry(number) {
                let Ok(file) = File::open(entry.path()) else { continue };
                place.insert(file);
            }
            names.insert(entry.file_name(), number);
        }
        names
    }

    fn read(&self, number: u64) -> Arc<[u8]> {
        let file = &self.files[&number];
        let mut content = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
        file.read_exact_at(&mut content, 0).unwrap();
        content.into()
    }

    fn remember(&mut self, at: String) {
        let names = self.names();
        let numbers: BTreeSet<u64> = names.values().chain(self.flushed_names.values()).copied().collect();
        let contents = numbers.into_iter().map(|number| {
            let flushed = self.flushed.get(&number).cloned().unwrap_or_default();
            (number, [flushed, self.read(number)])
        });
        let contents = contents.collect();
        self.moments.push(Moment {
            at,
            answered: self.answered,
            flushed_names: self.flushed_names.clone(),
            names,
            contents,
        });
    }
}

fn disks() -> MutexGuard<'static, Vec<Disk>> {
    DISKS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A file or directory is about to be flushed.
pub(super) fn flushing(path: &Path) {
    for disk in disks().iter_mut().filter(|disk| path.starts_with(&disk.path)) {
        disk.flushes += 1;
        let is_log = path.extension().is_some_and(|extension| extension == "sqlite-wal");
        if !is_log || disk.flushes.is_multiple_of(disk.every) {
            disk.remember(format!("flush {} of {}", disk.flushes, path.display()));
        }
    }
}

/// It is flushed.
pub(super) fn flushed(path: &Path) {
    for disk in disks().iter_mut().filter(|disk| path.starts_with(&disk.path)) {
        if path == disk.path {
            disk.flushed_names = disk.names();
        } else if let Ok(number) = fs::metadata(path).map(|found| found.ino()) {
            disk.names();
            let content = disk.read(number);
            disk.flushed.insert(number, content);
        }
    }
}

impl Moment {
    /// A file as the disk may have it: what was flushed, what was written, or parts of both.
    fn content(&self, number: u64, drawn: Option<&mut Rng>, is_written: bool) -> Vec<u8> {
        let [flushed, written] = &self.contents[&number];
        let Some(rng) = drawn else { return if is_written { written.to_vec() } else { flushed.to_vec() } };
        let length = if rng.bool() { flushed.len() } else { written.len() };
        let mut content = vec![0; length];
        for (at, sector) in content.chunks_mut(SECTOR).enumerate() {
            let from = if rng.bool() { flushed } else { written };
            let part = from.get(at * SECTOR..).unwrap_or_default();
            let length = part.len().min(sector.len());
            sector[..length].copy_from_slice(&part[..length]);
        }
        content
    }

    /// Lays the files out as the disk may have them.
    fn lay_out(&self, kind: Kind, directory: &Path) {
        let mut drawn = match kind {
            Kind::Drawn(seed) => Some(Rng::with_seed(seed)),
            Kind::Flushed | Kind::Named | Kind::Written => None,
        };
        // A file that was renamed has its old name or its new one.
        let is_new = drawn.as_mut().map_or(kind != Kind::Flushed, Rng::bool);
        let names = if is_new { &self.names } else { &self.flushed_names };
        for (name, number) in names {
            let content = self.content(*number, drawn.as_mut(), kind == Kind::Written);
            fs::write(directory.join(name), content).unwrap();
        }
    }
}

/// What became of that which was not flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// All of it is lost.
    Flushed,
    /// Names are not.
    Named,
    /// None of it is.
    Written,
    /// Some of it is.
    Drawn(u64),
}

/// What the product has answered, or was asked to take back.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Segment(&'static str, Segment),
    /// Before it is asked for: nobody uses these any more.
    Tail(&'static str, u64, u64),
    Lease(Lease),
}

/// A directory that is watched until the power is lost.
struct Watched {
    directory: TempDir,
    path: PathBuf,
    answers: Vec<Answer>,
}

impl Watched {
    fn new(every: usize) -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path().canonicalize().unwrap();
        disks().push(Disk {
            path: path.clone(),
            files: BTreeMap::new(),
            flushed: BTreeMap::new(),
            flushed_names: Names::new(),
            answered: 0,
            every,
            flushes: 0,
            moments: Vec::new(),
        });
        Self { directory, path, answers: Vec::new() }
    }

    fn say(&mut self, answer: Answer) {
        let at = format!("answer {}: {answer:?}", self.answers.len() + 1);
        self.answers.push(answer);
        let mut disks = disks();
        let disk = disks.iter_mut().find(|disk| disk.path == self.path).unwrap();
        disk.answered = self.answers.len();
        if disk.answered.is_multiple_of(disk.every) {
            disk.remember(at);
        }
    }

    /// Tries each disk that there may be.
    async fn lose_power<W: Future<Output = Result<(), String>>>(self, try_on: impl Fn(PathBuf, Vec<Answer>) -> W) {
        let found = {
            let mut disks = disks();
            let at = disks.iter().position(|disk| disk.path == self.path).unwrap();
            disks.remove(at)
        };
        drop(self.directory);
        let (mut tried, mut losses) = (0, 0);
        for (at, moment) in (0..).zip(&found.moments) {
            losses += usize::from(moment.contents.values().any(|[flushed, written]| flushed != written));
            let drawn = (0..3).map(|seed| Kind::Drawn(at * 3 + seed));
            for kind in [Kind::Flushed, Kind::Named, Kind::Written].into_iter().chain(drawn) {
                let directory = TempDir::new().unwrap();
                moment.lay_out(kind, directory.path());
                let answers = self.answers[..moment.answered].to_vec();
                if let Err(what) = try_on(directory.path().to_owned(), answers).await {
                    panic!("{what}: {kind:?} at {}", moment.at);
                }
                tried += 1;
            }
        }
        println!("{tried} disks of {} moments, {losses} with something to lose", found.moments.len());
        assert!(losses > 10, "there was something to lose at {losses} moments");
    }
}

fn told(error: impl fmt::Display) -> String {
    format!("it does not begin: {error}")
}

fn last_lease(answers: &[Answer]) -> Option<&Lease> {
    answers.iter().rev().find_map(|answer| match answer {
        Answer::Lease(lease) => Some(lease),
        Answer::Segment(..) | Answer::Tail(..) => None,
    })
}

/// Whether a lease overlaps one of the same worker that was answered.
fn look_at_lease(lease: &Lease, answers: &[Answer]) -> Result<(), String> {
    let held = answers.iter().find(|answer| match answer {
        Answer::Lease(held) => {
            held.worker == lease.worker
                && held.not_before_ms < lease.valid_until_ms
                && lease.not_before_ms < held.valid_until_ms
        }
        Answer::Segment(..) | Answer::Tail(..) => false,
    });
    held.map_or(Ok(()), |held| Err(format!("{lease:?} overlaps {held:?}")))
}

/// A request that prefers the worker of another lease, for its holder.
fn again(lease: &Lease, now_ms: u64) -> LeaseAcquire {
    LeaseAcquire { preferred_worker: Some(lease.worker), ..sqlite::acquire("holder", now_ms) }
}

/// Whether a store that begins on this disk grants something that it had granted.
async fn try_sqlite(directory: PathBuf, answers: Vec<Answer>) -> Result<(), String> {
    let store = sqlite::open(&directory.join("ids.sqlite")).await.map_err(told)?;
    for tag in ["order", "invoice"] {
        let next = store.allocate(tag, 1, 0).await.map_err(told)?.start;
        let mut held = BTreeMap::new();
        for answer in &answers {
            match answer {
                Answer::Segment(of, segment) if *of == tag => drop(held.insert(segment.start, segment.end)),
                Answer::Tail(of, start, end) if *of == tag => {
                    let owner = held.iter_mut().find(|(_, held_end)| **held_end == *end);
                    *owner.ok_or("no such segment")?.1 = *start;
                }
                _ => {}
            }
        }
        if let Some((start, end)) = held.into_iter().find(|(start, end)| (*start..*end).contains(&next)) {
            return Err(format!("{next} of {tag} came twice: {start}..{end} was granted"));
        }
    }
    if let Some(last) = last_lease(&answers) {
        let lease = store.acquire(&again(last, SystemClock.now_ms())).await.map_err(told)?;
        look_at_lease(&lease, &answers)?;
    }
    store.close().await;
    Ok(())
}

#[tokio::test]
async fn a_sqlite_store_that_lost_its_power_grants_nothing_again() {
    let mut watched = Watched::new(1);
    let path = watched.path.join("ids.sqlite");
    // A store that is closed has no log any more, and the next one begins another.
    for round in 0..3 {
        let store = sqlite::open(&path).await.unwrap();
        for tag in ["order", "invoice", "order"] {
            watched.say(Answer::Segment(tag, store.allocate(tag, 10, 0).await.unwrap()));
        }
        let segment = store.allocate("order", 10, 0).await.unwrap();
        watched.say(Answer::Segment("order", segment));
        watched.say(Answer::Tail("order", segment.start + 5, segment.end));
        let tail = TailRelease { start: segment.start + 5, version: segment.version };
        assert!(SegmentStore::release(&store, "order", tail).await.unwrap());
        let now_ms = SystemClock.now_ms();
        let lease = store.acquire(&sqlite::acquire("holder", now_ms)).await.unwrap();
        watched.say(Answer::Lease(lease));
        watched.say(Answer::Lease(store.extend(&sqlite::extend(&lease, now_ms)).await.unwrap()));
        let floor = 1_000 * (round + 1);
        store.raise_tag("invoice", floor).await.unwrap();
        let raised = store.allocate("invoice", 10, 0).await.unwrap();
        assert!(raised.start >= floor);
        watched.say(Answer::Segment("invoice", raised));
        store.close().await;
    }
    watched.lose_power(try_sqlite).await;
}

/// The log is written into the file when it is long, and then begun again from its start.
#[tokio::test]
async fn a_sqlite_store_that_lost_its_power_with_a_long_log_grants_nothing_again() {
    let mut watched = Watched::new(300);
    let store = sqlite::open(&watched.path.join("ids.sqlite")).await.unwrap();
    for _ in 0..1_500 {
        watched.say(Answer::Segment("order", store.allocate("order", 10, 0).await.unwrap()));
    }
    let log = fs::metadata(watched.path.join("ids.sqlite-wal")).unwrap().len();
    assert!(log < 1_500 * 4_096, "each grant has a page in it: it began again, with {log} bytes");
    store.close().await;
    watched.lose_power(try_sqlite).await;
}

const NOW_MS: u64 = 1_700_000_000_000;

fn world() -> Arc<MemoryStore> {
    let clock = Arc::new(|| NOW_MS + 10_000);
    Arc::new(MemoryStore::new(unalike_memory::MemoryOptions { clock, ..unalike_memory::MemoryOptions::default() }))
}

/// Takes pieces of leases in turn, and makes each longer.
async fn take_pieces(watched: &mut Watched, store: &dyn LeaseStore, pieces: u64) {
    for round in 0..pieces {
        let now_ms = NOW_MS + 1_000 * round;
        let piece = store.acquire(&local::acquire(now_ms, 1, 60_000)).await.unwrap();
        watched.say(Answer::Lease(piece));
        for step in 1..4 {
            let longer = store.extend(&local::extend(&piece, now_ms + 200 * step, 1, 60_000)).await.unwrap();
            watched.say(Answer::Lease(longer));
        }
    }
}

#[tokio::test]
async fn a_local_lease_that_lost_its_power_goes_on_after_what_it_gave() {
    let mut watched = Watched::new(1);
    let world = world();
    let store = LocalLeases::open(Arc::clone(&world) as Arc<dyn LeaseStore>, LocalOptions::new(&watched.path));
    let store = store.await.unwrap();
    take_pieces(&mut watched, &store, 4).await;
    watched
        .lose_power(|directory, answers| {
            let world = Arc::clone(&world) as Arc<dyn LeaseStore>;
            async move {
                let store = LocalLeases::open(world, LocalOptions::new(&directory)).await.map_err(told)?;
                let wanted = store.acquire(&local::acquire(NOW_MS + 1_500, 1, 60_000)).await;
                look_at_lease(&wanted.map_err(told)?, &answers)
            }
        })
        .await;
}

#[tokio::test]
async fn a_static_worker_that_lost_its_power_goes_on_after_what_it_gave() {
    let mut watched = Watched::new(1);
    let layout = local::layout(1);
    let assignment = StaticAssignment { namespace: "default".to_owned(), worker: 3, layout, not_before_ms: 0 };
    StaticWorker::initialise(&watched.path, &assignment).await.unwrap();
    let store = StaticWorker::open_unguarded(3, LocalOptions::new(&watched.path)).await.unwrap();
    take_pieces(&mut watched, &store, 6).await;
    watched
        .lose_power(|directory, answers| async move {
            // A little before the end of what it had.
            let now_ms = last_lease(&answers).map_or(NOW_MS, |piece| piece.valid_until_ms - 500);
            let opened = StaticWorker::open_unguarded(3, LocalOptions::new(&directory)).await;
            let wanted = match opened {
                Ok(store) => store.acquire(&local::acquire(now_ms, 1, 60_000)).await,
                Err(error) => Err(error),
            };
            match wanted {
                Ok(piece) => look_at_lease(&piece, &answers),
                // It was lost before anybody heard that it is initialised.
                Err(_) if answers.is_empty() => Ok(()),
                Err(error) => Err(told(error)),
            }
        })
        .await;
}
