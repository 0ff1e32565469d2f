//! What is tried: each value of each variable, and pairs of them.

use super::{Change, Variables, Way};

/// What the command line asks for.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is drawn at random is drawn from this.
    pub seed: u64,
    /// So many random pairs.
    pub pairs: usize,
    /// Only variables of these names; all, if there are none.
    pub only: Vec<String>,
    /// A client that stands for the systems that unalike replaces, in place of the product.
    pub is_control: bool,
    /// So many servers at a time.
    pub servers: usize,
    /// So many values of each variable at most, in each way.
    pub values_max: usize,
    /// Each trial is written to standard error as it ends.
    pub shows_progress: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            seed: 1,
            pairs: 100,
            only: Vec::new(),
            is_control: false,
            servers: 2,
            values_max: usize::MAX,
            shows_progress: false,
        }
    }
}

impl Plan {
    /// A small share of the sweep: some values of these variables, and definitions, and pairs of them.
    #[must_use]
    pub fn small(names: &[&str]) -> Self {
        let only = names.iter().map(|&name| name.to_owned()).collect();
        Self { only, pairs: 2, values_max: 1, ..Self::default() }
    }

    /// The same with a client that stands for the systems that unalike replaces.
    #[must_use]
    pub fn control(names: &[&str]) -> Self {
        Self { is_control: true, pairs: 0, values_max: usize::MAX, ..Self::small(names) }
    }

    /// Whether a variable is to be tried.
    #[must_use]
    pub fn asks_for(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

/// One trial to come.
#[derive(Clone, Debug)]
pub enum Case {
    /// These are set in this way.
    Set(Way, Vec<Change>),
    /// A store's tables, or its user's rights, are changed so.
    Define(&'static str, Vec<String>),
}

impl Variables {
    /// Each value, so many of a variable at most, one at a time.
    #[must_use]
    pub fn singles(&self, values_max: usize) -> Vec<Case> {
        let mut cases = Vec::new();
        for variable in &self.tried {
            for &(way, values) in &variable.ways {
                let tried = values.min(values_max);
                // Where only some are tried, those at the end, which are rarely the usual ones.
                let left_out = if tried < values { variable.values.len().saturating_sub(tried) } else { 0 };
                for value in variable.values.iter().skip(left_out).take(tried) {
                    let change = Change { name: variable.name.clone(), value: value.clone() };
                    cases.push(Case::Set(way, vec![change]));
                }
            }
        }
        cases
    }
}

/// Pairs of cases that are set in the same way, and were set alone before.
#[must_use]
pub fn draw_pairs(singles: &[Case], count: usize, seed: u64) -> Vec<Case> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut pairs = Vec::new();
    if singles.len() < 2 {
        return pairs;
    }
    // Where no two can be set together there is an end, too.
    for _ in 0..count.saturating_mul(100) {
        if pairs.len() == count {
            break;
        }
        let (one, other) = (random.choice(singles), random.choice(singles));
        if let (Some(Case::Set(way, one)), Some(Case::Set(same, other))) = (one, other)
            && way == same
            && one.iter().all(|one| other.iter().all(|other| one.name != other.name))
        {
            pairs.push(Case::Set(*way, one.iter().chain(other).cloned().collect()));
        }
    }
    pairs
}
