//! Whole systems in virtual time: the product hands out no id twice, and systems that are known to be wrong do.
//!
//! Long runs: `cargo run --release -p unalike-tests --bin simulate -- --ids 1000000000`.

use unalike_tests::simulation::{Defect, Outcome, Plan, System, run};

/// Seeds of each run of the tests.
const SEEDS: u64 = 60;

/// How many of them run with the compiled component as well.
const SEEDS_OF_COMPONENT: u64 = 12;

fn violations(plan: &Plan, outcome: &Outcome) -> String {
    let found: Vec<_> = outcome.violations.iter().map(ToString::to_string).collect();
    format!("{plan}{}\nrun it: simulate --plan {}", found.join("\n"), plan.line())
}

#[test]
fn no_id_comes_twice_and_all_flow_again() {
    let mut ids = 0;
    for seed in 1..=SEEDS {
        let plan = Plan::of(seed, None);
        let outcome = run(&plan, System::Native);
        assert!(outcome.violations.is_empty(), "{}", violations(&plan, &outcome));
        ids += outcome.ids;
    }
    assert!(ids > 1_000_000, "a run that hands out {ids} ids shows nothing");
}

#[test]
fn the_compiled_component_hands_out_the_same_ids_as_the_core_at_the_same_times() {
    for seed in 1..=SEEDS_OF_COMPONENT {
        let plan = Plan::of(seed, None);
        let component = run(&plan, System::Component);
        assert!(component.violations.is_empty(), "{}", violations(&plan, &component));
        assert_eq!(component.digest, run(&plan, System::Native).digest, "seed {seed}");
    }
}

#[test]
fn one_seed_gives_one_run() {
    let lives = |seed| {
        let Outcome { ids, counts, digest, .. } = run(&Plan::of(seed, None), System::Native);
        (ids, counts, digest)
    };
    let first = lives(1);
    assert_eq!(first, lives(1));
    assert_ne!(first.2, lives(2).2, "another seed is another run");
}

#[test]
fn each_happening_happens() {
    let kinds: std::collections::BTreeSet<_> = (1..=SEEDS)
        .flat_map(|seed| Plan::of(seed, None).happenings().map(|(_, happening)| happening.kind()).collect::<Vec<_>>())
        .collect();
    assert_eq!(kinds.len(), 18, "{kinds:?}");
}

#[test]
fn plans_that_ended_badly_once_end_well() {
    for line in include_str!("../../regressions/plans.txt").lines().filter(|line| !line.starts_with('#')) {
        let plan: Plan = line.split_whitespace().next().unwrap().parse().unwrap();
        let outcome = run(&plan, System::Native);
        assert!(outcome.violations.is_empty(), "{line}\n{}", violations(&plan, &outcome));
    }
}

/// An id that the world gives out twice, against all rules of the product, is seen.
#[test]
fn the_control_is_found_out() {
    let line = include_str!("../../regressions/defects.txt").lines().find_map(|line| line.strip_prefix("control "));
    let plan: Plan = line.unwrap().parse().unwrap();
    let outcome = run(&plan, System::Defective(Defect::Control));
    assert!(outcome.violations.iter().any(|violation| Defect::Control.shows_as(violation)), "{}", plan.line());
}

/// Without this, the other tests would prove nothing.
#[test]
fn each_system_that_is_known_to_be_wrong_is_found_out() {
    let mut found = Vec::new();
    for line in include_str!("../../regressions/defects.txt").lines().filter(|line| !line.starts_with('#')) {
        let (name, plan) = line.split_once(' ').unwrap();
        let defect = Defect::named(name).unwrap();
        let plan: Plan = plan.parse().unwrap();
        let shows = |system: System| run(&plan, system).violations.iter().any(|violation| defect.shows_as(violation));
        assert!(shows(System::Defective(defect)), "{defect} was not found out by the plan {}", plan.line());
        assert!(!shows(System::Native), "the product fails where {defect} does");
        found.push(defect);
    }
    assert_eq!(found, Defect::ALL);
}
