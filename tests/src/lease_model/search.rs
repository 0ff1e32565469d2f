//! Breadth first through all states: what is found first has the shortest way to it.

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use super::{Fault, Key, Model, NAMES, Scene, Step, Without};

/// All states were seen, and nothing was found.
#[derive(Clone, Copy, Debug)]
pub struct Explored {
    /// How many states there are.
    pub states: usize,
    /// How many steps lead from one to another.
    pub steps: usize,
    /// How many steps the furthest is from the beginning.
    pub depth: usize,
}

impl fmt::Display for Explored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} states, {} steps, at most {} from the beginning", self.states, self.steps, self.depth)
    }
}

/// What must never happen, and the shortest way to it.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What happened.
    pub fault: Fault,
    /// How.
    pub trace: Vec<Step>,
    /// How many states were seen before.
    pub states: usize,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.trace.iter().enumerate() {
            writeln!(f, "  {}. {step}", number + 1)?;
        }
        match self.fault {
            Fault::Twice(stamp) => write!(f, "  {stamp} was handed out twice"),
            Fault::Outside(stamp) => write!(f, "  {stamp} does not lie in its lease"),
            Fault::Starved(process) => {
                write!(f, "  {} gets no more time, though all goes well from here on", NAMES[usize::from(process)])
            }
        }
    }
}

/// More than this takes too long for a test.
const STATES_MAX: usize = 1_000_000;

/// Where a state was come to from: the number of the state before, and the step.
type Origin = (usize, Step);

/// Sees all states of this scene without these rules. It ends at the first stamp that is handed out twice, with all
/// rules also at the first that lies outside its lease, and with all rules of uniqueness at the first process that
/// starves.
///
/// # Errors
/// What was found.
pub fn search(scene: Scene, without: Without) -> Result<Explored, Box<Finding>> {
    let mut model = Model::new(scene, without);
    let mut seen: HashSet<Key, BuildHasherDefault<KeyHasher>> = HashSet::default();
    let mut origins: Vec<Option<Origin>> = Vec::new();
    let mut front = Vec::new();
    for world in model.beginnings() {
        seen.insert(model.key(&world));
        front.push((origins.len(), world));
        origins.push(None);
    }
    let (mut steps, mut depth, mut found) = (0, 0, None);
    let mut next_steps = Vec::new();
    while !front.is_empty() {
        let mut next_front = Vec::new();
        for (number, world) in front {
            next_steps.clear();
            model.steps(&world, &mut |step, next, fault| next_steps.push((step, next, fault)));
            for (step, mut next, fault) in next_steps.drain(..) {
                steps += 1;
                next.tidy(&model);
                let counts = matches!(fault, Some(Fault::Twice(_))) || without == Without::default();
                if let Some(fault) = fault.filter(|_| counts && found.is_none()) {
                    found = Some((fault, (number, step)));
                }
                if seen.insert(model.key(&next)) {
                    found = found.or_else(|| Some((model.starved(&next)?, (number, step))));
                    next_front.push((origins.len(), next));
                    origins.push(Some((number, step)));
                }
            }
            if let Some((fault, last)) = found {
                return Err(Box::new(Finding { fault, trace: trace(&origins, last), states: origins.len() }));
            }
        }
        assert!(origins.len() < STATES_MAX, "{scene:?} has more than {STATES_MAX} states: make it smaller");
        depth += usize::from(!next_front.is_empty());
        front = next_front;
    }
    Ok(Explored { states: origins.len(), steps, depth })
}

fn trace(origins: &[Option<Origin>], last: Origin) -> Vec<Step> {
    let mut trace = vec![last.1];
    let mut number = last.0;
    while let Some((before, step)) = origins[number] {
        trace.push(step);
        number = before;
    }
    trace.reverse();
    trace
}

/// Mixes a [`Key`] quickly, also where nothing is optimised.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        for word in bytes.chunks_exact(8) {
            let word = u64::from_ne_bytes(word.try_into().unwrap());
            // The odd constant is 2^64 over the golden ratio.
            self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
    }

    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (self.0 >> 32)
    }
}
