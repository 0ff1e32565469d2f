//! What every store must promise, as checks that any adapter can run against its real server.
//!
//! An adapter's test implements [`SegmentFixture`] and [`LeaseFixture`] for its server and calls [`segments`] and
//! [`leases`]. A breach panics with a message that says which promise was broken; [`segment_checks`] and
//! [`lease_checks`] hold each check by itself. The checks need a tokio runtime, wait for conditions and not for fixed
//! times, and each uses tags or a namespace of its own in one fresh store. They run one after the other: the one on the
//! tag limit counts all tags.

pub mod lease_checks;
pub mod segment_checks;

use std::fmt::Debug;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;

use crate::{LeaseLimits, LeaseStore, SegmentStore, StoreError, StripeNumbers, TagCreation};

/// A running store, empty at first.
///
/// ```
/// use unalike_storage::contract::Fixture;
///
/// /// A store in memory has nothing that could be restarted.
/// struct Memory;
///
/// #[async_trait::async_trait]
/// impl Fixture for Memory {
///     async fn restart(&self) {}
/// }
/// ```
#[async_trait]
pub trait Fixture: Send + Sync {
    /// Stops the store and starts it again on the data that it keeps. All clients were dropped before.
    ///
    /// A store that cannot be restarted, such as one in memory, keeps what it has and does nothing here.
    async fn restart(&self);
}

/// A running segment store.
///
/// ```
/// use unalike_storage::contract::{self, SegmentFixture};
///
/// /// In a test of the adapter.
/// async fn my_store_keeps_the_contract_of_segments(fixture: &dyn SegmentFixture) {
///     contract::segments(fixture).await;
/// }
/// ```
#[async_trait]
pub trait SegmentFixture: Fixture {
    /// A new client of the one store, with connections of its own, as another process would have.
    async fn segment_client(&self, creation: TagCreation) -> Arc<dyn SegmentStore>;

    /// Whether the store takes tails back at all.
    fn takes_tails_back(&self) -> bool {
        true
    }

    /// Whether it keeps one order of all numbers, which several stores together do not.
    fn keeps_order(&self) -> bool {
        true
    }

    /// Whether it can end a tag.
    fn ends_tags(&self) -> bool {
        true
    }

    /// Whether sub-keys are created by rules of its own, such as a limit for each tag, and not as the port has it.
    fn has_rules_for_sub_keys(&self) -> bool {
        false
    }

    /// Whether formats are bound by rules of its own, such as only to tags that exist, and not as the port has it.
    fn has_rules_for_formats(&self) -> bool {
        false
    }

    /// Whether it can be one of several stripes.
    fn can_be_a_stripe(&self) -> bool {
        true
    }
}

/// A running lease store.
///
/// ```
/// use unalike_storage::contract::{self, LeaseFixture};
///
/// /// In a test of the adapter.
/// async fn my_store_keeps_the_contract_of_leases(fixture: &dyn LeaseFixture) {
///     contract::leases(fixture).await;
/// }
/// ```
#[async_trait]
pub trait LeaseFixture: Fixture {
    /// A new client of the one store, with connections of its own, as another process would have.
    async fn lease_client(&self, limits: LeaseLimits) -> Arc<dyn LeaseStore>;

    /// Whether a restart puts everything in doubt that the store granted, as with a store that keeps nothing durably.
    fn forgets_in_a_restart(&self) -> bool {
        false
    }
}

/// Runs all of [`segment_checks`].
///
/// # Panics
/// When the store breaks a promise.
pub async fn segments(fixture: &dyn SegmentFixture) {
    use segment_checks as check;
    // While it is new.
    let numbers = if fixture.can_be_a_stripe() {
        Some(check::a_stripe_grants_only_to_those_who_joined_it(fixture).await)
    } else {
        None
    };
    check::the_first_number_is_the_start(fixture).await;
    check::grants_are_well_formed_and_ascend(fixture).await;
    check::concurrent_clients_never_share_a_number(fixture).await;
    check::at_least_skips_up_and_never_back(fixture).await;
    check::tags_are_independent(fixture).await;
    check::unknown_tags_are_created_only_when_allowed(fixture).await;
    check::bad_requests_are_refused(fixture).await;
    check::odd_names_are_kept_as_they_are(fixture).await;
    check::no_name_with_a_space_at_an_end_is_created(fixture).await;
    check::numbers_end_at_the_top(fixture).await;
    check::a_tail_is_taken_back_once(fixture).await;
    check::a_tail_that_was_not_granted_is_not_taken_back(fixture).await;
    check::a_raise_stands_against_a_late_release(fixture).await;
    check::tags_keep_their_options(fixture).await;
    check::a_raise_lifts_and_never_lowers(fixture).await;
    check::tags_are_listed_in_byte_order(fixture).await;
    if !fixture.has_rules_for_sub_keys() {
        check::sub_keys_have_the_options_of_their_tag(fixture).await;
    }
    check::the_identity_is_the_same_for_all(fixture).await;
    if fixture.ends_tags() {
        check::an_ended_tag_grants_nothing(fixture).await;
        check::no_sub_key_is_made_after_the_end_of_its_tag(fixture).await;
    }
    check::an_abandoned_request_costs_only_numbers(fixture).await;
    check::the_tag_limit_holds(fixture).await;
    check::a_restart_repeats_nothing(fixture).await;
    // Last, since it lifts all names that are created after it.
    if numbers == Some(StripeNumbers::Counted) {
        check::new_names_begin_above_their_floor(fixture).await;
    }
    // After it: what is bound is no number that a floor would lift.
    if !fixture.has_rules_for_formats() {
        check::what_is_bound_of_a_format_stays(fixture).await;
    }
}

/// Runs all of [`lease_checks`].
///
/// # Panics
/// When the store breaks a promise.
pub async fn leases(fixture: &dyn LeaseFixture) {
    use lease_checks as check;
    check::bounds_lie_on_the_tick_grid(fixture).await;
    check::concurrent_holders_never_share_a_tick(fixture).await;
    check::each_acquire_is_a_new_grant(fixture).await;
    check::two_holders_of_one_name_have_a_worker_each(fixture).await;
    check::no_lease_reaches_beyond_the_horizon_of_its_namespace(fixture).await;
    check::a_stranger_extends_nothing(fixture).await;
    check::an_extension_never_lowers_the_end(fixture).await;
    check::a_lease_that_nobody_followed_goes_on(fixture).await;
    check::a_clock_that_is_behind_reaches_no_predecessor(fixture).await;
    check::a_release_hands_the_worker_over(fixture).await;
    check::a_release_never_ends_a_lease_before_its_start(fixture).await;
    check::a_release_by_a_stranger_changes_nothing(fixture).await;
    check::exhaustion_says_when_a_worker_is_free(fixture).await;
    check::never_used_workers_come_first_and_at_random(fixture).await;
    check::a_holder_gets_its_worker_back(fixture).await;
    check::another_layout_is_refused(fixture).await;
    check::a_clock_that_is_off_is_refused(fixture).await;
    check::bad_requests_are_refused(fixture).await;
    check::leases_are_listed_by_worker(fixture).await;
    check::an_operator_ends_a_lease_where_it_ends(fixture).await;
    check::namespaces_are_listed(fixture).await;
    check::an_abandoned_request_costs_only_an_interval(fixture).await;
    if fixture.forgets_in_a_restart() {
        check::a_restart_puts_everything_in_doubt(fixture).await;
    } else {
        check::a_restart_forgets_nothing(fixture).await;
    }
}

/// The value, or a panic that says what should have worked.
fn expected<T>(result: Result<T, StoreError>, what: &str) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{what} must succeed, but: {error} ({error:?})"),
    }
}

/// The error, or a panic that says what should have failed.
fn refused<T: Debug>(result: Result<T, StoreError>, what: &str) -> StoreError {
    match result {
        Ok(value) => panic!("{what} must be refused, but gave {value:?}"),
        Err(error) => error,
    }
}

/// Runs a request until it was polled so often, then drops it, as a caller does who no longer wants the answer: each
/// number of polls is another place in the request.
async fn abandoned_after<T>(polls: u32, request: impl Future<Output = T>) -> Option<T> {
    let mut request = pin!(request);
    let mut polled = 0;
    poll_fn(|context| {
        if polled == polls {
            return Poll::Ready(None);
        }
        polled += 1;
        let answer = request.as_mut().poll(context).map(Some);
        if answer.is_pending() && polled == polls { Poll::Ready(None) } else { answer }
    })
    .await
}
