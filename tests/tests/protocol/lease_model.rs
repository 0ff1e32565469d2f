//! The protocol of worker leases, searched through: with all rules no state of the small worlds has a stamp twice or
//! outside its lease, and without any one of them there is a shortest way to a duplicate, or to a holder that gets no
//! lease any more, which is printed.
//!
//! What the world can do and which example each rule answers is written in `tests/src/lease_model.rs`. To read the
//! examples: `tests/run --test protocol --no-capture -- lease_model`.

use std::time::Instant;

use unalike_core::{ClockPolicy, GrantId, LeaseRequest, Snowflake, SnowflakeOptions, StoreFailure};
use unalike_tests::lease_model::holder::{Holder, Lease, Stamp};
use unalike_tests::lease_model::{Fault, Feature, Rule, Scene, Without, layout, search};

/// Two processes, one worker, time enough for three leases one after the other.
const SMALL: Scene = Scene {
    feature: Feature::Operator,
    processes: 2,
    workers: 1,
    tick_ms: 1,
    sequences: 1,
    clock_max_ms: 3,
    horizon_ms: 1,
    max_horizon_ms: 1,
    grants_max: 3,
};
const TWO_WORKERS: Scene = Scene { workers: 2, clock_max_ms: 2, grants_max: 2, ..SMALL };
const THREE_PROCESSES: Scene = Scene { processes: 3, clock_max_ms: 2, ..SMALL };
/// Ticks of 2 ms, and leases that begin and end at odd ones.
const COARSE_TICKS: Scene =
    Scene { tick_ms: 2, clock_max_ms: 5, horizon_ms: 3, max_horizon_ms: 3, grants_max: 2, ..SMALL };
const RUNS: Scene = Scene { feature: Feature::Runs, grants_max: 2, ..SMALL };
const SPREAD: Scene = Scene { feature: Feature::Spread, sequences: 2, clock_max_ms: 2, grants_max: 2, ..SMALL };
const LOCAL_COPY: Scene = Scene { feature: Feature::LocalCopy, grants_max: 2, ..SMALL };
const SHARED_DISK: Scene = Scene { feature: Feature::SharedDisk, grants_max: 2, ..SMALL };
/// Longer leases are asked for than the namespace allows.
const FORGETTING: Scene =
    Scene { feature: Feature::Forgetting, clock_max_ms: 3, horizon_ms: 2, max_horizon_ms: 1, grants_max: 2, ..SMALL };

/// Redis above a durable store: of two processes, and of one whose leases end where no tick does.
const GRANTED_TIME: Scene = Scene { feature: Feature::GrantedTime, clock_max_ms: 2, grants_max: 2, ..SMALL };
const COARSE_GRANTED_TIME: Scene =
    Scene { processes: 1, tick_ms: 2, clock_max_ms: 4, horizon_ms: 3, max_horizon_ms: 3, ..GRANTED_TIME };

/// Nothing is found where all rules hold.
fn holds(scene: Scene) {
    holds_without(scene, &[]);
}

fn holds_without(scene: Scene, rules: &[Rule]) {
    let started = Instant::now();
    match search(scene, Without::rules(rules)) {
        Ok(explored) => println!("{scene:?} without {rules:?}: {explored}, in {:?}", started.elapsed()),
        Err(finding) => panic!("{scene:?} without {rules:?}:\n{finding}"),
    }
}

/// Without these rules there is a duplicate.
fn fails_without(scene: Scene, rules: &[Rule]) {
    let fault = found_without(scene, rules);
    assert!(matches!(fault, Fault::Twice(_)), "{fault:?}");
}

/// Without these rules somebody gets no lease any more.
fn starves_without(scene: Scene, rules: &[Rule]) {
    let fault = found_without(scene, rules);
    assert!(matches!(fault, Fault::Starved(_)), "{fault:?}");
}

fn found_without(scene: Scene, rules: &[Rule]) -> Fault {
    let started = Instant::now();
    match search(scene, Without::rules(rules)) {
        Ok(explored) => panic!("{scene:?} without {rules:?} finds nothing in {explored}: is the rule needed?"),
        Err(finding) => {
            println!("without {rules:?}:\n{finding}\n  {} states, in {:?}", finding.states, started.elapsed());
            finding.fault
        }
    }
}

#[test]
fn all_rules_together_hold() {
    holds(SMALL);
}

#[test]
fn all_rules_together_hold_for_three_processes() {
    holds(THREE_PROCESSES);
}

#[test]
fn all_rules_together_hold_for_two_workers() {
    holds(TWO_WORKERS);
}

#[test]
fn ticks_belong_to_one_lease() {
    holds(COARSE_TICKS);
    // Each looks after the other.
    holds_without(COARSE_TICKS, &[Rule::StoreRounds]);
    holds_without(COARSE_TICKS, &[Rule::HolderRounds]);
    fails_without(COARSE_TICKS, &[Rule::StoreRounds, Rule::HolderRounds]);
}

#[test]
fn stamps_end_with_the_lease() {
    fails_without(SMALL, &[Rule::StampsEnd]);
}

#[test]
fn grants_are_told_apart() {
    fails_without(SMALL, &[Rule::GrantIdsAreNew]);
    fails_without(SMALL, &[Rule::AcquireIsNew]);
    fails_without(SMALL, &[Rule::ExtendNamesGrant]);
    fails_without(SMALL, &[Rule::FirstAnswer]);
}

#[test]
fn a_release_names_its_grant() {
    fails_without(SMALL, &[Rule::ReleaseNamesGrant]);
}

#[test]
fn leases_begin_at_the_greatest_end() {
    fails_without(SMALL, &[Rule::StartsAtEnd]);
    fails_without(SMALL, &[Rule::ExtendNeverLowers]);
}

#[test]
fn a_lease_is_given_back_above_its_stamps_and_for_good() {
    holds(RUNS);
    fails_without(RUNS, &[Rule::ReservedCounts]);
    fails_without(SMALL, &[Rule::CloseBeforeRelease]);
    fails_without(SMALL, &[Rule::NoReopening]);
    fails_without(SMALL, &[Rule::ReleaseAboveStamps]);
    fails_without(SMALL, &[Rule::OperatorLeavesEnd]);
}

#[test]
fn a_local_copy_is_behind_its_bound_and_void_before_the_end() {
    holds(LOCAL_COPY);
    fails_without(LOCAL_COPY, &[Rule::StartAtBound]);
    fails_without(LOCAL_COPY, &[Rule::BoundBeforeStamps]);
    fails_without(LOCAL_COPY, &[Rule::VoidBeforeRelease]);
}

#[test]
fn a_local_copy_has_one_process() {
    holds(SHARED_DISK);
    fails_without(SHARED_DISK, &[Rule::OneProcessPerCopy]);
}

#[test]
fn a_store_that_may_have_forgotten_waits() {
    holds(FORGETTING);
    fails_without(FORGETTING, &[Rule::ForgottenWaits]);
    fails_without(FORGETTING, &[Rule::WaitCoversHorizon]);
    fails_without(FORGETTING, &[Rule::WaitCoversClocks]);
    fails_without(FORGETTING, &[Rule::HorizonIsBounded]);
}

#[test]
fn what_a_store_may_have_forgotten_is_void() {
    fails_without(FORGETTING, &[Rule::ForgottenIsVoid]);
}

#[test]
fn a_tick_is_entered_under_one_offset() {
    holds(SPREAD);
    fails_without(SPREAD, &[Rule::SpreadEntersOnce]);
}

#[test]
fn leases_in_redis_lie_in_time_that_was_granted_to_it() {
    holds(GRANTED_TIME);
    fails_without(GRANTED_TIME, &[Rule::EndsAtBound]);
    fails_without(GRANTED_TIME, &[Rule::BeginsBehindGranted]);
    fails_without(GRANTED_TIME, &[Rule::TimeJoins]);
}

#[test]
fn a_holder_that_cannot_extend_its_lease_gets_one_anew() {
    holds(COARSE_GRANTED_TIME);
    starves_without(GRANTED_TIME, &[Rule::LossIsTold]);
    starves_without(COARSE_GRANTED_TIME, &[Rule::LossIsTold]);
}

/// The holder of the model and the product's, side by side through random lives: the same stamps, the same answers
/// taken in, the same end. Clock and bounds of the product's are such that it refuses nothing but for its lease.
#[test]
fn the_holder_of_the_model_stamps_as_the_product_does() {
    let mut random = fastrand::Rng::with_seed(20_101_104);
    let (mut stamps, mut leases, mut refused) = (0, 0, 0);
    for life in 0..3_000 {
        let layout = layout(2, random.choice([1, 2, 5]).unwrap(), random.choice([1, 2]).unwrap());
        let floor_ms = random.u8(0..8);
        let options = SnowflakeOptions {
            clock: ClockPolicy::Keep { max_ms: 1_000 },
            ahead_max_ms: 1_000,
            floor_ms: floor_ms.into(),
            ..SnowflakeOptions::new(layout)
        };
        let mut real = Snowflake::new(options).unwrap();
        let enter_min = u64::from(floor_ms).div_ceil(layout.tick_ms().into());
        let mut model = Holder::new(u8::try_from(enter_min).unwrap(), 0);
        for _ in 0..40 {
            let clock_ms = random.u8(0..60);
            if random.u8(0..4) > 0 {
                let run = real.reserve(clock_ms.into(), 1);
                let stamp = run.ok().map(|run| {
                    let parts = layout.unpack(run.first).unwrap();
                    let fits = |number| u8::try_from(number).unwrap();
                    Stamp {
                        worker: fits(parts.worker.into()),
                        tick: fits(parts.ticks),
                        sequence: fits(parts.sequence.into()),
                    }
                });
                assert_eq!(model.reserve(&layout, Without::default(), clock_ms), stamp, "life {life}: {real:?}");
                stamps += u32::from(stamp.is_some());
            } else {
                // Answers that no store would give are among these.
                let not_before_ms = random.u8(0..60);
                let mut lease = Lease {
                    worker: random.u8(0..2),
                    grant: random.u8(1..4),
                    not_before_ms,
                    valid_until_ms: not_before_ms + random.u8(0..20),
                };
                // Asked late enough that nothing keeps it from asking.
                let asked_ms = 1_000_000 * (u64::from(clock_ms) + 1);
                let is_taken = match real.request(asked_ms) {
                    None => continue,
                    Some(LeaseRequest::Acquire) => model.adopt(&layout, lease, lease.valid_until_ms),
                    Some(LeaseRequest::Extend { worker, grant_id }) => {
                        if random.bool() {
                            lease.worker = u8::try_from(worker).unwrap();
                            lease.grant = u8::try_from(grant_id.0).unwrap();
                        }
                        if random.u8(0..6) == 0 {
                            real.failed(asked_ms, StoreFailure::LeaseLost);
                            continue;
                        }
                        let is_taken = model.extend(lease);
                        if let Some(held) = model.held.as_mut() {
                            held.bound_ms = held.lease.valid_until_ms;
                        }
                        is_taken
                    }
                };
                assert_eq!(real.granted(asked_ms, lease.real()).is_ok(), is_taken, "life {life}: {lease:?}");
                *if is_taken { &mut leases } else { &mut refused } += 1;
            }
            assert_eq!(
                real.lease().map(|lease| (lease.worker, lease.grant_id, lease.valid_until_ms)),
                model.held.map(|held| {
                    let lease = held.lease.real();
                    (lease.worker, lease.grant_id, lease.valid_until_ms)
                })
            );
        }
        let release = model.release(&layout);
        let real = real.close();
        assert_eq!(
            real.map(|release| (release.worker, release.grant_id, release.end_ms)),
            release.map(|release| (release.worker.into(), GrantId(release.grant.into()), release.end_ms.into())),
        );
    }
    assert!(
        stamps > 10_000 && leases > 5_000 && refused > 1_000,
        "{stamps} stamps, {leases} leases, {refused} refused"
    );
}
