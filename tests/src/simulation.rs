//! Whole systems in one thread and in virtual time, from one seed: processes on several machines, their stores, the
//! network between them, operators, and everything that goes wrong.
//!
//! What is the product's own: the core's generators (`unalike-core`), the reference store (`unalike-memory`), the rules
//! of leases, the stripes and their resizing (`unalike-storage`). What is simulated: time, clocks, the network, the
//! threads of a process, servers that fail over to a replica which lags, and operators.
//!
//! A [`Plan`] is drawn from a seed: how large the world is, and what happens in it at which millisecond. [`run`] lets
//! it happen and has a ledger look at each id that leaves a process. One seed always gives the same ids at the same
//! times.
//! A plan that ends badly is [shrunk](shrink) to the happenings that it takes.
//!
//! [`Defect`] has systems that are known to be wrong: those that the product replaces, and the product without one of
//! its rules. The ledger finds each of them out; if it did not, it would prove nothing about the product.

mod calm;
mod component;
mod cores;
mod defects;
mod ledger;
mod naive;
mod operator;
mod ordered;
mod plan;
mod processes;
mod requests;
mod stores;
mod world;

use std::collections::BTreeMap;

pub use self::defects::Defect;
pub use self::ledger::Violation;
pub use self::plan::{Happening, Plan, Scene};

/// What came of a plan.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// How many ids were handed out.
    pub ids: u64,
    /// How many ids were handed out until the first duplicate or other violation; all, where there was none.
    pub ids_until: u64,
    /// What should never have happened, in the order in which it did.
    pub violations: Vec<Violation>,
    /// How often each kind of thing happened: those of the plan, and what the network did by itself.
    pub counts: BTreeMap<&'static str, u64>,
    /// Two runs with one digest handed out the same ids at the same times.
    pub digest: u64,
}

/// What is tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum System {
    /// The product, with its core as a part of each process: the quick way.
    #[default]
    Native,
    /// The product, with the compiled component in each process.
    Component,
    /// A system that is known to be wrong.
    Defective(Defect),
}

impl System {
    /// Whether this is what should not have happened, and is looked for.
    #[must_use]
    pub const fn shows_as(self, violation: &Violation) -> bool {
        match self {
            Self::Native | Self::Component => true,
            Self::Defective(defect) => defect.shows_as(violation),
        }
    }
}

/// Lets a plan happen.
#[must_use]
pub fn run(plan: &Plan, system: System) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(world::live(plan, system))
}

/// The smallest plan that was found to end badly still: happenings are left out one by one, many at first.
#[must_use]
pub fn shrink(plan: &Plan, system: System) -> Plan {
    let is_bad = |plan: &Plan| run(plan, system).violations.iter().any(|found| system.shows_as(found));
    let mut smallest = plan.clone();
    let mut chunk = smallest.kept().len().div_ceil(2);
    while chunk > 0 {
        let mut from = 0;
        while from < smallest.kept().len() {
            let kept = smallest.kept();
            let rest: Vec<usize> =
                kept.iter().enumerate().filter(|(at, _)| !(from..from + chunk).contains(at)).map(|(_, &n)| n).collect();
            let candidate = Plan::of(smallest.seed(), Some(&rest));
            if is_bad(&candidate) {
                smallest = candidate;
            } else {
                from += chunk;
            }
        }
        chunk = if chunk == 1 { 0 } else { chunk.div_ceil(2) };
    }
    smallest
}
