//! model
use std::time::Instant;
use unalike_tests::lease_model::{Feature, Rule, Scene, Without, search};

const PLAIN: Scene = Scene {
    feature: Feature::Operator,
    processes: 2,
    workers: 1,
    tick_ms: 1,
    sequences: 1,
    clock_max_ms: 2,
    horizon_ms: 2,
    max_horizon_ms: 2,
    grants_max: 3,
};

#[test]
fn try_it() {
    for scene in [Scene { grants_max: 2, ..PLAIN }, PLAIN, Scene { workers: 2, grants_max: 2, ..PLAIN }] {
        let t = Instant::now();
        match search(scene, Without::default()) {
            Ok(e) => println!("{e} {:?}", t.elapsed()),
            Err(f) => println!("{f} {:?}", t.elapsed()),
        }
    }
    let t = Instant::now();
    match search(PLAIN, Without::rules(&[Rule::ExtendNamesGrant])) {
        Ok(e) => println!("{e} {:?}", t.elapsed()),
        Err(f) => println!("{f} {} {:?}", f.states, t.elapsed()),
    }
}
