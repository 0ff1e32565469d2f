//! What operators do: create tags, take a server over that lacks commits, resize stripes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use unalike_storage::{
    KEPT_FLOOR, LeaseAcquire, LeaseStore as _, Mode, SegmentStore, StoreError, TagOptions, resize_stripes,
};

use super::Defect;
use super::processes::{LINE, Machine, NAMESPACE, Role, layout};
use super::stores::{Client, MAX_HORIZON_MS, Service};
use super::world::World;

/// How often an operator looks at the stores, in milliseconds.
const LOOKS_MS: u64 = 500;

/// More than any tag hands out within the time that a replica lags.
const LIFT: u64 = 1_000_000_000;

/// How far the clocks of two servers of leases may be apart, in milliseconds.
const CLOCK_BOUND_MS: u64 = 2_000;

/// Creates what must be there, and goes on looking after the stores.
pub(crate) async fn begin(world: &Arc<World>) {
    let scene = world.plan.scene();
    if scene.stores == 1 {
        let options = TagOptions { mode: Mode::Ordered, ..TagOptions::default() };
        world.services.first().unwrap().store().create_tag(LINE, &options).await.unwrap();
    }
    // Whoever comes first decides on the layout.
    let leases = world.services.last().unwrap();
    let first = LeaseAcquire {
        namespace: NAMESPACE.to_owned(),
        layout: layout(scene, false),
        holder: String::new(),
        preferred_worker: None,
        now_ms: leases.clock_ms(),
        horizon_ms: 1_000,
    };
    let _ = leases.store().acquire(&first).await.unwrap();
    let world = Arc::clone(world);
    drop(tokio::spawn(async move {
        let mut adopts = 0;
        loop {
            world.sleep(LOOKS_MS).await;
            adopts = look(&world, adopts).await;
        }
    }));
}

/// Takes each server over that is not the recorded one, and restarts the programs that knew the other.
/// Answers how many it has taken over by then.
async fn look(world: &Arc<World>, mut adopts: u64) -> u64 {
    let is_noticed = !world.has(Defect::AddressIsIdentity) && !world.has(Defect::LookedAtOnce);
    for service in &world.services {
        if is_noticed && service.is_another() {
            adopts += 1;
            adopt(service, adopts).await;
            restart(world);
        }
    }
    adopts
}

/// Lifts each tag above all that was handed out. Whoever does so again lifts further: the replica may lack the time
/// since before it was done last.
async fn adopt(service: &Service, adopts: u64) {
    let (store, lift) = (service.store(), LIFT * adopts);
    for tag in store.tags(None, 1_000).await.unwrap() {
        store.raise_tag(&tag.tag, tag.watermark + lift).await.unwrap();
    }
    // A tag that the replica had not heard of yet begins above, too.
    if store.create_tag(KEPT_FLOOR, &TagOptions::default()).await.is_ok() {
        store.raise_tag(KEPT_FLOOR, lift).await.unwrap();
    }
    store.quarantine(service.clock_ms() + MAX_HORIZON_MS + CLOCK_BOUND_MS).unwrap();
    service.adopt();
}

/// Ends all programs, and starts them again one after the other.
pub(crate) fn restart(world: &Arc<World>) {
    for (machine, number) in world.machines.iter().zip(1..) {
        machine.kill(20 * number);
    }
}

/// A machine of an operator's that is paused once.
pub(crate) fn paused(world: &Arc<World>, after_ms: u64, for_ms: u64) -> Arc<Machine> {
    let machine = Arc::new(Machine::new(Arc::downgrade(world), Role::Operator));
    let (paused, world) = (Arc::clone(&machine), Arc::clone(world));
    drop(tokio::spawn(async move {
        world.sleep(after_ms).await;
        paused.pause(for_ms);
    }));
    machine
}

/// Has these stores number together, in this order, after a while.
pub(crate) fn resize(world: &Arc<World>, machine: &Arc<Machine>, after_ms: u64, to: Vec<u8>) {
    let (machine, world) = (Arc::clone(machine), Arc::clone(world));
    drop(tokio::spawn(async move {
        world.sleep(after_ms).await;
        for _ in 0..5 {
            let used = world.used.lock().unwrap().clone();
            if world.is_calm.load(Ordering::Relaxed) || resize_once(&world, &machine, &used, &to).await.is_ok() {
                return;
            }
            world.sleep(200).await;
        }
    }));
}

pub(crate) async fn resize_once(
    world: &Arc<World>,
    machine: &Arc<Machine>,
    from: &[u8],
    to: &[u8],
) -> Result<(), StoreError> {
    let number = world.next_process();
    let clients: Vec<Arc<dyn SegmentStore>> = (0..world.plan.scene().stores)
        .map(|store| Arc::new(Client::new(world, store, machine, number)) as Arc<dyn SegmentStore>)
        .collect();
    let pick = |stores: &[u8]| -> Vec<Arc<dyn SegmentStore>> {
        stores.iter().filter_map(|store| clients.get(usize::from(*store)).cloned()).collect()
    };
    let resized = resize_stripes(&pick(from), &pick(to), 0).await;
    if resized.is_err() {
        world.count("resize refused or broken off");
        return resized;
    }
    world.count("resize done");
    to.clone_into(&mut world.used.lock().unwrap());
    restart(world);
    Ok(())
}

/// Forbids that a lease is prolonged.
pub(crate) fn end_lease(world: &Arc<World>, worker: u32) {
    let (machine, store, number) = (paused(world, 0, 0), world.plan.scene().lease_store(), world.next_process());
    let client = Client::new(world, store, &machine, number);
    drop(tokio::spawn(async move { client.forbid_extension(NAMESPACE, worker).await }));
}

/// Raises a tag of a store that is used alone.
pub(crate) fn raise(world: &Arc<World>, tag: u8, by: u64) {
    if world.plan.scene().stores > 1 {
        return;
    }
    let (machine, number) = (paused(world, 0, 0), world.next_process());
    let client = Client::new(world, 0, &machine, number);
    drop(tokio::spawn(async move {
        let tag = format!("tag-{tag}");
        let record = client.tag(&tag).await?;
        client.raise_tag(&tag, record.watermark + 1 + by).await
    }));
}
