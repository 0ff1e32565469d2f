//! The built component in wasmtime, through its WIT alone: what it imports, how large it is, and how each export
//! answers. The host here is a few lines of synchronous Rust; nothing of the library is used.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot do its work fails the test")]

use std::collections::{BTreeMap, BTreeSet};

use unalike::component::engine_config;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, HasSelf, Linker, ResourceAny};
use wasmtime::{Engine, Store};

mod bindings {
    wasmtime::component::bindgen!({ path: "../wit", world: "core" });
}

use bindings::exports::unalike::ids::sequences::{RefillPolicy, SequenceOptions};
use bindings::exports::unalike::ids::snowflakes::{ClockPolicy, SnowflakeOptions, Spread};
use bindings::unalike::ids::types::{Argument, Error, FieldOrder, GrantFault, Layout, Run, StoreError};
use bindings::unalike::ids::{leases, segments, types};

const NOW: u64 = 1_700_000_000_000;
const ID_MAX: u64 = (1 << 63) - 1;
const TWITTER: Layout = Layout {
    timestamp_bits: 41,
    datacenter_bits: 5,
    worker_bits: 5,
    sequence_bits: 12,
    order: FieldOrder::WorkerFirst,
    epoch_ms: 1_288_834_974_657,
    tick_ms: 1,
};
const OPTIONS: SequenceOptions = SequenceOptions {
    step: 10,
    step_min: 10,
    step_max: 10,
    grow_below_ms: 0,
    shrink_above_ms: 0,
    refill: RefillPolicy::ShareConsumed(100),
    prefetch: 1,
    floor: 0,
    id_max: ID_MAX,
};

/// A host that answers when the test says so.
#[derive(Default)]
struct Host {
    tickets: u64,
    /// (ticket, tag, count, at least)
    allocations: Vec<(u64, String, u64, u64)>,
    released: Vec<(String, u64, u64)>,
    /// (ticket, extended worker)
    lease_requests: Vec<(u64, Option<u32>)>,
    leases_released: Vec<(u32, u64)>,
    segment_answers: BTreeMap<u64, Result<segments::Segment, StoreError>>,
    lease_answers: BTreeMap<u64, Result<leases::Lease, StoreError>>,
}

impl Host {
    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }
}

impl types::Host for Host {}

impl segments::Host for Host {
    fn allocate(&mut self, tag: String, count: u64, at_least: u64) -> u64 {
        let ticket = self.ticket();
        self.allocations.push((ticket, tag, count, at_least));
        ticket
    }

    fn poll(&mut self, ticket: u64) -> Option<Result<segments::Segment, StoreError>> {
        self.segment_answers.remove(&ticket)
    }

    fn release(&mut self, tag: String, start: u64, version: u64) {
        self.released.push((tag, start, version));
    }
}

impl leases::Host for Host {
    fn acquire(&mut self, _namespace: String, _layout: Layout, _now: u64, _horizon_ms: u64) -> u64 {
        let ticket = self.ticket();
        self.lease_requests.push((ticket, None));
        ticket
    }

    fn extend(
        &mut self,
        _namespace: String,
        _layout: Layout,
        worker: u32,
        _grant_id: leases::GrantId,
        _now: u64,
        _horizon_ms: u64,
    ) -> u64 {
        let ticket = self.ticket();
        self.lease_requests.push((ticket, Some(worker)));
        ticket
    }

    fn poll(&mut self, ticket: u64) -> Option<Result<leases::Lease, StoreError>> {
        self.lease_answers.remove(&ticket)
    }

    fn release(&mut self, _namespace: String, worker: u32, _grant_id: leases::GrantId, end: u64) {
        self.leases_released.push((worker, end));
    }
}

struct Instance {
    store: Store<Host>,
    core: bindings::Core,
}

fn engine() -> Engine {
    Engine::new(&engine_config()).unwrap()
}

impl Instance {
    fn new() -> Self {
        let engine = engine();
        let component = Component::new(&engine, unalike_artifact::CORE).unwrap();
        let mut linker = Linker::new(&engine);
        bindings::Core::add_to_linker::<_, HasSelf<Host>>(&mut linker, |host| host).unwrap();
        let mut store = Store::new(&engine, Host::default());
        let core = bindings::Core::instantiate(&mut store, &component, &linker).unwrap();
        Self { store, core }
    }

    fn sequence(&mut self, tag: &str, options: SequenceOptions) -> Result<ResourceAny, Error> {
        self.core.unalike_ids_sequences().sequence().call_open(&mut self.store, tag, options).unwrap()
    }

    fn reserve(&mut self, sequence: ResourceAny, max: u32) -> Result<Run, Error> {
        self.core.unalike_ids_sequences().sequence().call_reserve(&mut self.store, sequence, NOW, max).unwrap()
    }

    fn close(&mut self, sequence: ResourceAny) {
        self.core.unalike_ids_sequences().sequence().call_close(&mut self.store, sequence).unwrap();
    }

    fn grant(&mut self, start: u64, end: u64) {
        let (ticket, ..) = *self.store.data().allocations.last().unwrap();
        let segment = segments::Segment { start, end, stride: 1, generation: 0, version: end };
        self.store.data_mut().segment_answers.insert(ticket, Ok(segment));
    }

    fn ordered(&mut self, tag: &str, floor: u64, id_max: u64) -> Result<ResourceAny, Error> {
        self.core.unalike_ids_sequences().ordered().call_open(&mut self.store, tag, floor, id_max).unwrap()
    }

    fn begin(&mut self, ordered: ResourceAny, count: u32) -> Result<u64, Error> {
        self.core.unalike_ids_sequences().ordered().call_begin(&mut self.store, ordered, NOW, count).unwrap()
    }

    fn claim(&mut self, ordered: ResourceAny, round: u64) -> Result<Run, Error> {
        self.core.unalike_ids_sequences().ordered().call_claim(&mut self.store, ordered, NOW, round).unwrap()
    }

    fn snowflake(&mut self, options: SnowflakeOptions) -> Result<ResourceAny, Error> {
        self.core.unalike_ids_snowflakes().snowflake().call_open(&mut self.store, "default", options).unwrap()
    }

    fn flake(&mut self, snowflake: ResourceAny, now: u64, max: u32) -> Result<Run, Error> {
        self.core.unalike_ids_snowflakes().snowflake().call_reserve(&mut self.store, snowflake, now, max).unwrap()
    }

    /// Why `reserve` would hand out nothing.
    fn blocked(&mut self, snowflake: ResourceAny, now: u64) -> Option<String> {
        let snowflakes = self.core.unalike_ids_snowflakes();
        let status = snowflakes.snowflake().call_status(&mut self.store, snowflake, now).unwrap();
        status.blocked.map(|error| format!("{error:?}"))
    }

    fn lease(&mut self, worker: u32, not_before: u64, valid_until: u64) {
        let (ticket, _) = *self.store.data().lease_requests.last().unwrap();
        let lease = leases::Lease { worker, grant_id: leases::GrantId { high: 1, low: 2 }, not_before, valid_until };
        self.store.data_mut().lease_answers.insert(ticket, Ok(lease));
    }
}

fn snowflake_options(layout: Layout) -> SnowflakeOptions {
    SnowflakeOptions {
        layout,
        clock: ClockPolicy::Reject,
        horizon_ms: 60_000,
        ahead_max_ms: 0,
        floor: 0,
        spread: Spread::None,
        seed: 0,
    }
}

/// The names of an error's case, since generated types have no equality.
fn case<T: std::fmt::Debug>(answer: Result<T, Error>) -> String {
    format!("{:?}", answer.unwrap_err())
}

#[test]
fn it_reaches_the_two_storage_interfaces_and_nothing_else() {
    let engine = engine();
    let component = Component::new(&engine, unalike_artifact::CORE).unwrap();
    let ty = component.component_type();
    let mut functions = BTreeMap::new();
    for (name, item) in ty.imports(&engine) {
        let ComponentItem::ComponentInstance(instance) = item.ty else { panic!("{name} is no interface") };
        let items: BTreeSet<String> = instance
            .exports(&engine)
            .filter(|(_, item)| matches!(item.ty, ComponentItem::ComponentFunc(_)))
            .map(|(name, _)| name.to_owned())
            .collect();
        functions.insert(name.to_owned(), items);
    }
    let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
    let expected = BTreeMap::from([
        ("unalike:ids/types@0.1.0".to_owned(), set(&[])),
        ("unalike:ids/segments@0.1.0".to_owned(), set(&["allocate", "poll", "release"])),
        ("unalike:ids/leases@0.1.0".to_owned(), set(&["acquire", "extend", "poll", "release"])),
    ]);
    assert_eq!(functions, expected);
    let exports: Vec<_> = ty.exports(&engine).map(|(name, _)| name.to_owned()).collect();
    for interface in ["sequences", "snowflakes"] {
        assert!(exports.contains(&format!("unalike:ids/{interface}@0.1.0")), "{exports:?}");
    }
}

#[test]
fn it_fits_in_32_kib() {
    let size = unalike_artifact::CORE.len();
    assert!(size <= 32 * 1024, "the component has {size} bytes");
}

#[test]
fn a_sequence_hands_out_its_segments_and_asks_for_the_next() {
    let mut host = Instance::new();
    let orders = host.sequence("order", OPTIONS).unwrap();
    assert_eq!(case(host.reserve(orders, 5)), "Error::Pending");
    assert_eq!(case(host.reserve(orders, 5)), "Error::Pending");
    assert_eq!(host.store.data().allocations, [(1, "order".to_owned(), 10, 0)], "one request at a time");
    host.grant(1, 11);
    let run = host.reserve(orders, 4).unwrap();
    assert_eq!((run.first, run.stride, run.count), (1, 1, 4));
    let run = host.reserve(orders, 100).unwrap();
    assert_eq!((run.first, run.count), (5, 6));
    assert_eq!(host.store.data().allocations.last().unwrap().3, 11, "the floor goes with the request");
    host.grant(11, 21);
    assert_eq!(host.reserve(orders, 1).unwrap().first, 11);
    host.close(orders);
    assert_eq!(host.store.data().released, [("order".to_owned(), 12, 21)]);
    assert_eq!(case(host.reserve(orders, 1)), "Error::Closed");
    host.close(orders);
    assert_eq!(host.store.data().released.len(), 1);
}

#[test]
fn a_store_that_fails_or_breaks_its_promise_is_told_to_the_caller() {
    let mut host = Instance::new();
    let orders = host.sequence("order", OPTIONS).unwrap();
    assert_eq!(case(host.reserve(orders, 5)), "Error::Pending");
    host.store.data_mut().segment_answers.insert(1, Err(StoreError::OutcomeUnknown));
    assert_eq!(case(host.reserve(orders, 5)), "Error::StoreFailed(10)");
    let later = |host: &mut Instance, now| {
        host.core.unalike_ids_sequences().sequence().call_reserve(&mut host.store, orders, now, 5).unwrap()
    };
    assert_eq!(case(later(&mut host, NOW + 10)), "Error::Pending");
    host.grant(1, 11);
    assert_eq!(later(&mut host, NOW + 10).unwrap().count, 5);
    assert_eq!(later(&mut host, NOW + 10).unwrap().count, 5);
    host.grant(10, 20);
    assert_eq!(case(later(&mut host, NOW + 10)), "Error::GrantRefused(GrantFault::Overlap)");
    let _: GrantFault = GrantFault::Overlap;
    assert_eq!(case(later(&mut host, NOW + 1_000)), "Error::Pending");
    host.grant(20, 20);
    assert_eq!(case(later(&mut host, NOW + 1_000)), "Error::GrantRefused(GrantFault::Malformed)");
    assert_eq!(case(later(&mut host, NOW + 2_000)), "Error::Pending");
    let ticket = host.store.data().allocations.last().unwrap().0;
    host.store.data_mut().segment_answers.insert(ticket, Err(StoreError::TagUnknown));
    assert_eq!(case(later(&mut host, NOW + 2_000)), "Error::StoreFailed(0)", "asking again cannot help");
    assert_eq!(case(later(&mut host, NOW + 3_000)), "Error::Pending");
    let ticket = host.store.data().allocations.last().unwrap().0;
    host.store.data_mut().segment_answers.insert(ticket, Err(StoreError::Exhausted));
    assert_eq!(case(later(&mut host, NOW + 3_000)), "Error::Exhausted");
}

#[test]
fn an_ordered_round_is_claimed_by_its_number_once() {
    let mut host = Instance::new();
    let tickets = host.ordered("ticket", 0, ID_MAX).unwrap();
    let round = host.begin(tickets, 3).unwrap();
    assert_eq!(case(host.begin(tickets, 1)), "Error::Pending");
    assert_eq!(case(host.claim(tickets, round)), "Error::Pending");
    host.grant(7, 10);
    assert_eq!(case(host.claim(tickets, round + 1)), "Error::InvalidArgument(Argument::Round)");
    let run = host.claim(tickets, round).unwrap();
    assert_eq!((run.first, run.count), (7, 3));
    assert_eq!(case(host.claim(tickets, round)), "Error::InvalidArgument(Argument::Round)");
    let next = host.begin(tickets, 2).unwrap();
    assert_eq!(host.store.data().allocations.last().unwrap().2, 2);
    assert!(next > round);
}

#[test]
fn no_id_is_above_the_bound_and_after_it_nothing_is_asked_for() {
    let mut host = Instance::new();
    let orders = host.sequence("order", SequenceOptions { id_max: 12, ..OPTIONS }).unwrap();
    assert_eq!(case(host.reserve(orders, 5)), "Error::Pending");
    host.grant(6, 16);
    let run = host.reserve(orders, 5).unwrap();
    assert_eq!((run.first, run.count), (6, 5));
    let run = host.reserve(orders, 5).unwrap();
    assert_eq!((run.first, run.count), (11, 2));
    for _ in 0..3 {
        assert_eq!(case(host.reserve(orders, 5)), "Error::Exhausted");
    }
    let status = host.core.unalike_ids_sequences().sequence().call_status(&mut host.store, orders, NOW).unwrap();
    assert_eq!((status.remaining, status.in_flight, status.wake), (0, false, u64::MAX));
    assert_eq!(host.store.data().allocations.len(), 1);
    let late = host.sequence("order", SequenceOptions { id_max: 12, floor: 13, ..OPTIONS }).unwrap();
    assert_eq!(case(host.reserve(late, 1)), "Error::Exhausted");

    let tickets = host.ordered("ticket", 6, 12).unwrap();
    let round = host.begin(tickets, 10).unwrap();
    host.grant(11, 21);
    let run = host.claim(tickets, round).unwrap();
    assert_eq!((run.first, run.count), (11, 2));
    assert_eq!(case(host.begin(tickets, 1)), "Error::Exhausted");
    let tickets = host.ordered("ticket", 0, 12).unwrap();
    let round = host.begin(tickets, 1).unwrap();
    host.grant(13, 14);
    assert_eq!(case(host.claim(tickets, round)), "Error::Exhausted");
    let tickets = host.ordered("ticket", 13, 12).unwrap();
    assert_eq!(case(host.begin(tickets, 1)), "Error::Exhausted");
    assert_eq!(host.store.data().allocations.len(), 3);
}

#[test]
fn a_stripe_that_may_be_behind_is_waited_for() {
    let mut host = Instance::new();
    let orders = host.sequence("order", SequenceOptions { id_max: 12, ..OPTIONS }).unwrap();
    assert_eq!(case(host.reserve(orders, 5)), "Error::Pending");
    let segment = segments::Segment { start: 13, end: 33, stride: 2, generation: 0, version: 1 };
    host.store.data_mut().segment_answers.insert(1, Ok(segment));
    assert_eq!(case(host.reserve(orders, 5)), "Error::Wait(10)");
}

#[test]
fn a_snowflake_stamps_inside_its_lease_and_gives_the_rest_back() {
    let mut host = Instance::new();
    let flakes = host.snowflake(snowflake_options(TWITTER)).unwrap();
    assert_eq!(case(host.flake(flakes, NOW, 1)), "Error::Pending");
    host.lease(33, NOW, NOW + 60_000);
    let run = host.flake(flakes, NOW, 10).unwrap();
    let parts = unalike_core::Layout::TWITTER.unpack(run.first).unwrap();
    assert_eq!((parts.ticks + TWITTER.epoch_ms, parts.worker, parts.sequence, run.count), (NOW, 33, 0, 10));
    assert_eq!(host.flake(flakes, NOW, u32::MAX).unwrap().count, 4_086);
    assert_eq!(case(host.flake(flakes, NOW, 1)), "Error::Wait(1)");
    assert_eq!(case(host.flake(flakes, NOW - 7, 1)), "Error::ClockMovedBack(7)");
    assert_eq!(case(host.flake(flakes, NOW + 60_000, 1)), "Error::Pending");
    assert_eq!(host.store.data().lease_requests.last().unwrap().1, Some(33), "the lease is extended");
    let status = host.core.unalike_ids_snowflakes().snowflake().call_status(&mut host.store, flakes, NOW).unwrap();
    assert_eq!((status.worker, status.used_until, status.in_flight), (Some(33), NOW + 1, true));
    host.core.unalike_ids_snowflakes().snowflake().call_close(&mut host.store, flakes).unwrap();
    assert_eq!(host.store.data().leases_released, [(33, NOW + 1)]);
    assert_eq!(case(host.flake(flakes, NOW + 5, 1)), "Error::Closed");
    assert_eq!(case(host.flake(flakes, 0, 1)), "Error::Closed");
}

#[test]
fn each_clock_policy_answers_at_once() {
    for (clock, behind, expected) in [
        (ClockPolicy::Reject, 1, "Error::ClockMovedBack(1)"),
        (ClockPolicy::Wait(5), 5, "Error::Wait(10)"),
        (ClockPolicy::Wait(5), 6, "Error::ClockMovedBack(6)"),
        (ClockPolicy::Keep(2_000), 2_001, "Error::ClockMovedBack(2001)"),
    ] {
        let mut host = Instance::new();
        let flakes = host.snowflake(SnowflakeOptions { clock, ..snowflake_options(TWITTER) }).unwrap();
        assert_eq!(case(host.flake(flakes, NOW, 1)), "Error::Pending");
        host.lease(33, NOW, NOW + 60_000);
        host.flake(flakes, NOW, 1).unwrap();
        assert_eq!(case(host.flake(flakes, NOW - behind, 1)), expected);
        assert_eq!(host.blocked(flakes, NOW - behind).unwrap(), expected, "and the status says so, too");
        assert_eq!(host.blocked(flakes, NOW), None);
    }
    let mut host = Instance::new();
    let options = SnowflakeOptions { clock: ClockPolicy::Keep(2_000), ahead_max_ms: 10, ..snowflake_options(TWITTER) };
    let flakes = host.snowflake(options).unwrap();
    assert_eq!(case(host.flake(flakes, NOW, 1)), "Error::Pending");
    host.lease(33, NOW - 5_000, NOW + 60_000);
    let first = host.flake(flakes, NOW, 1).unwrap().first;
    let kept = host.flake(flakes, NOW - 2_000, u32::MAX).unwrap();
    assert_eq!((kept.first, kept.count), (first + 1, 4_095), "the last tick is used up");
    assert_eq!(case(host.flake(flakes, NOW - 2_000, 1)), "Error::Wait(1991)", "and none beyond what may be borrowed");
    for ahead in 1..=9 {
        assert_eq!(host.flake(flakes, NOW - 1, u32::MAX).unwrap().first, first + (ahead << 22));
    }
    assert_eq!(case(host.flake(flakes, NOW - 1, 1)), "Error::Wait(1)");
}

#[test]
fn a_spread_begins_each_tick_elsewhere() {
    let mut host = Instance::new();
    let options = SnowflakeOptions { spread: Spread::Rotating(2), seed: 1, ..snowflake_options(TWITTER) };
    let flakes = host.snowflake(options).unwrap();
    assert_eq!(case(host.flake(flakes, NOW, 1)), "Error::Pending");
    host.lease(33, NOW, NOW + 60_000);
    for (tick, offset) in [1, 2, 3, 0, 1].into_iter().enumerate() {
        let run = host.flake(flakes, NOW + tick as u64, 1).unwrap();
        assert_eq!(run.first % 4_096, offset);
        let rest = host.flake(flakes, NOW + tick as u64, u32::MAX).unwrap();
        assert_eq!((rest.first, u64::from(rest.count)), (run.first + 1, 4_095 - offset));
    }
    let options = SnowflakeOptions { spread: Spread::Random(5), ..snowflake_options(TWITTER) };
    let starts: BTreeSet<u64> = (0..64)
        .map(|seed| {
            let flakes = host.snowflake(SnowflakeOptions { seed, ..options }).unwrap();
            assert_eq!(case(host.flake(flakes, NOW, 1)), "Error::Pending");
            host.lease(33, NOW, NOW + 60_000);
            host.flake(flakes, NOW, 1).unwrap().first % 4_096
        })
        .collect();
    assert!(starts.len() > 16 && starts.iter().all(|&start| start < 32), "{starts:?}");
    let reversed = Layout { order: FieldOrder::SequenceFirst, ..TWITTER };
    for (layout, spread) in [
        (TWITTER, Spread::Rotating(0)),
        (TWITTER, Spread::Rotating(13)),
        (TWITTER, Spread::Random(255)),
        (reversed, Spread::Random(3)),
    ] {
        let refused = host.snowflake(SnowflakeOptions { spread, ..snowflake_options(layout) });
        assert_eq!(case(refused), "Error::InvalidArgument(Argument::Spread)");
    }
}

#[test]
fn bad_arguments_are_told_and_change_nothing() {
    let mut host = Instance::new();
    let long = "x".repeat(129);
    for tag in ["", "a\nb", "\u{7f}", "\u{85}", long.as_str()] {
        assert_eq!(case(host.sequence(tag, OPTIONS)), "Error::InvalidArgument(Argument::Name)", "{tag:?}");
    }
    assert!(host.sequence(&"\u{4f1a}".repeat(42), OPTIONS).is_ok());
    for options in [
        SequenceOptions { step_min: 0, ..OPTIONS },
        SequenceOptions { step: 11, ..OPTIONS },
        SequenceOptions { step_max: 1 << 63, ..OPTIONS },
        SequenceOptions { grow_below_ms: 1, ..OPTIONS },
    ] {
        assert_eq!(case(host.sequence("order", options)), "Error::InvalidArgument(Argument::Step)");
    }
    for options in [
        SequenceOptions { refill: RefillPolicy::ShareConsumed(101), ..OPTIONS },
        SequenceOptions { prefetch: 0, ..OPTIONS },
        SequenceOptions { prefetch: 65, ..OPTIONS },
    ] {
        assert_eq!(case(host.sequence("order", options)), "Error::InvalidArgument(Argument::Refill)");
    }
    for id_max in [0, ID_MAX + 1, u64::MAX] {
        let opened = host.sequence("order", SequenceOptions { id_max, ..OPTIONS });
        assert_eq!(case(opened), "Error::InvalidArgument(Argument::Id)", "{id_max}");
        assert_eq!(case(host.ordered("ticket", 0, id_max)), "Error::InvalidArgument(Argument::Id)", "{id_max}");
    }
    assert_eq!(case(host.ordered("", 0, ID_MAX)), "Error::InvalidArgument(Argument::Name)");
    let orders = host.sequence("order", OPTIONS).unwrap();
    assert_eq!(case(host.reserve(orders, 0)), "Error::InvalidArgument(Argument::Count)");

    let wide = Layout { timestamp_bits: 42, ..TWITTER };
    assert_eq!(case(host.snowflake(snowflake_options(wide))), "Error::InvalidArgument(Argument::Layout)");
    let still = Layout { tick_ms: 0, ..TWITTER };
    assert_eq!(case(host.snowflake(snowflake_options(still))), "Error::InvalidArgument(Argument::Layout)");
    let now = SnowflakeOptions { horizon_ms: 0, ..snowflake_options(TWITTER) };
    assert_eq!(case(host.snowflake(now)), "Error::InvalidArgument(Argument::Horizon)");
    let _: Argument = Argument::Horizon;
    let flakes = host.snowflake(snowflake_options(TWITTER)).unwrap();
    assert_eq!(case(host.flake(flakes, 0, 1)), format!("Error::ClockBeforeEpoch({})", TWITTER.epoch_ms + 1));
    assert!(host.store.data().lease_requests.len() <= 1);
}
