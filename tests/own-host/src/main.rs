//! The component in a wasmtime host that knows nothing of the crate `unalike`: bindings of its own, by a wasmtime of
//! its own choice, over a store of its own, which keeps one number per tag in a file.
//!
//! ```text
//! own-host FILE TAG COUNT
//! ```
//!
//! prints that many ids. It holds one rule above all: what is granted is in the file, for good, before the component
//! hears of it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use wasmtime::component::{Component, HasSelf, Linker};
use wasmtime::error::Context as _;
use wasmtime::{Config, Engine, Result, Store, bail};

/// Made by `build.rs`, of the WIT in `unalike-artifact`.
#[allow(warnings)]
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

use bindings::exports::unalike::ids::sequences::{RefillPolicy, SequenceOptions};
use bindings::unalike::ids::{leases, segments, types};

const COMPONENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/unalike.wasm"));

/// The data of the store: what the component imports works on it.
struct Host {
    numbers: Numbers,
    /// A ticket is never used twice. Here each is answered at once; a host with a database starts a task instead, and
    /// answers `None` until that has ended.
    tickets: u64,
    answers: HashMap<u64, Result<segments::Segment, types::StoreError>>,
}

impl types::Host for Host {}

impl segments::Host for Host {
    fn allocate(&mut self, tag: String, count: u64, at_least: u64) -> u64 {
        self.tickets += 1;
        let granted = self.numbers.grant(&tag, count, at_least).map_err(|error| {
            eprintln!("nothing was granted under {tag}: {error:#}");
            // It may be in the file or not: whatever it was, it is granted to nobody any more.
            types::StoreError::OutcomeUnknown
        });
        self.answers.insert(self.tickets, granted);
        self.tickets
    }

    fn poll(&mut self, ticket: u64) -> Option<Result<segments::Segment, types::StoreError>> {
        Some(self.answers.remove(&ticket).unwrap_or(Err(types::StoreError::OutcomeUnknown)))
    }

    /// What a store takes back it may grant again, if nothing was granted since. This one takes nothing back.
    fn release(&mut self, _tag: String, _start: u64, _version: u64) {}
}

/// There are no leases here, so no snowflakes.
impl leases::Host for Host {
    fn acquire(&mut self, _: String, _: types::Layout, _: u64, _: u64) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    fn extend(&mut self, _: String, _: types::Layout, _: u32, _: leases::GrantId, _: u64, _: u64) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    fn poll(&mut self, _: u64) -> Option<Result<leases::Lease, types::StoreError>> {
        Some(Err(types::StoreError::Refused))
    }

    fn release(&mut self, _: String, _: u32, _: leases::GrantId, _: u64) {}
}

/// The next number of each tag, in a file that one process at a time has locked.
struct Numbers {
    path: PathBuf,
    /// By tag: the next number, and how often it was raised.
    next: HashMap<String, (u64, u64)>,
    _lock: File,
}

impl Numbers {
    fn open(path: &Path) -> Result<Self> {
        let lock = File::create(beside(path, ".lock"))?;
        lock.try_lock().with_context(|| format!("{} is in use", path.display()))?;
        let mut next = HashMap::new();
        let text = if path.exists() { fs::read_to_string(path)? } else { String::new() };
        for line in text.lines() {
            let [number, version, tag] = *line.splitn(3, ' ').collect::<Vec<_>>() else {
                bail!("{} has the line {line:?}", path.display());
            };
            next.insert(tag.to_owned(), (number.parse()?, version.parse()?));
        }
        Ok(Self { path: path.to_owned(), next, _lock: lock })
    }

    fn grant(&mut self, tag: &str, count: u64, at_least: u64) -> Result<segments::Segment> {
        let (next, version) = self.next.get(tag).copied().unwrap_or((1, 0));
        let start = next.max(at_least);
        let end = start.checked_add(count).filter(|end| *end <= 1 << 63).context("the numbers have run out")?;
        // Here first, so that a failure to write burns them.
        self.next.insert(tag.to_owned(), (end, version + 1));
        self.write()?;
        Ok(segments::Segment { start, end, stride: 1, generation: 0, version: version + 1 })
    }

    /// The whole file at once: another one, on the disk, takes its place.
    fn write(&self) -> Result<()> {
        let new = beside(&self.path, ".new");
        let mut file = File::create(&new)?;
        for (tag, (number, version)) in &self.next {
            writeln!(file, "{number} {version} {tag}")?;
        }
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(())
    }
}

/// A file with a longer name: never the file itself, whatever its name ends in, and never that of another one.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut longer = path.as_os_str().to_owned();
    longer.push(end);
    longer.into()
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, tag, count] = arguments.as_slice() else { bail!("usage: own-host FILE TAG COUNT") };
    let mut count = count.parse::<u32>().context("COUNT is no number")?;

    // Once per process. The component's calls are synchronous, and cost a third without what others need.
    let mut config = Config::new();
    config.concurrency_support(false);
    let engine = Engine::new(&config)?;
    let component = Component::new(&engine, COMPONENT)?;
    let mut linker = Linker::new(&engine);
    bindings::Core::add_to_linker::<_, HasSelf<Host>>(&mut linker, |host| host)?;

    // Once per instance.
    let host = Host { numbers: Numbers::open(Path::new(file))?, tickets: 0, answers: HashMap::new() };
    let mut store = Store::new(&engine, host);
    let core = bindings::Core::instantiate(&mut store, &component, &linker)?;
    let sequences = core.unalike_ids_sequences().sequence();
    let options = SequenceOptions {
        step: 1_000,
        step_min: 100,
        step_max: 1_000_000,
        grow_below_ms: 15 * 60_000,
        shrink_above_ms: 30 * 60_000,
        refill: RefillPolicy::ShareConsumed(10),
        prefetch: 1,
        floor: 0,
        id_max: (1 << 63) - 1,
    };
    let Ok(sequence) = sequences.call_open(&mut store, tag, options)? else { bail!("{tag:?} is no tag") };
    let mut printed = std::io::stdout().lock();
    while count > 0 {
        match sequences.call_reserve(&mut store, sequence, now_ms()?, count)? {
            Ok(run) => {
                for id in (run.first..).step_by(usize::try_from(run.stride)?).take(usize::try_from(run.count)?) {
                    writeln!(printed, "{id}")?;
                }
                count -= run.count;
            }
            // The answer is there already.
            Err(types::Error::Pending) => {}
            Err(error) => bail!("no ids: {error:?}"),
        }
    }
    sequences.call_close(&mut store, sequence)?;
    Ok(())
}

fn now_ms() -> Result<u64> {
    Ok(u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}
