//! A bench: cases that take turns, and the one table that is printed of them.

use std::time::Duration;

use anyhow::Result;

use crate::windows::Case;
use crate::{CaseId, Plan, Tally};

/// Cases measured side by side, and the rows that are made of them.
pub struct Bench<'a> {
    title: &'static str,
    plan: Plan,
    cases: Vec<Case<'a>>,
    rows: Vec<Row>,
}

/// Names a row, for others to be compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowId(usize);

/// A figure of the table.
pub struct Row {
    name: String,
    of: Of,
    baseline: Option<RowId>,
    target: Option<Target>,
}

enum Of {
    Ids(CaseId),
    Calls(CaseId),
    Samples { samples: Vec<f64>, unit: &'static str },
}

#[derive(Clone, Copy)]
enum Target {
    /// At most so many times the baseline.
    Ratio(f64),
    /// At least so many times the baseline, for what is better when it is more.
    RatioAtLeast(f64),
    /// At most so much, in the row's own unit.
    AtMost(f64),
    /// At least so many ids a second.
    PerSecond(f64),
    /// At least so much, in the row's own unit.
    AtLeast(f64),
}

impl Row {
    fn new(name: impl Into<String>, of: Of) -> Self {
        Self { name: name.into(), of, baseline: None, target: None }
    }

    /// Nanoseconds per id of a case, over all its threads.
    pub fn ids(name: impl Into<String>, case: CaseId) -> Self {
        Self::new(name, Of::Ids(case))
    }

    /// Nanoseconds per call of a case.
    pub fn calls(name: impl Into<String>, case: CaseId) -> Self {
        Self::new(name, Of::Calls(case))
    }

    /// What was measured in another way: milliseconds, KiB, requests per second.
    pub fn samples(name: impl Into<String>, samples: Vec<f64>, unit: &'static str) -> Self {
        Self::new(name, Of::Samples { samples, unit })
    }

    /// The row that this one is compared with.
    #[must_use]
    pub fn against(self, baseline: RowId) -> Self {
        Self { baseline: Some(baseline), ..self }
    }

    /// The target, as a multiple of the baseline.
    #[must_use]
    pub fn ratio_at_most(self, ratio: f64) -> Self {
        Self { target: Some(Target::Ratio(ratio)), ..self }
    }

    /// The target, as a multiple of the baseline, of a rate.
    #[must_use]
    pub fn ratio_at_least(self, ratio: f64) -> Self {
        Self { target: Some(Target::RatioAtLeast(ratio)), ..self }
    }

    /// The target in nanoseconds.
    #[must_use]
    pub fn ns_at_most(self, ns: f64) -> Self {
        self.at_most(ns)
    }

    /// The target in the row's own unit.
    #[must_use]
    pub fn at_most(self, value: f64) -> Self {
        Self { target: Some(Target::AtMost(value)), ..self }
    }

    /// The target in ids per second.
    #[must_use]
    pub fn per_second_at_least(self, rate: f64) -> Self {
        Self { target: Some(Target::PerSecond(rate)), ..self }
    }

    /// The target in the row's own unit, for what is better when it is more.
    #[must_use]
    pub fn at_least(self, value: f64) -> Self {
        Self { target: Some(Target::AtLeast(value)), ..self }
    }
}

/// A row's figures.
struct Figures {
    median: f64,
    least: f64,
    greatest: f64,
    windows: String,
    unit: &'static str,
}

impl<'a> Bench<'a> {
    /// An empty bench; cases are measured by `plan` unless they bring their own.
    #[must_use]
    pub fn new(title: &'static str, plan: Plan) -> Self {
        Self { title, plan, cases: Vec::new(), rows: Vec::new() }
    }

    /// Adds work for one thread per state; `chunk` does a small part of it, some microseconds long, and tallies it.
    pub fn case<S: Send + 'a>(
        &mut self,
        states: Vec<S>,
        chunk: impl Fn(&mut S, &mut Tally) -> Result<()> + Sync + 'a,
    ) -> CaseId {
        self.case_by(self.plan, states, chunk)
    }

    /// The same by a plan of its own.
    pub fn case_by<S: Send + 'a>(
        &mut self,
        plan: Plan,
        states: Vec<S>,
        chunk: impl Fn(&mut S, &mut Tally) -> Result<()> + Sync + 'a,
    ) -> CaseId {
        self.cases.push(Case::new(plan, states, chunk));
        CaseId(self.cases.len() - 1)
    }

    /// Adds a row to the table.
    pub fn row(&mut self, row: Row) -> RowId {
        self.rows.push(row);
        RowId(self.rows.len() - 1)
    }

    /// Measures all cases, window by window in turns, and prints the table.
    ///
    /// # Errors
    /// A wrong id, or what a case fails with. A missed target is no error.
    pub fn run(mut self) -> Result<()> {
        loop {
            // The fastest probe may come late, and then throws windows away that were kept until then.
            let probe_best = self.probe_best();
            if self.cases.iter().all(|case| case.is_done(probe_best)) {
                break;
            }
            for case in self.cases.iter_mut().filter(|case| !case.is_done(probe_best)) {
                case.advance()?;
            }
        }
        self.print();
        Ok(())
    }

    fn probe_best(&self) -> Duration {
        self.cases.iter().flat_map(Case::probes).min().unwrap_or(Duration::ZERO)
    }

    fn figures(&self, row: &Row) -> Option<Figures> {
        let (mut samples, unit, windows) = match &row.of {
            Of::Ids(case) => self.measured(*case, false)?,
            Of::Calls(case) => self.measured(*case, true)?,
            Of::Samples { samples, unit } => (samples.clone(), *unit, samples.len().to_string()),
        };
        samples.sort_by(f64::total_cmp);
        let median = *samples.get(samples.len() / 2)?;
        Some(Figures { median, least: *samples.first()?, greatest: *samples.last()?, windows, unit })
    }

    fn measured(&self, case: CaseId, per_call: bool) -> Option<(Vec<f64>, &'static str, String)> {
        let case = self.cases.get(case.0)?;
        let (samples, marked) = case.samples(per_call, self.probe_best());
        let windows = format!("{}/{}{}", samples.len(), case.tried(), if marked { " (busy)" } else { "" });
        Some((samples, if per_call { "ns/call" } else { "ns/id" }, windows))
    }

    fn print(&self) {
        let mut lines =
            vec![["figure", "median", "M/s", "ratio", "target", "verdict", "min .. max", "windows"].map(str::to_owned)];
        lines.extend(self.rows.iter().filter_map(|row| self.line(row)));
        let widths: [usize; 8] = std::array::from_fn(|column| {
            lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        });
        println!(
            "\n{}{}",
            self.title,
            if cfg!(debug_assertions) { " (a debug build: the figures mean nothing)" } else { "" }
        );
        let mut probes: Vec<_> = self.cases.iter().flat_map(Case::probes).collect();
        probes.sort_unstable();
        if let (Some(best), Some(median)) = (probes.first(), probes.get(probes.len() / 2)) {
            println!("the core: {best:.1?} for the probe at best, {median:.1?} around the median window");
        }
        for (number, line) in lines.iter().enumerate() {
            let cells: Vec<_> = line.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            println!("| {} |", cells.join(" | "));
            if number == 0 {
                println!("|{}|", widths.map(|width| "-".repeat(width + 2)).join("|"));
            }
        }
        println!();
    }

    fn line(&self, row: &Row) -> Option<[String; 8]> {
        let figures = self.figures(row)?;
        let Figures { median, least, greatest, windows, unit } = figures;
        let baseline = row.baseline.and_then(|RowId(row)| self.rows.get(row)).and_then(|row| self.figures(row));
        let ratio = baseline.map(|baseline| median / baseline.median);
        let rate = 1e9 / median;
        let is_time = unit.starts_with("ns");
        let (target, missed) = match row.target {
            None => (String::new(), None),
            Some(Target::Ratio(limit)) => (format!("<= {limit} x"), ratio.map(|ratio| ratio / limit)),
            Some(Target::RatioAtLeast(limit)) => (format!(">= {limit} x"), ratio.map(|ratio| limit / ratio)),
            // Where nothing is allowed there is no share by which it is missed.
            Some(Target::AtMost(limit)) => {
                (format!("<= {limit} {unit}"), Some(if median <= limit { 0.0 } else { median / limit }))
            }
            Some(Target::AtLeast(limit)) => (format!(">= {limit} {unit}"), Some(limit / median)),
            Some(Target::PerSecond(limit)) => (format!(">= {:.3} M/s", limit / 1e6), Some(limit / rate)),
        };
        let verdict = missed.map_or_else(String::new, |missed| {
            if missed <= 1.0 { "met".to_owned() } else { format!("missed by {:.1}%", (missed - 1.0) * 100.0) }
        });
        Some([
            row.name.clone(),
            format!("{median:.2} {unit}"),
            if is_time { format!("{:.3}", rate / 1e6) } else { String::new() },
            ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            target,
            verdict,
            format!("{least:.2} .. {greatest:.2}"),
            windows,
        ])
    }
}
