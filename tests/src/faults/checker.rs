//! What clients received, and what is wrong with it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::node::Memory;
use super::schedule::FaultKind;
use super::{Soak, StoreKind};

/// Duplicates and violations that are named.
const NAMED_MAX: usize = 8;

/// Which ids: two kinds have nothing to do with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// Numbers of one tag.
    Sequence,
    /// Snowflakes of one namespace.
    Snowflake,
}

/// Keeps what all clients received.
#[derive(Default)]
pub(super) struct Checker {
    sequence: Mutex<Seen>,
    snowflake: Mutex<Seen>,
    /// What else is wrong.
    notes: Mutex<Vec<String>>,
}

#[derive(Default)]
struct Seen {
    attempted: u64,
    ids: Vec<u64>,
    errors: BTreeMap<String, u64>,
    last: Option<Instant>,
    longest_gap: Duration,
}

impl Checker {
    fn seen(&self, ids: Ids) -> MutexGuard<'_, Seen> {
        let seen = match ids {
            Ids::Sequence => &self.sequence,
            Ids::Snowflake => &self.snowflake,
        };
        seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the time without ids is measured.
    pub(super) fn begin(&self) {
        for ids in [Ids::Sequence, Ids::Snowflake] {
            let mut seen = self.seen(ids);
            (seen.last, seen.longest_gap) = (Some(Instant::now()), Duration::ZERO);
        }
    }

    /// Ends what [`begin`](Self::begin) began: the time since the last id counts, too.
    pub(super) fn end(&self) {
        for ids in [Ids::Sequence, Ids::Snowflake] {
            let mut seen = self.seen(ids);
            if let Some(last) = seen.last {
                seen.longest_gap = seen.longest_gap.max(last.elapsed());
            }
        }
    }

    pub(super) fn attempt(&self, ids: Ids) {
        self.seen(ids).attempted += 1;
    }

    pub(super) fn acknowledge(&self, ids: Ids, id: u64) {
        let mut seen = self.seen(ids);
        let now = Instant::now();
        if let Some(last) = seen.last.replace(now) {
            seen.longest_gap = seen.longest_gap.max(now - last);
        }
        seen.ids.push(id);
    }

    /// A call that was refused for now.
    pub(super) fn fail(&self, ids: Ids, text: &str) {
        // Numbers differ from one to the next.
        let kind: String = text.chars().filter(|character| !character.is_ascii_digit()).collect();
        *self.seen(ids).errors.entry(kind).or_default() += 1;
    }

    /// Something that must not be.
    pub(super) fn note(&self, what: &str) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(what.to_owned());
    }

    pub(super) fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn report(
        &self,
        soak: Soak,
        took: Duration,
        faults: BTreeMap<FaultKind, u64>,
        memory: Vec<Memory>,
    ) -> Report {
        let workload = |ids| {
            let mut seen = self.seen(ids);
            Workload::new(std::mem::take(&mut *seen))
        };
        let (sequence, snowflake) = (workload(Ids::Sequence), workload(Ids::Snowflake));
        let notes = self.notes();
        Report { soak, took, sequence, snowflake, faults, memory, notes }
    }
}

/// What came of one kind of ids, in the terms of the checker of Jepsen's `unique-ids`.
#[derive(Debug)]
pub struct Workload {
    /// Calls that were made.
    pub attempted: u64,
    /// Those that an id was answered to.
    pub acknowledged: usize,
    /// Ids that came more than once, and how often; the first ones.
    pub duplicated: Vec<(u64, usize)>,
    /// How many ids came more than once.
    pub duplicated_count: usize,
    /// The least and the greatest.
    pub range: Option<(u64, u64)>,
    /// Calls that were refused for now, by what was said.
    pub errors: BTreeMap<String, u64>,
    /// The longest time without any id.
    pub longest_gap: Duration,
}

impl Workload {
    fn new(seen: Seen) -> Self {
        let Seen { attempted, mut ids, errors, longest_gap, .. } = seen;
        ids.sort_unstable();
        let repeated = ids.chunk_by(|a, b| a == b).filter(|equal| equal.len() > 1);
        let duplicated_count = repeated.clone().count();
        let duplicated = repeated.filter_map(|equal| Some((*equal.first()?, equal.len()))).take(NAMED_MAX).collect();
        let range = ids.first().copied().zip(ids.last().copied());
        Self { attempted, acknowledged: ids.len(), duplicated, duplicated_count, range, errors, longest_gap }
    }
}

/// What came of a run. Printed, it is a map of Clojure's data notation, as Jepsen prints, with fields of our own.
#[derive(Debug)]
pub struct Report {
    soak: Soak,
    took: Duration,
    /// Numbers of one tag.
    pub sequence: Workload,
    /// Snowflakes.
    pub snowflake: Workload,
    /// How often each fault happened.
    pub faults: BTreeMap<FaultKind, u64>,
    /// Of each process that lived long enough.
    pub memory: Vec<Memory>,
    /// What else was wrong.
    pub notes: Vec<String>,
}

impl Report {
    /// Whether no id came twice, and nothing else was wrong.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.notes.is_empty() && [&self.sequence, &self.snowflake].iter().all(|ids| ids.duplicated_count == 0)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = StoreKind::ALL.iter().find(|(_, kind)| *kind == self.soak.store).map_or("", |(name, _)| name);
        writeln!(out, "{{:store {store:?}, :nodes {}, :seed {},", self.soak.nodes, self.soak.seed)?;
        writeln!(out, " :seconds {:.1},", self.took.as_secs_f64())?;
        for (name, ids) in [("sequence", &self.sequence), ("snowflake", &self.snowflake)] {
            writeln!(out, " :{name} {{:valid? {},", ids.duplicated_count == 0)?;
            writeln!(out, "  :attempted-count {},", ids.attempted)?;
            writeln!(out, "  :acknowledged-count {},", ids.acknowledged)?;
            writeln!(out, "  :duplicated-count {},", ids.duplicated_count)?;
            let named: Vec<_> = ids.duplicated.iter().map(|(id, times)| format!("{id} {times}")).collect();
            writeln!(out, "  :duplicated {{{}}},", named.join(", "))?;
            match ids.range {
                Some((least, greatest)) => writeln!(out, "  :range [{least} {greatest}],")?,
                None => writeln!(out, "  :range nil,")?,
            }
            writeln!(out, "  :longest-ms-without-ids {},", ids.longest_gap.as_millis())?;
            let errors: Vec<_> = ids.errors.iter().map(|(text, count)| format!("{text:?} {count}")).collect();
            writeln!(out, "  :refused-for-now {{{}}}}},", errors.join(",\n   "))?;
        }
        let faults: Vec<_> = self.faults.iter().map(|(kind, count)| format!("{} {count}", kind.name())).collect();
        writeln!(out, " :faults {{{}}},", faults.join(", "))?;
        let memory: Vec<_> = self
            .memory
            .iter()
            .map(|Memory { span, first_kib, last_kib }| format!("[{} {first_kib} {last_kib}]", span.as_secs()))
            .collect();
        writeln!(out, " ;; seconds between, KiB at first, KiB at the end")?;
        writeln!(out, " :memory [{}],", memory.join(" "))?;
        writeln!(out, " :notes {:?},", self.notes)?;
        write!(out, " :valid? {}}}", self.is_valid())
    }
}
