//! The hash of one namespace: what it means, and how it is written. What cannot be read in exactly one way is damaged,
//! and nothing is done with it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use unalike_storage::{GrantId, Lease, LeaseRecord, NamespaceBinding, StoreError};

use crate::server::Reply;

/// Lua counts exactly up to here.
pub(super) const MS_MAX: u64 = (1 << 53) - 1;

/// All fields but those of workers and claims.
pub(super) const FIELDS: [&str; 5] = ["generation", "incarnation", "binding", "bound_ms", "begun_by"];

/// Before the number of a worker in the name of its field.
const WORKER: &str = "worker:";

/// The longest name of a holder, in bytes.
const HOLDER_LEN_MAX: usize = 128;

/// What a look at a namespace saw.
#[derive(Debug)]
pub(super) struct NamespaceView {
    /// The server's incarnation.
    pub(super) here: String,
    /// The server's clock, in Unix milliseconds.
    pub(super) now_ms: u64,
    /// None where there is no hash.
    pub(super) hash: Option<Hash>,
}

#[derive(Debug)]
pub(super) struct Hash {
    pub(super) generation: String,
    /// Whose leases these are; empty before the first.
    incarnation: String,
    /// None before the first use.
    pub(super) binding: Option<NamespaceBinding>,
    pub(super) kept: Kept,
    /// Of those that were looked at.
    pub(super) workers: BTreeMap<u32, Worker>,
}

/// What keeps the leases of one incarnation from meeting those of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// A durable store grants the time up to here, in Unix milliseconds.
    UnderBound { bound_ms: u64 },
    /// A quarantine, unless this is by command.
    ByQuarantine { begun_by: BegunBy },
}

/// What a namespace without a durable store began anew by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BegunBy {
    /// Somebody said that it has no leases.
    Command,
    /// A request, where there was no hash.
    Use,
    /// A request, where there was a hash of another incarnation.
    Loss,
}

impl BegunBy {
    const ALL: [Self; 3] = [Self::Command, Self::Use, Self::Loss];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Use => "use",
            Self::Loss => "loss",
        }
    }
}

/// The newest lease of a worker.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    pub(super) record: LeaseRecord,
    /// As the hash has it.
    pub(super) text: String,
}

/// A namespace whose leases are this server's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Valid<'v> {
    pub(super) hash: &'v Hash,
    pub(super) binding: NamespaceBinding,
}

impl NamespaceView {
    /// # Errors
    /// [`StoreError::Corrupt`] for a field that is not as it should be.
    pub(super) fn read(mut reply: Reply) -> Result<Self, StoreError> {
        let (here, now_ms) = (reply.text()?, reply.number()?);
        let mut fields = reply.pairs()?;
        let hash = Hash::read(&mut fields).map_err(|what| reply.damaged(&what))?;
        Ok(Self { here, now_ms, hash })
    }

    /// What this server granted; none where it granted nothing, or the leases are another one's.
    pub(super) fn valid(&self) -> Option<Valid<'_>> {
        let hash = self.hash.as_ref().filter(|hash| hash.incarnation == self.here)?;
        Some(Valid { hash, binding: hash.binding? })
    }
}

/// The process that an incarnation is of.
fn run_id(incarnation: &str) -> &str {
    incarnation.split(':').next().unwrap_or_default()
}

impl Hash {
    /// Whether the process that granted these leases is this incarnation too, under another replication id.
    pub(super) fn is_of_same_process(&self, here: &str) -> bool {
        self.incarnation != here && run_id(&self.incarnation) == run_id(here)
    }

    /// What made another incarnation of the server that granted these leases, for people; none where none did.
    pub(super) fn cause(&self, here: &str) -> Option<&'static str> {
        if self.incarnation.is_empty() || self.incarnation == here {
            None
        } else if self.is_of_same_process(here) {
            Some(
                "its replication id changed: it was a replica meanwhile, or got its first one, or had none for repl-backlog-ttl",
            )
        } else {
            Some("another process: it was restarted, or another server took over")
        }
    }

    /// What these fields mean, or what is wrong with them.
    fn read(fields: &mut BTreeMap<String, String>) -> Result<Option<Self>, String> {
        if fields.is_empty() {
            return Ok(None);
        }
        let mut workers = BTreeMap::new();
        for (name, text) in &*fields {
            let Some(number) = name.strip_prefix(WORKER) else { continue };
            let worker = number.parse().ok().filter(|worker: &u32| worker.to_string() == number);
            let read = worker.and_then(|worker| Some((worker, read_worker(worker, text)?)));
            let Some((worker, record)) = read else { return Err(format!("the field {name:?} is {text:?}, no lease")) };
            workers.insert(worker, Worker { record, text: text.clone() });
        }
        let mut field = |name: &str| fields.remove(name).ok_or_else(|| format!("the field {name} is missing"));
        let (generation, incarnation) = (field("generation")?, field("incarnation")?);
        let kept = match (field("bound_ms"), field("begun_by")) {
            (Ok(bound), Err(_)) => {
                let bound_ms = read_ms(&bound).ok_or_else(|| format!("the field bound_ms is {bound:?}, no time"))?;
                Kept::UnderBound { bound_ms }
            }
            (Err(_), Ok(name)) => {
                let begun_by = BegunBy::ALL.into_iter().find(|begun_by| begun_by.name() == name);
                let begun_by = begun_by.ok_or_else(|| format!("the field begun_by is {name:?}"))?;
                Kept::ByQuarantine { begun_by }
            }
            _ => return Err("there must be one of the fields bound_ms and begun_by".to_owned()),
        };
        let binding = match field("binding") {
            Ok(text) => Some(read_binding(&text)?),
            // Where the durable store was asked for time, and none has come yet.
            Err(_) if incarnation.is_empty() => None,
            Err(missing) => return Err(missing),
        };
        if let Some((binding, worker)) = binding.zip(workers.keys().next_back())
            && *worker > binding.layout.worker_max()
        {
            return Err(format!("the field {WORKER}{worker} is of no worker of the layout {}", binding.layout));
        }
        Ok(Some(Self { generation, incarnation, binding, kept, workers }))
    }

    /// Whose leases these are.
    pub(super) fn incarnation(&self) -> &str {
        &self.incarnation
    }

    /// The greatest end that it tells of, in Unix milliseconds: of its leases and its floor.
    pub(super) fn greatest_end_ms(&self) -> u64 {
        let floor_ms = self.binding.map_or(0, |binding| binding.floor_ms);
        self.workers.values().map(|worker| worker.record.lease.valid_until_ms).fold(floor_ms, u64::max)
    }

    /// The worker's lease, if it runs under this grant id and may be extended and released.
    pub(super) fn running(&self, worker: u32, grant_id: GrantId) -> Option<&Worker> {
        let worker = self.workers.get(&worker)?;
        (worker.record.lease.grant_id == grant_id && !worker.record.is_final).then_some(worker)
    }
}

/// The name of a worker's field.
pub(super) fn worker_field(worker: u32) -> String {
    format!("{WORKER}{worker}")
}

pub(super) fn write_worker(record: &LeaseRecord) -> String {
    let LeaseRecord { lease, holder, acquired_ms, is_final } = record;
    let (grant_id, start, end, is_final) =
        (lease.grant_id.0, lease.not_before_ms, lease.valid_until_ms, u8::from(*is_final));
    format!("{grant_id:032x} {start} {end} {acquired_ms} {is_final} {holder}")
}

fn read_worker(worker: u32, text: &str) -> Option<LeaseRecord> {
    let mut parts = text.splitn(6, ' ');
    let grant_id = GrantId(u128::from_str_radix(parts.next()?, 16).ok()?);
    let (not_before_ms, valid_until_ms) = (read_ms(parts.next()?)?, read_ms(parts.next()?)?);
    let acquired_ms = read_ms(parts.next()?)?;
    let is_final = parts.next()? == "1";
    let holder = parts.next()?.to_owned();
    let lease = Lease { worker, grant_id, not_before_ms, valid_until_ms };
    let record = LeaseRecord { lease, holder, acquired_ms, is_final };
    let is_right = not_before_ms <= valid_until_ms
        && record.holder.len() <= HOLDER_LEN_MAX
        && !record.holder.chars().any(char::is_control)
        && write_worker(&record) == text;
    is_right.then_some(record)
}

pub(super) fn write_binding(binding: &NamespaceBinding) -> String {
    let mut text = String::new();
    for (name, figure) in binding.figures() {
        // Writing to a text does not fail.
        let _ = write!(text, "{}{name}={figure}", if text.is_empty() { "" } else { " " });
    }
    text
}

fn read_binding(text: &str) -> Result<NamespaceBinding, String> {
    let damaged = |why: &str| format!("the field binding is {text:?}: {why}");
    let figures: BTreeMap<&str, u64> = text
        .split(' ')
        .filter_map(|part| part.split_once('='))
        .filter_map(|(name, figure)| Some((name, read_ms(figure)?)))
        .collect();
    let figure = |name| figures.get(name).copied().ok_or_else(|| damaged(&format!("{name} is missing or no number")));
    let binding = NamespaceBinding::read(figure)?.map_err(|why| damaged(&why))?;
    if write_binding(&binding) == text { Ok(binding) } else { Err(damaged("there is something else")) }
}

/// A number that Lua counts exactly, written in the one way.
fn read_ms(text: &str) -> Option<u64> {
    text.parse().ok().filter(|&ms: &u64| ms <= MS_MAX && ms.to_string() == text)
}

#[cfg(test)]
mod tests {
    use unalike_storage::{Layout, LeaseLimits};

    use super::*;

    fn binding() -> NamespaceBinding {
        let binding = NamespaceBinding::new(Layout::TWITTER, LeaseLimits::default()).unwrap();
        NamespaceBinding { floor_ms: MS_MAX, ..binding }
    }

    fn record(holder: &str) -> LeaseRecord {
        let lease = Lease { worker: 7, grant_id: GrantId(0xab), not_before_ms: 5, valid_until_ms: MS_MAX };
        LeaseRecord { lease, holder: holder.to_owned(), acquired_ms: 0, is_final: true }
    }

    fn fields() -> BTreeMap<String, String> {
        let fields = [
            ("generation", "g".to_owned()),
            ("incarnation", "i".to_owned()),
            ("binding", write_binding(&binding())),
            ("bound_ms", "9".to_owned()),
            ("worker:7", write_worker(&record("a host"))),
            ("claim", String::new()),
        ];
        fields.map(|(name, text)| (name.to_owned(), text)).into()
    }

    #[test]
    fn a_lease_is_read_as_it_was_written() {
        for holder in ["", "a", "two words ", " ", "\u{e9}"] {
            let record = record(holder);
            assert_eq!(read_worker(7, &write_worker(&record)), Some(record));
        }
    }

    #[test]
    fn a_lease_that_is_written_otherwise_is_none() {
        let right = write_worker(&record("a"));
        for (from, to) in [
            ("ab 5", "AB 5"),
            ("ab 5", "xb 5"),
            ("000ab", "0ab"),
            (" 5 ", " 05 "),
            (" 5 ", " +5 "),
            (" 5 ", " -5 "),
            (" 5 ", "  "),
            (" 5 ", " "),
            (" 5 ", " 9007199254740991.5 "),
            ("9007199254740991", "9007199254740992"),
            ("9007199254740991", "4"),
            (" 0 1 ", " 0 2 "),
            (" 0 1 ", " 0 "),
            (" a", ""),
            (" a", " a\u{1}"),
        ] {
            let wrong = right.replacen(from, to, 1);
            assert_ne!(wrong, right);
            assert_eq!(read_worker(7, &wrong), None, "{wrong:?}");
        }
        assert_eq!(read_worker(7, &write_worker(&record(&"x".repeat(129)))), None);
    }

    #[test]
    fn a_hash_is_read_as_it_was_written() {
        let hash = Hash::read(&mut fields()).unwrap().unwrap();
        assert_eq!((hash.generation.as_str(), hash.incarnation.as_str(), hash.binding), ("g", "i", Some(binding())));
        assert_eq!(hash.kept, Kept::UnderBound { bound_ms: 9 });
        assert_eq!(hash.workers[&7].record, record("a host"));
        assert_eq!(hash.greatest_end_ms(), MS_MAX);
        assert!(Hash::read(&mut BTreeMap::new()).unwrap().is_none());
    }

    #[test]
    fn a_damaged_hash_is_none() {
        let binding = write_binding(&binding());
        for (name, text) in [
            ("worker:1024", write_worker(&record("a"))),
            ("worker:07", write_worker(&record("a"))),
            ("worker:", write_worker(&record("a"))),
            ("worker:8", String::new()),
            ("bound_ms", "-1".to_owned()),
            ("bound_ms", String::new()),
            ("begun_by", "use".to_owned()),
            ("binding", String::new()),
            ("binding", binding.replace("version=1", "version=2")),
            ("binding", binding.replace("tick_ms=1", "tick_ms=x")),
            ("binding", binding.replace("sequence_first=0", "sequence_first=2")),
            ("binding", format!("{binding} more=1")),
            ("binding", binding.replace("worker_bits=", "worker_bits=0")),
        ] {
            let mut fields = fields();
            fields.insert(name.to_owned(), text);
            assert!(Hash::read(&mut fields.clone()).is_err(), "{name}: {fields:?}");
        }
        for name in ["generation", "incarnation", "binding", "bound_ms"] {
            let mut fields = fields();
            fields.remove(name);
            assert!(Hash::read(&mut fields).is_err(), "{name} is missing");
        }
    }
}
