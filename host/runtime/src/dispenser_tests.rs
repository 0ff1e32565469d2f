//! The dispenser on its own, and under real threads.

use std::sync::Mutex;

use unalike_core::Run;

use crate::dispenser::Dispenser;

#[test]
fn ids_come_in_order_and_end_with_the_run() {
    let dispenser = Dispenser::new();
    assert_eq!(dispenser.take(), Err(0));
    assert_eq!(dispenser.install(Run { first: 10, stride: 5, count: 3 }), 0);
    assert_eq!(dispenser.left(), 3);
    assert_eq!([dispenser.take(), dispenser.take(), dispenser.take()], [Ok(10), Ok(15), Ok(20)]);
    assert_eq!(dispenser.left(), 0);
    assert!(dispenser.take().is_err());
}

#[test]
fn a_run_that_is_replaced_is_dropped() {
    let dispenser = Dispenser::new();
    dispenser.install(Run { first: 1, stride: 1, count: 100 });
    assert_eq!(dispenser.take(), Ok(1));
    assert_eq!(dispenser.install(Run { first: 1_000, stride: 1, count: 2 }), 99);
    assert_eq!([dispenser.take(), dispenser.take()], [Ok(1_000), Ok(1_001)]);
    let beyond = dispenser.take().unwrap_err();
    dispenser.install(Run { first: 2_000, stride: 1, count: 2 });
    assert_eq!(dispenser.redeem(beyond), None, "a position from before a run is not covered by it");
}

#[test]
fn a_run_reaches_to_the_largest_id() {
    let dispenser = Dispenser::new();
    for stride in [1, 7] {
        let first = unalike_core::ID_MAX - 2 * stride;
        dispenser.install(Run { first, stride, count: 3 });
        assert_eq!(dispenser.take(), Ok(first));
        assert_eq!(dispenser.take_exactly(3), None);
        assert_eq!(dispenser.take_exactly(1), Some(Run { first: first + stride, stride, count: 1 }));
        assert_eq!(dispenser.take_run(9), Some(Run { first: first + 2 * stride, stride, count: 1 }));
        assert_eq!((dispenser.take_run(9), dispenser.take_exactly(1)), (None, None));
    }
}

#[test]
fn runs_that_are_taken_whole_use_no_positions_in_vain() {
    let dispenser = Dispenser::new();
    for _ in 0..1_000 {
        assert_eq!((dispenser.take_run(u32::MAX), dispenser.take_exactly(1)), (None, None));
    }
    assert_eq!(dispenser.take(), Err(0));
}

#[test]
fn many_threads_never_take_the_same_id_and_each_sees_them_ascend() {
    const RUNS: u64 = 20_000;
    let (dispenser, refill) = (Dispenser::new(), Mutex::new(0_u64));
    let taken: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let work = || {
            let mut ids = Vec::new();
            loop {
                match dispenser.take() {
                    Ok(id) => ids.push(id),
                    Err(position) => {
                        let mut runs = refill.lock().unwrap();
                        if let Some(id) = dispenser.redeem(position) {
                            ids.push(id);
                            continue;
                        }
                        if let Some(run) = dispenser.take_run(3) {
                            ids.extend(run.ids());
                            continue;
                        }
                        if *runs == RUNS {
                            return ids;
                        }
                        *runs += 1;
                        // runs of 1 to 7 ids, far enough apart, every other one with a stride
                        let count = u32::try_from(*runs % 7 + 1).unwrap();
                        dispenser.install(Run { first: *runs * 100, stride: stride(*runs), count });
                    }
                }
            }
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    // Each run was used up before the next came, so only a thread that slept at the wrong moment loses an id.
    let expected: u64 = (1..=RUNS).map(|run| run % 7 + 1).sum();
    let mut all = Vec::new();
    for ids in taken {
        assert!(ids.is_sorted_by(|a, b| a < b), "a thread saw ids go down");
        all.extend(ids);
    }
    let total = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), total, "an id was taken twice");
    assert!(total as u64 > expected * 99 / 100, "{total} of {expected} ids: too many are lost");
    assert!(all.iter().all(|id| {
        let (run, offset) = (id / 100, id % 100);
        (1..=RUNS).contains(&run) && offset % stride(run) == 0 && offset / stride(run) <= run % 7
    }));
}

fn stride(run: u64) -> u64 {
    if run.is_multiple_of(2) { 1 } else { 3 }
}
