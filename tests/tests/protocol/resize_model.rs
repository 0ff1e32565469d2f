//! Every order of two resizes of the same stores, with crashes, programs and repetitions: see
//! `unalike_tests::resize_model`.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot do its work fails the test")]

use unalike_tests::resize_model::{Resizes, Searched, search};

fn resizes(from: &[usize], to: [&[usize]; 2]) -> Resizes {
    Resizes {
        from: from.to_vec(),
        to: to.map(<[usize]>::to_vec),
        grants: 1,
        crashes: 1,
        floor: 0,
        unconditional: false,
    }
}

/// No number comes twice: with a program between all steps, and with a crash at each.
#[track_caller]
fn assert_safe(resizes: &Resizes) -> usize {
    let mut floors = 0;
    for (grants, crashes) in [(1, 0), (0, 1)] {
        let searched = search(&Resizes { grants, crashes, ..resizes.clone() }).unwrap();
        println!("{resizes:?}: {searched:?}");
        let Searched { states, ends, .. } = searched;
        assert!(states > 500 && ends > 2, "{searched:?}");
        floors += searched.floors;
    }
    floors
}

#[test]
fn two_calls_that_grow_one_store_in_two_orders() {
    assert_eq!(assert_safe(&resizes(&[0], [&[0, 1], &[1, 0]])), 0, "a call can always be repeated as it was");
}

#[test]
fn two_calls_with_different_new_stores() {
    assert_eq!(assert_safe(&resizes(&[0], [&[0, 1], &[2, 0]])), 0, "a call can always be repeated as it was");
}

#[test]
fn two_calls_that_move_one_store_to_different_ones() {
    let _floors = assert_safe(&resizes(&[0], [&[1], &[2]]));
}

#[test]
fn one_call_grows_and_one_moves() {
    let _floors = assert_safe(&resizes(&[0], [&[1, 0], &[1]]));
}

#[test]
fn one_call_shrinks_and_one_turns_around() {
    let _floors = assert_safe(&resizes(&[0, 1], [&[0], &[1, 0]]));
}

/// A set is known by its name; a store that stands alone again has none, so that a floor may be needed after two calls
/// that broke each other off.
#[test]
fn two_calls_that_end_with_one_store_each_may_need_a_floor() {
    assert!(assert_safe(&resizes(&[0, 1], [&[0], &[1]])) > 0, "else this can be said otherwise");
}

/// What the search must find.
#[test]
fn without_the_compare_numbers_come_twice() {
    let broken = Resizes { unconditional: true, ..resizes(&[0], [&[0, 1], &[1, 0]]) };
    let found = search(&broken).unwrap_err();
    assert!(found.contains("may grant"), "{found}");
}

/// A floor says that all other stores are lost, and then nobody looks for them.
#[test]
fn without_a_look_at_all_stores_of_a_set_numbers_come_twice() {
    let broken = Resizes { floor: 1, ..resizes(&[0], [&[1], &[2]]) };
    let found = search(&broken).unwrap_err();
    assert!(found.contains("may grant"), "{found}");
}
