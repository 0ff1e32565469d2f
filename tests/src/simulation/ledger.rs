//! Looks at each id that leaves a process. It knows nothing of how ids are made.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use unalike_core::{FieldOrder, Layout, Lease, Run, Segment};

/// The ids below 2^6 times so many of one word.
const WORD_BITS: u64 = 64;

/// The most violations that are kept.
const VIOLATIONS_MAX: usize = 1_000;

/// What should never have happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// An id was handed out a second time.
    Twice {
        /// What it was counted under.
        space: String,
        /// The id.
        id: u64,
        /// Who handed it out first, and when, in milliseconds from the beginning.
        first: (u64, u64),
        /// Who did so again.
        again: (u64, u64),
    },
    /// A process handed out what it was not granted.
    NotGranted {
        /// What it was counted under.
        space: String,
        /// The first id of the run.
        id: u64,
        /// The process.
        process: u64,
    },
    /// A process was granted what had been granted.
    GrantedTwice {
        /// What it is counted under.
        space: String,
        /// The first number of the grant.
        id: u64,
    },
    /// An id of an ordered tag is not above one that had been handed out before it was asked for.
    OutOfOrder {
        /// The tag.
        space: String,
        /// The id.
        id: u64,
        /// The greatest id that had been handed out by then.
        before: u64,
    },
    /// The ids of one process went down.
    WentDown {
        /// What they are counted under.
        space: String,
        /// The process.
        process: u64,
        /// The id.
        id: u64,
        /// The one before.
        before: u64,
    },
    /// No id was handed out for long, though nothing was wrong any more.
    Stalled {
        /// What it would have been counted under.
        space: String,
        /// The process.
        process: u64,
        /// What it heard last.
        heard: String,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Twice { space, id, first, again } => write!(
                f,
                "{space}: {id} was handed out by process {} at {} ms, and by process {} at {} ms",
                first.0, first.1, again.0, again.1
            ),
            Self::NotGranted { space, id, process } => {
                write!(f, "{space}: process {process} handed out {id} and was not granted it")
            }
            Self::GrantedTwice { space, id } => write!(f, "{space}: {id} was granted twice"),
            Self::OutOfOrder { space, id, before } => {
                write!(f, "{space}: {id} was handed out to a caller that came after {before} was handed out")
            }
            Self::WentDown { space, process, id, before } => {
                write!(f, "{space}: process {process} handed out {id} after {before}")
            }
            Self::Stalled { space, process, heard } => {
                write!(f, "{space}: process {process} handed out nothing after everything was well again: {heard}")
            }
        }
    }
}

/// Ids that leave a process together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Issue {
    pub(crate) process: u64,
    pub(crate) at_ms: u64,
    pub(crate) run: Run,
}

#[derive(Debug, Default)]
struct Space {
    /// One bit per id that was handed out, by the word that it is in.
    words: HashMap<u64, u64>,
    issues: Vec<Issue>,
    /// The greatest id that was handed out.
    greatest: u64,
    /// The last id of each process.
    last: HashMap<u64, u64>,
    segments: HashMap<u64, Vec<Segment>>,
    leases: HashMap<u64, Vec<Lease>>,
}

/// All that was handed out.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    spaces: HashMap<String, Space>,
    pub(crate) ids: u64,
    /// How many by the time of the first violation.
    pub(crate) ids_until: Option<u64>,
    pub(crate) violations: Vec<Violation>,
    digest: DefaultHasher,
}

impl Ledger {
    pub(crate) fn digest(&self) -> u64 {
        self.digest.finish()
    }

    fn found(&mut self, violation: Violation) {
        self.ids_until.get_or_insert(self.ids);
        // One of each kind says it; a system that is wrong would fill the memory.
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(violation);
        }
    }

    fn space(&mut self, name: &str) -> &mut Space {
        if !self.spaces.contains_key(name) {
            self.spaces.insert(name.to_owned(), Space::default());
        }
        self.spaces.get_mut(name).unwrap()
    }

    /// Ids leave a process.
    pub(crate) fn issue(&mut self, name: &str, issue: Issue) {
        let Issue { process, at_ms, run } = issue;
        self.ids += u64::from(run.count);
        (name, process, at_ms, run).hash(&mut self.digest);
        let space = self.space(name);
        let found = space.mark(&run);
        space.greatest = space.greatest.max(run.last());
        let first = found.map(|id| {
            let earlier = space.issues.iter().find(|issue| is_in(&issue.run, id));
            (id, earlier.map_or((0, 0), |issue| (issue.process, issue.at_ms)))
        });
        space.issues.push(issue);
        if let Some((id, first)) = first {
            self.found(Violation::Twice { space: name.to_owned(), id, first, again: (process, at_ms) });
        }
    }

    /// The ids of a process ascend, where it is granted by one store.
    pub(crate) fn check_ascent(&mut self, name: &str, process: u64, run: &Run) {
        let last = self.space(name).last.insert(process, run.last()).unwrap_or(0);
        if run.first <= last {
            let (space, id, before) = (name.to_owned(), run.first, last);
            self.found(Violation::WentDown { space, process, id, before });
        }
    }

    /// A process hears of a segment.
    pub(crate) fn granted(&mut self, name: &str, process: u64, segment: Segment) {
        let of_process = self.space(name).segments.entry(process).or_default();
        let repeats = of_process.iter().any(|known| {
            known.stride == segment.stride
                && known.start % known.stride == segment.start % segment.stride
                && known.start < segment.end
                && segment.start < known.end
        });
        of_process.push(segment);
        if repeats {
            self.found(Violation::GrantedTwice { space: name.to_owned(), id: segment.start });
        }
    }

    /// A run of a sequence lies in one segment of its process.
    pub(crate) fn check_segment(&mut self, name: &str, process: u64, run: &Run) {
        let segments = self.space(name).segments.get(&process).map(Vec::as_slice).unwrap_or_default();
        let is_granted = segments.iter().rev().any(|segment| {
            segment.start <= run.first
                && run.last() < segment.end
                && run.stride == segment.stride
                && run.first % run.stride == segment.start % segment.stride
        });
        self.check(is_granted, name, process, run);
    }

    /// A process hears of a lease, a new one or the same with another end.
    pub(crate) fn leased(&mut self, name: &str, process: u64, lease: Lease) {
        self.space(name).leases.entry(process).or_default().push(lease);
    }

    /// The ids of a run lie in one lease of their process, each of them wholly.
    pub(crate) fn check_lease(&mut self, name: &str, process: u64, layout: &Layout, run: &Run) {
        let leases = self.space(name).leases.get(&process).map(Vec::as_slice).unwrap_or_default();
        let is_granted = [run.first, run.last()].into_iter().all(|id| {
            let (worker, tick) = read(id, layout);
            let fields = layout.fields();
            let tick_ms = u64::from(fields.tick_ms);
            let from_ms = fields.epoch_ms + tick * tick_ms;
            leases.iter().rev().any(|lease| {
                u64::from(lease.worker) == worker
                    && lease.not_before_ms <= from_ms
                    && from_ms + tick_ms <= lease.valid_until_ms
            })
        });
        self.check(is_granted, name, process, run);
    }

    fn check(&mut self, is_granted: bool, name: &str, process: u64, run: &Run) {
        if !is_granted {
            self.found(Violation::NotGranted { space: name.to_owned(), id: run.first, process });
        }
    }

    /// The greatest id of an ordered tag that was handed out: what a caller that comes now must get more than.
    pub(crate) fn greatest(&mut self, name: &str) -> u64 {
        self.space(name).greatest
    }

    /// A caller of an ordered tag is given this, and when it came, `before` was the greatest.
    pub(crate) fn check_order(&mut self, name: &str, before: u64, run: &Run) {
        if run.first <= before {
            self.found(Violation::OutOfOrder { space: name.to_owned(), id: run.first, before });
        }
    }

    pub(crate) fn stalled(&mut self, name: &str, process: u64, heard: String) {
        self.found(Violation::Stalled { space: name.to_owned(), process, heard });
    }
}

impl Space {
    /// Notes the ids of a run. One that was noted before, if any was.
    fn mark(&mut self, run: &Run) -> Option<u64> {
        let mut found = None;
        if run.stride != 1 {
            for id in run.ids() {
                found = self.mark_bits(id / WORD_BITS, 1 << (id % WORD_BITS)).or(found);
            }
            return found;
        }
        let end = run.last() + 1;
        let mut next = run.first;
        while next < end {
            let word = next / WORD_BITS;
            let until = end.min((word + 1) * WORD_BITS);
            let ones = u64::MAX >> (WORD_BITS - (until - next));
            found = found.or(self.mark_bits(word, ones << (next % WORD_BITS)));
            next = until;
        }
        found
    }

    fn mark_bits(&mut self, word: u64, bits: u64) -> Option<u64> {
        let known = self.words.entry(word).or_default();
        let again = *known & bits;
        *known |= bits;
        (again != 0).then(|| word * WORD_BITS + u64::from(again.trailing_zeros()))
    }
}

fn is_in(run: &Run, id: u64) -> bool {
    run.first <= id && id <= run.last() && (id - run.first).is_multiple_of(run.stride)
}

/// The worker and the tick of an id, read from its bits.
fn read(id: u64, layout: &Layout) -> (u64, u64) {
    let fields = layout.fields();
    let (workers, sequence) = (u32::from(fields.datacenter_bits + fields.worker_bits), u32::from(fields.sequence_bits));
    let tick = id >> (workers + sequence);
    let above = if fields.order == FieldOrder::WorkerFirst { id >> sequence } else { id };
    (above & !(u64::MAX << workers), tick)
}
