//! Runs simulations: see [`unalike_tests::simulation`].

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use unalike_tests::simulation::{Defect, Outcome, Plan, System, Violation, run, shrink};

const HELP: &str = "\
Runs whole systems in virtual time and looks at each id.

usage: simulate --seed N        the plan of one seed, in words, and what came of it
       simulate --plan LINE     the same for a part of a plan: 42:3,7
       simulate --seeds N       the seeds 1 to N; the first that ends badly is shrunk
       simulate --ids N         seeds from 1 on until so many ids were handed out
       simulate --defects       each system that is known to be wrong, until it is found out

  --from N         begins with seed N instead of 1
  --component      runs the compiled component instead of the core in Rust
  --defect NAME    runs this system that is known to be wrong instead of the product
  --threads N      on so many threads; as many as there are cores by default
";

/// Seeds within which each defect must show.
const DEFECT_SEEDS: u64 = 5_000;

/// What the command line asks for.
enum Task {
    Plan(Box<Plan>),
    Seeds(u64),
    Ids(u64),
    Defects,
}

struct Arguments {
    task: Task,
    from: u64,
    system: System,
    threads: usize,
}

fn main() -> anyhow::Result<ExitCode> {
    let Some(arguments) = arguments(std::env::args().skip(1))? else {
        print!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    };
    let is_good = match &arguments.task {
        Task::Plan(plan) => one(plan, arguments.system),
        Task::Seeds(seeds) => many(&arguments, *seeds, u64::MAX),
        Task::Ids(ids) => many(&arguments, u64::MAX, *ids),
        Task::Defects => defects(),
    };
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is asked for; nothing when that is help.
fn arguments(mut words: impl Iterator<Item = String>) -> anyhow::Result<Option<Arguments>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (mut task, mut from, mut system, mut threads) = (None, 1, System::Native, threads);
    while let Some(word) = words.next() {
        if word == "--help" || word == "-h" {
            return Ok(None);
        }
        match word.as_str() {
            "--defects" => {
                task = Some(Task::Defects);
                continue;
            }
            "--component" => {
                system = System::Component;
                continue;
            }
            _ => {}
        }
        let value = words.next().with_context(|| format!("{word} needs a value: see simulate --help"))?;
        let number = || value.parse::<u64>().with_context(|| format!("{word} {value}: it is no whole number"));
        match word.as_str() {
            "--seed" => task = Some(Task::Plan(Box::new(Plan::of(number()?, None)))),
            "--plan" => task = Some(Task::Plan(Box::new(value.parse()?))),
            "--seeds" => task = Some(Task::Seeds(number()?)),
            "--ids" => task = Some(Task::Ids(number()?)),
            "--from" => from = number()?,
            "--threads" => threads = usize::try_from(number()?)?,
            "--defect" => {
                let names: Vec<_> = Defect::ALL.iter().map(|defect| defect.name()).collect();
                let found = Defect::named(&value);
                let found = found.with_context(|| format!("{value:?} is none of {}", names.join(", ")))?;
                system = System::Defective(found);
            }
            _ => bail!("{word:?} is no option: see simulate --help"),
        }
    }
    ensure!(threads > 0, "--threads is 0, and must be 1 or more");
    Ok(task.map(|task| Arguments { task, from, system, threads }))
}

/// Runs one plan, and says everything.
fn one(plan: &Plan, system: System) -> bool {
    print!("{plan}");
    let outcome = run(plan, system);
    for (kind, count) in &outcome.counts {
        println!("{count:>9}  {kind}");
    }
    for violation in outcome.violations.iter().take(20) {
        println!("  {violation}");
    }
    println!("{} ids, {} violations, digest {:016x}", outcome.ids, outcome.violations.len(), outcome.digest);
    outcome.violations.is_empty()
}

/// What came of many plans.
#[derive(Default)]
struct Total {
    seeds: u64,
    ids: u64,
    duplicates: usize,
    counts: BTreeMap<&'static str, u64>,
    /// The least seed that ended badly.
    bad: Option<u64>,
}

impl Total {
    fn add(&mut self, seed: u64, system: System, outcome: &Outcome) {
        self.seeds += 1;
        self.ids += outcome.ids;
        self.duplicates += outcome.violations.iter().filter(|found| matches!(found, Violation::Twice { .. })).count();
        for (kind, count) in &outcome.counts {
            *self.counts.entry(kind).or_default() += count;
        }
        if outcome.violations.iter().any(|violation| system.shows_as(violation)) {
            self.bad = Some(self.bad.map_or(seed, |bad| bad.min(seed)));
        }
    }
}

/// Runs seeds until one ends badly, or there were as many seeds or ids as were asked for.
fn many(arguments: &Arguments, seeds: u64, ids: u64) -> bool {
    let began = Instant::now();
    let (next, total) = (AtomicU64::new(arguments.from), Mutex::new(Total::default()));
    let end = arguments.from.saturating_add(seeds);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let is_over = {
                let total = total.lock().unwrap_or_else(PoisonError::into_inner);
                seed >= end || total.ids >= ids || total.bad.is_some()
            };
            if is_over {
                return;
            }
            let outcome = run(&Plan::of(seed, None), arguments.system);
            total.lock().unwrap_or_else(PoisonError::into_inner).add(seed, arguments.system, &outcome);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads {
            scope.spawn(work);
        }
    });
    let total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (kind, count) in &total.counts {
        println!("{count:>12}  {kind}");
    }
    if let Some(seed) = total.bad {
        println!("seed {seed} ends badly; the least that was found to do so:");
        one(&shrink(&Plan::of(seed, None), arguments.system), arguments.system);
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{} seeds, {} ids, {} duplicates, in {seconds:.1} s", total.seeds, total.ids, total.duplicates);
    total.bad.is_none()
}

/// Runs each defect until it shows.
fn defects() -> bool {
    println!("| system | seeds | ids until it showed | plan | what showed |\n| --- | ---: | ---: | --- | --- |");
    let mut all_found = true;
    for defect in Defect::ALL {
        let mut ids = 0;
        let found = (1..=DEFECT_SEEDS).find_map(|seed| {
            let outcome = run(&Plan::of(seed, None), System::Defective(defect));
            let shown = outcome.violations.iter().find(|violation| defect.shows_as(violation));
            ids += if shown.is_some() { outcome.ids_until } else { outcome.ids };
            shown.map(|violation| (seed, violation.to_string()))
        });
        match found {
            Some((seed, violation)) => {
                let plan = shrink(&Plan::of(seed, None), System::Defective(defect)).line();
                println!("| {defect} | {seed} | {ids} | {plan} | {violation} |");
            }
            None => {
                all_found = false;
                println!("| {defect} | {DEFECT_SEEDS} | {ids} | | **nothing** |");
            }
        }
    }
    all_found
}
