//! Time, the network, and what happens.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::component::Compiled;
use super::cores::{Core, Native};
use super::ledger::Ledger;
use super::naive::Registry;
use super::plan::TROUBLE_MS;
use super::processes::{Machine, Process, Role};
use super::stores::{Service, Snapshot};
use super::{Defect, Happening, Outcome, Plan, System, calm, operator};

/// The true time at the beginning, in Unix milliseconds.
pub(crate) const BEGINNING_MS: u64 = 1_800_000_000_000;

/// Everything.
pub(crate) struct World {
    start: Instant,
    pub(crate) plan: Plan,
    defect: Option<Defect>,
    pub(crate) core: Box<dyn Core>,
    pub(crate) ledger: Mutex<Ledger>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    pub(crate) weather: Mutex<Weather>,
    /// Those of segments, and that of leases at the end.
    pub(crate) services: Vec<Arc<Service>>,
    pub(crate) machines: Vec<Arc<Machine>>,
    /// The stores that number together now, by number.
    pub(crate) used: Mutex<Vec<u8>>,
    /// Where systems with a defect keep their workers.
    pub(crate) registry: Mutex<Registry>,
    processes: AtomicU64,
    /// Nothing goes wrong any more.
    pub(crate) is_calm: AtomicBool,
}

/// What the network does.
#[derive(Debug, Default)]
pub(crate) struct Weather {
    storm: Option<Storm>,
    /// No way from a machine to a store, until then.
    cuts: Vec<(u8, u8, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Storm {
    until_ms: u64,
    lost_percent: u8,
    repeated_percent: u8,
    delay_max_ms: u16,
}

/// What becomes of one message and its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Journey {
    /// How long it is on its way, each way; none when it is lost.
    pub(crate) there_ms: Option<u64>,
    pub(crate) back_ms: Option<u64>,
    /// It arrives a second time, so much later.
    pub(crate) again_ms: Option<u64>,
}

impl World {
    fn new(plan: &Plan, system: System) -> Arc<Self> {
        let scene = *plan.scene();
        let (core, defect): (Box<dyn Core>, _) = match system {
            System::Native => (Box::new(Native), None),
            System::Component => (Box::new(Compiled), None),
            System::Defective(defect) => (Box::new(Native), Some(defect)),
        };
        Arc::new_cyclic(|world| Self {
            start: Instant::now(),
            plan: plan.clone(),
            defect,
            core,
            ledger: Mutex::default(),
            counts: Mutex::default(),
            weather: Mutex::default(),
            services: (0..=scene.lease_store())
                .map(|number| Arc::new(Service::new(world.clone(), plan, number)))
                .collect(),
            machines: (0..scene.machines)
                .map(|number| Arc::new(Machine::new(world.clone(), Role::Host(number))))
                .collect(),
            used: Mutex::new((0..scene.stores_used).collect()),
            registry: Mutex::default(),
            processes: AtomicU64::new(0),
            is_calm: AtomicBool::new(false),
        })
    }

    /// Milliseconds since the beginning.
    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap()
    }

    pub(crate) async fn until(&self, at_ms: u64) {
        sleep_until(self.start + Duration::from_millis(at_ms)).await;
    }

    pub(crate) async fn sleep(&self, ms: u64) {
        self.until(self.now_ms() + ms).await;
    }

    pub(crate) fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    pub(crate) const fn defect(&self) -> Option<Defect> {
        self.defect
    }

    /// Chance for one actor: what others do does not change it.
    pub(crate) fn chance(&self, actor: impl Hash) -> fastrand::Rng {
        chance(self.plan.seed(), actor)
    }

    /// A number that no other process has.
    pub(crate) fn next_process(&self) -> u64 {
        self.processes.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn count(&self, kind: &'static str) {
        *self.counts.lock().unwrap().entry(kind).or_default() += 1;
    }

    /// What becomes of a message between a machine, if it is from one, and a store.
    pub(crate) fn journey(&self, machine: Option<u8>, store: u8, rng: &mut fastrand::Rng) -> Journey {
        let now_ms = self.now_ms();
        let weather = self.weather.lock().unwrap();
        let storm = weather.storm.filter(|storm| now_ms < storm.until_ms);
        let is_cut =
            weather.cuts.iter().any(|(from, to, until)| machine == Some(*from) && *to == store && now_ms < *until);
        drop(weather);
        let mut leg_ms = || {
            let Some(storm) = storm else { return Some(rng.u64(1..4)) };
            if rng.u8(0..100) < storm.lost_percent {
                self.count("message lost");
                return None;
            }
            Some(rng.u64(1..=u64::from(storm.delay_max_ms)))
        };
        let (there_ms, back_ms) = (leg_ms().filter(|_| !is_cut), leg_ms());
        let again_ms = storm.filter(|storm| rng.u8(0..100) < storm.repeated_percent).map(|_| rng.u64(1..2_000));
        if again_ms.is_some() {
            self.count("message repeated");
        }
        Journey { there_ms, back_ms, again_ms }
    }

    pub(crate) fn clear_weather(&self) {
        *self.weather.lock().unwrap() = Weather::default();
    }

    fn happen(self: &Arc<Self>, happening: Happening, copy: Option<Snapshot>) {
        self.count(happening.kind());
        let now_ms = self.now_ms();
        let machine = |number: u8| self.machines.get(usize::from(number)).unwrap();
        let service = |number: u8| self.services.get(usize::from(number)).unwrap();
        match happening {
            Happening::Kill { machine: number, down_ms } => machine(number).kill(down_ms.into()),
            Happening::Pause { machine: number, for_ms } => machine(number).pause(for_ms.into()),
            Happening::Clock { machine: number, by_ms } => machine(number).step_clock(by_ms.into()),
            Happening::Drift { machine: number, percent } => machine(number).drift(percent.into()),
            Happening::Fork { machine: number } => machine(number).fork(),
            Happening::Trap { machine: number } => machine(number).trap(),
            Happening::Upgrade { machine: number, step } => machine(number).upgrade(step.into()),
            Happening::Twin { machine: number } => machine(number).start_twin(),
            Happening::OtherLayout { machine: number } => machine(number).start_with_other_layout(),
            Happening::StoreKill { store, down_ms } => service(store).kill(now_ms + u64::from(down_ms)),
            Happening::StorePause { store, for_ms } => service(store).pause(now_ms + u64::from(for_ms)),
            Happening::StoreClock { store, by_ms } => service(store).step_clock(by_ms.into()),
            Happening::FailOver { store, .. } => service(store).fail_over(copy.unwrap()),
            Happening::Storm { for_ms, lost_percent, repeated_percent, delay_max_ms } => {
                let until_ms = now_ms + u64::from(for_ms);
                self.weather.lock().unwrap().storm =
                    Some(Storm { until_ms, lost_percent, repeated_percent, delay_max_ms });
            }
            Happening::Cut { machine, store, for_ms } => {
                self.weather.lock().unwrap().cuts.push((machine, store, now_ms + u64::from(for_ms)));
            }
            Happening::Resize { to, is_turned, pause_after_ms, pause_ms, rival_after_ms } => {
                let order = |is_turned: bool| if is_turned { (0..to).rev().collect() } else { (0..to).collect() };
                let machine = operator::paused(self, pause_after_ms.into(), pause_ms.into());
                operator::resize(self, &machine, 0, order(is_turned));
                if let Some(after_ms) = rival_after_ms {
                    operator::resize(self, &operator::paused(self, 0, 0), after_ms.into(), order(!is_turned));
                }
            }
            Happening::EndLease { worker } => operator::end_lease(self, worker.into()),
            Happening::Raise { tag, by } => operator::raise(self, tag, by.into()),
        }
    }

    /// Processes that run.
    pub(crate) fn running(&self) -> Vec<Arc<Process>> {
        self.machines.iter().flat_map(|machine| machine.running()).collect()
    }
}

pub(super) fn chance(seed: u64, actor: impl Hash) -> fastrand::Rng {
    let mut hasher = DefaultHasher::new();
    (seed, actor).hash(&mut hasher);
    fastrand::Rng::with_seed(hasher.finish())
}

/// What happens at a time.
enum Step {
    Happens(Happening),
    /// A store is copied, for a replica that lags.
    Copied(u8),
}

/// Lets a plan happen.
pub(super) async fn live(plan: &Plan, system: System) -> Outcome {
    let world = World::new(plan, system);
    operator::begin(&world).await;
    for machine in &world.machines {
        machine.start();
    }
    let mut steps: Vec<(u64, usize, Step)> = Vec::new();
    for (number, (at_ms, happening)) in plan.happenings().enumerate() {
        if let Happening::FailOver { store, lag_ms } = happening {
            steps.push((at_ms.saturating_sub(lag_ms.into()), number, Step::Copied(store)));
        }
        steps.push((at_ms, number, Step::Happens(happening)));
    }
    steps.sort_by_key(|(at_ms, number, _)| (*at_ms, *number));
    let mut copies: HashMap<usize, Snapshot> = HashMap::new();
    for (at_ms, number, step) in steps {
        world.until(at_ms).await;
        match step {
            Step::Copied(store) => drop(copies.insert(number, world.services.get(usize::from(store)).unwrap().copy())),
            Step::Happens(happening) => world.happen(happening, copies.remove(&number)),
        }
    }
    world.until(TROUBLE_MS).await;
    calm::restore(&world).await;
    world.machines.iter().for_each(|machine| machine.end());
    let ledger = std::mem::take(&mut *world.ledger.lock().unwrap());
    let counts = std::mem::take(&mut *world.counts.lock().unwrap());
    let digest = ledger.digest();
    Outcome {
        ids: ledger.ids,
        ids_until: ledger.ids_until.unwrap_or(ledger.ids),
        violations: ledger.violations,
        counts,
        digest,
    }
}
