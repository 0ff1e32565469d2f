//! Everything is well again, and ids must flow.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Defect;
use super::operator::resize_once;
use super::processes::{LINE, Machine, Process, Role};
use super::world::World;

/// After this time, in milliseconds, nothing that happened before may hold anybody up: a store that was left out is
/// tried again after 30 s at most, and leases start again after a quarantine.
const RECOVERED_MS: u64 = 45_000;

/// Within this time, in milliseconds, each generator must hand out something.
const SERVES_MS: u64 = 15_000;

/// Mends everything, and looks whether ids flow.
pub(crate) async fn restore(world: &Arc<World>) {
    world.is_calm.store(true, Ordering::Relaxed);
    world.clear_weather();
    world.services.iter().for_each(|service| service.mend());
    world.machines.iter().for_each(|machine| machine.mend());
    if world.plan.scene().stores > 1 && world.defect() != Some(Defect::MarksNotCompared) {
        finish_resizing(world).await;
    }
    world.sleep(RECOVERED_MS).await;
    let from_ms = world.now_ms();
    world.sleep(SERVES_MS).await;
    // Systems with a defect may well stand still.
    if world.defect().is_none() {
        for process in world.running() {
            check(world, &process, from_ms);
        }
    }
}

/// Repeats the last resize until it is done, as its operator would.
async fn finish_resizing(world: &Arc<World>) {
    let machine = Arc::new(Machine::new(Arc::downgrade(world), Role::Operator));
    // Those who began before end within this time.
    world.sleep(5_000).await;
    let to = world.used.lock().unwrap().clone();
    let all: Vec<u8> = (0..world.plan.scene().stores).collect();
    let mut failed = String::new();
    // Where another call was broken off, all stores that it named must be named.
    for from in [&to, &all, &to, &all] {
        match resize_once(world, &machine, from, &to).await {
            Ok(()) => return,
            Err(error) => failed = error.to_string(),
        }
        world.sleep(200).await;
    }
    world.ledger.lock().unwrap().stalled("stripes", 0, format!("they cannot be resized to {to:?}: {failed}"));
}

fn check(world: &World, process: &Process, from_ms: u64) {
    let lanes = process.lanes().iter().map(|lane| (lane.space.as_str(), lane.standing()));
    let ordered = process.ordered().map(|lane| (LINE, lane.standing()));
    let mut standings: Vec<_> = lanes.chain(ordered).collect();
    if process.lanes().is_empty() {
        standings.push(("everything", (0, "its stores could not be opened".to_owned())));
    }
    for (space, (served_ms, heard)) in standings {
        if served_ms < from_ms {
            world.ledger.lock().unwrap().stalled(space, process.number, heard);
        }
    }
}
