//! The table that a sweep ends with.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use super::{Case, Judge, Outcome, Plan, Subject, Trial, Variables, draw_pairs};

/// The longest value, and the longest message, in the table.
const VALUE_MAX: usize = 48;
const WORDS_MAX: usize = 240;

/// What came of a sweep.
#[derive(Clone, Debug)]
pub struct Report {
    /// Each trial.
    pub trials: Vec<Trial>,
    /// The variables that were not tried, and why.
    pub left_out: Vec<(String, &'static str)>,
    /// How long it took.
    pub took: Duration,
}

impl Report {
    /// Sweeps one store, as the plan says.
    ///
    /// # Errors
    /// When servers cannot be started.
    pub fn make<S: Subject>(plan: &Plan) -> anyhow::Result<Self> {
        let begun = Instant::now();
        let (variables, definitions) = block_on(async {
            let mut judge = Judge::<S>::begin(plan.is_control).await?;
            let variables = judge.subject().variables(plan).await?;
            anyhow::Ok((variables, judge.subject().definitions()))
        })?;
        let cases = cases(plan, &variables, definitions);
        let servers = plan.servers.max(1);
        let mut trials = Vec::new();
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..servers)
                .map(|worker| {
                    let share: Vec<Case> = cases.iter().skip(worker).step_by(servers).cloned().collect();
                    scope.spawn(move || block_on(sweep::<S>(plan, share)))
                })
                .collect();
            for worker in workers {
                trials.extend(worker.join().map_err(|_| anyhow::anyhow!("a server's thread panicked"))??);
            }
            anyhow::Ok(())
        })?;
        trials.sort_by(|a, b| (&a.names, a.way).cmp(&(&b.names, b.way)));
        Ok(Self { trials, left_out: variables.left_out, took: begun.elapsed() })
    }

    /// Whether an id came twice, or a call did not end.
    #[must_use]
    pub fn is_bad(&self) -> bool {
        self.trials.iter().any(|trial| trial.outcome.is_bad())
    }

    /// How many trials ended so.
    pub fn count(&self, is_so: impl Fn(&Outcome) -> bool) -> usize {
        self.trials.iter().filter(|trial| is_so(&trial.outcome)).count()
    }

    /// How many variables were tried.
    #[must_use]
    pub fn variables(&self) -> usize {
        let singles = self.trials.iter().filter(|trial| trial.way.is_some() && trial.names.len() == 1);
        singles.flat_map(|trial| &trial.names).collect::<BTreeSet<_>>().len()
    }

    /// How many definitions, and rights, were tried.
    #[must_use]
    pub fn definitions(&self) -> usize {
        self.trials.iter().filter(|trial| trial.way.is_none()).count()
    }

    /// Refusals that do not name what was set: a reader would not know where to look.
    pub fn unnamed(&self) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(|trial| match &trial.outcome {
            Outcome::Refused(words) => {
                let plain = |text: &str| text.to_lowercase().replace(['-', ' '], "_");
                trial.way.is_some() && !trial.names.iter().any(|name| plain(words).contains(&plain(name)))
            }
            _ => false,
        })
    }
}

/// A runtime of this thread.
fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// All that is tried, in the order in which it is.
fn cases(plan: &Plan, variables: &Variables, definitions: Vec<(&'static str, Vec<String>)>) -> Vec<Case> {
    let singles = variables.singles(plan.values_max);
    let pairs = draw_pairs(&singles, plan.pairs, plan.seed);
    // A definition is about the product's tables.
    let definitions = definitions.into_iter().filter(|(name, _)| !plan.is_control && plan.asks_for(name));
    let definitions = definitions.map(|(name, statements)| Case::Define(name, statements));
    definitions.chain(singles).chain(pairs).collect()
}

async fn sweep<S: Subject>(plan: &Plan, cases: Vec<Case>) -> anyhow::Result<Vec<Trial>> {
    let mut judge = Judge::<S>::begin(plan.is_control).await?;
    let mut trials = Vec::new();
    for case in &cases {
        let trial = match judge.judge(case).await {
            Ok(trial) => trial,
            Err(error) => {
                judge = Judge::begin(plan.is_control).await?;
                Trial::broken(case, &error)
            }
        };
        if plan.shows_progress {
            eprint!("{}", Line(&trial));
        }
        trials.push(trial);
    }
    Ok(trials)
}

/// The beginning of a text, on one line.
fn short(text: &str, max: usize) -> String {
    let line = text.lines().next().unwrap_or_default().trim();
    if line.chars().count() <= max { line.to_owned() } else { line.chars().take(max - 2).chain("..".chars()).collect() }
}

/// A trial in the table.
struct Line<'t>(&'t Trial);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Trial { names, values, way, outcome } = self.0;
        let way = way.map_or_else(|| "table".to_owned(), |way| way.to_string());
        let pairs = names.iter().zip(values);
        let what: Vec<_> = pairs.map(|(name, value)| format!("{name} = {}", short(value, VALUE_MAX))).collect();
        writeln!(f, "{outcome:<8} {way:<8} {}  {}", what.join(", "), short(outcome.words(), WORDS_MAX))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for trial in &self.trials {
            write!(f, "{}", Line(trial))?;
        }
        let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, reason) in &self.left_out {
            reasons.entry(reason).or_default().push(name);
        }
        for (reason, names) in reasons {
            writeln!(f, "left out, {reason}: {}", names.join(" "))?;
        }
        for trial in self.unnamed() {
            writeln!(
                f,
                "refused without its name: {}: {}",
                trial.names.join(", "),
                short(trial.outcome.words(), WORDS_MAX)
            )?;
        }
        for trial in self.trials.iter().filter(|trial| trial.outcome.is_bad()) {
            writeln!(
                f,
                "{}: {} = {}: {}",
                trial.outcome,
                trial.names.join(", "),
                trial.values.join(", "),
                trial.outcome.words()
            )?;
        }
        writeln!(
            f,
            "{} variables, {} trials in {} s: tried {}, refused {}, safe {}, duplicates {}, hung {}; the server did not start \
             with {}, and did not take {}",
            self.variables(),
            self.trials.len(),
            self.took.as_secs(),
            self.trials.len() - self.count(|outcome| matches!(outcome, Outcome::NotSet(_) | Outcome::NotStarted(_))),
            self.count(|outcome| matches!(outcome, Outcome::Refused(_))),
            self.count(|outcome| matches!(outcome, Outcome::Safe)),
            self.count(|outcome| matches!(outcome, Outcome::Twice(_))),
            self.count(|outcome| matches!(outcome, Outcome::Hung(_))),
            self.count(|outcome| matches!(outcome, Outcome::NotStarted(_))),
            self.count(|outcome| matches!(outcome, Outcome::NotSet(_))),
        )
    }
}
